"""Wide views: principal components before canonical correlation.

With more columns than samples every canonical correlation is one, whatever the data. Each view is
therefore reduced to the principal components that stand above noise; the part of U outside them is S1's own.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.frame import Frame

__all__ = ["enough_rows", "needs_reduction", "reduce_view"]

_ROWS_PER_COLUMN = 6


def needs_reduction(n: int, d: int) -> bool:
    """Whether a view has too many columns for its samples."""
    return d > max(n // _ROWS_PER_COLUMN, 2)


def enough_rows(d: int) -> int:
    """A number of rows above which a view of d columns is never reduced."""
    return _ROWS_PER_COLUMN * (d + 1)


def reduce_view(view: Array, units: int, at_least: int = 1) -> Frame:
    """Leading principal components of a centred view (n, d) of so many independent samples, columns scaled to unit variance.

    How many: singular values above the optimal hard threshold for unknown noise (Gavish and Donoho 2014,
    2.858 medians for square matrices), at least `at_least` (the rank that was asked for), at most one per six samples.
    """
    n, d = view.shape
    scale = np.sqrt(np.mean(view**2, axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    _, values, right = np.linalg.svd(view / scale, full_matrices=False)
    beta = min(n, d) / max(n, d)
    # after centring the last singular value is zero; it does not belong to the noise
    noise = float(np.median(values[values > 1e-9 * values[0]])) if values[0] > 0 else 0.0
    threshold = (0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43) * noise
    k = int(np.clip(np.sum(values > threshold), 1, max(units // _ROWS_PER_COLUMN, 1)))
    k = min(max(k, at_least), len(values))
    return Frame(inner=right[:k] / scale, outer=(right[:k] * scale).T)
