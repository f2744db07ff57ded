"""The composite (pseudo-) likelihood of spins, -E sum_i log P(s_i | rest) = E sum_i log(2 cosh h_i) - s_i h_i.

h_i = b_i + sum_j J_ij s_j over the neighbours j of i, with the field b_i = 0 unless fields are asked for. Parameters
theta = (J, b): couplings (m,) in the order of the edges, then one field per node (d,), or the couplings alone.

Two ways to its gradient: from samples of the spins, and from moments of up to four spins, exactly (:class:`Neighbourhoods`).
The third, the paper's Taylor expansion, is :mod:`richcomponents.paper.ising`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising.fits import bounded_minimum
from richcomponents.learning.ising.graph import coupling_matrix, neighbours
from richcomponents.learning.ising.moments import SpinMoments
from richcomponents.learning.ising.sums import all_states

__all__ = [
    "Neighbourhoods",
    "composite_from_component",
    "composite_likelihood",
    "fit_composite",
]

MAX_NEIGHBOURS = 4
"""Moments of more spins than this are not extracted."""


# ---- from samples


def composite_likelihood(S: Array, edges: IntArray, theta: Array) -> tuple[float, Array]:
    """Mean negative composite log-likelihood of samples S (n, d), and its gradient in theta."""
    n, d = S.shape
    J, fields = theta[: len(edges)], theta[len(edges) :]
    h = S @ coupling_matrix(d, edges, J) + (fields if len(fields) else 0.0)
    value = float(np.mean(np.sum(np.logaddexp(h, -h) - S * h, axis=1)))
    gap = np.tanh(h) - S
    slope = gap.T @ S / n  # (i, j): derivative by J_ij in node i's term
    by_field = gap.mean(0) if len(fields) else fields
    return value, np.concatenate([slope[edges[:, 0], edges[:, 1]] + slope[edges[:, 1], edges[:, 0]], by_field])


def fit_composite(S: Array, edges: IntArray, ridge: float, *, fields: bool = False) -> Array:
    """theta of largest composite likelihood of samples S (n, d), minus ridge |theta|^2 / 2."""
    start = np.zeros(len(edges) + fields * S.shape[1])
    return bounded_minimum(_penalised(lambda theta: composite_likelihood(S, edges, theta), ridge), start)


def _penalised(loss: Callable[[Array], tuple[float, Array]], ridge: float) -> Callable[[Array], tuple[float, Array]]:
    def both(theta: Array) -> tuple[float, Array]:
        value, gradient = loss(theta)
        return value + ridge / 2 * float(theta @ theta), gradient + ridge * theta

    return both


# ---- from moments, exactly


@dataclass(frozen=True)
class _Group:
    """Nodes (g,) with the same number k of neighbours (g, k) along edges (g, k).

    parts : sets of neighbours whose moments give the law of the neighbours, numbers of those moments (g, parts);
    signs : (parts, 2^k), their products in every state; own : numbers (g, k) of E[s_i s_j]; alone : (g,) of E[s_i].
    """

    nodes: IntArray
    edges: IntArray
    states: Array
    moments: IntArray
    signs: Array
    own: IntArray
    alone: IntArray


class Neighbourhoods:
    """The composite likelihood as a function of moments of up to four spins; every node has at most four neighbours.

    With s^2 = 1 the law of the k neighbours of i is p(s) = 2^-k (1 + sum_A E[s_A] s_A), s_A the product over a set A of them:
    nothing is expanded. Without fields only sets of even size count.

    products : the tuples of nodes whose moments are needed; moments are vectors (F,) in this order.
    """

    def __init__(self, n_nodes: int, edges: IntArray, *, fields: bool = False) -> None:
        self.n_nodes, self.edges, self.fields = n_nodes, edges, fields
        near = neighbours(n_nodes, edges)
        degree = max(map(len, near), default=0)
        if degree > MAX_NEIGHBOURS:
            raise ValueError(
                f"the composite likelihood of a component needs moments of every order up to the number of neighbours, "
                f"and a node has {degree} (at most {MAX_NEIGHBOURS} are possible): use method='likelihood', or fit_clean on "
                "true spins"
            )
        numbers: dict[tuple[int, ...], int] = {}

        def number(nodes: tuple[int, ...]) -> int:
            return numbers.setdefault(tuple(sorted(nodes)), len(numbers))

        self._groups: list[_Group] = []
        for k in sorted({len(n) for n in near}):
            nodes = [i for i, n in enumerate(near) if len(n) == k]
            sets = [A for t in range(1, k + 1) if fields or t % 2 == 0 for A in combinations(range(k), t)]
            states = all_states(k)
            around = [list(near[i]) for i in nodes]
            self._groups.append(
                _Group(
                    np.array(nodes, dtype=np.int64),
                    np.array([list(near[i].values()) for i in nodes], dtype=np.int64).reshape(-1, k),
                    states,
                    np.array([[number(tuple(a[j] for j in A)) for A in sets] for a in around], dtype=np.int64),
                    np.array([states[:, list(A)].prod(1) for A in sets]).reshape(len(sets), len(states)),
                    np.array([[number((i, j)) for j in a] for i, a in zip(nodes, around, strict=True)], dtype=np.int64),
                    np.array([number((i,)) for i in nodes if fields], dtype=np.int64),
                )
            )
        self.products = list(numbers)

    def of_rows(self, S: Array) -> Array:
        """The products for each row of S (n, d): (n, F)."""
        return np.stack([S[:, list(q)].prod(1) for q in self.products], axis=1) if self.products else S[:, :0]

    def laws(self, moments: Array, *, positive: bool = True) -> list[Array]:
        """The probabilities (g, 2^k) of the neighbours' states, for each group of nodes.

        positive : negative ones, which extracted moments may give, are set to zero.
        """
        out = []
        for group in self._groups:
            p = (1 + moments[group.moments.reshape(len(group.nodes), -1)] @ group.signs) / len(group.states)
            out.append(np.maximum(p, 0) / np.maximum(p, 0).sum(1, keepdims=True) if positive else p)
        return out

    def loss(self, theta: Array, moments: Array, laws: list[Array], *, expanded: bool = False) -> tuple[float, Array]:
        """The negative composite log-likelihood and its gradient in theta; expanded : with tanh(h) = h, the paper's."""
        m = len(self.edges)
        value, gradient = 0.0, np.zeros(len(theta))
        for group, p in zip(self._groups, laws, strict=True):
            J = theta[group.edges]
            h = J @ group.states.T
            b = theta[m + group.nodes] if self.fields else np.zeros(len(group.nodes))
            h = h + b[:, None]
            potential, response = (h**2 / 2, h) if expanded else (np.logaddexp(h, -h), np.tanh(h))
            own = moments[group.own.reshape(J.shape)]
            value += float(np.sum(p * potential) - np.sum(J * own))
            np.add.at(gradient, group.edges, (p * response) @ group.states - own)
            if self.fields:
                value -= float(b @ moments[group.alone])
                gradient[m + group.nodes] += np.sum(p * response, axis=1) - moments[group.alone]
        return value, gradient

    @property
    def n_parameters(self) -> int:
        return len(self.edges) + self.fields * self.n_nodes


def composite_from_component(component: Component, edges: IntArray, ridge: float, *, fields: bool = False) -> Array:
    """theta of largest composite likelihood, from extracted moments; every node has at most four neighbours."""
    near = Neighbourhoods(len(component.mean), edges, fields=fields)
    moments = SpinMoments.of(component, fields).products(near.products)
    laws = near.laws(moments)
    loss = _penalised(lambda theta: near.loss(theta, moments, laws), ridge)
    return bounded_minimum(loss, np.zeros(near.n_parameters))
