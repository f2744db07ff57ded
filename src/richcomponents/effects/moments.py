"""Second moments of tests and controls given exposures and known covariates, of all rows and without each block.

Every column counts, but only few COORDINATES are compared with each other: the columns themselves where they are few, leading
canonical coordinates where they are many. Of all other columns their slopes on the exposures, their variances and their
covariances with the coordinates of the controls suffice: nothing of the size of their number squared is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.moments import Moments

__all__ = ["Coordinates", "Given", "Sums"]

COPY = 1e-9
"""One less the squared correlation of two columns that are copies of each other."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Of one view: to (k, d) from its columns, lift (d, k) back to them; columns (k,) : which columns they are, scaled to unit
    variance, or None where they are canonical coordinates; copy (d,) : the coordinate that each column is a copy of, or -1."""

    to: Array
    lift: Array
    columns: IntArray | None = None
    copy: IntArray | None = None

    @classmethod
    def of_columns(cls, covariance: Array) -> Coordinates:
        """Every column that varies; of columns that are copies of each other, but for their units, the first."""
        scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        unit = np.where(scale > 0, scale, 1.0)
        correlation = covariance / np.outer(unit, unit)
        same = np.abs(correlation) > np.sqrt(1 - COPY)
        first = np.where(scale > 0, np.argmax(same, axis=1), -1)
        columns = np.unique(first[first >= 0])
        copy = np.where(first >= 0, np.searchsorted(columns, first), -1)
        to, lift = np.zeros((len(columns), len(scale))), np.zeros((len(scale), len(columns)))
        to[np.arange(len(columns)), columns] = 1 / scale[columns]
        at = np.flatnonzero(first >= 0)
        lift[at, copy[at]] = scale[at] * np.sign(correlation[at, first[at]])
        return cls(to, lift, columns, copy)

    @property
    def k(self) -> int:
        return len(self.to)


@dataclass(frozen=True, eq=False)
class Given:
    """One sample, given exposures and covariates. Columns are those of U, then those of V.

    slopes (p, q) : of every column on the exposures; with_v (p, k_v) : covariances with the coordinates of V; variance (p,);
    cov (k, k) : of the coordinates, those of U first; on (k, q) : their slopes; noise (q, q) : covariance of the slopes of a
    column with unit variance, for independent rows.
    """

    slopes: Array
    with_v: Array
    variance: Array
    cov: Array
    on: Array
    noise: Array

    @property
    def k_v(self) -> int:
        return int(self.with_v.shape[1])

    @property
    def cov_v(self) -> Array:
        return np.asarray(self.cov[-self.k_v :, -self.k_v :])

    @property
    def on_v(self) -> Array:
        return np.asarray(self.on[-self.k_v :])

    def with_covariance(self, cov: Array, lift: Array) -> Given:
        """The same with another covariance of the coordinates, of which columns (p, k) are made by `lift`."""
        return replace(self, cov=cov, with_v=lift @ cov[:, -self.k_v :])


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of products by block, about the means of all rows.

    z (B, m, m) : of z = (1, covariates, exposures, coordinates of U, of V) with itself; with_columns : block -> (m, p), with
    every column; squares : block -> (p,); n (B,) : rows; known, q, k_v : how many covariates, exposures and coordinates of V;
    lost : rows' worth of freedom that covariates and exposures took.
    """

    z: Array
    with_columns: Callable[[int], Array]
    squares: Callable[[int], Array]
    n: Array
    known: int
    q: int
    k_v: int
    lost: float

    @classmethod
    def of_rows(
        cls,
        views: tuple[Array, Array],
        coordinates: tuple[Coordinates, Coordinates],
        known: Array,
        exposures: Array,
        weight: Array,
        blocks: IntArray,
        lost: float,
    ) -> Sums:
        """Tables (n, .) in memory; weight (n,) : how often each row counts; blocks (n,) : the block of each row."""
        total = weight.sum()
        means = [weight @ view / total for view in views]
        members = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]
        parts = [part - weight @ part / total for part in (known, exposures)]
        parts += [(view - mean) @ one.to.T for view, mean, one in zip(views, means, coordinates, strict=True)]
        z = np.hstack([np.ones((len(known), 1)), *parts])

        def with_columns(block: int) -> Array:
            rows = members[block]
            counted = (z[rows] * weight[rows, None]).T
            return np.hstack([counted @ (view[rows] - mean) for view, mean in zip(views, means, strict=True)])

        def squares(block: int) -> Array:
            rows = members[block]
            return np.concatenate(
                [weight[rows] @ (view[rows] - mean) ** 2 for view, mean in zip(views, means, strict=True)]
            )

        itself = np.stack([(z[rows] * weight[rows, None]).T @ z[rows] for rows in members])
        counts = np.array([weight[rows].sum() for rows in members])
        sizes = known.shape[1], exposures.shape[1], coordinates[1].k
        return cls(itself, with_columns, squares, counts, *sizes, lost)

    @classmethod
    def of_state(cls, state: Moments, coordinates: tuple[Coordinates, Coordinates], known: int, lost: float) -> Sums:
        """A state whose columns are U, V, covariates, exposures, in this order."""
        used = np.flatnonzero(state.block_sizes)
        count = state.block_sizes[used].astype(np.float64)
        second = state.block_covariances()[used] * count[:, None, None]
        first = state.central_blocks()[used][:, state.layout.orders[1]]
        width, p = second.shape[1], sum(one.to.shape[1] for one in coordinates)
        into = np.zeros((width - p + sum(one.k for one in coordinates), width))
        into[: width - p, p:] = np.eye(width - p)
        into[width - p :, :p] = linalg.block_diag(*(one.to for one in coordinates))
        m = len(into)
        z = np.empty((len(used), 1 + m, 1 + m))
        z[:, 0, 0], z[:, 0, 1:] = count, first @ into.T
        z[:, 1:, 0], z[:, 1:, 1:] = z[:, 0, 1:], into @ second @ into.T
        with_columns = np.concatenate([first[:, None, :p], into @ second[:, :, :p]], axis=1)
        squares = np.einsum("bii->bi", second[:, :p, :p])
        sizes = known, width - p - known, coordinates[1].k
        return cls(z, lambda b: with_columns[b], lambda b: squares[b], count, *sizes, lost)

    @cached_property
    def _total(self) -> tuple[Array, Array, Array]:
        blocks = range(len(self.n))
        return self.z.sum(0), reduce(np.add, map(self.with_columns, blocks)), reduce(np.add, map(self.squares, blocks))

    def left_of_exposures(self) -> Array:
        """(q,) the share of each exposure's variance that covariates and other exposures do not explain."""
        k = 1 + self.known + self.q
        zz = self.z.sum(0)[:k, :k]
        out = np.zeros(self.q)
        for i, place in enumerate(range(1 + self.known, k)):
            others = np.delete(np.arange(k), place)
            both, size = zz[place, others], max(zz[place, place], 1e-300)
            out[i] = 1 - both @ _inverse(zz[np.ix_(others, others)]) @ both / size
        return out

    def given(self) -> Given:
        """All rows."""
        return self._solved(*self._total, float(self.n.sum()))

    def without_each_block(self) -> Iterator[Given]:
        zz, zw, squares = self._total
        for b, gone in enumerate(self.n):
            left = float(self.n.sum() - gone)
            yield self._solved(zz - self.z[b], zw - self.with_columns(b), squares - self.squares(b), left)

    def _solved(self, zz: Array, zw: Array, squares: Array, n: float) -> Given:
        """Regression on (1, covariates, exposures); covariances of what it leaves have the divisor n - lost."""
        k, free = 1 + self.known + self.q, n - self.lost
        inverse, places = _inverse(zz[:k, :k]), slice(1 + self.known, 1 + self.known + self.q)
        on_z, on_w = inverse @ zz[:k, k:], inverse @ zw[:k]
        return Given(
            slopes=on_w[places].T,
            with_v=(zw[-self.k_v :] - zz[-self.k_v :, :k] @ on_w).T / free,
            variance=np.maximum(squares - np.einsum("kp,kp->p", zw[:k], on_w), 0.0) / free,
            cov=(zz[k:, k:] - zz[k:, :k] @ on_z) / free,
            on=on_z[places].T,
            noise=inverse[places, places] * (n / free),
        )


def _inverse(products: Array) -> Array:
    """Of sums of products, whatever the units of the columns."""
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    units = np.outer(scale, scale)
    return np.asarray(np.linalg.pinv(products / units, rcond=1e-12, hermitian=True) / units)
