"""Simulated views come with their truth."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.datasets import make_contrastive


def test_a_mixture_returns_its_centres_and_weights():
    even = make_contrastive(20_000, d=4, S1="mixture", random_state=1)
    assert even.centres.shape == (10, 4)
    np.testing.assert_allclose(even.weights, 0.1)
    uneven = make_contrastive(20_000, d=4, S1="mixture", weights=np.arange(1, 11), random_state=1)
    np.testing.assert_array_equal(uneven.centres, even.centres)
    np.testing.assert_allclose(uneven.weights, np.arange(1, 11) / 55)
    for data in (even, uneven):
        np.testing.assert_allclose(np.cov(data.S1.T), data.cov_S1, atol=0.1)
        np.testing.assert_allclose(data.S1.mean(0), data.weights @ data.centres, atol=0.05)


def test_spins_return_their_couplings():
    data = make_contrastive(20_000, d=9, S1="ising", S2="spins", random_state=1)
    assert set(np.unique(data.S1)) == set(np.unique(data.S2)) == {-1.0, 1.0}
    assert data.edges.shape == (18, 2)
    assert data.couplings.shape == (18,)
    np.testing.assert_allclose(np.cov(data.S1.T), data.cov_S1, atol=0.05)
    assert np.all(data.S2[:, 5:] == data.S2[:, [5]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"S1": "ising", "d": 10}, "square grid"),
        ({"S1": "mixture", "weights": [0.5, 0.5]}, "ten positive numbers"),
        ({"S1": "pca", "weights": [0.5, 0.5]}, "leave them out"),
        ({"S1": "nothing"}, "'ising', got 'nothing'"),
        ({"S2": "nothing"}, "'spins'"),
    ],
)
def test_bad_designs(options, message):
    with pytest.raises(ValueError, match=message):
        make_contrastive(50, **options)
