"""What all learners of a component share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.classes import Contrast
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.inference.verdicts import Test, Verdict
from richcomponents.learning.outcome import Outcome, OutcomeOnV
from richcomponents.models.estimator import Estimator, refuse_second_table
from richcomponents.models.rca import ComponentAnalysis, add_block, fit_rca
from richcomponents.moments import Moments
from richcomponents.moments.data import Data
from richcomponents.notebook import Summary, Table
from richcomponents.plots import estimate_plot
from richcomponents.text import in_line, page


class ComponentLearner(Estimator):
    """An estimator of a model of one component; subclasses take `rca=` and `component=`.

    After fit: `rca_` (a fitted clone; None after fit_component) and `component_` (what was learned from).
    """

    rca: Any
    component: str
    takes_outcome = False
    """Whether fit needs a y."""
    reads = 4
    """The highest order of the cumulants that fit_component asks for."""

    def title(self) -> str:
        """What was learned, in a line."""
        raise NotImplementedError

    def notes(self) -> tuple[str, ...]:
        """What a reader must be told, as sentences."""
        return ()

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """What was learned, with its errors where they need no refits (`confidence_interval` has the others).

        names : of the component's columns, where X had none.
        """
        raise NotImplementedError

    def by_column(self, names: Sequence[str] | None = None) -> Table:
        """The same as a table: an entry a row; of a matrix one row per column of the component, easier to read."""
        found = self.estimate(names)
        if found.value.ndim == 1:
            return found.rows()
        return Table(
            {"name": name, **dict(zip(found.columns, map(float, values), strict=True))}
            for name, values in zip(found.names, found.value, strict=True)
        )

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw what was learned (matplotlib).

        names : of the component's columns, where X had none. ax : where to draw, a new figure by default. Returns the Axes.
        """
        raise NotImplementedError

    def summary(self) -> Summary:
        """What was learned, as text, and how sure the RCA was; in a notebook the verdict, what was learned, tables."""
        rca, found = self.rca_, self.estimate()
        lines = [*self._lines(), *([] if rca is None else [rca.summary()])]
        tables = [found if found.value.ndim == 1 else self.by_column()]
        if rca is None:
            return Summary(page(lines), says=[self.title()], tables=tables)
        verdict = getattr(self, "verdict_", rca.verdict_)
        known = rca.summary().says[1:] if verdict == rca.verdict_ else ()
        says = [rca.headline(verdict), f"{self.title()}.", *self.notes(), *known]
        return Summary(page(lines), verdict=verdict, says=says, tables=tables)

    def _lines(self) -> list[str]:
        return [self.title()]

    def _check_parameters(self) -> None:
        """Refuse impossible parameters before anything is read."""

    def _check_counts(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        return self.component_.feature_names if names is None else tuple(map(str, names))

    def _keep_rca(self, model: Any) -> None:
        """Take over a fitted RCA, and the component to learn."""
        self.rca_ = model
        self.n_features_in_ = model.n_features_in_
        if "feature_names_in_" in vars(model):
            self.feature_names_in_ = model.feature_names_in_
        self.component_: Component = model.components_[model.fitted_.key(self.component)]

    def _add_block(self, X: object, outcome: object = None) -> Any:
        """A block of rows for the RCA, which is refitted to all it has seen; what its solver saw, and the outcome."""
        model = self.unfitted_rca() if getattr(self, "rca_", None) is None else copy(self.rca_)
        found = add_block(model, X, outcome)
        self._keep_rca(model)
        return found

    def unfitted_rca(self) -> Any:
        """A clone of the RCA that was given."""
        if self.rca is None:
            raise DataError("rca= says which columns are which view: give rca=ContrastiveRCA(views=...), or an RCA")
        model = clone(self.rca)
        classes = getattr(model, "classes", "none")  # of rows, see ContrastiveRCA: removed from S2, and from outcomes
        if classes == "none" or not (self.component == "S2" or getattr(self, "shared", False)):
            return model
        if classes != "auto":
            raise ValueError(f"hidden classes are a part of S2, which is learned here: leave out classes={classes!r}")
        return model.set_params(classes="none")

    def _take_component(self, component: Component) -> Component:
        """Learn from a component that was extracted before; there are no rows."""
        if not isinstance(component, Component):
            raise TypeError(
                f"fit_component takes a Component, such as model.components_['S1'], got {type(component).__name__}"
            )
        self.rca_, self.component_ = None, component
        return component

    def _samples(self, S: object) -> Array:
        """Samples of the component itself (n, d), checked."""
        samples, d = as_matrix(S), len(self.component_.mean)
        if samples.shape[1] != d:
            raise DataError(f"samples of {self.component_.name} have {d} columns, got {samples.shape[1]}")
        if not np.isfinite(samples).all():
            raise DataError(f"samples of {self.component_.name} hold missing or infinite values: drop those rows")
        return samples

    def _need_rca(self) -> ComponentAnalysis:
        if self.rca_ is None:
            raise ValueError("this needs the rows' views: use fit(X), not fit_component(component)")
        return self.rca_  # type: ignore[no-any-return]


class AloneLearner(ComponentLearner):
    """An estimator of a component by itself, without an outcome."""

    on_rows = False
    """Whether cumulants that were not kept are read off the rows."""
    _error: tuple[Array, int] | None
    """Standard errors of all parameters that came with the fit, and their degrees of freedom."""

    def fit(self, X: object, y: object = None, groups: object = None) -> Self:
        """Fit the RCA to X (n, columns of all views; also files, streams and states), then the model to its component.

        Tables too wide for the joint moments that a model asks for are read again, into memory. y : ignored, as scikit-learn
        expects. groups : (n,) labels; rows of a group stay in one block.
        """
        self._check_parameters()
        model = self.unfitted_rca()
        refuse_second_table(y)
        data, *_ = fit_rca(model, X, groups=groups)
        self._keep_rca(model)
        component = self.component_
        if self.on_rows and component.source is None:
            component = self.rca_.component_on_rows(X, self.component, groups)
        self._learn(component, data)
        return self

    def fit_component(self, component: Component) -> Self:
        """Fit to a component that was extracted before."""
        self._check_parameters()
        self._learn(self._take_component(component), None)
        return self

    def _learn(self, component: Component, data: Data | None) -> None:
        """data : what the solver saw, None of an extracted component."""
        raise NotImplementedError

    def _parameters(self, like: Self) -> dict[str, Array]:
        """All that was learned, number by number; like : a fit of the same, whose order classes have."""
        raise NotImplementedError

    def confidence_interval(self, level: float = 0.95, *, progress: bool = False) -> Estimate:
        """All parameters, with standard errors and intervals by blocks: those that came with the fit, where one step without
        each block tells them, else RCA and model are fitted again without each block, which takes longer.

        progress : as in fit.
        """
        own, rca = self._parameters(self), self.rca_
        if self._error is not None:
            return Estimate(np.array(list(own.values())), *self._error, tuple(own), level=level)
        if rca is None:
            raise ValueError(
                f"no standard errors: they need the rows' views, use fit(X), or blocks of samples behind {self.component_.name}"
            )

        def refitted(model: Any) -> Array:
            other = copy(self)
            if model.fitted_ is not rca.fitted_:
                other._keep_rca(model)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    other._learn(other.component_, None)
            return np.array(list(other._parameters(self).values()))

        return replace(rca.jackknife(refitted, progress=progress), names=tuple(own), level=level)  # type: ignore[no-any-return]

    def _lines(self) -> list[str]:
        """Of each class or direction the entries that are largest in size, and their errors where there are any."""
        found, lines = self.estimate(), [self.title(), *self.notes()]
        names, errors = list(map(in_line, found.names)), found.standard_error.T
        for title, values, error in zip(found.columns, found.value.T, errors, strict=True):
            order = np.argsort(-np.abs(values), kind="stable")[:12]
            ends = ["" if np.isnan(error[i]) else f" ({error[i]:.3f})" for i in order]
            cells = [f"{names[i]} {values[i]:.3g}{end}" for i, end in zip(order, ends, strict=True)]
            lines.append(f"  {title}: {', '.join(cells)}")
        return (
            lines
            if np.isnan(errors).all()
            else [*lines, "standard errors in parentheses, by leaving out blocks of samples"]
        )


class OutcomeLearner(ComponentLearner):
    """An estimator of the coefficients of an outcome on a component.

    After fit: coef_ (d,) or (1, d), residualised_ (d,) or None (what the simple method would give: V as covariates; simple_ is
    its name, "instrumental" for a component of several views, which predict each other's parts of it), coefficients_, an
    Estimate or None, and on_v_, an OutcomeOnV or None: what the outcome has to do with V.
    """

    takes_outcome = True
    simple_: str
    coef_: Array
    residualised_: Array | None
    coefficients_: Estimate | None
    on_v_: OutcomeOnV | None

    @property
    def verdict_(self) -> str:
        """The RCA's verdict; "contradicted" where the data reject what is assumed of the outcome."""
        verdict, on_v = str(self._need_rca().verdict_), self.on_v_
        fails = verdict in ("strong", "weak") and on_v is not None and on_v.fails
        return "contradicted" if fails else verdict

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """The coefficients, beside those of residualising; without errors where there are none (`coefficients_` is None)."""
        found = self.coefficients_
        if found is None:
            coef = np.ravel(self.coef_)
            found = Estimate(coef, np.full_like(coef, np.nan), 1, positive=self._positive())
        simple = self.residualised_
        others = {} if simple is None or self.rca_ is None else {self.simple_: np.ravel(simple)}
        return replace(found, names=self._names(names), others=others)

    def _lines(self) -> list[str]:
        return [self.title(), *self.notes(), str(self.estimate())]

    @property
    def contrast(self) -> Contrast | None:
        """The two classes, of a classifier."""
        return None

    def notes(self) -> tuple[str, ...]:
        """What a reader of the coefficients must be told, as sentences."""
        said = () if getattr(self, "on_v_", None) is None else self.on_v_.notes()  # type: ignore[union-attr]
        return said + (() if self.contrast is None else self.contrast.notes())

    def _positive(self) -> str:
        return "" if self.contrast is None else self.contrast.positive

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of y."""
        raise NotImplementedError

    def unfitted(self) -> Self:
        """A clone with the choices that the fit made (the penalty, the positive class), for the same fit of other samples."""
        raise NotImplementedError

    def fit_moments(self, moments: Moments, y: object) -> Self:
        """Fit to a state of order four, also the sum of several sites' states; y : the name or number of its column."""
        return self.fit(moments, y)  # type: ignore[no-any-return]

    def outcome_test(self, X: object, y: object) -> Test:
        """F-test of y on the views outside of the component: y depends on the component only, so it must not go with them."""
        return self._need_rca().outcome_test(X, self._coded(X, y), self.component)

    def _checked_cross(self, component: Component, cross: object) -> Array:
        """Learn from an extracted component; Cov(component, y) (d,) as numbers."""
        with_y = np.asarray(cross, dtype=np.float64)
        d = len(self._take_component(component).mean)
        if with_y.shape != (d,):
            raise DataError(f"cross must have one entry per column of the component ({d}), got shape {with_y.shape}")
        if not np.isfinite(with_y).all():
            raise DataError("cross must be finite: the covariance with y is missing or infinite")
        return with_y

    def _coded(self, X: object, y: object) -> Any:
        """y as numbers, or the column of X that holds them."""
        return y

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the coefficients, their confidence intervals and those of residualising (matplotlib); returns the Axes."""
        title, label = f"Coefficients on {self.component_.name}", self.unit(self._positive() or "y")
        return estimate_plot(self.estimate(names), title=title, label=label, ax=ax)

    def _named(self, outcome: Outcome, y: object) -> Outcome:
        """The outcome by its own name, where it has one: that of a column, or of a series."""
        name = y if isinstance(y, str) else getattr(y, "name", None)
        if outcome.on_v is None or not isinstance(name, str) or not name:
            return outcome
        return replace(outcome, on_v=replace(outcome.on_v, name=name))

    def _warn_of_others(self, outcome: Outcome, remedy: str = "") -> None:
        """y depends on one component only, so it must not go with the views where that does not live.

        remedy : what else to do, of two views.
        """
        model, on_v = self._need_rca(), outcome.on_v
        if on_v is not None:
            if on_v.doubt:
                warn_user(f"{on_v.doubt}{remedy if on_v.on_rest is None else ''}", SpecificationWarning)
            return
        test = model.fitted_.outcome_test(outcome, self.component)
        if test.finding == Verdict.CONTRADICTED:
            warn_user(self.goes_with_others(test).removesuffix("."), SpecificationWarning)

    def goes_with_others(self, test: Test, name: str = "y") -> str:
        """What the test of an outcome on the views outside of the component speaks against; nothing where it does not."""
        others, component = self._need_rca().fitted_.others(self.component), self.component_.name
        if test.finding == Verdict.STRONG:
            return ""
        return (
            f"{name} goes with {others} ({test.p_text}), where {component} does not live: it seems to depend on more than "
            f"{component}, and the coefficients may be wrong. Check that only controls are in {others}, or choose another "
            "component."
        )
