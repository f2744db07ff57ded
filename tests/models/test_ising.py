"""ComponentIsing and the sums behind it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from richcomponents import ContrastiveRCA
from richcomponents.components import Component
from richcomponents.errors import DataError
from richcomponents.learning.ising import (
    Elimination,
    Enumeration,
    Gibbs,
    composite_from_component,
    composite_likelihood,
    fit_composite,
    fit_joint,
    fit_likelihood,
    fit_taylor,
    grid_edges,
    moment_model,
    unit_diagonal,
)
from richcomponents.models.ising import ComponentIsing

GRID = grid_edges(3, 4)
TREE = np.array([[0, 1], [1, 2], [1, 3], [5, 4]])
COMPLETE = np.column_stack(np.triu_indices(6, 1))


def couplings(edges, seed=0, size=1.0):
    return np.random.default_rng(seed).uniform(-size, size, len(edges))


def covariance_only(C):
    return Component("S1", tuple(f"x{i}" for i in range(len(C))), np.zeros(len(C)), np.array(C), None, lambda order: [])


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(5)
    edges = grid_edges(3, 3)
    J = couplings(edges, 1, 0.6)
    S1 = Elimination(9, edges).sample(J, 3000, rng)
    S2 = rng.choice([-1.0, 1.0], (3000, 1)) * rng.normal(size=9)
    V = S2 @ rng.normal(size=(9, 9)) + rng.uniform(-1, 1, (3000, 9))
    return edges, J, S1, np.hstack([S1 + S2, V])


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
    J = couplings(edges)
    one, two = Elimination(d, edges), Enumeration(d, edges)
    log_one, pairs_one = one.log_partition(J)
    log_two, pairs_two = two.log_partition(J)
    assert log_one == pytest.approx(log_two, abs=1e-10)
    np.testing.assert_allclose(pairs_one, pairs_two, atol=1e-12)
    np.testing.assert_allclose(one.correlations(J), two.correlations(J), atol=1e-12)


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


@pytest.mark.parametrize("model", [Elimination(12, GRID), Enumeration(12, GRID), Gibbs(12, GRID, chains=1)])
def test_samples_have_the_correlations(model):
    J = couplings(GRID)
    S = model.sample(J, 8000, np.random.default_rng(3))
    assert set(np.unique(S)) == {-1.0, 1.0}
    np.testing.assert_allclose(S.T @ S / len(S), Enumeration(12, GRID).correlations(J), atol=0.05)


def test_which_sum():
    assert isinstance(moment_model(25, grid_edges(5, 5)), Elimination)
    assert isinstance(moment_model(18, np.column_stack(np.triu_indices(18, 1))), Enumeration)
    assert isinstance(moment_model(100, grid_edges(10, 10)), Gibbs)
    with pytest.raises(ValueError, match="1 to 20 nodes"):
        Enumeration(21, GRID)


# ---- fits


@pytest.mark.parametrize(("d", "edges"), [(12, GRID), (6, COMPLETE)])
@pytest.mark.parametrize("kind", [Elimination, Enumeration])
def test_likelihood_recovers_couplings(kind, d, edges):
    model, J = kind(d, edges), couplings(edges)
    np.testing.assert_allclose(fit_likelihood(model, model.log_partition(J)[1], 0.0), J, atol=1e-4)


def test_monte_carlo_likelihood():
    J = couplings(GRID, size=0.7)
    moments = Elimination(12, GRID).log_partition(J)[1]
    assert np.mean((fit_likelihood(Gibbs(12, GRID, chains=1000), moments, 0.0) - J) ** 2) < 1e-3


def test_joint_fit_recovers_couplings():
    model, J = Elimination(12, GRID), couplings(GRID)
    W = np.random.default_rng(1).normal(size=(12, 12))
    target = W @ model.correlations(J) @ W.T
    found = fit_joint(
        model, W, target, np.ones((12, 12)), 0.7 * J, 0.0, rng=np.random.default_rng(0), n_draws=3000, max_iter=40
    )
    np.testing.assert_allclose(found, J, atol=0.02)
    rough = fit_joint(Gibbs(12, GRID, chains=1000), W, target, np.ones((12, 12)), 0.7 * J, 1e-3, rng=None)
    assert np.mean((rough - J) ** 2) < 5e-3


def test_impossible_moments_stay_bounded():
    frustrated = np.array([-0.9, -0.9, -0.9])
    J = fit_likelihood(Elimination(3, np.array([[0, 1], [1, 2], [0, 2]])), frustrated, 1e-3)
    assert np.isfinite(J).all()
    assert np.abs(J).max() <= 4.0


def test_composite_from_moments_is_composite_from_samples():
    edges = grid_edges(3, 3)
    S = Elimination(9, edges).sample(couplings(edges, 2, 0.5), 4000, np.random.default_rng(0))
    component = Component.of_samples(np.vstack([S, -S]))  # mean zero, as the model says
    found = composite_from_component(component, edges, 1e-3)
    np.testing.assert_allclose(found, fit_composite(S, edges, 1e-3), atol=5e-3)


def test_composite_from_moments_needs_few_neighbours():
    with pytest.raises(ValueError, match="a node has 5"):
        ComponentIsing(method="composite").fit_component(covariance_only(np.eye(6)))


def test_taylor_is_right_for_weak_couplings_and_biased_for_strong_ones():
    edges = np.array([[0, 1], [1, 2]])
    model = Elimination(3, edges)
    for size, worst in ((0.1, 0.01), (1.0, np.inf)):
        J = np.array([size, -size])
        C = model.correlations(J)
        found = fit_taylor(covariance_only(C), edges, 0.0)
        assert np.abs(found - J).max() < worst
    assert np.abs(found - J).max() > 0.1


def test_taylor_from_fourth_moments():
    edges = grid_edges(3, 3)
    S = Elimination(9, edges).sample(couplings(edges, 2, 0.1), 20_000, np.random.default_rng(0))
    S = np.vstack([S, -S])
    component = Component.of_samples(S)
    with_s2 = fit_taylor(covariance_only(S.T @ S / len(S)), edges, 0.0)
    np.testing.assert_allclose(fit_taylor(component, edges, 0.0), with_s2, atol=2e-3)


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
    likelihood = ComponentIsing(edges=edges).fit_component(model.component_)
    assert likelihood.method_ == "likelihood"
    assert likelihood.rca_ is None
    assert np.mean((likelihood.coef_ - J) ** 2) < 0.02
    for method in ("composite", "taylor"):
        other = ComponentIsing(edges=edges, method=method).fit_component(model.component_)
        assert other.method_ == method
        assert np.mean((other.coef_ - J) ** 2) < 0.1


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
    assert paper.method_ == "likelihood"
    assert np.mean((known.coef_ - J) ** 2) < min(0.03, 2 * np.mean((paper.coef_ - J) ** 2))
    shared = ComponentIsing(edges=edges, component="S2", rca=ContrastiveRCA(views=9)).fit(X)
    assert shared.method_ == "likelihood"


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_intervals(views):
    edges, J, _, X = views
    model = ComponentIsing(edges=edges, method="likelihood", rca=ContrastiveRCA(views=9, n_blocks=10)).fit(X)
    table = model.confidence_interval()
    assert table.names[0] == "x0 -- x1"
    assert np.mean((table.low <= J) & (table.high >= J)) > 0.6
    with pytest.raises(ValueError, match="use fit"):
        ComponentIsing(edges=edges).fit_component(model.component_).confidence_interval()


def test_true_spins(views):
    edges, J, S1, _ = views
    for method, worst in (("auto", 0.005), ("composite", 0.005), ("taylor", 0.2)):
        model = ComponentIsing(edges=edges, method=method).fit_clean(S1)
        assert np.mean((model.coef_ - J) ** 2) < worst
        assert pickle.loads(pickle.dumps(model)).method_ == model.method_
    big = grid_edges(10, 10)
    S = Gibbs(100, big).sample(couplings(big, size=0.3), 200, np.random.default_rng(0), burn_in=20)
    assert ComponentIsing(edges=big).fit_clean(S).method_ == "composite"


def test_names():
    pd = pytest.importorskip("pandas")
    S = pd.DataFrame(np.random.default_rng(0).choice([-1, 1], (50, 3)), columns=["a", "b", "c"])
    model = ComponentIsing(edges=[("c", "a"), ("a", "b"), ("b", "a")]).fit_clean(S)
    assert model.edges_.tolist() == [[0, 2], [0, 1]]
    assert list(model.edge_table()[0]) == ["node", "neighbour", "coupling"]
    assert model.edge_table()[0]["neighbour"] == "c"


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
    with pytest.raises(ValueError, match="alpha"):
        ComponentIsing(alpha=-1).fit_component(covariance_only(np.eye(3)))
    with pytest.raises(TypeError, match="takes a Component"):
        ComponentIsing().fit_component(S)
