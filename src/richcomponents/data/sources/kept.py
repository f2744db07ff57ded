"""Some rows of a source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from richcomponents.algebra import IntArray
from richcomponents.data.columns import Column
from richcomponents.data.sources.base import Source
from richcomponents.data.table import as_matrix


class Kept(Source):
    """The rows of a source that are wanted, keep (n,); None: those without gaps in the columns that are read, as they come.

    dropped : how many rows were left out when they were last read.
    """

    def __init__(self, source: Source, keep: npt.NDArray[np.bool_] | None) -> None:
        self.source, self._keep, self.dropped = source, keep, 0
        for name in (
            "names",
            "annotations",
            "views",
            "groups",
            "behind",
            "width",
            "rereadable",
            "held",
            "shared",
            "title",
            "files",
        ):
            setattr(self, name, getattr(source, name))
        self.named = getattr(source, "named", True)
        if keep is not None:
            self.n_rows = int(keep.sum())
            self.samples = None if source.samples is None else tuple(np.array(source.samples, dtype=object)[keep])

    def blocks(self, columns: IntArray | None) -> Iterator[object]:
        start = self.dropped = 0
        for block in self.source.blocks(columns):
            rows = as_matrix(block)
            here = slice(start, start + len(rows))
            wanted = np.isfinite(rows).all(axis=1) if self._keep is None else self._keep[here]
            start, self.dropped = start + len(rows), self.dropped + int(len(rows) - wanted.sum())
            yield rows if wanted.all() else rows[wanted]

    def read(self, names: Sequence[str], written: Collection[str] = ()) -> dict[str, Column]:
        columns = self.source.read(names, written)
        return columns if self._keep is None else {name: values[self._keep] for name, values in columns.items()}

    def not_numbers(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self.source.not_numbers(names)

    def orders(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return self.source.orders(names)
