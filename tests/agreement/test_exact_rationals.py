"""Agreement with exact rational arithmetic, at offsets and scales where floating point fails first."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

import richcomponents as rc
from tests.exact import kstatistic, to_fractions

OFFSETS = [0.0, 1e6, -1e6, 1e3]
SCALES = [1.0, 1e-8, 1e8, 1e3]


def tables():
    rng = np.random.default_rng(5)
    skewed = rng.exponential(size=(40, 4))
    mixed = skewed @ rng.normal(size=(4, 4))
    yield "plain", mixed
    yield "offset 1e6", mixed + np.array(OFFSETS)
    yield "scales 1e-8..1e8", mixed * np.array(SCALES)
    yield "both", mixed * np.array(SCALES) + np.array([1e6, 1e-2, 1e14, -1e9])


@pytest.mark.parametrize(("name", "X"), list(tables()), ids=[name for name, _ in tables()])
@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_within_1e_10_of_the_product_of_standard_deviations(name, X, order):
    sample = to_fractions(X)
    spread = X.std(axis=0)
    result = rc.cumulant(X, order)
    # order six has 84 distinct entries of 203 partitions each in rationals: take every fifth
    entries = list(combinations_with_replacement(range(4), order))[:: 1 if order < 5 else 5]
    for columns in entries:
        error = abs(float(result[columns]) - float(kstatistic(sample, columns)))
        assert error <= 1e-10 * np.prod(spread[list(columns)]), (columns, error)


@pytest.mark.parametrize("shape", ["VU", "VUU", "VUUU", "VVUU", "VUUUV", "UVVUUV"])
def test_cross_cumulants(shape):
    rng = np.random.default_rng(6)
    Z = rng.exponential(size=(25, 3)) @ rng.normal(size=(3, 3)) + np.array([1e6, 0.0, -1e5])
    views = {"U": [0, 1], "V": [2]}
    tables = {name: Z[:, columns] for name, columns in views.items()}
    result = rc.cross_cumulant(*(tables[letter] for letter in shape))
    assert result.shape == tuple(len(views[letter]) for letter in shape)
    sample, spread = to_fractions(Z), Z.std(axis=0)
    for where in np.ndindex(result.shape):
        columns = tuple(views[letter][i] for letter, i in zip(shape, where, strict=True))
        exact = float(kstatistic(sample, columns))
        assert abs(result[where] - exact) <= 1e-10 * np.prod(spread[list(columns)])


def test_integers_do_not_overflow():
    X = np.array([[100, -100], [120, 90], [127, -128], [3, 4], [90, 100]], dtype=np.int8)
    np.testing.assert_allclose(rc.cumulant(X, 4), rc.cumulant(X.astype(float), 4), rtol=0, atol=0)
    big = np.array([[2**40], [2**41], [2**40 + 5], [7], [2**39]])
    exact = float(kstatistic(to_fractions(big), (0, 0, 0, 0)))
    assert rc.cumulant(big, 4).item() == pytest.approx(exact, rel=1e-12)
