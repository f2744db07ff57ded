"""THE protection of every answer: safe + share (full - safe).

An answer is a function f(second moments, T) of two views, 0 <= T <= I (pair/views.py). Its safe value is f at the end of T that
needs no evidence (T = 0: residualising, the analysis of covariance); its full value is f at the posterior of T. We report

    safe + share (full - safe),      share = gate max(0, 1 - noise / size),      size = |full - safe|^2,

noise = the jackknife variance of the change + POSTERIOR times its variance over the posterior of T. The gate (0 to 1) says
whether any evidence tells T from the safe end. The squared error of what is reported is

    its jackknife variance over blocks  +  its variance over the posterior  +  (E full - reported)^2, what was held back.

Draws of T go through the f that is not shrunk: where the data tell nothing about T they are as wide as the prior, the share
is small, and the error is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.storage import storable

__all__ = ["Draws", "Metric", "Shrunk", "shrink"]

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
