"""Which column of a table plays which part: views, known covariates, an outcome.

A design is laid out once, for whatever holds the table: an array, a data frame, AnnData, files, a stream, a state. Columns that
are not numbers of the table itself become such: texts are levels of zeros and ones, what only describes the samples (obs) is
put behind the columns, and so is an outcome in memory. The same columns are found again in other tables, by their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.algebra.arrays import RANK_TOLERANCE, whitening
from richcomponents.data.cells import Column, declared_order
from richcomponents.data.classes import Levels
from richcomponents.data.rows import Rows, State, open_source, tables_beside
from richcomponents.data.table import (
    Views,
    are_tables,
    check_outcome,
    chosen_columns,
    listed,
    name_in,
    names_in,
    not_data,
    resolve_views,
    standardised,
)
from richcomponents.errors import DataError
from richcomponents.storage import storable
from richcomponents.text import in_line

_FIRST = 1000  # rows that tell an index from data
_SPEC = re.compile(r'("(?:[^"]|"")*"|[^=]*)(=?)(.*)', re.DOTALL)  # NAME=columns, the name perhaps in quotes


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
        parts = dict(self.side_by_side().columns)
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
        gaps : labels may be missing.

        With the groups of columns that were asked for, or hold what is needed, and what is needed and only describes the
        samples: the fit may have read the same columns from another kind of table."""
        if not isinstance(table, Rows):
            numbers = self._numbers(table.names, table.layout.n_columns, "the state")
            if outcome is not None and not is_column(outcome):
                raise DataError(
                    "a state holds the outcome as one of its columns: give y as its name or number, fit(state, y=...)"
                )
            return table.select(numbers if outcome is None else np.append(numbers, place(table, outcome)))
        own = dict.fromkeys(self.views.feature_names[c] for c in self.used if self.named and c < self.width)
        missing = {*own} - {*(table.names or ())}
        groups = [group for group, columns in table.source.groups.items() if not missing.isdisjoint(columns)]
        rows = table.including([*self.groups, *groups])
        for name in own:
            if rows.names is not None and rows.source.annotation(name) == name:
                rows = Added(name).to(rows, "column")
        numbers = self._numbers(rows.names, rows.width, rows.source.title)
        for one in self.added:
            rows = one.to(rows, "the covariate" if one.levels else "column", gaps=gaps)
        numbers = np.where(numbers < 0, rows.width + numbers, numbers)
        if outcome is not None:
            rows, last = with_outcome(rows, outcome)
            numbers = np.append(numbers, last)
        return rows.select(numbers)

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
        known, asked = _known(wanted, width, names), [place(table, one) for one in beside]
        design = Design(_views(views, width, names, [*known, *asked]), known, (), (), width, names is not None)
        return table, _checked(design, asked)
    if views is None and len(table.views) > 1:
        views = {name: list(columns) for name, columns in table.views.items()}
    groups = _groups(table, views)
    desk = _Desk(table.including(groups))
    views = {name: desk.spelled(part) for name, part in views.items()} if isinstance(views, Mapping) else views
    known = desk.covariates(wanted, gaps=gaps)
    rows, coded = desk.rows, {one.name for one in desk.added}
    numbers = [rows.find(one, "the outcome") for one in beside if is_column(one)]
    asked = [number for number in numbers if isinstance(number, int)]
    others = [c for c in range(desk.width) if rows.names is not None and rows.names[c] in coded]
    resolved = _views(views, rows.width, rows.names, [*known, *others, *asked], rows)
    named = rows.names is not None and rows.source.named
    design = _checked(Design(resolved, known, groups, tuple(desk.added), desk.width, named), asked)
    if rows.names is not None:
        wrong = rows.source.not_numbers([rows.names[c] for c in design.columns])
        if wrong is not None:
            raise DataError(f"{resolved.describe(rows.names.index(wrong[0]))} {wrong[1]}")
    return rows, design


def including_views(table: Rows, views: object) -> Rows:
    """The table with the groups of columns that the views name, before others are put behind them."""
    return table.including(_groups(table, views))


def _groups(table: Rows, views: object) -> tuple[str, ...]:
    parts = list(views.values()) if isinstance(views, Mapping) else []
    flat = [item for part in parts for item in (part if isinstance(part, (list, tuple)) else (part,))]
    texts = dict.fromkeys(item for item in flat if isinstance(item, str))
    return tuple(name for name in texts if name not in (table.names or ()) and name in table.source.groups)


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

    def spelled(self, part: Any) -> Any:
        """The columns of a view: groups of columns (a layer, a modality, a file's own view) by the names of these, and what
        describes the samples added to the table."""
        part = [part] if isinstance(part, str) else part
        if not isinstance(part, (list, tuple)):
            return part
        out: list[Any] = []
        together = {**self.rows.source.groups, **self.rows.views}
        for item in part:
            if (name := self.rows.source.annotation(item)) is not None:
                self.add(Added(name), "column")
                out.append(name)
            elif isinstance(item, str) and item not in (self.rows.names or ()) and item in together:
                out += together[item]
            else:
                out.append(item)
        return out

    def covariates(self, wanted: Sequence[object], *, gaps: bool) -> IntArray:
        """Numbers of the columns that `covariates=` means, each once."""
        names, every = self.rows.names, list[Any]()  # names, or numbers of columns without
        for one in wanted:
            name = self.rows.source.annotation(one)
            numbers = _known([one], self.width, names) if name is None else ()
            every += [name] if name is not None else [int(c) if names is None else names[c] for c in numbers]
        twice = next((one for i, one in enumerate(every) if one in every[:i]), None)
        if twice is not None:
            raise DataError(f"covariate {twice!r} is named twice: name it once")
        texts = self.rows.source.texts([one for one in every if isinstance(one, str)])
        out: list[int] = []
        for one in every:
            if one in texts:
                levels = Levels.of(texts[one], one, "the covariate", gaps=gaps)
                out += self.add(Added(one, levels), "the covariate", gaps=gaps)
            elif names is None or one in names:
                out.append(one if names is None else names.index(one))
            else:
                out += self.add(Added(one), "the covariate")
        return np.array(out, dtype=np.int64)


def _checked(design: Design, asked: Sequence[int]) -> Design:
    """Refuses columns that play two parts; asked : the outcome, or exposures."""
    for column in np.intersect1d(design.columns, asked)[:1]:
        raise DataError(f"{design.views.describe(int(column))} is also what is asked about: take it out of the views")
    for column in np.intersect1d(design.columns, design.known)[:1]:
        raise DataError(f"{design.views.describe(int(column))} is also a covariate: name it once")
    return design


def _known(covariates: Sequence[object], width: int, names: Sequence[str] | None) -> IntArray:
    if not len(covariates):
        return np.zeros(0, dtype=np.int64)
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


# ---- outcomes


def is_column(y: object) -> bool:
    """Whether an outcome is a column of the table: its name, or its number."""
    return isinstance(y, str) or (isinstance(y, (int, np.integer)) and not isinstance(y, bool))


def names_columns(X: Rows | State, y: object) -> list[Any]:
    """The columns of X that y is, or that a list of texts names; none where y holds values."""
    if is_column(y):
        return [y]
    there = X.source.all_names if isinstance(X, Rows) else X.names
    if isinstance(y, (list, tuple)) and len(y) and all(isinstance(one, str) for one in y) and {*y} <= {*(there or ())}:
        return list(y)
    return []


def labels_in(X: object, y: Any, role: str = "the outcome") -> Any:
    """The labels (n,) in a column of a table, texts or numbers, whole ones as such; role : what messages call it."""
    rows = open_source(tables_beside(X) if isinstance(X, (list, tuple)) and are_tables(X) else X)
    if not rows.rereadable:
        raise DataError(
            f"{role} {y!r} is read apart from the views, and a stream can be read only once: pass its values in memory"
        )
    at = rows.find(y, role)
    name = at if isinstance(at, str) else rows.source.all_names[rows.read_columns[at]]
    labels = rows.read([name])[name]
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and np.all(labels == np.rint(labels)):
        return labels.astype(np.int64)
    return labels


def with_outcome(rows: Rows, y: object) -> tuple[Rows, int]:
    """The rows with the outcome among them, and its number: y is a column's name or number, or the values (n,)."""
    if not is_column(y):
        values = check_outcome(y, rows.n_rows)
        return rows.with_columns(values[:, None], [unused("y", rows.names or ())]), rows.width
    at = rows.find(y, "the outcome")
    if isinstance(at, str):
        return Added(at).to(rows, "the outcome"), rows.width
    if rows.held and rows.names is not None and rows.source.texts([rows.names[at]]):
        raise DataError(
            f"the outcome {rows.names[at]!r} holds text, and numbers are needed: encode it, or take it for classes "
            "(ComponentLogisticRegression, ExposureEffects)"
        )
    return rows, at


def unused(name: str, names: Sequence[str]) -> str:
    """The name, or one like it that is not taken."""
    while name in names:
        name += "_"
    return name


def place(table: Rows | State, column: Any, role: str = "the outcome") -> int:
    """The number of a column; role : for messages."""
    width, names = table.width if isinstance(table, Rows) else table.layout.n_columns, table.names
    known = column in (names or ()) if isinstance(column, str) else is_column(column) and -width <= column < width
    if not known:
        title = table.source.title if isinstance(table, Rows) else "the state"
        said = (
            f"{title} has no column {column!r} ({role})" if names else f"{role} {column!r} is not a column of {title}"
        )
        raise DataError(f"{said}; its columns are {list(names or range(width))[:8]}")
    return int(chosen_columns([column], width, names)[0])


# ---- the command line: columns by name


@dataclass(frozen=True)
class Selection:
    """What the command line fits a model to, for the doors of all models: they say what is wrong with values.

    X : a table of pyarrow, with the columns of the views, the covariates and the outcome; views : {name: column names}, U
    first; y : the values of the outcome that are there, or None; groups : (n,) or None; notes : sentences about what was taken.
    """

    X: Any
    views: dict[str, tuple[str, ...]]
    y: Column | None
    groups: Column | None
    notes: tuple[str, ...] = ()


def select(
    rows: Rows,
    views: Sequence[str] = (),
    *,
    target: str | None = None,
    covariates: Sequence[str] = (),
    groups: str | None = None,
    key: str | None = None,
    missing: str = "error",
    role: str = "the target",
) -> Selection:
    """The columns a model needs, read once.

    views : "tests=a,b,c", "controls=C_*" (names and patterns), "tests=layer:log" (a group of columns), the name of a view of
    the file, or one number k: the first k columns are U, the others V; text, annotations of the samples, and what looks like an
    outcome, labels or an index is left out, and a note says what was taken. target, covariates, groups, key : columns that
    belong to no view. missing : unless "error", rows without target or group are left out. role : what the target is called.
    """
    import pyarrow

    specs: list[Any] = [_SPEC.fullmatch(one).groups() for one in views]  # type: ignore[union-attr]
    inside = [name for _, equals, columns in specs if equals for name in names_in(columns)]
    rows = rows.including([name for name in inside if name in rows.source.groups])
    taken = dict[str, str]()
    parts = [(target, role), *((one, "a covariate") for one in covariates), (groups, "the groups"), (key, "the labels")]
    for name, what in parts:
        if name is not None and what != "the labels":
            rows.source.check_column(name, what)
        if name is not None and taken.setdefault(name, what) == role != what:
            why = "a model that sees its outcome explains nothing"
            why = why if role == "the target" else "nothing would be left of it; name it once"
            raise DataError(f"column {name!r} is {role} and also {what}: {why}")
    chosen, notes = _spelled(rows, specs, taken)
    seen = [name for part in chosen.values() for name in part]
    if both := next((name for name in seen if name in taken), None):
        raise DataError(f"column {both!r} is in a view and also {taken[both]}: name it once")
    columns = rows.read(list(dict.fromkeys([*seen, *covariates, *([] if target is None else [target])])))
    table = pyarrow.table({name: _as_arrow(values) for name, values in columns.items()})
    y = None if target is None else columns[target]
    labels = None if groups is None else rows.read([groups], [groups])[groups]
    keep = np.ones(len(table), dtype=bool)
    for x in (y, labels):
        if x is not None:
            keep &= np.isfinite(x) if x.dtype.kind == "f" else np.array([value is not None for value in x], dtype=bool)
    if not keep.any():
        raise DataError(f"all rows of {rows.source.title} lack {role} or a group: name another column")
    if missing != "error" and not keep.all():
        notes.append(f"{np.sum(~keep)} of {len(keep)} rows have no {role.split()[-1]} or group and were left out.")
        table, labels = table.filter(keep), None if labels is None else labels[keep]
    return Selection(table, chosen, None if y is None else y[keep], labels, (*rows.source.notes, *notes))


def _as_arrow(values: Column) -> Any:
    """Values as a column of pyarrow; labels that declare an order as a category that does."""
    import pyarrow

    if (order := declared_order(values)) is None:
        return pyarrow.array(values if values.dtype.kind in "biuf" else values.tolist())
    codes = [None if label is None else order.index(label) for label in values]
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes, pyarrow.int32()), list(order), ordered=True)


def _spelled(
    rows: Rows, specs: Sequence[Any], taken: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """{view: columns}, and what was taken without being named; specs : (name, "=" or "", columns) each; taken : columns with
    another role."""
    source, own, title, names, notes = rows.source, rows.views, rows.source.title, rows.source.all_names, list[str]()
    if len(specs) == 1 and not specs[0][1] and specs[0][0].isdecimal():
        k, (data, left_out) = int(specs[0][0]), _data(rows, [name for name in names if name not in taken])
        if not 0 < k < len(data):
            raise DataError(
                f"--views {k} would leave a view empty: {title} has {len(data)} columns to divide.{left_out} Name columns with "
                "--views NAME=column,column to take others"
            )
        divided = {"U": data[:k], "V": data[k:]}
        told = "; ".join(f"{view} is {listed(columns)}" for view, columns in divided.items())
        return divided, [f"--views {k}: {told}.{left_out}"]
    if not specs and len(own) != 2:
        several = f"It holds the views {', '.join(own)}: name two or more of them. " if len(own) > 1 else ""
        raise DataError(
            f"say which columns of {title} are the tests (U) and which the controls (V). {several}For example: "
            "--views tests=a,b,c --views controls='C_*', or --views 10 for the first ten and the rest. "
            f"The columns are {listed(names)}"
        )
    wanted: dict[str, Sequence[str]] = {}
    for spec, equals, columns in specs or [(name, "", "") for name in own]:
        name = name_in(spec)
        if name in wanted:
            raise DataError(f"two views are called {name!r}: rename one")
        if equals:  # groups of columns (a layer, an entry of obsm) stand for these
            groups = {group: inner for group, inner in source.groups.items() if group not in (rows.names or ())}
            wanted[name] = [one for part in names_in(columns) for one in groups.get(part, (part,))]
        elif name in own:
            wanted[name], left_out = _data(rows, [column for column in own[name] if column not in taken])
            notes += [f"View {name!r} is {listed(wanted[name]) or 'empty'}.{left_out}"] if left_out else []
            if not wanted[name]:
                raise DataError(f"view {name!r} has no columns that may be data. {' '.join(notes)}".rstrip())
        else:
            theirs = f", or one of the file's own views ({', '.join(own)})" if own else ""
            raise DataError(
                f"--views {spec} names no columns: write --views NAME=column,column or NAME='prefix*'{theirs}"
            )
    chosen = resolve_views(wanted, len(names), names, taken=taken, title=title)
    if len(chosen) < 2:
        raise DataError(f"views are compared, --views names only {', '.join(chosen)}: name U first, then V, or more")
    return {view: tuple(names[column] for column in chosen[view]) for view in chosen}, notes


def _data(rows: Rows, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Those of the columns that are data though nobody named them, and a sentence about the others."""
    source, columns = rows.source, rows.read(names)
    grouped = {column for view in source.views.values() for column in view} or {*names} - {*source.annotations}
    left = {name: "an annotation of the samples" for name in names if name not in grouped}
    left |= {name: "text" for name in names if columns[name].dtype.kind not in "biuf"}
    numeric = [name for name in names if name not in left]
    left |= not_data(numeric, np.column_stack([columns[name][:_FIRST] for name in numeric]) if numeric else None)
    reasons = ", ".join(f"{name!r} ({why})" for name, why in left.items())
    return tuple(name for name in numeric if name not in left), f" Left out: {reasons}." if left else ""
