"""Rows to sums: the mutable side of a state, which holds rows until their leaf is complete, and passes over all rows.

DASK. Rows of dask collections are reduced where they are, and only sums travel. Pieces begin at multiples of the statistic's
grain, so that every leaf lies in one piece, and partial results are merged as siblings of the fixed tree: no chunking, number
of workers, order of arrival or lost worker changes a bit. Dask computes lost pieces again by itself. The cluster is the one
that is active (a distributed.Client); without one, threads of this process.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import lcm
from queue import Empty, SimpleQueue
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, available_cores, in_pieces, run_all
from richcomponents.data.rows import Rows
from richcomponents.data.sources.base import DaskSource, aligned, block_rows
from richcomponents.data.table import as_matrix, check_weights, same_columns
from richcomponents.errors import (
    CapacityError,
    ConstantColumnWarning,
    DataError,
    MissingValueError,
    PrecisionWarning,
    StateFileError,
    warn_user,
)
from richcomponents.moments.kernel import (
    EXECUTORS,
    MOST_ROWS,
    N_BLOCKS,
    Forest,
    Layout,
    Leaf,
    Workspace,
    add_leaves,
    block_numbers,
    check_state,
    column_range,
    column_sum,
    default_executor,
)
from richcomponents.progress import metered

_SMALL = 5e6  # multiply-adds below which starting threads costs more than it saves


class LeafSums:
    """Rows in, sums of leaves out: what :class:`Accumulator` is without the state that it gives; parameters as there."""

    def __init__(
        self,
        order: int = 4,
        shift: Array | None = None,
        *,
        n_blocks: int | None = None,
        threads: int | None = None,
        executor: str | None = None,
        memory_limit: float | None = None,
        names: Sequence[str | int] | None = None,
        weighted: bool = False,
    ) -> None:
        self._order, self._n_blocks = order, N_BLOCKS if n_blocks is None else n_blocks
        self._memory_limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        self._threads = available_cores() if threads is None else max(1, int(threads))
        self._executor = default_executor() if executor is None else executor
        if self._executor not in EXECUTORS:
            raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {executor!r}")
        self._names, self._weighted = names, weighted
        self._layout: Layout | None = None
        self._next = 0
        self._seen: list[tuple[int, int]] = []  # disjoint intervals of absolute rows, in order
        self._grouped = self._broken = False
        self._sums = Forest()
        self._fragments: dict[tuple[int, int], dict[int, Array]] = {}
        self._lock = threading.Lock()
        self._spaces: SimpleQueue[Workspace] = SimpleQueue()
        if shift is not None:
            self._begin(np.asarray(shift, dtype=np.float64))

    def _begin(self, shift: Array) -> None:
        if shift.ndim != 1 or not np.isfinite(shift).all():
            raise DataError(f"the shift must be a finite vector, one entry per column; got shape {shift.shape}")
        self._layout, self._shift = self._planned(len(shift)), shift.copy()
        self._low, self._high = np.full(len(shift), np.inf), np.full(len(shift), -np.inf)  # range of each column

    def _planned(self, width: int) -> Layout:
        """The layout for so many columns."""
        layout = Layout(width, self._order, self._n_blocks)
        layout.check_memory(self._memory_limit)
        return layout

    @property
    def layout(self) -> Layout:
        """What is summed, once the columns are known."""
        if self._layout is None:
            raise DataError("no rows have been seen and no shift was given: the columns are unknown")
        return self._layout

    @property
    def shift(self) -> Array:
        """The origin, once the columns are known, (n_columns,)."""
        _ = self.layout
        return self._shift

    @property
    def reached(self) -> int:
        """The number of the row after the highest one seen."""
        return self._seen[-1][1] if self._seen else 0

    @property
    def dependent(self) -> bool:
        """Whether rows of a block may depend on each other."""
        return self._grouped or self._weighted

    # ---- rows in

    def update(self, rows: object, start: int | None = None) -> None:
        """Take in a block of rows, shape (n_rows, n_columns).

        start : the absolute number of the first one; by default the row after the last one seen.
        """
        first = self._next if start is None else int(start)
        if first < 0:
            raise ValueError(f"start must not be negative, got {start}")
        if self._grouped:
            raise DataError("rows with groups were given whole; further rows need an accumulator of their own")
        self._commit(rows, first, lambda count: self.layout.stripes(first, count))

    def grouped(self, groups: object) -> Callable[[object, int], None]:
        """A function (rows, number of the first one) that takes in all rows IN ORDER, those of a group in one block.

        groups : the labels of all rows that will come.
        """
        chosen = block_numbers(len(np.asarray(groups)), self._n_blocks, groups)
        counts = np.zeros(self._n_blocks, dtype=np.int64)  # rows of each block so far

        def members(count: int, first: int) -> Iterator[tuple[int, int, IntArray]]:
            if first + count > len(chosen):
                raise DataError(f"groups must have one label per row, got {len(chosen)} labels and more rows")
            for b in range(self._n_blocks):
                numbers = np.flatnonzero(chosen[first : first + count] == b)
                if len(numbers):
                    yield b, int(counts[b]), numbers

        def take(rows: object, start: int) -> None:
            if start != self.reached:
                raise DataError("rows with groups come in order, without gaps")
            self._commit(rows, start, lambda count: members(count, start))
            counts[:] += np.bincount(chosen[start : self.reached], minlength=self._n_blocks)
            self._grouped = True

        return take

    def _commit(
        self, rows: object, start: int, choose: Callable[[int], Iterable[tuple[int, int, slice | IntArray]]]
    ) -> None:
        """Check everything, then take the rows in. What can still fail (memory, Ctrl-C) leaves a mark.

        choose : number of rows -> block, position in it of the first row, and which rows, of each block.
        """
        block, names = as_matrix(rows), same_columns(self._names, rows, weights=self._weighted)
        count = int(block.shape[0])
        if not count:
            return
        reached = self._check(block)
        seen = self._marked(start, start + count)
        pieces = [(b, position, self._counted(block[which])) for b, position, which in choose(count)]
        self._broken = True
        self._take(pieces)
        self._seen, self._next, (self._low, self._high), self._names = seen, start + count, reached, names
        self._broken = False

    def _check(self, block: Array) -> tuple[Array, Array]:
        """The columns' ranges with this block; refuses before anything is changed."""
        if self._broken:
            raise DataError("an earlier update was interrupted half-way: start again with a new accumulator")
        if self._weighted:
            check_weights(block[:, -1])
            counted = block[:, -1] > 0
            if self._layout is not None and not counted.any():
                self._layout.check_columns(block.shape[1] - 1)
                return self._low, self._high
            block = np.ascontiguousarray(block[counted if counted.any() else slice(None), :-1])
        low, high = column_range(block)
        if not (np.isfinite(low) & np.isfinite(high)).all():
            raise self._not_finite(~np.isfinite(block))
        if self._layout is None:
            self._planned(int(block.shape[1]))
            # a mean between the extremes, also where its sum rounds or overflows: exact for a constant
            shift = np.clip(column_sum(block) / block.shape[0], low, high)
        else:
            self._layout.check_columns(block.shape[1])
            shift, low, high = self._shift, np.minimum(self._low, low), np.maximum(self._high, high)
        with np.errstate(over="ignore"):
            far = np.maximum(high - shift, shift - low)
        for column in np.flatnonzero(far > 1e280 ** (1 / self._order)).tolist():  # sums must stay inside float64, too
            raise self._out_of_range(column, far[column])
        if self._layout is None:
            self._begin(shift)
        return low, high

    def _counted(self, rows: Array) -> Array:
        """Rows of weight zero may hold anything: their values are put at the shift."""
        if not self._weighted or (rows[:, -1] > 0).all():
            return rows
        out = rows.copy()
        out[rows[:, -1] == 0, :-1] = self._shift
        return out

    def _out_of_range(self, column: int, reach: float) -> DataError:
        return DataError(
            f"column {self._name(column)} varies by {reach:.1e}, and its power {self._order} leaves the "
            "range of floating point: rescale the column (for example to unit variance)"
        )

    def _marked(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The rows seen, with these absolute rows; refuses rows that come twice."""
        at = bisect_left(self._seen, (start, start))
        before, after = self._seen[:at], self._seen[at:]
        if (before and before[-1][1] > start) or (after and after[0][0] < stop):
            raise DataError(
                f"rows {start}..{stop - 1} overlap rows that were given before: pass start= the number of the "
                "first row of each block"
            )
        if before and before[-1][1] == start:
            start = before.pop()[0]
        if after and after[0][0] == stop:
            stop = after.pop(0)[1]
        return [*before, (start, stop), *after]

    def _not_finite(self, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> DataError:
        row, column = (int(i) for i in np.argwhere(bad)[0])
        return MissingValueError(
            f"column {self._name(column)} holds a missing or infinite value (row {row} of its block; "
            f"{int(bad.sum())} such values in all): drop those rows or impute them first"
        )

    def _name(self, column: int) -> str:
        return repr(self._names[column]) if self._names is not None else str(column)

    def _take(self, pieces: Sequence[tuple[int, int, Array]]) -> None:
        """Split the rows of each block into leaves; sum the complete ones, keep the rest."""
        leaf = self.layout.leaf
        complete: list[Leaf] = []
        for b, position, rows in pieces:
            for k, low, high in _cut(position, rows.shape[0], leaf):
                part = rows[low:high, :]
                if high - low == leaf:
                    complete.append((b, k, part))
                    continue
                held = self._fragments.setdefault((b, k), {})
                held[position + low] = part.copy()
                if len(held) % 32 == 0:  # counting, copying and saving fragments takes time
                    held = self._fragments[b, k] = _neighbours_joined(held)
                if sum(map(len, held.values())) == leaf:
                    complete.append((b, k, _joined(self._fragments.pop((b, k)))))
        self._sum(complete, self._sums)

    def _sum(self, leaves: Sequence[Leaf], sums: Forest) -> None:
        layout = self.layout
        work = sum(len(rows) for _, _, rows in leaves) * float(layout.size)
        threads = 1 if work < _SMALL else min(self._threads, max(len(leaves), 1))

        def add(some: Iterator[Leaf]) -> None:
            try:
                space = self._spaces.get_nowait()
            except Empty:
                space = Workspace(layout.n_columns + 1, layout.order, self._executor)
            add_leaves(some, self._shift, space, sums, self._lock)
            self._spaces.put(space)

        if leaves:
            run_all(add, leaves, threads)

    # ---- what to say of the sums

    def check_range(self, sums: Forest) -> None:
        """Refuse counts and powers that leave the range of float64; warn of constants."""
        n = sum(float(value[0]) for _, value in sums)
        if n > MOST_ROWS:
            raise DataError(
                "these rows count as more than 2**53, beyond which numbers are not exact: use smaller weights"
            )
        reach = np.maximum(self._high - self._shift, self._shift - self._low)
        smallest = 1e-290 ** (1 / self.layout.order)
        for column in np.flatnonzero((reach > 0) & (reach < smallest)).tolist():
            raise self._out_of_range(column, reach[column])
        constant = np.flatnonzero(self._low == self._high)
        if len(constant) and n > 1:
            shown = ", ".join(self._name(int(c)) for c in constant[:5]) + (", ..." if len(constant) > 5 else "")
            warn_user(
                f"constant column(s) {shown}: their cumulants of order two and above are zero; drop them",
                ConstantColumnWarning,
            )

    def check_digits(self, offset: Array, variances: Array) -> None:
        """Warn of columns whose mean is so far from the shift (offset) that powers of it drown their variance."""
        order, away = self.layout.order, np.abs(offset)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = away / np.sqrt(np.maximum(variances, 0.0))  # infinite where not even the variance is left
            ratio = np.where((self._low < self._high) & (away > 0), ratio, 0.0)
            loss = np.finfo(float).eps * ratio**order
        if (loss > 1e-10).any():
            column = int(np.argmax(loss))
            far = f"{ratio[column]:.0f}" if np.isfinite(ratio[column]) else "so many"
            cost = f"costs digits at order {order}" if np.isfinite(ratio[column]) else "costs all digits"
            warn_user(
                f"column {self._name(column)} has its mean {far} standard deviations from the shift, which {cost}: pass "
                "shift= near the column means",
                PrecisionWarning,
            )

    # ---- parts that are computed apart

    @property
    def grain(self) -> int:
        """Rows after which all blocks begin a new leaf."""
        return self.layout.n_blocks * self.layout.leaf

    def fork(self) -> Self:
        """An empty accumulator of the same kind and shift, on one thread."""
        return type(self)(
            self._order,
            None if self._layout is None else self._shift,
            n_blocks=self._n_blocks,
            threads=1,
            executor=self._executor,
            memory_limit=self._memory_limit,
            names=self._names,
            weighted=self._weighted,
        )

    def partial(self) -> tuple[Forest, Array, Array]:
        """Sums, incomplete leaves included, and the range of each column."""
        sums = self._sums.copy()
        self._sum([(b, k, _joined(held)) for (b, k), held in sorted(self._fragments.items())], sums)
        return sums, self._low, self._high

    @staticmethod
    def join(parts: Sequence[tuple[Forest, Array, Array]]) -> tuple[Forest, Array, Array]:
        """The sums of several parts."""
        sums, low, high = parts[0]
        for more in parts[1:]:
            sums, low, high = sums.merged(more[0]), np.minimum(low, more[1]), np.maximum(high, more[2])
        return sums, low, high

    def absorb(self, part: tuple[Forest, Array, Array], start: int, n_rows: int) -> None:
        """Take in sums of the rows from number `start` on; no leaf may be incomplete but the last ones."""
        seen = self._marked(start, start + n_rows)
        self._sums, self._low, self._high = self.join([(self._sums, self._low, self._high), part])
        self._seen, self._next = seen, start + n_rows

    # ---- copies, here and on disk

    def copy(self) -> Self:
        """An independent accumulator in the same state (sums are shared until either changes)."""
        other = type(self).__new__(type(self))
        other.__setstate__(self.__getstate__())
        other._sums = self._sums.copy()
        other._fragments = {key: dict(held) for key, held in self._fragments.items()}
        return other

    def __getstate__(self) -> dict[str, object]:
        """A copy continues the stream; locks and scratch memory stay behind."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_spaces")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock, self._spaces = threading.Lock(), SimpleQueue()

    def parts(self) -> dict[str, Any]:
        """What a file holds: everything but what belongs to this machine. Rows of leaves that are not complete are among it."""
        held = [(*key, at, rows) for key, some in sorted(self._fragments.items()) for at, rows in sorted(some.items())]
        width = self.layout.n_columns + self._weighted
        return {
            "layout": self.layout,
            "shift": self._shift,
            "low": self._low,
            "high": self._high,
            "seen": np.array(self._seen, dtype=np.int64).reshape(-1, 2),
            "sums": self._sums,
            "fragments": np.array([(*key, len(rows)) for *key, rows in held], dtype=np.int64).reshape(-1, 4),
            "rows": np.concatenate([np.empty((0, width)), *(rows for *_, rows in held)]),
            "grouped": self._grouped,
            "weighted": self._weighted,
            "names": None if self._names is None else tuple(self._names),
        }

    @classmethod
    def of_parts(
        cls,
        layout: Layout,
        shift: Array,
        low: Array,
        high: Array,
        seen: IntArray,
        sums: Forest,
        fragments: IntArray,
        rows: Array,
        grouped: bool,
        weighted: bool,
        names: tuple[str | int, ...] | None,
    ) -> Self:
        """The accumulator with these parts, which come from a file and may not fit together.

        fragments : (m, 4) block, leaf, position in the block and number of the `rows`, which are those of all fragments in
        turn, the weight last; seen : (k, 2) intervals of row numbers.
        """
        check_state(layout, shift, sums)
        p, ends = layout.n_columns, seen.reshape(-1)
        shapes = low.shape, high.shape, seen.shape[1:], fragments.shape[1:], rows.shape[1:]
        whole = (
            layout.leaf == LEAF
            and shapes == ((p,), (p,), (2,), (4,), (p + weighted,))
            and (names is None or len(names) == p)
            and (fragments >= 0).all()
            and (fragments[:, 0] < layout.n_blocks).all()
            and int(fragments[:, 3].astype(object).sum()) == len(rows)
            and (np.diff(ends) > 0).all()
            and (ends[:1] >= 0).all()
            and np.isfinite(rows).all()
            and ((low <= high) | ((low == np.inf) & (high == -np.inf))).all()  # an empty range: no row counts so far
        )
        if not whole:
            raise StateFileError("the parts of the accumulator do not fit together")
        made = cls(layout.order, shift, n_blocks=layout.n_blocks, memory_limit=np.inf, names=names, weighted=weighted)
        made._low, made._high, made._sums, made._grouped = low, high, sums, grouped
        made._seen = [(first, last) for first, last in seen.tolist()]
        made._next = made.reached
        for (b, k, position, count), stop in zip(fragments.tolist(), np.cumsum(fragments[:, 3]).tolist(), strict=True):
            made._fragments.setdefault((b, k), {})[position] = rows[stop - count : stop]
        return made


def _cut(position: int, count: int, leaf: int) -> Iterator[tuple[int, int, int]]:
    """(leaf number, first row, one past the last row) of rows at consecutive positions."""
    low = 0
    while low < count:
        k = (position + low) // leaf
        high = min(count, (k + 1) * leaf - position)
        yield k, low, high
        low = high


def _joined(held: dict[int, Array]) -> Array:
    return np.concatenate([held[at] for at in sorted(held)])


def _neighbours_joined(held: dict[int, Array]) -> dict[int, Array]:
    """The same rows in as few fragments as there are gaps between them, plus one."""
    runs: list[list[int]] = []
    end = -1
    for at in sorted(held):
        if at == end:
            runs[-1].append(at)
        else:
            runs.append([at])
        end = at + int(held[at].shape[0])
    return {run[0]: held[run[0]] if len(run) == 1 else np.concatenate([held[at] for at in run]) for run in runs}


# ---- all rows of a source


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
    for block in rows.chunks() if progress is None else _shown(rows, progress):
        take(block, start + done)
        done += len(block)
    if groups is not None and done != len(np.asarray(groups)):
        raise DataError(f"groups must have one label per row ({done}), got {len(np.asarray(groups))}")
    return statistic.result()


def _shown(rows: Rows, label: str) -> Iterator[Array]:
    """As :meth:`Rows.chunks`, no block longer than the time between two looks at the clock; how far they are is shown.

    But for the first block of rows that are read only once: its mean becomes the shift, and watching changes no bit.
    """
    whole = not rows.rereadable
    with metered(label, rows.n_rows, unit="rows") as advance:
        for block in rows.chunks():
            size = max(len(block), 1) if whole else block_rows(block.shape[1])
            whole = False
            for at in range(0, len(block), size):
                yield block[at : at + size]
                advance(len(block[at : at + size]))


def column_means(rows: Rows, progress: str | None = None) -> Array | None:
    """Column means (exactly the value for a constant column); None when the rows can be read only once."""
    if not rows.rereadable:
        return None
    return reduce_rows(rows, _Means(rows.labels, rows.weighted), progress=progress)


def first_means(rows: Rows, n: int) -> Array:
    """Column means of the first n rows, each that counts once, for rows that can be read again."""
    first, means = rows.head(n), _Means(rows.labels)
    if rows.weighted:  # what does not count may be anything
        first = first[first[:, -1] > 0, :-1]
    if not len(first):
        return reduce_rows(rows, _Means(rows.labels, rows.weighted))
    means.update(first)
    return means.result()


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
