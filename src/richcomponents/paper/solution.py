"""Two views solved by the paper's formulas, equations (2) to (5), in the place of the estimator: ``method="paper"``.

Nothing is shrunk, projected or weighed against residualising.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import least_squares as fitted
from richcomponents.algebra.arrays import symmetric
from richcomponents.components.component import Terms
from richcomponents.components.wide import Spread
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import WeakIdentificationWarning, warn_user
from richcomponents.inference.limits import IdentifiedSet
from richcomponents.inference.verdicts import Test
from richcomponents.learning.coefficients import Coefficients, Refit
from richcomponents.learning.outcome import Outcome
from richcomponents.moments.data import AffineMap, Data, StateData
from richcomponents.pair.canonical import canonical_coordinates, resolve_rank, unseen
from richcomponents.pair.equations import check_known_mixing
from richcomponents.pair.two_views import Key, Target, TwoViews, checked_A
from richcomponents.pair.views import BlockSums
from richcomponents.paper.contrastive import cross_terms, mixing_of_cumulants, truncated_pinv
from richcomponents.paper.moments import least_squares
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class PaperSolution(TwoViews):
    """Equations (2) to (5) in the place of the estimator. Covariances are not projected.

    given : rank, A and order, as in ContrastiveRCA; cov_uv : Cov(U, V); mixing : A (d_v, d_u), given or by equation (2);
    inverse : A^+, at the rank; covariances : of S1, S2, S3; read : (d_u + d_v, d_u), BLUP(S2) = [u v] @ read;
    prediction_error : its error covariance.
    """

    given: tuple[Any, Any, int]
    cov_uv: Array
    mixing: Array
    inverse: Array
    covariances: tuple[Array, Array, Array]
    read: Array
    prediction_error: Array

    def tests(self) -> list[Test]:
        """None: the paper's formulas are not checked."""
        return []

    @property
    def A(self) -> Array:
        return self.mixing

    def covariance(self, key: Key) -> Spread:
        return self.covariances[self.keys.index(key)]

    def predict_s2(self, rows: Array) -> Array:
        return np.asarray(rows @ self.read)

    @property
    def error_s2(self) -> Spread:
        return self.prediction_error

    @property
    def cross(self) -> tuple[Array, Array]:
        return self.cov_uv, np.eye(len(self.cov_v))

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
        """R (n, d): what is left of U after regression on V, of V after regression on U for S3, and U for S2, which lives in
        both; the formulas know no shared directions."""
        u, v = self.split(rows)
        if key == self.keys[1]:
            return u
        return np.asarray(u - v @ self._v_on_u if key == self.keys[0] else v - u @ _slopes(self.cov_u, self.cov_uv))

    def stand_in(self, key: Key, rows: Array, beside: int | None = None) -> Array:
        """The residual, or, of S2, what V predicts of U."""
        return self.split(rows)[1] @ self._v_on_u if key == self.keys[1] else self.residual(key, rows)

    @property
    def _v_on_u(self) -> Array:
        """(d_v, d_u): what V predicts of U."""
        return _slopes(self.cov_v, self.cov_uv.T)

    def check_determined(self, key: Key, covariates: int) -> None:
        """The formulas make no promise that could be broken."""

    def calibrate(self, key: Key, outcome: Outcome) -> Coefficients:
        """Section 4.1; the view of S3 is V."""
        view = slice(self.d_u, None) if key == self.keys[2] else slice(self.d_u)
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

    def without(self, block: int) -> PaperSolution:
        """The formulas without one block, from the state alone."""
        place = dict(zip(self.views, (slice(0, self.d_u), slice(self.d_u, len(self.mean))), strict=True))
        return solve_paper(StateData(self.state.without([block]), self.lost), place, self.keys, self.given, self)


class _Solved(Protocol):
    """Two views or many, solved by the paper's formulas."""

    def covariance(self, key: Key) -> Spread: ...
    def predict(self, key: Key, rows: Array) -> tuple[Array, Spread]: ...
    def stand_in(self, key: Key, rows: Array, beside: int | None = None) -> Array: ...
    def without(self, block: int) -> _Solved: ...


def coefficients_of(solution: _Solved, key: Key, outcome: Outcome, view: slice, *, shared: bool) -> Coefficients:
    """Section 4.1: beta = E[S S']^-1 E[Y S], where E[Y S] = E[Y U] of the view that S is written in: Y depends on S only.

    view : its columns; shared : whether S is in other views, too. Of log-odds, which Section 4.2 has other formulas for, those
    on the best linear prediction of S. `residualised` is least squares on what the other views leave (`stand_in`); nothing is
    weighed against it. Both moments are over n - 1.
    """
    own, rows, y = np.asarray(solution.covariance(key)), outcome.rows, outcome.y
    n = np.append(outcome.n, outcome.kept @ outcome.weight)[:, None]
    crosses = (
        outcome.covariances(rows[:, view], y[:, None])[..., 0] * n / (n - 1)
    )  # of all rows, then without each block
    if outcome.log_odds is None:
        coef, plain = least_squares(own, crosses[0]), fitted(solution.stand_in(key, rows), y, outcome.weight)
    else:
        coef, plain, own = outcome.log_odds.coef, outcome.log_odds.coef, _positive(own)
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
        by=partial(_with_errors, solution, key, crosses[1:]),
    )


def _with_errors(
    solution: _Solved,
    key: Key,
    crosses: Array,
    found: Coefficients,
    outcome: Outcome,
    *,
    refit: Refit | None = None,
    **_: Any,
) -> Estimate:
    """Jackknife: A, Cov(S) and E[Y S] (crosses) are those without each block. refit : of log-odds."""
    left_out = [solution.without(b) for b in np.unique(outcome.block).tolist()]
    if refit is None:
        coefs = [least_squares(np.asarray(one.covariance(key)), c) for one, c in zip(left_out, crosses, strict=True)]
    else:
        coefs = [
            refit(one.predict(key, outcome.rows)[0], kept) for one, kept in zip(left_out, outcome.kept, strict=True)
        ]
    return Estimate(found.coef, jackknife_error(np.stack(coefs)), max(len(coefs) - 1, 1))


def _slopes(covariance: Spread, cross: Array) -> Array:
    """Of least squares on columns with this covariance, from their covariances with the others."""
    return np.asarray(np.linalg.pinv(np.asarray(covariance), hermitian=True) @ cross)


def _positive(covariance: Array) -> Array:
    """The nearest positive semi-definite matrix, eigenvalues at least 2% of the largest."""
    values, vectors = np.linalg.eigh(symmetric(covariance))
    return np.asarray((vectors * np.maximum(values, 0.02 * max(float(values[-1]), 1e-300))) @ vectors.T)


def solve_paper(
    data: Data,
    place: Mapping[str, slice],
    keys: tuple[Key, Key, Key],
    given: tuple[Any, Any, int],
    decided: PaperSolution | None = None,
) -> PaperSolution:
    """Equations (2) to (5) on the state of the columns (U, V); place : {view: its columns}; decided : the solution of all
    blocks, where one is left out; given : rank, A and order."""
    state, (first, second), (stated, known, order) = data.moments(4), place, given
    n_u, p = place[first].stop, state.layout.n_columns
    A, rank = checked_A(known, stated, n_u, p - n_u), _checked_rank(stated, min(n_u, p - n_u))
    u, v = np.arange(n_u), np.arange(n_u, p)
    cumulants = Cumulants(state)
    mixing = mixing_of_cumulants(cumulants, u, v, order=min(order, 4), rank=rank) if A is None else A
    inverse = truncated_pinv(mixing, rank)
    C = cumulants.tensor(np.arange(p), np.arange(p))
    cov_s2 = symmetric(C[np.ix_(u, v)] @ inverse.T)  # k2(U, A^+ V), equation (4) at t = 2
    with_s2 = np.vstack([cov_s2, mixing @ cov_s2])  # Cov(z, S2) = [Cov(S2); A Cov(S2)]
    read = np.linalg.pinv(C, hermitian=True) @ with_s2
    cov_s3 = symmetric(C[n_u:, n_u:] - C[n_u:, :n_u] @ mixing.T)  # k2(V) - k2(A U, V), equation (5) at t = 2
    dependence = None if decided is None else decided.canonical.dependence
    found, everything = canonical_coordinates(data, state, n_u, dependence)
    shared = min(mixing.shape) if rank is None else rank
    if decided is None and (words := unseen(found, shared, (first, second))):
        warn_user(words, WeakIdentificationWarning)
    tested = None
    if A is not None and decided is None:
        sums = BlockSums.of(everything.of_state(state.up_to(2)))
        tested = check_known_mixing(found, sums, resolve_rank(stated, found), A, state.dependent)
    high = None
    if order > 4 and decided is None:
        high = data.moments(order, AffineMap(state.mean, np.eye(p)), pooled=True)
    return PaperSolution(
        keys=keys,
        views=(first, second),
        mean=np.array(state.mean),
        n=state.n,
        canonical=found,
        state=state,
        cov_u=C[:n_u, :n_u],
        cov_v=C[n_u:, n_u:],
        high=high,
        given=given,
        cov_uv=C[:n_u, n_u:],
        mixing=mixing,
        inverse=inverse,
        covariances=(C[:n_u, :n_u] - cov_s2, cov_s2, cov_s3),
        read=read,
        prediction_error=cov_s2 - with_s2.T @ read,
        mixing_test=tested,
        rank=shared,
        largest_rank=shared,
        lost=data.lost,
    )


def _checked_rank(rank: object, full: int) -> int | None:
    if rank in ("auto", "full"):
        return None
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 1 <= rank <= full:
        raise ValueError(f"rank must be 'auto', 'full' or an integer from 1 to {full}, got {rank!r}")
    return int(rank)
