"""The energy of the cross-block Gram matrix inside the shared row space, as a function of T.

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

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.parallel import available_cores, run_all
from richcomponents.algebra.spectral import Logistic
from richcomponents.learning.solvers import minimise

PRIOR_CENTRE = -1.0
PRIOR_SD_LEVEL = 1.5
PRIOR_SD_SLOPE = 1.0


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
        factor = self.root @ self.axes / np.sqrt(self.precision)
        return np.asarray(factor @ factor.T)

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


class SharedEnergy:
    """Energy, gradient, modes and curvature for r shared directions.

    Parameters theta are vectors of length ``size`` = r (r + 1)/2 + 2: the lower triangle of E, then (b0, b1).
    """

    def __init__(self, correlations: Array) -> None:
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
        value, slope = energy_and_slope(self._logistic(theta), self.delta, gram)
        matrix_part = slope[..., self.rows, self.cols] * self.multiplicity
        trend_part = np.diagonal(slope, axis1=-2, axis2=-1) @ self.trend
        return value, np.concatenate([matrix_part, trend_part], axis=-1)

    def penalty(self, tau: float) -> Array:
        """Prior precisions (size,) of theta."""
        trend = np.array([PRIOR_SD_LEVEL, PRIOR_SD_SLOPE]) ** -2.0
        return np.concatenate([self.multiplicity / tau**2, trend])

    def mode(self, gram: Array, tau: float, start: Array | None = None, steps: int = 100) -> Array:
        """theta (size,) that maximises tr(P G) - penalty/2, in units of the prior's standard deviations."""
        precision = self.penalty(tau)
        origin = np.zeros(self.size) if start is None else start
        scale = precision**-0.5

        def objective(step: Array) -> tuple[float, Array]:
            theta = origin + scale * step
            value, gradient = self.value_and_gradient(theta, gram)
            return float(0.5 * precision @ theta**2 - value), scale * (precision * theta - gradient)

        return np.asarray(origin + scale * minimise(objective, np.zeros(self.size), maxiter=steps, ftol=1e-6))

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

        def bend(first: int) -> None:
            part = slice(first, first + chunk)
            out[part] = (base - self.value_and_gradient(theta + step * directions[part], gram)[1]) / step

        run_all(bend, range(0, len(directions), chunk), available_cores() if len(directions) > chunk else 1)
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
