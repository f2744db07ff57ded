"""method="paper" of the estimators: equations (2) to (5) and least squares as they stand; errors include those of A."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cumulants.estimate import jackknife_error
from richcomponents.paper.contrastive import truncated_pinv

N, D = 2000, 3
OWN = ("U",)


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(N, d=D, S2="skewed", A="good", random_state=1)


def by_hand(X, y):
    """beta = Cov(S1)^-1 Cov(U, y), Cov(S1) = Cov(U) - k2(U, A^+ V), all over n - 1."""
    A = rc.ContrastiveRCA(views=D, method="paper").fit(X).A_
    C = np.cov(X.T)
    shared = C[:D, D:] @ truncated_pinv(A).T
    own = C[:D, :D] - (shared + shared.T) / 2
    return np.linalg.solve(own, np.cov(np.column_stack([X, y]).T)[:D, -1])


def regression(rca, component):
    return rc.ComponentRegression(rca=rca, component=component)


def test_least_squares_is_the_formula_over_one_n(data):
    found = regression(rc.ContrastiveRCA(views=D, method="paper"), "S1").fit(data.X, data.y)
    np.testing.assert_allclose(found.coef_, by_hand(data.X, data.y), rtol=1e-9)


def test_errors_are_those_of_refits_without_each_block(data):
    found = regression(rc.ContrastiveRCA(views=D, method="paper"), "S1").fit(data.X, data.y)
    block = np.arange(N) % 20
    left_out = np.stack([by_hand(data.X[block != b], data.y[block != b]) for b in range(20)])
    np.testing.assert_allclose(found.coefficients_.standard_error, jackknife_error(left_out), rtol=1e-6)


@pytest.mark.parametrize("component", ["S1", "S3"])
def test_residualised_is_the_other_view_as_covariates(data, component):
    found = regression(rc.ContrastiveRCA(views=D, method="paper"), component).fit(data.X, data.y)
    centred = data.X - data.X.mean(axis=0)
    both = np.linalg.lstsq(centred, data.y - data.y.mean(), rcond=None)[0]
    np.testing.assert_allclose(found.residualised_, both[:D] if component == "S1" else both[D:], rtol=1e-9)
    assert not np.allclose(found.coef_, found.residualised_, rtol=0.01)


@pytest.mark.parametrize(("one", "many"), [("S1", OWN), ("S2", ("U", "V")), ("S3", ("V",))])
def test_two_views_answer_as_many(data, one, many):
    pair = regression(rc.ContrastiveRCA(views=D, method="paper"), one).fit(data.X, data.y)
    sets = regression(rc.RCA(views=D, method="paper"), many).fit(data.X, data.y)
    np.testing.assert_allclose(sets.coef_, pair.coef_, rtol=1e-8)
    np.testing.assert_allclose(sets.coefficients_.standard_error, pair.coefficients_.standard_error, rtol=1e-6)
    if one != "S2":  # what V predicts of U is all that V says for one, and shrunk by its noise for the other
        np.testing.assert_allclose(sets.residualised_, pair.residualised_, rtol=1e-8)


def test_intervals_cover():
    """95% intervals of the coefficients, 60 draws: the jackknife's errors include those of A."""
    held = []
    for seed in range(60):
        draw = rc.datasets.make_contrastive(3000, d=D, S2="skewed", A="good", random_state=100 + seed)
        table = regression(rc.ContrastiveRCA(views=D, method="paper"), "S1").fit(draw.X, draw.y).coefficients_
        held.append((table.low <= draw.beta) & (draw.beta <= table.high))
    assert 0.92 <= np.mean(held) <= 0.98


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_orders_below_l_are_refused_as_by_compute_cumulant():
    """Of all subsets of three views: L = 3. Covariances, which the paper has not there either, are those of least squares."""
    draw = rc.datasets.make_views(5000, 3, 2, kinds="exponential", random_state=0)
    model = rc.RCA(views=draw.views, method="paper").fit(draw.X)
    views = {view: draw.X[:, columns] for view, columns in draw.views.items()}
    linear = rc.paper.find_linear(views)
    for q, component in model.components_.items():
        for refused in (
            lambda q=q: rc.paper.compute_cumulant(views, linear, q, 2),
            lambda component=component: component.standard_error(2, np.ones(2)),
        ):
            with pytest.raises(rc.DataError, match="takes 3 slots"):
                refused()
        third = rc.paper.compute_cumulant(views, linear, q, 3)
        np.testing.assert_allclose(component.cumulant(3), third, rtol=1e-6, atol=1e-6 * np.abs(third).max())


def test_log_odds_have_errors_that_include_those_of_A():
    data = rc.datasets.make_contrastive(N, d=D, S1="logistic", S2="skewed", A="good", random_state=2)
    errors = {}
    for given in (None, data.A):
        rca = rc.ContrastiveRCA(views=D, method="paper", A=given)
        errors[given is None] = rc.ComponentLogisticRegression(rca=rca).fit(data.X, data.y).coefficients_.standard_error
    assert np.all(errors[True] > errors[False])


def test_the_summary_says_nothing_of_what_the_formulas_do_not_tell(data):
    assert "nan" not in str(rc.ContrastiveRCA(views=D, method="paper").fit(data.X).summary())


@pytest.mark.parametrize("method", ["efficient", "paper"])
def test_fewer_columns_of_v_than_of_the_shared_part_are_warned_of(method):
    data = rc.datasets.make_contrastive(5000, d=4, d_v=2, S2="skewed", random_state=1)
    with pytest.warns(rc.WeakIdentificationWarning, match="all 2 directions of V are shared, and U has 4"):
        rc.ContrastiveRCA(views=4, method=method, classes="none").fit(data.X)
