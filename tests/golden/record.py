"""python -m tests.golden.record: keep what the library answers now. Only after a change that is meant to change numbers."""

from pathlib import Path

import numpy as np

from tests.golden.cases import CASES, run

PATH = Path(__file__).with_name("golden.npz")

if __name__ == "__main__":
    kept = {f"{name}/{key}": value for name in CASES for key, value in run(name).items()}
    np.savez_compressed(PATH, **kept)  # type: ignore[arg-type]
    print(f"{len(CASES)} cases, {len(kept)} arrays, {PATH.stat().st_size / 1024:.0f} KiB")
