"""ComponentLikelihood: models that are not ours, from views and an outcome in a table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

import richcomponents as rc

N, D = 6000, 4


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(N, d=D, S2="skewed", A="good", random_state=5)


def rca():
    return rc.ContrastiveRCA(views=D)


def eta(theta, s):
    return theta[0] + s @ theta[1:]


def student(theta, s):
    """Location of a multivariate t distribution."""
    return -(5 + s.shape[1]) / 2 * np.log1p(np.sum((s - theta) ** 2, axis=1) / 5)


def two_clusters(theta, s):
    """A mixture of two Gaussians of standard deviation .6, equally frequent."""
    near = [-np.sum((s - centre) ** 2, axis=1) / 0.72 for centre in theta.reshape(2, -1)]
    return np.logaddexp(*near)


def robust(theta, s, y):
    """Regression with errors of a t distribution."""
    return -3 * np.log1p((y - eta(theta, s)) ** 2 / 1.25)


def probit(theta, s, y):
    return y * log_ndtr(eta(theta, s)) + (1 - y) * log_ndtr(-eta(theta, s))


def softplus_counts(theta, s, y):
    """Counts whose mean is log(1 + exp(eta))."""
    mean = np.logaddexp(0, eta(theta, s))
    return y * np.log(mean) - mean


def outcomes(model, data, rng):
    """y, and the parameters that it was made with."""
    truth = np.r_[0.5, data.beta]
    at = eta(truth, data.S1)
    return {
        robust: lambda: at + 0.5 * rng.standard_t(5, size=N),
        probit: lambda: (rng.normal(size=N) < at).astype(float),
        softplus_counts: lambda: rng.poisson(np.logaddexp(0, at)),
    }[model](), truth


@pytest.mark.parametrize("model", [robust, probit, softplus_counts])
def test_outcomes_are_read_off_the_table(model, data):
    y, truth = outcomes(model, data, np.random.default_rng(3))
    start = np.r_[1.0, np.zeros(D)]
    found = rc.ComponentLikelihood(model, start=start, rca=rca()).fit(data.X, y)
    clean = rc.ComponentLikelihood(model, start=start).fit_clean(data.S1, y)
    error, simple, best = (
        float(np.sum((theta - truth) ** 2)) for theta in (found.theta_, found.residualised_, clean.theta_)
    )
    assert found.fit_.converged
    assert best < error < 0.3 * simple
    assert 0 < found.fit_.epsilon < 0.3
    assert "residualised" in found.summary()
    assert model.__name__ in found.title()


def test_location_of_a_component_alone(data):
    shift = np.array([1.0, -1.0, 0.0, 2.0])
    X = data.X + np.r_[shift, np.zeros(D)]
    found = rc.ComponentLikelihood(student, start=np.zeros(D), rca=rca()).fit(X)
    clean = rc.ComponentLikelihood(student, start=np.zeros(D)).fit_clean(data.S1 + shift)
    assert found.theta_ == pytest.approx(clean.theta_, abs=0.06)
    again = rc.ComponentLikelihood(student, start=np.zeros(D)).fit_component(found.rca_.components_["S1"])
    assert again.theta_ == pytest.approx(found.theta_, abs=0.02)
    assert again.residualised_ is None


def test_a_mixture_by_gradient(data):
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 0.5, 0.0, 0.0], [-1.0, -0.5, 0.0, 0.0]])
    S1 = centres[rng.integers(2, size=N)] + 0.6 * rng.normal(size=(N, D))
    X = np.hstack([S1 + data.S2, data.V])
    model = rc.ComponentLikelihood(two_clusters, start=np.r_[0.1, np.zeros(7)], n_restarts=1, degree=5, rca=rca())
    found = np.stack(sorted(model.fit(X).theta_.reshape(2, D).tolist(), reverse=True))
    assert found == pytest.approx(centres, abs=0.2)
    assert len(model.fit_.restarts) == 2


def test_a_y_of_two_values_is_never_asked_for_others(data):
    y, _ = outcomes(probit, data, np.random.default_rng(3))

    def strict(theta, s, y):
        assert set(np.unique(y)) <= {0.0, 1.0}
        return probit(theta, s, y)

    one, two = (rc.ComponentLikelihood(f, start=np.zeros(D + 1), rca=rca()).fit(data.X, y) for f in (strict, probit))
    assert one.theta_ == pytest.approx(two.theta_, abs=1e-8)


def test_with_and_without_the_ridge_form(data):
    """Least squares: the same numbers as from the component and Cov(R, y) by hand."""
    y = data.S1 @ data.beta + np.random.default_rng(0).normal(size=N)
    found = rc.ComponentLikelihood(lambda t, s, y: -((y - eta(t, s)) ** 2) / 2, start=np.zeros(D + 1), rca=rca())
    found.fit(data.X, y)
    residual = found.rca_.residual(data.X)
    cross = residual.T @ (y - y.mean()) / (N - 1)
    assert found.theta_[1:] == pytest.approx(np.linalg.solve(found.component_.covariance, cross), abs=1e-5)


def test_columns_covariates_and_components_of_many_views(data):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(data.X, columns=[f"u{j}" for j in range(D)] + [f"v{j}" for j in range(D)])
    frame["age"] = rng.normal(size=N)
    frame["y"] = data.S1 @ data.beta + frame["age"] + rng.normal(size=N)
    views = {"u": list(frame.columns[:D]), "v": list(frame.columns[D : 2 * D])}
    model = rc.ComponentLikelihood(robust, start=np.zeros(D + 1), names=["level", *views["u"]])
    known = model.set_params(rca=rc.ContrastiveRCA(views=views, covariates=["age"])).fit(frame, "y")
    assert known.theta_[1:] == pytest.approx(data.beta, abs=0.2)
    assert known.estimate().names[0] == "level"
    general = rc.ComponentLikelihood(robust, start=np.zeros(D + 1), rca=rc.RCA(views=views), component=("u",))
    frame["y"] -= frame["age"]
    assert general.fit(frame[[*views["u"], *views["v"], "y"]], "y").theta_[1:] == pytest.approx(data.beta, abs=0.25)


def test_mini_batches(data):
    y, _ = outcomes(softplus_counts, data, np.random.default_rng(3))
    options = {"start": np.r_[1.0, np.zeros(D)], "rca": rca()}
    steady = rc.ComponentLikelihood(softplus_counts, **options).fit(data.X, y)
    path = rc.ComponentLikelihood(softplus_counts, solver="sgd", batch_size=400, n_steps=150, **options).fit(data.X, y)
    assert path.theta_ == pytest.approx(steady.theta_, abs=0.12)


def test_refusals(data):
    with pytest.raises(ValueError, match="log_likelihood must be a function"):
        rc.ComponentLikelihood(start=np.zeros(2), rca=rca()).fit(data.X)
    with pytest.raises(ValueError, match="start="):
        rc.ComponentLikelihood(student, rca=rca()).fit(data.X)
    with pytest.raises(ValueError, match="degree <= 5"):
        rc.ComponentLikelihood(student, start=np.zeros(D), degree=7, rca=rca()).fit(data.X)
    with pytest.raises(rc.DataError, match="one finite number per row"):
        rc.ComponentLikelihood(robust, start=np.zeros(D + 1), rca=rca()).fit(data.X, ["a"] * N)
    with pytest.raises(ValueError, match="names="):
        rc.ComponentLikelihood(student, start=np.zeros(D), names=["a"], rca=rca()).fit(data.X)


@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_a_likelihood_that_is_not_finite_is_named(data):
    def narrow(theta, s):
        return np.log(theta[0] - 10 - np.sum(s**2, axis=1))

    model = rc.ComponentLikelihood(narrow, start=[0.0], rca=rc.ContrastiveRCA(views=data.S1.shape[1]))
    with pytest.raises(ValueError, match=r"not finite at start=\[0.0\]"):
        model.fit(data.X)
