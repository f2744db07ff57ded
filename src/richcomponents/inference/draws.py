"""THE protection of every answer: safe + share (full - safe).

An answer is a function f(second moments, T) of two views, 0 <= T <= I (pair/views.py). Its safe value is f at the end of T that
needs no evidence (T = 0: residualising, the analysis of covariance); its full value is f at the posterior of T. We report

    safe + share (full - safe),      share = gate max(0, 1 - noise / size),      size = |full - safe|^2,

noise = the jackknife variance of the change + POSTERIOR times its variance over the posterior of T. The gate (0 to 1) says
whether any evidence tells T from the safe end. The squared error of what is reported is

    its jackknife variance over blocks  +  its variance over the posterior  +  (E full - reported)^2, what was held back.

Draws of T go through the f that is not shrunk: where the data tell nothing about T they are as wide as the prior, the share
is small, and the error is large.

IDENTIFIED SET. The identified set of an answer: its range over all admissible T, and nothing else.

Second moments alone allow every 0 <= T <= I. Cov(S1), effects and, after a monotone change of T, A and coefficients are
constant + l'T m for each entry. l'T m = tr(T (l m' + m l') / 2), whose matrix has the eigenvalues (l'm -+ |l||m|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector. Where also
m'T m <= most |m|^2 is known, the ends are

    q l'm -+ sqrt(q (1 - q)) x,     x^2 = |l|^2 |m|^2 - (l'm)^2,     q = min((1 -+ l'm / |l||m|) / 2, most)

(Lagrange: l'T m - mu m'T m over 0 <= T <= I is the positive eigenvalue of a matrix of rank two, whose determinant does not
depend on mu), which with most = 1 are those above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.storage import storable

__all__ = ["Draws", "IdentifiedSet", "Metric", "Shrunk", "range_of_products", "shrink"]

POSTERIOR = 0.1
"""Weight of the variance over the posterior in the noise of a change; that of the blocks has weight one."""

Metric = Callable[[Array], Array]
"""A linear map of the last axes of an answer, after which errors of all entries count alike."""


@storable
@dataclass(frozen=True, eq=False)
class Draws:
    """A quantity: its value (...), its values without each block (B, ...), and at draws of T (m, ...) with weights (m,)."""

    value: Array
    blocks: Array
    posterior: Array
    weight: Array

    @classmethod
    def certain(cls, value: Array, blocks: Array) -> Draws:
        """What does not depend on T."""
        return cls(value, blocks, value[None], np.ones(1))

    def map(self, f: Callable[..., Array], *others: Draws) -> Draws:
        """All of it through the same f."""
        every = (self, *others)
        return Draws(
            f(*(one.value for one in every)),
            f(*(one.blocks for one in every)),
            f(*(one.posterior for one in every)),
            max((one.weight for one in every), key=len),
        )

    def __sub__(self, other: Draws) -> Draws:
        return self.map(np.subtract, other)

    @property
    def mean(self) -> Array:
        """Over the posterior."""
        return np.asarray(np.tensordot(self.weight, self.posterior, 1))

    def over_blocks(self) -> Array:
        """Jackknife variance, entry by entry."""
        return jackknife_variance(self.blocks)

    def over_posterior(self) -> Array:
        """Variance over the posterior of T, entry by entry."""
        return np.asarray(np.tensordot(self.weight, (self.posterior - self.mean) ** 2, 1))


@dataclass(frozen=True, eq=False)
class Shrunk:
    """value : safe + share (full - safe); blocks : the same without each block; variance : see above; share : 0 to 1."""

    value: Array
    blocks: Array
    variance: Array
    share: float
    safe: Draws
    full: Draws

    @classmethod
    def at(cls, safe: Draws, full: Draws, share: float, doubt: float = 1.0) -> Shrunk:
        """At a share that is given; doubt : what other witnesses of the share leave of the doubt about T, 0 to 1."""
        value, blocks = (a + share * (b - a) for a, b in ((safe.value, full.value), (safe.blocks, full.blocks)))
        variance = jackknife_variance(blocks) + doubt * (full.over_posterior() + (full.mean - value) ** 2)
        return cls(value, blocks, variance, share, safe, full)

    @property
    def error(self) -> Array:
        """Standard error."""
        return np.asarray(np.sqrt(self.variance))


def share_of(safe: Draws, full: Draws, gate: float, metric: Metric = np.asarray) -> float:
    """How much of the change from safe to full stands above its noise."""
    change = (full - safe).map(metric)
    noise = float(change.over_blocks().sum() + POSTERIOR * change.over_posterior().sum())
    return gate * max(0.0, 1 - noise / max(float(np.sum(change.value**2)), 1e-300))


def shrink(safe: Draws, full: Draws, gate: float, metric: Metric = np.asarray) -> Shrunk:
    """Safe + share (full - safe)."""
    return Shrunk.at(safe, full, share_of(safe, full, gate, metric))


# ---- the identified set


def range_of_products(left: Array, right: Array, most: float = 1.0) -> tuple[Array, Array]:
    """Ends of left_a' T right_b over 0 <= T <= I, right_b' T right_b <= most |right_b|^2; left (..., m, r), right (..., n, r):
    (..., m, n) each.

    >>> low, high = range_of_products(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    >>> low.item(), high.item()
    (-0.5, 0.5)
    """
    dot = left @ right.mT
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    if most >= 1:
        return (dot - size) / 2, (dot + size) / 2
    turn, across = dot / np.maximum(size, 1e-300), np.sqrt(np.maximum(size**2 - dot**2, 0.0))
    low, high = (np.clip((1 + sign * turn) / 2, 0.0, most) for sign in (-1, 1))
    return low * dot - np.sqrt(low * (1 - low)) * across, high * dot + np.sqrt(high * (1 - high)) * across


@storable
@dataclass(frozen=True)
class IdentifiedSet:
    """All admissible covariances top - rows T rows', 0 <= T <= I, entry by entry: rows (..., d, r); top (..., d, d), an array
    or factors of one."""

    rows: Array
    top: Any

    def ends(self) -> tuple[Array, Array]:
        """Lower and upper end of every entry, (..., d, d) each."""
        low, high = range_of_products(self.rows, self.rows)
        return np.asarray(self.top) - high, np.asarray(self.top) - low

    def variances(self) -> tuple[Array, Array]:
        """Lower and upper end of the variances, (..., d) each."""
        top = self.top.diagonal(axis1=-2, axis2=-1) if isinstance(self.top, np.ndarray) else self.top.diagonal()
        return np.asarray(top - np.sum(self.rows**2, axis=-1)), np.array(top)
