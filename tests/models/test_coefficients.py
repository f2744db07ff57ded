"""How sure coefficients are: the identified set, and errors of what is reported."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.contrastive.calibration import MAX_T
from richcomponents.contrastive.coefficients import OnResidual, identified_estimate
from richcomponents.contrastive.pair import Pair
from richcomponents.cumulants.estimate import Estimate
from richcomponents.datasets import make_contrastive
from richcomponents.learning.families import Logistic
from richcomponents.learning.predicted import MOST_ADDED


def on_residual(d=4, r=3, seed=0, variance=4.0, log_odds=False):
    """Least squares with r shared directions of any two views."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(2, d, d))
    D = np.sort(rng.uniform(0.3, 0.9, r))[::-1]
    pair = Pair(
        outer=u, inner=np.eye(d), outer_v=v, inner_v=np.eye(d), from_x=u[:, :r], to_x=np.linalg.inv(u)[:r],
        from_y=v[:, :r], to_y=np.linalg.inv(v)[:r], cross=np.diag(D), from_full=np.eye(2 * r), h=np.diag(np.sqrt(1 - D**2)),
    )  # fmt: skip
    b = np.linalg.inv(u).T @ rng.normal(size=d)
    fit = OnResidual.of(pair, b, np.zeros(r), np.asarray(variance))
    return replace(fit, left=np.asarray(np.inf), attenuation=Logistic().attenuation) if log_odds else fit


def admissible(fit, rng, m):
    """T (k, r, r) that second moments and the two bounds allow, many of them at their limits."""
    r = len(fit.hb)
    turn = np.linalg.qr(rng.normal(size=(m, r, r)))[0]
    values = np.where(rng.uniform(size=(m, r)) < 0.4, rng.choice([0.0, MAX_T], (m, r)), rng.uniform(0, MAX_T, (m, r)))
    T = (turn * values[:, None]) @ turn.swapaxes(1, 2)
    P = np.linalg.inv(np.eye(r) - T) - np.eye(r)
    return T[np.einsum("i,mij,j->m", fit.hb, P, fit.hb) <= fit.left]


@pytest.mark.parametrize("variance", [200.0, 12.0])
def test_the_set_holds_every_admissible_coefficient_and_no_more(variance):
    fit = on_residual(variance=variance)
    low, high = fit.ends()
    found = fit.corrected(admissible(fit, np.random.default_rng(1), 40_000), 0.0)
    slack = 1e-9 * np.abs(found).max()
    assert (found >= low - slack).all()
    assert (found <= high + slack).all()
    # both ends are reached: P = k z z' / |z|^2 for z in the plane of l and m, and P m is what counts
    for row, m in zip(fit.into, [fit.hb] * 4, strict=True):
        for sign, end in ((-1, low), (1, high)):
            angles = np.linspace(0, np.pi, 20_001)
            e = m / np.linalg.norm(m)
            f = row - (row @ e) * e
            z = np.cos(angles)[:, None] * e + np.sin(angles)[:, None] * f / np.linalg.norm(f)
            inside = MOST_ADDED * (z @ m) ** 2 <= fit.left * (1 + 1e-12)
            best = np.max(sign * MOST_ADDED * (z @ row)[inside] * (z @ m)[inside])
            i = int(np.flatnonzero((fit.into == row).all(axis=1))[0])
            assert sign * (end[i] - fit.b[i]) == pytest.approx(best, rel=2e-3)


def test_the_outcome_bounds_the_set():
    wide, narrow, none = (on_residual(variance=v).ends() for v in (500.0, 20.0, 0.0))
    assert (narrow[0] >= wide[0]).all()
    assert (narrow[1] <= wide[1]).all()
    np.testing.assert_allclose(none[0], none[1])  # nothing is left of y: S1 explains it all already


def test_the_set_of_log_odds_holds_every_admissible_coefficient():
    fit = on_residual(log_odds=True)
    low, high = fit.ends()
    found = fit.corrected(admissible(fit, np.random.default_rng(2), 20_000), 0.0)
    slack = 2e-3 * (high - low)  # the extremes are looked for on a grid
    assert (found >= low - slack).all()
    assert (found <= high + slack).all()


def test_p_values_of_a_set_agree_with_its_limits():
    low, high = np.array([1.0, -0.2, -3.0, 0.3, 0.5]), np.array([1.1, 4.0, -0.5, 0.3, 9.0])
    error = np.array([0.5, 0.1, 0.2, 0.15, 0.2])
    found = Estimate(high, np.full(5, np.nan), 19, identified=(low, high), identified_error=(error, error))
    p = found.p_value
    assert p[1] == 1.0
    for level in (0.8, 0.9, 0.95, 0.99):
        a, b = found.interval(level)
        assert ((p < 1 - level) == ((a > 0) | (b < 0))).all()


def fitted(S2, n, seed, errors="auto", **options):
    data = make_contrastive(n, S2=S2, random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return data, rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10, errors=errors)).fit(data.X, data.y)


def test_fits_that_are_not_identified_tell_the_set():
    covered = []
    for seed in range(4):
        data, model = fitted("gaussian", 2000, seed, "free")
        found = model.coefficients_
        assert model.rca_.verdict_ == "not identified"
        assert np.isnan(found.standard_error).all()
        assert np.isfinite(found.p_value).all()
        low, high = found.identified
        assert (low <= model.coef_ + 1e-12).all()
        assert (model.coef_ <= high + 1e-12).all()
        covered.append((found.low <= data.beta) & (data.beta <= found.high))
    assert np.mean(covered) > 0.95


@pytest.mark.parametrize(("S2", "n", "seed"), [("skewed", 400, 0), ("labs(3)", 600, 1), ("paper", 3000, 2)])
def test_limits_stay_within_what_the_set_allows(S2, n, seed):
    data, model = fitted(S2, n, seed)
    found, rca = model.coefficients_, model.rca_
    outcome = rca.outcome(data.X, data.y)
    solution = rca.solution_
    limits = identified_estimate(
        model.coef_, solution.on_residual(outcome), solution.on_residual_without_blocks(outcome)
    )
    reach = np.maximum(limits.high - model.coef_, model.coef_ - limits.low)
    assert (found.high - model.coef_ <= reach * (1 + 1e-9)).all()
    assert (model.coef_ - found.low <= reach * (1 + 1e-9)).all()
