"""Given exact cumulants, every alternative is exact: product populations, no sampling at all."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.algebra import multilinear
from richcomponents.components import Component, CumulantSource
from richcomponents.components.component import own_terms, shared_terms
from richcomponents.paper.contrastive import cross_terms
from tests.paper.population import S1, S2, S3, A, U, V, close, exact, state


@pytest.fixture(scope="module")
def population():
    return state(6)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_every_alternative_is_right_for_any_control_matrix(population, order):
    rng = np.random.default_rng(0)
    from_v, from_u = V @ np.linalg.pinv(A).T, U @ A.T
    anything_u, anything_v = V @ rng.normal(size=(3, 2)), U @ rng.normal(size=(2, 3))
    source = CumulantSource(population, unbiased=False)
    for terms, points in (
        (own_terms(U, from_v, anything_u), S1),
        (shared_terms(U, from_v, (U + from_v) / 2), S2),
        (own_terms(V, from_u, anything_v), S3),
    ):
        assert len(terms.alternatives) == 3
        for alternative in terms.alternatives:
            close(source.tensor(alternative, order), exact(points, order))


def test_projections_and_moments_of_a_component(population):
    terms = cross_terms(U, V, A, np.linalg.pinv(A))["S1"]
    source = CumulantSource(population, unbiased=False)
    component = Component("S1", ("a", "b"), S1.mean(axis=0), exact(S1, 2), source, terms)
    theta = np.array([0.3, -1.2])
    for order in range(1, 6):
        expected = np.mean([a * (theta @ a) ** (order - 1) for a in S1], axis=0)
        np.testing.assert_allclose(component.projected_moment(theta, order), expected, rtol=1e-8, atol=1e-8)
        raw = np.mean([multilinear(np.ones((1,) * order), *[a[None]] * order) for a in S1], axis=0)
        np.testing.assert_allclose(component.moment(order), raw, rtol=1e-8, atol=1e-8)
        tensor = component.cumulant(order)
        for _ in range(order - 1):
            tensor = tensor @ theta
        np.testing.assert_allclose(component.projected_cumulant(theta, order), tensor, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="the highest order there is is 6"):
        component.cumulant(7)
    with pytest.raises(ValueError, match="2 entries"):
        component.projected_moment(np.ones(3), 3)
