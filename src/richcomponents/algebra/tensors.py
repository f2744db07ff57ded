"""Dense tensors in the paper's notation (Appendix A)."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from richcomponents.algebra.arrays import Array


def unfold(tensor: Array) -> Array:
    """unfold(T)[(i1..i_{t-1}), i_t] = T[i1..i_t], shape (prod of the first sizes, last size).

    >>> unfold(np.arange(8.0).reshape(2, 2, 2)).tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    """
    return tensor.reshape(-1, tensor.shape[-1])


def multilinear(tensor: Array, *matrices: Array | None) -> Array:
    """T(M1..Mt)[i1..it] = sum_j T[j1..jt] prod_l M_l[j_l, i_l]; None leaves a slot as it is.

    >>> T = np.ones((2, 2))
    >>> multilinear(T, np.eye(2), np.ones((2, 1))).tolist()
    [[2.0], [2.0]]
    """
    if len(matrices) != tensor.ndim:
        raise ValueError(f"a tensor of order {tensor.ndim} takes {tensor.ndim} matrices, got {len(matrices)}")
    for matrix in matrices:  # contracting the first slot and appending the result as the last one rotates all slots
        tensor = np.moveaxis(tensor, 0, -1) if matrix is None else np.tensordot(tensor, matrix, axes=(0, 0))
    return tensor


def symmetrise(tensor: Array) -> Array:
    """The mean over all permutations of the slots."""
    total = sum(np.transpose(tensor, order) for order in permutations(range(tensor.ndim)))
    return np.asarray(total) / factorial(tensor.ndim)
