"""Equations (2) to (5) and (8) to (10) are exact for exact cumulants."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.components import CumulantSource
from richcomponents.cumulants import Cumulants
from richcomponents.paper.contrastive import cross_terms, mixing_matrix, polarised_cumulants, truncated_pinv
from tests.paper.population import S1, S2, S3, A, U, V, close, exact, state


@pytest.fixture(scope="module")
def population():
    return state(6)


@pytest.mark.parametrize("order", [3, 4])
def test_equation_2_finds_the_mixing_matrix(population, order):
    found = mixing_matrix(Cumulants(population, unbiased=False), np.arange(2), np.arange(2, 5), order=order)
    np.testing.assert_allclose(found, A, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_equations_3_to_5(population, order):
    source = CumulantSource(population, unbiased=False)
    found = cross_terms(U, V, A, np.linalg.pinv(A))
    for name, points in (("S1", S1), ("S2", S2), ("S3", S3)):
        (terms,) = found[name].alternatives
        close(source.tensor(terms, order), exact(points, order))


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_equations_8_to_10(population, order):
    found = polarised_cumulants(Cumulants(population, unbiased=False), U, V, A, order)
    for name, points in (("S1", S1), ("S2", S2), ("S3", S3)):
        close(found[name], exact(points, order))


def test_low_rank_shared_part_needs_the_truncated_inverse():
    low = S2[:, :1] * np.array([1.0, -2.0])
    found = mixing_matrix(Cumulants(state(4, s2=low), unbiased=False), np.arange(2), np.arange(2, 5), rank=1)
    np.testing.assert_allclose(found @ low.T, A @ low.T, rtol=1e-8, atol=1e-8)  # A is known on the range of S2 only
    assert np.linalg.matrix_rank(truncated_pinv(found, 1)) == 1
