"""Given exact cumulants, the formulas are exact: product populations, no sampling at all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra import multilinear
from richcomponents.components.component import Component, CumulantSource
from richcomponents.contrastive.recipes import OwnRecipes, PaperRecipes, SharedRecipes
from richcomponents.cumulants import Cumulants
from richcomponents.moments import Moments
from richcomponents.paper.mixing import paper_mixing, truncated_pinv

S1 = np.array([[0.0, 1.0], [2.0, -1.0], [5.0, 0.5], [-1.0, 3.0]])
S2 = np.array([[1.0, 0.0], [-1.0, 2.0], [0.0, -3.0], [4.0, 1.0], [0.5, 0.5]])
S3 = np.array([[0.0, 0.0, 1.0], [1.0, -2.0, 0.0], [3.0, 1.0, -1.0]])
A = np.array([[1.0, 0.5], [-0.3, 2.0], [0.7, -1.1]])


@pytest.fixture(scope="module")
def population():
    """Every combination of the supports is equally likely: the parts are exactly independent."""
    rows = [np.concatenate([a + b, A @ b + c]) for a, b, c in product(S1, S2, S3)]
    return Moments.of(np.array(rows), 6, n_blocks=1)


def exact(points, order):
    return rc.cumulant(points, order, unbiased=False)


@pytest.mark.parametrize("order", [3, 4])
def test_equation_2_finds_the_mixing_matrix(population, order):
    found = paper_mixing(Cumulants(population, unbiased=False), np.arange(2), np.arange(2, 5), order=order)
    np.testing.assert_allclose(found, A, rtol=1e-9, atol=1e-9)


def slots():
    u, v = np.eye(5)[:, :2], np.eye(5)[:, 2:]
    return u, v, v @ np.linalg.pinv(A).T, u @ A.T


@pytest.mark.parametrize("order", [3, 4, 5, 6])
@pytest.mark.parametrize("polarised", [False, True])
def test_the_paper_s_equations_for_cumulants(population, order, polarised):
    u, v, from_v, from_u = slots()
    source = CumulantSource(population, unbiased=False)
    for recipe, points in (
        (PaperRecipes(u, from_v, True, polarised), S1),
        (PaperRecipes(u, from_v, False, polarised), S2),
        (PaperRecipes(v, from_u, True, polarised), S3),
    ):
        expected = exact(points, order)
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(source.tensor(recipe(order)[0]), expected, rtol=1e-8, atol=1e-8 * scale)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_every_recipe_is_right_for_any_control_matrix(population, order):
    rng = np.random.default_rng(0)
    u, v, from_v, from_u = slots()
    anything_u, anything_v = v @ rng.normal(size=(3, 2)), u @ rng.normal(size=(2, 3))
    half = (u + from_v) / 2
    source = CumulantSource(population, unbiased=False)
    for recipes, points in (
        (OwnRecipes(u, from_v, anything_u), S1),
        (SharedRecipes(u, from_v, half), S2),
        (OwnRecipes(v, from_u, anything_v), S3),
    ):
        expected = exact(points, order)
        for recipe in recipes(order):
            tensor = source.tensor(recipe)
            np.testing.assert_allclose(tensor, expected, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(expected).max()))


def test_projections_and_moments_of_a_component(population):
    u, _, from_v, _ = slots()
    mean = S1.mean(axis=0)
    component = Component(
        "S1", ("a", "b"), mean, exact(S1, 2), CumulantSource(population, unbiased=False), PaperRecipes(u, from_v, True)
    )
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
    with pytest.raises(ValueError, match="order=7"):
        component.cumulant(7)
    with pytest.raises(ValueError, match="2 entries"):
        component.projected_moment(np.ones(3), 3)


def test_low_rank_shared_part_needs_the_truncated_inverse():
    low = S2[:, :1] * np.array([1.0, -2.0])
    rows = np.array([np.concatenate([a + b, A @ b + c]) for a, b, c in product(S1, low, S3)])
    state = Moments.of(rows, 4, n_blocks=1)
    found = paper_mixing(Cumulants(state, unbiased=False), np.arange(2), np.arange(2, 5), rank=1)
    np.testing.assert_allclose(found @ low.T, A @ low.T, rtol=1e-8, atol=1e-8)  # A is known on the range of S2 only
    assert np.linalg.matrix_rank(truncated_pinv(found, 1)) == 1
