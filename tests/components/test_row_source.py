"""Two providers of a component's cumulants, one law: the packed state and the rows answer alike."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.components import Component, CumulantSource, RowSource, Term
from richcomponents.learning.chebyshev import LogisticLikelihood
from richcomponents.moments import Moments

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(600, d=3, S1="logistic", S2="skewed", A="good", random_state=4)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("unbiased", [True, False])
def test_rows_and_state_agree(order, unbiased, rng):
    z = rng.exponential(size=(60, 4)) + 5
    slots = [rng.normal(size=(4, 3)) for _ in range(3)]
    drawn = [tuple(slots[i] for i in rng.integers(3, size=order)) for _ in range(2)]  # slots repeat, terms differ
    terms = (Term(1.0, drawn[0], slots[0]), Term(-0.5, drawn[1][:2], slots[1]))
    terms += (Term(0.3, (rng.normal(size=(3, 3)),), np.eye(3), terms),)  # of a part that is read the same way
    theta = rng.normal(size=3)
    state = CumulantSource(Moments.of(z, order, n_blocks=1), unbiased=unbiased)
    rows = RowSource(z, unbiased=unbiased)
    expected = state.projected(terms, order, theta)
    np.testing.assert_allclose(
        rows.projected(terms, order, theta), expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max()
    )
    if order in (2, 3, 4):
        tensor = state.tensor(terms, order)
        np.testing.assert_allclose(rows.tensor(terms, order), tensor, rtol=1e-10, atol=1e-10 * np.abs(tensor).max())


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"method": "paper"}])
@pytest.mark.parametrize("which", ["S1", "S2", "S3"])
def test_components_of_a_fit_agree(data, options, which):
    model = rc.ContrastiveRCA(views=3, **options).fit(data.X)
    kept, read = model.components_[which], model.component_on_rows(data.X, which)
    theta = np.array([0.5, -1.0, 0.3])
    for order in (2, 3, 4):
        np.testing.assert_allclose(
            read.projected_moment(theta, order), kept.projected_moment(theta, order), rtol=1e-10, atol=1e-10
        )
    np.testing.assert_allclose(read.standard_error(3, theta), kept.standard_error(3, theta), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(read.cumulant(3), kept.cumulant(3), rtol=1e-8, atol=1e-10)


def test_groups_make_the_same_blocks(data):
    groups = np.repeat(np.arange(120), 5)
    model = rc.ContrastiveRCA(views=3).fit(data.X, groups=groups)
    read = model.component_on_rows(data.X, groups=groups)
    theta = np.array([1.0, 0.0, 2.0])
    kept = model.components_["S1"]
    np.testing.assert_allclose(read.projected_cumulant(theta, 4), kept.projected_cumulant(theta, 4), atol=1e-10)


def test_batches_average_to_the_whole(data):
    """k-statistics are unbiased under sampling without replacement too (they are symmetric means of the rows)."""
    whole = rc.ContrastiveRCA(views=3).fit(data.X).component_on_rows(data.X)
    source = whole.source
    everything = whole.measured_on(source.take(np.arange(600)))
    theta = np.array([0.2, 0.4, -0.6])
    np.testing.assert_allclose(everything.covariance, whole.covariance, atol=1e-12)
    np.testing.assert_allclose(everything.projected_moment(theta, 4), whole.projected_moment(theta, 4), atol=1e-10)
    rng = np.random.default_rng(0)
    batches = [whole.measured_on(source.take(rng.choice(600, 100, replace=False))) for _ in range(400)]
    for order in (2, 3, 4):
        values = np.stack([b.projected_cumulant(theta, order) for b in batches])
        error = values.std(axis=0) / 20
        assert np.all(np.abs(values.mean(axis=0) - whole.projected_cumulant(theta, order)) < 4 * error)


def test_a_gradient_in_200_dimensions_is_light():
    """N = 5000, d = 200: a logistic gradient allocates vectors of rows and the maps, nothing cubic."""
    rng = np.random.default_rng(0)
    n, d, r = 5000, 200, 3
    s2 = (rng.exponential(size=(n, r)) - 1) @ rng.normal(size=(r, d))
    U, V = rng.uniform(-1, 1, size=(n, d)) + s2, s2 + rng.uniform(-1, 1, size=(n, d))
    X = np.hstack([U, V])
    model = rc.ContrastiveRCA(views=d, rank=r).fit(X)
    with pytest.raises(rc.CapacityError, match="component_on_rows"):
        model.components_["S1"].projected_moment(np.ones(d), 4)
    component = model.component_on_rows(X)
    likelihood = LogisticLikelihood(component, np.full(d, 0.01), 0.5, alpha=1e-3)
    at = np.full(1 + likelihood.root.shape[1], 0.05)
    tracemalloc.start()
    try:
        gradient = likelihood.gradient(at)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.isfinite(gradient).all()
    assert peak < 20e6  # the rows themselves are 16 MB, a cumulant of order three would be 64 MB


def test_samples_read_off_rows(rng):
    S = rng.exponential(size=(200, 3))
    kept = Component.of_samples(S)
    rows = kept.measured_on(RowSource(S))
    theta = rng.normal(size=3)
    np.testing.assert_allclose(rows.projected_moments(theta, 4), kept.projected_moments(theta, 4), atol=1e-10)


def test_bad_requests(data):
    model = rc.ContrastiveRCA(views=3).fit(data.X)
    with pytest.raises(ValueError, match="'S1', 'S2', 'S3'"):
        model.component_on_rows(data.X, "S4")
    few = RowSource(data.X[:3])
    with pytest.raises(rc.DataError, match="at least 4 rows"):
        few.projected((Term(1.0, (), np.eye(6)),), 4, np.ones(6))
    with pytest.raises(rc.DataError, match="no rows"):
        RowSource(data.X[:0])
