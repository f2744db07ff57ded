"""Two views at rank r, in the user's units: one sample, or a stack of its delete-one-block replicates.

Notation: ``x``, ``y`` are the canonical coordinates of the two views, ``D`` the canonical
correlations, ``r`` the rank of the shared part, ``S = D D' + h T h`` the covariance of ``S2`` in ``x`` coordinates,
``h = (I - D D')^(1/2)`` and ``T = logistic(X)`` with ``X`` a free symmetric matrix.

The estimator maximises  ``energy(X; C, G) - (X - c)' Pi (X - c) / 2``  where ``C`` are the second moments of the views and
``G`` is the cross-block Gram matrix of the cumulants.  Both terms do not change when ``x`` or ``y`` are rotated, so a
replicate may use *any* whitened basis.  We take the one nearest to the basis of the full sample: it is a smooth function of
the replicate's second moments even where canonical correlations are (nearly) tied, and nothing has to be matched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import Logistic, power, symmetric
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.energy import energy_and_slope
from richcomponents.moments import Moments

EDGE = 1e-4  # 1 - D^2 is kept above this: a canonical correlation of one leaves no room for S1


def quadratic(rows: Array, core: Array) -> Array:
    """Diagonal (..., d) of rows core rows', rows (..., d, k), core (..., k, k)."""
    return np.asarray(np.sum((rows @ core) * rows, axis=-1))


@dataclass(frozen=True)
class BlockCovariances:
    """First and second moments of the canonical coordinates z = (x, y) in each block, about the global mean."""

    count: Array  # (B,)
    first: Array  # (B, rank_u + rank_v), means
    second: Array  # (B, rank_u + rank_v, rank_u + rank_v), means of products

    @classmethod
    def of(cls, state: Moments) -> BlockCovariances:
        """From the state of z; empty blocks are left out."""
        used = np.flatnonzero(state.block_sizes)
        blocks = state.central_blocks()[used]
        count = state.block_sizes[used].astype(np.float64)
        first = blocks[:, state.layout.orders[1]] / count[:, None]
        return cls(count, first, state.block_covariances()[used])

    def covariance(self, weight: Array) -> Array:
        """Covariance of the pooled blocks, block ``k`` counted ``weight[..., k]`` times (stacks allowed)."""
        w = weight * self.count
        w = w / w.sum(-1, keepdims=True)
        mean = w @ self.first
        out: Array = np.einsum("...k,kij->...ij", w, self.second) - mean[..., :, None] * mean[..., None, :]
        return out


def mixture_tau(taus: Array, weights: Array) -> float:
    """One ``tau`` for a mixture over penalties: root mean square (a wide component with some weight must widen intervals)."""
    return float(np.sqrt((weights * taus**2).sum() / weights.sum()))


@dataclass(frozen=True)
class Pair:
    """Two views in a whitened basis of their shared directions: a sample or a stack of replicates (leading axes ``...``).

    ``outer`` (d_U, k) and ``inner`` (..., k, k): Cov(U) = outer inner outer', and Cov(V) alike. ``from_x`` (..., d_U, r) and
    ``to_x`` (..., r, d_U) lead from and to original units; ``from_full`` (..., 2r, 2r) maps the full sample's
    leading ``(x, y)`` to this basis; ``cross`` = Cov(x, y) (r x r, not diagonal in a replicate); ``h`` (..., r, r).
    """

    outer: Array
    inner: Array
    outer_v: Array
    inner_v: Array
    from_x: Array
    to_x: Array
    from_y: Array
    to_y: Array
    cross: Array
    from_full: Array
    h: Array

    @classmethod
    def at(cls, canonical: Canonical, rank: int) -> Pair:
        """The sample itself, in its own canonical coordinates: Cov(x, y) = D."""
        d = canonical.correlations[:rank]
        return cls(
            outer=canonical.u_from_x,
            inner=np.eye(canonical.rank_u),
            outer_v=canonical.v_from_y,
            inner_v=np.eye(canonical.rank_v),
            from_x=canonical.u_from_x[:, :rank],
            to_x=canonical.x_from_u[:rank],
            from_y=canonical.v_from_y[:, :rank],
            to_y=canonical.y_from_v[:rank],
            cross=np.diag(d),
            from_full=np.eye(2 * rank),
            h=np.diag(np.sqrt(1 - d**2)),
        )

    @property
    def delta(self) -> Array:
        """h^-1 cross: with it the energy of this pair is that of ``energy_and_slope``."""
        return np.asarray(np.linalg.solve(self.h, self.cross), dtype=np.float64)

    @property
    def whiten(self) -> Array:
        """(..., 2r, 2r), from (x, y) to w = (h^-1 (x - cross y), y), whose covariance is I."""
        r = self.h.shape[-1]
        out = np.zeros((*self.h.shape[:-2], 2 * r, 2 * r))
        out[..., :r, :r], out[..., :r, r:] = np.linalg.inv(self.h), -self.delta
        out[..., r:, r:] = np.eye(r)
        return out

    def shared(self, t: Array) -> Array:
        """``S``, the covariance of ``S2`` in this basis."""
        out: Array = self.cross @ np.swapaxes(self.cross, -1, -2) + self.h @ t @ self.h
        return out

    def cov_u(self) -> Array:
        """Cov(U) in original units."""
        out: Array = self.outer @ self.inner @ self.outer.T
        return out

    def cov_v(self) -> Array:
        """Cov(V) in original units."""
        out: Array = self.outer_v @ self.inner_v @ self.outer_v.T
        return out

    def cov_s1(self, t: Array) -> Array:
        """Cov(S1) in original units."""
        out: Array = self.cov_u() - self.from_x @ self.shared(t) @ np.swapaxes(self.from_x, -1, -2)
        return symmetric(out)

    def var_s1(self, t: Array) -> Array:
        """Its diagonal, (..., d_U)."""
        return quadratic(self.outer, self.inner) - quadratic(self.from_x, self.shared(t))

    def mixing(self, t: Array) -> Array:
        """A in original units: ``A`` on the range of ``S2``, zero on its complement in the metric of Cov(U)^-1."""
        out: Array = self.from_y @ np.swapaxes(self.cross, -1, -2) @ self.from_shared(t)
        return out

    def from_shared(self, t: Array) -> Array:
        """S^-1 to_x (..., r, d_U)."""
        return np.asarray(np.linalg.solve(self.shared(t), self.to_x))


def near_pair(canonical: Canonical, rank: int, cov: Array) -> Pair:
    """Whitened basis for the covariance ``cov`` of z = (x, y) (stacks allowed) nearest to the full sample's basis."""
    p, r = canonical.rank_u, rank
    cu, cv, cuv = cov[..., :p, :p], cov[..., p:, p:], cov[..., :p, p:]
    hu, hv = power(cu, -0.5, 1e-8), power(cv, -0.5, 1e-8)
    su, sv = power(cu, 0.5, 1e-8), power(cv, 0.5, 1e-8)
    core = hu @ cuv @ hv
    left, _, right = np.linalg.svd(core)
    left, right = _nearest(left[..., :, :r]), _nearest(np.swapaxes(right, -1, -2)[..., :, :r])
    tl, tr = np.swapaxes(left, -1, -2), np.swapaxes(right, -1, -2)
    cross = tl @ core @ right
    eye = np.broadcast_to(np.eye(r), cross.shape)
    ct = np.swapaxes(cross, -1, -2)
    from_full = np.zeros((*cross.shape[:-2], 2 * r, 2 * r))
    from_full[..., :r, :r] = (tl @ hu)[..., :r]
    from_full[..., r:, r:] = (tr @ hv)[..., :r]
    return Pair(
        outer=canonical.u_from_x,
        inner=cu,
        outer_v=canonical.v_from_y,
        inner_v=cv,
        from_x=canonical.u_from_x @ su @ left,
        to_x=tl @ hu @ canonical.x_from_u,
        from_y=canonical.v_from_y @ sv @ right,
        to_y=tr @ hv @ canonical.y_from_v,
        cross=cross,
        from_full=from_full,
        h=power(eye - cross @ ct, 0.5, EDGE),
    )


def _nearest(frame: Array) -> Array:
    """Rotate the columns of an orthonormal frame (..., d, r) so that they are nearest to the first r unit vectors."""
    r = frame.shape[-1]
    if r == 0:
        return frame
    a, _, b = np.linalg.svd(frame[..., :r, :])
    out: Array = frame @ np.swapaxes(a @ b, -1, -2)
    return out


def units(r: int) -> Array:
    """Symmetric unit matrices, (r(r+1)/2, r, r): coordinates are the entries of the lower triangle."""
    i, j = np.tril_indices(r)
    out = np.zeros((len(i), r, r))
    k = np.arange(len(i))
    out[k, i, j] = 1
    out[k, j, i] = 1
    return out


def energy_and_score(pair: Pair, gram: Array, t: Logistic) -> tuple[Array, Array]:
    """Energy of ``gram`` inside the row space of ``[S | cross]``, and its gradient in the coordinates of ``units``.

    ``gram`` is in the full sample's leading ``(x, y)`` (not whitened); stacks broadcast.
    """
    lift = pair.whiten @ pair.from_full
    value, slope = energy_and_slope(t, pair.delta, lift @ gram @ np.swapaxes(lift, -1, -2))
    i, j = np.tril_indices(slope.shape[-1])
    return value, slope[..., i, j] * np.where(i == j, 1.0, 2.0)


def score(pair: Pair, gram: Array, t: Logistic) -> Array:
    """The gradient alone."""
    return energy_and_score(pair, gram, t)[1]


def curvature(pair: Pair, gram: Array, x: Array, step: float = 1e-3) -> Array:
    """Minus the second derivative of the energy in the coordinates of ``units`` (central differences of the score)."""
    e: Array = units(x.shape[-1]) * step
    return symmetric((score(pair, gram, Logistic.at(x + e)) - score(pair, gram, Logistic.at(x - e))) / (-2 * step))
