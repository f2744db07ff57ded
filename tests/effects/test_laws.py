"""The laws of an answer: what is reported together belongs together, and what does not matter changes nothing."""

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.effects.estimate import ancova, effects_on, widened, without_each
from richcomponents.effects.moments import Given
from richcomponents.inference.verdicts import verdict
from richcomponents.pair.views import Pair, canonical

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fitted(X, y, d_u, **options):
    views = {"u": list(range(d_u)), "v": list(range(d_u, X.shape[1]))}
    return rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views), **options).fit(X, y)


def unrelated(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(200, 9)), rng.normal(size=200)


def confounded(seed, n, **options):
    data = rc.datasets.make_confounded(n, random_state=seed, **options)
    return data.X, data.y


CASES = {
    "labs": (*confounded(1, 400), 6),
    "gaussian": (*confounded(2, 150, confounder="gaussian"), 6),
    "few controls": (*confounded(3, 300, d_u=5, d_v=3), 5),
    "an invalid control": (*confounded(4, 500, invalid={2: 0.8}), 6),
    "nothing shared": (*unrelated(5), 5),
    "few rows": (*confounded(6, 60), 6),
}


@pytest.fixture(scope="module", params=CASES)
def model(request):
    return fitted(*CASES[request.param])


def population(seed: int, d_u: int = 5, d_v: int = 4, r: int = 2):
    """Exact second moments of U = alpha e + S1 + S2, V = A S2 + S3, S2 = Gamma e + S2'."""
    rng = np.random.default_rng(seed)
    load, A = rng.normal(size=(d_u, r)), rng.normal(size=(d_v, d_u))
    s2 = load @ load.T
    s1, s3 = (root @ root.T + 0.3 * np.eye(len(root)) for root in (rng.normal(size=(d, d)) for d in (d_u, d_v)))
    alpha, gamma = rng.normal(size=(d_u, 1)), load @ rng.normal(size=(r, 1))
    cov = np.block([[s1 + s2, s2 @ A.T], [A @ s2, A @ s2 @ A.T + s3]])
    slopes = np.vstack([alpha + gamma, A @ gamma])
    given = Given(slopes, cov[:, d_u:], np.diag(cov), cov, slopes, np.zeros((1, 1)))
    found = canonical(cov[:d_u, :d_u], cov[:d_u, d_u:], cov[d_u:, d_u:], 1e18)
    x, d = found.x_from_u[:r], found.correlations[:r]
    h = np.sqrt(1 - d**2)
    T = (x @ s2 @ x.T - np.diag(d**2)) / np.outer(h, h)
    return given, Pair.whole(found, 20, r), T, alpha, np.diag(s3)


# ---- the formulas


@pytest.mark.parametrize("seed", range(4))
def test_the_formula_is_exact_at_the_true_t_and_ancova_at_zero(seed):
    given, pair, T, alpha, _ = population(seed)
    line = effects_on(given, pair, slice(5), ancova(given, slice(5)))
    np.testing.assert_allclose(line.at(T)[:5], alpha, atol=1e-7)
    np.testing.assert_allclose(
        line.at(0 * T)[:5], given.slopes[:5] - given.with_v[:5] @ np.linalg.solve(given.cov_v, given.on_v)
    )
    assert np.abs(line.base[:5] - alpha).max() > 1e-2  # the bias that no sample size removes


@pytest.mark.parametrize("seed", range(3))
def test_the_set_holds_every_admissible_effect_and_no_more(seed):
    given, pair, _, alpha, _ = population(seed)
    line = effects_on(given, pair, slice(5), ancova(given, slice(5)))
    low, high = (end[:5] for end in line.set())
    assert np.all((low <= alpha + 1e-8) & (alpha <= high + 1e-8))
    angles = np.linspace(0, np.pi, 2000)
    lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    reached = line.at(lines[:, :, None] * lines[:, None, :])[:, :5]  # projectors on lines
    np.testing.assert_allclose(reached.min(0), low, atol=1e-5)
    np.testing.assert_allclose(reached.max(0), high, atol=1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_a_control_that_is_held_out_is_as_if_it_were_a_test(own):
    """By rank-one downdates and directly; exact where own parts of the controls do not correlate."""
    rng = np.random.default_rng(1)
    load, errors = rng.normal(size=(11, 2)), rng.uniform(0.5, 2, 11)
    cov = load @ load.T + np.diag(errors)
    cov[5:, 5:] += 0.3 * own
    slopes = load @ rng.normal(size=(2, 1))
    given = Given(slopes, cov[:, 5:], np.diag(cov), cov, slopes, np.zeros((1, 1)))
    found = canonical(cov[:5, :5], cov[:5, 5:], cov[5:, 5:], 1e18)
    pair = Pair.whole(found, 20, 2)
    x = found.x_from_u[:2] @ load[:5]
    h = np.sqrt(1 - found.correlations[:2] ** 2)
    T = (x @ x.T - np.diag(found.correlations[:2] ** 2)) / np.outer(h, h)
    gone = without_each(given, np.eye(6))
    alone = ancova(given, slice(5, None), gone)
    seen = effects_on(given, pair, slice(5, None), alone, gone).at(T)[:, 0]
    for j in range(6):
        rest = np.delete(np.arange(5, 11), j)
        base = slopes[5 + j] - cov[5 + j, rest] @ np.linalg.solve(cov[np.ix_(rest, rest)], slopes[rest])
        np.testing.assert_allclose(alone[j], base, atol=1e-9)
    if not own:
        np.testing.assert_allclose(seen, 0, atol=1e-7)


# ---- an answer keeps its word


def test_the_estimate_lies_in_its_set_and_the_curve_is_the_set(model):
    found, (answer,) = model.effects_, model.answers()
    low, high = found.identified
    assert np.all((low - 1e-10 <= found.value) & (found.value <= high + 1e-10))
    at, lower, upper, here = answer.path
    assert (at[0], at[-1]) == (0, 1)
    np.testing.assert_allclose([lower[-1], upper[-1]], [low, high])
    np.testing.assert_allclose([lower[0], upper[0]], [model.adjusted_ if model.rank_ else model.naive_] * 2)
    inside = [np.interp(here, at, ends) for ends in (*lower.T, *upper.T)] if model.rank_ else []
    for value, least, most in zip(
        found.value, inside[: len(found.value)], inside[len(found.value) :], strict=bool(inside)
    ):
        assert least - 1e-9 <= value <= most + 1e-9


def test_interval_error_and_p_belong_together(model):
    found = model.effects_
    np.testing.assert_array_equal((found.low > 0) | (found.high < 0), found.p_value < 0.05)
    np.testing.assert_allclose(found.z, found.value / found.standard_error)
    assert np.all((found.low <= found.value) & (found.value <= found.high))
    assert np.all(found.q_value >= found.p_value - 1e-15)


def test_the_table_of_ranks_holds_the_estimate_and_refits(model):
    if not model.rank_:
        assert list(model.rank_effects_) == [0]
    np.testing.assert_array_equal(model.rank_effects_[model.rank_], model.coef_)
    for rank, values in model.rank_effects_.items():
        if rank != model.rank_ and model.rho_[0] > 0.1:
            assert np.abs(values - model.coef_).max() > 0


def test_the_verdict_is_the_worst_of_all_tests_everywhere(model):
    (answer,) = model.answers()
    word = verdict(model.tests_)
    assert model.verdict_ == model.verdicts_["y"] == answer.verdict == word == model.summary().verdict
    assert [test.finding for test in model.tests_].count(word)
    text = str(model.summary())
    assert f"y: {word}." in text
    assert ("no test contradicts" in text) == (word == "strong")
    named = {test.name for test in model.tests_}
    assert {"shared", "controls agree"} <= named
    if model.rank_:
        assert {"identified", "correction", "held-out controls"} <= named
    if len(model.rca_.views_[1]) < 4:
        assert word not in ("strong", "weak")


def test_discoveries_are_those_below_the_false_discovery_rate(model):
    (answer,) = model.answers()
    np.testing.assert_array_equal(answer.found, model.effects_.q_value < 0.1)
    count = int(np.sum(model.effects_.q_value < 0.1))
    assert (f"changes {count} of" in answer.finding()) == (count > 0)


# ---- what does not matter


@pytest.fixture(scope="module")
def plain():
    X, y = confounded(7, 300)
    return X, y, fitted(X, y, 6)


def same(one, other, rtol=1e-5):
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(one.effects_.standard_error, other.effects_.standard_error, rtol=rtol)
    np.testing.assert_allclose(one.rho_, other.rho_, rtol=rtol)
    assert one.verdict_ == other.verdict_


def test_the_order_of_controls_and_of_tests(plain):
    X, y, model = plain
    rng = np.random.default_rng(0)
    same(fitted(X[:, [*range(6), *(6 + rng.permutation(6))]], y, 6), model)
    order = rng.permutation(6)
    turned = fitted(X[:, [*order, *range(6, 12)]], y, 6)
    np.testing.assert_allclose(turned.coef_, model.coef_[order], rtol=1e-5)


def test_a_copy_of_a_control(plain):
    X, y, model = plain
    other = fitted(np.hstack([X, -3 * X[:, 8:9] + 1]), y, 6)
    same(other, model)
    seen = other.control_effects_
    np.testing.assert_allclose(seen.value[-1], -3 * seen.value[2])
    np.testing.assert_allclose(seen.standard_error[-1], 3 * seen.standard_error[2])
    np.testing.assert_allclose([one.p_value for one in other.tests_], [one.p_value for one in model.tests_], rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units(plain, unit):
    X, y, model = plain
    scale = unit ** np.random.default_rng(1).integers(-1, 2, 12)
    other = fitted(X * scale, y / unit, 6)
    np.testing.assert_allclose(other.coef_, model.coef_ * scale[:6] * unit, rtol=1e-4)
    np.testing.assert_allclose(other.effects_.p_value, model.effects_.p_value, rtol=1e-3)
    assert other.verdict_ == model.verdict_
    sizes = [[test.statistic for test in one.tests_] for one in (other, model)]
    np.testing.assert_allclose(*sizes, rtol=1e-3)


def test_seeds(plain):
    X, y, model = plain
    views = {"u": list(range(6)), "v": list(range(6, 12))}
    same(rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views, random_state=5)).fit(X, y), model, rtol=1e-9)


# ---- the parameters of the mechanism


def test_share_goes_from_the_controls_as_covariates_to_the_full_correction(plain):
    X, y, _ = plain
    none, half, all_ = (fitted(X, y, 6, share=share) for share in (0, 0.5, 1.0))
    np.testing.assert_allclose(none.coef_, none.adjusted_)
    np.testing.assert_allclose(2 * half.coef_, none.coef_ + all_.coef_, rtol=1e-9)
    assert "correction" in {test.name for test in none.tests_ if test.finding == "weak"}
    with pytest.raises(ValueError, match="share must be 'auto' or a number from 0 to 1"):
        fitted(X, y, 6, share=2)


def instrumented(seed, n=1000, rank=1):
    rng = np.random.default_rng(seed)
    f, alpha = rng.normal(size=(n, rank)), 0.2 * rng.normal(size=4)
    y = f[:, 0] + rng.normal(size=n)
    own = [rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) / 2 for _ in range(2)]
    U = np.outer(y, alpha) + f @ rng.normal(size=(rank, 4)) + own[0]
    V = f @ rng.normal(size=(rank, 4)) + own[1]
    return np.hstack([U, V, f @ rng.normal(size=(rank, 3)) + rng.normal(size=(n, 3))]), y, alpha


def test_instruments_tell_how_noisy_the_controls_are():
    views = {"u": [0, 1, 2, 3], "v": [4, 5, 6, 7]}
    ratios = []
    for seed in range(4):
        X, y, alpha = instrumented(seed)
        found = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views), instruments=[8, 9, 10]).fit(X, y)
        assert found.coef_.shape == (4,)
        assert {"instruments", "over-identification"} <= {test.name for test in found.tests_}
        ratios.append(np.mean((found.coef_ - alpha) ** 2) / np.mean((found.adjusted_ - alpha) ** 2))
    assert np.median(ratios) < 0.8


def test_one_instrument_for_each_control_is_two_stage_least_squares():
    rng = np.random.default_rng(0)
    n = 4000
    f = rng.normal(size=(n, 2))
    y = f @ [1.0, 0.5] + rng.normal(size=n)
    U = (0.5 * y + f @ [1.0, 1.0] + rng.normal(size=n))[:, None]
    V = f @ rng.normal(size=(2, 2)) + rng.normal(size=(n, 2))
    Z = f @ rng.normal(size=(2, 2)) + rng.normal(size=(n, 2))
    model = rc.ExposureEffects(
        rca=rc.ContrastiveRCA(views={"u": [0], "v": [1, 2]}, rank=2), instruments=[3, 4], share=1
    ).fit(np.hstack([U, V, Z]), y)
    assert model.coef_.shape == (1,)
    one = np.ones((n, 1))
    first = np.hstack([one, y[:, None], Z])
    fitted_v = first @ np.linalg.lstsq(first, V, rcond=None)[0]
    two_stage = np.linalg.lstsq(np.hstack([one, y[:, None], fitted_v]), U, rcond=None)[0][1]
    np.testing.assert_allclose(model.coef_, two_stage, rtol=0.01)


def test_instruments_that_contradict_each_other_ask_for_one_more_direction():
    """The second control hardly shows the second direction, so that the rank test misses it; both instruments show it."""
    rng = np.random.default_rng(0)
    n = 2000
    f = rng.normal(size=(n, 2))
    y = f @ [0.3, 1.0] + rng.normal(size=n)
    U = (0.3 * y + f @ [1.0, 1.5] + 0.5 * rng.normal(size=n))[:, None]
    V = f @ np.array([[1.0, 1.0], [0.3, 0.15]]) + rng.normal(size=(n, 2))
    Z = f @ np.array([[1.0, 0.4], [0.2, -1.0]]) + 0.5 * rng.normal(size=(n, 2))
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views={"u": [0], "v": [1, 2]}), instruments=[3, 4])
    found = model.fit(np.hstack([U, V, Z]), y)
    assert found.rca_.rank_ == 1
    assert found.rank_ == 2
    assert abs(found.coef_[0] - 0.3) < 0.8 * abs(found.adjusted_[0] - 0.3)
    assert any("direction 2 is weakly instrumented" in test.says for test in found.tests_)


def test_held_out_controls_that_refuse_a_correction_take_its_doubt_from_the_errors():
    """Controls that hardly show what is hidden, and change with the exposure by themselves: the full correction is absurd."""
    rng = np.random.default_rng(0)
    n = 3000
    y, hidden, common = rng.normal(size=(3, n))
    V = 0.06 * hidden[:, None] + np.outer(common, [1.0, 0.8, 0.6, -0.7]) + rng.normal(size=(n, 4))
    X = np.column_stack([hidden - 0.1 * y, V + np.outer(y, [0.4, 0.3, -0.2, 0.3])])
    found = rc.ExposureEffects(rca=rc.ContrastiveRCA(views={"u": [0], "v": [1, 2, 3, 4]})).fit(X, y)
    low, high = found.effects_.identified
    assert found.rank_ == 1
    assert found.rho_[0] < 0.1
    assert high - low > 2
    assert found.effects_.high[0] - found.effects_.low[0] < 2
    assert found.effects_.low[0] < -0.1 < found.effects_.high[0]


def test_instruments_are_columns_of_no_other_role():
    X, y, _ = instrumented(0)
    views = {"u": [0, 1, 2, 3], "v": [4, 5, 6, 7]}
    for wanted, message in (([4], "an instrument and also in a view"), ([99], "the instrument 99 is not a column")):
        with pytest.raises(rc.DataError, match=message):
            rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views), instruments=wanted).fit(X, y)


def test_a_masked_exposure_is_refused():
    data = rc.datasets.make_confounded(200, random_state=5)
    exposure = np.ma.masked_array(data.y, np.arange(200) < 20)
    with pytest.raises(rc.DataError, match=r"20 hidden \(masked\) values"):
        rc.ExposureEffects(rca=rc.ContrastiveRCA(views=data.U.shape[1])).fit(data.X, exposure)


def test_errors_without_held_out_controls_allow_for_a_bias():
    error = np.array([0.1, 0.2, 0.0])
    wide, degrees = widened(error, 19.0, None)
    assert (wide[:2] > error[:2]).all()
    assert (degrees[:2] < 19).all()
    np.testing.assert_allclose(widened(3 * error, 19.0, None), (3 * wide, degrees), rtol=1e-12)
    X, y = confounded(4, 400, d_v=2)
    few = fitted(X, y, 6)
    assert few.control_effects_ is None
    assert (few.effects_.degrees < 19).all()


def test_equations_that_hold_nowhere_do_not_tell_the_noise_of_controls():
    """Own parts of columns depend on each other. The equations of independent errors have no T to which they come back: taken
    over their dispersion alone they put T at its upper end, "strong", and effects were 50 times as wrong as adjusted ones."""
    data = rc.datasets.make_confounded(1000, confounder="skewed", null_fraction=0.5, random_state=6660011)
    rng = np.random.default_rng(6660011 + 10**9)
    S1, S3 = (s @ rng.normal(size=(6, 6)) / np.sqrt(6) for s in (data.S1, data.S3))
    U, V = np.outer(data.y, data.effects) + S1 + data.S2, data.S2 @ data.A.T + S3
    model = fitted(np.hstack([U, V]), data.y, 6)
    error, adjusted = (np.mean((one - data.effects) ** 2) for one in (model.coef_, model.adjusted_))
    assert error < 2 * adjusted
