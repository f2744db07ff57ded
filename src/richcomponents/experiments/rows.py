"""Settings x methods x seeds -> rows, appended to a CSV file as they finish.

A killed run continues where it stopped. The finished file depends on the settings only: not on the number of processes,
the order in which draws finished, or how often the run was killed.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from richcomponents.experiments.settings import Job
from richcomponents.outputs import write_text

__all__ = ["Measure", "Row", "read_rows", "run_jobs"]

HEADER = "panel,case,x,method,repeat,seed,value"


@dataclass(frozen=True)
class Row:
    """What one method made of one draw."""

    panel: str
    case: str
    x: float
    method: str
    repeat: int
    seed: int
    value: float

    @property
    def key(self) -> tuple[str, str, float, str, int]:
        return self.panel, self.case, self.x, self.method, self.repeat

    def line(self) -> str:
        """Of the CSV file; the value to the last bit."""
        cells = (self.panel, self.case, f"{self.x:.10g}", self.method, self.repeat, self.seed, repr(self.value))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        return text.getvalue()


Measure = Callable[[Job], list[Row]]


def read_rows(path: Path) -> list[Row]:
    """The whole rows of a file (its header is none). A line torn by a killed run is no row: its draw is simply done again."""
    if not path.exists():
        return []
    text = path.read_bytes().decode("utf-8", errors="replace")
    whole = io.StringIO(text[: text.rfind("\n") + 1], newline="")
    return [row for cells in csv.reader(whole) if (row := _parse(cells)) is not None]


def run_jobs(
    jobs: Sequence[Job],
    measure: Measure,
    path: Path,
    *,
    processes: int = 1,
    advance: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Rows of all jobs, sorted, and those the file had already from other jobs.

    measure : called in other processes if processes > 1, so it must be picklable. advance : called with the numbers of
    finished and of all jobs.
    """
    known = {row.key: row for row in read_rows(path)}
    missing = [job for job in jobs if not all(key in known for key in job.row_keys())]
    _write(path, known.values())  # without torn lines
    done = len(jobs) - len(missing)
    with path.open("a", encoding="utf-8") as file:
        for rows in _results(missing, measure, min(processes, max(len(missing), 1))):
            file.write("".join(row.line() for row in rows))
            file.flush()
            known.update((row.key, row) for row in rows)
            done += 1
            if advance is not None:
                advance(done, len(jobs))
    ordered = sorted(known.values(), key=lambda row: row.key)
    _write(path, ordered)
    return ordered


def _parse(cells: list[str]) -> Row | None:
    try:
        panel, case, x, method, repeat, seed, value = cells
        return Row(panel, case, float(x), method, int(repeat), int(seed), float(value))
    except ValueError:
        return None


def _write(path: Path, rows: Iterable[Row]) -> None:
    """All at once: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, HEADER + "\n" + "".join(row.line() for row in rows))


# ---- the workers


def _results(jobs: Sequence[Job], measure: Measure, processes: int) -> Iterator[list[Row]]:
    """Rows of each job, in the order in which they finish."""
    if processes == 1:
        with threadpool_limits(1):  # sums of BLAS depend on the number of its threads
            for job in jobs:
                yield _named(job, partial(measure, job))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_prepare, initargs=(measure, os.getpid()))
    try:
        waiting = {pool.submit(_work, job): job for job in jobs}
        for finished in as_completed(waiting):
            yield _named(waiting[finished], finished.result)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _named(job: Job, result: Callable[[], list[Row]]) -> list[Row]:
    """The result, or its error with the draw in a note."""
    try:
        return result()
    except Exception as problem:
        problem.add_note(f"in {job}")
        raise


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
    return _measure(job)
