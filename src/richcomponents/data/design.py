"""Which column of a table plays which part: views, known covariates, an outcome.

A design is laid out once, for whatever holds the table: an array, a data frame, AnnData, files, a stream, a state. Columns that
are not numbers of the table itself become such: texts are levels of zeros and ones, what only describes the samples (obs) is
put behind the columns, and so is an outcome in memory. The same columns are found again in other tables, by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.algebra.arrays import RANK_TOLERANCE, whitening
from richcomponents.data.align import tables_beside
from richcomponents.data.classes import Levels
from richcomponents.data.rows import Rows, State, open_source
from richcomponents.data.table import (
    Views,
    are_tables,
    check_outcome,
    chosen_columns,
    listed,
    resolve_views,
    standardised,
)
from richcomponents.errors import DataError
from richcomponents.storage import storable
from richcomponents.text import in_line

_FIRST = 1000  # rows that tell an index from data
_NONE = np.zeros(0, dtype=np.int64)


@storable
@dataclass(frozen=True)
class Added:
    """A column that a table gets behind its own: a text as levels, or (levels None) numbers that describe the samples."""

    name: str
    levels: Levels | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,) if self.levels is None else self.levels.columns

    def to(self, rows: Rows, role: str, *, gaps: bool = False) -> Rows:
        """The rows with these columns behind the others; gaps : labels may be missing."""
        held = rows.read([self.name])[self.name]
        if self.levels is not None:
            return rows.with_columns(self.levels.coded(held, role, gaps=gaps), self.columns)
        if held.dtype.kind not in "biuf":
            raise DataError(f"{role} {self.name!r} holds text: leave it out, or encode it as numbers first")
        return rows.with_columns(held.astype(np.float64)[:, None], self.columns)


@storable
@dataclass(frozen=True)
class Design:
    """The parts that columns play, by their numbers in the table with what was added to it.

    views : of all columns; known : covariates; groups : of columns, which the table was asked to include; added : behind these;
    width : columns before those added; named : whether columns have the user's names, and are found by them in other tables.
    """

    views: Views
    known: IntArray
    groups: tuple[str, ...]
    added: tuple[Added, ...]
    width: int
    named: bool

    @cached_property
    def columns(self) -> IntArray:
        """Of all views side by side."""
        return np.concatenate(list(self.views.columns.values()))

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The columns that another table has to have, by name; None where they go by position."""
        if not self.named:
            return None
        own = (self.views.feature_names[c] for c in self.used if c < self.width)
        return tuple(dict.fromkeys([*own, *(one.name for one in self.added)]))

    @cached_property
    def used(self) -> IntArray:
        """Of all views, and then the covariates."""
        return np.concatenate([self.columns, self.known])

    def places(self) -> dict[str, slice]:
        """{view: its columns among those of all views side by side}."""
        ends = np.cumsum([0, *map(len, self.views.columns.values())]).tolist()
        return {name: slice(*part) for name, part in zip(self.views.columns, pairwise(ends), strict=True)}

    def copies(self, second: Any) -> str:
        """In words, which columns are exact linear functions of the columns of another view, a copy or a sum; empty where none
        is. second : moments of the columns of all views side by side."""
        C, pairs = standardised(second.covariance())[1], dict[frozenset[int], str]()
        if second.n <= len(C) + 1:  # so few rows make any column one
            return ""
        for (_, here), (view, there) in permutations(self.places().items(), 2):
            explained = np.sum((whitening(C[there, there])[0] @ C[there, here]) ** 2, axis=0)
            for at in here.start + np.flatnonzero(explained > 1 - RANK_TOLERANCE):
                nearest = there.start + int(np.argmax(np.abs(C[there, at])))
                told = f"{self.describe(int(at))} is an exact linear function of {self.describe(nearest)}"
                if abs(C[nearest, at]) < 1 - RANK_TOLERANCE:
                    told = f"{self.describe(int(at))} is an exact linear function of columns of {view!r}"
                pairs.setdefault(frozenset((int(at), nearest)), told)
        named = list(pairs.values())
        return "; ".join(named[:5]) + (f"; and {len(named) - 5} more" if len(named) > 5 else "")

    def side_by_side(self) -> Views:
        """The views by the places of their columns side by side, covariates behind them."""
        columns = {name: np.arange(place.start, place.stop) for name, place in self.places().items()}
        return Views(columns, tuple(self.views.feature_names[c] for c in self.used))

    def parts(self) -> dict[str, IntArray]:
        """The columns of each view, and of the covariates, among those side by side."""
        parts = {name: np.arange(place.start, place.stop) for name, place in self.places().items()}
        return parts | ({"covariates": np.arange(len(self.columns), len(self.used))} if len(self.known) else {})

    def describe(self, column: int) -> str:
        """A column among those side by side, for messages."""
        number = int(self.used[column])
        if column < len(self.columns):
            return self.views.describe(number)
        return f"covariate {self.views.feature_names[number]!r}"

    def levels(self) -> tuple[Levels, ...]:
        return tuple(one.levels for one in self.added if one.levels is not None)

    def covariate_notes(self) -> tuple[str, ...]:
        """What covariates that are texts were compared with, in sentences."""
        return tuple(f"Covariate {levels}." for levels in self.levels())

    def covariates_listed(self) -> list[str]:
        """A line about covariates that are numbers, where they have names."""
        texts = {name for levels in self.levels() for name in levels.columns}
        named = [str(self.views.feature_names[c]) for c in self.known] if self.named else []
        numbers = [in_line(name) for name in named if name not in texts]
        return [f"Covariate{'s' if len(numbers) > 1 else ''}: {listed(numbers, 12)}."] if numbers else []

    def counted(self, rows: Rows) -> Design:
        """With the levels of covariates counted in these rows."""

        def counted(levels: Levels) -> Levels:
            table = rows.select(list(levels.columns)).array()[:, : len(levels.columns)]
            counts = np.append(len(table) - np.nansum(table), np.nansum(table, axis=0)).astype(int)
            return replace(levels, counts=tuple(counts.tolist()))

        added = (one if one.levels is None else replace(one, levels=counted(one.levels)) for one in self.added)
        return replace(self, added=tuple(added))

    def found_in(self, table: Rows | State, outcome: object = None, *, gaps: bool = False) -> Any:
        """The columns of the views and the covariates in another table, and last the outcome: a name, a number, or values.
        gaps : labels may be missing."""
        if not isinstance(table, Rows):
            numbers = self._numbers(table.names, table.layout.n_columns, "the state")
            if outcome is not None:
                numbers = np.append(numbers, _outcome_number(outcome, table.layout.n_columns, table.names))
            return table.select(numbers)
        rows = self._reaching(table)
        numbers = self._numbers(rows.names, rows.width, rows.source.title)
        for one in self.added:
            rows = one.to(rows, "the covariate" if one.levels else "column", gaps=gaps)
        numbers = np.where(numbers < 0, rows.width + numbers, numbers)
        if outcome is not None:
            rows, last = with_outcome(rows, outcome)
            numbers = np.append(numbers, last)
        return rows.select(numbers)

    def _reaching(self, table: Rows) -> Rows:
        """The table with the groups of columns that were asked for, or hold what is needed, and with what is needed and only
        describes its samples: the fit may have read the same columns from another kind of table."""
        own = () if not self.named else tuple(self.views.feature_names[c] for c in self.used if c < self.width)
        rows = table.including((*self.groups, *table.source.groups_of(own)))
        for name in dict.fromkeys(own):
            if name not in (rows.names or own) and rows.source.annotation(name) == name:
                rows = Added(name).to(rows, "column")
        return rows

    def check_width(self, width: int, model: str) -> None:
        """Refuse a table without names that has another number of columns than that of the fit."""
        if width == self.width:
            return
        told = f"X has {width} features, but {model} is expecting {self.width} features as input"
        if self.needed is None:
            raise DataError(f"{told}: as many as the table of the fit had, in the same order")
        raise DataError(
            f"{told}, all columns of the table of the fit, in the same order. Or pass a data frame with the {len(self.needed)} "
            f"columns that are used, in any order: {listed(self.needed)}"
        )

    def _numbers(self, names: Sequence[str] | None, width: int, title: str) -> IntArray:
        """Where the used columns are in a table; those to be added count from the end, -1 the last."""
        own, used = self.views.feature_names, self.used
        behind = used - len(own)
        if names is None or not self.named:
            self.check_width(width, "the model")
            return np.where(used < self.width, used, behind)
        at = {name: i for i, name in enumerate(names)}
        missing = [own[c] for c in used if c < self.width and own[c] not in at]
        if missing:
            more = f", nor {len(missing) - 1} others" if len(missing) > 1 else ""
            raise DataError(
                f"{title} has no column {missing[0]!r} (a column of the fit){more}: needed are the {len(self.needed or ())} "
                "columns of views and covariates, in any order; others are ignored"
            )
        return np.array([at[own[c]] if c < self.width else last for c, last in zip(used, behind, strict=True)])


def lay_out(
    table: Rows | State, views: object, covariates: object, beside: Sequence[Any] = (), *, gaps: bool = False
) -> tuple[Any, Design]:
    """The table with what had to be added to it, and the parts of its columns; beside : columns that are in no view; gaps :
    texts may be missing in some rows, whose levels are nan."""
    given: Any = () if covariates is None else covariates
    wanted = [given] if isinstance(given, str) else list(given)  # one name, or one pattern
    if not isinstance(table, Rows):
        width, names = table.layout.n_columns, table.names
        known, others = _known(wanted, width, names), [_outcome_number(one, width, names) for one in beside]
        found = _views(views, width, names, [*known, *others])
        return table, _checked(Design(found, known, (), (), width, names is not None), others)
    if views is None and len(table.views) > 1:
        views = {name: list(columns) for name, columns in table.views.items()}
    groups = _groups(table, views)
    desk = _Desk(table.including(groups))
    views = {name: desk.spelled(part) for name, part in views.items()} if isinstance(views, Mapping) else views
    known = desk.covariates(wanted, gaps=gaps)
    rows, coded = desk.rows, {one.name for one in desk.added}
    others = [c for c in range(desk.width) if rows.names is not None and rows.names[c] in coded]
    numbers = [_outcome_number(one, rows.width, rows.names, optional=True) for one in beside]
    asked = [number for number in numbers if number is not None]
    others += asked
    found = _views(views, rows.width, rows.names, [*known, *others], rows)
    named = rows.names is not None and getattr(rows.source, "named", True)
    design = _checked(Design(found, known, groups, tuple(desk.added), desk.width, named), asked)
    if rows.names is not None:
        wrong = rows.source.not_numbers([rows.names[c] for c in design.columns])
        if wrong is not None:
            raise DataError(f"{found.describe(rows.names.index(wrong[0]))} {wrong[1]}")
    return rows, design


def including_views(table: Rows, views: object) -> Rows:
    """The table with the groups of columns that the views name, before others are put behind them."""
    return table.including(_groups(table, views))


def _groups(table: Rows, views: object) -> tuple[str, ...]:
    return tuple(name for name in _texts(views) if name not in (table.names or ()) and name in table.source.groups)


class _Desk:
    """A table while columns are added to it."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.width = rows, rows.width
        self.added: list[Added] = []

    def add(self, one: Added, role: str, *, gaps: bool = False) -> range:
        """The numbers of the new columns."""
        clash = next((name for name in one.columns if name in (self.rows.names or ())), None)
        if clash is not None:
            raise DataError(
                f"{role} {one.name!r} becomes a column {clash!r}, and there is one of that name: if {one.name!r} is also what "
                "is asked about, name it once; else rename one of them"
            )
        before, self.rows = self.rows.width, one.to(self.rows, role, gaps=gaps)
        self.added.append(one)
        return range(before, self.rows.width)

    def _further(self, name: object) -> str | None:
        """What only describes the samples under that name."""
        if not isinstance(name, str) or name in (self.rows.names or ()):
            return None
        return self.rows.source.annotation(name)

    def spelled(self, part: Any) -> Any:
        """The columns of a view: groups of columns (a layer, a modality, a file's own view) by the names of these, and what
        describes the samples added to the table."""
        part = [part] if isinstance(part, str) else part
        if not isinstance(part, (list, tuple)):
            return part
        out: list[Any] = []
        together = {**self.rows.source.groups, **self.rows.views}
        for item in part:
            further = self._further(item)
            if further is not None:
                self.add(Added(further), "column")
            whole = isinstance(item, str) and item not in (self.rows.names or ()) and item in together
            out += together[item] if whole else [item if further is None else further]
        return out

    def covariates(self, wanted: Sequence[object], *, gaps: bool) -> IntArray:
        """Numbers of the columns that `covariates=` means, each once."""
        names = self.rows.names
        places: dict[Any, int | None] = {}  # numbers in the table, None for what describes the samples
        for one in wanted:
            further = self._further(one)
            numbers = [None] if further is not None else _known([one], self.width, names).tolist()
            for c in numbers:
                name = further if c is None else c if names is None else names[c]
                if name in places:
                    raise DataError(f"covariate {name!r} is named twice: name it once")
                places[name] = c
        named = [name for name in places if isinstance(name, str)]
        texts = self.rows.source.texts(named) if named else {}
        out: list[int] = []
        for name, number in places.items():
            if name in texts:
                levels = Levels.of(texts[name], name, "the covariate", gaps=gaps)
                out += self.add(Added(name, levels), "the covariate", gaps=gaps)
            else:
                out += self.add(Added(name), "the covariate") if number is None else [number]
        return np.array(out, dtype=np.int64)


def _checked(design: Design, asked: Sequence[int]) -> Design:
    """Refuses columns that play two parts; asked : the outcome, or exposures."""
    both = np.intersect1d(design.columns, asked)
    if len(both):
        raise DataError(f"{design.views.describe(int(both[0]))} is also what is asked about: take it out of the views")
    overlap = np.intersect1d(design.columns, design.known)
    if len(overlap):
        raise DataError(f"{design.views.describe(int(overlap[0]))} is also a covariate: name it once")
    return design


def _known(covariates: Sequence[object], width: int, names: Sequence[str] | None) -> IntArray:
    if not len(covariates):
        return _NONE
    return resolve_views({"covariates": covariates}, width, names, role="covariates=")["covariates"]


def _views(
    views: object, width: int, names: Sequence[str] | None, beside: Sequence[int], rows: Rows | None = None
) -> Views:
    """The views; beside : columns that a number does not divide; rows : of which some tell an index from data."""
    check_columns(width, names)
    if not isinstance(views, (int, np.integer)):
        if rows is None:
            return resolve_views(views, width, names)
        together = [*rows.source.groups, *rows.views]
        return resolve_views(views, width, names, taken=rows.source.behind, together=together, own=rows.own_width)
    rest = np.setdiff1d(np.arange(width), np.array(beside, dtype=np.int64))
    named = None if names is None else [names[c] for c in rest]
    wrong = None if rows is None or named is None else rows.source.not_numbers(named)
    if wrong is not None:
        raise DataError(
            f"views={views} takes all columns, and column {wrong[0]!r} {wrong[1]}. Or name the columns of the views, "
            'views={"tests": [...], "controls": [...]}: others are ignored'
        )
    first = None if names is None or rows is None or not rows.rereadable else rows.select(rest).head(_FIRST)
    inner = resolve_views(views, len(rest), named, first)
    return resolve_views({name: rest[part] for name, part in inner.columns.items()}, width, names)


def check_columns(width: int, names: Sequence[str] | None) -> None:
    """Refuse a table of one column."""
    if width < 2:
        text = (
            f", {names[0][:40]!r}: cells of a text table are separated by commas, semicolons or tabs" if names else ""
        )
        raise DataError(f"two views need at least two columns; X has n_features = {width}{text}")


def _texts(views: object) -> list[str]:
    """The names in `views=`, in order, each once."""
    parts = list(views.values()) if isinstance(views, Mapping) else []
    flat = [item for part in parts for item in (part if isinstance(part, (list, tuple)) else (part,))]
    return list(dict.fromkeys(item for item in flat if isinstance(item, str)))


# ---- outcomes


def is_column(y: object) -> bool:
    """Whether an outcome is a column of the table: its name, or its number."""
    return isinstance(y, str) or (isinstance(y, (int, np.integer)) and not isinstance(y, bool))


def names_columns(X: Rows | State, y: object) -> list[Any]:
    """The columns of X that y is, or that a list of texts names; none where y holds values."""
    if is_column(y):
        return [y]
    there = X.names if not isinstance(X, Rows) else X.source.all_names
    if isinstance(y, (list, tuple)) and len(y) and all(isinstance(one, str) for one in y) and {*y} <= {*(there or ())}:
        return list(y)
    return []


def labels_in(X: object, y: Any, role: str = "the outcome") -> Any:
    """The labels (n,) in a column of a table, texts or numbers, whole ones as such; role : what messages call it."""
    rows, name = _outcome_column(X, y, role)
    labels = rows.read([name])[name]
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and np.all(labels == np.rint(labels)):
        return labels.astype(np.int64)
    return labels


def _outcome_column(X: object, y: Any, role: str = "the outcome") -> tuple[Rows, str]:
    """The rows of a table, and the name of the column that is the outcome."""
    rows = open_source(tables_beside(X) if isinstance(X, (list, tuple)) and are_tables(X) else X)
    if not rows.rereadable:
        raise DataError(
            f"{role} {y!r} is read apart from the views, and a stream can be read only once: pass its values in memory"
        )
    names = rows.source.all_names
    name = y if isinstance(y, str) else names[int(y)] if -rows.width <= y < rows.width else None
    name = name if name in names else rows.source.annotation(y)
    if name is None:
        rows.source.check_column(str(y), role)
    return rows, str(name)


def with_outcome(rows: Rows, y: object) -> tuple[Rows, int]:
    """The rows with the outcome among them, and its number: y is a column's name or number, or the values (n,)."""
    if not is_column(y):
        values = check_outcome(y, rows.n_rows)
        return rows.with_columns(values[:, None], [unused("y", rows.names or ())]), rows.width
    at = _outcome_number(y, rows.width, rows.names, optional=True)
    if at is not None:
        if rows.held and rows.names is not None and rows.source.texts([rows.names[at]]):
            raise DataError(
                f"the outcome {rows.names[at]!r} holds text, and numbers are needed: encode it, or take it for classes "
                "(ComponentLogisticRegression, ExposureEffects)"
            )
        return rows, at
    name = rows.source.annotation(y)
    if name is None:
        rows.source.check_column(str(y), "the outcome")
    assert name is not None
    return Added(name).to(rows, "the outcome"), rows.width


def unused(name: str, names: Sequence[str]) -> str:
    """The name, or one like it that is not taken."""
    while name in names:
        name += "_"
    return name


def _outcome_number(y: object, width: int, names: Sequence[str] | None, *, optional: bool = False) -> Any:
    """The number of the column; None where it is optional and no name of the table's own columns."""
    if not is_column(y):
        if optional:
            return None
        raise DataError(
            "a state holds the outcome as one of its columns: give y as its name or number, fit(state, y=...)"
        )
    if isinstance(y, str) and y not in (names or ()):
        if optional:
            return None
        raise DataError(
            f"the state has no column {y!r} (the outcome); its columns are {list(names or range(width))[:8]}"
        )
    return int(chosen_columns([y], width, names)[0])
