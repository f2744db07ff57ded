"""Set partitions and the weights that turn products of power sums into cumulants.

A cumulant is a sum over the partitions of its slots (paper, Section 2)

    k(X_1, ..., X_t) = sum_pi (-1)^(|pi|-1) (|pi|-1)!  prod_{B in pi} E[prod_{i in B} X_i],

and its unbiased estimator (the k-statistic) is the same sum with each product of expectations replaced by its unbiased
estimator, an average over DISTINCT samples. Expanding those averages in power sums s_B = sum_n prod_{i in B} x_ni needs the
Moebius function of the partition lattice, and gives one coefficient per partition that depends only on the sizes of its blocks
and on n. Moments are the same sums of cumulants with weights of one: m(1..t) = sum_pi prod_B k(B), the exact inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from math import factorial, perm, prod

import numpy as np

from richcomponents.algebra.arrays import Array

Partition = tuple[tuple[int, ...], ...]


@cache
def set_partitions(t: int) -> tuple[Partition, ...]:
    """All partitions of the slots 0..t-1; blocks and their members in increasing order.

    >>> set_partitions(3)[0], len(set_partitions(4)), len(set_partitions(6))
    (((0, 1, 2),), 15, 203)
    """
    if t == 0:
        return ((),)
    grown: list[Partition] = []
    for smaller in set_partitions(t - 1):
        for b, block in enumerate(smaller):
            grown.append((*smaller[:b], (*block, t - 1), *smaller[b + 1 :]))
        grown.append((*smaller, (t - 1,)))
    return tuple(grown)


@cache
def partitions_without_singletons(t: int) -> tuple[Partition, ...]:
    """The partitions that survive when every slot is centred, so that lone slots sum to zero.

    >>> partitions_without_singletons(4)
    (((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    """
    kept = (p for p in set_partitions(t) if all(len(block) > 1 for block in p))
    return tuple(sorted(kept, key=lambda p: (len(p), p)))


def moebius(n_blocks: int) -> int:
    """(-1)^(m-1) (m-1)!: the Moebius function between m blocks and their union."""
    return (1 if n_blocks % 2 else -1) * factorial(n_blocks - 1)


@cache
def _refinements(sizes: tuple[int, ...]) -> dict[int, int]:
    """For a partition with these block sizes: {|pi|: sum over its refinements pi of prod moebius}.

    A refinement splits block b into m_b parts; it contributes prod_b (-1)^(m_b-1) (m_b-1)!.
    """
    totals = {0: 1}
    for size in sizes:
        split: dict[int, int] = {}
        for part in set_partitions(size):
            split[len(part)] = split.get(len(part), 0) + moebius(len(part))
        merged: dict[int, int] = {}
        for have, weight in totals.items():
            for more, factor in split.items():
                merged[have + more] = merged.get(have + more, 0) + weight * factor
        totals = merged
    return totals


@lru_cache(maxsize=4096)
def kstatistic_coefficient(sizes: tuple[int, ...], n: int) -> float:
    """Coefficient of prod_B s_B in the unbiased cumulant, for blocks of these sizes and n samples.

    Summed over all finer partitions pi, whose distinct-sample averages have n (n-1) ... terms:
    (-1)^(|pi|-1) (|pi|-1)! / n^(falling |pi|)  x  prod_b (-1)^(m_b-1) (m_b-1)!.
    Computed in rationals: the terms cancel to high order in 1/n.

    >>> n = 10
    >>> kstatistic_coefficient((2,), n) == 1 / (n - 1)
    True
    >>> kstatistic_coefficient((3,), n) == n / ((n - 1) * (n - 2))
    True
    """
    if n < sum(sizes):
        raise ValueError(f"an unbiased cumulant of order {sum(sizes)} needs at least {sum(sizes)} rows, got {n}")
    terms = (Fraction(moebius(m) * weight, perm(n, m)) for m, weight in _refinements(sizes).items())
    return float(sum(terms, start=Fraction(0)))


def plugin_coefficient(sizes: tuple[int, ...], n: int) -> float:
    """Coefficient of prod_B s_B when every expectation is replaced by a plain average (biased)."""
    return moebius(len(sizes)) / prod([float(n)] * len(sizes))


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
