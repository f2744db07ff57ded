"""Evidence: cross-cumulants of order three and four, the paper's own.

All rows of M = unfold k(x, y, [w,] w) lie in the row space of Cov(S2, (x, y)). In white w = (h^-1 (x - K y), y) that is the one
of R = [T | h^-1 K], and tr(P G), P = R'(R R')^-1 R, is largest at the true T in expectation, where G is the mean of M_a'M_b
over pairs of DIFFERENT blocks: the plain Gram is signal + noise, and with r^3 rows the noise swamps the signal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.inference.draws import jackknife_variance
from richcomponents.pair.views import Pair, turned

__all__ = ["CrossCumulants"]


@dataclass(frozen=True, eq=False)
class CrossCumulants:
    """grams (2, B, B, 2r, 2r) : M_a'M_b by order, their last slot in the coordinates (x, y) of the whole sample."""

    grams: Array
    scale: Array = field(default_factory=lambda: np.array([1 / 4, 1 / 8]))
    name: str = "skewness and kurtosis"
    _seen: dict[int, tuple[Pair, Array]] = field(default_factory=dict, repr=False)

    def _whitening(self, pair: Pair) -> Array:
        """(x, y) of the whole sample -> w of the pair, (..., 2r, 2r)."""
        r = pair.rank
        out = np.zeros((*pair.K.shape[:-2], 2 * r, 2 * r))
        to_x, to_y = pair.to_x[..., :r], pair.to_y[..., :r]
        out[..., :r, :r], out[..., r:, r:] = np.linalg.solve(pair.h, to_x), to_y
        out[..., :r, r:] = -np.linalg.solve(pair.h, pair.K @ to_y)
        return out

    def _gram(self, pair: Pair) -> Array:
        """G (2, ..., 2r, 2r) in w."""
        if id(pair) not in self._seen:
            white, kept = self._whitening(pair), pair.kept
            pairs = kept[..., :, None] * kept[..., None, :] * (1 - np.eye(kept.shape[-1]))
            mean = np.tensordot(pairs / pairs.sum((-1, -2), keepdims=True), self.grams, ((-2, -1), (1, 2)))
            mean = np.moveaxis(mean, -3, 0)
            self._seen[id(pair)] = pair, white @ (mean + turned(mean)) / 2 @ turned(white)
        return self._seen[id(pair)][1]

    def scaled(self, scale: Array) -> CrossCumulants:
        return replace(self, scale=scale)

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        G, r = self._gram(pair), T.shape[-1]
        G = G.reshape(2, *(1,) * (T.ndim - G.ndim + 1), *G.shape[1:])
        R = np.concatenate(np.broadcast_arrays(T, np.linalg.solve(pair.h, pair.K)), axis=-1)
        dual = np.linalg.solve(R @ turned(R), R)
        inner = dual @ G @ turned(R)
        slope = (dual @ G)[..., :r] - inner @ dual[..., :r]
        return pair.n * np.trace(inner, axis1=-2, axis2=-1), pair.n[..., None, None] * (slope + turned(slope))

    def weighed(self, pair: Pair, T: Array) -> CrossCumulants:
        return self

    def above_noise(self, values: Array) -> float:
        """An energy is a square: the share above its jackknife variance counts."""
        return max(0.0, 1 - float(jackknife_variance(values) / max(float(values.mean()) ** 2, 1e-300)))

    def use(self, pair: Pair, T: Array) -> float:
        return 1.0

    def _projector(self, pair: Pair, T: Array) -> Array:
        R = np.hstack([T, np.linalg.solve(pair.h, pair.K)])
        return np.asarray(R.T @ np.linalg.pinv(R @ R.T) @ R)

    def strength(self, pair: Pair, T: Array, end: Array) -> float:
        """Energy above that of the end, over its standard error under random signs of the blocks: without any signal their
        cumulants are noise about zero. (A jackknife does not tell the error of a degenerate U-statistic.)"""
        white = self._whitening(pair)
        contrast = white.T @ (self._projector(pair, T) - self._projector(pair, end)) @ white
        q = np.tensordot(np.tensordot(self.scale, self.grams, 1), contrast, 2) * (1 - np.eye(self.grams.shape[1]))
        return float(q.sum() / np.sqrt(2 * np.sum(q**2) + 1e-300))
