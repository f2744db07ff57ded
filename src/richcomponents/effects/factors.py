"""Factors of ALL columns as better second moments: w (L L' + psi) + (1 - w) sample.

Canonical coordinates look only at what is between the views, and with many columns they look at noise. Factors of tests and
controls together know more, if own parts of columns hardly depend on each other. w is one over the dispersion (chi-square over
degrees of freedom) of the correlations that the factors leave, so that nothing is smoothed where that fails.

There are as many factors as stand above the edge of noise (Marchenko and Pastur), fewer than controls, so that each control
can be held out, and no more than tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array

EDGE = 1.05
"""Times the largest eigenvalue of noise: above it there is one more factor."""

HEYWOOD = 0.02
"""Least share of a column's variance that is error."""


@dataclass(frozen=True, eq=False)
class Smoothing:
    """k : number of factors; psi (p,) : variances of the errors; weight : w; controls : the same of controls alone."""

    k: int
    psi: Array
    weight: float
    controls: float

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
            return cls(0, psi, 0.0, 1.0)
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
    size = np.diagonal(cov, axis1=-2, axis2=-1)
    for _ in range(rounds):
        root = np.sqrt(psi)
        values, vectors = np.linalg.eigh(cov / root[..., :, None] / root[..., None, :])
        L = root[..., None] * vectors[..., -k:] * np.sqrt(np.maximum(values[..., -k:] - 1, 0))[..., None, :]
        last, psi = psi, np.clip(size - np.sum(L**2, -1), HEYWOOD * size, size)
        if np.max(np.abs(last - psi) / size) < 1e-5:
            break
    return L, psi, float(np.max(values[..., -k - 1]))
