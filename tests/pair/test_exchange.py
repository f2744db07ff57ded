"""Roles are chosen by the caller: exchanging the views exchanges S1 and S3, to rounding."""

import numpy as np
import pytest

import richcomponents as rc

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")


@pytest.mark.parametrize("S2", ["skewed", "gaussian", "paper"])
def test_exchanging_the_views_exchanges_the_own_parts(S2):
    data = rc.datasets.make_contrastive(800, 4, d_v=5, S2=S2, random_state=4)
    first, second = list(range(4)), list(range(4, 9))
    one = rc.ContrastiveRCA(views={"U": first, "V": second}).fit(data.X)
    other = rc.ContrastiveRCA(views={"U": second, "V": first}).fit(data.X)
    assert one.verdict_ == other.verdict_
    for own, turned in (("S1", "S3"), ("S3", "S1")):
        np.testing.assert_allclose(
            one.components_[own].covariance, other.components_[turned].covariance, rtol=0, atol=1e-9
        )
        ours, theirs = one.confidence_interval("covariance", own), other.confidence_interval("covariance", turned)
        np.testing.assert_allclose(ours.low, theirs.low, rtol=0, atol=1e-8)
        np.testing.assert_allclose(ours.high, theirs.high, rtol=0, atol=1e-8)
