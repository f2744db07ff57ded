"""The way to a minimum, and penalised least squares, whose penalties know no units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize
from sklearn.linear_model import enet_path

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import counted_once, whitening


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


def slopes(function: Callable[[Array], Array], at: Array, steps: float | Array = 1e-4) -> Array:
    """Derivatives of a function of p numbers, (p, ...), by central differences; steps : one, or one for each.

    >>> slopes(lambda x: x**2, np.array([1.0, 2.0]), 1e-3).round(6).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    moves = np.diag(np.broadcast_to(steps, at.shape))
    return np.stack([(function(at + move) - function(at - move)) / (2 * move.max()) for move in moves])


def in_units(features: Array, y: Array, weight: Array | None, level: float | None = None) -> tuple[Array, Array, Array]:
    """Rows (n, d) and an outcome (n,) whose root mean squares are one, and what coefficients on these are times in the user's
    units, (d,); weight : (n,), how often each row counts; level : the outcome's unit, if not that."""
    both = np.column_stack([features, y])
    if weight is not None:
        both = counted_once(both, weight)
        both = both * np.sqrt(len(both) / weight.sum())
    rows, goal = both[:, :-1], both[:, -1]
    scale = np.sqrt(np.mean(rows**2, axis=0))
    level = level or float(np.sqrt(np.mean(goal**2))) or 1.0
    unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    return rows * unit, goal / level, unit * level


def penalised(
    features: Array,
    y: Array,
    alpha: float | Array,
    l1_ratio: float,
    weight: Array | None = None,
    level: float | None = None,
) -> Array:
    """argmin_w  |y - F w|^2 / 2n + alpha (l1_ratio |w|_1 + (1 - l1_ratio) |w|^2 / 2), of centred rows, columns and outcome in
    units of their root mean squares: the objective of scikit-learn's ElasticNet on standardised data.

    features : F (n, d); alpha : a number, or (m,) decreasing ones; weight, level : see `in_units`. Returns (d,) or (m, d), in
    the user's units. Ridge on more columns than rows is solved among the rows: nothing of size d x d.

    >>> penalised(np.array([[2.0], [-2.0]]), np.array([3.0, -3.0]), 0.5, 1.0).tolist()
    [0.75]
    """
    rows, goal, back = in_units(features, y, weight, level)
    (n, d), alphas = rows.shape, np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if l1_ratio > 0 and alphas.any():
        paths = enet_path(rows, goal, l1_ratio=l1_ratio, alphas=alphas, tol=1e-10, max_iter=20_000)[1].T
    else:
        values, vectors = np.linalg.eigh((rows.T @ rows if d <= n else rows @ rows.T) / n)
        kept = values > 1e-12 * max(float(values[-1]), 1e-300)
        values, vectors = values[kept], vectors[:, kept]
        vectors = vectors if d <= n else rows.T @ vectors / np.sqrt(n * values)
        paths = (vectors.T @ (rows.T @ goal / n) / (values + alphas[:, None])) @ vectors.T
    return np.asarray(paths * back if np.ndim(alpha) else paths[0] * back)


def elastic_net(gram: Array, cross: Array, alpha: float, l1_ratio: float, variance: float | None = None) -> Array:
    """The same from moments, gram = E[s s'] (d, d) and cross = E[s y] (d,): rows with the same products are as good as the
    samples. variance : E[y^2], which a lasso asks for; by default that of what s explains."""
    if alpha == 0:
        return np.asarray(np.linalg.pinv(gram, hermitian=True) @ cross)
    white, back = whitening(gram)
    root = np.sqrt(len(white))
    level = None if variance is None else float(np.sqrt(variance))
    return penalised(back.T * root, white @ cross * root, alpha, l1_ratio, level=level)


def penalty_grid(features: Array, y: Array, l1_ratio: float, weight: Array | None = None) -> Array:
    """Decreasing penalties, from the one that silences everything, also after rounding, to a ten-thousandth of it (of ten times
    the largest eigenvalue of the correlations for ridge, which nothing silences)."""
    rows, goal, _ = in_units(features, y, weight)
    silent = (1 + 1e-12) * float(np.abs(rows.T @ goal).max()) / max(l1_ratio, 1e-300)
    top = (silent if l1_ratio > 0 else 10 * float(np.linalg.norm(rows, 2)) ** 2) / len(rows)
    return np.asarray(np.geomspace(max(top, 1e-12), max(top, 1e-12) * 1e-4, 30))
