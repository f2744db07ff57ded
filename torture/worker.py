"""One worker: python -m torture.worker JOB JOURNAL."""

from __future__ import annotations

import faulthandler
import importlib
import json
import sys
from pathlib import Path

from torture.harness import work


def main() -> None:
    faulthandler.enable()
    job, journal = json.loads(sys.argv[1]), Path(sys.argv[2])
    options = job["options"]
    test = importlib.import_module(f"torture.{job['test']}")
    work(test.prepare(**options), range(*job["cases"]), journal, timeout=test.TIMEOUT)


main()
