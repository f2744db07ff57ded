"""Effects of an exposure under hidden confounding, against the usual ways to use negative controls.

    python benchmarks/effects.py run [SECTION ...] [--draws 40] [--seed 4000000] [--processes 2] [--out DIR]    # measure
    python benchmarks/effects.py show [--out DIR]                                                               # the tables

Sections: simulated (hidden labs, a skewed or Gaussian factor), demo (hidden labs in a table of breast cancer), cohort
(methylation sites; the gold standard knows the cell fractions), sites (all other sites at once), violation (many controls,
other exposures), protection (60 designs, some of which break the model), coverage (of intervals; size of p values), discovery
(2 000 columns), controls (size and power of the test of controls), wide (600 x 20 000: seconds and memory).

The sections cohort, sites and violation read a folder with beta.csv.gz (people x sites) and pheno.csv, whose path is in the
environment variable COHORT; without it they are left out.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents import baselines, datasets
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

SECTIONS = (
    "simulated", "demo", "cohort", "sites", "violation", "protection", "coverage", "discovery", "controls", "wide",
)  # fmt: skip
METHODS = ("rca", "ancova", "naive", "ruv2", "ruv4", "oracle")
KNOWN = ("sexF", "age", "smoking_current", "smoking_ex", "smoking_occasional")
RUV_RANKS = (1, 2, 3, 5, 8)
Problem = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # U, V, y, truth, oracle


# ---- problems


def simulated(job: Job) -> Problem:
    options = {
        key: job[key] for key in ("d_u", "d_v", "noise_v", "strength", "confounding", "binary_exposure") if key in job
    }
    options |= {"n_labs": job["labs"]} if job.get("labs") else {}
    data = datasets.make_confounded(job["n"], confounder=job["confounder"], random_state=job["seed"], **options)
    return data.U, data.V, data.y, data.effects, data.oracle


def demo(job: Job) -> Problem:
    data = datasets.load_confounded_labs(job["seed"], n_labs=job["labs"], n_controls=job["controls"])
    return data.U, data.V, data.y, data.effects, data.oracle


@lru_cache(maxsize=1)
def cohort_table() -> tuple[Any, np.ndarray]:
    import pandas as pd

    place = Path(os.environ["COHORT"])
    people = pd.read_csv(place / "pheno.csv", index_col=0)
    share = pd.read_csv(place / "beta.csv.gz", index_col=0).loc[people.index].clip(0.001, 0.999)
    sites = np.log2(share / (1 - share))
    return people, ((sites - sites.mean()) / sites.std()).to_numpy()


def cohort(job: Job) -> Problem:
    """U random sites (all others with `tests` = 0), V random sites whose effect given the cell fractions has |t| < 1; known
    covariates are removed from everything."""
    people, sites = cohort_table()
    exposure = job["exposure"]
    if exposure == "smoking":
        y, known = np.asarray(people["smoking_current"] == 1, dtype=float), ["disease", "sexF", "age"]
    else:
        y = np.asarray(people[exposure], dtype=float)
        known = [*(() if exposure == "disease" else ("disease",)), *(name for name in KNOWN if name != exposure)]
    y = (y - y.mean()) / y.std() if exposure == "age" else y
    others = people[known].to_numpy(dtype=float)
    gold = regression(sites, y, people.filter(like="cell_").to_numpy(), others)
    rng = np.random.default_rng(job["seed"])
    v = rng.choice(np.flatnonzero(np.abs(gold[0] / gold[1]) < 1), job["controls"], replace=False)
    rest = np.setdiff1d(np.arange(sites.shape[1]), v)
    u = rng.choice(rest, job["tests"], replace=False) if job["tests"] else rest
    left, target = without(sites, others), without(y[:, None], others)[:, 0]
    return left[:, u], left[:, v], target, gold[0][u], gold[0][u]


def without(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(values)), known])
    return np.asarray(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])


def regression(values: np.ndarray, y: np.ndarray, *known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of y, and their standard errors."""
    design = np.column_stack([np.ones(len(y)), y, *known])
    coef = np.linalg.lstsq(design, values, rcond=None)[0]
    noise = np.sum((values - design @ coef) ** 2, axis=0) / (len(y) - design.shape[1])
    return coef[1], np.sqrt(noise * np.linalg.pinv(design.T @ design)[1, 1])


# ---- measurements


def measure(job: Job) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        section = job["section"]
        special = {"coverage": coverage, "discovery": discovery, "controls": controls, "wide": wide}
        return special[section](job) if section in special else errors(job)


def fitted(U: np.ndarray, V: np.ndarray, y: np.ndarray, **options: Any) -> Any:
    rca = rc.ContrastiveRCA(views=U.shape[1], **options)
    return rc.ExposureEffects(rca=rca).fit(np.hstack([U, V]), y)


def errors(job: Job) -> Row:
    """Mean squared errors of the effects."""
    source = (
        simulated if job["section"] in ("simulated", "protection") else demo if job["section"] == "demo" else cohort
    )
    U, V, y, truth, oracle = source(job)
    options = {} if job.get("rank") is None else {"rank": job["rank"]}
    model = fitted(U, V, y, **options)

    def error(effects: np.ndarray) -> float:
        return float(np.mean((effects - truth) ** 2))

    row: Row = {"rca": error(model.coef_), "ancova": error(model.adjusted_), "naive": error(model.naive_)}
    row |= {
        "oracle": error(oracle),
        "rho": float(model.rho_[0]),
        "shared": model.rca_.rank_,
        "verdict": str(model.verdict_),
    }
    if job["section"] != "protection":
        X, rca = np.hstack([U, V]), rc.ContrastiveRCA(views=U.shape[1])
        row |= {
            f"ruv2 {k}": error(baselines.ruv2(X, y, rca, k=k).value) if k <= V.shape[1] else None for k in RUV_RANKS
        }
        row["ruv4"] = error(baselines.ruv4(X, y, rca).value)
    return row


def coverage(job: Job) -> Row:
    data = datasets.make_confounded(
        job["n"],
        confounder=job["confounder"],
        n_labs=job["labs"] or 3,
        effects=job["effects"],
        random_state=job["seed"],
    )
    model = fitted(data.U, data.V, data.y)
    found = model.effects_
    inside = (found.low <= data.effects) & (data.effects <= found.high)
    z = (found.value - data.effects) / found.standard_error
    return {
        "covered": float(np.mean(inside)),
        "rejected": float(np.mean(found.p_value < 0.05)),
        "z": float(np.sqrt(np.mean(z**2))),
        "verdict": str(model.verdict_),
        "agree": agreement(model),
    }


def discovery(job: Job) -> Row:
    """False ones among the discoveries at q = .1: 2 000 columns, a tenth of which change."""
    data = datasets.make_confounded(
        job["n"], 2000, job["controls"], confounder="labs", n_labs=3, null_fraction=0.9, random_state=job["seed"]
    )
    found = fitted(data.U, data.V, data.y).effects_
    called = found.q_value < 0.1
    row: Row = {"plain": float(np.mean(data.effects[called] == 0)) if called.any() else 0.0}
    row["plain power"] = float(np.mean(called[data.effects != 0]))
    naive = baselines.ancova(np.hstack([data.U, data.V]), data.y, rc.ContrastiveRCA(views=2000)).q_value < 0.1
    row["ancova"] = float(np.mean(data.effects[naive] == 0)) if naive.any() else 0.0
    return row


def agreement(model: rc.ExposureEffects) -> float:
    """p of the test that the controls agree."""
    return float(next(test.p_value for test in model.tests_ if test.name == "controls agree"))


def controls(job: Job) -> Row:
    """The first control may carry an effect of half its standard deviation per standard deviation of y.

    named : it alone is blamed; among : it is one of those blamed; worst : its held-out effect has the smallest p.
    """
    labs = {"n_labs": job["labs"]} if job["labs"] else {}
    data = datasets.make_confounded(
        job["n"], 6, job["controls"], confounder=job["confounder"], random_state=job["seed"], **labs
    )
    V = data.V.copy()
    if job["invalid"]:
        V[:, 0] += 0.5 * V[:, 0].std() * (data.y - data.y.mean()) / data.y.std()
    model = fitted(data.U, V, data.y)
    worst = int(np.argmin(model.control_effects_.p_value)) if model.control_effects_ is not None else -1
    blamed = model.answers()[0].suspects()
    row: Row = {"p": agreement(model), "worst": worst == 0, "shared": model.rca_.rank_}
    row |= {"named": blamed == ["x6"], "among": "x6" in blamed, "verdict": str(model.verdict_)}
    return row | {"sure": model.verdict_ == "strong"}


def wide(job: Job) -> Row:
    data = datasets.make_confounded(600, 20_000, 20, confounder="labs", n_labs=3, random_state=job["seed"])
    U, V, y = data.U, data.V, data.y
    start = time.perf_counter()
    fitted(U, V, y)
    return {"seconds": time.perf_counter() - start, "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


# ---- which draws


def cases(section: str) -> list[Job]:
    hidden: list[Job] = [
        {"confounder": "labs", "labs": 2},
        {"confounder": "labs", "labs": 3},
        {"confounder": "skewed", "labs": 0},
        {"confounder": "gaussian", "labs": 0},
    ]
    sizes = (300, 1000, 3000)
    made: dict[str, Iterable[Job]] = {
        "simulated": ({**kind, "n": n} for kind in hidden for n in sizes),
        "demo": ({"labs": labs, "controls": k} for labs, k in ((3, 5), (2, 5), (3, 10), (2, 10))),
        "cohort": ({"exposure": "disease", "tests": 20, "controls": k} for k in (5, 10, 20, 40)),
        "sites": ({"exposure": "disease", "tests": 0, "controls": k} for k in (10, 20, 40)),
        "violation": (
            {"exposure": e, "tests": 20, "controls": k}
            for e in ("disease", "age", "sexF", "smoking")
            for k in (60, 100)
        ),
        "protection": protection(),
        "coverage": ({**kind, "n": n, "effects": a} for kind in hidden[:3] for n in sizes[1:] for a in (0.0, 0.2)),
        "discovery": ({"n": n, "controls": 10} for n in (600, 1000)),
        "controls": (
            {**kind, "n": 1000, "controls": k, "invalid": bad}
            for kind in (*hidden[:2], hidden[3])
            for k in (6, 10)
            for bad in (False, True)
        ),
        "wide": ({},),
    }
    return list(made[section])


def protection() -> list[Job]:
    """60 designs: laws, controls nearly without noise, a tiny shared part, a wrong rank, few and many controls and rows."""
    laws: list[Job] = [
        {"confounder": "gaussian", "labs": 0},
        {"confounder": "heavy", "labs": 0},
        {"confounder": "labs", "labs": 3},
    ]
    shapes: list[Job] = [
        {"d_v": 2, "n": 300},
        {"d_v": 2, "n": 3000},
        {"d_v": 4, "n": 100},
        {"d_v": 4, "n": 1000},
        {"d_v": 6, "n": 5000},
        {"d_v": 20, "n": 300},
        {"d_v": 20, "n": 1000},
        {"d_v": 60, "n": 300},
        {"d_v": 60, "n": 1000},
        {"d_v": 6, "n": 300, "noise_v": 0.05},
        {"d_v": 6, "n": 1000, "noise_v": 0.05},
        {"d_v": 6, "n": 300, "strength": 0.1},
        {"d_v": 6, "n": 3000, "strength": 0.1},
        {"d_v": 6, "n": 300, "confounding": 0.0},
        {"d_v": 6, "n": 1000, "confounding": 0.0},
        {"d_v": 6, "n": 1000, "rank": 1},
        {"d_v": 6, "n": 1000, "rank": 3},
        {"d_v": 6, "n": 100},
        {"d_v": 6, "n": 1000, "binary_exposure": True},
        {"d_v": 10, "n": 300, "binary_exposure": True},
    ]
    usual: Job = {"noise_v": None, "strength": 1.0, "confounding": 1.0, "binary_exposure": False, "rank": None}
    return [{**usual, **law, **shape} for law in laws for shape in shapes]


def jobs(section: str, options: Options) -> list[Job]:
    if section in ("cohort", "sites", "violation") and "COHORT" not in os.environ:
        print(f"{section}: left out, COHORT is not set")
        return []
    draws = {"coverage": 200, "controls": 200, "protection": 20, "discovery": 20, "wide": 1}.get(section, 40)
    return drawn(cases(section), options.draws or draws, options.seed)


# ---- tables


def show(rows: Measured, options: Options) -> None:
    for section in ("simulated", "demo", "cohort", "sites", "violation"):
        for case, held in by_case(rows(section), cases(section)):
            if held:
                print(f"{section:10} {label(case):34} {told(held)}")
    above = worst = 0.0
    for case, held in by_case(rows("protection"), cases("protection")):
        if held:
            ratios = np.array([row["rca"] / row["ancova"] for row in held])
            above, worst = max(above, float(np.median(ratios))), max(worst, float(ratios.max()))
            print(f"protection {label(case):60} median {np.median(ratios):.2f} worst {ratios.max():.2f} ({len(held)})")
    if worst:
        print(f"protection: largest median {above:.2f}, worst draw {worst:.2f}")
    names = ("covered", "rejected")
    for case, held in by_case(rows("coverage"), cases("coverage")):
        if held:
            means = ", ".join(f"{name} {np.mean([row[name] for row in held]):.3f}" for name in names)
            sure = np.mean([row["verdict"] == "strong" for row in held])
            print(f"coverage   {label(case):44} {means}; strong {sure:.2f} ({len(held)})")
    for section in ("discovery", "wide"):
        for case, held in by_case(rows(section), cases(section)):
            if held:
                numbers = [name for name in held[0] if isinstance(held[0][name], float) and name not in case]
                means = ", ".join(f"{name} {np.mean([row[name] for row in held]):.3f}" for name in numbers)
                print(f"{section:10} {label(case):30} {means} ({len(held)})")
    for case, held in by_case(rows("controls"), cases("controls")):
        if held:
            rejected = np.mean([row["p"] < 0.05 for row in held])
            shares = {name: np.mean([row[name] for row in held]) for name in ("named", "among", "worst", "sure")}
            found = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
            print(f"controls   {label(case):44} rejected {rejected:.3f}, {found} ({len(held)})")


def label(case: Job) -> str:
    return ", ".join(f"{key} {value}" for key, value in case.items() if value not in (None, 0, False) or key == "tests")


def told(held: list[Row]) -> str:
    """Medians over those of the analysis of covariance."""

    def middle(name: str) -> float:
        return float(np.median([row[name] for row in held]))

    base = middle("ancova")
    best = min(middle(name) for k in RUV_RANKS if held[0].get(name := f"ruv2 {k}") is not None)
    parts = {name: middle(name) / base for name in ("rca", "naive", "ruv4", "oracle")}
    sure = np.mean([row["verdict"] == "strong" for row in held])
    worst = max(row["rca"] / row["ancova"] for row in held)
    ratios = ", ".join(f"{name} {value:.2f}" for name, value in {**parts, "best ruv2": best / base}.items())
    return f"ancova {base:.5f}; over it: {ratios}; worst draw {worst:.1f}; sure {sure:.2f} ({len(held)})"


if __name__ == "__main__":
    main(
        __doc__, SECTIONS, jobs, measure, show, draws=0, seed=4_000_000, out=RESULTS / "effects", processes=2
    )  # fmt: skip
