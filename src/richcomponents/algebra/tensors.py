"""Dense tensors in the paper's notation (Appendix A)."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from richcomponents.algebra.arrays import Array

__all__ = ["fold", "multilinear", "symmetrise", "unfold"]


def unfold(tensor: Array) -> Array:
    """unfold(T)[(i1..i_{t-1}), i_t] = T[i1..i_t], shape (prod of the first sizes, last size)."""
    return tensor.reshape(-1, tensor.shape[-1])


def fold(matrix: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of :func:`unfold`."""
    return matrix.reshape(shape)


def multilinear(tensor: Array, *matrices: Array | None) -> Array:
    """T(M1..Mt)[i1..it] = sum_j T[j1..jt] prod_l M_l[j_l, i_l]; None leaves a slot as it is.

    >>> T = np.ones((2, 2))
    >>> multilinear(T, np.eye(2), np.ones((2, 1))).tolist()
    [[2.0], [2.0]]
    """
    if len(matrices) != tensor.ndim:
        raise ValueError(f"a tensor of order {tensor.ndim} takes {tensor.ndim} matrices, got {len(matrices)}")
    # Contracting the first slot and appending the result as the last one rotates all slots once
    # around, so that each step is a single matrix product.
    for matrix in matrices:
        tensor = np.moveaxis(tensor, 0, -1) if matrix is None else np.tensordot(tensor, matrix, axes=(0, 0))
    return tensor


def symmetrise(tensor: Array) -> Array:
    """The mean over all permutations of the slots."""
    total = sum(np.transpose(tensor, order) for order in permutations(range(tensor.ndim)))
    result: Array = np.asarray(total) / factorial(tensor.ndim)
    return result
