"""The meta-algorithm on exact laws: how far theta is off, and what the reported error of the polynomials says.

    python benchmarks/likelihood.py

Outcomes of three columns on 64 points, all moments exact, so that the polynomials are the only source of error: for each
model and
degree the reported error of the gradient (epsilon), the true one at the maximum, |theta - theta*| and the bound of the
paper's lemma, sqrt(8) epsilon / mu. Then samples: d = 5, N = 20 000, A unknown, squared errors over 5 draws beside the
same likelihood
on the residual and on true samples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

import richcomponents as rc
from richcomponents.components.component import CumulantSource
from richcomponents.learning.expectation import Differentiated, MomentMean, SampleMean
from richcomponents.learning.likelihood import fit_likelihood, maximise

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


def _joint(model: Any, theta: Array, x: Array) -> Array:
    return model(theta, x[:, :-1], x[:, -1])


def exact() -> None:
    s = np.repeat(GRID, 40, axis=0)
    print(f"{'model':>16} degree   epsilon  true error   |theta - theta*|   bound")
    for model in TRUTH:
        y = outcomes(model, s @ BETA, np.random.default_rng(SEED))
        table = np.column_stack([s, y])
        law = replace(rc.Component.of_samples(table), source=CumulantSource(rc.Moments.of(table, 6), unbiased=False))
        function = Differentiated(partial(_joint, model))
        start = np.r_[1.0, np.zeros(3)]
        best = maximise(SampleMean(function, table), start, tol=1e-9).theta
        for degree in (1, 2, 3, 4, 5):
            fit = fit_likelihood(law, function.function, start=start, degree=degree)
            wrong = np.linalg.norm(MomentMean(function, law, law, degree).gradient(best))
            gap = np.linalg.norm(fit.theta - best)
            end = "" if fit.converged else "  not converged"
            print(
                f"{model.__name__:>16} {degree:6d} {fit.epsilon:9.5f} {wrong:11.5f} {gap:19.5f} "
                f"{np.sqrt(fit.error_bound):7.3f}{end}"
            )


def samples(n: int = 20_000, draws: int = 5) -> None:
    print(f"\nsquared error of theta, medians of {draws} draws, d = 5, N = {n}")
    for model in TRUTH:
        held = []
        for seed in range(SEED, SEED + draws):
            data = rc.datasets.make_contrastive(n, d=5, S2="skewed", A="good", random_state=seed)
            assert data.beta is not None
            y = outcomes(model, data.S1 @ data.beta, np.random.default_rng(seed))
            learner = rc.ComponentLikelihood(model, start=np.r_[1.0, np.zeros(5)], rca=rc.ContrastiveRCA(views=5))
            found = learner.fit(data.X, y)
            clean = rc.ComponentLikelihood(model, start=np.r_[1.0, np.zeros(5)]).fit_clean(data.S1, y)
            truth = TRUTH[model](data.beta)
            held.append([np.sum((t - truth) ** 2) for t in (found.theta_, found.residualised_, clean.theta_)])
        ours, simple, best = np.median(held, axis=0)
        print(f"{model.__name__:>16}: {ours:.4f}, residualised {simple:.4f}, true samples {best:.4f}")


if __name__ == "__main__":
    exact()
    samples()
