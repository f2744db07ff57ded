"""A model the library does not have: Poisson regression on the hidden component, through fit_likelihood.

python examples/poisson.py
"""

import numpy as np

from richcomponents import ContrastiveRCA, fit_likelihood
from richcomponents.datasets import make_contrastive

data = make_contrastive(20_000, d=5, S2="skewed", A="good", random_state=1)
counts = np.random.default_rng(1).poisson(np.exp(data.S1 @ data.beta))
rca = ContrastiveRCA(views=5, mean={"S1": np.zeros(5)}).fit(data.X)
residual = data.U - data.V @ np.linalg.lstsq(data.V, data.U, rcond=None)[0]  # V is independent of S1 and of the counts
cross = (
    residual.T @ counts / len(counts)
)  # E[s y]: measured on the rows, the rest of the gradient comes from moments of S1


def poisson(theta, s):
    """y ~ Poisson(exp(theta's)): gradient E[s y] - E[s exp(theta's)]."""
    return theta @ cross - np.exp(s @ theta)


fit = fit_likelihood(rca.components_["S1"], poisson, degree=3)
print("truth ", data.beta.round(2))
print("fitted", fit.theta.round(2), f"converged: {fit.converged}")
print(f"mu = {fit.mu:.3f}, H = {fit.H:.3f}, |theta - theta*|^2 <= {fit.error_bound:.1e} from the polynomial alone")
