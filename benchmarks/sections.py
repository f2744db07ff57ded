"""The command line of a benchmark in sections: settings -> jobs -> rows in a file -> tables.

    python benchmarks/NAME.py run [SECTION ...] [--draws 20] [--seed 90000] [--processes 2] [--out DIR]
    python benchmarks/NAME.py show [--out DIR]

`run` measures what is missing and prints the tables, `show` prints the tables. Rows are appended as they finish, and a killed
run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rows import Job, Row, read_rows, run_jobs

RESULTS = Path(__file__).parent / "results"
Options = argparse.Namespace
Measured = Callable[[str], list[Row]]  # section -> what was measured


def drawn(cases: Iterable[Job], draws: int, seed: int) -> list[Job]:
    """A job for each case and seed, draw by draw, so that a run cut short has some of everything."""
    held = list(cases)
    return [{**case, "seed": seed + draw} for draw in range(draws) for case in held]


def medians(rows: Sequence[Row], names: Iterable[str]) -> dict[str, float]:
    """name -> median over rows."""
    ordered = {name: sorted(row[name] for row in rows) for name in names}
    half, other = len(rows) // 2, (len(rows) - 1) // 2
    return {name: float(values[half] + values[other]) / 2 for name, values in ordered.items()}


def tell(result: Mapping[str, object], file: Path | None = None) -> None:
    """Figures of one measurement, a line each; as JSON in a file too."""
    for name, value in result.items():
        print(f"{name:>40}: {value:,.3f}" if isinstance(value, float) else f"{name:>40}: {value}")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n")


def main(
    about: str | None,
    sections: Sequence[str],
    jobs: Callable[[str, Options], Iterable[Job]],
    measure: Callable[[Job], Row],
    show: Callable[[Measured, Options], None],
    *,
    draws: int | None,
    seed: int,
    out: Path,
    file: str = "{}.csv",
    place: str = "--out",
    processes: int = 1,
    anew: Container[str] = (),
    sizes: Sequence[int] = (),
    everything: bool = False,
) -> None:
    """Run and show, or show. jobs : the draws of a section; measure : job -> what the row holds beside the job's settings.

    file : the name of a section's file in the folder `out`, "" if `out` (named `place` on the command line) is the file of all;
    anew : sections that are measured again by every run; sizes : the default of --sizes; everything : show has --all.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(sections)}; all by default")
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--processes", type=int, default=processes)
    parser.add_argument(place, dest="out", type=Path, default=out)
    if sizes:
        parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    if everything:
        parser.add_argument("--all", action="store_true", help="show every configuration")
    options = parser.parse_args()
    unknown = set(options.sections) - set(sections)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}: the sections are {', '.join(sections)}")

    def path(section: str) -> Path:
        return Path(options.out / file.format(section))

    def rows(section: str) -> list[Row]:
        return [row for row in read_rows(path(section)) if row["section"] == section]

    for section in () if options.what == "show" else options.sections or sections:
        if section in anew:
            path(section).unlink(missing_ok=True)
        todo = [{"section": section, **job} for job in jobs(section, options)]
        run_jobs(
            todo,
            partial(_row, measure),
            path(section),
            processes=options.processes,
            advance=partial(_say, section, set()),
        )
    show(rows, options)


def _row(measure: Callable[[Job], Row], job: Job) -> list[Row]:
    return [{**job, **measure(job)}]


def _say(section: str, said: set[Any], done: int, total: int) -> None:
    """Once, before anything is measured."""
    if not said:
        print(f"{section}: {total - done} rows to do, {done} done", flush=True)
        said.add(section)
