"""Every exported estimator behaves as scikit-learn expects."""

from __future__ import annotations

import inspect

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import richcomponents as rc

PUBLIC = [getattr(rc, name) for name in rc.__all__]
ESTIMATORS = [cls() for cls in PUBLIC if inspect.isclass(cls) and issubclass(cls, BaseEstimator)]


def test_there_are_estimators():
    assert any(isinstance(e, rc.ContrastiveRCA) for e in ESTIMATORS)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
@pytest.mark.filterwarnings("ignore::richcomponents.SampleSizeWarning")
@pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning")
@parametrize_with_checks([*ESTIMATORS, rc.ContrastiveRCA(method="paper")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
