"""Arrays of numpy: single ones, .npy, and archives of them, .npz; sparse matrices in memory.

Chunked array stores: Zarr, and AnnData's h5ad and h5mu; dense or sparse.

What a store says about itself is checked before it is believed: scipy writes wherever the indices of a sparse matrix point, and
HDF5 reads whichever file a link names.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.archive import npy_header, read_arrays
from richcomponents.data.cells import Column, frame_columns
from richcomponents.data.sources.base import (
    ArraySource,
    Beside,
    FileSource,
    Source,
    block_rows,
    missing_extra,
    numbered,
    obsm_names,
    reading,
)
from richcomponents.data.sources.memory import FrameSource
from richcomponents.data.table import as_matrix, check_sparse
from richcomponents.errors import CapacityError, DataError


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

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
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
                    yield as_matrix(read(at * self.width, rows * self.width).reshape(rows, self.width)[:, chosen])
                else:
                    numbers = range(self.width) if columns is None else columns.tolist()
                    yield as_matrix(np.column_stack([read(c * n + at, rows) for c in numbers]))


class NpzSource(FrameSource):
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
            own = (name,) if array.ndim == 1 else numbered(name, array.shape[1])
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
        import pyarrow

        super().__init__(pyarrow.table({name: np.ascontiguousarray(values) for name, values in columns.items()}))
        self.title, self.files, self.views = path.name, [path], views


_HEAP = b"GCOL\x01\0\0\0"
_PART = 2**24  # bytes of a file that are looked at together


class _Stored(FileSource):
    """A two-dimensional array, a sparse matrix or a data frame inside a store; opened() : it, for as long as it is read.

    What is not stored row by row (sparse by columns, a frame) is held in memory.
    """

    def __init__(self, path: Path, label: str, opened: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(path)
        self._label, self._opened = label, opened
        self._held: ArraySource | None = None
        with reading(path), opened() as array:
            if _is_frame(array):
                self._held = ArraySource(as_matrix(_frame(array, path)))
                self.n_rows, self.width = self._held.n_rows, self._held.width
                return
            self._chunks, self._sparse = getattr(array, "chunks", None), not hasattr(array, "dtype")
            if self._sparse and not {"data", "indices", "indptr"} <= set(array):
                raise DataError(
                    f"{label} of {path.name} is a group, not an array: name one of {', '.join(sorted(array))}"
                )
            kind = str(array.attrs.get("encoding-type", "csr_matrix")) if self._sparse else ""
            if self._sparse and kind not in ("csr_matrix", "csc_matrix"):
                raise DataError(f"{label} of {path.name} is a group of a kind that is not known: {kind!r}")
            shape = _shape(array)
            if len(shape) != 2 or min(shape) < 0:
                raise DataError(f"{label} of {path.name} must be two-dimensional, its shape is {shape}")
            self.n_rows, self.width = shape
            if min(shape[0], block_rows(shape[1])) * shape[1] * 8 > MEMORY_LIMIT:
                raise CapacityError(
                    f"{label} of {path.name} has {shape[1]} columns: too many for a block of rows in memory"
                )
            if self._sparse:
                ends, many = array["indptr"], shape[0] if kind == "csr_matrix" else shape[1]
                whole = ends.shape == (many + 1,) and ends.dtype.kind in "iu" and int(ends[0]) == 0
                if not whole or array["indices"].shape != array["data"].shape:
                    raise self._damaged()
                self._held = self._by_rows(array) if kind == "csc_matrix" else None

    def _by_rows(self, array: Any) -> ArraySource:
        """A matrix that is sparse by columns, by rows; all of it has to be in memory for that."""
        size = array["indices"].shape[0] * (array["indices"].dtype.itemsize + array["data"].dtype.itemsize)
        if 2 * size > MEMORY_LIMIT:
            raise CapacityError(
                f"{self._label} of {self.path.name} is sparse by columns (CSC) and too large to turn: store it by rows (CSR)"
            )
        return ArraySource(self._checked(sparse.csc_matrix, array, (self.n_rows or 0, self.width)))

    def _damaged(self) -> DataError:
        return DataError(
            f"{self._label} of {self.path.name} is damaged: its indices do not fit its shape {(self.n_rows, self.width)}"
        )

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        if self._held is not None:
            yield from self._held.blocks(columns)
            return
        size, chosen = self._rows_at_once(), slice(None) if columns is None else columns
        with reading(self.path), self._opened() as array:
            for at in range(0, self.n_rows or 0, size):
                stop = min(at + size, self.n_rows or 0)
                if self._sparse:
                    rows = self._checked(sparse.csr_matrix, array, (stop - at, self.width), at).toarray()
                else:
                    rows = np.asarray(array[at:stop])
                yield as_matrix(rows[:, chosen])

    def _checked(self, kind: Any, parts: Any, shape: tuple[int, int], at: int = 0) -> Any:
        """Rows (or columns) from number `at` on; nothing is built before its indices are known to fit."""
        many = shape[0] if kind is sparse.csr_matrix else shape[1]
        places = np.asarray(parts["indptr"][at : at + many + 1]).astype(np.int64)
        low, high = int(places[0]), int(places[-1])
        if not 0 <= low <= high <= parts["data"].shape[0]:
            raise self._damaged()
        data, indices = (np.asarray(parts[name][low:high]) for name in ("data", "indices"))
        matrix = kind(shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, places - low
        try:
            return check_sparse(matrix)
        except DataError:
            raise self._damaged() from None

    def _rows_at_once(self) -> int:
        """Whole chunks of the store where they are small enough, so that none is unpacked twice."""
        size = block_rows(self.width)
        chunks = self._chunks
        if not chunks or chunks[0] * self.width * 8 > 2**28:
            return size
        return int(chunks[0]) * max(size // int(chunks[0]), 1)


# ---- AnnData, in memory and in files


class AnnDataSource(Beside):
    """Matrices of the same samples side by side: `parts` of an AnnData, the first under the variables' own names.

    They are called "X", "layer:name" and "obsm:name"; obs describes the samples.
    """

    def __init__(self, held: AnnDataInMemory | AnnDataInFile, parts: Sequence[str], key: str | None = None) -> None:
        self._held, self._parts, self.key = held, tuple(parts), key
        self.title, self.files, self.shared, self.samples = held.title, held.files, held.shared, held.samples
        own: Any = held.variables or ()
        self.groups = {parts[0]: own} if parts else {}
        for name in held.matrices if parts else ():
            self.groups.setdefault(name, tuple(f"{name.removeprefix('layer:')}:{variable}" for variable in own))
        for name, columns in held.obsm.items() if parts else ():
            self.groups[f"obsm:{name}"] = obsm_names(name, columns, own)
        Beside.__init__(self, [held.matrix(part) for part in parts])
        self.more = sum(matrix.width for matrix in self.parts[1:])
        self.n_rows = self.parts[0].n_rows if parts else len(self.samples or ())
        for what, labels, count in (
            ("var", held.variables, self.parts[0].width if parts else None),
            ("obs", self.samples, self.n_rows),
        ):
            if labels is not None and count is not None and len(labels) != count:
                raise DataError(
                    f"{what} of {self.title} has {len(labels)} labels, X needs {count}: the file is damaged"
                )
        self.names = None if held.variables is None else tuple(name for part in parts for name in self.groups[part])
        self.held = all(isinstance(getattr(matrix, "values", None), np.ndarray) for matrix in self.parts)
        variables = set(self.names or ())  # may have the name of a column of obs
        self._said = {f"obs:{name}" if str(name) in variables else str(name): name for name in held.described}
        self.annotations = tuple(self._said)

    def including(self, groups: Sequence[str]) -> Source:
        new = [name for name in dict.fromkeys(groups) if name in self.groups and name not in self._parts]
        return AnnDataSource(self._held, (*self._parts, *new), self.key) if new else self

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        self.check_names()
        said = [name for name in names if name in self.annotations]
        columns = super().read([name for name in names if name not in said], written)
        if said:
            obs = self._held.frame([self._said[name] for name in said])
            columns |= frame_columns(obs.set_axis(said, axis=1).reset_index(drop=True), written)
        return {name: columns[name] for name in names}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        return super().texts([name for name in names if name in self.annotations])

    def labels(self, key: str) -> tuple[object, ...]:
        if self.shared or key not in self.annotations:
            return super().labels(key)
        return tuple(self._held.frame([self._said[key]]).iloc[:, 0])

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        if len(self.parts) == 1:
            return self.parts[0].blocks(columns)
        return super().blocks(columns) if self.parts else iter([np.empty((self.n_rows or 0, 0))])

    def uneven(self, seen: list[int]) -> DataError:
        return DataError(f"{self.title} is damaged: its matrices have different numbers of rows")


class AnnDataInMemory:
    """What AnnDataSource asks of an AnnData."""

    title, files, shared = "the table", (), False

    def __init__(self, adata: Any) -> None:
        self._adata, self.described = adata, tuple(adata.obs.columns)
        self.variables, self.samples = tuple(map(str, adata.var_names)), tuple(adata.obs_names)
        self.matrices = [f"layer:{name}" for name in getattr(adata, "layers", None) or ()]  # of a MuData there are none
        self.obsm = {str(key): getattr(x, "columns", x.shape[1]) for key, x in adata.obsm.items()}

    def frame(self, columns: list[Any]) -> Any:
        return self._adata.obs[columns]

    def matrix(self, group: str) -> Source:
        kind, _, name = group.partition(":")
        matrix = self._adata.X if group == "X" else (self._adata.layers if kind == "layer" else self._adata.obsm)[name]
        if matrix is None:
            raise DataError("the AnnData has no X: name a layer in views=, such as 'layer:counts'")
        return ArraySource(as_matrix(matrix) if hasattr(matrix, "columns") else matrix)


class AnnDataInFile:
    """The same of a file. root() : its group, for as long as it is read; without `tables` only what it says of its samples."""

    shared = True

    def __init__(self, path: Path, root: Callable[[], AbstractContextManager[Any]], *, tables: bool = True) -> None:
        self._path, self._root, self.title, self.files = path, root, path.name, [path]
        with reading(path), root() as file:
            var, obs = (_member(file, one, path) if one in file else None for one in ("var", "obs"))
            self.variables = None if var is None or not tables else _labels(var)
            self.samples, self.described = (None, ()) if obs is None else (_labels(obs), _described(obs))
            self.matrices = ["X"] if "X" in file else []
            self.matrices += [f"layer:{name}" for name, _ in _entries(file, "layers", path)]
            inside = _entries(file, "obsm", path) if tables else ()
            self.obsm = {name: _described(held) if _is_frame(held) else _shape(held)[1] for name, held in inside}

    def frame(self, columns: list[Any]) -> Any:
        with reading(self._path), self._opened("obs") as obs:
            return _frame(obs, self._path)[columns]

    def matrix(self, group: str) -> Source:
        kind, _, name = group.partition(":")
        label = {"X": "X", "layer": "layers/", "obsm": "obsm/"}[kind] + name
        return _Stored(self._path, label, partial(self._opened, label))

    @contextmanager
    def _opened(self, label: str) -> Iterator[Any]:
        with self._root() as file:
            yield _member(file, label, self._path)


def h5ad_source(path: Path, layer: str | None = None, part: str = "") -> Source:
    """X of an h5ad file, or one of its layers; part : a group of the file (`mod/rna` of an h5mu)."""
    held = AnnDataInFile(path, partial(_hdf5, path, part))
    if layer is not None and f"layer:{layer}" not in held.matrices:
        there = ", ".join(sorted(name.removeprefix("layer:") for name in held.matrices if name != "X"))
        raise DataError(f"{path.name} has no {f'layers/{layer}'!r}; its layers are: {there or 'none'}")
    return AnnDataSource(held, ["X" if layer is None else f"layer:{layer}"])


def zarr_source(path: Path, array: str | None = None) -> Source:
    """A Zarr array, or one array of a group (`array=`; "X", or the only two-dimensional one, by default)."""
    try:
        import zarr
    except ImportError:
        raise missing_extra("zarr", "zarr", path.name) from None
    with reading(path):
        root: Any = zarr.open(str(path), mode="r")
        if hasattr(root, "dtype"):
            return _Stored(path, "the array", partial(nullcontext, root))
        name = array if array is not None else _only_table(root, path)
        if name not in root:
            raise DataError(f"{path.name} has no array {name!r}: it holds {', '.join(sorted(root)) or 'nothing'}")
        if name == "X" or name.startswith("layers/"):
            return AnnDataSource(
                AnnDataInFile(path, partial(nullcontext, root)), [name.replace("layers/", "layer:", 1)]
            )
        return _Stored(path, name, partial(nullcontext, root[name]))


def modalities(path: Path) -> tuple[dict[str, Source], Source]:
    """The tables of an h5mu file, in its order, and what it says of its samples."""
    with reading(path), _hdf5(path) as file:
        if "mod" not in file:
            raise DataError(f"{path.name} holds no modalities")
        names = [str(name) for name in file["mod"].attrs.get("mod-order", list(file["mod"]))]
    samples = AnnDataSource(AnnDataInFile(path, partial(_hdf5, path), tables=False), ())
    return {name: h5ad_source(path, part=f"mod/{name}") for name in names}, samples


def _is_frame(held: Any) -> bool:
    return not hasattr(held, "dtype") and held.attrs.get("encoding-type") == "dataframe"


def _entries(file: Any, name: str, path: Path) -> Iterator[tuple[str, Any]]:
    """The matrices and frames in a folder of an h5ad file; what is of another kind, or leads out of the file, is left out."""
    folder: Any = ()
    with suppress(DataError, KeyError):
        folder = _member(file, name, path) if not hasattr(file, "id") else _own(file, name, path)
    for key in () if hasattr(folder, "dtype") else folder:
        with suppress(DataError):
            held = _member(folder, key, path)
            if _is_frame(held) or len(_shape(held)) == 2:
                yield key, held


def _shape(held: Any) -> tuple[int, ...]:
    """Of an array, or of a sparse matrix, which has it in its attributes."""
    return tuple(map(int, held.shape if hasattr(held, "dtype") else held.attrs.get("shape", ())))


def _described(obs: Any) -> tuple[str, ...]:
    return tuple(map(str, obs.attrs.get("column-order", ())))


def _frame(obs: Any, path: Path) -> Any:
    """obs as a data frame of pandas."""
    try:
        from anndata.io import read_elem
    except ImportError:
        raise missing_extra("anndata", "h5ad", path.name) from None
    return read_elem(obs).reset_index(drop=True)


@contextmanager
def _hdf5(path: Path, part: str = "") -> Iterator[Any]:
    """The file, or a group of it, open for as long as it is read: HDF5 hands out what it has open even when the file is another
    one by now."""
    try:
        import h5py
    except ImportError:
        raise missing_extra("h5py", "h5ad", path.name) from None
    state = path.stat()
    _check_heaps(path, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    with h5py.File(path, "r") as file:
        group = file
        for step in part.split("/") if part else ():
            group = _own(group, step, path)
        yield group


@lru_cache(maxsize=64)
def _check_heaps(path: Path, *which: int) -> None:
    """Refuse global heaps (where texts are kept) that libhdf5 would walk forever: an object of number zero and size zero, the
    free space at the end, is a step of no length. One look over the bytes of the file, far cheaper than reading it, and one for
    all passes while nobody writes to it; which : what tells the file from one that was written later."""
    with path.open("rb") as file:
        for heap in list(_found(file, _HEAP)):
            file.seek(heap + 8)
            end, at = heap + int.from_bytes(file.read(8), "little"), heap + 16
            while at + 16 <= end:
                file.seek(at)
                head = file.read(16)
                if len(head) < 16:
                    break
                number, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8:], "little")
                step = size if number == 0 else 16 + (size + 7) // 8 * 8
                if step == 0:
                    raise DataError(f"{path.name} is damaged: its texts are in a heap without end")
                at += step


def _found(file: IO[bytes], sign: bytes) -> Iterator[int]:
    """Where some bytes stand in a file, which is read a piece at a time: mapped, all of it would count as memory."""
    end, held = 0, b""
    while part := file.read(_PART):
        held, end = held + part, end + len(part)
        yield from (end - len(held) + at.start() for at in re.finditer(re.escape(sign), held))
        held = held[1 - len(sign) :]


def _member(group: Any, name: str, path: Path) -> Any:
    """What stands at that place of a store; of an HDF5 file all of it in this file."""
    if not type(group).__module__.startswith("h5py"):
        return group[name]
    for step in name.split("/"):
        group = _own(group, step, path)
    _check_own(group, path, 0)
    return group


def _own(group: Any, name: str, path: Path) -> Any:
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise DataError(f"{path.name} has no {name!r}")
    if not isinstance(link, h5py.HardLink):
        raise DataError(f"{name!r} of {path.name} is a link, perhaps to another file: store the values themselves")
    found = group[name]
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise DataError(f"{name!r} of {path.name} keeps its values in other files: store the values themselves")
    return found


def _check_own(item: Any, path: Path, depth: int) -> None:
    """Nothing below leads out of the file or in circles, or is of a kind that AnnData does not write.

    h5py takes the process with it when a damaged file makes a string a list of something else.
    """
    from h5py import h5a, h5t

    if depth > 20:
        raise DataError(f"{path.name} is damaged: its groups are nested without end")
    kinds = [h5a.open(item.id, name.encode()).get_type() for name in item.attrs]
    kinds += [item.id.get_type()] if hasattr(item, "dtype") else []
    known = (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM, h5t.REFERENCE)
    if any(kind.get_class() not in known for kind in kinds):
        raise DataError(
            f"{path.name} holds values of a kind that AnnData does not write: it is damaged, or another format"
        )
    if not hasattr(item, "dtype"):
        for name in item:
            _check_own(_own(item, name, path), path, depth + 1)


def _only_table(group: Any, path: Path) -> str:
    if "X" in group:
        return "X"
    tables: list[str] = [name for name in sorted(group) if len(getattr(group[name], "shape", ())) == 2]
    if len(tables) != 1:
        raise DataError(f"{path.name} holds {len(tables)} tables ({', '.join(tables)}): name one with array=")
    return tables[0]


def _labels(frame: Any) -> tuple[str, ...] | None:
    """AnnData keeps the names of the columns of X in var, and those of its rows in obs."""
    index = frame.attrs.get("_index", "_index")
    if index not in frame:
        return None
    held = frame[index] if hasattr(frame[index], "dtype") else frame[index]["values"]
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in held[:])
