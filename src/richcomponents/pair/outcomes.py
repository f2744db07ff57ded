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
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import symmetric
from richcomponents.components.component import LEAST_KEPT
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError
from richcomponents.inference.draws import Draws, Shrunk, shrink
from richcomponents.inference.limits import range_of_products
from richcomponents.inference.posterior import Posterior
from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.learning.outcome import Outcome
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
    def of(
        cls, outcome: Outcome, found: Canonical, rank: int, columns: IntArray, lost: float, whole: bool
    ) -> OutcomeOnV:
        """columns : of V in the outcome's rows; whole : whether all columns of both views were searched."""
        on_shared = outcome_test(outcome, columns, lost, found.y_from_v[:rank])
        rest, most = found.y_from_v[rank:], min(found.rank_u, found.rank_v)
        on_rest = outcome_test(outcome, columns, lost, rest) if len(rest) else None
        critical = float(stats.f.isf(GOES_WITH, *on_shared.df)) if on_shared.p_value < GOES_WITH else np.inf
        share = max(0.0, 1 - (critical / on_shared.statistic) ** 2) if np.isfinite(critical) else 0.0
        belief = not_rejected((on_shared if on_rest is None else on_rest).p_value)
        witnesses = min(1.0, ENOUGH * len(rest) / max(rank, 1))
        belief = belief * (1 - share * (1 - witnesses)) if on_rest is not None else belief
        enough = whole and outcome.n > 2 * (found.rank_u + most)
        beside = _beside(outcome, found, rank, most) if enough and most > rank else rank
        return cls(rank, beside, whole and beside == most, on_shared, on_rest, share, belief)

    def stating(self) -> OutcomeOnV:
        """The same where the user says that the outcome goes with S2, and with nothing else of V."""
        return replace(self, share=1.0, belief=1.0, stated=True)

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
    table = table[:, order]  # the variates that may be left out come last but one
    blocks = [
        table[outcome.block == b] * np.sqrt(outcome.weight[outcome.block == b])[:, None]
        for b in np.unique(outcome.block)
    ]
    sums = np.stack([rows.T @ rows for rows in blocks])
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
    def at(cls, pair: Pair, b: Array, gamma: Array) -> OnResidual:
        """b in the user's columns."""
        found = pair.canonical
        into = found.x_from_u.T @ np.linalg.solve(pair.h, pair.to_x).mT
        return cls(b, found.u_from_x @ pair.from_x, into, pair.h, gamma)

    def repeated(self, blocks: int) -> OnResidual:
        """The same for every block."""
        each = (self.b, self.lift, self.into, self.half, self.gamma)
        return OnResidual(*(np.repeat(one[None], blocks, axis=0) for one in each))

    @property
    def m(self) -> Array:
        """(..., r)."""
        own = self.lift.mT @ self.b[..., None] - self.gamma[..., None]
        return np.asarray((self.half @ own)[..., 0])

    @property
    def on_shared(self) -> Array:
        """gamma in the user's columns, (..., d_u)."""
        return np.asarray((self.into @ (self.half @ self.gamma[..., None]))[..., 0])

    def without_shared(self, rows: Array, T: Array) -> Array:
        """R (n, d_u) -> the prediction of S1 at T: least squares on it gives coefficients stretched by (I - T)^-1."""
        weights = self.into @ self.half
        inner = np.linalg.inv(self.half) @ T.T @ self.half
        return np.asarray(rows - (rows @ weights @ inner) @ self.lift.T)


@dataclass(frozen=True, eq=False)
class Stretch:
    """noise : variance of an entry of m; size, most : mean square of h beta, as estimated, and as large as it can be;
    attenuation : of log-odds, m'(M - I) m -> the factor that coefficients lack."""

    noise: float
    size: float
    most: float
    attenuation: Callable[[Array], Array] | None = None

    @classmethod
    def of(cls, explained: float, noise: float, columns: int, variance: float, posterior: Posterior) -> Stretch:
        """explained : b'Cov(R) b; columns : of U; variance : of the outcome."""
        T, r = posterior.T, posterior.T.value.shape[-1]
        G = np.eye(r) - T.posterior
        first, second = (float(np.trace(np.tensordot(T.weight, g, 1))) for g in (G, G @ G))
        noise = noise if np.isfinite(noise) else 0.0
        size = max(explained - columns * noise, 1e-3 * columns * noise, 1e-300) / max(columns - r + second, 1e-300)
        return cls(noise, size, max(variance / max(first, LEAST_KEPT), size))

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
class Solved:
    """Coefficients, what they were read from, the noise of an entry of m, and the T that least squares on the prediction of S1
    at T gives them."""

    shrunk: Shrunk
    here: OnResidual
    stretch: Stretch
    noise: float
    T: Array


def coefficients(
    here: OnResidual, left_out: OnResidual, posterior: Posterior, stretch: Stretch, gate: float, white: Array
) -> Shrunk:
    """left_out : without each block; white (d_u, k) : coefficients times it have errors that count alike."""
    T, doubt = posterior.T, posterior.doubt
    full = Draws(
        stretch(here, T.value, doubt),
        stretch(left_out, T.blocks, doubt),
        stretch(here, T.posterior, np.zeros_like(doubt)),
        T.weight,
    )
    return shrink(Draws.certain(here.b, left_out.b), full, gate, lambda c: c @ white)


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
        on_v, degrees = solution.on_v(outcome).stating(), max(len(outcome.kept) - 1, 1)
        outcome = replace(outcome, on_v=on_v)
        solved = solution.calibrate(solution.keys[0], outcome)
        here = solved.by.here
        left_out = solution.fitted_without_blocks(outcome, on_v)
        shared = here.on_shared
        error = jackknife_error(left_out.on_shared) if solution.rank else np.full_like(shared, np.nan)
        return cls(
            coef=solution.estimate(solved, outcome, grouped=grouped),
            shared=Estimate(shared, error, degrees),
            residualised=here.b,
            trust=solved.trust,
            split=_split(solution, outcome, solved.by, left_out),
            on_v=on_v,
        )


def _split(solution: PairSolution, outcome: Outcome, solved: Solved, left_out: OnResidual) -> Estimate:
    """Shares of the outcome's variance."""
    T, doubt, here, stretch = solution.fit.posterior.T, solution.fit.posterior.doubt, solved.here, solved.stretch

    def parts(pair: Pair, beta: Array, gamma: Array, t: Array, variance: Array) -> Array:
        own = np.einsum("...i,...ij,...j->...", beta, pair.cov_s1(t), beta) / variance
        shared = np.einsum("...i,...ij,...j->...", gamma, pair.S(t), gamma) / variance
        return np.stack([own, shared, 1 - own - shared], axis=-1)

    variance, without = np.asarray(outcome.with_rows()[1]), outcome.with_rows_without_blocks()[1]
    pair, pairs, none = solution.pair, solution.left_out, np.zeros_like(doubt)
    full = Draws(
        parts(pair, stretch(here, T.value, doubt), here.gamma, T.value, variance),
        parts(pairs, stretch(left_out, T.blocks, doubt), left_out.gamma, T.blocks, without),
        parts(pair, stretch(here, T.posterior, none), here.gamma, T.posterior, variance),
        T.weight,
    )
    safe = Draws.certain(
        parts(pair, here.b, here.gamma, none, variance), parts(pairs, left_out.b, left_out.gamma, 0 * T.blocks, without)
    )
    found = Shrunk.at(safe, full, solved.shrunk.share)
    return Estimate(found.value, found.error, max(len(outcome.kept) - 1, 1), PARTS)
