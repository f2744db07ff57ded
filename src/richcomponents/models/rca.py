"""The shell of every RCA: doors through which samples come in, and answers that do not depend on how it was solved.

    samples -> columns of the views side by side, covariates removed (Data) -> a solution -> components_

ContrastiveRCA and RCA say which views they take, how their components are called and which solver they use.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import TransformerMixin

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF, least_squares
from richcomponents.components.component import Component, RowSource
from richcomponents.components.wide import SearchSpace, Spread, search_space
from richcomponents.cumulants.estimate import Estimate, from_replicates
from richcomponents.data.align import in_order_of, named_views
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import ArraySource, Kept, is_dask, is_path
from richcomponents.data.sources.memory import TablesSource
from richcomponents.data.table import (
    Views,
    are_tables,
    check_finite,
    check_outcome,
    check_range,
    counts_in,
    is_annotated,
    listed,
)
from richcomponents.errors import (
    ConstantColumnWarning,
    CountsWarning,
    DataError,
    MissingValueError,
    SampleSizeWarning,
    constants_told_later,
    warn_user,
)
from richcomponents.inference.draws import Draws
from richcomponents.inference.verdicts import Test
from richcomponents.learning.coefficients import Coefficients, Refit
from richcomponents.learning.glm import LinearPredictor
from richcomponents.learning.outcome import Outcome
from richcomponents.models.design import (
    Design,
    UsedColumns,
    is_column,
    labels_in,
    lay_out,
    names_columns,
    with_outcome,
)
from richcomponents.models.estimator import Estimator, refuse_second_table, under_labels
from richcomponents.models.gaps import (
    WAYS,
    available,
    complete_rows,
    describe,
    parts_of,
    prediction_variance,
    say_dropped,
    taken,
    there,
    without_covariates,
)
from richcomponents.models.results import annotate, component_columns, lazily, rows_of_fit, write_answers
from richcomponents.moments import Accumulator, Moments, block_numbers, partial_out
from richcomponents.moments.available import Available, Fill, Gaps, drawn_blocks
from richcomponents.moments.data import (
    AffineMap,
    Data,
    Inflated,
    Partial,
    RowData,
    RowUnits,
    StateData,
    equivalent_rows,
    lost_rows,
    partial_out_rows,
)
from richcomponents.pair.classes import ClassPart, HiddenClasses
from richcomponents.pair.diagnostics import outcome_test
from richcomponents.pair.solution import PairSolution
from richcomponents.progress import each
from richcomponents.text import in_line

MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
MOST_BLOCKS = 200  # pairs of blocks are compared: time and memory grow with the square
_WIDE = 2000  # columns above which nothing is kept for all pairs of them
_BLOCKED = 300  # columns above which hidden classes have no second moments by block
_D = TypeVar("_D", bound=Data)
_GAPS = "missing or infinite values"
_OTHER_ROWS = (
    "the fit knew groups or weights of its rows, but not those of this table: pass groups= or sample_weight= "
    "(sample_weight=np.ones(len(X)) if its rows are independent)"
)


class ComponentAnalysis(TransformerMixin, Estimator):  # type: ignore[misc]
    """Base of :class:`ContrastiveRCA` and :class:`RCA`. After a fit:

    views_ : Views; components_ : {name: Component}; and, for the methods here, the solution and how its columns were made.
    """

    views: Any
    method: str
    order: int
    covariates: Any
    n_blocks: int
    missing: str
    _gaps_told: str
    _parts: dict[Any, Component]

    # ---- what a kind of RCA decides

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse impossible parameters before any sample is read."""

    @abstractmethod
    def _check_views(self, views: Views) -> None:
        """Refuse views that this model cannot take."""

    @abstractmethod
    def _solve(self, data: Data) -> Any:
        """The solution for the columns of all views side by side."""

    @abstractmethod
    def _adopt(self, solution: Any) -> None:
        """Make a solution the fitted attributes."""

    @abstractmethod
    def _key(self, component: object) -> Hashable:
        """The name of a component, from what the user gave; None: the first view's own."""

    @abstractmethod
    def sides(self, component: Any, views: Sequence[str]) -> tuple[str, list[str], list[str]]:
        """Of these views: the one in whose columns a component is written, the others where it lives, and those where it does
        not; nothing is fitted."""

    def _hidden_classes(self, data: RowData) -> HiddenClasses | None:
        """Classes of rows that this model finds by itself and removes as covariates are; none by default."""
        return None

    @property
    def _questioned(self) -> bool:
        """Whether such classes are left in where the model fails without them."""
        return False

    # ---- doors

    def fit(
        self,
        X: object,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        progress: bool = False,
    ) -> Self:
        """Fit to one table whose columns are the views (and the covariates).

        Parameters
        ----------
        X : array or data frame of shape (n, d), or whatever :func:`open_source` takes or returns
            Of a sparse matrix (also inside an AnnData) a few rows at a time are made dense, never all of it. Files and dask
            collections are read twice, in bounded memory, and give the same bits as the table in memory; an iterator of
            blocks of rows is read once, and fitted as :meth:`fit_moments` does.
        y : ignored, as scikit-learn expects
        groups : array of labels (n,), or the name of a column that belongs to no view, optional
            Rows of a group stay in one block, and tests count groups as far as their rows repeat each other.
        sample_weight : array of whole numbers (n,), optional
            How often each row is counted: the fit to the rows repeated, all copies of a row in one block (as with groups):
            one independent row, however often it is counted.
        progress : bool
            Show how far it is, on standard error: a bar on a terminal and in a notebook, written every ten seconds in a
            log.
        """
        refuse_second_table(y)
        weight = _lined_up(X, sample_weight, "sample_weight")
        self.fit_data(X, groups=_lined_up(X, groups, "groups"), sample_weight=weight, progress=progress)
        return self

    def fit_data(
        self,
        X: object,
        *,
        views: object = None,
        sample_weight: object = None,
        beside: Sequence[Any] = (),
        design: Design | None = None,
        quiet: bool = False,
        **reading: Any,
    ) -> Data:
        """As :meth:`fit` (or :meth:`fit_moments`, if X is a state); returns what the solver saw, which can be asked for more:
        moments of maps of the columns of all views, covariates removed.

        views : instead of the parameter. beside : columns of X (an outcome) that are in no view, whatever `views=` divides.
        design : of rows that were laid out before, with columns added to a table: others are read as that one was. quiet : do
        not warn of what the fit does not tell.
        """
        self._check_parameters()
        self._quiet = quiet
        views = self.views if views is None else views
        if isinstance(X, Moments):
            self._set_features(X.layout.n_columns, X.names)
            state, design = self.lay_out(X, beside, views)
            return self._fit_state(self._laid_out(design, state))
        opened = self._open(X, reset=True, at_least=2)
        rows, design = self.lay_out(opened, beside, views) if design is None else (opened, design)
        if isinstance(reading.get("groups"), str):
            reading["groups"] = _labels_in(rows, design, reading["groups"])
        rows = rows if sample_weight is None or rows.weighted else rows.weighted_by(sample_weight)
        if rows.rereadable:
            rows, reading["groups"], _ = self.without_gaps(rows, design.used, design, reading.get("groups"))
            return self._fit_rows(rows, design, reading)
        return self._fit_state(self._read_once(self._laid_out(design, rows), **reading))

    def lay_out(self, table: Rows | Moments, beside: Sequence[Any] = (), views: object = None) -> tuple[Any, Design]:
        """The table with what its design added to it, and the design; views : instead of the parameter."""
        views = self.views if views is None else views
        return lay_out(table, views, self.covariates, beside, gaps=self.missing != "error")

    def _read_once(self, table: Rows, **reading: Any) -> Moments:
        """The state of rows that are gone when they were read."""
        if self.missing == "available":
            raise DataError(
                "a stream is read once, which does not tell what its gaps lack: use missing='drop', or a file"
            )
        if self.missing == "drop" and reading.get("groups") is not None:
            raise DataError("rows that are read once cannot be left out of groups= that were given before: use a file")
        whole = table.kept(None) if self.missing == "drop" else table
        with constants_told_later():
            state = Moments.of(whole, self._state_order, n_blocks=self.n_blocks, **reading)
        if isinstance(whole.source, Kept):
            self._gaps_told = say_dropped(state.n, state.n + whole.source.dropped, _GAPS)
        return state

    def present(
        self,
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
        X = Rows(TablesSource(X)) if are_tables(X) else X
        y, groups = _lined_up(X, y, "y"), _lined_up(X, groups, "groups")
        sample_weight = _lined_up(X, sample_weight, "sample_weight")
        if self.missing == "error" or isinstance(X, (Moments, Iterator)) or (y is None and not columns):
            return X, y, groups, sample_weight
        rows = self._open(X, reset=not hasattr(self, "_design"))
        if not rows.rereadable:
            return X, y, groups, sample_weight
        named = [*columns, *names_columns(rows, y)]
        parts = [labels_in(rows, one, f"the {role}") for one in named] if named else [y]
        found = [part for part in (there(values, rows.n_rows) for values in parts) if part is not None]
        keep = np.all(found, axis=0) if found else np.ones(1, dtype=bool)
        if keep.all():
            return X, y, groups, sample_weight
        say_dropped(int(keep.sum()), len(keep), f"no {role}")
        left = (one if isinstance(one, str) else taken(one, keep) for one in (groups, sample_weight))
        return rows.kept(keep), y if named else taken(y, keep), *left

    def complete(self, X: Any, y: Any, beside: Sequence[Any] = ()) -> tuple[Any, Any]:
        """X, and values y, without rows that have gaps in either, unless missing="error": for methods that need whole rows."""
        X, y, *_ = self.present(X, y)
        if self.missing == "error":
            return X, y
        opened = self._open(X, reset=True)
        rows, design = self.lay_out(opened, beside)
        keep = complete_rows(rows.select(design.used))
        return opened.kept(keep), taken(y, keep)

    def without_gaps(
        self, rows: Rows, columns: Any, design: Design, groups: Any = None
    ) -> tuple[Rows, Any, IntArray | None]:
        """Rows and groups without the rows with gaps in these columns, if missing="drop"; and the numbers of those that are
        left, where some were left out. Rows without a group, or a covariate that is text, are left out unless
        missing="error"."""
        if self.missing == "error":
            return rows, groups, None
        keep, labelled = np.ones(0, dtype=bool), there(groups, None)
        texts = [name for levels in design.levels() for name in levels.columns]
        if self.missing == "drop" or texts:
            keep = complete_rows(rows.select(columns if self.missing == "drop" else texts))
        if labelled is not None and not labelled.all() and (not len(keep) or len(keep) == len(labelled)):
            keep = labelled if not len(keep) else keep & labelled
        if keep.all():
            return rows, groups, None
        why = _GAPS if labelled is None or labelled.all() else f"{_GAPS} or no group"
        told = say_dropped(int(keep.sum()), len(keep), why)
        if not hasattr(self, "_solution"):
            self._gaps_told = told
        return rows.kept(keep), taken(groups, keep), np.flatnonzero(keep)

    def fit_views(
        self,
        views: object,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        align: str = "same",
        id: str | None = None,
    ) -> Self:
        """Fit to separate tables: a list, a dict {name: table}, or a MuData-like object; samples line up by label.

        align : where tables have sample labels (a pandas index, obs_names of AnnData): "same", they must be the same ones, in
        any order; "inner", samples that all tables have: others are left out, counted and named in a warning; "outer", samples
        that any table has, for ``missing="available"``. Without labels tables are taken row by row and have equal length.
        id : the column of sample labels, of data frames and files. groups, sample_weight : of the rows of the first table.
        """
        refuse_second_table(y)
        if all(map(is_path, named_views(views).values())):
            rows = open_source(named_views(views), id=id, align=None if id is None else align)
            for note in rows.source.notes:
                warn_user(note, UserWarning)
        else:
            tables = TablesSource(views, align=align, id=id)
            groups = tables.table.lined_up(groups, "groups")
            sample_weight = tables.table.lined_up(sample_weight, "sample_weight")
            rows = Rows(tables)
        own = {name: list(columns) for name, columns in rows.views.items()}
        self.fit_data(rows, views=own, groups=rows.group_labels(groups), sample_weight=sample_weight)
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; `views=` is an int, or a dict of column numbers, or of names where the state has
        them. The coordinates that a fit looks at are applied to the block tensors, so the result agrees with :meth:`fit` on the
        same rows and blocks. Except for an RCA of three views and more: rows give its last fit of A better weights, so that
        transformations differ by a few percent of their size, less than their error (see :class:`RCA`).
        """
        self.fit_data(moments)
        return self

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments.

        For many small blocks an :class:`Accumulator` and one :meth:`fit_moments` at the end are cheaper. A call that
        fails leaves the rows seen so far as they were.
        """
        refuse_second_table(y)
        self._add_block(X)
        return self

    def _add_block(self, X: object, outcome: object = None) -> tuple[StateData, Any]:
        """Refit from all rows seen so far and these; what the solver saw, and the outcome beside it."""
        self._check_parameters()
        stream = getattr(self, "_stream", None)
        rows = self._open(X, reset=stream is None)
        beside = [outcome] if is_column(outcome) else []
        design = self.lay_out(rows, beside)[1] if stream is None else self._design
        if design.added:
            raise DataError(
                f"the covariate {design.added[0].name!r} is no column of numbers: encode it as numbers before the stream, "
                "whose levels nobody knows until it ends"
            )
        table = design.found_in(rows, outcome)
        if self.missing == "available":
            raise DataError("blocks that are added one by one do not tell what gaps lack: use missing='drop', or fit")
        values = table.array()
        if self.missing == "drop":
            fine = np.flatnonzero(np.isfinite(values).all(axis=1))
            say_dropped(len(fine), len(values), _GAPS)
            values = values[fine]
        check_finite(values, design.side_by_side())
        begun = Accumulator(self._state_order, n_blocks=self.n_blocks, names=table.names)
        stream = begun if stream is None else stream.copy()
        stream.update(values)
        with constants_told_later():
            state = stream.moments()
        found = self._fit_selected(state, design, outcome is not None)
        self._stream = stream
        return found

    def _fit_selected(self, state: Moments, design: Design, outcome: bool) -> tuple[StateData, Any]:
        """state : of the columns used and, last, the outcome if there is one."""
        self._laid_out(design)
        data = self._fit_state(state.select(np.arange(len(design.used))))
        return data, self._of_state(state) if outcome else None

    def fit_outcome(
        self,
        X: object,
        y: object,
        groups: object = None,
        *,
        component: object = None,
        column: object = None,
        every_row: bool = False,
    ) -> tuple[Data, Outcome]:
        """Fit to X, and read an outcome beside the views: what learners begin with.

        X, y, groups : as in :meth:`outcome`; a stream is read once. component : what the outcome depends on. column : the
        column of X that y was made of, if any. every_row : the rows themselves are needed, in memory, not only their second
        moments.
        """
        beside = [one for one in (y if is_column(y) else column,) if one is not None]
        if isinstance(X, Moments):
            return self.fit_data(X, beside=beside), self.outcome(X, y)
        self._check_parameters()
        rows, design = self.lay_out(self._open(X, reset=True, at_least=2), beside)
        if isinstance(groups, str):
            groups = _labels_in(rows, design, groups)
        both, last = with_outcome(rows, y)
        columns = np.append(design.used, last)
        if not rows.rereadable:
            state = self._read_once(both.select(columns), groups=groups)
            return self._fit_selected(state, design, True)
        both, groups, at = self.without_gaps(both, columns, design, groups)
        table = both.select(columns)
        if every_row and not table.held:
            table = Rows(ArraySource(table.array(), table.names))

        def outcome_beside() -> Outcome:
            return self._outcome_of(table, groups, every_row=every_row, summed=True)

        def contradicts() -> bool:
            on_v = self.beside(outcome_beside(), component)[0].on_v
            return on_v is not None and bool(on_v.fails)

        found = self._fit_rows(rows if at is None else both, design, {"groups": groups}, contradicts)
        made = outcome_beside()
        return found, made if at is None else replace(made, at=at if made.at is None else at[made.at])

    def _laid_out(self, design: Design, table: Any = None) -> Any:
        """Take over a design; returns the columns of the views, then the covariates, of the table."""
        self._check_views(design.views)
        self._design, self.views_ = design, design.views
        self._columns, self._covariate_columns = design.columns, design.known
        self._fill: Fill | None = None
        self._classes: HiddenClasses | None = None
        self._class_note = ""
        self._class_part: ClassPart | None = None
        return None if table is None else table.select(design.used)

    def _fit_state(self, state: Moments) -> StateData:
        """state : of the columns of all views, then the covariates."""
        if state.layout.order < self._state_order:
            raise DataError(
                f"a state of order {self._state_order} is needed, this one has order {state.layout.order}: make it with "
                f"Moments.of(X, order={self._state_order})"
            )
        self._partial: Partial | None = None
        self._units: RowUnits | None = None
        self._depends, self._weighted, lost = state.dependent, state.dependent, 0.0
        self._class_note = "not looked for: a state has no rows"
        if len(self._covariate_columns):
            self._partial = partial_out(state, range(len(self._columns), state.layout.n_columns))
            lost = float(self._partial.rank)
            state = self._partial.state(state, self._stretch(lost))
        return self._finish(StateData(state, lost))

    @property
    def _state_order(self) -> int:
        """Of a state that a fit can do with."""
        return max(int(self.order), 4)

    def _stretch(self, lost: float) -> float:
        """Of residuals, for the rows' worth of freedom that covariates took (see Inflated)."""
        partial = self._partial
        assert partial is not None
        if partial.n - lost < 2:
            raise DataError(
                f"{partial.rank} covariates leave nothing of {partial.n} rows (of fewer, where groups or weights make them "
                "depend on each other): use fewer covariates or more rows"
            )
        return float((partial.n / (partial.n - lost)) ** 0.5)

    def _fit_rows(
        self, rows: Rows, design: Design, reading: dict[str, Any], contradicts: Callable[[], bool] = bool
    ) -> RowData | Available:
        """Fit to rows that can be read again; the same steps, and the same bits, in memory and out of it.

        contradicts : whether an outcome rejects the model as it was fitted; without one nothing does.
        """
        table = self._laid_out(design, rows)
        try:
            if self.missing == "available":
                gaps = Gaps.of(table, parts_of(design), lambda column: describe(design, column))
                if gaps.any:
                    return self._fit_available(table, gaps, reading.get("groups"))
            return self._fit_table(table, reading, contradicts)
        except MissingValueError as error:
            found = table.first_missing()
            if found is None:
                raise
            row, at, count = found
            raise DataError(
                f"{describe(design, at)} holds {count} missing or infinite values (the first in data row {row + 1} of "
                f'{table.source.title}): drop those rows or impute them first, or say missing="drop" or "available"'
            ) from error

    def _fit_table(self, table: Rows, reading: dict[str, Any], contradicts: Callable[[], bool]) -> RowData:
        """table : the columns of all views, then the covariates.

        Hidden classes that nobody asked for stay removed only where the model holds with them: they may be what the outcome
        depends on.
        """
        known = self._covariate_columns
        first = table.array() if table.held else table.head(LEAF)
        if table.held:
            check_finite(first, self._design.side_by_side())  # the view and the row are named
        self._keep_units(table, reading.get("groups"), lambda: table.select([0]).array()[:, -1])
        self._warn_of_counts(first[:LEAF])
        self._partial = None
        plain = self._row_data(table, len(known), reading)
        self._classes, partial = self._hidden_classes(plain), self._partial
        if self._classes is None:
            return self._finish(plain)
        data = self._row_data(table.mapped(self._classes), len(known) + len(self._classes) - 1, reading)
        if not self._questioned:
            return self._finish(data)
        self._take(data)
        if self.verdict_ != "contradicted" and not contradicts():
            self._warn_of_fit()
            return data
        self._class_note = f"{len(self._classes)} seen, but left in: with them removed the model fails"
        self._classes, self._class_part, self._partial = None, None, partial
        with constants_told_later():
            return self._finish(plain)

    def _keep_units(self, table: Rows, groups: object, weight: Callable[[], Array]) -> None:
        """Rows that are seen again, with an outcome, depend on each other as they did here; weight() : of weighted rows."""
        self._depends, self._weighted = groups is not None or table.weighted, table.weighted
        self._units = None
        if not table.source.shared and table.n_rows is not None:
            self._units = RowUnits.of(table.n_rows, groups, weight() if table.weighted else None)

    def _row_data(self, table: Rows, known: int, reading: dict[str, Any]) -> RowData:
        """table : the columns of all views, then so many covariates, which are removed."""
        if not known:
            return RowData(table, self.n_blocks, **reading)
        width, groups, second = len(self._columns) + known, reading.get("groups"), None
        places = np.arange(len(self._columns), width)
        if width > _WIDE:
            inside = table.array()
            weight = inside[:, -1] if table.weighted else np.ones(len(inside))
            self._partial = partial_out_rows(inside[:, :width], places, weight)
        elif self._classes is None or width > _BLOCKED:
            with constants_told_later():
                self._partial = partial_out(Moments.of(table, 2, n_blocks=1), places.tolist())
        else:
            with constants_told_later():
                second = Moments.of(table, 2, n_blocks=self.n_blocks, groups=groups)
            self._partial = partial_out(second, places.tolist())
        if self._classes is not None:
            d_u = next(iter(self._places.values())).stop
            self._class_part = ClassPart.of(self._partial, d_u, len(self._classes), second)
        with constants_told_later():
            lost = lost_rows(self._partial, table, groups)
        left = table.mapped(Inflated(self._partial, self._stretch(lost)), names=self._names)
        return RowData(left, self.n_blocks, lost=lost, **reading)

    def _fit_available(self, table: Rows, gaps: Gaps, groups: object) -> Available:
        """Fit to rows with gaps."""
        known = self._covariate_columns
        with constants_told_later():
            data = available(table, gaps, self._design, self.n_blocks, groups)
        self._keep_units(table, groups, lambda: gaps.weight)
        self._partial, self._gaps_told = None, gaps.note()
        self._class_note = "not looked for in rows with gaps (missing='available')"
        second = data.moments(2)
        self._fill = Fill(np.array(second.mean), second.covariance())
        if len(known):
            self._partial = partial_out(second, range(len(self._columns), table.width))
            lost = float(self._partial.rank)
            data = without_covariates(data, self._partial, self._stretch(lost), lost)
        return self._finish(data)

    def _finish(self, data: _D) -> _D:
        self._take(data)
        self._warn_of_fit()
        return data

    def _take(self, data: Data) -> None:
        """Fit, and say nothing yet."""
        self._lost = data.lost
        self._adopt(self._solve(data))

    def _warn_of_fit(self) -> None:
        if isinstance(self._solution, PairSolution) and not getattr(self, "_quiet", False):
            self._solution.warn()

    @property
    def _places(self) -> dict[str, slice]:
        """{view: its columns among those side by side}."""
        return self._design.places()

    def read_views(self, X: object, beside: Sequence[Any] = ()) -> tuple[dict[str, Array], Array, Views]:
        """{view: its values (n, d)} and the covariates (n, q) of a table, as a fit would take them, and the views; nothing is
        fitted. beside : columns of X that are in no view."""
        reader = copy(self)
        reader._check_parameters()
        rows, design = self.lay_out(reader._open(X, reset=True), beside)
        values = reader._laid_out(design, rows).array()
        check_finite(values, design.side_by_side())
        views = {name: values[:, place] for name, place in design.places().items()}
        return views, values[:, len(design.columns) :], design.views

    def _check_blocks(self) -> None:
        if self.missing not in WAYS:
            raise ValueError(f"missing must be one of {', '.join(map(repr, WAYS))}, got {self.missing!r}")
        if self.method not in ("efficient", "paper"):
            raise ValueError(f"method must be 'efficient' or 'paper', got {self.method!r}")
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 3 <= self.order <= 6:
            raise ValueError(f"order must be an integer from 3 to 6, got {self.order!r}")
        if not isinstance(self.n_blocks, (int, np.integer)) or not MIN_BLOCKS <= self.n_blocks <= MOST_BLOCKS:
            raise ValueError(
                f"n_blocks must be an integer, at least {MIN_BLOCKS} and at most {MOST_BLOCKS}, got {self.n_blocks!r}"
            )

    def _space(self, data: Data, rank: object = None) -> SearchSpace:
        """The columns to look at: of wide views their principal components, at least so many as a rank that is a number."""
        space = self._searched(data, rank)
        self._warn_of_constants(space.data.moments(2).variances if space.rows is None else space.rows.var(axis=0))
        return space

    def _searched(self, data: Data, rank: object) -> SearchSpace:
        at_least = int(rank) if isinstance(rank, (int, np.integer)) else 1
        return search_space(data, self._places, lambda rows: check_range(rows, self.views_), at_least)

    def _warn_of_counts(self, rows: Array) -> None:
        """Say what to do first with views that look like raw counts; rows : some of the table, those of the views first."""
        told = {view: counts_in(rows[:, part]) for view, part in self._places.items()}
        shown = [f"{view!r} (up to {most:.0f}, {mean:.2g} on average)" for view, (most, mean) in told.items() if most]
        if shown:
            warn_user(
                f"the values of {', '.join(shown)} look like raw counts: whole numbers, none negative, a few of them large. "
                "What disturbs counts multiplies them, the model adds: divide by each sample's total and take logarithms first "
                "(in scanpy, sc.pp.normalize_total(adata) and sc.pp.log1p(adata))",
                CountsWarning,
            )

    def _warn_of_constants(self, variances: Array) -> None:
        """variances : of the columns of the views."""
        constant = self._columns[variances <= 0]
        if len(constant):
            named = ", ".join(self.views_.describe(int(column)) for column in constant[:5])
            more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
            warn_user(
                f"constant: {named}{more}. Such columns say nothing about any component: drop them",
                ConstantColumnWarning,
            )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(str(self.views_.feature_names[c]) for c in self._columns)

    def gap_notes(self) -> tuple[str, ...]:
        """What was missing, and what was done about it, in sentences."""
        told = getattr(self, "_gaps_told", "")
        return (told,) if told else ()

    def covariate_notes(self) -> tuple[str, ...]:
        """What covariates that are texts were compared with, in sentences."""
        return tuple(f"Covariate {levels}." for levels in self._design.levels())

    def covariates_listed(self) -> list[str]:
        """A line about covariates that are numbers, where they have names."""
        texts = {name for levels in self._design.levels() for name in levels.columns}
        named = [str(self.views_.feature_names[c]) for c in self._covariate_columns] if self._design.named else []
        numbers = [in_line(name) for name in named if name not in texts]
        return [f"Covariate{'s' if len(numbers) > 1 else ''}: {listed(numbers, 12)}."] if numbers else []

    # ---- values of the components

    def transform(
        self,
        X: object,
        component: object = None,
        return_std: bool = False,
        *,
        out: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> Any:
        """Best linear unbiased prediction of a component for each sample, seen or not.

        component : by default the first view's own, the cleaned matrix: under that view's column names. Predictions of all
        components, transformed, add up to the views (not with method="paper", whose covariances do not). As predictors in a
        linear model they give the right coefficients, but their covariance is too small: no principal components, mixtures or
        outcomes from them (use the component's own covariance and cumulants).

        return_std : also the standard error of prediction, (n, d).

        out : a file for the predictions, .parquet, .csv or .tsv: rows of any number are read, predicted and written a few at a
        time, a row with a missing value as empty cells; returned is its path. progress : as in :meth:`fit`, of such a file.
        Of a dask array or data frame the result is one, too, and nothing is computed yet.
        """
        if out is not None:
            if return_std:
                raise ValueError("a file holds the predictions: ask for return_std without out=")
            rows, label = rows_of_fit(self, X), "predictions" if progress else None
            labels = {} if rows.samples is None else {"sample": np.array(rows.samples, dtype=object)}
            write_answers(out, rows, component_columns(self, component), labels, progress=label)
            return Path(out)
        if is_dask(X) and not return_std:
            return lazily(self, X, component)
        configured = getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default"
        names = self.components_[self._key(component)].feature_names
        if configured and names != self.components_[self._key(None)].feature_names:
            raise ValueError(
                "set_output names the columns of the default component; for others use predict_component(X, component)"
            )
        table = self._table(X)
        found = self._predicted(table, component, return_std)
        return found if return_std else under_labels(self, found, table.samples)

    def predict_component(self, X: object, component: object = None, *, return_std: bool = False) -> Any:
        """As :meth:`transform`, always as plain arrays."""
        return self._predicted(self._table(X), component, return_std)

    def samples_of(self, X: object) -> tuple[object, ...] | None:
        """The labels of the samples of a table (a pandas index, obs_names of AnnData, the column `id=` of a file), if any."""
        return self._open(X, reset=False).samples

    def first_rows(self, X: object, most: int) -> tuple[dict[str, Array], Array, Array] | None:
        """The first rows of X, at most so many, in the columns that the fit used: those of each view (n, d) with nan where a
        value is missing, covariates (n, q), and the prediction of the default component (n, d), about its mean, nan where there
        is none. None for rows that are read once only."""
        rows = self._table(X)
        if not rows.rereadable:
            return None
        values = np.array(rows.head(most), dtype=np.float64)
        values[~np.isfinite(values)] = np.nan
        filled = values if self.missing == "error" else self.filled(values)
        known, mean = np.isfinite(filled).all(axis=1), self.components_[self._key(None)].mean
        own = np.full((len(values), len(mean)), np.nan)
        if known.any():
            own[known] = self._predicted(Rows(UsedColumns(filled[known])), None, False)
        width = max(place.stop for place in self._places.values())
        views = {view: values[:, place] for view, place in self._places.items()}
        return views, values[:, width:], own - mean

    def _predicted(self, table: Rows, component: object, return_std: bool) -> Any:
        """table : of the columns used."""
        key = self._key(component)
        rows = self.filled(table.array())
        values, error = self._solution.predict(key, self._about_fit(rows))
        values = values + self.components_[key].mean
        if self._class_part is not None and key == self._solution.keys[1]:
            values = values + self._class_part.in_u(*self._beside_views(rows))
        if not return_std:
            return values
        variance = np.tile(np.maximum(error.diagonal(), 0.0), (len(values), 1))
        if self.missing != "error":
            maps = self._solution.predict(key, np.eye(len(self._columns)))[0]
            maps = maps if self._partial is None else (self._partial.matrix @ maps)[: len(self._design.used)]
            variance += prediction_variance(self._prediction(), table.array(), maps)
        return values, np.sqrt(variance)

    def annotate(self, data: Any, key: str = "rca", components: Sequence[Any] | None = None) -> None:
        """Write what was found into the AnnData or MuData that was fitted, or one with the same variables.

        ``obsm[f"{key}_S1"]`` : the predictions of each of the `components` (by default the first view's own), a data frame
        under the names of its columns; of a subset of views, ``f"{key}_rna+protein"``. ``varm[key]`` : the variance of each
        variable that is its own, and that it shares; nan for one that is in no view. ``uns[key]`` : model, verdict, n, views,
        summary, and of two views rank and canonical correlations. Of a MuData obsm and varm are those of the modality in
        whose columns they are, with nan for samples that not all modalities have.
        """
        annotate(self, data, key, components)

    def prediction_error(self, component: object = None) -> Any:
        """Expected squared error (d, d) of the prediction of a component; of wide views as factors."""
        return self._solution.predict(self._key(component), np.zeros((0, len(self._columns))))[1]

    def prediction_covariance(self, data: Data, component: object = None) -> Array:
        """Covariance (d, d) of the predictions of a component for the rows it was fitted to; data : of :meth:`fit_data`, also
        where the rows are not at hand."""
        maps = self._solution.predict(self._key(component), np.eye(len(self._columns)))[0]
        if len(maps) > _WIDE:
            return np.asarray(data.moments(2, AffineMap(self._solution.mean, maps)).covariance())
        return np.asarray(maps.T @ data.moments(2).covariance() @ maps)

    def component_on_rows(self, X: object, component: object = None, groups: object = None) -> Component:
        """The component with its higher cumulants read off the rows of X whenever they are asked for.

        For tables too wide for a state of order four (then components_ knows mean and covariance only): a projected cumulant
        costs O(n p) and nothing of size p^3 is formed. Also the way to mini-batches. The rows stay in memory, n x p numbers.

        groups : (n,) labels; rows of a group stay in one block.
        """
        key = self._key(component)
        z, terms = self._solution.on_rows(key, self._centred(X))
        blocks = X.block if isinstance(X, Outcome) else block_numbers(len(z), self.n_blocks, groups)
        source = RowSource(z, blocks)
        return replace(self.components_[key], source=source, terms=terms, _known={})

    def component_for_gradients(self, outcome: Outcome, component: object, order: int) -> Component:
        """The component with projected cumulants up to this order from where they are cheapest: the state that the fit kept,
        or the rows of an outcome, where the state is larger than these, does not reach so far, or was not kept."""
        kept: Component = self.components_[self._key(component)]
        on_rows = self.component_on_rows(outcome, component)
        assert on_rows.source is not None
        source = kept.source
        if source is None or source.max_order < order or source.cost(order) > on_rows.source.cost(order):
            return on_rows
        return kept

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Column names of the first view."""
        first = self.views_[0]
        if hasattr(self, "feature_names_in_"):
            return np.asarray(self.feature_names_in_, dtype=object)[first]
        return np.array([f"x{i}" for i in first], dtype=object)

    def _centred(self, X: object) -> Array:
        """Rows of the views, covariates partialled out, about the means of the fit."""
        if isinstance(X, Outcome):
            return X.rows
        return self._about_fit(self._table(X).array())

    def _table(self, X: object, outcome: object = None) -> Rows:
        """The columns of all views, then the covariates, of other rows; last an outcome, a column or values."""
        if isinstance(X, Rows) and isinstance(X.source, UsedColumns):
            return X
        table: Rows = self._design.found_in(self._open(X, reset=False), outcome, gaps=self.missing != "error")
        return table

    def _about_fit(self, values: Array) -> Array:
        """The same of values (n, columns of all views and covariates)."""
        if not len(values):
            raise DataError("there are no rows")
        values = self.filled(values)
        check_finite(values, self._design.side_by_side())
        bad = ~np.isfinite(values[:, len(self._columns) :]).all(axis=0)
        if bad.any():
            name = self.views_.feature_names[self._covariate_columns[int(np.argmax(bad))]]
            raise DataError(
                f"the covariate {name!r} holds missing or infinite values: drop those rows or impute them first"
            )
        return self._residuals(values if self._classes is None else self._classes(values))

    def _residuals(self, values: Array) -> Array:
        """Of values (n, columns of all views, covariates and probabilities of hidden classes)."""
        rows: Array = (values if self._partial is None else self._partial.residuals(values)) - self._solution.mean
        return rows

    def _beside_views(self, values: Array) -> tuple[Array, Array]:
        """Covariates (n, q), and probabilities (n, K - 1) of hidden classes, of rows, about their means in the fit."""
        assert self._classes is not None
        assert self._partial is not None
        every = self._classes(values)[:, len(self._columns) :] - self._partial.mean[self._partial.covariates]
        q = len(self._covariate_columns)
        return every[:, :q], every[:, q:]

    def filled(self, values: Array) -> Array:
        """Gaps predicted from what is there of their rows, unless missing="error"."""
        if self.missing == "error" or np.isfinite(values).all():
            return values
        return self._prediction()(values)

    def _prediction(self) -> Fill:
        """Of the columns used, from the fit: Cov(views) = Cov(residuals) + B Cov(covariates) B'."""
        if self._fill is None:
            joint, mean = np.asarray(self._solution.joint()), self._solution.mean
            if self._partial is not None:
                B, known = self._partial.coefficients, self._partial.known
                joint = np.block([[joint + B @ known @ B.T, B @ known], [known @ B.T, known]])
                mean = np.concatenate([mean, self._partial.mean[self._partial.covariates]])
            used = len(self._design.used)  # not the probabilities of hidden classes
            self._fill = Fill(mean[:used], joint[:used, :used])
        return self._fill

    def class_effect(self, outcome: Outcome) -> Array | None:
        """Coefficients (K - 1,) of an outcome on the probabilities of all hidden classes but the first; None without them."""
        if self._classes is None or outcome.coef is None:
            return None
        return outcome.coef[len(self._covariate_columns) :]

    def along_classes(self, X: object, effect: Array) -> Array:
        """What that adds to the outcome of new rows, (n,)."""
        return np.asarray(self._beside_views(self.filled(self._table(X).array()))[1] @ effect)

    # ---- what learners ask

    def residual(self, X: object, component: object = None) -> Array:
        """R (n, d), centred: what is left of every column of a component's view after regression on the views where it does
        not live (on what they share with it, for two views; of an outcome, on what stands beside the first view)."""
        return self._simple("residual", X, component)

    def stand_in(self, X: object, component: object = None) -> Array:
        """The simple prediction of a component (n, d), centred, that learners are measured by: the residual, or, of a component
        that lives in several views, what the others predict of it. Least squares of an outcome on it is "residualised" (the
        other views as covariates) or "instrumental" (as instruments)."""
        return self._simple("stand_in", X, component)

    def _simple(self, what: str, X: object, component: object) -> Array:
        beside = X.on_v.beside if isinstance(X, Outcome) and X.on_v is not None else None
        return np.asarray(getattr(self._facing(component), what)(self._key(component), self._centred(X), beside))

    def _facing(self, component: object) -> Any:
        """The solution that answers for a component."""
        return self._solution.facing(self._key(component))

    def beside(self, outcome: Outcome, component: object = None) -> tuple[Outcome, Array | None]:
        """An outcome, with what it has to do with the other view of two; and, where it goes with that, the variates (m, k) of
        the other view that stand beside its residual. A component that lives in both views has no other."""
        solution = self._facing(component)
        if not len(solution.outside(self._key(component))):
            return replace(outcome, on_v=None), None
        found = replace(outcome, on_v=solution.on_v(outcome))
        if found.on_v is None or not found.on_v.goes_with:
            return found, None
        return found, solution.variates(outcome.rows, found.on_v.beside)

    def through_shared(self, X: object, coef: Array, component: object = None) -> Array:
        """coef'S2 (n,), centred, of the part that two views share besides hidden classes; coef (d,) : in the columns of the
        component's view."""
        _, shared, own_v = self._solution.keys
        values = self._solution.predict(shared, self._centred(X))[0]
        return np.asarray((self._solution.through_A(values) if self._key(component) == own_v else values) @ coef)

    def outcome(
        self,
        X: object,
        y: object,
        groups: object = None,
        sample_weight: object = None,
    ) -> Outcome:
        """An outcome beside the views: all that coefficients and tests read of it.

        X : as in :meth:`fit`, or a state; y : (n,) in memory, or the name or number of a column of X. Rows that are not in
        memory, and states, are read by their second moments, block by block: any size, one pass.
        groups, sample_weight : as in :meth:`fit`; by default those of the fit, when X has as many rows as it had.
        """
        if isinstance(X, Outcome):
            return X
        if isinstance(X, Moments):
            return self._of_state(self._design.found_in(X, y))
        table, groups, at = self.without_gaps(self._table(X, y), slice(None), self._design, groups)
        if at is not None and sample_weight is not None:
            sample_weight = np.asarray(sample_weight)[at]
        return self._outcome_of(table, groups, sample_weight)

    def rows_alone(self, X: object, groups: object = None) -> Outcome:
        """The complete rows of X, in the blocks of the fit, beside an outcome that is zero: what models of a component alone
        read."""
        groups = self._open(X, reset=False).group_labels(groups)
        with warnings.catch_warnings():  # the fit said it
            warnings.simplefilter("ignore")
            table, groups, at = self.without_gaps(self._table(X), slice(None), self._design, groups)
        keep = complete_rows(table) if self.missing == "available" else np.ones(table.n_rows or 0, dtype=bool)
        if keep.all():
            blocks = block_numbers(len(keep), self.n_blocks, groups)
        else:
            blocks, at = self._blocks_of_complete(keep, groups), np.flatnonzero(keep)
        rows = self._about_fit(table.array()[keep])
        zeros = np.zeros(len(rows))
        return Outcome(rows, zeros, zeros + 1, blocks, float(len(rows)), np.zeros((len(rows), 0)), at=at)

    def _outcome_of(
        self,
        table: Rows,
        groups: object = None,
        sample_weight: object = None,
        every_row: bool = False,
        summed: bool = False,
    ) -> Outcome:
        """table : the columns used and, last, the outcome; every_row : not second moments in their place; summed : these also
        where independent rows are in memory, which takes a fraction of the time of reading them block by block."""
        groups = table.group_labels(groups)
        if self._classes is not None:
            table = table.mapped(partial(_beside_outcome, self._classes))
        elif self.missing == "available" and table.rereadable:
            keep = complete_rows(table)
            if not keep.all() and not every_row and isinstance(self._solution, PairSolution):
                return self._outcome_with_gaps(table, groups, sample_weight)
            if not keep.all():
                return self._outcome_of_complete(table, keep, groups, sample_weight)
        depends = self._depends or groups is not None or sample_weight is not None
        few = table.rereadable and table.n_rows is not None and table.n_rows <= 2 * self.n_blocks * table.width
        if not few and not every_row and not (table.held and (depends or not summed)):
            if sample_weight is not None:
                table = table.weighted_by(sample_weight)
            elif self._depends and groups is None:
                raise DataError(_OTHER_ROWS)
            if not table.rereadable:
                return self._of_state(self._read_once(table, groups=groups))
            data = RowData(table, self.n_blocks, groups)
            return self._of_state(data.moments(2), data if data.dependent else None)
        n = table.n_rows or 0
        weight = self._row_units(n, sample_weight=sample_weight, weights_only=True).weights(n)
        made = self._prepared(table.array(), weight, block_numbers(n, self.n_blocks, groups))
        return replace(made, units=self._row_units(n, groups, sample_weight))

    def _outcome_with_gaps(self, table: Rows, groups: object, sample_weight: object) -> Outcome:
        """Of all rows, by the second moments of what is there; least squares asks for no more."""
        units = self._row_units(table.n_rows or 0, groups, sample_weight)
        counted = table if units.weight is None else table.weighted_by(units.weight)
        parts = {**parts_of(self._design), "the outcome": np.array([table.width - 1])}
        gaps = Gaps.of(counted, parts)
        with constants_told_later():
            data = Available.of(counted, gaps, self.n_blocks, groups if units.groups is None else units.groups)
        return self._of_state(data.moments(2), data)

    def _outcome_of_complete(self, table: Rows, keep: Any, groups: object, sample_weight: object) -> Outcome:
        """Of the rows without gaps, in the blocks of the fit."""
        n, at = len(keep), np.flatnonzero(keep)
        units = self._row_units(n, groups, sample_weight)
        weight = self._row_units(n, sample_weight=sample_weight, weights_only=True).weights(n)[at]
        made = self._prepared(table.kept(keep).array(), weight, self._blocks_of_complete(keep, groups))
        return replace(made, units=units.take(at), at=at)

    def _blocks_of_complete(self, keep: Any, groups: object) -> IntArray:
        """The blocks, of the fit, of the rows without gaps."""
        n = len(keep)
        blocks = block_numbers(n, self.n_blocks, drawn_blocks(n, self.n_blocks) if groups is None else groups)
        if len(np.unique(blocks[keep])) < len(np.unique(blocks)):
            raise DataError(
                f"{int(np.sum(keep))} of {n} rows are complete, too few for an outcome in {self.n_blocks} blocks of rows: use "
                "fewer blocks (n_blocks=), or leave out columns with many gaps"
            )
        return np.asarray(blocks[keep])

    def _of_state(self, state: Moments, data: Data | None = None) -> Outcome:
        """From second moments of the columns used and the outcome, by block; data : rows that depend on each other."""
        data = StateData(state) if data is None and state.dependent else data
        return replace(self._prepared(*equivalent_rows(state)), data=data)

    def _prepared(self, table: Array, weight: Array, blocks: IntArray) -> Outcome:
        """table (n, columns of all views, covariates and the outcome), each row counted so often."""
        own, known = len(self._columns), table[:, len(self._columns) : -1]
        target = check_outcome(table[:, -1], len(table))
        rows = self._about_fit(table[:, :-1]) if self._classes is None else self._residuals(table[:, :-1])
        centre = np.average(table[:, own:], axis=0, weights=weight)
        column: Any = target - centre[-1]
        coef, beside = np.zeros(known.shape[1]), known - centre[:-1]
        if self._partial is not None:
            coef = least_squares(beside, column, weight)
            left = column - beside @ coef
            if weight @ left**2 <= 1e-13 * (weight @ column**2):
                names = ", ".join(self.views_.feature_names[c] for c in self._covariate_columns[:5])
                raise DataError(
                    f"y is an exact function of the covariates ({names}): they leave nothing to explain. Is y one of them?"
                )
            column = left
        free, squares = max(float(weight.sum()) - self._lost, 1.0), float(weight @ (target - centre[-1]) ** 2)
        return Outcome(rows, column, weight, blocks, free, beside, self._partial, coef, float(centre[-1]), squares)

    def calibrate(
        self,
        X: object,
        y: object = None,
        component: object = None,
        *,
        sample_weight: object = None,
        log_odds: LinearPredictor | None = None,
        penalised: bool = False,
    ) -> Coefficients:
        """Coefficients of an outcome on a component, from samples of the views and of the outcome.

        The outcome depends on this component only, so it is uncorrelated with views where the component does not live, and the
        residual on them may stand in for its view: same expectation, far less variance. The result is never far
        from residualising (the other views as covariates) when the data say little.

        X, y, sample_weight : as in :meth:`outcome`, whose result may be X.
        log_odds : the linear predictor of a generalised linear model of y on :meth:`residual`, calibrated instead of least
        squares.
        penalised : the caller will use a penalty; else, with no more samples than coefficients, this refuses.
        """
        key, solution = self._key(component), self._facing(component)
        if not penalised and log_odds is None:
            solution.check_determined(key, len(self._covariate_columns))
        outcome = self.outcome(X, y, sample_weight=sample_weight)
        outcome = outcome if log_odds is None else replace(outcome, log_odds=log_odds)
        return solution.calibrate(key, outcome)  # type: ignore[no-any-return]

    def estimate_of(
        self,
        calibrated: Coefficients,
        outcome: Outcome,
        component: object = None,
        *,
        grouped: bool = False,
        replicates: Array | None = None,
        refit: Refit | None = None,
    ) -> Estimate:
        """Calibrated coefficients with their standard errors or, where the data leave them open, with their identified set.

        outcome, component : that they were calibrated from; grouped : whether its rows belong to groups. Of log-odds :
        replicates (B, d), those on the stand-in without each block; refit(features (m, d), rows (m,)), those on other features
        of some of the rows, with what they lack.
        """
        return calibrated.estimate(outcome, grouped=grouped, replicates=replicates, refit=refit)

    def outcome_test(
        self,
        X: object,
        y: object = None,
        component: object = None,
        groups: object = None,
        sample_weight: object = None,
    ) -> Test:
        """F-test of y on the views where a component does not live: an outcome that depends on this component only is
        independent of them. The best specification test there is. Without such views there is nothing to test: p = 1.

        X, y, groups, sample_weight : as in :meth:`outcome`, whose result may be X.
        """
        outcome = self.outcome(X, y, groups, sample_weight)
        return outcome_test(outcome, self._solution.outside(self._key(component)), self._lost)

    def others(self, component: object = None) -> str:
        """The views where a component does not live, in words."""
        columns = set(self._solution.outside(self._key(component)).tolist())
        return " and ".join(view for view, part in self._places.items() if part.start in columns)

    def _row_units(
        self, n: int, groups: object = None, sample_weight: object = None, *, weights_only: bool = False
    ) -> RowUnits:
        """Groups and weights of n rows: those given, else those of the fit for as many rows; others are not guessed."""
        if groups is not None or sample_weight is not None:
            return RowUnits.of(n, groups, sample_weight)
        if not (self._weighted if weights_only else self._depends):
            return RowUnits()
        if self._units is None or len(self._units) != n:
            raise DataError(_OTHER_ROWS)
        return self._units

    def score(self, X: object, y: object = None) -> float:
        """Held-out fit, in nats per sample: Gaussian log-likelihood of the views under the fitted second moments; for two
        views also the energy of the held-out cross-cumulants inside the fitted row space."""
        table = self._table(X)
        rows = table.array()
        if self.missing != "error":  # the likelihood is that of rows without gaps
            rows = rows[np.isfinite(rows).all(axis=1)]
        return float(self._solution.score(self._about_fit(rows), self.n_blocks))

    # ---- how sure

    def jackknife(self, function: Callable[[Any], Array], *, progress: bool = False) -> Estimate:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit.

        function : takes a fitted model like this one, returns an array. Ranks and sets stay as they are.
        progress : as in :meth:`fit`.

        Where views were reduced to few directions, because they have too many columns for their samples, there are no errors
        (nan, and a SampleSizeWarning): a refit keeps these directions and all that lies outside of them as they are, and errors
        come out many times too small. Fit to several draws of the samples, with replacement, instead.
        """
        used = self._solution.blocks
        if len(used) < 2:
            raise DataError("the jackknife needs at least two blocks of samples")
        if self._solution.reduced_views:
            named = " and ".join(repr(view) for view in self._solution.reduced_views)
            warn_user(
                f"no standard errors: too many columns of {named} for the samples, so that views were compared in few "
                "directions, which refits without a block do not choose again, nor what lies outside of them. Use fewer "
                "columns or more samples, or fit to samples drawn with replacement",
                SampleSizeWarning,
            )
            point = np.asarray(function(self), dtype=np.float64)
            return Estimate(point, np.full_like(point, np.nan), len(used) - 1)
        return from_replicates(
            function(self), [function(self._without(block)) for block in each(used, progress, "jackknife")]
        )

    def _without(self, block: int) -> Self:
        """This model refitted without one block."""
        other = copy(self)
        other._class_part = None if self._class_part is None else self._class_part.without(block)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other._adopt(self._solution.without(block))
        return other

    def without_blocks(self, component: object = None) -> Iterator[tuple[int, Self]]:
        """Each block of samples, with this model without it, as far as a component depends on it: refitted, or moved by one
        Newton step where that is known. None of views of which few directions were looked at (see :meth:`jackknife`)."""
        if self._solution.reduced_views:
            return
        for block in self._solution.blocks:
            yield block, self._without(block)

    def leaves_open(self, component: object = None) -> bool:
        """Whether the data tell no more of a component than its identified set."""
        return bool(self._solution.leaves_open(self._key(component)))

    def covariance_for_directions(self, component: object, k: int) -> tuple[Spread, float]:
        """The covariance that the k leading directions of a component are read from, and the share of the correction in it."""
        found: tuple[Spread, float] = self._facing(component).covariance_for_directions(self._key(component), k)
        return found

    def moment_draws(self, component: object, *, of_mean: bool) -> tuple[Draws, Draws, Array, float] | None:
        """Draws of a component's covariance (d, d), of the safe one and of the full one; changes of its mean without each
        block, (B, d); and the gate: all that a protected answer takes. None where only :meth:`jackknife` tells.

        of_mean : whether the answer depends on the mean.
        """
        key, given = self._key(component), getattr(self, "mean", None) or ()
        if of_mean and self._moved_by_A(key):
            return None
        return self._facing(component).moment_draws(key, key in given)  # type: ignore[no-any-return]

    def _moved_by_A(self, key: Hashable) -> bool:
        """Whether the mean of a component moves with A: that of S1, where another one was given."""
        return bool(set(getattr(self, "mean", None) or ()) - {key, *self._solution.keys[1:2]})

    @property
    def components_(self) -> Mapping[Any, Component]:
        """{name: Component}."""
        return self._parts

    @property
    def solution_(self) -> Any:
        """What the solver returned, in the columns of all views side by side."""
        return self._solution

    @property
    def explained_columns_(self) -> IntArray:
        """Columns of the table that are exact functions of the covariates: nothing is left of them."""
        none = np.zeros(0, dtype=np.int64)
        return none if self._partial is None else self._columns[self._partial.explained & (self._partial.variances > 0)]

    @property
    def n_samples_(self) -> int:
        """Rows of the fit."""
        return int(self._solution.n)

    @property
    def covariates_(self) -> IntArray:
        """Column numbers of the known covariates."""
        return self._covariate_columns

    @property
    def verdict_(self) -> str:
        """How sure the fit is, in one or two words."""
        return str(self._solution.verdict)

    @property
    def independent_rows_(self) -> float:
        """How many independent rows the samples are worth."""
        return float(self._solution.independent_rows)


def _beside_outcome(classes: HiddenClasses, rows: Array) -> Array:
    """Hidden classes of rows whose last column is an outcome, which stays last."""
    return np.column_stack([classes(rows[:, :-1]), rows[:, -1]])


def check_interval(what: str, level: float) -> None:
    if what not in ("A", "covariance"):
        raise ValueError(f"what must be 'A' or 'covariance', got {what!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")


def _lined_up(X: Any, values: Any, what: str) -> Any:
    """One value per row of a table, by label; or as the rows of the first of several tables, of which some are left out."""
    if values is None:
        return None
    source = X.source if isinstance(X, Rows) else None
    labels = tuple(X.obs_names) if is_annotated(X) else None if source is None else source.samples
    found = in_order_of(X, values, what, labels)
    if not isinstance(source, TablesSource) or found is not values or len(getattr(values, "shape", ())) != 1:
        return found
    return values if len(values) == source.n_rows else source.table.lined_up(values, what)


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
