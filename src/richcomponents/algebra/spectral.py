"""Functions of symmetric matrices (stacks, too): floored powers, and the logistic function with its derivative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra.arrays import Array

__all__ = ["RANK_TOLERANCE", "Logistic", "logit", "power", "symmetric", "whitening"]

MAX_LOGIT = 15.0

RANK_TOLERANCE = 1e-9
"""Eigenvalues of a correlation matrix below this share of the largest count as exact collinearity."""


def symmetric(a: Array) -> Array:
    """The symmetric part."""
    out: Array = (a + np.swapaxes(a, -1, -2)) / 2
    return out


def power(a: Array, exponent: float, floor: float) -> Array:
    """a ** exponent; eigenvalues below `floor` are raised to it.

    >>> power(np.diag([4.0, 0.0]), 0.5, 1.0).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(a)
    out: Array = (vectors * np.maximum(values, floor)[..., None, :] ** exponent) @ np.swapaxes(vectors, -1, -2)
    return out


@dataclass(frozen=True)
class Logistic:
    """T = logistic(X) at a symmetric X, and its derivative (Daleckii and Krein: divided differences of eigenvalues).

    value : T; vectors : eigenvectors; quotient : (..., r, r), the divided differences.
    """

    value: Array
    vectors: Array
    quotient: Array

    @classmethod
    def at(cls, x: Array) -> Logistic:
        """Evaluate; eigenvalues of X are kept between -15 and 15."""
        logits, vectors = np.linalg.eigh(x)
        logits = np.clip(logits, -MAX_LOGIT, MAX_LOGIT)
        shares = 1 / (1 + np.exp(-logits))
        slopes = shares * (1 - shares)
        gap = logits[..., :, None] - logits[..., None, :]
        near = np.abs(gap) < 1e-6
        quotient = np.where(
            near,
            (slopes[..., :, None] + slopes[..., None, :]) / 2,
            (shares[..., :, None] - shares[..., None, :]) / np.where(near, 1.0, gap),
        )
        return cls((vectors * shares[..., None, :]) @ np.swapaxes(vectors, -1, -2), vectors, quotient)

    def derivative(self, direction: Array) -> Array:
        """dT for dX = `direction`; it is self-adjoint, so this also pulls a gradient in T back to one in X."""
        back = np.swapaxes(self.vectors, -1, -2)
        out: Array = self.vectors @ (self.quotient * (back @ direction @ self.vectors)) @ back
        return out


def logit(t: Array, edge: float = 1e-6) -> Array:
    """The symmetric X with T = logistic(X); eigenvalues of T are kept in [edge, 1 - edge].

    >>> t = np.array([[0.5, 0.2], [0.2, 0.4]])
    >>> bool(np.allclose(Logistic.at(logit(t)).value, t))
    True
    """
    values, vectors = np.linalg.eigh(t)
    values = np.clip(values, edge, 1 - edge)
    out: Array = (vectors * np.log(values / (1 - values))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return out


def whitening(cov: Array) -> tuple[Array, Array]:
    """Whitening map (k, d) of a covariance (d, d) and its right inverse (d, k); k is the numerical rank.

    The columns are first scaled to unit variance, so that the rank does not depend on units.
    """
    cov = np.asarray(cov, dtype=float)
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(cov / np.outer(safe, safe))
    keep = values > RANK_TOLERANCE * max(float(values[-1]), np.finfo(float).tiny)
    values, vectors = values[keep], vectors[:, keep]
    root = np.sqrt(values)
    varies = scale > 0  # what rounding leaves of eigenvectors on constant columns is nothing
    return np.where(varies, (vectors / root).T / safe, 0.0), vectors * root * scale[:, None]
