"""Tables of the same samples side by side: in memory, one file per view, or the modalities of one file.

Rows are matched by the labels of the samples, where the tables have any, else they are taken one by one. What is read from the
tables is read in step, a block of rows at a time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import Column, is_gap, is_number
from richcomponents.data.sources.arrays import modalities
from richcomponents.data.sources.base import Beside, Source, numbered
from richcomponents.data.table import (
    Views,
    as_matrix,
    check_finite,
    check_labels,
    column_names,
    is_label,
    listed,
    repeated,
    resolve_views,
    sample_index,
)
from richcomponents.errors import DataError, warn_user

WAYS = ("same", "inner", "outer")


@dataclass(frozen=True)
class Alignment:
    """labels (n,) : of the common rows, in the order of the first table, then of those that only later ones have;
    rows : {table: (n,), the number of its row, -1 where it has none}; left_out : {table: labels that only some tables have, of
    rows that are not among these}."""

    labels: tuple[Any, ...]
    rows: Mapping[str, IntArray]
    left_out: Mapping[str, tuple[Any, ...]]

    def notes(self) -> tuple[str, ...]:
        """What was left out, and whose rows are filled with gaps, counted and named."""
        kept = len(self.labels)
        told = [
            f"{len(labels)} sample{'' if len(labels) == 1 else 's'} of {name!r} {'is' if len(labels) == 1 else 'are'} not in "
            f"every table and {'was' if len(labels) == 1 else 'were'} left out ({listed(list(map(str, labels)))}); "
            f"{kept} are kept."
            for name, labels in self.left_out.items()
            if labels
        ]
        for name, rows in self.rows.items():
            gone = [str(label) for label, row in zip(self.labels, rows.tolist(), strict=True) if row < 0]
            told += [f"{name!r} lacks {len(gone)} of {kept} samples ({listed(gone)})."] if gone else []
        return tuple(told)


def align_labels(labels: Mapping[str, Sequence[Any]], how: str) -> Alignment:
    """Tables by name, each with the labels of its rows.

    how : "same", all tables must have the same samples, in any order; "inner", the samples that all of them have; "outer",
    the samples that any of them has.

    >>> both = align_labels({"rna": ["a", "b", "c"], "protein": ["c", "a"]}, "inner")
    >>> both.labels, both.rows["protein"].tolist(), both.left_out["rna"]
    (('a', 'c'), [1, 0], ('b',))
    """
    for name, own in labels.items():
        bare = next((row for row, label in enumerate(own) if is_gap(label)), None)
        if bare is not None:
            raise DataError(f"data row {bare + 1} of {name!r} has no sample label: give it one")
        twice = repeated(own)
        if twice is not None:
            raise DataError(f"{name!r} has two rows labelled {twice!r}: sample labels must be unique")
    where = {name: {label: row for row, label in enumerate(own)} for name, own in labels.items()}
    first = next(iter(where))
    for name, there in where.items():
        missing = [label for label in where[first] if label not in there]
        extra = [label for label in there if label not in where[first]]
        if how == "same" and (missing or extra):
            raise DataError(
                f"views {first!r} and {name!r} hold different samples ({len(missing)} only in {first!r}, {len(extra)} only in "
                f'{name!r}, e.g. {(missing + extra)[0]!r}): align="inner" takes those they share, align="outer" all of them '
                '(with missing="available"), in fit_views or open_source(tables, align=...), which every fit takes'
            )
    union = dict.fromkeys(label for own in where.values() for label in own)
    kept = [label for label in union if how == "outer" or all(label in own for own in where.values())]
    if not kept:
        firsts = ", ".join(repr(next(iter(own), None)) for own in where.values())
        raise DataError(f"{' and '.join(map(repr, where))} share no sample label (their first labels are {firsts})")
    inside = set(kept)
    return Alignment(
        tuple(kept),
        {name: np.array([own.get(label, -1) for label in kept], dtype=np.int64) for name, own in where.items()},
        {name: tuple(label for label in own if label not in inside) for name, own in where.items()},
    )


def aligned(parts: Mapping[str, Source], key: str | None, how: str) -> Alignment | None:
    """How the rows of tables line up, by the column `key` or the labels they have; None where they do row by row.

    A table without labels is taken to be in the order of the first that has them; numbers 0, 1, 2, ... say nothing alone."""
    if how not in WAYS:
        raise ValueError(f"align must be one of {', '.join(map(repr, WAYS))}, got {how!r}")
    every = {name: _labels(name, part, key) for name, part in parts.items()}
    labels = {name: own for name, own in every.items() if own is not None}
    counting = [name for name, own in labels.items() if own == tuple(range(len(own)))] if key is None else []
    labels = {} if len(counting) == len(labels) else labels
    bare = next((name for name in parts if name not in labels), None)
    if how != "same" and bare is not None:
        raise DataError(
            f"align={how!r} matches samples by label, and view {bare!r} has none: give it an index of sample labels (obs_names "
            "of AnnData), or name the column that holds them, id= (--id)"
        )
    if counting and labels and len(set(labels.values())) > 1:
        other = next(name for name in labels if name not in counting)
        raise DataError(
            f"view {counting[0]!r} numbers its rows 0, 1, 2, ... and view {other!r} labels them otherwise: whether these are "
            "the same samples in a different order nobody can tell. Give both the same labels, or none (to_numpy())"
        )
    lengths = {part.title: length(part) for part in parts.values()} if bare is not None else {}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"the tables have different numbers of rows ({', '.join(f'{title} has {n}' for title, n in lengths.items())}): "
            "views are tables of the same samples; name the column of sample labels with --id (id=)"
        )
    if not labels:
        return None
    both = align_labels(labels, how)
    if bare is None:
        return both
    first = next(iter(labels))
    warn_user(
        f"view {bare!r} carries no sample labels: its rows are taken to be in the order of {first!r}", UserWarning
    )
    return Alignment(both.labels, {name: both.rows.get(name, both.rows[first]) for name in parts}, both.left_out)


def _labels(name: str, part: Source, key: str | None) -> tuple[Any, ...] | None:
    """The labels of the rows of a table, where there are any."""
    if key is None:
        return part.index
    if part.names is None:
        raise DataError(f"view {name!r} has no sample labels {key!r}: an array has no named columns: pass a data frame")
    return part.labels(key)


def length(source: Source) -> int:
    """The number of rows, which a text table only knows when it was read."""
    if source.n_rows is not None:
        return source.n_rows
    first = source.all_names[:1]
    return len(source.read(first, first)[first[0]])


class SideBySide(Beside):
    """Columns of several tables, each a view; rows come in the order of the first.

    parts : {name: source}; both : how their rows line up; key : a column of labels, which all of them have and which keeps its
    name. Where two parts use a name, all columns get the part's name in front. A part without columns only describes samples.
    """

    def __init__(
        self, title: str, parts: Mapping[str, Source], both: Alignment | None = None, key: str | None = None
    ) -> None:
        super().__init__([part if both is None else part.kept(both.rows[name]) for name, part in parts.items()])
        self.title, self.key, self._both = title, key, both
        self.files = list(dict.fromkeys(file for part in parts.values() for file in part.files))
        self.held, self.shared = all(part.held for part in self.parts), any(part.shared for part in self.parts)
        self.named = any(part.names is not None for part in self.parts if part.width)
        own = {name: part.names or numbered(name, part.width) for name, part in parts.items()}
        self.inner = np.flatnonzero([column != key for columns in own.values() for column in columns])
        twice = repeated(column for columns in own.values() for column in columns if column != key)
        self._places: dict[str, tuple[int, str]] = {}  # number of the part, and the name there
        self.names: tuple[str, ...] = ()
        self.views = {}
        for i, (name, part) in enumerate(parts.items()):
            front, grouped = "" if twice is None else f"{name}:", {c for view in part.views.values() for c in view}
            columns = {f"{front}{c}": (i, at) for c, at in zip(own[name], part.all_names, strict=False) if c != key}
            if len({*columns} - {*self._places}) < len(own[name]) - (key in own[name]):
                raise DataError(f"two columns of {title} have the same name: rename one")
            self.names, self._places = (*self.names, *columns), self._places | columns
            data = tuple(c for c, (_, at) in columns.items() if not grouped or at in grouped)
            self.views |= {name: data} if part.width else {}
        self.width, self.annotations = len(self.names), () if key is None else (key,)
        for i, (name, part) in enumerate(parts.items()):
            for told in part.annotations:
                outer = told if told not in self._places else f"{name}:{told}"
                if told != key:
                    self._places[outer], self.annotations = (i, told), (*self.annotations, outer)
        self.n_rows = length(self.parts[0]) if both is None else len(both.labels)
        self.samples = None if both is None else both.labels
        self._held: tuple[tuple[int, ...] | None, Array] | None = None  # what was read last, of tables in memory

    def _by_part(self, names: Sequence[str]) -> Iterator[tuple[Source, dict[str, str]]]:
        """The parts that hold columns, and {name there: name here}."""
        for i, part in enumerate(self.parts):
            mine = {self._places[name][1]: name for name in names if name != self.key and self._places[name][0] == i}
            if mine:
                yield part, mine

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        if self.key is not None and self.key in names and self._both is not None:
            columns[self.key] = np.array(list(map(str, self._both.labels)), dtype=object)
        for part, mine in self._by_part(names):
            values = part.read(list(mine), {inner for inner, name in mine.items() if name in written})
            columns |= {name: values[inner] for inner, name in mine.items()}
        if any(len(values) != self.n_rows for values in columns.values()):
            raise self.uneven([])
        return {name: columns[name] for name in names}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        texts = [(mine, part.texts(list(mine))) for part, mine in self._by_part(names)]
        return {mine[inner]: values for mine, columns in texts for inner, values in columns.items()}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        for part, mine in self._by_part([name for name in names if name in self.names]):
            if wrong := part.not_numbers(list(mine)):
                return mine[wrong[0]], wrong[1]
        return None

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        if not self.held:
            yield from super().blocks(columns)
            return
        which = None if columns is None else tuple(columns.tolist())
        if self._held is None or self._held[0] != which:
            self._held = which, np.concatenate(list(super().blocks(columns)))
        yield self._held[1]

    def uneven(self, seen: list[int]) -> DataError:
        return DataError(f"{self.title} changed while it was read: read files that nobody writes to")

    def lined_up(self, values: object, what: str) -> Any:
        """One value per row of the first view as it was given -> one per row of the table; None stays None."""
        if values is None or isinstance(values, str) or self._both is None:
            return values
        first, rows = next(iter(self._both.rows.items()))
        entries, lacks = np.asarray(values), int((rows < 0).sum())
        given = len(rows) - lacks + len(self._both.left_out.get(first, ()))
        if len(entries) != given:
            raise DataError(f"{what} must have one entry per row of view {first!r} ({given}), got {len(entries)}")
        if lacks:
            raise DataError(
                f"{what} are given for the rows of view {first!r}, which lacks {lacks} samples: use "
                'align="inner", or join the tables and use fit(X)'
            )
        return entries[rows]


def beside(parts: Mapping[str, Source], key: str | None, how: str, samples: Source | None = None) -> SideBySide:
    """One table, one view per part; key : a column with sample labels, in every part; how : see :func:`align_labels`;
    samples : what describes the samples of all parts, which then do not do so themselves."""
    title = " and ".join(part.title for part in parts.values()) if samples is None else samples.title
    both = aligned(parts, key, how)
    if samples is not None and both is not None:
        at = {label: row for row, label in enumerate(samples.samples or ())}
        described = np.array([at.get(label, -1) for label in both.labels], dtype=np.int64)
        both = Alignment(both.labels, {**both.rows, f"of {title}": described}, both.left_out)
        for part in parts.values():
            part.annotations = ()
        parts = {**parts, f"of {title}": samples}
    if both is None:
        _refuse_contradiction(list(parts.values()))
    source = SideBySide(title, parts, both, key)
    if both is None and source.files:
        note = "The files' rows are taken to be the same samples in the same order (name their labels with --id)."
        source.notes = [note]
    elif both is not None:
        source.notes = both.notes()
    return source


def modalities_beside(path: Path) -> SideBySide:
    """The modalities of an h5mu file, the samples that all of them have in common, and what the file says of these."""
    parts, samples = modalities(path)
    return beside(parts, None, "inner", samples)


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


def names_of_files(paths: Sequence[Path]) -> dict[str, Path]:
    """What views in files of their own are called: tests.csv holds the view tests."""
    names = [path.name.partition(".")[0] for path in paths]
    names = [path.name for path in paths] if repeated(names) else names
    if repeated(names):
        raise DataError(f"two files are called {repeated(names)!r}: rename one")
    return dict(zip(names, paths, strict=True))


def _refuse_contradiction(parts: Sequence[Source]) -> None:
    """Tables that are paired row by row must not label their rows differently."""
    counts = Counter(name for part in parts if part.names for name in part.all_names)
    held = {part: part.read([name for name in part.all_names if counts[name] > 1]) for part in parts}
    first: dict[str, Source] = {}
    for part, columns in held.items():
        for name, values in columns.items():
            other = first.setdefault(name, part)
            if other is part or not all(_labels_rows(name, x) for x in (held[other][name], values)):
                continue
            here, there = (one.read([name], [name])[name].tolist() for one in (other, part))
            if here == there:
                continue
            row = next(i for i, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1])
            how = "the same values in another order" if set(here) == set(there) else "other values"
            raise DataError(
                f"{other.title} and {part.title} both have a column {name!r}, with {how}: data row {row + 1} is "
                f"{here[row]!r} in the one and {there[row]!r} in the other. Match rows by it: --id {shlex.quote(name)}"
                "; or, if it does not label samples, take it out of one of the files"
            )


def _labels_rows(name: str, values: Column) -> bool:
    """Whether a column labels the rows: texts, if its name says so or no two are the same; whole numbers, if both."""
    unique = len(set(values.tolist())) == len(values)
    if values.dtype.kind in "biuf":
        return is_label(name) and unique and bool((np.mod(values, 1) == 0).all())
    return is_label(name) or (unique and not any(is_number(str(value)) for value in values[:20]))


# ---- values beside a table


# ---- tables as arrays


@dataclass(frozen=True)
class Table:
    """Values (n, p) with their views and, when the input had one, the sample index."""

    values: Array
    views: Views
    index: tuple[object, ...] | None = None
    named: bool = False  # whether the column names are the user's


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
