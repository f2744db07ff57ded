"""How many directions the views share: the sequential Bartlett-Lawley test, and what it cannot exclude."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, f, ncx2

from richcomponents.contrastive.canonical import Canonical
from richcomponents.errors import DataError

__all__ = ["choose_rank", "largest_rank", "leftover_statistic", "remaining_p_value", "resolve_rank"]

NEARLY_FULL = 0.8
"""A rank of at least this share of min(d_u, d_v) is taken as full: the last directions are shared too."""

SLIGHT = 0.3
"""A canonical correlation below which a direction that was overlooked changes Var(S1) by less than a tenth at T = 0."""


def leftover_statistic(found: Canonical, k: int) -> tuple[float, float]:
    """Bartlett's statistic for "only the first k canonical correlations are nonzero", and its factor.

    -c sum_{i > k} log(1 - D_i^2) is chi-square with (d_u - k)(d_v - k) degrees of freedom, with
    Lawley's factor c = n - 1 - k - (d_u + d_v + 1)/2 + sum_{i <= k} D_i^-2 and n the number of independent rows. It needs
    uncorrelated *leftover* coordinates to be independent, which the model grants, and no normality.
    """
    squares = np.asarray(found.correlations, dtype=float) ** 2
    n = found.independent_rows(k)
    factor = n - 1 - k - (found.rank_u + found.rank_v + 1) / 2 + float(np.sum(1 / np.maximum(squares[:k], 1e-9)))
    if factor <= 0:
        return 0.0, 0.0
    return -factor * float(np.sum(np.log1p(-squares[k:]))), factor


def remaining_p_value(found: Canonical, k: int) -> float:
    """P-value of "only the first k canonical correlations are nonzero".

    Where the number of independent rows was estimated, the chi-square becomes an F.
    """
    statistic, factor = leftover_statistic(found, k)
    if factor == 0:
        return 1.0
    size = (found.rank_u - k) * (found.rank_v - k)
    if found.dependence is None:
        return float(chi2.sf(statistic, size))
    _, df, spread = found.dependence.at(k)
    if np.isinf(df):
        return float(chi2.sf(statistic / spread, size / spread))
    return float(f.sf(statistic / size, size / spread, df))


def choose_rank(found: Canonical, alpha: float = 0.01) -> int:
    """Number of shared directions.

    Tests k = 0, 1, ... and stops at the first k that is not rejected at level ``alpha``.  With too few rows
    for the test (n <= about (d_u + d_v)/2) nothing is rejected: reduce the views first.
    """
    full = len(found.correlations)
    k = 0
    while k < full and remaining_p_value(found, k) <= alpha:
        k += 1
    return full if full and k >= NEARLY_FULL * full else k


def largest_rank(found: Canonical, rank: int, level: float = 0.95) -> int:
    """The largest rank that the test cannot exclude.

    The statistic beyond ``rank`` is a noncentral chi-square whose noncentrality is c times the sum of D^2/(1 - D^2) of the true
    correlations left. Its upper confidence limit is shared out to as many directions as can have a correlation of ``SLIGHT``.
    """
    full = len(found.correlations)
    if rank >= full:
        return full
    statistic, factor = leftover_statistic(found, rank)
    if factor == 0:
        return full
    size, spread = (found.rank_u - rank) * (found.rank_v - rank), 1.0
    if found.dependence is not None:
        spread = found.dependence.at(rank)[2]

    def excess(noncentrality: float) -> float:
        return float(ncx2.cdf(statistic / spread, size / spread, noncentrality / spread)) - (1 - level)

    if chi2.cdf(statistic / spread, size / spread) <= 1 - level:  # less than chance leaves: no room for more
        return rank
    high = 1.0
    while excess(high) > 0:
        high *= 2
    most = brentq(excess, 1e-12, high)
    return min(full, rank + int(most / factor / (SLIGHT**2 / (1 - SLIGHT**2))))


def resolve_rank(rank: object, found: Canonical) -> int:
    """The `rank=` argument: "auto" (sequential test), "full", or a number."""
    full = len(found.correlations)
    if rank == "auto":
        return choose_rank(found)
    if rank == "full":
        return full
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)):
        raise ValueError(f"rank must be 'auto', 'full' or an integer, got {rank!r}")
    if not 0 <= rank <= full:
        raise DataError(
            f"rank={rank} is impossible: the views have {found.rank_u} and {found.rank_v} independent columns, so they "
            f"share at most {full} directions. If the shared part has more, it cannot be recovered from these views: "
            "add columns to the smaller one"
        )
    return int(rank)
