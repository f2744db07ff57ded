"""kill -9 at random moments of a checkpointed pass: it must always resume, and always end in the same bits.

    python benchmarks/kill.py [--kills 50] [--rows 400000] [--columns 16] [--seed 0]

The pass writes its checkpoint after every block of rows, so that many of the moments lie inside a write.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from richcomponents.moments import Moments
from sections import tell


def run(table: Path, checkpoint: Path, out: Path) -> None:
    """What the child does."""
    state = Moments.from_source(table, order=4, checkpoint=checkpoint, checkpoint_every=0.0, threads=1)
    state.save(out, force=True)


def start(table: Path, checkpoint: Path, out: Path) -> int:
    """A child of this process, which has imported and compiled everything already."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run(table, checkpoint, out)
            status = 0
        finally:
            os._exit(status)
    return child


def kill_and_resume(kills: int, rows: int, columns: int, seed: int, place: Path) -> dict[str, float]:
    """Kill children until `kills` were killed; raises unless each run that ends has the bits of a run left alone."""
    rng = np.random.default_rng(seed)
    table, checkpoint, out = place / "table.npy", place / "checkpoint.npz", place / "out.npz"
    np.save(table, rng.exponential(size=(rows, columns)))
    Moments.of(np.load(table)[:5000], order=4, threads=1)
    began = time.perf_counter()
    run(table, checkpoint, out)  # in this process: nothing is killed
    alone = time.perf_counter() - began
    reference = Moments.load(out)
    assert reference == Moments.of(np.load(table), order=4)
    killed = finished = with_checkpoint = inside_write = 0
    while killed < kills or checkpoint.exists():
        out.unlink(missing_ok=True)
        child = start(table, checkpoint, out)
        deadline = time.monotonic() + (rng.uniform(0, alone) if killed < kills else 3600)
        done, status = 0, 0
        while not done and time.monotonic() < deadline:
            time.sleep(0.001)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
            with_checkpoint += checkpoint.exists()
            inside_write += any(path.name.startswith(".checkpoint.npz.") for path in place.iterdir())
            continue
        if status != 0:
            raise RuntimeError(f"a resumed run failed with status {status} after {killed} kills")
        if Moments.load(out) != reference:
            raise RuntimeError(f"other bits after {killed} kills")
        finished += 1
    return {
        "kills": killed,
        "with a checkpoint to resume from": with_checkpoint,
        "inside a write": inside_write,
        "runs that ended, all in the same bits": finished,
        "seconds of a run left alone": alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 at random moments of a checkpointed pass")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        result = kill_and_resume(options.kills, options.rows, options.columns, options.seed, Path(place))
    tell(result)


if __name__ == "__main__":
    main()
