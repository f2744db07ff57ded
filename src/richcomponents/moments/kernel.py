"""What a state holds and where: a fixed description agreed on before the first row is read.

Two units never to be mixed up:

* a LEAF is the unit of reproducibility: the rows of one GEMM-sized piece, summed in a fixed order;
* a BLOCK is the unit of statistics: row i belongs to block i mod n_blocks, so that
  jackknife, cross-validation and cross-block products see interleaved, comparable samples even
  when the file is sorted.

Row i has block b and a position inside that block; leaf (b, k) holds the rows of block b with
positions k*leaf .. (k+1)*leaf - 1. Both depend on the absolute row number only, never on how the
rows arrive.

FOREST. Sums of leaves that do not depend on the order in which the leaves arrive.

Floating-point addition is not associative, so a sum over chunks depends on the chunks. Leaves are
therefore merged only with their siblings in a fixed binary tree: node (level, i) is the sum of
nodes (level-1, 2i) and (level-1, 2i+1). Whatever the order of arrival, each node is the result of
the same additions, and a set of leaves has one canonical forest: any chunking, any number of
threads or machines gives identical bits.

KERNEL. The only hot loop: the distinct entries of sum_n w_n (1, z_n)^(t times) for one leaf of rows.

Samples are contiguous (features x samples tiles). An order-t entry i1 <= ... <= it is a product of
a LEFT monomial (the first a indices) and a RIGHT monomial (the last b), with the last index of the
left one at most the first index of the right one: a staircase. Left monomials are sorted by their
last index and right ones by their first, so that each step of the staircase is one matrix product
of contiguous rows, and no dense tensor is ever formed.

Two executors of the same plan: matrix products (numpy), and a register-blocked loop (numba, when
the optional extra `fast` is installed), which skips the packing that BLAS spends half its time on at these
sizes. They agree to rounding; one process uses one of them throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from richcomponents.algebra import Array, IntArray, packed_indices, packed_rank, packed_size
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT
from richcomponents.algebra.packing import segments
from richcomponents.data.cells import is_gap
from richcomponents.errors import CapacityError, DataError, StateFileError
from richcomponents.storage import storable

MAX_ORDER = 6
N_BLOCKS = 20
MOST_ROWS = 2.0**53  # counts beyond are not exact


def block_numbers(n_rows: int, n_blocks: int, groups: object | None = None) -> IntArray:
    """The statistical block of each of rows 0..n-1: in turn, or, with groups, all rows of a group in one block.

    Groups are dealt out in turn, in order of first appearance. A missing label is refused: rows without one would pass for
    one large group.

    >>> block_numbers(5, 2).tolist(), block_numbers(5, 2, ["a", "a", "b", "c", "a"]).tolist()
    ([0, 1, 0, 1, 0], [0, 0, 1, 0, 0])
    """
    if groups is None:
        return np.arange(n_rows, dtype=np.int64) % n_blocks
    if isinstance(groups, str):
        raise DataError(f"groups={groups!r} is a name: pass the labels of all rows, such as X[{groups!r}]")
    labels = groups if isinstance(groups, np.ndarray) else np.asarray(groups, dtype=object)  # else nan becomes 'nan'
    if labels.shape != (n_rows,):
        raise DataError(f"groups must have one label per row ({n_rows}), got shape {labels.shape}")
    missing = np.isnat(labels) if labels.dtype.kind in "mM" else [is_gap(label) for label in labels.tolist()]
    if np.any(missing):
        raise DataError(
            f"groups holds {int(np.sum(missing))} missing label(s), the first in row {int(np.argmax(missing))}: drop those "
            "rows, or give each its own label"
        )
    turn: dict[object, int] = {}
    codes = np.array([turn.setdefault(label, len(turn)) for label in labels.tolist()], dtype=np.int64)
    return codes % n_blocks


@storable
@dataclass(frozen=True)
class Layout:
    """Columns, orders and blocks of a state.

    order : joint moments of every order up to this one (2..6); n_blocks : row i belongs to block i mod n_blocks; leaf : rows of
    one block that are summed in one go.
    """

    n_columns: int
    order: int = 4
    n_blocks: int = 20
    leaf: int = LEAF
    least_order: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if name == "order" and not self.least_order <= value <= MAX_ORDER:
                raise ValueError(f"order must be between {self.least_order} and {MAX_ORDER}, got {value}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
            object.__setattr__(self, name, int(value))

    @cached_property
    def orders(self) -> list[slice]:
        """Where the packed sums of orders 0..order lie in the vector of sums."""
        return segments(self.n_columns, self.order)

    @cached_property
    def size(self) -> int:
        """Length of the vector of sums: the homogeneous tensor of (1, Z), packed."""
        return int(self.orders[-1].stop)

    # ---- rows -> leaves

    def stripes(self, start: int, n_rows: int) -> list[tuple[int, int, slice]]:
        """Of each block that has any rows in a contiguous chunk that begins at absolute row `start`:

        (block, position of its first row inside the block, selector into the chunk).
        Consecutive rows of a block have consecutive positions, so this describes all of them.
        """
        offsets = ((block, (block - start) % self.n_blocks) for block in range(self.n_blocks))
        return [
            (block, (start + offset) // self.n_blocks, slice(offset, n_rows, self.n_blocks))
            for block, offset in offsets
            if offset < n_rows
        ]

    def check_columns(self, width: int) -> None:
        if width != self.n_columns:
            raise DataError(f"expected rows with {self.n_columns} columns, got {width}")

    def check_memory(self, limit: float = MEMORY_LIMIT) -> None:
        """Refuse before allocating: a state and the copy made while it is read hold about three vectors per block."""
        need = 8.0 * 3 * self.n_blocks * self.size
        if need <= limit:
            return
        raise CapacityError(
            f"moments of order {self.order} of {self.n_columns} columns in {self.n_blocks} blocks need about "
            f"{need / 2**30:,.1f} GiB, more than the limit of {limit / 2**30:,.1f} GiB. Lower `order`, use fewer "
            "columns (rank reduction: `rank=`, or principal components first), use fewer blocks (`n_blocks=`), "
            "or raise `memory_limit`. ContrastiveRCA fitted to a table that can be read again (an array, a file) needs no "
            "such state."
        )


class MeansLayout(Layout):
    """Of sums of order one, which no state holds."""

    least_order = 1


Node = tuple[int, int, int]  # tree, level, index
Leaf = tuple[int, int, Array]  # block, number of the leaf in it, rows (weights last where there are any)


@storable
class Forest:
    """A mapping node -> sum, with siblings merged as soon as both are present."""

    def __init__(self, nodes: Mapping[Node, Array] | None = None) -> None:
        self._nodes: dict[Node, Array] = {}
        for node, value in (nodes or {}).items():
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

    def add_leaves(self, leaves: Iterable[Leaf], shift: Array, space: Workspace, lock: Lock) -> None:
        """Put in the sums of leaves; rows are longer than the shift by their weight, where they have one."""
        p = len(shift)
        for block, number, rows in leaves:
            weight = np.ascontiguousarray(rows[:, p]) if rows.shape[1] > p else None
            vector = homogeneous_sums(rows[:, :p], shift, space, weight)
            with lock:
                self.add((block, 0, number), vector)

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

    def part(self, where: slice | IntArray) -> Forest:
        """Some of the entries of every sum."""
        other = Forest()
        other._nodes = {node: value[where] for node, value in self._nodes.items()}
        return other

    def merged(self, other: Forest) -> Forest:
        """The forest of both sets of leaves."""
        out = self.copy()
        for node, value in other:
            out.add(node, value)
        return out

    def fold(self, n_trees: int, size: int) -> Array:
        """The sum of each tree, shape (n_trees, size)."""
        total = np.zeros((n_trees, size))
        for (tree, _, _), value in self:
            total[tree] += value
        return total

    def to_parts(self) -> dict[str, Any]:
        """The nodes (m, 3) and their sums (m, size), in canonical order, for a file."""
        nodes = np.array([node for node, _ in self], dtype=np.int64).reshape(-1, 3)
        return {"nodes": nodes, "sums": np.stack([value for _, value in self]) if len(self) else np.zeros((0, 0))}

    @classmethod
    def of_parts(cls, nodes: IntArray, sums: Array) -> Forest:
        """The way back; refuses what no forest looks like."""
        if sums.ndim != 2 or nodes.shape != (len(sums), 3) or nodes.dtype != np.int64:
            raise StateFileError(f"nodes of shape {nodes.shape} and sums of shape {sums.shape} are no forest")
        if len(nodes) and not (nodes.min() >= 0 and nodes[:, 1].max() < 64):
            raise StateFileError("the sums name a node that cannot exist")
        forest = cls(dict(zip(map(tuple, nodes.tolist()), sums, strict=True)))
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


TILE = {"numpy": 1024, "numba": 384}  # samples per tile: measured, see benchmarks/kernel.py
EXECUTORS = ("numpy", "numba")


@lru_cache(maxsize=1)
def default_executor() -> str:
    """numba when it is installed, else numpy."""
    return "numba" if find_spec("numba") is not None else "numpy"


@dataclass(frozen=True)
class Plan:
    """How order t over m coordinates (the constant included) is computed.

    `cuts` are the steps of the staircase over the last index of the left monomials.
    """

    m: int
    order: int
    cuts: tuple[int, ...]

    @property
    def left_order(self) -> int:
        return (self.order + 1) // 2

    @property
    def right_order(self) -> int:
        return self.order // 2

    @cached_property
    def left_offsets(self) -> IntArray:
        """left_offsets[j]: how many left monomials have a last index below j."""
        return np.array([packed_size(j, self.left_order) for j in range(self.m + 1)], dtype=np.int64)

    @cached_property
    def right_offsets(self) -> IntArray:
        """right_offsets[k]: where the right monomials begin whose first index is k."""
        total = packed_size(self.m, self.right_order)
        return np.array([total - packed_size(self.m - k, self.right_order) for k in range(self.m)] + [total], np.int64)

    @cached_property
    def steps(self) -> tuple[tuple[int, int, int, int], ...]:
        """(left start, left stop, right start, where the product begins in the raw result)."""
        out, raw = [], 0
        for low, high in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            left = slice(int(self.left_offsets[low]), int(self.left_offsets[high]))
            right = int(self.right_offsets[low])
            out.append((left.start, left.stop, right, raw))
            raw += (left.stop - left.start) * (int(self.right_offsets[-1]) - right)
        return tuple(out)

    @property
    def raw_size(self) -> int:
        start, stop, right, raw = self.steps[-1]
        return raw + (stop - start) * (int(self.right_offsets[-1]) - right)

    @cached_property
    def gather(self) -> IntArray:
        """Position in the raw result of each packed (lexicographic) entry."""
        left = packed_indices(self.m, self.left_order)
        left = left[np.lexsort(left.T)]  # by last index, then the one before: the order of building
        right = packed_indices(self.m, self.right_order)
        out = np.empty(packed_size(self.m, self.order), dtype=np.int64)
        for start, stop, first, raw in self.steps:
            for row in range(start, stop):
                begin = int(self.right_offsets[left[row, -1]])  # right monomials that keep the order
                tail = right[begin:]
                tuples = np.concatenate([np.broadcast_to(left[row], (len(tail), self.left_order)), tail], axis=1)
                position = raw + (row - start) * (len(right) - first) + (begin - first)
                out[packed_rank(tuples, self.m)] = position + np.arange(len(tail))
        return out


@lru_cache(maxsize=16)
def make_plan(m: int, order: int, executor: str) -> Plan:
    """Choose the steps of the staircase.

    Wide steps compute entries twice, narrow ones waste the matrix product. For numpy: the cheapest
    cuts under cost = rows x columns + PACKING (rows + columns), fitted to measured products. The
    compiled loop has no such overhead and takes one step per index.
    """
    if executor == "numba":
        return Plan(m, order, tuple(range(m + 1)))
    packing, grid = 16.0, 48
    probe = Plan(m, order, (0, m))
    left, right = probe.left_offsets, probe.right_offsets
    places = sorted({round(i * m / min(m, grid)) for i in range(min(m, grid) + 1)})
    best: dict[int, tuple[float, tuple[int, ...]]] = {m: (0.0, (m,))}
    for i in range(len(places) - 2, -1, -1):
        low, columns = places[i], float(right[-1] - right[places[i]])
        options = []
        for high in places[i + 1 :]:
            rows = float(left[high] - left[low])
            cost, cuts = best[high]
            options.append((cost + rows * columns + packing * (rows + columns), (low, *cuts)))
        best[low] = min(options)
    return Plan(m, order, best[0][1])


class Workspace:
    """Buffers of one thread for one plan."""

    def __init__(self, m: int, order: int, executor: str) -> None:
        if order < 3 and executor == "numba":
            executor = "numpy"  # single rows on the left: exactly what BLAS is made for
        plan = make_plan(m, order, executor)
        # A tile's monomials should stay near the cache even when there are many of them.
        monomials = int(plan.left_offsets[-1] + plan.right_offsets[-1])
        self.tile = int(np.clip(2**22 // max(monomials, 1), 64, TILE[executor]))
        self.plan, self.executor, self.steps = plan, executor, np.array(plan.steps, dtype=np.int64)
        self.raw = np.empty(plan.raw_size)
        self.x = np.ones((plan.m, self.tile))
        self.left = [np.empty((packed_size(plan.m, a), self.tile)) for a in range(2, plan.left_order + 1)]
        self.right = [np.empty((packed_size(plan.m, b), self.tile)) for b in range(2, plan.right_order + 1)]
        self.first_right = self.x if plan.right_order else np.ones((1, self.tile))
        self.weighted = np.empty((int(plan.right_offsets[-1]), self.tile))
        self.product = np.empty(plan.raw_size if executor == "numpy" else 0)


def homogeneous_sums(rows: Array, shift: Array, space: Workspace, weight: Array | None = None) -> Array:
    """Packed sum over rows of w_n (1, z_n - shift)^(order times), shape (C(m+order-1, order),).

    rows : (n, m - 1); shift : (m - 1,); weight : (n,) or None for ones.
    """
    plan = space.plan
    space.raw[:] = 0.0
    if space.executor == "numba":
        from richcomponents.moments.compiled import add_leaf  # numba starts slowly: only when used

        nothing = np.empty((0, 0))
        buffers = ([*space.left, nothing, nothing][:2], [*space.right, nothing, nothing][:2])
        weights = np.empty(0) if weight is None else np.ascontiguousarray(weight)
        orders = (plan.left_order, plan.right_order)
        add_leaf(rows, shift, weights, space.x, *buffers[0], *buffers[1], orders, space.steps, space.raw)
        return np.take(space.raw, plan.gather, mode="clip")  # never out of range: skips the check
    tile = -(-len(rows) // max(1, -(-len(rows) // space.tile)))  # tiles of equal length
    for start in range(0, len(rows), max(tile, 1)):
        part = rows[start : start + tile]
        k = len(part)
        np.subtract(part.T, shift[:, None], out=space.x[1:, :k])
        left = _monomials(space, space.left, space.x, k, True)
        right = _monomials(space, space.right, space.first_right, k, False)
        if weight is not None:
            right = np.multiply(right, weight[start : start + k], out=space.weighted[:, :k])
        for low, high, first, raw in plan.steps:
            shape = (high - low, len(right) - first)
            out = space.product[raw : raw + shape[0] * shape[1]].reshape(shape)
            np.matmul(left[low:high], right[first:].T, out=out)
        space.raw += space.product
    return np.take(space.raw, plan.gather, mode="clip")  # never out of range: skips the check


def _monomials(space: Workspace, buffers: Sequence[Array], shortest: Array, k: int, prefixes: bool) -> Array:
    """Left monomials, sorted by last index (prefixes), or right ones, sorted by first; each order from the one below."""
    m, x, out = space.plan.m, space.x[:, :k], shortest[:, :k]
    for buffer in buffers:
        low, previous, out = 0, out, buffer[:, :k]
        order = 1 if len(previous) == m else 2
        for j in range(
            m
        ):  # x_j times every shorter monomial whose last index is at most j, or whose first is at least j
            count = packed_size(j + 1 if prefixes else m - j, order)
            part = previous[:count] if prefixes else previous[len(previous) - count :]
            np.multiply(x[j], part, out=out[low : low + count])
            low += count
    return out


def over_rows(ufunc: np.ufunc, block: Array) -> Array:
    """np.add, np.minimum or np.maximum of all rows (n, p), n > 0: 64 of them at a time, since few columns are slow."""
    main = len(block) // 64 * 64 if block.flags.c_contiguous else 0
    parts = [ufunc.reduce(block[main:])] if main < len(block) else []
    if main:
        parts.insert(0, ufunc.reduce(ufunc.reduce(block[:main].reshape(-1, 64, block.shape[1]))))
    return np.asarray(ufunc.reduce(parts))
