"""Set systems: validity, distinguishing sets, words."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import richcomponents as rc
from richcomponents.components import sets as components_sets
from richcomponents.components.sets import SetSystem
from richcomponents.errors import DataError

VIEWS = ("a", "b", "c", "d")
SUBSETS = [q for size in range(1, 5) for q in combinations(VIEWS, size)]


@st.composite
def systems(draw):
    chosen = draw(st.lists(st.sampled_from(SUBSETS), unique=True, max_size=10))
    alone = [(v,) for v in VIEWS if not any(v in q for q in chosen)]
    return SetSystem.of([*chosen, *alone], VIEWS)


@given(systems())
def test_distinguishing_sets_obey_the_definition_and_are_smallest(system):
    for q in system:
        support = system.distinguishing(q)
        assert support
        assert set(support) <= set(q)
        for other in system:
            assert other == q or set(q) <= set(other) or not set(support) <= set(other)
        for smaller in combinations(q, len(support) - 1):
            assert not system.distinguishes(smaller, q)
    assert max(len(system.distinguishing(q)) for q in system) == system.L


@given(systems())
def test_no_set_is_contained_in_one_that_is_processed_later(system):
    assert sorted(system.order) == sorted(system.members)
    for i, q in enumerate(system.order):
        assert not any(set(q) < set(later) for later in system.order[i + 1 :])
        assert set(system.supersets(q)) == {r for r in system if set(q) < set(r)}


@given(systems())
def test_many_supports_at_once_are_judged_like_one(system):
    supports = [s for size in range(5) for s in combinations(VIEWS, size)]
    for q in system:
        found = system.distinguished(q, np.array([system.bits(s) for s in supports]))
        assert found.tolist() == [system.distinguishes(s, q) for s in supports]
        for s, there in zip(supports, found, strict=True):
            assert not there or {r for r in system if set(s) <= set(r)} == {q, *system.supersets(q)}


def test_all_subsets():
    assert len(SetSystem.all(VIEWS)) == 15
    assert SetSystem.all(VIEWS).L == 4
    assert SetSystem.all(VIEWS).without(VIEWS).L == 3


def test_a_dropped_set_may_shorten_distinguishing_sets():
    system = SetSystem.of([("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)], "abc")
    assert system.distinguishing(("a", "b", "c")) == ("a", "c")
    whole = SetSystem.all("abc")
    assert whole.distinguishing(("a", "b")) == ("a", "b")
    assert whole.distinguishing(("a", "b", "c")) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([()], "empty"),
        ([("a", "x")], "names view 'x'"),
        ([("a", "a")], "twice"),
        ([("a", "b"), ("b", "a"), ("c",), ("d",)], "cannot be told apart"),
        ([], "no sets"),
        ([("a",), ("b",), ("c",)], "view 'd' is in no set"),
    ],
)
def test_invalid_systems_are_refused_in_words(sets, message):
    with pytest.raises(DataError, match=message):
        SetSystem.of(sets, VIEWS)


def test_strings_are_single_views_and_names_are_put_in_view_order():
    assert SetSystem.of(["a", "b", ("b", "a")], "ab").members == (("a",), ("b",), ("a", "b"))


def test_words():
    system = SetSystem.all("abc")
    assert "3-distinguishable" in system.explain()
    assert "once {a, b, c} is subtracted" in system.explain()
    with pytest.raises(DataError, match=r"order 4, and order=3 was asked for.*\{a, b\}"):
        system.require_order(3)
    system.require_order(4)


def test_a_search_that_would_not_end_is_refused(monkeypatch):
    """All of 40 views, and all but each of them: to tell the first from the others takes all 40, after 2^40 trials."""
    monkeypatch.setattr(components_sets, "_MOST_CHECKS", 500_000)
    views = [f"v{i}" for i in range(40)]
    sets = [views, *([view for view in views if view != out] for out in views)]
    columns = {view: [i] for i, view in enumerate(views)}
    X = np.random.default_rng(0).exponential(size=(200, 40))
    with pytest.raises(rc.DataError, match="41 sets of 40 views are too many to tell apart"):
        rc.RCA(views=columns, sets=sets).fit(X)
