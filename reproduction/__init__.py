"""The paper's experiments, measured again with the library as anybody would use it: see `python -m reproduction --help`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))  # rows.py, which runs the draws, is theirs too
