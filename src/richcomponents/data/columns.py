"""What a single value means in every table, and views, the named groups of columns.

CELLS. What a single value means, in every table: which words are numbers, which say that there is none, which are labels.

VIEWS. Views: named groups of columns of one table, and what `views=` and `covariates=` mean.

All of the library works on ONE two-dimensional table whose columns belong to named views; that is what keeps Pipeline,
GridSearchCV and set_output working.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from numbers import Integral
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array, IntArray, column_numbers
from richcomponents.errors import DataError
from richcomponents.storage import storable
from richcomponents.text import in_line

Column = np.ndarray[Any, Any]  # (n,): float64, whole numbers beyond 2**53, or texts (None where there is none)

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


def words(cells: Any) -> Column:
    """The texts in a pyarrow array of bytes, blanks around them left out, None where they are missing."""
    texts = (cell.decode("utf-8").strip() for cell in cells.to_pylist())
    return np.array([None if is_missing(text) else text for text in texts], dtype=object)


def as_labels(values: Iterable[Any]) -> Column:
    """Texts, None where missing; whole numbers are written as such, whatever they are kept in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    texts = [None if is_gap(v) or is_missing(str(v)) else str(v) for v in whole]
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


def declared_order(values: Any) -> tuple[str, ...] | None:
    """The labels of a category with an order, as they were declared: an ordered category of pandas, an Enum of polars, an
    ordered dictionary of pyarrow (its pieces of rows may hold one each). None for what declares no order."""
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


def declared_orders(frame: Any) -> dict[str, tuple[str, ...]]:
    """The same of the columns of a table of pandas, polars or pyarrow that are such categories, by name."""
    columns = nw.from_native(frame, eager_only=True).iter_columns()
    orders = {str(column.name): declared_order(column.to_native()) for column in columns}
    return {name: order for name, order in orders.items() if order is not None}


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


def repeated(names: Iterable[str]) -> str | None:
    """The first name that is there twice."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


_WAYS = (
    "views= says which columns are which: a number k (the first k columns and the rest), a dict such as "
    '{"tests": [...], "controls": [...]} (names, numbers or slices), or separate tables, fit_views([U, V])'
)
# What columns are often called that belong to no view; a number never takes them (see not_data).
_OUTCOME = re.compile(
    r"(.*:)?(y|targets?|outcomes?|labels?|class(es)?|response|disease|diagnosis|status|case|survival|event)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(.*:)?(|(.*[_ .-])?(id|ids|idx|index|uid|uuid)|unnamed: .*|__index_level_.*|level_\d+|(row)?names|"
    r"(row|sample|subject|patient|barcode)s?)",
    re.IGNORECASE,
)


@storable
@dataclass(frozen=True)
class Views:
    """Column groups of a table, in order.

    columns : {view name: column numbers}; feature_names : one name per column of the table.
    """

    columns: Mapping[str, IntArray]
    feature_names: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, view: str | int) -> IntArray:
        """Column numbers of a view, by name or position."""
        name = self.names[view] if isinstance(view, int) else view
        if name not in self.columns:
            raise KeyError(f"there is no view {name!r}; the views are {', '.join(map(repr, self.names))}")
        return self.columns[name]

    def listed(self, view: int, most: int = 12) -> str:
        """'tests (30 columns): tp53, brca1, ...', for summaries."""
        names = [in_line(self.feature_names[column]) for column in self[view]]
        more = ", ..." if len(names) > most else ""
        return f"{in_line(self.names[view])} ({len(names)} columns): {', '.join(names[:most])}{more}"

    def describe(self, column: int) -> str:
        """'column 'tp53' of view 'tests'', for messages."""
        name = self.feature_names[column]
        owner = next((view for view, cols in self.columns.items() if column in cols), None)
        return f"column {name!r}" + (f" of view {owner!r}" if owner is not None else "")


def resolve_views(
    views: object,
    n_columns: int,
    feature_names: Sequence[str] | None = None,
    rows: Array | None = None,
    *,
    taken: Collection[str] = (),
    together: Collection[str] = (),
    title: str = "the table",
    role: str | None = None,
) -> Views:
    """Turn the `views=` argument into column numbers.

    views : int k: the first k columns and the rest. dict {name: columns}, where columns are names, patterns of names
        ("C_*"), numbers (negative ones from the end), a slice, or one of them alone.
    rows : some rows of the table, the first ones. A number takes all columns, and of a table with names some may be
        no data at all; what can be told from names and rows is refused (:func:`not_data`).
    taken : names that no pattern takes; together : names of groups of columns, for messages. title, role : what messages call
    the table, and the columns where they are no view.

    >>> resolve_views(2, 5).columns["V"].tolist()
    [2, 3, 4]
    """
    names = tuple(feature_names) if feature_names is not None else tuple(f"x{i}" for i in range(n_columns))
    twice = repeated(names)
    if twice is not None:
        raise DataError(f"column name {twice!r} appears twice: rename the columns")
    if views is None:
        raise DataError(f"views= is needed for a table of {n_columns} columns. {_WAYS}")
    if isinstance(views, Integral) and not isinstance(views, bool):
        k = int(views)
        if not 0 < k < n_columns:
            raise DataError(
                f"views={k} would leave a view empty: the table has {n_columns} column(s); "
                f"use a number between 1 and {max(n_columns - 1, 1)}"
            )
        for name, reason in not_data(feature_names, rows).items():
            raise DataError(
                f"views={k} would take column {name!r} as data: it looks like {reason}. Drop it, or name the columns: "
                f"views={{'U': [{names[0]!r}, ...], 'V': [...]}}"
            )
        views = {"U": slice(0, k), "V": slice(k, n_columns)}
    if not isinstance(views, Mapping):
        raise TypeError(f"views must be an int or a dict of columns, got {type(views).__name__}. {_WAYS}")
    if len(views) == 0:
        raise DataError("views is empty: name at least one group of columns")
    columns: dict[str, IntArray] = {}
    owner: dict[int, str] = {}
    places = {name: i for i, name in enumerate(names)} if feature_names is not None else {}
    named = _Names(places, taken, together, title)
    for view, wanted in views.items():
        if str(view) in columns:
            raise DataError(f"two views are called {str(view)!r}: rename one")
        what = role or f"view {str(view)!r}"
        chosen = _resolve_columns(what, wanted, n_columns, named)
        if not len(chosen):
            raise DataError(f"{what} is empty: give it at least one column, or leave it out")
        for column in chosen.tolist():
            if column in owner:
                where = f"views {owner[column]!r} and {view!r}" if owner[column] != str(view) else f"{what} twice"
                raise DataError(f"column {names[column]!r} is in {where}: every column belongs to one view")
            owner[column] = str(view)
        columns[str(view)] = chosen
    return Views(columns, names)


def chosen_columns(columns: object, width: int, names: Sequence[str] | None) -> IntArray:
    """Numbers of the columns that are chosen by names or patterns of them, numbers, a mask or a slice."""
    given = [columns] if isinstance(columns, str) else columns
    if isinstance(given, (list, tuple)) and any(isinstance(column, str) for column in given):
        return resolve_views({"columns": given}, width, names, role="what is asked for")["columns"]
    return column_numbers(given, width)


def not_data(names: Sequence[str] | None, rows: Array | None = None) -> dict[str, str]:
    """Columns that no number should take for data, and what they look like: {name: "an outcome, by its name"}.

    names : of the columns; without names nothing is known. rows (n, columns) : the first rows; one that counts them is an
    index.
    """
    found = {}
    for i, name in enumerate(names or ()):
        if _OUTCOME.fullmatch(name.strip()):
            found[name] = "an outcome, by its name"
        elif is_label(name):
            found[name] = "sample labels or an index, by its name"
        elif rows is not None and len(rows) > 2 and (np.diff(rows[:, i]) == 1).all():
            found[name] = "an index: it counts the rows"
    return found


def is_label(name: str) -> bool:
    """Whether a column is, by its name, sample labels or an index."""
    return _LABEL.fullmatch(name.strip()) is not None


@dataclass(frozen=True)
class _Names:
    """places : the number of each name, empty for a table without names; taken : what no pattern takes; together : names of
    groups of columns, which are no columns here."""

    places: Mapping[str, int]
    taken: Collection[str]
    together: Collection[str]
    title: str

    def numbers(self, what: str, column: object, n_columns: int) -> list[int]:
        """The column of that number or name, or those whose names fit the pattern."""
        if isinstance(column, Integral) and not isinstance(column, bool):
            number = int(column)
            if not -n_columns <= number < n_columns:
                raise DataError(f"{what} asks for column {number}, the table has columns 0..{n_columns - 1}")
            return [number % n_columns]
        if not self.places:
            raise DataError(
                f"{what} names column {column!r}, but the table has no column names. If it comes from a "
                "scikit-learn transformer, call its set_output(transform='pandas'); or give column numbers"
            )
        if str(column) in self.places:
            return [self.places[str(column)]]
        free = [name for name in self.places if name not in self.taken]
        if any(sign in str(column) for sign in "*?["):
            fitting = [self.places[name] for name in free if fnmatchcase(name, str(column))]
            if not fitting:
                raise DataError(f"{what}: no column of {self.title} fits {column!r}; the columns are {listed(free)}")
            return fitting
        close = get_close_matches(str(column), [*self.places, *self.together], n=3)
        groups = f"; groups of columns are {listed(self.together)}" if self.together else ""
        rest = f"the first are {list(self.places)[:5]}{groups}"
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else rest
        raise DataError(f"{what} names column {column!r}, which is not in {self.title}; {hint}")


def _resolve_columns(what: str, wanted: Any, n_columns: int, named: _Names) -> IntArray:
    if isinstance(wanted, slice) and not any(isinstance(end, str) for end in (wanted.start, wanted.stop)):
        return np.arange(n_columns, dtype=np.int64)[wanted]
    if isinstance(wanted, slice):
        if wanted.step is not None or any(isinstance(end, Integral) for end in (wanted.start, wanted.stop)):
            raise DataError(f"{what}: a slice by names goes from name to name, without numbers or steps")
        low = 0 if wanted.start is None else named.numbers(what, wanted.start, n_columns)[0]
        high = n_columns - 1 if wanted.stop is None else named.numbers(what, wanted.stop, n_columns)[-1]
        return np.arange(low, high + 1, dtype=np.int64)  # by name, both ends included, as in pandas
    if isinstance(wanted, (str, Integral)):
        wanted = [wanted]
    array = np.asarray(wanted)
    if array.dtype == bool:
        if array.shape != (n_columns,):
            raise DataError(f"{what}: a mask needs {n_columns} entries, got shape {array.shape}")
        return np.flatnonzero(array)
    return np.array([number for column in wanted for number in named.numbers(what, column, n_columns)], dtype=np.int64)


def names_in(text: str) -> list[str]:
    """Column names in one line, as in a row of a CSV file: a name that holds commas, quotes or line ends stands in quotes, its
    own quotes written twice.

    >>> names_in('age, "weight, kg","5"" disk"')
    ['age', 'weight, kg', '5" disk']
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise DataError(
            f"cannot read the names in {text!r} ({error}): put a name that holds commas or quotes in quotes, and write its "
            'own quotes twice, as in "weight, kg"'
        ) from error
    if len(rows) > 1:
        raise DataError(f"a name that holds a line end stands in quotes: {text!r}")
    return [cell.strip() for row in rows for cell in row]


def name_in(text: str) -> str:
    """One column name, in quotes or not.

    >>> name_in("weight, kg"), name_in('"weight, kg"')
    ('weight, kg', 'weight, kg')
    """
    quoted = len(text) > 1 and text.strip().startswith('"') and text.strip().endswith('"')
    found = names_in(text) if quoted else [text]
    return found[0] if len(found) == 1 else text


def listed(names: Collection[str], most: int = 8) -> str:
    """The first names, and how many there are."""
    return ", ".join(list(names)[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
