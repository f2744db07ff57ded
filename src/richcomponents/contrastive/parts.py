"""The parts of two views at an estimated T: A, the covariances of S1, S2 and S3, their predictors and their cumulants.

How the cumulants of S1, S2 and S3 are read off two views, once A is known or estimated:

With E = U - A^+ V (S2 removed from U) the identities are, for ANY matrices B3 ... Bt,

    k_t(S1) = k_t(E, U, U - B3 V, ..., U - Bt V):

the first slot has no S2, the second no S3, and the others may be chosen for their small variance.
B = 0 is the paper's equation (3) in cross form, B = the regression of U on V the control variate, which lowers the
error of the tensor by a quarter to a half. The same holds for S3 with the views exchanged. For S2,
every cross-cumulant with at least one U and one A^+ V is k_t(S2) (paper, equation (4)).

Maps are (p, d): column j holds the weights of the observed coordinates z in coordinate j.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import power, symmetric
from richcomponents.components.covariance import Factored, Spread, added, check_entries
from richcomponents.components.terms import Term, Terms
from richcomponents.contrastive.bounds import IdentifiedSet
from richcomponents.contrastive.energy import SharedEnergy
from richcomponents.contrastive.evidence import implicit_grams, joint_whitening, pair_mean
from richcomponents.contrastive.intervals import (
    BlockEvidence,
    block_evidence,
)
from richcomponents.contrastive.pair import Pair
from richcomponents.contrastive.posterior import Posterior
from richcomponents.contrastive.two_views import Key, TwoViews
from richcomponents.data.table import as_matrix
from richcomponents.errors import (
    DataError,
)
from richcomponents.storage import storable

__all__ = ["PairOptions", "PairParts", "own_terms", "shared_terms"]

INVERSE_RIDGE = 20.0  # in units of 1/n, the noise of a squared canonical correlation


@storable
@dataclass(frozen=True)
class PairOptions:
    """As in ContrastiveRCA."""

    rank: Any = "auto"
    A: Any = None
    order: int = 4
    random_state: int | None = 0

    @property
    def at_least(self) -> int:
        """Principal components of a wide view that must be looked at."""
        return int(self.rank) if isinstance(self.rank, (int, np.integer)) else 1

    def checked_A(self, d_u: int, d_v: int) -> Array | None:
        """The known mixing matrix (d_v, d_u)."""
        if self.A is None:
            return None
        A = as_matrix(self.A).copy()
        if A.shape != (d_v, d_u):
            raise DataError(
                f"A must have one row per column of V and one column per column of U: shape ({d_v}, {d_u}), got {A.shape}"
            )
        if not np.isfinite(A).all():
            raise DataError("the known A holds missing or infinite values")
        rank = int(np.linalg.matrix_rank(A))
        wanted = self.rank if isinstance(self.rank, (int, np.integer)) else d_u
        if rank < wanted:
            raise DataError(
                f"the known A has no left inverse: its rank is {rank}, so only {rank} of {wanted} shared directions can be "
                "seen in V. Add columns to V, drop dependent columns of U, or give rank= if the shared part has lower rank"
            )
        return A


@dataclass(frozen=True)
class PairParts(TwoViews):
    """The estimator's answers, from T in canonical coordinates.

    On the r shared coordinates S = D^2 + h T h, A = D S^-1, A^+ = S D^-1 (this IS the generalised least-squares
    inverse: only the first r coordinates of y carry S2, with noise I - D S^-1 D), and

        BLUP(S1) = h (I - T) h^-1 (x - D y),    Var(S1 | x, y) = h T (I - T) h.

    Covariances and predictions use T times the gate (Posterior.t_trusted), A and the cumulants T itself. If the
    truth is T* and T is used, the squared error of the prediction is h [T* (I - T*) + (T* - T)^2] h; its mean over the
    posterior draws of T* is reported.

    posterior : what is known of T; truncated : whether `state` holds the leading canonical coordinates only; grams :
    (2, B, B, 2r, 2r), the evidence; lift_u (d_u, r), lift_v (d_v, r) : how the shared coordinates enter EVERY column, also
    where a view was searched for them in its principal components only. Predictions and A use these; covariances of the parts
    use the canonical maps, for which they are positive and add up. known_A : A where it was given;
    second_order_only : too few rows for more; most_rank : that cannot be excluded; lost : rows' worth of freedom
    that covariates took; units : different rows, where they are few, and grouped : whether rows belong to groups.
    """

    options: PairOptions
    posterior: Posterior
    truncated: bool
    grams: Array
    lift_u: Array
    lift_v: Array
    known_A: Array | None
    second_order_only: bool
    most_rank: int
    lost: float
    units: int | None
    grouped: bool

    # ---- A, covariances, predictions

    @property
    def rank(self) -> int:
        return self.posterior.rank

    @property
    def largest_rank(self) -> int:
        return self.most_rank

    @property
    def verdict(self) -> str:
        return self.posterior.verdict

    @property
    def reduced(self) -> bool:
        """Whether U was searched for shared directions in its principal components only."""
        return isinstance(self.cov_u, Factored)

    @cached_property
    def pair(self) -> Pair:
        return Pair.at(self.canonical, self.rank)

    @cached_property
    def _on_u(self) -> Array:
        """S^-1 x_from_u (r, d_u): A = lift_v D of it."""
        return self.pair.from_shared(self.posterior.t)

    @property
    def A(self) -> Array:
        if self.known_A is not None:
            return self.known_A
        check_entries("the matrix A", (len(self.lift_v), self._on_u.shape[1]))
        return np.asarray((self.lift_v * self.posterior.correlations) @ self._on_u)

    def through_A(self, s: Array) -> Array:
        if self.known_A is not None:
            return np.asarray(s @ self.known_A.T)
        return np.asarray((s @ self._on_u.T) @ (self.lift_v * self.posterior.correlations).T)

    @cached_property
    def _covered(self) -> Array:
        """Cov(S2) on the shared coordinates, at the trusted T."""
        return self.pair.shared(self.posterior.t_trusted)

    def covariance(self, key: Key) -> Spread:
        if key == self.keys[0]:
            return added(self.cov_u, self.pair.from_x, -symmetric(self._covered))
        if key == self.keys[1]:
            return self._lifted(self.pair.from_x, self._covered)
        back = self.posterior.correlations[:, None] * np.linalg.inv(self.pair.shared(self.posterior.t))
        return added(self.cov_v, self.pair.from_y, -symmetric(back @ self._covered @ back.T))

    def _lifted(self, lift: Array, core: Array) -> Spread:
        """lift core lift' (d_u, d_u), as factors for a wide view."""
        if self.reduced:
            return Factored(np.zeros((0, len(lift))), lift.T, symmetric(core))
        return symmetric(lift @ symmetric(core) @ lift.T)

    def predict_s2(self, rows: Array) -> Array:
        r, d, (u, v) = self.rank, self.posterior.correlations, self.split(rows)
        h = self.posterior.h
        own = h[:, None] * (np.eye(r) - self.posterior.t_trusted) / h  # BLUP of S1 from x - D y
        x, y = u @ self.pair.to_x.T, v @ self.pair.to_y.T
        return np.asarray((x @ (np.eye(r) - own).T + y @ (own * d).T) @ self.lift_u.T)

    @cached_property
    def error_s2(self) -> Spread:
        draws, trusted, h = self.posterior.t_draws, self.posterior.t_trusted, self.posterior.h
        off = draws - trusted
        error = np.tensordot(self.posterior.draw_weights, draws @ (np.eye(self.rank) - draws) + off @ off, 1)
        return self._lifted(self.lift_u, h[:, None] * error * h)

    @property
    def cross(self) -> tuple[Array, Array]:
        return self.pair.from_x * self.posterior.correlations, self.pair.from_y

    def terms(self, key: Key) -> Terms:
        return self._terms(key, self.truncated)

    def on_rows(self, key: Key, rows: Array) -> tuple[Array, Terms]:
        """All canonical coordinates of centred rows, (n, rank_u + rank_v), and how a component's cumulants are read off
        them."""
        u, v = self.split(rows)
        return np.hstack([u @ self.canonical.x_from_u.T, v @ self.canonical.y_from_v.T]), self._terms(key, False)

    def _terms(self, key: Key, truncated: bool) -> Terms:
        """Slots on z = (x, y): columns are the user's coordinates."""
        found, r, S, d = self.canonical, self.rank, self.pair.shared(self.posterior.t), self.posterior.correlations
        k_u, k_v = (r, r) if truncated else (found.rank_u, found.rank_v)
        # y -> S2 is S D^-1. Where D is of the size of its own noise, D^-1 would multiply the noise of every cumulant without
        # bound: a ridge of a few standard errors squared leaves a little of S2 there instead.
        back = S * (d / (d**2 + INVERSE_RIDGE / max(found.n, 1)))

        def slot(lift: Array, on_x: Array, on_y: Array) -> Array:
            """(k_u + k_v, d) for lift @ (on_x x_1..k + on_y y_1..k)."""
            out = np.zeros((k_u + k_v, len(lift)))
            out[: on_x.shape[1]] = (lift[:, : len(on_x)] @ on_x).T
            out[k_u : k_u + on_y.shape[1]] = (lift[:, : len(on_y)] @ on_y).T
            return out

        none, u, v = np.zeros((0, 0)), found.u_from_x, found.v_from_y
        if key == self.keys[2]:
            forward = d[:, None] * np.linalg.inv(S) if r else none
            return own_terms(slot(v, none, np.eye(k_v)), slot(v, forward, none), slot(v, np.diag(d), none))
        from_v = slot(u, none, back)
        if key == self.keys[0]:
            return own_terms(slot(u, np.eye(k_u), none), from_v, slot(u, none, np.diag(d)))
        # x has noise I - S about S2, S D^-1 y has noise S D^-2 S - S: weigh them by precision
        noise_x = np.eye(r) - S + 1e-9 * np.eye(r)
        noise_y = back @ back.T - S + 1e-9 * np.eye(r)
        share = noise_y @ np.linalg.inv(noise_x + noise_y) if r else none
        best = slot(u, share, (np.eye(r) - share) @ back)
        return shared_terms(slot(u, np.eye(r), none), from_v, best)

    def score(self, rows: Array, n_blocks: int) -> float:
        """As of any two views, plus the energy of the cross-cumulants of the rows inside the fitted row space."""
        total, known = super().score(rows, n_blocks), self.posterior
        blocks = min(n_blocks, len(rows) // 4)
        if not self.rank or blocks < 2 or not known.order_weights.any():
            return total
        u, v = self.split(rows)
        z = np.hstack([u @ self.pair.to_x.T, v @ self.pair.to_y.T])
        seen = implicit_grams(z, joint_whitening(known.correlations), n_blocks=blocks)
        mean = pair_mean(np.tensordot(known.order_weights, seen, 1), np.ones(blocks))
        energy = float(np.sum(SharedEnergy(known.correlations).projector(known.t) * mean))
        return total + energy / self.canonical.n

    @property
    def evident(self) -> bool:
        """Whether the higher orders said something about an A that was not known."""
        return self.rank > 0 and self.posterior.gate > 0 and self.known_A is None

    def block_evidence(self) -> BlockEvidence:
        """What intervals and tests read."""
        return block_evidence(self.canonical, self.posterior, self.state, self.grams, truncated=self.truncated)

    def identified_set(self) -> IdentifiedSet:
        """Ends of Cov(S1), entry by entry, over all admissible T, given the rank, and over all ranks not excluded."""
        d, lift = self.posterior.correlations, self.pair.from_x
        return IdentifiedSet(
            lift * self.posterior.h, added(self.cov_u, lift, -np.diag(d**2)), self.largest_rank > self.rank
        )

    @property
    def root_s2(self) -> Array:
        return np.asarray(self.pair.from_x @ power(self._covered, 0.5, 0.0))


def own_terms(view: Array, shared: Array, regression: Array) -> Terms:
    """Of S1 (or S3 with the views exchanged).

    view : z -> U; shared : z -> A^+ V; regression : z -> E[U | V], linear. All (p, d).
    """
    head = (view - shared, view)
    return Terms(tuple((Term(1.0, head, fill),) for fill in (view - regression, view, head[0])), whole=view)


def shared_terms(one: Array, two: Array, best: Array) -> Terms:
    """Of S2: one : z -> U, two : z -> A^+ V, best : z -> the combination of both with the least noise."""
    return Terms(tuple((Term(1.0, (one, two), fill),) for fill in (best, one, two)))
