"""Statistics over rows: blocks of rows go in, in order, and what the statistic makes of all of them comes out.

Rows of dask collections are reduced where they are; others here, with a bar, and kept in a checkpoint where one is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.rows import Rows, aligned
from richcomponents.data.sources.base import ChangedError, block_rows
from richcomponents.data.sources.lazy import DaskSource
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError
from richcomponents.moments.checkpoint import Checkpoint, held_interrupts
from richcomponents.moments.cluster import Mergeable, reduce_on_cluster
from richcomponents.moments.forest import Forest
from richcomponents.moments.kernel import column_range, column_sum
from richcomponents.moments.layout import LEAF
from richcomponents.moments.progress import row_bar

__all__ = ["Statistic", "column_means", "first_means", "reduce_rows"]

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class Statistic(Protocol[_T_co]):
    """What can be reduced over rows."""

    def update(self, rows: object, start: int | None = None) -> None: ...

    def result(self) -> _T_co: ...


def reduce_rows(
    rows: Rows,
    statistic: Statistic[_T],
    *,
    start: int = 0,
    groups: object | None = None,
    checkpoint: Checkpoint | None = None,
    progress: str | None = None,
) -> _T:
    """Feed all rows to the statistic and return its result.

    start : absolute number of the first row. groups : labels of all rows; those of a group stay in one block.
    checkpoint : where the statistic, an Accumulator, is kept while rows are read; it may hold rows already.
    progress : the label of a bar, None for no bar (dask shows its own dashboard).
    """
    if isinstance(rows.source, DaskSource):
        if checkpoint is not None:
            raise DataError("dask computes lost work again by itself: leave checkpoint= out")
        if groups is None and start % LEAF == 0 and rows.n_rows and hasattr(statistic, "fork"):
            reduce_on_cluster(rows.source, rows.columns, rows.transform, cast(Mergeable, statistic), start)
            return statistic.result()
    take = statistic.update
    if groups is not None:
        if start:
            raise ValueError("rows with groups are read whole: start must be 0")
        grouped = getattr(statistic, "grouped", None)
        if grouped is None:
            raise DataError(f"{type(statistic).__name__} does not know groups of rows")
        take = grouped(groups)
    done = 0 if checkpoint is None else checkpoint.rows_done(statistic, start)
    hold = held_interrupts() if checkpoint is not None else nullcontext(lambda: False)
    watched = checkpoint is not None or progress is not None
    with row_bar(progress, rows.n_rows, done) as advance, hold as interrupted:
        try:
            for block in _steps(rows, done, checkpoint is not None) if watched else rows.chunks(done):
                take(block, start + done)
                done += len(block)
                advance(len(block))
                if interrupted():
                    raise KeyboardInterrupt
                if checkpoint is not None:
                    checkpoint.tick(statistic)
            if interrupted():  # behind the last block
                raise KeyboardInterrupt
        except ChangedError as error:  # the sums may hold rows of both: nothing is kept
            raise error if checkpoint is None else checkpoint.of_another(error) from error
        except BaseException:
            if checkpoint is not None:
                checkpoint.keep(statistic)
            raise
    if groups is not None and done != len(np.asarray(groups)):
        raise DataError(f"groups must have one label per row ({done}), got {len(np.asarray(groups))}")
    return statistic.result()


def _steps(rows: Rows, skip: int, compare: bool) -> Iterator[Array]:
    """As :meth:`Rows.chunks`, no block longer than the time between two looks at the clock.

    But for the first block of rows that are read only once: its mean becomes the shift, and watching changes no bit.
    """
    whole = not rows.rereadable and skip == 0
    for block in rows.chunks(skip, compare):
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
    """Column means of the first n rows, each counted once, for rows that can be read again."""
    first, statistic = rows.head(n), _Means(rows.labels)
    statistic.update(first[:, : first.shape[1] - rows.weighted])
    return statistic.result()


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
            raise DataError(f"column {label} holds a missing or infinite value: drop those rows or impute them first")
        total = sums.fold(1, slice(0, len(low)), len(low))[0]
        # between the extremes even where the sum overflows or rounds
        mean: Array = np.clip(total / n, low, high)
        return mean
