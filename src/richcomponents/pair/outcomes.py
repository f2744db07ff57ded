"""What an outcome has to do with both views: which assumptions the data reject, and its coefficients.

Of o = beta'S1 + gamma'S2 + delta'S3 + noise the coefficients on S1 are corrected under one of two assumptions:

* o does not go with V at all: gamma = delta = 0.
* o goes with V as the shared part does: delta = 0. In the shared canonical coordinates Cov(y, o) = D gamma, so that
  gamma = D^-1 Cov(y, o), whatever T; and o - gamma'U depends on S1 only, with the coefficients beta - gamma.

Both can be tested. The test of o on the SHARED variates y_1..y_r says how much of gamma to believe,

    share = max(0, 1 - (F_0 / F)^2),     F_0 the statistic at the level GOES_WITH;

below it gamma = 0: nothing is lost where o does not go with V. What V has of its own, y_{r+1}.., must not tell anything of o
under either assumption: `belief` in corrections falls to zero with the p value of that test, from WITNESSED on. Where o goes
with V and the shared part fills V, nothing is left that could witness delta = 0: gamma and delta cannot be told apart, and
nothing is corrected (unless the user says that delta = 0); where few are left (ENOUGH), or the cross-cumulants contradict the
model besides, less is.

Without any correction the answer is least squares on U and V. How much of V stands beside U, its r shared variates or all of
them, changes coefficients outside the shared coordinates only; the smaller squared error on left-out blocks decides.

COEFFICIENTS are an answer like every other. Least squares of o on U and the shared part of V ("residualising": T = 0, the safe
value) has, with m = h (b - gamma) on the shared coordinates,

    h (b - gamma) = (I - T) h (beta - gamma) + noise,     so     beta = b + W h^-1 (M - I) m,     M = (I - T)^-1,

W h^-1 the way from shared coordinates to coefficients of U; gamma is what o has to do with S2 (`outcomes`). Where T is
uncertain the least expected squared error has

    M = G (E G^2 + lambda)^-1,     G = I - E T,     lambda = noise / mean square of h beta,

the size pooled over ALL coordinates of U: that of r shared ones alone would call a large noise a large signal. No coefficient
is stretched by more than 1 / LEAST. Draws of T go through the f without doubt, and with the smallest lambda that the outcome's
variance allows. Log-odds are attenuated besides, by c(m'(M - I) m). M lies between I and I / LEAST, so that the identified set
is b + (1 / LEAST - 1) times the range of l'T m.

A wide view is searched for shared directions in its principal components only, but its coefficients are those of least squares
on ALL its columns; with L the loadings of S2 in every column and Q = L'Cov(R)^-1 L, Q^-1/2 stands for h there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import symmetric
from richcomponents.components.component import LEAST_KEPT, Calibrated, error_at_fixed_features
from richcomponents.components.wide import Factored, Spread, added, inverse_factor
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError
from richcomponents.inference.draws import Shrunk
from richcomponents.inference.limits import range_of_products
from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.learning.outcome import Outcome
from richcomponents.learning.predicted import WEAK_INSTRUMENT
from richcomponents.pair.canonical import Canonical
from richcomponents.pair.diagnostics import outcome_test
from richcomponents.pair.views import Pair
from richcomponents.storage import storable
from richcomponents.text import in_line

if TYPE_CHECKING:
    from richcomponents.pair.solution import PairSolution

GOES_WITH = 0.05
"""p value of the test on the shared variates below which gamma is taken into account."""

WITNESSED = next(limit for limit, found in RULES["outcome"].below if found == Verdict.WEAK)
"""p value of the test on the other variates (on the shared ones, where there are no others) below which corrections are
believed less."""

CONTRADICTED = "The outcome contradicts the model"

ENOUGH = 1.5
"""With r shared variates, r / ENOUGH others are witnesses enough that an outcome goes with V through the shared part only."""


@storable
@dataclass(frozen=True)
class OutcomeOnV:
    """What an outcome has to do with V.

    rank : shared variates; beside : variates of V that stand beside U; every : whether these are all there are.
    on_shared, on_rest : tests of the outcome on the shared variates of V, and on what else V has (None: there is nothing else).
    share : of gamma that is believed; belief : in corrections; both in [0, 1]. stated : the user says that it goes with S2.
    letters : what the component's view and the other are called; name : the outcome.
    """

    rank: int
    beside: int
    every: bool
    on_shared: Test
    on_rest: Test | None
    share: float
    belief: float
    stated: bool = False
    letters: tuple[str, str] = ("U", "V")
    name: str = "y"

    @classmethod
    def of(cls, outcome: Outcome, solution: PairSolution) -> OutcomeOnV:
        found, rank, whole = solution.canonical, solution.rank, not solution.reduced_views
        rest, most, columns = found.y_from_v[rank:], len(found.correlations), solution.outside(solution.keys[0])
        on_shared = outcome_test(outcome, columns, solution.lost, found.y_from_v[:rank])
        on_rest = outcome_test(outcome, columns, solution.lost, rest) if len(rest) else None
        critical = float(stats.f.isf(GOES_WITH, *on_shared.df)) if on_shared.p_value < GOES_WITH else np.inf
        share = max(0.0, 1 - (critical / on_shared.statistic) ** 2) if np.isfinite(critical) else 0.0
        belief = not_rejected((on_shared if on_rest is None else on_rest).p_value)
        witnesses = min(1.0, ENOUGH * len(rest) / max(rank, 1))
        belief = belief * (1 - share * (1 - witnesses)) if on_rest is not None else belief
        if share > 0:  # what else speaks against the model
            belief *= not_rejected(float(np.nan_to_num(solution.cumulants_test.p_value, nan=1.0)))
        enough = whole and outcome.n > 2 * (found.rank_u + most)
        beside = _beside(outcome, found, rank, most) if enough and most > rank else rank
        letters = ("V", "U") if solution.exchanged_ else ("U", "V")
        return cls(rank, beside, whole and beside == most, on_shared, on_rest, share, belief, letters=letters)

    @property
    def goes_with(self) -> bool:
        """Whether the outcome is taken to go with S2."""
        return self.share > 0

    @property
    def fails(self) -> str:
        """Which assumption about the outcome the data reject, in words; nothing where none is."""
        return self.failure(self.name)

    def failure(self, name: str) -> str:
        """The same of an outcome of this name. Where nothing is shared nothing is corrected, and nothing can be wrong."""
        if self.stated or self.belief > 0 or not self.rank:
            return ""
        (u, v), name = self.letters, in_line(name)
        if self.on_rest is None:
            return (
                f"{name} goes with {v} ({self.on_shared.p_text}), and the shared part fills {v}: nothing tells whether "
                f"through the shared part or by {v}'s own"
            )
        if not_rejected(self.on_rest.p_value) > 0:
            return (
                f"{name} goes with {v} ({self.on_shared.p_text}), and the cross-cumulants contradict the model: nothing tells "
                "whether through the shared part"
            )
        return f"{name} goes with what {v} does not share with {u} ({self.on_rest.p_text})"

    @property
    def remedy(self) -> str:
        """What is done, and what to do, where the model fails."""
        v = self.letters[1]
        verb = "hold" if " and " in v else "holds"
        return f"Coefficients are those adjusted for {v}, not corrected. Check that {v} {verb} controls only"

    def contradicts_stated(self) -> str:
        """What speaks against the user's word that y goes with V through the shared part only; nothing where nothing does."""
        if not self.stated or self.on_rest is None or self.on_rest.finding != Verdict.CONTRADICTED:
            return ""
        return (
            f"shared=True says that {in_line(self.name)} goes with V through the shared part only, but it goes with what V "
            f"does not share with U ({self.on_rest.p_text}): coefficients may be wrong"
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader of the coefficients must be told, as sentences."""
        if self.stated:
            return () if (doubt := self.contradicts_stated()) == "" else (f"{doubt}.",)
        (u, v), name = self.letters, in_line(self.name)
        if not self.rank:
            told = f"Nothing shared was found, but all of {v} stands beside {u}: it predicts {name} better on left-out samples."
            return (told,) if self.beside else ()
        beside = (
            f"Residualised means adjusted for all of {v}."
            if self.every
            else f"Residualised means adjusted for the {self.rank} directions of {v} that {u} shares: more of what "
            f"correlates with {u} made predictions of {name} on left-out samples no better, or was not tried (views with too "
            "many columns)."
        )
        if self.fails:
            return (f"{CONTRADICTED}: {self.fails}. {self.remedy}.", beside)
        if self.goes_with:
            return (
                f"{name} goes with {v} ({self.on_shared.p_text}) as the shared part does: it is taken to depend on the "
                f"shared part too, and coefficients are those on {u}'s own part beside it.",
                beside,
            )
        return (beside,)


def not_rejected(p: float) -> float:
    """Belief that is left where a test has this p value: 1 from WITNESSED on, 0 at half of it."""
    return float(np.clip(2 * p / WITNESSED - 1, 0.0, 1.0))


def _beside(outcome: Outcome, found: Canonical, rank: int, most: int) -> int:
    """`rank` or `most` variates of V beside U: the smaller squared error on blocks that were left out."""
    d_u = found.x_from_u.shape[1]
    u, v = outcome.rows[:, :d_u], outcome.rows[:, d_u:]
    table = np.column_stack([u @ found.x_from_u.T, v @ found.y_from_v[:most].T, np.ones(len(u)), outcome.y])
    order = [*range(found.rank_u + rank), found.rank_u + most, *range(found.rank_u + rank, found.rank_u + most), -1]
    table = table[:, order] * np.sqrt(outcome.weight)[:, None]  # the variates that may be left out come last but one
    sums = np.stack([table[~kept].T @ table[~kept] for kept in outcome.kept])
    kept = sums.sum(axis=0) - sums

    def squares(k: int) -> float:
        coef = np.linalg.solve(kept[:, :k, :k] + 1e-9 * outcome.n * np.eye(k), kept[:, :k, -1:])[..., 0]
        left = np.concatenate([-coef, np.ones((len(coef), 1))], axis=1)
        at = [*range(k), -1]
        return float(np.einsum("bi,bij,bj->", left, sums[:, at][:, :, at], left))

    few, all_ = found.rank_u + rank + 1, found.rank_u + most + 1
    return most if squares(all_) < squares(few) else rank


# ---- coefficients on S1


@dataclass(frozen=True, eq=False)
class OnResidual:
    """Coefficients b (..., d_u) on the residual of U on the shared part of V, of a sample or a stack of replicates; lift
    (..., d_u, r) : loadings of the shared coordinates; into (..., d_u, r) : W h^-1; half (..., r, r) : h; gamma (..., r)."""

    b: Array
    lift: Array
    into: Array
    half: Array
    gamma: Array

    @classmethod
    def at(cls, pair: Pair, b: Array, gamma: Array, lift: Array | None = None) -> OnResidual:
        """b in the user's columns; lift : of all columns of a wide view."""
        found = pair.canonical
        into = found.x_from_u.T @ np.linalg.solve(pair.h, pair.to_x).mT
        return cls(b, found.u_from_x @ pair.from_x if lift is None else lift, into, pair.h, gamma)

    def repeated(self, b: Array) -> OnResidual:
        """The same for every block, with coefficients b (B, d_u)."""
        return OnResidual(
            b, *(np.repeat(one[None], len(b), 0) for one in (self.lift, self.into, self.half, self.gamma))
        )

    @property
    def m(self) -> Array:
        """(..., r)."""
        own = self.lift.mT @ self.b[..., None] - self.gamma[..., None]
        return np.asarray((self.half @ own)[..., 0])

    @property
    def on_shared(self) -> Array:
        """gamma in the user's columns, (..., d_u)."""
        return np.asarray((self.into @ (self.half @ self.gamma[..., None]))[..., 0])


@dataclass(frozen=True, eq=False)
class Stretch:
    """noise : variance of an entry of m; size, most : mean square of h beta, as estimated, and as large as it can be;
    attenuation : of log-odds, m'(M - I) m -> the factor that coefficients lack."""

    noise: float
    size: float
    most: float
    attenuation: Callable[[Array], Array] | None = None

    def matrix(self, T: Array, doubt: Array) -> Array:
        """M (..., r, r)."""
        identity = np.eye(T.shape[-1])
        G, ridge = identity - T, self.noise / (self.size if doubt.any() else self.most)
        raw = G @ np.linalg.inv(G @ G + doubt + (ridge + 1e-12) * identity)
        values, vectors = np.linalg.eigh(symmetric(raw))
        return np.asarray((vectors * np.clip(values, 1.0, 1 / LEAST_KEPT)[..., None, :]) @ vectors.mT)

    def __call__(self, fit: OnResidual, T: Array, doubt: Array) -> Array:
        """beta (..., d_u)."""
        m = fit.m[..., None]
        more = self.matrix(T, doubt) @ m - m
        beta = fit.b + (fit.into @ more)[..., 0]
        return np.asarray(beta * self.factor(np.sum(m * more, (-1, -2)))[..., None])

    def factor(self, unseen: Array) -> Array:
        return np.ones_like(unseen) if self.attenuation is None else self.attenuation(np.maximum(unseen, 0.0))

    def ends(self, fit: OnResidual) -> tuple[Array, Array]:
        """The identified set (d_u,): over I <= M <= I / LEAST, and over the attenuation that goes with it."""
        most = 1 / LEAST_KEPT - 1
        low, high = (fit.b + most * end[..., 0] for end in range_of_products(fit.into, fit.m[..., None, :]))
        if self.attenuation is None:
            return low, high
        largest = float(self.factor(np.asarray(most * float(np.sum(fit.m**2)))))
        corners = np.stack([low, high, largest * low, largest * high])
        return corners.min(axis=0), corners.max(axis=0)


@dataclass(frozen=True, eq=False)
class OnOwnPart:
    """An outcome on S1, all columns of U included: least squares (or log-odds) on the residual, of all rows and without each
    block, and the answer f(fit, T, doubt) that corrects them.

    own : Cov(R); inverse : G (d_u, k) with G G' = Cov(R)^-1 over all columns of a wide U, None where the canonical coordinates
    are all of U, or where there are too few samples. Where least squares is not determined (fewer samples than columns of U) it
    is the regression on the principal components that were searched: a guide for penalised fits, no result.
    """

    solution: PairSolution
    on_v: OutcomeOnV
    own: Spread
    inverse: Array | None
    here: OnResidual
    left_out: OnResidual
    stretch: Stretch

    @classmethod
    def of(cls, solution: PairSolution, outcome: Outcome) -> OnOwnPart:
        found, pair, on_v, n = solution.canonical, solution.pair, solution.on_v(outcome), solution.canonical.n
        cross, variance = outcome.with_rows()
        with_u, with_v = solution.split(cross)
        own, cov_u, odds = solution.cov_residual(on_v.beside), solution.cov_u, outcome.log_odds
        wide = isinstance(cov_u, Factored) and solution.determined(outcome.covariates)
        inverse = inverse_factor(cov_u.rows) if isinstance(cov_u, Factored) and wide else None
        if odds is not None:
            here, left_out = on_log_odds(solution, odds.coef, on_v), None
            noise = 1 / (max(odds.information, 1e-12) * max(n - len(here.b) - 1, 1))
            variance = noise * n
        elif inverse is not None:
            with_y, lift, left_out = found.y_from_v[: solution.rank] @ with_v, solution.lift_u, None
            inside = inverse.T @ (with_u - lift @ (solution.correlations * with_y))
            left, free = variance - float(with_y @ with_y + inside @ inside), n - solution.coefficients_wanted - 1
            noise = max(left, 1e-12 * variance) / free if free > 0 else 0.0
            toward = inverse @ (inverse.T @ lift)
            values, vectors = np.linalg.eigh(symmetric(lift.T @ toward))  # Q
            half = (vectors / np.sqrt(np.maximum(values, 1e-300))) @ vectors.T
            here = OnResidual(inverse @ inside, lift, toward @ half, half, on_v.share * instrumented(pair, with_y, n))
        else:
            here, left_out = least_squares(pair, with_u, with_v, on_v), without_blocks(solution, outcome, on_v)
            with_y = found.y_from_v[: on_v.beside] @ with_v
            left = max(variance - float(here.b @ own @ here.b) - float(with_y @ with_y), 1e-12 * variance)
            noise = left / max(n - found.rank_u - on_v.beside - 1, 1)
        columns, T = max(len(here.b) if solution.reduced else found.rank_u, 1), solution.fit.posterior.T
        G = np.eye(solution.rank) - T.posterior
        first, second = (float(np.trace(np.tensordot(T.weight, g, 1))) for g in (G, G @ G))
        size = max(float(here.b @ own @ here.b) - columns * noise, 1e-3 * columns * noise, 1e-300)
        size = size / max(columns - solution.rank + second, 1e-300)
        most = max(variance / max(first, LEAST_KEPT), size)
        stretch = Stretch(noise, size, most, None if odds is None else odds.attenuation)
        left_out = here.repeated(np.repeat(here.b[None], len(solution.left_out.n), 0)) if left_out is None else left_out
        return cls(solution, on_v, own, inverse, here, left_out, stretch)

    @cached_property
    def shrunk(self) -> Shrunk:
        """Coefficients times the loadings have errors that count alike."""
        fit, white = self.solution.fit, self.solution.canonical.u_from_x
        gate = fit.gate * self.on_v.belief if fit.rank else 0.0
        return fit.answer(self.stretch, gate=gate, metric=lambda c: c @ white, at=(self.here, self.left_out))

    @cached_property
    def M(self) -> Array:
        """At the share of the correction."""
        known, identity = self.solution.fit.posterior, np.eye(self.solution.rank)
        return identity + self.shrunk.share * (self.stretch.matrix(known.T.value, known.doubt) - identity)

    def calibrated(self, outcome: Outcome) -> Calibrated:
        """With the prediction of S1, R without T of what is shared: least squares on it gives coefficients stretched by M."""
        solution, here, on_v, r = self.solution, self.here, self.on_v, self.solution.rank
        T, through = np.eye(r) - np.linalg.inv(self.M), here.on_shared
        R = solution.residual(solution.keys[0], outcome.rows, on_v.beside)
        features = R - (R @ (here.into @ here.half) @ (np.linalg.inv(here.half) @ T.T @ here.half)) @ here.lift.T
        return Calibrated(
            coef=self.shrunk.value,
            residualised=here.b,
            trust=self.shrunk.share,
            features=features,
            outcome=outcome.y - (outcome.rows[:, : solution.d_u] - features) @ through,
            covariance=added(self.own, solution.canonical.u_from_x[:, :r] @ solution.pair.h, -T),
            determined=solution.determined(outcome.covariates),
            reduced=solution.reduced,
            wanted=solution.coefficients_wanted + on_v.beside - r + outcome.covariates,
            free=outcome.free,
            factor=float(self.stretch.factor(np.asarray(here.m @ (self.M @ here.m - here.m)))),
            shared=through if on_v.goes_with else None,
            on_v=on_v,
            by=self.estimate,
        )

    def estimate(
        self, calibrated: Calibrated, outcome: Outcome, *, grouped: bool, replicates: Array | None = None, **_: Any
    ) -> Estimate:
        """With errors and the identified set. replicates (B, d_u) : log-odds on the residual without each block.

        On all columns of a wide view there are too few samples to leave some out: errors of the textbook instead, which take
        samples for independent. With groups they are not, and there is no honest error.
        """
        solution, here, shrunk, degrees = self.solution, self.here, self.shrunk, max(len(outcome.kept) - 1, 1)
        if replicates is not None:
            left_out = on_log_odds(solution, replicates, self.on_v, here)
            shrunk = solution.fit.answer(self.stretch, share=shrunk.share, at=(here, left_out))
        variance = shrunk.variance
        if solution.reduced and replicates is None and self.inverse is None:
            features, left = calibrated.features, calibrated.outcome
            variance = variance + error_at_fixed_features(features, left, outcome.kept, outcome.weight) ** 2
        elif solution.reduced and replicates is None and self.inverse is not None:
            shared = here.half @ (here.lift.T @ self.inverse)
            own = self.stretch.noise * np.sum((self.inverse + here.into @ (self.M @ shared - shared)) ** 2, axis=1)
            free = solution.canonical.n - solution.coefficients_wanted - 1
            degrees, variance = max(round(free), 1), variance + (np.nan if grouped or free <= 0 else own)
        ends = self.stretch.ends(here) if solution.rank else None
        return Estimate(shrunk.value, np.sqrt(variance), degrees, identified=ends, set_limits=False)


def least_squares(pair: Pair, with_u: Array, with_v: Array, on_v: OutcomeOnV) -> OnResidual:
    """From covariances with the outcome (..., d_u) and (..., d_v), of a sample or of the stack without each block."""
    found, r = pair.canonical, pair.rank
    x, y = with_u @ found.x_from_u.T, with_v @ found.y_from_v.T
    with_y = pair.to_y @ y[..., None]
    own = x[..., None] - pair.from_x @ pair.K @ with_y
    covariance = pair.own_x(np.zeros_like(pair.K))
    if on_v.beside > r:
        more = found.rank_u + np.arange(r, on_v.beside)
        between = pair.covariance[..., : found.rank_u, more]
        rest = np.linalg.solve(pair.covariance[..., more[:, None], more], between.mT)
        own = own - rest.mT @ y[..., r : on_v.beside, None]
        covariance = covariance - between @ rest
    b = np.linalg.solve(covariance, own)[..., 0] @ found.x_from_u
    return OnResidual.at(pair, b, on_v.share * instrumented(pair, with_y[..., 0], found.n))


def without_blocks(solution: PairSolution, outcome: Outcome, on_v: OutcomeOnV) -> OnResidual:
    """Least squares without each block."""
    return least_squares(solution.left_out, *solution.split(outcome.with_rows_without_blocks()[0]), on_v)


def on_log_odds(solution: PairSolution, coef: Array, on_v: OutcomeOnV, here: OnResidual | None = None) -> OnResidual:
    """Log-odds (..., d_u + k) of R and of variates of V; here : of all rows, where coef is without each block."""
    pair, d_u, r = solution.pair if here is None else solution.left_out, solution.d_u, solution.rank
    b, on_y = coef[..., :d_u], coef[..., d_u:][..., :r]
    if here is not None and solution.reduced:
        return here.repeated(b)
    on_y = on_y if on_y.shape[-1] else np.zeros((*coef.shape[:-1], r))
    gamma = on_v.share * instrumented(pair, on_y, solution.canonical.n)
    return OnResidual.at(pair, b, gamma, solution.lift_u if solution.reduced else None)


def instrumented(pair: Pair, with_y: Array, n: float) -> Array:
    """gamma = K'^-1 Cov(y, outcome), with a ridge, (..., r)."""
    ridge = WEAK_INSTRUMENT / n * np.eye(pair.rank)
    return np.asarray(np.linalg.solve(pair.K @ pair.K.mT + ridge, pair.K @ with_y[..., None])[..., 0])


# ---- coefficients on S1 and on S2

PARTS = ("own part (S1)", "shared part (S2)", "unexplained")
"""Of the outcome's variance."""


@dataclass(frozen=True)
class BothParts:
    """Coefficients of an outcome on S1, `coef`, and on S2, `shared`, (d_u,) each, with their errors: nan without any S2.

    residualised (d_u,) : those of U with U and V as regressors; trust : in [0, 1], the share of the correction that was made;
    split (3,) : shares of the outcome's variance beta'Cov(S1) beta + gamma'Cov(S2) gamma + the noise's, see PARTS; on_v : what
    the outcome has to do with V.
    """

    coef: Estimate
    shared: Estimate
    residualised: Array
    trust: float
    split: Estimate
    on_v: OutcomeOnV

    @classmethod
    def of(cls, solution: PairSolution, outcome: Outcome, *, grouped: bool = False) -> BothParts:
        if solution.reduced:
            raise DataError(
                f"the first view ({solution.d_u} columns for {solution.n} samples) was searched in its principal components "
                "only, where an outcome that depends on both parts is not supported: name fewer columns, or use more samples"
            )
        on_v = replace(solution.on_v(outcome), share=1.0, belief=1.0, stated=True)
        outcome, degrees = replace(outcome, on_v=on_v), max(len(outcome.kept) - 1, 1)
        solved = OnOwnPart.of(solution, outcome)
        shared = solved.here.on_shared
        error = jackknife_error(solved.left_out.on_shared) if solution.rank else np.full_like(shared, np.nan)

        def parts(at: tuple[Pair, OnResidual, Array], T: Array, doubt: Array) -> Array:
            pair, fit, variance = at
            beta = solved.stretch(fit, T, doubt)
            own = np.einsum("...i,...ij,...j->...", beta, pair.cov_s1(T), beta) / variance
            other = np.einsum("...i,...ij,...j->...", fit.gamma, pair.S(T), fit.gamma) / variance
            return np.stack([own, other, 1 - own - other], axis=-1)

        here = solution.pair, solved.here, np.asarray(outcome.with_rows()[1])
        left_out = solution.left_out, solved.left_out, outcome.with_rows_without_blocks()[1]
        split = solution.fit.answer(parts, share=solved.shrunk.share, at=(here, left_out))
        return cls(
            coef=solved.estimate(solved.calibrated(outcome), outcome, grouped=grouped),
            shared=Estimate(shared, error, degrees),
            residualised=solved.here.b,
            trust=solved.shrunk.share,
            split=Estimate(split.value, split.error, degrees, PARTS),
            on_v=on_v,
        )
