"""Witnesses: answers that are zero in truth (effects on held-out controls), and what they say of all others.

They move the share of the correction: with rho the share, the squared doubt about it and what witnesses get at it,

    (rho - own)^2 / WITNESS_SD^2  +  sum_j (safe_j + rho (full_j - safe_j))^2 / v_j,

are least together. And they widen errors: witnesses are N(0, v_j / weight + omega^2), v_j what their own errors say, all others
N(truth, error^2 + omega^2). omega has DuMouchel's prior, whose median is half the root of the mean of v_j. The mean and the
variance of the precision 1 / (error^2 + omega^2) over the posterior of omega make a t distribution.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array
from richcomponents.inference.draws import Draws, Shrunk

__all__ = ["share_with", "widened"]

WITNESS_SD = 0.5
"""How far witnesses may move the share of the correction, as a standard deviation."""


def share_with(own: float, safe: Draws, full: Draws, weight: float) -> tuple[float, float]:
    """The share rho, and what is left of the doubt about it, 1 / WITNESS_SD^2 over the precision; safe, full : of witnesses.

    v_j : variance of sampling, times the dispersion that is left at the best rho, over the weight.
    """
    at, way, variance = safe.value, full.value - safe.value, safe.over_blocks()
    best = np.clip(-np.sum(at * way / variance) / max(np.sum(way**2 / variance), 1e-300), 0, 1)
    variance = variance * max(1.0, np.sum((at + best * way) ** 2 / variance) / max(at.size - 1, 1)) / weight
    precision = WITNESS_SD**-2 + np.sum(way**2 / variance)
    rho = float(np.clip((own / WITNESS_SD**2 - np.sum(at * way / variance)) / precision, 0, 1))
    return rho, float(WITNESS_SD**-2 / precision)


def widened(
    error: Array, degrees: float, seen: Shrunk | None, weight: float = 1.0, grid: int = 100
) -> tuple[Array, Array]:
    """Errors (p,), in units that they share with the witnesses `seen`, with what is beyond them; degrees of freedom. Without
    witnesses the prior is all that is known of omega, and v_j are the squared errors themselves."""
    steps, log = (np.arange(grid) + 0.5) / grid, np.zeros(grid)
    v = error[error > 0] ** 2 if seen is None else seen.variance
    omega2 = (v.mean() if v.size else 0.0) / 4 * (steps / (1 - steps)) ** 2
    if seen is not None:
        total = v / weight + omega2[:, None]
        log = -0.5 * np.sum(np.log(total) + seen.value**2 / total, axis=1)
    precision, mass = 1 / np.maximum(error**2 + omega2[:, None], 1e-300), np.exp(log - log.max())
    mean = np.average(precision, axis=0, weights=mass)
    spread = np.average((precision / mean - 1) ** 2, axis=0, weights=mass)
    return 1 / np.sqrt(mean), 1 / (spread / 2 + 1 / degrees)
