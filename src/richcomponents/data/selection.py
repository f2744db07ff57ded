"""Columns by name into what a model is fitted to: two views, covariates, outcome and groups, in memory and complete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.cells import Column, first_text, repeated
from richcomponents.data.rows import Rows
from richcomponents.data.table import as_matrix
from richcomponents.data.views import listed, not_data, resolve_views
from richcomponents.errors import DataError

__all__ = ["Selection", "select"]

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
    rows: Rows,
    views: Sequence[str] = (),
    *,
    target: str | None = None,
    covariates: Sequence[str] = (),
    groups: str | None = None,
    key: str | None = None,
    drop_missing: bool = False,
) -> Selection:
    """The columns a model needs, read once.

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
    again = repeated(covariates)
    if again is not None:
        raise DataError(f"covariate {again!r} is named twice: name it once")
    source = rows.source
    for role, wanted in (("the target", [target]), ("a covariate", covariates), ("the groups", [groups])):
        for name in wanted:
            if name is not None:
                source.check_column(name, role)
    taken = {name for name in (target, groups, key, *covariates) if name is not None}
    chooser = _Chooser(rows, [name for name in source.all_names if name not in taken], taken)
    chosen = chooser.views(list(views))
    used = [name for columns in chosen.values() for name in columns]
    both = next((name for name in used if name in taken), None)
    if both is not None:
        raise DataError(
            f"column {both!r} is in a view and also the target, a covariate, the groups or the labels: name it once"
        )
    owner = {name: f"column {name!r} of view {view!r}" for view, columns in chosen.items() for name in columns}
    owner |= {name: f"covariate {name!r}" for name in covariates}
    columns = chooser.read([*owner, *([] if target is None else [target])])
    X = np.column_stack([_numbers(columns[name], role) for name, role in owner.items()])
    y = None if target is None else columns[target]
    if y is not None and y.dtype.kind in "iu":
        y = _numbers(y, f"the target {target!r}")[:, 0]
    labels = None if groups is None else rows.read([groups], [groups])[groups]
    bad = {role: ~np.isfinite(X[:, i]) for i, role in enumerate(owner.values())}
    for role, values in ((f"the target {target!r}", y), (f"the groups {groups!r}", labels)):
        if values is not None:
            bad[role] = (
                ~np.isfinite(values) if values.dtype.kind == "f" else np.array([value is None for value in values])
            )
    keep, notes = _complete_rows(source.title, bad, drop_missing)
    return Selection(
        tuple(owner),
        chosen,
        tuple(covariates),
        X[keep],
        None if y is None else y[keep],
        None if labels is None else labels[keep],
        (*source.notes, *chooser.notes, *notes),
    )


def _numbers(values: Column, role: str) -> Array:
    """A column (n, 1) of floating-point numbers; text, and whole numbers that would be rounded, are refused."""
    if values.dtype.kind not in "biuf":
        row = first_text(values)
        if row is None:
            raise DataError(f"{role} holds no value at all: leave it out")
        cell = str(values[row])
        raise DataError(f"{role} holds text ({cell!r} in data row {row + 1}): {_remedy(cell)}")
    try:
        return as_matrix(values, column=True)
    except DataError as error:
        raise DataError(f"{role}: {error}") from error


def _remedy(cell: str) -> str:
    """What to do about a text among numbers."""
    signs = {"a decimal comma": _COMMA, "a thousands separator": _THOUSANDS}
    seen = " or ".join(what for what, pattern in signs.items() if pattern.fullmatch(cell))
    if seen:
        return f"it looks like a number with {seen}. Write numbers like 1234.5"
    return "leave it out, or encode it as numbers"


def _complete_rows(title: str, bad: Mapping[str, Column], drop: bool) -> tuple[Column, tuple[str, ...]]:
    missing = np.any(list(bad.values()), axis=0)
    if not missing.any():
        return ~missing, ()
    counts = {role: int(rows.sum()) for role, rows in bad.items() if rows.any()}
    role = next(iter(counts))
    row = int(np.flatnonzero(bad[role])[0]) + 1
    others = f", and {len(counts) - 1} other columns hold some" if len(counts) > 1 else ""
    if not drop:
        raise DataError(
            f"{role} holds {counts[role]} missing or infinite values (the first in data row {row} of {title}){others}; "
            f"{int(missing.sum())} of {len(missing)} rows are touched. Impute them first, or leave those rows out with "
            "--drop-missing"
        )
    if missing.all():
        raise DataError(
            f"every row of {title} has a missing value: drop columns such as {max(counts, key=counts.__getitem__)}"
        )
    note = f"{int(missing.sum())} of {len(missing)} rows have missing values and were left out."
    return ~missing, (note,)


class _Chooser:
    """Which columns are the views. free : columns without another role; notes : what was taken without being named."""

    def __init__(self, rows: Rows, free: Sequence[str], taken: set[str]) -> None:
        self.rows, self.free, self.taken = rows, free, taken
        self.notes: list[str] = []
        self._held: dict[str, Column] = {}

    def read(self, names: Sequence[str]) -> dict[str, Column]:
        """Columns, each read once."""
        new = [name for name in names if name not in self._held]
        self._held |= self.rows.read(new) if new else {}
        return {name: self._held[name] for name in names}

    def views(self, wanted: list[str]) -> dict[str, tuple[str, ...]]:
        """{view: columns}."""
        source, own = self.rows.source, self.rows.views
        if len(wanted) == 1 and wanted[0].isdecimal():
            return self._divided(int(wanted[0]))
        if not wanted and len(own) == 2:
            wanted = list(own)
        if not wanted:
            held = f"It holds the views {', '.join(own)}: name two or more of them. " if len(own) > 1 else ""
            raise DataError(
                f"say which columns of {source.title} are the tests (U) and which the controls (V). {held}For example: "
                "--views tests=a,b,c --views controls='C_*', or --views 10 for the first ten and the rest. "
                f"The columns are {listed(source.all_names)}"
            )
        specified: dict[str, Sequence[str]] = {}
        for spec in wanted:
            name, equals, columns = spec.partition("=")
            if name in specified:
                raise DataError(f"two views are called {name!r}: rename one")
            if equals:
                specified[name] = [part.strip() for part in columns.split(",")]
            elif name in own:
                specified[name], left_out = self._data([column for column in own[name] if column in self.free])
                self.notes += [f"View {name!r} is {listed(specified[name]) or 'empty'}.{left_out}"] if left_out else []
                if not specified[name]:
                    raise DataError(f"view {name!r} has no columns that may be data. {' '.join(self.notes)}".rstrip())
            else:
                raise DataError(
                    f"--views {spec} names no columns: write --views NAME=column,column or NAME='prefix*'"
                    + (f", or one of the file's own views ({', '.join(own)})" if own else "")
                )
        names = source.all_names
        chosen = resolve_views(specified, len(names), names, taken=self.taken, title=source.title)
        if len(chosen) < 2:
            raise DataError(
                f"views are compared, --views names only {', '.join(chosen)}: name U first, then V, or more"
            )
        return {view: tuple(names[column] for column in chosen[view]) for view in chosen}

    def _divided(self, k: int) -> dict[str, tuple[str, ...]]:
        """The first k columns and the rest, of those that may be data; a sentence says what was taken."""
        data, left_out = self._data(self.free)
        if not 0 < k < len(data):
            raise DataError(
                f"--views {k} would leave a view empty: {self.rows.source.title} has {len(data)} columns to divide.{left_out} "
                "Name columns with --views NAME=column,column to take others"
            )
        chosen = {"U": data[:k], "V": data[k:]}
        told = "; ".join(f"{view} is {listed(columns)}" for view, columns in chosen.items())
        self.notes.append(f"--views {k}: {told}.{left_out}")
        return chosen

    def _data(self, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Those of the columns that are data though nobody named them, and a sentence about the others."""
        source, columns = self.rows.source, self.read(names)
        grouped = {column for view in source.views.values() for column in view} or {*names} - {*source.annotations}
        left = {name: "an annotation of the samples" for name in names if name not in grouped}
        left |= {name: "text" for name in names if columns[name].dtype.kind not in "biuf"}
        numeric = [name for name in names if name not in left]
        first = np.column_stack([columns[name][:_FIRST] for name in numeric]) if numeric else None
        left |= not_data(numeric, first)
        reasons = ", ".join(f"{name!r} ({why})" for name, why in left.items())
        return tuple(name for name in numeric if name not in left), f" Left out: {reasons}." if left else ""
