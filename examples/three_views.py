"""A cohort measured three times over: transcripts, proteins and a blood count of the same people, age beside them.

What is in all three (inflammation, say), what only transcripts and proteins share (the tissue's own state), what is each one's
own; and which of these a disease goes with. Nobody measured any of it.

python examples/three_views.py [figure.png [report.html]]
"""

import sys
import warnings

import numpy as np
import pandas as pd

import richcomponents as rc

# ---- the cohort: what is hidden stays here

rng, n = np.random.default_rng(7), 6000
rna, protein, blood = ([f"{view}_{name}" for name in "ABC"] for view in ("rna", "protein", "blood"))
views = {"rna": rna, "protein": protein, "blood": blood}
inflammation = rng.gamma(1.0, size=n) - 1  # few people have much of it: skewed, as such things are
tissue = rng.gamma(0.7, size=n) / 0.7**0.5 - 0.7**0.5
age = rng.uniform(30, 80, n)
table = pd.DataFrame({"age": age.round()})
loads = {"rna": [1, 0.5, 0.3], "protein": [0.8, -0.4, 0.6], "blood": [0.2, 0.9, 0.7]}
for view, columns in views.items():
    own = rng.normal(size=(n, 3)) * (0.6 + 0.3 * rng.gamma(2.0, size=(n, 1)))  # each assay's own noise, heavy-tailed
    table[columns] = np.outer(inflammation, loads[view]) + own + 0.01 * age[:, None]
table[rna] += np.outer(tissue, [0.2, 0.9, -0.6])
table[protein] += np.outer(tissue, [0.3, 0.8, 0.5])
chance = 1 / (1 + np.exp(1.0 - 1.2 * tissue))
table["disease"] = np.where(rng.random(n) < chance, "case", "control")

# ---- what the analyst does

everywhere, both = ("rna", "protein", "blood"), ("rna", "protein")
model = rc.RCA(views=views, covariates=["age"], discover=True).fit(table)
print(model.summary())
print(model.variance_table().to_frame().round(2).to_string(index=False))

for subset in (everywhere, both):
    if subset not in model.components_:
        continue
    sets = model.system_.members
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", rc.SpecificationWarning
        )  # the disease goes with one of them: that is the question
        learner = rc.ComponentLogisticRegression(
            rca=rc.RCA(views=views, sets=sets, covariates=["age"]), component=subset
        )
        learner.fit(table, table["disease"])
    found = learner.predict_proba(table)[:, list(learner.classes_).index("case")]
    cases = (table["disease"] == "case").to_numpy()
    wins = np.mean(found[cases][:, None] > found[~cases][None])
    print(f"disease on {learner.component_.name}: area under the curve {wins:.2f}")
print("what can be known of the disease at best:", f"{np.mean(chance[cases][:, None] > chance[~cases][None]):.2f}")

if len(sys.argv) > 1:
    model.plot().savefig(sys.argv[1], dpi=120)
if len(sys.argv) > 2:
    rc.write_report(sys.argv[2], model, title="Three views of a cohort")
