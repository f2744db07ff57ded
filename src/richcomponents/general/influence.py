"""The noise of the estimated cumulants, from rows: the covariance of their influence functions.

Near Gaussian data, after joint whitening, estimated cumulants are uncorrelated with known variances, and the joint
refinement needs no more. Away from it (skewed, heavy-tailed parts) they are correlated; with their covariance as
weight the transformations become up to twice as precise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from richcomponents.algebra import Array, packed_indices, packed_rank

__all__ = ["influence", "influence_covariance"]

_PAIRS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))


def influence(rows: Array, order: int, third: Array) -> Array:
    """Influence of each row on the packed cumulants of order 2, 3 or 4, up to a constant: (n, packed).

    rows : (n, p), mean zero and covariance I; third : packed third cumulants of the rows.
    """
    p = rows.shape[1]
    index = packed_indices(p, order)
    columns = [rows[:, index[:, s]] for s in range(order)]
    equal = [[(index[:, a] == index[:, b]).astype(np.float64) for b in range(order)] for a in range(order)]
    if order == 2:
        return np.asarray(columns[0] * columns[1])
    if order == 3:
        x, y, z = columns
        return np.asarray(x * y * z - x * equal[1][2] - y * equal[0][2] - z * equal[0][1])
    out = columns[0] * columns[1] * columns[2] * columns[3]
    for a, b, c, d in _PAIRS:
        out -= columns[a] * columns[b] * equal[c][d] + columns[c] * columns[d] * equal[a][b]
    for s in range(4):
        rest = [m for m in range(4) if m != s]
        out -= columns[s] * third[packed_rank(index[:, rest], p)]
    return np.asarray(out)


def influence_covariance(rows: Array, orders: tuple[int, ...], packed: Mapping[int, Array], chunk: int = 2000) -> Array:
    """n times the covariance of all estimated cumulants (orders one after the other), (entries, entries).

    rows : (n, p), white; packed : {order: their cumulants}.
    """
    third = packed.get(3, np.zeros(0))
    square, total = np.zeros((0, 0)), np.zeros(0)
    for start in range(0, len(rows), chunk):
        part = np.hstack([influence(rows[start : start + chunk], t, third) for t in orders])
        if not len(total):
            square, total = np.zeros((part.shape[1],) * 2), np.zeros(part.shape[1])
        square += part.T @ part
        total += part.sum(axis=0)
    mean = total / len(rows)
    return np.asarray(square / len(rows) - np.outer(mean, mean))
