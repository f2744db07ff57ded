"""Wide views: what residualising is, what the coefficients are, what memory they take.

    python benchmarks/wide.py [--draws 20] [--seed 700000] [--skip-memory]

1. The grid N x d_U x d_V: largest relative difference between `residualised_` and ordinary least squares of y on (U, the shared
   canonical variates of V), wherever that is determined. The variates are recomputed from what `residual` takes from U.
2. N = 500, U of 10 to 150 columns, V of 10, three skewed shared factors, y = 2 S1[0] + .5 noise: the coefficient by method.
3. Peak memory and seconds of 40 x 20 000 columns and of summary() of 10 000 columns, each in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.experiments.rows import Job, Row, measured, settings_of

SIZES = (60, 150, 500, 1500)
COLUMNS_U = (2, 4, 10, 20, 48, 100, 150, 300)
COLUMNS_V = (2, 4, 20, 60, 200)


def draw(n: int, d_u: int, d_v: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([seed, n, d_u, d_v])
    rank = min(3, d_u, d_v)
    shared = rng.exponential(size=(n, rank)) - 1
    S1 = rng.normal(size=(n, d_u))
    U = S1 + shared @ rng.normal(size=(rank, d_u))
    V = shared @ rng.normal(size=(rank, d_v)) + 0.5 * rng.normal(size=(n, d_v))
    return np.hstack([U, V]), 2 * S1[:, 0] + 0.5 * rng.normal(size=n)


def least_squares(model: rc.ContrastiveRCA, X: Any, y: Any, d_u: int) -> Any:
    """Slopes of U (d_u,), by numpy alone once the shared variates of V are known."""
    U = X[:, :d_u]
    lost = U - U.mean(axis=0) - model.residual(X)
    variates = np.linalg.svd(lost, full_matrices=False)[0][:, : model.rank_]
    return np.linalg.lstsq(np.column_stack([np.ones(len(y)), U, variates]), y, rcond=None)[0][1 : d_u + 1]


def compare(job: Job) -> list[Row]:
    """The learner on one draw, beside least squares and V as covariates."""
    d_u = job["d_u"]
    X, y = draw(job["n"], d_u, job["d_v"], job["seed"])
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u))
    fit = learner.fit(X, y)
    expected, residualised = least_squares(fit.rca_, X, y, d_u), np.asarray(fit.residualised_)
    difference = float(np.abs(residualised - expected).max() / np.abs(expected).max())
    row = {**job, "difference": difference, "reduced": "principal components" in fit.rca_.summary()}
    if job["baseline"]:
        row |= {"RCA": fit.coef_[0], "residualised": residualised[0]}
        row["covariates"] = rc.baselines.covariates(learner, X, y).coef_[0]
    return [row]


def rows_of(jobs: Iterable[Job]) -> list[Row]:
    return [row for _, rows in measured(list(jobs), compare) for row in rows]


def grid(seed: int) -> None:
    cells = settings_of({"n": SIZES, "d_u": COLUMNS_U, "d_v": COLUMNS_V, "seed": seed, "baseline": False})
    rows = rows_of(cell for cell in cells if cell["n"] > cell["d_u"] + min(3, cell["d_v"]) + 2)
    worst, reduced = max(row["difference"] for row in rows), sum(row["reduced"] for row in rows)
    print(f"the grid: {len(rows)} cells, {reduced} with a reduced view; largest relative difference {worst:.1e}")


def example(draws: int, seed: int) -> None:
    print("\nN = 500, V of 10 columns, coefficient of S1[0] (truth 2): median [min, max]")
    for d_u in (10, 20, 40, 60, 80, 90, 100, 120, 150):
        settings = {"n": 500, "d_u": d_u, "d_v": 10, "seed": tuple(range(seed, seed + draws)), "baseline": True}
        rows = rows_of(settings_of(settings))
        values = {method: [row[method] for row in rows] for method in ("RCA", "residualised", "covariates")}
        shown = (f"{k} {np.median(v):.3f} [{min(v):.3f}, {max(v):.3f}]" for k, v in values.items())
        print(f"  U of {d_u:3d} columns: {'; '.join(shown)}", flush=True)


def alone(job: Job) -> list[Row]:
    """One measurement, in this process."""
    what = job["what"]
    n, d_u, d_v = (40, 10_000, 10_000) if what == "all" else (40, 10_000, 20)
    X, _ = draw(n, d_u, d_v, 1)
    start = time.perf_counter()
    model = rc.ContrastiveRCA(views=d_u).fit(X)
    if what == "all":
        model.summary()
        model.transform(X)
        with tempfile.TemporaryDirectory() as folder:
            rc.write_report(Path(folder) / "page.html", model)
        title = "40 x 20 000: fit, summary, transform, report"
    else:
        start = time.perf_counter()
        model.summary()
        title = "summary() of 10 000 columns"
    seconds = time.perf_counter() - start
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = (
        int(status["VmHWM"].split()[0]) / 2**20
    )  # of this process; what getrusage says is at least that of its parent
    print(f"{title}: {seconds:.1f} s, peak {peak:.2f} GiB", flush=True)
    return [{**job, "seconds": seconds, "GiB": peak}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=700_000)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--alone", choices=["all", "summary"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        list(measured([{"what": chosen.alone}], alone))
        return
    grid(chosen.seed)
    example(chosen.draws, chosen.seed)
    if not chosen.skip_memory:
        print()
        for what in ("all", "summary"):
            subprocess.run([sys.executable, __file__, "--alone", what], check=True)


if __name__ == "__main__":
    main()
