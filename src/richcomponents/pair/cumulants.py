"""Evidence: cross-cumulants of order three and four, the paper's own.

With r shared directions, z = (x, y) and w = (h^-1 (x - K y), y) the jointly whitened z, the higher orders see the shared part
through k3(x_i, y_j, w_a) and k4(x_i, y_j, w_b, w_a): one slot in each view makes S1 and S3 drop out. All rows of M, their
unfolding with the last slot free, lie in the row space of Cov(S2, w), the one of R = [T | h^-1 K], and tr(P G),
P = R'(R R')^-1 R, is largest at the true T in expectation, where G is the mean of M_a'M_b over pairs of DIFFERENT blocks: the
plain Gram is signal + noise, and with r^3 rows the noise swamps the signal.

Two ways to the same matrices (`form_of` chooses):

* "state": block cumulants of order four of z are formed, packed, and multiplied: O(n r^4), B r^4 numbers. Any number of
  rows, and states without rows.
* "pairs": M_a'M_b = E_a E_b [(x.x') (y.y') (w.w') w w'] over rows of both blocks, less the pairings: O(n^2 r), no tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.algebra.packing import packed_rank
from richcomponents.cumulants.kstatistics import block_grams, linearised_block_cumulants
from richcomponents.inference.posterior import Modes, Prior, entries, logistic, symmetric_of
from richcomponents.inference.verdicts import RULES, Test
from richcomponents.moments.state import Moments
from richcomponents.pair.views import Pair


@dataclass(frozen=True, eq=False)
class CrossCumulants:
    """grams (2, B, B, 2r, 2r) : M_a'M_b by order, their last slot in the coordinates (x, y) of the whole sample."""

    grams: Array
    scale: Array = field(default_factory=lambda: np.array([1 / 4, 1 / 8]))
    name: str = "skewness and kurtosis"
    _seen: dict[int, tuple[Pair, Array]] = field(default_factory=dict, repr=False)

    def _gram(self, pair: Pair) -> Array:
        """G (2, ..., 2r, 2r) in w."""
        if id(pair) not in self._seen:
            white, kept = pair.whitening, pair.kept
            pairs = kept[..., :, None] * kept[..., None, :] * (1 - np.eye(kept.shape[-1]))
            mean = np.tensordot(pairs / pairs.sum((-1, -2), keepdims=True), self.grams, ((-2, -1), (1, 2)))
            mean = np.moveaxis(mean, -3, 0)
            self._seen[id(pair)] = pair, white @ (mean + mean.mT) / 2 @ white.mT
        return self._seen[id(pair)][1]

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        G, r = self._gram(pair), T.shape[-1]
        G = G.reshape(2, *(1,) * (T.ndim - G.ndim + 1), *G.shape[1:])
        R = row_space(pair, T)
        dual = np.linalg.solve(R @ R.mT, R)
        inner = dual @ G @ R.mT
        slope = (dual @ G)[..., :r] - inner @ dual[..., :r]
        return pair.n * np.trace(inner, axis1=-2, axis2=-1), pair.n[..., None, None] * (slope + slope.mT)

    def weighed(self, pair: Pair, T: Array) -> CrossCumulants:
        return self

    def above_noise(self, values: Array) -> Array:
        """An energy is a square: the share above its jackknife variance counts."""
        noise = jackknife_variance(values.T) / np.maximum(values.mean(1) ** 2, 1e-300)
        return np.asarray(np.maximum(1 - noise, 0.0))

    def use(self, pair: Pair, left_out: Pair, T: Array) -> tuple[float, Test]:
        """As far as its test does not reject: energy of the cumulants outside the fitted row space, with a sign-flip p-value.

        Block a contributes psi_a = M_a E + mean(M) dE_a: its own cumulants outside the row space and, to first order, its
        influence on that space through T and through the second moments. Under the model the psi_a are independent with mean
        zero, so that flipping their signs does not change the law of sum_{a != b} <psi_a, psi_b>. T is the one that the
        cumulants alone ask for: shrinkage leaves signal outside the fitted row space, which is no misspecification.
        """
        values, vectors = np.linalg.eigh(T)
        values = np.clip(values, 1e-6, 1 - 1e-6)
        centre = entries((vectors * np.log(values / (1 - values))) @ vectors.T)
        top = Modes.of([self], pair, [Prior(pair, 3.0, centre=centre)])
        e0 = _outside(pair, logistic(symmetric_of(top.X[0]))[0])
        each = _outside(left_out, top.without_blocks([self], pair, left_out)[0])
        test = _flip_test(_inner_products(self.grams, e0, each, pair.whitening.T))
        return test.allowed, test

    def strength(self, pair: Pair, T: Array, end: Array) -> float:
        """Energy above that of the end, over its standard error under random signs of the blocks: without any signal their
        cumulants are noise about zero. (A jackknife does not tell the error of a degenerate U-statistic.)"""
        white = pair.whitening
        contrast = white.T @ (projector(pair, T) - projector(pair, end)) @ white
        q = np.tensordot(np.tensordot(self.scale, self.grams, 1), contrast, 2) * (1 - np.eye(self.grams.shape[1]))
        return float(q.sum() / np.sqrt(2 * np.sum(q**2) + 1e-300))


def row_space(pair: Pair, T: Array) -> Array:
    """R (..., r, 2r), in w."""
    return np.concatenate(np.broadcast_arrays(T, pair.slope), axis=-1)


def projector(pair: Pair, T: Array) -> Array:
    """P (..., 2r, 2r), in w."""
    R = row_space(pair, T)
    return np.asarray(R.mT @ np.linalg.pinv(R @ R.mT, hermitian=True) @ R)


def _outside(pair: Pair, T: Array) -> Array:
    """E (..., 2m, 2m) with M E = the part of the cumulants M outside the row space of [S | K], in the sample's (x, y)."""
    lift = pair.whitening.mT
    outside = np.eye(lift.shape[-1]) - projector(pair, T)
    return np.asarray(lift @ outside @ np.linalg.inv(lift))


def _inner_products(grams: Array, e0: Array, each: Array, metric: Array) -> Array:
    """<psi_a, psi_b> per order, (2, B, B), zero on the diagonal.

    Means over blocks leave out a and b (first correction) or all pairs of a block with itself (second): the squared noise of
    m^3 rows would swamp the signal there as it does in the plain Gram matrix.
    """
    blocks = grams.shape[1]
    e0, influence = e0 @ metric, -(blocks - 1) * (each - each.mean(0)) @ metric
    off = 1 - np.eye(blocks)
    others = ((grams * off[:, :, None, None]).sum(2)[:, :, None] - grams) / (blocks - 2)
    overall = np.stack([np.tensordot(off / off.sum(), one, 2) for one in grams])
    first = np.tensordot(grams, e0 @ e0.T, 2)
    cross = np.einsum("mabij,bij->mab", others, e0 @ influence.mT)
    flat = influence.reshape(blocks, -1)
    both = np.stack([(one @ influence).reshape(blocks, -1) @ flat.T for one in overall])
    inner = first + cross + cross.mT + both
    return np.asarray((inner + inner.mT) / 2 * off)


def _flip_test(inner: Array, flips: int = 1999) -> Test:
    """One-sided: the largest of the orders' sums and of their total, each over its root mean square under random signs."""
    says = "Cross-cumulants do not have the structure of U = S1 + S2, V = A S2 + S3 with independent parts."
    fits = "Cross-cumulants do not contradict U = S1 + S2, V = A S2 + S3 with independent parts."
    size = np.sqrt(2 * (inner**2).sum((1, 2)))
    k = inner[size > 0] / size[size > 0, None, None]
    if len(k) == 0:
        return Test("fit", 0.0, (), 1.0, fits)
    if len(k) > 1:
        total = k.sum(0)
        k = np.concatenate([k, (total / np.sqrt(2 * (total**2).sum()))[None]])
    s = np.random.default_rng(0).choice([-1.0, 1.0], (flips, k.shape[1]))
    null = np.max([np.sum(s @ one * s, axis=1) for one in k], axis=0)
    stat = float(k.sum((1, 2)).max())
    p = (1 + int((null >= stat).sum())) / (1 + flips)
    return Test("fit", stat, (), p, says if p < RULES["fit"].below[-1][0] else fits)


# ---- Gram matrices between blocks of samples


def form_of(n: int, r: int, n_blocks: int) -> str:
    """How the evidence of n rows about r shared directions is read: pairs are cheaper for few rows and many directions."""
    return "pairs" if 4 * n_blocks <= n < r**3 / 10 else "state"


def grams(state: Moments, correlations: Array, *, order: int = 4) -> Array:
    """Gram matrices M_a'M_b of all pairs of non-empty blocks: (2 orders, B, B, 2r, 2r), last slot z = (x, y).

    state : moments of the leading coordinates z = (x_1..x_r, y_1..y_r). Each block is scaled by its rows over the mean
    number of rows, so that plain means over (pairs of) blocks give every row the same weight. order=3 leaves the
    second matrix zero. Memory: about 10 (2 B r)^2 doubles (50 MB for r = 20, B = 20).
    """
    sizes = state.block_sizes[state.block_sizes > 0]
    B, r, m = len(sizes), len(correlations), 2 * len(correlations)
    out, h = np.zeros((2, B, B, m, m)), np.sqrt(1 - correlations**2)[:, None, None]
    for t in range(3, order + 1):
        packed = np.ascontiguousarray((linearised_block_cumulants(state, t) * (sizes / sizes.mean())[:, None]).T)
        product = np.zeros((m * B, m * B))
        for i in range(r):
            slots = np.stack(np.meshgrid(i, np.arange(r, m), *[np.arange(m)] * (t - 2), indexing="ij"), axis=-1)
            rows = packed[packed_rank(np.sort(slots, axis=-1), m)[0]]  # (y_j, [z_b,] z_a, block)
            if t == 4:  # w_b in the place of z_b
                rows[:, :r] = (rows[:, :r] - correlations[:, None, None] * rows[:, r:]) / h
            flat = rows.reshape(-1, m * B)
            product += flat.T @ flat
        out[t - 3] = product.reshape(m, B, m, B).transpose(1, 3, 0, 2)
    return out


def implicit_grams(z: Array, correlations: Array, *, n_blocks: int) -> Array:
    """The same from rows z (n, 2r) compared in pairs: O(n^2 r).

    Block cumulants are k-statistics of their own rows here: slightly noisier, equally unbiased.
    """
    (x, y), h = np.hsplit(z - z.mean(axis=0), 2), np.sqrt(1 - correlations**2)
    w = np.hstack([(x - correlations * y) / h, y])
    return block_grams([x, y, w], np.hstack([x, y]), n_blocks=n_blocks, below=True)
