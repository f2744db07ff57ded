"""An outcome beside the views: what coefficients and tests read of it, wherever its rows are, and what it has to do with V.

Of o = beta'S1 + gamma'S2 + delta'S3 + noise the coefficients on S1 are corrected (learning/coefficients) under one of two
assumptions:

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
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import least_squares, whitening
from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.learning.glm import LinearPredictor
from richcomponents.moments.data import AffineMap, Data, Dependence, Partial, RowUnits
from richcomponents.storage import storable
from richcomponents.text import counted, in_line

GOES_WITH = 0.05
"""p value of the test on the shared variates below which gamma is taken into account."""

WITNESSED = next(limit for limit, found in RULES["outcome"].below if found == Verdict.WEAK)
"""p value of the test on the other variates (on the shared ones, where there are no others) below which corrections are
believed less."""

CONTRADICTED = "The outcome contradicts the model"

ENOUGH = 1.5
"""With r shared variates, r / ENOUGH others are witnesses enough that an outcome goes with V through the shared part only."""


@dataclass(frozen=True)
class Outcome:
    """What is regressed on a component, and the rows it is regressed from.

    rows (m, p), y (m,) : centred, known covariates removed; weight (m,) : how often each row counts; block (m,) : the
    statistical block of each. Rows that are not in memory are a few others with the same second moments, block by block
    (`equivalent_rows`): whatever reads an outcome must count rows by their weights. free : the rows' number less what
    covariates took; known (m, q) : these, centred; partial : the regression of the views on them, or None, and coef (q,) that
    of y; mean : of y. units, data : of rows that depend on each other, in
    memory or elsewhere. log_odds : the linear predictor of a generalised linear model on the residual (log-odds, the
    log of a mean count, ...), to be calibrated instead of least squares.
    at (m,) : numbers of these rows in the table, where some were left out. on_v : what the outcome has to do with the other
    view, where that was tested.
    """

    rows: Array
    y: Array
    weight: Array
    block: IntArray
    free: float
    known: Array
    partial: Partial | None = None
    coef: Array | None = None
    mean: float = 0.0
    units: RowUnits = field(default_factory=RowUnits)
    data: Data | None = None
    log_odds: LinearPredictor | None = None
    at: IntArray | None = None
    on_v: OutcomeOnV | None = None

    def of(self, values: Array) -> Array:
        """Values of all rows of the table -> those of the rows that are here."""
        return values if self.at is None else values[self.at]

    def replaced(self, values: Array) -> Outcome:
        """The same rows with another outcome, values (m,)."""
        mean = float(np.average(values, weights=self.weight))
        left, coef = values - mean, None
        if self.covariates:
            coef = least_squares(self.known, left, self.weight)
            left = left - self.known @ coef
        return replace(self, y=left, coef=coef, mean=mean, data=None, on_v=None)

    def without(self, block: int) -> Outcome:
        """The rows outside of a block, y about its mean there."""
        keep = self.block != block
        taken = {name: getattr(self, name)[keep] for name in ("rows", "weight", "block", "known")}
        level, n = float(np.average(self.y[keep], weights=taken["weight"])), float(taken["weight"].sum())
        return replace(
            self,
            **taken,
            y=self.y[keep] - level,
            free=self.free * n / self.n,
            mean=self.mean + level,
            units=self.units.take(np.flatnonzero(keep)),
            data=None,
            at=np.flatnonzero(keep) if self.at is None else self.at[keep],
        )

    @property
    def covariates(self) -> int:
        """How many there are."""
        return int(self.known.shape[1])

    @property
    def n(self) -> float:
        """Rows, each as often as it counts."""
        return float(self.weight.sum())

    @cached_property
    def kept(self) -> Any:
        """(B, m): the rows without each block."""
        return np.stack([self.block != b for b in np.unique(self.block)])

    def covariances(self, a: Array, b: Array) -> Array:
        """Of columns a (m, k) and b (m, l) of these rows, (1 + B, k, l): of all rows, then without each block."""
        w, sums = self.weight, []
        for at in ~self.kept:
            sums.append((w[at].sum(), w[at] @ a[at], w[at] @ b[at], (a[at] * w[at][:, None]).T @ b[at]))
        each = [np.stack(one) for one in zip(*sums, strict=True)]
        whole = [one.sum(axis=0) for one in each]
        stacked = [np.concatenate([all_[None], all_ - one]) for all_, one in zip(whole, each, strict=True)]
        count, first, second, product = stacked[0][:, None], *stacked[1:]
        return np.asarray(product / count[..., None] - (first / count)[:, :, None] * (second / count)[:, None])

    @cached_property
    def with_rows(self) -> tuple[Array, Array]:
        """Cov(rows, y) (1 + B, p) and Var(y) (1 + B,), over `free` and the same share of it without each block."""
        y, share = self.y[:, None], self.n / self.free
        return self.covariances(self.rows, y)[..., 0] * share, self.covariances(y, y)[:, 0, 0] * share

    def dependence(self, to_x: Array, to_y: Array, correlations: Array) -> Dependence | None:
        """How the rows depend on each other: of x = y to_x', (1,), and z to_y', white; None where they do not."""
        if self.units.depend:
            z = np.column_stack([self.y[:, None] @ to_x.T, self.rows @ to_y.T])
            return self.units.dependence(z, correlations, 1)
        if self.data is None:
            return None
        p, q = self.rows.shape[1], self.covariates
        into = np.zeros((p + q + 1, p + 1))  # columns of views, covariates and outcome -> rows and y
        into[np.arange(p), np.arange(p)] = into[-1, -1] = 1.0
        if self.partial is not None and self.coef is not None:
            into[p:-1, :p], into[p:-1, p] = -self.partial.coefficients.T, -self.coef
            into[:, :p][:, self.partial.explained] = 0.0
        last = np.hstack([into[:, -1:] @ to_x.T, into[:, :p] @ to_y.T])
        return self.data.dependence(AffineMap(self.data.moments(2).mean, last), correlations, 1)


def outcome_test(outcome: Outcome, outside: IntArray, lost: float = 0.0, to: Array | None = None) -> Test:
    """F-test of the regression of Y on the columns `outside` of a component: all coefficients zero; to : (k, columns), on these
    combinations of them.

    Under the model Y and V are independent, not only uncorrelated, so that the classical test needs no robust covariance when
    rows are independent. Rows of a group are not: then n is the number of independent rows that they are worth, and its
    own noise takes degrees of freedom. lost : rows spent on covariates. Without columns there is nothing to test: p = 1.
    """
    y, w, n, v = outcome.y, outcome.weight, outcome.n, outcome.rows[:, outside]
    if not (len(outside) if to is None else len(to)):
        return Test("outcome", float("nan"), (0, n - 1), 1.0)
    turn = None if to is None else to.T
    if to is None and v.shape[1] > len(v):
        turn = np.linalg.qr(v.T)[0]  # the same variates in as many columns as rows
    v = v if turn is None else v @ turn
    weighted, variance = v * w[:, None], float(w @ y**2) / n
    white = whitening(weighted.T @ v / n)[0]
    with_white, rows, dependence = white @ (weighted.T @ y) / n, n - lost, None
    k, varies = len(white), variance > 0
    if k and varies:
        basis, size, sign = np.linalg.svd(with_white[:, None] / np.sqrt(variance))
        basis[:, 0] *= sign[0, 0]  # the first goes up with y
        to_y = np.zeros((k, outcome.rows.shape[1]))
        to_y[:, outside] = basis.T @ white if turn is None else basis.T @ white @ turn.T
        dependence = outcome.dependence(np.array([[variance**-0.5]]), to_y, np.minimum(size, 1.0))
        rows = rows if dependence is None else rows / float(dependence.effect[0])
    df: tuple[float, float] = (k, rows - k - 1)
    if df[1] <= 0 or not k:
        return Test("outcome", float("nan"), df, 1.0)
    share = min(float(with_white @ with_white) / variance, 1 - 1e-12) if varies else 0.0
    f = share / (1 - share) * df[1] / k
    if dependence is not None:
        _, noise, spread = dependence.at(0)
        df = (k / spread, 1 / (1 / df[1] + 1 / noise))
    return Test("outcome", f, df, float(stats.f.sf(f, *df)))


# ---- two views


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
    def of(cls, outcome: Outcome, solution: Any) -> OutcomeOnV:
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
        beside = _beside(outcome, solution, most) if enough and most > rank else rank
        letters = ("V", "U") if solution.exchanged_ else ("U", "V")
        return cls(rank, beside, whole and beside == most, on_shared, on_rest, share, belief, letters=letters)

    @property
    def goes_with(self) -> bool:
        """Whether the outcome is taken to go with S2."""
        return self.share > 0

    @property
    def fails(self) -> str:
        """Which assumption about the outcome the data reject, in words; nothing where none is. Where nothing is shared nothing
        is corrected, and nothing can be wrong."""
        if self.stated or self.belief > 0 or not self.rank:
            return ""
        (u, v), name = self.letters, in_line(self.name)
        goes = f"{name} goes with {v} ({self.on_shared.p_text}), and the"
        if self.on_rest is None:
            return f"{goes} shared part fills {v}: nothing tells whether through the shared part or by {v}'s own"
        if not_rejected(self.on_rest.p_value) > 0:
            return f"{goes} cross-cumulants contradict the model: nothing tells whether through the shared part"
        return f"{name} goes with what {v} does not share with {u} ({self.on_rest.p_text})"

    @property
    def doubt(self) -> str:
        """What speaks against the model, what is done and what to do, or what speaks against the user's word that y goes with V
        through the shared part only; nothing where nothing does."""
        if self.fails:
            v = self.letters[1]
            done = f"Coefficients are those adjusted for {v}, not corrected. Check that {v} holds controls only"
            return f"{CONTRADICTED}: {self.fails}. {done}"
        if not self.stated or self.on_rest is None or self.on_rest.finding != Verdict.CONTRADICTED:
            return ""
        return (
            f"shared=True says that {in_line(self.name)} goes with V through the shared part only, but it goes with what V "
            f"does not share with U ({self.on_rest.p_text}): coefficients may be wrong"
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader of the coefficients must be told, as sentences."""
        (u, v), name, doubt = self.letters, in_line(self.name), (f"{self.doubt}.",) if self.doubt else ()
        if self.stated:
            return doubt
        if not self.rank:
            said = f"Nothing shared was found, but all of {v} stands beside {u}: it predicts {name} better on left-out samples."
            return (said,) if self.beside else ()
        adjusted = (
            f"Residualised means adjusted for all of {v}."
            if self.every
            else f"Residualised means adjusted for the {counted(range(self.rank), 'direction')} of {v} that {u} "
            f"shares: more of what correlates with {u} made predictions of {name} on left-out samples no better, or was not "
            "tried (views with too many columns)."
        )
        if self.goes_with and not doubt:
            doubt = (
                f"{name} goes with {v} ({self.on_shared.p_text}) as the shared part does: it is taken to depend on the "
                f"shared part too, and coefficients are those on {u}'s own part beside it.",
            )
        return (*doubt, adjusted)


def not_rejected(p: float) -> float:
    """Belief that is left where a test has this p value: 1 from WITNESSED on, 0 at half of it."""
    return float(np.clip(2 * p / WITNESSED - 1, 0.0, 1.0))


def _beside(outcome: Outcome, solution: Any, most: int) -> int:
    """Shared or `most` variates of V beside U: the smaller squared error on blocks that were left out."""
    found, rank, (u, v) = solution.canonical, solution.rank, solution.split(outcome.rows)
    table = np.column_stack([u @ found.x_from_u.T, v @ found.y_from_v[:most].T, np.ones(len(u)), outcome.y])
    order = [*range(found.rank_u + rank), found.rank_u + most, *range(found.rank_u + rank, found.rank_u + most), -1]
    table, weight = table[:, order], outcome.weight  # the variates that may be left out come last but one
    sums = np.stack([table[left].T * weight[left] @ table[left] for left in ~outcome.kept])
    kept = sums.sum(axis=0) - sums

    def squares(k: int) -> float:
        coef = np.linalg.solve(kept[:, :k, :k] + 1e-9 * outcome.n * np.eye(k), kept[:, :k, -1:])[..., 0]
        left = np.concatenate([-coef, np.ones((len(coef), 1))], axis=1)
        at = [*range(k), -1]
        return float(np.einsum("bi,bij,bj->", left, sums[:, at][:, :, at], left))

    few, all_ = found.rank_u + rank + 1, found.rank_u + most + 1
    return most if squares(all_) < squares(few) else rank
