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
from itertools import pairwise
from math import factorial

import numpy as np
from scipy.optimize import minimize

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.learning.families import Family

MIN_RIDGE = 3e-6
"""Smallest penalty: keeps alpha = 0 finite for separable classes."""


@dataclass(frozen=True)
class LinearPredictor:
    """One linear predictor of a generalised linear model: coef (d,), intercept; information : of one row about it; family."""

    coef: Array
    intercept: float
    information: float
    family: Family

    def attenuation(self, remainder: float | Array) -> Array:
        """What the coefficients lack for a variance of the predictor that the columns do not tell."""
        return self.family.attenuation(remainder)


@dataclass(frozen=True)
class _Design:
    """The rows (n, p_j) of each of m predictors in units of scales (p_j,): d_j features first, nuisance, intercept last;
    penalty (p,) on all coefficients."""

    rows: tuple[Array, ...]
    scales: tuple[Array, ...]
    widths: tuple[int, ...]
    penalty: Array

    @classmethod
    def of(cls, features: Sequence[Array], alpha: float, fit_intercept: bool, nuisance: Array | None) -> _Design:
        n = len(features[0])
        more = np.hstack([np.zeros((n, 0)) if nuisance is None else nuisance, np.ones((n, int(fit_intercept)))])
        rows = [np.hstack([one, more]) for one in features]
        scales = [np.sqrt(np.mean(one**2, axis=0)) for one in rows]
        scales = [np.where(one > 0, one, 1.0) for one in scales]
        last = np.arange(more.shape[1]) == more.shape[1] - int(fit_intercept)
        free = np.concatenate([np.append(np.zeros(one.shape[1], dtype=bool), last) for one in features])
        return cls(
            tuple(one / scale for one, scale in zip(rows, scales, strict=True)),
            tuple(scales),
            tuple(one.shape[1] for one in features),
            np.where(free, 0.0, max(alpha, MIN_RIDGE)),
        )

    @property
    def places(self) -> list[slice]:
        """Where each predictor's coefficients stand."""
        ends = np.cumsum([0, *(one.shape[1] for one in self.rows)])
        return [slice(a, b) for a, b in pairwise(ends.tolist())]

    def predictors(self, w: Array) -> Array:
        """eta (n, m)."""
        return np.column_stack([rows @ w[at] for rows, at in zip(self.rows, self.places, strict=True)])

    def gradient(self, slope: Array) -> Array:
        """Sums (p,) of slopes (n, m) times the columns."""
        return np.concatenate([rows.T @ slope[:, j] for j, rows in enumerate(self.rows)])

    def curvature(self, weight: Array, kept: Array | slice = slice(None)) -> Array:
        """Sums (p, p) over the rows that are kept of weight (n, m, m) times products of the columns."""
        m = range(len(self.rows))
        return np.block([[(self.rows[j][kept].T * weight[kept, j, k]) @ self.rows[k][kept] for k in m] for j in m])

    def split(self, w: Array) -> list[Array]:
        """Coefficients (..., p) in units of the rows -> those of each predictor, (..., p_j), in the user's units."""
        return [w[..., at] / scale for at, scale in zip(self.places, self.scales, strict=True)]


@dataclass(frozen=True)
class GLMFit:
    """w (p,) : coefficients in units of the design; eta (n, m) : the fitted predictors, with nuisance; family : as fitted."""

    design: _Design
    y: Array
    w: Array
    eta: Array
    family: Family

    @property
    def coefs(self) -> list[Array]:
        """Of each predictor, (d_j,)."""
        return [w[:d] for w, d in zip(self.design.split(self.w), self.design.widths, strict=True)]

    @property
    def intercepts(self) -> Array:
        """(m,)."""
        free = [not self.design.penalty[at][-1] for at in self.design.places]
        return np.array([w[-1] if one else 0.0 for w, one in zip(self.design.split(self.w), free, strict=True)])

    @property
    def information(self) -> Array:
        """(m,) : mean curvature of one row, the others unknown, less where y varies more than its family says."""
        inner = np.linalg.pinv(self.family.weight(self.eta, self.y).mean(axis=0), hermitian=True)
        return np.asarray(1 / (np.maximum(np.diag(inner), 1e-300) * self.family.scale(self.eta, self.y)))

    @property
    def predictors(self) -> list[LinearPredictor]:
        every = zip(self.coefs, self.intercepts.tolist(), self.information.tolist(), strict=True)
        return [LinearPredictor(*one, self.family) for one in every]

    def without_blocks(self, keep: Array) -> list[Array]:
        """Coefficients (B, d_j) of each predictor without each block: one Newton step. keep : (B, n), rows that remain."""
        design, slope = self.design, self.family.slope(self.eta, self.y)
        weight = self.family.weight(self.eta, self.y)
        total, curvature = design.gradient(slope), design.curvature(weight)
        left_out = np.empty((len(keep), len(self.w)))
        for k, rows in enumerate(keep):
            left = max(int(rows.sum()), 1)
            without = total - design.gradient(np.where(rows[:, None], 0.0, slope))
            inner = (curvature - design.curvature(weight, ~rows)) / left + np.diag(design.penalty)
            change = without / left - total / len(self.y)  # the full fit's own slope is zero
            left_out[k] = self.w - np.linalg.lstsq(inner, change)[0]
        return [w[:, :d] for w, d in zip(design.split(left_out), design.widths, strict=True)]


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

    features : of each of the family's m predictors its own columns (n, d_j), centred or not; nuisance : (n, k) further columns
    of all, whose coefficients are fitted with the same penalty and not returned. Intercepts are not penalised. A family that
    is adapted to its own fit and the fit alternate.
    """
    design = _Design.of(features, alpha, fit_intercept, nuisance)
    w = np.zeros(len(design.penalty))
    w[design.penalty == 0] = family.start(y) if fit_intercept else []
    while True:
        w = _minimum(design, y, family, w)
        eta = design.predictors(w)
        adapted = family.adapted(eta, y)
        if np.allclose(adapted.parameters, family.parameters, rtol=1e-4):
            return GLMFit(design, y, w, eta, family)
        family = adapted


def _minimum(design: _Design, y: Array, family: Family, start: Array) -> Array:
    """Of the penalised mean loss, by Newton's method."""
    n = len(y)

    def loss(w: Array) -> tuple[float, Array]:
        eta = design.predictors(w)
        value = float(np.mean(family.losses(eta, y)) + design.penalty @ w**2 / 2)
        return value, design.gradient(family.slope(eta, y)) / n + design.penalty * w

    def curvature(w: Array) -> Array:
        return design.curvature(family.weight(design.predictors(w), y)) / n + np.diag(design.penalty)

    return np.asarray(minimize(loss, start, jac=True, hess=curvature, method="Newton-CG", options={"xtol": 1e-10}).x)


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
    standard, here, moves = component.mapped(white.T), theta @ back, 1e-4 * np.eye(len(white))

    def step(most: int) -> Array:
        def gradient(at: Array) -> Array:
            terms = [standard.projected_cumulant(at, t) / factorial(t - 1) for t in range(2, most + 1)]
            return np.asarray(np.sum(terms, axis=0))

        bend = np.stack([gradient(here + move) - gradient(here - move) for move in moves]) / 2e-4
        return np.asarray(np.linalg.lstsq(bend.T, white @ tilt - gradient(here))[0] @ white)

    return np.abs(step(4) - step(3))
