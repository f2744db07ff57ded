"""Every learner on every component, of two views and of more."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.inference.draws import range_of_products
from richcomponents.learning.coefficients import MOST_ADDED, on_features, simple_map
from richcomponents.learning.outcome import Outcome
from richcomponents.models import subspace_distance

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")

SETS = [("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)]
D = 2


@pytest.fixture(scope="module")
def pair():
    """U = S1 + S2, V = A S2 + S3, all parts at hand."""
    return rc.datasets.make_contrastive(4000, d=4, S1="regression", S2="skewed", random_state=0)


@pytest.fixture(scope="module")
def many():
    return rc.datasets.make_views(6000, 3, D, sets=SETS, kinds="exponential", random_state=3)


def parts(data):
    return {"S1": data.U - data.S2, "S2": data.S2, "S3": data.V - data.S2 @ data.A.T}


def noise(n, seed=0):
    return np.random.default_rng(seed).normal(size=n)


# ---- two views


@pytest.mark.parametrize("component", ["S1", "S2", "S3"])
@pytest.mark.parametrize("method", ["efficient", "paper"])
def test_regression_on_every_part_of_two_views(pair, component, method):
    y = parts(pair)[component] @ np.ones(4) + noise(4000)
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, method=method), component=component).fit(pair.X, y)
    worst = np.abs(model.coef_ - 1).max()
    assert worst < (0.2 if method == "efficient" else 0.6)
    if method == "efficient":
        assert np.all(np.abs(model.coef_ - 1) < 4 * model.coefficients_.standard_error)
    assert model.simple_ == ("instrumental" if component == "S2" else "residualised")
    assert model.simple_ in model.summary()
    assert np.corrcoef(model.predict(pair.X), y)[0, 1] > 0.5


def test_an_outcome_on_s3_is_one_on_s1_of_the_exchanged_views(pair):
    y = parts(pair)["S3"] @ np.ones(4) + noise(4000)
    here = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4), component="S3").fit(pair.X, y)
    there = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(np.hstack([pair.V, pair.U]), y)
    np.testing.assert_allclose(here.residualised_, there.residualised_, rtol=1e-9)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=0.01)  # draws of the posterior in turned coordinates
    np.testing.assert_allclose(here.coefficients_.standard_error, there.coefficients_.standard_error, rtol=0.05)
    named = rc.ComponentRegression(rca=rc.RCA(views={"u": range(4), "v": range(4, 8)}), component=("v",)).fit(pair.X, y)
    np.testing.assert_allclose(named.coef_, here.coef_, rtol=1e-9)
    directions = [
        rc.ComponentPCA(rca=rc.ContrastiveRCA(views=4), component=component).fit(X)
        for component, X in (("S3", pair.X), ("S1", np.hstack([pair.V, pair.U])))
    ]
    np.testing.assert_allclose(directions[0].components_, directions[1].components_, atol=0.01)


def test_known_mixing_is_known_from_both_sides(pair):
    y = parts(pair)["S3"] @ np.ones(4) + noise(4000)
    here = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, A=pair.A), component="S3").fit(pair.X, y)
    turned = rc.ContrastiveRCA(views=4, A=np.linalg.inv(pair.A))
    there = rc.ComponentRegression(rca=turned).fit(np.hstack([pair.V, pair.U]), y)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=0.01)


def test_covariates_groups_and_weights_reach_s3(pair):
    rng = np.random.default_rng(5)
    age, groups = rng.normal(size=(4000, 1)), np.repeat(np.arange(400), 10)
    X = np.hstack([pair.X + age @ rng.normal(size=(1, 8)), age])
    y = parts(pair)["S3"] @ np.ones(4) + 3 * age[:, 0] + noise(4000)
    rca = rc.ContrastiveRCA(views={"u": range(4), "v": range(4, 8)}, covariates=[8])
    swapped = rc.ContrastiveRCA(views={"v": range(4, 8), "u": range(4)}, covariates=[8])
    here = rc.ComponentRegression(rca=rca, component="S3").fit(X, y, groups=groups)
    there = rc.ComponentRegression(rca=swapped).fit(X, y, groups=groups)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=0.02)


@pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning")
def test_an_outcome_that_goes_with_both_is_predicted_by_both(pair):
    """Of S3 beside S2: what goes with U as the shared part does is told apart, and predictions keep it; in U's letters."""
    known = parts(pair)
    y = known["S3"][:, 0] + (known["S2"] @ pair.A.T)[:, 1] + noise(4000)
    rca = rc.ContrastiveRCA(views=4)
    model = rc.ComponentRegression(rca=rca, component="S3").fit(pair.X, y)
    assert "goes with U" in model.summary()
    turned = np.hstack([pair.V, pair.U])
    there = rc.ComponentRegression(rca=rca).fit(turned, y)
    assert np.corrcoef(model.predict(pair.X), there.predict(turned))[0, 1] > 0.999


@pytest.mark.parametrize("component", ["S1", "S2", "S3"])
def test_logistic_regression_on_every_part(pair, component):
    s = parts(pair)[component]
    rng = np.random.default_rng(1)
    y = (rng.random(4000) < 1 / (1 + np.exp(-s @ np.full(4, 1.5)))).astype(int)
    model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=4), component=component).fit(pair.X, y)
    error = model.coefficients_.standard_error
    assert np.all(np.isfinite(error))
    assert np.all(np.abs(model.coef_[0] - 1.5) < 4 * error)
    assert np.sum((model.coef_[0] - 1.5) ** 2) < np.sum((model.residualised_ - 1.5) ** 2)
    polynomial = rc.ComponentLogisticRegression(
        rca=rc.ContrastiveRCA(views=4), component=component, approximation="chebyshev"
    ).fit(pair.X, y)
    assert np.corrcoef(model.decision_function(pair.X), polynomial.decision_function(pair.X))[0, 1] > 0.99


def test_what_is_not_shared_has_no_coefficients():
    X = np.random.default_rng(0).normal(size=(500, 4))
    with pytest.raises(rc.DataError, match="share nothing"):
        rc.ComponentRegression(rca=rc.ContrastiveRCA(views=2), component="S2").fit(X, X[:, 0])


def test_wide_views_take_outcomes_on_every_part():
    rng = np.random.default_rng(0)
    s, own = rng.exponential(size=(200, 2)) - 1, rng.normal(size=(200, 60))
    U, V = s @ rng.normal(size=(2, 80)) + rng.normal(size=(200, 80)), 2 * s @ rng.normal(size=(2, 60)) + own
    X = np.hstack([U, V])
    y = 2 * own[:, 0] + noise(200)
    here = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=80), component="S3").fit(X, y)
    there = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=60)).fit(np.hstack([V, U]), y)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-8)
    y = s[:, 0] + 0.3 * noise(200)
    shared = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=80), component="S2").fit(X, y)
    assert np.corrcoef(shared.predict(X), y)[0, 1] > 0.9


# ---- more views


@pytest.fixture(scope="module")
def rca(many):
    return rc.RCA(views=many.views, sets=SETS)


@pytest.mark.parametrize("component", SETS)
def test_every_outcome_learner_on_every_subset(many, rca, component):
    s, rng = many.components[component], np.random.default_rng(2)
    y = s @ np.ones(D) + noise(len(s))
    model = rc.ComponentRegression(rca=rca, component=component).fit(many.X, y)
    assert np.all(np.abs(model.coef_ - 1) < 4 * model.coefficients_.standard_error)
    assert np.sum((model.coef_ - 1) ** 2) < max(np.sum((model.residualised_ - 1) ** 2), 0.01)
    assert model.simple_ in model.summary()
    again = model.rca_.calibrate(many.X, y, component)
    np.testing.assert_allclose(np.linalg.lstsq(again.features, y - y.mean(), rcond=None)[0], model.coef_, rtol=1e-6)
    labels = rng.random(len(s)) < 1 / (1 + np.exp(-s @ np.full(D, 0.5)))
    logistic = rc.ComponentLogisticRegression(rca=rca, component=component).fit(many.X, labels)
    assert np.all(np.abs(logistic.coef_[0] - 0.5) < 4 * logistic.coefficients_.standard_error)


@pytest.mark.parametrize("component", SETS)
def test_every_other_learner_on_every_subset(many, rca, component):
    pca = rc.ComponentPCA(rca=rca, component=component).fit(many.X)
    truth = np.linalg.eigh(many.covariances[component])[1][:, -1:].T
    assert subspace_distance(pca.components_, truth) < 0.5
    assert 0 <= pca.trust_ <= 1
    assert rc.ComponentGaussianMixture(2, rca=rca, component=component).fit(many.X).means_.shape == (2, D)


def test_spins_of_a_subset():
    """An Ising model of what three views have in common."""
    rng = np.random.default_rng(0)
    first = np.where(rng.random(8000) < 0.5, 1.0, -1.0)
    spins = np.column_stack([first, np.where(rng.random(8000) < 0.8, first, -first)])  # E[s1 s2] = .6 = tanh(J)
    views = [spins @ A.T + 0.5 * rng.normal(size=(8000, 2)) for A in (np.eye(2), np.eye(2) + 0.4, 1.5 * np.eye(2))]
    model = rc.ComponentIsing(
        rca=rc.RCA(views={"a": [0, 1], "b": [2, 3], "c": [4, 5]}, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)]),
        component=("a", "b", "c"),
    ).fit(np.hstack(views))
    assert model.coef_[0] == pytest.approx(np.arctanh(0.6), abs=0.1)
    assert model.confidence_interval().standard_error[0] < 0.1


def test_the_meta_algorithm_takes_any_component(many, rca):
    component = rca.fit(many.X).components_["a", "b", "c"].centred()
    cross = component.covariance @ np.ones(D)
    found = rc.fit_likelihood(component, lambda theta, s: theta @ cross - (s @ theta) ** 2 / 2)
    np.testing.assert_allclose(found.theta, np.ones(D), atol=1e-4)


def test_the_simple_methods_of_many_views(many, rca):
    """They equal least squares written out by hand."""
    a, b, c = (many.view(v) - many.view(v).mean(axis=0) for v in "abc")
    y = many.components["a",] @ np.ones(D) + noise(len(a))
    own = rc.ComponentRegression(rca=rca, component=("a",))
    full = np.linalg.lstsq(np.hstack([a, b, c]), y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(rc.baselines.covariates(own, many.X, y).coef_, full[:D], rtol=1e-8)
    fitted = own.fit(many.X, y)
    np.testing.assert_allclose(fitted.residualised_, full[:D], rtol=1e-8)
    naive = np.linalg.lstsq(a, y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(rc.baselines.naive(own, many.X, y).coef_, naive, rtol=1e-8)
    y = many.components["a", "b", "c"] @ np.ones(D) + noise(len(a))
    everywhere, others = rc.ComponentRegression(rca=rca, component=("a", "b", "c")), np.hstack([b, c])
    stage = others @ np.linalg.lstsq(others, a, rcond=None)[0]
    two_stage = np.linalg.lstsq(stage, y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(
        rc.baselines.instrumental(everywhere, many.X, y).coef_, two_stage, rtol=0.02
    )  # weak ones tamed
    np.testing.assert_allclose(everywhere.fit(many.X, y).residualised_, two_stage, rtol=0.02)
    with pytest.raises(rc.DataError, match="lives in all views"):
        rc.baselines.covariates(everywhere, many.X, y)
    with pytest.raises(rc.DataError, match="one view only"):
        rc.baselines.instrumental(own, many.X, y)
    with pytest.raises(rc.DataError, match="subset of the views"):
        rc.baselines.naive(rc.ComponentRegression(rca=rca, component=("z",)), many.X, y)


def test_effects_on_a_component_of_many_views():
    """The exposure changes the view b; a and c are controls, and the answer is that of the two views made by hand."""
    rng = np.random.default_rng(0)
    n, hidden = 1500, rng.exponential(size=1500) - 1
    y = hidden + rng.normal(size=n)
    tables = {v: np.outer(hidden, rng.normal(size=3)) + rng.normal(size=(n, 3)) for v in "abc"}
    tables["b"][:, 0] += 0.8 * y
    X, views = np.hstack(list(tables.values())), {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7, 8]}
    model = rc.ExposureEffects(rca=rc.RCA(views=views), component=("b",)).fit(X, y)
    by_hand = rc.ContrastiveRCA(views={"b": views["b"], "a and c": [*views["a"], *views["c"]]})
    np.testing.assert_allclose(model.coef_, rc.ExposureEffects(rca=by_hand).fit(X, y).coef_, rtol=1e-9)
    assert abs(model.coef_[0] - 0.8) < 4 * model.effects_.standard_error[0]
    turned = rc.ContrastiveRCA(views={"a and c": [*views["a"], *views["c"]], "b": views["b"]})
    second = rc.ExposureEffects(rca=turned, component="S3").fit(X, y)
    np.testing.assert_allclose(second.coef_, model.coef_, rtol=1e-9)
    with pytest.raises(rc.DataError, match="lives in all views: name one that leaves controls"):
        rc.ExposureEffects(rca=rc.RCA(views=views), component=("a", "b", "c")).fit(X, y)


# ---- the path from simple to full


def test_instruments_do_not_attenuate():
    """In the population: the instrumental map gives beta where the other view shares nothing else, whatever the noise."""
    A, K = np.array([[1.0, 0.3], [0.2, 0.8]]), np.array([[2.0, 0.5], [0.5, 1.0]])
    C = np.block([[K + 3 * np.eye(2), K @ A.T], [A @ K, A @ K @ A.T + np.eye(2)]])
    simple = simple_map(C, np.arange(2), np.arange(2, 4), np.zeros(0, dtype=int), 2, 1e12)
    beta = np.array([1.0, -2.0])
    cross = np.concatenate([K @ beta, A @ K @ beta])
    np.testing.assert_allclose(on_features(simple, C) @ cross, beta, rtol=1e-8)


def test_sums_without_a_block_are_those_of_the_other_rows():
    rng = np.random.default_rng(0)
    z, y, weight, block = (
        rng.normal(size=(50, 3)),
        rng.normal(size=50),
        rng.integers(1, 4, 50).astype(float),
        np.arange(50) % 5,
    )
    table, left = np.column_stack([z, y]), block != 2
    found = Outcome(z, y, weight, block, 50.0, np.zeros((50, 0))).covariances(table, table)
    for rows, seen in ((np.ones(50, dtype=bool), found[0]), (left, found[3])):
        np.testing.assert_allclose(seen, np.cov(table[rows].T, fweights=weight[rows].astype(int), bias=True))


# ---- what the data do not tell is said to be so


@pytest.fixture(scope="module")
def untold():
    """All seven subsets of three views of two columns: second moments hardly tell the covariances apart."""
    data = rc.datasets.make_views(4000, 3, D, kinds=("exponential", "discrete"), random_state=5)
    return data, rc.RCA(views=data.views).fit(data.X)


def test_every_component_has_a_verdict(many, rca, untold):
    model = untold[1]
    assert set(model.component_verdicts_) == set(model.components_)
    assert model.component_verdicts_["a",] in ("weak", "not identified")
    assert model.verdict_ == "not identified"
    assert "How well the data tell each component" in model.summary()
    told = rc.RCA(views=many.views, sets=SETS).fit(many.X)
    assert told.component_verdicts_["a", "b", "c"] == "strong"
    both = rc.RCA(views={"u": range(2), "v": range(2, 6)}).fit(many.X)
    assert set(both.component_verdicts_.values()) == {both.verdict_}
    paper = rc.RCA(views=many.views, sets=SETS, method="paper").fit(many.X)
    assert set(paper.component_verdicts_.values()) == {"not checked"}


def test_what_is_not_told_has_an_identified_set_that_holds_the_truth(untold):
    data, model = untold
    for q, said in model.component_verdicts_.items():
        if said == "strong":
            continue
        found = model.confidence_interval("covariance", q)
        assert found.identified is not None
        assert np.all((found.low <= data.covariances[q]) & (data.covariances[q] <= found.high)), q
        assert np.all(np.diag(found.identified[0]) >= -1e-9)  # no variance is negative
        y = data.components[q] @ np.ones(D) + noise(len(data.X))
        outcome = model.outcome(data.X, y)
        coefficients = model.calibrate(outcome, component=q).estimate(outcome)
        low, high = coefficients.interval(0.95)
        assert coefficients.identified is not None
        assert np.all((low <= 1) & (high >= 1)), q
    learned = rc.ComponentRegression(rca=rc.RCA(views=data.views), component=q).fit(data.X, y).coefficients_
    np.testing.assert_allclose(learned.low, low)


def test_ends_of_the_set_are_reached():
    """Every P in the set gives coefficients between the ends; the extremes come close to them."""
    rng = np.random.default_rng(0)
    into, m, b = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=3)
    k, left = MOST_ADDED, 2.0
    ends = [b + k * end[:, 0] for end in range_of_products(into, m[None], left / (k * m @ m))]
    angles = np.linspace(0, np.pi, 400)
    seen = []
    for angle in angles:
        u = np.array([np.cos(angle), np.sin(angle)])
        size = min(k, left / max((u @ m) ** 2, 1e-12))  # the largest multiple of a projector that is allowed
        seen.append(b + into @ (size * u * (u @ m)))
    assert np.all(seen >= ends[0] - 1e-9)
    assert np.all(seen <= ends[1] + 1e-9)
    np.testing.assert_allclose(np.min(seen, axis=0), ends[0], atol=0.02 * k)
    np.testing.assert_allclose(np.max(seen, axis=0), ends[1], atol=0.02 * k)


def test_known_means_and_variances_by_column(many):
    """Given means are kept, all of them add up to the views', and variances to those of the columns."""
    X = many.X + np.arange(6.0)
    common, pair = np.array([2.0, -1.0]), np.array([0.5, 0.5])
    model = rc.RCA(views=many.views, sets=SETS, mean={("a", "b", "c"): common, ("a", "b"): pair}).fit(X)
    np.testing.assert_allclose(model.components_["a", "b", "c"].mean, common)
    total = {v: sum(model.transforms_[v, q] @ model.components_[q].mean for q in SETS if v in q) for v in "abc"}
    np.testing.assert_allclose(np.concatenate([total[v] for v in "abc"]), X.mean(axis=0), rtol=1e-6)
    own = rc.RCA(views=many.views, sets=SETS, mean={"b": np.zeros(2)}).fit(X)
    np.testing.assert_allclose(own.components_["b",].mean, 0, atol=1e-6)
    with pytest.raises(rc.DataError, match="2 finite numbers"):
        rc.RCA(views=many.views, sets=SETS, mean={"b": np.zeros(3)}).fit(X)
    rows = model.variance_table().rows()
    assert [row["view"] for row in rows] == list("aabbcc")
    np.testing.assert_allclose([row["variance"] for row in rows], X.var(axis=0), rtol=0.1)
    shares = [[value for key, value in row.items() if key.startswith("S{")] for row in rows]
    np.testing.assert_allclose(np.nansum(shares, axis=1), 1)


def test_errors_are_known_where_the_gauge_view_hardly_has_a_direction():
    """Loadings of such a direction are huge, and every error seemed to be nothing beside their curvature."""
    sets = [tuple(word) for word in ("abc", "ab", "ac", "bc", "a", "b", "c")]
    data = rc.datasets.make_views(5000, 3, 2, sets=sets, random_state=9730010)
    model = rc.RCA(views=data.views, sets=data.sets).fit(data.X)
    assert "strong" not in model.component_verdicts_.values()
    assert min(model.relative_errors_.values()) > 0.03
