"""Every exported estimator behaves as scikit-learn expects."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import richcomponents as rc

PUBLIC = [getattr(rc, name) for name in rc.__all__]
# A chain takes 3 d columns of its view and topics take counts: scikit-learn's tables have neither layout, and fit refuses them.
# Tables of the right layout are in test_latent.py.
OTHER_LAYOUT = (rc.ComponentHMM, rc.ComponentLDA)
CLASSES = [c for c in PUBLIC if inspect.isclass(c) and issubclass(c, BaseEstimator) and c not in OTHER_LAYOUT]
RCA = rc.ContrastiveRCA(views=1)  # which columns are which view cannot be guessed


def made(cls):
    if cls is rc.ComponentLikelihood:  # of what, it cannot guess: here of a normal mean
        return cls(NormalMean(), start=[0.0], rca=RCA)
    return cls(rca=RCA) if hasattr(cls(), "rca") else cls(views=1)


class NormalMean:
    """log_likelihood(theta, s, y); the name of a test must not hold the address of a function."""

    def __repr__(self):
        return "NormalMean()"

    def __call__(self, theta, s, y):
        return -0.5 * np.sum((s - theta[0]) ** 2, axis=1)


ESTIMATORS = [made(cls) for cls in CLASSES]


def taken_for_a_classifier(estimator):
    """With sparse rows scikit-learn compares predict_proba of anything that has it with the classes of a classifier."""
    if not isinstance(estimator, rc.ComponentGaussianMixture):
        return {}
    return dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"), taken_for_a_classifier.__doc__
    )


def an_exposure_among_the_columns(estimator):
    """The check's two columns are functions of its y: an exposure that leaves nothing of them is refused."""
    if not isinstance(estimator, rc.ExposureEffects):
        return {}
    return dict.fromkeys(
        ("check_sample_weights_shape", "check_sample_weights_not_overwritten"), an_exposure_among_the_columns.__doc__
    )


def expected_failures(estimator):
    return {**taken_for_a_classifier(estimator), **an_exposure_among_the_columns(estimator)}


def test_there_are_estimators():
    assert any(isinstance(e, rc.ContrastiveRCA) for e in ESTIMATORS)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
@pytest.mark.filterwarnings("ignore::richcomponents.SampleSizeWarning")
@pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning")
@parametrize_with_checks(
    [*ESTIMATORS, rc.ContrastiveRCA(views=1, method="paper")], expected_failed_checks=expected_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
