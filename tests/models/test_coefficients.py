"""How sure coefficients are: the identified set, and errors of what is reported."""

import warnings

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cumulants.estimate import Estimate
from richcomponents.datasets import make_contrastive
from richcomponents.learning.coefficients import LEAST_KEPT, Safe, Stretch
from richcomponents.learning.glm import Logistic


def safe_coefficients(d=4, r=3, seed=0):
    """Least squares with r shared directions of any two views."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(d, d))
    D = np.sort(rng.uniform(0.3, 0.9, r))[::-1]
    half = np.diag(np.sqrt(1 - D**2))
    b = np.linalg.inv(u).T @ rng.normal(size=d)
    return Safe(b, u[:, :r], np.linalg.inv(u)[:r].T @ np.linalg.inv(half), half, 0.1 * rng.normal(size=r))


@pytest.mark.parametrize("attenuation", [np.ones_like, Logistic().attenuation])
def test_the_set_holds_every_admissible_coefficient(attenuation):
    fit, rng, r = safe_coefficients(), np.random.default_rng(1), 3
    stretch = Stretch(0.0, 1.0, 1.0, attenuation)
    turn = np.linalg.qr(rng.normal(size=(20_000, r, r)))[0]
    T = (turn * rng.choice([0.0, 0.5, 1 - LEAST_KEPT], (20_000, 1, r))) @ turn.swapaxes(1, 2)
    found, (low, high) = stretch(fit, T, np.zeros((r, r))), stretch.ends(fit)
    slack = 1e-9 * np.abs(found).max()
    assert (found >= low - slack).all()
    assert (found <= high + slack).all()
    if attenuation is np.ones_like:  # and the ends are reached
        for row, ends in zip(fit.into, zip(low, high, strict=True), strict=True):
            values, vectors = np.linalg.eigh((np.outer(row, fit.m) + np.outer(fit.m, row)) / 2)
            for sign, end in zip((-1, 1), ends, strict=True):
                P = vectors[:, sign * values > 1e-12]
                corner = stretch(fit, (1 - LEAST_KEPT) * P @ P.T, np.zeros((r, r)))
                assert np.isclose(corner, end, rtol=1e-6).any()


def test_p_values_of_a_set_agree_with_its_limits():
    low, high = np.array([1.0, -0.2, -3.0, 0.3, 0.5]), np.array([1.1, 4.0, -0.5, 0.3, 9.0])
    error = np.array([0.5, 0.1, 0.2, 0.15, 0.2])
    found = Estimate(high, np.full(5, np.nan), 19, identified=(low, high), identified_error=(error, error))
    p = found.p_value
    assert p[1] == 1.0
    for level in (0.8, 0.9, 0.95, 0.99):
        a, b = found.interval(level)
        assert ((p < 1 - level) == ((a > 0) | (b < 0))).all()


def fitted(S2, n, seed, errors="auto", **options):
    data = make_contrastive(n, S2=S2, random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return data, rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10, errors=errors)).fit(data.X, data.y)


def test_fits_that_are_not_identified_tell_the_set():
    covered = []
    for seed in range(4):
        data, model = fitted("gaussian", 2000, seed, "free")
        found = model.coefficients_
        assert model.rca_.verdict_ == "not identified"
        low, high = found.identified
        assert (low <= model.coef_ + 1e-12).all()
        assert (model.coef_ <= high + 1e-12).all()
        covered.append((found.low <= data.beta) & (data.beta <= found.high))
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize(("S2", "n", "seed"), [("skewed", 400, 0), ("labs(3)", 600, 1), ("paper", 3000, 2)])
def test_estimate_set_interval_and_p_agree(S2, n, seed):
    _, model = fitted(S2, n, seed)
    found = model.coefficients_
    if found.identified is not None:
        low, high = found.identified
        assert ((low <= found.value + 1e-12) & (found.value <= high + 1e-12)).all()
    low, high = found.interval(0.95)
    assert (((low > 0) | (high < 0)) == (found.p_value < 0.05)).all()
    np.testing.assert_allclose(found.z, found.value / found.standard_error)
