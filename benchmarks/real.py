"""Real measurements with a shared part that is added to them: are coefficients, intervals and verdicts to be trusted?

    python benchmarks/real.py run [SECTION ...] [--draws 20] [--seed 7000000] [--sizes 300 1000 3000] [--out DIR]
    python benchmarks/real.py show [--out DIR]

S1 and y are rows of a table, S3 are other columns of OTHER rows of the same table, S2 is simulated. The table is the
population: rows are drawn with replacement, and the truth is least squares of y on S1 over the whole table, with all the skew,
ties, heavy tails and nonlinearity that real columns have. Tables: scikit-learn's (breast cancer, diabetes, digits, wine), and
CSV files whose paths are in the environment variable TABLES (separated as in PATH; numbers only, the last column is y).

Sections: holds (labs, drifts, a Gaussian factor, nothing shared), goes_with (y differs between labs, too), fails (S3 of the
same rows as S1: shared biology, alone or beside labs; labs that differ in spread only, or in spread as well; y that goes with
S3, the own part of V; a skewed shared part of which V sees the hyperbolic tangent).

Errors are (b - beta)' Cov(S1) (b - beta), so that collinear columns do not decide. `ratio` is the median over that of the
best simple method, of naive (U alone) and covariates (U and V); `worst` the largest ratio of one draw to covariates; `oracle`
is least squares on S1 itself, which nobody sees: what no method can be asked to beat, draw by draw.
"""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np

import richcomponents as rc
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

SECTIONS = ("holds", "goes_with", "fails")
SHARED = {
    "holds": ("labs(2)", "labs(3)", "labs(8)", "skewed", "drift", "gaussian", "nothing"),
    "goes_with": ("labs(3)", "labs(8)", "skewed", "gaussian"),
    "fails": (
        "biology",
        "spread",
        "labs(3) and biology",
        "labs(3) and spread",
        "labs(3) and y in V",
        "skewed, saturates",
    ),
}
MOST = 10  # columns of a view


# ---- tables


def tables() -> list[str]:
    """Names of scikit-learn's tables, and paths."""
    given = [path for path in os.environ.get("TABLES", "").split(os.pathsep) if path]
    return ["breast_cancer", "diabetes", "digits", "wine", *given]


@lru_cache(maxsize=4)
def population(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns (n, d) with mean zero and variance one, and y (n,) alike."""
    if Path(name).suffix == ".csv":
        values = np.genfromtxt(name, delimiter=",", skip_header=1)
        values = values[np.isfinite(values).all(axis=1)]
        rows, y = values[:, :-1], values[:, -1]
    else:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        rows, y = np.asarray(found.data, dtype=float), np.asarray(found.target, dtype=float)
    common = np.array([np.unique(column, return_counts=True)[1].max() for column in rows.T])
    rows = rows[:, common < len(rows) / 2]  # columns that are mostly one value say nothing
    return (rows - rows.mean(0)) / rows.std(0), (y - y.mean()) / y.std()


# ---- problems


def shared_part(kind: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """S2 (n, d) with variances near one, and the lab of each row (all the same where there are none)."""
    labs, rank = np.zeros(n, dtype=int), 2
    if kind.startswith("labs") or kind == "spread":
        k = 3 if kind == "spread" else int(kind[5])
        labs = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
        offsets = rng.normal(size=(k, d)) * (kind != "spread")
        return offsets[labs] - offsets[labs].mean(0), labs
    if kind.startswith("skewed"):
        factors = rng.exponential(size=(n, rank)) - 1
    elif kind == "drift":
        steps = rng.normal(size=(n, rank))
        factors, last = np.empty((n, rank)), rng.normal(size=rank)
        for i, step in enumerate(steps):
            factors[i] = last = 0.99 * last + np.sqrt(1 - 0.99**2) * step
    else:
        factors = rng.normal(size=(n, rank)) * (kind == "gaussian")
    return factors @ rng.normal(size=(rank, d)) / np.sqrt(rank), labs


def problem(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """U, V, y, the coefficients in truth, Cov(S1), and S1 itself, with S2 behind it where y goes with that."""
    rng = np.random.default_rng(job["seed"])
    rows, target = population(job["table"])
    columns = rng.permutation(rows.shape[1])
    d = min(MOST, rows.shape[1] // 2)
    of_u, of_v = columns[:d], columns[d : 2 * d]
    n, whole = job["n"], np.cov(rows[:, of_u], rowvar=False, bias=True)
    beta = np.linalg.lstsq(rows[:, of_u], target, rcond=1e-8)[0]
    first, second = rng.integers(len(rows), size=(2, n))
    s1, y = rows[first][:, of_u], target[first]
    kind = job["shared"]
    s3 = rows[first if kind == "biology" else second][:, of_v]
    if kind.endswith("and biology"):
        s3 = (s3 + rows[first][:, of_v]) / np.sqrt(2)
    s2, labs = shared_part(kind, n, d, rng)
    if kind.endswith("y in V"):
        y = y + 0.5 * target[second]
    if "spread" in kind:
        spread = np.array([0.5, 1.0, 1.5])[labs][:, None]
        s1, s3, y = s1 * spread, s3 * spread, y * spread[:, 0]
        whole = whole * float(np.mean(spread**2))
    seen_by_nobody = s1
    if job["section"] == "goes_with":
        left, size, _ = np.linalg.svd(s2 - s2.mean(0), full_matrices=False)
        seen_by_nobody = np.hstack([s1, left[:, size > 1e-8 * size[0]]])
        y = y + s2 @ rng.normal(size=d) / np.sqrt(d)
    seen = s2 @ (rng.normal(size=(d, d)) / np.sqrt(d)).T
    V = s3 + (2 * np.tanh(seen) if kind.endswith("saturates") else seen)
    return s1 + s2, V, y, beta, whole, seen_by_nobody


# ---- measurements


def measure(job: Job) -> Row:
    U, V, y, beta, whole, hidden = problem(job)
    X, rca = np.hstack([U, V]), rc.ContrastiveRCA(views=U.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = rc.ComponentRegression(rca=rca).fit(X, y)
        variances = model.rca_.variance_table()

    def error(b: np.ndarray) -> float:
        return float((b - beta) @ whole @ (b - beta))

    def least_squares(rows: np.ndarray) -> np.ndarray:
        centred = rows - rows.mean(0)
        return np.asarray(np.linalg.lstsq(centred, y - y.mean(), rcond=1e-8)[0][: U.shape[1]])

    found, own = model.coefficients_, np.diag(whole)
    assert found is not None
    plain = X - X.mean(0)
    left = y - y.mean() - plain @ np.linalg.lstsq(plain, y - y.mean(), rcond=1e-8)[0]
    textbook = np.sqrt(left @ left / (len(y) - X.shape[1] - 1) * np.diag(np.linalg.pinv(plain.T @ plain))[: len(beta)])
    told = model.rca_.diagnostics_
    return {
        "rca": error(model.coef_),
        "naive": error(least_squares(U)),
        "covariates": error(least_squares(X)),
        "oracle": error(least_squares(hidden)),
        "covered": float(np.mean((found.low <= beta) & (beta <= found.high))),
        "width": float(np.median((found.high - found.low) / textbook)) / 3.92,
        "largest": float(np.max(found.high - found.low)) / 3.92 / float(np.max(textbook)),
        "var_covered": float(np.mean((variances.low <= own) & (own <= variances.high))),
        "verdict": model.verdict_,
        "rank": model.rca_.rank_,
        "overidentification": 1.0 if told.overidentification is None else told.overidentification.p_value,
        "outcome_test": model.outcome_test(X, y).p_value,
    }


def cases(section: str, sizes: tuple[int, ...]) -> list[Job]:
    return [
        {"table": table, "shared": shared, "n": n} for table in tables() for shared in SHARED[section] for n in sizes
    ]


def jobs(section: str, options: Options) -> list[Job]:
    return drawn(cases(section, tuple(options.sizes)), options.draws, options.seed)


# ---- tables of results


def show(rows: Measured, options: Options) -> None:
    strong: list[tuple[int, float, float]] = []
    for section in SECTIONS:
        for case, held in by_case(rows(section), cases(section, tuple(options.sizes))):
            if held:
                print(f"{section:9} {case['table'][-16:]:16} {case['shared']:18} {case['n']:6d} {told(held)}")
                strong += [
                    (case["n"], row["rca"] / row["covariates"], row["oracle"] / row["covariates"])
                    for row in held
                    if row["verdict"] == "strong"
                ]
    for n in (*options.sizes, None):
        found = np.array([ratios for size, *ratios in strong if n in (size, None)])
        if len(found):
            good, best = np.mean(found <= 1.05, axis=0)
            print(
                f"N = {n or 'any'}: {len(found)} fits are called strong, {good:.3f} of them at or below 1.05 of covariates; of "
                f"least squares that sees S1, {best:.3f} of the same"
            )


def told(held: list[Row]) -> str:
    """Ratios of medians, coverage, width over that of the textbook's intervals with V as covariates, verdicts."""
    rca, naive, covariates, oracle = (
        np.array([row[name] for row in held]) for name in ("rca", "naive", "covariates", "oracle")
    )
    best = min(np.median(naive), np.median(covariates))
    means = {name: np.mean([row[name] for row in held]) for name in ("covered", "var_covered")}
    verdicts = [row["verdict"] for row in held]
    share = {word: verdicts.count(word) / len(held) for word in dict.fromkeys(sorted(verdicts))}
    rejected = [np.mean([row[name] < 0.001 for row in held]) for name in ("overidentification", "outcome_test")]
    return (
        f"ratio {np.median(rca) / best:5.2f} worst {np.max(rca / covariates):6.2f} (oracle {np.median(oracle) / best:.2f}, "
        f"{np.max(oracle / covariates):.2f}); covered {means['covered']:.2f}, "
        f"Var(S1) {means['var_covered']:.2f}; width {np.median([row['width'] for row in held]):5.1f} (largest "
        f"{np.max([row['largest'] for row in held]):.3g}); over-identification {rejected[0]:.2f}, y on V {rejected[1]:.2f}; "
        + ", ".join(f"{word} {part:.2f}" for word, part in share.items())
        + f" ({len(held)})"
    )


if __name__ == "__main__":
    main(
        __doc__, SECTIONS, jobs, measure, show, draws=20, seed=7_000_000, out=RESULTS / "real", processes=2,
        sizes=(300, 1000, 3000),
    )  # fmt: skip
