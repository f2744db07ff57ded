"""Wide views: what residualising is, what the coefficients are, what memory they take.

    python benchmarks/wide.py [SECTION ...] [--draws 20] [--seed 700000]

Sections: grid, example, memory, times; by default all.

1. The grid N x d_U x d_V: largest relative difference between `residualised_` and ordinary least squares of y on (U, the shared
   canonical variates of V), wherever that is determined. The variates are recomputed from what `residual` takes from U.
2. N = 500, U of 10 to 150 columns, V of 10, three skewed shared factors, y = 2 S1[0] + .5 noise: the coefficient by method.
3. Peak memory and seconds of 40 x 20 000 columns and of summary() of 10 000 columns, each in a process of its own.
4. Seconds (of the processor, and of the clock) of fits with many shared directions or columns; of a fit over the pass of order
   four that it contains, of a regression over the fit of its RCA, and of intervals where nothing is shared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from rows import Job, Row, measured, settings_of

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


def spent(work: Callable[[], Any], rounds: int = 1) -> tuple[float, float]:
    """Least seconds of the processor and of the clock."""
    taken = []
    for _ in range(rounds):
        start = time.process_time(), time.perf_counter()
        work()
        taken.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return min(cpu for cpu, _ in taken), min(clock for _, clock in taken)


def ratio(title: str, work: Callable[[], Any], base: Callable[[], Any], rounds: int = 3) -> None:
    ours, other = spent(work, rounds), spent(base, rounds)
    print(f"{title}: {ours[0] / other[0]:.2f} of the processor, {ours[1] / other[1]:.2f} of the clock", flush=True)


def times(seed: int) -> None:
    """Warm up first: what is compiled once does not count."""
    small = rc.datasets.make_contrastive(3000, d=20, random_state=seed)
    rc.ComponentRegression(rca=rc.ContrastiveRCA(views=20)).fit(small.X, small.y)
    X = np.random.default_rng(seed).normal(size=(2000, 40))
    alone = rc.ContrastiveRCA(views=20, rank=0).fit(X)
    cpu, clock = spent(lambda: [alone.confidence_interval("A"), alone.confidence_interval("covariance")])
    print(f"intervals of A and Cov(S1), nothing shared, 20 + 20 columns: {cpu:.2f} s, clock {clock:.2f} s", flush=True)
    many = rc.datasets.make_contrastive(100_000, d=20, random_state=seed).X
    ratio(
        "fit over its pass of order four, N = 100 000, 20 + 20 columns",
        lambda: rc.ContrastiveRCA(views=20).fit(many),
        lambda: rc.Moments.of(many, order=4),
    )
    data = rc.datasets.make_contrastive(1_000_000, d=10, S2="skewed", random_state=seed)
    rca = rc.ContrastiveRCA(views=10)
    ratio(
        "regression over the fit of its RCA, N = 1 000 000, 10 + 10 columns",
        lambda: rc.ComponentRegression(rca=rca).fit(data.X, data.y),
        lambda: rca.fit(data.X),
    )
    for n, d, rank in ((10_000, 60, 60), (100_000, 60, 60), (20_000, 1000, 20), (20_000, 200, 200)):
        full = rank == d
        X, A = skewed(n, d, rank, seed)
        model = rc.ContrastiveRCA(views=d, rank="full" if full else "auto")
        cpu, clock = spent(lambda: model.fit(X))  # noqa: B023
        error = np.sum((model.A_ - A) ** 2) / np.sum(A**2) if full else float("nan")
        told = f"; A's squared error {error:.4f} of its size" if full else ""
        print(f"N = {n}, {d} + {d} columns, rank {model.rank_}: {cpu:.1f} s, clock {clock:.1f} s{told}", flush=True)


def skewed(n: int, d: int, rank: int, seed: int) -> tuple[Any, Any]:
    """Columns (U, V) and A; at full rank those of make_contrastive."""
    if rank == d:
        data = rc.datasets.make_contrastive(n, d=d, S2="skewed", random_state=seed)
        return data.X, data.A
    rng = np.random.default_rng(seed)
    shared, into = rng.exponential(size=(n, rank)) - 1, rng.normal(size=(rank, 2 * d)) / 3
    return shared @ into + rng.normal(size=(n, 2 * d)), None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="grid, example, memory, times")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=700_000)
    parser.add_argument("--alone", choices=["all", "summary"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        list(measured([{"what": chosen.alone}], alone))
        return
    warnings.simplefilter("ignore")
    work: dict[str, Callable[[], None]] = {
        "grid": lambda: grid(chosen.seed),
        "example": lambda: example(chosen.draws, chosen.seed),
        "memory": memory,
        "times": lambda: times(chosen.seed),
    }
    for section in chosen.sections or work:
        work[section]()


def memory() -> None:
    for what in ("all", "summary"):
        subprocess.run([sys.executable, __file__, "--alone", what], check=True)


if __name__ == "__main__":
    main()
