"""The errors and warnings of the library, so that users can catch or filter them by name."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from richcomponents.text import plain


class _Plain(Exception):
    """A message that may quote names out of files: characters that a terminal would obey stand as their escapes."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*(plain(part) if isinstance(part, str) else part for part in parts))


class DataError(_Plain, ValueError):
    """The data cannot be used as they are; the message names the view, the column and the remedy."""


class MissingValueError(DataError):
    """A value that is missing or infinite, found while rows were summed."""


class CapacityError(_Plain, MemoryError):
    """The request would need more memory than the limit allows; the message says what to lower."""


class StateFileError(_Plain, ValueError):
    """A saved state is damaged, hostile, or written by an incompatible version."""


class ConstantColumnWarning(UserWarning):
    """A column does not vary: its cumulants of order two and above are exactly zero."""


class CountsWarning(UserWarning):
    """A view looks like raw counts, whose parts multiply: normalise them and take logarithms before the model adds."""


class PrecisionWarning(UserWarning):
    """Power sums were taken so far from the mean that the requested order loses digits."""


class WeakIdentificationWarning(UserWarning):
    """The data say little about A: the result is shrunk towards residualising, or equals it."""


class SpecificationWarning(UserWarning):
    """The data contradict an assumption of the model, for example an outcome that is correlated with the controls."""


class SampleSizeWarning(UserWarning):
    """Too few rows: for cumulants of higher order (only second moments are used), or of one of two classes."""


class MissingValueWarning(UserWarning):
    """Rows were left out because of missing or infinite values (missing="drop"), or because they have no outcome."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the caller outside this library, however deep the check was made."""
    here = str(Path(__file__).parent)
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(plain(message), category, stacklevel=level)
