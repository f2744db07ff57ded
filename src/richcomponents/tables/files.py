"""Files into named columns."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.errors import DataError
from richcomponents.moments.files import read_arrays
from richcomponents.moments.sources.delimited import is_number
from richcomponents.views import is_exact

__all__ = ["Column", "FileTable", "digest", "join_files", "listed", "read_table"]

_MISSING = {"", "na", "n/a", "nan", "null", "none", "."}
Column = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FileTable:
    """The columns of one or several files, in order.

    columns : {name: (n,) float64, or strings where they are not numbers}; views : {name: column names} where the file
    itself groups them (matrices of an .npz, modalities of an .h5mu, one file per view); labels : {name: (n,) texts, None
    where missing} of columns that name samples or groups, as they are written: 007 is not 7, and no digit is rounded away.
    """

    source: str
    columns: dict[str, Column]
    views: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def named(self, name: str, role: str) -> Column:
        """A column, or an error that says what it was wanted for and what there is."""
        if name not in self.columns:
            close = get_close_matches(name, self.columns, n=3)
            hint = (
                f"did you mean {' or '.join(map(repr, close))}?" if close else f"the columns are {listed(self.columns)}"
            )
            raise DataError(f"{self.source} has no column {name!r} ({role}); {hint}")
        return self.columns[name]

    def labelled(self, name: str, role: str) -> Column:
        """A column as labels: those that were read as such, else the values as texts."""
        values = self.named(name, role)
        return self.labels[name] if name in self.labels else _as_labels(values.tolist())


def listed(names: Sequence[str] | Mapping[str, object], most: int = 8) -> str:
    """The first names, and how many there are."""
    shown = ", ".join(list(names)[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")


def digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- one file


def read_table(path: str | Path, labels: Collection[str] = ()) -> FileTable:
    """A file as columns, by its ending: .csv, .tsv, .txt (also .gz), .npy, .npz, .parquet, .h5ad, .h5mu.

    labels : columns that name samples or groups, wherever there are such; they are kept as they are written, too.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    kind = path.suffixes[-2] if path.suffix == ".gz" and len(path.suffixes) > 1 else path.suffix
    reader = _READERS.get(kind.lower())
    if reader is None:
        raise DataError(f"cannot tell what {path.name} is: its name must end in one of {', '.join(_READERS)}")
    table = reader(path, labels)
    if not table.columns:
        raise DataError(f"{path.name} holds no columns")
    if not len(table):
        raise DataError(f"{path.name} holds no rows")
    return table


def _read_text(path: Path, labels: Collection[str]) -> FileTable:
    """Comma-, semicolon- or tab-separated values under a line of column names; empty cells and NA are missing."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not text in UTF-8 (byte {error.start}): save it as CSV in UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name} is damaged, or not what its name says: {error}") from error
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max("\t,;", key=head.count), skipinitialspace=True)
    lines, rows = [], []
    try:
        for row in reader:
            if row:
                lines.append(reader.line_num)
                rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path.name}, line {reader.line_num} cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path.name} is empty")
    names = [name.strip() for name in rows[0]]
    _check_names(path, names)
    for number, row in zip(lines, rows, strict=True):
        if len(row) != len(names):
            raise DataError(
                f"{path.name}, line {number} has {len(row)} cells, the first line names {len(names)} columns"
            )
    cells = list(zip(*rows[1:], strict=True)) if len(rows) > 1 else [()] * len(names)
    columns = dict(zip(names, cells, strict=True))
    written = {name: _as_labels([cell.strip() for cell in columns[name]]) for name in labels if name in columns}
    return FileTable(path.name, {name: _as_column(column) for name, column in columns.items()}, labels=written)


def _check_names(path: Path, names: Sequence[str]) -> None:
    _check_unique(path, names)
    if names and all(is_number(name) or name.lower() in _MISSING for name in names):
        raise DataError(f"the first line of {path.name} holds numbers, or nothing: put column names there")


def _check_unique(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path.name} names two columns {twice!r}: rename one")


def _as_labels(values: Sequence[Any]) -> Column:
    """Texts, None where missing; whole numbers are written as such, whatever the file keeps them in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    texts = [None if v is None or v != v or str(v).lower() in _MISSING else str(v) for v in whole]
    return np.array(texts, dtype=object)


def _as_column(cells: Sequence[str]) -> Column:
    """Numbers where all cells are numbers or missing (nan), else the cells themselves; 1_000 is Python, not a number."""
    if any("_" in cell for cell in cells):
        return _as_words(cells)
    try:
        return np.array(cells, dtype=np.str_).astype(np.float64)
    except ValueError:
        pass
    missing = [cell.strip().lower() in _MISSING for cell in cells]
    try:
        return np.array([np.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)])
    except ValueError:
        return _as_words(cells)


def _as_words(cells: Sequence[str]) -> Column:
    return np.array([None if (word := cell.strip()).lower() in _MISSING else word for cell in cells], dtype=object)


def _read_numpy(path: Path, labels: Collection[str]) -> FileTable:
    """Matrices are views (columns name_0, name_1, ...), vectors are columns."""
    arrays = read_arrays(path)
    columns: dict[str, Column] = {}
    views: dict[str, tuple[str, ...]] = {}
    written: dict[str, Column] = {}
    lengths = {name: len(array) for name, array in arrays.items() if array.ndim in (1, 2)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise DataError(f"the arrays of {path.name} must have the same number of rows: {counts}")
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise DataError(f"array {name!r} of {path.name} has {array.ndim} dimensions: matrices and vectors are read")
        matrix = array if array.ndim == 2 else array[:, None]
        own = [f"{name}_{i}" for i in range(matrix.shape[1])] if array.ndim == 2 else [name]
        clash = next((column for column in own if column in columns), None)
        if clash is not None:
            raise DataError(f"two arrays of {path.name} make a column {clash!r}, {name!r} is one of them: rename it")
        columns |= {column: _number_column(values) for column, values in zip(own, matrix.T, strict=True)}
        written |= {column: _as_labels(matrix[:, i].tolist()) for i, column in enumerate(own) if column in labels}
        if array.ndim == 2:
            views[name] = tuple(own)
    return FileTable(path.name, columns, views, written)


def _number_column(values: Column) -> Column:
    """Floating-point numbers where they can be, whole numbers as they are beyond 2**53, and what is no number."""
    if values.dtype.kind in "iu" and len(values) and not is_exact(int(values.min()), int(values.max())):
        return values
    return values.astype(np.float64) if values.dtype.kind in "biuf" else values.astype(object)


def _frame_columns(frame: Any) -> dict[str, Column]:
    """Columns of a pandas, polars or pyarrow table; missing values become nan (None for strings)."""
    import narwhals.stable.v1 as nw

    columns: dict[str, Column] = {}
    for series in nw.from_native(frame, eager_only=True).iter_columns():
        whole = series.dtype.is_integer() and series.null_count() < len(series)
        if whole and not is_exact(int(series.min()), int(series.max())):  # labels; refused where they are to be data
            columns[str(series.name)] = series.to_numpy()
        elif series.dtype.is_numeric() or series.dtype == nw.Boolean:
            columns[str(series.name)] = series.cast(nw.Float64).to_numpy().astype(np.float64)
        else:
            columns[str(series.name)] = np.array(
                [None if value is None or value != value else str(value) for value in series.to_list()], dtype=object
            )
    return columns


def _frame_labels(frame: Any, labels: Collection[str]) -> dict[str, Column]:
    """Those columns of a table that are labels, before anything is made a floating-point number."""
    import narwhals.stable.v1 as nw

    table = nw.from_native(frame, eager_only=True)
    return {name: _as_labels(table[name].to_list()) for name in map(str, table.columns) if name in labels}


def _read_parquet(path: Path, labels: Collection[str]) -> FileTable:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read
    except ImportError as error:
        raise _extra(path, "parquet") from error
    try:
        frame = read(path)
    except (ArrowException, OSError) as error:
        raise DataError(f"cannot read {path.name}: {error}") from error
    _check_unique(path, frame.column_names)
    return FileTable(path.name, _frame_columns(frame), labels=_frame_labels(frame, labels))


def _read_h5ad(path: Path, labels: Collection[str]) -> FileTable:
    try:
        from anndata import read_h5ad
    except ImportError as error:
        raise _extra(path, "h5ad") from error
    data = read_h5ad(path)
    matrix = {"X": tuple(map(str, data.var_names))}
    return FileTable(
        path.name, _annotated(path, data), matrix, labels=_frame_labels(data.obs.reset_index(drop=True), labels)
    )


def _read_h5mu(path: Path, labels: Collection[str]) -> FileTable:
    try:
        from mudata import read_h5mu
    except ImportError as error:
        raise _extra(path, "h5ad") from error
    data = read_h5mu(path)
    common = [sample for sample in data.obs_names if all(sample in part.obs_names for part in data.mod.values())]
    if not common:
        raise DataError(f"the modalities of {path.name} ({', '.join(data.mod)}) have no sample in common")
    parts = {name: FileTable(name, _annotated(path, part[common], obs=False)) for name, part in data.mod.items()}
    obs = data.obs.loc[common].reset_index(drop=True)
    others = FileTable(path.name, _frame_columns(obs), labels=_frame_labels(obs, labels))
    return _side_by_side(path.name, parts, others)


def _annotated(path: Path, data: Any, *, obs: bool = True) -> dict[str, Column]:
    """Columns of an AnnData: its variables and, if wanted, the annotations of its samples."""
    _check_unique(path, [str(name) for name in data.var_names])
    matrix = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    columns = {str(name): np.array(matrix[:, i], dtype=np.float64) for i, name in enumerate(data.var_names)}
    if obs:
        annotations = _frame_columns(data.obs.reset_index(drop=True))
        columns |= {name: values for name, values in annotations.items() if name not in columns}
    return columns


def _extra(path: Path, extra: str) -> DataError:
    return DataError(f"reading {path.name} needs optional libraries: pip install 'richcomponents[{extra}]'")


_READERS: dict[str, Callable[[Path, Collection[str]], FileTable]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".tab": _read_text,
    ".txt": _read_text,
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".parquet": _read_parquet,
    ".h5ad": _read_h5ad,
    ".h5mu": _read_h5mu,
}


# ---- several files


def join_files(tables: Sequence[FileTable], key: str | None = None) -> tuple[FileTable, list[str]]:
    """One table from several, one view per file, and sentences about what was done.

    key : a column with sample labels, in every file: rows are matched by it, samples that are not in all files are left
    out. Without a key the files must have the same rows in the same order.
    """
    notes: list[str] = []
    if len(tables) == 1:
        if key is not None:
            tables[0].named(key, "the sample labels, --id")
        return tables[0], notes
    if key is not None:
        tables, lost = _matched(tables, key)
        if lost:
            notes.append(f"{lost} samples are not in every file and were left out; {len(tables[0])} are kept.")
    elif len({len(table) for table in tables}) > 1:
        counts = ", ".join(f"{table.source} has {len(table)}" for table in tables)
        raise DataError(
            f"the files have different numbers of rows ({counts}): name the column of sample labels with --id"
        )
    else:
        notes.append(
            "The files' rows are taken to be the same samples in the same order (name their labels with --id)."
        )
    names = [Path(table.source).name.partition(".")[0] for table in tables]
    if len(set(names)) < len(names):
        names = [table.source for table in tables]
    if len(set(names)) < len(names):
        raise DataError(f"two files are called {names[0]!r}: rename one")
    shared = _only(tables[0], lambda column: column == key)
    parts = {name: _only(table, lambda column: column != key) for name, table in zip(names, tables, strict=True)}
    return _side_by_side(" and ".join(table.source for table in tables), parts, shared), notes


def _only(table: FileTable, wanted: Callable[[str], bool]) -> FileTable:
    """Some of the columns of a table."""
    return FileTable(
        table.source,
        {name: values for name, values in table.columns.items() if wanted(name)},
        {view: tuple(filter(wanted, columns)) for view, columns in table.views.items()},
        labels={name: values for name, values in table.labels.items() if wanted(name)},
    )


def _side_by_side(source: str, parts: Mapping[str, FileTable], others: FileTable) -> FileTable:
    """One view per part; where two parts use a name, all get the part's name in front."""
    every = [*others.columns, *(column for part in parts.values() for column in part.columns)]
    clash = len(set(every)) < len(every)
    columns, labels = dict(others.columns), dict(others.labels)
    views = {}
    for name, part in parts.items():
        front = f"{name}:" if clash else ""
        own = {f"{front}{column}": values for column, values in part.columns.items()}
        columns |= own
        labels |= {f"{front}{column}": values for column, values in part.labels.items()}
        grouped = {column for inside in part.views.values() for column in inside} or set(part.columns)
        views[name] = tuple(f"{front}{column}" for column in part.columns if column in grouped)
    return FileTable(source, columns, views, labels)


def _matched(tables: Sequence[FileTable], key: str) -> tuple[list[FileTable], int]:
    where: list[dict[object, int]] = []
    for table in tables:
        labels = table.labelled(key, "the sample labels, --id").tolist()
        if None in labels:
            raise DataError(f"data row {labels.index(None) + 1} of {table.source} has no label in {key!r}: give it one")
        rows = {label: row for row, label in enumerate(labels)}
        if len(rows) < len(labels):
            twice = next(label for i, label in enumerate(labels) if rows[label] != i)
            raise DataError(f"{table.source} has two rows labelled {twice!r} in {key!r}: labels must be unique")
        where.append(rows)
    kept = [label for label in where[0] if all(label in rows for rows in where)]
    if not kept:
        first = ", ".join(repr(next(iter(rows))) for rows in where)
        raise DataError(f"the files share no sample label in {key!r} (their first labels are {first})")
    out = []
    for table, rows in zip(tables, where, strict=True):
        order = np.array([rows[label] for label in kept])
        columns, written = (
            {name: values[order] for name, values in held.items()} for held in (table.columns, table.labels)
        )
        out.append(FileTable(table.source, columns, table.views, written))
    return out, len(set().union(*where)) - len(kept)
