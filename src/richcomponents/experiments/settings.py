"""The settings of the experiments: settings.toml, read and checked."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from richcomponents.errors import DataError
from richcomponents.experiments.rows import Job

__all__ = ["Panel", "Settings", "load_settings"]


@dataclass(frozen=True)
class Panel:
    """One panel of the figure.

    x : "n" (sample size), "strength" (sd(S2) / sd(S1)), "step" (of a gradient descent) or "scale" (of lab biases);
    values : where it is measured; cases : what the rows' column `case` may hold; repeats : {"quick", "full"} draws.
    """

    name: str
    title: str
    x: str
    values: tuple[float, ...]
    cases: tuple[str, ...]
    methods: tuple[str, ...]
    repeats: Mapping[str, int]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """settings.toml; `text` is the file as it was read."""

    seed: int
    methods: Mapping[str, str]
    mixings: Mapping[str, str]
    designs: Mapping[str, Mapping[str, Any]]
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


def load_settings(path: Path | None = None) -> Settings:
    """The packaged settings.toml, or a changed copy of it."""
    if path is None:
        text = resources.files("richcomponents.experiments").joinpath("settings.toml").read_text(encoding="utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    try:
        return _settings(tomllib.loads(text), text)
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as problem:
        where = "the packaged settings" if path is None else str(path)
        raise DataError(
            f"{where} cannot be used: {problem!r}. Begin with a copy of the packaged settings.toml"
        ) from None


def _settings(raw: Mapping[str, Any], text: str) -> Settings:
    panels = {name: _panel(name, raw["panels"][name], raw) for name in raw["panels"]}
    return Settings(int(raw["seed"]), raw["methods"], raw["mixings"], raw["designs"], panels, text)


def _panel(name: str, given: Mapping[str, Any], raw: Mapping[str, Any]) -> Panel:
    fields = ("title", "x", "values", "methods", "mixings", "repeats")
    cases = tuple(given.get("mixings", raw["mixings"]))
    if "dimensions" in given:
        cases = tuple(f"d={d}" for d in given["dimensions"])
    return Panel(
        name,
        given["title"],
        given["x"],
        tuple(int(x) if x == int(x) else x for x in given["values"]),
        cases,
        tuple(given.get("methods", raw["methods"])),
        given.get("repeats", raw["repeats"]),
        {key: value for key, value in given.items() if key not in fields},
    )
