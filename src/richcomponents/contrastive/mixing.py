"""A as it is reported: the summary of what is known of T that is least wrong in squared error.

In canonical coordinates A = D S^-1, S = D^2 + h T h. The inverse turns small errors of T into large ones of A where D is small,
and two values of T are always at hand: the estimate, and T = I, where S = I and A is the regression of V on U. The true A is
never smaller than that regression (S <= I), so it is the safe end, as residualising (T = 0) is for what is U's own. From there

    S_A^-1 = I + share (S^-1 - I),      share = PRIOR_SHARE + (1 - PRIOR_SHARE) sure trust,

* sure : whether the data tell T from I at all: the energy of the cumulants above that of T = I over its error under random
  signs of the blocks, or the distance of T from I by independent errors, from 1 to 3 standard errors. (The gate of covariances
  asks whether T is told from 0; a nearly noiseless V has T near 0, a closed gate, and a well-known A.)
* trust : the part of the change D (S^-1 - I) that stands above its block variance.
* without any evidence a quarter of the way to the prior's T is gone: better than the regression wherever the truth is at least
  an eighth of that way from it. In designs with a small S1, for which the prior is wrong most, it was a quarter of the way
  (medians over 16 draws).

T below LEAST_T / n is not told from LEAST_T / n: D^2 is known to about 1/n, and A = 1/D has no bound.

BEYOND the r shared directions that were found A is unknown. While more directions cannot be excluded (or where few rows let a
view be searched in some principal components only) the regression of V on U is kept there, too, as far as it stands above
noise. Of the canonical correlations beyond, the share w = 1 - (degrees of freedom) / (Bartlett's statistic) is signal
(James and Stein), and at the prior's T the least error has A = w D / S, with S near T where D is small; more than the
regression itself, D, nothing speaks for: A = min(1, w / T) D. Where the shared part is of low rank w is near zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.calibration import block_variance, trust
from richcomponents.contrastive.posterior import PRIOR_CENTRE, FurtherEvidence, Posterior, SharedEnergy, sign_flip_z
from richcomponents.pair.canonical import Canonical, canonical, leftover_statistic
from richcomponents.storage import storable

PRIOR_SHARE = 0.25
"""How far A goes from the regression of V on U to the prior's A without any evidence."""

SURE_FROM, SURE_TO = 1.0, 3.0
"""Standard errors of T from I at which evidence starts and ends to count."""

BLOCK_WEIGHT = 0.5
"""Of the block variance of A: it holds noise of the cumulants that shrinkage by the prior has already taken away."""

LEAST_T = 10.0
"""In units of 1/n."""

ROWS_PER_COLUMN = 1.5
"""Of both views together, below which Bartlett's statistic finds signal in noise."""

PRIOR_T = float(1 / (1 + np.exp(-PRIOR_CENTRE)))
"""T, in all directions, at the prior's centre."""


def told_from_regression(posterior: Posterior, grams: Array, further: FurtherEvidence | None) -> float:
    """`sure`, 0 to 1; grams : (2, B, B, 2r, 2r), the evidence of the cumulants."""
    r, t = posterior.rank, posterior.t
    strengths = [0.0]
    if posterior.order_weights.any():
        projector = SharedEnergy(posterior.correlations).projector
        strengths.append(
            sign_flip_z(np.tensordot(posterior.order_weights, grams, 1), projector(t) - projector(np.eye(r)))
        )
    if further is not None:
        strengths.append(further.strength(t, np.eye(r)))
    return float(np.clip((max(strengths) - SURE_FROM) / (SURE_TO - SURE_FROM), 0.0, 1.0))


def t_of_mixing(posterior: Posterior, sure: float, n: float) -> Array:
    """The T (r, r) at which A is reported, between the estimate (without one: the prior's T) and I; n : independent rows."""
    r, d, h = posterior.rank, posterior.correlations, posterior.h
    values, vectors = np.linalg.eigh(posterior.t if posterior.tau else PRIOR_T * np.eye(r))
    t = (vectors * np.clip(values, min(LEAST_T / n, 1.0), 1.0)) @ vectors.T
    inverse = np.linalg.inv(np.diag(d**2) + h[:, None] * t * h)
    change = d[:, None] * (inverse - np.eye(r))
    shifts = (d[:, None] * inverse * h) @ posterior.t_shifts @ (h[:, None] * inverse)
    share = PRIOR_SHARE + (1 - PRIOR_SHARE) * trust(sure, change, BLOCK_WEIGHT * block_variance(shifts))
    shared = np.linalg.inv(np.eye(r) + share * (inverse - np.eye(r)))
    return np.asarray((shared - np.diag(d**2)) / np.outer(h, h))


@storable
@dataclass(frozen=True)
class Beyond:
    """A beyond the shared directions: into_v (d_v, m) times from_u (m, d_u), coordinates uncorrelated with the shared ones."""

    into_v: Array
    from_u: Array

    @classmethod
    def of(cls, found: Canonical, rank: int) -> Beyond | None:
        """Of canonical coordinates, the first `rank` of which are shared. None where nothing stands above noise, or where there
        are too few rows to tell."""
        if found.n < ROWS_PER_COLUMN * (found.rank_u + found.rank_v):
            return None
        statistic, _ = leftover_statistic(found, rank)
        degrees = (found.rank_u - rank) * (found.rank_v - rank)
        signal = max(0.0, 1 - degrees / statistic) if statistic > 0 else 0.0
        if signal == 0:
            return None
        further = slice(rank, len(found.correlations))
        kept = min(1.0, signal / PRIOR_T) * found.correlations[further]
        return cls(found.v_from_y[:, further] * kept, found.x_from_u[further])

    @classmethod
    def of_rows(cls, rows: Array, n_u: int, n: float, to_x: Array) -> Beyond | None:
        """Of centred rows (m, d_u + d_v), worth n independent ones, of views that were searched in some principal components
        only: the same of what the shared coordinates, to_x (r, d_u), leave of U."""
        if n < ROWS_PER_COLUMN * rows.shape[1]:
            return None
        U, V = rows[:, :n_u], rows[:, n_u:]
        along = to_x @ (U.T @ U / len(rows))  # Cov(x, U); Cov(x) = I
        left = np.hstack([U - U @ to_x.T @ along, V])
        C = left.T @ left / len(rows)
        found = cls.of(canonical(C[:n_u, :n_u], C[:n_u, n_u:], C[n_u:, n_u:], n), 0)
        return None if found is None else cls(found.into_v, found.from_u - (found.from_u @ along.T) @ to_x)

    @property
    def matrix(self) -> Array:
        """(d_v, d_u)."""
        return np.asarray(self.into_v @ self.from_u)
