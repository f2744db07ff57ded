"""The estimator of the contrastive model: what two views say about S1, S2 and S3, in the user's units.

On the r shared coordinates S = D^2 + h T h, A = D S^-1, A^+ = S D^-1 (this IS the generalised least-squares inverse: only the
first r coordinates of y carry S2, with noise I - D S^-1 D), and

    BLUP(S1) = h (I - T) h^-1 (x - D y),    Var(S1 | x, y) = h T (I - T) h.

Every number is an answer of `PairFit` (pair/views.py). Cov(S1) is linear in T, so that the protected one is that at share E[T]:
predictions use that T, cumulants E[T] itself. A has its safe end at T = I, the regression of V on U. S3 is S1 of the exchanged
views.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT, jackknife_variance, power, symmetric
from richcomponents.components.component import Terms, own_terms, shared_terms
from richcomponents.components.wide import Factored, LinearMap, SearchSpace, Spread, added, check_entries
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate
from richcomponents.errors import (
    CapacityError,
    DataError,
    SampleSizeWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    warn_user,
)
from richcomponents.inference.draws import Draws, IdentifiedSet, range_of_products
from richcomponents.inference.posterior import Evidence, Posterior
from richcomponents.inference.verdicts import Test, Verdict
from richcomponents.learning.coefficients import (
    WEAK_INSTRUMENT,
    Coefficients,
    OnOwnPart,
    check_determined,
    is_determined,
    on_prediction,
    simple_map,
)
from richcomponents.learning.outcome import Outcome, OutcomeOnV
from richcomponents.moments import Layout, Moments
from richcomponents.moments.data import AffineMap, Data
from richcomponents.pair.diagnostics import ADVICE, Diagnostics
from richcomponents.pair.evidence import (
    CrossCumulants,
    KnownMixing,
    Spiked,
    UncorrelatedOwnParts,
    check_known_mixing,
    form_of,
    grams,
    implicit_grams,
)
from richcomponents.pair.two_views import Key, Target, TwoViews, checked_A
from richcomponents.pair.views import (
    MOST_CORRECTED,
    Answer,
    BlockSums,
    Canonical,
    Pair,
    PairFit,
    canonical,
    canonical_coordinates,
    every_column,
    first_copies,
    largest_rank,
    leftover_statistic,
    leftover_test,
    resolve_rank,
    unseen,
)
from richcomponents.storage import storable

MIN_ROWS, MIN_BLOCKS = 40, 10
"""Below, blocks of rows say nothing about T, and rows nothing about hidden classes."""

LEAST_T = 10.0
"""Over n: T is not told from so much, and A = 1 / D has no bound."""


@storable
@dataclass(frozen=True)
class PairSolution(TwoViews):
    """The estimator's answers.

    errors, random_state : as in ContrastiveRCA; sums : second moments of all canonical coordinates, by block; grams_xy
    (2, B, B, 2m, 2m) : of the cumulants of the m corrected directions, in (x, y); lift_u (d_u, r), lift_v (d_v, r) : how the
    shared coordinates enter EVERY column, also where a view was searched for them in its principal components only; known_A : A
    where it was given; signs (m,) : of the corrected directions, as the data have them; few_rows : too few rows for anything
    but second moments; units : different rows, where they are few, and grouped : whether rows belong to groups; exchanged_ :
    whether the first view is the user's second; posterior : of T, once it was asked for.
    """

    errors: tuple[str, str]
    random_state: int | None
    sums: BlockSums
    grams_xy: Array
    lift_u: Array
    lift_v: Array
    signs: Array
    known_A: Array | None
    few_rows: bool
    units: int | None
    grouped: bool
    exchanged_: bool = False
    posterior: Posterior | None = None

    infers_T = True

    @cached_property
    def pair(self) -> Pair:
        return Pair.whole(self.canonical, len(self.sums.count), self.rank)

    @cached_property
    def left_out(self) -> Pair:
        """Without each block."""
        return Pair.left_out(self.canonical, self.sums, self.rank)

    @cached_property
    def fit(self) -> PairFit:
        """Second moments, and what is known of T: inferred when it is asked for first."""
        if self.posterior is not None:
            return PairFit(self.pair, self.left_out, self.posterior)
        fit = PairFit.of(self.pair, self.left_out, self._evidences(), self.random_state, self.signs)
        object.__setattr__(self, "posterior", fit.posterior)
        return fit

    def _fit_of_directions(self, k: int) -> PairFit:
        """Of the k leading directions of S1: that S1 is spiked tells T better, as far as it is not rejected. It is never the
        only witness: whether T is told at all (the gate) is what the others say."""
        told = self.fit
        if told.gate == 0 or self.reduced_views or self.errors[0] == "independent" or k > self.canonical.rank_u - 2:
            return told
        found = PairFit.of(self.pair, self.left_out, self._evidences(k), self.random_state, self.signs).posterior
        strengths = told.posterior.strengths
        return replace(told, posterior=replace(found, strengths=strengths)) if Spiked.name in found.scales else told

    def _evidences(self, spiked: int = 0) -> list[Evidence]:
        """What tells T: A if it is known; else cumulants and, unless they are "free", independent errors of columns. spiked :
        so many directions of S1, instead of errors of U."""
        if self.few_rows:
            return []
        evidences: list[Evidence] = [] if self.known_A is None else [KnownMixing(A=self.known_A)]
        if self.known_A is None and self.grams_xy.any():
            evidences.append(CrossCumulants(self.grams_xy))
        if self.reduced_views or (self.known_A is not None and not spiked):
            return evidences
        groups = []
        for covariance, one in zip((self.cov_u, self.cov_v), self.errors, strict=True):
            first = first_copies(np.asarray(covariance))  # a copy has the error of the first, a constant column none
            groups.append(np.where((first == np.arange(len(first))) & (one != "free"), first, -1))
        if spiked:
            return [*evidences, Spiked(k=spiked, groups_v=groups[1])]
        stated = all(one == "independent" for one in self.errors)
        return [*evidences, UncorrelatedOwnParts(groups_u=groups[0], groups_v=groups[1], stated=stated)]

    # ---- A, covariances, predictions

    @property
    def correlations(self) -> Array:
        """D of the shared directions, (r,)."""
        return self.canonical.correlations[: self.rank]

    @property
    def white(self) -> Array:
        """(d_u, rank_u): loadings of the canonical coordinates of U."""
        return self.canonical.u_from_x

    @property
    def reduced(self) -> bool:
        """Whether U was searched for shared directions in its principal components only."""
        return isinstance(self.cov_u, Factored)

    @cached_property
    def share(self) -> float:
        """How much of the correction of Cov(S1) is made."""
        return self.fit.answer(lambda pair, T, _: pair.own_x(T)).share if self.rank else 0.0

    @cached_property
    def T(self) -> Array:
        """(r, r): share E[T], at which Cov(S1) is reported."""
        return np.asarray(self.share * self.fit.posterior.T.value)

    @cached_property
    def _share_of_mixing(self) -> float:
        """How far A is from its safe end, T = I."""

        def mixing(pair: Pair, T: Array, _: Array) -> Array:
            """A in white units of both views, in the coordinates of the whole sample."""
            return np.asarray(pair.from_y @ pair.K.mT @ np.linalg.solve(pair.S(least(pair, T)), pair.to_x))

        return self.fit.answer(mixing, end=1.0).share if self.rank else 0.0

    @cached_property
    def _on_u(self) -> Array:
        """(r, d_u): A = lift_v D of it."""
        r, at = self.rank, self._share_of_mixing
        inverse = np.linalg.inv(self.pair.S(least(self.pair, self.fit.posterior.T.value)))  # of S, in A = D S^-1
        return np.asarray(((1 - at) * np.eye(r) + at * inverse) @ self.canonical.x_from_u[:r])

    @property
    def A(self) -> Array:
        if self.known_A is not None:
            return self.known_A
        check_entries("the matrix A", (len(self.lift_v), self._on_u.shape[1]))
        return np.asarray((self.lift_v * self.correlations) @ self._on_u)

    def through_A(self, s: Array) -> Array:
        if self.known_A is not None:
            return super().through_A(s)
        return np.asarray((s @ self._on_u.T) @ (self.lift_v * self.correlations).T)

    def covariance(self, key: Key) -> Spread:
        if key == self.keys[2]:
            return self.exchanged.covariance(key)
        lift, S = self.canonical.u_from_x[:, : self.rank], self.pair.S(self.T)
        return added(self.cov_u, lift, -symmetric(S)) if key == self.keys[0] else self._lifted(lift, S)

    def _lifted(self, lift: Array, core: Array) -> Spread:
        """lift core lift' (d_u, d_u), as factors for a wide view."""
        core = symmetric(core)
        return Factored(np.zeros((0, len(lift))), lift.T, core) if self.reduced else symmetric(lift @ core @ lift.T)

    def predict_s2(self, rows: Array) -> Array:
        return np.asarray(self.coordinates(rows, self.rank) @ shared_prediction(self.pair, self.T) @ self.lift_u.T)

    @cached_property
    def error_s2(self) -> Spread:
        """If the truth is T* and T is used, h [T* (I - T*) + (T* - T)^2] h: its mean over the posterior."""
        drawn, h = self.fit.posterior.T, self.pair.h
        off = drawn.posterior - self.T
        error = np.tensordot(drawn.weight, drawn.posterior @ (np.eye(self.rank) - drawn.posterior) + off @ off, 1)
        return self._lifted(self.lift_u, h @ error @ h)

    @property
    def cross(self) -> tuple[Array, Array]:
        r = self.rank
        return self.canonical.u_from_x[:, :r] * self.correlations, self.canonical.v_from_y[:, :r]

    def terms(self, key: Key) -> Terms:
        """Slots on z = (x, y): columns are the user's coordinates."""
        found, r, d = self.canonical, self.rank, self.correlations
        S, k_u, k_v = self.pair.S(self.fit.posterior.T.value), found.rank_u, found.rank_v
        # y -> S2 is S D^-1. Where D is of the size of its own noise, D^-1 would multiply the noise of every cumulant without
        # bound: a ridge of a few standard errors squared leaves a little of S2 there instead.
        back = S * (d / (d**2 + WEAK_INSTRUMENT / max(found.n, 1)))

        def slot(lift: Array, on_x: Array, on_y: Array) -> Array:
            """(k_u + k_v, d) for lift @ (on_x x_1..k + on_y y_1..k)."""
            out = np.zeros((k_u + k_v, len(lift)))
            for first, one in ((0, on_x), (k_u, on_y)):
                out[first : first + one.shape[1]] = (lift[:, : len(one)] @ one).T
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
        part = noise_y @ np.linalg.inv(noise_x + noise_y) if r else none
        best = slot(u, part, (np.eye(r) - part) @ back)
        return shared_terms(slot(u, np.eye(r), none), from_v, best)

    def on_rows(self, key: Key, rows: Array) -> tuple[Array, Terms]:
        """All canonical coordinates of centred rows, (n, rank_u + rank_v), and how a component's cumulants are read off
        them."""
        return self.coordinates(rows), self.terms(key)

    def coordinates(self, rows: Array, k: int | None = None) -> Array:
        """(x_1..x_k, y_1..y_k), of centred rows; all of them by default."""
        u, v = self.split(rows)
        return np.hstack([u @ self.canonical.x_from_u[:k].T, v @ self.canonical.y_from_v[:k].T])

    def score(self, rows: Array, n_blocks: int) -> float:
        """As of any two views, plus the energy of the cross-cumulants of the rows inside the fitted row space."""
        total, blocks, m = super().score(rows, n_blocks), min(n_blocks, len(rows) // 4), self.pair.corrected
        if not m or blocks < 2 or CrossCumulants.name not in self.fit.posterior.scales:
            return total
        seen = implicit_grams(self.coordinates(rows, m), self.correlations[:m], n_blocks=blocks)
        cumulants = CrossCumulants(seen)
        held_out = replace(self.pair.leading(), kept=np.ones(blocks))
        energy = cumulants.scale @ cumulants.parts(held_out, self.fit.posterior.T.value[:m, :m])[0]
        return total + float(energy) / self.canonical.n

    def identified_set(self) -> IdentifiedSet:
        """Ends of Cov(S1), entry by entry."""
        return IdentifiedSet(self._widest(self.pair), self.cov_residual(self.rank))

    @property
    def root_s2(self) -> Array:
        return np.asarray(self.canonical.u_from_x[:, : self.rank] @ power(self.pair.S(self.T), 0.5, 0.0))

    @cached_property
    def exchanged(self) -> PairSolution:
        """The same two views with V first: S3 is its S1."""
        found, m = self.canonical.exchanged(), self.pair.corrected
        order = np.concatenate([np.arange(found.rank_u) + found.rank_v, np.arange(found.rank_v)])
        swap = np.concatenate([np.arange(m, 2 * m), np.arange(m)])
        A = None if self.known_A is None else np.asarray(np.linalg.pinv(self.known_A), dtype=np.float64)
        return replace(
            self,
            keys=(self.keys[2], self.keys[1], self.keys[0]),
            views=(self.views[1], self.views[0]),
            canonical=found,
            state=self.state.select(order),
            cov_u=self.cov_v,
            cov_v=self.cov_u,
            mixing_test=None,
            errors=(self.errors[1], self.errors[0]),
            posterior=None,
            sums=self.sums.select(order),
            grams_xy=self.grams_xy[..., swap[:, None], swap],
            lift_u=self.lift_v,
            lift_v=self.lift_u,
            known_A=A,
            exchanged_=not self.exchanged_,
        )

    def solved_for(self, key: Key) -> PairSolution:
        return self.exchanged if key == self.keys[2] else self

    # ---- outcomes that depend on S1

    def stand_in(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """R, or, of S2, what the shared variates of V predict of U: the prediction at T = 0."""
        if key != self.keys[1]:
            return self.residual(key, rows, beside)
        return np.asarray((self.variates(rows, self.rank) * self.correlations) @ self.lift_u.T)

    def residual(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """R (n, d_u): what is left of every column of U after regression on the shared variates of V, or on the first `beside`
        of all; U itself for S2, which lives in both views."""
        u, k = self.split(rows)[0], self.rank if beside is None else beside
        lift = self.lift_u if k == self.rank else self.canonical.u_from_x[:, :k]
        left = 0.0 if key == self.keys[1] else (self.variates(rows, k) * self.canonical.correlations[:k]) @ lift.T
        return np.asarray(u - left)

    def variates(self, rows: Array, k: int) -> Array:
        """y_1..y_k (n, k) of V."""
        return np.asarray(self.split(rows)[1] @ self.canonical.y_from_v[:k].T)

    def on_v(self, outcome: Outcome) -> OutcomeOnV:
        """What an outcome has to do with V."""
        return OutcomeOnV.of(outcome, self) if outcome.on_v is None else outcome.on_v

    @property
    def coefficients_wanted(self) -> int:
        """Coefficients of least squares on U and the shared part of V."""
        return int(np.sum(self.cov_u.diagonal() > 0)) + self.rank

    def determined(self, covariates: int) -> bool:
        """Whether there are more independent rows than coefficients, those of the covariates included."""
        return is_determined(self, self.cov_u, self.coefficients_wanted + covariates)

    def check_determined(self, key: Key, covariates: int) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        if key != self.keys[1]:
            wanted = self.coefficients_wanted
            check_determined(self, self.cov_u, self.views[0], self.d_u, wanted, self.rank, covariates)

    def calibrate(self, key: Key, outcome: Outcome) -> Coefficients:
        """Coefficients of an outcome on a component. Log-odds : of R, and of variates of V beside it."""
        if key == self.keys[1]:
            return self._on_shared(outcome)
        if self.reduced and outcome.on_v is not None and outcome.on_v.stated:
            raise DataError(
                f"the first view ({self.d_u} columns for {self.n} samples) was searched in its principal components only, "
                "where an outcome that depends on both parts is not supported: name fewer columns, or use more samples"
            )
        return OnOwnPart.of(self, outcome).coefficients(outcome)

    def cov_residual(self, beside: int) -> Spread:
        """Cov(R), R the residual of U on the first `beside` variates of V."""
        squares = np.diag(self.canonical.correlations[:beside] ** 2)
        return added(self.cov_u, self.canonical.u_from_x[:, :beside], -squares)

    def _on_shared(self, outcome: Outcome) -> Coefficients:
        """Coefficients on S2, in the shared coordinates z = (x_1..x_r, y_1..y_r): from what V predicts of U, which needs no T,
        to the prediction at T from both views."""
        if not self.rank:
            raise DataError(
                f"the views share nothing: there is no {self.keys[1]!r} that an outcome could depend on. Use {self.keys[0]!r}"
            )
        r, found = self.rank, self.canonical
        x, y, none = np.arange(r), np.arange(r, 2 * r), np.zeros(0, dtype=np.int64)
        return on_prediction(
            self.coordinates(outcome.rows, r),
            outcome,
            LinearMap(found.x_from_u[:r], self.lift_u),
            lambda C: simple_map(C, x, y, none, r, found.n),
            shared_prediction(self.pair, self.T),
            self._shared_predictions(),
            covariance=self.pair.S(self.T),
            lifted=partial(self._lifted, self.lift_u),
            wanted=r,
            name="instrumental",
        )

    def _shared_predictions(self) -> list[Array] | None:
        """The prediction of S2 in the shared coordinates of the whole sample, without each block; None of wide views."""
        if self.reduced_views:
            return None
        r, pairs = self.rank, self.left_out
        maps = shared_prediction(pairs, self.share * self.fit.posterior.T.blocks)
        into = np.zeros((len(maps), 2 * r, 2 * r))  # (x, y) of the whole sample -> those of the replicate
        into[:, :r, :r], into[:, r:, r:] = pairs.to_x[..., :r], pairs.to_y[..., :r]
        return list(into.mT @ maps @ pairs.from_x[..., :r, :].mT)

    # ---- how sure it is

    _answers: ClassVar[dict[str, Answer]] = {
        "mixing": lambda pair, T, _: pair.mixing(least(pair, T)),
        "cov_s1": lambda pair, T, _: pair.cov_s1(T),
        "cov_s2": lambda pair, T, _: pair.cov_s2(T),
        "var_s1": lambda pair, T, _: pair.var_s1(T),
    }

    def interval(self, what: Target) -> Estimate:
        """Of A, of the covariance of a component or of Var(S1), with its identified set."""
        if what == "cov_s3":
            return self.exchanged.interval("cov_s1")
        degrees = max(len(self.sums.count) - 1, 1)
        if what == "mixing":
            value, end, share = self.A, 1.0, self._share_of_mixing
            if self.known_A is not None:
                return Estimate(value, np.zeros_like(value), degrees)
            if self.largest_rank > self.rank or not self.rank:
                return Estimate.unbounded(value)  # directions that cannot be excluded may have any image
        else:
            own, end, share = self.covariance(self.keys[int(what[-1]) - 1]), 0.0, self.share
            value = np.array(own.diagonal()) if what == "var_s1" else np.asarray(own)
        found = self.fit.answer(self._answers[what], end=end, share=share)
        if not self.largest_rank:
            return Estimate(value, found.error, degrees)
        (low, high), error, errors = self._ends(what, self.pair), found.error, None
        if self.reduced_views:  # what was not searched is known, but no block tells its error
            beyond, error = value - found.value, np.full_like(value, np.nan)
            low, high = np.minimum(low + beyond, value), np.maximum(high + beyond, value)
        elif self._open:
            low_errors, high_errors = (np.sqrt(jackknife_variance(one)) for one in self._ends(what, self.left_out))
            errors = low_errors, high_errors
        limits = self._open or bool(self.reduced_views)
        return Estimate(value, error, degrees, identified=(low, high), identified_error=errors, set_limits=limits)

    @property
    def _open(self) -> bool:
        """Whether nothing tells T, or how many directions are shared: second moments are all that is known."""
        return self.known_A is None and (self.fit.gate == 0 or self.largest_rank > self.rank)

    def _widest(self, pair: Pair) -> Array:
        """L (..., d_u, k): Cov(S1) = Cov(S1) at T = 0 - L T L', 0 <= T <= I. A direction that cannot be excluded may be shared
        from nothing to all of it."""
        m = pair.corrected
        lift = pair.from_x[..., :m] @ pair.h[..., :m, :m]
        more = np.eye(self.canonical.rank_u)[:, self.rank : self.largest_rank]
        more = np.broadcast_to(more, (*lift.shape[:-1], more.shape[1]))
        return np.asarray(self.canonical.u_from_x @ np.concatenate([lift, more], axis=-1))

    def _ends(self, what: Target, pair: Pair) -> tuple[Array, Array]:
        """Of the identified set, in the directions that were searched."""
        none = np.zeros_like(pair.K)
        if what == "mixing":  # S^-1 = I + k T~ k, k = ((K K')^-1 - I)^1/2, again any 0 <= T~ <= I
            inverse = np.linalg.inv(pair.K @ pair.K.mT + 1e-12 * np.eye(self.rank))
            root = power(inverse - np.eye(self.rank), 0.5, 0.0)
            into = self.canonical.v_from_y @ pair.from_y @ pair.K.mT
            from_u = pair.to_x @ self.canonical.x_from_u
            low, high = range_of_products(into @ root, (root @ from_u).mT)
            return into @ from_u + low, into @ from_u + high
        lift = self._widest(pair)
        if what == "cov_s2":
            low, high = range_of_products(lift, lift)
            return pair.cov_s2(none) + low, pair.cov_s2(none) + high
        if what == "var_s1":  # nothing of size d_u x d_u
            top = pair.var_s1(none)
            return top - np.sum(lift**2, axis=-1), top
        return IdentifiedSet(lift, pair.cov_s1(none)).ends()

    def covariance_for_directions(self, key: Key, k: int) -> tuple[Spread, float]:
        """What the k leading directions of S1 are read from: Cov(S1) at the share that the projector on them deserves."""
        own = self.covariance(key)
        if key != self.keys[0] or not self.rank:
            return own, float(key != self.keys[0])

        def projector(pair: Pair, T: Array, _: Array) -> Array:
            vectors = np.linalg.eigh(pair.cov_s1(T))[1][..., -k:]
            return np.asarray(vectors @ vectors.mT)

        fit = self._fit_of_directions(k)
        share = self.share if self.reduced_views else fit.answer(projector).share
        lift = self.lift_u @ self.pair.h
        return added(own, lift, self.T - share * fit.posterior.T.value), share

    def moment_draws(self, key: Key, mean_fixed: bool) -> tuple[Draws, Draws, Array, float] | None:
        """Safe and full draws of the covariance of S1 or S2; changes of its mean without each block, (B, d_u), none if that is
        fixed; and the gate. None of wide views."""
        if key == self.keys[2] or self.reduced_views:
            return None
        own = key == self.keys[0]
        count, x = self.sums.count, self.sums.first[:, : self.canonical.rank_u]
        means = (count @ x - count[:, None] * x) / (count.sum() - count)[:, None] - count @ x / count.sum()
        found = self.fit.answer(self._answers["cov_s1" if own else "cov_s2"], share=1.0)
        moved = means @ self.canonical.u_from_x.T * float(own and not mean_fixed)
        return found.safe, found.full, moved, self.fit.gate

    @property
    def cumulants_test(self) -> Test:
        """Whether cross-cumulants have the structure of the model; not made where they say nothing."""
        unknown = Test("fit", float("nan"), (), float("nan"))
        return self.fit.posterior.tests.get(CrossCumulants.name, unknown)

    def tests(self) -> list[Test]:
        """All that the verdict rests on."""
        if not self.rank:
            found = self.canonical
            return [Test("shared", leftover_statistic(found, 0)[0], (found.rank_u * found.rank_v,), 1.0)]
        told = [self.fit.identified] if self.known_A is None else [self.mixing_test] if self.mixing_test else []
        return [*told, self.cumulants_test, leftover_test(self.canonical, self.rank)]

    def diagnose(self, **more: Any) -> Diagnostics:
        return super().diagnose(
            strength=self.fit.strength if self.rank else float("nan"),
            gate=self.fit.gate,
            share=self.share,
            evidence=dict(self.fit.posterior.strengths),
            overidentification=self.cumulants_test if self.rank else None,
            searched_u=self.canonical.rank_u if self.reduced else None,
            searched_v=self.canonical.rank_v if isinstance(self.cov_v, Factored) else None,
            **more,
        )

    def warn(self) -> None:
        """Say what is not sure; of few rows that was said already."""
        verdict = Verdict(self.verdict)
        if verdict in (Verdict.WEAK, Verdict.NOT_IDENTIFIED, Verdict.CONTRADICTED) and not self.few_rows:
            kind = SpecificationWarning if verdict == Verdict.CONTRADICTED else WeakIdentificationWarning
            against = [test.says for test in self.tests() if test.finding == Verdict.CONTRADICTED]
            warn_user(" ".join([*against, ADVICE[verdict]]), kind)
        elif verdict == Verdict.STRONG and (words := unseen(self.canonical, self.rank, self.views)):
            warn_user(words, WeakIdentificationWarning)

    # ---- without a block

    def without(self, block: int) -> PairSolution:
        """Without one block: its second moments, and T after one Newton step; rank, shares and scales stay."""
        b, found, r = self.blocks.index(block), self.canonical, self.rank
        k, kept = found.rank_u, 1.0 - np.eye(len(self.sums.count))[b]
        C, n = self.sums.covariance(kept), float(self.left_out.n[b])
        u, v = LinearMap(found.x_from_u, found.u_from_x), LinearMap(found.y_from_v, found.v_from_y)
        inner = canonical(C[:k, :k], C[:k, k:], C[k:, k:], n)
        turn = inner.x_from_u[:r] @ self.left_out.from_x[b]  # from the basis of the step to canonical coordinates
        T = symmetric(turn @ self.fit.posterior.T.blocks[b] @ turn.T)
        own = inner.composed(u, v)
        moved = np.average(self.sums.first, axis=0, weights=self.sums.count * kept)
        state = self.state.without([block])
        everything = AffineMap(state.mean, linalg.block_diag(inner.x_from_u.T, inner.y_from_v.T))
        alone = Draws.certain(T, np.repeat(T[None], 2, axis=0))
        state, pair = everything.of_state(state), Pair.whole(own, 2, r, self.pair.corrected)
        solution = replace(
            self,
            canonical=own,
            mean=self.mean + np.concatenate([u.back @ moved[:k], v.back @ moved[k:]]),
            state=state,
            cov_u=added(self.cov_u, u.back, C[:k, :k] - np.eye(k)),
            cov_v=added(self.cov_v, v.back, C[k:, k:] - np.eye(len(C) - k)),
            lift_u=own.u_from_x[:, :r],
            lift_v=own.v_from_y[:, :r],
            posterior=replace(self.fit.posterior, T=alone),
            high=None,
        )
        solution.__dict__.update(share=self.share, pair=pair, left_out=pair)
        return solution


def least(pair: Pair, T: Array) -> Array:
    """T + LEAST_T / n."""
    return np.asarray(T + LEAST_T / float(np.max(pair.n)) * np.eye(T.shape[-1]))


def shared_prediction(pair: Pair, T: Array) -> Array:
    """(..., 2r, r): (x, y) -> the best linear prediction of S2, x - h (I - T) h^-1 (x - K y)."""
    own = pair.h @ np.linalg.solve(pair.h, np.eye(T.shape[-1]) - T.mT).mT
    return np.concatenate([np.eye(T.shape[-1]) - own, own @ pair.K], axis=-1).mT


# ---- the one walk


def solve_pair(
    space: SearchSpace,
    keys: tuple[Key, Key, Key],
    rank: object = "auto",
    A: Any = None,
    order: int = 4,
    random_state: int | None = 0,
    errors: tuple[str, str] = ("auto", "auto"),
) -> PairSolution:
    """Rows or a state: second order -> canonical coordinates and rank -> the state of these -> block cumulants -> T.

    keys : what S1, S2 and S3 are called; the others as in ContrastiveRCA.
    """
    data, (u, v), (first, second_view) = space.data, space.frames.values(), space.frames
    second = data.moments(2)
    A = checked_A(A, rank, len(u.back), len(v.back))
    inner, everything = canonical_coordinates(data, second, len(u.to))
    r = resolve_rank(rank, inner)
    fourth = _fits(len(u.to) + len(v.to), data.n_blocks)
    state = data.moments(4 if fourth else 2, everything)
    sums, m, found, wide = BlockSums.of(state), min(r, MOST_CORRECTED), inner.composed(u, v), space.rows is not None
    few_rows = A is None and _too_small(second, inner.n, rank)
    seen = np.zeros((2, 0, 0, 2 * m, 2 * m))
    if m and A is None and not few_rows:
        seen = _grams(data, state if fourth else None, second, inner, m, order)
    (cov_u, lift_u), (cov_v, lift_v) = every_column(space, second, inner, found, r)
    high = data.moments(order, everything, pooled=True) if order > 4 and fourth else None
    return PairSolution(
        keys=keys,
        views=(first, second_view),
        mean=np.array(second.mean) if space.mean is None else space.mean,
        n=second.n,
        canonical=found,
        state=state,
        cov_u=cov_u,
        cov_v=cov_v,
        high=high,
        rank=r,
        largest_rank=r if A is not None or rank != "auto" else largest_rank(inner, r),
        lost=data.lost,
        errors=errors,
        random_state=random_state,
        sums=sums,
        grams_xy=seen,
        lift_u=lift_u,
        lift_v=lift_v,
        signs=_signs(state, inner.rank_u, m) if fourth else np.ones(m),
        known_A=A,
        mixing_test=None if A is None or wide else check_known_mixing(found, sums, r, A, second.dependent),
        few_rows=few_rows,
        units=space.units,
        grouped=space.grouped,
    )


def _signs(state: Moments, k_u: int, m: int) -> Array:
    """(m,) those with which third cross-cumulants of x_i and y_i are positive: the same in any units, and for any linear
    maps of the views' columns."""
    cumulants, places = Cumulants(state.up_to(3)), [(i, k_u + i) for i in range(m)]
    third = [float(np.sum(cumulants.tensor([i], [j], [i, j]))) for i, j in places]
    return np.where(np.array(third) < 0, -1.0, 1.0)


def _grams(data: Data, state: Moments | None, second: Moments, inner: Canonical, m: int, order: int) -> Array:
    """(2, B, B, 2m, 2m), of the block cumulants of the leading m shared directions, in (x, y); state : of all coordinates."""
    D, lead = inner.correlations[:m], AffineMap(second.mean, inner.leading(m).T)
    by_pairs = form_of(second.n, m, data.n_blocks) == "pairs" and not second.dependent
    if by_pairs and (rows := data.counted_sample(lead, lambda n: 1)) is not None:
        seen = implicit_grams(rows[0], D, n_blocks=data.n_blocks)
        seen[1] *= order >= 4
        return seen
    if state is None:
        if not _fits(2 * m, data.n_blocks):
            raise CapacityError(
                f"{m} shared directions in {data.n_blocks} blocks need too much memory: give a smaller rank="
            )
        shared = data.moments(4, lead)
    else:
        shared = state.select(np.concatenate([np.arange(m), inner.rank_u + np.arange(m)]))
    return grams(shared, D, order=min(order, 4))


def _fits(columns: int, n_blocks: int) -> bool:
    """Whether a state of order four of so many columns can be kept."""
    try:
        Layout(columns, 4, n_blocks=n_blocks).check_memory(MEMORY_LIMIT // 2)
    except MemoryError:
        return False
    return True


def _too_small(second: Moments, n: float, rank: object) -> bool:
    """Whether there are too few independent rows, n, or blocks of them, to tell T; says so."""
    blocks = int(np.sum(second.block_sizes > 0))
    if n >= MIN_ROWS and blocks >= MIN_BLOCKS:
        return False
    kind = "samples" if n == second.n else "independent samples"
    short = f"{n:.0f} {kind} are" if n < MIN_ROWS else f"{blocks} blocks of samples (or groups) are"
    unsure = "" if n >= MIN_ROWS or rank != "auto" else ". The number of shared directions is hardly tested: give rank="
    warn_user(
        f"{short} too few for cumulants of order three and four (at least {MIN_ROWS} samples in {MIN_BLOCKS} blocks are "
        f"needed): only second moments are used, and coefficients are those of residualising{unsure}",
        SampleSizeWarning,
    )
    return True
