"""Tests, and the one table that turns them into a verdict: the worst finding decides.

Every threshold of the library stands here. A test that could not be made has p = nan, and that is a finding, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.storage import storable
from richcomponents.text import p_value

__all__ = ["Rule", "Test", "Verdict", "against_noise", "gate", "verdict"]

GATE = (3.0, 4.0)
"""Standard errors from the safe end at which the gate starts and ends to open; from the second on a verdict may be strong."""


class Verdict(StrEnum):
    """From the best to the worst."""

    STRONG = "strong"
    WEAK = "weak"
    NOT_CHECKED = "not checked"
    NOT_IDENTIFIED = "not identified"
    CONTRADICTED = "contradicted"
    NOTHING_SHARED = "nothing shared"


@storable
@dataclass(frozen=True)
class Test:
    """A test of what an answer rests on.

    name : which rule of RULES it is judged by; statistic, df : its degrees of freedom, if any; p_value : nan where it could not
    be made; says : what it found, in a sentence; remedy : what to do about it.

    >>> print(Test("fit", 120.5, (3, 96), 0.0))
    statistic 120.5, degrees of freedom 3, 96, p < 1e-16
    """

    __test__ = False  # not one of pytest's

    name: str
    statistic: float
    df: tuple[float, ...]
    p_value: float
    says: str = ""
    remedy: str = ""

    @property
    def finding(self) -> Verdict:
        """By itself."""
        return RULES[self.name].finding(self.p_value)

    @property
    def shown(self) -> str:
        """The finding in a table: nothing of a test that was not made and need not be."""
        return "" if math.isnan(self.p_value) and self.finding == Verdict.STRONG else str(self.finding)

    @property
    def allowed(self) -> float:
        """0 to 1: how far what was tested may be used, from where its rule says "weak" (1) to where it says
        "contradicted" (0)."""
        below = {found: limit for limit, found in RULES[self.name].below}
        low, high = below[Verdict.CONTRADICTED], below[Verdict.WEAK]
        p = 1.0 if math.isnan(self.p_value) else max(self.p_value, 1e-300)
        return min(max(math.log(p / low) / math.log(high / low), 0.0), 1.0)

    @property
    def p_text(self) -> str:
        """The p-value with its letter: "p = 0.03"."""
        return "not tested" if math.isnan(self.p_value) else p_value(self.p_value)

    def __str__(self) -> str:
        df = f", degrees of freedom {', '.join(f'{one:.4g}' for one in self.df)}" if self.df else ""
        return f"statistic {self.statistic:.4g}{df}, {self.p_text}"


@dataclass(frozen=True)
class Rule:
    """below : (p, finding), the first that holds decides; unknown : where the test could not be made; above : else."""

    below: tuple[tuple[float, Verdict], ...] = ()
    unknown: Verdict = Verdict.STRONG
    above: Verdict = Verdict.STRONG

    def finding(self, p: float) -> Verdict:
        if math.isnan(p):
            return self.unknown
        return next((found for limit, found in self.below if p < limit), self.above)


def _tail(z: float) -> float:
    """P(Z > z) of a normal number: how evidence in standard errors is compared with other tests."""
    return math.erfc(z / math.sqrt(2)) / 2


RULES = {
    # evidence that tells T from the safe end: its absence is not a contradiction
    "identified": Rule(
        ((_tail(GATE[1]), Verdict.STRONG), (_tail(GATE[0]), Verdict.WEAK)),
        unknown=Verdict.NOT_IDENTIFIED,
        above=Verdict.NOT_IDENTIFIED,
    ),
    # what the model says must vanish
    "fit": Rule(((0.001, Verdict.CONTRADICTED), (0.01, Verdict.WEAK))),
    # an assumption that is used as far as it holds: no verdict rests on it
    "errors": Rule(((0.01, Verdict.CONTRADICTED), (0.1, Verdict.WEAK))),
    "known A": Rule(((0.001, Verdict.CONTRADICTED), (0.01, Verdict.WEAK))),
    "leftover": Rule(((0.001, Verdict.WEAK),)),
    "outcome": Rule(((0.001, Verdict.CONTRADICTED), (0.01, Verdict.WEAK))),
    "controls agree": Rule(((0.001, Verdict.CONTRADICTED), (0.05, Verdict.WEAK)), unknown=Verdict.NOT_CHECKED),
    "held-out controls": Rule(((0.001, Verdict.CONTRADICTED), (0.05, Verdict.WEAK)), unknown=Verdict.NOT_CHECKED),
    "correction": Rule(((0.4, Verdict.WEAK),)),  # p : the correction that was made, in standard errors
    "shared": Rule(((0.01, Verdict.STRONG),), above=Verdict.NOTHING_SHARED),  # that anything is shared at all
    "instruments": Rule(
        ((1e-4, Verdict.STRONG),), unknown=Verdict.STRONG, above=Verdict.WEAK
    ),  # relevance of the weakest
    "over-identification": Rule(((0.001, Verdict.CONTRADICTED), (0.05, Verdict.WEAK)), unknown=Verdict.NOT_CHECKED),
}
"""By the name of a test: what its p-value means."""


def gate(strength: float) -> float:
    """0 to 1, from how far T is told from the safe end, in standard errors."""
    return min(max((strength - GATE[0]) / (GATE[1] - GATE[0]), 0.0), 1.0)


def verdict(tests: Iterable[Test]) -> Verdict:
    """The worst finding; without any test nothing was checked."""
    order = list(Verdict)
    return max((test.finding for test in tests), key=order.index, default=Verdict.NOT_CHECKED)


def against_noise(left: Array, own: Array, most: int) -> tuple[float, tuple[float, float], float]:
    """|left|^2 (k,) over its expectation, its degrees of freedom and the p-value, if left is noise.

    own (B, k) : contributions of the blocks, which add up to that noise; most : directions that it can have. The blocks tell
    how large the noise is and how many directions it has (Satterthwaite's degrees of freedom).
    """
    blocks = len(own)
    gram = own @ own.T * blocks / (blocks - 1)
    size = float(np.trace(gram))
    spread = (float(np.sum(gram**2)) - size**2 / (blocks - 1)) / (1 + 1 / (blocks - 1))
    degrees = float(np.clip(size**2 / max(spread, 1e-300), 1.0, max(most, 1)))
    statistic = float(left @ left) / max(size, 1e-300)
    df = (degrees, degrees * (blocks - 1))
    return statistic, df, float(stats.f.sf(statistic, *df))
