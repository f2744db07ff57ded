"""The identified set of an answer: its range over all admissible T, and nothing else.

Second moments alone allow every 0 <= T <= I. Cov(S1), effects and, after a monotone change of T, A and coefficients are
constant + l'T m for each entry. l'T m = tr(T (l m' + m l') / 2), whose matrix has the eigenvalues (l'm -+ |l||m|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector. Where also
m'T m <= most |m|^2 is known, the ends are

    q l'm -+ sqrt(q (1 - q)) x,     x^2 = |l|^2 |m|^2 - (l'm)^2,     q = min((1 -+ l'm / |l||m|) / 2, most)

(Lagrange: l'T m - mu m'T m over 0 <= T <= I is the positive eigenvalue of a matrix of rank two, whose determinant does not
depend on mu), which with most = 1 are those above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.storage import storable

__all__ = ["IdentifiedSet", "range_of_products"]


def range_of_products(left: Array, right: Array, most: float = 1.0) -> tuple[Array, Array]:
    """Ends of left_a' T right_b over 0 <= T <= I, right_b' T right_b <= most |right_b|^2; left (..., m, r), right (..., n, r):
    (..., m, n) each.

    >>> low, high = range_of_products(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    >>> low.item(), high.item()
    (-0.5, 0.5)
    """
    dot = left @ right.mT
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    if most >= 1:
        return (dot - size) / 2, (dot + size) / 2
    turn, across = dot / np.maximum(size, 1e-300), np.sqrt(np.maximum(size**2 - dot**2, 0.0))
    low, high = (np.clip((1 + sign * turn) / 2, 0.0, most) for sign in (-1, 1))
    return low * dot - np.sqrt(low * (1 - low)) * across, high * dot + np.sqrt(high * (1 - high)) * across


@storable
@dataclass(frozen=True)
class IdentifiedSet:
    """All admissible covariances top - rows T rows', 0 <= T <= I, entry by entry: rows (..., d, r); top (..., d, d), an array
    or factors of one."""

    rows: Array
    top: Any

    def ends(self) -> tuple[Array, Array]:
        """Lower and upper end of every entry, (..., d, d) each."""
        low, high = range_of_products(self.rows, self.rows)
        return np.asarray(self.top) - high, np.asarray(self.top) - low

    def variances(self) -> tuple[Array, Array]:
        """Lower and upper end of the variances, (..., d) each."""
        top = self.top.diagonal(axis1=-2, axis2=-1) if isinstance(self.top, np.ndarray) else self.top.diagonal()
        return np.asarray(top - np.sum(self.rows**2, axis=-1)), np.array(top)
