"""Second moments of tests and controls given exposures and known covariates, of all rows and without each block.

Every column counts, but only few COORDINATES are compared with each other: the columns themselves where they are few, leading
canonical coordinates where they are many. Of all other columns their slopes on the exposures, their variances and their
covariances with the coordinates of the controls suffice: nothing of the size of their number squared is formed.

SMOOTHING. Canonical coordinates look only at what is between the views, and with many columns they look at noise. Factors of
tests and controls together know more, if own parts of columns hardly depend on each other: w (L L' + psi) + (1 - w) sample, w
one over the dispersion (chi-square over degrees of freedom) of the correlations that the factors leave, so that nothing is
smoothed where that fails. There are as many factors as stand above the edge of noise (Marchenko and Pastur), fewer than
controls, so that each control can be held out, and no more than tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.pair.views import SINGULAR, first_copies

EDGE = 1.05
"""Times the largest eigenvalue of noise: above it there is one more factor."""

HEYWOOD = 0.02
"""Least share of a column's variance that is error."""


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
        first, scale = first_copies(covariance), np.sqrt(np.maximum(np.diag(covariance), 0.0))
        columns = np.unique(first[scale > 0])
        sign = np.sign(covariance[:, columns]) * (first[:, None] == columns)
        return cls(np.eye(len(scale))[columns] / scale[columns, None], scale[:, None] * sign, columns)


@dataclass(frozen=True, eq=False)
class Given:
    """One sample, or a stack of samples ("..."), given exposures and covariates. Columns are those of U, then those of V.

    slopes (..., p, q) : of every column on the exposures; with_v (..., p, k_v) : covariances with the coordinates of V;
    variance (..., p); cov (..., k, k) : of the coordinates, those of U first; on (..., k, q) : their slopes;
    noise (..., q, q) : covariance of the slopes of a column with unit variance, for independent rows.
    """

    slopes: Array
    with_v: Array
    variance: Array
    cov: Array
    on: Array
    noise: Array

    @property
    def cov_v(self) -> Array:
        k_v = self.with_v.shape[-1]
        return np.asarray(self.cov[..., -k_v:, -k_v:])

    @property
    def on_v(self) -> Array:
        return np.asarray(self.on[..., -self.with_v.shape[-1] :, :])

    @cached_property
    def precision_v(self) -> Array:
        return np.asarray(np.linalg.pinv(self.cov_v, rcond=1e-12, hermitian=True))


def second_moments(
    table: Array, views: tuple[Coordinates, Coordinates], known: int, weight: Array, blocks: IntArray, lost: float
) -> tuple[Given, Given, Array]:
    """Of all rows, the stack (B,) without each block, and the numbers of rows (B,) in the blocks.

    table (n, .) : columns of U, V, covariates (so many are known) and exposures; of a state, few rows with the same moments.
    weight (n,) : how often each row counts; blocks (n,) : the block of each row; lost : rows' worth of freedom that covariates
    and exposures took.
    """
    to, mean, products, squares = linalg.block_diag(*(one.to for one in views)), weight @ table / weight.sum(), [], []
    p = to.shape[1]
    # of z = (1, covariates, exposures, coordinates) with itself and with the columns of U, V
    for b in np.unique(blocks):
        rows, counts = table[blocks == b] - mean, weight[blocks == b]
        z = np.hstack([np.ones((len(rows), 1)), rows[:, p:], rows[:, :p] @ to.T])
        products.append(z.T * counts @ np.hstack([z, rows[:, :p]]))
        squares.append(counts @ rows[:, :p] ** 2)
    one, two, k_v = np.stack(products), np.stack(squares), len(views[1].to)
    places = slice(1 + known, 1 + table.shape[1] - p)
    whole, without = ((one.sum(0), two.sum(0)), (one.sum(0) - one, two.sum(0) - two))
    return _given(*whole, places, k_v, lost), _given(*without, places, k_v, lost), one[:, 0, 0]


def _given(products: Array, squares: Array, places: slice, k_v: int, lost: float) -> Given:
    """Regression on (1, covariates, exposures), places : of these; covariances of what it leaves have the divisor n - lost."""
    m, k, n = products.shape[-2], places.stop, products[..., :1, :1]
    zz, zw, free = products[..., :m], products[..., m:], n - lost
    scaled, units = _scaled(zz[..., :k, :k])
    inverse = np.linalg.pinv(scaled, rcond=1e-12, hermitian=True) / units
    on_z, on_w = inverse @ zz[..., :k, k:], inverse @ zw[..., :k, :]
    return Given(
        slopes=on_w[..., places, :].mT,
        with_v=(zw[..., -k_v:, :] - zz[..., -k_v:, :k] @ on_w).mT / free,
        variance=np.maximum(squares - np.einsum("...kp,...kp->...p", zw[..., :k, :], on_w), 0.0) / free[..., 0],
        cov=(zz[..., k:, k:] - zz[..., k:, :k] @ on_z) / free,
        on=on_z[..., places, :].mT,
        noise=inverse[..., places, places] * (n / free),
    )


def unexplained(table: Array, weight: Array) -> Array:
    """(k,) the share of the variance of each column (n, k) that the others do not explain."""
    table = table - weight @ table / weight.sum()
    values, vectors = np.linalg.eigh(_scaled(table.T * weight @ table)[0])
    return np.asarray(1 / np.sum(vectors**2 / np.maximum(values, 1e-14), axis=1))


def _scaled(products: Array) -> tuple[Array, Array]:
    """(..., k, k) to a diagonal of ones, and what was divided by."""
    scale = np.sqrt(np.maximum(np.einsum("...ii->...i", products), 1e-300))
    units = scale[..., :, None] * scale[..., None, :]
    return products / units, units


# ---- smoothed


@dataclass(frozen=True, eq=False)
class Smoothing:
    """k : number of factors; psi (p,) : variances of the errors; weight : w; controls : the same of controls alone."""

    k: int = 0
    psi: Array = field(default_factory=lambda: np.ones(0))
    weight: float = 0.0
    controls: float = 1.0

    @classmethod
    def of(cls, covariance: Array, k_u: int, n: float) -> Smoothing:
        """covariance (p, p) of tests and controls, the first k_u are tests; n : independent rows."""
        p = len(covariance)
        size = np.sqrt(np.diag(covariance))
        covariance = covariance / np.outer(size, size)
        most = next((k for k in range(min(k_u, p - k_u - 1), 0, -1) if (p - k) ** 2 > p + k), 0)
        k, psi, largest = 0, np.ones(p), np.inf
        while k < most and largest > EDGE * (1 + np.sqrt(p / n)) ** 2:
            k += 1
            L, psi, largest = _factors(covariance, k, psi, 200)
        if not k:
            return cls()
        left = n * np.tril((covariance - L @ L.T) / np.sqrt(np.outer(psi, psi)), -1) ** 2
        free = ((p - k) ** 2 - p - k) / (p * (p - 1))  # of each correlation, what the factors leave free

        def weight(part: Array) -> float:
            m = len(part)
            return min(1.0, free * m * (m - 1) / 2 / max(float(np.sum(part)), 1e-300))

        return cls(k, psi * size**2, weight(left), weight(left[k_u:, k_u:]))

    def __call__(self, covariances: Array) -> Array:
        """Smoothed (..., p, p)."""
        L, psi, _ = _factors(covariances, self.k, np.broadcast_to(self.psi, covariances.shape[:-1]), 50)
        model = L @ L.mT + psi[..., None] * np.eye(len(self.psi))
        return np.asarray(self.weight * model + (1 - self.weight) * covariances)


def _factors(cov: Array, k: int, psi: Array, rounds: int) -> tuple[Array, Array, float]:
    """Maximum likelihood of Cov = L L' + diag(psi), from psi: L (..., p, k), psi (..., p), and the largest eigenvalue of
    psi^-1/2 Cov psi^-1/2 that L leaves."""
    size = np.maximum(np.diagonal(cov, axis1=-2, axis2=-1), SINGULAR * psi)  # a column may be constant without a block
    for _ in range(rounds):
        root = np.sqrt(psi)
        values, vectors = np.linalg.eigh(cov / root[..., :, None] / root[..., None, :])
        L = root[..., None] * vectors[..., -k:] * np.sqrt(np.maximum(values[..., -k:] - 1, 0))[..., None, :]
        last, psi = psi, np.clip(size - np.sum(L**2, -1), HEYWOOD * size, size)
        if np.max(np.abs(last - psi) / size) < 1e-5:
            break
    return L, psi, float(np.max(values[..., -k - 1]))
