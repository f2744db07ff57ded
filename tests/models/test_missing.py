"""missing= of the estimators: refuse gaps, leave rows out, or use what is there; every door, every part of a table."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import richcomponents as rc

N, D = 1200, 3
NAMES = [f"T_{i}" for i in range(D)] + [f"C_{i}" for i in range(D)]
VIEWS = {"tests": NAMES[:D], "controls": NAMES[D:]}


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(N, d=D, S2="skewed", random_state=0)


@pytest.fixture(scope="module")
def X(data):
    """Two in five rows lack the second view."""
    out = np.array(data.X)
    out[np.random.default_rng(0).random(N) < 0.4, D:] = np.nan
    return out


@pytest.fixture(scope="module")
def whole(X):
    return np.isfinite(X).all(axis=1)


def rca(missing, **options):
    return rc.ContrastiveRCA(views=D, missing=missing, **options)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.errors.MissingValueWarning)
        yield


def assert_same(one, other):
    np.testing.assert_allclose(one.A_, other.A_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one.components_["S1"].covariance, other.components_["S1"].covariance, rtol=1e-10)


# ---- refuse


def test_gaps_are_refused_unless_something_else_is_said(X):
    with pytest.raises(
        rc.DataError, match=r"column 'x3' of view 'V' holds a missing.*missing=\"drop\" or \"available\""
    ):
        rc.ContrastiveRCA(views=D).fit(X)
    with pytest.raises(ValueError, match="missing must be one of 'error', 'drop', 'available', got 'ignore'"):
        rca("ignore").fit(X)


# ---- leave rows out


def test_dropping_is_the_fit_to_complete_rows(data, X, whole):
    groups, weight = np.arange(N) // 3, 1 + np.arange(N) % 2
    assert_same(rca("drop").fit(X), rca("error").fit(X[whole]))
    assert_same(rca("drop").fit(X, groups=groups), rca("error").fit(X[whole], groups=groups[whole]))
    assert_same(rca("drop").fit(X, sample_weight=weight), rca("error").fit(X[whole], sample_weight=weight[whole]))


def test_what_was_left_out_is_counted_and_said(X, whole):
    left = f"{N - whole.sum()} of {N} rows have missing or infinite values and were left out; {whole.sum()} are kept."
    with pytest.warns(rc.errors.MissingValueWarning, match=left):
        model = rca("drop").fit(X)
    assert left in model.summary()
    assert model.n_samples_ == whole.sum()


def test_every_door_drops_the_same_rows(X, whole, tmp_path):
    expected = rca("error").fit(X[whole])
    frame = pd.DataFrame(X, columns=NAMES)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    dask_array = pytest.importorskip("dask.array")
    for table in (frame, pl.DataFrame(frame), tmp_path / "x.csv", tmp_path / "x.parquet"):
        assert_same(rca("drop").fit(table), expected)
    assert_same(rca("drop").fit(dask_array.from_array(X, chunks=(500, 2 * D))), expected)
    stream = rca("drop").fit(iter([X[:500], X[500:]]))
    once = rca("error").fit(iter([X[:500][whole[:500]], X[500:][whole[500:]]]))
    assert_same(stream, once)
    assert_same(rca("drop").partial_fit(X[:700]).partial_fit(X[700:]), rca("error").fit_moments(
        rc.Moments.of(iter([X[:700][whole[:700]], X[700:][whole[700:]]]), 4)))  # fmt: skip


def test_outcomes_exposures_and_groups_with_gaps_lose_their_rows(data, X, whole):
    y = np.array(data.y)
    y[::17] = np.nan
    there = whole & np.isfinite(y)
    found = rc.ComponentRegression(rca=rca("drop")).fit(X, y)
    expected = rc.ComponentRegression(rca=rca("error")).fit(X[there], y[there])
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-10)
    error = expected.coefficients_.standard_error
    np.testing.assert_allclose(found.coefficients_.standard_error, error, rtol=1e-10)
    labels = pd.Series(np.where(data.y > 0, "case", "control"), name="disease").where(np.isfinite(y))
    logistic = rc.ComponentLogisticRegression(rca=rca("drop")).fit(X, labels)
    by_hand = rc.ComponentLogisticRegression(rca=rca("error")).fit(X[there], labels[there])
    np.testing.assert_allclose(logistic.coef_, by_hand.coef_, rtol=1e-10)
    effects = rc.ExposureEffects(rca=rca("drop")).fit(X, labels)
    exact = rc.ExposureEffects(rca=rca("error")).fit(X[there], labels[there])
    np.testing.assert_allclose(effects.coef_, exact.coef_, rtol=1e-10)
    groups = np.array([f"g{i // 4}" for i in range(N)], dtype=object)
    groups[5] = None
    kept = whole & (np.arange(N) != 5)
    assert_same(rca("drop").fit(X, groups=groups), rca("error").fit(X[kept], groups=groups[kept]))


def test_kinds_of_gaps(data):
    whole_numbers = pd.DataFrame(np.round(10 * data.X), columns=NAMES).astype("Int64")
    whole_numbers.iloc[::9, 4] = pd.NA
    nulls = pl.DataFrame(dict(zip(NAMES, np.round(10 * data.X).T, strict=True))).with_columns(
        pl.when(pl.int_range(N) % 9 == 0).then(None).otherwise(pl.col(NAMES[4])).alias(NAMES[4])
    )
    infinite = np.round(10 * data.X)
    infinite[::9, 4] = np.inf
    expected = rca("error").fit(np.round(10 * data.X)[np.arange(N) % 9 > 0])
    for table in (whole_numbers, nulls, infinite):
        assert_same(rca("drop").fit(table), expected)
    with pytest.raises(rc.DataError, match="behind a mask"):
        rca("drop").fit(np.ma.masked_invalid(infinite))


def test_nothing_left_is_said(X):
    empty = X.copy()
    empty[:, 1] = np.nan
    with pytest.raises(rc.DataError, match=f"all {N} rows have missing or infinite values: none is left"):
        rca("drop").fit(empty)
    with pytest.raises(rc.DataError, match="column 'x1' of view 'U' holds no value at all: leave it out"):
        rca("available").fit(empty)


# ---- use what is there


@pytest.fixture(scope="module")
def available(X):
    return rca("available").fit(X)


def test_rows_without_gaps_are_fitted_as_ever(data):
    assert_same(rca("available").fit(data.X), rca("error").fit(data.X))


def test_gaps_are_told_and_counted(available, whole):
    told = f"Of {N} rows {whole.sum()} are complete; {N - whole.sum()} lack all of 'V'."
    assert told in available.summary()
    assert available.n_samples_ == N
    assert whole.sum() <= available.independent_rows_ <= N


def test_what_the_first_view_tells_alone_is_used(data, available):
    np.testing.assert_allclose(available.components_["S1"].mean, data.U.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(available.solution_.cov_u, np.cov(data.U.T, bias=True), rtol=1e-9)


def test_a_state_of_what_is_there_is_refitted_without_a_block(available):
    errors = available.jackknife(lambda model: model.A_).standard_error
    limits = available.confidence_interval("A")
    assert np.all(errors > 0)
    assert np.all(limits.low < available.A_)
    assert np.all(limits.high > available.A_)


def test_every_door_of_tables_that_can_be_read_again(X, available, tmp_path):
    frame = pd.DataFrame(X, columns=NAMES)
    frame.to_parquet(tmp_path / "x.parquet")
    dask_array = pytest.importorskip("dask.array")
    views = {"views": VIEWS, "missing": "available"}
    for table in (frame, tmp_path / "x.parquet"):
        assert_same(rc.ContrastiveRCA(**views).fit(table), available)
    assert_same(rca("available").fit(dask_array.from_array(X, chunks=(500, 2 * D))), available)
    U, V = (
        frame.iloc[:, :D].set_axis([f"s{i}" for i in range(N)]),
        frame.iloc[:, D:].set_axis([f"s{i}" for i in range(N)]),
    )
    with pytest.warns(UserWarning, match="lacks"):
        joined = rc.ContrastiveRCA(missing="available").fit_views([U, V.dropna().iloc[::-1]], align="outer")
    assert_same(joined, available)
    with pytest.raises(rc.DataError, match="a stream is read once"):
        rca("available").fit(iter([X[:500], X[500:]]))


def test_predictions_of_rows_with_gaps_are_the_best_linear_ones(data, X, whole, available):
    """E[S1 | u] from the fitted covariances, and Var(S1 | u) where V is missing."""
    found, error = available.transform(X, return_std=True)
    np.testing.assert_allclose(found[whole], available.transform(X[whole]), rtol=1e-10)
    assert np.all(error[~whole] >= error[whole][0] - 1e-12)
    cov_u, mean = available.solution_.cov_u, available.solution_.mean
    by_both = available.solution_.predict("S1", np.eye(2 * D))[0]  # (2d, d): coefficients of u and v
    joint = available.solution_.joint()
    fill = np.linalg.solve(cov_u, joint[:D, D:])
    expected = (X[~whole, :D] - mean[:D]) @ (by_both[:D] + fill @ by_both[D:]) + available.components_["S1"].mean
    np.testing.assert_allclose(found[~whole], expected, rtol=1e-8, atol=1e-9)


def test_learners_use_what_is_there(data, X, whole):
    regression = rc.ComponentRegression(rca=rca("available")).fit(X, data.y)
    error = regression.coefficients_.standard_error
    assert np.all(np.abs(regression.coef_ - data.beta) < 5 * error)
    assert regression.predict(X).shape == (N,)
    ridge = rc.ComponentRegression(alpha="cv", rca=rca("available")).fit(X, data.y)
    assert np.isfinite(ridge.coef_).all()
    labels = np.where(data.y > 0, "case", "control")
    logistic = rc.ComponentLogisticRegression(rca=rca("available")).fit(X, labels)
    assert logistic.predict_proba(X).shape == (N, 2)
    assert rc.ComponentPCA(rca=rca("available")).fit(X).components_.shape == (1, D)
    effects = rc.ExposureEffects(rca=rca("available")).fit(X, labels)
    assert np.isfinite(effects.effects_.standard_error).all()
    # the slopes of U alone need no V: those of all rows
    np.testing.assert_allclose(
        effects.naive_, rc.ExposureEffects(rca=rca("error")).fit(data.X, labels).naive_, rtol=1e-9
    )


@pytest.mark.parametrize("alpha", [0.0, "cv"])
def test_rows_that_count_less_than_nothing_leave_numbers(data, alpha):
    """Where single values are gone, blocks of second moments need not be those of any rows."""
    X = np.array(data.X)
    X[np.random.default_rng(3).random(X.shape) < 0.25] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = rc.ComponentRegression(alpha, l1_ratio=1.0, rca=rca("available", rank=1)).fit(X, data.y)
    assert np.abs(model.coef_ - data.beta).max() < 0.5


def test_covariates_and_single_values(data, X):
    rng = np.random.default_rng(1)
    age = rng.normal(size=N)
    table = np.column_stack([X + 0.5 * age[:, None], age])
    table[::40, -1] = np.nan
    table[3::50, 0] = np.nan
    model = rc.ContrastiveRCA(views=D, covariates=[2 * D], missing="available").fit(table)
    assert np.linalg.norm(model.A_ - data.A) < 0.35 * np.linalg.norm(data.A)
    assert np.isfinite(model.transform(table)).all()
    assert np.isfinite(model.score(table))
    assert "lack all of 'covariates'" in model.summary()


def test_three_views(tmp_path):
    data = rc.datasets.make_views(1500, random_state=0)
    X = np.array(data.X)
    X[::4, data.views[list(data.views)[-1]]] = np.nan
    views = {name: list(np.arange(X.shape[1])[part]) for name, part in data.views.items()}
    model = rc.RCA(views=views, missing="available").fit(X)
    assert np.isfinite(model.transform(X)).all()
    model.save(tmp_path / "model.rca")
    np.testing.assert_array_equal(rc.load(tmp_path / "model.rca").transform(X), model.transform(X))


def test_wide_views_with_gaps_are_refused(rng):
    X = rng.normal(size=(60, 40))
    X[::3, 20:] = np.nan
    with pytest.raises(rc.DataError, match=r"20 columns of 'U' are too many for 40 rows.*missing='drop'"):
        rc.ContrastiveRCA(views=20, missing="available").fit(X)


def test_gaps_that_depend_on_what_is_seen_are_told(data):
    X = np.array(data.X)
    X[X[:, 0] > 0.3, D:] = np.nan
    with pytest.warns(
        rc.errors.SpecificationWarning, match="rows that lack 'V' differ from the others.*missing='drop'"
    ):
        rca("available").fit(X)
