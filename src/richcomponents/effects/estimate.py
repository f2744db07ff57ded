"""Effects of exposures on the columns of U when something hidden goes with them, given negative controls V.

    U = alpha e + S1 + S2,    V = A S2 + S3,    S1, S3 independent of each other and of (S2, e); S2 and e dependent in any way.

Without their regression on the exposures e (and on known covariates) the views follow the contrastive model exactly: second
moments, K, h and T are those of any two views (pair/views.py). Let b_w, b_v be the slopes of the columns on the exposures and
Q = K K' the covariance of what the controls predict of S2, y_S = K y. For a column w without any part of S3

    alpha_w(T) = ANCOVA_w - l_w' T m,      l_w = h Q^-1 Cov(y_S, w),      m = h Q^-1 (slopes of y_S),

linear in T. T = 0 says that controls have no noise of their own: the analysis of covariance, the coefficient of e in w on
(e, V), which is the safe value. With second moments alone the effect lies between ANCOVA - (l'm + |l||m|) / 2 and
ANCOVA - (l'm - |l||m|) / 2, the identified set: the range over all 0 <= T <= I.

l, m and T are those of moments that a factor model of all columns smoothed (factors.py), as far as that model holds; the
analysis of covariance is that of the sample. So every value that is reported is alpha at an admissible T.

CONTROLS. Each is held out ALONE and treated as a test whose effect is zero: predictors are the coordinates of V of which it is
no part. With P = W'(W Cov(V) W')^-1 W, W (k_v, d_v) from V to its coordinates, what is predicted of control j without itself is

    Cov(v_j, V) P Z - c_j (P Z)_j,    c_j = (Cov(V) P)_jj / P_jj,    and    Z'P Z is less by (P Z)_j (P Z)_j' / P_jj:

rank-one downdates, no refits. Held-out effects move the share of the correction; as far as they tell it, the doubt about T
leaves the errors. What they show beyond their own errors (a variance omega^2) is added to the squared errors of all effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.cumulants.estimate import Estimate
from richcomponents.effects.answer import Effects, ExposureAnswer
from richcomponents.effects.factors import Smoothing
from richcomponents.effects.moments import Coordinates, Given
from richcomponents.inference.draws import Draws, Shrunk, share_of
from richcomponents.inference.posterior import Evidence, Posterior, Prior, best, logistic, symmetric_of
from richcomponents.inference.verdicts import Test
from richcomponents.learning.predicted import WEAK_INSTRUMENT
from richcomponents.pair.canonical import LEVEL, Canonical, canonical
from richcomponents.pair.cumulants import CrossCumulants
from richcomponents.pair.equations import UncorrelatedOwnParts
from richcomponents.pair.solution import PairSolution
from richcomponents.pair.views import MOST_CORRECTED, Pair, PairFit

WITNESS_SD = 0.5
"""How far held-out controls may move the share of the correction, as a standard deviation."""

MOST_LOOKED_AT = 30
"""Columns of a view whose own parts are compared with each other: equations are half the square of their number."""

FEWEST_CONTROLS = 4
"""With fewer, none is held out: too little would be left to estimate its effect from."""


# ---- the formulas


@dataclass(frozen=True, eq=False)
class Linear:
    """alpha(T) = base - left T right: base (p, q), left (p, r), right (p or 1, r, q)."""

    base: Array
    left: Array
    right: Array

    def at(self, T: Array) -> Array:
        """(..., p, q) for T (..., r, r)."""
        return np.asarray(self.base - np.einsum("...pr,prq->...pq", self.left @ T, self.right))

    def set(self) -> tuple[Array, Array]:
        """Ends (p, q) of the range over all 0 <= T <= I."""
        inner = np.einsum("pr,prq->pq", self.left, self.right)
        outer = np.linalg.norm(self.left, axis=1)[:, None] * np.linalg.norm(self.right, axis=1)
        return self.base - (inner + outer) / 2, self.base - (inner - outer) / 2


def ancova(given: Given) -> Array:
    """(p, q) the analysis of covariance, with all coordinates of V as covariates."""
    return np.asarray(given.slopes - given.with_v @ np.linalg.lstsq(given.cov_v, given.on_v, rcond=1e-12)[0])


def predicted(pair: Pair, ridge: float) -> tuple[Array, Array]:
    """What the controls predict of S2: from the coordinates of V, (k_v, r), and its covariance Q (r, r), with the ridge."""
    return (pair.to_y @ pair.canonical.y_from_v).T @ pair.K.T, pair.K @ pair.K.T + ridge * np.eye(pair.rank)


def on_columns(given: Given, pair: Pair, base: Array, ridge: float = 0.0) -> Linear:
    """The effects on the first columns, as many as base has."""
    predictor, Q = predicted(pair, ridge)
    inner = np.linalg.solve(Q, pair.h)
    left = given.with_v[: len(base)] @ predictor @ inner
    return Linear(base, left, (inner.T @ predictor.T @ given.on_v)[None])


def _without(given: Given, to_v: Array) -> tuple[Array, Array, Array]:
    """P W' (d_v, k_v) : W'(W Cov(V) W')^-1, P_jj (d_v,) and c_j (d_v,)."""
    onto = to_v.T @ np.linalg.pinv(given.cov_v, rcond=1e-10, hermitian=True)
    own = np.einsum("jk,kj->j", onto, to_v)
    seen = np.einsum("jk,jk->j", given.with_v[-len(onto) :], onto)
    return onto, own, np.divide(seen, own, out=np.zeros_like(own), where=own > 0)


def held_out_base(given: Given, to_v: Array) -> Array:
    """(d_v, q): the analysis of covariance of every control on the others."""
    onto, _, c = _without(given, to_v)
    return np.asarray(ancova(given)[-len(onto) :] + c[:, None] * (onto @ given.on_v))


def _downdated(given: Given, pair: Pair, to_v: Array, ridge: float) -> tuple[Array, Array, Array, Array, Array]:
    """Without each control: (P Z)_j (d_v, r) for Z = Cov(V, y_S), the same over P_jj; what Q loses, and Q, (d_v, r, r);
    Q^-1 (slopes of y_S) (d_v, r, q)."""
    predictor, Q = predicted(pair, ridge)
    onto, own, _ = _without(given, to_v)
    seen = onto @ given.cov_v @ predictor
    scaled = np.divide(seen, own[:, None], out=np.zeros_like(seen), where=own[:, None] > 0)
    lost = scaled[:, :, None] * seen[:, None, :]
    slopes = predictor.T @ given.on_v - scaled[:, :, None] * (onto @ given.on_v)[:, None, :]
    return seen, np.asarray(scaled), lost, Q - lost, np.asarray(np.linalg.solve(Q - lost, slopes), dtype=np.float64)


def held_out(given: Given, pair: Pair, to_v: Array, base: Array, ridge: float = 0.0) -> Linear:
    """The effects on every control as if it were a test and the others were the controls: zero in truth. Cov(S2), of which
    slopes tell nothing, is that of all controls, at T = 0 as well; base : the analysis of covariance on the others."""
    seen, _, lost, Q, right = _downdated(given, pair, to_v, ridge)
    with_s = given.with_v[-len(seen) :] @ predicted(pair, ridge)[0] - _without(given, to_v)[2][:, None] * seen
    left = np.linalg.solve(Q, with_s[..., None])[..., 0]
    return Linear(base - np.einsum("jr,jrs,jsq->jq", left, lost, right), left @ pair.h, pair.h @ right)


def one_of(pair: Pair, b: int) -> Pair:
    """The replicate b of a stack."""
    return replace(pair, **{name: getattr(pair, name)[b] for name in ("covariance", "n", "kept", "to_x", "to_y")})


# ---- held-out controls as witnesses


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Effects on the controls that are held out, (c, q), each estimated from the others, in standard deviations of these: all
    controls that the others do not determine, copies once.

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
        return replace(
            self, safe=self.safe.map(_column(i)), full=self.full.map(_column(i)), adjusted=self.adjusted[:, i]
        )

    def share(self, own: float) -> tuple[float, float]:
        """The rho in [0, 1] at which (rho - own)^2 / WITNESS_SD^2 + sum (safe + rho change)^2 / variance is least, and what is
        left of the doubt about rho, 1 / WITNESS_SD^2 over the precision.

        variance : of sampling, times the dispersion that is left at the best rho, over the weight.
        """
        at, way, variance = self.safe.value, self.full.value - self.safe.value, self.safe.over_blocks()
        best = np.clip(-np.sum(at * way / variance) / max(np.sum(way**2 / variance), 1e-300), 0, 1)
        variance = variance * max(1.0, np.sum((at + best * way) ** 2 / variance) / max(at.size - 1, 1)) / self.weight
        precision = WITNESS_SD**-2 + np.sum(way**2 / variance)
        rho = float(np.clip((own / WITNESS_SD**2 - np.sum(at * way / variance)) / precision, 0, 1))
        return rho, float(WITNESS_SD**-2 / precision)

    def widened(self, seen: Shrunk, error: Array, degrees: float, grid: int = 100) -> tuple[Array, Array]:
        """Errors (p,), in standard deviations of the columns, with what controls show beyond their own; degrees of freedom.

        Effects on held-out controls are N(0, v_j / weight + omega^2), v_j what their own errors say; those of tests are
        N(truth, error^2 + omega^2). omega has DuMouchel's prior s / (s + omega)^2, s^2 the mean of v_j. The mean and the
        variance of the precision 1 / (error^2 + omega^2) over the posterior of omega make a t distribution.
        """
        steps = (np.arange(grid) + 0.5) / grid
        omega2 = seen.variance.mean() * (steps / (1 - steps)) ** 2
        total = seen.variance / self.weight + omega2[:, None]
        log = -0.5 * np.sum(np.log(total) + seen.value**2 / total, axis=1)
        weight = np.exp(log - log.max())
        precision = 1 / (error**2 + omega2[:, None])
        mean = np.average(precision, axis=0, weights=weight)
        spread = np.average((precision - mean) ** 2, axis=0, weights=weight) / mean**2
        return 1 / np.sqrt(mean), 1 / (spread / 2 + 1 / degrees)

    def shown(self, seen: Shrunk, degrees: float, names: tuple[str, ...]) -> Estimate:
        """Of all controls, in their units."""
        value, error = (np.where(self.index >= 0, self.size * x[self.index], np.nan) for x in (seen.value, seen.error))
        error, others = np.abs(error) / np.sqrt(self.weight), {"adjusted": self.adjusted}
        return Estimate(value, error, np.full(len(value), degrees), names=names, others=others)


def _column(i: int, unit: Array | float = 1.0) -> Callable[[Array], Array]:
    """Of (..., p, q) the effects of one exposure, in these units."""
    return lambda effects: effects[..., i] / unit


# ---- the estimate


@dataclass(frozen=True, eq=False)
class Fit:
    """T at one rank, the second moments that it is for, and the weight of held-out controls; ridge : added to squared canonical
    correlations before they are inverted."""

    known: PairFit
    given: Given
    blocks: Sequence[Given]
    trust: float
    ridge: float

    def effects(self, formula: Callable[..., Linear], base: Draws) -> tuple[Linear, Draws, Draws]:
        """Of all rows, without each block and over the posterior of T: at T = 0 and at the posterior; base : of the sample."""
        T, left_out = self.known.posterior.T, self.known.left_out
        line = formula(self.given, self.known.pair, base=base.value, ridge=self.ridge)
        parts = zip(self.blocks, (one_of(left_out, b) for b in range(len(self.blocks))), base.blocks, strict=True)
        lines = [formula(given, pair, base=own, ridge=self.ridge) for given, pair, own in parts]
        drawn = self.known.posterior.resampled(line.base.size).T
        blocks = np.stack([one.at(T.blocks[b]) for b, one in enumerate(lines)])
        safe = Draws.certain(line.base, np.stack([one.base for one in lines]))
        return line, safe, Draws(line.at(T.value), blocks, line.at(drawn.posterior), drawn.weight)


@dataclass(frozen=True, eq=False)
class Problem:
    """All that the estimate is a function of.

    given, blocks : second moments, of all rows and without each block; counts (B,) : rows of the blocks; views : coordinates of
    U and of V; solution : of the two views; exposures, tests, controls : their names; tests are the first columns, the rest of
    the first view being instruments; share : of the correction, where it is given.
    """

    given: Given
    blocks: Sequence[Given]
    counts: Array
    views: tuple[Coordinates, Coordinates]
    solution: PairSolution
    exposures: tuple[str, ...]
    tests: tuple[str, ...]
    controls: tuple[str, ...]
    share: float | None = None

    def instrumented(self) -> UncorrelatedOwnParts | None:
        """What instruments state, if there are any: own parts of tests and instruments are uncorrelated."""
        u, v = self.views
        if u.columns is None or len(self.tests) == u.to.shape[1]:
            return None
        groups, none = np.where(u.columns < len(self.tests), 0, 1), np.full(v.k, -1)
        return UncorrelatedOwnParts(groups_u=groups, groups_v=none, stated=True, dispersed=True, name="instruments")

    def evidences(self, where: Canonical, rank: int) -> list[Evidence]:
        """At this rank; where : canonical coordinates of the moments that T is for."""
        r, stated, out = min(rank, MOST_CORRECTED), self.instrumented(), list[Evidence]()
        if self.solution.grams_xy.any():  # in leading canonical coordinates of the solution
            found, m = self.solution.canonical, self.solution.pair.corrected
            on_u, on_v = self.views[0].to @ found.u_from_x[:, :m], self.views[1].to @ found.v_from_y[:, :m]
            into = linalg.block_diag(where.x_from_u[:r] @ on_u, where.y_from_v[:r] @ on_v)
            out.append(CrossCumulants(into @ self.solution.grams_xy @ into.T))
        if stated is None:
            groups = []  # every column one of its own, of those that go most with what is shared
            for view, loadings in zip(self.views, (where.u_from_x[:, :r], where.v_from_y[:, :r]), strict=True):
                first = np.argsort(-np.sum(loadings**2, axis=1), kind="stable")[:MOST_LOOKED_AT]
                looked_at = np.isin(np.arange(view.k), first) & (view.columns is not None)
                groups.append(np.where(looked_at, np.arange(view.k), -1))
            stated = UncorrelatedOwnParts(groups_u=groups[0], groups_v=groups[1], dispersed=True)
        return [*out, stated]

    def fit(self, rank: int | None) -> Fit:
        """At this rank; None : that of the factors of all columns if they hold, else of the test, and one more as long as
        instruments contradict each other. Factors are found where all columns are compared and no instruments say more."""
        given, blocks, (u, v), stated = self.given, list(self.blocks), self.views, self.instrumented()
        smooth, rows = Smoothing(0, np.ones(0), 0.0, 1.0), self.solution.canonical.n
        if u.columns is not None and v.columns is not None and stated is None and self.solution.rank:
            smooth = Smoothing.of(given.cov, u.k, rows)
        if smooth.weight:
            lift = linalg.block_diag(u.lift, v.lift)
            given = given.with_covariance(smooth(given.cov), lift)
            stack = smooth(np.stack([one.cov for one in blocks]))
            blocks = [one.with_covariance(cov, lift) for one, cov in zip(blocks, stack, strict=True)]
        where = canonical(given.cov[: u.k, : u.k], given.cov[: u.k, u.k :], given.cov_v, rows)
        if rank is None:
            rank = smooth.k if smooth.weight > 0.5 else self.solution.rank
            more = u.to.shape[1] - len(self.tests)  # instruments
            while stated is not None and 0 < rank < min(more, len(where.correlations)):
                if not over_identification(stated, Pair.whole(where, len(blocks), rank)).p_value < LEVEL:
                    break
                rank += 1
        rank, kept = min(rank, len(where.correlations)), 1.0 - np.eye(len(blocks))
        to = linalg.block_diag(where.x_from_u, where.y_from_v)
        stack, n = to @ np.stack([one.cov for one in blocks]) @ to.T, rows * (kept @ self.counts) / self.counts.sum()
        pair = Pair.whole(where, len(blocks), rank)
        left_out = Pair.of(where, stack, n, kept, rank)
        if stated is not None and self.share is not None and rank:
            return Fit(_solved(pair, left_out, stated), given, blocks, 1.0, 0.0)
        known = PairFit.of(pair, left_out, self.evidences(where, rank))
        return Fit(known, given, blocks, smooth.controls, WEAK_INSTRUMENT / rows)

    def _each(self, f: Callable[[Given], Array]) -> Draws:
        """Of all rows, and without each block."""
        return Draws.certain(f(self.given), np.stack([f(one) for one in self.blocks]))

    def estimate(self, at: Fit) -> list[ExposureAnswer]:
        """By exposure, before any test: from the analysis of covariance towards the correction. Where nothing is shared, from
        the unadjusted effects towards the analysis of covariance, as far as the change stands above its noise."""
        fit, d, degrees, noise = at.known, len(self.tests), len(self.blocks) - 1.0, 0.0
        naive, adjusted = self._each(lambda one: one.slopes[:d]), self._each(lambda one: ancova(one)[:d])
        safe, full, gate, held = naive, adjusted, 1.0, self._held_out(at)
        ends = np.minimum(naive.value, adjusted.value), np.maximum(naive.value, adjusted.value)
        if fit.rank:
            line, safe, full = at.effects(on_columns, adjusted)
            ends, noise = line.set(), float(np.linalg.eigvalsh(fit.posterior.T.value)[-1])
            gate = 1.0 if self.instrumented() else fit.gate
        varies, answers = self.given.variance[:d] > 0, []
        size = np.sqrt(np.where(varies, self.given.variance[:d], 1.0))
        for i, exposure in enumerate(self.exposures):
            one = held and held.of(i)
            both = safe.map(_column(i, size)), full.map(_column(i, size))
            share, doubt, hidden = share_of(*both, gate), 1.0, None
            if fit.rank and self.share is not None:
                share = self.share
            elif one:
                share, doubt = one.share(share)
            shrunk = Shrunk.at(*both, share, doubt)
            error, df = shrunk.error, np.full(d, degrees)
            if one:
                seen = Shrunk.at(one.safe, one.full, share, doubt)
                error, df = one.widened(seen, error, degrees)
                hidden = one.shown(seen, degrees, self.controls)
            told = np.where(varies & (error > 0), 1.0, 0.0)  # a constant test has no effect that could be tested
            others = {"naive": told * naive.value[:, i], "adjusted": told * adjusted.value[:, i]}
            effects = Effects(
                told * shrunk.value * size, np.where(told, error * size, np.nan), np.where(told, df, 1.0), self.tests,
                others=others, identified=(told * ends[0][:, i], told * ends[1][:, i]), set_limits=False,
            )  # fmt: skip
            nothing = np.full(len(self.controls), np.nan)
            moved = self._moved(at, i, share, effects) if fit.rank else nothing
            answers.append(ExposureAnswer(exposure, effects, hidden, nothing, moved, fit.rank, share, share * noise))
        return answers

    def _held_out(self, at: Fit) -> HeldOut | None:
        """Safe and full effects on held-out controls: the ends that tests have."""
        view, c = self.views[1], len(self.controls)
        own, variance = _without(self.given, view.to)[1], self.given.variance[-c:]
        free = (own > 0) & (own * variance < 1e6)  # the variance over that given the others: more is rounding
        which = np.flatnonzero(free)
        if len(which) < FEWEST_CONTROLS or self.instrumented():
            return None  # instruments are for controls whose own parts go together: no control tells another one's
        first, size = np.arange(c), np.sqrt(variance)
        if view.columns is not None:
            first, size = view.columns[np.argmax(np.abs(view.lift), axis=1)], view.lift.sum(axis=1)
        index = np.where(free[first] & view.lift.any(axis=1), np.searchsorted(which, first), -1)
        full = base = self._each(lambda one: held_out_base(one, view.to))
        safe = self._each(lambda one: one.slopes[-c:])
        if at.known.rank:
            _, safe, full = at.effects(partial(held_out, to_v=view.to), base)
        safe, full = (one.map(lambda x: x[..., which, :] / np.abs(size[which, None])) for one in (safe, full))
        return HeldOut(safe, full, at.trust, index, size, base.value)

    def _moved(self, at: Fit, i: int, share: float, effects: Effects) -> Array:
        """(d_v,): how far effects on the tests move without each control; root mean square, in standard errors."""
        to, d, pair, sample, out = self.views[1].to, len(self.tests), at.known.pair, self.given, []
        _, scaled, lost, Q, right = _downdated(at.given, pair, to, at.ridge)
        onto, (plain, own, _) = _without(at.given, to)[0], _without(sample, to)
        change = (
            lost @ right[..., i : i + 1] + share * pair.h @ at.known.posterior.T.value @ pair.h @ right[..., i : i + 1]
        )
        with_v, with_s = at.given.with_v[:d], at.given.with_v[:d] @ predicted(pair, at.ridge)[0]
        still, known = ancova(sample)[:d, i] - effects.value, np.isfinite(effects.standard_error)
        for j, step in enumerate(np.linalg.solve(Q, change)[..., 0]):
            gone = sample.with_v[:d] @ plain[j] * (plain[j] @ sample.on_v[:, i]) / (own[j] if own[j] > 0 else np.nan)
            moved = still + gone - with_s @ step + with_v @ onto[j] * (scaled[j] @ step)
            z = moved[known] / effects.standard_error[known]
            out.append(np.sqrt(np.sum(z**2) / max(len(z), 1)))
        return np.array(out)


def over_identification(stated: UncorrelatedOwnParts, pair: Pair) -> Test:
    """The test that instruments agree with each other, at the T at which they do so best; p is nan where they are just enough
    to tell T."""
    prior = Prior(pair, 2.0)
    X = prior.centre
    for _ in range(3):
        stated = stated.weighed(pair, logistic(symmetric_of(X))[0])
        X = best([stated], pair, [prior], X)[0]
    return replace(stated.use(pair, pair, logistic(symmetric_of(X))[0])[1], name="over-identification")


def _solved(pair: Pair, left_out: Pair, stated: UncorrelatedOwnParts) -> PairFit:
    """The T at which what was stated holds best, without a prior: with as many instruments as controls and hidden directions,
    two-stage least squares."""
    prior, X = Prior(pair, 30.0), Prior(pair, 1.0).centre  # so wide for logit T that it says nothing
    for _ in range(3):
        stated = stated.weighed(pair, logistic(symmetric_of(X))[0])
        X = best([stated], pair, [prior], X)[0]
    without = [best([stated], one_of(left_out, b), [prior], X)[0] for b in range(len(left_out.n))]
    T = logistic(symmetric_of(X))[0]
    known = Draws.certain(T, logistic(symmetric_of(np.stack(without)))[0])
    return PairFit(pair, left_out, Posterior(known, strengths={stated.name: stated.strength(pair, T, 0 * T)}))
