"""Held-out fit of a solved model, in nats per sample."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.contrastive.canonical import Canonical
from richcomponents.components.contrastive.energy import SharedEnergy
from richcomponents.components.contrastive.evidence import implicit_grams, joint_whitening, pair_mean
from richcomponents.components.contrastive.fit import SharedPart
from richcomponents.components.contrastive.solution import Solution

__all__ = ["higher_order_score", "second_order_score"]


def second_order_score(solution: Solution, u: Array, v: Array) -> float:
    """Mean Gaussian log-density of centred rows (u, v), with a cross-covariance of the fitted rank."""
    sigma = np.block([[solution.cov_u, solution.cross], [solution.cross.T, solution.cov_v]])
    values, vectors = np.linalg.eigh((sigma + sigma.T) / 2)
    values = np.maximum(values, 1e-9 * values[-1])
    z = np.hstack([u, v]) @ vectors
    return float(-0.5 * np.mean(np.sum(z**2 / values, axis=1)) - 0.5 * np.sum(np.log(2 * np.pi * values)))


def higher_order_score(shared: SharedPart, canonical: Canonical, u: Array, v: Array, n_blocks: int) -> float:
    """Energy of the cross-cumulants of new rows inside the fitted row space; `canonical` in the user's units."""
    known, r = shared.identified, shared.rank
    z = np.hstack([u @ canonical.x_from_u[:r].T, v @ canonical.y_from_v[:r].T])
    blocks = min(n_blocks, len(z) // 4)
    if not r or blocks < 2 or not known.order_weights.any():
        return 0.0
    grams = implicit_grams(z, joint_whitening(known.correlations), n_blocks=blocks)
    mean = pair_mean(np.tensordot(known.order_weights, grams, 1), np.ones(blocks), np.ones(blocks))
    return float(np.sum(SharedEnergy(known.correlations).projector(known.t) * mean)) / canonical.n
