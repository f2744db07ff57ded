"""What leading directions are read from: the share of the correction that the directions themselves deserve."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents import baselines
from richcomponents.datasets import make_contrastive
from richcomponents.models.pca import subspace_distance

D = 6


@pytest.mark.parametrize(("n", "S2", "tolerance"), [(1000, "gaussian", 1e-3), (3000, "skewed", 1e-3)])
def test_covariances_are_positive_shares_add_up_and_rotations_carry_over(n, S2, tolerance):
    """Up to the signs of canonical coordinates, which the posterior draws of T depend on."""
    data = make_contrastive(n, D, S1="pca", S2=S2, random_state=5)
    model = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(data.X)
    covariance, share = model.rca_.solution_.covariance_for_directions("S1", 1)
    assert np.linalg.eigvalsh(np.asarray(covariance)).min() > -1e-12
    assert sum(model.shares_.values()) == pytest.approx(1.0, abs=1e-12)
    assert min(model.shares_.values()) >= 0
    assert model.trust_ == model.shares_["corrected"] == share
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(D, D)))[0]
    turned = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(np.hstack([3 * data.U @ turn.T, data.V]))
    assert subspace_distance(turned.components_ @ turn, model.components_) < tolerance
    assert "read from covariances of S1" in model.summary()


def test_a_known_mixing_and_shared_components_are_taken_as_they_are():
    data = make_contrastive(1000, D, S1="pca", S2="paper", random_state=7)
    for rca, part in ((rc.ContrastiveRCA(views=D, A=data.A), "S1"), (rc.ContrastiveRCA(views=D), "S2")):
        model = rc.ComponentPCA(rca=rca, component=part).fit(data.X)
        assert part == "S1" or model.shares_ == {"residualised": 0.0, "corrected": 1.0}
        plain = rc.ComponentPCA().fit_component(model.component_)
        assert part == "S2" or subspace_distance(model.components_, plain.components_) < 0.2
        if part == "S2":  # entries, since a distance is the root of a difference of ones
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
    assert model.rca_.get_params()["errors"] == ("free", "auto")
    assert subspace_distance(model.components_, data.direction[None]) ** 2 < 0.03
    given = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=10, errors="independent")).fit(data.X)
    assert given.rca_.get_params()["errors"] == "independent"


def two_views(n, variances, seed, spikes=(1.5, 1.0), d_v=12):
    """Two Gaussian shared directions, which no cumulant tells; S1 = spikes + noise of these variances."""
    rng, d = np.random.default_rng(seed), len(variances)
    top, turn = np.linalg.qr(rng.normal(size=(2, d, d)))[0]
    root = np.vstack([np.array(spikes)[:, None] * top[: len(spikes)], np.sqrt(variances)[:, None] * turn])
    shared = rng.normal(size=(n, 2))
    U = rng.normal(size=(n, len(root))) @ root + 0.5 * shared @ rng.normal(size=(2, d))
    V = 0.5 * shared @ rng.normal(size=(2, d_v)) + 0.5 * rng.normal(size=(n, d_v))
    return U, V, np.linalg.eigh(root.T @ root)[1][:, -len(spikes) :].T


@pytest.mark.parametrize("component", ["S1", "S3"])
def test_that_s1_is_spiked_tells_its_directions_from_a_gaussian_shared_part(component):
    U, V, truth = two_views(1000, np.full(8, 0.1), seed=1)
    X, views = (np.hstack([U, V]), 8) if component == "S1" else (np.hstack([V, U]), 12)
    learner = rc.ComponentPCA(n_components=2, rca=rc.ContrastiveRCA(views=views), component=component)
    model, simple = learner.fit(X), baselines.covariates(learner, X)
    assert model.trust_ > 0.8
    assert subspace_distance(model.components_, truth) ** 2 < 0.6 * subspace_distance(simple.components_, truth) ** 2


def test_where_s1_is_not_spiked_that_is_not_used():
    U, V, _ = two_views(1000, np.geomspace(0.03, 0.3, 8), seed=1, spikes=(1.5,))
    rca = rc.ContrastiveRCA(views=8, errors="free").fit(np.hstack([U, V]))
    assert rca.diagnostics_.gate == 0
    assert rca.solution_.covariance_for_directions("S1", 1)[1] == 0
    auto = rc.ContrastiveRCA(views=8, errors=("free", "auto")).fit(np.hstack([U, V]))
    found = auto.fitted_.solved_for("S1")[0]
    assert found._fit_of_directions(1) is found.fit
    assert found._fit_of_directions(7) is found.fit  # nothing is left to be alike
    stated = rc.ContrastiveRCA(views=8, errors="independent").fit(np.hstack([U, V])).fitted_.solved_for("S1")[0]
    assert stated._fit_of_directions(1) is stated.fit  # directions are the columns then
