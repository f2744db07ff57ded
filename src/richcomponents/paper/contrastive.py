"""Section 3.1 and Appendix B.1: two views, U = S1 + S2 and V = A S2 + S3 (equation 1).

Right for exact cumulants, too noisy at real sample sizes: with d^3 rows of noise on both sides of equation (2), its
pseudo-inverse is attenuated by the noise it divides by. `method="efficient"` exists because of that.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, unfold
from richcomponents.components.component import Term, Terms
from richcomponents.cumulants import Cumulants


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
    pinv: Array = (right.T * inverse) @ left.T
    return pinv


def mixing_matrix(cumulants: Cumulants, u: IntArray, v: IntArray, *, order: int = 4, rank: int | None = None) -> Array:
    """A (d_v, d_u) by equation (2): A' = unfold(k4(V, U, U, U))^+ unfold(k4(V, U, U, V)); order 3: k3(V, U, .).

    u, v : columns of the views in the state; rank : of the shared part, if it is known to be low.
    """
    first = (v, u, u) if order == 4 else (v, u)
    m1 = unfold(cumulants.tensor(*first, u))
    m2 = unfold(cumulants.tensor(*first, v))
    solution: Array = (truncated_pinv(m1, rank) @ m2).T
    return solution


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


def polarised_cumulants(cumulants: Cumulants, u: Array, v: Array, A: Array, order: int) -> dict[str, Array]:
    """Equations (8) to (10): the same without cross-cumulants, from sums of views; tensors (d,) * order.

    k_t(S2) = [k_t(U + A^+ V) - k_t(U) - k_t(A^+ V)] / (2^t - 2),    k_t(S1) = k_t(U) - k_t(S2),
    k_t(S3) = k_t(V) - [k_t(A U + V) - k_t(A U) - k_t(V)] / (2^t - 2).
    """
    every = np.arange(len(u))
    tensor = cumulants.tensor(*[every] * order)

    def k(W: Array) -> Array:
        return multilinear(tensor, *[W] * order)

    from_v, from_u = v @ truncated_pinv(A).T, u @ A.T
    s2 = (k(u + from_v) - k(u) - k(from_v)) / (2**order - 2)
    return {"S1": k(u) - s2, "S2": s2, "S3": k(v) - (k(from_u + v) - k(from_u) - k(v)) / (2**order - 2)}
