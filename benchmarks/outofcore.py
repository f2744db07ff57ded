"""Order-four moments of a Parquet file out of core, against the same kernel in memory: a ratio from one run.

    python benchmarks/outofcore.py [--rows 10000000] [--columns 40] [--dtype float64] [--place DIR] [--json FILE]

The file is made first, in pieces (3.2 GB for ten million rows of forty doubles), and kept in --place for the next run. It is
read in a process of its own, so that the peak memory is its own; the in-memory speed is that of the first 500 000 rows,
measured before and after, and the better one counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from richcomponents.moments import Moments
from sections import tell

PIECE, SUBSET = 250_000, 500_000


def make(path: Path, rows: int, columns: int, dtype: str) -> None:
    """Skewed, correlated columns, piece by piece, each from its own seed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists() and pq.ParquetFile(path).metadata.num_rows == rows:
        return
    mixing = np.random.default_rng(0).normal(size=(columns, columns)) / np.sqrt(columns)
    schema = pa.schema([(f"x{j}", pa.from_numpy_dtype(np.dtype(dtype))) for j in range(columns)])
    unfinished = path.with_suffix(".unfinished")
    with pq.ParquetWriter(unfinished, schema, use_dictionary=False) as writer:
        for k, start in enumerate(range(0, rows, PIECE)):
            n = min(PIECE, rows - start)
            X = (np.random.default_rng([1, k]).exponential(size=(n, columns)) @ mixing).astype(dtype)
            writer.write_table(pa.table(list(X.T), schema=schema), row_group_size=100_000)
    unfinished.rename(path)


def subset(path: Path) -> tuple[np.ndarray, Path]:
    """The first rows in memory, and in a file of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    batches, n = [], 0
    for batch in pq.ParquetFile(path).iter_batches():
        batches.append(batch)
        n += len(batch)
        if n >= SUBSET:
            break
    table = pa.Table.from_batches(batches).slice(0, SUBSET)
    part = path.with_name("subset.parquet")
    pq.write_table(table, part, row_group_size=77_777)
    return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns]), part


def read(path: Path) -> dict[str, float]:
    """In this process: all rows of the file."""
    began = time.perf_counter()
    state = Moments.from_source(path, order=4)
    took = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"rows": state.n, "seconds": took, "rows per second": state.n / took, "peak GB": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()) / "richcomponents-outofcore")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        print(json.dumps(read(options.read)))
        return
    options.place.mkdir(parents=True, exist_ok=True)
    path = options.place / f"{options.rows}x{options.columns}-{options.dtype}.parquet"
    make(path, options.rows, options.columns, options.dtype)
    X, part = subset(path)
    Moments.of(X[:50_000], order=4)  # compiled before the clock starts

    def speed() -> float:
        began = time.perf_counter()
        Moments.of(X, order=4)
        return len(X) / (time.perf_counter() - began)

    before = speed()
    command = [sys.executable, __file__, "--read", str(path)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result |= {
        "columns": options.columns,
        "file GB": path.stat().st_size / 2**30,
        "in memory, rows per second": max(before, speed()),
        "bits equal on the subset": Moments.from_source(part, order=4) == Moments.of(X, order=4),
    }
    result["ratio to memory"] = result["rows per second"] / result["in memory, rows per second"]
    tell(result, options.json)


if __name__ == "__main__":
    main()
