"""Held-out fit of a solved model, in nats per sample."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.components.covariance import Factored, Spread, gaussian_score
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.energy import SharedEnergy
from richcomponents.contrastive.evidence import implicit_grams, joint_whitening, pair_mean
from richcomponents.contrastive.fit import SharedPart
from richcomponents.contrastive.solution import Solution

__all__ = ["higher_order_score", "second_order_score"]


def second_order_score(solution: Solution, u: Array, v: Array) -> float:
    """Mean Gaussian log-density of centred rows (u, v), with a cross-covariance of the fitted rank."""
    return gaussian_score(_joint(solution), np.hstack([u, v]))


def _joint(solution: Solution) -> Spread:
    """Cov(U, V), (d_u + d_v, d_u + d_v), as factors where one of the views is wide."""
    cov_u, cov_v, (left, right) = solution.cov_u, solution.cov_v, solution.cross
    if not isinstance(cov_u, Factored) and not isinstance(cov_v, Factored):
        cross = left @ right.T
        sigma = np.block([[cov_u, cross], [cross.T, cov_v]])
        return np.asarray((sigma + sigma.T) / 2)
    u, v = (
        C if isinstance(C, Factored) else Factored.of(np.zeros((0, len(C)))).plus(np.eye(len(C)), C)
        for C in (cov_u, cov_v)
    )
    k = left.shape[1]
    both = Factored(
        linalg.block_diag(u.rows, v.rows), linalg.block_diag(u.lift, v.lift), linalg.block_diag(u.core, v.core)
    )
    return both.plus(linalg.block_diag(left.T, right.T), np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(k)))


def higher_order_score(shared: SharedPart, canonical: Canonical, u: Array, v: Array, n_blocks: int) -> float:
    """Energy of the cross-cumulants of new rows inside the fitted row space; `canonical` in the user's units."""
    known, r = shared.identified, shared.rank
    z = np.hstack([u @ canonical.x_from_u[:r].T, v @ canonical.y_from_v[:r].T])
    blocks = min(n_blocks, len(z) // 4)
    if not r or blocks < 2 or not known.order_weights.any():
        return 0.0
    grams = implicit_grams(z, joint_whitening(known.correlations), n_blocks=blocks)
    mean = pair_mean(np.tensordot(known.order_weights, grams, 1), np.ones(blocks))
    return float(np.sum(SharedEnergy(known.correlations).projector(known.t) * mean)) / canonical.n
