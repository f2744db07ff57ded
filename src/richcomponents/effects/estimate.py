"""Effects of exposures on the columns of U when something hidden goes with them, given negative controls V.

    U = alpha e + S1 + S2,    V = A S2 + S3,    S1, S3 independent of each other and of (S2, e); S2 and e dependent in any way.

Without their regression on the exposures e (and on known covariates) the views follow the contrastive model exactly: second
moments, K, h and T are those of any two views (pair/views.py). Let b_w, b_v be the slopes of the columns on the exposures and
Q = K K' the covariance of what the controls predict of S2, y_S = K y. For a column w without any part of S3

    alpha_w(T) = ANCOVA_w - l_w' T m,      l_w = h Q^-1 Cov(y_S, w),      m = h Q^-1 (slopes of y_S),

linear in T. T = 0 says that controls have no noise of their own: the analysis of covariance, the coefficient of e in w on
(e, V), which is the safe value. With second moments alone the effect lies between ANCOVA - (l'm + |l||m|) / 2 and
ANCOVA - (l'm - |l||m|) / 2, the identified set: the range over all 0 <= T <= I.

l, m and T are those of moments that a factor model of all columns smoothed (moments.py), as far as that model holds; the
analysis of covariance is that of the sample. So every value that is reported is alpha at an admissible T.

CONTROLS. Each is held out ALONE and treated as a test whose effect is zero: predictors are the coordinates of V of which it is
no part. With P = W'(W Cov(V) W')^-1 W, W (k_v, d_v) from V to its coordinates, what is predicted of control j without itself is

    Cov(v_j, V) P Z - c_j (P Z)_j,    c_j = (Cov(V) P)_jj / P_jj,    and    Z'P Z is less by (P Z)_j (P Z)_j' / P_jj:

rank-one downdates, no refits. They are witnesses of the share of the correction, and of errors (inference/witnesses.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

import numpy as np
from scipy import linalg, stats

from richcomponents.algebra import Array, IntArray
from richcomponents.cumulants.estimate import Estimate
from richcomponents.effects.answer import Effects, ExposureAnswer
from richcomponents.effects.moments import Coordinates, Given, Smoothing
from richcomponents.inference.draws import Draws, Shrunk, range_of_products, share_of
from richcomponents.inference.posterior import Evidence, Posterior, Prior, T_of, at_best, best
from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.inference.witnesses import share_with, widened
from richcomponents.learning.coefficients import WEAK_INSTRUMENT
from richcomponents.pair.evidence import CrossCumulants, UncorrelatedOwnParts
from richcomponents.pair.solution import PairSolution
from richcomponents.pair.views import (
    LEVEL,
    MOST_CORRECTED,
    Canonical,
    Pair,
    PairFit,
    canonical,
    leftover_statistic,
    remaining_p_value,
)
from richcomponents.text import counted, listed, p_value

MOST_LOOKED_AT = 30
"""Columns of a view whose own parts are compared with each other: equations are half the square of their number."""

FEWEST_CONTROLS = 4
"""With fewer, none is held out: too little would be left to estimate its effect from."""

MOST_LEFT_OUT = 200
"""Controls, up to which each is left out in turn to find one that the exposure changes."""


# ---- the formulas


@dataclass(frozen=True, eq=False)
class Linear:
    """alpha(T) = base - left T right: base (..., p, q), left (..., p, r), right (..., p or 1, r, q)."""

    base: Array
    left: Array
    right: Array

    def at(self, T: Array) -> Array:
        """(..., p, q) for T (..., r, r)."""
        return np.asarray(self.base - np.einsum("...pr,...prq->...pq", self.left @ T, self.right))

    def set(self) -> tuple[Array, Array]:
        """Ends (..., p, q) of the range over all 0 <= T <= I, where no control is left out."""
        low, high = range_of_products(self.left, self.right[..., 0, :, :].mT)
        return self.base - high, self.base - low


def without_each(given: Given, to_v: Array) -> Array:
    """(..., d_v, k_v): P_j / sqrt(P_jj), which leaves control j out; zero where it has no part of its own to leave out."""
    onto = to_v.T @ given.precision_v
    own = np.einsum("...jk,kj->...j", onto, to_v)[..., None]
    return np.asarray(np.divide(onto, np.sqrt(np.abs(own)), out=np.zeros_like(onto), where=own > 0))


def ancova(given: Given, columns: slice, gone: Array | None = None) -> Array:
    """(..., p, q) the analysis of covariance of these columns on all coordinates of V, but for the control that is gone,
    (..., p or 1, k_v)."""
    rows, on_v = given.with_v[..., columns, :], given.on_v
    plain = given.slopes[..., columns, :] - rows @ (given.precision_v @ on_v)
    return plain if gone is None else plain + np.sum(rows * gone, axis=-1, keepdims=True) * (gone @ on_v)


def effects_on(
    given: Given, pair: Pair, columns: slice, base: Array, gone: Array | None = None, ridge: float = 0.0
) -> Linear:
    """The effects on these columns; base : their analysis of covariance; gone (..., p or 1, k_v) : which control is left out.
    Then Cov(S2), of which slopes tell nothing, is still that of all controls, also at T = 0."""
    gone = np.zeros((1, given.with_v.shape[-1])) if gone is None else gone
    rows, predictor = given.with_v[..., columns, :], (pair.K @ pair.to_y @ pair.canonical.y_from_v).mT
    seen, Q = gone @ given.cov_v @ predictor, pair.K @ pair.K.mT + ridge * np.eye(pair.rank)
    lost = seen[..., None] * seen[..., None, :]
    inverse = np.linalg.inv(Q[..., None, :, :] - lost)
    slopes = (predictor.mT @ given.on_v)[..., None, :, :] - seen[..., None] * (gone @ given.on_v)[..., None, :]
    with_s = rows @ predictor - np.sum(rows * gone, axis=-1, keepdims=True) * seen
    left, right = np.einsum("...pr,...prs->...ps", with_s, inverse), inverse @ slopes
    safe = base - np.einsum("...pr,...prs,...psq->...pq", left, lost, right, optimize=True)
    return Linear(safe, left @ pair.h, pair.h[..., None, :, :] @ right)


# ---- held-out controls as witnesses


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Effects on held-out controls (c, q), in standard deviations: all that the others do not determine, copies once.

    weight : one over the dispersion of the correlations of their own parts: a control whose own part goes with that of another
    is no witness of what both share with the tests. index (d_v,) : which of these each control is a copy of, or -1;
    size (d_v,) : its standard deviation, negative where the copy is turned; adjusted (d_v, q) : at T = 0.
    """

    safe: Draws
    full: Draws
    weight: float
    index: IntArray
    size: Array
    adjusted: Array

    def of(self, i: int) -> HeldOut:
        """Of one exposure."""
        one = itemgetter((..., i))
        return replace(self, safe=self.safe.map(one), full=self.full.map(one), adjusted=one(self.adjusted))

    def shown(self, seen: Shrunk, degrees: float, names: tuple[str, ...]) -> Estimate:
        """Of all controls, in their units."""
        value, error = (np.where(self.index >= 0, self.size * x[self.index], np.nan) for x in (seen.value, seen.error))
        error, others = np.abs(error) / np.sqrt(self.weight), {"adjusted": self.adjusted}
        return Estimate(value, error, np.full(len(value), degrees), names=names, others=others)


# ---- the estimate


@dataclass(frozen=True, eq=False)
class Problem:
    """All that the estimate is a function of.

    given, blocks : second moments, of all rows and (a stack) without each block; counts (B,) : rows of the blocks; views :
    coordinates of U and of V; solution : of the two views; exposures, tests, controls : their names; tests are the first
    columns, the rest of the first view being instruments; share : of the correction, where it is given.
    """

    given: Given
    blocks: Given
    counts: Array
    views: tuple[Coordinates, Coordinates]
    solution: PairSolution
    exposures: tuple[str, ...]
    tests: tuple[str, ...]
    controls: tuple[str, ...]
    share: float | None = None

    @cached_property
    def stated(self) -> UncorrelatedOwnParts | None:
        """What instruments state, if there are any: own parts of tests and instruments are uncorrelated."""
        u, v = self.views
        if u.columns is None or len(self.tests) == u.to.shape[1]:
            return None
        groups, none = np.where(u.columns < len(self.tests), 0, 1), np.full(len(v.to), -1)
        return UncorrelatedOwnParts(groups_u=groups, groups_v=none, stated=True, dispersed=True, name="instruments")

    def evidences(self, where: Canonical, rank: int) -> list[Evidence]:
        """At this rank; where : canonical coordinates of the moments that T is for."""
        r, stated, out = min(rank, MOST_CORRECTED), self.stated, list[Evidence]()
        if self.solution.grams_xy.any():  # in leading canonical coordinates of the solution
            found, m = self.solution.canonical, self.solution.pair.corrected
            on_u, on_v = self.views[0].to @ found.u_from_x[:, :m], self.views[1].to @ found.v_from_y[:, :m]
            into = linalg.block_diag(where.x_from_u[:r] @ on_u, where.y_from_v[:r] @ on_v)
            out.append(CrossCumulants(into @ self.solution.grams_xy @ into.T))
        if stated is None:
            groups = []  # every column one of its own, of those that go most with what is shared
            for view, loadings in zip(self.views, (where.u_from_x[:, :r], where.v_from_y[:, :r]), strict=True):
                first = np.argsort(-np.sum(loadings**2, axis=1), kind="stable")[:MOST_LOOKED_AT]
                every = np.arange(len(view.to))
                groups.append(np.where(np.isin(every, first) & (view.columns is not None), every, -1))
            stated = UncorrelatedOwnParts(groups_u=groups[0], groups_v=groups[1], dispersed=True)
        return [*out, stated]

    @cached_property
    def smoothed(self) -> tuple[Smoothing, Given, Given, Canonical]:
        """Factors of all columns, where all are compared and no instruments say more; the second moments that they smooth, and
        canonical coordinates of these."""
        given, blocks, (u, v), rows = self.given, self.blocks, self.views, self.solution.canonical.n
        smooth, k_u = Smoothing(), len(u.to)
        if u.columns is not None and v.columns is not None and self.stated is None and self.solution.rank:
            smooth = Smoothing.of(given.cov, k_u, rows)
        if smooth.weight:
            lift, smoothed = linalg.block_diag(u.lift, v.lift), [(one, smooth(one.cov)) for one in (given, blocks)]
            given, blocks = (replace(one, cov=cov, with_v=lift @ cov[..., k_u:]) for one, cov in smoothed)
        where = canonical(given.cov[:k_u, :k_u], given.cov[:k_u, k_u:], given.cov_v, rows)
        return smooth, given, blocks, where

    def fit(self, rank: int | None) -> PairFit:
        """T at this rank; None : that of the factors of all columns if they hold, else of the test, and one more as long as
        instruments contradict each other."""
        (smooth, _, blocks, where), stated, rows = self.smoothed, self.stated, self.solution.canonical.n
        if rank is None:
            rank = smooth.k if smooth.weight > 0.5 else self.solution.rank
            more = self.views[0].to.shape[1] - len(self.tests)  # instruments
            while stated is not None and 0 < rank < min(more, len(where.correlations)):
                if not over_identification(stated, Pair.whole(where, len(self.counts), rank)).p_value < LEVEL:
                    break
                rank += 1
        rank, kept = min(rank, len(where.correlations)), 1.0 - np.eye(len(self.counts))
        to, n = linalg.block_diag(where.x_from_u, where.y_from_v), rows * (kept @ self.counts) / self.counts.sum()
        pair = Pair.whole(where, len(kept), rank)
        left_out = Pair.of(where, to @ blocks.cov @ to.T, n, kept, rank)
        if stated is not None and self.share is not None and rank:
            return _solved(pair, left_out, stated)
        return PairFit.of(pair, left_out, self.evidences(where, rank))

    @property
    def ridge(self) -> float:
        """Added to squared canonical correlations before they are inverted, unless instruments alone say what T is."""
        return 0.0 if self.stated and self.share is not None else WEAK_INSTRUMENT / self.solution.canonical.n

    def corrected(self, fit: PairFit, columns: slice, base: Draws, to_v: Array | None) -> tuple[Linear, Draws, Draws]:
        """Effects on these columns, at T = 0 and at the posterior; base : the analysis of covariance of the sample; to_v :
        where the columns are the controls and each is left out of them."""
        (_, given, blocks, _), T = self.smoothed, fit.posterior.T
        gone = (None if to_v is None else without_each(one, to_v) for one in (given, blocks))
        line = effects_on(given, fit.pair, columns, base.value, next(gone), self.ridge)
        lines = effects_on(blocks, fit.left_out, columns, base.blocks, next(gone), self.ridge)
        drawn = fit.posterior.resampled(line.base.size).T
        full = Draws(line.at(T.value), lines.at(T.blocks), line.at(drawn.posterior), drawn.weight)
        return line, Draws.certain(line.base, lines.base), full

    def _each(self, f: Callable[[Given], Array]) -> Draws:
        """Of all rows, and without each block."""
        return Draws.certain(f(self.given), f(self.blocks))

    def estimate(self, fit: PairFit) -> list[ExposureAnswer]:
        """By exposure, before any test: from the analysis of covariance towards the correction. Where nothing is shared, from
        the unadjusted effects towards the analysis of covariance, as far as the change stands above its noise."""
        d, degrees, noise = len(self.tests), len(self.counts) - 1.0, 0.0
        naive, adjusted = self._each(lambda one: one.slopes[..., :d, :]), self._each(lambda one: ancova(one, slice(d)))
        safe, full, gate, held = naive, adjusted, 1.0, self._held_out(fit)
        ends = np.minimum(naive.value, adjusted.value), np.maximum(naive.value, adjusted.value)
        if fit.rank:
            line, safe, full = self.corrected(fit, slice(d), adjusted, None)
            ends, noise = line.set(), float(np.linalg.eigvalsh(fit.posterior.T.value)[-1])
            gate = 1.0 if self.stated else fit.gate
        varies, answers = self.given.variance[:d] > 0, []
        size = np.sqrt(np.where(varies, self.given.variance[:d], 1.0))
        safe, full = (one.map(lambda x: x / size[:, None]) for one in (safe, full))
        for i, exposure in enumerate(self.exposures):
            of, one = itemgetter((..., i)), held and held.of(i)
            both = safe.map(of), full.map(of)
            share, doubt = share_of(*both, gate), 1.0
            if fit.rank and self.share is not None:
                share = self.share
            elif one:
                share, doubt = share_with(share, one.safe, one.full, one.weight)
            shrunk = Shrunk.at(*both, share, doubt)
            seen = Shrunk.at(one.safe, one.full, share, doubt) if one else None
            error, df = shrunk.error, np.full(d, degrees)
            if not self.stated:
                error, df = widened(error, degrees, seen, self.smoothed[0].controls)
            tested = np.where(varies & (error > 0), 1.0, 0.0)  # a constant test has no effect that could be tested
            others = {"naive": tested * naive.value[:, i], "adjusted": tested * adjusted.value[:, i]}
            effects = Effects(
                tested * shrunk.value * size, np.where(tested, error * size, np.nan), np.where(tested, df, 1.0), self.tests,
                others=others, identified=(tested * ends[0][:, i], tested * ends[1][:, i]), set_limits=False,
            )  # fmt: skip
            hidden = one.shown(seen, degrees, self.controls) if one and seen else None
            answers.append(ExposureAnswer(exposure, effects, hidden, fit.rank, share, share * noise))
        return answers

    def _held_out(self, fit: PairFit) -> HeldOut | None:
        """Safe and full effects on held-out controls: the ends that tests have."""
        view, c = self.views[1], len(self.controls)
        controls, variance = slice(-c, None), self.given.variance[-c:]
        own = np.sum(without_each(self.given, view.to) * view.to.T, axis=-1) ** 2
        free = (own > 0) & (own * variance < 1e6)  # the variance over that given the others: more is rounding
        which = np.flatnonzero(free)
        if len(which) < FEWEST_CONTROLS or self.stated:
            return None  # instruments are for controls whose own parts go together: no control tells another one's
        first, size = np.arange(c), np.sqrt(variance)
        if view.columns is not None:
            first, size = view.columns[np.argmax(np.abs(view.lift), axis=1)], view.lift.sum(axis=1)
        index = np.where(free[first] & view.lift.any(axis=1), np.searchsorted(which, first), -1)
        full = base = self._each(lambda one: ancova(one, controls, without_each(one, view.to)))
        safe = self._each(lambda one: one.slopes[..., controls, :])
        if fit.rank:
            _, safe, full = self.corrected(fit, controls, base, view.to)
        safe, full = (one.map(lambda x: x[..., which, :] / np.abs(size[which, None])) for one in (safe, full))
        return HeldOut(safe, full, self.smoothed[0].controls, index, size, base.value)

    def moved(self, fit: PairFit, answer: ExposureAnswer, i: int) -> Array:
        """(d_v,): how far effects on the tests move without each control; root mean square, in standard errors."""
        tests, T, effects, out = slice(len(self.tests)), fit.posterior.T.value, answer.effects, []
        smooth = self.smoothed[1]
        both = (without_each(one, self.views[1].to)[:, None] for one in (self.given, smooth))
        for plain, gone in zip(*both, strict=True):
            line = effects_on(smooth, fit.pair, tests, ancova(self.given, tests, plain), gone, self.ridge)
            effect = (line.base + answer.share * (line.at(T) - line.base))[:, i]
            z = ((effect - effects.value) / effects.standard_error)[effects.standard_error > 0]
            out.append(np.sqrt(np.sum(z**2) / max(len(z), 1)) if plain.any() else np.nan)
        return np.array(out)


def over_identification(stated: UncorrelatedOwnParts, pair: Pair) -> Test:
    """The test that instruments agree, at the T where they do so best; p is nan where they are just enough to tell T."""
    stated, X = at_best(stated, pair, Prior(pair, 2.0))
    return replace(stated.use(pair, pair, T_of(X))[1], name="over-identification")


def _solved(pair: Pair, left_out: Pair, stated: UncorrelatedOwnParts) -> PairFit:
    """The T at which what was stated holds best, without a prior: where it just tells T, two-stage least squares."""
    prior = Prior(pair, 30.0)  # so wide for logit T that it says nothing
    stated, X = at_best(stated, pair, prior)
    T, without = T_of(X), T_of(best([stated], left_out, [prior] * len(left_out.n), X))
    strengths = {stated.name: stated.strength(pair, T, 0 * T)}
    return PairFit(pair, left_out, Posterior(Draws.certain(T, without), strengths=strengths))


# ---- the tests that effects rest on, each with a sentence: the worst of their findings is the verdict


def tested(problem: Problem, fit: PairFit, answers: list[ExposureAnswer]) -> list[ExposureAnswer]:
    """The answers with their tests, and with what becomes of them without each control."""
    views, rank, stated, out = problem.solution.canonical, fit.rank, problem.stated, []
    what, p = (counted(range(rank), "direction"), remaining_p_value(views, 0)) if rank else ("nothing", 1.0)
    says = f"given the exposure, tests and controls share {what}"
    shared = Test("shared", leftover_statistic(views, 0)[0], (), p, says)
    structure = [test for name, test in fit.posterior.tests.items() if name == CrossCumulants.name]
    instruments = _instruments(problem, stated, fit) if stated and rank else []
    for i, answer in enumerate(answers):
        agree, without = _agreement(problem, i, rank)
        seen = instruments if stated else [_held_out(answer, problem.views[1])]
        tests = (shared, *([fit.identified] if rank else []), _correction(answer), agree, *seen, *structure)
        moved = problem.moved(fit, answer, i) if rank else np.full(len(without), np.nan)
        out.append(replace(answer, tests=tests, without=without, moved=moved))
    return out


def _correction(answer: ExposureAnswer) -> Test:
    """How far the correction moves the effects, in standard errors: where it hardly does, nothing of it can be relied on."""
    effects, error = answer.effects, answer.effects.standard_error
    moved = ((effects.value - answer.start) / error)[error > 0]
    size = float(np.sqrt(np.sum(moved**2) / max(len(moved), 1)))
    way = "adjusting for the controls to the full correction" if answer.rank else "no adjustment to adjusting"
    says = f"the estimate goes {answer.share:.0%} of the way from {way}, {size:.2g} standard errors"
    says = f"{counted(range(answer.rank), 'hidden direction')}; {says}"
    remedy = "Compare the estimate with the adjusted one: the truth may lie beyond."
    return Test("correction", size, (), size if answer.rank else np.nan, says, remedy)


def _held_out(answer: ExposureAnswer, view: Coordinates) -> Test:
    """The smallest p of all held-out controls, times their number (Bonferroni), in which copies count once."""
    name, seen = "held-out controls", answer.hidden
    if seen is None:
        says = f"no control could be held out to check the correction: that takes at least {FEWEST_CONTROLS}"
        return Test(name, np.nan, (), np.nan, says, "Add controls.")
    columns = np.arange(len(seen.p_value)) if view.columns is None else np.abs(view.lift).argmax(axis=1)
    worst, count = int(np.nanargmin(seen.p_value)), len(np.unique(columns[np.isfinite(seen.p_value)]))
    p, control, remedy = min(1.0, float(seen.p_value[worst]) * count), seen.names[worst], ""
    says = f"no control, held out and treated as a test, shows an effect (smallest p of {count}: {p:.2g})"
    if p < 0.05:
        says = f"the control {control} appears to be affected by the exposure; it may not be a valid control ({p_value(p)})"
        remedy = f"Leave {control} out, fit again, and compare."
    return Test(name, abs(float(seen.z[worst])), (count,), p, says, remedy)


# ---- do the controls agree?


def _agreement(problem: Problem, i: int, rank: int) -> tuple[Test, Array]:
    """Of exposure i, whether the slopes of the controls lie in the range of A, as those of the shared part do; and p of the
    same without each control (d_v,), nan where V was reduced or holds very many.

    Given the exposure, white coordinates y (k,) of V have slopes F = [D | c] on x and on the exposure, and the precision G at
    any x. Likelihood ratio of rank r for F against that for D alone: it knows that shared directions are estimated. It has
    k - r degrees of freedom, Bartlett's factor, and is a function of F'GF. Without a control that is less by
    (F'G a)(F'G a)' / a'G a, a the column of the control in the map to y; one that the others determine takes nothing along.

    If the exposure changes one control only, the test of the others has its size without that one, and power without any
    other: the controls without which it does not reject are a confidence set for the one that is changed.
    """
    solution, views, d_v = problem.solution, problem.solution.canonical, len(problem.controls)
    k, m, reduced = views.rank_v, len(views.correlations), problem.views[1].columns is None
    every = 0 if reduced or d_v > MOST_LEFT_OUT else d_v
    D, noise = np.eye(k, m) * views.correlations, problem.given.noise[i, i] * (solution.n - solution.lost)
    F = np.column_stack([D, views.y_from_v @ problem.given.slopes[-d_v:, i] / np.sqrt(noise)])
    G, a = 1 / (1 - np.sum(D**2, axis=1)), views.y_from_v.T[:every]
    alone = np.sum(views.v_from_y[:every] * a, axis=1) > 1 - 1e-6
    lost = (a * G) @ F * np.divide(1, np.sqrt(a**2 @ G), out=np.zeros(every), where=alone)[:, None]
    lost, left = np.vstack([np.zeros(m + 1), lost])[:, None], k - np.append(0, alone)
    both = (F.T * G) @ F - lost.mT * lost
    tails = (np.linalg.eigvalsh(part)[:, ::-1][:, rank:] for part in (both, both[:, :m, :m]))
    more, less = (np.log1p(np.maximum(tail, 0.0)).sum(axis=1) for tail in tails)
    statistic = np.maximum(views.n - (left + views.rank_u + 2) / 2, 1.0) * np.maximum(more - less, 0.0)
    p = np.where(left > rank, stats.chi2.sf(statistic, np.maximum(left - rank, 1)), np.nan)
    remedy = (
        "Ask of each control whether the exposure could change it, leave out those that it may, and fit again. If each lab "
        "(batch, clinic) saw one group only, no analysis helps: both groups have to be measured in each."
    )
    without = np.full(d_v, np.nan)
    without[:every], says = np.nan_to_num(p[1:], nan=1.0), _agreed(float(p[0]), rank)
    return Test("controls agree", float(statistic[0]), (max(k - rank, 0),), float(p[0]), says, remedy), without


def _agreed(p: float, rank: int) -> str:
    if np.isnan(p):
        return "there are as many hidden directions as controls, so that the controls cannot contradict each other"
    if p >= RULES["controls agree"].below[-1][0]:
        return f"together the controls go with the exposure just as the part does that they share with the tests ({p_value(p)})"
    away = "the controls go with the exposure in a way they do not share with the tests"
    more = f"more is hidden than {counted(range(rank), 'direction')}"
    more = more if rank else "what is hidden goes with the exposure completely"
    return f"{away} ({p_value(p)}): the exposure changes some of them, or {more}"


# ---- instruments


def _instruments(problem: Problem, stated: UncorrelatedOwnParts, fit: PairFit) -> list[Test]:
    """Whether the weakest hidden direction is seen by the instruments, and whether these contradict each other."""
    u, given, z, r = problem.views[0], problem.given, np.flatnonzero(stated.groups_u == 1), fit.rank
    found = canonical(given.cov[np.ix_(z, z)], given.cov[z, len(u.to) :], given.cov_v, problem.solution.canonical.n)
    left = [remaining_p_value(found, k) for k in range(len(found.correlations))]
    sizes = listed([f"{d:.2g}" for d in found.correlations])
    says = f"canonical correlations of controls and instruments, given exposure and covariates, are {sizes}"
    weak = next((k for k, one in enumerate(left) if one >= RULES["instruments"].below[0][0]), None)
    if weak is not None:
        says += f": direction {weak + 1} is weakly instrumented ({p_value(left[weak])})"
    remedy = "Find instruments that go with what is hidden more closely, or fit with a lower rank."
    p, size = left[r - 1] if r <= len(left) else 1.0, float(found.correlations[min(r, len(left)) - 1])
    relevance, test = Test("instruments", size, (), p, says, remedy), over_identification(stated, fit.pair.leading())
    says = f"the instruments agree with each other ({test.p_text})"
    if np.isnan(test.p_value):
        says = "the instruments are just enough, and cannot contradict each other"
    elif test.finding != Verdict.STRONG:
        says = f"the instruments contradict each other ({test.p_text}): some act on tests or controls directly"
    return [relevance, replace(test, says=says, remedy="Leave out instruments that may act on the tests directly.")]
