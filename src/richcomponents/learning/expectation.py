"""E[log L(theta; s)] and its gradient for any differentiable log-likelihood, from moments of s alone (paper, Section 4.2).

The gradient G(s) = d/dtheta log L(theta; s) bends in a few directions only, and is linear in s across them: with z the
standardised projections of s on these and r what is uncorrelated with them,

    G(s) = a(z) + B(z) r.

a is replaced by a polynomial of total degree k + 1 and B by one of degree k, so that moments of order k + 1 suffice. Both are
linear in values of G at nodes z_i (:mod:`.polynomials`), and so is the mean,

    E[G] ~ sum_i m_i G(x_i) + sum_i (c_i / 2h) (G(x_i + h e_i) - G(x_i - h e_i)),

x_i the points of the nodes, m_i and c_i e_i their moments: a rule of points with weights of both signs, and the gradient is
that of theta -> sum w_j log L(theta; x_j) with the points held. What the user gives is one function of (theta, s); its
derivative by theta is taken by differences or by jax.

Under the Gaussian with the mean and covariance of s, that (a Hermite series) is the projection on polynomials of degree
k + 1, whatever the directions: E[log L] itself is replaced by a function of theta whose gradient this is (E of log L under a
Gram-Charlier series of s), and it is bounded where the likelihood is.

The directions are found from d/ds d/du log L at a few directions u of theta: each spans the bends and a few directions more,
which differ from u to u.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.learning.polynomials import (
    exponents,
    gaussian_points,
    moments_along,
    monomials,
    most_variables,
    series,
)
from richcomponents.learning.solvers import slopes

LogLikelihood = Callable[[Array, Array], Any]
"""theta (p,), samples (m, d) -> (m,)."""

_STEP = np.finfo(float).eps ** (1 / 3)  # of differences by theta, relative to a parameter above one
_MIXED = np.finfo(float).eps ** (1 / 5)  # of differences by theta and s


@dataclass(frozen=True)
class Differentiated:
    """A log-likelihood with its derivative by theta: by differences, or by jax (the function must be written for it)."""

    function: LogLikelihood
    by_jax: bool = False

    def values(self, theta: Array, x: Array) -> Array:
        """(m,), checked."""
        with self._precision():
            found = np.asarray(self.function(theta, x), dtype=np.float64)
        if found.shape != (len(x),):
            raise ValueError(
                f"log_likelihood must give one number per sample: {len(x)} samples gave an array of shape {found.shape}"
            )
        return found

    def gradient(self, theta: Array, x: Array, weights: Array) -> Array:
        """d/dtheta sum_i weights_i log L(theta; x_i), (p,)."""
        if self.by_jax:
            with self._precision():
                jax = _jax()
                found = jax.grad(lambda at: weights @ self.function(at, x))(jax.numpy.asarray(theta))
            return np.asarray(found, dtype=np.float64)
        return weights @ self.by_sample(theta, x)

    def by_sample(self, theta: Array, x: Array) -> Array:
        """d/dtheta log L(theta; x_i), (m, p), by differences."""
        return slopes(lambda at: self.values(at, x), theta, _STEP * np.maximum(1.0, np.abs(theta))).T

    def _precision(self) -> AbstractContextManager[Any]:
        return _jax().enable_x64(True) if self.by_jax else nullcontext()


def _jax() -> Any:
    try:
        return import_module("jax")
    except ImportError as problem:
        raise ImportError(
            "gradient='jax' needs the package jax, which is not installed: use 'differences'"
        ) from problem


@dataclass(frozen=True)
class SampleMean:
    """The mean over samples (n, d) that are there: what moments are compared with."""

    log_likelihood: Differentiated
    samples: Array

    def value(self, theta: Array) -> float:
        return float(np.mean(self.log_likelihood.values(theta, self.samples)))

    def gradient(self, theta: Array) -> Array:
        n = len(self.samples)
        return self.log_likelihood.gradient(theta, self.samples, np.full(n, 1 / n))

    def error(self, theta: Array) -> float:
        return 0.0


@dataclass(frozen=True)
class Rule:
    """E[f(s)] ~ weights @ f(points), f = log L at theta; E[grad] ~ by_theta @ grad f(around): (m,), (m, d), and (l,), (l,
    d); directions (k, q) : in which the gradient is not linear, orthonormal in standardised coordinates."""

    directions: Array
    points: Array
    weights: Array
    around: Array
    by_theta: Array


@dataclass(frozen=True)
class MomentMean:
    """The mean over a component, by its moments.

    degree : of B.
    """

    log_likelihood: Differentiated
    component: Component
    degree: int = 3
    _last: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    # ---- what is asked

    def value(self, theta: Array) -> float:
        rule = self.rule(theta)
        return float(rule.weights @ self._finite(theta, rule.points))

    def gradient(self, theta: Array) -> Array:
        rule = self.rule(theta)
        self._finite(theta, rule.around)
        return self.log_likelihood.gradient(theta, rule.around, rule.by_theta)

    def error(self, theta: Array) -> float:
        """Root mean square of what the polynomials miss of the gradient if s were Gaussian, over all parameters, but for what
        is odd in r: its mean is zero."""
        rule, degree = self.rule(theta), self.degree + 1
        Q, q = rule.directions, rule.directions.shape[1]
        z, weights = gaussian_points(q, degree, seed=1)
        from_nodes = monomials(z, exponents(q, degree)) @ series(q, degree, degree)
        fitted = from_nodes @ self.log_likelihood.by_sample(theta, rule.points)
        rests = np.random.default_rng(1).normal(size=(4 if q < len(Q) else 1, len(Q)))
        missed = 0.0
        for r in rests - rests @ Q @ Q.T:
            both = [self.log_likelihood.by_sample(theta, self._at(z @ Q.T + side * r)) for side in (-1, 1)]
            missed += float(np.sum(weights @ ((both[0] + both[1]) / 2 - fitted) ** 2)) / len(rests)
        return float(np.sqrt(missed))

    def directions(self, theta: Array) -> Array:
        """(k, q), orthonormal in standardised coordinates: those in which the gradient is not linear."""
        return self.rule(theta).directions

    # ---- how

    @cached_property
    def _white(self) -> tuple[Array, Array]:
        """s - mean -> standardised coordinates (k, d), and back (d, k)."""
        return whitening(self.component.covariance)

    def _at(self, white: Array) -> Array:
        """Samples (m, d) at standardised coordinates (m, k)."""
        return np.asarray(self.component.mean + white @ self._white[1].T)

    def _finite(self, theta: Array, x: Array) -> Array:
        values = self.log_likelihood.values(theta, x)
        if not np.isfinite(values).all():
            at = ", ".join(f"{number:.3g}" for number in x[int(np.argmin(np.isfinite(values)))])
            raise FloatingPointError(
                f"log_likelihood is not finite at s = ({at}), which lies where the component does or near it, at theta = "
                f"{np.array2string(theta, precision=3, threshold=8)}: write it for all real s (and y), with parameters that "
                "may be any number (logarithms of positive ones), and leave out terms without theta"
            )
        return values

    def rule(self, theta: Array) -> Rule:
        """At theta; the last one is kept while the directions stay."""
        last, key = self._last.get("rule"), theta.tobytes()
        if self._last.get("theta") != key:
            Q = self._bent(theta)
            if last is None or not np.array_equal(Q, last.directions):
                self._last["rule"] = self._made_rule(Q)
            self._last["theta"] = key
        rule: Rule = self._last["rule"]
        return rule

    def _bent(self, theta: Array) -> Array:
        """The directions: those in the span of d/ds d/du log L for each of a few directions u of theta."""
        k, rng = len(self._white[0]), np.random.default_rng(0)
        w = rng.normal(size=(24, k))
        shifts = np.vstack([np.eye(k), -np.eye(k)]) * _MIXED
        x = self._at((w[:, None, :] + shifts[None]).reshape(-1, k))
        projectors, energy = [], np.zeros((k, k))
        for u in rng.normal(size=(3, len(theta))):
            step = _MIXED * max(1.0, float(np.abs(theta).max(initial=0.0))) * u / np.linalg.norm(u)
            change = self._finite(theta + step, x) - self._finite(theta - step, x)
            change = change.reshape(len(w), 2, k)
            slopes = (change[:, 0] - change[:, 1]) / (4 * _MIXED * np.linalg.norm(step))  # d/dw d/du log L, (points, k)
            _, sizes, rows = np.linalg.svd(slopes, full_matrices=False)
            seen = rows[sizes > 1e-4 * max(float(sizes[0]), 1e-12)]  # the others are rounding
            projectors.append(seen.T @ seen)
            energy += slopes.T @ slopes
        values, vectors = np.linalg.eigh(np.mean(projectors, axis=0))
        found = vectors[:, values > 0.99]  # in all spans
        limit = most_variables(self.degree + 1)
        if found.shape[1] == 0:
            return np.eye(k)[:, :1]
        if found.shape[1] > limit:  # those that matter most; the others count as if the gradient were linear in them
            found = found @ np.linalg.eigh(found.T @ energy @ found)[1][:, ::-1][:, :limit]
        if found.shape[1] == k:
            return np.eye(k)
        # which basis of the span does not matter to Hermite series, but points scattered in it must not jump with theta
        left, _, right = np.linalg.svd(found.T @ rng.normal(size=found.shape))
        return np.asarray(found @ left @ right)

    def _made_rule(self, Q: Array) -> Rule:
        (white, _), degree, q = self._white, self.degree, Q.shape[1]
        scalars, vectors = moments_along(self.component, white.T @ Q, degree)
        level = series(q, degree + 1, degree + 1).T @ scalars
        across = series(q, degree, degree + 1).T @ vectors @ white.T  # (m, k): E[w t^alpha] at the nodes
        across -= across @ Q @ Q.T
        size = np.linalg.norm(across, axis=1)
        at = gaussian_points(q, degree + 1)[0] @ Q.T
        kept, half = np.flatnonzero(size > 1e-14), 0.5  # standard deviations of a step across the directions
        step = half * across[kept] / size[kept, None]
        points = self._at(at)
        around = np.vstack([points, self._at(at[kept] + step), self._at(at[kept] - step)])
        slope = size[kept] / (2 * half)
        return Rule(Q, points, level, around, np.concatenate([level, slope, -slope]))
