"""The executor of the staircase for arrays of any library (torch, cupy, jax, ...); same plan, same result to rounding.

Every operation belongs to the array API standard and runs where the rows are; only the sums of a leaf come back. There are no
buffers: these libraries reuse memory themselves, and the standard has no way to write into an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from richcomponents.algebra import Array, packed_size
from richcomponents.moments.kernel import Plan
from richcomponents.moments.namespaces import namespace_of, on_device, to_numpy

__all__ = ["add_rows"]


def add_rows(plan: Plan, tile: int, rows: Any, shift: Array, weight: Any | None, raw: Array) -> None:
    """Add all rows of a leaf to `raw` (numpy, in the order of the plan's steps)."""
    xp: Any = namespace_of(rows)
    origin = on_device(shift, rows)
    total = None
    for start in range(0, rows.shape[0], tile):
        stop = min(start + tile, rows.shape[0])  # the standard knows no slices past the end
        z = (rows[start:stop, :] - origin).T
        x = xp.concat([xp.ones((1, z.shape[1]), dtype=xp.float64, device=rows.device), z], axis=0)
        left, right = x, x if plan.right_order else x[:1, :]
        for order in range(1, plan.left_order):  # x_j times every shorter monomial whose last index is at most j
            left = xp.concat([x[j : j + 1, :] * left[: packed_size(j + 1, order), :] for j in range(plan.m)], axis=0)
        for order in range(1, plan.right_order):  # x_j times every shorter monomial whose first index is at least j
            first = [right.shape[0] - packed_size(plan.m - j, order) for j in range(plan.m)]
            right = xp.concat([x[j : j + 1, :] * right[first[j] :, :] for j in range(plan.m)], axis=0)
        if weight is not None:
            right = right * weight[start:stop]
        products = [xp.reshape(left[low:high, :] @ right[first:, :].T, (-1,)) for low, high, first, _ in plan.steps]
        part = xp.concat(products)
        total = part if total is None else total + part
    if total is not None:
        raw += np.asarray(to_numpy(total), dtype=np.float64)
