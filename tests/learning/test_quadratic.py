"""Penalised least squares from second moments."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.learning.solvers import elastic_net, penalty_grid


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
def test_penalties_fall_from_silence_to_a_ten_thousandth(l1_ratio):
    rng = np.random.default_rng(0)
    S, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    gram, cross = S.T @ S / 50, S.T @ y / 50
    grid = penalty_grid(gram, cross, l1_ratio)
    assert np.all(np.diff(grid) < 0)
    assert grid[-1] / grid[0] == pytest.approx(1e-4)
    first, second = (elastic_net(gram, cross, alpha, l1_ratio) for alpha in grid[:2])
    if l1_ratio:
        assert not first.any()
        assert second.any()
    else:
        assert np.linalg.norm(first) < 0.1 * np.linalg.norm(elastic_net(gram, cross, 0.0, 0.0))
