"""Arrays of numpy: single ones, .npy, and archives of them, .npz."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.archive import npy_header, read_arrays
from richcomponents.data.cells import Column
from richcomponents.data.sources.base import ColumnSource, FileSource, block_rows, file_mark
from richcomponents.errors import DataError

__all__ = ["NpySource", "NpzSource"]


class NpySource(FileSource):
    """A two-dimensional .npy file.

    It is read, not mapped: a mapped file that somebody cuts off takes the process with it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with path.open("rb") as file:
                shape, fortran, self._dtype = npy_header(file)
                self._offset = file.tell()
                held = file.seek(0, os.SEEK_END) - self._offset
        except ValueError as error:
            if zipfile.is_zipfile(path):
                raise DataError(f"{path.name} is an archive of arrays, not one: let its name end in .npz") from error
            raise DataError(f"cannot read {path.name}: {error}") from error
        if len(shape) != 2:
            raise DataError(f"{path.name} must hold a two-dimensional table, its shape is {shape}")
        size = self._dtype.itemsize * prod(shape)
        if min(shape) < 0 or held != size:
            raise DataError(
                f"cannot read {path.name}: it holds {held} bytes of values instead of {size}, those of {self._dtype} {shape}"
            )
        (self.n_rows, self.width), self._by_rows = shape, not fortran

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        n, size, chosen = self.n_rows or 0, block_rows(self.width), slice(None) if columns is None else columns
        with self.path.open("rb") as file:

            def read(first: int, count: int) -> np.ndarray:
                file.seek(self._offset + first * self._dtype.itemsize)
                values = np.fromfile(file, self._dtype, count)
                if len(values) < count:
                    raise DataError(f"{self.path.name} is cut off, or was written to while it was read")
                return values

            for at in range(0, n, size):
                rows = min(size, n - at)
                if self._by_rows:
                    yield read(at * self.width, rows * self.width).reshape(rows, self.width)[:, chosen]
                else:
                    numbers = range(self.width) if columns is None else columns.tolist()
                    yield np.column_stack([read(c * n + at, rows) for c in numbers])


class NpzSource(ColumnSource):
    """An archive of arrays: matrices are views (columns name_0, name_1, ...), vectors are columns."""

    def __init__(self, path: Path) -> None:
        columns: dict[str, Column] = {}
        views: dict[str, tuple[str, ...]] = {}
        arrays = read_arrays(path)
        for name, array in arrays.items():
            if array.ndim not in (1, 2):
                raise DataError(
                    f"array {name!r} of {path.name} has {array.ndim} dimensions: matrices and vectors are read"
                )
            own = (name,) if array.ndim == 1 else tuple(f"{name}_{i}" for i in range(array.shape[1]))
            clash = next((column for column in own if column in columns), None)
            if clash is not None:
                raise DataError(
                    f"two arrays of {path.name} make a column {clash!r}, {name!r} is one of them: rename it"
                )
            columns |= zip(own, [array] if array.ndim == 1 else array.T, strict=True)
            views |= {name: own} if array.ndim == 2 else {}
        if len({len(array) for array in arrays.values()}) > 1:
            counts = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
            raise DataError(f"the arrays of {path.name} must have the same number of rows: {counts}")
        super().__init__(path.name, columns, views)
        self.files, self._mark = [path], file_mark(path)

    def mark(self) -> str:
        return self._mark
