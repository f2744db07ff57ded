"""Linear regression on a component."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.design import is_column
from richcomponents.data.table import as_column
from richcomponents.errors import DataError
from richcomponents.learning.outcome import Outcome
from richcomponents.learning.solvers import elastic_net, penalised, penalty_grid
from richcomponents.models.base import OutcomeLearner
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.estimator import present, used_rows
from richcomponents.models.rca import fit_rca


@dataclass(eq=False, repr=False)
class ComponentRegression(RegressorMixin, OutcomeLearner):  # type: ignore[misc]
    """y = intercept + coef' S1 + noise, from samples of (U, V, y): least squares, ridge, lasso or elastic net.

    y may depend on S1 only. The residual of U on the shared part of V stands in for U (same covariance with y, far less
    variance), and the part of S1 that residualising removes is put back as far as the data support it.

    With ``shared=True`` y may depend on S2, too: y = intercept + coef' S1 + shared_coef' S2 + noise. V sees nothing but S2, so
    shared_coef is known from covariances alone; coef starts from least squares on U and V, and is corrected for what
    V cannot tell of S2 as far as the data support it.

    Parameters
    ----------
    alpha : float or "cv"
        Penalty, as in scikit-learn's ElasticNet, with y and every column, of what stands in for S1, in units of their standard
        deviations; 0 is least squares. "cv": chosen by leaving out blocks.
    l1_ratio : float
        0 ridge, 1 lasso, between them elastic net.
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
        The component y depends on.
    shared : bool
        Whether y depends on S2 as well: S1 of a ContrastiveRCA (method="efficient") and least squares only. Not where U was
        searched in its principal components.

    Attributes
    ----------
    coef_ : array (d,)
    intercept_, alpha_ : float
    coefficients_ : Estimate
        Standard errors, z, p and intervals; of least squares only. None with a penalty: it pulls the coefficients towards
        zero, and an interval around them would not cover the truth. Errors are those of the coefficients reported, what was
        not trusted of the correction included. Where a fit is "not identified" there are none, but an identified set
        (docs/contrastive.md has its two bounds), whose intervals cover the coefficients on S1. With shared=True and a fit that
        is "not identified" the errors are nan: coefficients on S1 and S2 are then mixed.
    residualised_ : array (d,)
        What the simple method would give, for comparison: V as covariates (of many views: those where the component does not
        live). Of a component that lives in several views, the others as instruments: `simple_` says which.
    shared_coef_, shared_coefficients_ : array (d,), Estimate
        With shared=True: coefficients on S2, in U's columns; where S2 has no part, zero. Else None.
    variance_split_ : Estimate
        With shared=True: the shares of y's variance (of what covariates leave of it) that come from S1, that come from S2, and
        that neither explains. Where the data do not tell S1 from S2 its limits are those of the identified set. Else None.
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, S2="skewed", random_state=1)
    >>> model = ComponentRegression(rca=ContrastiveRCA(views=10)).fit(data.X, data.y)
    >>> error = lambda beta: float(np.sum((beta - data.beta) ** 2))
    >>> error(model.coef_) < error(model.residualised_)
    True

    An outcome that goes with both parts:

    >>> both = data.y + data.S2[:, 0]
    >>> model = ComponentRegression(rca=ContrastiveRCA(views=10), shared=True).fit(data.X, both)
    >>> error(model.coef_) < error(model.residualised_), bool(abs(model.shared_coef_[0] - 1) < 0.3)
    (True, True)
    >>> model.variance_split_.names
    ('own part (S1)', 'shared part (S2)', 'unexplained')
    """

    alpha: float | str = 0.0
    l1_ratio: float = 0.0
    rca: Any = None
    component: str = "S1"
    shared: bool = False

    def fit(self, X: object, y: object, groups: object = None) -> Self:
        """Fit the RCA to X, then the coefficients of y on its component.

        X : any table that :meth:`ContrastiveRCA.fit` takes (in memory, files, a stream, dask), or a state; y : (n,) in
        memory, or the name (the number, without names) of a column of X. groups : (n,) labels; rows of a group stay in one
        block.
        """
        self._check_parameters()
        model = self.unfitted_rca()
        X, y, groups, _ = present(model, X, y, groups)
        _, outcome, _ = fit_rca(model, X, y if is_column(y) else _outcome(y), groups, component=self.component)
        self._keep_rca(model)
        return self._learn(outcome, y, grouped=groups is not None)

    def partial_fit(self, X: object, y: object) -> Self:
        """Add a block of rows, and of y (values, or a column of X), to those seen so far, and refit from their moments."""
        self._check_parameters()
        return self._learn(self._add_block(X, y if is_column(y) else _outcome(y))[1], y)

    def _nothing_shared(self) -> None:
        """What y has to do with S2 and with hidden classes, before anything is known of it."""
        self.shared_coef_: Array | None = None
        self.shared_coefficients_: Estimate | None = None
        self.variance_split_: Estimate | None = None
        self.coefficients_: Estimate | None = None
        self._along_classes: Array | None = None
        self._through_shared: Array | None = None

    def _learn(self, measured: Outcome, y: object, *, grouped: bool = False) -> Self:
        """y : as it was given, for its name."""
        model, names = self._need_rca(), self.component_.feature_names
        self._nothing_shared()
        measured = self._named(model.fitted_.beside(measured, self.component, stated=self.shared)[0], y)
        self.on_v_ = measured.on_v
        if model.fitted_.classes is not None and measured.coef is not None:  # on all classes but the first
            self._along_classes = measured.coef[len(model.fitted_.design.known) :]
        both = "; if y goes with V through the shared part only, say so (shared=True)"
        self._warn_of_others(measured, both if self._may_share() else "")
        found = model.fitted_.calibrate(measured, self.component, penalised=self.alpha != 0)
        outcome = replace(measured, y=found.outcome)
        self.alpha_ = float(self.alpha) if self.alpha != "cv" else self._choose_alpha(found.features, outcome)
        self.residualised_: Array | None = found.residualised
        self.simple_, self.coef_ = found.simple, found.coef
        self._through_shared = found.shared
        if self.alpha_ == 0:
            self.coefficients_ = replace(found.estimate(measured, grouped=grouped), names=names)
        else:
            self.coef_ = penalised(found.features, outcome.y, self.alpha_, self.l1_ratio, outcome.weight)
            if found.reduced and not found.determined:  # the other views as covariates are not determined either
                left = model.fitted_.residual(outcome, self.component)
                self.residualised_ = penalised(left, outcome.y, self.alpha_, self.l1_ratio, outcome.weight)
        self.intercept_ = float(outcome.mean - self.coef_ @ self.component_.mean)
        if self.shared and found.parts is not None:
            shared, self.variance_split_ = found.parts(measured)
            self.shared_coef_, self.shared_coefficients_ = shared.value, replace(shared, names=names)
            self.intercept_ -= float(shared.value @ model.fitted_.components["S2"].mean)
        return self

    def fit_component(
        self, component: Component, cross: object, mean: float = 0.0, variance: float | None = None
    ) -> Self:
        """Fit to an extracted component and Cov(component, y) (d,); mean, variance : of y, whose unit a lasso needs (by default
        that of what the component explains). No protection, no standard errors."""
        self._check_parameters()
        if self.shared:
            raise ValueError("shared=True needs the rows of both views: use fit(X, y)")
        if self.alpha == "cv":
            raise ValueError("alpha='cv' needs rows: use fit(X, y), or give a number")
        with_y = self._checked_cross(component, cross)
        if not np.isfinite(mean):
            raise DataError("mean must be finite: the mean of y is missing or infinite")
        self.alpha_ = float(self.alpha)
        self.coef_ = elastic_net(component.covariance, with_y, self.alpha_, self.l1_ratio, variance)
        self._nothing_shared()
        self.residualised_, self.on_v_ = None, None
        self.intercept_ = float(mean - self.coef_ @ component.mean)
        return self

    def _check_parameters(self) -> None:
        if self.alpha != "cv" and not (isinstance(self.alpha, (int, float, np.number)) and 0 <= self.alpha < np.inf):
            raise ValueError(f"alpha must be a finite number >= 0 or 'cv', got {self.alpha!r}")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {self.l1_ratio!r}")
        if not isinstance(self.shared, (bool, np.bool_)):
            raise ValueError(f"shared must be True or False, got {self.shared!r}")
        if self.shared and self.alpha != 0:
            raise ValueError(
                f"shared=True is least squares: penalties are not supported with it, got alpha={self.alpha!r}. Use alpha=0"
            )
        if self.shared and self.rca is not None and not self._may_share():
            method = getattr(self.rca, "method", "efficient")
            raise ValueError(
                "shared=True is for an outcome that depends on S1 and S2 of two views: give "
                f'rca=ContrastiveRCA(method="efficient") and component="S1", got {type(self.rca).__name__}'
                f"{'' if method == 'efficient' else f'(method={method!r})'} and component={self.component!r}"
            )

    def _may_share(self) -> bool:
        """Whether shared=True is possible."""
        return isinstance(self.rca, ContrastiveRCA) and self.rca.method == "efficient" and self.component == "S1"

    def _choose_alpha(self, features: Array, outcome: Outcome) -> float:
        """The penalty with the smallest squared error on left-out blocks, up to ten folds."""
        fold, y, weight = outcome.block % 10, outcome.y, outcome.weight
        grid = penalty_grid(features, y, self.l1_ratio, weight)
        loss = np.zeros(len(grid))
        for f in np.unique(fold):
            kept, left = fold != f, fold == f
            paths = penalised(features[kept], y[kept], grid, self.l1_ratio, weight[kept])
            loss += (y[left] - paths @ features[left].T) ** 2 @ weight[left]
        return float(grid[int(np.argmin(loss))])

    def predict(self, X: object) -> Array:
        """Predictions for new (u, v), through the best linear prediction of the component, and of S2 where y goes with it."""
        model = self._need_rca()
        fitted, rows = model.fitted_, used_rows(model, X).array()
        own = fitted.predict(rows, self.component)
        if self.shared_coef_ is not None:
            return self.predict_clean(own, fitted.predict(rows, "S2"))
        total = self.predict_clean(own)
        # not asked for, but y goes with S2, or differs between hidden classes, and a prediction must not leave that out
        if self._through_shared is not None:
            total = total + fitted.through_shared(rows, self._through_shared, self.component)
        if self._along_classes is not None:
            total = total + fitted.beside_views(rows)[1] @ self._along_classes
        return total

    def predict_clean(self, S: object, shared: object = None) -> Array:
        """Predictions for samples of the component itself, (n, d); shared : samples of S2 (n, d), with shared=True."""
        own = self.intercept_ + self._samples(S) @ self.coef_
        if self.shared_coef_ is None and shared is not None:
            raise ValueError("samples of S2 have no coefficients: fit with shared=True")
        if self.shared_coef_ is None:
            return np.asarray(own)
        if shared is None:
            raise ValueError("y depends on S1 and on S2 (shared=True): give samples of both")
        both = self._samples(shared)
        if len(both) != len(own):
            raise DataError(f"samples of S1 and S2 must be those of the same rows, got {len(own)} and {len(both)}")
        return np.asarray(own + both @ self.shared_coef_)

    def title(self) -> str:
        """What was learned, in a line."""
        kind = (
            f"elastic net, alpha = {self.alpha_:.3g}, l1_ratio = {self.l1_ratio:g}; no standard errors with a penalty"
        )
        parts = self.component_.name if self.shared_coef_ is None else f"{self.component_.name} and S2"
        of = "least squares" if self.alpha_ == 0 else kind
        return f"Linear regression on {parts} ({of}); intercept {self.intercept_:.4f}"

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of y."""
        return f"change of {outcome} per unit"

    def unfitted(self) -> Self:
        """A clone with the penalty that was chosen."""
        return self._clone(alpha=self.alpha_)

    def _lines(self) -> list[str]:
        lines = super()._lines()
        if self.shared_coefficients_ is not None and self.variance_split_ is not None:
            lines.append("residualised: with U and V as regressors")
            lines += ["", "On S2, the part shared with V:", str(self.shared_coefficients_), "", self._split_in_words()]
        elif self.residualised_ is not None and self.rca_ is not None and not self.notes():
            others, words = self.rca_.fitted_.others(self.component), "residualised:"
            if self.simple_ == "instrumental":
                words = "instrumental: on what the component's other views predict of it" + ("," if others else "")
            lines.append(f"{words} adjusted for {others}" if others else words)
        return lines

    def _split_in_words(self) -> str:
        """Where the variance of y comes from."""
        split = self.variance_split_
        assert split is not None
        own, shared, left = (
            f"{value:.0%} [{max(low, 0.0):.0%}, {min(high, 1.0):.0%}]"
            for value, low, high in zip(split.value, split.low, split.high, strict=True)
        )
        says = f"Of the variance of {'what the covariates leave of y' if self.rca_.covariates else 'y'}, {own} comes from S1"
        if self.rca_.rank_ == 0:
            return f"The views share nothing, so there is no S2. {says}."
        return f"{says} and {shared} from S2; {left} is not explained by either ({split.level:.0%} intervals)."

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of any table only what V does not share is used
        return tags


def _outcome(y: object) -> Array:
    """One finite number per row."""
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    target = as_column(y)
    column_or_1d(y, warn=True)  # a column of a table is taken, and scikit-learn's users are used to being told
    return target
