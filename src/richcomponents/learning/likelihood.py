"""Maximum likelihood without samples: gradients from the moments of a component (paper, Section 4).

The model is its log-likelihood; polynomials for its gradient, and their means, are those of :mod:`.expectation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import symmetric
from richcomponents.components import Component
from richcomponents.learning.expectation import Differentiated, LogLikelihood, MomentMean, SampleMean, check_degree
from richcomponents.learning.solvers import minimise, slopes
from richcomponents.storage import storable


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
    theta = np.zeros(len(component.mean)) if start is None else np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.isfinite(theta).all():
        raise ValueError(f"start must be a vector of finite numbers, got shape {theta.shape}")
    check_degree(degree)
    if gradient not in ("differences", "jax"):
        raise ValueError(f"gradient must be 'differences' or 'jax', got {gradient!r}")
    if not callable(likelihood):
        raise TypeError(f"likelihood must be a function log_likelihood(theta, s), got {type(likelihood).__name__}")
    mean = MomentMean(Differentiated(likelihood, gradient == "jax"), component, degree)
    return maximise(mean, theta, **climb)


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
