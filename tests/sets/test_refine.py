"""The joint refinement: the model is the law of cumulants, its derivatives are right, both solvers find the same minimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from richcomponents.algebra import multilinear, pack, packed_indices, unpack
from richcomponents.algebra.arrays import power
from richcomponents.components.sets import SetSystem
from richcomponents.datasets import make_views
from richcomponents.moments import Moments
from richcomponents.sets.evidence import SetEvidence, Structure, multiplicity, sequential
from richcomponents.sets.model import (
    DenseObjective,
    JointModel,
    Parameters,
    assemble,
    covariances_identified,
    fit_large,
    influence_covariance,
    least_squares_covariances,
    levenberg_marquardt,
    relative_errors,
    solve_tensors,
    white_data,
    white_model,
)
from tests.sets.population import Population, relative

SYSTEM = SetSystem.of([("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("c",)], "abc")
GAUGE = {q: q[0] for q in SYSTEM}
RANKS = dict.fromkeys(SYSTEM, 2)
WANTED = Structure(SYSTEM, GAUGE, RANKS)


@pytest.fixture(scope="module")
def evidence():
    data = make_views(8000, 3, 2, sets=SYSTEM.members, random_state=4)
    rows = data.X - data.X.mean(axis=0)
    white = np.zeros((6, 6))
    for part in data.views.values():
        white[part, part] = power(np.cov(rows[:, part].T, bias=True), -0.5, 0.0)
    columns = {view: np.arange(part.start, part.stop) for view, part in data.views.items()}
    return SetEvidence(columns, Moments.of(rows @ white, 4))


def test_the_model_is_exact_for_exact_cumulants():
    population = Population(SYSTEM, dict.fromkeys("abc", 2), seed=2, order=4)
    loadings, tensors = {}, {}
    for q in SYSTEM:
        root = np.linalg.cholesky(population.exact(q, 2))
        loadings[q] = np.vstack([population.A[view, q] for view in q]) @ root
        for t in (3, 4):
            tensors[q, t] = pack(multilinear(population.exact(q, t), *[np.linalg.inv(root).T] * t))
    entries = {t: np.arange(len(packed_indices(6, t))) for t in (2, 3, 4)}
    ones = {t: np.ones(len(e)) for t, e in entries.items()}
    model = JointModel(population.columns, RANKS, np.eye(6), entries, ones)
    data = model.data({t: population.cumulants.packed(t) for t in (2, 3, 4)})
    value = model.predict(model.join(Parameters(loadings, tensors)))
    assert relative(value, data) < 1e-10


@pytest.mark.parametrize(("free_second", "tied"), [(False, False), (True, False), (False, True)])
def test_derivatives_are_finite_differences(evidence, free_second, tied):
    rng, common = np.random.default_rng(0), ("a", "b", "c")
    known = {("c", common): rng.normal(size=(2, 2)), ("b", ("a", "b")): rng.normal(size=(2, 2))} if tied else {}
    model = replace(white_model(evidence, replace(WANTED, known=known)), free_second=free_second)
    if tied:  # C_c = A C_a, whatever the parameters
        C = model.split(rng.normal(size=model.size)).loadings[common]
        np.testing.assert_allclose(C[4:], known["c", common] @ C[:2], atol=1e-12)
        np.testing.assert_allclose(model.tied(common, model.free(common, C)), C, atol=1e-12)
    x, step = rng.normal(size=model.size), 1e-5 * rng.normal(size=model.size)
    _, slope = model.linearise(x)
    ahead, behind = (model.predict(x + sign * step) for sign in (1, -1))
    np.testing.assert_allclose((ahead - behind) / 2, slope @ step, rtol=1e-6, atol=1e-7 * np.abs(slope @ step).max())


def test_both_solvers_see_the_same_function(evidence):
    model = white_model(evidence, WANTED)
    data = white_data(evidence, model)
    x = solve_tensors(model, model.join(assemble(model, sequential(evidence, WANTED))), data)
    dense = {t: multilinear(unpack(evidence.cumulants.packed(t), 6, t), *[model.white] * t) for t in model.orders}
    objective = DenseObjective(model, dense)
    y = x / objective.unit
    value, gradient = objective(y)
    residual = model.predict(x) - data
    assert value == pytest.approx(residual @ residual, rel=1e-8)
    direction = np.random.default_rng(1).normal(size=len(y))
    slope = (objective(y + 1e-5 * direction)[0] - objective(y - 1e-5 * direction)[0]) / 2e-5
    assert slope == pytest.approx(gradient @ direction, rel=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_both_solvers_find_the_same_minimum(evidence, tied):
    system, key = SYSTEM.without(("a", "b")), ("c", ("a", "b", "c"))
    wanted = replace(WANTED, system=system)
    start = sequential(evidence, wanted)
    model = white_model(evidence, replace(wanted, known={key: start[key]} if tied else {}))
    data = white_data(evidence, model)
    start = assemble(model, start)
    sure = levenberg_marquardt(model, solve_tensors(model, model.join(start), data), data, iterations=200)
    far = model.join(fit_large(evidence, model, start))
    reached = model.predict(far) - data
    assert reached @ reached == pytest.approx(sure.value, rel=2e-3)


def test_block_cumulants_average_to_those_of_the_whole(evidence):
    for t in evidence.orders:
        whole = evidence.share @ evidence.blocks[t]
        np.testing.assert_allclose(whole, evidence.cumulants.packed(t), atol=5e-3)
    assert evidence.inflation[2] > 0.5
    assert set(evidence.support[4].tolist()) == set(range(1, 8))
    for entry, there in zip(packed_indices(6, 4), evidence.support[4], strict=True):
        assert there == np.bitwise_or.reduce(1 << entry // 2)
    places = evidence.places(np.array([2, 3]), np.array([0, 1]), np.array([5]))
    np.testing.assert_array_equal(evidence.cumulants.packed(3)[places], evidence.cumulants.tensor([2, 3], [0, 1], [5]))


def test_influence_covariance_of_gaussian_rows_is_the_known_one():
    rows = np.random.default_rng(0).normal(size=(40_000, 2))
    rows = (rows - rows.mean(axis=0)) @ power(np.cov(rows.T, bias=True), -0.5, 0.0)
    found = influence_covariance(rows, np.ones(len(rows)), (2, 3, 4))
    expected = np.concatenate([np.prod(range(1, t + 1)) / multiplicity(2, t) for t in (2, 3, 4)])
    np.testing.assert_allclose(np.diag(found), expected, rtol=0.15)
    few, counts = rows[:200], np.arange(200) % 3
    counted = influence_covariance(few, counts.astype(float), (2, 3, 4))
    repeated = np.repeat(few, counts, axis=0)
    again = influence_covariance(repeated, np.ones(len(repeated)), (2, 3, 4))
    np.testing.assert_allclose(counted, again, atol=1e-10)


def test_covariances_follow_from_transformations_by_least_squares():
    system = SetSystem.all("abc")  # no pair of views isolates a pair's covariance
    population = Population(system, dict.fromkeys("abc", 2), seed=5, order=4)
    total = unpack(population.cumulants.packed(2), 6, 2)
    found = least_squares_covariances(np.eye(6), total, population.columns, population.A)
    for q in system:
        assert relative(found[q], population.exact(q, 2)) < 1e-8
    assert covariances_identified(population.columns, population.A)
    thin = Population(system, dict.fromkeys("abc", 1), seed=5, order=4)
    assert not covariances_identified(thin.columns, thin.A)


def test_the_sequential_start_is_exact_for_exact_cumulants():
    population = Population(SYSTEM, dict.fromkeys("abc", 2), seed=2, order=4)
    copies = Moments.of(np.repeat(population.rows, 10, axis=0), 4, n_blocks=10)  # every block is the population
    found = sequential(SetEvidence(population.columns, copies), WANTED)
    for key, A in population.A.items():
        assert relative(found[key], A) < 1e-6


def test_errors_at_the_edge_of_what_a_covariance_can_be(evidence):
    """Second moments are linear in covariances: what is known of one does not depend on how large it is."""
    model = white_model(evidence, WANTED)
    at, alone = model.split(0.5 * np.random.default_rng(1).normal(size=model.size)), ("c",)
    errors = []
    for least in (0.7, 0.1, 1e-4):  # the last is the edge
        C = np.diag([0.7, least])
        tensors = at.tensors | {(alone, t): 0 * at.tensors[alone, t] for t in (3, 4)}
        x = model.join(Parameters({**at.loadings, alone: C}, tensors))
        errors.append(relative_errors(model, x, GAUGE)[1][alone] * np.linalg.norm(C @ C.T))
    np.testing.assert_allclose(errors, errors[0], rtol=1e-3)
