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


def test_the_pipeline_is_covered():
    assert {"views", "cumulants", "contrastive", "learners", "poisson", "stream", "report", "effects"} <= {
        e.stem for e in EXAMPLES
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path):
    source = str(Path(richcomponents.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "error::FutureWarning", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []  # nothing is left in the reader's folder
