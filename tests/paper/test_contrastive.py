"""Equations (2) to (5) and (8) to (10) are exact for exact cumulants."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.components import CumulantSource
from richcomponents.paper import component_cumulants, mixing_matrix, polarised_cumulants
from richcomponents.paper.contrastive import cross_terms, truncated_pinv
from tests.paper.population import S1, S2, S3, A, U, V, close, exact, rows, state


def views(**parts):
    """U and V of the joint support."""
    z = rows(**parts)
    return z[:, :2], z[:, 2:]


@pytest.fixture(scope="module")
def population():
    return state(6)


@pytest.mark.parametrize("order", [3, 4])
def test_equation_2_finds_the_mixing_matrix(order):
    found = mixing_matrix(*views(), order=order, unbiased=False)
    np.testing.assert_allclose(found, A, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_equations_3_to_5(population, order):
    source = CumulantSource(population, unbiased=False)
    found = cross_terms(U, V, A, np.linalg.pinv(A))
    for name, points in (("S1", S1), ("S2", S2), ("S3", S3)):
        (terms,) = found[name].alternatives
        close(source.tensor(terms, order), exact(points, order))


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_equations_3_to_5_and_8_to_10_on_tables(order):
    for equations in (component_cumulants, polarised_cumulants):
        found = equations(*views(), A, order, unbiased=False)
        for name, points in (("S1", S1), ("S2", S2), ("S3", S3)):
            close(found[name], exact(points, order))


def test_low_rank_shared_part_needs_the_truncated_inverse():
    low = S2[:, :1] * np.array([1.0, -2.0])
    found = mixing_matrix(*views(s2=low), rank=1, unbiased=False)
    np.testing.assert_allclose(found @ low.T, A @ low.T, rtol=1e-8, atol=1e-8)  # A is known on the range of S2 only
    assert np.linalg.matrix_rank(truncated_pinv(found, 1)) == 1
