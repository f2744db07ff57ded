"""What estimators do about missing values: refuse them, leave rows out, or use what is there (`moments.available`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import is_gap
from richcomponents.data.rows import Rows
from richcomponents.errors import DataError, MissingValueWarning, warn_user
from richcomponents.models.design import Design
from richcomponents.moments.available import Available, Fill, Gaps, patterns_of
from richcomponents.moments.data import AffineMap, Partial

Truth = npt.NDArray[np.bool_]

WAYS = ("error", "drop", "available")
_ROWS_PER_COLUMN = 6  # with fewer rows a view is wide, and would have to be reduced


def there(values: Any, n: int | None) -> Truth | None:
    """(n,) which rows have all their values; None where that cannot be asked before they are read."""
    if values is None or isinstance(values, str) or hasattr(values, "toarray"):
        return None
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else False
    entries = np.asarray(values.to_pandas() if hasattr(values, "to_pandas") else values, dtype=object)
    if entries.ndim not in (1, 2) or (n is not None and len(entries) != n):
        return None  # others say what is wrong with it
    number = (float, np.floating)
    empty = [is_gap(value) or (isinstance(value, number) and not np.isfinite(value)) for value in entries.ravel()]
    gaps = np.array(empty, dtype=bool).reshape(entries.shape) | hidden
    return np.asarray(~(gaps if entries.ndim == 1 else gaps.any(axis=1)))


def taken(values: Any, keep: Truth) -> Any:
    """These rows of a column or table in memory, of the same kind."""
    if values is None:
        return None
    frame = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(frame, (nw.DataFrame, nw.Series)):
        return frame.filter(keep.tolist()).to_native()
    return np.asarray(values)[keep]


def complete_rows(table: Rows) -> Truth:
    """(n,): rows without gaps in any column."""
    kept = [np.isfinite(block).all(axis=1) for block in table.chunks()]
    if not kept:
        raise DataError("there are no rows")
    return np.concatenate(kept)


def say_dropped(kept: int, n: int, why: str) -> str:
    """Count the rows that were left out, in a sentence; refuse to leave out all."""
    if not kept:
        raise DataError(f"all {n} rows have {why}: none is left. Leave out columns without values")
    if kept == n:
        return ""
    told = f"{n - kept} of {n} rows have {why} and were left out; {kept} are kept."
    warn_user(told, MissingValueWarning)
    return told


def parts_of(design: Design) -> dict[str, IntArray]:
    """The columns of each view, and of the covariates, among those side by side."""
    own, q = len(design.columns), len(design.known)
    places = {name: np.arange(place.start, place.stop) for name, place in design.places().items()}
    return {**places, **({"covariates": np.arange(own, own + q)} if q else {})}


def describe(design: Design, column: int) -> str:
    """A column among those side by side, for messages."""
    number = int(design.used[column])
    if column < len(design.columns):
        return design.views.describe(number)
    return f"covariate {design.views.feature_names[number]!r}"


def available(table: Rows, gaps: Gaps, design: Design, n_blocks: int, groups: object) -> Available:
    """What a solver asks of rows with gaps; refuses views that are too wide for them."""
    rows = float(gaps.weight @ gaps.stand_ins)
    for name, columns in parts_of(design).items():
        if len(columns) > max(rows / _ROWS_PER_COLUMN, 2):
            raise DataError(
                f"{len(columns)} columns of {name!r} are too many for {rows:.0f} rows that have values of all views: with "
                f"gaps, {_ROWS_PER_COLUMN} rows per column are needed. Use fewer columns, or missing='drop'"
            )
    return Available.of(table, gaps, n_blocks, groups, lambda column: describe(design, column))


def without_covariates(data: Available, partial: Partial, factor: float, lost: float) -> Available:
    """The residuals of the views on the covariates, about the means of the views (see `Inflated`)."""
    left = data.mapped(AffineMap(partial.mean, partial.matrix * factor, partial.mean[partial.kept]))
    return replace(left, lost=lost, origin=data)


def prediction_variance(fill: Fill, rows: Array, maps: Array) -> Array:
    """(n, d): variance that gaps of rows (n, p) add to the predictions rows @ maps, (p, d)."""
    out = np.zeros((len(rows), maps.shape[1]))
    for pattern, at in patterns_of(np.isfinite(rows)):
        if not pattern.all():
            out[at] = np.maximum(np.einsum("pd,pq,qd->d", maps, fill.error(pattern), maps), 0.0)
    return out
