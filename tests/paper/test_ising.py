"""Appendix D on all states of a small graph."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.components import Component
from richcomponents.learning.ising import all_states, coupling_matrix, grid_edges, neighbours
from richcomponents.paper.ising import fit_taylor

EDGES = grid_edges(2, 3)
D = 6


def composite_gradient(second, fourth, edges, couplings):
    """As the paper writes it, from E[S S'] (d, d) and E[S^(x4)] (d, d, d, d)."""
    J = coupling_matrix(len(second), edges, couplings)
    i, j = edges.T
    toward = np.einsum("ik,iijk->ij", J, fourth)  # sum_k J_ik E[S_i^2 S_j S_k]
    return 2 * second[i, j] - toward[i, j] - toward[j, i]


def law(couplings):
    """All states and their probabilities."""
    states = all_states(D)
    weights = np.exp(np.einsum("si,ij,sj->s", states, coupling_matrix(D, EDGES, couplings), states) / 2)
    return states, weights / weights.sum()


@pytest.fixture(scope="module")
def moments():
    states, p = law(np.linspace(-0.4, 0.5, len(EDGES)))
    return np.einsum("s,si,sj->ij", p, states, states), np.einsum(
        "s,si,sj,sk,sl->ijkl", p, *[states] * 4, optimize=True
    )


def test_the_taylor_gradient_is_the_expectation_it_is_written_as(moments):
    second, fourth = moments
    J = np.linspace(0.3, -0.2, len(EDGES))
    near = neighbours(D, EDGES)
    expected = [
        2 * second[i, j]
        - sum(J[e] * fourth[i, i, j, k] for k, e in near[i].items())
        - sum(J[e] * fourth[j, j, i, k] for k, e in near[j].items())
        for i, j in EDGES.tolist()
    ]
    np.testing.assert_allclose(composite_gradient(second, fourth, EDGES, J), expected, atol=1e-12)


def test_its_zero_is_the_fit(moments):
    """With squares one, pair moments give the same gradient."""
    second, fourth = moments
    found = fit_taylor(Component("S1", tuple("abcdef"), np.zeros(D), second), EDGES, 0.0)
    np.testing.assert_allclose(composite_gradient(second, fourth, EDGES, found), 0.0, atol=1e-6)


def test_the_expansion_is_of_third_order_in_the_couplings():
    """At the true couplings the gradient of the composite likelihood is zero, and what tanh x = x leaves is of order x^3."""
    left = []
    for size in (0.02, 0.04):
        J = size * np.linspace(-1, 1, len(EDGES))
        states, p = law(J)
        second = np.einsum("s,si,sj->ij", p, states, states)
        fourth = np.einsum("s,si,sj,sk,sl->ijkl", p, *[states] * 4, optimize=True)
        left.append(np.abs(composite_gradient(second, fourth, EDGES, J)).max())
    assert 6 < left[1] / left[0] < 10
