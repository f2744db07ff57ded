"""One table, two tables, column groups by name or number: how views are told to the library.

python examples/views.py
"""

import numpy as np

import richcomponents as rc

data = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=1)

# One table: the first three columns are U, the rest V; or a dict of column numbers (names, with a data frame).
by_number = rc.ContrastiveRCA(views=3).fit(data.X)
by_group = rc.ContrastiveRCA(views={"tests": [0, 1, 2], "controls": slice(3, 6)}).fit(data.X)
print("the same fit:", np.array_equal(by_number.A_, by_group.A_))

# Two tables: samples must line up, and where the tables carry labels that is checked.
by_table = rc.ContrastiveRCA().fit_views({"tests": data.U, "controls": data.V})
print("the same again:", np.allclose(by_table.A_, by_number.A_), "with views", *by_table.views_)

# What goes wrong is said by name.
broken = data.X.copy()
broken[7, 4] = np.nan
try:
    by_group.fit(broken)
except rc.DataError as error:
    print("refused:", error)

# Known covariates are removed from both views first.
age = np.random.default_rng(0).uniform(20, 80, len(data.X))
aged = np.column_stack([data.X + 0.02 * age[:, None], age])
with_age = rc.ContrastiveRCA(views=3, covariates=[6]).fit(aged)
print(f"largest change of A by removing age: {np.abs(with_age.A_ - by_number.A_).max():.4f}")
