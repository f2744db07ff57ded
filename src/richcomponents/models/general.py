"""RCA: any number of views, components that live in any subsets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array
from richcomponents.components.component import Component
from richcomponents.components.data import Data, RowData, StateData
from richcomponents.components.dependence import RowUnits
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.contrastive.intervals import Interval
from richcomponents.contrastive.specification import TestResult, outcome_test
from richcomponents.cumulants.jackknife import JackknifeResult, jackknife_error
from richcomponents.data.views import Views, check_finite, check_outcome, column_names, join_views, resolve_views
from richcomponents.errors import DataError
from richcomponents.general.discover import SetTest
from richcomponents.general.solution import SetSolution, by_subset, is_contrastive, settle
from richcomponents.models import general_report
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.estimator import Estimator, refuse_second_table
from richcomponents.models.general_pair import contrastive_names, in_general_words
from richcomponents.models.progress import with_bar
from richcomponents.moments import Moments
from richcomponents.moments.rows import Rows

__all__ = ["RCA"]

_MIN_BLOCKS = 10


class RCA(TransformerMixin, Estimator):  # type: ignore[misc]
    """Hidden components shared by any subsets of several views.

    U_i = sum over the subsets Q that contain view i of A(i, Q) S_Q, with independent components S_Q of any distribution
    and unknown A (Ge and Zou, Section 3.2). Estimates all A and the cumulants of every component.

    Parameters
    ----------
    views : int or dict
        Which columns belong to which view: {name: columns}, or the first k columns and the rest (as in
        :class:`ContrastiveRCA`). Needed for one table; :meth:`fit_views` takes several.
    sets : list of subsets of view names, optional
        Where components live, e.g. ``[("a",), ("b",), ("a", "b")]``; all non-empty subsets by default.
    method : {"efficient", "paper"}
        "efficient": whitened views, cross-block products, joint refinement of everything; for two views with all three
        subsets it is :class:`ContrastiveRCA`. "paper": FindLinear and ComputeCumulant, the reference; its covariances need
        not be positive.
    discover : bool
        Start from `sets` and keep the components that the data show; see `evidence_`. Components of a single view are
        not tested and always there, also those that `sets` left out.
    alpha : float
        Chance that any absent component is kept by `discover` (multiplicity over subsets and orders is accounted for).
    gauge : {subset: view}, optional
        A component is written in the columns of its first view, where its transformation is the identity; name another one
        here, for example one with fewer columns.
    rank : {subset: int}, optional
        Dimension of components that have fewer than the columns of their gauge view.
    order : int
        Highest order of the cumulants that are used and kept: 3 to 6; above 4 they are kept for the components (and for
        method="paper"), not for the joint refinement.
    n_blocks : int
        Statistical blocks, at least 10.
    random_state : int or None

    Attributes
    ----------
    transforms_ : {(view, subset): array (columns of the view, columns of the gauge view)}
    components_ : {subset: Component}
    system_ : SetSystem
        With `explain()`, in words.
    evidence_ : {subset: SetTest}
        What `discover` found, also for the subsets that were dropped.
    variance_shares_ : {(view, subset): float}
        The part of a view's variance that a component carries there.
    relative_errors_ : {(view, subset): float}
        Approximate standard error of A over its size (white columns), method="efficient"; absent for large problems and for
        two views. :meth:`confidence_interval` has the errors of every entry.
    views_ : Views

    Examples
    --------
    >>> from richcomponents.datasets import make_views
    >>> data = make_views(5000, 3, 2, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)])
    >>> model = RCA(views=data.views, sets=data.sets).fit(data.X)
    >>> A = model.transforms_["b", ("a", "b", "c")]
    >>> bool(np.linalg.norm(A - data.transforms["b", ("a", "b", "c")]) < 0.2 * np.linalg.norm(A))
    True
    """

    def __init__(
        self,
        views: object = None,
        sets: Iterable[object] | None = None,
        method: str = "efficient",
        discover: bool = False,
        alpha: float = 0.01,
        gauge: Mapping[Subset, str] | None = None,
        rank: Mapping[Subset, int] | None = None,
        order: int = 4,
        n_blocks: int = 20,
        random_state: int | None = 0,
    ) -> None:
        self.views = views
        self.sets = sets
        self.method = method
        self.discover = discover
        self.alpha = alpha
        self.gauge = gauge
        self.rank = rank
        self.order = order
        self.n_blocks = n_blocks
        self.random_state = random_state

    # ---- doors

    def fit(self, X: object, y: object = None, groups: object = None) -> Self:
        """Fit to one table whose columns are all views.

        y : ignored, as scikit-learn expects. groups : (n,) labels; rows of a group stay in one block.
        """
        refuse_second_table(y)
        values = self._values(X, reset=True, at_least=2)
        if values.shape[1] < 2:
            raise DataError(f"several views need at least two columns; X has n_features = {values.shape[1]}")
        return self._fit_table(values, resolve_views(self.views, values.shape[1], column_names(X), values), groups)

    def fit_views(self, views: object, y: object = None, groups: object = None) -> Self:
        """Fit to separate tables: a list, a dict {name: table}, or a MuData-like object; samples must line up."""
        table = join_views(views)
        self.n_features_in_ = table.values.shape[1]
        if table.named:
            self.feature_names_in_ = np.array(table.views.feature_names, dtype=object)
        return self._fit_table(table.values, table.views, groups)

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; views are given by column numbers. Without rows, the covariance of the cumulants
        themselves is unknown, and weights come from the blocks: a slightly different, slightly less precise estimate.
        """
        self.n_features_in_ = moments.layout.n_columns
        lay = moments.layout
        if lay.order != 4:
            raise DataError(
                f"a state of order 4 is needed, this one has order {lay.order}: make it with Moments.of(X, order=4)"
            )
        if self.order > 4:
            raise DataError("cumulants of order five and six need the rows: use fit(X), or order=4")
        self._prepare(resolve_views(self.views, lay.n_columns, None))
        return self._fit_data(StateData(moments.select(self._used)), lambda model: model.fit_moments(moments))

    # ---- fitting

    def _prepare(self, views: Views) -> None:
        """Check the parameters and lay out the views: used columns side by side."""
        if self.method not in ("efficient", "paper"):
            raise ValueError(f"method must be 'efficient' or 'paper', got {self.method!r}")
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 3 <= self.order <= 6:
            raise ValueError(f"order must be an integer from 3 to 6, got {self.order!r}")
        if not isinstance(self.n_blocks, (int, np.integer)) or self.n_blocks < _MIN_BLOCKS:
            raise ValueError(f"n_blocks must be an integer, at least {_MIN_BLOCKS}, got {self.n_blocks!r}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha!r}")
        if self.method == "paper" and (self.discover or self.rank):
            raise ValueError(
                "discover= and rank= belong to method='efficient'; a system that it found is given to method='paper' as "
                "sets=model.system_.members"
            )
        if len(views) < 2:
            raise DataError("RCA compares views: name at least two")
        self.views_ = views
        self._used = np.concatenate([views[name] for name in views])
        ends = np.cumsum([0, *(len(views[name]) for name in views)])
        self._place = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(views)}
        self._wanted = SetSystem.all(views.names) if self.sets is None else SetSystem.of(self.sets, views.names)
        self._contrastive: ContrastiveRCA | None = None
        self._units = RowUnits()

    def _fit_table(self, values: Array, views: Views, groups: object) -> Self:
        self._prepare(views)
        self._units = RowUnits.of(len(values), groups)
        check_finite(values, views)
        data = RowData(Rows(values).select(self._used), self.n_blocks, groups)
        return self._fit_data(data, lambda model: model.fit(values, groups=groups))

    def _fit_data(self, data: Data, delegated: Callable[[ContrastiveRCA], ContrastiveRCA]) -> Self:
        if not self.discover and is_contrastive(self._wanted, self.method, self.gauge):
            return self._delegate(delegated)
        problem = settle(
            data,
            self._place,
            lambda column: self.views_.describe(int(self._used[column])),
            sets=self._wanted,
            gauge=self.gauge,
            ranks=self.rank,
            method=self.method,
            order=self.order,
            discover=self.discover,
            alpha=self.alpha,
            random_state=self.random_state,
        )
        if problem.verdicts is not None:
            self.evidence_: Mapping[Subset, SetTest] = problem.verdicts
        if is_contrastive(problem.system, self.method, self.gauge):
            return self._delegate(delegated)
        self._centre = problem.map.centre
        self._adopt(problem.solve())
        if self._solution.relative_errors is not None:
            self.relative_errors_ = self._solution.relative_errors
        return self

    def _adopt(self, solution: SetSolution) -> None:
        """Make a solution the fitted attributes."""
        self._solution = solution
        self.system_ = solution.system
        self.transforms_ = solution.transforms()
        self.variance_shares_ = solution.variance_shares()
        names = [self.views_.feature_names[column] for column in self._used]
        self.components_: dict[Subset, Component] = solution.components(self._centre + solution.moved, names)

    # ---- two views with all three subsets: contrastive RCA

    def _delegate(self, fit: Callable[[ContrastiveRCA], ContrastiveRCA]) -> Self:
        both = tuple(self.views_)
        columns = {view: self.views_[view] for view in both}
        rank = by_subset(self.rank, "rank", self._wanted).get(both, "auto")
        model = ContrastiveRCA(
            columns, rank=rank, order=self.order, n_blocks=self.n_blocks, random_state=self.random_state
        )
        self._adopt_contrastive(fit(model))
        return self

    def _adopt_contrastive(self, model: ContrastiveRCA) -> None:
        self._contrastive = model
        self.system_ = SetSystem.all(self.views_.names)
        pair = in_general_words(model, self.views_)
        self.transforms_, self.components_ = pair.transforms, pair.components
        self.variance_shares_ = pair.shares

    # ---- values of the components

    def _chosen(self, component: object) -> Subset:
        """A subset from what the user gave; by default the first view's own component."""
        if component is None:
            first = (self.views_.names[0],)
            return first if first in self.components_ else next(iter(self.components_))
        wanted = (component,) if isinstance(component, str) else component
        try:
            subset = tuple(view for view in self.views_ if view in wanted)  # type: ignore[operator]
            complete = len(subset) == len(tuple(wanted))  # type: ignore[arg-type]
        except TypeError:
            subset, complete = (), False
        if not complete or subset not in self.components_:
            raise ValueError(f"component must be one of {', '.join(map(str, self.components_))}, got {component!r}")
        return subset

    def transform(self, X: object, component: object = None, return_std: bool = False) -> Any:
        """Best linear unbiased prediction of a component for each sample, seen or not.

        component : a subset of the views; by default the first view's own component. In the columns of its gauge view.
        Predictions of all components, transformed, add up to the views (not with method="paper", whose covariances do not add
        up to those of the views). Their covariance is too small: use the component's own for principal components or mixtures.
        return_std : also the standard error of prediction, (n, d).
        """
        configured = getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default"
        if configured and component is not None and self._chosen(component) != self._chosen(None):
            raise ValueError("set_output names the columns of the default component; for others use blup(X, component)")
        return self.blup(X, component, return_std=return_std)

    def blup(self, X: object, component: object = None, *, return_std: bool = False) -> Any:
        """As :meth:`transform`, always as plain arrays."""
        check_is_fitted(self)
        subset = self._chosen(component)
        values = self._values(X, reset=False)
        if self._contrastive is not None:
            return self._contrastive.blup(values, contrastive_names(self.views_)[subset], return_std=return_std)
        check_finite(values, self.views_)
        predicted, error = self._solution.predict(subset, values[:, self._used] - self._centre)
        predicted = predicted + self.components_[subset].mean
        if not return_std:
            return predicted
        return predicted, np.tile(np.sqrt(np.maximum(np.diag(error), 0.0)), (len(predicted), 1))

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Column names of the default component: those of the first view."""
        check_is_fitted(self)
        return np.array(self.components_[self._chosen(None)].feature_names, dtype=object)

    def outcome_test(self, X: object, y: object, component: object = None, groups: object = None) -> TestResult:
        """F-test of y on the views outside of a component: an outcome that depends on this component only is independent of
        them. Without such views (a component of all) there is nothing to test: p = 1.

        groups : as in :meth:`fit`; by default those of the fit, whose rows X must then hold.
        """
        check_is_fitted(self)
        subset = self._chosen(component)
        values = self._values(X, reset=False)
        check_finite(values, self.views_)
        target = check_outcome(y, len(values))
        outside = [column for view in self.views_ if view not in subset for column in self.views_[view]]
        rows, target = values[:, outside] - values[:, outside].mean(axis=0), target - target.mean()
        if not outside:
            return TestResult(float("nan"), (0, len(target) - 1), 1.0)
        units = self._units if groups is None else RowUnits.of(len(target), groups)
        if units.depend and len(units) != len(target):
            raise DataError("the fit knew groups of its rows, but not those of this table: pass groups=")
        return outcome_test(rows, target, units)

    # ---- how sure

    def jackknife(self, function: Callable[[RCA], Array], *, progress: bool = False) -> JackknifeResult:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit.

        function : takes a fitted RCA, returns an array. The set system stays as it is. progress : show a bar.
        """
        check_is_fitted(self)
        if self._contrastive is not None:
            return self._contrastive.jackknife(lambda model: function(self._with_contrastive(model)), progress=progress)
        replicates = []
        for block in with_bar(self._solution.blocks, progress, "jackknife"):
            other = copy(self)
            other._adopt(self._solution.without(block))
            replicates.append(np.asarray(function(other), dtype=np.float64))
        stacked = np.stack(replicates)
        return JackknifeResult(np.asarray(function(self), dtype=np.float64), jackknife_error(stacked), stacked)

    def _with_contrastive(self, model: ContrastiveRCA) -> RCA:
        other = copy(self)
        other._adopt_contrastive(model)
        return other

    def confidence_interval(
        self,
        what: str = "covariance",
        component: object = None,
        view: str | None = None,
        level: float = 0.95,
        *,
        progress: bool = False,
    ) -> Interval:
        """Block-jackknife errors and limits for the "covariance" of a component, or for "A" of a view and a component."""
        check_is_fitted(self)
        subset = self._chosen(component)
        if what not in ("A", "covariance"):
            raise ValueError(f"what must be 'A' or 'covariance', got {what!r}")
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        if what == "A" and (view, subset) not in self.transforms_:
            raise ValueError(f"view= must be one of {subset}, got {view!r}")
        if what == "A":
            result = self.jackknife(lambda model: model.transforms_[str(view), subset], progress=progress)
        else:
            result = self.jackknife(lambda model: model.components_[subset].covariance, progress=progress)
        low, high = result.interval(level)
        return Interval(result.estimate, result.standard_error, low, high)

    # ---- reports

    def summary(self) -> str:
        """A page of text: which component lives where, how much variance it carries in each view, and why we think so."""
        check_is_fitted(self)
        inner = None if self._contrastive is None else self._contrastive.summary()
        return general_report.summary(self, inner)

    def plot(self, figure: Any = None) -> Any:
        """An UpSet-like figure of the variance per subset; returns the matplotlib Figure."""
        check_is_fitted(self)
        return general_report.plot(self, figure)
