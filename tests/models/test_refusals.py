"""Learners refuse, or say, what cannot be right: a wrong A, columns that are no spins, outcomes without information."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.components import Component
from richcomponents.datasets import make_contrastive

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


# ---- a known A is tested


def known(data, A, **options):
    return rc.ContrastiveRCA(views=data.U.shape[1], A=A, **options).fit(data.X)


@pytest.mark.parametrize("method", ["efficient", "paper"])
@pytest.mark.parametrize("S2", ["paper", "skewed", "labs(3)"])
def test_an_a_that_explains_nothing_is_refused(method, S2):
    data = make_contrastive(1000, 5, S2=S2, A="good", random_state=0)
    options = {"method": method} | ({"rank": 2} if S2 == "labs(3)" else {})
    assert known(data, data.A, **options).diagnostics_.known_mixing.p_value > 0.01
    for wrong in (-data.A, 1e10 * data.A):
        with pytest.raises(rc.DataError, match=r"known A contradicts the data.*sign.*units"):
            known(data, wrong, **options)


@pytest.mark.parametrize("seed", [15236, 15319, 15375])
def test_the_true_a_is_kept_where_chance_decides_what_is_shared(seed):
    """S2 is a tenth of S1, and the one direction that seems shared is chance: it says nothing against A."""
    data = make_contrastive(1000, 10, S2="paper", A="good", scale_S2=0.1, random_state=seed)
    model = known(data, data.A)
    assert model.rank_ == 1
    assert model.diagnostics_.known_mixing.p_value > 0.001
    assert model.verdict_ != "contradicted"


@pytest.mark.parametrize("S2", ["skewed", "labs(2)"])
def test_an_a_that_is_partly_wrong_is_said(S2):
    data = make_contrastive(1000, 5, S2=S2, A="good", random_state=1)
    wrong = data.A * np.array([1.0, 1.0, 1.0, 1.0, -1.0])
    with pytest.warns(rc.SpecificationWarning, match="known A does not fit"):
        model = known(data, wrong)
    assert model.diagnostics_.known_mixing.p_value < 1e-3
    assert "known A does not fit" in model.summary()
    assert known(data, None).diagnostics_.known_mixing is None


@pytest.mark.parametrize(
    ("d", "d_v", "S2", "A", "scale_S3"),
    [
        (4, 4, "heavy", "good", 1.0),
        (6, 6, "labs(3)", "unif", 0.1),
        (3, 7, "skewed", "good", 1.0),
        (6, 3, "labs(2)", "unif", 1),
    ],
)
@pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning")
def test_the_right_a_is_rarely_doubted(d, d_v, S2, A, scale_S3):
    """Low rank, tails, views of different widths: about 5% at the 5% level (a nearly noiseless V: 10 to 20%), none at 1e-4."""
    p_values = []
    for seed in range(40):
        data = make_contrastive(400, d, d_v=d_v, S2=S2, A=A, scale_S3=scale_S3, random_state=seed)
        rank = int(S2[5]) - 1 if S2.startswith("labs") else min(d, d_v)
        p_values.append(known(data, data.A, rank=rank).diagnostics_.known_mixing.p_value)
    few = (
        0.2 if scale_S3 < 1 else 0.15
    )  # binomial: 40 draws at 5% exceed 6 once in 70 times; a noiseless V is doubted more
    assert np.mean(np.array(p_values) < 0.05) <= few
    assert min(p_values) > 1e-4


def test_missing_values_in_what_is_known():
    data = make_contrastive(200, 3, random_state=0)
    A = data.A.copy()
    A[0, 0] = np.nan
    with pytest.raises(rc.DataError, match="known A holds missing"):
        known(data, A)
    with pytest.raises(rc.DataError, match="known mean of S1 holds missing"):
        known(data, None, mean={"S1": [0.0, np.nan, 0.0]})


# ---- spins


def spins(scale=1.0, n=2000, shift=0.0):
    data = make_contrastive(n, 9, S1="ising", S2="skewed", A="good", random_state=0)
    return np.hstack([scale * data.U + shift, data.V]), data


@pytest.mark.parametrize("scale", [10.0, 0.1, 2.0])
def test_columns_in_other_units_are_no_spins(scale):
    X, data = spins(scale)
    learner = rc.ComponentIsing(edges=data.edges, rca=rc.ContrastiveRCA(views=9))
    with pytest.raises(rc.DataError, match=r"does not consist of spins.*x0 .*units of spins"):
        learner.fit(X)
    component = rc.ContrastiveRCA(views=9).fit(X).components_["S1"]
    with pytest.raises(rc.DataError, match="does not consist of spins"):
        rc.ComponentIsing(edges=data.edges).fit_component(component)


def test_spins_pass_and_doubtful_ones_are_said():
    X, data = spins()
    learner = rc.ComponentIsing(edges=data.edges, rca=rc.ContrastiveRCA(views=9))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SpecificationWarning)
        learner.fit(X)
        learner.fit(spins(shift=5.0)[0])  # a mean that the rule takes for S1's, and fields=False does not use
    with pytest.warns(rc.SpecificationWarning, match="may not consist of spins"):
        learner.fit(spins(1.3)[0])
    rc.baselines.naive(learner, X)  # samples that stand in for spins need not be spins


# ---- outcomes


@pytest.fixture(scope="module")
def table():
    data = make_contrastive(1000, 3, S2="skewed", A="good", random_state=0)
    return data.X, data.y


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.full_like(y, 7.0), "y is constant"),
        (lambda y: np.full_like(y, 0.1), "y is constant"),
        (lambda y: y * 1e200, "range of floating point"),
        (lambda y: y * 1e-200, "range of floating point"),
        (lambda y: np.where(np.arange(len(y)) == 3, np.nan, y), "missing or infinite"),
        (lambda y: np.where(np.arange(len(y)) == 3, np.inf, y), "missing or infinite"),
    ],
)
def test_outcomes_that_say_nothing(table, change, message):
    X, y = table
    model = rc.ContrastiveRCA(views=3).fit(X)
    doors = [
        lambda bad: rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3)).fit(X, bad),
        lambda bad: rc.ComponentRegression(alpha=0.1, rca=rc.ContrastiveRCA(views=3)).fit(X, bad),
        lambda bad: model.calibrate(X, bad),
        lambda bad: model.outcome_test(X, bad),
        lambda bad: rc.RCA(views={"a": [0, 1, 2], "b": [3, 4, 5]}).fit(X).outcome_test(X, bad, ("a",)),
    ]
    for door in doors:
        with pytest.raises(rc.DataError, match=message):
            door(change(y))


def test_an_outcome_among_its_covariates(table):
    X, y = table
    for outcome, learner in ((y, rc.ComponentRegression), ((y > 0).astype(float), rc.ComponentLogisticRegression)):
        both = np.column_stack([X, outcome])
        rca = rc.ContrastiveRCA(views={"U": [0, 1, 2], "V": [3, 4, 5]}, covariates=[6])
        with pytest.raises(rc.DataError, match=r"exact function of the covariates \(x6\).*Is y one of them"):
            learner(rca=rca).fit(both, outcome)


def test_one_case_in_a_thousand_is_counted(table):
    X, y = table
    rare = np.where(np.arange(len(y)) == 17, "ill", "well")
    learner = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=3))
    with pytest.warns(rc.SampleSizeWarning, match="only 1 of 1000 rows are of the class ill"):
        learner.fit(X, rare)
    with pytest.warns(rc.SampleSizeWarning, match="only 1 of 1000"):
        rc.ComponentLogisticRegression().fit_clean(X[:, :3], rare)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SampleSizeWarning)
        learner.fit(X, y > 0)


# ---- options


@pytest.mark.parametrize("alpha", [np.inf, -np.inf, np.nan, -1.0])
def test_a_penalty_is_finite(table, alpha):
    X, y = table
    rca = rc.ContrastiveRCA(views=3)
    for learner in (rc.ComponentRegression(alpha=alpha, rca=rca), rc.ComponentLogisticRegression(alpha=alpha, rca=rca)):
        with pytest.raises(ValueError, match="alpha must be"):
            learner.fit(X, y > 0)
    with pytest.raises(ValueError, match="alpha must be"):
        rc.ComponentIsing(alpha=alpha, rca=rca).fit(X)


def shift(m):
    """log-likelihood -|theta - m|^2 / 2: it does not depend on s."""
    return lambda theta, s: np.full(len(s), -float(np.sum((theta - np.asarray(m)) ** 2)) / 2)


def test_steps_and_known_parts_of_a_gradient():
    component = Component.of_samples(np.random.default_rng(0).normal(size=(100, 2)))
    assert np.allclose(rc.fit_likelihood(component, shift([1.0, 2.0])).theta, [1, 2], atol=1e-4)
    with pytest.raises(ValueError, match="ridge must be a finite number"):
        rc.fit_likelihood(component, shift([1.0, 2.0]), ridge=np.inf)
    with pytest.raises(FloatingPointError, match="log_likelihood is not finite"):
        rc.fit_likelihood(component, shift([1.0, np.nan]))


def test_missing_values_among_moments_and_covariates(table):
    component = Component.of_samples(table[0][:, :3])
    for cross, mean in (([0.0, np.nan, 0.0], 0.0), ([0.0, 1.0, 0.0], np.inf)):
        with pytest.raises(rc.DataError, match="must be finite"):
            rc.ComponentRegression().fit_component(component, cross, mean=mean)
    with pytest.raises(rc.DataError, match="covariates hold missing"):
        rc.ComponentLogisticRegression().fit_clean(table[0][:, :3], table[1] > 0, covariates=np.full((1000, 1), np.nan))


def test_a_missing_covariate_is_refused_after_the_fit_too(rng):
    X = rng.normal(size=(300, 7))
    model = rc.ContrastiveRCA(views={"U": [0, 1, 2], "V": [3, 4, 5]}, covariates=[6]).fit(X)
    X[5, 6] = np.nan
    for asks in (model.transform, lambda Z: model.calibrate(Z, Z[:, 0])):
        with pytest.raises(rc.DataError, match="the covariate 'x6' holds missing"):
            asks(X)


def test_a_fit_keeps_its_own_copy_of_what_it_was_told():
    data = rc.datasets.make_contrastive(800, d=3, S2="skewed", A="good", random_state=1)
    A, mean = data.A.copy(), np.ones(3)
    model = rc.ContrastiveRCA(views=3, A=A, mean={"S2": mean}).fit(data.X)
    before = model.A_.copy()
    A *= -1
    mean += 1
    np.testing.assert_array_equal(model.A_, before)
    np.testing.assert_array_equal(model.components_["S2"].mean, np.ones(3))


def test_v_as_covariates_needs_more_rows_than_columns(rng):
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=8))
    with pytest.raises(rc.DataError, match="50 samples are too few for a regression on 60 columns"):
        rc.baselines.covariates(learner, rng.normal(size=(50, 68)), rng.normal(size=50))


@pytest.mark.parametrize(("n", "d"), [(300, 60), (100, 120)])
def test_log_odds_on_many_columns_come_with_a_warning(rng, n, d):
    X, label = rng.normal(size=(n, d + 5)), rng.integers(0, 2, size=n)
    with pytest.warns(rc.SampleSizeWarning, match="rows of the rarer class for"):
        fit = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=d)).fit(X, label)
    assert (fit.coefficients_ is None) == (n <= d)


# ---- raw counts


def counts(rng, n=3000):
    """Genes and proteins as a sequencer counts them: depths multiply, a few values are large."""
    depth, shared = np.exp(rng.normal(size=(n, 1))), rng.exponential(size=(n, 1))
    return rng.poisson(depth * np.exp(rng.normal(size=6)) * (1 + shared)).astype(float)


def test_raw_counts_get_a_word_of_advice(rng, tmp_path):
    X = counts(rng)
    np.save(tmp_path / "counts.npy", X)
    for door in (X, tmp_path / "counts.npy"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            rc.ContrastiveRCA(views={"rna": [0, 1, 2], "protein": [3, 4, 5]}).fit(door)
        said = [str(one.message) for one in told if one.category is rc.CountsWarning]
        assert len(said) == 1
        assert "'rna' (up to" in said[0]
        assert "'protein' (up to" in said[0]
        assert "log1p" in said[0]


@pytest.mark.parametrize(
    "change",
    [np.log1p, lambda x: x / 2, lambda x: x - 1, lambda x: np.minimum(x, 9), lambda x: 100 + np.minimum(x, 80)],
)
def test_what_is_no_raw_count_gets_none(rng, change):
    """Logarithms, halves, negative numbers, scores from 0 to 9, pressures."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.CountsWarning)
        rc.ContrastiveRCA(views=3).fit(change(counts(rng)))
