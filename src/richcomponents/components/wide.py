"""Wide views: linear maps, covariances kept as factors, and principal components before views are compared.

Nothing of size d x d is formed where the rows, or a few directions, say the same. A matrix and a Factored are used alike:
``C @ w``, ``C.diagonal()``, ``C.trace()``, ``len(C)``, ``top_directions(C, k)``, and ``np.asarray(C)`` where every entry is
wanted.

With more columns than samples every canonical correlation is one, whatever the data. Each view is
therefore reduced to the principal components that stand above noise; the part of a view outside them is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT, RANK_TOLERANCE
from richcomponents.errors import CapacityError
from richcomponents.moments.data import AffineMap, Data, RowData
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class LinearMap:
    """Linear maps between the user's columns and the columns of a state (both centred).

    to : (k, d), state columns from the user's; back : (d, k), the way back.
    """

    to: Array
    back: Array

    @classmethod
    def identity(cls, d: int) -> LinearMap:
        return cls(np.eye(d), np.eye(d))

    def then(self, other: LinearMap) -> LinearMap:
        """One after the other."""
        return LinearMap(other.to @ self.to, self.back @ other.back)


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
        m = len(C.rows)
        basis, inner = np.linalg.qr(
            np.vstack([C.rows, C.lift]).T
        )  # (d, m + p): C = basis inner diag(I, core) inner' basis'
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
    """F (min(n, d), d) with F'F = rows' rows / n: the covariance of centred rows, without the rows.

    Triangular; of wide rows they themselves, rotated to their principal axes, which takes a fraction of the time.
    """
    n, d = rows.shape
    if d > n:
        return np.asarray(np.linalg.eigh(rows @ rows.T)[1].T @ rows / np.sqrt(n))
    return np.asarray(np.linalg.qr(rows, mode="r") / np.sqrt(n))


def inverse_factor(rows: Array) -> Array:
    """G (d, k) with G G' the inverse of rows' rows on its range; rows (m, d) upper triangular.

    Columns are scaled first, as in `whitening`, so that the rank does not depend on units.
    """
    scale = np.sqrt(np.sum(rows**2, axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    unit = rows / scale
    if unit.shape[0] == unit.shape[1] and np.all(np.diag(unit) != 0):
        inverse = linalg.solve_triangular(unit, np.eye(len(unit)))
        if np.abs(inverse).max() < 1 / (np.sqrt(RANK_TOLERANCE) * len(unit)):  # far from collinear
            return np.asarray(inverse / scale[:, None])
    _, values, right = np.linalg.svd(unit, full_matrices=False)
    keep = values**2 > RANK_TOLERANCE * max(float(values[0]) ** 2, np.finfo(float).tiny)
    return np.asarray((right[keep] / values[keep, None]).T / scale[:, None])


_ROWS_PER_COLUMN = 6
_MOST_READ = 50_000  # rows of few groups that are looked at in memory


@dataclass(frozen=True)
class SearchSpace:
    """The columns in which shared directions are looked for: all of them, or principal components of wide views.

    data : of these columns, view by view; frames : {view: maps between them and the user's columns}; rows : (n, p) centred
    rows of all the user's columns, and mean : (p,), where a view was reduced, else None; units : how many different rows there
    are, where they are few; grouped : whether rows belong to groups.
    """

    data: Data
    frames: Mapping[str, LinearMap]
    rows: Array | None = None
    mean: Array | None = None
    units: int | None = None
    grouped: bool = False

    @classmethod
    def whole(cls, data: Data, place: Mapping[str, slice]) -> SearchSpace:
        """All columns as they are."""
        return cls(data, {view: LinearMap.identity(part.stop - part.start) for view, part in place.items()})


def search_space(
    data: Data, place: Mapping[str, slice], check: Callable[[Array], None], at_least: int = 1
) -> SearchSpace:
    """Principal components of the views that have too many columns for their samples, the others as they are.

    place : {view: its columns}; check : refuses centred rows whose moments cannot be taken; at_least : components per view. A
    state has no rows to reduce.
    """
    widths = {view: part.stop - part.start for view, part in place.items()}
    if not isinstance(data, RowData):
        return SearchSpace.whole(data, place)
    groups = None if data.groups is None else len(set(np.asarray(data.groups).tolist()))
    enough = _ROWS_PER_COLUMN * (max(widths.values()) + 1)  # rows above which no view is reduced
    if data.rows.more_than(enough) and (groups is None or groups > enough or data.rows.more_than(_MOST_READ)):
        return replace(SearchSpace.whole(data, place), grouped=groups is not None)
    inside, centred, mean = centred_rows(data, sum(widths.values()))
    # copies are one row; other rows of a group are something between copies and samples: it counts as three at most
    units = len({row.tobytes() for row in inside})
    units = units if groups is None else min(units, 3 * groups)
    check(centred)
    frames = {
        view: reduce_view(centred[:, part], units, at_least)
        if widths[view] > max(units // _ROWS_PER_COLUMN, 2)
        else LinearMap.identity(widths[view])
        for view, part in place.items()
    }
    found = SearchSpace(data, frames, units=units, grouped=groups is not None)
    if all(len(frame.to) == len(frame.back) for frame in frames.values()):
        return found
    into = AffineMap(mean, linalg.block_diag(*(frame.to.T for frame in frames.values())))
    return replace(found, data=replace(data, rows=data.rows.mapped(into)), rows=centred, mean=mean)


def centred_rows(data: RowData, p: int) -> tuple[Array, Array, Array]:
    """The first p columns of the rows that count, the same centred, (n, p), and their mean; with weights, rows whose plain
    second moments are the weighted ones."""
    inside = data.rows.array()
    weight = inside[:, -1] if data.rows.weighted else np.ones(len(inside))
    inside, weight = inside[weight > 0, :p], weight[weight > 0]
    mean = np.average(inside, axis=0, weights=weight)
    centred = inside - mean
    if data.rows.weighted:
        centred *= np.sqrt(weight / weight.mean())[:, None]
    return inside, centred, mean


def _principal(rows: Array) -> tuple[Array, Array]:
    """Singular values, decreasing, and right singular vectors (k, d) of rows (n, d).

    Of wide rows in a fraction of the time: small values are then known to eight digits of the largest only.
    """
    n, d = rows.shape
    if d <= n:
        _, values, right = np.linalg.svd(rows, full_matrices=False)
        return values, right
    axes = triangular(rows)[::-1] * np.sqrt(n)
    values = np.linalg.norm(axes, axis=1)
    return values, axes / np.maximum(values, 1e-300)[:, None]


def reduce_view(view: Array, units: int, at_least: int = 1) -> LinearMap:
    """Leading principal components of a centred view (n, d) of so many independent samples, columns scaled to unit variance.

    How many: singular values above the optimal hard threshold for unknown noise (Gavish and Donoho 2014,
    2.858 medians for square matrices), at least `at_least` (the rank that was asked for), at most one per six samples.
    """
    n, d = view.shape
    scale = np.sqrt(np.mean(view**2, axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    values, right = _principal(view / scale)
    beta = min(n, d) / max(n, d)
    # after centring the last singular value is zero; it does not belong to the noise
    noise = float(np.median(values[values > 1e-7 * values[0]])) if values[0] > 0 else 0.0
    threshold = (0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43) * noise
    k = int(np.clip(np.sum(values > threshold), 1, max(units // _ROWS_PER_COLUMN, 1)))
    k = min(max(k, at_least), len(values))
    return LinearMap(to=right[:k] / scale, back=(right[:k] * scale).T)
