"""Views with many columns for their samples: shared directions are looked for in principal components, and nothing else is."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cli import main

pytestmark = [
    pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning"),
    pytest.mark.filterwarnings("ignore::richcomponents.SampleSizeWarning"),
    pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning"),
]


def draw(n, d_u, d_v, rank=3, kind="skewed", noise=0.5, dense=False):
    """Columns (U, V) with `rank` shared factors, and y = 2 S1[0] + error; dense : y goes with every column of S1."""
    rng = np.random.default_rng([n, d_u, d_v])
    shared = rng.exponential(size=(n, rank)) - 1 if kind == "skewed" else rng.normal(size=(n, rank))
    S1, loadings = rng.normal(size=(n, d_u)), rng.normal(size=(rank, d_u))
    V = shared @ rng.normal(size=(rank, d_v)) + noise * rng.normal(size=(n, d_v))
    beta = rng.normal(size=d_u) if dense else np.eye(d_u)[0]
    return np.hstack([S1 + shared @ loadings, V]), 2 * S1 @ beta + 0.5 * rng.normal(size=n)


def shared_variates(model, X, d_u):
    """The r shared canonical variates of V (n, r), up to rotation and scale: what the residual of U has lost of U."""
    lost = X[:, :d_u] - X[:, :d_u].mean(axis=0) - model.residual(X)
    left, values, _ = np.linalg.svd(lost, full_matrices=False)
    assert values[model.rank_ :].max(initial=0.0) < 1e-9 * values[0]
    return left[:, : model.rank_]


def least_squares(columns, y):
    """Slopes and their textbook standard errors."""
    design = np.column_stack([np.ones(len(y)), columns])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    left = y - design @ beta
    inverse = np.linalg.pinv(design)
    error = np.sqrt(left @ left / (len(y) - design.shape[1]) * np.sum(inverse**2, axis=1))
    return beta[1:], error[1:]


GRID = [(n, d_u, d_v) for n in (60, 150, 500) for d_u in (4, 20, 48, 100, 150) for d_v in (4, 20, 60) if n > d_u + 6]
GRID = [
    (n, d_u, d_v) for n, d_u, d_v in GRID if n < 500 or d_v < 60 or d_u == 4
]  # the others take seconds, and say no more


@pytest.mark.parametrize(("n", "d_u", "d_v"), GRID)
def test_residualising_is_least_squares_on_all_columns(n, d_u, d_v):
    X, y = draw(n, d_u, d_v)
    fit = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u)).fit(X, y)
    V = X[:, d_u:] - X[:, d_u:].mean(axis=0)
    variates = V if fit.on_v_.beside > fit.rca_.rank_ else shared_variates(fit.rca_, X, d_u)
    assert np.abs(variates - V @ np.linalg.lstsq(V, variates, rcond=None)[0]).max() < 1e-9  # they are of V alone
    expected, _ = least_squares(np.hstack([X[:, :d_u], variates]), y)
    assert np.abs(fit.residualised_ - expected[:d_u]).max() < 1e-8 * np.abs(expected[:d_u]).max()


@pytest.mark.parametrize("d_u", [20, 100, 150])
def test_at_full_rank_it_is_v_as_covariates(d_u):
    X, y = draw(500, d_u, 4)
    fit = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u, rank="full")).fit(X, y)
    assert fit.rca_.rank_ == 4
    expected = least_squares(X, y)[0][:d_u]
    np.testing.assert_allclose(fit.residualised_, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u))
    np.testing.assert_allclose(rc.baselines.covariates(learner, X, y).coef_, expected, atol=1e-8)


@pytest.mark.parametrize("d_u", [20, 90, 100, 150])
def test_coefficients_do_not_collapse(d_u, tmp_path, capsys):
    """From 84 columns of 500 samples on U is reduced; the coefficient is two all the same, from tables and from files."""
    X, y = draw(500, d_u, 10)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u))
    fit = learner.fit(X, y)
    assert fit.coef_[0] == pytest.approx(2, abs=0.1)
    assert np.abs(fit.coef_[1:]).max() < 0.2
    np.save(tmp_path / "table.npy", X)
    read = rc.ContrastiveRCA(views=d_u).fit(tmp_path / "table.npy").calibrate(X, y)
    np.testing.assert_array_equal(read.coef, fit.coef_)
    names = [f"T_{i}" for i in range(d_u)] + [f"C_{i}" for i in range(10)] + ["y"]
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([X, y]), delimiter=",", header=",".join(names), comments="", fmt="%.17g"
    )
    arguments = ["--views", "tests=T_*", "--views", "controls=C_*", "--target", "y", "--model", "regression"]
    with pytest.raises(SystemExit, match="0"):
        main(["fit", str(tmp_path / "t.csv"), *arguments, "--json"])
    rows = json.loads(capsys.readouterr().out)["coefficients"]
    assert rows[0]["RCA"] == pytest.approx(fit.coef_[0], abs=1e-9)
    assert rows[0]["residualised"] == pytest.approx(fit.residualised_[0], abs=1e-9)


def test_without_evidence_errors_are_at_least_those_of_the_textbook():
    """The least-squares fit is what is reported; what the noise of V may hide adds to its error."""
    X, y = draw(300, 80, 6, kind="gaussian")
    fit = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=80)).fit(X, y)
    assert fit.rca_.diagnostics_.gate == 0
    expected, error = least_squares(np.hstack([X[:, :80], shared_variates(fit.rca_, X, 80)]), y)
    np.testing.assert_allclose(fit.coef_, expected[:80], atol=1e-9)
    assert (fit.coefficients_.standard_error > error[:80]).all()
    grouped = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=80)).fit(X, y, groups=np.arange(300) // 2)
    assert np.isnan(grouped.coefficients_.standard_error).all()  # groups are not independent samples


def test_known_covariates_count_as_columns():
    X, y = draw(300, 80, 6, kind="gaussian")
    known = np.random.default_rng(1).normal(size=(300, 5))
    table, outcome = np.hstack([X, known]), y + known @ np.arange(5)
    views = {"U": range(80), "V": range(80, 86)}
    rca = rc.ContrastiveRCA(views=views, covariates=list(range(86, 91)))
    fit = rc.ComponentRegression(rca=rca).fit(table, outcome)
    without = np.column_stack([np.ones(300), known])
    cleaned = X - without @ np.linalg.lstsq(without, X, rcond=None)[0]
    left = rc.ContrastiveRCA(views=80).fit(cleaned)
    columns = np.hstack([X[:, :80], shared_variates(left, cleaned, 80), known])
    expected, error = least_squares(columns, outcome)
    np.testing.assert_allclose(fit.coef_, expected[:80], atol=1e-9)
    assert (fit.coefficients_.standard_error > error[:80]).all()


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_a_vanishing_penalty_gives_least_squares(l1_ratio):
    X, y = draw(500, 100, 10, noise=1.5, dense=True)
    exact, close = (
        rc.ComponentRegression(alpha=a, l1_ratio=l1_ratio, rca=rc.ContrastiveRCA(views=100)).fit(X, y)
        for a in (0.0, 1e-7)
    )
    assert exact.rca_.diagnostics_.gate > 0
    assert np.abs(exact.coef_ - exact.residualised_).max() > 1e-4  # something was corrected
    np.testing.assert_allclose(close.coef_, exact.coef_, atol=1e-5)


def test_few_samples_warn_and_too_few_are_refused():
    X, y = draw(200, 100, 6)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=100))
    with pytest.warns(rc.SampleSizeWarning, match=r"200 samples for 103 coefficients.*alpha=\"cv\""):
        learner.fit(X, y)
    X, y = draw(100, 150, 6)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=150))
    with pytest.raises(rc.DataError, match=r"100 samples do not determine .* view 'U' \(150\).*alpha=\"cv\""):
        learner.fit(X, y)
    model = rc.ContrastiveRCA(views=150).fit(X)
    with pytest.raises(rc.DataError, match='alpha="cv"'):
        model.calibrate(X, y)


def test_a_penalty_serves_more_columns_than_samples():
    X, y = draw(150, 300, 10)
    fit = rc.ComponentRegression(alpha="cv", rca=rc.ContrastiveRCA(views=300)).fit(X, y)
    assert np.argmax(np.abs(fit.coef_)) == 0
    assert fit.coefficients_ is None
    assert fit.residualised_.shape == (300,)
    assert np.isfinite(fit.predict(X)).all()
    sparse = rc.ComponentRegression(alpha=0.1, l1_ratio=1.0, rca=rc.ContrastiveRCA(views=300)).fit(X, y)
    assert sparse.coef_[0] == pytest.approx(2, abs=0.4)


def test_a_reduction_is_always_said(tmp_path):
    X, _ = draw(120, 80, 70)
    model = rc.ContrastiveRCA(views=80).fit(X)
    said = r"principal components of the 80 columns of U and \d+ principal components of the 70 columns of V"
    assert re.search(said, model.summary())
    page = rc.write_report(tmp_path / "page.html", model).read_text(encoding="utf-8")
    assert re.search(said, page)
    narrow = rc.ContrastiveRCA(views=4).fit(draw(120, 4, 4)[0])
    assert "principal components" not in narrow.summary()


@pytest.mark.parametrize(("n", "d_u", "d_v"), [(300, 90, 6), (100, 150, 6), (100, 6, 150), (80, 200, 200)])
def test_parts_of_wide_views_add_up(n, d_u, d_v):
    X, _ = draw(n, d_u, d_v)
    model = rc.ContrastiveRCA(views=d_u).fit(X)
    U, V = X[:, :d_u], X[:, d_u:]
    s1, s2, s3 = (model.transform(X, component=c) for c in ("S1", "S2", "S3"))
    np.testing.assert_allclose(s1 + s2, U, atol=1e-10)
    np.testing.assert_allclose(s2 @ model.A_.T + s3, V, atol=1e-9)
    covariances = {c: model.components_[c].covariance for c in ("S1", "S2", "S3")}
    for name, covariance in covariances.items():
        values = np.linalg.eigvalsh(covariance)
        assert values[0] > -1e-10 * values[-1]
        np.testing.assert_allclose(model.components_[name].variance, np.diag(covariance), atol=1e-10)
        theta = np.random.default_rng(0).normal(size=len(covariance))
        np.testing.assert_allclose(model.components_[name].projected_cumulant(theta, 2), covariance @ theta, atol=1e-9)
    np.testing.assert_allclose(covariances["S1"] + covariances["S2"], np.cov(U.T, bias=True), atol=1e-10)
    table = model.variance_table()
    np.testing.assert_allclose(table.own, np.diag(covariances["S1"]), atol=1e-10)
    np.testing.assert_allclose(table.own + table.shared, table.total, atol=1e-10)
    assert np.all(table.low <= table.own + 1e-9)
    assert np.all(table.own <= table.high + 1e-9)
    interval = model.confidence_interval("covariance")
    np.testing.assert_allclose(np.diag(interval.high), table.high, atol=1e-8)
    assert np.isfinite(model.score(X))


def test_without_evidence_the_cleaned_table_is_the_residual():
    X, _ = draw(300, 80, 6, kind="gaussian")
    model = rc.ContrastiveRCA(views=80).fit(X)
    np.testing.assert_allclose(model.transform(X) - X[:, :80].mean(axis=0), model.residual(X), atol=1e-10)
    V = X[:, 80:] - X[:, 80:].mean(axis=0)
    full = rc.ContrastiveRCA(views=80, rank="full").fit(X)
    assert np.abs(V.T @ full.residual(X)).max() < 1e-8


@pytest.mark.parametrize(("n", "d_u"), [(300, 90), (100, 150)])
def test_principal_directions_through_factors(n, d_u):
    X, _ = draw(n, d_u, 6)
    pca = rc.ComponentPCA(3, rca=rc.ContrastiveRCA(views=d_u)).fit(X)
    own = np.einsum("ki,ij,kj->k", pca.components_, pca.component_.covariance, pca.components_)
    np.testing.assert_allclose(pca.explained_variance_, own, rtol=1e-10)
    whole = rc.ComponentPCA(3).fit_component(pca.component_)  # read off the covariance as it is
    values, vectors = np.linalg.eigh(pca.component_.covariance)
    np.testing.assert_allclose(whole.explained_variance_, values[::-1][:3], rtol=1e-10)
    assert np.abs(np.abs(whole.components_ @ vectors[:, ::-1][:, :3]) - np.eye(3)).max() < 1e-6
    with pytest.warns(rc.SampleSizeWarning, match="no standard errors"):
        assert np.isnan(pca.confidence_interval("explained_variance").standard_error).all()
    every = rc.ComponentPCA(None, rca=rc.ContrastiveRCA(views=d_u)).fit(X)
    np.testing.assert_allclose(every.components_ @ every.components_.T, np.eye(d_u), atol=1e-9)


def test_a_wide_model_is_saved_and_loaded(tmp_path):
    X, y = draw(200, 90, 6)
    fit = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=90)).fit(X, y)
    fit.save(tmp_path / "model.npz")
    again = rc.load(tmp_path / "model.npz")
    assert again.summary() == fit.summary()
    np.testing.assert_array_equal(again.rca_.calibrate(X, y).coef, fit.coef_)


def test_two_classes_on_all_columns():
    X, y = draw(900, 160, 10)
    label = (y > 0).astype(int)
    fit = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=160)).fit(X, label)
    assert np.argmax(np.abs(fit.coef_[0])) == 0
    assert np.isfinite(fit.coefficients_.standard_error).all()


def test_matrices_that_nobody_could_hold_are_refused_in_words():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 24_010))
    X[:, :24_000] += rng.exponential(size=(12, 1))
    model = rc.ContrastiveRCA(views=24_000).fit(X)
    assert model.components_["S1"].variance.shape == (24_000,)
    with pytest.raises(rc.CapacityError, match=r"24000 x 24000 entries.*variance"):
        _ = model.components_["S1"].covariance


def test_intervals_of_variances_form_no_matrix_of_columns():
    """Of each variance, without each block and over the posterior: nothing of 12 000 x 12 000, of which one has 1.1 GB."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12_020)) + 0.5 * rng.exponential(size=(40, 1))
    tracemalloc.start()
    found = rc.ContrastiveRCA(views=12_000, n_blocks=10).fit(X).variance_table()
    assert tracemalloc.get_traced_memory()[1] < 6e8
    tracemalloc.stop()
    assert np.all(found.low <= found.own + 1e-9)
    assert np.all(found.own <= found.high + 1e-9)


def test_a_penalty_serves_two_rows():
    X = np.random.default_rng(0).normal(size=(2, 4))
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=2, n_blocks=10), alpha="cv")
    assert np.isfinite(learner.fit(X, X[:, 0]).coef_).all()


def test_one_huge_entry_is_no_numerical_accident():
    """Without the block that holds it hardly anything is left of its column."""
    data = rc.datasets.make_contrastive(400, random_state=0)
    X = data.X.copy()
    X[7, 1], X[7, 12] = 1e127, -1e90
    model = rc.ContrastiveRCA(views=10, n_blocks=10).fit(X)
    assert np.isfinite(model.A_).all()
    assert np.isfinite(model.components_["S1"].covariance).all()


def test_blocks_have_an_upper_bound():
    with pytest.raises(ValueError, match="at least 10 and at most 200"):
        rc.ContrastiveRCA(views=2, n_blocks=100_000).fit(np.random.default_rng(0).normal(size=(100, 4)))


def test_two_rows_determine_nothing(rng):
    X = rng.normal(size=(2, 4))
    with pytest.raises(rc.DataError, match="2 samples do not determine"):
        rc.ContrastiveRCA(views=2).fit(X).calibrate(X, rng.normal(size=2))


# ---- three views and more

THREE = [("a",), ("b",), ("c",), ("a", "b", "c")]


@pytest.fixture(scope="module")
def wide():
    """Three views of 60 columns, 200 samples of them; y = the first column of a's own component + error."""
    data = rc.datasets.make_views(200, 3, 60, sets=THREE)
    y = data.components[("a",)][:, 0] + np.random.default_rng(0).normal(size=200)
    return data, y, rc.RCA(views=data.views, sets=THREE).fit(data.X)


def test_coefficients_of_several_wide_views_do_not_explode(wide):
    data, y, model = wide
    learner = rc.ComponentRegression(rca=rc.RCA(views=data.views, sets=THREE), component=("a",))
    with pytest.warns(rc.SampleSizeWarning, match=r"200 samples for 62 coefficients.*alpha=\"cv\""):
        fit = learner.fit(data.X, y)
    truth = np.eye(60)[0]
    slopes, _ = least_squares(data.X[:, data.views["a"]], y)
    assert np.sum((fit.coef_ - truth) ** 2) < 1.1 * np.sum((slopes - truth) ** 2)
    np.testing.assert_allclose(model.calibrate(data.X, y, ("a",)).coef, fit.coef_)
    outside = data.X[:, 60:] - data.X[:, 60:].mean(axis=0)
    columns = np.hstack([data.X[:, :60], outside @ model.solution_.white.into[60:, 1:]])
    expected, error = least_squares(columns, y)  # the view, and the directions in which it is compared
    np.testing.assert_allclose(fit.coef_, expected[:60], atol=1e-8)
    np.testing.assert_allclose(fit.coefficients_.standard_error, error[:60], rtol=1e-8)


def test_several_wide_views_refuse_fewer_samples_than_coefficients():
    data = rc.datasets.make_views(55, 3, 60, sets=THREE)
    y = np.random.default_rng(0).normal(size=55)
    learner = rc.ComponentRegression(rca=rc.RCA(views=data.views, sets=THREE), component=("a",))
    with pytest.raises(rc.DataError, match=r"55 samples do not determine the \d+ .* view 'a' \(60\).*alpha=\"cv\""):
        learner.fit(data.X, y)
    assert np.isfinite(learner.set_params(alpha="cv").fit(data.X, y).coef_).all()


def test_no_prediction_keeps_so_little_that_coefficients_explode():
    """A component that the fit all but denies: its coefficients are stretched ten times at most, as for two views."""
    data = rc.datasets.make_views(3000, 3, 2, sets=THREE, random_state=3)
    model = rc.RCA(views=data.views, sets=THREE).fit(data.X)
    found, y = model.solution_, data.components[("a",)][:, 0]
    before = model.calibrate(data.X, y, ("a",)).coef
    own = found.fitted.covariances
    small = {**own, ("a",): own[("a",)] * np.array([[1.0, 1e-3], [1e-3, 1e-6]])}
    model.fitted_ = replace(
        model.fitted_, solution=replace(found, fitted=replace(found.fitted, covariances=small)), made={}
    )
    after = model.calibrate(data.X, y, ("a",)).coef
    assert np.abs(after).max() < 11 * np.abs(before).max()


def test_views_that_were_reduced_have_no_errors_of_refits(wide):
    """What lies outside of the directions that were searched is not refitted: a bootstrap says .1 where refits said .0001."""
    _, _, model = wide
    for what, view in (("covariance", None), ("A", "b")):
        key = ("a",) if view is None else ("a", "b", "c")
        with pytest.warns(rc.SampleSizeWarning, match="no standard errors: too many columns of 'a' and 'b' and 'c'"):
            limits = model.confidence_interval(what, key, view)
        assert np.isnan(limits.standard_error).all()
        assert np.isnan(limits.low).all()
    X, _ = draw(200, 60, 60)
    pair = rc.ContrastiveRCA(views=60).fit(X)
    with pytest.warns(rc.SampleSizeWarning, match="no standard errors"):
        assert np.isnan(pair.jackknife(lambda m: m.components_["S1"].covariance).standard_error).all()
    limits = pair.confidence_interval("covariance")
    assert np.isnan(limits.standard_error).all()  # the identified set is all there is
    assert limits.identified is not None


@pytest.mark.parametrize(
    ("widths", "n", "rank", "scale"),
    [({"a": 20, "b": 20, "c": 20}, 500, 2, 3.0), ({"a": 500, "b": 300, "c": 60}, 200, 1, 6.0)],
)
def test_several_views_of_few_rows_are_compared_in_what_they_share(widths, n, rank, scale):
    # Principal components of 200 rows of 500 columns of noise have cos^2 = (1 - 2.5 / l^2) / (1 + 2.5 / l) to a direction of
    # variance l: .76 at scale 3, .93 at scale 6.
    common = tuple("abc")
    sets = [common, ("a",), ("b",), ("c",)]
    kinds = {common: "labs", ("a",): "gaussian", ("b",): "uniform", ("c",): "gaussian"}
    data = rc.datasets.make_views(
        n, widths, sets=sets, kinds=kinds, ranks={common: rank}, scales={common: scale}, random_state=1
    )
    model = rc.RCA(views=data.views, sets=sets).fit(data.X)
    assert model.ranks_ == {common: rank}
    parts = [model.transform(data.X, q) for q in sets[:2]]
    centred = data.X[:, data.views["a"]] - data.X[:, data.views["a"]].mean(axis=0)
    np.testing.assert_allclose(sum(part - part.mean(axis=0) for part in parts), centred, atol=1e-8)
    shared = data.components[common] - data.components[common].mean(axis=0)
    assert np.sum((parts[0] - shared) ** 2) < 0.3 * np.sum(shared**2)
    assert rc.RCA(views=data.views, discover=True).fit(data.X).evidence_.keys() >= set(sets)
