"""Never worse than the simple methods: leading directions by ComponentPCA, draw by draw.

    python benchmarks/pca_protection.py run [SECTION ...] [--draws 3] [--seed 910000] [--out DIR]
    python benchmarks/pca_protection.py show [--out DIR] [--all]

Sections, each with --draws draws a cell:

directions : S1 = N(0, 1) v1 + 0.1 N(0, I), for two components also 0.6 N(0, 1) v2; S2, A, N and d as in the table, 240 cells.
paper : the paper's principal-direction design, d = 10, both kinds of A, N = 100 to 10 000. Must hold: median of the ratios
    and ratio of medians to the better of naive and residualising at most 1.05, at N = 10 000 at most .5; every draw at most 3.
isotropic : S2 Gaussian or uniform, alike in all directions: at most 1.1 times naive.

Error: squared distance |P - P_true|^2 / 2 of the projectors on the leading directions (of one: squared sine of the angle).
Ratios are to the error of the simple method on the SAME draw, however small both are; the better method is that of the
smaller median in the cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from richcomponents import ComponentPCA, ContrastiveRCA, baselines
from richcomponents.algebra import Array
from richcomponents.datasets import make_contrastive
from rows import Job, Row, by_case, settings_of
from sections import RESULTS, Measured, Options, main, medians

SIZES = (100, 300, 1000, 3000, 10_000)
BOTH = ("good", "unif")
TABLES: dict[str, Job] = {
    "directions": {
        "A": ("good", "unif", "identity"),
        "n": SIZES[1:],
        "S2": ("paper", "skewed", "labs(3)", "gaussian", "uniform"),
        "d": (5, 10),
        "k": (1, 2),
    },
    "paper": {"A": BOTH, "n": SIZES, "S2": ("paper",), "d": (10,), "k": (1,)},
    "isotropic": {"A": BOTH, "n": SIZES, "S2": ("gaussian", "uniform"), "d": (10,), "k": (1,)},
}
SIMPLE = ("naive", "residualised")


def error(estimate: Array, truth: Array) -> float:
    """Squared distance of the projectors on the row spaces of two (k, d) matrices, over two."""
    one, two = (np.linalg.qr(m.T)[0] for m in (estimate, truth))
    return float(np.sum((one @ one.T - two @ two.T) ** 2) / 2)


def measure(job: Job) -> Row:
    n, d, k, rng = job["n"], job["d"], job["k"], np.random.default_rng(job["seed"])
    A = np.eye(d) if job["A"] == "identity" else job["A"]
    data = make_contrastive(n, d, S1="pca", S2=job["S2"], A=A, random_state=rng)
    assert data.direction is not None
    truth = data.direction[None]
    if k == 2:
        second = np.linalg.qr(np.vstack([truth, rng.normal(size=(1, d))]).T)[0][:, 1]
        truth = np.vstack([truth, second])
        data = replace(data, S1=data.S1 + 0.6 * rng.normal(size=(n, 1)) * second)
    learner = ComponentPCA(k, rca=ContrastiveRCA(views=d))
    model = learner.fit(data.X)
    plain = ComponentPCA(k).fit_component(model.component_)
    simple = {"naive": baselines.naive, "residualised": baselines.covariates}
    return {
        "rca": error(model.components_, truth),
        "unprotected": error(plain.components_, truth),
        **{name: error(method(learner, data.X).components_, truth) for name, method in simple.items()},
        **{f"share {name}": share for name, share in model.shares_.items()},
        "verdict": model.rca_.diagnostics_.verdict,
    }


def jobs(section: str, options: Options) -> list[Job]:
    return [
        {**case, "seed": options.seed + 1000 * place + number}
        for number in range(options.draws)
        for place, case in enumerate(settings_of(TABLES[section]))
    ]


def better(rows: Sequence[Row]) -> str:
    """The simple method with the smaller median."""
    middle = medians(rows, SIMPLE)
    return min(SIMPLE, key=lambda name: middle[name])


def ratios(rows: Sequence[Row], to: str, of: str = "rca") -> tuple[float, float, float]:
    """Median and largest ratio to the errors of a method, and the ratio of medians."""
    single = np.array([row[of] / row[to] for row in rows])
    middle = medians(rows, (of, to))
    return float(np.median(single)), float(single.max()), middle[of] / middle[to]


def line(label: str, rows: Iterable[Row], to: str | None = None, most: float = 1.3) -> str:
    """Ratios of the protected and of the plain covariance's directions to one simple method, residualising by default."""
    rows = list(rows)
    to = to or "residualised"
    cells = [
        f"{median:8.2f}{worst:9.2f}{middle:9.2f}"
        for median, worst, middle in (ratios(rows, to, of) for of in ("rca", "unprotected"))
    ]
    missed = "" if max(ratios(rows, to)[::2]) <= most else f"   above {most}"
    return f"{label:<34}{len(rows):6d}  {cells[0]}   {cells[1]}{missed}"


def head() -> None:
    print(f"{'':<34}{'draws':>6}  {'protected':>26}   {'not protected':>26}")
    print(f"{'':<34}{'':>6}  {'median':>8}{'worst':>9}{'medians':>9}   {'median':>8}{'worst':>9}{'medians':>9}")


def show_directions(rows: list[Row], everything: bool) -> None:
    table = TABLES["directions"]
    print("\nDIRECTIONS: ratio to residualising")
    head()
    print(line("all", rows))
    if strong := [row for row in rows if row["verdict"] == "strong"]:
        print(line("fits called strong", strong))
    for name, label in (("A", "A {}"), ("n", "N = {}"), ("d", "d = {}"), ("k", "{} component(s)")):
        for case, held in by_case(rows, [{name: value} for value in table[name]]):
            print(line(label.format(case[name]), held))
    for case, held in by_case(rows, settings_of({name: table[name] for name in ("A", "n", "S2")})):
        print(line(f"A {case['A']}, N = {case['n']}, S2 {case['S2']}", held))
    if everything:
        for case, held in by_case(rows, settings_of(table)):
            print(line(str(tuple(case.values())), held))
    above = [row["rca"] / row["residualised"] for row in rows if row["rca"] > 3 * row["residualised"]]
    print(f"\n{len(rows)} draws; above 3 times residualising: {', '.join(f'{r:.1f}' for r in sorted(above)) or 'none'}")


def show_cells(section: str, rows: list[Row], most: float) -> None:
    print(f"\n{section.upper()}: ratio to the better of naive and residualising")
    head()
    for case, held in by_case(rows, settings_of(TABLES[section])):
        to = better(held)
        limit = 0.5 if section == "paper" and case["n"] == 10_000 else most
        middle = medians(held, (to, "rca"))
        label = f"S2 {case['S2']}, A {case['A']}, N = {case['n']}"
        print(f"{line(label, held, to, limit)}   {to} {middle[to]:.5f}, ours {middle['rca']:.5f}")


def show(measured: Measured, options: Options) -> None:
    if rows := measured("directions"):
        show_directions(rows, options.all)
    for section, most in (("paper", 1.05), ("isotropic", 1.1)):
        if rows := measured(section):
            show_cells(section, rows, most)


if __name__ == "__main__":
    out = RESULTS / "pca_protection"
    main(__doc__, tuple(TABLES), jobs, measure, show, draws=3, seed=910_000, out=out, everything=True)
