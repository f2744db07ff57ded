"""How often the tests reject what is true, at 5%, when rows are not independent; and what intervals cover when few rows are.

    python benchmarks/sizes.py run [SECTION ...] [--draws 400] [--seed 70000] [--processes 2] [--out DIR]    # append rows
    python benchmarks/sizes.py show [--out DIR]                                                              # print the tables

Sections: null (independent views: rank test and outcome test), one (one shared direction: the rank test beyond it, outcome
test), cumulants (the over-identification test), few (40 samples of 4 + 4 columns that share much: coverage). Rows are
appended as they finish, one JSON object per line, and a killed run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one process per core instead

import numpy as np  # noqa: E402

import richcomponents as rc  # noqa: E402

D = 4  # columns of each view
LAWS = {"null": ("normal", "skewed"), "one": ("normal",), "cumulants": ("normal",)}
FEW = ("skewed",)


@dataclass(frozen=True)
class Condition:
    """units independent units of `repeats` rows each, or of random weight; some covariates."""

    units: int
    repeats: int = 1
    weight: int = 1
    uneven: bool = False
    covariates: int = 0


CONDITIONS = {
    "i.i.d.": Condition(200),
    "groups, 100 x 10": Condition(100, repeats=10),
    "groups, 20 x 50": Condition(20, repeats=50),
    "groups, uneven ICC": Condition(100, repeats=10, uneven=True),
    "weight 30": Condition(100, weight=30),
    "weights 1-30": Condition(200, weight=-30),
    "100 covariates": Condition(200, covariates=100),
}
# block cumulants need more rows than second moments do
CUMULANTS = {
    "i.i.d.": Condition(1000),
    "groups, 100 x 10": Condition(100, repeats=10),
    "weight 30": Condition(1000, weight=30),
    "100 covariates": Condition(1000, covariates=100),
}


@dataclass(frozen=True)
class Sample:
    """Columns with the condition's dependence between rows, and how a fit is told about it."""

    rng: np.random.Generator
    condition: Condition

    @property
    def rows(self) -> int:
        return self.condition.units * self.condition.repeats

    def noise(self, law: str, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape) if law == "normal" else self.rng.exponential(size=shape) - 1

    def columns(self, law: str, d: int) -> np.ndarray:
        """(rows, d): half of the variance between units and half within; uneven: one column does not change within."""
        c = self.condition
        if c.repeats == 1:
            return self.noise(law, self.rows, d)
        between = np.full(d, 0.5)
        if c.uneven:
            between = np.where(np.arange(d) == 0, 1.0, 0.1)
        unit = np.repeat(self.noise(law, c.units, d), c.repeats, axis=0)
        return np.asarray(unit * np.sqrt(between) + self.noise(law, self.rows, d) * np.sqrt(1 - between))

    def covariates(self) -> np.ndarray:
        """Constant in a group; nothing depends on them."""
        return np.repeat(
            self.rng.normal(size=(self.condition.units, self.condition.covariates)), self.condition.repeats, 0
        )

    def reading(self) -> dict[str, Any]:
        c = self.condition
        if c.repeats > 1:
            return {"groups": np.repeat(np.arange(c.units), c.repeats)}
        if c.weight < 0:
            return {"sample_weight": self.rng.integers(1, 1 - c.weight, self.rows)}
        return {"sample_weight": np.full(self.rows, c.weight)} if c.weight > 1 else {}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    return {**job, **(few(job) if job["section"] == "few" else sizes(job))}


def sizes(job: dict[str, Any]) -> dict[str, Any]:
    section, law = job["section"], job["law"]
    table = CUMULANTS if section == "cumulants" else CONDITIONS
    sample = Sample(np.random.default_rng(job["seed"]), table[job["condition"]])
    S1, S3 = sample.columns(law, D), sample.columns(law, D)
    shared = {"null": 0, "one": 1, "cumulants": 2}[section]
    S2 = sample.columns("skewed" if section == "cumulants" else law, shared)
    into_u, into_v = (sample.rng.normal(size=(shared, D)) for _ in range(2))
    y = S1 @ np.ones(D) + sample.columns(law, 1)[:, 0]
    X = np.hstack([S1 + S2 @ into_u, S3 + S2 @ into_v, sample.covariates()])
    model = rc.ContrastiveRCA(views=D, rank=shared, covariates=list(range(2 * D, X.shape[1])))
    model.fit(X, **sample.reading())
    found = model.diagnostics_
    if section == "cumulants":
        return {"over-identification": None if found.overidentification is None else found.overidentification.p_value}
    return {f"rank {shared}": found.leftover.p_value, "outcome": model.outcome_test(X, y).p_value}


def few(job: dict[str, Any]) -> dict[str, Any]:
    data = rc.datasets.make_contrastive(40, d=D, S2=job["law"], scale_S2=job["scale"], random_state=job["seed"])
    model = rc.ContrastiveRCA(views=D).fit(data.X)
    row: dict[str, Any] = {"rank": model.rank_, "largest": model.diagnostics_.largest_rank}
    for what, truth in (("A", data.A), ("covariance", data.cov_S1)):
        interval = model.confidence_interval(what)
        row[what] = float(np.mean((interval.low <= truth) & (truth <= interval.high)))
        row[f"{what} bounded"] = bool(np.isfinite(interval.low).all())
    return row


def jobs(section: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    for draw in range(draws):
        if section == "few":
            for law in FEW:
                for scale in (0.4, 0.7, 1.0, 2.0):
                    yield {
                        "section": section,
                        "condition": f"S2 x {scale:g}",
                        "law": law,
                        "scale": scale,
                        "seed": seed + draw,
                    }
            continue
        for condition in CUMULANTS if section == "cumulants" else CONDITIONS:
            for law in LAWS[section]:
                yield {"section": section, "condition": condition, "law": law, "seed": seed + draw}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["condition"], row["law"], row["seed"]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(sections: list[str], draws: int, seed: int, out: Path, processes: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for section in sections:
        path = out / f"{section}.jsonl"
        done = {key(row) for row in read(path)}
        todo = [job for job in jobs(section, draws, seed) if key(job) not in done]
        print(f"{section}: {len(todo)} rows to do, {len(done)} done", flush=True)
        with multiprocessing.Pool(processes) as pool, path.open("a") as file:
            for row in pool.imap_unordered(measure, todo, chunksize=4):
                file.write(json.dumps(row) + "\n")
                file.flush()


def show(out: Path) -> None:
    for section in ("null", "one", "cumulants"):
        cells: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for row in read(out / f"{section}.jsonl"):
            for test in set(row) - {"section", "condition", "law", "seed"}:
                if row[test] is not None:
                    cells[test, row["condition"], row["law"]].append(row[test])
        for (test, condition, law), p in sorted(cells.items()):
            values = np.array(p)
            print(
                f"{test:>20}  {condition:20} {law:8} {np.mean(values < 0.05):.3f} at 5%, {np.mean(values < 0.01):.3f} at 1%"
                f" ({len(p)} draws)"
            )
    by_law: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in read(out / "few.jsonl"):
        by_law[row["law"], row["condition"]].append(row)
    for (law, condition), rows in sorted(by_law.items()):
        cover = ", ".join(f"{what} {np.mean([r[what] for r in rows]):.3f}" for what in ("A", "covariance"))
        zero = sum(r["rank"] == 0 for r in rows)
        bounded = sum(r["A bounded"] for r in rows)
        print(
            f"40 samples, {law}, {condition}: covered {cover}; rank 0 in {zero}, A bounded in {bounded} of {len(rows)} draws"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=70_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sizes")
    options = parser.parse_args()
    if options.what == "run":
        run(
            options.sections or ["null", "one", "cumulants", "few"],
            options.draws,
            options.seed,
            options.out,
            options.processes,
        )
    else:
        show(options.out)


if __name__ == "__main__":
    main()
