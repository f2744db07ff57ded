"""Logistic regression of an outcome on a component with a Chebyshev polynomial, of any degree, in place of the sigmoid.

So did Ge and Zou (Section 4.2), with stochastic gradients and degree three (:mod:`richcomponents.paper.gradient`). Here, beside
moments of the component, only Cov(s, y) and E[y] are needed; the log-likelihood is climbed to its end by steps of 1 / (2 H)
(Lemma 4.1), and there are an intercept, a ridge and a bound.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import expit

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.errors import SpecificationWarning, warn_user

INTERVAL = 1.85
"""Polynomials approximate the sigmoid on [-INTERVAL, INTERVAL], where degree three gives the paper's, rounded."""

MAX_VARIANCE = 1.5
"""The cubic's likelihood is unbounded: theta'Cov theta stays below this, and for higher degrees below `largest_variance`."""


@lru_cache(maxsize=8)
def sigmoid_series(degree: int) -> Polynomial:
    """The Chebyshev series of the sigmoid on [-INTERVAL, INTERVAL], up to this degree, as a polynomial.

    >>> (sigmoid_series(3).coef.round(3) + 0.0).tolist()
    [0.5, 0.245, 0.0, -0.014]
    """
    series = Chebyshev.interpolate(expit, 64, domain=[-INTERVAL, INTERVAL])
    return series.truncate(degree + 1).convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1])


@lru_cache(maxsize=8)
def largest_variance(degree: int) -> float:
    """Of theta's: MAX_VARIANCE up to the cubic; above it grows with the square of how far a polynomial is as close to the
    sigmoid as the cubic is on its interval.

    >>> [round(largest_variance(degree), 1) for degree in (1, 3, 5, 7)]
    [1.5, 1.5, 1.9, 2.3]
    """
    z = np.linspace(0.0, 10.0, 10_001)

    def gap(k: int) -> Array:
        return np.asarray(np.abs(sigmoid_series(k)(z) - expit(z)))

    level = float(gap(3)[z <= INTERVAL].max())
    reach = z[np.argmax(gap(degree) > level)] / z[np.argmax(gap(3) > level)]
    return MAX_VARIANCE * max(float(reach), 1.0) ** 2


class LogisticLikelihood:
    """The expected gradient E[(y - sigmoid(a + theta's)) (1, s)], with a polynomial of some degree for the sigmoid.

    Its parameters are (a, q), (1 + k,), with theta = root q and root = (Cov + 4 P)^(-1/2), (d, k): there the curvature at zero
    is 1/4 in all directions, and |q|^2 <= 1.5 keeps theta'Cov theta below 1.5. Without intercept a stays zero.

    cross : Cov(s, y), (d,); mean : E[y]; alpha : P in units of the variances of the columns, part of the gradient. With an
    intercept the moments are those of the centred component; without, the component's mean enters, by its stated rule.
    """

    def __init__(
        self,
        component: Component,
        cross: Array,
        mean: float,
        *,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        degree: int = 3,
    ) -> None:
        self.component = component.centred() if fit_intercept else component
        self.intercept, self.degree = fit_intercept, degree
        self.penalty = alpha * np.diag(component.covariance)
        self.root = whitening(component.covariance + 4 * np.diag(self.penalty))[0].T
        self.with_y = np.append(mean, self.root.T @ (cross + mean * self.component.mean))  # E[y (1, root's)]

    def coefficients(self, parameters: Array) -> tuple[Array, Array]:
        """Intercepts (...,) at the mean of `component` and theta (..., d)."""
        return parameters[..., 0], np.asarray(parameters[..., 1:] @ self.root.T)

    def confine(self, parameters: Array) -> Array:
        """The nearest (a, q) with |a| <= INTERVAL and |q|^2 <= largest_variance: beyond, the polynomials mean nothing."""
        a, q = parameters[0], parameters[1:]
        shrunk = min(1.0, largest_variance(self.degree) ** 0.5 / max(float(np.linalg.norm(q)), 1e-300))
        return np.append(np.clip(a, -INTERVAL, INTERVAL), q * shrunk)

    def gradient(self, parameters: Array) -> Array:
        """At (a, q), from projected moments of the component."""
        a, theta = self.coefficients(parameters)
        c = np.asarray(sigmoid_series(self.degree)(Polynomial([a, 1.0])).coef, dtype=np.float64)  # of powers of theta's
        moments = self.component.projected_moments(theta, len(c))  # E[s (theta's)^k]
        mean = c[0] + c[1:] @ (moments[:-1] @ theta)
        slope = self.with_y - np.append(mean, self.root.T @ (c @ moments + self.penalty * theta))
        slope[0] *= self.intercept
        return np.asarray(slope)

    def fit(self) -> tuple[Array, bool]:
        """The parameters (a, q) of largest likelihood, by deterministic steps, and whether they are those of the bound: the
        likelihood of the paper's polynomial has no maximum, so they are confined, which is warned of where it binds."""
        at, step = np.zeros(len(self.with_y)), 2.0  # the lemma's 1 / (2 H), H = 1/4
        slope = self.gradient(at)
        least = 1e-6 * np.linalg.norm(slope)
        for _ in range(2000):
            nearer = self.confine(at + step * slope)
            steeper = self.gradient(nearer)
            if not np.linalg.norm(steeper) <= 1.5 * np.linalg.norm(slope):  # or no number: too long a step
                step /= 2
                continue
            moved, at, slope = float(np.linalg.norm(nearer - at)), nearer, steeper
            if moved <= step * least:
                break
        larger = at * (1 + 1e-6)
        bound = not np.array_equal(self.confine(larger), larger)
        if bound:
            warn_user(
                "the likelihood of the polynomial in place of the sigmoid has no maximum within its range: the coefficients "
                "are those of the bound on the variance of coef'S, and too small. Use a higher degree, a larger alpha, or "
                "approximation='auto'",
                SpecificationWarning,
            )
        return at, bound
