"""kill -9 at random moments of a process that saves models.

A child is forked (nothing is imported anew), works, and is killed after a random time, again and again: what is on disk is
always one of the models, whole.
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

TIMEOUT = 300.0


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    rc.ContrastiveRCA(views=2, n_blocks=10).fit(
        np.random.default_rng(0).normal(size=(5000, 4))
    )  # children begin at once

    def run(case: int) -> dict[str, Any]:
        rng = random.Random(f"{seed}/{case}")
        with tempfile.TemporaryDirectory() as folder:
            return _saves(rng, Path(folder))

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


def _saves(rng: random.Random, folder: Path) -> dict[str, Any]:
    """A process that saves one of two models to the same place, killed: the file is always one of them, whole."""
    data = rc.datasets.make_contrastive(300, d=2, S2="skewed", random_state=rng.randrange(1000))
    models = [rc.ContrastiveRCA(views=2, n_blocks=10).fit(data.X + shift) for shift in (0.0, 1.0)]
    path = folder / "model.npz"
    models[0].save(path)
    means = [model.solution_.mean.tolist() for model in models]

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
        if rc.load(path).solution_.mean.tolist() not in means:
            return fault("a killed save left another model")
    return right(notes=["kill -9 of a save"] * kills)
