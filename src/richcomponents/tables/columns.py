"""Columns into views: what a model is fitted to, chosen and checked by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.errors import DataError
from richcomponents.tables.files import Column, FileTable, listed

__all__ = ["Selection", "select"]


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
    first k columns are U, the others V. target, covariates, groups, key : columns that belong to no view.
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
    chosen = _chosen_views(table, list(views), list(free))
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
            first = next((value for value in table.columns[name] if value is not None), None)
            if first is None:
                raise DataError(f"{owner[name]} holds no value at all: leave it out")
            raise DataError(f"{owner[name]} holds text ({str(first)!r}): leave it out, or encode it as numbers")
    X = np.column_stack([table.columns[name] for name in names]).astype(np.float64)
    y = None if target is None else table.named(target, "the target")
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
        notes,
    )


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


def _chosen_views(table: FileTable, wanted: list[str], free: list[str]) -> dict[str, tuple[str, ...]]:
    if len(wanted) == 1 and wanted[0].isdecimal():
        k = int(wanted[0])
        if not 0 < k < len(free):
            raise DataError(f"--views {k} would leave a view empty: {table.source} has {len(free)} columns to divide")
        return {"U": tuple(free[:k]), "V": tuple(free[k:])}
    if not wanted and len(table.views) == 2:
        wanted = list(table.views)
    if not wanted:
        own = f"It holds the views {', '.join(table.views)}: name two of them. " if table.views else ""
        raise DataError(
            f"say which columns of {table.source} are the tests (U) and which the controls (V). {own}For example: "
            "--views tests=a,b,c --views controls='C_*', or --views 10 for the first ten and the rest. "
            f"The columns are {listed(table.columns)}"
        )
    chosen: dict[str, tuple[str, ...]] = {}
    unused = set(free)
    for spec in wanted:
        name, equals, columns = spec.partition("=")
        if name in chosen:
            raise DataError(f"two views are called {name!r}: rename one")
        if equals:
            chosen[name] = tuple(c for part in columns.split(",") for c in _matching(table, name, part.strip(), free))
        elif name in table.views:
            chosen[name] = tuple(column for column in table.views[name] if column in unused)
        else:
            raise DataError(
                f"--views {spec} names no columns: write --views NAME=column,column or NAME='prefix*'"
                + (f", or one of the file's own views ({', '.join(table.views)})" if table.views else "")
            )
        if not chosen[name]:
            raise DataError(f"view {name!r} has no columns")
    if len(chosen) != 2:
        raise DataError(
            f"two views are compared, --views names {len(chosen)} ({', '.join(chosen)}): name U first, then V"
        )
    return chosen


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
