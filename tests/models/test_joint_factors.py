"""Joint factors of tests and controls: exact where errors are independent, silent where they are not."""

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.contrastive import joint_factors
from richcomponents.contrastive.effects import _least_in_triangle
from richcomponents.contrastive.joint_factors import JointFactors
from richcomponents.contrastive.slopes import Products, Slopes


def population(seed: int, d_u: int, d_v: int, k: int) -> tuple[Slopes, np.ndarray, np.ndarray, np.ndarray]:
    """Slopes and covariances without noise; effects alpha, loadings, error variances."""
    rng = np.random.default_rng(seed)
    loadings, errors = rng.normal(size=(d_u + d_v, k)), rng.uniform(0.5, 2, d_u + d_v)
    alpha, gamma = rng.normal(size=(d_u, 1)), rng.normal(size=(k, 1))
    covariance = loadings @ loadings.T + np.diag(errors)
    slopes = Slopes(
        u=alpha + loadings[:d_u] @ gamma,
        v=loadings[d_u:] @ gamma,
        with_v=covariance[:d_u, d_u:],
        var_u=np.diag(covariance)[:d_u],
        cov_v=covariance[d_u:, d_u:],
        noise=np.full((1, 1), 1e-16),
        times_u=lambda m: covariance[:d_u, :d_u] @ m,
    )
    return slopes, alpha, loadings, errors


@pytest.mark.parametrize(("d_u", "d_v", "k"), [(6, 6, 1), (8, 9, 3), (150, 12, 4)])
def test_population_moments_give_the_effects_exactly(d_u: int, d_v: int, k: int) -> None:
    slopes, alpha, loadings, errors = population(3, d_u, d_v, k)
    found = JointFactors.of(slopes, 1e6)
    assert found.loadings.shape[1] == k
    np.testing.assert_allclose(found.loadings @ found.loadings.T, loadings @ loadings.T, atol=2e-3)
    np.testing.assert_allclose(found.errors, errors, rtol=2e-3)
    gamma, penalty = found.slopes_of_factors(slopes.both, np.diag(slopes.noise), np.arange(d_v))
    assert penalty[0] < 1e-3
    np.testing.assert_allclose(found.effects(slopes.both, gamma)[:d_u], alpha, atol=5e-3)
    np.testing.assert_allclose(found.effects(slopes.both, gamma)[d_u:], 0, atol=5e-3)


def test_many_columns_give_what_all_covariances_give(monkeypatch: pytest.MonkeyPatch) -> None:
    slopes, *_ = population(5, 60, 12, 3)
    dense = JointFactors.of(slopes, 2000)
    monkeypatch.setattr(joint_factors, "_DENSE", 10)
    sparse = JointFactors.of(slopes, 2000)
    np.testing.assert_allclose(sparse.errors, dense.errors, rtol=2e-3)  # after twenty rounds
    np.testing.assert_allclose(
        sparse.loadings @ sparse.loadings.T, dense.loadings @ dense.loadings.T, atol=1e-3 * np.max(slopes.variances)
    )


def drawn(seed: int, n: int, own: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tests and controls with one shared factor; own : size of factors that tests, and controls, have to themselves."""
    rng = np.random.default_rng(seed)
    f, y = rng.normal(size=n), rng.normal(size=n)
    U = (
        np.outer(f, rng.normal(size=8))
        + own * rng.normal(size=(n, 3)) @ rng.normal(size=(3, 8))
        + rng.normal(size=(n, 8))
    )
    V = (
        np.outer(f, rng.normal(size=6))
        + own * rng.normal(size=(n, 4)) @ rng.normal(size=(4, 6))
        + rng.normal(size=(n, 6))
    )
    return U, V, y[:, None]


def slopes_of(U: np.ndarray, V: np.ndarray, y: np.ndarray, blocks: int = 10) -> Products:
    n = len(U)
    return Products.of_rows(U, V, np.empty((n, 0)), y, np.ones(n), np.arange(n) % blocks, 2.0)


def test_errors_that_depend_on_each_other_are_seen() -> None:
    for seed in range(5):
        assert JointFactors.of(slopes_of(*drawn(seed, 1000, 0.0)).slopes(), 1000).trust == 1.0
        assert JointFactors.of(slopes_of(*drawn(seed, 1000, 1.5)).slopes(), 1000).trust == 0.0


def test_a_replicate_is_a_fit_to_its_rows() -> None:
    products = slopes_of(*drawn(1, 600, 0.0))
    whole = JointFactors.of(products.slopes(), 600)
    for left in products.without_each_block():
        near, anew = whole.refitted(left), JointFactors.of(left, 540)
        moved = np.linalg.norm(anew.loadings @ anew.loadings.T - whole.loadings @ whole.loadings.T)
        assert np.linalg.norm(near.loadings @ near.loadings.T - anew.loadings @ anew.loadings.T) < 0.02 * moved


def test_a_factor_that_no_control_sees_is_not_corrected_for() -> None:
    rng = np.random.default_rng(0)
    loadings = np.zeros((12, 2))
    loadings[:, 0], loadings[:6, 1] = rng.normal(size=12), rng.normal(size=6)
    loadings[6:, 1] = 1e-3 * rng.normal(size=6)
    factors = JointFactors(loadings, np.ones(12), 6, 1.0)
    b = loadings[:, :1] @ np.ones((1, 1)) + 0.05 * rng.normal(size=(12, 1))
    gamma, _ = factors.slopes_of_factors(b, np.array([0.05**2]), np.arange(6))
    plain = np.linalg.lstsq(loadings[6:], b[6:], rcond=None)[0]
    assert abs(gamma[1, 0]) < 0.05 < 3 < abs(plain[1, 0])
    assert abs(gamma[0, 0] - 1) < 0.1


def test_the_least_in_the_triangle() -> None:
    rng = np.random.default_rng(2)
    grid = np.array([(a, b) for a in np.linspace(0, 1, 201) for b in np.linspace(0, 1, 201) if a + b <= 1 + 1e-12])
    for _ in range(100):
        root = rng.normal(size=(2, 2))
        h, g = root @ root.T + 0.05 * np.eye(2), 2 * rng.normal(size=2)
        x = _least_in_triangle(h, g)
        assert (x >= 0).all()
        assert x.sum() <= 1 + 1e-12

        def cost(x: np.ndarray, h: np.ndarray = h, g: np.ndarray = g) -> np.ndarray:
            return np.einsum("...i,ij,...j->...", x, h, x) / 2 - x @ g

        assert cost(x) <= cost(grid).min() + 1e-9


def test_a_gaussian_confounder_is_corrected_for() -> None:
    """Second moments suffice where errors are independent; cumulants say nothing."""
    ratios = []
    for seed in range(8):
        data = rc.datasets.make_confounded(2000, confounder="gaussian", random_state=seed)
        model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y)
        np.testing.assert_allclose(model.shares_.sum(axis=1), model.rho_)
        ratios.append(np.mean((model.coef_ - data.effects) ** 2) / np.mean((model.adjusted_ - data.effects) ** 2))
    assert np.median(ratios) < 0.3
