"""ContrastiveRCA: laws, doors, and what it says about bad input."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.moments import Moments

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return make_contrastive(3000, d=4, d_v=5, S2="skewed", random_state=5)


@pytest.fixture(scope="module")
def model(data):
    return rc.ContrastiveRCA(views=4).fit(data.X)


def psd(matrix):
    return np.linalg.eigvalsh(matrix).min() >= -1e-10 * np.abs(matrix).max()


# ---- laws


def test_predictions_of_the_parts_add_up(model, data):
    s1, s2, s3 = (model.transform(data.X, component=c) for c in ("S1", "S2", "S3"))
    np.testing.assert_allclose(s1 + s2, data.U, rtol=0, atol=1e-10)
    np.testing.assert_allclose(s2 @ model.A_.T + s3, data.V, rtol=0, atol=1e-10)


def test_covariances_are_admissible(model, data):
    cov = {name: model.components_[name].covariance for name in ("S1", "S2", "S3")}
    assert all(psd(c) for c in cov.values())
    np.testing.assert_allclose(cov["S1"] + cov["S2"], np.cov(data.U.T, bias=True), atol=1e-10)
    exchanged = rc.ContrastiveRCA(views={"V": list(range(4, 9)), "U": list(range(4))}).fit(data.X)
    np.testing.assert_allclose(exchanged.components_["S1"].covariance, cov["S3"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(exchanged.components_["S3"].covariance, cov["S1"], rtol=1e-8, atol=1e-10)
    d = model.diagnostics_
    assert (d.identified_low <= cov["S1"] + 1e-10).all()
    assert (cov["S1"] <= d.identified_high + 1e-10).all()


def test_identified_interval_is_sharp(model, data):
    """No admissible T leaves it, and each end is reached."""
    rng = np.random.default_rng(0)
    found = model.solution_.canonical
    D = found.correlations[: model.rank_]
    lift = found.u_from_x[:, : model.rank_] * np.sqrt(1 - D**2)
    top = np.cov(data.U.T, bias=True) - (found.u_from_x[:, : model.rank_] * D**2) @ found.u_from_x[:, : model.rank_].T
    low, high = model.diagnostics_.identified_low, model.diagnostics_.identified_high
    for _ in range(200):
        q, _ = np.linalg.qr(rng.normal(size=(model.rank_, model.rank_)))
        t = (q * rng.integers(0, 2, model.rank_)) @ q.T
        cov = top - lift @ t @ lift.T
        assert (cov >= low - 1e-9).all()
        assert (cov <= high + 1e-9).all()
    a, b = lift[0], lift[1]
    values, vectors = np.linalg.eigh((np.outer(a, b) + np.outer(b, a)) / 2)
    plus = vectors[:, values > 1e-12] @ vectors[:, values > 1e-12].T
    assert (top - lift @ plus @ lift.T)[0, 1] == pytest.approx(low[0, 1], abs=1e-10)


def test_equivariant_under_linear_maps_of_either_view(data):
    """Cumulants; mixed columns do not have independent errors."""
    rng = np.random.default_rng(1)
    M, N = rng.normal(size=(4, 4)), rng.normal(size=(5, 5))
    model = rc.ContrastiveRCA(views=4, errors="free").fit(data.X)
    moved = rc.ContrastiveRCA(views=4, errors="free").fit(np.hstack([data.U @ M + 7, data.V @ N - 3]))
    np.testing.assert_allclose(moved.A_, N.T @ model.A_ @ np.linalg.inv(M).T, rtol=1e-4, atol=1e-4)
    expected = M.T @ model.components_["S1"].covariance @ M
    np.testing.assert_allclose(moved.components_["S1"].covariance, expected, rtol=1e-4, atol=1e-4)
    assert moved.diagnostics_.verdict == model.diagnostics_.verdict


def test_close_to_the_truth_when_identified(model, data):
    assert model.diagnostics_.verdict == "strong"
    paper = rc.ContrastiveRCA(views=4, method="paper").fit(data.X)
    assert np.mean((model.A_ - data.A) ** 2) < 0.7 * np.mean((paper.A_ - data.A) ** 2)
    fit = model.calibrate(data.X, data.y)
    assert np.sum((fit.coef - data.beta) ** 2) < np.sum((fit.residualised - data.beta) ** 2)


def test_prediction_error_is_as_stated(data, model):
    predicted, std = model.transform(data.X, return_std=True)
    seen = np.sqrt(np.mean((predicted - data.S1) ** 2, axis=0))
    np.testing.assert_allclose(seen, std[0], rtol=0.15)


def test_gaussian_shared_part_is_residualising():
    data = make_contrastive(1500, d=4, S2="gaussian", random_state=2)
    with pytest.warns(rc.WeakIdentificationWarning, match="Gaussian shared part"):
        model = rc.ContrastiveRCA(views=4, rank="full", errors="free").fit(data.X)
    fit = model.calibrate(data.X, data.y)
    ols = np.linalg.lstsq(np.column_stack([np.ones(1500), data.X]), data.y, rcond=None)[0][1:5]
    np.testing.assert_allclose(fit.coef, ols, atol=1e-8)
    assert model.diagnostics_.verdict == "not identified"
    assert "not identified" in model.summary()


def test_known_mixing_is_used_and_improves(data):
    known = rc.ContrastiveRCA(views=4, A=data.A).fit(data.X)
    unknown = rc.ContrastiveRCA(views=4, errors="free").fit(data.X)
    assert known.diagnostics_.verdict == "strong"
    np.testing.assert_array_equal(known.A_, data.A)
    assert all(psd(known.components_[c].covariance) for c in ("S1", "S2", "S3"))
    error = [np.abs(m.components_["S1"].covariance - data.cov_S1).mean() for m in (known, unknown)]
    assert error[0] < 1.2 * error[1]


def test_cumulants_of_the_components(data):
    """S2 is skewed, S1 and S3 are not: extracted third cumulants must tell them apart."""
    large = make_contrastive(40_000, d=3, S2="skewed", A="good", random_state=9)
    fitted = rc.ContrastiveRCA(views=3).fit(large.X)
    for name, expected in (("S1", np.zeros((3,) * 3)), ("S2", rc.cumulant(large.S2, 3)), ("S3", np.zeros((3,) * 3))):
        found = fitted.components_[name].cumulant(3)
        np.testing.assert_allclose(found, np.transpose(found, (2, 0, 1)), atol=1e-12)
        np.testing.assert_allclose(found, expected, atol=0.06)
    assert np.abs(rc.cumulant(large.U, 3)).max() > 0.3
    fourth = fitted.components_["S1"].cumulant(4)[0, 0, 0, 0]  # uniform on [-1, 1]: -2/15
    assert fourth == pytest.approx(-2 / 15, abs=0.08)
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    theta = np.array([1.0, 0.0, -1.0, 0.5])
    component = model.components_["S1"]
    direct = component.cumulant(4) @ theta @ theta @ theta
    np.testing.assert_allclose(component.projected_cumulant(theta, 4), direct, rtol=1e-8, atol=1e-8)
    assert (component.standard_error(3, theta) > 0).all()


# ---- doors


def test_all_doors_lead_to_the_same_model(data, model):
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(4)] + [f"c{i}" for i in range(5)])
    named = rc.ContrastiveRCA(views={"tests": [f"t{i}" for i in range(4)], "controls": [f"c{i}" for i in range(5)]})
    state = rc.ContrastiveRCA(views=4).fit_moments(Moments.of(data.X, 4))
    others = [
        named.fit(frame),
        rc.ContrastiveRCA().fit_views([data.U, data.V]),
        rc.ContrastiveRCA().fit_views({"tests": frame.iloc[:, :4], "controls": frame.iloc[:, 4:]}),
        state,
    ]
    for other in others:
        np.testing.assert_allclose(other.A_, model.A_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other.components_["S1"].covariance, model.components_["S1"].covariance, atol=1e-6)
        np.testing.assert_allclose(
            other.transform(frame if other is named else data.X), model.transform(data.X), atol=1e-5
        )
    assert named.components_["S3"].feature_names == tuple(f"c{i}" for i in range(5))


def test_partial_fit_ends_where_fit_does(data, model):
    stream = rc.ContrastiveRCA(views=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, 3000, 1000):
            stream.partial_fit(data.X[start : start + 1000])
    np.testing.assert_allclose(stream.A_, model.A_, rtol=1e-4, atol=1e-5)
    again = pickle.loads(pickle.dumps(stream))
    again.partial_fit(data.X)
    assert again.diagnostics_.n == 6000


def test_pandas_names_pipeline_and_grid_search(data):
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(4)] + [f"c{i}" for i in range(5)])
    views = {"tests": [f"t{i}" for i in range(4)], "controls": [f"c{i}" for i in range(5)]}
    pipe = make_pipeline(StandardScaler(), rc.ContrastiveRCA(views=views)).set_output(transform="pandas")
    cleaned = pipe.fit_transform(frame)
    assert list(cleaned.columns) == ["t0", "t1", "t2", "t3"]
    bare = make_pipeline(StandardScaler(), rc.ContrastiveRCA(views=views))
    with pytest.raises(rc.DataError, match="set_output"):
        bare.fit(frame)
    search = GridSearchCV(rc.ContrastiveRCA(views=4), {"rank": [1, 4]}, cv=3).fit(data.X)
    assert search.best_params_ == {"rank": 4}
    with pytest.raises(ValueError, match="predict_component"):
        pipe[-1].transform(frame, component="S3")
    assert pipe[-1].predict_component(pipe[0].transform(frame), "S3").shape == (3000, 5)


def test_pickle_and_clone(model, data):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(data.X), model.transform(data.X))
    np.testing.assert_array_equal(again.components_["S1"].cumulant(3), model.components_["S1"].cumulant(3))
    assert not hasattr(clone(model), "A_")


def test_covariates_are_partialled_out(data):
    rng = np.random.default_rng(3)
    age = rng.normal(size=(3000, 1))
    X = np.hstack([data.X + age @ rng.normal(size=(1, 9)) * 2, age])
    plain = rc.ContrastiveRCA(views=4).fit(data.X)
    model = rc.ContrastiveRCA(views=4, covariates=[9]).fit(X)
    np.testing.assert_allclose(model.A_, plain.A_, atol=0.05)
    np.testing.assert_allclose(model.components_["S1"].covariance, plain.components_["S1"].covariance, atol=0.02)
    assert np.abs(model.transform(X).T @ (age - age.mean())).max() < 1e-6 * 3000
    beta = model.calibrate(X, data.y + 3 * age[:, 0]).coef
    np.testing.assert_allclose(beta, plain.calibrate(data.X, data.y).coef, atol=0.05)
    with pytest.raises(rc.DataError, match="also a covariate"):
        rc.ContrastiveRCA(views={"a": [0, 1], "b": [2, 9]}, covariates=[9]).fit(X)


def test_means(data, model):
    np.testing.assert_allclose(model.components_["S1"].mean, data.U.mean(axis=0), atol=1e-10)
    known = rc.ContrastiveRCA(views=4, mean={"S2": np.ones(4)}).fit(data.X)
    np.testing.assert_allclose(known.components_["S1"].mean, data.U.mean(axis=0) - 1, atol=1e-10)
    np.testing.assert_allclose(known.components_["S3"].mean, data.V.mean(axis=0) - known.A_.sum(axis=1), atol=1e-10)
    back = rc.ContrastiveRCA(views=4, mean={"S3": known.components_["S3"].mean}).fit(data.X)
    np.testing.assert_allclose(back.components_["S2"].mean, 1.0, atol=1e-8)
    with pytest.raises(ValueError, match="one known mean"):
        rc.ContrastiveRCA(views=4, mean={"S1": np.zeros(4), "S2": np.zeros(4)}).fit(data.X)
    with pytest.raises(rc.DataError, match=r"S1 must have shape \(4,\)"):
        rc.ContrastiveRCA(views=4, mean={"S1": np.zeros(3)}).fit(data.X)


# ---- sizes


def test_low_rank_is_found_and_more_columns_of_either_view_work():
    for d, d_v in ((4, 9), (9, 4)):
        data = make_contrastive(3000, d=d, d_v=d_v, S2="labs(3)", random_state=8)
        model = rc.ContrastiveRCA(views=d).fit(data.X)
        assert model.rank_ == 2
        assert np.abs(model.components_["S1"].covariance - data.cov_S1).mean() < 0.02
        fit = model.calibrate(data.X, data.y)
        assert np.sum((fit.coef - data.beta) ** 2) < 1.1 * np.sum((fit.residualised - data.beta) ** 2)


def test_many_more_columns_than_samples():
    rng = np.random.default_rng(4)
    factors = rng.exponential(size=(200, 3)) - 1
    U = factors @ rng.normal(size=(3, 300)) + rng.normal(size=(200, 300))
    V = factors @ rng.normal(size=(3, 400)) + rng.normal(size=(200, 400))
    model = rc.ContrastiveRCA(views=300, rank=3).fit(np.hstack([U, V]))
    assert model.A_.shape == (400, 300)
    left = model.transform(np.hstack([U, V]))
    correlation = np.corrcoef(np.hstack([left, factors]).T)[:300, 300:]
    before = np.corrcoef(np.hstack([U, factors]).T)[:300, 300:]
    assert np.abs(correlation).mean() < 0.4 * np.abs(before).mean()
    assert psd(model.components_["S1"].covariance)


@pytest.mark.parametrize("order", [3, 5])
def test_other_orders(data, order):
    model = rc.ContrastiveRCA(views=4, order=order).fit(data.X)
    assert model.components_["S1"].cumulant(order).shape == (4,) * order
    with pytest.raises(ValueError, match="order=6"):
        model.components_["S1"].cumulant(6)
    if order == 3:
        assert not model.solution_.grams_xy[1].any()
        state = rc.ContrastiveRCA(views=4, order=3).fit_moments(Moments.of(data.X, 4))
        np.testing.assert_allclose(state.A_, model.A_, rtol=1e-5, atol=1e-6)
    else:
        plain = rc.ContrastiveRCA(views=4).fit(data.X)
        np.testing.assert_allclose(model.components_["S1"].cumulant(3), plain.components_["S1"].cumulant(3), atol=1e-10)
        assert (model.components_["S1"].standard_error(3, np.ones(4)) > 0).all()


def test_groups_share_a_block():
    data = make_contrastive(400, d=3, S2="skewed", random_state=1)
    X, groups = np.repeat(data.X, 5, axis=0), np.repeat(np.arange(400), 5)
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape)  # exact copies would be seen without groups
    honest = rc.ContrastiveRCA(views=3).fit(X, groups=groups)
    blind = rc.ContrastiveRCA(views=3).fit(X)
    wide, narrow = (model.components_["S1"].standard_error(3, np.ones(3)).mean() for model in (honest, blind))
    assert wide > 1.5 * narrow  # copies of a subject are not new information


# ---- how sure


def test_intervals_and_jackknife(data):
    small = make_contrastive(1500, d=3, S2="skewed", random_state=6)
    model = rc.ContrastiveRCA(views=3).fit(small.X)
    for what in ("A", "covariance"):
        interval = model.confidence_interval(what)
        assert (interval.low < interval.value).all()
        assert (interval.value < interval.high).all()
        wider = model.confidence_interval(what, level=0.99)
        assert (wider.low < interval.low).all()
    refit = model.jackknife(lambda m: m.components_["S1"].covariance)
    fast = model.confidence_interval("covariance").standard_error
    assert 0.4 < np.median(refit.standard_error / fast) < 2.0
    assert model.confidence_interval("covariance", component="S3").low.shape == (3, 3)
    paper = rc.ContrastiveRCA(views=3, method="paper").fit(small.X).confidence_interval("A")
    assert np.isfinite(paper.standard_error).all()


def test_outcome_that_depends_on_more_than_s1_is_noticed(data):
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    assert model.outcome_test(data.X, data.y).p_value > 0.001
    assert model.outcome_test(data.X, data.y + data.S3[:, 0]).p_value < 1e-6


def test_intervals_hold_the_truth_when_nothing_is_identified():
    """A Gaussian shared part: the interval is the identified set, not a narrow one around residualising."""
    covered = []
    for seed in range(6):
        data = make_contrastive(1500, d=3, S2="gaussian", random_state=seed)
        model = rc.ContrastiveRCA(views=3, rank="full").fit(data.X)
        for what, truth in (("covariance", data.cov_S1), ("A", data.A)):
            interval = model.confidence_interval(what)
            covered.append(np.mean((interval.low <= truth) & (truth <= interval.high)))
        _, std = model.transform(data.X, return_std=True)
        seen = np.sqrt(np.mean((model.transform(data.X) - data.S1) ** 2, axis=0))
        assert (std[0] > 0.4 * seen).all()
    assert np.mean(covered) > 0.95


def test_interval_coverage_when_identified():
    covered, widest = [], []
    for seed in range(8):
        data = make_contrastive(4000, d=3, S2="skewed", random_state=100 + seed)
        interval = rc.ContrastiveRCA(views=3).fit(data.X).confidence_interval("covariance")
        covered.append(np.mean((interval.low <= data.cov_S1) & (data.cov_S1 <= interval.high)))
        widest.append(interval.standard_error.max())
    assert np.mean(covered) > 0.85
    assert np.median(widest) < 0.08


def test_jackknife_replicates_follow_the_full_fit_even_with_few_blocks(data):
    few = rc.ContrastiveRCA(views=4, n_blocks=10).fit(data.X)
    result = few.jackknife(lambda m: m.components_["S1"].covariance)
    assert np.abs(result.replicates.mean(axis=0) - result.value).max() < 0.05


def test_score_prefers_the_fit_to_nothing(data):
    half = data.X[::2]
    other = data.X[1::2]
    scores = [rc.ContrastiveRCA(views=4, rank=r).fit(half).score(other) for r in (0, 4)]
    assert scores[1] > scores[0] + 0.1
    gaussian = make_contrastive(2000, d=3, S2="gaussian", random_state=0)
    fitted = rc.ContrastiveRCA(views=3, rank="full").fit(gaussian.X[::2])
    C = np.cov(gaussian.X[::2].T)
    z = gaussian.X[1::2] - gaussian.X[::2].mean(axis=0)
    best = -0.5 * np.mean(np.sum(z @ np.linalg.inv(C) * z, axis=1)) - 0.5 * np.linalg.slogdet(2 * np.pi * C)[1]
    assert fitted.score(gaussian.X[1::2]) == pytest.approx(best, abs=0.02)


def test_rank_zero_has_components(data):
    model = rc.ContrastiveRCA(views=4, rank=0).fit(data.X)
    assert (model.components_["S2"].cumulant(3) == 0).all()
    np.testing.assert_allclose(model.components_["S1"].cumulant(3), rc.cumulant(data.U, 3), atol=1e-8)
    assert rc.ContrastiveRCA(views=4, rank=0, A=data.A).fit(data.X).rank_ == 0


# ---- bad input


def test_bad_parameters_are_named(data):
    for arguments, message in (
        ({"method": "magic"}, "'efficient' or 'paper'"),
        ({"order": 2}, "from 3 to 6"),
        ({"n_blocks": 5}, "at least 10"),
        ({"rank": "some"}, "'auto', 'full' or an integer"),
        ({"rank": 9}, "at most 4 directions"),
        ({"views": {"a": [0], "b": [1], "c": [2]}}, "got 3"),
        ({"A": np.zeros((2, 2))}, r"shape \(5, 4\), got \(2, 2\)"),
        ({"A": np.ones((5, 4))}, "no left inverse: its rank is 1"),
    ):
        with pytest.raises(ValueError, match=message):
            rc.ContrastiveRCA(**{"views": 4, **arguments}).fit(data.X)


def test_missing_values_name_view_and_column(data):
    X = pd.DataFrame(data.X, columns=list("abcdefghi"))
    X.loc[17, "g"] = np.nan
    with pytest.raises(rc.DataError, match=r"column 'g' of view 'V' .* row 17"):
        rc.ContrastiveRCA(views=4).fit(X)


def test_too_few_samples_fall_back_to_second_order(data):
    with pytest.warns(rc.SampleSizeWarning, match="30 samples are too few"):
        model = rc.ContrastiveRCA(views=4).fit(data.X[:30])
    fit = model.calibrate(data.X[:30], data.y[:30])
    np.testing.assert_array_equal(fit.coef, fit.residualised)


def test_copies_and_collinear_columns(data):
    copies = rc.ContrastiveRCA(views=4).fit(np.hstack([data.U, data.U]))
    assert np.isfinite(copies.A_).all()
    assert psd(copies.components_["S1"].covariance)
    doubled = np.hstack([data.U, data.U[:, :1], data.V, data.V[:, :2].sum(axis=1, keepdims=True)])
    model = rc.ContrastiveRCA(views=5).fit(doubled)
    assert np.isfinite(model.A_).all()
    np.testing.assert_allclose(model.transform(doubled)[:, 0], model.transform(doubled)[:, 4], atol=1e-6)


def test_constant_columns_are_harmless(data):
    X = np.hstack([data.U, np.ones((3000, 1)), data.V])
    model = rc.ContrastiveRCA(views=5).fit(X)
    np.testing.assert_allclose(model.transform(X)[:, 4], 1.0)
    assert (model.components_["S1"].covariance[4] == 0).all()


def test_independent_views_share_nothing():
    rng = np.random.default_rng(0)
    model = rc.ContrastiveRCA(views=3).fit(rng.normal(size=(500, 6)))
    assert model.rank_ == 0
    assert model.diagnostics_.verdict == "nothing shared"
    np.testing.assert_allclose(model.A_, 0)
    assert "share nothing" in model.summary()


def test_partial_fit_with_names_and_after_a_failure(data):
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(4)] + [f"c{i}" for i in range(5)])
    views = {"tests": [f"t{i}" for i in range(4)], "controls": [f"c{i}" for i in range(5)]}
    model = rc.ContrastiveRCA(views=views).partial_fit(frame[:2000])
    bad = frame[2000:].copy()
    bad.iloc[3, 0] = np.nan
    with pytest.raises(rc.DataError, match="'t0' of view 'tests'"):
        model.partial_fit(bad)
    model.partial_fit(frame[2000:])
    assert model.diagnostics_.n == 3000
    assert model.components_["S1"].feature_names == ("t0", "t1", "t2", "t3")
    model.fit(frame[:1000])
    model.partial_fit(frame[:500])
    assert model.diagnostics_.n == 500  # fit started anew


def test_columns_that_covariates_explain(data):
    age = np.arange(3000.0)[:, None] % 77
    X = np.hstack([data.U, 2 * age + 1, data.V, age])
    model = rc.ContrastiveRCA(views=5, covariates=[9 + 1]).fit(X)
    assert np.abs(model.A_).max() < 10
    assert model.components_["S1"].covariance[4, 4] == 0


@pytest.mark.parametrize(
    ("y", "message"),
    [(np.ones(10), "one column of 3000"), (np.full(3000, np.nan), "3000 missing"), (np.ones((3000, 2)), "one column")],
)
def test_outcomes_are_checked(data, model, y, message):
    with pytest.raises(rc.DataError, match=message):
        model.calibrate(data.X, y)


def test_small_things_are_named(data, model):
    with pytest.raises(rc.DataError, match="y is constant"):
        model.outcome_test(data.X, np.ones(3000))
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.confidence_interval(level=95)
    with pytest.raises(ValueError, match="at least 1"):
        model.components_["S1"].moment(0)
    with pytest.raises(rc.DataError, match="share at most 4 directions"):
        rc.ContrastiveRCA(views=4, method="paper", rank=7).fit(data.X)
    with pytest.raises(rc.DataError, match="first view varies"):
        rc.ContrastiveRCA(views=4).fit(np.hstack([np.ones((3000, 4)), data.V]))
    with pytest.warns(rc.SampleSizeWarning, match="5 independent samples are too few .* give rank="):
        rc.ContrastiveRCA(views=4).fit(data.X, groups=np.arange(3000) % 5)
    with pytest.warns(rc.SampleSizeWarning, match="1 blocks"):
        rc.ContrastiveRCA(views=4).fit_moments(Moments.of(data.X, 4, n_blocks=1))


def test_warnings_point_at_the_caller():
    data = make_contrastive(1500, d=3, S2="gaussian", random_state=2)
    with pytest.warns(rc.WeakIdentificationWarning) as caught:
        rc.ContrastiveRCA(views=3).fit(data.X)
    assert caught[0].filename == __file__


def test_states_that_do_not_fit_are_refused(data):
    with pytest.raises(rc.DataError, match="this one has order 2"):
        rc.ContrastiveRCA(views=4).fit_moments(Moments.of(data.X, 2))


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("kind", ["gaussian", "labs(3)"])
def test_intervals_of_wide_views_hold_the_estimate(kind):
    """A wide view is reduced to principal components; its variance outside them is U's own and must not be lost."""
    data = make_contrastive(200, d=150, S2=kind)
    model = rc.ContrastiveRCA(views=150, rank=2, classes="none").fit(data.X)
    found = model.confidence_interval("covariance")
    assert np.all(found.low <= found.value + 1e-9)
    assert np.all(found.value <= found.high + 1e-9)


@pytest.mark.parametrize("scale", [1e160, 1e-160])
@pytest.mark.parametrize("n", [10, 200])  # with few rows views are reduced before their moments are taken
def test_columns_whose_squares_leave_floating_point_are_refused(rng, scale, n):
    X = rng.normal(size=(n, 8))
    X[:, 6] *= scale
    with pytest.raises(rc.DataError, match=r"column.*leaves the range of floating point: rescale"):
        rc.ContrastiveRCA(views=4, n_blocks=10).fit(X)


@pytest.mark.parametrize("n", [12, 300])  # few rows: views are reduced first
def test_constant_columns_are_named(rng, n):
    X = rng.normal(size=(n, 8))
    X[:, 6] = 0.1
    with pytest.warns(rc.ConstantColumnWarning, match=r"constant: column 'x6' of view 'V'.*drop"):
        rc.ContrastiveRCA(views=4, n_blocks=10).fit(X)
    if n > 100:
        with pytest.warns(rc.ConstantColumnWarning, match=r"column 'x6' of view 'V'"):
            rc.ContrastiveRCA(views=4).fit_moments(rc.Moments.of(X, 4))


def test_the_seed_moves_coefficients_far_less_than_their_errors():
    """Draws come with their mirror images: without them the seed moved coefficients by .04 standard errors here."""
    data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=7)
    fits = [
        rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, random_state=seed)).fit(data.X, data.y)
        for seed in range(8)
    ]
    moved = np.std([fit.coef_ for fit in fits], axis=0)
    assert (moved < 0.025 * fits[0].coefficients_.standard_error).all()
