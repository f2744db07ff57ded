"""Mini-batch steps: laws of the loop, whatever the model."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.paper.gradient import robbins_monro, sgd


def quadratic(x):
    """Gradient of the mean of |theta - x|^2 / 2 over a batch."""
    return lambda theta, rows: theta - x[rows].mean(axis=0)


def test_the_whole_table_in_one_batch_is_gradient_descent(rng):
    x = rng.normal(size=(50, 3))
    found = sgd(quadratic(x), np.zeros(3), 50, batch_size=1000, n_steps=30, step_size=lambda t: 0.2, random_state=0)
    expected = np.stack([(1 - 0.8**t) * x.mean(axis=0) for t in range(31)])
    np.testing.assert_allclose(found.trajectory, expected, atol=1e-13)
    np.testing.assert_allclose(found.theta, expected[16:].mean(axis=0), atol=1e-13)


def test_one_pass_with_steps_one_over_t_is_the_mean(rng):
    x = rng.normal(size=(1000, 2))
    found = sgd(quadratic(x), np.zeros(2), 1000, n_steps=10, step_size=lambda t: 1 / (t + 1), random_state=0)
    np.testing.assert_allclose(found.trajectory[-1], x.mean(axis=0), atol=1e-13)


def test_every_row_is_read_once_per_pass():
    seen = []
    sgd(
        lambda theta, rows: seen.append(rows) or theta,
        np.zeros(1),
        1050,
        batch_size=100,
        n_steps=20,
        step_size=lambda t: 1.0,
        random_state=1,
    )
    for one in (seen[:10], seen[10:]):
        rows = np.concatenate(one)
        assert len(np.unique(rows)) == 1000
        assert rows.min() >= 0
        assert rows.max() < 1050
    assert all(np.all(np.diff(rows) > 0) for rows in seen)


def test_seeds(rng):
    x = rng.normal(size=(500, 2))
    options = {"n_steps": 25, "step_size": robbins_monro(1.0, 1.0)}
    whole = sgd(quadratic(x), np.zeros(2), 500, random_state=3, **options)
    again = sgd(quadratic(x), np.zeros(2), 500, random_state=3, **options)
    np.testing.assert_array_equal(again.trajectory, whole.trajectory)
    np.testing.assert_array_equal(again.theta, whole.theta)
    other = sgd(quadratic(x), np.zeros(2), 500, random_state=4, **options)
    assert not np.array_equal(other.theta, whole.theta)


def test_steps_of_robbins_and_monro():
    eta = robbins_monro(0.1, 0.25, excess=1.0)
    assert eta(0) == pytest.approx(1 / (2 * 0.25 * 2))
    assert eta(10**9) * 0.1 * 10**9 == pytest.approx(1.0)
    assert robbins_monro(-1.0, 1.0)(10**9) == pytest.approx(1e-7)
    with pytest.raises(ValueError, match="positive"):
        robbins_monro(0.1, 0.0)


def test_a_projection_keeps_a_diverging_gradient_bounded():
    inside = {"n_steps": 50, "step_size": lambda t: 1.0, "projection": lambda theta: np.clip(theta, -2.0, 2.0)}
    found = sgd(lambda theta, rows: -(theta**3), np.ones(2), 10, **inside)
    assert np.abs(found.trajectory).max() <= 2
    assert found.confined > 0.9
    with pytest.raises(FloatingPointError, match="projection"), np.errstate(over="ignore", invalid="ignore"):
        sgd(lambda theta, rows: -(theta**3), np.ones(2), 10, n_steps=50, step_size=lambda t: 1.0)


@pytest.mark.parametrize("wrong", ["batch_size", "n_steps"])
def test_impossible_numbers(wrong):
    with pytest.raises(ValueError, match=wrong):
        sgd(lambda theta, rows: theta, np.ones(2), 10, step_size=lambda t: 1.0, **{wrong: 0})
