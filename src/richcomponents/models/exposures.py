"""Exposures as columns of a table: numbers as they are, classes as levels against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.cells import declared_order, in_declared_order
from richcomponents.data.classes import Levels
from richcomponents.data.design import Added, Design, check_columns, names_columns, place, unused
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

    def among(self, design: Design) -> Design:
        """The design of the table, with the exposures as the last of the covariates. Refused are exposures that are covariates,
        and those in memory under the name of a column of a view: other tables would be read by it."""
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
        width = design.width - sum(len(one.columns) for one in self.added)
        known = np.concatenate([design.known, np.array(self.columns, dtype=np.int64)])
        return replace(design, known=known, added=(*self.added, *design.added), width=width)


class _Coded(NamedTuple):
    """An exposure as columns (n, k) to be put behind those of a table; added : how another table gets them."""

    names: tuple[str, ...]
    values: Array
    added: Added
    note: str = ""


def listed_names(named: Any) -> list[Any]:
    """None, one column or several, as a list."""
    return [] if named is None else list(named) if isinstance(named, (list, tuple, np.ndarray)) else [named]


def read_exposures(table: Rows | Moments, y: object, wanted: list[Any], reference: object) -> Exposures:
    """table : any rows, or a state; y : exposures in memory, or names of columns, or None; wanted : those that are columns of
    the table; reference : the class that others are compared with."""
    if isinstance(y, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(y).sum())):
        raise DataError(f"the exposure holds {hidden} hidden (masked) values: leave out those rows, or fill them first")
    if named := names_columns(table, y):
        y, wanted = None, named
    parts: list[Any] = wanted  # names and numbers of columns of the table, and what has to be put behind these
    if isinstance(table, Rows):
        check_columns(table.width, table.names)
        parts = _among(table, wanted, reference) if y is None else [_code(*one, reference) for one in _columns_of(y)]
    elif y is not None:
        raise DataError("a state holds the exposure as one of its columns: name it, or give its number, exposure=")
    names, columns = list[str](), list[int]()
    width, others = table.width if isinstance(table, Rows) else table.layout.n_columns, table.names
    for one in parts:
        at = [place(table, one, "the exposure")] if not isinstance(one, _Coded) else []
        columns += at or range(width, width := width + len(one.names))
        names += [f"column {at[0]}" if others is None else others[at[0]]] if at else one.names
    coded = [one for one in parts if isinstance(one, _Coded)]
    if reference is not None and str(reference) != "0" and all(one.added.levels is None for one in coded):
        raise DataError(
            f"reference={reference!r} is a class, and the exposure {names[0]!r} holds numbers, whose effects are per unit: "
            "make it text, X[column].astype(str), to compare classes, or leave out reference="
        )
    notes, added = tuple(one.note for one in coded if one.note), tuple(one.added for one in coded)
    if coded and isinstance(table, Rows):
        values = np.hstack([one.values for one in coded])
        if table.n_rows is not None and len(values) != table.n_rows:
            raise DataError(f"the exposure has {len(values)} entries, the table has {table.n_rows} rows")
        table = table.with_columns(values, [unused(name, others or ()) for one in coded for name in one.names])
    in_others = others and (y is None or column_names(y) is not None)
    return Exposures(table, tuple(names), tuple(columns), notes, added if in_others else ())


def _among(rows: Rows, wanted: list[Any], reference: object) -> list[Any]:
    """Named columns; those that are texts, or describe the samples, coded."""
    asked = [one for one in wanted if isinstance(one, str)] if rows.rereadable and rows.names is not None else []
    places = {one: rows.find(one, "the exposure") for one in asked}
    own = {one: one if isinstance(at, int) else at for one, at in places.items()}
    far = isinstance(rows.source, DaskSource)  # only what is no number is brought here
    held = rows.source.texts(list(own.values())) if far else rows.read(list(own.values())) if own else {}
    coded = {one: _code(one, held[found], reference, found) for one, found in own.items() if found in held}
    keep = {one for one, made in coded.items() if made.added.levels is None and isinstance(places[one], int)}
    return [one if one in keep else coded.get(one, one) for one in wanted]


def _columns_of(y: object) -> list[tuple[str, Any]]:
    """The columns of exposures in memory: name and values."""
    names = column_names(y)
    if names is not None or hasattr(y, "__dataframe__"):
        frame = nw.from_native(cast(Any, y), eager_only=True, allow_series=True)
        parts = [frame.rename(frame.name or "y")] if isinstance(frame, nw.Series) else list(frame.iter_columns())
        entries = {str(x.name): (np.array(x.to_list(), dtype=object), declared_order(x.to_native())) for x in parts}
        return [(name, in_declared_order(*one)) for name, one in entries.items()]
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
        _check_counts(name, found.labels, found.counts)
        more = f"; {found.labels[0]} comes first in order, reference= chooses another" if found.by_order else ""
        return _Coded(found.columns, found.coded(plain, "the exposure"), Added(of or name, found), f"{found}{more}")
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
        _check_counts(name, [f"{level:g}" for level in levels], counts)
    return _Coded((name,), numbers[:, None], Added(of or name))


def _check_counts(name: str, labels: Sequence[str], counts: Any) -> None:
    fewest, label = min(counts), labels[int(np.argmin(counts))]
    if fewest < _FEWEST:
        raise DataError(
            f"the exposure {name!r} is {label!r} in {fewest} row{'' if fewest == 1 else 's'} only: nothing can be said about "
            "so few; merge that class with another, or drop those rows"
        )
    if fewest < _FEW:
        warn_user(
            f"the exposure {name!r} is {label!r} in {fewest} rows only: its effects are hardly known", SampleSizeWarning
        )
