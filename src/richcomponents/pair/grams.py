"""The evidence of orders three and four: Gram matrices between blocks of samples.

Notation: r shared directions, z = (x, y) with 2r entries, B disjoint blocks of rows.

The higher orders see the shared part through the cross-cumulants

    k3(x_i, y_j, w_a)       and       k4(x_i, y_j, w_b, w_a),      w = (e, y),  e = h^-1 (x - D y),

where w is the jointly whitened (x, y): Cov(w) = I. One slot in each view makes S1 and S3 drop out,
so that every row (all slots but the last fixed) lies in the row space of Cov(S2, w) = [h T | D].

A plain Gram matrix M'M of these rows is signal plus noise, and the noise wins. Products of DIFFERENT
blocks, M_a'M_b with a != b, have independent noise and therefore no bias; only they are ever used.

FORMS. Two ways to the same matrices (`form_of` chooses):

* "state": block cumulants of order four of z are formed, packed, and multiplied: O(n r^4), B r^4 numbers. Any number of
  rows, and states without rows.
* "pairs": M_a'M_b = E_a E_b [(x.x') (y.y') (w.w') w w'] over rows of both blocks, less the pairings: O(n^2 r), no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from richcomponents.algebra.arrays import Array, IntArray, available_cores, run_all
from richcomponents.algebra.packing import packed_indices, packed_rank
from richcomponents.cumulants.kstatistics import block_grams, linearised_block_cumulants
from richcomponents.moments.state import Moments

_PIECES, _PIECE = 16, 1000  # of the work for threads, at most, and the least rows of one
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
    """Gram matrices M_a'M_b of all pairs of non-empty blocks: (2 orders, B, B, 2r, 2r), last slot z = (x, y).

    state : moments of the leading coordinates z = (x_1..x_r, y_1..y_r). Each block is scaled by its rows over the mean
    number of rows, so that plain means over (pairs of) blocks give every row the same weight. order=3 leaves the
    second matrix zero. Memory: about 10 (2 B r)^2 doubles (50 MB for r = 20, B = 20).
    """
    sizes = state.block_sizes[state.block_sizes > 0]
    share = sizes / sizes.mean()
    m = 2 * len(correlations)
    out = np.zeros((2, len(sizes), len(sizes), m, m))
    for t in range(3, order + 1):
        packed = linearised_block_cumulants(state, t) * share[:, None]
        out[t - 3] = _pair_products(packed, correlations, t)
    return _in_z(out, correlations)


def _in_z(seen: Array, correlations: Array) -> Array:
    """Grams whose last slot is w, as those in (x, y)."""
    back = np.linalg.inv(joint_whitening(correlations))
    return np.asarray(back @ seen @ back.T)


def _pair_products(packed: Array, correlations: Array, order: int) -> Array:
    """M_a'M_b (B, B, 2r, 2r) for M = unfold k(x, y, [w,] w), from packed block cumulants (B, .) of z."""
    n_blocks, r = len(packed), len(correlations)
    m = 2 * r
    where = _places(r, order)
    # All blocks side by side: one product for all pairs. Many rows are held in single precision: rounding is then five
    # orders of magnitude below the sampling noise of the rows, and the product takes half the time.
    kind: Any = np.float32 if r >= _MANY else np.float64
    entries: Array = np.ascontiguousarray(packed.T, dtype=kind)  # (., B)
    scale = 1 / np.sqrt(1 - correlations**2)
    of_x, of_y = (part.astype(kind)[:, None] for part in (scale, -correlations * scale))  # joint whitening
    roots = _row_roots(correlations).astype(kind) if order == 4 else None
    pieces = np.array_split(np.arange(len(where)), np.clip(where.size // m // _PIECE, 1, min(len(where), _PIECES)))
    products: list[Array] = [np.empty(0)] * len(pieces)

    def multiply(numbers: Iterator[int]) -> None:
        for number in numbers:
            piece = pieces[number]
            rows = entries[where[piece]]  # (rows, 1 or 6, z, B)
            rows[..., :r, :] *= of_x
            rows[..., :r, :] += rows[..., r:, :] * of_y
            rows = rows.reshape(*rows.shape[:2], -1)
            flat = (rows if roots is None else roots[piece] @ rows).reshape(-1, m * n_blocks)
            products[number] = flat.T @ flat

    run_all(multiply, range(len(pieces)), available_cores())
    product = np.zeros((n_blocks * m, n_blocks * m))
    for part in products:  # in a fixed order: the same bits for any number of threads
        product += part
    return np.ascontiguousarray(product.reshape(m, n_blocks, m, n_blocks).transpose(1, 3, 0, 2))


@lru_cache(maxsize=2)
def _places(r: int, order: int) -> IntArray:
    """Where the entries of rows stand in a packed symmetric tensor of z: (., rows, 2r).

    Order three: rows (x_i, y_j), one by one. Order four: of rows (x_i, y_j, z_b) the ones that differ. Those of three numbers
    p, q and s, in any order, stand together: (x, y, x) with y_p, y_q and y_s, then (x, y, y) with x_p, x_q and x_s.
    """
    m = 2 * r
    if order == 3:
        rows = np.stack(np.meshgrid(np.arange(r), np.arange(r, m), indexing="ij"), axis=-1).reshape(-1, 1, 2)
    else:
        odd = np.eye(3, dtype=np.int64)
        rows = packed_indices(r, 3)[:, None, :] + r * np.concatenate([odd, 1 - odd])  # (., 6, 3)
    last = np.broadcast_to(np.arange(m)[:, None], (*rows.shape[:2], m, 1))
    full = np.concatenate([np.broadcast_to(rows[:, :, None], (*rows.shape[:2], m, order - 1)), last], axis=-1)
    return packed_rank(np.sort(full, axis=-1), m)


def _row_roots(correlations: Array) -> Array:
    """(., 6, 6): maps of the six rows of each p <= q <= s to rows of the same Gram as all their (x_i, y_j, w_b).

    By symmetry r^2 2r rows are about half as many different ones. Row (x_i, y_j, e_b) is ((x_i, y_j, x_b) - D_b (x_i, y_j,
    y_b)) / h_b; over the orders of p, q, s these and the (x_i, y_j, y_b) have the Gram R'Q R in the six rows R, and L'R has it
    for Q = L L'. Equal numbers repeat orders: each counts once.
    """
    triples = packed_indices(len(correlations), 3)  # p <= q <= s
    D = correlations[triples]  # (., 3)
    scale = 1 / np.sqrt(1 - D**2)
    Q = np.zeros((len(D), 6, 6))
    for i, j, b in permutations(range(3)):
        e = np.zeros((len(D), 6))
        e[:, j], e[:, 3 + i] = scale[:, b], -D[:, b] * scale[:, b]
        Q += e[:, :, None] * e[:, None, :]
        Q[:, 3 + i, 3 + i] += 1.0
    p, q, s = triples.T
    same = np.where(p == s, 6.0, np.where((p == q) | (q == s), 2.0, 1.0))
    return np.swapaxes(np.linalg.cholesky(Q / same[:, None, None]), 1, 2)


def form_of(n: int, r: int, n_blocks: int) -> str:
    """How the evidence of n rows about r shared directions is read: pairs are the cheaper one for few rows and many
    directions."""
    return "pairs" if 4 * n_blocks <= n < r**3 / 10 else "state"


def implicit_grams(z: Array, correlations: Array, *, n_blocks: int) -> Array:
    """The same from rows z (n, 2r) compared in pairs: O(n^2 r).

    Block cumulants are k-statistics of their own rows here: slightly noisier, equally unbiased.
    """
    z = z - z.mean(axis=0)
    (x, y), w = np.hsplit(z, 2), z @ joint_whitening(correlations).T
    return _in_z(block_grams([x, y, w], w, n_blocks=n_blocks, below=True), correlations)
