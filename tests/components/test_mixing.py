"""A as it is reported: between the estimate and the regression of V on U, and never far above the latter's error."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.contrastive.mixing import LEAST_T, PRIOR_SHARE, PRIOR_T, t_of_mixing
from richcomponents.contrastive.posterior import lower_end
from richcomponents.datasets import make_contrastive

N = 1e6


def fitted(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rc.ContrastiveRCA(views=data.S1.shape[1], **options).fit(data.X)


def regression(data):
    return np.linalg.lstsq(data.U - data.U.mean(axis=0), data.V - data.V.mean(axis=0), rcond=None)[0].T


def known_of(t, shifts=0.0):
    """A posterior at T = t, of which leaving out a block moves every entry by `shifts`."""
    r = len(t)
    found = lower_end(np.linspace(0.8, 0.2, r), 20, "strong")
    moved = shifts * np.resize([1.0, -1.0], (20, 1, 1)) * np.ones((r, r))
    return replace(found, t=t, tau=0.3, t_shifts=moved)


def inverse_of(posterior, t):
    return np.linalg.inv(np.diag(posterior.correlations**2) + np.outer(posterior.h, posterior.h) * t)


@pytest.fixture
def t():
    a = np.random.default_rng(0).normal(size=(4, 4))
    q = np.linalg.qr(a)[0]
    return q @ np.diag([0.05, 0.3, 0.6, 0.9]) @ q.T


@pytest.mark.parametrize("sure", [0.0, 0.4, 1.0])
def test_between_the_estimate_and_the_regression(t, sure):
    known = known_of(t, shifts=0.002)
    reported = t_of_mixing(known, sure, N)
    assert np.linalg.eigvalsh(reported - t)[0] > -1e-12
    assert np.linalg.eigvalsh(np.eye(4) - reported)[0] > -1e-12


def test_evidence_and_certainty_bring_it_to_the_estimate(t):
    np.testing.assert_allclose(t_of_mixing(known_of(t), 1.0, N), t, atol=1e-12)


@pytest.mark.parametrize(("sure", "shifts"), [(0.0, 0.0), (1.0, 10.0)])
def test_without_evidence_or_with_noise_alone_a_quarter_is_left(t, sure, shifts):
    known = known_of(t, shifts)
    change = inverse_of(known, t_of_mixing(known, sure, N)) - np.eye(4)
    np.testing.assert_allclose(change, PRIOR_SHARE * (inverse_of(known, t) - np.eye(4)), atol=1e-10)


def test_without_an_estimate_the_prior_stands_for_it():
    known = lower_end(np.array([0.7, 0.3]), 20, "not identified")
    change = inverse_of(known, t_of_mixing(known, 0.0, N)) - np.eye(2)
    np.testing.assert_allclose(change, PRIOR_SHARE * (inverse_of(known, PRIOR_T * np.eye(2)) - np.eye(2)), atol=1e-12)


def test_no_smaller_t_than_rows_can_tell():
    """A = 1/D has no bound; here D = .05 of 100 rows."""
    known = replace(known_of(np.zeros((1, 1))), correlations=np.array([0.05]))
    assert t_of_mixing(known, 1.0, 100)[0, 0] == pytest.approx(LEAST_T / 100)


def test_units_of_columns_do_not_matter():
    data = make_contrastive(400, d=4, S2="skewed", random_state=3)
    scale = np.array([1.0, 10.0, 0.1, 3.0, 2.0, 0.5, 7.0, 1.0])
    one = fitted(data).A_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        two = rc.ContrastiveRCA(views=4).fit(data.X * scale).A_
    np.testing.assert_allclose(two * scale[:4] / scale[4:, None], one, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("S1", ["regression", "pca"])
@pytest.mark.parametrize("d", [10, 20, 30])
def test_a_hundred_rows_are_as_good_as_the_regression(S1, d):
    """Of 20 and 30 columns they are searched in a principal component or two; A was that of one direction, zero elsewhere."""
    ratios = []
    for seed in range(5):
        data = make_contrastive(100, d=d, S1=S1, S2="paper", random_state=700 + seed)
        ratios.append(np.sum((fitted(data).A_ - data.A) ** 2) / np.sum((regression(data) - data.A) ** 2))
    assert np.median(ratios) <= 1.005


def test_strong_evidence_leaves_the_estimate():
    data = make_contrastive(3000, d=5, S2="skewed", random_state=1)
    model = fitted(data, errors="free")
    found = model.solution_
    plain = (found.lift_v * found.posterior.correlations) @ found.pair.from_shared(found.posterior.t)
    assert np.sum((model.A_ - plain) ** 2) < 0.01 * np.sum((regression(data) - plain) ** 2)


def test_beyond_the_shared_directions_only_while_they_are_in_doubt():
    data = make_contrastive(300, d=10, S2="paper", scale_S2=0.3, random_state=2)
    model = fitted(data)
    found = model.solution_
    assert found.largest_rank > model.rank_
    assert found.beyond is not None
    assert np.linalg.matrix_rank(model.A_) == 10
    assert np.all(np.isinf(model.confidence_interval("A").high))
    assert np.linalg.matrix_rank(fitted(data, rank=model.rank_).A_) == model.rank_  # whoever says so is believed
    shared = found.covariance("S2")
    np.testing.assert_allclose(found.beyond.from_u @ shared, 0.0, atol=1e-10)
    assert found.without(found.blocks[0]).beyond is not None


def test_three_labs_leave_nothing_beyond():
    data = make_contrastive(3000, d=6, S2="labs(3)", random_state=4)
    model = fitted(data)
    assert model.rank_ == 2
    assert np.linalg.matrix_rank(model.A_) == 2


def test_parts_of_V_add_up():
    """Cov(V) = A Cov(S2) A' + Cov(S3), whatever A is reported."""
    data = make_contrastive(300, d=5, S1="pca", S2="paper", random_state=5)
    model = fitted(data)
    S2, S3 = (model.components_[key].covariance for key in ("S2", "S3"))
    np.testing.assert_allclose(model.A_ @ S2 @ model.A_.T + S3, np.cov(data.V.T, bias=True), atol=1e-10)
    assert np.linalg.eigvalsh(S3)[0] > -1e-10
