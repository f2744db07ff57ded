"""The mathematics on exact covariances: what infinitely many samples say, at the true T."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.inference.draws import Draws, Shrunk, shrink
from richcomponents.inference.posterior import Prior, entries, logistic, multiplicity, score, symmetric_of
from richcomponents.learning.coefficients import Safe, Stretch
from richcomponents.pair.evidence import INSIDE, CrossCumulants, KnownMixing, UncorrelatedOwnParts
from richcomponents.pair.views import Pair, canonical

SHAPES = [(3, 3, 3), (4, 6, 2), (5, 3, 3), (3, 5, 1)]


def population(d_u, d_v, r, seed, diagonal=False):
    """Covariances of S1, S2 (rank r), S3, and A; the pair of them, and T."""
    rng = np.random.default_rng(seed)

    def covariance(d, k):
        root = rng.normal(size=(d, k))
        return root @ root.T / k

    own, shared, noise = covariance(d_u, 2 * d_u), covariance(d_u, r), covariance(d_v, 2 * d_v)
    if diagonal:
        own, noise = np.diag(np.diag(own)), np.diag(np.diag(noise))
    A = rng.normal(size=(d_v, d_u))
    found = canonical(own + shared, shared @ A.T, A @ shared @ A.T + noise, n=1000.0)
    pair = Pair.whole(found, 20, r)
    S = found.x_from_u[:r] @ shared @ found.x_from_u[:r].T
    T = np.linalg.inv(pair.h) @ (S - pair.K @ pair.K.T) @ np.linalg.inv(pair.h)
    return own, shared, noise, A, pair, T


@pytest.mark.parametrize(("d_u", "d_v", "r"), SHAPES)
def test_the_parts_are_exact_at_the_true_T(d_u, d_v, r):
    own, shared, noise, A, pair, T = population(d_u, d_v, r, seed=d_u + r)
    assert np.linalg.eigvalsh(T).min() > -1e-9
    assert np.linalg.eigvalsh(T).max() < 1 + 1e-9
    np.testing.assert_allclose(pair.cov_s1(T), own, atol=1e-9)
    np.testing.assert_allclose(pair.cov_s2(T), shared, atol=1e-9)
    *_, cov_v, G = pair.in_columns
    np.testing.assert_allclose(cov_v - G @ np.linalg.solve(pair.S(T), G.T), noise, atol=1e-9)
    np.testing.assert_allclose(pair.mixing(T) @ shared, A @ shared, atol=1e-9)


@pytest.mark.parametrize(("d_u", "d_v", "r"), SHAPES)
def test_coefficients_are_exact_at_the_true_T_and_least_squares_at_zero(d_u, d_v, r):
    own, shared, noise, A, pair, T = population(d_u, d_v, r, seed=d_u + r)
    rng = np.random.default_rng(5)
    beta, gamma = rng.normal(size=(2, d_u))
    with_u, with_v = own @ beta + shared @ gamma, A @ shared @ gamma
    b, on_y = pair.regressed(with_u, with_v, r)
    safe = Safe.of(pair, b, on_y, 1.0, np.inf)
    if np.linalg.eigvalsh(T).max() < 0.9:  # beyond, no coefficient is stretched further
        np.testing.assert_allclose(Stretch(0.0, 1.0, 1.0)(safe, T, np.zeros((r, r))), beta, atol=1e-6)
    joint = np.block([[own + shared, shared @ A.T], [A @ shared, A @ shared @ A.T + noise]])
    if r == min(d_u, d_v):
        np.testing.assert_allclose(b, np.linalg.solve(joint, np.concatenate([with_u, with_v]))[:d_u], atol=1e-7)


@pytest.mark.parametrize(("d_u", "d_v", "r"), [(4, 6, 2), (5, 5, 3), (6, 4, 1)])
def test_equations_hold_at_the_true_T_and_gradients_are_right(d_u, d_v, r):
    *_, A, pair, T = population(d_u, d_v, r, seed=d_u, diagonal=True)
    errors = UncorrelatedOwnParts(groups_u=np.arange(d_u), groups_v=np.arange(d_v))
    known = KnownMixing(A=A)
    rng = np.random.default_rng(1)
    blocks = rng.normal(size=(2, 20, 2 * r, 2 * r))
    cumulants = CrossCumulants(np.einsum("mabij->mabij", blocks[:, :, None] @ blocks[:, None].swapaxes(-1, -2)))
    kept = (T - INSIDE * np.eye(r)) / (1 - 2 * INSIDE)  # T is kept a little away from its ends
    np.testing.assert_allclose(errors.residual(pair, kept), 0, atol=1e-9)
    np.testing.assert_allclose(known.residual(pair, T), 0, atol=1e-9)
    at = entries(rng.normal(size=(r, r)))
    for one in (errors, known, cumulants):
        weighed = one.weighed(pair, logistic(symmetric_of(at))[0])
        slope = score([weighed], pair, at)[1]
        steps = 1e-5 * np.eye(len(at))
        seen = [(score([weighed], pair, at + s)[0] - score([weighed], pair, at - s)[0]) / 2e-5 for s in steps]
        np.testing.assert_allclose(slope, seen, rtol=1e-5, atol=1e-6 * np.abs(slope).max())
    groups = UncorrelatedOwnParts(groups_u=np.zeros(d_u, dtype=int), groups_v=np.zeros(d_v, dtype=int))
    assert groups.count == 0
    assert not groups.weighed(pair, T).scale.any()


def test_entries_of_symmetric_matrices_and_their_prior():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 4, 4))
    X = X + X.swapaxes(1, 2)
    np.testing.assert_array_equal(symmetric_of(entries(X)), X)
    assert multiplicity(4) @ entries(np.ones((4, 4))) == 16
    *_, pair, _ = population(4, 6, 2, seed=0)
    prior = Prior(pair, 0.7, -0.5)
    np.testing.assert_allclose(prior.centre, [-0.5, 0.0, -0.5])
    cov = prior.root @ prior.root.T
    np.testing.assert_allclose(np.diag(cov), [0.49 + 0.03 + 0.75**2, (0.49 + 0.03) / 2, 0.49 + 0.03 + 0.75**2])


def test_the_share_is_what_stands_above_noise_and_errors_add_up():
    rng = np.random.default_rng(0)
    safe = Draws.certain(np.zeros(3), 0.01 * rng.normal(size=(20, 3)))
    full = Draws(np.ones(3), 1 + 0.01 * rng.normal(size=(20, 3)), np.ones((5, 3)), np.full(5, 0.2))
    assert shrink(safe, full, 0.0).share == 0
    assert 0.9 < shrink(safe, full, 1.0).share <= 1
    noisy = Draws(np.ones(3), 1 + rng.normal(size=(20, 3)), np.ones((5, 3)), np.full(5, 0.2))
    assert shrink(safe, noisy, 1.0).share == 0
    half = Shrunk.at(safe, full, 0.5)
    np.testing.assert_allclose(half.value, 0.5)
    assert (half.error > 0.5).all()  # what was held back
