"""python -m torture [--quick] [--only NAME ...] [--jobs N] [--seed S]: prints what was tried and what became of it.

Every case must end in a right result or a clear error: never a crash, a hang, a silently wrong number, a lost file,
code run from a file, or memory beyond the cap.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from torture.harness import Tally, run_workers

# name -> (module, cases in full, cases with --quick, options in full, options with --quick, BLAS threads left alone)
TESTS: dict[str, tuple[str, int, int, dict[str, Any], dict[str, Any], bool]] = {
    "mutated files": ("files", 100_000, 3000, {}, {}, False),
    "aliased outputs": ("paths", 2000, 60, {}, {}, False),
    "mutated tables of others": ("foreign", 100_000, 2000, {}, {}, False),
    "awkward tables": ("inputs", 6000, 300, {}, {}, False),
    "doors": ("doors", 1040, 104, {}, {}, False),
    "state after failure": ("state", 600, 40, {}, {}, False),
    "kill -9": ("kills", 12, 2, {}, {}, False),
    "threads": ("hammer", 24, 4, {}, {}, True),
    "memory cap": ("memory", 160, 24, {}, {}, False),
    "limits by shape": ("shapes", 44, 22, {}, {}, False),
    "ten million rows": ("large", 1, 1, {}, {"n": 300_000}, False),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="minutes instead of half an hour")
    parser.add_argument("--only", nargs="*", choices=list(TESTS), default=list(TESTS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the counts here")
    chosen = parser.parse_args()
    console = Console(width=110)
    tallies = []
    for name in chosen.only:
        module, full, quick, options, quick_options, free_blas = TESTS[name]
        options = dict(quick_options if chosen.quick else options)
        if module != "large":
            options["seed"] = chosen.seed
        jobs = 1 if module in ("hammer", "large") else chosen.jobs
        environment = {f"{which}_NUM_THREADS": "" for which in ("OPENBLAS", "OMP")} if free_blas else None
        console.print(f"{name} ...")
        tally = Tally(name)
        run_workers(tally, module, quick if chosen.quick else full, jobs=jobs, options=options, environment=environment)
        tallies.append(tally)
    _show(console, tallies)
    if chosen.json:
        chosen.json.write_text(json.dumps([vars(tally) for tally in tallies], indent=1))
    return int(any(tally.faults for tally in tallies))


def _show(console: Console, tallies: list[Tally]) -> None:
    table = Table(title="Torture: every case ends in a right result or a clear error")
    for column in ("test", "tried", "right", "refused clearly", "faults", "seconds"):
        table.add_column(column, justify="left" if column == "test" else "right")
    for tally in tallies:
        table.add_row(
            tally.name,
            f"{tally.cases:,}",
            f"{tally.right:,}",
            f"{tally.n_refused:,}",
            str(len(tally.faults)),
            f"{tally.seconds:.0f}",
        )
    console.print(table)
    for tally in tallies:
        kinds = ", ".join(f"{name} {count:,}" for name, count in tally.refused.most_common())
        notes = ", ".join(f"{name} {count:,}" for name, count in tally.notes.most_common())
        console.print(f"{tally.name}: {'; '.join(filter(None, (kinds, notes)))}")
        for line in tally.faults[:20]:
            console.print(f"  FAULT {line}", markup=False)
    if not any(tally.faults for tally in tallies):
        console.print("Nothing lost.")


sys.exit(main())
