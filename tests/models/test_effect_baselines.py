"""Effects of an exposure by the usual methods, against calculations by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.baselines import ancova, ruv2, ruv4, unadjusted
from richcomponents.datasets import make_confounded

METHODS = [unadjusted, ancova, ruv2, ruv4]


@pytest.fixture(scope="module")
def data():
    return make_confounded(120, 4, 5, random_state=1)


def views(data, **options):
    return rc.ContrastiveRCA(views=data.views, **options)


def least_squares(U, *columns, first=1):
    """Coefficients of the columns after the intercept, their standard errors, degrees of freedom."""
    design = np.column_stack([np.ones(len(U)), *columns])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ U
    degrees = len(U) - design.shape[1]
    sigma2 = np.sum((U - design @ coefficients) ** 2, axis=0) / degrees
    errors = np.sqrt(np.outer(np.diag(inverse), sigma2))
    return coefficients[1 : 1 + first], errors[1 : 1 + first], degrees


def same(estimate, expected):
    value, error, degrees = expected
    np.testing.assert_allclose(np.atleast_2d(estimate.value), value, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.atleast_2d(estimate.standard_error), error, rtol=1e-8)
    assert estimate.degrees == degrees


def factors(values, k):
    return np.linalg.svd(values - values.mean(axis=0))[0][:, :k]


# ---- each method is one regression


def test_unadjusted_and_ancova_by_hand(data):
    same(unadjusted(data.X, data.y, views(data)), least_squares(data.U, data.y))
    same(ancova(data.X, data.y, views(data)), least_squares(data.U, data.y, data.V))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_ruv2_by_hand(data, k):
    same(ruv2(data.X, data.y, views(data), k), least_squares(data.U, data.y, factors(data.V, k)))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_ruv4_by_hand(data, k):
    y, Y = data.y - data.y.mean(), data.X - data.X.mean(axis=0)
    b = y @ Y / (y @ y)
    W0 = factors(Y - np.outer(y, b), k)
    alpha = W0.T @ Y
    gamma = b[4:] @ alpha[:, 4:].T @ np.linalg.inv(alpha[:, 4:] @ alpha[:, 4:].T)
    found = ruv4(data.X, data.y, views(data), k)
    np.testing.assert_allclose(found.value, b[:4] - gamma @ alpha[:, :4], rtol=1e-8, atol=1e-10)
    same(found, least_squares(data.U, y, W0 + np.outer(y, gamma)))


def test_ruv2_with_all_factors_is_ancova(data):
    both = (method(data.X, data.y, views(data), **k) for method, k in ((ruv2, {"k": 5}), (ancova, {})))
    one, two = both
    np.testing.assert_allclose(one.value, two.value)
    np.testing.assert_allclose(one.standard_error, two.standard_error)


def test_ruv4_with_as_many_factors_as_controls_leaves_them_no_effect(data):
    """A column that is a copy of a control has none either."""
    X = np.column_stack([data.U, data.V[:, 2], data.V])
    found = ruv4(X, data.y, rc.ContrastiveRCA(views=5), k=5)
    np.testing.assert_allclose(found.value[4], 0.0, atol=1e-10)


# ---- exposures, covariates, names


@pytest.mark.parametrize("method", METHODS)
def test_covariates_are_columns_of_the_regression(data, method, rng):
    age, sex = rng.normal(size=120), rng.integers(0, 2, 120)
    known = np.column_stack([age, sex, age + sex + 3.0, np.full(120, 0.1)])  # collinear ones and constants count once
    U, V, y = (part + np.multiply.outer(age, np.ones(part.shape[1:])) for part in (data.U, data.V, data.y))
    found = method(np.column_stack([U, V, known]), y, views(data, covariates=[9, 10, 11, 12]))
    free = np.column_stack([np.ones(120), age, sex])
    U, V, y = (part - free @ np.linalg.lstsq(free, part, rcond=None)[0] for part in (U, V, y))
    expected = method(np.column_stack([U, V]), y, views(data))
    assert found.degrees == expected.degrees - 2
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-8, atol=1e-10)
    ratio = np.sqrt(expected.degrees / found.degrees)
    np.testing.assert_allclose(found.standard_error, expected.standard_error * ratio, rtol=1e-8)


def test_several_exposures_are_one_regression(data, rng):
    y = np.column_stack([data.y, data.y + rng.normal(size=120)])
    same(unadjusted(data.X, y, views(data)), least_squares(data.U, y, first=2))
    same(ancova(data.X, y, views(data)), least_squares(data.U, y, data.V, first=2))
    same(ruv2(data.X, y, views(data), 2), least_squares(data.U, y, factors(data.V, 2), first=2))
    turned = y @ np.array([[1.0, 1.0], [0.0, 1.0]])  # the same exposures in other coordinates
    for method in METHODS:
        value = method(data.X, y, views(data)).value
        assert value.shape == (2, 4)
        other = method(data.X, turned, views(data)).value
        np.testing.assert_allclose(value, np.array([[1.0, 1.0], [0.0, 1.0]]) @ other, rtol=1e-7, atol=1e-9)


def test_names_and_tables(data):
    frame = pd.DataFrame(data.X, columns=data.names).assign(age=1.0)
    rca = rc.ContrastiveRCA(views={"tests": ["u2", "u0"], "controls": "v*"}, covariates=["age"])
    one = ancova(frame, data.y[:, None], rca)
    assert one.names == ("u2", "u0")
    assert one.value.shape == (2,)
    np.testing.assert_allclose(one.value, ancova(data.X, data.y, views(data)).value[[2, 0]])
    exposures = pd.DataFrame({"dose": data.y, "drug": data.y**2})
    several = ancova(frame, exposures, rca)
    assert [(row["name"], row["column"]) for row in several.rows()][:3] == [
        ("dose", "u2"),
        ("dose", "u0"),
        ("drug", "u2"),
    ]


# ---- units


@pytest.mark.parametrize("method", METHODS)
def test_units(data, method):
    plain = method(data.X, data.y, views(data))
    of_y = method(data.X, 1e6 * data.y + 5, views(data))
    np.testing.assert_allclose(of_y.value, plain.value / 1e6, rtol=1e-7)
    np.testing.assert_allclose(of_y.standard_error, plain.standard_error / 1e6, rtol=1e-7)
    of_all = method(1e-5 * data.X + 1, data.y, views(data))
    np.testing.assert_allclose(of_all.value, 1e-5 * plain.value, rtol=1e-7)
    several = method(data.X, np.column_stack([data.y, data.y**2]), views(data))
    apart = method(data.X, np.column_stack([1e9 * data.y, 1e-9 * data.y**2]), views(data))
    np.testing.assert_allclose(apart.value, several.value / np.array([[1e9], [1e-9]]), rtol=1e-6)


@pytest.mark.parametrize("method", [unadjusted, ancova, ruv2])
def test_units_of_single_columns(data, method):
    """Of U for all that do not look for factors there; of V for a regression on all of it."""
    scale = np.array([1e3, 1e-3, 1.0, 10.0, 1, 1, 1, 1, 1])
    if method is not ruv2:
        scale[4:] = [1e6, 1e-6, 1e8, 1e-8, 1]
    plain, scaled = (method(X, data.y, views(data)) for X in (data.X, data.X * scale))
    np.testing.assert_allclose(scaled.value, plain.value * scale[:4], rtol=1e-6)


# ---- what the methods are for


@pytest.mark.parametrize("kind", ["labs", "skewed", "gaussian"])
def test_nearly_noiseless_controls_show_the_confounder(kind):
    """RUV-4 looks for factors among all columns, and needs many of them."""
    data = make_confounded(3000, 60, 9, confounder=kind, noise_v=1e-3, strength=3.0, random_state=6)
    bound = 1.1 * np.mean((data.oracle - data.effects) ** 2)
    assert np.mean((unadjusted(data.X, data.y, views(data)).value - data.effects) ** 2) > 10 * bound
    for method in (ancova, ruv2, ruv4):
        found = method(data.X, data.y, views(data))
        assert np.mean((found.value - data.effects) ** 2) < bound
        assert np.all(np.abs(found.value - data.effects) < 5 * found.standard_error)


def test_the_number_of_factors_is_found():
    """Three labs are two factors, where they are seen; noise has none, and one is taken."""
    data = make_confounded(500, 30, 20, noise_v=1.0, random_state=2)
    for method in (ruv2, ruv4):
        np.testing.assert_array_equal(
            method(data.X, data.y, views(data)).value, method(data.X, data.y, views(data), k=2).value
        )
    noise = make_confounded(500, 30, 20, strength=0.0, random_state=2)
    for method in (ruv2, ruv4):
        np.testing.assert_array_equal(
            method(noise.X, noise.y, views(noise)).value, method(noise.X, noise.y, views(noise), k=1).value
        )


def test_more_columns_than_samples():
    data = make_confounded(80, 3000, 100, noise_v=1.0, random_state=3)
    naive = np.mean((unadjusted(data.X, data.y, views(data)).value - data.effects) ** 2)
    for method in (ruv2, ruv4):
        found = method(data.X, data.y, views(data))
        assert found.value.shape == (3000,)
        assert np.mean((found.value - data.effects) ** 2) < 0.5 * naive
    with pytest.raises(rc.DataError, match=r"80 samples are too few for 102 coefficients.*use fewer controls, or ruv2"):
        ancova(data.X, data.y, views(data))


def test_constant_and_repeated_controls_change_nothing(data):
    X = np.column_stack([data.X, np.full(120, 1e6 / 3), data.V[:, 0]])
    same(ancova(X, data.y, rc.ContrastiveRCA(views=4)), least_squares(data.U, data.y, data.V))


# ---- refusals


@pytest.mark.parametrize("method", METHODS)
def test_exposures_that_cannot_be_told_apart(data, method):
    rca = views(data, covariates=[9])
    X = np.column_stack([data.X, 2 * data.y + 1])
    with pytest.raises(rc.DataError, match="linear function of the covariates or of the other exposures"):
        method(X, data.y, rca)
    with pytest.raises(rc.DataError, match="linear function of the covariates or of the other exposures"):
        method(data.X, np.column_stack([data.y, -data.y]), views(data))
    with pytest.raises(rc.DataError, match="y is constant"):
        method(data.X, np.ones(120), views(data))
    with pytest.raises(rc.DataError, match="120 values, got 7"):
        method(data.X, data.y[:7], views(data))
    with pytest.raises(rc.DataError, match="missing or infinite"):
        method(data.X, np.where(data.y > 1, np.nan, data.y), views(data))
    with pytest.raises(rc.DataError, match="a covariate holds missing"):
        method(np.column_stack([data.X, np.full(120, np.nan)]), data.y, rca)
    with pytest.raises(rc.DataError, match="is also a covariate: name it once"):
        method(data.X, data.y, views(data, covariates=[0]))
    with pytest.raises(rc.DataError, match="take two views"):
        method(data.X, data.y, rc.RCA(views={"a": [0], "b": [1], "c": [2]}))


def test_an_exposure_among_the_controls(data):
    X = np.column_stack([data.X, data.y])
    with pytest.raises(rc.DataError, match="linear function of the controls"):
        ancova(X, data.y, rc.ContrastiveRCA(views=4))


@pytest.mark.parametrize("method", [ruv2, ruv4])
def test_impossible_numbers_of_factors(data, method):
    for k in (0, 6, 2.0, True, "two"):
        with pytest.raises(rc.DataError, match=r"5 controls of 120 samples allow 1 to 5, got"):
            method(data.X, data.y, views(data), k)
    with pytest.raises(rc.DataError, match="no control varies"):
        method(np.column_stack([data.U, np.ones(120)]), data.y, rc.ContrastiveRCA(views=4))


def test_too_few_samples(data):
    with pytest.raises(rc.DataError, match="too few"):
        unadjusted(data.X[:2], data.y[:2], views(data))


@pytest.mark.parametrize("method", [rc.baselines.covariates, rc.baselines.kernel_cca])
def test_units_of_the_other_view_do_not_matter(method):
    data = rc.datasets.make_contrastive(300, 4, d_v=6, S2="skewed", random_state=2)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4))
    scaled = np.hstack([data.U, data.V * np.geomspace(1e-9, 1e9, 6)])
    np.testing.assert_allclose(method(learner, scaled, data.y).coef_, method(learner, data.X, data.y).coef_, rtol=1e-6)


def test_simple_methods_by_hand():
    data = rc.datasets.make_contrastive(300, 4, S2="skewed", random_state=2)
    learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=4))
    residual = (
        data.U
        - np.column_stack([np.ones(300), data.V])
        @ np.linalg.lstsq(np.column_stack([np.ones(300), data.V]), data.U, rcond=None)[0]
    )
    top = np.linalg.eigh(np.cov(residual.T))[1][:, -1]
    assert abs(rc.baselines.covariates(learner, data.X).components_[0] @ top) == pytest.approx(1.0, abs=1e-12)
    top = np.linalg.eigh(np.cov(data.U.T))[1][:, -1]
    assert abs(rc.baselines.naive(learner, data.X).components_[0] @ top) == pytest.approx(1.0, abs=1e-12)
