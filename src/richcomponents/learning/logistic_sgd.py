"""Logistic regression by stochastic gradients over mini-batches: of a hidden component, and of true samples beside it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component, RowSource
from richcomponents.learning.likelihood import expected_gradient
from richcomponents.learning.logistic_moments import LogisticLikelihood
from richcomponents.learning.sgd import SGDResult, robbins_monro, sgd

__all__ = ["exact_sgd", "polynomial_sgd"]


def polynomial_sgd(
    likelihood: LogisticLikelihood,
    residual: Array,
    y: Array,
    *,
    approximation: str,
    degree: int,
    batch_size: int,
    n_steps: int,
    random_state: int | np.random.Generator | None,
) -> SGDResult:
    """The paper's stochastic gradient: the polynomial gradient with everything but A measured on a mini-batch.

    residual : (n, d), stands in for s in Cov(s, y); y : (n,) of 0 and 1; the component of the likelihood reads its cumulants
    off the same n rows (ContrastiveRCA.component_on_rows). The products of cumulants of one batch in E[s w^3] = k4 + 3 k2 k2
    have a bias of order 1 / batch_size.
    """
    source = likelihood.component.source
    if not isinstance(source, RowSource):
        raise TypeError("mini-batches need a component that reads rows: ContrastiveRCA.component_on_rows(X)")

    def gradient(theta: Array, rows: IntArray) -> Array:
        component = likelihood.component.measured_on(source.take(rows), degree + 1)
        level = float(y[rows].mean())
        cross = residual[rows].T @ (y[rows] - level) / max(len(rows) - 1, 1)
        batch = likelihood.observed(cross, level)
        return -expected_gradient(component, batch, theta, degree=degree, approximation=approximation)

    return _steps(gradient, likelihood, len(y), batch_size, n_steps, random_state, likelihood.confine)


def exact_sgd(
    samples: Array,
    y: Array,
    alpha: float,
    *,
    fit_intercept: bool = True,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int | np.random.Generator | None = None,
) -> tuple[SGDResult, LogisticLikelihood]:
    """Mini-batch logistic regression on true samples (n, d), centred if there is an intercept: the sigmoid itself.

    The same coordinates and steps as :func:`polynomial_sgd`, so that the two trajectories can be laid over each other.
    """
    n, d = samples.shape
    second = samples.T @ samples / n
    empty = Component("samples", tuple(map(str, range(d))), np.zeros(d), second)
    frame = LogisticLikelihood.of(empty, np.zeros(d), 0.0, alpha=alpha, fit_intercept=fit_intercept)
    design = samples @ frame.root

    def gradient(theta: Array, rows: IntArray) -> Array:
        a, q = frame.split(theta)
        gap = expit(a + design[rows] @ q) - y[rows]
        by_q = design[rows].T @ gap / len(rows) + alpha * (frame.root.T @ (frame.root @ q))
        return np.concatenate([[gap.mean()], by_q]) if fit_intercept else by_q

    return _steps(gradient, frame, n, batch_size, n_steps, random_state, None), frame


def _steps(
    gradient: Callable[[Array, IntArray], Array],
    frame: LogisticLikelihood,
    n: int,
    batch_size: int,
    n_steps: int,
    random_state: int | np.random.Generator | None,
    projection: Callable[[Array], Array] | None,
) -> SGDResult:
    """In the coordinates (a, q) the largest curvature is 1/4, at zero; where the signal is strong it falls, here by 4."""
    p = int(frame.intercept) + frame.root.shape[1]
    return sgd(
        gradient,
        np.zeros(p),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(1 / 16, 1 / 4, excess=p / min(batch_size, n)),
        projection=projection,
        random_state=random_state,
    )
