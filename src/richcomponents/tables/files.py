"""Files into named columns."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.archive import read_arrays
from richcomponents.data.sources.delimited import DelimitedSource, is_missing, is_number, numbers, words
from richcomponents.data.sources.parquet import ParquetSource
from richcomponents.data.sources.stored import H5adSource, modalities, sample_frame
from richcomponents.data.views import as_matrix, is_exact, is_label
from richcomponents.errors import DataError

__all__ = ["Column", "Columns", "FileTable", "digest", "join_files", "listed", "read_table"]

Column = np.ndarray[Any, Any]


class Columns(Mapping[str, Column]):
    """Named columns of n_rows values, each made when it is first asked for: what nobody uses is never converted."""

    def __init__(self, n_rows: int, makers: Mapping[str, Callable[[], Column]]) -> None:
        self.n_rows, self._makers, self._made = n_rows, dict(makers), dict[str, Column]()

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers


def _later(
    columns: Mapping[str, Column], names: Iterable[str], rows: Column | None = None, front: str = ""
) -> dict[str, Callable[[], Column]]:
    """How to make some of the columns, or some of their rows, with something in front of their names."""

    def make(name: str) -> Column:
        return columns[name] if rows is None else columns[name][rows]

    return {f"{front}{name}": partial(make, name) for name in names}


@dataclass(frozen=True)
class FileTable:
    """The columns of one or several files, in order.

    columns : {name: (n,) float64, or strings where they are not numbers}; views : {name: column names} where the file
    itself groups them (matrices of an .npz, modalities of an .h5mu, one file per view); labels : {name: (n,) texts, None
    where missing} of columns that name samples or groups, as they are written: 007 is not 7, and no digit is rounded away.
    """

    source: str
    columns: Mapping[str, Column]
    views: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        if isinstance(self.columns, Columns):
            return self.columns.n_rows
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


def read_table(path: str | Path, labels: Collection[str] = (), header: bool | None = None) -> FileTable:
    """A file as columns, by its ending: .csv, .tsv, .txt (also .gz), .npy, .npz, .parquet, .h5ad, .h5mu.

    labels : columns that name samples or groups, wherever there are such; they are kept as they are written, too. header :
    whether the first line of a text table holds column names, where it holds only numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    kind = path.suffixes[-2] if path.suffix.lower() == ".gz" and len(path.suffixes) > 1 else path.suffix
    reader = _READERS.get(kind.lower())
    if reader is None:
        raise DataError(f"cannot tell what {path.name} is: its name must end in one of {', '.join(_READERS)}")
    table = _read_text(path, labels, header) if reader is _read_text else reader(path, labels)
    if not table.columns:
        raise DataError(f"{path.name} holds no columns")
    if not len(table):
        raise DataError(f"{path.name} holds no rows")
    return table


def _read_text(path: Path, labels: Collection[str], header: bool | None = None) -> FileTable:
    """A text table, by the one reader of such; its cells stay bytes until a column is asked for."""
    import pyarrow

    source = DelimitedSource(path, header)
    names = source.names or tuple(f"x{i}" for i in range(source.width))
    pieces = [cells for _, cells in source.cells(range(source.width))]
    cells = {
        name: pyarrow.chunked_array([piece[i] for piece in pieces], pyarrow.binary()) for i, name in enumerate(names)
    }

    def made(name: str) -> Column:
        try:
            found = numbers(cells[name])
            return np.array(words(cells[name]), dtype=object) if found is None else found
        except UnicodeDecodeError as error:
            raise DataError(f"column {name!r} of {path.name} is not text in UTF-8: save it as CSV in UTF-8") from error

    written = {name: np.array(words(cells[name]), dtype=object) for name in labels if name in cells}
    n_rows = sum(len(piece[0]) for piece in pieces)
    return FileTable(path.name, Columns(n_rows, {name: partial(made, name) for name in names}), labels=written)


def _check_unique(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path.name} names two columns {twice!r}: rename one")


def _as_labels(values: Sequence[Any]) -> Column:
    """Texts, None where missing; whole numbers are written as such, whatever the file keeps them in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    texts = [None if v is None or v != v or is_missing(str(v)) else str(v) for v in whole]
    return np.array(texts, dtype=object)


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
    from pyarrow.parquet import ParquetFile

    source = ParquetSource(path)
    mark, n_rows = source.mark(), source.n_rows or 0

    def read(names: Sequence[str]) -> Any:
        try:
            with ParquetFile(path, page_checksum_verification=True) as file:
                frame = file.read(columns=names)
        except Exception as error:  # damaged pages can fail in many ways
            raise DataError(f"cannot read {path.name}: {error}") from error
        if frame.num_rows != n_rows or source.mark() != mark:
            raise DataError(f"{path.name} has other rows than it says ({n_rows}): it is damaged, or was written to")
        return frame

    def made(name: str) -> Column:
        return _frame_columns(read([name]))[name]

    names = source.names or ()
    written = _frame_labels(read([name for name in names if name in labels]), labels) if labels else {}
    return FileTable(path.name, Columns(n_rows, {name: partial(made, name) for name in names}), labels=written)


def _read_h5ad(path: Path, labels: Collection[str]) -> FileTable:
    source = H5adSource(path)
    obs = sample_frame(path).reset_index(drop=True)
    columns = _variables(path, source)
    matrix = {"X": tuple(columns)}
    columns |= {name: values for name, values in _frame_columns(obs).items() if name not in columns}
    return FileTable(path.name, columns, matrix, labels=_frame_labels(obs, labels))


def _read_h5mu(path: Path, labels: Collection[str]) -> FileTable:
    sources, obs = modalities(path), sample_frame(path)
    where = {name: {s: i for i, s in enumerate(source.samples or ())} for name, source in sources.items()}
    samples = list(map(str, obs.index))
    kept = [i for i, sample in enumerate(samples) if all(sample in rows for rows in where.values())]
    if not kept:
        raise DataError(f"the modalities of {path.name} ({', '.join(sources)}) have no sample in common")
    parts = {}
    for name, source in sources.items():
        rows = np.array([where[name][samples[i]] for i in kept])
        own = {column: values[rows] for column, values in _variables(path, source).items()}
        parts[name] = FileTable(name, own)
    obs = obs.iloc[kept].reset_index(drop=True)
    others = FileTable(path.name, _frame_columns(obs), labels=_frame_labels(obs, labels))
    return _side_by_side(path.name, parts, others)


def _variables(path: Path, source: H5adSource) -> dict[str, Column]:
    """The columns of X of an annotated matrix."""
    names = source.names or tuple(f"x{i}" for i in range(source.width))
    _check_unique(path, names)
    matrix = np.concatenate([np.empty((0, source.width)), *map(as_matrix, source.blocks(None))])
    return {name: np.ascontiguousarray(matrix[:, i]) for i, name in enumerate(names)}


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
    out. Without a key the files must have the same rows in the same order; labels that say otherwise are refused.
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
        _refuse_contradiction(tables)
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


def _refuse_contradiction(tables: Sequence[FileTable]) -> None:
    """Files that are paired row by row must not label their rows differently."""
    first: dict[str, FileTable] = {}
    for table in tables:
        for name in table.columns:
            other = first.setdefault(name, table)
            if other is table or not all(_labels_rows(name, part.columns[name]) for part in (other, table)):
                continue
            here, there = (part.labelled(name, "sample labels").tolist() for part in (other, table))
            if here == there:
                continue
            row = next(i for i, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1])
            how = "the same values in another order" if set(here) == set(there) else "other values"
            raise DataError(
                f"{other.source} and {table.source} both have a column {name!r}, with {how}: data row {row + 1} is "
                f"{here[row]!r} in the one and {there[row]!r} in the other. Match rows by it: --id {shlex.quote(name)}"
                "; or, if it does not label samples, take it out of one of the files"
            )


def _labels_rows(name: str, values: Column) -> bool:
    """Whether a column labels the rows: texts, if its name says so or no two are the same; whole numbers, if both."""
    unique = len(set(values.tolist())) == len(values)
    if values.dtype.kind in "biuf":
        return is_label(name) and unique and bool((np.mod(values, 1) == 0).all())
    return is_label(name) or (unique and not any(is_number(str(value)) for value in values[:20]))


def _only(table: FileTable, wanted: Callable[[str], bool]) -> FileTable:
    """Some of the columns of a table."""
    return FileTable(
        table.source,
        Columns(len(table), _later(table.columns, filter(wanted, table.columns))),
        {view: tuple(filter(wanted, columns)) for view, columns in table.views.items()},
        labels={name: values for name, values in table.labels.items() if wanted(name)},
    )


def _side_by_side(source: str, parts: Mapping[str, FileTable], others: FileTable) -> FileTable:
    """One view per part; where two parts use a name, all get the part's name in front."""
    every = [*others.columns, *(column for part in parts.values() for column in part.columns)]
    clash = len(set(every)) < len(every)
    columns, labels = _later(others.columns, others.columns), dict(others.labels)
    views = {}
    for name, part in parts.items():
        front = f"{name}:" if clash else ""
        own = _later(part.columns, part.columns, front=front)
        columns |= own
        labels |= {f"{front}{column}": values for column, values in part.labels.items()}
        grouped = {column for inside in part.views.values() for column in inside} or set(part.columns)
        views[name] = tuple(f"{front}{column}" for column in part.columns if column in grouped)
    return FileTable(source, Columns(len(next(iter(parts.values()))), columns), views, labels)


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
        written = {name: values[order] for name, values in table.labels.items()}
        columns = Columns(len(kept), _later(table.columns, table.columns, order))
        out.append(FileTable(table.source, columns, table.views, written))
    return out, len(set().union(*where)) - len(kept)
