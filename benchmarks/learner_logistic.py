"""Logistic regression on S1: how exact, how safe, how sure, how light.

    python benchmarks/learner_logistic.py run [ratio safety coverage wide times] [--rows FILE]
    python benchmarks/learner_logistic.py show [--rows FILE]

ratio       20 draws: mean squared error of the coefficients for true / RCA with A known / RCA / covariates / naive / CCA, the
            same small ridge everywhere; d = 10, |beta| = 1, A with singular values in [0.5, 1.5] ("good") or uniform entries
            ("unif"). RCA over covariates should be <= 1.15 at N = 300 and 1 000, <= 0.85 at 3 000, <= 0.5 at 10 000.
safety      500 random designs, N from 100, |beta| up to 10, separable classes included: the error of RCA over the worse of
            naive and covariates (aim: <= 2); the paper's cubic, which nothing protects, beside it.
coverage    200 draws, N = 10 000, A unknown: share of coefficients inside their 95% intervals (aim: 91-98%).
wide        d = 200, N = 5 000: seconds and peak memory of one gradient of the cubic likelihood, read off the rows.
times       the whole cubic learner, N = 4 000, d = 40 and 300: CPU seconds, those of its RCA among them.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np

from richcomponents import ComponentLogisticRegression, ContrastiveRCA, baselines
from richcomponents.datasets import make_contrastive
from richcomponents.learning.chebyshev import LogisticLikelihood
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main, medians

SECTIONS = ("ratio", "safety", "coverage", "wide", "times")
METHODS = ("true", "A known", "RCA", "covariates", "naive", "cca")
MIXINGS = ("good", "unif")
SIZES = (300, 1000, 3000, 10_000)
WIDTH = 200
AIMS = {300: 1.15, 1000: 1.15, 3000: 0.85, 10_000: 0.5}


def cases(section: str) -> list[Job]:
    """Sizes and kinds of A; designs of the section safety are drawn with the data."""
    if section in ("safety", "wide"):
        return [{"A": None, "n": 5000 if section == "wide" else None}]
    if section == "times":
        return [{"A": None, "n": 4000, "d": d} for d in (40, 300)]
    sizes = {"ratio": SIZES, "coverage": (10_000,)}[section]
    return [{"A": A, "n": n} for A in MIXINGS for n in sizes]


def jobs(section: str, options: Options) -> list[Job]:
    """Seeds of different sections do not overlap."""
    draws = options.draws or {"ratio": 20, "safety": 500, "coverage": 200, "wide": 1, "times": 1}[section]
    return drawn(cases(section), draws, options.seed + 10_000 * SECTIONS.index(section))


def error(model: Any, beta: np.ndarray) -> float:
    return float(np.mean((model.coef_[0] - beta) ** 2))


def covered(model: Any, beta: np.ndarray) -> list[bool]:
    table = model.coefficients_
    return [bool(inside) for inside in (table.low <= beta) & (beta <= table.high)]


def ratio(job: Job) -> Row:
    data = make_contrastive(job["n"], S1="logistic", A=job["A"], random_state=job["seed"])
    plain = ComponentLogisticRegression(rca=ContrastiveRCA(views=10))
    models = {
        "true": baselines.true(plain, data.S1, data.y),
        "A known": ComponentLogisticRegression(rca=ContrastiveRCA(views=10, A=data.A)).fit(data.X, data.y),
        "RCA": plain.fit(data.X, data.y),
        "covariates": baselines.covariates(plain, data.X, data.y),
        "naive": baselines.naive(plain, data.X, data.y),
        "cca": baselines.cca(plain, data.X, data.y),
    }
    assert data.beta is not None
    return {name: error(model, data.beta) for name, model in models.items()}


def safety(job: Job) -> Row:
    """A random design: |beta|, errors of RCA, its cubic version, covariates and naive."""
    seed = job["seed"]
    rng = np.random.default_rng(seed)
    n, size = int(10 ** rng.uniform(2, 3.7)), float(10 ** rng.uniform(-0.5, 1))
    shared = ("paper", "uniform", "skewed", "gaussian", "heavy")[int(rng.integers(5))]
    mixing = MIXINGS[int(rng.integers(2))]
    data = make_contrastive(n, S1="logistic", S2=shared, A=mixing, random_state=seed)
    assert data.beta is not None
    noise = 0.0 if rng.uniform() < 0.2 else 1.0  # 0: y is a function of S1, separable on clean samples
    size = size if noise else 10.0
    beta = size * data.beta
    y = (data.S1 @ beta + noise * rng.logistic(size=n) > 0).astype(int)
    out: Row = {"size": size, "S2": shared, "separable": noise == 0}
    if y.min() == y.max():
        return {**out, "one class": True}
    learner = ComponentLogisticRegression(rca=ContrastiveRCA(views=10))
    cubic = ComponentLogisticRegression(rca=ContrastiveRCA(views=10), approximation="chebyshev")
    return {
        **out,
        "RCA": error(learner.fit(data.X, y), beta),
        "chebyshev": error(cubic.fit(data.X, y), beta),
        "covariates": error(baselines.covariates(learner, data.X, y), beta),
        "naive": error(baselines.naive(learner, data.X, y), beta),
    }


def coverage(job: Job) -> Row:
    data = make_contrastive(job["n"], S1="logistic", A=job["A"], random_state=job["seed"])
    assert data.beta is not None
    fitted = ComponentLogisticRegression(rca=ContrastiveRCA(views=10)).fit(data.X, data.y)
    return {"RCA": error(fitted, data.beta), "covered": covered(fitted, data.beta), "trust": fitted.trust_}


def factors(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of d columns each that share five skewed factors, and S1."""
    rng = np.random.default_rng(seed)
    s1, s2 = rng.uniform(-1, 1, size=(n, d)), (rng.exponential(size=(n, 5)) - 1) @ rng.normal(size=(5, d))
    return np.hstack([s1 + s2, s2 + rng.uniform(-1, 1, size=(n, d))]), s1


def times(job: Job) -> Row:
    d, n = job["d"], job["n"]
    X, s1 = factors(job["seed"], n, d)
    beta = np.full(d, 1 / np.sqrt(d))
    y = s1 @ beta + np.random.default_rng(job["seed"] + 1).logistic(size=n) > 0
    rca = ContrastiveRCA(views=d, rank=5)
    start = time.process_time()
    rca.fit(X)
    alone = time.process_time() - start
    start = time.process_time()
    ComponentLogisticRegression(rca=rca, approximation="chebyshev").fit(X, y)
    return {"RCA": alone, "learner": time.process_time() - start}


def wide(job: Job) -> Row:
    n, d, r = job["n"], WIDTH, 5
    X, _ = factors(job["seed"], n, d)
    model = ContrastiveRCA(views=d, rank=r).fit(X)
    component = model.component_on_rows(X)
    likelihood = LogisticLikelihood(component, np.full(d, 0.01), 0.5, alpha=1e-3)
    at = np.full(1 + likelihood.root.shape[1], 0.05)
    start = time.perf_counter()
    for _ in range(5):
        likelihood.gradient(at)
    seconds = (time.perf_counter() - start) / 5
    tracemalloc.start()
    likelihood.gradient(at)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": seconds, "peak MB": peak / 1e6, "table MB": X.nbytes / 1e6}


MEASURES = {f.__name__: f for f in (ratio, safety, coverage, wide, times)}


def measure(job: Job) -> Row:
    return MEASURES[job["section"]](job)


def show(rows: Measured, options: Options) -> None:
    print(f"{'A':>5} {'N':>6} " + " ".join(f"{m:>10}" for m in METHODS) + "   ratio   aim  draws")
    for case, held in by_case(rows("ratio"), cases("ratio")):
        median = medians(held, METHODS)
        numbers = " ".join(f"{median[m]:10.5f}" for m in METHODS)
        share = median["RCA"] / median["covariates"]
        print(f"{case['A']:>5} {case['n']:>6} {numbers}  {share:6.3f}  {AIMS[case['n']]:.2f}  {len(held)}")
    fits = [row for row in rows("safety") if "RCA" in row]
    for low, high in ((0.0, 1.0), (1.0, 3.0), (3.0, 10.0)):
        if held := [row for row in fits if low < row["size"] <= high]:
            print(f"|beta| in ({low:g}, {high:g}]: {len(held)} fits, {sum(row['separable'] for row in held)} separable")
            for name in ("RCA", "chebyshev"):
                over = np.array([row[name] / max(row["naive"], row["covariates"]) for row in held])
                above = int(np.sum(over > 2))
                print(f"  {name}: over the worse of naive and covariates at most {over.max():.3f}, above 2: {above}")
            plain = np.array([row["RCA"] / row["covariates"] for row in held])
            print(f"  RCA over covariates: median {np.median(plain):.3f}, at most {plain.max():.3f}")
    for case, held in by_case(rows("coverage"), cases("coverage")):
        inside = np.mean([row["covered"] for row in held])
        print(f"coverage, A {case['A']}, N = 10 000: {inside:.3f} over {len(held)} draws (aim 0.91-0.98)")
    for row in rows("wide"):
        print(
            f"d = {WIDTH}, N = {row['n']}: one gradient {1000 * row['seconds']:.0f} ms, peak "
            f"{row['peak MB']:.1f} MB beyond the rows ({row['table MB']:.0f} MB)"
        )
    for row in rows("times"):
        print(
            f"d = {row['d']}, N = {row['n']}: learner {row['learner']:.1f} s CPU, its RCA {row['RCA']:.1f} s of these"
        )


if __name__ == "__main__":
    main(
        __doc__,
        SECTIONS,
        jobs,
        measure,
        show,
        draws=None,
        seed=820_000,
        out=RESULTS / "logistic.csv",
        file="",
        place="--rows",
    )
