"""Exposures as columns of a table: numbers as they are, classes as dummies against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.columns import as_labels
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import DaskSource
from richcomponents.data.table import as_matrix, check_labels, check_outcome, column_names
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.models.base import in_order, leaning, positive_class
from richcomponents.models.rca import is_source
from richcomponents.moments import Moments

_FEWEST, _FEW = 5, 10  # rows of a class


@dataclass(frozen=True)
class Exposures:
    """The table with the exposures among its columns: their names and numbers, and what is to be said of them."""

    table: Rows | Moments
    names: tuple[str, ...]
    columns: tuple[int, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Coded:
    """Columns (n, k) for one exposure, their names, and notes."""

    values: Array
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_exposures(X: object, y: object, named: object, reference: object) -> Exposures:
    """X : any table; y : exposures in memory, or None; named : those that are columns of X, or None; reference : the class that
    others are compared with."""
    wanted = _listed(named)
    if (y is None) == (not wanted):
        both = "" if y is None else ", not both"
        raise DataError(
            f"give the exposure as y, fit(X, y), or name the column of X that holds it, ExposureEffects(exposure=...){both}"
        )
    if isinstance(X, Moments):
        if y is not None:
            raise DataError("a state holds the exposure as one of its columns: name it by its number, exposure=")
        numbers = tuple(_number(column, X.layout.n_columns) for column in wanted)
        return Exposures(X, tuple(f"column {c}" for c in numbers), numbers)
    coded: list[_Coded] = []
    rows, kept = _of_source(X, wanted, coded, reference) if is_source(X) else _in_memory(X, wanted, coded, reference)
    if rows.width < 2:
        raise DataError(f"two views need at least two columns; X has n_features = {rows.width}")
    if y is not None:
        coded += [_code(values, name, reference) for name, values in _columns_of(y)]
    columns = [_place(rows, column) for column in kept]
    names = [column if isinstance(column, str) else f"column {column}" for column in kept]
    if coded:
        values = np.hstack([one.values for one in coded])
        if rows.n_rows is not None and len(values) != rows.n_rows:
            raise DataError(f"the exposure has {len(values)} entries, the table has {rows.n_rows} rows")
        new = [name for one in coded for name in one.names]
        columns += [rows.width + i for i in range(len(new))]
        rows = rows.with_columns(values, [_unused(name, rows.names or ()) for name in new])
        names += new
    notes = tuple(note for one in coded for note in one.notes)
    return Exposures(rows, tuple(names), tuple(columns), notes)


def _listed(named: object) -> list[Any]:
    if named is None:
        return []
    return list(named) if isinstance(named, (list, tuple, np.ndarray)) else [named]


def _number(column: object, width: int) -> int:
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and 0 <= column < width:
        return int(column)
    raise DataError(
        f"exposure={column!r} is not a column of a table of {width} columns: give numbers from 0 to {width - 1}"
    )


def _place(rows: Rows, column: object) -> int:
    if isinstance(column, str):
        if column not in (rows.names or ()):
            rows.source.check_column(column, "the exposure")
        return list(rows.names or ()).index(column)
    return _number(column, rows.width)


def _of_source(X: object, wanted: list[Any], coded: list[_Coded], reference: object) -> tuple[Rows, list[Any]]:
    """Rows of a file, a stream or a dask table; named columns of text are read and coded."""
    rows, kept = open_source(X), list(wanted)
    if isinstance(rows.source, DaskSource) or not rows.rereadable:
        return rows, kept
    for name, values in rows.read([name for name in wanted if isinstance(name, str)]).items():
        one = _code(values, name, reference)
        if len(one.names) > 1 or one.names[0] != name or name not in (rows.names or ()):
            coded.append(one)
            kept.remove(name)
    return rows, kept


def _in_memory(X: object, wanted: list[Any], coded: list[_Coded], reference: object) -> tuple[Rows, list[Any]]:
    """Rows of a table in memory; named columns of text leave it and are coded."""
    names = column_names(X)
    missing = [name for name in wanted if isinstance(name, str) and name not in (names or ())]
    if missing:
        raise DataError(
            f"the exposure {missing[0]!r} is not a column of the table"
            + ("" if names else ", which has no column names: give its number, or pass it as y")
        )
    kept = list(wanted)
    if names is not None and any(isinstance(name, str) for name in wanted):
        frame = nw.from_native(cast(Any, X), eager_only=True)
        for name in [name for name in wanted if isinstance(name, str)]:
            if not (frame[name].dtype.is_numeric() or frame[name].dtype == nw.Boolean):
                coded.append(_code(np.array(frame[name].to_list(), dtype=object), name, reference))
                frame, kept = frame.drop(name), [other for other in kept if other != name]
        X = frame.to_native()
    check_labels(X, kept)
    return Rows(as_matrix(X), names=column_names(X)), kept


def _columns_of(y: object) -> list[tuple[str, Any]]:
    """The columns of exposures in memory, by name."""
    names = column_names(y)
    if names is not None or hasattr(y, "__dataframe__"):
        frame = nw.from_native(cast(Any, y), eager_only=True, allow_series=True)
        if isinstance(frame, nw.Series):
            return [(str(frame.name or "y"), np.array(frame.to_list(), dtype=object))]
        return [(str(name), np.array(frame[name].to_list(), dtype=object)) for name in frame.columns]
    values = np.asarray(y) if not hasattr(y, "toarray") else as_matrix(y)
    if values.ndim == 1:
        return [("y", values)]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"exposures are one column, or a table of several; y has shape {values.shape}")
    return [(f"y{i}" if values.shape[1] > 1 else "y", column) for i, column in enumerate(values.T)]


def _code(values: Any, name: str, reference: object) -> _Coded:
    """Numbers (and truth values) as they are, texts as dummies."""
    plain = np.asarray(values)
    if plain.dtype.kind == "O" and all(isinstance(v, (int, float, np.number, np.bool_)) or v is None for v in plain):
        plain = np.array([np.nan if v is None else float(v) for v in plain])
    if plain.dtype.kind in "biuf":
        numbers = plain.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise DataError(
                f"the exposure {name!r} is missing or infinite in row {bad[0]}: drop such rows, or impute them"
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
        return _Coded(numbers[:, None], (name,))
    labels = as_labels(plain)
    bad = np.flatnonzero([label is None or label == "" for label in labels])
    if len(bad):
        raise DataError(f"the exposure {name!r} has no label in row {bad[0]}: drop such rows")
    found = sorted({str(label) for label in labels})
    classes = [found[i] for i in in_order(found)]
    if len(classes) < 2:
        raise DataError(f"the exposure {name!r} is {classes[0]!r} in every row: there is nothing to compare")
    if len(classes) > max(_FEW, len(labels) // _FEW):
        raise DataError(
            f"the exposure {name!r} has {len(classes)} different labels in {len(labels)} rows: is it an identifier?"
        )
    base, guessed = _reference(name, classes, reference)
    rows = {label: int(sum(str(other) == label for other in labels)) for label in classes}
    _check_counts(name, rows)
    others = [label for label in classes if label != base]
    dummies = np.array([[str(label) == other for other in others] for label in labels], dtype=np.float64)
    told = (
        f"{name}: {', '.join(f'{label} ({rows[label]} rows)' for label in others)} against {base} ({rows[base]} rows)"
    )
    by_order = f"{told}; {base} comes first in order, reference= chooses another" if guessed else told
    return _Coded(dummies, tuple(f"{name}={label}" for label in others), (by_order,))


def _reference(name: str, classes: Sequence[str], wanted: object) -> tuple[str, bool]:
    """The class that others are compared with, and whether nothing but the order chose it."""
    if wanted is not None:
        found = [label for label in classes if label.casefold() == str(wanted).casefold()]
        if len(found) != 1:
            raise DataError(f"reference={str(wanted)!r} is not a class of {name!r}, which holds {', '.join(classes)}")
        return found[0], False
    if len(classes) == 2:
        positive, guessed = positive_class(classes)
        return classes[1 - positive], guessed
    leanings = [leaning(label) for label in classes]
    least = min(leanings)
    return classes[leanings.index(least)], leanings.count(least) > 1


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


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "_"
    return name
