"""Rows to sums of leaves: the mutable side of a state, which holds rows until their leaf is complete.

FOREST. Sums of leaves that do not depend on the order in which the leaves arrive.

Floating-point addition is not associative, so a sum over chunks depends on the chunks. Leaves are
therefore merged only with their siblings in a fixed binary tree: node (level, i) is the sum of
nodes (level-1, 2i) and (level-1, 2i+1). Whatever the order of arrival, each node is the result of
the same additions, and a set of leaves has one canonical forest: any chunking, any number of
threads or machines gives identical bits.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, available_cores, run_all
from richcomponents.data.table import as_matrix, check_weights, same_columns
from richcomponents.errors import (
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
    Layout,
    Workspace,
    block_numbers,
    column_range,
    column_sum,
    default_executor,
    homogeneous_sums,
)
from richcomponents.storage import storable

Node = tuple[int, int, int]  # tree, level, index


class Forest:
    """A mapping node -> sum, with siblings merged as soon as both are present."""

    def __init__(self, items: Iterable[tuple[Node, Array]] = ()) -> None:
        self._nodes: dict[Node, Array] = {}
        for node, value in items:
            self.add(node, value)

    def add(self, node: Node, value: Array) -> None:
        """Put in one node. A node that is present already (rows of another site that carry the same
        numbers, or parts of one leaf) is added to; that is right, but no longer bit-reproducible."""
        tree, level, index = node
        while True:
            key = (tree, level, index)
            if key in self._nodes:
                self._nodes[key] = self._nodes[key] + value
                return
            sibling = self._nodes.pop((tree, level, index ^ 1), None)
            if sibling is None:
                self._nodes[key] = value
                return
            value = sibling + value  # commutative, so left or right does not matter
            level, index = level + 1, index >> 1

    def __iter__(self) -> Iterator[tuple[Node, Array]]:
        """Nodes in canonical order: by tree, then by the first leaf they cover."""

        def place(item: tuple[Node, Array]) -> Node:
            tree, level, index = item[0]
            return tree, index << level, -level

        return iter(sorted(self._nodes.items(), key=place))

    def __len__(self) -> int:
        return len(self._nodes)

    def copy(self) -> Forest:
        """Nodes are never changed in place, so a copy shares them."""
        other = Forest()
        other._nodes = dict(self._nodes)
        return other

    def merged(self, other: Forest) -> Forest:
        """The forest of both sets of leaves."""
        out = self.copy()
        for node, value in other:
            out.add(node, value)
        return out

    def fold(self, n_trees: int, where: slice | IntArray, size: int) -> Array:
        """The sum of each tree over some of the entries, shape (n_trees, size)."""
        total = np.zeros((n_trees, size))
        for (tree, _, _), value in self:
            total[tree] += value[where]
        return total

    def arrays(self) -> dict[str, Any]:
        """The nodes (m, 3) and their sums (m, size), in canonical order, for a file."""
        nodes = np.array([node for node, _ in self], dtype=np.int64).reshape(-1, 3)
        return {"nodes": nodes, "sums": np.stack([value for _, value in self]) if len(self) else np.zeros((0, 0))}

    @classmethod
    def from_arrays(cls, nodes: IntArray, sums: Array) -> Forest:
        """The way back; refuses what no forest looks like."""
        if sums.ndim != 2 or nodes.shape != (len(sums), 3) or nodes.dtype != np.int64:
            raise StateFileError(f"nodes of shape {nodes.shape} and sums of shape {sums.shape} are no forest")
        if len(nodes) and not (nodes.min() >= 0 and nodes[:, 1].max() < 64):
            raise StateFileError("the sums name a node that cannot exist")
        forest = cls(zip(map(tuple, nodes.tolist()), sums, strict=True))
        if len(forest) != len(nodes):
            raise StateFileError("the sums are damaged (repeated nodes, or siblings that should have been merged)")
        return forest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Forest):
            return NotImplemented
        return self._nodes.keys() == other._nodes.keys() and all(
            np.array_equal(value, other._nodes[node]) for node, value in self._nodes.items()
        )

    __hash__ = None  # type: ignore[assignment]


storable(Forest, Forest.arrays, Forest.from_arrays)


def check_state(layout: Layout, shift: Array, sums: Forest) -> None:
    """Refuse sums out of a file that do not belong to the layout."""
    if shift.shape != (layout.n_columns,) or shift.dtype != np.float64:
        raise StateFileError(f"the shift has shape {shift.shape}, the state {layout.n_columns} columns")
    if len(sums) and not np.isfinite(shift).all():
        raise StateFileError("the shift is not finite")
    for (tree, _, _), value in sums:
        if tree >= layout.n_blocks or value.shape != (layout.size,) or value.dtype != np.float64:
            raise StateFileError("the sums name a node that cannot exist, or have the wrong length")
        if not np.isfinite(value).all():
            raise StateFileError("the sums are damaged (values that are not finite)")
        if not 0 <= value[0] <= MOST_ROWS or value[0] != np.rint(value[0]):
            raise StateFileError(f"the sums are damaged: {value[0]} is not a number of rows")


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
        complete: list[tuple[int, int, Array]] = []
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

    def _sum(self, leaves: Sequence[tuple[int, int, Array]], sums: Forest) -> None:
        layout = self.layout
        work = sum(len(rows) for _, _, rows in leaves) * float(layout.size)
        threads = 1 if work < _SMALL else min(self._threads, max(len(leaves), 1))

        def add(some: Iterator[tuple[int, int, Array]]) -> None:
            try:
                space = self._spaces.get_nowait()
            except Empty:
                space = Workspace(layout.n_columns + 1, layout.order, self._executor)
            for b, k, rows in some:
                weight = np.ascontiguousarray(rows[:, -1]) if self._weighted else None
                vector = homogeneous_sums(rows[:, : layout.n_columns], self._shift, space, weight)
                with self._lock:
                    sums.add((b, 0, k), vector)
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

    # ---- parts that are computed apart (see reduce.py)

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
