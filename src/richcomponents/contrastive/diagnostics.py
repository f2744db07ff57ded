"""What a fit says about itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.bounds import IdentifiedSet
from richcomponents.contrastive.specification import TestResult
from richcomponents.storage import storable
from richcomponents.text import page

__all__ = ["ADVICE", "SUSPICIOUS", "Diagnostics", "contradicted"]

_MUCH_LEFT = 0.7

SUSPICIOUS = 0.001
"""p-value from which a fit warns by itself; diagnostics mention 0.01."""

ADVICE = {
    "strong": "The shared part is well identified; A and Cov(S1) are estimated from the data.",
    "weak": "The higher orders say little about A: the estimate is shrunk towards residualising (V as covariates).",
    "not identified": (
        "The higher orders say nothing reliable about A (a Gaussian shared part looks like this): coefficients equal "
        "those of residualising (V as covariates). The identified interval of Cov(S1) still holds."
    ),
    "nothing shared": "The views are taken to share nothing (no correlation was found, or rank=0): U is S1.",
}
"""What each verdict means, in words."""


def contradicted(test: TestResult) -> str:
    """What a test of the known A says, in words."""
    return (
        f"The known A does not fit the data (p = {test.p_value:.2g}): no admissible covariance of the shared part gives the "
        "covariance of U and V with it. Check its sign, units and the order of columns, or leave out A=."
    )


@storable
@dataclass(frozen=True)
class Diagnostics:
    """Numbers behind the verdict.

    n, d_u, d_v : sizes. canonical_correlations : all of them, decreasing.
    rank : shared directions used; rank_p_values : p-value of "no more than k shared directions", k = 0, 1, ...
    verdict : "strong", "weak" (shrunk towards residualising), "not identified" (residualising), "nothing shared",
        "known mixing" or "paper".
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
    searched_u, searched_v : in how many principal components of a view with too many columns for its samples the shared
        directions were looked for; None where all columns were searched.
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
    searched_u: int | None = None
    searched_v: int | None = None

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

    def advice(self) -> list[str]:
        """Sentences for the user."""
        out = [ADVICE[self.verdict]] if self.verdict in ADVICE else []
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
        elif self.rank and self.leftover.p_value < 0.01:
            out.append(
                f"Correlation is left beyond rank {self.rank} (p = {self.leftover.p_value:.2g}): the views may share more."
            )
        if self.overidentification is not None and self.overidentification.p_value < 0.01:
            out.append(
                "The cross-cumulants do not have the structure of U = S1 + S2, V = A S2 + S3 with independent parts "
                f"(p = {self.overidentification.p_value:.2g}): something else is shared, or the parts depend on each other."
            )
        if self.known_mixing is not None and self.known_mixing.p_value < 0.01:
            out.append(contradicted(self.known_mixing))
        if wide and self.verdict == "known mixing":
            out.append("The known A was not tested: there are too many columns for these samples.")
        return out

    def summary(self) -> str:
        """A page of text."""
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
        if self.rank:
            lines.append(f"  condition of A           {self.condition_A:.1f}")
        if self.largest_rank:
            low, high = self.identified.variances()
            share = (high - low) / np.maximum(high, 1e-300)
            lines.append(f"  second order alone       leaves {np.median(share):.0%} of Var(S1) open (median column)")
        if self.overidentification is not None:
            lines.append(f"  over-identification      p = {self.overidentification.p_value:.3f}")
        if self.known_mixing is not None:
            lines.append(f"  the known A fits         p = {self.known_mixing.p_value:.3f}")
        if self.rank < len(self.canonical_correlations):
            lines.append(
                f"  left beyond the rank     correlation {self.leftover_correlation:.2f}, p = {self.leftover.p_value:.3f}"
            )
        return page([*lines, *(f"  > {sentence}" for sentence in self.advice())])
