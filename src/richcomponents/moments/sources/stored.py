"""Chunked array stores: Zarr, and AnnData's h5ad; dense, or sparse by rows (CSR)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import IntArray
from richcomponents.errors import DataError
from richcomponents.moments.sources.base import Source, block_rows, file_mark, missing_extra

__all__ = ["H5adSource", "ZarrSource"]

_CHUNK_BYTES = 2**28


class _Stored(Source):
    """A two-dimensional array, or an AnnData sparse matrix, inside an open store."""

    def __init__(self, path: Path, array: Any, label: str) -> None:
        self.path, self._array, self._label = path, array, label
        self._sparse = not hasattr(array, "dtype")
        if self._sparse and "indptr" not in array:
            raise DataError(f"{label} of {path.name} is a group, not an array: name one of {', '.join(sorted(array))}")
        if self._sparse and not str(array.attrs.get("encoding-type", "csr_matrix")).startswith("csr"):
            raise DataError(
                f"{label} of {path.name} is sparse by columns (CSC): store it by rows (CSR), as AnnData does"
            )
        shape = tuple(int(k) for k in (array.attrs["shape"] if self._sparse else array.shape))
        if len(shape) != 2:
            raise DataError(f"{label} of {path.name} must be two-dimensional, its shape is {shape}")
        self.n_rows, self._width = shape

    @property
    def width(self) -> int:
        return self._width

    def blocks(self, start: int, columns: IntArray | None) -> Iterator[object]:
        size = self._rows_at_once()
        for at in range(start, self.n_rows or 0, size):
            stop = min(at + size, self.n_rows or 0)
            if not self._sparse:
                part = np.asarray(self._array[at:stop])
                yield part if columns is None else np.ascontiguousarray(part[:, columns])
                continue
            places = np.asarray(self._array["indptr"][at : stop + 1]).astype(np.int64)
            low, high = int(places[0]), int(places[-1])
            data, indices = self._array["data"][low:high], self._array["indices"][low:high]
            rows = sparse.csr_matrix((data, indices, places - low), shape=(stop - at, self.width))
            yield (rows if columns is None else rows[:, columns]).toarray()

    def _rows_at_once(self) -> int:
        """Whole chunks of the store where they are small enough, so that none is unpacked twice."""
        size = block_rows(self.width)
        chunks = None if self._sparse else getattr(self._array, "chunks", None)
        if not chunks or chunks[0] * self.width * 8 > _CHUNK_BYTES:
            return size
        return int(chunks[0]) * max(size // int(chunks[0]), 1)

    def mark(self) -> str:
        return f"{file_mark(self.path)} {self._label}"


class ZarrSource(_Stored):
    """A Zarr array, or one array of a group (`array=`; "X", or the only two-dimensional one, by default)."""

    def __init__(self, path: Path, array: str | None = None) -> None:
        try:
            import zarr
        except ImportError:
            raise missing_extra("zarr", "zarr", path.name) from None
        try:
            opened: Any = zarr.open(str(path), mode="r")
        except Exception as error:  # zarr 2 and 3 raise classes of their own
            raise DataError(f"cannot read {path.name} as Zarr: {error}") from error
        if hasattr(opened, "dtype"):
            super().__init__(path, opened, "the array")
            return
        name = array if array is not None else _only_table(opened, path)
        if name not in opened:
            raise DataError(f"{path.name} has no array {name!r}: it holds {', '.join(sorted(opened)) or 'nothing'}")
        super().__init__(path, opened[name], name)
        if name == "X" or name.startswith("layers/"):
            self.names = _variable_names(opened)


class H5adSource(_Stored):
    """X of an h5ad file, or one of its layers; columns are named by var."""

    def __init__(self, path: Path, layer: str | None = None) -> None:
        try:
            import h5py
        except ImportError:
            raise missing_extra("h5py", "h5ad", path.name) from None
        try:
            file = h5py.File(path, "r")
        except OSError as error:
            raise DataError(f"cannot read {path.name}: {error}") from error
        label = "X" if layer is None else f"layers/{layer}"
        if label not in file:
            layers = ", ".join(sorted(file["layers"])) if "layers" in file else ""
            raise DataError(f"{path.name} has no {label!r}; its layers are: {layers or 'none'}")
        super().__init__(path, file[label], label)
        self.names = _variable_names(file)


def _only_table(group: Any, path: Path) -> str:
    if "X" in group:
        return "X"
    tables: list[str] = [name for name in sorted(group) if len(getattr(group[name], "shape", ())) == 2]
    if len(tables) != 1:
        raise DataError(f"{path.name} holds {len(tables)} tables ({', '.join(tables)}): name one with array=")
    return tables[0]


def _variable_names(store: Any) -> tuple[str, ...] | None:
    """AnnData keeps the names of the columns of X in var."""
    if "var" not in store:
        return None
    index = store["var"].attrs.get("_index", "_index")
    if index not in store["var"]:
        return None
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in store["var"][index][:])
