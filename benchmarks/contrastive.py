"""Every figure that ContrastiveRCA is held to, on simulated data with known truth.

    python benchmarks/contrastive.py run SECTION ... [--draws 20] [--seed 90000] [--out DIR]    # append rows
    python benchmarks/contrastive.py show [--out DIR]                                           # print the tables

Sections: accuracy, protection, rank, coverage, tests. Rows are appended as they finish, one JSON object per line, and a
killed run continues where it stopped. Ratios are of medians over draws.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one process per core instead

import numpy as np  # noqa: E402

import richcomponents as rc  # noqa: E402
from richcomponents.datasets import Contrastive, make_contrastive  # noqa: E402

Job = tuple[str, dict[str, Any], int]

ACCURACY: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("pca", {"S1": "pca", "S2": "paper"}, (1000, 3000, 10_000)),
    ("regression", {"S1": "regression", "S2": "paper"}, (100, 300, 1000, 3000, 10_000)),
    ("skewed", {"S1": "regression", "S2": "skewed"}, (1000, 3000, 10_000)),
    ("labs(2)", {"S1": "regression", "S2": "labs(2)"}, (300, 700, 3000)),
    ("labs(3)", {"S1": "regression", "S2": "labs(3)"}, (300, 700, 3000)),
    ("labs(4)", {"S1": "regression", "S2": "labs(4)"}, (300, 700, 3000)),
    ("uniform d=30", {"S1": "regression", "S2": "uniform", "d": 30}, (10_000,)),
]
HARD: list[tuple[str, dict[str, Any]]] = [
    ("gaussian", {"S2": "gaussian"}),
    ("gaussian, A good", {"S2": "gaussian", "A": "good"}),
    ("gaussian, quiet V", {"S2": "gaussian", "scale_S3": 0.1}),
    ("paper, quiet V", {"S2": "paper", "scale_S3": 0.1}),
    ("skewed, quiet V", {"S2": "skewed", "scale_S3": 0.1}),
    ("tiny paper", {"S2": "paper", "scale_S2": 0.1}),
    ("tiny skewed", {"S2": "skewed", "scale_S2": 0.1}),
    ("heavy tails", {"S2": "heavy"}),
    ("heavy tails, quiet V", {"S2": "heavy", "scale_S3": 0.1}),
    ("labs(2), quiet V", {"S2": "labs(2)", "scale_S3": 0.1}),
]
HARD_SIZES = (100, 300, 1000, 10_000)


def jobs(section: str, draws: int, seed: int) -> Iterator[Job]:
    """(section, settings of make_contrastive and a label, seed)."""
    if section == "accuracy":
        cases = [(label, kw, n) for label, kw, sizes in ACCURACY for n in sizes]
    elif section == "protection":
        cases = [(label, kw, n) for label, kw in HARD for n in HARD_SIZES]
    elif section == "rank":
        cases = [(f"labs({k})", {"S2": f"labs({k})"}, n) for k in (2, 3) for n in (700, 3000)]
    elif section == "coverage":
        cases = [(label, kw, 10_000) for label, kw, _ in ACCURACY[:3]] + [("labs(3)", {"S2": "labs(3)"}, 10_000)]
    elif section == "tests":
        cases = [
            (f"{label}{', shared' if shared else ''}", {**kw, "extra": shared}, n)
            for label, kw in (
                ("regression", {"S2": "paper"}),
                ("pca", {"S1": "pca", "S2": "paper"}),
                ("skewed", {"S2": "skewed"}),
                ("labs(3)", {"S2": "labs(3)"}),
                ("gaussian", {"S2": "gaussian"}),
            )
            for shared in (False, True)
            for n in (1000, 3000, 10_000)
        ]
    else:
        raise SystemExit(f"no section {section!r}")
    for draw in range(draws):
        for label, kw, n in cases:
            yield section, {**kw, "label": label, "n": n}, seed + draw


def simulate(settings: dict[str, Any], seed: int) -> Contrastive:
    kw = {k: v for k, v in settings.items() if k not in ("label", "n", "extra")}
    return make_contrastive(settings["n"], random_state=seed, **kw)


def mse(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean((estimate - truth) ** 2))


def direction_error(covariance: np.ndarray, truth: np.ndarray) -> float:
    top = np.linalg.eigh(covariance)[1][:, -1]
    return float(min(np.sum((top - truth) ** 2), np.sum((top + truth) ** 2)))


def ols(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(y)), X])
    return np.asarray(np.linalg.lstsq(design, y, rcond=None)[0][1:])


def cca_projection(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """U without its first canonical variate."""
    u, v = U - U.mean(axis=0), V - V.mean(axis=0)
    qu, ru = np.linalg.qr(u)
    qv, _ = np.linalg.qr(v)
    first = np.linalg.solve(ru, np.linalg.svd(qu.T @ qv)[0][:, 0])
    first = first / np.linalg.norm(first)
    return np.asarray(U - np.outer(U @ first, first))


def measure(job: Job) -> dict[str, Any]:
    section, settings, seed = job
    warnings.simplefilter("ignore")
    data = simulate(settings, seed)
    d = data.S1.shape[1]
    row: dict[str, Any] = {"section": section, "label": settings["label"], "n": settings["n"], "seed": seed}
    X, y = data.X, data.y
    if settings.get("extra"):
        rng = np.random.default_rng(seed + 10**6)
        common = rng.uniform(-1, 1, data.S1.shape) * 0.5 * data.S2.std() / np.sqrt(1 / 3)
        s1 = data.S1 + common @ rng.normal(size=(d, d)) / np.sqrt(d)
        s3 = data.S3 + common @ rng.normal(size=(d, d)) / np.sqrt(d)
        X = np.hstack([s1 + data.S2, data.S2 @ data.A.T + s3])
        y = None if data.beta is None else s1 @ data.beta + rng.normal(size=len(s1))
    model = rc.ContrastiveRCA(views=d).fit(X)
    row.update(rank=model.rank_, verdict=model.verdict_)
    if section in ("accuracy", "protection") and y is not None and data.beta is not None:
        fit = model.calibrate(X, y)
        row["beta"] = mse(fit.coef, data.beta)
        row["covariates"] = mse(ols(X, y)[:d], data.beta)
        row["naive"] = mse(ols(data.U, y), data.beta)
        row["cca"] = mse(ols(cca_projection(data.U, data.V), y), data.beta)
        row["true"] = mse(ols(data.S1, y), data.beta)
    if section == "accuracy":
        row["A"] = mse(model.A_, data.A)
        row["A paper"] = mse(rc.ContrastiveRCA(views=d, method="paper").fit(X).A_, data.A)
        if data.direction is not None:
            row["top"] = direction_error(model.components_["S1"].covariance, data.direction)
            known = rc.ContrastiveRCA(views=d, method="paper", A=data.A).fit(X)
            row["top known A"] = direction_error(known.components_["S1"].covariance, data.direction)
            row["top naive"] = direction_error(np.cov(data.U.T), data.direction)
            row["top residualised"] = direction_error(np.asarray(model.diagnostics_.identified.top), data.direction)
    if section == "coverage":
        A = data.A
        if model.rank_ < d:  # A is known on the range of S2 only: compare A P, P the projector the estimate uses
            A = A @ _range_projector(data, model)
        for what, truth in (("A", A), ("covariance", data.cov_S1)):
            interval = model.confidence_interval(what)
            row[f"{what} covered"] = float(np.mean((interval.low <= truth) & (truth <= interval.high)))
    if section == "tests":
        test = model.diagnostics_.overidentification
        row["J"] = None if test is None else test.p_value
        row["outcome"] = None if y is None else model.outcome_test(X, y).p_value
    return row


def _range_projector(data: Contrastive, model: rc.ContrastiveRCA) -> np.ndarray:
    """P with A_estimated -> A P: onto the range of S2, along its complement in the metric of Cov(U)^-1."""
    biases = np.unique(np.round(data.S2, 12), axis=0)
    basis = np.linalg.svd((biases - biases.mean(axis=0)).T)[0][:, : model.rank_]
    truth = data.cov_S1 + np.cov(data.S2.T)
    inverse = np.linalg.inv(truth)
    return np.asarray(basis @ np.linalg.solve(basis.T @ inverse @ basis, basis.T @ inverse))


def run(sections: list[str], draws: int, seed: int, out: Path, processes: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for section in sections:
        path = out / f"{section}.jsonl"
        done = {(r["label"], r["n"], r["seed"]) for r in read(path)}
        todo = [j for j in jobs(section, draws, seed) if (j[1]["label"], j[1]["n"], j[2]) not in done]
        print(f"{section}: {len(todo)} rows to do, {len(done)} done", flush=True)
        with multiprocessing.Pool(processes) as pool, path.open("a") as file:
            for row in pool.imap_unordered(measure, todo):
                file.write(json.dumps(row) + "\n")
                file.flush()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def groups(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    out: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        out[row["label"], row["n"]].append(row)
    return dict(sorted(out.items()))


def median(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.median([row[key] for row in rows]))


def rejected(p_values: list[float]) -> str:
    return f"{np.mean(np.array(p_values) < 0.05):.3f}" if p_values else "  -  "


def show(out: Path) -> None:
    accuracy = groups(read(out / "accuracy.jsonl"))
    if accuracy:
        print("\nACCURACY: ratios of medians")
        print(
            f"{'design':>14} {'n':>6} {'draws':>5} {'A/paper':>8} {'beta/best':>9} {'beta/true':>9} {'top/known A':>11}"
            f" {'top':>7}"
        )
        for (label, n), rows in accuracy.items():
            cells = [f"{median(rows, 'A') / median(rows, 'A paper'):8.3f}"]
            if "beta" in rows[0]:
                best = min(median(rows, k) for k in ("naive", "cca", "covariates"))
                cells += [f"{median(rows, 'beta') / best:9.2f}", f"{median(rows, 'beta') / median(rows, 'true'):9.2f}"]
            else:
                cells += [" " * 9, " " * 9]
            if "top" in rows[0]:
                cells += [
                    f"{median(rows, 'top') / median(rows, 'top known A'):11.2f}",
                    f"{median(rows, 'top'):7.4f}",
                    f"(residualised {median(rows, 'top residualised'):.4f}, naive {median(rows, 'top naive'):.3f})",
                ]
            print(f"{label:>14} {n:>6} {len(rows):>5} " + " ".join(cells))
    hard = groups(read(out / "protection.jsonl"))
    if hard:
        print("\nPROTECTION: beta over residualising")
        print(f"{'design':>22} {'n':>6} {'draws':>5} {'median':>7} {'ratio of medians':>16} {'worst draw':>10}")
        for (label, n), rows in hard.items():
            ratio = np.array([r["beta"] / r["covariates"] for r in rows])
            medians = np.median([r["beta"] for r in rows]) / np.median([r["covariates"] for r in rows])
            print(f"{label:>22} {n:>6} {len(rows):>5} {np.median(ratio):7.2f} {medians:16.2f} {ratio.max():10.2f}")
        everything = [r for rows in hard.values() for r in rows] + [
            r for rows in accuracy.values() for r in rows if "beta" in r
        ]
        strong = [r for r in everything if r["verdict"] == "strong"]
        if strong:
            good = np.mean([r["beta"] <= 1.05 * r["covariates"] for r in strong])
            print(f"called strong: {len(strong)} fits, {good:.1%} beat residualising or tie (within 5%)")
        gaussian = [r for r in everything if r["label"].startswith("gaussian")]
        called = np.mean([r["verdict"] == "strong" for r in gaussian])
        print(f"Gaussian shared part: {len(gaussian)} fits, {called:.1%} called strong")
    for (label, n), rows in groups(read(out / "rank.jsonl")).items():
        right = np.mean([r["rank"] == int(label[5]) - 1 for r in rows])
        print(f"RANK {label} n={n}: right in {right:.1%} of {len(rows)}")
    for (label, n), rows in groups(read(out / "coverage.jsonl")).items():
        a, c = (np.mean([r[f"{w} covered"] for r in rows]) for w in ("A", "covariance"))
        print(f"COVERAGE {label} n={n}: A {a:.3f}, Cov(S1) {c:.3f} ({len(rows)} draws)")
    for (label, n), rows in groups(read(out / "tests.jsonl")).items():
        j = [r["J"] for r in rows if r["J"] is not None]
        o = [r["outcome"] for r in rows if r["outcome"] is not None]
        print(f"TESTS {label:>20} n={n:>5}: rejected at 5%: J {rejected(j)}, outcome {rejected(o)} ({len(rows)} draws)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=90_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "contrastive")
    options = parser.parse_args()
    if options.what == "run":
        wanted = options.sections or ["accuracy", "protection", "rank", "coverage", "tests"]
        run(wanted, options.draws, options.seed, options.out, options.processes)
    else:
        show(options.out)


if __name__ == "__main__":
    main()
