"""The errors and warnings of the library, so that users can catch or filter them by name."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from richcomponents.text import plain


class _Plain(Exception):
    """A message that may quote names out of files: characters that a terminal would obey stand as their escapes."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*(plain(part) if isinstance(part, str) else part for part in parts))


class DataError(_Plain, ValueError):
    """The data cannot be used as they are; the message names the view, the column and the remedy.

    Examples
    --------
    >>> import richcomponents as rc
    >>> try:
    ...     rc.as_table([[1.0, 2.0], [3.0, float("nan")]], views={"tests": [0], "controls": [1]})
    ... except rc.DataError as error:
    ...     print(str(error).partition(" (1 such")[0])
    column 'x1' of view 'controls' holds a missing value (NaN) in row 1
    """


class MissingValueError(DataError):
    """A value that is missing or infinite, found while rows were summed."""


class CapacityError(_Plain, MemoryError):
    """The request would need more memory than the limit allows; the message says what to lower.

    Examples
    --------
    >>> import numpy as np, richcomponents as rc
    >>> try:
    ...     rc.Moments.of(np.zeros((10, 300)), order=4, memory_limit=2**30)
    ... except rc.CapacityError as error:
    ...     print(str(error).partition(".0 GiB")[0], "GiB")
    moments of order 4 of 300 columns in 20 blocks need about 156 GiB
    """


class StateFileError(_Plain, ValueError):
    """A saved state is damaged, hostile, or written by an incompatible version.

    Examples
    --------
    >>> import tempfile, richcomponents as rc
    >>> file = tempfile.NamedTemporaryFile(suffix=".npz")
    >>> try:
    ...     rc.load(file.name)
    ... except rc.StateFileError as error:
    ...     print(str(error).partition(": ")[2])
    it is cut off, or not an npz archive
    """


class ConstantColumnWarning(UserWarning):
    """A column does not vary: its cumulants of order two and above are exactly zero.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> X[:, 1] = 7.0
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ContrastiveRCA(views=2).fit(X)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.ConstantColumnWarning: ...
    """


class CountsWarning(UserWarning):
    """A view looks like raw counts, whose parts multiply: normalise them and take logarithms before the model adds.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> X = np.random.default_rng(0).negative_binomial(0.5, 0.05, size=(300, 4))
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ContrastiveRCA(views=2).fit(X)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.CountsWarning: ...
    """


class PrecisionWarning(UserWarning):
    """Power sums were taken so far from the mean that the requested order loses digits.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> X = 1e6 + np.random.default_rng(0).normal(size=(300, 2))
    >>> with warnings.catch_warnings(action="error"):
    ...     k = rc.Cumulants(rc.Moments.of(X, order=4, shift=np.zeros(2))).tensor(
    ...         [0], [0], [0], [0]
    ...     )  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.PrecisionWarning: ...
    """


class WeakIdentificationWarning(UserWarning):
    """The data say little about A: the result is shrunk towards residualising, or equals it.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> data = rc.datasets.make_contrastive(500, d=4, S2="gaussian", random_state=0)
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ContrastiveRCA(views=4).fit(data.X)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.WeakIdentificationWarning: ...
    """


class SpecificationWarning(UserWarning):
    """The data contradict an assumption of the model, for example an outcome that is correlated with the controls.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(
    ...         data.X, data.S3[:, 0]
    ...     )  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.SpecificationWarning: ...
    """


class SampleSizeWarning(UserWarning):
    """Too few rows: for cumulants of higher order (only second moments are used), or of one of two classes.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> data = rc.datasets.make_contrastive(8, d=4, S2="skewed", random_state=0)
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ContrastiveRCA(views=4).fit(data.X)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.SampleSizeWarning: ...
    """


class MissingValueWarning(UserWarning):
    """Rows were left out because of missing or infinite values (missing="drop"), or because they have no outcome.

    Examples
    --------
    >>> import warnings, numpy as np, richcomponents as rc
    >>> X = rc.datasets.make_contrastive(500, d=4, S2="skewed", random_state=0).X
    >>> X[3, 0] = np.nan
    >>> with warnings.catch_warnings(action="error"):
    ...     model = rc.ContrastiveRCA(views=4, missing="drop").fit(X)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    richcomponents.errors.MissingValueWarning: ...
    """


_BETWEEN = ("richcomponents", "sklearn", "joblib")  # whose lines are not the user's
_NUMBER = re.compile(r"(?<![\w'])\d+(\.\d+)?(e[+-]?\d+)?%?")
_TOLD = "__richcomponents_told__"


_BEFORE: ContextVar[set[str] | None] = ContextVar("told before", default=None)


@contextmanager
def not_again(told: set[str]) -> Iterator[None]:
    """Inside, facts that were told before are not told again; those that are, are added to them."""
    token = _BEFORE.set(told)
    try:
        yield
    finally:
        _BEFORE.reset(token)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's own code, however deep the check was made; once for a fact in one call of the user's.

    A grid search fits a model many times, and each fit would tell the same. What was told is kept in the outermost call below
    the user's line, and forgotten with it: the next call tells it again. Numbers in a message make no other fact of it.
    """
    text = plain(message)
    level, frame = 1, sys._getframe(0)
    outermost = frame
    while frame.f_back is not None and (root := _package(frame)) in _BETWEEN:
        outermost = outermost if root == "joblib" else frame  # a worker of joblib lives on from call to call
        level, frame = level + 1, frame.f_back
    told = outermost.f_locals.setdefault(_TOLD, set())  # what is no variable of a function stays with its frame
    fact, before = f"{category.__name__}: {_NUMBER.sub('#', text)}", _BEFORE.get()
    if fact not in told and not (before and fact in before) and not _ignored(text, category, frame):
        warnings.warn(text, category, stacklevel=level)
        told.add(fact)
        if before is not None:
            before.add(fact)


@contextmanager
def constants_told_later() -> Iterator[None]:
    """Inside, sums of constant columns say nothing: the model names their view, and says it once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantColumnWarning)
        yield


def _ignored(text: str, category: type[Warning], frame: FrameType) -> bool:
    """Whether nobody would see it, where the library tries something out: then it was not told."""
    module = str(frame.f_globals.get("__name__", ""))
    for action, message, kind, where, line in warnings.filters:
        if (
            issubclass(category, kind)
            and (message is None or re.match(message, text))
            and (where is None or re.match(where, module))
            and line in (0, frame.f_lineno)
        ):
            return action == "ignore"
    return False


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
