"""Dask arrays and data frames: rows that other processes hold, or can make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.sources.base import Source, block_rows
from richcomponents.errors import DataError

__all__ = ["DaskSource", "is_dask"]


def is_dask(X: object) -> bool:
    """Whether X is a dask collection; dask is not imported for that."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


class DaskSource(Source):
    """A dask array of two dimensions, or a dask data frame (whose lengths are computed first)."""

    shared = False  # not compared: its rows are read elsewhere

    def __init__(self, collection: Any) -> None:
        kind = type(collection)  # a Delayed has every attribute one asks for, its type has not
        self._frame = collection if hasattr(kind, "to_dask_array") and hasattr(kind, "columns") else None
        if self._frame is not None:
            self.names = tuple(map(str, self._frame.columns))
            if len(set(self.names)) < len(self.names):
                raise DataError("the dask data frame has two columns of the same name: rename one")
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
        if self._frame is not None:
            chosen = self._frame if columns is None else self._frame[[self._frame.columns[c] for c in columns]]
            return chosen.to_dask_array(lengths=self._lengths)
        return self._array if columns is None else self._array[:, columns]

    def pieces(self, lengths: Sequence[int], columns: IntArray | None) -> list[Any]:
        """One delayed array per piece of so many rows."""
        return list(self.collection(columns).rechunk({0: tuple(lengths), 1: -1}).to_delayed()[:, 0])

    def with_column(self, values: Array, name: str) -> DaskSource:
        """One more column, last."""
        import dask.array as da

        joined = DaskSource(da.hstack([self.collection(None), da.from_array(values[:, None], chunks=(2**20, 1))]))
        joined.names = None if self.names is None else (*self.names, name)
        return joined

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        rows = self.collection(columns)
        size = block_rows(self.width if columns is None else len(columns))
        for at in range(0, self.n_rows or 0, size):
            yield rows[at : at + size].compute()

    def mark(self) -> str:
        name = self._frame._name if self._frame is not None else self._array.name
        return f"dask {name} {(self.n_rows, self.width)}"
