"""Maximum likelihood without samples: gradients from the moments of a component (paper, Section 4).

The expected gradient of a log-likelihood is written as

    g(theta) = known(theta) + sum_j  M_j E[s h_j(w_j's)] + v_j E[h_j(w_j's)],

ridge functions h_j of one projection each, times s or 1. Each h_j is, or is approximated by, a polynomial
sum_k c_k z^k, so that only projected moments E[s (w's)^k] are needed: nothing of size d^t is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.polynomial import chebyshev, hermite_e, polynomial

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.storage import storable

_NODES, _WEIGHTS = hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_SMALL = 100  # parameters up to which the whole Hessian is differenced


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

    theta : (p,); trajectory : (iterations + 1, p); converged : the gradient fell below the tolerance.
    mu, H : smallest and largest curvature of the (approximate) objective at theta.
    epsilon : estimated error of the gradient due to the polynomials, for a Gaussian component (sampling error excluded).
    error_bound : 8 epsilon^2 / mu^2, on |theta - theta*|^2 (paper, lemma on approximate gradients); inf if mu <= 0.
    step_size : 1 / (2 H) at the start, unless given; halved where the gradient grew.
    """

    theta: Array
    trajectory: Array
    converged: bool
    mu: float
    H: float
    epsilon: float
    error_bound: float
    step_size: float


def approximate(
    function: Callable[[Array], Array],
    degree: int,
    method: str = "chebyshev",
    interval: tuple[float, float] = (-1.85, 1.85),
) -> Array:
    """Coefficients (degree + 1,), lowest first, of a polynomial close to a function.

    method : "chebyshev", the truncated Chebyshev series on the interval; "taylor", about its midpoint;
    "quadrature", least squares under the Gaussian whose mean +- 3 standard deviations are the interval.

    >>> (approximate(lambda z: 1 / (1 + np.exp(-z)), 3).round(3) + 0.0).tolist()
    [0.5, 0.245, 0.0, -0.014]
    """
    if degree < 0:
        raise ValueError(f"degree must be at least 0, got {degree}")
    low, high = interval
    if not low < high:
        raise ValueError(f"interval must be (low, high) with low < high, got {interval!r}")
    middle, half = (low + high) / 2, (high - low) / 2
    if method == "chebyshev":
        series = _series(function, middle, half, max(64, 2 * degree))
        inner, scale = chebyshev.cheb2poly(series[: degree + 1]), half
    elif method == "taylor":
        scale = 0.5  # derivatives at the midpoint, from a series that is exact to rounding on a short interval
        series = _series(function, middle, scale, max(18, degree + 8))
        inner = chebyshev.cheb2poly(series)[: degree + 1]
    elif method == "quadrature":
        scale = half / 3
        at = function(middle + scale * _NODES)
        norms = np.cumprod(np.r_[1.0, np.arange(1, degree + 1)])
        coefficients = [
            float(np.sum(_WEIGHTS * at * hermite_e.hermeval(_NODES, np.eye(degree + 1)[k]))) / norms[k]
            for k in range(degree + 1)
        ]
        inner = hermite_e.herme2poly(coefficients)
    else:
        raise ValueError(f"approximation must be 'chebyshev', 'taylor' or 'quadrature', got {method!r}")
    return _substitute(np.asarray(inner, dtype=np.float64), middle, scale, degree)


def _series(function: Callable[[Array], Array], middle: float, half: float, degree: int) -> Array:
    """Chebyshev coefficients (degree + 1,) of a function on middle +- half, by interpolation."""
    nodes = chebyshev.chebpts1(degree + 1)
    values = np.asarray(function(middle + half * nodes), dtype=np.float64)
    series = chebyshev.chebvander(nodes, degree).T @ values / (degree + 1)
    series[1:] *= 2
    return np.asarray(series)


def _substitute(inner: Array, middle: float, scale: float, degree: int) -> Array:
    """Coefficients in z of sum_k inner_k ((z - middle) / scale)^k, padded to degree + 1."""
    shift = np.array([-middle / scale, 1 / scale])
    total: Array = np.zeros(1)
    for c in inner[::-1]:
        total = polynomial.polyadd(polynomial.polymul(total, shift), [c])
    out = np.zeros(degree + 1)
    kept = total[: degree + 1]
    out[: len(kept)] = kept
    return out


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


def fit_likelihood(
    component: Component,
    likelihood: Likelihood,
    *,
    start: Array | None = None,
    degree: int = 3,
    approximation: str = "chebyshev",
    interval: tuple[float, float] | None = None,
    step_size: float | None = None,
    max_iter: int = 2000,
    tol: float = 1e-6,
    ridge: float = 0.0,
    confine: Callable[[Array], Array] | None = None,
    check: bool = True,
) -> LikelihoodFit:
    """Maximise E[log-likelihood] over theta by gradient steps, from the moments of a component (paper, Section 4).

    Parameters
    ----------
    likelihood : Likelihood
        States its gradient as ridge functions; checked against differences of its own log-likelihood first.
    start : (p,); zeros with one entry per column of the component by default.
    degree, approximation, interval :
        How functions become polynomials, see `richcomponents.learning.likelihood.approximate`. The component must keep
        cumulants of order degree + 1. By default the interval follows theta: mean +- 3 standard deviations of w's.
    step_size : float, optional
        By default 1 / (2 H), H the largest curvature at the start.
    ridge : float
        l2 penalty, ridge |theta|^2 / 2.
    confine : callable, optional
        Maps theta (p,) back into the region where the polynomials hold, after every step.

    Returns
    -------
    LikelihoodFit

    Examples
    --------
    >>> import richcomponents as rc
    >>> from richcomponents.paper.gradient import LogisticLikelihood
    >>> data = rc.datasets.make_contrastive(20_000, d=3, S1="logistic", S2="skewed", A="good", random_state=1)
    >>> component = rc.ContrastiveRCA(views=3, mean={"S1": np.zeros(3)}).fit(data.X).components_["S1"]
    >>> cross = (data.U.T @ (data.y - data.y.mean())) / len(data.y)  # Cov(U, y) = Cov(S1, y)
    >>> likelihood = LogisticLikelihood.of(component, cross, float(data.y.mean()), fit_intercept=False)
    >>> fit = fit_likelihood(component, likelihood)
    >>> fit.converged, fit.theta.shape
    (True, (3,))
    """
    theta = np.zeros(len(component.mean)) if start is None else np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.isfinite(theta).all():
        raise ValueError(f"start must be a vector of finite numbers, got shape {theta.shape}")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
    if step_size is not None and not 0 < step_size < np.inf:
        raise ValueError(f"step_size must be a positive finite number, got {step_size!r}")
    if not 0 <= ridge < np.inf:
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge!r}")
    if check:
        rng = np.random.default_rng(0)
        spread = np.sqrt(np.maximum(np.diag(component.covariance), 1e-12))
        points = component.mean + spread * rng.normal(size=(5, len(component.mean)))
        check_gradient(likelihood, theta + 0.1 * rng.normal(size=len(theta)), points)
    scheme = _Scheme(component, approximation, degree, interval)

    def descent(at: Array) -> Array:
        return ridge * at - _gradient(scheme, likelihood, at)

    step = float(step_size) if step_size is not None else 1 / (2 * max(_curvature(descent, theta)[1], 1e-12))
    first = step
    g = descent(theta)
    path, size = [theta], float(np.linalg.norm(g))
    scale, converged = max(size, 1e-12), size == 0.0
    for _ in range(max_iter):
        if converged:
            break
        new = theta - step * g
        new = new if confine is None else confine(new)
        g_new = descent(new)
        size_new = float(np.linalg.norm(g_new))
        if not np.isfinite(size_new) or size_new > 1.5 * size:
            step /= 2
            if step < 1e-8 * first:
                break
            continue
        moved = float(np.linalg.norm(new - theta)) / step
        theta, g, size = new, g_new, size_new
        path.append(theta)
        converged = moved <= tol * scale
    mu, largest = _curvature(descent, theta)
    epsilon = _gradient_error(scheme, likelihood, theta)
    bound = 8 * epsilon**2 / mu**2 if mu > 0 else np.inf
    return LikelihoodFit(theta, np.stack(path), converged, mu, largest, epsilon, float(bound), first)


def _curvature(descent: Callable[[Array], Array], theta: Array) -> tuple[float, float]:
    """Smallest and largest curvature at theta: by differences, or by power iterations for many parameters."""
    p, step = len(theta), 1e-4

    def times(x: Array) -> Array:
        return (descent(theta + step * x) - descent(theta - step * x)) / (2 * step)

    if p <= _SMALL:
        matrix = np.stack([times(e) for e in np.eye(p)])
        values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
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
