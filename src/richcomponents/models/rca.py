"""The shell of every RCA: doors through which samples come in, and answers that do not depend on how it was solved.

    samples -> columns of the views side by side, covariates removed (Data) -> a solution -> components_

ContrastiveRCA and RCA say which views they take, how their components are called and which solver they use.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF
from richcomponents.components.component import Calibrated, Component, RowSource
from richcomponents.components.wide import SearchSpace, search_space
from richcomponents.contrastive.diagnostics import TestResult, outcome_test
from richcomponents.cumulants.estimate import Estimate, from_replicates
from richcomponents.data.columns import Views, resolve_views
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import ArraySource, Source, is_dask, is_path
from richcomponents.data.table import (
    check_finite,
    check_outcome,
    check_range,
    column_names,
    counts_in,
    is_sparse,
    join_views,
    named_views,
)
from richcomponents.errors import (
    ConstantColumnWarning,
    CountsWarning,
    DataError,
    MissingValueError,
    SampleSizeWarning,
    warn_user,
)
from richcomponents.learning.logistic import LogisticFit, Outcome
from richcomponents.models.estimator import Estimator, refuse_second_table
from richcomponents.models.results import annotate, component_columns, lazily, rows_of_fit, write_answers
from richcomponents.moments import Accumulator, Moments, block_numbers, partial_out
from richcomponents.moments.data import (
    Data,
    Inflated,
    Partial,
    RowData,
    RowUnits,
    StateData,
    lost_rows,
    partial_out_rows,
)
from richcomponents.progress import each

MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
MOST_BLOCKS = 200  # pairs of blocks are compared: time and memory grow with the square
_FIRST = 1000  # rows that tell an index from data
_WIDE = 2000  # columns above which nothing is kept for all pairs of them
_D = TypeVar("_D", bound=Data)


class ComponentAnalysis(TransformerMixin, Estimator):  # type: ignore[misc]
    """Base of :class:`ContrastiveRCA` and :class:`RCA`. After a fit:

    views_ : Views; components_ : {name: Component}; and, for the methods here, the solution and how its columns were made.
    """

    views: Any
    method: str
    order: int
    covariates: Any
    n_blocks: int
    components_: dict[Any, Component]

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

    # ---- doors

    def fit(
        self,
        X: object,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit to one table whose columns are the views (and the covariates).

        Parameters
        ----------
        X : array or data frame of shape (n, d), or a source of rows
            Of a sparse matrix (also inside an AnnData) a few rows at a time are made dense, never all of it.
            Also a table that need not fit in memory: a path or several (.parquet, .npy, .zarr, .h5ad, .csv, .tsv), what
            :func:`open_source` returns, an iterator of blocks of rows, or a dask array or data frame (reduced on the active
            cluster; only sums travel). Files and dask collections are read twice, in bounded memory, and give the same bits
            as the table in memory; an iterator is read once, and fitted as :meth:`fit_moments` does.
        y : ignored, as scikit-learn expects.
        groups : (n,) labels; rows of a group stay in one block, and tests count groups as far as their rows repeat each other.
            Or the name of a column of a file or data frame that belongs to no view.
        sample_weight : (n,) how often each row is counted, whole numbers: the fit to the rows repeated, all copies of a row
            in one block (as with groups): one independent row, however often it is counted.
        progress : show how far it is, on standard error: a line that is written over on a terminal and in a notebook, a line
            now and then in a log.
        checkpoint : where passes over a source are kept; the same call goes on after an interruption.
        """
        refuse_second_table(y)
        self.fit_data(X, groups=groups, sample_weight=sample_weight, progress=progress, checkpoint=checkpoint)
        return self

    def fit_data(self, X: object, *, sample_weight: object = None, **reading: Any) -> Data:
        """As :meth:`fit` (or :meth:`fit_moments`, if X is a state); returns what the solver saw, which can be asked for more:
        moments of maps of the columns of all views, covariates removed."""
        if isinstance(X, Moments):
            self._set_features(X.layout.n_columns, None)
            return self._fit_state(X, None)
        values = None
        if is_source(X) or is_sparse(X):
            rows = open_source(X)
            self._set_features(rows.width, rows.names)
        else:
            values = self._values(X, reset=True, at_least=2)
            rows = Rows(ArraySource(values, column_names(X)))
        names = rows.names
        if isinstance(reading.get("groups"), str):
            reading["groups"] = self._labels_in(rows, reading["groups"])
        rows = rows if sample_weight is None or rows.weighted else rows.weighted_by(sample_weight)
        if rows.rereadable:
            return self._fit_rows(rows, names, reading, values=values)
        self._place(self._check_state_fit(rows.width, names))  # before the rows are gone
        return self._fit_state(Moments.of(rows, 4, n_blocks=self.n_blocks, **reading), names)

    def _labels_in(self, rows: Rows, groups: str) -> Any:
        """The labels in a column of the table, which is no data."""
        labels = rows.group_labels(groups)
        views, known = self.columns_of(rows.width, rows.names)
        at = next((i for i, name in enumerate(rows.names or ()) if name == groups), None)
        if at is not None and at in known:
            raise DataError(f"column {groups!r} holds the groups and is also a covariate: name it once")
        if at is not None and any(at in views[name] for name in views):
            raise DataError(
                f"{views.describe(at)} holds the groups: name the columns of the views without it, views={{name: columns}}"
            )
        return labels

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
            return self._fit_files(views, align, id, groups, sample_weight)
        table = join_views(views, align=align, id=id)
        groups, sample_weight = table.lined_up(groups, "groups"), table.lined_up(sample_weight, "sample_weight")
        self._check_views(table.views)
        if self.covariates:
            raise DataError("covariates are columns of the table: join the tables and use fit(X) with views=")
        names = table.views.feature_names
        self._set_features(table.values.shape[1], names if table.named else None)
        rows = Rows(table.values, names=names)
        rows = rows if sample_weight is None else rows.weighted_by(sample_weight)
        self._fit_rows(rows, names, {"groups": groups}, table.views, table.values)
        return self

    def _fit_files(self, views: object, align: str, id: str | None, groups: object, sample_weight: object) -> Self:
        """One file per view."""
        rows = open_source(named_views(views), id=id, align=None if id is None else align)
        for note in rows.source.notes:
            warn_user(note, UserWarning)
        own = resolve_views({view: list(columns) for view, columns in rows.views.items()}, rows.width, rows.names)
        self._check_views(own)
        self._set_features(rows.width, rows.names)
        rows = rows if sample_weight is None else rows.weighted_by(sample_weight)
        self._fit_rows(rows, rows.names, {"groups": rows.group_labels(groups)}, own)
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; `views=` is an int, or a dict of column numbers. The coordinates that a fit looks
        at are applied to the block tensors, so the result agrees with :meth:`fit` on the same rows and blocks. Except for an
        RCA of three views and more: rows give its last fit of A better weights, so that transformations differ by a few percent
        of their size, less than their error (see :class:`RCA`).
        """
        self.fit_data(moments)
        return self

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments.

        For many small blocks an :class:`Accumulator` and one :meth:`fit_moments` at the end are cheaper. A call that
        fails leaves the rows seen so far as they were.
        """
        refuse_second_table(y)
        stream = getattr(self, "_stream", None)
        values, names = self._values(X, reset=stream is None), column_names(X)
        check_finite(values, resolve_views(self.views, values.shape[1], names, values))
        stream = Accumulator(4, n_blocks=self.n_blocks, names=names) if stream is None else stream.copy()
        stream.update(values)
        self._fit_state(stream.moments(), names)
        self._stream = stream
        return self

    def _set_features(self, width: int, names: Sequence[str] | None) -> None:
        self.n_features_in_ = width
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fit_state(self, moments: Moments, names: Sequence[str] | None) -> StateData:
        lay = moments.layout
        self._place(self._check_state_fit(lay.n_columns, names))
        if lay.order != 4:
            raise DataError(
                f"a state of order 4 is needed, this one has order {lay.order}: make it with Moments.of(X, order=4)"
            )
        self._partial: Partial | None = None
        self._units: RowUnits | None = None
        self._depends, self._weighted = moments.dependent, moments.dependent
        state, lost = moments.select(np.concatenate([self._columns, self._covariate_columns])), 0.0
        if len(self._covariate_columns):
            self._partial = partial_out(state, range(len(self._columns), state.layout.n_columns))
            lost = float(self._partial.rank)
            state = self._partial.state(state, self._stretch(lost))
        return self._finish(StateData(state, lost))

    def _check_state_fit(self, width: int, names: Sequence[str] | None) -> Views:
        """The views; refuses what cannot be fitted to a state of so many columns."""
        self._check_parameters()
        if self.order > 4:
            raise DataError("cumulants of order five and six need the rows again: use fit(X), or order=4")
        views = self._resolve(width, names)
        self._check_views(views)
        return views

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
        self,
        rows: Rows,
        names: Sequence[str] | None,
        reading: dict[str, Any],
        views: Views | None = None,
        values: Array | None = None,
    ) -> RowData:
        """Fit to rows that can be read again; the same steps, and the same bits, in memory (`values`) and out of it."""
        try:
            return self._fit_table(rows, names, reading, views, values)
        except MissingValueError as error:
            raise self._missing(rows, error) from error

    def _missing(self, rows: Rows, error: MissingValueError) -> DataError:
        """The same error with the view, the row and the file."""
        table = rows.select(np.concatenate([self._columns, self._covariate_columns]))
        found = table.first_missing()
        if found is None:
            return error
        (row, at, count), own = found, len(self._columns)
        column = int(np.concatenate([self._columns, self._covariate_columns])[at])
        name = self.views_.feature_names[column]
        role = self.views_.describe(column) if at < own else f"covariate {name!r}"
        return DataError(
            f"{role} holds {count} missing or infinite values (the first in data row {row + 1} of {rows.source.title}): drop "
            "those rows or impute them first"
        )

    def _fit_table(
        self,
        rows: Rows,
        names: Sequence[str] | None,
        reading: dict[str, Any],
        views: Views | None,
        values: Array | None,
    ) -> RowData:
        self._check_parameters()
        self._place(self._resolve(rows.width, names, views, rows))
        if values is not None:  # the view and the row are named; files are checked while they are read
            check_finite(values, self.views_)
        groups, known = reading.get("groups"), self._covariate_columns
        self._depends, self._weighted = groups is not None or rows.weighted, rows.weighted
        self._units = None
        if not rows.source.shared and rows.n_rows is not None:
            # rows that are seen again, with an outcome, depend on each other as they did here
            weight = rows.select([0]).array()[:, -1] if rows.weighted else None
            self._units = RowUnits.of(rows.n_rows, groups, weight)
        table = rows.select(np.concatenate([self._columns, known]))
        self._warn_of_counts(table.head(LEAF))
        self._partial, lost = None, 0.0
        if len(known):
            places = np.arange(len(self._columns), table.width)
            if table.width > _WIDE:
                inside = table.array()
                weight = inside[:, -1] if table.weighted else np.ones(len(inside))
                self._partial = partial_out_rows(inside[:, : table.width], places, weight)
            else:
                self._partial = partial_out(Moments.of(table, 2, n_blocks=1), places.tolist())
            lost = lost_rows(self._partial, table, groups)
            kept = [self.views_.feature_names[c] for c in self._columns]
            table = table.mapped(Inflated(self._partial, self._stretch(lost)), names=kept)
        return self._finish(RowData(table, self.n_blocks, lost=lost, **reading))

    def _finish(self, data: _D) -> _D:
        self._lost = data.lost
        self._adopt(self._solve(data))
        return data

    def _place(self, views: Views) -> None:
        """Lay out the views: their columns side by side."""
        self._check_views(views)
        self.views_ = views
        self._columns: IntArray = np.concatenate([views[name] for name in views])
        overlap = np.intersect1d(self._columns, self._covariate_columns)
        if len(overlap):
            raise DataError(f"{views.describe(int(overlap[0]))} is also a covariate: name it once")

    @property
    def _places(self) -> dict[str, slice]:
        """{view: its columns among those side by side}."""
        ends = np.cumsum([0, *(len(self.views_[name]) for name in self.views_)])
        return {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(self.views_)}

    def _resolve(
        self, width: int, names: Sequence[str] | None, views: Views | None = None, rows: Rows | None = None
    ) -> Views:
        """Which columns are views and covariates; rows : where a number needs to be told data from an index."""
        if width < 2:
            raise DataError(f"two views need at least two columns; X has n_features = {width}")
        self._covariate_columns = np.zeros(0, dtype=np.int64)
        if self.covariates is not None and len(self.covariates):
            self._covariate_columns = resolve_views({"covariates": list(self.covariates)}, width, names)["covariates"]
        rest = np.setdiff1d(np.arange(width), self._covariate_columns)
        if views is None and isinstance(self.views, (int, np.integer)):
            named = None if names is None else [names[c] for c in rest]
            first = None if names is None or rows is None else rows.head(_FIRST)[:, rest]
            inner = resolve_views(self.views, len(rest), named, first)
            return resolve_views({name: rest[inner[name]] for name in inner}, width, names)
        return resolve_views(self.views, width, names) if views is None else views

    def columns_of(
        self, width: int, names: Sequence[str] | None = None, beside: Sequence[int] = ()
    ) -> tuple[Views, IntArray]:
        """Which columns of a table are views, and which covariates, as a fit would take them; nothing is fitted.

        beside : columns that are neither.
        """
        reader = copy(self)
        reader._check_parameters()
        given = [] if self.covariates is None else list(self.covariates)
        reader.covariates = [*given, *beside]
        views = reader._resolve(width, names)
        reader._check_views(views)
        return views, reader._covariate_columns[: len(reader._covariate_columns) - len(beside)]

    def read_views(self, X: object) -> tuple[dict[str, Array], Array]:
        """{view: its values (n, d)} and the covariates (n, q) of a table, as a fit would take them; nothing is fitted."""
        reader = copy(self)
        values = reader._values(X, reset=True)
        views, known = reader.columns_of(values.shape[1], column_names(X))
        check_finite(values, views)
        return {name: values[:, views[name]] for name in views}, values[:, known]

    def _check_blocks(self) -> None:
        if self.method not in ("efficient", "paper"):
            raise ValueError(f"method must be 'efficient' or 'paper', got {self.method!r}")
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 3 <= self.order <= 6:
            raise ValueError(f"order must be an integer from 3 to 6, got {self.order!r}")
        if not isinstance(self.n_blocks, (int, np.integer)) or not MIN_BLOCKS <= self.n_blocks <= MOST_BLOCKS:
            raise ValueError(
                f"n_blocks must be an integer, at least {MIN_BLOCKS} and at most {MOST_BLOCKS}, got {self.n_blocks!r}"
            )

    def _space(self, data: Data, at_least: int = 1) -> SearchSpace:
        """The columns to look at: of wide views their principal components, at least so many."""
        space = search_space(data, self._places, lambda rows: check_range(rows, self.views_), at_least)
        self._warn_of_constants(space.data.moments(2).variances if space.rows is None else space.rows.var(axis=0))
        return space

    def _warn_of_counts(self, rows: Array) -> None:
        """Say what to do first with views that look like raw counts; rows : some of the table, those of the views first."""
        told = {view: counts_in(rows[:, part]) for view, part in self._places.items()}
        found = {view: (most, mean) for view, (most, mean) in told.items() if most}
        if found:
            shown = ", ".join(
                f"{view!r} (up to {most:.0f}, {mean:.2g} on average)" for view, (most, mean) in found.items()
            )
            warn_user(
                f"the values of {shown} look like raw counts: whole numbers, none negative, a few of them large. What disturbs "
                "counts multiplies them, the model adds: divide by each sample's total and take logarithms first (in scanpy, "
                "sc.pp.normalize_total(adata) and sc.pp.log1p(adata))",
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
        check_is_fitted(self)
        if out is not None:
            if return_std:
                raise ValueError("a file holds the predictions: ask for return_std without out=")
            label = "predictions" if progress else None
            write_answers(out, rows_of_fit(self, X), component_columns(self, component), progress=label)
            return Path(out)
        if is_dask(X) and not return_std:
            return lazily(self, X, component)
        configured = getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default"
        names = self.components_[self._key(component)].feature_names
        if configured and names != self.components_[self._key(None)].feature_names:
            raise ValueError(
                "set_output names the columns of the default component; for others use predict_component(X, component)"
            )
        return self.predict_component(X, component, return_std=return_std)

    def predict_component(self, X: object, component: object = None, *, return_std: bool = False) -> Any:
        """As :meth:`transform`, always as plain arrays."""
        check_is_fitted(self)
        key = self._key(component)
        values, error = self._solution.predict(key, self._centred(X))
        values = values + self.components_[key].mean
        if not return_std:
            return values
        std = np.sqrt(np.maximum(error.diagonal(), 0.0))
        return values, np.tile(std, (len(values), 1))

    def annotate(self, data: Any, key: str = "rca", components: Sequence[Any] | None = None) -> None:
        """Write what was found into the AnnData or MuData that was fitted, or one with the same variables.

        ``obsm[f"{key}_S1"]`` : the predictions of each of the `components` (by default the first view's own), a data frame
        under the names of its columns; of a subset of views, ``f"{key}_rna+protein"``. ``varm[key]`` : the variance of each
        variable that is its own, and that it shares; nan for one that is in no view. ``uns[key]`` : model, verdict, n, views,
        summary, and of two views rank and canonical correlations. Of a MuData obsm and varm are those of the modality in
        whose columns they are, with nan for samples that not all modalities have.
        """
        check_is_fitted(self)
        annotate(self, data, key, components)

    def prediction_error(self, component: object = None) -> Any:
        """Expected squared error (d, d) of the prediction of a component; of wide views as factors."""
        check_is_fitted(self)
        return self._solution.predict(self._key(component), np.zeros((0, len(self._columns))))[1]

    def prediction_covariance(self, data: Data, component: object = None) -> Array:
        """Covariance (d, d) of the predictions of a component for the rows it was fitted to; data : of :meth:`fit_data`, also
        where the rows are not at hand."""
        check_is_fitted(self)
        maps = self._solution.predict(self._key(component), np.eye(len(self._columns)))[0]
        return np.asarray(maps.T @ data.moments(2).covariance() @ maps)

    def component_on_rows(self, X: object, component: object = None, groups: object = None) -> Component:
        """The component with its higher cumulants read off the rows of X whenever they are asked for.

        For tables too wide for a state of order four (then components_ knows mean and covariance only): a projected cumulant
        costs O(n p) and nothing of size p^3 is formed. Also the way to mini-batches. The rows stay in memory, n x p numbers.

        groups : (n,) labels; rows of a group stay in one block.
        """
        check_is_fitted(self)
        key = self._key(component)
        z, terms = self._solution.on_rows(key, self._centred(X))
        source = RowSource(z, block_numbers(len(z), self.n_blocks, groups))
        return replace(self.components_[key], source=source, terms=terms, _known={})

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Column names of the first view."""
        check_is_fitted(self)
        first = self.views_[0]
        if hasattr(self, "feature_names_in_"):
            return np.asarray(self.feature_names_in_, dtype=object)[first]
        return np.array([f"x{i}" for i in first], dtype=object)

    def _centred(self, X: object) -> Array:
        """Rows of the views, covariates partialled out, about the means of the fit."""
        if is_source(X):
            raise DataError(
                "only fit reads files and streams: pass a table in memory here, one block of rows at a time"
            )
        values = self._values(X, reset=False)
        check_finite(values, self.views_)
        self._known_covariates(values)
        table = np.ascontiguousarray(values[:, np.concatenate([self._columns, self._covariate_columns])])
        rows: Array = (table if self._partial is None else self._partial.residuals(table)) - self._solution.mean
        return rows

    def _known_covariates(self, values: Array) -> Array:
        """(n, q), none missing."""
        known = values[:, self._covariate_columns]
        bad = ~np.isfinite(known).all(axis=0)
        if bad.any():
            name = self.views_.feature_names[self._covariate_columns[int(np.argmax(bad))]]
            raise DataError(
                f"the covariate {name!r} holds missing or infinite values: drop those rows or impute them first"
            )
        return known

    def covariate_values(self, X: object) -> Array:
        """The known covariates of new rows, (n, q), in the order of ``covariates=``."""
        check_is_fitted(self)
        return self._known_covariates(self._values(X, reset=False))

    # ---- what learners ask

    def residual(self, X: object, component: object = None) -> Array:
        """R (n, d), centred: what is left of every column of a component's view after regression on the views where it does
        not live (on what they share with it, for two views)."""
        check_is_fitted(self)
        return np.asarray(self._solution.residual(self._key(component), self._centred(X)))

    def calibrate(
        self,
        X: object,
        y: object,
        component: object = None,
        *,
        sample_weight: object = None,
        log_odds: LogisticFit | None = None,
        penalised: bool = False,
    ) -> Calibrated:
        """Coefficients of an outcome on a component, from samples of the views and of the outcome.

        The outcome depends on this component only, so it is uncorrelated with views where the component does not live, and the
        residual on them may stand in for its view: same expectation, far less variance. The result is never far
        from residualising (the other views as covariates) when the data say little.

        sample_weight : (n,) how often each row counts; by default as in :meth:`fit`, when X has as many rows as it had.
        log_odds : logistic regression of y on :meth:`residual`, calibrated instead of least squares.
        penalised : the caller will use a penalty; else, with no more samples than coefficients, this refuses.
        """
        check_is_fitted(self)
        key = self._key(component)
        if not penalised and log_odds is None:
            self._solution.check_determined(key, len(self._covariate_columns))
        found: Calibrated = self._solution.calibrate(key, self._outcome(X, y, sample_weight, log_odds))
        return found

    def _outcome(
        self, X: object, y: object, sample_weight: object = None, log_odds: LogisticFit | None = None
    ) -> Outcome:
        """Rows of the views and an outcome, centred, known covariates removed."""
        rows = self._centred(X)
        weight = self._row_units(len(rows), sample_weight=sample_weight, weights_only=True).weights(len(rows))
        target = self._centred_target(X, y, len(rows), weight)
        free = max(float(weight.sum()) - self._lost, 1.0)
        return Outcome(rows, target, weight, free, len(self._covariate_columns), log_odds)

    def errors(
        self, calibrated: Calibrated, X: object, groups: object = None, *, replicates: Array | None = None
    ) -> tuple[Array, float]:
        """Standard errors (d,) of calibrated coefficients, and their degrees of freedom.

        groups : as in :meth:`fit`. replicates : (B, d), of log-odds: those on the residual without each block.
        """
        check_is_fitted(self)
        rows = self._centred(X)
        keep = self.kept_rows(len(rows), groups)
        error, degrees = self._solution.errors(
            calibrated, rows, keep, grouped=groups is not None, replicates=replicates
        )
        return error, degrees

    def kept_rows(self, n: int, groups: object = None) -> Array:
        """(B, n): the rows that remain without each statistical block."""
        blocks = block_numbers(n, self.n_blocks, groups)
        return np.stack([blocks != b for b in np.unique(blocks)])

    def _centred_target(self, X: object, y: object, rows: int, weight: Array | None = None) -> Array:
        """y about its mean, known covariates removed (rows,); weight : how often each row counts, once by default."""
        target = check_outcome(y, rows)
        column: Array = target - np.average(target, weights=weight)
        if self._partial is not None:
            known = self.covariate_values(X)
            known = known - np.average(known, axis=0, weights=weight)
            root = np.ones(rows) if weight is None else np.sqrt(weight)
            left = column - known @ np.linalg.lstsq(known * root[:, None], column * root, rcond=None)[0]
            if np.abs(left).max() <= 1e-9 * np.abs(column).max():
                names = ", ".join(self.views_.feature_names[c] for c in self._covariate_columns[:5])
                raise DataError(
                    f"y is an exact function of the covariates ({names}): they leave nothing to explain. Is y one of them?"
                )
            column = left
        return column

    def outcome_test(
        self, X: object, y: object, component: object = None, groups: object = None, sample_weight: object = None
    ) -> TestResult:
        """F-test of y on the views where a component does not live: an outcome that depends on this component only is
        independent of them. The best specification test there is. Without such views there is nothing to test: p = 1.

        groups, sample_weight : as in :meth:`fit`; by default those of the fit, when X has as many rows as it had.
        """
        check_is_fitted(self)
        others = self._centred(X)[:, self._solution.outside(self._key(component))]
        if not others.shape[1]:
            return TestResult(float("nan"), (0, len(others) - 1), 1.0)
        if others.shape[1] > len(others):
            others = others @ np.linalg.qr(others.T)[0]  # the same variates in as many columns as rows
        rows = self._row_units(len(others), groups, sample_weight)
        return outcome_test(others, self._centred_target(X, y, len(others), rows.weight), rows, self._lost)

    def others(self, component: object = None) -> str:
        """The views where a component does not live, in words."""
        check_is_fitted(self)
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
            raise DataError(
                "the fit knew groups or weights of its rows, but not those of this table: pass groups= or sample_weight= "
                "(sample_weight=np.ones(len(X)) if its rows are independent)"
            )
        return self._units

    def score(self, X: object, y: object = None) -> float:
        """Held-out fit, in nats per sample: Gaussian log-likelihood of the views under the fitted second moments; for two
        views also the energy of the held-out cross-cumulants inside the fitted row space."""
        check_is_fitted(self)
        return float(self._solution.score(self._centred(X), self.n_blocks))

    # ---- how sure

    def jackknife(self, function: Callable[[Any], Array], *, progress: bool = False) -> Estimate:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit.

        function : takes a fitted model like this one, returns an array. Ranks and sets stay as they are.
        progress : as in :meth:`fit`.

        Where views were reduced to few directions, because they have too many columns for their samples, there are no errors
        (nan, and a SampleSizeWarning): a refit keeps these directions and all that lies outside of them as they are, and errors
        come out many times too small. Fit to several draws of the samples, with replacement, instead.
        """
        check_is_fitted(self)
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other._adopt(self._solution.without(block))
        return other

    def covariance_for_directions(self, component: object, k: int) -> tuple[Any, float]:
        """The covariance of a component at as much correction as its k leading directions support, and that share of it."""
        check_is_fitted(self)
        found: tuple[Any, float] = self._solution.covariance_for_directions(self._key(component), k)
        return found

    def canonical_weights(self, component: object, untrusted: float) -> tuple[Array, Array] | None:
        """White coordinates (k, d) of a component's view, and how well each entry of its covariance is known there, (k, k),
        from `untrusted` to 1; None where there are no such coordinates."""
        check_is_fitted(self)
        found: tuple[Array, Array] | None = self._solution.canonical_weights(self._key(component), untrusted)
        return found

    def functional_error(
        self, component: object, change: Callable[[Array, Array], Array], *, of_mean: bool
    ) -> tuple[Array, int] | None:
        """Standard errors (p,) of a smooth function of a component's covariance and mean, and the number of blocks; None where
        only :meth:`jackknife` tells.

        change : changes (n, d, d) of the covariance and (n, d) of the mean -> changes (n, p) of the function, to first order;
        of_mean : whether the function depends on the mean.
        """
        check_is_fitted(self)
        key, given = self._key(component), set(getattr(self, "mean", None) or ())
        if of_mean and given - {key} - set(self._solution.keys[1:2]):  # its mean was moved along with A
            return None
        found: tuple[Array, int] | None = self._solution.functional_error(key, change, key in given)
        return found

    @property
    def solution_(self) -> Any:
        """What the solver returned, in the columns of all views side by side."""
        check_is_fitted(self)
        return self._solution

    @property
    def explained_columns_(self) -> IntArray:
        """Columns of the table that are exact functions of the covariates: nothing is left of them."""
        check_is_fitted(self)
        none = np.zeros(0, dtype=np.int64)
        return none if self._partial is None else self._columns[self._partial.explained & (self._partial.variances > 0)]

    @property
    def n_samples_(self) -> int:
        """Rows of the fit."""
        check_is_fitted(self)
        return int(self._solution.n)

    @property
    def covariates_(self) -> IntArray:
        """Column numbers of the known covariates."""
        check_is_fitted(self)
        return self._covariate_columns

    @property
    def verdict_(self) -> str:
        """How sure the fit is, in one or two words."""
        check_is_fitted(self)
        return str(self._solution.verdict)

    @property
    def independent_rows_(self) -> float:
        """How many independent rows the samples are worth."""
        check_is_fitted(self)
        return float(self._solution.independent_rows)


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")


def is_source(X: object) -> bool:
    """Whether rows come from a file, a stream or a source, not from a table in memory."""
    return isinstance(X, (Rows, Source, Iterator)) or is_path(X) or is_dask(X)
