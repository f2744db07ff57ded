"""Does malignancy change ten measurements, when malignant samples went more often to one of two labs that nobody wrote down?

python examples/effects.py [folder]
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas as pd

import richcomponents as rc

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
data = rc.datasets.load_confounded_labs(n_labs=2)  # real measurements of 569 samples, hidden labs
names = list(data.names)
table = pd.DataFrame(data.X, columns=names)
malignant = pd.Series(np.where(data.y == 1, "yes", "no"), name="malignant")

# U first: the tests. Then the controls: malignancy does not change them, but the labs disturb them, too.
views = {"tests": names[:10], "controls": names[10:]}
model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views)).fit(table, malignant)
print(model.summary())

effects = model.effects_.to_frame()  # estimate, naive, adjusted, interval, p, q, ...: one row per test
print(effects.sort_values("p")[["name", "estimate", "low", "high", "q"]].head(3).to_string(index=False))

print("\nThe labs are simulated, so the truth is known. Mean squared errors:")
for method, found in (("naive", model.naive_), ("controls as covariates", model.adjusted_), ("RCA", model.coef_)):
    print(f"{method:>24} {np.mean((found - data.effects) ** 2):.4f}")

print("open", rc.write_report(folder / "effects.html", model, truth=data.effects))
