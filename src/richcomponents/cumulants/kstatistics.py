"""Unbiased multivariate cumulants (k-statistics) of any order up to six, own and cross.

k-statistics do not change when the origin moves, so they are computed from sums about the mean,
where every partition with a lone slot vanishes: 4 terms instead of 15 at order four, 41 instead of
203 at order six. They are computed once per order, on the distinct entries of the joint table; any
cross block such as k4(V, U, U, U) is then read off by index.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments import Moments, Rows

__all__ = ["Cumulants", "cross_cumulant", "cumulant"]

_ENTRIES = 2**20  # packed entries worked on at a time, so that scratch memory stays small


class Cumulants:
    """Cumulants of the view columns of a state, each order computed when first asked for.

    Parameters
    ----------
    moments : Moments
    unbiased : bool
        True: k-statistics. False: cumulants of the empirical distribution (biased at finite n).
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

    Arguments are tables with the same rows; the same object may fill several slots, and is then
    read once. Shape (X1 columns, X2 columns, ...).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    >>> cross_cumulant(V, U, U).shape
    (2, 3, 3)
    """
    order = _checked_order(len(slots))
    tables: list[tuple[object, Array]] = []
    where: list[int] = []
    for slot in slots:
        seen = next((i for i, (original, _) in enumerate(tables) if original is slot), None)
        if seen is None:
            seen = len(tables)
            tables.append((slot, as_matrix(slot, column=True)))
        where.append(seen)
    rows = {len(matrix) for _, matrix in tables}
    if len(rows) > 1:
        raise DataError(f"all slots must have the same rows, got {sorted(rows)} rows")
    n = rows.pop()
    if n < order and unbiased:
        raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {n}")
    ends = np.cumsum([0, *(matrix.shape[1] for _, matrix in tables)])
    joined = tables[0][1] if len(tables) == 1 else np.hstack([matrix for _, matrix in tables])
    moments = Moments.of(_named(joined, tables), order=max(order, 2), n_blocks=1)
    groups = [np.arange(ends[i], ends[i + 1]) for i in where]
    return Cumulants(moments, unbiased=unbiased).tensor(*groups)


def _named(joined: Array, tables: Sequence[tuple[object, Array]]) -> object:
    """Rows that know their columns by the names (or numbers) they have in the user's tables."""
    names: list[str] = []
    for i, (original, matrix) in enumerate(tables):
        own = column_names(original) or [str(j) for j in range(matrix.shape[1])]
        names += own if len(tables) == 1 else [f"{name} of table {i + 1}" for name in own]
    return Rows(joined, names=names)


def _checked_order(order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or not 1 <= order <= 6:
        raise ValueError(f"the order of a cumulant must be an integer from 1 to 6, got {order!r}")
    return int(order)
