"""Leading directions of Cov(S1), never far from those of residualising.

A direction may be off by a lot where Cov(S1) itself is off by little: a covariance that is better on average can have a worse
leading direction. The directions are therefore read from

    Cov(S1) at trust * T,

with the trust (see ``trust``) in the rotation that T brings about, measured on F(C) = sum_j w_j v_j v_j' of the k leading
eigenvectors v_j of C. With the weights w_j = lambda_j - lambda_{k+1} of the covariance at T = 0, rotations among equal
eigenvalues count for nothing; for k = 1, F is the projector on v_1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import Logistic
from richcomponents.components.covariance import Spread, top_directions
from richcomponents.contrastive.calibration import block_variance, posterior_variance, trust
from richcomponents.contrastive.intervals import BlockEvidence, replicate
from richcomponents.contrastive.posterior import Posterior

__all__ = ["trust_in_directions"]

POSTERIOR_WEIGHT = 0.5
"""Of the posterior variance, beside the squared standard error: the posterior sees what blocks that agree by chance do not."""

MEASURED = 20
"""Leading directions that the rotation is measured on, and how many more eigenvectors carry it."""


def _leading(covariance: Array, k: int) -> Array:
    """Eigenvectors (..., d, k) of the k largest eigenvalues of (..., d, d), decreasing."""
    return np.asarray(np.linalg.eigh(covariance)[1][..., ::-1][..., :k])


def trust_in_directions(posterior: Posterior, evidence: BlockEvidence, residualised: Spread, k: int) -> float:
    """How much of T to use for the k leading directions of Cov(S1), in [0, gate].

    residualised : Cov(S1) at T = 0 (d, d), in the user's units.

    The doubt is the squared standard error of the change (left-out blocks, second moments included; what the prior pulls; what
    it may have pulled) plus half of its variance over the posterior. All is computed in the span of the shared directions
    and of the leading eigenvectors: nothing else turns.
    """
    r, k = posterior.rank, min(k, MEASURED)
    lift = evidence.canonical.u_from_x[:, :r]
    inside = np.linalg.qr(np.hstack([top_directions(residualised, k + MEASURED)[1].T, lift]))[0]
    rep = replicate(
        replace(evidence, canonical=replace(evidence.canonical, u_from_x=inside.T @ evidence.canonical.u_from_x))
    )
    safe = inside.T @ (residualised @ inside)
    none = np.zeros((r, r))
    rest = safe - rep.basis.cov_s1(none)  # of a wide view: what its canonical coordinates leave out
    values = np.linalg.eigvalsh(safe)[::-1]
    weights = values[:k] - (values[k] if k < len(values) else values[-1])

    def frame(covariance: Array) -> Array:
        v = _leading(covariance + rest, k)
        return np.asarray((v * weights) @ np.swapaxes(v, -1, -2))

    at_t = rep.basis.cov_s1(posterior.t)
    start, end = frame(rep.basis.cov_s1(none)), frame(at_t)
    left_out = frame(rep.bases.cov_s1(Logistic.at(rep.xs).value)) - frame(rep.bases.cov_s1(none))
    pulled = frame(rep.basis.cov_s1(Logistic.at(rep.loose).value)) - end
    may_be_pulled = frame(at_t + rep.shrinkage_directions("cov_s1")) - end
    drawn = frame(rep.basis.cov_s1(posterior.t_draws))
    doubt = block_variance(left_out) + float(np.sum(pulled**2)) + float(np.sum(may_be_pulled**2))
    doubt += POSTERIOR_WEIGHT * posterior_variance(posterior, drawn)
    return trust(posterior.gate, end - start, doubt, timid=True)
