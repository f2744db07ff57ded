"""Generalised linear models on S1: how exact, how sure.

    python benchmarks/learner_glm.py run [ratio coverage] [--rows FILE]
    python benchmarks/learner_glm.py show [--rows FILE]

ratio     20 draws: mean squared error of the coefficients for true / RCA with A known / RCA / covariates / naive, the same
          small ridge everywhere; d = 10, S1 uniform, |beta| = 1 (each class against the reference), A with singular values in
          [0.5, 1.5] ("good") or uniform entries ("unif"), the paper's S2 or a skewed one. RCA over covariates should be <= 1.15
          everywhere, and below naive from N = 3 000 on.
coverage  60 draws, N = 10 000, A unknown: share of coefficients inside their 95% intervals (aim: 91-98%).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from richcomponents import ComponentGLM, ContrastiveRCA, baselines
from richcomponents.datasets import Contrastive, make_contrastive
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main, medians

SECTIONS = ("ratio", "coverage")
METHODS = ("true", "A known", "RCA", "covariates", "naive")
FAMILIES = ("poisson", "negative binomial", "probit", "multinomial")
SHARED = ("paper", "skewed")
MIXINGS = ("good", "unif")
SIZES = (300, 1000, 3000, 10_000)
DISPERSION = 0.5


def cases(section: str) -> list[Job]:
    sizes = SIZES if section == "ratio" else (10_000,)
    return [
        {"family": family, "S2": shared, "A": A, "n": n}
        for family in FAMILIES
        for shared in SHARED
        for A in MIXINGS
        for n in sizes
    ]


def jobs(section: str, options: Options) -> list[Job]:
    """Seeds of different sections do not overlap."""
    draws = options.draws or {"ratio": 20, "coverage": 60}[section]
    return drawn(cases(section), draws, options.seed + 10_000 * SECTIONS.index(section))


def draw(job: Job) -> tuple[Contrastive, np.ndarray, np.ndarray]:
    """The views, an outcome of the family, and its coefficients (m, d)."""
    data = make_contrastive(job["n"], S2=job["S2"], A=job["A"], random_state=job["seed"])
    rng = np.random.default_rng(job["seed"] + 1)
    m = 2 if job["family"] == "multinomial" else 1
    beta = rng.normal(size=(m, data.S1.shape[1]))
    beta /= np.linalg.norm(beta, axis=1, keepdims=True)
    eta = data.S1 @ beta.T
    if job["family"] == "poisson":
        y = rng.poisson(np.exp(eta[:, 0]))
    elif job["family"] == "negative binomial":
        y = rng.poisson(np.exp(eta[:, 0]) * rng.gamma(1 / DISPERSION, DISPERSION, size=len(eta)))
    elif job["family"] == "probit":
        y = (rng.uniform(size=len(eta)) < ndtr(eta[:, 0])).astype(int)
    else:
        chance = np.exp(np.column_stack([np.zeros(len(eta)), eta]))
        chance /= chance.sum(axis=1, keepdims=True)
        y = np.array(["a", "b", "c"])[(rng.uniform(size=(len(eta), 1)) > chance.cumsum(axis=1)).sum(axis=1)]
    return data, y, beta


def error(model: Any, beta: np.ndarray) -> float:
    return float(np.mean((np.atleast_2d(model.coef_) - beta) ** 2))


def ratio(job: Job) -> Row:
    data, y, beta = draw(job)
    plain = ComponentGLM(job["family"], rca=ContrastiveRCA(views=10))
    models = {
        "true": baselines.true(plain, data.S1, y),
        "A known": ComponentGLM(job["family"], rca=ContrastiveRCA(views=10, A=data.A)).fit(data.X, y),
        "RCA": plain.fit(data.X, y),
        "covariates": baselines.covariates(plain, data.X, y),
        "naive": baselines.naive(plain, data.X, y),
    }
    return {name: error(model, beta) for name, model in models.items()}


def coverage(job: Job) -> Row:
    data, y, beta = draw(job)
    fitted = ComponentGLM(job["family"], rca=ContrastiveRCA(views=10)).fit(data.X, y)
    table = fitted.coefficients_
    assert table is not None
    inside = (table.low <= beta.ravel()) & (beta.ravel() <= table.high)
    return {"RCA": error(fitted, beta), "covered": inside.tolist(), "verdict": fitted.verdict_}


MEASURES = {f.__name__: f for f in (ratio, coverage)}


def measure(job: Job) -> Row:
    return MEASURES[job["section"]](job)


def show(rows: Measured, options: Options) -> None:
    head = f"{'family':>18} {'S2':>7} {'A':>5} {'N':>6} "
    print(head + " ".join(f"{m:>10}" for m in METHODS) + "  over covariates, worst, over naive  draws")
    for case, held in by_case(rows("ratio"), cases("ratio")):
        median = medians(held, METHODS)
        numbers = " ".join(f"{median[m]:10.5f}" for m in METHODS)
        over, worst = median["RCA"] / median["covariates"], max(row["RCA"] / row["covariates"] for row in held)
        named = f"{case['family']:>18} {case['S2']:>7} {case['A']:>5} {case['n']:>6} "
        print(named + numbers + f"  {over:6.3f} {worst:6.3f} {median['RCA'] / median['naive']:6.3f}  {len(held)}")
    for case, held in by_case(rows("coverage"), cases("coverage")):
        inside = np.mean([row["covered"] for row in held])
        strong = np.mean([row["verdict"] == "strong" for row in held])
        named = f"coverage, {case['family']}, S2 {case['S2']}, A {case['A']}, N = 10 000"
        print(f"{named}: {inside:.3f} over {len(held)} draws, {strong:.0%} strong (aim 0.91-0.98)")


if __name__ == "__main__":
    main(
        __doc__,
        SECTIONS,
        jobs,
        measure,
        show,
        draws=None,
        seed=840_000,
        out=RESULTS / "glm.csv",
        file="",
        place="--rows",
    )
