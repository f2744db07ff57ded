"""Two hospitals, one model: only sums leave each of them.

python examples/federated.py
"""

import tempfile
from pathlib import Path

import numpy as np

import richcomponents as rc

data = rc.datasets.make_contrastive(8000, d=6, S2="skewed", random_state=7)
sites = {"north": data.X[:3000], "south": data.X[3000:]}

with tempfile.TemporaryDirectory() as place:
    for name, rows in sites.items():  # at each site
        rc.Moments.of(rows, order=4).folded().save(Path(place) / f"{name}.npz")
    north, south = (rc.Moments.load(Path(place) / f"{name}.npz") for name in sites)  # at the centre

model = rc.ContrastiveRCA(views=6).fit_moments(north + south)
pooled = rc.ContrastiveRCA(views=6).fit_moments(rc.Moments.of(data.X, order=4))
print(f"{north.n} + {south.n} samples, none of them exchanged")
print(f"largest difference of A from the pooled fit: {np.abs(model.A_ - pooled.A_).max():.1e}")

# an exposure (or an outcome) is a column: states of (U, V, y) suffice for effects and coefficients
cohort = rc.datasets.make_confounded(8000, random_state=7)
table = np.column_stack([cohort.X, cohort.y])
total = rc.Moments.of(table[:3000], order=4).folded() + rc.Moments.of(table[3000:], order=4).folded()
rca = rc.ContrastiveRCA(views={"tests": slice(0, 6), "controls": slice(6, -1)})
for learner in (rc.ExposureEffects(rca=rca), rc.ComponentRegression(rca=rca, shared=True)):
    sites, rows = learner.fit(total, table.shape[1] - 1).coef_, learner.fit(table, table.shape[1] - 1).coef_
    print(f"{type(learner).__name__}: largest difference from the pooled rows {np.abs(sites - rows).max():.1e}")
print(model.summary())
