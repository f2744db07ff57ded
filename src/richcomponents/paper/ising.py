"""Appendix D: the composite likelihood of an Ising model, the Taylor expansion of its gradient, and stochastic gradients.

    grad_Jij ~ E[2 S_i S_j - S_i^2 S_j sum_k J_ik S_k - S_i S_j^2 sum_k J_jk S_k],    k over the neighbours of i, of j:

1 / (1 + exp(2 x)) = (1 - tanh x) / 2 with tanh x = x, a polynomial of order four in S. It fails for strong couplings: a bias
that no sample size removes. With S_i^2 = 1 its moments of order four are pair moments, which are far less noisy than extracted
fourth cumulants (the paper's): C = E[S S'] is all that :func:`pair_gradient` takes. The composite likelihood itself, of true
spins, is E sum_i S_i h_i - log(2 cosh h_i), h_i = sum_j J_ij S_j.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising import bounded_minimum, coupling_matrix, unit_diagonal


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
