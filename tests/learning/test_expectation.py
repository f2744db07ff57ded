"""Likelihoods given as functions: exact on polynomials, biased as the error says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import expit, log_ndtr

import richcomponents as rc
from richcomponents.algebra.arrays import whitening
from richcomponents.components.component import CumulantSource
from richcomponents.learning.likelihood import (
    Differentiated,
    MomentMean,
    SampleMean,
    fit_likelihood,
    gaussian_points,
    maximise,
    moments_along,
    monomials,
    series,
)
from richcomponents.moments import Moments


def exact(support):
    """The component that is uniform on the rows of a table: its population cumulants up to order six."""
    source = CumulantSource(Moments.of(support, 6), unbiased=False)
    return replace(rc.Component.of_samples(support), source=source)


SUPPORT = np.array(list(product([-1.0, -1.0, 0.2, 1.8], repeat=3))) @ np.array(
    [[1, 0.3, 0], [0, 1, 0.4], [0.2, 0, 1.0]]
)


def with_classes(chance, each=20):
    """Rows (s, y) whose share of y = 1 at every s is a chance, rounded to a multiple of 1 / each."""
    ones = np.round(chance * each).astype(int)
    y = np.concatenate([np.arange(each) < count for count in ones]).astype(float)
    return np.column_stack([np.repeat(SUPPORT, each, axis=0), y])


JOINT = with_classes(expit(0.3 + SUPPORT @ [0.9, -0.6, 0.5]))


def logistic(theta, x):
    eta = theta[0] + x[:, :-1] @ theta[1:]
    return x[:, -1] * eta - np.logaddexp(0, eta)


@pytest.mark.parametrize(("variables", "degree"), [(1, 3), (2, 4), (6, 4)])
def test_polynomials_of_several_variables_are_reproduced(variables, degree):
    features = monomials(gaussian_points(variables, degree)[0], degree)
    c = np.random.default_rng(0).normal(size=features.shape[1])
    values = features @ c
    assert series(variables, degree, degree) @ values == pytest.approx(c, abs=1e-10)


@pytest.mark.parametrize("variables", [1, 2, 3])
def test_moments_of_several_projections(variables):
    W = np.random.default_rng(1).normal(size=(3, variables))
    scalars, vectors = moments_along(exact(SUPPORT), W, 4)
    x = SUPPORT - SUPPORT.mean(axis=0)
    assert scalars == pytest.approx(monomials(x @ W, 5).mean(axis=0), rel=1e-9, abs=1e-9)
    assert vectors == pytest.approx(monomials(x @ W, 4).T @ x / len(x), rel=1e-9, abs=1e-9)


def test_the_gradient_of_a_polynomial_is_exact():
    """Cubic in three directions, times s: order four, at degree three."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(3, 3))

    def quartic(theta, s):
        return -((s @ B @ theta) ** 4) + (s @ theta) ** 3 * s[:, 0] - s @ theta

    mean = MomentMean(Differentiated(quartic), exact(SUPPORT))
    theta = np.array([0.3, -0.2, 0.4])
    truth = SampleMean(Differentiated(quartic), SUPPORT)
    assert mean.gradient(theta) == pytest.approx(truth.gradient(theta), rel=1e-7, abs=1e-7)
    assert mean.value(theta) == pytest.approx(truth.value(theta), rel=1e-9)
    assert mean.error(theta) < 1e-7


def test_directions_are_those_that_bend():
    mean = MomentMean(Differentiated(logistic), exact(JOINT))
    for theta in (np.array([0.1, 0.5, -0.3, 0.2]), np.array([0.0, 1.0, 0.0, 0.0])):
        Q = mean.rule(theta).directions
        assert Q.shape == (4, 2)
        white, _ = whitening(mean.component.covariance)
        wanted = np.linalg.solve(
            white.T, np.column_stack([np.r_[theta[1:], 0], np.eye(4)[3]])
        )  # theta's and y, standardised
        assert wanted - Q @ Q.T @ wanted == pytest.approx(np.zeros((4, 2)), abs=1e-5)
    assert MomentMean(Differentiated(logistic), exact(JOINT)).rule(np.zeros(4)).directions.shape[1] <= 2


@pytest.mark.parametrize("degree", [1, 3, 5])
def test_the_gradient_is_right_within_its_error(degree):
    component, theta = exact(JOINT), np.array([0.2, 0.8, -0.5, 0.4])
    by_function = MomentMean(Differentiated(logistic), component, degree)
    exactly = SampleMean(Differentiated(logistic), JOINT).gradient(theta)
    assert np.linalg.norm(by_function.gradient(theta) - exactly) < by_function.error(theta)


def test_bias_falls_as_the_reported_error_says():
    """On an exact discrete law: odd degrees (the sigmoid is odd), three models."""

    def probit(theta, x):
        eta = theta[0] + x[:, :-1] @ theta[1:]
        return x[:, -1] * log_ndtr(eta) + (1 - x[:, -1]) * log_ndtr(-eta)

    def squared(theta, x):  # least squares of a curved mean
        return -((x[:, -1] - expit(theta[0] + x[:, :-1] @ theta[1:])) ** 2)

    component = exact(JOINT)
    for model in (logistic, probit, squared):
        truth = maximise(SampleMean(Differentiated(model), JOINT), np.zeros(4), tol=1e-9)
        fits = [fit_likelihood(component, model, start=np.zeros(4), degree=k) for k in (1, 3, 5)]
        biases = [float(np.linalg.norm(fit.theta - truth.theta)) for fit in fits]
        assert truth.converged
        assert all(fit.converged for fit in fits)
        assert all(a > b for a, b in pairwise(fit.epsilon for fit in fits))
        assert all(a > b for a, b in pairwise(biases))
        assert all(bias**2 <= fit.error_bound for bias, fit in zip(biases, fits, strict=True))
        assert biases[-1] < 0.02


def test_gradient_is_that_of_the_value():
    """Hermite series: one function of theta, also where directions turn with it."""
    component = exact(JOINT)
    mean = MomentMean(Differentiated(logistic), component, 3)
    theta, h = np.array([0.2, 0.8, -0.5, 0.4]), 1e-4
    differences = [(mean.value(theta + h * e) - mean.value(theta - h * e)) / (2 * h) for e in np.eye(4)]
    assert mean.gradient(theta) == pytest.approx(differences, abs=1e-6)


def test_fewer_directions_than_there_are_show_in_the_error(monkeypatch):
    def student(theta, s):
        return -4 * np.log1p(np.sum((s - theta) ** 2, axis=1) / 5)

    component = exact(SUPPORT)
    every = fit_likelihood(component, student, degree=5)
    monkeypatch.setattr("richcomponents.learning.likelihood.MOST_TERMS", 10)  # one direction
    one = fit_likelihood(component, student, degree=5)
    assert one.epsilon > 1.3 * every.epsilon
    truth = maximise(SampleMean(Differentiated(student), SUPPORT), np.zeros(3), tol=1e-9).theta
    assert np.linalg.norm(every.theta - truth) < np.linalg.norm(one.theta - truth)


def test_restarts_find_the_higher_maximum():
    """Two maxima, near -1 and 1; the first is the higher one."""

    def wells(theta, s):
        return -((theta[0] ** 2 - 1) ** 2) * (1 + s[:, 0] ** 2) - 0.3 * theta[0]

    law, begin = exact(SUPPORT[:, :1]), np.array([1.2])
    alone = fit_likelihood(law, wells, start=begin)
    best, again = (
        fit_likelihood(law, wells, start=begin, n_restarts=5, restart_scale=2.0, random_state=1) for _ in range(2)
    )
    assert alone.converged
    assert alone.theta[0] > 0.9
    assert best.restarts.shape == (6,)
    assert best.value == pytest.approx(best.restarts.max())
    assert best.theta[0] < -1
    assert best.value > alone.value + 0.5
    assert np.array_equal(best.theta, again.theta)


def test_penalties_are_those_of_ridge_regression():
    rng = np.random.default_rng(0)
    y = SUPPORT @ [1.0, 0.0, -0.4] + rng.normal(size=len(SUPPORT)) * 0.1
    component = exact(np.column_stack([SUPPORT, y]))

    def gaussian(theta, x):
        return -((x[:, -1] - x[:, :-1] @ theta) ** 2) / 2

    x = np.column_stack([SUPPORT, y])
    gram, cross = (x.T @ x / len(x))[:3, :3], (x.T @ x / len(x))[:3, 3]
    fit = fit_likelihood(component, gaussian, start=np.zeros(3), ridge=0.5, tol=1e-10)
    assert fit.theta == pytest.approx(np.linalg.solve(gram + 0.5 * np.eye(3), cross), abs=1e-6)
    only_first = fit_likelihood(component, gaussian, start=np.zeros(3), ridge=np.array([1e6, 0.0, 0.0]))
    assert abs(only_first.theta[0]) < 1e-5
    assert abs(only_first.theta[2]) > 0.1


def test_jax_gives_the_gradient_of_the_differences():
    jax = pytest.importorskip("jax")

    def written_for_jax(theta, x):
        eta = theta[0] + x[:, :-1] @ theta[1:]
        return x[:, -1] * eta - jax.numpy.logaddexp(0, eta)

    options = {"start": np.zeros(4), "degree": 3}
    one = fit_likelihood(exact(JOINT), written_for_jax, gradient="jax", **options)
    assert one.theta == pytest.approx(fit_likelihood(exact(JOINT), logistic, **options).theta, abs=1e-6)


def test_refusals():
    component = exact(SUPPORT)
    with pytest.raises(ValueError, match="degree <= 5"):
        fit_likelihood(component, logistic, degree=6)
    with pytest.raises(ValueError, match="one number per sample"):
        fit_likelihood(component, lambda theta, s: s @ theta[:, None])
    with pytest.raises(FloatingPointError, match="not finite at s"), np.errstate(all="ignore"):
        fit_likelihood(component, lambda theta, s: np.log(s[:, 0] - 100 + theta[0]))
    with pytest.raises(TypeError, match="log_likelihood"):
        fit_likelihood(component, 3)
    with pytest.raises(ValueError, match="ridge"):
        fit_likelihood(component, logistic, ridge=-1.0)
