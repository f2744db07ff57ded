"""Text tables, .csv, .tsv, .tab and .txt (also gzipped): the one reader of delimited text.

The file is cut into pieces that end where a row ends, the quotes of a piece are checked, and pyarrow splits it into cells; of
these only the columns asked for are made numbers. The rules, for whoever reads:

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import (
    WHOLE,
    Column,
    declared_orders,
    first_word,
    frame_columns,
    is_missing,
    is_number,
    numbers,
    remedy,
    words,
    written_otherwise,
)
from richcomponents.data.sources.base import FileSource, block_rows
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError

_BYTES = 2**24
_LONGEST = 2**27  # bytes of a row: a quote that is never closed must not take the whole file into memory
_QUOTE, _LF, _CR = b'"\n\r'
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class _Piece:
    """Whole rows. line : the number of its first line in the file; starts : where rows begin; empty : where empty lines do."""

    text: bytes
    line: int
    starts: IntArray
    empty: IntArray
    quotes: IntArray

    def line_at(self, place: int) -> int:
        return self.line + self.text.count(b"\n", 0, place)

    def after(self, row: int) -> _Piece:
        """Without the first rows; quotes of a whole row come in pairs."""
        at = int(self.starts[row]) if row < len(self.starts) else len(self.text)
        empty, quotes = (places[places >= at] - at for places in (self.empty, self.quotes))
        return _Piece(self.text[at:], self.line_at(at), self.starts[row:] - at, empty, quotes)


class DelimitedSource(FileSource):
    """One text table; header : whether the first line holds column names (None: unless all of it are numbers, see above)."""

    def __init__(self, path: Path, header: bool | None = None) -> None:
        super().__init__(path)
        self._mark = self.mark()
        piece = next((piece for piece in self._pieces(2**18) if len(piece.starts)), None)
        if piece is None:
            raise DataError(f"{path.name} is empty")
        if re.fullmatch(rb'"?sep=.?"?', self._line(piece, 0)):
            raise self._damaged(1, "it tells Excel what separates cells, and names no columns: remove that line")
        self._separator = self._find_separator(piece)
        first = self._cells(piece, 0)
        if header is None and all(is_missing(cell) or is_number(cell) for cell in first):
            shown = ", ".join(first[:5]) + ", ..." * (len(first) > 5)
            raise DataError(
                f"the first line of {path.name} holds only numbers or gaps ({shown}): column names, or the first row? "
                "Say which with rc.open_source(path, header=True) for names, header=False for a row (--header or --no-header "
                "on the command line), or put column names there"
            )
        self._header, self.width = header is not False, len(first)
        if self._header:
            self.names = tuple(first)
            self.check_names()

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        chosen = range(self.width) if columns is None else columns.tolist()
        for piece, cells in self._cells_of(chosen):
            out = np.empty((len(piece.starts), len(chosen)))
            for j, column in enumerate(cells):
                values = numbers(column)
                if values is None:
                    raise self._text_in(piece, chosen[j], column)
                out[:, j] = values
            yield out

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        import pyarrow

        pieces = [cells for _, cells in self._cells_of(self.places(names).tolist())]
        columns: dict[str, Column] = {}
        for i, name in enumerate(names):
            cells = pyarrow.chunked_array([piece[i] for piece in pieces], pyarrow.binary())
            values = None if name in written else numbers(cells)
            try:
                columns[name] = words(cells) if values is None else values
            except UnicodeDecodeError as error:
                raise DataError(
                    f"column {name!r} of {self.title} is not text in UTF-8: save it as CSV in UTF-8"
                ) from error
        return columns

    def _cells_of(self, columns: Sequence[int]) -> Iterator[tuple[_Piece, list[Any]]]:
        """Pieces of the table and, of each, these columns as pyarrow arrays of bytes."""
        import pyarrow as arrow
        from pyarrow import csv as reader

        labels = [str(j) for j in range(self.width)]
        wanted = [labels[j] for j in columns]
        bad: list[Any] = []

        def refuse(row: Any) -> str:
            bad.append(row)
            return "error"

        first = True
        for piece in self._pieces(_BYTES):
            if first and len(piece.starts):
                piece, first = piece.after(int(self._header)), False
            if not len(piece.starts):
                continue
            self._check_quotes(piece)
            # pyarrow drops a byte order mark wherever it begins to read; only that of the file is none of its text
            text = _MARK + piece.text if piece.text.startswith(_MARK) else piece.text
            try:
                table = reader.read_csv(
                    arrow.BufferReader(text),
                    reader.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=labels),
                    reader.ParseOptions(delimiter=self._separator, newlines_in_values=True, invalid_row_handler=refuse),
                    reader.ConvertOptions(
                        column_types=dict.fromkeys(wanted, arrow.binary()), include_columns=wanted or labels[:1]
                    ),
                )
            except arrow.ArrowInvalid as error:
                raise self._ragged(piece, bad, error) from error
            if table.num_rows != len(piece.starts):
                raise self._damaged(piece.line, f"{len(piece.starts)} rows begin here, {table.num_rows} were read")
            yield piece, [table.column(label).combine_chunks() for label in wanted]
        if self.mark() != self._mark:
            raise DataError(f"{self.path.name} changed while it was read: read a file that nobody writes to")

    # ---- bytes into whole rows

    def _pieces(self, size: int) -> Iterator[_Piece]:
        """The file, cut where rows end; size : bytes that are read at a time."""
        held, line = b"", 1
        try:
            with gzip.open(self.path) if self.path.suffix.lower() == ".gz" else self.path.open("rb") as file:
                while part := file.read(size):
                    held = (held + part).removeprefix(_MARK) if line == 1 else held + part
                    quotes, ends = _row_ends(held)
                    if len(ends) and (cut := int(ends[-1]) + 1):
                        yield self._piece(held[:cut], line, quotes[quotes < cut], ends)
                        line += held.count(b"\n", 0, cut)
                        held = held[cut:]
                    elif len(held) > _LONGEST:
                        at = int(quotes[-1]) if len(quotes) % 2 else 0
                        what = "a quote is opened and never closed" if len(quotes) % 2 else "the line is too long"
                        raise self._damaged(line + held.count(b"\n", 0, at), what)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path.name} is damaged, or not what its name says: {error}") from error
        if held.strip(b"\r\n"):
            quotes, ends = _row_ends(held)
            if len(quotes) % 2:
                raise self._damaged(line + held.count(b"\n", 0, int(quotes[-1])), "a quote is opened and never closed")
            yield self._piece(held, line, quotes, np.append(ends, len(held)))

    def _piece(self, text: bytes, line: int, quotes: IntArray, ends: IntArray) -> _Piece:
        raw = np.frombuffer(text, dtype=np.uint8)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        if text.count(b"\r") != text.count(b"\r\n"):
            lone = np.flatnonzero((raw == _CR) & (np.append(raw[1:], 0) != _LF))
            lone = lone[np.searchsorted(quotes, lone) % 2 == 0]
            if len(lone):
                at = line + text.count(b"\n", 0, int(lone[0]))
                raise self._damaged(at, "a carriage return alone ends it: save the file with line ends LF or CRLF")
        if b"\r" in text:
            lengths = lengths - ((lengths > 0) & (raw[np.maximum(ends - 1, 0)] == _CR))
        return _Piece(text, line, starts[lengths > 0], starts[lengths == 0], quotes)

    # ---- rules

    def _find_separator(self, piece: _Piece) -> str:
        first, second = (re.sub(rb'"[^"]*"', b"", self._line(piece, row)) for row in (0, 1))
        signs = [sign for sign in (b",", b";", b"\t") if sign in first]
        if len(signs) > 1:
            signs = [sign for sign in signs if first.count(sign) == second.count(sign)]
            if len(signs) != 1:
                raise DataError(
                    f"cannot tell what separates the cells of {self.path.name}: its first line holds more than one of comma, "
                    "semicolon and tab; write names that hold one in quotes"
                )
        return signs[0].decode() if signs else ","

    def _line(self, piece: _Piece, row: int) -> bytes:
        bounds = [*piece.starts[row : row + 2].tolist(), len(piece.text)]
        return piece.text[bounds[0] : bounds[1]].rstrip(b"\r\n") if row < len(piece.starts) else b""

    def _cells(self, piece: _Piece, row: int) -> list[str]:
        """The cells of a row of names, blanks around them left out."""
        line = piece.line_at(int(piece.starts[row]))
        try:
            text = self._line(piece, row).decode("utf-8")
            cells = next(csv.reader([text], delimiter=self._separator, skipinitialspace=True, strict=True))
        except UnicodeDecodeError as error:
            raise self._not_utf8(line) from error
        except (csv.Error, StopIteration) as error:
            raise self._damaged(line, f"it cannot be read: {error}") from error
        return [cell.strip() for cell in cells]

    def _check_quotes(self, piece: _Piece) -> None:
        if self.width == 1 and len(piece.empty):
            at = piece.line_at(int(piece.empty[0]))
            what = "empty; in a table of one column that may be a missing value: write NA, or remove it"
            raise self._damaged(at, what)
        if not len(piece.quotes):
            return
        raw = np.frombuffer(piece.text, dtype=np.uint8)
        opens, closes = piece.quotes[0::2], piece.quotes[1::2]
        twice = opens[1:] == closes[:-1] + 1  # a quote inside a quoted cell
        low, high = opens[np.append(True, ~twice)], closes[np.append(~twice, True)]
        sign = ord(self._separator)
        before = np.where(low > 0, raw[np.maximum(low - 1, 0)], _LF)
        behind = np.where(high + 1 < len(raw), raw[np.minimum(high + 1, len(raw) - 1)], _LF)
        stray = ((before != sign) & (before != _LF)) | ~np.isin(behind, (sign, _LF, _CR))
        if stray.any():
            what = 'a quote inside a cell (5" for 5 in?): put the cell in quotes and write its own quotes twice'
            raise self._damaged(piece.line_at(int(low[np.argmax(stray)])), what)
        lines = np.searchsorted(np.flatnonzero(raw == _LF), np.stack([low, high]))
        for cell in np.flatnonzero(lines[0] != lines[1]):
            inside = piece.text[low[cell] : high[cell]]
            ends = inside.count(b"\n")
            if inside.count(self._separator.encode()) == (self.width - 1) * ends:
                raise self._damaged(
                    piece.line_at(int(low[cell])),
                    f"a quote is opened that is closed {ends} lines below, with whole rows between: remove the quotes, or "
                    "the line ends inside that cell",
                )

    # ---- what is wrong, and where

    def _damaged(self, line: int, what: str) -> DataError:
        return DataError(f"{self.path.name}, line {line}: {what}")

    def _not_utf8(self, line: int) -> DataError:
        return DataError(f"{self.path.name}, line {line} is not text in UTF-8: save it as CSV in UTF-8")

    def _ragged(self, piece: _Piece, bad: list[Any], error: Exception) -> DataError:
        if not bad or bad[0].number is None or not 0 < bad[0].number <= len(piece.starts):
            return DataError(f"{self.path.name} cannot be read: {error}")
        line = piece.line_at(int(piece.starts[bad[0].number - 1]))
        return self._damaged(line, f"{bad[0].actual_columns} cells, the first line has {self.width}")

    def _text_in(self, piece: _Piece, column: int, cells: Any) -> DataError:
        row = first_word(cells)
        cell = cells[row].as_py()
        line = piece.line_at(int(piece.starts[row]))
        try:
            shown = cell.decode("utf-8")
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


def _row_ends(text: bytes) -> tuple[IntArray, IntArray]:
    """Where the quotes and those line feeds are that stand outside of quotes."""
    raw = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(raw == _LF)
    if b'"' not in text:
        return np.zeros(0, dtype=np.int64), ends
    quotes = np.flatnonzero(raw == _QUOTE)
    return quotes, ends[np.searchsorted(quotes, ends) % 2 == 0]


class ParquetSource(FileSource):
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import ParquetFile

        super().__init__(path)
        self._mark = self.mark()
        try:
            with ParquetFile(path) as file:
                self.names = tuple(map(str, file.schema_arrow.names))
                self.n_rows = int(file.metadata.num_rows)
                self._kinds = dict(zip(self.names, file.schema_arrow.types, strict=True))
        except Exception as error:  # damaged metadata can fail in many ways
            raise DataError(f"cannot read {path.name}: {error}") from error
        self.width = len(self.names)
        self.check_names()

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        names = self.chosen_names(columns)
        for name in names:
            if not self._numeric(name):
                raise DataError(
                    f"column {name!r} of {self.path.name} is not numeric ({self._kinds[name]}): leave it out (columns=, or "
                    "views= by name), or encode it as numbers first"
                )
        for batch in self._batches(names):
            yield _matrix(batch, names)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        return frame_columns(self._whole(names), written)

    def _whole(self, names: Sequence[str]) -> Any:
        """A table of pyarrow with these columns."""
        import pyarrow

        batches = list(self._batches(names))
        schema = batches[0].schema if batches else pyarrow.schema([(name, self._kinds[name]) for name in names])
        table = pyarrow.Table.from_batches(batches, schema)
        if table.num_rows != self.n_rows or self.mark() != self._mark:
            raise DataError(
                f"{self.title} has other rows than it says ({self.n_rows}): it is damaged, or was written to"
            )
        return table

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        return super().texts([name for name in names if not self._numeric(name)])

    def orders(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        said = [name for name in names if getattr(self._kinds.get(name), "ordered", False)]
        return declared_orders(self._whole(said)) if said else {}

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        # bytes of a column read ahead: a row group may be larger than memory
        options = {"buffer_size": 2**20, "pre_buffer": False, "page_checksum_verification": True}
        try:
            with ParquetFile(self.path, **options) as file:
                yield from file.iter_batches(block_rows(len(names)), columns=names)
        except Exception as error:  # damaged pages can fail in many ways
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    def _numeric(self, name: str) -> bool:
        from pyarrow import types

        kind = self._kinds[name]
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _matrix(batch: Any, names: list[str]) -> Array:
    """(n, p) float64; missing values become NaN and are refused, with the column's name, where rows are summed."""
    out = np.empty((batch.num_rows, len(names)))
    for j, name in enumerate(names):
        values = batch.column(name).to_numpy(zero_copy_only=False)
        out[:, j] = values if values.dtype.kind == "f" else as_matrix(values, column=True)[:, 0]
    return out
