"""Every figure that ContrastiveRCA is held to, on simulated data with known truth.

    python benchmarks/contrastive.py run [SECTION ...] [--draws 20] [--seed 90000] [--out DIR]    # measure what is missing
    python benchmarks/contrastive.py show [--out DIR]                                             # print the tables

Sections: accuracy, mixing (A over the regression of V on U), protection, rank, coverage, tests. Ratios are of medians over
draws.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.datasets import Contrastive, make_contrastive
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main, medians

SECTIONS = ("accuracy", "mixing", "protection", "rank", "coverage", "tests")
ACCURACY: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("pca", {"S1": "pca", "S2": "paper"}, (1000, 3000, 10_000)),
    ("regression", {"S1": "regression", "S2": "paper"}, (100, 300, 1000, 3000, 10_000)),
    ("skewed", {"S1": "regression", "S2": "skewed"}, (1000, 3000, 10_000)),
    ("labs(2)", {"S1": "regression", "S2": "labs(2)"}, (300, 700, 3000)),
    ("labs(3)", {"S1": "regression", "S2": "labs(3)"}, (300, 700, 3000)),
    ("labs(4)", {"S1": "regression", "S2": "labs(4)"}, (300, 700, 3000)),
    ("uniform d=30", {"S1": "regression", "S2": "uniform", "d": 30}, (10_000,)),
]
MIXING: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    *(
        (f"regression d={d}", {"S2": "paper", "d": d}, (100, 300, 1000, 3000)[: 4 if d < 30 else 3])
        for d in (10, 20, 30)
    ),
    ("regression, free", {"S2": "paper", "errors": "free"}, (100, 300, 1000, 3000)),
    ("regression, A good", {"S2": "paper", "A": "good"}, (100, 300, 1000)),
    ("gaussian, free", {"S2": "gaussian", "errors": "free"}, (100, 300, 1000, 3000)),
    ("pca", {"S1": "pca", "S2": "paper"}, (100, 300, 1000, 3000)),
    ("pca, A good", {"S1": "pca", "S2": "paper", "A": "good"}, (100, 300, 1000, 3000)),
    ("pca d=20", {"S1": "pca", "S2": "paper", "d": 20}, (100, 300, 1000)),
    ("pca gaussian", {"S1": "pca", "S2": "gaussian"}, (100, 300, 1000)),
    ("quiet V", {"S2": "paper", "scale_S3": 0.1}, (100, 300, 1000)),
    ("tiny paper", {"S2": "paper", "scale_S2": 0.3}, (100, 300, 1000)),
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
SMALL: list[tuple[str, dict[str, Any]]] = [  # of the coverage at N = 1 000; tails : of S1's columns, mixed
    ("pca", {"S1": "pca", "S2": "paper"}),
    ("pca, A good", {"S1": "pca", "S2": "paper", "A": "good"}),
    ("regression", {"S2": "paper"}),
    ("skewed", {"S2": "skewed"}),
    ("labs(3)", {"S2": "labs(3)", "classes": "none"}),
    ("labs(3), t", {"S2": "labs(3)", "d": 5, "tails": "t", "classes": "none"}),
    ("labs(3), dollars", {"S2": "labs(3)", "d": 5, "tails": "dollars", "classes": "none"}),
]
OPTIONS = ("errors", "classes")  # of ContrastiveRCA
HARD_SIZES = (100, 300, 1000, 10_000)
ERRORS = (
    "A",
    "A paper",
    "beta",
    "covariates",
    "naive",
    "cca",
    "true",
    *(f"top{of}" for of in ("", " known A", " naive", " residualised")),
)


def cases(section: str) -> list[Job]:
    """Label, n, settings of make_contrastive; extra: S1 and S3 share something that is not in the model."""
    if section == "accuracy":
        settings = [(label, kw, n) for label, kw, sizes in ACCURACY for n in sizes]
    elif section == "mixing":
        settings = [(label, kw, n) for label, kw, sizes in MIXING for n in sizes]
    elif section == "protection":
        settings = [(label, kw, n) for label, kw in HARD for n in HARD_SIZES]
    elif section == "rank":
        settings = [(f"labs({k})", {"S2": f"labs({k})"}, n) for k in (2, 3) for n in (700, 3000)]
    elif section == "coverage":
        settings = [(label, kw, 10_000) for label, kw, _ in ACCURACY[:3]]
        settings += [("labs(3)", {"S2": "labs(3)", "classes": "none"}, 10_000)]
        settings += [(label, kw, 1000) for label, kw in SMALL]
    else:
        settings = [
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
    return sorted(({"label": label, "n": n, **kw} for label, kw, n in settings), key=itemgetter("label", "n"))


def jobs(section: str, options: Options) -> list[Job]:
    return drawn(cases(section), options.draws, options.seed)


def simulate(job: Job) -> Contrastive:
    kw = {k: v for k, v in job.items() if k not in ("section", "label", "n", *OPTIONS, "extra", "tails", "seed")}
    data = make_contrastive(job["n"], random_state=job["seed"], **kw)
    return with_tails(data, job["tails"], job["seed"]) if job.get("tails") else data


def with_tails(data: Contrastive, tails: str, seed: int) -> Contrastive:
    """S1 of the same size with heavy-tailed columns, Student's t of 5 degrees or lognormal, mixed by I + G / (2 sqrt(d))."""
    (n, d), rng = data.S1.shape, np.random.default_rng(seed + 10**6)
    mixing = np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)
    s = 0.75**2
    own = rng.standard_t(5, (n, d)) if tails == "t" else np.exp(0.75 * rng.normal(size=(n, d))) - np.exp(s / 2)
    variance = 5 / 3 if tails == "t" else (np.exp(s) - 1) * np.exp(s)
    mixing = mixing * np.sqrt(np.trace(data.cov_S1) / d / variance)
    return replace(data, S1=own @ mixing.T, cov_S1=variance * mixing @ mixing.T, y=None, beta=None)


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


def measure(job: Job) -> Row:
    section = job["section"]
    data = simulate(job)
    d = data.S1.shape[1]
    X, y = data.X, data.y
    if job.get("extra"):
        rng = np.random.default_rng(job["seed"] + 10**6)
        common = rng.uniform(-1, 1, data.S1.shape) * 0.5 * data.S2.std() / np.sqrt(1 / 3)
        s1 = data.S1 + common @ rng.normal(size=(d, d)) / np.sqrt(d)
        s3 = data.S3 + common @ rng.normal(size=(d, d)) / np.sqrt(d)
        X = np.hstack([s1 + data.S2, data.S2 @ data.A.T + s3])
        y = None if data.beta is None else s1 @ data.beta + rng.normal(size=len(s1))
    model = rc.ContrastiveRCA(views=d, **{name: job[name] for name in OPTIONS if name in job}).fit(X)
    row: Row = {"rank": int(model.rank_), "verdict": model.verdict_}
    if section in ("accuracy", "protection") and y is not None and data.beta is not None:
        fit = model.calibrate(X, y)
        row["beta"] = mse(fit.coef, data.beta)
        row["covariates"] = mse(ols(X, y)[:d], data.beta)
        row["naive"] = mse(ols(data.U, y), data.beta)
        row["cca"] = mse(ols(cca_projection(data.U, data.V), y), data.beta)
        row["true"] = mse(ols(data.S1, y), data.beta)
    if section == "mixing":
        row["ours"] = mse(model.A_, data.A)
        row["regression"] = mse(np.array([ols(data.U, v) for v in data.V.T]), data.A)
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
            inside = (interval.low <= truth) & (truth <= interval.high)
            row[f"{what} covered"] = float(np.mean(inside))
        row["variances covered"] = float(np.mean(np.diag(inside)))
        row["width"] = float(np.median((interval.high - interval.low) / width_of_samples(data.S1)))
    if section == "tests":
        test = model.diagnostics_.overidentification
        row["J"] = None if test is None else test.p_value
        row["outcome"] = None if y is None else model.outcome_test(X, y).p_value
    return row


def width_of_samples(S1: np.ndarray) -> np.ndarray:
    """Of 95% intervals of the entries of Cov(S1) from samples of S1 itself, by their fourth moments."""
    centred = S1 - S1.mean(axis=0)
    products = centred[:, :, None] * centred[:, None, :]
    return np.asarray(2 * 1.96 * products.std(axis=0) / np.sqrt(len(S1)))


def _range_projector(data: Contrastive, model: rc.ContrastiveRCA) -> np.ndarray:
    """P with A_estimated -> A P: onto the range of S2, along its complement in the metric of Cov(U)^-1."""
    biases = np.unique(np.round(data.S2, 12), axis=0)
    basis = np.linalg.svd((biases - biases.mean(axis=0)).T)[0][:, : model.rank_]
    truth = data.cov_S1 + np.cov(data.S2.T)
    inverse = np.linalg.inv(truth)
    return np.asarray(basis @ np.linalg.solve(basis.T @ inverse @ basis, basis.T @ inverse))


def rejected(p_values: list[float]) -> str:
    return f"{np.mean(np.array(p_values) < 0.05):.3f}" if p_values else "  -  "


def show(rows: Measured, options: Options) -> None:
    accuracy = list(by_case(rows("accuracy"), cases("accuracy")))
    if accuracy:
        print("\nACCURACY: ratios of medians")
        print(
            f"{'design':>14} {'n':>6} {'draws':>5} {'A/paper':>8} {'beta/best':>9} {'beta/true':>9} {'top/known A':>11}"
            f" {'top':>7}"
        )
        for case, held in accuracy:
            middle = medians(held, [name for name in ERRORS if name in held[0]])
            cells = [f"{middle['A'] / middle['A paper']:8.3f}"]
            if "beta" in middle:
                best = min(middle[k] for k in ("naive", "cca", "covariates"))
                cells += [f"{middle['beta'] / best:9.2f}", f"{middle['beta'] / middle['true']:9.2f}"]
            else:
                cells += [" " * 9, " " * 9]
            if "top" in middle:
                cells += [
                    f"{middle['top'] / middle['top known A']:11.2f}",
                    f"{middle['top']:7.4f}",
                    f"(residualised {middle['top residualised']:.4f}, naive {middle['top naive']:.3f})",
                ]
            print(f"{case['label']:>14} {case['n']:>6} {len(held):>5} " + " ".join(cells))
    for case, held in by_case(rows("mixing"), cases("mixing")):
        ratio = np.array([r["ours"] / r["regression"] for r in held])
        middle = medians(held, ("ours", "regression"))
        print(
            f"MIXING {case['label']:>20} n={case['n']:>5}: A {middle['ours']:.4f}, over the regression of V on U"
            f" {np.median(ratio):.2f}, worst {ratio.max():.2f} ({len(held)} draws)"
        )
    hard = list(by_case(rows("protection"), cases("protection")))
    if hard:
        print("\nPROTECTION: beta over residualising")
        print(f"{'design':>22} {'n':>6} {'draws':>5} {'median':>7} {'ratio of medians':>16} {'worst draw':>10}")
        for case, held in hard:
            ratio = np.array([r["beta"] / r["covariates"] for r in held])
            middle = medians(held, ("beta", "covariates"))
            print(
                f"{case['label']:>22} {case['n']:>6} {len(held):>5} {np.median(ratio):7.2f}"
                f" {middle['beta'] / middle['covariates']:16.2f} {ratio.max():10.2f}"
            )
        everything = [r for _, held in hard + accuracy for r in held if "beta" in r]
        strong = [r for r in everything if r["verdict"] == "strong"]
        if strong:
            good = np.mean([r["beta"] <= 1.05 * r["covariates"] for r in strong])
            print(f"called strong: {len(strong)} fits, {good:.1%} beat residualising or tie (within 5%)")
        gaussian = [r for r in everything if r["label"].startswith("gaussian")]
        if gaussian:
            called = np.mean([r["verdict"] == "strong" for r in gaussian])
            print(f"Gaussian shared part: {len(gaussian)} fits, {called:.1%} called strong")
    for case, held in by_case(rows("rank"), cases("rank")):
        right = np.mean([r["rank"] == int(case["label"][5]) - 1 for r in held])
        print(f"RANK {case['label']} n={case['n']}: right in {right:.1%} of {len(held)}")
    for case, held in by_case(rows("coverage"), cases("coverage")):
        a, c, v = (np.mean([r[f"{w} covered"] for r in held]) for w in ("A", "covariance", "variances"))
        width = np.median([r["width"] for r in held])
        print(
            f"COVERAGE {case['label']} n={case['n']}: A {a:.3f}, Cov(S1) {c:.3f}, Var(S1) {v:.3f}, {width:.1f} times as wide as"
            f" from samples of S1 ({len(held)} draws)"
        )
    for case, held in by_case(rows("tests"), cases("tests")):
        j, o = (rejected([r[name] for r in held if r[name] is not None]) for name in ("J", "outcome"))
        print(f"TESTS {case['label']:>20} n={case['n']:>5}: rejected at 5%: J {j}, outcome {o} ({len(held)} draws)")


if __name__ == "__main__":
    main(__doc__, SECTIONS, jobs, measure, show, draws=20, seed=90_000, out=RESULTS / "contrastive", processes=2)
