"""Appendix D: the composite likelihood of an Ising model, the Taylor expansion of its gradient, and stochastic gradients.

    grad_Jij ~ E[2 S_i S_j - S_i^2 S_j sum_k J_ik S_k - S_i S_j^2 sum_k J_jk S_k],    k over the neighbours of i, of j:

1 / (1 + exp(2 x)) = (1 - tanh x) / 2 with tanh x = x, a polynomial of order four in S. It fails for strong couplings: a bias
that no sample size removes. With S_i^2 = 1 its moments of order four are pair moments, which are far less noisy than extracted
fourth cumulants (the paper's): C = E[S S'] is all that :func:`pair_gradient` takes. The composite likelihood itself, of true
spins, is E sum_i S_i h_i - log(2 cosh h_i), h_i = sum_j J_ij S_j.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising import MAX_COUPLING, bounded_minimum, coupling_matrix, neighbours, unit_diagonal
from richcomponents.paper.steps import SGDResult, robbins_monro, sgd


def composite_gradient(second: Array, fourth: Array, edges: IntArray, couplings: Array) -> Array:
    """The approximate gradient (m,) as the paper writes it, from E[S S'] (d, d) and E[S^(x4)] (d, d, d, d)."""
    J = coupling_matrix(len(second), edges, couplings)
    i, j = edges.T
    toward = np.einsum("ik,iijk->ij", J, fourth)  # sum_k J_ik E[S_i^2 S_j S_k]
    return np.asarray(2 * second[i, j] - toward[i, j] - toward[j, i])


def pair_gradient(second: Array, edges: IntArray, couplings: Array) -> Array:
    """The same (m,) with S_i^2 = 1, from E[S S'] (d, d) alone."""
    toward = coupling_matrix(len(second), edges, couplings) @ second  # sum_k J_ik E[S_j S_k]
    i, j = edges.T
    return np.asarray(2 * second[i, j] - toward[i, j] - toward[j, i])


def fit_taylor(component: Component, edges: IntArray, ridge: float) -> Array:
    """Couplings (m,) at which the approximate gradient less ridge J is zero, from the pair moments of a component of spins.

    The gradient is that of 2 sum_ij J_ij C_ij - tr(J C J) / 2. Couplings are bounded, since extracted moments need not be
    positive definite.
    """
    second = unit_diagonal(component.covariance)

    def loss(couplings: Array) -> tuple[float, Array]:
        slope = ridge * couplings - pair_gradient(second, edges, couplings)
        return float(
            couplings @ (slope - 2 * second[tuple(edges.T)])
        ) / 2, slope  # quadratic: its slope at zero is known

    return bounded_minimum(loss, np.zeros(len(edges)))


def composite_likelihood(S: Array, edges: IntArray, couplings: Array) -> tuple[float, Array]:
    """Mean negative composite log-likelihood of spins S (n, d), and its gradient (m,): the sigmoid itself."""
    n, d = S.shape
    h = S @ coupling_matrix(d, edges, couplings)
    value = float(np.mean(np.sum(np.logaddexp(h, -h) - S * h, axis=1)))
    slope = (np.tanh(h) - S).T @ S / n  # (i, j): derivative by J_ij in node i's term
    i, j = edges.T
    return value, np.asarray(slope[i, j] + slope[j, i])


def exact_sgd(
    S: Array, edges: IntArray, ridge: float, *, batch_size: int = 100, n_steps: int = 1000, random_state: int = 0
) -> SGDResult:
    """Stochastic steps along the exact gradient of the composite likelihood of true spins S (n, d), couplings (m,)."""

    def gradient(J: Array, rows: IntArray) -> Array:
        return composite_likelihood(S[rows], edges, J)[1] + ridge * J

    return _steps(gradient, S.shape, edges, ridge, batch_size, n_steps, random_state)


def taylor_sgd(
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
    shift = unit_diagonal(component.covariance) - rows.T @ rows / len(rows)

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
    degree = max((len(near) for near in neighbours(d, edges)), default=0)
    return sgd(
        gradient,
        np.zeros(len(edges)),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, degree + ridge) if degree else 0.1,
        projection=lambda J: np.clip(J, -MAX_COUPLING, MAX_COUPLING),
        random_state=random_state,
    )
