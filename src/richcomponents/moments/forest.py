"""Sums of leaves that do not depend on the order in which the leaves arrive.

Floating-point addition is not associative, so a sum over chunks depends on the chunks. Leaves are
therefore merged only with their siblings in a fixed binary tree: node (level, i) is the sum of
nodes (level-1, 2i) and (level-1, 2i+1). Whatever the order of arrival, each node is the result of
the same additions, and a set of leaves has one canonical forest: any chunking, any number of
threads or machines gives identical bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import StateFileError
from richcomponents.moments.layout import MOST_ROWS, Layout
from richcomponents.storage import storable

__all__ = ["Forest", "Node", "check_state"]

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
        return iter(sorted(self._nodes.items(), key=lambda item: _place(item[0])))

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

    def arrays(self) -> dict[str, Array | IntArray]:
        """The nodes (m, 3) and their sums (m, size), in canonical order."""
        items = list(self)
        nodes = np.array([node for node, _ in items], dtype=np.int64).reshape(-1, 3)
        size = len(items[0][1]) if items else 0
        return {"nodes": nodes, "sums": np.array([value for _, value in items]).reshape(len(items), size)}

    @classmethod
    def from_arrays(cls, nodes: IntArray, sums: Array) -> Forest:
        """The way back; refuses what no forest looks like."""
        if (
            nodes.ndim != 2
            or sums.ndim != 2
            or len(nodes) != len(sums)
            or nodes.shape[1] != 3
            or nodes.dtype != np.int64
        ):
            raise StateFileError(f"nodes of shape {nodes.shape} and sums of shape {sums.shape} are no forest")
        if len(nodes) and not (nodes.min() >= 0 and nodes[:, 1].max() < 64):
            raise StateFileError("the sums name a node that cannot exist")
        forest = cls(
            ((tree, level, index), value) for (tree, level, index), value in zip(nodes.tolist(), sums, strict=True)
        )
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


def _place(node: Node) -> tuple[int, int, int]:
    tree, level, index = node
    return tree, index << level, -level
