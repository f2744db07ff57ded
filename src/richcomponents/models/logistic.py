"""Logistic regression on a component."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.special import expit, logit
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.component import Calibrated, check_order
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.classes import Contrast, positive_class
from richcomponents.data.table import as_matrix, refuse_foreign
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.learning.likelihood import LikelihoodFit
from richcomponents.learning.logistic import (
    ATTENUATION,
    LogisticFit,
    attenuation,
    from_cumulants,
    match_fourth,
    newton_replicates,
    ridge_logistic,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.learning.solvers import SGDResult, Trajectory
from richcomponents.models.base import OutcomeLearner
from richcomponents.models.design import is_column, labels_in
from richcomponents.models.rca import ComponentAnalysis
from richcomponents.moments import Moments
from richcomponents.paper.gradient import LogisticLikelihood, exact_sgd, fit_polynomial, polynomial_sgd
from richcomponents.text import in_line, page

_FEW_CASES = 10  # of the rarer class, below which there is a warning
_STRONG = 2.0  # theta'Cov(S1) theta from which the shape of theta'S1 matters
_EVENTS = 5  # rows of the rarer class per coefficient, below which log-odds are seriously too large


class ComponentLogisticRegression(ClassifierMixin, OutcomeLearner):  # type: ignore[misc]
    """P(y = positive) = sigmoid(intercept + coef' S1), from samples of (U, V, y): two classes.

    y may depend on S1 only. By default a logistic regression on the residual of U on the shared part of V is corrected
    for the part of S1 that residualising removes, as far as the data support it; without support the result is that of
    residualising. Coefficients stay finite, also when the classes can be separated.

    Parameters
    ----------
    rca : ContrastiveRCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
        The component y depends on.
    approximation : {"auto", "chebyshev", "taylor"}
        "auto": regression calibration, refined by the fourth cumulant when the signal is strong. "chebyshev", "taylor":
        the sigmoid is replaced by a polynomial and the likelihood maximised from the moments of the component, as in
        Ge and Zou (their 0.5 + 0.245 z - 0.014 z^3 is "chebyshev" with degree 3). These are biased for strong signal:
        the variance of coef'S1 is kept below 1.5, since the polynomial's likelihood has no maximum, and the intercept
        between -1.85 and 1.85. With few rows per column (d = 200, n = 2 000) the noise of the fourth cumulant draws them to
        that edge: use "auto", or a larger alpha.
    degree : int
        Of the polynomial; needs cumulants of order degree + 1 (ContrastiveRCA(order=...)). Not used by "auto".
    alpha : float
        l2 penalty: mean log-loss + alpha/2 |coef|^2, scikit-learn's C = 1 / (n alpha).
    fit_intercept : bool
    solver : {"deterministic", "sgd"}
        "sgd": the paper's stochastic gradient steps, everything but A measured on a mini-batch of rows; needs a polynomial
        (in fit_clean the sigmoid itself is used). The result is the mean of the second half of the steps.
    batch_size : int
        Rows per step of "sgd"; the paper's 100.
    n_steps : int
        Steps of "sgd".
    random_state : int or None
        Order of the rows in "sgd".
    positive : label, optional
        The class whose log-odds are modelled. By default the one whose name says so (case, yes, true, disease, tumour,
        treated, ... against control, no, false, healthy, normal, untreated, ...), else the second in natural order, numbers as
        numbers (1 of 0 and 1, "10" of "9" and "10"); summary() says which.

    Attributes
    ----------
    coef_ : array (1, d), intercept_ : array (1,)
        Change of the log-odds of `positive_` per unit of S1, and the log-odds at S1 = 0.
    positive_ : the class they are of; contrast : both classes, in words.
    classes_ : array (2,), class_counts_ : array (2,) or None
        The labels sorted as scikit-learn does, and how many rows hold each. predict_proba has its columns in this order and
        decision_function is positive for classes_[1], whichever class is positive_. No counts without rows.
    trajectory_ : Trajectory or None
        steps (k,), coef (k, d) and intercept (k,) after each step of "sgd", or of gradient ascent for a polynomial.
    likelihood_fit_ : LikelihoodFit or None
        Of a polynomial, deterministic: curvatures mu and H, gradient error epsilon and the bound 8 epsilon^2 / mu^2, in the
        coordinates (intercept, (Cov + 4 alpha I)^(1/2) coef).
    residualised_ : array (d,) or None
        Logistic regression on the residual of U, for comparison; None without rows.
    trust_ : float
        How much of the correction was believed: 0 (residualising) to 1.
    coefficients_ : Estimate or None
        Standard errors by leaving out blocks, z, p and intervals (those of regression calibration), what was not trusted of
        the correction included. Where a fit is "not identified": the identified set, and intervals and p values of that.
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, S1="logistic", S2="skewed", A="good", random_state=0)
    >>> model = ComponentLogisticRegression(rca=ContrastiveRCA(views=10)).fit(data.X, data.y)
    >>> error = lambda beta: float(np.sum((beta - data.beta) ** 2))
    >>> error(model.coef_[0]) < error(model.residualised_)
    True
    """

    def __init__(
        self,
        rca: Any = None,
        component: str = "S1",
        approximation: str = "auto",
        degree: int = 3,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        solver: str = "deterministic",
        batch_size: int = 100,
        n_steps: int = 1000,
        random_state: int | None = 0,
        positive: Any = None,
    ) -> None:
        self.rca = rca
        self.component = component
        self.approximation = approximation
        self.degree = degree
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.random_state = random_state
        self.positive = positive

    # ---- doors

    def fit(self, X: object, y: object, groups: object = None) -> Self:
        """Fit the RCA to X, then the coefficients of y on its component.

        X : any table that :meth:`ContrastiveRCA.fit` takes; its rows are read into memory. y : (n,) labels of two classes, or
        the name of a column of X. groups : (n,) labels; rows of a group stay in one block.

        A state (X of :class:`Moments`) and a stream of blocks of rows give sums, not rows, and sums suffice for a polynomial
        (approximation="chebyshev" or "taylor"): y is then a column of zeros and ones, and there are no errors and no
        protection by residualising, as in fit_component.
        """
        self._check_parameters()
        if self.solver == "sgd" and self.approximation == "auto":
            raise ValueError("solver='sgd' follows a polynomial gradient: set approximation='chebyshev' or 'taylor'")
        model = self.unfitted_rca()
        if isinstance(X, (Moments, Iterator)):
            self._check_sums()
            _, outcome = model.fit_outcome(X, y if is_column(y) else self._binary(y), groups)
            self._keep_rca(model)
            return self._from_sums(outcome)
        column = y if is_column(y) else None
        X, y, groups = model.present(X, y, groups)
        target = self._binary(labels_in(X, y) if column is not None else y)
        _, outcome = model.fit_outcome(X, target, groups, column=column, every_row=True)
        self._keep_rca(model)
        target = outcome.of(target)
        self._recount(target)
        outcome, beside = model.beside(outcome, self.component) if self.approximation == "auto" else (outcome, None)
        outcome = self._named(outcome, y if column is None else column)
        self.on_v_ = outcome.on_v
        self._warn_of_others(outcome)
        nuisance = outcome.known if outcome.covariates else None
        plain = model.residual(outcome, self.component)
        columns = model.stand_in(outcome, self.component) + self._origin()
        columns = columns if beside is None else np.hstack([columns, beside])
        low = self._logistic(columns, target, nuisance)
        self.residualised_: Array | None = low.coef[: plain.shape[1]]
        found = model.calibrate(outcome, component=self.component, log_odds=low)
        self.simple_, told = found.simple, self._warn_of_size(found, target)
        theta, intercept = self._calibrate(found, plain, target, nuisance, low)
        self.trajectory_: Trajectory | None = None
        self.likelihood_fit_: LikelihoodFit | None = None
        if self.approximation != "auto":
            theta, intercept = self._from_rows(model, outcome, plain, target)
        self._set(theta, intercept)
        keep = outcome.kept
        self.coefficients_: Estimate | None = None
        if len(keep) > 1 and told:
            options: dict[str, Any] = {"fit_intercept": bool(self.fit_intercept), "nuisance": nuisance}
            replicates = newton_replicates(columns, target, low, float(self.alpha), keep, **options)

            def refit(features: Array, rows: Array) -> Array:
                beside = None if nuisance is None else nuisance[rows]
                again = self._logistic(features[rows] + self._origin(), target[rows], beside)
                return again.coef * self._lacked(again.coef, features, found)

            estimate = model.estimate_of(
                found,
                outcome,
                self.component,
                grouped=groups is not None,
                replicates=replicates,
                refit=refit,
            )
            names = self.component_.feature_names
            self.coefficients_ = replace(estimate, value=theta, names=names, positive=str(self.positive_))
        return self

    def _check_sums(self) -> None:
        """Refuse what sums over rows do not tell."""
        if self.approximation == "auto" or self.solver != "deterministic":
            raise DataError(
                "approximation='auto' and solver='sgd' need the rows, which states and streams do not keep: give a table or "
                "files, or use approximation='chebyshev', which sums suffice for"
            )

    def _from_sums(self, outcome: Outcome) -> Self:
        """From the cumulants of the component, Cov(R, y) and E[y]."""
        p, n = outcome.mean, outcome.n
        if abs(outcome.squares - n * p * (1 - p)) > 1e-6 * n or not 0 < p < 1:
            raise DataError(
                f"the outcome has mean {p:.4g} and variance {outcome.squares / n:.4g}, which zeros and ones have not: code the "
                "two classes as 0 and 1"
            )
        plain = self._need_rca().residual(outcome, self.component)
        cross = plain.T @ (outcome.weight * outcome.y) / outcome.free
        positive = round(n * p)
        if self._set_classes(np.array([0, 1]), np.array([round(n) - positive, positive])) == 0:
            cross, p = -cross, 1 - p
        options: dict[str, Any] = {"alpha": float(self.alpha), "fit_intercept": bool(self.fit_intercept)}
        theta, intercept = self._polynomial(LogisticLikelihood.of(self.component_, cross, p, **options))
        self.residualised_, self.trust_, self.coefficients_, self.on_v_ = None, 1.0, None, None
        self._set(theta, intercept)
        return self

    def fit_component(self, component: Component, cross: object, mean: float = 0.5) -> Self:
        """Fit to an extracted component, without rows, from Cov(component, y) and E[y]; classes_ are 0 and 1.

        cross : (d,), the COVARIANCE Cov(S, y) of the component with the outcome y of 0 and 1, E[S y] - E[S] E[y], as in
        ComponentRegression.fit_component. Since y is independent of V it is Cov(U, y), or better Cov(U - B V, y) with B the
        regression of U on V, which has less noise.
        mean : E[y], the share of the second class. positive=0 gives the log-odds of y = 0.

        "auto" matches the variance and fourth cumulant of coef'S, "chebyshev" and "taylor" are as in fit. No protection by
        residualising and no standard errors: those need rows.
        """
        self._check_parameters()
        if self.solver != "deterministic":
            raise ValueError("solver='sgd' needs rows: use fit(X, y), or solver='deterministic'")
        self._take_component(component)
        with_y = np.asarray(cross, dtype=np.float64)
        if with_y.shape != component.mean.shape or not np.isfinite(with_y).all():
            raise DataError(
                f"cross must hold one finite number per column of the component ({len(component.mean)}), got shape "
                f"{with_y.shape}"
            )
        if not 0 < mean < 1:
            raise DataError(f"mean is the share of the second class, strictly between 0 and 1, got {mean!r}")
        if self._set_classes(np.array([0, 1]), None) == 0:
            with_y, mean = -with_y, 1 - mean
        self.trajectory_, self.likelihood_fit_ = None, None
        options: dict[str, Any] = {"alpha": float(self.alpha), "fit_intercept": bool(self.fit_intercept)}
        if self.approximation == "auto":
            intercept, theta = from_cumulants(component, with_y, float(mean), **options)
        else:
            theta, intercept = self._polynomial(LogisticLikelihood.of(component, with_y, float(mean), **options))
        self.residualised_, self.trust_, self.coefficients_, self.on_v_ = theta, 1.0, None, None
        self._set(theta, intercept)
        return self

    def fit_clean(self, S: object, y: object, covariates: object = None) -> Self:
        """Ridge logistic regression on samples S (n, d) of the component itself, with the same penalty.

        covariates : (n, k), known further causes of y; their coefficients are neither penalised nor kept.
        """
        self._check_parameters()
        target = self._binary(y)
        values = as_matrix(S)
        check_consistent_length(values, target)
        self._take_component(Component.of_samples(S, order=2))
        centre = values.mean(axis=0) if self.fit_intercept else np.zeros(values.shape[1])
        self.trajectory_, self.likelihood_fit_ = None, None
        if self.solver == "sgd":
            if covariates is not None:
                raise ValueError("solver='sgd' takes no covariates: use solver='deterministic'")
            options: dict[str, Any] = {"fit_intercept": bool(self.fit_intercept), **self._steps()}
            path, frame = exact_sgd(values - centre, target, float(self.alpha), **options)
            theta, intercept = self._follow(path, frame, centre)
        else:
            known = None if covariates is None else as_matrix(covariates)
            if known is not None and not np.isfinite(known).all():
                raise DataError("the covariates hold missing or infinite values: drop those rows")
            found = self._logistic(values - centre, target, None if known is None else known - known.mean(axis=0))
            theta, intercept = found.coef, found.intercept
        self.residualised_, self.trust_, self.coefficients_, self.on_v_ = theta, 1.0, None, None
        self._set(theta, intercept, centre)
        return self

    # ---- fitting

    def _check_parameters(self) -> None:
        if self.approximation not in ("auto", "chebyshev", "taylor"):
            raise ValueError(f"approximation must be 'auto', 'chebyshev' or 'taylor', got {self.approximation!r}")
        if isinstance(self.degree, bool) or not isinstance(self.degree, (int, np.integer)) or self.degree < 1:
            raise ValueError(f"degree must be an integer, at least 1, got {self.degree!r}")
        if not (isinstance(self.alpha, (int, float, np.number)) and 0 <= self.alpha < np.inf):
            raise ValueError(f"alpha must be a finite number >= 0, got {self.alpha!r}")
        if self.solver not in ("deterministic", "sgd"):
            raise ValueError(f"solver must be 'deterministic' or 'sgd', got {self.solver!r}")
        for name in ("batch_size", "n_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer, at least 1, got {value!r}")

    def _binary(self, y: object) -> Array:
        """1 for the positive class, 0 for the other; both are remembered."""
        labels = _labels(y)
        check_classification_targets(labels)
        classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            raise DataError(f"y holds one class only ({classes[0]}): two classes are needed")
        if len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: y holds "
                f"{len(classes)} classes; fit one class against the rest, for example with OneVsRestClassifier"
            )
        if (count := int(counts.min())) < _FEW_CASES:
            warn_user(
                f"only {count} of {len(codes)} rows are of the class {classes[counts.argmin()]}: coefficients and their "
                f"errors mean little below about {_FEW_CASES}. Collect more of it",
                SampleSizeWarning,
            )
        return np.asarray(codes == self._set_classes(classes, counts), dtype=np.float64)

    def _set_classes(self, classes: Any, counts: Any) -> int:
        """Number of the positive class; counts : rows of each class, None without rows."""
        labels = classes.tolist()
        at, by_order = positive_class(labels, self.positive)
        order = (at, 1 - at)
        self.classes_, self.class_counts_, self.positive_ = classes, counts, labels[at]
        rows = None if counts is None else tuple(int(counts[i]) for i in order)
        self._contrast = Contrast(tuple(str(labels[i]) for i in order), rows, by_order)
        return at

    def _recount(self, target: Array) -> None:
        """The rows of each class among those that are left; target : ones for the positive one."""
        ones = int(target.sum())
        self._contrast = replace(self._contrast, counts=(ones, len(target) - ones))
        positive = self.classes_.tolist().index(self.positive_)
        self.class_counts_ = np.array([ones, len(target) - ones])[[0, 1] if positive == 0 else [1, 0]]

    def _warn_of_size(self, found: Calibrated, target: Array) -> bool:
        """Log-odds on many columns are too large; returns whether there are rows enough for honest errors."""
        events = int(min(target.sum(), len(target) - target.sum()))
        if events < _EVENTS * found.wanted:
            errors = "" if found.determined else ", and no errors are given"
            warn_user(
                f"{events} rows of the rarer class for {found.wanted} coefficients, fewer than {_EVENTS} each: log-odds come "
                f"out too large{errors}. Use fewer columns, or a larger penalty (alpha=)",
                SampleSizeWarning,
            )
        return found.determined

    def _origin(self) -> Array:
        """What centred columns are moved by: without an intercept the log-odds are zero at S = 0, not at the mean of S."""
        mean = self.component_.mean
        return np.zeros_like(mean) if self.fit_intercept else mean

    def _logistic(self, features: Array, y: Array, nuisance: Array | None) -> LogisticFit:
        return ridge_logistic(features, y, float(self.alpha), fit_intercept=bool(self.fit_intercept), nuisance=nuisance)

    def _calibrate(
        self, found: Calibrated, plain: Array, y: Array, nuisance: Array | None, low: LogisticFit
    ) -> tuple[Array, float]:
        """theta (d,) and the intercept at the mean of S1, from the correction of the logistic regression on R."""
        self.trust_ = found.trust
        if found.trust == 0 or len(low.coef) > len(found.coef):  # without a correction, and beside variates of V
            return found.coef, found.factor * low.intercept
        features, covariance = found.features, found.covariance
        again = self._logistic(features + self._origin(), y, nuisance)
        factor = self._lacked(again.coef, features, found)
        theta, intercept = factor * again.coef, factor * again.intercept
        if found.weighed and self.fit_intercept and theta @ (covariance @ theta) > _STRONG:
            cross = plain.T @ (y - y.mean()) / found.free
            a, refined = match_fourth(
                self.component_, np.asarray(covariance), cross, float(y.mean()), (intercept, theta), float(self.alpha)
            )
            if _rows_agree(features, y, again, _unsaid(refined, features, found), a, refined):
                theta, intercept = theta + found.trust * (refined - theta), intercept + found.trust * (a - intercept)
        return theta, intercept

    def _lacked(self, coef: Array, features: Array, found: Calibrated) -> float:
        """What log-odds on features (n, d) lack, for what these do not tell of the component."""
        return float(attenuation(_unsaid(coef, features, found)))

    def _from_rows(self, model: ComponentAnalysis, outcome: Outcome, plain: Array, y: Array) -> tuple[Array, float]:
        """theta (d,) and the intercept from the polynomial likelihood; R stands in for S1 in Cov(S1, y).

        Cumulants come from the state or from the rows, whichever is cheaper; for mini-batches from the rows.
        """
        order = int(self.degree) + 1
        check_order(order)
        component = (
            model.component_on_rows(outcome, self.component)
            if self.solver == "sgd"
            else model.component_for_gradients(outcome, self.component, order)
        )
        cross = plain.T @ (y - y.mean()) / outcome.free
        options: dict[str, Any] = {"alpha": float(self.alpha), "fit_intercept": bool(self.fit_intercept)}
        likelihood = LogisticLikelihood.of(component, cross, float(y.mean()), **options)
        if self.solver == "deterministic":
            return self._polynomial(likelihood)
        series: dict[str, Any] = {"approximation": self.approximation, "degree": int(self.degree)}
        path = polynomial_sgd(likelihood, plain, y, **series, **self._steps())
        return self._follow(path, likelihood, component.mean)

    def _polynomial(self, likelihood: LogisticLikelihood) -> tuple[Array, float]:
        found = fit_polynomial(likelihood, approximation=self.approximation, degree=int(self.degree))
        self.likelihood_fit_ = found
        path = SGDResult(found.theta, np.arange(len(found.trajectory)), found.trajectory)
        return self._follow(path, likelihood, self.component_.mean)

    def _steps(self) -> dict[str, Any]:
        return {
            "batch_size": int(self.batch_size),
            "n_steps": int(self.n_steps),
            "random_state": self.random_state,
        }

    def _follow(self, path: SGDResult, frame: LogisticLikelihood, centre: Array) -> tuple[Array, float]:
        """theta (d,) and the intercept at `centre`; the way there is remembered in the user's units."""
        intercepts, thetas = frame.coefficients(path.trajectory)
        moved = intercepts - thetas @ centre if self.fit_intercept else intercepts
        self.trajectory_ = Trajectory(path.steps, thetas, moved)
        intercept, theta = frame.coefficients(path.theta)
        return theta, float(intercept)

    def _set(self, theta: Array, intercept: float, centre: Array | None = None) -> None:
        self.coef_ = theta[None]
        mean = self.component_.mean if centre is None else centre
        self.intercept_ = np.array([intercept - theta @ mean if self.fit_intercept else 0.0])

    # ---- predictions

    def decision_function(self, X: object) -> Array:
        """Log-odds (n,) of classes_[1] for new (u, v): the BLUP of the component, attenuated by what it does not tell.

        (intercept + coef'BLUP) / sqrt(1 + 0.346 coef'Omega coef), Omega the error covariance of the prediction.
        """
        check_is_fitted(self)
        model = self._need_rca()
        theta = self.coef_[0]
        unknown = max(float(theta @ (model.prediction_error(self.component) @ theta)), 0.0)
        log_odds = self._log_odds(model.predict_component(X, self.component)) / np.sqrt(1 + ATTENUATION * unknown)
        return np.asarray(self._of_second(log_odds))

    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, 2) of classes_ for new (u, v)."""
        return _two_columns(self.decision_function(X))

    def predict(self, X: object) -> Array:
        """Classes (n,) for new (u, v)."""
        second = self.decision_function(X) > 0
        return np.asarray(self.classes_[second.astype(np.intp)])

    def predict_proba_clean(self, S: object) -> Array:
        """Probabilities (n, 2) of classes_ for samples S (n, d) of the component itself."""
        check_is_fitted(self)
        return _two_columns(self._of_second(self._log_odds(self._samples(S))))

    def predict_clean(self, S: object) -> Array:
        """Classes (n,) for samples S (n, d) of the component itself."""
        check_is_fitted(self)
        second = self._of_second(self._log_odds(self._samples(S))) > 0
        return np.asarray(self.classes_[second.astype(np.intp)])

    def _of_second(self, log_odds: Array) -> Array:
        """Log-odds of the positive class as those of classes_[1]."""
        return log_odds if self.positive_ == self.classes_[1] else -log_odds

    def _log_odds(self, values: Array) -> Array:
        """Of the positive class."""
        return np.asarray(self.intercept_[0] + values @ self.coef_[0])

    def title(self) -> str:
        """What was learned, in a line."""
        kind = "" if self.approximation == "auto" else f"{self.approximation} polynomial of degree {self.degree}; "
        kind += "stochastic gradient; " if self.solver == "sgd" else ""
        return (
            f"Logistic regression on {self.component_.name} ({kind}alpha = {self.alpha:g}); log-odds of "
            f"{in_line(self._contrast, 300)}; intercept {self.intercept_[0]:.4f}"
        )

    @property
    def contrast(self) -> Contrast | None:
        """The two classes in words, the positive one first, and their rows."""
        return self._contrast

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of what is or is not the case."""
        return f"change of the log-odds of {outcome} per unit"

    def unfitted(self) -> Self:
        """A clone with the class that was taken as positive."""
        return clone(self).set_params(positive=self.positive_)  # type: ignore[no-any-return]

    def _coded(self, X: object, y: object) -> Any:
        if is_column(y) and isinstance(X, (Moments, Iterator)):
            return y  # zeros and ones
        labels = labels_in(X, y) if is_column(y) else np.asarray(y)
        return np.asarray(labels == self.positive_, dtype=np.float64)

    def summary(self) -> str:
        """The coefficients, how much of the correction was believed, and how sure the RCA was."""
        check_is_fitted(self)
        lines = [self.title(), *self.notes(), str(self.estimate())]
        if self.rca_ is not None:
            lines += [f"Correction of the residualised coefficients: {self.trust_:.0%} trusted", self.rca_.summary()]
        return page(lines)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # of any table only what V does not share is used
        return tags


def _labels(y: object) -> Any:
    """One label per row, none missing."""
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    refuse_foreign(y)
    labels = column_or_1d(
        check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y"), warn=True
    )
    if labels.dtype.kind in "fc":
        missing = int(np.sum(~np.isfinite(labels)))
    elif labels.dtype.kind == "O":
        missing = sum(1 for label in labels if label is None or label != label)
    else:
        missing = 0
    if missing:
        raise DataError(f"y holds {missing} missing or infinite values (NaN): drop those rows")
    return labels


def _two_columns(log_odds: Array) -> Array:
    return np.column_stack([expit(-log_odds), expit(log_odds)])


def _unsaid(coef: Array, features: Array, found: Calibrated) -> float:
    """Variance of coef'S that the features do not tell."""
    return float(coef @ (found.covariance @ coef) - np.sum((features @ coef) ** 2) / found.free)


def _rows_agree(features: Array, y: Array, fit: LogisticFit, unsaid: float, a: float, theta: Array) -> bool:
    """Whether (a, theta), averaged over what the features (n, d) do not say of theta'S1 (its variance `unsaid`), explains the
    rows as well as the logistic regression on them did: no more than one unit of log-likelihood below it.

    The refinement knows theta'S1 by its variance and fourth cumulant only. For laws that these do not describe (skewed ones)
    it can be far off, and the rows tell.
    """
    fitted = logit(np.clip(fit.probability, 1e-15, 1 - 1e-15))
    beside = fitted - fit.intercept - features @ fit.coef  # of known covariates
    averaged = beside + (a + features @ theta) / np.sqrt(1 + ATTENUATION * max(unsaid, 0.0))
    losses = [np.sum(np.logaddexp(0.0, eta) - y * eta) for eta in (fitted, averaged)]
    return bool(losses[1] - losses[0] <= 1.0)
