"""The evidence of many shared directions: rows in pairs, a sketch of the cumulants, and the posterior of many unknowns."""

from itertools import pairwise

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra.packing import packed_rank
from richcomponents.contrastive import evidence, posterior, solution
from richcomponents.contrastive.evidence import Sketch, form_of, grams, implicit_grams, joint_whitening, sketched_rows
from richcomponents.contrastive.posterior import Prior, SharedEnergy, identify
from richcomponents.cumulants.kstatistics import linearised_block_cumulants
from richcomponents.datasets import make_contrastive
from richcomponents.learning.solvers import conjugate_gradients
from richcomponents.moments import Moments, Rows
from richcomponents.pair.canonical import canonical_of

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")

BLOCKS = 20
ALL = (3**2, 2 * 3**3)  # rows of the unfolded cumulants of three shared directions


@pytest.fixture(scope="module")
def shared():
    """Correlations and rows of three shared directions."""
    data = make_contrastive(1500, d=3, S2="skewed", random_state=4)
    found = canonical_of(Moments.of(data.X, 2), 3)
    return found.correlations, (data.X - data.X.mean(axis=0)) @ found.leading(3).T


def sketch(D, z, rows, seed=0, *, pieces=None, groups=None, weight=None):
    counted = Rows(z) if weight is None else Rows(z).weighted_by(weight)
    made = Sketch(Moments.of(counted, 2, n_blocks=BLOCKS, groups=groups), D, rows, seed, weight is not None)
    read = z if weight is None else np.column_stack([z, weight])
    take = made.update if groups is None else made.grouped(groups)
    ends = [0, *(pieces or []), len(read)]
    for start, stop in pairwise(ends):
        take(read[start:stop], start)
    return made.result()


def different_pairs(gram):
    return gram[:, ~np.eye(BLOCKS, dtype=bool)]


@pytest.mark.parametrize("r", [1, 2, 3])
def test_rows_that_are_equal_by_symmetry_are_counted_as_often_as_they_stand(r):
    """The Gram of all rows k4(x_i, y_j, w_b, w), one by one."""
    rng = np.random.default_rng(r)
    D, z = np.linspace(0.9, 0.2, r), rng.exponential(size=(400, 2 * r))
    state = Moments.of(z, 4, n_blocks=4)
    packed, lift = linearised_block_cumulants(state, 4), joint_whitening(D)
    at = packed_rank(np.sort(np.stack(np.indices((2 * r,) * 4), axis=-1), axis=-1), 2 * r)
    M = np.einsum("aijkl,bk,cl->aijbc", packed[:, at], lift, lift)[:, :r, r:].reshape(4, -1, 2 * r)
    every = np.einsum("aki,bkj->abij", M, M)
    np.testing.assert_allclose(grams(state, D)[1], every, rtol=1e-10, atol=1e-12 * np.abs(every).max())


def test_a_complete_sketch_is_the_whole_gram(shared):
    D, z = shared
    whole = implicit_grams(z, joint_whitening(D), n_blocks=BLOCKS)
    np.testing.assert_allclose(different_pairs(sketch(D, z, ALL)), different_pairs(whole), rtol=1e-9, atol=1e-12)


def test_a_sketch_is_unbiased(shared):
    """The mean over many draws of some of the rows lies within its own standard error of the whole."""
    D, z = shared[0], shared[1][:200]
    whole = sketch(D, z, ALL).sum(axis=(1, 2))
    draws = np.stack([sketch(D, z, (4, 9), seed).sum(axis=(1, 2)) for seed in range(200)])
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    z_values = (draws.mean(axis=0) - whole) / error
    assert np.abs(z_values).max() < 4.5
    assert 0.5 < np.sqrt(np.mean(z_values**2)) < 1.5


def test_a_sketch_has_the_same_bits_however_rows_come(shared):
    D, z = shared
    whole = sketch(D, z, (5, 20))
    np.testing.assert_array_equal(sketch(D, z, (5, 20), pieces=[1, 700, 701, 1499]), whole)
    np.testing.assert_array_equal(sketch(D, z, (5, 20), groups=np.arange(len(z)) % BLOCKS), whole)
    assert np.abs(sketch(D, z, (5, 20), seed=1) - whole).max() > 1e-3


def test_weights_are_rows_repeated(shared):
    D, z = shared
    times = np.random.default_rng(0).integers(0, 4, len(z))
    blocks = np.arange(len(z)) % BLOCKS
    repeated = sketch(D, np.repeat(z, times, axis=0), ALL, groups=np.repeat(blocks, times))
    order = np.argsort(np.unique(np.repeat(blocks, times), return_index=True)[1])  # groups are dealt out as they appear
    weighted = sketch(D, z, ALL, weight=times.astype(float))
    np.testing.assert_allclose(repeated, weighted[:, order][:, :, order], rtol=1e-9, atol=1e-12)


def test_one_rule_chooses_the_form():
    assert form_of(1000, 20, BLOCKS, held=True, independent=True) == "state"
    assert form_of(700, 20, BLOCKS, held=True, independent=True) == "pairs"
    assert form_of(700, 20, BLOCKS, held=True, independent=False) == "state"
    assert form_of(20_000, 200, BLOCKS, held=False, independent=True) == "pairs"
    assert form_of(20_000, 200, BLOCKS, held=False, independent=False) == "sketch"
    assert form_of(200_000, 60, BLOCKS, held=False, independent=True) == "sketch"


def test_a_sketch_is_as_large_as_work_and_memory_allow():
    assert sketched_rows(10_000, 10, BLOCKS) == (100, 2000)  # all
    for n, r in ((10**5, 60), (10**6, 100), (10**7, 200)):
        third, fourth = sketched_rows(n, r, BLOCKS)
        assert 0 < third <= r**2
        assert third <= fourth <= 2 * r**3
        assert 2 * BLOCKS * r * (third + fourth) <= evidence.SKETCH_NUMBERS


def test_a_prior_is_its_covariance():
    trend = np.stack([np.ones(4), [1.0, 0.3, -0.2, -1.1]], axis=1)
    prior, eye = Prior.of_free(trend, 0.7), np.eye(10)
    rows, cols = np.tril_indices(4)
    lift = np.where((rows == cols)[:, None], trend[rows], 0.0)
    expected = np.diag(0.49 / np.where(rows == cols, 1, 2)) + lift @ np.diag([1.5**2, 1.0]) @ lift.T
    root = prior.root(eye)
    np.testing.assert_allclose(root.T @ root, expected, atol=1e-12)
    np.testing.assert_allclose(prior.units(eye), root.T, atol=1e-12)
    np.testing.assert_allclose(prior.precision(expected), eye, atol=1e-12)


def test_conjugate_gradients_solve_all_rows():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 30))
    A = A @ A.T + np.eye(30)
    rows = rng.normal(size=(5, 30))
    found = conjugate_gradients(lambda d: d @ A, rows, lambda d: d / np.diag(A), share=1e-12, most=60)
    np.testing.assert_allclose(found, rows @ np.linalg.inv(A), atol=1e-9)


@pytest.fixture(scope="module")
def eight():
    return make_contrastive(4000, d=8, S2="skewed", random_state=2)


def test_many_unknowns_have_the_same_posterior(eight, monkeypatch):
    """Principal axes by a Krylov space, and conjugate gradients, in place of all axes: the same mode, nearly the same draws."""
    found = canonical_of(Moments.of(eight.X, 2), 8)
    z = (eight.X - eight.X.mean(axis=0)) @ found.leading(8).T
    gram = implicit_grams(z, joint_whitening(found.correlations), n_blocks=BLOCKS)
    exact = identify(found.correlations, found.n, gram)
    monkeypatch.setattr(posterior, "MOST_AXES", 10)
    monkeypatch.setattr(posterior, "_KRYLOV", 3)
    monkeypatch.setattr(posterior, "_DEPTH", 4)
    monkeypatch.setattr(posterior, "PULLS", 4000)
    few = identify(found.correlations, found.n, gram)
    np.testing.assert_allclose(few.t, exact.t, atol=1e-4)  # modes to 1e-9; taus are weighed by steps that are cut short
    np.testing.assert_allclose([few.gain, few.strength], [exact.gain, exact.strength], rtol=1e-4)
    np.testing.assert_allclose(few.t_shifts, exact.t_shifts, atol=1e-3 * np.abs(exact.t_shifts).max())
    np.testing.assert_allclose(few.mean_g2, exact.mean_g2, atol=0.02)
    energy = SharedEnergy(found.correlations)
    theta, mean = np.zeros(energy.size), evidence.pair_mean(gram[0], np.ones(BLOCKS)) * 100
    nearly = energy.posterior(theta, mean, 0.5)
    monkeypatch.setattr(posterior, "MOST_AXES", 1000)
    full = energy.posterior(theta, mean, 0.5)
    assert (full.complete, nearly.complete) == (True, False)
    rows = np.random.default_rng(0).normal(size=(4, energy.size))
    expected = full.solve(rows)
    np.testing.assert_allclose(nearly.solve(rows), expected, atol=1e-3 * np.abs(expected).max())
    squares = [np.sum(one.pulls() ** 2, axis=0) for one in (nearly, full)]
    np.testing.assert_allclose(squares[0].sum(), squares[1].sum(), rtol=0.2)


@pytest.mark.parametrize("form", ["pairs", "sketch"])
def test_without_fourth_moments_the_answers_are_nearly_those_with_them(form, eight, monkeypatch):
    """No state of order four of the columns: A, intervals, refits, coefficients, diagnostics and files work."""
    with_state = rc.ContrastiveRCA(views=8).fit(eight.X)
    monkeypatch.setattr(solution, "LARGEST_STATE", 1)
    if form == "sketch":
        monkeypatch.setattr(evidence, "MOST_PAIRED", 0)
    model = rc.ContrastiveRCA(views=8).fit(eight.X)
    assert model._solution.state.layout.order == 2
    scale = np.abs(with_state.A_).max()
    np.testing.assert_allclose(model.A_, with_state.A_, atol=0.02 * scale)
    one, other = with_state.confidence_interval("A"), model.confidence_interval("A")
    np.testing.assert_allclose(np.median(other.standard_error / one.standard_error), 1, atol=0.1)
    if form == "pairs":
        refits = [fit.jackknife(lambda m: m.A_).standard_error for fit in (model, with_state)]
        np.testing.assert_allclose(np.median(refits[0] / refits[1]), 1, atol=0.15)
    assert "strong" in model.summary()
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=8)).fit(eight.X, eight.y)
    assert np.isfinite(learner.coefficients_.standard_error).all()
    again = rc.ContrastiveRCA(views=8).fit(eight.X)
    np.testing.assert_array_equal(again.A_, model.A_)


def test_rows_of_groups_are_sketched(eight, monkeypatch):
    monkeypatch.setattr(solution, "LARGEST_STATE", 1)
    groups = np.arange(len(eight.X)) // 2
    model = rc.ContrastiveRCA(views=8).fit(eight.X, groups=groups)
    monkeypatch.undo()
    with_state = rc.ContrastiveRCA(views=8).fit(eight.X, groups=groups)
    np.testing.assert_allclose(model.A_, with_state.A_, atol=0.02 * np.abs(with_state.A_).max())


def test_a_state_needs_no_rows_and_gaps_are_refused_in_words(eight, monkeypatch):
    monkeypatch.setattr(solution, "LARGEST_STATE", 1)
    state = Moments.of(eight.X, 4, n_blocks=BLOCKS)
    assert rc.ContrastiveRCA(views=8).fit_moments(state).rank_ == 8
    gaps = eight.X.copy()
    gaps[::7, 3] = np.nan
    with pytest.raises(rc.CapacityError, match="missing='drop'"):
        rc.ContrastiveRCA(views=8, missing="available").fit(gaps)


def test_forty_eight_shared_directions():
    """More than a state of order four can hold: A is far better than regressing V on U."""
    data = make_contrastive(1500, d=48, S2="skewed", random_state=1)
    model = rc.ContrastiveRCA(views=48, rank="full").fit(data.X)
    assert model.verdict_ == "strong"
    U, V = data.U - data.U.mean(axis=0), data.V - data.V.mean(axis=0)
    regression = np.linalg.lstsq(U, V, rcond=None)[0].T
    assert np.mean((model.A_ - data.A) ** 2) < 0.3 * np.mean((regression - data.A) ** 2)


@pytest.mark.parametrize("largest", [None, 1])
def test_errors_where_nothing_is_shared_are_those_of_refits(largest, monkeypatch):
    if largest is not None:
        monkeypatch.setattr(solution, "LARGEST_STATE", largest)
    X = np.random.default_rng(3).normal(size=(600, 9)) @ np.diag(np.arange(1.0, 10.0))
    model = rc.ContrastiveRCA(views=4, rank=0).fit(X)
    for part in ("S1", "S2", "S3"):
        refits = model.jackknife(lambda m, part=part: m.components_[part].covariance)
        found = model.confidence_interval("covariance", part)
        np.testing.assert_allclose(found.standard_error, refits.standard_error, rtol=1e-9, atol=1e-12)
        assert found.degrees == refits.degrees
    np.testing.assert_allclose(
        model.variance_table().low, model.jackknife(lambda m: m.components_["S1"].variance).low, rtol=1e-9
    )
