"""Standard errors of any function of a state, by leaving out one statistical block at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.errors import DataError
from richcomponents.moments import Moments

__all__ = ["JackknifeResult", "block_jackknife", "delete_one", "jackknife_error", "jackknife_variance"]


@dataclass(frozen=True)
class JackknifeResult:
    """An estimate, its standard error, and the leave-one-block-out replicates (n_blocks, ...)."""

    estimate: Array
    standard_error: Array
    replicates: Array

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Two-sided interval, Student's t with n_blocks - 1 degrees of freedom."""
        half = stats.t.ppf(0.5 + level / 2, len(self.replicates) - 1) * self.standard_error
        return self.estimate - half, self.estimate + half


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


def block_jackknife(function: Callable[[Moments], Array], moments: Moments) -> JackknifeResult:
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
    estimate = np.asarray(function(moments), dtype=np.float64)
    replicates = np.stack([np.asarray(function(moments.without([int(b)])), dtype=np.float64) for b in used])
    return JackknifeResult(estimate, jackknife_error(replicates), replicates)
