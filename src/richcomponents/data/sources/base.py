"""What a source of rows promises, and the sources that need no file format."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.data.cells import Column, as_labels, declared_order, in_declared_order
from richcomponents.data.table import as_frame, as_matrix, check_sparse, column_names, listed, repeated, same_columns
from richcomponents.errors import CapacityError, DataError

_MOST_ROWS = 2**16


def block_rows(width: int) -> int:
    """How many rows to read at a time: 2^16, fewer when there are many columns (64 MB of float64)."""
    return int(np.clip(2**23 // max(width, 1), 256, _MOST_ROWS))


def aligned(blocks: Iterable[Array], size: int) -> Iterator[Array]:
    """The same rows in blocks of exactly `size`, but for the last."""
    held, count = list[Array](), 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count >= size:
            rows, whole = held[0] if len(held) == 1 else np.concatenate(held), count // size * size
            yield from (rows[at : at + size] for at in range(0, whole, size))
            held, count = [rows[whole:]] if whole < count else [], count - whole
    if count:
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
        """Be like another source, but for what is changed then."""
        for name in Source.__annotations__:
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

    @property
    def index(self) -> tuple[object, ...] | None:
        """What stands beside the rows: their labels, or numbers that only count them."""
        return self.samples

    def labels(self, key: str) -> tuple[object, ...]:
        """The sample labels in a column."""
        self.check_column(key, "the sample labels, --id")
        return tuple(self.read([key], [key])[key].tolist())

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        """Those of these columns that are not numbers, whole."""
        if not names or not self.rereadable:
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

    def kept(self, rows: IntArray | None) -> Source:
        """Some of the rows by their numbers, -1 for none; None: those without gaps, as they come."""
        return Kept(self, rows)

    def annotation(self, name: object) -> str | None:
        """The annotation of that name, also as obs:name; None where a column has it."""
        if not isinstance(name, str) or name in (self.names or ()):
            return None
        return next((own for own in (name, name.removeprefix("obs:")) if own in self.annotations), None)

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


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of the libraries behind a file, which come in all classes, in one that names the file."""
    try:
        yield
    except (DataError, CapacityError):
        raise
    except Exception as error:
        raise DataError(f"cannot read {path.name}: {str(error)[:300] or type(error).__name__}") from error


class FileSource(Source):
    """A table in one file, or in one folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.title, self.files = path, path.name, [path]

    def mark(self) -> tuple[int, int]:
        """Size and time of change."""
        state = self.path.stat()
        return state.st_size, state.st_mtime_ns


class ArraySource(Source):
    """A matrix in memory; sparse ones, and others that are not float64, are made so a few rows at a time."""

    shared = False

    def __init__(self, values: Any, names: Sequence[str] | None = None) -> None:
        self.values = check_sparse(values).tocsr() if sparse.issparse(values) else values
        self.names, (self.n_rows, self.width) = None if names is None else tuple(names), values.shape
        self.held = type(values) is np.ndarray and values.dtype == np.float64

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        if columns is None and self.held:
            yield np.ascontiguousarray(self.values)  # whole: most work for threads at once
            return
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(0, self.n_rows or 0, size):
            rows = self.values[at : at + size]
            rows = rows if columns is None else rows[:, columns]
            yield (
                np.ascontiguousarray(rows)
                if self.held
                else as_matrix(rows.toarray() if sparse.issparse(rows) else rows)
            )


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


class Beside(Source):
    """Columns of several sources, read in step; inner : the numbers of the columns among those of all of them (None: all)."""

    inner: IntArray | None = None

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts, self.width = list(parts), sum(part.width for part in parts)

    @abstractmethod
    def uneven(self, seen: list[int]) -> DataError:
        """What is raised when one has more rows than another; seen : how many rows of each were."""

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        inner = np.arange(sum(part.width for part in self.parts)) if self.inner is None else self.inner
        wanted = inner if columns is None else inner[columns]
        owner = np.repeat(np.arange(len(self.parts)), [part.width for part in self.parts])[wanted]
        start, done, read = 0, 0, list[tuple[Iterator[Array], Any]]()
        for i, part in enumerate(self.parts):
            at = np.flatnonzero(owner == i)
            own = wanted[at] - start
            every = np.array_equal(own, np.arange(part.width))  # is read faster
            start += part.width
            if len(at):
                run = at[-1] - at[0] + 1 == len(at)  # slices are faster
                blocks = aligned(part.blocks(None if every else own), block_rows(len(wanted)))
                read.append((blocks, slice(at[0], at[-1] + 1) if run else at))
        for pieces in zip_longest(*(blocks for blocks, _ in read), fillvalue=np.empty((0, 0))):
            if len({len(piece) for piece in pieces}) > 1:
                raise self.uneven([done + len(piece) for piece in pieces])
            out = np.empty((len(pieces[0]), len(wanted)))
            for piece, (_, at) in zip(pieces, read, strict=True):
                out[:, at] = piece
            yield out
            done += len(out)


class WithColumns(Beside):
    """A source and further columns that are in memory, values (n, k); they come last."""

    def __init__(self, source: Source, values: Array, names: Sequence[str]) -> None:
        self.take_after(source)
        super().__init__([source, ArraySource(values, names)])
        self.added = tuple(names)
        self.behind, self.more = (*source.behind, *names), source.more + values.shape[1]
        self.names = None if source.names is None else (*source.names, *names)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns = self.parts[0].read([name for name in names if name not in self.added], written)
        columns |= self.parts[1].read([name for name in names if name in self.added], written)
        return {name: columns[name] for name in names}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self.parts[0].not_numbers([name for name in names if name not in self.added])

    def uneven(self, seen: list[int]) -> DataError:
        there, entries = seen[0], self.parts[1].n_rows or 0
        return DataError(
            f"{self.added[0]} has {entries} entries, the table has {'more' if there > entries else there} rows"
        )


class Kept(Source):
    """Rows of a source by their numbers, rows (n,), -1 for none; None: those without gaps in the columns that are read, as they
    come. Rows in another order than that of the source are held in memory.

    dropped : how many rows were left out when they were last read.
    """

    def __init__(self, source: Source, rows: IntArray | None) -> None:
        self.take_after(source)
        self.source, self._rows, self.dropped = source, rows, 0
        self.n_rows, self.samples = None if rows is None else len(rows), None
        if rows is not None and source.samples is not None:
            self.samples = tuple(in_order(np.array(source.samples, dtype=object), rows))

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        rows, start, blocks = self._rows, 0, self.source.blocks(columns)
        self.dropped = 0
        if rows is not None and ((np.diff(rows) <= 0).any() or (rows < 0).any()):
            yield in_order(self._held(blocks), rows)
            return
        for block in blocks:
            if rows is None:
                wanted = np.flatnonzero(np.isfinite(block).all(axis=1))
            else:
                wanted = rows[slice(*np.searchsorted(rows, [start, start + len(block)]))] - start
            start, self.dropped = start + len(block), self.dropped + len(block) - len(wanted)
            yield block if len(wanted) == len(block) else block[wanted]

    def _held(self, blocks: Iterator[Array]) -> Array:
        held, size = list[Array](), 0
        for block in blocks:
            held.append(block)
            size += block.nbytes
            if size > MEMORY_LIMIT // 2:
                raise CapacityError(
                    f"the samples of {self.title} stand in another order than those of the first table, and its columns do not "
                    "fit in memory: store the samples of all tables in one order, or use fewer columns (views=)"
                )
        return np.concatenate(held)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns = self.source.read(names, written)
        return columns if self._rows is None else {name: in_order(x, self._rows) for name, x in columns.items()}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self.source.not_numbers(names)


def in_order(values: Any, rows: IntArray) -> Any:
    """Rows of a column or a table by number; -1 is none: nan, or None among texts."""
    taken = values[rows]
    if (rows < 0).any():
        taken = taken.astype(np.float64) if taken.dtype.kind in "biuf" else taken.astype(object)
        taken[rows < 0] = np.nan if taken.dtype.kind == "f" else None
    return taken


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


def is_path(X: object) -> bool:
    """A path, a list of paths, or a dict of such."""
    if isinstance(X, Mapping):
        return len(X) > 0 and all(map(is_path, X.values()))
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(item, (str, os.PathLike)) for item in X)
    return isinstance(X, (str, os.PathLike))
