"""The same seeds give the same answers as ever, on any machine."""

import numpy as np
import pytest

from tests.golden.cases import CASES, run
from tests.golden.record import PATH


@pytest.fixture(scope="module")
def kept() -> dict[str, np.ndarray]:
    with np.load(PATH) as archive:
        return dict(archive)


@pytest.mark.parametrize("name", CASES)
def test_same_answers(name: str, kept: dict[str, np.ndarray]) -> None:
    found = run(name)
    expected = {key.split("/", 1)[1]: value for key, value in kept.items() if key.split("/", 1)[0] == name}
    assert set(found) == set(expected)
    for key, value in expected.items():
        if value.dtype.kind in "US":
            np.testing.assert_array_equal(found[key], value, err_msg=key)
            continue
        scale = np.max(np.abs(value[np.isfinite(value)]), initial=0.0)
        digits = 1e-4 if key.startswith("interval") else 1e-6
        np.testing.assert_allclose(found[key], value, rtol=digits, atol=digits * scale, err_msg=key)
