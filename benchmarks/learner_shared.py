"""ComponentRegression(shared=True): outcomes that depend on both parts of U.

    python benchmarks/learner_shared.py run [SECTION ...] [--draws 60] [--seed 870000] [--sizes 1000 10000] [--out DIR]
    python benchmarks/learner_shared.py show [--out DIR]

o = beta'S1 + gamma'S2 + N(0, 1), |beta| = |gamma| = 1, d = 10, A unknown. A section is a kind of S2 ("gaussian": for which S1
and S2 are not told apart); gamma is what there is of it in U's columns where S2 has fewer dimensions.
Squared errors of beta: least squares on U and V, ComponentRegression without and with shared=True; and shares of the
coefficients, and of the parts of the variance, inside their 95% intervals. A fit that is not identified states none for beta.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

import richcomponents as rc
from richcomponents.algebra import Array
from richcomponents.cumulants.estimate import Estimate
from rows import Job, Row, by_case
from sections import RESULTS, Measured, drawn, main, medians

DESIGNS = {
    "skewed": ("skewed", "unif"),
    "skewed-good": ("skewed", "good"),
    "paper": ("paper", "unif"),
    "labs": ("labs(3)", "unif"),
    "gaussian": ("gaussian", "unif"),
}
ERRORS = ("u_and_v", "plain", "both", "gamma_error")


def covered(found: Estimate | None, truth: Array) -> float:
    assert found is not None
    return float(np.mean((found.low <= truth) & (truth <= found.high)))


def measure(job: Job) -> Row:
    S2, A = DESIGNS[job["section"]]
    rng = np.random.default_rng(job["seed"])
    data = rc.datasets.make_contrastive(job["n"], S2=S2, A=A, random_state=rng)
    assert data.beta is not None
    assert data.y is not None
    cov_s2 = np.cov(data.S2.T)
    chosen = rng.normal(size=10)
    if S2.startswith("labs"):
        chosen = np.asarray(np.linalg.solve(np.eye(10) / 3 + cov_s2, cov_s2 @ chosen), dtype=np.float64)
    gamma = chosen / np.linalg.norm(chosen)
    y = data.y + data.S2 @ gamma
    rca = rc.ContrastiveRCA(views=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = rc.ComponentRegression(rca=rca, shared=True).fit(data.X, y)
        plain = rc.ComponentRegression(rca=rca).fit(data.X, y)
    centred = data.X - data.X.mean(axis=0)
    simple = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0][:10]
    parts = np.array([data.beta @ data.beta / 3, gamma @ cov_s2 @ gamma, 1.0])
    assert both.coefficients_ is not None
    assert both.shared_coef_ is not None
    errors = (simple - data.beta, plain.coef_ - data.beta, both.coef_ - data.beta, both.shared_coef_ - gamma)
    return {
        **{name: float(error @ error) for name, error in zip(ERRORS, errors, strict=True)},
        "beta_stated": bool(np.isfinite(both.coefficients_.low).all()),
        "beta_covered": covered(both.coefficients_, data.beta),
        "gamma_covered": covered(both.shared_coefficients_, gamma),
        "split_covered": covered(both.variance_split_, parts / parts.sum()),
    }


def cases(options: argparse.Namespace) -> list[Job]:
    return [{"n": n} for n in options.sizes]


def jobs(section: str, options: argparse.Namespace) -> Iterator[Job]:
    yield from drawn(cases(options), options.draws, options.seed)


def show(measured: Measured, options: argparse.Namespace) -> None:
    print("| S2 | N | U and V | shared=False | shared=True | worst / U and V | gamma | beta in | gamma in | split in |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for section in DESIGNS:
        for case, rows in by_case(measured(section), cases(options)):
            middle = medians(rows, ERRORS)
            worst = max(row["both"] / row["u_and_v"] for row in rows)
            stated = [row for row in rows if row["beta_stated"]]
            inside = [_share(stated, "beta"), _share(rows, "gamma"), _share(rows, "split")]
            figures = [f"{middle[name]:.4f}" for name in ERRORS]
            cells = [section, case["n"], *figures[:3], f"{worst:.2f}", figures[3], *inside]
            print("|", " | ".join(map(str, cells)), "|")


def _share(rows: Sequence[Row], what: str) -> str:
    inside = [row[f"{what}_covered"] for row in rows]
    return f"{np.mean(inside):.3f} ({len(rows)})" if rows else "none"


if __name__ == "__main__":
    main(
        __doc__,
        list(DESIGNS),
        jobs,
        measure,
        show,
        draws=60,
        seed=870_000,
        out=RESULTS / "learner-shared",
        processes=2,
        sizes=(1000, 10_000),
    )
