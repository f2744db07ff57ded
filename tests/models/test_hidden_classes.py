"""Hidden classes: labs and batches that a fit finds by itself and removes as covariates are."""

import warnings
from functools import partial

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.pair.classes import climb, find_classes, merged, thinning, valleys

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
D = 6


def labs(n=500, seed=0, k=3, scale=1.0):
    """A table with k hidden labs, and the lab of each row."""
    data = make_contrastive(n, d=D, S2=f"labs({k})", scale_S2=scale, random_state=seed)
    return data, np.unique(data.S2.round(9), axis=0, return_inverse=True)[1].ravel()


def agree(probabilities, lab):
    """Share of rows whose class is the most common one of their lab."""
    decoded = probabilities.argmax(axis=1)
    return np.mean([np.bincount(decoded[lab == k]).max() / np.sum(lab == k) for k in np.unique(lab)])


@pytest.fixture(scope="module")
def data():
    return labs()[0]


@pytest.fixture(scope="module")
def model(data):
    return rc.ContrastiveRCA(views=D).fit(data.X)


# ---- the mixture


def test_no_step_lowers_the_likelihood():
    rng = np.random.default_rng(1)
    z = rng.exponential(size=(200, 4)) + rng.normal(size=(200, 1)) * 0.5
    weight, label = rng.integers(1, 4, size=200) * 0.7, rng.integers(3, size=200)
    values = [climb(z, weight, label, steps, -np.inf)[1] for steps in range(1, 40)]
    assert np.all(np.diff(values) > -0.01)  # but for the row more in each class
    assert values[-1] > values[0] + 10


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(3)
    z = rng.normal(size=(120, 4)) + 4 * rng.integers(2, size=(120, 1))
    count, label = rng.integers(1, 4, size=120), (z[:, 0] > 2).astype(int)
    one = climb(z, count * 1.0, label)[0]
    other = climb(np.repeat(z, count, axis=0), np.ones(count.sum()), np.repeat(label, count))[0]
    for mine, theirs in ((one.share, other.share), (one.centre, other.centre), (one.spread, other.spread)):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_constant_weights_change_nothing():
    data = labs(900)[0]
    plain = rc.ContrastiveRCA(views=D).fit(data.X)
    for m in (2, 3, 5):
        model = rc.ContrastiveRCA(views=D).fit(data.X, sample_weight=np.full(900, m))
        assert len(model.classes_) == 3
        assert model.rank_ == plain.rank_
        np.testing.assert_allclose(model.classes_.evidence, plain.classes_.evidence, rtol=1e-6)
        np.testing.assert_allclose(
            model.components_["S1"].covariance, plain.components_["S1"].covariance, rtol=1e-6, atol=1e-8
        )
    number = np.repeat(np.arange(900), 3)  # thinned, but their copies are counted once
    model = rc.ContrastiveRCA(views=D).fit(data.X[number], groups=number)
    np.testing.assert_allclose(model.classes_.evidence, plain.classes_.evidence, rtol=0.1)
    np.testing.assert_allclose(model.components_["S1"].covariance, plain.components_["S1"].covariance, atol=1e-6)


def test_separate_labs_are_recovered_exactly():
    for k in (2, 3, 4):
        data, lab = labs(400, seed=k, k=k, scale=2.0)
        model = rc.ContrastiveRCA(views=D).fit(data.X)
        assert len(model.classes_) == k
        assert agree(model.class_probabilities(data.X), lab) == 1.0
        assert model.classes_.certainty > 0.99
        np.testing.assert_allclose(np.sort(model.classes_.shares), np.sort(np.bincount(lab)) / 400, atol=0.01)
        assert np.all(np.diff(model.classes_.shares) <= 0)


@pytest.mark.parametrize("factor", ["normal", "uniform", "exponential", "t", "tanh"])
def test_one_smooth_factor_is_no_class(factor):
    """A mixture of three fits a uniform factor better than any one class: only that there is no valley tells."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        law = {"normal": rng.normal, "uniform": rng.random, "t": partial(rng.standard_t, 4)}.get(
            factor, rng.exponential
        )
        s = law(size=(500, 1))
        s = (s - s.mean()) / s.std()
        seen = 2 * np.tanh(s) if factor == "tanh" else s
        U = s @ rng.normal(size=(1, D)) + rng.uniform(-1, 1, (500, D))
        V = seen @ rng.normal(size=(1, D)) + rng.uniform(-1, 1, (500, D))
        assert rc.ContrastiveRCA(views=D).fit(np.hstack([U, V])).classes_ is None


def test_clusters_of_one_view_are_its_own():
    rng = np.random.default_rng(5)
    own = np.where(rng.random(600) < 0.5, -3.0, 3.0)[:, None] * rng.normal(size=(1, D))
    s = rng.normal(size=(600, 1))
    for own_u, own_v in ((own, 0.0), (0.0, own)):
        U = own_u + s @ rng.normal(size=(1, D)) + 0.5 * rng.normal(size=(600, D))
        V = own_v + s @ rng.normal(size=(1, D)) + 0.5 * rng.normal(size=(600, D))
        assert rc.ContrastiveRCA(views=D).fit(np.hstack([U, V])).classes_ is None


def test_a_valley_is_what_a_uniform_has_not():
    rng = np.random.default_rng(0)
    flat, noise = rng.uniform(size=600), 0.02 * rng.normal(size=(600, 2))
    halves, ones = (flat > 0.5).astype(int), np.ones(600)
    assert valleys(noise + flat[:, None], ones, halves).min() < 3
    two = noise + halves[:, None]
    assert valleys(two, ones, halves).min() > 60
    assert valleys(two, 0.1 * ones, halves).min() < 12  # copies prove less
    assert not merged(noise + flat[:, None], ones, (5 * flat).astype(int)).any()
    assert np.array_equal(merged(two, ones, (4 * flat).astype(int)), halves)  # two halves of either


def test_labs_that_come_in_turn_are_all_seen():
    assert [thinning(n) for n in (100, 2000, 2001, 4001, 8001, 20_000)] == [1, 1, 2, 3, 5, 11]


# ---- what they are used for


def test_classes_are_covariates_that_nobody_measured(data, model):
    """Given as covariates, the same probabilities leave the same model."""
    P = model.class_probabilities(data.X)[:, 1:]
    known = rc.ContrastiveRCA(views=D, covariates=list(range(2 * D, 2 * D + P.shape[1])), classes="none")
    X = np.hstack([data.X, P])
    known.fit(X)
    np.testing.assert_allclose(model.components_["S1"].covariance, known.components_["S1"].covariance, atol=1e-10)
    np.testing.assert_allclose(model.transform(data.X), known.transform(X), atol=1e-9)
    found, other = model.calibrate(data.X, data.y), known.calibrate(X, data.y)
    np.testing.assert_allclose(found.coef, other.coef, atol=1e-9)
    one = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D)).fit(data.X, data.y).coefficients_
    two = rc.ComponentRegression(rca=known).fit(X, data.y).coefficients_
    np.testing.assert_allclose(one.standard_error, two.standard_error, rtol=1e-8)


def test_a_and_the_shared_part_hold_the_classes(data, model):
    assert model.rank_ == 2
    assert model.verdict_ == "strong"
    parts = model.transform(data.X), model.transform(data.X, "S2"), model.transform(data.X, "S3")
    np.testing.assert_allclose(parts[0] + parts[1], data.U, atol=1e-9)
    np.testing.assert_allclose(parts[1] @ model.A_.T + parts[2], data.V, atol=1e-8)
    assert np.mean((parts[1] - data.S2) ** 2) < 0.05 * np.mean(data.S2**2)
    assert np.mean((data.S2 @ (model.A_ - data.A).T) ** 2) < 0.02 * np.mean((data.S2 @ data.A.T) ** 2)
    np.testing.assert_allclose(model.components_["S2"].covariance, np.cov(data.S2.T), atol=0.15)
    table = model.variance_table()
    np.testing.assert_allclose(table.own + table.shared, np.var(data.U, axis=0), rtol=0.02)
    limits = model.confidence_interval("A")
    assert np.isfinite(limits.standard_error).all()
    assert (limits.standard_error > 0).all()


def test_coefficients_are_those_with_the_true_labs():
    for seed in range(3):
        data, lab = labs(300, seed)
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, rank=2)).fit(data.X, data.y)
        F = np.hstack([data.U, np.eye(3)[lab]])
        F = F - F.mean(axis=0)
        with_labs = np.linalg.lstsq(F, data.y - data.y.mean(), rcond=None)[0][:D]
        np.testing.assert_allclose(model.coef_, with_labs, atol=0.02)


def test_an_outcome_that_differs_between_labs():
    data, lab = labs(600, 1)
    y = data.y + 3.0 * lab
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D)).fit(data.X, y)
    plain = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D)).fit(data.X, data.y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.02)
    assert np.corrcoef(model.predict(data.X), y)[0, 1] > 0.9
    logistic = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=D)).fit(data.X, y > np.median(y))
    assert np.isfinite(logistic.coefficients_.standard_error).all()


def test_classes_beside_another_shared_part():
    rng = np.random.default_rng(4)
    data, lab = labs(1500, 2, k=2)
    s = rng.exponential(size=(1500, 1)) - 1
    more_u, more_v = rng.normal(size=(2, 1, D))
    X = data.X + np.hstack([s @ more_u, s @ more_v])
    model = rc.ContrastiveRCA(views=D).fit(X)
    assert len(model.classes_) == 2
    assert agree(model.class_probabilities(X), lab) > 0.99
    assert model.rank_ == 2
    assert model.diagnostics_.rank == 1
    S2 = data.S2 + s @ more_u
    assert np.mean((model.transform(X, "S2") - S2) ** 2) < 0.15 * np.mean(S2**2)


# ---- opting out, and laws


def test_without_classes_it_is_the_linear_model(data):
    plain = rc.ContrastiveRCA(views=D, classes="none").fit(data.X)
    state = rc.ContrastiveRCA(views=D).fit_moments(rc.Moments.of(data.X, 4))
    assert plain.classes_ is None
    np.testing.assert_allclose(plain.A_, state.A_, rtol=1e-6, atol=1e-9)
    assert plain.class_probabilities(data.X).shape == (500, 1)
    assert "hidden classes" not in plain.summary()
    assert "not looked for: a state has no rows" in state.summary()


def test_a_gaussian_shared_part_is_left_as_it_was():
    data = make_contrastive(600, d=D, S2="gaussian", random_state=0)
    one, two = (rc.ContrastiveRCA(views=D, classes=wanted).fit(data.X) for wanted in ("auto", "none"))
    assert one.classes_ is None
    assert np.array_equal(one.A_, two.A_)
    assert np.array_equal(one.components_["S1"].covariance, two.components_["S1"].covariance)


def test_order_of_rows_and_columns_and_units_do_not_matter(data, model):
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(500), np.concatenate([rng.permutation(D), D + rng.permutation(D)])
    scale = rng.uniform(0.01, 100, 2 * D)
    moved = (data.X * scale + 7.0)[rows][:, columns]
    other = rc.ContrastiveRCA(views=D).fit(moved)
    assert len(other.classes_) == len(model.classes_)
    np.testing.assert_allclose(other.class_probabilities(moved), model.class_probabilities(data.X)[rows], atol=1e-3)
    back = model.components_["S1"].covariance * np.outer(scale[:D], scale[:D])
    order = columns[:D]
    np.testing.assert_allclose(other.components_["S1"].covariance, back[np.ix_(order, order)], rtol=1e-3)


def test_new_rows_are_assigned(model):
    data = labs(800)[0]
    probabilities = model.class_probabilities(data.X[500:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert probabilities.shape == (300, 3)


def test_a_number_of_classes_is_taken(data):
    model = rc.ContrastiveRCA(views=D, classes=2).fit(data.X)
    assert len(model.classes_) == 2
    for wrong in (1, 0, "three", True, 2.0):
        with pytest.raises(ValueError, match="classes must be"):
            rc.ContrastiveRCA(views=D, classes=wrong).fit(data.X)


def test_groups_and_weights_and_covariates():
    data, lab = labs(400, 6)
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 4, size=400)
    once = rc.ContrastiveRCA(views=D).fit(data.X, sample_weight=weight)
    again = rc.ContrastiveRCA(views=D).fit(np.repeat(data.X, weight, axis=0), groups=np.repeat(np.arange(400), weight))
    assert len(once.classes_) == len(again.classes_) == 3
    np.testing.assert_allclose(
        once.components_["S1"].covariance, again.components_["S1"].covariance, rtol=0.02, atol=2e-3
    )
    age = rng.normal(size=(400, 1))
    X = np.hstack([data.X + 2 * age, age])
    model = rc.ContrastiveRCA(views=D, covariates=[2 * D]).fit(X)
    assert agree(model.class_probabilities(X), lab) > 0.99
    parts = model.transform(X), model.transform(X, "S2")
    left = model.solution_.mean[:D] + (X - X.mean(axis=0))[:, :D] - age_share(X)
    np.testing.assert_allclose(parts[0] + parts[1], left, atol=1e-8)


def age_share(X):
    age = X[:, -1] - X[:, -1].mean()
    return np.outer(age, age @ (X[:, :D] - X[:, :D].mean(axis=0)) / (age @ age))


def test_wide_views():
    data = make_contrastive(150, d=200, S2="labs(3)", random_state=3)
    model = rc.ContrastiveRCA(views=200).fit(data.X)
    assert len(model.classes_) == 3
    lab = np.unique(data.S2.round(9), axis=0, return_inverse=True)[1].ravel()
    assert agree(model.class_probabilities(data.X), lab) == 1.0
    assert np.mean((model.transform(data.X, "S2") - data.S2) ** 2) < 0.1 * np.mean(data.S2**2)


def test_files_and_saved_models_answer_alike(tmp_path, data, model):
    np.save(tmp_path / "table.npy", data.X)
    other = rc.ContrastiveRCA(views=D).fit(tmp_path / "table.npy")
    assert np.array_equal(other.components_["S1"].covariance, model.components_["S1"].covariance)
    model.save(tmp_path / "model.rca")
    back = rc.load(tmp_path / "model.rca")
    assert np.array_equal(back.class_probabilities(data.X), model.class_probabilities(data.X))
    assert np.array_equal(back.transform(data.X, "S2"), model.transform(data.X, "S2"))
    assert back.classes_.words() in back.summary()


def test_streams_have_no_classes(data):
    model = rc.ContrastiveRCA(views=D)
    for part in np.array_split(data.X, 2):
        model.partial_fit(part)
    assert model.classes_ is None


def test_outcomes_of_s1_and_s2_and_effects_leave_them_in_the_shared_part(data):
    both = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D), shared=True).fit(data.X, data.y + data.S2[:, 0])
    assert both.rca_.classes_ is None
    with pytest.raises(ValueError, match="hidden classes are a part of S2"):
        rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes=3), shared=True).fit(data.X, data.y)
    for learner in (rc.ComponentPCA(component="S2"), rc.ComponentRegression(component="S2")):
        assert learner.set_params(rca=rc.ContrastiveRCA(views=D)).fit(data.X, data.S2[:, 0]).rca_.classes_ is None
    third = rc.ComponentPCA(component="S3", rca=rc.ContrastiveRCA(views=D)).fit(data.X)
    assert third.rca_.classes_ is not None
    effects = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=D)).fit(data.X, data.y)
    assert effects.rca_.classes_ is None
    with pytest.raises(rc.DataError, match="leave out classes="):
        rc.ExposureEffects(rca=rc.ContrastiveRCA(views=D, classes=2)).fit(data.X, data.y)


def test_rows_with_ties_and_few_rows():
    rng = np.random.default_rng(2)
    X = np.repeat(rng.integers(0, 3, size=(60, 1)), 4, axis=1) * 1.0
    X[:, 1] += rng.integers(0, 2, 60)
    X[:, 3] += rng.integers(0, 2, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = rc.ContrastiveRCA(views=2).fit(X)
    assert np.isfinite(model.components_["S1"].covariance).all()
    assert find_classes(X[:20, [0, 2]], np.array([0.9]), np.ones(20), "auto", 0) is None


@pytest.mark.filterwarnings("ignore::richcomponents.errors.SpecificationWarning")
def test_classes_are_left_in_where_the_outcome_contradicts_the_model():
    """Cell types that both views show, and an outcome that goes with V's own part: covariates' coefficients."""
    rng = np.random.default_rng(4)
    kind, own = rng.integers(3, size=900), rng.exponential(size=(900, 2 * D))
    centres = 3 * rng.normal(size=(3, 2 * D))
    X = centres[kind] + own + rng.exponential(size=(900, 1)) * np.linspace(-1, 1, 2 * D)
    y = X[:, 0] + own[:, D:] @ rng.normal(size=D) + rng.normal(size=900)
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D)).fit(X, y)
    assert model.rca_.classes_ is None
    assert model.verdict_ == "contradicted"
    assert "3 seen, but left in" in model.summary()
    covariates = np.linalg.lstsq(X - X.mean(0), y - y.mean(), rcond=None)[0][:D]
    np.testing.assert_allclose(model.coef_, covariates, rtol=1e-8)
    unasked = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes="none")).fit(X, y)
    np.testing.assert_array_equal(model.coef_, unasked.coef_)
    assert len(rc.ContrastiveRCA(views=D).fit(X).classes_) == 3  # no outcome, nothing contradicts
    stated = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes=3)).fit(X, y)
    assert len(stated.rca_.classes_) == 3
