"""Logistic regression on a hidden component: P(y = 1 | s) = sigmoid(a + theta's), without samples of s.

Three ingredients, all pure functions of arrays.

* Ridge logistic regression on samples (:func:`ridge_logistic`), by damped Newton steps; bounded for separable classes.
* Regression calibration (:func:`correct`). R, the residual of U on the shared part of V, stands in for S1. With
  E[S1 | R] = M R and Omega = Cov(S1 | R), averaging the sigmoid over what R does not say about S1 gives

      logit P(y = 1 | R) ~ (a + theta'M R) / sqrt(1 + k theta'Omega theta),     k = 0.346 (16 sqrt(3) / (15 pi))^2,

  so logistic regression on M R gives g with theta = g / sqrt(1 - k g'Omega g).
* The expected log-likelihood as a function of a few cumulants of theta'S1: :func:`polynomial_objective` (the sigmoid
  replaced by a polynomial, as in the paper) and :func:`mixture_objective` (a law of theta'S1 with the right variance
  and fourth cumulant; for strong signal).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.polynomial import chebyshev, polynomial
from scipy.optimize import minimize
from scipy.special import expit

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.component import CumulantSource
from richcomponents.components.contrastive.coefficients import (
    Coefficients,
    guard_weights,
    stretch_matrix,
    trust_in_change,
)
from richcomponents.components.contrastive.identify import Identified

__all__ = [
    "ATTENUATION",
    "INTERVAL",
    "LogisticFit",
    "attenuation",
    "confined_minimum",
    "correct",
    "mixture_objective",
    "newton_replicates",
    "polynomial_objective",
    "refine",
    "ridge_logistic",
    "sigmoid_polynomial",
]

ATTENUATION = 0.346
"""k in E[sigmoid(m + sqrt(q) Z)] ~ sigmoid(m / sqrt(1 + k q)), Z standard normal."""

INTERVAL = 1.85
"""The Chebyshev polynomials approximate the sigmoid on [-INTERVAL, INTERVAL]."""

MAX_VARIANCE = 1.5
"""The polynomial objectives are unbounded: theta'Cov theta stays below this."""

MIN_REMAINDER = 0.1
"""1 - k g'Omega g is not believed below this, so that no coefficient grows more than 1/sqrt(0.1) = 3.2 times."""

MIN_RIDGE = 1e-8
"""Smallest ridge, relative to the mean variance of the columns: keeps alpha = 0 finite for separable classes."""

Objective = Callable[[float, Array], tuple[float, float, Array]]
"""(a, theta) -> value, derivative by a, gradient by theta (d,); to be minimised."""

_GRID = np.linspace(-8.0, 8.0, 321)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


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


def correct(identified: Identified, b: Array, noise: float) -> Coefficients:
    """How far logistic coefficients on R may be corrected for the part of S1 that residualising removes.

    b : (rank_u,), coefficients on (x - D y, x_rest) in canonical coordinates; noise : sampling variance of every
    entry of h b. In the shared coordinates h b = G (h theta) / c, with G = I - T and c the attenuation factor, so

        theta(M) = c(M) h^-1 M h b,    M ~ G^-1,    c = attenuation((M h b)' T (I - T) (M h b)),    T = I - M^-1.

    M is the matrix of least squares (least expected squared error over the posterior of T), and the change
    delta = theta(M) - b is trusted by gate * max(0, 1 - doubt / |delta|^2), doubt being its variance over left-out
    blocks and over the posterior, attenuation included. The result with trust 0 is b itself.
    """
    r, canonical = identified.rank, identified.canonical
    residualised = canonical.x_from_u.T @ b
    if identified.gate == 0 or r == 0:
        return Coefficients(residualised, residualised, 0.0, np.eye(r))
    h, identity = identified.h, np.eye(r)
    hb = h * b[:r]
    mean_g, mean_g2 = identified.mean_g, identified.mean_g2
    size = max(float(hb @ hb) - r * noise, 1e-3 * r * noise) / float(np.trace(mean_g2))
    ridge = noise / size
    guard = guard_weights(canonical, r)

    def theta(stretch: Array) -> Array:
        """Corrected coefficients (..., rank_u) for M (..., r, r)."""
        hg = stretch @ hb
        t = identity - np.linalg.inv(stretch)
        rest = np.einsum("...i,...ij,...j->...", hg, t - t @ t, hg)
        full = np.concatenate([hg / h, np.broadcast_to(b[r:], (*hg.shape[:-1], len(b) - r))], axis=-1)
        return np.asarray(full * attenuation(rest)[..., None])

    stretch = stretch_matrix(mean_g, mean_g2, ridge, guard)
    change = theta(stretch) - b
    spread = mean_g2 - mean_g @ mean_g

    def variants(g: Array) -> Array:
        return theta(stretch_matrix(g, g @ g + spread, ridge, guard))

    trust = trust_in_change(identified, change, variants)
    stretch = (1 - trust) * identity + trust * stretch
    return Coefficients(canonical.x_from_u.T @ theta(stretch), residualised, trust, stretch)


# ---- polynomials in place of the sigmoid


def sigmoid_polynomial(kind: str, degree: int) -> Array:
    """Coefficients (degree + 1,) in rising powers of z of an approximation of the sigmoid.

    kind : "chebyshev", the truncated Chebyshev series on [-1.85, 1.85], or "taylor", around 0.

    >>> [round(float(c), 3) + 0.0 for c in sigmoid_polynomial("chebyshev", 3)]
    [0.5, 0.245, 0.0, -0.014]
    """
    if kind == "chebyshev":
        series = chebyshev.chebinterpolate(lambda t: expit(INTERVAL * t), max(60, 2 * degree))[: degree + 1]
        series[2::2] = 0.0  # sigmoid - 1/2 is odd
        found = chebyshev.cheb2poly(series) / INTERVAL ** np.arange(degree + 1)
    elif kind == "taylor":
        found = np.zeros(degree + 1)
        found[0] = 0.5
        for n in range(degree):  # sigmoid' = sigmoid (1 - sigmoid)
            found[n + 1] = (found[n] - found[: n + 1] @ found[: n + 1][::-1]) / (n + 1)
    else:
        raise ValueError(f"kind must be 'chebyshev' or 'taylor', got {kind!r}")
    return np.asarray(found, dtype=np.float64)


def polynomial_objective(
    moment: Callable[[Array, int], Array], series: Array, cross: Array, mean: float, alpha: float = 0.0
) -> Objective:
    """E[P(a + w)] - a E[y] - theta'E[s y] + alpha/2 |theta|^2 with w = theta's and P' the polynomial `series`.

    moment(theta, t) : E[s w^(t-1)], (d,), of the centred component; cross : E[s y] = Cov(s, y), (d,); mean : E[y].
    The gradient is E[s P'(a + w)] - E[s y] + alpha theta: a polynomial of degree k needs moments up to order k + 1.
    """
    integral = polynomial.polyint(series)
    degree = len(series) - 1

    def objective(a: float, theta: Array) -> tuple[float, float, Array]:
        vectors = [moment(theta, t) for t in range(1, degree + 2)]  # E[s w^j], j = 0..degree
        powers = [1.0, *(float(theta @ v) for v in vectors)]  # E[w^j], j = 0..degree + 1
        value = sum(
            c * comb(k, j) * a ** (k - j) * powers[j] for k, c in enumerate(integral) for j in range(k + 1) if c
        )
        terms = [(c * comb(k, j) * a ** (k - j), j) for k, c in enumerate(series) for j in range(k + 1) if c]
        slope = np.sum([weight * vectors[j] for weight, j in terms], axis=0)
        by_a = sum(weight * powers[j] for weight, j in terms)
        penalty = alpha * float(theta @ theta) / 2
        return float(value - a * mean - theta @ cross + penalty), float(by_a - mean), slope - cross + alpha * theta

    return objective


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


def refine(
    component: Component, covariance: Array, cross: Array, mean: float, start: tuple[float, Array], alpha: float
) -> tuple[float, Array]:
    """(a, theta) for strong signal, from the regression-calibrated start (a, theta): :func:`mixture_objective`.

    k4 counts by max(0, 1 - Var(k4) / k4^2), the variance over left-out blocks; theta'Cov theta stays below
    max(4, 3 v) and |a| below 2 max(2, sqrt(v), |a|), of the start, v its theta'Cov theta. Returns the start if the
    fourth cumulant was not kept or is all noise.
    """
    source = component.source
    if source is None or source.max_order < 4:
        return start
    a, theta = start
    weights, recipes = component._weights(4), component.recipes(4)

    def fourth_cumulant(state: CumulantSource) -> float:
        parts = [w * state.projected(recipe, theta) for w, recipe in zip(weights, recipes, strict=True) if w]
        return float(theta @ np.sum(parts, axis=0))

    k4 = fourth_cumulant(source)
    replicates = np.array([fourth_cumulant(source.without_block(b)) for b in source.blocks])
    blocks = len(replicates)
    doubt = (blocks - 1) / blocks * float(np.sum((replicates - replicates.mean()) ** 2)) if blocks > 1 else np.inf
    share = max(0.0, 1 - doubt / max(k4**2, 1e-300))
    if share == 0:
        return start
    variance = float(theta @ covariance @ theta)
    objective = mixture_objective(
        covariance, lambda point: share * component.projected_cumulant(point, 4), cross, mean, alpha
    )
    edge = 2 * max(2.0, float(np.sqrt(variance)), abs(a))
    return confined_minimum(objective, covariance, max(4.0, 3 * variance), edge=edge, start=start)
