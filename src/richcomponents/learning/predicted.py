"""Outcomes on any component, by way of its best linear prediction.

An outcome y = beta'S + noise that depends on one component only has the coefficients beta in least squares on the best linear
prediction of that component, whatever else is in the columns z. Two predictions, both maps of z:

FULL, of the fitted model: E[S | z] = K L' Cov(z)^-1 z, with Cov(S) = K and loadings L. As good as the fit is.

SIMPLE, of second moments of the columns alone. With R what is left of a view given the views where the component does not live,
its own view's R_g; or, where it lives in other views too, R_g predicted from theirs: they are instruments, whose noise is not
R_g's, so that least squares on the prediction does not attenuate. Right where nothing else is shared (for two views: always).

What is used lies between: features z M(w), M(w) = (1 - w) simple + w full, with the w of least estimated risk

    risk(w) = Var b(w) + max(0, |b(1) - b(w)|^2 - Var(b(1) - b(w))),       b(w) least squares on z M(w),

variances over left-out blocks, each with its own refitted prediction: the simple prediction is used as far as it is surer than
it is wrong, and the full one is what it is measured by. The error of a reported b is that of beta about it,

    E (beta - b)^2 = Var b(1) + (b(1) - b)^2.

SET. Of a component that the fit does not tell, nothing but second moments is used. Of its own view's R_g they know

    Cov(R_g, y) = K beta,     0 <= K <= Cov(R_g),

since y goes with nothing else in R_g: with b least squares on R_g, beta = Cov(R_g)^(-1/2) G^-1 Cov(R_g)^(1/2) b for some
0 <= G <= I. Two bounds make that finite: at least LEAST_KEPT of R_g's variance belongs to the component in every direction, and
it explains no more of y than there is. Then every coefficient fills the interval of `ends_of_inverse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import jackknife_variance, power, symmetric, whitening
from richcomponents.components.component import LEAST_KEPT, Calibrated
from richcomponents.components.wide import LinearMap, Spread
from richcomponents.cumulants.estimate import Estimate
from richcomponents.learning.outcome import Outcome

SHARES = np.linspace(0.0, 1.0, 11)
"""w, from simple to full."""

WEAK_INSTRUMENT = 4.0
"""On squared correlations with instruments, in units of 1/n: D^-1 becomes D / (D^2 + WEAK_INSTRUMENT / n)."""

_RANGE = 1e-10  # eigenvalues of white matrices below are rounding


@dataclass(frozen=True)
class Places:
    """Which columns of z are the component's own view (its gauge), other views where it lives, and views where it does not;
    rank : of the component."""

    own: IntArray
    partners: IntArray
    outside: IntArray
    rank: int

    @property
    def kind(self) -> str:
        """What the simple method is called."""
        return "instrumental" if len(self.partners) else "residualised"

    def residual_map(self, covariance: Array, columns: IntArray) -> Array:
        """(k, m): z -> what is left of these columns given those outside; covariance (k, k) of z."""
        out = np.zeros((len(covariance), len(columns)))
        out[columns, np.arange(len(columns))] = 1.0
        if len(self.outside):
            inner = covariance[np.ix_(self.outside, self.outside)]
            out[self.outside] = (
                -np.linalg.pinv(inner, hermitian=True, rcond=_RANGE) @ covariance[self.outside][:, columns]
            )
        return out

    def simple_map(self, covariance: Array, n: float) -> Array:
        """(k, d): z -> the simple prediction; n : independent rows behind the covariance."""
        own = self.residual_map(covariance, self.own)
        if not len(self.partners):
            return own
        others = self.residual_map(covariance, self.partners)
        white, back = whitening(own.T @ covariance @ own)
        white_others, _ = whitening(others.T @ covariance @ others)
        left, values, right = np.linalg.svd(white @ own.T @ covariance @ others @ white_others.T, full_matrices=False)
        kept = np.flatnonzero(values > _RANGE)[: self.rank]
        size = values[kept] + WEAK_INSTRUMENT / (n * values[kept])
        return np.asarray(others @ white_others.T @ (right[kept].T * size) @ left[:, kept].T @ back.T)


@dataclass(frozen=True)
class Sums:
    """Second moments of z and y: covariance (k, k), cross (k,), variance (); and without each block, (B, ...)."""

    covariance: Array
    cross: Array
    variance: Array
    covariances: Array
    crosses: Array
    variances: Array

    @classmethod
    def of(cls, z: Array, outcome: Outcome) -> Sums:
        """z : (m, k), of the outcome's rows."""
        table = np.column_stack([z, outcome.y])
        blocks = [~kept for kept in outcome.kept]
        count = np.array([outcome.weight[at].sum() for at in blocks])
        first = np.stack([table[at].T @ outcome.weight[at] for at in blocks])
        second = np.stack([(table[at] * outcome.weight[at][:, None]).T @ table[at] for at in blocks])

        def covariance(count: Array, first: Array, second: Array) -> Array:
            mean = first / count[..., None]
            return np.asarray(second / count[..., None, None] - mean[..., :, None] * mean[..., None, :])

        whole = covariance(count.sum(), first.sum(axis=0), second.sum(axis=0))
        left = covariance(count.sum() - count, first.sum(axis=0) - first, second.sum(axis=0) - second)
        sizes = [(one[..., :-1, :-1], one[..., :-1, -1], one[..., -1, -1]) for one in (whole, left)]
        return cls(*sizes[0], *sizes[1])


def on_features(maps: Array, covariance: Array, cross: Array) -> Array:
    """Least squares (..., d) on z maps (..., k, d): coefficients in the range of the maps."""
    turned = maps.mT
    inverse = np.linalg.pinv(symmetric(turned @ covariance @ maps), hermitian=True, rcond=_RANGE)
    return np.asarray((inverse @ turned @ cross[..., None])[..., 0])


Refit = Callable[[Array, Array], Array]
"""Features (m, d) and which rows to use (m,) -> coefficients (d,): how a learner other than least squares fits."""


@dataclass(frozen=True)
class OnPrediction:
    """An outcome on a component: from z (m, k), by maps to d coordinates of it, which `frame` turns into the user's columns.

    share : w; map, full (k, d) : M(w) and M(1); maps (B, k, d) : M(w) without each block; covariance (d, d) : of the component,
    at the same share. coef, at_full, simple (d,) : b(w), b(1), b(0); replicates (B, d) : b(1) without each block. kind : what
    the simple method is called; weighed : whether w was chosen; ends (1 + B, 2, user's columns) : of the identified set, whole
    and without each block, of a component that is not told.
    """

    z: Array
    frame: LinearMap
    share: float
    map: Array
    full: Array
    maps: Array
    covariance: Array
    coef: Array
    at_full: Array
    simple: Array
    replicates: Array
    kind: str
    weighed: bool
    ends: Array | None = None

    @classmethod
    def of(
        cls,
        z: Array,
        outcome: Outcome,
        places: Places,
        n: float,
        here: tuple[Array, Array],
        replicas: Sequence[Array] | None,
        frame: LinearMap,
        *,
        weighed: bool = True,
        told: bool = True,
    ) -> OnPrediction:
        """n : independent rows; here : the map (k, d) from z to the fitted model's prediction, and the covariance there;
        replicas : the map refitted without each block, None where it cannot be: then errors are those at the fitted one, and
        it is used as it is, as without `weighed`. told : whether the fit tells the component; else the simple prediction is
        used."""
        sums, (full, covariance) = Sums.of(z, outcome), here
        if replicas is None or len(replicas) != len(sums.crosses):
            replicas, weighed = [full] * len(sums.crosses), False
        simple = places.simple_map(sums.covariance, n)
        simples = np.stack([places.simple_map(C, n) for C in sums.covariances])
        fulls = np.stack(replicas)
        shares = SHARES[:1] if not told else SHARES if weighed else SHARES[-1:]
        path = np.stack([on_features(between(simple, full, w), sums.covariance, sums.cross) for w in shares])
        paths = np.stack([on_features(between(simples, fulls, w), sums.covariances, sums.crosses) for w in shares])
        at = least_risk(path, paths)
        w = float(shares[at])
        seen = simple.T @ sums.covariance @ simple
        return cls(
            z=z,
            frame=frame,
            share=w,
            map=between(simple, full, w),
            full=full,
            maps=between(simples, fulls, w),
            covariance=symmetric((1 - w) * seen + w * covariance),
            coef=path[at],
            at_full=path[-1],
            simple=on_features(simple, sums.covariance, sums.cross),
            replicates=paths[-1],
            kind=places.kind,
            weighed=weighed,
            ends=None if told else _ends_by_block(sums, places, frame),
        )

    def calibrated(self, outcome: Outcome, covariance: Spread, wanted: int) -> Calibrated:
        """covariance : of the component, in the user's columns; wanted : coefficients of least squares."""
        low = outcome.log_odds
        return Calibrated(
            coef=self.frame.to.T @ self.coef if low is None else low.coef,
            residualised=self.frame.to.T @ self.simple if low is None else low.coef,
            trust=self.share,
            features=np.asarray(self.z @ self.map @ self.frame.back.T),
            outcome=outcome.y,
            covariance=covariance,
            free=outcome.free,
            wanted=wanted + outcome.covariates,
            simple=self.kind,
            weighed=self.weighed,
            by=self.estimate,
        )

    def estimate(self, found: Calibrated, outcome: Outcome, *, refit: Refit | None = None, **_: Any) -> Estimate:
        """Reported coefficients, in the user's columns, with their errors; refit : of log-odds."""
        coef, degrees = found.coef, max(len(outcome.kept) - 1, 1)
        if self.ends is not None and refit is None:
            (low, high), errors = self.ends[0], np.sqrt(jackknife_variance(self.ends[1:]))
            nothing = np.full_like(coef, np.nan)
            return Estimate(coef, nothing, degrees, identified=(low, high), identified_error=(errors[0], errors[1]))
        if refit is None:
            variance = jackknife_variance(self.replicates @ self.frame.to)
            change = self.frame.to.T @ (self.at_full - self.coef)
        else:
            back = self.frame.back.T
            left_out = [refit(self.z @ M @ back, rows) for M, rows in zip(self.maps, outcome.kept, strict=True)]
            variance, every = jackknife_variance(np.stack(left_out)), np.ones(len(self.z), dtype=bool)
            change = refit(self.z @ self.full @ back, every) - refit(self.z @ self.map @ back, every)
        return Estimate(coef, np.sqrt(variance + change**2), degrees)


def _ends_by_block(sums: Sums, places: Places, frame: LinearMap) -> Array:
    """(1 + B, 2, user's columns)."""

    def ends(covariance: Array, cross: Array, variance: float) -> Array:
        left = places.residual_map(covariance, places.own)
        inverse = power(symmetric(left.T @ covariance @ left), -0.5, 1e-8)
        m, into = inverse @ (left.T @ cross), frame.to.T @ inverse
        return ends_of_inverse(into @ m, into, m, np.asarray(max(float(variance - m @ m), 0.0)))

    whole = ends(sums.covariance, sums.cross, float(sums.variance))
    return np.stack([whole, *map(ends, sums.covariances, sums.crosses, sums.variances)])


MOST_ADDED = 1 / LEAST_KEPT - 1
"""k: the largest eigenvalue of P."""


def ends_of_inverse(b: Array, into: Array, m: Array, left: Array) -> Array:
    """Lower and upper ends (2, ..., d) of b + into P m over all 0 <= P <= k I with m'P m <= left, k = 1 / LEAST_KEPT - 1.

    b (..., d), into (..., d, r), m (..., r), left (...). With l a row of into they are

        b + k [q l'm -+ sqrt(q (1 - q)) x],   x^2 = |l|^2 |m|^2 - (l'm)^2,   q = min((1 -+ l'm / |l||m|) / 2, left / (k |m|^2))

    (Lagrange: l'P m - mu m'P m over 0 <= P <= k I is k times the positive eigenvalue of a matrix of rank two, whose determinant
    does not depend on mu).
    """
    most = MOST_ADDED
    lengths = np.sqrt(np.sum(into**2, axis=-1))
    size = np.sqrt(np.sum(m**2, axis=-1))[..., None]
    dot = (into @ m[..., None])[..., 0]
    product = np.maximum(lengths * size, 1e-300)
    across = np.sqrt(np.maximum(product**2 - dot**2, 0.0))
    allowed = np.minimum(left[..., None] / np.maximum(most * size**2, 1e-300), 1.0)

    def end(sign: int, share: Array) -> Array:
        return np.asarray(b + most * (share * dot + sign * np.sqrt(share * (1 - share)) * across))

    turn = np.clip(dot / product, -1.0, 1.0)
    return np.stack([end(sign, np.minimum((1 + sign * turn) / 2, allowed)) for sign in (-1, 1)])


def between(simple: Array, full: Array, share: float) -> Array:
    """From one to the other."""
    return np.asarray((1 - share) * simple + share * full)


def least_risk(path: Array, paths: Array) -> int:
    """Which of the values (W, ...) has the least risk, measured by the last; paths (W, B, ...) : without each block."""
    rest = tuple(range(1, path.ndim))
    variance = np.array([np.sum(jackknife_variance(one)) for one in paths])
    apart = np.array([np.sum(jackknife_variance(one - paths[-1])) for one in paths])
    return int(np.argmin(variance + np.maximum(np.sum((path - path[-1]) ** 2, axis=rest) - apart, 0.0)))
