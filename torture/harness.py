"""Workers that may crash, hang or run out of memory, and a parent that counts what became of every case.

A worker is a process of its own with a cap on its address space. It writes the number of a case to its journal BEFORE the
case begins, and what became of it afterwards; a watchdog in C ends the process when a case takes too long. The parent
reads the journal, charges a death to the case that was open, and starts a new worker behind it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass
class Tally:
    """What became of the cases of one test."""

    name: str
    cases: int = 0
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def take(self, outcome: dict[str, Any]) -> None:
        self.cases += 1
        for note in outcome.get("notes", ()):
            self.notes[note] += 1
        if outcome["ended"] == "right":
            self.right += 1
        elif outcome["ended"] == "refused":
            self.refused[outcome["error"]] += 1
        else:
            self.faults.append(f"case {outcome['case']}: {outcome['error']}")

    @property
    def n_refused(self) -> int:
        return sum(self.refused.values())


def right(**more: Any) -> dict[str, Any]:
    return {"ended": "right", **more}


def refused(error: BaseException | str, **more: Any) -> dict[str, Any]:
    return {"ended": "refused", "error": error if isinstance(error, str) else type(error).__name__, **more}


def fault(error: str, **more: Any) -> dict[str, Any]:
    return {"ended": "fault", "error": error, **more}


def is_clear(error: BaseException) -> bool:
    """One of our errors, or a ValueError or TypeError with a message that our own code (or scikit-learn's checks) raised."""
    import numpy as np

    import richcomponents as rc

    if isinstance(error, (rc.DataError, rc.CapacityError, rc.StateFileError)):
        return bool(str(error))
    if isinstance(error, np.linalg.LinAlgError) or not isinstance(error, (ValueError, TypeError)) or not str(error):
        return False
    return _is_in(traceback.extract_tb(error.__traceback__)[-1].filename, "richcomponents", "sklearn")


def _is_in(filename: str, *packages: str) -> bool:
    """Whether a file belongs to one of these packages; a folder of the same name above it does not count."""
    folders = [Path(sys.modules[name].__file__ or "").resolve().parent for name in packages if name in sys.modules]
    return any(Path(filename).resolve().is_relative_to(folder) for folder in folders)


def judged(error: BaseException) -> dict[str, Any]:
    """Refused when the error is clear, else a fault with the place it came from."""
    if is_clear(error):
        return refused(error)
    trace = traceback.extract_tb(error.__traceback__)
    ours = next((f for f in reversed(trace) if _is_in(f.filename, "richcomponents")), trace[-1])
    place = f"{Path(ours.filename).name}:{ours.lineno}"
    return fault(f"{type(error).__name__}: {str(error)[:200]} ({place})")


# ---- inside a worker


def limit_memory(extra: int) -> None:
    """From here on the process may take `extra` bytes of address space more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def work(run: Callable[[int], dict[str, Any]], cases: Iterable[int], journal: Path, timeout: float) -> None:
    """Run cases one after the other, each under the watchdog, writing the journal as they go."""
    parent = os.getppid()
    with journal.open("a", buffering=1) as out:
        for case in cases:
            if os.getppid() != parent:  # nobody reads any more
                return
            out.write(f'{{"open": {case}}}\n')
            faulthandler.dump_traceback_later(timeout, exit=True)
            try:
                outcome = run(case)
            except Exception as error:
                outcome = judged(error)
            finally:
                faulthandler.cancel_dump_traceback_later()
            out.write(json.dumps({"case": case, **outcome}) + "\n")


# ---- the parent


def run_workers(
    tally: Tally,
    test: str,
    count: int,
    *,
    jobs: int,
    options: dict[str, Any],
    environment: dict[str, str] | None = None,
) -> Tally:
    """Cases 0..count-1 of a test, dealt out in turn to `jobs` workers at a time."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        lanes = [_Lane(Path(folder) / f"{lane}.jsonl", range(lane, count, jobs)) for lane in range(jobs)]
        for lane in lanes:
            lane.start(test, options, environment)
        while any(lane.alive for lane in lanes):
            for lane in lanes:
                lane.look(tally, test, options, environment)
            time.sleep(0.05)
    tally.seconds = time.monotonic() - began
    return tally


class _Lane:
    """One worker after another over the cases of one lane."""

    def __init__(self, journal: Path, cases: range) -> None:
        self.journal, self.cases, self.alive = journal, cases, bool(cases)
        self.process: subprocess.Popen[bytes] | None = None
        journal.touch()
        self.read, self.rest = journal.open(), ""
        self.errors = journal.with_suffix(".err")
        self.opened: int | None = None

    def start(self, test: str, options: dict[str, Any], environment: dict[str, str] | None) -> None:
        if not self.cases:
            self.alive = False
            return
        job = {"test": test, "cases": [self.cases.start, self.cases.stop, self.cases.step], "options": options}
        command = [sys.executable, "-m", "torture.worker", json.dumps(job), str(self.journal)]
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "NUMBA")}
        env = {**os.environ, **threads, **(environment or {})}
        with self.errors.open("wb") as err:
            self.process = subprocess.Popen(command, cwd=HERE.parent, env=env, stdout=err, stderr=err)

    def look(self, tally: Tally, test: str, options: dict[str, Any], environment: dict[str, str] | None) -> None:
        if self.process is None or not self.alive:
            return
        ended = self.process.poll()
        text = self.rest + self.read.read()
        *lines, self.rest = text.split("\n")
        for line in lines:
            row = json.loads(line)
            if "open" in row:
                self.opened = row["open"]
                self.cases = range(self.opened + self.cases.step, self.cases.stop, self.cases.step)
            else:
                tally.take(row)
                self.opened = None
        if ended is None:
            return
        if self.opened is not None:
            told = self.errors.read_text(errors="replace").strip()
            at = told.rfind("Timeout (")  # of the watchdog, above the place where the case hung
            what = f"crash (exit {ended}): {told[-600:]}" if at < 0 else f"hang: {told[at : at + 600]}"
            tally.take(fault(what, case=self.opened))
            self.opened = None
        elif ended != 0:
            tally.faults.append(f"a worker ended with {ended}: {self.errors.read_text(errors='replace')[-600:]}")
            self.alive = False
            return
        self.alive = bool(self.cases)
        if self.alive:
            self.start(test, options, environment)
