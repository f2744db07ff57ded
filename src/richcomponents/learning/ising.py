"""Ising models from pair moments: P(s) = exp(sum_ij J_ij s_i s_j) / Z(J), spins s in {-1, 1}^d, edges (i, j) of a graph.

The couplings are one vector J (m,), in the order of the edges (m, 2). There are no fields, so every odd moment is zero.
The likelihood depends on the data only through E[s_i s_j] on the edges, and s^2 = 1: nothing has to be expanded.

log Z and moments come from `Elimination` (a transfer matrix that adds one node at a time, for narrow grids and any graph
with a small frontier), `Enumeration` (all states, up to 20 nodes) or `Gibbs` (parallel Markov chains, for the rest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component

__all__ = [
    "NEWTON_EDGES",
    "Elimination",
    "Enumeration",
    "Gibbs",
    "composite_from_component",
    "composite_likelihood",
    "fit_composite",
    "fit_joint",
    "fit_likelihood",
    "fit_taylor",
    "grid_edges",
    "moment_model",
    "unit_diagonal",
]

MAX_WIDTH = 14
"""Nodes in the frontier up to which `moment_model` sums exactly."""

MAX_ENUMERATED = 20
MAX_COUPLING = 4.0
"""Couplings are kept within this size: at 4 a pair of spins agrees with probability .9997."""

_BATCH_BYTES = 150_000_000
NEWTON_EDGES = 1500
"""Edges up to which matrices (m, m) of couplings are formed."""


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


def unit_diagonal(covariance: Array) -> Array:
    """The covariance (d, d) scaled to unit diagonal: spins have variance 1. Columns without variance become 0."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out: Array = covariance * np.outer(inverse, inverse)
    np.fill_diagonal(out, 1.0)
    return np.clip(out, -1.0, 1.0)


# ---- exact sums


@lru_cache(maxsize=32)
def _states(width: int) -> Array:
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

    exact = True

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
        """E[s s'] (d, d). Row a is E[s | s_a = 1], since states come in pairs s, -s of equal probability."""
        d = self.n_nodes
        out = np.empty((d, d))
        batch = max(1, int(_BATCH_BYTES / (8.0 * 2 ** max(self.width, 1) * max(d, 1))))
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
        h = _states(len(step.before))[:, list(step.positions)] @ couplings[list(step.edges)]
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
                pairs[:, list(step.edges)] = joint @ _states(len(step.before))[:, list(step.positions)]
            beta = beta / beta.max(1)[:, None]
        return log_z, single, pairs


def _pull(step: _Step, beta: Array) -> Array:
    """A message over the frontier after the step, as one over the frontier before it and the new node."""
    n_batch = len(beta)
    for position in step.removed:
        beta = np.repeat(beta.reshape(n_batch, 2**position, 1, -1), 2, axis=2).reshape(n_batch, -1)
    return beta


def _neighbours(n_nodes: int, edges: IntArray) -> list[dict[int, int]]:
    """For each node, neighbour -> number of the edge."""
    out: list[dict[int, int]] = [{} for _ in range(n_nodes)]
    for e, (i, j) in enumerate(edges.tolist()):
        out[i][j] = out[j][i] = e
    return out


def _best_plan(n_nodes: int, edges: IntArray) -> tuple[_Step, ...]:
    near = _neighbours(n_nodes, edges)
    starts = sorted(range(n_nodes), key=lambda v: len(near[v]))[: max(1, min(n_nodes, 8))] if n_nodes else []
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


class Enumeration:
    """Exact sums over all 2^d states (half of them, by symmetry), up to 20 nodes.

    >>> log_z, pairs = Enumeration(2, np.array([[0, 1]])).log_partition(np.array([0.5]))
    >>> bool(np.isclose(pairs[0], np.tanh(0.5)))
    True
    """

    exact = True

    def __init__(self, n_nodes: int, edges: IntArray) -> None:
        if not 1 <= n_nodes <= MAX_ENUMERATED:
            raise ValueError(f"enumeration takes 1 to {MAX_ENUMERATED} nodes, got {n_nodes}: use Elimination or Gibbs")
        self.n_nodes, self.edges = n_nodes, edges
        self._all = np.hstack([np.ones((2 ** (n_nodes - 1), 1)), _states(n_nodes - 1)])

    def _weights(self, couplings: Array) -> tuple[float, Array]:
        matrix = np.zeros((self.n_nodes, self.n_nodes))
        matrix[self.edges[:, 0], self.edges[:, 1]] = couplings
        energy = np.einsum("si,si->s", self._all @ matrix, self._all)
        largest = float(energy.max())
        weights = np.exp(energy - largest)
        total = float(weights.sum())
        return float(np.log(2 * total) + largest), weights / total

    def log_partition(self, couplings: Array) -> tuple[float, Array]:
        """log Z(J) and the pair moments on the edges (m,)."""
        log_z, weights = self._weights(couplings)
        C = (self._all * weights[:, None]).T @ self._all
        return log_z, np.asarray(C[self.edges[:, 0], self.edges[:, 1]])

    def correlations(self, couplings: Array) -> Array:
        """E[s s'] (d, d)."""
        _, weights = self._weights(couplings)
        return np.asarray((self._all * weights[:, None]).T @ self._all)

    def sample(self, couplings: Array, n: int, rng: np.random.Generator) -> Array:
        """Independent samples (n, d)."""
        chosen = rng.choice(len(self._all), size=n, p=self._weights(couplings)[1])
        return np.asarray(self._all[chosen] * rng.choice([-1.0, 1.0], size=(n, 1)))


# ---- Monte Carlo


class Gibbs:
    """Parallel Gibbs chains that keep their states between calls; nodes of one colour are updated together.

    chains : how many; state (chains, d).
    """

    exact = False

    def __init__(self, n_nodes: int, edges: IntArray, *, chains: int = 2000, seed: int = 0) -> None:
        self.n_nodes, self.edges = n_nodes, edges
        self._rng = np.random.default_rng(seed)
        self.state: Array = self._rng.choice([-1.0, 1.0], size=(chains, n_nodes))
        near = _neighbours(n_nodes, edges)
        colour: list[int] = [-1] * n_nodes
        for v in sorted(range(n_nodes), key=lambda v: -len(near[v])):
            taken = {colour[u] for u in near[v]}
            colour[v] = next(c for c in range(n_nodes) if c not in taken)
        self._colours = [np.flatnonzero(np.array(colour) == c) for c in range(max(colour, default=-1) + 1)]

    def sweep(self, couplings: Array, times: int = 1) -> Array:
        """Update every spin `times` times; the new state (chains, d)."""
        matrix = np.zeros((self.n_nodes, self.n_nodes))
        matrix[self.edges[:, 0], self.edges[:, 1]] = couplings
        matrix += matrix.T
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


Exact = Elimination | Enumeration


def moment_model(n_nodes: int, edges: IntArray, *, seed: int = 0, max_width: int = MAX_WIDTH) -> Exact | Gibbs:
    """The best way to sum over the states of this graph: Elimination, Enumeration or Gibbs.

    >>> type(moment_model(25, grid_edges(5, 5))).__name__, type(moment_model(100, grid_edges(10, 10))).__name__
    ('Elimination', 'Gibbs')
    """
    found = Elimination(n_nodes, edges)
    if found.width <= max_width:
        return found
    return Enumeration(n_nodes, edges) if n_nodes <= MAX_ENUMERATED else Gibbs(n_nodes, edges, seed=seed)


# ---- fits


def fit_likelihood(model: Exact | Gibbs, moments: Array, ridge: float) -> Array:
    """argmax_J  moments'J - log Z(J) - ridge |J|^2 / 2, shape (m,); moments (m,) are E[s_i s_j] on the edges.

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

    return _minimise(loss, start)


def _stochastic(
    model: Gibbs, start: Array, direction: Callable[[Array, Array, int], Array], rounds: int = 90, sweeps: int = 3
) -> Array:
    """Newton steps from chains that follow the couplings: steps shrink like 1/t, the last half is averaged."""
    J = start.copy()
    for k in range(1, 21):
        model.sweep(J * k / 20)
    total, settled = np.zeros_like(J), rounds // 3
    for k in range(rounds):
        step = direction(model.sweep(J, sweeps), J, k)
        pace = 0.5 if k < settled else 0.5 * settled / k
        J = np.clip(J + pace * np.clip(step, -0.5, 0.5), -MAX_COUPLING, MAX_COUPLING)
        if k >= rounds // 2:
            total += J
    return np.asarray(total / (rounds - rounds // 2))


def fit_joint(
    model: Exact | Gibbs,
    x_from_u: Array,
    target: Array,
    weights: Array,
    start: Array,
    ridge: float,
    *,
    rng: np.random.Generator,
    n_draws: int = 6000,
    max_iter: int = 15,
) -> Array:
    """argmin_J  sum_(a <= b) w_ab (W C(J) W' - target)_ab^2 + ridge |J|^2, shape (m,).

    C(J) = E[s s'] (d, d); W = x_from_u (k, d) canonical coordinates of the view, target (k, k) the covariance of the
    component there, known to an error of about n^(-1/2) in every entry, however large the shared part is in the original
    coordinates; weights (k, k), halved on the diagonal (its entries are twice as noisy). All pairs are used, not only the
    edges, and Var(s) = 1 is built in.

    Damped Gauss-Newton. The residual is exact (if the model is); the Jacobian, Cov((Ws)_a (Ws)_b, s_i s_j), comes from
    samples of the current model.
    """
    if not len(start):
        return start
    rows, columns = np.tril_indices(len(target))
    scale = np.sqrt(weights[rows, columns] * np.where(rows == columns, 0.5, 1.0))
    goal = target[rows, columns] * scale
    i, j = model.edges.T

    def predicted(C: Array) -> Array:
        return np.asarray((x_from_u @ C @ x_from_u.T)[rows, columns] * scale)

    def jacobian(state: Array) -> Array:
        total = np.zeros((len(rows), len(i)))
        mean = np.mean(state[:, i] * state[:, j], axis=0)
        for part in np.array_split(state, max(1, len(state) * len(rows) * 8 // _BATCH_BYTES + 1)):
            x = part @ x_from_u.T
            total += (x[:, rows] * x[:, columns]).T @ (part[:, i] * part[:, j] - mean)
        return np.asarray(total * (scale[:, None] / len(state)))

    if isinstance(model, Gibbs):
        known: list[Array] = []

        def direction(state: Array, J: Array, k: int) -> Array:
            if k % 10 == 0:
                B = jacobian(state)
                known[:] = [B, B.T @ B + (ridge + 1e-3) * np.eye(len(J))]
            B, H = known
            gap = predicted(state.T @ state / len(state)) - goal
            return np.asarray(np.linalg.solve(H, -(B.T @ gap) - ridge * J), dtype=np.float64)

        return _stochastic(model, start, direction)

    J, damping = start.copy(), 1e-2
    residual = predicted(model.correlations(J)) - goal
    loss = float(residual @ residual + ridge * J @ J)
    for _ in range(max_iter):
        B = jacobian(model.sample(J, n_draws, rng))
        H, gradient = B.T @ B + ridge * np.eye(len(J)), B.T @ residual + ridge * J
        for _ in range(6):
            step = np.linalg.solve(H + damping * np.diag(np.diag(H)), gradient)
            trial = np.clip(J - step, -MAX_COUPLING, MAX_COUPLING)
            new = predicted(model.correlations(trial)) - goal
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


def composite_likelihood(S: Array, edges: IntArray, couplings: Array) -> tuple[float, Array]:
    """Mean negative composite (pseudo-) log-likelihood of samples S (n, d), and its gradient (m,).

    -mean_n sum_i log P(s_i | rest) = mean_n sum_i log(2 cosh h_i) - s_i h_i, with h_i = sum_j J_ij s_j.
    """
    matrix = np.zeros((S.shape[1], S.shape[1]))
    matrix[edges[:, 0], edges[:, 1]] = couplings
    matrix += matrix.T
    h = S @ matrix
    value = float(np.mean(np.sum(np.logaddexp(h, -h) - S * h, axis=1)))
    slope = (np.tanh(h) - S).T @ S / len(S)  # (i, j): derivative by J_ij in node i's term
    return value, np.asarray(slope[edges[:, 0], edges[:, 1]] + slope[edges[:, 1], edges[:, 0]])


def fit_composite(S: Array, edges: IntArray, ridge: float) -> Array:
    """Couplings (m,) of largest composite likelihood of samples S (n, d), minus ridge |J|^2 / 2."""

    def loss(J: Array) -> tuple[float, Array]:
        value, gradient = composite_likelihood(S, edges, J)
        return value + ridge / 2 * float(J @ J), gradient + ridge * J

    return _minimise(loss, np.zeros(len(edges)))


def _minimise(loss: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    if not len(start):
        return start
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-MAX_COUPLING, MAX_COUPLING)] * len(start),
        options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-7},
    )
    return np.asarray(found.x)


# ---- from fourth cumulants


def _fourth_cumulants(component: Component, quadruples: Sequence[tuple[int, int, int, int]]) -> Array:
    """k4(s_a, s_b, s_c, s_e) for each quadruple.

    Small components: from the tensor. Large ones by polarisation, from projections alone:
    192 k(a, b, c, e) = sum over signs of (+-1)(+-1)(+-1) k4(theta, theta, theta, theta), theta = e_a +- e_b +- e_c +- e_e.
    """
    d = len(component.mean)
    if d <= 40:
        tensor = component.cumulant(4)
        return np.array([tensor[q] for q in quadruples])
    signs = np.hstack([np.ones((8, 1)), _states(3)])
    known: dict[tuple[int, ...], float] = {}
    for q in {tuple(sorted(q)) for q in quadruples}:
        total = 0.0
        for sign in signs:
            theta = np.zeros(d)
            np.add.at(theta, list(q), sign)
            total += float(sign.prod()) * float(theta @ component.projected_cumulant(theta, 4))
        known[q] = total / 192
    return np.array([known[tuple(sorted(q))] for q in quadruples])


def composite_from_component(component: Component, edges: IntArray, ridge: float) -> Array:
    """Couplings (m,) of largest composite likelihood, from extracted moments; every node has at most four neighbours.

    With s^2 = 1, E[log 2 cosh h_i] is exactly linear in the even moments of the neighbours of i: their pair moments and,
    for four neighbours, E[s_a s_b s_c s_e], the extracted fourth cumulant plus three products of pair moments. The moments
    give the probabilities of the (up to) 16 states of the neighbours; negative ones are set to zero.
    """
    C = unit_diagonal(component.covariance)
    scale = np.sqrt(np.maximum(np.diag(component.covariance), 1e-300))
    near = _neighbours(len(C), edges)
    degree = max(map(len, near), default=0)
    if degree > 4:
        raise ValueError(
            f"method='composite' from a component needs moments of every even order up to the number of neighbours, and a "
            f"node has {degree} (at most 4 are possible): use method='likelihood', or fit_clean on true spins"
        )
    full = [i for i, n in enumerate(near) if len(n) == 4]
    found: dict[int, float] = {}
    if full:
        quads = [(q[0], q[1], q[2], q[3]) for q in (list(near[i]) for i in full)]
        for i, q, k4 in zip(full, quads, _fourth_cumulants(component, quads), strict=True):
            a, b, c, e = q
            value = k4 / np.prod(scale[list(q)]) + C[a, b] * C[c, e] + C[a, c] * C[b, e] + C[a, e] * C[b, c]
            found[i] = float(np.clip(value, -1, 1))
    parts: list[tuple[Array, Array, list[int], Array]] = []
    for i, neighbours in enumerate(near):
        nodes = list(neighbours)
        states = _states(len(nodes))
        M = C[np.ix_(nodes, nodes)] - np.eye(len(nodes))
        p = 1 + 0.5 * np.einsum("sa,ab,sb->s", states, M, states)
        if i in found:
            p = p + found[i] * states.prod(1)
        p = np.maximum(p, 0.0)
        parts.append((states, p / p.sum(), list(neighbours.values()), C[i, nodes]))

    def loss(J: Array) -> tuple[float, Array]:
        value, gradient = ridge / 2 * float(J @ J), ridge * J
        for states, p, own, pairs in parts:
            h = states @ J[own]
            value += float(p @ np.logaddexp(h, -h) - J[own] @ pairs)
            gradient[own] += states.T @ (p * np.tanh(h)) - pairs
        return value, gradient

    return _minimise(loss, np.zeros(len(edges)))


def fit_taylor(component: Component, edges: IntArray, ridge: float) -> Array:
    """Couplings (m,) at which the fourth-order Taylor gradient of the composite likelihood is zero.

    With h_i = sum_k J_ik s_k the gradient by J_ij is E[s_i s_j (1 - tanh(s_i h_i)) + s_i s_j (1 - tanh(s_j h_j))]. The
    expansion tanh(z) = z leaves 2 E[s_i s_j] - sum_k J_ik E[s_i^2 s_j s_k] - sum_k J_jk E[s_j^2 s_i s_k], moments of order
    four at most, and linear in J. They are the extracted ones; where no fourth cumulants are kept, s_i^2 = 1 reduces them to
    pair moments. tanh(z) = z fails for strong couplings: there is a bias that no sample size removes.
    """
    C = component.covariance
    near = _neighbours(len(C), edges)
    terms: list[tuple[int, int, tuple[int, int, int, int]]] = []  # (edge, other edge, (i, i, j, k))
    for e, (i, j) in enumerate(edges.tolist()):
        terms += [(e, f, (i, i, j, k)) for k, f in near[i].items()]
        terms += [(e, f, (j, j, i, k)) for k, f in near[j].items()]
    if not terms:
        return np.zeros(0)
    quads = [q for _, _, q in terms]
    i, _, j, k = np.array(quads).T
    if component.source is None:
        fourth = unit_diagonal(C)[j, k]
    else:
        fourth = _fourth_cumulants(component, quads) + C[i, i] * C[j, k] + 2 * C[i, j] * C[i, k]
    H = 2 * ridge * np.eye(len(edges))
    np.add.at(H, (np.array([t[0] for t in terms]), np.array([t[1] for t in terms])), fourth)
    J = np.linalg.lstsq(H, 2 * C[edges[:, 0], edges[:, 1]], rcond=None)[0]
    return np.asarray(np.clip(J, -MAX_COUPLING, MAX_COUPLING), dtype=np.float64)
