"""What a source of rows promises, and the sources that need no file format."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.views import as_matrix, column_names, same_columns
from richcomponents.errors import DataError

__all__ = [
    "ArraySource",
    "BlockSource",
    "ChangedError",
    "Fingerprint",
    "JoinedSource",
    "Source",
    "WithColumn",
    "block_rows",
    "file_mark",
    "missing_extra",
]

_MOST_ROWS, _MOST_VALUES = 2**16, 2**23
_PIECE = 2**14  # rows that are hashed together


def block_rows(width: int) -> int:
    """How many rows to read at a time: 2^16, fewer when there are many columns (64 MB of float64)."""
    return int(np.clip(_MOST_VALUES // max(width, 1), 256, _MOST_ROWS))


class ChangedError(DataError):
    """Rows are not those that were read before."""


class Fingerprint:
    """What the rows of a source were when they were first read: hashes of pieces of them, and how many there are.

    Whoever reads them again, in the next pass or behind a checkpoint, must find the same: equal size and time of change of a
    file do not tell that nobody wrote to it. Values are hashed, so that no chunking changes it, and compared before they are
    handed on. 64 bits of SHA-256, which runs faster than most files are unpacked.
    """

    def __init__(self) -> None:
        self.n_rows: int | None = None
        self._ends: dict[int, int] = {}  # row number -> hash of the rows up to there, from the last whole piece on
        self._at: tuple[int, int] | None = None  # as _ends, of the last block that was handed on
        self._mark: str | None = None

    def compared(self, blocks: Iterable[Array], source: Source) -> Iterator[Array]:
        """The same blocks; an error names the source when they are not the rows that were read before."""
        if self._mark is None:
            self._mark = source.mark()
        inside = [end for end in self._ends if end % _PIECE]  # where a checkpoint was written, or the table ends
        row, found = 0, hashlib.sha256()
        for block in blocks:
            at = 0
            while at < len(block):
                stop = min((row // _PIECE + 1) * _PIECE, *(end for end in inside if end > row), row + len(block) - at)
                found.update(np.ascontiguousarray(block[at : at + stop - row]).data)
                at, row = at + stop - row, stop
                if row % _PIECE == 0 or row in inside:
                    self._compare(row, found, source)
                if row % _PIECE == 0:
                    found = hashlib.sha256()
            self._at = row, _short(found)
            yield block
        if self.n_rows not in (None, row):
            raise _changed(source, f"it had {self.n_rows} rows and has {row}")
        if source.mark() != self._mark:
            raise _changed(source, "its size or its time of change is another one")
        self._compare(row, found, source)
        self.n_rows = row

    def _compare(self, row: int, found: Any, source: Source) -> None:
        if self._ends.setdefault(row, _short(found)) != _short(found):
            raise _changed(source, f"rows {(row - 1) // _PIECE * _PIECE} to {row - 1} are not what they were")

    def saved(self) -> IntArray:
        """(k, 2): row numbers and hashes, up to the last block that was handed on."""
        last = [] if self._at is None or self._at[0] in self._ends else [self._at]
        return np.array(sorted([*self._ends.items(), *last]), dtype=np.int64).reshape(-1, 2)

    def restored(self, saved: IntArray, n_rows: int | None) -> bool:
        """Whether these can be rows of the same source; from here on rows are compared with them, too."""
        found = dict(saved.tolist())
        if any(found.get(row, value) != value for row, value in self._ends.items()):
            return False
        self._ends |= found
        self.n_rows = n_rows if self.n_rows is None else self.n_rows
        return True


def _short(found: Any) -> int:
    return int.from_bytes(found.digest()[:8], "little", signed=True)


def _changed(source: Source, how: str) -> ChangedError:
    return ChangedError(f"{source.title} is not what was read before ({how}): read it again while nobody writes to it")


class Source(ABC):
    """A table that is read in blocks of rows, in order, and need not fit in memory.

    names : column names, None when there are none; n_rows : None when only reading tells; again : whether it can be read
    more than once; shared : whether others could write to it between two readings; title : what messages call it.
    """

    names: tuple[str, ...] | None = None
    n_rows: int | None = None
    again: bool = True
    shared: bool = True
    title: str = "the table"

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
    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        """Blocks of rows; only these columns, in this order (None: all)."""

    @abstractmethod
    def mark(self) -> str:
        """What tells this source from others without reading its rows; those are compared as they are read."""

    def fingerprint(self, columns: IntArray | None) -> Fingerprint:
        """Of these columns, as they were first read."""
        known: dict[object, Fingerprint] = self.__dict__.setdefault("_fingerprints", {})
        return known.setdefault(None if columns is None else tuple(columns.tolist()), Fingerprint())


class ArraySource(Source):
    """A table in memory."""

    shared = False

    def __init__(self, values: Array, names: Sequence[str] | None = None) -> None:
        self.values, self.names, self.n_rows = values, None if names is None else tuple(names), len(values)

    @property
    def width(self) -> int:
        return int(self.values.shape[1])

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        if columns is None:
            yield self.values  # whole: most work for threads at once
            return
        size = block_rows(len(columns))
        for at in range(0, len(self.values), size):
            yield np.ascontiguousarray(self.values[at : at + size, columns])

    def mark(self) -> str:
        return f"array {self.values.shape}"


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

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        names: Sequence[str] | None = self.names
        for block in self._blocks:
            names = same_columns(names, block)
            rows = as_matrix(block)
            yield rows if columns is None else np.ascontiguousarray(rows[:, columns])

    def mark(self) -> str:
        return f"blocks of {self.width} columns"


class WithColumn(Source):
    """A source and one more column that is in memory; it is read always, and comes last."""

    def __init__(self, source: Source, values: Array, name: str) -> None:
        self.source, self.values = source, values
        self.names = None if source.names is None else (*source.names, name)
        self.n_rows, self.again, self.shared, self.title = source.n_rows, source.again, source.shared, source.title

    @property
    def width(self) -> int:
        return self.source.width + 1

    @property
    def files(self) -> list[Path]:
        return self.source.files

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        inner, start = None if columns is None else columns[:-1], 0
        for block in self.source.blocks(inner):
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
        self.title = ", ".join(part.title for part in parts[:3]) + ", ..." * (len(parts) > 3)
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

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        for part in self.parts:
            yield from part.blocks(columns)

    def mark(self) -> str:
        return " + ".join(part.mark() for part in self.parts)


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
