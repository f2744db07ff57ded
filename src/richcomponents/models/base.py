"""What all learners of a component share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.estimator import Estimator, as_fitted
from richcomponents.plots import interval_plot
from richcomponents.storage import storable
from richcomponents.text import in_line, page

__all__ = ["ODDS", "CoefficientTable", "ComponentLearner", "odds_ratios"]

_SUSPICIOUS = 0.001
ODDS = ("odds ratio", "odds low", "odds high")
"""Titles of the columns of :func:`odds_ratios`."""


def odds_ratios(estimate: Array, low: Array, high: Array) -> dict[str, Array]:
    """What one unit multiplies the odds by, and its limits, from changes of the log-odds (d,)."""
    with np.errstate(over="ignore"):
        return dict(zip(ODDS, map(np.exp, (estimate, low, high)), strict=True))


class ComponentLearner(Estimator):
    """An estimator of a model of one component; subclasses take `rca=` and `component=`.

    After fit: `rca_` (a fitted clone; None after fit_component) and `component_` (what was learned from).
    """

    rca: Any
    component: str

    def _fit_rca(self, X: object, groups: object = None, y: object = None) -> Component:
        """Fit a clone of the RCA to X and return the component to learn; y : of learners that ignore it."""
        model = self._unfitted_rca()
        self.rca_ = model.fit(X, y, groups=groups)
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        self.component_: Component = self._component_of(model)
        return self.component_

    def _unfitted_rca(self) -> Any:
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

    def _warn_of_v(self, X: object, target: Array) -> None:
        """y depends on S1 only, so it must not go with V."""
        test = self._need_rca().outcome_test(X, target)
        if test.p_value < _SUSPICIOUS:
            warn_user(
                f"y is correlated with V (F-test, p = {test.p_value:.1e}): it seems to depend on more than S1, and the "
                "coefficients may be wrong. Check that V holds controls only",
                SpecificationWarning,
            )

    def _warn_of_others(self, X: object, target: Array) -> None:
        """y depends on a component of some views of an RCA only, so it must not go with the other views."""
        model: Any = self.rca_
        test = model.outcome_test(X, target, self.component)
        if test.p_value < _SUSPICIOUS:
            others = [view for view in model.views_ if view not in self.component]
            warn_user(
                f"y is correlated with {' and '.join(others)} (F-test, p = {test.p_value:.1e}), where {self.component_.name} "
                "does not live: it seems to depend on more than this component, and the coefficients may be wrong. Check the "
                "sets, or choose a component of these views too",
                SpecificationWarning,
            )

    def _plot_coefficients(
        self,
        coef: Array,
        residualised: Array | None,
        table: CoefficientTable | None,
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

    def _need_rca(self) -> ContrastiveRCA:
        if self.rca_ is None:
            raise ValueError("this needs the rows' views: use fit(X), not fit_component(component)")
        model: ContrastiveRCA = as_fitted(self.rca_)
        return model


@storable
@dataclass(frozen=True)
class CoefficientTable:
    """Coefficients with standard errors, z values, two-sided p values and confidence limits.

    degrees : of Student's t (blocks - 1). positive : the class whose log-odds the coefficients change, and exp(coefficient) the
    odds; empty where y is a number.
    """

    names: tuple[str, ...]
    estimate: Array
    standard_error: Array
    degrees: int
    level: float = 0.95
    positive: str = ""

    @property
    def z(self) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.estimate / self.standard_error)

    @property
    def p_value(self) -> Array:
        return np.asarray(2 * stats.t.sf(np.abs(self.z), self.degrees))

    @property
    def low(self) -> Array:
        return np.asarray(self.estimate - self._half())

    @property
    def high(self) -> Array:
        return np.asarray(self.estimate + self._half())

    def _half(self) -> Array:
        return np.asarray(stats.t.ppf(0.5 + self.level / 2, self.degrees) * self.standard_error)

    def rows(self) -> list[dict[str, object]]:
        """One dict per coefficient, ready for a data frame."""
        columns: Sequence[tuple[str, Array]] = (
            ("coefficient", self.estimate),
            ("standard error", self.standard_error),
            ("z", self.z),
            ("p", self.p_value),
            ("low", self.low),
            ("high", self.high),
        )
        if self.positive:
            columns = (*columns, *odds_ratios(self.estimate, self.low, self.high).items())
        return [{"name": n, **{k: float(v[i]) for k, v in columns}} for i, n in enumerate(self.names)]

    def __str__(self) -> str:
        width = max(len("coefficient of"), *(len(in_line(name)) for name in self.names))
        odds = f"   odds ratio of {in_line(self.positive)}" if self.positive else ""
        interval = f"[{self.level:.0%} interval]"
        lines = [f"{'coefficient of':<{width}}  estimate   std.err        z        p   {interval:<19}{odds}".rstrip()]
        for row in self.rows():
            limits = f"[{row['low']:.4f}, {row['high']:.4f}]"
            odds = f"   {row[ODDS[0]]:.4g} [{row[ODDS[1]]:.4g}, {row[ODDS[2]]:.4g}]" if self.positive else ""
            lines.append(
                f"{in_line(row['name']):<{width}}  {row['coefficient']:8.4f}  {row['standard error']:8.4f}  {row['z']:7.2f}  "
                f"{row['p']:7.4f}   {limits:<19}{odds}".rstrip()
            )
        return page(lines)
