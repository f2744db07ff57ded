"""Spherical mixtures from cumulants: exact on populations, close on samples, clear on bad input."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone

import richcomponents as rc
from richcomponents.components import Component, CumulantSource, Term, Terms
from richcomponents.learning.latent import lifted, orthogonal_decomposition, residual_of
from richcomponents.learning.mixture import (
    Mixture,
    MixtureCumulants,
    MomentMatching,
    fit_mixture,
    match_centres,
    noise_variance,
)
from richcomponents.models.latent import ComponentGaussianMixture
from richcomponents.moments import Moments
from tests.exact import mixture_cumulants


def exact_component(means, weights, sigma2):
    """A component whose cumulants are those of the mixture, without any samples."""
    mean, covariance, third, fourth = mixture_cumulants(means, weights, sigma2)
    names = tuple(f"g{i}" for i in range(len(mean)))
    known = {("cumulant", 3): third, ("cumulant", 4): fourth}
    return Component("S1", names, mean, covariance, None, Terms(), known)


def some_mixture(k, d, seed=0, even=False):
    rng = np.random.default_rng(seed)
    weights = np.full(k, 1 / k) if even else rng.dirichlet(np.full(k, 6.0))
    return 2 + rng.normal(size=(k, d)), weights


def contrastive(n, centres, weights, seed, sigma=0.5):
    """U = S1 + S2, V = A S2 + S3, side by side, and S1 with its labels; S2 is skewed."""
    rng = np.random.default_rng(seed)
    k, d = centres.shape
    label = rng.choice(k, size=n, p=weights)
    s1 = centres[label] + sigma * rng.normal(size=(n, d))
    s2 = 0.8 * (rng.exponential(size=(n, d)) - 1)
    A = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.7, 1.3, d)
    return np.hstack([s1 + s2, s2 @ A.T + 0.5 * rng.uniform(-1, 1, (n, d))]), s1, label


# ---- laws


def test_cumulants_of_a_mixture_are_those_of_an_exact_population():
    """Noise on the points -sqrt 3, 0, sqrt 3 with weights 1, 4, 1 has the cumulants of a Gaussian up to order five."""
    means, repeats, sigma = np.array([[0.0, 1.0], [2.0, -1.0], [5.0, 0.5]]), [3, 2, 1], 0.7
    noise = np.array(list(product(np.sqrt(3) * np.array([-1, 0, 0, 0, 0, 1]), repeat=2)))
    rows = np.vstack([c + sigma * noise for c, times in zip(means, repeats, strict=True) for _ in range(times)])
    expected = mixture_cumulants(means, np.array(repeats) / 6, sigma**2)
    for order in (2, 3, 4):
        np.testing.assert_allclose(rc.cumulant(rows, order, unbiased=False), expected[order - 1], atol=1e-9)


def test_the_lifted_tensor_is_orthogonally_decomposable():
    means, weights = some_mixture(4, 4)
    mean, covariance, third, _ = mixture_cumulants(means, weights, 0.3)
    assert noise_variance(covariance, 4) == pytest.approx(0.3)
    values, vectors = np.linalg.eigh(covariance)
    root, basis = np.sqrt(values[1:] - 0.3), vectors[:, 1:]
    back, W = (basis * root).T, basis / root
    T = lifted(np.einsum("abc,ai,bj,ck->ijk", third, W, W, W))
    Z = orthogonal_decomposition(T, np.random.default_rng(0))[0]
    Z = Z * np.sign(Z[:, -1:])
    np.testing.assert_allclose(Z @ Z.T, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(np.einsum("j,ja,jb,jc->abc", 1 / Z[:, -1], Z, Z, Z), T, atol=1e-9)
    np.testing.assert_allclose(np.sort(Z[:, -1] ** 2), np.sort(weights), atol=1e-9)
    assert match_centres((Z[:, :-1] / Z[:, -1:]) @ back + mean, means)[1] < 1e-18


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("order", [3, 4])
def test_the_gradient_equals_finite_differences(equal, order, rng):
    cumulants = mixture_cumulants(*some_mixture(3, 4), 0.5)[1:]
    scale = cumulants[0] + np.diag([0.1, 0.2, 0.0, 1.0])
    covariance, third, fourth = cumulants
    target = MixtureCumulants(covariance, third, fourth if order == 4 else None, scale, n=50.0)
    objective = MomentMatching(target, 3, equal_weights=equal)
    for _ in range(3):
        weights = np.full(3, 1 / 3) if equal else rng.dirichlet(np.ones(3) * 4)
        x = objective.pack(Mixture(rng.normal(size=(3, 4)), weights, 0.4))
        slope = np.linalg.norm(objective(x)[1])
        assert check_grad(lambda z: objective(z)[0], lambda z: objective(z)[1], x) < 1e-5 * max(1.0, slope)


@pytest.mark.parametrize(("k", "d"), [(1, 3), (2, 2), (3, 3), (3, 6), (10, 10)])
@pytest.mark.parametrize("even", [False, True])
def test_exact_cumulants_give_the_exact_mixture(k, d, even):
    means, weights = some_mixture(k, d, seed=k, even=even)
    model = ComponentGaussianMixture(k, equal_weights=even).fit_component(exact_component(means, weights, 0.25))
    order, error = match_centres(model.means_, means)
    assert error < 1e-12
    np.testing.assert_allclose(model.weights_[order], weights, atol=1e-6)
    assert model.sigma2_ == pytest.approx(0.25, abs=1e-6)
    np.testing.assert_allclose(model.weights_ @ model.means_, model.component_.mean, atol=1e-12)
    assert np.all(np.diff(model.weights_) <= 1e-12)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.filterwarnings("error")
def test_alternating_minimisation_loses_no_component_of_exact_cumulants(even):
    """Ten random starts lose one of ten components in a third of such draws: starts go on until the residual is gone."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        means, weights = rng.normal(size=(10, 10)), np.full(10, 0.1) if even else rng.dirichlet(np.full(10, 6.0))
        model = ComponentGaussianMixture(10, method="paper", equal_weights=even)
        model.fit_component(exact_component(means, weights, 0.25))
        assert match_centres(model.means_, means)[1] < 1e-12
        assert model.objective_ < 1e-12


def test_alternating_minimisation_says_when_a_component_may_be_lost(rng):
    """Three terms cannot make a tensor that is noise."""
    names, third = ("a", "b", "c"), rng.normal(size=(3, 3, 3))
    third = 9 * sum(third.transpose(axes) for axes in permutations(range(3)))
    noisy = Component("S1", names, np.ones(3), np.diag([1.0, 2.0, 3.0]), None, Terms(), {("cumulant", 3): third})
    with pytest.warns(rc.SpecificationWarning, match="one may be lost"):
        ComponentGaussianMixture(3, method="paper", n_init=2).fit_component(noisy)


@pytest.mark.parametrize("even", [False, True])
def test_the_paper_s_alternating_minimisation(even):
    means, weights = some_mixture(4, 4, seed=1, even=even)
    model = ComponentGaussianMixture(4, method="paper", equal_weights=even)
    model.fit_component(exact_component(means, weights, 0.25))
    order, error = match_centres(model.means_, means)
    assert error < 1e-12
    np.testing.assert_allclose(model.weights_[order], weights, atol=1e-6)


def test_the_third_order_alone_is_enough():
    means, weights = some_mixture(3, 4)
    whole = exact_component(means, weights, 0.25)
    known = {("cumulant", 3): whole.cumulant(3)}
    less = Component("S1", whole.feature_names, whole.mean, whole.covariance, None, Terms(), known)
    assert match_centres(ComponentGaussianMixture(3).fit_component(less).means_, means)[1] < 1e-12


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e6])
def test_units_and_origin_do_not_matter(unit):
    """A common scale of the columns scales the result; a shift of the mean shifts it."""
    means, weights = some_mixture(3, 3)
    one = ComponentGaussianMixture(3).fit_component(exact_component(means, weights, 0.25))
    two = ComponentGaussianMixture(3).fit_component(exact_component(unit * (means - 7), weights, 0.25 * unit**2))
    np.testing.assert_allclose(two.means_ / unit, one.means_ - 7, atol=1e-6)
    np.testing.assert_allclose(two.weights_, one.weights_, atol=1e-6)
    assert two.sigma2_ == pytest.approx(unit**2 * one.sigma2_)


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_units_of_all_columns_of_the_views_do_not_matter():
    data = rc.datasets.make_contrastive(1000, d=3, S1="mixture", S2="skewed", random_state=1)
    learner = ComponentGaussianMixture(2, rca=rc.ContrastiveRCA(views=3), n_init=3)
    units = np.concatenate([np.full(3, 1e-6), np.geomspace(1e-6, 1e6, 3)])
    one, two = (learner.fit(X).confidence_interval() for X in (data.X, data.X * units))
    scale = np.array([1e-6] * 6 + [1.0] * 2 + [1e-12])
    np.testing.assert_allclose(two.value / scale, one.value, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(two.standard_error / scale, one.standard_error, rtol=0.02)


# ---- the number of components


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_is_found_from_exact_cumulants(k):
    model = ComponentGaussianMixture().fit_component(exact_component(*some_mixture(k, 4, seed=3), 0.25))
    assert model.n_components_ == k
    assert set(model.criterion_) == {1, 2, 3, 4}


def test_k_is_found_from_samples():
    centres = 2.5 * np.eye(5)[:3]
    X, _, _ = contrastive(3000, centres, np.full(3, 1 / 3), seed=5)
    model = ComponentGaussianMixture("auto", rca=rc.ContrastiveRCA(views=5)).fit(X)
    assert model.n_components_ == 3
    assert "chosen by cross-validation" in model.summary()


# ---- samples


@pytest.fixture(scope="module")
def fitted():
    centres, weights = np.array([[2.0, 0, 0, 1], [-2.0, 1, 0, 0], [0, -2.0, 2, 0]]), np.array([0.5, 0.3, 0.2])
    X, s1, label = contrastive(10_000, centres, weights, seed=2)
    model = ComponentGaussianMixture(3, rca=rc.ContrastiveRCA(views=4)).fit(X)
    return model, X, s1, label, centres, weights


def test_unequal_weights_are_recovered_from_perturbed_samples(fitted):
    model, X, _, _, centres, weights = fitted
    order, error = match_centres(model.means_, centres)
    assert error < 0.01
    np.testing.assert_allclose(model.weights_[order], weights, atol=0.03)
    assert model.sigma2_ == pytest.approx(0.25, abs=0.05)
    naive = fit_mixture(MixtureCumulants.of(rc.Component.of_samples(X[:, :4])), 3, np.random.default_rng(0))
    assert error < 0.2 * match_centres(naive.means + X[:, :4].mean(axis=0), centres)[1]


def test_clean_samples_and_rows_are_assigned(fitted):
    model, X, s1, label, centres, _ = fitted
    names = np.argsort(match_centres(model.means_, centres)[0])  # component of the model -> true component
    clean, seen = model.predict_proba_clean(s1), model.predict_proba(X)
    for chances in (clean, seen):
        assert chances.shape == (len(X), 3)
        np.testing.assert_allclose(chances.sum(axis=1), 1)
    right_clean, right_seen = (np.mean(names[c.argmax(axis=1)] == label) for c in (clean, seen))
    assert right_clean > 0.98
    assert 0.9 < right_seen <= right_clean
    # chances are honest: what is called certain to x% is right in x% of the rows
    assert seen.max(axis=1).mean() == pytest.approx(right_seen, abs=0.03)
    np.testing.assert_array_equal(model.predict_clean(s1), clean.argmax(axis=1))
    np.testing.assert_array_equal(model.predict(X), seen.argmax(axis=1))


def test_means_lie_between_those_of_the_residual_and_those_of_the_component(fitted):
    model, _, _, _, _, _ = fitted
    safe, full, _, gate = model.rca_.fitted_.moment_draws("S1", of_mean=False)
    component, rng = model.component_, np.random.default_rng(0)
    ends = []
    for own, covariance in ((residual_of(component), safe.value), (component, full.value)):
        mixture = fit_mixture(replace(MixtureCumulants.of(own), covariance=covariance), 3, rng)
        means = mixture.means[match_centres(mixture.means, model.means_ - component.mean)[0]]
        ends.append(means - model.weights_ @ means)
    low, change = ends[0], ends[1] - ends[0]
    share = np.sum((model.means_ - component.mean - low) * change) / np.sum(change**2)
    np.testing.assert_allclose(model.means_ - component.mean, low + share * change, atol=1e-5)
    assert 0 < share <= gate
    np.testing.assert_allclose(model.weights_ @ model.means_, component.mean, atol=1e-12)
    assert np.all(np.diff(model.weights_) <= 0)


def test_a_component_is_taken_as_it_is_and_models_pickle(fitted):
    model, X, s1, _, _, _ = fitted
    other = clone(model).fit_component(model.component_)
    exact = fit_mixture(MixtureCumulants.of(model.component_), 3, np.random.default_rng(0))
    np.testing.assert_allclose(other.means_, exact.means + model.component_.mean, atol=1e-6)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[:50]), model.predict(X[:50]))
    np.testing.assert_array_equal(again.predict_clean(s1[:50]), model.predict_clean(s1[:50]))
    with pytest.raises(ValueError, match=r"fit\(X\)"):
        other.predict(X)
    assert "Mixture of 3 spherical Gaussians for S1 (4 dimensions)" in model.summary()


def test_standard_errors(fitted):
    model, _, _, _, centres, weights = fitted
    table = model.confidence_interval()
    assert table.names[0] == "mean 1: x0"
    assert table.names[-4:] == ("weight 1", "weight 2", "weight 3", "sigma2")
    order, _ = match_centres(model.means_, centres)
    to_true = np.argsort(order)
    truth = np.concatenate([centres[to_true].ravel(), weights[to_true]])
    assert np.mean(np.abs(table.value[:-1] - truth) < 3 * table.standard_error[:-1]) > 0.85
    text = model.summary()
    assert "standard errors in parentheses" in text
    assert f"({table.standard_error[0]:.3f})" in text
    known = ComponentGaussianMixture(3, equal_weights=True).fit_component(model.component_).confidence_interval()
    assert len(known.names) == 3 * 4 + 1


def test_standard_errors_are_those_of_fresh_samples():
    centres, rng = np.array([[2.0, 0.0], [-1.0, 1.0]]), np.random.default_rng(0)
    fits = []
    for _ in range(40):
        rows = centres[rng.choice(2, size=2000, p=[0.7, 0.3])] + 0.5 * rng.normal(size=(2000, 2))
        model = ComponentGaussianMixture(2).fit_component(Component.of_samples(rows))
        fits.append(np.concatenate([(model.means_ - model.component_.mean).ravel(), model.weights_]))
    spread = np.std(fits, axis=0)
    np.testing.assert_allclose(model.confidence_interval().standard_error[:-1], spread, rtol=0.6)


def test_no_standard_errors_without_blocks():
    component = exact_component(*some_mixture(3, 3), 0.25)
    model = ComponentGaussianMixture(3).fit_component(component)
    assert "standard errors" not in model.summary()
    with pytest.raises(ValueError, match="blocks of samples behind S1"):
        model.confidence_interval()


def test_a_component_read_from_a_state_without_views():
    """Any recipe will do: here the component is observed directly."""
    rng = np.random.default_rng(0)
    centres = np.array([[3.0, 0.0], [-1.0, 2.0]])
    rows = centres[rng.choice(2, size=5000, p=[0.7, 0.3])] + 0.5 * rng.normal(size=(5000, 2))
    state = Moments.of(rows, 4)
    component = Component(
        "S",
        ("a", "b"),
        state.mean,
        state.covariance(),
        CumulantSource(state),
        Terms(((Term(1.0, (), np.eye(2)),),)),
    )
    model = ComponentGaussianMixture("auto").fit_component(component)
    assert model.n_components_ == 2
    assert match_centres(model.means_, centres)[1] < 0.01


# ---- bad input


def test_more_components_than_dimensions():
    component = exact_component(*some_mixture(3, 3), 0.25)
    with pytest.raises(rc.DataError, match=r"n_components=4, but S1 has 3 dimensions.*n_components <= 3"):
        ComponentGaussianMixture(4).fit_component(component)
    with pytest.raises(rc.DataError, match="at most as many components as dimensions"):
        fit_mixture(MixtureCumulants.of(component), 4, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"n_components": "many"}, "n_components"),
        ({"method": "em"}, "method"),
        ({"n_init": 0}, "n_init"),
    ],
)
def test_bad_parameters(parameters, message):
    component = exact_component(*some_mixture(3, 3), 0.25)
    with pytest.raises(ValueError, match=message):
        ComponentGaussianMixture(**parameters).fit_component(component)


def test_bad_samples(fitted):
    model, X, s1, _, _, _ = fitted
    with pytest.raises(rc.DataError, match="4 columns, got 8"):
        model.predict_clean(X)
    with pytest.raises(rc.DataError, match="missing"):
        model.predict_clean(np.full_like(s1[:3], np.nan))
    with pytest.raises(TypeError, match="fit_component takes a Component"):
        ComponentGaussianMixture(2).fit_component(X)
    with pytest.raises(ValueError, match="component must be one of"):
        ComponentGaussianMixture(2, rca=rc.ContrastiveRCA(views=4), component="S9").fit(X[:200])


def test_files_streams_and_states_are_fitted_as_tables(tmp_path):
    """There are no rows to predict: their second moments say how predictions spread."""
    data = rc.datasets.make_contrastive(2000, d=2, S1="mixture", S2="skewed", random_state=1)
    np.save(tmp_path / "table.npy", data.X)
    learner = ComponentGaussianMixture(2, rca=rc.ContrastiveRCA(views=2), n_init=2)
    table = learner.fit(data.X)
    weights, chances, error = table.weights_, table.predict_proba(data.X), table.confidence_interval().standard_error
    for X in (tmp_path / "table.npy", iter(np.array_split(data.X, 3)), Moments.of(data.X, 4)):
        fit = learner.fit(X)
        np.testing.assert_allclose(fit.weights_, weights, atol=1e-6)
        np.testing.assert_allclose(fit.predict_proba(data.X), chances, atol=1e-5)
        np.testing.assert_allclose(fit.confidence_interval().standard_error, error, rtol=1e-4)
