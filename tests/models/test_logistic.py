"""ComponentLogisticRegression and its mathematics."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from reproduction.descents import exact_logistic
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import richcomponents as rc
from richcomponents import baselines, paper
from richcomponents.components import Component, RowSource
from richcomponents.datasets import make_contrastive
from richcomponents.learning.chebyshev import INTERVAL, MAX_VARIANCE, LogisticLikelihood, sigmoid_series
from richcomponents.learning.glm import Logistic, ridge_glm
from richcomponents.models.logistic import ComponentLogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return make_contrastive(4000, d=5, S1="logistic", S2="skewed", A="good", random_state=1)


def logistic(views=5, A=None, **options):
    return ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=views, A=A), **options)


# ---- mathematics


def test_the_gradient_is_the_mean_over_samples(rng):
    """A large sample's k-statistics are its plain averages: E[(y - P(a + theta's)) (1, s)] - alpha theta."""
    S = rng.uniform(-1, 1, size=(40_000, 2)) @ np.array([[1.0, 0.3], [0.0, 1.0]])
    S -= S.mean(axis=0)
    y = (rng.uniform(size=len(S)) < expit(S[:, 0])).astype(float)
    component, cross = Component.of_samples(S), S.T @ y / len(y)
    model = LogisticLikelihood(component, cross, y.mean(), alpha=0.01)
    for level in (0.2, -1.5):
        at = np.array([level, 0.4, -0.3])
        a, theta = model.coefficients(at)
        p = sigmoid_series(3)(a + S @ theta)
        want = np.r_[np.mean(y - p), model.root.T @ (S.T @ (y - p) / len(y) - 0.01 * S.var(axis=0) * theta)]
        np.testing.assert_allclose(model.gradient(at), want, atol=2e-6)


@pytest.mark.parametrize("intercept", [True, False])
def test_coordinates_of_the_likelihood(intercept, rng):
    """A gradient of zero at an inner maximum, near that of the samples."""
    S = rng.uniform(-1, 1, size=(20_000, 3)) * [1.0, 5.0, 0.2]
    y = (rng.uniform(size=len(S)) < expit(S @ [0.8, -0.1, 1.0] + 0.3 * intercept)).astype(float)
    S, component = S - S.mean(axis=0), Component.of_samples(S - S.mean(axis=0))
    model = LogisticLikelihood(component, S.T @ y / len(y), y.mean(), alpha=1e-3, fit_intercept=intercept)
    found, _ = model.fit()
    assert np.abs(model.gradient(found)).max() < 1e-5
    _, theta = model.coefficients(found)
    clean = ridge_glm([S], y, Logistic(), 1e-3, fit_intercept=intercept)
    np.testing.assert_allclose(theta, clean.coefs[0], atol=0.02 + 0.03 * np.abs(clean.coefs[0]).max())


def test_attenuation_is_that_of_averaging_over_noise(rng):
    z = rng.normal(size=400_000)
    averaged = np.mean(expit(1.0 + 0.7 * z))
    assert expit(1.0 / np.sqrt(1 + 0.346 * 0.7**2)) == pytest.approx(averaged, abs=5e-3)
    assert Logistic().attenuation(0.0) == 1
    assert Logistic().attenuation(1e9) < 4


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("intercept", [True, False])
def test_clean_samples_give_what_scikit_learn_gives(data, alpha, intercept):
    S, y = data.S1 + 0.3, np.asarray(data.y)
    ours = baselines.true(ComponentLogisticRegression(alpha=alpha, fit_intercept=intercept), S, y)
    scale = S.std(axis=0) if intercept else np.sqrt(np.mean(S**2, axis=0))
    theirs = LogisticRegression(C=1 / (alpha * len(y)), fit_intercept=intercept, tol=1e-10, max_iter=1000)
    theirs.fit(S / scale, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / scale, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba_clean(S), theirs.predict_proba(S / scale), atol=1e-5)
    np.testing.assert_array_equal(ours.predict_clean(S), theirs.predict(S / scale))


# ---- the learner


def test_better_than_simple_methods_on_a_skewed_design(data):
    fitted = logistic().fit(data.X, data.y)
    error = lambda m: np.sum((m.coef_[0] - data.beta) ** 2)  # noqa: E731
    assert fitted.coef_.shape == (1, 5)
    assert 0 < fitted.trust_ <= 1
    assert error(fitted) < 0.5 * error(baselines.naive(logistic(), data.X, data.y))
    assert error(fitted) < 0.7 * error(baselines.covariates(logistic(), data.X, data.y))
    assert error(fitted) < error(baselines.cca(logistic(), data.X, data.y))
    table = fitted.coefficients_
    assert np.mean((table.low <= data.beta) & (data.beta <= table.high)) >= 0.6
    assert "std.err" in fitted.summary()
    assert "trusted" in fitted.summary()
    probability = fitted.predict_proba(data.X)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    high = probability[:, 1] > np.quantile(probability[:, 1], 0.8)
    assert np.mean(np.asarray(data.y)[high]) == pytest.approx(probability[high, 1].mean(), abs=0.05)  # calibrated
    np.testing.assert_array_equal(fitted.predict(data.X), fitted.classes_[(probability[:, 1] > 0.5).astype(int)])


def test_polynomials_agree_for_weak_signal(data):
    fitted = logistic(approximation="chebyshev").fit(data.X, data.y)
    default = logistic().fit(data.X, data.y)
    assert np.linalg.norm(fitted.coef_ - default.coef_) < 0.25 * np.linalg.norm(default.coef_)
    assert "chebyshev" in fitted.summary()


def test_higher_degrees_are_read_off_rows_or_need_higher_orders(data):
    """Rows have cumulants up to order six; a state those that it was made with; no one more."""
    fifth = logistic(approximation="chebyshev", degree=5).fit(data.X, data.y)
    rca = rc.ContrastiveRCA(views=5, order=6)
    kept = ComponentLogisticRegression(rca=rca, approximation="chebyshev", degree=5).fit(data.X, data.y)
    # alternatives of orders five and six are weighed over blocks on rows, and not in a state of one block
    np.testing.assert_allclose(fifth.coef_, kept.coef_, atol=0.02)
    third = logistic(approximation="chebyshev").fit(data.X, data.y)
    np.testing.assert_allclose(fifth.coef_, third.coef_, atol=0.1)
    with pytest.raises(ValueError, match="degree <= 5"):
        logistic(approximation="chebyshev", degree=6).fit(data.X, data.y)
    component, cross = rc.ContrastiveRCA(views=5).fit(data.X).components_["S1"], np.full(5, 0.01)
    with pytest.raises(ValueError, match="fit with order=5"):
        ComponentLogisticRegression(approximation="chebyshev", degree=4).fit_component(component, cross)
    with pytest.raises(ValueError, match="degree <= 5"):
        ComponentLogisticRegression(approximation="chebyshev", degree=7).fit_component(component, cross)


def test_gradients_read_what_is_cheaper(data):
    """The rows where the state has more numbers than they, the same gradient from both."""
    many = rc.ContrastiveRCA(views=5).fit(data.X)
    outcome = many.outcome(data.X, np.asarray(data.y, dtype=float))
    assert many.fitted_.component_for_gradients(outcome, "S1", 4) is many.components_["S1"]
    wide = make_contrastive(400, d=16, S1="logistic", S2="skewed", random_state=3)
    model = rc.ContrastiveRCA(views=16).fit(wide.X)
    rows = model.fitted_.component_for_gradients(model.outcome(wide.X, np.asarray(wide.y, dtype=float)), "S1", 4)
    assert isinstance(rows.source, RowSource)
    for order in (3, 4):
        one, two = (c.projected_cumulant(wide.beta, order) for c in (model.components_["S1"], rows))
        np.testing.assert_allclose(one, two, atol=1e-10 * np.abs(one).max())


def test_known_mixing_and_the_papers_formulas(data):
    naive = np.sum((baselines.naive(logistic(), data.X, data.y).coef_[0] - data.beta) ** 2)
    for rca in (rc.ContrastiveRCA(views=5, A=data.A), rc.ContrastiveRCA(views=5, A=data.A, method="paper")):
        fitted = ComponentLogisticRegression(rca=rca).fit(data.X, data.y)
        assert np.sum((fitted.coef_[0] - data.beta) ** 2) < 0.5 * naive
        assert np.isfinite(fitted.coefficients_.standard_error).all()


@pytest.mark.parametrize("approximation", ["auto", "chebyshev"])
@pytest.mark.parametrize("alpha", [1e-3, 0.0])
def test_separable_classes_stay_bounded(approximation, alpha):
    data = make_contrastive(500, d=3, S1="logistic", S2="skewed", A="good", random_state=2)
    y = data.U[:, 0] + 0.2 * data.V[:, 0] > 0  # a function of the views
    with pytest.warns(rc.SpecificationWarning):
        fitted = logistic(views=3, approximation=approximation, alpha=alpha).fit(data.X, y)
    assert np.isfinite(fitted.coef_).all()
    assert np.linalg.norm(fitted.coef_) < 100
    if approximation == "auto":
        assert np.isfinite(fitted.coefficients_.standard_error).all()
    else:
        theta = fitted.coef_[0]
        assert fitted.coefficients_ is None  # an interval about the bound would say nothing of the truth
        assert theta @ fitted.component_.covariance @ theta < 1.001 * MAX_VARIANCE
    clean = baselines.true(logistic(views=3, alpha=1e-3), data.S1, data.S1[:, 0] > 0)
    assert np.linalg.norm(clean.coef_) < 100


def test_strong_signal_is_recovered_better_than_by_residualising(data):
    beta = 5 * data.beta
    y = data.S1 @ beta + np.random.default_rng(0).logistic(size=len(data.S1)) > 0
    fitted = logistic().fit(data.X, y)
    assert np.sum((fitted.coef_[0] - beta) ** 2) < 0.5 * np.sum((fitted.residualised_ - beta) ** 2)


def test_without_evidence_it_is_residualising():
    data = make_contrastive(300, d=4, S1="logistic", S2="gaussian", S3="gaussian", random_state=0)
    fitted = logistic(views=4).fit(data.X, data.y)
    if fitted.trust_ == 0:
        np.testing.assert_allclose(fitted.coef_[0], fitted.residualised_)
    else:
        assert np.linalg.norm(fitted.coef_[0] - fitted.residualised_) < np.linalg.norm(fitted.residualised_)


# ---- an extracted component


@pytest.mark.parametrize("options", [{}, {"approximation": "chebyshev"}])
def test_from_an_extracted_component(data, options):
    rca = rc.ContrastiveRCA(views=5).fit(data.X)
    y = np.asarray(data.y, dtype=float)
    residual = data.U - data.V @ np.linalg.lstsq(data.V, data.U, rcond=None)[0]
    cross = residual.T @ (y - y.mean()) / len(y)
    learned = ComponentLogisticRegression(**options).fit_component(rca.components_["S1"], cross, y.mean())
    assert learned.coef_.shape == (1, 5)
    np.testing.assert_allclose(learned.coef_[0], data.beta, atol=0.3)
    assert "S1" in learned.summary()
    probability = learned.predict_proba_clean(data.S1)[:, 1]
    assert np.mean((probability > 0.5) == (y > 0.5)) > 0.55
    assert set(learned.predict_clean(data.S1)) <= {0, 1}
    if options:
        rows = logistic(**options).fit(data.X, data.y)  # the same likelihood; its residual is on the shared part of V
        np.testing.assert_allclose(learned.coef_, rows.coef_, atol=0.02)


@pytest.mark.parametrize("law", ["uniform", "normal", "laplace"])
@pytest.mark.parametrize("size", [0.5, 4.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_matched_law_needs_no_weak_signal(law, size, intercept, rng):
    """Large clean samples: from moments alone as from the samples, also where polynomials are biased."""
    draw = {
        "uniform": lambda s: rng.uniform(-1, 1, s),
        "normal": rng.standard_normal,
        "laplace": lambda s: rng.laplace(size=s),
    }
    S = draw[law]((60_000, 3)) @ np.array([[1.0, 0.2, 0.0], [0.0, 1.0, -0.3], [0.0, 0.0, 0.7]]) + [0.3, 0.0, -0.2]
    beta = np.array([0.6, -0.5, 0.4])
    beta *= np.sqrt(size / (beta @ np.cov(S.T) @ beta))
    y = (S @ beta + 0.4 * intercept + rng.logistic(size=len(S)) > 0).astype(float)
    cross, learner = np.cov(S.T, y)[:3, 3], ComponentLogisticRegression(alpha=1e-6, fit_intercept=intercept)
    found = learner.fit_component(Component.of_samples(S), cross, y.mean())
    assert np.linalg.norm(found.coef_[0] - beta) < 0.12 * np.linalg.norm(beta)
    if intercept:
        assert found.intercept_[0] == pytest.approx(0.4, abs=0.12)


def test_a_component_with_second_moments_only(data):
    S, y = data.S1, np.asarray(data.y, dtype=float)
    cross = S.T @ (y - y.mean()) / len(y)
    known = Component("S1", tuple("abcde"), S.mean(axis=0), np.cov(S.T, bias=True))
    found = ComponentLogisticRegression().fit_component(known, cross, y.mean())
    clean = ComponentLogisticRegression().fit_clean(S, y)
    np.testing.assert_allclose(found.coef_, clean.coef_, atol=0.05)
    line = ComponentLogisticRegression(approximation="chebyshev", degree=1).fit_component(known, cross, y.mean())
    np.testing.assert_allclose(line.coef_, clean.coef_, atol=0.1)
    with pytest.raises(rc.CapacityError, match="covariance"):
        ComponentLogisticRegression(approximation="chebyshev").fit_component(known, cross, y.mean())


# ---- the paper's stochastic gradients


def test_the_paper_s_steps_end_near_the_deterministic_solution(data):
    fixed = logistic(approximation="chebyshev").fit(data.X, data.y)
    moved, again = (logistic(method="paper").fit(data.X, data.y) for _ in range(2))
    np.testing.assert_allclose(moved.coef_, fixed.coef_, atol=0.15)
    np.testing.assert_array_equal(moved.coef_, again.coef_)
    assert "stochastic" in moved.summary()
    assert moved.coefficients_ is not None


def test_the_paper_s_learner_is_called_as_it_stands(data):
    """method="paper" of both: equations (2) and (3), then Section 4.2, whatever the penalty and the intercept."""
    rca = rc.ContrastiveRCA(views=5, method="paper")
    expected = paper.contrastive_logistic(paper.extract(data.U, data.V), np.asarray(data.y, dtype=float)).theta
    for options in ({}, {"alpha": 1.0, "fit_intercept": False}):
        found = ComponentLogisticRegression(rca=rca, method="paper", **options).fit(data.X, data.y)
        np.testing.assert_allclose(found.coef_[0], expected, rtol=1e-6)
    swapped = np.hstack([data.V, data.U])
    own = ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=5, A=data.A), method="paper").fit(data.X, data.y)
    other = rc.ContrastiveRCA(views=5, A=np.linalg.inv(data.A))
    third = ComponentLogisticRegression(rca=other, component="S3", method="paper").fit(swapped, data.y)
    np.testing.assert_allclose(own.coef_, third.coef_, rtol=1e-6)
    views = {"a": [0, 1, 2], "b": [3, 4, 5, 6], "c": [7, 8, 9]}
    many = rc.RCA(views=views, sets=["a", "b", "c", ("a", "b", "c")])
    with pytest.raises(rc.DataError, match="takes two views"):
        ComponentLogisticRegression(rca=many, component=("a",), method="paper").fit(data.X, data.y)


def test_exact_steps_on_true_samples(data):
    """Of the reproduction: they end where the learner does."""
    fixed = ComponentLogisticRegression().fit_clean(data.S1, data.y)
    path = exact_logistic(data.S1, np.asarray(data.y, dtype=float), 1e-3, n_steps=3000)
    np.testing.assert_allclose(path[1501:].mean(axis=0), fixed.coef_[0], atol=0.1)
    whole = exact_logistic(data.S1, np.asarray(data.y, dtype=float), 1e-3, batch_size=4000)
    np.testing.assert_allclose(whole[-1], fixed.coef_[0], atol=1e-3)


@pytest.mark.parametrize("batch_size", [5, 100])
def test_steps_never_diverge(batch_size):
    data = make_contrastive(500, d=3, S1="logistic", S2="heavy", A="unif", random_state=2)
    y = (data.S1[:, 0] > 0).astype(float)
    with pytest.warns(rc.SpecificationWarning, match="no maximum within its range"):
        path = paper.contrastive_logistic(paper.extract(data.U, data.V), y, batch_size=batch_size)
    assert (data.U @ path.trajectory.T).std(axis=0).max() < 1.001 * INTERVAL
    clean = exact_logistic(data.S1, y, 0.0, batch_size=batch_size)
    assert np.isfinite(clean).all()


def test_polynomials_in_200_dimensions():
    """Too wide for a state of order four: cumulants are read off the rows."""
    rng = np.random.default_rng(0)
    n, d, r = 2000, 200, 2
    beta = np.zeros(d)
    beta[:2] = 1.0, -1.0
    S1, S2 = rng.uniform(-1, 1, size=(n, d)), (rng.exponential(size=(n, r)) - 1) @ rng.normal(size=(r, d))
    X, y = np.hstack([S1 + S2, S2 + rng.uniform(-1, 1, size=(n, d))]), S1 @ beta + rng.logistic(size=n) > 0
    rca = rc.ContrastiveRCA(views=d, A=np.eye(d), rank=r)
    fixed = ComponentLogisticRegression(rca=rca, approximation="chebyshev", alpha=0.09).fit(X, y)
    coef = fixed.coef_[0]
    assert np.linalg.norm(coef[:2] - beta[:2]) < 1
    assert np.corrcoef(coef, beta)[0, 1] > 0.5


def test_labels_names_groups_and_pickle(data):
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(5)] + [f"c{i}" for i in range(5)])
    labels = pd.Series(np.where(np.asarray(data.y) > 0.5, "well", "ill"))
    fitted = logistic().fit(frame, labels, groups=np.repeat(np.arange(800), 5))
    assert fitted.coefficients_.names == tuple(f"t{i}" for i in range(5))
    assert fitted.classes_.tolist() == ["ill", "well"]
    assert set(fitted.predict(frame)) == {"ill", "well"}
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(frame), fitted.predict_proba(frame))


def test_covariates_of_the_rca_enter_the_regression(data, rng):
    age = rng.normal(size=(len(data.X), 1))
    y = data.S1 @ data.beta + age[:, 0] + rng.logistic(size=len(age)) > 0
    rca = rc.ContrastiveRCA(views={"U": list(range(5)), "V": list(range(5, 10))}, covariates=[10])
    fitted = ComponentLogisticRegression(rca=rca).fit(np.hstack([data.X, age]), y)
    assert np.sum((fitted.coef_[0] - data.beta) ** 2) < 0.1


def test_bad_input_is_named(data):
    with pytest.raises(rc.DataError, match="one class only"):
        logistic().fit(data.X, np.ones(4000))
    with pytest.raises(rc.DataError, match="missing"):
        logistic().fit(data.X, np.where(np.arange(4000) < 3, np.nan, data.y))
    with pytest.raises(rc.DataError, match="missing"):
        logistic().fit(data.X, np.array([None] + ["a", "b", "a"] * 1333, dtype=object))
    with pytest.raises(ValueError, match="3 classes"):
        logistic().fit(data.X, np.arange(4000) % 3)
    with pytest.raises(ValueError, match="y must be one column of 4000 values, got 100"):
        logistic().fit(data.X, np.asarray(data.y)[:100])
    with pytest.raises(ValueError, match="approximation must be"):
        logistic(approximation="cubic").fit(data.X, data.y)
    with pytest.raises(ValueError, match="degree"):
        logistic(degree=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="alpha must be"):
        logistic(alpha=-1).fit(data.X, data.y)
    with pytest.raises(ValueError, match="method must be"):
        logistic(method="newton").fit(data.X, data.y)
    component = Component.of_samples(data.S1)
    with pytest.raises(ValueError, match="mini-batches of rows"):
        logistic(method="paper").fit_component(component, np.zeros(5))
    with pytest.raises(rc.DataError, match="one entry per column"):
        logistic().fit_component(component, np.zeros(4))
    with pytest.raises(rc.DataError, match="second class"):
        logistic().fit_component(component, np.zeros(5), 1.0)
    with pytest.raises(TypeError, match="takes a Component"):
        logistic().fit_component(data.S1, np.zeros(5))
    with pytest.raises(ValueError, match="component must be one of"):
        logistic(component="S4").fit(data.X, data.y)
    with pytest.warns(rc.SpecificationWarning, match="The outcome contradicts the model: y goes with V"):
        logistic().fit(data.X, data.S1[:, 0] + data.S3[:, 0] > 0)
    clean = logistic().fit_clean(data.S1, data.y)
    with pytest.raises(rc.DataError, match="5 columns"):
        clean.predict_clean(data.S1[:, :3])
    with pytest.raises(ValueError, match=r"use fit\(X\)"):
        clean.predict(data.X)


@pytest.mark.parametrize("seed", [5, 7])
def test_a_correction_of_noisy_log_odds_stays_near(seed):
    """Classes that can nearly be separated: the log-odds along the labs are hardly known, and their correction neither. A
    correction without another penalised fit was off by up to 28."""
    table, malignant = rc.datasets.load_biomarkers()
    y = np.array(malignant, dtype=float)
    tests, controls = table.values[:, :10], table.values[:, 10:]
    U, V = rc.datasets.add_hidden_labs(tests, controls, scale=0.25, random_state=seed)
    model = ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=10, rank=1, classes="none")).fit(
        np.hstack([U, V]), y
    )
    clean = ComponentLogisticRegression().fit_clean(tests, y).coef_[0]
    assert np.mean((model.coef_[0] - clean) ** 2) < 0.2
