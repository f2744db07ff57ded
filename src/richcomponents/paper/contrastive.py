"""Section 3.1 and Appendix B.1: two views, U = S1 + S2 and V = A S2 + S3 (equation 1).

Right for exact cumulants, too noisy at real sample sizes: with d^3 rows of noise on both sides of equation (2), its
pseudo-inverse is attenuated by the noise it divides by. `method="efficient"` exists because of that.

Equation (3) is one cross-cumulant, by linearity: k_t(S1) = k_t(U) - k_t(U, ..., U, A^-1 V) = k_t(U, ..., U, R), R = U - A^-1 V.
So an :class:`Extraction`, which all learners take, is U for all slots but one and R for that one. On true samples R = U, and
the same functions show what their polynomials alone do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from richcomponents.algebra import Array, IntArray, symmetrise, unfold
from richcomponents.components.component import Term, Terms
from richcomponents.cumulants import Cumulants, cross_cumulant, cumulant
from richcomponents.moments import Moments


def truncated_pinv(matrix: Array, rank: int | None = None) -> Array:
    """Pseudo-inverse from the `rank` largest singular values (all of them by default): Appendix D's for low-rank S2.

    >>> truncated_pinv(np.diag([2.0, 1e-3]), 1).round(3).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > np.finfo(float).eps * max(matrix.shape) * max(values[0], np.finfo(float).tiny)
    if rank is not None:
        kept &= np.arange(len(values)) < rank
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    return np.asarray((right.T * inverse) @ left.T)


def side_by_side(*views: Array, order: int, unbiased: bool = True) -> tuple[Cumulants, list[IntArray]]:
    """Cumulants of the columns of all views, and where those of each stand; unbiased : k-statistics, as the paper has, or the
    cumulants of the rows as if they were the population."""
    ends = np.cumsum([0, *(view.shape[1] for view in views)])
    cumulants = Cumulants(Moments.of(np.hstack(views), order, n_blocks=1), unbiased=unbiased)
    return cumulants, [np.arange(start, stop) for start, stop in pairwise(ends)]


def mixing_matrix(U: Array, V: Array, *, order: int = 4, rank: int | None = None, unbiased: bool = True) -> Array:
    """A (d_v, d_u) from samples of U (n, d_u) and V (n, d_v) by equation (2),

        A' = unfold(k4(V, U, U, U))^+ unfold(k4(V, U, U, V)),

    or, with order=3, by k3(V, U, .). rank : of the shared part, if it is known to be low (Appendix D).

    >>> S1, S2 = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [3.0]])
    >>> U, S2 = (S1[:, None] + S2).reshape(-1, 1), np.tile(S2, (2, 1))
    >>> mixing_matrix(U, 2 * S2, unbiased=False).round(6).tolist()
    [[2.0]]
    """
    cumulants, (u, v) = side_by_side(U, V, order=order, unbiased=unbiased)
    return mixing_of_cumulants(cumulants, u, v, order=order, rank=rank)


def mixing_of_cumulants(
    cumulants: Cumulants, u: IntArray, v: IntArray, *, order: int = 4, rank: int | None = None
) -> Array:
    """The same from cumulants; u, v : columns of the views."""
    M, N = (unfold(cumulants.tensor(v, *[u] * (order - 2), last)) for last in (u, v))
    return np.asarray((truncated_pinv(M, rank) @ N).T)


def cross_terms(u: Array, v: Array, A: Array, inverse: Array) -> dict[str, Terms]:
    """Equations (3) to (5), for every order t:

        k_t(S1) = k_t(U) - k_t(S2),    k_t(S2) = k_t(U, ..., U, A^+ V),    k_t(S3) = k_t(V) - k_t(A U, V, ..., V).

    u, v : (p, d_u) and (p, d_v), the maps from z to the views; A : (d_v, d_u); inverse : A^+, (d_u, d_v).
    """
    from_v, from_u = v @ inverse.T, u @ A.T
    return {
        "S1": Terms(((Term(1.0, (), u), Term(-1.0, (from_v,), u)),), whole=u),
        "S2": Terms(((Term(1.0, (from_v,), u),),)),
        "S3": Terms(((Term(1.0, (), v), Term(-1.0, (from_u,), v)),), whole=v),
    }


def component_cumulants(U: Array, V: Array, A: Array, order: int, *, unbiased: bool = True) -> dict[str, Array]:
    """{"S1", "S2", "S3"}: k_t, t = order, by equations (3) to (5), from samples of U (n, d_u) and V (n, d_v); symmetrised.

    >>> U, V = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([[0.0], [0.0], [3.0], [3.0]])
    >>> {name: k.round(6).item() for name, k in component_cumulants(U, V, np.eye(1), 2, unbiased=False).items()}
    {'S1': 0.25, 'S2': 2.25, 'S3': 0.0}
    """
    from_v, from_u, rest = V @ truncated_pinv(A).T, U @ A.T, order - 1
    s2 = symmetrise(cross_cumulant(*[U] * rest, from_v, unbiased=unbiased))
    s3 = cumulant(V, order, unbiased=unbiased) - symmetrise(cross_cumulant(from_u, *[V] * rest, unbiased=unbiased))
    return {"S1": cumulant(U, order, unbiased=unbiased) - s2, "S2": s2, "S3": s3}


def polarised_cumulants(U: Array, V: Array, A: Array, order: int, *, unbiased: bool = True) -> dict[str, Array]:
    """Equations (8) to (10): the same without cross-cumulants, from sums of views.

    k_t(S2) = [k_t(U + A^+ V) - k_t(U) - k_t(A^+ V)] / (2^t - 2),    k_t(S1) = k_t(U) - k_t(S2),
    k_t(S3) = k_t(V) - [k_t(A U + V) - k_t(A U) - k_t(V)] / (2^t - 2).

    >>> U, V = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([[0.0], [0.0], [3.0], [3.0]])
    >>> polarised_cumulants(U, V, np.eye(1), 2, unbiased=False)["S1"].round(6).item()
    0.25
    """

    def k(W: Array) -> Array:
        return cumulant(W, order, unbiased=unbiased)

    from_v, from_u = V @ truncated_pinv(A).T, U @ A.T
    s2 = (k(U + from_v) - k(U) - k(from_v)) / (2**order - 2)
    return {"S1": k(U) - s2, "S2": s2, "S3": k(V) - (k(from_u + V) - k(from_u) - k(V)) / (2**order - 2)}


@dataclass(frozen=True)
class Extraction:
    """S1 as :func:`extract` gives it: U (n, d), centred; R (n, d), centred, U - A^-1 V; mean (d,), of S1.

    >>> s1 = true_samples(np.array([[0.0], [0.0], [1.0], [3.0]]))
    >>> s1.second.item(), s1.cumulant(3).round(6).item()
    (2.0, 4.0)
    """

    U: Array
    R: Array
    mean: Array

    @property
    def second(self) -> Array:
        """E[S1 S1'] about the mean, (d, d): k2(U, R), symmetrised."""
        return symmetrise(self.U.T @ self.R / (len(self.U) - 1))

    def cumulant(self, order: int) -> Array:
        """k_t(S1) of any order t, by equation (3), (d,) * t, symmetrised."""
        return symmetrise(cross_cumulant(*[self.U] * (order - 1), self.R))

    def take(self, rows: IntArray) -> Extraction:
        """Some of the rows, about their own means: a mini-batch."""
        U, R = self.U[rows], self.R[rows]
        return Extraction(U - U.mean(axis=0), R - R.mean(axis=0), self.mean)


def extract(
    U: Array, V: Array, A: Array | None = None, *, rank: int | None = None, mean_s3: Array | float = 0.0
) -> Extraction:
    """S1 by equations (2) and (3) from the views U (n, d_u) and V (n, d_v): what the learners below take.

    A : (d_v, d_u), by equation (2) where it is not known; rank : of the shared part, if it is known to be low (Appendix D).
    mean_s3 : E[S3], from which those of S2 and S1 follow (Section 3.1).

    Examples
    --------
    >>> U, V = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([[0.0], [0.0], [3.0], [3.0]])
    >>> extract(U, V, np.eye(1)).R.ravel().tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """
    if A is None:
        A = mixing_matrix(U, V, rank=rank)
    inverse = truncated_pinv(A, rank)
    mean = U.mean(axis=0) - inverse @ (V.mean(axis=0) - mean_s3)
    u = U - U.mean(axis=0)
    return Extraction(u, u - (V - V.mean(axis=0)) @ inverse.T, mean)


def true_samples(S: Array) -> Extraction:
    """Samples of S1 itself, (n, d), in the place of what is extracted: the paper's gold standard.

    >>> true_samples(np.array([[1.0], [3.0]])).mean.tolist()
    [2.0]
    """
    centred = S - S.mean(axis=0)
    return Extraction(centred, centred, S.mean(axis=0))
