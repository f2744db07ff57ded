"""What a source of rows promises, and the sources that need no file format."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import DataError
from richcomponents.views import as_matrix, column_names, same_columns

__all__ = [
    "ArraySource",
    "BlockSource",
    "JoinedSource",
    "Source",
    "WithColumn",
    "block_rows",
    "file_mark",
    "missing_extra",
]

_MOST_ROWS, _MOST_VALUES = 2**16, 2**23


def block_rows(width: int) -> int:
    """How many rows to read at a time: 2^16, fewer when there are many columns (64 MB of float64)."""
    return int(np.clip(_MOST_VALUES // max(width, 1), 256, _MOST_ROWS))


class Source(ABC):
    """A table that is read in blocks of rows, in order, and need not fit in memory.

    names : column names, None when there are none; n_rows : None when only reading tells; again : whether it can be read
    more than once.
    """

    names: tuple[str, ...] | None = None
    n_rows: int | None = None
    again: bool = True

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns."""

    @property
    def files(self) -> list[Path]:
        """What it reads from disk, and no output may overwrite."""
        path: Path | None = getattr(self, "path", None)
        return [] if path is None else [path]

    @abstractmethod
    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        """Blocks of the rows from number `start` on; only these columns, in this order (None: all)."""

    @abstractmethod
    def mark(self) -> str:
        """What tells this source from others, for checkpoints: equal marks, equal rows.

        An iterator cannot be looked into: its mark tells the first row, and that the others are the same is the user's word.
        """


class ArraySource(Source):
    """A table in memory."""

    def __init__(self, values: Array, names: Sequence[str] | None = None) -> None:
        self.values, self.names, self.n_rows = values, None if names is None else tuple(names), len(values)

    @property
    def width(self) -> int:
        return int(self.values.shape[1])

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        if columns is None and start == 0:
            yield self.values  # whole: most work for threads at once
            return
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(start, len(self.values), size):
            part = self.values[at : at + size]
            yield part if columns is None else np.ascontiguousarray(part[:, columns])

    def mark(self) -> str:
        return f"array {self.values.shape} {_digest([self.values])}"


class BlockSource(Source):
    """Blocks of rows from an iterable; an iterator can be read only once. Data frames must have the first one's columns."""

    def __init__(self, blocks: Iterable[object]) -> None:
        self.again = not isinstance(blocks, Iterator)
        reading = iter(blocks)
        first = next(reading, None)
        if first is None:
            raise DataError("there are no rows")
        self._blocks = blocks if self.again else chain([first], reading)
        self._head, self.names = as_matrix(first)[:1].copy(), column_names(first)

    @property
    def width(self) -> int:
        return int(self._head.shape[1])

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        at = 0
        names: Sequence[str] | None = self.names
        for block in self._blocks:
            names = same_columns(names, block)
            rows = as_matrix(block)
            at += len(rows)
            if at <= start:
                continue
            rows = rows[max(start - (at - len(rows)), 0) :]
            yield rows if columns is None else np.ascontiguousarray(rows[:, columns])

    def mark(self) -> str:
        return f"blocks of {self.width} columns {_digest(self._blocks if self.again else [self._head])}"


class WithColumn(Source):
    """A source and one more column that is in memory; it is read always, and comes last."""

    def __init__(self, source: Source, values: Array, name: str) -> None:
        self.source, self.values = source, values
        self.names = None if source.names is None else (*source.names, name)
        self.n_rows, self.again = source.n_rows, source.again

    @property
    def width(self) -> int:
        return self.source.width + 1

    @property
    def files(self) -> list[Path]:
        return self.source.files

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        inner = None if columns is None else columns[:-1]
        for block in self.source.blocks(start, inner):
            rows = as_matrix(block)
            if start + len(rows) > len(self.values):
                raise self._uneven("more")
            yield np.column_stack([rows, self.values[start : start + len(rows)]])
            start += len(rows)
        if start < len(self.values):
            raise self._uneven(str(start))

    def _uneven(self, rows: str) -> DataError:
        return DataError(f"sample_weight has {len(self.values)} entries, the table has {rows} rows")

    def mark(self) -> str:
        return f"{self.source.mark()} and {hashlib.sha256(self.values.tobytes()).hexdigest()}"


class JoinedSource(Source):
    """Several sources with the same columns, one below the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts, self.names = list(parts), parts[0].names
        lengths = [part.n_rows for part in parts]
        self.n_rows = None if None in lengths else sum(n for n in lengths if n is not None)
        for part in self.parts:
            if part.names != self.names or part.width != parts[0].width:
                raise DataError(f"the tables have different columns: {_brief(parts[0])} and {_brief(part)}")

    @property
    def width(self) -> int:
        return self.parts[0].width

    @property
    def files(self) -> list[Path]:
        return [file for part in self.parts for file in part.files]

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        for part in self.parts:
            if part.n_rows is not None and part.n_rows <= start:
                start -= part.n_rows
                continue
            if part.n_rows is not None:
                yield from part.blocks(start, columns)
                start = 0
                continue
            skip = start  # the part's length is not known: count what comes
            for block in part.blocks(0, columns):
                rows = as_matrix(block)
                used = min(skip, len(rows))
                skip -= used
                if used < len(rows):
                    yield rows[used:]
            start = skip

    def mark(self) -> str:
        return " + ".join(part.mark() for part in self.parts)


def _digest(blocks: Iterable[object]) -> str:
    """Of all values, row by row, whatever the blocks."""
    found = hashlib.sha256()
    for block in blocks:
        rows = as_matrix(block)
        size = block_rows(rows.shape[1])
        for at in range(0, len(rows), size):
            found.update(np.ascontiguousarray(rows[at : at + size]).tobytes())
    return found.hexdigest()


def _brief(source: Source) -> str:
    names = f" ({', '.join(source.names[:5])}, ...)" if source.names else ""
    return f"{source.width} columns{names}"


def file_mark(path: Path) -> str:
    """Name, size and time of change of a file, or of the files of a directory."""
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file())
        sizes = [(str(p.relative_to(path)), p.stat().st_size, p.stat().st_mtime_ns) for p in inside]
        return f"{path.name} {hashlib.sha256(repr(sizes).encode()).hexdigest()}"
    found = path.stat()
    return f"{path.name} {found.st_size} {found.st_mtime_ns}"


def missing_extra(package: str, extra: str, what: str) -> DataError:
    return DataError(f"reading {what} needs {package}: pip install 'richcomponents[{extra}]'")
