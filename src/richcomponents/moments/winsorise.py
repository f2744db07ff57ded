"""Winsorised columns: values beyond two limits are put at the limits, before anything is summed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array
from richcomponents.errors import DataError
from richcomponents.moments.rows import Rows
from richcomponents.views import as_matrix

__all__ = ["Clip", "RowSample", "winsorised"]

_SAMPLE = 2**17


def winsorised(rows: Rows, limits: object, progress: str | None = None) -> Rows:
    """The rows with view columns clipped; limits as in :meth:`Moments.of`. Targets are left as they are."""
    low, high = _bounds(rows, limits, progress)
    return rows.mapped(Clip(low, high), names=rows.names)


class Clip:
    """A row-wise map. Infinite values are no heavy tail: they become NaN, and are refused where rows are summed."""

    def __init__(self, low: Array, high: Array) -> None:
        self.low, self.high = low, high
        self.mark = hashlib.sha256(low.tobytes() + high.tobytes()).hexdigest()

    def __call__(self, block: Array) -> Array:
        out: Array = np.clip(block, self.low, self.high)
        out[np.isinf(block)] = np.nan
        return out


def _bounds(rows: Rows, limits: object, progress: str | None) -> tuple[Array, Array]:
    """(low, high), one entry per column, infinite for targets."""
    width = len(rows.head(1)[0]) - rows.weighted if rows.transform is not None else rows.width
    views = width - rows.n_targets
    if isinstance(limits, Real) and not isinstance(limits, bool):
        low, high = _quantiles(rows, float(limits), progress)
    else:
        if not isinstance(limits, (tuple, list)) or len(limits) != 2:
            raise ValueError(f"winsorise must be a quantile between 0 and 1/2, or a pair (low, high), got {limits!r}")
        low, high = (np.asarray(limit, dtype=np.float64) for limit in limits)
        for limit in (low, high):
            if limit.shape not in ((), (views,)):
                raise DataError(f"a bound is one number or one per view column ({views}), got shape {limit.shape}")
    low, high = np.broadcast_to(low, views), np.broadcast_to(high, views)
    if not (low <= high).all():
        raise DataError(
            f"winsorise: the lower bound of column {int(np.flatnonzero(~(low <= high))[0])} is above the upper"
        )
    free = np.full(rows.n_targets, np.inf)
    return np.concatenate([low, -free]), np.concatenate([high, free])


def _quantiles(rows: Rows, q: float, progress: str | None) -> tuple[Array, Array]:
    if not 0 < q < 0.5:
        raise ValueError(f"winsorise must be a quantile between 0 and 1/2, got {q}")
    if not rows.again:
        raise DataError("quantiles need a pass of their own: give bounds (low, high), or rows that can be read twice")
    if rows.weighted:
        raise DataError("quantiles do not know weights: give bounds (low, high)")
    sample = rows.reduce(RowSample(), progress=progress)
    views = sample.shape[1] - rows.n_targets
    if not np.isfinite(sample[:, :views]).all():
        column = int(np.flatnonzero(~np.isfinite(sample[:, :views]).all(axis=0))[0])
        label = repr(rows.labels[column]) if rows.labels is not None else column
        raise DataError(f"column {label} holds a missing or infinite value: drop those rows or impute them first")
    low, high = np.quantile(sample[:, :views], [q, 1 - q], axis=0)
    return low, high


class RowSample:
    """All rows up to 2^17 of them; of more rows, those whose numbers have the smallest hashes.

    The hash is a bijection of 64-bit numbers that mixes all bits (splitmix64): a simple random sample for all purposes,
    and the same one whatever the chunks, the order and the workers.
    """

    grain = 1

    def __init__(self) -> None:
        self._parts: list[tuple[Any, ...]] = []

    def update(self, rows: object, start: int | None = None) -> None:
        block = as_matrix(rows)
        numbers = np.arange(start or 0, (start or 0) + len(block), dtype=np.uint64)
        self._parts.append(_smallest(_mixed(numbers), numbers, block))
        if sum(len(part[0]) for part in self._parts) > 2 * _SAMPLE:
            self._parts = [self.join(self._parts)]

    def fork(self) -> Self:
        return type(self)()

    def partial(self) -> tuple[Any, ...]:
        return self.join(self._parts)

    @staticmethod
    def join(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        keys, numbers, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
        return _smallest(keys, numbers, rows)

    def absorb(self, part: tuple[Any, ...], start: int, n_rows: int) -> None:
        self._parts.append(part)

    def result(self) -> Array:
        if not self._parts:
            raise DataError("there are no rows")
        _, numbers, rows = self.join(self._parts)
        ordered: Array = rows[np.argsort(numbers)]
        return ordered


def _smallest(keys: Any, numbers: Any, rows: Array) -> tuple[Any, ...]:
    if len(keys) <= _SAMPLE:
        return keys, numbers, rows.copy()
    chosen = np.argpartition(keys, _SAMPLE)[:_SAMPLE]
    return keys[chosen], numbers[chosen], rows[chosen]


def _mixed(numbers: Any) -> Any:
    """splitmix64 (Steele, Lea and Flood 2014)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
