"""Moments on a local dask cluster: equal bits for six chunkings and with a worker killed, and how two processes compare to one.

    python benchmarks/dask_scaling.py [--rows 2000000] [--columns 20] [--json FILE]

Rows are read by the workers from one .npy file. Speeds are the best of three, after the workers have imported and compiled
everything; the ratio is of the two clusters in the same run.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from richcomponents.moments import Moments
from sections import tell


def rows_of(path: str, low: int, high: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[low:high])


def lazy(path: Path, rows: int, columns: int, chunk: int) -> Any:
    """The table as a dask array whose chunks are read where they are needed."""
    read = dask.delayed(rows_of)
    parts = [
        da.from_delayed(read(str(path), low, min(low + chunk, rows)), (min(chunk, rows - low), columns), dtype=float)
        for low in range(0, rows, chunk)
    ]
    return da.concatenate(parts)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of workers of one thread each, in processes of their own."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(workers)
        yield client


def seconds(table: Any, shift: np.ndarray) -> float:
    began = time.perf_counter()
    Moments.from_source(table, order=4, shift=shift)
    return time.perf_counter() - began


def best(workers: int, table: Any, shift: np.ndarray) -> float:
    with cluster(workers):
        seconds(table, shift)
        return min(seconds(table, shift) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description="Moments on a local dask cluster")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, columns = options.rows, options.columns
    result: dict[str, object] = {"rows": rows, "columns": columns}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "table.npy"
        np.save(path, np.random.default_rng(0).exponential(size=(rows, columns)))
        reference = Moments.of(np.load(path), order=4)
        shift = np.array(reference.shift)
        with cluster(2) as client:
            chunks = [rows, rows // 2 + 1, 327_680, 100_000, 65_536, 33_333]
            same = [Moments.from_source(lazy(path, rows, columns, chunk), order=4) == reference for chunk in chunks]
            result["chunkings equal in bits"] = f"{sum(same)} of {len(same)}"
            table = lazy(path, rows, columns, 100_000)
            whole = seconds(table, shift)
            victim = next(iter(client.run(os.getpid).values()))
            killer = threading.Timer(0.4 * whole, os.kill, (victim, signal.SIGKILL))
            killer.start()
            result["equal in bits with a worker killed"] = Moments.from_source(table, order=4, shift=shift) == reference
            killer.join()
            after = client.run(os.getpid).values()
            result["the worker was killed"] = victim not in after
        one, two = best(1, table, shift), best(2, table, shift)
    result |= {"rows per second, one process": rows / one, "rows per second, two": rows / two, "scaling": one / two}
    tell(result, options.json)


if __name__ == "__main__":
    main()
