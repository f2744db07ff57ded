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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import available_cores, run_all
from richcomponents.algebra.spectral import symmetric
from richcomponents.contrastive.evidence import pair_mean, pair_means
from richcomponents.cumulants.estimate import delete_one, jackknife_variance
from richcomponents.learning.solvers import conjugate_gradients, minimise
from richcomponents.pair.canonical import Canonical
from richcomponents.storage import storable

MAX_LOGIT = 15.0
PRIOR_CENTRE = -1.0
PRIOR_SD_LEVEL = 1.5
PRIOR_SD_SLOPE = 1.0


def _transpose(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def _times(stack: Array, matrix: Array) -> Array:
    """stack (..., p, q) @ matrix (q, s), in one product; or (..., q, s), stack by stack."""
    if matrix.ndim > 2:
        return np.asarray(stack @ matrix)
    return np.asarray((stack.reshape(-1, len(matrix)) @ matrix).reshape(*stack.shape[:-1], -1))


def _between(stack: Array, v: Array) -> Array:
    """v' S v of symmetric S (..., r, r)."""
    return _times(_transpose(_times(stack, v)), v)


@dataclass(frozen=True)
class Logistic:
    """T = logistic(X) at a symmetric X, and its derivatives (Daleckii and Krein: divided differences of eigenvalues).

    value : T; logits, vectors : eigenvalues (..., r) and eigenvectors of X; quotient : (..., r, r), the divided differences.
    """

    value: Array
    logits: Array
    vectors: Array
    quotient: Array

    @classmethod
    def at(cls, x: Array) -> Logistic:
        """Evaluate; eigenvalues of X are kept between -15 and 15.

        (f(a) - f(b)) / (a - b) = sinh(g) / g / (4 cosh(a/2) cosh(b/2)), g = (a - b) / 2: exact for all gaps.
        """
        logits, vectors = np.linalg.eigh(x)
        logits = np.clip(logits, -MAX_LOGIT, MAX_LOGIT)
        shares = 1 / (1 + np.exp(-logits))
        gap = (logits[..., :, None] - logits[..., None, :]) / 2
        near = np.abs(gap) < 1e-8
        half = 2 * np.cosh(logits / 2)
        ratio = np.where(near, 1.0, np.sinh(gap) / np.where(near, 1.0, gap))
        quotient = ratio / (half[..., :, None] * half[..., None, :])
        return cls((vectors * shares[..., None, :]) @ np.swapaxes(vectors, -1, -2), logits, vectors, quotient)

    def derivative(self, direction: Array) -> Array:
        """dT for dX = `direction`; it is self-adjoint, so this also pulls a gradient in T back to one in X."""
        return _between(self.quotient * _between(direction, self.vectors), _transpose(self.vectors))

    def bent(self, other: Array) -> Callable[[Array], Array]:
        """Directions A (m, r, r) -> how they change `derivative(other)`, for one X; all in its eigenbasis.

        For other = B it is sum_k f[a_i, a_k, a_j] (A_ik B_kj + B_ik A_kj), second divided differences of the logistic.
        """
        q, a = self.quotient, self.logits
        gap = a[:, None] - a[None, :]
        i, j = np.nonzero(np.abs(gap) < 1e-4)
        gap[i, j] = 1.0
        second = (q[:, :, None] - q[None, :, :]) / gap[:, None, :]
        # where a_i and a_j are close: the derivative of the first divided difference half way between them
        middle = (a[i] + a[j])[:, None] / 2
        away = (middle - a) / 2
        flat = np.abs(away) < 1e-3
        safe = np.where(flat, 1.0, away)
        slope = np.where(flat, away / 3, 1 / np.tanh(safe) - 1 / safe) - np.tanh(middle / 2)
        there = np.where(flat, 1 + away**2 / 6, np.sinh(safe) / safe) / (4 * np.cosh(middle / 2) * np.cosh(a / 2))
        second[i, :, j] = slope * there / 2
        weights = second * other  # (i, k, j)

        def change(directions: Array) -> Array:
            half = np.matmul(np.swapaxes(directions, 0, 1), weights).swapaxes(0, 1)
            return np.asarray(half + _transpose(half))

        return change


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


def row_space(t: Array, delta: Array) -> Array:
    """R = [T | Delta], (..., r, 2r)."""
    return np.concatenate([t, delta] if t.shape == delta.shape else np.broadcast_arrays(t, delta), axis=-1)


def projector(t: Array, delta: Array) -> Array:
    """P = R'(R R')^-1 R, (..., 2r, 2r)."""
    rows = row_space(t, delta)
    return np.asarray(_transpose(rows) @ np.linalg.solve(rows @ _transpose(rows), rows))


def energy_and_slope(t: Logistic, delta: Array, gram: Array, beside: Beside | None = None) -> tuple[Array, Array]:
    """tr(P G) (...) and its derivative (..., r, r) in logit T, for G (..., 2r, 2r) in the coordinates w; with evidence beside,
    those of the sum.

    Delta is diagonal in the canonical coordinates of a sample, and any (r, r) matrix in those of its replicates.
    """
    r = t.value.shape[-1]
    rows = row_space(t.value, delta)
    dual = np.linalg.solve(rows @ _transpose(rows), rows)  # (R R')^-1 R
    dual_gram = dual @ gram
    inner = dual_gram @ _transpose(rows)
    slope = dual_gram[..., :r] - inner @ dual[..., :r]
    value, slope = np.trace(inner, axis1=-2, axis2=-1), slope + _transpose(slope)
    if beside is not None:
        more, steeper = beside.value_and_slope(t.value)
        value, slope = value + more, slope + steeper
    return value, t.derivative(slope)


def energy_bend(t: Logistic, delta: Array, gram: Array, beside: Beside | None = None) -> Callable[[Array], Array]:
    """Directions (m, r, r) of logit T -> minus the second derivative of tr(P G) along each, (m, r, r); one T and one G.
    With evidence beside, that of the sum.

    With R = [T | Delta], N = (R R')^-1 R and dR = [dT | 0],  dN = (R R')^-1 (dR - (dR R' + R dR') N), and the slope in T is
    s + s', s = (N G (I - R'N))_1, the first r columns.
    """
    r, v = t.value.shape[-1], t.vectors
    rows = row_space(t.value, delta)
    kernel = np.asarray(np.linalg.inv(rows @ rows.T), dtype=np.float64)
    dual: Array = kernel @ rows
    dual_gram, grams = dual @ gram, np.hstack([gram[:, :r], gram @ rows.T])
    inner, first = dual_gram @ rows.T, dual[:, :r]
    slope = dual_gram[:, :r] - inner @ first
    slope, of_beside = slope + slope.T, None
    if beside is not None:
        slope, of_beside = slope + beside.value_and_slope(t.value)[1], beside.bend(t.value)
    of_link = t.bent(_between(slope, v))

    def bend(directions: Array) -> Array:
        turned = _between(directions, v)
        dt = _between(t.quotient * turned, v.T)
        both = _times(dt, t.value)
        both = _times(both + _transpose(both), kernel)
        moved = -_times(_transpose(both), dual)  # dN
        moved[..., :r] += _transpose(_times(dt, kernel))
        seen = _times(moved, grams)
        change = _transpose(_times(dt, dual_gram[:, :r].T))
        change = seen[..., :r] - _times(seen[..., r:] + change, first)
        change -= _transpose(_times(_transpose(moved[..., :r]), inner.T))
        change = change + _transpose(change)
        if of_beside is not None:
            change -= of_beside(dt)
        return -_between(t.quotient * _between(change, v) + of_link(turned), v.T)

    return bend


MOST_AXES = 1000
"""Unknowns up to which the curvature of the energy is known in every direction (43 shared directions)."""

PULLS = 100
"""Random changes that stand for all, of many unknowns."""

ENOUGH = 1e-3
"""Nats that a further step towards a fold's mode must promise, of many unknowns."""

NEWTON = 8  # steps to where the gradient is zero
FEW, CLOSE = 15, 1e-9  # steps before those, with evidence beside, and the gradient that counts as zero

_ENTRIES = 1000  # of E up to which all probes of its curvature are used
_KRYLOV, _DEPTH = 8, 8  # beyond: directions at once, and how often the curvature is applied to them


@lru_cache(maxsize=8)
def _entry_of(r: int) -> IntArray:
    """(r, r): which entry of a lower triangle stands here or in its mirror image."""
    i, j = np.indices((r, r))
    low, high = np.minimum(i, j), np.maximum(i, j)
    return np.asarray(high * (high + 1) // 2 + low)


def symmetric_matrices(triangles: Array) -> Array:
    """Symmetric (..., r, r) of their lower triangles, row by row, (..., r (r + 1) / 2)."""
    return np.take(triangles, _entry_of(int(np.sqrt(2 * triangles.shape[-1]))), axis=-1)


@dataclass(frozen=True)
class Prior:
    """A Gaussian prior of covariance R R', R = diag(scale) (I + axes diag(stretch) axes'); nothing of size x size is formed.

    scale : (size,); axes : (size, k), orthonormal columns; stretch : (k,).
    """

    scale: Array
    axes: Array
    stretch: Array

    @classmethod
    def of_free(cls, trend: Array, tau: float) -> Prior:
        """Of the lower triangle of logit T, level and slope integrated out; trend : (r, 2), or (r, 0) for E alone."""
        i, j = np.tril_indices(len(trend))
        scale = tau / np.sqrt(np.where(i == j, 1.0, 2.0))
        lift = np.zeros((len(i), trend.shape[1]))
        lift[i == j] = trend * np.array([PRIOR_SD_LEVEL, PRIOR_SD_SLOPE])[: trend.shape[1]]
        axes, sizes, _ = np.linalg.svd(lift / scale[:, None], full_matrices=False)
        return cls(scale, axes, np.sqrt(1 + sizes**2) - 1)

    def root(self, rows: Array) -> Array:
        """rows R' (m, size): of standard normal rows, draws."""
        return np.asarray((rows + rows @ self.axes * self.stretch @ self.axes.T) * self.scale)

    def units(self, rows: Array) -> Array:
        """rows R: a gradient in units of the prior."""
        rows = rows * self.scale
        return np.asarray(rows + rows @ self.axes * self.stretch @ self.axes.T)

    def precision(self, rows: Array) -> Array:
        """rows (R R')^-1."""
        rows = rows / self.scale
        inverse = (1 + self.stretch) ** -2.0 - 1
        return np.asarray((rows + rows @ self.axes * inverse @ self.axes.T) / self.scale)


@dataclass(frozen=True)
class Laplace:
    """A Gaussian posterior about a mode, in units of its prior.

    axes : (size, m), orthonormal columns, principal axes; precision : (m,) along them and `rest` across all others, relative to
    the prior, at least one half (the energy may be flat, or bent the wrong way). With few unknowns the axes are all there are;
    of many they are a part, those of the largest curvature among them, and 1 / rest is the mean variance across them.
    bend : directions (m, size) -> minus the Hessian of the energy times each of them.
    """

    prior: Prior
    axes: Array
    precision: Array
    rest: float
    bend: Callable[[Array], Array]

    @classmethod
    def of(cls, bend: Callable[[Array], Array], prior: Prior) -> Laplace:
        """Many unknowns: Rayleigh-Ritz in the block Krylov space of a few random directions (the same ones always).

        The principal axes' shares of these directions are the weights of a quadrature over all eigenvalues (Golub and Meurant):
        it gives the mean variance of all directions, and so of those that are left.
        """
        size = len(prior.scale)
        if size <= MOST_AXES:
            relative = prior.units(prior.units(bend(np.eye(size))).T)
            values, axes = np.linalg.eigh(np.eye(size) + symmetric(relative))
            return cls(prior, axes, np.maximum(values, 0.5), 1.0, bend)
        basis, images = np.zeros((size, 0)), np.zeros((size, 0))
        block = np.random.default_rng(0).normal(size=(size, _KRYLOV))
        for _ in range(_DEPTH):
            for _ in range(2):  # twice is enough
                block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
            basis = np.hstack([basis, block])
            block = prior.units(bend(prior.root(block.T))).T
            images = np.hstack([images, block])
        values, vectors = np.linalg.eigh(symmetric(basis.T @ images))
        precision = np.maximum(1 + values, 0.5)
        weights = np.mean(vectors[:_KRYLOV] ** 2, axis=0)
        across = (size * weights @ (1 / precision) - np.sum(1 / precision)) / (size - len(precision))
        rest = float(1 / np.clip(across, 1 / precision.max(), 2.0))
        return cls(prior, basis @ vectors, precision, rest, bend)

    @property
    def complete(self) -> bool:
        """Whether the axes are all directions."""
        size, axes = self.axes.shape
        return bool(size == axes)

    def solve(self, rows: Array, share: float = 1e-4) -> Array:
        """rows (m, size) times the posterior covariance."""
        return self.prior.root(self._divided(self.prior.units(rows), share))

    def _divided(self, rows: Array, share: float) -> Array:
        """rows (m, size) over the precision, in units of the prior: by conjugate gradients, where not all principal axes are
        known, until no more than that share of a row is left."""
        if self.complete:
            return self._scaled(rows, 1 / self.precision, 1.0)

        def times(directions: Array) -> Array:
            return directions + self.prior.units(self.bend(self.prior.root(directions)))

        def nearly(left: Array) -> Array:
            return self._scaled(left, 1 / self.precision, 1 / self.rest)

        return conjugate_gradients(times, rows, nearly, share=share)

    def deviations(self, normal: Array, inflation: float) -> Array:
        """Draws (m, size) about the mode from standard normal numbers (m, size); inflated, never beyond the prior.

        The symmetric root of the covariance: principal axes have no signs of their own, and draws must not depend on them.
        """
        spread, other = (np.minimum(1.0, np.sqrt(inflation / at)) for at in (self.precision, self.rest))
        return self.prior.root(self._scaled(normal, spread, float(other)))

    def pulls(self) -> Array:
        """Changes (n, size) whose squares add up to the covariance of what the prior pulls, H^-1 (R R')^-1 H^-1: one for each
        coordinate or, of many unknowns, random ones."""
        if self.complete:
            some = np.eye(len(self.axes))
        else:
            some = np.random.default_rng(0).normal(size=(PULLS, len(self.axes))) / np.sqrt(PULLS)
        return self.prior.root(self._divided(some, 0.05))

    def _scaled(self, rows: Array, along: Array, across: float) -> Array:
        return np.asarray(rows * across + rows @ self.axes * (along - across) @ self.axes.T)


_CHUNK = 2**13  # numbers that fit into a cache, as many matrices as they are


def in_chunks(function: Callable[[Array], Array], directions: Array) -> Array:
    """The rows of `directions` through a function of rows, a few at a time, on all cores."""
    out, chunk = np.empty_like(directions), max(8, _CHUNK // directions.shape[1])

    def some(starts: Iterator[int]) -> None:
        for first in starts:
            out[first : first + chunk] = function(directions[first : first + chunk])

    run_all(some, range(0, len(directions), chunk), available_cores() if len(directions) > chunk else 1)
    return out


class Beside(Protocol):
    """Further evidence about T, of a sample or of a stack of replicates."""

    def value_and_slope(self, t: Array) -> tuple[Array, Array]:
        """In nats (...), and its derivative (..., r, r) in T."""

    def bend(self, t: Array) -> Callable[[Array], Array]:
        """Directions (m, r, r) of T -> minus the second derivative along each; of one sample."""

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

    def strength(self, t: Array, other: Array) -> float:
        """How far T = t is from T = `other`, in standard errors."""

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
        matrix = self._symmetric(theta)
        diagonal = np.arange(self.r)
        matrix[..., diagonal, diagonal] += self.centre
        return Logistic.at(matrix)

    def _symmetric(self, theta: Array) -> Array:
        """The matrix (..., r, r) of parameters, about the centre."""
        matrix = symmetric_matrices(theta[..., : self.n_matrix])
        diagonal = np.arange(self.r)
        matrix[..., diagonal, diagonal] += theta[..., self.n_matrix :] @ self.trend.T
        return matrix

    def _pulled_back(self, slope: Array) -> Array:
        """A gradient (..., r, r) in logit T as one in the parameters (..., size)."""
        matrix_part = slope[..., self.rows, self.cols] * self.multiplicity
        trend_part = np.diagonal(slope, axis1=-2, axis2=-1) @ self.trend
        return np.concatenate([matrix_part, trend_part], axis=-1)

    def matrix(self, theta: Array) -> Array:
        """T (..., r, r) of parameters theta (..., size)."""
        return self._logistic(theta).value

    def projector(self, t: Array) -> Array:
        """P (..., 2r, 2r) of T (..., r, r)."""
        return projector(t, self.delta)

    def value_and_gradient(self, theta: Array, gram: Array) -> tuple[Array, Array]:
        """tr(P G) (...) and its gradient (..., size), for theta (..., size) and G (..., 2r, 2r)."""
        t = self._logistic(theta)
        value, slope = energy_and_slope(t, self.delta, gram, self.beside)
        return value, self._pulled_back(slope)

    def prior(self, tau: float) -> Prior:
        """Of theta: independent entries."""
        scale = np.concatenate([tau / np.sqrt(self.multiplicity), [PRIOR_SD_LEVEL, PRIOR_SD_SLOPE]])
        return Prior(scale, np.zeros((self.size, 0)), np.zeros(0))

    def posterior(self, theta: Array, gram: Array, tau: float) -> Laplace:
        """The posterior about theta."""
        return Laplace.of(self.bend(theta, gram), self.prior(tau))

    def mode(self, gram: Array, tau: float, start: Array | None = None, steps: int = 100) -> Array:
        """theta (size,) that maximises tr(P G) - penalty/2, in units of the prior's standard deviations.

        Values of an objective do not tell points within 1e-8 of its maximum apart, and where a search by values ends there is
        an accident of rounding; the gradient is linear there, and tells them to the last digits: Newton steps that make it
        smaller end where it is zero. Evidence beside may be a thousand times as sharp as the prior in some directions: the
        search starts near its maximum, and is soon left to Newton.
        """
        prior = self.prior(tau)
        origin = np.zeros(self.size) if start is None else start
        few = steps if self.beside is None else FEW

        def slope(theta: Array) -> tuple[float, Array]:
            value, gradient = self.value_and_gradient(theta, gram)
            inside = theta / prior.scale
            return float(value - 0.5 * inside @ inside), prior.scale * gradient - inside

        def objective(step: Array) -> tuple[float, Array]:
            value, gradient = slope(origin + prior.scale * step)
            return -value, -gradient

        theta = origin + prior.scale * minimise(objective, np.zeros(self.size), maxiter=few, ftol=1e-6)
        for _ in range(1 if self.beside is None else NEWTON // 2):
            before, nearby, left = theta, self.posterior(theta, gram, tau), slope(theta)[1]
            for _ in range(NEWTON):
                trial = theta + nearby.solve((left / prior.scale)[None], 1e-2)[0]
                after = slope(trial)[1]
                if not np.linalg.norm(after) < np.linalg.norm(left):
                    break
                theta, left = trial, after
            if theta is before or np.linalg.norm(left) < CLOSE:
                break
        return np.asarray(theta)

    def theta(self, t: Array) -> Array:
        """Parameters (size,) of T (r, r), level and slope zero."""
        return np.append((logit(t) - np.diag(self.centre))[self.rows, self.cols], [0.0, 0.0])

    def modes_nearby(self, grams: Array, start: Array, posterior: Laplace, steps: int = 5) -> Array:
        """Modes (m, size) for several G (m, 2r, 2r) close to the one whose mode is ``start`` (size,).

        Newton steps with the inverse curvature of the known mode, all at once; a step that does not
        improve is quartered.
        """
        precision = posterior.prior.scale**-2.0
        theta = np.tile(start, (len(grams), 1))

        def objective(points: Array) -> tuple[Array, Array]:
            value, gradient = self.value_and_gradient(points, grams)
            return value - 0.5 * points**2 @ precision, gradient - precision * points

        height, slope = objective(theta)
        length = np.ones(len(grams))
        for _ in range(steps):
            trial = theta + length[:, None] * posterior.solve(slope, 0.05)
            trial_height, trial_slope = objective(trial)
            better = trial_height > height
            theta = np.where(better[:, None], trial, theta)
            slope = np.where(better[:, None], trial_slope, slope)
            gained = np.where(better, trial_height - height, np.inf)
            height, length = np.where(better, trial_height, height), np.where(better, 1.0, length / 4)
            if not posterior.complete and gained.max() < ENOUGH:  # a step is dear there
                break
        return theta

    def bend(self, theta: Array, gram: Array) -> Callable[[Array], Array]:
        """Directions (m, size) -> minus the Hessian of tr(P G) at theta times each."""
        of_matrices = energy_bend(self._logistic(theta), self.delta, gram, self.beside)

        def part(directions: Array) -> Array:
            return self._pulled_back(of_matrices(self._symmetric(directions)))

        return lambda directions: in_chunks(part, directions)

    def curvature_trace(self, theta: Array, gram: Array, probes: int = 64) -> float:
        """Trace of the curvature over the entries of E; by random signs when r is large, the fewer the larger."""
        directions = np.eye(self.n_matrix, self.size)
        scale = 1.0
        probes = max(probes * _ENTRIES // max(self.n_matrix, _ENTRIES), 4)
        if self.n_matrix > probes:
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (probes, self.n_matrix))
            directions = np.hstack([signs, np.zeros((probes, 2))])
            scale = 1 / probes
        return scale * float(np.sum(directions * self.bend(theta, gram)(directions)))


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

PLAUSIBLE = 0.01
"""Weight of a tau, relative to the best one, from which on its T cannot be excluded: held-out energies differ by chance by as
much as their error, a few nats."""

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
    t_modes : (k, r, r), the modes at every tau.
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
    t_modes: Array

    @property
    def plausible(self) -> Array:
        """(m, r, r), modes at the penalties that held-out energy does not exclude."""
        return np.asarray(self.t_modes[self.tau_weights >= PLAUSIBLE * self.tau_weights.max(initial=0.0)])

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

        The prior's T is often closer, but where V is nearly noiseless it can be wrong a hundred times over. (A has an end of
        its own to fall back on: see `mixing`.)
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
    return _Fit(mode, energy.posterior(mode, gram, tau))


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
    for fit in fits:
        t = energy.matrix(energy.modes_nearby(train, fit.mode, fit.posterior))
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
        t_modes=np.zeros((len(TAUS), rank, rank)),
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
    step = chosen.posterior.solve(scores_out - energy.value_and_gradient(chosen.mode, mean)[1])
    shifts = energy.matrix(chosen.mode + step) - energy.matrix(chosen.mode)

    reference = energy.projector(energy.matrix(fits[1].mode)) - energy.projector(np.zeros((rank, rank)))
    strength = sign_flip_z(nats, reference) if cumulants_tell else 0.0
    gate = _opened(strength)
    if further is not None:
        beside = further.strength(energy.matrix(fits[1].mode), np.zeros((rank, rank)))
        strength, gate = max(strength, beside), max(gate, further.trust * _opened(beside))
    sure = "strong" if strength > STRONG_EVIDENCE and gain > STRONG_GAIN else "weak"
    verdict = sure if gate > 0 else "not identified"
    return Posterior(
        correlations, t, np.concatenate(draws), np.concatenate(draw_weights), shifts, TAUS[best],
        tau_weights, weights, order_z, gain, strength, gate, verdict,
        np.zeros(rank) if further is None else further.information(t), energy.matrix(np.stack([fit.mode for fit in fits])),
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
        "known mixing", np.zeros(r), np.zeros((0, r, r)),
    )  # fmt: skip
