"""What cumulants must satisfy, whatever the code that computes them."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import richcomponents as rc
from richcomponents.algebra import multilinear, symmetrise
from tests.exact import to_fractions

FINITE = st.integers(-3, 3)
ORDERS = st.integers(2, 6)


def population(points: np.ndarray, order: int) -> np.ndarray:
    """The cumulant of the uniform distribution on these points."""
    return rc.cumulant(points, order=order, unbiased=False)


@given(
    first=st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=4),
    second=st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=4),
    order=ORDERS,
)
@pytest.mark.filterwarnings("ignore::richcomponents.ConstantColumnWarning")
def test_cumulants_of_independent_sums_add(first, second, order):
    """Exact for product populations: every pair of points is equally likely."""
    a, b = np.array(first, dtype=float), np.array(second, dtype=float)
    sums = np.array([x + y for x, y in product(a, b)])
    expected = population(a, order) + population(b, order)
    np.testing.assert_allclose(population(sums, order), expected, rtol=1e-11, atol=1e-10)


@given(seed=st.integers(0, 999), order=ORDERS)
def test_multilinear(seed, order):
    """k(X M) = k(X)(M, ..., M), for the unbiased estimator itself, not only in expectation."""
    rng = np.random.default_rng(seed)
    X, M = rng.exponential(size=(12, 3)), rng.normal(size=(3, 2))
    left = rc.cumulant(X @ M, order=order)
    np.testing.assert_allclose(left, multilinear(rc.cumulant(X, order=order), *[M] * order), rtol=1e-9, atol=1e-8)


@given(seed=st.integers(0, 999), order=st.integers(2, 5))
def test_symmetric_in_its_slots(seed, order):
    rng = np.random.default_rng(seed)
    tables = [rng.exponential(size=(9, width)) for width in (2, 1, 3, 2, 1)[:order]]
    reference = rc.cross_cumulant(*tables)
    for shuffled in list(permutations(range(order)))[:: max(1, order - 2)]:
        other = rc.cross_cumulant(*(tables[i] for i in shuffled))
        np.testing.assert_allclose(other, np.transpose(reference, shuffled), rtol=1e-10, atol=1e-10)


@given(seed=st.integers(0, 999), order=ORDERS, shift=st.floats(-100, 100))
def test_translation_leaves_orders_above_one_alone(seed, order, shift):
    X = np.random.default_rng(seed).exponential(size=(10, 2))
    np.testing.assert_allclose(rc.cumulant(X + shift, order), rc.cumulant(X, order), rtol=1e-8, atol=1e-8)


@given(
    points=st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=3, unique=True),
    order=st.integers(2, 4),
    extra=st.integers(0, 1),
)
@pytest.mark.filterwarnings("ignore::richcomponents.ConstantColumnWarning")
def test_unbiased_exactly(points, order, extra):
    """The mean over ALL samples with replacement of a finite population is the population's cumulant."""
    n = order + extra
    support = np.array(points, dtype=float)
    mean = np.mean([rc.cumulant(support[list(s)], order) for s in product(range(len(support)), repeat=n)], axis=0)
    np.testing.assert_allclose(mean, population(support, order), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("order", [5, 6])
@pytest.mark.filterwarnings("ignore::richcomponents.ConstantColumnWarning")
def test_unbiased_exactly_at_high_order(order):
    support = np.array([[0.0, 1.0], [2.0, -1.0]])
    samples = product(range(2), repeat=order)
    mean = np.mean([rc.cumulant(support[list(s)], order) for s in samples], axis=0)
    np.testing.assert_allclose(mean, population(support, order), rtol=1e-11, atol=1e-11)


def test_plugin_is_biased_by_the_known_factor():
    X = np.array([[0.0], [1.0], [5.0]])
    assert rc.cumulant(X, 2, unbiased=False).item() == pytest.approx(rc.cumulant(X, 2).item() * 2 / 3, rel=1e-14)


def test_gaussian_cumulants_above_two_vanish_within_sampling_error(rng):
    n = 20_000
    X = rng.normal(size=(n, 3))
    for order, scale in ((3, 6), (4, 24), (5, 120), (6, 720)):
        # var(k_t) = t! / n on the diagonal for a standard Gaussian, less elsewhere
        assert np.abs(rc.cumulant(X, order)).max() < 5 * np.sqrt(scale / n)


@given(seed=st.integers(0, 999), t=st.integers(1, 6), d=st.integers(1, 3))
def test_moments_and_cumulants_are_inverse(seed, t, d):
    rng = np.random.default_rng(seed)
    tensors = [symmetrise(rng.normal(size=(d,) * order)) for order in range(1, t + 1)]
    back = rc.moments_to_cumulants(rc.cumulants_to_moments(tensors))
    for one, two in zip(tensors, back, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    forth = rc.cumulants_to_moments(rc.moments_to_cumulants(tensors))
    for one, two in zip(tensors, forth, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_conversion_agrees_with_the_sample_cumulants(table):
    n = len(table)
    raw = [np.einsum(f"{','.join(f'n{s}' for s in 'abcd'[:t])}->{'abcd'[:t]}", *[table] * t) / n for t in (1, 2, 3, 4)]
    for order, expected in enumerate(rc.moments_to_cumulants(raw), start=1):
        np.testing.assert_allclose(rc.cumulant(table, order, unbiased=False), expected, rtol=1e-9, atol=1e-9)


def test_conversion_names_a_tensor_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"entry 2 .* \(2, 2\)"):
        rc.moments_to_cumulants([np.zeros(2), np.zeros((2, 3))])


def test_exact_fixture_reads_floats_exactly():
    assert to_fractions([[0.1]]) == [[Fraction(0.1)]]
