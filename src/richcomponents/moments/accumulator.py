"""Rows to sums: the mutable side of a state, which holds rows until their leaf is complete, and passes over all rows.

DASK. Rows of dask collections are reduced where they are, and only sums travel. Pieces begin at multiples of the statistic's
grain, so that every leaf lies in one piece, and partial results are merged as siblings of the fixed tree: no chunking, number
of workers, order of arrival or lost worker changes a bit. Dask computes lost pieces again by itself. The cluster is the one
that is active (a distributed.Client); without one, threads of this process.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, available_cores, in_pieces, run_all
from richcomponents.data.rows import Rows
from richcomponents.data.sources.memory import DaskSource
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
    MeansLayout,
    Workspace,
    block_numbers,
    check_state,
    default_executor,
    over_rows,
)
from richcomponents.moments.state import Moments
from richcomponents.progress import metered
from richcomponents.storage import storable

_SMALL = 5e6  # multiply-adds below which starting threads costs more than it saves


@storable
class Accumulator:
    """Takes blocks of rows in any order and of any size; :meth:`moments` gives the state so far.

    For the same shift the state has the same bits whatever the chunks, their order of arrival and the
    number of threads.

    Parameters
    ----------
    order : int
        Joint moments of every order up to this one (2..6).
    shift : array of shape (n_columns,), optional
        The origin; by default the mean of the first block of rows that arrives.
    n_blocks, memory_limit
        As in :meth:`Moments.of`.
    threads : int, optional
        All cores by default.
    executor : {"numpy", "numba"}, optional
        numba when it is installed.
    names : sequence of str or int, optional
        Column names (or their numbers in a wider table), for messages and to compare data frames with; those of the first
        data frame by default.
    weighted : bool
        The last column of each block of rows holds frequency weights: whole numbers, how often the row is counted. All
        copies of a row are in the row's own block; a row of weight zero keeps its number and counts nothing.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> accumulator = Accumulator(order=4, shift=np.zeros(3))
    >>> for start in (600, 0, 250):  # any order of arrival
    ...     stop = {600: 1000, 0: 250, 250: 600}[start]
    ...     accumulator.update(X[start:stop], start=start)
    >>> accumulator.moments() == Moments.of(X, order=4, shift=np.zeros(3))
    True
    """

    _kind: ClassVar[type[Layout]] = Layout

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
        self._names: Sequence[Any] | None = None if names is None else tuple(names)
        self._weighted = bool(weighted)
        self._layout: Layout | None = None
        self._next = 0
        self._seen: tuple[int, ...] = ()  # disjoint intervals of absolute rows, in order: begin, stop, begin, stop, ...
        self._grouped = self._broken = False
        self._codes: IntArray | None = None  # of rows in groups: the block of each
        self._sums = Forest()
        self._fragments: dict[tuple[int, int], dict[int, Array]] = {}
        self._lock = threading.Lock()
        self._spaces: list[Workspace] = []
        if shift is not None:
            self._begin(np.asarray(shift, dtype=np.float64))

    def _begin(self, shift: Array) -> None:
        if shift.ndim != 1 or not np.isfinite(shift).all():
            raise DataError(f"the shift must be a finite vector, one entry per column; got shape {shift.shape}")
        layout = self._kind(len(shift), self._order, self._n_blocks)
        layout.check_memory(self._memory_limit)
        self._layout, self._shift = layout, shift.copy()
        self._low, self._high = np.full(len(shift), np.inf), np.full(len(shift), -np.inf)  # range of each column

    @property
    def layout(self) -> Layout:
        """What is summed, once the columns are known."""
        if self._layout is None:
            raise DataError("no rows have been seen and no shift was given: the columns are unknown")
        return self._layout

    @property
    def _reached(self) -> int:
        """The number of the row after the highest one seen."""
        return self._seen[-1] if self._seen else 0

    # ---- rows in

    def update(self, rows: object, start: int | None = None) -> None:
        """Take in a block of rows, shape (n_rows, n_columns).

        start : the absolute number of the first one; by default the row after the last one seen.
        """
        first = self._next if start is None else int(start)
        if first < 0:
            raise ValueError(f"start must not be negative, got {start}")
        block, names = as_matrix(rows), same_columns(self._names, rows, weights=self._weighted)
        count = len(block)
        if not count:
            return
        low, high = self._check(block)
        seen = self._marked(first, first + count)
        pieces = [(b, position, self._counted(block[which])) for b, position, which in self._places(first, count)]
        self._broken = True  # what can still fail (memory, Ctrl-C) leaves a mark
        self._take(pieces)
        self._seen, self._next, self._low, self._high, self._names = seen, first + count, low, high, names
        self._broken = False

    def grouped(self, groups: object) -> None:
        """All rows come IN ORDER from now on, and those of a group go to one block; groups : the labels of all of them."""
        self._grouped, self._codes = True, block_numbers(len(np.asarray(groups)), self._n_blocks, groups)
        by_block = np.argsort(self._codes, kind="stable")
        self._positions = np.empty_like(by_block)
        self._positions[by_block] = np.arange(len(by_block)) - np.searchsorted(
            self._codes, self._codes[by_block], sorter=by_block
        )

    def _places(self, first: int, count: int) -> Iterable[tuple[int, int, slice | IntArray]]:
        """Of so many rows: each block that has any, the position in it of the first of them, and which they are."""
        if not self._grouped:
            return self.layout.stripes(first, count)
        if first != self._reached:
            raise DataError("rows with groups come in order, without gaps")
        if self._codes is None or first == len(self._codes):
            raise DataError("rows with groups were given whole; further rows need an accumulator of their own")
        if first + count > len(self._codes):
            raise DataError(f"groups must have one label per row, got {len(self._codes)} labels and more rows")
        here, positions = self._codes[first : first + count], self._positions[first : first + count]
        members = [np.flatnonzero(here == b) for b in range(self._n_blocks)]
        return [(b, int(positions[rows[0]]), rows) for b, rows in enumerate(members) if len(rows)]

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
        low, high = over_rows(np.minimum, block), over_rows(np.maximum, block)
        if not (np.isfinite(low) & np.isfinite(high)).all():
            bad = ~np.isfinite(block)
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise MissingValueError(
                f"column {self._name(column)} holds a missing or infinite value (row {row} of its block; {int(bad.sum())} such "
                "values in all): drop those rows or impute them first"
            )
        if self._layout is None:
            # a mean between the extremes, also where its sum rounds or overflows: exact for a constant
            shift = np.clip(over_rows(np.add, block) / len(block), low, high)
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

    def _marked(self, start: int, stop: int) -> tuple[int, ...]:
        """The rows seen, with these absolute rows; refuses rows that come twice."""
        at = bisect_right(self._seen, start)
        if at % 2 or bisect_left(self._seen, stop) != at:
            raise DataError(
                f"rows {start}..{stop - 1} overlap rows that were given before: pass start= the number of the "
                "first row of each block"
            )
        return _joined_intervals(self._seen, (start, stop))

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
                space = self._spaces.pop()
            except IndexError:
                space = Workspace(layout.n_columns + 1, layout.order, self._executor)
            sums.add_leaves(some, self._shift, space, self._lock)
            self._spaces.append(space)

        if leaves:
            run_all(add, leaves, threads)

    # ---- the state

    def moments(self) -> Moments:
        """The state of all rows seen so far, incomplete leaves included; more rows may follow."""
        known = self._names is not None and all(isinstance(name, str) for name in self._names)
        names = tuple(map(str, self._names or ())) if known else None
        out = Moments(self.layout, self._shift, self._partial(), self._grouped or self._weighted, names)
        if out.n:
            self._check_sums(out)
        return out

    result = moments  # a statistic, to `reduce_rows`

    def _check_sums(self, state: Moments) -> None:
        """Refuse counts and powers that leave the range of float64; warn of constants, and of columns whose mean is so far from
        the shift that powers of it drown their variance."""
        if state.n > MOST_ROWS:
            raise DataError(
                "these rows count as more than 2**53, beyond which numbers are not exact: use smaller weights"
            )
        order, reach = self.layout.order, np.maximum(self._high - self._shift, self._shift - self._low)
        for column in np.flatnonzero((reach > 0) & (reach < 1e-290 ** (1 / order))).tolist():
            raise self._out_of_range(column, reach[column])
        if state.n < 2:
            return
        constant = self._low == self._high
        if constant.any():
            some = np.flatnonzero(constant).tolist()
            shown = ", ".join(map(self._name, some[:5])) + ", ..." * (len(some) > 5)
            warn_user(
                f"constant column(s) {shown}: their cumulants of order two and above are zero; drop them",
                ConstantColumnWarning,
            )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # infinite where not even the variance is left
            ratio = np.abs(state.offset) / np.sqrt(np.maximum(state.variances, 0.0))
            loss = np.finfo(float).eps * np.where(constant | (state.offset == 0), 0.0, ratio) ** order
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
        return self._n_blocks * Layout(1).leaf

    def _partial(self) -> Forest:
        """Sums, incomplete leaves included."""
        sums = self._sums.copy()
        self._sum([(b, k, _joined(held)) for (b, k), held in sorted(self._fragments.items())], sums)
        return sums

    def without_rows(self) -> Self:
        """The same sums, incomplete leaves included: no more rows of these may follow."""
        other = self.copy()
        other._sums, other._fragments = self._partial(), {}
        return other

    def absorb(self, other: Self) -> None:
        """Take in the sums of rows that were seen elsewhere; no leaf may be incomplete but the last ones."""
        if self._layout is None:
            self._begin(other._shift)
        self._sums = self._sums.merged(other._partial())
        self._low, self._high = np.minimum(self._low, other._low), np.maximum(self._high, other._high)
        self._seen = _joined_intervals(self._seen, other._seen)
        self._next = self._reached

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
        self._lock, self._spaces = threading.Lock(), []

    def to_parts(self) -> dict[str, Any]:
        """What a file holds: everything but what belongs to this machine. Rows of leaves that are not complete are among it."""
        _ = self.layout
        kept = ("layout", "shift", "low", "high", "seen", "sums", "fragments", "grouped", "weighted", "names")
        return {name: getattr(self, f"_{name}") for name in kept}

    @classmethod
    def of_parts(
        cls,
        layout: Layout,
        shift: Array,
        low: Array,
        high: Array,
        seen: tuple[int, ...],
        sums: Forest,
        fragments: Mapping[tuple[int, int], Mapping[int, Array]],
        grouped: bool,
        weighted: bool,
        names: tuple[str | int, ...] | None,
    ) -> Self:
        """The accumulator with these parts, which come from a file and may not fit together.

        fragments : {block and leaf: {position in the block: rows, the weight last}}.
        """
        check_state(layout, shift, sums)
        p = layout.n_columns
        held = [(*key, at, rows) for key, some in fragments.items() for at, rows in some.items()]
        whole = (
            layout.leaf == LEAF
            and low.shape == high.shape == (p,)
            and (names is None or len(names) == p)
            and len(seen) % 2 == 0
            and all(one < two for one, two in pairwise((-1, *seen)))
            and all(0 <= b < layout.n_blocks and min(k, at) >= 0 for b, k, at, _ in held)
            and all(rows.shape[1:] == (p + weighted,) and np.isfinite(rows).all() for *_, rows in held)
            and ((low <= high) | ((low == np.inf) & (high == -np.inf))).all()  # an empty range: no row counts so far
        )
        if not whole:
            raise StateFileError("the parts of the accumulator do not fit together")
        made = cls(layout.order, shift, n_blocks=layout.n_blocks, memory_limit=np.inf, names=names, weighted=weighted)
        made._low, made._high, made._sums, made._grouped = low, high, sums, grouped
        made._seen, made._fragments = seen, {key: dict(some) for key, some in fragments.items()}
        made._next = made._reached
        return made


def _joined_intervals(one: Sequence[int], two: Sequence[int]) -> tuple[int, ...]:
    """The ends of all intervals of both; where two touch neither end is one."""
    return tuple(sorted({*one} ^ {*two}))


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
    runs: dict[int, list[Array]] = {}
    first = end = -1
    for at in sorted(held):
        first = first if at == end else at
        runs.setdefault(first, []).append(held[at])
        end = at + len(held[at])
    return {at: np.concatenate(parts) for at, parts in runs.items()}


# ---- all rows of a source


def reduce_on_cluster(
    source: DaskSource, columns: Any, transform: Callable[[Array], Array] | None, sums: Accumulator, start: int
) -> None:
    """Feed all rows, from absolute number `start` (a multiple of LEAF) on, to sums that have seen none."""
    import dask

    n = source.n_rows or 0
    width = source.width if columns is None else len(columns)
    if (need := 8 * width * min(sums.grain, n)) > MEMORY_LIMIT:
        raise CapacityError(
            f"pieces of {min(sums.grain, n)} rows of {width} columns, the least that keep the blocks of rows together, need "
            f"{need / 2**30:,.1f} GiB each: use fewer columns or fewer blocks (n_blocks=)"
        )
    size = sums.grain
    while 2 * size * width * 8 <= 2**27 and 2 * size * 16 <= n:  # no more than 128 MB, and pieces enough to share
        size *= 2
    cuts = [0, *range(size - start % size, n, size), n]
    work, join = dask.delayed(_work, pure=False), dask.delayed(_merged, pure=False)
    blocks = source.pieces([high - low for low, high in pairwise(cuts)], columns)
    parts = [work(block, transform, sums, start + low) for block, low in zip(blocks, cuts[:-1], strict=True)]
    while len(parts) > 1:
        parts = [join(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    sums.absorb(*dask.compute(parts[0]))


def _work(block: object, transform: Callable[[Array], Array] | None, empty: Accumulator, start: int) -> Accumulator:
    rows, sums = as_matrix(block), empty.copy()
    sums._threads = 1
    sums.update(rows if transform is None else in_pieces(transform, rows), start)
    return sums.without_rows()


def _merged(parts: Sequence[Accumulator]) -> Accumulator:
    """The sums of several parts, which stay as they are: other workers may ask for them again."""
    first, *others = parts
    out = first.copy()
    for other in others:
        out.absorb(other)
    return out


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
    source, apart = rows.source, groups is None and start % LEAF == 0
    if isinstance(source, DaskSource) and isinstance(statistic, Accumulator) and apart and rows.n_rows:
        reduce_on_cluster(source, rows.columns, rows.transform, statistic, start)
        return statistic.result()
    if groups is not None and start:
        raise ValueError("rows with groups are read whole: start must be 0")
    if groups is not None:
        statistic.grouped(groups)  # type: ignore[attr-defined]
    done = 0
    with nullcontext(lambda more: None) if progress is None else metered(progress, rows.n_rows, "rows") as advance:
        for block in rows.chunks():
            statistic.update(block, start + done)
            done += len(block)
            advance(len(block))
    if groups is not None and done != len(np.asarray(groups)):
        raise DataError(f"groups must have one label per row ({done}), got {len(np.asarray(groups))}")
    return statistic.result()


def column_means(rows: Rows, progress: str | None = None) -> Array | None:
    """Column means to rounding, exactly the value for a constant column; None when the rows can be read only once."""
    if not rows.rereadable:
        return None
    return reduce_rows(rows, _Means(1, n_blocks=1, names=rows.labels, weighted=rows.weighted), progress=progress)


def first_means(rows: Rows) -> Array:
    """Column means of the first rows that count, for rows that can be read again; zero where a value is missing (the pass that
    begins there says so) or where none of the first rows counts."""
    first = rows.head(LEAF)
    if rows.weighted:
        first = first[first[:, -1] > 0, :-1]  # what does not count may be anything
    if not len(first):
        return np.zeros(first.shape[1])
    mean = over_rows(np.add, np.ascontiguousarray(first)) / len(first)
    return np.nan_to_num(np.clip(mean, first.min(axis=0), first.max(axis=0)), posinf=0.0, neginf=0.0)


class _Means(Accumulator):
    """Column means to rounding, and the exact value of columns that never change: sums of order one, about zero."""

    _kind = MeansLayout

    def update(self, rows: object, start: int | None = None) -> None:
        if self._layout is None:
            self._begin(np.zeros(as_matrix(rows).shape[1] - self._weighted))
        super().update(rows, start)

    def _sum(self, leaves: Sequence[Leaf], sums: Forest) -> None:
        """Columns are added up, in a fraction of the time of products."""
        p = self.layout.n_columns
        for b, k, rows in leaves:
            values = rows[:, :p] * rows[:, p:] if self._weighted else rows
            n = rows[:, p].sum() if self._weighted else len(rows)
            sums.add((b, 0, k), np.append(n, over_rows(np.add, values)))

    def result(self) -> Array:  # type: ignore[override]
        total = self._partial().fold(1, self.layout.size)[0] if self._layout else np.zeros(1)
        if not total[0]:
            raise DataError("there are no rows" + (", or all weights are zero" if self._weighted else ""))
        # between the extremes even where the sum overflows or rounds
        return np.asarray(np.clip(total[1:] / total[0], self._low, self._high))
