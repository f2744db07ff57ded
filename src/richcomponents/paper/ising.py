"""Appendix D: the composite likelihood of an Ising model, the Taylor expansion of its gradient, and stochastic gradients.

    grad_Jij ~ E[2 S_i S_j - S_i^2 S_j sum_k J_ik S_k - S_i S_j^2 sum_k J_jk S_k],    k over the neighbours of i, of j:

1 / (1 + exp(2 x)) = (1 - tanh x) / 2 with tanh x = x, a polynomial of order four in S. It fails for strong couplings: a bias
that no sample size removes. With S_i^2 = 1 its moments of order four are pair moments, which are far less noisy than extracted
fourth cumulants (the paper's): C = E[S S'] is all that :func:`fit_taylor` takes. Couplings stay below the largest that the
Ising learners allow.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising import MAX_COUPLING, bounded_minimum, coupling_matrix, unit_diagonal
from richcomponents.paper.contrastive import Extraction
from richcomponents.paper.gradient import N_STEPS, SGDResult, fourth_cumulant, robbins_monro, sgd


def contrastive_ising(
    s1: Extraction, edges: IntArray, *, batch_size: int = 100, n_steps: int = N_STEPS, random_state: int = 0
) -> SGDResult:
    """Contrastive Ising model: stochastic steps along :func:`taylor_gradient` (Appendix D); the couplings (m,) are `.theta`.

    edges : (m, 2), pairs of columns; `richcomponents.grid_edges` has those of a grid. No coupling goes beyond the largest that
    the Ising learners allow.

    Examples
    --------
    >>> from richcomponents import paper
    >>> S1 = np.tile([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]], (500, 1))
    >>> bool(paper.contrastive_ising(paper.true_samples(S1), np.array([[0, 1]])).theta[0] > 0.2)
    True
    """
    return sgd(
        lambda J, rows: -taylor_gradient(s1.take(rows), edges, J),
        np.zeros(len(edges)),
        len(s1.U),
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, float(np.bincount(edges.ravel()).max())),
        projection=lambda J: np.clip(J, -MAX_COUPLING, MAX_COUPLING),
        random_state=random_state,
    )


def taylor_gradient(s1: Extraction, edges: IntArray, couplings: Array) -> Array:
    """E[2 S_i S_j - S_i^2 S_j h_i - S_i S_j^2 h_j], (m,), h_i = sum_k J_ik S_k: as Appendix D has it.
    edges : (m, 2), pairs of columns.

    E[S_i^2 S_j h_i] = k4(U_i, U_i, U_j, Rh_i) + k2_ii k2(U_j, Rh_i) + 2 k2_ij k2(U_i, Rh_i), Rh = R J.

    Examples
    --------
    >>> from richcomponents import paper
    >>> S1 = np.array([[1.0, 1.0], [-1.0, -1.0]] * 3)
    >>> paper.taylor_gradient(paper.true_samples(S1), np.array([[0, 1]]), np.zeros(1)).round(6).tolist()
    [2.4]
    """
    n, d = s1.U.shape
    second, field = s1.second, s1.R @ coupling_matrix(d, edges, couplings)
    total = 2 * second[tuple(edges.T)]
    for i, j in (edges.T, edges.T[::-1]):
        a, b, h = s1.U[:, i], s1.U[:, j], field[:, i]
        of_i, of_j = (np.einsum("nm,nm->m", x, h) / (n - 1) for x in (a, b))
        total = total - fourth_cumulant(a, a, b, h) - second[i, i] * of_j - 2 * second[i, j] * of_i
    return np.asarray(total)


def fit_taylor(component: Component, edges: IntArray, ridge: float) -> Array:
    """Couplings (m,) at which the approximate gradient less ridge J is zero, from the pair moments of a component of spins.

    With S_i^2 = 1 it is 2 C_ij - (J C)_ij - (J C)_ji, the gradient of 2 sum_ij J_ij C_ij - tr(J C J) / 2. Couplings are
    bounded, since extracted moments need not be positive definite.
    """
    second, (i, j) = unit_diagonal(component.covariance), edges.T
    at_zero = 2 * second[i, j]

    def loss(couplings: Array) -> tuple[float, Array]:
        toward = coupling_matrix(len(second), edges, couplings) @ second
        slope = ridge * couplings + toward[i, j] + toward[j, i] - at_zero
        return float(couplings @ (slope - at_zero)) / 2, slope  # quadratic

    return bounded_minimum(loss, np.zeros(len(edges)))
