"""Covariances of wide tables, kept as factors: nothing of size d x d where the rows, or a few directions, say the same.

A matrix and a Factored are used alike: ``C @ w``, ``C.diagonal()``, ``C.trace()``, ``len(C)``, ``top_directions(C, k)``, and
``np.asarray(C)`` where every entry is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.errors import CapacityError
from richcomponents.storage import storable

__all__ = ["Factored", "Spread", "added", "check_entries", "gaussian_score", "top_directions", "triangular"]

_MOST_ENTRIES = MEMORY_LIMIT // 4 // 8  # of a matrix that is formed because somebody asked for it: one GiB


@storable
@dataclass(frozen=True)
class Factored:
    """rows' rows + lift' core lift, with rows (m, d), lift (p, d) and core (p, p) symmetric, of either sign."""

    rows: Array
    lift: Array
    core: Array

    @classmethod
    def of(cls, rows: Array) -> Factored:
        """rows' rows."""
        return cls(rows, np.zeros((0, rows.shape[1])), np.zeros((0, 0)))

    def plus(self, lift: Array, core: Array) -> Factored:
        """The sum with lift' core lift."""
        return replace(self, lift=np.vstack([self.lift, lift]), core=linalg.block_diag(self.core, core))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[1], self.rows.shape[1]

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def __matmul__(self, other: Array) -> Array:
        return np.asarray(self.rows.T @ (self.rows @ other) + self.lift.T @ (self.core @ (self.lift @ other)))

    def diagonal(self) -> Array:
        return np.asarray(np.sum(self.rows**2, axis=0) + np.sum(self.lift * (self.core @ self.lift), axis=0))

    def trace(self) -> float:
        return float(self.diagonal().sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        check_entries("a covariance", self.shape)
        dense = self.rows.T @ self.rows + self.lift.T @ self.core @ self.lift
        return np.asarray((dense + dense.T) / 2, dtype=dtype)


Spread = Array | Factored
"""A covariance, (d, d)."""


def added(C: Spread, lift: Array, core: Array) -> Spread:
    """C + lift core lift', lift (d, r)."""
    return C.plus(lift.T, core) if isinstance(C, Factored) else np.asarray(C + lift @ core @ lift.T)


def check_entries(what: str, shape: tuple[int, int]) -> None:
    """Refuse to form a matrix that is too large."""
    if shape[0] * shape[1] > _MOST_ENTRIES:
        raise CapacityError(
            f"{what} of {shape[0]} x {shape[1]} entries needs {8e-9 * shape[0] * shape[1]:.1f} GB and is not formed: its "
            "variances (component.variance, variance_table) and its products with vectors are cheap; or use fewer columns"
        )


def top_directions(C: Spread, k: int) -> tuple[Array, Array]:
    """The k largest eigenvalues (k,), decreasing, and their unit eigenvectors as rows (k, d)."""
    if isinstance(C, Factored) and len(C.rows) + len(C.lift) < len(C):
        basis, inner = np.linalg.qr(
            np.vstack([C.rows, C.lift]).T
        )  # (d, m + p): C = basis inner diag(I, core) inner' basis'
        m = len(C.rows)
        values, vectors = np.linalg.eigh(inner[:, :m] @ inner[:, :m].T + inner[:, m:] @ C.core @ inner[:, m:].T)
        values, vectors = values[::-1], (basis @ vectors[:, ::-1]).T
        if k > len(values):  # the rest is zero, in whatever directions are left
            left = linalg.qr(basis, mode="full")[0][:, len(values) : k].T
            values, vectors = np.append(values, np.zeros(len(left))), np.vstack([vectors, left])
            order = np.argsort(-values, kind="stable")
            values, vectors = values[order], vectors[order]
        return values[:k], vectors[:k]
    values, vectors = np.linalg.eigh(np.asarray(C))
    return values[::-1][:k], vectors[:, ::-1][:, :k].T


def gaussian_score(sigma: Spread, rows: Array) -> float:
    """Mean Gaussian log-density of centred rows (n, d) of covariance sigma, in nats; small eigenvalues are raised."""
    most = len(sigma.rows) + len(sigma.lift) if isinstance(sigma, Factored) else len(sigma)
    values, vectors = top_directions(sigma, min(len(sigma), most))
    values = np.maximum(values, 1e-9 * values[0])
    z = rows @ vectors.T
    distance = np.sum(z**2 / values, axis=1)
    log_det = float(np.sum(np.log(2 * np.pi * values)))
    left = len(sigma) - len(values)  # directions in which wide tables do not vary at all
    if left:
        floor = 1e-9 * values[0]
        distance = distance + np.maximum(np.sum(rows**2, axis=1) - np.sum(z**2, axis=1), 0.0) / floor
        log_det += left * float(np.log(2 * np.pi * floor))
    return float(-0.5 * np.mean(distance) - 0.5 * log_det)


def triangular(rows: Array) -> Array:
    """F (min(n, d), d), upper triangular, with F'F = rows' rows / n: the covariance of centred rows, without the rows."""
    return np.asarray(np.linalg.qr(rows, mode="r") / np.sqrt(len(rows)))
