"""Sources of rows: files and stores that are read in blocks, only the needed columns, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from richcomponents.data.sources.base import (
    ArraySource,
    BlockSource,
    ChangedError,
    Fingerprint,
    JoinedSource,
    Source,
    WithColumn,
    block_rows,
)
from richcomponents.data.sources.delimited import DelimitedSource
from richcomponents.data.sources.npy import NpySource
from richcomponents.data.sources.parquet import ParquetSource
from richcomponents.data.sources.stored import H5adSource, ZarrSource
from richcomponents.errors import DataError

__all__ = [
    "ArraySource",
    "BlockSource",
    "ChangedError",
    "Fingerprint",
    "JoinedSource",
    "Source",
    "WithColumn",
    "block_rows",
    "is_path",
    "open_source",
]

_READERS: dict[str, Callable[..., Source]] = {
    ".npy": NpySource,
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".zarr": ZarrSource,
    ".h5ad": H5adSource,
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), DelimitedSource),
}


def is_path(X: object) -> bool:
    """A path, or a list of paths."""
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(item, (str, os.PathLike)) for item in X)
    return isinstance(X, (str, os.PathLike))


def open_source(path: object, **options: object) -> Source:
    """A table in a file, or in several files with the same columns, to be read in blocks of rows.

    path : .npy, .parquet, .zarr, .h5ad, .csv, .tsv, .tab or .txt (also .csv.gz); a directory of Parquet files; or a list of
    paths, whose rows follow each other. options : `layer=` of an h5ad file; `array=` of a Zarr group; `header=` of a text
    table whose first line holds only numbers: True when they name the columns, False when they are the first row.
    """
    if isinstance(path, (list, tuple)):
        return JoinedSource([open_source(one, **options) for one in _checked(path)])
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a path or a list of paths is needed, got {type(path).__name__}")
    place = Path(path)
    kind = (place.with_suffix("").suffix if place.suffix.lower() == ".gz" else place.suffix).lower()
    if not place.exists():
        raise DataError(f"there is no file {place}")
    if not place.is_file() and not place.is_dir():
        raise DataError(f"{place} is not a regular file: give the name of one")
    if place.is_dir() and kind not in _READERS:
        inside = sorted(p for p in place.rglob("*") if p.suffix in (".parquet", ".pq"))
        if not inside:
            raise DataError(f"{place} is a directory without Parquet files")
        return JoinedSource([open_source(one) for one in inside])
    if kind not in _READERS:
        raise DataError(f"cannot read {place.name}: the formats are {', '.join(_READERS)} (by the file's ending)")
    try:
        return _READERS[kind](place, **options)
    except TypeError as error:
        raise DataError(f"cannot read {place.name} with these options: {error}") from error


def _checked(paths: Sequence[object]) -> Sequence[object]:
    if not is_path(paths):
        raise TypeError("a list of paths is needed")
    return paths
