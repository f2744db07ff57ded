"""Canonical coordinates of two views, from their covariance matrices alone.

With ``x`` and ``y`` the canonical coordinates of the views U and V,

    Cov(x) = I,   Cov(y) = I,   Cov(x, y) = D  (diagonal, the canonical correlations).

In these coordinates the model U = S1 + S2, V = A S2 + S3 has ONE unknown symmetric matrix.  Write
S = Cov(S2) (seen from x) and h = (I - D^2)^(1/2).  The covariances of S1 and of S3 are positive
semi-definite if and only if

    S = D^2 + h T h     with    0 <= T <= I,

and then A = D S^-1, Cov(S1) = h (I - T) h on the shared coordinates and I elsewhere.
T = 0 is "regress with V as covariates" (residualising); T = I leaves no S1 in the shared directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import whitening
from richcomponents.components.linear_map import LinearMap
from richcomponents.errors import DataError
from richcomponents.moments import Moments
from richcomponents.moments.data import AffineMap, Data
from richcomponents.moments.dependence import Dependence
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

    @property
    def rank_u(self) -> int:
        """Number of linearly independent columns of U."""
        return len(self.x_from_u)

    @property
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

    def truncated(self, rank: int) -> Canonical:
        """The shared coordinates only."""
        return replace(
            self,
            x_from_u=self.x_from_u[:rank],
            u_from_x=self.u_from_x[:, :rank],
            y_from_v=self.y_from_v[:rank],
            v_from_y=self.v_from_y[:, :rank],
        )

    def leading(self, rank: int) -> Array:
        """The map from centred (u, v), (d_u + d_v,), to z = (x_1..x_r, y_1..y_r), as (2r, d_u + d_v)."""
        d_u, d_v = self.x_from_u.shape[1], self.y_from_v.shape[1]
        out = np.zeros((2 * rank, d_u + d_v))
        out[:rank, :d_u] = self.x_from_u[:rank]
        out[rank:, d_u:] = self.y_from_v[:rank]
        return out


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


def canonical_of(second: Moments, n_u: int, lost: float = 0.0) -> Canonical:
    """Canonical coordinates of a state whose first n_u columns are U and the others V; lost : rows spent on covariates."""
    C = second.covariance(unbiased=False)
    return canonical(C[:n_u, :n_u], C[:n_u, n_u:], C[n_u:, n_u:], second.n - lost)


def canonical_coordinates(
    data: Data, second: Moments, n_u: int, dependence: Dependence | None = None
) -> tuple[Canonical, AffineMap]:
    """Canonical coordinates that know how many independent rows they rest on, and the map to all of them.

    second : the moments of `data`; dependence : of the rows on each other, where it was measured before.
    """
    found = canonical_of(second, n_u, data.lost)
    for which, independent in (("first", found.rank_u), ("second", found.rank_v)):
        if not independent:
            raise DataError(f"no column of the {which} view varies: there is nothing to compare")
    everything = AffineMap(second.mean, linalg.block_diag(found.x_from_u.T, found.y_from_v.T))
    if dependence is None:
        dependence = data.dependence(everything, found.correlations, found.rank_u)
    return (found if dependence is None else found.with_dependence(dependence)), everything
