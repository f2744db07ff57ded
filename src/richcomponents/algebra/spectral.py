"""Functions of symmetric matrices (stacks, too): floored powers, and whitening."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra.arrays import Array

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
    cov = np.asarray(cov, dtype=float)
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(cov / np.outer(safe, safe))
    keep = values > RANK_TOLERANCE * max(float(values[-1]), np.finfo(float).tiny)
    vectors, root = vectors[:, keep], np.sqrt(values[keep])
    varies = scale > 0  # what rounding leaves of eigenvectors on constant columns is nothing
    return np.where(varies, (vectors / root).T / safe, 0.0), vectors * root * scale[:, None]


def least_squares(features: Array, y: Array, weight: Array) -> Array:
    """Coefficients (d,) of y (n,) on features (n, d), each row counted so often: also less often than not at all."""
    if len(weight) and weight.min() < 0:
        counted = features * weight[:, None]
        return np.asarray(np.linalg.lstsq(counted.T @ features, counted.T @ y, rcond=1e-12)[0])
    root = np.sqrt(weight)
    return np.asarray(np.linalg.lstsq(features * root[:, None], y * root, rcond=None)[0])
