"""A hard cap on memory (as by ulimit -v): what does not fit is refused before it is tried, or fails as MemoryError."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from torture.harness import fault, limit_memory, refused, right

TIMEOUT = 120.0
CAP = 400 * 2**20


def _states(rng: np.random.Generator) -> Any:
    columns, order = int(rng.choice([3, 10, 40, 120, 400])), int(rng.choice([2, 4, 6]))
    limit = rng.choice([None, 1e15])  # with the library's own limit, and without
    return rc.Moments.of(rng.normal(size=(300, columns)), order, memory_limit=limit).n == 300


def _fits(rng: np.random.Generator) -> Any:
    d = int(rng.choice([2, 5, 20, 60, 200]))
    n = int(rng.choice([100, 2000, 20_000]))
    data = make_contrastive(n, d=d, S2="skewed", random_state=int(rng.integers(100)))
    model = rc.ContrastiveRCA(views=d, n_blocks=10, order=int(rng.choice([4, 4, 6]))).fit(data.X)
    return np.isfinite(model.A_).all() and np.isfinite(model.components_["S1"].cumulant(3)).all()


def _files(rng: np.random.Generator) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        state = rc.Moments.of(rng.normal(size=(200, int(rng.choice([5, 20, 30])))), 4)
        state.save(path)
        return rc.load(path, max_bytes=int(rng.choice([2**20, 2**34]))) == state


def _projections(rng: np.random.Generator) -> Any:
    d = int(rng.choice([3, 30, 120]))
    component = rc.Component.of_samples(rng.normal(size=(500, d)), order=int(rng.choice([4, 6])))
    return np.isfinite(component.cumulant(int(rng.choice([3, 4, 6])))).all()


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    rc.ContrastiveRCA(views=2).fit(np.random.default_rng(0).normal(size=(100, 4)))  # compiled before the cap
    limit_memory(CAP)

    def run(case: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, case])
        work = (_states, _fits, _files, _projections)[case % 4]
        try:
            return right() if work(rng) else fault(f"{work.__name__}: wrong")
        except (MemoryError, rc.StateFileError) as error:
            return refused(error) if str(error) else refused("MemoryError")

    return run
