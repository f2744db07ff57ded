"""
Ten million rows on a cluster
=============================

A fit needs sums of products of columns, not rows. So rows may lie anywhere: in a file that does not fit into memory,
on the workers of a dask cluster, at several hospitals. Only sums travel, and the result has the same bits however the
rows were cut.

While this site is built 200 000 rows are used, on two workers inside one process. Set ``ROWS = 10_000_000``, and give
the ``Client`` the address of your cluster, for the real thing: two cores then read 40 columns at .75 of the speed of
a table in memory, with .72 GB at the peak (``benchmarks/outofcore.py``), and two dask processes are 1.6 to 1.9 times
as fast as one (``benchmarks/dask_scaling.py``).
"""

# %%
# A table that nobody holds
# -------------------------
# Blocks of real measurements (scikit-learn's breast cancer table, drawn with replacement and jittered) with four
# hidden labs, made where they are needed.

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.datasets import load_breast_cancer

import richcomponents as rc

ROWS, CHUNK = 200_000, 50_000
measured = np.log(load_breast_cancer().data[:, :12] + 1e-3)
measured = (measured - measured.mean(axis=0)) / measured.std(axis=0)
biases = np.random.default_rng(0).normal(size=(4, 12))


def block(block_id, shape):
    """Rows of one chunk: tests and controls of different samples share the lab only."""
    rng = np.random.default_rng([1, block_id[0]])
    drawn = [
        measured[rng.integers(len(measured), size=shape[0]), part]
        for part in (slice(0, 6), slice(6, 12))
    ]
    return (
        np.hstack(drawn)
        + 0.1 * rng.normal(size=shape)
        + biases[rng.integers(4, size=shape[0])]
    )


chunks = ((CHUNK,) * (ROWS // CHUNK), (12,))
X = da.map_blocks(
    lambda block_info=None: block(
        block_info[None]["chunk-location"], block_info[None]["chunk-shape"]
    ),
    chunks=chunks,
    dtype=float,
)
X

# %%
# Fit, on the cluster
# -------------------
# While a client is active, its workers sum the rows.

cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
)
with cluster, Client(cluster):
    there = rc.ContrastiveRCA(views=6).fit(X)
print(there.summary())

# %%
# The labs are known here: what they add to the tests, mapped by A, is what they add to the controls.

import matplotlib.pyplot as plt

shift = biases - biases.mean(axis=0)
figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
ax.plot(shift[:, 6:].ravel(), (shift[:, :6] @ there.A_.T).ravel(), "o", alpha=0.7)
ax.axline((0, 0), slope=1, color="black", lw=0.8)
ax.set(
    xlabel="what a lab adds to a control", ylabel="from what it adds to the tests, by A"
)

# %%
# The same bits
# -------------
# Cut differently, and without a cluster:

here = rc.ContrastiveRCA(views=6).fit(X.compute())
print("A agrees in every bit:", np.array_equal(here.A_, there.A_))

# %%
# Out of core
# -----------
# The same from a file.

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

names = [f"T_{j}" for j in range(6)] + [f"C_{j}" for j in range(6)]
with TemporaryDirectory() as folder:
    path = Path(folder) / "cells.parquet"
    with pq.ParquetWriter(
        path, pa.schema([(name, pa.float64()) for name in names])
    ) as file:
        for rows in X.to_delayed().ravel():
            file.write_table(pa.table(dict(zip(names, rows.compute().T, strict=True))))
    model = rc.ContrastiveRCA(views={"tests": "T_*", "controls": "C_*"})
    model.fit(path)
    model.transform(
        path, out=Path(folder) / "cleaned.parquet"
    )  # read, predicted and written a few rows at a time
    print("A agrees in every bit:", np.array_equal(model.A_, here.A_))
    print(
        pq.read_table(Path(folder) / "cleaned.parquet").slice(0, 3).to_pandas().round(2)
    )

# %%
# Reading for hours
# -----------------
# One state per file, kept beside it: what is there is not read again, and a process that is killed loses one file's
# work. The model is fitted to the sum.

with TemporaryDirectory() as folder:
    total = rc.Moments.empty(12)
    for i, rows in enumerate(X.to_delayed().ravel()):  # as many files in truth
        kept = Path(folder) / f"part-{i}.npz"
        if not kept.exists():
            rc.Moments.of(rows.compute(), order=4).folded().save(kept)
        total = total + rc.Moments.load(kept)
pieces = rc.ContrastiveRCA(views=6).fit_moments(total)
print(f"largest difference to the whole file: {np.abs(pieces.A_ - here.A_).max():.1e}")

# %%
# Several sites
# -------------
# Rows that may not leave their hospital: each sums its own, the sums are added.

part = ROWS // 2
sites = [
    rc.Moments.of(X[rows].compute(), order=4).folded()
    for rows in (slice(0, part), slice(part, None))
]
pooled = rc.ContrastiveRCA(views=6).fit_moments(sites[0] + sites[1])
print(f"largest difference to the pooled rows: {np.abs(pooled.A_ - here.A_).max():.1e}")
