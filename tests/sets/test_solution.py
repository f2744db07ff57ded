"""One call for any number of views: rows and states give the same answers, and a solution answers what a model asks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import richcomponents as rc
from richcomponents.components.sets import SetSystem
from richcomponents.components.wide import SearchSpace
from richcomponents.data.rows import Rows
from richcomponents.datasets import make_views
from richcomponents.moments import Moments
from richcomponents.moments.data import RowData, StateData
from richcomponents.sets.problem import SetProblem, is_contrastive
from richcomponents.sets.solution import component_name
from tests.sets.population import relative

SETS = SetSystem.of([("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)], "abc")
COMMON, PAIR = ("a", "b", "c"), ("a", "b")
BLOCKS = 20
TITLES = {q: component_name(q) for q in SETS}


def solve(data, place, **options):
    return SetProblem(SearchSpace.whole(data, place), place, str, **options).solve()


def settled(data, place, **options):
    return SetProblem(SearchSpace.whole(data, place), place, str, **options)


@pytest.fixture(scope="module")
def views():
    data = make_views(6000, 3, 2, sets=SETS.members, random_state=3)
    data.X[:] += np.arange(6)
    return data


@pytest.fixture(scope="module")
def solution(views):
    return solve(RowData(Rows(views.X), BLOCKS), views.views, sets=SETS)


@pytest.fixture(scope="module")
def centred(views):
    return views.X - views.X.mean(axis=0)


def test_rows_in_pieces_give_the_same_bits(views, solution):
    pieces = solve(RowData(Rows(np.array_split(views.X, 7)), BLOCKS), views.views, sets=SETS)
    for key, A in solution.transforms().items():
        np.testing.assert_array_equal(pieces.transforms()[key], A)


def test_a_state_differs_by_the_weights_only(views, solution):
    state = solve(StateData(Moments.of(views.X)), views.views, sets=SETS)
    for key, A in solution.transforms().items():
        assert relative(state.transforms()[key], A) < 0.1
    assert state.n == solution.n == 6000
    with pytest.raises(rc.DataError, match="order 5 are needed, and this state has orders up to 4"):
        solve(StateData(Moments.of(views.X)), views.views, sets=SETS, order=5)


def test_weights_are_rows_repeated(views, solution):
    """Copies of a row are a group; weights of one are none."""
    once = solve(RowData(Rows(views.X).weighted_by(np.ones(len(views.X))), BLOCKS), views.views, sets=SETS)
    for key, A in solution.transforms().items():
        np.testing.assert_allclose(once.transforms()[key], A, rtol=1e-9, atol=1e-9)
    weight = np.random.default_rng(0).integers(0, 4, len(views.X))
    weighted = solve(RowData(Rows(views.X).weighted_by(weight), BLOCKS), views.views, sets=SETS)
    state = solve(StateData(Moments.of(views.X, sample_weight=weight)), views.views, sets=SETS)
    for key, A in weighted.transforms().items():
        assert (
            relative(state.transforms()[key], A) < 0.3
        )  # no rows: without the last fit of A, which two views hardly tell here


def test_groups_may_be_single_rows(views, solution):
    groups = np.arange(len(views.X))
    grouped = solve(RowData(Rows(views.X), BLOCKS, groups), views.views, sets=SETS)
    for key, A in solution.transforms().items():
        assert relative(grouped.transforms()[key], A) < 0.1


def test_components_and_predictions_add_up_to_the_views(views, solution, centred):
    mean, names = views.X.mean(axis=0), [f"x{i}" for i in range(6)]
    transforms = solution.transforms()
    components = {q: solution.component(q, names, TITLES[q]) for q in solution.keys}
    assert solution.keys == SETS.members
    assert components["b",].feature_names == ("x2", "x3")
    for view, part in views.views.items():
        here = [q for q in SETS if view in q]
        np.testing.assert_allclose(sum(transforms[view, q] @ components[q].mean for q in here), mean[part], atol=1e-12)
        total = sum(solution.predict(q, centred)[0] @ transforms[view, q].T for q in here)
        np.testing.assert_allclose(total, centred[:, part], atol=1e-8)
    assert sum(share for (view, _), share in solution.variance_shares().items() if view == "a") == pytest.approx(
        1, abs=0.05
    )


def test_residuals_are_those_of_least_squares_on_the_views_outside(solution, centred):
    np.testing.assert_array_equal(solution.outside(PAIR), [4, 5])
    np.testing.assert_array_equal(solution.outside(("b",)), [0, 1, 4, 5])
    assert not len(solution.outside(COMMON))
    for key, home in ((PAIR, slice(0, 2)), (("b",), slice(2, 4)), (COMMON, slice(0, 2))):
        others = centred[:, solution.outside(key)]
        expected = centred[:, home] - others @ np.linalg.lstsq(others, centred[:, home], rcond=None)[0]
        np.testing.assert_allclose(solution.residual(key, centred), expected, atol=1e-9)


def test_the_score_is_a_gaussian_density_and_prefers_the_right_table(solution, centred):
    sigma = np.zeros((6, 6))
    for q in SETS:
        stack = np.zeros((6, 2))
        for view in q:
            stack["abc".index(view) * 2 :][:2] = solution.transform(view, q)
        sigma += stack @ solution.covariance(q) @ stack.T
    expected = stats.multivariate_normal(np.zeros(6), sigma).logpdf(centred).mean()
    assert solution.score(centred, BLOCKS) == pytest.approx(expected, rel=1e-9)
    assert solution.score(centred[:, ::-1], BLOCKS) < expected


def test_a_replicate_is_the_fit_to_the_other_blocks(views, solution, centred):
    other = solution.without(3)
    kept = np.arange(len(views.X)) % BLOCKS != 3
    np.testing.assert_allclose(other.mean, views.X[kept].mean(axis=0), atol=1e-12)
    assert other.blocks == [b for b in solution.blocks if b != 3]
    assert other.n == kept.sum()
    for view in "bc":
        assert relative(other.transform(view, COMMON), solution.transform(view, COMMON)) < 0.1


def test_discovery_comes_before_the_solver(views):
    data = make_views(5000, 2, 2, random_state=0)
    problem = settled(RowData(Rows(data.X), BLOCKS), data.views, sets=SetSystem.all("ab"), discover=True)
    assert is_contrastive(problem.system, "efficient", None)
    assert not is_contrastive(problem.system, "paper", None)
    assert not is_contrastive(problem.system, "efficient", {("a", "b"): "b"})
    assert problem.verdicts is not None
    assert problem.verdicts["a", "b"].kept


def test_the_paper_s_method_works_on_the_columns_themselves(views, solution, centred):
    paper = solve(RowData(Rows(views.X), BLOCKS), views.views, sets=SETS.without(PAIR), method="paper", order=5)
    assert paper.relative_errors is None
    np.testing.assert_allclose(paper.white.into, np.eye(6))
    assert solution.score(centred, BLOCKS) > paper.score(centred, BLOCKS) - 0.1
    assert relative(paper.without(0).transform("b", COMMON), paper.transform("b", COMMON)) < 0.3
