"""What the data say, in coordinates where every view is white: cumulants in total and by block, and their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import factorial

import numpy as np

from richcomponents.algebra import Array, IntArray, packed_indices, packed_rank
from richcomponents.components.sets import Subset
from richcomponents.cumulants import Cumulants, linearised_block_cumulants
from richcomponents.moments import Moments

__all__ = ["SetEvidence", "home", "multiplicity"]


def multiplicity(p: int, order: int) -> Array:
    """How often each packed entry occurs in the dense tensor.

    >>> multiplicity(2, 3).tolist()
    [1.0, 3.0, 3.0, 1.0]
    """
    indices = packed_indices(p, order)
    # A run of equal indices of length m divides the t! orders of the slots by m!: one factor per step of the run.
    run, repeats = np.ones(len(indices)), np.ones(len(indices))
    for slot in range(1, order):
        run = np.where(indices[:, slot] == indices[:, slot - 1], run + 1, 1.0)
        repeats *= run
    return np.asarray(factorial(order) / repeats)


def home(columns: Mapping[str, IntArray], views: Sequence[str]) -> IntArray:
    """The columns of some views, one after the other: those in which a component of them lives."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(columns[view] for view in views)])


@dataclass(frozen=True)
class SetEvidence:
    """Cumulants of the columns z of a state, orders 2 to `order`.

    columns : {view: its columns in z}; state : by block, views white.
    """

    columns: Mapping[str, IntArray]
    state: Moments
    order: int = 4

    @property
    def n(self) -> int:
        return self.state.n

    @property
    def p(self) -> int:
        return self.state.layout.n_columns

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(range(2, self.order + 1))

    @cached_property
    def cumulants(self) -> Cumulants:
        return Cumulants(self.state)

    @cached_property
    def correlation(self) -> Array:
        """Cov(z), (p, p): identity blocks on the diagonal."""
        return self.state.covariance(unbiased=False)

    @cached_property
    def share(self) -> Array:
        """Rows per non-empty block over all rows, (B,)."""
        sizes = self.state.block_sizes[self.state.block_sizes > 0]
        return np.asarray(sizes / sizes.sum())

    @cached_property
    def blocks(self) -> dict[int, Array]:
        """{order: (B, packed)}: each block's cumulants, linearised about the whole sample.

        Weighted by `share` they average to the (plug-in) cumulants of the whole; minus those they are the block's influence.
        """
        low = self.state.central_blocks()[self.state.block_sizes > 0]
        sizes = self.state.block_sizes[self.state.block_sizes > 0, None]
        out = {2: low[:, self.state.layout.orders[2]] / sizes}
        out.update({t: linearised_block_cumulants(self.state, t) for t in self.orders[1:]})
        return out

    @cached_property
    def inflation(self) -> dict[int, float]:
        """{order: variance of the estimated cumulants over what it would be for Gaussian data}, averaged over entries.

        For Gaussian data n Var k(i1..it) = sum over permutations of prod_s Cov(z)[i_s, i_perm(s)].
        """
        out = {}
        for t in self.orders:
            centred = self.blocks[t] - self.share @ self.blocks[t]
            b = len(self.share)
            seen = self.n * (self.share**2 @ centred**2).sum() * b / max(b - 1, 1)
            index = packed_indices(self.p, t)
            expected = sum(
                np.prod([self.correlation[index[:, s], index[:, perm[s]]] for s in range(t)], axis=0).sum()
                for perm in permutations(range(t))
            )
            out[t] = max(float(seen / expected), 0.1)
        return out

    def position(self, slots: Sequence[str]) -> IntArray:
        """Where the dense cross-cumulant with these views in its slots lies in the packed vectors."""
        grid = np.stack(np.meshgrid(*(self.columns[view] for view in slots), indexing="ij"), axis=-1)
        return packed_rank(np.sort(grid, axis=-1), self.p)

    def supports(self, order: int) -> list[tuple[Subset, IntArray]]:
        """The packed entries of an order, grouped by the views that occur in them."""
        owner = np.empty(self.p, dtype=np.int64)
        for number, columns in enumerate(self.columns.values()):
            owner[columns] = 1 << number
        mask = np.bitwise_or.reduce(owner[packed_indices(self.p, order)], axis=1)
        names = tuple(self.columns)
        return [
            (tuple(name for i, name in enumerate(names) if code >> i & 1), np.flatnonzero(mask == code))
            for code in np.unique(mask)
        ]
