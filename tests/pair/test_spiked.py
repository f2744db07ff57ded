"""Evidence of leading directions, on exact covariances: Cov(S1) is k directions + sigma^2 I, Cov(S3) diagonal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from richcomponents.inference.posterior import entries, logistic, score, symmetric_of
from richcomponents.pair.evidence import INSIDE, Spiked
from richcomponents.pair.views import Pair, canonical

SHAPES = [(4, 6, 2, 1), (6, 5, 5, 2), (6, 4, 1, 1)]
ROWS = 1000.0


def population(d_u, d_v, r, k, units=1.0, units_v=1.0):
    """Cov(S1) and the pair, T; units : of all columns of U, units_v (d_v,) : of each of V."""
    rng = np.random.default_rng(d_u)
    spikes, shared = 3 * rng.normal(size=(d_u, k)), rng.normal(size=(d_u, r))
    own, noise = spikes @ spikes.T + 0.3 * np.eye(d_u), np.diag(rng.uniform(0.5, 2, d_v))
    S, A = shared @ shared.T, rng.normal(size=(d_v, d_u))
    units_v = units_v * np.ones((d_v, 1))
    own, S, cross = units**2 * own, units**2 * S, units * S @ A.T * units_v.T
    found = canonical(own + S, cross, units_v * (A @ shared @ shared.T @ A.T + noise) * units_v.T, n=ROWS)
    pair = Pair.whole(found, 20, r)
    inverse = np.linalg.inv(pair.h)
    T = inverse @ (found.x_from_u[:r] @ S @ found.x_from_u[:r].T - pair.K @ pair.K.T) @ inverse
    return own, pair, (T - INSIDE * np.eye(r)) / (1 - 2 * INSIDE)  # T is kept a little away from its ends


def spiked(d_v, k):
    return Spiked(groups_v=np.arange(d_v), k=k)


@pytest.mark.parametrize(("d_u", "d_v", "r", "k"), SHAPES)
def test_the_equations_hold_at_the_true_T_and_gradients_are_right(d_u, d_v, r, k):
    _, pair, T = population(d_u, d_v, r, k)
    evidence, m = spiked(d_v, k).weighed(pair, T), d_u - k
    assert evidence.count == m * (m + 1) // 2 - 1 + d_v * (d_v - 1) // 2
    np.testing.assert_allclose(evidence.residual(pair, T), 0, atol=1e-8)
    at = entries(np.random.default_rng(1).normal(size=(r, r)))
    slope = score([evidence], pair, at)[1]
    steps = 1e-5 * np.eye(len(at))
    seen = [(score([evidence], pair, at + s)[0] - score([evidence], pair, at - s)[0]) / 2e-5 for s in steps]
    np.testing.assert_allclose(slope, seen, rtol=1e-5, atol=1e-6 * np.abs(slope).max())


def test_where_the_basis_is_off_equations_are_by_its_square():
    """However much larger the spike is than sigma^2."""
    own, pair, T = population(4, 6, 2, 1)
    vectors, off = np.linalg.eigh(own)[1], []
    for angle in (0.02, 0.04):
        turn = np.eye(4)
        turn[[0, 0, 3, 3], [0, 3, 0, 3]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        evidence = replace(spiked(6, 1), basis=vectors @ turn)
        off.append(np.abs(evidence.residual(pair, T)).max())
    assert off[0] < 0.02**2
    assert off[1] == pytest.approx(4 * off[0], rel=0.05)


def test_another_T_is_seen_and_units_are_not():
    _, pair, T = population(5, 5, 3, 2)
    evidence = spiked(5, 2).weighed(pair, 0.5 * T)
    plain = evidence.parts(pair, 0.5 * T)[0]
    assert plain < -10  # at another T it does not hold
    _, pair, T = population(5, 5, 3, 2, 1000.0, np.array([[1e-3], [1], [7], [1e3], [0.1]]))
    # canonical coordinates have the same T but for signs
    np.testing.assert_allclose(spiked(5, 2).weighed(pair, 0.5 * T).parts(pair, 0.5 * T)[0], plain, rtol=1e-4)


@pytest.mark.parametrize(("d_u", "d_v", "r", "k"), SHAPES)
def test_the_noise_at_fixed_T_is_that_of_samples(d_u, d_v, r, k):
    _, pair, T = population(d_u, d_v, r, k)
    evidence, rng, n = spiked(d_v, k).weighed(pair, T), np.random.default_rng(2), 20_000
    root = np.linalg.cholesky(pair.covariance)
    rows = (
        rng.normal(size=(300, n // 100, len(root))) @ root.T
    )  # a hundred times fewer rows, at a tenth of the distance
    moved = (rows.mT @ rows / (n // 100) - pair.covariance) / 10
    samples = Pair.of(pair.canonical, pair.covariance + moved, np.full(300, float(n)), np.ones((300, 20)), r)
    chi_square = -2 * evidence.parts(samples, np.broadcast_to(T, (300, r, r)))[0][0]
    assert chi_square.mean() == pytest.approx(evidence.count, rel=0.1)


def test_nothing_is_said_where_no_two_directions_are_left():
    _, pair, _ = population(4, 6, 2, 1)
    T = logistic(symmetric_of(np.zeros(3)))[0]
    assert spiked(6, 3).weighed(pair, T).count == 15  # of V alone
    assert not Spiked(groups_v=np.full(6, -1), k=3).weighed(pair, T).scale.any()
