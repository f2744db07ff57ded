"""Two views solved by the paper's formulas, equations (2) to (5), in the place of the estimator: ``method="paper"``.

Nothing is shrunk, projected or weighed against residualising.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import least_squares as fitted
from richcomponents.algebra.arrays import power, symmetric
from richcomponents.components.component import Terms
from richcomponents.components.wide import Spread
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError, WeakIdentificationWarning, warn_user
from richcomponents.inference.draws import IdentifiedSet
from richcomponents.inference.verdicts import Test
from richcomponents.learning.coefficients import Coefficients, Refit, residual_map
from richcomponents.learning.outcome import Outcome
from richcomponents.moments.data import AffineMap, Data, StateData
from richcomponents.pair.evidence import check_known_mixing
from richcomponents.pair.two_views import Key, Target, TwoViews, checked_A
from richcomponents.pair.views import BlockSums, canonical_coordinates, resolve_rank, unseen
from richcomponents.paper.contrastive import Extraction, cross_terms, mixing_of_cumulants, truncated_pinv
from richcomponents.paper.moments import least_squares
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class PaperSolution(TwoViews):
    """Equations (2) to (5) in the place of the estimator. Covariances are not projected.

    given : rank, A and order, as in ContrastiveRCA; cov_uv : Cov(U, V); mixing : A (d_v, d_u), given or by equation (2).
    """

    given: tuple[Any, Any, int]
    cov_uv: Array
    mixing: Array

    @classmethod
    def of(
        cls,
        data: Data,
        place: Mapping[str, slice],
        keys: tuple[Key, Key, Key],
        given: tuple[Any, Any, int],
        decided: PaperSolution | None = None,
    ) -> PaperSolution:
        """From the state of the columns (U, V); place : {view: its columns}; decided : the solution of all blocks, where one is
        left out."""
        state, (stated, known, order), (first, second) = data.moments(4), given, place
        d_u, p = place[first].stop, state.layout.n_columns
        dependence = None if decided is None else decided.canonical.dependence
        found, everything = canonical_coordinates(data, state, d_u, dependence)
        low = None if stated in ("auto", "full") else resolve_rank(stated, found)
        rank = min(d_u, p - d_u) if low is None else low
        mixing, cumulants = checked_A(known, stated, d_u, p - d_u), Cumulants(state)
        tested = high = None
        if decided is None:
            if words := unseen(found, rank, (first, second)):
                warn_user(words, WeakIdentificationWarning)
            if mixing is not None:
                sums = BlockSums.of(everything.of_state(state.up_to(2)))
                tested = check_known_mixing(found, sums, resolve_rank(stated, found), mixing, state.dependent)
            if order > 4:
                high = data.moments(order, AffineMap(state.mean, np.eye(p)), pooled=True)
        if mixing is None:
            mixing = mixing_of_cumulants(cumulants, np.arange(d_u), np.arange(d_u, p), order=min(order, 4), rank=low)
        C = cumulants.tensor(np.arange(p), np.arange(p))
        return cls(
            keys=keys,
            views=(first, second),
            mean=np.array(state.mean),
            n=state.n,
            canonical=found,
            state=state,
            cov_u=C[:d_u, :d_u],
            cov_v=C[d_u:, d_u:],
            high=high,
            mixing_test=tested,
            rank=rank,
            largest_rank=rank,
            lost=data.lost,
            given=given,
            cov_uv=C[:d_u, d_u:],
            mixing=mixing,
        )

    def without(self, block: int) -> PaperSolution:
        """The formulas without one block, from the state alone."""
        left, place = StateData(self.state.without([block]), self.lost), zip(self.views, self.columns, strict=True)
        return self.of(left, dict(place), self.keys, self.given, self)

    def tests(self) -> list[Test]:
        """None: the paper's formulas are not checked."""
        return []

    @property
    def A(self) -> Array:
        return self.mixing

    @cached_property
    def inverse(self) -> Array:
        """A^+, at the rank."""
        return truncated_pinv(self.mixing, self.rank)

    def covariance(self, key: Key) -> Array:
        """Equations (3) to (5) at t = 2: k2(U) - k2(U, A^+ V), k2(U, A^+ V), k2(V) - k2(A U, V)."""
        if key == self.keys[2]:
            return symmetric(np.asarray(self.cov_v) - self.cov_uv.T @ self.mixing.T)
        shared = symmetric(self.cov_uv @ self.inverse.T)
        return shared if key == self.keys[1] else np.asarray(self.cov_u) - shared

    @property
    def cross(self) -> tuple[Array, Array]:
        return self.cov_uv, np.eye(len(self.cov_v))

    @cached_property
    def _with_s2(self) -> Array:
        """Cov(z, S2) = [Cov(S2); A Cov(S2)]."""
        shared = self.covariance(self.keys[1])
        return np.vstack([shared, self.mixing @ shared])

    @cached_property
    def _read(self) -> Array:
        """BLUP(S2) = [u v] @ it."""
        return np.asarray(np.linalg.pinv(np.asarray(self.joint()), hermitian=True) @ self._with_s2)

    def predict_s2(self, rows: Array) -> Array:
        return np.asarray(rows @ self._read)

    @property
    def error_s2(self) -> Spread:
        return self.covariance(self.keys[1]) - self._with_s2.T @ self._read

    def terms(self, key: Key) -> Terms:
        every = np.eye(len(self.mean))
        terms = cross_terms(every[:, : self.d_u], every[:, self.d_u :], self.mixing, self.inverse)
        return list(terms.values())[self.keys.index(key)]

    def on_rows(self, key: Key, rows: Array) -> tuple[Array, Terms]:
        """The rows themselves, and how a component's cumulants are read off them."""
        return rows, self.terms(key)

    def on_v(self, outcome: Outcome) -> None:
        """The formulas take every outcome to depend on S1 only."""

    def residual(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """What is left of a component's view after regression on the view where it does not live (all of U for S2); the
        formulas know no shared directions."""
        own = np.arange(len(self.mean))[self.columns[key == self.keys[2]]]
        return np.asarray(rows @ residual_map(np.asarray(self.joint()), own, self.outside(key)))

    def stand_in(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """The residual, or, of S2, what V predicts of U."""
        if key == self.keys[1]:
            return np.asarray(self.split(rows)[0] - self.residual(self.keys[0], rows))
        return self.residual(key, rows)

    def check_determined(self, key: Key, covariates: int) -> None:
        """The formulas make no promise that could be broken."""

    def calibrate(self, key: Key, outcome: Outcome) -> Coefficients:
        """Section 4.1; the view of S3 is V."""
        view = self.columns[key == self.keys[2]]
        return coefficients_of(self, key, outcome, view, shared=key == self.keys[1])

    def identified_set(self) -> IdentifiedSet:
        """Not known."""
        return IdentifiedSet(np.zeros((self.d_u, 0)), np.full((self.d_u, self.d_u), np.nan))

    def covariance_for_directions(self, key: Key, k: int) -> tuple[Spread, float]:
        return self.covariance(key), 1.0

    def moment_draws(self, key: Key, mean_fixed: bool) -> None:
        """Only refitting tells."""

    def interval(self, what: Target) -> None:
        """Only refitting tells."""


def extraction_of(solution: object, key: Key, rows: Array) -> Extraction:
    """S1, S2 or S3 as :func:`extract` gives S1, with the A of any solution of two views, from centred rows (n, d_u + d_v):
    k_t(S2) = k_t(U, ..., U, A^+ V), and equation (5) is (3) with the views exchanged."""
    if not isinstance(solution, TwoViews):
        raise DataError(
            "method='paper' of this learner takes two views, as the paper has it, solved by ContrastiveRCA: for more of them "
            "use approximation='chebyshev'"
        )
    (u, v), A, part = solution.split(rows), solution.A, solution.keys.index(key)
    own, other = (v, u @ A.T) if part == 2 else (u, v @ truncated_pinv(A, solution.rank).T)
    return Extraction(own, other if part == 1 else own - other, np.zeros(own.shape[1]))


def coefficients_of(solution: Any, key: Key, outcome: Outcome, view: slice, *, shared: bool) -> Coefficients:
    """Section 4.1: beta = E[S S']^-1 E[Y S], where E[Y S] = E[Y U] of the view that S is written in: Y depends on S only.

    solution : of two views or many; view : its columns; shared : whether S is in other views, too. Of log-odds, which
    Section 4.2 has other formulas for, those on the best linear prediction of S. `residualised` is least squares on what the
    other views leave (`stand_in`); nothing is weighed against it. Both moments are over n - 1. Errors by the jackknife: A,
    Cov(S) and E[Y S] are those without each block.
    """
    own, rows, y = np.asarray(solution.covariance(key)), outcome.rows, outcome.y
    n = np.append(outcome.n, outcome.kept @ outcome.weight)[:, None]
    cross, *crosses = outcome.covariances(rows[:, view], y[:, None])[..., 0] * n / (n - 1)  # without each block

    def with_errors(found: Coefficients, outcome: Outcome, *, refit: Refit | None = None, **_: Any) -> Estimate:
        """refit : of log-odds."""
        left_out = [solution.without(b) for b in np.unique(outcome.block).tolist()]
        if refit is None:
            pairs = zip(left_out, crosses, strict=True)
            coefs = [least_squares(np.asarray(one.covariance(key)), c) for one, c in pairs]
        else:
            each = zip(left_out, outcome.kept, strict=True)
            coefs = [refit(one.predict(key, outcome.rows)[0], kept) for one, kept in each]
        return Estimate(found.coef, jackknife_error(np.stack(coefs)), max(len(coefs) - 1, 1))

    if outcome.log_odds is None:
        coef, plain = least_squares(own, cross), fitted(solution.stand_in(key, rows), y, outcome.weight)
    else:  # a prediction leaves no negative variance
        coef = plain = outcome.log_odds.coef
        own = power(symmetric(own), 1.0, 0.02 * float(np.linalg.norm(own, 2)))
    return Coefficients(
        coef=coef,
        residualised=plain,
        trust=1.0,
        features=solution.predict(key, rows)[0],
        outcome=y,
        covariance=own,
        free=outcome.free,
        wanted=0,
        simple="instrumental" if shared else "residualised",
        by=with_errors,
    )
