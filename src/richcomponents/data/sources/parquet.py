"""Parquet files: row groups in order, only the needed columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import Column, frame_columns
from richcomponents.data.sources.base import FileSource, block_rows
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError

__all__ = ["ParquetSource"]

_BUFFER = 2**20  # bytes of a column read ahead: a row group may be larger than memory


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
            self._check(name)
        for batch in self._batches(names):
            yield _matrix(batch, names)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        import pyarrow

        batches = list(self._batches(names))
        table = pyarrow.Table.from_batches(
            batches, None if batches else pyarrow.schema([(n, self._kinds[n]) for n in names])
        )
        if table.num_rows != self.n_rows or self.mark() != self._mark:
            raise DataError(
                f"{self.title} has other rows than it says ({self.n_rows}): it is damaged, or was written to"
            )
        return frame_columns(table, written)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        options = {"buffer_size": _BUFFER, "pre_buffer": False, "page_checksum_verification": True}
        try:
            with ParquetFile(self.path, **options) as file:
                yield from file.iter_batches(block_rows(len(names)), columns=names)
        except Exception as error:  # damaged pages can fail in many ways
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    def _check(self, name: str) -> None:
        from pyarrow import types

        kind = self._kinds[name]
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(
                f"column {name!r} of {self.path.name} is not numeric ({kind}): leave it out (columns=, or views= by name), "
                "or encode it as numbers first"
            )


def _matrix(batch: Any, names: list[str]) -> Array:
    """(n, p) float64; missing values become NaN and are refused, with the column's name, where rows are summed."""
    out = np.empty((batch.num_rows, len(names)))
    for j, name in enumerate(names):
        values = batch.column(name).to_numpy(zero_copy_only=False)
        out[:, j] = values if values.dtype.kind == "f" else as_matrix(values, column=True)[:, 0]
    return out
