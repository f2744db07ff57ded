"""Rows: the one door through which data are read.

`Rows.reduce(statistic)` feeds blocks of rows to anything that has `update(rows, start)` and
`result()`. Arrays, data frames, memory-mapped files and iterators of blocks all come in here; a
row-wise linear map (partialling out, canonical coordinates) can be applied on the way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from richcomponents.algebra import Array, column_numbers
from richcomponents.errors import DataError
from richcomponents.moments.columns import column_range, column_sum
from richcomponents.views import as_matrix, column_names

__all__ = ["Rows", "Statistic"]

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")
_CHUNK = 2**16


class Statistic(Protocol[_T_co]):
    """What can be reduced over rows."""

    def update(self, rows: object, start: int | None = None) -> None: ...

    def result(self) -> _T_co: ...


class Rows:
    """A source of rows and what is to be done to each of them.

    Parameters
    ----------
    source : array of shape (n_rows, width), or an iterable of such arrays
    n_targets : int
        How many of the last columns are targets.
    names : sequence of str, optional
        Column names, for messages.
    transform : callable, optional
        Applied to every block of rows, row by row.
    """

    def __init__(
        self,
        source: Array | Iterable[object],
        *,
        n_targets: int = 0,
        names: Sequence[str] | None = None,
        transform: Callable[[Array], Array] | None = None,
    ) -> None:
        self.source, self.n_targets, self.names, self.transform = source, n_targets, names, transform

    @classmethod
    def of(cls, X: object, *, targets: object | None = None) -> Rows:
        """Rows of an array, a data frame, an .npy file, or an iterable of blocks; targets come last."""
        if isinstance(X, Rows):
            if targets is not None:
                raise DataError("these rows hold their targets already: use Rows.with_targets for columns among them")
            return X
        names: Sequence[str] | None = None
        source: Array | Iterable[object]
        if isinstance(X, (str, os.PathLike)):
            source = _open_npy(Path(X))
        elif isinstance(X, Iterator) or (isinstance(X, Iterable) and not hasattr(X, "__len__")):
            source = X
        elif isinstance(X, (list, tuple)) and len(X) and all(getattr(block, "ndim", 0) == 2 for block in X):
            source = X  # blocks of rows
        else:
            names = column_names(X)
            source = as_matrix(X)
        if targets is None:
            return cls(source, names=names)
        y = as_matrix(targets, column=True)
        if not isinstance(source, np.ndarray):
            raise DataError(
                "targets go with a table in memory; for blocks of rows use Moments.from_source(targets=columns)"
            )
        if len(y) != len(source):
            raise DataError(f"the targets have {len(y)} rows, the table has {len(source)}")
        if names is not None:
            names = [*names, *(column_names(targets) or [f"target {j}" for j in range(y.shape[1])])]
        return cls(np.hstack([source, y]), n_targets=y.shape[1], names=names)

    @property
    def again(self) -> bool:
        """Whether the rows can be read a second time."""
        return not isinstance(self.source, Iterator)

    def mapped(self, transform: Callable[[Array], Array], n_targets: int | None = None) -> Rows:
        """The same rows with a further row-wise map; its columns have no names."""
        first = self.transform
        then = transform if first is None else lambda block: transform(first(block))
        return Rows(self.source, n_targets=self.n_targets if n_targets is None else n_targets, transform=then)

    def with_targets(self, columns: object) -> Rows:
        """The same rows with some of their columns put last, as targets."""

        def reorder(block: Array) -> Array:
            chosen = column_numbers(columns, block.shape[1])
            rest = np.setdiff1d(np.arange(block.shape[1]), chosen)
            return np.ascontiguousarray(block[:, np.concatenate([rest, chosen])])

        probe, source = _first_width(self.source)
        n_targets = len(column_numbers(columns, probe))
        return Rows(source, n_targets=n_targets, transform=self.transform).mapped(reorder, n_targets=n_targets)

    def chunks(self) -> Iterator[Array]:
        """Blocks of rows in order."""
        if isinstance(self.source, np.memmap) or (isinstance(self.source, np.ndarray) and self.transform):
            blocks: Iterable[object] = (
                self.source[at : at + _CHUNK] for at in range(0, max(len(self.source), 1), _CHUNK)
            )
        elif isinstance(self.source, np.ndarray):
            blocks = (self.source,)
        else:
            blocks = self.source
        for block in blocks:
            rows = as_matrix(block)
            yield rows if self.transform is None else self.transform(rows)

    def reduce(self, statistic: Statistic[_T], *, start: int = 0, groups: object | None = None) -> _T:
        """Feed all rows to the statistic and return its result."""
        if groups is not None:
            if start:
                raise ValueError("rows with groups are read whole: start must be 0")
            grouped = getattr(statistic, "update_grouped", None)
            if grouped is None:
                raise DataError(f"{type(statistic).__name__} does not know groups of rows")
            grouped(np.concatenate(list(self.chunks())), groups)
            return statistic.result()
        for block in self.chunks():
            statistic.update(block, start)
            start += len(block)
        return statistic.result()

    def means(self) -> Array | None:
        """Column means (exactly the value for a constant column); None when the rows can be read only once."""
        if not self.again:
            return None
        return self.reduce(_Means(self.names))


class _Means:
    """Column means to rounding, and the exact value of columns that never change."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names, self.n = names, 0

    def update(self, rows: object, start: int | None = None) -> None:
        block = as_matrix(rows)
        if not len(block):
            return
        low, high = column_range(block)
        if self.n == 0:
            self.total, self.low, self.high = np.zeros(block.shape[1]), low, high
        self.total += column_sum(block)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.n += len(block)

    def result(self) -> Array:
        if self.n == 0:
            raise DataError("there are no rows")
        bad = ~(np.isfinite(self.low) & np.isfinite(self.high))
        if bad.any():
            column = int(np.flatnonzero(bad)[0])
            label = repr(self.names[column]) if self.names is not None else column
            raise DataError(f"column {label} holds a missing or infinite value: drop those rows or impute them first")
        # between the extremes even where the sum overflows or rounds
        mean: Array = np.clip(self.total / self.n, self.low, self.high)
        return mean


def _first_width(source: Array | Iterable[object]) -> tuple[int, Array | Iterable[object]]:
    """How many columns the rows have, and a source that still yields all of them."""
    if isinstance(source, np.ndarray):
        return source.shape[1], source
    if not isinstance(source, Iterator):
        return as_matrix(next(iter(source))).shape[1], source
    first = next(source, None)
    if first is None:
        raise DataError("there are no rows")
    return as_matrix(first).shape[1], chain([first], source)


def _open_npy(path: Path) -> Array:
    if path.suffix != ".npy":
        raise DataError(f"cannot read {path.name}: only .npy files are read directly; load the table first")
    try:
        rows: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path.name}: {error}") from error
    if rows.ndim != 2:
        raise DataError(f"{path.name} must hold a two-dimensional table, its shape is {rows.shape}")
    return rows
