"""Two views at rank r, in the user's units: one sample, or a stack of its delete-one-block replicates.

Notation: ``x``, ``y`` are the canonical coordinates of the two views, ``D`` the canonical
correlations, ``r`` the rank of the shared part, ``S = D D' + h T h`` the covariance of ``S2`` in ``x`` coordinates,
``h = (I - D D')^(1/2)`` and ``T = logistic(X)`` with ``X`` a free symmetric matrix.

The estimator maximises  ``energy(X; C, G) - (X - c)' Pi (X - c) / 2``  where ``C`` are the second moments of the views and
``G`` is the cross-block Gram matrix of the cumulants.  Both terms do not change when ``x`` or ``y`` are rotated, so a
replicate may use *any* whitened basis.  We take the one nearest to the basis of the full sample: it is a smooth function of
the replicate's second moments even where canonical correlations are (nearly) tied, and nothing has to be matched.

BOUNDS. What second moments alone say: the identified interval of every entry of Cov(S1) and of A, for any distribution.

Cov(S1) >= 0 and Cov(S3) >= 0 leave S = D^2 + h T h with any 0 <= T <= I on the r shared directions. With L = (u_from_x) h
(d_u x r, rows l_a; the user's units) and C0 = Cov(U) - Cov(S2) at T = 0 (residualising),

    Cov(S1)_ab = C0_ab - l_a' T l_b.

l_a' T l_b = tr(T (l_a l_b' + l_b l_a') / 2), and that symmetric matrix has the eigenvalues (l_a'l_b -+ |l_a||l_b|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector.

The inverse is monotone in the Loewner order: S^-1 = I + k T~ k with k = (D^-2 - I)^(1/2) and again any 0 <= T~ <= I, so the
entries of A = v_from_y D S^-1 x_from_u follow the same formula (A on the range of S2 when r < d_u).

Where the test cannot exclude more shared directions than the r that were found, those have correlations near zero, and their
directions are unknown. With D = 0 there, S lies anywhere between D^2 on the r directions and I: Cov(S1) is any matrix C with
0 <= C <= C0, whose entries fill [(C0_ab - s) / 2, (C0_ab + s) / 2], s^2 = C0_aa C0_bb (the same formula, rows of C0^(1/2)).
A = D S^-1 reaches D^-1, which has no bound as D goes to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import power, symmetric
from richcomponents.components.wide import Spread
from richcomponents.contrastive.posterior import (
    Beside,
    Logistic,
    energy_and_slope,
    energy_bend,
    in_chunks,
    symmetric_matrices,
)
from richcomponents.cumulants.estimate import delete_one, jackknife_error
from richcomponents.moments import Moments
from richcomponents.notebook import Table, Tabular
from richcomponents.pair.canonical import Canonical
from richcomponents.storage import storable

RIDGE = 4.0
"""On squared canonical correlations, in units of 1/n: D^-1 becomes D / (D^2 + RIDGE / n)."""

EDGE = 1e-4  # 1 - D^2 is kept above this: a canonical correlation of one leaves no room for S1


def lift(cross: Array, h: Array, ridge: float) -> Array:
    """cross^-1 h (..., r, r), as cross' (cross cross' + ridge)^-1 h."""
    turned = np.swapaxes(cross, -1, -2)
    return np.asarray(turned @ np.linalg.solve(cross @ turned + ridge * np.eye(cross.shape[-1]), h))


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
        state = state.up_to(2)  # higher orders, by block, are many
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


def lower_triangles(slope: Array) -> Array:
    """Gradients (..., r, r) in a symmetric matrix as those in its lower triangle, row by row, (..., r (r + 1) / 2)."""
    i, j = np.tril_indices(slope.shape[-1])
    return np.asarray(slope[..., i, j] * np.where(i == j, 1.0, 2.0))


def _whitened(pair: Pair, gram: Array) -> Array:
    """A Gram in the full sample's leading ``(x, y)`` in the coordinates w of the pair; stacks broadcast."""
    lift = pair.whiten @ pair.from_full
    return np.asarray(lift @ gram @ np.swapaxes(lift, -1, -2))


def energy_and_score(pair: Pair, gram: Array, t: Logistic, beside: Beside | None = None) -> tuple[Array, Array]:
    """Energy of ``gram`` inside the row space of ``[S | cross]``, and its gradient in the lower triangle of logit T.

    ``gram`` is in the full sample's leading ``(x, y)`` (not whitened); ``beside`` further evidence of the pair, added; stacks
    broadcast.
    """
    value, slope = energy_and_slope(t, pair.delta, _whitened(pair, gram), beside)
    return value, lower_triangles(slope)


def score(pair: Pair, gram: Array, t: Logistic, beside: Beside | None = None) -> Array:
    """The gradient alone."""
    return energy_and_score(pair, gram, t, beside)[1]


def bend(pair: Pair, gram: Array, t: Logistic, beside: Beside | None = None) -> Callable[[Array], Array]:
    """Directions (m, k) of the lower triangle -> minus the second derivative of the energy times each; of one pair."""
    of_matrices = energy_bend(t, pair.delta, _whitened(pair, gram), beside)

    def part(directions: Array) -> Array:
        return lower_triangles(of_matrices(symmetric_matrices(directions)))

    return lambda directions: in_chunks(part, directions)


@dataclass(frozen=True)
class Bounds:
    """Entrywise lower and upper end."""

    lower: Array
    upper: Array


@storable
@dataclass(frozen=True)
class IdentifiedSet:
    """All admissible Cov(S1), entry by entry: rows L (d, r) and top C0 (d, d), see above; more : further directions may be
    shared, and Cov(S1) is anything between 0 and C0."""

    rows: Array
    top: Spread
    more: bool = False

    def ends(self) -> tuple[Array, Array]:
        """Lower and upper end of every entry, (d, d) each."""
        top = np.asarray(self.top)
        return ends_below(top) if self.more else cov_s1_ends(self.rows, top)

    def variances(self) -> tuple[Array, Array]:
        """Lower and upper end of the variances, (d,) each."""
        top = np.array(self.top.diagonal())
        return np.zeros_like(top) if self.more else top - np.sum(self.rows**2, axis=1), top


def products_with_t(left: Array, right: Array) -> tuple[Array, Array]:
    """Ends of ``left_a' T right_b`` over 0 <= T <= I; ``left`` (..., m, r), ``right`` (..., n, r): (..., m, n) each."""
    dot = left @ np.swapaxes(right, -1, -2)
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    return (dot - size) / 2, (dot + size) / 2


def cov_s1_ends(rows: Array, top: Array) -> tuple[Array, Array]:
    """Lower and upper end of every entry of Cov(S1): rows L (..., d, r), top C0 (..., d, d)."""
    low, high = products_with_t(rows, rows)
    return top - high, top - low


def ends_below(top: Array) -> tuple[Array, Array]:
    """Lower and upper end of every entry of a covariance that lies between 0 and top (..., d, d)."""
    scale = np.sqrt(np.maximum(np.einsum("...ii->...i", top), 0.0))
    size = scale[..., :, None] * scale[..., None, :]
    return (top - size) / 2, (top + size) / 2


def covariance_bounds(basis: Pair, what: str, more: bool) -> Bounds:
    """Identified interval of every entry of Cov(S1), Cov(S2) or Cov(S3), for any rank (stacks allowed).

    what : "cov_s1", "cov_s2" or "cov_s3"; more : further directions may be shared.
    """
    own, cross = (basis.from_y, basis.cross.swapaxes(-1, -2)) if what == "cov_s3" else (basis.from_x, basis.cross)
    total = basis.cov_v() if what == "cov_s3" else basis.cov_u()
    square = cross @ cross.swapaxes(-1, -2)
    top = symmetric(total - own @ square @ own.swapaxes(-1, -2))
    slack = power(np.eye(square.shape[-1]) - square, 0.5, EDGE)
    low, high = ends_below(top) if more else cov_s1_ends(own @ slack, top)
    return Bounds(total - high, total - low) if what == "cov_s2" else Bounds(low, high)


def var_s1_bounds(basis: Pair, more: bool) -> Bounds:
    """Identified interval of every Var(S1): the diagonal of the above, without its other entries."""
    top = basis.var_s1(np.zeros_like(basis.cross))
    return Bounds(np.zeros_like(top) if more else top - np.sum((basis.from_x @ basis.h) ** 2, axis=-1), top)


def mixing_bounds(basis: Pair) -> Bounds:
    """Identified interval of every entry of A (on the range of S2), in original units, for any rank (stacks allowed)."""
    ct = np.swapaxes(basis.cross, -1, -2)
    square = basis.cross @ ct
    inv = power(square, -1.0, 1e-12)
    root = power(inv - np.eye(square.shape[-1]), 0.5, 0.0)
    left = basis.from_y @ ct @ root
    right = np.swapaxes(root @ basis.to_x, -1, -2)
    low, high = products_with_t(left, right)
    mid = basis.from_y @ ct @ basis.to_x
    return Bounds(mid + low, mid + high)


def bounds_with_noise(
    canonical: Canonical, rank: int, moments: BlockCovariances, what: str, more: bool = False
) -> tuple[Bounds, Bounds]:
    """The identified interval of every entry, and the block jackknife errors of its two ends.

    what : "mixing", "cov_s1", "var_s1", "cov_s2" or "cov_s3"; more : further directions than ``rank`` may be shared
    (covariances only).
    """

    def find(basis: Pair) -> Bounds:
        if what == "mixing":
            return mixing_bounds(basis)
        return var_s1_bounds(basis, more) if what == "var_s1" else covariance_bounds(basis, what, more)

    blocks = len(moments.count)
    full = find(near_pair(canonical, rank, moments.covariance(np.ones(blocks))))
    reps = find(near_pair(canonical, rank, moments.covariance(delete_one(blocks))))
    return full, Bounds(jackknife_error(reps.lower), jackknife_error(reps.upper))


@dataclass(frozen=True, repr=False)
class VarianceTable(Tabular):
    """Var(U) = Var(S1) + Var(S2), column by column; every array is (d_u,).

    total : Var(U), what ignoring V takes for Var(S1); own, shared : Var(S1) and Var(S2) as estimated;
    residualised : variance of the residual of U on the shared part of V, never below Var(S1);
    low, high : confidence limits of Var(S1) (of the identified set, when the higher orders say nothing);
    identified_low, identified_high : what second moments alone allow, for any distribution (nan for the paper's method).
    """

    names: tuple[str, ...]
    total: Array
    own: Array
    shared: Array
    low: Array
    high: Array
    identified_low: Array
    identified_high: Array

    @property
    def residualised(self) -> Array:
        """Removing what V predicts removes the least of S2 that is possible: the upper end of the identified set."""
        return self.identified_high

    @property
    def shared_share(self) -> Array:
        """Var(S2) / Var(U) (d_u,), between 0 and 1; 0 for a constant column."""
        positive = self.total > 0
        share = np.divide(self.shared, self.total, out=np.zeros_like(self.total), where=positive)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def rows(self) -> Table:
        """One dict per column of U, ready for a data frame."""
        columns = {
            "variance": self.total,
            "own (S1)": self.own,
            "low": self.low,
            "high": self.high,
            "shared (S2)": self.shared,
            "shared share": self.shared_share,
            "identified low": self.identified_low,
            "identified high": self.identified_high,
        }
        return Table({"name": n, **{k: float(v[i]) for k, v in columns.items()}} for i, n in enumerate(self.names))
