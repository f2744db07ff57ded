"""Section 4.1 on exact moments: PCA, least squares, mixtures."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.components import CumulantSource
from richcomponents.learning.mixture import MixtureCumulants, match_centres
from richcomponents.paper.contrastive import cross_terms, extract
from richcomponents.paper.moments import alternating_minimisation, contrastive_pca, least_squares
from tests.exact import mixture_cumulants
from tests.paper.population import S1, A, U, V, rows, state


@pytest.fixture(scope="module")
def second():
    """Cov(S1), extracted."""
    (terms,) = cross_terms(U, V, A, np.linalg.pinv(A))["S1"].alternatives
    return CumulantSource(state(2), unbiased=False).tensor(terms, 2)


def test_the_principal_direction_of_s1():
    top = np.linalg.svd(S1 - S1.mean(axis=0))[2][0]
    z = rows()
    found = contrastive_pca(extract(z[:, :2], z[:, 2:], A))
    np.testing.assert_allclose(found * np.sign(found @ top), top, atol=1e-9)


def test_least_squares_on_s1(second):
    beta = np.array([0.7, -0.4])
    y = 3 + (S1 - S1.mean(axis=0)) @ beta
    np.testing.assert_allclose(least_squares(second, (S1 - S1.mean(axis=0)).T @ y / len(S1)), beta, atol=1e-9)


@pytest.mark.parametrize("even", [False, True])
def test_alternating_minimisation_on_exact_cumulants(even):
    rng = np.random.default_rng(1)
    means, weights = 2 * rng.normal(size=(4, 4)), np.full(4, 0.25) if even else np.array([0.4, 0.3, 0.2, 0.1])
    mean, covariance, third, _ = mixture_cumulants(means, weights, 0.25)
    target = MixtureCumulants(covariance, third, None, covariance)
    found = alternating_minimisation(target, mean, 4, rng, equal_weights=even)
    assert match_centres(found.means + mean, means)[1] < 1e-12
    assert found.sigma2 == pytest.approx(0.25)
