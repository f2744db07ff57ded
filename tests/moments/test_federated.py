"""Two sites exchange sums only, and get what the pooled rows give."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.moments import Moments


def test_two_sites_give_the_pooled_fit(tmp_path):
    data = rc.datasets.make_contrastive(9000, d=3, S2="skewed", random_state=5)
    sites = data.X[:4000], data.X[4000:] + 0.0
    for name, rows in zip(("one", "two"), sites, strict=True):
        Moments.of(rows, order=4).folded().save(tmp_path / f"{name}.npz")  # each about its own means
    one, two = (Moments.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert not np.array_equal(one.shift, two.shift)
    # rows are dealt to blocks from 0 at each site: 4000 is a multiple of 20, so the pooled blocks are the same
    pooled = rc.ContrastiveRCA(views=3).fit_moments(Moments.of(data.X, order=4))
    for total in (one + two, two + one):
        assert total.n == 9000
        model = rc.ContrastiveRCA(views=3).fit_moments(total)
        np.testing.assert_allclose(model.A_, pooled.A_, rtol=1e-6, atol=1e-8)
        for name, component in model.components_.items():
            expected = pooled.components_[name]
            np.testing.assert_allclose(component.covariance, expected.covariance, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(component.mean, expected.mean, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("order", [3, 6])
def test_a_folded_state_reads_the_same(rng, order):
    state = Moments.of(rng.exponential(size=(43_000, 2)), order)
    folded = state.folded()
    np.testing.assert_array_equal(folded.blocks, state.blocks)
    assert folded.folded() == folded
    assert Moments.empty(2).folded().is_empty


def test_sums_over_a_handful_of_rows_are_refused(rng, tmp_path):
    path = tmp_path / "s.npz"
    few = Moments.of(rng.normal(size=(60, 2)), 2)  # three rows in a block
    with pytest.raises(rc.DataError, match=r"over 3 row\(s\) of 60.*fewer blocks.*force=True"):
        few.save(path)
    assert not path.exists()
    few.save(path, force=True)
    assert Moments.load(path) == few
    Moments.of(rng.normal(size=(60, 2)), 2, n_blocks=10).save(path)
    tail = Moments.of(rng.normal(size=(20 * 4096 + 30, 2)), 2)  # one or two rows in the last leaf of each block
    with pytest.raises(rc.DataError, match=r"save state\.folded\(\)"):
        tail.save(path)
    tail.folded().save(path)
    assert Moments.load(path).n == tail.n
