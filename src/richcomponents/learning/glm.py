"""Generalised linear models on samples, with a ridge: what stands behind coefficients of any outcome on a component.

Regression calibration. R, the residual of U on the shared part of V, stands in for S1. With E[S1 | R] = M R and
Omega = Cov(S1 | R), averaging the mean of y over what R does not say about S1 leaves the family as it is, with coefficients
g = theta'M / c(theta'Omega theta) (`families`): the fit on M R gives g, and theta = c g. For the sigmoid c = 1 / sqrt(1 - k q)
with q = g'Omega g; for log links c = 1.

Columns are divided by their root mean squares before anything else: penalties and steps know no units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from scipy.optimize import minimize

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.learning.families import Family
from richcomponents.learning.solvers import slopes

MIN_RIDGE = 3e-6
"""Smallest penalty: keeps alpha = 0 finite for separable classes."""


@dataclass(frozen=True)
class LinearPredictor:
    """One linear predictor of a generalised linear model of a family: coef (d,), without each block (B, d), intercept;
    information : of one row about it."""

    coef: Array
    blocks: Array
    intercept: float
    information: float
    family: Family


@dataclass(frozen=True)
class GLMFit:
    """Of m predictors: rows (m, n, p) in units of `scale` (m, p), d features first, nuisance, intercept last; penalty (p,) on
    all coefficients w (m, p); eta (n, m); family : as fitted."""

    rows: Array
    scale: Array
    penalty: Array
    d: int
    y: Array
    family: Family
    w: Array
    eta: Array

    @property
    def coefs(self) -> Array:
        """(m, d)."""
        return np.asarray((self.w / self.scale)[:, : self.d])

    @property
    def intercepts(self) -> Array:
        """(m,)."""
        return np.where(self.penalty[-1] == 0, (self.w / self.scale)[:, -1], 0.0)

    @property
    def information(self) -> Array:
        """(m,) : mean curvature of one row, the others unknown, less where y varies more than its family says."""
        inner = np.linalg.pinv(self.family.weight(self.eta, self.y).mean(axis=0), hermitian=True)
        return np.asarray(1 / (np.maximum(np.diag(inner), 1e-300) * self.family.scale(self.eta, self.y)))

    def predictors(self, keep: Array) -> list[LinearPredictor]:
        """keep : (B, n), the rows that remain without each block; coefficients without one follow by one Newton step."""
        n, shape, left_out = len(self.y), self.w.shape, []
        slope, weight = self.family.slope(self.eta, self.y), self.family.weight(self.eta, self.y)
        total, curvature = _gradient(self.rows, slope), _curvature(self.rows, weight)
        for rows in keep:
            left, gone = max(int(rows.sum()), 1), self.rows[:, ~rows]
            inner = (curvature - _curvature(gone, weight[~rows])) / left + np.diag(np.tile(self.penalty, shape[0]))
            change = (total - _gradient(gone, slope[~rows])) / left - total / n  # the full fit's own slope is zero
            left_out.append(self.w - np.linalg.lstsq(inner, change)[0].reshape(shape))
        blocks = np.moveaxis((np.stack(left_out) / self.scale)[..., : self.d], 1, 0)
        every = zip(self.coefs, blocks, self.intercepts.tolist(), self.information.tolist(), strict=True)
        return [LinearPredictor(*one, self.family) for one in every]


def _gradient(rows: Array, slope: Array) -> Array:
    """Sums (m p,) of slopes (n, m) times the columns."""
    return np.asarray((rows.mT @ slope.T[..., None]).ravel())


def _curvature(rows: Array, weight: Array) -> Array:
    """Sums (m p, m p) of weight (n, m, m) times products of the columns."""
    m = range(len(rows))
    return np.block([[(rows[j].T * weight[:, j, k]) @ rows[k] for k in m] for j in m])


def ridge_glm(
    features: Sequence[Array],
    y: Array,
    family: Family,
    alpha: float,
    *,
    fit_intercept: bool = True,
    nuisance: Array | None = None,
) -> GLMFit:
    """Minimise mean loss + alpha/2 |coef|^2, columns in units of their root mean squares; bounded for separable classes.

    features : of each of the family's m predictors its own columns (n, d), centred or not; nuisance : (n, k) further columns
    of all, whose coefficients are fitted with the same penalty and not returned. Intercepts are not penalised. A family that
    is adapted to its own fit and the fit alternate.
    """
    n, d = features[0].shape
    more = np.hstack([np.zeros((n, 0)) if nuisance is None else nuisance, np.ones((n, int(fit_intercept)))])
    rows = np.stack([np.hstack([one, more]) for one in features])
    scale = np.sqrt(np.mean(rows**2, axis=1))
    scale = np.where(scale > 0, scale, 1.0)
    rows, w = rows / scale[:, None], np.zeros(scale.shape)
    penalty = np.full(scale.shape[1], max(alpha, MIN_RIDGE))
    if fit_intercept:
        penalty[-1], w[:, -1] = 0.0, family.start(y)
    ridge = np.tile(penalty, len(w))

    def eta(at: Array) -> Array:
        return np.asarray((rows @ at.reshape(*scale.shape, 1))[..., 0].T)

    while True:

        def loss(at: Array, family: Family = family) -> tuple[float, Array]:
            value = float(np.mean(family.losses(eta(at), y)) + ridge @ at**2 / 2)
            return value, _gradient(rows, family.slope(eta(at), y)) / n + ridge * at

        def curvature(at: Array, family: Family = family) -> Array:
            return np.asarray(_curvature(rows, family.weight(eta(at), y)) / n + np.diag(ridge))

        options = {"xtol": 1e-10}
        w = minimize(loss, w.ravel(), jac=True, hess=curvature, method="Newton-CG", options=options).x
        adapted = family.adapted(eta(w), y)
        if np.allclose(adapted.parameters, family.parameters, rtol=1e-4):
            return GLMFit(rows, scale, penalty, d, y, family, w.reshape(scale.shape), eta(w))
        family = adapted


def error_of_shape(component: Component, tilt: Array, theta: Array) -> Array:
    """How far theta (d,) of a log link may be off because S1 was taken for Gaussian, (d,).

    Where E[y | s] = exp(a + theta's), Cov(s, y) / E[y] = E[s exp(theta's)] / E[exp(theta's)] - E[s] = grad K(theta), with K the
    logarithm of E[exp(theta'(s - E s))], whatever the law of s. The residual R is S1 and something independent of S1 and y, so
    that Cov(R, y) / E[y] is the same: tilt (d,). Of the series

        grad K(theta) = Cov theta + k3(s, w, w) / 2 + k4(s, w, w, w) / 6 + ...,    w = theta's,

    what order four does to one Newton step from theta says how much the orders beyond four may do.
    """
    if component.source is None or component.source.max_order < 4:
        return np.zeros_like(theta)
    white, back = whitening(component.covariance)
    standard, here = component.mapped(white.T), theta @ back

    def step(most: int) -> Array:
        def gradient(at: Array) -> Array:
            terms = [standard.projected_cumulant(at, t) / factorial(t - 1) for t in range(2, most + 1)]
            return np.asarray(np.sum(terms, axis=0))

        bend = slopes(gradient, here).T
        return np.asarray(np.linalg.lstsq(bend, white @ tilt - gradient(here))[0] @ white)

    return np.abs(step(4) - step(3))
