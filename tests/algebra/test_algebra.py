"""Partitions, tensors and packing."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from richcomponents.algebra import (
    kstatistic_coefficient,
    multilinear,
    pack,
    packed_indices,
    packed_rank,
    packed_size,
    partitions_without_singletons,
    symmetrise,
    unfold,
    unpack,
)
from richcomponents.algebra.packing import segments, translate
from richcomponents.algebra.partitions import set_partitions
from tests.exact import kstatistic, literal_kstatistic, partitions


@pytest.mark.parametrize(
    ("t", "bell", "centred"), [(1, 1, 0), (2, 2, 1), (3, 5, 1), (4, 15, 4), (5, 52, 11), (6, 203, 41)]
)
def test_numbers_of_partitions(t, bell, centred):
    assert len(set_partitions(t)) == len(set(set_partitions(t))) == bell
    assert len(partitions_without_singletons(t)) == centred
    assert {frozenset(p) for p in set_partitions(t)} == {frozenset(map(tuple, p)) for p in partitions(tuple(range(t)))}


def test_reference_equals_the_literal_average_over_distinct_samples():
    sample = [[Fraction(a), Fraction(b)] for a, b in ((0, 1), (2, 5), (3, -1), (7, 2), (-4, 4))]
    for columns in ((0, 0, 1), (0, 1, 1, 1), (0, 0, 1, 1)):
        assert kstatistic(sample, columns) == literal_kstatistic(sample, columns)


def test_known_coefficients_of_k4():
    n = 17
    below = (n - 1) * (n - 2) * (n - 3)
    assert kstatistic_coefficient((4,), n) == pytest.approx(n * (n + 1) / below, rel=1e-15)
    assert kstatistic_coefficient((2, 2), n) == pytest.approx(-(n - 1) / below, rel=1e-15)


def test_too_few_rows_for_an_unbiased_coefficient():
    with pytest.raises(ValueError, match="at least 4 rows"):
        kstatistic_coefficient((2, 2), 3)


@given(p=st.integers(1, 6), t=st.integers(0, 6))
def test_packed_indices_are_the_sorted_tuples_and_rank_inverts_them(p, t):
    indices = packed_indices(p, t)
    assert [tuple(i) for i in indices.tolist()] == list(combinations_with_replacement(range(p), t))
    assert packed_rank(indices, p).tolist() == list(range(packed_size(p, t)))


@given(p=st.integers(1, 5), t=st.integers(1, 5), seed=st.integers(0, 99))
def test_pack_and_unpack_are_inverse_on_symmetric_tensors(p, t, seed):
    dense = symmetrise(np.random.default_rng(seed).normal(size=(p,) * t))
    packed = pack(dense)
    assert packed.shape == (comb(p + t - 1, t),)
    np.testing.assert_allclose(unpack(packed, p, t), dense, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(pack(unpack(packed, p, t)), packed)


@given(p=st.integers(1, 4), t=st.integers(1, 6), seed=st.integers(0, 99))
def test_homogeneous_coordinates_list_all_orders_and_translation_is_the_binomial_theorem(p, t, seed):
    rng = np.random.default_rng(seed)
    Z, delta = rng.normal(size=(7, p)), rng.normal(size=p)

    def packed_sums(points):
        h = np.hstack([np.ones((7, 1)), points])
        return np.prod(h[:, packed_indices(p + 1, t)], axis=2).sum(axis=0)

    sums = packed_sums(Z)
    for order, part in enumerate(segments(p, t)):
        direct = np.prod(Z[:, packed_indices(p, order)], axis=2).sum(axis=0)
        np.testing.assert_allclose(sums[part], direct, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(translate(sums, p, t, delta), packed_sums(Z - delta), rtol=1e-9, atol=1e-9)


def test_unfold_puts_the_last_slot_in_the_columns(rng):
    tensor = rng.normal(size=(2, 3, 4))
    matrix = unfold(tensor)
    assert matrix.shape == (6, 4)
    assert matrix[1 * 3 + 2, 3] == tensor[1, 2, 3]
    np.testing.assert_array_equal(matrix.reshape(2, 3, 4), tensor)


def test_multilinear_is_the_paper_s_sum(rng):
    tensor = rng.normal(size=(2, 3, 4))
    A, B, C = rng.normal(size=(2, 5)), rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
    expected = np.einsum("abc,ai,bj,ck->ijk", tensor, A, B, C)
    np.testing.assert_allclose(multilinear(tensor, A, B, C), expected, rtol=1e-12)
    np.testing.assert_allclose(multilinear(tensor, A, None, C), np.einsum("abc,ai,ck->ibk", tensor, A, C), rtol=1e-12)
    with pytest.raises(ValueError, match="order 3 takes 3 matrices"):
        multilinear(tensor, A)
