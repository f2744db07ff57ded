"""Logistic regression on a hidden component from its moments: P(y = 1 | s) = sigmoid(a + theta's).

Beside the component only Cov(s, y) and E[y] are needed. Two approximations of the expected log-likelihood:

* the sigmoid replaced by a polynomial (paper, Section 4): :class:`LogisticLikelihood`, maximised by :func:`fit_likelihood`
  or by stochastic gradients over mini-batches of rows (logistic_sgd.py);
* a law of theta's with the right variance and fourth cumulant (:func:`mixture_objective`), for strong signal too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from richcomponents.algebra import Array
from richcomponents.components import Component, CumulantSource
from richcomponents.learning.likelihood import LikelihoodFit, Ridge, fit_likelihood
from richcomponents.learning.logistic import attenuation
from richcomponents.learning.sgd import ball

__all__ = [
    "INTERVAL",
    "MAX_VARIANCE",
    "LogisticLikelihood",
    "confined_minimum",
    "fit_polynomial",
    "from_cumulants",
    "mixture_objective",
    "refine",
]

INTERVAL = 1.85
"""The polynomials approximate the sigmoid on [-INTERVAL, INTERVAL]: degree 3 is the paper's 0.5 + 0.245 z - 0.014 z^3."""

MAX_VARIANCE = 1.5
"""The polynomial likelihoods are unbounded: theta'Cov theta stays below this."""

Objective = Callable[[float, Array], tuple[float, float, Array]]
"""(a, theta) -> value, derivative by a, gradient by theta (d,); to be minimised."""

_GRID = np.linspace(-8.0, 8.0, 321)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


# ---- polynomials in place of the sigmoid


@dataclass(frozen=True)
class LogisticLikelihood:
    """The expected gradient E[(y - sigmoid(a + theta's)) (1, s)] as a :class:`Likelihood`, for :func:`fit_likelihood`.

    Its parameters are (a, q), or q alone without intercept, with theta = root q and root = (Cov + 4 alpha I)^(-1/2), (d, k):
    there the curvature at zero is 1/4 in all directions, and |q|^2 <= 1.5 keeps theta'Cov theta below 1.5.

    component : the moments that are used; with an intercept, those of the centred component.
    both : (1 + k,) or (k,), E[y (1, root's)]. alpha : l2 penalty on theta, part of the gradient.
    """

    component: Component
    root: Array
    both: Array
    alpha: float
    intercept: bool

    @classmethod
    def of(
        cls, component: Component, cross: Array, mean: float, *, alpha: float = 0.0, fit_intercept: bool = True
    ) -> LogisticLikelihood:
        """cross : Cov(s, y), (d,); mean : E[y]. Without intercept the component's mean enters, by its stated rule."""
        used = component
        if fit_intercept:
            used = replace(component, mean=np.zeros_like(component.mean), _known=dict(component._known))
            used._known.pop(("cumulant", 1), None)
        root = whitener(component.covariance, 4 * alpha)
        empty = cls(used, root, np.zeros(0), alpha, fit_intercept)
        return empty.observed(cross, mean)

    def observed(self, cross: Array, mean: float) -> LogisticLikelihood:
        """The same model with other Cov(s, y) and E[y], such as those of a mini-batch."""
        along = self.root.T @ (cross + mean * self.component.mean)
        return replace(self, both=np.concatenate([[mean], along]) if self.intercept else along)

    def split(self, parameters: Array) -> tuple[float, Array]:
        """(a, q)."""
        return (float(parameters[0]), parameters[1:]) if self.intercept else (0.0, parameters)

    def coefficients(self, parameters: Array) -> tuple[Array, Array]:
        """Intercepts (...,) at the mean of `component` and theta (..., d)."""
        a = parameters[..., 0] if self.intercept else np.zeros(parameters.shape[:-1])
        return np.asarray(a), np.asarray(parameters[..., int(self.intercept) :] @ self.root.T)

    def confine(self, parameters: Array) -> Array:
        """The nearest (a, q) with |a| <= INTERVAL and |q|^2 <= MAX_VARIANCE: beyond, the polynomials mean nothing."""
        a, q = self.split(parameters)
        q = ball(float(np.sqrt(MAX_VARIANCE)))(q)
        return np.concatenate([[min(max(a, -INTERVAL), INTERVAL)], q]) if self.intercept else q

    @cached_property
    def _vector(self) -> Array:
        return np.vstack([np.zeros((1, len(self.root))), self.root.T]) if self.intercept else self.root.T

    # ---- what fit_likelihood asks for

    def known(self, theta: Array) -> Array:
        _, q = self.split(theta)
        penalty = self.alpha * (self.root.T @ (self.root @ q))
        return self.both - (np.concatenate([[0.0], penalty]) if self.intercept else penalty)

    def ridges(self, theta: Array) -> list[Ridge]:
        """One: -sigmoid(a + w's) on the interval of w's where a + w's lies in [-INTERVAL, INTERVAL]."""
        a, q = self.split(theta)
        scalar = np.eye(len(theta))[0] if self.intercept else None
        around = (-INTERVAL - a, INTERVAL - a)
        return [Ridge(self.root @ q, lambda z: -expit(a + z), self._vector, scalar, around)]

    def log_likelihood(self, theta: Array, s: Array) -> Array:
        a, q = self.split(theta)
        return np.asarray(-np.logaddexp(0.0, a + s @ (self.root @ q)))


def whitener(covariance: Array, ridge: float = 0.0) -> Array:
    """(covariance + ridge I)^(-1/2), (d, k), without the directions that hardly vary."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = values + ridge
    top = max(float(values[-1]), 1e-300)
    keep = values > 1e-8 * top
    return np.asarray(vectors[:, keep] / np.sqrt(np.maximum(values[keep], 1e-6 * top)))


def fit_polynomial(likelihood: LogisticLikelihood, *, approximation: str, degree: int) -> LikelihoodFit:
    """Maximise the likelihood with a polynomial for the sigmoid ("chebyshev" or "taylor"), by deterministic steps.

    With "chebyshev" and degree 3 the polynomial is the paper's 0.5 + 0.245 z - 0.014 z^3. Its likelihood has no maximum, so
    the parameters are confined.
    """
    start = np.zeros(len(likelihood.both))
    return fit_likelihood(
        likelihood.component,
        likelihood,
        start=start,
        degree=degree,
        approximation=approximation,
        step_size=2.0,  # the lemma's 1 / (2 H), H = 1/4
        confine=likelihood.confine,
        check=False,  # tested once and for all
    )


# ---- strong signal: the law of theta'S1 from its variance and fourth cumulant


def _mean_softplus(a: float, variance: float, excess: float) -> float:
    """E[log(1 + exp(a + z))] for a symmetric law with this variance and excess kurtosis (clipped to [-1.8, 2.5]).

    excess < 0: z = +-sqrt(tau v) + N(0, (1 - tau) v), tau = sqrt(-excess / 2);
    excess > 0: half N(0, v (1 + rho)), half N(0, v (1 - rho)), rho = sqrt(excess / 3).
    """
    excess = min(max(excess, -1.8), 2.5)
    if excess <= 0:
        tau = np.sqrt(-excess / 2)
        shift, scale = np.sqrt(tau * variance), np.sqrt((1 - tau) * variance)
        z = np.concatenate([shift + scale * _GRID, -shift + scale * _GRID])
    else:
        rho = np.sqrt(excess / 3)
        z = np.concatenate([np.sqrt(variance * (1 + rho)) * _GRID, np.sqrt(variance * (1 - rho)) * _GRID])
    values = np.logaddexp(0.0, a + z).reshape(2, -1)
    return float(values.mean(axis=0) @ _WEIGHTS)


def mixture_objective(
    covariance: Array, fourth: Callable[[Array], Array], cross: Array, mean: float, alpha: float = 0.0
) -> Objective:
    """E[log(1 + exp(a + z))] - a E[y] - theta'E[s y] + alpha/2 |theta|^2; z has the variance and k4 of theta's.

    covariance : (d, d) of s; fourth(theta) : k4(s, w, w, w), (d,); cross : Cov(s, y), (d,); mean : E[y].
    Chain rule with dv = 2 Cov theta and dk4 = 4 k4(s, w, w, w).
    """

    def objective(a: float, theta: Array) -> tuple[float, float, Array]:
        forward = covariance @ theta
        variance = max(float(theta @ forward), 1e-10)
        vector = fourth(theta)
        k4 = float(theta @ vector)

        def f(a: float, v: float, k: float) -> float:
            return _mean_softplus(a, v, k / v**2)

        da, dv, dk = 1e-4, 1e-4 * variance, 1e-3 * variance**2
        by_a = (f(a + da, variance, k4) - f(a - da, variance, k4)) / (2 * da)
        by_v = (f(a, variance + dv, k4) - f(a, variance - dv, k4)) / (2 * dv)
        by_k = (f(a, variance, k4 + dk) - f(a, variance, k4 - dk)) / (2 * dk)
        value = f(a, variance, k4) - a * mean - float(theta @ cross) + alpha * float(theta @ theta) / 2
        slope = 2 * by_v * forward + 4 * by_k * vector - cross + alpha * theta
        return value, by_a - mean, slope

    return objective


def from_cumulants(
    component: Component, cross: Array, mean: float, *, alpha: float = 0.0, fit_intercept: bool = True
) -> tuple[float, Array]:
    """(a, theta) from an extracted component, cross = Cov(s, y) (d,) and mean = E[y] alone; a at the component's mean.

    The start is regression calibration with nothing known of s but its covariance: with w = E[y] (1 - E[y]) the linear
    coefficients g = (w Cov + alpha I)^-1 cross are attenuated by the whole spread of g's, theta = g / sqrt(1 - k g'Cov g).
    It is then refined to the law of theta's with the fourth cumulant as far as the blocks trust it (without: Gaussian).
    """
    weight = mean * (1 - mean)
    root = whitener(component.covariance, alpha / weight)
    linear = root @ (root.T @ cross) / weight
    factor = float(attenuation(linear @ component.covariance @ linear))
    start = (factor * float(logit(mean)) if fit_intercept else 0.0, factor * linear)
    share = fourth_share(component, start[1])
    return _matched(component, component.covariance, cross, mean, start, alpha, share, fit_intercept)


def refine(
    component: Component, covariance: Array, cross: Array, mean: float, start: tuple[float, Array], alpha: float
) -> tuple[float, Array]:
    """(a, theta) for strong signal, from the regression-calibrated start (a, theta): :func:`mixture_objective`.

    Returns the start if the fourth cumulant was not kept or is all noise.
    """
    share = fourth_share(component, start[1])
    return _matched(component, covariance, cross, mean, start, alpha, share) if share else start


def fourth_share(component: Component, theta: Array) -> float:
    """How much of k4(theta's) is believed: max(0, 1 - Var(k4) / k4^2), the variance over left-out blocks."""
    source = component.source
    if source is None or source.max_order < 4:
        return 0.0

    def fourth_cumulant(state: CumulantSource) -> float:
        return float(theta @ component.projected_on(state, theta, 4))

    k4 = fourth_cumulant(source)
    replicates = np.array([fourth_cumulant(source.without_block(b)) for b in source.blocks])
    blocks = len(replicates)
    doubt = (blocks - 1) / blocks * float(np.sum((replicates - replicates.mean()) ** 2)) if blocks > 1 else np.inf
    return max(0.0, 1 - doubt / max(k4**2, 1e-300))


def _matched(
    component: Component,
    covariance: Array,
    cross: Array,
    mean: float,
    start: tuple[float, Array],
    alpha: float,
    share: float,
    fit_intercept: bool = True,
) -> tuple[float, Array]:
    """theta'Cov theta stays below max(4, 3 v) and |a| below 2 max(2, sqrt(v), |a|), of the start, v its theta'Cov theta."""
    a, theta = start
    variance = float(theta @ covariance @ theta)

    def fourth(point: Array) -> Array:
        return share * component.projected_cumulant(point, 4) if share else np.zeros_like(point)

    centred = mixture_objective(covariance, fourth, cross, mean, alpha)

    def through_mean(_: float, theta: Array) -> tuple[float, float, Array]:
        """No intercept: a = theta'E[s]."""
        value, by_a, by_theta = centred(float(theta @ component.mean), theta)
        return value, 0.0, by_theta + by_a * component.mean

    limit = max(4.0, 3 * variance)
    if not fit_intercept:
        return confined_minimum(through_mean, covariance, limit, edge=0.0, start=start)
    edge = 2 * max(2.0, float(np.sqrt(variance)), abs(a))
    return confined_minimum(centred, covariance, limit, edge=edge, start=start)


def confined_minimum(
    objective: Objective,
    covariance: Array,
    limit: float,
    *,
    edge: float = INTERVAL,
    start: tuple[float, Array] | None = None,
) -> tuple[float, Array]:
    """(a, theta) minimising the objective subject to theta'Cov theta <= limit and |a| <= edge (0: no intercept).

    theta = Cov^(-1/2) rho tanh(|q| / rho) q / |q| with rho^2 = limit: smooth in q (d,), which is free.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    top = max(float(values[-1]), 1e-300)
    keep = values > 1e-8 * top
    root = vectors[:, keep] / np.sqrt(np.maximum(values[keep], 1e-6 * top))  # (d, k)
    rho = float(np.sqrt(limit))

    def mapped(q: Array) -> tuple[Array, float, float]:
        length = float(np.linalg.norm(q)) + 1e-12
        squeezed = rho * np.tanh(length / rho) / length
        return root @ (squeezed * q), length, float(squeezed)

    def wrapped(z: Array) -> tuple[float, Array]:
        theta, length, squeezed = mapped(z[1:])
        value, by_a, by_theta = objective(float(z[0]), theta)
        inner, unit = root.T @ by_theta, z[1:] / length
        along = float(unit @ inner)
        slope = squeezed * (inner - unit * along) + unit * along * (1 - np.tanh(length / rho) ** 2)
        return value, np.concatenate([[by_a if edge else 0.0], slope])

    z0 = np.zeros(1 + int(keep.sum()))
    if start is None:
        z0[1:] = -1e-2 * root.T @ objective(0.0, np.zeros(len(covariance)))[2]
    else:
        z0[0] = min(max(start[0], -edge), edge)
        inside = (vectors[:, keep] * np.sqrt(values[keep])).T @ start[1]
        length = float(np.linalg.norm(inside)) + 1e-12
        z0[1:] = inside / length * rho * np.arctanh(min(length / rho, 0.99))
    found = minimize(
        wrapped, z0, jac=True, method="L-BFGS-B", bounds=[(-edge, edge)] + [(None, None)] * (len(z0) - 1)
    ).x
    return float(found[0]), mapped(found[1:])[0]
