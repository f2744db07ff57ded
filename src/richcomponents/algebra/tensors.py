"""Dense tensors in the paper's notation (Appendix A); moments and cumulants of any order, exact inverses of each other:

m(1..t) = sum over partitions of prod_B k(B),
k(1..t) = sum over partitions of (-1)^(|pi|-1) (|pi|-1)! prod_B m(B)      (paper, Section 2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from math import factorial

import numpy as np

from richcomponents.algebra.arrays import Array
from richcomponents.algebra.partitions import Partition, moebius, set_partitions


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


def moments_to_cumulants(moments: Sequence[Array]) -> list[Array]:
    """Cumulants of orders 1..t from raw moments of orders 1..t (tensors of shape (d,)*order).

    >>> mean, second = np.array([2.0]), np.array([[5.0]])
    >>> [k.tolist() for k in moments_to_cumulants([mean, second])]
    [[2.0], [[1.0]]]
    """
    return _convert(moments, moebius)


def cumulants_to_moments(cumulants: Sequence[Array]) -> list[Array]:
    """Raw moments of orders 1..t from cumulants of orders 1..t; the inverse of :func:`moments_to_cumulants`.

    >>> [m.tolist() for m in cumulants_to_moments([np.array([2.0]), np.array([[1.0]])])]
    [[2.0], [[5.0]]]
    """
    return _convert(cumulants, lambda n_blocks: 1)


def _convert(tensors: Sequence[Array], weight: Callable[[int], int]) -> list[Array]:
    tensors = [np.asarray(tensor, dtype=np.float64) for tensor in tensors]
    d = tensors[0].shape[0] if tensors else 0
    for order, tensor in enumerate(tensors, start=1):
        if tensor.shape != (d,) * order:
            raise ValueError(f"entry {order} of the list must have shape {(d,) * order}, got {tensor.shape}")
    return [
        np.asarray(sum(weight(len(partition)) * _product(tensors, partition) for partition in set_partitions(order)))
        for order in range(1, len(tensors) + 1)
    ]


def _product(tensors: Sequence[Array], partition: Partition) -> Array:
    """The outer product of tensors[|B|-1] over the blocks, slots in their own places."""
    letters = [chr(ord("a") + slot) for slot in range(sum(map(len, partition)))]
    inputs = ",".join("".join(letters[slot] for slot in block) for block in partition)
    return np.asarray(np.einsum(f"{inputs}->{''.join(letters)}", *(tensors[len(block) - 1] for block in partition)))
