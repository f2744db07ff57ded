"""Outcomes that depend on both parts of U: o = beta'S1 + gamma'S2 + noise.

V sees S2 only. In the shared canonical coordinates Cov(y, o) = D gamma, Cov(x, o) = (I - S) beta + S gamma, and therefore

    gamma = D^-1 Cov(y, o), whatever T,      beta = (I - S)^-1 [Cov(x, o) - S D^-1 Cov(y, o)].

Outside the shared coordinates beta = Cov(x, o), and S2 has no part: gamma is zero there. With b the coefficients of x in least
squares of o on (x, y_1..y_r) (T = 0, "U and V as regressors") and M = (I - T)^-1,

    h beta = h b + (M - I) w,      w = h (b - gamma).

o - gamma'U depends on S1 only, with coefficients beta - gamma: h (beta - gamma) = M w is the correction of `calibration` for
that outcome. What w lacks in precision it owes to D^-1. With v the noise of an entry of h b, that of w is v D^-2 and their
covariance v; the stretch with the least expected squared error, M as in `calibration`, then acts on f w,

    f_i = (g_i + lambda) / (g_i + lambda / D_i^2),     g = diag E[(I - T)^2],    lambda = v / (mean square of h (beta - gamma)),

so that nothing is corrected where V hardly shows a shared direction. The change (M - I) f w is made as far as it stands
above its uncertainty over left-out blocks and over the posterior of T (trust). Without evidence the estimate is b, of which
h b = (I - T) h beta + T h gamma: its sampling error would say nothing about beta.

The variance of o is beta' Cov(S1) beta + gamma' Cov(S2) gamma + the noise's. Cov(S1) is taken at the T that beta was corrected
with, Cov(S2) as the solution has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.component import least_squares_without_blocks
from richcomponents.contrastive.calibration import (
    MAX_T,
    Calibration,
    Reading,
    Residualised,
    calibrate,
    residualise,
)
from richcomponents.contrastive.effects import RIDGE, Basis
from richcomponents.contrastive.intervals import inverse_on_range, replicate
from richcomponents.contrastive.pair import BlockCovariances, Pair, near_pair
from richcomponents.contrastive.posterior import Logistic
from richcomponents.contrastive.solution import PairSolution
from richcomponents.cumulants.estimate import delete_one, jackknife_variance
from richcomponents.errors import DataError
from richcomponents.learning.outcome import Outcome

PARTS = ("own part (S1)", "shared part (S2)", "unexplained")
"""Of the outcome's variance."""


@dataclass(frozen=True)
class BothParts:
    """Coefficients of an outcome on S1, `coef`, and on S2, `shared`, (d_u,) each, and their standard errors: nan where the data
    do not tell S1 from S2, and for an S2 that is not there.

    residualised (d_u,) : those of U with U and V as regressors; trust : in [0, 1], how much of the correction was believed;
    split (3,) : shares of the outcome's variance, see PARTS; split_ends : where only second moments tell, ends (2, 3) of the
    identified set of the shares, and their errors; degrees : of freedom of all errors.
    """

    coef: Array
    coef_error: Array
    shared: Array
    shared_error: Array
    residualised: Array
    trust: float
    split: Array
    split_error: Array
    split_ends: tuple[Array, Array] | None
    degrees: int

    @classmethod
    def of(cls, solution: PairSolution, outcome: Outcome) -> BothParts:
        if solution.reduced:
            raise DataError(
                f"the first view ({solution.d_u} columns for {solution.n} samples) was searched in its principal components "
                "only, where an outcome that depends on both parts is not supported: name fewer columns, or use more samples"
            )
        here, known = Parts.of_outcome(solution, outcome), solution.posterior
        solved = _calibrated(solution, here, outcome)
        coef = here.b + solved.coef - solved.residualised
        replicas = _replicated(solution, outcome)
        coef_variance, split_variance = _variances(here, replicas, *_noise_of_t(solution, len(outcome.kept)))
        shared_variance = jackknife_variance(replicas.gamma)
        open_ends = None
        if known.rank and not known.gate:  # beta has no bounds: b mixes beta and gamma, by how much is not known
            coef_variance = np.full_like(coef_variance, np.nan)
            noise = np.moveaxis(replicas.ends_of_split(), 1, 0)
            open_ends = here.ends_of_split(), np.sqrt(jackknife_variance(noise))
        if not known.rank:
            shared_variance = np.full_like(shared_variance, np.nan)
        return cls(
            coef=coef,
            coef_error=np.sqrt(coef_variance),
            shared=here.gamma,
            shared_error=np.sqrt(shared_variance),
            residualised=here.b,
            trust=solved.trust,
            split=here.split(coef, solved.t_effective, known.t_trusted),
            split_error=np.sqrt(split_variance),
            split_ends=open_ends,
            degrees=max(len(outcome.kept) - 1, 1),
        )


@dataclass(frozen=True)
class Parts:
    """What least squares of an outcome on (x, y_1..y_r) says: of a sample, or of a stack of its replicates (...).

    b (..., d_u) : coefficients of U; hg (..., r) : h gamma; variance (...) : of the outcome.
    """

    basis: Pair
    b: Array
    hg: Array
    variance: Array

    @classmethod
    def at(cls, basis: Pair, ridge: float, with_u: Array, with_v: Array, variance: Array) -> Parts:
        """From covariances with the outcome, (..., d_u) and (..., d_v); ridge : on squared correlations."""
        with_y = basis.to_y @ with_v[..., None]
        own = with_u[..., None] - basis.from_x @ basis.cross @ with_y
        b = inverse_on_range(basis.cov_s1(np.zeros_like(basis.cross))) @ own
        return cls(basis, b[..., 0], (_transposed(_lift(basis, ridge)) @ with_y)[..., 0], variance)

    @classmethod
    def of_outcome(cls, solution: PairSolution, outcome: Outcome) -> Parts:
        cross, variance = outcome.with_rows()
        return cls.at(solution.pair, RIDGE / solution.canonical.n, *solution.split(cross), np.asarray(variance))

    @cached_property
    def hb(self) -> Array:
        """h b on the shared coordinates, (..., r)."""
        return np.asarray((self.basis.h @ (_transposed(self.basis.from_x) @ self.b[..., None]))[..., 0])

    @property
    def w(self) -> Array:
        """h (b - gamma), (..., r)."""
        return np.asarray(self.hb - self.hg)

    @cached_property
    def into(self) -> Array:
        """h v -> the coefficients of U that are v on the shared coordinates, (..., d_u, r)."""
        return np.asarray(_transposed(self.basis.to_x) @ np.linalg.inv(self.basis.h))

    @property
    def gamma(self) -> Array:
        """(..., d_u), zero where S2 has no part."""
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


def _transposed(matrix: Array) -> Array:
    return np.asarray(np.swapaxes(matrix, -1, -2))


def _lift(basis: Pair, ridge: float) -> Array:
    """cross^-1 h (..., r, r), see Basis.lift."""
    if basis.cross.ndim == 2:
        return Basis.of(basis).lift(ridge)
    return np.stack([one.lift(ridge) for one in Basis.each(basis)])


def _calibrated(solution: PairSolution, here: Parts, outcome: Outcome) -> Calibration:
    """Of the coefficients beta - gamma on S1, read off f w."""
    found, known = solution.canonical, solution.posterior
    noise = residualise(found, known.rank, *solution.split(outcome.with_rows()[0]), float(here.variance)).noise
    f = np.ones(known.rank)
    if known.gate > 0 and known.rank:
        excess = np.maximum((known.correlations / (known.correlations**2 + RIDGE / found.n)) ** 2, 1.0)  # D^-2
        size = max(float(here.w @ here.w) - noise * excess.sum(), 1e-3 * known.rank * noise, 1e-300)
        squares, ridge = np.diag(known.mean_g2), noise / size * float(np.trace(known.mean_g2))
        f = (squares + ridge) / (squares + ridge * excess)
    fit = Residualised(here.into @ (f * here.w), noise)
    return calibrate(found, known, fit, Reading.canonical(found, known.rank))


def _replicated(solution: PairSolution, outcome: Outcome) -> Parts:
    """Without each block. Where the state holds the leading coordinates only, these are kept as they are."""
    ridge, keep = RIDGE / solution.canonical.n, outcome.kept
    crosses, variances = zip(*(outcome.with_rows(kept) for kept in keep), strict=True)
    (with_u, with_v), variance = solution.split(np.stack(crosses)), np.array(variances)
    if not solution.truncated:
        covariances = BlockCovariances.of(solution.state).covariance(delete_one(len(keep)))
        return Parts.at(near_pair(solution.canonical, solution.rank, covariances), ridge, with_u, with_v, variance)
    found, pair = solution.canonical, solution.pair
    u, v = solution.split(outcome.rows)
    features = np.hstack([u @ found.x_from_u.T, v @ pair.to_y.T])
    coefs = least_squares_without_blocks(features, outcome.y, keep, outcome.weight)
    on_x, on_y = coefs[:, : found.rank_u], coefs[:, found.rank_u :]
    with_y = on_y + solution.posterior.correlations * on_x[:, : solution.rank]
    return Parts(pair, on_x @ found.x_from_u, with_y @ _lift(pair, ridge), variance)


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
    draws = (vectors * np.minimum(values, MAX_T)[..., None, :]) @ _transposed(vectors)
    return draws[0], none, np.sqrt(known.draw_weights)[:, None, None] * (draws - draws[0])


def _variances(here: Parts, replicas: Parts, t: Array, moved: Array, spread: Array) -> tuple[Array, Array]:
    """Of beta (d_u,) and of the split (3,), both without protection, as the errors of other coefficients: what trust and f
    hold back is of that size. moved, spread : see `_noise_of_t`."""
    coefs = replicas.beta(t + moved)
    inverse = np.linalg.inv(np.eye(len(t)) - t)
    turned = spread @ (inverse @ here.w)  # dT M w
    along = turned @ inverse @ here.into.T  # d beta = h^-1 M dT M w
    shared = (spread @ here.hg) @ here.hg / here.variance
    own = turned @ (inverse @ here.w) / here.variance - shared
    shares = np.stack([own, shared, -own - shared], axis=-1)
    return (
        jackknife_variance(coefs) + np.sum(along**2, axis=0),
        jackknife_variance(replicas.split(coefs, t + moved)) + np.sum(shares**2, axis=0),
    )
