"""Tables that other libraries hold: data frames with text in some columns, and dask collections."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import Column, frame_columns, holds_numbers
from richcomponents.data.sources.base import Kept, Source, block_rows
from richcomponents.data.table import as_frame, as_matrix, column_names, counts_rows, not_numeric, sample_index
from richcomponents.errors import DataError


class FrameSource(Source):
    """A data frame: only columns that are read as numbers have to be numbers."""

    shared, held = False, True

    def __init__(self, frame: object) -> None:
        self._frame: nw.DataFrame[Any] = as_frame(frame)
        self.names, self._index, labels = column_names(frame), sample_index(frame), getattr(frame, "index", None)
        self._key = getattr(labels, "name", None)
        if labels is not None and not counts_rows(labels):  # numbers 0, 1, 2, ... say nothing
            self.samples = self._index
        self.n_rows, self.width = self._frame.shape
        self._held: tuple[tuple[int, ...], Array] | None = None  # what was read last: a fit reads it several times

    @property
    def index(self) -> tuple[object, ...] | None:
        return self._index

    def labels(self, key: str) -> tuple[object, ...]:
        if key == self._key and key not in (self.names or ()):
            return self._index or ()
        if self.files:
            return super().labels(key)
        self.check_column(key, "the sample labels, id=")
        return tuple(self._frame[key].to_list())  # as they are: those of an outcome are compared with them

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        chosen = tuple(range(self.width)) if columns is None else tuple(columns.tolist())
        if self._held is None or self._held[0] != chosen:
            self._held = chosen, as_matrix(self._frame[:, list(chosen)].to_native())
        yield self._held[1]

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        if not names:
            return {}
        columns = frame_columns(self._frame[:, self.places(names).tolist()].to_native(), written)
        return {name: columns[name] for name in names}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        kinds = dict(zip(self.names or (), self._frame.schema.values(), strict=True))
        name = next((name for name in names if not holds_numbers(kinds[name])), None)
        return None if name is None else (name, not_numeric(self._frame[:, int(self.places([name])[0])]))


class DaskSource(Source):
    """A dask array of two dimensions, or a dask data frame (whose lengths are computed first)."""

    shared = False  # not compared: its rows are read elsewhere

    def __init__(self, collection: Any) -> None:
        self._added: list[Any] = []  # columns behind those of the collection
        kind = type(collection)  # a Delayed has every attribute one asks for, its type has not
        self._frame = collection if hasattr(kind, "to_dask_array") and hasattr(kind, "columns") else None
        if self._frame is not None:
            self.names = tuple(map(str, self._frame.columns))
            self.check_names()
            self._lengths = tuple(int(n) for n in self._frame.map_partitions(len).compute())
            self.width, self.n_rows = len(self.names), sum(self._lengths)
            return
        if not hasattr(kind, "rechunk") or collection.ndim != 2:
            raise DataError(
                f"a dask data frame, or a dask array of two dimensions (samples x columns), is needed, got {collection!r}"
            )
        if any(np.isnan(n) for n in collection.chunks[0]):
            collection = collection.compute_chunk_sizes()
        self._array = collection
        self.n_rows, self.width = (int(n) for n in collection.shape)

    def collection(self, columns: IntArray | None) -> Any:
        """A dask array of these columns."""
        wanted = np.arange(self.width) if columns is None else np.asarray(columns)
        ours = wanted >= self.width - len(self._added)
        inner = wanted[~ours]
        if self._frame is not None:
            rows = self._frame[[self._frame.columns[c] for c in inner]].to_dask_array(lengths=self._lengths)
        else:
            rows = self._array if columns is None and not ours.any() else self._array[:, inner]
        if not ours.any():
            return rows
        import dask.array as da

        more = [self._added[c - self.width][:, None] for c in wanted[ours]]
        together = da.hstack([rows, *more]) if len(inner) else da.hstack(more)
        return together[:, np.argsort(np.argsort(ours, kind="stable"), kind="stable")]

    def pieces(self, lengths: Sequence[int], columns: IntArray | None) -> list[Any]:
        """One delayed array per piece of so many rows."""
        return list(self.collection(columns).rechunk({0: tuple(lengths), 1: -1}).to_delayed()[:, 0])

    def with_columns(self, values: Array, names: Sequence[str]) -> Source:
        import dask.array as da

        joined = copy(self)
        joined._added = [*self._added, *(da.from_array(column, chunks=2**20) for column in values.T)]
        joined.width, joined.more = self.width + values.shape[1], self.more + values.shape[1]
        joined.names = None if self.names is None else (*self.names, *names)
        joined.behind = (*self.behind, *names)
        return joined

    def kept(self, rows: IntArray | None) -> Source:
        if rows is None:
            return Kept(self, rows)
        some, keep = copy(self), np.isin(np.arange(self.n_rows or 0), rows)
        some._added, some.n_rows = [column[keep].compute_chunk_sizes() for column in self._added], int(keep.sum())
        if self._frame is None:
            some._array = self._array[keep].compute_chunk_sizes()
            return some
        from dask import array, dataframe

        mask = dataframe.from_dask_array(array.from_array(keep, chunks=(self._lengths,)), index=self._frame.index)
        some._frame = self._frame.map_partitions(_rows_of, mask, meta=self._frame._meta, align_dataframes=False)
        some._lengths = tuple(int(part.sum()) for part in np.split(keep, np.cumsum(self._lengths)[:-1]))
        return some

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        own = [] if self._frame is None else [name for name in names if name in map(str, self._frame.columns)]
        columns = super().read([name for name in names if name not in own], written)
        if own and self._frame is not None:
            at = {str(name): name for name in self._frame.columns}
            columns |= frame_columns(self._frame[[at[name] for name in own]].compute(), written)
        return {name: columns[name] for name in names}

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        kinds = {} if self._frame is None else {str(name): kind for name, kind in self._frame.dtypes.items()}
        return super().texts([name for name in names if getattr(kinds.get(name), "kind", "f") not in "biuf"])

    def blocks(self, columns: IntArray | None) -> Iterator[Array]:
        rows = self.collection(columns)
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(0, self.n_rows or 0, size):
            yield as_matrix(rows[at : at + size].compute())


def _rows_of(part: Any, mask: Any) -> Any:
    """Some rows of a piece of a data frame of pandas; dask itself loses columns when it reorders such steps."""
    return part[mask.to_numpy()]
