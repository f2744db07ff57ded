"""Linear maps between the columns of a table and coordinates made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.storage import storable

__all__ = ["LinearMap"]


@storable
@dataclass(frozen=True)
class LinearMap:
    """Linear maps between the user's columns and the columns of a state (both centred).

    to : (k, d), state columns from the user's; back : (d, k), the way back.
    """

    to: Array
    back: Array

    @classmethod
    def identity(cls, d: int) -> LinearMap:
        return cls(np.eye(d), np.eye(d))
