"""Three tables on the same samples: which hidden parts do they share, and what does each look like?

python examples/general.py [figure.png]
"""

import sys

import numpy as np

import richcomponents as rc

everywhere, two = ("rna", "protein", "image"), ("protein", "image")
data = rc.datasets.make_views(  # what is shared is hidden: only data.X and data.views are given to the model
    20_000,
    {"rna": 3, "protein": 3, "image": 4},
    sets=[everywhere, two, ("rna",), ("protein",), ("image",)],
    random_state=3,
)

model = rc.RCA(views=data.views, discover=True).fit(data.X)
print(model.summary())

for view, subset in (("protein", everywhere), ("image", everywhere), ("image", two)):
    found, truth = model.transforms_[view, subset], data.transforms[view, subset]
    print(f"A({view}, {'+'.join(subset)}): relative error {np.linalg.norm(found - truth) / np.linalg.norm(truth):.3f}")

shared = model.components_[everywhere]
print("covariance of the common part, in the columns of rna:", np.round(np.diag(shared.covariance), 2))
print("                                               truth:", np.round(np.diag(data.covariances[everywhere]), 2))
interval = model.confidence_interval("covariance", everywhere)
print("                                      standard error:", np.round(np.diag(interval.standard_error), 2))

predicted, std = model.transform(data.X, everywhere, return_std=True)  # sample by sample
r = np.corrcoef(predicted[:, 0], data.components[everywhere][:, 0])[0, 1]
print(f"correlation of its prediction with the truth, first column: {r:.2f}")

if len(sys.argv) > 1:
    model.plot().savefig(sys.argv[1], dpi=120)
