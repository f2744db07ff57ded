"""ComponentHMM and ComponentLDA: exact recovery from population moments, one decomposition, layouts, words."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.algebra import moments_to_cumulants, multilinear
from richcomponents.components import Component, CumulantSource, RowSource
from richcomponents.components.component import Term, Terms, expand
from richcomponents.learning.latent import (
    Chain,
    ChainMoments,
    chain_moments,
    fit_chain,
    fit_topics,
    latent_classes,
    stationary,
)
from richcomponents.learning.mixture import match_centres

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


class Exact(CumulantSource):
    """A third cumulant that is known."""

    max_order, blocks, n = 3, (0,), 10**9

    def __init__(self, third, units):
        self.third, self.units = third, units

    def comparable(self, order):
        return False

    def require(self, order):
        assert order == 3

    def covariance(self, W):
        return (W.T * self.units**2) @ W

    def tensor(self, terms, order):
        ((coefficient, slots),) = expand(terms, order)
        return coefficient * multilinear(self.third, *slots)


def component(mean, covariance, third, units=1.0):
    every = np.eye(len(mean))
    names = tuple(f"w{i}" for i in range(len(mean)))
    return Component("S1", names, mean, covariance, Exact(third, units), Terms(((Term(1.0, (), every),),)))


def a_chain(k, d, seed=0):
    rng = np.random.default_rng(seed)
    T = 0.5 * np.eye(k) + 0.5 * rng.dirichlet(np.full(k, 0.7), size=k)
    return Chain(rng.normal(size=(k, d)), stationary(T), T)


def exact_chain(chain, noise=1.0):
    """Three observations, with noise that has any covariance within a time and is skewed."""
    k, d = chain.means.shape
    rng = np.random.default_rng(1)
    joint = chain.weights[:, None, None] * chain.transition[:, :, None] * chain.transition[None]
    points = np.stack([np.concatenate([chain.means[j] for j in at]) for at in product(range(k), repeat=3)])
    mean = joint.ravel() @ points
    centred = points - mean
    root = rng.normal(size=(d, d))
    within = np.kron(np.eye(3), noise * root @ root.T)
    third = np.einsum("n,na,nb,nc->abc", joint.ravel(), centred, centred, centred)
    for t in range(3):
        at = np.arange(t * d, (t + 1) * d)
        third[at, at, at] += 2 * noise
    return component(mean, (joint.ravel() * centred.T) @ centred + within, third)


@pytest.mark.parametrize(("k", "d"), [(4, 8), (2, 1), (3, 2), (5, 12)])
def test_a_chain_is_recovered_from_exact_moments(k, d):
    chain = a_chain(k, d)
    model = rc.ComponentHMM(k).fit_component(exact_chain(chain))
    order, _ = match_centres(model.means_, chain.means)
    np.testing.assert_allclose(model.means_[order], chain.means, atol=1e-6)
    np.testing.assert_allclose(model.transition_[np.ix_(order, order)], chain.transition, atol=1e-6)
    np.testing.assert_allclose(model.weights_[order], chain.weights, atol=1e-6)
    assert np.all(np.diff(model.weights_) <= 0)
    assert "chances to stay" in model.summary()
    assert model.estimate().value.shape == (d, k)
    assert model.plot() is not None


def test_moments_of_a_chain_are_those_of_its_paths():
    chain = a_chain(3, 2)
    exact = exact_chain(chain, noise=0.0)
    near, also, apart, third = chain_moments(chain.means, chain.weights, chain.transition)
    C = exact.covariance
    for block, told in ((C[:2, 2:4], near), (C[2:4, 4:], also), (C[:2, 4:], apart)):
        np.testing.assert_allclose(block, told, atol=1e-12)
    np.testing.assert_allclose(exact.cumulant(3)[:2, 2:4, 4:], third, atol=1e-12)


def test_units_of_the_columns_of_an_observation_do_not_matter():
    exact, units = exact_chain(a_chain(3, 4)), np.geomspace(1e-6, 1e6, 4)
    every = np.tile(units, 3)
    third = exact.source.third * every[:, None, None] * every[:, None] * every
    scaled = component(exact.mean * every, exact.covariance * np.outer(every, every), third, every)
    one, two = (rc.ComponentHMM(3).fit_component(each) for each in (exact, scaled))
    np.testing.assert_allclose(two.means_ / units, one.means_, atol=1e-6)
    np.testing.assert_allclose(two.transition_, one.transition_, atol=1e-6)


def exact_topics(words, alpha, length):
    """Counts of documents of this many words: factorial moments are those of a multinomial given h ~ Dirichlet."""
    k, d = words.shape
    a0 = alpha.sum()

    def dirichlet(*at):
        value, seen = 1.0, []
        for i in at:
            value *= alpha[i] + seen.count(i)
            seen.append(i)
        return value / np.prod(a0 + np.arange(len(at)))

    two = np.array([[dirichlet(i, j) for j in range(k)] for i in range(k)])
    three = np.array([[[dirichlet(i, j, m) for m in range(k)] for j in range(k)] for i in range(k)])
    mean = length * alpha / a0 @ words
    second = length * (length - 1) * words.T @ two @ words + np.diag(mean)
    third = length * (length - 1) * (length - 2) * multilinear(three, words, words, words)
    at = np.arange(d)
    third[at, at, :] += second
    third[at, :, at] += second
    third[:, at, at] += second
    third[at, at, at] -= 2 * mean
    return component(mean, second - np.outer(mean, mean), moments_to_cumulants([mean, second, third])[-1])


@pytest.mark.parametrize(("k", "d", "a0", "length"), [(5, 50, 1.0, 20), (2, 4, 3.0, 3), (3, 3, 0.2, 10)])
def test_topics_are_recovered_from_exact_moments(k, d, a0, length):
    rng = np.random.default_rng(2)
    words = 0.5 * rng.dirichlet(np.full(d, 0.3), size=k) + 0.5 * np.eye(k, d)  # topics that are not nearly combinations
    alpha = a0 * rng.dirichlet(np.full(k, 5.0))
    model = rc.ComponentLDA(k, concentration=a0).fit_component(exact_topics(words, alpha, length))
    order, _ = match_centres(model.topics_, words)
    np.testing.assert_allclose(model.topics_[order], words, atol=1e-6)
    np.testing.assert_allclose(model.concentrations_[order], alpha, atol=1e-6)
    assert "topics of S1" in model.summary()
    assert model.estimate().names[0] == "w0"


def test_lengths_may_differ():
    """Counts of documents of two lengths: mixtures of the moments, the same topics."""
    rng = np.random.default_rng(3)
    words, alpha = rng.dirichlet(np.full(6, 0.3), size=2), np.array([0.4, 0.6])
    parts = [exact_topics(words, alpha, length) for length in (5, 12)]
    mean, second, third = (np.mean([part.moment(t) for part in parts], axis=0) for t in (1, 2, 3))
    both = component(mean, second - np.outer(mean, mean), moments_to_cumulants([mean, second, third])[-1])
    found = fit_topics(both, 2, 1.0, np.random.default_rng(0))
    np.testing.assert_allclose(found.words[match_centres(found.words, words)[0]], words, atol=1e-6)


def test_the_decomposition_knows_centred_and_independent_vectors():
    rng = np.random.default_rng(4)
    c, w = rng.normal(size=(3, 5)), np.array([0.5, 0.3, 0.2])
    for centred in (True, False):
        vectors = c - w @ c if centred else c
        third = np.einsum("j,ja,jb,jc->abc", w, vectors, vectors, vectors)
        found = latent_classes(
            (w * vectors.T) @ vectors,
            lambda W, T=third: multilinear(T, W, W, W),
            3,
            np.random.default_rng(0),
            centred=centred,
        )[0]
        order, _ = match_centres(found.vectors, vectors)
        np.testing.assert_allclose(found.vectors[order], vectors, atol=1e-9)
        np.testing.assert_allclose(found.weights[order], w, atol=1e-9)


def test_a_mapped_component_has_mapped_cumulants_from_rows_and_states(rng):
    data = rc.datasets.make_contrastive(500, d=4, S2="skewed", random_state=1)
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    W = rng.normal(size=(4, 2))
    whole, rows = model.components_["S1"], model.component_on_rows(data.X)
    assert isinstance(rows.source, RowSource)
    first = rows.terms.alternatives[0]
    tensor = rows.source.tensor(first, 3)
    np.testing.assert_allclose(
        rows.source.tensor(tuple(t.mapped(W) for t in first), 3), multilinear(tensor, W, W, W), atol=1e-10
    )
    np.testing.assert_allclose(whole.source.tensor(whole.terms.alternatives[0], 3), tensor, atol=1e-10)
    mapped = whole.mapped(W)
    np.testing.assert_allclose(mapped.covariance, W.T @ whole.covariance @ W)
    np.testing.assert_allclose(mapped.mean, whole.mean @ W)


def test_from_the_views_better_than_naive():
    """Two states in three columns, a strong shared factor: the view itself is far off."""
    rng = np.random.default_rng(5)
    n, d, T = 6000, 3, np.array([[0.8, 0.2], [0.3, 0.7]])
    means = np.array([[1.5, 0.0, -1.0], [-1.5, 1.0, 0.5]])
    states = [rng.choice(2, p=stationary(T), size=n)]
    for _ in range(2):
        states.append((rng.uniform(size=n) < T[states[-1], 1]).astype(int))
    s1 = np.hstack([means[h] + rng.normal(size=(n, d)) for h in states])
    factor = rng.exponential(size=(n, 1)) - 1
    X = np.hstack([s1 + factor @ rng.normal(size=(1, 9)), factor + 0.5 * rng.normal(size=(n, 3))])
    model = rc.ComponentHMM(2, rca=rc.ContrastiveRCA(views=9, rank=1)).fit(X)

    def error(means_):
        return min(np.mean((means_[order] - means) ** 2) for order in ([0, 1], [1, 0]))

    naive = rc.baselines.naive(model, X)
    assert error(model.means_) < 0.05
    assert error(model.means_) < 0.2 * error(naive.means_)
    assert model.title() in model.summary()
    table = model.confidence_interval()
    assert table.names[0] == "mean 1: x0"
    assert table.names[-1] == "transition 2: to 2"
    order = np.argsort(model.means_[:, 0])[::-1]
    truth = np.concatenate([means[np.argsort(order)].ravel(), [0.6, 0.4], [0.8, 0.2, 0.3, 0.7]])
    assert np.mean(np.abs(table.value - truth) < 3 * table.standard_error) > 0.8
    assert np.all(table.standard_error < 0.2)


def test_errors_of_topics_are_those_of_fresh_documents():
    topics, fits = np.array([[0.6, 0.3, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]]), []
    learner = rc.ComponentLDA(2, rca=rc.ContrastiveRCA(views=4, rank=1, mean={"S2": np.zeros(4)}))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(20, rng.dirichlet([0.6, 0.4], size=3000) @ topics)
        factor = rng.exponential(size=(3000, 1)) - 1
        X = np.hstack([counts + factor * [0.5, 0.2, -0.3, 0.1], factor + 0.3 * rng.normal(size=(3000, 3))])
        fits.append(learner.fit(X).topics_[np.argsort(-learner.topics_[:, 0])])
    error = learner.confidence_interval().standard_error[:8]
    np.testing.assert_allclose(np.sort(error)[2:], np.sort(np.std(fits, axis=0).ravel())[2:], rtol=0.8)


def test_states_stay_within_what_there_is_of_an_observation():
    """A skewed factor at all three times is no chain of four states: they must not run away after its moments."""
    rng = np.random.default_rng(6)
    factor = rng.exponential(size=(2000, 2)) - 1
    S = np.hstack([factor @ rng.normal(size=(2, 4)) + rng.normal(size=(2000, 4)) for _ in range(3)])
    model = rc.ComponentHMM(4).fit_component(Component.of_samples(S, order=3))
    b = model.means_ - model.weights_ @ model.means_
    within = np.mean([np.cov(S[:, 4 * t : 4 * t + 4].T) for t in range(3)], axis=0)
    assert np.linalg.eigvals(np.linalg.solve(within, (model.weights_ * b.T) @ b)).real.max() < 1.01


def test_what_is_refused(rng):
    seven = Component.of_samples(rng.normal(size=(100, 7)))
    with pytest.raises(rc.DataError, match="three consecutive observations side by side"):
        rc.ComponentHMM(2).fit_component(seven)
    with pytest.raises(rc.DataError, match="from 2 to 3 states"):
        rc.ComponentHMM(5).fit_component(Component.of_samples(rng.normal(size=(100, 6))))
    with pytest.raises(ValueError, match="n_states"):
        rc.ComponentHMM(0).fit_component(seven)
    with pytest.raises(rc.DataError, match="positive mean"):
        rc.ComponentLDA(2).fit_component(Component.of_samples(rng.normal(size=(100, 7)) - 5))
    with pytest.raises(rc.DataError, match="at most as many topics as words"):
        rc.ComponentLDA(9).fit_component(Component.of_samples(rng.poisson(1.0, size=(100, 7))))
    with pytest.raises(ValueError, match="concentration"):
        rc.ComponentLDA(2, concentration=0.0).fit_component(seven)
    lone = Component.of_samples(np.eye(4)[rng.integers(4, size=200)])
    with pytest.raises(rc.DataError, match="two words"):
        rc.ComponentLDA(2).fit_component(lone)
    chain = fit_chain(ChainMoments.of(Component.of_samples(rng.normal(size=(300, 6)))), 2, rng)
    assert np.isfinite(chain.means).all()
