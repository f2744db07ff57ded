"""Penalised least squares from moments: no rows, only E[s s'] and E[s y]."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array

__all__ = ["elastic_net", "penalised", "penalty_grid"]


def elastic_net(
    gram: Array, cross: Array, alpha: float, l1_ratio: float, *, max_iter: int = 2000, tol: float = 1e-9
) -> Array:
    """argmin_w  w' gram w / 2 - cross' w + alpha (l1_ratio |w|_1 + (1 - l1_ratio) |w|^2 / 2), shape (d,).

    The objective of scikit-learn's ElasticNet. l1_ratio = 0: closed form (ridge, or least squares for alpha = 0);
    otherwise coordinate descent with soft thresholds.

    >>> elastic_net(np.eye(2), np.array([2.0, 0.3]), 0.5, 1.0).tolist()
    [1.5, 0.0]
    """
    ridge, lasso = alpha * (1 - l1_ratio), alpha * l1_ratio
    if lasso == 0:
        return np.asarray(np.linalg.pinv(gram + ridge * np.eye(len(cross)), hermitian=True) @ cross)
    w = np.zeros(len(cross))
    diagonal = np.diag(gram) + ridge
    scale = max(float(np.abs(cross).max()), 1e-300)
    for _ in range(max_iter):
        largest = 0.0
        for j in np.flatnonzero(diagonal > 0):
            rest = cross[j] - gram[j] @ w + gram[j, j] * w[j]
            new = np.sign(rest) * max(abs(rest) - lasso, 0.0) / diagonal[j]
            largest = max(largest, abs(new - w[j]) * diagonal[j])
            w[j] = new
        if largest <= tol * scale:
            break
    return w


def penalised(features: Array, y: Array, alpha: float | Array, l1_ratio: float) -> Array:
    """The same from centred rows, features (n, d) and y (n,): (d,), or (m, d) for m penalties.

    Ridge on more columns than rows is solved among the rows, w = F' (F F' + n alpha)^-1 y: nothing of size d x d.
    """
    n, d = features.shape
    alphas = np.atleast_1d(alpha)
    if l1_ratio == 0 and d > n and np.all(alphas > 0):
        values, vectors = np.linalg.eigh(features @ features.T / n)
        inner = (vectors.T @ y) / (np.maximum(values, 0.0) + alphas[:, None])  # (m, n)
        paths = inner @ vectors.T @ features / n
    else:
        gram, cross = features.T @ features / n, features.T @ y / n
        paths = np.stack([elastic_net(gram, cross, float(a), l1_ratio) for a in alphas])
    return np.asarray(paths if np.ndim(alpha) else paths[0])


def penalty_grid(gram: Array, cross: Array, l1_ratio: float, n: int = 30) -> Array:
    """Decreasing penalties, from the one that silences everything to a ten-thousandth of it (of ten times the largest
    eigenvalue of gram for ridge, which nothing silences)."""
    top = float(np.abs(cross).max()) / l1_ratio if l1_ratio > 0 else 10 * float(np.linalg.eigvalsh(gram)[-1])
    return np.asarray(np.geomspace(max(top, 1e-12), max(top, 1e-12) * 1e-4, n))
