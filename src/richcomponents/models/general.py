"""RCA: any number of views, components that live in any subsets of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array
from richcomponents.components.component import Component, CumulantSource
from richcomponents.components.dependence import RowUnits
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.contrastive.specification import TestResult, outcome_test
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate
from richcomponents.cumulants.jackknife import from_replicates
from richcomponents.data.views import Views, check_finite, check_outcome, column_names, join_views, resolve_views
from richcomponents.errors import DataError, WeakIdentificationWarning, warn_user
from richcomponents.general.discover import Verdict, discover_sets
from richcomponents.general.evidence import Evidence
from richcomponents.general.fit import estimate, warm_estimate
from richcomponents.general.frames import WhiteViews
from richcomponents.general.refine import Parameters
from richcomponents.general.solution import SetSolution, solve_joint, solve_paper
from richcomponents.general.start import covariances_identified
from richcomponents.models import general_report
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.estimator import Estimator, refuse_second_table
from richcomponents.models.general_pair import contrastive_names, in_general_words
from richcomponents.models.progress import with_bar
from richcomponents.moments import Moments
from richcomponents.moments.parallel import one_blas_thread
from richcomponents.paper.find_linear import find_linear, require_dimensions

__all__ = ["RCA"]

_MIN_ROWS = 40
_MIN_BLOCKS = 10
_WEAK = 0.2  # relative standard error of a transformation above which a warning is due (Gaussian parts: .2 to .5)


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
    evidence_ : {subset: Verdict}
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
        if not self.discover and self._is_contrastive(self._wanted):
            return self._delegate(lambda model: model.fit_moments(moments))
        selected = moments.select(self._used)
        self._centre = np.array(selected.mean)
        covariance = selected.covariance(unbiased=False)
        self._check_size(selected)
        state = selected.transformed(self._whiten(covariance).into)
        system = self._settle(state)
        if self._is_contrastive(system):
            return self._delegate(lambda model: model.fit_moments(moments))
        return self._solve(state, system, None, None)

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
        if not self.discover and self._is_contrastive(self._wanted):
            return self._delegate(lambda model: model.fit(values, groups=groups))
        check_finite(values, views)
        rows = values[:, self._used]
        self._centre = rows.mean(axis=0)
        rows = rows - self._centre
        z = rows @ self._whiten(rows.T @ rows / len(rows)).into
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these columns are not the user's
            state = Moments.of(z, min(self.order, 4), n_blocks=self.n_blocks, groups=groups)
            high = Moments.of(z, self.order, n_blocks=1) if self.order > 4 else None
        self._check_size(state)
        system = self._settle(state)
        if self._is_contrastive(system):
            return self._delegate(lambda model: model.fit(values, groups=groups))
        return self._solve(state, system, high, z)

    def _check_size(self, state: Moments) -> None:
        blocks = int(np.sum(state.block_sizes > 0))
        if state.n < _MIN_ROWS or blocks < _MIN_BLOCKS:
            raise DataError(
                f"{state.n} samples in {blocks} blocks are too few: cumulants of order three and four need at least "
                f"{_MIN_ROWS} samples in {_MIN_BLOCKS} blocks (or groups)"
            )

    def _whiten(self, covariance: Array) -> WhiteViews:
        """White coordinates of every view; the paper's method works on the columns as they are."""
        self._white = WhiteViews.of(
            covariance,
            self._place,
            lambda column: self.views_.describe(int(self._used[column])),
            whiten=self.method == "efficient",
        )
        return self._white

    def _by_subset(self, given: Mapping[Subset, Any] | None, name: str) -> dict[Subset, Any]:
        """gauge= or rank= with its subsets in view order."""
        out = {}
        for key, value in (given or {}).items():
            wanted = (key,) if isinstance(key, str) else tuple(key)
            subset = tuple(view for view in self.views_ if view in wanted)
            if len(subset) < len(wanted) or subset not in self._wanted:
                raise DataError(
                    f"{name}= names {key!r}, which is not one of the sets {', '.join(map(str, self._wanted))}"
                )
            out[subset] = value
        return out

    def _gauges(self, system: SetSystem) -> dict[Subset, str]:
        given = self._by_subset(self.gauge, "gauge")
        for q, view in given.items():
            if view not in q:
                raise DataError(f"gauge={{{q!r}: {view!r}}}: the gauge of a component is one of its own views")
        return {q: given.get(q, q[0]) for q in system}

    def _ranks(self, system: SetSystem, gauge: Mapping[Subset, str]) -> dict[Subset, int]:
        given = self._by_subset(self.rank, "rank")
        ranks = {}
        for q in system:
            full = len(self._white.columns[gauge[q]])
            ranks[q] = int(given.get(q, full))
            if not 1 <= ranks[q] <= full:
                raise DataError(
                    f"rank={{{q!r}: {given[q]!r}}} must lie between 1 and {full}, the independent columns of {gauge[q]!r}"
                )
        return ranks

    def _settle(self, state: Moments) -> SetSystem:
        """The set system: the one asked for, or what the data support of it."""
        if not self.discover:
            return self._wanted
        evidence = Evidence(self._white.columns, state, min(self.order, 4))
        with one_blas_thread():
            found = discover_sets(evidence, self._wanted, self._gauges(self._wanted), self.alpha, self.random_state)
        self.evidence_: dict[Subset, Verdict] = found.verdicts
        return found.system

    def _solve(self, state: Moments, system: SetSystem, high: Moments | None, rows: Array | None) -> Self:
        """From the state of the white columns to transforms_ and components_."""
        evidence = Evidence(self._white.columns, state, min(self.order, 4))
        source = CumulantSource(state, high=high)
        gauge = self._gauges(system)
        ranks = self._ranks(system, gauge)
        require_dimensions(system, self._white.columns, gauge)
        self._state = state
        self._parameters: Parameters | None = None
        if self.method == "paper":
            solution = self._paper(evidence, system, gauge, source, Cumulants(state if high is None else high))
        else:
            system.require_order(evidence.order)
            with one_blas_thread():  # many small products: threads cost more than they give
                found = estimate(evidence, system, ranks, gauge, rows=rows, random_state=self.random_state)
            self._parameters, self.relative_errors_ = found.parameters, found.errors
            self._warn_of_weak()
            solution = solve_joint(evidence, system, gauge, self._white.frames, self._parameters, source)
        if not self.rank and not covariances_identified(solution.system, self._white.columns, solution.transforms):
            warn_user(
                "second moments do not determine the covariances of all components of this set system: those reported are one "
                "of many solutions (their cumulants of higher order are determined). Drop sets, or add columns to the views",
                WeakIdentificationWarning,
            )
        self._adopt(solution)
        return self

    def _warn_of_weak(self) -> None:
        weak = {key: error for key, error in self.relative_errors_.items() if error > _WEAK}
        if weak:
            listed = ", ".join(
                f"A({view}, {q}) (relative error {error:.0%} or more)" for (view, q), error in list(weak.items())[:4]
            )
            warn_user(
                f"the data say little about {listed}{' and others' if len(weak) > 4 else ''}: such a component is nearly "
                "Gaussian, small, or not there. Drop its set (discover=True tests it), or use more samples",
                WeakIdentificationWarning,
            )

    def _paper(
        self,
        evidence: Evidence,
        system: SetSystem,
        gauge: Mapping[Subset, str],
        source: CumulantSource,
        cumulants: Cumulants,
    ) -> SetSolution:
        linear = find_linear(cumulants, self._white.columns, system, order=self.order, gauge=gauge)
        if linear.absent:
            warn_user(
                f"cumulants of order {self.order} vanish for {', '.join(map(str, linear.absent))}: left out as absent; a "
                "Gaussian component (or a symmetric one, at odd orders) looks the same",
                WeakIdentificationWarning,
            )
        return solve_paper(evidence, system, gauge, self._white.frames, linear, source)

    def _adopt(self, solution: SetSolution) -> None:
        """Make a solution the fitted attributes."""
        self._solution = solution
        self.system_ = solution.system
        self.transforms_ = {key: solution.transform(*key) for key in solution.transforms}
        self.variance_shares_ = solution.variance_shares(self._white.totals)
        means = {view: self._centre[part] for view, part in self._place.items()}
        names = {view: self._feature_names(view) for view in self.views_}
        self.components_: dict[Subset, Component] = solution.components(means, names)

    def _feature_names(self, view: str) -> tuple[str, ...]:
        return tuple(self.views_.feature_names[column] for column in self.views_[view])

    # ---- two views with all three subsets: contrastive RCA

    def _is_contrastive(self, system: SetSystem) -> bool:
        return len(system.views) == 2 and len(system) == 3 and self.method == "efficient" and not self.gauge

    def _delegate(self, fit: Callable[[ContrastiveRCA], ContrastiveRCA]) -> Self:
        both = tuple(self.views_)
        columns = {view: self.views_[view] for view in both}
        rank = self._by_subset(self.rank, "rank").get(both, "auto")
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
        rows = values[:, self._used] - self._centre
        z = self._solution.white_rows({view: rows[:, part] for view, part in self._place.items()})
        predicted, error = self._solution.predict(subset, z)
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

    def jackknife(self, function: Callable[[RCA], Array], *, progress: bool = False) -> Estimate:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit.

        function : takes a fitted RCA, returns an array. The set system stays as it is. progress : show a bar.
        """
        check_is_fitted(self)
        if self._contrastive is not None:
            return self._contrastive.jackknife(lambda model: function(self._with_contrastive(model)), progress=progress)
        if self.method == "paper" and self.order > 4:
            raise DataError("cumulants of order five and six are not kept by block: no jackknife; use order=4")
        used = np.flatnonzero(self._state.block_sizes).tolist()
        replicates = [function(self._without(block)) for block in with_bar(used, progress, "jackknife")]
        return from_replicates(function(self), replicates)

    def _with_contrastive(self, model: ContrastiveRCA) -> RCA:
        other = copy(self)
        other._adopt_contrastive(model)
        return other

    def _without(self, block: int) -> RCA:
        """The model refitted without one block, from the state alone, in the white coordinates of the whole."""
        other = copy(self)
        state = self._state.without([block])
        evidence = Evidence(self._white.columns, state, min(self.order, 4))
        system, gauge, source = self.system_, self._solution.gauge, CumulantSource(state)
        other._centre = self._centre + self._white.back(state.mean)
        if self._parameters is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                other._adopt(other._paper(evidence, system, gauge, source, Cumulants(state)))
        else:
            with one_blas_thread():
                parameters = warm_estimate(evidence, system, self._ranks(system, gauge), self._parameters)
            other._adopt(solve_joint(evidence, system, gauge, self._white.frames, parameters, source))
        return other

    def confidence_interval(
        self,
        what: str = "covariance",
        component: object = None,
        view: str | None = None,
        level: float = 0.95,
        *,
        progress: bool = False,
    ) -> Estimate:
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
            found = self.jackknife(lambda model: model.transforms_[str(view), subset], progress=progress)
        else:
            found = self.jackknife(lambda model: model.components_[subset].covariance, progress=progress)
        columns = self.components_[subset].feature_names
        own = (
            tuple(self.views_.feature_names[i] for i in self.views_[view])
            if view is not None and what == "A"
            else columns
        )
        return replace(found, level=level, names=own, columns=columns)

    # ---- reports

    @property
    def n_samples_(self) -> int:
        """Rows of the fit."""
        return self._state.n if self._contrastive is None else self._contrastive.n_samples_

    def summary(self) -> str:
        """A page of text: which component lives where, how much variance it carries in each view, and why we think so."""
        check_is_fitted(self)
        inner = None if self._contrastive is None else self._contrastive.summary()
        return general_report.summary(self, inner)

    def plot(self, figure: Any = None) -> Any:
        """An UpSet-like figure of the variance per subset; returns the matplotlib Figure."""
        check_is_fitted(self)
        return general_report.plot(self, figure)
