"""How many samples and controls: the laws that the numbers rest on, in the population."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.pair.diagnostics import (
    controls_needed,
    rounded,
    samples_for_strong,
    samples_to_see,
    smallest_seen,
)


def correlations(controls, noise, rank=2):
    """Canonical correlations of x = S2 (all of it shared) and so many controls for each direction, each with this noise."""
    A = np.kron(np.ones((controls, 1)), np.eye(rank))
    V = A @ A.T + np.diag(np.tile(noise, controls))
    return np.sqrt(np.linalg.eigvalsh(A.T @ np.linalg.solve(V, A)))[::-1]


@pytest.mark.parametrize("noise", [(1.0, 1.0), (0.3, 4.0)])
@pytest.mark.parametrize("controls", [2, 5])
def test_as_many_more_controls_halve_what_is_left(noise, controls):
    """What adjusting leaves of S2 is 1 - D^2, summed over the shared directions; each direction has its own noise."""
    rank, now = len(noise), correlations(controls, noise)
    more = controls_needed(now, controls * rank) / rank  # of each kind
    left = np.interp(controls + more, range(1, 60), [np.sum(1 - correlations(k, noise) ** 2) for k in range(1, 60)])
    assert left == pytest.approx(0.5 * np.sum(1 - now**2), rel=0.02)  # interpolated between whole numbers of controls


def test_the_smallest_correlation_seen_is_where_the_test_rejects():
    seen = smallest_seen(500, 3, 4)
    assert samples_to_see(seen, 3, 4) == pytest.approx(500, rel=1e-9)
    assert smallest_seen(3, 3, 4) == 1.0
    assert smallest_seen(2000, 3, 4) < seen


def test_samples_grow_as_evidence_is_short_of_strong():
    assert samples_for_strong(1000, 4.5) == 1000
    assert samples_for_strong(1000, 2.0) == 4000
    assert samples_for_strong(1000, -1.0) == np.inf
    assert [rounded(n) for n in (0.2, 9.1, 101, 12_001)] == ["1", "10", "110", "13000"]


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_every_verdict_of_two_views_knows_what_next():
    gaussian = rc.datasets.make_contrastive(400, d=4, S2="gaussian", random_state=1).X
    open_ = rc.ContrastiveRCA(views=4, errors="free").fit(gaussian)
    assert open_.verdict_ == "not identified"
    told = " ".join(open_.next_steps())
    assert "no number of samples is enough" in told
    assert "more controls as good as these 4" in told
    assert all(step in open_.summary() for step in open_.next_steps())
    strong = rc.ContrastiveRCA(views=4).fit(rc.datasets.make_contrastive(1500, d=4, S2="skewed", random_state=3).X)
    assert strong.next_steps() == ["Intervals half as wide take about n = 6000 samples."]
    nothing = rc.ContrastiveRCA(views=4).fit(np.random.default_rng(0).normal(size=(300, 8)))
    assert "would have shown a shared part with a canonical correlation above 0.32" in nothing.next_steps()[0]


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_many_views_ask_for_samples_by_the_square_of_their_errors():
    found = rc.datasets.make_views(600, 3, 2, sets=[("a",), ("b",), ("c",), ("a", "b", "c")], random_state=3)
    weak = rc.RCA(views=found.views, sets=found.sets).fit(np.random.default_rng(0).normal(size=(500, 6)))
    assert weak.verdict_ == "not identified"
    assert len(weak.next_steps()) == 1
    assert "samples" in weak.next_steps()[0]
    assert weak.next_steps()[0] in weak.summary().says
