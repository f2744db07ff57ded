"""What a fit says about itself, and the tests it rests on.

Specification tests: is the model U = S1 + S2, V = A S2 + S3 with independent parts compatible with the data?

* ``outcome_test``: with an outcome that depends on S1 only, Y is independent of V.
* ``leftover_test``: after ``r`` shared directions nothing may be correlated (low rank).
* ``overidentification_test``: without an outcome; cross-cumulants must lie in the row space of ``[S | D]``.
* ``check_known_mixing``: whether the data can have come from an A that is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.contrastive.classes import HiddenClasses
from richcomponents.contrastive.evidence import pair_mean
from richcomponents.contrastive.intervals import BlockEvidence, replicate
from richcomponents.contrastive.next_steps import (
    controls_needed,
    fewest_for_strong,
    rounded,
    samples_for_strong,
    samples_to_see,
    smallest_seen,
)
from richcomponents.contrastive.own_errors import IndependentErrors, against_noise, span
from richcomponents.contrastive.pair import IdentifiedSet, Pair, energy_and_score, near_pair
from richcomponents.contrastive.posterior import Logistic, Prior, logit, project, projector, symmetric_matrices
from richcomponents.errors import DataError
from richcomponents.learning.outcome import Outcome
from richcomponents.learning.solvers import minimise
from richcomponents.moments import Moments
from richcomponents.notebook import Summary
from richcomponents.pair.canonical import (
    Canonical,
    canonical,
    canonical_of,
    leftover_statistic,
    remaining_p_value,
    resolve_rank,
)
from richcomponents.storage import storable
from richcomponents.text import p_value, page


@storable
@dataclass(frozen=True)
class TestResult:
    """A test statistic, its degrees of freedom (when it has any) and the p-value.

    >>> print(TestResult(120.5, (3, 96), 0.0))
    statistic 120.5, degrees of freedom 3, 96, p < 1e-16
    """

    statistic: float
    df: tuple[float, ...]
    p_value: float

    @property
    def told(self) -> str:
        """The p-value with its letter: "p = 0.03"."""
        return p_value(self.p_value)

    def __str__(self) -> str:
        df = f", degrees of freedom {', '.join(f'{one:.4g}' for one in self.df)}" if self.df else ""
        return f"statistic {self.statistic:.4g}{df}, {self.told}"


def outcome_test(outcome: Outcome, outside: IntArray, lost: float = 0.0, to: Array | None = None) -> TestResult:
    """F-test of the regression of Y on the columns `outside` of a component: all coefficients zero; to : (k, columns), on these
    combinations of them.

    Under the model Y and V are independent, not only uncorrelated, so that the classical test needs no robust covariance when
    rows are independent. Rows of a group are not: then n is the number of independent rows that they are worth, and its
    own noise takes degrees of freedom. lost : rows spent on covariates. Without columns there is nothing to test: p = 1.
    """
    y, w, n, v = outcome.y, outcome.weight, outcome.n, outcome.rows[:, outside]
    if not (len(outside) if to is None else len(to)):
        return TestResult(float("nan"), (0, n - 1), 1.0)
    turn = None if to is None else to.T
    if to is None and v.shape[1] > len(v):
        turn = np.linalg.qr(v.T)[0]  # the same variates in as many columns as rows
    v = v if turn is None else v @ turn
    weighted = v * w[:, None]
    with_v, variance = weighted.T @ y / n, float(w @ y**2) / n
    found = canonical(np.array([[variance]]), with_v[None], weighted.T @ v / n, n - lost)
    k = found.rank_v
    if k and found.rank_u:
        to_y = np.zeros((k, outcome.rows.shape[1]))
        to_y[:, outside] = found.y_from_v if turn is None else found.y_from_v @ turn.T
        dependence = outcome.dependence(found.x_from_u, to_y, found.correlations)
        found = found if dependence is None else found.with_dependence(dependence)
    df: tuple[float, float] = (k, found.n - k - 1)
    if df[1] <= 0 or not k:
        return TestResult(float("nan"), df, 1.0)
    share = min(float(np.sum((found.y_from_v @ with_v) ** 2)) / variance, 1 - 1e-12) if found.rank_u else 0.0
    f = share / (1 - share) * df[1] / k
    if found.dependence is not None:
        _, noise, spread = found.dependence.at(0)
        df = (k / spread, 1 / (1 / df[1] + 1 / noise))
    return TestResult(f, df, float(stats.f.sf(f, *df)))


def leftover_test(found: Canonical, rank: int) -> TestResult:
    """Bartlett-Lawley test that the canonical correlations after the first ``rank`` are zero."""
    df = (found.rank_u - rank) * (found.rank_v - rank)
    if df == 0:
        return TestResult(0.0, (0,), 1.0)
    return TestResult(leftover_statistic(found, rank)[0], (df,), remaining_p_value(found, rank))


def relaxed(ev: BlockEvidence, tau: float = 3.0) -> BlockEvidence:
    """The same evidence with T at the maximum of the energy under a loose pull (sd ``tau``) towards the fit.

    Shrinkage leaves signal outside the fitted row space, which a test must not take for misspecification.  The prior
    is kept: it bounds the influence of a block on T where the data say little.
    """
    r = len(ev.t)
    ones = np.ones(len(ev.gram))
    basis = near_pair(ev.canonical, len(ev.t), ev.moments.covariance(ones))
    gram, beside = pair_mean(ev.gram, ones), ev.beside(basis)
    loose = Prior.of_free(np.zeros((r, 0)), tau)
    x0 = logit(ev.t)[np.tril_indices(r)]

    def loss(x: Array) -> tuple[float, Array]:
        link = Logistic.at(symmetric_matrices(x))
        pull = loose.precision(x - x0)
        value, slope = energy_and_score(basis, gram, link, beside)
        return 0.5 * float((x - x0) @ pull) - float(value), pull - slope

    x = minimise(loss, x0, maxiter=200)
    return replace(ev, t=Logistic.at(symmetric_matrices(x)).value)


def residual_maker(basis: Pair, t: Array) -> Array:
    """Operator E (..., 2r, 2r) with ``M E`` = the part of the cumulants ``M`` outside the row space of ``[S | cross]``.

    ``M`` in the full sample's leading ``(x, y)``; "outside" is orthogonal in the metric of the basis' own covariance.
    """
    inside = projector(t, basis.delta)
    outside = np.eye(inside.shape[-1]) - inside  # orthogonal projector in whitened coordinates
    lift = np.swapaxes(basis.whiten @ basis.from_full, -1, -2)  # w' = z' lift
    return np.asarray(lift @ outside @ np.linalg.inv(lift))


def overidentification_test(ev: BlockEvidence, grams: Array, tau: float = 3.0, flips: int = 1999) -> TestResult:
    """Energy of the cumulants outside the fitted row space, with a sign-flip p-value.

    ``grams``: (orders, B, B, 2r, 2r), one Gram array per order, in the full sample's leading ``(x, y)``.
    Block ``a`` contributes ``psi_a = M_a E + mean(M) dE_a``: its own cumulants outside the row space and, to first order,
    its influence on that space through T and through the second moments.  Under the model the ``psi_a`` are independent with
    mean zero, so flipping their signs does not change the law of ``sum_{a != b} <psi_a, psi_b>``.
    """
    return flip_test(residual_inner_products(relaxed(ev, tau), grams), flips)


def residual_inner_products(ev: BlockEvidence, grams: Array) -> Array:
    """<psi_a, psi_b> per order, (orders, B, B), zero on the diagonal.

    Means over blocks leave out ``a`` and ``b`` (first correction) or all pairs of a block with itself (second): the squared
    noise of d^3 rows would swamp the signal there as it does in the plain Gram matrix.
    """
    blocks = grams.shape[1]
    rep = replicate(ev)
    metric = rep.basis.whiten.T
    e0 = residual_maker(rep.basis, ev.t) @ metric
    each = residual_maker(rep.bases, Logistic.at(rep.xs).value)
    influence = -(blocks - 1) * (each - each.mean(0)) @ metric
    off = 1 - np.eye(blocks)
    others = ((grams * off[:, :, None, None]).sum(2)[:, :, None] - grams) / (blocks - 2)
    overall = np.stack([np.tensordot(off / off.sum(), one, 2) for one in grams])
    first = np.tensordot(grams, e0 @ e0.T, 2)
    cross = np.einsum("mabij,bij->mab", others, e0 @ np.swapaxes(influence, 1, 2))
    flat = influence.reshape(blocks, -1)
    both = np.stack([(one @ influence).reshape(blocks, -1) @ flat.T for one in overall])
    inner = first + cross + np.swapaxes(cross, 1, 2) + both
    out: Array = (inner + np.swapaxes(inner, 1, 2)) / 2 * off
    return out


def flip_test(inner: Array, flips: int = 1999, seed: int = 0) -> TestResult:
    """One-sided sign-flip test that the blocks' contributions have mean zero; ``inner`` (orders, B, B), zero diagonals.

    The statistic is the largest of the orders' sums and of their total, each over its root mean square under flips: whichever
    order carries the violation may show it.  The sums of squares do not change under flips, so the scaling is exact.
    """
    size = np.sqrt(2 * (inner**2).sum((1, 2)))
    k = inner[size > 0] / size[size > 0, None, None]
    if len(k) == 0:
        return TestResult(0.0, (), 1.0)
    if len(k) > 1:
        total = k.sum(0)
        k = np.concatenate([k, (total / np.sqrt(2 * (total**2).sum()))[None]])
    s = np.random.default_rng(seed).choice([-1.0, 1.0], (flips, k.shape[1]))
    null = np.max([np.sum(s @ one * s, axis=1) for one in k], axis=0)
    stat = float(k.sum((1, 2)).max())
    return TestResult(stat, (), (1 + int((null >= stat).sum())) / (1 + flips))


STEPS = 400
EDGE = 1e-6
ABSURD = 1e-6
"""p-value below which an A that explains nothing is refused."""

LARGEST = 20_000_000
"""Numbers in the test's design, beyond which A is not tested."""


def check_known_mixing(second: Moments, n_u: int, rank: object, mixing: Array) -> TestResult | None:
    """Whether the data can have come from A (d_v, d_u); second : of the columns (U, V).

    DataError where A explains nothing at all (its sign, its units, or its columns are not those of the data). None where there
    is nothing to test: no shared direction, hardly any blocks, or very many columns.
    """
    found = canonical_of(second, n_u)
    r, used = resolve_rank(rank, found), second.block_sizes > 0
    unknowns = r * (r + 1) // 2 + r * (found.rank_u - r)
    if not r or used.sum() < 3 or unknowns * found.rank_u * max(found.rank_u, found.rank_v) > LARGEST:
        return None
    blocks = second.block_covariances()[used][:, :n_u, n_u:]
    cross = found.x_from_u @ blocks @ found.y_from_v.T
    result, explained = mixing_test(found, r, mixing, cross, second.block_sizes[used].astype(np.float64))
    if explained <= 0 and result.p_value < ABSURD and not second.dependent:
        raise DataError(
            "the known A contradicts the data: with no covariance of a shared part does it explain any of Cov(U, V). "
            "Check its sign, the units of the columns, and that its rows follow the columns of V and its columns those of U; "
            "or leave out A="
        )
    return result


def mixing_test(canonical: Canonical, rank: int, mixing: Array, cross: Array, count: Array) -> tuple[TestResult, float]:
    """Test of Cov(U, V) = S A' for some admissible covariance S of S2, and the share of Cov(U, V) that the best S explains.

    mixing : A (d_v, d_u); cross : Cov(x, y) of each block, (B, rank_u, rank_v), in the coordinates of `canonical`; count :
    (B,), rows of the blocks.

    S = [[S11, S12], [S21, S21 S11^-1 S12]] has rank r; admissible is D^2 <= S11 <= I on the shared coordinates. (S12 is small,
    not zero: the shared directions of the sample are not quite those of S2.) S minimises the misfit D - S A_c' in units of its
    Gaussian noise. What it leaves, in the directions that no admissible change of S can reach, is noise if A is right; the
    blocks tell how large that noise is and how many directions it has (Satterthwaite's degrees of freedom). Where S is at
    an end of its range it counts as not free. A share below zero: every admissible S is worse than no shared part.
    """
    r, (blocks, p, q) = rank, cross.shape
    D = np.zeros((p, q))
    np.fill_diagonal(D, canonical.correlations)
    inner = (canonical.y_from_v @ mixing @ canonical.u_from_x).T  # A_c' (p, q)
    low = canonical.correlations[:r] ** 2
    h = np.sqrt(1 - low)
    weigh = _gaussian_weights(D)
    rows, cols = np.tril_indices(r)
    basis = np.zeros((len(rows), r, r))
    basis[np.arange(len(rows)), rows, cols] = basis[np.arange(len(rows)), cols, rows] = np.where(
        rows == cols, 1, 0.5**0.5
    )
    outside = np.zeros((r * (p - r), p, p))
    index, i, j = np.arange(len(outside)), *np.divmod(np.arange(len(outside)), max(p - r, 1))
    outside[index, i, r + j] = outside[index, r + j, i] = 1.0

    def image(changes: Array) -> Array:
        """Changes (m, r, r) of T -> what they do to S A_c', weighed (m, p q)."""
        moved = np.zeros((len(changes), p, q))
        moved[:, :r] = (h[:, None] * changes * h) @ inner[:r]
        return weigh(moved).reshape(len(changes), p * q)

    of_outside = weigh(outside @ inner).reshape(len(outside), p * q)
    design = np.vstack([image(basis), of_outside])
    start = D.copy()
    start[:r] -= low[:, None] * inner[:r]
    lower, found = np.zeros((p - r, p - r)), []
    for _ in range(2):  # S22 is of second order: once S12 is known, and where it helps (chance directions make it huge)
        start[r:] = D[r:] - lower @ inner[r:]
        target = weigh(start[None]).ravel()
        t, beyond = _best_admissible(design, target, basis)
        found.append((target - np.concatenate([np.tensordot(basis, t, 2), beyond]) @ design, t))
        S12 = beyond.reshape(r, p - r)
        lower = S12.T @ np.linalg.solve(np.diag(low) + h[:, None] * t * h, S12)
    left, t = min(found, key=lambda one: float(one[0] @ one[0]))
    values, vectors = np.linalg.eigh(t)
    at = np.where(values < EDGE, 0, np.where(values > 1 - EDGE, 1, 2))
    free = image((vectors @ basis @ vectors.T)[(at[rows] != at[cols]) | (at[rows] == 2)])
    reach = span(np.vstack([free, of_outside]))
    left = left - reach.T @ (reach @ left)
    own = weigh(cross - np.average(cross, axis=0, weights=count)).reshape(blocks, -1)
    own = (own - (own @ reach.T) @ reach) * (count / count.sum())[:, None]
    explained = 1 - float(left @ left) / float(np.sum(weigh(D[None]) ** 2))
    return TestResult(*against_noise(left, own, left.size - len(reach))), explained


def _gaussian_weights(D: Array) -> Callable[[Array], Array]:
    """(..., p, q) errors of Cov(x, y) -> errors of equal variance: Cov(e_ij, e_kl) = d_ik d_jl + D_il D_kj, in 2 x 2 blocks."""
    r = min(D.shape)
    d = np.diag(D)
    pair = np.multiply.outer(d, d)

    def weigh(errors: Array) -> Array:
        out = np.array(errors, dtype=np.float64)
        square = out[..., :r, :r]
        mirror = np.swapaxes(square, -1, -2)
        # e_ij + e_ji has variance 2 (1 + D_i D_j), e_ij - e_ji has 2 (1 - D_i D_j)
        out[..., :r, :r] = (square + mirror) / (2 * np.sqrt(1 + pair)) + (square - mirror) / (2 * np.sqrt(1 - pair))
        return out

    return weigh


def _best_admissible(design: Array, target: Array, basis: Array) -> tuple[Array, Array]:
    """argmin |target - (t, free) @ design|^2 over 0 <= T = sum_m t_m basis_m <= I: T and the free numbers.

    By alternating directions (ADMM): a ridge regression, a projection, and the difference remembered.
    """
    m = len(basis)
    values, vectors = np.linalg.eigh(design @ design.T)
    top = max(float(values[-1]), 1e-300)
    values, cross = np.maximum(values / top, 0.0), design @ target / top
    rate = float(np.sqrt(np.clip(values[values > 1e-8].min(initial=1.0), 1e-6, 1.0)))
    solve = (vectors / (values + rate)) @ vectors.T
    kept, slack = np.zeros(len(design)), np.zeros(len(design))
    for _ in range(STEPS):
        found = solve @ (cross + rate * (kept - slack))
        before, kept = kept, found + slack
        kept[:m] = np.tensordot(basis, project(np.tensordot(kept[:m], basis, 1)), 2)
        slack = slack + found - kept
        if max(np.abs(kept - before).max(), np.abs(kept - found).max()) < 1e-9 * max(1.0, np.abs(kept).max()):
            break
    return np.tensordot(kept[:m], basis, 1), kept[m:]


_MUCH_LEFT = 0.7

SUSPICIOUS = 0.001
"""p-value from which a fit warns by itself."""

DOUBTFUL = 0.01
"""p-value from which diagnostics mention a test."""

ADVICE = {
    "strong": "The shared part is well identified; A and Cov(S1) are estimated from the data.",
    "classes only": "Beside the hidden classes, which are removed, the views share nothing that can be seen.",
    "weak": "The higher orders say little about A: the estimate is shrunk towards residualising (adjusting for V).",
    "not identified": (
        "The higher orders say nothing reliable about A (a Gaussian shared part looks like this): coefficients equal "
        "those of residualising (adjusting for V). The identified interval of Cov(S1) still holds."
    ),
    "model fails": (
        "The model fails: the cross-cumulants do not have the structure of U = S1 + S2, V = A S2 + S3, and ask for more of "
        "the shared part than there is of U (a shared part that enters V otherwise than linearly looks like this): "
        "coefficients equal those of residualising (adjusting for V). Take logarithms or ranks of skewed columns, or leave "
        "out those that saturate."
    ),
    "nothing shared": "The views are taken to share nothing (no correlation was found, or rank=0): U is S1.",
}
"""What each verdict means, in words."""


def contradicted(test: TestResult) -> str:
    """What a test of the known A says, in words."""
    return (
        f"The known A does not fit the data ({test.told}): no admissible covariance of the shared part gives the "
        "covariance of U and V with it. Check its sign, units and the order of columns, or leave out A=."
    )


def misfit(test: TestResult) -> str:
    """What a test of over-identification that rejects says, in words."""
    return (
        "The cross-cumulants do not have the structure of U = S1 + S2, V = A S2 + S3 with independent parts "
        f"({test.told}): something else is shared, or the parts depend on each other. Labs that differ in "
        "spread as well as in means look like this, and coefficients suffered little from it where it was tried."
    )


@storable
@dataclass(frozen=True, repr=False)
class Diagnostics:
    """Numbers behind the verdict.

    n, d_u, d_v : sizes. canonical_correlations : all of them, decreasing.
    rank : shared directions used; rank_p_values : p-value of "no more than k shared directions", k = 0, 1, ...
    verdict : "strong"; "weak" (little evidence, shrunk towards residualising, or cross-cumulants that contradict the model);
        "not identified" or "model fails" (both residualising); "nothing shared", "known mixing" or "paper".
    strength : evidence above residualising, in standard errors; gain : the same in nats on held-out blocks;
    gate : 0 (coefficients of residualising) to 1.
    tau : the shrinkage chosen; order_weights : of orders three and four.
    identified : the identified set of Cov(S1), any distribution; identified_low, identified_high : its ends, entry by entry.
    condition_A : ratio of the largest to the smallest non-zero singular value of A on the range of the shared part.
    overidentification : test that cross-cumulants have the structure of the model; None when they do not identify it.
    leftover : test that nothing is correlated beyond the chosen rank.
    known_mixing : test of a known A, Cov(U, V) = Cov(S2) A'; None when A was estimated (or the views too wide to test it).
    independent_rows : how many independent rows the samples are worth: less than n with covariates, groups or weights.
    largest_rank : the largest number of shared directions (of a canonical correlation of .3 or more) that the test cannot
        exclude; rank itself where that was given. Where it is above rank, intervals allow for it.
    errors : whether the own parts of columns are independent, and what of it was used; None where that was not asked.
    searched_u, searched_v : in how many principal components of a view with too many columns for its samples the shared
        directions were looked for; None where all columns were searched.
    classes : hidden classes that were removed before all else, so that correlations and rank are those of what they leave; None
        without them. class_note : why they were not looked for, where they were asked for.
    """

    n: int
    d_u: int
    d_v: int
    canonical_correlations: Array
    rank: int
    rank_p_values: Array
    verdict: str
    strength: float
    gain: float
    gate: float
    tau: float
    order_weights: Array
    identified: IdentifiedSet
    condition_A: float
    overidentification: TestResult | None
    leftover: TestResult
    independent_rows: float
    largest_rank: int
    known_mixing: TestResult | None = None
    errors: IndependentErrors | None = None
    searched_u: int | None = None
    searched_v: int | None = None
    classes: HiddenClasses | None = None
    class_note: str = ""

    @property
    def identified_low(self) -> Array:
        return self.identified.ends()[0]

    @property
    def identified_high(self) -> Array:
        return self.identified.ends()[1]

    @property
    def leftover_correlation(self) -> float:
        """The first canonical correlation beyond the rank (0 at full rank)."""
        beyond = self.canonical_correlations[self.rank :]
        return float(beyond[0]) if len(beyond) else 0.0

    @property
    def _samples(self) -> str:
        worth = round(self.independent_rows)
        return f"{self.n} samples" + (f" (worth {worth} independent ones)" if worth != self.n else "")

    @property
    def _contradicted(self) -> bool:
        """Whether the verdict is weak for what the cross-cumulants contradict."""
        test = self.overidentification
        return self.verdict == "weak" and test is not None and test.p_value < SUSPICIOUS

    def next_steps(self) -> list[str]:
        """What would help, in numbers of samples and controls (see next_steps.py); empty where nothing is known to."""
        n, r = self.n, self.rank
        if self.verdict == "strong":
            return [f"Intervals half as wide take about n = {rounded(4 * n)} samples."]
        if self.verdict == "nothing shared" and len(self.rank_p_values):
            seen = smallest_seen(self.independent_rows, self.d_u, self.d_v)
            if seen >= 1 or self.searched_u is not None or self.searched_v is not None:
                return []
            more = samples_to_see(seen / 2, self.d_u, self.d_v) * n / self.independent_rows
            return [
                f"These samples would have shown a shared part with a canonical correlation above {seen:.2f}; to see one half "
                f"as strong, collect n = {rounded(more)} samples."
            ]
        if self.verdict not in ("weak", "not identified") or self._contradicted or not r:
            return []
        left = float(np.mean(1 - self.canonical_correlations[:r] ** 2))
        controls = (
            f"{rounded(controls_needed(self.canonical_correlations[:r], self.d_v))} more controls as good as these {self.d_v}: "
            f"adjusting for the controls leaves up to {left:.0%} of the shared part in place, and they would halve that"
        )
        needed = samples_for_strong(n, self.strength, self.gain)
        if self.verdict == "weak" and np.isfinite(needed) and needed > n:
            even = f"For an even chance of a strong verdict collect n = {rounded(needed)} samples like these"
            return [f"{even}, or {controls}."]
        fewest = rounded(fewest_for_strong(n, self.strength))
        return [
            f"If the shared part is skewed or comes in groups (labs, batches), at least n = {fewest} samples are needed to "
            "tell; if it is Gaussian, no number of samples is enough.",
            f"What helps in any case: {controls}.",
        ]

    def advice(self) -> list[str]:
        """Sentences for the user."""
        verdict = "classes only" if self.verdict == "strong" and not self.rank else self.verdict
        out = [ADVICE[verdict]] if verdict in ADVICE and not self._contradicted else []
        if self.largest_rank > self.rank:
            out.append(
                f"The test cannot tell {self.rank} from {self.largest_rank} shared directions with {self._samples}: intervals "
                "of A and of the covariances allow for them. Use more samples or fewer columns, or give rank= if it is known."
            )
        wide = [
            f"{k} principal components of the {d} columns of {view}"
            for view, k, d in (("U", self.searched_u, self.d_u), ("V", self.searched_v, self.d_v))
            if k is not None
        ]
        if wide:
            out.append(
                f"Too many columns for {self.n} samples: shared directions were looked for in {' and '.join(wide)}; what was "
                "found there is removed from every column, and coefficients use every column."
            )
        if self.leftover_correlation > _MUCH_LEFT:
            out.append(
                f"A canonical correlation of {self.leftover_correlation:.2f} is left beyond rank {self.rank}: the views "
                "share more than the model can remove. Check that V holds controls only, or give rank=."
            )
        elif self.rank and self.leftover.p_value < DOUBTFUL:
            out.append(f"Correlation is left beyond rank {self.rank} ({self.leftover.told}): the views may share more.")
        test = self.overidentification
        if test is not None and test.p_value < DOUBTFUL and self.verdict != "model fails":
            out.append(misfit(test))
        if self.known_mixing is not None and self.known_mixing.p_value < DOUBTFUL:
            out.append(contradicted(self.known_mixing))
        if wide and self.verdict == "known mixing":
            out.append("The known A was not tested: there are too many columns for these samples.")
        return out

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def summary(self) -> Summary:
        """A page of text; in a notebook the verdict and what it means, and the numbers behind a fold."""
        shown = ", ".join(f"{c:.2f}" for c in self.canonical_correlations[:10])
        more = " ..." if len(self.canonical_correlations) > 10 else ""
        lines = [
            f"Contrastive RCA: {self._samples}, U has {self.d_u} columns, V has {self.d_v}",
            f"  canonical correlations   {shown}{more}",
            f"  shared directions        {self.rank} of {len(self.canonical_correlations)}"
            + (f" ({self.largest_rank} cannot be excluded)" if self.largest_rank > self.rank else ""),
            f"  verdict                  {self.verdict}",
        ]
        if np.isfinite(self.strength) and self.rank:
            lines.append(
                f"  evidence                 {self.strength:.1f} standard errors above residualising; "
                f"held-out gain {self.gain:.1f} nats"
            )
            lines.append(f"  shrinkage                tau = {self.tau:g}, gate = {self.gate:.2f}")
        if self.errors is not None:
            lines.append(f"  errors of the columns    {self.errors.words()}")
        if self.classes is not None or self.class_note:
            told = self.class_note if self.classes is None else self.classes.words()
            lines.append(f"  hidden classes           {told}")
        if self.rank:
            lines.append(f"  condition of A           {self.condition_A:.1f}")
        if self.largest_rank:
            low, high = self.identified.variances()
            share = (high - low) / np.maximum(high, 1e-300)
            lines.append(f"  second order alone       leaves {np.median(share):.0%} of Var(S1) open (median column)")
        if self.overidentification is not None:
            lines.append(f"  over-identification      {self.overidentification.told}")
        if self.known_mixing is not None:
            lines.append(f"  the known A fits         {self.known_mixing.told}")
        if self.rank < len(self.canonical_correlations):
            lines.append(
                f"  left beyond the rank     correlation {self.leftover_correlation:.2f}, {self.leftover.told}"
            )
        advice = [*self.advice(), *self.next_steps()]
        return Summary(
            page([*lines, *(f"  > {sentence}" for sentence in advice)]), verdict=self.verdict, says=[*advice, lines[0]]
        )
