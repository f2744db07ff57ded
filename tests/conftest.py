"""Fixtures and strategies shared by the tests."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 (it has a BLAS of its own)
from hypothesis import settings
from threadpoolctl import threadpool_limits

threadpool_limits(1, user_api="blas")  # there is a worker of pytest for each core

settings.register_profile("suite", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("suite")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


@pytest.fixture
def table(rng: np.random.Generator) -> np.ndarray:
    """Skewed, correlated columns: every cumulant differs from zero."""
    return rng.exponential(size=(400, 4)) @ rng.normal(size=(4, 4))
