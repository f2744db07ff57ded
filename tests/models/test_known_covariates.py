"""A known cause of the outcome, named as a covariate, changes nothing but itself."""

import numpy as np
import pytest
from scipy.special import expit

import richcomponents as rc
from richcomponents import baselines
from richcomponents.datasets import make_contrastive

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")


@pytest.fixture
def table(rng):
    data = make_contrastive(2000, d=4, S2="skewed", random_state=4)
    age = rng.normal(size=(len(data.X), 1))
    return data, age, np.hstack([data.X, age])


@pytest.mark.parametrize("kind", ["skewed", "gaussian"])
def test_standard_errors_and_penalty_do_not_see_what_covariates_explain(rng, kind):
    data = make_contrastive(2000, d=4, S2=kind, random_state=4)
    age = rng.normal(size=(len(data.X), 1))
    X = np.hstack([data.X, age])
    rca = rc.ContrastiveRCA(views=4, covariates=[8])
    plain = rc.ComponentRegression(rca=rca).fit(X, data.y)
    aged = rc.ComponentRegression(rca=rca).fit(X, data.y + 10 * age[:, 0])
    np.testing.assert_allclose(aged.coef_, plain.coef_, rtol=1e-10)
    np.testing.assert_allclose(aged.coefficients_.standard_error, plain.coefficients_.standard_error, rtol=1e-8)
    chosen = [rc.ComponentRegression("cv", rca=rca).fit(X, y).alpha_ for y in (data.y, data.y + 10 * age[:, 0])]
    np.testing.assert_allclose(chosen[1], chosen[0], rtol=1e-8)


@pytest.mark.parametrize("method", ["naive", "covariates", "cca", "kernel_cca"])
def test_simple_methods_partial_covariates_out_too(table, method):
    data, age, X = table
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, covariates=[8]))
    simple = getattr(baselines, method)
    plain = simple(learner, X, data.y)
    everywhere = X + np.hstack([np.tile(age, (1, 8)), np.zeros_like(age)])
    aged = simple(learner, everywhere, data.y + 10 * age[:, 0])
    np.testing.assert_allclose(aged.coef_, plain.coef_, rtol=1e-6, atol=1e-8)


def test_simple_logistic_regressions_take_covariates_as_columns(table, rng):
    data, age, X = table
    y = (rng.uniform(size=len(X)) < expit(data.S1 @ np.array([1.0, -0.5, 0.5, 0.0]) + 2 * age[:, 0])).astype(int)
    learner = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=4, covariates=[8]))
    known = age - age.mean()
    U = data.U - known @ np.linalg.lstsq(known, data.U - data.U.mean(axis=0), rcond=None)[0]
    expected = rc.ComponentLogisticRegression().fit_clean(U, y, covariates=age)
    np.testing.assert_allclose(baselines.naive(learner, X, y).coef_, expected.coef_, rtol=1e-6)
    ignored = rc.ComponentLogisticRegression().fit_clean(U, y)
    assert np.linalg.norm(expected.coef_) > 1.1 * np.linalg.norm(ignored.coef_)  # leaving a cause out attenuates


def test_simple_methods_learn_the_view_that_holds_the_component(table):
    data = table[0]
    learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=4), component="S3")
    np.testing.assert_allclose(
        baselines.naive(learner, data.X).explained_variance_,
        np.linalg.eigvalsh(np.cov(data.V.T, bias=True))[-1:],
        rtol=1e-8,
    )
    with pytest.raises(rc.DataError, match="lives in all views"):
        baselines.covariates(rc.ComponentPCA(rca=rc.ContrastiveRCA(views=4), component="S2"), data.X)


def test_without_an_intercept_the_log_odds_are_zero_at_the_origin(rng):
    data = make_contrastive(4000, d=4, S2="skewed", A="good", random_state=4)
    beta, shift = np.array([1.0, 0.5, -0.5, 0.0]), np.array([2.0, 0.0, 0.0, 0.0])
    S1 = data.S1 + shift
    X = np.hstack([data.U + shift, data.V])
    y = (rng.uniform(size=len(X)) < expit(S1 @ beta)).astype(int)
    learner = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=4), fit_intercept=False)
    found = learner.fit(X, y)
    assert found.intercept_[0] == 0
    assert abs(found.predict_proba_clean(S1)[:, 1].mean() - y.mean()) < 0.02
    assert np.linalg.norm(found.coef_[0] - beta) < 0.4
