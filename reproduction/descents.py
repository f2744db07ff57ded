"""Stochastic gradients that the paper's are compared with: exact ones of true samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from reproduction.settings import Array
from richcomponents.paper.gradient import robbins_monro, sgd

IntArray = NDArray[np.int64]
MOST = 4.0
"""Couplings stay below, as in the library's fits."""


def exact_logistic(
    samples: Array, y: Array, alpha: float, *, batch_size: int = 100, n_steps: int = 1000, random_state: int = 0
) -> Array:
    """Mini-batch logistic regression on true samples (n, d), centred here, by the sigmoid itself: the path of the coefficients
    (n_steps + 1, d); beside them there is an intercept.

    alpha : ridge, in units of the columns' variances. Steps are taken in coordinates in which the curvature at zero is 1/4 in
    all directions; where the signal is strong it falls, here by 4.
    """
    samples = samples - samples.mean(axis=0)
    n, d = samples.shape
    second = samples.T @ samples / n
    penalty = alpha * np.diag(second)
    values, vectors = np.linalg.eigh(second + 4 * np.diag(penalty))
    root = vectors / np.sqrt(values)
    design = np.column_stack([np.ones(n), samples @ root])

    def gradient(at: Array, rows: IntArray) -> Array:
        slope = design[rows].T @ (expit(design[rows] @ at) - y[rows]) / len(rows)
        slope[1:] += root.T @ (penalty * (root @ at[1:]))
        return np.asarray(slope)

    path = sgd(
        gradient,
        np.zeros(1 + d),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(1 / 16, 1 / 4, excess=(1 + d) / min(batch_size, n)),
        random_state=random_state,
    )
    return np.asarray(path.trajectory[:, 1:] @ root.T)


def composite_likelihood(S: Array, edges: IntArray, couplings: Array) -> tuple[float, Array]:
    """Mean negative composite log-likelihood of spins S (n, d), and its gradient (m,): the sigmoid itself."""
    n, d = S.shape
    i, j = edges.T
    J = np.zeros((d, d))
    J[i, j] = J[j, i] = couplings
    h = S @ J
    value = float(np.mean(np.sum(np.logaddexp(h, -h) - S * h, axis=1)))
    slope = (np.tanh(h) - S).T @ S / n  # (i, j): derivative by J_ij in node i's term
    return value, np.asarray(slope[i, j] + slope[j, i])


def exact_ising(
    S: Array, edges: IntArray, ridge: float, *, batch_size: int = 100, n_steps: int = 1000, random_state: int = 0
) -> Array:
    """The path of the couplings (n_steps + 1, m) along the exact gradient of the composite likelihood of true spins S (n, d).

    Curvature: node i adds at most E[x x'], x its neighbours, of trace deg_i; an edge has two nodes.
    """

    def gradient(J: Array, rows: IntArray) -> Array:
        return composite_likelihood(S[rows], edges, J)[1] + ridge * J

    return sgd(
        gradient,
        np.zeros(len(edges)),
        len(S),
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, int(np.bincount(edges.ravel()).max()) + ridge),
        projection=lambda J: np.clip(J, -MOST, MOST),
        random_state=random_state,
    ).trajectory
