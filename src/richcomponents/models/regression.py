"""Linear regression on a component."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_column, check_outcome
from richcomponents.errors import DataError
from richcomponents.learning.solvers import elastic_net, penalised, penalty_grid
from richcomponents.models.base import OutcomeLearner
from richcomponents.moments import block_numbers
from richcomponents.text import page


class ComponentRegression(RegressorMixin, OutcomeLearner):  # type: ignore[misc]
    """y = intercept + coef' S1 + noise, from samples of (U, V, y): least squares, ridge, lasso or elastic net.

    y may depend on S1 only. The residual of U on the shared part of V stands in for U (same covariance with y, far less
    variance), and the part of S1 that residualising removes is put back as far as the data support it.

    Parameters
    ----------
    alpha : float or "cv"
        Penalty, as in scikit-learn's ElasticNet; 0 is least squares. "cv": chosen by leaving out blocks.
    l1_ratio : float
        0 ridge, 1 lasso, between them elastic net.
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", or a subset of views of an RCA
        The component y depends on.

    Attributes
    ----------
    coef_ : array (d,), intercept_ : float, alpha_ : float
    coefficients_ : Estimate
        Standard errors, z, p and intervals; of least squares only. None with a penalty: it pulls the coefficients towards
        zero, and an interval around them would not cover the truth.
    residualised_ : array (d,)
        What V as covariates would give, for comparison.
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, S2="skewed", random_state=0)
    >>> model = ComponentRegression(rca=ContrastiveRCA(views=10)).fit(data.X, data.y)
    >>> error = lambda beta: float(np.sum((beta - data.beta) ** 2))
    >>> error(model.coef_) < error(model.residualised_)
    True
    """

    def __init__(self, alpha: float | str = 0.0, l1_ratio: float = 0.0, rca: Any = None, component: str = "S1") -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.rca = rca
        self.component = component

    def fit(self, X: object, y: object, groups: object = None) -> Self:
        """Fit the RCA to X, then the coefficients of y on its component.

        groups : (n,) labels; rows of a group stay in one block.
        """
        self._check_parameters()
        target = _outcome(y)
        self._fit_rca(X, groups)
        model = self._need_rca()
        self._warn_of_others(X, target)
        found = model.calibrate(X, target, self.component, penalised=self.alpha != 0)
        blocks = block_numbers(len(target), model.n_blocks, groups)
        self.alpha_ = (
            float(self.alpha) if self.alpha != "cv" else self._choose_alpha(found.features, found.outcome, blocks)
        )
        self.residualised_: Array | None = found.residualised
        self.coefficients_: Estimate | None = None
        if self.alpha_ == 0:
            self.coef_ = found.coef
            error, degrees = model.errors(found, X, groups)
            self.coefficients_ = Estimate(self.coef_, error, int(degrees), self.component_.feature_names)
        else:
            self.coef_ = penalised(found.features, found.outcome, self.alpha_, self.l1_ratio)
            if found.reduced and not found.determined:  # the other views as covariates are not determined either
                left = model.residual(X, self.component)
                self.residualised_ = penalised(left, found.outcome, self.alpha_, self.l1_ratio)
        self.intercept_ = float(target.mean() - self.coef_ @ self.component_.mean)
        return self

    def fit_component(self, component: Component, cross: object, mean: float = 0.0) -> Self:
        """Fit to an extracted component and Cov(component, y) (d,); mean : E[y]. No protection, no standard errors."""
        self._check_parameters()
        if self.alpha == "cv":
            raise ValueError("alpha='cv' needs rows: use fit(X, y), or give a number")
        self._take_component(component)
        with_y = np.asarray(cross, dtype=np.float64)
        if with_y.shape != component.mean.shape:
            raise DataError(f"cross must have one entry per column ({len(component.mean)}), got shape {with_y.shape}")
        if not (np.isfinite(with_y).all() and np.isfinite(mean)):
            raise DataError("cross and mean must be finite: the covariance with y, or its mean, is missing or infinite")
        self.alpha_ = float(self.alpha)
        self.coef_ = elastic_net(component.covariance, with_y, self.alpha_, self.l1_ratio)
        self.residualised_, self.coefficients_ = None, None
        self.intercept_ = float(mean - self.coef_ @ component.mean)
        return self

    def _check_parameters(self) -> None:
        if self.alpha != "cv" and not (isinstance(self.alpha, (int, float, np.number)) and 0 <= self.alpha < np.inf):
            raise ValueError(f"alpha must be a finite number >= 0 or 'cv', got {self.alpha!r}")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {self.l1_ratio!r}")

    def _choose_alpha(self, features: Array, y: Array, blocks: IntArray) -> float:
        """The penalty with the smallest squared error on left-out blocks, up to ten folds."""
        fold = np.asarray(blocks) % 10
        few = features if features.shape[0] < features.shape[1] else features.T  # F F' has the eigenvalues of F'F
        grid = penalty_grid(few @ few.T / len(y), features.T @ y / len(y), self.l1_ratio)
        loss = np.zeros(len(grid))
        for f in np.unique(fold):
            paths = penalised(features[fold != f], y[fold != f], grid, self.l1_ratio)
            loss += np.sum((y[fold == f] - paths @ features[fold == f].T) ** 2, axis=1)
        return float(grid[int(np.argmin(loss))])

    def predict(self, X: object) -> Array:
        """Predictions for new (u, v), through the best linear prediction of the component."""
        check_is_fitted(self)
        return self.predict_clean(self._need_rca().predict_component(X, self.component))

    def predict_clean(self, S: object) -> Array:
        """Predictions for samples of the component itself, (n, d)."""
        check_is_fitted(self)
        return np.asarray(self.intercept_ + self._samples(S) @ self.coef_)

    def title(self) -> str:
        """What was learned, in a line."""
        kind = (
            "least squares"
            if self.alpha_ == 0
            else f"elastic net, alpha = {self.alpha_:.3g}, l1_ratio = {self.l1_ratio:g}; no standard errors with a penalty"
        )
        return f"Linear regression on {self.component_.name} ({kind}); intercept {self.intercept_:.4f}"

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of y."""
        return f"change of {outcome} per unit"

    def unfitted(self) -> Self:
        """A clone with the penalty that was chosen."""
        return clone(self).set_params(alpha=self.alpha_)  # type: ignore[no-any-return]

    def summary(self) -> str:
        """The coefficients beside those of residualising, and how sure the RCA was."""
        check_is_fitted(self)
        lines = [self.title(), str(self.estimate())]
        if self.rca_ is not None and self.rca_.verdict_ == "not identified":
            lines.append(
                "Not identified: these are the coefficients with V as covariates and their sampling errors. Where S1 and the "
                "shared part cannot be told apart, those on S1 may be larger."
            )
        elif self.residualised_ is not None:
            lines.append("residualised: with V as covariates")
        return page(lines + ([] if self.rca_ is None else [self.rca_.summary()]))

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
    return check_outcome(target, len(target))
