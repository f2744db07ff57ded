"""What all estimators share: a fit is all or nothing, set_params is for the next one, and tables are read alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from richcomponents.data.align import tables_beside
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import ArraySource, Source, is_path
from richcomponents.data.sources.memory import FrameSource
from richcomponents.data.table import are_tables, check_labels, is_annotated
from richcomponents.errors import DataError, not_again
from richcomponents.notebook import folded, shown
from richcomponents.storage import Storable

_FITTING, _ASKED = "_fitting", "_asked"  # set while it is fitted; of a fitted one, parameters for the next fit
_THEIRS = ("_sk", "_metadata", "_parent")  # private names that scikit-learn sets on an estimator, fitted or not


class Estimator(Storable, BaseEstimator):  # type: ignore[misc]
    """Base of all estimators, those that users derive from ours included.

    Methods called fit, fit_... and partial_fit work on a copy that has the parameters and (but for partial_fit) nothing
    fitted; only when they return does the estimator become that copy. A fit that fails or is interrupted, also by a
    warning that was made an error, leaves everything as it was.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType) and not name.startswith("_"):
                fits = name in ("fit", "partial_fit") or name.startswith("fit_")
                setattr(cls, name, transaction(member) if fits else _of_one_fit(member))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What only a fit sets, asked for before one: scikit-learn's NotFittedError."""
            if _is_fitted(name) and not name.startswith("__"):
                check_is_fitted(self)
            return object.__getattribute__(self, name)  # which says what is wrong, also inside of a property

    def set_params(self, **params: Any) -> Self:
        """Set parameters; of a fitted estimator those of its next fit, and all that it answers stays as it was fitted."""
        if _ASKED not in vars(self):  # not fitted
            return super().set_params(**params)  # type: ignore[no-any-return]
        new = self._as_asked()
        BaseEstimator.set_params(new, **params)
        asked = {name: vars(new)[name] for name in self._get_param_names() if vars(new)[name] is not vars(self)[name]}
        self.__dict__[_ASKED] = asked
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as they were set last."""
        return BaseEstimator.get_params(self._as_asked(), deep)  # type: ignore[no-any-return]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that are not as by default, dicts in the order in which they were given (scikit-learn sorts them): the
        first view is U. Run again, it is the same estimator, unless it is longer than N_CHAR_MAX."""
        default = signature(type(self)).parameters
        params = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={said}" for name, said in params.items() if said != repr(default[name].default)]
        text = f"{type(self).__name__}({', '.join(changed)})"
        return text if len(text) <= N_CHAR_MAX else f"{text[: N_CHAR_MAX // 2]}...{text[-(N_CHAR_MAX // 2) :]}"

    def _as_asked(self) -> Self:
        """A copy with the parameters that were set last."""
        new = copy(self)
        new.__dict__ |= new.__dict__.pop(_ASKED, {})
        return new

    def _clone(self, **others: Any) -> Self:
        """Unfitted, with the parameters of the fit but for these others."""
        return type(self)(**{n: clone(getattr(self, n), safe=False) for n in self._get_param_names()} | others)

    def _open(self, X: object, *, reset: bool, at_least: int = 1) -> Rows:
        """The rows of a table, wherever it is. Its columns become those of the fit (reset); or they are compared with these,
        where they are not found by their names."""
        plain = not (isinstance(X, (Rows, Source)) or is_path(X) or are_tables(X) or is_annotated(X))
        if plain:
            check_labels(X, getattr(self, "views", None), getattr(self, "covariates", None))
        rows = open_source(tables_beside(X) if isinstance(X, (list, tuple)) and are_tables(X) else X)
        if rows.held and rows.n_rows is not None and rows.n_rows < at_least:
            raise DataError(
                f"Found array with {rows.n_rows} sample(s) (shape={(rows.n_rows, rows.width)}) while a minimum of {at_least} "
                f"is required by {type(self).__name__}."
            )
        named = rows.names is not None and getattr(rows.source, "named", True)
        if isinstance(rows.source, (ArraySource, FrameSource)) and plain and (reset or not named):
            if not reset and "fitted_" in vars(self):  # a fitted RCA, which can name the columns
                vars(self)["fitted_"].design.check_width(rows.width, type(self).__name__)
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


def used_rows(model: Any, X: object, outcome: object = None) -> Any:
    """The columns that a fit used of other rows: of all views, then the covariates; last an outcome, if one is given, a
    column or values."""
    fitted = model.fitted_
    return fitted.design.found_in(model._open(X, reset=False), outcome, gaps=fitted.missing != "error")


def under_labels(model: Any, values: Any, samples: tuple[object, ...] | None) -> Any:
    """What a transformer returns (n, k), under the labels of its samples where `set_output` asks for a data frame of pandas:
    scikit-learn sees the index of such frames only."""
    if samples is None or getattr(model, "_sklearn_output_config", {}).get("transform") != "pandas":
        return values
    import pandas

    return pandas.DataFrame(values, index=pandas.Index(samples), columns=model.get_feature_names_out())


def refuse_second_table(y: object) -> None:
    """fit(U, V) is easily written, and V would be ignored as an outcome is."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise DataError(
            f"the second argument of fit is an outcome, which this fit ignores, not a table of {shape[1]} columns. Give "
            "two tables of the same samples as ContrastiveRCA().fit_views([U, V]), one as ContrastiveRCA(views=...).fit(X)"
        )


def transaction(fit: Callable[..., Any]) -> Callable[..., Any]:
    """The fit of a copy, which the estimator becomes when it returns: one that fails or is interrupted changes nothing."""

    @wraps(fit)
    def whole(self: Any, *args: Any, **options: Any) -> Any:
        if _FITTING in vars(self):  # called by another fit, of a subclass for example
            return fit(self, *args, **options)
        new, goes_on = self._as_asked(), fit.__name__ == "partial_fit"
        new.__dict__ = {name: value for name, value in vars(new).items() if goes_on or not _is_fitted(name)}
        new.__dict__[_FITTING] = True
        told = set(vars(self).get("_told", ()))
        with not_again(told) if goes_on else nullcontext():
            found = fit(new, *args, **options)
        if goes_on:
            new.__dict__["_told"] = tuple(sorted(told))  # the next block does not tell it again
        del new.__dict__[_FITTING]
        new.__dict__[_ASKED] = {}
        self.__dict__ = new.__dict__  # in one step: whoever asks meanwhile sees the old fit or the new one
        return self if found is new else found

    return whole


def _of_one_fit(answer: Callable[..., Any]) -> Callable[..., Any]:
    """An answer that reads one fit, also while another thread fits again: the estimator may become another one, what it was
    when it was asked stays."""

    @wraps(answer)
    def read(self: Any, *args: Any, **options: Any) -> Any:
        as_asked = object.__new__(type(self))
        as_asked.__dict__ = self.__dict__  # not a copy: what is computed now is kept
        return answer(as_asked, *args, **options)

    return read


def _is_fitted(name: str) -> bool:
    return name.endswith("_") or (name.startswith("_") and not name.startswith(_THEIRS))
