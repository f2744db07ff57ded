"""Parquet files: row groups in order, only the needed columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.sources.base import Source, block_rows, file_mark
from richcomponents.data.views import as_matrix
from richcomponents.errors import DataError

__all__ = ["ParquetSource"]

_BUFFER = 2**20  # bytes of a column read ahead: a row group may be larger than memory


class ParquetSource(Source):
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import ParquetFile

        self.path, self.title = path, path.name
        try:
            with ParquetFile(path) as file:
                self.names = tuple(map(str, file.schema_arrow.names))
                self.n_rows = int(file.metadata.num_rows)
                self._kinds = dict(zip(self.names, file.schema_arrow.types, strict=True))
        except Exception as error:  # damaged metadata can fail in many ways
            raise DataError(f"cannot read {path.name}: {error}") from error
        twice = next((name for name, count in Counter(self.names).items() if count > 1), None)
        if twice is not None:
            raise DataError(f"{path.name} names two columns {twice!r}: rename one")

    @property
    def width(self) -> int:
        assert self.names is not None
        return len(self.names)

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        import pyarrow.parquet

        assert self.names is not None
        names = [self.names[c] for c in (range(self.width) if columns is None else columns)]
        for name in names:
            self._check(name)
        options = {"buffer_size": _BUFFER, "pre_buffer": False, "page_checksum_verification": True}
        try:
            with pyarrow.parquet.ParquetFile(self.path, **options) as file:
                for batch in file.iter_batches(block_rows(len(names)), columns=names):
                    yield _matrix(batch, names)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {self.path.name}: {error}") from error

    def _check(self, name: str) -> None:
        from pyarrow import types

        kind = self._kinds[name]
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(
                f"column {name!r} of {self.path.name} is not numeric ({kind}): leave it out (columns=, or views= by name), "
                "or encode it as numbers first"
            )

    def mark(self) -> str:
        return file_mark(self.path)


def _matrix(batch: Any, names: list[str]) -> Array:
    """(n, p) float64; missing values become NaN and are refused, with the column's name, where rows are summed."""
    out = np.empty((batch.num_rows, len(names)))
    for j, name in enumerate(names):
        values = batch.column(name).to_numpy(zero_copy_only=False)
        out[:, j] = values if values.dtype.kind == "f" else as_matrix(values, column=True)[:, 0]
    return out
