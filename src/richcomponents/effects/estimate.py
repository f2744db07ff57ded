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

rank-one downdates, no refits. Held-out effects move the share of the correction, and what they show beyond their own errors
(a variance omega^2) is added to the squared errors of all effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.effects.factors import Smoothing
from richcomponents.effects.moments import Coordinates, Given
from richcomponents.inference.draws import Draws, Shrunk, share_of
from richcomponents.inference.posterior import Evidence, Posterior, Prior, best, logistic, symmetric_of
from richcomponents.learning.predicted import WEAK_INSTRUMENT
from richcomponents.pair.canonical import Canonical, canonical
from richcomponents.pair.cumulants import CrossCumulants
from richcomponents.pair.equations import UncorrelatedOwnParts
from richcomponents.pair.views import MOST_CORRECTED, Pair, PairFit

WITNESS_SD = 0.5
"""How far held-out controls may move the share of the correction, as a standard deviation."""

MOST_LOOKED_AT = 30
"""Columns of a view whose own parts are compared with each other: equations are half the square of their number."""

FEWEST_CONTROLS = 4
"""With fewer, none is held out: too little would be left to estimate its effect from."""


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
    """The effects on every column."""
    predictor, Q = predicted(pair, ridge)
    inner = np.linalg.solve(Q, pair.h)
    return Linear(base, given.with_v @ predictor @ inner, (inner.T @ predictor.T @ given.on_v)[None])


def _without(given: Given, to_v: Array) -> tuple[Array, Array, Array]:
    """P W' (d_v, k_v) : W'(W Cov(V) W')^-1, P_jj (d_v,) and c_j (d_v,)."""
    inverse = np.linalg.pinv(given.cov_v, rcond=1e-10, hermitian=True)
    onto = to_v.T @ inverse
    own = np.einsum("jk,kj->j", onto, to_v)
    seen = np.einsum("jk,jk->j", given.with_v[-len(onto) :], onto)
    return onto, own, np.divide(seen, own, out=np.zeros_like(own), where=own > 0)


def held_out_base(given: Given, to_v: Array) -> Array:
    """(d_v, q): the analysis of covariance of every control on the others."""
    onto, _, c = _without(given, to_v)
    return np.asarray(ancova(given)[-len(onto) :] + c[:, None] * (onto @ given.on_v))


def held_out(given: Given, pair: Pair, to_v: Array, base: Array, ridge: float = 0.0) -> Linear:
    """The effects on every control as if it were a test and the others were the controls: zero in truth. Cov(S2), of which
    slopes tell nothing, is that of all controls, at T = 0 as well; base : the analysis of covariance on the others."""
    predictor, Q = predicted(pair, ridge)
    onto, own, c = _without(given, to_v)
    seen, slopes = onto @ given.cov_v @ predictor, onto @ given.on_v  # (P Z)_j for Z = Cov(V, y_S), and for the slopes
    scaled = np.divide(seen, own[:, None], out=np.zeros_like(seen), where=own[:, None] > 0)
    lost = scaled[:, :, None] * seen[:, None, :]  # Q less that without the control
    Q = Q - lost
    left = np.linalg.solve(Q, (given.with_v[-len(onto) :] @ predictor - c[:, None] * seen)[..., None])[..., 0]
    right = np.linalg.solve(Q, predictor.T @ given.on_v - scaled[:, :, None] * slopes[:, None, :])
    return Linear(base - np.einsum("jr,jrs,jsq->jq", left, lost, right), left @ pair.h, pair.h @ right)


def _of_exposure(i: int, safe: Draws, full: Draws) -> tuple[Draws, Draws]:
    return safe.map(lambda effects: effects[..., i]), full.map(lambda effects: effects[..., i])


def one_of(pair: Pair, b: int) -> Pair:
    """The replicate b of a stack."""
    parts = {name: getattr(pair, name)[b] for name in ("covariance", "n", "kept", "to_x", "to_y")}
    return replace(pair, **parts)


def _solved(pair: Pair, left_out: Pair, stated: UncorrelatedOwnParts) -> PairFit:
    """The T at which what was stated holds best, without a prior: with as many instruments as controls and hidden directions,
    two-stage least squares."""
    prior, X = Prior(pair, 30.0), Prior(pair, 1.0).centre  # so wide for logit T that it says nothing
    for _ in range(3):
        stated = stated.weighed(pair, logistic(symmetric_of(X))[0])
        X = best([stated], pair, [prior], X)[0][0]
    without = [best([stated], one_of(left_out, b), [prior], X)[0][0] for b in range(len(left_out.n))]
    T = logistic(symmetric_of(X))[0]
    known = Draws.certain(T, logistic(symmetric_of(np.stack(without)))[0])
    return PairFit(pair, left_out, Posterior(known, strengths={stated.name: stated.strength(pair, T, 0 * T)}))


def _leading(loadings: Array) -> IntArray:
    """Every column (k,) a group of its own, but only those that go most with what is shared are looked at."""
    k = len(loadings)
    order = np.argsort(-np.sum(loadings**2, axis=1), kind="stable")
    return np.where(np.isin(np.arange(k), order[:MOST_LOOKED_AT]), np.arange(k), -1)


# ---- held-out controls as witnesses


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Effects on controls (c,), each estimated from the others, in standard deviations of the controls; of one exposure.

    weight : one over the dispersion of the correlations of their own parts: a control whose own part goes with that of another
    is no witness of what both share with the tests.
    """

    safe: Draws
    full: Draws
    weight: float

    def share(self, own: float) -> float:
        """The rho in [0, 1] at which (rho - own)^2 / WITNESS_SD^2 + sum (safe + rho change)^2 / variance is least.

        variance : of sampling, times the dispersion that is left at the best rho, over the weight.
        """
        at, way, variance = self.safe.value, self.full.value - self.safe.value, self.safe.over_blocks()
        best = np.clip(-np.sum(at * way / variance) / max(np.sum(way**2 / variance), 1e-300), 0, 1)
        variance = variance * max(1.0, np.sum((at + best * way) ** 2 / variance) / max(at.size - 1, 1)) / self.weight
        precision = WITNESS_SD**-2 + np.sum(way**2 / variance)
        return float(np.clip((own / WITNESS_SD**2 - np.sum(at * way / variance)) / precision, 0, 1))

    def widened(self, error: Array, share: float, degrees: float, grid: int = 100) -> tuple[Array, Array]:
        """Errors (p,), in standard deviations of the columns, with what controls show beyond their own; degrees of freedom.

        Effects on held-out controls are N(0, v_j / weight + omega^2), v_j what their own errors say; those of tests are
        N(truth, error^2 + omega^2). omega has DuMouchel's prior s / (s + omega)^2, s^2 the mean of v_j. The mean and the
        variance of the precision 1 / (error^2 + omega^2) over the posterior of omega make a t distribution.
        """
        seen = Shrunk.at(self.safe, self.full, share)
        steps = (np.arange(grid) + 0.5) / grid
        omega2 = seen.variance.mean() * (steps / (1 - steps)) ** 2
        total = seen.variance / self.weight + omega2[:, None]
        log = -0.5 * np.sum(np.log(total) + seen.value**2 / total, axis=1)
        weight = np.exp(log - log.max())
        precision = 1 / (error**2 + omega2[:, None])
        mean = np.average(precision, axis=0, weights=weight)
        spread = np.average((precision - mean) ** 2, axis=0, weights=weight) / mean**2
        return 1 / np.sqrt(mean), 1 / (spread / 2 + 1 / degrees)


@dataclass(frozen=True, eq=False)
class Witnesses:
    """The controls that are held out: at (c,), all that the others do not determine, copies once; index (d_v,) : which of these
    each control is a copy of, or -1; size (d_v,) : its standard deviation, negative where the copy is turned."""

    at: IntArray
    index: IntArray
    size: Array

    @classmethod
    def of(cls, given: Given, view: Coordinates) -> Witnesses:
        own = _without(given, view.to)[1]
        variance = given.variance[-len(own) :]
        free = own * variance < 1e6  # the variance over that given the others, which determine it but for rounding
        if view.columns is None or view.copy is None:
            at = np.flatnonzero(free & (own > 0))
            index = np.where(free & (own > 0), np.searchsorted(at, np.arange(len(own))), -1)
            return cls(at, index, np.sqrt(variance))
        at = view.columns[free[view.columns]]
        place = np.where(free[view.columns], np.cumsum(free[view.columns]) - 1, -1)
        return cls(at, np.where(view.copy >= 0, place[view.copy], -1), view.lift.sum(axis=1))

    def chosen(self, values: Array) -> Array:
        """Of (..., d_v, q) those of the witnesses, in their standard deviations."""
        return np.asarray(values[..., self.at, :] / np.abs(self.size[self.at, None]))

    def expanded(self, values: Array) -> Array:
        """(c,) -> (d_v,), in the units of the controls."""
        return np.where(self.index >= 0, self.size * values[self.index], np.nan)


# ---- the estimate


@dataclass(frozen=True, eq=False)
class Estimated:
    """Effects of q exposures on p columns, (p, q) each unless said.

    value, error, degrees : the estimate, its standard error and degrees of freedom; adjusted : the analysis of covariance;
    low, high : ends of the identified set; share (q,) : of the correction; noise (q,) : the largest share of noise in the
    controls that the estimate assumes; rank : hidden directions; blocks : of rows; strength : standard errors between T and
    no noise at all.
    controls, controls_error, controls_adjusted (d_v, q) : what controls get when held out, nan where none could be;
    moved (d_v, q) : root mean square, in standard errors, of how far effects move without a control.
    """

    value: Array
    error: Array
    degrees: Array
    naive: Array
    adjusted: Array
    low: Array
    high: Array
    share: Array
    noise: Array
    rank: int
    blocks: int
    strength: float
    controls: Array
    controls_error: Array
    controls_adjusted: Array
    moved: Array


@dataclass(frozen=True, eq=False)
class Fit:
    """T at one rank, the second moments that it is for, and the weight of held-out controls; ridge : added to squared canonical
    correlations before they are inverted."""

    known: PairFit
    given: Given
    blocks: Sequence[Given]
    trust: float
    ridge: float

    def effects(self, line: Linear, lines: Iterable[Linear]) -> Draws:
        """Of all rows, without each block, and over the posterior of T."""
        T, drawn = self.known.posterior.T, self.known.posterior.resampled(line.base.size).T
        blocks = np.stack([one.at(T.blocks[i]) for i, one in enumerate(lines)])
        return Draws(line.at(T.value), blocks, line.at(drawn.posterior), drawn.weight)

    def replicates(self) -> Iterator[tuple[Given, Pair]]:
        """The second moments without each block, and their canonical coordinates."""
        return ((one, one_of(self.known.left_out, i)) for i, one in enumerate(self.blocks))


@dataclass(frozen=True, eq=False)
class Problem:
    """All that the estimate is a function of.

    given, blocks : second moments, of all rows and without each block; views : coordinates of U and of V; n : independent rows;
    counts (B,) : rows of the blocks; grams (2, B, B, 2r, 2r), from_z (k_u, r), (k_v, r) : Grams of the cumulants in leading
    canonical coordinates, and from these to the coordinates; tests : how many of the first columns are tests, the rest of the
    first view being instruments; found : the rank that the test of the correlations gives; rows : less those that covariates
    took; share : of the correction, where it is given.
    """

    given: Given
    blocks: Sequence[Given]
    views: tuple[Coordinates, Coordinates]
    n: float
    counts: Array
    grams: Array
    from_z: tuple[Array, Array]
    tests: int
    found: int
    rows: float
    share: float | None = None

    @property
    def instruments(self) -> bool:
        """Whether there are any."""
        return bool(self.tests < self.views[0].to.shape[1])

    def smoothing(self) -> Smoothing | None:
        """Factors of all columns, where all are compared and no instruments say more."""
        u, v = self.views
        if u.columns is None or v.columns is None or self.instruments or not self.found:
            return None
        return Smoothing.of(self.given.cov, u.k, self.n)

    def evidences(self, where: Canonical, rank: int) -> list[Evidence]:
        """At this rank; where : canonical coordinates of the moments that T is for."""
        r, out = min(rank, MOST_CORRECTED), list[Evidence]()
        if self.grams.any():
            into = linalg.block_diag(where.x_from_u[:r] @ self.from_z[0], where.y_from_v[:r] @ self.from_z[1])
            out.append(CrossCumulants(into @ self.grams @ into.T))
        stated = self.instrumented()
        if stated is not None:
            return [*out, stated]
        groups = [
            _leading(loadings[:, :r]) if view.columns is not None else np.full(view.k, -1)
            for view, loadings in zip(self.views, (where.u_from_x, where.v_from_y), strict=True)
        ]
        return [*out, UncorrelatedOwnParts(groups_u=groups[0], groups_v=groups[1], dispersed=True)]

    def instrumented(self) -> UncorrelatedOwnParts | None:
        """What instruments state: own parts of tests and instruments are uncorrelated."""
        u, v = self.views
        if not self.instruments or u.columns is None:
            return None
        groups = np.where(u.columns < self.tests, 0, 1)
        return UncorrelatedOwnParts(
            groups_u=groups, groups_v=np.full(v.k, -1), stated=True, dispersed=True, name="instruments"
        )

    def fit(self, rank: int | None) -> Fit:
        """At this rank; None : that of the factors if they hold, else of the test."""
        given, blocks, smooth = self.given, list(self.blocks), self.smoothing()
        if smooth is not None and smooth.weight:
            lift = linalg.block_diag(*(one.lift for one in self.views))
            given = given.with_covariance(smooth(given.cov), lift)
            stack = smooth(np.stack([one.cov for one in blocks]))
            blocks = [one.with_covariance(cov, lift) for one, cov in zip(blocks, stack, strict=True)]
        k_u = self.views[0].k
        where = canonical(given.cov[:k_u, :k_u], given.cov[:k_u, k_u:], given.cov[k_u:, k_u:], self.n)
        if rank is None:
            rank = smooth.k if smooth is not None and smooth.weight > 0.5 else self.found
        rank = min(rank, len(where.correlations))
        pair, left_out = self._pairs(where, blocks, rank)
        stated = self.instrumented()
        if stated is not None and self.share is not None and rank:
            return Fit(_solved(pair, left_out, stated), given, blocks, 1.0, 0.0)
        known = PairFit.of(pair, left_out, self.evidences(where, rank))
        return Fit(known, given, blocks, 1.0 if smooth is None else smooth.controls, WEAK_INSTRUMENT / self.n)

    def _pairs(self, where: Canonical, blocks: Sequence[Given], rank: int) -> tuple[Pair, Pair]:
        to = linalg.block_diag(where.x_from_u, where.y_from_v)
        kept = 1.0 - np.eye(len(blocks))
        n = self.n * (kept @ self.counts) / self.counts.sum()
        stack = to @ np.stack([one.cov for one in blocks]) @ to.T
        return (
            Pair.whole(where, len(blocks), rank, MOST_CORRECTED),
            Pair.of(where, stack, n, kept, rank, MOST_CORRECTED),
        )

    def estimate(self, at: Fit) -> Estimated:
        """The whole of it: from the analysis of covariance towards the correction. Where nothing is shared, from the unadjusted
        effects towards the analysis of covariance, as far as the change stands above its noise."""
        fit, (p, q), given = at.known, self.given.slopes.shape, self.given
        naive = Draws.certain(given.slopes, np.stack([b.slopes for b in self.blocks]))
        adjusted = Draws.certain(ancova(given), np.stack([ancova(b) for b in self.blocks]))
        size, degrees = np.sqrt(np.where(given.variance > 0, given.variance, 1.0)), len(self.blocks) - 1.0
        nothing = np.full((self.views[1].to.shape[1], q), np.nan)
        safe, full, gate, noise, witnesses = naive, adjusted, 1.0, 0.0, self._held_out(at)
        low, high = np.minimum(naive.value, adjusted.value), np.maximum(naive.value, adjusted.value)
        if fit.rank:
            line = on_columns(at.given, fit.pair, adjusted.value, at.ridge)
            lines = (
                on_columns(b, pair, base, at.ridge)
                for (b, pair), base in zip(at.replicates(), adjusted.blocks, strict=True)
            )
            safe, full, (low, high) = adjusted, at.effects(line, lines), line.set()
            gate = 1.0 if self.instruments else fit.gate
            noise = float(np.linalg.eigvalsh(fit.posterior.T.value)[-1])
        share, value, error, df = np.zeros(q), np.zeros((p, q)), np.zeros((p, q)), np.full((p, q), degrees)
        controls, controls_error = nothing.copy(), nothing.copy()
        for i in range(q):
            a, b = (one.map(lambda effects: effects / size) for one in _of_exposure(i, safe, full))
            share[i] = share_of(a.map(self._of_tests), b.map(self._of_tests), gate)
            held = witnesses and HeldOut(*_of_exposure(i, *witnesses[:2]), at.trust)
            if fit.rank and self.share is not None:
                share[i] = self.share
            elif held:
                share[i] = held.share(share[i])
            shrunk = Shrunk.at(a, b, share[i])
            value[:, i], error[:, i] = shrunk.value * size, shrunk.error * size
            if held and witnesses:
                wide, df[:, i] = held.widened(shrunk.error, share[i], degrees)
                error[:, i] = wide * size * (given.variance > 0)
                seen, into = Shrunk.at(held.safe, held.full, share[i]), witnesses[2].expanded
                controls[:, i], controls_error[:, i] = into(seen.value), np.abs(into(seen.error)) / np.sqrt(at.trust)
        others = held_out_base(given, self.views[1].to) if witnesses or fit.rank else nothing
        moved = self._moved(at, share, value, error) if fit.rank else nothing
        return Estimated(
            value, error, df, naive.value, adjusted.value, low, high, share, share * noise, fit.rank, len(self.blocks),
            fit.strength if fit.rank else 0.0, controls, controls_error, others, moved,
        )  # fmt: skip

    def _of_tests(self, values: Array) -> Array:
        return np.asarray(values[..., : self.tests])

    def _held_out(self, at: Fit) -> tuple[Draws, Draws, Witnesses] | None:
        """Safe and full effects (c, q) on held-out controls, in standard deviations of these: the ends that tests have."""
        which, to = Witnesses.of(self.given, self.views[1]), self.views[1].to
        if len(which.at) < FEWEST_CONTROLS or self.instruments:
            return None  # instruments are for controls whose own parts go together: no control tells another one's
        base, bases = held_out_base(self.given, to), np.stack([held_out_base(one, to) for one in self.blocks])
        if at.known.rank:
            line = held_out(at.given, at.known.pair, to, base, at.ridge)
            lines = [
                held_out(b, pair, to, own, at.ridge) for (b, pair), own in zip(at.replicates(), bases, strict=True)
            ]
            safe, full = Draws.certain(line.base, np.stack([one.base for one in lines])), at.effects(line, lines)
        else:
            slopes = np.stack([one.slopes[-len(base) :] for one in self.blocks])
            safe, full = Draws.certain(self.given.slopes[-len(base) :], slopes), Draws.certain(base, bases)
        return safe.map(which.chosen), full.map(which.chosen), which

    def _moved(self, at: Fit, share: Array, value: Array, error: Array) -> Array:
        """(d_v, q): how far effects on the tests move without each control; root mean square, in standard errors."""
        to, d, fit, given, pair = self.views[1].to, self.tests, at.known, at.given, at.known.pair
        predictor, Q = predicted(pair, at.ridge)
        (onto, own, _), (plain, weight, _) = _without(given, to), _without(self.given, to)
        out, known = np.full((to.shape[1], value.shape[1]), np.nan), error[:d] > 0
        held, first = pair.h @ fit.posterior.T.value @ pair.h, ancova(self.given)[:d]
        for j in np.flatnonzero((own > 0) & (weight > 0)):
            seen = onto[j] @ given.cov_v @ predictor
            lost = np.outer(seen, seen) / own[j]
            left = given.with_v[:d] @ (predictor - np.outer(onto[j], seen) / own[j])
            right = np.linalg.solve(Q - lost, (predictor.T - np.outer(seen, onto[j]) / own[j]) @ given.on_v)
            gone = np.outer(self.given.with_v[:d] @ plain[j], plain[j] @ self.given.on_v) / weight[j]
            change = np.linalg.solve(Q - lost, lost @ right + held @ right * share)
            moved = (first + gone - left @ change - value[:d]) / np.where(known, error[:d], np.inf)
            out[j] = np.sqrt(np.sum(moved**2, axis=0) / np.maximum(known.sum(axis=0), 1))
        return out
