"""Spherical Gaussian mixtures from cumulants alone.

S = c_j + sqrt(sigma2) N(0, I) with probability w_j, j = 1..k, has the mean m = sum_j w_j c_j and, with c_j - m for c_j,

    Cov = B + sigma2 I,    B = sum_j w_j c_j c_j',
    k3  = sum_j w_j c_j (x) c_j (x) c_j,
    k4  = sum_j w_j c_j^(x4) - (the three pairings of B (x) B).

The noise enters the covariance only. Cumulants do not know m; everything here is about the centred means, and the mean
is added at the end. A start comes from B and k3 by lifting (`latent`), exact for d centres in d dimensions and without m. It
divides by small eigenvalues of B, so cumulants of orders two to four are matched from there (:class:`MomentMatching`), which
is far less noisy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import log_softmax, softmax

from richcomponents.algebra import Array, IntArray, multilinear
from richcomponents.algebra.arrays import power, symmetric, whitening
from richcomponents.components import Component, CumulantSource
from richcomponents.errors import CapacityError, DataError
from richcomponents.inference.draws import Draws, Metric, Shrunk, shrink
from richcomponents.learning.latent import latent_classes, residual_of
from richcomponents.learning.solvers import minimise, slopes

_FOLDS = 5  # of cross-validation; fewer than ten samples in one say nothing about cumulants of order three


@dataclass(frozen=True)
class Mixture:
    """means : (k, d), centred, that is weights @ means = 0; weights : (k,), decreasing; sigma2; objective : what is left of
    the moment-matching objective."""

    means: Array
    weights: Array
    sigma2: float
    objective: float = float("nan")


@dataclass(frozen=True)
class MixtureCumulants:
    """The cumulants to match.

    covariance : (d, d), positive semi-definite; third : (d, d, d); fourth : (d, d, d, d) or None (not used);
    scale : (d, d), the covariance in whose units residuals count: that of the samples the cumulants were read from;
    n : number of those samples, inf for exact cumulants.
    """

    covariance: Array
    third: Array
    fourth: Array | None
    scale: Array
    n: float = float("inf")

    @property
    def d(self) -> int:
        return len(self.covariance)

    @classmethod
    def of(cls, component: Component) -> MixtureCumulants:
        """From a component; the fourth order is left out where it does not fit in memory or was not kept."""
        source = component.source
        fourth: Array | None = None
        if source is None or source.max_order >= 4:
            with suppress(CapacityError, DataError):
                fourth = component.cumulant(4)
        n = float("inf") if source is None else float(source.n)
        third, scale = component.cumulant(3), positive_part(residual_of(component).covariance)
        return cls(positive_part(component.covariance), third, fourth, scale, n)

    @classmethod
    def without(cls, component: Component, gone: Sequence[int], whole: MixtureCumulants) -> MixtureCumulants:
        """Those of the component without some blocks: same maps, same weights of the alternatives, in the units of the whole.
        The covariance moves as :meth:`Component.measured_on` says."""
        source = component.source
        assert source is not None
        rest = CumulantSource(source.moments.without(gone), unbiased=source.unbiased)
        less = component.measured_on(rest, 3 if whole.fourth is None else 4)
        fourth = None if whole.fourth is None else less.cumulant(4)
        return cls(positive_part(less.covariance), less.cumulant(3), fourth, whole.scale, float(rest.n))


def positive_part(covariance: Array) -> Array:
    """The nearest positive semi-definite matrix, in units in which the columns have variance one."""
    scale = np.sqrt(np.abs(np.diag(covariance)))
    units = np.outer(scale, scale)
    correlation = np.divide(covariance, units, out=np.zeros_like(units), where=units > 0)
    return np.asarray(power(symmetric(correlation), 1.0, 0.0) * units)


def pairings(B: Array) -> Array:
    """B_ab B_cd + B_ac B_bd + B_ad B_bc, shape (d, d, d, d)."""
    outer = np.multiply.outer(B, B)
    return np.asarray(outer + outer.transpose(0, 2, 1, 3) + outer.transpose(0, 3, 2, 1))


def posterior(points: Array, means: Array, weights: Array, within: Array) -> Array:
    """P(j | x) (n, k) for points (n, d), components N(means_j, within), within : (d, d)."""
    white = whitening(within)[0].T
    x, c = points @ white, means @ white
    return np.asarray(softmax(np.log(weights) + x @ c.T - np.sum(c**2, axis=1) / 2, axis=1))


def match_centres(found: Array, truth: Array) -> tuple[IntArray, float]:
    """The order of `found` (k, d) that comes nearest to `truth` (k, d), and the mean squared error in it.

    >>> order, error = match_centres(np.array([[2.0], [0.0]]), np.array([[0.0], [2.0]]))
    >>> order.tolist(), error
    ([1, 0], 0.0)
    """
    cost = np.mean((truth[:, None] - found[None]) ** 2, axis=2)
    rows, columns = linear_sum_assignment(cost)
    return columns.astype(np.int64), float(cost[rows, columns].mean())


def noise_variance(covariance: Array, k: int) -> float:
    """sigma2: k centred means span k - 1 directions; in the other d - k + 1 there is noise only, and it is their mean."""
    lowest = np.linalg.eigvalsh(covariance)[: len(covariance) - k + 1]
    return float(max(lowest.mean(), 0.0))


# ---- matching cumulants


class MomentMatching:
    """The objective of the refinement and its gradient.

    In coordinates x = W's with W'scale W = I, D_t the difference of the cumulants of order t of the mixture and of the target,

        F = |D_2|^2 / 2 + |D_3|^2 / 6 + |D_4|^2 / 24 - (1/n) sum_j log(k w_j).

    1/t! makes the terms the log-likelihood of nearly Gaussian cumulants up to a factor n; the last term is one
    pseudo-sample per component and keeps weights away from zero (none for exact cumulants, or with equal weights).

    Parameters of length k d + k + 1 (k d + 1 with equal weights): means in x, log-weights up to a constant, log sigma2.
    """

    def __init__(self, target: MixtureCumulants, k: int, *, equal_weights: bool = False) -> None:
        self.k, self.equal = k, equal_weights
        into, self.colour = whitening(target.scale)  # (q, d), and back; q = d, but for columns that others determine
        self.whiten = W = into.T
        self.metric = np.asarray(W.T @ W)  # covariance of the unit noise in x
        self.second = np.asarray(W.T @ target.covariance @ W)
        self.third = multilinear(target.third, W, W, W)
        self.fourth = None if target.fourth is None else multilinear(target.fourth, W, W, W, W)
        self.pseudo = 0.0 if equal_weights else 1.0 / target.n
        self.d = W.shape[1]

    def pack(self, mixture: Mixture) -> Array:
        logs = np.zeros(0) if self.equal else np.log(mixture.weights)
        tiny = 1e-6 * np.trace(self.second) / np.trace(self.metric)
        return np.concatenate([(mixture.means @ self.whiten).ravel(), logs, [np.log(max(mixture.sigma2, tiny))]])

    def unpack(self, parameters: Array) -> tuple[Array, Array, float]:
        """means (k, d) in x, centred; weights (k,); sigma2."""
        k, d = self.k, self.d
        means = parameters[: k * d].reshape(k, d)
        weights = np.full(k, 1 / k) if self.equal else softmax(parameters[k * d : -1])
        return means - weights @ means, weights, float(np.exp(np.clip(parameters[-1], -50.0, 50.0)))

    def mixture(self, parameters: Array) -> Mixture:
        means, weights, sigma2 = self.unpack(parameters)
        order = np.argsort(-weights, kind="stable")
        return Mixture((means @ self.colour.T)[order], weights[order], sigma2, self(parameters)[0])

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """F and its gradient.

        With P = D_2 - D_4(B) / 2, D_4(B)_ab = sum_ce D_4_abce B_ce: dF/dc_j = w_j [2 P c_j + D_3(c_j, c_j) +
        D_4(c_j, c_j, c_j) / 3], dF/dw_j = c_j'P c_j + D_3(c_j^3) / 3 + D_4(c_j^4) / 12, then the chain through the
        centring of the means and the softmax.
        """
        c, w, sigma2 = self.unpack(parameters)
        k, d = self.k, self.d
        squares = (c[:, :, None] * c[:, None, :]).reshape(k, d * d)
        B = (w * c.T) @ c
        D2 = B + sigma2 * self.metric - self.second
        D3 = ((w * squares.T) @ c).reshape(d, d, d) - self.third
        value = np.sum(D2**2) / 2 + np.sum(D3**2) / 6
        by_third = squares @ D3.reshape(d * d, d)  # D3(c_j, c_j, .)
        P = D2
        by_mean = by_third
        by_weight = np.sum(by_third * c, axis=1) / 3
        if self.fourth is not None:
            D4 = ((w * squares.T) @ squares).reshape(d, d, d, d) - pairings(B) - self.fourth
            value += np.sum(D4**2) / 24
            flat = D4.reshape(d * d, d * d)
            cubes = np.einsum("ja,jab->jb", c, (squares @ flat).reshape(k, d, d))  # D4(c_j, c_j, c_j, .)
            P = P - (flat @ B.ravel()).reshape(d, d) / 2
            by_mean = by_mean + cubes / 3
            by_weight = by_weight + np.sum(cubes * c, axis=1) / 12
        through = c @ P
        by_mean = w[:, None] * (2 * through + by_mean)
        by_weight = by_weight + np.sum(through * c, axis=1)
        total = by_mean.sum(axis=0)  # c_j = m_j - sum_i w_i m_i
        gradient = np.zeros(len(parameters))
        gradient[: k * d] = (by_mean - w[:, None] * total).ravel()
        if not self.equal:
            by_weight = by_weight - c @ total
            gradient[k * d : -1] = w * (by_weight - w @ by_weight) + self.pseudo * (k * w - 1)
            value -= self.pseudo * float(np.sum(log_softmax(parameters[k * d : -1]) + np.log(k)))
        gradient[-1] = sigma2 * np.sum(D2 * self.metric)
        return float(value), gradient


def fit_mixture(
    target: MixtureCumulants, k: int, rng: np.random.Generator, *, equal_weights: bool = False, n_init: int = 10
) -> Mixture:
    """Moment matching, by L-BFGS, from the decompositions of the lifted tensor: the one that leaves the least; k <= d.

    Free weights are also tried from the solution with equal weights: at small n a light component of the start may run
    into a local minimum, two components merged.
    """
    d = target.d
    if not 1 <= k <= d:
        raise DataError(
            f"{k} components in {d} dimensions: third-order cumulants determine at most as many components as "
            f"dimensions. Ask for n_components <= {d}, or add columns to the view"
        )
    sigma2 = noise_variance(target.covariance, k)
    starts = [Mixture(np.zeros((1, d)), np.ones(1), sigma2)]
    if k > 1:
        between = target.covariance - sigma2 * np.eye(d)
        classes = latent_classes(
            between, lambda W: multilinear(target.third, W, W, W), k, rng, centred=True, n_init=n_init
        )
        starts = [Mixture(one.vectors, one.weights, sigma2) for one in classes]

    def matched(start: Mixture, equal: bool) -> Mixture:
        objective = MomentMatching(target, k, equal_weights=equal)
        end = minimise(objective, objective.pack(start), maxiter=500, maxcor=20, ftol=1e-12, gtol=1e-9)
        return objective.mixture(end)

    def least(mixtures: list[Mixture]) -> Mixture:
        return min(mixtures, key=lambda mixture: mixture.objective)

    refined = [matched(start, equal_weights) for start in starts]
    if not equal_weights and k > 1:
        refined.append(matched(least([matched(start, True) for start in starts]), False))
    return least(refined)


# ---- what blocks of samples say


def choose_components(
    component: Component, rng: np.random.Generator, *, equal_weights: bool = False, n_init: int = 5
) -> tuple[int, dict[int, float]]:
    """k by cross-validation over blocks of samples, and the criterion of each candidate.

    A mixture with k components is fitted to the cumulants of all folds but one (all maps held fixed), and
    its distance F (:class:`MomentMatching`) to the cumulants of that fold is taken. k is the smallest whose mean distance
    is within one standard error, of the difference over folds, of the best. Where there are no blocks (exact cumulants): the
    smallest k whose F is within one thousandth of that of one component of the best.
    """
    sizes, source, whole = range(1, len(component.mean) + 1), component.source, MixtureCumulants.of(component)
    if len(sizes) == 1 or whole.n < 10 * _FOLDS:
        return 1, {1: float("nan")}
    options = {"equal_weights": equal_weights, "n_init": n_init}
    if source is None or len(source.blocks) < 2 * _FOLDS:
        distance = np.array([[fit_mixture(whole, k, rng, **options).objective for k in sizes]])  # type: ignore[arg-type]
        allowed = 1e-3 * distance[0, 0]
    else:
        distance = np.zeros((_FOLDS, len(sizes)))
        for fold in range(_FOLDS):
            held = source.blocks[fold::_FOLDS]
            train = MixtureCumulants.without(component, held, whole)
            test = MixtureCumulants.without(component, [b for b in source.blocks if b not in held], whole)
            for k in sizes:
                objective = MomentMatching(replace(test, n=float("inf")), k)
                mixture = fit_mixture(train, k, rng, **options)  # type: ignore[arg-type]
                distance[fold, k - 1] = objective(objective.pack(mixture))[0]
    mean = distance.mean(axis=0)
    excess = distance - distance[:, [mean.argmin()]]
    if len(distance) > 1:
        allowed = excess.std(axis=0, ddof=1) / np.sqrt(len(distance))
    chosen = int(np.flatnonzero(excess.mean(axis=0) <= allowed)[0])
    return sizes[chosen], {k: float(mean[k - 1]) for k in sizes}


def draws_of(component: Component, mixture: Mixture, covariance: Draws | None, *, equal_weights: bool = False) -> Draws:
    """Means, weights and sigma2, side by side (k d + k + 1,), of a mixture that was matched to a component: without each block
    of samples, and over the posterior of what is shared.

    Parameters move by one Newton step, theta - H^-1 (gradient at the other cumulants), H by differences. covariance : of the
    component; None: by blocks as :meth:`Component.measured_on` says, at the maps of all rows. Those of cumulants of order
    three and four are held in any case.
    """
    whole, source = MixtureCumulants.of(component), component.source
    left_out = [MixtureCumulants.without(component, [b], whole) for b in ([] if source is None else source.blocks)]
    if covariance is None:
        covariance = Draws.certain(whole.covariance, np.stack([target.covariance for target in left_out]))
    whole = replace(whole, covariance=covariance.value)
    objective = MomentMatching(whole, len(mixture.weights), equal_weights=equal_weights)
    theta = objective.pack(mixture)
    H = symmetric(slopes(lambda at: objective(at)[1], theta, 1e-5))
    inverse = np.linalg.pinv(H, hermitian=True, rcond=1e-6)  # shifts of all means, or all log-weights, change nothing

    def near(target: MixtureCumulants, covariance: Array) -> Array:
        other = MomentMatching(replace(target, covariance=covariance), objective.k, equal_weights=equal_weights)
        means, weights, sigma2 = objective.unpack(theta - inverse @ (other(theta)[1] - objective(theta)[1]))
        return np.concatenate([(means @ objective.colour.T).ravel(), weights, [sigma2]])

    blocks = [near(target, C) for target, C in zip(left_out, covariance.blocks, strict=True)]
    drawn = [near(whole, C) for C in covariance.posterior]
    return Draws(near(whole, whole.covariance), np.stack(blocks), np.stack(drawn), covariance.weight)


def protect(
    component: Component,
    simple: Mixture,
    mixture: Mixture,
    end: Draws,
    draws: tuple[Draws, Draws, Array, float],
    *,
    equal_weights: bool = False,
) -> tuple[Mixture, Array]:
    """The mixture between those of the residual and of the component, labels matched, and the errors of its means, weights and
    sigma2, side by side (k d + k + 1,). Each of the three is an answer of its own; means count in units of the residual.

    end : of `mixture`; draws : safe and full ones of the covariance, changes of the mean, and the gate.
    """
    safe, _, _, gate = draws
    order, white = match_centres(simple.means, mixture.means)[0], whitening(safe.value)[0]
    simple = replace(simple, means=simple.means[order], weights=simple.weights[order])
    certain = Draws.certain(safe.value, safe.blocks)
    start = draws_of(residual_of(component), simple, certain, equal_weights=equal_weights)

    def in_white_units(means: Array) -> Array:
        return np.asarray(means.reshape(*means.shape[:-1], *mixture.means.shape) @ white.T)

    def answer(places: slice, metric: Metric = np.asarray) -> Shrunk:
        return shrink(start.map(lambda p: p[..., places]), end.map(lambda p: p[..., places]), gate, metric)

    (k, d), size = mixture.means.shape, mixture.means.size
    answers = answer(slice(0, size), in_white_units), answer(slice(size, -1)), answer(slice(-1, None))
    flat, weights, (sigma2,) = (one.value for one in answers)
    means, order = flat.reshape(k, d), np.argsort(-weights, kind="stable")
    means = means - weights @ means
    places = np.concatenate([np.arange(size).reshape(k, d)[order].ravel(), size + order, [size + k]])
    found = replace(mixture, means=means[order], weights=weights[order], sigma2=float(sigma2))
    return found, np.concatenate([one.error for one in answers])[places]
