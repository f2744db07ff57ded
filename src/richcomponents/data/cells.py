"""What a single value means, in every table: which words are numbers, which say that there is none, which are labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array

Column = np.ndarray[Any, Any]  # (n,): float64, whole numbers beyond 2**53, or texts (None where there is none)


class Ordered(Column):
    """Labels (n,) of a category with an order; order : its labels as they were declared. Parts of them keep it."""

    order: tuple[str, ...] | None = None

    def __array_finalize__(self, whole: Any) -> None:
        self.order = getattr(whole, "order", None)


MISSING = ("", ".", "#n/a", "#na", "-nan", "<na>", "n/a", "na", "nan", "none", "null")  # in lower case, without blanks
EXACT = 2**53  # whole numbers up to here are exact in floating point
WHOLE = re.compile(rb"[+-]?[0-9]+")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ]\d{3})+)?,\d+([eE][+-]?\d+)?")  # 1,5 and 1.234,5
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")  # 1,234.5


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


def as_labels(values: Iterable[Any]) -> Column:
    """Texts, None where missing; whole numbers are written as such, whatever they are kept in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    texts = [None if is_gap(v) or is_missing(str(v)) else str(v) for v in whole]
    return np.array(texts, dtype=object)


def holds_numbers(kind: Any) -> bool:
    """Whether columns of a data type of narwhals hold numbers or truth values."""
    return bool(kind.is_numeric() or kind == nw.Boolean)


def _beyond(whole: Any) -> bool:
    """Whether floating point would round some of these whole numbers."""
    return len(whole) > 0 and max(-int(whole.min()), int(whole.max())) > EXACT


def frame_columns(frame: Any, written: Collection[str] = ()) -> dict[str, Column]:
    """Columns of a pandas, polars or pyarrow table: floating-point numbers where they can be, whole numbers beyond 2**53 as
    they are, else texts; those `written` as labels, before anything is made floating point."""
    columns: dict[str, Column] = {}
    for series in nw.from_native(frame, eager_only=True).iter_columns():
        name, kind = str(series.name), series.dtype
        number = holds_numbers(kind) and name not in written
        if number and kind.is_integer() and not series.null_count():
            whole = series.to_numpy()
            columns[name] = whole if _beyond(whole) else whole.astype(np.float64)
        elif number and not (kind.is_integer() and _beyond(series.drop_nulls())):
            columns[name] = series.cast(nw.Float64).to_numpy().astype(np.float64)
        else:
            columns[name] = in_declared_order(as_labels(series.to_list()), declared_order(series.to_native()))
    return columns


def in_declared_order(labels: Column, order: tuple[str, ...] | None) -> Column:
    """The same labels, with an order if there is one."""
    out = labels if order is None else labels.view(Ordered)
    if isinstance(out, Ordered):
        out.order = order
    return out


def declared_order(values: Any) -> tuple[str, ...] | None:
    """The labels of a category with an order, as they were declared: an ordered category of pandas, an Enum of polars, an
    ordered dictionary of pyarrow (its pieces of rows may hold one each). None for what declares no order."""
    if isinstance(values, Ordered):
        return values.order
    kind: Any = getattr(values, "dtype", getattr(values, "type", None))
    if type(kind).__name__ == "Enum":
        return tuple(as_labels(kind.categories))
    if getattr(kind, "ordered", None) is not True:
        return None
    if hasattr(kind, "categories"):
        return tuple(as_labels(kind.categories))
    pieces = getattr(values, "chunks", [values])
    found = {tuple(as_labels(piece.dictionary.to_pylist())) for piece in pieces}
    return found.pop() if len(found) == 1 else None


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


def written_otherwise(cell: str) -> str:
    """What is foreign in a text that looks like a number; empty where it does not.

    >>> written_otherwise("1.234,5"), written_otherwise("1,234"), written_otherwise("high")
    ('a decimal comma', 'a decimal comma or a thousands separator', '')
    """
    signs = {"a decimal comma": _COMMA, "a thousands separator": _THOUSANDS}
    return " or ".join(what for what, pattern in signs.items() if pattern.fullmatch(cell.strip()))


def remedy(cell: str) -> str:
    """What to do about a text among numbers."""
    if seen := written_otherwise(cell):
        return f"it looks like a number with {seen}. Write numbers like 1234.5"
    return "leave it out, or encode it as numbers"


def is_gap(label: object) -> bool:
    """None, nan, NaT, or the NA of pandas, which does not even say whether it equals itself."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)
