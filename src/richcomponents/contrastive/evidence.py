"""The evidence of orders three and four: Gram matrices between blocks of samples.

Notation: r shared directions, z = (x, y) with 2r entries, B disjoint blocks of rows.

The higher orders see the shared part through the cross-cumulants

    k3(x_i, y_j, w_a)       and       k4(x_i, y_j, w_b, w_a),      w = (e, y),  e = h^-1 (x - D y),

where w is the jointly whitened (x, y): Cov(w) = I. One slot in each view makes S1 and S3 drop out,
so that every row (all slots but the last fixed) lies in the row space of Cov(S2, w) = [h T | D].

A plain Gram matrix M'M of these rows is signal plus noise, and the noise wins. Products of DIFFERENT
blocks, M_a'M_b with a != b, have independent noise and therefore no bias; only they are ever used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from richcomponents.algebra.arrays import Array, IntArray, available_cores, run_all
from richcomponents.algebra.packing import packed_rank
from richcomponents.algebra.spectral import symmetric
from richcomponents.cumulants.kstatistics import block_grams, linearised_block_cumulants
from richcomponents.moments.state import Moments

_PIECES = 16  # of the work for threads
_MANY = 12  # shared directions from which the rows of order four are counted in thousands


def joint_whitening(correlations: Array) -> Array:
    """The map W (2r, 2r) from z = (x, y) to w = (h^-1 (x - D y), y), for correlations D (r,)."""
    r = len(correlations)
    h = np.sqrt(1 - correlations**2)
    out = np.eye(2 * r)
    out[:r, :r] = np.diag(1 / h)
    out[:r, r:] = np.diag(-correlations / h)
    return out


def grams(state: Moments, correlations: Array, *, order: int = 4) -> Array:
    """Gram matrices M_a'M_b of all pairs of non-empty blocks: (2 orders, B, B, 2r, 2r), last slot w.

    state : moments of the leading coordinates z = (x_1..x_r, y_1..y_r). Each block is scaled by its rows over the mean
    number of rows, so that plain means over (pairs of) blocks give every row the same weight. order=3 leaves the
    second matrix zero. Memory: about 10 (2 B r)^2 doubles (50 MB for r = 20, B = 20).
    """
    sizes = state.block_sizes[state.block_sizes > 0]
    share = sizes / sizes.mean()
    m = 2 * len(correlations)
    out = np.zeros((2, len(sizes), len(sizes), m, m))
    whiten = joint_whitening(correlations)
    for t in range(3, order + 1):
        packed = linearised_block_cumulants(state, t) * share[:, None]
        out[t - 3] = _pair_products(packed, whiten, t)
    return out


def _pair_products(packed: Array, whiten: Array, order: int) -> Array:
    """M_a'M_b (B, B, 2r, 2r) for M = unfold k(x, y, [w,] w), from packed block cumulants (B, .) of z."""
    n_blocks, m = len(packed), len(whiten)
    r = m // 2
    where = _places(r, order)
    # All blocks side by side: one product for all pairs. Many rows are held in single precision: rounding is then five
    # orders of magnitude below the sampling noise of the rows, and the product takes half the time.
    kind = np.float32 if r >= _MANY else np.float64
    packed, whiten = packed.astype(kind, copy=False), whiten.astype(kind, copy=False)
    pieces = np.array_split(where, min(len(where), _PIECES))
    products: list[Array] = [np.empty(0)] * len(pieces)

    def multiply(numbers: Iterator[int]) -> None:
        for number in numbers:
            place = pieces[number]
            rows = np.empty((*place.shape[:2], n_blocks, m), dtype=kind)
            for b in range(n_blocks):
                last = packed[b][place] @ whiten.T
                rows[:, :, b] = np.matmul(whiten, last) if order == 4 else last
            flat = rows.reshape(-1, n_blocks * m)
            products[number] = flat.T @ flat

    run_all(multiply, range(len(pieces)), available_cores())
    product = np.zeros((n_blocks * m, n_blocks * m))
    for part in products:  # in a fixed order: the same bits for any number of threads
        product += part
    return np.asarray(product.reshape(n_blocks, m, n_blocks, m).swapaxes(1, 2))


@lru_cache(maxsize=2)
def _places(r: int, order: int) -> IntArray:
    """Where the entries (x y, [z,] z) stand in a packed symmetric tensor of z: (r^2, 2r or 1, 2r)."""
    m = 2 * r
    axes = [np.arange(r), np.arange(r, m), *[np.arange(m)] * (order - 2)]
    found = packed_rank(np.sort(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), axis=-1), m)
    return found.reshape(r * r, -1, m)


def implicit_grams(z: Array, whiten: Array, *, n_blocks: int) -> Array:
    """The same from rows z (n, 2r), without fourth moments: O(n^2 r). For many shared directions and few rows.

    Block cumulants are k-statistics of their own rows here: slightly noisier, equally unbiased.
    """
    r = len(whiten) // 2
    z = z - z.mean(axis=0)
    x, y, w = z[:, :r], z[:, r:], z @ whiten.T
    return np.stack([block_grams([x, y], w, n_blocks=n_blocks), block_grams([w, x, y], w, n_blocks=n_blocks)])


def pair_mean(gram: Array, left: Array, right: Array | None = None) -> Array:
    """Weighted means over pairs of different blocks of ``gram`` (*n, B, B, k, k): (*m, *n, k, k), symmetric.

    ``left`` and ``right`` (*m, B), equal by default, are block weights; the pair (a, b) gets left_a right_b + right_a left_b.
    """
    return symmetric(_pair_mean(gram, left, left if right is None else right))


def pair_means(gram: Array, left: Array, right: Array | None = None) -> Array:
    """The same, weights by weights: bits that do not depend on how many there are."""
    right = left if right is None else right
    return symmetric(np.stack([_pair_mean(gram, one, other) for one, other in zip(left, right, strict=True)]))


def _pair_mean(gram: Array, left: Array, right: Array) -> Array:
    weights = left[..., :, None] * right[..., None, :]
    weights = (weights + weights.swapaxes(-1, -2)) * (1 - np.eye(weights.shape[-1]))
    weights = weights / weights.sum((-1, -2), keepdims=True)
    out: Array = np.tensordot(weights, np.moveaxis(gram, (-4, -3), (0, 1)), axes=((-2, -1), (0, 1)))
    return out
