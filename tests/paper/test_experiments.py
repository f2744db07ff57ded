"""Section 5 on exactly independent parts, and on rows against the reference cumulants."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.biomarkers import lab_differences

from richcomponents.components import CumulantSource
from richcomponents.cumulants import Cumulants
from richcomponents.datasets import make_contrastive
from richcomponents.learning.ising import grid_edges
from richcomponents.models import ComponentPCA, ComponentRegression, ContrastiveRCA
from richcomponents.moments import Moments
from richcomponents.paper import (
    Extraction,
    chebyshev_gradient,
    contrastive_ising,
    contrastive_logistic,
    contrastive_mixture,
    contrastive_pca,
    contrastive_regression,
    extract,
    mixing_matrix,
    taylor_gradient,
    true_samples,
)
from richcomponents.paper.contrastive import cross_terms, mixing_of_cumulants
from richcomponents.paper.gradient import fourth_cumulant
from tests.paper.population import S1, S3, A, close, exact, rows, state
from tests.paper.test_ising import composite_gradient

EDGES = grid_edges(2, 3)


@pytest.fixture(scope="module")
def population() -> Extraction:
    """S1 of all combinations of the supports."""
    z = rows()
    return extract(z[:, :2], z[:, 2:], A, mean_s3=S3.mean(axis=0))


def test_one_cross_cumulant_is_equation_three(population):
    n = len(population.U)
    close(population.second * (n - 1) / n, exact(S1, 2))
    close(population.cumulant(3) * ((n - 1) * (n - 2)) / n**2, exact(S1, 3))
    close(population.mean, S1.mean(axis=0))


def test_equation_two_reads_the_rows():
    z = rows()
    found = mixing_matrix(z[:, :2], z[:, 2:])
    close(found, mixing_of_cumulants(Cumulants(state(4)), np.arange(2), np.arange(2, 5)))


def test_the_tensors_are_those_of_the_reference():
    data = make_contrastive(200, d=3, S1="mixture", S2="skewed", A="good", random_state=1)
    found = extract(data.U, data.V, data.A)
    every = np.eye(6)
    (terms,) = cross_terms(every[:, :3], every[:, 3:], data.A, np.linalg.inv(data.A))["S1"].alternatives
    source = CumulantSource(Moments.of(data.X, 4))
    close(found.second, source.tensor(terms, 2))
    close(found.cumulant(3), source.tensor(terms, 3))


def test_fourth_cumulants_are_unbiased_ones():
    rng = np.random.default_rng(0)
    z = rng.exponential(size=(30, 4))
    z -= z.mean(axis=0)
    tensor = Cumulants(Moments.of(z, 4)).tensor(*[np.arange(4)] * 4)
    close(fourth_cumulant(z[:, [0]], z[:, [1]], z[:, [2]], z[:, [3]])[0], tensor[0, 1, 2, 3])
    close(fourth_cumulant(z, z[:, [1]], z[:, [1]], z), np.array([tensor[i, 1, 1, i] for i in range(4)]))


def test_plain_moments_are_those_of_the_estimators():
    """method="paper" of the estimators is another way to the same numbers."""
    data = make_contrastive(400, d=4, S2="skewed", A="good", random_state=2)
    for known in (data.A, None):
        s1 = extract(data.U, data.V, known)
        rca = ContrastiveRCA(views=4, method="paper", A=known)
        direction = ComponentPCA(1, rca=rca).fit(data.X).components_[0]
        found = contrastive_pca(s1)
        np.testing.assert_allclose(found * np.sign(found @ direction), direction, rtol=1e-6, atol=1e-8)
        beta = ComponentRegression(rca=rca).fit(data.X, data.y).coef_
        np.testing.assert_allclose(contrastive_regression(s1, data.y), beta, rtol=1e-6)


def test_the_cubic_gradient_of_true_samples_is_the_expectation_it_is_written_as():
    rng = np.random.default_rng(3)
    x, theta = rng.uniform(-1, 1, (100_000, 3)), np.array([0.6, -0.3, 0.2])
    s1 = true_samples(x)
    z = s1.U @ theta
    y = (rng.uniform(size=len(x)) < 0.5 + z / 4).astype(float)
    expected = s1.U.T @ y / len(z) - 0.245 * s1.U.T @ z / len(z) + 0.014 * s1.U.T @ z**3 / len(z)
    np.testing.assert_allclose(chebyshev_gradient(s1, y, theta), expected, atol=1e-5)


def test_the_taylor_gradient_is_that_of_the_appendix():
    """On many rows, where unbiased and plain cumulants agree; not only for spins."""
    rng = np.random.default_rng(4)
    x = rng.choice([-1.0, 1.0], (20_000, 6)) * rng.choice([-1.0, 1.0, 1.0], (20_000, 1))
    s1, J = true_samples(x), np.linspace(0.3, -0.2, len(EDGES))
    fourth = np.einsum("ni,nj,nk,nl->ijkl", *[s1.U] * 4, optimize=True) / len(x)
    expected = composite_gradient(s1.U.T @ s1.U / len(x), fourth, EDGES, J)
    np.testing.assert_allclose(taylor_gradient(s1, EDGES, J), expected, atol=1e-3)


def test_with_A_known_the_models_come_near():
    """What is extracted is as good as samples, up to noise."""
    logistic = make_contrastive(20_000, d=4, S1="logistic", A="good", random_state=5)
    s1 = extract(logistic.U, logistic.V, logistic.A)
    assert np.mean((contrastive_logistic(s1, logistic.y).theta - logistic.beta) ** 2) < 0.01
    ising = make_contrastive(20_000, d=9, S1="ising", S2="spins", A="good", random_state=5)
    s1, clean = extract(ising.U, ising.V, ising.A), true_samples(ising.S1)
    found, polynomial = (contrastive_ising(x, ising.edges).theta for x in (s1, clean))
    assert np.mean((found - polynomial) ** 2) < 0.01  # the same bias


def test_alternating_minimisation_of_true_samples():
    rng = np.random.default_rng(6)
    centres = 3 * np.eye(3)
    samples = centres[rng.integers(3, size=20_000)] + 0.3 * rng.normal(size=(20_000, 3))
    found = contrastive_mixture(true_samples(samples), 3)
    np.testing.assert_allclose(found[np.argmax(found, axis=0)], centres, atol=0.1)


def test_two_labs_tell_their_difference_only():
    """Appendix D's A = Q P^+ is not what equation (2) recovers: (q1 - q2)(p1 - p2)^+ is, of rank one."""
    rng = np.random.default_rng(7)
    P, Q = rng.normal(size=(2, 2)), rng.normal(size=(3, 2))  # biases of the labs, as columns
    lab = np.repeat([0, 1], [len(S1) * len(S3), 3 * len(S1) * len(S3)])
    s1, s3 = (np.tile(np.array(x), (4, 1)) for x in zip(*[(a, b) for a in S1 for b in S3], strict=True))
    U, V = s1 + P.T[lab], s3 + Q.T[lab]
    cumulants = Cumulants(Moments.of(np.hstack([U, V]), 4, n_blocks=1), unbiased=False)
    found = mixing_of_cumulants(cumulants, np.arange(2), np.arange(2, 5), rank=1)
    p, q = P[:, 0] - P[:, 1], Q[:, 0] - Q[:, 1]
    difference = np.outer(q, p) / (p @ p)
    close(found, difference)
    assert np.abs(found - Q @ np.linalg.pinv(P)).max() > 0.3
    close(lab_differences(P.T[lab], Q.T[lab]), difference)
