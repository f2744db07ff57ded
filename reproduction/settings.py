"""settings.toml, read and checked: every setting of the paper's experiments, and the draws that it asks for."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richcomponents import DataError
from rows import Job

SETTINGS = Path(__file__).with_name("settings.toml")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One panel of the figure.

    x : "n" (sample size), "strength" (sd(S2) / sd(S1)), "step" (of a gradient descent), "degree" (of a polynomial) or "scale"
    (of lab biases); values : where it is measured; designs : what the rows' column `case` may hold, and the options of
    datasets.make_contrastive for it; repeats : {"quick", "full"} draws.
    """

    name: str
    title: str
    x: str
    values: tuple[float, ...]
    designs: Mapping[str, Mapping[str, Any]]
    methods: tuple[str, ...]
    repeats: Mapping[str, int]
    options: Mapping[str, Any]

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(self.designs)


@dataclass(frozen=True)
class Settings:
    """settings.toml; `text` is the file as it was read."""

    seed: int
    methods: Mapping[str, str]
    mixings: Mapping[str, str]
    panels: Mapping[str, Panel]
    text: str

    def jobs(self, panels: Sequence[str], length: str, cases: Mapping[str, Sequence[str]] | None = None) -> list[Job]:
        """The draws of these panels, repeat by repeat, so that a run cut short has some of everything: dicts of panel, case, x,
        method, repeat and seed. All methods see the same data; a run over gradient steps gives rows for several x at once.

        length : "quick" or "full"; the draws of "quick" are the first of those of "full". cases : for panels whose cases
        are not known beforehand.
        """
        jobs: list[Job] = []
        for name in panels:
            panel = self.panels[name]
            together = [panel.values] if panel.x == "step" else [(x,) for x in panel.values]
            for case in (cases or {}).get(name, panel.cases):
                for xs in together:
                    for repeat in range(panel.repeats[length]):
                        draw = {"panel": name, "case": case, "x": xs, "method": panel.methods, "repeat": repeat}
                        jobs.append({**draw, "seed": self._seed_of(name, case, xs, repeat)})
        return sorted(jobs, key=lambda job: (job["repeat"], job["panel"], job["case"], job["x"][-1]))

    def _seed_of(self, panel: str, case: str, xs: tuple[float, ...], repeat: int) -> int:
        """A function of the row's key alone: neither the order of the work nor the other panels change a row."""
        x = f"{xs[0]:.10g}" if len(xs) == 1 else ""
        key = f"{self.seed}|{panel}|{case}|{x}|{repeat}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")


def load_settings(path: Path = SETTINGS) -> Settings:
    """settings.toml, or a changed copy of it."""
    text = path.read_text(encoding="utf-8")
    try:
        raw = tomllib.loads(text)
        panels = {name: _panel(name, given, raw) for name, given in raw["panels"].items()}
        return Settings(int(raw["seed"]), raw["methods"], raw["mixings"], panels, text)
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as problem:
        raise DataError(f"{path} cannot be used: {problem!r}. Begin with a copy of {SETTINGS}") from None


def _panel(name: str, given: Mapping[str, Any], raw: Mapping[str, Any]) -> Panel:
    fields = ("title", "x", "values", "methods", "mixings", "repeats")
    return Panel(
        name,
        given["title"],
        given["x"],
        tuple(int(x) if x == int(x) else x for x in given["values"]),
        _cases(given, raw),
        tuple(given.get("methods", raw["methods"])),
        given.get("repeats", raw["repeats"]),
        {key: value for key, value in given.items() if key not in fields},
    )


def _cases(given: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each A; or each dimension; or each design, with each S3 if there are several; none, if no design is given."""
    designs, mixings = raw["designs"], tuple(given.get("mixings", raw["mixings"]))
    if "designs" in given:
        (A,) = mixings
        noises = given.get("S3", ["uniform"])
        named = {
            (name, S3): name if len(noises) == 1 else f"{name}, S3 {S3}" for name in given["designs"] for S3 in noises
        }
        return {case: {**designs[name], "S3": S3, "A": A} for (name, S3), case in named.items()}
    if "design" not in given:
        return {}
    design = designs[given["design"]]
    if "dimensions" in given:
        return {f"d={d}": {**design, "d": d, "A": "unif"} for d in given["dimensions"]}
    return {A: {**design, "A": A} for A in mixings}
