"""Discovery: the sign-flip test and the sequential search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra.arrays import power
from richcomponents.components.sets import SetSystem
from richcomponents.datasets import make_views
from richcomponents.moments import Moments
from richcomponents.sets.discover import _Search, _signs, discover_sets, most_directions, sign_flip
from richcomponents.sets.evidence import SetEvidence, WhiteViews
from tests.sets.population import Population

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


def test_what_all_four_views_share_is_subtracted_at_order_five():
    """From all 15 subsets and the default order; a state answers alike, and says which order it lacks."""
    sets = [tuple("abcd"), ("a", "b"), *"abcd"]
    data = make_views(20_000, 4, 1, sets=sets, kinds="exponential")
    model = rc.RCA(views=data.views, discover=True).fit(data.X)
    assert set(model.components_) == set(SetSystem.of(sets, "abcd"))
    assert max(model.evidence_["a", "b"].by_order) == 5
    state = rc.RCA(views=data.views, discover=True).fit_moments(Moments.of(data.X, order=5))
    assert {q: str(test) for q, test in state.evidence_.items()} == {
        q: str(test) for q, test in model.evidence_.items()
    }
    with pytest.raises(rc.DataError, match=r"order 5 are needed, .* make it with Moments.of\(X, order=5\)"):
        rc.RCA(views=data.views, discover=True).fit_moments(Moments.of(data.X))


def test_as_many_views_as_there_are_orders():
    data = make_views(500, 5, 1, sets=[(v,) for v in "abcde"])
    model = rc.RCA(views=data.views, discover=True).fit(data.X)
    assert set(model.components_) == {(v,) for v in "abcde"}
    data = make_views(500, 7, 1, sets=[(v,) for v in "abcdefg"])
    with pytest.raises(rc.DataError, match="order 7, and tests use orders up to 6"):
        rc.RCA(views=data.views, discover=True).fit(data.X)


def copies(population, order=4):
    """Every block is the population."""
    return SetEvidence(population.columns, Moments.of(np.repeat(population.rows, 20, axis=0), order, n_blocks=20))


COMMON = SetSystem.of([("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)], "abc")


def test_what_is_there_explains_exact_cumulants_and_less_does_not():
    population = Population(COMMON, dict.fromkeys("abc", 2), seed=2, order=4)
    search = _Search(copies(population), COMMON, 0.01, 0, {})
    for q in search.tested:
        entries = search._entries_about(q)
        for r in range(3):
            left = search._unexplained(entries, search._fit(entries, {**search.ranks, q: r}))
            size = max(np.abs(values).max() for values in left.values())
            assert size < 1e-3 if r == 2 else size > 0.1
        search.ranks[q] = 2


def test_values_are_free_of_the_error_of_the_fit():
    population = Population(COMMON, dict.fromkeys("abc", 2), seed=2, order=4)
    search = _Search(copies(population), COMMON, 0.01, 0, {})
    search.ranks["a", "b", "c"] = 2
    entries = search._entries_about(("a", "b"))
    fit = search._fit(entries, {**search.ranks, ("a", "b"): 2})
    shift = np.random.default_rng(0).normal(size=fit.x.shape)

    def wrong(step):
        values = search._unexplained(entries, replace(fit, x=fit.x + step * shift))
        return max(np.abs(held).max() for held in values.values())

    assert wrong(2e-3) / wrong(1e-3) == pytest.approx(4, rel=0.2)  # of second order


def white_evidence(data):
    rows = data.X - data.X.mean(axis=0)
    columns = {view: np.arange(part.start, part.stop) for view, part in data.views.items()}
    white = np.zeros((rows.shape[1],) * 2)
    for part in data.views.values():
        white[part, part] = power(np.cov(rows[:, part].T, bias=True), -0.5, 0.0)
    return SetEvidence(columns, Moments.of(rows @ white, 4))


def test_covariances_bound_ranks():
    pairs = {frozenset(pair): rank for pair, rank in [("ab", 2.0), ("ac", 1.0), ("bc", 1.0)]}
    widths = dict.fromkeys("abc", 4)
    everything = SetSystem.all("abc")
    abc, ab, bc = tuple("abc"), tuple("ab"), tuple("bc")
    assert most_directions(everything, abc, widths) == 4
    assert most_directions(everything, abc, widths, {}, pairs) == 1
    assert most_directions(everything, ab, widths, {abc: 1}, pairs) == 1
    assert most_directions(everything, ab, widths, {}, pairs) == 2
    assert most_directions(everything, bc, widths, {abc: 1}, pairs) == 1  # one is always tried
    assert most_directions(everything, bc, widths, {abc: 2}, pairs) == 4  # covariances that cancel say nothing
    common = SetSystem.of([abc, *"abc"], "abc")
    assert most_directions(common, abc, widths, {}, pairs) == 2  # a and b tell it from the others
    assert most_directions(everything, abc, {"a": 4, "b": 3, "c": 2}) == 2
    assert most_directions(common, abc, {"a": 4, "b": 2, "c": 3}) == 3


def test_shared_directions_are_those_of_the_loadings():
    rng = np.random.default_rng(0)
    C, D = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    covariance = np.block([[C @ C.T + np.diag([1, 2, 3, 4.0]), C @ D.T], [D @ C.T, D @ D.T + np.eye(3)]])
    white = WhiteViews.of(covariance, {"a": slice(0, 4), "b": slice(4, 7)})
    correlation = white.correlation(covariance)
    frame = white.narrowed(white.shared(correlation, 1e6, 0.01)).frames["a"]
    assert frame.to.shape == (2, 4)
    np.testing.assert_allclose(frame.back @ frame.to @ C, C, atol=1e-6)  # nothing of it is lost
    assert white.shared(correlation, 1e6, 0.01, {"a": 3})["a"].to.shape == (3, 4)


LABS = {("a", "b", "c"): "labs", ("a",): "gaussian", ("b",): "uniform", ("c",): "gaussian"}


@pytest.mark.parametrize("rank", [1, 2])
def test_hidden_labs_are_one_component_of_low_rank(rank):
    data = make_views(2000, 3, 4, sets=STRONG, kinds=LABS, ranks={tuple("abc"): rank}, random_state=8)
    found = rc.RCA(views=data.views, discover=True).fit(data.X)
    assert set(found.components_) == set(STRONG)
    assert found.ranks_[tuple("abc")] == found.evidence_[tuple("abc")].rank == rank
    assert set(found.ranks_) == {tuple("abc")}
    given = rc.RCA(views=data.views, sets=STRONG, rank={tuple("abc"): rank}).fit(data.X)
    for key, A in given.transforms_.items():
        np.testing.assert_allclose(found.transforms_[key], A, atol=1e-8)


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
@pytest.mark.parametrize(("seed", "options"), [(40, {}), (42, {"discover": True, "rank": {("a", "b"): 2}})])
def test_ranks_are_decided_within_the_directions_that_views_share(seed, options):
    """Of labs view b shows one direction to the others: ranks of two, automatic or given, were tested with more than that."""
    sets = {("a", "b"): "labs", ("b", "c"): "labs", ("a",): "gaussian", ("b",): "uniform", ("c",): "exponential"}
    widths, ranks = {"a": 2, "b": 4, "c": 2}, {("a", "b"): 1, ("b", "c"): 1}
    data = make_views(150, widths, sets=[*sets], kinds=sets, ranks=ranks, random_state=seed)
    found = rc.RCA(views=data.views, **options).fit(data.X)
    assert found.ranks_["a", "b"] == (2 if options else 1)


def test_a_missed_direction_of_three_views_is_not_three_pairs():
    data = make_views(3000, 3, 3, sets=STRONG, kinds=LABS, ranks={tuple("abc"): 1}, random_state=1)
    search = _Search(white_evidence(data), SetSystem.all("abc"), 0.01, 0, {})
    search.current = search.current.without(tuple("abc"))
    search.ranks = {("a", "b"): 1, ("a", "c"): 1, ("b", "c"): 1}
    search.reconsider(set())
    assert search.ranks == {tuple("abc"): 1}


PAIRED = [("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)]


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_that_shares_all_columns_with_a_common_part_is_no_other_pair(seed):
    """What {a, b} has of Cov(U_a, U_b) must not go to {a, b, c}, and then be missed in other covariances."""
    evidence = white_evidence(make_views(4000, 3, 3, sets=PAIRED, random_state=seed))
    system, tests = discover_sets(evidence, SetSystem.all("abc"))
    assert set(system) == set(PAIRED)
    assert tests["a", "b"].rank == tests["a", "b", "c"].rank == 3


def test_a_missed_pair_is_not_two_others():
    evidence = white_evidence(make_views(2000, 3, 3, sets=PAIRED, random_state=5))
    search = _Search(evidence, SetSystem.all("abc"), 0.01, 0, {})
    search.current = search.current.without(("a", "b"))
    search.ranks = {("a", "b", "c"): 3, ("a", "c"): 3, ("b", "c"): 3}
    search.reconsider(set())
    assert search.ranks == {("a", "b", "c"): 3, ("a", "b"): 3}


def test_two_pairs_are_no_direction_of_three_views():
    """It would show in the covariance of the third pair."""
    search = _Search(copies(Population(COMMON, dict.fromkeys("abc", 2), seed=2, order=4)), COMMON, 0.01, 0, {})
    search.ranks = {("a", "b"): 1, ("b", "c"): 1}
    assert search._subsets(tuple("abc")) == []
    search.ranks["a", "c"] = 1
    assert len(search._subsets(tuple("abc"))) == 4


MIXED = [("a", "b", "c"), ("a", "c"), ("b", "c"), ("a",), ("b",), ("c",)]


def test_a_set_that_was_just_missed_takes_the_place_of_one_inside_it():
    evidence = white_evidence(make_views(3000, 3, 3, sets=MIXED, random_state=4))
    search = _Search(evidence, SetSystem.all("abc"), 0.01, 0, {})
    search.current = search.current.without(tuple("abc"))
    search.ranks = {("a", "b"): 3, ("a", "c"): 3, ("b", "c"): 3}
    search.reconsider({tuple("abc")})
    assert search.ranks == {("a", "b", "c"): 3, ("a", "c"): 3, ("b", "c"): 3}
