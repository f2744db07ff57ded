"""Generalised linear models on samples, with a ridge: what stands behind coefficients of classes and counts on a component.

A family says what the likelihood of y asks of its linear predictors eta = a + theta's: one, or, of k classes, one for each
class against the reference. Regression calibration: R, the residual of U on the shared part of V, stands in for S1. With
E[S1 | R] = M R and Omega = Cov(S1 | R), averaging the mean of y over what R does not say about S1 leaves the family as it is,
with coefficients g = theta'M / c(theta'Omega theta): the fit on M R gives g, and theta = c g. All that this asks of a family is
how its mean averages over a part of eta that is not known, eta = m + e, Var(e) = q:

    logistic      E[sigmoid(m + e)] ~ sigmoid(m / sqrt(1 + k q)),  k = (16 sqrt(3) / (15 pi))^2 = 0.346
    probit        E[Phi(m + e)] = Phi(m / sqrt(1 + q)),            k = 1, exact for Gaussian e
    log links     E[exp(m + e)] = exp(m + q / 2),                  k = 0: the slope does not change, the intercept does
    several classes: as logistic, for each class against the reference,

and c = 1 / sqrt(1 - k q) at q = g'Omega g. Columns are divided by their root mean squares before anything else: penalties and
steps know no units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import factorial
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, log_ndtr, ndtr, softmax

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.learning.solvers import slopes
from richcomponents.storage import storable

MIN_RIDGE = 3e-6
"""Smallest penalty: keeps alpha = 0 finite for separable classes."""

MIN_REMAINDER = 0.1
"""1 - k q is not believed below this, so that no coefficient grows more than 1/sqrt(0.1) = 3.2 times."""

_LARGEST = np.log(np.finfo(float).max) / 4  # of a log of a mean: its powers are numbers


# ---- families


@dataclass(frozen=True)
class Family:
    """eta (n, m), y (n,): zeros and ones, counts, or numbers of classes, 0 the reference. predictors : m; spread : k, how much
    unknown variance flattens the mean; unit : what eta is; parameters : what else is fitted."""

    name: ClassVar[str] = ""
    unit: ClassVar[str] = "log of the mean"
    of_classes: ClassVar[bool] = False
    spread: ClassVar[float] = 0.0
    predictors = 1
    parameters: ClassVar[tuple[float, ...]] = ()

    def losses(self, eta: Array, y: Array) -> Array:
        """-log P(y | eta) without what does not depend on eta, (n,)."""
        raise NotImplementedError

    def slope(self, eta: Array, y: Array) -> Array:
        """The derivative of the loss, (n, m)."""
        raise NotImplementedError

    def weight(self, eta: Array, y: Array) -> Array:
        """Its curvature, or what that is expected to be, (n, m, m), positive semi-definite."""
        raise NotImplementedError

    def mean(self, eta: Array) -> Array:
        """E[y], (n,), or the chances of all classes, (n, m + 1)."""
        raise NotImplementedError

    def start(self, y: Array) -> Array:
        """Intercepts (m,) to begin with."""
        return np.zeros(self.predictors)

    def adapted(self, eta: Array, y: Array) -> Family:
        """The same with its parameters fitted at eta."""
        return self

    def scale(self, eta: Array, y: Array) -> float:
        """By how much y varies more than the family says: of counts, Pearson's chi-square per row, at least 1."""
        return 1.0

    def attenuation(self, remainder: float | Array) -> Array:
        """1 / sqrt(1 - k q), q the unknown variance at the attenuated coefficients; 1 - k q is kept above MIN_REMAINDER."""
        left = 1 - self.spread * np.maximum(remainder, 0.0)
        return np.asarray(1 / np.sqrt(np.maximum(left, MIN_REMAINDER)))

    def averaged(self, eta: Array, remainder: Array) -> Array:
        """eta (n, m) of which the variances remainder (m,) are not known -> that of the mean over these."""
        return np.asarray(eta / np.sqrt(1 + self.spread * np.maximum(remainder, 0.0)))

    def intercept(self, seen: float, factor: float, remainder: float) -> float:
        """The intercept behind one that was seen with an unknown variance q, at its true coefficients, and a factor on them."""
        return factor * seen


@storable
@dataclass(frozen=True)
class Probit(Family):
    """P(y = 1) = Phi(eta)."""

    name: ClassVar[str] = "probit"
    unit: ClassVar[str] = "probit"
    of_classes: ClassVar[bool] = True
    spread: ClassVar[float] = 1.0

    def losses(self, eta: Array, y: Array) -> Array:
        return np.asarray(-log_ndtr((2 * y - 1) * eta[:, 0]))

    def slope(self, eta: Array, y: Array) -> Array:
        """-+ phi(z) / Phi(z), also far in the tail."""
        sign = (2 * y - 1)[:, None]
        z = sign * eta
        return np.asarray(-sign * np.exp(-(z**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(z)))

    def weight(self, eta: Array, y: Array) -> Array:
        slope = self.slope(eta, y)
        return np.asarray(np.maximum(slope * (slope - eta), 0.0)[:, :, None])

    def mean(self, eta: Array) -> Array:
        return np.column_stack([ndtr(-eta[:, 0]), ndtr(eta[:, 0])])


@storable
@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean mu = exp(eta) and variance mu + dispersion mu^2, by default mu."""

    name: ClassVar[str] = "poisson"
    dispersion: float = 0.0

    def mean(self, eta: Array) -> Array:
        return np.asarray(np.exp(np.minimum(eta[:, 0], _LARGEST)))

    def losses(self, eta: Array, y: Array) -> Array:
        level = self.mean(eta)
        grown = self.dispersion * level  # log(1 + x) (y + 1 / dispersion), without the division by zero
        logs = np.log1p(grown)
        share = np.divide(logs, grown, out=np.ones_like(grown), where=grown > 0)
        return np.asarray(y * logs + level * share - y * np.minimum(eta[:, 0], _LARGEST))

    def slope(self, eta: Array, y: Array) -> Array:
        level = self.mean(eta)
        return np.asarray((level - y) / (1 + self.dispersion * level))[:, None]

    def weight(self, eta: Array, y: Array) -> Array:
        level = self.mean(eta)
        return np.asarray(level / (1 + self.dispersion * level))[:, None, None]

    def start(self, y: Array) -> Array:
        return np.array([np.log(max(float(y.mean()), 1e-12))])

    def scale(self, eta: Array, y: Array) -> float:
        slope, weight = self.slope(eta, y)[:, 0], self.weight(eta, y)[:, 0, 0]
        return max(1.0, float(np.mean(slope**2 / np.maximum(weight, 1e-300))))

    def averaged(self, eta: Array, remainder: Array) -> Array:
        return np.asarray(eta + np.maximum(remainder, 0.0) / 2)

    def intercept(self, seen: float, factor: float, remainder: float) -> float:
        return seen - max(remainder, 0.0) / 2


@storable
@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """The same, and the dispersion is fitted."""

    name: ClassVar[str] = "negative binomial"
    dispersion: float = 1.0

    @property
    def parameters(self) -> tuple[float, ...]:  # type: ignore[override]
        return (self.dispersion,)

    def adapted(self, eta: Array, y: Array) -> NegativeBinomial:
        """The dispersion of greatest likelihood."""

        def loss(log: float) -> float:
            size = np.exp(-log)
            of_counts = gammaln(size) - gammaln(y + size) - y * log
            return float(np.mean(replace(self, dispersion=1 / size).losses(eta, y) + of_counts))

        best = minimize_scalar(loss, bounds=(np.log(1e-6), np.log(1e3)), method="bounded")
        return replace(self, dispersion=float(np.exp(best.x)))


@storable
@dataclass(frozen=True)
class Multinomial(Family):
    """log P(y = k) / P(y = 0) = eta_k, k = 1 .. classes - 1."""

    name: ClassVar[str] = "multinomial"
    unit: ClassVar[str] = "log-odds"
    of_classes: ClassVar[bool] = True
    spread: ClassVar[float] = (16 * np.sqrt(3) / (15 * np.pi)) ** 2
    classes: int = 3

    @property
    def predictors(self) -> int:  # type: ignore[override]
        return self.classes - 1

    def losses(self, eta: Array, y: Array) -> Array:
        every = np.column_stack([np.zeros(len(eta)), eta])
        return np.asarray(np.logaddexp.reduce(every, axis=1) - every[np.arange(len(y)), y.astype(np.intp)])

    def slope(self, eta: Array, y: Array) -> Array:
        return np.asarray(self.mean(eta)[:, 1:] - (y[:, None] == np.arange(1, self.classes)))

    def weight(self, eta: Array, y: Array) -> Array:
        p = self.mean(eta)[:, 1:]
        return np.asarray(p[:, :, None] * (np.eye(self.predictors) - p[:, None, :]))

    def mean(self, eta: Array) -> Array:
        return np.asarray(softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1))


@storable
@dataclass(frozen=True)
class Logistic(Multinomial):
    """P(y = 1) = 1 / (1 + exp(-eta))."""

    name: ClassVar[str] = "logistic"
    classes: int = 2


FAMILIES: dict[str, type[Family]] = {f.name: f for f in (Logistic, Probit, Poisson, NegativeBinomial, Multinomial)}


# ---- the fit


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

    Where E[y | s] = exp(a + theta's), Cov(s, y) / E[y] = grad K(theta), with K the logarithm of E[exp(theta'(s - E s))],
    whatever the law of s. R is S1 and something independent of S1 and y, so that Cov(R, y) / E[y] is the same: tilt (d,). Of

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
