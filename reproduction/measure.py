"""Settings -> rows: the draws that are missing are measured, and appended to rows.csv as they finish."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import richcomponents
from reproduction import biomarkers, simulations
from reproduction.settings import SETTINGS, Settings, load_settings
from richcomponents import DataError
from rows import Job, Row, run_jobs


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


def measure_panels(
    out: Path,
    panels: Sequence[str] = (),
    *,
    full: bool = False,
    data: Path | None = None,
    pheno: Path | None = None,
    settings_file: Path = SETTINGS,
    processes: int | None = None,
) -> tuple[Settings, list[Row]]:
    """The settings, and all rows in the folder `out` once those of these panels (by default all) are there.

    data, pheno : files for the biomarkers; the embedded table without them.
    """
    settings = load_settings(settings_file)
    unknown = [name for name in panels if name not in settings.panels]
    if unknown:
        raise DataError(f"there is no panel {unknown[0]!r}: choose from {', '.join(settings.panels)}")
    wanted = [name for name in settings.panels if name in panels or not panels]
    markers = _markers(settings, data, pheno) if "biomarkers" in wanted else None
    if markers is None and (data or pheno):
        raise DataError("--data is for the biomarkers: add --panel biomarkers")
    for given in (data, pheno, settings_file):
        if given is not None and given.resolve().parent == out.resolve():
            raise DataError(f"{given} lies in {out}, which is written to: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    _keep_settings(settings, out)
    jobs = settings.jobs(wanted, "full" if full else "quick", {"biomarkers": [markers.label]} if markers else {})
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = _Work(settings, markers)
    return settings, run_jobs(jobs, work, out / "rows.csv", processes=processes or cores, advance=_say)


def _markers(settings: Settings, data: Path | None, pheno: Path | None) -> biomarkers.Markers:
    if data is None and pheno is None:
        return biomarkers.embedded_markers()
    if data is None or pheno is None:
        raise DataError("--data (markers) and --pheno (who is ill) go together")
    return biomarkers.read_markers(data, pheno, outcome=settings.panels["biomarkers"].options["outcome"])


def _keep_settings(settings: Settings, out: Path) -> None:
    """Rows of other settings, or of another version, must not be mixed with these."""
    text = f"# richcomponents {richcomponents.__version__}\n{settings.text}"
    kept = out / "settings.toml"
    if kept.exists() and kept.read_text(encoding="utf-8") != text and (out / "rows.csv").exists():
        raise DataError(f"{out} holds rows of other settings or of another version: choose another --out, or delete it")
    kept.write_text(text, encoding="utf-8")


def _say(done: int, total: int) -> None:
    """A line for every twentieth of the work."""
    if done == total or done * 20 // total != (done - 1) * 20 // total:
        print(f"{done} of {total} draws", file=sys.stderr, flush=True)
