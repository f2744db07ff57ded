"""Statistics over rows: blocks of rows go in, in order, and what the statistic makes of all of them comes out.

Rows of dask collections are reduced where they are; others here, told how far they are.

DASK. Reductions over dask collections: pieces of rows become states where the rows are, and only states travel.

Pieces begin at multiples of the statistic's grain, so that every leaf lies in one piece, and partial results are merged as
siblings of the fixed tree: no chunking, number of workers, order of arrival or lost worker changes a bit. Dask computes lost
pieces again by itself. The cluster is the one that is active (a distributed.Client); without one, threads of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import lcm
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, in_pieces
from richcomponents.data.rows import Rows
from richcomponents.data.sources.base import DaskSource, aligned, block_rows
from richcomponents.data.table import as_matrix
from richcomponents.errors import CapacityError, DataError, MissingValueError
from richcomponents.moments.accumulator import Forest
from richcomponents.moments.kernel import column_range, column_sum
from richcomponents.progress import metered


def reduce_on_cluster(
    source: DaskSource, columns: Any, transform: Callable[[Array], Array] | None, statistic: Any, start: int
) -> None:
    """Feed all rows, from absolute number `start` (a multiple of LEAF) on, to a statistic whose parts can be computed apart.

    grain : rows after which a part may end; fork() : an empty statistic of the same kind, for one thread of another process;
    partial() : what it holds, without rows where that is possible; join(parts), in any order; absorb(part, start, n_rows).
    """
    import dask

    n = source.n_rows or 0
    width = source.width if columns is None else len(columns)
    grain = lcm(statistic.grain, LEAF)
    if (need := 8 * width * min(grain, n)) > MEMORY_LIMIT:
        raise CapacityError(
            f"pieces of {min(grain, n)} rows of {width} columns, the least that keep the blocks of rows together, need "
            f"{need / 2**30:,.1f} GiB each: use fewer columns or fewer blocks (n_blocks=)"
        )
    size = grain
    while 2 * size * width * 8 <= 2**27 and 2 * size * 16 <= n:  # no more than 128 MB, and pieces enough to share
        size *= 2
    cuts = [0, *range(size - start % size, n, size), n]
    lengths = [high - low for low, high in pairwise(cuts)]
    empty, work, join = statistic.fork(), dask.delayed(_work, pure=False), dask.delayed(statistic.join, pure=False)
    blocks = source.pieces(lengths, columns)
    parts = [work(block, transform, empty, start + low) for block, low in zip(blocks, cuts[:-1], strict=True)]
    while len(parts) > 1:
        parts = [join(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    (result,) = dask.compute(parts[0])
    statistic.absorb(result, start, n)


def _work(block: object, transform: Callable[[Array], Array] | None, empty: Any, start: int) -> Any:
    rows = as_matrix(block)
    statistic = empty.fork()
    statistic.update(rows if transform is None else in_pieces(transform, rows), start)
    return statistic.partial()


_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class Statistic(Protocol[_T_co]):
    """What can be reduced over rows."""

    def update(self, rows: object, start: int | None = None) -> None: ...

    def result(self) -> _T_co: ...


def reduce_rows(
    rows: Rows, statistic: Statistic[_T], *, start: int = 0, groups: object = None, progress: str | None = None
) -> _T:
    """Feed all rows to the statistic and return its result; those that know groups have a method `grouped`, too.

    start : absolute number of the first row. groups : labels of all rows; those of a group stay in one block.
    progress : what is done, where it is to be shown how far it is (dask shows its own dashboard).
    """
    source, aside = rows.source, groups is None and start % LEAF == 0 and hasattr(statistic, "fork")
    if isinstance(source, DaskSource) and aside and rows.n_rows:
        reduce_on_cluster(source, rows.columns, rows.transform, statistic, start)
        return statistic.result()
    if groups is not None and start:
        raise ValueError("rows with groups are read whole: start must be 0")
    take = statistic.update if groups is None else statistic.grouped(groups)  # type: ignore[attr-defined]
    done = 0
    with metered(progress, rows.n_rows, unit="rows") as advance:
        for block in rows.chunks() if progress is None else _steps(rows):
            take(block, start + done)
            done += len(block)
            advance(len(block))
    if groups is not None and done != len(np.asarray(groups)):
        raise DataError(f"groups must have one label per row ({done}), got {len(np.asarray(groups))}")
    return statistic.result()


def _steps(rows: Rows) -> Iterator[Array]:
    """As :meth:`Rows.chunks`, no block longer than the time between two looks at the clock.

    But for the first block of rows that are read only once: its mean becomes the shift, and watching changes no bit.
    """
    whole = not rows.rereadable
    for block in rows.chunks():
        size = max(len(block), 1) if whole else block_rows(block.shape[1])
        whole = False
        for at in range(0, len(block), size):
            yield block[at : at + size]


def column_means(rows: Rows, progress: str | None = None) -> Array | None:
    """Column means (exactly the value for a constant column); None when the rows can be read only once."""
    if not rows.rereadable:
        return None
    return reduce_rows(rows, _Means(rows.labels, rows.weighted), progress=progress)


def first_means(rows: Rows, n: int) -> Array:
    """Column means of the first n rows, each that counts once, for rows that can be read again."""
    first = rows.head(n)
    if rows.weighted:  # what does not count may be anything
        first = first[first[:, -1] > 0, :-1]
    if not len(first):
        return reduce_rows(rows, _Means(rows.labels, rows.weighted))
    return reduce_rows(Rows(first), _Means(rows.labels))


class _Means:
    """Column means to rounding, and the exact value of columns that never change.

    Sums of pieces of 2048 rows are merged as the leaves of a state are, so that no chunking changes a bit.
    """

    grain = LEAF

    def __init__(self, names: Sequence[str | int] | None, weighted: bool = False) -> None:
        self.names, self.weighted, self.n, self._sums = names, weighted, 0.0, Forest()
        self._rest: list[Array] = []
        self._piece: int | None = None

    def update(self, rows: object, start: int | None = None) -> None:
        """Rows in order; the first ones begin a piece."""
        block = as_matrix(rows)
        if not len(block):
            return
        if self._piece is None:
            width = block.shape[1] - self.weighted
            self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
            self._piece = (start or 0) // LEAF
        counted, weight = (block[block[:, -1] > 0, :-1], block[:, -1:]) if self.weighted else (block, None)
        if len(counted):
            low, high = column_range(np.ascontiguousarray(counted))
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.n += len(block) if weight is None else float(weight.sum())
        if weight is not None:  # what does not count may be anything
            block = np.where(weight > 0, block[:, :-1], 0.0) * weight
        for piece in aligned([*self._rest, block], LEAF):
            if len(piece) < LEAF:
                self._rest = [piece.copy()]
                return
            self._sums.add((0, 0, self._piece), column_sum(piece))
            self._piece += 1
        self._rest = []

    def fork(self) -> Self:
        return type(self)(self.names, self.weighted)

    def partial(self) -> tuple[Any, ...]:
        sums = self._sums.copy()
        if self._rest and self._piece is not None:
            sums.add((0, 0, self._piece), column_sum(self._rest[0]))
        return sums, self.low, self.high, self.n

    @staticmethod
    def join(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        sums, low, high, n = parts[0]
        for more in parts[1:]:
            sums, n = sums.merged(more[0]), n + more[3]
            low, high = np.minimum(low, more[1]), np.maximum(high, more[2])
        return sums, low, high, n

    def absorb(self, part: tuple[Any, ...], start: int, n_rows: int) -> None:
        self._sums, self.low, self.high, self.n = part

    def result(self) -> Array:
        if not self.n:
            raise DataError("there are no rows" + (", or all weights are zero" if self.weighted else ""))
        sums, low, high, n = self.partial()
        bad = ~(np.isfinite(low) & np.isfinite(high))
        if bad.any():
            column = int(np.flatnonzero(bad)[0])
            label = repr(self.names[column]) if self.names is not None else column
            raise MissingValueError(
                f"column {label} holds a missing or infinite value: drop those rows or impute them first"
            )
        total = sums.fold(1, slice(0, len(low)), len(low))[0]
        return np.asarray(np.clip(total / n, low, high))  # between the extremes even where the sum overflows or rounds
