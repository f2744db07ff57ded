"""Settings -> jobs -> rows, appended to a CSV file as they finish.

A job is a dict of settings, {"label": "pca", "n": 1000, "seed": 7}; a tuple among them asks for a row for each of its values. A
row is these settings with one value each, and what was measured. Cells that are not plain text are JSON, so that values come
back to the last bit; the cell of what a row does not have is empty.

A killed run continues where it stopped. The finished file depends on the settings only: not on the number of processes,
the order in which jobs finished, or how often the run was killed. A job with any other setting is another job: its rows stand
beside the old ones, and :func:`by_case` tells them apart.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from richcomponents import DataError

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
    new = path.with_name(f".{path.name}.{os.getpid()}")
    lines = (_line(row, columns) for row in (dict(zip(columns, columns, strict=True)), *rows))
    new.write_bytes("".join(lines).encode())
    os.replace(new, path)
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
