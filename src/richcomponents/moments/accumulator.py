"""Accumulator: the mutable side of a state, which holds rows until their leaf is complete."""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

import numpy as np

from richcomponents.algebra import Array, pack
from richcomponents.errors import ConstantColumnWarning, DataError, PrecisionWarning
from richcomponents.moments.columns import column_range
from richcomponents.moments.forest import Forest
from richcomponents.moments.kernel import Workspace, default_executor, homogeneous_sums
from richcomponents.moments.layout import MEMORY_LIMIT, Layout
from richcomponents.moments.parallel import available_cores, run_all
from richcomponents.moments.state import Moments

__all__ = ["Accumulator"]

_SMALL = 5e6  # multiply-adds below which starting threads costs more than it saves
_LARGEST, _SMALLEST = 1e290, 1e-290  # powers of a column must stay inside the range of float64
_PRECISION = 1e-10  # relative error of a cumulant above which the user is told


class Accumulator:
    """Takes blocks of rows in any order and of any size; :meth:`moments` gives the state so far.

    For the same shift the state has the same bits whatever the chunks, their order of arrival and the
    number of threads.

    Parameters
    ----------
    order : int
        Joint moments of every order up to this one (2..6).
    shift : array of shape (n_columns + n_targets,), optional
        The origin; by default the mean of the first block of rows that arrives.
    n_targets : int
        How many of the last columns of each block of rows are targets, not view columns.
    target_order, n_blocks, block_length, memory_limit
        As in :meth:`Moments.of`.
    threads : int, optional
        All cores by default.
    executor : {"numpy", "numba"}, optional
        numba when it is installed.
    names : sequence of str, optional
        Column names, for messages.

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
        n_targets: int = 0,
        target_order: int = 2,
        n_blocks: int = 20,
        block_length: int = 1,
        threads: int | None = None,
        executor: str | None = None,
        memory_limit: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._options = (order, n_targets, target_order, n_blocks, block_length)
        self._memory_limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        self._threads = available_cores() if threads is None else max(1, int(threads))
        self._executor = default_executor() if executor is None else executor
        self._names = names
        self._layout: Layout | None = None
        self._next = 0
        self._seen: list[tuple[int, int]] = []  # disjoint intervals of absolute rows, in order
        self._blocked, self._pooled = Forest(), Forest()
        self._fragments: dict[tuple[int, int], dict[int, Array]] = {}
        self._lock = threading.Lock()
        self._spaces: SimpleQueue[_Spaces] = SimpleQueue()
        if shift is not None:
            self._begin(np.asarray(shift, dtype=np.float64))

    def _begin(self, shift: Array) -> Layout:
        order, n_targets, target_order, n_blocks, block_length = self._options
        if shift.ndim != 1 or not np.isfinite(shift).all():
            raise DataError(f"the shift must be a finite vector, one entry per column; got shape {shift.shape}")
        if len(shift) <= n_targets:
            raise DataError(f"{len(shift)} columns of which {n_targets} are targets leave no view column")
        layout = Layout(len(shift) - n_targets, order, n_targets, target_order, n_blocks, block_length)
        layout.check_memory(self._memory_limit)
        self._layout, self._shift = layout, shift.copy()
        self._reach = np.zeros(len(shift))  # the largest distance from the shift, per column
        return layout

    # ---- rows in

    def update(self, rows: object, start: int | None = None) -> None:
        """Take in a block of rows, shape (n_rows, n_columns + n_targets).

        start : the absolute number of the first one; by default the row after the last one seen.
        """
        block = np.asarray(rows, dtype=np.float64)
        if block.ndim != 2:
            raise DataError(f"a block of rows must be two-dimensional, got shape {block.shape}")
        start = self._next if start is None else int(start)
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        layout = self._check(block)
        self._mark(start, start + len(block))
        pieces = []
        for b in range(layout.n_blocks):
            selector, position, count = layout.stripe(start, len(block), b)
            if count:
                pieces.append((b, position, block[selector]))
        self._take(pieces)
        self._next = start + len(block)

    def update_grouped(self, rows: object, groups: object) -> None:
        """Take in ALL rows at once, with the rows of a group in one block (groups are dealt out in turn,
        in order of first appearance)."""
        block = np.asarray(rows, dtype=np.float64)
        labels = np.asarray(groups)
        if labels.shape != (len(block),):
            raise DataError(f"groups must have one label per row ({len(block)}), got shape {labels.shape}")
        layout = self._check(block)
        self._mark(0, len(block))
        _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
        turn = np.empty(len(first), dtype=np.int64)
        turn[np.argsort(first)] = np.arange(len(first))
        chosen = turn[codes] % layout.n_blocks
        self._take([(b, 0, block[chosen == b]) for b in range(layout.n_blocks) if np.any(chosen == b)])
        self._next += len(block)

    def _check(self, block: Array) -> Layout:
        """Shape and finite values; all before anything is changed."""
        if self._layout is None and len(block):
            bad = ~np.isfinite(block)
            if bad.any():
                raise self._not_finite(bad)
            self._begin(block.mean(axis=0))
        layout = self._layout
        if layout is None:
            raise DataError("the first block of rows is empty and no shift was given: the columns are unknown")
        layout.check_columns(block.shape[1])
        if len(block):
            low, high = column_range(block)
            reach = np.maximum(high - self._shift, self._shift - low)
            if not np.isfinite(reach).all():
                raise self._not_finite(~np.isfinite(block))
            self._reach = np.maximum(self._reach, reach)
        return layout

    def _mark(self, start: int, stop: int) -> None:
        """Remember that these absolute rows have come; refuse rows that come twice."""
        if start == stop:
            return
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
        self._seen = [*before, (start, stop), *after]

    def _not_finite(self, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> DataError:
        row, column = (int(i) for i in np.argwhere(bad)[0])
        return DataError(
            f"column {self._name(column)} holds a missing or infinite value (row {row} of its block; "
            f"{int(bad.sum())} such values in all): drop those rows or impute them first"
        )

    def _name(self, column: int) -> str:
        return repr(self._names[column]) if self._names is not None else str(column)

    def _take(self, pieces: Sequence[tuple[int, int, Array]]) -> None:
        """Split the rows of each block into leaves; sum the complete ones, keep the rest."""
        layout = self._need_layout()
        complete: list[tuple[int, int, Array]] = []
        for b, position, rows in pieces:
            for k, low, high in _cut(position, len(rows), layout.leaf):
                part = rows[low:high]
                if high - low == layout.leaf:
                    complete.append((b, k, part))
                    continue
                held = self._fragments.setdefault((b, k), {})
                held[position + low] = part.copy()
                if sum(map(len, held.values())) == layout.leaf:
                    complete.append((b, k, _joined(self._fragments.pop((b, k)))))
        self._sum(complete, self._blocked, self._pooled)

    def _sum(self, leaves: Sequence[tuple[int, int, Array]], blocked: Forest, pooled: Forest) -> None:
        layout = self._need_layout()
        work = sum(len(rows) for _, _, rows in leaves) * float(layout.blocked_size + layout.pooled_size)
        threads = 1 if work < _SMALL else min(self._threads, max(len(leaves), 1))

        def one(leaf: tuple[int, int, Array]) -> None:
            b, k, rows = leaf
            try:
                spaces = self._spaces.get_nowait()
            except Empty:
                spaces = _Spaces(layout, self._executor)
            low, high = spaces.sums(rows, self._shift)
            self._spaces.put(spaces)
            with self._lock:
                blocked.add((b, 0, k), low)
                if len(high):
                    pooled.add((0, 0, k * layout.n_blocks + b), high)

        run_all(one, leaves, threads)

    # ---- state out

    def moments(self) -> Moments:
        """The state of all rows seen so far, incomplete leaves included; more rows may follow."""
        layout = self._need_layout()
        blocked, pooled = self._blocked.copy(), self._pooled.copy()
        rest = [(b, k, _joined(held)) for (b, k), held in sorted(self._fragments.items())]
        self._sum(rest, blocked, pooled)
        out = Moments(layout, self._shift, blocked, pooled)
        if not out.is_empty:
            self._say(out)
        return out

    result = moments  # a statistic, to Rows.reduce

    def _say(self, moments: Moments) -> None:
        """Refuse powers that leave the range of float64; warn of constants and of lost digits."""
        layout = self._need_layout()
        reach = self._reach[: layout.n_columns]
        high = (_LARGEST / max(moments.n, 1)) ** (1 / layout.order)
        low = _SMALLEST ** (1 / layout.order)
        for bad in np.flatnonzero((reach > high) | ((reach > 0) & (reach < low))).tolist():
            raise DataError(
                f"column {self._name(bad)} varies by {reach[bad]:.1e}, and its power {layout.order} "
                "leaves the range of floating point: rescale the column (for example to unit variance)"
            )
        constant = np.flatnonzero(self._reach == 0)
        if len(constant) and moments.n > 1:
            shown = ", ".join(self._name(int(c)) for c in constant[:5]) + (", ..." if len(constant) > 5 else "")
            warnings.warn(
                f"constant column(s) {shown}: their cumulants of order two and above are zero; drop them",
                ConstantColumnWarning,
                stacklevel=4,
            )
        if moments.n < 2:
            return
        away = np.abs(moments.offset)[: layout.n_columns]
        spread = np.sqrt(np.maximum(moments.variances, 0.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = np.finfo(float).eps * np.nan_to_num(away / spread, nan=0.0, posinf=0.0) ** layout.order
        if (loss > _PRECISION).any():
            column = int(np.argmax(loss))
            warnings.warn(
                f"column {self._name(column)} has its mean {away[column] / spread[column]:.0f} standard deviations "
                f"from the shift, which costs digits at order {layout.order}: pass shift= near the column means",
                PrecisionWarning,
                stacklevel=4,
            )

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


class _Spaces:
    """The buffers of one thread, and the sums of one leaf."""

    def __init__(self, layout: Layout, executor: str) -> None:
        self.layout = layout
        self.joint = Workspace(layout.n_columns + 1, layout.order, executor)
        self.with_target = (
            Workspace(layout.n_columns + 1, layout.target_order - 1, executor) if layout.n_targets else None
        )

    def sums(self, rows: Array, shift: Array) -> tuple[Array, Array]:
        """(blocked vector, pooled vector) of one leaf."""
        lay, p = self.layout, self.layout.n_columns
        joint = homogeneous_sums(rows[:, :p], shift[:p], self.joint)
        if self.with_target is None and not lay.pooled_size:
            return joint, np.empty(0)
        blocked, pooled = joint[lay.joint].copy(), joint[lay.joint.stop :].copy()
        if self.with_target is None:
            return blocked, pooled
        y = rows[:, p:] - shift[p:]
        parts = [homogeneous_sums(rows[:, :p], shift[:p], self.with_target, weight=column) for column in y.T]
        return np.concatenate([blocked, *parts, pack(y.T @ y)]), pooled


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
