"""A regression on what is specific to U, when a disturbance is shared with control columns V.

python examples/contrastive.py
"""

import numpy as np

import richcomponents as rc

data = rc.datasets.make_contrastive(
    3000, d=10, S2="skewed", random_state=7
)  # U = S1 + S2, V = A S2 + S3, y = beta'S1 + noise

model = rc.ContrastiveRCA(views=10).fit(data.X)
print(model.summary())

fit = model.calibrate(data.X, data.y)
naive = np.linalg.lstsq(data.U - data.U.mean(axis=0), data.y - data.y.mean(), rcond=None)[0]
for name, beta in (("ignore V", naive), ("V as covariates", fit.residualised), ("RCA", fit.coef)):
    print(f"{name:>16}: squared error of beta {np.sum((beta - data.beta) ** 2):.4f}")

interval = model.confidence_interval("covariance")  # of S1, which nobody has seen a sample of
low, found, high = (array[0, 0] for array in (interval.low, interval.value, interval.high))
print(f"Var(S1) of the first column: {found:.3f}  [{low:.3f}, {high:.3f}]  (truth 0.333)")

cleaned = model.transform(data.X)  # sample by sample, U's own columns
before, after = (np.corrcoef(column, data.S1[:, 0])[0, 1] for column in (data.U[:, 0], cleaned[:, 0]))
print(f"correlation of the first column with S1: before {before:.2f}, after {after:.2f}")
