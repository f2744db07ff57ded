"""Cumulants along a direction, read off the rows: O(N p) each, and nothing of size p^2 or more.

The second provider of a Component's cumulants. The state (CumulantSource) pays once for all tensors and then forgets the
rows; this one keeps the rows and pays per question, which is the cheaper way for wide tables and for mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from richcomponents.algebra import (
    Array,
    IntArray,
    kstatistic_coefficient,
    packed_size,
    partitions_without_singletons,
    plugin_coefficient,
)
from richcomponents.components.component import MAX_COMPARED, CumulantSource, Recipe
from richcomponents.errors import DataError
from richcomponents.moments import Moments

__all__ = ["RowSource"]

_MAX_ORDER = 6


class RowSource(CumulantSource):
    """Answers contractions of the cumulants of the columns z from the rows themselves.

    rows : (n, p), centred here; block_of : (n,) statistical block of each row, in turn over 20 by default.
    """

    def __init__(self, rows: Array, block_of: IntArray | None = None, *, unbiased: bool = True) -> None:
        if len(rows) == 0:
            raise DataError("there are no rows")
        self._z = rows - rows.mean(axis=0)
        self._block_of = np.arange(len(rows)) % 20 if block_of is None else np.asarray(block_of)
        self.unbiased = unbiased

    @cached_property
    def moments(self) -> Moments:
        """The state of order four, by block, for whoever needs tensors; refused where it would not fit."""
        return Moments.of(self._z, 4, n_blocks=len(self.blocks), groups=self._block_of)

    @property
    def n(self) -> int:
        return len(self._z)

    @property
    def max_order(self) -> int:
        return _MAX_ORDER

    def comparable(self, order: int) -> bool:
        return packed_size(self._z.shape[1], order) <= MAX_COMPARED and len(self.blocks) >= 5

    @property
    def blocks(self) -> list[int]:
        return [int(b) for b in np.unique(self._block_of)]

    def without_block(self, block: int) -> RowSource:
        keep = self._block_of != block
        return RowSource(self._z[keep], self._block_of[keep], unbiased=self.unbiased)

    def take(self, rows: IntArray) -> RowSource:
        """The same columns on some of the rows: a mini-batch."""
        return RowSource(self._z[rows], self._block_of[rows], unbiased=self.unbiased)

    def tensor(self, recipe: Recipe) -> Array:
        """The dense tensor of a recipe: order two from the rows, higher orders through a state."""
        if len(recipe[0].slots) != 2:
            return CumulantSource(self.moments, unbiased=self.unbiased).tensor(recipe)
        scale = self._coefficient((2,))
        total: Array = np.sum(
            [t.coefficient * (self._z @ t.slots[0]).T @ (self._z @ t.slots[1]) for t in recipe], axis=0
        )
        return scale * (total + total.T) / 2

    def projected(self, recipe: Recipe, theta: Array) -> Array:
        """The recipe's tensor with all slots but one contracted with theta, shape (m,): matrix-vector products only."""
        order = len(recipe[0].slots)
        if not 1 < order <= _MAX_ORDER:
            raise ValueError(f"cumulants of order 2 to {_MAX_ORDER} are read off rows, got order {order}")
        if self.unbiased and self.n < order:
            raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {self.n}")
        total: Array = np.zeros(recipe[0].slots[0].shape[1])
        for term in recipe:
            # a matrix often fills several slots: one projection for each distinct matrix, one vector for each distinct rest
            distinct = {id(slot): slot for slot in term.slots}
            along = {key: self._z @ (slot @ theta) for key, slot in distinct.items()}
            for key, slot in distinct.items():
                rest = [id(s) for s in term.slots]
                times = rest.count(key)
                rest.remove(key)
                vector = self._cumulant([along[other] for other in rest])
                total = total + term.coefficient * times / order * (slot.T @ vector)
        return total

    def _cumulant(self, others: Sequence[Array]) -> Array:
        """k(z, w_1, ..., w_{t-1}), (p,), for samples w_j (n,) of centred variables."""
        order = len(others) + 1
        scalars: dict[tuple[int, ...], float] = {}
        weights: dict[tuple[int, ...], float] = {}  # sums of z times these products, with these coefficients
        for partition in partitions_without_singletons(order):
            factor = self._coefficient(tuple(sorted(map(len, partition))))
            for block in partition:
                if 0 in block:
                    with_z = tuple(i - 1 for i in block if i)  # slot 0 is z
                else:
                    key = tuple(i - 1 for i in block)
                    if key not in scalars:
                        scalars[key] = float(np.sum(_product(others, key)))
                    factor *= scalars[key]
            weights[with_z] = weights.get(with_z, 0.0) + factor
        # sum_k weight_k sum_i z_i product_k,i = z' (sum_k weight_k product_k): one pass over the rows
        combined = np.zeros(self.n)
        for key, weight in weights.items():
            combined += weight * _product(others, key)
        return np.asarray(combined @ self._z)

    def _coefficient(self, sizes: tuple[int, ...]) -> float:
        return (kstatistic_coefficient if self.unbiased else plugin_coefficient)(sizes, self.n)


def _product(columns: Sequence[Array], which: tuple[int, ...]) -> Array:
    out = columns[which[0]]
    for i in which[1:]:
        out = out * columns[i]
    return out
