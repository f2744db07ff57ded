"""Coefficients of an outcome on a component: on S1, S2 or S3 of two views, or on that of any subset of many.

Two routes, both from a SIMPLE method that needs no fit, as far as the data support it, to what the fitted model says.

OWN PART (S1; S3 with the roles of the views exchanged). Least squares b of o = beta'S1 + gamma'S2 + noise on U and the shared
part of V ("residualising": T = 0, the safe value) has, with m = h (b - gamma) on the shared coordinates,

    h (b - gamma) = (I - T) h (beta - gamma) + noise,     so     beta = b + W h^-1 (M - I) m,     M = (I - T)^-1,

W h^-1 the way from shared coordinates to coefficients of U. gamma = share K'^-1 Cov(y, o): o - gamma'U depends on S1 only, with
the coefficients beta - gamma; its share is 0 where o does not go with V (learning/outcome). Where T is uncertain the least
expected squared error has

    M = G (E G^2 + lambda)^-1,     G = I - E T,     lambda = noise / mean square of h beta,

the size pooled over ALL coordinates of U: that of r shared ones alone would call a large noise a large signal. No coefficient
is stretched by more than 1 / LEAST_KEPT. Draws of T go through the f without doubt, and with the smallest lambda that the
outcome's variance allows. Log-odds are attenuated besides, by c(m'(M - I) m). M lies between I and I / LEAST_KEPT, so that the
identified set is b + (1 / LEAST_KEPT - 1) times the range of l'T m.

A wide view is searched for shared directions in its principal components only, but its coefficients are those of least squares
on ALL its columns; with L the loadings of S2 in every column and Q = L'Cov(R)^-1 L, Q^-1/2 stands for h there.

PREDICTION (any component). An outcome beta'S + noise that depends on one component only has the coefficients beta in least
squares on the best linear prediction of that component, whatever else is in the columns z. Two predictions, both maps M of z:

* FULL, of the fitted model: E[S | z] = K L' Cov(z)^-1 z, with Cov(S) = K and loadings L. As good as the fit is.
* SIMPLE, of second moments alone. With R what is left of a view given the views where the component does not live, its own
  view's R_g; or, where it lives in other views too, R_g predicted from theirs: they are instruments, whose noise is not R_g's,
  so that least squares on the prediction does not attenuate. Right where nothing else is shared.

Least squares on z M is b = L Cov(z, y), L = (M'Cov(z)M)^-1 M'. The simple b is the safe answer, that on the full prediction the
full one (inference/draws): left-out blocks, each with its own refitted prediction, say which share of the change stands above
noise. Features are those of least squares at that share: with L between the two likewise, z L'(L Cov(z) L')^-1. Log-odds are
attenuated by all that a prediction does not tell, which least squares do not see: they are those on the full one.

Of a component that the fit does not tell, nothing but second moments is used. Since y goes with nothing else in R_g,

    Cov(R_g, y) = K beta,     0 <= K <= Cov(R_g):

with b least squares on R_g, beta = Cov(R_g)^(-1/2) G^-1 Cov(R_g)^(1/2) b for some 0 <= G <= I. Two bounds make that finite: at
least LEAST_KEPT of R_g's variance belongs to the component in every direction, and it explains no more of y than there is.
Then every coefficient fills an interval (inference/draws).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import jackknife_variance, least_squares, power, symmetric, whitening
from richcomponents.components.wide import Factored, LinearMap, Spread, added, inverse_factor
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.inference.draws import Draws, Shrunk, range_of_products, shrink
from richcomponents.learning.outcome import Outcome, OutcomeOnV

LEAST_KEPT = 0.1
"""Of what is left of a view, the least share that a prediction of a component keeps in any direction: least squares on it
multiplies the coefficients there by one over the share, and their noise with them."""

MOST_ADDED = 1 / LEAST_KEPT - 1
"""The largest eigenvalue of M - I."""

WEAK_INSTRUMENT = 4.0
"""On squared correlations with instruments, in units of 1/n: D^-1 becomes D / (D^2 + WEAK_INSTRUMENT / n)."""

_FEW_PER_COLUMN = 5  # samples per coefficient below which least squares is determined, but poor
_RANGE = 1e-10  # eigenvalues of white matrices below are rounding

Refit = Callable[[Array, Array], Array]
"""Features (m, d) and which rows to use (m,) -> coefficients (d,): how a learner other than least squares fits."""


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Of an outcome on a component, with as much correction as the data support for THIS outcome.

    coef : (d,); residualised : (d,), those of the simple method, and simple : what it is called; trust : in [0, 1], how much of
    the correction is made; features : (m, d), centred predictions of the component, and outcome : (m,), centred, known
    covariates and what goes with the shared part removed: least squares of the one on the other gives coef, and penalised fits
    should be made of them (rescaling penalised coefficients afterwards blows up their error); covariance : (d, d), of the
    component, at the same correction; free : rows less those that covariates took; wanted : coefficients of least squares, with
    those of the covariates, and determined : whether there are more independent rows; reduced : whether the view was wide;
    factor : what log-odds lacked; shared : (d,), coefficients on the shared part, as far as the outcome goes with it; on_v :
    what that has to do with the other view of two.
    by : (coefficients, outcome, grouped, refit) -> the estimate; parts : outcome -> the estimate on the shared part, and whose
    the outcome's variance is, of two views.
    """

    coef: Array
    residualised: Array
    trust: float
    features: Array
    outcome: Array
    covariance: Spread
    free: float
    wanted: int
    by: Callable[..., Estimate] = field(compare=False)
    determined: bool = True
    reduced: bool = False
    factor: float = 1.0
    shared: Array | None = None
    on_v: OutcomeOnV | None = None
    simple: str = "residualised"
    parts: Callable[[Outcome], tuple[Estimate, Estimate]] | None = field(default=None, compare=False)

    def estimate(self, outcome: Outcome, **how: Any) -> Estimate:
        """With errors, or the identified set. grouped : whether rows of the outcome, from which these were made, belong to
        groups. Of log-odds : refit, those on other features of some of the rows, with what they lack."""
        return self.by(self, outcome, **how)


def is_determined(solution: Any, wide: Spread | None, wanted: int) -> bool:
    """Whether there are more independent rows than coefficients of least squares; copies, in groups, say nothing of a wide
    view, whose covariance is given."""
    if min(solution.n, solution.units or solution.n) <= wanted:
        return False
    if not isinstance(wide, Factored) or not solution.grouped:
        return True
    return bool(inverse_factor(wide.rows).shape[1] >= np.sum(np.any(wide.rows != 0, axis=0)))


def check_determined(
    solution: Any, wide: Spread | None, view: str, columns: int, wanted: int, shared: int, covariates: int
) -> None:
    """Refuse least squares that is not determined; warn where a wide view has few samples.

    wide : the view's covariance, where it may be wide; view, columns : its name and its columns; wanted : coefficients of the
    columns that vary and of the shared directions.
    """
    n, units, rows = solution.n, solution.units, solution.independent_rows
    if not is_determined(solution, wide, wanted + covariates):
        counted = f"{units} independent samples" if units is not None and units < n else f"{n} samples"
        raise DataError(
            f"{counted} do not determine the {wanted + covariates} coefficients of least squares on all columns of view "
            f"{view!r} ({columns}), the {shared} shared directions and {covariates} covariates: use a penalty chosen by "
            'cross-validation, ComponentRegression(alpha="cv"), or fewer columns'
        )
    if isinstance(wide, Factored) and rows < _FEW_PER_COLUMN * wanted:
        warn_user(
            f"{rows:.0f} samples for {wanted} coefficients, fewer than {_FEW_PER_COLUMN} each: least squares on all columns is "
            'determined, but its errors are large. A penalty (alpha="cv") may serve better',
            SampleSizeWarning,
        )


# ---- on a view's own part


@dataclass(frozen=True, eq=False)
class Safe:
    """Coefficients b (..., d) at T = 0, of a sample or a stack of replicates; lift (..., d, r) : loadings of the shared
    coordinates; into (..., d, r) : W h^-1; half (..., r, r) : h; gamma (..., r)."""

    b: Array
    lift: Array
    into: Array
    half: Array
    gamma: Array

    @classmethod
    def of(cls, pair: Any, b: Array, on_y: Array, share: float, n: float) -> Safe:
        """on_y (..., r) : Cov(y, o); gamma has a ridge, since instruments may be weak."""
        squares = pair.K @ pair.K.mT + WEAK_INSTRUMENT / n * np.eye(pair.K.shape[-1])
        gamma = share * np.linalg.solve(squares, pair.K @ on_y[..., None])[..., 0]
        return cls(b, pair.lift, pair.into, pair.h, np.asarray(gamma, dtype=np.float64))

    def repeated(self, b: Array) -> Safe:
        """The same for every block, with coefficients b (B, d)."""
        return Safe(b, *(np.repeat(one[None], len(b), 0) for one in (self.lift, self.into, self.half, self.gamma)))

    @property
    def m(self) -> Array:
        """(..., r)."""
        own = self.lift.mT @ self.b[..., None] - self.gamma[..., None]
        return np.asarray((self.half @ own)[..., 0])

    @property
    def on_shared(self) -> Array:
        """gamma in the user's columns, (..., d)."""
        return np.asarray((self.into @ (self.half @ self.gamma[..., None]))[..., 0])


@dataclass(frozen=True, eq=False)
class Stretch:
    """noise : variance of an entry of m; size, most : mean square of h beta, as estimated, and as large as it can be;
    attenuation : of log-odds, m'(M - I) m -> the factor that coefficients lack."""

    noise: float
    size: float
    most: float
    attenuation: Callable[[Array], Array] = np.ones_like

    def matrix(self, T: Array, doubt: Array) -> Array:
        """M (..., r, r)."""
        identity = np.eye(T.shape[-1])
        G, ridge = identity - T, self.noise / (self.size if doubt.any() else self.most)
        raw = G @ np.linalg.inv(G @ G + doubt + (ridge + 1e-12) * identity)
        values, vectors = np.linalg.eigh(symmetric(raw))
        return np.asarray((vectors * np.clip(values, 1.0, 1 / LEAST_KEPT)[..., None, :]) @ vectors.mT)

    def __call__(self, safe: Safe, T: Array, doubt: Array) -> Array:
        """beta (..., d)."""
        m = safe.m[..., None]
        more = self.matrix(T, doubt) @ m - m
        beta = safe.b + (safe.into @ more)[..., 0]
        return np.asarray(beta * self.attenuation(np.sum(m * more, (-1, -2)))[..., None])

    def ends(self, safe: Safe) -> tuple[Array, Array]:
        """The identified set (d,): over I <= M <= I / LEAST_KEPT, and over the attenuation that goes with it."""
        low, high = (safe.b + MOST_ADDED * end[..., 0] for end in range_of_products(safe.into, safe.m[..., None, :]))
        largest = float(self.attenuation(np.asarray(MOST_ADDED * float(np.sum(safe.m**2)))))
        corners = np.stack([low, high, largest * low, largest * high])
        return corners.min(axis=0), corners.max(axis=0)


@dataclass(frozen=True, eq=False)
class OnOwnPart:
    """An outcome on S1, all columns of U included: safe coefficients of all rows and without each block, and the answer
    f(safe, T, doubt) that corrects them.

    own : Cov(R); inverse : G (d, k) with G G' = Cov(R)^-1 over all columns of a wide U, None where the canonical coordinates
    are all of U, or where there are too few samples. Where least squares is not determined (fewer samples than columns of U) it
    is the regression on the principal components that were searched: a guide for penalised fits, no result.
    """

    views: Any
    on_v: OutcomeOnV
    own: Spread
    inverse: Array | None
    safe: Safe
    left_out: Safe
    stretch: Stretch

    @classmethod
    def of(cls, views: Any, outcome: Outcome) -> OnOwnPart:
        pair, on_v, n, r = views.pair, views.on_v(outcome), views.independent_rows, views.rank
        cross, variances = outcome.with_rows
        with_u, with_v = views.split(cross)
        own, cov_u, odds, variance = views.cov_residual(on_v.beside), views.cov_u, outcome.log_odds, float(variances[0])
        inverse = None
        if odds is not None:
            safe = _of_log_odds(views, odds.coef, on_v)
            left_out = _of_log_odds(views, odds.blocks, on_v, safe)
            noise = 1 / (max(odds.information, 1e-12) * max(n - len(safe.b) - 1, 1))
            variance = noise * n
        elif isinstance(cov_u, Factored) and views.determined(outcome.covariates):
            inverse, lift = inverse_factor(cov_u.rows), views.lift_u
            with_y = views.variates(cross[0], r)
            inside = inverse.T @ (with_u[0] - lift @ (pair.K @ with_y))
            left, free = variance - float(with_y @ with_y + inside @ inside), n - views.coefficients_wanted - 1
            noise = max(left, 1e-12 * variance) / free if free > 0 else 0.0
            toward = inverse @ (inverse.T @ lift)
            half = power(symmetric(lift.T @ toward), -0.5, 1e-300)  # Q^-1/2
            safe = Safe.of(pair, inverse @ inside, with_y, on_v.share, n)
            safe = replace(safe, lift=lift, into=toward @ half, half=half)
            left_out = safe.repeated(np.repeat(safe.b[None], len(views.left_out.K), 0))
        else:
            b, on_y = pair.regressed(with_u[0], with_v[0], on_v.beside)
            safe = Safe.of(pair, b, on_y, on_v.share, n)
            b, on_y = views.left_out.regressed(with_u[1:], with_v[1:], on_v.beside)
            left_out = Safe.of(views.left_out, b, on_y, on_v.share, n)
            with_y = views.variates(cross[0], on_v.beside)
            left = max(variance - float(safe.b @ (own @ safe.b)) - float(with_y @ with_y), 1e-12 * variance)
            noise = left / max(n - views.white.shape[1] - on_v.beside - 1, 1)
        columns, T = max(len(safe.b) if views.reduced else views.white.shape[1], 1), views.fit.posterior.T
        G = np.eye(r) - T.posterior
        first, second = (float(np.trace(np.tensordot(T.weight, g, 1))) for g in (G, G @ G))
        size = max(float(safe.b @ (own @ safe.b)) - columns * noise, 1e-3 * columns * noise, 1e-300)
        size = size / max(columns - r + second, 1e-300)
        most = max(variance / max(first, LEAST_KEPT), size)
        stretch = Stretch(noise, size, most, np.ones_like if odds is None else odds.family.attenuation)
        return cls(views, on_v, own, inverse, safe, left_out, stretch)

    @cached_property
    def shrunk(self) -> Shrunk:
        """Coefficients times the loadings have errors that count alike."""
        fit, white = self.views.fit, self.views.white
        gate = fit.gate * self.on_v.belief if self.views.rank else 0.0
        shrunk: Shrunk = fit.answer(self.stretch, gate=gate, metric=lambda c: c @ white, at=(self.safe, self.left_out))
        return shrunk

    @cached_property
    def M(self) -> Array:
        """At the share of the correction."""
        known, identity = self.views.fit.posterior, np.eye(self.views.rank)
        return identity + self.shrunk.share * (self.stretch.matrix(known.T.value, known.doubt) - identity)

    def coefficients(self, outcome: Outcome) -> Coefficients:
        """With the prediction of S1, R without T of what is shared: least squares on it gives coefficients stretched by M."""
        views, safe, on_v, r = self.views, self.safe, self.on_v, self.views.rank
        T, through = np.eye(r) - np.linalg.inv(self.M), safe.on_shared
        R = views.residual(views.keys[0], outcome.rows, on_v.beside)
        features = R - (R @ (safe.into @ safe.half) @ (np.linalg.inv(safe.half) @ T.T @ safe.half)) @ safe.lift.T
        return Coefficients(
            coef=self.shrunk.value,
            residualised=safe.b,
            trust=self.shrunk.share,
            features=features,
            outcome=outcome.y - (views.split(outcome.rows)[0] - features) @ through,
            covariance=added(self.own, views.white[:, :r] @ views.pair.h, -T),
            determined=views.determined(outcome.covariates),
            reduced=views.reduced,
            wanted=views.coefficients_wanted + on_v.beside - r + outcome.covariates,
            free=outcome.free,
            factor=float(self.stretch.attenuation(np.asarray(safe.m @ (self.M @ safe.m - safe.m)))),
            shared=through if on_v.goes_with else None,
            on_v=on_v,
            by=self.estimate,
            parts=self.parts,
        )

    def estimate(self, found: Coefficients, outcome: Outcome, *, grouped: bool, **_: Any) -> Estimate:
        """With errors and the identified set.

        On all columns of a wide view there are too few samples to leave some out: errors of the textbook instead, which take
        samples for independent. With groups they are not, and there is no honest error.
        """
        views, safe, shrunk, degrees = self.views, self.safe, self.shrunk, max(len(outcome.kept) - 1, 1)
        variance = shrunk.variance
        least = views.reduced and outcome.log_odds is None
        if least and self.inverse is None:
            left_out = []
            for rows in outcome.kept:
                own, y, w = found.features[rows], found.outcome[rows], outcome.weight[rows]
                centred = own - np.average(own, axis=0, weights=w), y - np.average(y, weights=w)
                left_out.append(least_squares(*centred, w))
            variance = variance + jackknife_variance(np.stack(left_out))
        elif least and self.inverse is not None:
            shared = safe.half @ (safe.lift.T @ self.inverse)
            own = self.stretch.noise * np.sum((self.inverse + safe.into @ (self.M @ shared - shared)) ** 2, axis=1)
            free = views.independent_rows - views.coefficients_wanted - 1
            degrees, variance = max(round(free), 1), variance + (np.nan if grouped or free <= 0 else own)
        ends = self.stretch.ends(safe) if views.rank else None
        return Estimate(shrunk.value, np.sqrt(variance), degrees, identified=ends, set_limits=False)

    def parts(self, outcome: Outcome) -> tuple[Estimate, Estimate]:
        """Coefficients (d,) on S2, their errors nan without any, and the shares of the outcome's variance: beta'Cov(S1) beta,
        gamma'Cov(S2) gamma and the noise's."""
        views, shared, degrees = self.views, self.safe.on_shared, max(len(outcome.kept) - 1, 1)
        error = jackknife_error(self.left_out.on_shared) if views.rank else np.full_like(shared, np.nan)

        def parts(at: tuple[Any, Safe, Array], T: Array, doubt: Array) -> Array:
            pair, safe, variance = at
            beta = self.stretch(safe, T, doubt)
            own = np.einsum("...i,...ij,...j->...", beta, pair.cov_s1(T), beta) / variance
            other = np.einsum("...i,...ij,...j->...", safe.gamma, pair.S(T), safe.gamma) / variance
            return np.stack([own, other, 1 - own - other], axis=-1)

        variance, *variances = outcome.with_rows[1]
        at = (views.pair, self.safe, variance), (views.left_out, self.left_out, np.array(variances))
        split = views.fit.answer(parts, share=self.shrunk.share, at=at)
        names = ("own part (S1)", "shared part (S2)", "unexplained")
        return Estimate(shared, error, degrees), Estimate(split.value, split.error, degrees, names)


def _of_log_odds(views: Any, coef: Array, on_v: OutcomeOnV, safe: Safe | None = None) -> Safe:
    """From log-odds (..., d + k) of R and of variates of V; safe : of all rows, where coef is without each block."""
    pair, (d, r) = views.pair if safe is None else views.left_out, views.lift_u.shape
    b, on_y = coef[..., :d], coef[..., d:][..., :r]
    if safe is not None and views.reduced:
        return safe.repeated(b)
    on_y = on_y if on_y.shape[-1] else np.zeros((*coef.shape[:-1], r))
    found = Safe.of(pair, b, on_y, on_v.share, views.independent_rows)
    return replace(found, lift=views.lift_u) if views.reduced else found


# ---- on a prediction


def residual_map(covariance: Array, columns: IntArray, outside: IntArray) -> Array:
    """(k, m): z -> what is left of these columns given those outside; covariance (k, k) of z."""
    out = np.zeros((len(covariance), len(columns)))
    out[columns, np.arange(len(columns))] = 1.0
    if len(outside):
        inner = np.linalg.pinv(covariance[np.ix_(outside, outside)], hermitian=True, rcond=_RANGE)
        out[outside] = -inner @ covariance[outside][:, columns]
    return out


def simple_map(covariance: Array, own: IntArray, partners: IntArray, outside: IntArray, rank: int, n: float) -> Array:
    """(k, d): z -> the simple prediction of a component of this rank; covariance (k, k) of z, of n independent rows.

    Columns of z : the component's own view, other views where it lives, and views where it does not.
    """
    left = residual_map(covariance, own, outside)
    if not len(partners):
        return left
    others = residual_map(covariance, partners, outside)
    white, back = whitening(left.T @ covariance @ left)
    white_others, _ = whitening(others.T @ covariance @ others)
    u, values, v = np.linalg.svd(white @ left.T @ covariance @ others @ white_others.T, full_matrices=False)
    kept = np.flatnonzero(values > _RANGE)[:rank]
    size = values[kept] + WEAK_INSTRUMENT / (n * values[kept])
    return np.asarray(others @ white_others.T @ (v[kept].T * size) @ u[:, kept].T @ back.T)


def on_features(maps: Array, covariance: Array) -> Array:
    """L (..., d, k): least squares on z maps (..., k, d) is L Cov(z, y), in the range of the maps; covariance : of z."""
    inverse = np.linalg.pinv(symmetric(maps.mT @ covariance @ maps), hermitian=True, rcond=_RANGE)
    return np.asarray(inverse @ maps.mT)


def on_prediction(
    z: Array,
    outcome: Outcome,
    frame: LinearMap,
    simple: Callable[[Array], Array],
    full: Array,
    left_out: Sequence[Array] | None,
    *,
    covariance: Array,
    lifted: Callable[[Array], Spread],
    wanted: int,
    name: str,
    residual: Callable[[Array], Array] | None = None,
) -> Coefficients:
    """z (m, k) : the outcome's rows; frame : turns the d coordinates of the component into the user's columns; simple : Cov(z)
    -> the simple prediction's map (k, d), and its name; full (k, d) : the fitted model's, and left_out : refitted without each
    block, None where it cannot be: then errors are those at the fitted one, and it is used as it is. covariance : (d, d), of
    the component as fitted; lifted : turns one into the user's columns; wanted : coefficients of least squares. residual :
    Cov(z) -> the map to R_g, where the fit does not tell the component: then the simple prediction is used."""
    table = np.column_stack([z, outcome.y])
    moments, odds = outcome.covariances(table, table), outcome.log_odds
    C, cross = moments[:, :-1, :-1], moments[:, :-1, -1:]
    refitted = left_out if left_out is not None and len(left_out) == len(C) - 1 else None
    simples = np.stack([simple(one) for one in C])
    fulls = np.stack([full, *([full] * (len(C) - 1) if refitted is None else refitted)])
    ways = on_features(simples, C), on_features(fulls, C)
    found = [(L @ cross)[..., 0] @ frame.to for L in ways]
    safe, answer = (Draws.certain(b[0], b[1:]) for b in found)
    if residual is None and (odds is not None or refitted is None):
        shrunk = Shrunk.at(safe, answer, 1.0)
    else:
        shrunk = shrink(safe, answer, float(residual is None), lambda b: b @ frame.back)

    def between(one: Array, other: Array) -> Array:
        return np.asarray((1 - shrunk.share) * one + shrunk.share * other)

    L = between(*ways)
    maps = L.mT @ np.linalg.pinv(symmetric(L @ C @ L.mT), hermitian=True, rcond=_RANGE) @ frame.back.T

    def with_errors(found: Coefficients, outcome: Outcome, *, refit: Refit | None = None, **_: Any) -> Estimate:
        """refit : of log-odds."""
        degrees = max(len(outcome.kept) - 1, 1)
        if refit is not None:
            left = [refit(z @ M, rows) for M, rows in zip(maps[1:], outcome.kept, strict=True)]
            change = np.subtract(*(refit(z @ M, np.ones(len(z), dtype=bool)) for M in (full @ frame.back.T, maps[0])))
            return Estimate(found.coef, np.sqrt(jackknife_variance(np.stack(left)) + change**2), degrees)
        if residual is None:
            return Estimate(found.coef, shrunk.error, degrees)
        (low, high), *others = [_ends(M, residual(M[:-1, :-1]), frame) for M in moments]
        errors = np.sqrt(jackknife_variance(np.stack(others)))
        nothing = np.full_like(low, np.nan)
        return Estimate(found.coef, nothing, degrees, identified=(low, high), identified_error=(errors[0], errors[1]))

    return Coefficients(
        coef=shrunk.value if odds is None else odds.coef,
        residualised=safe.value if odds is None else odds.coef,
        trust=shrunk.share,
        features=np.asarray(z @ maps[0]),
        outcome=outcome.y,
        covariance=lifted(symmetric(between(simples[0].T @ C[0] @ simples[0], covariance))),
        free=outcome.free,
        wanted=wanted + outcome.covariates,
        simple=name,
        by=with_errors,
    )


def _ends(moments: Array, left: Array, frame: LinearMap) -> Array:
    """(2, user's columns): of the identified set, b + into P m over 0 <= P <= MOST_ADDED I with m'P m no more than what is left
    of y; moments : of z and y; left (k, m) : z -> R_g."""
    covariance, cross = moments[:-1, :-1], moments[:-1, -1]
    inverse = power(symmetric(left.T @ covariance @ left), -0.5, 1e-8)
    m, into = inverse @ (left.T @ cross), frame.to.T @ inverse
    explained = float(m @ m)
    most = max(float(moments[-1, -1]) - explained, 0.0) / max(MOST_ADDED * explained, 1e-300)
    ends = range_of_products(into, m[None], most)
    return into @ m + MOST_ADDED * np.stack(ends)[..., 0]
