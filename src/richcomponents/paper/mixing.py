"""The paper's estimator, the reference: right for exact cumulants, too noisy at real sample sizes.

    unfold k4(V, U, U, V) = unfold k4(V, U, U, U) A'      (paper, equation (2))

is solved for A by least squares. With d^3 rows of noise on both sides, the pseudo-inverse is attenuated by
the noise it divides by; `method="efficient"` exists because of that.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, IntArray, unfold
from richcomponents.cumulants import Cumulants

__all__ = ["paper_mixing", "truncated_pinv"]


def truncated_pinv(matrix: Array, rank: int | None) -> Array:
    """Pseudo-inverse from the `rank` largest singular values (all of them by default).

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


def paper_mixing(cumulants: Cumulants, u: IntArray, v: IntArray, *, order: int = 4, rank: int | None = None) -> Array:
    """A (d_v, d_u) by equation (2), from k4(V, U, U, .) or, for order 3, k3(V, U, .).

    u, v : columns of the views in the state; rank : of the shared part, if it is known to be low.
    """
    first = (v, u, u) if order == 4 else (v, u)
    m1 = unfold(cumulants.tensor(*first, u))
    m2 = unfold(cumulants.tensor(*first, v))
    solution: Array = (truncated_pinv(m1, rank) @ m2).T
    return solution
