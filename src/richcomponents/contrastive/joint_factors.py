"""Joint factors of both views: how noisy the controls are, if the errors of the columns do not depend on each other.

Given the exposures, w = (U, V) = L f + error, f (k,) with variance one, errors of columns uncorrelated with variances psi: then
second moments alone tell L and psi, whatever the law of f, Gaussian included. Controls have no effect, so that their slopes on
an exposure are those of the factors, b_V = L_V gamma + noise with variances sigma^2 psi_V, and

    gamma = (L_V' psi_V^-1 L_V + lambda)^-1 L_V' psi_V^-1 b_V,       alpha = b_U - L_U gamma,

maximum likelihood and generalised least squares over the controls (Wang, Zhao, Hastie and Owen 2017, section 3.1; RUV-4 takes
principal components and least squares). lambda = sigma^2 / tau^2 with tau^2 the variance of gamma by the method of moments, and
sigma^2 no less than what the controls show: a factor that the controls hardly see is not corrected for. It is how S1 with
factors of its own does no harm.

Nothing of this holds where errors depend on each other beyond k factors. Their residual correlations say so: times the root
of the number of rows their root mean square is about one if the model holds (`misfit`).

Factors are added as long as psi^-1/2 Cov(w) psi^-1/2, with the psi that those so far leave, has more eigenvalues above that of
noise, (1 + sqrt(p / n))^2 (Marchenko and Pastur). psi starts as if all were error and falls: none comes early.
There is at most one for every three controls (rounded up), since gamma is a regression over the controls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.contrastive.slopes import Slopes
from richcomponents.storage import storable

__all__ = ["JointFactors"]

ABOVE_EDGE = 1.05  # eigenvalues of noise scatter about the edge
HEYWOOD = 0.02  # least share of a column's variance that is error
HOLDS, FAILS = 1.3, 2.2
"""Misfits up to which errors are taken as independent, and from which on they are not."""
_DENSE = 300  # columns up to which all covariances are formed
_STEPS = 25  # of a replicate on its way from the factors of all rows; one where there are more columns
_LOOKED_AT = (100, 100)  # tests and controls whose residual correlations are looked at


@storable
@dataclass(frozen=True)
class JointFactors:
    """loadings (p + d_v, k), errors (p + d_v,): L and psi, U first; tests : p; misfit : root mean square of residual
    correlations, in units of their noise."""

    loadings: Array
    errors: Array
    tests: int
    misfit: float

    @classmethod
    def of(cls, slopes: Slopes, n: float) -> JointFactors:
        """n : independent rows."""
        scale = np.sqrt(np.maximum(slopes.variances, 1e-300))
        p, most = len(scale), -(-len(slopes.v) // 3)
        edge = ABOVE_EDGE * (1 + np.sqrt(p / n)) ** 2
        correlations = _correlations(slopes, scale)
        spectrum = _Spectrum(correlations, p, most + 1)
        psi, k = np.ones(p), 1
        rounds, close = (400, 1e-6) if p <= _DENSE else (20, 1e-4)
        for _ in range(rounds):
            values, vectors = spectrum.at(psi)
            more = int(np.clip(np.sum(values > edge), k, most))
            loadings = np.sqrt(psi)[:, None] * vectors[:, :more] * np.sqrt(np.maximum(values[:more] - 1, 0.0))
            moved, psi = psi, np.clip(1 - np.sum(loadings**2, axis=1), HEYWOOD, 1.0)
            if more == k and np.max(np.abs(moved - psi)) < close:
                break
            k = more
        looked = np.concatenate([_some(0, len(slopes.u), _LOOKED_AT[0]), _some(len(slopes.u), p, _LOOKED_AT[1])])
        chosen = np.zeros((p, len(looked)))
        chosen[looked, np.arange(len(looked))] = 1.0
        left = correlations(chosen)[looked] - loadings[looked] @ loadings[looked].T
        left = (left / np.sqrt(np.outer(psi[looked], psi[looked])))[np.triu_indices(len(looked), 1)]
        return cls(
            scale[:, None] * loadings,
            psi * scale**2,
            len(slopes.u),
            float(np.sqrt(n * np.mean(left**2))) if len(left) else 0.0,
        )

    @property
    def trust(self) -> float:
        """From one, where errors are as good as independent, to zero, where they are not."""
        return float(np.clip((FAILS**2 - self.misfit**2) / (FAILS**2 - HOLDS**2), 0.0, 1.0))

    def refitted(self, slopes: Slopes) -> JointFactors:
        """Of other rows, from these: steps of the EM algorithm (Rubin and Thayer 1982), which need Cov(w) times k columns."""
        p, k = self.loadings.shape
        variances = np.maximum(slopes.variances, 1e-300)
        times: Callable[[Array], Array] = slopes.times
        steps = 1
        if p <= _DENSE:
            covariance, steps = slopes.times(np.eye(p)), _STEPS
            times = covariance.__matmul__
        loadings, errors = self.loadings, self.errors
        for _ in range(steps):
            weighted = loadings / errors[:, None]
            scores = np.asarray(np.linalg.solve(np.eye(k) + loadings.T @ weighted, weighted.T))  # E[f | w] = scores w
            with_scores = times(scores.T)
            inside = np.eye(k) - scores @ loadings + scores @ with_scores
            loadings = np.asarray(np.linalg.solve(inside.T, with_scores.T).T)
            errors = np.maximum(variances - np.sum(loadings * with_scores, axis=1), HEYWOOD * variances)
        return JointFactors(loadings, errors, self.tests, self.misfit)

    def slopes_of_factors(
        self, b: Array, noise: Array, controls: IntArray, penalty: Array | None = None
    ) -> tuple[Array, Array]:
        """gamma (k, q) and lambda (q,), from slopes b (p + d_v, q) of these controls.

        noise (q,) : variance of the slope of a column with unit variance; penalty (q,) : lambda, if it is known.
        """
        at = self.tests + controls
        weighted = self.loadings[at] / self.errors[at, None]
        values, vectors = np.linalg.eigh(self.loadings[at].T @ weighted)
        values = np.maximum(values, 1e-12)
        seen = vectors.T @ (weighted.T @ b[at]) / values[:, None]
        if penalty is None:
            left = np.sum((b[at] - self.loadings[at] @ (vectors @ seen)) ** 2 / self.errors[at, None], axis=0)
            k = len(values)
            if len(at) > k:
                noise = np.maximum(noise, left / (len(at) - k))
            size = np.sum(seen**2 * values[:, None], axis=0) - k * noise
            penalty = noise * values.sum() / np.maximum(size, 1e-300)
        return np.asarray(vectors @ (seen / (1 + penalty / values[:, None]))), penalty

    def effects(self, b: Array, gamma: Array) -> Array:
        """alpha (p + d_v, q) of all columns, U first."""
        return np.asarray(b - self.loadings @ gamma)


def _correlations(slopes: Slopes, scale: Array) -> Callable[[Array], Array]:
    """m (p, k) -> the correlations of all columns, times m."""
    if len(scale) > _DENSE:
        return lambda m: slopes.times(m / scale[:, None]) / scale[:, None]
    return (slopes.times(np.eye(len(scale))) / np.outer(scale, scale)).__matmul__


class _Spectrum:
    """Leading eigenvalues and vectors of psi^-1/2 R psi^-1/2; of many columns by orthogonal iteration from the last ones."""

    def __init__(self, times: Callable[[Array], Array], p: int, k: int) -> None:
        self.times, self.p, self.k = times, p, min(k, p)
        self.matrix = times(np.eye(p)) if p <= _DENSE else None
        self.start = np.random.default_rng(0).standard_normal((p, min(k + 8, p)))
        self.turns = 6

    def at(self, psi: Array) -> tuple[Array, Array]:
        """(k,) and (p, k), the largest first."""
        root = np.sqrt(psi)
        if self.matrix is not None:
            values, vectors = np.linalg.eigh(self.matrix / np.outer(root, root))
            return values[::-1][: self.k], vectors[:, ::-1][:, : self.k]
        for _ in range(self.turns):
            self.start, _ = np.linalg.qr(self.times(self.start / root[:, None]) / root[:, None])
        self.turns = 2
        values, vectors = np.linalg.eigh(self.start.T @ (self.times(self.start / root[:, None]) / root[:, None]))
        return values[::-1][: self.k], (self.start @ vectors[:, ::-1])[:, : self.k]


def _some(first: int, end: int, most: int) -> IntArray:
    """Up to so many whole numbers from first to end, evenly spaced."""
    return np.unique(np.linspace(first, end - 1, min(most, end - first)).astype(np.int64))
