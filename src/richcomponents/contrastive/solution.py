"""The estimator of the contrastive model: what two views say about S1, S2 and S3, in the user's units.

A, the covariances, predictors and cumulants at an estimated T; coefficients of outcomes that depend on S1, calibrated, with
their errors; how sure all of it is; and the one walk that estimates it, `solve_pair`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT, one_blas_thread
from richcomponents.algebra.spectral import power, symmetric
from richcomponents.components.component import (
    Blend,
    Calibrated,
    CumulantSource,
    Demand,
    Terms,
    error_at_fixed_features,
    least_squares_without_blocks,
)
from richcomponents.components.wide import (
    Factored,
    LinearMap,
    SearchSpace,
    Spread,
    added,
    check_entries,
    inverse_factor,
)
from richcomponents.contrastive.calibration import (
    Calibration,
    Reading,
    Residualised,
    calibrate,
    error_of_all_columns,
    residualise,
    residualise_all_columns,
)
from richcomponents.contrastive.coefficients import OnResidual, corrected_estimate, drawn_estimate, identified_estimate
from richcomponents.contrastive.diagnostics import (
    ADVICE,
    DOUBTFUL,
    SUSPICIOUS,
    TestResult,
    check_known_mixing,
    contradicted,
    misfit,
    overidentification_test,
)
from richcomponents.contrastive.directions import blend_for_directions
from richcomponents.contrastive.evidence import (
    Sketch,
    form_of,
    grams,
    implicit_grams,
    joint_whitening,
    pair_mean,
    sketched_rows,
)
from richcomponents.contrastive.intervals import (
    BlockEvidence,
    Target,
    block_evidence,
    confidence,
    evaluate,
    functional_error,
    plain_grams,
    replicate,
)
from richcomponents.contrastive.mixing import Beyond, t_of_mixing, told_from_regression
from richcomponents.contrastive.outcomes import OutcomeOnV
from richcomponents.contrastive.own_errors import ErrorsByBlock, IndependentErrors, independent_errors
from richcomponents.contrastive.pair import (
    RIDGE,
    BlockCovariances,
    IdentifiedSet,
    Pair,
    bounds_with_noise,
    ends_below,
    near_pair,
)
from richcomponents.contrastive.posterior import Logistic, Posterior, SharedEnergy, identify, identify_known, lower_end
from richcomponents.contrastive.two_views import Key, PairOptions, TwoViews, own_terms, shared_terms
from richcomponents.cumulants.estimate import Estimate, delete_one, from_replicates, jackknife_error
from richcomponents.errors import (
    CapacityError,
    DataError,
    SampleSizeWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    warn_user,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.learning.predicted import OnPrediction, Places, Prediction, Refit
from richcomponents.moments import Layout, Moments
from richcomponents.moments.data import AffineMap, Data, StateData
from richcomponents.pair.canonical import (
    Canonical,
    EveryColumn,
    canonical,
    canonical_coordinates,
    every_column,
    largest_rank,
    resolve_rank,
)
from richcomponents.storage import storable

INVERSE_RIDGE = 20.0  # in units of 1/n, the noise of a squared canonical correlation


MIN_ROWS = 40  # below, block cumulants of order three and four say nothing
MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
MOST_WITH_ERRORS = (
    90  # columns: equations between own parts are half the square of their number, their noise its fourth power
)
MOST_TESTED = 100  # shared directions: the test of over-identification takes the square of their number squared
LARGEST_STATE = MEMORY_LIMIT // 2


@storable
@dataclass(frozen=True)
class PairSolution(TwoViews):
    """The estimator's answers, from T in canonical coordinates.

    On the r shared coordinates S = D^2 + h T h, A = D S^-1, A^+ = S D^-1 (this IS the generalised least-squares
    inverse: only the first r coordinates of y carry S2, with noise I - D S^-1 D), and

        BLUP(S1) = h (I - T) h^-1 (x - D y),    Var(S1 | x, y) = h T (I - T) h.

    Covariances and predictions use T times the gate (Posterior.t_trusted), the cumulants T itself, A a T between that and the
    regression of V on U (see `mixing`). If the
    truth is T* and T is used, the squared error of the prediction is h [T* (I - T*) + (T* - T)^2] h; its mean over the
    posterior draws of T* is reported.

    posterior : what is known of T; truncated : whether `state` holds the leading canonical coordinates only; grams :
    (2, B, B, 2r, 2r), the evidence; lift_u (d_u, r), lift_v (d_v, r) : how the shared coordinates enter EVERY column, also
    where a view was searched for them in its principal components only. Predictions and A use these; covariances of the parts
    use the canonical maps, for which they are positive and add up. beyond : A outside the shared directions, where more of them
    cannot be excluded; known_A : A where it was given;
    second_order_only : too few rows for more; most_rank : that cannot be excluded; lost : rows' worth of freedom
    that covariates took; units : different rows, where they are few, and grouped : whether rows belong to groups; turned :
    whether the first view is the user's second.
    """

    options: PairOptions
    posterior: Posterior
    errors: IndependentErrors | None
    truncated: bool
    grams: Array
    lift_u: Array
    lift_v: Array
    beyond: Beyond | None
    known_A: Array | None
    second_order_only: bool
    most_rank: int
    lost: float
    units: int | None
    grouped: bool
    turned: bool = False

    # ---- A, covariances, predictions

    @property
    def rank(self) -> int:
        return self.posterior.rank

    @property
    def largest_rank(self) -> int:
        return self.most_rank

    @property
    def verdict(self) -> str:
        """That of the evidence; strong only where the cross-cumulants do not contradict the model."""
        evidence = self.posterior.verdict
        return "weak" if evidence == "strong" and self._misfit < SUSPICIOUS else evidence

    @property
    def _misfit(self) -> float:
        """p value of the test of over-identification; 1 without one."""
        return 1.0 if self.overidentification is None else self.overidentification.p_value

    @property
    def reduced(self) -> bool:
        """Whether U was searched for shared directions in its principal components only."""
        return isinstance(self.cov_u, Factored)

    @cached_property
    def pair(self) -> Pair:
        return Pair.at(self.canonical, self.rank)

    @cached_property
    def _t_of_mixing(self) -> Array:
        """T (r, r) at which A is reported."""
        known, errors = self.posterior, self.errors
        if self.known_A is not None or not self.rank:
            return known.t
        further = None
        if errors is not None and not errors.silent:
            further = ErrorsByBlock(errors, self.canonical, self.rank, BlockCovariances.of(self.state))
        sure = 0.0 if known.verdict == "model fails" else told_from_regression(known, self.grams, further)
        return t_of_mixing(known, sure, self.canonical.n)

    @cached_property
    def _on_u(self) -> Array:
        """S^-1 x_from_u (r, d_u): A = lift_v D of it."""
        return self.pair.from_shared(self._t_of_mixing)

    @property
    def A(self) -> Array:
        if self.known_A is not None:
            return self.known_A
        check_entries("the matrix A", (len(self.lift_v), self._on_u.shape[1]))
        shared = np.asarray((self.lift_v * self.posterior.correlations) @ self._on_u)
        return shared if self.beyond is None else shared + self.beyond.matrix

    def through_A(self, s: Array) -> Array:
        if self.known_A is not None:
            return np.asarray(s @ self.known_A.T)
        shared = np.asarray((s @ self._on_u.T) @ (self.lift_v * self.posterior.correlations).T)
        return shared if self.beyond is None else shared + (s @ self.beyond.from_u.T) @ self.beyond.into_v.T

    @cached_property
    def _covered(self) -> Array:
        """Cov(S2) on the shared coordinates, at the trusted T."""
        return self.pair.shared(self.posterior.t_trusted)

    def covariance(self, key: Key) -> Spread:
        if key == self.keys[0]:
            return added(self.cov_u, self.pair.from_x, -symmetric(self._covered))
        if key == self.keys[1]:
            return self._lifted(self.pair.from_x, self._covered)
        back = self.posterior.correlations[:, None] * np.linalg.inv(self.pair.shared(self._t_of_mixing))
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
        return block_evidence(
            self.canonical, self.posterior, self.state, self.grams, self.errors, truncated=self.truncated
        )

    def identified_set(self) -> IdentifiedSet:
        """Ends of Cov(S1), entry by entry, over all admissible T, given the rank, and over all ranks not excluded."""
        d, lift = self.posterior.correlations, self.pair.from_x
        return IdentifiedSet(
            lift * self.posterior.h, added(self.cov_u, lift, -np.diag(d**2)), self.largest_rank > self.rank
        )

    @property
    def root_s2(self) -> Array:
        return np.asarray(self.pair.from_x @ power(self._covered, 0.5, 0.0))

    # ---- outcomes that depend on S1

    @cached_property
    def exchanged(self) -> PairSolution:
        """The same two views with V first, estimated as such from the state: S3 is its S1. (What is told of T here is shrunk
        towards residualising U on V; what S3 needs, towards residualising V on U.)"""
        found, r = self.canonical.exchanged(), self.rank
        k_v, k_u = (r, r) if self.truncated else (found.rank_u, found.rank_v)
        v = LinearMap(found.x_from_u[:k_v], found.u_from_x[:, :k_v])
        u = LinearMap(found.y_from_v[:k_u], found.v_from_y[:, :k_u])
        into = joint_whitening(self.posterior.correlations)
        turn = into @ np.roll(np.eye(2 * r), r, axis=0) @ np.linalg.inv(into)
        A = None if self.known_A is None else np.asarray(np.linalg.pinv(self.known_A), dtype=np.float64)
        turned = replace(
            self,
            keys=(self.keys[2], self.keys[1], self.keys[0]),
            views=(self.views[1], self.views[0]),
            mean=self.mean[self.columns_exchanged],
            canonical=found,
            state=self.state.select(np.concatenate([np.arange(k_u, k_u + k_v), np.arange(k_u)])),
            cov_u=self.cov_v,
            cov_v=self.cov_u,
            source=None,
            mixing_test=None,
            options=replace(self.options, rank=r, A=A, errors=(self.options.errors[1], self.options.errors[0])),
            errors=None,
            grams=turn @ self.grams @ turn.T,
            lift_u=self.lift_v,
            lift_v=self.lift_u,
            known_A=A,
            beyond=None,
            turned=True,
        )
        space = SearchSpace(
            StateData(turned.state, self.lost), dict(zip(turned.views, (v, u), strict=True)), mean=turned.mean
        )
        return replace(_solve(space, turned.keys, turned.options, decided=turned).checked(), turned=True)

    def facing(self, key: Key) -> tuple[PairSolution, IntArray | None]:
        return (self.exchanged, self.columns_exchanged) if key == self.keys[2] else (self, None)

    def stand_in(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """R, or, of S2, what the shared variates of V predict of U: the prediction at T = 0."""
        if key != self.keys[1]:
            return self.residual(key, rows, beside)
        return np.asarray((self.variates(rows, self.rank) * self.posterior.correlations) @ self.lift_u.T)

    def residual(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """R (n, d_u): what is left of every column of U after regression on the shared variates of V, or on the first `beside`
        of all; U itself for S2, which lives in both views."""
        if key == self.keys[1]:
            return self.split(rows)[0]
        k = self.rank if beside is None else beside
        lift = self.lift_u if k == self.rank else self.canonical.u_from_x[:, :k]
        return np.asarray(self.split(rows)[0] - (self.variates(rows, k) * self.canonical.correlations[:k]) @ lift.T)

    def variates(self, rows: Array, k: int) -> Array:
        """y_1..y_k (n, k) of V."""
        return np.asarray(self.split(rows)[1] @ self.canonical.y_from_v[:k].T)

    def on_v(self, outcome: Outcome) -> OutcomeOnV:
        """What an outcome has to do with V."""
        if isinstance(outcome.on_v, OutcomeOnV):
            return outcome.on_v
        columns, whole = np.arange(self.d_u, len(self.mean)), not self.reduced_views
        found = OutcomeOnV.of(outcome, self.canonical, self.rank, columns, self.lost, whole)
        found = replace(found, letters=("V", "U") if self.turned else ("U", "V"))
        return found.doubted(self._misfit) if found.goes_with else found

    @property
    def coefficients_wanted(self) -> int:
        """Coefficients of least squares on U and the shared part of V."""
        return int(np.sum(self.cov_u.diagonal() > 0)) + self.rank

    @property
    def _demand(self) -> Demand:
        """Of least squares on U and the shared part of V."""
        beside = f"the {self.rank} shared directions"
        wanted, worth = self.coefficients_wanted, self.canonical.n
        return Demand(self.views[0], self.d_u, wanted, beside, self.n, self.units, worth, self.reduced)

    def determined(self, covariates: int) -> bool:
        """Whether there are more independent rows than coefficients, those of the covariates included."""
        if not self._demand.enough(covariates):
            return False
        if not isinstance(self.cov_u, Factored) or not self.grouped:
            return True
        return bool(
            inverse_factor(self.cov_u.rows).shape[1] >= self.coefficients_wanted - self.rank
        )  # copies say nothing

    def check_determined(self, key: Key, covariates: int) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        if key != self.keys[1]:
            self._demand.check(covariates, self.determined(covariates))

    @property
    def degrees(self) -> float:
        """Independent rows less coefficients: what is left to estimate the noise of least squares on all columns."""
        return self.canonical.n - self.coefficients_wanted - 1

    def _inverse_of_residual(self, covariates: int) -> Array | None:
        """G (d_u, k) with G G' = Cov(R)^-1 over all columns of a wide U, R its residual on the shared part of V.

        None where the canonical coordinates are all of U, or where there are too few samples.
        """
        whole = self.cov_u
        return inverse_factor(whole.rows) if isinstance(whole, Factored) and self.determined(covariates) else None

    def _reading(self, inverse: Array | None) -> Reading:
        """How the shared coordinates are read off U."""
        if inverse is None:
            return Reading.canonical(self.canonical, self.rank, self.lift_u)
        return Reading.of_all_columns(inverse, self.lift_u)

    def calibrate(self, key: Key, outcome: Outcome) -> Calibrated:
        """Coefficients of an outcome on S1, all columns of U included. Log-odds : of R, and of variates of V beside it.

        Where least squares is not determined (fewer samples than columns of U) it is the regression on the principal components
        that were searched: a guide for penalised fits, no result.
        """
        if key == self.keys[1]:
            return self._on_shared(outcome)
        inverse, log_odds = self._inverse_of_residual(outcome.covariates), outcome.log_odds
        reading, on_v = self._reading(inverse), self.on_v(outcome)
        known = replace(self.posterior, gate=self.posterior.gate * on_v.belief)
        if log_odds is None:
            fit = self._least_squares(outcome, inverse, on_v)
            solved = calibrate(self.canonical, known, fit, reading)
        else:
            columns = self.canonical.rank_u if inverse is None else inverse.shape[1]
            noise = 1 / (max(log_odds.information, 1e-12) * max(self.canonical.n - columns - 1, 1))
            coef, on_y = self._of_log_odds(log_odds.coef)
            fit = Residualised(
                coef,
                noise,
                *on_v.shared(self.posterior.correlations, on_y, self.canonical.n),
                on_y,
                log_odds.attenuation,
            )
            rest = fit.coef - reading.weights @ (reading.lift.T @ fit.coef)
            beside = float(np.sqrt(max(float(rest @ (self.cov_u @ rest)), 0.0)))
            solved = calibrate(self.canonical, known, fit, reading, beside=beside)
        t = solved.t_effective
        features = reading.without_shared(self.residual(key, outcome.rows, on_v.beside), t)
        through = reading.weights @ np.broadcast_to(fit.shared, (self.rank,))
        covariance = added(self.cov_u, self.pair.from_x, -self.pair.shared(t))
        if on_v.beside > self.rank:
            more = slice(self.rank, on_v.beside)
            covariance = added(
                covariance, self.canonical.u_from_x[:, more], -np.diag(self.canonical.correlations[more] ** 2)
            )
        return Calibrated(
            coef=solved.coef,
            residualised=fit.coef,
            trust=solved.trust,
            features=features,
            outcome=outcome.y - (outcome.rows[:, : self.d_u] - features) @ through,
            covariance=covariance,
            determined=self.determined(outcome.covariates),
            reduced=self.reduced,
            wanted=self.coefficients_wanted + on_v.beside - self.rank + outcome.covariates,
            free=outcome.free,
            factor=solved.factor,
            shared=through if on_v.goes_with else None,
            on_v=on_v,
            by=(solved, fit, reading, inverse),
        )

    def _on_shared(self, outcome: Outcome) -> Calibrated:
        """Coefficients on S2, in the shared coordinates z = (x_1..x_r, y_1..y_r): from what V predicts of U, which needs no T,
        to the prediction at T from both views (learning/predicted)."""
        if not self.rank:
            raise DataError(
                f"the views share nothing: there is no {self.keys[1]!r} that an outcome could depend on. Use {self.keys[0]!r}"
            )
        r, (u, v) = self.rank, self.split(outcome.rows)
        z = np.hstack([u @ self.pair.to_x.T, v @ self.pair.to_y.T])
        found = OnPrediction.of(
            z,
            outcome,
            Places(np.arange(r), np.arange(r, 2 * r), np.zeros(0, dtype=np.int64), r),
            self.canonical.n,
            Prediction(shared_prediction(self.pair, self.posterior.t_trusted), self._covered),
            self._shared_predictions(len(outcome.kept)),
            LinearMap(self.pair.to_x, self.lift_u),
        )
        return found.calibrated(outcome, self._lifted(self.lift_u, found.covariance), r)

    def _shared_predictions(self, n_blocks: int) -> list[Prediction] | None:
        """The prediction of S2 in the shared coordinates of the whole sample, without each block; None of wide views."""
        if self.reduced_views:
            return None
        found = self.canonical.truncated(self.rank) if self.truncated else self.canonical
        covariance = BlockCovariances.of(self.state).covariance(delete_one(len(self.blocks)))
        bases = near_pair(found, self.rank, covariance)
        t = np.broadcast_to(self.posterior.t_trusted, bases.cross.shape)
        if self.evident:
            t = self.posterior.gate * Logistic.at(replicate(self.block_evidence()).xs).value
        maps = np.swapaxes(bases.from_full, -1, -2) @ shared_prediction(bases, t)
        maps = maps @ np.swapaxes(self.pair.to_x @ bases.from_x, -1, -2)
        return [Prediction(one, self._covered) for one in maps]

    def _of_log_odds(self, coef: Array) -> tuple[Array, Array]:
        """Log-odds (..., d_u + k) of R and of variates of V -> of R (..., d_u), and of the shared variates (..., r), zero where
        there are none."""
        on_y = coef[..., self.d_u :][..., : self.rank]
        return coef[..., : self.d_u], on_y if on_y.shape[-1] else np.zeros((*coef.shape[:-1], self.rank))

    def _least_squares(self, outcome: Outcome, inverse: Array | None, on_v: OutcomeOnV) -> Residualised:
        cross, variance = outcome.with_rows()
        with_u, with_v = self.split(cross)
        with_y, D = self.pair.to_y @ with_v, self.posterior.correlations
        if inverse is None:
            fit = residualise(self.canonical, on_v.beside, with_u, with_v, variance)
        else:
            fit = residualise_all_columns(inverse, self.lift_u, D, with_u, with_y, variance, self.degrees)
        return Residualised(fit.coef, fit.noise, *on_v.shared(D, with_y, self.canonical.n))

    def estimate(
        self,
        calibrated: Calibrated,
        outcome: Outcome,
        *,
        grouped: bool,
        replicates: Array | None = None,
        refit: Refit | None = None,
    ) -> Estimate:
        """Calibrated coefficients with their errors or, where the data do not tell S1 from S2, with their identified set: see
        `coefficients`; those on S2 as in learning/predicted.

        replicates : (B, d_u), of log-odds: those on the residual without each block. refit : of log-odds, on other features.

        On all columns of a wide view there are too few samples to leave some out: errors of the textbook instead, which take
        samples for independent. With groups they are not, and there is no honest error.
        """
        if isinstance(calibrated.by, OnPrediction):
            return calibrated.by.estimate(calibrated.coef, outcome, refit)
        (solved, fit, reading, inverse), on_v = calibrated.by, calibrated.on_v
        outcome = replace(outcome, on_v=on_v)
        coef, degrees = calibrated.coef, max(len(outcome.kept) - 1, 1)
        if inverse is not None and replicates is None:
            error = error_of_all_columns(self.canonical, self.posterior, fit, reading, inverse, solved)
            return Estimate(coef, np.full_like(error, np.nan) if grouped else error, max(round(self.degrees), 1))
        if replicates is not None and (self.reduced or not self.rank):
            b, on_y = self._of_log_odds(replicates)
            shared = on_v.shared(self.posterior.correlations, on_y, self.canonical.n)[0]
            return Estimate(coef, self._error_of_log_odds(solved, fit, reading, b, shared), degrees)
        if self.reduced or not self.rank:  # its own sampling error
            variates = self.variates(outcome.rows, on_v.beside)  # what they explain of the outcome is no noise
            left = calibrated.outcome - variates @ (variates.T @ (outcome.weight * calibrated.outcome) / outcome.free)
            return Estimate(
                coef, error_at_fixed_features(calibrated.features, left, outcome.kept, outcome.weight), degrees
            )
        if replicates is None:
            here, replicas = self.on_residual(outcome), self.on_residual_without_blocks(outcome)
        else:
            bases = self.pair if self.truncated else self._bases(len(replicates))
            variance = np.asarray(fit.noise * self.canonical.n)  # of the working response
            no_end = np.asarray(np.inf)

            def of_log_odds(basis: Pair, b: Array, on_y: Array) -> OnResidual:
                return OnResidual(basis, b, on_y, variance, no_end, np.zeros_like(on_y), fit.attenuation)

            assert fit.on_y is not None
            here = of_log_odds(self.pair, fit.coef, fit.on_y)
            replicas = of_log_odds(bases, *self._of_log_odds(replicates))
        ridge = RIDGE / self.canonical.n
        here, replicas = here.goes_with(on_v.share, ridge), replicas.goes_with(on_v.share, ridge)
        noise = fit.noise * float(np.mean(fit.excess))
        if self.known_A is not None:
            return drawn_estimate(coef, here, replicas, self.posterior, noise)
        if not self.evident:
            return identified_estimate(coef, here, replicas)
        return corrected_estimate(coef, here, replicas, replicate(self.block_evidence()), noise)

    def _bases(self, n_blocks: int) -> Pair:
        """The basis of the shared coordinates without each block."""
        return near_pair(self.canonical, self.rank, BlockCovariances.of(self.state).covariance(delete_one(n_blocks)))

    def on_residual(self, outcome: Outcome) -> OnResidual:
        """Least squares of an outcome on the residual."""
        (cross, variance), found = outcome.with_rows(), self.canonical
        covariance = np.eye(found.rank_u + found.rank_v)
        at = np.arange(len(found.correlations))
        covariance[at, found.rank_u + at] = covariance[found.rank_u + at, at] = found.correlations
        return OnResidual.at(
            self.pair, *self.split(cross), np.asarray(variance), self._rest(self.on_v(outcome).beside, covariance)
        )

    def on_residual_without_blocks(self, outcome: Outcome) -> OnResidual:
        """The same without each block. Where the state holds the leading coordinates only, these are kept as they are."""
        (crosses, variance), beside, pair = outcome.with_rows_without_blocks(), self.on_v(outcome).beside, self.pair
        if not self.truncated:
            covariance = BlockCovariances.of(self.state).covariance(delete_one(len(crosses)))
            bases = near_pair(self.canonical, self.rank, covariance)
            return OnResidual.at(bases, *self.split(crosses), variance, self._rest(beside, covariance))
        x = self.split(outcome.rows)[0] @ self.canonical.x_from_u.T
        features = np.hstack([x, self.variates(outcome.rows, beside)])
        coefs = least_squares_without_blocks(features, outcome.y, outcome.kept, outcome.weight)
        on_x, on_y = coefs[:, : self.canonical.rank_u], coefs[:, self.canonical.rank_u :][:, : self.rank]
        with_y = on_y + self.posterior.correlations * on_x[:, : self.rank]
        return OnResidual.of(pair, on_x @ self.canonical.x_from_u, with_y, variance)

    def _rest(self, beside: int, covariance: Array) -> tuple[Array, Array] | None:
        """What stands beside U of V besides its shared variates; covariance : (..., k, k) of all canonical variates."""
        if beside == self.rank:
            return None
        found, more = self.canonical, slice(self.rank, beside)
        into = np.zeros((self.d_u + beside - self.rank, found.rank_u + found.rank_v))
        into[: self.d_u, : found.rank_u] = found.u_from_x
        into[self.d_u :, found.rank_u :][:, more] = np.eye(beside - self.rank)
        return found.y_from_v[more], into @ covariance @ into.T

    def _error_of_log_odds(
        self, solved: Calibration, fit: Residualised, reading: Reading, b: Array, shared: Array
    ) -> Array:
        """At the stretch that was used; b (B, d_u), shared (B, r) : without each block."""
        t, own = solved.t_effective, b @ reading.lift - shared
        hg = own @ reading.half @ solved.stretch.T
        assert fit.attenuation is not None
        factors = fit.attenuation(np.einsum("mi,ij,mj->m", hg, t - t @ t, hg))
        return jackknife_error((b + reading.change(own, solved.stretch)) * factors[:, None])

    # ---- how sure it is of its parts, and refits without a block

    def covariance_for_directions(self, key: Key, k: int) -> Blend:
        """What the k leading directions of S1 are read from (see `directions`); of others their covariance as it is."""
        own, known = self.covariance(key), self.posterior
        if key != self.keys[0] or self.known_A is not None:
            return Blend(own)
        if self.rank == 0 or self.second_order_only:
            return Blend(own, 0.0)
        residualised = added(own, self.lift_u * known.h, known.gate * known.t)
        canonical = self.canonical.truncated(self.rank) if self.truncated else self.canonical
        canonical = replace(canonical, u_from_x=np.hstack([self.lift_u, canonical.u_from_x[:, self.rank :]]))
        evidence = self.block_evidence() if known.gate > 0 else None
        return blend_for_directions(known, canonical, BlockCovariances.of(self.state), evidence, residualised, k)

    def functional_error(
        self, key: Key, change: Callable[[Array, Array], Array], mean_fixed: bool
    ) -> tuple[Array, int] | None:
        """Standard errors (p,) of a smooth function of Cov(S1) and of the mean of S1, and the number of blocks.

        change : changes (n, d, d) of Cov(S1) and (n, d) of the mean -> changes (n, p) of the function, to first order;
        mean_fixed : the mean of S1 is known. None where the blocks do not tell.
        """
        if key != self.keys[0] or not self.evident or self.truncated or self.reduced_views:
            return None
        blocks = BlockCovariances.of(self.state)
        x = blocks.first[:, : self.canonical.rank_u]
        means = (blocks.count @ x - blocks.count[:, None] * x) / (blocks.count.sum() - blocks.count)[:, None]
        moved = (means - blocks.count @ x / blocks.count.sum()) @ self.canonical.u_from_x.T
        rep = replicate(self.block_evidence())
        return functional_error(rep, change, moved * (0.0 if mean_fixed else 1.0)), len(moved)

    def canonical_weights(self, key: Key, untrusted: float) -> tuple[Array, Array] | None:
        """Coordinates W (k, d_u) in which U without its regression on V is white, and weights (k, k) of the entries of
        W Cov(S1) W'.

        Cov(S1) is h (I - T) h on canonical coordinates of the shared part and I elsewhere: there, U without its regression
        on V has the variances h^2 and 1, and errors of second moments are h_a h_b n^(-1/2), however strong the shared part is.
        So W divides canonical coordinates by h, and errors are n^(-1/2) in every entry, but for those of T. Outside the shared
        block there is no T, weight 1. Inside, weights are between `untrusted` and 1 as T is trusted, a quarter of that on
        the diagonal, which shrinking moves first. If A is known, Cov(S1) = Cov(U - A^+ V, U) has one factor of the size of U:
        in these coordinates the error of an entry is 1 / h_a or 1 / h_b times as large.
        """
        if key != self.keys[0]:
            return None
        r, h = self.rank, np.ones(self.canonical.rank_u)
        h[:r] = self.posterior.h
        weights = np.ones((len(h),) * 2)
        if self.known_A is None:
            weights[:r, :r] = (untrusted + (1 - untrusted) * self.posterior.gate) * (1 - 0.75 * np.eye(r))
        else:
            weights[:r, :r] = 2 / (h[:r, None] ** -2 + h[:r] ** -2)
        return self.canonical.x_from_u / h[:, None], weights

    @cached_property
    def overidentification(self) -> TestResult | None:
        """Test that cross-cumulants have the structure of the model; None where they say nothing, or there are too many."""
        if not 0 < self.rank <= MOST_TESTED or not self.posterior.order_weights.any():
            return None
        return overidentification_test(self.block_evidence(), plain_grams(self.posterior, self.grams))

    def checked(self) -> PairSolution:
        """The same, or one that trusts nothing that is told of T where the model fails.

        A test that rejects is not enough: with many samples it rejects labs that differ in spread as well as in means, which
        leave T, and coefficients, as they are. Where the shared part enters V otherwise than linearly, though, the cumulants
        ask for more of S2 than there is of U: T goes to its upper end, and coefficients were up to fifty times as wrong as
        those of residualising. Where both are seen, the model fails.
        """
        if self.posterior.at_the_end and self._misfit < DOUBTFUL:
            return replace(self, posterior=self.posterior.failing())
        return self

    def told(self) -> dict[str, Any]:
        known = self.posterior
        return {
            "strength": known.strength,
            "gain": known.gain,
            "gate": known.gate,
            "tau": known.tau,
            "order_weights": known.order_weights,
            "overidentification": self.overidentification,
            "errors": self.errors,
            "searched_u": self.canonical.rank_u if isinstance(self.cov_u, Factored) else None,
            "searched_v": self.canonical.rank_v if isinstance(self.cov_v, Factored) else None,
        }

    def interval(self, what: Target) -> Estimate | None:
        """Of A, of the covariance of a component or of Var(S1), without refitting; None where only refitting tells.

        Without evidence, or where more shared directions cannot be excluded: the identified set widened for noise. Of wide
        views that is all there is, too: a step without a block knows nothing of what lies outside the directions that were
        searched, and its errors would be many times too small.
        """
        if self.known_A is not None:
            return None
        point, more = self._point(what), self.largest_rank > self.rank
        if what == "mixing" and (more or self.rank == 0 or self.beyond is not None):
            return Estimate.unbounded(point)
        if more or (self.rank and (self.posterior.gate == 0 or self.reduced_views)):
            limits = self._identified_interval(what, point, more)
            if (
                more
                and self.posterior.gate > 0
                and not (self.truncated or self.reduced_views)
                and what in ("cov_s1", "var_s1")
            ):
                return replace(limits, covering=self._one_step(what, point))
            return limits
        if self.rank and not self.truncated and what in ("mixing", "cov_s1", "var_s1"):
            return self._one_step(what, point)
        if not self.rank and not self.reduced_views:
            return self._nothing_shared(what, point)
        return None

    def _nothing_shared(self, what: Target, point: Array) -> Estimate:
        """At rank 0 a refit without a block is its second moments: Cov(S1) = Cov(U), Cov(S2) = 0, Cov(S3) = Cov(V)."""
        bases = self._bases(len(self.blocks))
        if what == "cov_s2":
            return from_replicates(point, [point for _ in self.blocks])
        return from_replicates(point, list(bases.cov_v() if what == "cov_s3" else evaluate(bases, what, bases.cross)))

    def _point(self, what: Target) -> Array:
        if what == "mixing":
            return self.A
        if what == "var_s1":
            return np.array(self.covariance(self.keys[0]).diagonal())
        return np.asarray(self.covariance(self.keys[int(what[-1]) - 1]))

    def _identified_interval(self, what: Target, point: Array, more: bool) -> Estimate:
        """The ends of the identified set and their sampling noise; more : further directions than the rank may be shared."""
        unknown = np.full_like(point, np.nan)
        if self.truncated:  # the part outside the leading directions has no block statistics: its noise is left out
            if what == "mixing":
                return Estimate.unbounded(point)
            ends = self.identified_set()
            low, high = ends.variances() if what == "var_s1" else ends.ends()
            if what == "cov_s2":
                low, high = np.asarray(self.cov_u) - high, np.asarray(self.cov_u) - low
            elif what == "cov_s3":
                low, high = ends_below(np.asarray(self.cov_v))
            return Estimate(point, unknown, 1, identified=(low, high))
        blocks, beyond = BlockCovariances.of(self.state), self._beyond(what)
        set_, error = bounds_with_noise(self.canonical, self.rank, blocks, what, more)
        return Estimate(
            point,
            unknown,
            len(blocks.count) - 1,
            identified=(set_.lower + beyond, set_.upper + beyond),
            identified_error=(error.lower, error.upper),
        )

    def _beyond(self, what: Target) -> Any:
        """What Cov(S1) or Cov(S3) has outside the principal components a wide view was reduced to; its own noise is left
        out."""
        if what not in ("cov_s1", "var_s1", "cov_s3"):
            return 0.0
        found = self.canonical
        own, total = (found.v_from_y, self.cov_v) if what == "cov_s3" else (found.u_from_x, self.cov_u)
        if own.shape[1] == len(own):
            return 0.0
        if what == "var_s1":
            return total.diagonal() - np.sum(own**2, axis=1)
        return np.asarray(total) - own @ own.T

    def _one_step(self, what: Target, point: Array) -> Estimate:
        """One Newton step per left-out block. Where the gate is half open Cov(S1) is the gated point, and A lies nearer to the
        regression of V on U: the limits reach from there over those of the estimate at T itself."""
        replicates = replicate(self.block_evidence())
        centre = evaluate(replicates.basis, what, self.posterior.t) + self._beyond(what)
        return replace(confidence(replicates, what, centre), value=point, centre=centre)

    def grams_in(self, inner: Canonical, state: Moments) -> Array:
        """The evidence of the blocks of a replicate's state, in its canonical coordinates; slots other than the last
        stay as they are (exact to first order, as in `replicate`).

        inner : of the replicate, in terms of the shared coordinates of this solution.
        """
        r = self.rank
        used = np.searchsorted(self.blocks, np.flatnonzero(state.block_sizes))
        shared = np.concatenate([np.arange(r), self.canonical.rank_u + np.arange(r)])
        lift = joint_whitening(inner.correlations[:r]) @ inner.leading(r)[:, shared]
        plain = plain_grams(self.posterior, self.grams[:, used][:, :, used])
        return np.asarray(lift @ plain @ lift.T)

    def warn(self) -> None:
        """Say what is not sure."""
        if self.verdict == "model fails":
            warn_user(ADVICE["model fails"], SpecificationWarning)
        if self.verdict in ("weak", "not identified") and not self.second_order_only:  # that was warned of already
            test = self.overidentification if self.posterior.verdict == "strong" else None
            warn_user(ADVICE[self.verdict] if test is None else misfit(test), WeakIdentificationWarning)
        if self.mixing_test is not None and self.mixing_test.p_value < SUSPICIOUS:
            warn_user(contradicted(self.mixing_test), SpecificationWarning)

    @property
    def replicable(self) -> bool:
        return not (self.truncated or self.reduced_views)

    def without_blocks(self, key: Key, *, refit: bool) -> Iterator[TwoViews]:
        """Without each block in turn: S1 by one Newton step of T each (`replicate`), which takes a hundredth of the time of a
        refit, where the higher orders tell T; the gate, and what S1 does not depend on, stay."""
        if refit or key != self.keys[0] or not self.evident:
            return super().without_blocks(key, refit=refit)
        return self._stepped()

    def _stepped(self) -> Iterator[PairSolution]:
        rep, found, r = replicate(self.block_evidence()), self.canonical, self.rank
        k, blocks = found.rank_u, BlockCovariances.of(self.state)
        left_out = delete_one(len(blocks.count))
        u, v = LinearMap(found.x_from_u, found.u_from_x), LinearMap(found.y_from_v, found.v_from_y)
        for i, C in enumerate(blocks.covariance(left_out)):
            own = canonical(C[:k, :k], C[:k, k:], C[k:, k:], found.n).composed(u, v)
            turn = own.x_from_u[:r] @ rep.bases.from_x[i]  # from the basis of the step to canonical coordinates
            t = symmetric(turn @ Logistic.at(rep.xs[i]).value @ turn.T)
            moved = np.average(blocks.first, axis=0, weights=blocks.count * left_out[i])
            yield replace(
                self,
                canonical=own,
                mean=self.mean + np.concatenate([u.back @ moved[:k], v.back @ moved[k:]]),
                cov_u=u.back @ C[:k, :k] @ u.back.T,
                cov_v=v.back @ C[k:, k:] @ v.back.T,
                lift_u=own.u_from_x[:, :r],
                lift_v=own.v_from_y[:, :r],
                posterior=replace(self.posterior, correlations=own.correlations[:r], t=t),
                source=None,
            )

    def without(self, block: int) -> PairSolution:
        """Refitted without one block, from the state alone; what was decided (rank, orders, dependence) stays."""
        state, found, k = self.state.without([block]), self.canonical, self.rank
        k_u, k_v = (k, k) if self.truncated else (found.rank_u, found.rank_v)
        u = LinearMap(found.x_from_u[:k_u], found.u_from_x[:, :k_u])
        v = LinearMap(found.y_from_v[:k_v], found.v_from_y[:, :k_v])
        moved = np.concatenate([u.back @ state.mean[:k_u], v.back @ state.mean[k_u:]])
        return _solve(
            SearchSpace(
                StateData(state, self.lost), dict(zip(self.views, (u, v), strict=True)), mean=self.mean + moved
            ),
            self.keys,
            replace(self.options, rank=k),
            decided=self,
        )


def shared_prediction(pair: Pair, t: Array) -> Array:
    """(..., 2r, r): (x, y) -> the best linear prediction of S2, x - h (I - T) h^-1 (x - D y)."""
    own = pair.h @ np.linalg.solve(pair.h, np.eye(t.shape[-1]) - np.swapaxes(t, -1, -2)).swapaxes(-1, -2)
    both = np.concatenate([np.eye(t.shape[-1]) - own, own @ pair.cross], axis=-1)
    return np.asarray(np.swapaxes(both, -1, -2))


def solve_pair(space: SearchSpace, keys: tuple[Key, Key, Key], options: PairOptions) -> PairSolution:
    """The estimator. keys : what S1, S2 and S3 are called."""
    return _solve(space, keys, options).checked()


def _solve(
    space: SearchSpace, keys: tuple[Key, Key, Key], options: PairOptions, decided: PairSolution | None = None
) -> PairSolution:
    """One walk for rows and for saved states: second order -> canonical coordinates and rank -> the state of the canonical
    coordinates z = (x, y) -> block cumulants -> T.

    decided : the solution of which this is a replicate.
    """
    data, (u, v), (first, second_view) = space.data, space.frames.values(), space.frames
    second = data.moments(2)
    A = options.checked_A(len(u.back), len(v.back))
    inner_A = None if A is None else v.to @ A @ u.back
    inner, everything = canonical_coordinates(
        data, second, len(u.to), None if decided is None else decided.canonical.dependence
    )
    r = resolve_rank(options.rank, inner)
    D, n_blocks = inner.correlations[:r], int(np.sum(second.block_sizes > 0))
    lead = AffineMap(second.mean, inner.leading(r).T)
    fourth = _fits(len(u.to) + len(v.to), data.n_blocks)  # of all coordinates; else of the shared ones, or of none
    truncated = not fourth and r > 0 and _fits(2 * r, data.n_blocks)
    state = data.moments(4 if fourth or truncated else 2, lead if truncated else everything)
    seen = np.zeros((2, n_blocks, n_blocks, 2 * r, 2 * r))
    second_order_only = False
    if A is None:
        second_order_only = _too_small(second, inner.n, options.rank) if decided is None else decided.second_order_only
    found, errors = inner.composed(u, v), None
    if inner_A is not None:
        posterior = identify_known(inner, r, inner_A, options.random_state)
    elif second_order_only and r:
        posterior = lower_end(D, n_blocks, "not identified")
    else:
        if r:
            if decided is not None and state.layout.order < 4:
                seen = decided.grams_in(inner, state)
            else:
                seen = _evidence(data, state, second.n, lead, inner, r, truncated, options)
        with one_blas_thread():
            further = None
            few = len(u.back) + len(v.back) <= MOST_WITH_ERRORS
            if (
                r
                and few
                and not truncated
                and space.rows is None
                and any(wanted != "free" for wanted in options.errors)
            ):
                blocks = BlockCovariances.of(state)
                errors = None if decided is None else decided.errors
                errors = independent_errors(found, r, blocks, options.errors) if errors is None else errors
                further = None if errors is None or errors.silent else ErrorsByBlock(errors, found, r, blocks)
            posterior = identify(D, inner.n, seen, options.random_state, further)
        if decided is not None and decided.verdict == "model fails":
            posterior = posterior.failing()
    whole = None
    if decided is not None:
        whole = EveryColumn(decided.cov_u, decided.lift_u), EveryColumn(decided.cov_v, decided.lift_v)
    before = D if decided is None else decided.posterior.correlations
    every_u, every_v = every_column(space, second, inner, found, r, whole, before)
    test = None  # replicates keep what the full fit decided; of reduced views A is not the whole story
    if inner_A is not None and decided is None and space.rows is None:
        test = check_known_mixing(second, len(u.to), options.rank, inner_A)
    most_rank = r if A is not None or options.rank != "auto" else largest_rank(inner, r)
    beyond = None
    if A is None and options.rank in ("auto", "full") and decided is None:
        beyond = _beyond(space, len(u.back), found, r, most_rank > r)
    elif (
        decided is not None and decided.beyond is not None
    ):  # a replicate of reduced views knows the searched columns only
        beyond = decided.beyond if decided.reduced_views else Beyond.of(found, r)
    high = None
    if options.order > 4 and fourth and decided is None:
        high = data.moments(options.order, everything, pooled=True)
    return PairSolution(
        keys=keys,
        views=(first, second_view),
        mean=np.array(second.mean) if space.mean is None else space.mean,
        n=second.n,
        canonical=found,
        state=state,
        cov_u=every_u.spread,
        cov_v=every_v.spread,
        source=CumulantSource(state, high=high) if fourth and state.layout.order == 4 else None,
        options=options,
        posterior=posterior,
        errors=errors,
        truncated=truncated,
        grams=seen,
        lift_u=every_u.lift,
        lift_v=every_v.lift,
        beyond=beyond,
        known_A=A,
        mixing_test=test,
        second_order_only=second_order_only,
        most_rank=most_rank,
        lost=data.lost,
        units=space.units,
        grouped=space.grouped,
    )


def _beyond(space: SearchSpace, d_u: int, found: Canonical, r: int, in_doubt: bool) -> Beyond | None:
    """A beyond the r shared directions that were found; in_doubt : more cannot be excluded."""
    if space.rows is not None:
        return Beyond.of_rows(space.rows, d_u, found.n, found.x_from_u[:r])
    return Beyond.of(found, r) if in_doubt else None


def _evidence(
    data: Data,
    state: Moments,
    n: int,
    lead: AffineMap,
    inner: Canonical,
    r: int,
    truncated: bool,
    options: PairOptions,
) -> Array:
    """Gram matrices (2, B, B, 2r, 2r) of the block cumulants, in the form that `form_of` chooses.

    state : of the shared coordinates where it is truncated, else of all of them.
    """
    D, order, held = inner.correlations[:r], min(options.order, 4), state.layout.order == 4
    form, rows = form_of(n, r, data.n_blocks, held=held, independent=True), None
    if form == "pairs":
        rows = data.sample(lead)
        form = form_of(n, r, data.n_blocks, held=held, independent=rows is not None)
    if rows is not None:
        seen = implicit_grams(rows, joint_whitening(D), n_blocks=data.n_blocks)
        seen[1] *= order >= 4
        return seen
    shared = state if truncated else state.select(np.concatenate([np.arange(r), inner.rank_u + np.arange(r)]))
    if form == "state":
        return grams(shared, D, order=order)
    third, fourth = sketched_rows(n, r, data.n_blocks)
    chosen = (third, fourth if order >= 4 else 0)
    sketched = data.reduced(lead, lambda weighted: Sketch(shared, D, chosen, options.random_state, weighted))
    if sketched is None:
        raise CapacityError(
            f"{r} shared directions are too many for a state of order four, and a table with gaps has nothing else to read: "
            "give a smaller rank=, or use missing='drop'"
        )
    return sketched


def _fits(columns: int, n_blocks: int) -> bool:
    """Whether a state of order four of so many columns can be kept."""
    try:
        Layout(columns, 4, n_blocks=n_blocks).check_memory(LARGEST_STATE)
    except MemoryError:
        return False
    return True


def _too_small(second: Moments, n: float, rank: object) -> bool:
    """Whether there are too few independent rows, n, or blocks of them, for cumulants of higher order; says so."""
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
