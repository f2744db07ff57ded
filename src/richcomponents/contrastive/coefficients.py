"""How sure coefficients of an outcome on S1 are: errors of what is reported, and the identified set.

With b the coefficients of least squares on the residual R of U on the shared part of V, m = h b on the shared coordinates and
W h^-1 the way from there to coefficients of U (`calibration`),

    beta(T) = b + W h^-1 P m,     P = (I - T)^-1 - I.

Where the outcome goes with S2 as gamma'S2 (`outcomes`), o - gamma'U depends on S1 only, with the coefficients beta - gamma: all
that follows is said of them, with m = h (b - gamma) and the variance of o - gamma'U, and gamma is added at the end.

SET. Second moments say 0 <= T <= I, where P has no bound: no S1 may be left in a shared direction, and its coefficient may be
anything. Two bounds make the set finite: a share MIN_SHARE = 1 - MAX_T of the residual's variance belongs to S1 in every shared
direction, P <= k I with k = 1 / MIN_SHARE - 1, as in what is reported; and S1 explains no more of the outcome than there is,

    beta' Cov(S1) beta <= Var(y),     that is     m'P m <= c = Var(y) - b' Cov(R) b.

For an entry with row l of W h^-1 these P fill exactly the interval of `learning.predicted.ends_of_inverse`; without the second
bound it is the formula of `products_with_t`. Log-odds have no such c. Both ends get block jackknife errors, and limits cover
beta (not the set) as those of Cov(S1).

ERRORS of coefficients that were corrected, stretched and trusted only so far. What is reported is near b where the data say
little of T; its sampling error alone would say nothing of what was held back. The error is that of beta about what is reported,

    E (beta - reported)^2 = Var(beta_s) + (beta_s - reported)^2,      beta_s = b + W h^-1 (M_s - I) m,  M_s = G (G^2 + s)^-1,

G = I - T at the fitted T, capped at MAX_T. s makes it finite: S1 explains at most Var(y), so that (h beta)'G (h beta) does, and
s = noise tr E[G] / Var(y) for the noise of an entry of m. The variance has four parts: over left-out blocks, each with its
own second moments and its own T; what the prior may have pulled T by, and what it seems to have pulled; and, since M_s does not
reach G^-1, that of a random h beta of that size given m, noise s (G^2 + s)^-2. None exceeds what the set with its noise allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.components.component import LEAST_KEPT
from richcomponents.contrastive.calibration import MAX_T
from richcomponents.contrastive.intervals import Replicates, inverse_on_range
from richcomponents.contrastive.pair import Pair, lift, quadratic
from richcomponents.contrastive.posterior import Logistic, Posterior
from richcomponents.cumulants.estimate import Estimate, jackknife_error, jackknife_variance
from richcomponents.learning.predicted import ends_of_inverse


def transposed(matrix: Array) -> Array:
    return np.asarray(np.swapaxes(matrix, -1, -2))


@dataclass(frozen=True)
class OnResidual:
    """Coefficients of an outcome on the residual of U on the shared part of V: of a sample, or of a stack of its replicates.

    b (..., d_u); with_y (..., r) : Cov(y_1..y_r, outcome); variance (...) : of the outcome; left (...) : c, what the residual
    leaves of it (of log-odds there is no end of it); gamma (..., r) : on the shared coordinates. attenuation : of log-odds,
    m'P m -> the factor that coefficients lack.
    """

    basis: Pair
    b: Array
    with_y: Array
    variance: Array
    left: Array
    gamma: Array
    attenuation: Callable[[Array], Array] | None = None

    @classmethod
    def at(
        cls, basis: Pair, with_u: Array, with_v: Array, variance: Array, rest: tuple[Array, Array] | None = None
    ) -> OnResidual:
        """From covariances with the outcome, (..., d_u) and (..., d_v).

        rest : to_rest (k, d_v), further variates of V beside U, and Cov((U, rest)) (..., d_u + k, d_u + k).
        """
        with_y = basis.to_y @ with_v[..., None]
        own = with_u[..., None] - basis.from_x @ basis.cross @ with_y
        covariance = basis.cov_s1(np.zeros_like(basis.cross))
        if rest is not None:
            to_rest, joint = rest
            d = with_u.shape[-1]
            on_rest = joint[..., :d, d:] @ inverse_on_range(joint[..., d:, d:])
            own = own - on_rest @ (to_rest @ with_v[..., None])
            covariance = covariance - on_rest @ joint[..., d:, :d]
        return cls.of(basis, (inverse_on_range(covariance) @ own)[..., 0], with_y[..., 0], variance)

    @classmethod
    def of(cls, basis: Pair, b: Array, with_y: Array, variance: Array) -> OnResidual:
        """Of an outcome that does not go with S2."""
        explained = quadratic(b[..., None, :], basis.cov_s1(np.zeros_like(basis.cross)))[..., 0]
        return cls(basis, b, with_y, variance, np.maximum(variance - explained, 0.0), np.zeros_like(with_y))

    def goes_with(self, share: float, ridge: float) -> OnResidual:
        """The same of an outcome that goes with S2, by this share of gamma = D^-1 Cov(y, outcome); ridge : in D^-1."""
        if not share:
            return self
        hg = transposed(lift(self.basis.cross, self.basis.h, ridge)) @ self.with_y[..., None]
        gamma = np.asarray(share * np.linalg.solve(self.basis.h, hg)[..., 0], dtype=np.float64)
        if self.attenuation is not None:
            return replace(self, gamma=gamma)
        # Var(o) = |Cov(y, o)|^2 + b'Cov(R) b + the rest, and o - gamma'x has Cov(y, o) - D gamma, b - gamma and the same rest
        with_y = self.with_y - (transposed(self.basis.cross) @ gamma[..., None])[..., 0]
        on_v = np.sum(with_y**2, axis=-1) - np.sum(self.with_y**2, axis=-1)
        turned = (self.basis.h @ gamma[..., None])[..., 0]
        on_r = np.sum(turned * (turned - 2 * self.hb), axis=-1)
        return replace(
            self,
            gamma=gamma,
            variance=np.maximum(self.variance + on_v + on_r, 0.0),
            left=np.maximum(self.left + on_v, 0.0),
        )

    @cached_property
    def hb(self) -> Array:
        """m, (..., r)."""
        own = transposed(self.basis.from_x) @ self.b[..., None] - self.gamma[..., None]
        return np.asarray((self.basis.h @ own)[..., 0])

    @cached_property
    def into(self) -> Array:
        """h v -> the coefficients of U that are v on the shared coordinates, (..., d_u, r)."""
        return np.asarray(transposed(self.basis.to_x) @ np.linalg.inv(self.basis.h))

    def corrected(self, t: Array, ridge: float) -> Array:
        """beta_s (..., d_u) at T = t (..., r, r)."""
        values, vectors = np.linalg.eigh(t)
        g = 1 - np.clip(values, 0.0, MAX_T)
        turned = (transposed(vectors) @ self.hb[..., None])[..., 0]
        along = g / (g**2 + ridge) * turned
        change = (vectors @ (along - turned)[..., None])[..., 0]
        found = self.b + (self.into @ change[..., None])[..., 0]
        if self.attenuation is None:
            return np.asarray(found)
        return np.asarray(found * self.attenuation(np.sum(along**2 * g * (1 - g), axis=-1))[..., None])

    def ends(self) -> Array:
        """Lower and upper end of every coefficient, (2, ..., d_u)."""
        return ends_of_inverse(self.b, self.into, self.hb, self.left, self.attenuation)


def identified_estimate(coef: Array, here: OnResidual, replicas: OnResidual) -> Estimate:
    """Coefficients (d_u,) of which the data tell no more than the identified set; replicas : without each block."""
    low, high = here.ends()
    errors = jackknife_error(np.moveaxis(replicas.ends(), 1, 0))
    nothing = np.full_like(coef, np.nan)
    degrees = max(len(replicas.b) - 1, 1)
    return Estimate(coef, nothing, degrees, identified=(low, high), identified_error=(errors[0], errors[1]))


def drawn_estimate(coef: Array, here: OnResidual, replicas: OnResidual, known: Posterior, noise: float) -> Estimate:
    """Reported coefficients (d_u,) where A is known, and T as well as A tells: the same error with the posterior's draws of T
    in place of its replicates. noise : of an entry of h b."""
    ridge = noise * max(known.rank - float(np.trace(known.t)), LEAST_KEPT) / max(float(here.variance), 1e-300)
    at_fit = here.corrected(known.t, ridge)
    drawn = np.stack([here.corrected(t, ridge) for t in known.t_draws])
    variance = (
        jackknife_variance(replicas.corrected(known.t, ridge))
        + np.tensordot(known.draw_weights, (drawn - at_fit) ** 2, 1)
        + (at_fit - coef) ** 2
    )
    return Estimate(coef, np.sqrt(variance), max(len(replicas.b) - 1, 1))


def corrected_estimate(
    coef: Array, here: OnResidual, replicas: OnResidual, found: Replicates, noise: float
) -> Estimate:
    """Reported coefficients (d_u,) and their standard errors; found : T and its replicates; noise : of an entry of h b."""
    link, limits = Logistic.at(found.x), identified_estimate(coef, here, replicas).interval()
    g = np.eye(len(found.x)) - link.value
    ridge = noise * max(float(np.trace(g)), LEAST_KEPT) / max(float(here.variance), 1e-300)
    at_fit = here.corrected(link.value, ridge)
    replicates = replicas.corrected(Logistic.at(found.xs).value, ridge)
    steps = found.free_directions
    pulled = here.corrected(Logistic.at(found.loose).value, ridge) - at_fit
    may_be_pulled = [here.corrected(Logistic.at(found.x + sign * steps).value, ridge) for sign in (1, -1)]
    values, vectors = np.linalg.eigh(g)
    short = (here.into @ vectors) / (np.maximum(values, LEAST_KEPT) ** 2 + ridge)
    variance = (
        jackknife_variance(replicates)
        + np.sum((may_be_pulled[0] - may_be_pulled[1]) ** 2, axis=0) / 4
        + pulled**2
        + noise * ridge * np.sum(short**2, axis=1)
        + (at_fit - coef) ** 2
    )
    degrees = max(len(replicas.b) - 1, 1)
    reach = np.maximum(limits[1] - coef, coef - limits[0]) / stats.t.ppf(0.975, degrees)
    return Estimate(coef, np.minimum(np.sqrt(variance), reach), degrees)
