"""Families of generalised linear models: what the likelihood of y asks of its linear predictors eta = a + theta's.

A family has one predictor, or, of k classes, one for each class against the reference. Beside loss, slope and curvature it says
how its mean averages over a part of eta that is not known, eta = m + e, Var(e) = q, which is all that regression calibration
needs:

    logistic      E[sigmoid(m + e)] ~ sigmoid(m / sqrt(1 + k q)),  k = (16 sqrt(3) / (15 pi))^2 = 0.346
    probit        E[Phi(m + e)] = Phi(m / sqrt(1 + q)),            k = 1, exact for Gaussian e
    log links     E[exp(m + e)] = exp(m + q / 2),                  k = 0: the slope does not change, the intercept does
    several classes: as logistic, for each class against the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, log_ndtr, ndtr, softmax

from richcomponents.algebra import Array
from richcomponents.storage import storable

LOGISTIC = (16 * np.sqrt(3) / (15 * np.pi)) ** 2
"""k in E[sigmoid(m + sqrt(q) Z)] ~ sigmoid(m / sqrt(1 + k q)), Z standard normal."""

MIN_REMAINDER = 0.1
"""1 - k q is not believed below this, so that no coefficient grows more than 1/sqrt(0.1) = 3.2 times."""

_LARGEST = np.log(np.finfo(float).max) / 4  # of a log of a mean: its powers are numbers


@dataclass(frozen=True)
class Family:
    """eta (n, m), y (n,): zeros and ones, counts, or numbers of classes, 0 the reference."""

    name: ClassVar[str] = ""
    of_classes: ClassVar[bool] = False
    spread: ClassVar[float] = 0.0
    """k: how much unknown variance flattens the mean."""

    @property
    def predictors(self) -> int:
        """m."""
        return 1

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

    @property
    def parameters(self) -> tuple[float, ...]:
        """What else is fitted."""
        return ()

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
    of_classes: ClassVar[bool] = True
    spread: ClassVar[float] = 1.0

    def losses(self, eta: Array, y: Array) -> Array:
        return np.asarray(-log_ndtr((2 * y - 1) * eta[:, 0]))

    def slope(self, eta: Array, y: Array) -> Array:
        sign = (2 * y - 1)[:, None]
        return np.asarray(-sign * _hazard(sign * eta))

    def weight(self, eta: Array, y: Array) -> Array:
        z = (2 * y - 1)[:, None] * eta
        hazard = _hazard(z)
        return np.asarray(np.maximum(hazard * (hazard + z), 0.0)[:, :, None])

    def mean(self, eta: Array) -> Array:
        return np.column_stack([ndtr(-eta[:, 0]), ndtr(eta[:, 0])])


def _hazard(z: Array) -> Array:
    """phi(z) / Phi(z), also far in the tail."""
    return np.asarray(np.exp(-(z**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(z)))


@storable
@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean mu = exp(eta) and variance mu + dispersion mu^2, by default mu."""

    name: ClassVar[str] = "poisson"
    dispersion: float = 0.0

    def _level(self, eta: Array) -> Array:
        return np.asarray(np.exp(np.minimum(eta, _LARGEST)))

    def losses(self, eta: Array, y: Array) -> Array:
        level = self._level(eta[:, 0])
        grown = self.dispersion * level  # log(1 + x) (y + 1 / dispersion), without the division by zero
        logs = np.log1p(grown)
        share = np.divide(logs, grown, out=np.ones_like(grown), where=grown > 0)
        return np.asarray(y * logs + level * share - y * np.minimum(eta[:, 0], _LARGEST))

    def slope(self, eta: Array, y: Array) -> Array:
        level = self._level(eta)
        return np.asarray((level - y[:, None]) / (1 + self.dispersion * level))

    def weight(self, eta: Array, y: Array) -> Array:
        level = self._level(eta)
        return np.asarray((level / (1 + self.dispersion * level))[:, :, None])

    def mean(self, eta: Array) -> Array:
        return np.asarray(self._level(eta[:, 0]))

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
    def parameters(self) -> tuple[float, ...]:
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
    of_classes: ClassVar[bool] = True
    spread: ClassVar[float] = LOGISTIC
    classes: int = 3

    @property
    def predictors(self) -> int:
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
