"""Exact rational references: slow, obviously right, written straight from the definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import factorial, perm, prod

import numpy as np

Rows = list[list[Fraction]]


def partitions(items: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """All set partitions, by choosing the block of the first item."""
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    out = []
    for mask in range(2 ** len(rest)):
        block = (first, *(x for i, x in enumerate(rest) if mask >> i & 1))
        others = tuple(x for i, x in enumerate(rest) if not mask >> i & 1)
        out += [[block, *p] for p in partitions(others)]
    return out


def to_fractions(table) -> Rows:
    return [[Fraction(float(x)) for x in row] for row in table]


def population_cumulant(support: Rows, columns: tuple[int, ...]) -> Fraction:
    """The cumulant of the uniform distribution on the rows of `support`."""
    n = len(support)

    def expectation(block: tuple[int, ...]) -> Fraction:
        return sum((prod((row[columns[i]] for i in block), start=Fraction(1)) for row in support), Fraction(0)) / n

    total = Fraction(0)
    for pi in partitions(tuple(range(len(columns)))):
        sign = (-1) ** (len(pi) - 1) * factorial(len(pi) - 1)
        total += sign * prod((expectation(block) for block in pi), start=Fraction(1))
    return total


def kstatistic(sample: Rows, columns: tuple[int, ...]) -> Fraction:
    """The unbiased estimator: averages of products over DISTINCT samples, in rationals.

    The average over distinct samples of prod_B x_B is computed by inclusion-exclusion on power sums
    (equal to the literal average, see test_partitions, which checks that on small samples).
    """
    n, t = len(sample), len(columns)
    sums: dict[tuple[int, ...], Fraction] = {}

    def power_sum(slots: tuple[int, ...]) -> Fraction:
        if slots not in sums:
            sums[slots] = sum(
                (prod((row[columns[i]] for i in slots), start=Fraction(1)) for row in sample), Fraction(0)
            )
        return sums[slots]

    total = Fraction(0)
    for pi in partitions(tuple(range(t))):
        distinct = Fraction(0)
        for merge in partitions(tuple(range(len(pi)))):
            sign = prod(((-1) ** (len(m) - 1) * factorial(len(m) - 1) for m in merge), start=1)
            union = [tuple(sorted(i for b in m for i in pi[b])) for m in merge]
            distinct += sign * prod((power_sum(u) for u in union), start=Fraction(1))
        total += (-1) ** (len(pi) - 1) * factorial(len(pi) - 1) * distinct / perm(n, len(pi))
    return total


def literal_kstatistic(sample: Rows, columns: tuple[int, ...]) -> Fraction:
    """The same by running over all tuples of distinct samples: for very small samples only."""
    n, total = len(sample), Fraction(0)
    for pi in partitions(tuple(range(len(columns)))):
        distinct = Fraction(0)
        for chosen in product(range(n), repeat=len(pi)):
            if len(set(chosen)) == len(chosen):
                distinct += prod(
                    (sample[s][columns[i]] for s, block in zip(chosen, pi, strict=True) for i in block),
                    start=Fraction(1),
                )
        total += (-1) ** (len(pi) - 1) * factorial(len(pi) - 1) * distinct / perm(n, len(pi))
    return total


def mixture_cumulants(means, weights, sigma2):
    """Those of orders one to four of a spherical mixture; means : (k, d), not necessarily centred."""
    mean = weights @ means
    c = means - mean
    B = (weights * c.T) @ c
    pairings = np.einsum("ab,ce->abce", B, B) + np.einsum("ac,be->abce", B, B) + np.einsum("ae,bc->abce", B, B)
    third = np.einsum("j,ja,jb,jc->abc", weights, c, c, c)
    fourth = np.einsum("j,ja,jb,jc,je->abce", weights, c, c, c, c, optimize=True)
    return mean, B + sigma2 * np.eye(means.shape[1]), third, fourth - pairings
