"""Cross blocks, projections and Gram forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import richcomponents as rc
from richcomponents.algebra import moments_to_cumulants, pack, unfold, unpack
from richcomponents.cumulants import (
    Cumulants,
    block_grams,
    linearised_block_cumulants,
    projected_cumulant,
)
from richcomponents.moments import Moments


def test_cross_blocks_are_read_from_one_state(table):
    k = Cumulants(Moments.of(table, 5))
    U, V = [0, 1], [2, 3]
    for slots in ((V, U), (V, U, U), (V, U, U, U), (V, V, U, U), (U, V, V, U, U)):
        direct = rc.cross_cumulant(*(np.ascontiguousarray(table[:, s]) for s in slots))
        np.testing.assert_allclose(k.tensor(*slots), direct, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(k.tensor(slice(0, 2)), table[:, :2].mean(axis=0), rtol=1e-12)


def test_order_one_is_the_mean_and_two_the_covariance(table):
    np.testing.assert_allclose(rc.cumulant(table, 1), table.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(rc.cumulant(table, 2), np.cov(table.T), rtol=1e-10)


def test_single_columns_and_frames(table):
    assert rc.cross_cumulant(table[:, 0], table[:, 1], table[:, 2]).shape == (1, 1, 1)
    np.testing.assert_array_equal(rc.cumulant(pd.DataFrame(table), 3), rc.cumulant(table, 3))


@pytest.mark.parametrize("order", [0, 7, 2.5, True])
def test_orders_outside_the_range(table, order):
    with pytest.raises(ValueError, match="from 1 to 6"):
        rc.cumulant(table, order)


def test_too_few_rows_and_unequal_rows(table):
    with pytest.raises(rc.DataError, match="order 4 needs at least 4 rows, got 3"):
        rc.cumulant(table[:3], 4)
    with pytest.raises(rc.DataError, match="same rows"):
        rc.cross_cumulant(table, table[:50])


def test_dense_tensors_beyond_memory_are_refused(rng):
    k = Cumulants(Moments.of(rng.normal(size=(10, 100)), 2))
    with pytest.raises(rc.CapacityError, match="projected"):
        k.tensor(*[range(100)] * 6)


@given(seed=st.integers(0, 999), order=st.integers(1, 6), unbiased=st.booleans())
def test_projected_cumulants_are_contractions(seed, order, unbiased):
    rng = np.random.default_rng(seed)
    X, theta = rng.exponential(size=(30, 3)) + 5, rng.normal(size=3)
    expected = rc.cumulant(X, order, unbiased=unbiased)
    for _ in range(order - 1):
        expected = expected @ theta
    result = projected_cumulant(X, theta, order, unbiased=unbiased)
    np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-7)
    sampled = projected_cumulant(X, (X @ theta)[:, None], order, unbiased=unbiased)
    np.testing.assert_allclose(sampled, expected, rtol=1e-8, atol=1e-7)


def test_projected_cumulants_check_their_input(table):
    with pytest.raises(rc.DataError, match="4 entries"):
        projected_cumulant(table, np.ones(3), 3)
    with pytest.raises(rc.DataError, match="at least 4 rows"):
        projected_cumulant(table[:3], np.ones(4), 4)
    with pytest.raises(rc.DataError, match="read the rows twice"):
        projected_cumulant(iter([table]), np.ones(4), 3)


@pytest.mark.parametrize("pattern", ["VU", "VUU", "VVU", "UWV"])
def test_gram_form_equals_the_explicit_tensors(rng, pattern):
    Z = rng.exponential(size=(61, 3)) @ rng.normal(size=(3, 7))
    views = {"U": Z[:, :3], "V": Z[:, 3:5], "W": Z[:, 5:]}
    X = np.hstack([views["U"], views["V"]])
    grams = block_grams([views[letter] for letter in pattern], X, n_blocks=4, tile=7)
    explicit = [unfold(rc.cross_cumulant(*(views[letter][b::4] for letter in pattern), X[b::4])) for b in range(4)]
    for a in range(4):
        for b in range(4):
            expected = explicit[a].T @ explicit[b] if a != b else 0.0
            np.testing.assert_allclose(grams[a, b], expected, rtol=1e-9, atol=1e-9 * np.abs(grams).max())
    pairs = [explicit[a].T @ explicit[b] for a in range(4) for b in range(4) if a != b]
    np.testing.assert_allclose(grams.sum(axis=(0, 1)) / 12, np.mean(pairs, axis=0), rtol=1e-9, atol=1e-9)


def test_gram_of_pure_noise_is_centred_at_zero(rng):
    """The plain product of one estimate with itself is not: that is the point of the pairs."""
    traces, plain = [], []
    for _ in range(30):
        U, V = rng.normal(size=(200, 3)), rng.normal(size=(200, 3))
        traces.append(np.trace(block_grams([V, U, U], U, n_blocks=5).sum(axis=(0, 1))) / 20)
        matrix = unfold(rc.cross_cumulant(V, U, U, U))
        plain.append(np.trace(matrix.T @ matrix))
    error = np.std(traces, ddof=1) / np.sqrt(30)
    assert abs(np.mean(traces)) < 4 * error
    assert np.mean(plain) > 10 * error


def test_gram_form_checks_its_input(rng):
    U = rng.normal(size=(30, 2))
    with pytest.raises(rc.DataError, match="n_blocks <= 7"):
        block_grams([U, U, U], U, n_blocks=20)
    with pytest.raises(ValueError, match="two slots"):
        block_grams([U], U)
    with pytest.raises(rc.DataError, match="same rows"):
        block_grams([U, U[:20]], U)


@pytest.mark.parametrize("order", [3, 4, 5, 6])
def test_linearised_block_cumulants_average_to_the_global_one(table, order):
    state = Moments.of(table[:391], 6, n_blocks=7)
    blocks = linearised_block_cumulants(state, order)
    mean = np.average(blocks, axis=0, weights=state.block_sizes)
    np.testing.assert_allclose(mean, Cumulants(state, unbiased=False).packed(order), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="order 3 to 6"):
        linearised_block_cumulants(state, 2)


@pytest.mark.parametrize("order", [3, 4, 5, 6])
def test_linearised_block_cumulants_are_the_derivative_in_the_weight_of_a_block(table, order):
    """d/de of the cumulants of all rows, those of block 2 counted 1 + e times, is its share times (k_b - k)."""
    X, step = table[:392], 1e-4
    whole = Moments.of(X, order, n_blocks=7)

    def cumulants(e):
        sums = whole.total + e * whole.blocks[2]
        parts = enumerate(whole.layout.orders[1:], start=1)
        return pack(moments_to_cumulants([unpack(sums[part] / sums[0], X.shape[1], t) for t, part in parts])[-1])

    slope = (cumulants(step) - cumulants(-step)) / (2 * step)
    expected = (linearised_block_cumulants(whole, order)[2] - cumulants(0.0)) / 7
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
