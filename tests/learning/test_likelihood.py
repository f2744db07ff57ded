"""Maximum likelihood from moments: laws, the lemma's quantities."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.learning.likelihood import fit_likelihood


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(4000, d=4, S1="logistic", S2="skewed", A="good", random_state=2)


@pytest.fixture(scope="module")
def component(data):
    return rc.ContrastiveRCA(views=4, mean={"S1": np.zeros(4)}).fit(data.X).components_["S1"]


def gaussian(cross):
    """Least squares: gradient E[s y] - E[s (theta's)], cross = E[s y] measured elsewhere."""
    return lambda theta, s: theta @ cross - (s @ theta) ** 2 / 2


def logistic(cross, mean_y):
    """Parameters (intercept, theta): gradient E[(1, s) y] - E[(1, s) sigmoid(intercept + theta's)]."""
    both = np.r_[mean_y, cross]
    return lambda theta, s: theta @ both - np.logaddexp(0, theta[0] + s @ theta[1:])


def test_a_polynomial_is_exact(component):
    cross = np.array([0.1, -0.2, 0.3, 0.0])
    fit = fit_likelihood(component, gaussian(cross), tol=1e-10)
    values = np.linalg.eigvalsh(component.covariance)
    assert fit.converged
    assert fit.theta == pytest.approx(np.linalg.solve(component.covariance, cross), abs=1e-6)
    assert (fit.mu, fit.H) == pytest.approx((values[0], values[-1]), rel=1e-4)
    assert fit.epsilon == pytest.approx(0.0, abs=1e-8)


def test_error_bound_of_the_lemma(component):
    fit = fit_likelihood(component, logistic(np.full(4, 0.05), 0.5), start=np.zeros(5))
    assert fit.epsilon > 0
    assert fit.error_bound == pytest.approx(8 * fit.epsilon**2 / fit.mu**2)


def test_logistic_regression_from_moments(component, data):
    residual = data.U - data.V @ np.linalg.lstsq(data.V, data.U, rcond=None)[0]
    cross = residual.T @ (data.y - data.y.mean()) / len(data.y)
    fit = fit_likelihood(component, logistic(cross, data.y.mean()), start=np.zeros(5))
    assert fit.converged
    assert fit.theta[1:] == pytest.approx(data.beta, abs=0.25)


def test_curvatures_of_many_parameters(component):
    """150 parameters that add up to the 4 coefficients."""
    spread = np.random.default_rng(0).normal(size=(150, 4)) / 12

    def wide(theta, s):
        return -((s @ (spread.T @ theta)) ** 2) / 2

    fit = fit_likelihood(component, wide, start=np.ones(150), ridge=0.1, max_iter=50)
    values = np.linalg.eigvalsh(spread @ component.covariance @ spread.T) + 0.1
    assert (values[-1], values[0]) == pytest.approx((fit.H, fit.mu), rel=0.05)
