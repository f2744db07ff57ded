"""Evidence: own parts of different groups of columns do not correlate.

Each column of a view belongs to a group. Where every column is a group of its own, errors of columns are independent of each
other (separate assays); tests | instruments as groups is two-stage least squares; two assays as groups of controls tell T
by second moments, too. The equations are the CORRELATIONS of Cov(S1) and of Cov(S3) between different groups,

    g(T) = (rho_ij of Cov(S1), rho_kl of Cov(S3)) = 0 but for noise,      nats -(n / 2) g(T)' N^-1 g(T).

(Covariances of S1 vanish as T goes to I, whatever the data are: with fixed weights that end would always look right.)
N / n = Cov(g) at FIXED T for Gaussian rows, by the delta method: S moves with the sample, so that N is not the noise at
fixed S. Whitened entries of a sample covariance are independent with variances 1 / n (2 / n on the diagonal).

Nothing holds exactly on a real table, and much holds nearly: nats are divided by the dispersion chi-square / degrees of
freedom at the best T, as in quasi-likelihood, instead of a test that rejects or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.spectral import power
from richcomponents.inference.posterior import entries, symmetric_of
from richcomponents.pair.views import Pair, turned

__all__ = ["UncorrelatedOwnParts"]

INSIDE = 5e-4
"""How far T is kept from its ends, at which Cov(S1) or Cov(S3) is zero and has no correlations."""


@dataclass(frozen=True, eq=False)
class UncorrelatedOwnParts:
    """groups_u (d_u,), groups_v (d_v,) : the group of each column; -1 : correlations of the column are not looked at.

    stated : by the user; then it is used even where it cannot be contradicted.
    """

    groups_u: IntArray
    groups_v: IntArray
    stated: bool = False
    weight: Array = field(default_factory=lambda: np.zeros((0, 0)))
    scale: Array = field(default_factory=lambda: np.ones(1))
    name: str = "independent errors"

    @cached_property
    def between(self) -> list[tuple[IntArray, IntArray]]:
        """Pairs of columns of different groups, of U and of V."""
        pairs = []
        for groups in (self.groups_u, self.groups_v):
            i, j = np.triu_indices(len(groups), 1)
            differ = (groups[i] != groups[j]) & (groups[i] >= 0) & (groups[j] >= 0)
            pairs.append((i[differ], j[differ]))
        return pairs

    def _own(self, pair: Pair, T: Array) -> list[tuple[Array, Array]]:
        """Correlations and standard deviations of S1 and of S3."""
        out = []
        for W in (pair.cov_s1(T), pair.cov_s3(T)):
            size = np.sqrt(np.maximum(np.diagonal(W, axis1=-2, axis2=-1), 1e-300))
            out.append((W / size[..., :, None] / size[..., None, :], size))
        return out

    def residual(self, pair: Pair, T: Array) -> Array:
        """g (..., k)."""
        own = self._own(pair, inside(T))
        return np.concatenate([R[..., i, j] for (R, _), (i, j) in zip(own, self.between, strict=True)], axis=-1)

    def pulled(self, pair: Pair, T: Array, y: Array) -> Array:
        """The gradient (..., r, r) in T of y'g, at fixed y:

        d rho_ij = dW_ij / (s_i s_j) - rho_ij (dW_ii / W_ii + dW_jj / W_jj) / 2.
        """
        T = inside(T)
        ways = (
            pair.canonical.u_from_x @ (pair.from_x @ pair.h),
            pair.canonical.v_from_y @ (pair.from_y @ turned(pair.K) @ np.linalg.solve(pair.S(T), pair.h)),
        )
        slope, first = np.zeros(np.broadcast_shapes(T.shape, pair.K.shape)), 0
        for sign, way, (R, size), (i, j) in zip((-1, 1), ways, self._own(pair, T), self.between, strict=True):
            Y = np.zeros(np.broadcast_shapes(R.shape, (*y.shape[:-1], 1, 1)))
            Y[..., i, j] = Y[..., j, i] = y[..., first : first + len(i)] / 2
            Y = (Y - np.sum(Y * R, -1)[..., None] * np.eye(R.shape[-1])) / size[..., :, None] / size[..., None, :]
            slope, first = slope + sign * turned(way) @ Y @ way, first + len(i)
        return np.asarray((1 - 2 * INSIDE) * slope)

    # ---- as Evidence

    def scaled(self, scale: Array) -> UncorrelatedOwnParts:
        return replace(self, scale=scale)

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        g = self.residual(pair, T)
        y = g @ self.weight
        return -pair.n / 2 * np.sum(y * g, -1)[None], -(pair.n[..., None, None] * self.pulled(pair, T, y))[None]

    def weighed(self, pair: Pair, T: Array) -> UncorrelatedOwnParts:
        """With N^-1 at T; without any equation, no evidence."""
        if not sum(len(i) for i, _ in self.between):
            return self.scaled(np.zeros(1))
        slopes = noise_slopes(pair, lambda moved: self.residual(moved, T))
        values, vectors = np.linalg.eigh(slopes.T @ slopes)
        return replace(self, weight=(vectors / np.maximum(values, 1e-8 * values[-1])) @ vectors.T)

    def above_noise(self, values: Array) -> float:
        return 1.0

    def misfit(self, pair: Pair, T: Array) -> tuple[float, int]:
        """Chi-square of what T leaves, and its degrees of freedom."""
        return -2 * float(self.parts(pair, T)[0][0]), len(self.weight) - len(entries(T))

    def use(self, pair: Pair, T: Array) -> float:
        """One over the dispersion. What nothing can contradict is not used, unless it was stated."""
        misfit, spare = self.misfit(pair, T)
        return float(self.stated) if spare <= 0 else min(1.0, spare / max(misfit, 1e-300))

    def strength(self, pair: Pair, T: Array, end: Array) -> float:
        """The likelihood ratio as a normal number (Wilson and Hilferty)."""
        there, at_end = (float(np.tensordot(self.scale, self.parts(pair, one)[0], 1)) for one in (T, end))
        ratio, m = max(2 * (there - at_end), 0.0), len(entries(T))
        return float((np.cbrt(ratio / m) - 1 + 2 / (9 * m)) / np.sqrt(2 / (9 * m)))


def inside(T: Array) -> Array:
    """T, a little away from its ends."""
    return np.asarray(T + INSIDE * (np.eye(T.shape[-1]) - 2 * T))


def noise_slopes(pair: Pair, residual: Callable[[Pair], Array], step: float = 1e-4) -> Array:
    """(p (p + 1) / 2, k): derivatives of g in the whitened entries of the sample's covariance, times their standard deviations
    times n^1/2. By central differences, in chunks."""
    p = len(pair.covariance)
    root, (i, j) = power(pair.covariance, 0.5, 0.0), np.tril_indices(p)
    chunk, out = max(1, 2_000_000 // p**2), []
    for places in np.split(np.arange(len(i)), range(chunk, len(i), chunk)):
        unit = symmetric_of(np.eye(len(i))[places])
        ends = []
        for move in (step, -step):
            covariance = root @ (np.eye(p) + move * unit) @ root
            kept, n = np.broadcast_to(pair.kept, (len(places), *pair.kept.shape)), np.full(len(places), pair.n)
            ends.append(residual(Pair.of(pair.canonical, covariance, n, kept, pair.rank)))
        scale = np.where(i[places] == j[places], np.sqrt(2), 1)[:, None]
        out.append((ends[0] - ends[1]) / (2 * step) * scale)
    return np.concatenate(out)
