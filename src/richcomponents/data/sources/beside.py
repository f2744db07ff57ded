"""Tables of the same samples side by side: one file per view, matched by sample labels or row by row; modalities of an h5mu."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.align import align_labels
from richcomponents.data.cells import Column, is_number
from richcomponents.data.sources.arrays import modalities
from richcomponents.data.sources.base import Source, in_step
from richcomponents.data.table import is_label, repeated
from richcomponents.errors import CapacityError, DataError


class SideBySide(Source):
    """Columns of several sources; rows come in the order of the first.

    Blocks are read from all parts in step. A part whose rows stand in another order is the exception: what is needed of it is
    held in memory.

    parts : {name: source}; orders : {name: which of its rows, -1 for none}, all in order by default; key : a column that all of
    them have and that keeps its name; labels : what it says of every row. Where two parts use a name, all columns get the
    part's name in front. Each part is a view, but for those without columns of their own, which only describe the samples.
    """

    def __init__(
        self,
        title: str,
        parts: Mapping[str, Source],
        orders: Mapping[str, IntArray] | None = None,
        key: str | None = None,
        labels: Column | None = None,
    ) -> None:
        self.title, self._parts, self._orders = title, dict(parts), orders or {}
        self._labels, self.key = {} if key is None or labels is None else {key: labels}, key
        self.files = list(dict.fromkeys(file for part in parts.values() for file in part.files))
        own = {name: [c for c in part.all_names if c != key] for name, part in parts.items()}
        clash = repeated(column for columns in own.values() for column in columns) is not None
        first = next(iter(parts))
        self._places = {} if key is None else {key: (first, key)}
        self.annotations = () if key is None else (key,)
        self.names, self.views = (), {}
        for name, part in parts.items():
            front = f"{name}:" if clash and part.width else ""
            self._places |= {f"{front}{column}": (name, column) for column in own[name]}
            grouped = {c for columns in part.views.values() for c in columns}
            self.names += tuple(f"{front}{c}" for c in own[name] if c not in part.annotations)
            self.annotations += tuple(f"{front}{c}" for c in own[name] if c in part.annotations)
            if part.width:
                data = [c for c in own[name] if c not in part.annotations and (c in grouped or not grouped)]
                self.views[name] = tuple(f"{front}{c}" for c in data)
        twice = repeated(self.all_names)
        if twice is not None:
            raise DataError(f"two columns of {title} are called {twice!r}: rename one")
        self.width, self.n_rows = len(self.names), len(next(iter(self._orders.values()), ())) or length(parts[first])

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns: dict[str, Column] = {name: values for name, values in self._labels.items() if name in names}
        for part, source in self._parts.items():
            mine = [name for name in names if self._places[name][0] == part and name not in self._labels]
            own = {name: self._places[name][1] for name in mine}
            held = source.read(list(own.values()), {own[name] for name in own if name in written}) if own else {}
            columns |= {name: held[inner] for name, inner in own.items()}
            if part in self._orders:
                columns |= {name: _in_order(columns[name], self._orders[part]) for name in own}
        if any(len(values) != self.n_rows for values in columns.values()):
            raise self._changed()
        return {name: columns[name] for name in names}

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        wanted = [self._places[name] for name in self.chosen_names(columns)]
        parts = []
        for part, source in self._parts.items():
            mine = [i for i, (owner, _) in enumerate(wanted) if owner == part]
            inner = source.places([wanted[i][1] for i in mine])
            parts += [(self._ordered(source, inner, self._orders.get(part)), mine)] if mine else []
        return in_step(parts, lambda seen: self._changed())

    def _ordered(self, source: Source, columns: IntArray, order: IntArray | None) -> Iterator[Array]:
        """These rows of a part, in this order."""
        blocks = source.blocks(columns)
        if order is None:
            yield from blocks
            return
        if (np.diff(order) <= 0).any() or (order < 0).any():
            yield _in_order(self._held(source, blocks), order)
            return
        start = 0
        for block in blocks:
            first, last = np.searchsorted(order, [start, start + len(block)])
            rows = order[first:last] - start
            yield block if len(rows) == len(block) else block[rows]
            start += len(block)

    def _held(self, source: Source, blocks: Iterator[Array]) -> Array:
        """All rows of a part, which stand in another order than those of the first one."""
        held: list[Array] = []
        for block in blocks:
            held.append(block)
            if sum(one.nbytes for one in held) > MEMORY_LIMIT // 2:
                raise CapacityError(
                    f"the samples of {source.title} stand in another order than those of {next(iter(self._parts))}, and its "
                    "columns do not fit in memory: store the samples of all tables in one order, or use fewer columns (views=)"
                )
        values = np.concatenate(held)
        if source.n_rows not in (None, len(values)):
            raise self._changed()
        return values

    def _changed(self) -> DataError:
        return DataError(f"{self.title} changed while it was read: read files that nobody writes to")


def _in_order(values: Any, rows: IntArray) -> Any:
    """Rows of a column or a table by number; -1 is none: nan, or None among texts."""
    taken = values[rows]
    if (rows < 0).any():
        taken = taken.astype(np.float64) if taken.dtype.kind in "biuf" else taken.astype(object)
        taken[rows < 0] = np.nan if taken.dtype.kind == "f" else None
    return taken


def length(source: Source) -> int:
    """The number of rows, which a text table only knows when it was read."""
    if source.n_rows is not None:
        return source.n_rows
    first = source.all_names[:1]
    return len(source.read(first, first)[first[0]])


def names_of_files(paths: Sequence[Path]) -> dict[str, Path]:
    """What views in files of their own are called: tests.csv holds the view tests."""
    names = [path.name.partition(".")[0] for path in paths]
    names = [path.name for path in paths] if repeated(names) else names
    if repeated(names):
        raise DataError(f"two files are called {repeated(names)!r}: rename one")
    return dict(zip(names, paths, strict=True))


def beside(parts: Mapping[str, Source], key: str | None, how: str = "inner") -> Source:
    """One table, one view per part.

    key : a column with sample labels, in every part: rows are matched by it; how : see `align_labels`.
    Without a key the parts must have the same rows in the same order; labels that say otherwise are refused.
    """
    title = " and ".join(part.title for part in parts.values())
    if key is None:
        lengths = {part.title: length(part) for part in parts.values()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise DataError(
                f"the files have different numbers of rows ({counts}): name the column of sample labels with --id (id=)"
            )
        _refuse_contradiction(list(parts.values()))
        source = SideBySide(title, parts)
        source.notes = [
            "The files' rows are taken to be the same samples in the same order (name their labels with --id)."
        ]
        return source
    found = align_labels({name: _labels(part, key) for name, part in parts.items()}, how)
    source = SideBySide(title, parts, found.rows, key, np.array(found.labels, dtype=object))
    source.notes = found.notes()
    return source


def modalities_beside(path: Path) -> Source:
    """The modalities of an h5mu file, the samples that all of them have in common, and what the file says of these."""
    parts, samples = modalities(path)
    rest = f"of {path.name}"
    labels = {rest: samples.samples or (), **{name: part.samples or () for name, part in parts.items()}}
    found = align_labels(labels, "inner")  # in the file's own order
    for part in parts.values():
        part.annotations = ()  # the file says it once
    source = SideBySide(path.name, {**parts, rest: samples}, found.rows)
    source.notes = replace(found, left_out={name: found.left_out[name] for name in parts}).notes()
    return source


def _labels(part: Source, key: str) -> list[Any]:
    part.check_column(key, "the sample labels, --id")
    labels: list[Any] = part.read([key], [key])[key].tolist()
    return labels


def _refuse_contradiction(parts: Sequence[Source]) -> None:
    """Files that are paired row by row must not label their rows differently."""
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
