"""The shell of every RCA: doors through which samples come in, and answers about rows.

    open -> design -> data, covariates and hidden classes removed -> solve -> Fitted, which answers

ContrastiveRCA and RCA say which views they take, how their components are called and which solver they use.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial as with_options
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import LEAF
from richcomponents.components.component import Component
from richcomponents.components.wide import SearchSpace, search_space
from richcomponents.cumulants.estimate import Estimate, from_replicates
from richcomponents.data.align import SideBySide, named_views
from richcomponents.data.design import Design, is_column
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import is_path
from richcomponents.data.table import Views, check_finite, check_range, counts_in, is_dask
from richcomponents.errors import (
    ConstantColumnWarning,
    CountsWarning,
    DataError,
    MissingValueError,
    SampleSizeWarning,
    SpecificationWarning,
    constants_told_later,
    warn_user,
)
from richcomponents.inference.verdicts import Test
from richcomponents.learning.coefficients import Coefficients
from richcomponents.learning.outcome import Outcome
from richcomponents.models.estimator import (
    WAYS,
    Estimator,
    Sample,
    complete_rows,
    data_of,
    laid_out,
    present,
    refuse_second_table,
    say_dropped,
    taken,
    transaction,
    under_labels,
    used_rows,
    without_gaps,
)
from richcomponents.models.fitted import WIDE, Fitted
from richcomponents.models.results import annotate, component_columns, lazily, rows_of_fit, write_answers
from richcomponents.moments import Accumulator, Moments, partial_out
from richcomponents.moments.available import Available
from richcomponents.moments.data import (
    AffineMap,
    Data,
    Partial,
    RowData,
    lost_rows,
    partial_out_rows,
)
from richcomponents.pair.classes import ClassPart, HiddenClasses
from richcomponents.progress import each

MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
MOST_BLOCKS = 200  # pairs of blocks are compared: time and memory grow with the square
_BLOCKED = 300  # columns above which hidden classes have no second moments by block


class ComponentAnalysis(TransformerMixin, Estimator):  # type: ignore[misc]
    """Base of :class:`ContrastiveRCA` and :class:`RCA`; fitted_ : what a fit computed, all of it."""

    views: Any
    method: str
    order: int
    covariates: Any
    n_blocks: int
    missing: str
    classes: Any = "none"
    fitted_: Fitted

    # ---- what a kind of RCA decides

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse impossible parameters before any sample is read."""

    @abstractmethod
    def _check_views(self, views: Views) -> None:
        """Refuse views that this model cannot take."""

    @abstractmethod
    def _solve(self, data: Data, fit: Fitted) -> Any:
        """The solution for the columns of all views side by side; fit : how these were cleaned."""

    @abstractmethod
    def _means(self, views: Sequence[str], solution: Any) -> Mapping[Any, Any] | None:
        """Means that were given, by component; views : their names."""

    @abstractmethod
    def sides(self, component: Any, views: Sequence[str]) -> tuple[str, list[str], list[str]]:
        """Of these views: the one in whose columns a component is written, the others where it lives, and those where it does
        not; nothing is fitted."""

    def _hidden_classes(self, data: RowData, fit: Fitted) -> HiddenClasses | None:
        """Classes of rows that this model finds by itself and removes as covariates are; none by default."""
        return None

    def _adopt(self, fitted: Fitted) -> None:
        """Make a fit one's own, last of all."""
        self.fitted_ = fitted

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
        fit_rca(self, X, groups=groups, sample_weight=sample_weight, progress=progress)
        return self

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
        named = views if hasattr(views, "mod") else named_views(views)
        files = isinstance(named, dict) and all(map(is_path, named.values()))
        rows = open_source(named, id=id, align=None if files and id is None else align)
        for note in rows.source.notes:
            warn_user(note, UserWarning)
        if isinstance(rows.source, SideBySide):
            groups = rows.source.lined_up(groups, "groups")
            sample_weight = rows.source.lined_up(sample_weight, "sample_weight")
        own = {name: list(columns) for name, columns in rows.views.items()}
        fit_rca(self, rows, groups=rows.group_labels(groups), sample_weight=sample_weight, views=own)
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; `views=` is an int, or a dict of column numbers, or of names where the state has
        them. The coordinates that a fit looks at are applied to the block tensors, so the result agrees with :meth:`fit` on the
        same rows and blocks. Except for an RCA of three views and more: rows give its last fit of A better weights, so that
        transformations differ by a few percent of their size, less than their error (see :class:`RCA`).
        """
        fit_rca(self, moments)
        return self

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments.

        For many small blocks an :class:`Accumulator` and one :meth:`fit_moments` at the end are cheaper. A call that
        fails leaves the rows seen so far as they were.
        """
        refuse_second_table(y)
        add_block(self, X)
        return self

    # ---- a fit

    @property
    def _state_order(self) -> int:
        """Of a state that a fit can do with."""
        return max(int(self.order), 4)

    def _solved_data(self, begun: Fitted, data: Data, contradicts: Callable[[Fitted], bool]) -> tuple[Fitted, Data]:
        """Covariates are removed, then hidden classes, which stay removed only where the model holds with them, unless they
        were asked for: they may be what the outcome depends on."""
        plain, left = _cleaned(begun, data)
        classes = self._hidden_classes(left, plain) if isinstance(left, RowData) else None
        if classes is None or not isinstance(data, RowData):
            return self._solved(plain, left), left
        fit, without = _cleaned(replace(begun, classes=classes), replace(data, rows=data.rows.mapped(classes)))
        fit = self._solved(fit, without)
        if self.classes != "auto" or (fit.solution.verdict != "contradicted" and not contradicts(fit)):
            return fit, without
        note = f"{len(classes)} seen, but left in: with them removed the model fails"
        with constants_told_later():
            return self._solved(replace(plain, class_note=note), left), left

    def _solved(self, fit: Fitted, data: Data) -> Fitted:
        solution = self._solve(data, fit)
        means = self._means(fit.design.views.names, solution)
        return replace(fit, mean=means, lost=data.lost, solution=solution, made={})

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

    def _space(self, data: Data, design: Design, rank: object = None) -> SearchSpace:
        """The columns to look at: of wide views their principal components, at least so many as a rank that is a number."""
        space = searched(data, design, rank)
        _warn_of_constants(design, space.data.moments(2).variances if space.rows is None else space.rows.var(axis=0))
        if space.rows is None and (copies := design.copies(space.data.moments(2))):
            warn_user(f"{copies}: all of it is shared, and nothing is its own", SpecificationWarning)
        return space

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
            answer, label = component_columns(self, component), "predictions" if progress else None
            write_answers(out, rows_of_fit(self, X), answer, progress=label)
            return Path(out)
        if is_dask(X) and not return_std:
            return lazily(self, X, component)
        configured = getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default"
        if configured and self.fitted_.columns_of(component) != self.fitted_.columns_of(None):
            raise ValueError(
                "set_output names the columns of the default component; for others use predict_component(X, component)"
            )
        table = used_rows(self, X)
        predicted = self.fitted_.predict(table.array(), component, return_std)
        return predicted if return_std else under_labels(self, predicted, table.samples)

    def predict_component(self, X: object, component: object = None, *, return_std: bool = False) -> Any:
        """As :meth:`transform`, always as plain arrays."""
        return self.fitted_.predict(used_rows(self, X).array(), component, return_std)

    def annotate(self, data: Any, key: str = "rca", components: Sequence[Any] | None = None) -> None:
        """Write what was found into the AnnData or MuData that was fitted, or one with the same variables.

        ``obsm[f"{key}_S1"]`` : the predictions of each of the `components` (by default the first view's own), a data frame
        under the names of its columns; of a subset of views, ``f"{key}_rna+protein"``. ``varm[key]`` : the variance of each
        variable that is its own, and that it shares; nan for one that is in no view. ``uns[key]`` : model, verdict, n, views,
        summary, and of two views rank and canonical correlations. Of a MuData obsm and varm are those of the modality in
        whose columns they are, with nan for samples that not all modalities have.
        """
        annotate(self, data, key, components)

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Column names of the default component."""
        return np.array(self.fitted_.columns_of(None), dtype=object)

    def component_on_rows(self, X: object, component: object = None, groups: object = None) -> Component:
        """The component with its higher cumulants read off the rows of X whenever they are asked for.

        For tables too wide for a state of order four (then components_ knows mean and covariance only): a projected cumulant
        costs O(n p) and nothing of size p^3 is formed. Also the way to mini-batches. The rows stay in memory, n x p numbers.

        groups : (n,) labels; rows of a group stay in one block.
        """
        return self.fitted_.component_on_rows(used_rows(self, X).array(), component, groups)

    def residual(self, X: object, component: object = None) -> Array:
        """R (n, d), centred: what is left of every column of a component's view after regression on the views where it does
        not live (on what they share with it, for two views)."""
        return self.fitted_.residual(used_rows(self, X).array(), component)

    # ---- outcomes

    def outcome(self, X: object, y: object, groups: object = None, sample_weight: object = None) -> Outcome:
        """An outcome beside the views: all that coefficients and tests read of it.

        X : as in :meth:`fit`, or a state; y : (n,) in memory, or the name or number of a column of X. Rows that are not in
        memory, and states, are read by their second moments, block by block: any size, one pass.
        groups, sample_weight : as in :meth:`fit`; by default those of the fit, when X has as many rows as it had.
        """
        if isinstance(X, Outcome):
            return X
        fitted = self.fitted_
        if isinstance(X, Moments):
            return fitted.outcome(fitted.design.found_in(X, y))
        table = used_rows(self, X, y)
        if table.rereadable:
            table, groups, at, _ = without_gaps(table, slice(None), fitted.design, groups, fitted.missing)
            if at is not None and sample_weight is not None:
                sample_weight = np.asarray(sample_weight)[at]
        return fitted.outcome(table, groups, sample_weight)

    def calibrate(
        self, X: object, y: object = None, component: object = None, *, sample_weight: object = None, **options: Any
    ) -> Coefficients:
        """Coefficients of an outcome on a component, from samples of the views and of the outcome.

        The outcome depends on this component only, so it is uncorrelated with views where the component does not live, and the
        residual on them may stand in for its view: same expectation, far less variance. The result is never far
        from residualising (the other views as covariates) when the data say little.

        X, y, sample_weight : as in :meth:`outcome`, whose result may be X.
        """
        outcome = self.outcome(X, y, sample_weight=sample_weight)
        return self.fitted_.calibrate(outcome, component, **options)

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
        return self.fitted_.outcome_test(self.outcome(X, y, groups, sample_weight), component)

    def score(self, X: object, y: object = None) -> float:
        """Held-out fit, in nats per sample: Gaussian log-likelihood of the views under the fitted second moments; for two
        views also the energy of the held-out cross-cumulants inside the fitted row space."""
        fitted, rows = self.fitted_, used_rows(self, X).array()
        if fitted.missing != "error":  # the likelihood is that of rows without gaps
            rows = rows[np.isfinite(rows).all(axis=1)]
        return float(fitted.solution.score(fitted.centred(rows), fitted.n_blocks))

    # ---- how sure

    def jackknife(self, function: Callable[[Any], Array], *, progress: bool = False) -> Estimate:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit.

        function : takes a fitted model like this one, returns an array. Ranks and sets stay as they are.
        progress : as in :meth:`fit`.

        Where views were reduced to few directions, because they have too many columns for their samples, there are no errors
        (nan, and a SampleSizeWarning): a refit keeps these directions and all that lies outside of them as they are, and errors
        come out many times too small. Fit to several draws of the samples, with replacement, instead.
        """
        solution = self.fitted_.solution
        used = solution.blocks
        if len(used) < 2:
            raise DataError("the jackknife needs at least two blocks of samples")
        if solution.reduced_views:
            named = " and ".join(repr(view) for view in solution.reduced_views)
            warn_user(
                f"no standard errors: too many columns of {named} for the samples, so that views were compared in few "
                "directions, which refits without a block do not choose again, nor what lies outside of them. Use fewer "
                "columns or more samples, or fit to samples drawn with replacement",
                SampleSizeWarning,
            )
            point = np.asarray(function(self), dtype=np.float64)
            return Estimate(point, np.full_like(point, np.nan), len(used) - 1)
        replicates, fitted = list[Array](), self.fitted_
        for block in each(used, progress, "jackknife"):
            other = copy(self)
            other._adopt(fitted.without(block))
            replicates.append(function(other))
        return from_replicates(function(self), replicates)

    def _limits(
        self, known: Estimate | None, chosen: Callable[[Any], Array], level: float, progress: bool, **named: Any
    ) -> Estimate:
        """What the solution knows without refits, else the jackknife of what is chosen of a model."""
        return replace(self.jackknife(chosen, progress=progress) if known is None else known, level=level, **named)

    # ---- what a fit says of itself

    @property
    def components_(self) -> Mapping[Any, Component]:
        """{name: Component}; each is made when it is asked for first."""
        return self.fitted_.components

    @property
    def views_(self) -> Views:
        """Which columns each view has, and their names."""
        return self.fitted_.design.views

    @property
    def solution_(self) -> Any:
        """What the solver returned, in the columns of all views side by side."""
        return self.fitted_.solution

    @property
    def n_samples_(self) -> int:
        """Rows of the fit."""
        return int(self.solution_.n)

    @property
    def verdict_(self) -> str:
        """How sure the fit is, in one or two words."""
        return str(self.solution_.verdict)

    @property
    def independent_rows_(self) -> float:
        """How many independent rows the samples are worth."""
        return float(self.solution_.independent_rows)


# ---- the pipeline


@transaction
def fit_rca(
    model: ComponentAnalysis, X: object, y: object = None, groups: object = None, **options: Any
) -> tuple[Data, Any, Sample]:
    """Fit an RCA to a table, a file, a stream (read once) or a state, and read an outcome beside the views, if there is one.

    Returned are what the solver saw, which can be asked for more (moments of maps of the columns of all views, covariates
    removed), the outcome, and what was read.

    X, y, groups : as of :meth:`ComponentAnalysis.outcome`; options : those of :meth:`Sample.of`, and component, what the
    outcome depends on; every_row, the rows themselves are needed, in memory, not only their second moments, also of a component
    alone; quiet, do not warn of what the fit does not tell.
    """
    model._check_parameters()
    solving = {name: options.pop(name) for name in ("component", "every_row", "quiet") if name in options}
    sample = Sample.of(model, X, y, groups, **options)
    return *_fit(model, sample, **solving), sample


def _fit(
    model: ComponentAnalysis,
    sample: Sample,
    *,
    component: object = None,
    every_row: bool = False,
    quiet: bool = False,
) -> tuple[Data, Outcome | None]:
    """Data -> solve -> Fitted, which is assigned last."""
    both = sample.rows_in_memory() if every_row else sample.both

    def outcome(fit: Fitted) -> Outcome:
        made = fit.outcome(both, sample.groups, every_row=every_row, summed=True)
        return made if sample.at is None else replace(made, at=sample.at if made.at is None else sample.at[made.at])

    def contradicts(fit: Fitted) -> bool:
        """Whether the outcome rejects the model as it was fitted."""
        on_v = fit.beside(outcome(fit), component)[0].on_v if sample.has_outcome else None
        return on_v is not None and bool(on_v.fails)

    try:
        fit, data = model._solved_data(*_begun(model, sample), contradicts)
    except MissingValueError as error:
        table = sample.table
        if isinstance(table, Moments) or (missed := table.first_missing()) is None:
            raise
        row, at, count = missed
        raise DataError(
            f"{sample.design.describe(at)} holds {count} missing or infinite values (the first in data row {row + 1} of "
            f'{table.source.title}): drop those rows or impute them first, or say missing="drop" or "available"'
        ) from error
    model._adopt(fit)
    if not quiet:
        fit.solution.warn()
    return data, outcome(fit) if sample.has_outcome or every_row else None


def _begun(model: ComponentAnalysis, sample: Sample) -> tuple[Fitted, Data]:
    """What is known before the solution, and what a solver asks."""
    table, design, order = sample.table, sample.design, model._state_order
    data, gaps = data_of(table, design, model.missing, model.n_blocks, sample.groups, progress=sample.progress)
    if isinstance(table, Moments) and table.layout.order < order:
        raise DataError(
            f"a state of order {order} is needed, this one has order {table.layout.order}: make it with "
            f"Moments.of(X, order={order})"
        )
    classes = "not looked for: a state has no rows" if isinstance(table, Moments) else ""
    if isinstance(data, Available):
        classes = "not looked for in rows with gaps (missing='available')"
    elif isinstance(table, Rows):
        first = table.array() if table.held else table.head(LEAF)
        if table.held:
            check_finite(first, design.side_by_side())  # the view and the row are named
        _warn_of_counts(design, first[:LEAF])
    weighted = table.dependent if isinstance(table, Moments) else table.weighted
    begun = Fitted(design, int(model.n_blocks), model.missing, units=sample.units(), weighted=weighted)
    return replace(begun, class_note=classes, gap_note=gaps or sample.note), data


def _cleaned(fit: Fitted, data: Data) -> tuple[Fitted, Data]:
    """Covariates, and the probabilities of hidden classes, which stand behind all views, are removed from these."""
    own, classes, by_block = len(fit.design.columns), fit.classes, None
    places = np.arange(own, len(fit.design.used) + (0 if classes is None else len(classes) - 1))
    if not len(places):
        return fit, data
    if not isinstance(data, RowData):
        partial = partial_out(data.moments(2), places.tolist())
        lost, more = float(partial.rank), {"origin": data} if isinstance(data, Available) else {}
        left: Any = AffineMap(partial.mean, partial.matrix * stretch(partial, lost), partial.mean[partial.kept])
        return replace(fit, partial=partial), replace(data.mapped(left), lost=lost, **more)  # type: ignore[type-var]
    table = data.rows
    with constants_told_later():
        if places[-1] >= WIDE:
            inside = table.array()
            weight = inside[:, -1] if table.weighted else np.ones(len(inside))
            partial = partial_out_rows(inside[:, : places[-1] + 1], places, weight)
        elif classes is None or places[-1] >= _BLOCKED:
            partial = partial_out(Moments.of(table, 2, n_blocks=1), places.tolist())
        else:
            by_block = Moments.of(table, 2, n_blocks=data.n_blocks, groups=data.groups)
            partial = partial_out(by_block, places.tolist())
        lost = lost_rows(partial, table, data.groups)
    left = table.mapped(with_options(partial.residuals, factor=stretch(partial, lost)), names=fit.names)
    first = next(iter(fit.design.places().values())).stop
    part = None if classes is None else ClassPart.of(partial, first, len(classes), by_block)
    return replace(fit, partial=partial, class_part=part), replace(data, rows=left, lost=lost)


def stretch(partial: Partial, lost: float) -> float:
    """Of residuals, for the rows' worth of freedom that covariates took (see Partial.residuals)."""
    if partial.n - lost < 2:
        raise DataError(
            f"{partial.rank} covariates leave nothing of {partial.n} rows (of fewer, where groups or weights make them "
            "depend on each other): use fewer covariates or more rows"
        )
    return float((partial.n / (partial.n - lost)) ** 0.5)


def add_block(model: ComponentAnalysis, X: object, outcome: object = None) -> tuple[Data, Any]:
    """Refit from all rows seen so far and these; what the solver saw, and the outcome beside it."""
    model._check_parameters()
    stream: Accumulator | None = vars(model).get("_stream")
    rows, beside = model._open(X, reset=stream is None), [outcome] if is_column(outcome) else []
    design = laid_out(model, rows, beside)[1] if stream is None else model.fitted_.design
    model._check_views(design.views)
    if design.added:
        raise DataError(
            f"the covariate {design.added[0].name!r} is no column of numbers: encode it as numbers before the stream, "
            "whose levels nobody knows until it ends"
        )
    if model.missing == "available":
        raise DataError("blocks that are added one by one do not tell what gaps lack: use missing='drop', or fit")
    table = design.found_in(rows, outcome)
    values = table.array()
    if model.missing == "drop":
        fine = np.isfinite(values).all(axis=1)
        say_dropped(int(fine.sum()), len(values))
        values = values[fine]
    check_finite(values, design.side_by_side())
    begun = Accumulator(model._state_order, n_blocks=model.n_blocks, names=table.names)
    stream = begun if stream is None else stream.copy()
    stream.update(values)
    with constants_told_later():
        state = stream.moments()
    seen = _fit(model, Sample.of_state(design, state))
    model._stream = stream
    return seen


def read_views(
    model: ComponentAnalysis, X: object, y: object, beside: Sequence[Any] = ()
) -> tuple[dict[str, Array], Array, Views, Any]:
    """{view: its values (n, d)} and the covariates (n, q) of a table, as a fit would take them, the views, and values y: of
    methods that need whole rows; nothing is fitted. beside : columns of X that are in no view."""
    reader = copy(model)
    reader._check_parameters()
    X, y, *_ = present(reader, X, y)
    rows, design = laid_out(reader, reader._open(X, reset=True), beside)
    reader._check_views(design.views)
    table = rows.select(design.used)
    if model.missing != "error":
        keep = complete_rows(table)
        table, y = table.kept(keep), taken(y, keep)
    values = table.array()
    check_finite(values, design.side_by_side())
    views = {name: values[:, place] for name, place in design.places().items()}
    return views, values[:, len(design.columns) :], design.views, y


def searched(data: Data, design: Design, rank: object) -> SearchSpace:
    at_least = int(rank) if isinstance(rank, (int, np.integer)) else 1
    return search_space(data, design.places(), lambda rows: check_range(rows, design.views), at_least)


def _warn_of_counts(design: Design, rows: Array) -> None:
    """Say what to do first with views that look like raw counts; rows : some of the table, those of the views first."""
    told = {view: counts_in(rows[:, part]) for view, part in design.places().items()}
    shown = [f"{view!r} (up to {most:.0f}, {mean:.2g} on average)" for view, (most, mean) in told.items() if most]
    if shown:
        warn_user(
            f"the values of {', '.join(shown)} look like raw counts: whole numbers, none negative, a few of them large. "
            "What disturbs counts multiplies them, the model adds: divide by each sample's total and take logarithms first "
            "(in scanpy, sc.pp.normalize_total(adata) and sc.pp.log1p(adata))",
            CountsWarning,
        )


def _warn_of_constants(design: Design, variances: Array) -> None:
    """variances : of the columns of the views."""
    constant = design.columns[variances <= 0]
    if len(constant):
        named = ", ".join(design.views.describe(int(column)) for column in constant[:5])
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        warn_user(
            f"constant: {named}{more}. Such columns say nothing about any component: drop them",
            ConstantColumnWarning,
        )


def check_interval(what: str, level: float) -> None:
    if what not in ("A", "covariance"):
        raise ValueError(f"what must be 'A' or 'covariance', got {what!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
