"""ComponentLogisticRegression and its mathematics."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import richcomponents as rc
from richcomponents import baselines
from richcomponents.components import Component
from richcomponents.datasets import make_contrastive
from richcomponents.learning.logistic import (
    INTERVAL,
    MAX_VARIANCE,
    _mean_softplus,
    attenuation,
    confined_minimum,
    mixture_objective,
    newton_replicates,
    polynomial_objective,
    ridge_logistic,
    sigmoid_polynomial,
)
from richcomponents.models.logistic import ComponentLogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return make_contrastive(4000, d=5, S1="logistic", S2="skewed", A="good", random_state=1)


def logistic(views=5, A=None, **options):
    return ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=views, A=A), **options)


# ---- mathematics


def test_chebyshev_series_is_the_papers():
    np.testing.assert_allclose(sigmoid_polynomial("chebyshev", 3), [0.5, 0.245, 0, -0.014], atol=5e-4)
    z = np.linspace(-INTERVAL, INTERVAL, 101)
    errors = [
        np.abs(np.polynomial.polynomial.polyval(z, sigmoid_polynomial("chebyshev", k)) - expit(z)).max()
        for k in (1, 3, 5, 9)
    ]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-5


def test_taylor_series():
    np.testing.assert_allclose(sigmoid_polynomial("taylor", 5), [0.5, 0.25, 0, -1 / 48, 0, 1 / 480], atol=1e-15)
    with pytest.raises(ValueError, match="'chebyshev' or 'taylor'"):
        sigmoid_polynomial("fourier", 3)


@pytest.mark.parametrize("kind", ["chebyshev", "taylor", "mixture"])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_gradients_are_those_of_the_objectives(kind, scale, rng):
    S = rng.exponential(size=(500, 3)) - 1
    component = Component.of_samples(S - S.mean(axis=0))
    cross = np.array([0.1, -0.05, 0.02])
    if kind == "mixture":
        fourth = lambda theta: component.projected_cumulant(theta, 4)  # noqa: E731
        objective = mixture_objective(component.covariance, fourth, cross, 0.4, 0.01)
    else:
        objective = polynomial_objective(component.projected_moment, sigmoid_polynomial(kind, 3), cross, 0.4, 0.01)
    a, theta = 0.3, scale * np.array([0.4, -0.2, 0.1])
    _, by_a, by_theta = objective(a, theta)
    step = 1e-4
    assert (objective(a + step, theta)[0] - objective(a - step, theta)[0]) / (2 * step) == pytest.approx(by_a, abs=1e-6)
    for i, e in enumerate(np.eye(3)):
        slope = (objective(a, theta + step * e)[0] - objective(a, theta - step * e)[0]) / (2 * step)
        assert slope == pytest.approx(by_theta[i], rel=1e-4, abs=1e-5)


def test_polynomial_objective_is_the_mean_over_samples(rng):
    S = rng.uniform(-1, 1, size=(400, 2))
    S -= S.mean(axis=0)
    y = (rng.uniform(size=400) < expit(S[:, 0])).astype(float)
    component = Component.of_samples(S)
    biased = lambda theta, t: S.T @ (S @ theta) ** (t - 1) / 400  # noqa: E731
    series = sigmoid_polynomial("chebyshev", 3)
    theta, a = np.array([0.7, -0.3]), 0.2
    want = S.T @ (np.polynomial.polynomial.polyval(a + S @ theta, series) - y) / 400
    np.testing.assert_allclose(polynomial_objective(biased, series, S.T @ y / 400, y.mean())(a, theta)[2], want)
    close = polynomial_objective(component.projected_moment, series, S.T @ y / 400, y.mean())(a, theta)[2]
    np.testing.assert_allclose(close, want, atol=2e-3)


@pytest.mark.parametrize("excess", [-1.2, 0.0, 1.5])
def test_law_of_the_projection_against_samples(excess, rng):
    if excess < 0:
        z = rng.uniform(-1, 1, 400_000) * np.sqrt(3 * 4)
    elif excess == 0:
        z = 2 * rng.normal(size=400_000)
    else:
        z = 2 * rng.standard_t(8, size=400_000) * np.sqrt(6 / 8)
    assert _mean_softplus(0.5, 4.0, excess) == pytest.approx(np.logaddexp(0, 0.5 + z).mean(), abs=0.01)


def test_confined_minimum_stays_inside():
    covariance = np.diag([2.0, 0.5])
    a, theta = confined_minimum(lambda a, t: (-t.sum() - a, -1.0, -np.ones(2)), covariance, 1.5)
    assert theta @ covariance @ theta == pytest.approx(1.5, rel=1e-2)
    assert a == pytest.approx(INTERVAL)
    centre = np.array([0.3, -0.2])
    free = confined_minimum(lambda a, t: ((t - centre) @ (t - centre) + a * a, 2 * a, 2 * (t - centre)), covariance, 9)
    np.testing.assert_allclose(free[1], centre, atol=1e-4)


def test_attenuation_is_that_of_averaging_over_noise(rng):
    z = rng.normal(size=400_000)
    averaged = np.mean(expit(1.0 + 0.7 * z))
    assert expit(1.0 / np.sqrt(1 + 0.346 * 0.7**2)) == pytest.approx(averaged, abs=5e-3)
    assert attenuation(0.0) == 1
    assert attenuation(1e9) < 4


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("intercept", [True, False])
def test_clean_samples_give_what_scikit_learn_gives(data, alpha, intercept):
    S, y = data.S1 + 0.3, np.asarray(data.y)
    ours = baselines.true(ComponentLogisticRegression(alpha=alpha, fit_intercept=intercept), S, y)
    theirs = LogisticRegression(C=1 / (alpha * len(y)), fit_intercept=intercept, tol=1e-10, max_iter=1000).fit(S, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba_clean(S), theirs.predict_proba(S), atol=1e-5)
    np.testing.assert_array_equal(ours.predict_clean(S), theirs.predict(S))


def test_newton_replicates_are_close_to_refits(data):
    S, y = data.S1 - data.S1.mean(axis=0), np.asarray(data.y, dtype=float)
    blocks = np.arange(len(y)) % 20
    keep = np.stack([blocks != b for b in range(20)])
    fit = ridge_logistic(S, y, 1e-3)
    steps = newton_replicates(S, y, fit, 1e-3, keep)
    refits = np.stack([ridge_logistic(S[rows], y[rows], 1e-3).coef for rows in keep])
    np.testing.assert_allclose(steps, refits, atol=0.05 * np.abs(refits - fit.coef).max())


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


@pytest.mark.parametrize("options", [{"approximation": "chebyshev"}, {"approximation": "taylor", "degree": 1}])
def test_polynomials_agree_for_weak_signal(data, options):
    fitted = logistic(**options).fit(data.X, data.y)
    default = logistic().fit(data.X, data.y)
    assert np.linalg.norm(fitted.coef_ - default.coef_) < 0.25 * np.linalg.norm(default.coef_)
    assert options["approximation"] in fitted.summary()


def test_higher_degrees_need_higher_orders(data):
    with pytest.raises(ValueError, match="order"):
        logistic(approximation="chebyshev", degree=5).fit(data.X, data.y)
    rca = rc.ContrastiveRCA(views=5, order=6)
    fitted = ComponentLogisticRegression(rca=rca, approximation="chebyshev", degree=5).fit(data.X, data.y)
    third = logistic(approximation="chebyshev").fit(data.X, data.y)
    np.testing.assert_allclose(fitted.coef_, third.coef_, atol=0.1)


def test_known_mixing_and_the_papers_formulas(data):
    naive = np.sum((baselines.naive(logistic(), data.X, data.y).coef_[0] - data.beta) ** 2)
    for rca in (rc.ContrastiveRCA(views=5, A=data.A), rc.ContrastiveRCA(views=5, A=data.A, method="paper")):
        fitted = ComponentLogisticRegression(rca=rca).fit(data.X, data.y)
        assert np.sum((fitted.coef_[0] - data.beta) ** 2) < 0.5 * naive
        assert np.isfinite(fitted.coefficients_.standard_error).all()


@pytest.mark.parametrize("approximation", ["auto", "chebyshev", "taylor"])
@pytest.mark.parametrize("alpha", [1e-3, 0.0])
def test_separable_classes_stay_bounded(approximation, alpha):
    data = make_contrastive(500, d=3, S1="logistic", S2="skewed", A="good", random_state=2)
    y = data.U[:, 0] + 0.2 * data.V[:, 0] > 0  # a function of the views
    with pytest.warns(rc.SpecificationWarning):
        fitted = logistic(views=3, approximation=approximation, alpha=alpha).fit(data.X, y)
    assert np.isfinite(fitted.coef_).all()
    assert np.isfinite(fitted.coefficients_.standard_error).all()
    assert np.linalg.norm(fitted.coef_) < 100
    if approximation != "auto":
        theta = fitted.coef_[0]
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
    with pytest.raises(ValueError, match="inconsistent"):
        logistic().fit(data.X, np.asarray(data.y)[:100])
    with pytest.raises(ValueError, match="approximation must be"):
        logistic(approximation="cubic").fit(data.X, data.y)
    with pytest.raises(ValueError, match="degree"):
        logistic(degree=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="alpha must be"):
        logistic(alpha=-1).fit(data.X, data.y)
    with pytest.raises(ValueError, match="exchange the views"):
        ComponentLogisticRegression(component="S3").fit(data.X, data.y)
    with pytest.warns(rc.SpecificationWarning, match="correlated with V"):
        logistic().fit(data.X, data.S1[:, 0] + data.S3[:, 0] > 0)
    clean = logistic().fit_clean(data.S1, data.y)
    with pytest.raises(rc.DataError, match="5 columns"):
        clean.predict_clean(data.S1[:, :3])
    with pytest.raises(ValueError, match=r"use fit\(X\)"):
        clean.predict(data.X)


def test_refinement_is_dropped_where_the_rows_speak_against_it():
    """Strong signal and a skewed S1: its law is not known by variance and fourth cumulant, and refining would be far off."""
    table, malignant = rc.datasets.load_biomarkers()
    y = np.array(malignant, dtype=float)
    tests, controls = table.values[:, :10], table.values[:, 10:]
    U, V = rc.datasets.add_hidden_labs(tests, controls, scale=0.25, random_state=5)
    model = ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=10, rank=1)).fit(np.hstack([U, V]), y)
    clean = ComponentLogisticRegression().fit_clean(tests, y).coef_[0]
    assert model.trust_ > 0.9
    assert np.mean((model.coef_[0] - clean) ** 2) < 0.2
