"""Generalised linear models on samples, with a ridge: what stands behind coefficients of any outcome on a component.

Regression calibration. R, the residual of U on the shared part of V, stands in for S1. With E[S1 | R] = M R and
Omega = Cov(S1 | R), averaging the mean of y over what R does not say about S1 leaves the family as it is, with coefficients
g = theta'M / c(theta'Omega theta) (`families`): the fit on M R gives g, and theta = c g. For the sigmoid c = 1 / sqrt(1 - k q)
with q = g'Omega g; for log links c = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from richcomponents.algebra import Array
from richcomponents.learning.families import Family

MIN_RIDGE = 1e-6
"""Smallest ridge, relative to the mean variance of the columns: keeps alpha = 0 finite for separable classes."""

_ROUNDS = 20  # of a family that is adapted to its own fit


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
class GLMFit:
    """coefs : m times (d_j,); intercepts (m,); eta (n, m) : the fitted predictors, nuisance included; family : as fitted;
    information (m,) : mean curvature of one row, the others unknown, less where y varies more than its family says."""

    coefs: tuple[Array, ...]
    intercepts: Array
    eta: Array
    family: Family
    information: Array

    def shrinkage(self, columns: Array, j: int = 0) -> float:
        """What predictor j should be multiplied by to err least, 1 - d / chi^2 (James and Stein 1961; van Houwelingen and le
        Cessie 1990), chi^2 that of all its d coefficients: noise alone makes them as long as chi^2 = d says. columns (n, d) :
        its own.

        Draws in which they came out long have a large chi^2 too: it is taken two standard errors, sqrt(4 chi^2 - 2 d), lower.
        """
        along, d = columns @ self.coefs[j], columns.shape[1]
        square = len(along) * float(self.information[j]) * float(np.var(along))
        surely = square - 2 * np.sqrt(max(4 * square - 2 * d, 0.0))
        return max(0.0, 1 - d / surely) if surely > 0 else 0.0

    def corrected_length(self, columns: Array, remainder: float, j: int = 0) -> float:
        """What the correction makes of predictor j so shrunk, over what it makes of it as it is: less than the shrinkage where
        the corrected coefficients lack a factor for a variance, the remainder, that grows with their square."""
        shrunk = self.shrinkage(columns, j)
        lacked = self.family.attenuation(remainder * np.array([shrunk**2, 1.0]))
        return float(shrunk * lacked[0] / lacked[1])

    def predictor(self, j: int = 0) -> LinearPredictor:
        return LinearPredictor(self.coefs[j], float(self.intercepts[j]), float(self.information[j]), self.family)


@dataclass(frozen=True)
class _Design:
    """Columns (n, p_j) of each of m predictors, its features' first; penalty (p,) on all coefficients side by side."""

    columns: tuple[Array, ...]
    widths: tuple[int, ...]
    penalty: Array
    fit_intercept: bool

    @classmethod
    def of(cls, features: Sequence[Array], alpha: float, fit_intercept: bool, nuisance: Array | None) -> _Design:
        columns, penalties = [], []
        for one in features:
            n = len(one)
            beside = ([] if nuisance is None else [nuisance]) + ([np.ones((n, 1))] if fit_intercept else [])
            columns.append(np.hstack([one, *beside]))
            penalty = np.full(columns[-1].shape[1], max(alpha, MIN_RIDGE * float(np.mean(one**2)), 1e-300))
            if fit_intercept:
                penalty[-1] = 0.0
            penalties.append(penalty)
        return cls(tuple(columns), tuple(f.shape[1] for f in features), np.concatenate(penalties), fit_intercept)

    @property
    def places(self) -> list[slice]:
        """Where each predictor's coefficients stand."""
        ends = np.cumsum([0, *(c.shape[1] for c in self.columns)])
        return [slice(a, b) for a, b in pairwise(ends.tolist())]

    def predictors(self, w: Array) -> Array:
        """eta (n, m)."""
        return np.column_stack([c @ w[at] for c, at in zip(self.columns, self.places, strict=True)])

    def gradient(self, slope: Array) -> Array:
        """Sums (p,) of slopes (n, m) times the columns."""
        return np.concatenate([c.T @ slope[:, j] for j, c in enumerate(self.columns)])

    def curvature(self, weight: Array, rows: Array | slice = slice(None)) -> Array:
        """Sums (p, p) over rows of weight (n, m, m) times products of the columns."""
        out = np.zeros((len(self.penalty), len(self.penalty)))
        for j, (left, at) in enumerate(zip(self.columns, self.places, strict=True)):
            for k, (right, other) in enumerate(zip(self.columns, self.places, strict=True)):
                if k >= j:
                    out[at, other] = left[rows].T @ (right[rows] * weight[rows, j, k][:, None])
                    out[other, at] = out[at, other].T
        return out

    def split(self, w: Array) -> tuple[tuple[Array, ...], Array]:
        """Coefficients (..., p) -> those of each predictor's features, and the intercepts (m,)."""
        coefs = tuple(w[..., at][..., :d] for at, d in zip(self.places, self.widths, strict=True))
        last = [w[..., at][..., -1] if self.fit_intercept else np.zeros(w.shape[:-1]) for at in self.places]
        return coefs, np.stack(last, axis=-1)


def _weight(family: Family, eta: Array, y: Array) -> Array:
    """Curvatures that can be divided by."""
    weight = family.weight(eta, y)
    diagonal = np.einsum("nii->ni", weight)
    return np.asarray(weight + np.maximum(1e-10 - diagonal, 0.0)[:, :, None] * np.eye(weight.shape[1]))


def ridge_glm(
    features: Sequence[Array],
    y: Array,
    family: Family,
    alpha: float,
    *,
    fit_intercept: bool = True,
    nuisance: Array | None = None,
    max_iter: int = 100,
) -> GLMFit:
    """Minimise mean loss + alpha/2 |coef|^2 by damped Newton steps (scikit-learn's C = 1 / (n alpha)); bounded for separable
    classes.

    features : of each of the family's m predictors its own columns (n, d_j), centred or not; nuisance : (n, k) further columns
    of all, whose coefficients are fitted with the same penalty and not returned. Intercepts are not penalised.
    """
    design = _Design.of(features, alpha, fit_intercept, nuisance)
    w = np.zeros(len(design.penalty))
    if fit_intercept:
        for at, level in zip(design.places, family.start(y), strict=True):
            w[at.stop - 1] = level
    for _ in range(_ROUNDS):
        w, eta = _newton(design, y, family, w, max_iter)
        adapted = family.adapted(eta, y)
        if adapted == family or np.allclose(_extras(adapted), _extras(family), rtol=1e-4):
            break
        family = adapted
    coefs, intercepts = design.split(w)
    inner = np.linalg.pinv(family.weight(eta, y).mean(axis=0), hermitian=True)
    information = 1 / (np.maximum(np.diag(inner), 1e-300) * family.scale(eta, y))
    return GLMFit(coefs, intercepts, eta, family, information)


def _extras(family: Family) -> list[float]:
    """Numbers that a family was adapted to."""
    return [float(value) for value in vars(family).values()]


def _newton(design: _Design, y: Array, family: Family, w: Array, max_iter: int) -> tuple[Array, Array]:
    n, penalty = len(y), design.penalty
    eta = design.predictors(w)

    def loss(eta: Array, w: Array) -> float:
        return float(np.mean(family.losses(eta, y)) + penalty @ w**2 / 2)

    value = loss(eta, w)
    for _ in range(max_iter):
        slope = design.gradient(family.slope(eta, y)) / n + penalty * w
        step = _solve(design.curvature(_weight(family, eta, y)) / n + np.diag(penalty), slope)
        size, along = 1.0, design.predictors(step)
        decrease = float(slope @ step)
        if decrease < 1e-14 * max(1.0, abs(value)):
            break
        while True:
            new_w, new_eta = w - size * step, eta - size * along
            new_value = loss(new_eta, new_w)
            if new_value <= value - 1e-4 * size * decrease or size < 1e-6:
                break
            size /= 2
        if not new_value < value:
            break
        w, eta, value = new_w, new_eta, new_value
    return w, eta


def newton_replicates(
    features: Sequence[Array],
    y: Array,
    fit: GLMFit,
    alpha: float,
    keep: Array,
    *,
    fit_intercept: bool = True,
    nuisance: Array | None = None,
) -> list[Array]:
    """Coefficients (B, d_j) of each predictor without each block: one Newton step from the full fit. keep : (B, n), rows that
    remain."""
    design = _Design.of(features, alpha, fit_intercept, nuisance)
    slope, weight = fit.family.slope(fit.eta, y), _weight(fit.family, fit.eta, y)
    total, curvature = design.gradient(slope), design.curvature(weight)
    steps = np.empty((len(keep), len(design.penalty)))
    for k, rows in enumerate(keep):
        gone, left = ~rows, max(int(rows.sum()), 1)
        without = total - design.gradient(np.where(gone[:, None], slope, 0.0))
        change = without / left - total / len(y)  # the full fit's own slope is zero
        inner = (curvature - design.curvature(weight, gone)) / left + np.diag(design.penalty)
        steps[k] = _solve(inner, change)
    moved, _ = design.split(steps)
    return [coef - step for coef, step in zip(fit.coefs, moved, strict=True)]


def _solve(matrix: Array, vector: Array) -> Array:
    """matrix^-1 vector for a positive semi-definite matrix whose scales may differ wildly."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    inner = scale[:, None] * matrix * scale + 1e-13 * np.eye(len(matrix))
    return np.asarray(scale * np.linalg.solve(inner, scale * vector))
