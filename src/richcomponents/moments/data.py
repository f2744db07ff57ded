"""Where a solver gets its statistics from: one protocol, two providers.

A solver asks for moments of linear maps of the columns, several times: order two of everything first, then order four of the
coordinates that the first pass found. Rows answer by being read again, mapped row by row, in memory that does not depend on
their number; a saved state answers by being transformed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.rows import Rows
from richcomponents.errors import DataError
from richcomponents.moments.dependence import Dependence, UnitSums, dependence_of_blocks
from richcomponents.moments.layout import LEAF, MAX_BLOCKED_ORDER
from richcomponents.moments.reduce import column_means, first_means, reduce_rows
from richcomponents.moments.state import Moments
from richcomponents.outputs import check_outputs

__all__ = ["AffineMap", "Data", "RowData", "StateData"]

_FAR = 30  # standard deviations from the shift at which second moments begin to lose digits (2e-13)


class AffineMap:
    """Rows z -> (z - centre) @ matrix, with a fingerprint for checkpoints."""

    def __init__(self, centre: Array, matrix: Array) -> None:
        self.centre, self.matrix = centre, np.ascontiguousarray(matrix)
        self.mark = hashlib.sha256(self.centre.tobytes() + self.matrix.tobytes()).hexdigest()

    def __call__(self, block: Array) -> Array:
        return np.asarray((block - self.centre) @ self.matrix)


class Data(Protocol):
    """The columns of all views side by side, covariates removed.

    n_blocks : statistical blocks; lost : rows' worth of freedom that covariates took.
    """

    @property
    def n_blocks(self) -> int: ...

    @property
    def lost(self) -> float: ...

    def moments(self, order: int, map: AffineMap | None = None) -> Moments:
        """The state of the columns, or of a map of them about their mean; orders above four are not kept by block."""
        ...

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        """How rows (x, y) depend on each other, map : to white x (p) and y with Cov(x, y) = D; None where they do not."""
        ...

    def sample(self, map: AffineMap, step: int = 1, *, grouped: bool = False) -> Array | None:
        """Every step-th row, mapped; None where rows are not at hand, or depend on each other.

        grouped : give rows of groups, too (rows that are counted several times are never given).
        """
        ...


@dataclass(frozen=True)
class StateData:
    """A state of order four."""

    state: Moments
    lost: float = 0.0

    @property
    def n_blocks(self) -> int:
        return self.state.layout.n_blocks

    def moments(self, order: int, map: AffineMap | None = None) -> Moments:
        if order > self.state.layout.order:
            raise DataError("cumulants of order five and six need the rows again: use fit(X), or order=4")
        return self.state if map is None else self.state.transformed(map.matrix)

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        if not self.state.dependent:
            return None
        return dependence_of_blocks(self.state.transformed(map.matrix), correlations, p, map.matrix.shape[1] - p)

    def sample(self, map: AffineMap, step: int = 1, *, grouped: bool = False) -> Array | None:
        return None


@dataclass(frozen=True)
class RowData:
    """Rows that can be read again, and how to read them.

    groups : labels of all rows, or None; progress : whether to show bars; checkpoint : where the long passes are kept.
    """

    rows: Rows
    n_blocks: int
    groups: object | None = None
    lost: float = 0.0
    progress: bool = False
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_outputs([self.checkpoint], self.rows.files)  # before the first pass, not the last

    def moments(self, order: int, map: AffineMap | None = None) -> Moments:
        if map is not None:
            label = "canonical coordinates" if order <= MAX_BLOCKED_ORDER else "high orders"
            return self._pass(self.rows.mapped(map), order, np.zeros(map.matrix.shape[1]), label)
        if order > 2:
            return self._pass(self.rows, order, column_means(self.rows), "fourth order")
        return self._second

    @cached_property
    def _second(self) -> Moments:
        """In one pass, about the mean of the first rows; in two where that was far off."""
        second = self._pass(self.rows, 2, first_means(self.rows, LEAF), "second order", ".second")
        if (np.abs(second.offset) > _FAR * np.sqrt(np.maximum(second.variances, 0.0))).any():
            second = self._pass(self.rows, 2, second.mean, "second order", ".recentred")
        return second

    @property
    def dependent(self) -> bool:
        """Whether rows belong to groups, or are counted several times."""
        return self.groups is not None or self.rows.weighted

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        if not self.dependent:
            return None
        sums = UnitSums(correlations, p, map.matrix.shape[1] - p, self.rows.weighted)
        return reduce_rows(self.rows.mapped(map), sums, groups=self.groups)

    def sample(self, map: AffineMap, step: int = 1, *, grouped: bool = False) -> Array | None:
        if self.rows.weighted or (self.groups is not None and not grouped):
            return None
        mapped, taken, seen = self.rows.mapped(map), [], 0
        if step == 1:
            return mapped.array()
        for block in mapped.chunks():
            taken.append(block[-seen % step :: step])
            seen += len(block)
        return np.concatenate(taken)

    def _pass(self, rows: Rows, order: int, shift: Array | None, label: str, suffix: str = "") -> Moments:
        """Moments of columns the user never sees: their warnings would name nothing."""
        options: dict[str, Any] = {"n_blocks": 1, "progress": label if self.progress else False}
        if order <= MAX_BLOCKED_ORDER:
            options |= {"n_blocks": self.n_blocks, "groups": self.groups}
            if self.checkpoint is not None:
                options["checkpoint"] = os.fspath(self.checkpoint) + suffix
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Moments.of(rows, order, shift, **options)
