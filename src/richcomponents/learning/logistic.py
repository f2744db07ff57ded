"""Logistic regression on a hidden component: P(y = 1 | s) = sigmoid(a + theta's), without samples of s.

* Ridge logistic regression on samples (:func:`ridge_logistic`), by damped Newton steps; bounded for separable classes.
* Regression calibration. R, the residual of U on the shared part of V, stands in for S1. With
  E[S1 | R] = M R and Omega = Cov(S1 | R), averaging the sigmoid over what R does not say about S1 gives

      logit P(y = 1 | R) ~ (a + theta'M R) / sqrt(1 + k theta'Omega theta),     k = 0.346 (16 sqrt(3) / (15 pi))^2,

  so logistic regression on M R gives g with theta = g / sqrt(1 - k g'Omega g): :func:`attenuation`.
* From moments of the component, Cov(s, y) and E[y] alone: a law of theta's with the right variance and fourth cumulant
  (:func:`mixture_objective`), for strong signal too. (The sigmoid replaced by a polynomial: `richcomponents.paper.gradient`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from richcomponents.algebra import Array
from richcomponents.components import Component, CumulantSource
from richcomponents.learning.solvers import minimise

ATTENUATION = 0.346
"""k in E[sigmoid(m + sqrt(q) Z)] ~ sigmoid(m / sqrt(1 + k q)), Z standard normal."""

MIN_REMAINDER = 0.1
"""1 - k g'Omega g is not believed below this, so that no coefficient grows more than 1/sqrt(0.1) = 3.2 times."""

MIN_RIDGE = 1e-6
"""Smallest ridge, relative to the mean variance of the columns: keeps alpha = 0 finite for separable classes."""


# ---- ridge logistic regression on samples


@dataclass(frozen=True)
class LogisticFit:
    """coef (d,), intercept, and the fitted probabilities (n,) of the second class."""

    coef: Array
    intercept: float
    probability: Array

    @property
    def information(self) -> float:
        """Mean of p (1 - p)."""
        return float(np.mean(self.probability * (1 - self.probability)))


def ridge_logistic(
    features: Array,
    y: Array,
    alpha: float,
    *,
    fit_intercept: bool = True,
    nuisance: Array | None = None,
    max_iter: int = 100,
) -> LogisticFit:
    """Minimise mean log-loss + alpha/2 |coef|^2 (scikit-learn's C = 1 / (n alpha)).

    features : (n, d), centred or not; y : (n,) of 0 and 1; nuisance : (n, k) further columns, whose coefficients are
    fitted with the same penalty and not returned. The intercept is not penalised.
    """
    design, penalty, d = _design(features, alpha, fit_intercept, nuisance)
    n = len(y)
    w = np.zeros(design.shape[1])
    eta = np.zeros(n)

    def loss(eta: Array, w: Array) -> float:
        return float(np.mean(np.logaddexp(0.0, eta) - y * eta) + penalty @ w**2 / 2)

    value = loss(eta, w)
    for _ in range(max_iter):
        p = expit(eta)
        slope = design.T @ (p - y) / n + penalty * w
        weight = np.maximum(p * (1 - p), 1e-10)
        step = _solve(design.T @ (design * weight[:, None]) / n + np.diag(penalty), slope)
        size, along = 1.0, design @ step
        decrease = float(slope @ step)
        if decrease < 1e-14 * max(1.0, value):
            break
        while True:
            new_w, new_eta = w - size * step, eta - size * along
            new_value = loss(new_eta, new_w)
            if new_value <= value - 1e-4 * size * decrease or size < 1e-6:
                break
            size /= 2
        if new_value >= value:
            break
        w, eta, value = new_w, new_eta, new_value
    return LogisticFit(w[:d], float(w[-1]) if fit_intercept else 0.0, np.asarray(expit(eta)))


def newton_replicates(
    features: Array,
    y: Array,
    fit: LogisticFit,
    alpha: float,
    keep: Array,
    *,
    fit_intercept: bool = True,
    nuisance: Array | None = None,
) -> Array:
    """Coefficients (B, d) without each block: one Newton step from the full fit. keep : (B, n), rows that remain."""
    design, penalty, d = _design(features, alpha, fit_intercept, nuisance)
    p = fit.probability
    scores = design * (p - y)[:, None]
    weighted = design * np.maximum(p * (1 - p), 1e-10)[:, None]
    total, curvature = scores.sum(axis=0), weighted.T @ design
    out = np.empty((len(keep), d))
    for k, rows in enumerate(keep):
        gone, left = ~rows, max(int(rows.sum()), 1)
        slope = (total - scores[gone].sum(axis=0)) / left - total / len(y)  # the full fit's own slope is zero
        inner = (curvature - weighted[gone].T @ design[gone]) / left + np.diag(penalty)
        out[k] = fit.coef - _solve(inner, slope)[:d]
    return out


def _design(features: Array, alpha: float, fit_intercept: bool, nuisance: Array | None) -> tuple[Array, Array, int]:
    n, d = features.shape
    columns = [features] + ([] if nuisance is None else [nuisance]) + ([np.ones((n, 1))] if fit_intercept else [])
    design = np.hstack(columns)
    ridge = max(alpha, MIN_RIDGE * float(np.mean(features**2)), 1e-300)
    penalty = np.full(design.shape[1], ridge)
    if fit_intercept:
        penalty[-1] = 0.0
    return design, penalty, d


def _solve(matrix: Array, vector: Array) -> Array:
    """matrix^-1 vector for a positive semi-definite matrix whose scales may differ wildly."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    inner = scale[:, None] * matrix * scale + 1e-13 * np.eye(len(matrix))
    return np.asarray(scale * np.linalg.solve(inner, scale * vector))


# ---- regression calibration


def attenuation(remainder: float | Array) -> Array:
    """1 / sqrt(1 - k q) for q = g'Omega g, with 1 - k q kept above MIN_REMAINDER."""
    return np.asarray(1 / np.sqrt(np.maximum(1 - ATTENUATION * np.maximum(remainder, 0.0), MIN_REMAINDER)))


def whitener(covariance: Array, ridge: float = 0.0) -> Array:
    """(covariance + ridge I)^(-1/2), (d, k), without the directions that hardly vary."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = values + ridge
    top = max(float(values[-1]), 1e-300)
    keep = values > 1e-8 * top
    return np.asarray(vectors[:, keep] / np.sqrt(np.maximum(values[keep], 1e-6 * top)))


# ---- strong signal: the law of theta'S1 from its variance and fourth cumulant

Objective = Callable[[float, Array], tuple[float, float, Array]]
"""(a, theta) -> value, derivative by a, gradient by theta (d,); to be minimised."""

_GRID = np.linspace(-8.0, 8.0, 321)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


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


def match_fourth(
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
    edge: float,
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
    found = minimise(wrapped, z0, bounds=[(-edge, edge)] + [(None, None)] * (len(z0) - 1))
    return float(found[0]), mapped(found[1:])[0]
