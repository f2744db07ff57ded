"""Outcomes that depend on both parts of U: o = beta'S1 + gamma'S2 + noise.

V sees S2 only. In the shared canonical coordinates Cov(y, o) = D gamma, Cov(x, o) = (I - S) beta + S gamma, and therefore

    gamma = D^-1 Cov(y, o), whatever T,      beta = (I - S)^-1 [Cov(x, o) - S D^-1 Cov(y, o)].

Outside the shared coordinates beta = Cov(x, o), and S2 has no part: gamma is zero there. With b the coefficients of x in least
squares of o on (x, y_1..y_r) (T = 0, "U and V as regressors") and M = (I - T)^-1,

    h beta = h b + (M - I) w,      w = h (b - gamma).

o - gamma'U depends on S1 only, with coefficients beta - gamma: h (beta - gamma) = M w is the correction of `calibration` for
that outcome. What w lacks in precision it owes to D^-1: with v the noise of an entry of h b, that of w is v D^-2, and so is
the ridge in M, direction by direction: nothing is corrected where V hardly shows a shared direction. The change is made as far
as it stands above its uncertainty over left-out blocks and over the posterior of T (trust). Without evidence the estimate is b,
of which h b = (I - T) h beta + T h gamma: its sampling error would say nothing about beta, its identified set does.

The variance of o is beta' Cov(S1) beta + gamma' Cov(S2) gamma + the noise's. Cov(S1) is taken at the T that beta was corrected
with, Cov(S2) as the solution has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.calibration import MAX_T
from richcomponents.contrastive.coefficients import OnResidual, transposed
from richcomponents.contrastive.intervals import replicate
from richcomponents.contrastive.outcomes import OutcomeOnV
from richcomponents.contrastive.pair import RIDGE, lift
from richcomponents.contrastive.posterior import Logistic
from richcomponents.contrastive.solution import PairSolution
from richcomponents.cumulants.estimate import Estimate, jackknife_variance
from richcomponents.errors import DataError
from richcomponents.learning.outcome import Outcome

PARTS = ("own part (S1)", "shared part (S2)", "unexplained")
"""Of the outcome's variance."""


@dataclass(frozen=True)
class BothParts:
    """Coefficients of an outcome on S1, `coef`, and on S2, `shared`, (d_u,) each, with their errors: nan for an S2 that is not
    there; where the data do not tell S1 from S2, those on S1 have an identified set instead.

    residualised (d_u,) : those of U with U and V as regressors; trust : in [0, 1], how much of the correction was believed;
    split (3,) : shares of the outcome's variance, see PARTS; where only second moments tell, with their identified set. on_v :
    what the outcome has to do with V.
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
        ridge, known, degrees = RIDGE / solution.canonical.n, solution.posterior, max(len(outcome.kept) - 1, 1)
        on_v = solution.on_v(outcome).stating()
        outcome = replace(outcome, on_v=on_v)
        solved = solution.calibrate(solution.keys[0], outcome)
        here = Parts.of_fit(solution.on_residual(outcome), ridge)
        replicas = Parts.of_fit(solution.on_residual_without_blocks(outcome), ridge)
        shared_error = np.sqrt(jackknife_variance(replicas.coef_shared))
        t = solved.by[0].t_effective
        split = here.split(solved.coef, t, known.t_trusted)
        split_error = np.sqrt(_variance_of_split(here, replicas, *_noise_of_t(solution, len(outcome.kept))))
        shares = Estimate(split, split_error, degrees, PARTS)
        if known.rank and not known.gate:
            noise = np.sqrt(jackknife_variance(np.moveaxis(replicas.ends_of_split(), 1, 0)))
            low, high = here.ends_of_split()
            shares = Estimate(
                split,
                np.full_like(split, np.nan),
                degrees,
                PARTS,
                identified=(np.maximum(low, 0.0), high),
                identified_error=(noise[0], noise[1]),
            )
        return cls(
            coef=solution.estimate(solved, outcome, grouped=grouped),
            shared=Estimate(
                here.coef_shared, shared_error if known.rank else np.full_like(shared_error, np.nan), degrees
            ),
            residualised=here.b,
            trust=solved.trust,
            split=shares,
            on_v=on_v,
        )


@dataclass(frozen=True)
class Parts(OnResidual):
    """What least squares of an outcome on (x, y_1..y_r) says; ridge : on squared correlations, in D^-1."""

    ridge: float = 0.0

    @classmethod
    def of_fit(cls, fit: OnResidual, ridge: float) -> Parts:
        return cls(fit.basis, fit.b, fit.with_y, fit.variance, fit.left, fit.gamma, ridge=ridge)

    @cached_property
    def hg(self) -> Array:
        """h gamma, (..., r)."""
        back = transposed(lift(self.basis.cross, self.basis.h, self.ridge))
        return np.asarray((back @ self.with_y[..., None])[..., 0])

    @property
    def w(self) -> Array:
        """h (b - gamma), (..., r)."""
        return np.asarray(self.hb - self.hg)

    @property
    def coef_shared(self) -> Array:
        """On S2 (..., d_u), zero where S2 has no part."""
        return np.asarray((self.into @ self.hg[..., None])[..., 0])

    def beta(self, t: Array) -> Array:
        """(..., d_u), at T = t (..., r, r), without protection."""
        change = np.linalg.solve(np.eye(t.shape[-1]) - t, self.w[..., None])[..., 0] - self.w
        return np.asarray(self.b + (self.into @ change[..., None])[..., 0])

    def split(self, beta: Array, t: Array, t_shared: Array | None = None) -> Array:
        """Shares of the outcome's variance (..., 3), for beta (..., d_u) at T = t; t_shared : T for Cov(S2), if another."""
        own = np.einsum("...i,...ij,...j->...", beta, self.basis.cov_s1(t), beta)
        shared = np.einsum(
            "...i,...ij,...j->...", self.g, self.basis.shared(t if t_shared is None else t_shared), self.g
        )
        own, shared = own / self.variance, shared / self.variance
        return np.stack([own, shared, 1 - own - shared], axis=-1)

    @property
    def g(self) -> Array:
        """gamma on the shared coordinates, (..., r)."""
        return np.asarray(np.linalg.solve(self.basis.h, self.hg[..., None])[..., 0])

    def ends_of_split(self) -> Array:
        """What second moments alone leave of the shares: lower and upper ends, (2, ..., 3).

        With k = h gamma, S2 carries |D gamma|^2 + k'T k; S1, with b_0 the part of b outside the shared coordinates,
        |b_0|^2 + k'(I - T)k + 2 k'w + w'(I - T)^-1 w >= |b_0|^2 + 2 k'w + 2 |k'w|; and both together the least at T = 0.
        """
        none = np.zeros_like(self.basis.cross)
        first, shared, left = np.moveaxis(self.split(self.b, none), -1, 0)
        inside, along, total = (
            np.sum(a * b, axis=-1) for a, b in ((self.hb, self.hb), (self.hg, self.w), (self.hg, self.hg))
        )
        low = first + (2 * along + 2 * np.abs(along) - inside) / self.variance
        ends = (low, shared, np.zeros_like(left)), (1 - shared, shared + total / self.variance, left)
        return np.stack([np.stack(end, axis=-1) for end in ends])


def _noise_of_t(solution: PairSolution, n_blocks: int) -> tuple[Array, Array, Array]:
    """T without protection, its changes without each block (B, r, r), and changes (k, r, r) whose squares add up to the rest
    of what is uncertain about it. Without evidence T = 0 and nothing is."""
    known = solution.posterior
    none = np.zeros((n_blocks, known.rank, known.rank))
    if solution.evident:
        found = replicate(solution.block_evidence())
        return Logistic.at(found.x).value, *found.t_changes()
    if solution.known_A is None:
        return none[0], none, none[:0]
    values, vectors = np.linalg.eigh(known.t_draws)
    draws = (vectors * np.minimum(values, MAX_T)[..., None, :]) @ transposed(vectors)
    return draws[0], none, np.sqrt(known.draw_weights)[:, None, None] * (draws - draws[0])


def _variance_of_split(here: Parts, replicas: Parts, t: Array, moved: Array, spread: Array) -> Array:
    """(3,), at coefficients without protection: what trust holds back is of that size. moved, spread : see `_noise_of_t`."""
    inverse = np.linalg.inv(np.eye(len(t)) - t)
    turned = spread @ (inverse @ here.w)  # dT M w
    shared = (spread @ here.hg) @ here.hg / here.variance
    own = turned @ (inverse @ here.w) / here.variance - shared
    shares = np.stack([own, shared, -own - shared], axis=-1)
    return np.asarray(
        jackknife_variance(replicas.split(replicas.beta(t + moved), t + moved)) + np.sum(shares**2, axis=0)
    )
