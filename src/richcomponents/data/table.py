"""Whatever holds a table in memory into float64 with named columns: arrays, data frames, AnnData, MuData, sparse matrices.

Every door of the library reads tables here, so that all accept and refuse the same. Users who hold several tables come in
through :func:`join_views`, which checks that the samples line up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from scipy import sparse

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.align import WAYS, Alignment, align_labels
from richcomponents.data.columns import EXACT, Views, as_labels, first_text, is_number, remedy, repeated, resolve_views
from richcomponents.errors import CapacityError, DataError, warn_user

_LARGEST, _SMALLEST = 1e140, 1e-145  # squares, summed, must stay inside the range of float64


@dataclass(frozen=True)
class Table:
    """Values (n, p) with their views and, when the input had one, the sample index."""

    values: Array
    views: Views
    index: tuple[object, ...] | None = None
    named: bool = False  # whether the column names are the user's
    alignment: Alignment | None = None  # of rows that were matched by label

    def lined_up(self, values: object, what: str) -> Any:
        """One value per row of the first view as it was given -> one per row of the table; None stays None."""
        if values is None or self.alignment is None:
            return values
        first, rows = next(iter(self.alignment.rows.items()))
        entries, lacks = np.asarray(values), int((rows < 0).sum())
        given = len(rows) - lacks + len(self.alignment.left_out.get(first, ()))
        if len(entries) != given:
            raise DataError(f"{what} must have one entry per row of view {first!r} ({given}), got {len(entries)}")
        if lacks:
            raise DataError(
                f"{what} are given for the rows of view {first!r}, which lacks {lacks} samples: use "
                'align="inner", or join the tables and use fit(X)'
            )
        return entries[rows]


# ---- values


def as_matrix(X: object, *, column: bool = False) -> Array:
    """A C-ordered float64 matrix of whatever looks like a table; every door of the library reads tables here.

    So every door accepts and refuses the same: arrays, nested lists, data frames and sparse matrices of real numbers and
    truth values are tables; text, dates, complex numbers, hidden (masked) values, whole numbers that floating point would
    round, and containers of several tables are not. Missing and infinite values pass: only who knows the views can
    name their column (:func:`check_finite`).

    pandas hands out Fortran-ordered arrays, whose sums differ in the last bits: C order for all.

    column : a one-dimensional input is one column (targets); otherwise it is an error.
    """
    refuse_foreign(X)
    if hasattr(X, "obs_names") and hasattr(X, "mod"):
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
    try:
        frame = nw.from_native(X, pass_through=True, eager_only=True, allow_series=True)
        _ = frame.columns if isinstance(frame, nw.DataFrame) else None
    except nw.exceptions.NarwhalsError as error:
        twice = repeated(map(str, getattr(X, "columns", ())))
        if twice is not None:
            raise DataError(
                f"column name {twice!r} appears twice, and names must be unique: rename the columns"
            ) from error
        raise DataError(f"the table cannot be read: {error}. Column names must be unique") from error
    return frame


def unpacked(X: Any) -> Any:
    """The table of an AnnData: X under the names of its variables, as its file is read; anything else as it is."""
    return X.to_df() if hasattr(X, "obs_names") and hasattr(X, "var_names") and hasattr(X, "to_df") else X


def is_annotated(X: object) -> bool:
    """Whether X looks like an AnnData."""
    return hasattr(X, "obs_names") and hasattr(X, "var_names") and hasattr(X, "obsm") and not hasattr(X, "mod")


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
    kind = type(X).__module__.partition(".")[0]
    if kind in ("dask", "dask_expr"):
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
        if not (part.dtype.is_numeric() or part.dtype == nw.Boolean):
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
            'drop those rows or impute them first, or say missing="drop" or "available"'
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
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"sample_weight says how often a row is counted: whole numbers, at least 0; row {row} of its block has "
            f"{weights[row]}"
        )
    if weights.sum() > EXACT:
        raise DataError(
            "sample_weight counts more than 2**53 rows, beyond which numbers are not exact: use smaller weights"
        )


# ---- tables


def as_table(X: object, views: object = None) -> Table:
    """A table and its column groups, checked.

    Examples
    --------
    >>> table = as_table(np.zeros((4, 5)), views={"tests": [0, 1, 2], "controls": slice(3, 5)})
    >>> table.values.shape, table.views["controls"].tolist()
    ((4, 5), [3, 4])
    """
    check_labels(X, views)
    values, names = as_matrix(X), column_names(X)
    resolved = resolve_views(views, values.shape[1], names, values)
    check_finite(values, resolved)
    return Table(values, resolved, sample_index(X), names is not None)


def join_views(views: object, *, align: str = "same", id: str | None = None, finite: bool = True) -> Table:
    """One table from several: a list of tables, a dict {name: table}, or a MuData-like object (`.mod`).

    Tables may be arrays, pandas or polars data frames, or AnnData-like objects (`.X`, `.var_names`, `.obs_names`). Where they
    carry sample labels (a pandas index, `obs_names`), rows are matched by these and come in the order of the first table that
    has them; without labels, tables must have the same number of rows and are taken row by row.

    align : "same", labels must be the same ones, in any order; "inner", samples that all tables have, the others are left out,
    counted and named in a warning; "outer", samples that any table has, with nan where a table has none.
    id : the column of sample labels, of data frames (of AnnData: of obs); it is no data.
    finite : refuse missing and infinite values; with align="outer" they are to be expected.

    >>> table = join_views({"rna": np.zeros((4, 2)), "protein": np.ones((4, 3))})
    >>> table.values.shape, table.views["protein"].tolist()
    ((4, 5), [2, 3, 4])
    """
    named = {view: _labelled(view, part, id) for view, part in named_views(views).items()}
    found = _aligned({view: (labels, len(values)) for view, (values, _, labels) in named.items()}, align)
    names = []
    for view, (values, own, _) in named.items():
        names.append([f"{view}_{i}" for i in range(values.shape[1])] if own is None else list(own))
    flat = [name for group in names for name in group]
    if len(set(flat)) < len(flat):  # the same gene measured in two views: tell them apart by the view
        flat = [f"{view}:{name}" for view, group in zip(named, names, strict=True) for name in group]
    ends = np.cumsum([0, *(values.shape[1] for values, _, _ in named.values())])
    columns = {view: np.arange(ends[i], ends[i + 1], dtype=np.int64) for i, view in enumerate(named)}
    named_by_user = any(own is not None for _, own, _ in named.values())
    parts = [values if found is None else found.taken(values, view) for view, (values, _, _) in named.items()]
    index = None if found is None else found.labels
    table = Table(np.hstack(parts), resolve_views(columns, int(ends[-1]), flat), index, named_by_user, found)
    if finite and align != "outer":
        check_finite(table.values, table.views)
    for note in () if found is None else found.notes():
        warn_user(note, UserWarning)
    return table


def named_views(views: object) -> dict[str, Any]:
    """{name: table} of a list, a dict or a MuData-like object; two that are not named are U and V."""
    parts = getattr(views, "mod", views)
    if isinstance(parts, Mapping):
        named = {str(name): part for name, part in parts.items()}
    elif isinstance(parts, Sequence) and not isinstance(parts, str):
        default = ("U", "V") if len(parts) == 2 else tuple(f"view{i}" for i in range(len(parts)))
        named = dict(zip(default, parts, strict=True))
    else:
        raise TypeError(f"give a list, a dict or a MuData-like object of views, got {type(views).__name__}")
    if not named:
        raise DataError("there are no views")
    return named


def _labelled(view: str, part: Any, id: str | None) -> tuple[Array, tuple[str, ...] | None, tuple[object, ...] | None]:
    """Values (n, p) of a view, its column names and its sample labels, where it has any."""
    annotated = hasattr(part, "obs_names")
    labels = sample_index(part)
    if id is not None:
        part, labels = _without_labels(view, part, id)
    try:
        values = as_matrix(getattr(part, "X", part) if annotated else part)
    except DataError as error:
        raise DataError(f"view {view!r}: {error}") from error
    if not values.shape[1]:
        raise DataError(f"view {view!r} has no columns")
    own = getattr(part, "var_names", None) if annotated else column_names(part)
    return values, None if own is None else tuple(map(str, own)), labels


def _without_labels(view: str, part: Any, id: str) -> tuple[Any, tuple[object, ...]]:
    """A table without its column of sample labels, and these."""
    annotations = getattr(part, "obs", None)
    if annotations is not None and id in annotations:
        return part, tuple(annotations[id])
    frame = as_frame(part)
    if annotations is not None or not isinstance(frame, nw.DataFrame) or id not in frame.columns:
        if isinstance(frame, nw.DataFrame) and getattr(getattr(part, "index", None), "name", None) == id:
            return part, tuple(part.index)
        there = "columns" if isinstance(frame, nw.DataFrame) else ""
        there = there if annotations is None else "obs of the AnnData"
        said = f"not among the {there}" if there else "an array has no named columns: pass a data frame"
        raise DataError(f"view {view!r} has no sample labels {id!r}: {said}")
    return frame.drop(id).to_native(), tuple(frame[id].to_list())


def _aligned(tables: Mapping[str, tuple[tuple[object, ...] | None, int]], how: str) -> Alignment | None:
    """How the rows of tables, each with its labels and its length, line up; None where they do row by row, without labels."""
    if how not in WAYS:
        raise ValueError(f"align must be one of {', '.join(map(repr, WAYS))}, got {how!r}")
    known = {view: labels for view, (labels, _) in tables.items() if labels is not None}
    numbered = [view for view, labels in known.items() if labels == tuple(range(len(labels)))]  # says nothing by itself
    if len(numbered) == len(known):
        known = {}
    bare = next((view for view in tables if view not in known), None)
    if how != "same" and bare is not None:
        raise DataError(
            f"align={how!r} matches samples by label, and view {bare!r} has none: give it an index of sample labels (obs_names "
            "of AnnData), or name the column that holds them, id="
        )
    if numbered and known and len(set(known.values())) > 1:
        other = next(view for view in known if view not in numbered)
        raise DataError(
            f"view {numbered[0]!r} numbers its rows 0, 1, 2, ... and view {other!r} labels them otherwise: whether these are "
            "the same samples in a different order nobody can tell. Give both the same labels, or none (to_numpy())"
        )
    lengths = {view: length for view, (_, length) in tables.items()}
    if bare is not None and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{view!r} has {n}" for view, n in lengths.items())
        raise DataError(f"all views must have the same samples: {counts}")
    if not known:
        return None
    found = align_labels(known, how)
    if bare is not None:
        first = next(iter(known))
        warn_user(
            f"view {bare!r} carries no sample labels: its rows are taken to be in the order of {first!r}", UserWarning
        )
        rows = {view: found.rows.get(view, found.rows[first]) for view in tables}
        return Alignment(found.labels, rows, found.left_out)
    return found
