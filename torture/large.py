"""Ten million rows: bounded memory, one answer for any chunks, and the moments of the law the rows were drawn from."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import richcomponents as rc
from torture.harness import fault, right

TIMEOUT = 900.0
_BLOCK = 100_000


def blocks(n: int, size: int) -> Iterator[Any]:
    """n rows of (U, V), U = S1 + S2 and V = 2 S2 + S3 with exponential parts, the same whatever the size of the blocks."""
    held: list[Any] = []
    for at in range(0, n, _BLOCK):
        parts = np.random.default_rng([7, at]).exponential(size=(min(_BLOCK, n - at), 6))
        rows = np.hstack([parts[:, :2] + parts[:, 2:4], 2 * parts[:, 2:4] + parts[:, 4:]])
        held.append(rows)
        if sum(map(len, held)) >= size:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def prepare(n: int = 10**7) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")

    def run(case: int) -> dict[str, Any]:
        shift = np.array([2.0, 2.0, 3.0, 3.0])
        one = rc.Moments.of(blocks(n, _BLOCK), 4, shift)
        two = rc.Moments.of(blocks(n, 7 * _BLOCK), 4, shift)
        if one != two:
            return fault("other bits for other chunks")
        if one.n != n:
            return fault(f"{one.n} rows instead of {n}")
        model = rc.ContrastiveRCA(views=2, n_blocks=20).fit_moments(one)
        error = np.abs(model.A_ - 2 * np.eye(2)).max() * np.sqrt(n)
        if error > 300:  # the error of A times the root of n does not grow with n
            return fault(f"A is off by {error / np.sqrt(n):.2g}")
        third = model.components_["S1"].cumulant(3)
        if np.abs(third - np.array([[[2, 0], [0, 0]], [[0, 0], [0, 2]]])).max() * np.sqrt(n) > 1000:
            return fault("the third cumulant of S1 is off")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if peak > 1500:
            return fault(f"{peak} MiB of memory")
        return right(notes=[f"{2 * n} rows read, peak {peak} MiB"])

    return run
