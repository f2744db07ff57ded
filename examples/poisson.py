"""A model the library does not have: Poisson regression on the hidden component, through fit_likelihood.

python examples/poisson.py
"""

import numpy as np

from richcomponents import ContrastiveRCA
from richcomponents.datasets import make_contrastive
from richcomponents.learning.likelihood import Ridge, fit_likelihood


class Poisson:
    """y ~ Poisson(exp(theta's)): gradient E[s y] - E[s exp(theta's)]."""

    def __init__(self, cross):
        self.cross = cross  # E[s y], measured on the rows

    def known(self, theta):
        return self.cross

    def ridges(self, theta):
        return [Ridge(direction=theta, function=lambda z: -np.exp(z), vector=np.eye(len(theta)))]

    def log_likelihood(self, theta, s):
        return -np.exp(s @ theta)


data = make_contrastive(20_000, d=5, S2="skewed", A="good", random_state=1)
counts = np.random.default_rng(1).poisson(np.exp(data.S1 @ data.beta))
rca = ContrastiveRCA(views=5, mean={"S1": np.zeros(5)}).fit(data.X)
residual = data.U - data.V @ np.linalg.lstsq(data.V, data.U, rcond=None)[0]  # V is independent of S1 and of the counts
fit = fit_likelihood(rca.components_["S1"], Poisson(residual.T @ counts / len(counts)), degree=3)
print("truth ", data.beta.round(2))
print("fitted", fit.theta.round(2), f"in {len(fit.trajectory) - 1} steps; converged: {fit.converged}")
print(f"mu = {fit.mu:.3f}, H = {fit.H:.3f}, |theta - theta*|^2 <= {fit.error_bound:.1e} from the polynomial alone")
