"""Tables: whatever holds one in memory into float64, and views, the named groups of its columns.

Every door of the library reads tables here, so that all accept and refuse the same: arrays, data frames, AnnData, sparse
matrices. All of the library works on ONE two-dimensional table whose columns belong to named views; that is what keeps
Pipeline, GridSearchCV and set_output working.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from numbers import Integral, Number
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray, column_numbers
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.cells import EXACT, as_labels, first_text, holds_numbers, is_number, remedy
from richcomponents.errors import CapacityError, DataError
from richcomponents.storage import storable
from richcomponents.text import in_line

_LARGEST, _SMALLEST = 1e140, 1e-145  # squares, summed, must stay inside the range of float64


# ---- values


def as_matrix(X: object, *, column: bool = False) -> Array:
    """A float64 matrix of whatever looks like a table, in C order: pandas hands out Fortran order, whose sums differ in bits.

    Arrays, nested lists, data frames and sparse matrices of real numbers and truth values are tables; text, dates, complex
    numbers, hidden (masked) values and whole numbers that floating point would round are not. Missing and infinite values
    pass: only who knows the views can name their column (:func:`check_finite`).
    column : a one-dimensional input is one column (targets); otherwise it is an error.
    """
    refuse_foreign(X)
    if hasattr(X, "obs_names") and hasattr(X, "mod"):
        from richcomponents.data.rows import join_views  # which reads each of its tables here

        return join_views(X, finite=False).values
    if sparse.issparse(X):
        X = dense(X)
    frame = as_frame(X)
    if isinstance(frame, (nw.DataFrame, nw.Series)):
        _numeric_columns(frame)
        X = frame.to_numpy()
        if X.dtype.kind == "O":  # of nullable types
            parts = [frame] if isinstance(frame, nw.Series) else frame.iter_columns()
            X = np.column_stack([part.cast(nw.Float64).to_numpy() for part in parts])
    raw = _real(X)
    if raw.ndim == 1 and column:
        raw = raw[:, None]
    if raw.ndim != 2:
        hint = {
            1: ". Reshape your data: X.reshape(-1, 1) for a single column, X.reshape(1, -1) for a single sample",
            3: "; several tables of the same samples are views: fit_views([U, V])",
        }
        raise DataError(
            f"a table must be two-dimensional (samples x columns), got shape {raw.shape}{hint.get(raw.ndim, '')}"
        )
    if not raw.shape[1]:
        raise DataError(
            f"a table needs columns: Found 0 feature(s) (shape={raw.shape}) while a minimum of 1 is required."
        )
    return np.ascontiguousarray(raw, dtype=np.float64)


def as_column(y: object) -> Array:
    """An outcome (n,): one finite number per row."""
    text = _text_in(y)
    if text is not None:
        raise DataError(
            f"the outcome y holds text ({text!r}), and numbers are needed: encode it, or take it for classes "
            "(ComponentLogisticRegression, ExposureEffects)"
        )
    values = as_matrix(y, column=True)
    if values.shape[1] != 1:
        raise DataError(f"y must be one column, one value per row, got shape {values.shape}")
    refuse_gaps(~np.isfinite(values[:, 0]))
    return values[:, 0]


def refuse_gaps(gone: Any) -> None:
    """gone (n,) : rows without an outcome."""
    if gone.any():
        raise DataError(
            f"y holds {int(gone.sum())} missing or infinite values (NaN), the first in row {int(np.argmax(gone))}: drop those "
            'rows, or say missing="drop" in rca='
        )


def _text_in(y: object) -> str | None:
    """A text among the values of an outcome, if there is one."""
    frame = as_frame(y)
    if isinstance(frame, nw.Series):
        cells: Any = [] if frame.dtype.is_numeric() else frame.to_list()
    else:
        cells = y if isinstance(y, (list, tuple)) or (isinstance(y, np.ndarray) and y.dtype.kind in "OU") else ()
    return next((str(cell) for cell in cells if isinstance(cell, str)), None)


def _real(X: object) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
    """An array of real numbers or truth values, refused where floating point would change them."""
    try:
        raw = np.asarray(X)
        if isinstance(X, (list, tuple)) and raw.dtype.kind == "f":
            _exact(np.asarray(X, dtype=object))  # one 0.5 in a list makes floating point of all its whole numbers
    except ValueError as error:
        raise DataError(f"the rows of a table must have the same length ({error})") from error
    if raw.dtype.kind == "c":
        raise DataError(f"Complex data not supported: a table must hold real numbers, got dtype {raw.dtype}")
    if raw.dtype.kind == "O":
        text = next((value for value in raw.flat if isinstance(value, (str, bytes))), None)
        if text is not None:
            raise DataError(f"a table must hold real numbers, not text ({text!r}): encode it as numbers first")
        _exact(raw)
        try:
            return raw.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise _NotNumbersError(f"a table must hold real numbers ({error})") from error
    if raw.dtype.kind not in "biuf":
        raise DataError(
            f"a table must hold real numbers, got dtype {raw.dtype}: drop text and dates, or encode them as numbers first"
        )
    if raw.dtype.kind in "iu" and raw.size:
        _whole(int(raw.min()), int(raw.max()))
    return raw


class _NotNumbersError(DataError, TypeError):
    """Objects that are no numbers: the wrong type of value, and in Python a TypeError too."""


def _exact(objects: np.ndarray[tuple[int, ...], np.dtype[Any]]) -> None:
    whole = [int(value) for value in objects.flat if isinstance(value, Integral)]
    if whole:
        _whole(min(whole), max(whole))


def _whole(low: int, high: int, where: str = "the table") -> None:
    if max(abs(low), abs(high)) > EXACT:
        raise DataError(
            f"{where} holds integers beyond 2**53, which floating point cannot represent: subtract an offset first"
        )


def dense(X: Any) -> Array:
    """The array of a scipy sparse matrix; scipy writes wherever its indices point, so they are checked before.

    Moments are dense, and so are the rows they are summed from.
    """
    need = 8 * float(np.prod(X.shape, dtype=np.float64))
    if need > MEMORY_LIMIT:
        raise CapacityError(
            f"this sparse matrix of shape {X.shape} needs {need / 2**30:.0f} GiB as a table: select columns first"
        )
    array: Array = check_sparse(X).toarray()
    return array


def check_sparse(X: Any) -> Any:
    """A sparse matrix whose indices stay inside it, or an error."""
    if X.ndim != 2:
        raise DataError(f"a table must be two-dimensional (samples x columns), got shape {X.shape}")
    if X.format not in ("csr", "csc", "bsr", "coo"):
        X = X.tocsr() if X.format == "lil" else X.tocoo()
    indices = (X.row, X.col) if X.format == "coo" else (X.indptr, X.indices)
    try:
        if any(part.dtype.kind not in "iu" for part in indices):
            raise ValueError("indices are whole numbers")
        if X.format == "coo":
            return sparse.coo_matrix((X.data, indices), X.shape)
        X = copy(X)  # scipy puts what it checks in order
        X.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"the sparse matrix is damaged: its indices do not fit its shape {X.shape}") from error
    return X


def as_frame(X: object) -> Any:
    """A narwhals frame or series for what is one, anything else as it is."""
    X = unpacked(X)
    if isinstance(X, np.ndarray):  # most blocks of rows: to ask all libraries takes longer than to sum them
        return X
    try:
        frame = nw.from_native(X, pass_through=True, eager_only=True, allow_series=True)
        _ = frame.columns if isinstance(frame, nw.DataFrame) else None
    except nw.exceptions.NarwhalsError as error:
        twice = repeated(map(str, getattr(X, "columns", ())))
        if twice is None:
            raise DataError(f"the table cannot be read: {error}. Column names must be unique") from error
        raise DataError(f"column name {twice!r} appears twice, and names must be unique: rename the columns") from error
    return frame


def unpacked(X: Any) -> Any:
    """The table of an AnnData, X under the names of its variables, and of a RecordBatch; anything else as it is."""
    if type(X).__name__ == "RecordBatch" and hasattr(X, "to_struct_array"):
        from pyarrow import Table

        return Table.from_batches([X])
    return X.to_df() if hasattr(X, "obs_names") and hasattr(X, "var_names") and hasattr(X, "to_df") else X


def is_annotated(X: object) -> bool:
    """Whether X looks like an AnnData."""
    return hasattr(X, "obs_names") and hasattr(X, "var_names") and hasattr(X, "obsm") and not hasattr(X, "mod")


def is_dask(X: object) -> bool:
    """Whether X is a dask collection; dask is not imported for that."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def are_tables(X: object) -> bool:
    """Whether X holds several tables: a MuData, a dict or a list of tables."""
    if hasattr(X, "obs_names") and hasattr(X, "mod"):
        return True
    if not isinstance(X, (Mapping, list, tuple)) or sparse.issparse(X) or not len(X):
        return False
    parts = X.values() if isinstance(X, Mapping) else X
    return all(is_annotated(part) or len(getattr(part, "shape", ())) == 2 for part in parts)


def refuse_foreign(X: object) -> None:
    """What numpy would read, but not as it is meant: hidden values laid bare, containers iterated, files taken for text."""
    if isinstance(X, (str, bytes, os.PathLike)):
        raise DataError(
            "this is a path or a text, where values in memory are needed: open_source(path).array() reads them"
        )
    if is_dask(X):
        raise DataError("this is a dask collection, where values in memory are needed: compute() it")
    name = type(X).__name__
    if hasattr(X, "collect") and hasattr(X, "collect_schema"):
        raise DataError(f"a {name} is a plan, not a table, and has no rows yet: pass .collect() of it, a data frame")
    rows = X if isinstance(X, (list, tuple)) else (X,)
    hidden = sum([int(np.ma.getmaskarray(row).sum()) for row in rows if isinstance(row, np.ma.MaskedArray)])
    if hidden:
        raise DataError(
            f"the array hides {hidden} value(s) behind a mask, and sums would lay them bare: drop those rows, or fill the "
            "values in with .filled(...)"
        )


def _numeric_columns(frame: nw.DataFrame[Any] | nw.Series[Any]) -> None:
    """Refuses a column that is not numeric, or holds whole numbers that floating point cannot represent."""
    parts = [frame] if isinstance(frame, nw.Series) else list(frame.iter_columns())
    for part in parts:
        if not holds_numbers(part.dtype):
            raise DataError(f"column {'y' if part.name is None else part.name!r} {not_numeric(part)}")
        if part.dtype.is_integer() and len(part) and (low := part.min()) is not None:
            _whole(int(low), int(part.max()), f"column {part.name!r}")


def not_numeric(column: Any) -> str:
    """What a column (a series of narwhals) is that holds no numbers, and the remedy."""
    told = f"is not numeric ({column.dtype})"
    if column.dtype.is_temporal():
        return f"{told}, it holds dates or times: turn them into numbers, such as days since a start, or drop it"
    if str(getattr(column.to_native(), "dtype", "")).startswith("Sparse"):
        return f"{told}, it is a sparse column of pandas: use X.sparse.to_dense(), or a sparse matrix of scipy"
    if column.dtype not in (nw.Object, nw.String):
        return f"{told}: drop it, or encode it as numbers first"
    cells = column.to_list()
    if all(cell is None or isinstance(cell, Number) for cell in cells):
        return f"{told}, it holds numbers as objects: use pd.to_numeric(column), or .astype(float)"
    texts = as_labels(cells)
    row = first_text(texts)
    if row is None or is_number(texts[row]):
        return f"{told}, it holds numbers as text: use pd.to_numeric(column), or .astype(float)"
    return f"{told}, {texts[row][:40]!r} in row {row}: {remedy(texts[row])}"


def same_columns(known: Sequence[Any] | None, block: object, *, weights: bool = False) -> Sequence[Any] | None:
    """The column names that blocks of rows share: those known so far, or those of this block, if it is the first to have any.

    A data frame is added by position, so that one with other columns, or in another order, must not be. weights : the last
    column holds them, and is not among the names.
    """
    names = column_names(block)
    names = names[:-1] if names is not None and weights else names
    if known is None or names is None or not all(isinstance(name, str) for name in known):
        return names if known is None else known
    if names != tuple(known):
        at = next((i for i, pair in enumerate(zip(known, names, strict=False)) if pair[0] != pair[1]), None)
        what = f"{len(names)} columns" if at is None else f"{names[at]!r} as column {at}"
        before = f"{len(known)}" if at is None else f"{known[at]!r}"
        raise DataError(
            f"this block of rows has {what}, the first block had {before}: select the same columns, in the same order, from "
            "every block"
        )
    return known


def column_names(X: object) -> tuple[str, ...] | None:
    """Column names of a data frame or series, None for arrays."""
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        return tuple(map(str, frame.columns))
    return (str(frame.name),) if isinstance(frame, nw.Series) and frame.name is not None else None


def check_labels(X: object, *chosen: object) -> None:
    """Refuses column labels of a data frame that leave open what is meant: text and numbers mixed, or numbers in `chosen`
    (views=, covariates=) where the labels are numbers but not those of the positions, 0, 1, 2, ..."""
    frame = as_frame(X)
    labels = list(frame.columns) if isinstance(frame, nw.DataFrame) else []
    texts = [label for label in labels if isinstance(label, str)]
    odd = next((label for label in labels if not isinstance(label, str)), None)
    remedy = (
        "Make all labels text, X.columns = X.columns.astype(str), and choose columns by these names; or pass X.to_numpy() and "
        "choose them by position"
    )
    if odd is not None and texts:
        raise DataError(
            f"the data frame's column labels are text ({texts[0]!r}) as well as other things ({odd!r}). {remedy}"
        )
    if not isinstance(odd, Number) or labels == list(range(len(labels))):
        return
    number = next((n for part in chosen for n in _numbers_in(part)), None)
    if number is not None:
        raise DataError(
            f"column {number} may mean the column labelled {number} or the one at position {number}: the data frame's column "
            f"labels are numbers ({', '.join(map(repr, labels[:3]))}, ...). {remedy}"
        )


def _numbers_in(chosen: object) -> Iterator[int]:
    """The numbers that choose columns, in a dict of views or a list of columns; a mask holds none."""
    if isinstance(chosen, Mapping):
        for part in chosen.values():
            yield from _numbers_in([part] if isinstance(part, Integral) else part)
        return
    inside = (chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen
    if isinstance(inside, Iterable) and not isinstance(inside, str):
        yield from (int(item) for item in inside if isinstance(item, Integral) and not isinstance(item, bool))


def sample_index(X: object) -> tuple[object, ...] | None:
    """Sample labels: an AnnData-like obs_names or a pandas index; None for what has none."""
    labels = getattr(X, "obs_names", None)
    if labels is None:
        frame = as_frame(X)
        labels = nw.maybe_get_index(frame) if isinstance(frame, nw.DataFrame) else None
    return None if labels is None else tuple(labels)


def counts_rows(index: Any) -> bool:
    """Whether an index only counts rows."""
    return bool(len(index)) and index.dtype.kind in "iu" and bool((index == range(len(index))).all())


# ---- checks of values


def check_finite(values: Array, views: Views) -> None:
    """Raise with the view, the column and the remedy when a value is missing or infinite, or there is none."""
    if not len(values):
        raise DataError("there are no rows")
    used = np.sort(np.concatenate(list(views.columns.values())))
    if np.isfinite(values.sum()):
        return
    bad = np.zeros(values.shape, dtype=bool)
    bad[:, used] = ~np.isfinite(values[:, used])
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        kind = "a missing value (NaN)" if np.isnan(values[row, column]) else "an infinite value"
        raise DataError(
            f"{views.describe(column)} holds {kind} in row {row} ({int(bad.sum())} such values in the table): "
            'drop those rows or impute them first, or say missing="drop" or "available" (--missing drop)'
        )


def check_range(centred: Array, views: Views) -> None:
    """Raise when squares of the columns of all views, in order and centred, leave the range of floating point."""
    reach = np.abs(centred).max(axis=0)
    for column in np.flatnonzero(~((reach == 0) | ((reach > _SMALLEST) & (reach < _LARGEST)))).tolist():
        where = int(np.concatenate(list(views.columns.values()))[column])
        raise DataError(
            f"{views.describe(where)} varies by {reach[column]:.1e}, and its square leaves the range of floating point: "
            "rescale the column (for example to unit variance)"
        )


def standardised(covariance: Array) -> tuple[Array, Array]:
    """Standard deviations (..., p), one where a column is constant, and what they leave of a covariance (..., p, p)."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    scale[scale == 0] = 1.0
    return scale, np.asarray(covariance / scale[..., :, None] / scale[..., None, :])


def counts_in(view: Array) -> tuple[float, float]:
    """The largest value and the mean of rows (n, d) that look like raw counts; (0, 0) where they do not.

    Raw counts are whole numbers, none negative, and skewed: in most of the columns that reach ten, the largest value is more
    than five times the mean. Scores, spins, ages and pressures are not; incomes are, and logarithms do them good, too.
    """
    if not len(view) or not ((view >= 0) & (np.mod(view, 1) == 0)).all():
        return 0.0, 0.0
    most, mean = view.max(axis=0), view.mean(axis=0)
    large = most >= 10
    skewed = large & (most > 5 * mean)
    if 2 * np.sum(skewed) <= np.sum(large):
        return 0.0, 0.0
    return float(most.max()), float(mean.mean())


def check_outcome(y: object, rows: int | None) -> Array:
    """An outcome as (rows,) finite numbers that vary within the range of floating point; one row is for others to refuse.

    rows : None where only reading them tells."""
    target = as_column(y)
    rows = len(target) if rows is None else rows
    if len(target) != rows:
        raise DataError(f"y must be one column of {rows} values, got {len(target)}")
    size = float(np.abs(target).max(initial=0.0))
    if size > _LARGEST:
        raise DataError(f"y reaches {size:.1e}, and its square leaves the range of floating point: rescale it")
    reach = float(np.abs(target - target.mean()).max(initial=0.0))
    if rows > 1 and reach <= 1e-14 * size:
        raise DataError(f"y is constant ({target[0]:g} in every row): there is nothing to explain")
    if rows > 1 and reach < _SMALLEST:
        raise DataError(f"y varies by {reach:.1e}, and its square leaves the range of floating point: rescale it")
    return target


def frequencies(sample_weight: object, n_rows: int | None) -> Array:
    """Frequency weights, one entry per row, (n_rows,); None: as many as there are."""
    weights = as_matrix(sample_weight, column=True)
    if weights.shape[1] != 1 or len(weights) != (n_rows or len(weights)):
        raise DataError(f"sample_weight must have one entry per row ({n_rows}), its shape is {weights.shape}")
    check_weights(weights[:, 0])
    if not weights.any():
        raise DataError("sample_weight counts no row: at least one weight must be above zero")
    return weights[:, 0]


def check_weights(weights: Array) -> None:
    """Frequency weights are whole numbers, not negative."""
    bad = ~(np.isfinite(weights) & (weights >= 0) & (weights == np.rint(weights)))
    for row in np.flatnonzero(bad)[:1].tolist():
        raise DataError(
            f"sample_weight says how often a row is counted: whole numbers, at least 0; row {row} of its block has "
            f"{weights[row]}"
        )
    if weights.sum() > EXACT:
        raise DataError(
            "sample_weight counts more than 2**53 rows, beyond which numbers are not exact: use smaller weights"
        )


# ---- views: what `views=` and `covariates=` mean


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

    def listed(self, view: int) -> str:
        """'tests (30 columns): tp53, brca1, ...', for summaries."""
        names = [in_line(self.feature_names[column]) for column in self[view]]
        more = ", ..." if len(names) > 12 else ""
        return f"{in_line(self.names[view])} ({len(names)} columns): {', '.join(names[:12])}{more}"

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
    own: int | None = None,
) -> Views:
    """Turn the `views=` argument into column numbers.

    views : int k: the first k columns and the rest. dict {name: columns}, where columns are names, patterns of names
        ("C_*"), numbers (negative ones from the end), a slice, or one of them alone.
    rows : some rows of the table, the first ones. A number takes all columns, and of a table with names some may be
        no data at all; what can be told from names and rows is refused (:func:`not_data`).
    taken : names that no pattern takes; together : names of groups of columns, for messages. title, role : what messages call
    the table, and the columns where they are no view. own : how many columns, the first ones, masks, slices and numbers
    from the end count; all by default.

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
    named = _Names(places, taken, together, title, n_columns if own is None else own)
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
    groups of columns, which are no columns here; own : columns that are the table's own."""

    places: Mapping[str, int]
    taken: Collection[str]
    together: Collection[str]
    title: str
    own: int

    def numbers(self, what: str, column: object, n_columns: int) -> list[int]:
        """The column of that number or name, or those whose names fit the pattern."""
        if isinstance(column, Integral) and not isinstance(column, bool):
            number = int(column)
            if not -self.own <= number < n_columns:
                raise DataError(f"{what} asks for column {number}, the table has columns 0..{n_columns - 1}")
            return [number if number >= 0 else number + self.own]
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
        return np.arange(named.own, dtype=np.int64)[wanted]
    if isinstance(wanted, slice):
        if wanted.step is not None or any(isinstance(end, Integral) for end in (wanted.start, wanted.stop)):
            raise DataError(f"{what}: a slice by names goes from name to name, without numbers or steps")
        low = 0 if wanted.start is None else named.numbers(what, wanted.start, n_columns)[0]
        high = named.own - 1 if wanted.stop is None else named.numbers(what, wanted.stop, n_columns)[-1]
        return np.arange(low, high + 1, dtype=np.int64)  # by name, both ends included, as in pandas
    if isinstance(wanted, (str, Integral)):
        wanted = [wanted]
    array = np.asarray(wanted)
    if array.dtype == bool:
        if array.shape != (named.own,):
            raise DataError(f"{what}: a mask needs {named.own} entries, got shape {array.shape}")
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
