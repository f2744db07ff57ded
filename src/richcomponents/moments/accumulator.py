"""Accumulator: the mutable side of a state, which holds rows until their leaf is complete."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.parallel import available_cores, run_all
from richcomponents.data.table import as_matrix, check_weights, same_columns
from richcomponents.errors import ConstantColumnWarning, DataError, PrecisionWarning, warn_user
from richcomponents.moments.columns import column_range, column_sum
from richcomponents.moments.forest import Forest
from richcomponents.moments.kernel import EXECUTORS, Workspace, default_executor, homogeneous_sums
from richcomponents.moments.layout import MOST_ROWS, Layout, block_numbers, default_blocks
from richcomponents.moments.state import Moments

__all__ = ["Accumulator"]

_SMALL = 5e6  # multiply-adds below which starting threads costs more than it saves
_LARGEST, _SMALLEST = 1e280, 1e-290  # powers of a column, summed, must stay inside the range of float64
_FEW = 32  # fragments of a leaf, above which neighbours are joined: counting, copying and saving them takes time
_PRECISION = 1e-10  # relative error of a cumulant above which the user is told


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
        self._order, self._n_blocks = order, default_blocks(order) if n_blocks is None else n_blocks
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

    def _planned(self, width: int) -> Layout:
        """The layout for so many columns."""
        layout = Layout(width, self._order, self._n_blocks)
        layout.check_memory(self._memory_limit)
        return layout

    def _begin(self, shift: Array) -> Layout:
        if shift.ndim != 1 or not np.isfinite(shift).all():
            raise DataError(f"the shift must be a finite vector, one entry per column; got shape {shift.shape}")
        layout = self._planned(len(shift))
        self._layout, self._shift = layout, shift.copy()
        self._counts = np.zeros(layout.n_blocks, dtype=np.int64)  # rows of each block, when groups say which
        self._low, self._high = np.full(len(shift), np.inf), np.full(len(shift), -np.inf)  # range of each column
        return layout

    # ---- rows in

    def update(self, rows: object, start: int | None = None) -> None:
        """Take in a block of rows, shape (n_rows, n_columns).

        start : the absolute number of the first one; by default the row after the last one seen.
        """
        block, names = as_matrix(rows), same_columns(self._names, rows, weights=self._weighted)
        start = self._next if start is None else int(start)
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        if self._grouped:
            raise DataError("rows with groups were given whole; further rows need an accumulator of their own")
        if not block.shape[0]:
            return
        layout, reached = self._check(block)
        count = int(block.shape[0])
        seen = self._marked(start, start + count)
        pieces = []
        for b in range(layout.n_blocks):
            selector, position, chosen = layout.stripe(start, count, b)
            if chosen:
                pieces.append((b, position, self._counted(block[selector])))
        self._commit(pieces, seen, reached)
        self._next, self._names = start + count, names

    def update_grouped(self, rows: object, groups: object) -> None:
        """Take in ALL rows at once, with the rows of a group in one block."""
        block = as_matrix(rows)
        if self._seen:
            raise DataError("rows with groups are given whole, to an accumulator that has seen no others")
        if not block.shape[0]:
            raise DataError("there are no rows")
        if len(np.asarray(groups)) != block.shape[0]:
            raise DataError(f"groups must have one label per row ({block.shape[0]}), got {len(np.asarray(groups))}")
        self.grouped(groups)(block, 0)

    def grouped(self, groups: object) -> Callable[[object, int], None]:
        """A function (rows, number of the first one) that takes in rows IN ORDER, those of a group in one block.

        groups : the labels of all rows that will come.
        """
        chosen = block_numbers(len(np.asarray(groups)), self._n_blocks, groups)

        def take(rows: object, start: int) -> None:
            block, names = as_matrix(rows), same_columns(self._names, rows, weights=self._weighted)
            count = int(block.shape[0])
            if start != (self._seen[-1][1] if self._seen else 0):
                raise DataError("rows with groups come in order, without gaps")
            if start + count > len(chosen):
                raise DataError(f"groups must have one label per row, got {len(chosen)} labels and more rows")
            if not count:
                return
            layout, reached = self._check(block)
            mine = chosen[start : start + count]  # after the check: it may have been the first to know the columns
            of_block = [(b, np.flatnonzero(mine == b)) for b in range(layout.n_blocks)]
            pieces = [
                (b, int(self._counts[b]), self._counted(block[numbers])) for b, numbers in of_block if len(numbers)
            ]
            counts = self._counts + np.bincount(mine, minlength=layout.n_blocks)
            self._grouped = True
            self._commit(pieces, self._marked(start, start + count), reached, counts)
            self._names = names

        return take

    def _check(self, block: Array) -> tuple[Layout, tuple[Array, Array]]:
        """The layout, and the columns' ranges with this block; refuses before anything is changed."""
        if self._broken:
            raise DataError("an earlier update was interrupted half-way: start again with a new accumulator")
        if not block.shape[0]:
            raise DataError("there are no rows")
        if self._weighted:
            check_weights(block[:, -1])
            counted = block[:, -1] > 0
            if self._layout is not None and not counted.any():
                self._layout.check_columns(block.shape[1] - 1)
                return self._layout, (self._low, self._high)
            block = np.ascontiguousarray(block[counted if counted.any() else slice(None), :-1])
        low, high = column_range(block)
        if not (np.isfinite(low) & np.isfinite(high)).all():
            raise self._not_finite(~np.isfinite(block))
        layout = self._planned(int(block.shape[1])) if self._layout is None else self._layout
        layout.check_columns(block.shape[1])
        if (
            self._layout is None
        ):  # a mean between the extremes, also where its sum rounds or overflows: exact for a constant
            shift = np.clip(column_sum(block) / block.shape[0], low, high)
        else:
            shift, low, high = self._shift, np.minimum(self._low, low), np.maximum(self._high, high)
        with np.errstate(over="ignore"):
            far = np.maximum(high - shift, shift - low)
        for column in np.flatnonzero(far > _LARGEST ** (1 / layout.order)).tolist():
            raise self._out_of_range(column, far[column])
        return (self._begin(shift) if self._layout is None else layout), (low, high)

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
        return DataError(
            f"column {self._name(column)} holds a missing or infinite value (row {row} of its block; "
            f"{int(bad.sum())} such values in all): drop those rows or impute them first"
        )

    def _name(self, column: int) -> str:
        return repr(self._names[column]) if self._names is not None else str(column)

    def _commit(
        self,
        pieces: Sequence[tuple[int, int, Array]],
        seen: list[tuple[int, int]],
        reached: tuple[Array, Array],
        counts: IntArray | None = None,
    ) -> None:
        """Everything was checked: take the rows in. What can still fail (memory, Ctrl-C) leaves a mark."""
        self._broken = True
        self._take(pieces)
        self._seen, (self._low, self._high) = seen, reached
        self._counts = self._counts if counts is None else counts
        self._broken = False

    def _take(self, pieces: Sequence[tuple[int, int, Array]]) -> None:
        """Split the rows of each block into leaves; sum the complete ones, keep the rest."""
        layout = self._need_layout()
        complete: list[tuple[int, int, Array]] = []
        for b, position, rows in pieces:
            for k, low, high in _cut(position, rows.shape[0], layout.leaf):
                part = rows[low:high, :]
                if high - low == layout.leaf:
                    complete.append((b, k, part))
                    continue
                held = self._fragments.setdefault((b, k), {})
                held[position + low] = part.copy()
                if len(held) % _FEW == 0:
                    held = self._fragments[b, k] = _neighbours_joined(held)
                if sum(int(rows.shape[0]) for rows in held.values()) == layout.leaf:
                    complete.append((b, k, _joined(self._fragments.pop((b, k)))))
        self._sum(complete, self._sums)

    def _sum(self, leaves: Sequence[tuple[int, int, Array]], sums: Forest) -> None:
        layout = self._need_layout()
        work = sum(rows.shape[0] for _, _, rows in leaves) * float(layout.size)
        threads = 1 if work < _SMALL else min(self._threads, max(len(leaves), 1))

        def one(leaf: tuple[int, int, Array]) -> None:
            b, k, rows = leaf
            try:
                space = self._spaces.get_nowait()
            except Empty:
                space = Workspace(layout.n_columns + 1, layout.order, self._executor)
            weight = np.ascontiguousarray(rows[:, -1]) if self._weighted else None
            found = homogeneous_sums(rows[:, : layout.n_columns], self._shift, space, weight)
            self._spaces.put(space)
            with self._lock:
                sums.add((b, 0, k), found)

        run_all(one, leaves, threads)

    # ---- state out

    def moments(self) -> Moments:
        """The state of all rows seen so far, incomplete leaves included; more rows may follow."""
        layout = self._need_layout()
        sums, _, _ = self.partial()
        out = Moments(layout, self._shift, sums, self._grouped or self._weighted)
        if not out.is_empty:
            self._say(out)
        return out

    result = moments  # a statistic, to Rows.reduce

    def _say(self, moments: Moments) -> None:
        """Refuse powers that leave the range of float64; warn of constants and of lost digits."""
        layout = self._need_layout()
        if moments._low[:, 0].sum() > MOST_ROWS:
            raise DataError(
                "these rows count as more than 2**53, beyond which numbers are not exact: use smaller weights"
            )
        reach = np.maximum(self._high - self._shift, self._shift - self._low)
        smallest = _SMALLEST ** (1 / layout.order)
        for column in np.flatnonzero((reach > 0) & (reach < smallest)).tolist():
            raise self._out_of_range(column, reach[column])
        constant = np.flatnonzero(self._low == self._high)
        if len(constant) and moments.n > 1:
            shown = ", ".join(self._name(int(c)) for c in constant[:5]) + (", ..." if len(constant) > 5 else "")
            warn_user(
                f"constant column(s) {shown}: their cumulants of order two and above are zero; drop them",
                ConstantColumnWarning,
            )
        if moments.n < 2:
            return
        away = np.abs(moments.offset)
        spread = np.sqrt(np.maximum(moments.variances, 0.0))
        varies = self._low < self._high
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(varies & (away > 0), away / spread, 0.0)  # infinite where not even the variance is left
            loss = np.finfo(float).eps * ratio**layout.order
        if (loss > _PRECISION).any():
            column = int(np.argmax(loss))
            far = f"{ratio[column]:.0f}" if np.isfinite(ratio[column]) else "so many"
            cost = f"costs digits at order {layout.order}" if np.isfinite(ratio[column]) else "costs all digits"
            warn_user(
                f"column {self._name(column)} has its mean {far} standard deviations from the shift, which {cost}: pass "
                "shift= near the column means",
                PrecisionWarning,
            )

    # ---- parts that are computed apart (see cluster.py)

    @property
    def grain(self) -> int:
        """Rows after which all blocks begin a new leaf."""
        layout = self._need_layout()
        return layout.n_blocks * layout.leaf

    def fork(self) -> Accumulator:
        """An empty accumulator of the same kind and shift, on one thread."""
        other = self.copy()
        other._threads = 1
        other._sums, other._fragments, other._seen = Forest(), {}, []
        other._begin(self._shift)
        return other

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

    def copy(self) -> Accumulator:
        """An independent accumulator in the same state (sums are shared until either changes)."""
        other = Accumulator.__new__(Accumulator)
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

    def _need_layout(self) -> Layout:
        if self._layout is None:
            raise DataError("no rows have been seen and no shift was given: the columns are unknown")
        return self._layout


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
