"""Rows: the one door through which data are read.

`Rows.reduce(statistic)` feeds blocks of rows to anything that has `update(rows, start)` and
`result()`. Arrays, data frames, files, iterators of blocks and dask collections all come in here; a
row-wise map (partialling out, canonical coordinates) can be applied on the way.

Maps are always applied to the same pieces of 2048 rows, counted from the first row of the source: the
bits of a matrix product may depend on how many rows it is given, and must not depend on how they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np

from richcomponents.algebra import Array, IntArray, column_numbers
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.sources import (
    ArraySource,
    BlockSource,
    ChangedError,
    Fingerprint,
    Source,
    WithColumn,
    block_rows,
    is_path,
    open_source,
)
from richcomponents.data.sources.lazy import DaskSource, is_dask
from richcomponents.data.views import as_matrix, column_names, resolve_views
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments.accumulator import frequencies
from richcomponents.moments.checkpoint import Checkpoint, held_interrupts
from richcomponents.moments.cluster import Mergeable, reduce_on_cluster
from richcomponents.moments.columns import column_range, column_sum
from richcomponents.moments.forest import Forest
from richcomponents.moments.layout import LEAF
from richcomponents.moments.parallel import in_pieces
from richcomponents.moments.progress import row_bar

__all__ = ["Rows", "Statistic"]

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")
_PIECES = 32  # of LEAF rows that are mapped before they are handed on


class Statistic(Protocol[_T_co]):
    """What can be reduced over rows."""

    def update(self, rows: object, start: int | None = None) -> None: ...

    def result(self) -> _T_co: ...


class Rows:
    """A source of rows and what is to be done to each of them.

    Parameters
    ----------
    source : Source, array of shape (n_rows, width), or an iterable of such arrays
    names : sequence of str, optional
        Column names, for messages; those of the source by default.
    transform : callable, optional
        Applied to every block of rows, row by row.
    columns : int array, optional
        Which columns of the source are read, and in which order, before the transform.
    weighted : bool
        The last of the columns that are read holds frequency weights; it is no column of the table, is not mapped, and
        comes last in every chunk.
    """

    def __init__(
        self,
        source: Source | Array | Iterable[object],
        *,
        names: Sequence[str] | None = None,
        transform: Callable[[Array], Array] | None = None,
        columns: IntArray | None = None,
        weighted: bool = False,
    ) -> None:
        if isinstance(source, np.ndarray):
            source = ArraySource(source)
        self.source = source if isinstance(source, Source) else BlockSource(source)
        self.transform, self.columns, self.weighted = transform, columns, weighted
        if names is None and transform is None and self.source.names is not None:
            names = [self.source.names[c] for c in self._read_columns()[: self.width]]
        self.names = names

    @classmethod
    def of(cls, X: object) -> Rows:
        """Rows of an array, a data frame, a file or several, or an iterable of blocks."""
        if isinstance(X, Rows):
            return X
        source: Source
        if isinstance(X, Source):
            source = X
        elif is_path(X):
            source = open_source(X)
        elif is_dask(X):
            source = DaskSource(X)
        elif (
            isinstance(X, Iterator)
            or (isinstance(X, Iterable) and not hasattr(X, "__len__"))
            or (isinstance(X, (list, tuple)) and len(X) and all(len(getattr(block, "shape", ())) == 2 for block in X))
        ):
            source = BlockSource(X)
        else:
            source = ArraySource(as_matrix(X), column_names(X))
        return cls(source)

    @property
    def again(self) -> bool:
        """Whether the rows can be read a second time."""
        return self.source.again

    @property
    def width(self) -> int:
        """Columns before the transform, without the weights."""
        return (self.source.width if self.columns is None else len(self.columns)) - self.weighted

    @property
    def labels(self) -> Sequence[str | int] | None:
        """What messages call the columns: their names, else their numbers in the source; None where they are 0, 1, ..."""
        if self.names is not None or self.transform is not None or self.columns is None:
            return self.names
        numbers: list[int] = self.columns[: self.width].tolist()
        return numbers

    def _read_columns(self) -> IntArray:
        return np.arange(self.source.width) if self.columns is None else self.columns

    def fingerprint(self) -> Fingerprint:
        """What the rows were when they were first read."""
        return self.source.fingerprint(self.columns)

    def mark(self) -> str:
        """What tells these rows from others, without reading them."""
        columns = "all" if self.columns is None else self.columns.tolist()
        return f"{self.source.mark()}; columns {columns}; {_mark(self.transform)}"

    # ---- the same rows, otherwise

    def select(self, columns: object) -> Rows:
        """Only these columns (names, numbers, a mask or a slice), in this order; others are not read at all."""
        if self.transform is not None:
            raise ValueError("columns are chosen before rows are mapped")
        read = self._read_columns()
        numbers = self._numbers(columns)
        chosen = np.concatenate([read[numbers], read[self.width :]])  # with the weights
        names = None if self.names is None else [self.names[c] for c in numbers]
        return Rows(
            self.source,
            names=names,
            columns=_unless_all(chosen, self.source),
            weighted=self.weighted,
        )

    def weighted_by(self, sample_weight: object) -> Rows:
        """The same rows, each counted so often: an array of whole numbers (n_rows,), or the name of a column of the source."""
        if self.transform is not None or self.weighted:
            raise ValueError("weights are given once, before rows are mapped")
        read = self._read_columns()
        if isinstance(sample_weight, str):
            weight = self._numbers(sample_weight)
            chosen = np.concatenate([np.delete(read, weight), read[weight]])
            names = None if self.names is None else [name for i, name in enumerate(self.names) if i != weight[0]]
            return Rows(
                self.source,
                names=names,
                columns=_unless_all(chosen, self.source),
                weighted=True,
            )
        weights = frequencies(sample_weight, self.source.n_rows)
        add = self.source.with_column if isinstance(self.source, DaskSource) else partial(WithColumn, self.source)
        source = add(weights, "sample_weight")
        chosen = np.append(read, source.width - 1)
        columns = _unless_all(chosen, source)
        return Rows(source, names=self.names, columns=columns, weighted=True)

    def mapped(
        self,
        transform: Callable[[Array], Array],
        names: Sequence[str] | None = None,
    ) -> Rows:
        """The same rows with a further row-wise map; its columns have no names unless they are given. Weights stay."""
        first = self.transform
        then = _KeepLast(transform) if self.weighted else transform
        return Rows(
            self.source,
            names=names,
            transform=then if first is None else _Chain(first, then),
            columns=self.columns,
            weighted=self.weighted,
        )

    def _numbers(self, columns: object) -> IntArray:
        given = [columns] if isinstance(columns, str) else columns
        if isinstance(given, (list, tuple)) and any(isinstance(column, str) for column in given):
            return resolve_views({"columns": given}, self.width, self.names)["columns"]
        return column_numbers(given, self.width)

    # ---- reading

    def _read(self, skip: int, compare: bool = False) -> Iterator[Array]:
        """Blocks of rows as the source has them, without the first `skip`; those are read, too, to be compared.

        Rows of a source that others can write to are compared with what they were when they were first read; compare :
        those of any source.
        """
        source = self.source
        blocks: Iterator[Array] = map(as_matrix, source.blocks(self.columns))
        if compare or (source.shared and source.again):
            blocks = source.fingerprint(self.columns).compared(blocks, source)
        count = 0
        for block in blocks:
            count += len(block)
            if count > skip:
                yield block[max(len(block) - (count - skip), 0) :]
        if source.n_rows is not None and count != source.n_rows:
            raise DataError(f"{source.title} says that it has {source.n_rows} rows and has {count}: it is damaged")

    def chunks(self, skip: int = 0, compare: bool = False) -> Iterator[Array]:
        """Blocks of rows in order, mapped, without the first `skip`."""
        if self.transform is None:
            yield from self._read(skip, compare)
            return
        again = skip % LEAF  # rows of a piece that was begun are mapped with it once more
        for block in _aligned(self._read(skip - again, compare), LEAF * _PIECES):
            done = in_pieces(self.transform, block)
            if len(done) > again:
                yield done[again:]
            again = 0

    def _steps(self, skip: int, compare: bool) -> Iterator[Array]:
        """As :meth:`chunks`, no block longer than the time between two looks at the clock.

        But for the first block of rows that are read only once: its mean becomes the shift, and watching changes no bit.
        """
        whole = not self.again and skip == 0
        for block in self.chunks(skip, compare):
            size = max(len(block), 1) if whole else block_rows(block.shape[1])
            whole = False
            for at in range(0, len(block), size):
                yield block[at : at + size]

    def head(self, n: int) -> Array:
        """The first n rows (fewer when there are fewer), for rows that can be read again."""
        found: list[Array] = []
        for block in self.chunks():
            found.append(block[: n - sum(map(len, found))])
            if sum(map(len, found)) >= n:
                break
        if not found:
            raise DataError("there are no rows")
        return np.concatenate(found)

    def more_than(self, n: int) -> bool:
        """Whether there are more than n rows that count, each once however often it counts; reads no further than it must."""
        if self.source.n_rows is not None and not self.weighted:
            return self.source.n_rows > n
        seen = 0
        for rows in self._read(0):
            seen += int(np.sum(rows[:, -1] > 0)) if self.weighted else len(rows)
            if seen > n:
                return True
        return False

    def array(self, limit: float = MEMORY_LIMIT) -> Array:
        """All rows in memory."""
        found, size = [], 0
        for block in self.chunks():
            found.append(block)
            size += block.nbytes
            if size > limit:
                raise CapacityError(
                    f"these rows do not fit into {limit / 2**30:.1f} GiB of memory: use fewer columns (views=)"
                )
        if not found:
            raise DataError("there are no rows")
        return found[0] if len(found) == 1 else np.concatenate(found)

    def reduce(
        self,
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
        if isinstance(self.source, DaskSource):
            if checkpoint is not None:
                raise DataError("dask computes lost work again by itself: leave checkpoint= out")
            if groups is None and start % LEAF == 0 and self.source.n_rows and hasattr(statistic, "fork"):
                reduce_on_cluster(self.source, self.columns, self.transform, cast(Mergeable, statistic), start)
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
        with row_bar(progress, self.source.n_rows, done) as advance, hold as interrupted:
            try:
                for block in self._steps(done, checkpoint is not None) if watched else self.chunks(done):
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

    def means(self, progress: str | None = None) -> Array | None:
        """Column means (exactly the value for a constant column); None when the rows can be read only once."""
        if not self.again:
            return None
        return self.reduce(_Means(self.labels, self.weighted), progress=progress)

    def first_means(self, n: int) -> Array:
        """Column means of the first n rows, each counted once, for rows that can be read again."""
        first, statistic = self.head(n), _Means(self.labels)
        statistic.update(first[:, : first.shape[1] - self.weighted])
        return statistic.result()


class _Chain:
    """One map after another (a class, so that it can be sent to other processes)."""

    def __init__(self, first: Callable[[Array], Array], then: Callable[[Array], Array]) -> None:
        self.first, self.then = first, then

    def __call__(self, block: Array) -> Array:
        return self.then(self.first(block))


class _KeepLast:
    """A map of all columns but the last, the weights."""

    def __init__(self, transform: Callable[[Array], Array]) -> None:
        self.transform = transform

    def __call__(self, block: Array) -> Array:
        return np.column_stack([self.transform(block[:, :-1]), block[:, -1]])


def _unless_all(columns: IntArray, source: Source) -> IntArray | None:
    """None for all columns in their order, which sources read faster."""
    return None if np.array_equal(columns, np.arange(source.width)) else columns


def _mark(transform: object) -> str:
    """Maps carry a `mark`, or are methods of what carries one: from the map itself nobody could tell it from another."""
    if transform is None:
        return "as they are"
    if isinstance(transform, _Chain):
        return f"{_mark(transform.first)} {_mark(transform.then)}"
    if isinstance(transform, _KeepLast):
        return _mark(transform.transform)
    mark = getattr(transform, "mark", getattr(getattr(transform, "__self__", None), "mark", None))
    if not isinstance(mark, str):
        raise DataError(
            f"a checkpoint must tell the map of these rows from others: give {transform!r} an attribute `mark`, a text that "
            "is another one for every other map, or leave checkpoint= out"
        )
    return mark


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
        for piece in _aligned([*self._rest, block], LEAF):
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


def _aligned(blocks: Iterable[Array], size: int) -> Iterator[Array]:
    """The same rows in blocks of exactly `size`, but for the last."""
    held: list[Array] = []
    count = 0
    for block in blocks:
        at = 0
        if held:
            at = min(size - count, len(block))
            held.append(block[:at])
            count += at
            if count < size:
                continue
            yield np.concatenate(held)
            held, count = [], 0
        whole = at + (len(block) - at) // size * size
        for first in range(at, whole, size):
            yield block[first : first + size]
        if whole < len(block):
            held, count = [block[whole:]], len(block) - whole
    if held:
        yield np.concatenate(held)
