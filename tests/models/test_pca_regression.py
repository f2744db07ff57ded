"""ComponentPCA, ComponentRegression and the baselines."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import richcomponents as rc
from richcomponents import baselines
from richcomponents.components import Component
from richcomponents.datasets import make_contrastive
from richcomponents.learning.solvers import elastic_net
from richcomponents.models import subspace_distance

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return make_contrastive(3000, d=5, S2="skewed", A="good", random_state=1)


@pytest.fixture(scope="module")
def pca_data():
    return make_contrastive(5000, d=5, S1="pca", S2="paper", A="good", random_state=2)


def regression(**options):
    return rc.ComponentRegression(rca=rc.ContrastiveRCA(views=5), **options)


# ---- principal directions


def test_directions_of_clean_samples_are_those_of_pca(pca_data):
    ours = baselines.true(rc.ComponentPCA(n_components=3), pca_data.S1)
    theirs = PCA(3).fit(pca_data.S1)
    for a, b in zip(ours.components_, theirs.components_, strict=True):
        assert subspace_distance(a[None], b[None]) < 1e-6
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)


def test_direction_of_the_hidden_component(pca_data):
    learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=5))
    fitted = learner.fit(pca_data.X)
    error = subspace_distance(fitted.components_, pca_data.direction[None])
    assert error < 0.1
    assert error < 0.5 * subspace_distance(baselines.naive(learner, pca_data.X).components_, pca_data.direction[None])
    assert error < 0.5 * subspace_distance(baselines.cca(learner, pca_data.X).components_, pca_data.direction[None])
    scores = fitted.transform(pca_data.X)
    assert scores.shape == (5000, 1)
    assert scores.var() < fitted.explained_variance_[0]  # shrunk, as documented
    assert "Principal directions of S1" in fitted.summary()
    again = rc.ComponentPCA().fit_component(fitted.component_)
    top = np.linalg.eigh(fitted.component_.covariance)[1][
        :, -1
    ]  # the covariance as it is: evidence does not come along
    assert subspace_distance(again.components_, top[None]) < 1e-7
    with pytest.raises(ValueError, match="use fit"):
        again.transform(pca_data.X)


def pca_draw(n, d, k, S2, A, seed):
    """A table and the k leading directions of S1: N(0, 1) along the first, 0.6 N(0, 1) along the second."""
    rng = np.random.default_rng(seed)
    data = make_contrastive(n, d, S1="pca", S2=S2, A=np.eye(d) if A is None else A, random_state=rng)
    truth = np.linalg.qr(np.vstack([data.direction, rng.normal(size=d)]).T)[0].T[:k]
    own = 0.6 * rng.normal(size=(n, 1)) * truth[1] if k == 2 else 0.0
    return np.hstack([data.U + own, data.V]), truth


@pytest.mark.parametrize("A", [None, "good"])
@pytest.mark.parametrize("k", [1, 2])
def test_directions_are_never_far_from_residualising(A, k):
    """Unprotected, the worst of these draws has 2 to 11 times the squared error of residualising."""
    ratios = []
    for seed, n, S2 in product(range(4), (1000, 3000), ("paper", "uniform")):
        X, truth = pca_draw(n, 5, k, S2, A, 100 * k + seed)
        learner = rc.ComponentPCA(k, rca=rc.ContrastiveRCA(views=5))
        found, simple = (model.components_ for model in (learner.fit(X), baselines.covariates(learner, X)))
        ratios.append((subspace_distance(found, truth) / subspace_distance(simple, truth)) ** 2)
    assert np.median(ratios) <= 1.3
    assert max(ratios) <= 3


def test_directions_gain_where_the_evidence_is_clear():
    ratios = []
    for seed in range(3):
        for n, S2 in ((1000, "labs(3)"), (10_000, "skewed")):
            X, truth = pca_draw(n, 6, 1, S2, "unif", seed)
            learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=6, classes="none"))
            model, simple = learner.fit(X), baselines.covariates(learner, X)
            assert sum(model.shares_.values()) == pytest.approx(1.0, abs=1e-12)
            assert model.shares_["residualised"] < 0.7
            ratios.append(subspace_distance(model.components_, truth) / subspace_distance(simple.components_, truth))
    assert np.median(ratios) < 0.5


def test_without_evidence_directions_are_those_of_the_simple_methods():
    data = make_contrastive(3000, 4, S1="pca", S2="gaussian", A="good", random_state=0)
    learner = rc.ComponentPCA(2, rca=rc.ContrastiveRCA(views=4, rank="full"))
    model = learner.fit(data.X)
    assert model.trust_ == 0
    naive, residualised = (simple(learner, data.X).components_ for simple in (baselines.naive, baselines.covariates))
    apart = subspace_distance(naive, residualised)
    assert apart > 0.5
    assert subspace_distance(model.components_, residualised) < 1e-6


def test_variances_along_directions_are_the_component_s(pca_data):
    for k in (1, 3, None):
        model = rc.ComponentPCA(k, rca=rc.ContrastiveRCA(views=5)).fit(pca_data.X)
        V, C = model.components_, model.rca_.components_["S1"].covariance
        np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-12)
        np.testing.assert_allclose(model.explained_variance_, np.diag(V @ C @ V.T), rtol=1e-12)
        assert (np.diff(model.explained_variance_) <= 0).all()
    assert model.explained_variance_ratio_.sum() == pytest.approx(1.0)


def test_directions_of_a_view_with_many_columns():
    """The rotation is measured in the span of the shared directions: a hundred columns cost little and lose nothing."""
    rng = np.random.default_rng(0)
    n, d = 2000, 100
    v, loadings = np.linalg.qr(rng.normal(size=(d, 1)))[0][:, 0], rng.normal(size=(2, d))
    s2 = rng.exponential(size=(n, 2)) - 1
    U = 2 * rng.normal(size=(n, 1)) * v + 0.3 * rng.normal(size=(n, d)) + s2 @ loadings / 5
    V = s2 @ rng.normal(size=(2, 20)) / 2 + rng.uniform(-1, 1, (n, 20))
    learner = rc.ComponentPCA(2, rca=rc.ContrastiveRCA(views=d))
    model, simple = learner.fit(np.hstack([U, V])), baselines.covariates(learner, np.hstack([U, V]))
    errors = [subspace_distance(m.components_[:1], v[None]) for m in (model, simple)]
    assert errors[0] <= 1.3 * errors[1]


def test_intervals_of_directions_survive_signs(pca_data):
    fitted = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=5)).fit(pca_data.X)
    interval = fitted.confidence_interval("components")
    assert interval.standard_error.max() < 0.1
    truth = pca_data.direction * np.sign(pca_data.direction @ fitted.components_[0])
    assert np.mean((interval.low[0] <= truth) & (truth <= interval.high[0])) >= 0.6
    variance = fitted.confidence_interval("explained_variance")
    assert variance.low[0] < 1.01 < variance.high[0]


def test_subspaces_compare_safely():
    one, two = np.eye(4)[:2], np.array([[1.0, 1, 0, 0], [1, -1, 0, 0]])
    assert subspace_distance(one, two) < 1e-7
    assert subspace_distance(one, np.eye(4)[1:3]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="different sizes"):
        subspace_distance(one, np.eye(4)[:3])


# ---- regression


@pytest.mark.parametrize(("alpha", "l1_ratio"), [(0.0, 0.0), (0.3, 0.0), (0.05, 1.0), (0.1, 0.5)])
def test_moments_give_what_scikit_learn_gives_on_samples(data, alpha, l1_ratio):
    fitted = baselines.true(rc.ComponentRegression(alpha=alpha, l1_ratio=l1_ratio), data.S1, data.y)
    if alpha == 0:
        theirs = LinearRegression()
    elif l1_ratio == 0:
        theirs = Ridge(alpha=alpha * 3000)
    else:
        theirs = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-10)
    standard = TransformedTargetRegressor(make_pipeline(StandardScaler(), theirs), transformer=StandardScaler())
    expected = standard.fit(data.S1, data.y).predict(data.S1)
    np.testing.assert_allclose(fitted.predict_clean(data.S1), expected, atol=1e-5)


def test_covariates_are_least_squares_on_both_views(data):
    fitted = baselines.covariates(regression(), data.X, data.y)
    both = LinearRegression().fit(data.X, data.y)
    np.testing.assert_allclose(fitted.coef_, both.coef_[:5], atol=1e-8)


def test_regression_on_the_hidden_component(data):
    fitted = regression().fit(data.X, data.y)
    errors = {"rca": np.sum((fitted.coef_ - data.beta) ** 2)}
    for name in ("naive", "covariates", "cca", "kernel_cca"):
        other = getattr(baselines, name)(regression(), data.X, data.y)
        errors[name] = np.sum((other.coef_ - data.beta) ** 2)
    assert errors["rca"] < 0.7 * min(value for name, value in errors.items() if name != "rca")
    table = fitted.coefficients_
    assert np.mean((table.low <= data.beta) & (data.beta <= table.high)) >= 0.6
    assert (table.p_value >= 0).all()
    assert len(table.rows()) == 5
    assert "std.err" in fitted.summary()
    assert np.corrcoef(fitted.predict(data.X), data.S1 @ data.beta)[0, 1] > 0.7


def test_penalised_fits_go_to_least_squares(data):
    plain = regression().fit(data.X, data.y).coef_
    np.testing.assert_allclose(regression(alpha=1e-9).fit(data.X, data.y).coef_, plain, atol=1e-5)
    lasso = regression(alpha=0.05, l1_ratio=1.0).fit(data.X, data.y)
    assert np.abs(lasso.coef_).sum() < np.abs(plain).sum()
    chosen = regression(alpha="cv", l1_ratio=0.5).fit(data.X, data.y)
    assert 0 < chosen.alpha_ < 0.1
    assert chosen.coefficients_ is None


def test_elastic_net_meets_its_optimality_conditions(rng):
    X = rng.normal(size=(200, 6))
    gram, cross = X.T @ X / 200, rng.normal(size=6)
    w = elastic_net(gram, cross, 0.4, 0.7)
    size, level = (
        np.sqrt(np.diag(gram)),
        np.sqrt(cross @ np.linalg.solve(gram, cross)),
    )  # what penalties are in units of
    slope = (cross - gram @ w) / (size * level) - 0.4 * 0.3 * w * size / level
    active = w != 0
    assert active.any()
    assert not active.all()
    np.testing.assert_allclose(slope[active], 0.28 * np.sign(w[active]), atol=1e-7)
    assert (np.abs(slope[~active]) <= 0.28 + 1e-9).all()


def test_names_pickle_and_groups(data):
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(5)] + [f"c{i}" for i in range(5)])
    fitted = regression().fit(frame, pd.Series(data.y), groups=np.repeat(np.arange(600), 5))
    assert fitted.coefficients_.names == tuple(f"t{i}" for i in range(5))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))


def test_bad_input_is_named(data):
    with pytest.raises(rc.DataError, match="missing"):
        regression().fit(data.X, np.full(3000, np.nan))
    with pytest.raises(ValueError, match="alpha must be"):
        regression(alpha=-1).fit(data.X, data.y)
    with pytest.raises(ValueError, match="l1_ratio"):
        regression(l1_ratio=2).fit(data.X, data.y)
    with pytest.raises(ValueError, match="component must be one of"):
        regression(component="S4").fit(data.X, data.y)
    with pytest.warns(rc.SpecificationWarning, match="The outcome contradicts the model: y goes with V"):
        regression().fit(data.X, data.y + data.S3[:, 0])
    with pytest.raises(ValueError, match="from 1 to 5"):
        rc.ComponentPCA(n_components=9, rca=rc.ContrastiveRCA(views=5)).fit(data.X)
    component = Component.of_samples(data.S1)
    with pytest.raises(rc.DataError, match="one entry per column"):
        rc.ComponentRegression().fit_component(component, np.ones(3))
    with pytest.raises(ValueError, match="needs rows"):
        rc.ComponentRegression(alpha="cv").fit_component(component, np.ones(5))
    with pytest.raises(TypeError, match="takes a Component"):
        rc.ComponentPCA().fit_component(data.S1)


def test_standard_errors_of_columns_that_are_nearly_the_same():
    data = make_contrastive(2000, d=3, S2="skewed", random_state=0)
    X = data.X.copy()
    X[:, 1] = X[:, 0] * (1 + 1e-12 * np.random.default_rng(0).normal(size=len(X)))
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3)).fit(X, data.y)
    assert np.isfinite(model.coefficients_.standard_error).all()
    np.testing.assert_allclose(model.coefficients_.standard_error[0], model.coefficients_.standard_error[1], rtol=1e-4)
