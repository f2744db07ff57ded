"""Saved states: an npz archive of plain arrays and a JSON header; nothing in it is ever executed.

Declared shapes are checked against the header, and their size against a cap, before a single value
is read. A file is written next to its place and moved there, so that it is whole or absent.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import StateFileError
from richcomponents.moments.forest import Forest
from richcomponents.moments.layout import Layout
from richcomponents.moments.state import Moments

__all__ = ["load_moments", "save_moments"]

FORMAT, VERSION = "richcomponents.Moments", 1
_HEADER_LIMIT = 2**16


def save_moments(moments: Moments, path: str | os.PathLike[str]) -> None:
    """Write a state; see :meth:`Moments.save`."""
    arrays: dict[str, Array | IntArray] = {"shift": moments.shift}
    for name, forest in (("blocked", moments._blocked), ("pooled", moments._pooled)):
        nodes = list(forest)
        size = moments.layout.blocked_size if name == "blocked" else moments.layout.pooled_size
        arrays[f"{name}_nodes"] = np.array([node for node, _ in nodes], dtype=np.int64).reshape(-1, 3)
        arrays[f"{name}_sums"] = np.array([value for _, value in nodes]).reshape(len(nodes), size)
    header = {"format": FORMAT, "version": VERSION, "layout": asdict(moments.layout)}
    header["shapes"] = {name: list(array.shape) for name, array in arrays.items()}
    write_archive(Path(path), header, arrays)


def load_moments(path: str | os.PathLike[str], *, max_bytes: int) -> Moments:
    """Read a state; see :meth:`Moments.load`."""
    header, arrays = read_archive(Path(path), FORMAT, VERSION, max_bytes)
    try:
        layout = Layout(**header["layout"])
        layout.check_memory(3.0 * max_bytes)
    except (KeyError, TypeError, ValueError, MemoryError) as error:
        raise StateFileError(f"{path}: the header does not describe a state ({error})") from error
    expected = {
        "shift": (layout.n_columns + layout.n_targets,),
        "blocked_sums": (len(arrays.get("blocked_nodes", ())), layout.blocked_size),
        "pooled_sums": (len(arrays.get("pooled_nodes", ())), layout.pooled_size),
    }
    for name, shape in expected.items():
        if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise StateFileError(f"{path}: array {name!r} should be float64 of shape {shape}")
    forests = {}
    for name, trees in (("blocked", layout.n_blocks), ("pooled", 1)):
        nodes = arrays.get(f"{name}_nodes")
        if nodes is None or nodes.ndim != 2 or nodes.shape[1] != 3 or nodes.dtype != np.int64:
            raise StateFileError(f"{path}: array '{name}_nodes' should be int64 of shape (nodes, 3)")
        if len(nodes) and not (nodes.min() >= 0 and nodes[:, 0].max() < trees and nodes[:, 1].max() < 64):
            raise StateFileError(f"{path}: '{name}_nodes' names a node that cannot exist")
        forest = Forest()
        for node, value in zip(nodes.tolist(), arrays[f"{name}_sums"], strict=True):
            forest.add((node[0], node[1], node[2]), value)
        if len(forest) != len(nodes) or not np.isfinite(arrays[f"{name}_sums"]).all():
            raise StateFileError(f"{path}: the sums are damaged (repeated nodes or values that are not finite)")
        forests[name] = forest
    return Moments(layout, arrays["shift"].astype(np.float64), forests["blocked"], forests["pooled"])


def write_archive(path: Path, header: dict[str, object], arrays: dict[str, Array | IntArray]) -> None:
    """header.json and one .npy per array, all or nothing."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr("header.json", json.dumps(header, indent=1))
                for name, array in arrays.items():
                    buffer = io.BytesIO()
                    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                    archive.writestr(f"{name}.npy", buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_archive(
    path: Path, kind: str, version: int, max_bytes: int
) -> tuple[dict[str, dict[str, int]], dict[str, Array | IntArray]]:
    """The header and the arrays it declares, after every check that needs no data."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = _read_header(archive, path, kind, version)
            arrays = {
                str(name): _read_array(archive, path, str(name), shape, max_bytes)
                for name, shape in header["shapes"].items()
            }
    except StateFileError:
        raise
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged zip can fail in many ways; all of them mean the same to the user
        raise StateFileError(f"{path} is not a readable state file ({type(error).__name__}: {error})") from error
    return header, arrays


def _read_header(archive: zipfile.ZipFile, path: Path, kind: str, version: int) -> dict[str, dict[str, int]]:
    if archive.getinfo("header.json").file_size > _HEADER_LIMIT:
        raise StateFileError(f"{path}: the header is too large to be one of ours")
    header = json.loads(archive.read("header.json"))
    if not isinstance(header, dict) or header.get("format") != kind:
        raise StateFileError(f"{path} does not hold a {kind}")
    found = header.get("version")
    if not isinstance(found, int) or not 1 <= found <= version:
        raise StateFileError(
            f"{path} has format version {found}, this library reads up to {version}: update richcomponents"
        )
    if not isinstance(header.get("shapes"), dict) or not isinstance(header.get("layout"), dict):
        raise StateFileError(f"{path}: the header is incomplete")
    return header


def _read_array(archive: zipfile.ZipFile, path: Path, name: str, shape: object, max_bytes: int) -> Array | IntArray:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise StateFileError(f"{path}: array {name!r} is compressed; states are written uncompressed")
    with archive.open(info) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise StateFileError(f"{path}: array {name!r} has an unknown header")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=10_000)
        n_bytes = int(np.prod([int(s) for s in found], dtype=object)) * dtype.itemsize
        if list(found) != shape or fortran or dtype not in (np.dtype("<f8"), np.dtype("<i8")):
            raise StateFileError(f"{path}: array {name!r} is {dtype} {found}, the header declares {shape}")
        if n_bytes > max_bytes or n_bytes > info.file_size:
            raise StateFileError(
                f"{path}: array {name!r} claims {n_bytes} bytes (limit {max_bytes}, stored {info.file_size})"
            )
        data = file.read(n_bytes + 1)
    if len(data) != n_bytes:
        raise StateFileError(f"{path}: array {name!r} holds {len(data)} bytes instead of {n_bytes}")
    return np.frombuffer(data, dtype=dtype).reshape(found)
