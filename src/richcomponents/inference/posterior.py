"""What is known of T, a symmetric matrix with 0 <= T <= I: one optimiser, one Laplace approximation, one step per block.

T = logistic(X), X symmetric and free, keeps every estimate admissible. The prior is hierarchical, few numbers first:

    X = b I + E,     b ~ N(-1, 1.5^2),     Var E_ii = tau^2 + SCATTER / n,  Var E_ij half of that.

The level b is a mixture of narrow laws, weighed by their Laplace evidence: a mode over the level and the entries together goes
to the level at which entries have most room. Entries of the T of a sample scatter about those of the population by
sqrt(SCATTER / n).

CALIBRATION. Each part of the evidence is right up to a factor; the curvature of a log-likelihood is the variance of its score,
which left-out blocks tell. One rule for every kind of evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol

import numpy as np
from scipy import optimize
from scipy.special import softmax

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.inference.draws import Draws
from richcomponents.inference.verdicts import Test
from richcomponents.storage import storable

__all__ = ["Evidence", "Posterior", "Views", "entries", "infer", "logistic", "multiplicity", "symmetric_of"]

TAU = 0.7
"""Standard deviation of the entries of logit T, a priori."""

LEVELS = (-5.5, -4.0, -2.5, -1.0, 0.5, 2.0)
"""Centres of the narrow laws of the level b."""

LEVEL, LEVEL_SD, NARROW_SD = -1.0, 1.5, 0.75
"""Centre and standard deviation of the level b, and of each narrow law."""

SCATTER = 30.0
"""Over n: variance of the entries of logit T of a sample about the population's."""

DRAWS = 40
"""Of T, for each level."""


class Views(Protocol):
    """What is asked of second moments: independent rows (...), of a sample or of a stack of replicates, and the rank."""

    @property
    def n(self) -> Array: ...

    @property
    def rank(self) -> int: ...


class Evidence(Protocol):
    """A dataclass that tells T. Its parts are log-likelihoods up to a factor each; `scale` (parts,) makes them nats."""

    @property
    def scale(self) -> Array: ...

    @property
    def name(self) -> str: ...

    def parts(self, pair: Any, T: Array) -> tuple[Array, Array]:
        """Values (parts, ...) and gradients in T (parts, ..., r, r)."""

    def weighed(self, pair: Any, T: Array) -> Evidence:
        """The same, with weights that are right near T."""

    def above_noise(self, values: Array) -> Array:
        """The share (parts,) of their values without each block, (parts, B), that stands above noise; 1 for a likelihood."""

    def use(self, pair: Any, left_out: Any, T: Array) -> tuple[float, Test]:
        """0 to 1: how far what it assumes may be used, at its own best T, and the test of it."""

    def strength(self, pair: Any, T: Array, end: Array) -> float:
        """How far T is told from the end, in standard errors."""


# ---- T = logistic(X)


@lru_cache(maxsize=64)
def _places(r: int) -> tuple[IntArray, IntArray, IntArray]:
    """Rows and columns of the lower triangle (m,), and where each entry of the matrix (r, r) stands in it."""
    i, j = np.indices((r, r))
    low, high = np.minimum(i, j), np.maximum(i, j)
    return *np.tril_indices(r), high * (high + 1) // 2 + low


def entries(matrix: Array) -> Array:
    """Lower triangles (..., m) of symmetric matrices (..., r, r)."""
    rows, columns, _ = _places(matrix.shape[-1])
    return np.asarray(matrix[..., rows, columns])


def symmetric_of(vector: Array) -> Array:
    """The inverse of `entries`."""
    return np.asarray(vector[..., _places(int(np.sqrt(2 * vector.shape[-1])))[2]])


@lru_cache(maxsize=64)
def multiplicity(r: int) -> Array:
    """How often each entry of the lower triangle stands in the matrix."""
    return entries(2 - np.eye(r))


def logistic(X: Array) -> tuple[Array, Callable[[Array], Array]]:
    """T, and the map from gradients in T to gradients in X (Daleckii and Krein)."""
    a, v = np.linalg.eigh(X)
    a, vt = np.clip(a, -15, 15), v.mT
    gap = (a[..., :, None] - a[..., None, :]) / 2
    far, half = np.abs(gap) > 1e-8, 2 * np.cosh(a / 2)
    quotient = np.where(far, np.sinh(gap) / np.where(far, gap, 1.0), 1.0) / (half[..., :, None] * half[..., None, :])
    return (v / (1 + np.exp(-a))[..., None, :]) @ vt, lambda g: v @ (quotient * (vt @ g @ v)) @ vt


def T_of(X: Array) -> Array:
    """T (..., r, r), from the entries (..., m) of its logit."""
    return logistic(symmetric_of(X))[0]


def nats(evidences: Sequence[Evidence], pair: Any, T: Array) -> tuple[Array, Array]:
    """Of all evidence together: (...), and the gradient in T (..., r, r)."""
    value, slope = np.zeros(T.shape[:-2]), np.zeros(T.shape)
    for one in evidences:
        values, slopes = one.parts(pair, T)
        value, slope = value + np.tensordot(one.scale, values, 1), slope + np.tensordot(one.scale, slopes, 1)
    return value, slope


def score(evidences: Sequence[Evidence], pair: Any, X: Array) -> tuple[Array, Array]:
    """Nats (...) and their gradient (..., m) in the entries of X = logit T, given as (..., m)."""
    T, pull = logistic(symmetric_of(X))
    value, slope = nats(evidences, pair, T)
    return value, entries(pull(slope)) * multiplicity(T.shape[-1])


def score_of_parts(one: Evidence, pair: Any, X: Array) -> tuple[Array, Array]:
    """The same of each part of an evidence, before they are nats: (parts, ...) and (parts, ..., m)."""
    T, pull = logistic(symmetric_of(X))
    values, slopes = one.parts(pair, T)
    return values, entries(pull(slopes)) * multiplicity(T.shape[-1])


def bend(scored: Callable[[Array], tuple[Array, Array]], X: Array, step: float = 1e-3) -> Array:
    """Minus the Hessians (..., k, m, m) at X (k, m), by differences of the gradients of a score. Moves come first, so that
    each X may have a replicate of its own."""
    m, pieces = X.shape[1], max(1, 2 * X.size * X.shape[1] // 100_000)
    places = X + step * np.concatenate([np.eye(m), -np.eye(m)])[:, None]
    found = np.concatenate([scored(part)[1] for part in np.array_split(places, pieces)], axis=-3)
    hessian = np.moveaxis(found[..., :m, :, :] - found[..., m:, :, :], -3, -2) / (2 * step)
    return np.asarray(-(hessian + hessian.mT) / 2)


# ---- prior, mode, posterior


class Prior:
    """Of the entries (m,) of logit T, at one level and tau: centre (m,) and root (m, m) of their covariance; log_weight : log
    of the probability of this level, but for a constant."""

    def __init__(self, pair: Views, tau: float, level: float = LEVEL, centre: Array | None = None) -> None:
        identity = entries(np.eye(pair.rank))
        entry = np.diag((tau**2 + SCATTER / float(pair.n)) / multiplicity(pair.rank))
        self.centre = level * identity if centre is None else centre
        self.root = np.linalg.cholesky(entry + NARROW_SD**2 * np.outer(identity, identity))
        self.log_weight = -(((level - LEVEL) / LEVEL_SD) ** 2) / 2


def best(evidences: Sequence[Evidence], pair: Any, priors: Sequence[Prior], start: Array | None = None) -> Array:
    """X (k, m) at the modes of k posteriors; start (m,) : by default the centre of each prior."""
    return Modes.of(evidences, pair, priors, start).X


def at_best(one: Any, pair: Any, prior: Prior, rounds: int = 3) -> tuple[Any, Array]:
    """An evidence with weights that are right near its own best T, and the entries of logit T there."""
    X = prior.centre
    for _ in range(rounds):
        one = one.weighed(pair, T_of(X))
        X = best([one], pair, [prior], X)[0]
    return one, X


@dataclass(frozen=True, eq=False)
class Modes:
    """X (k, m) at the modes of k posteriors; the curvature there, in units of the priors, whose roots are root (k, m, m):
    values (k, m), axes (k, m, m); evidence (k,) : log of the integral of likelihood times prior (Laplace)."""

    X: Array
    evidence: Array
    root: Array
    values: Array
    axes: Array

    @classmethod
    def of(cls, evidences: Sequence[Evidence], pair: Any, priors: Sequence[Prior], start: Array | None = None) -> Modes:
        """One for every prior, all at once: the sum of their objectives is least where each is. Newton steps follow the search,
        so that it does not matter where it stopped."""
        centre, root = np.stack([one.centre for one in priors]), np.stack([one.root for one in priors])

        def at(s: Array) -> Array:
            return np.asarray(centre + (root @ s[..., None])[..., 0])

        def objective(flat: Array) -> tuple[float, Array]:
            s = flat.reshape(centre.shape)
            value, slope = score(evidences, pair, at(s))
            pulled = (root.mT @ slope[..., None])[..., 0]
            return float(np.sum(s**2) / 2 - value.sum()), (s - pulled).ravel()

        s = np.zeros(centre.shape) if start is None else np.linalg.solve(root, (start - centre)[..., None])[..., 0]
        options = {"maxiter": 500, "ftol": 1e-11, "gtol": 1e-2}  # in standard deviations of the prior
        found = optimize.minimize(objective, s.ravel(), jac=True, method="L-BFGS-B", options=options)
        s, step = found.x.reshape(s.shape), np.full(1, np.inf)
        for _ in range(30):
            X = at(s)
            if np.abs(step).max() < 1e-7:
                break
            values, axes = np.linalg.eigh(
                np.eye(X.shape[1]) + root.mT @ bend(partial(score, evidences, pair), X) @ root
            )
            values = np.maximum(values, 0.5)
            pulled = axes.mT @ (root.mT @ score(evidences, pair, X)[1][..., None] - s[..., None])
            step = (axes @ (pulled / values[..., None]))[..., 0]
            s = s + step
        height = score(evidences, pair, X)[0] - np.sum(s**2, -1) / 2
        return cls(X, height - np.log(values).sum(-1) / 2, root, values, axes)

    def without_blocks(self, evidences: Sequence[Evidence], pair: Any, left_out: Any) -> Array:
        """T without each block, (k, B, r, r): one Newton step each."""
        each = np.repeat(self.X[:, None], len(left_out.n), axis=1)
        scores = score(evidences, left_out, each)[1] * (pair.n / left_out.n)[:, None]
        scaled = (scores - scores.mean(1, keepdims=True)) @ self.root @ self.axes / self.values[:, None]
        return T_of(each + scaled @ self.axes.mT @ self.root.mT)

    def drawn(self, normal: Array) -> Array:
        """T (k, n, r, r) at the deviations that standard normal rows (n, m) are."""
        deviations = (normal @ self.axes / np.sqrt(self.values)[:, None]) @ self.axes.mT @ self.root.mT
        return T_of(self.X[:, None] + deviations)


def calibrated(
    evidences: Sequence[Any], pair: Any, left_out: Any, rounds: int = 3
) -> tuple[list[Evidence], dict[str, Test]]:
    """Every part in nats; what says nothing is left out; and the tests of what they assume."""
    prior, loose, used, tests = Prior(pair, 0.5), Prior(pair, 2.0), [], {}
    for one in evidences:
        X = prior.centre
        for _ in range(rounds):
            one = one.weighed(pair, T_of(X))
            if not one.scale.any():
                break
            X = best([one], pair, [prior], X)[0]
            values, scores = score_of_parts(one, left_out, X)
            noise = jackknife_variance(np.moveaxis(scores * (pair.n / left_out.n)[:, None], 1, 0)).sum(-1)
            curvature = np.trace(bend(partial(score_of_parts, one, pair), X[None])[:, 0], axis1=-2, axis2=-1)
            scale = np.maximum(curvature / np.maximum(noise, 1e-300), 0.0) * one.above_noise(values)
            one = replace(one, scale=scale)
        if one.scale.any():
            T = T_of(best([one], pair, [loose], X)[0])
            share, tests[one.name] = one.use(pair, left_out, T)
            one = replace(one, scale=one.scale * share)
        if one.scale.any():
            used.append(one)
    return used, tests


@storable
@dataclass(frozen=True, eq=False)
class Posterior:
    """T (r, r) as Draws; scales, strengths : by the name of an evidence that says something: the factors that make its parts
    nats, and how far T is told from T = 0, in standard errors; tests : of what each assumes."""

    T: Draws
    scales: dict[str, Array] = field(default_factory=dict)
    strengths: dict[str, float] = field(default_factory=dict)
    tests: dict[str, Test] = field(default_factory=dict)

    def resampled(self, size: int, most: int = 20_000_000) -> Posterior:
        """With fewer draws, where an answer of so many numbers would not fit."""
        count = max(DRAWS, most // max(size, 1))
        if count >= len(self.T.weight):
            return self
        at = np.searchsorted(np.cumsum(self.T.weight), (np.arange(count) + 0.5) / count).clip(
            max=len(self.T.weight) - 1
        )
        return replace(self, T=replace(self.T, posterior=self.T.posterior[at], weight=np.full(count, 1 / count)))

    @cached_property
    def doubt(self) -> Array:
        """E (T - E T)^2, (r, r)."""
        off = self.T.posterior - self.T.value
        return np.asarray(np.tensordot(self.T.weight, off @ off, 1))


def infer(
    pair: Any, left_out: Any, evidences: Sequence[Evidence], seed: int | None = 0, signs: Array | None = None
) -> Posterior:
    """A mode with Laplace draws and one Newton step per left-out block, for every level of the prior; without any evidence the
    prior itself.

    pair : of the whole sample; left_out : a stack, without each block; signs (r,) : of the coordinates, which decompositions
    leave to the machine: draws are made in coordinates with these signs, so that nothing depends on them.
    """
    (evidences, tests), m = calibrated(evidences, pair, left_out), len(entries(np.eye(pair.rank)))
    half = np.random.default_rng(seed).normal(size=(DRAWS // 2, m))
    half = half if signs is None else half * entries(np.outer(signs, signs))
    priors = [Prior(pair, TAU, level) for level in LEVELS]
    tops = Modes.of(evidences, pair, priors)
    moves = tops.without_blocks(evidences, pair, left_out) - T_of(tops.X)[:, None]
    weight = softmax([one.log_weight for one in priors] + tops.evidence)
    draws = np.concatenate(tops.drawn(np.concatenate([half, -half])))
    each = np.repeat(weight, DRAWS) / DRAWS
    mean = np.tensordot(each, draws, 1)
    return Posterior(
        Draws(mean, mean + np.tensordot(weight, moves, 1), draws, each),
        {one.name: one.scale for one in evidences},
        {one.name: one.strength(pair, mean, np.zeros_like(mean)) for one in evidences},
        tests,
    )
