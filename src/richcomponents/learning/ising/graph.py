"""Graphs of spin models: edges (m, 2) of node numbers, in the order of the couplings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray
from richcomponents.data.table import dense

__all__ = ["as_edges", "coupling_matrix", "grid_edges", "neighbours", "with_ghost"]


def grid_edges(rows: int, columns: int, periodic: bool = True) -> IntArray:
    """Edges (m, 2) of a rows x columns grid whose node (r, c) has number r * columns + c.

    periodic : the last row is joined to the first and the last column to the first. Horizontal edges come first.

    >>> len(grid_edges(5, 5)), len(grid_edges(2, 3, periodic=False))
    (50, 7)
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"a grid needs at least one row and one column, got {rows} x {columns}")
    found: dict[tuple[int, int], None] = {}
    for down in (0, 1):
        for r in range(rows):
            for c in range(columns):
                r2, c2 = r + down, c + 1 - down
                if not periodic and (r2 == rows or c2 == columns):
                    continue
                one, two = r * columns + c, (r2 % rows) * columns + c2 % columns
                if one != two and (two, one) not in found:  # a side of length 1 or 2 does not wrap twice
                    found[one, two] = None
    return np.array(list(found), dtype=np.int64).reshape(-1, 2)


def neighbours(n_nodes: int, edges: IntArray) -> list[dict[int, int]]:
    """For each node, neighbour -> number of the edge."""
    out: list[dict[int, int]] = [{} for _ in range(n_nodes)]
    for e, (i, j) in enumerate(edges.tolist()):
        out[i][j] = out[j][i] = e
    return out


def coupling_matrix(n_nodes: int, edges: IntArray, couplings: Array) -> Array:
    """Symmetric (d, d), zero where there is no edge."""
    matrix = np.zeros((n_nodes, n_nodes))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = couplings
    return matrix


def with_ghost(n_nodes: int, edges: IntArray) -> IntArray:
    """The edges, then one from every node i to a ghost, node n_nodes: (m + d, 2).

    A field h_i is the coupling of s_i to a spin that is always 1. Leaving that spin free changes nothing that is seen:
    states come in pairs s, -s, and s times the ghost has the law with fields. So E[s_i] is the pair moment with the ghost,
    and every sum over states without fields does for fields too.
    """
    nodes = np.arange(n_nodes)
    return np.vstack([edges, np.column_stack([nodes, np.full(n_nodes, n_nodes)])]).astype(np.int64)


def as_edges(edges: Any, names: Sequence[str]) -> IntArray:
    """The `edges=` argument as an array (m, 2) of different pairs of column numbers, smaller first."""
    d = len(names)
    if edges is None:
        return np.column_stack(np.triu_indices(d, 1)).astype(np.int64)
    square = getattr(edges, "shape", None)
    if square is not None and len(square) == 2 and (square[1] != 2 or tuple(square) == (d, d)):
        return _from_adjacency(np.asarray(dense(edges) if sparse.issparse(edges) else edges), d)
    if isinstance(edges, (str, bytes)) or not hasattr(edges, "__iter__"):
        raise ValueError(
            f"edges must be None, pairs of nodes, or an adjacency matrix of shape ({d}, {d}), got {edges!r}"
        )
    pairs = list(edges)
    if len(pairs) == d > 2 and all(hasattr(p, "__len__") and not isinstance(p, str) and len(p) == d for p in pairs):
        return _from_adjacency(np.asarray(pairs), d)
    numbers = {str(name): i for i, name in enumerate(names)}
    found: dict[tuple[int, int], None] = {}
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"an edge is a pair of nodes, got {pair!r}")
        i, j = (_node(end, numbers, d, pair) for end in pair)
        if i == j:
            raise ValueError(f"edges holds a self-loop, {tuple(pair)!r}: s_i s_i = 1 says nothing, remove it")
        found[min(i, j), max(i, j)] = None
    return np.array(list(found), dtype=np.int64).reshape(-1, 2)


def _node(end: Any, numbers: dict[str, int], d: int, pair: Any) -> int:
    if isinstance(end, str):
        if end not in numbers:
            raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end!r}; the columns are {', '.join(numbers)}")
        return numbers[end]
    if isinstance(end, (bool, np.bool_)) or not isinstance(end, (int, np.integer)):
        raise ValueError(f"edge {tuple(pair)!r}: a node is a column number or a column name, got {end!r}")
    if not 0 <= end < d:
        raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end}; the component has columns 0 to {d - 1}")
    return int(end)


def _from_adjacency(matrix: Array, d: int) -> IntArray:
    if matrix.shape != (d, d):
        raise ValueError(f"the adjacency matrix has shape {matrix.shape}; the component has {d} columns, so ({d}, {d})")
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise ValueError("the adjacency matrix holds missing or infinite values: use 0 for no edge")
    present = matrix != 0
    loops = np.flatnonzero(np.diag(present))
    if len(loops):
        raise ValueError(f"the adjacency matrix has self-loops at nodes {loops.tolist()[:5]}: set its diagonal to zero")
    if not np.array_equal(present, present.T):
        i, j = np.argwhere(present != present.T)[0]
        raise ValueError(f"the adjacency matrix is not symmetric (entries {i}, {j}): use matrix | matrix.T")
    return np.argwhere(np.triu(present)).astype(np.int64)
