"""Section 4.2: the gradient of a log-likelihood, approximated by polynomials in S1; logistic regression as the example.

The meta-algorithm itself, for any likelihood, is :mod:`richcomponents.learning.likelihood`. Here the sigmoid is replaced by a
polynomial, so that beside moments of the component only Cov(s, y) and E[y] are needed; the log-likelihood is climbed by
deterministic steps of 1 / (2 H) (Lemma 4.1). The stochastic gradients of Section 5 are in :mod:`.experiments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import expit

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.paper.steps import ball

CHEBYSHEV = (0.5, 0.245, 0.0, -0.014)
"""The paper's approximation of the sigmoid by Chebyshev polynomials of degree three: 0.5 + 0.245 z - 0.014 z^3."""

INTERVAL = 1.85
"""Polynomials approximate the sigmoid on [-INTERVAL, INTERVAL], where degree three gives CHEBYSHEV, rounded."""

MAX_VARIANCE = 1.5
"""The cubic's likelihood is unbounded: theta'Cov theta stays below this, and for higher degrees below `largest_variance`."""

BOUND = (
    "the likelihood of the polynomial in place of the sigmoid has no maximum within its range: the coefficients are those of "
    "the bound on the variance of coef'S, and too small. Use a higher degree, a larger alpha, or approximation='auto'"
)
"""What is warned of where steps end at the bound."""


def gradient_error_bound(epsilon: float, mu: float) -> float:
    """Lemma 4.1: |theta - theta*|^2 <= 8 epsilon^2 / mu^2, where steps of 1 / (2 H) along a gradient that is wrong by at most
    epsilon end, of a mu-strongly convex and H-smooth function. `fit_likelihood` measures epsilon, mu and H, and reports it.

    >>> round(gradient_error_bound(0.1, 0.5), 6)
    0.32
    """
    return 8 * epsilon**2 / mu**2 if mu > 0 else np.inf


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


@dataclass(frozen=True)
class LogisticLikelihood:
    """The expected gradient E[(y - sigmoid(a + theta's)) (1, s)], with a polynomial for the sigmoid.

    Its parameters are (a, q), (1 + k,), with theta = root q and root = (Cov + 4 P)^(-1/2), (d, k): there the curvature at zero
    is 1/4 in all directions, and |q|^2 <= 1.5 keeps theta'Cov theta below 1.5. Without intercept a stays zero.

    component : the moments that are used; with an intercept, those of the centred component.
    with_y : (1 + k,), E[y (1, root's)]. penalty (d,) : P, alpha times the variances of the columns, part of the gradient.
    """

    component: Component
    root: Array
    with_y: Array
    penalty: Array
    intercept: bool

    @classmethod
    def of(
        cls, component: Component, cross: Array, mean: float, *, alpha: float = 0.0, fit_intercept: bool = True
    ) -> LogisticLikelihood:
        """cross : Cov(s, y), (d,); mean : E[y]. Without intercept the component's mean enters, by its stated rule."""
        used = component.centred() if fit_intercept else component
        penalty = alpha * np.diag(component.covariance)
        root = whitening(component.covariance + 4 * np.diag(penalty))[0].T
        return cls(used, root, np.append(mean, root.T @ (cross + mean * used.mean)), penalty, fit_intercept)

    def coefficients(self, parameters: Array) -> tuple[Array, Array]:
        """Intercepts (...,) at the mean of `component` and theta (..., d)."""
        return parameters[..., 0], np.asarray(parameters[..., 1:] @ self.root.T)

    def confine(self, parameters: Array, degree: int = 3) -> Array:
        """The nearest (a, q) with |a| <= INTERVAL and |q|^2 <= largest_variance: beyond, the polynomials mean nothing."""
        inside = ball(float(np.sqrt(largest_variance(degree))))
        return np.append(np.clip(parameters[0], -INTERVAL, INTERVAL), inside(parameters[1:]))

    def is_bound(self, parameters: Array, degree: int = 3) -> bool:
        """Whether they are what `confine` left of larger ones."""
        larger = parameters * (1 + 1e-6)
        return not np.array_equal(self.confine(larger, degree), larger)

    def gradient(self, parameters: Array, *, degree: int = 3) -> Array:
        """At (a, q), with a polynomial of this degree, from projected moments of the component."""
        a, theta = self.coefficients(parameters)
        c = np.asarray(sigmoid_series(degree)(Polynomial([a, 1.0])).coef, dtype=np.float64)  # of powers of theta's
        moments = self.component.projected_moments(theta, len(c))  # E[s (theta's)^k]
        mean = c[0] + c[1:] @ (moments[:-1] @ theta)
        slope = self.with_y - np.append(mean, self.root.T @ (c @ moments + self.penalty * theta))
        slope[0] *= self.intercept
        return np.asarray(slope)


def fit_polynomial(likelihood: LogisticLikelihood, *, degree: int = 3) -> Array:
    """The parameters (a, q) of largest likelihood with a Chebyshev series for the sigmoid, by deterministic steps.

    With degree 3 the polynomial is the paper's 0.5 + 0.245 z - 0.014 z^3. Its likelihood has no maximum, so the parameters are
    confined, which is warned of where it binds.
    """
    found, step = np.zeros(len(likelihood.with_y)), 2.0  # the lemma's 1 / (2 H), H = 1/4
    slope = first = likelihood.gradient(found, degree=degree)
    for _ in range(2000):
        nearer = likelihood.confine(found + step * slope, degree)
        steeper = likelihood.gradient(nearer, degree=degree)
        if not np.linalg.norm(steeper) <= 1.5 * np.linalg.norm(slope):  # or no number: too long a step
            step /= 2
            continue
        moved, found, slope = float(np.linalg.norm(nearer - found)), nearer, steeper
        if moved <= 1e-6 * step * np.linalg.norm(first):
            break
    if likelihood.is_bound(found, degree):
        warn_user(BOUND, SpecificationWarning)
    return found
