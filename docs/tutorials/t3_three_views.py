"""
Three views: who shares what
============================

Three assays of the same samples. A lab disturbs all three; a reagent lot disturbs two of them. Which views share
something, how much of each column is its own, and what does the lab look like in each assay?

The columns are real measurements (scikit-learn's breast cancer table), drawn with replacement to 6 000 samples
because three views need more rows than two; lab and lot are simulated, so that the answer is known.
"""

# %%
# The tables
# ----------

import numpy as np
from sklearn.datasets import load_breast_cancer

import richcomponents as rc

rng = np.random.default_rng(7)
n, panels = 6000, {"blood": [0, 1, 4], "urine": [11, 15, 18], "saliva": [21, 24, 29]}
measured = np.log(load_breast_cancer().data + 1e-3)
measured = (measured - measured.mean(axis=0)) / measured.std(axis=0)


def mixing():
    """How one assay feels a disturbance: a rotation, more or less."""
    return np.linalg.qr(rng.normal(size=(3, 3)))[0] * rng.uniform(0.6, 1.2, 3)


lab, lot = (rng.exponential(size=(n, 3)) - 1 for _ in range(2))
of_lab = {view: mixing() for view in panels}
of_lot = {view: mixing() for view in ("blood", "urine")}
tables = {}
for view, columns in panels.items():
    own = measured[rng.integers(len(measured), size=n)][
        :, columns
    ]  # drawn anew: nothing but lab and lot is shared
    tables[view] = (
        own + lab @ of_lab[view] + (lot @ of_lot[view] if view in of_lot else 0)
    )

# %%
# Discover
# --------
# Every subset of the views may have a component of its own; a test says which the data show.

model = rc.RCA(discover=True).fit_views(tables)
print(model.summary())

# %%
# Both disturbances were found where they are, and nothing else.

model.plot()

# %%
# The lab in each assay
# ---------------------
# ``transforms_`` say how what is common looks in each view, in the units of the first: A = L_urine L_blood^-1.

common = ("blood", "urine", "saliva")
for view in ("urine", "saliva"):
    truth = np.linalg.solve(of_lab["blood"], of_lab[view]).T
    found = model.transforms_[view, common]
    print(
        f"{view}: relative error {np.linalg.norm(found - truth) / np.linalg.norm(truth):.2f}"
    )
    print(found.round(2), truth.round(2), sep="\n\n")

# %%
# With an interval for each entry:

print(model.confidence_interval("A", common, "urine"))

# %%
# How much of each column is its own
# ----------------------------------

import matplotlib.pyplot as plt

X = np.hstack(list(tables.values()))
figure, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
names, shares = [], []
for view in panels:
    total = tables[view].var(axis=0)
    estimate, true = model.components_[(view,)].variance / total, 1.0 / total
    ax.plot(
        range(len(names), len(names) + 3),
        estimate,
        "o",
        color="tab:blue",
        label="estimate" if not names else None,
    )
    ax.plot(
        range(len(names), len(names) + 3),
        true,
        "*",
        ms=10,
        color="tab:pink",
        label="truth" if not names else None,
    )
    names += [f"{view} {j}" for j in range(3)]
ax.set(xticks=range(9), ylabel="share of variance", ylim=(0, 1))
ax.set_xticklabels(names, rotation=40, ha="right")
ax.legend(frameon=False)

# %%
# Any model of a component can be learned from here: main directions of the lab, say, without having seen it.

directions = rc.ComponentPCA(n_components=1, component=common).fit_component(
    model.components_[common]
)
print(directions.summary())
