"""Gram matrices of unfolded cumulants without the tensor, unbiased through pairs of disjoint blocks.

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

from collections.abc import Sequence

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError
from richcomponents.moments.layout import Layout

__all__ = ["block_grams"]


def block_grams(slots: Sequence[object], X: object, *, n_blocks: int = 20, tile: int = 2048) -> Array:
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

    Returns
    -------
    grams : array of shape (n_blocks, n_blocks, d, d)
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
    out = np.zeros((n_blocks, n_blocks, d, d))
    for a in range(n_blocks):
        for b in range(a + 1, n_blocks):
            out[a, b] = blocks[a].product(blocks[b], tile)
            out[b, a] = out[a, b].T
    return out


class _Block:
    """One block's centred slots and second moments."""

    def __init__(self, slots: Sequence[Array], x: Array) -> None:
        self.slots = [slot - slot.mean(axis=0) for slot in slots]
        self.x = x - x.mean(axis=0)
        n = self.n = len(x)
        self.with_x = [slot.T @ self.x / n for slot in self.slots]
        self.between = [[one.T @ two / n for two in self.slots] for one in self.slots]
        # k3 = c E[abc];  k4 = alpha E[abcx] - beta (three pairings), plain averages of centred data
        if len(slots) == 2:
            self.alpha, self.beta = n * n / ((n - 1) * (n - 2)), 0.0
        else:
            below = (n - 1) * (n - 2) * (n - 3)
            self.alpha, self.beta = n * n * (n + 1) / below, n * n * (n - 1) / below

    def product(self, other: _Block, tile: int) -> Array:
        """M_self' M_other, shape (d, d)."""
        total = self.alpha * other.alpha * self._kernel(other, tile)
        if len(self.slots) == 3:
            total -= self.alpha * other.beta * self._moments_with_pairings(other)
            total -= other.alpha * self.beta * other._moments_with_pairings(self).T
            total += self.beta * other.beta * self._pairings(other)
        return total

    def _kernel(self, other: _Block, tile: int) -> Array:
        """E_a E_b [x y' prod_s (s_a . s_b)]."""
        total = np.zeros((self.x.shape[1], other.x.shape[1]))
        for i in range(0, self.n, tile):
            for j in range(0, other.n, tile):
                kernel = np.array(1.0)
                for one, two in zip(self.slots, other.slots, strict=True):
                    kernel = kernel * (one[i : i + tile] @ two[j : j + tile].T)
                total += self.x[i : i + tile].T @ (kernel @ other.x[j : j + tile])
        return total / (self.n * other.n)

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


def mean_over_pairs(grams: Array) -> Array:
    """The unbiased Gram: the mean over ordered pairs of different blocks, shape (d, d)."""
    b = len(grams)
    mean: Array = grams.sum(axis=(0, 1)) / (b * (b - 1))
    return mean
