"""Single arrays, .npy."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.archive import npy_header
from richcomponents.data.sources.base import Source, block_rows, file_mark
from richcomponents.errors import DataError

__all__ = ["NpySource"]


class NpySource(Source):
    """A two-dimensional .npy file.

    It is read, not mapped: a mapped file that somebody cuts off takes the process with it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.title = path, path.name
        try:
            with path.open("rb") as file:
                shape, fortran, self._dtype = npy_header(file)
                self._offset = file.tell()
                held = file.seek(0, os.SEEK_END) - self._offset
        except ValueError as error:
            if zipfile.is_zipfile(path):
                raise DataError(
                    f"{path.name} is an archive of arrays, not one: give it as .npz to the command line, or load it"
                ) from error
            raise DataError(f"cannot read {path.name}: {error}") from error
        if len(shape) != 2:
            raise DataError(f"{path.name} must hold a two-dimensional table, its shape is {shape}")
        size = self._dtype.itemsize * prod(shape)
        if min(shape) < 0 or held != size:
            raise DataError(
                f"cannot read {path.name}: it holds {held} bytes of values instead of {size}, those of {self._dtype} {shape}"
            )
        (self.n_rows, self._width), self._by_rows = shape, not fortran

    @property
    def width(self) -> int:
        return int(self._width)

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        n, size, chosen = self.n_rows or 0, block_rows(self.width), slice(None) if columns is None else columns
        with self.path.open("rb") as file:

            def read(first: int, count: int) -> np.ndarray:
                file.seek(self._offset + first * self._dtype.itemsize)
                found = np.fromfile(file, self._dtype, count)
                if len(found) < count:
                    raise DataError(f"{self.path.name} is cut off, or was written to while it was read")
                return found

            for at in range(0, n, size):
                rows = min(size, n - at)
                if self._by_rows:
                    yield read(at * self.width, rows * self.width).reshape(rows, self.width)[:, chosen]
                else:
                    numbers = range(self.width) if columns is None else columns.tolist()
                    yield np.column_stack([read(c * n + at, rows) for c in numbers])

    def mark(self) -> str:
        return file_mark(self.path)
