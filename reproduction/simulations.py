"""The panels on simulated data: one draw of a setting of the paper, and what each method makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from reproduction.descents import exact_ising, exact_logistic
from reproduction.settings import Array, Panel, Settings
from richcomponents import (
    Component,
    ComponentGaussianMixture,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
    DataError,
    baselines,
)
from richcomponents.datasets import make_contrastive
from richcomponents.paper import (
    Extraction,
    contrastive_ising,
    contrastive_logistic,
    contrastive_mixture,
    contrastive_pca,
    contrastive_regression,
    extract,
    mixing_matrix,
    true_samples,
)
from richcomponents.paper.gradient import SGDResult
from rows import Job, Row, settings_of

BENCHMARKS: Mapping[str, Callable[..., Any]] = {
    "naive": baselines.naive,
    "cca": baselines.cca,
    "cca5": partial(baselines.cca, n_variates=5),
    "kernel_cca": baselines.kernel_cca,
}
"""Of the paper: with the library's learner, and, after "paper_", with the paper's own."""


@dataclass(frozen=True)
class Task:
    """What is learned of S1, and how.

    learner : makes a learner of S1, given rca=; parameters : fitted learner -> what was learned; error : what was learned ->
    mean squared error; by_paper : the paper's own learner on what it extracts, to what was learned or the path there (options
    of the path: batch_size, n_steps); exact : where the paper's learner takes stochastic gradients, the path (steps + 1, p) of
    exact ones on true samples.
    """

    learner: Callable[..., Any]
    parameters: Callable[[Any], Array]
    error: Callable[[Array], float]
    by_paper: Callable[..., Array | SGDResult]
    exact: Callable[..., Array] | None = None


@dataclass(frozen=True)
class Problem:
    """A draw with known truth, and the task.

    S1, S3 : (n, d) and (n, d_v), hidden; X : (n, d + d_v), the views U and V; A : (d_v, d), hidden; y : (n,) or None.
    """

    S1: Array
    S3: Array
    X: Array
    A: Array
    y: Array | None
    task: Task


def draw(design: Mapping[str, Any], n: int, *, seed: int, strength: float | None = None) -> Problem:
    """n samples of a case of a panel; `strength`, sd(S2) / sd(S1), rescales S2."""
    data = make_contrastive(n, **design, strength=strength, random_state=seed)
    return Problem(data.S1, data.S3, data.X, data.A, data.y, _task(design["S1"], data))


class Samples(ComponentRegression):
    """The samples that a simple method learns S1 from, instead of what is learned."""

    def fit_clean(self, S: Array, y: object, covariates: object = None) -> Samples:
        self.samples_ = S
        return self


def error_of(method: str, problem: Problem) -> float:
    """The mean squared error of a method of settings.toml."""
    if method.startswith("paper"):
        found: Any = problem.task.by_paper(extracted(method, problem))
        return problem.task.error(getattr(found, "theta", found))
    return problem.task.error(problem.task.parameters(fit(method, problem)))


def extracted(method: str, problem: Problem) -> Extraction:
    """S1 by the paper's formulas: with A known, with A by equation (2), or true samples in its place; or what a benchmark takes
    for samples of S1, so that the paper's learner is compared with itself.

    The mean of S3 is known, as the paper asks for one of the three.
    """
    U, V = np.split(problem.X, [problem.S1.shape[1]], axis=1)
    match method:
        case "paper_true":
            return true_samples(problem.S1)
        case "paper_known":
            return extract(U, V, problem.A, mean_s3=problem.S3.mean(axis=0))
        case "paper":
            return extract(U, V, mean_s3=problem.S3.mean(axis=0))
    simple = method.removeprefix("paper_")
    if simple not in BENCHMARKS:
        raise ValueError(f"no method {method!r}")
    samples = BENCHMARKS[simple](Samples(rca=ContrastiveRCA(views=U.shape[1])), problem.X, np.zeros(len(U)))
    return true_samples(samples.samples_)


def fit(method: str, problem: Problem) -> Any:
    """The task's learner, fitted by a method of settings.toml that is not the paper's."""
    d = problem.S1.shape[1]
    y = () if problem.y is None else (problem.y,)
    learner = problem.task.learner(rca=ContrastiveRCA(views=d))
    if method in BENCHMARKS:
        return BENCHMARKS[method](learner, problem.X, *y)
    match method:
        case "true":
            return baselines.true(learner, problem.S1, *y)
        case "known":
            try:
                return problem.task.learner(rca=ContrastiveRCA(views=d, A=problem.A)).fit(problem.X, *y)
            except DataError:  # takes A for wrong, by chance (Ising model, 300 samples), and says to leave it out
                return learner.fit(problem.X, *y)
        case "rca":
            return learner.fit(problem.X, *y)
        case "covariates":
            return baselines.covariates(learner, problem.X, *y)
    raise ValueError(f"no method {method!r}")


def descend(method: str, problem: Problem, steps: Array, *, batch_size: int) -> list[float]:
    """Errors after these steps (k,) of a stochastic gradient descent."""
    if method == "default":
        return [error_of("rca", problem)] * len(steps)
    options = {"batch_size": batch_size, "n_steps": int(steps[-1])}
    if method == "true":
        assert problem.task.exact is not None
        thetas = problem.task.exact(problem.S1, **options)
    else:
        path = problem.task.by_paper(extracted(method, problem), **options)
        assert isinstance(path, SGDResult)
        thetas = path.trajectory
    return [problem.task.error(thetas[step]) for step in steps]


# ---- what is learned in each setting, and its error


def _task(kind: str, data: Any) -> Task:
    """data : Contrastive, with the truth of this kind."""
    match kind:
        case "pca":
            return Task(
                ComponentPCA,
                lambda model: model.components_[0],
                partial(_direction_error, data.direction),
                contrastive_pca,
            )
        case "regression":
            by_paper = partial(contrastive_regression, y=data.y)
            return Task(ComponentRegression, attrgetter("coef_"), partial(_mse, data.beta), by_paper)
        case "logistic":
            steps = partial(contrastive_logistic, y=data.y)
            exact = partial(exact_logistic, y=data.y.astype(float), alpha=ComponentLogisticRegression().alpha)
            return Task(
                ComponentLogisticRegression, lambda model: model.coef_[0], partial(_mse, data.beta), steps, exact
            )
        case "mixture":
            k = len(data.centres)
            learner = partial(ComponentGaussianMixture, k, equal_weights=True)
            centres = partial(contrastive_mixture, k=k)
            return Task(learner, attrgetter("means_"), partial(_centre_error, data.centres), centres)
        case "ising":
            learner = partial(ComponentIsing, data.edges)
            couplings = partial(contrastive_ising, edges=data.edges)
            exact = partial(exact_ising, edges=data.edges, ridge=ComponentIsing().alpha / len(data.S1))
            return Task(learner, attrgetter("coef_"), partial(_mse, data.couplings), couplings, exact)
    raise ValueError(f"no learner for S1 = {kind!r}")


def _mse(truth: Array, estimate: Array) -> float:
    return float(np.mean((estimate - truth) ** 2))


def _direction_error(truth: Array, estimate: Array) -> float:
    """A direction has no sign."""
    return min(_mse(truth, estimate), _mse(truth, -estimate))


def _centre_error(truth: Array, estimate: Array) -> float:
    """Cumulants tell the centres (k, d) up to one common shift: all methods are compared after centring. Centres have no
    order."""
    found, centres = estimate - estimate.mean(axis=0), truth - truth.mean(axis=0)
    cost = np.mean((centres[:, None] - found[None]) ** 2, axis=2)
    return float(cost[linear_sum_assignment(cost)].mean())


def measure(settings: Settings, job: Job) -> list[Row]:
    """What each method makes of one draw."""
    values = _values(settings, job)
    return [{**row, "value": values[row["x"], row["method"]]} for row in settings_of(job)]


def _values(settings: Settings, job: Job) -> Mapping[tuple[float, str], float]:
    panel = settings.panels[job["panel"]]
    xs, methods, seed, design = job["x"], job["method"], job["seed"], panel.designs[job["case"]]
    x = xs[0]
    if "dimensions" in panel.options:
        data = make_contrastive(int(x), **design, random_state=seed)
        return {(x, method): _mixing_error(data, method) for method in methods}
    n = int(x if panel.x == "n" else panel.options["n"])
    if panel.x == "degree":
        return {(x, m): value for m, value in polynomial_errors(panel, design, n, int(x), seed).items()}
    problem = draw(design, n, seed=seed, strength=x if panel.x == "strength" else None)
    if panel.x == "step":
        size = panel.options["batch_size"]
        paths = {method: descend(method, problem, np.array(xs), batch_size=size) for method in methods}
        return {(x, method): path[i] for method, path in paths.items() for i, x in enumerate(xs)}
    return {(x, method): error_of(method, problem) for method in methods}


def polynomial_errors(panel: Panel, design: Mapping[str, Any], n: int, degree: int, seed: int) -> Mapping[str, float]:
    """Mean squared distances of coefficients by a polynomial in place of the sigmoid from those by the sigmoid itself on true
    samples; all see the same draws."""
    data = make_contrastive(n, **design, random_state=seed)
    signal = panel.options["signal"] * data.S1 @ data.beta
    y = (signal > np.random.default_rng(seed).logistic(size=n)).astype(float)
    learner = partial(ComponentLogisticRegression, alpha=0.0, fit_intercept=False)
    exact = learner().fit_clean(data.S1, y).coef_[0]

    def by_polynomial(method: str) -> ComponentLogisticRegression:
        series = partial(learner, approximation="chebyshev", degree=degree)
        if method == "paper_true":
            samples = Component.of_samples(data.S1, order=max(degree + 1, 2))
            return series().fit_component(samples, np.cov(data.S1.T, y)[:-1, -1], y.mean())
        A = data.A if method.endswith("known") else None
        how = "paper" if method.startswith("paper") else "efficient"
        rca = ContrastiveRCA(views=data.U.shape[1], A=A, method=how, order=max(degree + 1, 4))
        return series(rca=rca).fit(data.X, y)

    return {method: _mse(exact, by_polynomial(method).coef_[0]) for method in panel.methods}


def _mixing_error(data: Any, method: str) -> float:
    """Mean squared error of A (d, d); data : Contrastive."""
    match method:
        case "rca":
            A = ContrastiveRCA(views=data.U.shape[1]).fit(data.X).A_
        case "paper":
            A = mixing_matrix(data.U, data.V)
        case "regression":  # of V on U
            u, v = data.U - data.U.mean(axis=0), data.V - data.V.mean(axis=0)
            A = np.linalg.lstsq(u, v, rcond=None)[0].T
        case "zero":
            A = np.zeros_like(data.A)
        case _:
            raise ValueError(f"no method {method!r} for A")
    return _mse(data.A, A)
