"""Hidden Markov models and topics of S1 against N, with a perturbation whose A is not known (exact moments: test_latent.py).

    python benchmarks/learner_latent.py run [hmm topics] [--rows FILE]
    python benchmarks/learner_latent.py show [--rows FILE]

hmm     4 states in 8 columns, windows of three observations (24 columns of U) with noise N(0, 1), three skewed factors S2 in
        all of them, 10 controls V: mean squared errors of the states' means and of the transitions, on true samples, from RCA,
        on the residual of U on V and on U itself. Aim: RCA below a fifth of naive, and falling with N.
topics  5 topics of 50 words, documents of 30 words, three skewed factors S2, 8 controls: mean absolute error of a topic's word
        probabilities, summed over words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from richcomponents import ComponentHMM, ComponentLDA, ContrastiveRCA, baselines
from richcomponents.algebra import Array
from richcomponents.learning.latent import stationary
from richcomponents.learning.mixture import match_centres
from richcomponents.models.base import ComponentLearner
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main, medians

SECTIONS = ("hmm", "topics")
METHODS = ("true", "RCA", "residualised", "naive")
SIZES = (10_000, 100_000)


def cases(section: str) -> list[Job]:
    return [{"n": n} for n in SIZES]


def jobs(section: str, options: Options) -> list[Job]:
    """Seeds of different sections do not overlap."""
    return drawn(cases(section), options.draws or 8, options.seed + 10_000 * SECTIONS.index(section))


def perturbed(s1: Array, size: float, controls: int, rng: np.random.Generator) -> Array:
    """X: s1 with three skewed factors in it, and controls that have them too."""
    n, d = s1.shape
    factors = rng.exponential(size=(n, 3)) - 1
    U = s1 + size * factors @ rng.normal(size=(3, d))
    V = factors @ rng.normal(size=(3, controls)) + rng.normal(size=(n, controls))
    return np.hstack([U, V])


def fitted(learner: ComponentLearner, s1: Array, X: Array) -> dict[str, Any]:
    return {
        "true": baselines.true(learner, s1),
        "RCA": clone(learner).fit(X),
        "residualised": baselines.covariates(learner, X),
        "naive": baselines.naive(learner, X),
    }


def hmm(job: Job) -> Row:
    rng, n, k, d = np.random.default_rng(job["seed"]), job["n"], 4, 8
    means = 1.5 * rng.normal(size=(k, d))
    T = 0.5 * np.eye(k) + 0.5 * rng.dirichlet(np.ones(k), size=k)
    pi = stationary(T)
    states = [rng.choice(k, p=pi, size=n)]
    for _ in range(2):
        states.append((rng.uniform(size=(n, 1)) > T[states[-1]].cumsum(axis=1)).sum(axis=1))
    s1 = np.hstack([means[h] + rng.normal(size=(n, d)) for h in states])
    out: Row = {}
    for name, model in fitted(
        ComponentHMM(k, rca=ContrastiveRCA(views=3 * d)), s1, perturbed(s1, 0.7, 10, rng)
    ).items():
        order, out[name] = match_centres(model.means_, means)
        out[name + " T"] = float(np.mean((model.transition_[np.ix_(order, order)] - T) ** 2))
    return out


def topics(job: Job) -> Row:
    rng, n, k, d = np.random.default_rng(job["seed"]), job["n"], 5, 50
    words = rng.dirichlet(np.full(d, 0.2), size=k)
    share = rng.dirichlet(np.full(k, 0.2), size=n) @ words
    s1 = rng.multinomial(30, share / share.sum(axis=1, keepdims=True)).astype(float)
    learner = ComponentLDA(k, concentration=1.0, rca=ContrastiveRCA(views=d))
    out: Row = {}
    for name, model in fitted(learner, s1, perturbed(s1, 0.7, 8, rng)).items():
        found = model.topics_[match_centres(model.topics_, words)[0]]
        out[name] = float(np.abs(found - words).sum(axis=1).mean())
    return out


MEASURES = {f.__name__: f for f in (hmm, topics)}


def measure(job: Job) -> Row:
    return MEASURES[job["section"]](job)


def show(rows: Measured, options: Options) -> None:
    print(f"{'model':>14} {'N':>7} " + " ".join(f"{m:>12}" for m in METHODS) + "  naive over RCA  draws")
    for section in SECTIONS:
        for more in ("", " T") if section == "hmm" else ("",):
            for case, held in by_case(rows(section), cases(section)):
                median = medians(held, [m + more for m in METHODS])
                numbers = " ".join(f"{median[m + more]:12.6f}" for m in METHODS)
                gain = median["naive" + more] / median["RCA" + more]
                print(f"{section + more:>14} {case['n']:>7} {numbers}  {gain:14.1f}  {len(held)}")


if __name__ == "__main__":
    main(
        __doc__,
        SECTIONS,
        jobs,
        measure,
        show,
        draws=None,
        seed=860_000,
        out=RESULTS / "latent.csv",
        file="",
        place="--rows",
    )
