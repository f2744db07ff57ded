"""Logistic regression on a component: the calibrated model, and the paper's polynomials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.component import check_order
from richcomponents.data.design import is_column
from richcomponents.errors import DataError
from richcomponents.learning.chebyshev import LogisticLikelihood
from richcomponents.learning.glm import Logistic
from richcomponents.learning.likelihood import fit_likelihood
from richcomponents.learning.outcome import Outcome
from richcomponents.models.glm import ComponentGLM
from richcomponents.models.rca import ComponentAnalysis, fit_rca
from richcomponents.paper.gradient import contrastive_logistic
from richcomponents.paper.solution import extraction_of


class ComponentLogisticRegression(ClassifierMixin, ComponentGLM):  # type: ignore[misc]
    """P(y = positive) = sigmoid(intercept + coef' S1), from samples of (U, V, y): two classes.

    y may depend on S1 only. By default a logistic regression on the residual of U on the shared part of V is corrected
    for the part of S1 that residualising removes, as far as the data support it; without support the result is that of
    residualising. Coefficients stay finite, also when the classes can be separated.

    Parameters
    ----------
    rca, component, fit_intercept : as in :class:`ComponentGLM`
    approximation : {"auto", "chebyshev"}
        "auto": regression calibration. "chebyshev": the sigmoid is
        replaced by a polynomial and the likelihood maximised from the moments of the component, as in Ge and Zou (their
        0.5 + 0.245 z - 0.014 z^3 has degree 3). That is biased for strong signal: the variance of coef'S1 is kept below 1.5,
        since the polynomial's likelihood has no maximum, and the intercept between -1.85 and 1.85. With few rows per column
        (d = 200, n = 2 000) the noise of the fourth cumulant draws it to that edge: use "auto", or a larger alpha. Sums over
        rows suffice for it: X may be a state or a stream, y a column of zeros and ones, without errors and protection.
    degree : int
        Of the polynomial; needs cumulants of order degree + 1 (ContrastiveRCA(order=...)). Not used by "auto".
    alpha : float
        l2 penalty: mean log-loss + alpha/2 |coef|^2, scikit-learn's C = 1 / (n alpha).
    positive : label, optional
        The class whose log-odds are modelled. By default the one whose name says so (case, yes, true, disease, tumour,
        treated, ... against control, no, false, healthy, normal, untreated, ...), else the second in natural order, numbers as
        numbers (1 of 0 and 1, "10" of "9" and "10"); summary() says which.
    method : {"auto", "paper"}
        "paper": :func:`richcomponents.paper.contrastive_logistic` (Ge and Zou, Section 5), whatever `approximation` says, on
        k_t(S1) by equation (3) with the A of `rca` (equation (2), with method="paper" there, too), from rows of two views. As
        there E[S1] = 0: no intercept, no penalty (alpha), no protection; a bound, as the cubic's likelihood has no maximum.

    Attributes
    ----------
    coef_ : array (1, d), intercept_ : array (1,)
        Change of the log-odds of `positive_` per unit of S1, and the log-odds at S1 = 0.
    positive_ : the class they are of; contrast : both classes, in words.
    classes_ : array (2,), class_counts_ : array (2,) or None
        The labels sorted as scikit-learn does, and how many rows hold each. predict_proba has its columns in this order and
        decision_function is positive for classes_[1], whichever class is positive_. No counts without rows.
    residualised_, trust_, coefficients_ (errors of "auto"; None at a bound), rca_, component_ : as in :class:`ComponentGLM`

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

    family = "logistic"
    reference = None

    def __init__(  # family= and reference= are not its parameters
        self,
        rca: Any = None,
        component: str = "S1",
        approximation: str = "auto",
        degree: int = 3,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        positive: Any = None,
        method: str = "auto",
    ) -> None:
        self.rca = rca
        self.component = component
        self.approximation = approximation
        self.degree = degree
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.method = method

    # ---- doors

    def _fit_sums(self, model: ComponentAnalysis, X: Any, y: object, groups: object) -> Self:
        if self.approximation == "auto" or self.method == "paper":
            raise DataError(
                "approximation='auto' and method='paper' need the rows, which states and streams do not keep: give a table or "
                "files, or use approximation='chebyshev', which sums suffice for"
            )
        codes = y if is_column(y) else self._outcome_codes(y)
        _, outcome, _ = fit_rca(model, X, codes, groups, component=self.component)
        self._keep_rca(model)
        p, n, centred = outcome.mean, outcome.n, outcome.y
        if outcome.coef is not None:
            centred = centred + outcome.known @ outcome.coef
        variance = float(outcome.weight @ centred**2) / n
        if abs(variance - p * (1 - p)) > 1e-6 or not 0 < p < 1:
            raise DataError(
                f"the outcome has mean {p:.4g} and variance {variance:.4g}, which zeros and ones have not: code the "
                "two classes as 0 and 1"
            )
        R = model.fitted_.residual(outcome, self.component)
        self._of_moments(self.component_, R.T @ (outcome.weight * outcome.y) / outcome.free, p)
        self.simple_ = "residualised"
        share = p if self.positive_ == 1 else 1 - p
        self._count(np.arange(2), np.array([n * (1 - share), n * share]))
        return self

    def _learn(self, model: ComponentAnalysis, first: Outcome, target: Array, y: object, *, grouped: bool) -> Self:
        super()._learn(model, first, target, y, grouped=grouped)
        fitted = model.fitted_
        if self.method == "paper":
            path = contrastive_logistic(extraction_of(fitted.solution, fitted.key(self.component), first.rows), target)
            theta, intercept, bound = path.theta, 0.0, path.confined > 0.5
        elif self.approximation == "chebyshev":  # R stands in for S1 in Cov(S1, y)
            check_order(order := int(self.degree) + 1)
            cross = fitted.residual(first, self.component).T @ (target - target.mean()) / first.free
            component = fitted.component_for_gradients(first, self.component, order)
            theta, intercept, bound = self._polynomial(component, cross, float(target.mean()))
        else:
            return self
        self._set(theta[None], np.array([intercept]))
        self.coefficients_ = None if bound or self.coefficients_ is None else replace(self.coefficients_, value=theta)
        return self

    def fit_component(self, component: Component, cross: object, mean: float = 0.5) -> Self:
        """Fit to an extracted component, without rows, from Cov(component, y) and E[y]; classes_ are 0 and 1.

        cross : (d,), the COVARIANCE Cov(S, y) of the component with the outcome y of 0 and 1, E[S y] - E[S] E[y], as in
        ComponentRegression.fit_component. Since y is independent of V it is Cov(U, y), or better Cov(U - B V, y) with B the
        regression of U on V, which has less noise.
        mean : E[y], the share of the second class. positive=0 gives the log-odds of y = 0.

        "auto" matches the variance and fourth cumulant of coef'S, "chebyshev" is as in fit. No protection by
        residualising and no standard errors: those need rows.
        """
        self._check_parameters()
        if self.method == "paper":
            raise ValueError("method='paper' takes mini-batches of rows: use fit(X, y), or approximation='chebyshev'")
        with_y = self._checked_cross(component, cross)
        if not 0 < mean < 1:
            raise DataError(f"mean is the share of the second class, strictly between 0 and 1, got {mean!r}")
        return self._of_moments(component, with_y, float(mean))

    def _of_moments(self, component: Component, cross: Array, mean: float) -> Self:
        """From its cumulants, Cov(S, y) and E[y], y zeros and ones: without errors and protection."""
        if self._set_classes(np.array([0, 1]))[1] == 0:
            cross, mean = -cross, 1 - mean
        if self.approximation == "auto":
            theta, intercept = self._from_cumulants(component, cross, mean)
        else:
            theta, intercept, _ = self._polynomial(component, cross, mean)
        self.residualised_, self.trust_, self.coefficients_, self.on_v_ = None, 1.0, None, None
        self._through_shared = None
        self._keep_family(Logistic(), 0.0)
        self._set(theta[None], np.array([intercept]))
        return self

    # ---- fitting

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.approximation not in ("auto", "chebyshev"):
            raise ValueError(f"approximation must be 'auto' or 'chebyshev', got {self.approximation!r}")
        if self.method not in ("auto", "paper"):
            raise ValueError(f"method must be 'auto' or 'paper', got {self.method!r}")
        self._check_counts("degree")

    def _wanted(self, labels: list[Any]) -> Any:
        return self.positive

    def _polynomial(self, component: Component, cross: Array, mean: float) -> tuple[Array, float, bool]:
        options: dict[str, Any] = {"alpha": float(self.alpha), "fit_intercept": bool(self.fit_intercept)}
        likelihood = LogisticLikelihood(component, cross, mean, degree=int(self.degree), **options)
        found, bound = likelihood.fit()
        intercept, theta = likelihood.coefficients(found)
        return theta, float(intercept), bound

    def _from_cumulants(self, component: Component, cross: Array, mean: float) -> tuple[Array, float]:
        """theta (d,) and the intercept at the component's mean, of largest E[y eta - log(1 + exp(eta))], columns in units of
        their standard deviations: the moments of S1 up to order four, where they are known, and E[y (1, s)]."""
        scale = np.sqrt(np.diag(component.covariance))
        scale = np.where(scale > 0, scale, 1.0)
        used, first = (component.centred(), [mean]) if self.fit_intercept else (component, [])
        with_y, k = np.concatenate([first, (cross + mean * used.mean) / scale]), len(first)

        def log_likelihood(at: Array, s: Array) -> Array:
            return np.asarray(at @ with_y - np.logaddexp(0.0, at[:k].sum() + (s / scale) @ at[k:]))

        highest = 2 if component.source is None else component.source.max_order
        penalty = self.alpha * (np.arange(len(with_y)) >= k)
        options: dict[str, Any] = {"start": np.zeros(len(with_y)), "degree": min(highest, 4) - 1, "ridge": penalty}
        fit = fit_likelihood(used, log_likelihood, **options)
        return fit.theta[k:] / scale, float(fit.theta[:k].sum())

    # ---- words

    def title(self) -> str:
        """What was learned, in a line."""
        kind = "" if self.approximation == "auto" else f"{self.approximation} polynomial of degree {self.degree}; "
        kind = "the paper's cubic, stochastic gradients" if self.method == "paper" else f"{kind}alpha = {self.alpha:g}"
        level = f"intercept {self.intercept_[0]:.4f}"
        return f"Logistic regression on {self.component_.name} ({kind}); {self._contrast_words()}; {level}"

    def unfitted(self) -> Self:
        """A clone with the class that was taken as positive."""
        return self._clone(positive=self.positive_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # ClassifierMixin's, over those of ComponentGLM
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # of any table only what V does not share is used
        return tags
