"""The evidence of orders three and four: Gram matrices between blocks of samples.

Notation: r shared directions, z = (x, y) with 2r entries, B disjoint blocks of rows.

The higher orders see the shared part through the cross-cumulants

    k3(x_i, y_j, w_a)       and       k4(x_i, y_j, w_b, w_a),      w = (e, y),  e = h^-1 (x - D y),

where w is the jointly whitened (x, y): Cov(w) = I. One slot in each view makes S1 and S3 drop out,
so that every row (all slots but the last fixed) lies in the row space of Cov(S2, w) = [h T | D].

A plain Gram matrix M'M of these rows is signal plus noise, and the noise wins. Products of DIFFERENT
blocks, M_a'M_b with a != b, have independent noise and therefore no bias; only they are ever used.

FORMS. Three ways to the same matrices (`form_of` chooses):

* "state": block cumulants of order four of z are formed, packed, and multiplied: O(n r^4), B r^4 numbers. Any number of
  rows, and states without rows.
* "pairs": M_a'M_b = E_a E_b [(x.x') (y.y') (w.w') w w'] over rows of both blocks, less the pairings: O(n^2 r), no tensor.
* "sketch": some of the rows of M only. With slots turned by random rotations, a random part of all (i, j, b), in units in
  which its expectation is the whole Gram; all of them are the whole Gram. One pass of O(n r) per row of M, any number of
  samples. What is left out costs precision, not truth: every row of M lies in the same row space, and blocks tell the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from richcomponents.algebra.arrays import MEMORY_LIMIT, Array, IntArray, available_cores, run_all
from richcomponents.algebra.packing import packed_indices, packed_rank
from richcomponents.algebra.spectral import symmetric
from richcomponents.cumulants.kstatistics import block_grams, linearised_block_cumulants
from richcomponents.moments.kernel import block_numbers
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
    """Gram matrices M_a'M_b of all pairs of non-empty blocks: (2 orders, B, B, 2r, 2r), last slot w.

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
    return out


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
    of_x, of_y = (
        part.astype(kind)[:, None] for part in (scale, -correlations * scale)
    )  # two diagonals: joint whitening
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


def _triples(r: int) -> IntArray:
    """All p <= q <= s below r: (3, .)."""
    return packed_indices(r, 3).T


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
        rows = _triples(r).T[:, None, :] + r * np.concatenate([odd, 1 - odd])  # (., 6, 3)
    last = np.broadcast_to(np.arange(m)[:, None], (*rows.shape[:2], m, 1))
    full = np.concatenate([np.broadcast_to(rows[:, :, None], (*rows.shape[:2], m, order - 1)), last], axis=-1)
    return packed_rank(np.sort(full, axis=-1), m)


def _row_roots(correlations: Array) -> Array:
    """(., 6, 6): maps of the six rows of each p <= q <= s to rows of the same Gram as all their (x_i, y_j, w_b).

    By symmetry r^2 2r rows are about half as many different ones. Row (x_i, y_j, e_b) is ((x_i, y_j, x_b) - D_b (x_i, y_j,
    y_b)) / h_b; over the orders of p, q, s these and the (x_i, y_j, y_b) have the Gram R'Q R in the six rows R, and L'R has it
    for Q = L L'. Equal numbers repeat orders: each counts once.
    """
    triples = _triples(len(correlations))
    D = correlations[triples].T  # (., 3)
    scale = 1 / np.sqrt(1 - D**2)
    Q = np.zeros((len(D), 6, 6))
    for i, j, b in permutations(range(3)):
        e = np.zeros((len(D), 6))
        e[:, j], e[:, 3 + i] = scale[:, b], -D[:, b] * scale[:, b]
        Q += e[:, :, None] * e[:, None, :]
        Q[:, 3 + i, 3 + i] += 1.0
    p, q, s = triples
    same = np.where(p == s, 6.0, np.where((p == q) | (q == s), 2.0, 1.0))
    return np.swapaxes(np.linalg.cholesky(Q / same[:, None, None]), 1, 2)


MOST_PAIRED = 50_000  # rows that are compared in pairs
SKETCH_WORK = 10**12  # multiplications that a sketch may take: about half a minute
SKETCH_NUMBERS = MEMORY_LIMIT // 32  # that it may hold, twice: half a GiB
_TILE = 512  # rows of a block, and rows of M, that are multiplied at once


def form_of(n: int, r: int, n_blocks: int, *, held: bool, independent: bool) -> str:
    """How the evidence of n rows about r shared directions is read: "state", "pairs" or "sketch".

    held : whether a state of order four of the shared coordinates can be kept; independent : whether rows are at hand, and
    independent of each other. The exact forms come first: pairs where they are much the cheaper one (few rows, many
    directions) or the only one, the state where it can be kept; else the sketch.
    """
    paired = independent and 4 * n_blocks <= n <= MOST_PAIRED
    if held:
        return "pairs" if paired and n < r**3 / 10 else "state"
    return "pairs" if paired else "sketch"


def implicit_grams(z: Array, whiten: Array, *, n_blocks: int) -> Array:
    """The same from rows z (n, 2r) compared in pairs: O(n^2 r).

    Block cumulants are k-statistics of their own rows here: slightly noisier, equally unbiased.
    """
    r = len(whiten) // 2
    z = z - z.mean(axis=0)
    x, y, w = z[:, :r], z[:, r:], z @ whiten.T
    return block_grams([x, y, w], w, n_blocks=n_blocks, below=True)


def sketched_rows(n: int, r: int, n_blocks: int) -> tuple[int, int]:
    """How many rows of the unfolded cumulants of order three and four a sketch reads; all of them are r^2 and 2 r^3.

    Order three, which has fewer and says more, gets up to half of what work and memory allow.
    """
    each = 3 * n * r + 2 * (n_blocks * r) ** 2
    most = max(min(SKETCH_WORK // each, SKETCH_NUMBERS // (2 * n_blocks * r)), 2 * r)
    third = min(r**2, most // 2)
    return third, min(2 * r**3, most - third)


class Sketch:
    """The same from rows z (n, 2r), in any order of their blocks, read once: a statistic for `reduce_rows`.

    state : second moments of the same rows, by block; rows : of the unfolded cumulants of order three and four; weighted :
    whether the last column says how often a row counts. Block cumulants are k-statistics of their own rows, as in pairs.
    """

    def __init__(
        self,
        state: Moments,
        correlations: Array,
        rows: tuple[int, int],
        random_state: int | None,
        weighted: bool = False,
    ) -> None:
        self.r = r = len(correlations)
        self.used, sizes = np.flatnonzero(state.block_sizes), state.block_sizes.astype(np.float64)
        self.n_blocks, self.sizes, self.weighted = len(sizes), sizes, weighted
        first = state.central_blocks()[:, state.layout.orders[1]] / np.maximum(sizes, 1)[:, None]
        self.means = state.mean + first
        rng = np.random.default_rng(random_state)
        whiten = joint_whitening(correlations)
        turns = [np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (r, r, 2 * r)]
        self.slots = np.zeros((2 * r, 6 * r))  # z -> (x, y, w turned, w)
        self.slots[:r, :r], self.slots[r:, r : 2 * r] = turns[0], turns[1]
        self.slots[:, 2 * r : 4 * r], self.slots[:, 4 * r :] = whiten.T @ turns[2], whiten.T
        second = state.block_covariances() - first[:, :, None] * first[:, None, :]
        self.covariances = self.slots.T @ second @ self.slots
        # rows of M: which columns of the slots they are the product of
        self.chosen = [
            np.stack(np.unravel_index(np.sort(rng.permutation(r * r * k)[:count]), (r, r, k)[: 2 + order]))
            + np.array([0, r, 2 * r])[: 2 + order, None]
            for order, (k, count) in enumerate(zip((1, 2 * r), rows, strict=True))
        ]
        self.sums = [np.zeros((len(self.used), chosen.shape[1], 2 * r)) for chosen in self.chosen]
        self._left: list[list[Array]] = [[] for _ in self.used]

    def update(self, rows: object, start: int | None = None) -> None:
        """Rows in order: row i belongs to block i mod B."""
        block = np.asarray(rows, dtype=np.float64)
        self._take(block, (np.arange(len(block)) + (start or 0)) % self.n_blocks)

    def grouped(self, groups: object) -> Callable[[object, int], None]:
        """A function that takes rows in order; groups : the labels of all that will come."""
        blocks = block_numbers(len(np.asarray(groups)), self.n_blocks, groups)

        def take(rows: object, start: int) -> None:
            block = np.asarray(rows, dtype=np.float64)
            self._take(block, blocks[start : start + len(block)])

        return take

    def _take(self, rows: Array, blocks: IntArray) -> None:
        """Tiles hold the same rows however they come: the sums have the same bits."""
        for at, b in enumerate(self.used):
            waiting = np.concatenate([*self._left[at], rows[blocks == b]])
            whole = len(waiting) // _TILE * _TILE
            for first in range(0, whole, _TILE):
                self._add(at, waiting[first : first + _TILE])
            self._left[at] = [waiting[whole:].copy()]

    def _add(self, at: int, rows: Array) -> None:
        weight = rows[:, -1:] if self.weighted else 1.0
        z = np.ascontiguousarray(((rows[:, : 2 * self.r] - self.means[self.used[at]]) @ self.slots).T)
        last = np.ascontiguousarray(z[4 * self.r :].T) * weight

        def multiply(tiles: Iterator[tuple[int, int]]) -> None:
            for order, first in tiles:
                part = slice(first, first + _TILE)
                product = z[self.chosen[order][0, part]]
                for slot in self.chosen[order][1:, part]:
                    product *= z[slot]
                self.sums[order][at, part] += product @ last

        tiles = [(order, first) for order in (0, 1) for first in range(0, self.chosen[order].shape[1], _TILE)]
        run_all(multiply, tiles, available_cores())

    def result(self) -> Array:
        """(2, B, B, 2r, 2r), blocks scaled as in `grams`."""
        for at, left in enumerate(self._left):
            for rows in left:
                if len(rows):
                    self._add(at, rows)
            self._left[at] = []
        m, blocks = 2 * self.r, len(self.used)
        share = self.sizes[self.used] / self.sizes[self.used].mean()
        out = np.zeros((2, blocks, blocks, m, m))
        for order, (chosen, whole) in enumerate(zip(self.chosen, (self.r**2, m * self.r**2), strict=True)):
            if not chosen.shape[1]:
                continue
            rows = np.stack([self._cumulants(order, at) * share[at] for at in range(blocks)], axis=1)
            flat = rows.reshape(len(rows), -1) * np.sqrt(whole / len(rows))
            out[order] = (flat.T @ flat).reshape(blocks, m, blocks, m).swapaxes(1, 2)
        return out

    def _cumulants(self, order: int, at: int) -> Array:
        """k-statistics of one block, (rows of M, 2r)."""
        n, C = self.sizes[self.used[at]], self.covariances[self.used[at]]
        moment, slots = self.sums[order][at] / n, self.chosen[order]
        below = (n - 1) * max(n - 2, 1.0)
        if order == 0:
            return np.asarray(moment * (n * n / below))
        last = C[:, 4 * self.r :]
        pairings = sum(C[slots[i], slots[j]][:, None] * last[slots[k]] for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)))
        return np.asarray((moment * (n + 1) - pairings * (n - 1)) * (n * n / (below * max(n - 3, 1.0))))


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
    stack = gram.reshape(-1, *gram.shape[-4:])
    out = np.stack([np.tensordot(weights, one, axes=2) for one in stack], axis=weights.ndim - 2)
    return out.reshape(*weights.shape[:-2], *gram.shape[:-4], *gram.shape[-2:])
