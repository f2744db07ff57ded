"""Maximum likelihood without samples: gradients from the moments of a component (paper, Section 4).

The expected gradient of a log-likelihood is written as

    g(theta) = known(theta) + sum_j  M_j E[s h_j(w_j's)] + v_j E[h_j(w_j's)],

ridge functions h_j of one projection each, times s or 1. Each h_j is, or is approximated by, a polynomial
sum_k c_k z^k, so that only projected moments E[s (w's)^k] are needed: nothing of size d^t is formed. A model that is given
as its
log-likelihood alone has ridge functions of several projections, which are found and handled by :mod:`.expectation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.polynomial import hermite_e, polynomial

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.expectation import Differentiated, Mean, MomentMean, SampleMean, component_on
from richcomponents.learning.polynomials import REACH, approximate, check_degree, check_method
from richcomponents.learning.solvers import proximal_steps, robbins_monro, sgd, shrink
from richcomponents.storage import storable

_NODES, _WEIGHTS = hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
SMALL = 100
"""Parameters up to which all curvatures, and standard errors, are computed."""


@dataclass(frozen=True)
class Ridge:
    """One term of a gradient: vector @ E[s h(w's)] + scalar * E[h(w's)].

    direction : w, (d,). function : h, maps an array to an array of the same shape, or the coefficients (c_0, c_1, ...)
    of a polynomial, which is used exactly. vector : (p, d) or None; scalar : (p,) or None; p = len(theta).
    interval : where h is to be approximated, if the model knows better than :func:`fit_likelihood`.
    """

    direction: Array
    function: Callable[[Array], Array] | Sequence[float]
    vector: Array | None = None
    scalar: Array | None = None
    interval: tuple[float, float] | None = None

    def values(self, z: Array) -> Array:
        """h(z), any shape."""
        if callable(self.function):
            return np.asarray(self.function(z), dtype=np.float64)
        return np.asarray(polynomial.polyval(z, np.asarray(self.function, dtype=np.float64)))


class Likelihood(Protocol):
    """What a model must say to be learned by :func:`fit_likelihood`. p parameters, d columns of the component.

    ``ridges(theta)``
        The gradient for one sample s is the sum over these terms of (vector @ s + scalar) * h(w's). A term whose
        `function` is a sequence is a polynomial in w's (order -> coefficient) and is exact.
    ``log_likelihood(theta, s)``
        (n,), for samples s (n, d): the function whose gradient in theta the ridges are. Used only to check them.
    ``known(theta)``
        (p,), a part of the expected gradient that is known without the component, such as E[s y] measured on the
        rows. It is not part of `log_likelihood`.

    Logistic regression: known = E[s y], one ridge with w = theta, h(z) = -1/(1 + exp(-z)), vector = I, and
    log_likelihood = -log(1 + exp(s @ theta)). Composite likelihoods have one ridge per conditional.
    """

    def ridges(self, theta: Array) -> Sequence[Ridge]: ...

    def log_likelihood(self, theta: Array, s: Array) -> Array: ...

    def known(self, theta: Array) -> Array: ...


@storable
@dataclass(frozen=True)
class LikelihoodFit:
    """The result of :func:`fit_likelihood`.

    theta : (p,); trajectory : (iterations + 1, p); converged : a step moves theta by less than the tolerance (seldom so of
    stochastic steps).
    mu, H : smallest and largest curvature of the (approximate) objective at theta.
    epsilon : estimated error of the gradient due to the polynomials, for a Gaussian component (sampling error excluded); with
    heavy tails the true error can be larger, and grow with the degree.
    error_bound : 8 epsilon^2 / mu^2, on |theta - theta*|^2 (paper, lemma on approximate gradients); inf if mu <= 0.
    step_size : 1 / (2 H) at the start, unless given; halved where the gradient grew.
    value : E[log-likelihood] at theta, penalties not subtracted; None of ridge forms, whose gradient alone is known.
    restarts : (1 + n_restarts,), penalised values that were reached, of which the best was taken; None of ridge forms.
    """

    theta: Array
    trajectory: Array
    converged: bool
    mu: float
    H: float
    epsilon: float
    error_bound: float
    step_size: float
    value: float | None = None
    restarts: Array | None = None


@dataclass(frozen=True)
class _Scheme:
    """How ridge functions become polynomials."""

    component: Component
    method: str
    degree: int
    interval: tuple[float, float] | None

    def law(self, ridge: Ridge) -> tuple[float, float]:
        """Mean and standard deviation of w's."""
        w = np.asarray(ridge.direction, dtype=np.float64)
        return float(w @ self.component.mean), float(np.sqrt(max(float(w @ self.component.covariance @ w), 1e-12)))

    def coefficients(self, ridge: Ridge) -> Array:
        if not callable(ridge.function):
            return np.asarray(ridge.function, dtype=np.float64)
        mean, sd = self.law(ridge)
        interval = ridge.interval or self.interval
        if interval is None:
            reach = max(3 * sd, 0.1)
            interval = (mean - reach, mean + reach)
        return approximate(ridge.function, self.degree, self.method, interval)


def expected_gradient(
    component: Component,
    likelihood: Likelihood,
    theta: Array,
    *,
    degree: int = 3,
    approximation: str = "chebyshev",
    interval: tuple[float, float] | None = None,
) -> Array:
    """E[gradient of the log-likelihood] at theta, (p,), from projected moments of the component."""
    return _gradient(_Scheme(component, approximation, degree, interval), likelihood, theta)


def _gradient(scheme: _Scheme, likelihood: Likelihood, theta: Array) -> Array:
    total = np.array(likelihood.known(theta), dtype=np.float64)
    if np.isfinite(theta).all() and not np.isfinite(total).all():
        raise ValueError(
            f"known(theta) holds {int(np.sum(~np.isfinite(total)))} missing or infinite values of {total.size} at finite theta:"
            " were rows with missing values averaged?"
        )
    for ridge in likelihood.ridges(theta):
        c = scheme.coefficients(ridge)
        w = np.asarray(ridge.direction, dtype=np.float64)
        need: list[int] = np.flatnonzero(c).tolist()
        top = max((t for t in range(len(c)) if _needed(ridge, c, t)), default=-1)
        moments = scheme.component.projected_moments(w, top + 1)
        if ridge.vector is not None:
            inner: Array = np.zeros(len(w))
            for t in need:
                inner = inner + c[t] * moments[t]
            total = total + ridge.vector @ inner
        if ridge.scalar is not None:  # E[(w's)^t] = w' E[s (w's)^(t-1)]
            power = sum((c[t] * (1.0 if t == 0 else float(w @ moments[t - 1])) for t in need), 0.0)
            total = total + power * ridge.scalar
    return np.asarray(total)


def _needed(ridge: Ridge, c: Array, t: int) -> bool:
    """Whether E[s (w's)^t] enters."""
    return bool(
        (ridge.vector is not None and c[t] != 0) or (ridge.scalar is not None and t + 1 < len(c) and c[t + 1] != 0)
    )


def check_gradient(likelihood: Likelihood, theta: Array, s: Array, *, tol: float = 1e-4) -> None:
    """Compare the ridges with differences of the log-likelihood on samples s (n, d); ValueError if they differ."""
    theta = np.asarray(theta, dtype=np.float64)
    stated = np.zeros((len(s), len(theta)))
    for ridge in likelihood.ridges(theta):
        h = ridge.values(s @ ridge.direction)
        if ridge.vector is not None:
            stated += h[:, None] * (s @ ridge.vector.T)
        if ridge.scalar is not None:
            stated += h[:, None] * ridge.scalar
    numeric = np.empty_like(stated)
    for j in range(len(theta)):
        step = np.zeros(len(theta))
        step[j] = 1e-5 * max(1.0, abs(float(theta[j])))
        up, down = likelihood.log_likelihood(theta + step, s), likelihood.log_likelihood(theta - step, s)
        numeric[:, j] = (np.asarray(up) - np.asarray(down)) / (2 * step[j])
    gap = np.abs(stated - numeric)
    worst = np.unravel_index(int(np.argmax(gap)), gap.shape)
    if not gap[worst] <= tol * max(1.0, float(np.abs(numeric).max())):
        raise ValueError(
            f"the likelihood's ridges are not the gradient of its log_likelihood: parameter {worst[1]}, "
            f"ridges say {stated[worst]:.6g}, differences of log_likelihood say {numeric[worst]:.6g}. "
            "Correct one of them, or pass check=False"
        )


@dataclass(frozen=True)
class RidgeMean:
    """The expected gradient of a model that states it as ridge functions; see :class:`.expectation.Mean`."""

    scheme: _Scheme
    likelihood: Likelihood

    @property
    def n_rows(self) -> int:
        source = self.scheme.component.source
        return 0 if source is None else source.n

    def value(self, theta: Array) -> None:
        """What is known without the component has a gradient only."""

    def gradient(self, theta: Array) -> Array:
        return _gradient(self.scheme, self.likelihood, theta)

    def error(self, theta: Array) -> float:
        return _gradient_error(self.scheme, self.likelihood, theta)

    def on_rows(self, rows: IntArray) -> RidgeMean:
        component = component_on(self.scheme.component, rows, self.scheme.degree + 1)
        return replace(self, scheme=replace(self.scheme, component=component))


def fit_likelihood(
    component: Component,
    likelihood: Likelihood | Callable[[Array, Array], Array],
    *,
    start: Array | None = None,
    degree: int = 3,
    approximation: str | None = None,
    interval: tuple[float, float] | None = None,
    step_size: float | None = None,
    max_iter: int = 2000,
    tol: float = 1e-6,
    ridge: float | Array = 0.0,
    lasso: float | Array = 0.0,
    confine: Callable[[Array], Array] | None = None,
    check: bool = True,
    gradient: str = "auto",
    max_directions: int | None = None,
    solver: str = "deterministic",
    batch_size: int = 100,
    n_steps: int = 1000,
    n_restarts: int = 0,
    restart_scale: float = 1.0,
    random_state: int | np.random.Generator | None = 0,
) -> LikelihoodFit:
    """Maximise E[log-likelihood] over theta by gradient steps, from the moments of a component (paper, Section 4).

    Parameters
    ----------
    likelihood : callable or Likelihood
        log_likelihood(theta (p,), s (m, d)) -> (m,), for all real s, differentiable; terms without theta may be left out. Its
        gradient is taken by differences or by jax, and its polynomials in those directions of s in which it is not linear.
        Or an
        object that states its gradient as ridge functions; checked against differences of its own log-likelihood first.
    start : (p,); zeros with one entry per column of the component by default.
    degree, approximation, interval :
        How functions become polynomials, see `richcomponents.learning.polynomials.approximate`. The component must keep
        cumulants of order degree + 1. Of a ridge form "chebyshev" by default, and the interval follows theta: mean +- 3
        standard deviations of w's. Of a log-likelihood "hermite" by default (its objective is bounded where the likelihood is;
        those of the others need not be), and the interval of "chebyshev" is (-r, r) in standard deviations of each direction,
        r = 3 by default.
    step_size : float, optional
        By default 1 / (2 H), H the largest curvature at the start, and then by the curvature met on the way.
    ridge, lasso : float or (p,)
        Penalties ridge |theta|^2 / 2 and lasso |theta|_1, by proximal steps; arrays weigh each parameter (0 for intercepts).
    confine : callable, optional
        Maps theta (p,) back into the region where the polynomials hold, after every step.
    gradient : {"auto", "differences", "jax"}
        By theta, of a log-likelihood; "jax" for functions written with jax.numpy, if jax is installed. "auto": ridge functions
        where the model states them, else differences.
    max_directions : int, optional
        In at most so many directions of s the log-likelihood is more than linear; by default as many as there are, up to 1 001
        terms of a polynomial (10 directions at degree 3, 5 at degree 5). Those that matter most are kept, and what the others
        miss is in epsilon.
    solver : {"deterministic", "sgd"}
        "sgd": `n_steps` steps over mini-batches of `batch_size` rows, with moments of the batch; the component must read rows
        (ContrastiveRCA.component_on_rows).
    n_restarts, restart_scale, random_state :
        For models with several maxima: further starts, `start` plus Gaussians of this standard deviation; the best is kept.
        random_state is of these and of the batches.

    Returns
    -------
    LikelihoodFit

    Examples
    --------
    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(20_000, d=3, S2="skewed", A="good", random_state=1)
    >>> component = rc.ContrastiveRCA(views=3).fit(data.X).components_["S1"]
    >>> def student(theta, s):  # location of a t distribution with five degrees of freedom
    ...     return -4.0 * np.log1p(np.sum((s - theta) ** 2, axis=1) / 5)
    >>> fit = fit_likelihood(component, student)
    >>> fit.converged, bool(np.abs(fit.theta).max() < 0.05), bool(fit.epsilon > 0)
    (True, True, True)
    """
    theta = np.zeros(len(component.mean)) if start is None else np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.isfinite(theta).all():
        raise ValueError(f"start must be a vector of finite numbers, got shape {theta.shape}")
    check_degree(degree)
    if approximation is not None:
        check_method(approximation)
    if gradient not in ("auto", "differences", "jax"):
        raise ValueError(f"gradient must be 'auto', 'differences' or 'jax', got {gradient!r}")
    mean: Mean
    if gradient == "auto" and hasattr(likelihood, "ridges"):
        model = cast(Likelihood, likelihood)
        if check:
            rng = np.random.default_rng(0)
            spread = np.sqrt(np.maximum(np.diag(component.covariance), 1e-12))
            points = component.mean + spread * rng.normal(size=(5, len(component.mean)))
            check_gradient(model, theta + 0.1 * rng.normal(size=len(theta)), points)
        mean = RidgeMean(_Scheme(component, approximation or "chebyshev", degree, interval), model)
    else:
        if not callable(likelihood):
            raise TypeError(
                "likelihood must be a function log_likelihood(theta, s), or an object that states ridges(theta), known(theta) "
                f"and log_likelihood(theta, s), got {type(likelihood).__name__}"
            )
        function = Differentiated(likelihood, gradient == "jax")
        reach = REACH if interval is None else _symmetric(interval)
        mean = MomentMean(function, component, component, degree, approximation or "hermite", max_directions, reach)
    return maximise(
        mean,
        theta,
        step_size=step_size,
        max_iter=max_iter,
        tol=tol,
        ridge=ridge,
        lasso=lasso,
        confine=confine,
        solver=solver,
        batch_size=batch_size,
        n_steps=n_steps,
        n_restarts=n_restarts,
        restart_scale=restart_scale,
        random_state=random_state,
    )


def _symmetric(interval: tuple[float, float]) -> float:
    low, high = interval
    if not (0 < high < np.inf and low == -high):
        raise ValueError(f"the interval of a log-likelihood is (-r, r) in standard deviations, got {interval!r}")
    return float(high)


def maximise(
    mean: Mean,
    start: Array,
    *,
    step_size: float | None = None,
    max_iter: int = 2000,
    tol: float = 1e-6,
    ridge: float | Array = 0.0,
    lasso: float | Array = 0.0,
    confine: Callable[[Array], Array] | None = None,
    solver: str = "deterministic",
    batch_size: int = 100,
    n_steps: int = 1000,
    n_restarts: int = 0,
    restart_scale: float = 1.0,
    random_state: int | np.random.Generator | None = 0,
) -> LikelihoodFit:
    """The best of several climbs of an expected log-likelihood; parameters as in :func:`fit_likelihood`."""
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
    if step_size is not None and not 0 < step_size < np.inf:
        raise ValueError(f"step_size must be a positive finite number, got {step_size!r}")
    for name, weights in (("ridge", ridge), ("lasso", lasso)):
        if not np.all((np.asarray(weights) >= 0) & (np.asarray(weights) < np.inf)):
            raise ValueError(f"{name} must be a finite number >= 0, or one per parameter, got {weights!r}")
    if solver not in ("deterministic", "sgd"):
        raise ValueError(f"solver must be 'deterministic' or 'sgd', got {solver!r}")
    if n_restarts < 0:
        raise ValueError(f"n_restarts must be at least 0, got {n_restarts}")
    penalty = shrink(lasso, ridge)

    def proximal(theta: Array, step: float) -> Array:
        moved = penalty(theta, step)
        return moved if confine is None else confine(moved)

    def smooth(at: Array) -> Array:
        return ridge * at - mean.gradient(at)

    def objective(at: Array) -> float:
        value = mean.value(at)
        assert value is not None
        return float(np.sum(lasso * np.abs(at) + ridge * at**2 / 2)) - value

    first_value = mean.value(start)
    valued = first_value is not None
    if not np.isfinite(mean.gradient(start)).all() or (first_value is not None and not np.isfinite(first_value)):
        raise ValueError(
            f"the log-likelihood, or its gradient, is not finite at start={np.asarray(start).tolist()}: it must be defined for "
            "all real s, not only for those of the samples. Begin elsewhere (start=), or write it so that it is"
        )
    if n_restarts and not valued:
        raise ValueError(
            "restarts are compared by the log-likelihood, and of ridge forms only its gradient is known: give "
            "log_likelihood(theta, s) as a function"
        )
    rng = np.random.default_rng(random_state)
    starts = [start, *(start + restart_scale * rng.normal(size=len(start)) for _ in range(n_restarts))]

    def climb(begin: Array) -> tuple[Array, Array, bool, float]:
        mu, largest = _curvature(smooth, begin)
        step = float(step_size) if step_size is not None else 1 / (2 * max(abs(mu), largest, 1e-12))
        if solver == "sgd":
            excess = len(begin) / max(min(batch_size, mean.n_rows), 1)
            sizes = step_size if step_size is not None else robbins_monro(mu, max(abs(mu), largest, 1e-12), excess)
            found = sgd(
                lambda theta, rows: -mean.on_rows(rows).gradient(theta),
                begin,
                mean.n_rows,
                batch_size=batch_size,
                n_steps=n_steps,
                step_size=sizes,
                proximal=proximal,
                random_state=rng,
            )
            rest = proximal(found.theta + step * mean.gradient(found.theta), step) - found.theta
            small = tol * max(float(np.linalg.norm(mean.gradient(begin))), 1e-12)
            return found.theta, found.trajectory, bool(np.linalg.norm(rest) / step <= small), step
        way = proximal_steps(
            lambda at: -mean.gradient(at),
            begin,
            step,
            proximal,
            value=objective if valued else None,
            constant=step_size is not None,
            max_iter=max_iter,
            tol=tol,
        )
        return way.theta, way.trajectory, way.converged, step

    climbs = [climb(begin) for begin in starts]
    reached = np.array([-objective(one[0]) for one in climbs]) if valued else None
    best, path, converged, first = climbs[0 if reached is None else int(np.nanargmax(reached))]
    mu, largest = _curvature(smooth, best)
    epsilon = mean.error(best)
    bound = 8 * epsilon**2 / mu**2 if mu > 0 else np.inf
    return LikelihoodFit(best, path, converged, mu, largest, epsilon, float(bound), first, mean.value(best), reached)


def hessian(mean: Mean, theta: Array) -> Array:
    """H (p, p), minus the second derivative of the expected log-likelihood, by differences."""
    return _matrix(lambda at: -mean.gradient(at), theta)


def sandwich(mean: SampleMean, theta: Array, H: Array) -> Array:
    """The covariance (p, p) of the theta that maximises the mean over n samples, whether or not the model is true (Huber,
    White): H^-1 G H^-1 / (n - p), G the mean square of the gradients of single samples; H : see :func:`hessian`."""
    steps = np.linalg.solve(H, mean.log_likelihood.by_sample(theta, mean.samples).T)
    return np.asarray(steps @ steps.T / (mean.n_rows * (mean.n_rows - len(theta))))


def _times(descent: Callable[[Array], Array], theta: Array) -> Callable[[Array], Array]:
    """x -> the second derivative at theta times x."""
    step = 1e-4
    return lambda x: (descent(theta + step * x) - descent(theta - step * x)) / (2 * step)


def _matrix(descent: Callable[[Array], Array], theta: Array) -> Array:
    matrix = np.stack([_times(descent, theta)(e) for e in np.eye(len(theta))])
    return np.asarray((matrix + matrix.T) / 2)


def _curvature(descent: Callable[[Array], Array], theta: Array) -> tuple[float, float]:
    """Smallest and largest curvature at theta: by differences, or by power iterations for many parameters."""
    p, times = len(theta), _times(descent, theta)
    if p <= SMALL:
        values = np.linalg.eigvalsh(_matrix(descent, theta))
        return float(values[0]), float(values[-1])
    rng = np.random.default_rng(0)
    largest = _power(times, rng.normal(size=p))
    return largest - _power(lambda x: largest * x - times(x), rng.normal(size=p)), largest


def _power(times: Callable[[Array], Array], x: Array, rounds: int = 30) -> float:
    value = 0.0
    for _ in range(rounds):
        x = x / np.linalg.norm(x)
        image = times(x)
        value, x = float(x @ image), image
        if not np.linalg.norm(x) > 0:
            break
    return value


def _gradient_error(scheme: _Scheme, likelihood: Likelihood, theta: Array) -> float:
    """|E[gradient] - E[its polynomial]| if s were Gaussian, by Cauchy-Schwarz term by term."""
    total = np.zeros(len(theta))
    for ridge in likelihood.ridges(theta):
        if not callable(ridge.function):
            continue
        mean, sd = scheme.law(ridge)
        z = mean + sd * _NODES
        gap = ridge.values(z) - polynomial.polyval(z, scheme.coefficients(ridge))
        rms = float(np.sqrt(np.sum(_WEIGHTS * gap**2)))
        if ridge.vector is not None:
            along = scheme.component.covariance @ ridge.direction / sd
            total += rms * (np.abs(ridge.vector @ scheme.component.mean) + np.abs(ridge.vector @ along))
        if ridge.scalar is not None:
            total += rms * np.abs(ridge.scalar)
    return float(np.linalg.norm(total))
