"""What all learners of a component share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.models.estimator import Estimator, as_fitted
from richcomponents.models.rca import ComponentAnalysis
from richcomponents.plots import interval_plot

__all__ = ["ComponentLearner"]

_SUSPICIOUS = 0.001


class ComponentLearner(Estimator):
    """An estimator of a model of one component; subclasses take `rca=` and `component=`.

    After fit: `rca_` (a fitted clone; None after fit_component) and `component_` (what was learned from).
    """

    rca: Any
    component: str

    def _fit_rca(self, X: object, groups: object = None, y: object = None) -> Component:
        """Fit a clone of the RCA to X and return the component to learn; y : of learners that ignore it."""
        model = self.unfitted_rca()
        self.rca_ = model.fit(X, y, groups=groups)
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        self.component_: Component = self._component_of(model)
        return self.component_

    def unfitted_rca(self) -> Any:
        """A clone of the RCA that was given."""
        if self.rca is None:
            raise DataError("rca= says which columns are which view: give rca=ContrastiveRCA(views=...), or an RCA")
        return clone(self.rca)

    def _component_of(self, model: Any) -> Component:
        """The component to learn, of a fitted RCA; a subset of views may be a list."""
        wanted = tuple(self.component) if isinstance(self.component, list) else self.component
        if wanted not in model.components_:
            raise ValueError(
                f"component must be one of {', '.join(map(repr, model.components_))}, got {self.component!r}"
            )
        found: Component = model.components_[wanted]
        return found

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

    def _warn_of_others(self, X: object, target: Array) -> None:
        """y depends on one component only, so it must not go with the views where that does not live."""
        model = self._need_rca()
        test = model.outcome_test(X, target, self.component)
        if test.p_value < _SUSPICIOUS:
            others = model.others(self.component)
            warn_user(
                f"y is correlated with {others} (F-test, p = {test.p_value:.1e}), where {self.component_.name} does not live: "
                f"it seems to depend on more than {self.component_.name}, and the coefficients may be wrong. Check "
                f"that {others} holds controls only, or choose another component",
                SpecificationWarning,
            )

    def _plot_coefficients(
        self,
        coef: Array,
        residualised: Array | None,
        table: Estimate | None,
        *,
        label: str,
        names: Sequence[str] | None,
        ax: Any,
    ) -> Any:
        """Coefficients (d,), their confidence intervals if there are any, and those of residualising; returns the Axes."""
        return interval_plot(
            self.component_.feature_names if names is None else tuple(names),
            {**({} if residualised is None else {"residualised": residualised}), "RCA": coef},
            None if table is None else table.low,
            None if table is None else table.high,
            title=f"Coefficients on {self.component_.name}",
            label=label,
            ax=ax,
        )

    def _need_rca(self) -> ComponentAnalysis:
        if self.rca_ is None:
            raise ValueError("this needs the rows' views: use fit(X), not fit_component(component)")
        model: ComponentAnalysis = as_fitted(self.rca_)
        return model
