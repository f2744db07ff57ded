"""What is known of T, a symmetric matrix with 0 <= T <= I: one optimiser, one Laplace approximation, one step per block.

T = logistic(X), X symmetric and free, keeps every estimate admissible. The prior is hierarchical, few numbers first:

    X = b I + E,     b ~ N(-1, 1.5^2),     Var E_ii = tau^2 + SCATTER / n,  Var E_ij half of that.

The level b is a mixture of narrow laws, weighed by their Laplace evidence: a mode over the level and the entries together goes
to the level at which entries have most room. Entries of the T of a sample scatter about those of the population by
sqrt(SCATTER / n). tau is weighed by left-out blocks: nats of all rows less those without a block, at T without it.

CALIBRATION. Each part of the evidence is right up to a factor; the curvature of a log-likelihood is the variance of its score,
which left-out blocks tell. One rule for every kind of evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from scipy import optimize

from richcomponents.algebra import Array, IntArray
from richcomponents.inference.draws import Draws, jackknife_variance
from richcomponents.inference.verdicts import Test
from richcomponents.storage import storable

__all__ = ["Evidence", "Posterior", "Views", "entries", "infer", "logistic", "multiplicity", "symmetric_of"]

TAUS = (0.3, 1.0)
"""Standard deviations of the entries of logit T, a priori."""

LEVELS = (-3.5, -2.5, -1.5, -0.5, 0.5, 1.5)
"""Centres of the narrow laws of the level b."""

LEVEL, LEVEL_SD, NARROW_SD = -1.0, 1.5, 0.5
"""Centre and standard deviation of the level b, and of each narrow law."""

SCATTER = 30.0
"""Over n: variance of the entries of logit T of a sample about the population's."""

DRAWS = 40
"""Of T, for each level and tau."""


class Views(Protocol):
    """What is asked of second moments: independent rows (...), of a sample or of a stack of replicates, and the rank."""

    @property
    def n(self) -> Array: ...

    @property
    def rank(self) -> int: ...


class Evidence(Protocol):
    """Something that tells T. Its parts are log-likelihoods up to a factor each; `scale` (parts,) makes them nats."""

    @property
    def scale(self) -> Array: ...

    @property
    def name(self) -> str: ...

    def parts(self, pair: Any, T: Array) -> tuple[Array, Array]:
        """Values (parts, ...) and gradients in T (parts, ..., r, r)."""

    def weighed(self, pair: Any, T: Array) -> Evidence:
        """The same, with weights that are right near T."""

    def scaled(self, scale: Array) -> Evidence:
        """The same with other factors."""

    def above_noise(self, values: Array) -> float:
        """The share of a part's values without each block, (B,), that stands above their noise; 1 for a likelihood."""

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


def bend(evidences: Sequence[Evidence], pair: Any, X: Array, step: float = 1e-3) -> Array:
    """Minus the Hessian (m, m) of the nats, by differences of the gradient."""
    moves, chunk = step * np.eye(len(X)), max(1, 200_000 // max(pair.rank, 1) ** 2)
    rows = [
        (score(evidences, pair, X + part)[1] - score(evidences, pair, X - part)[1]) / (2 * step)
        for part in np.split(moves, range(chunk, len(X), chunk))
    ]
    hessian = np.concatenate(rows)
    return np.asarray(-(hessian + hessian.T) / 2)


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
    """X (k, m) at the modes of k posteriors, all at once: the sum of their objectives is least where each is. start (m,) : by
    default the centre of each prior."""
    centre, root = np.stack([one.centre for one in priors]), np.stack([one.root for one in priors])

    def at(s: Array) -> Array:
        return np.asarray(centre + (root @ s[..., None])[..., 0])

    def objective(flat: Array) -> tuple[float, Array]:
        s = flat.reshape(centre.shape)
        value, slope = score(evidences, pair, at(s))
        pulled = (root.mT @ slope[..., None])[..., 0]
        return float(np.sum(s**2) / 2 - value.sum()), (s - pulled).ravel()

    s = np.zeros(centre.shape) if start is None else np.linalg.solve(root, (start - centre)[..., None])[..., 0]
    options = {"maxiter": 200, "ftol": 1e-7, "gtol": 1e-2}  # in standard deviations of the prior
    return at(optimize.minimize(objective, s.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(s.shape))


@dataclass(frozen=True)
class Mode:
    """X (m,) at a mode; the curvature there, in units of the prior: values (m,), axes (m, m); evidence : log of the integral of
    likelihood times prior (Laplace)."""

    X: Array
    evidence: float
    prior: Prior
    values: Array
    axes: Array

    @classmethod
    def of(cls, evidences: Sequence[Evidence], pair: Any, priors: Sequence[Prior]) -> list[Mode]:
        """One for every prior."""
        return [cls._near(evidences, pair, *one) for one in zip(priors, best(evidences, pair, priors), strict=True)]

    @classmethod
    def _near(cls, evidences: Sequence[Evidence], pair: Any, prior: Prior, X: Array) -> Mode:
        """After one Newton step, so that it does not matter where the search stopped."""
        values, axes = np.linalg.eigh(np.eye(len(X)) + prior.root.T @ bend(evidences, pair, X) @ prior.root)
        values, s = np.maximum(values, 0.5), np.linalg.solve(prior.root, X - prior.centre)
        s = s + axes @ ((prior.root.T @ score(evidences, pair, X)[1] - s) @ axes / values)
        X = prior.centre + prior.root @ s
        height = score(evidences, pair, X)[0] - np.sum(s**2) / 2
        return cls(X, float(height - np.log(values).sum() / 2), prior, values, axes)

    def solve(self, rows: Array) -> Array:
        """rows (n, m) times the posterior covariance."""
        return np.asarray((rows @ self.prior.root @ self.axes / self.values) @ self.axes.T @ self.prior.root.T)

    def without_blocks(self, evidences: Sequence[Evidence], pair: Any, left_out: Any) -> Array:
        """T without each block, (B, r, r): one Newton step each."""
        each = np.tile(self.X, (len(left_out.n), 1))
        scores = score(evidences, left_out, each)[1] * (pair.n / left_out.n)[:, None]
        return logistic(symmetric_of(each + self.solve(scores - scores.mean(0))))[0]

    def deviations(self, normal: Array) -> Array:
        """Standard normal rows (n, m) as deviations of X."""
        return np.asarray((normal @ self.axes / np.sqrt(self.values)) @ self.axes.T @ self.prior.root.T)


def calibrated(
    evidences: Sequence[Evidence], pair: Any, left_out: Any, rounds: int = 3
) -> tuple[list[Evidence], dict[str, Test]]:
    """Every part in nats; what says nothing is left out; and the tests of what they assume."""
    prior, loose, used, tests = Prior(pair, 0.5), Prior(pair, 2.0), [], {}
    for one in evidences:
        X = prior.centre
        for _ in range(rounds):
            one = one.weighed(pair, logistic(symmetric_of(X))[0])
            if not one.scale.any():
                break
            X, scale = best([one], pair, [prior], X)[0], np.zeros(len(one.scale))
            for k, unit in enumerate(np.eye(len(scale))):
                alone = one.scaled(unit)
                value, scores = score([alone], left_out, X)
                noise = jackknife_variance(scores * (pair.n / left_out.n)[:, None]).sum()
                curvature = np.trace(bend([alone], pair, X))
                scale[k] = max(0.0, curvature / max(noise, 1e-300)) * one.above_noise(value)
            one = one.scaled(scale)
        if one.scale.any():
            T = logistic(symmetric_of(best([one], pair, [loose], X)[0]))[0]
            share, tests[one.name] = one.use(pair, left_out, T)
            one = one.scaled(one.scale * share)
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

    @property
    def doubt(self) -> Array:
        """E (T - E T)^2, (r, r)."""
        off = self.T.posterior - self.T.value
        return np.asarray(np.tensordot(self.T.weight, off @ off, 1))


def infer(
    pair: Any, left_out: Any, evidences: Sequence[Evidence], seed: int | None = 0, signs: Array | None = None
) -> Posterior:
    """A mode with Laplace draws and one Newton step per left-out block, for every tau and level of the prior; without any
    evidence the prior itself.

    pair : of the whole sample; left_out : a stack, without each block; signs (r,) : of the coordinates, which decompositions
    leave to the machine: draws are made in coordinates with these signs, so that nothing depends on them.
    """
    (evidences, tests), m = calibrated(evidences, pair, left_out), len(entries(np.eye(pair.rank)))
    half = np.random.default_rng(seed).normal(size=(DRAWS // 2, m))
    half = half if signs is None else half * entries(np.outer(signs, signs))
    weights, gains, moves, drawn = [], [], [], []
    for top in Mode.of(evidences, pair, [Prior(pair, tau, level) for tau in TAUS for level in LEVELS]):
        without = top.without_blocks(evidences, pair, left_out)
        weights.append(top.prior.log_weight + top.evidence)
        gains.append(float(np.sum(nats(evidences, pair, without)[0] - nats(evidences, left_out, without)[0])))
        moves.append(without - logistic(symmetric_of(top.X))[0])
        drawn.append(logistic(symmetric_of(top.X + top.deviations(np.concatenate([half, -half]))))[0])
    levels = softmax(np.reshape(weights, (len(TAUS), -1)))
    taus = softmax(np.sum(levels * np.reshape(gains, levels.shape), axis=1))
    weight, draws = (taus[:, None] * levels).ravel(), np.concatenate(drawn)
    each = np.repeat(weight, DRAWS) / DRAWS
    mean = np.tensordot(each, draws, 1)
    return Posterior(
        Draws(mean, mean + np.tensordot(weight, moves, 1), draws, each),
        {one.name: one.scale for one in evidences},
        {one.name: one.strength(pair, mean, np.zeros_like(mean)) for one in evidences},
        tests,
    )


def softmax(a: Array) -> Array:
    a = np.exp(a - a.max(-1, keepdims=True))
    return np.asarray(a / a.sum(-1, keepdims=True))
