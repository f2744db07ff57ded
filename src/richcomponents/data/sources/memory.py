"""Tables in memory that are more than a matrix: data frames with text in some columns, AnnData, several tables side by side.

AnnData: the columns are those of X, under the names of its variables; obs describes the samples. Columns of obs are asked for
by their names (as obs:name where a variable has that name, too), a layer as layer:name, an entry of obsm as obsm:name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw

from richcomponents.algebra import Array, IntArray
from richcomponents.data.align import counts_rows, join_views
from richcomponents.data.cells import Column, frame_columns
from richcomponents.data.sources.base import Annotated, ArraySource, Source
from richcomponents.data.table import as_frame, as_matrix, column_names, not_numeric, sample_index


class FrameSource(Source):
    """A data frame: only columns that are read as numbers have to be numbers."""

    shared, held = False, True

    def __init__(self, frame: object) -> None:
        self._frame: nw.DataFrame[Any] = as_frame(frame)
        self.names, labels = column_names(frame), getattr(frame, "index", None)
        if labels is not None and not counts_rows(labels):  # numbers 0, 1, 2, ... say nothing
            self.samples = sample_index(frame)
        self.n_rows, self.width = self._frame.shape
        self._held: tuple[tuple[int, ...], Array] | None = None  # what was read last: a fit reads it several times

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

    def texts(self, names: Sequence[str]) -> dict[str, Column]:
        kinds = [self._frame[:, int(c)].dtype for c in self.places(names)]
        return self.read([n for n, kind in zip(names, kinds, strict=True) if not _is_number(kind)])

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        kinds = dict(zip(self.names or (), self._frame.schema.values(), strict=True))
        name = next((name for name in names if not _is_number(kinds[name])), None)
        return None if name is None else (name, not_numeric(self._frame[:, int(self.places([name])[0])]))


def _is_number(kind: Any) -> bool:
    return bool(kind.is_numeric() or kind == nw.Boolean)


class TablesSource(Annotated, ArraySource):
    """Several tables of the same samples side by side, each a view: a list, a dict {view: table}, or a MuData."""

    def __init__(self, tables: object, *, align: str = "same", id: str | None = None) -> None:
        self.table = table = join_views(tables, align=align, id=id)
        super().__init__(table.values, table.views.feature_names)
        self.named = table.named
        self.views = {name: tuple(self.names[c] for c in table.views[name]) for name in table.views}  # type: ignore[index]
        self.samples = table.index
        parts = getattr(tables, "mod", tables)
        held = [tables, *(parts.values() if isinstance(parts, Mapping) else parts)]  # type: ignore[misc]
        obs = next((part.obs for part in held if hasattr(part, "obs_names")), None)
        if obs is not None:
            self._described = obs if self.samples is None else obs.reindex(list(self.samples))
            self.describe(obs.columns)

    def _obs(self, columns: list[Any]) -> Any:
        return self._described[columns]
