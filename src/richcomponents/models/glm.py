"""Generalised linear models on a component: one mechanism for every family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.metrics import accuracy_score, d2_tweedie_score
from sklearn.utils import ClassifierTags, RegressorTags, check_array, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.cells import declared_order, in_declared_order
from richcomponents.data.classes import Contrast, Levels, positive_class
from richcomponents.data.design import is_column, labels_in
from richcomponents.data.table import as_matrix, refuse_foreign, refuse_gaps
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.learning.coefficients import Coefficients, Refit
from richcomponents.learning.glm import (
    FAMILIES,
    Family,
    GLMFit,
    Multinomial,
    NegativeBinomial,
    Poisson,
    error_of_shape,
    ridge_glm,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.models.base import OutcomeLearner
from richcomponents.models.estimator import present, used_rows
from richcomponents.models.rca import ComponentAnalysis, fit_rca
from richcomponents.moments import Moments
from richcomponents.text import in_line

_FEW_CASES = 10  # of the rarest class, or rows with a count above zero, below which there is a warning
_EVENTS = 5  # rows of the rarest class (counts in all) per coefficient, below which these are seriously too large


def _has_classes(model: Any) -> bool:
    if not FAMILIES[model.family].of_classes:
        raise AttributeError(f"family={model.family!r} counts: predict gives expected counts")
    return True


@dataclass(eq=False, repr=False)
class ComponentGLM(OutcomeLearner):
    """A generalised linear model of y on S1, eta = intercept + coef' S1, from samples of (U, V, y): classes or counts.

    y may depend on S1 only. The model is fitted on the residual of U on the shared part of V and corrected for the part of S1
    that residualising removes, as far as the data support it; without support the result is that of residualising. Coefficients
    stay finite, also when classes can be separated.

    Parameters
    ----------
    family : {"poisson", "negative binomial", "logistic", "probit", "multinomial"}
        "poisson", "negative binomial": counts, log E[y] = eta; the second has the variance mu + dispersion mu^2. "logistic",
        "probit": two classes. "multinomial": three or more, log-odds of each against the reference.
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
        The component y depends on.
    alpha : float
        l2 penalty: mean of -log P(y) + alpha/2 |coef|^2, with every column in units of its standard deviation, of what stands
        in for S1: no other unit matters.
    fit_intercept : bool
    reference : label, optional
        The class that others are compared with. By default the one whose name says so (control, no, healthy, ...), else the
        first in natural order.

    Attributes
    ----------
    coef_ : array (d,) for counts, (1, d) for two classes, (k - 1, d) for k
        Change of eta per unit of S1: log of the mean count, log-odds (probit) of `positive_`, or log-odds of each class but the
        reference, in the order of `levels_`.
    intercept_ : float, array (1,) or (k - 1,)
    family_ : the family as fitted
    dispersion_ : float or None
        That of a negative binomial given S1 (what the residual does not tell of S1 makes counts vary, too, and is taken out).
    classes_, class_counts_, positive_ : as in ComponentLogisticRegression
    levels_ : tuple of labels, the reference first
    residualised_ : array like coef_ (d,) or (k - 1, d), or None
        The same model on the residual of U, for comparison; None without rows.
    trust_ : float, or array (k - 1,)
        How much of the correction was believed: 0 (residualising) to 1.
    coefficients_ : Estimate or None
        Standard errors by leaving out blocks, z, p and intervals, what was not trusted of the correction included; of several
        classes one class after the other. Where a fit is "not identified": the identified set, its intervals and p values.
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, S2="skewed", A="good", random_state=0)
    >>> counts = np.random.default_rng(0).poisson(np.exp(data.S1 @ data.beta))
    >>> model = ComponentGLM("poisson", rca=ContrastiveRCA(views=10)).fit(data.X, counts)
    >>> error = lambda beta: float(np.sum((beta - data.beta) ** 2))
    >>> error(model.coef_) < error(model.residualised_)
    True
    """

    family: str = "poisson"
    rca: Any = None
    component: str = "S1"
    alpha: float = 1e-3
    fit_intercept: bool = True
    reference: Any = None

    # ---- doors

    def fit(self, X: object, y: object, groups: object = None) -> Self:
        """Fit the RCA to X, then the coefficients of y on its component.

        X : any table that :meth:`ContrastiveRCA.fit` takes; its rows are read into memory. y : (n,) labels or counts, or the
        name of a column of X. groups : (n,) labels; rows of a group stay in one block.
        """
        self._check_parameters()
        model = self.unfitted_rca()
        if isinstance(X, (Moments, Iterator)):
            return self._fit_sums(model, X, y, groups)
        column = y if is_column(y) else None
        X, y, groups, _ = present(model, X, y, groups)
        target = self._outcome_codes(labels_in(X, y) if column is not None else y)
        numbers = self._numbers(target)[0]
        _, outcome, _ = fit_rca(model, X, numbers, groups, component=self.component, column=column, every_row=True)
        self._keep_rca(model)
        target = outcome.of(target)
        self._count(target)
        return self._learn(model, outcome, target, y if column is None else column, grouped=groups is not None)

    def _fit_sums(self, model: ComponentAnalysis, X: Any, y: object, groups: object) -> Self:
        """From sums over rows."""
        raise DataError(
            "states and streams keep sums, and these models need the rows: give a table or files, or use "
            "ComponentRegression, which sums suffice for"
        )

    def _learn(self, model: ComponentAnalysis, first: Outcome, target: Array, y: object, *, grouped: bool) -> Self:
        """y : as it was given, for its name."""
        fitted, nuisance = model.fitted_, first.known if first.covariates else None
        every = [first, *(first.replaced(numbers) for numbers in self._numbers(target)[1:])]
        pairs = [fitted.beside(one, self.component) for one in every]
        outcomes = [self._named(one, y) for one, _ in pairs]
        on_v = [(0 if v is None else 2 * bool(v.fails) + bool(v.goes_with)) for v in (one.on_v for one in outcomes)]
        most = outcomes[int(np.argmax(on_v))]  # what is against the model, or goes with V through the shared part
        self.on_v_ = most.on_v
        self._warn_of_others(most)
        rows = [fitted.stand_in(outcome, self.component) + self._origin() for outcome in outcomes]
        columns = [one if more is None else np.hstack([one, more]) for one, (_, more) in zip(rows, pairs, strict=True)]
        width, d = max(one.shape[1] for one in columns), rows[0].shape[1]
        columns = [np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in columns]
        low = self._glm(columns, target, nuisance)
        self.residualised_ = self._shaped(low.coefs[:, :d], flat=True)
        odds = zip(outcomes, low.predictors(first.kept), strict=True)
        outcomes = [replace(outcome, log_odds=one) for outcome, one in odds]
        found = [fitted.calibrate(outcome, self.component) for outcome in outcomes]
        trusts = np.array([one.trust for one in found], dtype=np.float64)
        self.simple_ = found[0].simple
        self._through_shared: Any = [one.shared for one in found]  # of S2, as far as y goes with it
        self.trust_: Any = trusts if self.family == "multinomial" else float(trusts[0])
        theta, intercepts = self._corrected(found, columns, low, target, nuisance)
        self._set(theta, intercepts)
        self.coefficients_ = None
        if self._warn_of_size(found[0], target) and len(first.kept) > 1:
            estimates = [
                one.estimate(outcome, grouped=grouped, refit=self._refitting(one, j, target, nuisance))
                for j, (one, outcome) in enumerate(zip(found, outcomes, strict=True))
            ]
            shape = np.zeros_like(theta)  # the error of taking S1 for Gaussian
            if isinstance(self.family_, Poisson) and trusts[0] and self.fit_intercept:
                tilt = fitted.residual(outcomes[0], self.component).T @ (target - target.mean()) / target.sum()
                shape[0] = trusts[0] * error_of_shape(self.component_, tilt, theta[0])
            self.coefficients_ = self._together(estimates, theta, shape)
        return self

    def _corrected(
        self, found: Sequence[Coefficients], columns: Sequence[Array], low: GLMFit, y: Array, nuisance: Array | None
    ) -> tuple[Array, Array]:
        """theta (m, d) and the intercepts (m,) at the mean of S1, from the fit on R (columns, low): all predictors together are
        fitted again, to what the answers predict of S1: a rescaled penalty would blow up the error of classes
        that can nearly be separated. Beside variates of V coefficients are corrected as they are."""
        d = found[0].features.shape[1]
        again = [one.trust > 0 and not rows[:, d:].any() for one, rows in zip(found, columns, strict=True)]
        features = [
            np.hstack([one.features + self._origin(), rows[:, d:]]) if anew else rows
            for one, rows, anew in zip(found, columns, again, strict=True)
        ]
        fit = self._glm(features, y, nuisance) if any(again) else low
        theta, intercepts = fit.coefs[:, :d].copy(), fit.intercepts
        for j, (one, anew) in enumerate(zip(found, again, strict=True)):
            if one.trust > 0:
                factor = float(fit.family.attenuation(unsaid(one, theta[j]))) if anew else one.factor
                theta[j] = factor * theta[j] if anew else one.coef
                intercepts[j] = fit.family.intercept(float(intercepts[j]), factor, unsaid(one, theta[j]))
        self._keep_family(fit.family, unsaid(found[0], theta[0]))
        return theta, intercepts

    def _refitting(self, found: Coefficients, j: int, target: Array, nuisance: Array | None) -> Refit:
        """How predictor j is fitted on other features of some rows."""

        def refit(features: Array, rows: Array) -> Array:
            every = [features[rows] + self._origin()] * self._unfitted_family().predictors
            again = self._glm(every, target[rows], None if nuisance is None else nuisance[rows])
            return np.asarray(again.coefs[j] * again.family.attenuation(unsaid(found, again.coefs[j], features)))

        return refit

    def _together(self, estimates: Sequence[Estimate], theta: Array, shape: Array) -> Estimate:
        """Of all predictors, one after the other; shape (m, d) : what else their errors hold."""

        def pairs(what: str) -> Any:
            ends = [getattr(one, what) for one in estimates]
            return None if any(end is None for end in ends) else tuple(map(np.concatenate, zip(*ends, strict=True)))

        errors = np.hypot(np.concatenate([one.standard_error for one in estimates]), shape.ravel())
        found = replace(estimates[0], value=theta.ravel(), standard_error=errors, names=self._names(None))
        ends, their_errors = pairs("identified"), pairs("identified_error")
        return replace(found, positive=self._positive(), identified=ends, identified_error=their_errors)

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Of the coefficients: columns, of several classes each with its class."""
        columns = super()._names(names)
        if self.family != "multinomial":
            return columns
        return tuple(f"{level}: {column}" for level in self.levels_[1:] for column in columns)

    def fit_clean(self, S: object, y: object, covariates: object = None) -> Self:
        """The same model on samples S (n, d) of the component itself, with the same penalty.

        covariates : (n, k), known further causes of y; their coefficients are neither penalised nor kept.
        """
        self._check_parameters()
        target = self._outcome_codes(y)
        values = as_matrix(S)
        check_consistent_length(values, target)
        self._count(target)
        self._take_component(Component.of_samples(S, order=2))
        centre = values.mean(axis=0) if self.fit_intercept else np.zeros(values.shape[1])
        known = None if covariates is None else as_matrix(covariates)
        if known is not None and not np.isfinite(known).all():
            raise DataError("the covariates hold missing or infinite values: drop those rows")
        nuisance = None if known is None else known - known.mean(axis=0)
        found = self._glm([values - centre] * self._unfitted_family().predictors, target, nuisance)
        self._keep_family(found.family, 0.0)
        theta = found.coefs
        self.residualised_, self.coefficients_, self.on_v_ = self._shaped(theta, flat=True), None, None
        self.trust_ = 1.0
        self._set(theta, found.intercepts, centre)
        return self

    # ---- what y is

    def _check_parameters(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(map(repr, FAMILIES))}, got {self.family!r}")
        if not (isinstance(self.alpha, (int, float, np.number)) and 0 <= self.alpha < np.inf):
            raise ValueError(f"alpha must be a finite number >= 0, got {self.alpha!r}")
        if self.reference is not None and not FAMILIES[self.family].of_classes:
            raise ValueError(f"reference= names a class, and family={self.family!r} counts: leave it out")

    @property
    def _of_classes(self) -> bool:
        return FAMILIES[self.family].of_classes

    def _unfitted_family(self) -> Family:
        if self.family == "multinomial":
            return Multinomial(len(self.classes_))
        return FAMILIES[self.family]()

    def _outcome_codes(self, y: object) -> Array:
        """Counts, or numbers of classes in the order of `levels_`: (n,)."""
        if not self._of_classes:
            return _counts(y)
        labels = _labels(y)
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise DataError(f"{error} A measurement is an outcome of ComponentRegression") from error
        classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            raise DataError(f"y holds one class only ({classes[0]}): two classes are needed")
        if self.family != "multinomial" and len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: y holds "
                f"{len(classes)} classes; use ComponentGLM('multinomial'), or fit one class against the rest, for example "
                "with OneVsRestClassifier"
            )
        if (count := int(counts.min())) < _FEW_CASES:
            _warn_of_few(f"{count} of {len(codes)} rows are of the class {classes[counts.argmin()]}", "of it")
        order = self._set_classes(classes, labels, declared_order(y))
        return np.asarray(np.argsort(order)[codes], dtype=np.float64)

    def _wanted(self, labels: list[Any]) -> Any:
        """The class of two that the user wants as positive, None where nothing is said."""
        if self.reference is None:
            return None
        return labels[1 - positive_class(labels, self.reference)[0]]

    def _set_classes(self, classes: Any, rows: Any = None, declared: tuple[str, ...] | None = None) -> list[int]:
        """Numbers of the classes, the reference first; rows : the label of each; declared : their order, of more than two."""
        labels = classes.tolist()
        self.classes_ = classes
        self.class_counts_: Any = None
        self._contrast: Contrast | None = None
        if len(labels) > 2:
            texts = in_declared_order(np.array(list(map(str, rows.tolist()))), declared)
            levels = Levels.of(texts, "y", "the outcome", self.reference)
            order = [list(map(str, labels)).index(level) for level in levels.labels]
        else:
            at, by_order = positive_class(labels, self._wanted(labels))
            order = [1 - at, at]
            self.positive_ = labels[at]
            self._contrast = Contrast(tuple(str(labels[i]) for i in (at, 1 - at)), None, by_order)
        self.levels_ = tuple(labels[i] for i in order)
        return order

    def _count(self, target: Any, weight: Array | None = None) -> None:
        """The rows of each class; target (n,) : numbers of levels; weight (n,) : how many rows each stands for."""
        if self._of_classes:
            of_levels = np.bincount(target.astype(np.int64), weight, len(self.levels_)).round().astype(np.int64)
            self.class_counts_ = of_levels[[self.levels_.index(label) for label in self.classes_.tolist()]]
            if self._contrast is not None:  # the positive class comes first there
                self._contrast = replace(self._contrast, counts=tuple(of_levels[::-1].tolist()))

    def _numbers(self, target: Array) -> list[Array]:
        """What tests of the outcome on V read, for each predictor: counts, zeros and ones, or a class less the reference."""
        if self.family != "multinomial":
            return [target]
        return [(target == j).astype(np.float64) - (target == 0) for j in range(1, len(self.classes_))]

    def _warn_of_size(self, found: Coefficients, target: Array) -> bool:
        """Coefficients on many columns are too large; returns whether there are rows enough for honest errors."""
        events, what, size = int(target.sum()), "counts in all", "coefficients"
        if self._of_classes:
            events, what, size = (
                int(np.unique(target, return_counts=True)[1].min()),
                "rows of the rarer class",
                "log-odds",
            )
        if events < _EVENTS * found.wanted:
            errors = "" if found.determined else ", and no errors are given"
            warn_user(
                f"{events} {what} for {found.wanted} coefficients, fewer than {_EVENTS} each: {size} come "
                f"out too large{errors}. Use fewer columns, or a larger penalty (alpha=)",
                SampleSizeWarning,
            )
        return found.determined

    # ---- fitting

    def _origin(self) -> Array:
        """What centred columns are moved by: without an intercept eta is zero at S = 0, not at the mean of S."""
        mean = self.component_.mean
        return np.zeros_like(mean) if self.fit_intercept else mean

    def _glm(self, features: Sequence[Array], y: Array, nuisance: Array | None) -> GLMFit:
        options: dict[str, Any] = {"fit_intercept": bool(self.fit_intercept), "nuisance": nuisance}
        return ridge_glm(features, y, self._unfitted_family(), float(self.alpha), **options)

    def _keep_family(self, family: Family, remainder: float) -> None:
        """The family as fitted; remainder : the variance of eta that the columns did not tell, which made counts vary by
        exp(q) - 1 more."""
        self.family_, self.dispersion_ = family, None
        if isinstance(family, NegativeBinomial):
            more = float(np.expm1(max(remainder, 0.0)))
            self.dispersion_ = max(family.dispersion - more, 0.0) / (1 + more)

    def _shaped(self, rows: Array, flat: bool = False) -> Array:
        """(m, ...) as the user meets it; flat : of one predictor, without the first axis."""
        return rows[0] if not self._of_classes or (flat and len(rows) == 1) else rows

    def _set(self, theta: Array, intercepts: Array, centre: Array | None = None) -> None:
        mean = self.component_.mean if centre is None else centre
        moved = intercepts - theta @ mean if self.fit_intercept else np.zeros(len(theta))
        self.coef_ = self._shaped(theta)
        self.intercept_: Any = moved if self._of_classes else float(moved[0])

    # ---- predictions

    def _predictors(self, values: Array) -> Array:
        """eta (n, m) of samples of the component."""
        return np.asarray(np.atleast_1d(self.intercept_) + values @ np.atleast_2d(self.coef_).T)

    def _expected(self, X: object) -> Array:
        """eta (n, m) for new (u, v): at the BLUP of the component, and of S2 where y goes with it, averaged over what these do
        not tell; what one has too much of the view, the other lacks."""
        model, theta = self._need_rca(), np.atleast_2d(self.coef_)
        fitted, rows = model.fitted_, used_rows(model, X).array()
        error = fitted.solution.predict(fitted.key(self.component), np.zeros((0, len(fitted.design.columns))))[1]
        eta = self._predictors(fitted.predict(rows, self.component))
        for j, shared in enumerate(self._through_shared or ()):
            if shared is not None:
                eta[:, j] += fitted.through_shared(rows, shared, self.component)
                theta = theta - shared * (np.arange(len(theta)) == j)[:, None]
        unknown = np.array([max(float(row @ (error @ row)), 0.0) for row in theta])
        return self.family_.averaged(eta, unknown)

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Array:
        """For new (u, v): of two classes eta (n,) of classes_[1]; of more, (n, k) in the order of classes_.

        eta at the BLUP of the component, attenuated by the error of that prediction.
        """
        eta = self._expected(X)
        if eta.shape[1] == 1:
            return np.asarray(eta[:, 0] if self.positive_ == self.classes_[1] else -eta[:, 0])
        return self._in_order(np.column_stack([np.zeros(len(eta)), eta]))

    def _in_order(self, columns: Array) -> Array:
        """Columns of levels_ in the order of classes_."""
        order = [self.classes_.tolist().index(level) for level in self.levels_]
        out = np.empty_like(columns)
        out[:, order] = columns
        return out

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, k) of classes_ for new (u, v)."""
        return self._in_order(self.family_.mean(self._expected(X)))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba_clean(self, S: object) -> Array:
        """Probabilities (n, k) of classes_ for samples S (n, d) of the component itself."""
        return self._in_order(self.family_.mean(self._predictors(self._samples(S))))

    def _predicted(self, eta: Array) -> Array:
        mean = self.family_.mean(eta)
        return np.asarray(self.classes_[self._in_order(mean).argmax(axis=1)]) if self._of_classes else mean

    def predict(self, X: object) -> Array:
        """Classes, or expected counts, (n,) for new (u, v)."""
        return self._predicted(self._expected(X))

    def predict_clean(self, S: object) -> Array:
        """Classes, or expected counts, (n,) for samples S (n, d) of the component itself."""
        return self._predicted(self._predictors(self._samples(S)))

    def score(self, X: object, y: object) -> float:
        """Accuracy for classes; for counts the share of the (Poisson) deviance that is explained."""
        if self._of_classes:
            return float(accuracy_score(_labels(y), self.predict(X)))
        return float(d2_tweedie_score(_counts(y), self.predict(X), power=1))

    # ---- words

    def title(self) -> str:
        """What was learned, in a line."""
        more = "" if self.dispersion_ is None else f", dispersion {self.dispersion_:.3g}"
        kind = f"{self.family.capitalize()} regression on {self.component_.name} (alpha = {self.alpha:g}{more})"
        intercept = ", ".join(f"{a:.4f}" for a in np.atleast_1d(self.intercept_))
        return "; ".join(filter(None, [kind, self._contrast_words(), f"intercept {intercept}"]))

    def _contrast_words(self) -> str:
        if not self._of_classes:
            return ""
        if self._contrast is not None:
            return f"{FAMILIES[self.family].unit} of {in_line(self._contrast, 300)}"
        first, *others = (in_line(str(level)) for level in self.levels_)
        return f"log-odds of {', '.join(others)} against {first}"

    @property
    def contrast(self) -> Contrast | None:
        """Two classes in words, the positive one first, and their rows; None of counts and of more classes."""
        return getattr(self, "_contrast", None)

    def _positive(self) -> str:
        return super()._positive() if self.family == "logistic" else ""

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of what is or is not the case, or is counted."""
        several = f"each class of {outcome} against {getattr(self, 'levels_', ('the reference',))[0]}"
        of = several if self.family == "multinomial" else outcome
        return f"change of the {FAMILIES[self.family].unit} of {of} per unit"

    def unfitted(self) -> Self:
        """A clone with the class that was taken as reference."""
        return self._clone(reference=self.levels_[0]) if self._of_classes else self._clone()

    def _coded(self, X: object, y: object) -> Any:
        if not self._of_classes or (is_column(y) and isinstance(X, (Moments, Iterator))):
            return y
        labels = labels_in(X, y) if is_column(y) else np.asarray(y)
        if len(self.classes_) == 2:
            return np.asarray(labels == self.positive_, dtype=np.float64)
        return np.asarray(labels != self.levels_[0], dtype=np.float64)

    def _lines(self) -> list[str]:
        if self.rca_ is None:
            return super()._lines()
        trusted = " / ".join(f"{trust:.0%}" for trust in np.atleast_1d(self.trust_))
        return [*super()._lines(), f"Correction of the {self.simple_} coefficients: {trusted} trusted"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.family in FAMILIES and self._of_classes:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
            tags.classifier_tags.multi_class = self.family == "multinomial"
            tags.classifier_tags.poor_score = True  # of any table only what V does not share is used
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
            tags.target_tags.positive_only = True
        return tags


def unsaid(found: Coefficients, coef: Array, features: Array | None = None) -> float:
    """Variance of coef'S that the features, by default those that it was calibrated with, do not tell."""
    features = found.features if features is None else features
    return float(coef @ (found.covariance @ coef) - np.sum((features @ coef) ** 2) / found.free)


def _warn_of_few(what: str, more: str) -> None:
    warn_user(
        f"only {what}: coefficients and their errors mean little below about {_FEW_CASES}. Collect more {more}",
        SampleSizeWarning,
    )


def _counts(y: object) -> Array:
    """Numbers, none negative: (n,). Rates are welcome: what is used of y is its mean, and how it varies."""
    values = _labels(y)
    try:
        counts = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("y holds text, and this family counts: give numbers, or use family='multinomial'") from None
    if np.any(counts < 0):
        raise DataError(
            f"y must hold counts, none negative, got {counts.min():g}: use ComponentRegression for measurements"
        )
    if not counts.any():
        raise DataError("y is zero in every row: there is nothing to count")
    if (positive := int(np.sum(counts > 0))) < _FEW_CASES:
        _warn_of_few(f"{positive} of {len(counts)} rows hold a count above zero", "rows")
    return counts


def _labels(y: object) -> Any:
    """One label per row, none missing."""
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    refuse_foreign(y)
    labels = column_or_1d(
        check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y"), warn=True
    )
    if labels.dtype.kind in "fc":
        refuse_gaps(~np.isfinite(labels))
    elif labels.dtype.kind == "O":
        refuse_gaps(np.array([label is None or label != label for label in labels], dtype=bool))
    return labels
