"""What all estimators share: a fit is all or nothing, answers are those of the fit, and tables are read alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import validate_data

from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import ArraySource, Source
from richcomponents.data.sources.memory import FrameSource, TablesSource, are_tables, is_annotated
from richcomponents.data.table import check_labels
from richcomponents.errors import DataError, not_again
from richcomponents.moments import Moments
from richcomponents.notebook import folded, shown
from richcomponents.storage import Storable

_E = TypeVar("_E")
_FITTING, _USED = "_fitting", "_fitted_with"
_THEIRS = ("_sk", "_metadata", "_parent")  # private names that scikit-learn sets on an estimator, fitted or not


class Estimator(Storable, BaseEstimator):  # type: ignore[misc]
    """Base of all estimators, those that users derive from ours included.

    Methods called fit, fit_... and partial_fit work on a copy that has the parameters and (but for partial_fit) nothing
    fitted; only when they return does the estimator become that copy. A fit that fails or is interrupted, also by a
    warning that was made an error, leaves everything as it was. All other public methods see the parameters of the fit,
    whatever was set since: set_params is for the next fit.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if name.startswith(("_", "set_", "get_params")):
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(cls, name, property(_answer(member.fget), doc=member.__doc__))
            elif isinstance(member, FunctionType):
                fits = name in ("fit", "partial_fit") or name.startswith("fit_")
                setattr(cls, name, _transaction(member) if fits else _answer(member))

    def _open(self, X: object, *, reset: bool, at_least: int = 1) -> Rows:
        """The rows of a table, wherever it is. Its columns become those of the fit (reset); or they are compared with these,
        where they are not found by their names."""
        refuse_state(X)
        plain = not (isinstance(X, (Rows, Source)) or are_tables(X) or is_annotated(X))
        if plain:
            check_labels(X, getattr(self, "views", None), getattr(self, "covariates", None))
        rows = open_source(TablesSource(X) if isinstance(X, (list, tuple)) and are_tables(X) else X)
        if rows.held and rows.n_rows is not None and rows.n_rows < at_least:
            raise DataError(
                f"Found array with {rows.n_rows} sample(s) (shape={(rows.n_rows, rows.width)}) while a minimum of {at_least} "
                f"is required by {type(self).__name__}."
            )
        named = rows.names is not None and getattr(rows.source, "named", True)
        if isinstance(rows.source, (ArraySource, FrameSource)) and plain and (reset or not named):
            if not reset and "_design" in vars(self):  # a fitted RCA, which can name the columns
                vars(self)["_design"].check_width(rows.width, type(self).__name__)
            validate_data(self, X, reset=reset, skip_check_array=True)  # scikit-learn's names, numbers and messages
        elif reset:
            self._set_features(rows.width, rows.names if named else None)
        return rows

    def _set_features(self, width: int, names: Sequence[str] | None) -> None:
        self.n_features_in_ = width
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _repr_html_inner(self) -> str:
        """In a notebook: scikit-learn's diagram; of a fitted model its summary first, and the diagram behind a fold."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "summary") or not any(name.endswith("_") and name[0] != "_" for name in vars(self)):
            return diagram
        return shown(self.summary()) + folded("Parameters", diagram)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        return bundle | ({"text/html": self._repr_html_inner()} if "text/html" in bundle else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # made dense
        return tags


def under_labels(model: Any, values: Any, samples: tuple[object, ...] | None) -> Any:
    """What a transformer returns (n, k), under the labels of its samples where `set_output` asks for a data frame of pandas:
    scikit-learn sees the index of such frames only."""
    if samples is None or getattr(model, "_sklearn_output_config", {}).get("transform") != "pandas":
        return values
    import pandas

    return pandas.DataFrame(values, index=pandas.Index(samples), columns=model.get_feature_names_out())


def refuse_state(X: object) -> None:
    """Where rows are needed."""
    if isinstance(X, Moments):
        raise DataError("a state holds sums over rows, and this needs the rows: give a table, or files")


def as_fitted(model: _E) -> _E:
    """The estimator with the parameters it was fitted with: itself, unless they were changed since."""
    used = vars(model).get(_USED)
    if not isinstance(used, dict) or all(_same(vars(model).get(name), value) for name, value in used.items()):
        return model
    other = copy(model)
    parameters = model._get_param_names()  # type: ignore[attr-defined]
    vars(other).update({name: value for name, value in used.items() if name in parameters})
    return other


def refuse_second_table(y: object) -> None:
    """fit(U, V) is easily written, and V would be ignored as an outcome is."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise DataError(
            f"the second argument of fit is an outcome, which this fit ignores, not a table of {shape[1]} columns. Give "
            "two tables of the same samples as ContrastiveRCA().fit_views([U, V]), one as ContrastiveRCA(views=...).fit(X)"
        )


def _same(one: object, two: object) -> bool:
    return one is two or (type(one) is type(two) and isinstance(one, (bool, int, float, str)) and one == two)


def _answer(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def answer(self: Any, *args: Any, **options: Any) -> Any:
        return method(as_fitted(self), *args, **options)

    return answer


def _transaction(fit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fit)
    def whole(self: Any, *args: Any, **options: Any) -> Any:
        if _FITTING in vars(self):  # called by another fit, of a subclass for example
            return fit(self, *args, **options)
        copied = copy(self)
        goes_on = fit.__name__ == "partial_fit"
        kept = {name: value for name, value in vars(self).items() if goes_on or not _is_fitted(name)}
        copied.__dict__ = {**kept, _FITTING: True}
        copied.__dict__.pop(_USED, None)
        told = set(vars(self).get("_told", ()))
        with not_again(told) if goes_on else nullcontext():
            found = fit(copied, *args, **options)
        if goes_on:
            copied.__dict__["_told"] = tuple(sorted(told))  # the next block does not tell it again
        del copied.__dict__[_FITTING]
        copied.__dict__[_USED] = {name: getattr(copied, name) for name in self._get_param_names()}
        self.__dict__ = copied.__dict__
        return self if found is copied else found

    return whole


def _is_fitted(name: str) -> bool:
    return name.endswith("_") or (name.startswith("_") and not name.startswith(_THEIRS))
