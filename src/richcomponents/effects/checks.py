"""The tests that effects rest on, each with a sentence: the worst of their findings is the verdict (inference/verdicts.py)."""

from __future__ import annotations

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import whitening
from richcomponents.effects.estimate import FEWEST_CONTROLS, Estimated, Problem
from richcomponents.inference.posterior import Prior, best, logistic, symmetric_of
from richcomponents.inference.verdicts import RULES, Test
from richcomponents.pair.canonical import MAX_CORRELATION, Canonical, canonical, leftover_statistic, remaining_p_value
from richcomponents.pair.views import PairFit
from richcomponents.text import counted, listed, p_value

MOST_LEFT_OUT = 200
"""Controls, up to which each is left out in turn to find one that the exposure changes."""


def checks(
    problem: Problem,
    found: Estimated,
    fit: PairFit,
    views: Canonical,
    agree: Test,
    i: int,
    names: tuple[str, ...],
    structure: Test | None,
) -> tuple[Test, ...]:
    """Of exposure i. views : canonical coordinates of the sample; agree : whether the controls agree; names : of the
    controls; structure : the test of the model of two views, where one was made."""
    p = remaining_p_value(views, 0) if found.rank else 1.0
    what = counted(range(found.rank), "direction") if found.rank else "nothing"
    says = f"given the exposure, tests and controls share {what}"
    shared = Test("shared", leftover_statistic(views, 0)[0], (), p, says)
    if not found.rank:
        return shared, agree, *([] if problem.instruments else [_held_out(found, i, names)])
    share, beyond = float(found.share[i]), "Compare the estimate with the adjusted one: the truth may lie beyond."
    correction = Test("correction", share, (), share, f"{share:.0%} of the correction was made", beyond)
    seen = _instruments(problem, fit) if problem.instruments else (_held_out(found, i, names),)
    return shared, _identified(found), correction, agree, *seen, *([] if structure is None else [structure])


def _identified(found: Estimated) -> Test:
    z = found.strength
    says = f"how noisy the controls are differs by {z:.1f} standard errors from no noise at all"
    if z < 3:
        says = "the data hardly tell how noisy the controls are"
    remedy = "More samples help where what is hidden is skewed or comes in groups, such as labs; less noisy controls always do."
    return Test("identified", z, (), float(stats.norm.sf(z)), says, remedy)


def _held_out(found: Estimated, i: int, names: tuple[str, ...]) -> Test:
    """The smallest p of all held-out controls, times their number (Bonferroni)."""
    value, error = found.controls[:, i], found.controls_error[:, i]
    known = np.isfinite(value) & (error > 0)
    if not known.any():
        says = f"no control could be held out to check the correction: that takes at least {FEWEST_CONTROLS}"
        return Test("held-out controls", np.nan, (), np.nan, says, "Add controls.")
    z = np.abs(value[known] / error[known])
    p = 2 * stats.t.sf(z, found.blocks - 1)
    count, worst = int(known.sum()), int(np.argmin(p))
    least = min(1.0, float(p[worst]) * count)
    says, remedy = (
        f"no control, held out and treated as a test, shows an effect (smallest p of {count}: {least:.2g})",
        "",
    )
    if least < 0.05:
        name = names[int(np.flatnonzero(known)[worst])]
        says = f"the control {name} appears to be affected by the exposure; it may not be a valid control ({p_value(least)})"
        remedy = f"Leave {name} out, fit again, and compare."
    return Test("held-out controls", float(z[worst]), (count,), least, says, remedy)


# ---- do the controls agree?


def agreement(problem: Problem, views: Canonical, rank: int) -> list[Test]:
    """Per exposure: whether the slopes of the controls lie in the range of A, as those of the shared part do.

    Given an exposure, white coordinates y of V have slopes D on x and c on the exposure. Likelihood ratio of rank r for [D | c]
    against rank r for D alone: it knows that shared directions are estimated. d_v - r degrees of freedom, Bartlett's factor.
    """
    d_v = views.y_from_v.shape[1]
    return _agreement(views.correlations, views.y_from_v @ problem.given.slopes[-d_v:], problem, views, rank)


def agreement_without_each(problem: Problem, views: Canonical, rank: int) -> Array:
    """p of the same without each control in turn, (d_v, q); nan where V was reduced, or holds one control or very many.

    If the exposure changes one control only, the test of the others has its size without that one, and power without any
    other: the controls without which it does not reject are a confidence set for the one that is changed.
    """
    d_v = views.y_from_v.shape[1]
    out, every = np.full((d_v, problem.given.slopes.shape[1]), np.nan), np.arange(d_v)
    lift = problem.views[1].lift
    if problem.views[1].columns is None or not 1 < d_v <= MOST_LEFT_OUT:
        return out
    cov, slopes = lift @ problem.given.cov_v @ lift.T, problem.given.slopes[-d_v:]
    shared = len(views.correlations)
    with_x = (views.v_from_y[:, :shared] * views.correlations).T  # Cov(x, v), of the coordinates that have a partner
    for gone in every:
        rest = np.delete(every, gone)
        white, _ = whitening(cov[np.ix_(rest, rest)])
        turn, d, _ = np.linalg.svd(white @ with_x[:, rest].T)
        tests = _agreement(d, turn.T @ (white @ slopes[rest]), problem, views, rank)
        out[gone] = [1.0 if np.isnan(test.p_value) else test.p_value for test in tests]
    return out


def _agreement(correlations: Array, c: Array, problem: Problem, views: Canonical, rank: int) -> list[Test]:
    """Given canonical correlations and the slopes c (k, q) of the k canonical coordinates of the controls."""
    k, n = len(c), problem.n
    d = np.zeros(k)
    d[: min(k, len(correlations))] = np.minimum(correlations[:k], MAX_CORRELATION)
    own = 1 / np.sqrt(1 - d**2)  # whitens y given x
    alone = np.sort((d * own) ** 2)[::-1]
    tests = []
    for slope, noise in zip(c.T, np.diag(problem.given.noise) * problem.rows / n, strict=True):
        seen = slope * own / np.sqrt(noise * n)
        both = np.linalg.eigvalsh(np.diag((d * own) ** 2) + np.outer(seen, seen))[::-1]
        gain = float(np.sum(np.log1p(np.maximum(both[rank:], 0.0))) - np.sum(np.log1p(alone[rank:])))
        statistic = max(n - (k + views.rank_u + 2) / 2, 1.0) * max(gain, 0.0)
        p = float(stats.chi2.sf(statistic, k - rank)) if k > rank else np.nan
        tests.append(Test("controls agree", statistic, (max(k - rank, 0),), p, _agreed(p, rank), _REMEDY))
    return tests


_REMEDY = (
    "Ask of each control whether the exposure could change it, leave out those that it may, and fit again. If each lab (batch, "
    "clinic) saw one group only, no analysis helps: both groups have to be measured in each."
)


def _agreed(p: float, rank: int) -> str:
    if np.isnan(p):
        return "there are as many hidden directions as controls, so that the controls cannot contradict each other"
    if p < RULES["controls agree"].below[-1][0]:
        more = f"more is hidden than {counted(range(rank), 'direction')}"
        return (
            f"the controls go with the exposure in a way they do not share with the tests ({p_value(p)}): the exposure changes "
            f"some of them, or {more if rank else 'what is hidden goes with the exposure completely'}"
        )
    return f"together the controls go with the exposure just as the part does that they share with the tests ({p_value(p)})"


# ---- instruments


def _instruments(problem: Problem, fit: PairFit) -> tuple[Test, Test]:
    """Whether the weakest hidden direction is seen by the instruments, and whether these contradict each other."""
    u, given = problem.views[0], problem.given
    assert u.columns is not None
    z, k_u, r = np.flatnonzero(u.columns >= problem.tests), u.k, fit.rank
    found = canonical(given.cov[np.ix_(z, z)], given.cov[z, k_u:], given.cov_v, problem.n)
    left = [remaining_p_value(found, k) for k in range(len(found.correlations))]
    p = left[r - 1] if r <= len(left) else 1.0
    sizes = listed([f"{d:.2g}" for d in found.correlations])
    says = f"canonical correlations of controls and instruments, given exposure and covariates, are {sizes}"
    weak = next((k for k, one in enumerate(left) if one >= RULES["instruments"].below[0][0]), None)
    if weak is not None:
        says += f": direction {weak + 1} is weakly instrumented ({p_value(left[weak])})"
    remedy = "Find instruments that go with what is hidden more closely, or fit with a lower rank."
    relevance = Test("instruments", float(found.correlations[min(r, len(left)) - 1]), (), p, says, remedy)
    evidence, pair, name = problem.instrumented(), fit.pair.leading(), "over-identification"
    assert evidence is not None
    if sum(len(i) for i, _ in evidence.between) <= pair.rank * (pair.rank + 1) // 2:
        says = "the instruments are just enough, and cannot contradict each other"
        return relevance, Test(name, np.nan, (0,), np.nan, says)
    prior = Prior(pair, 2.0)
    weighed = evidence.weighed(pair, logistic(symmetric_of(prior.centre))[0])
    test = weighed.use(pair, fit.left_out.leading(), logistic(symmetric_of(best([weighed], pair, [prior])[0][0]))[0])[1]
    p = test.p_value
    says = f"the instruments agree with each other ({p_value(p)})"
    if p < RULES[name].below[-1][0]:
        says = f"the instruments contradict each other ({p_value(p)}): some act on tests or controls directly"
    remedy = "Leave out instruments that may act on the tests directly."
    return relevance, Test(name, test.statistic, test.df, p, says, remedy)
