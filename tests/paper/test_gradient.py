"""Section 4.2 on an exact population: the gradient from cumulants of the views is that of samples of S1."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit

import richcomponents as rc
from richcomponents.components import Component, CumulantSource
from richcomponents.learning.chebyshev import INTERVAL, LogisticLikelihood, largest_variance, sigmoid_series
from richcomponents.paper.contrastive import cross_terms
from richcomponents.paper.gradient import CHEBYSHEV
from tests.paper.population import S1, A, U, V, exact, state

THETA = np.array([0.2, -0.1])
PROBABILITY = expit(S1 @ np.array([0.4, -0.3]))


@pytest.fixture(scope="module")
def component():
    terms = cross_terms(U, V, A, np.linalg.pinv(A))["S1"]
    source = CumulantSource(state(4), unbiased=False)
    return Component("S1", ("a", "b"), S1.mean(axis=0), exact(S1, 2), source, terms)


def test_the_paper_s_coefficients_are_those_of_the_series():
    np.testing.assert_allclose(sigmoid_series(3).coef, CHEBYSHEV, atol=5e-4)


def test_higher_degree_is_closer():
    z = np.linspace(-INTERVAL, INTERVAL, 101)
    gaps = [np.abs(sigmoid_series(k)(z) - expit(z)).max() for k in (1, 3, 5, 7)]
    assert all(a > b for a, b in pairwise(gaps))


def test_the_likelihood_climbs_the_same_gradient(component):
    """In the likelihood's own coordinates theta = root q, with the series not rounded."""
    mean = float(PROBABILITY.mean())
    cross = S1.T @ PROBABILITY / len(S1) - mean * S1.mean(axis=0)
    likelihood = LogisticLikelihood(component, cross, mean, fit_intercept=False)
    q = np.append(0.0, np.linalg.solve(likelihood.root, THETA))
    gap = PROBABILITY - sigmoid_series(3)(S1 @ THETA)
    expected = np.append(0.0, likelihood.root.T @ (S1.T @ gap / len(S1)))
    np.testing.assert_allclose(likelihood.gradient(q), expected, atol=1e-9)


@pytest.mark.parametrize("options", [{"approximation": "chebyshev"}, {"method": "paper"}])
def test_where_the_bound_binds_it_is_warned_of_and_there_is_no_interval(options):
    rng = np.random.default_rng(0)
    S1, S2, S3 = rng.uniform(-1, 1, (3, 5000, 1))
    y = (rng.uniform(size=5000) < expit(-6 * S1[:, 0])).astype(int)
    model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=1, A=[[1.0]]), **options)
    with pytest.warns(rc.SpecificationWarning, match="no maximum within its range"):
        model.fit(np.hstack([S1 + S2, S2 + S3]), y)
    assert abs(model.coef_[0, 0]) < 4  # the truth is -6
    assert model.coefficients_ is None
    assert "nan" not in str(model.summary())


def test_the_bound_grows_with_the_degree():
    assert all(a < b for a, b in pairwise(largest_variance(k) for k in (3, 5, 7, 9)))
    assert largest_variance(1) == largest_variance(3)  # a quadratic likelihood has a maximum of its own
