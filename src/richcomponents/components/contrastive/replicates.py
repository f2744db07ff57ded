"""Delete-one-block replicates of the fit, to first order, without refitting.

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
from richcomponents.components.contrastive.canonical import Canonical
from richcomponents.moments import Moments

EDGE = 1e-4  # 1 - D^2 is kept above this: a canonical correlation of one leaves no room for S1


def sym(a: Array) -> Array:
    """Symmetric part of (a stack of) square matrices."""
    out: Array = (a + np.swapaxes(a, -1, -2)) / 2
    return out


def matrix_power(a: Array, power: float, floor: float) -> Array:
    """``a ** power`` for (a stack of) symmetric matrices; eigenvalues below ``floor`` are raised to it."""
    w, q = np.linalg.eigh(a)
    w = np.maximum(w, floor)
    out: Array = (q * w[..., None, :] ** power) @ np.swapaxes(q, -1, -2)
    return out


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


def delete_one(blocks: int) -> Array:
    """Weights of the delete-one-block replicates, (B, B)."""
    out: Array = 1.0 - np.eye(blocks)
    return out


def mixture_tau(taus: Array, weights: Array) -> float:
    """One ``tau`` for a mixture over penalties: root mean square (a wide component with some weight must widen intervals)."""
    return float(np.sqrt((weights * taus**2).sum() / weights.sum()))


def pair_mean(gram: Array, weight: Array) -> Array:
    """Mean of ``gram[a, b]`` over pairs ``a != b`` with weights ``weight[..., a] * weight[..., b]``: (..., p, p)."""
    w = weight[..., :, None] * weight[..., None, :] * (1 - np.eye(gram.shape[0]))
    w = w / w.sum((-1, -2), keepdims=True)
    out: Array = np.tensordot(w, gram, axes=((-2, -1), (0, 1)))
    return sym(out)


@dataclass(frozen=True)
class Basis:
    """A whitened basis of the shared directions for one sample or a stack of replicates (leading axes ``...``).

    ``outer`` (d_U, k) and ``inner`` (..., k, k): Cov(U) = outer inner outer', and Cov(V) alike. ``from_x`` (..., d_U, r) and
    ``to_x`` (..., r, d_U) lead from and to original units; ``jump`` (..., 2r, 2r) maps the full sample's leading
    ``(x, y)`` to this basis; ``cross`` = Cov(x, y) (r x r, not diagonal in a replicate).
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
    jump: Array
    slack: Array  # h
    white: Array  # [[I, cross], [cross', I]]^(-1/2)

    def shared(self, t: Array) -> Array:
        """``S``, the covariance of ``S2`` in this basis."""
        out: Array = self.cross @ np.swapaxes(self.cross, -1, -2) + self.slack @ t @ self.slack
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
        return sym(out)

    def var_s1(self, t: Array) -> Array:
        """Its diagonal, (..., d_U)."""
        return quadratic(self.outer, self.inner) - quadratic(self.from_x, self.shared(t))

    def mixing(self, t: Array) -> Array:
        """A in original units: ``A`` on the range of ``S2``, zero on its complement in the metric of Cov(U)^-1."""
        inner = np.linalg.solve(self.shared(t), self.to_x)
        out: Array = self.from_y @ np.swapaxes(self.cross, -1, -2) @ inner
        return out


def near_basis(canonical: Canonical, rank: int, cov: Array) -> Basis:
    """Whitened basis for the covariance ``cov`` of z = (x, y) (stacks allowed) nearest to the full sample's basis."""
    p, r = canonical.rank_u, rank
    cu, cv, cuv = cov[..., :p, :p], cov[..., p:, p:], cov[..., :p, p:]
    hu, hv = matrix_power(cu, -0.5, 1e-8), matrix_power(cv, -0.5, 1e-8)
    su, sv = matrix_power(cu, 0.5, 1e-8), matrix_power(cv, 0.5, 1e-8)
    core = hu @ cuv @ hv
    left, _, right = np.linalg.svd(core)
    left, right = _nearest(left[..., :, :r]), _nearest(np.swapaxes(right, -1, -2)[..., :, :r])
    tl, tr = np.swapaxes(left, -1, -2), np.swapaxes(right, -1, -2)
    cross = tl @ core @ right
    eye = np.broadcast_to(np.eye(r), cross.shape)
    ct = np.swapaxes(cross, -1, -2)
    sigma = np.concatenate([np.concatenate([eye, cross], -1), np.concatenate([ct, eye], -1)], -2)
    jump = np.zeros_like(sigma)
    jump[..., :r, :r] = (tl @ hu)[..., :r]
    jump[..., r:, r:] = (tr @ hv)[..., :r]
    return Basis(
        outer=canonical.u_from_x,
        inner=cu,
        outer_v=canonical.v_from_y,
        inner_v=cv,
        from_x=canonical.u_from_x @ su @ left,
        to_x=tl @ hu @ canonical.x_from_u,
        from_y=canonical.v_from_y @ sv @ right,
        to_y=tr @ hv @ canonical.y_from_v,
        cross=cross,
        jump=jump,
        slack=matrix_power(eye - cross @ ct, 0.5, EDGE),
        white=matrix_power(sigma, -0.5, EDGE),
    )


def _nearest(frame: Array) -> Array:
    """Rotate the columns of an orthonormal frame (..., d, r) so that they are nearest to the first r unit vectors."""
    r = frame.shape[-1]
    if r == 0:
        return frame
    a, _, b = np.linalg.svd(frame[..., :r, :])
    out: Array = frame @ np.swapaxes(a @ b, -1, -2)
    return out


@dataclass(frozen=True)
class Link:
    """``T = logistic(X)`` at one symmetric ``X`` (or a stack), with its derivative (Daleckii-Krein)."""

    t: Array
    vectors: Array
    quotient: Array

    @classmethod
    def at(cls, x: Array) -> Link:
        """Evaluate at ``x`` (..., r, r)."""
        w, q = np.linalg.eigh(x)
        w = np.clip(w, -15.0, 15.0)
        s = 1 / (1 + np.exp(-w))
        slope = s * (1 - s)
        gap = w[..., :, None] - w[..., None, :]
        near = np.abs(gap) < 1e-6
        rise = s[..., :, None] - s[..., None, :]
        mean = (slope[..., :, None] + slope[..., None, :]) / 2
        return cls(
            (q * s[..., None, :]) @ np.swapaxes(q, -1, -2), q, np.where(near, mean, rise / np.where(near, 1.0, gap))
        )

    def derivative(self, direction: Array) -> Array:
        """dT for dX = ``direction`` (self-adjoint, so also the pull-back of a gradient)."""
        qt = np.swapaxes(self.vectors, -1, -2)
        out: Array = self.vectors @ (self.quotient * (qt @ direction @ self.vectors)) @ qt
        return out


def logit(t: Array, edge: float = 1e-6) -> Array:
    """Inverse of the link: the symmetric ``X`` with ``T = logistic(X)``; eigenvalues of T are kept in [edge, 1 - edge]."""
    w, q = np.linalg.eigh(t)
    w = np.clip(w, edge, 1 - edge)
    out: Array = (q * np.log(w / (1 - w))[..., None, :]) @ np.swapaxes(q, -1, -2)
    return out


def units(r: int) -> Array:
    """Symmetric unit matrices, (r(r+1)/2, r, r): coordinates are the entries of the lower triangle."""
    i, j = np.tril_indices(r)
    out = np.zeros((len(i), r, r))
    k = np.arange(len(i))
    out[k, i, j] = 1
    out[k, j, i] = 1
    return out


def score(basis: Basis, gram: Array, link: Link) -> Array:
    """Gradient of the energy of ``gram`` inside the row space of ``[S | cross]`` in the coordinates of ``units``.

    ``gram`` is in the full sample's leading ``(x, y)`` (not whitened); stacks broadcast.
    """
    r = basis.cross.shape[-1]
    lift = basis.white @ basis.jump
    g = lift @ gram @ np.swapaxes(lift, -1, -2)
    rows = np.concatenate(np.broadcast_arrays(basis.shared(link.t), basis.cross), -1) @ basis.white
    dual = np.linalg.solve(rows @ np.swapaxes(rows, -1, -2), rows)
    pg = dual @ g
    d = 2 * ((pg - (pg @ np.swapaxes(rows, -1, -2)) @ dual) @ basis.white)[..., :r]
    d = link.derivative(basis.slack @ sym(d) @ basis.slack)
    i, j = np.tril_indices(r)
    out: Array = d[..., i, j] * np.where(i == j, 1.0, 2.0)
    return out


def curvature(basis: Basis, gram: Array, x: Array, step: float = 1e-3) -> Array:
    """Minus the second derivative of the energy in the coordinates of ``units`` (central differences of the score)."""
    e: Array = units(x.shape[-1]) * step
    h: Array = (score(basis, gram, Link.at(x + e)) - score(basis, gram, Link.at(x - e))) / (-2 * step)
    return sym(h)


def prior_precision(features: Array, sd: Array, tau: float) -> Array:
    """Precision of ``X`` in the coordinates of ``units`` when X = c + sum_j b_j diag(features[:, j]) + E.

    b_j ~ N(0, sd_j^2); E has density exp(-|E|^2 / (2 tau^2)) (Frobenius norm).
    """
    r = len(features)
    i, j = np.tril_indices(r)
    cov = np.diag(tau**2 / np.where(i == j, 1.0, 2.0)).astype(np.float64)
    full = np.zeros((len(i), features.shape[1]))
    full[i == j] = features
    out: Array = np.linalg.inv(cov + (full * sd**2) @ full.T).astype(np.float64)
    return out


def sandwich_inverse(curve: Array, precision: Array, floor: float = 0.5) -> Array:
    """(curve + precision)^-1 with the eigenvalues relative to ``precision`` kept above ``floor`` (the mode may be flat)."""
    root = np.linalg.cholesky(np.linalg.inv(precision))  # precision^-1 = root root'
    w, q = np.linalg.eigh(np.eye(len(curve)) + sym(root.T @ curve @ root))
    m = root @ q
    out: Array = (m / np.maximum(w, floor)) @ m.T
    return out
