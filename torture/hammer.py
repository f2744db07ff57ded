"""Eight threads that fit at once get the bits that one thread gets alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from torture.files import fingerprint
from torture.harness import fault, right

TIMEOUT = 300.0
THREADS = 8


def _work(which: int, seed: int) -> str:
    data = make_contrastive(3000, d=3, S2="skewed", random_state=seed)
    rca = rc.ContrastiveRCA(views=3, n_blocks=10)
    if which == 0:
        model = rca.fit(data.X)
        model.components_["S1"].cumulant(4)
        return fingerprint(model) + model.summary()
    if which == 1:
        return fingerprint(rc.ComponentRegression(rca=rca).fit(data.X, data.y))
    if which == 2:
        return fingerprint(rc.ComponentPCA(rca=rca).fit(data.X))
    if which == 3:
        return fingerprint(rc.ComponentGaussianMixture(2, rca=rca, n_init=1).fit(data.X))
    if which == 4:
        return fingerprint(rc.ComponentLogisticRegression(rca=rca).fit(data.X, data.y > 0))
    if which == 5:
        return fingerprint(rc.ComponentIsing(rca=rca).fit(data.X * 3**0.5))
    if which == 6:
        return fingerprint(rc.Moments.of(np.tile(data.X, (20, 1)), 4))
    one = rc.Moments.of(data.X, 6)
    return fingerprint(one + one)


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")

    def run(case: int) -> dict[str, Any]:
        jobs = [((case + i) % 8 if case % 2 else case // 2 % 8, seed + 100 * case + i) for i in range(THREADS)]
        gate = Barrier(THREADS)

        def together(job: tuple[int, int]) -> str:
            gate.wait()
            return _work(*job)

        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(together, jobs))
        for job, bits in zip(jobs, found, strict=True):
            if _work(*job) != bits:
                return fault(f"job {job} has other bits among threads")
        return right(notes=["fits among threads"] * THREADS)

    return run
