"""Settings -> jobs -> rows, appended to a CSV file as they finish.

A job is a dict of settings, {"label": "pca", "n": 1000, "seed": 7}; a tuple among them asks for a row for each of its values. A
row is these settings with one value each, and what was measured. Cells that are not plain text are JSON, so that values come
back to the last bit; the cell of what a row does not have is empty.

A killed run continues where it stopped. The finished file depends on the settings only: not on the number of processes,
the order in which jobs finished, or how often the run was killed. A job with any other setting is another job: its rows stand
beside the old ones, and :func:`by_case` tells them apart.

SETTINGS. The settings of the experiments: settings.toml, read and checked.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
import os
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from richcomponents.errors import DataError
from richcomponents.outputs import write_text

Job = Mapping[str, Any]
Row = dict[str, Any]
Measure = Callable[[Job], list[Row]]


def settings_of(job: Job) -> list[Row]:
    """The settings of each row that a job must give."""
    values = (value if isinstance(value, tuple) else (value,) for value in job.values())
    return [dict(zip(job, chosen, strict=True)) for chosen in product(*values)]


def run_jobs(
    jobs: Sequence[Job],
    measure: Measure,
    path: Path,
    *,
    processes: int = 1,
    advance: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Rows of all jobs, sorted by their settings, and those the file had already from other jobs.

    measure : called in other processes if processes > 1, so it must be picklable. advance : called with the numbers of
    finished and of all jobs, first before anything is measured.
    """
    names = list(dict.fromkeys(name for job in jobs for name in job))

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in names)

    rows = read_rows(path, names)
    there = {key(row) for row in rows}
    missing = [job for job in jobs if not {key(row) for row in settings_of(job)} <= there]
    again = {key(row) for job in missing for row in settings_of(job)}
    rows = [row for row in rows if key(row) not in again]
    columns = _write(path, names, rows)  # without torn lines, and without what is left of their jobs
    had = len(jobs) - len(missing)
    if advance is not None:
        advance(had, len(jobs))
    for done, (job, new) in enumerate(measured(missing, measure, processes), had + 1):
        if {key(row) for row in new} != {key(row) for row in settings_of(job)}:
            raise ValueError(f"the rows measured for {job} are not those of its settings")
        rows += new
        if {name for row in new for name in row} <= set(columns):
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(_line(row, columns) for row in new))
        else:
            columns = _write(path, names, rows)
        if advance is not None:
            advance(done, len(jobs))
    rows.sort(key=lambda row: [(v is not None, isinstance(v, str), 0 if v is None else v) for v in key(row)])
    _write(path, names, rows)
    return rows


def by_case(rows: Sequence[Row], cases: Iterable[Job]) -> Iterator[tuple[Job, list[Row]]]:
    """Each case (settings of a job without its seed) with its rows, if there are any; rows of other settings are left out."""
    cases = list(cases)
    names = {name for case in cases for name in case}
    for case in cases:
        held = [row for row in rows if all(row.get(name) == case.get(name) for name in names)]
        if held:
            yield case, held


# ---- the file


def read_rows(path: Path, names: Iterable[str] = ()) -> list[Row]:
    """The whole rows of a file, which must have columns of these names. A line torn by a killed run is no row: its job is
    simply done again."""
    if not path.exists():
        return []
    text = path.read_bytes().decode("utf-8", errors="replace")
    header, *lines = [*csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))] or [list(names)]
    if not set(names) <= set(header):
        raise DataError(f"{path} holds rows of other settings: choose another place, or delete it")
    return [
        {name: _value(cell) for name, cell in zip(header, cells, strict=True) if cell}
        for cells in lines
        if len(cells) == len(header)
    ]


def _write(path: Path, names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """All at once: a kill leaves the old file or the new one. Returns the columns: the settings first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys([*names, *(name for row in rows for name in row)]))
    write_text(path, "".join(_line(row, columns) for row in (dict(zip(columns, columns, strict=True)), *rows)))
    return columns


def _line(row: Row, columns: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_cell(row[name]) if name in row else "" for name in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    """JSON, but text as it is where it comes back so; "true" is the name of a method, and a truth is 1."""
    plain = isinstance(value, str) and value and _value(value) == value
    return value if plain else json.dumps(int(value) if isinstance(value, bool) else value)


def _value(cell: str) -> Any:
    try:
        return cell if cell in ("true", "false") else json.loads(cell)
    except ValueError:
        return cell


# ---- the workers


def measured(jobs: Sequence[Job], measure: Measure, processes: int = 1) -> Iterator[tuple[Job, list[Row]]]:
    """Each job and its rows, in the order in which they finish; BLAS has one thread, and warnings (of weak identification: what
    most experiments are about) are not shown."""
    processes = min(processes, len(jobs))
    if processes <= 1:
        with threadpool_limits(1):  # sums of BLAS depend on the number of its threads
            for job in jobs:
                yield job, _named(job, partial(_quiet, measure, job))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_prepare, initargs=(measure, os.getpid()))
    try:
        waiting = {pool.submit(_work, job): job for job in jobs}
        for finished in as_completed(waiting):
            yield waiting[finished], _named(waiting[finished], finished.result)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _named(job: Job, result: Callable[[], list[Row]]) -> list[Row]:
    """The result, or its error with the job in a note."""
    try:
        return result()
    except Exception as problem:
        problem.add_note(f"in {job}")
        raise


def _quiet(measure: Measure, job: Job) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure(job)


_measure: Measure | None = None


def _prepare(measure: Measure, parent: int) -> None:
    global _measure
    _measure = measure
    threadpool_limits(1)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A worker whose parent was killed would wait for work forever."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(job: Job) -> list[Row]:
    assert _measure is not None
    return _quiet(_measure, job)


@dataclass(frozen=True)
class Panel:
    """One panel of the figure.

    x : "n" (sample size), "strength" (sd(S2) / sd(S1)), "step" (of a gradient descent) or "scale" (of lab biases);
    values : where it is measured; designs : what the rows' column `case` may hold, and the options of
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
    return Settings(int(raw["seed"]), raw["methods"], raw["mixings"], panels, text)


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
