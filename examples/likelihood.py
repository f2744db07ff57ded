"""Models that the library does not have, each from the log-likelihood of one sample: the paper's meta-algorithm.

python examples/likelihood.py
"""

import numpy as np
from scipy.special import log_ndtr

from richcomponents import ComponentLikelihood, ContrastiveRCA
from richcomponents.datasets import make_contrastive


def student(theta, s):
    """The location of a t distribution with five degrees of freedom: a model of S1 alone."""
    return -5.0 * np.log1p(np.sum((s - theta) ** 2, axis=1) / 5)


def robust(theta, s, y):
    """Regression with errors of a t distribution."""
    return -3.0 * np.log1p((y - s @ theta) ** 2 / 1.25)


def probit(theta, s, y):
    return y * log_ndtr(s @ theta) + (1 - y) * log_ndtr(-s @ theta)


def softplus_counts(theta, s, y):
    """Counts whose mean is log(1 + exp(1 + theta's))."""
    mean = np.logaddexp(0, 1 + s @ theta)
    return y * np.log(mean) - mean


def gamma(theta, s, y):
    """Positive outcomes whose mean is exp(theta's), over their shape: waiting times, costs."""
    return -s @ theta - y * np.exp(-s @ theta)


def first_event(theta, s, y):
    """Whether anything happened, events of a log-linear rate: the complementary log-log link."""
    rate = np.exp(np.clip(s @ theta, -20, 20))
    return y * np.log(-np.expm1(-rate)) - (1 - y) * rate


data = make_contrastive(10_000, d=5, S2="skewed", A="good", random_state=1)
rng, eta = np.random.default_rng(1), data.S1 @ data.beta
outcomes = {
    robust: eta + 0.5 * rng.standard_t(5, size=len(eta)),
    probit: (rng.normal(size=len(eta)) < eta).astype(float),
    softplus_counts: rng.poisson(np.logaddexp(0, 1 + eta)),
    gamma: rng.gamma(2.0, np.exp(eta) / 2),
    first_event: (rng.poisson(np.exp(eta)) > 0).astype(float),
}
rca = ContrastiveRCA(views=5)
for model, y in outcomes.items():
    found = ComponentLikelihood(model, start=np.zeros(5), rca=rca).fit(data.X, y)
    errors = [np.sum((theta - data.beta) ** 2) for theta in (found.theta_, found.residualised_)]
    print(f"{model.__name__:>16}: squared error {errors[0]:.4f}, on the residual {errors[1]:.4f};", end=" ")
    print(f"error of the gradient by the polynomials {found.fit_.epsilon:.1e}")
    low, high = found.coefficients_.interval(0.95)
    print(f"{'':>16}  theta[0] = {found.theta_[0]:.2f} [{low[0]:.2f}, {high[0]:.2f}], the truth is {data.beta[0]:.2f}")
location = ComponentLikelihood(student, start=np.zeros(5), rca=rca).fit(data.X)
print("         student:", location.theta_.round(2), "(the truth is 0)")
