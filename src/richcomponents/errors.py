"""The errors and warnings of the library, so that users can catch or filter them by name."""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "ConstantColumnWarning",
    "DataError",
    "PrecisionWarning",
    "SampleSizeWarning",
    "StateFileError",
    "WeakIdentificationWarning",
]


class DataError(ValueError):
    """The data cannot be used as they are; the message names the view, the column and the remedy."""


class CapacityError(MemoryError):
    """The request would need more memory than the limit allows; the message says what to lower."""


class StateFileError(ValueError):
    """A saved state is damaged, hostile, or written by an incompatible version."""


class ConstantColumnWarning(UserWarning):
    """A column does not vary: its cumulants of order two and above are exactly zero."""


class PrecisionWarning(UserWarning):
    """Power sums were taken so far from the mean that the requested order loses digits."""


class WeakIdentificationWarning(UserWarning):
    """The data say little about A: the result is shrunk towards residualising, or equals it."""


class SampleSizeWarning(UserWarning):
    """Too few rows for cumulants of higher order: only second moments are used."""
