"""Two views in canonical coordinates, and at rank r.

Canonical coordinates of two views, from their covariance matrices alone.

With ``x`` and ``y`` the canonical coordinates of the views U and V,

    Cov(x) = I,   Cov(y) = I,   Cov(x, y) = D  (diagonal, the canonical correlations).

The model is written in these coordinates in pair/views.py.

How many directions the views share: the sequential Bartlett-Lawley test, and what it cannot exclude.

Two views at rank r: second moments of one sample, or of a stack of replicates, and what they are at a given T.

Let x, y be white shared coordinates of the views, K = Cov(x, y) (r x r), h = (I - K K')^(1/2). The model U = S1 + S2,
V = A S2 + S3 leaves ONE symmetric matrix open,

    S = Cov(S2) = K K' + h T h  in x,     0 <= T <= I:

Cov(S1) = Cov(U) - S on the shared coordinates, A = K'S^-1, Cov(S3) = Cov(V) - K'S^-1 K. T = 0 is residualising U on V; T = I is
regressing V on U. All functions take leading axes ("..."): none for a sample, (B,) for the samples without one block each.

A replicate takes the white basis that is nearest to the one of the whole sample: a smooth function of its second moments, also
where canonical correlations are tied, and nothing has to be matched. Coordinates z = (x_1.., y_1..) of the whole sample are
those of `Canonical`, so that no number here has a unit.

An answer is f(pair, T, doubt): of a sample or of a stack of replicates, at T (..., r, r); doubt = E (T - E T)^2 (r, r) where T
is an estimate, zero where it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, stats
from scipy.optimize import brentq
from scipy.stats import chi2, f, ncx2

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread, power, symmetric, whitening
from richcomponents.components.wide import Factored, LinearMap, SearchSpace, Spread, triangular
from richcomponents.errors import DataError
from richcomponents.inference.draws import Draws, Metric, Shrunk, share_of
from richcomponents.inference.posterior import Evidence, Posterior, infer
from richcomponents.inference.verdicts import GATE, RULES, Test, gate
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


SINGULAR = 1e-8
"""Variances in white coordinates are kept above this where they are inverted."""

MOST_CORRECTED = 40
"""Leading shared directions that have a T of their own; the others are residualised."""


@storable
@dataclass(frozen=True, eq=False)
class BlockSums:
    """Rows (B,), means (B, k) and mean products (B, k, k) of the coordinates z in each block, about the mean of all rows."""

    count: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, state: Moments) -> BlockSums:
        """From the state of z; empty blocks are left out."""
        state = state.up_to(2)  # higher orders, by block, are many
        used = np.flatnonzero(state.block_sizes)
        count = state.block_sizes[used].astype(np.float64)
        first = state.central_blocks()[used][:, state.layout.orders[1]] / count[:, None]
        return cls(count, first, state.block_covariances()[used])

    def select(self, columns: IntArray) -> BlockSums:
        """Of these coordinates, in this order."""
        return BlockSums(self.count, self.first[:, columns], self.second[:, columns[:, None], columns])

    def covariance(self, kept: Array) -> Array:
        """Covariance (..., k, k) of the pooled blocks, block b counted kept[..., b] times."""
        weight = kept * self.count
        weight = weight / weight.sum(-1, keepdims=True)
        mean = weight @ self.first
        pooled = np.tensordot(weight, self.second, 1)
        return np.asarray(pooled - mean[..., :, None] * mean[..., None, :])


@storable
@dataclass(frozen=True, eq=False)
class Pair:
    """canonical : coordinates of the whole sample, in the user's columns; covariance (..., k, k) : of z = (x, y), all of them;
    n (...) : independent rows; kept (..., B) : which blocks; to_x (..., r, k_u), to_y (..., r, k_v) : to the shared
    coordinates, from those of the whole sample.

    corrected : so many leading coordinates have a T; the others have T = 0.
    """

    canonical: Canonical
    covariance: Array
    n: Array
    kept: Array
    to_x: Array
    to_y: Array
    corrected: int

    @classmethod
    def of(
        cls, canonical: Canonical, covariance: Array, n: Array, kept: Array, rank: int, corrected: int = MOST_CORRECTED
    ) -> Pair:
        """The basis nearest to the first `rank` coordinates of `canonical`."""
        first, k_u = min(rank, corrected), canonical.rank_u
        cu, cv, cross = covariance[..., :k_u, :k_u], covariance[..., k_u:, k_u:], covariance[..., :k_u, k_u:]
        white_u, white_v = power(cu, -0.5, SINGULAR), power(cv, -0.5, SINGULAR)
        left, d, right = np.linalg.svd(white_u @ cross @ white_v)
        if (excess := np.maximum(d - MAX_CORRELATION, 0.0)).any():  # replicates have the bound of the whole sample
            m, covariance = d.shape[-1], covariance.copy()
            cross = cross - (cu @ white_u @ left[..., :m] * excess[..., None, :]) @ (right[..., :m, :] @ white_v @ cv)
            covariance[..., :k_u, k_u:], covariance[..., k_u:, :k_u] = cross, cross.mT
        groups = (slice(0, first), slice(first, rank))
        to_x = np.concatenate([nearest(left[..., :, g], g) for g in groups], axis=-1)
        to_y = np.concatenate([nearest(right.mT[..., :, g], g) for g in groups], axis=-1)
        return cls(canonical, covariance, np.asarray(n), kept, to_x.mT @ white_u, to_y.mT @ white_v, first)

    @classmethod
    def whole(cls, canonical: Canonical, blocks: int, rank: int, corrected: int = MOST_CORRECTED) -> Pair:
        """The sample itself: Cov(x, y) = D exactly."""
        k, k_u = canonical.rank_u + canonical.rank_v, canonical.rank_u
        covariance, at = np.eye(k), np.arange(len(canonical.correlations))
        covariance[at, k_u + at] = covariance[k_u + at, at] = canonical.correlations
        eye_u, eye_v, n = np.eye(k_u)[:rank], np.eye(k - k_u)[:rank], np.asarray(canonical.n)
        return cls(canonical, covariance, n, np.ones(blocks), eye_u, eye_v, min(rank, corrected))

    @classmethod
    def left_out(cls, canonical: Canonical, sums: BlockSums, rank: int) -> Pair:
        """The stack (B,) of the samples without one block each; of one block nothing can be left out."""
        kept = np.asarray(1.0 - np.eye(len(sums.count))) if len(sums.count) > 1 else np.ones((1, 1))
        n = canonical.n * (kept @ sums.count) / sums.count.sum()
        return cls.of(canonical, sums.covariance(kept), n, kept, rank)

    @cached_property
    def rank(self) -> int:
        return int(self.to_x.shape[-2])

    def leading(self) -> Pair:
        """The coordinates that have a T."""
        if self.corrected == self.rank:
            return self
        return replace(self, to_x=self.to_x[..., : self.corrected, :], to_y=self.to_y[..., : self.corrected, :])

    # ---- second moments, in coordinates of the whole sample

    @property
    def cov_x(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.covariance[..., :k, :k])

    @property
    def cov_y(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.covariance[..., k:, k:])

    @cached_property
    def from_x(self) -> Array:
        """(..., k_u, r): the loadings of the shared coordinates."""
        return np.asarray(self.cov_x @ self.to_x.mT)

    @cached_property
    def from_y(self) -> Array:
        return np.asarray(self.cov_y @ self.to_y.mT)

    @cached_property
    def K(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.to_x @ self.covariance[..., :k, k:] @ self.to_y.mT)

    @cached_property
    def h(self) -> Array:
        return power(np.eye(self.rank) - self.K @ self.K.mT, 0.5, SINGULAR)

    @cached_property
    def slope(self) -> Array:
        """h^-1 K."""
        return np.asarray(np.linalg.solve(self.h, self.K))

    @cached_property
    def whitening(self) -> Array:
        """(x, y) of the whole sample -> w = (h^-1 (x - K y), y), jointly white, (..., 2r, 2r)."""
        r = self.rank
        out = np.zeros((*self.K.shape[:-2], 2 * r, 2 * r))
        to_x, to_y = self.to_x[..., :r], self.to_y[..., :r]
        out[..., :r, :r], out[..., r:, r:] = np.linalg.solve(self.h, to_x), to_y
        out[..., :r, r:] = -self.slope @ to_y
        return out

    @cached_property
    def lift(self) -> Array:
        """(..., d_u, r): the same in the user's columns."""
        return np.asarray(self.canonical.u_from_x @ self.from_x)

    @cached_property
    def into(self) -> Array:
        """W h^-1 (..., d_u, r): from h times the shared coordinates to coefficients on the user's columns."""
        return np.asarray(self.canonical.x_from_u.T @ np.linalg.solve(self.h, self.to_x).mT)

    @cached_property
    def in_columns(self) -> tuple[Array, Array, Array, Array]:
        """In the user's columns: Cov(S1) at T = 0, F with Cov(S1) = that - F T F', Cov(V), and G with Cov(S3) = Cov(V) -
        G S^-1 G'."""
        loadings = self.canonical.v_from_y @ self.from_y @ self.K.mT
        cov_v = self.canonical.v_from_y @ self.cov_y @ self.canonical.v_from_y.T
        return self.cov_s1(np.zeros_like(self.K)), self.lift @ self.h, cov_v, loadings

    # ---- at a given T

    def S(self, T: Array) -> Array:
        """Cov(S2) in x."""
        return np.asarray(self.K @ self.K.mT + self.h @ T @ self.h)

    def own_x(self, T: Array) -> Array:
        """Cov(S1) in the coordinates of the whole sample, (..., k_u, k_u)."""
        return symmetric(self.cov_x - self.from_x @ self.S(T) @ self.from_x.mT)

    # ---- the same in the user's columns

    def cov_s1(self, T: Array) -> Array:
        back = self.canonical.u_from_x
        return np.asarray(back @ self.own_x(T) @ back.T)

    def var_s1(self, T: Array) -> Array:
        """(..., d_u): its diagonal, without the rest: l'T l of each row of `lift` is linear in T."""
        back, lift = self.canonical.u_from_x, self.lift @ self.h
        top = np.sum((back @ self.own_x(np.zeros_like(self.K))) * back, axis=-1)
        squares = (lift[..., :, None] * lift[..., None, :]).reshape(*lift.shape[:-1], -1)
        return np.asarray(top - (squares @ T.reshape(*T.shape[:-2], -1, 1))[..., 0])

    def cov_s2(self, T: Array) -> Array:
        return symmetric(self.lift @ self.S(T) @ self.lift.mT)

    def mixing(self, T: Array) -> Array:
        """A on the range of S2, zero on its complement in the metric of Cov(U)^-1."""
        into = self.canonical.v_from_y @ self.from_y @ self.K.mT
        return np.asarray(into @ np.linalg.solve(self.S(T), self.to_x @ self.canonical.x_from_u))

    # ---- with an outcome

    def regressed(self, with_u: Array, with_v: Array, beside: int) -> tuple[Array, Array]:
        """Of covariances with an outcome (..., d_u) and (..., d_v): least squares (..., d_u) on U, with `beside` variates of V,
        and Cov(y, outcome) (..., r)."""
        found, r = self.canonical, self.rank
        x, y = with_u @ found.x_from_u.T, with_v @ found.y_from_v.T
        with_y = self.to_y @ y[..., None]
        own, covariance = x[..., None] - self.from_x @ self.K @ with_y, self.own_x(np.zeros_like(self.K))
        if beside > r:
            more = found.rank_u + np.arange(r, beside)
            between = self.covariance[..., : found.rank_u, more]
            rest = np.linalg.solve(self.covariance[..., more[:, None], more], between.mT)
            own = own - rest.mT @ y[..., r:beside, None]
            covariance = covariance - between @ rest
        return (power(covariance, -1.0, SINGULAR) @ own)[..., 0] @ found.x_from_u, with_y[..., 0]


def nearest(frame: Array, places: slice) -> Array:
    """Orthonormal columns (..., k, m), rotated so that they are nearest to the unit vectors of `places`."""
    if frame.shape[-1] == 0:
        return frame
    a, _, b = np.linalg.svd(frame[..., places, :])
    return np.asarray(frame @ (a @ b).mT)


# ---- what is known of T, and every answer

Answer = Callable[[Any, Array, Array], Array]


@storable
@dataclass(frozen=True, eq=False)
class PairFit:
    """pair : the whole sample; left_out : without each block; posterior : of T (r, r), zero beyond the corrected directions."""

    pair: Pair
    left_out: Pair
    posterior: Posterior

    @classmethod
    def of(
        cls, pair: Pair, left_out: Pair, evidences: Sequence[Evidence], seed: int | None = 0, signs: Array | None = None
    ) -> PairFit:
        """signs (m,) : see `infer`."""
        if pair.rank == 0:
            T = np.zeros((0, 0))
            return cls(pair, left_out, Posterior(Draws.certain(T, np.zeros((len(left_out.n), 0, 0)))))
        with one_blas_thread():
            posterior = infer(pair.leading(), left_out.leading(), evidences, seed, signs)
        if pair.corrected < pair.rank:
            posterior = replace(posterior, T=posterior.T.map(lambda T: padded(T, pair.rank)))
        return cls(pair, left_out, posterior)

    @property
    def rank(self) -> int:
        return self.pair.rank

    @cached_property
    def gate(self) -> float:
        """0 to 1: whether any evidence tells T from T = 0."""
        return gate(self.strength)

    @cached_property
    def strength(self) -> float:
        """Of the evidence that tells T best from T = 0, in standard errors."""
        return max(self.posterior.strengths.values(), default=0.0)

    @property
    def identified(self) -> Test:
        """Whether any evidence tells T from T = 0, in standard errors."""
        says = f"How much U and V share differs by {self.strength:.1f} standard errors from the least that is possible."
        if self.strength < GATE[0]:
            says = "Skewness, kurtosis and errors of columns say little about how much U and V share."
        p = float(stats.norm.sf(self.strength))
        return Test("identified", self.strength, (), p, says, "More samples or more controls help.")

    def answer(
        self,
        f: Answer,
        *,
        end: float = 0.0,
        share: float | None = None,
        gate: float | None = None,
        metric: Metric = np.asarray,
        at: tuple[Any, Any] | None = None,
    ) -> Shrunk:
        """From T = end I, of the corrected directions, to the posterior of T: protected, or at a share that is given.

        gate : by default that of T = 0: nobody is content with A at T = I, the regression of V on U. at : what f takes, of all
        rows and without each block, by default the pairs.
        """
        here, left_out = (self.pair, self.left_out) if at is None else at
        T, doubt = self.posterior.T, self.posterior.doubt
        start, none = padded(end * np.eye(self.pair.corrected), self.rank), np.zeros_like(doubt)
        safe = Draws.certain(f(here, start, none), f(left_out, np.broadcast_to(start, T.blocks.shape), none))
        value = f(here, T.value, doubt)
        drawn = self.posterior.resampled(np.size(value)).T
        full = Draws(value, f(left_out, T.blocks, doubt), f(here, drawn.posterior, none), drawn.weight)
        if share is None:
            gate = gate if gate is not None else self.gate if end == 0 else 1.0
            share = share_of(safe, full, gate, metric)
        return Shrunk.at(safe, full, share)


def padded(T: Array, rank: int) -> Array:
    """(..., m, m) -> (..., r, r), with zeros."""
    out = np.zeros((*T.shape[:-2], rank, rank))
    out[..., : T.shape[-1], : T.shape[-1]] = T
    return out
