"""Exposures as columns of a table: numbers as they are, classes as levels against one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.cells import declared_order, in_declared_order
from richcomponents.data.classes import Levels
from richcomponents.data.design import Added, Design, check_columns, names_columns, unused
from richcomponents.data.rows import Rows
from richcomponents.data.sources.memory import DaskSource
from richcomponents.data.table import as_matrix, check_outcome, column_names
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.moments import Moments

_FEWEST, _FEW = 5, 10  # rows of a class


@dataclass(frozen=True)
class Exposures:
    """The table with the exposures among its columns: their names and numbers, and what is to be said of them; added : those
    that were put behind the table's own columns and can be found in other tables."""

    table: Rows | Moments
    names: tuple[str, ...]
    columns: tuple[int, ...]
    notes: tuple[str, ...] = ()
    added: tuple[Added, ...] = ()

    def check_names(self, design: Design) -> None:
        """Refuse exposures that are covariates, and those in memory under the name of a column of a view: other tables would be
        read by it."""
        both = {one.name for one in self.added} & {one.name for one in design.added}
        both |= {design.views.feature_names[c] for c in np.intersect1d(self.columns, design.known)}
        if both:
            raise DataError(f"column {min(both)!r} is an exposure and also a covariate: name it once")
        views = {design.views.feature_names[c]: int(c) for c in design.columns}
        clash = next((one.name for one in self.added if one.name in views), None)
        if clash is not None:
            raise DataError(
                f"the exposure is called {clash!r}, as {design.views.describe(views[clash])} is: rename the series "
                "(y.rename(...)), or take the column out of the views if it is the exposure"
            )

    def among(self, design: Design) -> Design:
        """The design of the table, with the exposures as the last of the covariates."""
        width = design.width - sum(len(one.columns) for one in self.added)
        known = np.concatenate([design.known, np.array(self.columns, dtype=np.int64)])
        return replace(design, known=known, added=(*self.added, *design.added), width=width)


@dataclass(frozen=True)
class _Coded:
    """An exposure as columns (n, k) to be put behind those of a table; added : how another table gets them."""

    name: str
    values: Array
    added: Added
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.added.levels is None else self.added.columns


def listed_names(named: Any) -> list[Any]:
    """None, one column or several, as a list."""
    return [] if named is None else list(named) if isinstance(named, (list, tuple, np.ndarray)) else [named]


def named_exposures(y: object, named: object) -> tuple[object, list[Any]]:
    """Exposures in memory, or None, and those that are columns of the table; y : of fit, named : `exposure=`."""
    wanted = listed_names(named)
    given = list(y) if isinstance(y, (list, tuple)) and len(y) and all(isinstance(one, str) for one in y) else y
    if (given is None) == (not wanted):
        both = "" if y is None else ", not both"
        raise DataError(
            f"give the exposure as y, fit(X, y), or name the column of X that holds it, ExposureEffects(exposure=...){both}"
        )
    return given, wanted


def read_exposures(table: Rows | Moments, y: object, named: object, reference: object) -> Exposures:
    """table : any rows, or a state; y : exposures in memory, or names of columns, or None; named : those that are columns of
    the table, or None; reference : the class that others are compared with."""
    if isinstance(y, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(y).sum())):
        raise DataError(f"the exposure holds {hidden} hidden (masked) values: leave out those rows, or fill them first")
    y, wanted = named_exposures(y, named)
    if found := names_columns(table, y):
        y, wanted = None, found
    parts: list[Any] = wanted  # numbers and names of columns of the table, and what has to be put behind these
    if isinstance(table, Rows):
        check_columns(table.width, table.names)
        parts = _among(table, wanted, reference) if y is None else [_code(*one, reference) for one in _columns_of(y)]
    elif y is not None:
        raise DataError("a state holds the exposure as one of its columns: name it, or give its number, exposure=")
    elif table.names is not None:
        parts = [table.names[place(one, table)] for one in wanted]
    coded = [one for one in parts if isinstance(one, _Coded)]
    numeric = [one.name if isinstance(one, _Coded) else one for one in parts]
    if reference is not None and str(reference) != "0" and all(one.added.levels is None for one in coded):
        raise DataError(
            f"reference={reference!r} is a class, and the exposure {numeric[0]!r} holds numbers, whose effects are per unit: "
            "make it text, X[column].astype(str), to compare classes, or leave out reference="
        )
    names, columns, width = list[str](), list[int](), _width(table)
    for one in parts:
        new = one.names if isinstance(one, _Coded) else (one,)
        columns += range(width, width := width + len(new)) if isinstance(one, _Coded) else [place(one, table)]
        names += [name if isinstance(name, str) else f"column {name}" for name in new]
    if coded and isinstance(table, Rows):
        values, given = np.hstack([one.values for one in coded]), [name for one in coded for name in one.names]
        if table.n_rows is not None and len(values) != table.n_rows:
            raise DataError(f"the exposure has {len(values)} entries, the table has {table.n_rows} rows")
        others = table.names or ()
        table = table.with_columns(values, [unused(name, others) for name in given])
        coded = coded if others and (y is None or column_names(y) is not None) else []
    notes = tuple(one.note for one in parts if isinstance(one, _Coded) and one.note)
    return Exposures(table, tuple(names), tuple(columns), notes, tuple(one.added for one in coded))


def place(column: object, table: Rows | Moments, role: str = "exposure") -> int:
    """The number of a column."""
    width, names = _width(table), table.names
    if isinstance(column, str) and names is not None and column in names:
        return list(names).index(column)
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and 0 <= column < width:
        return int(column)
    hint = f"give numbers from 0 to {width - 1}" if names is None else f"the first columns are {list(names)[:5]}"
    raise DataError(f"the {role} {column!r} is not a column of the table, of {width} columns: {hint}")


def _width(table: Rows | Moments) -> int:
    return table.layout.n_columns if isinstance(table, Moments) else table.width


def _among(rows: Rows, wanted: list[Any], reference: object) -> list[Any]:
    """Named columns; those that are texts, or describe the samples, coded."""
    own: dict[str, str] = {}
    for name in (one for one in wanted if isinstance(one, str) and rows.rereadable):
        found = name if name in (rows.names or ()) else rows.source.annotation(name)
        if found is None and rows.names is not None:
            rows.source.check_column(name, "the exposure")
        own[name] = name if found is None and place(name, rows) is not None else str(found)
    far = isinstance(rows.source, DaskSource)  # only what is no number is brought here
    held = rows.source.texts(list(own.values())) if far else rows.read(list(own.values())) if own else {}
    out = list[Any]()
    for name in wanted:
        found = own.get(name) if isinstance(name, str) else None
        one = _code(name, held[found], reference, found) if found in held else None
        out.append(name if one is None or (one.added.levels is None and found in (rows.names or ())) else one)
    return out


def _columns_of(y: object) -> list[tuple[str, Any]]:
    """The columns of exposures in memory: name and values."""
    names = column_names(y)
    if names is not None or hasattr(y, "__dataframe__"):
        frame = nw.from_native(cast(Any, y), eager_only=True, allow_series=True)
        parts = [frame.rename(frame.name or "y")] if isinstance(frame, nw.Series) else list(frame.iter_columns())
        entries = [np.array(x.to_list(), dtype=object) for x in parts]
        return [
            (str(x.name), in_declared_order(v, declared_order(x.to_native())))
            for x, v in zip(parts, entries, strict=True)
        ]
    values = np.asarray(y) if not hasattr(y, "toarray") else as_matrix(y)
    if values.ndim == 1:
        return [("y", in_declared_order(values, declared_order(y)))]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"exposures are one column, or a table of several; y has shape {values.shape}")
    return [(f"y{i}" if values.shape[1] > 1 else "y", column) for i, column in enumerate(values.T)]


def _code(name: str, values: Any, reference: object, of: str | None = None) -> _Coded:
    """Numbers (and truth values) as they are, texts as levels; of : the column."""
    plain = np.asanyarray(values)
    if plain.dtype.kind == "O" and all(isinstance(v, (int, float, np.number, np.bool_)) or v is None for v in plain):
        plain = np.array([np.nan if v is None else float(v) for v in plain])
    if plain.dtype.kind not in "biuf":
        found = Levels.of(plain, name, "the exposure", reference)
        _check_counts(name, dict(zip(found.labels, found.counts, strict=True)))
        more = f"; {found.labels[0]} comes first in order, reference= chooses another" if found.by_order else ""
        return _Coded(name, found.coded(plain, "the exposure"), Added(of or name, found), f"{found}{more}")
    numbers = plain.astype(np.float64)
    if len(bad := np.flatnonzero(~np.isfinite(numbers))):
        raise DataError(
            f'the exposure {name!r} is missing or infinite in row {bad[0]}: drop such rows, or say missing="drop" in rca='
        )
    if len(numbers) > 1 and np.ptp(numbers) == 0:
        raise DataError(f"the exposure {name!r} is {numbers[0]:g} in every row: there is nothing to compare (constant)")
    try:
        numbers = check_outcome(numbers, len(numbers))
    except DataError as error:
        raise DataError(f"the exposure {name!r}: {error}") from None
    levels, counts = np.unique(numbers, return_counts=True)
    if len(levels) == 2:
        _check_counts(name, {f"{level:g}": int(n) for level, n in zip(levels, counts, strict=True)})
    return _Coded(name, numbers[:, None], Added(of or name))


def _check_counts(name: str, counts: dict[str, int]) -> None:
    label, fewest = min(counts.items(), key=lambda item: item[1])
    if fewest < _FEWEST:
        raise DataError(
            f"the exposure {name!r} is {label!r} in {fewest} row{'' if fewest == 1 else 's'} only: nothing can be said about "
            "so few; merge that class with another, or drop those rows"
        )
    if fewest < _FEW:
        warn_user(
            f"the exposure {name!r} is {label!r} in {fewest} rows only: its effects are hardly known", SampleSizeWarning
        )
