"""Penalised least squares from second moments."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.learning.solvers import elastic_net, penalised, penalty_grid


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
def test_penalties_fall_from_silence_to_a_ten_thousandth(l1_ratio):
    rng = np.random.default_rng(0)
    S, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    grid = penalty_grid(S, y, l1_ratio)
    assert np.all(np.diff(grid) < 0)
    assert grid[-1] / grid[0] == pytest.approx(1e-4)
    first, second = penalised(S, y, grid[:2], l1_ratio)
    if l1_ratio:
        assert not first.any()
        assert second.any()
    else:
        assert np.linalg.norm(first) < 0.1 * np.linalg.norm(penalised(S, y, 0.0, 0.0))


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
def test_moments_weights_and_units(l1_ratio):
    """Rows and their moments have the same fit, a row of weight two is two rows, a copy of weight -1 takes its row away, and
    units do not matter."""
    rng = np.random.default_rng(0)
    S, y, units = rng.normal(size=(50, 4)), rng.normal(size=50), 10.0 ** np.array([-6, 6, 0, 3])
    coef = penalised(S, y, 0.1, l1_ratio)
    np.testing.assert_allclose(elastic_net(S.T @ S / 50, S.T @ y / 50, 0.1, l1_ratio, y @ y / 50), coef, atol=1e-7)
    np.testing.assert_allclose(1e6 * units * penalised(S * units, y * 1e-6, 0.1, l1_ratio), coef, rtol=1e-6, atol=1e-9)
    twice = np.r_[S, S[:10]], np.r_[y, y[:10]]
    weighted = penalised(S, y, 0.1, l1_ratio, np.where(np.arange(50) < 10, 2.0, 1.0))
    np.testing.assert_allclose(weighted, penalised(*twice, 0.1, l1_ratio), atol=1e-7)
    without = penalised(*twice, 0.1, l1_ratio, np.where(np.arange(60) < 50, 1.0, -1.0))
    np.testing.assert_allclose(without, penalised(S[10:], y[10:], 0.1, l1_ratio), atol=1e-7)


def test_ridge_on_more_columns_than_rows():
    rng = np.random.default_rng(0)
    S, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    white = S / np.sqrt(np.mean(S**2, axis=0))
    direct = np.linalg.solve(white.T @ white / 20 + 0.1 * np.eye(50), white.T @ y / 20) / np.sqrt(np.mean(S**2, axis=0))
    np.testing.assert_allclose(penalised(S, y, 0.1, 0.0), direct, atol=1e-10)
