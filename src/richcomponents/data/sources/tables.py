"""Text tables, .csv, .tsv, .tab and .txt (also gzipped): the one reader of delimited text.

The quotes of all rows are checked once, and pyarrow reads the file a block at a time; only the columns asked for are made
numbers. The rules, for whoever reads:

- UTF-8, with or without a byte order mark; rows end in LF or CRLF; empty lines are skipped.
- Commas, semicolons or tabs separate cells: the one that stands in the first line.
- The first line names the columns. Where all of it are numbers or gaps it could as well be a row, and somebody has to say.
- A quote opens a cell or closes it; inside a quoted cell it is written twice. Anything else is refused: readers that forgive a
  stray quote take all rows up to the next one for a single cell.
- Every row has as many cells as the first line.
- A cell that is empty or says NA (see `columns.MISSING`) is missing.

Parquet files: row groups in order, only the needed columns.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import (
    WHOLE,
    Column,
    as_labels,
    first_word,
    frame_columns,
    holds_numbers,
    is_missing,
    is_number,
    numbers,
    remedy,
    written_otherwise,
)
from richcomponents.data.sources.base import FileSource, block_rows, reading
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError

_BYTES = 2**24
_LONGEST = 2**27  # bytes of a row: a quote that is never closed must not take the whole file into memory
_MARK = b"\xef\xbb\xbf"
_QUOTED = re.compile(rb'"[^"]*"')


class DelimitedSource(FileSource):
    """One text table; header : whether the first line holds column names (None: unless all of it are numbers, see above)."""

    def __init__(self, path: Path, header: bool | None = None) -> None:
        super().__init__(path)
        self._mark, self._longest, self._count = self.mark(), -1, 0
        rows = ((line, text) for line, text in self._rows() if text)
        self._line, text = next(rows, (0, b""))
        if not text:
            raise DataError(f"{path.name} is empty")
        if b"\0" in text:
            raise self._not_utf8(self._line)
        if re.fullmatch(rb'"?sep=.?"?', text):
            raise self._damaged(1, "it tells Excel what separates cells, and names no columns: remove that line")
        self._separator = self._find_separator(text, rows)
        first = self._names_in(text)
        if header is None and all(is_missing(cell) or is_number(cell) for cell in first):
            shown = ", ".join(first[:5]) + ", ..." * (len(first) > 5)
            raise DataError(
                f"the first line of {path.name} holds only numbers or gaps ({shown}): column names, or the first row? "
                "Say which with rc.open_source(path, header=True) for names, header=False for a row (--header or --no-header "
                "on the command line), or put column names there"
            )
        self._header, self.width = header is not False, len(first)
        self._skipped = self._line - 1 + (len(text.splitlines()) if self._header else 0)  # as pyarrow counts lines
        if self._header:
            self.names = tuple(first)
            self.check_names()

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        chosen, done = range(self.width) if columns is None else columns.tolist(), 0
        for cells in self._batches(chosen):
            out = np.empty((len(cells[0]), len(chosen)))
            for j, column in enumerate(cells):
                values = numbers(column)
                if values is None:
                    row = first_word(column)
                    raise self._text_in(done + row, chosen[j], column[row].as_py())
                out[:, j] = values
            done += len(out)
            yield out

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        import pyarrow

        batches = list(self._batches(self.places(names).tolist()))
        columns: dict[str, Column] = {}
        for i, name in enumerate(names):
            cells = pyarrow.chunked_array([batch[i] for batch in batches], pyarrow.binary())
            values = None if name in written else numbers(cells)
            try:
                texts = (cell.decode().strip() for cell in cells.to_pylist())
                columns[name] = as_labels(texts) if values is None else values
            except UnicodeDecodeError as error:
                raise DataError(
                    f"column {name!r} of {self.title} is not text in UTF-8: save it as CSV in UTF-8"
                ) from error
        return columns

    def _batches(self, columns: Sequence[int]) -> Iterator[list[Any]]:
        """These columns as pyarrow arrays of bytes, some rows at a time."""
        import pyarrow as arrow
        from pyarrow import csv as reader

        labels = [str(j) for j in range(self.width)]
        wanted = [labels[j] for j in columns]
        rows, done = self._check(), 0
        with self._bytes() as file:
            try:
                batches = () if not rows else reader.open_csv(
                    file,
                    reader.ReadOptions(
                        use_threads=False, block_size=max(_BYTES, self._longest + 2), column_names=labels,
                        skip_rows=self._skipped,
                    ),
                    reader.ParseOptions(delimiter=self._separator, newlines_in_values=True),
                    reader.ConvertOptions(
                        column_types=dict.fromkeys(wanted, arrow.binary()), include_columns=wanted or labels[:1]
                    ),
                )  # fmt: skip
                for batch in batches:
                    done += batch.num_rows
                    if batch.num_rows:
                        yield [batch.column(label) for label in wanted]
            except arrow.ArrowInvalid as error:
                raise self._ragged(error) from error
        if self.mark() != self._mark:
            raise DataError(f"{self.path.name} changed while it was read: read a file that nobody writes to")
        if done != rows:
            raise DataError(f"{self.path.name} is damaged: {rows} rows begin in it, {done} were read")

    # ---- rows as bytes, and what is wrong with them

    def _bytes(self) -> Any:
        with self.path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b" or self.path.suffix.lower() == ".gz"
        return gzip.open(self.path) if packed else self.path.open("rb")

    def _rows(self) -> Iterator[tuple[int, bytes]]:
        """Every row, without its line end, and the number of its first line; an empty line is an empty row."""
        held, odd, size, number, quoted = list[bytes](), 0, 0, 0, 0
        try:
            with self._bytes() as file:
                while line := file.readline(_LONGEST):
                    number += 1
                    held.append(line.removeprefix(_MARK) if number == 1 else line)
                    if count := line.count(b'"'):
                        odd, quoted = (odd + count) % 2, number
                    size += len(line)
                    if size >= _LONGEST:
                        what = "a quote is opened and never closed" if odd else "the line is too long"
                        raise self._damaged(quoted if odd else number, what)
                    if not odd:
                        yield self._row(b"".join(held), number + 1 - len(held))
                        held, size = [], 0
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path.name} is damaged, or not what its name says: {error}") from error
        if odd:
            raise self._damaged(quoted, "a quote is opened and never closed")

    def _row(self, text: bytes, line: int) -> tuple[int, bytes]:
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        if b"\r" in text and b"\r" in _QUOTED.sub(b"", text):
            raise self._damaged(line, "a carriage return alone ends it: save the file with line ends LF or CRLF")
        return line, text

    def _check(self) -> int:
        """How many rows there are, all of whose quotes stand around whole cells; each row is looked at once."""
        if self._longest >= 0:
            return self._count
        sign = self._separator.encode()
        cell = re.compile(rb'(?<![^%b])"[^"]*(?:""[^"]*)*"(?![^%b])' % (sign, sign))
        longest = count = 0
        for line, text in self._rows():
            if not text and self.width == 1 and count:
                what = "empty; in a table of one column that may be a missing value: write NA, or remove it"
                raise self._damaged(line, what)
            longest, count = max(longest, len(text)), count + bool(text)
            if b'"' in text and (line > self._line or not self._header):
                rest = cell.sub(lambda found: b"\n" * found[0].count(b"\n"), text)
                if b'"' in rest:
                    what = 'a quote inside a cell (5" for 5 in?): put the cell in quotes and write its own quotes twice'
                    raise self._damaged(line + rest.count(b"\n", 0, rest.index(b'"')), what)
                for found in cell.finditer(text) if b"\n" in text else ():
                    ends = found[0].count(b"\n")
                    if ends and found[0].count(sign) == (self.width - 1) * ends:
                        raise self._damaged(
                            line + text.count(b"\n", 0, found.start()),
                            f"a quote is opened that is closed {ends} lines below, with whole rows between: remove the quotes, "
                            "or the line ends inside that cell",
                        )
        self._longest, self._count = longest, count - self._header
        return self._count

    def _find_separator(self, first: bytes, others: Iterator[tuple[int, bytes]]) -> str:
        first = _QUOTED.sub(b"", first)
        signs = [sign for sign in (b",", b";", b"\t") if sign in first]
        if len(signs) > 1:
            second = _QUOTED.sub(b"", next(others, (0, b""))[1])
            signs = [sign for sign in signs if first.count(sign) == second.count(sign)]
            if len(signs) != 1:
                raise DataError(
                    f"cannot tell what separates the cells of {self.path.name}: its first line holds more than one of comma, "
                    "semicolon and tab; write names that hold one in quotes"
                )
        return signs[0].decode() if signs else ","

    def _names_in(self, text: bytes) -> list[str]:
        """The cells of the first row, blanks around them left out."""
        try:
            cells = next(csv.reader([text.decode()], delimiter=self._separator, skipinitialspace=True, strict=True))
        except UnicodeDecodeError as error:
            raise self._not_utf8(self._line) from error
        except (csv.Error, StopIteration) as error:
            raise self._damaged(self._line, f"it cannot be read: {error}") from error
        return [cell.strip() for cell in cells]

    def _damaged(self, line: int, what: str) -> DataError:
        return DataError(f"{self.path.name}, line {line}: {what}")

    def _not_utf8(self, line: int) -> DataError:
        with self._bytes() as file:
            head = file.read(2)
        wide = b"\0" in head or head in (b"\xff\xfe", b"\xfe\xff")
        seems = f" (it is {'UTF-16' if wide else 'a zip archive or a workbook'})" if wide or head == b"PK" else ""
        return DataError(f"{self.path.name}, line {line} is not text in UTF-8{seems}: save it as CSV in UTF-8")

    def _ragged(self, error: Exception) -> DataError:
        for line, text in self._rows():
            cells = _QUOTED.sub(b"", text).count(self._separator.encode()) + 1
            if text and cells != self.width:
                return self._damaged(line, f"{cells} cells, the first line has {self.width}")
        return DataError(f"{self.path.name} cannot be read: {error}")

    def _text_in(self, row: int, column: int, cell: bytes) -> DataError:
        """row : among those of numbers."""
        lines = (line for line, text in self._rows() if text)
        line = next(islice(lines, row + self._header, None), 0)
        try:
            shown = cell.decode()
        except UnicodeDecodeError:
            return self._not_utf8(line)
        name = repr(self.names[column]) if self.names is not None else column
        if WHOLE.fullmatch(cell.strip()):
            return DataError(
                f"column {name} of {self.path.name} holds {shown.strip()[:40]} in line {line}, an integer beyond 2**53, which "
                "floating point cannot represent: subtract an offset first, or leave the column out"
            )
        leave = ". Leave text columns out (columns=, or views= by name)"
        what = f", and {remedy(shown)}" if written_otherwise(shown) else leave
        return DataError(
            f"{self.path.name} is not a table of numbers in these columns: column {name} holds {shown[:40]!r} in line "
            f"{line}{what}"
        )


class ParquetSource(FileSource):
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._mark = self.mark()
        with self._opened() as file:
            self.names, self.n_rows = tuple(map(str, file.schema_arrow.names)), int(file.metadata.num_rows)
            self.width = len(self.names)
            self.check_names()
            self._kinds = dict(nw.from_native(file.schema_arrow.empty_table(), eager_only=True).schema)

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        names = self.chosen_names(columns)
        for name in names:
            if not holds_numbers(self._kinds[name]):
                raise DataError(
                    f"column {name!r} of {self.path.name} is not numeric ({self._kinds[name]}): leave it out (columns=, or "
                    "views= by name), or encode it as numbers first"
                )
        with self._opened() as file:
            for batch in file.iter_batches(block_rows(len(names)), columns=names):
                yield as_matrix(batch.select(names))

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        with self._opened() as file:
            table = file.read(columns=list(names))
        if table.num_rows != self.n_rows or self.mark() != self._mark:
            raise DataError(
                f"{self.title} has other rows than it says ({self.n_rows}): it is damaged, or was written to"
            )
        return frame_columns(table, written)

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        return super().texts([name for name in names if not holds_numbers(self._kinds[name])])

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        # bytes of a column read ahead: a row group may be larger than memory
        options = {"buffer_size": 2**20, "pre_buffer": False, "page_checksum_verification": True}
        with reading(self.path), ParquetFile(self.path, **options) as file:
            yield file
