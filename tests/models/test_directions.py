"""What leading directions are read from: laws of the candidates, and of the way between them."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents import baselines
from richcomponents.contrastive.directions import beyond_isotropic, place_on_line, toward_isotropic
from richcomponents.datasets import make_contrastive
from richcomponents.models.pca import subspace_distance

D = 6


def positive(rng, d=D, scale=1.0):
    root = rng.normal(size=(d, d))
    return scale * root @ root.T / d


def spike(rng, d=D, noise=0.01):
    v = rng.normal(size=d)
    return np.outer(v, v) / (v @ v) + noise * np.eye(d)


def test_the_isotropic_candidate_lies_between_residualised_and_naive():
    rng = np.random.default_rng(0)
    R = np.stack([positive(rng) for _ in range(5)])
    for level in (0.0, 0.3, 1.0, 50.0):
        delta = beyond_isotropic(R, level, D)
        tolerance = 1e-12 * np.abs(R).max()
        assert np.linalg.eigvalsh(delta).min() >= -tolerance
        assert np.linalg.eigvalsh(R - delta).min() >= -tolerance
        for one, single in zip(R, delta, strict=True):  # a stack is its members
            np.testing.assert_allclose(beyond_isotropic(one, level, D), single, atol=1e-13)
    np.testing.assert_allclose(
        beyond_isotropic(R, 0.0, D), 0.0, atol=1e-12
    )  # no room for an isotropic part: residualised
    np.testing.assert_allclose(beyond_isotropic(R, 50.0, D), R, atol=1e-12)  # nothing stands out: naive


def test_directions_in_which_the_shared_part_is_zero_count_as_seen_least():
    rng = np.random.default_rng(1)
    R = np.zeros((D, D))
    R[:2, :2] = positive(rng, 2)
    whole = beyond_isotropic(R, 0.4, D)
    np.testing.assert_allclose(whole[:2, :2], beyond_isotropic(R[:2, :2], 0.4, D), atol=1e-13)
    np.testing.assert_allclose(whole[2:], 0.0, atol=1e-13)


@pytest.mark.parametrize("theta", [0.0, 0.3, 1.0])
def test_exact_moments_tell_the_place_on_the_line(theta):
    """S1 one direction and isotropic noise: Ci - theta Delta is it, whatever V sees of the shared part."""
    rng = np.random.default_rng(2)
    delta = positive(rng, scale=0.1)
    isotropic = 10 * spike(rng) + theta * delta
    found, error = place_on_line(isotropic, delta, 1)
    assert found == pytest.approx(theta, abs=0.01)
    assert error < 0.01
    assert toward_isotropic(isotropic - delta, delta, 1) == pytest.approx(1 - theta, abs=0.01)


def test_a_shape_of_its_own_leaves_the_place_open():
    rng = np.random.default_rng(3)
    delta, own = positive(rng, scale=0.1), positive(rng, scale=3.0)
    assert place_on_line(own + delta, delta, 1)[1] > 1
    assert toward_isotropic(own, delta, 1) == 0


@pytest.mark.parametrize("k", [D - 1, D])
def test_too_few_directions_beyond_the_leading_ones_tell_nothing(k):
    rng = np.random.default_rng(4)
    assert place_on_line(spike(rng), positive(rng), k) == (1.0, np.inf)
    assert toward_isotropic(spike(rng), positive(rng), k) == 0
    assert toward_isotropic(spike(rng), np.zeros((D, D)), 1) == 0


@pytest.mark.parametrize("S2", ["gaussian", "uniform"])
def test_isotropic_shared_parts_leave_the_naive_direction(S2):
    """Residualising turns it: its squared error is 4 to 30 times as large on these draws."""
    errors = []
    for seed in range(5):
        data = make_contrastive(10_000, S1="pca", S2=S2, random_state=400 + seed)
        learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=10))
        models = learner.fit(data.X), baselines.naive(learner, data.X), baselines.covariates(learner, data.X)
        errors.append([subspace_distance(model.components_, data.direction[None]) ** 2 for model in models])
    ours, naive, residualised = np.median(errors, axis=0)
    assert naive < residualised / 4
    assert ours <= 1.1 * naive


@pytest.mark.parametrize(("n", "S2", "tolerance"), [(1000, "gaussian", 1e-6), (3000, "skewed", 1e-3)])
def test_covariances_are_positive_shares_add_up_and_rotations_carry_over(n, S2, tolerance):
    """Up to the signs of canonical coordinates, which the posterior draws of T depend on."""
    data = make_contrastive(n, D, S1="pca", S2=S2, random_state=5)
    model = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(data.X)
    blend = model.rca_.covariance_for_directions("S1", 1)
    assert np.linalg.eigvalsh(np.asarray(blend.covariance)).min() > -1e-12
    assert sum(blend.shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert min(blend.shares.values()) >= 0
    assert blend.shares == model.shares_
    assert model.trust_ == blend.corrected
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(D, D)))[0]
    turned = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(np.hstack([3 * data.U @ turn.T, data.V]))
    assert subspace_distance(turned.components_ @ turn, model.components_) < tolerance
    assert "read from covariances of S1" in model.summary()


def test_a_known_mixing_and_shared_components_are_taken_as_they_are():
    data = make_contrastive(1000, D, S1="pca", S2="paper", random_state=7)
    for rca, part in ((rc.ContrastiveRCA(views=D, A=data.A), "S1"), (rc.ContrastiveRCA(views=D), "S2")):
        model = rc.ComponentPCA(rca=rca, component=part).fit(data.X)
        assert model.shares_ == {"residualised": 0.0, "isotropic": 0.0, "corrected": 1.0}
        plain = rc.ComponentPCA().fit_component(model.component_)
        np.testing.assert_allclose(model.components_, plain.components_, atol=1e-12)


def test_the_other_views_own_part_is_protected_as_the_first_ones():
    data = make_contrastive(1000, D, S1="pca", S2="paper", random_state=7)
    other = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D), component="S3").fit(data.X)
    turned = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(np.hstack([data.V, data.U]))
    for name, share in turned.shares_.items():
        assert other.shares_[name] == pytest.approx(share, abs=1e-3)


def test_with_nothing_shared_there_is_one_candidate():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(500, 2 * D))
    learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D))
    model = learner.fit(X)
    assert model.rca_.rank_ == 0
    assert model.shares_["residualised"] == 1
    np.testing.assert_allclose(model.components_, baselines.naive(learner, X).components_, atol=1e-10)


def test_a_direction_is_not_taken_for_uncorrelated_columns():
    """A Gaussian shared part of all directions, few rows: a test of uncorrelated own parts does not see the direction of S1."""
    data = make_contrastive(300, 10, S1="pca", S2="gaussian", A="good", random_state=np.random.default_rng(913000))
    model = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=10)).fit(data.X)
    assert model.rca_.get_params()["errors"] == "free"
    assert subspace_distance(model.components_, data.direction[None]) ** 2 < 0.03
    given = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=10, errors="independent")).fit(data.X)
    assert given.rca_.get_params()["errors"] == "independent"
