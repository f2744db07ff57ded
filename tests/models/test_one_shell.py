"""What ContrastiveRCA takes and answers, an RCA of three views takes and answers too."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.moments.data import partial_out

COMMON = ("a", "b", "c")
SETS = [COMMON, ("a",), ("b",), ("c",)]

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_views(3000, 3, 2, sets=SETS, kinds="exponential", random_state=1)


def rca(data, **options):
    return rc.RCA(views=data.views, sets=SETS, **options)


@pytest.fixture(scope="module")
def model(data):
    return rca(data).fit(data.X)


def same(one, two, rtol=0.0):
    assert one.transforms_.keys() == two.transforms_.keys()
    for key, A in one.transforms_.items():
        np.testing.assert_allclose(two.transforms_[key], A, rtol=rtol, atol=rtol)
    for q, component in one.components_.items():
        np.testing.assert_allclose(two.components_[q].covariance, component.covariance, rtol=rtol, atol=rtol)


def test_files_give_the_bits_of_the_table(data, model, tmp_path):
    np.save(tmp_path / "t.npy", data.X)
    same(model, rca(data).fit(tmp_path / "t.npy"))
    frame = pd.DataFrame(data.X, columns=[f"x{i}" for i in range(6)])
    frame.to_parquet(tmp_path / "t.parquet")
    same(model, rca(data).fit(tmp_path / "t.parquet"))


def test_dask_gives_the_bits_of_the_table(data, model):
    array = pytest.importorskip("dask.array")
    same(model, rca(data).fit(array.from_array(data.X, chunks=(700, 6))))


def test_streams_and_states_are_one(data):
    state = rca(data).fit_moments(rc.Moments.of(data.X, 4))
    same(state, rca(data).fit(iter(np.array_split(data.X, 5))), 1e-7)
    stream = rca(data).partial_fit(data.X[:1000])
    same(state, stream.partial_fit(data.X[1000:]), 1e-7)


def test_weights_are_counts(data, model):
    """Of one: as without; of others: the fit to the repeated rows, whose copies are a group."""
    same(model, rca(data).fit(data.X, sample_weight=np.ones(len(data.X))), 1e-9)
    weight = np.random.default_rng(0).integers(0, 3, len(data.X))
    weighted = rca(data).fit(data.X, sample_weight=weight)
    whole = rca(data).fit(data.X, sample_weight=np.where(weight > 0, 1, 0))
    same(
        whole, rca(data).fit(np.where(weight[:, None] > 0, data.X, 1e3), sample_weight=np.where(weight > 0, 1, 0)), 1e-9
    )
    state = rca(data).fit_moments(rc.Moments.of(data.X, 4, sample_weight=weight))
    for key, A in weighted.transforms_.items():  # without rows, without the last fit of A
        assert np.linalg.norm(state.transforms_[key] - A) < 0.15 * np.linalg.norm(A)
    assert weighted.n_samples_ == weight.sum()
    y, rows = np.random.default_rng(1).normal(size=len(data.X)), np.flatnonzero(weight)
    again = np.repeat(rows, weight[rows])  # the copies of a row are a group, so that blocks are the same
    once = weighted.outcome(data.X[again], y[again], groups=again, sample_weight=np.ones(len(again)))
    counted = weighted.outcome(data.X[rows], y[rows], groups=rows, sample_weight=weight[rows])
    np.testing.assert_allclose(weighted.calibrate(counted).coef, weighted.calibrate(once).coef, rtol=1e-8)


def test_covariates_leave_every_view_and_the_outcome(data, model):
    rng = np.random.default_rng(2)
    age = rng.normal(size=(len(data.X), 2))
    X = np.hstack([data.X + age @ rng.normal(size=(2, 6)), age])
    adjusted = rca(data, covariates=[6, 7]).fit(X)
    partial = partial_out(rc.Moments.of(X, 2, n_blocks=1), [6, 7])
    left = partial.residuals(X)
    left = left.mean(axis=0) + (left - left.mean(axis=0)) * (len(X) / (len(X) - 2)) ** 0.5
    same(rca(data).fit(left), adjusted, 1e-6)
    y = data.X[:, 0] + 5 * age[:, 0] + rng.normal(size=len(X))
    one = adjusted.calibrate(X, y, ("a",)).outcome
    assert abs(np.corrcoef(one, age[:, 0])[0, 1]) < 1e-10
    with pytest.raises(rc.DataError, match="covariate"):
        rca(data, covariates=[0]).fit(X)


def test_predictions_come_with_their_error_and_names(data, model):
    values, error = model.transform(data.X, return_std=True)
    assert values.shape == error.shape == (3000, 2)
    assert (error > 0).all()
    total = sum(model.predict_component(data.X, q) @ model.transforms_["b", q].T for q in (COMMON, ("b",)))
    np.testing.assert_allclose(total, data.X[:, data.views["b"]], atol=1e-8)


def test_the_score_prefers_rows_of_the_same_model(data, model):
    fresh = rc.datasets.make_views(3000, 3, 2, sets=SETS, kinds="exponential", random_state=1)
    shuffled = fresh.X.copy()
    np.random.default_rng(0).shuffle(shuffled[:, :2])
    assert model.score(fresh.X) > model.score(shuffled)


def test_groups_are_known_again_with_an_outcome(data):
    groups = np.repeat(np.arange(300), 10)
    grouped = rca(data).fit(data.X, groups=groups)
    y = np.random.default_rng(3).normal(size=len(data.X))
    assert grouped.outcome_test(data.X, y).p_value == pytest.approx(
        grouped.outcome_test(data.X, y, groups=groups).p_value
    )
    with pytest.raises(rc.DataError, match="pass groups"):
        grouped.outcome_test(data.X[:100], y[:100])


def test_wide_views_are_searched_in_principal_components(tmp_path):
    rng = np.random.default_rng(4)
    n, widths = 200, (90, 60, 45)
    shared = rng.exponential(size=(n, 2)) - 1
    tables = [shared @ rng.normal(size=(2, d)) * 2 + rng.normal(size=(n, d)) for d in widths]
    X = np.hstack(tables)
    ends = np.cumsum([0, *widths])
    views = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate("abc")}
    wide = rc.RCA(views=views, sets=SETS).fit(X)
    home = wide.components_[COMMON].feature_names  # of the view whose principal components are the fewest
    assert wide.transforms_["b", COMMON].shape == (60, len(home))
    common = wide.predict_component(X, COMMON)
    truth = shared - shared.mean(axis=0)
    fitted = common @ np.linalg.lstsq(common, truth, rcond=1e-6)[0]
    assert np.linalg.norm(fitted - truth) < 0.3 * np.linalg.norm(truth)
    total = sum(wide.predict_component(X, q) @ wide.transforms_["a", q].T for q in (COMMON, ("a",)))
    np.testing.assert_allclose(total, X[:, views["a"]], atol=1e-8)
    for view, part in views.items():
        shares = [share for (name, _), share in wide.variance_shares_.items() if name == view]
        assert sum(shares) == pytest.approx(1, abs=0.05), part
    assert wide.score(X) > wide.score(np.hstack([tables[0][::-1], tables[1], tables[2]]))
    wide.save(tmp_path / "wide.npz")
    np.testing.assert_array_equal(rc.load(tmp_path / "wide.npz").predict_component(X), wide.predict_component(X))


def test_two_views_answer_as_contrastive_rca(tmp_path):
    pair = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=5)
    one, two = rc.ContrastiveRCA(views=3).fit(pair.X), rc.RCA(views=3).fit(pair.X)
    u, v = two.views_.names
    for name, key in {"S1": (u,), "S2": (u, v), "S3": (v,)}.items():
        np.testing.assert_array_equal(two.predict_component(pair.X, key), one.predict_component(pair.X, name))
        limits, other = (m.confidence_interval("covariance", k) for m, k in ((one, name), (two, key)))
        np.testing.assert_allclose(other.low, limits.low)
    np.testing.assert_array_equal(two.calibrate(pair.X, pair.y).coef, one.calibrate(pair.X, pair.y).coef)
    assert two.score(pair.X) == one.score(pair.X)
    regression = rc.ComponentRegression(rca=rc.RCA(views=3), component=(u,)).fit(pair.X, pair.y)
    plain = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3)).fit(pair.X, pair.y)
    np.testing.assert_allclose(regression.coefficients_.standard_error, plain.coefficients_.standard_error)
    two.save(tmp_path / "two.npz")
    assert rc.load(tmp_path / "two.npz").summary() == two.summary()
