"""Which point of the identified set the higher orders pick, and how far to trust it.

Everything here reads one small array: the Gram matrices K (orders, B, B, 2r, 2r) of block cumulants.
Jackknife, cross-validation and the sign-flip test are all reweightings of its pairs of blocks.

ENERGY. The energy of the cross-block Gram matrix inside the shared row space, as a function of T.

In the jointly whitened coordinates w = (e, y), e = h^-1 (x - D y), every row of cross-cumulants lies in the
row space of Cov(S2, w) = [h T | D], that is, of

    R(T) = [T | Delta],     Delta = D / h    (Delta^2 are the odds D^2 / (1 - D^2)).

The energy tr(P(T) G), P = R'(R R')^-1 R, is maximal in expectation at the true T.  It treats both views
alike and never regresses one noisy matrix on another.

T is the logistic function of a free symmetric matrix,

    logit T = diag(-1 + b0 + 4 b1 (D^2 - mean D^2)) + E,

so that 0 <= T <= I always holds.  Few numbers first, the full matrix last: b0 ~ N(0, 1.5^2),
b1 ~ N(0, 1), E_ii ~ N(0, tau^2), E_ij ~ N(0, tau^2/2), tau chosen by cross-validation.  The slope is on D^2, which
is bounded: a slope on log D extrapolates wildly to canonical correlations near zero.

All functions accept leading batch dimensions ("...").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import available_cores, run_all
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.evidence import pair_mean, pair_means
from richcomponents.cumulants.estimate import delete_one, jackknife_variance
from richcomponents.learning.solvers import minimise, stationary
from richcomponents.storage import storable

MAX_LOGIT = 15.0
PRIOR_CENTRE = -1.0
PRIOR_SD_LEVEL = 1.5
PRIOR_SD_SLOPE = 1.0


@dataclass(frozen=True)
class Logistic:
    """T = logistic(X) at a symmetric X, and its derivative (Daleckii and Krein: divided differences of eigenvalues).

    value : T; vectors : eigenvectors; quotient : (..., r, r), the divided differences.
    """

    value: Array
    vectors: Array
    quotient: Array

    @classmethod
    def at(cls, x: Array) -> Logistic:
        """Evaluate; eigenvalues of X are kept between -15 and 15."""
        logits, vectors = np.linalg.eigh(x)
        logits = np.clip(logits, -MAX_LOGIT, MAX_LOGIT)
        shares = 1 / (1 + np.exp(-logits))
        slopes = shares * (1 - shares)
        gap = logits[..., :, None] - logits[..., None, :]
        near = np.abs(gap) < 1e-6
        quotient = np.where(
            near,
            (slopes[..., :, None] + slopes[..., None, :]) / 2,
            (shares[..., :, None] - shares[..., None, :]) / np.where(near, 1.0, gap),
        )
        return cls((vectors * shares[..., None, :]) @ np.swapaxes(vectors, -1, -2), vectors, quotient)

    def derivative(self, direction: Array) -> Array:
        """dT for dX = `direction`; it is self-adjoint, so this also pulls a gradient in T back to one in X."""
        back = np.swapaxes(self.vectors, -1, -2)
        out: Array = self.vectors @ (self.quotient * (back @ direction @ self.vectors)) @ back
        return out


def logit(t: Array, edge: float = 1e-6) -> Array:
    """The symmetric X with T = logistic(X); eigenvalues of T are kept in [edge, 1 - edge].

    >>> t = np.array([[0.5, 0.2], [0.2, 0.4]])
    >>> bool(np.allclose(Logistic.at(logit(t)).value, t))
    True
    """
    values, vectors = np.linalg.eigh(t)
    values = np.clip(values, edge, 1 - edge)
    out: Array = (vectors * np.log(values / (1 - values))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return out


def _transpose(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def row_space(t: Array, delta: Array) -> Array:
    """R = [T | Delta], (..., r, 2r)."""
    return np.concatenate(np.broadcast_arrays(t, delta), axis=-1)


def projector(t: Array, delta: Array) -> Array:
    """P = R'(R R')^-1 R, (..., 2r, 2r)."""
    rows = row_space(t, delta)
    return np.asarray(_transpose(rows) @ np.linalg.solve(rows @ _transpose(rows), rows))


def energy_and_slope(t: Logistic, delta: Array, gram: Array) -> tuple[Array, Array]:
    """tr(P G) (...) and its derivative (..., r, r) in logit T, for G (..., 2r, 2r) in the coordinates w.

    Delta is diagonal in the canonical coordinates of a sample, and any (r, r) matrix in those of its replicates.
    """
    r = t.value.shape[-1]
    rows = row_space(t.value, delta)
    dual = np.linalg.solve(rows @ _transpose(rows), rows)  # (R R')^-1 R
    dual_gram = dual @ gram
    inner = dual_gram @ _transpose(rows)
    slope = dual_gram[..., :r] - inner @ dual[..., :r]
    return np.trace(inner, axis1=-2, axis2=-1), t.derivative(slope + _transpose(slope))


@dataclass(frozen=True)
class Laplace:
    """A Gaussian posterior: root (size, size) of the prior covariance, principal axes (size, size; orthonormal columns) in
    its units, and precisions (size,) relative to the prior, floored at one half (the energy may be flat, or bent the wrong
    way)."""

    root: Array
    axes: Array
    precision: Array

    @classmethod
    def of(cls, curvature: Array, root: Array) -> Laplace:
        """curvature : of the energy (size, size); root : root root' is the prior covariance."""
        values, vectors = np.linalg.eigh(np.eye(len(curvature)) + root.T @ curvature @ root)
        return cls(root, vectors, np.maximum(values, 0.5))

    @property
    def inverse(self) -> Array:
        """The posterior covariance."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def factor(self) -> Array:
        """A root of it."""
        return np.asarray(self.root @ self.axes / np.sqrt(self.precision))

    def deviations(self, normal: Array, inflation: float) -> Array:
        """Draws (m, size) about the mode from standard normal numbers (m, size); inflated, never beyond the prior.

        The symmetric root of the covariance: principal axes have no signs of their own, and draws must not depend on them.
        """
        spread = np.minimum(1.0, np.sqrt(inflation / self.precision))
        return np.asarray((normal @ self.axes * spread) @ self.axes.T @ self.root.T)


def free_precision(trend: Array, tau: float) -> Array:
    """Prior precision of the lower triangle of logit T (k, k), level and slope integrated out.

    trend : (r, 2), or (r, 0) for E alone.
    """
    r = len(trend)
    i, j = np.tril_indices(r)
    full = np.zeros((len(i), trend.shape[1]))
    full[i == j] = trend
    sd = np.array([PRIOR_SD_LEVEL, PRIOR_SD_SLOPE])[: trend.shape[1]]
    covariance = np.diag(tau**2 / np.where(i == j, 1.0, 2.0)) + (full * sd**2) @ full.T
    return np.asarray(np.linalg.inv(covariance))


class Beside(Protocol):
    """Further evidence about T, of a sample or of a stack of replicates."""

    def value_and_slope(self, t: Logistic) -> tuple[Array, Array]:
        """In nats (...), and its derivative (..., r, r) in logit T."""

    def value_on_the_rest(self, t: Array, near: Array) -> Array:
        """In nats of the whole sample (...), at T (..., r, r), of the rows that these are not; near : (r, r), an estimate."""


class FurtherEvidence(Protocol):
    """Evidence about T beside the cumulants' energy, block by block."""

    @property
    def near(self) -> Array:
        """T (r, r) near which it is largest."""

    @property
    def trust(self) -> float:
        """How far its assumptions stand their test: 0 to 1."""

    def strength(self, t: Array) -> float:
        """How far T = t is from T = 0, in standard errors."""

    def information(self, t: Array) -> Array:
        """Of the diagonal entries of T (r,), at T = t: inverse variances."""

    def of(self, weights: Array, share: Array | float = 1.0) -> Beside:
        """Of the blocks with weights (..., B), in nats of this share of the rows."""


class SharedEnergy:
    """Energy, gradient, modes and curvature for r shared directions.

    Parameters theta are vectors of length ``size`` = r (r + 1)/2 + 2: the lower triangle of E, then (b0, b1).
    """

    def __init__(self, correlations: Array, beside: Beside | None = None) -> None:
        self.correlations, self.beside = correlations, beside
        self.r = r = len(correlations)
        self.delta = np.diag(correlations / np.sqrt(1 - correlations**2))
        squares = 4 * correlations**2
        self.centre = np.full(r, PRIOR_CENTRE)
        self.trend = np.stack([np.ones(r), squares - squares.mean()], axis=1)  # (r, 2)
        self.rows, self.cols = np.tril_indices(r)
        self.multiplicity = np.where(self.rows == self.cols, 1.0, 2.0)
        self.n_matrix = len(self.rows)
        self.size = self.n_matrix + 2

    def _logistic(self, theta: Array) -> Logistic:
        """T of parameters theta (..., size)."""
        free = theta[..., : self.n_matrix]
        matrix = np.zeros((*theta.shape[:-1], self.r, self.r))
        matrix[..., self.rows, self.cols] = free
        matrix[..., self.cols, self.rows] = free
        diagonal = np.arange(self.r)
        matrix[..., diagonal, diagonal] += self.centre + theta[..., self.n_matrix :] @ self.trend.T
        return Logistic.at(matrix)

    def matrix(self, theta: Array) -> Array:
        """T (..., r, r) of parameters theta (..., size)."""
        return self._logistic(theta).value

    def projector(self, t: Array) -> Array:
        """P (..., 2r, 2r) of T (..., r, r)."""
        return projector(t, self.delta)

    def value_and_gradient(self, theta: Array, gram: Array) -> tuple[Array, Array]:
        """tr(P G) (...) and its gradient (..., size), for theta (..., size) and G (..., 2r, 2r)."""
        t = self._logistic(theta)
        value, slope = energy_and_slope(t, self.delta, gram)
        if self.beside is not None:
            more, steeper = self.beside.value_and_slope(t)
            value, slope = value + more, slope + steeper
        matrix_part = slope[..., self.rows, self.cols] * self.multiplicity
        trend_part = np.diagonal(slope, axis1=-2, axis2=-1) @ self.trend
        return value, np.concatenate([matrix_part, trend_part], axis=-1)

    def penalty(self, tau: float) -> Array:
        """Prior precisions (size,) of theta."""
        trend = np.array([PRIOR_SD_LEVEL, PRIOR_SD_SLOPE]) ** -2.0
        return np.concatenate([self.multiplicity / tau**2, trend])

    def mode(self, gram: Array, tau: float, start: Array | None = None, steps: int = 100) -> Array:
        """theta (size,) that maximises tr(P G) - penalty/2, in units of the prior's standard deviations; with evidence beside,
        which may be a thousand times as sharp in some directions, in those of the posterior at the start."""
        precision = self.penalty(tau)
        origin = np.zeros(self.size) if start is None else start
        scale = np.diag(precision**-0.5)
        if self.beside is not None:
            scale = Laplace.of(self.curvature(origin, gram), scale).factor

        def objective(step: Array) -> tuple[float, Array]:
            theta = origin + scale @ step
            value, gradient = self.value_and_gradient(theta, gram)
            return float(0.5 * precision @ theta**2 - value), scale.T @ (precision * theta - gradient)

        found = minimise(objective, np.zeros(self.size), maxiter=steps, ftol=1e-6)
        return np.asarray(origin + scale @ stationary(lambda step: objective(step)[1], found))

    def theta(self, t: Array) -> Array:
        """Parameters (size,) of T (r, r), level and slope zero."""
        return np.append((logit(t) - np.diag(self.centre))[self.rows, self.cols], [0.0, 0.0])

    def modes_nearby(self, grams: Array, tau: float, start: Array, inverse: Array, steps: int = 5) -> Array:
        """Modes (m, size) for several G (m, 2r, 2r) close to the one whose mode is ``start`` (size,).

        Newton steps with the inverse curvature of the known mode, all at once; a step that does not
        improve is quartered.
        """
        precision = self.penalty(tau)
        theta = np.tile(start, (len(grams), 1))

        def objective(points: Array) -> tuple[Array, Array]:
            value, gradient = self.value_and_gradient(points, grams)
            return value - 0.5 * points**2 @ precision, gradient - precision * points

        height, slope = objective(theta)
        length = np.ones(len(grams))
        for _ in range(steps):
            trial = theta + length[:, None] * (slope @ inverse)
            trial_height, trial_slope = objective(trial)
            better = trial_height > height
            theta = np.where(better[:, None], trial, theta)
            slope = np.where(better[:, None], trial_slope, slope)
            height, length = np.where(better, trial_height, height), np.where(better, 1.0, length / 4)
        return theta

    def _bend(self, theta: Array, directions: Array, gram: Array, step: float = 1e-4) -> Array:
        """Minus Hessian of tr(P G) times each direction (m, size), by differences of the exact gradient."""
        out = np.empty_like(directions)
        base = self.value_and_gradient(theta, gram)[1]
        chunk = 32

        def bend(starts: Iterator[int]) -> None:
            for first in starts:
                part = slice(first, first + chunk)
                out[part] = (base - self.value_and_gradient(theta + step * directions[part], gram)[1]) / step

        if len(directions) <= chunk:
            bend(iter((0,)))
        else:
            run_all(bend, range(0, len(directions), chunk), available_cores())
        return out

    def curvature(self, theta: Array, gram: Array) -> Array:
        """Minus the Hessian of tr(P G) at theta: (size, size)."""
        out = self._bend(theta, np.eye(self.size), gram)
        return np.asarray((out + out.T) / 2)

    def curvature_trace(self, theta: Array, gram: Array, probes: int = 64) -> float:
        """Trace of the curvature over the entries of E; by random signs when r is large."""
        directions = np.eye(self.n_matrix, self.size)
        scale = 1.0
        if self.n_matrix > probes:
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (probes, self.n_matrix))
            directions = np.hstack([signs, np.zeros((probes, 2))])
            scale = 1 / probes
        return scale * float(np.sum(directions * self._bend(theta, directions, gram)))


TAUS = (0.1, 0.3, 0.8, 2.0)
"""Prior standard deviations of the entries of E; held-out energy weighs them."""

FOLDS = 10
DRAWS_PER_TAU = 40  # even: half of them, and their mirror images
INFLATION = 3.0
"""Variance of the Laplace draws relative to the curvature (never wider than the prior)."""

GATE_FROM, GATE_TO = 3.0, 4.0
"""Evidence (in standard errors of the sign-flip distribution) at which the gate starts and ends to open."""

STRONG_EVIDENCE = 4.5
"""Evidence from which the verdict may be "strong"; the held-out gain must exceed ``STRONG_GAIN`` as well."""

STRONG_GAIN = 10.0

AT_THE_END = 0.99
"""T from which on a shared direction leaves nothing to S1."""


@storable
@dataclass(frozen=True)
class Posterior:
    """All that the data say about T, in the r shared canonical coordinates.

    correlations : D (r,), the shared canonical correlations.
    t : (r, r), the point estimate: modes averaged over tau.
    t_draws : (m, r, r), draw_weights : (m,); draws of the posterior.
    t_shifts : (B, r, r); change of the mode when one block is left out.
    gain : held-out energy above T = 0, in nats.
    strength : energy above T = 0 over its standard error under random signs of the blocks.
    gate : 0 (not identified: use T = 0 for coefficients) to 1.
    informed : (r,), inverse variances of the T_ii from evidence beside the cumulants.
    """

    correlations: Array
    t: Array
    t_draws: Array
    draw_weights: Array
    t_shifts: Array
    tau: float
    tau_weights: Array
    order_weights: Array
    order_z: Array
    gain: float
    strength: float
    gate: float
    verdict: str
    informed: Array

    @property
    def rank(self) -> int:
        """r, the number of shared directions."""
        return len(self.correlations)

    @property
    def at_the_end(self) -> bool:
        """Whether T is at the upper end of what second moments allow: the data ask for more of S2 than there is of U."""
        return bool(self.gate > 0 and np.linalg.eigvalsh(self.t)[-1] > AT_THE_END)

    def failing(self) -> Posterior:
        """The same where the model fails: nothing that is told of T is believed."""
        return replace(self, gate=0.0, verdict="model fails")

    @property
    def h(self) -> Array:
        """(I - D^2)^(1/2) as a vector (r,)."""
        return np.sqrt(1 - self.correlations**2)

    @property
    def mean_g(self) -> Array:
        """Posterior mean of I - T: (r, r)."""
        return np.eye(self.rank) - np.tensordot(self.draw_weights, self.t_draws, 1)

    @property
    def mean_g2(self) -> Array:
        """Posterior mean of (I - T)^2: (r, r)."""
        g = np.eye(self.rank) - self.t_draws
        return np.tensordot(self.draw_weights, g @ g, 1)

    @property
    def t_trusted(self) -> Array:
        """T times the gate, for covariances: without evidence Cov(S1) is the covariance of U given V.

        The prior's T is often closer, but where V is nearly noiseless it can be wrong a hundred times over. A is not gated:
        without evidence the prior's T is a better guess of A than either end of the identified set.
        """
        return self.gate * self.t


def _without_each_block(gram: Array) -> Array:
    """Pair means (B, ..., 2r, 2r) of gram (..., B, B, 2r, 2r) without each block."""
    return pair_means(gram, delete_one(gram.shape[-3]))


def share_above_noise(z: Array) -> Array:
    """max(0, 1 - 1/z^2): the share of a squared signal that stands above its noise, for z-values z > 0."""
    return np.asarray(np.maximum(0.0, 1 - 1 / np.maximum(z, 1e-9) ** 2))


def order_weights(energy: SharedEnergy, gram: Array, n: float, rounds: int = 3) -> tuple[Array, Array]:
    """Weights (orders,) that turn the energies of the orders into nats, and the z-values of the energies.

    A log-likelihood has a curvature equal to the variance of its score.  The weight of an order is
    therefore its curvature over the jackknife variance of its score, at the current mode, times the share
    of its energy that stands above block noise.  Gaussian theory (n/4 and n/8) starts the iteration.
    """
    n_blocks = gram.shape[1]
    mean = pair_mean(gram, np.ones(n_blocks))
    left_out = _without_each_block(gram)  # (B, orders, 2r, 2r)
    values = np.trace(left_out, axis1=-2, axis2=-1)
    z = values.mean(0) / np.sqrt(np.maximum(jackknife_variance(values), 1e-300))
    weights = n / np.array([4.0, 8.0]) * share_above_noise(z)
    theta: Array | None = None
    matrix_part = slice(0, energy.n_matrix)
    for _ in range(rounds):
        if not weights.any():
            break
        theta = energy.mode(np.tensordot(weights, mean, 1), 0.5, theta)
        values, scores = energy.value_and_gradient(theta, left_out)
        z = values.mean(0) / np.sqrt(np.maximum(jackknife_variance(values), 1e-300))
        noise = jackknife_variance(scores[..., matrix_part]).sum(-1)
        bend = np.array([energy.curvature_trace(theta, g) for g in mean])
        weights = np.maximum(0.0, bend / np.maximum(noise, 1e-300)) * share_above_noise(z)
    return weights, z


def sign_flip_z(gram: Array, contrast: Array) -> float:
    """Energy of ``contrast`` (2r, 2r) in gram (B, B, 2r, 2r) over its standard error under random signs.

    Without any signal, block cumulants are noise around zero, and flipping the signs of whole blocks does
    not change their distribution.  The energy sum_{a != b} s_a s_b q_ab, q_ab = tr(contrast K_ab), then has
    mean 0 and variance 2 sum_{a != b} q_ab^2.  (The usual jackknife error is useless here: without signal
    the energy is a degenerate U-statistic, and held-out folds agree with each other by chance.)
    """
    q = np.tensordot(gram, contrast, 2)
    np.fill_diagonal(q, 0.0)
    return float(q.sum() / np.sqrt(2 * np.sum(q**2) + 1e-300))


def _opened(strength: float) -> float:
    """The gate."""
    return float(np.clip((strength - GATE_FROM) / (GATE_TO - GATE_FROM), 0.0, 1.0))


@dataclass(frozen=True)
class _Fit:
    """Mode (size,) of theta and the posterior about it, for one tau."""

    mode: Array
    posterior: Laplace


def _fit(energy: SharedEnergy, gram: Array, tau: float, start: Array | None) -> _Fit:
    mode = energy.mode(gram, tau, start)
    posterior = Laplace.of(energy.curvature(mode, gram), np.diag(energy.penalty(tau) ** -0.5))
    # the search stops where the energy is flat, and where exactly is the machine's choice: a few Newton steps, which cost
    # next to nothing once the curvature is known, end at the mode itself
    return _Fit(energy.modes_nearby(gram[None], tau, mode, posterior.inverse)[0], posterior)


def _held_out(energy: SharedEnergy, gram: Array, fits: list[_Fit], further: FurtherEvidence | None) -> Array:
    """Held-out energy above T = 0, in nats: (folds, len(TAUS)).

    Train on pairs within the training blocks, score on the pairs that involve a held-out block.
    """
    n_blocks = len(gram)
    none = np.zeros((energy.r, energy.r))
    lower = energy.projector(none)
    folds = min(FOLDS, n_blocks)
    held = (np.arange(n_blocks) % folds == np.arange(folds)[:, None]).astype(float)
    share = 1 - held.mean(axis=1)
    train = pair_means(gram, 1 - held) * share[:, None, None]
    test = pair_means(gram, held, np.ones_like(held))
    beside = None if further is None else further.of(1 - held, share)
    energy = SharedEnergy(energy.correlations, beside)
    scores = []
    for tau, fit in zip(TAUS, fits, strict=True):
        t = energy.matrix(energy.modes_nearby(train, tau, fit.mode, fit.posterior.inverse))
        scores.append(np.sum((energy.projector(t) - lower) * test, axis=(-2, -1)))
        if beside is not None:
            near = energy.matrix(fits[1].mode)
            scores[-1] = scores[-1] + beside.value_on_the_rest(t, near) - beside.value_on_the_rest(none, near)
    return np.stack(scores, axis=1)


def lower_end(correlations: Array, n_blocks: int, verdict: str) -> Posterior:
    """T = 0 and no evidence: residualising."""
    rank = len(correlations)
    zero = np.zeros((1, rank, rank))
    return Posterior(
        correlations=correlations,
        t=zero[0],
        t_draws=np.concatenate([zero, np.eye(rank)[None]]),  # anything between the ends is possible
        draw_weights=np.full(2, 0.5),
        t_shifts=np.zeros((n_blocks, rank, rank)),
        tau=0.0,
        tau_weights=np.zeros(len(TAUS)),
        order_weights=np.zeros(2),
        order_z=np.zeros(2),
        gain=0.0,
        strength=0.0,
        gate=0.0,
        verdict=verdict,
        informed=np.zeros(rank),
    )


def identify(
    correlations: Array,
    n: float,
    gram: Array,
    random_state: int | None = 0,
    further: FurtherEvidence | None = None,
) -> Posterior:
    """Estimate T from the Gram matrices ``gram`` (2, B, B, 2r, 2r) of the block cumulants (see ``grams``).

    correlations : D (r,); n : independent rows; further : evidence beside the cumulants, whose nats are added to theirs.

    1. order weights;  2. mode and curvature for each tau;  3. tau by held-out energy over 10 folds;
    4. inflated Laplace draws, mixed over tau;  5. one Newton step per left-out block;  6. the sign-flip
    test of the energy above T = 0 opens the gate, or the likelihood ratio of the further evidence does.
    """
    n_blocks, rank = gram.shape[1], len(correlations)
    if rank == 0:
        return lower_end(correlations, n_blocks, "nothing shared")
    rng = np.random.default_rng(random_state)
    weights, order_z = order_weights(SharedEnergy(correlations), gram, n)
    energy = SharedEnergy(correlations, None if further is None else further.of(np.ones(n_blocks)))
    nats = np.tensordot(weights, gram, 1)  # (B, B, 2r, 2r)
    mean = pair_mean(nats, np.ones(n_blocks))

    fits: list[_Fit] = []
    start = None if further is None else energy.theta(further.near)
    for tau in TAUS:
        fits.append(_fit(energy, mean, tau, fits[-1].mode if fits else start))
    cumulants_tell = bool(weights.any())
    informative = cumulants_tell or further is not None
    scores = _held_out(energy, nats, fits, further) if informative else np.zeros((1, len(TAUS)))
    gains = scores.mean(0)
    best = int(np.argmax(gains))
    tau_weights = np.exp(gains - gains[best])
    gain = float(gains[best] + np.log(tau_weights.mean()))
    tau_weights /= tau_weights.sum()

    draws, draw_weights, t = [], [], np.zeros((rank, rank))
    for weight, fit in zip(tau_weights, fits, strict=True):
        noise = fit.posterior.deviations(_mirrored(rng, DRAWS_PER_TAU, energy.size), INFLATION)
        draws.append(energy.matrix(np.vstack([fit.mode, fit.mode + noise])))
        draw_weights.append(np.full(len(draws[-1]), weight / len(draws[-1])))
        t += weight * draws[-1][0]

    # one Newton step from the mode for every left-out block
    chosen = fits[best]
    without = SharedEnergy(correlations, None if further is None else further.of(delete_one(n_blocks)))
    scores_out = without.value_and_gradient(chosen.mode, _without_each_block(nats))[1]
    step = (scores_out - energy.value_and_gradient(chosen.mode, mean)[1]) @ chosen.posterior.inverse
    shifts = energy.matrix(chosen.mode + step) - energy.matrix(chosen.mode)

    reference = energy.projector(energy.matrix(fits[1].mode)) - energy.projector(np.zeros((rank, rank)))
    strength = sign_flip_z(nats, reference) if cumulants_tell else 0.0
    gate = _opened(strength)
    if further is not None:
        beside = further.strength(energy.matrix(fits[1].mode))
        strength, gate = max(strength, beside), max(gate, further.trust * _opened(beside))
    sure = "strong" if strength > STRONG_EVIDENCE and gain > STRONG_GAIN else "weak"
    verdict = sure if gate > 0 else "not identified"
    return Posterior(
        correlations, t, np.concatenate(draws), np.concatenate(draw_weights), shifts, TAUS[best],
        tau_weights, weights, order_z, gain, strength, gate, verdict,
        np.zeros(rank) if further is None else further.information(t),
    )  # fmt: skip


# ---- T when the mixing matrix A is known

KNOWN_PRIOR_SD = 0.5
"""Prior standard deviation of the entries of T around 0, the lower end."""

KNOWN_DRAWS = 80


def _mirrored(rng: np.random.Generator, draws: int, size: int) -> Array:
    """Standard normal (draws, size): half of them, then the same with the other sign. What is odd in the noise cancels in every
    mean over draws, so that coefficients depend on the seed two to four times less than with as many independent draws."""
    half = rng.normal(size=(draws // 2, size))
    return np.concatenate([half, -half])


def project(t: Array) -> Array:
    """Nearest matrices with eigenvalues in [0, 1]: (..., r, r)."""
    values, vectors = np.linalg.eigh(t)
    return np.asarray((vectors * np.clip(values, 0.0, 1.0)[..., None, :]) @ vectors.swapaxes(-1, -2))


def identify_known(canonical: Canonical, rank: int, mixing: Array, random_state: int | None = 0) -> Posterior:
    """T from S A_c' = D, with ``mixing`` A (d_v, d_u) known and A_c the same map in canonical coordinates.

    In terms of T the equation is linear: h T h A_c' = D - D^2 A_c'.  Its entries carry sampling noise of
    variance 1/n (covariances of whitened variables).  Where A is nearly singular that noise would be
    amplified without bound, so T has a normal prior around the lower end 0: ridge regression on the
    r (r + 1)/2 entries of T, whose posterior also says how sure we are; draws are projected on 0 <= T <= I.
    """
    r, n = rank, canonical.n
    if r == 0:
        return lower_end(canonical.correlations[:0], 1, "nothing shared")
    d = canonical.correlations[:r]
    h = np.sqrt(1 - d**2)
    inner = canonical.y_from_v @ mixing @ canonical.u_from_x[:, :r]  # A_c, (rank_v, r)
    target = np.zeros((r, len(inner)))
    target[:, :r] = np.diag(d)
    target = target - (d**2)[:, None] * inner.T
    rows, cols = np.tril_indices(r)
    basis = np.zeros((len(rows), r, r))
    index = np.arange(len(rows))
    basis[index, rows, cols] = 1.0
    basis[index, cols, rows] = 1.0
    design = ((h[:, None] * basis * h) @ inner.T).reshape(len(rows), -1)  # (m, r rank_v)
    prior = np.where(rows == cols, 1.0, 2.0) / KNOWN_PRIOR_SD**2
    precision = n * design @ design.T + np.diag(prior)
    values, vectors = np.linalg.eigh(precision)
    point = vectors @ ((vectors.T @ (n * design @ target.reshape(-1))) / values)
    noise = _mirrored(np.random.default_rng(random_state), KNOWN_DRAWS, len(rows))
    draws = point + (noise @ vectors / np.sqrt(values)) @ vectors.T  # whatever the signs of the eigenvectors
    t_draws = project(np.tensordot(np.vstack([point, draws]), basis, 1))
    return Posterior(
        d, t_draws[0], t_draws, np.full(len(t_draws), 1 / len(t_draws)), np.zeros((1, r, r)),
        0.0, np.zeros(0), np.zeros(2), np.zeros(2), float("nan"), float("nan"), 1.0,
        "known mixing", np.zeros(r),
    )  # fmt: skip
