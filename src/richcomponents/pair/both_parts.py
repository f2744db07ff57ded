"""Outcomes that depend on both parts of U: o = beta'S1 + gamma'S2 + noise.

V sees S2 only. In the shared canonical coordinates Cov(y, o) = D gamma, so that gamma = D^-1 Cov(y, o), whatever T; and
o - gamma'U depends on S1 only, with the coefficients beta - gamma: they are those of `coefficients`, with this gamma. The
variance of o is beta' Cov(S1) beta + gamma' Cov(S2) gamma + the noise's: an answer, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError
from richcomponents.inference.draws import Draws, Shrunk
from richcomponents.learning.outcome import Outcome
from richcomponents.pair.coefficients import OnResidual, Stretch
from richcomponents.pair.outcomes import OutcomeOnV
from richcomponents.pair.solution import PairSolution
from richcomponents.pair.views import Pair

PARTS = ("own part (S1)", "shared part (S2)", "unexplained")
"""Of the outcome's variance."""


@dataclass(frozen=True)
class BothParts:
    """Coefficients of an outcome on S1, `coef`, and on S2, `shared`, (d_u,) each, with their errors: nan without any S2.

    residualised (d_u,) : those of U with U and V as regressors; trust : in [0, 1], the share of the correction that was made;
    split (3,) : shares of the outcome's variance, see PARTS. on_v : what the outcome has to do with V.
    """

    coef: Estimate
    shared: Estimate
    residualised: Array
    trust: float
    split: Estimate
    on_v: OutcomeOnV

    @classmethod
    def of(cls, solution: PairSolution, outcome: Outcome, *, grouped: bool = False) -> BothParts:
        if solution.reduced:
            raise DataError(
                f"the first view ({solution.d_u} columns for {solution.n} samples) was searched in its principal components "
                "only, where an outcome that depends on both parts is not supported: name fewer columns, or use more samples"
            )
        on_v, degrees = solution.on_v(outcome).stating(), max(len(outcome.kept) - 1, 1)
        outcome = replace(outcome, on_v=on_v)
        solved = solution.calibrate(solution.keys[0], outcome)
        shrunk, here, stretch, _ = solved.by
        left_out = solution.fitted_without_blocks(outcome, on_v)
        shared = here.into @ (here.half @ here.gamma)
        blocks = np.einsum("bdr,brs,bs->bd", left_out.into, left_out.half, left_out.gamma)
        error = jackknife_error(blocks) if solution.rank else np.full_like(shared, np.nan)
        return cls(
            coef=solution.estimate(solved, outcome, grouped=grouped),
            shared=Estimate(shared, error, degrees),
            residualised=here.b,
            trust=solved.trust,
            split=_split(solution, outcome, shrunk, here, left_out, stretch),
            on_v=on_v,
        )


def _split(
    solution: PairSolution, outcome: Outcome, shrunk: Shrunk, here: OnResidual, left_out: OnResidual, stretch: Stretch
) -> Estimate:
    """Shares of the outcome's variance."""
    T, doubt = solution.fit.posterior.T, solution.fit.posterior.doubt

    def parts(pair: Pair, beta: Array, gamma: Array, t: Array, variance: Array) -> Array:
        own = np.einsum("...i,...ij,...j->...", beta, pair.cov_s1(t), beta) / variance
        shared = np.einsum("...i,...ij,...j->...", gamma, pair.S(t), gamma) / variance
        return np.stack([own, shared, 1 - own - shared], axis=-1)

    variance, without = np.asarray(outcome.with_rows()[1]), outcome.with_rows_without_blocks()[1]
    pair, pairs, none = solution.pair, solution.left_out, np.zeros_like(doubt)
    full = Draws(
        parts(pair, stretch(here, T.value, doubt), here.gamma, T.value, variance),
        parts(pairs, stretch(left_out, T.blocks, doubt), left_out.gamma, T.blocks, without),
        parts(pair, stretch(here, T.posterior, none), here.gamma, T.posterior, variance),
        T.weight,
    )
    safe = Draws.certain(
        parts(pair, here.b, here.gamma, none, variance), parts(pairs, left_out.b, left_out.gamma, 0 * T.blocks, without)
    )
    found = Shrunk.at(safe, full, shrunk.share)
    return Estimate(found.value, found.error, max(len(outcome.kept) - 1, 1), PARTS)
