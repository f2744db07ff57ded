"""Arrays that are not numpy's (torch, cupy, jax, ...): rows stay where they are, their sums come back in numpy.

Only what the kernel and the doors before it need, written against the Python array API standard.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import DataError
from richcomponents.views import as_matrix

__all__ = ["as_rows", "concatenated", "copied", "in_memory", "namespace_of", "on_device", "picked", "to_numpy"]


def namespace_of(x: object) -> Any | None:
    """The array API namespace of an array of another library; None for numpy's arrays and all that is not an array.

    torch has no namespace of its own yet: array-api-compat (the extra `array-api`) makes one. Without it tensors in main
    memory are read as numpy arrays.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return None
    if hasattr(x, "__array_namespace__") and hasattr(x, "__dlpack__"):
        return x.__array_namespace__()
    if type(x).__module__.partition(".")[0] == "torch" and find_spec("array_api_compat") is not None:
        from array_api_compat import array_namespace

        return array_namespace(x)
    return None


def as_rows(X: object) -> Any:
    """A two-dimensional float64 array, on its device if it is an array of another library, else as :func:`as_matrix`."""
    xp = namespace_of(X)
    if xp is None:
        return as_matrix(X)
    x: Any = X.detach() if hasattr(X, "detach") else X  # sums are not differentiated
    if x.ndim != 2 or not xp.isdtype(x.dtype, "real floating"):
        return as_matrix(to_numpy(x))  # its checks and messages; whole numbers are read from main memory
    try:
        rows = xp.astype(x, xp.float64, copy=False)
    except (TypeError, RuntimeError) as error:
        raise DataError(
            f"the device of this array has no double precision ({error}): move the array to another"
        ) from error
    if rows.dtype != xp.float64:
        raise DataError("moments need double precision, which this array library has switched off: switch it on")
    return rows


def to_numpy(x: Any) -> Any:
    """The same values in main memory."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()  # torch
    elif namespace_of(x) is not None and hasattr(x, "get"):
        x = x.get()  # cupy
    return np.asarray(x)


def in_memory(X: object, *, column: bool = False) -> Array:
    """As :func:`as_matrix`, for arrays of any library."""
    return as_matrix(X if namespace_of(X) is None else to_numpy(X), column=column)


def copied(rows: Any) -> Any:
    """A copy that shares no memory."""
    xp = namespace_of(rows)
    return rows.copy() if xp is None else xp.asarray(rows, copy=True)


def on_device(values: Array, like: Any) -> Any:
    """Numbers as an array of the library and on the device of `like`."""
    xp = namespace_of(like)
    return values if xp is None else xp.asarray(values, dtype=xp.float64, device=like.device)


def picked(rows: Any, selector: slice | IntArray) -> Any:
    """Some of the rows: a slice, or row numbers."""
    xp = namespace_of(rows)
    if xp is None or isinstance(selector, slice):
        return rows[selector, :]
    return xp.take(rows, xp.asarray(selector, device=rows.device), axis=0)


def concatenated(parts: Sequence[Any], axis: int = 0) -> Any:
    """All parts in one array; in numpy when they are of different libraries."""
    spaces = {id(namespace_of(part)) for part in parts}
    xp = namespace_of(parts[0])
    if len(spaces) == 1 and xp is not None:
        return xp.concat(list(parts), axis=axis)
    return np.concatenate([to_numpy(part) for part in parts], axis=axis)
