"""Text tables, .csv and .tsv (also gzipped): read in pieces, by pyarrow where it is installed, otherwise by numpy."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.errors import DataError
from richcomponents.moments.sources.base import Source, block_rows, file_mark

__all__ = ["DelimitedSource", "is_number"]

_BYTES = 2**24
_MISSING = frozenset(("", "#N/A", ".", "N/A", "NA", "NULL", "NaN", "None", "n/a", "na", "nan", "none", "null"))  # cells


class DelimitedSource(Source):
    """One table of numbers; the first line holds names unless all of it are numbers."""

    def __init__(self, path: Path, separator: str) -> None:
        self.path, self.separator = path, separator
        first = next(self._lines(), None)
        if not first:
            raise DataError(f"{path.name} is empty, or begins with an empty line")
        gaps = [cell in _MISSING and not is_number(cell) for cell in first]
        if any(gaps) and all(gap or is_number(cell) for cell, gap in zip(first, gaps, strict=True)):
            raise DataError(
                f"the first line of {path.name} holds numbers and gaps ({separator.join(first[:5])}, ...): put column names "
                "there; and if that is a row, impute it or leave it out"
            )
        self._header = not all(map(is_number, first))
        self.names = tuple(first) if self._header else None
        self._fields = len(first)

    def _open(self) -> IO[str]:
        try:
            if self.path.suffix == ".gz":
                return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
            return open(self.path, encoding="utf-8-sig", newline="")
        except OSError as error:
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    @property
    def width(self) -> int:
        return self._fields

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        chosen = np.arange(self.width) if columns is None else columns
        try:
            import pyarrow.csv  # noqa: F401
        except ImportError:
            reading = self._by_numpy(chosen)
        else:
            reading = self._by_arrow(chosen)
        for block in reading:
            if len(block) <= start:
                start -= len(block)
                continue
            yield block[start:]
            start = 0

    def _by_arrow(self, columns: IntArray) -> Iterator[Any]:
        """All wanted columns are declared float64: types guessed from the first piece may not hold for the next."""
        import pyarrow as arrow
        from pyarrow import csv as reader

        labels = [f"c{j}" for j in range(self.width)]  # names may repeat or be empty
        wanted = [labels[j] for j in columns]
        try:
            pieces = reader.open_csv(
                self.path,
                read_options=reader.ReadOptions(block_size=_BYTES, column_names=labels, skip_rows=int(self._header)),
                parse_options=reader.ParseOptions(delimiter=self.separator),
                convert_options=reader.ConvertOptions(
                    column_types=dict.fromkeys(wanted, arrow.float64()),
                    include_columns=wanted,
                    null_values=sorted(_MISSING),
                ),
            )
            for batch in pieces:
                yield np.column_stack([batch.column(j).to_numpy(zero_copy_only=False) for j in range(len(wanted))])
        except arrow.ArrowInvalid as error:
            raise self._unreadable(error) from error
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    def _by_numpy(self, columns: IntArray) -> Iterator[Any]:
        chosen, size, number = columns.tolist(), block_rows(len(columns)), 0
        lines = islice(filter(None, self._lines()), int(self._header), None)
        while rows := list(islice(lines, size)):
            for row in rows:
                number += 1
                if len(row) != self.width:
                    raise self._unreadable(f"data row {number} has {len(row)} cells, the first line {self.width}")
            try:
                yield np.array([_numbers([row[c] for c in chosen]) for row in rows]).reshape(len(rows), len(chosen))
            except ValueError as error:
                raise self._unreadable(error) from error

    def _lines(self) -> Iterator[list[str]]:
        """The cells of each line."""
        try:
            with self._open() as file:
                yield from csv.reader(file, delimiter=self.separator)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path.name} is not text in UTF-8 (byte {error.start}): save it as CSV in UTF-8"
            ) from error
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    def _unreadable(self, error: Exception | str) -> DataError:
        return DataError(
            f"{self.path.name} is not a table of numbers in these columns ({error}): leave text columns out (columns=, or "
            "views= by name), and drop or impute missing values first"
        )

    def mark(self) -> str:
        return file_mark(self.path)


def is_number(text: str) -> bool:
    """Whether a cell is a number; Python's own 1_000 is none."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _numbers(cells: list[str]) -> list[float]:
    """The numbers in a row, NaN where they are missing."""
    if "_" in "".join(cells):
        raise ValueError(f"could not convert string to float: {next(cell for cell in cells if '_' in cell)!r}")
    try:
        return list(map(float, cells))
    except ValueError:
        return [float("nan") if cell in _MISSING else float(cell) for cell in cells]
