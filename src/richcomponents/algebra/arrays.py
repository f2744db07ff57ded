"""Names for the array types that every room speaks of, functions of symmetric matrices (stacks, too), and threads over pieces
of work.

BLAS is held to one thread inside each piece: many small products on one thread each beat one multi-threaded product by far.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MEMORY_LIMIT = 4 * 2**30
LEAF = 2048  # rows: large enough that gathering a leaf's sums costs about one percent of computing them

_T = TypeVar("_T")


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


class _OneThread(AbstractContextManager[None]):
    """The limit belongs to the process: the first one in sets it, the last one out lifts it."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    @cached_property
    def _controller(self) -> ThreadpoolController:
        return ThreadpoolController()  # looks through all loaded libraries: once is enough

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = self._controller.limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(None, None, None)


_one_thread = _OneThread()


def one_blas_thread() -> AbstractContextManager[object]:
    """Inside: BLAS on one thread. For long chains of small matrix products, which threads only slow down.

    Safe when several threads are inside: a limit lifted under another thread's product would change its bits.
    """
    return _one_thread


def run_all(work: Callable[[Iterator[_T]], None], pieces: Iterable[_T], threads: int) -> None:
    """`work` through all pieces, in several threads; an error is raised after the other threads have stopped."""
    queue = iter(list(pieces))  # shared: a thread takes the next piece when it has finished its last one
    with one_blas_thread():
        if threads == 1:
            work(queue)
            return
        with ThreadPoolExecutor(threads - 1) as pool:
            others = [pool.submit(work, queue) for _ in range(threads - 1)]
            work(queue)  # this thread works too
            for other in others:
                other.result()


def in_pieces(transform: Callable[[Array], Array], rows: Array) -> Array:
    """A row-wise map applied to pieces of 2048 rows: a matrix product's bits may depend on how many rows it is given."""
    with one_blas_thread():
        parts = [transform(rows[at : at + LEAF]) for at in range(0, len(rows), LEAF)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


# ---- functions of symmetric matrices

RANK_TOLERANCE = 1e-9
"""Eigenvalues of a correlation matrix below this share of the largest count as exact collinearity."""


def symmetric(a: Array) -> Array:
    """The symmetric part."""
    return np.asarray((a + a.mT) / 2)


def power(a: Array, exponent: float, floor: float) -> Array:
    """a ** exponent; eigenvalues below `floor` are raised to it.

    >>> power(np.diag([4.0, 0.0]), 0.5, 1.0).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(a)
    return np.asarray((vectors * np.maximum(values, floor)[..., None, :] ** exponent) @ vectors.mT)


def whitening(cov: Array) -> tuple[Array, Array]:
    """Whitening map (k, d) of a covariance (d, d) and its right inverse (d, k); k is the numerical rank.

    The columns are first scaled to unit variance, so that the rank does not depend on units.
    """
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(cov / np.outer(safe, safe))
    keep = values > RANK_TOLERANCE * max(float(values[-1]), np.finfo(float).tiny)
    vectors, root = vectors[:, keep], np.sqrt(values[keep])
    varies = scale > 0  # what rounding leaves of eigenvectors on constant columns is nothing
    return np.where(varies, (vectors / root).T / safe, 0.0), vectors * root * scale[:, None]


def counted_once(rows: Array, weight: Array) -> Array:
    """Rows that count once each, with the products rows' W rows, or the nearest where some count less than nothing."""
    negative = len(weight) and weight.min() < 0
    return whitening(rows.T * weight @ rows)[1].T if negative else rows * np.sqrt(weight)[:, None]


def least_squares(features: Array, y: Array, weight: Array) -> Array:
    """Coefficients (d,) of y (n,) on features (n, d), each row counted so often."""
    rows = counted_once(np.column_stack([features, y]), weight)
    return np.asarray(np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0])


def jackknife_variance(replicates: Array) -> Array:
    """(B - 1) / B sum_b (replicate_b - mean)^2, over the first axis."""
    return np.asarray((len(replicates) - 1) * np.var(replicates, axis=0))
