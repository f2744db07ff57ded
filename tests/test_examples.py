"""Every example and every tutorial of the site runs, by itself, as a reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import richcomponents

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "docs" / "tutorials").glob("*.py")])
SMALLER = {"t4_ten_million_rows": ("200_000, 50_000", "20_000, 5_000")}  # the site is built with all of them


def test_the_pipeline_is_covered():
    assert {"views", "cumulants", "contrastive", "learners", "poisson", "stream", "report", "effects"} <= {
        e.stem for e in EXAMPLES
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path):
    code, folder = example.read_text(encoding="utf-8"), tmp_path / "here"
    before, after = SMALLER.get(example.stem, ("", ""))
    assert before in code
    (tmp_path / example.name).write_text(code.replace(before, after) if before else code, encoding="utf-8")
    folder.mkdir()
    source = str(Path(richcomponents.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "error::FutureWarning", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / example.name)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(folder.iterdir()) == []  # nothing is left in the reader's folder
