"""Canonical coordinates of two views, from their covariance matrices alone.

With ``x`` and ``y`` the canonical coordinates of the views U and V,

    Cov(x) = I,   Cov(y) = I,   Cov(x, y) = D  (diagonal, the canonical correlations).

The model is written in these coordinates in pair/views.py.

How many directions the views share: the sequential Bartlett-Lawley test, and what it cannot exclude.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.optimize import brentq
from scipy.stats import chi2, f, ncx2

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import whitening
from richcomponents.components.wide import Factored, LinearMap, SearchSpace, Spread, triangular
from richcomponents.errors import DataError
from richcomponents.inference.verdicts import RULES, Test
from richcomponents.moments import Moments
from richcomponents.moments.data import AffineMap, Data, Dependence
from richcomponents.storage import storable

MAX_CORRELATION = 0.9995
"""Canonical correlations are clipped here: beyond it 1 - D^2 is rounding and sampling noise."""


@storable
@dataclass(frozen=True)
class Canonical:
    """Canonical coordinates ``x = x_from_u (u - mean)``, ``y = y_from_v (v - mean)``.

    ``rank_u <= d_u`` and ``rank_v <= d_v`` directions survive the removal of exact collinearities;
    all of them are kept (also those of the larger view that have no partner), shared ones first.

    ``n`` is the number of independent rows behind them: rows less fitted covariates, over the design effect of groups and
    weights.  Everything that speaks of noise reads it.  ``dependence`` : where that effect was estimated; None for
    independent rows.
    """

    correlations: Array  # D, (min(rank_u, rank_v),), decreasing, clipped
    x_from_u: Array  # (rank_u, d_u)
    y_from_v: Array  # (rank_v, d_v)
    u_from_x: Array  # (d_u, rank_u)
    v_from_y: Array  # (d_v, rank_v)
    n: float
    dependence: Dependence | None = None

    @cached_property
    def rank_u(self) -> int:
        """Number of linearly independent columns of U."""
        return len(self.x_from_u)

    @cached_property
    def rank_v(self) -> int:
        """Number of linearly independent columns of V."""
        return len(self.y_from_v)

    def independent_rows(self, k: int) -> float:
        """How many independent rows the coordinates beyond the first k are worth."""
        if self.dependence is None:
            return self.n
        return self.n * float(self.dependence.effect[0] / self.dependence.effect[k])

    def with_dependence(self, dependence: Dependence) -> Canonical:
        """The same coordinates of as many rows that depend on each other."""
        return replace(self, n=self.n / float(dependence.effect[0]), dependence=dependence)

    def composed(self, u: LinearMap, v: LinearMap) -> Canonical:
        """The maps of reduced or transformed columns, composed with the way to the user's columns."""
        return replace(
            self,
            x_from_u=self.x_from_u @ u.to,
            u_from_x=u.back @ self.u_from_x,
            y_from_v=self.y_from_v @ v.to,
            v_from_y=v.back @ self.v_from_y,
        )

    def exchanged(self) -> Canonical:
        """The same coordinates with V as the first view."""
        return replace(
            self, x_from_u=self.y_from_v, u_from_x=self.v_from_y, y_from_v=self.x_from_u, v_from_y=self.u_from_x
        )

    def leading(self, rank: int) -> Array:
        """The map from centred (u, v), (d_u + d_v,), to z = (x_1..x_r, y_1..y_r), as (2r, d_u + d_v)."""
        return np.asarray(linalg.block_diag(self.x_from_u[:rank], self.y_from_v[:rank]))


def canonical(cov_uu: Array, cov_uv: Array, cov_vv: Array, n: float) -> Canonical:
    """Canonical correlation analysis from Cov(U) (d_u, d_u), Cov(U, V) (d_u, d_v) and Cov(V) (d_v, d_v)."""
    white_u, colour_u = whitening(cov_uu)
    white_v, colour_v = whitening(cov_vv)
    left, values, right = np.linalg.svd(white_u @ cov_uv @ white_v.T, full_matrices=True)
    sign_u, sign_v = _signs(colour_u @ left, cov_uu), _signs(colour_v @ right.T, cov_vv)
    sign_v[: len(values)] = sign_u[: len(values)]  # a pair turns together
    left, right = left * sign_u, right * sign_v[:, None]
    return Canonical(
        correlations=np.clip(values, 0.0, MAX_CORRELATION),
        x_from_u=left.T @ white_u,
        y_from_v=right @ white_v,
        u_from_x=colour_u @ left,
        v_from_y=colour_v @ right.T,
        n=float(n),
    )


def _signs(loadings: Array, cov: Array) -> Array:
    """Signs (k,) of directions, loadings (d, k): the column that goes most with a direction goes up with it.

    A decomposition leaves signs to the machine. Seeded posterior draws are taken in these coordinates, so that without a
    rule two machines would disagree about the same data, in some designs by a percent.
    """
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    share = np.divide(loadings, scale[:, None], out=np.zeros_like(loadings), where=scale[:, None] > 0)
    largest = np.take_along_axis(share, np.argmax(np.abs(share), axis=0)[None], axis=0)[0]
    return np.where(largest < 0, -1.0, 1.0)


def canonical_coordinates(
    data: Data, second: Moments, n_u: int, dependence: Dependence | None = None
) -> tuple[Canonical, AffineMap]:
    """Canonical coordinates that know how many independent rows they rest on, and the map to all of them.

    second : the moments of `data`, whose first n_u columns are U; dependence : of the rows on each other, where it was measured
    before.
    """
    C = second.covariance(unbiased=False)
    found = canonical(C[:n_u, :n_u], C[:n_u, n_u:], C[n_u:, n_u:], second.n - data.lost)
    for which, independent in (("first", found.rank_u), ("second", found.rank_v)):
        if not independent:
            raise DataError(f"no column of the {which} view varies: there is nothing to compare")
    everything = AffineMap(second.mean, linalg.block_diag(found.x_from_u.T, found.y_from_v.T))
    if dependence is None:
        dependence = data.dependence(everything, found.correlations, found.rank_u)
    return (found if dependence is None else found.with_dependence(dependence)), everything


NEARLY_FULL = 0.8
"""A rank of at least this share of min(d_u, d_v) is taken as full: the last directions are shared too."""

LEVEL = RULES["shared"].below[0][0]
"""Of the test of the rank."""

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


def choose_rank(found: Canonical, alpha: float = LEVEL) -> int:
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


def leftover_test(found: Canonical, rank: int) -> Test:
    """Bartlett-Lawley test that the canonical correlations after the first `rank` are zero."""
    df = (found.rank_u - rank) * (found.rank_v - rank)
    statistic, p = (leftover_statistic(found, rank)[0], remaining_p_value(found, rank)) if df else (0.0, 1.0)
    says = f"Correlation is left beyond rank {rank}: the views may share more."
    return Test("leftover", statistic, (df,), p, says, "Check that V holds controls only, or give rank=.")


def unseen(found: Canonical, rank: int, views: tuple[str, str]) -> str:
    """In words, that the second view cannot show all that the first may share; empty where it can."""
    if not found.rank_v <= rank or not found.rank_v < found.rank_u:
        return ""
    first, second = views
    return (
        f"all {found.rank_v} directions of {second} are shared, and {first} has {found.rank_u}: what else of {first} "
        f"comes from the shared part cannot be seen in {second}, and counts as {first}'s own. Add columns to {second}"
    )


# ---- the views in the user's columns


def first_copies(covariance: Array) -> IntArray:
    """(d,) the first column that each is a copy of, but for units and rounding; -1 where it does not vary."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    alike = np.abs(covariance) > np.sqrt(1 - 1e-9) * np.outer(scale, scale)
    return np.where(scale > 0, np.argmax(alike, axis=1), -1)


def every_column(
    space: SearchSpace, second: Moments, inner: Canonical, found: Canonical, r: int
) -> list[tuple[Spread, Array]]:
    """Of both views: the covariance in the user's columns, and the loadings (d, r) of the shared part in all of them.

    Where a view is wide they are read from its rows: with `other` the r shared variates of the other view, in which Cov = I,
    loadings are Cov(view, other) / D, because the other view sees nothing of what is this view's own.
    """
    d = np.maximum(found.correlations[:r], 1e-9)
    n_u, C = inner.x_from_u.shape[1], second.covariance(unbiased=False)
    maps = (found.x_from_u, found.u_from_x), (found.y_from_v, found.v_from_y)
    inside, split = (C[:n_u, :n_u], C[n_u:, n_u:]), [len(found.u_from_x)]
    out: list[tuple[Spread, Array]] = []
    for i, frame in enumerate(space.frames.values()):
        if space.rows is not None and len(frame.to) < len(frame.back):
            views = np.split(space.rows, split, axis=1)
            view, other = views[i], views[1 - i] @ maps[1 - i][0][:r].T
            together = view.T @ other / len(view)  # regression coefficients
            left = triangular(view - other @ together.T)
            out.append((Factored.of(left).plus(together.T, np.eye(r)), together / d))
        else:
            out.append((frame.back @ inside[i] @ frame.back.T, maps[i][1][:, :r]))
    return out
