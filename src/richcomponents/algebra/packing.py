"""Symmetric tensors by their distinct entries.

A symmetric tensor of order t over p coordinates is stored as the vector of its entries with i1 <= i2 <= ... <= it, in
lexicographic order: C(p+t-1, t) numbers instead of p^t.

HOMOGENEOUS COORDINATES. If coordinate 0 is the constant one, the packed order-t tensor of (1, z) consists of the packed tensors
of z of orders 0, 1, ..., t, one after the other. A whole family of moments is then one symmetric tensor, and a change of origin
is one linear map.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from richcomponents.algebra.arrays import Array, IntArray


def column_numbers(columns: object, p: int) -> IntArray:
    """Column numbers 0..p-1 from a slice, a mask, or numbers (negative ones from the end).

    >>> column_numbers([-1, 0], 3).tolist()
    [2, 0]
    """
    if isinstance(columns, slice):
        return np.arange(p, dtype=np.int64)[columns]
    array = np.atleast_1d(np.asarray(columns))
    if array.dtype == bool:
        if array.shape != (p,):
            raise ValueError(f"a mask of columns needs {p} entries, got shape {array.shape}")
        return np.flatnonzero(array)
    numbers = array.astype(np.int64)
    if array.ndim != 1 or (array.size and not np.array_equal(numbers, array)):
        raise ValueError(f"columns must be whole numbers in one dimension, got {columns!r}")
    if numbers.size and not (-p <= numbers.min() and numbers.max() < p):
        raise IndexError(f"there are columns 0..{p - 1}, got {numbers.tolist()}")
    return np.where(numbers < 0, numbers + p, numbers)


def packed_size(p: int, t: int) -> int:
    """The number of distinct entries of a symmetric tensor, C(p+t-1, t).

    >>> packed_size(10, 4)
    715
    """
    return comb(p + t - 1, t)


@lru_cache(maxsize=16)
def packed_indices(p: int, t: int) -> IntArray:
    """The index tuples i1 <= ... <= it in lexicographic order, shape (C(p+t-1, t), t)."""
    if t == 0:
        return np.zeros((1, 0), dtype=np.int64)
    shorter, out, row = packed_indices(p, t - 1), np.empty((packed_size(p, t), t), dtype=np.int64), 0
    for i in range(p):  # tuples that start with i continue with any tuple of order t-1 over i..p-1: a suffix
        size = packed_size(p - i, t - 1)
        out[row : row + size, 0] = i
        out[row : row + size, 1:] = shorter[len(shorter) - size :]
        row += size
    out.setflags(write=False)
    return out


@lru_cache(maxsize=64)
def _rank_tables(p: int, t: int) -> tuple[IntArray, ...]:
    n = p + t - 1
    return tuple(np.array([comb(n - 1 - i - m, t - m) for i in range(p)], dtype=np.int64) for m in range(t))


def packed_rank(indices: IntArray, p: int) -> IntArray:
    """Positions of index tuples (last axis: non-decreasing, length t) in the packed vector.

    i_m + m is a strictly increasing combination; its lexicographic rank is the classical sum of binomials, read from tables.
    """
    t = indices.shape[-1]
    rank = np.full(indices.shape[:-1], packed_size(p, t) - 1, dtype=np.int64)
    for m, table in enumerate(_rank_tables(p, t)):
        rank -= table[indices[..., m]]
    return rank


@lru_cache(maxsize=8)
def extension_table(p: int, t: int) -> IntArray:
    """table[i, j]: where the tuple i of order t, extended by index j, lies in packed order t + 1."""
    shorter = packed_indices(p, t)
    wide = np.empty((len(shorter), p, t + 1), dtype=np.int64)
    wide[..., :t] = shorter[:, None, :]
    wide[..., t] = np.arange(p)
    table = packed_rank(np.sort(wide, axis=-1), p)
    table.setflags(write=False)
    return table


def contract(packed: Array, p: int, t: int, vector: Array) -> Array:
    """T(., ..., ., v): the packed symmetric tensor of order t - 1, without forming p^t entries.

    >>> contract(np.array([1.0, 2.0, 3.0]), 2, 2, np.array([1.0, 10.0])).tolist()
    [21.0, 32.0]
    """
    return packed[extension_table(p, t - 1)] @ vector


def pack(tensor: Array) -> Array:
    """The distinct entries of a symmetric tensor (those with increasing indices are read)."""
    return np.asarray(tensor[tuple(packed_indices(tensor.shape[0], tensor.ndim).T)])


def unpack(packed: Array, p: int, t: int) -> Array:
    """The dense symmetric tensors of shape (p,) * t, of packed ones in the last axis."""
    places = _kept_places if p**t <= 100_000 else _dense_places  # small tensors are unpacked often
    return np.take(packed, places(p, t), axis=-1)


def _dense_places(p: int, t: int) -> IntArray:
    """Where the entries of a dense tensor of shape (p,) * t lie in the packed vector."""
    grid = np.stack(np.meshgrid(*[np.arange(p)] * t, indexing="ij"), axis=-1)
    return packed_rank(np.sort(grid, axis=-1), p)


_kept_places = lru_cache(maxsize=32)(_dense_places)


def segments(p: int, t: int) -> list[slice]:
    """Where orders 0..t lie in the packed order-t tensor of the homogeneous coordinates (1, z)."""
    ends = [packed_size(p + 1, s) for s in range(t + 1)]
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def translate(packed: Array, p: int, t: int, delta: Array) -> Array:
    """Packed sums of (1, z - delta) from those of (1, z); shape (..., C(p+t, t)), any leading axes.

    sum prod_i (z_i - delta_i) = sum over subsets A of the slots of prod_{i not in A} (-delta_i) times the sum over A: the
    binomial theorem, slot by slot.
    """
    if not np.any(delta):
        return packed
    out = packed.copy()
    parts = segments(p, t)
    for order in range(1, t + 1):
        indices = packed_indices(p, order)
        for size in range(order):
            for kept in combinations(range(order), size):
                gone = [m for m in range(order) if m not in kept]
                factor = np.prod(-delta[indices[:, gone]], axis=1)
                source = parts[size].start + packed_rank(indices[:, kept], p)
                out[..., parts[order]] += factor * packed[..., source]
    return out
