"""Saved states: an npz archive of plain arrays and a JSON header; nothing in it is ever executed.

Declared shapes are checked against the header, and their size against a cap and against the file itself, before a single
value is read.
"""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.sources.npy import npy_header
from richcomponents.errors import DataError, StateFileError
from richcomponents.moments.forest import Forest
from richcomponents.moments.layout import MOST_ROWS, Layout
from richcomponents.moments.state import Moments
from richcomponents.outputs import writing

__all__ = [
    "MOMENTS",
    "check_state",
    "header_text",
    "load_moments",
    "moments_of_archive",
    "read_archive",
    "read_arrays",
    "read_forest",
    "read_one_of",
    "save_moments",
    "write_archive",
]

MOMENTS_FORMAT, VERSION = "richcomponents.Moments", 2
_HEADER_LIMIT = 2**16
_UNPACKED, _PACKED = 2**28, 200  # an archive may unpack to so many bytes in any case, and to so many times its size
_DIRECTORY_LIMIT = 2**22  # bytes of the list of members, which zipfile reads before anything can be checked


def save_moments(moments: Moments, path: str | os.PathLike[str]) -> None:
    """Write a state; see :meth:`Moments.save`."""
    nodes, sums = moments.sums.arrays(moments.layout.size)
    header = {"format": MOMENTS_FORMAT, "version": VERSION, "layout": asdict(moments.layout), "nodes": len(nodes)}
    header["dependent"] = moments.dependent
    write_archive(Path(path), header, {"shift": moments.shift, "nodes": nodes, "sums": sums})


def load_moments(path: str | os.PathLike[str], *, max_bytes: int) -> Moments:
    """Read a state; see :meth:`Moments.load`."""
    header, arrays = read_archive(Path(path), MOMENTS_FORMAT, VERSION, moments_arrays, max_bytes)
    return moments_of_archive(Path(path), header, arrays, max_bytes)


def moments_arrays(header: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The arrays of a state, from its header."""
    layout = Layout(**header["layout"])
    nodes = int(header["nodes"])
    if nodes < 0:
        raise ValueError("a negative number of nodes")
    return {"shift": ((layout.n_columns,), "<f8"), "nodes": ((nodes, 3), "<i8"), "sums": ((nodes, layout.size), "<f8")}


def moments_of_archive(path: Path, header: dict[str, Any], arrays: dict[str, Any], max_bytes: int) -> Moments:
    """The state, once it is known to be one."""
    layout, shift = Layout(**header["layout"]), arrays["shift"].astype(np.float64)
    try:
        layout.check_memory(max_bytes)
        sums = read_forest(arrays["nodes"], arrays["sums"])
        check_state(layout, shift, sums)
    except (StateFileError, MemoryError) as error:
        raise StateFileError(f"{path}: {error}") from error
    return Moments(layout, shift, sums, header.get("dependent", False) is True)


def read_forest(nodes: IntArray, sums: Array) -> Forest:
    """A forest from a file; refuses what no forest looks like."""
    if nodes.ndim != 2 or sums.ndim != 2 or len(nodes) != len(sums) or nodes.shape[1] != 3 or nodes.dtype != np.int64:
        raise StateFileError(f"nodes of shape {nodes.shape} and sums of shape {sums.shape} are no forest")
    if len(nodes) and not (nodes.min() >= 0 and nodes[:, 1].max() < 64):
        raise StateFileError("the sums name a node that cannot exist")
    forest = Forest.from_arrays(nodes, sums)
    if len(forest) != len(nodes):
        raise StateFileError("the sums are damaged (repeated nodes, or siblings that should have been merged)")
    return forest


def check_state(layout: Layout, shift: Array, sums: Forest) -> None:
    """Refuse sums that do not belong to the layout."""
    if shift.shape != (layout.n_columns,) or shift.dtype != np.float64:
        raise StateFileError(f"the shift has shape {shift.shape}, the state {layout.n_columns} columns")
    if len(sums) and not np.isfinite(shift).all():
        raise StateFileError("the shift is not finite")
    for (tree, _, _), value in sums:
        if tree >= layout.n_blocks or value.shape != (layout.size,) or value.dtype != np.float64:
            raise StateFileError("the sums name a node that cannot exist, or have the wrong length")
        if not np.isfinite(value).all():
            raise StateFileError("the sums are damaged (values that are not finite)")
        if not 0 <= value[0] <= MOST_ROWS or value[0] != np.rint(value[0]):
            raise StateFileError(f"the sums are damaged: {value[0]} is not a number of rows")


MOMENTS = {MOMENTS_FORMAT: (VERSION, moments_arrays)}


# ---- archives


def header_text(header: Mapping[str, object]) -> str:
    """The header as it stands in the file: ASCII, so that its length is its size."""
    return json.dumps(header)


def write_archive(
    path: Path, header: Mapping[str, object], arrays: Mapping[str, Array | IntArray], mode: int = 0o666
) -> None:
    """header.json and one .npy per array, all or nothing; mode : of the file, less what the user's mask takes away."""
    with writing(path, mode) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", header_text(header))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


Expected = Callable[[dict[str, Any]], dict[str, tuple[tuple[int, ...], str]]]


def read_archive(
    path: Path, kind: str, version: int, expected: Expected, max_bytes: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header, and the arrays whose names, shapes and types follow from it: all checked before any value is read."""
    return read_one_of(path, {kind: (version, expected)}, max_bytes)


def read_one_of(
    path: Path, formats: Mapping[str, tuple[int, Expected]], max_bytes: int, *, header_limit: int = _HEADER_LIMIT
) -> tuple[dict[str, Any], dict[str, Any]]:
    """As :func:`read_archive`, for a file of any of these formats: {name: (newest version, arrays from a header)}."""
    try:
        with open_regular(path) as file, _open_archive(file, path) as archive:
            header, expected = _read_header(archive, path, formats, header_limit)
            try:
                wanted = expected(header)
            except (AttributeError, KeyError, TypeError, ValueError, MemoryError) as error:
                raise StateFileError(f"{path}: the header does not describe a state ({error!r})") from error
            total = sum(_n_bytes(shape, dtype) for shape, dtype in wanted.values())
            if total > max_bytes:
                raise StateFileError(f"{path} declares {total} bytes of sums, more than the limit {max_bytes}")
            if total > os.fstat(file.fileno()).st_size:
                raise StateFileError(f"{path} declares {total} bytes of arrays, more than the file has")
            arrays = {name: _read_array(archive, path, name, *what) for name, what in wanted.items()}
    except (StateFileError, FileNotFoundError):
        raise
    except Exception as error:  # a damaged zip can fail in many ways; all of them mean the same to the user
        raise StateFileError(f"{path} is not a readable state file ({type(error).__name__}: {error})") from error
    return header, arrays


def _open_archive(file: IO[bytes], path: Path) -> zipfile.ZipFile:
    """The archive; refuses a list of members that is too long to be ours before it is read into memory."""
    end, wide, locator = 22, 56, 20  # bytes of the records at the end of a zip archive, and of its 64-bit form
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - end - locator - wide))
    tail = file.read().rjust(end + locator + wide, b"\0")
    if tail[-end : -end + 4] != b"PK\5\6":
        raise StateFileError(f"{path} is not a readable state file (it is cut off, or not an npz archive)")
    members = struct.unpack("<I", tail[-end + 12 : -end + 16])[0]
    if tail[-end - locator : -end - locator + 4] == b"PK\6\7":
        members = struct.unpack("<Q", tail[40:48])[0]
    if members > _DIRECTORY_LIMIT:
        raise StateFileError(f"{path}: the list of members is too large to be one of ours")
    file.seek(0)
    return zipfile.ZipFile(file)


def _read_header(
    archive: zipfile.ZipFile, path: Path, formats: Mapping[str, tuple[int, Expected]], limit: int
) -> tuple[dict[str, Any], Expected]:
    info = archive.getinfo("header.json")
    if max(info.file_size, info.compress_size) > limit or info.compress_type != zipfile.ZIP_STORED:
        raise StateFileError(f"{path}: the header is too large to be one of ours")
    header = json.loads(archive.read(info).decode("utf-8"))
    kind = header.get("format") if isinstance(header, dict) else None
    if not isinstance(kind, str) or kind not in formats:
        raise StateFileError(f"{path} does not hold a {' or '.join(formats)}")
    version, expected = formats[kind]
    found = header.get("version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1 or found > version:
        raise StateFileError(f"{path} has format version {found}, this library reads {version}: update richcomponents")
    if found < version:
        raise StateFileError(
            f"{path} was written by an earlier richcomponents (format version {found}, this one reads {version}): fit or "
            "sum the rows again, and save"
        )
    return header, expected


def _n_bytes(shape: tuple[int, ...], dtype: str) -> int:
    return np.dtype(dtype).itemsize * prod(shape)


def _read_array(archive: zipfile.ZipFile, path: Path, name: str, shape: tuple[int, ...], kind: str) -> Any:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise StateFileError(f"{path}: array {name!r} is compressed; states are written uncompressed")
    with archive.open(info) as file:
        found = npy_header(file)
        if found[:2] != (shape, False) or found[2].str != kind:
            raise StateFileError(f"{path}: array {name!r} is {found[2]} {found[0]}, it should be {kind} {shape}")
        return _npy_values(file, info.file_size, *found)


def _npy_values(file: IO[bytes], size: int, shape: tuple[int, ...], fortran: bool, dtype: Any) -> Any:
    """The values of an .npy file of `size` bytes; no memory is taken that the file does not fill."""
    n_bytes = dtype.itemsize * prod(shape)
    if min(shape, default=0) < 0 or size - file.tell() != n_bytes:
        raise ValueError(
            f"it holds {size - file.tell()} bytes of values instead of {n_bytes}, those of {dtype} {shape}"
        )
    data = np.empty(n_bytes, dtype=np.uint8)
    at = 0
    while part := file.read(2**20):  # to the end, where an archive's checksum is compared
        data[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
        at += len(part)
    if at != n_bytes:
        raise ValueError(f"it holds {at} bytes of values instead of {n_bytes}")
    values = data.view(dtype) if n_bytes else np.empty(0, dtype)
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


# ---- arrays of others


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz archive by name, or the one of an .npy file under the file's; nothing in it is executed.

    An archive may be packed, but not a bomb: what it unpacks to is known and bounded before anything is unpacked.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(2) != b"PK":
                file.seek(0)
                return {path.stem: _npy_values(file, size, *npy_header(file))}
            with _open_archive(file, path) as archive:
                members = archive.infolist()
                unpacked = sum(info.file_size for info in members)
                if unpacked > max(_UNPACKED, _PACKED * size):
                    raise DataError(
                        f"{path.name} ({size} bytes) would unpack to {unpacked} bytes, which is more than a table does; if you "
                        "trust it, save it uncompressed (numpy.savez)"
                    )
                out = {}
                for info in members:
                    with archive.open(info) as member:
                        name = info.filename.removesuffix(".npy")
                        out[name] = _npy_values(member, info.file_size, *npy_header(member))
                return out
    except (DataError, FileNotFoundError):
        raise
    except Exception as error:  # a damaged archive can fail in many ways; all of them mean the same to the user
        why = str(error) if isinstance(error, (StateFileError, ValueError)) else f"{type(error).__name__}: {error}"
        raise DataError(f"cannot read {path.name}: {why}") from error


def open_regular(path: Path) -> IO[bytes]:
    """A file opened for reading; a pipe, which would wait, and a device, which may never end, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise StateFileError(f"{path} is not a regular file: give the name of one")
    return path.open("rb")
