"""How fast the moment kernel is, as ratios from one run.

Unique-entry throughput (N C(d+3, 4) multiply-adds for order four; the lower orders that come with
it are not counted) over the DGEMM peak measured in the same process with the same number of
threads. Best of several, interleaved, because machines are noisy.

    python benchmarks/kernel.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import comb
from pathlib import Path
from typing import cast
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from richcomponents.algebra.arrays import available_cores
from richcomponents.datasets import make_contrastive
from richcomponents.models import ContrastiveRCA
from richcomponents.moments import Accumulator, Moments, kernel
from richcomponents.moments.kernel import EXECUTORS, default_executor

SIZES = {10: 100_000, 20: 100_000, 30: 100_000, 50: 25_000}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def dgemm_peak(threads: int) -> float:
    """Multiply-adds per second of a 1000 x 1000 product."""
    a, b = np.random.default_rng(0).random((2, 1000, 1000))
    with threadpool_limits(threads, user_api="blas"):
        return 1e9 / min(seconds(lambda: a @ b) for _ in range(4))


def moments(X: np.ndarray, order: int, threads: int, executor: str, n_blocks: int = 20) -> None:
    accumulator = Accumulator(
        order, X.mean(axis=0), threads=threads, executor=executor, n_blocks=n_blocks if order <= 4 else 1
    )
    accumulator.update(X)
    accumulator.moments()


def einsum(X: np.ndarray) -> None:
    np.einsum("na,nb,nc,nd->abcd", X, X, X, X)


def scalar_loop() -> Callable[[np.ndarray], np.ndarray] | None:
    """One distinct entry at a time, compiled: what a careful programmer writes first."""
    try:
        from numba import njit
    except ImportError:
        return None

    @njit(fastmath=True)
    def loop(x):  # type: ignore[no-untyped-def]
        d, n = x.shape
        out = np.zeros(d * (d + 1) * (d + 2) * (d + 3) // 24)
        at = 0
        for i in range(d):
            for j in range(i, d):
                for k in range(j, d):
                    for m in range(k, d):
                        total = 0.0
                        for s in range(n):
                            total += x[i, s] * x[j, s] * x[k, s] * x[m, s]
                        out[at] = total
                        at += 1
        return out

    return cast(Callable[[np.ndarray], np.ndarray], loop)


def table(rounds: int, quick: bool) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    cores = available_cores()
    rows: list[dict[str, object]] = []
    executors = [e for e in EXECUTORS if e == "numpy" or default_executor() == "numba"]
    for d, n in SIZES.items():
        n = n // 10 if quick else n
        X = rng.uniform(-1, 1, (n, d))
        best: dict[tuple[str, int, int], float] = {}
        peak = {1: 0.0, cores: 0.0}
        for executor in executors:
            moments(X[:500], 4, 1, executor)  # compile
        for _ in range(rounds):
            for threads in peak:
                peak[threads] = max(peak[threads], dgemm_peak(threads))
                for executor in executors:
                    for blocks in (20, 1):
                        key = (executor, threads, blocks)
                        spent = seconds(lambda: moments(X, 4, threads, executor, blocks))  # noqa: B023
                        best[key] = min(best.get(key, np.inf), spent)
        for (executor, threads, blocks), spent in best.items():
            rows.append(
                {
                    "what": "order 4",
                    "d": d,
                    "n": n,
                    "executor": executor,
                    "threads": threads,
                    "blocks": blocks,
                    "seconds": spent,
                    "unique/peak": n * comb(d + 3, 4) / spent / peak[threads],
                    "speed-up": best[executor, 1, blocks] / spent,
                }
            )
    d, n = 10, 10_000 if quick else 100_000
    X = rng.uniform(-1, 1, (n, d))
    executor = default_executor()
    peak1 = max(dgemm_peak(1) for _ in range(rounds))
    for order in (3, 4, 6):
        moments(X[:500], order, 1, executor)
        spent = min(seconds(lambda: moments(X, order, 1, executor)) for _ in range(rounds))  # noqa: B023
        rows.append(
            {
                "what": f"order {order}",
                "d": d,
                "n": n,
                "executor": executor,
                "threads": 1,
                "blocks": 20,
                "seconds": spent,
                "unique/peak": n * comb(d + order - 1, order) / spent / peak1,
                "speed-up": 1.0,
            }
        )
    return rows


def peers(rounds: int, quick: bool) -> list[dict[str, object]]:
    """Times of other ways to the same numbers, over ours (one thread)."""
    rng = np.random.default_rng(1)
    out: list[dict[str, object]] = []
    for d, n in ((10, 2_000 if quick else 20_000), (20, 1_000 if quick else 5_000)):
        X = rng.uniform(-1, 1, (n, d))
        with threadpool_limits(1, user_api="blas"):
            ours = min(seconds(lambda: moments(X, 4, 1, default_executor())) for _ in range(rounds))  # noqa: B023
            row: dict[str, object] = {"d": d, "n": n, "einsum/ours": seconds(lambda: einsum(X)) / ours}  # noqa: B023
            loop = scalar_loop()
            if loop is not None:
                x = np.ascontiguousarray(X.T)
                loop(x[:, :10])
                row["scalar loop/ours"] = min(seconds(lambda: loop(x)) for _ in range(rounds)) / ours  # noqa: B023
        out.append(row)
    return out


def fit_cost(rounds: int, quick: bool) -> list[dict[str, object]]:
    """A full fit of ContrastiveRCA (intervals and tests excluded) over the moment pass it contains, all cores."""
    d, n = 20, 10_000 if quick else 100_000
    X = make_contrastive(n, d=d, random_state=0).X
    warnings.simplefilter("ignore")
    ContrastiveRCA(views=d).fit(X[:2000])  # compile
    passes, fits = [], []
    for _ in range(rounds):
        passes.append(seconds(lambda: Moments.of(X, order=4)))
        fits.append(seconds(lambda: ContrastiveRCA(views=d).fit(X)))
    return [
        {
            "what": "full fit",
            "d": f"{d}+{d}",
            "n": n,
            "seconds": min(fits),
            "over its moment pass": min(fits) / min(passes),
        }
    ]


@contextmanager
def executor(name: str) -> Iterator[None]:
    """Everything inside runs on numpy, or on what is installed."""
    with patch.object(kernel, "find_spec", lambda module: None if name == "numpy" else find_spec(module)):
        default_executor.cache_clear()
        yield
    default_executor.cache_clear()


def compiled(rounds: int, quick: bool) -> list[dict[str, object]]:
    """What numba brings: processor time of numpy over that of numba, of a pass of order four and of a whole fit."""
    warnings.simplefilter("ignore")
    out: list[dict[str, object]] = []
    for d, n in ((10, 100_000), (20, 1000), (20, 100_000), (40, 100_000), (60, 50_000)):  # both views together
        X = make_contrastive(n // 10 if quick else n, d=d // 2, S2="skewed", random_state=0).X
        passes: dict[str, float] = {}
        fits: dict[str, float] = {}
        for turn in range(rounds + 1):
            for name in EXECUTORS:
                with executor(name):
                    spent = cpu_seconds(lambda: Moments.of(X, order=4))  # noqa: B023
                    whole = cpu_seconds(lambda: ContrastiveRCA(views=d // 2).fit(X))  # noqa: B023
                if turn:  # the first compiles
                    passes[name] = min(passes.get(name, np.inf), spent)
                    fits[name] = min(fits.get(name, np.inf), whole)
        row: dict[str, object] = {
            "columns": d,
            "n": len(X),
            "pass, numba": passes["numba"],
            "fit, numba": fits["numba"],
        }
        ratios = {
            f"{what}, numpy/numba": held["numpy"] / held["numba"] for what, held in (("pass", passes), ("fit", fits))
        }
        out.append(row | ratios)
    return out


def show(rows: list[dict[str, object]]) -> None:
    keys = list(rows[0])
    cells = [[f"{row.get(k):.3f}" if isinstance(row.get(k), float) else str(row.get(k)) for k in keys] for row in rows]
    widths = [max(len(k), *(len(r[i]) for r in cells)) for i, k in enumerate(keys)]
    for line in [keys, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, others = table(options.rounds, options.quick), peers(options.rounds, options.quick)
    fits = fit_cost(options.rounds, options.quick)
    numba = compiled(options.rounds, options.quick) if default_executor() == "numba" else []
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show(rows)
    show(others)
    show(fits)
    if numba:
        show(numba)
    print(f"memory high-water mark of this process: {high:.0f} MB; cores: {available_cores()}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {"kernel": rows, "peers": others, "fit": fits, "numba": numba, "memory_mb": high, "cores": os.cpu_count()},
            indent=1,
        )
        options.json.write_text(text)


if __name__ == "__main__":
    main()
