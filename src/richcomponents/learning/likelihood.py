"""Maximum likelihood without samples: E[log L(theta; s)] and its gradient for any differentiable log-likelihood, from moments
of s alone (paper, Section 4).

The gradient G(s) = d/dtheta log L(theta; s) bends in a few directions only, and is linear in s across them: with z the
standardised projections of s on these and r what is uncorrelated with them,

    G(s) = a(z) + B(z) r.

a is replaced by a polynomial of total degree k + 1 and B by one of degree k, so that moments of order k + 1 suffice. Least
squares under a standard Gaussian (a Hermite series) is linear in values of the function at certain nodes z_i: the coefficient
of z^alpha is sum_i C_{alpha i} h(z_i). So are the means, E[h(z)] ~ sum_i (C'm)_i h(z_i) with m_alpha = E[z^alpha], and

    E[G] ~ sum_i m_i G(x_i) + sum_i (c_i / 2h) (G(x_i + h e_i) - G(x_i - h e_i)),

x_i the points of the nodes, m_i and c_i e_i their moments: a rule of points with weights of both signs, and the gradient is
that of theta -> sum w_j log L(theta; x_j) with the points held. What the user gives is one function of (theta, s); its
derivative by theta is taken by differences or by jax. Polynomials of several variables are sums of powers of single
projections (v_j'z)^n, so that all moments are projected ones (:meth:`Component.projected_moments`): nothing of size d^n is
formed.

Under the Gaussian with the mean and covariance of s, the series is the projection on polynomials of degree k + 1, whatever
the directions: E[log L] itself is replaced by a function of theta whose gradient this is (E of log L under a Gram-Charlier
series of s), and it is bounded where the likelihood is.

The directions are those that d/ds d/du log L spans for each of a few directions u of theta: besides the bends each spans a few
directions more, which differ from u to u.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from math import comb
from typing import Any

import numpy as np
from numpy.polynomial import hermite_e
from scipy.special import factorial, ndtri
from scipy.stats import qmc
from sklearn.preprocessing import PolynomialFeatures

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import symmetric, whitening
from richcomponents.components import Component
from richcomponents.components.component import check_order
from richcomponents.learning.solvers import minimise, slopes
from richcomponents.storage import storable

LogLikelihood = Callable[[Array, Array], Any]
"""theta (p,), samples (m, d) -> (m,)."""

_STEP = np.finfo(float).eps ** (1 / 3)  # of differences by theta, relative to a parameter above one
_MIXED = np.finfo(float).eps ** (1 / 5)  # of differences by theta and s

MOST_TERMS = 1001
"""Coefficients of a polynomial: degree four in ten variables."""


# ---- fits


@storable
@dataclass(frozen=True)
class LikelihoodFit:
    """The result of :func:`fit_likelihood`.

    theta : (p,); converged : the gradient there is less than the tolerance times that at the start.
    mu, H : smallest and largest curvature of the (approximate) objective at theta.
    epsilon : estimated error of the gradient due to the polynomials, for a Gaussian component (sampling error excluded); with
    heavy tails the true error can be larger, and grow with the degree.
    error_bound : 8 epsilon^2 / mu^2, on |theta - theta*|^2 (paper, lemma on approximate gradients); inf if mu <= 0.
    value : E[log-likelihood] at theta, penalties not subtracted.
    restarts : (1 + n_restarts,), penalised values that were reached, of which the best was taken.
    """

    theta: Array
    converged: bool
    mu: float
    H: float
    epsilon: float
    error_bound: float
    value: float
    restarts: Array


def fit_likelihood(
    component: Component,
    likelihood: LogLikelihood,
    *,
    start: Array | None = None,
    degree: int = 3,
    gradient: str = "differences",
    **climb: Any,
) -> LikelihoodFit:
    """Maximise E[log-likelihood] over theta (L-BFGS), from the moments of a component (paper, Section 4).

    Parameters
    ----------
    likelihood : callable
        log_likelihood(theta (p,), s (m, d)) -> (m,), for all real s, differentiable; terms without theta may be left out. Its
        gradient is taken by differences or by jax, and its polynomials in those directions of s in which it is not linear, up
        to 1 001 terms of a polynomial (10 directions at degree 3, 5 at degree 5): those that matter most are kept, and what
        the others miss is in epsilon. A mean that is known without the component, such as E[s y] measured on rows, is a
        constant in it: theta @ E[s y].
    start : (p,); zeros with one entry per column of the component by default.
    degree : int
        Of the polynomials that multiply s in the gradient; the component must keep cumulants of order degree + 1.
    ridge : float or (p,)
        Penalty ridge |theta|^2 / 2; an array weighs each parameter (0 for intercepts).
    gradient : {"differences", "jax"}
        By theta; "jax" for functions written with jax.numpy, if jax is installed.
    n_restarts, restart_scale, random_state :
        For models with several maxima: further starts, `start` plus Gaussians of this standard deviation; the best is kept.
    max_iter, tol :
        Of each climb: 2000 steps, until the gradient is less than 1e-6 of that at the start.

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
    theta = checked_start(np.zeros(len(component.mean)) if start is None else start, degree, gradient)
    if not callable(likelihood):
        raise TypeError(f"likelihood must be a function log_likelihood(theta, s), got {type(likelihood).__name__}")
    mean = MomentMean(Differentiated(likelihood, gradient == "jax"), component, degree)
    return maximise(mean, theta, **climb)


def checked_start(start: Any, degree: int, gradient: str) -> Array:
    """Where to begin, (p,); refuses impossible options of a likelihood."""
    theta = np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.isfinite(theta).all():
        raise ValueError(f"start must be a vector of finite numbers, got shape {theta.shape}")
    if gradient not in ("differences", "jax"):
        raise ValueError(f"gradient must be 'differences' or 'jax', got {gradient!r}")
    if isinstance(degree, bool) or not isinstance(degree, (int, np.integer)) or degree < 0:
        raise ValueError(f"degree must be an integer, at least 0, got {degree!r}")
    check_order(int(degree) + 1)
    return theta


def maximise(
    mean: MomentMean | SampleMean,
    start: Array,
    *,
    max_iter: int = 2000,
    tol: float = 1e-6,
    ridge: float | Array = 0.0,
    n_restarts: int = 0,
    restart_scale: float = 1.0,
    random_state: int | np.random.Generator | None = 0,
) -> LikelihoodFit:
    """The best of several climbs of an expected log-likelihood; parameters as in :func:`fit_likelihood`."""
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
    if not np.all((np.asarray(ridge) >= 0) & (np.asarray(ridge) < np.inf)):
        raise ValueError(f"ridge must be a finite number >= 0, or one per parameter, got {ridge!r}")
    if n_restarts < 0:
        raise ValueError(f"n_restarts must be at least 0, got {n_restarts}")

    def slope(at: Array) -> Array:
        return np.asarray(ridge * at - mean.gradient(at))

    def objective(at: Array) -> tuple[float, Array]:
        try:
            return float(np.sum(ridge * at**2 / 2)) - mean.value(at), slope(at)
        except FloatingPointError:  # a step has left the domain
            return np.inf, np.zeros_like(at)

    first = slope(start)
    if not (np.isfinite(first).all() and np.isfinite(mean.value(start))):
        raise ValueError(
            f"the log-likelihood, or its gradient, is not finite at start={np.asarray(start).tolist()}: it must be defined for "
            "all real s, not only for those of the samples. Begin elsewhere (start=), or write it so that it is"
        )
    rng = np.random.default_rng(random_state)
    starts = [start, *(start + restart_scale * rng.normal(size=len(start)) for _ in range(n_restarts))]
    least = tol * max(float(np.linalg.norm(first)), 1e-12)
    options = {"maxiter": max_iter, "ftol": 0.0, "gtol": least / np.sqrt(len(start))}
    climbs = [minimise(objective, begin, **options) for begin in starts]
    reached = np.array([-objective(at)[0] for at in climbs])
    theta = climbs[int(np.nanargmax(reached))]
    H = hessian(mean, theta) + np.diag(np.broadcast_to(ridge, len(theta)))
    mu, largest = map(float, np.linalg.eigvalsh(H)[[0, -1]])
    if mu > 0:  # a gradient still tells what the rounding of values hides from a line search
        nearer = theta - np.linalg.solve(H, slope(theta))
        theta = min(theta, nearer, key=lambda at: float(np.linalg.norm(slope(at))))
    epsilon = mean.error(theta)
    bound = 8 * epsilon**2 / mu**2 if mu > 0 else np.inf
    converged = bool(np.linalg.norm(slope(theta)) <= least)
    return LikelihoodFit(theta, converged, mu, largest, epsilon, float(bound), mean.value(theta), reached)


def hessian(mean: MomentMean | SampleMean, theta: Array) -> Array:
    """H (p, p), minus the second derivative of the expected log-likelihood, by differences."""
    return symmetric(slopes(lambda at: -mean.gradient(at), theta))


# ---- means


@dataclass(frozen=True)
class Differentiated:
    """A log-likelihood with its derivative by theta: by differences, or by jax (the function must be written for it)."""

    function: LogLikelihood
    by_jax: bool = False

    def values(self, theta: Array, x: Array) -> Array:
        """(m,), checked."""
        with self._precision():
            values = np.asarray(self.function(theta, x), dtype=np.float64)
        if values.shape != (len(x),):
            raise ValueError(
                f"log_likelihood must give one number per sample: {len(x)} samples gave an array of shape {values.shape}"
            )
        return values

    def gradient(self, theta: Array, x: Array, weights: Array) -> Array:
        """d/dtheta sum_i weights_i log L(theta; x_i), (p,)."""
        if not self.by_jax:
            return weights @ self.by_sample(theta, x)
        with self._precision():
            jax = _jax()
            return np.asarray(jax.grad(lambda at: weights @ self.function(at, x))(jax.numpy.asarray(theta)), np.float64)

    def by_sample(self, theta: Array, x: Array) -> Array:
        """d/dtheta log L(theta; x_i), (m, p), by differences."""
        return slopes(lambda at: self.values(at, x), theta, _STEP * np.maximum(1.0, np.abs(theta))).T

    def _precision(self) -> AbstractContextManager[Any]:
        return _jax().enable_x64(True) if self.by_jax else nullcontext()


def _jax() -> Any:
    try:
        return import_module("jax")
    except ImportError as problem:
        raise ImportError(
            "gradient='jax' needs the package jax, which is not installed: use 'differences'"
        ) from problem


@dataclass(frozen=True)
class SampleMean:
    """The mean over samples (n, d) that are there: what moments are compared with."""

    log_likelihood: Differentiated
    samples: Array

    def value(self, theta: Array) -> float:
        return float(np.mean(self.log_likelihood.values(theta, self.samples)))

    def gradient(self, theta: Array) -> Array:
        n = len(self.samples)
        return self.log_likelihood.gradient(theta, self.samples, np.full(n, 1 / n))

    def error(self, theta: Array) -> float:
        return 0.0


@dataclass(frozen=True)
class Rule:
    """E[grad log L] ~ weights @ grad log L(points), (m,) and (m, d); the first `nodes` of them alone give E[log L].

    directions : (k, q), in which the gradient is not linear, orthonormal in standardised coordinates."""

    directions: Array
    nodes: int
    points: Array
    weights: Array


@dataclass(frozen=True)
class MomentMean:
    """The mean over a component, by its moments. degree : of B."""

    log_likelihood: Differentiated
    component: Component
    degree: int = 3
    _last: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def value(self, theta: Array) -> float:
        rule = self.rule(theta)
        return float(rule.weights[: rule.nodes] @ self._finite(theta, rule.points[: rule.nodes]))

    def gradient(self, theta: Array) -> Array:
        rule = self.rule(theta)
        self._finite(theta, rule.points)
        return self.log_likelihood.gradient(theta, rule.points, rule.weights)

    def error(self, theta: Array) -> float:
        """Root mean square of what the polynomials miss of the gradient if s were Gaussian, over all parameters, but for what
        is odd in r: its mean is zero."""
        rule, degree = self.rule(theta), self.degree + 1
        Q, q = rule.directions, rule.directions.shape[1]
        z, weights = gaussian_points(q, degree, seed=1)
        from_nodes = monomials(z, degree) @ series(q, degree, degree)
        fitted = from_nodes @ self.log_likelihood.by_sample(theta, rule.points[: rule.nodes])
        rests = np.random.default_rng(1).normal(size=(4 if q < len(Q) else 1, len(Q)))
        missed = 0.0
        for r in rests - rests @ Q @ Q.T:
            both = [self.log_likelihood.by_sample(theta, self._at(z @ Q.T + side * r)) for side in (-1, 1)]
            missed += float(np.sum(weights @ ((both[0] + both[1]) / 2 - fitted) ** 2)) / len(rests)
        return float(np.sqrt(missed))

    def rule(self, theta: Array) -> Rule:
        """At theta; the last one is kept while the directions stay."""
        last, key = self._last.get("rule"), theta.tobytes()
        if self._last.get("theta") != key:
            Q = self._bent(theta)
            if last is None or not np.array_equal(Q, last.directions):
                self._last["rule"] = self._made_rule(Q)
            self._last["theta"] = key
        rule: Rule = self._last["rule"]
        return rule

    @cached_property
    def _white(self) -> tuple[Array, Array]:
        """s - mean -> standardised coordinates (k, d), and back (d, k)."""
        return whitening(self.component.covariance)

    def _at(self, white: Array) -> Array:
        """Samples (m, d) at standardised coordinates (m, k)."""
        return np.asarray(self.component.mean + white @ self._white[1].T)

    def _finite(self, theta: Array, x: Array) -> Array:
        values = self.log_likelihood.values(theta, x)
        if not np.isfinite(values).all():
            at = ", ".join(f"{number:.3g}" for number in x[int(np.argmin(np.isfinite(values)))])
            raise FloatingPointError(
                f"log_likelihood is not finite at s = ({at}), which lies where the component does or near it, at theta = "
                f"{np.array2string(theta, precision=3, threshold=8)}: write it for all real s (and y), with parameters that "
                "may be any number (logarithms of positive ones), and leave out terms without theta"
            )
        return values

    def _bent(self, theta: Array) -> Array:
        """The directions: those in the span of d/ds d/du log L for each of a few directions u of theta."""
        k, rng = len(self._white[0]), np.random.default_rng(0)
        w = rng.normal(size=(24, k))
        shifts = np.vstack([np.eye(k), -np.eye(k)]) * _MIXED
        x = self._at((w[:, None, :] + shifts[None]).reshape(-1, k))
        projectors, energy = [], np.zeros((k, k))
        for u in rng.normal(size=(3, len(theta))):
            step = _MIXED * max(1.0, float(np.abs(theta).max(initial=0.0))) * u / np.linalg.norm(u)
            change = (self._finite(theta + step, x) - self._finite(theta - step, x)).reshape(len(w), 2, k)
            bends = (change[:, 0] - change[:, 1]) / (4 * _MIXED * np.linalg.norm(step))  # d/dw d/du log L, (points, k)
            _, sizes, rows = np.linalg.svd(bends, full_matrices=False)
            seen = rows[sizes > 1e-4 * max(float(sizes[0]), 1e-12)]  # the others are rounding
            projectors.append(seen.T @ seen)
            energy += bends.T @ bends
        values, vectors = np.linalg.eigh(np.mean(projectors, axis=0))
        common = vectors[:, values > 0.99]  # in all spans
        limit = max(n for n in range(1, k + 1) if n == 1 or comb(n + self.degree + 1, n) <= MOST_TERMS)
        if common.shape[1] == 0:
            return np.eye(k)[:, :1]
        if common.shape[1] > limit:  # those that matter most; the others count as if the gradient were linear in them
            common = common @ np.linalg.eigh(common.T @ energy @ common)[1][:, ::-1][:, :limit]
        if common.shape[1] == k:
            return np.eye(k)
        # which basis of the span does not matter to Hermite series, but points scattered in it must not jump with theta
        left, _, right = np.linalg.svd(common.T @ rng.normal(size=common.shape))
        return np.asarray(common @ left @ right)

    def _made_rule(self, Q: Array) -> Rule:
        (white, _), degree, q = self._white, self.degree, Q.shape[1]
        scalars, vectors = moments_along(self.component, white.T @ Q, degree)
        level = series(q, degree + 1, degree + 1).T @ scalars
        across = series(q, degree, degree + 1).T @ vectors @ white.T  # (m, k): E[w t^alpha] at the nodes
        across -= across @ Q @ Q.T
        size = np.linalg.norm(across, axis=1)
        at = gaussian_points(q, degree + 1)[0] @ Q.T
        kept, half = np.flatnonzero(size > 1e-14), 0.5  # standard deviations of a step across the directions
        step, slope = half * across[kept] / size[kept, None], size[kept] / (2 * half)
        points = self._at(np.vstack([at, at[kept] + step, at[kept] - step]))
        return Rule(Q, len(at), points, np.concatenate([level, slope, -slope]))


# ---- polynomials


def monomials(points: Array, degree: int) -> Array:
    """(m, q): the monomials of points (m, k) up to a total degree, lowest first."""
    return np.asarray(PolynomialFeatures(degree).fit_transform(points))


@lru_cache(maxsize=64)
def gaussian_points(variables: int, degree: int, seed: int = 0) -> tuple[Array, Array]:
    """Points (m, k) and weights (m,) of means under a standard Gaussian, enough of them for polynomials of a total degree: a
    product rule, exact for these and more, or, in many variables, scattered points of equal weight.

    seed : of others, which a fit at the first ones may be looked at with.
    """
    each = min(int((4 * MOST_TERMS if seed else 1.3 * MOST_TERMS) ** (1 / variables)), 40 + seed)
    if each < degree + 2:
        count = 2 ** int(np.ceil(np.log2(4 * comb(variables + degree, degree))))
        points = ndtri(qmc.Sobol(variables, rng=np.random.default_rng(seed)).random(count))
        return points, np.full(count, 1 / count)
    at, weights = hermite_e.hermegauss(each)
    grid = np.stack(np.meshgrid(*[at] * variables, indexing="ij"), axis=-1).reshape(-1, variables)
    product = np.prod(np.meshgrid(*[weights / weights.sum()] * variables, indexing="ij"), axis=0)
    return grid, product.ravel()


@lru_cache(maxsize=64)
def series(variables: int, degree: int, most: int) -> Array:
    """(q, m): values at the Gaussian points for a degree `most` -> coefficients of the monomials up to this degree of the
    polynomial that is nearest under the Gaussian; exact for polynomials."""
    points, weights = gaussian_points(variables, most)
    root, basis = np.sqrt(weights)[:, None], monomials(points, degree)
    orthonormal, to_monomials = np.linalg.qr(root * basis)
    return np.asarray(np.linalg.solve(to_monomials, orthonormal.T * root.T))


@lru_cache(maxsize=64)
def _powers_of_lines(variables: int, degree: int) -> tuple[Array, tuple[Array, ...]]:
    """Directions v (J, k) and, for n = 0..degree, the matrices (monomials of degree n, J) that turn means of (v_j't)^n into
    means of monomials: (v't)^n = sum_alpha (n! / alpha!) v^alpha t^alpha, inverted."""
    more = max(comb(variables + degree - 1, degree) - variables, 0) if degree > 1 else 0
    lines = np.vstack([np.eye(variables), np.random.default_rng(0).normal(size=(more, variables))])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    features = PolynomialFeatures(degree).fit(lines)
    total = features.powers_.sum(axis=1)
    times = factorial(total) / np.prod(factorial(features.powers_), axis=1)
    every = features.transform(lines) * times
    return lines, tuple(np.linalg.pinv(every[:, total == n], rcond=1e-13) for n in range(degree + 1))


def moments_along(component: Component, maps: Array, degree: int) -> tuple[Array, Array]:
    """E[t^alpha] (q1,) up to degree + 1 and E[x t^alpha] (q, d) up to the degree, of the centred part x = s - mean, t = maps'x.

    maps : (d, k). Needs cumulants of order degree + 1.
    """
    lines, back = _powers_of_lines(maps.shape[1], degree + 1)
    centred = component.centred()
    moments = np.stack([centred.projected_moments(maps @ v, degree + 1) for v in lines])  # (J, degree + 1, d)
    vectors = np.concatenate([back[n] @ moments[:, n] for n in range(degree + 1)])
    along = np.einsum("jnd,jd->jn", moments, lines @ maps.T)  # E[(v't)^(n + 1)]
    scalars = np.concatenate([[1.0], *(back[n + 1] @ along[:, n] for n in range(degree + 1))])
    return scalars, vectors
