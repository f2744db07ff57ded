"""Units do not matter: columns times 1e-6 ... 1e6 give the same coefficients, in the new units, of every outcome learner."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.models.base import OutcomeLearner

D = 4
DATA = rc.datasets.make_contrastive(1500, d=D, S2="skewed", A="good", random_state=3)
UNITS = np.array([1e-6, 1e6, 1e-3, 1.0, 1e6, 1e-6, 1.0, 1e3])
SIGNAL = DATA.S1 @ np.array([0.8, -0.5, 0.3, 0.0])
RNG = np.random.default_rng(0)
NOISE, COUNTS, CLASSES = RNG.normal(size=1500), RNG.poisson(np.exp(SIGNAL)), RNG.logistic(size=(2, 1500))


def robust(units: np.ndarray) -> Any:
    """Parameters have the units of their function: it takes those of the columns out."""

    def log_likelihood(theta: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-2 * np.log1p((y - theta[0] - (s / units) @ theta[1:]) ** 2 / 3))

    return log_likelihood


def rca() -> rc.ContrastiveRCA:
    return rc.ContrastiveRCA(views=D)


FITS: dict[str, Any] = {
    "ComponentRegression": lambda X, _: rc.ComponentRegression(rca=rca()).fit(X, SIGNAL + NOISE),
    "ComponentRegression, lasso": lambda X, _: rc.ComponentRegression(alpha=0.1, l1_ratio=1.0, rca=rca()).fit(
        X, SIGNAL + NOISE
    ),
    "ComponentRegression, cross-validated": lambda X, _: rc.ComponentRegression(alpha="cv", rca=rca()).fit(
        X, SIGNAL + NOISE
    ),
    "ComponentLogisticRegression": lambda X, _: rc.ComponentLogisticRegression(rca=rca()).fit(
        X, SIGNAL + CLASSES[0] > 0
    ),
    "ComponentLikelihood": lambda X, units: rc.ComponentLikelihood(robust(units), np.zeros(1 + D), rca=rca()).fit(
        X, SIGNAL + NOISE
    ),
    "ComponentGLM, poisson": lambda X, _: rc.ComponentGLM("poisson", rca=rca()).fit(X, COUNTS),
    "ComponentGLM, negative binomial": lambda X, _: rc.ComponentGLM("negative binomial", rca=rca()).fit(X, COUNTS),
    "ComponentGLM, probit": lambda X, _: rc.ComponentGLM("probit", rca=rca()).fit(X, SIGNAL + NOISE > 0),
    "ComponentGLM, multinomial": lambda X, _: rc.ComponentGLM("multinomial", rca=rca()).fit(
        X, np.argmax([0 * SIGNAL, *(SIGNAL + CLASSES)], axis=0)
    ),
    "ComponentLogisticRegression, polynomial": lambda X, _: rc.ComponentLogisticRegression(
        rca=rca(), approximation="chebyshev"
    ).fit(X, SIGNAL + CLASSES[0] > 0),
}


def test_every_learner_with_an_outcome_is_asked():
    public = {name for name in rc.__all__ if inspect.isclass(getattr(rc, name))}
    learners = {name for name in public if issubclass(getattr(rc, name), OutcomeLearner)}
    assert learners == {name.split(",")[0] for name in FITS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_columns_in_other_units_have_the_same_fit(name):
    one, two = FITS[name](DATA.X, np.ones(D)), FITS[name](DATA.X * UNITS, UNITS[:D])
    units = 1.0 if name == "ComponentLikelihood" else UNITS[:D]
    plain, scaled = (np.asarray(model.coef_) for model in (one, two))
    np.testing.assert_allclose(scaled * units, plain, rtol=1e-6, atol=1e-6 * float(np.abs(plain).max()))
    if one.coefficients_ is not None:
        errors = [np.reshape(model.coefficients_.standard_error, plain.shape) for model in (one, two)]
        np.testing.assert_allclose(errors[1] * units, errors[0], rtol=1e-5)
    assert two.verdict_ == one.verdict_


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_measured_outcome_in_other_units(unit, alpha):
    model = rc.ComponentRegression(alpha=alpha, l1_ratio=0.5, rca=rca())
    one, two = (clone(model).fit(DATA.X, scale * (SIGNAL + NOISE)) for scale in (1.0, unit))
    np.testing.assert_allclose(two.coef_ / unit, one.coef_, rtol=1e-6, atol=1e-9)
    if alpha:
        return
    np.testing.assert_allclose(two.coefficients_.p_value, one.coefficients_.p_value, rtol=1e-5, atol=1e-12)
