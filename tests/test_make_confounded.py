"""Confounded exposures come with their truth."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.datasets import load_confounded_labs, make_confounded

KINDS = ["labs", "skewed", "gaussian", "heavy", "binary"]


def coefficient(U, *columns):
    """Of the first column, in least squares with an intercept."""
    return np.linalg.lstsq(np.column_stack([np.ones(len(U)), *columns]), U, rcond=None)[0][1]


@pytest.mark.parametrize("make", [*KINDS, load_confounded_labs])
def test_views_are_the_sum_of_their_parts(make):
    data = make(3) if callable(make) else make_confounded(300, 5, 4, confounder=make, invalid={1: 0.7}, random_state=3)
    again = make(3) if callable(make) else make_confounded(300, 5, 4, confounder=make, invalid={1: 0.7}, random_state=3)
    np.testing.assert_array_equal(data.X, again.X)
    np.testing.assert_array_equal(data.y, again.y)
    np.testing.assert_array_equal(data.U, np.outer(data.y, data.effects) + data.S1 + data.S2)
    np.testing.assert_array_equal(data.V, np.outer(data.y, data.control_effects) + data.S2 @ data.A.T + data.S3)
    np.testing.assert_array_equal(data.X[:, data.views["tests"]], data.U)
    np.testing.assert_array_equal(data.X[:, data.views["controls"]], data.V)
    assert len(set(data.names)) == data.X.shape[1]


def test_the_draws_of_one_seed():
    """Labs, then A, S1, S3, noise of y, effects: figures that were published with a seed stay."""
    data, rng = make_confounded(50, n_labs=2, random_state=9), np.random.default_rng(9)
    biases, lab = rng.normal(size=(2, 6)), rng.integers(0, 2, 50)
    np.testing.assert_array_equal(data.S2, (biases - biases.mean(0))[lab])
    np.testing.assert_array_equal(data.A, rng.uniform(-1, 1, (6, 6)))
    np.testing.assert_array_equal(data.S1, rng.normal(size=(50, 6)))
    np.testing.assert_array_equal(data.S3, rng.normal(size=(50, 6)) * rng.uniform(0.5, 1.5))
    np.testing.assert_array_equal(data.y, (lab == 1) + rng.normal(size=50))
    np.testing.assert_array_equal(data.effects, 0.2 * rng.normal(size=6))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_sees_the_confounder_finds_the_effects(kind, binary):
    data = make_confounded(40_000, confounder=kind, binary_exposure=binary, random_state=4)
    np.testing.assert_allclose(data.oracle, data.effects, atol=0.06)
    np.testing.assert_allclose(data.oracle, coefficient(data.U, data.y, data.S2), atol=1e-10)
    assert np.abs(coefficient(data.U, data.y) - data.effects).max() > 0.1
    if binary:
        assert set(np.unique(data.y)) == {0.0, 1.0}
        assert 0.2 < data.y.mean() < 0.8


def test_rank_strength_confounding_and_noise():
    for kind in KINDS[1:]:
        data = make_confounded(20_000, confounder=kind, rank=2, strength=3.0, noise_v=0.5, random_state=1)
        assert np.linalg.matrix_rank(data.S2) == 2
        np.testing.assert_allclose(data.S3.std(axis=0), 0.5, rtol=0.05)
        weaker = make_confounded(20_000, confounder=kind, rank=2, confounding=0.0, random_state=1)
        np.testing.assert_allclose(data.S2, 3 * weaker.S2)
        np.testing.assert_allclose(coefficient(weaker.U, weaker.y), weaker.effects, atol=0.1)
    assert np.linalg.matrix_rank(make_confounded(200, n_labs=4).S2) == 3
    wide = make_confounded(60, 500, n_labs=3, random_state=1)
    np.testing.assert_allclose(wide.oracle, coefficient(wide.U, wide.y, wide.lab == 1, wide.lab == 2), atol=1e-10)
    narrow = make_confounded(200, 1, n_labs=4, random_state=1)
    np.testing.assert_allclose(narrow.oracle, coefficient(narrow.U, narrow.y, narrow.S2), atol=1e-10)


def test_effects_and_nulls():
    given = np.arange(1.0, 7.0)
    np.testing.assert_array_equal(make_confounded(50, effects=given).effects, given)
    np.testing.assert_array_equal(given, np.arange(1.0, 7.0))
    half = make_confounded(50, 10, effects=0.5, null_fraction=0.5, random_state=2).effects
    full = make_confounded(50, 10, effects=0.5, random_state=2).effects
    assert np.sum(half == 0) == 5
    np.testing.assert_array_equal(half[half != 0], full[half != 0])


def test_invalid_controls_follow_the_exposure():
    valid, invalid = (make_confounded(100, invalid=them, random_state=5) for them in (None, {0: 0.5, 4: -1.0}))
    np.testing.assert_allclose(invalid.V - valid.V, np.outer(valid.y, [0.5, 0, 0, 0, -1, 0]), atol=1e-12)
    np.testing.assert_array_equal(invalid.U, valid.U)


def test_real_measurements_with_confounded_labs():
    data = load_confounded_labs(2, n_labs=2, n_controls=8, n_tests=12)
    assert data.X.shape == (569, 20)
    tests = data.U - data.S2
    np.testing.assert_allclose(tests.std(axis=0), 1.0)
    np.testing.assert_allclose(data.effects, tests[data.y == 1].mean(0) - tests[data.y == 0].mean(0))
    np.testing.assert_allclose(data.oracle, coefficient(data.U, data.y, data.lab), atol=1e-10)
    errors = [np.mean((found - data.effects) ** 2) for found in (data.oracle, coefficient(data.U, data.y))]
    assert errors[0] < 0.1 * errors[1]
    share = [data.y[data.lab == lab].mean() for lab in (0, 1)]
    odds = [p / (1 - p) for p in share]
    assert 0.5 < np.log(odds[1] / odds[0]) / 2.0 < 1.5
    clean = load_confounded_labs(2, confounding=0.0)
    assert abs(np.corrcoef(clean.lab, clean.y)[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confounder": "nothing"}, "'binary', got 'nothing'"),
        ({"rank": 2}, "choose n_labs"),
        ({"n_labs": 1}, "at least 2"),
        ({"effects": [1.0, 2.0]}, "each of the 6 columns"),
        ({"null_fraction": 1.5}, "between 0 and 1"),
        ({"invalid": {6: 1.0}}, r"numbered 0\.\.5"),
    ],
)
def test_bad_designs(options, message):
    with pytest.raises(ValueError, match=message):
        make_confounded(50, **options)


@pytest.mark.parametrize("options", [{"n_controls": 25}, {"n_labs": 1}, {"n_labs": 6, "n_tests": 5}])
def test_bad_tables(options):
    with pytest.raises(ValueError, match="30 columns"):
        load_confounded_labs(**options)
