"""Frequency weights are repeated rows."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.moments import Moments


@pytest.fixture
def X(rng):
    return rng.exponential(size=(5000, 3)) + np.array([0, 10, 100])


@pytest.fixture
def w(rng):
    return rng.integers(1, 6, size=5000)


def alike(one, two, order):
    assert one.n == two.n
    np.testing.assert_array_equal(one.block_sizes, two.block_sizes)
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-13)
    one_, two_ = one.shifted_to(two.shift), two
    np.testing.assert_allclose(one_.blocks, two_.blocks, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("order", [2, 4, 5])
def test_weights_are_repeated_rows_in_the_block_of_the_row(X, w, order):
    repeated, row = np.repeat(X, w, axis=0), np.repeat(np.arange(5000), w)
    found = Moments.of(X, order, sample_weight=w)
    expected = Moments.of(repeated, order, groups=row)
    alike(found, expected, order)
    k, expected_k = (rc.Cumulants(Moments.of(X, 3, sample_weight=w)), rc.Cumulants(Moments.of(repeated, 3)))
    three = ([0, 1, 2],) * 3
    np.testing.assert_allclose(k.tensor(*three), expected_k.tensor(*three), rtol=1e-8, atol=1e-10)


def test_ones_are_no_weights_and_zeros_are_no_rows(X, rng):
    alike(Moments.of(X, 4, sample_weight=np.ones(5000)), Moments.of(X, 4), 4)
    w = rng.integers(0, 2, size=5000)
    wild = X.copy()
    wild[w == 0] = [np.nan, np.inf, 1e300]  # what does not count may be anything
    found = Moments.of(wild, 4, sample_weight=w)
    kept = Moments.of(X[w > 0], 4, found.shift)
    np.testing.assert_allclose(found.total, kept.total, rtol=1e-10, atol=1e-8)


def test_weights_of_a_source_are_an_array_or_a_column(X, w, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(count=w)[["count", "a", "b", "c"]]
    table.to_parquet(tmp_path / "t.parquet", row_group_size=999)
    reference = Moments.of(X, 4, sample_weight=w)
    by_name = Moments.from_source(tmp_path / "t.parquet", sample_weight="count")
    assert by_name == reference
    by_array = Moments.from_source(tmp_path / "t.parquet", columns=["a", "b", "c"], sample_weight=w)
    assert by_array == reference
    blocks = [X[i : i + 700] for i in range(0, 5000, 700)]
    assert Moments.of(blocks, 4, sample_weight=w) == reference
    da = pytest.importorskip("dask.array")
    assert Moments.of(da.from_array(X, chunks=(600, 2)), 4, sample_weight=w) == reference


def test_a_weighted_fit_is_the_fit_of_repeated_rows(rng):
    data = rc.datasets.make_contrastive(3000, d=3, S2="skewed", random_state=1)
    w = rng.integers(1, 4, size=3000)
    repeated, row = np.repeat(data.X, w, axis=0), np.repeat(np.arange(3000), w)
    one = rc.ContrastiveRCA(views=3).fit(data.X, sample_weight=w)
    two = rc.ContrastiveRCA(views=3).fit(repeated, groups=row)
    np.testing.assert_allclose(one.A_, two.A_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(one.components_["S1"].covariance, two.components_["S1"].covariance, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_wide_tables_are_weighted_too(rng):
    X, w = rng.normal(size=(60, 40)) + rng.normal(size=(60, 1)), rng.integers(1, 3, size=60)
    one = rc.ContrastiveRCA(views=20).fit(X, sample_weight=w)
    two = rc.ContrastiveRCA(views=20).fit(np.repeat(X, w, axis=0), groups=np.repeat(np.arange(60), w))
    np.testing.assert_allclose(one.components_["S1"].covariance, two.components_["S1"].covariance, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "bad", [np.full(5000, 0.5), np.full(5000, -1), np.full(5000, np.nan), np.ones(4999), np.zeros(5000)]
)
def test_bad_weights_are_refused(X, bad):
    with pytest.raises(rc.DataError, match="sample_weight"):
        Moments.of(X, 2, sample_weight=bad)
    with pytest.raises(rc.DataError, match="sample_weight"):
        Moments.of(iter([X[:9], X[9:]]), 2, np.zeros(3), sample_weight=bad)


def test_counts_beyond_exact_numbers_are_refused(X):
    with pytest.raises(rc.DataError, match=r"more than 2\*\*53 rows"):
        Moments.of(X[:2], 2, sample_weight=[4e18, 4e18])
    with pytest.raises(rc.DataError, match=r"more than 2\*\*53"):
        Moments.of(X[:3], 2, sample_weight=[2.0**52] * 3)
    accumulator = rc.Accumulator(2, np.zeros(1), weighted=True)
    for _ in range(3):
        accumulator.update([[1.0, 2.0**52]])
    with pytest.raises(rc.DataError, match=r"more than 2\*\*53"):
        accumulator.moments()
