"""One draw of a setting of the paper, and what each method makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents import baselines
from richcomponents.algebra import Array
from richcomponents.datasets import make_contrastive
from richcomponents.learning.mixture import match_centres
from richcomponents.models import (
    ComponentGaussianMixture,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)

__all__ = ["Problem", "descend", "draw", "fit"]


@dataclass(frozen=True)
class Problem:
    """A draw with known truth, the learner for it, and the error of what was learned.

    S1 : (n, d), hidden; X : (n, d + d_v), the views U and V; A : (d_v, d), hidden; y : (n,) or None;
    learner : ContrastiveRCA -> learner of S1; parameters : fitted learner -> what was learned;
    error : what was learned -> mean squared error.
    """

    S1: Array
    X: Array
    A: Array
    y: Array | None
    learner: Callable[[ContrastiveRCA], Any]
    parameters: Callable[[Any], Array]
    error: Callable[[Array], float]


def draw(design: Mapping[str, Any], n: int, *, mixing: str, seed: int, strength: float | None = None) -> Problem:
    """n samples of a design of settings.toml; `strength`, sd(S2) / sd(S1), rescales S2."""
    data = make_contrastive(n, **design, A=mixing, strength=strength, random_state=seed)
    learner, parameters, error = _TASKS[design["S1"]](data)
    return Problem(data.S1, data.X, data.A, data.y, learner, parameters, error)


def fit(method: str, problem: Problem) -> Any:
    """The problem's learner, fitted by a method of settings.toml."""
    d = problem.S1.shape[1]
    y = () if problem.y is None else (problem.y,)
    learner = problem.learner(ContrastiveRCA(views=d))
    match method:
        case "true":
            return baselines.true(learner, problem.S1, *y)
        case "known":
            return problem.learner(ContrastiveRCA(views=d, A=problem.A)).fit(problem.X, *y)
        case "rca":
            return learner.fit(problem.X, *y)
        case "paper":
            return problem.learner(ContrastiveRCA(views=d, method="paper")).fit(problem.X, *y)
        case "covariates":
            return baselines.covariates(learner, problem.X, *y)
        case "cca":
            return baselines.cca(learner, problem.X, *y)
        case "cca5":
            return baselines.cca(learner, problem.X, *y, n_variates=5)
        case "naive":
            return baselines.naive(learner, problem.X, *y)
    raise ValueError(f"no method {method!r}")


def descend(
    method: str, problem: Problem, steps: Array, *, batch_size: int, polynomial: Mapping[str, Any]
) -> list[float]:
    """Errors after these steps (k,) of a stochastic gradient descent; polynomial : the learner's options for the paper's
    approximate gradient."""
    if method == "default":
        return [problem.error(problem.parameters(fit("rca", problem)))] * len(steps)
    d = problem.S1.shape[1]
    y = () if problem.y is None else (problem.y,)
    rca = ContrastiveRCA(views=d, A=problem.A if method == "known" else None)
    learner = problem.learner(rca).set_params(solver="sgd", batch_size=batch_size, n_steps=int(steps[-1]))
    if method in ("rca", "known"):
        learner.set_params(**polynomial)
    elif method not in ("true", "exact"):
        raise ValueError(f"no method {method!r} for gradient steps")
    path = (learner.fit_clean(problem.S1, *y) if method == "true" else learner.fit(problem.X, *y)).trajectory_
    return [problem.error(path.coef[np.flatnonzero(path.steps == step)[0]]) for step in steps]


# ---- what is learned in each setting, and its error


def _pca(data: Any) -> tuple[Any, ...]:
    def error(top: Array) -> float:
        """A direction has no sign."""
        return min(_mse(top, data.direction), _mse(-top, data.direction))

    return (lambda rca: ComponentPCA(rca=rca)), (lambda model: model.components_[0]), error


def _regression(data: Any) -> tuple[Any, ...]:
    learner = lambda rca: ComponentRegression(rca=rca)  # noqa: E731
    return learner, (lambda model: model.coef_), (lambda beta: _mse(beta, data.beta))


def _logistic(data: Any) -> tuple[Any, ...]:
    learner = lambda rca: ComponentLogisticRegression(rca=rca)  # noqa: E731
    return learner, (lambda model: model.coef_[0]), (lambda beta: _mse(beta, data.beta))


def _mixture(data: Any) -> tuple[Any, ...]:
    k = len(data.centres)

    def error(means: Array) -> float:
        """Cumulants tell the centres up to one common shift: all methods are compared after centring."""
        return match_centres(means - means.mean(axis=0), data.centres - data.centres.mean(axis=0))[1]

    learner = lambda rca: ComponentGaussianMixture(k, rca=rca, equal_weights=True)  # noqa: E731
    return learner, (lambda model: model.means_), error


def _ising(data: Any) -> tuple[Any, ...]:
    learner = lambda rca: ComponentIsing(edges=data.edges, rca=rca)  # noqa: E731
    return learner, (lambda model: model.coef_), (lambda couplings: _mse(couplings, data.couplings))


_TASKS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "pca": _pca,
    "regression": _regression,
    "logistic": _logistic,
    "mixture": _mixture,
    "ising": _ising,
}


def _mse(estimate: Array, truth: Array) -> float:
    return float(np.mean((estimate - truth) ** 2))
