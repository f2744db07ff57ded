"""Arrays of other libraries: the same plan, the same sums as numpy's, which come back in numpy."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.moments import Accumulator, Moments
from richcomponents.moments.kernel import Workspace, homogeneous_sums
from richcomponents.moments.namespaces import as_rows, concatenated, namespace_of, picked, to_numpy

LIBRARIES = ["array_api_strict", "torch"]


@pytest.fixture(params=LIBRARIES)
def array(request):
    """numpy array -> array of another library."""
    library = pytest.importorskip(request.param)
    if request.param == "torch":
        pytest.importorskip("array_api_compat")
        return lambda values: library.from_numpy(np.array(values))
    return library.asarray


def close(found, wanted, scale):
    """To twelve digits of the sum of absolute values."""
    assert isinstance(found, np.ndarray)
    assert np.all(np.abs(found - wanted) <= 1e-12 * scale)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("m", [2, 6])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernel_agrees_with_numpy(array, rng, m, order, weighted):
    rows, shift, w = rng.exponential(size=(3000, m - 1)), rng.normal(size=m - 1), rng.normal(size=3000)
    weight = w if weighted else None
    wanted = homogeneous_sums(rows, shift, Workspace(m, order, "numpy"), weight)
    found = homogeneous_sums(array(rows), shift, Workspace(m, order, "array"), array(w) if weighted else None)
    size = homogeneous_sums(
        np.abs(rows - shift), 0 * shift, Workspace(m, order, "numpy"), np.abs(w) if weighted else None
    )
    close(found, wanted, size)


@pytest.mark.parametrize("options", [{}, {"block_length": 7}, {"groups": True}, {"target_order": 4}])
def test_moments_of_foreign_arrays(array, rng, options):
    X, y = rng.exponential(size=(5000, 4)), rng.normal(size=(5000, 2))
    if "groups" in options:
        options = {"groups": np.arange(5000) // 3}
    shift = np.ones(6)
    wanted = Moments.of(X, 6, shift, targets=y, **options)
    found = Moments.of(array(X), 6, shift, targets=array(y), **options)
    assert found.layout == wanted.layout
    np.testing.assert_array_equal(found.block_sizes, wanted.block_sizes)
    np.testing.assert_allclose(found.blocks, wanted.blocks, rtol=1e-11, atol=1e-11 * 5000)
    np.testing.assert_allclose(found.pooled, wanted.pooled, rtol=1e-12)
    own = Moments.of(array(X), 4)  # its own shift, the means
    np.testing.assert_allclose(own.mean, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(own.moment(4), Moments.of(X, 4).moment(4), rtol=1e-11, atol=1e-12)


def test_no_chunking_changes_a_bit(array, rng):
    X, shift = rng.normal(size=(3 * 20 * 2048 // 2, 2)), np.zeros(2)
    whole = Moments.of(array(X), 4, shift)
    parts = Accumulator(4, shift)
    for start in (30_000, 0, 7_001):
        stop = {30_000: len(X), 0: 7_001, 7_001: 30_000}[start]
        parts.update(array(X[start:stop]), start=start)
    assert parts.moments() == whole


def test_libraries_may_be_mixed(array, rng):
    X, shift = rng.normal(size=(1000, 2)), np.zeros(2)
    mixed = Accumulator(4, shift)
    mixed.update(array(X[:301]))
    mixed.update(X[301:])
    assert mixed.moments() == Moments.of(X, 4, shift)  # leaves of both are summed by numpy


def test_the_callers_array_is_not_held(rng):
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    X = torch.from_numpy(rng.normal(size=(100, 2)))
    accumulator = Accumulator(4, np.zeros(2))
    accumulator.update(X)
    before = accumulator.moments()
    X += 1
    assert accumulator.moments() == before


def test_other_numbers_and_gradients_are_read(rng):
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    X = rng.integers(0, 5, size=(100, 2)).astype(np.float32)
    wanted = Moments.of(X.astype(float), 4)
    for tensor in (torch.from_numpy(X), torch.from_numpy(X).int(), torch.from_numpy(X).requires_grad_()):
        np.testing.assert_allclose(Moments.of(tensor, 4).blocks, wanted.blocks, rtol=1e-12, atol=1e-9)


def test_messages_are_the_same(array):
    bad = np.array([[1.0, 2.0], [np.nan, 1.0]])
    with pytest.raises(rc.DataError, match="column 0 holds a missing or infinite value"):
        Moments.of(array(bad))
    accumulator = Accumulator(4, np.zeros(2))
    with pytest.raises(rc.DataError, match="column 0 holds a missing"):
        accumulator.update(array(bad))
    with pytest.raises(rc.DataError, match="two-dimensional"):
        Moments.of(array(np.zeros(3)))
    with pytest.raises(rc.DataError, match="the targets have 2 rows, the table has 3"):
        Moments.of(array(np.zeros((3, 1))), targets=np.zeros(2))
    with pytest.raises(rc.DataError, match="no rows"):
        Moments.of(array(np.zeros((0, 2))))


def test_numpy_has_no_other_namespace(rng):
    X = rng.normal(size=(4, 2))
    assert namespace_of(X) is None
    assert namespace_of([1.0]) is None
    assert as_rows(X) is X
    assert to_numpy(X) is X
    np.testing.assert_array_equal(picked(X, np.array([2, 0])), X[[2, 0]])
    np.testing.assert_array_equal(concatenated([X, X]), np.vstack([X, X]))
