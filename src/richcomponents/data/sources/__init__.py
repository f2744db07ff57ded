"""Sources of rows: one reader per kind of file, read in blocks, only the needed columns, in bounded memory.

Paths come in, a :class:`Source` goes out: one file, several below each other, or several side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from glob import glob
from pathlib import Path
from typing import Any

from richcomponents.data.sources.arrays import NpySource, NpzSource, h5ad_source, zarr_source
from richcomponents.data.sources.base import JoinedSource, Source
from richcomponents.data.sources.beside import beside, modalities_beside
from richcomponents.data.sources.tables import DelimitedSource, ParquetSource
from richcomponents.errors import DataError

__all__ = ["open_path"]

_READERS: dict[str, Callable[..., Source]] = {
    ".npy": NpySource,
    ".npz": NpzSource,
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".zarr": zarr_source,
    ".h5ad": h5ad_source,
    ".h5mu": modalities_beside,
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), DelimitedSource),
}


def open_path(
    path: Any, id: str | None = None, header: bool | None = None, align: str | None = None, **options: Any
) -> Source:
    """The table in a file, in several below each other (a list, a pattern, a folder), or side by side (a dict)."""
    if isinstance(path, Mapping):
        parts = {str(name): open_path(one, header=header, **options) for name, one in path.items()}
        if align is not None and id is None:
            raise DataError("samples line up by their labels: name the column that holds them, id= (--id)")
        return beside(parts, id, align or "inner")
    if align is not None:
        raise DataError("align= is for tables side by side: give a dict {view: path}")
    if isinstance(path, (list, tuple)):
        source: Source = JoinedSource([open_path(one, header=header, **options) for one in path])
    elif not Path(path).exists() and (several := sorted(glob(os.fspath(path)))):
        return open_path(several, id, header, **options)
    else:
        source = _one(Path(path), {**options, **({} if header is None else {"header": header})})
    if id is not None:
        source.check_column(id, "the sample labels, --id")
        source.key = id
    return source


def _one(place: Path, options: dict[str, object]) -> Source:
    kind = (place.with_suffix("").suffix if place.suffix.lower() == ".gz" else place.suffix).lower()
    if not place.exists():
        raise DataError(f"there is no file {place}")
    if not place.is_file() and not place.is_dir():
        raise DataError(f"{place} is not a regular file: give the name of one")
    if place.is_dir() and kind != ".zarr":
        inside = sorted(p for p in place.rglob("*") if p.suffix in (".parquet", ".pq"))
        if not inside:
            raise DataError(f"{place} is a directory without Parquet files")
        return JoinedSource([ParquetSource(one) for one in inside])
    if kind not in _READERS:
        raise DataError(f"cannot read {place.name}: the formats are {', '.join(_READERS)} (by the file's ending)")
    if _READERS[kind] is not DelimitedSource:
        options.pop("header", None)  # of text tables only; several files may be of several kinds
    try:
        return _READERS[kind](place, **options)
    except TypeError as error:
        raise DataError(f"cannot read {place.name} with these options: {error}") from error
