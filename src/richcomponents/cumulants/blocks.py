"""Cumulants of each statistical block, linearised so that they average exactly to the global ones.

A cumulant computed from a block alone has a bias of its own and is centred at the block's mean; averages of such do
not agree with the cumulant of all rows. Linearised about the global mean, covariance Sigma and third moment M3, with
block mean m and block second moments C,

    k3_b = E_b z^3 - sum over 3 of Sigma x m,
    k4_b = E_b z^4 - sum over 3 pairings of [C x Sigma + Sigma x (C - Sigma)] - sum over 4 of m x M3,

they do: weighted by the rows per block, their mean is the plug-in cumulant of the whole sample.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, IntArray, packed_indices, packed_rank
from richcomponents.moments import Moments

__all__ = ["linearised_block_cumulants"]

_PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))


def linearised_block_cumulants(moments: Moments, order: int) -> Array:
    """Packed cumulants of order 3 or 4 of every non-empty block, shape (blocks, C(p+order-1, order))."""
    if order not in (3, 4):
        raise ValueError(f"block cumulants are of order 3 or 4, got {order}")
    lay = moments.layout
    p = lay.n_columns
    used = np.flatnonzero(moments.block_sizes)
    blocks, sizes = moments.central_blocks(), moments.block_sizes[used, None]
    mean, second = blocks[used, lay.orders[1]] / sizes, blocks[used, lay.orders[2]] / sizes
    sigma = moments.central_sums(2) / moments.n
    out = blocks[used, lay.orders[order]] / sizes
    index = packed_indices(p, order)
    rest = [[m for m in range(order) if m != slot] for slot in range(order)]
    around = sigma if order == 3 else moments.central_sums(3) / moments.n
    lower = [around[packed_rank(index[:, kept], p)] for kept in rest]
    pairs = [(packed_rank(index[:, a], p), packed_rank(index[:, b], p)) for a, b in _PAIRINGS] if order == 4 else []
    slots = [np.ascontiguousarray(index[:, slot]) for slot in range(order)]
    around_pairs = [(sigma[left], sigma[right]) for left, right in pairs]
    work = np.empty(out.shape[1])

    def subtract(values: Array, where: IntArray, factor: Array, b: int) -> None:
        np.take(values, where, out=work, mode="clip")
        np.multiply(work, factor, out=work)
        np.subtract(out[b], work, out=out[b])

    for b in range(len(out)):  # one block at a time: its entries stay in the cache
        for slot, factor in zip(slots, lower, strict=True):
            subtract(mean[b], slot, factor, b)
        excess = second[b] - sigma
        for (left, right), (sigma_left, sigma_right) in zip(pairs, around_pairs, strict=True):
            subtract(second[b], left, sigma_right, b)
            subtract(excess, right, sigma_left, b)
    return out
