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
from collections.abc import Callable
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

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
    header["nodes"] = {"blocked": len(arrays["blocked_nodes"]), "pooled": len(arrays["pooled_nodes"])}
    write_archive(Path(path), header, arrays)


def load_moments(path: str | os.PathLike[str], *, max_bytes: int) -> Moments:
    """Read a state; see :meth:`Moments.load`."""

    def expected(header: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
        layout = Layout(**header["layout"])
        blocked, pooled = (int(header["nodes"][name]) for name in ("blocked", "pooled"))
        if blocked < 0 or pooled < 0:
            raise ValueError("a negative number of nodes")
        return {
            "shift": ((layout.n_columns + layout.n_targets,), "<f8"),
            "blocked_nodes": ((blocked, 3), "<i8"),
            "blocked_sums": ((blocked, layout.blocked_size), "<f8"),
            "pooled_nodes": ((pooled, 3), "<i8"),
            "pooled_sums": ((pooled, layout.pooled_size), "<f8"),
        }

    header, arrays = read_archive(Path(path), FORMAT, VERSION, expected, max_bytes)
    layout = Layout(**header["layout"])
    forests = {}
    for name, trees in (("blocked", layout.n_blocks), ("pooled", 1)):
        nodes = arrays[f"{name}_nodes"]
        if len(nodes) and not (nodes.min() >= 0 and nodes[:, 0].max() < trees and nodes[:, 1].max() < 64):
            raise StateFileError(f"{path}: '{name}_nodes' names a node that cannot exist")
        forest = Forest()
        for node, value in zip(nodes.tolist(), arrays[f"{name}_sums"], strict=True):
            forest.add((int(node[0]), int(node[1]), int(node[2])), value)
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
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # temporary files are private; a saved state is an ordinary file
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


Expected = Callable[[dict[str, Any]], dict[str, tuple[tuple[int, ...], str]]]


def read_archive(
    path: Path, kind: str, version: int, expected: Expected, max_bytes: int
) -> tuple[dict[str, Any], dict[str, Array | IntArray]]:
    """The header, and the arrays whose names, shapes and types follow from it: all checked before any value is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = _read_header(archive, path, kind, version)
            try:
                wanted = expected(header)
            except (KeyError, TypeError, ValueError, MemoryError) as error:
                raise StateFileError(f"{path}: the header does not describe a state ({error!r})") from error
            total = sum(8 * prod(shape) for shape, _ in wanted.values())
            if total > max_bytes:
                raise StateFileError(f"{path} declares {total} bytes of sums, more than the limit {max_bytes}")
            arrays = {name: _read_array(archive, path, name, *what) for name, what in wanted.items()}
    except (StateFileError, FileNotFoundError):
        raise
    except Exception as error:  # a damaged zip can fail in many ways; all of them mean the same to the user
        raise StateFileError(f"{path} is not a readable state file ({type(error).__name__}: {error})") from error
    return header, arrays


def _read_header(archive: zipfile.ZipFile, path: Path, kind: str, version: int) -> dict[str, Any]:
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
    return header


def _read_array(archive: zipfile.ZipFile, path: Path, name: str, shape: tuple[int, ...], kind: str) -> Array | IntArray:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise StateFileError(f"{path}: array {name!r} is compressed; states are written uncompressed")
    n_bytes = 8 * prod(shape)
    with archive.open(info) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise StateFileError(f"{path}: array {name!r} has an unknown header")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=10_000)
        if tuple(found) != shape or fortran or dtype.str != kind:
            raise StateFileError(f"{path}: array {name!r} is {dtype} {found}, it should be {kind} {shape}")
        data = file.read(n_bytes + 1)
    if len(data) != n_bytes:
        raise StateFileError(f"{path}: array {name!r} holds {len(data)} bytes instead of {n_bytes}")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
