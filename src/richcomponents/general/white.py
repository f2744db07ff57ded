"""White coordinates: every view is mapped to columns of covariance I before anything is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.components.wide import LinearMap
from richcomponents.errors import DataError
from richcomponents.storage import storable

__all__ = ["WhiteViews", "white_frame"]

_DEPENDENT = 1e-10  # eigenvalues of a correlation matrix below this are linear dependence
_SINGULAR = 1e-8  # the same between views, which nothing can separate


def white_frame(covariance: Array) -> LinearMap:
    """Maps to and from white coordinates of one view; linearly dependent columns share them."""
    scale = np.sqrt(np.diag(covariance))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > _DEPENDENT
    root = np.sqrt(values[kept])
    return LinearMap((vectors[:, kept] / root).T / scale, scale[:, None] * vectors[:, kept] * root)


@storable
@dataclass(frozen=True)
class WhiteViews:
    """Views side by side in a table, and in white columns.

    place : {view: its columns in the table}; frames : {view: maps to and from white columns};
    columns : {view: its white columns}; totals : {view: variance, summed over its columns}.
    """

    place: Mapping[str, slice]
    frames: Mapping[str, LinearMap]
    columns: Mapping[str, IntArray]
    totals: Mapping[str, float]

    @classmethod
    def of(
        cls, covariance: Array, place: Mapping[str, slice], describe: Callable[[int], str], *, whiten: bool = True
    ) -> WhiteViews:
        """From the covariance of the table's columns; describe(column) names a column in errors.

        whiten=False : columns stay as they are (the paper's method).
        """
        own = {view: covariance[part, part] for view, part in place.items()}
        frames = {view: white_frame(C) if whiten else LinearMap.identity(len(C)) for view, C in own.items()}
        ends = np.cumsum([0, *(len(frame.to) for frame in frames.values())])
        columns = {view: np.arange(ends[i], ends[i + 1], dtype=np.int64) for i, view in enumerate(frames)}
        views = cls(place, frames, columns, {view: float(np.trace(C)) for view, C in own.items()})
        for view, total in views.totals.items():
            if not total > 0:
                raise DataError(f"no column of view {view!r} varies: leave it out")
        if whiten:
            views._check_independent(covariance, describe)
        return views

    def composed(
        self, frames: Mapping[str, LinearMap], place: Mapping[str, slice], totals: Mapping[str, float]
    ) -> WhiteViews:
        """The same white columns from the columns that the table's were made of: frames to and from them, their place, and the
        variance of the views there."""
        both = {
            view: LinearMap(frame.to @ frames[view].to, frames[view].back @ frame.back)
            for view, frame in self.frames.items()
        }
        return WhiteViews(place, both, self.columns, totals)

    @property
    def into(self) -> Array:
        """(columns of the table, white columns)."""
        return np.asarray(linalg.block_diag(*(frame.to.T for frame in self.frames.values())))

    @property
    def back(self) -> Array:
        """(white columns, columns of the table)."""
        return np.asarray(linalg.block_diag(*(frame.back.T for frame in self.frames.values())))

    def _check_independent(self, covariance: Array, describe: Callable[[int], str]) -> None:
        into = self.into
        values, vectors = np.linalg.eigh(into.T @ covariance @ into)
        if values[0] < _SINGULAR:
            weight = np.abs(into @ vectors[:, 0]) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
            raise DataError(
                f"the views are linearly dependent on each other ({describe(int(np.argmax(weight)))} is part of it), so their "
                "components cannot be told apart: drop columns that occur in several views, or use more samples than columns"
            )
