"""The simple methods, with the same inputs and the same output as the learners: one call each.

Each takes an unfitted learner (ComponentPCA, ComponentRegression, ...), makes samples that stand in for the component, and
fits a clone of the learner to them as if they were clean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.contrastive.canonical import canonical
from richcomponents.errors import DataError
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.views import as_matrix, as_table

__all__ = ["cca", "covariates", "kernel_cca", "naive", "true"]


def true(learner: Any, S: object, y: object = None) -> Any:
    """The learner on samples S (n, d) of the component itself: the gold standard, in simulations only."""
    if y is None and hasattr(learner, "fit_clean"):
        return clone(learner).fit_clean(as_matrix(S))
    return _fit_samples(learner, as_matrix(S), y)


def naive(learner: Any, X: object, y: object = None) -> Any:
    """The learner on U, as if nothing were shared."""
    U, _ = _views(learner, X)
    return _fit_samples(learner, U, y)


def covariates(learner: Any, X: object, y: object = None) -> Any:
    """The learner on the residual of U on V; for a regression this is V as covariates."""
    U, V = _views(learner, X)
    v = V - V.mean(axis=0)
    return _fit_samples(learner, U - v @ np.linalg.lstsq(v, U - U.mean(axis=0), rcond=None)[0], y)


def cca(learner: Any, X: object, y: object = None, *, n_variates: int = 1) -> Any:
    """The learner on U with its first canonical variates projected out (the paper's comparison)."""
    U, V = _views(learner, X)
    u, v = U - U.mean(axis=0), V - V.mean(axis=0)
    n = len(u)
    found = canonical(u.T @ u / n, u.T @ v / n, v.T @ v / n, n)
    return _fit_samples(learner, _without_directions(U, found.x_from_u[:n_variates]), y)


def kernel_cca(
    learner: Any, X: object, y: object = None, *, n_variates: int = 1, rank: int = 50, ridge: float = 1e-2
) -> Any:
    """The learner on U after regressing out its first kernel canonical variates (Gaussian kernels, low-rank).

    Gaussian kernels with the median distance as width, `rank` random Fourier features per view, regularised by `ridge`.
    """
    U, V = _views(learner, X)
    rng = np.random.default_rng(0)
    fu, fv = (_fourier_features(view, rank, rng) for view in (U, V))
    n = len(U)
    eye = ridge * np.eye(fu.shape[1])
    found = canonical(fu.T @ fu / n + eye, fu.T @ fv / n, fv.T @ fv / n + eye, n)
    variates = fu @ found.x_from_u[:n_variates].T
    u = U - U.mean(axis=0)
    return _fit_samples(learner, U - variates @ np.linalg.lstsq(variates, u, rcond=None)[0], y)


def _views(learner: Any, X: object) -> tuple[Array, Array]:
    model = ContrastiveRCA() if learner.rca is None else learner.rca
    table = as_table(X, model.views)
    if len(table.views) != 2:
        raise DataError(f"the baselines compare two views, got {len(table.views)}")
    return table.values[:, table.views[0]], table.values[:, table.views[1]]


def _without_directions(U: Array, directions: Array) -> Array:
    q, _ = np.linalg.qr(directions.T)
    return np.asarray(U - (U - U.mean(axis=0)) @ q @ q.T)


def _fourier_features(view: Array, rank: int, rng: np.random.Generator) -> Array:
    """cos(w'x + b), centred; w ~ N(0, I / median distance^2)."""
    z = (view - view.mean(axis=0)) / np.maximum(view.std(axis=0), 1e-300)
    some = z[rng.choice(len(z), min(len(z), 200), replace=False)]
    width = np.sqrt(np.median(np.sum((some[:, None] - some[None]) ** 2, axis=-1)[np.triu_indices(len(some), 1)]))
    w, b = rng.normal(size=(z.shape[1], rank)) / max(width, 1e-12), rng.uniform(0, 2 * np.pi, rank)
    features = np.sqrt(2 / rank) * np.cos(z @ w + b)
    return np.asarray(features - features.mean(axis=0))


def _fit_samples(learner: Any, S: Array, y: object) -> Any:
    """A clone of the learner, fitted to samples that stand in for the component (they need not look like it: spins)."""
    fitted = clone(learner)
    if y is None:
        return fitted.fit_component(Component.of_samples(S))
    if hasattr(fitted, "fit_clean"):
        return fitted.fit_clean(S, y)
    target = as_matrix(y, column=True)[:, 0]
    cross = (S - S.mean(axis=0)).T @ (target - target.mean()) / len(target)
    component = Component.of_samples(S, order=2)  # all a regression reads; fourth moments of wide tables do not fit
    return fitted.fit_component(component, cross, mean=float(target.mean()))
