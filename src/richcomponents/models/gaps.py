"""What estimators do about missing values: refuse them, leave rows out, or use what is there (`moments.available`)."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import IntArray, Truth
from richcomponents.data.cells import is_gap
from richcomponents.data.design import Design
from richcomponents.data.rows import Rows
from richcomponents.data.sources.base import Kept
from richcomponents.errors import DataError, MissingValueWarning, constants_told_later, warn_user
from richcomponents.moments import Moments

WAYS = ("error", "drop", "available")
_GAPS = "missing or infinite values"


def there(values: Any, n: int | None) -> Truth | None:
    """(n,) which rows have all their values; None where that cannot be asked before they are read."""
    if values is None or isinstance(values, str) or hasattr(values, "toarray"):
        return None
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else False
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim == 1 and n in (None, len(values)):
        return np.asarray(np.isfinite(values) & ~np.asarray(hidden))
    frame = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        entries = np.array([column.to_list() for column in frame.iter_columns()], dtype=object).T
    else:
        entries = np.asarray(frame.to_list() if isinstance(frame, nw.Series) else values, dtype=object)
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
    return _gaps(table)[0]


def _gaps(table: Rows) -> tuple[Truth, IntArray]:
    """(n,): rows without gaps in any column, and how many gaps each column has."""
    kept, counts = list[Any](), np.zeros(table.width, dtype=np.int64)
    for block in table.chunks():
        there = np.isfinite(block)
        kept.append(there.all(axis=1))
        counts += np.sum(~there[:, : table.width], axis=0)
    if not kept:
        raise DataError("there are no rows")
    return np.concatenate(kept), counts


def say_dropped(kept: int, n: int, why: str = _GAPS, most: str = "") -> str:
    """Count the rows that were left out, in a sentence; refuse to leave out all. most : what most of them lack."""
    if not kept:
        columns = f"columns such as {most}" if most else "columns without values"
        raise DataError(f"all {n} rows have {why}: none is left. Leave out {columns}")
    if kept == n:
        return ""
    told = f"{n - kept} of {n} rows have {why} and were left out; {kept} are kept."
    told += f" Most of them lack {most}." if most else ""
    warn_user(told, MissingValueWarning)
    return told


def without_gaps(
    rows: Rows, columns: Any, design: Design, groups: Any, missing: str
) -> tuple[Rows, Any, IntArray | None, str]:
    """Rows and groups without the rows with gaps in these columns, if missing="drop"; the numbers of those that are left, where
    some were left out; and a sentence about these. Rows without a group, or a covariate that is text, are left out unless
    missing="error"."""
    if missing == "error":
        return rows, groups, None, ""
    keep, labelled, most = np.ones(0, dtype=bool), there(groups, None), ""
    texts = [name for levels in design.levels() for name in levels.columns]
    if missing == "drop" or texts:
        keep, counts = _gaps(rows.select(columns if missing == "drop" else texts))
        worst = int(np.argmax(counts))
        if missing == "drop" and counts[worst] and worst < len(design.used):
            most = f"{design.describe(worst)} ({counts[worst]})"
    if labelled is not None and not labelled.all() and (not len(keep) or len(keep) == len(labelled)):
        keep = labelled if not len(keep) else keep & labelled
    if keep.all():
        return rows, groups, None, ""
    why = _GAPS if labelled is None or labelled.all() else f"{_GAPS} or no group"
    note = say_dropped(int(keep.sum()), len(keep), why, most)
    return rows.kept(keep), taken(groups, keep), np.flatnonzero(keep), note


def read_once(rows: Rows, missing: str, order: int, **reading: Any) -> tuple[Moments, str]:
    """The state of rows that are gone when they were read, and a sentence about those that were left out."""
    if missing == "available":
        raise DataError("a stream is read once, which does not tell what its gaps lack: use missing='drop', or a file")
    if missing == "drop" and reading.get("groups") is not None:
        raise DataError("rows that are read once cannot be left out of groups= that were given before: use a file")
    whole = rows.kept(None) if missing == "drop" else rows
    with constants_told_later():
        state = Moments.of(whole, order, **reading)
    return state, say_dropped(state.n, state.n + whole.source.dropped) if isinstance(whole.source, Kept) else ""
