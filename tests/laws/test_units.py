"""Units do not matter: columns times 1e-6 ... 1e6 give the same answers, in the new units, of every learner."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.learning.ising import Elimination, grid_edges
from richcomponents.models.base import AloneLearner, OutcomeLearner

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
@pytest.mark.parametrize("alpha", [0.0, 0.1, "cv"])
def test_a_measured_outcome_in_other_units(unit, alpha):
    model = rc.ComponentRegression(alpha=alpha, l1_ratio=0.5, rca=rca())
    one, two = (clone(model).fit(DATA.X, scale * (SIGNAL + NOISE)) for scale in (1.0, unit))
    np.testing.assert_allclose(two.coef_ / unit, one.coef_, rtol=1e-6, atol=1e-9)
    if alpha:
        return
    np.testing.assert_allclose(two.coefficients_.p_value, one.coefficients_.p_value, rtol=1e-5, atol=1e-12)


# ---- learners of a component alone


def hidden(S: np.ndarray) -> np.ndarray:
    """Samples perturbed along one direction, and noisy measurements of what perturbs them."""
    rng = np.random.default_rng(2)
    shared = 1.5 * SKEWED * rng.normal(size=S.shape[1])
    return np.hstack([S + shared, shared + 1.5 * rng.uniform(-1, 1, S.shape)])


def states_and_topics() -> tuple[np.ndarray, np.ndarray]:
    """Windows of three observations (n, 6) of a chain of two states; counts (n, 4) of the words of two topics."""
    rng, n = np.random.default_rng(1), len(SKEWED)
    states = [rng.integers(2, size=n)]
    for _ in range(2):
        states.append(np.where(rng.uniform(size=n) < 0.8, states[-1], 1 - states[-1]))
    chain = np.hstack([np.array([[2.0, 0.0], [-1.0, 1.0]])[at] + 0.5 * rng.normal(size=(n, 2)) for at in states])
    topics = np.array([[0.6, 0.3, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]])
    return chain, rng.multinomial(20, rng.dirichlet([0.6, 0.4], size=n) @ topics).astype(float)


SKEWED = RNG.exponential(size=(3000, 1)) - 1
CHAIN, WORDS = states_and_topics()
CENTRES = np.array([[3.0, 0.0, 0.0], [-3.0, 1.0, 0.0], [0.0, -2.0, 2.0]])
MIXED = CENTRES[RNG.integers(3, size=3000)] + 0.5 * RNG.normal(size=(3000, 3))
SPINS = Elimination(4, grid_edges(2, 2)).sample(np.full(4, 0.4), 3000, RNG)
ALONE: dict[str, Any] = {  # the model, its table, and units (times which) that its own view may have
    "ComponentPCA": (rc.ComponentPCA(2), hidden(MIXED), np.full(3, 1e-6)),
    "ComponentGaussianMixture": (rc.ComponentGaussianMixture(3), hidden(MIXED), np.full(3, 1e6)),
    "ComponentIsing": (rc.ComponentIsing(), hidden(SPINS), np.ones(4)),
    "ComponentHMM": (rc.ComponentHMM(2), hidden(CHAIN), np.tile([1e-6, 1e6], 3)),
    "ComponentLDA": (rc.ComponentLDA(2), hidden(WORDS), np.ones(4)),
}


def test_every_learner_without_an_outcome_is_asked():
    public = (getattr(rc, name) for name in rc.__all__)
    assert {one.__name__ for one in public if inspect.isclass(one) and issubclass(one, AloneLearner)} == set(ALONE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALONE)
def test_learners_of_a_component_alone_in_other_units(name):
    model, X, own = ALONE[name]
    units = np.append(own, np.resize([1e-6, 1e6, 1e-3, 1e3], len(own)))
    one, two = (clone(model).set_params(rca=rc.ContrastiveRCA(views=len(own))).fit(table) for table in (X, X * units))
    learned = {
        "components_": 1.0, "explained_variance_ratio_": 1.0, "weights_": 1.0, "transition_": 1.0, "topics_": 1.0,
        "concentrations_": 1.0, "coef_": 1.0, "means_": own[: getattr(one, "means_", own[None]).shape[1]],
    }  # fmt: skip
    for what, scale in learned.items():
        if hasattr(one, what):
            plain, scaled = getattr(one, what), getattr(two, what) / scale
            np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-6 * float(np.abs(plain).max()), err_msg=what)
    assert two.rca_.verdict_ == one.rca_.verdict_
