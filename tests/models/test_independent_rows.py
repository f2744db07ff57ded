"""Tests, variances and intervals count independent rows, not rows: groups, weights, covariates; and ranks not excluded."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import helmert

import richcomponents as rc
from richcomponents.moments import block_numbers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fitted(X, **reading):
    return rc.ContrastiveRCA(views=4).fit(X, **reading)


def repeated_measures(seed, subjects=100, repeats=10, d=8):
    """Independent columns, half of their variance between subjects."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(subjects), repeats)
    between = rng.normal(size=(subjects, d + 1))[subject]
    rows = (between + rng.normal(size=between.shape)) / np.sqrt(2)
    return rows[:, :d], rows[:, d], subject


@pytest.fixture
def table(rng):
    return rng.normal(size=(150, 8)) + 0.4 * rng.normal(size=(150, 1)), rng.normal(size=150)


def same_tests(one, two, rtol=1e-9):
    a, b = one.diagnostics_, two.diagnostics_
    assert a.rank == b.rank
    assert a.independent_rows == pytest.approx(b.independent_rows, rel=rtol)
    np.testing.assert_allclose(a.rank_p_values, b.rank_p_values, rtol=rtol)
    assert a.largest_rank == b.largest_rank


# ---- laws


def test_repeating_every_row_says_nothing_new(table, rng):
    X, y = table
    copies = np.repeat(np.arange(150), 7)[rng.permutation(1050)]
    once, often, weighted = fitted(X), fitted(X[copies], groups=copies), fitted(X, sample_weight=np.full(150, 7))
    same_tests(once, often)
    same_tests(once, weighted)
    assert weighted.diagnostics_.independent_rows == pytest.approx(150, rel=1e-12)
    expected = once.outcome_test(X, y).p_value
    assert often.outcome_test(X[copies], y[copies]).p_value == pytest.approx(expected, rel=1e-9)
    assert weighted.outcome_test(X, y).p_value == pytest.approx(expected, rel=1e-9)
    assert once.outcome_test(X, y, sample_weight=np.full(150, 7)).p_value == pytest.approx(expected, rel=1e-9)


def test_weights_are_groups_of_copies(table, rng):
    X, y = table
    w = rng.integers(0, 9, size=150)
    copies = np.repeat(np.arange(150), w)
    one, two = fitted(X, sample_weight=w), fitted(X[copies], groups=copies)
    same_tests(one, two)
    assert one.diagnostics_.independent_rows < (w > 0).sum()
    assert one.outcome_test(X, y).p_value == pytest.approx(two.outcome_test(X[copies], y[copies]).p_value, rel=1e-9)


def test_groups_of_one_row_and_weights_of_one_change_nothing(table):
    X, y = table
    plain = fitted(X)
    for reading in ({"groups": np.arange(150)}, {"sample_weight": np.ones(150)}):
        other = fitted(X, **reading)
        same_tests(plain, other, rtol=1e-12)
        assert other.outcome_test(X, y).p_value == pytest.approx(plain.outcome_test(X, y).p_value, rel=1e-9)


def test_covariates_cost_rows_like_a_rotation_that_leaves_them_out(table, rng):
    X, y = table
    W = rng.normal(size=(150, 60))
    known = rc.ContrastiveRCA(views=4, covariates=list(range(8, 68))).fit(np.hstack([X, W]))
    free = np.linalg.svd(np.column_stack([np.ones(150), W]))[0][:, 61:]  # all that is orthogonal to 1 and W
    turn = helmert(90).T @ free.T  # 90 rows with mean zero
    rotated = fitted(turn @ X)
    same_tests(known, rotated)
    np.testing.assert_allclose(
        known.components_["S1"].covariance, rotated.components_["S1"].covariance, rtol=1e-9, atol=1e-12
    )
    one, two = known.outcome_test(np.hstack([X, W]), y), rotated.outcome_test(turn @ X, turn @ y)
    assert one.df == pytest.approx(two.df)
    assert one.p_value == pytest.approx(two.p_value, rel=1e-9)


def test_copies_of_a_table_with_covariates_cost_no_more_than_the_table(table, rng):
    X, y = table
    Z = np.hstack([X, rng.normal(size=(150, 30))])
    model = rc.ContrastiveRCA(views=4, covariates=list(range(8, 38)))
    copies = np.repeat(np.arange(150), 5)
    once = rc.ContrastiveRCA(views=4, covariates=list(range(8, 38))).fit(Z)
    often = model.fit(Z[copies], groups=copies)
    same_tests(once, often, rtol=1e-8)
    np.testing.assert_allclose(often.components_["S1"].covariance, once.components_["S1"].covariance, rtol=1e-9)
    weighted = rc.ContrastiveRCA(views=4, covariates=list(range(8, 38))).fit(Z, sample_weight=np.full(150, 5))
    same_tests(once, weighted, rtol=1e-8)
    assert weighted.outcome_test(Z, y).p_value == pytest.approx(once.outcome_test(Z, y).p_value, rel=1e-8)


def test_covariates_do_not_shrink_coefficients(rng):
    """At full rank the coefficients without evidence are those of least squares on everything."""
    data = rc.datasets.make_contrastive(300, d=4, S2="gaussian", random_state=2)
    W = rng.normal(size=(300, 100))
    X = np.hstack([data.X, W])
    model = rc.ContrastiveRCA(views=4, rank="full", covariates=list(range(8, 108))).fit(X)
    expected = np.linalg.lstsq(np.column_stack([np.ones(300), X]), data.y, rcond=None)[0][1:5]
    np.testing.assert_allclose(model.calibrate(X, data.y).residualised, expected, rtol=1e-8)


def test_covariates_that_leave_no_row_are_refused(rng):
    X = rng.normal(size=(50, 60))
    with pytest.raises(rc.DataError, match="covariates leave nothing of 50 rows"):
        rc.ContrastiveRCA(views=4, covariates=list(range(8, 60))).fit(X)


def test_the_bits_do_not_depend_on_how_rows_come(tmp_path, rng):
    X, _, subject = repeated_measures(3, subjects=700, repeats=10)
    mixed = rng.permutation(len(X))
    X, subject = X[mixed], subject[mixed]
    np.save(tmp_path / "table.npy", X)
    inside, outside = fitted(X, groups=subject), fitted(tmp_path / "table.npy", groups=subject)
    assert inside.diagnostics_.independent_rows == outside.diagnostics_.independent_rows
    np.testing.assert_array_equal(inside.diagnostics_.rank_p_values, outside.diagnostics_.rank_p_values)


# ---- states


def test_blocks_of_a_state_are_its_units(tmp_path):
    X, _, subject = repeated_measures(4)
    state = rc.Moments.of(X, 4, groups=subject)
    kept = state.folded()
    kept.save(tmp_path / "state.npz", force=True)
    expected = fitted(X, groups=block_numbers(len(X), 20, subject))
    for each in (
        state,
        kept,
        rc.Moments.load(tmp_path / "state.npz"),
        state + rc.Moments.empty(8),
        state.select(range(8)),
    ):
        same_tests(rc.ContrastiveRCA(views=4).fit_moments(each), expected, rtol=1e-7)
    assert not rc.Moments.of(X, 4).dependent
    assert rc.Moments.of(X, 4, sample_weight=np.full(len(X), 2)).dependent


def test_a_saved_model_remembers_its_rows(tmp_path):
    X, y, subject = repeated_measures(5)
    model = fitted(X, groups=subject)
    model.save(tmp_path / "model.npz")
    again = rc.load(tmp_path / "model.npz")
    assert again.outcome_test(X, y) == model.outcome_test(X, y)
    assert again.diagnostics_.independent_rows == model.diagnostics_.independent_rows


def test_rows_of_unknown_dependence_are_not_taken_for_independent():
    X, y, subject = repeated_measures(6)
    model = fitted(X, groups=subject)
    with pytest.raises(rc.DataError, match="pass groups="):
        model.outcome_test(X[:500], y[:500])
    assert model.outcome_test(X[:500], y[:500], groups=subject[:500]).df[1] < 200
    assert model.outcome_test(X[:500], y[:500], groups=range(500)).df == pytest.approx((4, 495))
    streamed = fitted(iter([X[:600], X[600:]]), groups=subject)
    assert streamed.diagnostics_.independent_rows < 600
    with pytest.raises(rc.DataError, match="pass groups="):
        streamed.outcome_test(X, y)


# ---- sizes, roughly (benchmarks/sizes.py measures them)


@pytest.mark.parametrize("repeats", [10, 50])
def test_repeated_measures_share_nothing_by_themselves(repeats):
    ranks, p_values, states = [], [], []
    for seed in range(20):
        X, y, subject = repeated_measures(seed, 1000 // repeats, repeats)
        model = fitted(X, groups=subject)
        ranks.append(model.rank_)
        p_values.append(model.outcome_test(X, y).p_value)
        states.append(rc.ContrastiveRCA(views=4).fit_moments(rc.Moments.of(X, 4, groups=subject)).rank_)
    assert np.sum(np.array(ranks) > 0) <= 2
    assert np.sum(np.array(states) > 0) <= 2
    assert np.sum(np.array(p_values) < 0.05) <= 4


def test_weighted_rows_share_nothing_by_themselves(rng):
    found = [fitted(rng.normal(size=(100, 8)), sample_weight=np.full(100, 30)).rank_ for _ in range(10)]
    assert np.sum(np.array(found) > 0) <= 1


def test_many_covariates_share_nothing_by_themselves(rng):
    models = []
    for _ in range(10):
        model = rc.ContrastiveRCA(views=4, covariates=list(range(8, 108)))
        models.append(model.fit(rng.normal(size=(200, 108))))
    assert np.sum([m.rank_ > 0 for m in models]) <= 1
    variances = [np.diag(m.components_["S1"].covariance).mean() for m in models if m.rank_ == 0]
    assert np.mean(variances) == pytest.approx(1, abs=0.1)


def test_a_regression_on_repeated_measures_is_not_called_misspecified():
    for seed in range(10):
        X, y, subject = repeated_measures(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", rc.errors.SpecificationWarning)
            rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(X, y, groups=subject)


def test_general_rca_knows_groups_too():
    X, y, subject = repeated_measures(7, d=4)
    copies = np.repeat(np.arange(len(X)), 4)
    views = {"a": [0, 1], "b": [2, 3]}
    one = rc.RCA(views=views).fit(X).outcome_test(X, y, ("a",))
    two = rc.RCA(views=views).fit(X[copies], groups=copies).outcome_test(X[copies], y[copies], ("a",))
    assert two.p_value == pytest.approx(one.p_value, rel=1e-8)
    grouped = rc.RCA(views=views).fit(X, groups=subject)
    assert grouped.outcome_test(X, y, ("a",)).df[1] < 600
    with pytest.raises(rc.DataError, match="pass groups="):
        grouped.outcome_test(X[1:], y[1:], ("a",))


def test_general_rca_counts_independent_rows():
    """Each row twenty times, in groups or by weights, is one row; of one row a group all count."""
    sets = [("a",), ("b",), ("c",), ("a", "b", "c")]
    data = rc.datasets.make_views(300, 3, 2, sets=sets)
    copies = np.repeat(np.arange(300), 20)

    def rows(X, **reading):
        return rc.RCA(views=data.views, sets=sets).fit(X, **reading).independent_rows_

    assert rows(data.X) == 300
    assert rows(data.X[copies], groups=copies) == pytest.approx(300)
    assert rows(data.X, sample_weight=np.full(300, 20)) == pytest.approx(300)
    assert rows(data.X, groups=np.arange(300)) == pytest.approx(300)


# ---- the rank that cannot be excluded


def test_nothing_found_is_not_nothing_there():
    """40 samples of strongly shared views: the test finds less than there is, and the intervals say so."""
    covered = {name: [] for name in ("A", "S1", "S2", "S3")}
    short = 0
    for seed in range(16):
        data = rc.datasets.make_contrastive(40, d=4, S2="gaussian", scale_S2=0.7, random_state=seed)
        model = rc.ContrastiveRCA(views=4).fit(data.X)
        found = model.diagnostics_
        if model.rank_ < 4:
            short += 1
            assert found.largest_rank > model.rank_
            assert (
                f"cannot tell {model.rank_} from {found.largest_rank} shared directions with 40 samples"
                in model.summary()
            )
            interval = model.confidence_interval("A")
            assert np.isneginf(interval.low).all()
            assert np.isposinf(interval.high).all()
            assert np.isnan(interval.standard_error).all()
        truths = {"S1": data.cov_S1, "S2": np.cov(data.S2.T), "S3": np.cov(data.S3.T)}
        for name, truth in truths.items():
            if model.rank_ == 4 and name != "S1":
                continue  # nothing open: refits
            interval = model.confidence_interval("covariance", name)
            covered[name].append(np.mean((interval.low <= truth) & (truth <= interval.high)))
        interval = model.confidence_interval("A")
        covered["A"].append(np.mean((interval.low <= data.A) & (interval.high >= data.A)))
    assert short >= 8
    assert all(np.mean(found) >= 0.93 for found in covered.values()), {k: np.mean(v) for k, v in covered.items()}


def test_enough_samples_exclude_more(rng):
    X = rng.normal(size=(3000, 8))
    model = fitted(X)
    assert (model.rank_, model.diagnostics_.largest_rank) == (0, 0)
    assert "cannot tell" not in model.summary()
    interval = model.confidence_interval("covariance")
    assert np.isfinite(interval.standard_error).all()
    assert np.mean((interval.low <= np.eye(4)) & (np.eye(4) <= interval.high)) > 0.8
    assert np.isneginf(model.confidence_interval("A").low).all()  # of nothing, anything can be the image
    given = rc.ContrastiveRCA(views=4, rank=0).fit(X[:40])
    assert given.diagnostics_.largest_rank == 0
    assert rc.ContrastiveRCA(views=4).fit(X[:40]).diagnostics_.largest_rank > 0


def test_without_evidence_all_covariances_have_their_identified_set():
    data = rc.datasets.make_contrastive(3000, d=4, S2="gaussian", random_state=5)
    model = rc.ContrastiveRCA(views=4, errors="free").fit(data.X)
    assert model.diagnostics_.verdict == "not identified"
    for name, truth in (("S1", data.cov_S1), ("S2", np.cov(data.S2.T)), ("S3", np.cov(data.S3.T))):
        interval = model.confidence_interval("covariance", name)
        assert ((interval.low <= truth) & (truth <= interval.high)).all()
        assert ((interval.low <= interval.value) & (interval.value <= interval.high)).all()


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_few_groups_cannot_tell(rng, groups):
    """Means and covariances are theirs, and so their own spread says little: no rank, no rejection, and it is said."""
    labels = np.repeat(np.arange(groups), 300 // groups)
    for _ in range(5):
        X = rng.normal(size=(groups, 6))[labels] + 0.3 * rng.normal(size=(len(labels), 6))
        model = rc.ContrastiveRCA(views=3).fit(X, groups=labels)
        assert model.rank_ == 0
        assert model.diagnostics_.independent_rows <= groups + 1e-9
        assert (
            model.outcome_test(X, rng.normal(size=groups)[labels] + 0.1 * rng.normal(size=len(labels))).p_value > 0.01
        )


def test_a_few_heavy_rows_are_few_rows(rng):
    weight = np.ones(100)
    weight[:3] = 500
    for _ in range(5):
        model = rc.ContrastiveRCA(views=3).fit(rng.normal(size=(100, 6)), sample_weight=weight)
        assert model.rank_ == 0
        assert model.diagnostics_.independent_rows < 4


def test_no_table_is_worth_more_than_its_rows(rng):
    X = rng.normal(size=(400, 8))
    X[1::2] = -X[::2]  # pairs that cancel
    assert rc.ContrastiveRCA(views=4).fit(X, groups=np.arange(400) // 2).diagnostics_.independent_rows <= 400


@pytest.mark.parametrize("how", ["groups", "weights"])
def test_repeated_rows_do_not_make_a_wide_view_narrow(rng, how):
    """60 rows are 60 rows, however often they are counted: views are reduced, nothing is found, least squares is refused."""
    X, y = rng.normal(size=(60, 105)), rng.normal(size=60)
    if how == "groups":
        copies = np.repeat(np.arange(60), 10)
        model, Z, t = rc.ContrastiveRCA(views=100).fit(X[copies], groups=copies), X[copies], y[copies]
    else:
        model, Z, t = rc.ContrastiveRCA(views=100).fit(X, sample_weight=np.full(60, 30)), X, y
    assert model.rank_ == 0
    assert model.diagnostics_.searched_u is not None
    with pytest.raises(rc.DataError, match="do not determine"):
        model.calibrate(Z, t)


def test_weights_of_a_wide_table_are_not_expanded(rng):
    W = rng.normal(size=(40, 3000))
    one = rc.ContrastiveRCA(views=1500).fit(W)
    many = rc.ContrastiveRCA(views=1500).fit(W, sample_weight=np.full(40, 10**6))
    np.testing.assert_allclose(many.components_["S1"].variance, one.components_["S1"].variance, rtol=1e-6)


@pytest.mark.parametrize("gone", [None, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT")])
def test_missing_group_labels_are_refused_and_counted(table, gone):
    X, y = table
    labels = [f"s{i // 3}" for i in range(len(X))]
    labels[7] = labels[80] = gone
    for groups in (labels, np.array(labels, dtype=object), pd.Series(labels)):
        for fit in (
            lambda groups=groups: fitted(X, groups=groups),
            lambda groups=groups: rc.RCA(views={"a": [0, 1], "b": [2, 3], "c": [4, 5]}).fit(X, groups=groups),
            lambda groups=groups: rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(X, y, groups=groups),
            lambda groups=groups: rc.Moments.of(X, 4, groups=groups),
        ):
            with pytest.raises(rc.DataError, match=r"2 missing label\(s\), the first in row 7: drop those rows"):
                fit()
    dates = np.array(["2001-01-01", "NaT"] * (len(X) // 2), dtype="datetime64[ns]")
    for groups in (dates, np.where(np.isnat(dates), np.nan, 1.0)):
        with pytest.raises(rc.DataError, match=rf"{len(X) // 2} missing label\(s\), the first in row 1"):
            fitted(X, groups=groups)


def test_one_single_group_is_refused_in_words(table, tmp_path):
    X, y = table
    np.save(tmp_path / "rows.npy", X)
    one = ["a"] * len(X)
    for fit in (
        lambda: fitted(X, groups=one),
        lambda: fitted(tmp_path / "rows.npy", groups=one),
        lambda: rc.ContrastiveRCA(views={"u": [0, 1, 2], "v": [3, 4, 5]}, covariates=[7]).fit(X, groups=one),
        lambda: rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(X, y, groups=one),
        lambda: fitted(X).outcome_test(X, y, groups=one),
        lambda: rc.ContrastiveRCA(views=4).fit_moments(rc.Moments.of(X, 4, groups=one)),
    ):
        with pytest.raises(rc.DataError, match=r"150 rows belong to one (group|block).*at least two"):
            fit()
