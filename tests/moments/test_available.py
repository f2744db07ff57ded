"""Moments of rows with gaps, against their formulas by brute force."""

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra import packed_indices
from richcomponents.data.rows import Rows
from richcomponents.moments.available import Available, Fill, Gaps, drawn_blocks, expected, patterns_of
from richcomponents.moments.data import AffineMap

VIEWS = {"U": np.arange(3), "V": np.arange(3, 5)}


@pytest.fixture
def table(rng):
    mixed = rng.normal(size=(5, 5)) + 2 * np.eye(5)
    return rng.exponential(size=(400, 5)) @ mixed + 3.0


def available(X, n_blocks=1, groups=None, weight=None):
    rows = Rows(X) if weight is None else Rows(X).weighted_by(weight)
    return Available.of(rows, Gaps.of(rows, VIEWS), n_blocks, groups)


def without_view(X, rng, share=0.5):
    out = X.copy()
    out[rng.random(len(X)) < share, 3:] = np.nan
    return out


def with_holes(X, rng, share=0.15):
    return np.where(rng.random(X.shape) < share, np.nan, X)


def test_rows_without_gaps_are_summed_as_ever(table):
    found = available(table, 20).moments(4)
    whole = rc.Moments.of(table, 4, found.shift, n_blocks=20, groups=drawn_blocks(400, 20))
    np.testing.assert_allclose(found.blocks, whole.blocks, rtol=1e-10, atol=1e-8)


def test_a_view_that_is_missing_is_predicted_as_maximum_likelihood_does(table, rng):
    X = without_view(table, rng)
    seen = np.isfinite(X[:, 3])
    U, mean, C = X[:, :3], X[seen].mean(axis=0), np.cov(X[seen].T, bias=True)
    slope = C[3:, :3] @ np.linalg.inv(C[:3, :3])
    everyone = np.cov(U.T, bias=True)
    expected = np.block(
        [
            [everyone, everyone @ slope.T],
            [slope @ everyone, C[3:, 3:] + slope @ (everyone - C[:3, :3]) @ slope.T],
        ]
    )
    found = available(X).moments(2)
    assert found.n == 400
    np.testing.assert_allclose(found.mean[:3], U.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.mean[3:], mean[3:] + slope @ (U.mean(axis=0) - mean[:3]), rtol=1e-10)
    np.testing.assert_allclose(found.covariance(unbiased=False), expected, rtol=1e-9, atol=1e-9)


def test_of_each_order_rows_with_some_views_correct_those_with_all(table, rng):
    """The formula of the module, literally, for three patterns and order three."""
    X, who = table.copy(), rng.integers(0, 4, size=400)
    X[who == 0, 3:], X[who == 1, :3] = np.nan, np.nan
    both = X[who > 1]
    fill = expected(Rows(X), Gaps.of(Rows(X), VIEWS))

    def third(rows):
        centred = rows - both.mean(axis=0)
        return np.einsum("ni,nj,nk->ijk", centred, centred, centred) / len(rows)

    total = third(both)
    for lacking in (0, 1):
        some = X[who == lacking]
        masked = np.where(np.isfinite(some[:1]), both, np.nan)
        total = total + len(some) / 400 * (third(fill(some)) - third(fill(masked)))
    found = available(X).moments(4).shifted_to(both.mean(axis=0))
    entries = found.total[found.layout.orders[3]] / 400
    np.testing.assert_allclose(entries, total[tuple(packed_indices(5, 3).T)], rtol=1e-9, atol=1e-9)


def test_rows_with_few_gaps_stand_in_for_complete_ones(table, rng):
    X = with_holes(table, rng, 0.45)
    rows = Rows(X)
    gaps = Gaps.of(rows, VIEWS)
    holes, whole = np.isnan(X).sum(axis=1), np.isfinite(X[:, :3]).any(axis=1) & np.isfinite(X[:, 3:]).any(axis=1)
    assert gaps.complete.sum() < 0.1 * whole.sum() <= gaps.stand_ins.sum()
    most = holes[gaps.stand_ins].max()
    np.testing.assert_array_equal(gaps.stand_ins, whole & (holes <= most))


def test_predictions_come_from_the_likelihood_of_what_is_there(table, rng):
    """At the maximum the score of normal rows, pattern by pattern, is zero."""
    X = with_holes(table, rng)
    rows = Rows(X)
    fill = expected(rows, Gaps.of(rows, VIEWS))
    score, information = np.zeros((5, 5)), 0.0
    for there, at in patterns_of(np.isfinite(X)):
        inverse = np.linalg.inv(fill.covariance[np.ix_(there, there)])
        centred = (X[at][:, there] - fill.mean[there]) @ inverse
        score[np.ix_(there, there)] += centred.T @ centred - len(at) * inverse
        information += len(at) * np.trace(inverse)
    assert np.abs(score).max() < 0.02 * information


@pytest.mark.parametrize("gaps", [without_view, with_holes])
def test_maps_of_the_columns_are_maps_of_the_moments(table, rng, gaps):
    data, into = available(gaps(table, rng), 10), rng.normal(size=(5, 2))
    whole = data.moments(4)
    mapped = AffineMap(whole.mean, into)
    expected = mapped.of_state(whole)
    for found in (data.moments(4, mapped), data.mapped(mapped).moments(4)):
        assert found.layout == expected.layout
        about = found.shifted_to(np.zeros(2)).blocks
        np.testing.assert_allclose(about, expected.shifted_to(np.zeros(2)).blocks, rtol=1e-8, atol=1e-6)
    low = data.moments(2)
    np.testing.assert_allclose(low.shifted_to(whole.shift).covariance(), whole.covariance(), rtol=1e-9, atol=1e-9)


def test_frequency_weights_are_rows_repeated(table, rng):
    X, weight = without_view(table, rng), rng.integers(0, 3, size=400)
    found, expected = available(X, weight=weight).moments(4), available(np.repeat(X, weight, axis=0)).moments(4)
    np.testing.assert_allclose(found.shifted_to(expected.shift).total, expected.total, rtol=1e-9, atol=1e-7)


def test_gaps_cost_rows_but_never_more_than_leaving_rows_out(rng):
    X = rng.normal(size=(4000, 5))
    X[::2, 3:] = np.nan
    data = available(X, 20)
    effect = data.dependence(AffineMap(np.zeros(5), np.eye(5)), np.zeros(2), 3).effect
    assert np.all(effect <= 2.0 + 1e-9)
    assert np.all(effect > 1.4)  # nothing is shared: rows without V say nothing about Cov(U, V)
    assert len(np.unique(drawn_blocks(4000, 20)[::2], return_counts=True)[1]) == 20  # not in step with the gaps


def test_predictions_of_gaps_are_those_of_least_squares(rng):
    C = np.cov(rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4)), rowvar=False)
    fill, row = Fill(np.arange(4.0), C), np.array([[1.0, np.nan, -2.0, np.nan]])
    there = np.isfinite(row[0])
    slope = C[np.ix_(~there, there)] @ np.linalg.inv(C[np.ix_(there, there)])
    np.testing.assert_allclose(fill(row)[0, ~there], np.arange(4.0)[~there] + slope @ (row[0] - np.arange(4.0))[there])
    np.testing.assert_array_equal(fill(row)[0, there], row[0, there])
    left = C[np.ix_(~there, ~there)] - slope @ C[np.ix_(there, ~there)]
    np.testing.assert_allclose(fill.error(there)[np.ix_(~there, ~there)], left)
    assert not fill.error(there)[there].any()
    np.testing.assert_allclose(fill(np.full((1, 4), np.nan))[0], fill.mean)
    twice = Fill(np.zeros(3), np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]))
    np.testing.assert_allclose(twice(np.array([[2.0, 2.0, np.nan]])), [[2.0, 2.0, 1.0]])


def test_patterns(rng):
    there = rng.random((50, 11)) < 0.5
    there[::3] = there[0]
    for pattern, at in patterns_of(there):
        assert (there[at] == pattern).all()
    assert sorted(np.concatenate([at for _, at in patterns_of(there)]).tolist()) == list(range(50))
    assert patterns_of(there[:0]) == []


def test_what_cannot_be_told_is_said(table, rng):
    never = table.copy()
    never[:, 1] = np.nan
    with pytest.raises(rc.DataError, match="1 holds no value at all"):
        available(never)
    few = table.copy()
    few[15:, 3:] = np.nan
    with pytest.raises(rc.DataError, match=r"385 lack all of 'V'. Use fewer blocks \(n_blocks=\)"):
        available(few, 10)
    with pytest.raises(rc.DataError, match="order five and six need rows without gaps"):
        available(table).moments(5)


def test_a_note_counts_what_is_missing(table):
    X = table[:10].copy()
    X[:3, 3:], X[4, 0], X[5] = np.nan, np.inf, np.nan
    assert Gaps.of(Rows(X), VIEWS).note() == (
        "Of 10 rows 5 are complete; 1 lack all of 'U', 4 lack all of 'V', 1 lack single values."
    )
