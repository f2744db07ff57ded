"""Stochastic gradients that the paper's are compared with: exact ones of true samples, and its polynomials on what the library
extracts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from reproduction.settings import Array
from richcomponents import Component
from richcomponents.paper.gradient import LogisticLikelihood
from richcomponents.paper.ising import pair_gradient
from richcomponents.paper.steps import SGDResult, robbins_monro, sgd

IntArray = NDArray[np.int64]
MOST = 4.0
"""Couplings stay below, as in the library's fits."""


def coupling_matrix(d: int, edges: IntArray, couplings: Array) -> Array:
    """Symmetric, (d, d)."""
    J = np.zeros((d, d))
    J[edges[:, 0], edges[:, 1]] = J[edges[:, 1], edges[:, 0]] = couplings
    return J


def exact_logistic(
    samples: Array,
    y: Array,
    alpha: float,
    *,
    fit_intercept: bool = True,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> tuple[SGDResult, LogisticLikelihood]:
    """Mini-batch logistic regression on true samples (n, d), centred if there is an intercept: the sigmoid itself.

    The same coordinates and steps as `polynomial_logistic`, so that the two trajectories can be laid over each other.
    """
    n, d = samples.shape
    second = samples.T @ samples / n
    empty = Component("samples", tuple(map(str, range(d))), np.zeros(d), second)
    frame = LogisticLikelihood.of(empty, np.zeros(d), 0.0, alpha=alpha, fit_intercept=fit_intercept)
    design = samples @ frame.root

    def gradient(at: Array, rows: IntArray) -> Array:
        gap = expit(at[0] + design[rows] @ at[1:]) - y[rows]
        by_q = design[rows].T @ gap / len(rows) + frame.root.T @ (frame.penalty * (frame.root @ at[1:]))
        return np.append(gap.mean() * fit_intercept, by_q)

    return _logistic_steps(gradient, frame, n, batch_size, n_steps, random_state), frame


def polynomial_logistic(
    likelihood: LogisticLikelihood,
    residual: Array,
    y: Array,
    *,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """The same along the gradient of the cubic with everything but A measured on a mini-batch.

    residual : (n, d), stands in for s in Cov(s, y); y : (n,) of 0 and 1; the component of the likelihood reads its cumulants
    off the same n rows (ContrastiveRCA.component_on_rows). The products of cumulants of one batch in E[s w^3] = k4 + 3 k2 k2
    have a bias of order 1 / batch_size.
    """
    part, root = likelihood.component, likelihood.root

    def gradient(at: Array, rows: IntArray) -> Array:
        level = float(y[rows].mean())
        cross = residual[rows].T @ (y[rows] - level) / max(len(rows) - 1, 1)
        with_y = np.append(level, root.T @ (cross + level * part.mean))
        batch = part.measured_on(part.source.take(rows), 4)  # type: ignore[union-attr]
        return -replace(likelihood, component=batch, with_y=with_y).gradient(at)

    return _logistic_steps(gradient, likelihood, len(y), batch_size, n_steps, random_state, likelihood.confine)


def _logistic_steps(
    gradient: Callable[[Array, IntArray], Array],
    frame: LogisticLikelihood,
    n: int,
    batch_size: int,
    n_steps: int,
    random_state: int,
    projection: Callable[[Array], Array] = lambda at: at,
) -> SGDResult:
    """In the coordinates (a, q) the largest curvature is 1/4, at zero; where the signal is strong it falls, here by 4."""
    k = frame.root.shape[1]
    return sgd(
        gradient,
        np.zeros(1 + k),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(1 / 16, 1 / 4, excess=(int(frame.intercept) + k) / min(batch_size, n)),
        projection=projection,
        random_state=random_state,
    )


def composite_likelihood(S: Array, edges: IntArray, couplings: Array) -> tuple[float, Array]:
    """Mean negative composite log-likelihood of spins S (n, d), and its gradient (m,): the sigmoid itself."""
    n, d = S.shape
    h = S @ coupling_matrix(d, edges, couplings)
    value = float(np.mean(np.sum(np.logaddexp(h, -h) - S * h, axis=1)))
    slope = (np.tanh(h) - S).T @ S / n  # (i, j): derivative by J_ij in node i's term
    i, j = edges.T
    return value, np.asarray(slope[i, j] + slope[j, i])


def exact_ising(
    S: Array, edges: IntArray, ridge: float, *, batch_size: int = 100, n_steps: int = 1000, random_state: int = 0
) -> SGDResult:
    """Stochastic steps along the exact gradient of the composite likelihood of true spins S (n, d), couplings (m,)."""

    def gradient(J: Array, rows: IntArray) -> Array:
        return composite_likelihood(S[rows], edges, J)[1] + ridge * J

    return _steps(gradient, S.shape, edges, ridge, batch_size, n_steps, random_state)


def taylor_ising(
    rows: Array,
    component: Component,
    edges: IntArray,
    ridge: float,
    *,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """The same along the approximate gradient for hidden spins, which rows (n, d) predict; component : of these spins.

    The gradient is linear in pair moments. A batch estimates them by the products of its predictions, moved by one constant
    matrix so that the mean over all batches is the extracted moments: unbiased for these, and with far less noise than
    cumulants of 100 rows.
    """
    rows = (rows - component.mean) / np.sqrt(component.variance)
    size = np.sqrt(component.variance)
    pairs = np.clip(component.covariance / np.outer(size, size), -1.0, 1.0)
    np.fill_diagonal(pairs, 1.0)
    shift = pairs - rows.T @ rows / len(rows)

    def gradient(J: Array, chosen: IntArray) -> Array:
        second = rows[chosen].T @ rows[chosen] / len(chosen) + shift
        np.fill_diagonal(second, 1.0)
        return ridge * J - pair_gradient(second, edges, J)

    return _steps(gradient, rows.shape, edges, ridge, batch_size, n_steps, random_state)


def _steps(
    gradient: Callable[[Array, IntArray], Array],
    shape: tuple[int, ...],
    edges: IntArray,
    ridge: float,
    batch_size: int,
    n_steps: int,
    random_state: int,
) -> SGDResult:
    """Curvature: node i adds at most E[x x'], x its neighbours, of trace deg_i; an edge has two nodes."""
    n, d = shape
    degree = int(np.bincount(edges.ravel(), minlength=d).max())
    return sgd(
        gradient,
        np.zeros(len(edges)),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, max(degree, 1) + ridge),
        projection=lambda J: np.clip(J, -MOST, MOST),
        random_state=random_state,
    )
