"""The way to a minimum, and penalised least squares from moments: no rows, only E[s s'] and E[s y]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from sklearn.linear_model import ElasticNet

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import whitening


def minimise(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    **options: float,
) -> Array:
    """The point near `start` (p,) where an objective, x -> (value, gradient), is least, by L-BFGS-B.

    options : those of scipy (maxiter, maxcor, ftol, gtol).

    >>> minimise(lambda x: (float((x - 2) @ (x - 2)), 2 * (x - 2)), np.zeros(2)).round(6).tolist()
    [2.0, 2.0]
    """
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


Proximal = Callable[[Array, float], Array]
"""theta (p,), step -> argmin over x of penalty(x) + |x - theta|^2 / (2 step)."""


def shrink(lasso: float | Array, ridge: float | Array) -> Proximal:
    """The proximal map of lasso |theta|_1 + ridge |theta|^2 / 2: soft thresholds, then a factor; arrays (p,) weigh each
    parameter.

    >>> shrink(1.0, 0.0)(np.array([3.0, -0.5]), 1.0).tolist()
    [2.0, -0.0]
    """

    def of(theta: Array, step: float) -> Array:
        return np.asarray(np.sign(theta) * np.maximum(np.abs(theta) - step * lasso, 0.0) / (1 + step * ridge))

    return of


@dataclass(frozen=True)
class Descent:
    """Where proximal steps led: theta (p,); converged."""

    theta: Array
    converged: bool


def proximal_steps(
    gradient: Callable[[Array], Array],
    start: Array,
    step: float,
    proximal: Proximal,
    *,
    value: Callable[[Array], float] | None = None,
    constant: bool = False,
    max_iter: int = 2000,
    tol: float = 1e-6,
) -> Descent:
    """theta <- proximal(theta - step gradient(theta)), to where a step moves theta by no more than tol of the first gradient.

    step : the first; later ones follow the curvature along the last move (Barzilai and Borwein; Wright, Nowak and Figueiredo
    2009) unless `constant`. A step is halved where it neither lowers the largest of the last five values (of the penalised
    objective) nor keeps the gradient from growing; without values, where the gradient grows by half.

    >>> found = proximal_steps(lambda x: x - 3.0, np.zeros(2), 0.5, shrink(np.array([0.0, 1.0]), 0.0))
    >>> found.theta.round(5).tolist(), found.converged
    ([3.0, 2.0], True)
    """
    theta, first = np.array(start, dtype=np.float64), step
    g = gradient(theta)
    size = float(np.linalg.norm(g))
    values = [] if value is None else [value(theta)]
    scale, converged = max(size, 1e-12), size == 0.0
    for _ in range(max_iter):
        if converged:
            break
        new = proximal(theta - step * g, step)
        move = new - theta
        g_new, value_new = _tried(gradient, value, new)
        size_new = float(np.linalg.norm(g_new))
        falls = value is None or value_new <= max(values[-5:]) - 1e-4 * float(move @ move) / (2 * step)
        if (
            not np.isfinite(size_new)
            or not (falls or size_new <= 0.9 * size)
            or (value is None and size_new > 1.5 * size)
        ):
            step /= 2
            if step < 1e-8 * first:
                break
            continue
        moved = float(np.linalg.norm(move)) / step
        bend = float(move @ (g_new - g))
        theta, g, size = new, g_new, size_new
        values.append(value_new)
        converged = moved <= tol * scale
        if not constant and moved > 0:
            step = min(float(move @ move) / bend, 100 * first) if bend > 0 else min(2 * step, 100 * first)
    return Descent(theta, converged)


def _tried(
    gradient: Callable[[Array], Array], value: Callable[[Array], float] | None, theta: Array
) -> tuple[Array, float]:
    """Gradient and value where a step leads, not numbers where they are not defined."""
    try:
        return gradient(theta), np.nan if value is None else value(theta)
    except FloatingPointError:
        return np.full_like(theta, np.nan), np.nan


def elastic_net(gram: Array, cross: Array, alpha: float, l1_ratio: float) -> Array:
    """argmin_w  w' gram w / 2 - cross' w + alpha (l1_ratio |w|_1 + (1 - l1_ratio) |w|^2 / 2), shape (d,).

    The objective of scikit-learn's ElasticNet. l1_ratio = 0: closed form (ridge, or least squares for alpha = 0);
    otherwise coordinate descent with soft thresholds.

    >>> elastic_net(np.eye(2), np.array([2.0, 0.3]), 0.5, 1.0).tolist()
    [1.5, 0.0]
    """
    ridge, lasso = alpha * (1 - l1_ratio), alpha * l1_ratio
    if lasso == 0:
        return np.asarray(np.linalg.pinv(gram + ridge * np.eye(len(cross)), hermitian=True) @ cross)
    white, back = whitening(gram)  # rows of back' with the same products are as good as the samples
    rows, y = back.T * np.sqrt(len(white)), white @ cross * np.sqrt(len(white))
    model = ElasticNet(alpha, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-10, max_iter=20_000)
    return np.asarray(model.fit(rows, y).coef_)


def penalised(features: Array, y: Array, alpha: float | Array, l1_ratio: float, weight: Array | None = None) -> Array:
    """The same from centred rows, features (n, d) and y (n,): (d,), or (m, d) for m penalties; weight : (n,), how often each
    row counts, once by default.

    Ridge on more columns than rows is solved among the rows, w = F' (F F' + n alpha)^-1 y: nothing of size d x d.
    """
    n, alphas = float(len(features) if weight is None else weight.sum()), np.atleast_1d(alpha)
    weight = np.ones(len(features)) if weight is None else weight
    if l1_ratio == 0 and features.shape[1] > len(features) and np.all(alphas > 0):
        features, y = features * np.sqrt(weight)[:, None], y * np.sqrt(weight)
        values, vectors = np.linalg.eigh(features @ features.T / n)
        inner = (vectors.T @ y) / (np.maximum(values, 0.0) + alphas[:, None])  # (m, n)
        paths = inner @ vectors.T @ features / n
    else:
        counted = (features * weight[:, None]).T
        gram, cross = counted @ features / n, counted @ y / n
        paths = np.stack([elastic_net(gram, cross, float(a), l1_ratio) for a in alphas])
    return np.asarray(paths if np.ndim(alpha) else paths[0])


def penalty_grid(gram: Array, cross: Array, l1_ratio: float) -> Array:
    """Decreasing penalties, from the one that silences everything to a ten-thousandth of it (of ten times the largest
    eigenvalue of gram for ridge, which nothing silences)."""
    top = float(np.abs(cross).max()) / l1_ratio if l1_ratio > 0 else 10 * float(np.linalg.eigvalsh(gram)[-1])
    return np.asarray(np.geomspace(max(top, 1e-12), max(top, 1e-12) * 1e-4, 30))
