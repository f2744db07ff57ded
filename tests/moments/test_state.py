"""The state: reproducible bits, a neutral element, blocks, targets, limits."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import richcomponents as rc
from richcomponents.algebra import packed_indices
from richcomponents.moments import Accumulator, Layout, Moments, Rows, partial_out
from richcomponents.moments import accumulator as accumulator_module
from richcomponents.moments.accumulator import reduce_rows
from richcomponents.moments.kernel import Workspace, default_executor, homogeneous_sums

EXECUTORS_HERE = ["numpy", "numba"] if default_executor() == "numba" else ["numpy"]  # numba is optional


def dense_moment(X, *factors):
    """E[x x x ... f f ...] with plain einsum."""
    operands, out = [], []
    for i, f in enumerate(factors):
        operands += [f, [0, i + 1]]
        out.append(i + 1)
    return np.einsum(*operands, out) / len(X)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    """Leaves of 16 rows, so that a few hundred rows make a deep tree; threads for small work too."""
    monkeypatch.setattr(Layout.__init__, "__defaults__", (4, 20, 16))
    monkeypatch.setattr(accumulator_module, "_SMALL", 0)


@pytest.mark.parametrize("executor", EXECUTORS_HERE)
@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_moments_of_every_order(rng, executor, order):
    X = rng.exponential(size=(333, 4)) + 100
    acc = Accumulator(order, X.mean(axis=0), executor=executor)
    acc.update(X)
    m, c = acc.moments(), X - X.mean(axis=0)
    assert m.n == 333
    for t in range(2, order + 1):
        np.testing.assert_allclose(m.moment(t), dense_moment(c, *[c] * t), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("executor", EXECUTORS_HERE)
@pytest.mark.parametrize("m", [2, 3, 11, 31])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kernel_with_weights(rng, executor, m, order):
    rows, shift, weight = rng.normal(size=(70, m - 1)), rng.normal(size=m - 1), rng.normal(size=70)
    h = np.hstack([np.ones((70, 1)), rows - shift])
    for w in (None, weight):
        expected = np.prod(h[:, packed_indices(m, order)], axis=2).T @ (np.ones(70) if w is None else w)
        result = homogeneous_sums(rows, shift, Workspace(m, order, executor), w)
        np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11)


def chunkings(n, rng):
    """Cut points: one piece, halves, odd pieces, single rows, two kinds of random pieces."""
    yield [0, n]
    yield [0, n // 2, n]
    yield [*range(0, n, 37), n]
    yield list(range(n + 1))
    for pieces in (5, 60):
        yield [0, *sorted(rng.choice(np.arange(1, n), pieces, replace=False).tolist()), n]


@pytest.mark.parametrize(("order", "n_blocks"), [(4, 4), (4, 1), (6, 1)])
def test_any_chunking_order_and_thread_count_gives_the_same_bits(rng, order, n_blocks):
    X = rng.exponential(size=(700, 3)) * [1, 1e3, 1e-3] + [0, 1e4, 5]
    shift = X[:50].mean(axis=0)
    options = {"n_blocks": n_blocks}
    reference = Moments.of(X, order, shift, **options)
    seen = 0
    for cuts in chunkings(700, rng):
        pieces = list(pairwise(cuts))
        for threads in (1, 3):
            rng.shuffle(pieces)
            acc = Accumulator(order, shift, threads=threads, **options)
            for low, high in pieces:
                acc.update(X[low:high], start=low)
            assert acc.moments() == reference
            np.testing.assert_array_equal(acc.moments().blocks, reference.blocks)
            seen += 1
    assert seen >= 10


def test_states_of_aligned_pieces_merge_to_the_same_bits_in_any_order(rng):
    X = rng.normal(size=(400, 3))
    shift = np.zeros(3)
    grain = 4 * 16  # n_blocks * leaf rows
    parts = [Moments.of(X[s : s + grain], 4, shift, start=s, n_blocks=4) for s in range(0, 400, grain)]
    whole = Moments.of(X, 4, shift, n_blocks=4)
    for _ in range(5):
        rng.shuffle(parts)
        assert sum(parts, start=Moments.empty(3, 4, n_blocks=4)) == whole


def test_snapshots_do_not_disturb_the_stream(rng):
    X = rng.normal(size=(300, 2))
    acc = Accumulator(4, np.zeros(2))
    acc.update(X[:123])
    early = acc.moments()
    acc.update(X[123:])
    assert early == Moments.of(X[:123], 4, np.zeros(2))
    assert acc.moments() == Moments.of(X, 4, np.zeros(2))


@given(seed=st.integers(0, 99), cut=st.integers(1, 99), order=st.integers(2, 6))
def test_plus_is_batch_to_rounding_even_with_other_shifts(seed, cut, order):
    X = np.random.default_rng(seed).exponential(size=(100, 2))
    one, two = Moments.of(X[:cut], order), Moments.of(X[cut:], order, start=cut)
    whole = Moments.of(X, order)
    for total in (one + two, two + one):
        assert total.n == 100
        for t in range(2, order + 1):
            np.testing.assert_allclose(total.moment(t), whole.moment(t), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(total.mean, whole.mean, rtol=1e-12)


def test_empty_is_the_neutral_element(rng):
    m = Moments.of(rng.normal(size=(60, 3)))
    empty = Moments.empty(3)
    assert empty + m == m
    assert m + empty == m
    assert (empty + empty).is_empty
    assert sum([m], start=empty) == m


def test_states_of_different_kinds_do_not_add(rng):
    with pytest.raises(ValueError, match="different kinds"):
        Moments.of(rng.normal(size=(9, 3))) + Moments.of(rng.normal(size=(9, 2)))


def test_blocks_are_interleaved_rows_and_add_up(rng):
    X = rng.normal(size=(97, 2))
    m = Moments.of(X, 3, np.zeros(2), n_blocks=5)
    assert m.block_sizes.tolist() == [20, 20, 19, 19, 19]
    for b in range(5):
        np.testing.assert_allclose(m.blocks[b][m.layout.orders[1]], X[b::5].sum(axis=0), rtol=1e-12, atol=1e-12)


def test_without_a_block_is_the_state_of_the_other_rows(rng):
    X = rng.normal(size=(97, 2))
    m = Moments.of(X, 4, np.zeros(2), n_blocks=5).without([3])
    rest = Moments.of(X[np.arange(97) % 5 != 3], 4, np.zeros(2))
    np.testing.assert_allclose(m.total, rest.total, rtol=1e-11, atol=1e-11)


def test_block_covariances_average_to_the_covariance(rng):
    X = rng.normal(size=(97, 3))
    m = Moments.of(X, 3, n_blocks=5)
    weighted = np.average(m.block_covariances(), axis=0, weights=m.block_sizes)
    np.testing.assert_allclose(weighted, m.covariance(unbiased=False), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(m.covariance(), np.cov(X.T), rtol=1e-10)


def test_groups_stay_in_one_block(rng):
    groups = rng.integers(0, 30, size=200)
    X = np.column_stack([groups, rng.normal(size=200)]).astype(float)
    m = Moments.of(X, 2, np.zeros(2), groups=groups, n_blocks=6)
    assert m.n == 200
    order = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    expected = np.array([sum(g for g in groups if order[g] % 6 == b) for b in range(6)])
    np.testing.assert_allclose(m.blocks[:, m.layout.orders[1]][:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(m.covariance(), np.cov(X.T), rtol=1e-10)


def test_a_translated_state_has_the_same_central_moments(rng):
    m = Moments.of(rng.exponential(size=(150, 3)) + 50, 4)
    moved = m.shifted_to(m.shift + 1.5)
    np.testing.assert_allclose(moved.moment(4), m.moment(4), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(moved.covariance(), m.covariance(), rtol=1e-9, atol=1e-9)


def test_select_is_the_state_of_those_columns(rng):
    X = rng.exponential(size=(90, 4))
    for order in (4, 6):
        small = Moments.of(X, order, np.zeros(4)).select([3, 0])
        direct = Moments.of(X[:, [3, 0]], order, np.zeros(2))
        for t in range(2, order + 1):
            np.testing.assert_allclose(small.moment(t), direct.moment(t), rtol=1e-10, atol=1e-12)


def test_lower_orders_and_one_block_are_parts_of_a_state(rng):
    X = rng.exponential(size=(90, 3))
    state = Moments.of(X, 6, np.zeros(3), n_blocks=4)
    low = Moments.of(X, 4, np.zeros(3), n_blocks=4)
    assert state.up_to(4).layout == low.layout
    np.testing.assert_allclose(state.up_to(4).blocks, low.blocks, rtol=1e-13)
    assert state.up_to(6) is state
    np.testing.assert_array_equal(state.pooled().total, state.total)
    assert state.pooled().layout.n_blocks == 1
    assert Moments.empty(3, 6).pooled().is_empty


def test_partialling_out_from_the_state_equals_row_wise(rng):
    W = rng.normal(size=(200, 2))
    X, y = rng.normal(size=(200, 3)) + W @ rng.normal(size=(2, 3)), rng.normal(size=200) + W[:, 0]
    table = np.column_stack([X, y, W])
    m = Moments.of(table, 2)
    partial = partial_out(m, [4, 5])
    design = np.column_stack([np.ones(200), W])
    left = table[:, :4] - design @ np.linalg.lstsq(design, table[:, :4], rcond=None)[0]
    np.testing.assert_allclose(partial.state(m).covariance(unbiased=False), left.T @ left / 200, rtol=1e-9, atol=1e-12)
    again = reduce_rows(Rows(table).mapped(partial.residuals), Accumulator(4, np.zeros(4)))
    np.testing.assert_allclose(again.covariance(unbiased=False), left.T @ left / 200, rtol=1e-9, atol=1e-12)
    blocks = np.average(partial.state(m).block_covariances(), axis=0, weights=m.block_sizes)
    np.testing.assert_allclose(blocks * 200, left.T @ left, rtol=1e-9, atol=1e-9)


def test_collinear_and_constant_covariates_are_harmless(rng):
    W = rng.normal(size=(200, 2))
    X = rng.normal(size=(200, 3)) + W @ rng.normal(size=(2, 3))
    known = np.column_stack([W, W[:, 0] - W[:, 1], np.ones(200)])
    with pytest.warns(rc.ConstantColumnWarning):
        state = Moments.of(np.column_stack([X, known]), 2)
    partial = partial_out(state, [3, 4, 5, 6])
    left = partial.residuals(np.column_stack([X, known]))
    np.testing.assert_allclose(left.T @ (W - W.mean(axis=0)), 0, atol=1e-9)
    simple = Moments.of(np.column_stack([X, W]), 2)
    plain = partial_out(simple, [3, 4])
    np.testing.assert_allclose(partial.state(state).covariance(), plain.state(simple).covariance(), rtol=1e-9)


def test_rows_come_from_arrays_files_and_iterators(rng, tmp_path):
    X = rng.normal(size=(150, 3))
    np.save(tmp_path / "x.npy", X)
    shift = np.zeros(3)
    reference = Moments.of(X, 4, shift)
    assert Moments.of(tmp_path / "x.npy", 4, shift) == reference
    assert Moments.of((X[i : i + 11] for i in range(0, 150, 11)), 4, shift) == reference
    first_block_mean = Moments.of(iter([X[:40], X[40:]]), 4)
    np.testing.assert_array_equal(first_block_mean.shift, X[:40].mean(axis=0))
    with pytest.raises(rc.DataError, match="there is no file"):
        Moments.of(tmp_path / "x.csv")


# ---- bad input


def test_watching_changes_no_bit_of_an_iterator(rng):
    X = rng.exponential(size=(80_000, 2)) + np.linspace(0, 5, 80_000)[:, None]
    assert Moments.of(iter([X]), 3, progress=True) == Moments.of(iter([X]), 3)


def test_missing_values_name_the_column_and_change_nothing(rng):
    X = rng.normal(size=(30, 3))
    acc = Accumulator(4, np.zeros(3), names=["age", "bmi", "crp"])
    acc.update(X)
    before = acc.moments()
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(rc.DataError, match=r"'bmi'.*row 7.*impute"):
        acc.update(bad)
    bad[7, 1] = np.inf
    with pytest.raises(rc.DataError, match="'bmi'"):
        acc.update(bad)
    assert acc.moments() == before
    with pytest.raises(rc.DataError, match="column 1"):
        Moments.of(bad)


def test_rows_given_twice_are_refused(rng):
    X = rng.normal(size=(100, 2))
    acc = Accumulator(4, np.zeros(2))
    acc.update(X[:50])
    acc.update(X[60:], start=60)
    for low, high in ((40, 55), (59, 61), (99, 120), (0, 100)):
        with pytest.raises(rc.DataError, match="overlap"):
            acc.update(np.zeros((high - low, 2)), start=low)
    acc.update(X[50:60], start=50)
    assert acc.moments() == Moments.of(X, 4, np.zeros(2))


def test_a_refused_update_changes_nothing(rng):
    X = rng.normal(size=(60, 2))
    acc = Accumulator(4, np.zeros(2))
    acc.update(X[:40])
    for bad, start, message in (
        (X[:10] * 1e200, 40, "rescale"),
        (X[:10], 35, "overlap"),
        (X[:, :1], 40, "expected rows"),
    ):
        with pytest.raises(rc.DataError, match=message):
            acc.update(bad, start=start)
    acc.update(np.zeros((0, 2)), start=7)
    acc.update(X[40:])
    assert acc.moments() == Moments.of(X, 4, np.zeros(2))
    with pytest.raises(ValueError, match="numpy, numba"):
        Accumulator(executor="gpu")


def test_grouped_rows_come_whole(rng):
    X = rng.normal(size=(50, 2))
    acc = Accumulator(2, np.zeros(2))
    acc.grouped(["a", "b"] * 25)
    acc.update(X)
    with pytest.raises(rc.DataError, match="accumulator of their own"):
        acc.update(X)
    late = Accumulator(2, np.zeros(2))
    late.grouped(np.zeros(50))
    with pytest.raises(rc.DataError, match="without gaps"):
        late.update(X[20:], 20)
    with pytest.raises(ValueError, match="start must be 0"):
        Moments.of(X, 2, groups=np.zeros(50), start=3)


def test_copies_of_an_accumulator_are_independent(rng):
    X = rng.normal(size=(100, 2))
    acc = Accumulator(4, np.zeros(2))
    acc.update(X[:70])
    twin = acc.copy()
    twin.update(X[70:])
    assert acc.moments() == Moments.of(X[:70], 4, np.zeros(2))
    assert twin.moments() == Moments.of(X, 4, np.zeros(2))
    assert pickle.loads(pickle.dumps(twin)).moments() == twin.moments()


def test_a_state_cannot_be_changed_from_outside(rng):
    m = Moments.of(rng.normal(size=(30, 2)))
    for array in (m.mean, m.total, m.blocks, m.central_total, m.shift, m.variances):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_columns_are_chosen_by_number_mask_or_slice(rng):
    X = rng.normal(size=(40, 3))
    m = Moments.of(X, 2)
    for columns, same in (([-1], [2]), (np.array([True, False, True]), [0, 2]), (slice(1, None), [1, 2])):
        np.testing.assert_array_equal(m.select(columns).covariance(), m.select(same).covariance())
    for columns, error in (([3], IndexError), ([0.5], ValueError), ([True, False], ValueError)):
        with pytest.raises(error):
            m.select(columns)


def test_from_source_reads_the_columns_asked_for(rng, tmp_path):
    table = rng.normal(size=(90, 4))
    np.save(tmp_path / "t.npy", table)
    reference = Moments.of(table[:, [0, 2, 1]], 4, np.zeros(3))
    blocks = [table[i : i + 13] for i in range(0, 90, 13)]
    for source in (tmp_path / "t.npy", blocks, iter(blocks)):
        assert Moments.from_source(source, 4, columns=[0, 2, 1], shift=np.zeros(3)) == reference
    assert Moments.from_source(blocks, 4).n == 90


def test_constant_columns_warn_and_have_zero_cumulants(rng):
    X = np.column_stack([rng.normal(size=50), np.full(50, 0.1)])
    with pytest.warns(rc.ConstantColumnWarning, match="column"):
        m = Moments.of(X)
    k = rc.Cumulants(m)
    assert (k.tensor([1], [0, 1], [0, 1], [0, 1]) == 0).all()
    assert k.tensor([0], [0]).item() == pytest.approx(X[:, 0].var(ddof=1), rel=1e-12)


@pytest.mark.parametrize(("scale", "order"), [(1e80, 4), (1e-80, 4), (1e55, 6), (1e-200, 2)])
def test_powers_outside_floating_point_are_refused(rng, scale, order):
    X = rng.normal(size=(20, 2)) * [1, scale]
    with pytest.raises(rc.DataError, match=r"column 1 .* rescale"):
        Moments.of(X, order)


@pytest.mark.filterwarnings("default::richcomponents.PrecisionWarning")
def test_a_distant_shift_is_said(rng):
    X = rng.normal(size=(50, 2)) + np.array([0, 1e4])
    with pytest.warns(rc.PrecisionWarning, match=r"column 1 .* shift="):
        Moments.of(X, 4, np.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Moments.of(X, 4)


def test_too_much_memory_is_refused_before_it_is_taken():
    with pytest.raises(rc.CapacityError, match=r"order 4 of 400 columns.*Lower `order`.*rank.*needs no such state"):
        Accumulator(4, np.zeros(400))
    Accumulator(2, np.zeros(400))
    with pytest.raises(rc.CapacityError):
        Accumulator(4, np.zeros(10), memory_limit=1e4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 1}, "order must be between 2 and 6"),
        ({"order": 7}, "order must be between 2 and 6"),
        ({"n_blocks": 0}, "n_blocks must be at least 1"),
    ],
)
def test_settings_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Moments.of(np.eye(5), **arguments)


def test_shapes_are_checked(rng):
    acc = Accumulator(4, np.zeros(3))
    with pytest.raises(rc.DataError, match="expected rows with 3 columns, got 2"):
        acc.update(rng.normal(size=(5, 2)))
    with pytest.raises(rc.DataError, match="two-dimensional"):
        acc.update(np.zeros(3))
    with pytest.raises(rc.DataError, match="columns are unknown"):
        Accumulator().moments()
    with pytest.raises(rc.DataError, match="no rows"):
        Moments.of(np.zeros((0, 3)))
    with pytest.raises(rc.DataError, match="at least 1 rows"):
        _ = Moments.empty(3).mean


def test_a_constant_stream_has_exactly_zero_variance():
    accumulator = Accumulator(4)
    accumulator.update(np.full((1000, 2), 0.1))
    with pytest.warns(rc.ConstantColumnWarning):
        state = accumulator.moments()
    np.testing.assert_array_equal(state.covariance(), np.zeros((2, 2)))


def test_many_small_blocks_are_held_in_few_fragments(rng, monkeypatch):
    monkeypatch.setattr(Layout.__init__, "__defaults__", (4, 20, 2048))
    X = rng.normal(size=(9000, 2))
    pieces = [(i, X[i : i + 20]) for i in range(0, 9000, 20)]
    for order in (pieces, [pieces[i] for i in rng.permutation(len(pieces))]):
        accumulator = Accumulator(3, np.zeros(2))
        for start, rows in order:
            accumulator.update(rows, start)
        assert accumulator.moments() == Moments.of(X, 3, np.zeros(2))
    accumulator = Accumulator(3, np.zeros(2))
    for start, rows in pieces:
        accumulator.update(rows, start)
    assert max(map(len, accumulator._fragments.values())) < 32


@pytest.mark.filterwarnings("default::richcomponents.PrecisionWarning")
def test_all_digits_lost_is_said(rng):
    X = 1e9 + rng.normal(size=(1000, 2))
    with pytest.warns(rc.PrecisionWarning, match="from the shift, which costs all digits"):
        lost = Moments.of(X, 2, np.array([0.0, 1e9]))
    assert lost.variances[0] <= 0  # the case that used to pass in silence


def test_a_refused_first_block_leaves_no_shift(rng):
    X = rng.normal(size=(500, 2))
    accumulator = Accumulator(4)
    wild = X.copy()
    wild[3, 1] = 1.5e200
    with pytest.raises(rc.DataError, match="column 1 varies by"):
        accumulator.update(wild)
    accumulator.update(X)
    np.testing.assert_array_equal(accumulator.moments().shift, Accumulator.moments(_filled(X)).shift)


def _filled(X):
    accumulator = Accumulator(4)
    accumulator.update(X)
    return accumulator


def test_the_grain_is_the_least_number_of_rows_after_which_all_leaves_are_complete():
    assert Accumulator(2, np.zeros(1), n_blocks=3).grain == 3 * Layout(1).leaf
