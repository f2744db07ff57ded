"""RCA: the estimator for any set system."""

from __future__ import annotations

import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.datasets import make_views
from richcomponents.moments import Moments

mpl.use("Agg")

COMMON = ("a", "b", "c")
SETS = [COMMON, ("a", "b"), ("a",), ("b",), ("c",)]


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


@pytest.fixture(scope="module")
def data():
    return make_views(20_000, 3, 2, sets=SETS, kinds=("exponential", "discrete", "uniform"), random_state=1)


@pytest.fixture(scope="module")
def model(data):
    return rc.RCA(views=data.views, sets=SETS).fit(data.X)


def test_transformations_and_covariances(data, model):
    for (view, q), A in data.transforms.items():
        assert relative(model.transforms_[view, q], A) < 0.1
    for q, covariance in data.covariances.items():
        assert relative(model.components_[q].covariance, covariance) < 0.15
        assert np.linalg.eigvalsh(model.components_[q].covariance).min() >= -1e-12
        np.testing.assert_array_equal(model.transforms_[q[0], q], np.eye(2))


def test_cumulants_of_components(data, model):
    for q in SETS:
        for order, most in ((3, 0.35), (4, 0.6)):
            truth = data.cumulant(q, order)
            if np.linalg.norm(truth) > 1:
                assert relative(model.components_[q].cumulant(order), truth) < most
        theta = np.array([0.3, -1.0])
        tensor = model.components_[q].cumulant(3)
        np.testing.assert_allclose(model.components_[q].projected_cumulant(theta, 3), tensor @ theta @ theta, atol=1e-9)


def test_predictions_add_up_to_the_views(data, model):
    for view in data.views:
        total = sum(model.predict_component(data.X, q) @ model.transforms_[view, q].T for q in SETS if view in q)
        np.testing.assert_allclose(total, data.view(view), atol=1e-8)
        means = sum(model.transforms_[view, q] @ model.components_[q].mean for q in SETS if view in q)
        np.testing.assert_allclose(means, data.view(view).mean(axis=0), atol=1e-10)


def test_predictions_know_their_error(data, model):
    for q in SETS:
        predicted, std = model.transform(data.X, q, return_std=True)
        actual = np.sqrt(np.mean((predicted - data.components[q]) ** 2, axis=0))
        np.testing.assert_allclose(std[0], actual, rtol=0.1)


def test_shares_of_variance_add_up(data, model):
    for view in data.views:
        assert sum(share for (v, _), share in model.variance_shares_.items() if v == view) == pytest.approx(1, abs=0.02)


def test_linear_maps_of_the_views_move_the_transformations(data, model):
    rng = np.random.default_rng(0)
    maps = {view: rng.normal(size=(2, 2)) + 2 * np.eye(2) for view in data.views}
    moved = np.hstack([data.view(view) @ maps[view].T + 5 for view in data.views])
    other = rc.RCA(views=data.views, sets=SETS).fit(moved)
    for (view, q), A in model.transforms_.items():
        expected = maps[view] @ A @ np.linalg.inv(maps[q[0]])
        assert relative(other.transforms_[view, q], expected) < 0.02


def test_the_doors_agree(data, model):
    tables = {view: pd.DataFrame(data.view(view), columns=[f"{view}{i}" for i in range(2)]) for view in data.views}
    joined = rc.RCA(sets=SETS).fit_views(tables)
    state = rc.RCA(views=data.views, sets=SETS).fit_moments(Moments.of(data.X, 4))
    for key, A in model.transforms_.items():
        np.testing.assert_array_equal(joined.transforms_[key], A)
        assert relative(state.transforms_[key], A) < 0.1  # no rows: other weights
    assert joined.components_["b",].feature_names == ("b0", "b1")
    assert list(joined.get_feature_names_out()) == ["a0", "a1"]
    frame = pd.concat(tables.values(), axis=1)
    named = rc.RCA(views={"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}, sets=SETS)
    out = named.set_output(transform="pandas").fit(frame).transform(frame)
    assert list(out.columns) == ["a0", "a1"]
    with pytest.raises(ValueError, match="predict_component"):
        named.transform(frame, "b")


def test_another_gauge_is_the_same_component_in_other_columns(data, model):
    other = rc.RCA(views=data.views, sets=SETS, gauge={COMMON: "c"}).fit(data.X)
    A = model.transforms_["c", COMMON]
    np.testing.assert_array_equal(other.transforms_["c", COMMON], np.eye(2))
    assert relative(other.transforms_["a", COMMON], np.linalg.inv(A)) < 0.02
    assert relative(other.components_[COMMON].covariance, A @ model.components_[COMMON].covariance @ A.T) < 0.02
    assert other.components_[COMMON].feature_names == ("x4", "x5")


def test_jackknife_errors_are_those_of_the_estimate(data, model):
    interval = model.confidence_interval("A", COMMON, "b")
    error = np.abs(interval.value - data.transforms["b", COMMON]) / interval.standard_error
    assert np.sqrt(np.mean(error**2)) < 3
    assert np.all(interval.standard_error < 0.1)
    covariance = model.confidence_interval("covariance", ("a",))
    np.testing.assert_array_equal(covariance.value, model.components_["a",].covariance)
    with pytest.raises(ValueError, match="view= must be one of"):
        model.confidence_interval("A", ("a", "b"), "c")


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_bars_leave_standard_output_alone(data, capsys):
    model = rc.RCA(views=data.views, sets=SETS).fit(data.X[:1000])
    model.jackknife(lambda m: m.transforms_["b", COMMON], progress=True)
    assert capsys.readouterr().out == ""


def test_a_component_of_lower_rank():
    data = make_views(20_000, 3, 2, sets=[COMMON, ("a",), ("b",), ("c",)], kinds="exponential", random_state=5)
    direction = np.array([1.0, 0.5])
    low = data.components[COMMON] @ np.array([1.0, 1.0])
    X = data.X - np.hstack([data.components[COMMON] @ data.transforms[v, COMMON].T for v in data.views])
    X = X + np.hstack([np.outer(low, data.transforms[v, COMMON] @ direction) for v in data.views])
    model = rc.RCA(views=data.views, sets=data.sets, rank={COMMON: 1}).fit(X)
    assert np.linalg.matrix_rank(model.components_[COMMON].covariance, tol=1e-8) == 1
    for view in "bc":  # A is known on the range of the component only
        truth = data.transforms[view, COMMON] @ direction
        assert relative(model.transforms_[view, COMMON] @ direction, truth) < 0.1


def test_views_of_different_widths():
    data = make_views(20_000, {"a": 2, "b": 3, "c": 2}, sets=SETS, kinds="exponential", random_state=2)
    model = rc.RCA(views=data.views, sets=SETS).fit(data.X)
    for key, A in data.transforms.items():
        assert relative(model.transforms_[key], A) < 0.2
    flipped = make_views(20_000, {"a": 3, "b": 2, "c": 3}, sets=SETS, kinds="exponential", random_state=2)
    smallest = rc.RCA(views=flipped.views, sets=SETS).fit(flipped.X)
    assert smallest.transforms_["b", ("a", "b")].tolist() == np.eye(2).tolist()  # b could not show all of a
    larger = rc.RCA(views=flipped.views, sets=SETS, gauge={("a", "b"): "a"}).fit(flipped.X)
    assert larger.ranks_["a", "b"] == smallest.ranks_["a", "b"] == 2
    there, back = smallest.transforms_["a", ("a", "b")], larger.transforms_["b", ("a", "b")]
    np.testing.assert_allclose(back @ there, np.eye(2), atol=0.01)
    with pytest.raises(rc.DataError, match=r"gauge=\{\('a', 'b', 'c'\): 'b'\}|gauge=\{\('a', 'b'\): 'b'\}"):
        rc.RCA(views=flipped.views, sets=SETS, gauge={("a", "b"): "a"}, method="paper").fit(flipped.X)


def test_dependent_columns_within_a_view_are_no_obstacle(data, model):
    wide = np.hstack([data.X, data.X[:, :1] + data.X[:, 1:2], np.ones((len(data.X), 1))])
    views = {"a": [0, 1, 6, 7], "b": [2, 3], "c": [4, 5]}
    other = rc.RCA(views=views, sets=SETS).fit(wide)
    assert relative(other.components_["a",].covariance[:2, :2], model.components_["a",].covariance) < 0.02
    assert other.components_["a",].covariance[3, 3] == pytest.approx(0, abs=1e-12)


# ---- two views


def test_two_views_are_contrastive_rca():
    pair = rc.datasets.make_contrastive(2000, d=2, S2="skewed", random_state=2)
    one, two = rc.ContrastiveRCA(views=2).fit(pair.X), rc.RCA(views=2).fit(pair.X)
    both = ("U", "V")
    np.testing.assert_array_equal(two.transforms_["V", both], one.A_)
    for q, name in ((("U",), "S1"), (both, "S2"), (("V",), "S3")):
        np.testing.assert_array_equal(two.components_[q].covariance, one.components_[name].covariance)
        np.testing.assert_array_equal(two.predict_component(pair.X, q), one.predict_component(pair.X, name))
    assert "Contrastive RCA" in two.summary()
    result = two.jackknife(lambda m: m.transforms_["V", both])
    np.testing.assert_array_equal(result.replicates, one.jackknife(lambda m: m.A_).replicates)
    moments = Moments.of(pair.X, 4)
    np.testing.assert_array_equal(
        rc.RCA(views=2).fit_moments(moments).transforms_["V", both], rc.ContrastiveRCA(views=2).fit_moments(moments).A_
    )


@pytest.mark.parametrize("order", [3, 4])
def test_the_paper_s_two_algorithms_agree_on_two_views(order):
    """FindLinear and ComputeCumulant against equations (2)-(5): two independent computations.

    Cumulants of S3 above order two are left out: equation (5) subtracts k(V, ..., V, AU), the general algorithm
    k(AU, ..., AU, V), which differ on samples.
    """
    pair = rc.datasets.make_contrastive(3000, d=3, S2="skewed", random_state=2)
    one = rc.ContrastiveRCA(views=3, method="paper", order=order).fit(pair.X)
    two = rc.RCA(views=3, method="paper", order=order).fit(pair.X)
    both = ("U", "V")
    assert relative(two.transforms_["V", both], one.A_) < 1e-8
    for q, name in ((("U",), "S1"), (both, "S2"), (("V",), "S3")):
        assert relative(two.components_[q].covariance, one.components_[name].covariance) < 1e-8
        for t in range(3, order + 1) if name != "S3" else ():
            assert relative(two.components_[q].cumulant(t), one.components_[name].cumulant(t)) < 1e-8


# ---- the paper's method


def test_paper_method_with_high_orders(data):
    for order in (4, 5):
        model = rc.RCA(views=data.views, sets=SETS, method="paper", order=order).fit(data.X)
        assert model.components_["a",].cumulant(order).shape == (2,) * order
        result = model.jackknife(lambda m: m.transforms_["b", COMMON])
        assert result.replicates.shape == (20, 2, 2)
        state = rc.RCA(views=data.views, sets=SETS, method="paper", order=order)
        state.fit_moments(rc.Moments.of(data.X, order=order))
        np.testing.assert_allclose(state.transforms_["b", COMMON], model.transforms_["b", COMMON], rtol=1e-8)


def test_paper_method_leaves_out_what_vanishes():
    points = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [3.0, 1.0], [0.0, 3.0], [1.0, 1.0]])
    rows = np.array([np.concatenate([x, y, z]) for x in points for y in points for z in points])
    with pytest.warns(rc.WeakIdentificationWarning, match=r"method='paper' sets S\{a, b\} to zero"):
        model = rc.RCA(
            views={"a": [0, 1], "b": [2, 3], "c": [4, 5]}, sets=[("a", "b"), ("a",), ("b",), ("c",)], method="paper"
        ).fit(np.tile(rows, (2000, 1)))
    assert ("a", "b") not in model.components_


# ---- words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method must be"),
        ({"order": 7}, "order must be"),
        ({"n_blocks": 5}, "n_blocks"),
        ({"alpha": 0}, "alpha must"),
        ({"gauge": {COMMON: "d"}}, "gauge"),
        ({"gauge": {("a", "c"): "a"}}, "not one of the sets"),
        ({"rank": {COMMON: 3}}, "must lie between 1 and 2"),
        ({"rank": {COMMON: 1}, "method": "paper"}, "belong to method='efficient'"),
        ({"sets": [("a", "x")]}, "names view 'x'"),
        ({"order": 3, "sets": None}, "3-distinguishable"),
        ({"views": {"a": [0, 1, 2, 3, 4, 5]}, "sets": None}, "at least two"),
    ],
)
def test_parameters_are_checked(data, options, message):
    with pytest.raises(ValueError, match=message):
        rc.RCA(**{"views": data.views, "sets": SETS, **options}).fit(data.X[:500])


def test_data_are_checked(data, model):
    with pytest.raises(rc.DataError, match="too few"):
        rc.RCA(views=data.views, sets=SETS).fit(data.X[:30])
    twice = np.hstack([data.X[:, :4], data.X[:, :2]])
    with pytest.raises(rc.DataError, match=r"linearly dependent on each other \(column 'x\d' of view '[ac]'"):
        rc.RCA(views=data.views, sets=SETS).fit(twice)
    flat = data.X.copy()
    flat[:, 4:] = 1.0
    with pytest.raises(rc.DataError, match="no column of view 'c' varies"):
        rc.RCA(views=data.views, sets=SETS).fit(flat)
    with pytest.raises(ValueError, match="component must be one of"):
        model.predict_component(data.X, ("a", "c"))
    with pytest.raises(rc.DataError, match="order 4"):
        rc.RCA(views=data.views, sets=SETS).fit_moments(Moments.of(data.X, 3))


def test_unidentified_covariances_are_announced():
    data = make_views(2000, 3, 1)
    with pytest.warns(rc.WeakIdentificationWarning, match="do not determine the covariances"):
        rc.RCA(views=data.views).fit(data.X)


def test_transformations_that_the_data_do_not_tell_are_announced():
    data = make_views(5000, 3, 2, sets=SETS, kinds="gaussian", random_state=4)
    with pytest.warns(rc.WeakIdentificationWarning, match=r"say little about .*A\(b, \('a', 'b'\)\)"):
        rc.RCA(views=data.views, sets=SETS).fit(data.X)


def test_approximate_errors_are_near_those_of_the_jackknife(model):
    interval = model.confidence_interval("A", COMMON, "b")
    whole = np.linalg.norm(interval.standard_error) / np.linalg.norm(interval.value)
    assert 0.5 < whole / model.relative_errors_["b", COMMON] < 2


def test_summary_and_plot(model):
    text = model.summary()
    assert "Relative standard errors" in text
    assert "S{a, b, c}" in text
    assert "2-distinguishable" in text
    figure = model.plot()
    bars, dots = figure.axes
    assert len(bars.patches) == 3 + 2 + 3
    assert [label.get_text() for label in dots.get_yticklabels()] == ["a", "b", "c"]


def test_clones_keep_everything(data):
    first = rc.RCA(views=data.views, sets=SETS, gauge={COMMON: "b"}, rank={COMMON: 1})
    assert clone(first).get_params() == first.get_params()


# ---- learners


@pytest.fixture(scope="module")
def rca(data):
    return rc.RCA(views=data.views, sets=SETS)


def test_principal_directions(data, rca):
    found = rc.ComponentPCA(n_components=2, rca=rca, component=COMMON).fit(data.X)
    truth = np.linalg.eigvalsh(data.covariances[COMMON])[::-1]
    np.testing.assert_allclose(found.explained_variance_, truth, rtol=0.15)
    assert found.transform(data.X[:5]).shape == (5, 2)


def test_regression_on_a_component(data, rca):
    beta = np.array([1.0, -0.5])
    y = 3 + data.components[COMMON] @ beta + np.random.default_rng(0).normal(size=len(data.X))
    found = rc.ComponentRegression(rca=rca, component=COMMON).fit(data.X, y)
    assert np.all(np.abs(found.coef_ - beta) < 4 * found.coefficients_.standard_error + 0.05)
    assert found.intercept_ == pytest.approx(3, abs=0.1)
    assert np.corrcoef(found.predict(data.X), data.components[COMMON] @ beta)[0, 1] > 0.7
    ridge = rc.ComponentRegression(alpha="cv", rca=rca, component=COMMON).fit(data.X, y)
    assert relative(ridge.coef_, beta) < 0.2


def test_an_outcome_that_goes_with_other_views_is_announced(data, rca):
    noise = np.random.default_rng(0).normal(size=len(data.X))
    clean = data.components["a", "b"] @ [1.0, -0.5] + noise
    mixed = clean + data.components["c",] @ [0.0, 0.2]
    learner = rc.ComponentRegression(rca=rca, component=("a", "b"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SpecificationWarning)
        model = learner.fit(data.X, clean).rca_
        rc.ComponentRegression(rca=rca, component=COMMON).fit(data.X, mixed)  # no view is outside
    with pytest.warns(rc.SpecificationWarning, match=r"goes with c .* where S\{a, b\} does not live"):
        learner.fit(data.X, mixed)
    assert model.outcome_test(data.X, clean, ("b", "a")).df == (2, len(data.X) - 3)
    assert model.outcome_test(data.X, mixed, COMMON).p_value == 1
    with pytest.raises(rc.DataError, match="one column of"):
        model.outcome_test(data.X, clean[1:], ("a",))


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_a_component_may_be_written_as_a_list(data, rca):
    one, two = (rc.ComponentPCA(rca=rca, component=given).fit(data.X[:2000]) for given in (("a", "b"), ["a", "b"]))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.transform(data.X[:5]), two.transform(data.X[:5]))
    assert np.all(np.isfinite(two.confidence_interval().standard_error))


def test_mixture_and_ising_models_of_a_component(data, rca):
    mixture = rc.ComponentGaussianMixture(n_components=2, rca=rca, component=("a", "b")).fit(data.X)
    assert mixture.means_.shape == (2, 2)
    assert mixture.predict(data.X[:5]).shape == (5,)
    ising = rc.ComponentIsing(rca=rca, component=("a", "b")).fit(data.X)
    assert ising.couplings_.shape == (2, 2)


@pytest.fixture(scope="module")
def entangled():
    """Three slots tell the common component from those of pairs: no cross-covariance shows it alone."""
    sets = [COMMON, ("a", "b"), ("a", "c"), ("b", "c")]
    data = make_views(3000, 3, 2, sets=sets, kinds="exponential", random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.WeakIdentificationWarning)
        return rc.RCA(views=data.views, sets=sets).fit(data.X)


def test_cumulants_of_too_low_an_order_are_refused_in_words(entangled):
    component = entangled.components_[COMMON]
    assert component.projected_cumulant(np.ones(2), 3).shape == (2,)
    with pytest.raises(rc.DataError, match="takes 3 slots"):
        component.standard_error(2, np.ones(2))


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_models_of_a_component_that_no_covariance_shows(entangled):
    component = entangled.components_[COMMON]
    some = component.source.without_block(0)
    np.testing.assert_array_equal(component.measured_on(some).covariance, component.covariance)
    found = rc.ComponentGaussianMixture(n_components="auto").fit_component(component)
    assert found.n_components_ in (1, 2)
    mixture = rc.ComponentGaussianMixture(n_components=2).fit_component(component)
    assert np.all(np.isfinite(mixture.confidence_interval().standard_error))
    assert "standard errors" in mixture.summary()
    assert rc.ComponentIsing().fit_component(component).couplings_.shape == (2, 2)


def test_learners_name_the_remedy(data, rca):
    with pytest.raises(ValueError, match=r"\('a', 'b', 'c'\)"):
        rc.ComponentPCA(rca=rca).fit(data.X)
    with pytest.raises(ValueError, match=r"\('a', 'b', 'c'\)"):
        rc.ComponentLogisticRegression(rca=rca).fit(data.X, data.X[:, 0] > 0)


def test_all_subsets_of_four_views():
    data = make_views(50_000, 4, 1, kinds=("exponential", "discrete"), random_state=700)
    with pytest.raises(rc.DataError, match=r"order=4 was asked for.*or use order=5$"):
        rc.RCA(views=data.views).fit(data.X)
    errors = {}
    for method in ("efficient", "paper"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = rc.RCA(views=data.views, order=5, method=method).fit(data.X)
        pairs = [(view, q) for view, q in data.transforms if len(q) == 2 and view != q[0]]
        found = {**dict.fromkeys(pairs, np.zeros((1, 1))), **model.transforms_}  # the paper's rule sets some to zero
        errors[method] = np.median([relative(found[key], data.transforms[key]) for key in pairs])
    assert errors["efficient"] < 0.5 * errors["paper"]


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_all_subsets_of_four_views_at_every_door():
    """No rows are needed for what order five tells: a state, a stream and blocks of rows give the same fit."""
    data = make_views(20_000, 4, 1, kinds=("exponential", "discrete"), random_state=701)
    rows = rc.RCA(views=data.views, order=5).fit(data.X)
    state = rc.RCA(views=data.views, order=5).fit_moments(Moments.of(data.X, order=5))
    stream = rc.RCA(views=data.views, order=5).fit(iter(np.array_split(data.X, 3)))
    blocks = rc.RCA(views=data.views, order=5).partial_fit(data.X)
    for key, A in rows.transforms_.items():
        for other in (state, stream, blocks):
            np.testing.assert_allclose(other.transforms_[key], A, rtol=1e-3, atol=1e-3)
    assert np.isfinite(state.jackknife(lambda m: m.transforms_["b", ("a", "b")]).standard_error).all()
    with pytest.raises(
        rc.DataError, match=r"order 5 is needed, this one has order 4: make it with Moments.of\(X, order=5"
    ):
        rc.RCA(views=data.views, order=5).fit_moments(Moments.of(data.X))


def test_the_paper_s_rule_for_absent_components():
    """What noise explains is set to zero; what it hides a direction of is named."""
    sets = [COMMON, ("a",), ("b",), ("c",)]
    data = make_views(20_000, 3, 2, sets=sets, kinds="exponential", random_state=5)
    with pytest.warns(rc.WeakIdentificationWarning, match=r"method='paper' sets S\{a, b\}, .* to zero"):
        model = rc.RCA(views=data.views, method="paper").fit(data.X)
    assert COMMON in model.components_
    assert {("a", "b"), ("b", "c")}.isdisjoint(model.components_)
    low = make_views(20_000, 3, 2, sets=sets, kinds="exponential", ranks={COMMON: 1}, random_state=5)
    with pytest.warns(rc.WeakIdentificationWarning, match=r"some directions of S\{a, b, c\} are no larger than noise"):
        rc.RCA(views=low.views, sets=sets, method="paper").fit(low.X)


def test_negative_variances_of_the_paper_s_method_are_announced():
    data = make_views(3000, 3, 2, kinds="exponential", random_state=0)
    with pytest.warns(rc.WeakIdentificationWarning, match="negative variances to S{"):
        model = rc.RCA(views=data.views, method="paper").fit(data.X)
    assert min(np.diag(component.covariance).min() for component in model.components_.values()) < 0


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_the_parts_of_a_view_of_many_columns_add_up_to_it():
    rng = np.random.default_rng(5)
    common = rng.exponential(size=(200, 4))
    X = np.hstack([common @ rng.normal(size=(4, 4)) + 3 * rng.exponential(size=(200, 4)) for _ in range(3)])
    model = rc.RCA(views={"a": range(4), "b": range(4, 8), "c": range(8, 12)}, sets=["a", "b", "c", ("a", "b", "c")])
    table = model.fit(X).variance_table().to_frame()
    np.testing.assert_allclose(table["variance"], X.var(axis=0), rtol=1e-8)


# ---- covariances between views say whether the model holds


FULL = [("a", "b", "c"), ("a",), ("b",), ("c",)]


@pytest.mark.parametrize("what", ["a set is missing", "a rank is too small", "A has another sign"])
def test_a_model_that_covariances_contradict_is_said_to_fail(what):
    """The user's own words about sets, ranks and transformations are tested: all this was "strong"."""
    missing = what == "a set is missing"
    data = make_views(3000, 3, 2, sets=[("a", "b"), *FULL] if missing else FULL, random_state=4)
    options = {
        "a rank is too small": {"rank": {FULL[0]: 1}},
        "A has another sign": {"A": {("b", FULL[0]): -data.transforms["b", FULL[0]]}},
    }
    with pytest.warns(rc.SpecificationWarning, match="the model fails: covariances of view"):
        model = rc.RCA(views=data.views, sets=FULL, **options.get(what, {})).fit(data.X)
    assert model.verdict_ == "contradicted"
    assert set(model.component_verdicts_.values()) == {"contradicted"}
    assert "The model fails: covariances of view" in model.summary()
    assert model.next_steps()[0] in model.summary()
    assert model.confidence_interval("covariance", ("a",)).identified is not None


@pytest.mark.filterwarnings("error::richcomponents.errors.SpecificationWarning")
@pytest.mark.parametrize("seed", [9900100, 9900101])
def test_noise_of_high_orders_does_not_outweigh_covariances(seed):
    """Of several minima the lowest explained chance of order four, and left Cov(U_a, U_b) unexplained (p = 1e-9)."""
    ranks = {("a", "b", "c"): 1, ("a", "b"): 1}
    data = make_views(
        500,
        3,
        4,
        sets=[*ranks, ("a",), ("b",), ("c",)],
        kinds=("exponential", "uniform", "discrete", "exponential", "uniform"),
        ranks=ranks,
        random_state=seed,
    )
    model = rc.RCA(views=data.views, sets=data.sets).fit(data.X)
    assert model.verdict_ != "contradicted"


def test_known_means_that_contradict_the_sample_are_refused():
    data = make_views(1500, 3, 2, sets=FULL, random_state=4)
    own = {("a",): [0.2, -0.1]}  # within noise, or made up for by others: taken
    assert np.allclose(rc.RCA(views=data.views, sets=FULL, mean=own).fit(data.X).components_["a",].mean, [0.2, -0.1])
    with pytest.raises(rc.DataError, match=r"known means contradict the mean of view 'a'.*S\{a, b, c\}.*Leave out one"):
        rc.RCA(views=data.views, sets=FULL, mean={("a",): [5.0, 5.0], FULL[0]: [1.0, 1.0]}).fit(data.X)


# ---- known transformations


def test_known_transformations_stay_as_they_are_and_help_the_others():
    """Of a component in three views A is known in one: given exactly, everywhere, in refits, files and the paper's method."""
    data = make_views(5000, 3, 2, sets=SETS, kinds=("exponential", "discrete"), random_state=11)
    known = {("c", COMMON): data.transforms["c", COMMON], ("b", ("b", "a")): data.transforms["b", ("a", "b")]}
    free = rc.RCA(views=data.views, sets=SETS).fit(data.X)
    for method in ("efficient", "paper"):
        model = rc.RCA(views=data.views, sets=SETS, method=method, A=known).fit(data.X)
        for view, q in (("c", COMMON), ("b", ("a", "b"))):
            np.testing.assert_allclose(model.transforms_[view, q], data.transforms[view, q], atol=1e-12)
            error = model.confidence_interval("A", q, view).standard_error
            np.testing.assert_allclose(error, 0, atol=1e-12)
    model = rc.RCA(views=data.views, sets=SETS, A=known).fit(data.X)
    assert model.relative_errors_["c", COMMON] < 1e-9
    truth = data.transforms["b", COMMON]
    assert relative(model.transforms_["b", COMMON], truth) < relative(free.transforms_["b", COMMON], truth)
    for view in data.views:
        total = sum(model.predict_component(data.X, q) @ model.transforms_[view, q].T for q in SETS if view in q)
        np.testing.assert_allclose(total, data.view(view), atol=1e-8)


def test_a_known_transformation_identifies_what_cumulants_do_not():
    """A Gaussian common part of two views beside another: no cumulant tells its A, and covariances do once A is known."""
    sets = [("a", "b"), ("b", "c"), ("a",), ("b",), ("c",)]
    data = make_views(20_000, 3, 2, sets=sets, kinds="gaussian", random_state=4)
    known = {key: A for key, A in data.transforms.items() if key in (("b", ("a", "b")), ("c", ("b", "c")))}
    model = rc.RCA(views=data.views, sets=sets, A=known).fit(data.X)
    for q in sets:
        assert relative(model.components_[q].covariance, data.covariances[q]) < 0.1
    assert set(model.component_verdicts_.values()) == {"strong"}


def test_two_views_with_a_known_transformation_are_contrastive_rca():
    data = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=2)
    one = rc.ContrastiveRCA(views=3, A=data.A, classes="none", errors="free").fit(data.X)
    two = rc.RCA(views=3, A={("V", ("U", "V")): data.A}).fit(data.X)
    np.testing.assert_allclose(two.transforms_["V", ("U", "V")], data.A)
    assert relative(two.components_["U", "V"].covariance, one.components_["S2"].covariance) < 0.1
    with pytest.raises(rc.DataError, match=r"S\{U, V\} in view 'U' is the identity.*or give that of view 'V'"):
        rc.RCA(views=3, A={("U", ("U", "V")): np.eye(3)}).fit(data.X)


@pytest.mark.parametrize(
    ("A", "message"),
    [
        ({"b": np.eye(2)}, r"A= takes \{\(view, subset\): array\}"),
        ({("b", ("b", "c")): np.eye(2)}, r"A= names \('b', 'c'\), which is not one of the sets"),
        ({("c", ("a", "b")): np.eye(2)}, r"A= names view 'c' for S\{a, b\}, which lives in 'a', 'b' only"),
        ({("a", ("a", "b")): np.eye(2)}, r"S\{a, b\} in view 'a' is the identity.*gauge=\{\('a', 'b'\): 'b'\}"),
        ({("b", ("a", "b")): np.eye(3)}, r"S\{a, b\} in view 'b' must have shape \(2, 2\).*view 'a'.*got \(3, 3\)"),
        ({("b", ("a", "b")): np.full((2, 2), np.nan)}, "holds missing or infinite values"),
        ({("b", ("a", "b")): np.zeros((2, 2))}, r"is zero: leave 'b' out of the set"),
    ],
)
def test_known_transformations_are_checked(data, A, message):
    with pytest.raises(rc.DataError, match=message):
        rc.RCA(views=data.views, sets=SETS, A=A).fit(data.X[:500])
