"""What a fit of two views says about itself: the tests behind its verdict, and what to do next.

* `PairFit.identified`: is there evidence that tells T from T = 0?
* that of the cross-cumulants (pair/evidence.py): do they lie in the row space that the model asks for?
* `leftover_test` (pair/views.py): after r shared directions nothing may be correlated.
* `outcome_test` (learning/outcome.py): with an outcome that depends on S1 only, Y is independent of V.

NEXT STEPS. Evidence in standard errors grows at least as the square root of n, so that n (needed / strength)^2 rows are enough.
In a shared direction V measures S2 with reliability rho = D^2 / S >= D^2; residualising leaves the share 1 - rho of the shared
part in U. f times as many controls, each as good as these, have f times the odds rho / (1 - rho) (Spearman and Brown).
Bartlett's statistic of one correlation c, -(n - 1 - (d_u + d_v + 1)/2) log(1 - c^2), against its critical value, is
the smallest c that the test of any shared direction finds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from richcomponents.algebra import Array
from richcomponents.inference.draws import IdentifiedSet
from richcomponents.inference.verdicts import GATE, Test, Verdict
from richcomponents.notebook import Summary, Table
from richcomponents.pair.classes import HiddenClasses
from richcomponents.pair.views import LEVEL
from richcomponents.storage import storable
from richcomponents.text import number, page


def samples_for_strong(n: float, strength: float) -> float:
    """How many samples like these would tell T; inf where evidence is not above zero.

    >>> samples_for_strong(1000, 2.0), samples_for_strong(1000, 9.0)
    (4000.0, 1000.0)
    """
    return n * max((GATE[1] / strength) ** 2, 1.0) if strength > 0 else math.inf


def controls_needed(correlations: Array, d_v: int, share: float = 0.5) -> float:
    """How many more controls, each as good as the d_v at hand, leave `share` of what residualising leaves of the shared part;
    correlations : canonical ones of the shared directions (r,).

    >>> round(controls_needed(np.array([0.5**0.5]), 10), 6)  # reliability 1/2 to 3/4: three times the odds
    20.0
    """
    squares = np.clip(np.asarray(correlations, dtype=np.float64) ** 2, 1e-6, 1 - 1e-6)
    odds = squares / (1 - squares)
    wanted = share * float(np.sum(1 - squares))
    times = brentq(lambda log_f: float(np.sum(1 / (1 + math.exp(log_f) * odds))) - wanted, 0.0, 30.0)
    return (math.exp(times) - 1) * d_v


def smallest_seen(n: float, d_u: int, d_v: int) -> float:
    """The smallest canonical correlation that the test of "nothing is shared" finds with n independent samples; 1 where none.

    >>> round(smallest_seen(1000, 1, 1), 3)
    0.081
    """
    factor = n - 1 - (d_u + d_v + 1) / 2
    return math.sqrt(-math.expm1(-float(stats.chi2.isf(LEVEL, d_u * d_v)) / factor)) if factor > 0 else 1.0


def samples_to_see(correlation: float, d_u: int, d_v: int) -> float:
    """How many independent samples show a shared direction of this canonical correlation."""
    return 1 + (d_u + d_v + 1) / 2 - float(stats.chi2.isf(LEVEL, d_u * d_v)) / math.log1p(-(correlation**2))


def rounded(n: float) -> str:
    """Two digits, rounded up.

    >>> rounded(1234.5), rounded(17), rounded(99.5)
    ('1300', '17', '100')
    """
    unit = 10 ** max(math.floor(math.log10(max(n, 1))) - 1, 0)
    return str(math.ceil(n / unit - 1e-9) * unit)


ADVICE = {
    Verdict.STRONG: "The shared part is well identified: A and Cov(S1) are estimated from the data.",
    Verdict.WEAK: "There is little evidence about A, or a test speaks against the model: the estimate is shrunk towards "
    "residualising (adjusting for V).",
    Verdict.NOT_CHECKED: "The model was not checked.",
    Verdict.NOT_IDENTIFIED: "The data do not identify A (a Gaussian shared part looks like this): coefficients equal those of "
    "residualising (adjusting for V). The identified set of Cov(S1) still holds.",
    Verdict.CONTRADICTED: "A test contradicts the model U = S1 + S2, V = A S2 + S3 with independent parts: do not rely on "
    "numbers that differ from those of residualising (adjusting for V).",
    Verdict.NOTHING_SHARED: "The views are taken to share nothing (no correlation was found, or rank=0): U is S1.",
}
"""What each verdict means, in words."""

CHECKS = {
    "shared directions": ("shared directions", "How many independent disturbances the views have in common."),
    "shared": ("anything shared", "Large p: the correlations of the views are no larger than chance."),
    "identified": ("evidence", "How clearly the data tell the own part from the shared part."),
    "known A": ("the known A fits", "Small p: no admissible covariance of the shared part goes with this A."),
    "fit": ("cumulants fit the model", "Small p: U = S1 + S2, V = A S2 + S3 with independent parts does not fit."),
    "leftover": ("left beyond the rank", "Small p: the views share more than was modelled. Raise the rank."),
    "share": ("share of the correction", "How far Cov(S1) goes from residualising to the full correction."),
    "classes": (
        "hidden classes",
        "Groups of rows (labs, batches) that were removed from the shared part before all else.",
    ),
    "condition of A": ("condition of A", "Large (above about 100): some shared directions are barely visible in V."),
}
"""Titles of tests and other numbers in a table, and what a value means."""


@storable
@dataclass(frozen=True, repr=False)
class Diagnostics:
    """Numbers behind the verdict.

    n, d_u, d_v : sizes; independent_rows : how many independent rows the samples are worth: less than n with covariates, groups
    or weights. canonical_correlations : all of them, decreasing. rank : shared directions used; rank_p_values : p-value of "no
    more than k shared directions", k = 0, 1, ...; largest_rank : the largest number of them (of a correlation of .3 or
    more) that the test cannot exclude; rank itself where that was given.
    verdict : strong, weak, not checked, not identified, contradicted or nothing shared: the worst finding of `tests`.
    strength : of the best evidence that T is not zero (residualising), in standard errors; evidence : by kind; gate : 0 to
    1, as far as it counts; share : of the correction of Cov(S1) that is made.
    identified : the identified set of Cov(S1), any distribution; identified_low, identified_high : its ends, entry by entry.
    condition_A : ratio of the largest to the smallest non-zero singular value of A on the range of the shared part.
    overidentification : test that cross-cumulants have the structure of the model; None where nothing is shared.
    leftover : test that nothing is correlated beyond the chosen rank. known_mixing : test of a known A, Cov(U, V) = Cov(S2) A';
    None when A was estimated (or the views too wide to test it).
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
    identified: IdentifiedSet
    condition_A: float
    leftover: Test
    independent_rows: float
    largest_rank: int
    tests: tuple[Test, ...] = ()
    strength: float = float("nan")
    gate: float = 0.0
    share: float = 0.0
    evidence: Mapping[str, float] = field(default_factory=dict)
    overidentification: Test | None = None
    known_mixing: Test | None = None
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

    def next_steps(self) -> list[str]:
        """What would help, in numbers of samples and controls; empty where nothing is known to."""
        n, r = self.n, self.rank
        if self.verdict == Verdict.STRONG:
            return [f"Intervals half as wide take about n = {rounded(4 * n)} samples."]
        if self.verdict == Verdict.NOTHING_SHARED and len(self.rank_p_values):
            seen = smallest_seen(self.independent_rows, self.d_u, self.d_v)
            if seen >= 1 or self.searched_u is not None or self.searched_v is not None:
                return []
            more = samples_to_see(seen / 2, self.d_u, self.d_v) * n / self.independent_rows
            shown = f"These samples would have shown a shared part with a canonical correlation above {seen:.2f}"
            return [f"{shown}; to see one half as strong, collect n = {rounded(more)} samples."]
        if self.verdict not in (Verdict.WEAK, Verdict.NOT_IDENTIFIED) or not r:
            return []
        shared, needed = self.canonical_correlations[:r], samples_for_strong(n, self.strength)
        controls = (
            f"{rounded(controls_needed(shared, self.d_v))} more controls as good as these {self.d_v}: adjusting for the "
            f"controls leaves up to {np.mean(1 - shared**2):.0%} of the shared part in place, and they would halve that"
        )
        if self.verdict == Verdict.WEAK and n < needed < np.inf:
            return [f"For a strong verdict collect about n = {rounded(needed)} samples like these, or {controls}."]
        few = rounded(samples_for_strong(n, max(self.strength, 0.0) + 2.0))
        skewed = f"If the shared part is skewed or comes in groups (labs, batches), it takes at least n = {few} samples to tell"
        return [f"{skewed}; if it is Gaussian, no number of samples is enough.", f"What helps in any case: {controls}."]

    @property
    def _samples(self) -> str:
        worth = round(self.independent_rows)
        return f"{self.n} samples{'' if worth == self.n else f' (worth {worth} independent ones)'}"

    def advice(self) -> list[str]:
        """Sentences for the user: what the verdict means, then what speaks against the model without contradicting it."""
        alone = "Once the hidden classes are removed, the views share nothing that can be seen."
        out = [alone if self.verdict == Verdict.STRONG and not self.rank else ADVICE[Verdict(self.verdict)]]
        if self.largest_rank > self.rank:
            out.append(
                f"The test cannot tell {self.rank} from {self.largest_rank} shared directions with {self._samples}. Use more "
                "samples or fewer columns, or give rank= if it is known."
            )
        views = (("U", self.searched_u, self.d_u), ("V", self.searched_v, self.d_v))
        if wide := [f"{k} principal components of the {d} columns of {view}" for view, k, d in views if k is not None]:
            out.append(
                f"Too many columns for {self.n} samples: shared directions were looked for in {' and '.join(wide)}; what was "
                "found there is removed from every column, and coefficients use every column."
            )
        return [*out, *(f"Warning: {one}" for one in self.alarms(Verdict.WEAK))]

    def alarms(self, finding: Verdict = Verdict.CONTRADICTED) -> list[str]:
        """A sentence for each test of the model with this finding."""
        tests = (one for one in self.tests if one.name not in ("identified", "shared") and one.finding == finding)
        return [f"{one.says} ({one.p_text}) {one.remedy}".rstrip() for one in tests]

    def checks(self) -> Table:
        """What is known of the fit, a row each: what was looked at, its value, what was found, and what a value means."""
        rank, beyond = self.rank, [*self.canonical_correlations[self.rank :]]
        more = f" ({self.largest_rank} cannot be excluded)" if self.largest_rank > rank else ""
        rows = {"shared directions": (f"{rank} of {len(self.canonical_correlations)}{more}", "")}
        special = {"leftover": f"correlation {max(beyond, default=0.0):.2f}, {self.leftover.p_text}"}
        if seen := ", ".join(f"{name} {strength:.1f}" for name, strength in self.evidence.items()):
            special["identified"] = f"{seen} standard errors from residualising"
        tests = (one for one in self.tests or (self.leftover,) if one.name != "leftover" or beyond)
        rows |= {one.name: (special.get(one.name, one.p_text), one.shown) for one in tests}
        rows |= {"condition of A": (number(self.condition_A), "")} if rank else {}
        rows |= {"share": (f"{self.share:.0%}", "")} if self.evidence else {}
        classes = self.class_note if self.classes is None else self.classes.words()
        rows |= {"classes": (classes, "")} if classes else {}
        whole = ((CHECKS[name][0], *row, CHECKS[name][1]) for name, row in rows.items())
        return Table(dict(zip(("check", "value", "finding", "meaning"), row, strict=True)) for row in whole)

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def summary(self) -> Summary:
        """A page of text; in a notebook the verdict and what it means, and the numbers behind a fold."""
        d = self.canonical_correlations
        rows = {"canonical correlations": ", ".join(f"{c:.2f}" for c in d[:10]) + (" ..." if len(d) > 10 else "")}
        rows |= {str(row["check"]): str(row["value"]) for row in self.checks()} | {"verdict": self.verdict}
        low, high = self.identified.variances()
        share = np.median((high - low) / np.maximum(high, 1e-300))
        if self.rank and np.isfinite(share):
            rows["second order alone"] = f"leaves {share:.0%} of Var(S1) open (median column)"
        title = f"Contrastive RCA: {self._samples}, U has {self.d_u} columns, V has {self.d_v}"
        advice = [*(f"Warning: {one}" for one in self.alarms()), *self.advice(), *self.next_steps()]
        lines = [title, *(f"  {name:24} {said}" for name, said in rows.items()), *(f"  > {one}" for one in advice)]
        return Summary(page(lines), verdict=self.verdict, says=[*advice, title])
