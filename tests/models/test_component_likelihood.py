"""ComponentLikelihood: models that are not ours, from views and an outcome in a table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

import richcomponents as rc
from richcomponents.cumulants.estimate import jackknife_error
from richcomponents.storage import storable

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


def gamma(theta, s, y):
    """A positive outcome whose mean is exp(eta), over its shape: waiting times, costs."""
    return -eta(theta, s) - y * np.exp(-eta(theta, s))


def first_event(theta, s, y):
    """Whether anything happened in a time, events of a log-linear rate: the complementary log-log link."""
    rate = np.exp(np.clip(eta(theta, s), -20, 20))
    return y * np.log(-np.expm1(-rate)) - (1 - y) * rate


@storable
def least_squares(theta, s, y):
    return -((y - eta(theta, s)) ** 2) / 2


def outcomes(model, data, rng):
    """y, and the parameters that it was made with."""
    truth = np.r_[0.5, data.beta]
    at = eta(truth, data.S1)
    return {
        robust: lambda: at + 0.5 * rng.standard_t(5, size=N),
        probit: lambda: (rng.normal(size=N) < at).astype(float),
        softplus_counts: lambda: rng.poisson(np.logaddexp(0, at)),
        gamma: lambda: rng.gamma(2.0, np.exp(at) / 2),
        first_event: lambda: (rng.poisson(np.exp(at)) > 0).astype(float),
    }[model](), truth


@pytest.mark.parametrize("model", [robust, probit, softplus_counts, gamma, first_event])
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
    assert found.fit_.theta[1:] == pytest.approx(np.linalg.solve(found.component_.covariance, cross), abs=1e-5)


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


# ---- how sure


def measured(data, noise=1.0):
    return data.S1 @ data.beta + noise * np.random.default_rng(0).normal(size=len(data.S1))


@pytest.fixture(scope="module")
def squares(data):
    """Least squares, a likelihood whose moments are known by hand."""
    return rc.ComponentLikelihood(least_squares, start=np.zeros(D + 1), rca=rca()).fit(data.X, measured(data))


def normal_equations(model, X, y):
    """E[(1, s)(1, s)'] and E[(1, s) y], from the covariance of S1 and Cov(R, y)."""
    own, residual = model.components["S1"], model.residual(X)
    first = np.r_[1.0, own.mean]
    second = np.outer(first, first)
    second[1:, 1:] += own.covariance
    cross = residual.T @ (y - y.mean()) / (len(y) - 1)
    return second, first * y.mean() + np.r_[0.0, cross]


def test_replicates_are_newton_steps_without_each_block(squares, data):
    y, theta, simple = measured(data), squares.fit_.theta, squares.residualised_

    def on_residual(model, X, y):
        Z = np.column_stack([np.ones(len(X)), model.residual(X) + model.components["S1"].mean])
        return Z.T @ Z / len(Z), Z.T @ y / len(Z)

    (H, right), (G, left) = (make(squares.rca_.fitted_, data.X, y) for make in (normal_equations, on_residual))
    steps, simple_steps = [], []
    for block, model in squares.rca_.fitted_.without_blocks():
        keep = np.arange(N) % 20 != block
        M, v = normal_equations(model, data.X[keep], y[keep])
        steps.append(np.linalg.solve(H, (v - M @ theta) - (right - H @ theta)))
        M, v = on_residual(model, data.X[keep], y[keep])
        simple_steps.append(np.linalg.solve(G, (v - M @ simple) - (left - G @ simple)))
    found, share = squares.coefficients_, squares.trust_
    expected = (1 - share) * np.stack(simple_steps) + share * np.stack(steps)
    moved, held_back = found.replicates - found.value, squares.theta_ - theta
    assert moved[:, 1:] == pytest.approx(expected[:, 1:], abs=1e-6)
    assert moved[:, 0] == pytest.approx(expected[:, 0], abs=1e-4)  # residuals stand about the mean of all rows
    assert found.standard_error == pytest.approx(np.hypot(jackknife_error(moved), held_back), rel=1e-4)
    assert found.degrees == 19


def test_errors_of_least_squares_are_those_of_the_regression(squares, data):
    regression = rc.ComponentRegression(rca=rca()).fit(data.X, measured(data)).coefficients_
    # the regression adds what the posterior of T leaves open
    assert squares.coefficients_.standard_error[1:] == pytest.approx(regression.standard_error, rel=0.2)
    assert squares.coefficients_.value[1:] == pytest.approx(regression.value, abs=0.01)


def test_a_solution_without_a_block_has_the_steps_of_the_intervals(squares):
    """Cov(S1) and A of every replicate are those of the one-step jackknife, in other coordinates."""
    solution = squares.rca_.solution_
    wanted = solution.left_out.cov_s1(solution.share * solution.fit.posterior.T.blocks)
    stepped = [one.components["S1"] for _, one in squares.rca_.fitted_.without_blocks()]
    assert np.stack([one.covariance for one in stepped]) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_theta_lies_between_residualising_and_the_maximum():
    few = rc.datasets.make_contrastive(400, d=D, S2="skewed", A="good", random_state=8)
    found = rc.ComponentLikelihood(least_squares, start=np.zeros(D + 1), rca=rca()).fit(few.X, measured(few))
    apart = found.fit_.theta - found.residualised_
    assert 0 < found.trust_ < 1
    assert found.theta_ == pytest.approx(found.residualised_ + found.trust_ * apart, abs=1e-12)
    assert f"{found.trust_:.0%} of the way" in str(found.summary())
    sampling = jackknife_error(found.coefficients_.replicates)
    assert found.coefficients_.standard_error == pytest.approx(np.hypot(sampling, (1 - found.trust_) * apart))


def test_clean_samples_have_the_errors_of_white():
    rng = np.random.default_rng(0)
    S = rng.normal(size=(500, 3))
    y = S @ [1.0, -1.0, 0.5] + (0.3 + np.abs(S[:, 0])) * rng.normal(size=500)
    found = rc.ComponentLikelihood(least_squares, start=np.zeros(4), names=["level", "a", "b", "c"]).fit_clean(S, y)
    Z = np.column_stack([np.ones(500), S])
    coef = np.linalg.lstsq(Z, y, rcond=None)[0]
    bread = np.linalg.inv(Z.T @ Z)
    white = bread @ ((Z.T * (y - Z @ coef) ** 2) @ Z) @ bread * 500 / 496  # HC1
    assert found.coefficients_.standard_error == pytest.approx(np.sqrt(np.diag(white)), rel=1e-5)
    assert found.coefficients_.degrees == 496
    assert found.coefficients_.names == ("level", "a", "b", "c")
    assert found.trust_ == 1


def test_rows_of_a_group_leave_together(data):
    """Rows that are there twice tell no more than once, if it is known."""
    X, y = data.X[:2000], measured(data)[:2000]
    options = {"start": np.zeros(D + 1), "rca": rca()}
    once = rc.ComponentLikelihood(least_squares, **options).fit(X, y)
    twice = np.repeat(np.arange(2000), 2)
    known = rc.ComponentLikelihood(least_squares, **options).fit(X[twice], y[twice], groups=twice)
    nearly = X[twice] + 1e-6 * np.random.default_rng(0).normal(size=(4000, X.shape[1]))  # exact copies would be seen
    unknown = rc.ComponentLikelihood(least_squares, **options).fit(nearly, y[twice])
    sampling = [jackknife_error(one.coefficients_.replicates) for one in (once, known, unknown)]
    assert sampling[1] == pytest.approx(sampling[0], rel=0.1)
    assert np.median(sampling[2] / sampling[0]) < 0.9


def test_gaps_leave_whole_rows():
    pandas = pytest.importorskip("pandas")
    few = rc.datasets.make_contrastive(1500, d=3, S2="skewed", A="good", random_state=3)
    frame = pandas.DataFrame(few.X, columns=["a", "b", "c", "v", "w", "x"])
    frame["site"] = np.repeat(np.arange(300), 5)
    frame.loc[::7, "b"] = np.nan
    views = {"u": ["a", "b", "c"], "v": ["v", "w", "x"]}
    whole = frame.dropna().reset_index(drop=True)
    with pytest.warns(UserWarning, match="left out"):
        gaps = rc.ComponentLikelihood(
            student, start=np.zeros(3), rca=rc.ContrastiveRCA(views=views, missing="drop")
        ).fit(frame, groups="site")
    plain = rc.ComponentLikelihood(student, start=np.zeros(3), rca=rc.ContrastiveRCA(views=views))
    plain.fit(whole, groups=whole["site"].to_numpy())
    assert gaps.fit_.theta == pytest.approx(plain.fit_.theta, abs=1e-10)
    assert gaps.coefficients_.standard_error == pytest.approx(plain.coefficients_.standard_error, rel=1e-6)


def test_names_intervals_and_files(squares, tmp_path):
    squares.save(tmp_path / "model.npz")
    again = rc.load(tmp_path / "model.npz")
    assert again.coefficients_.names == tuple(f"theta[{j}]" for j in range(D + 1))
    assert again.trust_ == squares.trust_
    low, high = again.coefficients_.interval(0.9)
    wide = squares.coefficients_.interval(0.99)
    assert ((wide[0] < low) & (low < again.theta_) & (again.theta_ < high) & (high < wide[1])).all()
    assert str(again.summary()) == str(squares.summary())
    assert "95% interval" in str(squares.summary())


def test_no_errors_are_explained(data):
    X, y = data.X[:1500], measured(data)[:1500]

    def fitted(**options):
        return rc.ComponentLikelihood(least_squares, start=np.zeros(D + 1), rca=rca(), **options).fit(X, y)

    for options, reason in [
        ({"ridge": np.r_[0.0, np.full(D, 0.1)]}, "a penalty"),
    ]:
        found = fitted(**options)
        assert found.coefficients_ is None
        assert found.trust_ == 1
        assert np.array_equal(found.theta_, found.fit_.theta)
        assert np.isnan(found.estimate().standard_error).all()
        told = str(found.summary())
        assert "No standard errors: " in told
        assert reason in told
    own = rc.ComponentLikelihood(student, start=np.zeros(D)).fit_component(fitted().component_)
    assert own.coefficients_ is None
    assert "fit(X) does" in own.notes()[0]


def test_a_climb_without_an_interior_maximum_is_told(rng):
    """Too few steps; and a likelihood that bends upwards."""
    S = rng.standard_t(5, size=(200, 2)) + 1.0
    for function, steps in ((student, 1), (lambda theta, s: s @ theta + np.sum(theta**2), 5)):
        learner = rc.ComponentLikelihood(function, start=np.zeros(2), max_iter=steps)
        with pytest.warns(rc.SpecificationWarning, match="no interior maximum: raise max_iter="):
            stopped = learner.fit_clean(S)
        assert not stopped.fit_.converged
    assert "no interior maximum" in stopped.summary()


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_what_is_not_identified_has_no_end():
    views = rc.datasets.make_contrastive(1000, d=3, S1="regression", S2="gaussian", S3="gaussian", random_state=0)
    free = rc.ContrastiveRCA(views=3, errors="free")
    found = rc.ComponentLikelihood(least_squares, start=np.zeros(4), rca=free).fit(views.X, measured(views))
    assert found.rca_.verdict_ == "not identified"
    assert np.array_equal(found.theta_, found.residualised_)
    low, high = found.coefficients_.interval()
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()
    assert "leave those on it open" in str(found.summary())


def test_every_component_and_solver_has_errors(data):
    y = measured(data)
    views = {"u": list(range(D)), "v": list(range(D, 2 * D))}
    for model, component in [
        (rc.ContrastiveRCA(views=D, A=data.A), "S1"),
        (rc.ContrastiveRCA(views=D, method="paper"), "S1"),
        (rc.ContrastiveRCA(views=D, mean={"S3": np.zeros(D)}), "S1"),
        (rc.RCA(views=views), ("u",)),
    ]:
        found = rc.ComponentLikelihood(least_squares, start=np.zeros(D + 1), rca=model, component=component)
        found.fit(data.X, y)
        away = (found.theta_[1:] - data.beta) / found.coefficients_.standard_error[1:]
        assert np.abs(away).max() < 4


def test_the_bound_of_the_polynomials_is_told_where_it_is_larger(data):
    y, _ = outcomes(robust, data, np.random.default_rng(3))
    heavy = rc.ComponentLikelihood(robust, start=np.r_[1.0, np.zeros(D)], rca=rca()).fit(data.X, y)
    assert heavy.fit_.error_bound > np.sum(heavy.coefficients_.standard_error**2)
    assert any("polynomials may have moved theta" in note for note in heavy.notes())


def test_sums_over_rows_are_refused_in_words(data):
    """A stream is read once: its sums have the second moments of its rows, and nothing else that a likelihood reads."""
    rca, blocks = rc.ContrastiveRCA(views=3), np.array_split(data.X, 4)

    def spherical(theta, s, *y):
        return -0.5 * np.sum((s - theta) ** 2, axis=1)

    model = rc.ComponentLikelihood(spherical, start=np.zeros(3), rca=rca)
    for given in ((iter(blocks),), (iter(blocks), data.y), (rc.Moments.of(data.X, 4),)):
        with pytest.raises(rc.DataError, match="holds sums over rows, and this needs the rows"):
            model.fit(*given)
