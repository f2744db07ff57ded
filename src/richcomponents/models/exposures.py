"""Exposures as columns of a table: numbers as they are, classes as levels against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.cells import declared_order
from richcomponents.data.classes import Levels
from richcomponents.data.rows import Rows
from richcomponents.data.sources.base import DaskSource
from richcomponents.data.table import as_matrix, check_outcome, column_names
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.models.design import Added, Design, check_columns, names_columns, unused
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
    """Columns (n, k) for one exposure, `of` that name, their own names, and notes; levels : of texts."""

    of: str
    values: Array
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    levels: Levels | None = None


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
    if isinstance(table, Moments):
        if y is not None:
            raise DataError("a state holds the exposure as one of its columns: name it, or give its number, exposure=")
        numbers = tuple(place(column, table) for column in wanted)
        known = table.names or [f"column {c}" for c in range(table.layout.n_columns)]
        return Exposures(table, tuple(known[c] for c in numbers), numbers)
    check_columns(table.width, table.names)
    coded, kept, added = _among(table, wanted, reference)
    if y is not None:
        coded = [_code(values, name, reference, order) for name, values, order in _columns_of(y)]
        named = table.names is not None and column_names(y) is not None
        added = [Added(one.of, one.levels) for one in coded] if named else []
    _check_reference(reference, [one.of for one in coded if one.levels is None] or kept, coded)
    columns = [place(column, table) for column in kept]
    names = [column if isinstance(column, str) else f"column {column}" for column in kept]
    owners = [*kept, *(one.of for one in coded for _ in one.names)]
    if coded:
        values = np.hstack([one.values for one in coded])
        if table.n_rows is not None and len(values) != table.n_rows:
            raise DataError(f"the exposure has {len(values)} entries, the table has {table.n_rows} rows")
        new = [name for one in coded for name in one.names]
        columns += [table.width + i for i in range(len(new))]
        table = table.with_columns(values, [unused(name, table.names or ()) for name in new])
        names += new
    asked = sorted(range(len(owners)), key=lambda i: wanted.index(owners[i]) if wanted else i)
    notes = tuple(note for one in coded for note in one.notes)
    return Exposures(table, tuple(names[i] for i in asked), tuple(columns[i] for i in asked), notes, tuple(added))


def _check_reference(reference: object, numeric: Sequence[Any], coded: Sequence[_Coded]) -> None:
    """Refuse a class to compare with where there are no classes; 0 is what numbers are compared with."""
    if reference is not None and str(reference) != "0" and numeric and all(one.levels is None for one in coded):
        raise DataError(
            f"reference={reference!r} is a class, and the exposure {numeric[0]!r} holds numbers, whose effects are per unit: "
            "make it text, X[column].astype(str), to compare classes, or leave out reference="
        )


def place(column: object, table: Rows | Moments, role: str = "exposure") -> int:
    """The number of a column."""
    width, names = table.layout.n_columns if isinstance(table, Moments) else table.width, table.names
    if isinstance(column, str) and names is not None and column in names:
        return list(names).index(column)
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and 0 <= column < width:
        return int(column)
    hint = f"give numbers from 0 to {width - 1}" if names is None else f"the first columns are {list(names)[:5]}"
    raise DataError(f"the {role} {column!r} is not a column of the table, of {width} columns: {hint}")


def _among(rows: Rows, wanted: list[Any], reference: object) -> tuple[list[_Coded], list[Any], list[Added]]:
    """Named columns that are texts, or describe the samples, coded; the others; and how to code the former in other tables."""
    texts = [name for name in wanted if isinstance(name, str)]
    if not rows.rereadable or not texts:
        return [], list(wanted), []
    own = {}
    for name in texts:
        further = name if name in (rows.names or ()) else rows.source.annotation(name)
        if further is None and rows.names is not None:
            rows.source.check_column(name, "the exposure")
        if further is None:
            place(name, rows)
        own[name] = further
    far = isinstance(rows.source, DaskSource)  # only what is no number is brought here
    held = rows.source.texts(list(own.values())) if far else rows.read(list(own.values()))  # type: ignore[arg-type]
    orders = rows.source.orders([further for further in own.values() if further in held])
    coded, kept, added = [], list(wanted), []
    for name, further in own.items():
        if further is None or further not in held:
            continue
        one = _code(held[further], name, reference, orders.get(further))
        if one.names != (name,) or further not in (rows.names or ()):
            coded.append(one)
            added.append(Added(further, one.levels))
            kept.remove(name)
    return coded, kept, added


def _columns_of(y: object) -> list[tuple[str, Any, Sequence[str] | None]]:
    """The columns of exposures in memory: name, values, and the order that a category declares."""
    names = column_names(y)
    if names is not None or hasattr(y, "__dataframe__"):
        frame = nw.from_native(cast(Any, y), eager_only=True, allow_series=True)
        parts = [frame.rename(frame.name or "y")] if isinstance(frame, nw.Series) else list(frame.iter_columns())
        return [(str(x.name), np.array(x.to_list(), dtype=object), declared_order(x.to_native())) for x in parts]
    values = np.asarray(y) if not hasattr(y, "toarray") else as_matrix(y)
    if values.ndim == 1:
        return [("y", values, declared_order(y))]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"exposures are one column, or a table of several; y has shape {values.shape}")
    return [(f"y{i}" if values.shape[1] > 1 else "y", column, None) for i, column in enumerate(values.T)]


def _code(values: Any, name: str, reference: object, order: Sequence[str] | None) -> _Coded:
    """Numbers (and truth values) as they are, texts as levels; order : of these, where it is declared."""
    plain = np.asarray(values)
    if plain.dtype.kind == "O" and all(isinstance(v, (int, float, np.number, np.bool_)) or v is None for v in plain):
        plain = np.array([np.nan if v is None else float(v) for v in plain])
    if plain.dtype.kind in "biuf":
        numbers = plain.astype(np.float64)
        if len(bad := np.flatnonzero(~np.isfinite(numbers))):
            raise DataError(
                f'the exposure {name!r} is missing or infinite in row {bad[0]}: drop such rows, or say missing="drop" in rca='
            )
        if len(numbers) > 1 and np.ptp(numbers) == 0:
            raise DataError(
                f"the exposure {name!r} is {numbers[0]:g} in every row: there is nothing to compare (constant)"
            )
        try:
            numbers = check_outcome(numbers, len(numbers))
        except DataError as error:
            raise DataError(f"the exposure {name!r}: {error}") from None
        levels, counts = np.unique(numbers, return_counts=True)
        if len(levels) == 2:
            _check_counts(name, {f"{level:g}": int(n) for level, n in zip(levels, counts, strict=True)})
        return _Coded(name, numbers[:, None], (name,))
    found = Levels.of(plain, name, "the exposure", reference, order=order)
    _check_counts(name, dict(zip(found.labels, found.counts, strict=True)))
    more = f"; {found.labels[0]} comes first in order, reference= chooses another" if found.by_order else ""
    return _Coded(name, found.coded(plain, "the exposure"), found.columns, (f"{found}{more}",), found)


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
