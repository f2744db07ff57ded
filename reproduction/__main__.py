"""The paper's experiments: every panel of its Figure 1 and the biomarkers, and its claims next to what is measured.

The folder gets rows.csv, figures/ and index.html; a killed run continues in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction.measure import measure_panels
from reproduction.page import present
from reproduction.settings import SETTINGS
from richcomponents import DataError


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("paper"), help="the folder (default: paper)")
    parser.add_argument(
        "--panel", action="append", default=[], help="a..k, s3, kernel, degree or biomarkers; may be repeated"
    )
    parser.add_argument("--full", action="store_true", help="all repeats, not only the first of them (minutes)")
    parser.add_argument("--data", type=Path, help="biomarkers: CSV of markers, rows are people (.gz too)")
    parser.add_argument("--pheno", type=Path, help="biomarkers: CSV that says who is ill")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="a changed copy of settings.toml")
    parser.add_argument("--processes", type=int, help="by default one per core")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = command_line().parse_args(arguments)
    try:
        settings, rows = measure_panels(
            given.out,
            given.panel,
            full=given.full,
            data=given.data,
            pheno=given.pheno,
            settings_file=given.settings,
            processes=given.processes,
        )
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"the page is {present(settings, rows, given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
