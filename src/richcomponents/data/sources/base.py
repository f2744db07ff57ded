"""What a source of rows promises, and the sources that need no file format."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray, Truth
from richcomponents.data.cells import Column, as_labels, declared_order, frame_columns, in_declared_order
from richcomponents.data.table import as_frame, as_matrix, column_names, listed, repeated, same_columns
from richcomponents.errors import DataError

_MOST_ROWS = 2**16


def block_rows(width: int) -> int:
    """How many rows to read at a time: 2^16, fewer when there are many columns (64 MB of float64)."""
    return int(np.clip(2**23 // max(width, 1), 256, _MOST_ROWS))


def aligned(blocks: Iterable[Array], size: int) -> Iterator[Array]:
    """The same rows in blocks of exactly `size`, but for the last."""
    held: list[Array] = []
    count = 0
    for block in blocks:
        at = 0
        if held:
            at = min(size - count, len(block))
            held.append(block[:at])
            count += at
            if count < size:
                continue
            yield np.concatenate(held)
            held, count = [], 0
        whole = at + (len(block) - at) // size * size
        for first in range(at, whole, size):
            yield block[first : first + size]
        if whole < len(block):
            held, count = [block[whole:]], len(block) - whole
    if held:
        yield np.concatenate(held)


class Source(ABC):
    """A table that is read in blocks of rows, in order, and need not fit in memory.

    names : column names, None when there are none; named : whether they are the user's; annotations : further columns, which
    describe the samples and are no data (obs of AnnData): only :meth:`read` reads them; views : {name: column names} where the
    table itself groups them (matrices of an .npz, modalities of an .h5mu, one file per view); groups : {name: column names},
    further columns that may be named together (layers and obsm of AnnData), for :meth:`including`; samples : the labels of the
    rows, where there are any, or key : the column that holds them; behind : columns that were put behind its own, which no
    pattern takes; more : how many of the last ones are not its own, which masks and slices do not count; n_rows : None when
    only reading tells; rereadable : whether it can be read more than once; held : whether its rows are in memory; shared :
    whether others could write to it between two readings; title : what messages call it; files : what it reads from disk, and
    no output may overwrite; notes : sentences about what was done to make it.
    """

    names: tuple[str, ...] | None = None
    named: bool = True
    annotations: tuple[str, ...] = ()
    views: Mapping[str, tuple[str, ...]] = {}
    groups: Mapping[str, tuple[str, ...]] = {}
    samples: tuple[object, ...] | None = None
    key: str | None = None
    behind: tuple[str, ...] = ()
    more: int = 0
    n_rows: int | None = None
    width: int
    rereadable: bool = True
    held: bool = False
    shared: bool = True
    title: str = "the table"
    files: Sequence[Path] = ()
    notes: Sequence[str] = ()

    @abstractmethod
    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        """Blocks of rows, as `as_matrix` makes them; only these columns, in this order (None: all)."""

    def take_after(self, source: Source) -> None:
        """Be like another source, but for what its rows are."""
        columns = ("names", "annotations", "views", "groups", "behind", "more", "width", "named")
        for name in (*columns, "rereadable", "held", "shared", "title", "files"):
            setattr(self, name, getattr(source, name))

    @property
    def all_names(self) -> tuple[str, ...]:
        """Of the columns (x0, x1, ... where they have none) and then the annotations."""
        return (*(self.names or (f"x{i}" for i in range(self.width))), *self.annotations)

    def check_column(self, name: str, role: str) -> None:
        """An error that says what the column was wanted for, and what there is."""
        if name not in self.all_names:
            close = get_close_matches(name, self.all_names, n=3)
            there = f"the columns are {listed(self.all_names)}"
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else there
            raise DataError(f"{self.title} has no column {name!r} ({role}); {hint}")

    def check_names(self) -> None:
        twice = repeated(self.names or ())
        if twice is not None:
            raise DataError(f"{self.title} names two columns {twice!r}: rename one")

    def places(self, names: Sequence[str]) -> IntArray:
        """Column numbers of names."""
        at = {name: i for i, name in enumerate(self.all_names)}
        return np.array([at[name] for name in names], dtype=np.int64)

    def chosen_names(self, columns: IntArray | None) -> list[str]:
        """Names of column numbers."""
        names = self.all_names
        return [names[c] for c in (range(self.width) if columns is None else columns)]

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        """These columns, whole: numbers, or texts where they are none; `written` : those that are wanted as texts, as they are
        written: 007 is not 7, and no digit is rounded away."""
        blocks = self.blocks(self.places(names)) if names else ()
        values = np.concatenate([np.empty((0, len(names))), *blocks])
        columns = {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(names)}
        return {name: as_labels(x.tolist()) if name in written else x for name, x in columns.items()}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        """Those of these columns that are not numbers, whole."""
        if not self.rereadable:
            return {}
        return {name: values for name, values in self.read(names).items() if values.dtype.kind not in "biuf"}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first of these columns that is known to hold no numbers before it is read, and what it holds."""
        return None

    def including(self, groups: Sequence[str]) -> Source:
        """The same source, with the columns of these groups behind its own."""
        return self

    def with_columns(self, values: Array, names: Sequence[str]) -> Source:
        """The same source, with further columns that are in memory, (n, k), behind its own."""
        return WithColumns(self, values, names)

    def kept(self, keep: Truth | None) -> Source:
        """Some of the rows, keep (n_rows,); None: those without gaps, as they come."""
        return Kept(self, keep)

    def groups_of(self, names: Collection[str]) -> tuple[str, ...]:
        """The groups that hold columns of these names, which are not among its own."""
        missing = {*names} - {*(self.names or ())}
        return tuple(group for group, columns in self.groups.items() if not missing.isdisjoint(columns))

    def annotation(self, name: object) -> str | None:
        """The annotation of that name, also as obs:name."""
        plain = str(name).removeprefix("obs:")
        return next((own for own in (str(name), plain) if own in self.annotations), None)

    def compared(self, blocks: Iterable[Array], columns: IntArray | None) -> Iterator[Array]:
        """The same blocks of these columns; a pass that does not see what the first one saw ends in an error that says so.

        Compared are the number of rows and a sum of every column: of the bits of its values times the numbers of their rows,
        exact whatever the chunks, the gaps and the order of magnitude of the values.
        """
        rows, sums = 0, np.zeros(2 * (self.width if columns is None else len(columns)), dtype=np.uint64)
        for block in blocks:
            numbers = np.arange(rows + 1, rows + 1 + len(block), dtype=np.uint64)
            sums = sums + np.einsum("i,ij->j", numbers, np.ascontiguousarray(block).view(np.uint32))
            rows += len(block)
            yield block
        seen: dict[object, tuple[int, Any]] = self.__dict__.setdefault("_seen", {})
        before, known = seen.setdefault(None if columns is None else tuple(columns.tolist()), (rows, sums))
        if before != rows:
            raise self._not_what_it_was(f"it had {before} rows and has {rows}")
        for entry in np.flatnonzero(known != sums)[:1]:
            raise self._not_what_it_was(f"column {self.chosen_names(columns)[entry // 2]!r} has other values")

    def _not_what_it_was(self, how: str) -> DataError:
        return DataError(f"{self.title} is not what was read before ({how}): read it again while nobody writes to it")


def numbered(name: str, width: int) -> tuple[str, ...]:
    """What the columns of an array are called."""
    return tuple(f"{name}_{i}" for i in range(width))


def obsm_names(key: str, columns: Iterable[object] | int, variables: Sequence[str]) -> tuple[str, ...]:
    """What the columns of an entry of obsm are called: those of a data frame as they are, behind its key where a variable has
    that name; so many of an array as in archives of arrays, key_0, key_1, ..."""
    if isinstance(columns, int):
        return numbered(key, columns)
    own = set(variables)
    return tuple(f"{key}:{name}" if str(name) in own else str(name) for name in columns)


class Annotated(Source):
    """A source with a data frame (obs of AnnData) that describes its samples; variables may have the name of a column of it."""

    _said: Mapping[str, object] = {}

    def describe(self, columns: Iterable[object]) -> None:
        """columns : of obs; they are called as they are, obs:name where a variable has that name."""
        own = set(self.names or ())
        self._said = {f"obs:{name}" if str(name) in own else str(name): name for name in columns}
        self.annotations = tuple(self._said)

    @abstractmethod
    def _obs(self, columns: list[Any]) -> Any:
        """These columns of obs, a data frame of pandas."""

    def _annotated(self, names: Sequence[str]) -> Any:
        frame = self._obs([self._said[name] for name in names])
        return frame.set_axis(list(names), axis=1).reset_index(drop=True)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        said = [name for name in names if name in self.annotations]
        columns = super().read([name for name in names if name not in said], written)
        columns |= frame_columns(self._annotated(said), written) if said else {}
        return {name: columns[name] for name in names}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        return Source.texts(self, [name for name in names if name in self.annotations])


class FileSource(Source):
    """A table in one file, or in one folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.title, self.files = path, path.name, [path]

    def mark(self) -> tuple[int, int]:
        """Size and time of change."""
        state = self.path.stat()
        return state.st_size, state.st_mtime_ns


class ArraySource(Source):
    """A matrix in memory."""

    shared, held = False, True

    def __init__(self, values: Array, names: Sequence[str] | None = None) -> None:
        self.values, self.names = values, None if names is None else tuple(names)
        self.n_rows, self.width = values.shape

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        if columns is None:
            yield self.values  # whole: most work for threads at once
            return
        size = block_rows(len(columns))
        for at in range(0, len(self.values), size):
            yield np.ascontiguousarray(self.values[at : at + size, columns])

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        return {}


class BlockSource(Source):
    """Blocks of rows from an iterable; an iterator can be read only once. Data frames must have the first one's columns."""

    def __init__(self, blocks: Iterable[object]) -> None:
        self.rereadable = not isinstance(blocks, Iterator)
        reading = iter(blocks)
        first = next(reading, None)
        if first is None:
            raise DataError("there are no rows")
        self._blocks = blocks if self.rereadable else chain([first], reading)
        self.names = column_names(first)
        self.width = as_matrix(first).shape[1] if self.names is None else len(self.names)

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        names: Sequence[str] | None = self.names
        for block in self._blocks:
            names = same_columns(names, block)
            if columns is not None and names is not None and len(getattr(block, "shape", ())) == 2:
                yield as_matrix(as_frame(block)[:, columns.tolist()].to_native())  # others need not be numbers
                continue
            rows = as_matrix(block)
            yield rows if columns is None else np.ascontiguousarray(rows[:, columns])


class _Through(Source):
    """What a source says of its columns, of which the rows are others."""

    source: Source

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        there = set(self.source.all_names)
        return self.source.not_numbers([name for name in names if name in there])


class WithColumns(_Through):
    """A source and further columns that are in memory, values (n, k); they come last."""

    def __init__(self, source: Source, values: Array, names: Sequence[str]) -> None:
        self.take_after(source)
        self.source, self.values, self.added = source, values, tuple(names)
        self.width, self.behind = source.width + values.shape[1], (*source.behind, *names)
        self.more = source.more + values.shape[1]
        self.names = None if source.names is None else (*source.names, *names)
        self.n_rows, self.samples, self.key, self.notes = source.n_rows, source.samples, source.key, source.notes

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        ours = {name: self.values[:, i] for i, name in enumerate(self.added) if name in names}
        columns = self.source.read([name for name in names if name not in ours], written)
        columns |= {name: as_labels(x.tolist()) if name in written else x for name, x in ours.items()}
        return {name: columns[name] for name in names}

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        entries = len(self.values)

        def uneven(seen: list[int]) -> DataError:
            there = "more" if seen[0] > entries else seen[0]
            return DataError(f"{self.added[0]} has {entries} entries, the table has {there} rows")

        return in_step(blocks_of([self.source, ArraySource(self.values)], columns), uneven)


def blocks_of(sources: Sequence[Source], columns: IntArray | None) -> list[tuple[Iterator[Array], IntArray]]:
    """Of sources side by side, those that hold some of the columns: their blocks, and which of the columns they are."""
    ends = np.cumsum([0, *(source.width for source in sources)])
    wanted = np.arange(ends[-1]) if columns is None else columns
    owner = np.searchsorted(ends, wanted, side="right") - 1
    parts: list[tuple[Iterator[Array], IntArray]] = []
    for i, source in enumerate(sources):
        places = np.flatnonzero(owner == i)
        inner = wanted[places] - ends[i]
        every = np.array_equal(inner, np.arange(source.width))  # is read faster
        parts += [(source.blocks(None if every else inner), places)] if len(places) else []
    return parts


def in_step(parts: Sequence[tuple[Iterator[Array], Any]], uneven: Callable[[list[int]], DataError]) -> Iterator[Array]:
    """Rows side by side; parts : blocks of rows, and the numbers of the columns they become.

    uneven : what is raised when one has more rows than another; given are those that were seen of each.
    """
    width, done = sum(len(at) for _, at in parts), 0
    size = block_rows(width)
    at_once = [
        slice(at[0], at[-1] + 1) if at[-1] - at[0] + 1 == len(at) else at for _, at in parts
    ]  # slices are faster
    for pieces in zip_longest(*(aligned(blocks, size) for blocks, _ in parts), fillvalue=np.empty((0, 0))):
        if len({len(piece) for piece in pieces}) > 1:
            raise uneven([done + len(piece) for piece in pieces])
        out = np.empty((len(pieces[0]), width))
        for piece, at in zip(pieces, at_once, strict=True):
            out[:, at] = piece
        yield out
        done += len(out)


class Kept(_Through):
    """The rows of a source that are wanted, keep (n,); None: those without gaps in the columns that are read, as they come.

    dropped : how many rows were left out when they were last read.
    """

    def __init__(self, source: Source, keep: Truth | None) -> None:
        self.take_after(source)
        self.source, self._keep, self.dropped = source, keep, 0
        if keep is not None:
            self.n_rows = int(keep.sum())
            self.samples = None if source.samples is None else tuple(np.array(source.samples, dtype=object)[keep])

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        start = self.dropped = 0
        for rows in self.source.blocks(columns):
            here = slice(start, start + len(rows))
            wanted = np.isfinite(rows).all(axis=1) if self._keep is None else self._keep[here]
            start, self.dropped = start + len(rows), self.dropped + int(len(rows) - wanted.sum())
            yield rows if wanted.all() else rows[wanted]

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns = self.source.read(names, written)
        return columns if self._keep is None else {name: values[self._keep] for name, values in columns.items()}


class JoinedSource(Source):
    """Several sources with the same columns, one below the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        first = parts[0]
        self.parts, self.names, self.width, self.views = list(parts), first.names, first.width, first.views
        self.annotations = tuple(name for name in first.annotations if all(name in p.annotations for p in parts))
        self.title = ", ".join(part.title for part in parts[:3]) + ", ..." * (len(parts) > 3)
        self.files = [file for part in parts for file in part.files]
        lengths = [part.n_rows for part in parts]
        self.n_rows = None if None in lengths else sum(n for n in lengths if n is not None)
        for part in self.parts:
            if part.names != self.names or part.width != self.width:
                raise DataError(f"the tables have different columns: {_brief(first)} and {_brief(part)}")

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        for part in self.parts:
            yield from part.blocks(columns)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        read = [part.read(names, written) for part in self.parts]
        mixed = {name for name in names if len({part[name].dtype.kind for part in read}) > 1}
        if mixed:  # numbers here, texts there: texts, as they are written
            return self.read(names, {*written, *mixed})
        return {name: _joined([part[name] for part in read]) for name in names}


def _joined(parts: Sequence[Column]) -> Column:
    """Columns one below the other, with the order that all of them declare."""
    orders = {declared_order(part) for part in parts}
    return in_declared_order(np.concatenate(parts), orders.pop() if len(orders) == 1 else None)


def _brief(source: Source) -> str:
    names = f" ({', '.join(source.names[:5])}, ...)" if source.names else ""
    return f"{source.width} columns{names}"


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of the names and hashes of its files."""
    if path.is_dir():
        inside = [(str(p.relative_to(path)), digest(p)) for p in sorted(path.rglob("*")) if p.is_file()]
        return hashlib.sha256(repr(inside).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def missing_extra(package: str, extra: str, what: str) -> DataError:
    return DataError(f"reading {what} needs {package}: pip install 'richcomponents[{extra}]'")


def is_dask(X: object) -> bool:
    """Whether X is a dask collection; dask is not imported for that."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


class DaskSource(Source):
    """A dask array of two dimensions, or a dask data frame (whose lengths are computed first)."""

    shared = False  # not compared: its rows are read elsewhere

    def __init__(self, collection: Any) -> None:
        self._added: list[Any] = []  # columns behind those of the collection
        kind = type(collection)  # a Delayed has every attribute one asks for, its type has not
        self._frame = collection if hasattr(kind, "to_dask_array") and hasattr(kind, "columns") else None
        if self._frame is not None:
            self.names = tuple(map(str, self._frame.columns))
            if len(set(self.names)) < len(self.names):
                raise DataError("the dask data frame has two columns of the same name: rename one")
            self._lengths = tuple(int(n) for n in self._frame.map_partitions(len).compute())
            self.width, self.n_rows = len(self.names), sum(self._lengths)
            return
        if not hasattr(kind, "rechunk") or collection.ndim != 2:
            raise DataError(
                f"a dask data frame, or a dask array of two dimensions (samples x columns), is needed, got {collection!r}"
            )
        if any(np.isnan(n) for n in collection.chunks[0]):
            collection = collection.compute_chunk_sizes()
        self._array = collection
        self.n_rows, self.width = (int(n) for n in collection.shape)

    def collection(self, columns: IntArray | None) -> Any:
        """A dask array of these columns."""
        wanted = np.arange(self.width) if columns is None else np.asarray(columns)
        ours = wanted >= self.width - len(self._added)
        inner = wanted[~ours]
        if self._frame is not None:
            rows = self._frame[[self._frame.columns[c] for c in inner]].to_dask_array(lengths=self._lengths)
        else:
            rows = self._array if columns is None and not ours.any() else self._array[:, inner]
        if not ours.any():
            return rows
        import dask.array as da

        more = [self._added[c - self.width][:, None] for c in wanted[ours]]
        together = da.hstack([rows, *more]) if len(inner) else da.hstack(more)
        return together[:, np.argsort(np.argsort(ours, kind="stable"), kind="stable")]

    def pieces(self, lengths: Sequence[int], columns: IntArray | None) -> list[Any]:
        """One delayed array per piece of so many rows."""
        return list(self.collection(columns).rechunk({0: tuple(lengths), 1: -1}).to_delayed()[:, 0])

    def with_columns(self, values: Array, names: Sequence[str]) -> Source:
        import dask.array as da

        joined = copy(self)
        joined._added = [*self._added, *(da.from_array(column, chunks=2**20) for column in values.T)]
        joined.width, joined.more = self.width + values.shape[1], self.more + values.shape[1]
        joined.names = None if self.names is None else (*self.names, *names)
        joined.behind = (*self.behind, *names)
        return joined

    def kept(self, keep: Truth | None) -> Source:
        if keep is None:
            return Kept(self, keep)
        some = copy(self)
        some._added, some.n_rows = [column[keep].compute_chunk_sizes() for column in self._added], int(keep.sum())
        if self._frame is None:
            some._array = self._array[keep].compute_chunk_sizes()
            return some
        from dask import array, dataframe

        mask = dataframe.from_dask_array(array.from_array(keep, chunks=(self._lengths,)), index=self._frame.index)
        some._frame = self._frame.map_partitions(_rows_of, mask, meta=self._frame._meta, align_dataframes=False)
        some._lengths = tuple(int(part.sum()) for part in np.split(keep, np.cumsum(self._lengths)[:-1]))
        return some

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        own = [] if self._frame is None else [name for name in names if name in map(str, self._frame.columns)]
        columns = super().read([name for name in names if name not in own], written)
        if own and self._frame is not None:
            at = {str(name): name for name in self._frame.columns}
            columns |= frame_columns(self._frame[[at[name] for name in own]].compute(), written)
        return {name: columns[name] for name in names}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        kinds = {} if self._frame is None else {str(name): kind for name, kind in self._frame.dtypes.items()}
        return super().texts([name for name in names if getattr(kinds.get(name), "kind", "f") not in "biuf"])

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        rows = self.collection(columns)
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(0, self.n_rows or 0, size):
            yield as_matrix(rows[at : at + size].compute())


def _rows_of(part: Any, mask: Any) -> Any:
    """Some rows of a piece of a data frame of pandas; dask itself loses columns when it reorders such steps."""
    return part[mask.to_numpy()]


def is_path(X: object) -> bool:
    """A path, a list of paths, or a dict of such."""
    if isinstance(X, Mapping):
        return len(X) > 0 and all(map(is_path, X.values()))
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(item, (str, os.PathLike)) for item in X)
    return isinstance(X, (str, os.PathLike))
