"""The tests that effects rest on, each with a sentence: the worst of their findings is the verdict (inference/verdicts.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.effects.estimate import FEWEST_CONTROLS, Problem, over_identification
from richcomponents.effects.moments import Coordinates
from richcomponents.inference.verdicts import RULES, Test, Verdict
from richcomponents.pair.canonical import canonical, leftover_statistic, remaining_p_value
from richcomponents.pair.cumulants import CrossCumulants
from richcomponents.pair.equations import UncorrelatedOwnParts
from richcomponents.pair.views import PairFit
from richcomponents.text import counted, listed, p_value

MOST_LEFT_OUT = 200
"""Controls, up to which each is left out in turn to find one that the exposure changes."""


def tested(problem: Problem, fit: PairFit, answers: list[ExposureAnswer]) -> list[ExposureAnswer]:
    """The answers with their tests, and with what becomes of them without each control."""
    views, rank, stated, out = problem.solution.canonical, fit.rank, problem.stated, []
    what, p = (counted(range(rank), "direction"), remaining_p_value(views, 0)) if rank else ("nothing", 1.0)
    says = f"given the exposure, tests and controls share {what}"
    shared = Test("shared", leftover_statistic(views, 0)[0], (), p, says)
    structure = [test for name, test in fit.posterior.tests.items() if name == CrossCumulants.name]
    instruments = _instruments(problem, stated, fit) if stated and rank else []
    for i, answer in enumerate(answers):
        agree, without = _agreement(problem, i, rank)
        seen = instruments if stated else [_held_out(answer, problem.views[1])]
        tests = (shared, *([fit.identified] if rank else []), _correction(answer), agree, *seen, *structure)
        moved = problem.moved(fit, answer, i) if rank else np.full(len(without), np.nan)
        out.append(replace(answer, tests=tests, without=without, moved=moved))
    return out


def _correction(answer: ExposureAnswer) -> Test:
    """How far the correction moves the effects, in standard errors: where it hardly does, nothing of it can be relied on."""
    effects, error = answer.effects, answer.effects.standard_error
    moved = ((effects.value - answer.start) / error)[error > 0]
    size = float(np.sqrt(np.sum(moved**2) / max(len(moved), 1)))
    way = "adjusting for the controls to the full correction" if answer.rank else "no adjustment to adjusting"
    says = f"the estimate goes {answer.share:.0%} of the way from {way}, {size:.1f} standard errors"
    says = f"{counted(range(answer.rank), 'hidden direction')}; {says}"
    remedy = "Compare the estimate with the adjusted one: the truth may lie beyond."
    return Test("correction", size, (), size if answer.rank else np.nan, says, remedy)


def _held_out(answer: ExposureAnswer, view: Coordinates) -> Test:
    """The smallest p of all held-out controls, times their number (Bonferroni), in which copies count once."""
    name, seen = "held-out controls", answer.hidden
    if seen is None:
        says = f"no control could be held out to check the correction: that takes at least {FEWEST_CONTROLS}"
        return Test(name, np.nan, (), np.nan, says, "Add controls.")
    columns = np.arange(len(seen.p_value)) if view.columns is None else np.abs(view.lift).argmax(axis=1)
    worst, count = int(np.nanargmin(seen.p_value)), len(np.unique(columns[np.isfinite(seen.p_value)]))
    p, control, remedy = min(1.0, float(seen.p_value[worst]) * count), seen.names[worst], ""
    says = f"no control, held out and treated as a test, shows an effect (smallest p of {count}: {p:.2g})"
    if p < 0.05:
        says = f"the control {control} appears to be affected by the exposure; it may not be a valid control ({p_value(p)})"
        remedy = f"Leave {control} out, fit again, and compare."
    return Test(name, abs(float(seen.z[worst])), (count,), p, says, remedy)


# ---- do the controls agree?


def _agreement(problem: Problem, i: int, rank: int) -> tuple[Test, Array]:
    """Of exposure i, whether the slopes of the controls lie in the range of A, as those of the shared part do; and p of the
    same without each control (d_v,), nan where V was reduced or holds very many.

    Given the exposure, white coordinates y (k,) of V have slopes F = [D | c] on x and on the exposure, and the precision G at
    any x. Likelihood ratio of rank r for F against that for D alone: it knows that shared directions are estimated. It has
    k - r degrees of freedom, Bartlett's factor, and is a function of F'GF. Without a control that is less by
    (F'G a)(F'G a)' / a'G a, a the column of the control in the map to y; one that the others determine takes nothing along.

    If the exposure changes one control only, the test of the others has its size without that one, and power without any
    other: the controls without which it does not reject are a confidence set for the one that is changed.
    """
    solution, views, d_v = problem.solution, problem.solution.canonical, len(problem.controls)
    k, m, reduced = views.rank_v, len(views.correlations), problem.views[1].columns is None
    every = 0 if reduced or d_v > MOST_LEFT_OUT else d_v
    D, noise = np.eye(k, m) * views.correlations, problem.given.noise[i, i] * (solution.n - solution.lost)
    F = np.column_stack([D, views.y_from_v @ problem.given.slopes[-d_v:, i] / np.sqrt(noise)])
    G, a = 1 / (1 - np.sum(D**2, axis=1)), views.y_from_v.T[:every]
    alone = np.sum(views.v_from_y[:every] * a, axis=1) > 1 - 1e-6
    lost = (a * G) @ F * np.divide(1, np.sqrt(a**2 @ G), out=np.zeros(every), where=alone)[:, None]
    lost, left = np.vstack([np.zeros(m + 1), lost])[:, None], k - np.append(0, alone)
    both = (F.T * G) @ F - lost.mT * lost
    tails = (np.linalg.eigvalsh(part)[:, ::-1][:, rank:] for part in (both, both[:, :m, :m]))
    more, less = (np.log1p(np.maximum(tail, 0.0)).sum(axis=1) for tail in tails)
    statistic = np.maximum(views.n - (left + views.rank_u + 2) / 2, 1.0) * np.maximum(more - less, 0.0)
    p = np.where(left > rank, stats.chi2.sf(statistic, np.maximum(left - rank, 1)), np.nan)
    remedy = (
        "Ask of each control whether the exposure could change it, leave out those that it may, and fit again. If each lab "
        "(batch, clinic) saw one group only, no analysis helps: both groups have to be measured in each."
    )
    without = np.full(d_v, np.nan)
    without[:every], says = np.nan_to_num(p[1:], nan=1.0), _agreed(float(p[0]), rank)
    return Test("controls agree", float(statistic[0]), (max(k - rank, 0),), float(p[0]), says, remedy), without


def _agreed(p: float, rank: int) -> str:
    if np.isnan(p):
        return "there are as many hidden directions as controls, so that the controls cannot contradict each other"
    if p >= RULES["controls agree"].below[-1][0]:
        return f"together the controls go with the exposure just as the part does that they share with the tests ({p_value(p)})"
    away = "the controls go with the exposure in a way they do not share with the tests"
    more = f"more is hidden than {counted(range(rank), 'direction')}"
    more = more if rank else "what is hidden goes with the exposure completely"
    return f"{away} ({p_value(p)}): the exposure changes some of them, or {more}"


# ---- instruments


def _instruments(problem: Problem, stated: UncorrelatedOwnParts, fit: PairFit) -> list[Test]:
    """Whether the weakest hidden direction is seen by the instruments, and whether these contradict each other."""
    u, given, z, r = problem.views[0], problem.given, np.flatnonzero(stated.groups_u == 1), fit.rank
    found = canonical(given.cov[np.ix_(z, z)], given.cov[z, len(u.to) :], given.cov_v, problem.solution.canonical.n)
    left = [remaining_p_value(found, k) for k in range(len(found.correlations))]
    sizes = listed([f"{d:.2g}" for d in found.correlations])
    says = f"canonical correlations of controls and instruments, given exposure and covariates, are {sizes}"
    weak = next((k for k, one in enumerate(left) if one >= RULES["instruments"].below[0][0]), None)
    if weak is not None:
        says += f": direction {weak + 1} is weakly instrumented ({p_value(left[weak])})"
    remedy = "Find instruments that go with what is hidden more closely, or fit with a lower rank."
    p, size = left[r - 1] if r <= len(left) else 1.0, float(found.correlations[min(r, len(left)) - 1])
    relevance, test = Test("instruments", size, (), p, says, remedy), over_identification(stated, fit.pair.leading())
    says = f"the instruments agree with each other ({test.p_text})"
    if np.isnan(test.p_value):
        says = "the instruments are just enough, and cannot contradict each other"
    elif test.finding != Verdict.STRONG:
        says = f"the instruments contradict each other ({test.p_text}): some act on tests or controls directly"
    return [relevance, replace(test, says=says, remedy="Leave out instruments that may act on the tests directly.")]
