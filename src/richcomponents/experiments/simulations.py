"""One draw of a setting of the paper, and what each method makes of it.

The rows of the panels on simulated data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from richcomponents import baselines
from richcomponents.algebra import Array
from richcomponents.datasets import make_contrastive
from richcomponents.experiments.rows import Job, Row, Settings, settings_of
from richcomponents.learning.mixture import match_centres
from richcomponents.models import (
    ComponentGaussianMixture,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)


@dataclass(frozen=True)
class Problem:
    """A draw with known truth, the learner for it, and the error of what was learned.

    S1 : (n, d), hidden; X : (n, d + d_v), the views U and V; A : (d_v, d), hidden; y : (n,) or None;
    learner : makes a learner of S1, given rca=; parameters : fitted learner -> what was learned;
    error : what was learned -> mean squared error.
    """

    S1: Array
    X: Array
    A: Array
    y: Array | None
    learner: Callable[..., Any]
    parameters: Callable[[Any], Array]
    error: Callable[[Array], float]


def draw(design: Mapping[str, Any], n: int, *, mixing: str, seed: int, strength: float | None = None) -> Problem:
    """n samples of a design of settings.toml; `strength`, sd(S2) / sd(S1), rescales S2."""
    data = make_contrastive(n, **design, A=mixing, strength=strength, random_state=seed)
    return Problem(data.S1, data.X, data.A, data.y, *_task(design["S1"], data))


def fit(method: str, problem: Problem) -> Any:
    """The problem's learner, fitted by a method of settings.toml."""
    d = problem.S1.shape[1]
    y = () if problem.y is None else (problem.y,)
    learner = problem.learner(rca=ContrastiveRCA(views=d))
    match method:
        case "true":
            return baselines.true(learner, problem.S1, *y)
        case "known":
            return problem.learner(rca=ContrastiveRCA(views=d, A=problem.A)).fit(problem.X, *y)
        case "rca":
            return learner.fit(problem.X, *y)
        case "paper":
            return problem.learner(rca=ContrastiveRCA(views=d, method="paper")).fit(problem.X, *y)
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
    learner = problem.learner(rca=rca).set_params(solver="sgd", batch_size=batch_size, n_steps=int(steps[-1]))
    if method in ("rca", "known"):
        learner.set_params(**polynomial)
    elif method not in ("true", "exact"):
        raise ValueError(f"no method {method!r} for gradient steps")
    path = (learner.fit_clean(problem.S1, *y) if method == "true" else learner.fit(problem.X, *y)).trajectory_
    return [problem.error(path.coef[np.flatnonzero(path.steps == step)[0]]) for step in steps]


# ---- what is learned in each setting, and its error


def _task(kind: str, data: Any) -> tuple[Callable[..., Any], Callable[[Any], Array], Callable[[Array], float]]:
    """The fields learner, parameters and error of :class:`Problem`; data : Contrastive, with the truth of this kind."""
    match kind:
        case "pca":
            return ComponentPCA, (lambda model: model.components_[0]), partial(_direction_error, data.direction)
        case "regression":
            return ComponentRegression, attrgetter("coef_"), partial(_mse, data.beta)
        case "logistic":
            return ComponentLogisticRegression, (lambda model: model.coef_[0]), partial(_mse, data.beta)
        case "mixture":
            learner = partial(ComponentGaussianMixture, len(data.centres), equal_weights=True)
            return learner, attrgetter("means_"), partial(_centre_error, data.centres)
        case "ising":
            return partial(ComponentIsing, data.edges), attrgetter("coef_"), partial(_mse, data.couplings)
    raise ValueError(f"no learner for S1 = {kind!r}")


def _mse(truth: Array, estimate: Array) -> float:
    return float(np.mean((estimate - truth) ** 2))


def _direction_error(truth: Array, estimate: Array) -> float:
    """A direction has no sign."""
    return min(_mse(truth, estimate), _mse(truth, -estimate))


def _centre_error(truth: Array, estimate: Array) -> float:
    """Cumulants tell the centres (k, d) up to one common shift: all methods are compared after centring."""
    return match_centres(estimate - estimate.mean(axis=0), truth - truth.mean(axis=0))[1]


def measure(settings: Settings, job: Job) -> list[Row]:
    """What each method makes of one draw."""
    values = _values(settings, job)
    return [{**row, "value": values[row["x"], row["method"]]} for row in settings_of(job)]


def _values(settings: Settings, job: Job) -> Mapping[tuple[float, str], float]:
    panel = settings.panels[job["panel"]]
    design = settings.designs[panel.options["design"]]
    xs, methods, case, seed = job["x"], job["method"], job["case"], job["seed"]
    x = xs[0]
    if "dimensions" in panel.options:
        error = partial(_mixing_error, design, int(x), int(case.removeprefix("d=")), seed)
        return {(x, method): error(method) for method in methods}
    if panel.x == "step":
        problem = draw(design, int(panel.options["n"]), mixing=case, seed=seed)
        options = {key: panel.options[key] for key in ("batch_size", "polynomial")}
        paths = {method: descend(method, problem, np.array(xs), **options) for method in methods}
        return {(x, method): path[i] for method, path in paths.items() for i, x in enumerate(xs)}
    if panel.x == "n":
        problem = draw(design, int(x), mixing=case, seed=seed)
    else:
        problem = draw(design, int(panel.options["n"]), mixing=case, seed=seed, strength=x)
    return {(x, method): problem.error(problem.parameters(fit(method, problem))) for method in methods}


def _mixing_error(design: Mapping[str, object], n: int, d: int, seed: int, method: str) -> float:
    """Mean squared error of A ~ Unif[-1, 1]^(d x d)."""
    data = make_contrastive(n, d, S1=str(design["S1"]), S2=str(design["S2"]), A="unif", random_state=seed)
    model = ContrastiveRCA(views=d, method={"rca": "efficient", "paper": "paper"}[method]).fit(data.X)
    return float(np.mean((model.A_ - data.A) ** 2))
