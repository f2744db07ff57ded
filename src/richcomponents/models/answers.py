"""What is to be said about one exposure: the same words and numbers for a terminal, a page and a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.contrastive.diagnostics import TestResult
from richcomponents.cumulants.estimate import Estimate
from richcomponents.notebook import Table

FALSE_DISCOVERIES = 0.1
"""Share of false ones among the effects that are counted as found."""
MISFIT = 0.01
"""p value of the test of controls, all of them or all but one, below which they contradict each other (a verdict is weak then
at best)."""
_AGREE = 0.05  # p value of the test of the others, from which on they agree well without a control
_LITTLE = 0.05  # of the correction
_NARROW = 0.5  # identified sets, in standard errors
_DOUBTFUL = 0.01  # p value, for all hidden controls together, from which one is worth a second look

ADVICE = {
    "strong": "Before you rely on it, ask of each control whether the exposure could change it: that assumption is yours.",
    "supported": "Before you rely on it, ask of each control whether the exposure could change it: that assumption is yours.",
    "weak": "See in the sensitivity picture how much the effects depend on the noise of the controls. More samples help, and "
    "so do less noisy controls.",
    "not identified": "Give the identified set with each effect, not the estimate alone. More samples help where what is "
    "hidden is skewed or comes in groups, such as labs; better controls always help.",
    "contradicted": "Ask of each control whether the exposure could change it: leave out those that it may, and fit again.",
    "nothing to adjust": "Check that the controls were measured where the tests were: controls that nothing disturbs correct "
    "nothing.",
    "not separable": "Leave out controls that the exposure may change. If each lab (batch, clinic) saw one group only, no "
    "analysis helps: both groups have to be measured in each.",
}


@dataclass(frozen=True)
class ExposureAnswer:
    """All that is known about one exposure.

    effects : on the columns of U; hidden : effects of controls that were hidden (zero in truth), or None; controls : one row
    each; outside : test of whether the controls go with the exposure as the shared part does. rank : hidden directions;
    shares : of the correction that cumulants tell, and of that by joint factors. ranks : {rank: effects (d_u,)}; path : effects
    (k, d_u) by assumed noise (k,), and where the estimate lies. steps : what would help, in numbers of samples and controls.
    """

    exposure: str
    verdict: str
    meaning: str
    effects: Estimate
    hidden: Estimate | None
    controls: Table
    outside: TestResult
    rank: int
    shares: tuple[float, float]
    ranks: dict[int, Array]
    path: tuple[Array, Array, float]
    steps: tuple[str, ...] = ()

    def named(self, tests: Sequence[str], controls: Sequence[str]) -> Self:
        """The same with other names of the columns."""
        hidden = None if self.hidden is None else replace(self.hidden, names=tuple(controls))
        at = {} if self.hidden is None else dict(zip(self.hidden.names, controls, strict=True))
        rows = Table({**row, "control": at[str(row["control"])]} for row in self.controls)
        return replace(self, effects=replace(self.effects, names=tuple(tests)), hidden=hidden, controls=rows)

    def with_truth(self, truth: Array) -> Self:
        """The same beside known effects (d_u,)."""
        return replace(self, effects=replace(self.effects, others={**self.effects.others, "truth": truth}))

    # ---- numbers

    @property
    def rho(self) -> float:
        """How far the estimate goes from the controls as covariates (0) to a full correction (1)."""
        return sum(self.shares)

    @property
    def _misfit(self) -> bool:
        """Whether the controls contradict each other."""
        return bool(self.rank) and self.outside.p_value < MISFIT

    @property
    def found(self) -> Array:
        """(d_u,) which effects are told from zero: below the rate of false discoveries, or by the limits of identified sets."""
        if self.verdict == "not separable":
            return np.zeros(len(self.effects.value), dtype=bool)
        if self.effects.set_limits and self.effects.identified is not None:
            return np.asarray((self.effects.low > 0) | (self.effects.high < 0))
        return np.asarray(np.nan_to_num(self.effects.q_value, nan=1.0) < FALSE_DISCOVERIES)

    def order(self) -> IntArray:
        """The columns, the clearest effects first."""
        p = np.nan_to_num(self.effects.p_value, nan=2.0)
        size = np.nan_to_num(np.abs(self.effects.z))
        return np.lexsort((-size, p))

    def rows(self) -> Table:
        """One row per column of U, in its order: everything that is known."""
        return Table({"name": row.pop("name"), "exposure": self.exposure, **row} for row in self.effects.rows())

    def compact(self, most: int | None = None) -> Table:
        """The clearest effects, with what is read first."""
        rows, level = self.effects.rows(), f"{self.effects.level:.0%} interval"
        form = _decimals(self.effects.value)
        out = Table()
        for i in self.order()[:most]:
            row = rows[int(i)]
            limits = [f"{row[end]:{form}}" for end in ("low", "high")]
            known: dict[str, object] = {name: f"{row[name]:{form}}" for name in ("estimate", "adjusted", "naive")}
            known |= {"truth": f"{row['truth']:{form}}"} if "truth" in row else {}
            known |= {level: f"[{limits[0]}, {limits[1]}]", "p": row["p"], "q": row["q"]}
            out.append({"name": row["name"], **known})
        return out

    def rank_rows(self, most: int | None = None) -> Table:
        """Effects by the number of hidden directions, the clearest first."""
        titles = {
            r: f"{r} direction{'' if r == 1 else 's'}" + (" (chosen)" if r == self.rank else "") for r in self.ranks
        }
        return Table(
            {"name": self.effects.names[i], **{titles[r]: float(values[i]) for r, values in self.ranks.items()}}
            for i in map(int, self.order()[:most])
        )

    def as_dict(self) -> dict[str, object]:
        return {
            "exposure": self.exposure,
            "verdict": self.verdict,
            "meaning": self.meaning,
            "found": [name for name, found in zip(self.effects.names, self.found, strict=True) if found],
            "rank": self.rank,
            "rho": self.rho,
            "shares": self.shares,
            "controls_outside_p": self.outside.p_value,
            "effects": self.effects.rows(),
            "controls": self.controls,
            "rank_effects": self.ranks,
        }

    # ---- words

    def reach(self) -> str:
        """Where the noise of the controls is in doubt: whether that matters, in a sentence; else empty."""
        if self.verdict not in ("weak", "not identified") or self.effects.identified is None or self._misfit:
            return ""
        low, high = self.effects.identified
        width = float(np.nanmedian((high - low) / self.effects.standard_error))
        if width < _NARROW:
            return "The noise of the controls matters little here: the identified sets are narrower than the standard errors."
        return (
            "How noisy the controls are matters here: for half of the columns it leaves the effect open over more than "
            f"{width:.1f} standard errors (the identified set)."
        )

    def way(self) -> str:
        """How far the correction goes, in a sentence."""
        if not self.rank:
            return ""
        told = (
            f"{self.rank} hidden direction{'' if self.rank == 1 else 's'}; the estimate goes {self.rho:.0%} of the way from "
            "adjusting for the controls to the full correction"
        )
        by_factors = self.shares[1] / max(self.rho, 1e-300)
        if by_factors < _LITTLE:
            return told
        return f"{told}, {by_factors:.0%} of it by joint factors of tests and controls, whose errors look independent"

    def finding(self) -> str:
        """What changes with the exposure, in a sentence."""
        total, count = len(self.found), int(self.found.sum())
        columns = f"{total} column{'' if total == 1 else 's'}"
        if self.verdict == "not separable":
            return (
                f"So nothing is said about which of the {columns} {self.exposure} changes: the numbers hold what is hidden as "
                "well."
            )
        sure = (
            "whatever the noise of the controls"
            if self.verdict == "not identified"
            else f"false discovery rate {FALSE_DISCOVERIES:.0%}"
        )
        if not count:
            return f"No effect of {self.exposure} on the {columns} is told from zero ({sure})."
        first = next(int(i) for i in self.order() if self.found[i])
        form, one = _decimals(self.effects.value), self.effects
        return (
            f"{self.exposure} changes {count} of {columns} ({sure}), most clearly {one.names[first]}: "
            f"{one.value[first]:{form}}, {one.level:.0%} interval {one.low[first]:{form}} to {one.high[first]:{form}}."
        )

    def doubtful(self) -> list[str]:
        """Controls whose hidden effect is not zero by chance alone, the worst first (Bonferroni)."""
        rows = sorted(self.controls, key=lambda row: _p(row["p"]))
        return [str(row["control"]) for row in rows if _p(row["p"]) * len(rows) < _DOUBTFUL]

    def suspects(self) -> list[str]:
        """Where the controls contradict each other: those of which one may be changed by the exposure, since the others agree
        without it, the likeliest first; a confidence set if it is one, and empty if no single control explains it: the others
        contradict each other without any of them."""
        if not self._misfit:
            return []
        rows = [(float(row["p of the others"]), str(row["control"])) for row in self.controls]  # type: ignore[arg-type]
        levels = ([control for p, control in sorted(rows, reverse=True) if p >= level] for level in (_AGREE, MISFIT))
        return next(filter(None, levels), [])

    def _blame(self) -> str:
        """Which control it is, as far as that can be told, in a sentence; empty where each could not be left out in turn."""
        suspects = self.suspects()
        if not all(np.isfinite(row["p of the others"]) for row in self.controls):  # type: ignore[call-overload]
            return ""
        if not suspects:
            return "No single control explains it: the others contradict each other whichever is left out."
        if len(suspects) == 1:
            return f"Without {suspects[0]} the others agree, and only without it: leave it out, and compare."
        if len(suspects) == len(self.controls):
            return "The others agree without any one of them: which one it is cannot be told from so few."
        return f"It is one of {', '.join(suspects)}: without it the others agree. Leave each out in turn, and compare."

    def about_controls(self) -> str:
        """How the controls fared, in a few sentences."""
        fit = self.outside.told
        if self._misfit:
            told = f"The controls go with the exposure in a way they do not share with the tests ({fit})."
            return f"{told} {self._blame()}".rstrip()
        if self.hidden is None and not self.rank:
            return (
                "No control was hidden to check the correction: given the exposure, tests and controls share nothing."
            )
        if self.hidden is None:
            return "There are too few controls (fewer than four) or rows: none could be hidden to check the correction."
        known = sum(np.isfinite(_p(row["p"])) for row in self.controls)
        doubtful = self.doubtful()
        if doubtful:
            told = f"{', '.join(doubtful[:5])} come{'s' if len(doubtful) == 1 else ''} out with an effect: look at it again."
            told = told if len(doubtful) == 1 else told.replace("at it", "at them").replace("an effect", "effects")
        elif known:
            told = "none comes out with an effect it should not have."
        else:
            told = "too few are left for each to say how sure its effect is."
        together = f"Together they go with the exposure just as the part does that they share with the tests ({fit})."
        return f"Controls, each hidden in turn and treated as a test: {told} {together}"

    @property
    def alarm(self) -> str:
        """A sentence where the controls go with the exposure as they should not; else empty."""
        if not self._misfit:
            return ""
        directions = f"{self.rank} direction{'' if self.rank == 1 else 's'}"
        return (
            f"the controls go with {self.exposure} beyond what they share with the tests "
            f"({self.outside.told}): the exposure seems to change some of them, or more is hidden than {directions}. "
            f"{self._blame() or 'Leave doubtful controls out and compare.'}"
        ).removesuffix(".")

    def advice(self) -> list[str]:
        """What to do next."""
        return [ADVICE["contradicted" if self._misfit else self.verdict], *self.steps]

    def says(self) -> list[str]:
        """All of it, the most important first."""
        return [
            self.meaning,
            self.finding(),
            self.reach(),
            self.about_controls(),
            *self.advice(),
        ]


def as_sentence(text: str) -> str:
    """The text as a sentence: a capital in front, one full stop behind."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


# ---- what is to be said about two views, and about any number

_SURE = {
    "strong": "Identification is strong.",
    "weak": "Identification is weak: the results lean on those of adjusting for the controls.",
    "known mixing": "The mixing matrix A was given.",
    "paper": "The paper's formulas were used, which do not say how sure they are.",
}


def pair_answer(verdict: str, share: float, view: str) -> str:
    """The headline of two views; share : of the variance of the columns of the first view that is shared, on average."""
    if verdict == "nothing shared":
        return f"No part shared with the controls was found: {view} is taken as it is."
    least = f"At least {share:.0%} of the variance of {view} is shared (average over its columns)."
    if verdict == "not identified":
        return (
            f"{least} How much more cannot be told from these data: the results equal those of adjusting for the "
            "controls."
        )
    if verdict == "model fails":
        return (
            f"{least} The model fails, and nothing was corrected: the results equal those of adjusting for the "
            "controls."
        )
    return f"The shared part explains {share:.0%} of {view} (average over its columns). {_SURE[verdict]}"


_ALL_SURE = {
    "strong": " All parts are well told apart.",
    "weak": " Some parts are told apart badly.",
    "model fails": " But the model fails: covariances between views are not those of these sets and ranks.",
    "not identified": " How much more than that is shared cannot be told from these data.",
    "nothing shared": " Nothing shared was found.",
    "paper": " The paper's formulas were used, which do not say how sure they are.",
}


def sets_answer(verdict: str, components: Table, views: Sequence[str]) -> str:
    """The headline of any number of views; components : rows with the share of each view's variance that one carries."""

    def carried(row: Mapping[str, Any]) -> dict[str, float]:
        return {view: row[view] for view in views if np.isfinite(row[view])}

    widest = max(components, key=lambda row: len(carried(row)))
    shares = [f"{share:.0%} of {view}" for view, share in carried(widest).items()]
    return (
        f"{counted(components, 'component')} in {counted(views, 'view')}; {widest['component']} explains {listed(shares)}."
        f"{_ALL_SURE.get(verdict, '')}"
    )


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def counted(items: Sequence[object], noun: str) -> str:
    """
    >>> counted(["a"], "view"), counted(["a", "b"], "view")
    ('1 view', '2 views')
    """
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _p(value: Any) -> float:
    return float(value) if value == value else 1.0


def _decimals(values: Array) -> str:
    """Signed, three decimals where they say something about the largest."""
    largest = float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
    return "+.3f" if largest == 0 or 0.05 <= largest < 1e4 else "+.3g"
