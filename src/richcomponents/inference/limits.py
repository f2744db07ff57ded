"""The identified set of an answer: its range over all admissible T, and nothing else.

Second moments alone allow every 0 <= T <= I. Cov(S1), effects and, after a monotone change of T, A and coefficients are
constant + l'T m for each entry. l'T m = tr(T (l m' + m l') / 2), whose matrix has the eigenvalues (l'm -+ |l||m|) / 2: over
0 <= T <= I it fills exactly the interval between them, each end reached by the projector on one eigenvector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.storage import storable

__all__ = ["IdentifiedSet", "range_of_products"]


def range_of_products(left: Array, right: Array) -> tuple[Array, Array]:
    """Ends of left_a' T right_b over 0 <= T <= I; left (..., m, r), right (..., n, r): (..., m, n) each.

    >>> low, high = range_of_products(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    >>> low.item(), high.item()
    (-0.5, 0.5)
    """
    dot = left @ right.mT
    size = np.sqrt((left**2).sum(-1))[..., :, None] * np.sqrt((right**2).sum(-1))[..., None, :]
    return (dot - size) / 2, (dot + size) / 2


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
