"""Shrink a change by what is known about it.

Whatever is learned from S1 has a safe value, at T = 0 (residualising), and a corrected one, at the estimate of T. Only the
part of the change between them that stands above its own uncertainty is made:

    value = safe + trust * change,     0 <= trust <= gate.

`doubt` estimates E|change - true change|^2. The shrinkage with the least expected error is 1 - doubt / |change|^2: it is used
for coefficients. Rare draws exceed their doubt severalfold, though, and where the safe value is nearly exact they lose by any
factor. `timid` takes 1 - sqrt(doubt) / |change| instead: the smallest change within one standard error of the estimated
one. It costs little where the evidence is clear, and is used for directions, whose safe value is often nearly exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.posterior import Posterior
from richcomponents.cumulants.jackknife import jackknife_variance

__all__ = ["block_variance", "posterior_variance", "trust", "trust_in_change"]

BLOCK_WEIGHT = 1.5
POSTERIOR_WEIGHT = 0.1
"""Weights of the block and posterior variances of the change (the posterior draws are already inflated)."""


def trust(gate: float, change: Array, doubt: float, *, timid: bool = False) -> float:
    """How much of a change (an array of any shape) to make, in [0, gate]."""
    share = doubt / max(float(np.sum(change**2)), 1e-300)
    return float(gate * max(0.0, 1 - (np.sqrt(share) if timid else share)))


def block_variance(left_out: Array) -> float:
    """Jackknife variance, summed over entries, of values (B, ...) without each block."""
    return float(np.sum(jackknife_variance(left_out))) if len(left_out) else 0.0


def posterior_variance(posterior: Posterior, drawn: Array) -> float:
    """Variance, summed over entries, of values (m, ...) at the posterior draws of T."""
    centred = drawn - np.tensordot(posterior.draw_weights, drawn, 1)
    return float(np.tensordot(posterior.draw_weights, centred**2, 1).sum())


def trust_in_change(posterior: Posterior, change: Array, variants: Callable[[Array], Array]) -> float:
    """How much of a correction (k,) of coefficients to believe.

    variants(g (m, r, r)) : the corrected coefficients (m, k) had E[I - T] been g.
    """
    blocks = block_variance(variants(posterior.mean_g - posterior.t_shifts))
    drawn = posterior_variance(posterior, variants(np.eye(posterior.rank) - posterior.t_draws))
    return trust(posterior.gate, change, BLOCK_WEIGHT * blocks + POSTERIOR_WEIGHT * drawn)
