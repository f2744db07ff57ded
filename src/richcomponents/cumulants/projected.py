"""Cumulants k_t(X, w, ..., w) along one direction: a vector in O(N d), no tensor."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import (
    Array,
    kstatistic_coefficient,
    partitions_without_singletons,
    plugin_coefficient,
)
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError
from richcomponents.moments import Rows, open_source
from richcomponents.moments.reduce import column_means, reduce_rows

__all__ = ["projected_cumulant"]


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
