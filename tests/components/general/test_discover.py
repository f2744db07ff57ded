"""Discovery: the sign-flip test and the sequential search."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.general.discover import _signs, sign_flip
from richcomponents.simulated_views import make_views

SIGNS = np.random.default_rng(0).integers(0, 2, (2000, 20)) * 2.0 - 1.0


def test_sign_flip_p_values_are_uniform_without_signal():
    rng = np.random.default_rng(1)
    mix = rng.normal(size=(50, 50))  # entries depend on each other
    p = np.array([sign_flip(rng.standard_t(4, size=(20, 50)) @ mix, SIGNS) for _ in range(300)])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=0.05)


def test_sign_flip_sees_a_common_mean():
    rng = np.random.default_rng(1)
    assert sign_flip(rng.normal(size=(20, 50)) + 0.5, SIGNS) < 0.001


def test_few_blocks_are_tested_exactly():
    signs = _signs(10, 100, 0)
    assert signs.shape == (2**9 - 1, 10)
    assert len(np.unique(signs * signs[:, -1:], axis=0)) == len(signs)
    assert not np.any(np.all(signs == signs[:, :1], axis=1))  # the observed sum counts once
    assert sign_flip(np.ones((10, 3)), signs) == 2.0**-9


STRONG = [("a", "b", "c"), ("a",), ("b",), ("c",)]


@pytest.mark.parametrize(
    ("options", "groups", "message"),
    [
        (
            {"n_blocks": 10},
            None,
            r"with 10 blocks .* 0.0059, and alpha = 0.01 over 4 sets asks for 0.0025.* at least 12",
        ),
        ({}, 10, r"with 10 blocks .* groups= must give as many"),
        ({"alpha": 2e-5}, None, r"at least 21, or a larger alpha, or fewer sets"),
        ({"alpha": 1e-8, "n_blocks": 50}, None, r"Use a larger alpha, or fewer sets"),
    ],
)
def test_a_test_that_cannot_keep_anything_is_refused(options, groups, message):
    data = make_views(2000, 3, 1, sets=STRONG, random_state=1)
    labels = None if groups is None else np.arange(2000) % groups
    with pytest.raises(rc.DataError, match=message):
        rc.RCA(views=data.views, discover=True, **options).fit(data.X, groups=labels)


@pytest.mark.parametrize("options", [{"n_blocks": 12}, {"alpha": 1e-4}])
def test_small_levels_and_few_blocks_still_keep_a_strong_component(options):
    data = make_views(20_000, 3, 1, sets=STRONG, kinds="exponential", random_state=1)
    model = rc.RCA(views=data.views, discover=True, **options).fit(data.X)
    assert set(model.components_) == set(STRONG)


@pytest.mark.parametrize(
    "present", [[], [("a", "c")], [("a", "b", "c")], [("a", "b", "c"), ("b", "c")]], ids=lambda q: str(len(q))
)
def test_the_system_is_found(present):
    sets = [*present, ("a",), ("b",), ("c",)]
    data = make_views(20_000, 3, 2, sets=sets, random_state=11)
    model = rc.RCA(views=data.views, discover=True).fit(data.X)
    assert set(model.system_.members) == set(sets)
    assert set(model.evidence_) == set(rc.datasets.make_views(1, 3, 1).sets)
    for q, verdict in model.evidence_.items():
        assert verdict.kept == (q in sets)
        if len(q) > 1:
            assert (verdict.p_value <= verdict.level) == verdict.kept
    assert "Evidence" in model.summary()


def test_two_views_that_share_something_become_contrastive():
    data = make_views(5000, 2, 2, random_state=0)
    model = rc.RCA(views=data.views, discover=True).fit(data.X)
    assert set(model.components_) == set(data.sets)
    alone = make_views(5000, 2, 2, sets=[("a",), ("b",)])
    assert set(rc.RCA(views=alone.views, discover=True).fit(alone.X).components_) == {("a",), ("b",)}


def test_a_component_that_cannot_be_subtracted_is_announced():
    data = make_views(20_000, 4, 1, sets=[tuple("abcd"), *"abcd"], kinds="exponential")
    with pytest.raises(rc.DataError, match=r"show a component of .* takes cumulants of order 5"):
        rc.RCA(views=data.views, discover=True).fit(data.X)
    fewer = [tuple("abcd"), *[(x, y) for x in "abcd" for y in "abcd" if x < y], *"abcd"]
    model = rc.RCA(views=data.views, sets=fewer, discover=True).fit(data.X)
    assert set(model.components_) == {tuple("abcd"), ("a",), ("b",), ("c",), ("d",)}


def test_too_many_views_to_start_from_all_subsets():
    data = make_views(500, 5, 1, sets=[(v,) for v in "abcde"])
    with pytest.raises(rc.DataError, match="order 5"):
        rc.RCA(views=data.views, discover=True).fit(data.X)
