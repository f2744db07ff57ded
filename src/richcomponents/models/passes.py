"""The passes of a fit over rows of (U, V): second order first, then moments of the canonical coordinates.

Rows that can be read again are read twice: order two of everything, then order four of the coordinates that the first pass
found, mapped row by row. Memory does not depend on the number of rows.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.dependence import Dependence, UnitSums
from richcomponents.contrastive.evidence import implicit_grams, joint_whitening
from richcomponents.moments import Moments, Rows
from richcomponents.moments.building import build_moments
from richcomponents.moments.layout import LEAF
from richcomponents.outputs import check_outputs

__all__ = ["Linear", "Passes"]

_FAR = 30  # standard deviations from the shift at which second moments begin to lose digits (2e-13)


class Linear:
    """Rows z -> (z - centre) @ matrix, with a name for checkpoints."""

    def __init__(self, centre: Array, matrix: Array) -> None:
        self.centre, self.matrix = centre, np.ascontiguousarray(matrix)
        self.mark = hashlib.sha256(self.centre.tobytes() + self.matrix.tobytes()).hexdigest()

    def __call__(self, block: Array) -> Array:
        return np.asarray((block - self.centre) @ self.matrix)


@dataclass(frozen=True)
class Passes:
    """Rows of (U, V), covariates partialled out, and how to read them.

    groups : labels of all rows, or None; progress : whether to show bars; checkpoint : where the long passes are kept.
    """

    rows: Rows
    n_blocks: int
    groups: object | None = None
    progress: bool = False
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_outputs([self.checkpoint], self.rows.source.files)  # before the first pass, not the last

    def second(self) -> Moments:
        """Order two, in one pass, about the mean of the first rows; in two where that was far off."""
        found = self._moments(self.rows, 2, self.rows.first_means(LEAF), "second order", ".second")
        if (np.abs(found.offset) > _FAR * np.sqrt(np.maximum(found.variances, 0.0))).any():
            found = self._moments(self.rows, 2, found.mean, "second order", ".recentred")
        return found

    def fourth(self) -> Moments:
        """Order four of all columns, about their means."""
        return self._moments(self.rows, 4, self.rows.means(), "fourth order")

    def coordinates(self, centre: Array) -> Callable[[Array], Moments]:
        """matrix (p, m) -> the state, order four, of the columns (z - centre) @ matrix."""

        def state(matrix: Array) -> Moments:
            mapped = self.rows.mapped(Linear(centre, matrix))
            return self._moments(mapped, 4, np.zeros(matrix.shape[1]), "canonical coordinates")

        return state

    def dependence(self, centre: Array) -> Callable[[Canonical, Array], Dependence] | None:
        """(coordinates, matrix to all of them) -> how the rows depend on each other; None where they do not."""
        if self.groups is None and not self.rows.weighted:
            return None

        def measured(found: Canonical, matrix: Array) -> Dependence:
            sums = UnitSums(found.correlations, found.rank_u, found.rank_v, self.rows.weighted)
            return self.rows.mapped(Linear(centre, matrix)).reduce(sums, groups=self.groups)

        return measured

    def high_orders(self, centre: Array, matrix: Array, order: int) -> Moments:
        """Orders five and six of (z - centre) @ matrix, not kept by block."""
        mapped = self.rows.mapped(Linear(centre, matrix))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build_moments(
                mapped, order, np.zeros(matrix.shape[1]), n_blocks=1, progress=self._label("high orders")
            )

    def implicit(self, centre: Array) -> Callable[[Array, Array], Array]:
        """The evidence from rows, without fourth moments, for few rows and many directions."""

        def evidence(lead: Array, correlations: Array) -> Array:
            z = self.rows.mapped(Linear(centre, lead)).array()
            return implicit_grams(z, joint_whitening(correlations), n_blocks=self.n_blocks)

        return evidence

    def _moments(self, rows: Rows, order: int, shift: Array | None, label: str, suffix: str = "") -> Moments:
        """Moments of columns the user never sees: their warnings would name nothing."""
        options: dict[str, Any] = {"n_blocks": self.n_blocks, "groups": self.groups, "progress": self._label(label)}
        if self.checkpoint is not None:
            options["checkpoint"] = os.fspath(self.checkpoint) + suffix
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build_moments(rows, order, shift, **options)

    def _label(self, label: str) -> str | None:
        return label if self.progress else None
