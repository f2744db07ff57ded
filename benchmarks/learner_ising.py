"""Couplings of an Ising model hidden in S1: true / RCA / covariates / CCA / naive, intervals, large graphs.

    python benchmarks/learner_ising.py run [SECTION ...] [--draws 20] [--seed 700000] [--sizes 300 1000 3000] [--out DIR]
    python benchmarks/learner_ising.py show [--out DIR]

5 x 5 periodic grid, 50 couplings ~ Unif[-1, 1]; S2: 13 independent spins and 12 that are all equal to one random sign;
S3 ~ Unif[-1, 1]; A with singular values in [0.5, 1.5]; A and the rank of S2 unknown. Medians over draws of the mean squared
error of the couplings (J = 0 scores 1/3). All methods get the same ridge.

accuracy : true: maximum likelihood on samples of S1. RCA: the default; RCA alone: the same from the component without the
    RCA; RCA mle: maximum likelihood from its pair moments. covariates and naive: maximum likelihood from the correlations of
    the residual of U on V, and of U; covariates joint and CCA: fitted to all second moments, as RCA is. cover: how many of
    the 95% intervals of RCA hold the coupling; width: their mean half width over the error.
paper : the paper's Taylor gradient of the composite likelihood, from true samples and from the RCA.
fields : fields ~ Unif[-0.5, 0.5] too, S2 with mean zero; errors of couplings and of fields, and coverage of both.
large : one fit each of a 10 x 10 grid and of a random graph with 60 nodes, 3000 samples, with seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from richcomponents import ComponentIsing, ContrastiveRCA, baselines
from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.learning.ising import grid_edges, moment_model, with_ghost
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

SECTIONS = ("accuracy", "paper", "fields", "large")
GRID = grid_edges(5, 5)
NOT_ERRORS = ("rank", "cover", "width", "seconds", "cover fields", "RCA fields")


def draw(edges: IntArray, d: int, n: int, seed: int, *, fields: bool = False) -> tuple[Array, Array, Array, Array]:
    """Couplings (m,), then fields (d,) if any; S1, U and V (n, d)."""
    rng = np.random.default_rng(seed)
    J = rng.uniform(-1, 1, len(edges))
    if fields:
        J = np.concatenate([J, rng.uniform(-0.5, 0.5, d)])
        S1 = moment_model(d + 1, with_ghost(d, edges)).sample(J, n, rng)
        S1 = S1[:, :d] * S1[:, d:]
    else:
        S1 = moment_model(d, edges).sample(J, n, rng)
    half = d - d // 2
    S2 = rng.choice([-1.0, 1.0], (n, d))
    S2[:, half:] = rng.choice([-1.0, 1.0], (n, 1))
    left, right = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    A = left * rng.uniform(0.5, 1.5, d) @ right
    return J, S1, S1 + S2, S2 @ A.T + rng.uniform(-1, 1, (n, d))


def error(estimate: Array, truth: Array) -> float:
    return float(np.mean((estimate - truth) ** 2))


def accuracy(n: int, seed: int) -> Row:
    J, S1, U, V = draw(GRID, 25, n, seed)
    X = np.hstack([U, V])
    learner = ComponentIsing(edges=GRID, rca=ContrastiveRCA(views=25))
    fitted, mle = learner.fit(X), ComponentIsing(edges=GRID, method="likelihood", rca=ContrastiveRCA(views=25))
    table = fitted.confidence_interval()
    extracted = fitted.component_
    row: Row = {"RCA": error(fitted.coef_, J), "rank": int(fitted.rca_.rank_)}
    row["cover"] = float(np.mean((table.low <= J) & (table.high >= J)))
    row["width"] = float(np.mean(table.standard_error) / np.sqrt(row["RCA"]))
    row["true"] = error(learner.fit_clean(S1).coef_, J)
    row["RCA alone"] = error(learner.fit_component(extracted).coef_, J)
    row["RCA mle"] = error(mle.fit_component(extracted).coef_, J)
    row["covariates"] = error(baselines.covariates(mle, X).coef_, J)
    row["covariates joint"] = error(baselines.covariates(learner, X).coef_, J)
    row["CCA"] = error(baselines.cca(learner, X).coef_, J)
    row["naive"] = error(baselines.naive(mle, X).coef_, J)
    return row


def paper(n: int, seed: int) -> Row:
    J, S1, U, V = draw(GRID, 25, n, seed)
    X = np.hstack([U, V])
    row: Row = {}
    extracted = ContrastiveRCA(views=25).fit(X).components_["S1"]
    learner = ComponentIsing(edges=GRID, method="paper")
    row["RCA taylor"] = error(learner.fit_component(extracted).coef_, J)
    row["true taylor"] = error(learner.fit_clean(S1).coef_, J)
    return row


def with_fields(n: int, seed: int) -> Row:
    theta, S1, U, V = draw(GRID, 25, n, seed, fields=True)
    J, b = theta[:50], theta[50:]
    learner = ComponentIsing(edges=GRID, fields=True, rca=ContrastiveRCA(views=25))
    X = np.hstack([U, V])
    fitted = learner.fit(X)
    table = fitted.confidence_interval()
    held = (table.low <= theta) & (table.high >= theta)
    row: Row = {"RCA": error(fitted.coef_, J), "RCA fields": error(fitted.fields_, b)}
    row |= {"cover": float(held[:50].mean()), "cover fields": float(held[50:].mean())}
    for label, other in (
        ("true", learner.fit_clean(S1)),
        ("covariates joint", baselines.covariates(learner, X)),
        ("naive", baselines.naive(learner, X)),
    ):
        row |= {label: error(other.coef_, J), f"{label} fields": error(other.fields_, b)}
    return row


def large(label: str, seed: int) -> Row:
    if label == "10 x 10 grid":
        edges, d = grid_edges(10, 10), 100
    else:
        pairs = np.column_stack(np.triu_indices(60, 1))
        edges, d = pairs[np.random.default_rng(seed).permutation(len(pairs))[:100]], 60
    J, S1, U, V = draw(edges, d, 3000, seed)
    start = time.process_time()  # of one core: others may be at work on the machine
    fitted = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=d)).fit(np.hstack([U, V]))
    row: Row = {"seconds": time.process_time() - start, "RCA": error(fitted.coef_, J), "rank": int(fitted.rca_.rank_)}
    row["true"] = error(ComponentIsing(edges=edges).fit_clean(S1).coef_, J)
    row["naive"] = error(ComponentIsing(edges=edges).fit_component(Component.of_samples(U, order=2)).coef_, J)
    return row


MEASURES: dict[str, Callable[[Any, int], Row]] = {
    "accuracy": accuracy,
    "paper": paper,
    "fields": with_fields,
    "large": large,
}


def measure(job: Job) -> Row:
    return MEASURES[job["section"]](job["case"], job["seed"])


def jobs(section: str, options: Options) -> list[Job]:
    cases = ["10 x 10 grid", "random graph of 60 nodes"] if section == "large" else options.sizes
    return drawn([{"case": case} for case in cases], options.draws, options.seed)


def show(rows: Measured, options: Options) -> None:
    for section in SECTIONS:
        cases = dict.fromkeys(row["case"] for row in rows(section))
        for _, held in by_case(rows(section), [{"case": case} for case in cases]):
            case = held[0]["case"]
            print(f"\n{section}, {case if section == 'large' else f'N = {case}'}, {len(held)} draws")
            for key in list(held[0])[3:]:  # section, case, seed
                values = [row[key] for row in held]
                middle = np.mean(values) if key.startswith(("cover", "width")) else np.median(values)
                ratio = f"   {middle / np.median([r['RCA'] for r in held]):8.2f} x RCA" if "RCA" in held[0] else ""
                print(f"  {key:<24} {middle:9.5f}{'' if key in NOT_ERRORS else ratio}")


if __name__ == "__main__":
    sizes = (300, 1000, 3000)
    main(__doc__, SECTIONS, jobs, measure, show, draws=20, seed=700_000, out=RESULTS, file="ising_{}.csv", sizes=sizes)
