"""ComponentRegression(shared=True): an outcome that depends on S1 and on S2."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.datasets import make_contrastive

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")

GAMMA = np.array([0.7, -0.5, 0.3, 0.4])


def regression(**options):
    return rc.ComponentRegression(**{"rca": rc.ContrastiveRCA(views=4), "shared": True, **options})


def make(n=3000, S2="skewed", A="good", seed=1):
    data = make_contrastive(n, d=4, S2=S2, A=A, random_state=seed)
    return data, data.y + data.S2 @ GAMMA


@pytest.fixture(scope="module")
def table():
    return make()


@pytest.fixture(scope="module")
def fitted(table):
    data, y = table
    return regression().fit(data.X, y)


def test_both_coefficients_are_recovered():
    data, y = make(20_000)
    model = regression().fit(data.X, y)
    error, simple = (np.linalg.norm(coef - data.beta) for coef in (model.coef_, model.residualised_))
    assert error < 0.08
    assert error < 0.3 * simple
    assert np.linalg.norm(model.shared_coef_ - GAMMA) < 0.08
    for found, truth in ((model.coefficients_, data.beta), (model.shared_coefficients_, GAMMA)):
        assert np.all(np.abs(found.value - truth) < 4 * found.standard_error)
    parts = np.array([data.beta @ data.beta / 3, GAMMA @ GAMMA * 0.36, 1.0])
    np.testing.assert_allclose(model.variance_split_.value, parts / parts.sum(), atol=0.03)
    assert model.variance_split_.value.sum() == pytest.approx(1)
    assert np.all(model.variance_split_.standard_error < 0.05)


def test_an_outcome_of_s1_alone_gives_the_same_as_before():
    data = make_contrastive(20_000, d=4, S2="skewed", A="good", random_state=1)
    both, plain = (regression(shared=shared).fit(data.X, data.y) for shared in (True, False))
    assert np.all(np.abs(both.shared_coefficients_.z) < 4)
    assert np.linalg.norm(both.shared_coef_) < 0.1
    np.testing.assert_allclose(both.coef_, plain.coef_, atol=0.05)
    np.testing.assert_allclose(both.residualised_, plain.residualised_, rtol=1e-8)
    assert both.variance_split_.value[1] < 0.01


def test_without_evidence_it_is_least_squares_on_both_views():
    data, y = make(S2="gaussian")
    model = regression(rca=rc.ContrastiveRCA(views=4, errors="free")).fit(data.X, y)
    centred = data.X - data.X.mean(axis=0)
    np.testing.assert_allclose(model.coef_, np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0][:4], rtol=1e-8)
    low, high = model.coefficients_.identified
    assert ((low <= model.coef_) & (model.coef_ <= high)).all()
    assert np.linalg.norm(model.shared_coef_ - GAMMA) < 0.3  # known whatever T
    assert np.isfinite(model.shared_coefficients_.standard_error).all()
    split, parts = model.variance_split_, np.array([data.beta @ data.beta / 3, GAMMA @ GAMMA / 3, 1.0])
    assert np.all((split.low <= parts / parts.sum()) & (parts / parts.sum() <= split.high))


def test_it_is_never_far_from_least_squares_on_both_views():
    ratios = []
    for seed, (n, S2) in enumerate(
        [(200, "skewed"), (400, "paper"), (1000, "labs(3)"), (1000, "heavy"), (400, "mixture")]
    ):
        data, y = make(n, S2, "unif", seed)
        model = regression().fit(data.X, y)
        ratios.append(np.sum((model.coef_ - data.beta) ** 2) / np.sum((model.residualised_ - data.beta) ** 2))
    assert max(ratios) < 1.5


def test_groups_are_the_units_of_the_errors(table):
    data, y = table
    copies = np.repeat(np.arange(1000), 2)
    once = regression().fit(data.X[:1000], y[:1000])
    grouped = regression().fit(data.X[copies], y[copies], groups=copies)
    np.testing.assert_allclose(grouped.shared_coef_, once.shared_coef_, rtol=0.02, atol=0.02)
    ratio = grouped.shared_coefficients_.standard_error / once.shared_coefficients_.standard_error
    assert 0.8 < np.median(ratio) < 1.25


def test_units_do_not_matter(table, fitted):
    data, y = table
    scale = np.array([1.0, 10.0, 0.1, 3.0, 2.0, 0.5, 7.0, 1.0])
    other = regression().fit(data.X * scale + 5, 4 * y - 1)
    np.testing.assert_allclose(other.coef_, 4 * fitted.coef_ / scale[:4], rtol=1e-5)
    np.testing.assert_allclose(other.shared_coef_, 4 * fitted.shared_coef_ / scale[:4], rtol=1e-6)
    for name in ("coefficients_", "shared_coefficients_"):
        error = 4 * getattr(fitted, name).standard_error / scale[:4]
        np.testing.assert_allclose(getattr(other, name).standard_error, error, rtol=1e-3)
    np.testing.assert_allclose(other.variance_split_.value, fitted.variance_split_.value, rtol=1e-5)


def test_known_covariates_change_nothing_but_themselves(table, rng):
    data, y = table
    age = rng.normal(size=(len(y), 1))
    rca = rc.ContrastiveRCA(views=4, covariates=[8])
    plain = regression(rca=rca).fit(np.hstack([data.X, age]), y)
    aged = regression(rca=rca).fit(np.hstack([data.X + age, age]), y + 10 * age[:, 0])
    for name in ("coef_", "shared_coef_", "coefficients_.standard_error", "variance_split_.value"):
        one, two = plain, aged
        for part in name.split("."):
            one, two = getattr(one, part), getattr(two, part)
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-8)
    without = regression().fit(data.X, y)
    np.testing.assert_allclose(plain.coef_, without.coef_, atol=0.05)
    assert "what the covariates leave of y" in plain.summary()


def test_a_known_mixing_matrix_helps_where_nothing_else_does():
    data, y = make(10_000, "gaussian")
    known = regression(rca=rc.ContrastiveRCA(views=4, A=data.A)).fit(data.X, y)
    error, simple = (np.linalg.norm(coef - data.beta) for coef in (known.coef_, known.residualised_))
    assert error < 0.6 * simple
    assert np.all(np.abs(known.coef_ - data.beta) < 4 * known.coefficients_.standard_error)


def test_views_that_share_nothing_have_no_s2(rng):
    X = rng.normal(size=(500, 8))
    model = regression().fit(X, X[:, 0] + rng.normal(size=500))
    np.testing.assert_array_equal(model.shared_coef_, 0)
    assert np.isnan(model.shared_coefficients_.standard_error).all()
    assert np.isfinite(model.coefficients_.standard_error).all()
    assert "The views share nothing" in model.summary()


# ---- the estimator


def test_shapes_names_and_words(table):
    data, y = table
    names = [f"t{i}" for i in range(4)] + [f"c{i}" for i in range(4)]
    model = regression().fit(pd.DataFrame(data.X, columns=names), pd.Series(y))
    for found in (model.coefficients_, model.shared_coefficients_):
        assert found.value.shape == found.standard_error.shape == (4,)
        assert found.names == ("t0", "t1", "t2", "t3")
    assert model.coef_.shape == model.shared_coef_.shape == model.residualised_.shape == (4,)
    assert model.variance_split_.names == ("own part (S1)", "shared part (S2)", "unexplained")
    text = model.summary()
    assert "Linear regression on S1 and S2" in text
    assert "On S2, the part shared with V" in text
    assert "Of the variance of y, " in text
    assert {"residualised"} == set(model.estimate().others)


def test_predictions_use_both_parts(table, fitted):
    data, y = table
    own, shared = (fitted.rca_.predict_component(data.X, part) for part in ("S1", "S2"))
    expected = fitted.intercept_ + own @ fitted.coef_ + shared @ fitted.shared_coef_
    np.testing.assert_allclose(fitted.predict(data.X), expected, rtol=1e-9)
    assert fitted.predict(data.X).mean() == pytest.approx(y.mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = regression(shared=False).fit(data.X, y)
    assert fitted.score(data.X, y) > plain.score(data.X, y)
    of_s1 = plain.predict_clean(plain.rca_.predict_component(data.X, "S1"))
    assert plain.score(data.X, y) > 1 - np.var(y - of_s1) / np.var(y) + 0.03
    clean = fitted.predict_clean(data.S1, data.S2)
    assert np.var(y - clean) < np.var(y - fitted.predict(data.X))
    with pytest.raises(ValueError, match="samples of both"):
        fitted.predict_clean(data.S1)
    with pytest.raises(rc.DataError, match="same rows"):
        fitted.predict_clean(data.S1, data.S2[1:])
    with pytest.raises(ValueError, match="fit with shared=True"):
        plain.predict_clean(data.S1, data.S2)
    known = regression(rca=rc.ContrastiveRCA(views=4, mean={"S1": np.ones(4)})).fit(data.X, y)
    np.testing.assert_allclose(known.predict(data.X), fitted.predict(data.X), rtol=1e-8, atol=1e-8)


def test_parameters_are_those_of_scikit_learn(fitted):
    assert fitted.get_params(deep=False)["shared"] is True
    assert clone(fitted).shared is True
    assert not hasattr(clone(fitted), "shared_coef_")
    assert fitted.unfitted().shared is True
    assert rc.ComponentRegression().shared is False


def test_the_warning_names_the_remedy(table):
    data, y = table
    with pytest.warns(rc.SpecificationWarning, match=r"The outcome contradicts the model: y goes with V .*shared=True"):
        plain = regression(shared=False).fit(data.X, y)
    assert plain.shared_coef_ is plain.shared_coefficients_ is plain.variance_split_ is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SpecificationWarning)
        regression().fit(data.X, y)
    with pytest.warns(rc.SpecificationWarning) as told:
        rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=4)).fit(data.X, y > 0)
    assert not any("shared=True" in str(one.message) for one in told)


def test_what_is_not_supported_is_refused_in_words(table):
    data, y = table
    with pytest.raises(ValueError, match=r"penalties are not supported with it, got alpha=0\.1"):
        regression(alpha=0.1).fit(data.X, y)
    with pytest.raises(ValueError, match="penalties are not supported"):
        regression(alpha="cv").fit(data.X, y)
    with pytest.raises(ValueError, match="component='S3'"):
        regression(component="S3").fit(data.X, y)
    with pytest.raises(ValueError, match=r"ContrastiveRCA\(method='paper'\)"):
        regression(rca=rc.ContrastiveRCA(views=4, method="paper")).fit(data.X, y)
    three = {"a": [0, 1, 2, 3], "b": [4, 5], "c": [6, 7]}
    with pytest.raises(ValueError, match="got RCA"):
        regression(rca=rc.RCA(views=three), component=("a",)).fit(data.X, y)
    with pytest.raises(ValueError, match="True or False"):
        regression(shared="yes").fit(data.X, y)
    with pytest.raises(rc.DataError, match="which columns are which view"):
        rc.ComponentRegression(shared=True).fit(data.X, y)
    with pytest.raises(ValueError, match="needs the rows"):
        regression().fit_component(rc.Component.of_samples(data.S1), np.ones(4))


@pytest.mark.filterwarnings("ignore::richcomponents.SampleSizeWarning")
def test_wide_views_are_refused_in_words(rng):
    n, d = 200, 80
    s2 = rng.exponential(size=(n, 1)) - 1
    X = np.hstack([rng.normal(size=(n, d)) + 2 * s2, s2 + rng.normal(size=(n, 4))])
    with pytest.raises(rc.DataError, match="principal components only"):
        rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d), shared=True).fit(X, X[:, 0] + s2[:, 0])
