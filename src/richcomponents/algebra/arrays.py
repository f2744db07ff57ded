"""Names for the array types that every room speaks of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MEMORY_LIMIT = 4 * 2**30
LEAF = 2048  # rows: large enough that gathering a leaf's sums costs about one percent of computing them
