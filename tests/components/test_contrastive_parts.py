"""The pieces of the contrastive estimator, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.algebra import multilinear, unfold, unpack
from richcomponents.algebra.spectral import whitening
from richcomponents.contrastive.calibration import Reading, calibrate, residualise
from richcomponents.contrastive.diagnostics import flip_test, outcome_test
from richcomponents.contrastive.evidence import grams, implicit_grams, joint_whitening, pair_mean
from richcomponents.contrastive.pair import energy_and_score, near_pair
from richcomponents.contrastive.posterior import Logistic, SharedEnergy, identify_known, logit, lower_end, sign_flip_z
from richcomponents.cumulants import linearised_block_cumulants
from richcomponents.datasets import make_contrastive
from richcomponents.learning.outcome import Outcome
from richcomponents.models import ContrastiveRCA
from richcomponents.moments import Moments
from richcomponents.pair.canonical import canonical, choose_rank


def covariances(data):
    C = np.cov(data.X.T, bias=True)
    d = data.U.shape[1]
    return C[:d, :d], C[:d, d:], C[d:, d:]


@pytest.mark.parametrize(("d", "d_v"), [(3, 3), (2, 4), (4, 2)])
def test_canonical_coordinates_are_canonical(d, d_v):
    data = make_contrastive(500, d=d, d_v=d_v, random_state=0)
    found = canonical(*covariances(data), 500)
    x = (data.U - data.U.mean(axis=0)) @ found.x_from_u.T
    y = (data.V - data.V.mean(axis=0)) @ found.y_from_v.T
    D = np.zeros((d, d_v))
    np.fill_diagonal(D, found.correlations)
    np.testing.assert_allclose(x.T @ x / 500, np.eye(d), atol=1e-10)
    np.testing.assert_allclose(y.T @ y / 500, np.eye(d_v), atol=1e-10)
    np.testing.assert_allclose(x.T @ y / 500, D, atol=1e-10)
    np.testing.assert_allclose(found.u_from_x @ found.x_from_u, np.eye(d), atol=1e-10)


def test_population_canonical_coordinates_contain_the_truth():
    """S = D^2 + h T h with 0 <= T <= I and A = D S^-1, exactly, from population covariances."""
    rng = np.random.default_rng(0)
    d = 4
    L1, L2, L3, A = (rng.normal(size=(d, d)) for _ in range(4))
    s1, s2, s3 = L1 @ L1.T, L2 @ L2.T, L3 @ L3.T
    found = canonical(s1 + s2, s2 @ A.T, A @ s2 @ A.T + s3, 10**9)
    h = np.sqrt(1 - found.correlations**2)
    S = found.x_from_u @ s2 @ found.x_from_u.T
    T = (S - np.diag(found.correlations**2)) / np.outer(h, h)
    values = np.linalg.eigvalsh(T)
    assert values.min() > -1e-9
    assert values.max() < 1 + 1e-9
    mixing = found.v_from_y @ (found.correlations[:, None] * np.linalg.solve(S, found.x_from_u))
    np.testing.assert_allclose(mixing, A, atol=1e-8)
    known = identify_known(found, d, A)
    np.testing.assert_allclose(known.t, T, atol=1e-4)  # the prior has the weight of a few samples in a billion


def test_energy_gradient_is_the_derivative():
    rng = np.random.default_rng(1)
    energy = SharedEnergy(np.array([0.9, 0.6, 0.3]))
    gram = rng.normal(size=(6, 6))
    gram = gram + gram.T
    theta = rng.normal(size=energy.size)
    _, gradient = energy.value_and_gradient(theta, gram)
    for i, unit in enumerate(np.eye(energy.size)):
        up, down = (energy.value_and_gradient(theta + s * 1e-5 * unit, gram)[0] for s in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(gradient[i], rel=1e-5, abs=1e-6)
    for close in (False, True):  # also where eigenvalues are tied
        theta = theta * np.where(np.arange(energy.size) < energy.n_matrix, 1e-7, 0.0) if close else theta
        units = np.eye(energy.size)
        sides = [energy.value_and_gradient(theta + s * 1e-5 * units, gram)[1] for s in (-1, 1)]
        np.testing.assert_allclose(energy.bend(theta, gram)(units), (sides[0] - sides[1]) / 2e-5, rtol=1e-6, atol=1e-7)


def test_energy_is_maximal_at_the_truth():
    """With exact cumulants the row space of the truth holds all of the energy."""
    rng = np.random.default_rng(2)
    energy = SharedEnergy(np.array([0.8, 0.5]))
    q, _ = np.linalg.qr(rng.normal(size=(2, 2)))
    truth = (q * [0.3, 0.7]) @ q.T
    rows = rng.normal(size=(50, 2)) @ np.concatenate([truth, energy.delta], axis=1)
    gram = rows.T @ rows
    assert np.sum(energy.projector(truth) * gram) == pytest.approx(np.trace(gram), rel=1e-12)
    found = energy.matrix(energy.mode(1e4 * gram, 2.0))
    np.testing.assert_allclose(found, truth, atol=0.01)


def leading_state(data, n_blocks=20):
    d = data.U.shape[1]
    found = canonical(*covariances(data), len(data.X))
    z = (data.X - data.X.mean(axis=0)) @ found.leading(d).T
    return found, z, Moments.of(z, 4, n_blocks=n_blocks)


def test_evidence_is_the_product_of_block_cumulants():
    data = make_contrastive(700, d=3, S2="skewed", random_state=3)
    found, _, state = leading_state(data)
    whiten = joint_whitening(found.correlations)
    result = grams(state, found.correlations)
    sizes = state.block_sizes / state.block_sizes.mean()
    for order in (3, 4):
        matrices = []
        for b, packed in enumerate(linearised_block_cumulants(state, order)):
            dense = unpack(packed, 6, order) * sizes[b]
            slots = (np.eye(6)[:, :3], np.eye(6)[:, 3:], *[whiten.T] * (order - 2))
            matrices.append(unfold(multilinear(dense, *slots)))
        for a, b in ((0, 1), (4, 17), (9, 2)):
            np.testing.assert_allclose(result[order - 3, a, b], matrices[a].T @ matrices[b], atol=1e-9)


def test_explicit_and_implicit_evidence_agree():
    """One linearises about the global mean, the other uses k-statistics of each block: close, and equally unbiased."""
    data = make_contrastive(6000, d=3, S2="skewed", random_state=4)
    found, z, state = leading_state(data)
    explicit = grams(state, found.correlations)
    implicit = implicit_grams(z, joint_whitening(found.correlations), n_blocks=20)
    ones = np.ones(20)
    for order in range(2):
        one, two = pair_mean(explicit[order], ones, ones), pair_mean(implicit[order], ones, ones)
        np.testing.assert_allclose(one, two, atol=0.03 * np.abs(one).max())


def test_sign_flips_know_the_null_distribution():
    rng = np.random.default_rng(5)
    z = []
    for _ in range(300):
        blocks = rng.normal(size=(20, 40, 4))
        gram = np.einsum("air,bis->abrs", blocks, blocks)
        z.append(sign_flip_z(gram, np.diag([1.0, 1.0, -1.0, 0.0])))
    assert abs(np.mean(z)) < 0.25
    assert 0.8 < np.std(z) < 1.2
    inner = np.stack([rng.normal(size=(20, 20)) for _ in range(2)])
    inner = (inner + inner.swapaxes(1, 2)) * (1 - np.eye(20))
    assert 0 < flip_test(inner).p_value <= 1


def test_link_is_the_logistic_function_of_a_matrix():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3, 3))
    X = X + X.T
    link = Logistic.at(X)
    np.testing.assert_allclose(logit(link.value), X, atol=1e-6)
    direction = rng.normal(size=(3, 3))
    direction = direction + direction.T
    numeric = (Logistic.at(X + 1e-6 * direction).value - Logistic.at(X - 1e-6 * direction).value) / 2e-6
    np.testing.assert_allclose(link.derivative(direction), numeric, atol=1e-7)


def test_both_forms_of_the_score_agree():
    """The estimator works with R = [T | D/h], the replicates with any whitened basis: one energy, one gradient."""
    data = make_contrastive(2000, d=3, S2="skewed", random_state=4)
    found, _, state = leading_state(data)
    gram = grams(state, found.correlations)[0]
    mean = pair_mean(gram, np.ones(20), np.ones(20))
    back = np.linalg.inv(joint_whitening(found.correlations))
    basis = near_pair(found, 3, np.cov(((data.X - data.X.mean(axis=0)) @ found.leading(3).T).T, bias=True))
    energy = SharedEnergy(found.correlations)
    theta = np.random.default_rng(0).normal(size=energy.size) * 0.5
    value, gradient = energy.value_and_gradient(theta, mean)
    X = logit(energy.matrix(theta))
    energy_there, other = energy_and_score(basis, back @ mean @ back.T, Logistic.at(X))
    np.testing.assert_allclose(other, gradient[: energy.n_matrix], rtol=1e-6, atol=1e-8 * np.abs(gradient).max())
    assert float(value) == pytest.approx(float(energy_there), rel=1e-8)


def test_rank_of_labs():
    right = 0
    for seed in range(20):
        data = make_contrastive(1500, S2="labs(3)", random_state=seed)
        right += choose_rank(canonical(*covariances(data), 1500)) == 2
    assert right >= 18


def test_residualising_is_least_squares_on_both_views():
    data = make_contrastive(400, d=3, random_state=7)
    found = canonical(*covariances(data), 400)
    X, y = data.X - data.X.mean(axis=0), data.y - data.y.mean()
    fit = residualise(found, 3, X[:, :3].T @ y / 400, X[:, 3:].T @ y / 400, float(y @ y / 400))
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fit.coef, beta[:3], atol=1e-10)
    assert fit.noise * 400 == pytest.approx(np.sum((y - X @ beta) ** 2) / (400 - 7), rel=1e-10)


def test_without_evidence_nothing_is_corrected():
    data = make_contrastive(400, d=3, S2="gaussian", random_state=8)
    found = canonical(*covariances(data), 400)
    known = lower_end(found.correlations, 20, "not identified")
    assert known.gate == 0
    fit = residualise(found, known.rank, np.ones(3), np.zeros(3), 10.0)
    result = calibrate(found, known, fit, Reading.canonical(found, known.rank))
    np.testing.assert_array_equal(result.coef, result.residualised)


def test_a_known_mixing_that_leaves_nothing_of_s1_corrects_nothing():
    """A fifth of A makes S2 five times too large, more than there is of U: T = I in every draw."""
    data = make_contrastive(400, d=3, S2="labs(2)", random_state=8)
    found = canonical(*covariances(data), 400)
    known = identify_known(found, 1, data.A / 5)
    np.testing.assert_array_equal(known.t_draws, 1.0)
    fit = residualise(found, 1, np.ones(3), np.zeros(3), 10.0)
    result = calibrate(found, known, fit, Reading.canonical(found, 1))
    np.testing.assert_array_equal(result.coef, result.residualised)


def test_outcome_test_is_the_classical_f_test():
    rng = np.random.default_rng(9)
    V, y = rng.normal(size=(100, 3)), rng.normal(size=100)
    v, t = V - V.mean(axis=0), y - y.mean()
    outcome = Outcome(v, t, np.ones(100), np.arange(100) % 20, 100.0, np.zeros((100, 0)))
    result = outcome_test(outcome, np.arange(3))
    rss = np.sum((t - v @ np.linalg.lstsq(v, t, rcond=None)[0]) ** 2)
    assert result.statistic == pytest.approx((t @ t - rss) / 3 / (rss / 96), rel=1e-9)


def test_cumulants_stay_bounded_when_A_is_nearly_singular():
    """A shared direction that V hardly shows must not multiply the noise of the cumulants of S1."""
    data = make_contrastive(3000, S1="mixture", S2="mixture", A="unif", random_state=668904152)
    assert np.linalg.cond(data.A) > 50
    S1 = ContrastiveRCA(views=10).fit(data.X).components_["S1"]
    truth = np.mean((data.S1 - data.S1.mean(axis=0)) ** 3, axis=0)
    found = np.einsum("iii->i", S1.cumulant(3))
    assert np.max(np.abs(found - truth)) < 3 * np.max(np.abs(truth))


def test_constant_columns_share_nothing(rng):
    """Not even rounding: 0.1 is no number of floating point, and its mean over rows is not it."""
    U = np.column_stack([rng.normal(size=100), np.full(100, 0.1), rng.normal(size=100)])
    C = np.cov(np.column_stack([U[:, [0, 2]], np.zeros(100)]).T)[:, [0, 2, 1]][[0, 2, 1]]
    white, colour = whitening(C)
    assert not white[:, 1].any()
    assert not colour[1].any()
    np.testing.assert_allclose(white @ colour, np.eye(2), atol=1e-12)
