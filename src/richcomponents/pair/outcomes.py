"""What an outcome has to do with both views: which assumptions the data reject (learning/coefficients.py has its coefficients).

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.learning.outcome import Outcome, outcome_test
from richcomponents.storage import storable
from richcomponents.text import counted, in_line

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
            else f"Residualised means adjusted for the {counted(range(self.rank), 'direction')} of {v} that {u} "
            f"shares: more of what correlates with {u} made predictions of {name} on left-out samples no better, or was not "
            "tried (views with too many columns)."
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


def _beside(outcome: Outcome, solution: PairSolution, most: int) -> int:
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
