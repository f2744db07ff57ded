"""
Effects under hidden confounding
================================

Do malignant samples differ, when most of them went to another lab and nobody wrote down which went where?

The measurements are real: ten properties of cell nuclei in 569 tissue samples (Wisconsin breast cancer, from
scikit-learn). The labs are simulated, so that the truth is known: each of three labs adds its own bias to every
column, and malignant samples went more often to the last one. Five more columns are *negative controls*: the labs
disturb them, malignancy does not change them.
"""

# %%
# The table
# ---------
# A data frame with tests, controls and the exposure, as it would come from a file.

import numpy as np
import pandas as pd

import richcomponents as rc

data = rc.datasets.load_confounded_labs(n_labs=3)
names = list(data.names)
tests, controls = names[:10], names[10:]
cohort = pd.DataFrame(data.X, columns=names).assign(
    malignant=np.where(data.y == 1, "yes", "no")
)
cohort.iloc[:5, [0, 1, 10, 11, -1]].round(2)

# %%
# Fit
# ---
# Which columns are tests, which are controls, which is the exposure: that is all.

rca = rc.ContrastiveRCA(views={"tests": tests, "controls": controls})
model = rc.ExposureEffects(rca=rca, exposure="malignant").fit(cohort)
print(model.summary())

# %%
# The verdict comes first. The table has one row per test: the estimate, and beside it what the two usual analyses
# say. *naive* ignores the labs; *adjusted* has the controls as covariates.

model.plot("forest")

# %%
# Against the truth
# -----------------
# Here, and only here, the truth is known.

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, found, colour in (
    ("naive", model.naive_, "tab:orange"),
    ("adjusted", model.adjusted_, "tab:green"),
    ("RCA", model.coef_, "tab:blue"),
):
    error = np.mean((found - data.effects) ** 2)
    ax.plot(
        data.effects,
        found,
        "o",
        color=colour,
        label=f"{name}, mean squared error {error:.4f}",
    )
ends = [data.effects.min() - 0.2, data.effects.max() + 0.2]
ax.plot(ends, ends, color="black", lw=0.8)
ax.set(xlabel="true effect", ylabel="estimate")
ax.legend(frameon=False)

# %%
# Do the controls agree?
# ----------------------
# Each control is hidden in turn, and its effect estimated from the others as if it were a test. Malignancy does not
# change controls, so all blue intervals should reach zero. This check needs no truth: make it on your own data.

model.plot("controls")

# %%
# What if a control is none?
# --------------------------
# Let malignancy change one of the controls by a standard deviation, and look again. The controls then go with
# malignancy in a way that they do not share with the tests; a test sees it, and leaving out each in turn says which
# control it may be.

import warnings

wrong = cohort.copy()
wrong["worst fractal dimension"] += data.y
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    doubted = rc.ExposureEffects(rca=rca, exposure="malignant").fit(wrong)
print(doubted.verdict_)
print(told[0].message)

# %%
# *p of the others* is the test without that control. Where one stands out the others agree without it: leave it out,
# and compare. It is not always told as clearly: where the others fit badly even without it, the message says that no
# single control explains it, and this column is what to look at.

doubted.controls_.to_frame()[
    ["control", "p", "p of the others", "effects move without it"]
]

# %%
# How much does the noise of the controls matter?
# -----------------------------------------------
# From no noise at all (*adjusted*) to as much as correlations allow. Lines that do not cross zero keep their sign
# whatever it is.

model.plot("sensitivity")

# %%
# Hand it on
# ----------
# One page for colleagues, a table for a program.

from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    page = rc.write_report(Path(folder) / "effects.html", model)
    print(f"{page.name}: {page.stat().st_size // 1000} kB, one file, no network")
model.effects_.to_frame().round(3).iloc[:, :8]
