"""The identified set of an answer: its range over all admissible T, and nothing else.

Second moments alone allow every 0 <= T <= I. Cov(S1), effects and, after a monotone change of T, A and coefficients are
constant + l'T m for each entry. l'T m = tr(T (l m' + m l') / 2), whose matrix has the eigenvalues (l'm -+ |l||m|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array

__all__ = ["range_of_products", "range_of_quadratics"]


def range_of_products(left: Array, right: Array) -> tuple[Array, Array]:
    """Ends of left_a' T right_b over 0 <= T <= I; left (..., m, r), right (..., n, r): (..., m, n) each.

    >>> low, high = range_of_products(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    >>> low.item(), high.item()
    (-0.5, 0.5)
    """
    dot = left @ right.mT
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    return (dot - size) / 2, (dot + size) / 2


def range_of_quadratics(rows: Array) -> tuple[Array, Array]:
    """The same of l'T l for each row l of (..., m, r): (..., m) each, zero and |l|^2."""
    high = np.sum(rows**2, axis=-1)
    return np.zeros_like(high), high
