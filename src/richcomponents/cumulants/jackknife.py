"""Standard errors of any function of a state, by leaving out one statistical block at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.cumulants.estimate import Estimate
from richcomponents.errors import DataError
from richcomponents.moments import Moments

__all__ = ["block_jackknife", "delete_one", "from_replicates", "jackknife_error", "jackknife_variance"]


def delete_one(blocks: int) -> Array:
    """Block weights of the delete-one-block replicates, (B, B)."""
    out: Array = 1.0 - np.eye(blocks)
    return out


def jackknife_variance(replicates: Array) -> Array:
    """(B-1)/B sum_b (replicate_b - mean)^2, over the first axis."""
    b = len(replicates)
    return np.asarray((b - 1) / b * ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0))


def jackknife_error(replicates: Array) -> Array:
    """The square root of the jackknife variance."""
    return np.asarray(np.sqrt(jackknife_variance(replicates)))


def from_replicates(value: object, replicates: Sequence[object], **options: Any) -> Estimate:
    """An estimate with the block-jackknife error of its replicates, one without each block; options : of the Estimate."""
    stacked = np.stack([np.asarray(replicate, dtype=np.float64) for replicate in replicates])
    point = np.asarray(value, dtype=np.float64)
    return Estimate(point, jackknife_error(stacked), len(stacked) - 1, replicates=stacked, **options)


def block_jackknife(function: Callable[[Moments], Array], moments: Moments) -> Estimate:
    """Delete-one-block jackknife of `function(moments)`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = block_jackknife(lambda m: m.mean, Moments.of(X, order=2))
    >>> bool(np.all(np.abs(result.standard_error * 2000**0.5 - 1) < 0.5))
    True
    """
    used = np.flatnonzero(moments.block_sizes)
    if len(used) < 2:
        raise DataError(
            f"the jackknife needs at least two non-empty blocks, the state has {len(used)}: use more rows, "
            "or n_blocks > 1"
        )
    return from_replicates(function(moments), [function(moments.without([int(b)])) for b in used])
