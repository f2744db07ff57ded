"""The meta-algorithm: how far theta is off, what is said about that, and what the intervals cover.

    python benchmarks/likelihood.py run [exact samples coverage] [--draws 30] [--seed 9785000] [--sizes 3000 10000]
    python benchmarks/likelihood.py show

exact : outcomes of three columns on 64 points, all moments exact, so that the polynomials are the only source of error: for
each model and degree the reported error of the gradient (epsilon), the true one at the maximum, |theta - theta*| and the bound
of the paper's lemma, sqrt(8) epsilon / mu.

samples : d = 5, N = 20 000, A unknown, squared errors beside the same likelihood on the residual and on true samples.

coverage : d = 5, A unknown; the share of true coefficients (not of intercepts) inside their nominal 95% intervals; squared
errors of theta_, of the maximum that it is shrunk from, and of the residual. Also for few rows, where the last matters.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

import richcomponents as rc
from richcomponents.components.component import CumulantSource
from richcomponents.learning.likelihood import Differentiated, MomentMean, SampleMean, fit_likelihood, maximise
from rows import Job, Row
from sections import RESULTS, Measured, Options, drawn, main, medians

Array = Any
SEED = 9_600_000
GRID = np.array(list(product([-1.0, -1.0, 0.2, 1.8], repeat=3))) @ np.array([[1, 0.3, 0], [0, 1, 0.4], [0.2, 0, 1.0]])
BETA = np.array([0.9, -0.6, 0.5])


def logistic(theta: Array, s: Array, y: Array) -> Array:
    eta = theta[0] + s @ theta[1:]
    return y * eta - np.logaddexp(0, eta)


def probit(theta: Array, s: Array, y: Array) -> Array:
    eta = theta[0] + s @ theta[1:]
    return y * log_ndtr(eta) + (1 - y) * log_ndtr(-eta)


def poisson(theta: Array, s: Array, y: Array) -> Array:
    eta = theta[0] + s @ theta[1:]
    return y * eta - np.exp(eta)


def softplus_counts(theta: Array, s: Array, y: Array) -> Array:
    mean = np.logaddexp(0, theta[0] + s @ theta[1:])
    return y * np.log(mean) - mean


def robust(theta: Array, s: Array, y: Array) -> Array:
    return -3 * np.log1p((y - theta[0] - s @ theta[1:]) ** 2 / 1.25)


def outcomes(model: Any, eta: Array, rng: np.random.Generator) -> Array:
    makers: dict[Any, Any] = {
        logistic: lambda: (rng.uniform(size=len(eta)) < expit(eta)).astype(float),
        probit: lambda: (rng.uniform(size=len(eta)) < ndtr(eta)).astype(float),
        poisson: lambda: rng.poisson(np.exp(0.7 * eta)).astype(float),
        softplus_counts: lambda: rng.poisson(np.logaddexp(0, 1 + eta)).astype(float),
        robust: lambda: eta + 0.5 * rng.standard_t(5, size=len(eta)),
    }
    return makers[model]()


TRUTH: dict[Any, Any] = {
    logistic: lambda b: np.r_[0.0, b],
    probit: lambda b: np.r_[0.0, b],
    poisson: lambda b: np.r_[0.0, 0.7 * b],
    softplus_counts: lambda b: np.r_[1.0, b],
    robust: lambda b: np.r_[0.0, b],
}


MODELS = {model.__name__: model for model in TRUTH}


def _joint(model: Any, theta: Array, x: Array) -> Array:
    return model(theta, x[:, :-1], x[:, -1])


def exact(job: Job) -> Row:
    """One model and degree, all moments exact."""
    model, degree = MODELS[job["model"]], job["degree"]
    s = np.repeat(GRID, 40, axis=0)
    table = np.column_stack([s, outcomes(model, s @ BETA, np.random.default_rng(SEED))])
    law = replace(rc.Component.of_samples(table), source=CumulantSource(rc.Moments.of(table, 6), unbiased=False))
    function = Differentiated(partial(_joint, model))
    start = np.r_[1.0, np.zeros(3)]
    best = maximise(SampleMean(function, table), start, tol=1e-9).theta
    fit = fit_likelihood(law, function.function, start=start, degree=degree)
    wrong = np.linalg.norm(MomentMean(function, law, degree).gradient(best))
    gap = np.linalg.norm(fit.theta - best)
    bound = float(np.sqrt(fit.error_bound))
    return {"epsilon": fit.epsilon, "wrong": wrong, "gap": gap, "bound": bound, "converged": fit.converged}


def samples(job: Job) -> Row:
    """One draw: squared errors, and the share of coefficients inside their intervals."""
    model, n = MODELS[job["model"]], job["n"]
    data = rc.datasets.make_contrastive(n, d=5, S2="skewed", A="good", random_state=job["seed"])
    assert data.beta is not None
    y = outcomes(model, data.S1 @ data.beta, np.random.default_rng(job["seed"]))
    start, truth = np.r_[1.0, np.zeros(5)], TRUTH[model](data.beta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rc.ComponentLikelihood(model, start=start, rca=rc.ContrastiveRCA(views=5)).fit(data.X, y)
    clean = rc.ComponentLikelihood(model, start=start).fit_clean(data.S1, y)
    thetas = {"error": found, "clean": clean}
    row: Row = {name: float(np.sum((one.theta_ - truth) ** 2)) for name, one in thetas.items()}
    row["maximum"] = float(np.sum((found.fit_.theta - truth) ** 2))
    row["residualised"] = float(np.sum((found.residualised_ - truth) ** 2))
    for name, one in (("cover", found), ("cover clean", clean)):
        low, high = one.estimate().interval()
        row[name] = float(np.mean(((low <= truth) & (truth <= high))[1:]))
    row["width"] = float(np.median((found.estimate().high - found.estimate().low)[1:]))
    return {**row, "verdict": found.verdict_, "trust": found.trust_}


def jobs(section: str, options: Options) -> list[Job]:
    if section == "exact":
        return [{"model": name, "degree": degree} for name in MODELS for degree in (1, 2, 3, 4, 5)]
    if section == "samples":
        return drawn([{"model": name, "n": 20_000} for name in MODELS], 5, SEED)
    return drawn([{"model": name, "n": n} for n in options.sizes for name in MODELS], options.draws, options.seed)


def measure(job: Job) -> Row:
    return exact(job) if job["section"] == "exact" else samples(job)


def show(rows: Measured, options: Options) -> None:
    print(f"{'model':>16} degree   epsilon  true error   |theta - theta*|   bound")
    for row in rows("exact"):
        end = "" if row["converged"] else "  not converged"
        print(
            f"{row['model']:>16} {row['degree']:6d} {row['epsilon']:9.5f} {row['wrong']:11.5f} {row['gap']:19.5f} "
            f"{row['bound']:7.3f}{end}"
        )
    for section in ("samples", "coverage"):
        cells: dict[tuple[int, str], list[Row]] = {}
        for row in rows(section):
            cells.setdefault((row["n"], row["model"]), []).append(row)
        print(f"\n{section}: medians of squared errors of theta, d = 5; shares of coefficients inside 95% intervals")
        for (n, name), cell in sorted(cells.items()):
            middle = medians(cell, ["error", "maximum", "residualised", "clean", "trust", "width"])
            covered = [float(np.mean([row[key] for row in cell])) for key in ("cover", "cover clean")]
            worse = sum(row["error"] > row["residualised"] for row in cell)
            print(
                f"{n:7d} {name:>16}: theta_ {middle['error']:.4f}, maximum {middle['maximum']:.4f}, residualised "
                f"{middle['residualised']:.4f}, true samples {middle['clean']:.4f}; covered {covered[0]:.3f} (true samples "
                f"{covered[1]:.3f}), width {middle['width']:.3f}, trust {middle['trust']:.2f}; worse than residualised in "
                f"{worse} of {len(cell)}"
            )


if __name__ == "__main__":
    main(
        __doc__,
        ("exact", "samples", "coverage"),
        jobs,
        measure,
        show,
        draws=30,
        seed=9_785_000,
        out=RESULTS / "likelihood",
        sizes=(3000, 10_000),
    )
