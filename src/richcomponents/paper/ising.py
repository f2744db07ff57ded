"""Appendix D: the composite likelihood of an Ising model, the Taylor expansion of its gradient, and stochastic gradients.

    grad_Jij ~ E[2 S_i S_j - S_i^2 S_j sum_k J_ik S_k - S_i S_j^2 sum_k J_jk S_k],    k over the neighbours of i, of j:

1 / (1 + exp(2 x)) = (1 - tanh x) / 2 with tanh x = x, a polynomial of order four in S. It fails for strong couplings: a bias
that no sample size removes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising import (
    MAX_COUPLING,
    Neighbourhoods,
    SpinMoments,
    composite_likelihood,
    coupling_matrix,
    neighbours,
)
from richcomponents.learning.likelihood import LikelihoodFit, Ridge, fit_likelihood
from richcomponents.learning.solvers import SGDResult, robbins_monro, sgd

_ROWS_AT_ONCE = 10_000


def composite_gradient(second: Array, fourth: Array, edges: IntArray, couplings: Array) -> Array:
    """The approximate gradient (m,) as the paper writes it, from E[S S'] (d, d) and E[S^(x4)] (d, d, d, d)."""
    J = coupling_matrix(len(second), edges, couplings)
    i, j = edges.T
    toward = np.einsum("ik,iijk->ij", J, fourth)  # sum_k J_ik E[S_i^2 S_j S_k]
    return np.asarray(2 * second[i, j] - toward[i, j] - toward[j, i])


def _minus_tanh(field: float, z: Array) -> Array:
    return -np.tanh(z + field)


class CompositeLikelihood:
    """The composite likelihood for :func:`richcomponents.fit_likelihood`: one ridge function -tanh(h_i) per node.

    The gradient by J_ij is E[s_i s_j - s_j tanh(h_i)] + E[s_i s_j - s_i tanh(h_j)], by b_i it is E[s_i - tanh(h_i)]: what does
    not depend on theta is known, the rest is a ridge function of s times s or 1.

    pairs : E[s_i s_j] on the edges, (m,); means : E[s], (d,), with fields; empty without.
    """

    def __init__(self, n_nodes: int, edges: IntArray, pairs: Array, means: Array) -> None:
        self.n_nodes, self.edges = n_nodes, edges
        self._known = np.concatenate([2 * pairs, means])
        self._fields = bool(len(means))
        # the parameters that s_j times the ridge function of node i belongs to
        self._vectors = np.zeros((n_nodes, len(self._known), n_nodes))
        for e, (i, j) in enumerate(edges.tolist()):
            self._vectors[i, e, j] = self._vectors[j, e, i] = 1.0
        self._scalars = np.eye(n_nodes, len(self._known), len(edges)) if self._fields else None

    def _inside(self, theta: Array) -> tuple[Array, Array]:
        m = len(self.edges)
        fields = theta[m:] if self._fields else np.zeros(self.n_nodes)
        return coupling_matrix(self.n_nodes, self.edges, theta[:m]), fields

    def ridges(self, theta: Array) -> list[Ridge]:
        """-s_j tanh(b_i + w_i's), w_i the couplings of node i."""
        J, b = self._inside(theta)
        return [
            Ridge(
                J[i], partial(_minus_tanh, b[i]), self._vectors[i], None if self._scalars is None else self._scalars[i]
            )
            for i in range(self.n_nodes)
        ]

    def log_likelihood(self, theta: Array, s: Array) -> Array:
        """-sum_i log(2 cosh h_i), for samples s (n, d): the part that depends on theta beyond the known moments."""
        J, b = self._inside(theta)
        h = s @ J + b
        return np.asarray(-np.logaddexp(h, -h).sum(1))

    def known(self, theta: Array) -> Array:
        return self._known


def fit_taylor(component: Component, edges: IntArray, ridge: float, *, fields: bool = False) -> LikelihoodFit:
    """The paper's gradient of the composite likelihood, by gradient steps.

    tanh(h) = h leaves 2 E[s_i s_j] - sum_k J_ik E[s_i^2 s_j s_k] - sum_k J_jk E[s_j^2 s_i s_k] for J_ij: a polynomial of order
    four in s. With s_i^2 = 1 its moments of order four are pair moments, which are far less noisy than extracted fourth
    cumulants (the paper's), and are used here. The expansion fails for strong couplings: a bias that no sample size removes.
    """
    known = SpinMoments.of(component, fields)
    means = known.mean if fields else np.zeros(0)
    covariance = known.second - np.outer(known.mean, known.mean)
    spins = Component(component.name, component.feature_names, known.mean.copy(), covariance)
    likelihood = CompositeLikelihood(len(known.mean), edges, known.second[edges[:, 0], edges[:, 1]], means)
    return fit_likelihood(
        spins,
        likelihood,
        start=np.zeros(len(edges) + len(means)),
        degree=1,
        approximation="taylor",
        interval=(-1.0, 1.0),
        ridge=ridge,
        confine=lambda theta: np.clip(theta, -MAX_COUPLING, MAX_COUPLING),
        max_iter=500,
        tol=1e-5,
    )


def sgd_from_spins(
    S: Array,
    edges: IntArray,
    ridge: float,
    *,
    fields: bool = False,
    expanded: bool = False,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """Steps along the exact gradient of the composite likelihood of true spins S (n, d); expanded : the paper's gradient."""
    if expanded:
        near = Neighbourhoods(S.shape[1], edges, fields=fields)
        return sgd_from_predictions(
            S,
            near,
            near.of_rows(S).mean(0),
            ridge,
            expanded=True,
            batch_size=batch_size,
            n_steps=n_steps,
            random_state=random_state,
        )

    def gradient(theta: Array, rows: IntArray) -> Array:
        return composite_likelihood(S[rows], edges, theta)[1] + ridge * theta

    return _run(gradient, len(S), S.shape[1], edges, ridge, fields, batch_size, n_steps, random_state)


def sgd_from_predictions(
    rows: Array,
    near: Neighbourhoods,
    moments: Array,
    ridge: float,
    *,
    expanded: bool = False,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """The same for hidden spins: rows (n, d) predict them, moments (F,) are those extracted from all rows.

    The gradient is linear in the moments of products of spins. A batch estimates them by the products of its predictions,
    moved by one constant vector so that the mean over all batches is the extracted moments: unbiased for these, and with
    far less noise than cumulants of 100 rows. expanded : the paper's Taylor gradient, else the exact one.
    """
    n = len(rows)
    parts = range(0, n, _ROWS_AT_ONCE)
    shift = moments - np.sum([near.of_rows(rows[i : i + _ROWS_AT_ONCE]).sum(0) for i in parts], axis=0) / n

    def gradient(theta: Array, chosen: IntArray) -> Array:
        seen = near.of_rows(rows[chosen]).mean(0) + shift
        return near.loss(theta, seen, near.laws(seen, positive=False), expanded=expanded)[1] + ridge * theta

    return _run(gradient, n, near.n_nodes, near.edges, ridge, near.fields, batch_size, n_steps, random_state)


def _run(
    gradient: Callable[[Array, IntArray], Array],
    n_rows: int,
    n_nodes: int,
    edges: IntArray,
    ridge: float,
    fields: bool,
    batch_size: int,
    n_steps: int,
    random_state: int,
) -> SGDResult:
    """Curvature: node i adds at most E[x x'], x its neighbours (and 1), of trace deg_i (+ 1); an edge has two nodes."""
    degree = max((len(n) for n in neighbours(n_nodes, edges)), default=0) + fields
    p = len(edges) + fields * n_nodes
    return sgd(
        gradient,
        np.zeros(p),
        n_rows,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, degree + ridge) if degree else 0.1,
        projection=lambda theta: np.clip(theta, -MAX_COUPLING, MAX_COUPLING),
        random_state=random_state,
    )
