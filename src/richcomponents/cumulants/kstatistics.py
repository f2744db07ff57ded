"""Unbiased multivariate cumulants (k-statistics) of any order up to six, own and cross.

k-statistics do not change when the origin moves, so they are computed from sums about the mean,
where every partition with a lone slot vanishes: 4 terms instead of 15 at order four, 41 instead of
203 at order six. They are computed once per order, on the distinct entries of the joint table; any
cross block such as k4(V, U, U, U) is then read off by index.

BLOCKS. Cumulants of each statistical block, linearised so that they average exactly to the global ones.

A cumulant computed from a block alone has a bias of its own and is centred at the block's mean; averages of such do
not agree with the cumulant of all rows. A cumulant is a polynomial of moments about any point: k(all slots) = sum over
partitions of (-1)^(m-1) (m-1)! times the moments M of their m parts. Linearised in them about those of all rows,

    k_b = k + sum over sets B of slots of D_B (M_B of the block - M_B),      D_B = sum over partitions of the other slots of
                                                                                   (-1)^m m! times the moments of their m parts,

they do: weighted by the rows per block, their mean is the plug-in cumulant of the whole sample. About the global mean parts of
one slot vanish, except as B. At order four this is, with means m, second moments C of the block, and Sigma, M3 of all rows,

    k4_b = E_b z^4 - sum over 3 pairings of [C x Sigma + Sigma x (C - Sigma)] - sum over 4 of m x M3.

GRAM MATRICES. Gram matrices of unfolded cumulants without the tensor, unbiased through pairs of disjoint blocks.

For M_X = unfold k_t(W1, ..., W_{t-1}, X) (rows: the first slots, columns: X) the library needs
M_X' M_Y. The plain product of two estimates from the same samples is signal plus noise, and with
d^(t-1) rows the noise swamps the signal; the product of estimates from two DISJOINT blocks of samples
is unbiased, since each factor is an unbiased k-statistic and they are independent.

Between blocks a and b the sums over samples collapse to kernels: with A = W1, B = W2, C = W3,

    sum_{n in a, m in b} x_n [(a_n . a_m)(b_n . b_m)(c_n . c_m)] y_m'

costs O(N^2 d) and no d^3 rows. The terms that turn fourth moments into cumulants,
- sum over the three pairings of Cov(other two) x Cov(slot, X), are products of small matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import factorial

import numpy as np

from richcomponents.algebra import (
    Array,
    IntArray,
    column_numbers,
    kstatistic_coefficient,
    packed_indices,
    packed_rank,
    packed_size,
    partitions_without_singletons,
    plugin_coefficient,
)
from richcomponents.algebra.arrays import MEMORY_LIMIT, available_cores, run_all
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments import Moments, Rows, open_source
from richcomponents.moments.accumulator import column_means, reduce_rows
from richcomponents.moments.kernel import Layout

_ENTRIES = 2**20  # packed entries worked on at a time, so that scratch memory stays small


class Cumulants:
    """Cumulants of the view columns of a state, each order computed when first asked for.

    Parameters
    ----------
    moments : Moments
    unbiased : bool
        True: k-statistics. False: cumulants of the empirical distribution (biased at finite n).

    Examples
    --------
    >>> import numpy as np
    >>> from richcomponents import Moments
    >>> state = Moments.of(np.random.default_rng(0).normal(size=(100, 5)), order=4)
    >>> Cumulants(state).tensor([3, 4], [0, 1, 2], [0]).shape
    (2, 3, 1)
    """

    def __init__(self, moments: Moments, *, unbiased: bool = True) -> None:
        self.moments, self.unbiased = moments, unbiased
        self._known: dict[int, Array] = {}

    def packed(self, order: int) -> Array:
        """Distinct entries in lexicographic order, shape (C(p+order-1, order),)."""
        if order not in self._known:
            self._known[order] = self._compute(order)
        return self._known[order]

    def tensor(self, *slots: Sequence[int] | IntArray | slice) -> Array:
        """The dense cross-cumulant with one group of columns per slot; shape (len(slot) ...)."""
        p = self.moments.layout.n_columns
        groups = [column_numbers(slot, p) for slot in slots]
        size = float(np.prod([float(len(g)) for g in groups]))
        if 8 * size * (len(groups) + 2) > MEMORY_LIMIT:
            raise CapacityError(
                f"a dense tensor of shape {tuple(map(len, groups))} needs {8 * size / 2**30:,.1f} GiB: "
                "ask for fewer columns, use the packed entries, or a projected cumulant"
            )
        if len(groups) == 1:
            return self.packed(1)[groups[0]]
        grid = np.stack(np.meshgrid(*groups, indexing="ij"), axis=-1)
        return self.packed(len(groups))[packed_rank(np.sort(grid, axis=-1), p)]

    def _compute(self, order: int) -> Array:
        m = self.moments
        if not 1 <= order <= m.layout.order:
            raise ValueError(f"this state holds orders 1..{m.layout.order}, not {order}")
        if order == 1:
            return m.mean
        if m.n < (order if self.unbiased else 1):
            raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {m.n}")
        coefficient = kstatistic_coefficient if self.unbiased else plugin_coefficient
        p = m.layout.n_columns
        sums = {s: m.central_sums(s) for s in range(2, order + 1)}
        out = np.empty(packed_size(p, order))
        indices = packed_indices(p, order)
        for start in range(0, len(out), _ENTRIES):
            part = indices[start : start + _ENTRIES]
            total = np.zeros(len(part))
            for partition in partitions_without_singletons(order):
                product = np.full(len(part), coefficient(tuple(sorted(map(len, partition))), m.n))
                for block in partition:
                    product *= sums[len(block)][packed_rank(part[:, block], p)]
                total += product
            out[start : start + _ENTRIES] = total
        out.setflags(write=False)
        return out


def cumulant(X: object, order: int = 4, *, unbiased: bool = True) -> Array:
    """The cumulant tensor of the columns of X, shape (p,) * order.

    Parameters
    ----------
    X : array-like of shape (n_rows, p)
    order : int
        1 (the mean) to 6.
    unbiased : bool
        k-statistics (the default), or cumulants of the empirical distribution.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [0.0], [1.0], [3.0]])
    >>> cumulant(X, order=2).item(), cumulant(X, order=3).item()
    (2.0, 4.0)
    """
    return cross_cumulant(*[X] * _checked_order(order), unbiased=unbiased)


def cross_cumulant(*slots: object, unbiased: bool = True) -> Array:
    """The cross-cumulant k(X1, X2, ..., Xt): one tensor slot per argument, which may differ in width.

    Arguments are tables with the same rows; one object in several slots is read once. Shape (X1 columns, X2 columns, ...).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    >>> cross_cumulant(V, U, U).shape
    (2, 3, 3)
    """
    order = _checked_order(len(slots))
    given = {id(slot): slot for slot in slots}
    tables = {key: as_matrix(slot, column=True) for key, slot in given.items()}
    rows = {len(table) for table in tables.values()}
    if len(rows) > 1:
        raise DataError(f"all slots must have the same rows, got {sorted(rows)} rows")
    n = rows.pop()
    if n < order and unbiased:
        raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {n}")
    names, columns = list[str](), dict[int, IntArray]()
    for i, (key, table) in enumerate(
        tables.items()
    ):  # columns keep the names (or numbers) that they have in the user's tables
        own = column_names(given[key]) or map(str, range(table.shape[1]))
        columns[key] = len(names) + np.arange(table.shape[1])
        names += own if len(tables) == 1 else [f"{name} of table {i + 1}" for name in own]
    joined = Rows(np.hstack(list(tables.values())), names=names)
    moments = Moments.of(joined, order=max(order, 2), n_blocks=1)
    return Cumulants(moments, unbiased=unbiased).tensor(*(columns[id(slot)] for slot in slots))


def _checked_order(order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or not 1 <= order <= 6:
        raise ValueError(f"the order of a cumulant must be an integer from 1 to 6, got {order!r}")
    return int(order)


_WORK = 2**24  # numbers that the terms of block cumulants may take at a time


def linearised_block_cumulants(moments: Moments, order: int) -> Array:
    """Packed cumulants of order 3 to 6 of every non-empty block, shape (blocks, C(p+order-1, order))."""
    lay = moments.layout
    if not 3 <= order <= lay.order:
        raise ValueError(f"block cumulants of this state are of order 3 to {lay.order}, got {order}")
    used = np.flatnonzero(moments.block_sizes)
    blocks, sizes = moments.central_blocks()[used], moments.block_sizes[used, None]
    own = {s: blocks[:, lay.orders[s]] / sizes for s in range(1, order + 1)}
    whole = {s: moments.central_sums(s) / moments.n for s in range(2, order + 1)}
    return linearised_cumulants(own, whole, order, lay.n_columns)


def linearised_cumulants(own: Mapping[int, Array], whole: Mapping[int, Array], order: int, p: int) -> Array:
    """Packed cumulants (B, C(p+order-1, order)) of parts of the rows, to first order about those of all rows.

    own, whole : {order s: packed moments of every part, (B, .), and of all rows, (.,)}, about the mean of all rows.
    """
    out, index, moving = own[order].copy(), packed_indices(p, order), _moving(order)
    step = max(_WORK // (2 * len(moving)), 1)
    for start in range(0, len(index), step):
        part = slice(start, start + step)
        _less_lower_orders(out[:, part], index[part], moving, own, whole, p)
    return out


def _moving(order: int) -> list[tuple[int, ...]]:
    """The slots B whose moment changes a cumulant to first order, but for all of them: no single slot is left, of mean zero."""
    sizes = [size for size in range(1, order) if order - size != 1]
    return [B for size in sizes for B in combinations(range(order), size)]


def _less_lower_orders(
    out: Array,
    index: IntArray,
    moving: Sequence[tuple[int, ...]],
    own: Mapping[int, Array],
    whole: Mapping[int, Array],
    p: int,
) -> None:
    """From moments of blocks (B, entries) of some entries to their cumulants, in place.

    own, whole : {order s: packed moments of every block, (B, .), and of all rows, (.,)}; index : (entries, order)."""
    every = tuple(range(index.shape[1]))
    place: dict[tuple[int, ...], IntArray] = {}  # of the entries of some of the slots, in the packed moments
    for size in range(1, len(every) + 1):
        some = list(combinations(every, size))
        place |= dict(zip(some, packed_rank(index[:, some], p).T, strict=True))

    def moment(slots: tuple[int, ...]) -> Array:
        return whole[len(slots)][place[slots]]

    def over_partitions(slots: tuple[int, ...], sign: int) -> Array:
        """sum over partitions of the slots into m parts of (-1)^m' m'! times their moments; m' = m, or m - 1 for sign -1."""
        total = np.zeros(len(index))
        for partition in partitions_without_singletons(len(slots)):
            m = len(partition) - (sign < 0)
            parts = [moment(tuple(slots[i] for i in part)) for part in partition]
            total += (-1) ** m * factorial(m) * np.prod(parts, axis=0)
        return total

    slopes = {B: over_partitions(tuple(i for i in every if i not in B), 1) for B in moving}
    constant = over_partitions(every, -1) - moment(every)
    for B, slope in slopes.items():
        if len(B) > 1:
            constant -= slope * moment(B)

    step = max(2**14 // len(index), 1)  # parts at a time: their entries stay in the cache

    def each(starts: Iterator[int]) -> None:
        work = np.empty((step, len(index)))
        for found, start in ((out[start : start + step], start) for start in starts):
            found += constant
            for B, slope in slopes.items():
                terms = work[: len(found)]
                np.take(own[len(B)][start : start + step], place[B], axis=1, out=terms, mode="clip")
                found += np.multiply(terms, slope, out=terms)

    run_all(each, range(0, len(out), step), available_cores() if out.size > _ENTRIES else 1)


def projected_cumulant(X: object, projection: object, order: int, *, unbiased: bool = True) -> Array:
    """k_t(X, w, ..., w), one slot X and t - 1 slots w; shape (d,).

    Parameters
    ----------
    X : array-like of shape (n, d), or Rows
    projection : array-like
        Shape (d,): the direction theta, w = X theta. Shape (n,) with n != d is not guessed at: pass the
        samples of w as a column (n, 1) instead.
    order : int
        t >= 1; the sums are of the order of N d t.
    unbiased : bool
        k-statistics, or cumulants of the empirical distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from richcomponents import cumulant
    >>> X = np.random.default_rng(0).exponential(size=(200, 3))
    >>> theta = np.array([1.0, -2.0, 0.5])
    >>> tensor = cumulant(X, order=3)
    >>> bool(np.allclose(projected_cumulant(X, theta, 3), np.einsum("abc,b,c->a", tensor, theta, theta)))
    True
    """
    if order < 1:
        raise ValueError(f"the order must be at least 1, got {order}")
    direction = np.asarray(projection, dtype=np.float64)
    if direction.ndim == 2:  # samples of w: they ride along as one more column
        table = as_matrix(X)
        if direction.shape != (len(table), 1):
            raise DataError(f"samples of w must be one column of {len(table)} rows, got shape {direction.shape}")
        rows = Rows(np.hstack([table, direction]))
    else:
        rows = open_source(X)
    means = column_means(rows)
    if means is None:
        raise DataError("projected cumulants read the rows twice: pass an array or a file, not an iterator")
    width = len(means) - (direction.ndim == 2)
    if direction.ndim == 1 and direction.shape != (width,):
        raise DataError(f"theta must have {width} entries, one per column, got {direction.shape}")
    if order == 1:
        return means[:width]
    theta = direction if direction.ndim == 1 else np.concatenate([np.zeros(width), [1.0]])
    sums = reduce_rows(rows, _PowerSums(means, theta, width, order))
    n = sums.n
    if unbiased and n < order:
        raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {n}")
    coefficient = kstatistic_coefficient if unbiased else plugin_coefficient
    out = np.zeros(width)
    for partition in partitions_without_singletons(order):
        factor = coefficient(tuple(sorted(map(len, partition))), n)
        for block in partition:
            if 0 not in block:  # slot 0 is X, the others are w
                factor *= sums.scalar[len(block)]
        with_x = next(len(block) for block in partition if 0 in block)
        out += factor * sums.vector[with_x - 1]
    return out


class _PowerSums:
    """sum w^j (scalar) and sum x w^j (vector) about given means, j = 0..order."""

    def __init__(self, means: Array, theta: Array, width: int, order: int) -> None:
        self.means, self.theta, self.width, self.order = means, theta, width, order
        self.n, self.scalar, self.vector = 0, np.zeros(order + 1), np.zeros((order, width))

    def update(self, rows: object, start: int | None = None) -> None:
        z = as_matrix(rows) - self.means
        w = z @ self.theta
        power = np.ones(len(z))
        self.n += len(z)
        for j in range(self.order + 1):
            self.scalar[j] += power.sum()
            if j < self.order:
                self.vector[j] += z[:, : self.width].T @ power
            power = power * w

    def result(self) -> _PowerSums:
        return self


def block_grams(
    slots: Sequence[object], X: object, *, n_blocks: int = 20, tile: int = 1024, below: bool = False
) -> Array:
    """M_a' M_b for all pairs of different blocks, M_a = unfold of the k-statistic of block a.

    Parameters
    ----------
    slots : two or three tables of shape (n, .)
        The first slots W1, W2 (order 3) or W1, W2, W3 (order 4); tables may repeat.
    X : table of shape (n, d)
        The last slot, whose Gram is returned; for a Gram of several views, join them: X = (U, V).
    n_blocks : int
        The statistical blocks of :class:`Moments`.
    tile : int
        Samples per tile of the kernel, which is never stored whole.
    below : bool
        Of three slots, also the Gram of the first two, order three, at little more than the time of the other.

    Returns
    -------
    grams : array of shape (n_blocks, n_blocks, d, d); with `below` (2, n_blocks, n_blocks, d, d), order three first
        Diagonal pairs (a, a) are zero: they are the noise this form avoids. The unbiased Gram is the
        mean over a != b.
    """
    if len(slots) not in (2, 3):
        raise ValueError(f"give two slots (order 3) or three (order 4), got {len(slots)}")
    order = len(slots) + 1
    tables = [as_matrix(slot, column=True) for slot in slots]
    last = as_matrix(X, column=True)
    if {len(table) for table in tables} != {len(last)}:
        raise DataError("all slots must have the same rows")
    blocks = []
    for b in range(Layout(1, 2, n_blocks=n_blocks).n_blocks):
        selector = slice(b, None, n_blocks)
        count = len(last[selector])
        if count < order:
            raise DataError(
                f"block {b} has {count} rows, a cumulant of order {order} needs {order}: use fewer blocks "
                f"(n_blocks <= {len(last) // order})"
            )
        blocks.append(_Block([table[selector] for table in tables], last[selector]))
    d = last.shape[1]
    orders = (3, 4) if below else (order,)
    out = np.zeros((len(orders), n_blocks, n_blocks, d, d))

    def multiply(pairs: Iterator[tuple[int, int]]) -> None:
        for a, b in pairs:
            for at, product in enumerate(blocks[a].products(blocks[b], tile, orders)):
                out[at, a, b], out[at, b, a] = product, product.T

    run_all(multiply, combinations(range(n_blocks), 2), available_cores())
    return out if below else out[0]


class _Block:
    """One block's centred slots and second moments."""

    def __init__(self, slots: Sequence[Array], x: Array) -> None:
        self.slots = [slot - slot.mean(axis=0) for slot in slots]
        self.x = x - x.mean(axis=0)
        n = self.n = len(x)
        self.with_x = [slot.T @ self.x / n for slot in self.slots]
        self.between = [[one.T @ two / n for two in self.slots] for one in self.slots]

    def _factors(self, order: int) -> tuple[float, float]:
        """k3 = alpha E[abx];  k4 = alpha E[abcx] - beta (three pairings), plain averages of centred data."""
        n = self.n
        if order == 3:
            return n * n / ((n - 1) * (n - 2)), 0.0
        below = (n - 1) * (n - 2) * (n - 3)
        return n * n * (n + 1) / below, n * n * (n - 1) / below

    def products(self, other: _Block, tile: int, orders: Sequence[int]) -> list[Array]:
        """M_self' M_other, (d, d), of each order."""
        totals = self._kernels(other, tile, orders)
        for total, order in zip(totals, orders, strict=True):
            (alpha, beta), (alpha_other, beta_other) = self._factors(order), other._factors(order)
            total *= alpha * alpha_other
            if order == 4:
                total -= alpha * beta_other * self._moments_with_pairings(other)
                total -= alpha_other * beta * other._moments_with_pairings(self).T
                total += beta * beta_other * self._pairings(other)
        return totals

    def _kernels(self, other: _Block, tile: int, orders: Sequence[int]) -> list[Array]:
        """E_a E_b [x y' prod_s (s_a . s_b)] over the first order - 1 slots, for each order."""
        totals = [np.zeros((self.x.shape[1], other.x.shape[1])) for _ in orders]
        for i in range(0, self.n, tile):
            for j in range(0, other.n, tile):
                kernel = self.slots[0][i : i + tile] @ other.slots[0][j : j + tile].T
                for slot in range(1, len(self.slots)):
                    kernel *= self.slots[slot][i : i + tile] @ other.slots[slot][j : j + tile].T
                    if slot + 2 in orders:
                        total = totals[orders.index(slot + 2)]
                        total += self.x[i : i + tile].T @ (kernel @ other.x[j : j + tile])
        for total in totals:
            total /= self.n * other.n
        return totals

    def _moments_with_pairings(self, other: _Block) -> Array:
        """E_a[x (q' Cov_b(q, r) r)(s' Cov_b(s, Y))] summed over the slot s that is paired with Y."""
        total = np.zeros((self.x.shape[1], other.x.shape[1]))
        for s in range(3):
            q, r = (slot for slot in range(3) if slot != s)
            form = np.einsum("ni,ni->n", self.slots[q] @ other.between[q][r], self.slots[r])
            total += self.x.T @ (form[:, None] * self.slots[s]) @ other.with_x[s]
        return total / self.n

    def _pairings(self, other: _Block) -> Array:
        """Inner products of the pairing terms of both blocks."""
        total = np.zeros((self.x.shape[1], other.x.shape[1]))
        for s in range(3):
            for u in range(3):
                if s == u:
                    q, r = (slot for slot in range(3) if slot != s)
                    total += np.sum(self.between[q][r] * other.between[q][r]) * self.with_x[s].T @ other.with_x[s]
                else:
                    r = 3 - s - u  # the slot paired with neither X nor Y
                    chain = self.with_x[s].T @ other.between[s][r] @ self.between[u][r].T
                    total += chain @ other.with_x[u]
        return total
