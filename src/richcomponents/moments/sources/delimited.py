"""Text tables, .csv and .tsv (also gzipped): read in pieces, by pyarrow where it is installed, otherwise by numpy."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.errors import DataError
from richcomponents.moments.sources.base import Source, block_rows, file_mark

__all__ = ["DelimitedSource"]

_BYTES = 2**24


class DelimitedSource(Source):
    """One table of numbers; the first line holds names unless all of it are numbers."""

    def __init__(self, path: Path, separator: str) -> None:
        self.path, self.separator = path, separator
        with self._open() as file:
            first = next(csv.reader(file, delimiter=separator), None)
        if not first:
            raise DataError(f"{path.name} is empty")
        self._header = not all(map(_is_number, first))
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
                    column_types=dict.fromkeys(wanted, arrow.float64()), include_columns=wanted
                ),
            )
            for batch in pieces:
                yield np.column_stack([batch.column(j).to_numpy(zero_copy_only=False) for j in range(len(wanted))])
        except arrow.ArrowInvalid as error:
            raise self._unreadable(error) from error

    def _by_numpy(self, columns: IntArray) -> Iterator[Any]:
        size = block_rows(len(columns))
        with self._open() as file:
            next(islice(file, int(self._header), int(self._header)), None)
            while True:
                lines = list(islice(file, size))
                if not lines:
                    return
                try:
                    yield np.loadtxt(
                        lines,
                        delimiter=self.separator,
                        usecols=columns.tolist(),
                        ndmin=2,
                        comments=None,
                        quotechar='"',
                    )
                except ValueError as error:
                    raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(
            f"{self.path.name} is not a table of numbers in these columns ({error}): leave text columns out (columns=, or "
            "views= by name), and drop or impute missing values first"
        )

    def mark(self) -> str:
        return file_mark(self.path)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
