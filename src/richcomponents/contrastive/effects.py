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

How far to go from T = 0 is decided by doubts that do not need to know the truth:

* Noise of c. A slope within its own error (variance v) would be multiplied by D^-2. Only slopes that stand out are used:
  c_j (1 - (3 v / c_j^2)^2)_+.
* Noise of T: rho_0 = (1 - half the variance of the change, over left-out blocks, / its square)_+.
* The controls themselves: their effects are zero. They are hidden in turn and their effects estimated from the others.

Beside T stands a second answer, that of joint factors (joint_factors.py), which knows how noisy the controls are if errors of
columns do not depend on each other; g, from its own test, says how far that holds. With d_1 the change from the analysis of
covariance to alpha(T), d_2 that to the joint factors, and e_j, d_1j, d_2j what hidden control j gets, the shares rho of both

    alpha = alpha(0) + rho_1 d_1 + rho_2 d_2,     rho >= 0,   rho_1 + rho_2 <= 1,

are the mode of a regression in which hidden controls come out as zero, about what either answer deserves by itself:

    sum_j (e_j + rho_1 d_1j + rho_2 d_2j)^2 / v_j + (rho_1 - m_1)^2 / s^2 + (rho_2 - m_2)^2 / (g s)^2  is least,
    m_1 = rho_0 (1 - g / 2),   m_2 = g (1 - rho_0 / 2).

The variances v_j contain what controls have in common beside S2: Cov(w, y_i) for i > r ought to be zero, and tells its size,
pooled over the controls.
alpha(0) is the analysis of covariance on ALL controls, not only on their shared coordinates: where the model fails the estimate
stays near what people do today. Where tests and controls share nothing (r = 0) it lies between the unadjusted one and
alpha(0), the nearer to the latter the more surely the controls go with the exposure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.spectral import whitening
from richcomponents.contrastive.diagnostics import TestResult
from richcomponents.contrastive.intervals import replicate
from richcomponents.contrastive.joint_factors import JointFactors
from richcomponents.contrastive.pair import RIDGE, Pair, lift, products_with_t
from richcomponents.contrastive.slopes import Products, Slopes
from richcomponents.contrastive.solution import PairSolution
from richcomponents.cumulants.estimate import jackknife_variance
from richcomponents.storage import storable

__all__ = ["HiddenControls", "PairEffects", "left_out_tests", "outside_test"]

STANDS_OUT = 3.0
"""Squared standard errors from which on a slope of the controls is corrected for."""

PRIOR_SD = 0.5
"""Of shares about what either answer deserves by itself, before the controls are asked."""

GOES_WITH = 0.05
"""p value from which on controls that share nothing with the tests are taken to go with the exposure."""

POOLING = 4.0
"""Coordinates that what all controls have in common beside the shared part is worth, for each of them."""

MOST_LEFT_OUT = 200
"""Controls, up to which each is left out in turn to find one that the exposure changes."""

LARGEST = 1 - 1e-9
"""Canonical correlation of coordinates that are functions of each other."""

DOUBT = 0.5
"""Weight of the variance of the change that T brings about, in rho_0."""


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
        """cross^-1 h."""
        return lift(self.cross, self.h, ridge)


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
    return np.asarray(np.where(size > 0, np.maximum(0.0, 1 - DOUBT * left_out / np.maximum(size, 1e-300)), 0.0))


@storable
@dataclass(frozen=True)
class HiddenControls:
    """What controls get when they are hidden and their effects estimated from the others: (d_v, q), zero in truth.

    adjusted : the analysis of covariance; changes (2, d_v, q) : from there to T, and to the joint factors; error : standard
    error of `adjusted`; beside : error from what controls have in common beside the shared part, infinite where that cannot be
    told; moved : of the change to T, from T; fold (d_v,) : who was hidden together; u_adjusted (folds, p, q), u_changes
    (folds, 2, p, q) : the effects on U without each fold.
    """

    adjusted: Array
    changes: Array
    error: Array
    beside: Array
    moved: Array
    fold: IntArray
    u_adjusted: Array
    u_changes: Array

    @classmethod
    def of(
        cls,
        slopes: Slopes,
        folds: Sequence[IntArray],
        solve: Callable[[IntArray], PairSolution],
        factors: JointFactors,
    ) -> HiddenControls:
        """folds : controls that are hidden together; solve : a fit of the two views with these controls only; factors : of all
        columns: hidden controls are tests there."""
        every, fold = np.arange(len(slopes.v)), np.zeros(len(slopes.v), dtype=np.int64)
        hidden, on_u = np.zeros((5, *slopes.v.shape)), []
        common, coordinates, used = np.zeros(len(every)), np.zeros(len(every)), np.zeros(slopes.v.shape)
        for number, held in enumerate(folds):
            rest = np.setdiff1d(every, held)
            solution, fold[held] = solve(rest), number
            t, found = posterior_mean(solution), solution.canonical
            setting = (Basis.of(solution.pair), found.y_from_v, found.n, design_effect(solution))
            seen = slopes.of_control(held, rest)
            correction = Correction.of(seen, *setting)
            pulled = np.sum(correction.at(replicated(solution, setting[0], 0)[2]) ** 2, axis=0)
            moved = np.sqrt(correction.error(t + solution.posterior.t_shifts) ** 2 + pulled)
            error, common[held], used[held] = _hidden_errors(seen, correction, t, solution)
            coordinates[held] = max(len(found.y_from_v) - solution.rank, 0)
            gamma, _ = factors.slopes_of_factors(slopes.both, noise_of(slopes, solution), rest)
            by_factors = factors.effects(slopes.both, gamma)
            change = by_factors[len(slopes.u) + held] - correction.adjusted
            hidden[:, held] = correction.adjusted, correction.at(t), change, error, moved
            there = Correction.of(slopes.with_controls(rest), *setting)
            on_u.append(np.stack([there.adjusted, there.at(t), by_factors[: len(slopes.u)] - there.adjusted]))
        scale = np.broadcast_to((np.diag(slopes.cov_v) * _pooled(common, coordinates))[:, None], used.shape)
        beside = np.sqrt(
            np.multiply(used, scale, out=np.zeros_like(used), where=used > 0)
        )  # infinite only where it is used
        (adjusted, *_, error, moved), without = hidden, np.stack(on_u)
        return cls(adjusted, hidden[1:3], error, beside, moved, fold, without[:, 0], without[:, 1:])

    @property
    def _weight(self) -> Array:
        return np.asarray(1 / np.maximum(self.error**2 + self.beside**2, 1e-300))

    def normal_equations(self, exposure: int) -> tuple[Array, Array]:
        """What hidden effects say about the shares: precision (2, 2), and precision times estimate (2,)."""
        d, w = self.changes[:, :, exposure], self._weight[:, exposure]
        return np.asarray((d * w) @ d.T), np.asarray(-(d * w) @ self.adjusted[:, exposure])

    def support(self, shares: Array, exposure: int) -> tuple[float, float]:
        """Of the change that the shares (2,) make, times its size: precision, and precision times estimate."""
        precision, right = self.normal_equations(exposure)
        along = shares / max(float(shares.sum()), 1e-300)
        return float(along @ precision @ along), float(along @ right)

    def effects(self, shares: Array) -> tuple[Array, Array]:
        """Effects and standard errors, (d_v, q), at the chosen shares (2, q)."""
        value = self.adjusted + np.sum(shares[:, None] * self.changes, axis=0)
        return value, np.sqrt(self.error**2 + self.beside**2 + (shares[0] * self.moved) ** 2)

    def effects_without(self, shares: Array) -> Array:
        """(folds, p, q): the effects on U without each fold."""
        return np.asarray(self.u_adjusted + np.sum(shares[:, None] * self.u_changes, axis=1))


def _hidden_errors(
    seen: Slopes, correction: Correction, t: Array, solution: PairSolution
) -> tuple[Array, Array, Array]:
    """Standard error (held, q) of the analysis of covariance; what hidden controls have in common with the others beside the
    shared part, (held,), in units of their variances; how much that moves their effects, (q,).

    Cov(w, y_i) for i > r ought to be zero: their mean square, less noise, is taken to be as large within the rank.
    """
    found, r = solution.canonical, solution.rank
    k, c = seen.with_v @ found.y_from_v.T, found.y_from_v @ seen.v
    own = np.maximum(seen.var_u - np.sum(k**2, axis=1), 1e-12 * seen.var_u)  # variance given the other controls
    design = noise_of(seen, solution) + np.sum(c**2, axis=0) / found.n
    used = np.sum((correction.slopes + correction.lift @ t @ correction.right) ** 2, axis=0)  # |R^-1 c|^2
    beyond = np.sum(k[:, r:] ** 2, axis=1) / max(k.shape[1] - r, 1)
    return np.sqrt(own[:, None] * design), beyond / np.maximum(seen.var_u, 1e-300) - 1 / found.n, used


def _pooled(common: Array, coordinates: Array) -> Array:
    """What controls have in common, (d_v,), each seen in so many coordinates: few tell little, and are drawn to the mean."""
    if not coordinates.any():
        return np.full(len(common), np.inf)
    together = coordinates @ common / coordinates.sum()
    return np.asarray(np.maximum((coordinates * common + POOLING * together) / (coordinates + POOLING), 0.0))


def noise_of(slopes: Slopes, solution: PairSolution) -> Array:
    """(q,) variance of the slope of a column with unit variance."""
    return np.asarray(np.diag(slopes.noise) * design_effect(solution))


def design_effect(solution: PairSolution) -> float:
    """Rows, less those that covariates took, over independent rows."""
    return float((solution.n - solution.lost) / solution.canonical.n)


def chosen_shares(expected: Array, trust: float, hidden: HiddenControls | None) -> Array:
    """rho (2, q), given what either answer deserves by itself, `expected` (2, q), and the trust g in the joint factors."""
    out = np.empty_like(expected)
    prior = np.diag([PRIOR_SD**-2, (PRIOR_SD * max(trust, 1e-6)) ** -2])
    for i, mean in enumerate(expected.T):
        precision, right = (np.zeros((2, 2)), np.zeros(2)) if hidden is None else hidden.normal_equations(i)
        out[:, i] = _least_in_triangle(prior + precision, prior @ mean + right)
    return out


def _least_in_triangle(h: Array, g: Array) -> Array:
    """Minimum of x'h x / 2 - g'x over x_1, x_2 >= 0, x_1 + x_2 <= 1, h positive definite: inside, or on the best edge."""
    inside = np.asarray(np.linalg.solve(h, g))
    if (inside >= 0).all() and inside.sum() <= 1:
        return inside
    edges = []
    for corner, along in (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((1, 0), (-1, 1))):
        at, to = np.array(corner, dtype=float), np.array(along, dtype=float)
        edges.append(at + np.clip(to @ (g - h @ at) / (to @ h @ to), 0.0, 1.0) * to)
    return min(edges, key=lambda x: float(x @ h @ x / 2 - g @ x))


@storable
@dataclass(frozen=True)
class PairEffects:
    """Effects of q exposures on p columns, (p, q) each unless said.

    value : adjusted + shares . changes; error : its standard error.
    changes (2, p, q) : from the analysis of covariance to T, and to the joint factors; shares (2, q) : how much of each is
    made; expected (2, q) : how much either deserves by itself.
    ends, ends_error : lower and upper end of the identified set, and their standard errors.
    scale (p,) : standard deviations of the columns given exposures; left (p, r), right (r, q), t (r, r) : see Correction.
    """

    value: Array
    naive: Array
    adjusted: Array
    changes: Array
    error: Array
    shares: Array
    expected: Array
    ends: tuple[Array, Array]
    ends_error: tuple[Array, Array]
    degrees: int
    scale: Array
    left: Array
    right: Array
    t: Array

    @classmethod
    def of(
        cls, products: Products, solution: PairSolution, factors: JointFactors, hidden: HiddenControls | None
    ) -> PairEffects:
        """hidden : None where there are too few controls to hide some."""
        slopes, found = products.slopes(), solution.canonical
        basis, t = Basis.of(solution.pair), posterior_mean(solution)
        setting = (found.y_from_v, found.n, design_effect(solution))
        correction = Correction.of(slopes, basis, *setting)
        scale = np.sqrt(np.maximum(slopes.var_u, 1e-300))
        own, trust = own_trust(correction, solution, scale), factors.trust
        if hidden is None and factors.loadings.shape[1] < solution.rank:
            trust = 0.0  # nobody is there to say whether fewer factors than shared directions will do
        expected = np.stack([own * (1 - trust / 2), trust * (1 - own / 2)]) * (solution.rank > 0)
        shares = chosen_shares(expected, trust, hidden) * (solution.rank > 0)
        everyone, noise = np.arange(len(slopes.v)), noise_of(slopes, solution)
        _, penalty = factors.slopes_of_factors(slopes.both, noise, everyone)
        p_values = np.array([test.p_value for test in outside_test(slopes, solution)])
        adjusting = np.maximum(0.0, 1 - p_values / GOES_WITH) if solution.rank == 0 else np.ones(len(p_values))

        def changes(slopes: Slopes, correction: Correction, t: Array, factors: JointFactors) -> Array:
            gamma, _ = factors.slopes_of_factors(slopes.both, noise, everyone, penalty)
            by_factors = factors.effects(slopes.both, gamma)[: len(slopes.u)]
            return np.stack([correction.at(t), by_factors - correction.adjusted])

        def value(slopes: Slopes, correction: Correction, changes: Array) -> Array:
            base = slopes.u + adjusting * (correction.adjusted - slopes.u)
            return np.asarray(base + np.sum(shares[:, None] * changes, axis=0))

        bases, moved, spread = replicated(solution, basis, len(products.n))
        values, ends = [], []
        for left, at, by in zip(products.without_each_block(), bases, moved, strict=True):
            one = Correction.of(left, at, *setting)
            refitted = factors.refitted(left) if shares[1].any() else factors
            values.append(value(left, one, changes(left, one, t + by, refitted)))
            ends.append(np.stack(identified_ends(left, at, one.adjusted)))
        variance = jackknife_variance(np.stack(values)) + shares[0] ** 2 * np.sum(correction.at(spread) ** 2, axis=0)
        low_error, high_error = np.sqrt(jackknife_variance(np.stack(ends)))
        made = changes(slopes, correction, t, factors)
        return cls(
            value=value(slopes, correction, made),
            naive=slopes.u,
            adjusted=correction.adjusted,
            changes=made,
            error=np.sqrt(variance),
            shares=shares,
            expected=expected,
            ends=identified_ends(slopes, basis, correction.adjusted),
            ends_error=(low_error, high_error),
            degrees=len(values) - 1,
            scale=scale,
            left=correction.left,
            right=correction.right,
            t=t,
        )


def effects_of(slopes: Slopes, solution: PairSolution, effects: PairEffects) -> Array:
    """Effects (p, q) of another fit of the same views, with the same shares of its own changes."""
    found, t = solution.canonical, posterior_mean(solution)
    correction = Correction.of(slopes, Basis.of(solution.pair), found.y_from_v, found.n, design_effect(solution))
    by_factors = effects.adjusted + effects.changes[1]
    changes = correction.at(t), by_factors - correction.adjusted
    return np.asarray(correction.adjusted + effects.shares[0] * changes[0] + effects.shares[1] * changes[1])


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
    found = solution.canonical
    return _outside(found.correlations, found.y_from_v @ slopes.v, slopes, solution)


def left_out_tests(slopes: Slopes, solution: PairSolution) -> list[list[TestResult]]:
    """The same without each control in turn, (d_v, q); none where V was reduced, or holds one control or very many.

    If the exposure changes one control only, the test of the others has its size without that one, and power without any
    other: the controls without which it does not reject are a confidence set for the one that is changed. With d_v = r + 1
    controls nothing is left to test, and any of them may be it.
    """
    found, every = solution.canonical, np.arange(len(slopes.v))
    if not 1 < len(every) <= MOST_LEFT_OUT or found.rank_v < len(whitening(slopes.cov_v)[0]):
        return []
    shared = len(found.correlations)
    with_x = (found.v_from_y[:, :shared] * found.correlations).T  # Cov(x, v), of the coordinates that have a partner
    tests = []
    for gone in every:
        rest = np.delete(every, gone)
        white, _ = whitening(slopes.cov_v[np.ix_(rest, rest)])
        turn, d, _ = np.linalg.svd(white @ with_x[:, rest].T)
        tests.append(_outside(d, turn.T @ (white @ slopes.v[rest]), slopes, solution))
    return tests


def _outside(correlations: Array, c: Array, slopes: Slopes, solution: PairSolution) -> list[TestResult]:
    """The test, given canonical correlations and the slopes c (k, q) of the k canonical coordinates of the controls."""
    found, rank, k, n = solution.canonical, solution.rank, len(c), solution.canonical.n
    d = np.zeros(k)
    d[: min(k, len(correlations))] = np.minimum(correlations[:k], LARGEST)
    own = 1 / np.sqrt(1 - d**2)  # whitens y given x
    alone = np.sort((d * own) ** 2)[::-1]
    tests = []
    for slope, noise in zip(c.T, noise_of(slopes, solution), strict=True):
        seen = slope * own / np.sqrt(noise * n)
        both = np.linalg.eigvalsh(np.diag((d * own) ** 2) + np.outer(seen, seen))[::-1]
        gain = float(np.sum(np.log1p(np.maximum(both[rank:], 0.0))) - np.sum(np.log1p(alone[rank:])))
        statistic = max(n - (k + found.rank_u + 2) / 2, 1.0) * max(gain, 0.0)
        p = float(stats.chi2.sf(statistic, k - rank)) if k > rank else 1.0
        tests.append(TestResult(statistic, (max(k - rank, 0),), p))
    return tests
