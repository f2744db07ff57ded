"""Ising models from moments: P(s) = exp(sum_ij J_ij s_i s_j + sum_i b_i s_i) / Z, spins s in {-1, 1}^d on a graph.

GRAPHS. Edges (m, 2) of node numbers, in the order of the couplings.

SUMS over all states, P(s) = exp(sum_ij J_ij s_i s_j) / Z(J): log Z, moments, samples. `Elimination` adds one node at a time
(the transfer matrix of a narrow grid; any graph with a small frontier or of few nodes), `Gibbs` keeps parallel Markov chains
(the rest). Without fields every odd moment is zero; fields are couplings to a ghost (:func:`with_ghost`), means the pair
moments with it.

FITS. Two, of couplings theta to moments of a component, with s^2 = 1 put in:

    maximum likelihood       max  m'theta - log Z(theta) - ridge |theta|^2 / 2,     m = E[s_i s_j] on the edges,
    joint                    min  |W (C(theta) - C) W'|^2 / 2 + ridge |theta|^2,    C(theta) = E[s s'], W the view white:

the likelihood depends on the data through m alone, so that nothing has to be expanded; the joint fit sees all pairs, in the
coordinates in which their errors are even. Derivatives of moments are covariances of products of spins,

    d E[s_a s_b] / d J_ij = Cov(s_a s_b, s_i s_j) = (1 + E[s_a s_b]) (E[s_i s_j | s_a = s_b = 1] - E[s_i s_j]),

so that the step from either solution to that of other moments is one linear equation (:meth:`Target.step`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import least_squares

from richcomponents.algebra import Array, IntArray
from richcomponents.data.table import dense
from richcomponents.learning.solvers import minimise


def grid_edges(rows: int, columns: int, periodic: bool = True) -> IntArray:
    """Edges (m, 2) of a rows x columns grid whose node (r, c) has number r * columns + c.

    periodic : the last row is joined to the first and the last column to the first. Horizontal edges come first.

    >>> len(grid_edges(5, 5)), len(grid_edges(2, 3, periodic=False))
    (50, 7)
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"a grid needs at least one row and one column, got {rows} x {columns}")
    edges: dict[tuple[int, int], None] = {}
    for down in (0, 1):
        for r in range(rows):
            for c in range(columns):
                r2, c2 = r + down, c + 1 - down
                if not periodic and (r2 == rows or c2 == columns):
                    continue
                one, two = r * columns + c, (r2 % rows) * columns + c2 % columns
                if one != two and (two, one) not in edges:  # a side of length 1 or 2 does not wrap twice
                    edges[one, two] = None
    return np.array(list(edges), dtype=np.int64).reshape(-1, 2)


def neighbours(n_nodes: int, edges: IntArray) -> list[dict[int, int]]:
    """For each node, neighbour -> number of the edge."""
    out: list[dict[int, int]] = [{} for _ in range(n_nodes)]
    for e, (i, j) in enumerate(edges.tolist()):
        out[i][j] = out[j][i] = e
    return out


def coupling_matrix(n_nodes: int, edges: IntArray, couplings: Array) -> Array:
    """Symmetric (d, d), zero where there is no edge."""
    matrix = np.zeros((n_nodes, n_nodes))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = couplings
    return matrix


def with_ghost(n_nodes: int, edges: IntArray) -> IntArray:
    """The edges, then one from every node i to a ghost, node n_nodes: (m + d, 2).

    A field h_i is the coupling of s_i to a spin that is always 1. Leaving that spin free changes nothing that is seen:
    states come in pairs s, -s, and s times the ghost has the law with fields. So E[s_i] is the pair moment with the ghost,
    and every sum over states without fields does for fields too.
    """
    nodes = np.arange(n_nodes)
    return np.vstack([edges, np.column_stack([nodes, np.full(n_nodes, n_nodes)])]).astype(np.int64)


def as_edges(edges: Any, names: Sequence[str]) -> IntArray:
    """The `edges=` argument as an array (m, 2) of different pairs of column numbers, smaller first."""
    d = len(names)
    if edges is None:
        return np.column_stack(np.triu_indices(d, 1)).astype(np.int64)
    if isinstance(edges, (str, bytes)) or not hasattr(edges, "__iter__"):
        raise ValueError(
            f"edges must be None, pairs of nodes, or an adjacency matrix of shape ({d}, {d}), got {edges!r}"
        )
    rows = list(dense(edges) if sparse.issparse(edges) else edges)
    shape: tuple[int, ...] = getattr(edges, "shape", ())
    listed = len(rows) == d > 2 and all(np.shape(row) == (d,) for row in rows)
    if listed or (len(shape) == 2 and (shape[1] != 2 or shape == (d, d))):
        return _from_adjacency(np.asarray(rows), d)
    numbers: dict[Any, int] = {i: i for i in range(d)} | {str(name): i for i, name in enumerate(names)}
    pairs: dict[tuple[int, int], None] = {}
    for pair in rows:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"an edge is a pair of nodes, got {pair!r}")
        ends = pair if isinstance(pair, (tuple, list)) else np.asarray(pair).tolist()
        for end in ends:
            if end not in numbers:
                raise ValueError(
                    f"edge {tuple(ends)!r} has an unknown node {end!r}: a node is a column number or a column name, "
                    f"0 to {d - 1} or {', '.join(map(str, names))}"
                )
        i, j = sorted(numbers[end] for end in ends)
        if i == j:
            raise ValueError(f"edges holds a self-loop, {tuple(ends)!r}: s_i s_i = 1 says nothing, remove it")
        pairs[i, j] = None
    return np.array(list(pairs), dtype=np.int64).reshape(-1, 2)


def _from_adjacency(matrix: Array, d: int) -> IntArray:
    if matrix.shape != (d, d):
        raise ValueError(f"the adjacency matrix has shape {matrix.shape}; the component has {d} columns, so ({d}, {d})")
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise ValueError("the adjacency matrix holds missing or infinite values: use 0 for no edge")
    joined = matrix != 0
    if joined.diagonal().any():
        loops = np.flatnonzero(joined.diagonal()).tolist()[:5]
        raise ValueError(f"the adjacency matrix has self-loops at nodes {loops}: set its diagonal to zero")
    if (joined != joined.T).any():
        i, j = np.argwhere(joined != joined.T)[0]
        raise ValueError(f"the adjacency matrix is not symmetric (entries {i}, {j}): use matrix | matrix.T")
    return np.argwhere(np.triu(joined)).astype(np.int64)


# ---- sums over all states

MAX_WIDTH = 13
"""Nodes in the frontier up to which sums are exact."""


@lru_cache(maxsize=32)
def all_states(width: int) -> Array:
    """All spin vectors (2^width, width); the first spin varies slowest, +1 comes before -1."""
    bits = (np.arange(2**width)[:, None] >> np.arange(width - 1, -1, -1)) & 1
    out: Array = np.asarray(1 - 2 * bits, dtype=np.float64)
    out.setflags(write=False)
    return out


@dataclass(frozen=True)
class _Step:
    """Add `node` to the frontier `before`; it has edges `edges` to the frontier's `positions`; then drop `removed`."""

    node: int
    before: tuple[int, ...]
    positions: tuple[int, ...]
    edges: tuple[int, ...]
    removed: tuple[int, ...]


class Elimination:
    """Exact sums over all states by adding one node at a time and summing out nodes whose edges are all in.

    On a narrow grid this is the transfer matrix, factored into single spins. Cost: d 2^width, where width is the largest
    frontier over the order of the nodes (the best of several greedy orders).

    >>> Elimination(25, grid_edges(5, 5)).width <= 11
    True
    """

    def __init__(self, n_nodes: int, edges: IntArray) -> None:
        self.n_nodes, self.edges = n_nodes, edges
        near = neighbours(n_nodes, edges)
        by_degree = sorted(range(n_nodes), key=lambda v: len(near[v]))
        starts = by_degree[:8] + by_degree[-1:]  # the last: a node joined to all (a ghost) must come first
        plans = [_plan(near, start) for start in starts]
        self._steps = min(plans, key=lambda plan: sum(2.0 ** len(s.before) for s in plan), default=())
        self.width = max((len(s.before) + 1 for s in self._steps), default=0)

    def log_partition(self, couplings: Array) -> tuple[float, Array]:
        """log Z(J) and its gradient, the pair moments E[s_i s_j] on the edges (m,)."""
        log_z, _, pairs = self._run(couplings, np.zeros((1, 0), dtype=np.int64))
        return float(log_z[0]), pairs[0]

    def correlations(self, couplings: Array) -> Array:
        """E[s s'] (d, d). Row a is E[s | s_a = 1], since states come in pairs s, -s of equal probability."""
        C = self._run(couplings, np.arange(self.n_nodes)[:, None])[1]
        return np.asarray((C + C.T) / 2)

    def covariances(self, couplings: Array, pairs: IntArray) -> Array:
        """Cov(s_a s_b, s_i s_j) of pairs (q, 2) with all edges, (q, m); P(s_a = s_b = 1) = (1 + E[s_a s_b]) / 4."""
        log_z, middle = self.log_partition(couplings)
        held, _, given = self._run(couplings, pairs)
        return np.asarray(4 * np.exp(held - log_z)[:, None] * (given - middle))

    def sample(self, couplings: Array, n: int, rng: np.random.Generator) -> Array:
        """Independent samples (n, d)."""
        out, uniform = np.empty((n, self.n_nodes)), rng.uniform(size=(self.n_nodes, n))
        _, messages = self._messages(couplings, np.zeros((1, 0), dtype=np.int64))
        for draw, (step, _, weights) in zip(uniform, messages, strict=True):
            up = weights[0, :, 0] / weights[0].sum(axis=1)
            powers = 2 ** np.arange(len(step.before) - 1, -1, -1)
            state = (out[:, list(step.before)] < 0) @ powers
            out[:, step.node] = np.where(draw < up[state.astype(np.int64)], 1.0, -1.0)
        return out

    def _run(self, couplings: Array, held: IntArray) -> tuple[Array, Array, Array]:
        """log Z (q,), E[s] (q, d) and E[s_i s_j] (q, m), each with some spins held at +1: their numbers, (q, k)."""
        q, each = len(held), max(1, 2**22 // (self.n_nodes * 2**self.width))
        log_z, single, pairs = np.zeros(q), np.zeros((q, self.n_nodes)), np.zeros((q, len(self.edges)))
        for some in (slice(i, i + each) for i in range(0, q, each)):
            log_z[some], messages = self._messages(couplings, held[some])
            for step, before, after in messages:
                total = np.sum(before * after.sum(axis=-1), axis=1, keepdims=True)
                joint = before * (after[..., 0] - after[..., 1]) / total
                single[some, step.node] = joint.sum(axis=1)
                pairs[some, step.edges] = joint @ all_states(len(step.before))[:, step.positions]
        return log_z, single, pairs

    def _messages(self, couplings: Array, held: IntArray) -> tuple[Array, list[tuple[_Step, Array, Array]]]:
        """log Z (q,), and of each step the weights of the states of its frontier (q, 2^width) by what came before, and of these
        and the new spin (q, 2^width, 2) by what comes from there on; some spins held at +1: their numbers, (q, k)."""
        q = len(held)
        log_z, table, forward = np.zeros(q), np.ones((q, 1)), []
        for step in self._steps:
            h = all_states(len(step.before))[:, list(step.positions)] @ couplings[list(step.edges)]  # on the new spin
            largest = float(np.abs(h).max())
            allowed = np.stack([np.ones(q), np.all(held != step.node, axis=1)], axis=-1)
            forward.append((step, table, np.exp(np.stack([h, -h], axis=1) - largest) * allowed[:, None]))
            table = (table[..., None] * forward[-1][2]).reshape(q, -1)
            for position in reversed(step.removed):
                table = table.reshape(q, 2**position, 2, -1).sum(axis=2).reshape(q, -1)
            total = table.sum(axis=1)
            table = table / total[:, None]
            log_z += np.log(total) + largest
        messages, beta = [], np.ones((q, 1))
        for step, table, factor in reversed(forward):
            for position in step.removed:
                beta = np.repeat(beta.reshape(q, 2**position, 1, -1), 2, axis=2).reshape(q, -1)
            messages.append((step, table, beta.reshape(q, -1, 2) * factor))
            beta = messages[-1][2].sum(axis=-1)
            beta = beta / beta.max(axis=1, keepdims=True)
        return log_z, messages[::-1]


def _plan(near: list[dict[int, int]], start: int) -> tuple[_Step, ...]:
    """Nodes from a start on: next comes the node that closes most of the frontier; among equals, the one waited for longest."""
    left = [len(n) for n in near]  # neighbours not in yet
    outside, waiting = dict.fromkeys(range(len(near))), {start: 0}
    frontier, steps = list[int](), list[_Step]()

    def place(v: int) -> tuple[int, int]:
        return -sum(left[u] == 1 and u not in outside for u in near[v]) - (left[v] == 0), waiting[v]

    while outside:
        v = min(waiting, key=place) if waiting else min(outside, key=lambda v: len(near[v]))
        waiting.pop(v, None)
        del outside[v]
        linked = [(p, near[v][u]) for p, u in enumerate(frontier) if u in near[v]]
        for u in near[v]:
            left[u] -= 1
            if u in outside:
                waiting.setdefault(u, len(steps))
        full = [*frontier, v]
        removed = tuple(p for p, u in enumerate(full) if left[u] == 0)
        steps.append(_Step(v, tuple(frontier), tuple(p for p, _ in linked), tuple(e for _, e in linked), removed))
        frontier = [u for p, u in enumerate(full) if p not in removed]
    return tuple(steps)


class Gibbs:
    """Parallel Gibbs chains that keep their states between calls; nodes of one colour are updated together.

    chains : how many; state (chains, d).
    """

    def __init__(self, n_nodes: int, edges: IntArray, *, chains: int = 2000, seed: int = 0) -> None:
        self.n_nodes, self.edges = n_nodes, edges
        self._rng = np.random.default_rng(seed)
        self.state: Array = self._rng.choice([-1.0, 1.0], size=(chains, n_nodes))
        near = neighbours(n_nodes, edges)
        colour: list[int] = [-1] * n_nodes
        for v in sorted(range(n_nodes), key=lambda v: -len(near[v])):
            taken = {colour[u] for u in near[v]}
            colour[v] = next(c for c in range(n_nodes) if c not in taken)
        self._colours = [np.flatnonzero(np.array(colour) == c) for c in range(max(colour, default=-1) + 1)]

    def sweep(self, couplings: Array, times: int = 1) -> Array:
        """Update every spin `times` times; the new state (chains, d)."""
        matrix = coupling_matrix(self.n_nodes, self.edges, couplings)
        for _ in range(times):
            for nodes in self._colours:
                h = self.state @ matrix[:, nodes]
                up = self._rng.uniform(size=h.shape) < 0.5 * (1 + np.tanh(h))
                self.state[:, nodes] = np.where(up, 1.0, -1.0)
        return self.state

    def correlations(self, _: Array) -> Array:
        """E[s s'] (d, d), where the chains are."""
        return np.asarray(self.state.T @ self.state / len(self.state))

    def covariances(self, couplings: Array, pairs: IntArray) -> Array:
        """Cov(s_a s_b, s_i s_j) of pairs (q, 2) with all edges, (q, m), from some sweeps on."""
        state = np.vstack([self.sweep(couplings, 3).copy() for _ in range(10)])
        total = np.zeros((len(pairs) + 1, len(self.edges) + 1))
        for part in np.array_split(state, 40):
            one = np.ones((len(part), 1))
            edges, others = (np.hstack([part[:, e[:, 0]] * part[:, e[:, 1]], one]) for e in (self.edges, pairs))
            total += others.T @ edges / len(state)
        return np.asarray(total[:-1, :-1] - total[:-1, -1:] * total[-1:, :-1])

    def sample(self, couplings: Array, n: int, rng: np.random.Generator, *, burn_in: int = 200) -> Array:
        """Nearly independent samples (n, d): fresh chains, `burn_in` sweeps while the couplings are turned on."""
        fresh = Gibbs(self.n_nodes, self.edges, chains=n, seed=int(rng.integers(2**31)))
        for k in range(1, burn_in + 1):
            fresh.sweep(couplings * min(1.0, 2 * k / burn_in))
        return fresh.state


def moment_model(n_nodes: int, edges: IntArray, *, seed: int = 0) -> Elimination | Gibbs:
    """The best way to sum over the states of this graph: exactly for a small frontier, else by Gibbs chains.

    >>> type(moment_model(25, grid_edges(5, 5))).__name__, type(moment_model(100, grid_edges(10, 10))).__name__
    ('Elimination', 'Gibbs')
    """
    exact = Elimination(n_nodes, edges)
    return exact if exact.width <= MAX_WIDTH else Gibbs(n_nodes, edges, seed=seed)


# ---- moments


def second_moments(covariance: Array, mean: Array | None = None) -> Array:
    """E[s s'] of a component, or of a stack of them, from covariances (..., d, d); with fields also means (..., d), and the
    last spin of (..., d + 1, d + 1) is the ghost, whose pair moments are the means."""
    if mean is None:
        return covariance
    mean = np.broadcast_to(mean, covariance.shape[:-1])[..., None]
    second, one = covariance + mean * mean.mT, np.ones_like(mean[..., :1, :])
    return np.concatenate([np.concatenate([second, mean], -1), np.concatenate([mean.mT, one], -1)], -2)


def unit_diagonal(second: Array) -> Array:
    """The same scaled to spins, whose squares are 1; what does not vary goes with nothing."""
    size = np.sqrt(np.maximum(np.einsum("...ii->...i", second), 0.0))
    inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    out = np.clip(second * inverse[..., None] * inverse[..., None, :], -1.0, 1.0)
    np.einsum("...ii->...i", out)[...] = 1.0
    return np.asarray(out)


# ---- fits

MAX_COUPLING = 4.0
"""Couplings are kept within this size: at 4 a pair of spins agrees with probability .9997."""

NEWTON_EDGES = 1500
"""Edges up to which matrices (m, m) of couplings are formed."""


@dataclass(frozen=True)
class Target:
    """What a fit of theta compares, of the states of a model and of a component.

    white : (k, d), coordinates in which all entries of E[s s'], a ghost's last, have errors of the same size; None: pair
    moments on the edges, maximum likelihood.
    """

    model: Elimination | Gibbs
    white: Array | None
    ridge: float

    def of_moments(self, second: Array) -> Array:
        """(..., entries), of E[s s'], the ghost included."""
        if self.white is None:
            return np.asarray(unit_diagonal(second)[(..., *self.model.edges.T)])
        return _entries(self.white @ second @ self.white.T)

    def jacobian(self, theta: Array) -> Array:
        """Its derivative by theta, (entries, m): covariances of products of two spins."""
        model, W = self.model, self.white
        if W is None:
            return model.covariances(theta, model.edges)
        rows, columns = np.tril_indices(model.n_nodes, -1)
        slope = np.zeros((len(theta), model.n_nodes, model.n_nodes))
        slope[:, rows, columns] = slope[:, columns, rows] = model.covariances(theta, np.stack([rows, columns], 1)).T
        return _entries(W @ slope @ W.T).T

    def step(self, jacobian: Array, change: Array, back: Array | float = 0.0, least: float = 0.0) -> Array:
        """How the solution moves (..., m), to first order, when what is compared moves (..., entries); back : the slope of the
        penalty, where theta is no solution yet; least : of the curvature."""
        pull = np.eye(len(jacobian)) if self.white is None else jacobian.T
        curvature = pull @ jacobian + (self.ridge + least) * np.eye(jacobian.shape[1])
        return np.asarray(np.linalg.solve(curvature, (change @ pull.T - back).T).T)

    def fit(self, second: Array) -> Array:
        """Theta (m,), within bounds, since extracted moments need not belong to any distribution of spins."""
        model, goal = self.model, self.of_moments(second)
        if not len(model.edges):
            return np.zeros(0)
        if self.white is None:
            start = 0.5 * np.arctanh(np.clip(goal, -0.8, 0.8))
        else:
            start = replace(self, white=None, ridge=max(3 * self.ridge, 0.03)).fit(second)
        if isinstance(model, Gibbs):
            return self._stochastic(model, goal, start)
        if self.white is None:

            def loss(theta: Array) -> tuple[float, Array]:
                log_z, pairs = model.log_partition(theta)
                slope = pairs - goal + self.ridge * theta
                return log_z - float((goal - self.ridge / 2 * theta) @ theta), slope

            return bounded_minimum(loss, start)
        root = self.ridge**0.5

        def residual(theta: Array) -> Array:
            return np.append(self.of_moments(model.correlations(theta)) - goal, root * theta)

        def slope(theta: Array) -> Array:
            return np.vstack([self.jacobian(theta), root * np.eye(len(theta))])

        largest = np.nextafter(MAX_COUPLING, np.inf)  # a start at the bound is allowed
        return np.asarray(least_squares(residual, start, slope, (-largest, largest), ftol=1e-5, max_nfev=30).x)

    def _stochastic(self, model: Gibbs, goal: Array, start: Array) -> Array:
        """Newton steps from chains that follow the couplings: steps shrink like 1/t, the last half is averaged."""
        theta, rounds, small = start.copy(), 90, len(start) <= NEWTON_EDGES
        for k in range(1, 21):
            model.sweep(theta * k / 20)
        total, settled, B = np.zeros_like(theta), rounds // 3, np.zeros((0, 0))
        for k in range(rounds):
            model.sweep(theta, 3)
            gap, back = goal - self.of_moments(model.correlations(theta)), self.ridge * theta
            if small:
                B = self.jacobian(theta) if k % 30 == 0 else B
                step = self.step(B, gap, back, least=0.02)
            else:
                step = (gap - back) / (1.05 + self.ridge - (goal - gap) ** 2)  # by the variances alone
            pace = 0.5 if k < settled else 0.5 * settled / k
            theta = np.clip(theta + pace * np.clip(step, -0.5, 0.5), -MAX_COUPLING, MAX_COUPLING)
            if k >= rounds // 2:
                total += theta
        return np.asarray(total / (rounds - rounds // 2))


def _entries(white: Array) -> Array:
    """The lower triangle of (..., k, k); entries of the diagonal are twice as noisy."""
    rows, columns = np.tril_indices(white.shape[-1])
    return np.asarray(white[..., rows, columns] * np.where(rows == columns, 0.5**0.5, 1.0))


def bounded_minimum(loss: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """The couplings, within +-MAX_COUPLING, of least loss (value, gradient), by L-BFGS."""
    if not len(start):
        return start
    bounds = [(-MAX_COUPLING, MAX_COUPLING)] * len(start)
    return minimise(loss, start, bounds=bounds, maxiter=500, ftol=1e-13, gtol=1e-7)
