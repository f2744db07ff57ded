"""Two processes, one checkpoint: each ends in the right bits or is told that the other one has it; nothing is lost or mixed.

The second one begins at a random moment of the first; sometimes one of them is killed. Afterwards one more process must come to
the right bits, and leave nothing behind.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from torture.harness import fault, right
from torture.kills import forked

TIMEOUT = 120.0
_TOLD = 7  # exit code of a process that was refused


def prepare(seed: int = 0, rows: int = 200_000) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    rc.Moments.of(np.zeros((3000, 2)), 4)  # children begin at once

    def run(case: int) -> dict[str, Any]:
        rng = random.Random(f"{seed}/{case}")
        with tempfile.TemporaryDirectory() as folder:
            return _together(rng, Path(folder), rows)

    return run


def _together(rng: random.Random, folder: Path, rows: int) -> dict[str, Any]:
    table, kept = folder / "table.npy", folder / "pass.checkpoint"
    np.save(table, np.random.default_rng(rng.randrange(2**32)).exponential(size=(rows, 4)))
    began = time.monotonic()
    whole = rc.Moments.of(table, 4, threads=1)
    long = time.monotonic() - began

    def work(result: Path) -> Callable[[], None]:
        def go() -> None:
            try:
                state = rc.Moments.of(table, 4, checkpoint=kept, checkpoint_every=0.0, threads=1)
            except rc.DataError as error:
                os._exit(_TOLD if "another pass is using the checkpoint" in str(error) else 1)
            state.save(result)

        return go

    results = [folder / f"{i}.npz" for i in range(3)]
    children = [forked(work(results[0]))]
    time.sleep(long * rng.random() * 1.2)
    children.append(forked(work(results[1])))
    killed = rng.choice([None, None, 0, 1])
    if killed is not None:
        time.sleep(long * rng.random())
        os.kill(children[killed], signal.SIGKILL)
    notes = []
    for i, child in enumerate(children):
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            notes.append("killed")
        elif os.WEXITSTATUS(status) == _TOLD:
            notes.append("told that the other one has it")
        elif os.WEXITSTATUS(status):
            return fault(f"process {i} failed with {os.WEXITSTATUS(status)}")
        elif rc.load(results[i]) != whole:
            return fault(f"process {i} found other bits")
        else:
            notes.append("came to the right bits")
    if killed is None and "came to the right bits" not in notes:
        return fault("neither process came to an end")
    last = forked(work(results[2]))
    if os.waitpid(last, 0)[1] or rc.load(results[2]) != whole:
        return fault("a third process could not go on, or found other bits")
    left = [path.name for path in folder.iterdir() if "pass.checkpoint" in path.name]
    return fault(f"left behind: {left}") if left else right(notes=notes)
