"""What second moments alone say about Cov(S1), for any distribution.

Cov(S1) >= 0 and Cov(S3) >= 0 leave S = D^2 + h T h with any 0 <= T <= I on the r shared directions. With L = (u_from_x) h
(d_u x r, rows l_a; the user's units) and C0 = Cov(U) - Cov(S2) at T = 0 (residualising),

    Cov(S1)_ab = C0_ab - l_a' T l_b.

l_a' T l_b = tr(T (l_a l_b' + l_b l_a') / 2), and that symmetric matrix has the eigenvalues (l_a'l_b -+ |l_a||l_b|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array

__all__ = ["cov_s1_bounds"]


def cov_s1_bounds(rows: Array, top: Array) -> tuple[Array, Array]:
    """Lower and upper end of every entry of Cov(S1); rows L (d, r), top C0 (d, d)."""
    inner = rows @ rows.T
    size = np.sqrt(np.outer(np.diag(inner), np.diag(inner)))
    return np.asarray(top - (inner + size) / 2), np.asarray(top - (inner - size) / 2)
