"""Couplings from pair moments: maximum likelihood, and least squares on all second moments of a view.

The likelihood depends on the data only through E[s_i s_j] on the edges, and s^2 = 1: nothing has to be expanded. Fields are
couplings to a ghost (:func:`richcomponents.learning.ising.model.with_ghost`), means the pair moments with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.learning.ising.model import BATCH_BYTES, Elimination, Gibbs
from richcomponents.learning.solvers import minimise

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

    def predicted(C: Array) -> Array:
        return seen.of_states(C)

    def jacobian(state: Array) -> Array:
        return seen.jacobian(state, model.edges)

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
        B = jacobian(model.sample(J, 6000, rng))
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


def bounded_minimum(loss: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """The couplings, within +-MAX_COUPLING, of least loss (value, gradient), by L-BFGS."""
    if not len(start):
        return start
    bounds = [(-MAX_COUPLING, MAX_COUPLING)] * len(start)
    return minimise(loss, start, bounds=bounds, maxiter=500, ftol=1e-13, gtol=1e-7)
