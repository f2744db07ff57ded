"""What is to be said about one exposure: the same words and numbers for a terminal, a notebook, a page and a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.cumulants.estimate import Estimate
from richcomponents.inference.verdicts import RULES, Test, Verdict, verdict
from richcomponents.notebook import Table
from richcomponents.storage import storable
from richcomponents.text import as_sentence, counted, number

FALSE_DISCOVERIES = 0.1
"""Rate of false ones among the effects that are counted as found."""

MEANINGS = {
    Verdict.STRONG: "The data tell how noisy the controls are, and no test contradicts the correction.",
    Verdict.WEAK: "The correction rests on weak evidence.",
    Verdict.NOT_CHECKED: "What the correction rests on could not be checked.",
    Verdict.NOT_IDENTIFIED: "The data do not tell how noisy the controls are: the correction is in part an assumption.",
    Verdict.CONTRADICTED: "A test contradicts what the correction assumes.",
    Verdict.NOTHING_SHARED: "Given the exposure, tests and controls share nothing that could be corrected.",
}

ADVICE = {
    Verdict.STRONG: "Ask of each control whether the exposure could change it: you assume that it does not.",
    Verdict.WEAK: "See in the sensitivity picture how much the effects depend on the noise of the controls.",
    Verdict.NOT_CHECKED: "Give the identified set with each effect, and the adjusted effects with the estimates.",
    Verdict.NOT_IDENTIFIED: "Give the identified set with each effect, not the estimate alone.",
    Verdict.CONTRADICTED: "Do not rely on the estimates before the cause is clear.",
    Verdict.NOTHING_SHARED: "Check that what disturbs the tests disturbs the controls: else these correct nothing.",
}


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Effects(Estimate):
    """Effects of one exposure, column by column: an Estimate with false discovery rates."""

    def _cells(self) -> list[list[str]]:
        """What is read first: a table no wider than a terminal."""
        head, *rows = super()._cells()
        at = [head.index(title) for title in ("", "estimate", "adjusted", "naive", head[-1], "p", "q") if title in head]
        return [[row[i] for i in at] for row in [head, *rows]]

    def _table(self) -> dict[str, Array]:
        table = super()._table()
        first = list(table)[: list(table).index("p") + 1]
        return {title: table[title] for title in first} | {"q": self.q_value} | table


@storable
@dataclass(frozen=True)
class ExposureAnswer:
    """All that is known about one exposure.

    effects : on the columns of U; hidden : effects on held-out controls (zero in truth), or None; rank : hidden directions;
    share : of the correction; noise : the largest share of noise in the controls that it assumes; without (d_v,) : p of the
    test that the controls agree, without each; moved (d_v,) : how far effects move without it; ranks : {rank: effects (d_u,)};
    steps : what would help, in numbers.
    """

    exposure: str
    effects: Effects
    hidden: Estimate | None
    rank: int
    share: float
    noise: float
    without: Array = field(default_factory=lambda: np.zeros(0))
    moved: Array = field(default_factory=lambda: np.zeros(0))
    ranks: Mapping[int, Array] = field(default_factory=dict)
    tests: tuple[Test, ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst finding of the tests."""
        return verdict(self.tests)

    @property
    def start(self) -> Array:
        """(d_u,): the effects that the correction starts from, adjusted ones, or where nothing is shared naive ones."""
        return self.effects.others["adjusted" if self.rank else "naive"]

    @property
    def path(self) -> tuple[Array, Array, Array, float]:
        """Shares t (k,) from 0 to 1; ends (k, d_u) of the effects over all 0 <= T <= t I, at t = 0 the start, at t = 1 the
        identified sets; and the t below which the estimate lies."""
        at, start = np.linspace(0, 1, 21), self.start
        low, high = (start + at[:, None] * (end - start) for end in self.effects.identified or ())
        return at, low, high, self.noise

    @property
    def controls(self) -> Table:
        """One row each; none where no control could be held out."""
        if (seen := self.hidden) is None:
            return Table()
        columns = {"held-out effect": seen.value, "standard error": seen.standard_error, "p": seen.p_value}
        columns |= {"p of the others": self.without, "effects move without it": self.moved}
        return Table(
            {"control": name, "exposure": self.exposure, **{title: float(x[i]) for title, x in columns.items()}}
            for i, name in enumerate(seen.names)
        )

    def named(self, tests: Sequence[str], controls: Sequence[str], truth: Array | None = None) -> Self:
        """The same with other names of the columns, and with known effects (d_u,) to compare."""
        hidden = self.hidden and replace(self.hidden, names=tuple(controls))
        names = tuple(tests)[: len(self.effects.value)]  # instruments stand behind the tests
        others = {**self.effects.others, **({} if truth is None else {"truth": truth})}
        return replace(self, effects=replace(self.effects, names=names, others=others), hidden=hidden)

    @property
    def found(self) -> Array:
        """(d_u,) which effects are below the rate of false discoveries."""
        return np.asarray(self.effects.q_value < FALSE_DISCOVERIES)

    def order(self) -> IntArray:
        """The columns, the clearest effects first."""
        return np.lexsort((-np.abs(self.effects.z), self.effects.p_value))  # nan last

    def rows(self) -> Table:
        """One row per column of U, in its order: everything that is known."""
        return Table({"name": row.pop("name"), "exposure": self.exposure, **row} for row in self.effects.rows())

    def rank_rows(self, most: int | None = None) -> Table:
        """Effects by the number of hidden directions, the clearest first."""
        titles = {r: counted(range(r), "direction") + " (chosen)" * (r == self.rank) for r in self.ranks}
        return Table(
            {"name": self.effects.names[i], **{titles[r]: float(values[i]) for r, values in self.ranks.items()}}
            for i in map(int, self.order()[:most])
        )

    def _sentences(self, finding: Verdict | None, *names: str) -> list[str]:
        """Of the tests that found this, and of those with these names."""
        return [as_sentence(test.says) for test in self.tests if test.finding == finding or test.name in names]

    @property
    def meaning(self) -> str:
        """What the verdict means, and which tests decided it; an alarm says which contradict it."""
        decided = self.verdict in (Verdict.WEAK, Verdict.NOT_CHECKED, Verdict.NOT_IDENTIFIED)
        return " ".join([MEANINGS[self.verdict], *(self._sentences(self.verdict) if decided else [])])

    @property
    def alarm(self) -> str:
        """A sentence for each test that contradicts what is assumed; else empty."""
        return " ".join([*self._sentences(Verdict.CONTRADICTED), *self._blame()])

    def finding(self) -> str:
        """What changes with the exposure, in a sentence."""
        one, columns = self.effects, counted(self.effects.names, "column")
        rate = f"false discovery rate {FALSE_DISCOVERIES:.0%}"
        if not self.found.any():
            return f"No effect of {self.exposure} on the {columns} differs significantly from zero ({rate})."
        first = int(self.order()[0])
        return (
            f"{self.exposure} changes {self.found.sum()} of {columns} ({rate}), most clearly {one.names[first]}: "
            f"{number(one.value[first])}, {one.level:.0%} interval {number(one.low[first])} to {number(one.high[first])}."
        )

    def suspects(self) -> list[str]:
        """Where the controls contradict each other: those of which one may be changed by the exposure, since the others agree
        without it, the likeliest first; empty if no single control explains it."""
        limits = sorted((limit for limit, _ in RULES["controls agree"].below), reverse=True)
        if self.hidden is None or not any(t.name == "controls agree" and t.p_value < limits[0] for t in self.tests):
            return []
        rows = sorted(zip(np.nan_to_num(self.without, nan=1.0), self.hidden.names, strict=True), reverse=True)
        return next(filter(None, ([control for p, control in rows if p >= limit] for limit in limits)), [])

    def _blame(self) -> list[str]:
        """Which control it is, as far as that can be told; nothing where each could not be left out in turn."""
        contradicted = any(t.name == "controls agree" and t.finding == Verdict.CONTRADICTED for t in self.tests)
        if self.hidden is None or not contradicted or not np.isfinite(self.without).all():
            return []
        match self.suspects():
            case []:
                return ["No single control explains it: the others contradict each other whichever is left out."]
            case [one]:
                return [f"Without {one} the others agree, and only without it: leave it out, and compare."]
            case some:
                return [f"The others agree without any one of {', '.join(some)}: leave each out in turn, and compare."]

    def about_controls(self) -> str:
        """How the controls fared, in a few sentences."""
        return " ".join([*self._sentences(None, "held-out controls", "controls agree"), *self._blame()])

    def more(self) -> list[str]:
        """What neither the meaning nor the alarm says: how the controls fared, how far the correction goes, what to do."""
        of_tests = self._sentences(None, "held-out controls", "controls agree", "correction", "instruments")
        remedies = [one.remedy for one in self.tests if one.remedy and one.finding == self.verdict != Verdict.STRONG]
        said = f"{self.meaning} {self.alarm}"
        return [one for one in dict.fromkeys([*of_tests, ADVICE[self.verdict], *remedies]) if one not in said]

    def says(self) -> list[str]:
        """All of it, the most important first."""
        return [*filter(None, [self.meaning, self.alarm, self.finding()]), *self.more(), *self.steps]
