"""Any differentiable likelihood of a component, or of an outcome on a component: the paper's meta-algorithm as an estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_consistent_length

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.design import is_column
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.inference.draws import Draws, shrink
from richcomponents.learning.likelihood import (
    Differentiated,
    LikelihoodFit,
    MomentMean,
    SampleMean,
    checked_start,
    hessian,
    maximise,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.models.base import OutcomeLearner
from richcomponents.models.estimator import present
from richcomponents.models.rca import fit_rca

_NO_MAXIMUM = "theta is no interior maximum: raise max_iter= or, where the likelihood has none, add ridge="


@dataclass(eq=False, repr=False)
class ComponentLikelihood(OutcomeLearner):
    """Maximum likelihood of any model of S1, or of y given S1, from samples of (U, V) or (U, V, y).

    You write the log-likelihood of one sample; its expectation over the hidden S1 and the gradient of that come from the
    moments of S1 (Ge and Zou's meta-algorithm), those with y, such as E[S1 y], from the table. y may depend on S1 only.

    Standard errors come from leaving out blocks of rows (those of `groups` stay together). Without block b the RCA has another
    A, and S1 other moments; at the maximum theta of the whole the expected gradient is then g_b instead of g = 0, and theta
    moves by one Newton step,

        theta_b - theta = H^-1 (g_b - g),      H = - d/dtheta g,

    which the block jackknife adds up. So the noise of A, of the mean and moments of S1 and of E[S1 y] is in them; the error of
    the polynomials (`fit_.epsilon`) is not: `summary()` says where its bound is larger. In `fit_clean` they are those of Huber
    and White, H^-1 G H^-1 / (n - p), G the mean square of the gradients of single samples. For some fits there are none:
    with a penalty (it biases theta), where the climb ended at no maximum, in `fit_component` (which does not say how well A is
    known), and for views that were searched in few of their directions; `summary()` says why.

    Where rows are few the moments of S1 are noisy, and the same likelihood on the residual of U (`residualised_`) can be
    nearer to the truth. Reported is what lies between, as of every answer (`inference.draws`), with changes of theta measured
    by H. There is no such protection where there are no errors.

    Parameters
    ----------
    log_likelihood : callable
        log_likelihood(theta (p,), s (m, d)) -> (m,), or log_likelihood(theta, s, y (m,)) for fit(X, y). Differentiable, defined
        for all real s and y (it is approximated by a polynomial in both: counts and classes are not treated as such, but a
        y of two values is never asked for others); terms without theta may be left out.
    start : array (p,)
        Where to begin, which also says how many parameters there are.
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
    degree : int
        Of the polynomials that multiply s in the gradient; needs cumulants of order degree + 1 (at most six). Higher degrees
        have less bias (`fit_.epsilon`) and more noise.
    gradient : {"differences", "jax"}
        How log_likelihood is differentiated by theta; "jax" for functions written with jax.numpy.
    ridge : float or array (p,)
        Penalty ridge |theta|^2 / 2.
    max_iter, n_restarts, restart_scale : int, int, float
        Steps of a climb; for several maxima further starts, `start` plus Gaussians of this standard deviation.
    random_state : int or None
    names : sequence of str, optional
        Of the parameters.

    Attributes
    ----------
    theta_ : array (p,)
    coefficients_ : Estimate or None
        theta_ with standard errors, intervals (`interval(level)`) and p values; `replicates` are theta_ without each block.
        Where the RCA's verdict is "not identified" or "contradicted" theta_ is residualised_, and the limits are infinite.
    trust_ : float
        How much of the way from residualised_ to fit_.theta was believed: 0 to 1.
    fit_ : LikelihoodFit
        The maximum with its curvatures, the error of the polynomials and the bound on theta that follows from it.
    residualised_ : array (p,) or None
        The same likelihood maximised on the residual of U as if that were S1: the simple method, and where the
        climb begins. None without rows.
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, d=5, S2="skewed", A="good", random_state=0)
    >>> y = data.S1 @ data.beta + np.random.default_rng(0).standard_t(3, size=3000)
    >>> def robust(theta, s, y):  # a regression with errors of three degrees of freedom
    ...     return -2 * np.log1p((y - s @ theta) ** 2 / 3)
    >>> model = ComponentLikelihood(robust, start=np.zeros(5), rca=ContrastiveRCA(views=5)).fit(data.X, y)
    >>> error = lambda beta: float(np.sum((beta - data.beta) ** 2))
    >>> error(model.theta_) < error(model.residualised_)
    True
    """

    log_likelihood: Callable[..., Any] | None = None
    start: Any = None
    rca: Any = None
    component: str = "S1"
    degree: int = 3
    gradient: str = "differences"
    ridge: Any = 0.0
    max_iter: int = 2000
    n_restarts: int = 0
    restart_scale: float = 1.0
    random_state: int | None = 0
    names: Sequence[str] | None = None

    # ---- doors

    def fit(self, X: object, y: object = None, groups: object = None) -> Self:
        """Fit the RCA to X, then theta on its component.

        X : a table, or files, whose rows are read into memory. y : (n,) numbers, or the name of a column of X; None for a model
        of the component alone. groups : (n,) labels; rows of a group stay in one block.
        """
        start, model = self._start(), self.unfitted_rca()
        column, alone = y if is_column(y) else None, y is None
        X, y, groups, _ = present(model, X, y, groups)
        numbers = y if alone or column is not None else _numbers(y)
        _, outcome, _ = fit_rca(model, X, numbers, groups, every_row=True)
        self._keep_rca(model)
        if not alone:
            outcome, _ = model.fitted_.beside(outcome, self.component)
            outcome = self._named(outcome, y if column is None else column)
            self._warn_of_others(outcome)
        self.on_v_, self.simple_ = outcome.on_v, "residualised"
        part, samples = self._of_rows(model.fitted_, outcome, alone)
        function = self._function(None if alone else samples[:, -1])
        simply = SampleMean(function, samples)
        simple = self._climb(simply, start).theta
        part = part.condensed(self._order)
        mean = MomentMean(function, part, int(self.degree))
        self._set(self._climb(mean, simple), simple)
        if model.fitted_.solution.leaves_open(model.fitted_.key(self.component)):
            self._report(simple, 0.0, Estimate.unbounded(simple))
        elif not self._no_errors:
            at_best, at_simple = [], []
            for block, other in model.fitted_.without_blocks():
                without, rows = self._of_rows(other, outcome.without(block), alone, part)
                at_best.append(MomentMean(function, without, mean.degree).gradient(self.fit_.theta))
                at_simple.append(SampleMean(function, rows).gradient(simple))
            self._protect(_moved(mean, self.fit_.theta, at_best), _moved(simply, simple, at_simple), mean)
        return self

    def fit_component(self, component: Component) -> Self:
        """Fit a model without outcome to an extracted component."""
        start = self._start()
        self._take_component(component)
        self.on_v_ = None
        self._set(self._climb(MomentMean(self._function(None), component, int(self.degree)), start), None)
        self._no_errors = "a component does not say how well it is known; fit(X) does"
        return self

    def fit_clean(self, S: object, y: object = None) -> Self:
        """Plain maximum likelihood on samples S (n, d) of the component itself, with the same penalties."""
        start, samples = self._start(), as_matrix(S)
        self._take_component(Component.of_samples(S, order=2))
        outcome = None if y is None else _numbers(y)
        if outcome is not None:
            check_consistent_length(samples, outcome)
            samples = np.column_stack([samples, outcome])
        self.on_v_ = None
        mean = SampleMean(self._function(outcome), samples)
        found = self._climb(mean, start)
        self._set(found, found.theta)
        n, p = samples.shape[0], len(start)
        self._no_errors = self._no_errors or ("" if n > p else f"{n} samples are too few for {p} parameters")
        if not self._no_errors:  # whether or not the model is true (Huber, White)
            steps = np.linalg.solve(hessian(mean, found.theta), mean.log_likelihood.by_sample(found.theta, samples).T)
            self._report(
                found.theta, 1.0, Estimate(found.theta, np.sqrt(np.sum(steps**2, axis=1) / (n * (n - p))), n - p)
            )
        return self

    # ---- fitting

    def _start(self) -> Array:
        """Where to begin; all parameters are looked at here."""
        if not callable(self.log_likelihood):
            raise ValueError("log_likelihood must be a function (theta, s) -> (m,), or (theta, s, y) for fit(X, y)")
        if self.start is None:
            raise ValueError("start= says where to begin and how many parameters there are: give an array (p,)")
        start = checked_start(self.start, self.degree, self.gradient)
        if self.names is not None and len(self.names) != len(start):
            raise ValueError(f"names= has {len(self.names)} names for {len(start)} parameters")
        return start

    def _function(self, y: Array | None) -> Differentiated:
        """Of (theta, s), or of (theta, (s, y)); linear in a y (n,) of two values between these."""
        given: Callable[..., Any] = self.log_likelihood  # type: ignore[assignment]
        if y is None:
            return Differentiated(given, self.gradient == "jax")
        levels = np.unique(y)
        if len(levels) != 2:
            return Differentiated(lambda theta, x: given(theta, x[:, :-1], x[:, -1]), self.gradient == "jax")
        low, high = levels

        def between(theta: Array, x: Array) -> Any:
            s, share = x[:, :-1], (x[:, -1] - low) / (high - low)
            ends = [given(theta, s, np.full(len(x), level)) for level in (low, high)]
            return (1 - share) * ends[0] + share * ends[1]

        return Differentiated(between, self.gradient == "jax")

    @property
    def _order(self) -> int:
        """Of the cumulants that are read."""
        return int(self.degree) + 1

    def _of_rows(
        self, fitted: Any, outcome: Outcome, alone: bool, like: Component | None = None
    ) -> tuple[Component, Array]:
        """The component S1, or (S1, y), and the rows (R, y) that stand in for it.

        alone : there is no y; like : of which it is a replicate, and takes the weights.
        """
        part, simple = fitted.component_on_rows(outcome, self.component), fitted.residual(outcome, self.component)
        part, samples = part if like is None else part.weighted_like(like, self._order), simple + part.mean
        if alone:
            return part, samples
        part = part.with_outcome(simple, outcome.y, outcome.mean, order=self._order)
        return part, np.column_stack([samples, outcome.y + outcome.mean])

    def _climb(self, mean: MomentMean | SampleMean, start: Array) -> LikelihoodFit:
        named = ("ridge", "max_iter", "n_restarts", "restart_scale", "random_state")
        return maximise(mean, start, **{name: getattr(self, name) for name in named})

    def _set(self, found: LikelihoodFit, simple: Array | None) -> None:
        """The maximum, so far without errors, and why there will be none."""
        at_rest = found.converged and found.mu > 0
        if not at_rest:
            warn_user(_NO_MAXIMUM, SpecificationWarning)
        biased = "a penalty pulls the parameters towards zero, and an interval around them would not cover the truth"
        self._no_errors = biased if np.any(np.asarray(self.ridge) != 0) else "" if at_rest else _NO_MAXIMUM
        self.fit_, self.residualised_, self.coefficients_ = found, simple, None
        self.theta_, self.coef_, self.trust_ = found.theta, found.theta, 1.0  # coef_: as of all outcome learners

    def _report(self, theta: Array, share: float, coefficients: Estimate) -> None:
        """Parameters with what is known of them; share : of the way from the simple method's."""
        self.theta_, self.coef_, self.trust_, self._no_errors = theta, theta, share, ""
        self.coefficients_ = replace(coefficients, names=self._names(None))

    def _protect(self, full: Draws, safe: Draws, mean: MomentMean) -> None:
        """Errors by leaving out blocks, and theta as far from residualising as they let it be."""
        if len(full.blocks) < 2:
            self._no_errors = "the views have too many columns, or too few blocks of rows, to leave some out"
            return
        root = np.linalg.cholesky(hessian(mean, full.value))
        one = shrink(safe, full, 1.0, metric=lambda change: change @ root)
        self._report(one.value, one.share, Estimate(one.value, one.error, len(one.blocks) - 1, replicates=one.blocks))

    # ---- words

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if self.names is not None:
            return tuple(map(str, self.names))
        return tuple(f"theta[{j}]" for j in range(len(self.theta_)))

    def unit(self, outcome: str = "y") -> str:
        """What a number is."""
        return "parameter"

    def title(self) -> str:
        """What was learned, in a line."""
        name = getattr(self.log_likelihood, "__name__", type(self.log_likelihood).__name__)
        return (
            f"Maximum likelihood of {name} on {self.component_.name} (degree {self.degree}; "
            f"{'converged' if self.fit_.converged else 'not converged'}; error of the gradient by the polynomials "
            f"{self.fit_.epsilon:.2g})"
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader of the parameters must be told, as sentences."""
        said, found = super().notes(), self.coefficients_
        if found is None:
            return (*said, f"No standard errors: {self._no_errors}.")
        if found.identified is not None:
            own = self.component_.name
            return (
                *said,
                f"{self.verdict_.capitalize()}: these are the parameters on the residual. The data do not tell {own} from the "
                "shared part, and leave those on it open.",
            )
        if self.trust_ < 1:
            said = (*said, f"{self.trust_:.0%} of the way from residualised to the maximum was believed.")
        error, bound = float(np.linalg.norm(found.standard_error)), float(np.sqrt(self.fit_.error_bound))
        if bound > error:
            limit = f"{bound:.2g}" if np.isfinite(bound) else "any amount"
            said = (
                *said,
                f"The polynomials may have moved theta by up to {limit}, more than its standard errors ({error:.2g} in all), "
                "which leave that out: compare with another degree=.",
            )
        return said


def _numbers(y: object) -> Array:
    """(n,), finite."""
    try:
        return np.asarray(column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")))
    except (TypeError, ValueError) as problem:
        raise DataError(f"y must hold one finite number per row: {problem}") from problem


def _moved(mean: MomentMean | SampleMean, theta: Array, gradients: Sequence[Array]) -> Draws:
    """The maximum theta, and where one Newton step leads from it, from the gradients without each block."""
    steps = np.reshape(gradients, (-1, len(theta))) - mean.gradient(theta)
    return Draws.certain(theta, theta + np.linalg.solve(hessian(mean, theta), steps.T).T)
