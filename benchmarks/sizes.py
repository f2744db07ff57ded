"""How often the tests reject what is true, at 5%, when rows are not independent; and what intervals cover when few rows are.

    python benchmarks/sizes.py run [SECTION ...] [--draws 400] [--seed 70000] [--processes 2] [--out DIR]    # measure
    python benchmarks/sizes.py show [--out DIR]                                                              # print the tables

Sections: null (independent views: rank test and outcome test), one (one shared direction: the rank test beyond it, outcome
test), cumulants (the over-identification test), few (40 samples of 4 + 4 columns that share much: coverage).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from typing import Any

import numpy as np

import richcomponents as rc
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

D = 4  # columns of each view
LAWS = {"null": ("normal", "skewed"), "one": ("normal",), "cumulants": ("normal",)}
FEW = ("skewed",)
SECTIONS = ("null", "one", "cumulants", "few")


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


def measure(job: Job) -> Row:
    return few(job) if job["section"] == "few" else sizes(job)


def sizes(job: Job) -> Row:
    section, law = job["section"], job["law"]
    condition = Condition(*(job[field.name] for field in fields(Condition)))
    sample = Sample(np.random.default_rng(job["seed"]), condition)
    S1, S3 = sample.columns(law, D), sample.columns(law, D)
    shared = {"null": 0, "one": 1, "cumulants": 2}[section]
    S2 = sample.columns("skewed" if section == "cumulants" else law, shared)
    into_u, into_v = (sample.rng.normal(size=(shared, D)) for _ in range(2))
    y = S1 @ np.ones(D) + sample.columns(law, 1)[:, 0]
    X = np.hstack([S1 + S2 @ into_u, S3 + S2 @ into_v, sample.covariates()])
    model = rc.ContrastiveRCA(views=D, rank=shared, covariates=list(range(2 * D, X.shape[1])))
    model.fit(X, **sample.reading())
    tests = model.diagnostics_
    if section == "cumulants":
        return {"over-identification": None if tests.overidentification is None else tests.overidentification.p_value}
    return {f"rank {shared}": tests.leftover.p_value, "outcome": model.outcome_test(X, y).p_value}


def few(job: Job) -> Row:
    data = rc.datasets.make_contrastive(40, d=D, S2=job["law"], scale_S2=job["scale"], random_state=job["seed"])
    model = rc.ContrastiveRCA(views=D).fit(data.X)
    row: Row = {"rank": int(model.rank_), "largest": int(model.diagnostics_.largest_rank)}
    for what, truth in (("A", data.A), ("covariance", data.cov_S1)):
        interval = model.confidence_interval(what)
        row[what] = float(np.mean((interval.low <= truth) & (truth <= interval.high)))
        row[f"{what} bounded"] = bool(np.isfinite(interval.low).all())
    return row


def cases(section: str) -> list[Job]:
    if section == "few":
        return [
            {"condition": f"S2 x {scale:g}", "law": law, "scale": scale}
            for law in FEW
            for scale in (0.4, 0.7, 1.0, 2.0)
        ]
    return [
        {"condition": name, "law": law, **asdict(condition)}
        for name, condition in (CUMULANTS if section == "cumulants" else CONDITIONS).items()
        for law in LAWS[section]
    ]


def jobs(section: str, options: Options) -> list[Job]:
    return drawn(cases(section), options.draws, options.seed)


def show(rows: Measured, options: Options) -> None:
    for section in ("null", "one", "cumulants"):
        p_values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for case, held in by_case(rows(section), cases(section)):
            for row in held:
                for test in row.keys() - {*case, "section", "seed"}:
                    if row[test] is not None:
                        p_values[test, case["condition"], case["law"]].append(row[test])
        for (test, condition, law), p in sorted(p_values.items()):
            values = np.array(p)
            print(
                f"{test:>20}  {condition:20} {law:8} {np.mean(values < 0.05):.3f} at 5%, {np.mean(values < 0.01):.3f} at 1%"
                f" ({len(p)} draws)"
            )
    for case, held in by_case(rows("few"), sorted(cases("few"), key=itemgetter("law", "condition"))):
        cover = ", ".join(f"{what} {np.mean([r[what] for r in held]):.3f}" for what in ("A", "covariance"))
        zero = sum(r["rank"] == 0 for r in held)
        bounded = sum(r["A bounded"] for r in held)
        print(
            f"40 samples, {case['law']}, {case['condition']}: covered {cover}; rank 0 in {zero}, A bounded in {bounded} of"
            f" {len(held)} draws"
        )


if __name__ == "__main__":
    main(__doc__, SECTIONS, jobs, measure, show, draws=400, seed=70_000, out=RESULTS / "sizes", processes=2)
