"""npz files: arrays in a zip archive, in our own files beside a JSON header; nothing in them is ever executed.

What a file declares is checked, against a cap and against the file itself, before a single value is read.
"""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from richcomponents.errors import DataError, StateFileError
from richcomponents.outputs import writing

FORMAT, VERSION = "richcomponents", 4
KINDS = "biufU"  # of the arrays in our files: numbers, truth values and texts
_HEADER_LIMIT = 2**22  # a fitted model has about a hundred objects; names of columns are arrays of text, not header
_NPY_HEADER_LIMIT = 10_000


# ---- our own files


def write_archive(path: Path, header: Mapping[str, object], arrays: Mapping[str, Any]) -> None:
    """header.json and one .npy per array, all or nothing."""
    declared = {name: _declared(array) for name, array in arrays.items()}
    # ASCII: its length is its size
    text = json.dumps({"format": FORMAT, "version": VERSION, **header, "arrays": declared})
    if len(text) > _HEADER_LIMIT:
        raise ValueError("this object holds too many small objects to be saved in one file")
    with writing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


def _declared(array: Any) -> dict[str, object]:
    """What the header says of an array."""
    return {"shape": list(array.shape), "dtype": array.dtype.str}


def read_archive(path: Path, max_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays that it declares: what they need is checked before any value is read."""
    try:
        with _open_regular(path) as file, _open_zip(file) as archive:
            header = _read_header(archive)
            members = [info for info in archive.infolist() if info.filename != "header.json"]
            total = sum(info.file_size for info in members)
            if total > max_bytes:
                raise StateFileError(f"it holds {total} bytes of arrays, more than the limit {max_bytes}")
            if (
                any(info.compress_type != zipfile.ZIP_STORED for info in members)
                or total > os.fstat(file.fileno()).st_size
            ):
                raise StateFileError("its arrays are compressed; ours are written uncompressed")
            arrays = _read_members(archive, members)
            actual = {name: _declared(array) for name, array in arrays.items()}
            for name, wanted in {**dict.fromkeys(actual), **header["arrays"]}.items():
                if actual.get(name) != wanted or arrays[name].dtype.kind not in KINDS:
                    raise StateFileError(
                        f"array {name!r} is {actual.get(name)}, it should be {wanted}, says the header"
                    )
            return header, arrays
    except FileNotFoundError:
        raise
    except StateFileError as error:
        raise StateFileError(f"{path}: {error}") from error
    except Exception as error:  # a damaged zip can fail in many ways; all of them mean the same to the user
        raise StateFileError(f"{path} is not a readable file of ours ({type(error).__name__}: {error})") from error


def _read_header(archive: zipfile.ZipFile) -> dict[str, Any]:
    info = archive.getinfo("header.json")
    if max(info.file_size, info.compress_size) > _HEADER_LIMIT or info.compress_type != zipfile.ZIP_STORED:
        raise StateFileError("the header is too large to be one of ours")
    header: Any = json.loads(archive.read(info).decode("utf-8"))
    kind, version = (header.get("format"), header.get("version")) if isinstance(header, dict) else (None, None)
    if not isinstance(kind, str) or kind.partition(".")[0] != FORMAT:
        raise StateFileError("it does not hold anything of richcomponents")
    if type(version) is not int or version < 1 or version > VERSION:
        raise StateFileError(f"it has format version {version}, this library reads {VERSION}: update richcomponents")
    if kind != FORMAT or version < VERSION:
        raise StateFileError(
            f"it was written by an older edition of richcomponents (format version {version}, this one reads {VERSION}): "
            "make it again: sum the rows or fit once more, and save"
        )
    return dict(header)


# ---- arrays of others


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz archive by name, or the one of an .npy file under the file's.

    An archive may be packed, but not a bomb: what it unpacks to is known and bounded before anything is unpacked.
    """
    try:
        with _open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(2) != b"PK":
                file.seek(0)
                return {path.stem: _npy_values(file, size, *npy_header(file))}
            with _open_zip(file) as archive:
                members = archive.infolist()
                unpacked = sum(info.file_size for info in members)
                if unpacked > max(2**28, 200 * size):
                    raise DataError(
                        f"{path.name} ({size} bytes) would unpack to {unpacked} bytes, which is more than a table does; if you "
                        "trust it, save it uncompressed (numpy.savez)"
                    )
                return _read_members(archive, members)
    except (DataError, FileNotFoundError):
        raise
    except Exception as error:  # a damaged archive can fail in many ways; all of them mean the same to the user
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise DataError(f"cannot read {path.name}: {why}") from error


# ---- what both are made of


def _read_members(archive: zipfile.ZipFile, members: Iterable[zipfile.ZipInfo]) -> dict[str, Any]:
    """Arrays by their names."""
    out = {}
    for info in members:
        with archive.open(info) as member:
            out[info.filename.removesuffix(".npy")] = _npy_values(member, info.file_size, *npy_header(member))
    return out


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether it is in Fortran's order, and type of an .npy file; numpy's own errors advise to unpickle the file.

    The line feed of the header must be its last byte. numpy does not mind when it is not, and a byte that is lost from the
    header shifts every value by one.
    """
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        length = file.read(2 * version[0])
        text = file.read(min(int.from_bytes(length, "little"), _NPY_HEADER_LIMIT + 1))
        if text.find(b"\n") != len(text) - 1:
            raise ValueError("the header does not end where it says")
        shape, fortran, dtype = readers[version](io.BytesIO(length + text), max_header_size=_NPY_HEADER_LIMIT)
    except Exception as error:  # a damaged header fails in many ways
        raise ValueError(
            "it does not begin like an array in numpy's format (numpy.save): it is damaged, or something else"
        ) from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never read: save numbers or texts")
    return tuple(shape), fortran, dtype


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


def _open_zip(file: IO[bytes]) -> zipfile.ZipFile:
    """The archive; refuses a list of members that is too long to be ours before it is read into memory."""
    end, wide, locator = 22, 56, 20  # bytes of the records at the end of a zip archive, and of its 64-bit form
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - end - locator - wide))
    tail = file.read().rjust(end + locator + wide, b"\0")
    if tail[-end : -end + 4] != b"PK\5\6":
        raise StateFileError("it is cut off, or not an npz archive")
    members = struct.unpack("<I", tail[-end + 12 : -end + 16])[0]
    if tail[-end - locator : -end - locator + 4] == b"PK\6\7":
        members = struct.unpack("<Q", tail[40:48])[0]
    if members > 2**22:  # bytes, which zipfile reads before anything can be checked
        raise StateFileError("the list of members is too large to be one of ours")
    file.seek(0)
    return zipfile.ZipFile(file)


def _open_regular(path: Path) -> IO[bytes]:
    """A file opened for reading; a pipe, which would wait, and a device, which may never end, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise StateFileError("it is not a regular file: give the name of one")
    return path.open("rb")
