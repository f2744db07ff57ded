"""What second moments alone say: the identified interval of every entry of Cov(S1) and of A, for any distribution.

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

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import power, symmetric
from richcomponents.components.covariance import Spread
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.pair import EDGE, BlockCovariances, Pair, near_pair
from richcomponents.cumulants.jackknife import delete_one, jackknife_error
from richcomponents.storage import storable


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


def _range(left: Array, right: Array) -> tuple[Array, Array]:
    """Ends of ``left_a' T right_b`` over 0 <= T <= I; ``left`` (..., m, r), ``right`` (..., n, r): (..., m, n) each."""
    dot = left @ np.swapaxes(right, -1, -2)
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    return (dot - size) / 2, (dot + size) / 2


def cov_s1_ends(rows: Array, top: Array) -> tuple[Array, Array]:
    """Lower and upper end of every entry of Cov(S1): rows L (..., d, r), top C0 (..., d, d)."""
    low, high = _range(rows, rows)
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
    low, high = _range(left, right)
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
