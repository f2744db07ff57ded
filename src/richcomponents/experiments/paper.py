"""`rca paper`: from settings to rows, figures and the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import richcomponents
from richcomponents.errors import DataError
from richcomponents.experiments import biomarkers, simulations
from richcomponents.experiments.claims import check_claims
from richcomponents.experiments.page import write_page
from richcomponents.experiments.panels import curves_of, joined_figure, panel_figure, save_figure
from richcomponents.experiments.rows import Job, Row, run_jobs
from richcomponents.experiments.settings import Settings, load_settings
from richcomponents.outputs import check_outputs, write_text
from richcomponents.text import plain

__all__ = ["measure_panels", "run_paper"]


@dataclass(frozen=True)
class _Work:
    """Rows of a job of any panel; picklable, so that workers can have it."""

    settings: Settings
    markers: biomarkers.Markers | None

    def __call__(self, job: Job) -> list[Row]:
        if job["panel"] == "biomarkers":
            assert self.markers is not None
            return biomarkers.measure(self.settings, self.markers, job)
        return simulations.measure(self.settings, job)


def run_paper(out: Path, panels: Sequence[str] = ("all",), *, console: Console | None = None, **options: Any) -> Path:
    """Measure what is missing in `out`, draw everything that is there, and return the page.

    options : of :func:`measure_panels`. `out` gets rows.csv, the figures, index.html and a copy of the settings.
    """
    console = Console() if console is None else console
    settings, rows = measure_panels(out, panels, console=console, **options)
    console.print("drawing the figures")
    return _present(settings, rows, out, console)


def measure_panels(
    out: Path,
    panels: Sequence[str] = ("all",),
    *,
    full: bool = False,
    data: Path | None = None,
    pheno: Path | None = None,
    settings_file: Path | None = None,
    processes: int | None = None,
    console: Console | None = None,
) -> tuple[Settings, list[Row]]:
    """The settings, and all rows in `out` once those of these panels are there.

    panels : letters of the paper's figure, "biomarkers", or "all". data, pheno : files for the biomarkers; the embedded table
    without them.
    """
    settings = load_settings(settings_file)
    console = Console() if console is None else console
    wanted = _names(settings, panels)
    markers, cases = None, {}
    if data is not None and "biomarkers" not in wanted:
        raise DataError("--data is for the biomarkers: add --panel biomarkers (or all)")
    out.mkdir(parents=True, exist_ok=True)
    check_outputs([out / name for name in ("rows.csv", "settings.toml", "index.html")], [data, pheno, settings_file])
    if "biomarkers" in wanted:
        markers = _markers(settings, data, pheno)
        cases = {"biomarkers": [markers.label]}
    _keep_settings(settings, out)
    jobs = settings.jobs(wanted, "full" if full else "quick", cases)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings, _run(jobs, _Work(settings, markers), out / "rows.csv", processes or cores, console)


def _names(settings: Settings, panels: Sequence[str]) -> list[str]:
    if "all" in panels:
        return list(settings.panels)
    unknown = [name for name in panels if name not in settings.panels]
    if unknown:
        raise DataError(f"there is no panel {unknown[0]!r}: choose from {', '.join(settings.panels)} or all")
    return [name for name in settings.panels if name in panels]


def _keep_settings(settings: Settings, out: Path) -> None:
    """Rows of other settings, or of another version, must not be mixed with these."""
    text = f"# richcomponents {richcomponents.__version__}\n{settings.text}"
    kept = out / "settings.toml"
    if kept.exists() and kept.read_text(encoding="utf-8") != text and (out / "rows.csv").exists():
        raise DataError(f"{out} holds rows of other settings or of another version: choose another --out, or delete it")
    write_text(kept, text)


def _markers(settings: Settings, data: Path | None, pheno: Path | None) -> biomarkers.Markers:
    if data is None and pheno is None:
        return biomarkers.embedded_markers()
    if data is None or pheno is None:
        raise DataError("--data (markers) and --pheno (who is ill) go together")
    return biomarkers.read_markers(data, pheno, outcome=settings.panels["biomarkers"].options["outcome"])


def _run(jobs: Sequence[Job], work: _Work, path: Path, processes: int, console: Console) -> list[Row]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=600) as progress:
        task = progress.add_task(f"draws, {processes} at a time", total=len(jobs))

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return run_jobs(jobs, work, path, processes=processes, advance=advance)


def _present(settings: Settings, rows: Sequence[Row], out: Path, console: Console) -> Path:
    """Figures, warnings and the page, from rows alone."""
    curves = curves_of(rows)
    figures = out / "figures"
    measured = [name for name in settings.panels if any(key[0] == name for key in curves)]
    for name in measured:
        save_figure(panel_figure(settings, curves, name), figures, f"panel-{name}")
    if any(len(name) == 1 for name in measured):
        save_figure(joined_figure(settings, curves), figures, "figure-1")
    notes = []
    for case in sorted({row["case"] for row in rows if row["panel"] == "biomarkers"}):
        ranks = np.array([row["value"] for row in rows if (row["case"], row["method"]) == (case, "rank")])
        text = biomarkers.shared_beyond_labs(ranks, int(settings.panels["biomarkers"].options["n_labs"]))
        if text is not None:
            notes.append(f"{case}: {text}.")
            console.print(plain(f"warning: {notes[-1]}"), style="yellow", highlight=False, markup=False)
    claims = check_claims(settings, curves)
    for claim in (claim for claim in claims if claim.evidence):
        console.print(f"{claim.verdict} ({claim.where}): {claim.quote}", highlight=False, markup=False)
    return write_page(out / "index.html", settings, rows, claims, figures, notes)
