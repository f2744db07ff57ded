"""Five models of what is specific to U; each learner fits the RCA and then its own parameters.

python examples/learners.py
"""

import numpy as np

import richcomponents as rc

rca = rc.ContrastiveRCA(views=5)


def error(found, truth):
    return f"squared error {np.sum((found - truth) ** 2):.4f}"


data = rc.datasets.make_contrastive(4000, d=5, S1="pca", S2="labs(3)", A="good", random_state=2)
pca = rc.ComponentPCA(n_components=1, rca=rca).fit(data.X)
naive = rc.baselines.naive(rc.ComponentPCA(rca=rca), data.X)
for name, found in (("RCA", pca), ("U alone", naive)):
    print(f"first direction, {name:>7}: |cosine with the truth| {abs(found.components_[0] @ data.direction):.3f}")

data = rc.datasets.make_contrastive(4000, d=5, S2="skewed", A="good", random_state=2)
regression = rc.ComponentRegression(rca=rca).fit(data.X, data.y)
print("linear regression:   RCA", error(regression.coef_, data.beta), "| V as covariates", end=" ")
print(error(regression.residualised_, data.beta))
print(regression.coefficients_)

data = rc.datasets.make_contrastive(4000, d=5, S1="logistic", S2="skewed", A="good", random_state=2)
logistic = rc.ComponentLogisticRegression(rca=rca).fit(data.X, data.y)
print("logistic regression: RCA", error(logistic.coef_[0], data.beta), "| V as covariates", end=" ")
print(error(logistic.residualised_, data.beta))

rng = np.random.default_rng(2)
shared = 0.6 * (rng.exponential(size=(4000, 5)) - 1)
controls = shared @ rng.uniform(-1, 1, (5, 5)) + 0.5 * rng.uniform(-1, 1, (4000, 5))

centres = np.array([[2.0, 0, 0, 0, 0], [0, -2.0, 1.0, 0, 0], [0, 0, 0, 2.0, -1.0]])
own = centres[rng.integers(3, size=4000)] + 0.5 * rng.normal(size=(4000, 5))
mixture = rc.ComponentGaussianMixture(3, rca=rca).fit(np.hstack([own + shared, controls]))
print(mixture.summary())

edges = [(0, 1), (1, 2), (2, 3), (3, 4)]  # spins on a line
spins = np.cumprod(np.where(rng.random((4000, 5)) < 0.75, 1.0, -1.0), axis=1)
ising = rc.ComponentIsing(edges=edges, rca=rca).fit(np.hstack([spins + shared, controls]))
print(f"Ising couplings on a line: {ising.coef_.round(2)} (truth {0.5 * np.log(3):.2f})")
