"""Logistic regression on S1: how exact, how safe, how sure, how light.

    python benchmarks/learner_logistic.py run [ratio safety coverage trajectory wide] [--rows FILE]
    python benchmarks/learner_logistic.py show [--rows FILE]

Every draw is one line of the rows file; a killed run continues where it stopped.

ratio       20 draws: mean squared error of the coefficients for true / RCA with A known / RCA / covariates / naive / CCA, the
            same small ridge everywhere; d = 10, |beta| = 1, A with singular values in [0.5, 1.5] ("good") or uniform entries
            ("unif"). RCA over covariates should be <= 1.15 at N = 300 and 1 000, <= 0.85 at 3 000, <= 0.5 at 10 000.
safety      500 random designs, N from 100, |beta| up to 10, separable classes included: the error of RCA over the worse of
            naive and covariates (aim: <= 2); the paper's cubic, which nothing protects, beside it.
coverage    200 draws, N = 10 000, A unknown: share of coefficients inside their 95% intervals (aim: 91-98%).
trajectory  20 draws, N = 1 000: error along stochastic gradient steps, on true samples and from the views (paper, Figure f).
wide        d = 200, N = 5 000: seconds and peak memory of one gradient of the cubic likelihood, read off the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from richcomponents import ComponentLogisticRegression, ContrastiveRCA, baselines  # noqa: E402
from richcomponents.datasets import make_contrastive  # noqa: E402
from richcomponents.learning.likelihood import expected_gradient  # noqa: E402
from richcomponents.paper.gradient import LogisticLikelihood  # noqa: E402

SECTIONS = ("ratio", "safety", "coverage", "trajectory", "wide")
METHODS = ("true", "A known", "RCA", "covariates", "naive", "cca")
MIXINGS = ("good", "unif")
SIZES = (300, 1000, 3000, 10_000)
STEPS = (0, 10, 30, 100, 300, 1000)
AIMS = {300: 1.15, 1000: 1.15, 3000: 0.85, 10_000: 0.5}

Job = dict[str, Any]
Row = dict[str, Any]


def jobs(section: str, seed: int, draws: int | None) -> Iterator[Job]:
    """What there is to do; seeds of different sections do not overlap."""
    many = draws or {"ratio": 20, "safety": 500, "coverage": 200, "trajectory": 20, "wide": 1}[section]
    first = seed + 10_000 * SECTIONS.index(section)
    for i in range(many):
        if section == "safety":
            yield {"section": section, "seed": first + i}
        elif section == "wide":
            yield {"section": section, "seed": first + i, "n": 5000, "d": 200}
        else:
            sizes = {"ratio": SIZES, "coverage": (10_000,), "trajectory": (1000,)}[section]
            for mixing in MIXINGS if section != "trajectory" else ("good",):
                for n in sizes:
                    yield {"section": section, "seed": first + i, "A": mixing, "n": n}


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
    out: Row = {"n": n, "size": size, "S2": shared, "A": mixing, "separable": noise == 0}
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


def trajectory(job: Job) -> Row:
    data = make_contrastive(job["n"], S1="logistic", A=job["A"], random_state=job["seed"])
    assert data.beta is not None
    options: dict[str, Any] = {"solver": "sgd", "n_steps": STEPS[-1], "approximation": "chebyshev"}
    clean = ComponentLogisticRegression(**options).fit_clean(data.S1, data.y)
    unknown = ComponentLogisticRegression(rca=ContrastiveRCA(views=10), **options).fit(data.X, data.y)
    known = ComponentLogisticRegression(rca=ContrastiveRCA(views=10, A=data.A), **options).fit(data.X, data.y)
    out: Row = {}
    for label, model in (("true", clean), ("A known", known), ("RCA", unknown)):
        assert model.trajectory_ is not None
        path = model.trajectory_.coef
        out[label] = [float(np.mean((path[t] - data.beta) ** 2)) for t in STEPS]
        out[label + " mean"] = error(model, data.beta)
    return out


def wide(job: Job) -> Row:
    rng = np.random.default_rng(job["seed"])
    n, d, r = job["n"], job["d"], 5
    s2 = (rng.exponential(size=(n, r)) - 1) @ rng.normal(size=(r, d))
    X = np.hstack([rng.uniform(-1, 1, size=(n, d)) + s2, s2 + rng.uniform(-1, 1, size=(n, d))])
    model = ContrastiveRCA(views=d, rank=r).fit(X)
    component = model.component_on_rows(X)
    likelihood = LogisticLikelihood.of(component, np.full(d, 0.01), 0.5, alpha=1e-3)
    at = np.full(1 + likelihood.root.shape[1], 0.05)
    start = time.perf_counter()
    for _ in range(5):
        expected_gradient(likelihood.component, likelihood, at)
    seconds = (time.perf_counter() - start) / 5
    tracemalloc.start()
    expected_gradient(likelihood.component, likelihood, at)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": seconds, "peak MB": peak / 1e6, "table MB": X.nbytes / 1e6}


def run(sections: list[str], path: Path, seed: int, draws: int | None) -> None:
    warnings.simplefilter("ignore")
    measure = {f.__name__: f for f in (ratio, safety, coverage, trajectory, wide)}
    done = {json.dumps(row["job"], sort_keys=True) for row in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        for section in sections:
            for job in jobs(section, seed, draws):
                if json.dumps(job, sort_keys=True) not in done:
                    out.write(json.dumps({"job": job, **measure[section](job)}) + "\n")
                    out.flush()


def read(path: Path) -> list[Row]:
    """Whole lines only: a killed run may have left half a line."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def show(path: Path) -> None:
    rows = read(path)

    def of(section: str, **fixed: Any) -> list[Row]:
        return [r for r in rows if r["job"]["section"] == section and all(r["job"][k] == v for k, v in fixed.items())]

    print(f"{'A':>5} {'N':>6} " + " ".join(f"{m:>10}" for m in METHODS) + "   ratio   aim  draws")
    for mixing in MIXINGS:
        for n in SIZES:
            if found := of("ratio", A=mixing, n=n):
                median = {m: float(np.median([row[m] for row in found])) for m in METHODS}
                numbers = " ".join(f"{median[m]:10.5f}" for m in METHODS)
                share = median["RCA"] / median["covariates"]
                print(f"{mixing:>5} {n:>6} {numbers}  {share:6.3f}  {AIMS[n]:.2f}  {len(found)}")
    if found := [row for row in of("safety") if "RCA" in row]:
        for low, high in ((0.0, 1.0), (1.0, 3.0), (3.0, 10.0)):
            chosen = [row for row in found if low < row["size"] <= high]
            worst = np.array(
                [[row[m] / max(row["naive"], row["covariates"]) for m in ("RCA", "chebyshev")] for row in chosen]
            )
            plain = np.array([row["RCA"] / row["covariates"] for row in chosen])
            if len(chosen):
                separable = sum(row["separable"] for row in chosen)
                print(f"|beta| in ({low:g}, {high:g}]: {len(chosen)} fits, {separable} separable")
                for name, over in zip(("RCA", "chebyshev"), worst.T, strict=True):
                    above = int(np.sum(over > 2))
                    print(
                        f"  {name}: over the worse of naive and covariates at most {over.max():.3f}, above 2: {above}"
                    )
                print(f"  RCA over covariates: median {np.median(plain):.3f}, at most {plain.max():.3f}")
    for mixing in MIXINGS:
        if found := of("coverage", A=mixing):
            inside = np.array([row["covered"] for row in found])
            print(f"coverage, A {mixing}, N = 10 000: {inside.mean():.3f} over {len(found)} draws (aim 0.91-0.98)")
    if found := of("trajectory"):
        print(
            f"{'step':>14} " + " ".join(f"{t:>8}" for t in STEPS) + f"   mean of the second half ({len(found)} draws)"
        )
        for label in ("true", "A known", "RCA"):
            path_error = np.median([row[label] for row in found], axis=0)
            last = np.median([row[label + " mean"] for row in found])
            print(f"{label:>14} " + " ".join(f"{e:8.5f}" for e in path_error) + f"   {last:.5f}")
    for row in of("wide"):
        print(
            f"d = {row['job']['d']}, N = {row['job']['n']}: one gradient {1000 * row['seconds']:.0f} ms, peak "
            f"{row['peak MB']:.1f} MB beyond the rows ({row['table MB']:.0f} MB)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--draws", type=int, help="per setting; by default what the aims ask for")
    parser.add_argument("--seed", type=int, default=820_000)
    parser.add_argument("--rows", type=Path, default=Path(__file__).parent / "results" / "logistic.jsonl")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}")
    if options.what == "run":
        run(options.sections or list(SECTIONS), options.rows, options.seed, options.draws)
    show(options.rows)


if __name__ == "__main__":
    main()
