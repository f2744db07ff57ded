"""Effects of exposures on the columns of U when something hidden goes with them, given negative controls V.

    U = alpha e + S1 + S2,    V = A S2 + S3,    S1, S3 independent of each other and of (S2, e); S2 and e dependent in any way.

Without their regression on the exposures e (and on known covariates) the views follow the contrastive model exactly, so D, the
rank r and T are those of any two views. Let b_w and b_v be the slopes of the columns on the exposures, y = y_1..y_r the shared
canonical coordinates of V, c their slopes, and k_w = Cov(w, y) given the exposures, for a column w without any part of S3. Then

    alpha_w = b_w - k_w' R^-1 c,        R^-1 = D^-1 S D^-1 = I + D^-1 h T h D^-1.

R is the reliability of y, the share of its variance that is S2. T = 0 (R = I) says that controls have no noise of their own:
the analysis of covariance, the coefficient of e in w on (e, V). T = I is reverse regression. Between them alpha is LINEAR in T,

    alpha_w(T) = alpha_w(0) - l_w' T m,      l_w = h D^-1 k_w,   m = h D^-1 c,

and with second moments alone it lies between alpha_w(0) - (l'm + |l||m|) / 2 and alpha_w(0) - (l'm - |l||m|) / 2.

How far to go from T = 0 is decided by three doubts, none of which needs to know the truth:

* Noise of c. A slope within its own error (variance v) would be multiplied by D^-2. Only slopes that stand out are used:
  c_j (1 - (3 v / c_j^2)^2)_+.
* Noise of T: rho_0 = (1 - half the variance of the change, over left-out blocks, / its square)_+.
* The controls themselves: their effects are zero. They are hidden in turn and their effects estimated from the others, e_j at
  T = 0 and e_j + rho d_j on the way to T. If T is right, e_j = -d_j up to noise: the hidden effects are a regression with one
  unknown, rho, and rho_0 is its prior mean,

      rho = (rho_0 / s^2 - sum e_j d_j / v_j) / (1 / s^2 + sum d_j^2 / v_j).

  The variances v_j contain what controls have in common beside S2: Cov(w, y_i) for i > r ought to be zero, and tells its size.

The estimate is alpha(0) + rho (alpha(T) - alpha(0)), with alpha(0) the analysis of covariance on ALL controls, not only on
their shared coordinates: where the model fails it stays near what people do today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.contrastive.diagnostics import TestResult
from richcomponents.contrastive.intervals import replicate
from richcomponents.contrastive.pair import Pair, products_with_t
from richcomponents.contrastive.solution import PairSolution
from richcomponents.cumulants.estimate import jackknife_variance
from richcomponents.moments import Moments
from richcomponents.storage import storable

__all__ = ["HiddenControls", "PairEffects", "Products", "Slopes", "outside_test"]

RIDGE = 4.0
"""On squared canonical correlations, in units of 1/n: D^-1 becomes D / (D^2 + RIDGE / n)."""

STANDS_OUT = 3.0
"""Squared standard errors from which on a slope of the controls is corrected for."""

PRIOR_SD = 0.5
"""Of rho about what the fit itself supports, before the controls are asked."""

DOUBT = 0.5
"""Weight of the variance of the change that T brings about, in rho_0."""


@dataclass(frozen=True)
class Slopes:
    """Slopes on the exposures, and second moments given the exposures and known covariates.

    u (p, q), v (d_v, q) : slopes of the columns; with_v (p, d_v) : Cov(U, V); var_u (p,); cov_v (d_v, d_v); noise (q, q) :
    covariance of the slopes of a column with unit variance, for independent rows.
    """

    u: Array
    v: Array
    with_v: Array
    var_u: Array
    cov_v: Array
    noise: Array

    def of_control(self, held: IntArray, rest: IntArray) -> Slopes:
        """The controls `held` as columns of U, and the `rest` as V."""
        return Slopes(
            u=self.v[held],
            v=self.v[rest],
            with_v=self.cov_v[np.ix_(held, rest)],
            var_u=np.diag(self.cov_v)[held],
            cov_v=self.cov_v[np.ix_(rest, rest)],
            noise=self.noise,
        )

    def with_controls(self, rest: IntArray) -> Slopes:
        """U, and the `rest` of the controls as V."""
        return replace(self, v=self.v[rest], with_v=self.with_v[:, rest], cov_v=self.cov_v[np.ix_(rest, rest)])


@dataclass(frozen=True)
class Products:
    """Sums of products, block by block, about the means of all rows; nothing of size p x p.

    z (B, m, m) : of z = (1, covariates, exposures, V) with itself; with_u : block -> (m, p), with the columns of U; squares :
    block -> (p,), of U; n (B,) : rows of each block; known, q : how many covariates and exposures; lost : rows' worth of
    freedom that these took.
    """

    z: Array
    with_u: Callable[[int], Array]
    squares: Callable[[int], Array]
    n: Array
    known: int
    q: int
    lost: float

    @classmethod
    def of_rows(
        cls, u: Array, v: Array, known: Array, exposures: Array, weight: Array, blocks: IntArray, lost: float
    ) -> Products:
        """Tables (n, .) in memory; weight (n,) : how often each row counts; blocks (n,) : the block of each row."""
        total = weight.sum()

        def centred(table: Array) -> Array:
            return np.asarray(table - weight @ table / total)

        z = np.hstack([np.ones((len(v), 1)), *map(centred, (known, exposures, v))])
        mean = weight @ u / total
        members = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]

        def with_u(block: int) -> Array:
            rows = members[block]
            return np.asarray((z[rows] * weight[rows, None]).T @ (u[rows] - mean))

        def squares(block: int) -> Array:
            rows = members[block]
            return np.asarray(weight[rows] @ (u[rows] - mean) ** 2)

        own = np.stack([(z[rows] * weight[rows, None]).T @ z[rows] for rows in members])
        counts = np.array([weight[rows].sum() for rows in members])
        return cls(own, with_u, squares, counts, known.shape[1], exposures.shape[1], lost)

    @classmethod
    def of_state(cls, state: Moments, d_u: int, d_v: int, known: int, lost: float) -> Products:
        """A state whose columns are U, V, covariates, exposures, in this order."""
        used = np.flatnonzero(state.block_sizes)
        count = state.block_sizes[used].astype(np.float64)
        second = state.block_covariances()[used] * count[:, None, None]
        first = state.central_blocks()[used][:, state.layout.orders[1]]
        width = second.shape[1]
        order = np.concatenate([np.arange(d_u + d_v, width), np.arange(d_u, d_u + d_v)])
        z = np.empty((len(used), 1 + len(order), 1 + len(order)))
        z[:, 0, 0], z[:, 0, 1:], z[:, 1:, 0] = count, first[:, order], first[:, order]
        z[:, 1:, 1:] = second[:, order[:, None], order]
        with_u = np.concatenate([first[:, None, :d_u], second[:, order, :d_u]], axis=1)
        squares = np.einsum("bii->bi", second[:, :d_u, :d_u])
        q = width - d_u - d_v - known
        return cls(z, lambda b: with_u[b], lambda b: squares[b], count, known, q, lost)

    @cached_property
    def _total(self) -> tuple[Array, Array, Array]:
        blocks = range(len(self.n))
        return self.z.sum(0), reduce(np.add, map(self.with_u, blocks)), reduce(np.add, map(self.squares, blocks))

    def left_of_exposures(self) -> Array:
        """(q,) the share of each exposure's variance that covariates and other exposures do not explain."""
        k = 1 + self.known + self.q
        zz = self.z.sum(0)[:k, :k]
        out = np.zeros(self.q)
        for i, place in enumerate(range(1 + self.known, k)):
            others = np.delete(np.arange(k), place)
            scale = np.sqrt(np.maximum(np.diag(zz)[others], 1e-300))
            standard = np.linalg.pinv(zz[np.ix_(others, others)] / np.outer(scale, scale), rcond=1e-12, hermitian=True)
            with_others = zz[place, others] / scale
            out[i] = 1 - with_others @ standard @ with_others / max(zz[place, place], 1e-300)
        return out

    def slopes(self) -> Slopes:
        """Of all rows."""
        return self._solved(*self._total, float(self.n.sum()))

    def without_each_block(self) -> Iterator[Slopes]:
        zz, zu, squares = self._total
        for b, gone in enumerate(self.n):
            left = float(self.n.sum() - gone)
            yield self._solved(zz - self.z[b], zu - self.with_u(b), squares - self.squares(b), left)

    def _solved(self, zz: Array, zu: Array, squares: Array, n: float) -> Slopes:
        """Regression on (1, covariates, exposures); residual covariances have the divisor n - lost."""
        k = 1 + self.known + self.q
        free = n - self.lost
        scale = np.sqrt(np.maximum(np.diag(zz)[:k], 1e-300))
        inverse = np.linalg.pinv(zz[:k, :k] / np.outer(scale, scale), rcond=1e-12, hermitian=True) / np.outer(
            scale, scale
        )
        on_v, on_u = inverse @ zz[:k, k:], inverse @ zu[:k]
        places = slice(1 + self.known, k)
        return Slopes(
            u=on_u[places].T,
            v=on_v[places].T,
            with_v=(zu[k:] - zz[k:, :k] @ on_u).T / free,
            var_u=np.maximum(squares - np.einsum("kp,kp->p", zu[:k], on_u), 0.0) / free,
            cov_v=(zz[k:, k:] - zz[k:, :k] @ on_v) / free,
            noise=inverse[places, places] * (n / free),
        )


@dataclass(frozen=True)
class Basis:
    """The shared coordinates y = to_y v, (r, d_v), and what is known of them: cross = Cov(x, y) and h (r, r)."""

    to_y: Array
    cross: Array
    h: Array

    @classmethod
    def of(cls, pair: Pair) -> Basis:
        return cls(pair.to_y, pair.cross, pair.h)

    @classmethod
    def each(cls, pairs: Pair) -> list[Basis]:
        """Of a stack of replicates."""
        return [cls(*parts) for parts in zip(pairs.to_y, pairs.cross, pairs.h, strict=True)]

    def lift(self, ridge: float) -> Array:
        """cross^-1 h, as cross' (cross cross' + ridge)^-1 h."""
        square = self.cross @ self.cross.T + ridge * np.eye(len(self.cross))
        return np.asarray(self.cross.T @ np.linalg.solve(square, self.h))


@dataclass(frozen=True)
class Correction:
    """The way from the analysis of covariance, alpha(0), to alpha(T), for columns w of one sample.

    adjusted (p, q) : alpha(0), with all controls as covariates (all coordinates that were searched, where V is wide);
    left (p, r), right (r, q) : alpha(T) - alpha(0) = -left T right; slopes (r, q) : c, as far as it stands out; lift (r, r).
    """

    adjusted: Array
    left: Array
    right: Array
    slopes: Array
    lift: Array

    @classmethod
    def of(cls, slopes: Slopes, basis: Basis, whole: Array, n: float, effect: float) -> Correction:
        """whole (k, d_v) : V -> all its coordinates; n : independent rows; effect : rows over independent rows."""
        c, lift = basis.to_y @ slopes.v, basis.lift(RIDGE / n)
        v = np.diag(slopes.noise) * effect
        kept = c * np.maximum(0.0, 1 - (STANDS_OUT * v / np.maximum(c**2, 1e-300)) ** 2)
        inner = whole @ slopes.cov_v @ whole.T
        removed = (slopes.with_v @ whole.T) @ np.linalg.lstsq(inner, whole @ slopes.v, rcond=1e-12)[0]
        return cls(slopes.u - removed, slopes.with_v @ basis.to_y.T @ lift, lift.T @ kept, kept, lift)

    def at(self, t: Array) -> Array:
        """alpha(T) - alpha(0), (..., p, q), for T (..., r, r)."""
        return np.asarray(-(self.left @ (t @ self.right)))

    def error(self, ts: Array) -> Array:
        """Standard error (p, q) of the change, for T without each block, (B, r, r)."""
        return np.asarray(np.sqrt(jackknife_variance(self.at(ts))))


def identified_ends(slopes: Slopes, basis: Basis, adjusted: Array) -> tuple[Array, Array]:
    """Ends (p, q) of every effect over all 0 <= T <= I."""
    lift = np.linalg.solve(basis.cross, basis.h)
    low, high = products_with_t(slopes.with_v @ basis.to_y.T @ lift, (lift.T @ (basis.to_y @ slopes.v)).T)
    return adjusted - high, adjusted - low


def posterior_mean(solution: PairSolution) -> Array:
    """E[T] (r, r); zero where only second moments were looked at."""
    known = solution.posterior
    if solution.second_order_only:
        return np.zeros((known.rank, known.rank))
    return np.eye(known.rank) - known.mean_g


def own_trust(correction: Correction, solution: PairSolution, scale: Array) -> Array:
    """rho_0 (q,): the share of the change that T brings about that stands above its variance over left-out blocks.

    scale (p,) : standard deviations of the columns.
    """
    known, t = solution.posterior, posterior_mean(solution)
    size = np.sum((correction.at(t) / scale[:, None]) ** 2, axis=0)
    left_out = np.sum((correction.error(t + known.t_shifts) / scale[:, None]) ** 2, axis=0)
    return np.asarray(np.maximum(0.0, 1 - DOUBT * left_out / np.maximum(size, 1e-300)))


@storable
@dataclass(frozen=True)
class HiddenControls:
    """What controls get when they are hidden and their effects estimated from the others: (d_v, q), zero in truth.

    adjusted : the analysis of covariance; change : on the way to T; error : standard error of `adjusted`; beside : error from
    what controls have in common beside the shared part, infinite where that cannot be told; moved : of `change`, from T;
    fold (d_v,) : who was hidden together; u_adjusted, u_change (folds, p, q) : the effects on U without each fold.
    """

    adjusted: Array
    change: Array
    error: Array
    beside: Array
    moved: Array
    fold: IntArray
    u_adjusted: Array
    u_change: Array

    @classmethod
    def of(cls, slopes: Slopes, folds: Sequence[IntArray], solve: Callable[[IntArray], PairSolution]) -> HiddenControls:
        """folds : controls that are hidden together; solve : a fit of the two views with these controls only."""
        every, fold = np.arange(len(slopes.v)), np.zeros(len(slopes.v), dtype=np.int64)
        hidden, on_u = np.zeros((5, *slopes.v.shape)), []
        for number, held in enumerate(folds):
            rest = np.setdiff1d(every, held)
            solution, fold[held] = solve(rest), number
            t, found = posterior_mean(solution), solution.canonical
            setting = (Basis.of(solution.pair), found.y_from_v, found.n, design_effect(solution))
            seen = slopes.of_control(held, rest)
            correction = Correction.of(seen, *setting)
            pulled = np.sum(correction.at(replicated(solution, setting[0], 0)[2]) ** 2, axis=0)
            moved = np.sqrt(correction.error(t + solution.posterior.t_shifts) ** 2 + pulled)
            errors = _hidden_errors(seen, correction, t, solution)
            hidden[:, held] = correction.adjusted, correction.at(t), *errors, moved
            there = Correction.of(slopes.with_controls(rest), *setting)
            on_u.append(np.stack([there.adjusted, there.at(t)]))
        adjusted, change, error, beside, moved = hidden
        u_adjusted, u_change = np.stack(on_u, axis=1)
        return cls(adjusted, change, error, beside, moved, fold, u_adjusted, u_change)

    def support(self) -> tuple[Array, Array]:
        """What the hidden effects say about rho: precision (q,), and precision times estimate (q,)."""
        weight = 1 / np.maximum(self.error**2 + self.beside**2, 1e-300)
        return np.sum(weight * self.change**2, axis=0), -np.sum(weight * self.change * self.adjusted, axis=0)

    def effects(self, rho: Array) -> tuple[Array, Array]:
        """Effects and standard errors, (d_v, q), at the chosen rho."""
        return self.adjusted + rho * self.change, np.sqrt(self.error**2 + self.beside**2 + (rho * self.moved) ** 2)


def _hidden_errors(seen: Slopes, correction: Correction, t: Array, solution: PairSolution) -> tuple[Array, Array]:
    """Standard errors (held, q): of the analysis of covariance, and from what controls have in common beside the shared part.

    The latter: their squared covariances with coordinates beyond the rank, less noise, as if they were as large within it.
    """
    found, r = solution.canonical, solution.rank
    k, c = seen.with_v @ found.y_from_v.T, found.y_from_v @ seen.v
    own = np.maximum(seen.var_u - np.sum(k**2, axis=1), 1e-12 * seen.var_u)  # variance given the other controls
    design = np.diag(seen.noise) * design_effect(solution) + np.sum(c**2, axis=0) / found.n
    used = np.sum((correction.slopes + correction.lift @ t @ correction.right) ** 2, axis=0)  # |R^-1 c|^2
    if k.shape[1] > r:
        common = np.maximum(np.mean(k[:, r:] ** 2, axis=1) - seen.var_u / found.n, 0.0)
        beside = common[:, None] * used
    else:
        beside = np.where(used > 0, np.inf, 0.0) * np.ones((len(k), 1))
    return np.sqrt(own[:, None] * design), np.sqrt(beside)


def design_effect(solution: PairSolution) -> float:
    """Rows, less those that covariates took, over independent rows."""
    return float((solution.n - solution.lost) / solution.canonical.n)


@storable
@dataclass(frozen=True)
class PairEffects:
    """Effects of q exposures on p columns, (p, q) each unless said.

    value : adjusted + rho change, or naive where nothing is shared; error : its standard error.
    rho, rho_own (q,) : how far the estimate goes from the analysis of covariance (0) towards T (1), and how far the fit alone
    would have gone; rho_error (q,) : standard deviation of rho, given the hidden controls.
    ends, ends_error : lower and upper end of the identified set, and their standard errors.
    scale (p,) : standard deviations of the columns given exposures; left (p, r), right (r, q), t (r, r) : see Correction.
    """

    value: Array
    naive: Array
    adjusted: Array
    change: Array
    error: Array
    rho: Array
    rho_own: Array
    rho_error: Array
    ends: tuple[Array, Array]
    ends_error: tuple[Array, Array]
    degrees: int
    scale: Array
    left: Array
    right: Array
    t: Array

    @classmethod
    def of(cls, products: Products, solution: PairSolution, hidden: HiddenControls | None) -> PairEffects:
        """hidden : None where there are too few controls to hide some."""
        slopes, found = products.slopes(), solution.canonical
        basis, t = Basis.of(solution.pair), posterior_mean(solution)
        setting = (found.y_from_v, found.n, design_effect(solution))
        correction = Correction.of(slopes, basis, *setting)
        scale = np.sqrt(np.maximum(slopes.var_u, 1e-300))
        rho_own = own_trust(correction, solution, scale)
        precision, support = (np.zeros_like(rho_own),) * 2 if hidden is None else hidden.support()
        variance = 1 / (PRIOR_SD**-2 + precision)
        rho = np.clip(variance * (rho_own / PRIOR_SD**2 + support), 0.0, 1.0)

        def value(slopes: Slopes, correction: Correction, t: Array) -> Array:
            return slopes.u if solution.rank == 0 else correction.adjusted + rho * correction.at(t)

        bases, moved, spread = replicated(solution, basis, len(products.n))
        values, ends = [], []
        for left, at, by in zip(products.without_each_block(), bases, moved, strict=True):
            one = Correction.of(left, at, *setting)
            values.append(value(left, one, t + by))
            ends.append(np.stack(identified_ends(left, at, one.adjusted)))
        noise = jackknife_variance(np.stack(values)) + rho**2 * np.sum(correction.at(spread) ** 2, axis=0)
        low_error, high_error = np.sqrt(jackknife_variance(np.stack(ends)))
        return cls(
            value=value(slopes, correction, t),
            naive=slopes.u,
            adjusted=correction.adjusted,
            change=correction.at(t),
            error=np.sqrt(noise),
            rho=rho,
            rho_own=rho_own,
            rho_error=np.sqrt(variance),
            ends=identified_ends(slopes, basis, correction.adjusted),
            ends_error=(low_error, high_error),
            degrees=len(values) - 1,
            scale=scale,
            left=correction.left,
            right=correction.right,
            t=t,
        )


def effects_of(slopes: Slopes, solution: PairSolution, rho: Array) -> Array:
    """Effects (p, q) of another fit of the same views, as far on the way to its T."""
    found, t = solution.canonical, posterior_mean(solution)
    correction = Correction.of(slopes, Basis.of(solution.pair), found.y_from_v, found.n, design_effect(solution))
    return np.asarray(correction.adjusted + rho * correction.at(t))


def replicated(solution: PairSolution, basis: Basis, n_blocks: int) -> tuple[list[Basis], Array, Array]:
    """Without each block: the basis of the shared coordinates and the change of T (B, r, r), one Newton step; and changes
    (k, r, r) whose squares add up to what the prior may have pulled, and seems to have pulled."""
    r = solution.rank
    if r == 0 or not solution.posterior.tau_weights.any():
        return [basis] * n_blocks, np.zeros((n_blocks, r, r)), np.zeros((0, r, r))
    found = replicate(solution.block_evidence())
    return Basis.each(found.bases), *found.t_changes()


def outside_test(slopes: Slopes, solution: PairSolution) -> list[TestResult]:
    """Per exposure: whether the slopes of the controls lie in the range of A, as those of the shared part do.

    Given an exposure, white coordinates y of V have slopes D on x and c on the exposure. Likelihood ratio of rank r for [D | c]
    against rank r for D alone: it knows that shared directions are estimated. d_v - r degrees of freedom, Bartlett's factor.
    """
    found, rank, n = solution.canonical, solution.rank, solution.canonical.n
    k = len(found.y_from_v)
    d = np.zeros(k)
    d[: len(found.correlations)] = found.correlations[:k]
    own = 1 / np.sqrt(1 - d**2)  # whitens y given x
    alone = np.sort((d * own) ** 2)[::-1]
    tests = []
    for slope, noise in zip(slopes.v.T, np.diag(slopes.noise) * design_effect(solution), strict=True):
        c = (found.y_from_v @ slope) * own / np.sqrt(noise * n)
        both = np.linalg.eigvalsh(np.diag((d * own) ** 2) + np.outer(c, c))[::-1]
        gain = float(np.sum(np.log1p(np.maximum(both[rank:], 0.0))) - np.sum(np.log1p(alone[rank:])))
        statistic = max(n - (k + found.rank_u + 2) / 2, 1.0) * max(gain, 0.0)
        p = float(stats.chi2.sf(statistic, k - rank)) if k > rank else 1.0
        tests.append(TestResult(statistic, (k - rank,), p))
    return tests
