"""Rows that come in blocks, from two sites, and never lie in memory together.

python examples/stream.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import richcomponents as rc

data = rc.datasets.make_contrastive(20_000, d=4, S2="skewed", random_state=5)
blocks = np.array_split(data.X, 12)  # as if read from disk, one after the other

# One pass: sums only, every block forgotten after use.
accumulator = rc.Accumulator(order=4)
for block in blocks:
    accumulator.update(block)
streamed = rc.ContrastiveRCA(views=4).fit_moments(accumulator.moments())

whole = rc.ContrastiveRCA(views=4).fit(data.X)
print(f"stream and whole table agree: largest difference of A {np.abs(streamed.A_ - whole.A_).max():.1e}")

# Two sites: each sends a file of sums, no rows; `start` says where its rows come in the joint numbering.
shift = data.X[:100].mean(axis=0)  # agreed on beforehand
with TemporaryDirectory() as folder:
    for site, rows, start in (("a", data.X[:12_000], 0), ("b", data.X[12_000:], 12_000)):
        rc.Moments.of(rows, order=4, shift=shift, start=start).save(Path(folder) / f"{site}.npz")
    pooled = rc.Moments.load(Path(folder) / "a.npz") + rc.Moments.load(Path(folder) / "b.npz")
joint = rc.ContrastiveRCA(views=4).fit_moments(pooled)
print(f"two sites and whole table agree: {np.abs(joint.A_ - whole.A_).max():.1e}")

# Or let the model keep the sums, and refit after every block.
growing = rc.ContrastiveRCA(views=4)
for block in blocks[:4]:
    growing.partial_fit(block)
    found = growing.diagnostics_
    print(f"{found.n:>6} rows: error of A {np.linalg.norm(growing.A_ - data.A):.3f}, {found.verdict}")
