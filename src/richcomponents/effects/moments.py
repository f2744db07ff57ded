"""Second moments of tests and controls given exposures and known covariates, of all rows and without each block.

Every column counts, but only few COORDINATES are compared with each other: the columns themselves where they are few, leading
canonical coordinates where they are many. Of all other columns their slopes on the exposures, their variances and their
covariances with the coordinates of the controls suffice: nothing of the size of their number squared is formed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray, unpack
from richcomponents.moments import Moments


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Of one view: to (k, d) from its columns, lift (d, k) back to them; columns (k,) : which columns they are, scaled to
    unit variance, or None where they are canonical coordinates."""

    to: Array
    lift: Array
    columns: IntArray | None = None

    @classmethod
    def of_columns(cls, covariance: Array) -> Coordinates:
        """Every column that varies; of columns that are copies of each other, but for their units, the first."""
        scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        unit = np.where(scale > 0, scale, 1.0)
        correlation = covariance / np.outer(unit, unit)
        first = np.argmax(np.abs(correlation) > np.sqrt(1 - 1e-9), axis=1)  # equal but for rounding
        columns = np.unique(first[scale > 0])
        copies = correlation[:, columns] * (first[:, None] == columns)
        return cls(np.eye(len(scale))[columns] / scale[columns, None], scale[:, None] * np.sign(copies), columns)

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
    def cov_v(self) -> Array:
        k_v = self.with_v.shape[1]
        return np.asarray(self.cov[-k_v:, -k_v:])

    @property
    def on_v(self) -> Array:
        return np.asarray(self.on[-self.with_v.shape[1] :])

    def with_covariance(self, cov: Array, lift: Array) -> Given:
        """The same with another covariance of the coordinates, of which columns (p, k) are made by `lift`."""
        return replace(self, cov=cov, with_v=lift @ cov[:, -self.with_v.shape[1] :])


Views = tuple[Coordinates, Coordinates]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the rows of each block, about the means of all rows, of the columns of U, V, covariates and exposures.

    products (B, m, m + p) : of z = (1, covariates, exposures, coordinates of U, of V) with itself and with each column of U, V;
    squares (B, p) : of these columns; n (B,) : rows; known, q, k_v : how many covariates, exposures and coordinates of V;
    lost : rows' worth of freedom that covariates and exposures took.
    """

    products: Array
    squares: Array
    n: Array
    known: int
    q: int
    k_v: int
    lost: float

    @classmethod
    def of_rows(cls, table: Array, views: Views, known: int, weight: Array, blocks: IntArray, lost: float) -> Sums:
        """table (n, .) : the columns; weight (n,) : how often each row counts; blocks (n,) : the block of each row."""
        into, p = _into(views, table.shape[1])
        table = table - weight @ table / weight.sum()
        z, columns = np.hstack([np.ones((len(table), 1)), table @ into[1:, 1:].T]), table[:, :p]
        members = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]
        products = np.stack([z[r].T * weight[r] @ np.hstack([z[r], columns[r]]) for r in members])
        squares = np.stack([weight[r] @ columns[r] ** 2 for r in members])
        q = table.shape[1] - p - known
        return cls(products, squares, np.array([weight[r].sum() for r in members]), known, q, views[1].k, lost)

    @classmethod
    def of_state(cls, state: Moments, views: Views, known: int, lost: float) -> Sums:
        """The columns of a state."""
        width, used = state.layout.n_columns, np.flatnonzero(state.block_sizes)
        into, p = _into(views, width)
        sums = np.stack([unpack(block, 1 + width, 2) for block in state.up_to(2).central_blocks()[used]])
        left = into @ sums  # of z and (1, columns)
        products = np.concatenate([left @ into.T, left[:, :, 1 : 1 + p]], axis=2)
        squares = np.einsum("bii->bi", sums)[:, 1 : 1 + p]
        return cls(products, squares, sums[:, 0, 0], known, width - p - known, views[1].k, lost)

    def left_of_exposures(self) -> Array:
        """(q,) the share of each exposure's variance that covariates and other exposures do not explain."""
        k = 1 + self.known + self.q
        values, vectors = np.linalg.eigh(_scaled(self.products.sum(0)[:k, :k])[0])
        return np.asarray(1 / np.sum(vectors**2 / np.maximum(values, 1e-14), axis=1)[1 + self.known :])

    def given(self) -> tuple[Given, tuple[Given, ...]]:
        """Of all rows, and without each block."""
        products, squares, n = (part.sum(0) for part in (self.products, self.squares, self.n))
        blocks = zip(self.products, self.squares, self.n, strict=True)
        without = tuple(self._given(products - one, squares - two, n - rows) for one, two, rows in blocks)
        return self._given(products, squares, n), without

    def _given(self, products: Array, squares: Array, n: float) -> Given:
        """Regression on (1, covariates, exposures); covariances of what it leaves have the divisor n - lost."""
        m, k, free = len(products), 1 + self.known + self.q, n - self.lost
        zz, zw, places = products[:, :m], products[:, m:], slice(1 + self.known, k)
        scaled, units = _scaled(zz[:k, :k])
        inverse = np.linalg.pinv(scaled, rcond=1e-12, hermitian=True) / units
        on_z, on_w = inverse @ zz[:k, k:], inverse @ zw[:k]
        return Given(
            slopes=on_w[places].T,
            with_v=(zw[-self.k_v :] - zz[-self.k_v :, :k] @ on_w).T / free,
            variance=np.maximum(squares - np.einsum("kp,kp->p", zw[:k], on_w), 0.0) / free,
            cov=(zz[k:, k:] - zz[k:, :k] @ on_z) / free,
            on=on_z[places].T,
            noise=inverse[places, places] * (n / free),
        )


def _into(views: Views, width: int) -> tuple[Array, int]:
    """From (1, columns) to z, (m, 1 + width); and how many columns are those of U and V."""
    to = linalg.block_diag(*(one.to for one in views))
    p = to.shape[1]
    return linalg.block_diag(1.0, np.vstack([np.eye(width - p, width, p), np.pad(to, ((0, 0), (0, width - p)))])), p


def _scaled(products: Array) -> tuple[Array, Array]:
    """To a diagonal of ones, and what was divided by."""
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    units = np.outer(scale, scale)
    return products / units, units
