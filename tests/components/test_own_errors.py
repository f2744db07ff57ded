"""Independent errors: second moments tell T where they hold, and say nothing where they do not."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra import Array
from richcomponents.contrastive.own_errors import (
    ErrorsByBlock,
    OwnCovariances,
    against_noise,
    independent_errors,
    noise_of,
    off_diagonal,
)
from richcomponents.contrastive.pair import BlockCovariances, Pair
from richcomponents.contrastive.posterior import SharedEnergy, identify
from richcomponents.datasets import make_contrastive
from richcomponents.pair.canonical import Canonical, canonical

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
D_U, D_V, RANK, BLOCKS = 6, 7, 3, 12


def _population(rank: int = RANK, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Cov(U), Cov(U, V), Cov(V) and Cov(S1), own parts diagonal."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(D_U, rank)), rng.normal(size=(D_V, rank))
    own, noise = np.diag(rng.uniform(0.5, 2.0, D_U)), np.diag(rng.uniform(0.5, 2.0, D_V))
    return left @ left.T + own, left @ right.T, right @ right.T + noise, own


def _true_t(found: Canonical, own: Array, rank: int) -> Array:
    h = np.sqrt(1 - found.correlations[:rank] ** 2)
    x = found.x_from_u[:rank]
    return np.eye(rank) - (x @ own @ x.T) / np.outer(h, h)


def _blocks(found: Canonical, noise: float) -> BlockCovariances:
    """Blocks whose covariances deviate from that of all rows by so much, and cancel."""
    p, q = found.rank_u, found.rank_v
    sigma, both = np.eye(p + q), np.arange(len(found.correlations))
    sigma[both, p + both] = sigma[p + both, both] = found.correlations
    deviations = noise * np.random.default_rng(1).normal(size=(BLOCKS, p + q, p + q))
    deviations = deviations + deviations.swapaxes(1, 2)
    second = sigma + deviations - deviations.mean(axis=0)
    return BlockCovariances(np.full(BLOCKS, 100.0), np.zeros((BLOCKS, p + q)), second)


def _scales(found: Canonical) -> tuple[Array, Array]:
    return np.sqrt(np.sum(found.u_from_x**2, axis=1)), np.sqrt(np.sum(found.v_from_y**2, axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_exact_moments_give_T(seed: int) -> None:
    cov_u, cross, cov_v, own = _population(seed=seed)
    found = canonical(cov_u, cross, cov_v, 1200)
    truth = _true_t(found, own, RANK)
    equations = OwnCovariances.of(Pair.at(found, RANK), *_scales(found))
    np.testing.assert_allclose(equations.at(truth), 0.0, atol=1e-12)
    moments = _blocks(found, 1e-7)
    errors = independent_errors(found, RANK, moments)
    assert errors.used == (1.0, 0.0, 0.0)
    further = ErrorsByBlock(errors, found, RANK, moments)
    no_cumulants = np.zeros((2, BLOCKS, BLOCKS, 2 * RANK, 2 * RANK))
    posterior = identify(found.correlations[:RANK], 1200, no_cumulants, 0, further)
    np.testing.assert_allclose(posterior.t, truth, atol=1e-8)
    assert posterior.verdict == "strong"


def test_the_gradient_is_that_of_the_likelihood() -> None:
    cov_u, cross, cov_v, _ = _population()
    found = canonical(cov_u, cross, cov_v, 1200)
    moments = _blocks(found, 0.05)
    further = ErrorsByBlock(independent_errors(found, RANK, moments), found, RANK, moments)
    energy = SharedEnergy(found.correlations[:RANK], further.of(np.ones(BLOCKS)))
    rng, none = np.random.default_rng(0), np.zeros((2 * RANK, 2 * RANK))
    theta, direction = rng.normal(size=energy.size), rng.normal(size=energy.size)
    up, down = (energy.value_and_gradient(theta + step * direction, none)[0] for step in (1e-5, -1e-5))
    slope = energy.value_and_gradient(theta, none)[1] @ direction
    np.testing.assert_allclose((up - down) / 2e-5, slope, rtol=1e-6)
    above, below = (energy.value_and_gradient(theta + step * direction, none)[1] for step in (1e-5, -1e-5))
    bent = energy.bend(theta, none)(direction[None])[0]
    np.testing.assert_allclose(bent, -(above - below) / 2e-5, rtol=1e-5, atol=1e-6 * np.abs(bent).max())


def test_noise_is_that_of_the_equations_at_fixed_S() -> None:
    """K from derivatives of the equations by differences, at full rank."""
    rank = D_U
    cov_u, cross, cov_v, _ = _population(rank)
    found = canonical(cov_u, cross, cov_v, 1200)
    t = np.full((rank, rank), 0.05) + np.diag(np.linspace(0.2, 0.5, rank))
    scale_u, scale_v = _scales(found)
    S = OwnCovariances.of(Pair.at(found, rank), scale_u, scale_v).shared(t)
    whole = np.block([[cov_u, cross], [cross.T, cov_v]])
    shared = found.u_from_x @ S @ found.u_from_x.T

    def equations(joint: Array) -> Array:
        u, uv, v = joint[:D_U, :D_U], joint[:D_U, D_U:], joint[D_U:, D_U:]
        of_u, of_v = u - shared, v - uv.T @ np.linalg.solve(shared, uv)
        return np.concatenate(
            [
                off_diagonal(of_u / np.outer(scale_u, scale_u)),
                off_diagonal(of_v / np.outer(scale_v, scale_v)),
            ]
        )

    size = len(whole)
    forms = np.zeros((len(equations(whole)), size, size))
    for i in range(size):
        for j in range(i + 1):
            step = np.zeros((size, size))
            step[i, j] = step[j, i] = 1e-5
            change = (equations(whole + step) - equations(whole - step)) / 2e-5
            forms[:, i, j] = forms[:, j, i] = change / (1 if i == j else 2)
    root = np.linalg.cholesky(whole)
    flat = (root.T @ forms @ root).reshape(len(forms), -1)
    np.testing.assert_allclose(noise_of(found, rank, S, scale_u, scale_v), 2 * flat @ flat.T, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, D_U])
def test_noise_is_that_of_the_quadratic_forms(rank: int) -> None:
    """2 tr(B Sigma B' Sigma) of x x' - R x (S D^-1 y)' - (S D^-1 y) x' R and y y' - y (D S^-1 x)' - (D S^-1 x) y'."""
    cov_u, cross, cov_v, _ = _population(rank)
    found = canonical(cov_u, cross, cov_v, 1200)
    p, q, D = found.rank_u, found.rank_v, found.correlations
    scale_u, scale_v = _scales(found)
    S = OwnCovariances.of(Pair.at(found, rank), scale_u, scale_v).shared(0.3 * np.eye(rank))
    sigma = np.eye(p + q)
    sigma[np.arange(len(D)), p + np.arange(len(D))] = sigma[p + np.arange(len(D)), np.arange(len(D))] = D
    x, y = np.eye(p, p + q), np.eye(p + q)[p:]
    beyond, by_y, by_x = x.copy(), np.zeros((p, p + q)), np.zeros((q, p + q))
    beyond[:rank], by_y[:rank], by_x[:rank] = (
        0,
        (S / D[:rank]) @ y[:rank],
        D[:rank, None] * np.linalg.solve(S, x[:rank]),
    )

    def forms(lift: Array, scale: Array, *products: tuple[float, Array, Array]) -> list[Array]:
        f = [(sign, lift @ a / scale[:, None], lift @ b / scale[:, None]) for sign, a, b in products]
        above = zip(*np.triu_indices(len(lift), 1), strict=True)
        full = [sum(sign * np.outer(a[i], b[j]) for sign, a, b in f) for i, j in above]
        return [(one + one.T) / 2 for one in full]

    every = forms(found.u_from_x, scale_u, (1, x, x), (-1, beyond, by_y), (-1, by_y, beyond))
    every += forms(found.v_from_y, scale_v, (1, y, y), (-1, y, by_x), (-1, by_x, y))
    expected = [[2 * np.trace(a @ sigma @ b @ sigma) for a in every] for b in every]
    np.testing.assert_allclose(noise_of(found, rank, S, scale_u, scale_v), expected, atol=1e-12)


def test_noise_is_not_rejected_and_more_than_noise_is() -> None:
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(200):
        own = rng.normal(size=(20, 30)) / 20
        p_values.append(against_noise(own.sum(axis=0), own - own.mean(axis=0), 30)[2])
    assert 0.02 < np.mean(np.array(p_values) < 0.1) < 0.18
    assert against_noise(3 * own.sum(axis=0), own - own.mean(axis=0), 30)[2] < 1e-6


def _correlated(seed: int, n: int = 2000, **which: object) -> tuple[Array, Array, Array]:
    data = make_contrastive(n, d=6, random_state=seed, **which)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    mix = np.eye(6) + rng.normal(size=(6, 6)) / 2
    S1, S3 = data.S1 @ mix.T, data.S3 @ mix
    assert data.y is not None
    return np.hstack([S1 + data.S2, data.S2 @ data.A.T + S3]), data.y, data.X


def test_dependent_errors_change_nothing() -> None:
    X, y, _ = _correlated(1, S2="skewed")
    auto, free = (rc.ComponentRegression(rca=rc.ContrastiveRCA(views=6, errors=e)).fit(X, y) for e in ("auto", "free"))
    np.testing.assert_array_equal(auto.coef_, free.coef_)
    np.testing.assert_array_equal(auto.coefficients_.standard_error, free.coefficients_.standard_error)
    np.testing.assert_array_equal(auto.rca_.A_, free.rca_.A_)
    assert auto.rca_.diagnostics_.errors is not None
    assert auto.rca_.diagnostics_.errors.silent
    assert "not independent" in auto.rca_.summary()


def test_independent_errors_identify_a_gaussian_shared_part() -> None:
    data = make_contrastive(4000, d=8, S2="gaussian", random_state=2)
    assert data.y is not None
    assert data.beta is not None
    found = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=8)).fit(data.X, data.y)
    off, residualised = (float(np.sum((b - data.beta) ** 2)) for b in (found.coef_, found.residualised_))
    assert found.rca_.diagnostics_.verdict == "strong"
    assert off < 0.4 * residualised
    assert "independent in both views" in found.rca_.summary()
    free = rc.ContrastiveRCA(views=8, errors="free").fit(data.X)
    assert free.diagnostics_.verdict != "strong"
    assert free.diagnostics_.errors is None


def test_units_of_columns_do_not_count() -> None:
    data = make_contrastive(1500, d=6, S2="gaussian", random_state=3)
    scale = np.exp(np.random.default_rng(0).normal(size=12) * 3)
    one, other = (rc.ContrastiveRCA(views=6).fit(X) for X in (data.X, data.X * scale))
    assert not one.diagnostics_.errors.silent
    np.testing.assert_allclose(other.A_, one.A_ * np.outer(scale[6:], 1 / scale[:6]), rtol=1e-6, atol=1e-8)


def test_one_view_alone() -> None:
    """Two Gaussian factors; S1 depends, S3 does not: V alone tells T, to those who say that it does."""
    rng = np.random.default_rng(4)
    n, d = 3000, 8
    factors = rng.normal(size=(n, 2))
    S1 = rng.normal(size=(n, d)) @ (np.eye(d) + rng.normal(size=(d, d)) / 2)
    V = factors @ rng.normal(size=(2, d)) + rng.normal(size=(n, d))
    X = np.hstack([S1 + factors @ rng.normal(size=(2, d)), V])
    auto = rc.ContrastiveRCA(views=d, rank=2).fit(X).diagnostics_.errors
    assert auto is not None
    assert auto.silent
    found = rc.ContrastiveRCA(views=d, rank=2, errors=("auto", "independent")).fit(X).diagnostics_
    assert found.errors is not None
    assert found.errors.used == (0.0, 0.0, 1.0)
    assert found.verdict == "strong"
    kept = rc.ContrastiveRCA(views=d, rank=2, errors=("auto", "free")).fit(X).diagnostics_.errors
    assert kept is not None
    assert kept.silent


def test_what_cannot_be_tested_is_used_only_if_asked_for() -> None:
    data = make_contrastive(2000, d=3, S2="gaussian", random_state=0)
    auto = rc.ContrastiveRCA(views=3, rank=3).fit(data.X)
    told = rc.ContrastiveRCA(views=3, rank=3, errors="independent").fit(data.X)
    assert auto.diagnostics_.errors.silent
    assert "too few columns" in auto.summary()
    assert told.diagnostics_.errors.used == (1.0, 0.0, 0.0)


def test_a_constant_column_says_nothing() -> None:
    data = make_contrastive(1500, d=6, S2="gaussian", random_state=3)
    X = np.insert(data.X, 6, 1.0, axis=1)
    plain, more = rc.ContrastiveRCA(views=6).fit(data.X), rc.ContrastiveRCA(views=7).fit(X)
    np.testing.assert_allclose(more.A_[:, :6], plain.A_, rtol=1e-6, atol=1e-8)


def test_saved_models_keep_it(tmp_path: object) -> None:
    data = make_contrastive(1500, d=6, S2="gaussian", random_state=3)
    model = rc.ContrastiveRCA(views=6, errors=("auto", "independent")).fit(data.X)
    path = f"{tmp_path}/model.rca"
    model.save(path)
    again = rc.load(path)
    assert again.summary() == model.summary()
    limits, kept = (m.confidence_interval("covariance") for m in (model, again))
    np.testing.assert_array_equal(limits.standard_error, kept.standard_error)
    np.testing.assert_array_equal(again.calibrate(data.X, data.y).coef, model.calibrate(data.X, data.y).coef)


@pytest.mark.parametrize("errors", ["dependent", ("auto",), ("auto", "none"), None])
def test_other_words_are_refused(errors: object) -> None:
    with pytest.raises(ValueError, match="errors must be one of 'auto', 'free', 'independent'"):
        rc.ContrastiveRCA(views=2, errors=errors).fit(np.random.default_rng(0).normal(size=(100, 4)))


def test_wide_tables_are_taken_as_free() -> None:
    """The noise of the equations of a hundred columns and more would not fit into memory."""
    data = make_contrastive(400, d=46, S2="skewed", random_state=0)
    assert rc.ContrastiveRCA(views=46, rank=2).fit(data.X).diagnostics_.errors is None
