"""Wide views: principal components before views are compared.

With more columns than samples every canonical correlation is one, whatever the data. Each view is
therefore reduced to the principal components that stand above noise; the part of a view outside them is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.components.linear_map import LinearMap
from richcomponents.moments.data import AffineMap, Data, RowData

__all__ = ["SearchSpace", "needs_reduction", "reduce_view", "search_space"]

_ROWS_PER_COLUMN = 6
_MOST_READ = 50_000  # rows of few groups that are looked at in memory


@dataclass(frozen=True)
class SearchSpace:
    """The columns in which shared directions are looked for: all of them, or principal components of wide views.

    data : of these columns, view by view; frames : {view: maps between them and the user's columns}; rows : (n, p) centred
    rows of all the user's columns, and mean : (p,), where a view was reduced, else None; units : how many different rows there
    are, where they are few; grouped : whether rows belong to groups.
    """

    data: Data
    frames: Mapping[str, LinearMap]
    rows: Array | None = None
    mean: Array | None = None
    units: int | None = None
    grouped: bool = False

    @classmethod
    def whole(cls, data: Data, place: Mapping[str, slice]) -> SearchSpace:
        """All columns as they are."""
        return cls(data, {view: LinearMap.identity(part.stop - part.start) for view, part in place.items()})


def search_space(
    data: Data, place: Mapping[str, slice], check: Callable[[Array], None], at_least: int = 1
) -> SearchSpace:
    """Principal components of the views that have too many columns for their samples, the others as they are.

    place : {view: its columns}; check : refuses centred rows whose moments cannot be taken; at_least : components per view. A
    state has no rows to reduce.
    """
    widths = {view: part.stop - part.start for view, part in place.items()}
    whole = SearchSpace.whole(data, place)
    if not isinstance(data, RowData):
        return whole
    groups = None if data.groups is None else len(set(np.asarray(data.groups).tolist()))
    enough = _ROWS_PER_COLUMN * (max(widths.values()) + 1)  # rows above which no view is reduced
    if data.rows.more_than(enough) and (groups is None or groups > enough or data.rows.more_than(_MOST_READ)):
        return replace(whole, grouped=groups is not None)
    inside = data.rows.array()
    weight = inside[:, -1] if data.rows.weighted else np.ones(len(inside))
    inside, weight = inside[weight > 0, : sum(widths.values())], weight[weight > 0]
    mean = np.average(inside, axis=0, weights=weight)
    centred = inside - mean
    if data.rows.weighted:  # rows whose plain second moments are the weighted ones
        centred *= np.sqrt(weight / weight.mean())[:, None]
    # copies are one row; other rows of a group are something between copies and samples: it counts as three at most
    units = len({row.tobytes() for row in inside})
    units = units if groups is None else min(units, 3 * groups)
    check(centred)
    frames = {
        view: reduce_view(centred[:, part], units, at_least)
        if needs_reduction(units, widths[view])
        else whole.frames[view]
        for view, part in place.items()
    }
    found = replace(whole, units=units, grouped=groups is not None)
    if all(len(frame.to) == len(frame.back) for frame in frames.values()):
        return found
    into = AffineMap(mean, linalg.block_diag(*(frame.to.T for frame in frames.values())))
    return replace(found, data=replace(data, rows=data.rows.mapped(into)), frames=frames, rows=centred, mean=mean)


def needs_reduction(n: int, d: int) -> bool:
    """Whether a view has too many columns for its samples."""
    return d > max(n // _ROWS_PER_COLUMN, 2)


def reduce_view(view: Array, units: int, at_least: int = 1) -> LinearMap:
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
    return LinearMap(to=right[:k] / scale, back=(right[:k] * scale).T)
