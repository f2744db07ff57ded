"""Fixtures and strategies shared by the tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("suite", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("suite")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


@pytest.fixture
def table(rng: np.random.Generator) -> np.ndarray:
    """Skewed, correlated columns: every cumulant differs from zero."""
    return rng.exponential(size=(400, 4)) @ rng.normal(size=(4, 4))
