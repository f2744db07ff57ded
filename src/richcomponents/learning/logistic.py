"""Logistic regression on a hidden component: P(y = 1 | s) = sigmoid(a + theta's), without samples of s.

From samples of (U, V, y), pure functions of arrays (from moments of the component: logistic_moments.py):

* Ridge logistic regression on samples (:func:`ridge_logistic`), by damped Newton steps; bounded for separable classes.
* Regression calibration. R, the residual of U on the shared part of V, stands in for S1. With
  E[S1 | R] = M R and Omega = Cov(S1 | R), averaging the sigmoid over what R does not say about S1 gives

      logit P(y = 1 | R) ~ (a + theta'M R) / sqrt(1 + k theta'Omega theta),     k = 0.346 (16 sqrt(3) / (15 pi))^2,

  so logistic regression on M R gives g with theta = g / sqrt(1 - k g'Omega g).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from richcomponents.algebra import Array

__all__ = [
    "ATTENUATION",
    "LogisticFit",
    "attenuation",
    "newton_replicates",
    "ridge_logistic",
]

ATTENUATION = 0.346
"""k in E[sigmoid(m + sqrt(q) Z)] ~ sigmoid(m / sqrt(1 + k q)), Z standard normal."""

MIN_REMAINDER = 0.1
"""1 - k g'Omega g is not believed below this, so that no coefficient grows more than 1/sqrt(0.1) = 3.2 times."""

MIN_RIDGE = 1e-8
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
