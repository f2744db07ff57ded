"""Memory-mapped .npy files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import DataError
from richcomponents.moments.sources.base import Source, block_rows, file_mark

__all__ = ["NpySource"]


class NpySource(Source):
    """A two-dimensional .npy file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows, self._width = self._open().shape

    def _open(self) -> Array:
        try:
            rows: Array = np.lib.format.open_memmap(self.path, mode="r")
        except (OSError, ValueError, EOFError) as error:  # numpy's own words advise to unpickle some files
            if zipfile.is_zipfile(self.path):
                raise DataError(
                    f"{self.path.name} is an archive of arrays, not one: give it as .npz to the command line, or load it"
                ) from error
            raise DataError(
                f"cannot read {self.path.name}: it is damaged, or not an array of numbers in numpy's format (numpy.save)"
            ) from error
        if rows.ndim != 2:
            raise DataError(f"{self.path.name} must hold a two-dimensional table, its shape is {rows.shape}")
        return rows

    @property
    def width(self) -> int:
        return int(self._width)

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        size = block_rows(self.width)
        for at in range(start, self.n_rows or 0, size):
            part = self._open()[at : at + size]  # mapped anew each time: pages that were read are let go
            yield np.array(part if columns is None else part[:, columns])

    def mark(self) -> str:
        return file_mark(self.path)
