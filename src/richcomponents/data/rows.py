"""Rows: the one door through which data are read.

Arrays, data frames, files, iterators of blocks and dask collections all come in by :func:`open_source`; columns are chosen and
a row-wise map (partialling out, canonical coordinates) is applied on the way.

Maps are always applied to the same pieces of 2048 rows, counted from the first row of the source: the
bits of a matrix product may depend on how many rows it is given, and must not depend on how they arrive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from richcomponents.algebra import Array, IntArray, Truth
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, in_pieces
from richcomponents.data.align import SideBySide, Table, beside, modalities_beside, named_views
from richcomponents.data.cells import Column
from richcomponents.data.sources.arrays import (
    AnnDataInMemory,
    AnnDataSource,
    NpySource,
    NpzSource,
    h5ad_source,
    zarr_source,
)
from richcomponents.data.sources.base import (
    ArraySource,
    BlockSource,
    JoinedSource,
    Source,
    aligned,
    block_rows,
    is_path,
)
from richcomponents.data.sources.memory import DaskSource, FrameSource
from richcomponents.data.sources.tables import DelimitedSource, ParquetSource
from richcomponents.data.table import (
    are_tables,
    as_matrix,
    check_finite,
    chosen_columns,
    column_names,
    frequencies,
    is_annotated,
    is_dask,
    listed,
    resolve_views,
)
from richcomponents.errors import CapacityError, DataError, warn_user
from richcomponents.text import in_line


@runtime_checkable
class State(Protocol):
    """Sums over rows in place of rows (`moments.Moments`): their columns, which may have names."""

    names: tuple[str, ...] | None
    layout: Any
    sums: Any

    def select(self, columns: Any) -> State: ...


def open_source(X: object, *, id: str | None = None, **options: Any) -> Rows:
    """The rows of a table, wherever it is; all doors, and the command line, open tables here.

    Parameters
    ----------
    X : a table in memory, of dask, a stream, or a path
        An array, a data frame, a sparse matrix, an AnnData, a dict of tables {view: table} or a MuData, an iterator or list of
        blocks of rows, a dask array or data frame; or a path: .npy, .npz, .parquet, .zarr, .h5ad, .h5mu, .csv, .tsv, .tab or
        .txt (also .csv.gz), a directory of Parquet files. A list of paths, or a pattern ("part-*.csv"), is one table whose rows
        follow each other; a dict {view: path} is one table of several views side by side.
    id : name of a column, optional
        The one with sample labels, by which tables of a dict are matched; without it files must have the same rows, and tables
        in memory are matched by their own labels (an index, obs_names).
        `align=` says which samples: "inner" (those of all tables, the default of files), "outer" (of any), "same" (others are
        refused; the default of tables in memory). Every fit takes what is returned: fit(open_source(tables, align="inner"), y).
    **options : align, layer, array, header
        `layer=` of an h5ad file; `array=` of a Zarr group; `header=` of a text table whose first line holds only numbers: True
        when they name the columns, False when they are the first row.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "table.csv"
    ...     _ = path.write_text("a,b\\n1,2\\n3,4\\n")
    ...     rows = open_source(path)
    ...     rows.names, rows.read(["b"])["b"].tolist()
    (('a', 'b'), [2.0, 4.0])
    """
    asked = {name: value for name, value in {"id": id, **options}.items() if value is not None}
    if isinstance(X, (Rows, Source)) and not asked:
        return X if isinstance(X, Rows) else Rows(X)
    if is_path(X):
        return Rows(open_path(X, id, **options))
    several = not (isinstance(X, (Rows, Source)) or is_dask(X)) and are_tables(X)
    mapping = isinstance(X, Mapping) and not sparse.issparse(X)
    if (mapping or (several and (asked or not isinstance(X, (list, tuple))))) and asked.keys() <= {"id", "align"}:
        return Rows(tables_beside(X, **asked))
    if asked:
        raise DataError(
            f"options such as {next(iter(asked))}= are for files (align=, id= also for several tables): leave them out"
        )
    if is_dask(X):
        return Rows(DaskSource(X))
    if isinstance(X, State):
        raise DataError("a state holds sums over rows, and this needs the rows: give a table, or files")
    if not is_annotated(X) and (
        isinstance(X, Iterator)
        or (isinstance(X, Iterable) and not hasattr(X, "__len__"))
        or (isinstance(X, (list, tuple)) and len(X) and all(len(getattr(block, "shape", ())) == 2 for block in X))
    ):
        return Rows(BlockSource(X))
    return Rows(memory_source(X))


def memory_source(X: Any) -> Source:
    """A table in memory; only of arrays all columns have to be numbers."""
    if is_annotated(X):
        return AnnDataSource(AnnDataInMemory(X), ["X"])
    if hasattr(X, "obs_names"):  # like an AnnData, without all that describes samples
        source = memory_source(X.X)
        source.names, source.samples = tuple(map(str, X.var_names)), tuple(X.obs_names)
        return source
    if sparse.issparse(X):
        return ArraySource(X)
    names = column_names(X)
    if names is not None and len(getattr(X, "shape", ())) == 2:
        return FrameSource(X)
    return ArraySource(as_matrix(X), names)


def tables_beside(tables: object, *, align: str = "same", id: str | None = None) -> SideBySide:
    """Several tables in memory, each a view: a list, a dict {view: table}, or a MuData; what was left out is warned of."""
    parts = {}
    for name, table in named_views(tables).items():
        try:
            parts[name] = memory_source(table)
        except DataError as error:
            raise DataError(f"view {name!r}: {error}") from error
        parts[name].title = repr(name)
    samples = AnnDataSource(AnnDataInMemory(tables), ()) if hasattr(tables, "obs_names") else None
    source = beside(parts, id, align, samples)
    source.title, notes, source.notes = "the table", source.notes, ()
    for note in notes:
        warn_user(note, UserWarning)
    return source


def join_views(views: object, *, align: str = "same", id: str | None = None, finite: bool = True) -> Table:
    """One table from several: a list of tables, a dict {name: table}, or a MuData-like object (`.mod`).

    Tables may be arrays, pandas or polars data frames, or AnnData-like objects (`.X`, `.var_names`, `.obs_names`). Where they
    carry sample labels (a pandas index, `obs_names`), rows are matched by these and come in the order of the first table that
    has them; without labels, tables must have the same number of rows and are taken row by row.

    align : "same", labels must be the same ones, in any order; "inner", samples that all tables have, the others are left out,
    counted and named in a warning; "outer", samples that any table has, with nan where a table has none.
    id : the column of sample labels, of data frames (of AnnData: of obs); it is no data.
    finite : refuse missing and infinite values; with align="outer" they are to be expected.

    >>> table = join_views({"rna": np.zeros((4, 2)), "protein": np.ones((4, 3))})
    >>> table.values.shape, table.views["protein"].tolist()
    ((4, 5), [2, 3, 4])
    """
    source = tables_beside(views, align=align, id=id)
    names = source.all_names[: source.width]
    owner = {column: view for view, columns in source.views.items() for column in columns}
    if wrong := source.not_numbers(names):
        raise DataError(f"view {owner[wrong[0]]!r}: column {wrong[0]!r} {wrong[1]}")
    columns = {view: list(own) for view, own in source.views.items()}
    resolved = resolve_views(columns, source.width, names)
    table = Table(np.concatenate(list(source.blocks(None))), resolved, source.samples, source.named)
    if finite and align != "outer":
        check_finite(table.values, table.views)
    return table


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
        return beside(parts, id, align or ("same" if id is None else "inner"))
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


class Rows:
    """A source of rows and what is to be done to each of them.

    Parameters
    ----------
    source : Source, array of shape (n_rows, width), or an iterable of such arrays
    names : sequence of str, optional
        Column names, for messages; those of the source by default.
    maps : sequence of callables
        Applied to every block of rows, row by row, one after another.
    columns : int array, optional
        Which columns of the source are read, and in which order, before the maps.
    weighted : bool
        The last of the columns that are read holds frequency weights; it is no column of the table, is not mapped, and
        comes last in every chunk.

    Of the source there are n_rows (None where only reading tells), views ({name: column names} where it groups its columns
    itself: `views=` for an estimator), files (what is read from disk), rereadable, and held (whether they are in memory).
    """

    def __init__(
        self,
        source: Source | Array | Iterable[object],
        *,
        names: Sequence[str] | None = None,
        maps: Sequence[Callable[[Array], Array]] = (),
        columns: IntArray | None = None,
        weighted: bool = False,
    ) -> None:
        if not isinstance(source, Source):
            source = ArraySource(as_matrix(source)) if isinstance(source, np.ndarray) else BlockSource(source)
        self.source, self.maps, self.weighted = source, tuple(maps), weighted
        self.transform = partial(_through, self.maps, weighted) if maps else None
        self.n_rows, self.views, self.files = source.n_rows, source.views, source.files
        self.rereadable, self.held = source.rereadable, source.held
        every = np.arange(source.width)
        self.columns = None if columns is None or np.array_equal(columns, every) else columns  # None is read faster
        self.read_columns = every if columns is None else columns
        self.width = len(self.read_columns) - weighted  # columns before the maps, without the weights
        if names is None and not maps and source.names is not None:
            names = [source.names[c] for c in self.read_columns[: self.width]]
        self.names = None if names is None else tuple(names)

    def __repr__(self) -> str:
        count = "" if self.n_rows is None else f"{self.n_rows} rows, "
        names = f": {listed([in_line(name) for name in self.names])}" if self.names else ""
        return f"<Rows of {in_line(self.source.title)}, {count}{self.width} columns{names}>"

    @property
    def labels(self) -> Sequence[str | int] | None:
        """What messages call the columns: their names, else their numbers in the source; None where they are 0, 1, ..."""
        if self.names is not None or self.transform is not None or self.columns is None:
            return self.names
        numbers: list[int] = self.columns[: self.width].tolist()
        return numbers

    @property
    def own_width(self) -> int:
        """The columns that masks and slices count: those of the table itself, to which others may have been added."""
        return int(np.sum(self.read_columns[: self.width] < self.source.width - self.source.more))

    @property
    def samples(self) -> tuple[object, ...] | None:
        """The labels of the rows, where they have any: an index, obs_names, or the column that `id=` names."""
        if self.source.samples is None and self.source.key is not None:
            self.source.samples = tuple(self.source.read([self.source.key], [self.source.key])[self.source.key])
        return self.source.samples

    def find(self, column: Any, role: str) -> int | str:
        """The number of a column by its name or number, or the name of what describes the samples; role : for messages."""
        if isinstance(column, str) and column in (self.names or ()):
            return (self.names or ()).index(column)
        if not isinstance(column, str):
            return int(chosen_columns([column], self.width, self.names)[0])
        name = self.source.annotation(column)
        if name is None:
            self.source.check_column(column, role)
        return str(name or column)

    # ---- the same rows, otherwise

    def _of(self, source: Source, columns: IntArray | None, weighted: bool = False) -> Rows:
        """These columns of a source; what is done to columns is done before rows are mapped."""
        if self.transform is not None:
            raise ValueError("columns and rows are chosen, weighted and added before rows are mapped")
        return Rows(source, columns=columns, weighted=weighted)

    def select(self, columns: object) -> Rows:
        """Only these columns (names, numbers, a mask or a slice), in this order; others are not read at all."""
        read, numbers = self.read_columns, chosen_columns(columns, self.width, self.names)
        return self._of(self.source, np.concatenate([read[numbers], read[self.width :]]), self.weighted)

    def including(self, groups: Sequence[str]) -> Rows:
        """The same rows with further columns of the source, by the names of their groups (a layer, an entry of obsm)."""
        return Rows(self.source.including(groups)) if groups else self

    def weighted_by(self, sample_weight: object) -> Rows:
        """The same rows, each counted so often: an array of whole numbers (n_rows,), or the name of a column of the source."""
        if self.weighted:
            raise ValueError("weights are given once")
        source, read = self.source, self.read_columns
        if isinstance(sample_weight, str):
            weight = chosen_columns(sample_weight, self.width, self.names)
            return self._of(source, np.concatenate([np.delete(read, weight), read[weight]]), True)
        source = source.with_columns(frequencies(sample_weight, self.n_rows)[:, None], ["sample_weight"])
        return self._of(source, np.append(read, source.width - 1), True)

    def kept(self, keep: Truth | None) -> Rows:
        """Some of the rows, keep (n_rows,); None: those without gaps, as they come."""
        return self._of(self.source.kept(None if keep is None else np.flatnonzero(keep)), self.columns, self.weighted)

    def unweighted(self) -> Rows:
        """The same rows, each counted once."""
        return self._of(self.source, self.read_columns[: self.width])

    def group_labels(self, groups: object) -> Any:
        """Labels of all rows; a name is a column of the source, whose values are taken as they are written."""
        if not isinstance(groups, str):
            return groups
        if not self.rereadable:
            raise DataError(
                f"groups={groups!r}: rows that are read once cannot be asked for a column before. Pass the labels of all rows"
            )
        if self.source.names is None:
            raise DataError(f"groups={groups!r} names a column, and these have no names: pass the labels of all rows")
        self.source.check_column(groups, "the groups")
        return self.read([groups], [groups])[groups]

    def first_missing(self) -> tuple[int, int, int] | None:
        """Row and column of the first value that is missing or infinite, among rows that count, and how many its column has;
        None where there is none. Reads all rows."""
        counts, first, done = np.zeros(self.width, dtype=np.int64), None, 0
        for block in self._read():
            bad = ~np.isfinite(block[:, : self.width])
            if self.weighted:
                bad &= block[:, -1:] != 0
            if first is None and bad.any():
                row, column = (int(i) for i in np.argwhere(bad)[0])
                first = done + row, column
            counts += bad.sum(axis=0)
            done += len(block)
        return None if first is None else (*first, int(counts[first[1]]))

    def with_columns(self, values: Array, names: Sequence[str]) -> Rows:
        """The same rows with further columns that are in memory, (n_rows, k), behind the others."""
        if self.weighted:
            raise ValueError("columns are added before rows are weighted")
        columns = np.concatenate([self.read_columns, self.source.width + np.arange(values.shape[1])])
        return self._of(self.source.with_columns(values, names), columns)

    def mapped(self, transform: Callable[[Array], Array], names: Sequence[str] | None = None) -> Rows:
        """The same rows with a further row-wise map; its columns have no names unless they are given. Weights stay."""
        maps = (*self.maps, transform)
        return Rows(self.source, names=names, maps=maps, columns=self.columns, weighted=self.weighted)

    # ---- reading

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        """Columns of the source, whole and unmapped, also those that are text or describe the samples (obs): {name: (n,)}.

        Numbers, or texts with None where there is none; those `written` are texts as they are written (007 is not 7).
        """
        for name in {*names} - {*self.source.all_names}:
            self.source.check_column(name, "a column to be read")
        columns = self.source.read(names, written)
        if any(not len(values) for values in columns.values()):
            raise DataError(f"{self.source.title} holds no rows")
        return columns

    def _read(self) -> Iterator[Array]:
        """Blocks of rows as the source has them; those that others can write to must be the same in every pass."""
        source, count = self.source, 0
        blocks = source.blocks(self.columns)
        for block in source.compared(blocks, self.columns) if source.shared and source.rereadable else blocks:
            count += len(block)
            yield block
        if source.n_rows is not None and count != source.n_rows:
            raise DataError(f"{source.title} says that it has {source.n_rows} rows and has {count}: it is damaged")

    def chunks(self) -> Iterator[Array]:
        """Blocks of rows in order, mapped."""
        if self.transform is None:
            yield from self._read()
            return
        pieces = int(np.clip(block_rows(self.width) // LEAF, 1, 32))  # mapped before they are handed on
        for block in aligned(self._read(), LEAF * pieces):
            yield in_pieces(self.transform, block)

    def array(self, limit: float = MEMORY_LIMIT, first: int | None = None) -> Array:
        """All rows in memory, or the first ones."""
        blocks: list[Array] = []
        size = count = 0
        for block in self.chunks():
            blocks.append(block if first is None else block[: first - count])
            size, count = size + block.nbytes, count + len(block)
            if first is not None and count >= first:
                break
            if size > limit:
                raise CapacityError(
                    f"these rows do not fit into {limit / 2**30:.1f} GiB of memory: use fewer columns (views=)"
                )
        if not blocks:
            raise DataError("there are no rows")
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def head(self, n: int) -> Array:
        """The first n rows (fewer when there are fewer), for rows that can be read again."""
        return self.array(first=n)

    def more_than(self, n: int) -> bool:
        """Whether there are more than n rows that count, each once however often it counts; reads no further than it must."""
        if self.n_rows is not None and not self.weighted:
            return self.n_rows > n
        seen = 0
        for rows in self._read():
            seen += int(np.sum(rows[:, -1] > 0)) if self.weighted else len(rows)
            if seen > n:
                return True
        return False


def _through(maps: Sequence[Callable[[Array], Array]], weighted: bool, block: Array) -> Array:
    """Row-wise maps, one after another; weights, last, stay."""
    rows = block[:, :-1] if weighted else block
    for one in maps:
        rows = one(rows)
    return np.column_stack([rows, block[:, -1]]) if weighted else rows
