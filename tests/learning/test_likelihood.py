"""Gradients from moments: laws, the paper's polynomial, the lemma's quantities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit

import richcomponents as rc
from richcomponents.learning.likelihood import Ridge, approximate, check_gradient, expected_gradient, fit_likelihood


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(4000, d=4, S1="logistic", S2="skewed", A="good", random_state=2)


@pytest.fixture(scope="module")
def component(data):
    return rc.ContrastiveRCA(views=4, mean={"S1": np.zeros(4)}).fit(data.X).components_["S1"]


class Gaussian:
    """Least squares with its polynomial stated: gradient E[s y] - E[s (theta's)]."""

    def __init__(self, cross):
        self.cross = cross

    def known(self, theta):
        return self.cross

    def ridges(self, theta):
        return [Ridge(theta, (0.0, -1.0), vector=np.eye(len(theta)))]

    def log_likelihood(self, theta, s):
        return -((s @ theta) ** 2) / 2


class Logistic:
    """Parameters (intercept, theta): gradient E[(1, s) y] - E[(1, s) sigmoid(intercept + theta's)]."""

    def __init__(self, cross, mean_y):
        self.both = np.r_[mean_y, cross]

    def known(self, theta):
        return self.both

    def ridges(self, theta):
        d = len(theta) - 1
        vector = np.vstack([np.zeros((1, d)), np.eye(d)])
        return [Ridge(theta[1:], lambda z: -expit(theta[0] + z), vector, np.eye(d + 1)[0])]

    def log_likelihood(self, theta, s):
        return -np.logaddexp(0, theta[0] + s @ theta[1:])


def test_the_papers_cubic():
    assert approximate(expit, 3) == pytest.approx([0.5, 0.245, 0.0, -0.014], abs=5e-4)


@pytest.mark.parametrize("method", ["chebyshev", "taylor", "quadrature"])
def test_polynomials_are_reproduced(method):
    c = np.array([1.0, -2.0, 0.5, 3.0])
    found = approximate(lambda z: np.polynomial.polynomial.polyval(z, c), 3, method, (-1.0, 2.0))
    assert found == pytest.approx(c, abs=1e-8)


def test_taylor_of_the_sigmoid():
    assert approximate(expit, 5, "taylor") == pytest.approx([0.5, 1 / 4, 0, -1 / 48, 0, 1 / 480], abs=1e-8)


def test_higher_degree_is_closer():
    z = np.linspace(-4, 4, 101)
    gaps = [
        np.abs(np.polynomial.polynomial.polyval(z, approximate(expit, k, interval=(-4, 4))) - expit(z)).max()
        for k in (1, 3, 5, 7)
    ]
    assert all(a > b for a, b in pairwise(gaps))


def test_gradient_is_the_contraction_of_moments(component):
    theta = np.array([0.5, -0.2, 0.1, 0.7])
    logistic = Logistic(np.zeros(4), 0.0)
    c = approximate(expit, 3)
    m2, m3, m4 = (component.moment(t) for t in (2, 3, 4))
    expected = -(
        c[0] * component.mean + c[1] * m2 @ theta + c[2] * m3 @ theta @ theta + c[3] * m4 @ theta @ theta @ theta
    )
    found = expected_gradient(component, logistic, np.r_[0.0, theta], interval=(-1.85, 1.85))
    assert found[1:] == pytest.approx(expected, abs=1e-10)
    level = c[0] + c[1] * component.mean @ theta + c[2] * theta @ m2 @ theta + c[3] * m3 @ theta @ theta @ theta
    assert found[0] == pytest.approx(-level, abs=1e-10)


def test_a_stated_polynomial_is_exact(component):
    cross = np.array([0.1, -0.2, 0.3, 0.0])
    fit = fit_likelihood(component, Gaussian(cross), tol=1e-10)
    values = np.linalg.eigvalsh(component.covariance)
    assert fit.converged
    assert fit.theta == pytest.approx(np.linalg.solve(component.covariance, cross), abs=1e-6)
    assert (fit.mu, fit.H) == pytest.approx((values[0], values[-1]), rel=1e-4)
    assert fit.step_size == pytest.approx(1 / (2 * fit.H), rel=1e-4)
    assert fit.epsilon == fit.error_bound == 0.0


def test_error_bound_of_the_lemma(component):
    fit = fit_likelihood(component, Logistic(np.full(4, 0.05), 0.5), start=np.zeros(5))
    assert fit.epsilon > 0
    assert fit.error_bound == pytest.approx(8 * fit.epsilon**2 / fit.mu**2)


def test_logistic_regression_from_moments(component, data):
    residual = data.U - data.V @ np.linalg.lstsq(data.V, data.U, rcond=None)[0]
    cross = residual.T @ (data.y - data.y.mean()) / len(data.y)
    start = np.zeros(5)
    fits = [
        fit_likelihood(component, Logistic(cross, data.y.mean()), start=start, approximation=how)
        for how in ("chebyshev", "quadrature")
    ]
    for fit in fits:
        assert fit.converged
        assert fit.theta[1:] == pytest.approx(data.beta, abs=0.25)
    assert fits[0].theta == pytest.approx(fits[1].theta, abs=0.05)
    step = fits[0].step_size
    assert step == pytest.approx(2.0, rel=0.1)  # 1 / (2 H), H = 1/4 for the intercept


def test_many_parameters_use_power_iterations(component):
    class Wide(Gaussian):
        """150 parameters that add up to the 4 coefficients."""

        spread = np.random.default_rng(0).normal(size=(150, 4)) / 12

        def ridges(self, theta):
            return [Ridge(self.spread.T @ theta, (0.0, -1.0), vector=self.spread)]

        def log_likelihood(self, theta, s):
            return -((s @ (self.spread.T @ theta)) ** 2) / 2

    wide = Wide(np.zeros(150))
    fit = fit_likelihood(component, wide, start=np.ones(150), ridge=0.1, max_iter=50)
    values = np.linalg.eigvalsh(wide.spread @ component.covariance @ wide.spread.T) + 0.1
    assert (values[-1], values[0]) == pytest.approx((fit.H, fit.mu), rel=0.05)


def test_a_wrong_gradient_is_refused(component):
    class Wrong(Gaussian):
        def ridges(self, theta):
            return [Ridge(theta, (0.0, -2.0), vector=np.eye(len(theta)))]

    with pytest.raises(ValueError, match="not the gradient"):
        fit_likelihood(component, Wrong(np.zeros(4)))
    check_gradient(Gaussian(np.zeros(4)), np.ones(4), np.eye(4))


def test_unknown_approximation():
    with pytest.raises(ValueError, match="chebyshev"):
        approximate(expit, 3, "pade")
