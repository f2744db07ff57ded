"""The figures that two editions of the library are compared by, on the same draws.

    python benchmarks/heart.py run SECTION --out rows.jsonl [--draws 24] [--label new] [--data FOLDER]
    python benchmarks/heart.py show rows-old.jsonl rows-new.jsonl

The library is whatever is on PYTHONPATH; the label is stored with each row. A row is one draw, a fit that fails is a row too,
and a killed run continues where it stopped. `show` prints "first label / second label" in every cell, of the draws that both
have. The simple methods (covariates, ANCOVA, residualising, two-stage least squares) are computed here, not by the library.

Sections: good, unif, laws (coefficients over V as covariates), mixing (A over the regression of V on U), directions (the top
one over residualising; "not spiked": beside it S1 is not alike in all directions), effects, protection (simulated confounding,
over ANCOVA), cells, null (a cohort of methylation sites: FOLDER has beta.csv.gz and pheno.csv, or a folder gse42861 with
them), instruments, rhc (FOLDER has rhc.csv.gz, or a folder rhc with it), luck (what should not move effects), outcome
(coefficients and log-odds of an outcome that goes with S2, over V as covariates). Cells that are slow have a quarter of the
draws.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import inspect
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import richcomponents as rc
from richcomponents import datasets

Array = np.ndarray
Row = dict[str, Any]
Designs = dict[str, dict[str, Any]]
Cell = Mapping[str, Any]  # settings of a cell: "name", "n", and what its section reads

FIRST_SEED = 20261118000
SECTIONS = (
    "good", "unif", "laws", "mixing", "directions", "effects", "protection", "cells", "null", "instruments", "rhc", "luck",
    "outcome",
)  # fmt: skip
_TAKES_INSTRUMENTS = "instruments" in inspect.signature(rc.ExposureEffects).parameters  # the old edition does not
KNOWN = ("sexF", "age", "smoking_current", "smoking_ex", "smoking_occasional")


# ---- the cells of each section

_HIDDEN: Designs = {
    "labs2": {"confounder": "labs", "n_labs": 2}, "labs3": {"confounder": "labs", "n_labs": 3},
    "skewed": {"confounder": "skewed"}, "gaussian": {"confounder": "gaussian"},
}  # fmt: skip


def cells_of(section: str) -> list[Cell]:
    three, many = (300, 1000, 3000), (5, 10, 20, 40, 80)
    laws: Designs = {kind: {"S2": kind} for kind in ("labs(2)", "labs(3)", "skewed", "gaussian", "uniform")}
    mixing: Designs = {"paper": {}, "paper, A good": {"A": "good"}, **{k: laws[k] for k in ("skewed", "gaussian")}}
    mixing |= {"quiet V": {"scale_S3": 0.1}, "pca": {"S1": "pca"}, "pca, A good": {"S1": "pca", "A": "good"}}
    null = [(k, kind) for k in many[:3] for kind in ("mix", "permuted", "mix, half changed")]
    outcome = [
        (k, n, link) for n in three[:2] for k in ("labs(3)", "gaussian", "skewed") for link in ("linear", "logistic")
    ]
    told = {"instruments": {"share": 1.0}, "options": {"rank": 2}}
    cells: dict[str, list[Cell]] = {
        "good": _contrastive({"paper, A good": {"A": "good"}}, (100, 200, 300, 500, 1000)),
        "unif": _contrastive({"paper, A unif": {}}, (*three, 10_000)),
        "laws": _contrastive({**laws, "nothing shared": {"scale_S2": 0.0}}, three),
        "mixing": _contrastive(mixing, (100, *three)),
        "directions": [
            *_contrastive({f"A {A}": {"S1": "pca", "A": A} for A in ("unif", "good")}, three),
            *({**cell, "spread": (0.03, 0.3)} for cell in _contrastive({"not spiked": {"S1": "pca"}}, three)),
        ],
        "effects": _confounded(three),
        "protection": _protection(),
        "cells": [{"name": f"{k} controls", "controls": k, "slow": k >= 80} for k in many],
        "null": [{"name": f"{kind}, {k} controls", "kind": kind, "controls": k} for k, kind in null],
        "instruments": [{"name": f"rank {r}, N = {n}", "rank": r, "n": n} for r in (1, 2) for n in three],
        "rhc": [{"name": "controls alone"}, {"name": "instruments as controls", "together": True},
                {"name": "instruments", "instruments": {}}, {"name": "instruments, share 1, rank 2", **told}],
        "luck": [*({"name": f"{kind}, N = 500", "n": 500, "design": _HIDDEN[kind]} for kind in ("labs3", "gaussian")),
                 {"name": "GSE42861, 10 controls", "controls": 10}],
        "outcome": [{"name": f"{link}, {k}, N = {n}", "n": n, "link": link, "design": laws[k]} for k, n, link in outcome],
    }  # fmt: skip
    return cells[section]


def _contrastive(designs: Designs, sizes: Iterable[int]) -> list[Cell]:
    cells = [(f"{name}, N = {n}", n, design) for n in sizes for name, design in designs.items()]
    return [{"name": name, "n": n, "design": design, "slow": n >= 10_000} for name, n, design in cells]


def _confounded(sizes: Iterable[int]) -> list[Cell]:
    """Half of the tests have no effect: the errors are the same, and the size of p is seen."""
    designs = {**_HIDDEN, "nothing shared": {"confounder": "gaussian", "strength": 0.0}}
    kinds = [*((kind, kind, False) for kind in designs), *((f"{kind}, mixed", kind, True) for kind in _HIDDEN)]
    out: list[Cell] = [
        {"name": f"{name}, N = {n}", "n": n, "design": {**designs[kind], "null_fraction": 0.5}, "mixed": mixed}
        for n in sizes
        for name, kind, mixed in kinds
    ]
    # twelve shared directions, of which one goes a little with the exposure: little is left to correct
    hardly = {
        "d_u": 20,
        "d_v": 40,
        "rank": 12,
        "strength": 0.3,
        "noise_v": 1.0,
        "confounding": 0.2,
        "null_fraction": 0.5,
    }
    good: list[Cell] = [
        {"name": f"40 good controls, {law}{', mixed' * mixed}, N = 2000", "n": 2000, "mixed": mixed,
         "design": {**hardly, "confounder": law}}
        for mixed in (False, True) for law in ("skewed", "gaussian")
    ]  # fmt: skip
    demo = [(labs, {"n_labs": labs, "n_controls": k}) for k in (5, 10) for labs in (2, 3)]
    real = [{"name": f"breast cancer, {n} labs, {kw['n_controls']} controls", "demo": kw} for n, kw in demo]
    return [*out, *good[:2], *real, *good[2:]]


def _protection() -> list[Cell]:
    """The 60 designs of docs/effects.md; `rank` is that of the fit, and wrong."""
    laws = {"gaussian": {"confounder": "gaussian"}, "heavy": {"confounder": "heavy"}, "labs3": _HIDDEN["labs3"]}
    few, most = [(2, 300), (2, 3000), (4, 100), (4, 1000), (6, 5000)], [(20, 300), (20, 1000), (60, 300), (60, 1000)]
    shapes: list[tuple[int, dict[str, Any]]] = [(n, {"d_v": d}) for d, n in [*few, *most, (6, 100)]]
    shapes += [(n, {"noise_v": 0.05}) for n in (300, 1000)] + [(n, {"strength": 0.1}) for n in (300, 3000)]
    shapes += [(n, {"confounding": 0.0}) for n in (300, 1000)] + [(1000, {"rank": r}) for r in (1, 3)]
    shapes += [(1000, {"binary_exposure": True}), (300, {"binary_exposure": True, "d_v": 10})]
    out: list[Cell] = []
    for law, kw in laws.items():
        for n, shape in shapes:
            options = {key: value for key, value in shape.items() if key == "rank"}
            design = {**kw, **{key: value for key, value in shape.items() if key != "rank"}}
            name = ", ".join([law, *(f"{key} {value}" for key, value in shape.items()), f"N = {n}"])
            out.append({"name": name, "n": n, "design": design, "options": options, "slow": shape.get("d_v", 0) >= 60})
    return out


# ---- problems


@dataclass(frozen=True)
class Problem:
    """Tests, controls, exposure, true effects, and the effects of a regression that sees what is hidden (if known)."""

    U: Array
    V: Array
    y: Array
    truth: Array
    oracle: Array | None = None


def confounded(cell: Cell, seed: int, folder: str) -> Problem:
    if "demo" in cell:
        data = datasets.load_confounded_labs(seed, **cell["demo"])
        return Problem(data.U, data.V, data.y, data.effects, data.oracle)
    made = datasets.make_confounded(cell["n"], random_state=seed, **cell["design"])
    if not cell.get("mixed"):
        return Problem(made.U, made.V, made.y, made.effects, made.oracle)
    rng = np.random.default_rng(seed + 10**9)
    s1, s3 = (s @ rng.normal(size=(s.shape[1],) * 2) / np.sqrt(s.shape[1]) for s in (made.S1, made.S3))
    return Problem(np.outer(made.y, made.effects) + s1 + made.S2, made.S2 @ made.A.T + s3, made.y, made.effects)


@lru_cache(maxsize=1)
def cohort(folder: str) -> tuple[Any, Array]:
    """People, and their sites: logit of beta, standardised."""
    import pandas as pd

    people = pd.read_csv(Path(folder) / "pheno.csv", index_col=0)
    share = pd.read_csv(Path(folder) / "beta.csv.gz", index_col=0).loc[people.index].clip(0.001, 0.999)
    sites = np.log2(share / (1 - share))
    return people, ((sites - sites.mean()) / sites.std()).to_numpy()


def arthritis(cell: Cell, seed: int, folder: str) -> Problem:
    """Truth: the regression that knows the cell fractions. Controls: sites whose effect given these has |t| < 1."""
    people, sites = cohort(folder)
    y, others = people["disease"].to_numpy(dtype=float), people[list(KNOWN)].to_numpy(dtype=float)
    gold, t, _ = least_squares(sites, y, people.filter(like="cell_").to_numpy(), others)
    rng = np.random.default_rng(seed)
    v = rng.choice(np.flatnonzero(np.abs(t) < 1), cell["controls"], replace=False)
    u = rng.choice(np.setdiff1d(np.arange(sites.shape[1]), v), 20, replace=False)
    left = residual(np.column_stack([sites, y]), others)
    return Problem(left[:, u], left[:, v], left[:, -1], gold[u], gold[u])


def no_effect(cell: Cell, seed: int, folder: str) -> Problem:
    """Exposures that change nothing: a mix of the cells plus noise, or arthritis of other people; or the mix, with effects of
    .3 added to half of the tests."""
    people, sites = cohort(folder)
    rng = np.random.default_rng(seed)
    fractions = people.filter(like="cell_").to_numpy()
    fractions = (fractions - fractions.mean(axis=0)) / fractions.std(axis=0)
    mix = fractions @ rng.normal(size=fractions.shape[1])
    y, truth = mix / mix.std() + rng.normal(size=len(sites)), np.zeros(20)
    if cell["kind"] == "permuted":
        y = rng.permutation(people["disease"].to_numpy(dtype=float))
    if cell["kind"].endswith("changed"):
        truth[:10] = 0.3 * rng.choice([-1.0, 1.0], 10)
    chosen = rng.choice(sites.shape[1], 20 + cell["controls"], replace=False)
    U, V = sites[:, chosen[:20]] + np.outer(y, truth), sites[:, chosen[20:]]
    return Problem(U, V, y, truth, least_squares(U, y, fractions)[0])


def instrumented(cell: Cell, seed: int) -> tuple[Problem, Array]:
    """Gaussian factors; own parts of tests and of controls are mixed, so that they say nothing about the factors."""
    rng, n, r, d, q = np.random.default_rng(seed), cell["n"], cell["rank"], 5, 3
    f, truth = rng.normal(size=(n, r)), 0.2 * rng.normal(size=d)
    y = f[:, 0] + rng.normal(size=n)
    own = [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(2)]
    U = np.outer(y, truth) + f @ rng.normal(size=(r, d)) + own[0]
    V = f @ rng.normal(size=(r, d)) + rng.uniform(0.7, 1.5) * own[1]
    Z = f @ rng.normal(size=(r, q)) + rng.normal(size=(n, q))
    return Problem(U, V, y, truth, least_squares(U, y, f)[0]), Z


# ---- simple methods


def least_squares(values: Array, y: Array, *known: Array) -> tuple[Array, Array, Array]:
    """Coefficients of y in every column, their t and p."""
    design = np.column_stack([np.ones(len(y)), y, *known])
    coef = np.linalg.lstsq(design, values, rcond=None)[0]
    degrees = len(y) - design.shape[1]
    noise = np.sum((values - design @ coef) ** 2, axis=0) / degrees
    t = coef[1] / np.sqrt(noise * np.linalg.pinv(design.T @ design)[1, 1])
    return coef[1], t, np.asarray(2 * stats.t.sf(np.abs(t), degrees))


def residual(values: Array, on: Array) -> Array:
    design = np.column_stack([np.ones(len(values)), on])
    return np.asarray(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])


def two_stages(one: Problem, Z: Array, rank: int) -> Array:
    """Two-stage least squares with the true number of directions of V: those that Z predicts best, given y."""
    v, z = (np.linalg.qr(residual(part, one.y[:, None])) for part in (one.V, Z))
    best = np.linalg.solve(v[1], np.linalg.svd(v[0].T @ z[0])[0][:, :rank])
    first = one.V @ best - residual(one.V @ best, np.column_stack([one.y, Z]))
    return least_squares(one.U, one.y, first)[0]


def squared(a: Array, b: Array) -> float:
    return float(np.mean((np.asarray(a) - b) ** 2))


# ---- what the library answers


def word(model: Any) -> str:
    """The verdict: text, or a member of an Enum."""
    verdict = model.verdict_ if hasattr(model, "verdict_") else model.rca_.verdict_
    return str(getattr(verdict, "value", verdict))


def inside(estimate: Any, truth: Array) -> Array:
    """Entries whose 95% interval covers the truth; one without limits does not."""
    low, high = estimate.interval(0.95)
    return np.asarray((np.asarray(low) <= truth) & (truth <= np.asarray(high)))


def values_of(estimate: Any, *names: str) -> Array:
    return np.asarray(next(getattr(estimate, name) for name in names if hasattr(estimate, name)))


def contrastive(cell: Cell, seed: int, model: Any) -> tuple[Any, Any, Row]:
    """The data, the fitted model and the row's first values."""
    data = datasets.make_contrastive(cell["n"], random_state=seed, **cell["design"])
    data = spread_out(data, seed, *cell["spread"]) if "spread" in cell else data
    model = model.fit(data.X) if data.y is None or isinstance(model, rc.ContrastiveRCA) else model.fit(data.X, data.y)
    rank = model.rank_ if hasattr(model, "rank_") else model.rca_.rank_
    return data, model, {"data": data.X, "verdict": word(model), "rank": int(rank)}


def spread_out(data: Any, seed: int, low: float, high: float) -> Any:
    """With more in S1, of variances from low to high in directions of its own."""
    rng, d = np.random.default_rng(seed + 10**9), data.U.shape[1]
    root = np.sqrt(np.geomspace(low, high, d))[:, None] * np.linalg.qr(rng.normal(size=(d, d)))[0]
    top = np.linalg.eigh(np.outer(data.direction, data.direction) + root.T @ root)[1][:, -1]
    more = rng.normal(size=data.U.shape) @ root
    return replace(data, S1=data.S1 + more, cov_S1=data.cov_S1 + root.T @ root, direction=top)


def coefficients(cell: Cell, seed: int, folder: str) -> Row:
    data, model, row = contrastive(cell, seed, rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10)))
    simple = np.linalg.lstsq(np.column_stack([data.X, np.ones(cell["n"])]), data.y, rcond=None)[0][:10]
    row |= {"error": squared(model.coef_, data.beta), "base": squared(simple, data.beta)}
    variances = np.diagonal(inside(model.rca_.confidence_interval("covariance"), data.cov_S1))
    return row | {"covers": inside(model.coefficients_, data.beta).mean(), "covers Var(S1)": variances.mean()}


def with_shared(cell: Cell, seed: int, folder: str) -> Row:
    """An outcome of both parts: beta'S1 + gamma'S2 + noise, or its sign with logistic noise."""
    from sklearn.linear_model import LogisticRegression

    data, rng = datasets.make_contrastive(cell["n"], random_state=seed, **cell["design"]), np.random.default_rng(seed)
    beta, gamma = rng.normal(size=(2, data.U.shape[1]))
    signal, X = (data.U - data.S2) @ beta + data.S2 @ gamma, data.X
    if cell["link"] == "linear":
        y = signal + rng.normal(size=len(signal))
        simple = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0][:10]
        model: Any = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10)).fit(X, y)
    else:
        y = np.where(signal + rng.logistic(size=len(signal)) > 0, 1, 0)
        simple = LogisticRegression(C=np.inf, max_iter=1000).fit(X, y).coef_[0, :10]
        model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=10)).fit(X, y)
    row: Row = {"data": X, "verdict": word(model), "rank": int(model.rca_.rank_)}
    row |= {"error": squared(np.ravel(model.coef_), beta), "base": squared(simple, beta)}
    return row | {"covers": inside(model.coefficients_, beta).mean()}


def mixing(cell: Cell, seed: int, folder: str) -> Row:
    data, model, row = contrastive(cell, seed, rc.ContrastiveRCA(views=10))
    simple = np.linalg.lstsq(data.U - data.U.mean(axis=0), data.V - data.V.mean(axis=0), rcond=None)[0].T
    found = model.confidence_interval("A")
    low, high = found.interval(0.95)
    row |= {"error": squared(model.A_, data.A), "base": squared(simple, data.A)}
    return row | {"covers": inside(found, data.A).mean(), "bounded": np.isfinite(np.asarray(high) - low).mean()}


def directions(cell: Cell, seed: int, folder: str) -> Row:
    data, model, row = contrastive(cell, seed, rc.ComponentPCA(rca=rc.ContrastiveRCA(views=10)))
    simple = np.linalg.eigh(np.cov(residual(data.U, data.V).T))[1][:, -1]
    error, base = (2 - 2 * abs(float(top @ data.direction)) for top in (model.components_[0], simple))
    return row | {"error": error, "base": base}


def fitted(one: Problem, options: Mapping[str, Any], Z: Array | None = None) -> Any:
    """Effects, with instruments Z if there are any."""
    d, k = one.U.shape[1], one.U.shape[1] + one.V.shape[1]
    views = {"tests": list(range(d)), "controls": list(range(d, k))}
    more: dict[str, Any] = {} if Z is None else {"instruments": list(range(k, k + Z.shape[1]))}
    table = np.hstack([one.U, one.V, *([] if Z is None else [Z])])
    return rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views, **options), **more).fit(table, one.y)


def answered(one: Problem, model: Any) -> Row:
    """Errors of the effects, whether intervals cover, what p and q say."""
    found, null = model.effects_, one.truth == 0
    ancova, naive = least_squares(one.U, one.y, one.V), least_squares(one.U, one.y)
    row: Row = {"data": np.hstack([one.U, one.V]), "error": squared(model.coef_, one.truth)}
    row |= {"base": squared(ancova[0], one.truth), "naive": squared(naive[0], one.truth)}
    row |= {} if one.oracle is None else {"oracle": squared(one.oracle, one.truth)}
    row |= {"covers": inside(found, one.truth).mean(), "verdict": word(model), "rank": int(model.rca_.rank_)}
    row["share"] = float(np.mean(model.rho_))
    p, called = values_of(found, "p", "p_value"), values_of(found, "q", "q_value") < 0.1
    if null.any():
        row |= {"size": np.mean(p[null] < 0.05), "false at q": np.mean(null[called]) if called.any() else 0.0}
        row |= {"size ANCOVA": np.mean(ancova[2][null] < 0.05), "size naive": np.mean(naive[2][null] < 0.05)}
    if not null.all():
        row |= {"rejects": np.mean(p[~null] < 0.05), "found at q": np.mean(called[~null])}
        row |= {"rejects ANCOVA": np.mean(ancova[2][~null] < 0.05)}
    if hasattr(found, "calibrated"):
        row["covers calibrated"] = inside(found.calibrated, one.truth).mean()
        if null.any():
            row["size calibrated"] = np.mean(values_of(found.calibrated, "p", "p_value")[null] < 0.05)
    return row


def effects(problem: Callable[[Cell, int, str], Problem], cell: Cell, seed: int, folder: str) -> Row:
    one = problem(cell, seed, folder)
    return answered(one, fitted(one, cell.get("options", {})))


def instruments(cell: Cell, seed: int, folder: str) -> Row:
    one, Z = instrumented(cell, seed)
    row = answered(one, fitted(one, {}, Z if _TAKES_INSTRUMENTS else None))
    return row | {"base 2SLS": squared(two_stages(one, Z, cell["rank"]), one.truth)}


def catheter(cell: Cell, seed: int, folder: str) -> Row:
    """One test, two controls, two instruments, 68 covariates; the truth is not known."""
    import pandas as pd

    V, Z = ["ph1", "hema1"], ["pafi1", "paco21"]
    table = pd.read_csv(Path(folder) / "rhc.csv.gz").astype(float).drop(columns="survival")
    known = [name for name in table if name not in ("days30", "RHC", *V, *Z)]
    more: dict[str, Any] = {"instruments": Z, **cell["instruments"]} if "instruments" in cell else {}
    if more and not _TAKES_INSTRUMENTS:
        return {"data": table.to_numpy(), "verdict": "no instruments in this edition"}
    views = {"tests": ["days30"], "controls": [*V, *Z] if cell.get("together") else V}
    rca = rc.ContrastiveRCA(views=views, covariates=known, **cell.get("options", {}))
    model: Any = rc.ExposureEffects(rca=rca, exposure="RHC", **more).fit(table)
    found, (low, high) = model.effects_, model.effects_.interval(0.95)
    row: Row = {"data": table.to_numpy(), "verdict": word(model), "rank": int(model.rca_.rank_)}
    row |= {"estimate": float(model.coef_[0]), "adjusted": float(model.adjusted_[0]), "naive": float(model.naive_[0])}
    row |= {"standard error": float(values_of(found, "error", "standard_error")[0])}
    return row | {"low": float(low[0]), "high": float(high[0]), "p": float(values_of(found, "p", "p_value")[0])}


def luck(cell: Cell, seed: int, folder: str) -> Row:
    """How far effects move, in standard errors, the largest of all tests; and whether the verdict changes."""
    one = (confounded if "design" in cell else arthritis)(cell, seed, folder)
    rng, before = np.random.default_rng(seed + 10**9), fitted(one, {})
    error, V = values_of(before.effects_, "error", "standard_error"), one.V
    noise = rng.normal(size=len(V))
    changed: list[tuple[str, Array, dict[str, Any]]] = [
        ("duplicated", np.column_stack([V, V[:, 0]]), {}), ("irrelevant", np.column_stack([V, noise]), {}),
        ("order", V[:, rng.permutation(V.shape[1])], {}),
    ]  # fmt: skip
    if "random_state" in inspect.signature(rc.ContrastiveRCA).parameters:
        changed += [("seed", V, {"random_state": s}) for s in (1, 2, 3)]
    moves: Row = {}
    for kind, controls, options in changed:
        after = fitted(Problem(one.U, controls, one.y, one.truth), options)
        moves[kind] = max(moves.get(kind, 0.0), float(np.max(np.abs(after.coef_ - before.coef_) / error)))
        moves[f"{kind}: verdict"] = bool(moves.get(f"{kind}: verdict")) or word(after) != word(before)
    return {"data": np.hstack([one.U, V]), "verdict": word(before), "moves": moves}


_MEASURES: dict[str, Callable[[Cell, int, str], Row]] = {
    "good": coefficients, "unif": coefficients, "laws": coefficients, "mixing": mixing, "directions": directions,
    "effects": partial(effects, confounded), "protection": partial(effects, confounded),
    "cells": partial(effects, arthritis), "null": partial(effects, no_effect),
    "instruments": instruments, "rhc": catheter, "luck": luck, "outcome": with_shared,
}  # fmt: skip


# ---- run


def read(path: Path) -> list[Row]:
    """The whole rows of a file; the last line of a killed run may be torn."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}") and '"seconds"' in line]


def run(section: str, out: Path, draws: int, label: str, data: Path | None) -> None:
    inner = {"rhc": "rhc"}.get(section, "gse42861")
    folder = "" if data is None else str(data / inner if (data / inner).is_dir() else data)
    done = {(row["section"], row["cell"], row["draw"], row["label"]) for row in read(out)}
    torn = out.exists() and not out.read_bytes().endswith(b"\n") and out.stat().st_size > 0
    with out.open("a", encoding="utf-8") as file:
        file.write("\n" if torn else "")
        for draw in range(1 if section == "rhc" else draws):
            for number, cell in enumerate(cells_of(section)):
                if (section, cell["name"], draw, label) in done or (cell.get("slow") and draw >= max(1, draws // 4)):
                    continue
                seed = FIRST_SEED + 1_000_000 * SECTIONS.index(section) + 1000 * number + draw
                row = {"section": section, "cell": cell["name"], "draw": draw, "seed": seed, "label": label}
                start = time.process_time()
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        row |= _MEASURES[section](cell, seed, folder)
                        row["data"] = float(np.mean(np.square(row["data"])))  # to see that both had the same draw
                except Exception as problem:
                    row["failed"] = f"{type(problem).__name__}: {problem}"
                row["seconds"] = round(time.process_time() - start, 3)
                file.write(json.dumps(row, default=float) + "\n")
                file.flush()


# ---- show


def ratios(rows: Sequence[Row]) -> Array:
    return np.array([row["error"] / row["base"] for row in rows])


def of_medians(rows: Sequence[Row]) -> float:
    """Over the best of the simple methods, by medians over draws."""
    bases = [name for name in rows[0] if name.startswith("base")]
    return float(np.median([r["error"] for r in rows]) / min(np.median([r[name] for r in rows]) for name in bases))


def at_most(rows: Sequence[Row]) -> float:
    return float(np.mean(ratios(rows) <= 1.05)) if rows else float("nan")


def strong(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] == "strong"]


def mean_of(name: str) -> Callable[[Sequence[Row]], float]:
    return lambda rows: float(np.mean([row[name] for row in rows if name in row] or [np.nan]))


_COLUMNS: dict[str, Callable[[Sequence[Row]], float]] = {
    "median": lambda rows: float(np.median(ratios(rows))), "of medians": of_medians,
    "worst": lambda rows: float(ratios(rows).max()), "> 1.5": lambda rows: float(np.mean(ratios(rows) > 1.5)),
    "> 2": lambda rows: float(np.mean(ratios(rows) > 2)), "> 3": lambda rows: float(np.mean(ratios(rows) > 3)),
    "<= 1.05": at_most, "strong": lambda rows: len(strong(rows)) / len(rows),
    "strong <= 1.05": lambda rows: at_most(strong(rows)),
}  # fmt: skip
_OF_ORACLE = ("> 2", "<= 1.05", "strong <= 1.05")  # what a regression that sees what is hidden has of these
_MEANS = (
    "covers", "covers Var(S1)", "covers calibrated", "bounded", "size", "size calibrated", "size ANCOVA", "size naive",
    "false at q", "rejects", "rejects ANCOVA", "found at q", "seconds",
)  # fmt: skip
_VALUES = ("estimate", "standard error", "low", "high", "p", "adjusted", "naive", "rank")


def of_oracle(name: str) -> Callable[[Sequence[Row]], float]:
    """A column of the regression that sees what is hidden, on the same draws: what the luck of ANCOVA leaves to any method."""

    def column(rows: Sequence[Row]) -> float:
        seen = [{**row, "error": row["oracle"]} for row in rows if "oracle" in row]
        return _COLUMNS[name](seen) if seen else float("nan")

    return column


def show(paths: Sequence[Path]) -> None:
    rows = {(row["label"], row["section"], row["cell"], row["draw"]): row for path in paths for row in read(path)}
    labels = list(dict.fromkeys(label for label, *_ in rows))
    keys = list(dict.fromkeys(key[1:] for key in rows))
    common = [[rows[label, *key] for label in labels] for key in keys if all((label, *key) in rows for label in labels)]
    seen = [[row["data"] for row in one if "data" in row] for one in common]  # a fit that failed has none
    same = [one for one, values in zip(common, seen, strict=True) if not values or np.ptp(values) <= 1e-9 * max(values)]
    print(f"{' / '.join(labels)}: {len(same)} draws that all have, of {len(keys)}")
    if len(same) < len(common):
        print(f"WARNING: {len(common) - len(same)} draws are left out: their data differ")
    of_effects: list[list[Row]] = []
    for section in SECTIONS:
        mine = [one for one in same if one[0]["section"] == section]
        good = [one for one in mine if not any("failed" in row for row in one)]
        print(f"\n## {section}\n\n" if mine else "", end="")
        for one in mine if len(good) < len(mine) else ():
            said = [f"{row['label']}: {row['failed'][:100]}" for row in one if "failed" in row]
            print(f"failed: {one[0]['cell']}, draw {one[0]['draw']}: {'; '.join(said)}\n" if said else "", end="")
        if not good:
            continue
        if section == "rhc":
            values = [(row, [text(row.get(name, np.nan)) for name in _VALUES]) for one in good for row in one]
            lines = [[row["cell"], row["label"], *held, row["verdict"]] for row, held in values]
            table(["cell", "edition", *_VALUES, "verdict"], lines)
        elif section == "luck":
            for kind in ("duplicated", "irrelevant", "order", "seed"):
                print(f"\n{kind}: largest move of an effect, in standard errors\n")
                show_cells(section, good, moves_of(kind))
        else:
            of_effects += good if section in SECTIONS[5:10] else []
            means = [name for name in _MEANS if any(name in row for one in good for row in one)]
            floor = {f"oracle {name}": of_oracle(name) for name in _OF_ORACLE if section in SECTIONS[5:10]}
            show_cells(section, good, {**_COLUMNS, **floor, **{name: mean_of(name) for name in means}})
            show_verdicts(good)
    if of_effects:
        print("\n## all effects together")
        show_verdicts(of_effects)


def moves_of(kind: str) -> dict[str, Callable[[Sequence[Row]], float]]:
    def over(summary: Callable[[Array], Any], name: str = kind) -> Callable[[Sequence[Row]], float]:
        return lambda rows: float(summary(np.array([row["moves"].get(name, np.nan) for row in rows])))

    above, changes = over(lambda moves: np.mean(moves > 1)), over(np.mean, f"{kind}: verdict")
    return {"median": over(np.median), "largest": over(np.max), "> 1": above, "verdict changes": changes}


def show_cells(
    section: str, draws: Sequence[Sequence[Row]], columns: Mapping[str, Callable[[Sequence[Row]], float]]
) -> None:
    lines = []
    for name in [*(cell["name"] for cell in cells_of(section)), "all"]:
        mine = [one for one in draws if name in (one[0]["cell"], "all")]
        editions = list(zip(*mine, strict=True))
        if editions:
            cells = [[text(column(held)) for held in editions] for column in columns.values()]
            lines.append([name, str(len(mine)), *("-" if set(one) == {"-"} else " / ".join(one) for one in cells)])
    table(["cell", "draws", *columns], lines)


def show_verdicts(draws: Sequence[Sequence[Row]]) -> None:
    """How many fits have each verdict, and the share of these at or below 1.05 of the simple method."""
    for held in zip(*draws, strict=True):
        verdicts = [
            (word, [row for row in held if row["verdict"] == word]) for word in {row["verdict"] for row in held}
        ]
        said = [f"{word} {len(mine)} ({at_most(mine):.3f})" for word, mine in sorted(verdicts)]
        print(f"\nverdicts, {held[0]['label']} (share at or below 1.05): {', '.join(said)}")


def text(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 3 if 0 < abs(value) < 0.095 else 2
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="what", required=True)
    measure, tables = kinds.add_parser("run"), kinds.add_parser("show")
    measure.add_argument("section", choices=SECTIONS)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--draws", type=int, help="24; 50 of the section good")
    measure.add_argument("--label", default="new")
    measure.add_argument("--data", type=Path, help="folder of the real tables")
    tables.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.what == "show":
        show(given.files)
        return
    if given.data is None and given.section in ("cells", "null", "rhc", "luck"):
        measure.error(f"the section {given.section} reads a real table: --data FOLDER")
    run(given.section, given.out, given.draws or (50 if given.section == "good" else 24), given.label, given.data)


if __name__ == "__main__":
    main()
