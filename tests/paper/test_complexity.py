"""Appendix B: the quantities are those of the population, and its bounds hold there with constants one."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.algebra import unfold
from richcomponents.components.sets import SetSystem
from richcomponents.cumulants import Cumulants
from richcomponents.paper.complexity import cumulant_bound, longest_chain, set_complexity, two_view_complexity
from richcomponents.paper.contrastive import truncated_pinv
from richcomponents.paper.general import find_linear
from tests.paper.population import S1, S2, S3, A, exact, rows, state
from tests.sets.population import Population

Z = rows()
VIEWS = Z[:, :2], Z[:, 2:]


@pytest.fixture(scope="module")
def cumulants():
    return Cumulants(state(4), unbiased=False)


def radius():
    return max(float(np.linalg.norm(s - s.mean(axis=0), axis=1).max()) for s in (S1, S2, S3))


def test_two_views():
    found = two_view_complexity(*VIEWS, A, radius=radius(), accuracy=0.1, unbiased=False)
    k4 = np.einsum("ijkl,ai->ajkl", exact(S2, 4), A)  # k4(A S2, S2, S2, S2)
    assert found.sigma == pytest.approx(np.linalg.svd(unfold(k4), compute_uv=False)[-1])
    values = np.linalg.svd(A, compute_uv=False)
    assert (found.norm_A, found.sigma_A) == pytest.approx((values[0], values[-1]))
    R, t = found.radius, 4
    N = (t * R) ** (2 * t) * found.norm_A**10 * R**16 / (found.sigma**4 * found.sigma_A**4 * 0.1**2)
    assert found.samples == pytest.approx(N)
    finer = two_view_complexity(*VIEWS, A, radius=radius(), accuracy=0.05, unbiased=False)
    assert finer.samples / found.samples == pytest.approx(4)


def test_the_bound_on_the_mixing_matrix_holds(cumulants, rng):
    u, v = np.arange(2), np.arange(2, 5)
    found = two_view_complexity(*VIEWS, A, radius=radius(), unbiased=False)
    M, N = unfold(cumulants.tensor(v, u, u, u)), unfold(cumulants.tensor(v, u, u, v))
    for _ in range(20):
        noise = [rng.normal(size=X.shape) for X in (M, N)]
        eps = 1e-6
        M_, N_ = (X + eps * E / np.linalg.norm(E) for X, E in zip((M, N), noise, strict=True))
        assert np.linalg.norm((truncated_pinv(M_) @ N_).T - A) <= found.of_mixing * eps


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("points", [S1, S2, S3])
def test_cumulants_are_bounded_by_the_radius(points, order):
    assert np.linalg.norm(exact(points, order)) <= cumulant_bound(order, radius())


def test_a_set_system():
    system = SetSystem.of([("a", "b"), ("a",), ("b",)], ("a", "b"))
    population = Population(system, {"a": 2, "b": 2}, order=4)
    views = {view: population.rows[:, columns] for view, columns in population.columns.items()}
    R = max(float(np.linalg.norm(p - p.mean(axis=0), axis=1).max()) for p in population.points.values())
    linear = find_linear(views, system, gauge=population.gauge, unbiased=False)
    found = set_complexity(views, linear, radius=R, unbiased=False)
    assert (found.L, found.members, found.chain, found.order) == (2, 3, 2, 3)
    third = [np.linalg.svd(unfold(population.exact(q, 3)), compute_uv=False)[-1] for q in system]
    assert found.sigma == pytest.approx(min(third))
    scales = [np.linalg.svd(M, compute_uv=False) for M in population.A.values()]
    assert found.sigma_A == pytest.approx(min(s[-1] for s in scales))
    assert found.norm_A == pytest.approx(max(1.0, *(s[0] for s in scales)))
    base = 3 * 2 * R * found.norm_A / (found.sigma_A * found.sigma)
    assert found.log10_samples == pytest.approx(2 * (2 * (2 + 3) * np.log10(base) + 1))
    assert np.log10(found.of_cumulants / 0.1) == pytest.approx(found.log10_samples / 2)  # eps = N^(-1/2)
    inverted = found.norm_A**3 * (2 * R) ** 3 / (found.sigma_A**4 * found.sigma**2)
    once = 2 * inverted * found.norm_A**2 * (2 * R) ** 3 / found.sigma_A**2
    assert found.of_mixing == pytest.approx(once * 3 * found.norm_A**3 * inverted)
    higher = set_complexity(views, linear, radius=R, order=4, unbiased=False)
    assert higher.log10_samples > found.log10_samples


def test_chains():
    assert longest_chain(SetSystem.of(["a", "b", ("a", "b")], "ab")) == 2
    assert longest_chain(SetSystem.of(["a", "b", "c"], "abc")) == 1
    assert longest_chain(SetSystem.all("abcd")) == 4


def test_edges_are_infinite_or_refused_in_words():
    """A problem that is singular, or that wants no error at all, takes infinitely many samples; none takes less than one."""

    def found(mixing=A, **options):
        return two_view_complexity(*VIEWS, mixing, **{"radius": 2.0} | options)

    nothing = found(np.zeros_like(A))
    assert (nothing.sigma_A, nothing.samples, nothing.of_cumulants) == (0, np.inf, np.inf)
    assert np.isfinite(nothing.of_mixing)
    assert found(A.T).sigma_A == 0  # fewer rows than columns: no left inverse
    assert found(accuracy=0).samples == np.inf
    far = found(radius=1e60)
    assert far.samples == far.of_cumulants == np.inf
    assert far.log10_samples > 1000
    assert found(accuracy=1e60).samples == 1
    for options in (
        {"radius": 0},
        {"radius": -1.0},
        {"radius": np.inf},
        {"accuracy": -0.1},
        {"accuracy": np.nan},
        {"order": 0},
    ):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name}= must"):
            found(**options)
    assert cumulant_bound(6, 1e60) == np.inf
