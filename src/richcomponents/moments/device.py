"""Moments of a table that is an array of another library and stays on its device."""

from __future__ import annotations

from typing import Any

from richcomponents.algebra import Array
from richcomponents.errors import DataError
from richcomponents.moments.accumulator import Accumulator
from richcomponents.moments.namespaces import as_rows, concatenated, in_memory, on_device
from richcomponents.moments.state import Moments

__all__ = ["device_moments"]


def device_moments(
    X: object,
    order: int,
    shift: Array | None,
    start: int,
    *,
    targets: object | None,
    groups: object | None,
    **options: Any,
) -> Moments:
    """As :meth:`Moments.of`; targets come from anywhere and are put beside the table."""
    table, n_targets = as_rows(X), 0
    if targets is not None:
        y = in_memory(targets, column=True)
        n_targets = y.shape[1]
        if len(y) != table.shape[0]:
            raise DataError(f"the targets have {len(y)} rows, the table has {table.shape[0]}")
        table = concatenated([table, on_device(y, table)], axis=1)
    if not table.shape[0]:
        raise DataError("there are no rows")
    accumulator = Accumulator(order, shift, n_targets=n_targets, **options)
    if groups is None:
        accumulator.update(table, start)
    elif start:
        raise ValueError("rows with groups are read whole: start must be 0")
    else:
        accumulator.update_grouped(table, groups)
    return accumulator.moments()
