"""Columns into views: what a model is fitted to, chosen and checked by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.sources.delimited import numbers
from richcomponents.data.views import as_matrix, not_data
from richcomponents.errors import DataError
from richcomponents.tables.files import Column, FileTable, listed

__all__ = ["Selection", "first_text", "select"]

_FIRST = 1000  # rows that tell an index from data
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ]\d{3})+)?,\d+([eE][+-]?\d+)?")  # 1,5 and 1.234,5
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")  # 1,234.5


@dataclass(frozen=True)
class Selection:
    """What a model is fitted to.

    names : columns of X, those of the views and then the covariates; views : {name: column names}, U first; X : (n, p);
    y : (n,) numbers or labels, or None; groups : (n,) or None; notes : sentences about rows left out.
    """

    names: tuple[str, ...]
    views: dict[str, tuple[str, ...]]
    covariates: tuple[str, ...]
    X: Array
    y: Column | None
    groups: Column | None
    notes: tuple[str, ...] = ()

    def arguments(self) -> tuple[Any, dict[str, list[Any]], list[Any]]:
        """X, views= and covariates= for an estimator: a data frame and names where pandas is installed, else numbers."""
        try:
            import pandas
        except ImportError:
            at = {name: i for i, name in enumerate(self.names)}
            views = {view: [at[name] for name in columns] for view, columns in self.views.items()}
            return self.X, views, [at[name] for name in self.covariates]
        frame = pandas.DataFrame(self.X, columns=list(self.names))
        return frame, {view: list(columns) for view, columns in self.views.items()}, list(self.covariates)


def select(
    table: FileTable,
    views: Sequence[str] = (),
    *,
    target: str | None = None,
    covariates: Sequence[str] = (),
    groups: str | None = None,
    key: str | None = None,
    drop_missing: bool = False,
) -> Selection:
    """The columns a model needs.

    views : "tests=a,b,c", "controls=C_*" (names and patterns), the name of a view of the file, or one number k: the
    first k columns are U, the others V; text, annotations of the samples, and what looks like an outcome, labels or an
    index is left out, and a note says what was taken. target, covariates, groups, key : columns that belong to no view.
    drop_missing : leave out rows with missing values instead of refusing them.
    """
    for role, others in (("a covariate", covariates), ("the groups", [groups]), ("the labels", [key])):
        if target is not None and target in others:
            raise DataError(
                f"column {target!r} is the target and also {role}: a model that sees its outcome explains nothing"
            )
    again = next((name for name, count in Counter(covariates).items() if count > 1), None)
    if again is not None:
        raise DataError(f"covariate {again!r} is named twice: name it once")
    taken = {name for name in (target, groups, key, *covariates) if name is not None}
    free = {name: None for name in table.columns if name not in taken}
    chosen, told = _chosen_views(table, list(views), list(free))
    used = [name for columns in chosen.values() for name in columns]
    twice = next((name for name, count in Counter(used).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"column {twice!r} is in two views, or twice in one: every column belongs to one view")
    both = next((name for name in used if name in taken), None)
    if both is not None:
        raise DataError(
            f"column {both!r} is in a view and also the target, a covariate, the groups or the labels: name it once"
        )
    owner = {name: f"column {name!r} of view {view!r}" for view, columns in chosen.items() for name in columns}
    owner |= {name: f"covariate {name!r}" for name in covariates}
    names = [*used, *covariates]
    for name in names:
        if table.named(name, "a covariate").dtype.kind not in "biuf":
            row = first_text(table.columns[name])
            if row is None:
                raise DataError(f"{owner[name]} holds no value at all: leave it out")
            cell = str(table.columns[name][row])
            raise DataError(f"{owner[name]} holds text ({cell!r} in data row {row + 1}): {_remedy(cell)}")
    X = np.column_stack([_numbers(table.columns[name], owner[name]) for name in names])
    y = None if target is None else table.named(target, "the target")
    if y is not None and y.dtype.kind in "iu":
        y = _numbers(y, f"the target {target!r}")[:, 0]
    labels = None if groups is None else table.labelled(groups, "the groups")
    extra = {f"the target {target!r}": y, f"the groups {groups!r}": labels}
    bad = {owner[name]: ~np.isfinite(X[:, i]) for i, name in enumerate(names)}
    bad |= {role: _gone(values) for role, values in extra.items() if values is not None}
    keep, notes = _complete_rows(table.source, bad, drop_missing)
    return Selection(
        tuple(names),
        chosen,
        tuple(covariates),
        X[keep],
        None if y is None else y[keep],
        None if labels is None else labels[keep],
        (*told, *notes),
    )


def first_text(values: Column) -> int | None:
    """The row of the first cell that is neither a number nor missing, else of the first that is not missing, if any.

    Halves are read until it stands alone.
    """
    import pyarrow

    cells = pyarrow.array([None if value is None else str(value).encode() for value in values], pyarrow.binary())
    if numbers(cells) is not None:
        return next((i for i, value in enumerate(values) if value is not None), None)
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if numbers(cells[low:middle]) is None else (middle, high)
    return low


def _remedy(cell: str) -> str:
    """What to do about a text among numbers."""
    thousands, comma = _THOUSANDS.fullmatch(cell), _COMMA.fullmatch(cell)
    if thousands or comma:
        found = [what for what, yes in (("a decimal comma", comma), ("a thousands separator", thousands)) if yes]
        return f"it looks like a number with {' or '.join(found)}. Write numbers like 1234.5"
    return "leave it out, or encode it as numbers"


def _numbers(values: Column, role: str) -> Array:
    """A column (n, 1) of floating-point numbers; whole ones that would be rounded are refused."""
    try:
        return as_matrix(values, column=True)
    except DataError as error:
        raise DataError(f"{role}: {error}") from error


def _gone(values: Column) -> Column:
    if values.dtype.kind == "f":
        return np.asarray(~np.isfinite(values))
    return np.array([value is None for value in values])


def _complete_rows(source: str, bad: Mapping[str, Column], drop: bool) -> tuple[Column, tuple[str, ...]]:
    missing = np.any(list(bad.values()), axis=0)
    if not missing.any():
        return ~missing, ()
    counts = {role: int(rows.sum()) for role, rows in bad.items() if rows.any()}
    role = next(iter(counts))
    row = int(np.flatnonzero(bad[role])[0]) + 1
    others = f", and {len(counts) - 1} other columns hold some" if len(counts) > 1 else ""
    if not drop:
        raise DataError(
            f"{role} holds {counts[role]} missing or infinite values (the first in data row {row} of {source}){others}; "
            f"{int(missing.sum())} of {len(missing)} rows are touched. Impute them first, or leave those rows out with "
            "--drop-missing"
        )
    if missing.all():
        raise DataError(
            f"every row of {source} has a missing value: drop columns such as {max(counts, key=counts.__getitem__)}"
        )
    note = f"{int(missing.sum())} of {len(missing)} rows have missing values and were left out."
    return ~missing, (note,)


def _unnamed(table: FileTable, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Those of the columns that are data though nobody named them, and a sentence about the others."""
    grouped = {column for columns in table.views.values() for column in columns} or set(names)
    left = {name: "an annotation of the samples" for name in names if name not in grouped}
    left |= {name: "text" for name in names if table.columns[name].dtype.kind not in "biuf"}
    numeric = [name for name in names if name not in left]
    first = np.column_stack([table.columns[name][:_FIRST] for name in numeric]) if numeric else None
    left |= not_data(numeric, first)
    reasons = ", ".join(f"{name!r} ({why})" for name, why in left.items())
    return tuple(name for name in numeric if name not in left), f" Left out: {reasons}." if left else ""


def _divided(table: FileTable, k: int, free: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The first k columns and the rest, of those that may be data; a sentence says what was taken."""
    data, left_out = _unnamed(table, free)
    if not 0 < k < len(data):
        raise DataError(
            f"--views {k} would leave a view empty: {table.source} has {len(data)} columns to divide.{left_out} Name columns "
            "with --views NAME=column,column to take others"
        )
    chosen = {"U": data[:k], "V": data[k:]}
    taken = "; ".join(f"{view} is {listed(columns)}" for view, columns in chosen.items())
    return chosen, [f"--views {k}: {taken}.{left_out}"]


def _chosen_views(table: FileTable, wanted: list[str], free: list[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """{view: columns}, and sentences about what was taken without being named."""
    if len(wanted) == 1 and wanted[0].isdecimal():
        return _divided(table, int(wanted[0]), free)
    if not wanted and len(table.views) == 2:
        wanted = list(table.views)
    if not wanted:
        own = f"It holds the views {', '.join(table.views)}: name two or more of them. " if len(table.views) > 1 else ""
        raise DataError(
            f"say which columns of {table.source} are the tests (U) and which the controls (V). {own}For example: "
            "--views tests=a,b,c --views controls='C_*', or --views 10 for the first ten and the rest. "
            f"The columns are {listed(table.columns)}"
        )
    chosen: dict[str, tuple[str, ...]] = {}
    told: list[str] = []
    unused = set(free)
    for spec in wanted:
        name, equals, columns = spec.partition("=")
        if name in chosen:
            raise DataError(f"two views are called {name!r}: rename one")
        if equals:
            chosen[name] = tuple(c for part in columns.split(",") for c in _matching(table, name, part.strip(), free))
        elif name in table.views:
            chosen[name], left_out = _unnamed(table, [column for column in table.views[name] if column in unused])
            told += [f"View {name!r} is {listed(chosen[name]) or 'empty'}.{left_out}"] if left_out else []
        else:
            raise DataError(
                f"--views {spec} names no columns: write --views NAME=column,column or NAME='prefix*'"
                + (f", or one of the file's own views ({', '.join(table.views)})" if table.views else "")
            )
        if not chosen[name]:
            raise DataError(f"view {name!r} has no columns that may be data. {' '.join(told)}".rstrip())
    if len(chosen) < 2:
        raise DataError(f"views are compared, --views names only {', '.join(chosen)}: name U first, then V, or more")
    return chosen, told


def _matching(table: FileTable, view: str, pattern: str, free: Sequence[str]) -> list[str]:
    """The column of that name, or the free columns that fit the pattern."""
    if pattern in table.columns:
        return [pattern]
    if any(sign in pattern for sign in "*?["):
        found = [name for name in free if fnmatchcase(name, pattern)]
        if not found:
            raise DataError(
                f"view {view!r}: no column of {table.source} fits {pattern!r}; the columns are {listed(free)}"
            )
        return found
    table.named(pattern, f"for view {view!r}")
    return []
