"""Arrays of numpy: single ones, .npy, and archives of them, .npz; sparse matrices in memory.

Chunked array stores: Zarr, and AnnData's h5ad and h5mu; dense or sparse.

What a store says about itself is checked before it is believed: scipy writes wherever the indices of a sparse matrix point, and
HDF5 reads whichever file a link names.
"""

from __future__ import annotations

import os
import zipfile
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.archive import npy_header, read_arrays
from richcomponents.data.cells import Column
from richcomponents.data.sources.base import (
    Annotated,
    ColumnSource,
    FileSource,
    Source,
    block_rows,
    blocks_of,
    in_step,
    missing_extra,
    numbered,
    obsm_names,
)
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
        super().__init__(path.name, columns, views)
        self.files = [path]


class MatrixSource(Source):
    """A matrix in memory, of which a few rows at a time are made dense where it is sparse."""

    shared = False

    def __init__(self, values: Any) -> None:
        self.values = check_sparse(values).tocsr() if sparse.issparse(values) else values
        self.n_rows, self.width = self.values.shape

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(0, self.n_rows or 0, size):
            rows = self.values[at : at + size]
            rows = rows if columns is None else rows[:, columns]
            yield rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


_HEAP = b"GCOL\x01\0\0\0"
_PART = 2**24  # bytes of a file that are looked at together


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of the libraries behind a store, which come in all classes, in one that names the file."""
    try:
        yield
    except (DataError, CapacityError):
        raise
    except Exception as error:
        raise DataError(f"cannot read {path.name}: {str(error)[:300] or type(error).__name__}") from error


class _Stored(Annotated, FileSource):
    """A two-dimensional array, or an AnnData sparse matrix, inside an open store.

    samples : the labels of its rows, where it says.
    """

    def __init__(self, path: Path, array: Any, label: str) -> None:
        super().__init__(path)
        self._label, self._turned = label, None
        self._chunks = getattr(array, "chunks", None)
        self._sparse = not hasattr(array, "dtype")
        if self._sparse and not {"data", "indices", "indptr"} <= set(array):
            raise DataError(f"{label} of {path.name} is a group, not an array: name one of {', '.join(sorted(array))}")
        kind = str(array.attrs.get("encoding-type", "csr_matrix")) if self._sparse else ""
        if self._sparse and kind not in ("csr_matrix", "csc_matrix"):
            raise DataError(f"{label} of {path.name} is a group of a kind that is not known: {kind!r}")
        shape = tuple(int(k) for k in (array.attrs["shape"] if self._sparse else array.shape))
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
            self._turned = self._by_rows(array) if kind == "csc_matrix" else None

    @abstractmethod
    def _opened(self, what: str = "") -> AbstractContextManager[Any]:
        """The array, or what else stands beside it, for as long as it is read."""

    def _label_all(self, var: Any, obs: Any) -> None:
        """Names of columns, of samples, and of what is said of these; AnnData keeps them in var and obs."""
        if var is not None:
            self.names = _labels(var, self.width, f"var of {self.title}")
        if obs is not None:
            self.samples = _labels(obs, self.n_rows or 0, f"obs of {self.title}")
            self.describe(_described(obs))

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        self.check_names()
        return super().read(names, written)

    def _obs(self, columns: list[Any]) -> Any:
        with _reading(self.path), self._opened("obs") as obs:
            return _frame(obs, self.path)[columns]

    def _by_rows(self, array: Any) -> dict[str, Any]:
        """A matrix that is sparse by columns, by rows; all of it has to be in memory for that."""
        size = array["indices"].shape[0] * (array["indices"].dtype.itemsize + array["data"].dtype.itemsize)
        if 2 * size > MEMORY_LIMIT:
            raise CapacityError(
                f"{self._label} of {self.path.name} is sparse by columns (CSC) and too large to turn: store it by rows (CSR)"
            )
        turned = self._checked(sparse.csc_matrix, array, (self.n_rows or 0, self.width)).tocsr()
        return {"data": turned.data, "indices": turned.indices, "indptr": turned.indptr}

    def _damaged(self) -> DataError:
        return DataError(
            f"{self._label} of {self.path.name} is damaged: its indices do not fit its shape {(self.n_rows, self.width)}"
        )

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        size, chosen = self._rows_at_once(), slice(None) if columns is None else columns
        with _reading(self.path), self._opened() as array:
            for at in range(0, self.n_rows or 0, size):
                stop = min(at + size, self.n_rows or 0)
                if not self._sparse:
                    yield np.asarray(array[at:stop])[:, chosen]
                    continue
                parts = array if self._turned is None else self._turned
                yield self._checked(sparse.csr_matrix, parts, (stop - at, self.width), at).toarray()[:, chosen]

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


class ZarrSource(_Stored):
    """A Zarr array, or one array of a group (`array=`; "X", or the only two-dimensional one, by default)."""

    def __init__(self, path: Path, array: str | None = None) -> None:
        try:
            import zarr
        except ImportError:
            raise missing_extra("zarr", "zarr", path.name) from None
        with _reading(path):
            opened: Any = zarr.open(str(path), mode="r")
            self._root = self._array = opened
            if hasattr(opened, "dtype"):
                super().__init__(path, opened, "the array")
                return
            name = array if array is not None else _only_table(opened, path)
            if name not in opened:
                raise DataError(f"{path.name} has no array {name!r}: it holds {', '.join(sorted(opened)) or 'nothing'}")
            self._array = opened[name]
            super().__init__(path, self._array, name)
            if name == "X" or name.startswith("layers/"):
                self._label_all(opened.get("var"), opened.get("obs"))

    def _opened(self, what: str = "") -> AbstractContextManager[Any]:
        return nullcontext(self._root[what] if what else self._array)


class H5adSource(_Stored):
    """X of an h5ad file, or one of its layers; columns are named by var. part : a group of the file (`mod/rna` of an h5mu).

    Its groups are those of an AnnData in memory: "X", "layer:name", "obsm:name".
    """

    def __init__(self, path: Path, layer: str | None = None, part: str = "") -> None:
        label = "X" if layer is None else f"layers/{layer}"
        self._part = f"{part}/" if part else ""
        with _reading(path), _hdf5(path) as file:
            group = _member(file, part, path) if part else file
            if label not in group:
                layers = ", ".join(sorted(group["layers"])) if "layers" in group else ""
                raise DataError(f"{path.name} has no {label!r}; its layers are: {layers or 'none'}")
            super().__init__(path, _member(group, label, path), label)
            self._label_all(*(_member(group, one, path) if one in group else None for one in ("var", "obs")))
            self.groups = self._groups(group)

    def _groups(self, file: Any) -> dict[str, tuple[str, ...]]:
        """Names of the columns of all matrices of the samples, under those of the matrices."""
        own = self.names or ()
        groups = {_group_name(self._label): own}
        if "X" in file:
            groups.setdefault("X", tuple(f"X:{name}" for name in own))
        for name, _ in _entries(file, "layers", self.path):
            groups.setdefault(f"layer:{name}", tuple(f"{name}:{variable}" for variable in own))
        for name, held in _entries(file, "obsm", self.path):
            groups[f"obsm:{name}"] = obsm_names(name, _described(held) if _is_frame(held) else _shape(held)[1], own)
        return groups

    def including(self, groups: Sequence[str]) -> Source:
        new = [name for name in dict.fromkeys(groups) if name in self.groups and name != _group_name(self._label)]
        if not new:
            return self
        return _H5adParts(self, [_H5adMatrix(self.path, name, self.groups[name], self._part) for name in new])

    @contextmanager
    def _opened(self, what: str = "") -> Iterator[Any]:
        with _hdf5(self.path) as file:
            yield _member(file, f"{self._part}{what or self._label}", self.path)


class _H5adMatrix(_Stored):
    """A further matrix of an h5ad file, by the name of its group; a data frame in obsm is held in memory."""

    def __init__(self, path: Path, group: str, names: tuple[str, ...], part: str) -> None:
        kind, _, name = group.partition(":")
        label = part + {"X": "X", "layer": "layers/", "obsm": "obsm/"}[kind] + name
        self._values: Array | None = None
        with _reading(path), _hdf5(path) as file:
            held = _member(file, label, path)
            if _is_frame(held):
                FileSource.__init__(self, path)
                self._label, self._values = label, as_matrix(_frame(held, path))
                self.n_rows, self.width = self._values.shape
            else:
                super().__init__(path, held, label)
        self.names = names

    @contextmanager
    def _opened(self, what: str = "") -> Iterator[Any]:
        with _hdf5(self.path) as file:
            yield _member(file, self._label, self.path)

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        if self._values is None:
            yield from super().blocks(columns)
        else:
            yield self._values if columns is None else self._values[:, columns]


class _H5adParts(Annotated, FileSource):
    """Several matrices of an h5ad file side by side, read in step; the first one describes the samples."""

    def __init__(self, first: H5adSource, others: Sequence[_H5adMatrix]) -> None:
        super().__init__(first.path)
        self._parts: list[_Stored] = [first, *others]
        self.names = tuple(name for part in self._parts for name in part.names or ())
        self.width, self.n_rows, self.samples = len(self.names), first.n_rows, first.samples
        self.annotations, self.groups, self.key = first.annotations, first.groups, first.key
        self._said = first._said

    def including(self, groups: Sequence[str]) -> Source:
        return self._parts[0].including(groups)

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        self.check_names()
        return super().read(names, written)

    def _obs(self, columns: list[Any]) -> Any:
        return self._parts[0]._obs(columns)

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        def uneven(seen: list[int]) -> DataError:
            return DataError(f"{self.title} is damaged: its matrices have different numbers of rows")

        return in_step(blocks_of(self._parts, columns), uneven)


def _group_name(label: str) -> str:
    """What a matrix of an h5ad file is called in views=: layers/log is layer:log."""
    return label.replace("layers/", "layer:", 1)


def _is_frame(held: Any) -> bool:
    return not hasattr(held, "dtype") and held.attrs.get("encoding-type") == "dataframe"


def _entries(file: Any, name: str, path: Path) -> Iterator[tuple[str, Any]]:
    """The matrices and frames in a folder of an h5ad file; what is of another kind, or leads out of the file, is left out."""
    folder: Any = ()
    with suppress(DataError):
        folder = _own(file, name, path)
    for key in () if hasattr(folder, "dtype") else folder:
        with suppress(DataError):
            held = _member(folder, key, path)
            if _is_frame(held) or len(_shape(held)) == 2:
                yield key, held


def _shape(held: Any) -> tuple[int, ...]:
    """Of an array, or of a sparse matrix, which has it in its attributes."""
    return tuple(map(int, held.shape if hasattr(held, "dtype") else held.attrs.get("shape", ())))


class SampleSource(Annotated, FileSource):
    """What an h5mu file says of its samples, and nothing else."""

    width = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _reading(path), _hdf5(path) as file:
            obs = _member(file, "obs", path)
            self.samples = _labels(obs, None, f"obs of {path.name}") or ()
            self.describe(_described(obs))
        self.n_rows = len(self.samples)

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        yield np.empty((self.n_rows or 0, 0))

    def _obs(self, columns: list[Any]) -> Any:
        with _reading(self.path), _hdf5(self.path) as file:
            return _frame(_member(file, "obs", self.path), self.path)[columns]


def _described(obs: Any) -> tuple[str, ...]:
    return tuple(map(str, obs.attrs.get("column-order", ())))


def _frame(obs: Any, path: Path) -> Any:
    """obs as a data frame of pandas."""
    try:
        from anndata.io import read_elem
    except ImportError:
        raise missing_extra("anndata", "h5ad", path.name) from None
    return read_elem(obs).reset_index(drop=True)


def modalities(path: Path) -> dict[str, H5adSource]:
    """The tables of an h5mu file, in its order."""
    with _reading(path), _hdf5(path) as file:
        if "mod" not in file:
            raise DataError(f"{path.name} holds no modalities")
        names = [str(name) for name in file["mod"].attrs.get("mod-order", list(file["mod"]))]
    return {name: H5adSource(path, part=f"mod/{name}") for name in names}


def _hdf5(path: Path) -> Any:
    """The file, open for as long as it is read: HDF5 hands out what it has open even when the file is another one by now."""
    try:
        import h5py
    except ImportError:
        raise missing_extra("h5py", "h5ad", path.name) from None
    _check_heaps(path)
    return h5py.File(path, "r")


def _check_heaps(path: Path) -> None:
    """Refuse global heaps (where texts are kept) that libhdf5 would walk forever: an object of number zero and size zero, the
    free space at the end, is a step of no length. One look over the bytes of the file, far cheaper than reading it, and one for
    all passes while nobody writes to it."""
    state = path.stat()
    _look_for_endless_heaps(path, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(maxsize=64)
def _look_for_endless_heaps(path: Path, *which: int) -> None:
    """which : what tells the file from one that was written later."""
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
    start, held = 0, b""
    while part := file.read(_PART):
        held += part
        at = held.find(sign)
        while at >= 0:
            yield start + at
            at = held.find(sign, at + 1)
        keep = len(sign) - 1
        start, held = start + len(held) - min(keep, len(held)), held[-keep:]


def _member(group: Any, name: str, path: Path) -> Any:
    """What stands at that place of an HDF5 file, all of it in this file."""
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


def _labels(frame: Any, count: int | None, what: str) -> tuple[str, ...] | None:
    """AnnData keeps the names of the columns of X in var, and those of its rows in obs; there must be as many."""
    index = frame.attrs.get("_index", "_index")
    if index not in frame:
        return None
    held = frame[index] if hasattr(frame[index], "dtype") else frame[index]["values"]
    if count is not None and held.shape != (count,):
        raise DataError(f"{what} has {held.shape} labels, X needs {count}: the file is damaged")
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in held[:])
