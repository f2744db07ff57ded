"""How many directions the views share: the sequential Bartlett-Lawley test."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from richcomponents.algebra import Array

NEARLY_FULL = 0.8
"""A rank of at least this share of min(d_u, d_v) is taken as full: the last directions are shared too."""


def remaining_p_value(correlations: Array, k: int, n: int, d_u: int, d_v: int) -> float:
    """P-value of "only the first k canonical correlations are nonzero".

    -c sum_{i > k} log(1 - D_i^2) is chi-square with (d_u - k)(d_v - k) degrees of freedom, with
    Lawley's factor c = n - 1 - k - (d_u + d_v + 1)/2 + sum_{i <= k} D_i^-2.  It needs uncorrelated
    *leftover* coordinates to be independent, which the model grants, and no normality.
    """
    squares = np.asarray(correlations, dtype=float) ** 2
    factor = n - 1 - k - (d_u + d_v + 1) / 2 + float(np.sum(1 / np.maximum(squares[:k], 1e-9)))
    if factor <= 0:
        return 1.0
    statistic = -factor * float(np.sum(np.log1p(-squares[k:])))
    return float(chi2.sf(statistic, (d_u - k) * (d_v - k)))


def choose_rank(correlations: Array, n: int, d_u: int, d_v: int, alpha: float = 0.01) -> int:
    """Number of shared directions.

    ``correlations`` (min(d_u, d_v),) decreasing; d_u and d_v are the ranks of the views.
    Tests k = 0, 1, ... and stops at the first k that is not rejected at level ``alpha``.  With too few rows
    for the test (n <= about (d_u + d_v)/2) nothing is rejected: reduce the views first.
    """
    full = min(d_u, d_v)
    k = 0
    while k < full and remaining_p_value(correlations, k, n, d_u, d_v) <= alpha:
        k += 1
    return full if full and k >= NEARLY_FULL * full else k
