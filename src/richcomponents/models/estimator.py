"""What all estimators share: a fit is all or nothing, set_params is for the next one, and tables are read alike.

A :class:`Sample` is what a fit reads: here, and only here, rows, states, streams and rows with gaps differ. Gaps are refused,
or their rows left out, or what is there is used (`missing=`; `moments.available`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import narwhals.stable.v1 as nw
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from richcomponents.algebra import IntArray, Truth
from richcomponents.data.align import SideBySide
from richcomponents.data.cells import is_gap
from richcomponents.data.design import Design, is_column, labels_in, lay_out, names_columns, with_outcome
from richcomponents.data.rows import Rows, open_source, tables_beside
from richcomponents.data.sources.base import ArraySource, Kept, Source, is_path
from richcomponents.data.sources.memory import FrameSource
from richcomponents.data.table import are_tables, check_labels, counts_rows, is_annotated
from richcomponents.errors import (
    DataError,
    MissingValueWarning,
    constants_told_later,
    not_again,
    warn_user,
)
from richcomponents.moments import Moments
from richcomponents.moments.available import Available, Gaps
from richcomponents.moments.data import Data, RowData, RowUnits, StateData, groups_of_copies
from richcomponents.notebook import folded, shown
from richcomponents.storage import Storable

WAYS = ("error", "drop", "available")
_GAPS = "missing or infinite values"
_ROWS_PER_COLUMN = 6  # with gaps and fewer rows a view is wide, and would have to be reduced
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


# ---- what a fit reads


@dataclass(frozen=True)
class Sample:
    """table : the columns of all views, then the covariates; both : and last an outcome, if there is one; groups : of the rows;
    at : their numbers in the table that was given, where some were left out; note : about these, in a sentence; progress :
    whether passes over the rows are shown."""

    design: Design
    table: Rows | Moments
    both: Rows | Moments
    groups: Any = None
    at: IntArray | None = None
    note: str = ""
    progress: bool = False

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        views: object = None,
        column: object = None,
        design: Design | None = None,
        progress: bool = False,
    ) -> Sample:
        """What an unfitted model reads; of streams their sums. For the arguments see `fit_rca`."""
        X, groups, sample_weight = in_one_order(X, groups=groups, sample_weight=sample_weight)
        rows = X if isinstance(X, Moments) else model._open(X, reset=True, at_least=2)
        if isinstance(rows, Moments):
            model._set_features(rows.layout.n_columns, rows.names)
        if design is None or isinstance(rows, Moments):  # a state names its own columns
            beside = [one for one in (y if is_column(y) else column,) if one is not None]
            rows, design = laid_out(model, rows, beside, views)
        model._check_views(design.views)
        if isinstance(rows, Moments):
            return cls.of_state(design, design.found_in(rows, y))
        rows = rows if sample_weight is None or rows.weighted else rows.weighted_by(sample_weight)
        groups = _labels_in(rows, design, groups) if isinstance(groups, str) else groups
        both, columns, at, note = rows, design.used, None, ""
        if y is not None:
            both, last = with_outcome(rows, y)
            columns = np.append(columns, last)
        if not rows.rereadable:
            reading = {"n_blocks": model.n_blocks, "groups": groups, "progress": progress}
            return cls.of_state(design, *read_once(both.select(columns), model.missing, model._state_order, **reading))
        if model.missing != "error":
            both, groups, at, note = without_gaps(both, columns, design, groups, model.missing)
        if at is not None:
            rows, design = both, design.counted(both)
        table, both = rows.select(design.used), both.select(columns)
        groups = groups_of_copies(table.select(np.arange(len(design.columns))), groups)
        return cls(design, table, both, groups, at, note, progress)

    @classmethod
    def of_state(cls, design: Design, state: Moments, note: str = "") -> Sample:
        """Of the columns used and, last, the outcome if there is one."""
        return cls(design, state.select(np.arange(len(design.used))), state, note=note)

    @property
    def has_outcome(self) -> bool:
        width = self.both.layout.n_columns if isinstance(self.both, Moments) else self.both.width
        return width > len(self.design.used)

    def rows_in_memory(self) -> Rows:
        """With the outcome, if there is one."""
        if isinstance(self.both, Moments):
            raise DataError(
                "a state (a stream, too) holds sums over rows, and this needs the rows: give a table, or files"
            )
        return self.both if self.both.held else Rows(ArraySource(self.both.array(), self.both.names))

    def units(self) -> RowUnits | None:
        """How rows that are seen again, with an outcome, depend on each other; None where that is not at hand."""
        table = self.table
        if isinstance(table, Moments):
            return None if table.dependent else RowUnits()
        if self.groups is None and not table.weighted:
            return RowUnits()
        if table.source.shared or table.n_rows is None:
            return None
        weight = table.select([0]).array()[:, -1] if table.weighted else None
        return RowUnits.of(table.n_rows, self.groups, weight)


def data_of(
    table: Rows | Moments, design: Design, missing: str, n_blocks: int, groups: object = None, **progress: bool
) -> tuple[Data, str]:
    """What a solver asks for moments, and what is missing, in a sentence; table : the columns used, maybe with an outcome."""
    if isinstance(table, Moments):
        return StateData(table), ""
    if missing == "available":

        def describe(column: int) -> str:
            return design.describe(column) if column < len(design.used) else "the outcome"

        last = {"the outcome": np.arange(len(design.used), table.width)}
        gaps = Gaps.of(table, {name: at for name, at in (design.parts() | last).items() if len(at)}, describe)
        if gaps.any:
            rows = float(gaps.weight @ gaps.stand_ins)  # with values of all views
            for name, columns in design.parts().items():  # views that would be reduced
                if len(columns) > max(rows / _ROWS_PER_COLUMN, 2):
                    raise DataError(
                        f"{len(columns)} columns of {name!r} are too many for {rows:.0f} rows that have values of all views: "
                        f"with gaps, {_ROWS_PER_COLUMN} rows per column are needed. Use fewer columns, or missing='drop'"
                    )
            with constants_told_later():
                return Available.of(table, gaps, n_blocks, groups, describe), gaps.note()
    return RowData(table, n_blocks, groups, **progress), ""


# ---- which column plays which part, and which rows count


def laid_out(model: Any, table: Rows | Moments, beside: Sequence[Any] = (), views: object = None) -> tuple[Any, Design]:
    """The table with what its design added to it, and the design; beside : columns (an outcome) that are in no view, whatever
    `views=` divides; views : instead of the parameter."""
    views = model.views if views is None else views
    return lay_out(table, views, model.covariates, beside, gaps=model.missing != "error")


def present(
    model: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    columns: Sequence[Any] = (),
    role: str = "outcome",
) -> tuple[Any, Any, Any, Any]:
    """X, y, groups and weights in one order, where they have labels, and without the rows that have no outcome, unless
    missing="error". columns : of X, which hold outcomes; role : what these are called."""
    X, y, groups, sample_weight = in_one_order(X, y=y, groups=groups, sample_weight=sample_weight)
    if model.missing == "error" or isinstance(X, (Moments, Iterator)) or (y is None and not columns):
        return X, y, groups, sample_weight
    rows = model._open(X, reset="fitted_" not in vars(model))
    if not rows.rereadable:
        return X, y, groups, sample_weight
    named = [*columns, *names_columns(rows, y)]
    parts = [labels_in(rows, one, f"the {role}") for one in named] if named else [y]
    seen = [part for part in (there(values, rows.n_rows) for values in parts) if part is not None]
    keep = np.all(seen, axis=0) if seen else np.ones(1, dtype=bool)
    if keep.all():
        return X, y, groups, sample_weight
    say_dropped(int(keep.sum()), len(keep), f"no {role}")
    return rows.kept(keep), y if named else taken(y, keep), taken(groups, keep), taken(sample_weight, keep)


def in_one_order(X: Any, **values: Any) -> list[Any]:
    """The table, and values per row in its order: by label; or those of the rows of the first of several tables, of which some
    are left out."""
    X = Rows(tables_beside(X)) if are_tables(X) else X
    source = X.source if isinstance(X, Rows) else None
    labels = tuple(X.obs_names) if is_annotated(X) else None if source is None else source.samples
    out = [X]
    for what, given in values.items():
        found: Any = None if given is None else in_order_of(X, given, what, labels)
        if isinstance(source, SideBySide) and found is given and np.ndim(found) == 1 and len(found) != source.n_rows:
            found = source.lined_up(given, what)
        out.append(found)
    return out


def _labels_in(rows: Rows, design: Design, groups: str) -> Any:
    """The labels in a column of the table, which is no data."""
    labels, views = rows.group_labels(groups), design.views
    at = next((i for i, name in enumerate(rows.names or ()) if name == groups), None)
    if at is not None and at in design.known:
        raise DataError(f"column {groups!r} holds the groups and is also a covariate: name it once")
    if at is not None and at in design.columns:
        raise DataError(
            f"{views.describe(at)} holds the groups: name the columns of the views without it, views={{name: columns}}"
        )
    return labels


# ---- gaps


def there(values: Any, n: int | None) -> Truth | None:
    """(n,) which rows have all their values; None where that cannot be asked before they are read."""
    if values is None or isinstance(values, str) or hasattr(values, "toarray"):
        return None
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else False
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim == 1 and n in (None, len(values)):
        return np.asarray(np.isfinite(values) & ~np.asarray(hidden))
    frame = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        entries = np.array([column.to_list() for column in frame.iter_columns()], dtype=object).T
    else:
        entries = np.asarray(frame.to_list() if isinstance(frame, nw.Series) else values, dtype=object)
    if entries.ndim not in (1, 2) or (n is not None and len(entries) != n):
        return None  # others say what is wrong with it
    number = (float, np.floating)
    empty = [is_gap(value) or (isinstance(value, number) and not np.isfinite(value)) for value in entries.ravel()]
    gaps = np.array(empty, dtype=bool).reshape(entries.shape) | hidden
    return np.asarray(~(gaps if entries.ndim == 1 else gaps.any(axis=1)))


def taken(values: Any, keep: Truth) -> Any:
    """These rows of a column or table in memory, of the same kind; None and names of columns as they are."""
    if values is None or isinstance(values, str):
        return values
    frame = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(frame, (nw.DataFrame, nw.Series)):
        return frame.filter(keep.tolist()).to_native()
    return np.asarray(values)[keep]


def complete_rows(table: Rows) -> Truth:
    return _gaps(table)[0]


def _gaps(table: Rows) -> tuple[Truth, IntArray]:
    """(n,): rows without gaps in any column, and how many gaps each column has."""
    kept, counts = list[Any](), np.zeros(table.width, dtype=np.int64)
    for block in table.chunks():
        there = np.isfinite(block)
        kept.append(there.all(axis=1))
        counts += np.sum(~there[:, : table.width], axis=0)
    if not kept:
        raise DataError("there are no rows")
    return np.concatenate(kept), counts


def say_dropped(kept: int, n: int, why: str = _GAPS, most: str = "") -> str:
    """Count the rows that were left out, in a sentence; refuse to leave out all. most : what most of them lack."""
    if not kept:
        columns = f"columns such as {most}" if most else "columns without values"
        raise DataError(f"all {n} rows have {why}: none is left. Leave out {columns}")
    if kept == n:
        return ""
    told = f"{n - kept} of {n} rows have {why} and were left out; {kept} are kept."
    told += f" Most of them lack {most}." if most else ""
    warn_user(told, MissingValueWarning)
    return told


def without_gaps(
    rows: Rows, columns: Any, design: Design, groups: Any, missing: str
) -> tuple[Rows, Any, IntArray | None, str]:
    """Rows and groups without the rows with gaps in these columns, if missing="drop"; the numbers of those that are left, where
    some were left out; and a sentence about these. Rows without a group, or a covariate that is text, are left out unless
    missing="error"."""
    if missing == "error":
        return rows, groups, None, ""
    keep, labelled, most = np.ones(0, dtype=bool), there(groups, None), ""
    texts = [name for levels in design.levels() for name in levels.columns]
    if missing == "drop" or texts:
        keep, counts = _gaps(rows.select(columns if missing == "drop" else texts))
        worst = int(np.argmax(counts))
        if missing == "drop" and counts[worst] and worst < len(design.used):
            most = f"{design.describe(worst)} ({counts[worst]})"
    if labelled is not None and not labelled.all() and (not len(keep) or len(keep) == len(labelled)):
        keep = labelled if not len(keep) else keep & labelled
    if keep.all():
        return rows, groups, None, ""
    why = _GAPS if labelled is None or labelled.all() else f"{_GAPS} or no group"
    note = say_dropped(int(keep.sum()), len(keep), why, most)
    return rows.kept(keep), taken(groups, keep), np.flatnonzero(keep), note


def read_once(rows: Rows, missing: str, order: int, **reading: Any) -> tuple[Moments, str]:
    """The state of rows that are gone when they were read, and a sentence about those that were left out."""
    if missing == "available":
        raise DataError("a stream is read once, which does not tell what its gaps lack: use missing='drop', or a file")
    if missing == "drop" and reading.get("groups") is not None:
        raise DataError("rows that are read once cannot be left out of groups= that were given before: use a file")
    whole = rows.kept(None) if missing == "drop" else rows
    with constants_told_later():
        state = Moments.of(whole, order, **reading)
    return state, say_dropped(state.n, state.n + whole.source.dropped) if isinstance(whole.source, Kept) else ""


def in_order_of(table: object, values: Any, what: str, samples: Sequence[Any] | None = None) -> Any:
    """Values of a labelled series in the order of a labelled table's rows; others as they are.

    Labels count where both have them: a default index (0, 1, ...) is no label beside texts. Beside other numbers it is one: a
    default index is also what the first rows of a longer table have, and whether these are the same samples nobody can tell.
    samples : the labels of rows that are no data frame; such tables may have lost samples when they were put side by side, and
    values of these are left out.
    """
    if not hasattr(values, "reindex") or not hasattr(getattr(values, "index", None), "equals"):
        return values
    given = values.index
    if samples is None:
        here: Any = getattr(table, "index", None) if hasattr(table, "columns") else None
    elif counts_rows(given) and len(given) != len(samples):
        return values  # of the rows of the first table, of which some are left out
    else:
        import pandas

        here = pandas.Index(list(samples))
    if not hasattr(here, "equals") or here.equals(given):
        return values
    if len(here) != len(given) and (samples is None or len(here.difference(given, sort=False))):
        return values  # of another length: refused in words elsewhere
    if here.is_unique and given.is_unique and not len(here.difference(given, sort=False)):
        return values.reindex(here)
    numbered = here.dtype.kind in "iu" and given.dtype.kind in "iu"
    if not numbered and (counts_rows(here) or counts_rows(given)):
        bare, other = ("the table", what) if counts_rows(here) else (what, "the table")
        warn_user(f"no sample labels in {bare}: rows are taken to be in the order of {other}", UserWarning)
        return values
    unknown = given.difference(here, sort=False)
    raise DataError(
        f"the labels of {what} are not those of the table's rows ({len(unknown)} are not in it"
        + (f", such as {unknown.tolist()[0]!r}" if len(unknown) else "; some stand twice")
        + f"): give {what} the table's index, or as an array (.to_numpy()) in the order of the rows"
    )
