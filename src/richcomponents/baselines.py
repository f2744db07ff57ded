"""The simple methods, with the same inputs and the same output as the learners: one call each.

Each takes an unfitted learner (ComponentPCA, ComponentRegression, ...), makes samples that stand in for the component, and
fits a clone of the learner to them as if they were clean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.contrastive.canonical import canonical
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError

__all__ = ["cca", "covariates", "kernel_cca", "naive", "true"]


def true(learner: Any, S: object, y: object = None) -> Any:
    """The learner on samples S (n, d) of the component itself: the gold standard, in simulations only."""
    if y is None and hasattr(learner, "fit_clean"):
        return clone(learner).fit_clean(as_matrix(S))
    return _fit_samples(learner, as_matrix(S), y)


def naive(learner: Any, X: object, y: object = None) -> Any:
    """The learner on U, as if nothing were shared."""
    parts = _parts(learner, X)
    return _fit_samples(learner, parts.own, y, parts.known)


def covariates(learner: Any, X: object, y: object = None) -> Any:
    """The learner on the residual of U on V; for a regression this is V as covariates."""
    parts = _parts(learner, X)
    residual = _residual(parts.own, parts.other - parts.other.mean(axis=0))
    return _fit_samples(learner, residual, y, parts.known)


def cca(learner: Any, X: object, y: object = None, *, n_variates: int = 1) -> Any:
    """The learner on U with its first canonical variates projected out (the paper's comparison)."""
    parts = _parts(learner, X)
    U, V = parts.own, parts.other
    u, v = U - U.mean(axis=0), V - V.mean(axis=0)
    n = len(u)
    found = canonical(u.T @ u / n, u.T @ v / n, v.T @ v / n, n)
    return _fit_samples(learner, _without_directions(U, found.x_from_u[:n_variates]), y, parts.known)


def kernel_cca(
    learner: Any, X: object, y: object = None, *, n_variates: int = 1, rank: int = 50, ridge: float = 1e-2
) -> Any:
    """The learner on U after regressing out its first kernel canonical variates (Gaussian kernels, low-rank).

    Gaussian kernels with the median distance as width, `rank` random Fourier features per view, regularised by `ridge`.
    """
    parts = _parts(learner, X)
    U, V = parts.own, parts.other
    rng = np.random.default_rng(0)
    fu, fv = (_fourier_features(view, rank, rng) for view in (U, V))
    n = len(U)
    eye = ridge * np.eye(fu.shape[1])
    found = canonical(fu.T @ fu / n + eye, fu.T @ fv / n, fv.T @ fv / n + eye, n)
    variates = fu @ found.x_from_u[:n_variates].T
    return _fit_samples(learner, _residual(U, variates), y, parts.known)


@dataclass(frozen=True)
class _Parts:
    """The view that holds the component (n, d), the other one, and known covariates (n, k), centred; these are removed from
    both views."""

    own: Array
    other: Array
    known: Array


def _parts(learner: Any, X: object) -> _Parts:
    views, known = learner.unfitted_rca().read_views(X)
    if len(views) != 2:
        raise DataError("the baselines compare the two views of a ContrastiveRCA: name two views")
    if learner.component not in ("S1", "S3"):
        raise DataError(
            f"the simple methods learn what is specific to one view, 'S1' or 'S3', not {learner.component!r}"
        )
    known = known - known.mean(axis=0)
    own, other = (
        _residual(values, known) for values in list(views.values())[:: 1 if learner.component == "S1" else -1]
    )
    return _Parts(own, other, known)


def _residual(values: Array, on: Array) -> Array:
    """Values (n, d) without their regression on centred columns (n, k); means stay."""
    if not on.shape[1]:
        return values
    if len(on) <= on.shape[1] + 1:
        raise DataError(
            f"{len(on)} samples are too few for a regression on {on.shape[1]} columns (of the other view, or covariates): it "
            "leaves nothing. Use fewer columns"
        )
    return np.asarray(values - on @ np.linalg.lstsq(on, values - values.mean(axis=0), rcond=None)[0])


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


def _fit_samples(learner: Any, S: Array, y: object, known: Array | None = None) -> Any:
    """A clone of the learner, fitted to samples that stand in for the component (they need not look like it: spins).

    known : covariates (n, k), centred, that the samples are free of already; the outcome is not.
    """
    fitted = clone(learner)
    known = np.empty((len(S), 0)) if known is None else known
    if y is None:
        return fitted.fit_component(Component.of_samples(S))
    if hasattr(fitted, "fit_clean"):
        return fitted.fit_clean(S, y, covariates=known) if known.shape[1] else fitted.fit_clean(S, y)
    target = _residual(as_matrix(y, column=True), known)[:, 0]
    cross = (S - S.mean(axis=0)).T @ (target - target.mean()) / len(target)
    component = Component.of_samples(S, order=2)  # all a regression reads; fourth moments of wide tables do not fit
    return fitted.fit_component(component, cross, mean=float(target.mean()))
