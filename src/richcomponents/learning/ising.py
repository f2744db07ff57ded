"""Ising models from moments: P(s) = exp(sum_ij J_ij s_i s_j + sum_i b_i s_i) / Z, spins s in {-1, 1}^d on a graph.

GRAPHS. Edges (m, 2) of node numbers, in the order of the couplings.

SUMS over all states, P(s) = exp(sum_ij J_ij s_i s_j) / Z(J): log Z, moments, samples. `Elimination` adds one node at a time
(the transfer matrix of a narrow grid; any graph with a small frontier or of few nodes), `Gibbs` keeps parallel Markov chains
(the rest). Without fields every odd moment is zero; fields are couplings to a ghost (:func:`with_ghost`), means the pair
moments with it.

MOMENTS. What a component says about spins, with s^2 = 1 put in.

FITS. Couplings from pair moments: maximum likelihood, and least squares on all second moments of a view. The likelihood depends
on the data only through E[s_i s_j] on the edges, and s^2 = 1: nothing has to be expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
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
    found: dict[tuple[int, int], None] = {}
    for down in (0, 1):
        for r in range(rows):
            for c in range(columns):
                r2, c2 = r + down, c + 1 - down
                if not periodic and (r2 == rows or c2 == columns):
                    continue
                one, two = r * columns + c, (r2 % rows) * columns + c2 % columns
                if one != two and (two, one) not in found:  # a side of length 1 or 2 does not wrap twice
                    found[one, two] = None
    return np.array(list(found), dtype=np.int64).reshape(-1, 2)


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
    square = getattr(edges, "shape", None)
    if square is not None and len(square) == 2 and (square[1] != 2 or tuple(square) == (d, d)):
        return _from_adjacency(np.asarray(dense(edges) if sparse.issparse(edges) else edges), d)
    if isinstance(edges, (str, bytes)) or not hasattr(edges, "__iter__"):
        raise ValueError(
            f"edges must be None, pairs of nodes, or an adjacency matrix of shape ({d}, {d}), got {edges!r}"
        )
    pairs = list(edges)
    if len(pairs) == d > 2 and all(hasattr(p, "__len__") and not isinstance(p, str) and len(p) == d for p in pairs):
        return _from_adjacency(np.asarray(pairs), d)
    numbers = {str(name): i for i, name in enumerate(names)}
    found: dict[tuple[int, int], None] = {}
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"an edge is a pair of nodes, got {pair!r}")
        i, j = (_node(end, numbers, d, pair) for end in pair)
        if i == j:
            raise ValueError(f"edges holds a self-loop, {tuple(pair)!r}: s_i s_i = 1 says nothing, remove it")
        found[min(i, j), max(i, j)] = None
    return np.array(list(found), dtype=np.int64).reshape(-1, 2)


def _node(end: Any, numbers: dict[str, int], d: int, pair: Any) -> int:
    if isinstance(end, str):
        if end not in numbers:
            raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end!r}; the columns are {', '.join(numbers)}")
        return numbers[end]
    if isinstance(end, (bool, np.bool_)) or not isinstance(end, (int, np.integer)):
        raise ValueError(f"edge {tuple(pair)!r}: a node is a column number or a column name, got {end!r}")
    if not 0 <= end < d:
        raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end}; the component has columns 0 to {d - 1}")
    return int(end)


def _from_adjacency(matrix: Array, d: int) -> IntArray:
    if matrix.shape != (d, d):
        raise ValueError(f"the adjacency matrix has shape {matrix.shape}; the component has {d} columns, so ({d}, {d})")
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise ValueError("the adjacency matrix holds missing or infinite values: use 0 for no edge")
    present = matrix != 0
    loops = np.flatnonzero(np.diag(present))
    if len(loops):
        raise ValueError(f"the adjacency matrix has self-loops at nodes {loops.tolist()[:5]}: set its diagonal to zero")
    if not np.array_equal(present, present.T):
        i, j = np.argwhere(present != present.T)[0]
        raise ValueError(f"the adjacency matrix is not symmetric (entries {i}, {j}): use matrix | matrix.T")
    return np.argwhere(np.triu(present)).astype(np.int64)


MAX_WIDTH = 14
"""Nodes in the frontier up to which `moment_model` sums exactly."""

MAX_NODES = 20
"""Nodes up to which it sums exactly, whatever the graph: 2^20 states."""

BATCH_BYTES = 150_000_000
"""Memory for intermediate arrays."""


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
        self._steps = _best_plan(n_nodes, edges)
        self.width = max((len(s.before) + 1 for s in self._steps), default=0)

    def log_partition(self, couplings: Array) -> tuple[float, Array]:
        """log Z(J) and its gradient, the pair moments E[s_i s_j] on the edges (m,)."""
        free = np.ones((1, self.n_nodes, 2))
        log_z, _, pairs = self._run(couplings, free)
        return float(log_z[0]), pairs[0]

    def correlations(self, couplings: Array) -> Array:
        """E[s s'] (d, d). Row a is E[s | s_a = 1], since states come in pairs s, -s of equal probability: d sums. On a dense
        graph one sum is cheaper in which all pairs are edges, those that are missing with coupling zero."""
        d = self.n_nodes
        out = np.empty((d, d))
        if self.width > MAX_WIDTH and d - self.width < np.log2(d):
            i, j = np.triu_indices(d, 1)
            every = Elimination(d, np.column_stack([i, j]))
            np.fill_diagonal(out, 1.0)
            out[i, j] = out[j, i] = every.log_partition(coupling_matrix(d, self.edges, couplings)[i, j])[1]
            return out
        batch = max(1, int(BATCH_BYTES / (8.0 * 2 ** max(self.width, 1) * max(d, 1))))
        for start in range(0, d, batch):
            chosen = np.arange(start, min(d, start + batch))
            evidence = np.ones((len(chosen), d, 2))
            evidence[np.arange(len(chosen)), chosen, 1] = 0.0
            out[chosen] = self._run(couplings, evidence)[1]
        return np.asarray((out + out.T) / 2)

    def sample(self, couplings: Array, n: int, rng: np.random.Generator) -> Array:
        """Independent samples (n, d)."""
        evidence = np.ones((1, self.n_nodes, 2))
        factors = [self._factor(step, couplings)[0] for step in self._steps]
        messages: list[Array] = []
        beta: Array = np.ones((1, 1))
        for step, factor in zip(reversed(self._steps), reversed(factors), strict=True):
            weighted = _pull(step, beta).reshape(1, -1, 2) * factor * evidence[:, None, step.node]
            messages.append(weighted[0])
            beta = weighted.sum(-1)
            beta /= beta.max()
        out = np.empty((n, self.n_nodes))
        uniform = rng.uniform(size=(self.n_nodes, n))
        for k, (step, weights) in enumerate(zip(self._steps, reversed(messages), strict=True)):
            up = weights[:, 0] / weights.sum(1)
            powers = 2 ** np.arange(len(step.before) - 1, -1, -1)
            state = ((out[:, list(step.before)] < 0) @ powers).astype(np.int64) if step.before else np.zeros(n, int)
            out[:, step.node] = np.where(uniform[k] < up[state], 1.0, -1.0)
        return out

    def _factor(self, step: _Step, couplings: Array) -> tuple[Array, float]:
        """exp(s_v h - c), (2^width, 2), with h the field of the frontier on the new node, and c."""
        h = all_states(len(step.before))[:, list(step.positions)] @ couplings[list(step.edges)]
        largest = float(np.abs(h).max())
        return np.exp(np.stack([h, -h], axis=1) - largest), largest

    def _run(self, couplings: Array, evidence: Array) -> tuple[Array, Array, Array]:
        """log Z (B,), E[s] (B, d) and E[s_i s_j] (B, m) under weights evidence (B, d, 2) on the spins (+1, -1)."""
        n_batch = len(evidence)
        log_z = np.zeros(n_batch)
        table: Array = np.ones((n_batch, 1))
        kept: list[tuple[Array, Array]] = []
        for step in self._steps:
            factor, constant = self._factor(step, couplings)
            kept.append((table, factor))
            table = (table[:, :, None] * factor * evidence[:, None, step.node]).reshape(n_batch, -1)
            for position in reversed(step.removed):
                table = table.reshape(n_batch, 2**position, 2, -1).sum(2).reshape(n_batch, -1)
            total = table.sum(1)
            table = table / total[:, None]
            log_z += np.log(total) + constant
        single, pairs = np.zeros((n_batch, self.n_nodes)), np.zeros((n_batch, len(self.edges)))
        beta: Array = np.ones((n_batch, 1))
        for step, (alpha, factor) in zip(reversed(self._steps), reversed(kept), strict=True):
            weighted = _pull(step, beta).reshape(n_batch, -1, 2) * factor * evidence[:, None, step.node]
            joint = alpha * (weighted[:, :, 0] - weighted[:, :, 1])
            beta = weighted.sum(-1)
            joint /= np.sum(alpha * beta, axis=1)[:, None]
            single[:, step.node] = joint.sum(1)
            if step.edges:
                pairs[:, list(step.edges)] = joint @ all_states(len(step.before))[:, list(step.positions)]
            beta = beta / beta.max(1)[:, None]
        return log_z, single, pairs


def _pull(step: _Step, beta: Array) -> Array:
    """A message over the frontier after the step, as one over the frontier before it and the new node."""
    n_batch = len(beta)
    for position in step.removed:
        beta = np.repeat(beta.reshape(n_batch, 2**position, 1, -1), 2, axis=2).reshape(n_batch, -1)
    return beta


def _best_plan(n_nodes: int, edges: IntArray) -> tuple[_Step, ...]:
    near = neighbours(n_nodes, edges)
    by_degree = sorted(range(n_nodes), key=lambda v: len(near[v]))
    starts = by_degree[:8] + by_degree[-1:]  # the last: a node joined to all (a ghost) must come first
    orders = [list(range(n_nodes))] + [_greedy_order(near, v) for v in starts]
    plans = [_plan(order, near) for order in orders]
    return min(plans, key=lambda plan: sum(2.0 ** len(s.before) for s in plan))


def _greedy_order(near: list[dict[int, int]], start: int) -> list[int]:
    """Next comes the node that leaves the smallest frontier; among equals, the one waited for longest."""
    left = [len(n) for n in near]  # neighbours not in yet
    inside: set[int] = set()
    waiting: dict[int, int] = {start: 0}
    outside = set(range(len(near)))
    order: list[int] = []
    while outside:
        if not waiting:
            waiting[min(outside, key=lambda v: len(near[v]))] = len(order)

        def growth(v: int) -> tuple[int, int]:
            closed = sum(1 for u in near[v] if u in inside and left[u] == 1) + (left[v] == 0)
            return 1 - closed, waiting[v]

        v = min(waiting, key=growth)
        del waiting[v]
        outside.discard(v)
        inside.add(v)
        order.append(v)
        for u in near[v]:
            left[u] -= 1
            if u in outside:
                waiting.setdefault(u, len(order))
    return order


def _plan(order: list[int], near: list[dict[int, int]]) -> tuple[_Step, ...]:
    left = [len(n) for n in near]
    frontier: list[int] = []
    steps = []
    for v in order:
        linked = [(p, near[v][u]) for p, u in enumerate(frontier) if u in near[v]]
        for u in near[v]:
            left[u] -= 1
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

    def sample(self, couplings: Array, n: int, rng: np.random.Generator, *, burn_in: int = 200) -> Array:
        """Nearly independent samples (n, d): fresh chains, `burn_in` sweeps while the couplings are turned on."""
        fresh = Gibbs(self.n_nodes, self.edges, chains=n, seed=int(rng.integers(2**31)))
        for k in range(1, burn_in + 1):
            fresh.sweep(couplings * min(1.0, 2 * k / burn_in))
        return fresh.state


def moment_model(n_nodes: int, edges: IntArray, *, seed: int = 0, max_width: int = MAX_WIDTH) -> Elimination | Gibbs:
    """The best way to sum over the states of this graph: exactly for a small frontier or few nodes, else by Gibbs chains.

    >>> type(moment_model(25, grid_edges(5, 5))).__name__, type(moment_model(100, grid_edges(10, 10))).__name__
    ('Elimination', 'Gibbs')
    """
    found = Elimination(n_nodes, edges)
    return found if n_nodes <= MAX_NODES or found.width <= max_width else Gibbs(n_nodes, edges, seed=seed)


_MAX_MEAN = 0.99


def unit_diagonal(covariance: Array) -> Array:
    """The covariance (d, d) scaled to unit diagonal: spins have variance 1. Columns without variance become 0."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out: Array = covariance * np.outer(inverse, inverse)
    np.fill_diagonal(out, 1.0)
    return np.clip(out, -1.0, 1.0)


@dataclass(frozen=True)
class SpinMoments:
    """Moments of the spins of a component.

    mean : (d,), zero without fields. scale : (d,), what the component's columns are multiplied by so that Var(s) = 1 - mean^2;
    second : E[s s'], (d, d), unit diagonal.
    """

    mean: Array
    scale: Array
    second: Array

    @classmethod
    def of(cls, component: Component, fields: bool) -> SpinMoments:
        """fields : take the component's mean, which is known by the RCA's rule only; else all odd moments are zero."""
        d = len(component.mean)
        mean = np.clip(component.mean, -_MAX_MEAN, _MAX_MEAN) if fields else np.zeros(d)
        sd = np.sqrt(1 - mean**2)
        second = unit_diagonal(component.covariance) * np.outer(sd, sd) + np.outer(mean, mean)
        scale = sd / np.sqrt(np.maximum(np.diag(component.covariance), 1e-300))
        return cls(mean, scale, np.clip(second, -1.0, 1.0))

    @property
    def with_ghost(self) -> Array:
        """E[s s'] (d + 1, d + 1), the last spin being the ghost: its pair moments are the means."""
        return np.block([[self.second, self.mean[:, None]], [self.mean[None], np.ones((1, 1))]])


def whitened_moments(component: Component) -> tuple[Array, Array, Array] | None:
    """W (k, d) with W Cov(view | other columns) W' = I, the component's covariance there (k, k), and equal weights (k, k) for
    its entries.

    The view is the one that the component is a part of: U for S1, V for S3, the samples themselves. What other columns tell of
    it is shared, and errors of the rest's second moments have the size of Cov(view | other columns), however strong the
    shared part is, so that in these coordinates they are even. None for a component that is read off several views
    (`Terms.whole`), or if the view does not see all of its columns.
    """
    slot = component.terms.whole
    if component.source is None or slot is None:
        return None
    p = component.source.moments.layout.n_columns
    values, vectors = np.linalg.eigh(given_the_rest(component.source.moments.covariance(unbiased=False)[:p, :p], slot))
    if not values[0] > 1e-10 * values[-1]:
        return None
    W = (vectors / np.sqrt(values)).T
    return W, W @ component.covariance @ W.T, np.ones(W.shape)


def given_the_rest(covariance: Array, slot: Array) -> Array:
    """Cov(slot'z | n'z for every n orthogonal to slot), (d, d), covariance = Cov(z) (p, p), slot (p, d) of full rank.

    C - C N (N'CN)^-1 N'C = slot (slot' C^-1 slot)^-1 slot' for a basis N of what is orthogonal to slot.
    """
    values, vectors = np.linalg.eigh(covariance)
    if not values[0] > 1e-10 * values[-1]:  # columns that others determine: nothing is taken as told
        return np.asarray(slot.T @ covariance @ slot)
    inner = slot.T @ slot
    half = (vectors / np.sqrt(values)).T @ slot
    return np.asarray(inner @ np.linalg.solve(half.T @ half, inner))


# ---- fits

MAX_COUPLING = 4.0
"""Couplings are kept within this size: at 4 a pair of spins agrees with probability .9997."""

NEWTON_EDGES = 1500
"""Edges up to which matrices (m, m) of couplings are formed."""


def fit_pair_moments(model: Elimination | Gibbs, moments: Array, ridge: float) -> Array:
    """Maximum likelihood: argmax_J  moments'J - log Z(J) - ridge |J|^2 / 2, (m,); moments (m,): E[s_i s_j] on the edges.

    Concave; gradient moments - E_J[s_i s_j] - ridge J. Couplings are bounded, since extracted moments need not belong to
    any distribution of spins.
    """
    start = 0.5 * np.arctanh(np.clip(moments, -0.8, 0.8))
    if not len(start):
        return start
    if isinstance(model, Gibbs):
        i, j = model.edges.T

        def direction(state: Array, J: Array, _: int) -> Array:
            pairs = state[:, i] * state[:, j]
            gap = moments - pairs.mean(0) - ridge * J
            if len(J) > NEWTON_EDGES:
                return np.asarray(gap / (pairs.var(0) + 0.05 + ridge))
            pairs = pairs - pairs.mean(0)
            return np.linalg.solve(pairs.T @ pairs / len(pairs) + (0.02 + ridge) * np.eye(len(J)), gap)

        return _stochastic(model, start, direction)

    def loss(J: Array) -> tuple[float, Array]:
        log_z, pairs = model.log_partition(J)
        return log_z - float(moments @ J) + ridge / 2 * float(J @ J), pairs - moments + ridge * J

    return bounded_minimum(loss, start)


def fit_joint(
    model: Elimination | Gibbs,
    x_from_u: Array,
    target: Array,
    weights: Array,
    start: Array,
    ridge: float,
    *,
    mean: Array | None = None,
    rng: np.random.Generator,
    max_iter: int = 15,
) -> Array:
    """argmin_J  sum_(a <= b) w_ab (W C(J) W' - target)_ab^2 + |W m(J) - mean|^2 + ridge |J|^2, shape (m,).

    C(J) = Cov(s) (d, d), m(J) = E[s]; W = x_from_u (k, d) whitens the view, target (k, k) is the covariance of the
    component there, known to an error of about n^(-1/2) in every entry, however large the shared part is in the original
    coordinates; weights (k, k), halved on the diagonal (its entries are twice as noisy). All pairs are used, not only the
    edges, and Var(s) = 1 - m^2 is built in.

    mean : (k,), W E[s], if there are fields: the model's last node is then the ghost. None: m = 0.

    Damped Gauss-Newton. The residual is exact (if the model is); the Jacobian, Cov((Ws)_a (Ws)_b, s_i s_j), comes from
    samples of the current model.
    """
    if not len(start):
        return start
    seen = _SecondMoments(x_from_u, weights, mean is not None)
    goal = seen.stacked(target, np.zeros(0) if mean is None else mean)

    if isinstance(model, Gibbs):
        known: list[Array] = []

        def direction(state: Array, J: Array, k: int) -> Array:
            if k % 10 == 0:
                B = seen.jacobian(state, model.edges)
                known[:] = [B, B.T @ B + (ridge + 1e-3) * np.eye(len(J))]
            B, H = known
            gap = seen.of_states(state.T @ state / len(state)) - goal
            return np.asarray(np.linalg.solve(H, -(B.T @ gap) - ridge * J), dtype=np.float64)

        return _stochastic(model, start, direction)

    J, damping = start.copy(), 1e-2
    residual = seen.of_states(model.correlations(J)) - goal
    loss = float(residual @ residual + ridge * J @ J)
    for _ in range(max_iter):
        B = seen.jacobian(model.sample(J, 6000, rng), model.edges)
        H, gradient = B.T @ B + ridge * np.eye(len(J)), B.T @ residual + ridge * J
        for _ in range(6):
            step = np.linalg.solve(H + damping * np.diag(np.diag(H)), gradient)
            trial = np.clip(J - step, -MAX_COUPLING, MAX_COUPLING)
            new = seen.of_states(model.correlations(trial)) - goal
            value = float(new @ new + ridge * trial @ trial)
            if value < loss:
                break
            damping *= 5
        if not value < loss:
            break
        done = loss - value < 1e-5 * loss
        J, residual, loss, damping = trial, new, value, damping / 5
        if done:
            break
    return J


@dataclass(frozen=True)
class _SecondMoments:
    """What the joint fit compares: entries of W Cov(s) W', each times the root of its weight, then (with fields) W E[s]."""

    x_from_u: Array
    weights: Array
    fields: bool

    @property
    def entries(self) -> tuple[IntArray, IntArray, Array]:
        """Rows and columns of the lower triangle, and the factors."""
        rows, columns = np.tril_indices(len(self.x_from_u))
        return rows, columns, np.sqrt(self.weights[rows, columns] * np.where(rows == columns, 0.5, 1.0))

    def stacked(self, white: Array, mean: Array) -> Array:
        """From the covariance (..., k, k) and mean (..., k or 0) in white coordinates."""
        rows, columns, factors = self.entries
        return np.concatenate([white[..., rows, columns] * factors, mean], axis=-1)

    def of_states(self, C: Array) -> Array:
        """From E[s s'], the ghost included."""
        W = self.x_from_u
        if not self.fields:
            return self.stacked(W @ C @ W.T, np.zeros(0))
        m = C[:-1, -1]
        return self.stacked(W @ (C[:-1, :-1] - np.outer(m, m)) @ W.T, W @ m)

    def jacobian(self, state: Array, edges: IntArray) -> Array:
        """Derivative by the couplings, (entries, m), from samples (n, d) of the model: covariances with s_i s_j."""
        rows, columns, factors = self.entries
        i, j = edges.T
        spins = state[:, :-1] * state[:, -1:] if self.fields else state
        middle = spins.mean(0) if self.fields else np.zeros(spins.shape[1])
        centre = np.mean(state[:, i] * state[:, j], axis=0)
        total = np.zeros((len(rows) + self.fields * len(self.x_from_u), len(i)))
        for some in np.array_split(np.arange(len(state)), max(1, len(state) * len(rows) * 8 // BATCH_BYTES + 1)):
            x = (spins[some] - middle) @ self.x_from_u.T
            pairs = state[np.ix_(some, i)] * state[np.ix_(some, j)] - centre
            total[: len(rows)] += (x[:, rows] * x[:, columns]).T @ pairs
            if self.fields:
                total[len(rows) :] += x.T @ pairs
        total[: len(rows)] *= factors[:, None]
        return np.asarray(total / len(state))


def joint_change(
    model: Elimination | Gibbs,
    x_from_u: Array,
    weights: Array,
    theta: Array,
    ridge: float,
    covariances: Array,
    means: Array,
    *,
    fields: bool,
    rng: np.random.Generator,
) -> Array:
    """How the solution theta of :func:`fit_joint` moves, to first order: (n, m).

    covariances : (n, d, d), changes of the component's covariance; means : (n, d), of its mean. One Gauss-Newton step each.
    """
    W, seen = x_from_u, _SecondMoments(x_from_u, weights, fields)
    if isinstance(model, Gibbs):
        B = seen.jacobian(model.sample(theta, 20_000, rng), model.edges)
    else:
        steps = 1e-4 * np.eye(len(theta))
        at = [seen.of_states(model.correlations(theta + sign * step)) for step in steps for sign in (1, -1)]
        B = np.stack([(up - down) / 2e-4 for up, down in zip(at[::2], at[1::2], strict=True)], axis=1)
    moved = seen.stacked(W @ covariances @ W.T, means @ W.T if fields else means[:, :0])
    return np.asarray(np.linalg.solve(B.T @ B + ridge * np.eye(len(theta)), B.T @ moved.T).T)


def pair_change(
    model: Elimination | Gibbs, theta: Array, ridge: float, moments: Array, *, rng: np.random.Generator
) -> Array:
    """How the solution of :func:`fit_pair_moments` moves with the pair moments, whose changes are (n, m): (n, m)."""
    if isinstance(model, Gibbs):
        state = model.sample(theta, 20_000, rng)
        i, j = model.edges.T
        information = np.cov((state[:, i] * state[:, j]).T, bias=True).reshape(len(theta), -1)
    else:
        steps = 1e-4 * np.eye(len(theta))
        ends = [model.log_partition(theta + step)[1] - model.log_partition(theta - step)[1] for step in steps]
        information = np.stack(ends) / 2e-4
    return np.asarray(np.linalg.solve(information + ridge * np.eye(len(theta)), moments.T).T)


def _stochastic(model: Gibbs, start: Array, direction: Callable[[Array, Array, int], Array]) -> Array:
    """Newton steps from chains that follow the couplings: steps shrink like 1/t, the last half is averaged."""
    J, rounds = start.copy(), 90
    for k in range(1, 21):
        model.sweep(J * k / 20)
    total, settled = np.zeros_like(J), rounds // 3
    for k in range(rounds):
        step = direction(model.sweep(J, 3), J, k)
        pace = 0.5 if k < settled else 0.5 * settled / k
        J = np.clip(J + pace * np.clip(step, -0.5, 0.5), -MAX_COUPLING, MAX_COUPLING)
        if k >= rounds // 2:
            total += J
    return np.asarray(total / (rounds - rounds // 2))


def bounded_minimum(loss: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """The couplings, within +-MAX_COUPLING, of least loss (value, gradient), by L-BFGS."""
    if not len(start):
        return start
    bounds = [(-MAX_COUPLING, MAX_COUPLING)] * len(start)
    return minimise(loss, start, bounds=bounds, maxiter=500, ftol=1e-13, gtol=1e-7)
