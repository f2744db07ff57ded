"""Generalised linear models on samples: derivatives, other software, averages over what is not known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from richcomponents.learning.glm import FAMILIES, Logistic, Multinomial, NegativeBinomial, Poisson, Probit, ridge_glm

EVERY = [Logistic(), Probit(), Poisson(), NegativeBinomial(0.7), Multinomial(4)]


def outcome(family, n, rng):
    high = family.classes if isinstance(family, Multinomial) else 2 if family.of_classes else 6
    return rng.integers(high, size=n).astype(float)


@pytest.mark.parametrize("family", EVERY, ids=lambda f: f.name)
def test_slope_and_weight_are_derivatives_of_the_loss(family, rng):
    eta, y = rng.normal(size=(6, family.predictors)), outcome(family, 6, rng)
    step = 1e-5
    for j in range(family.predictors):
        move = step * np.eye(family.predictors)[j]
        slope = (family.losses(eta + move, y) - family.losses(eta - move, y)) / (2 * step)
        np.testing.assert_allclose(family.slope(eta, y)[:, j], slope, atol=1e-8)
        bend = (family.slope(eta + move, y) - family.slope(eta - move, y)) / (2 * step)
        if isinstance(family, NegativeBinomial):  # expected, not observed, curvature
            mean = family.mean(eta)
            bend = (family.slope(eta + move, mean) - family.slope(eta - move, mean)) / (2 * step)
        np.testing.assert_allclose(family.weight(eta, y)[:, j], bend, atol=1e-7)


@pytest.mark.parametrize("family", EVERY, ids=lambda f: f.name)
def test_the_loss_is_the_log_of_the_chance(family):
    """Differences of losses over eta are those of scipy's log-probabilities."""
    eta = np.array([[-0.3], [0.8]]) * np.ones(family.predictors)
    y = np.array([1.0, 1.0])
    if isinstance(family, NegativeBinomial):
        size = 1 / family.dispersion
        log_p = stats.nbinom.logpmf(1, size, size / (size + np.exp(eta[:, 0])))
    elif isinstance(family, Poisson):
        log_p = stats.poisson.logpmf(1, np.exp(eta[:, 0]))
    else:
        log_p = np.log(family.mean(eta)[:, 1])
    assert np.diff(-family.losses(eta, y)) == pytest.approx(np.diff(log_p), abs=1e-10)


def test_fits_are_those_of_scikit_learn(rng):
    S = rng.normal(size=(500, 3))
    beta = np.array([0.5, -0.3, 0.2])
    counts = rng.poisson(np.exp(0.4 + S @ beta)).astype(float)
    ours = ridge_glm([S], counts, Poisson(), 0.05)
    scale = np.sqrt(np.mean(S**2, axis=0))
    theirs = PoissonRegressor(alpha=0.05, tol=1e-10, max_iter=1000).fit(S / scale, counts)
    np.testing.assert_allclose(ours.coefs[0], theirs.coef_ / scale, atol=1e-6)
    assert ours.intercepts[0] == pytest.approx(theirs.intercept_, abs=1e-6)
    classes = rng.integers(3, size=500).astype(float)
    ours = ridge_glm([S, S], classes, Multinomial(3), 1e-9)
    theirs = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(S, classes)
    np.testing.assert_allclose(np.stack(ours.coefs), theirs.coef_[1:] - theirs.coef_[0], atol=1e-5)


def test_two_classes_of_several_are_logistic(rng):
    S, y = rng.normal(size=(300, 2)), rng.integers(2, size=300).astype(float)
    one, two = (ridge_glm([S], y, family, 1e-3) for family in (Logistic(), Multinomial(2)))
    np.testing.assert_allclose(one.coefs[0], two.coefs[0], atol=1e-10)
    np.testing.assert_allclose(one.information, two.information, rtol=1e-10)


def test_the_dispersion_is_found(rng):
    S = rng.normal(size=(20_000, 2))
    level = np.exp(0.5 + S @ np.array([0.4, -0.2]))
    y = rng.poisson(level * rng.gamma(1 / 0.6, 0.6, size=len(S))).astype(float)
    fit = ridge_glm([S], y, NegativeBinomial(), 0.0)
    assert fit.family.dispersion == pytest.approx(0.6, abs=0.03)
    np.testing.assert_allclose(fit.coefs[0], [0.4, -0.2], atol=0.03)
    even = ridge_glm([S], rng.poisson(level).astype(float), NegativeBinomial(), 0.0)
    assert even.family.dispersion < 0.02


@pytest.mark.parametrize("family", EVERY, ids=lambda f: f.name)
def test_steps_without_blocks_are_close_to_refits(family, rng):
    S = rng.normal(size=(600, 3))
    y = outcome(family, 600, rng)
    keep = np.arange(600) % 10 != np.arange(10)[:, None]
    fit = ridge_glm([S] * family.predictors, y, family, 1e-3)
    steps = [one.blocks for one in fit.predictors(keep)]
    for j in range(family.predictors):
        refits = np.stack([ridge_glm([S[k]] * family.predictors, y[k], fit.family, 1e-3).coefs[j] for k in keep])
        np.testing.assert_allclose(steps[j], refits, atol=0.1 * np.abs(refits - fit.coefs[j]).max())


@pytest.mark.parametrize("family", EVERY, ids=lambda f: f.name)
def test_units_do_not_matter(family, rng):
    S = rng.normal(size=(300, 3))
    y, units = outcome(family, 300, rng), np.array([1e-6, 1.0, 1e6])
    one, two = (ridge_glm([x] * family.predictors, y, family, 0.01) for x in (S, S * units))
    for a, b in zip(one.coefs, two.coefs, strict=True):
        np.testing.assert_allclose(b * units, a, rtol=1e-9)


@pytest.mark.parametrize("family", [Logistic(), Probit(), Poisson(), NegativeBinomial(0.5)], ids=lambda f: f.name)
def test_averages_over_gaussian_noise(family):
    """Probit and the log link are exact; the sigmoid to three percent."""
    z = np.sqrt(2) * np.polynomial.hermite.hermgauss(80)[0]
    weight = np.polynomial.hermite.hermgauss(80)[1] / np.sqrt(np.pi)
    for m in (-1.0, 0.3, 1.5):
        for q in (0.2, 1.0):
            noisy = np.asarray(family.mean((m + np.sqrt(q) * z)[:, None])).T @ weight
            told = np.asarray(family.mean(family.averaged(np.array([[m]]), np.array([q]))))
            np.testing.assert_allclose(told.ravel(), np.ravel(noisy), rtol=0.03 if family.name == "logistic" else 1e-10)


def test_what_is_lost_is_put_back():
    """averaged(attenuation) is the identity: theta = c g, g = theta / sqrt(1 + k theta'Omega theta)."""
    for family in (Logistic(), Probit()):
        q = 0.8
        seen = 1 / np.sqrt(1 + family.spread * q)
        assert family.attenuation(q * seen**2) == pytest.approx(1 / seen)
    assert Poisson().attenuation(3.0) == 1
    assert Poisson().intercept(1.0, 1.0, 0.6) == pytest.approx(0.7)


def test_separable_classes_and_empty_counts_stay_finite(rng):
    S = rng.normal(size=(100, 2))
    for family in (Logistic(), Probit()):
        assert np.isfinite(ridge_glm([S], (S[:, 0] > 0).astype(float), family, 0.0).coefs[0]).all()
    y = np.zeros(100)
    y[0] = 1
    assert np.isfinite(ridge_glm([S], y, Poisson(), 1e-3).coefs[0]).all()
    huge = rng.poisson(np.exp(10 + S[:, 0])).astype(float)
    assert ridge_glm([S], huge, Poisson(), 0.0).coefs[0] == pytest.approx([1, 0], abs=0.01)
    assert set(FAMILIES) == {family.name for family in EVERY}
