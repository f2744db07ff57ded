"""
Two assays in a MuData
======================

Two modalities of the same samples, measured in the same unknown batches. What is the first one's own, and
what are its main directions without the batches?

No omics table comes with the package. Cell-nucleus measurements stand in for both modalities (569 tissue samples,
real columns), and the batches are simulated, so that the answer can be checked. With your own ``cells.h5mu``
everything below is the same.
"""

# %%
# The object
# ----------
# The second assay has lost every seventh sample, and its samples stand in another order: as it happens.

import warnings

import anndata
import mudata
import numpy as np
import pandas as pd

import richcomponents as rc

# of mudata about its own future
warnings.filterwarnings("ignore", category=FutureWarning)
mudata.set_options(pull_on_update=False)

table, malignant = rc.datasets.load_biomarkers()
first, second = (table.values[:, table.views[name]] for name in ("mean", "variation"))
clean = first.copy()
first, second = rc.datasets.add_hidden_labs(first, second, n_labs=3, random_state=4)

samples = np.array([f"sample{i:03d}" for i in range(len(first))])
names = [str(table.views.feature_names[c]) for c in range(20)]
obs = pd.DataFrame(
    {"diagnosis": np.where(np.array(malignant) == 1, "malignant", "benign")}, samples
)
kept = np.random.default_rng(0).permutation(np.flatnonzero(np.arange(len(first)) % 7))
mdata = mudata.MuData(
    {
        "rna": anndata.AnnData(first, obs, pd.DataFrame(index=names[:10])),
        "protein": anndata.AnnData(
            second[kept], obs.iloc[kept], pd.DataFrame(index=names[10:])
        ),
    }
)
mdata

# %%
# Fit
# ---
# Modalities are views; samples line up by their names. ``align="outer"`` with ``missing="available"`` keeps those
# that only one assay has.

model = rc.ContrastiveRCA(missing="available").fit_views(mdata, align="outer")
print(model.summary())

# %%
# What is whose, by variable. The shaded part is shared with the other assay: here the batches, because nothing else
# goes through both.

model.plot()

# %%
# Back into the object
# --------------------
# ``annotate`` writes predictions of each modality's own part into obsm, the shares of variance into varm, and the
# verdict into uns.

model.annotate(mdata)
mdata.mod["rna"].varm["rca"].round(2)

# %%
# Before and after: the correlation of each variable with its undisturbed self, which only a simulation knows.

after = mdata.mod["rna"].obsm["rca_S1"].to_numpy()
for label, values in (("as measured", first), ("own part", after)):
    with_clean = [np.corrcoef(values[:, j], clean[:, j])[0, 1] for j in range(10)]
    print(
        f"{label:>12}: median correlation {np.median(with_clean):.2f}, lowest {min(with_clean):.2f}"
    )

# %%
# Main directions of the own part
# -------------------------------
# Not of the predictions above (they vary less than the own part does) but of the own part itself. Beside it, what PCA
# finds in the table as it is, and the squared distance of each from the main direction of the undisturbed columns.

from sklearn.decomposition import PCA

common = mdata["protein"].obs_names
both = mudata.MuData({name: part[common].copy() for name, part in mdata.mod.items()})
directions = rc.ComponentPCA(n_components=2, rca=rc.ContrastiveRCA()).fit(both)
print(directions.summary())

truth = PCA(1).fit(clean).components_[0]
for label, axis in (
    ("PCA of the table as it is", PCA(1).fit(first).components_[0]),
    ("protein as covariates", rc.baselines.covariates(directions, both).components_[0]),
    ("RCA", directions.components_[0]),
):
    print(f"{label:>26}: {np.sum((axis * np.sign(axis @ truth) - truth) ** 2):.4f}")

# %%
# Samples along the two main directions, before and after: the three batches on the left, two groups of samples on the
# right.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
before = PCA(2).fit_transform(first)
axes_after = after @ directions.components_.T
for ax, title, points in (
    (axes[0], "PCA of the table as it is", before),
    (axes[1], "own part", axes_after),
):
    for label, colour in (("benign", "tab:blue"), ("malignant", "tab:red")):
        ax.plot(
            *points[obs["diagnosis"] == label].T,
            ".",
            ms=4,
            alpha=0.6,
            color=colour,
            label=label,
        )
    ax.set(title=title, xlabel="first direction", ylabel="second direction")
axes[1].legend(frameon=False)
