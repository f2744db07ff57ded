"""kill -9 at random moments: of a checkpointed pass, and of a process that saves models.

A child is forked (nothing is imported anew), works, and is killed after a random time, again and again, until one child gets
through. Nothing may be lost: once there is a checkpoint there is always one, it never goes back, and the result of the last
child has the bits of a pass that was never disturbed.
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
from richcomponents.moments.reduce import CheckpointContent
from richcomponents.storage import read
from torture.harness import fault, right

TIMEOUT = 300.0


def prepare(seed: int = 0, rows: int = 600_000) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    rc.ContrastiveRCA(views=2, n_blocks=10).fit(
        np.random.default_rng(0).normal(size=(5000, 4))
    )  # children begin at once

    def run(case: int) -> dict[str, Any]:
        rng = random.Random(f"{seed}/{case}")
        with tempfile.TemporaryDirectory() as folder:
            return _saves(rng, Path(folder)) if case % 4 == 3 else _passes(rng, Path(folder), rows)

    return run


def forked(work: Callable[[], None]) -> int:
    """The number of a child that does this work and ends."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _passes(rng: random.Random, folder: Path, rows: int) -> dict[str, Any]:
    """One checkpointed pass over a file, killed over and over."""
    table, kept, result = folder / "table.npy", folder / "pass.checkpoint", folder / "state.npz"
    np.save(table, np.random.default_rng(rng.randrange(2**32)).exponential(size=(rows, 6)))
    grouped = rng.random() < 0.2
    options: dict[str, Any] = {"n_blocks": rng.choice([3, 20]), "threads": 1}
    if grouped:
        options["groups"] = np.arange(rows) // 7

    def work() -> None:
        rc.Moments.of(table, 4, checkpoint=kept, checkpoint_every=0.0, **options).save(result)

    began = time.monotonic()
    child = forked(work)
    if os.waitpid(child, 0)[1] or not result.exists():
        return fault("an undisturbed pass failed")
    whole, long = rc.load(result), time.monotonic() - began
    result.unlink()
    kills = resumed = late = at = 0
    while True:
        child = forked(work)
        time.sleep(long * rng.random() ** 2)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                return fault(f"the pass could not go on after {kills} kills")
            break
        kills += 1
        if result.exists():
            break  # killed between saving the result and its end
        there = _reached(kept)
        if not there and at > rows - 2 * 2**16:
            late, at = late + 1, 0  # the pass was complete and its checkpoint gone, its result not saved yet
        if there < at:
            return fault(f"after kill {kills} the checkpoint went back from row {at} to {there}")
        resumed, at = resumed + (there > 0), there
        if kills > 500:
            return fault("the pass never ends")
    if rc.load(result) != whole:
        return fault(f"other bits after {kills} kills")
    left = [
        p.name for p in folder.iterdir() if "pass.checkpoint" in p.name
    ]  # a killed save may leave its temporary file
    if left and os.WIFEXITED(status):
        return fault(f"left behind: {left}")
    return right(
        notes=["kill -9 of a pass"] * kills
        + ["resumed from a checkpoint"] * resumed
        + ["killed after the pass, before its result was saved"] * late
    )


def _reached(path: Path) -> int:
    """How many rows the checkpoint on disk holds; every checkpoint must be whole."""
    if not path.exists():
        return 0
    return read(path, CheckpointContent, 2**30, "not a checkpoint").sums.reached


def _saves(rng: random.Random, folder: Path) -> dict[str, Any]:
    """A process that saves one of two models to the same place, killed: the file is always one of them, whole."""
    data = rc.datasets.make_contrastive(300, d=2, S2="skewed", random_state=rng.randrange(1000))
    models = [rc.ContrastiveRCA(views=2, n_blocks=10).fit(data.X + shift) for shift in (0.0, 1.0)]
    path = folder / "model.npz"
    models[0].save(path)
    means = [model._solution.mean.tolist() for model in models]

    def work() -> None:
        while True:
            for model in models:
                model.save(path)

    kills = 0
    for _ in range(25):
        child = forked(work)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        if rc.load(path)._solution.mean.tolist() not in means:
            return fault("a killed save left another model")
    return right(notes=["kill -9 of a save"] * kills)
