"""Independent errors: what they tell of T where they hold, and what they cost where they do not.

    python benchmarks/structure.py run [SECTION ...] [--draws 40] [--seed 9800000] [--out DIR]
    python benchmarks/structure.py show [--out DIR]

y = beta'S1 + N(0, 1), |beta| = 1, d = 10 + 10, A with entries Unif[-1, 1]. Mean squared errors of beta, medians over draws:
ComponentRegression with errors="auto" and errors="free" (cumulants alone), V as covariates, joint factor analysis, samples of
S1 itself. Factor analysis is scikit-learn's, with as many factors as there are shared directions: least squares on the best
linear prediction of U's errors, or Cov(residual, y) over their variances, whichever has the smaller median. Coverage of 95%
intervals; how often errors were taken as independent, and how often the verdict was "strong".

independent, labs : S1 and S3 with independent columns. mixed : their columns mixed by random matrices (both, one of them).
mild : mixed by I + e G / sqrt(d), which tests hardly see. own : a factor of S1 along the leading direction of S2, or one of S1
and one of S3 along all columns. rank2 : two Gaussian factors.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import FactorAnalysis

import richcomponents as rc
from richcomponents.algebra import Array
from rows import Job, Row, by_case
from sections import RESULTS, Measured, drawn, main, medians

D = 10
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]] = {
    "independent": (("paper", "gaussian", "skewed"), ("",), (1000, 3000, 10_000)),
    "labs": (("labs(2)", "labs(3)"), ("",), (300, 1000)),
    "mixed": (("paper",), ("both", "S1", "S3"), (1000, 3000)),
    "mild": (("paper", "gaussian"), ("mild .05", "mild .1", "mild .2"), (1000, 3000)),
    "own": (("paper", "gaussian"), ("factor .5", "common .4"), (1000, 3000)),
    "rank2": (("rank2",), ("", "mild .1", "factor .5", "S3"), (300, 1000)),
}
ERRORS = ("auto", "free", "covariates", "on_factors", "by_variances", "true")


def mixed(part: Array, strength: float | None, rng: np.random.Generator) -> Array:
    """Columns of a part mixed, at the same size on average."""
    turn = rng.normal(size=(D, D)) / np.sqrt(D)
    out = part @ (turn if strength is None else np.eye(D) + strength * turn).T
    return np.asarray(out * (part.std(axis=0).mean() / out.std(axis=0).mean()))


def make(job: Job) -> tuple[Array, Array, Array, Array]:
    """X, y, beta and S1."""
    rng, n, own = np.random.default_rng(job["seed"] + 7), job["n"], job["own"]
    low = job["S2"] == "rank2"
    data = rc.datasets.make_contrastive(n, d=D, S2="gaussian" if low else job["S2"], random_state=job["seed"])
    S1, S2, S3 = data.S1, data.S2, data.S3
    if low:
        S2 = rng.normal(size=(n, 2)) @ (0.7 * rng.normal(size=(2, D)))
    if own in ("both", "S1"):
        S1 = mixed(S1, None, rng)
    if own in ("both", "S3"):
        S3 = mixed(S3, None, rng)
    kind, _, size = own.partition(" ")
    if kind == "mild":
        S1, S3 = mixed(S1, float(size), rng), mixed(S3, float(size), rng)
    if kind == "factor":
        along = np.linalg.eigh(np.cov(S2.T))[1][:, -1]
        S1 = S1 + float(size) * rng.normal(size=(n, 1)) * along
    if kind == "common":
        S1, S3 = (part + float(size) * rng.normal(size=(n, 1)) / np.sqrt(D) for part in (S1, S3))
    assert data.beta is not None
    assert data.y is not None
    y = data.y + (S1 - data.S1) @ data.beta
    return np.hstack([S1 + S2, S2 @ data.A.T + S3]), y, data.beta, S1


def least_squares(features: Array, y: Array) -> Array:
    return np.asarray(np.linalg.lstsq(features - features.mean(axis=0), y - y.mean(), rcond=None)[0])


def factor_analysis(X: Array, y: Array, factors: int) -> tuple[Array, Array]:
    """Coefficients on U's errors: of least squares on their prediction, and by their variances."""
    X, y = X - X.mean(axis=0), y - y.mean()
    found = FactorAnalysis(factors, tol=1e-6, max_iter=3000, svd_method="lapack").fit(X)
    noise = found.noise_variance_
    predicted = np.linalg.solve(found.components_.T @ found.components_ + np.diag(noise), np.diag(noise)[:, :D])
    U, V = X[:, :D], X[:, D:]
    left = U - V @ np.linalg.lstsq(V, U, rcond=None)[0]
    return least_squares(X @ predicted, y), left.T @ y / len(y) / noise[:D]


def measure(job: Job) -> Row:
    X, y, beta, S1 = make(job)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {e: rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, errors=e)).fit(X, y) for e in ("auto", "free")}
        by_factors = factor_analysis(X, y, max(fits["auto"].rca_.rank_, 1))
    auto, free = fits["auto"], fits["free"]
    assert auto.residualised_ is not None
    coefs = (auto.coef_, free.coef_, auto.residualised_, *by_factors, least_squares(S1, y))
    assert auto.coefficients_ is not None
    low, high = auto.coefficients_.interval(0.95)
    errors = auto.rca_.diagnostics_.errors
    return {
        **{name: float(np.mean((coef - beta) ** 2)) for name, coef in zip(ERRORS, coefs, strict=True)},
        "covered": float(np.mean((low <= beta) & (beta <= high))),
        "used": float(sum(errors.used)) if errors is not None else 0.0,
        "strong": auto.rca_.diagnostics_.verdict == "strong",
    }


def cases(section: str) -> list[Job]:
    shared, own, sizes = CASES[section]
    return [{"S2": s2, "own": how, "n": n} for s2 in shared for how in own for n in sizes]


def jobs(section: str, options: argparse.Namespace) -> Iterator[Job]:
    yield from drawn(cases(section), options.draws, options.seed)


def show(measured: Measured, options: argparse.Namespace) -> None:
    titles = "S2 | own parts | N | auto | free | covariates | factors | true | / free | / covariates | / factors | worst / free"
    print(f"| {titles} | covered | used | strong |")
    print("|" + "---|" * 15)
    for section in CASES:
        for case, rows in by_case(measured(section), cases(section)):
            middle = medians(rows, ERRORS)
            factors = min(middle["on_factors"], middle["by_variances"])
            errors = [middle["auto"], middle["free"], middle["covariates"], factors, middle["true"]]
            ratios = [middle["auto"] / middle["free"], middle["auto"] / middle["covariates"], middle["auto"] / factors]
            ratios.append(max(row["auto"] / row["free"] for row in rows))
            shares = [np.mean([row[name] for row in rows]) for name in ("covered", "used", "strong")]
            cells = [case["S2"], case["own"] or "independent", case["n"], *(f"{e:.5f}" for e in errors)]
            print("|", " | ".join(map(str, cells + [f"{r:.2f}" for r in ratios] + [f"{s:.3f}" for s in shares])), "|")


if __name__ == "__main__":
    main(__doc__, list(CASES), jobs, measure, show, draws=40, seed=9_800_000, out=RESULTS / "structure", processes=1)
