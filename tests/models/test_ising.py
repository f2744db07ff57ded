"""ComponentIsing and the sums behind it."""

from __future__ import annotations

import pickle
from copy import copy
from functools import cache
from itertools import product

import numpy as np
import pytest
from reproduction.descents import composite_likelihood, exact_ising
from scipy.linalg import block_diag
from scipy.special import logsumexp

from richcomponents import ContrastiveRCA, baselines
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.datasets import make_contrastive
from richcomponents.errors import DataError, SpecificationWarning
from richcomponents.learning.ising import (
    Elimination,
    Gibbs,
    Target,
    coupling_matrix,
    grid_edges,
    moment_model,
    second_moments,
    unit_diagonal,
    with_ghost,
)
from richcomponents.learning.latent import residual_of
from richcomponents.models.ising import ComponentIsing
from richcomponents.paper.ising import fit_taylor

GRID = grid_edges(3, 4)
TREE = np.array([[0, 1], [1, 2], [1, 3], [5, 4]])
COMPLETE = np.column_stack(np.triu_indices(6, 1))


def couplings(edges, seed=0, size=1.0):
    return np.random.default_rng(seed).uniform(-size, size, len(edges))


def covariance_only(C):
    return Component("S1", tuple(f"x{i}" for i in range(len(C))), np.zeros(len(C)), np.array(C))


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(5)
    edges = grid_edges(3, 3)
    J = couplings(edges, 1, 0.6)
    S1 = Elimination(9, edges).sample(J, 3000, rng)
    S2 = rng.choice([-1.0, 1.0], (3000, 1)) * rng.normal(size=9)
    V = S2 @ rng.normal(size=(9, 9)) + rng.uniform(-1, 1, (3000, 9))
    return edges, J, S1, np.hstack([S1 + S2, V])


def well_identified(seed):
    """Views whose shared part is known well: spins, most of them locked."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(3, 3)
    J = couplings(edges, 1, 0.6)
    S1 = Elimination(9, edges).sample(J, 3000, rng)
    S2 = rng.choice([-1.0, 1.0], (3000, 3))[:, [0, 1, 2, 2, 2, 2, 2, 2, 2]]
    A = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    return edges, J, np.hstack([S1 + S2, S2 @ A + 0.5 * rng.uniform(-1, 1, (3000, 9))])


@pytest.fixture(scope="module")
def identified():
    return well_identified(5)


@pytest.fixture(scope="module")
def ten_blocks(identified):
    """Models of these views by method and fields, each fitted once."""
    edges, _, X = identified
    rca = ContrastiveRCA(views=9, n_blocks=10)
    return cache(lambda method, fields: ComponentIsing(edges=edges, method=method, fields=fields, rca=rca).fit(X))


# ---- graphs


@pytest.mark.parametrize(
    ("shape", "periodic", "count"),
    [((5, 5), True, 50), ((3, 4), False, 17), ((2, 2), True, 4), ((1, 4), True, 4), ((1, 1), True, 0)],
)
def test_grid_edges(shape, periodic, count):
    edges = grid_edges(*shape, periodic=periodic)
    assert edges.shape == (count, 2)
    assert len({tuple(sorted(e)) for e in edges.tolist()}) == count
    assert np.all(edges[:, 0] != edges[:, 1])


def test_grid_needs_a_side():
    with pytest.raises(ValueError, match="at least one row"):
        grid_edges(0, 3)


# ---- sums


@pytest.mark.parametrize(("d", "edges"), [(12, GRID), (6, TREE), (6, COMPLETE), (7, TREE), (3, TREE[:0])])
def test_transfer_matrix_is_enumeration(d, edges):
    J, model = couplings(edges), Elimination(d, edges)
    S = np.array(list(product([1.0, -1.0], repeat=d)))
    log_weights = np.einsum("si,si->s", S @ coupling_matrix(d, edges, J), S) / 2
    log_z, pairs = model.log_partition(J)
    assert log_z == pytest.approx(logsumexp(log_weights), abs=1e-10)
    C = (S.T * np.exp(log_weights - log_z)) @ S
    np.testing.assert_allclose(pairs, C[edges[:, 0], edges[:, 1]], atol=1e-12)
    np.testing.assert_allclose(model.correlations(J), C, atol=1e-12)


def test_strong_couplings_do_not_overflow():
    J = np.full(len(GRID), 200.0)
    log_z, pairs = Elimination(12, GRID).log_partition(J)
    assert log_z == pytest.approx(200 * len(GRID) + np.log(2))
    np.testing.assert_allclose(pairs, 1.0)


def test_log_partition_gradient():
    model, J = Elimination(12, GRID), couplings(GRID)
    steps = 1e-5 * np.eye(len(J))
    slopes = [(model.log_partition(J + s)[0] - model.log_partition(J - s)[0]) / 2e-5 for s in steps]
    np.testing.assert_allclose(model.log_partition(J)[1], slopes, atol=1e-7)


def test_composite_gradient():
    J = couplings(GRID)
    S = Elimination(12, GRID).sample(J, 200, np.random.default_rng(0))
    point = J + 0.1
    steps = 1e-5 * np.eye(len(J))
    value = lambda at: composite_likelihood(S, GRID, at)[0]  # noqa: E731
    slopes = [(value(point + s) - value(point - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(composite_likelihood(S, GRID, point)[1], slopes, atol=1e-6)


@pytest.mark.parametrize("model", [Elimination(12, GRID), Gibbs(12, GRID, chains=1)])
def test_samples_have_the_correlations(model):
    J = couplings(GRID)
    S = model.sample(J, 8000, np.random.default_rng(3))
    assert set(np.unique(S)) == {-1.0, 1.0}
    np.testing.assert_allclose(S.T @ S / len(S), Elimination(12, GRID).correlations(J), atol=0.05)


def test_which_sum():
    assert isinstance(moment_model(25, grid_edges(5, 5)), Elimination)
    assert isinstance(moment_model(12, np.column_stack(np.triu_indices(12, 1))), Elimination)
    assert isinstance(moment_model(100, grid_edges(10, 10)), Gibbs)


# ---- fits


@pytest.mark.parametrize(("d", "edges"), [(12, GRID), (6, COMPLETE)])
def test_likelihood_recovers_couplings(d, edges):
    model, J = Elimination(d, edges), couplings(edges)
    np.testing.assert_allclose(Target(model, None, 0.0).fit(model.correlations(J)), J, atol=1e-4)


def test_monte_carlo_likelihood():
    J = couplings(GRID, size=0.7)
    C = Elimination(12, GRID).correlations(J)
    assert np.mean((Target(Gibbs(12, GRID, chains=1000), None, 0.0).fit(C) - J) ** 2) < 1e-3


def test_joint_fit_recovers_couplings():
    model, J = Elimination(12, GRID), couplings(GRID)
    W = np.random.default_rng(1).normal(size=(12, 12))
    C = model.correlations(J)
    np.testing.assert_allclose(Target(model, W, 1e-9).fit(C), J, atol=1e-4)
    assert np.mean((Target(Gibbs(12, GRID, chains=1000), W, 1e-3).fit(C) - J) ** 2) < 5e-3


@pytest.mark.filterwarnings("error")
def test_impossible_moments_stay_bounded():
    frustrated = np.array([[1, -0.9, -0.9], [-0.9, 1, -0.9], [-0.9, -0.9, 1]])
    model = Elimination(3, np.array([[0, 1], [1, 2], [0, 2]]))
    for white in (None, np.eye(3)):
        J = Target(model, white, 1e-3).fit(frustrated)
        assert np.isfinite(J).all()
        assert np.abs(J).max() <= 4.0


def test_taylor_is_right_for_weak_couplings_and_biased_for_strong_ones():
    edges = np.array([[0, 1], [1, 2]])
    model = Elimination(3, edges)
    for size, worst in ((0.1, 0.01), (1.0, np.inf)):
        J = np.array([size, -size])
        found = fit_taylor(covariance_only(model.correlations(J)), edges, 0.0)
        assert np.abs(found - J).max() < worst
    assert np.abs(found - J).max() > 0.1


def test_taylor_solves_the_papers_equations():
    """2 E[s_i s_j] = sum_k J_ik E[s_i^2 s_j s_k] + sum_k J_jk E[s_j^2 s_i s_k]: linear in J."""
    edges = grid_edges(3, 3)
    C = Elimination(9, edges).correlations(couplings(edges, 2, 0.5))
    J = fit_taylor(covariance_only(C), edges, 0.01)
    M = coupling_matrix(9, edges, J)
    i, j = edges.T
    left = 2 * C[i, j] - 0.01 * J
    np.testing.assert_allclose((M @ C)[i, j] + (M @ C)[j, i], left, atol=1e-4)


# ---- fields


def by_enumeration(d, edges, J, b):
    """States (2^d, d) and their probabilities."""
    S = np.array(list(product([1.0, -1.0], repeat=d)))
    weights = np.exp(np.einsum("si,si->s", S @ coupling_matrix(d, edges, J), S) / 2 + S @ b)
    return S, weights / weights.sum()


def test_the_ghost_carries_the_fields():
    d, edges = 7, grid_edges(1, 7)
    J, b = couplings(edges), np.linspace(-1, 1, d)
    S, p = by_enumeration(d, edges, J, b)
    model = Elimination(d + 1, with_ghost(d, edges))
    C = model.correlations(np.concatenate([J, b]))
    np.testing.assert_allclose(C[:d, d], p @ S, atol=1e-12)
    np.testing.assert_allclose(C[:d, :d], (S.T * p) @ S, atol=1e-12)
    np.testing.assert_allclose(Target(model, None, 0.0).fit(C), np.concatenate([J, b]), atol=1e-4)
    assert Elimination(26, with_ghost(25, grid_edges(5, 5))).width == 1 + Elimination(25, grid_edges(5, 5)).width


def test_joint_fit_recovers_fields():
    d, edges = 9, grid_edges(3, 3)
    J, b = couplings(edges, 3, 0.4), np.linspace(-0.5, 0.5, d)
    theta = np.concatenate([J, b])
    model, W = Elimination(d + 1, with_ghost(d, edges)), np.random.default_rng(1).normal(size=(d, d))
    W = block_diag(W, 1.0)
    C = model.correlations(theta)
    m = C[:d, d]
    np.testing.assert_allclose(second_moments(C[:d, :d] - np.outer(m, m), m), C, atol=1e-12)
    np.testing.assert_allclose(Target(model, W, 1e-9).fit(C), theta, atol=1e-4)


def test_unit_diagonal():
    C = unit_diagonal(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(C, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])


# ---- the estimator


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_fit_beats_naive(views):
    edges, J, S1, X = views
    model = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=9)).fit(X)
    assert model.method_ == "joint"
    error = np.mean((model.coef_ - J) ** 2)
    naive = ComponentIsing(edges=edges).fit_component(Component.of_samples(X[:, :9]))
    clean = ComponentIsing(edges=edges).fit_clean(S1)
    assert error < 0.3 * np.mean((naive.coef_ - J) ** 2)
    assert np.mean((clean.coef_ - J) ** 2) < 0.005
    assert error < 0.02
    np.testing.assert_array_equal(model.couplings_, model.couplings_.T)
    np.testing.assert_array_equal(model.couplings_[model.edges_[:, 0], model.edges_[:, 1]], model.coef_)
    assert "Ising model of S1: 9 spins, 18 edges" in model.summary()
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.couplings_, model.couplings_)
    alone = ComponentIsing(edges=edges).fit_component(model.component_)
    assert alone.method_ == "joint"
    assert alone.rca_ is None
    assert np.mean((alone.coef_ - J) ** 2) < 0.02
    for method in ("likelihood", "paper"):
        other = ComponentIsing(edges=edges, method=method).fit_component(model.component_)
        assert other.method_ == method
        assert np.mean((other.coef_ - J) ** 2) < 0.1


@pytest.mark.parametrize("given", [False, True])
def test_errors_are_even_where_the_residual_is_white(views, given):
    _, _, _, X = views
    U, V = (block - block.mean(axis=0) for block in np.split(X, 2, axis=1))
    R = U - V @ np.linalg.lstsq(V, U, rcond=None)[0]
    rca = ContrastiveRCA(views=9, A=np.linalg.lstsq(U, V, rcond=None)[0].T if given else None, rank=9).fit(X)
    np.testing.assert_allclose(residual_of(rca.components_["S1"]).covariance, R.T @ R / len(R), atol=1e-9)
    np.testing.assert_allclose(rca.fitted_.moment_draws("S1", of_mean=False)[0].value, R.T @ R / len(R), atol=1e-9)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_units_of_the_controls_do_not_matter(identified):
    edges, _, X = identified
    units = np.concatenate([np.ones(9), np.geomspace(1e-6, 1e6, 9)])
    one, two = (ComponentIsing(edges=edges, rca=ContrastiveRCA(views=9)).fit(table) for table in (X, X * units))
    np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-3)
    np.testing.assert_allclose(two.estimate().standard_error, one.estimate().standard_error, rtol=0.02)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
@pytest.mark.parametrize("method", ["auto", "likelihood"])
def test_couplings_lie_between_those_of_the_residual_and_those_of_the_component(identified, method):
    edges, _, X = identified
    model = ComponentIsing(edges=edges, method=method, rca=ContrastiveRCA(views=9)).fit(X)
    safe, full, _, gate = model.rca_.fitted_.moment_draws("S1", of_mean=False)
    white = whitening(safe.value)[0] if method == "auto" else None
    target = Target(Elimination(9, edges), white, 3.0 / 3000)
    low, high = target.fit(safe.value), target.fit(full.value)
    share = (model.coef_ - low) @ (high - low) / ((high - low) @ (high - low))
    np.testing.assert_allclose(model.coef_, low + share * (high - low), atol=1e-6)
    assert 0 < share <= gate


@pytest.mark.parametrize("known", [False, True])
def test_a_strong_shared_part_leaves_what_residualising_knows(known):
    data = make_contrastive(1000, d=16, S1="ising", S2="spins", A="unif", strength=4, random_state=3)
    rca = ContrastiveRCA(views=16, A=data.A if known else None)
    error = lambda model: float(np.mean((model.coef_ - data.couplings) ** 2))  # noqa: E731
    simple = error(baselines.covariates(ComponentIsing(data.edges, rca=rca), data.X))
    assert error(ComponentIsing(data.edges, rca=rca).fit(data.X)) < 1.2 * simple


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_other_fits_of_the_views():
    rng = np.random.default_rng(5)
    edges, A = grid_edges(3, 3), np.eye(9) + 0.1 * rng.normal(size=(9, 9))
    J = couplings(edges, 1, 0.6)
    S1, S2 = Elimination(9, edges).sample(J, 3000, rng), rng.uniform(-2, 2, (3000, 9))
    X = np.hstack([S1 + S2, S2 @ A.T + rng.uniform(-1, 1, (3000, 9))])
    known = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=9, A=A)).fit(X)
    assert known.method_ == "joint"
    paper = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=9, A=A, method="paper")).fit(X)
    assert paper.method_ == "joint"
    assert np.mean((known.coef_ - J) ** 2) < min(0.03, 2 * np.mean((paper.coef_ - J) ** 2))
    shared = ComponentIsing(edges=edges, component="S2", rca=ContrastiveRCA(views=9)).fit(X)
    assert shared.method_ == "likelihood"


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
@pytest.mark.parametrize(("method", "fields"), [("auto", False), ("likelihood", True)])
def test_intervals(method, fields):
    covered = []
    for seed in range(5, 11):  # 162 couplings and fields
        edges, J, X = well_identified(seed)
        model = ComponentIsing(edges=edges, method=method, fields=fields, rca=ContrastiveRCA(views=9, n_blocks=10)).fit(
            X
        )
        assert model.rca_.diagnostics_.gate > 0
        table = model.confidence_interval()
        assert table.names[0] == "x0 -- x1"
        assert len(table.names) == len(edges) + 9 * fields
        truth = np.concatenate([J, np.zeros(9 * fields)])
        covered.append(np.mean((table.low <= truth) & (table.high >= truth)))
    assert np.mean(covered) > 0.85
    with pytest.raises(ValueError, match="use fit"):
        ComponentIsing(edges=edges).fit_component(model.component_).confidence_interval()


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_one_step_errors_are_those_of_refits(ten_blocks):
    model = ten_blocks("auto", False)
    alone = copy(model)
    alone._error = None
    ratio = model.confidence_interval().standard_error / alone.confidence_interval().standard_error
    assert 0.8 < np.median(ratio) < 1.3


@pytest.mark.parametrize("exact", [True, False])
def test_first_order_changes(exact):
    """One step from the solution lands where a new fit does."""
    d, edges = 9, grid_edges(3, 3)
    J, W = couplings(edges, 3, 0.4), np.random.default_rng(1).normal(size=(d, d))
    sums, rng = Elimination(d, edges), np.random.default_rng(0)
    model = sums if exact else Gibbs(d, edges)
    moved = J + 1e-3 * rng.normal(size=len(J))
    for white in (None, W):
        target = Target(model, white, 0.0)
        change = target.of_moments(sums.correlations(moved)) - target.of_moments(sums.correlations(J))
        step = target.step(target.jacobian(J), change)
        assert np.linalg.norm(step - (moved - J)) < (5e-3 if exact else 0.15) * np.linalg.norm(moved - J)


def test_true_spins(views):
    edges, J, S1, _ = views
    for method, worst in (("auto", 0.005), ("paper", 0.2)):
        model = ComponentIsing(edges=edges, method=method).fit_clean(S1)
        assert np.mean((model.coef_ - J) ** 2) < worst
        assert pickle.loads(pickle.dumps(model)).method_ == model.method_
    big = grid_edges(10, 10)
    S = Gibbs(100, big).sample(couplings(big, size=0.3), 200, np.random.default_rng(0), burn_in=20)
    assert ComponentIsing(edges=big).fit_clean(S).method_ == "likelihood"


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_mini_batches_end_at_the_minimum(views):
    edges, _, S1, X = views
    path = exact_ising(S1, edges, 1e-3, n_steps=600)
    assert path.shape == (601, len(edges))
    theta = path[301:].mean(axis=0)
    assert np.abs(composite_likelihood(S1, edges, theta)[1] + 1e-3 * theta).max() < 0.05
    best = fit_taylor(ContrastiveRCA(views=9).fit(X).components_["S1"], edges, 1e-3)
    fitted = ComponentIsing(edges=edges, method="paper", alpha=3.0, rca=ContrastiveRCA(views=9)).fit(X)
    np.testing.assert_allclose(fitted.coef_, best, atol=1e-5)
    assert "Taylor" in fitted.summary()


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_fields_of_the_estimator():
    d, edges = 6, grid_edges(1, 6)
    theta = np.concatenate([couplings(edges, 4, 0.5), np.array([0.5, -0.5, 0, 0.2, 0, -0.3])])
    rng = np.random.default_rng(1)
    S = Elimination(d + 1, with_ghost(d, edges)).sample(theta, 20_000, rng)
    S = S[:, :d] * S[:, d:]
    for expected in ("likelihood", "joint"):
        model = ComponentIsing(edges=edges, fields=True)
        model = model.fit_component(Component.of_samples(S)) if expected == "joint" else model.fit_clean(S)
        assert model.method_ == expected
        np.testing.assert_allclose(np.r_[model.coef_, model.fields_], theta, atol=0.05)
    assert model.estimate().names[-1] == "field of x5"
    assert "fields" in model.summary()
    V = rng.uniform(-1, 1, (len(S), 1)) * rng.normal(size=d) + rng.uniform(-1, 1, S.shape)
    hidden = ComponentIsing(edges=edges, fields=True, rca=ContrastiveRCA(views=d, rank=1)).fit(np.hstack([S, V]))
    np.testing.assert_allclose(np.r_[hidden.coef_, hidden.fields_], theta, atol=0.1)
    plain = ComponentIsing(edges=edges).fit_clean(S)
    assert not plain.fields_.any()
    with pytest.warns(SpecificationWarning, match="spins lie within -1 and 1"):
        ComponentIsing(edges=edges, fields=True).fit_component(Component.of_samples(S + 3))


def test_names():
    pd = pytest.importorskip("pandas")
    S = pd.DataFrame(np.random.default_rng(0).choice([-1, 1], (50, 3)), columns=["a", "b", "c"])
    model = ComponentIsing(edges=[("c", "a"), ("a", "b"), ("b", "a")]).fit_clean(S)
    assert model.edges_.tolist() == [[0, 2], [0, 1]]
    assert model.estimate().names == ("a -- c", "a -- b")


def test_graph_forms():
    component = covariance_only(np.eye(4) + 0.1)
    adjacency = np.zeros((4, 4), int)
    adjacency[[0, 1], [1, 3]] = adjacency[[1, 3], [0, 1]] = 1
    for edges in (adjacency, adjacency.tolist(), adjacency.astype(bool), [(0, 1), (3, 1)], np.array([[1, 0], [1, 3]])):
        assert ComponentIsing(edges=edges).fit_component(component).edges_.tolist() == [[0, 1], [1, 3]]
    assert len(ComponentIsing().fit_component(component).edges_) == 6
    two = covariance_only(np.eye(2) + 0.1)
    assert ComponentIsing(edges=np.array([[0, 1], [1, 0]])).fit_component(two).edges_.tolist() == [[0, 1]]
    assert not len(ComponentIsing(edges=np.zeros((2, 2))).fit_component(two).edges_)
    nothing = ComponentIsing(edges=[]).fit_component(component)
    assert not nothing.couplings_.any()
    assert "0 edges" in nothing.summary()


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 0)], "self-loop"),
        ([(0, 7)], "unknown node 7"),
        ([(0, -1)], "unknown node -1"),
        ([("x0", "z")], "unknown node 'z'"),
        ([(0, 1.5)], "column number or a column name"),
        ([(0, 1, 2)], "pair of nodes"),
        ("complete", "edges must be None"),
        (3, "edges must be None"),
        (np.eye(4), "self-loops at nodes"),
        (np.triu(np.ones((4, 4)), 1), "not symmetric"),
        (np.zeros((3, 3)), "shape"),
        (np.full((4, 4), np.nan), "missing"),
    ],
)
def test_bad_graphs(edges, message):
    with pytest.raises(ValueError, match=message):
        ComponentIsing(edges=edges).fit_component(covariance_only(np.eye(4)))


def test_bad_input():
    S = np.random.default_rng(0).choice([-1.0, 1.0], (20, 3))
    S[4, 1] = 0.0
    with pytest.raises(DataError, match="1 entries are neither, the first is 0 in row 4, column 1"):
        ComponentIsing().fit_clean(S)
    with pytest.raises(DataError, match="2 \\* S - 1"):
        ComponentIsing().fit_clean((S + 1) / 2)
    with pytest.raises(ValueError, match="method must be one of"):
        ComponentIsing(method="mean field").fit_clean(np.sign(S + 0.5))
    for options, message in (
        ({"fields": "yes"}, "fields must be"),
        ({"fields": True, "method": "paper"}, "no fields"),
    ):
        with pytest.raises(ValueError, match=message):
            ComponentIsing(**options).fit_clean(np.sign(S + 0.5))
    with pytest.raises(ValueError, match="alpha"):
        ComponentIsing(alpha=-1).fit_component(covariance_only(np.eye(3)))
    with pytest.raises(TypeError, match="takes a Component"):
        ComponentIsing().fit_component(S)
