"""Reductions over dask collections: pieces of rows become states where the rows are, and only states travel.

Pieces begin at multiples of the statistic's grain, so that every leaf lies in one piece, and partial results are merged as
siblings of the fixed tree: no chunking, number of workers, order of arrival or lost worker changes a bit. Dask computes lost
pieces again by itself. The cluster is the one that is active (a distributed.Client); without one, threads of this process.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import lcm
from typing import Any, Protocol

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.parallel import in_pieces
from richcomponents.data.sources.lazy import DaskSource
from richcomponents.data.table import as_matrix
from richcomponents.errors import CapacityError
from richcomponents.moments.layout import LEAF

__all__ = ["Mergeable", "reduce_on_cluster"]

_PIECE_BYTES = 2**27
_MIN_PIECES = 16  # enough for a few workers to share evenly
_FAN_IN = 8


class Mergeable(Protocol):
    """A statistic whose parts can be computed apart and joined in any order."""

    grain: int

    def fork(self) -> Any:
        """An empty statistic of the same kind, for one thread of another process."""

    def partial(self) -> Any:
        """What it holds, without rows where that is possible."""

    @staticmethod
    def join(parts: list[Any]) -> Any: ...

    def absorb(self, part: Any, start: int, n_rows: int) -> None: ...


def reduce_on_cluster(
    source: DaskSource, columns: Any, transform: Callable[[Array], Array] | None, statistic: Mergeable, start: int
) -> None:
    """Feed all rows, from absolute number `start` (a multiple of LEAF) on, to the statistic."""
    import dask

    n = source.n_rows or 0
    width = source.width if columns is None else len(columns)
    grain = lcm(statistic.grain, LEAF)
    if (need := 8 * width * min(grain, n)) > MEMORY_LIMIT:
        raise CapacityError(
            f"pieces of {min(grain, n)} rows of {width} columns, the least that keep the blocks of rows together, need "
            f"{need / 2**30:,.1f} GiB each: use fewer columns or fewer blocks (n_blocks=)"
        )
    size = _piece_rows(grain, n, width)
    cuts = [0, *range(size - start % size, n, size), n]
    lengths = [high - low for low, high in pairwise(cuts)]
    empty, work, join = statistic.fork(), dask.delayed(_work, pure=False), dask.delayed(statistic.join, pure=False)
    blocks = source.pieces(lengths, columns)
    parts = [work(block, transform, empty, start + low) for block, low in zip(blocks, cuts[:-1], strict=True)]
    while len(parts) > 1:
        parts = [join(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    (result,) = dask.compute(parts[0])
    statistic.absorb(result, start, n)


def _piece_rows(grain: int, n: int, width: int) -> int:
    """A multiple of the grain by a power of two: no more than 128 MB, and pieces enough to share."""
    size = grain
    while 2 * size * width * 8 <= _PIECE_BYTES and 2 * size * _MIN_PIECES <= n:
        size *= 2
    return size


def _work(block: object, transform: Callable[[Array], Array] | None, empty: Any, start: int) -> Any:
    rows = as_matrix(block)
    statistic = empty.fork()
    statistic.update(rows if transform is None else in_pieces(transform, rows), start)
    return statistic.partial()
