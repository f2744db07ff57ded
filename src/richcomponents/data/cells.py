"""What a single value means, in every table: which words are numbers, which say that there is none, which are labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array

__all__ = [
    "Column",
    "as_labels",
    "first_text",
    "frame_columns",
    "is_missing",
    "is_number",
    "numbers",
    "repeated",
    "words",
]

Column = np.ndarray[Any, Any]  # (n,): float64, whole numbers beyond 2**53, or texts (None where there is none)

MISSING = ("", ".", "#n/a", "#na", "-nan", "<na>", "n/a", "na", "nan", "none", "null")  # in lower case, without blanks
EXACT = 2**53  # whole numbers up to here are exact in floating point
WHOLE = re.compile(rb"[+-]?[0-9]+")


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return cell.strip().lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    import pyarrow as arrow

    return not is_missing(cell) and numbers(arrow.array([cell.encode()], arrow.binary())) is not None


def numbers(cells: Any) -> Array | None:
    """The numbers in a pyarrow array of bytes or texts, NaN where they are missing; None when some cell is neither, or a whole
    number that floating point would round: digits beyond 2**53 are labels."""
    import pyarrow as arrow
    from pyarrow import compute

    try:
        text = cells.cast(arrow.string())
        try:
            parsed = text.cast(arrow.float64())
        except arrow.ArrowInvalid:
            text = compute.utf8_trim_whitespace(text)
            gone = compute.is_in(compute.utf8_lower(text), value_set=arrow.array(MISSING))
            parsed = compute.if_else(gone, None, text).cast(arrow.float64())
    except arrow.ArrowInvalid:
        return None
    out: Array = parsed.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        large = [cells[int(i)].as_py().strip() for i in np.flatnonzero(np.abs(out) >= EXACT)]
    return None if any(map(_rounded, large)) else out


def _rounded(cell: bytes) -> bool:
    """Whether a cell is a whole number beyond 2**53."""
    digits = cell.lstrip(b"+-0")
    return WHOLE.fullmatch(cell) is not None and (len(digits) > 16 or int(digits or b"0") > EXACT)


def words(cells: Any) -> Column:
    """The texts in a pyarrow array of bytes, blanks around them left out, None where they are missing."""
    texts = [cell.decode("utf-8").strip() for cell in cells.to_pylist()]
    return np.array([None if is_missing(text) else text for text in texts], dtype=object)


def as_labels(values: Iterable[Any]) -> Column:
    """Texts, None where missing; whole numbers are written as such, whatever they are kept in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    texts = [None if v is None or v != v or is_missing(str(v)) else str(v) for v in whole]
    return np.array(texts, dtype=object)


def plain_column(values: Column) -> Column:
    """Floating-point numbers where they can be, whole numbers beyond 2**53 as they are, else texts."""
    if values.dtype.kind in "iu" and _beyond(values):
        return values
    return values.astype(np.float64) if values.dtype.kind in "biuf" else as_labels(values.tolist())


def _beyond(whole: Any) -> bool:
    """Whether floating point would round some of these whole numbers."""
    return len(whole) > 0 and max(-int(whole.min()), int(whole.max())) > EXACT


def frame_columns(frame: Any, written: Collection[str] = ()) -> dict[str, Column]:
    """Columns of a pandas, polars or pyarrow table; those `written` as labels, before anything is made floating point."""
    columns: dict[str, Column] = {}
    for series in nw.from_native(frame, eager_only=True).iter_columns():
        name, kind = str(series.name), series.dtype
        number = (kind.is_numeric() or kind == nw.Boolean) and name not in written
        if number and kind.is_integer() and not series.null_count():
            columns[name] = plain_column(series.to_numpy())
        elif number and not (kind.is_integer() and _beyond(series.drop_nulls())):
            columns[name] = series.cast(nw.Float64).to_numpy().astype(np.float64)
        else:
            columns[name] = as_labels(series.to_list())
    return columns


def first_text(values: Column) -> int | None:
    """The row of the first cell that is neither a number nor missing, else of the first that is not missing, if any."""
    import pyarrow

    cells = pyarrow.array([None if value is None else str(value).encode() for value in values], pyarrow.binary())
    if numbers(cells) is None:
        return first_word(cells)
    return next((i for i, value in enumerate(values) if value is not None), None)


def first_word(cells: Any) -> int:
    """The first of the cells that are not all numbers that is none: halves are read until it stands alone."""
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if numbers(cells[low:middle]) is None else (middle, high)
    return low


def repeated(names: Iterable[str]) -> str | None:
    """The first name that is there twice."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
