"""Logistic regression on a hidden component: P(y = 1 | s) = sigmoid(a + theta's), without samples of s.

From moments of the component, Cov(s, y) and E[y] alone: a law of theta's with the right variance and fourth cumulant
(:func:`mixture_objective`), for strong signal too. From rows, by regression calibration: `glm`. The sigmoid replaced by a
polynomial: `richcomponents.paper.gradient`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logit

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.components import Component, CumulantSource
from richcomponents.learning.families import Logistic
from richcomponents.learning.solvers import minimise


def whitener(covariance: Array, ridge: float = 0.0) -> Array:
    """(covariance + ridge I)^(-1/2), (d, k), without the directions that hardly vary."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = values + ridge
    top = max(float(values[-1]), 1e-300)
    keep = values > 1e-8 * top
    return np.asarray(vectors[:, keep] / np.sqrt(np.maximum(values[keep], 1e-6 * top)))


# ---- strong signal: the law of theta'S1 from its variance and fourth cumulant

Objective = Callable[[float, Array], tuple[float, float, Array]]
"""(a, theta) -> value, derivative by a, gradient by theta (d,); to be minimised."""

_GRID = np.linspace(-8.0, 8.0, 321)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


def _mean_softplus(a: float, variance: float, excess: float) -> float:
    """E[log(1 + exp(a + z))] for a symmetric law with this variance and excess kurtosis (clipped to [-1.8, 2.5]).

    excess < 0: z = +-sqrt(tau v) + N(0, (1 - tau) v), tau = sqrt(-excess / 2);
    excess > 0: half N(0, v (1 + rho)), half N(0, v (1 - rho)), rho = sqrt(excess / 3).
    """
    excess = min(max(excess, -1.8), 2.5)
    if excess <= 0:
        tau = np.sqrt(-excess / 2)
        shift, scale = np.sqrt(tau * variance), np.sqrt((1 - tau) * variance)
        z = np.concatenate([shift + scale * _GRID, -shift + scale * _GRID])
    else:
        rho = np.sqrt(excess / 3)
        z = np.concatenate([np.sqrt(variance * (1 + rho)) * _GRID, np.sqrt(variance * (1 - rho)) * _GRID])
    values = np.logaddexp(0.0, a + z).reshape(2, -1)
    return float(values.mean(axis=0) @ _WEIGHTS)


def mixture_objective(
    covariance: Array, fourth: Callable[[Array], Array], cross: Array, mean: float, alpha: float = 0.0
) -> Objective:
    """E[log(1 + exp(a + z))] - a E[y] - theta'E[s y] + alpha/2 |theta|^2; z has the variance and k4 of theta's.

    covariance : (d, d) of s; fourth(theta) : k4(s, w, w, w), (d,); cross : Cov(s, y), (d,); mean : E[y].
    Chain rule with dv = 2 Cov theta and dk4 = 4 k4(s, w, w, w).
    """

    def objective(a: float, theta: Array) -> tuple[float, float, Array]:
        forward = covariance @ theta
        variance = max(float(theta @ forward), 1e-10)
        vector = fourth(theta)
        k4 = float(theta @ vector)

        def f(a: float, v: float, k: float) -> float:
            return _mean_softplus(a, v, k / v**2)

        da, dv, dk = 1e-4, 1e-4 * variance, 1e-3 * variance**2
        by_a = (f(a + da, variance, k4) - f(a - da, variance, k4)) / (2 * da)
        by_v = (f(a, variance + dv, k4) - f(a, variance - dv, k4)) / (2 * dv)
        by_k = (f(a, variance, k4 + dk) - f(a, variance, k4 - dk)) / (2 * dk)
        value = f(a, variance, k4) - a * mean - float(theta @ cross) + alpha * float(theta @ theta) / 2
        slope = 2 * by_v * forward + 4 * by_k * vector - cross + alpha * theta
        return value, by_a - mean, slope

    return objective


def from_cumulants(
    component: Component, cross: Array, mean: float, *, alpha: float = 0.0, fit_intercept: bool = True
) -> tuple[float, Array]:
    """(a, theta) from an extracted component, cross = Cov(s, y) (d,) and mean = E[y] alone; a at the component's mean.

    The start is regression calibration with nothing known of s but its covariance: with w = E[y] (1 - E[y]) the linear
    coefficients g = (w Cov + alpha I)^-1 cross are attenuated by the whole spread of g's, theta = g / sqrt(1 - k g'Cov g).
    It is then refined to the law of theta's with the fourth cumulant as far as the blocks trust it (without: Gaussian).
    """
    weight = mean * (1 - mean)
    root = whitener(component.covariance, alpha / weight)
    linear = root @ (root.T @ cross) / weight
    factor = float(Logistic().attenuation(linear @ component.covariance @ linear))
    start = (factor * float(logit(mean)) if fit_intercept else 0.0, factor * linear)
    share = fourth_share(component, start[1])
    return _matched(component, component.covariance, cross, mean, start, alpha, share, fit_intercept)


def fourth_share(component: Component, theta: Array) -> float:
    """How much of k4(theta's) is believed: max(0, 1 - Var(k4) / k4^2), the variance over left-out blocks."""
    return believed(component, lambda source: np.atleast_1d(theta @ component.projected_on(source, theta, 4)))


def believed(component: Component, function: Callable[[CumulantSource], Array]) -> float:
    """How much of a function (k,) of a component's cumulants, up to order four, to believe: max(0, 1 - Var / |.|^2), the
    variance over left-out blocks."""
    source = component.source
    if source is None or source.max_order < 4 or len(source.blocks) < 2:
        return 0.0
    return above_noise(function(source), np.stack([function(source.without_block(block)) for block in source.blocks]))


def above_noise(value: Array, without: Array) -> float:
    """The share of a value (k,) that stands above its noise: max(0, 1 - Var / |.|^2); without (B, k) : without each block."""
    return max(0.0, 1 - float(np.sum(jackknife_variance(without))) / max(float(np.sum(value**2)), 1e-300))


def match_tilt(
    component: Component, covariance: Array, tilt: Array, start: Array, without: tuple[Array, Array]
) -> tuple[Array, Array]:
    """theta (d,) of a log link whose S1 has the cumulants of the component, grad K(theta) = tilt; how far it may be off (d,).

    without : tilt and start (B, d) of the rows without each block.

    Where E[y | s] = exp(a + theta's), Cov(s, y) / E[y] = E[s exp(theta's)] / E[exp(theta's)] - E[s] = grad K(theta), with K the
    logarithm of E[exp(theta'(s - E s))], whatever the law of s. The residual R is S1 and something independent of S1 and y, so
    that Cov(R, y) / E[y] is the same: tilt. K is taken up to order four,

        grad K(theta) = Cov theta + k3(s, w, w) / 2 + k4(s, w, w, w) / 6,    w = theta's,

    and of the solution as much is proposed as the blocks believe in the last two terms at the start: regression calibration,
    which takes S1 for Gaussian. The proposal is followed only as far as rows and cumulants contradict the start: by the share
    of grad K(start) - tilt, in the metric of Cov^-1, above its noise, that of the tilt and of the start included. Rows
    with large counts make the tilt noisier than the fit, and K of few rows may be so flat that its solution is far away.
    Orders beyond four are left out: of an exponential S1 grad K is theta + theta^2 + theta^3 + ...,
    which at theta = .6 is 1.5 and 1.18 up to order four. How far order four moved theta says how much the next ones may;
    that, and what was not followed, is how far theta may be off.
    """
    source, nothing = component.source, np.zeros_like(start)
    if source is None or source.max_order < 4 or not 1 < len(source.blocks) == len(without[0]):
        return start, nothing

    def bend(source: CumulantSource, theta: Array) -> Array:
        return np.asarray(component.projected_on(source, theta, 3) / 2 + component.projected_on(source, theta, 4) / 6)

    share = believed(component, lambda source: bend(source, start))
    if not share:
        return start, nothing
    limit = 2 * max(float(start @ covariance @ start), 1e-12)  # K of order four may have no minimum

    def solved(most: int) -> Array:
        """With K up to this order."""

        def objective(_: float, theta: Array) -> tuple[float, float, Array]:
            second = covariance @ theta
            third, fourth = (component.projected_on(source, theta, t) if t <= most else 0.0 * theta for t in (3, 4))
            value = float(theta @ (second / 2 + third / 6 + fourth / 24 - tilt))
            return value, 0.0, second + third / 2 + fourth / 6 - tilt

        return np.asarray(confined_minimum(objective, covariance, limit, edge=0.0, start=(0.0, start))[1])

    root = whitener(covariance)

    def contradiction(source: CumulantSource, tilt: Array, theta: Array) -> Array:
        return np.asarray((covariance @ theta + bend(source, theta) - tilt) @ root)

    left_out = [contradiction(source.without_block(b), *one) for b, *one in zip(source.blocks, *without, strict=True)]
    followed = above_noise(contradiction(source, tilt, start), np.stack(left_out))
    found = solved(4)
    proposed, last = share * (found - start), share * (found - solved(3))
    return np.asarray(start + followed * proposed), np.hypot(last, (1 - followed) * proposed)


def _matched(
    component: Component,
    covariance: Array,
    cross: Array,
    mean: float,
    start: tuple[float, Array],
    alpha: float,
    share: float,
    fit_intercept: bool = True,
) -> tuple[float, Array]:
    """theta'Cov theta stays below max(4, 3 v) and |a| below 2 max(2, sqrt(v), |a|), of the start, v its theta'Cov theta."""
    a, theta = start
    variance = float(theta @ covariance @ theta)

    def fourth(point: Array) -> Array:
        return share * component.projected_cumulant(point, 4) if share else np.zeros_like(point)

    centred = mixture_objective(covariance, fourth, cross, mean, alpha)

    def through_mean(_: float, theta: Array) -> tuple[float, float, Array]:
        """No intercept: a = theta'E[s]."""
        value, by_a, by_theta = centred(float(theta @ component.mean), theta)
        return value, 0.0, by_theta + by_a * component.mean

    limit = max(4.0, 3 * variance)
    if not fit_intercept:
        return confined_minimum(through_mean, covariance, limit, edge=0.0, start=start)
    edge = 2 * max(2.0, float(np.sqrt(variance)), abs(a))
    return confined_minimum(centred, covariance, limit, edge=edge, start=start)


def confined_minimum(
    objective: Objective,
    covariance: Array,
    limit: float,
    *,
    edge: float,
    start: tuple[float, Array],
) -> tuple[float, Array]:
    """(a, theta) minimising the objective subject to theta'Cov theta <= limit and |a| <= edge (0: no intercept).

    theta = Cov^(-1/2) rho tanh(|q| / rho) q / |q| with rho^2 = limit: smooth in q (d,), which is free.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    top = max(float(values[-1]), 1e-300)
    keep = values > 1e-8 * top
    root = vectors[:, keep] / np.sqrt(np.maximum(values[keep], 1e-6 * top))  # (d, k)
    rho = float(np.sqrt(limit))

    def mapped(q: Array) -> tuple[Array, float, float]:
        length = float(np.linalg.norm(q)) + 1e-12
        squeezed = rho * np.tanh(length / rho) / length
        return root @ (squeezed * q), length, float(squeezed)

    def wrapped(z: Array) -> tuple[float, Array]:
        theta, length, squeezed = mapped(z[1:])
        value, by_a, by_theta = objective(float(z[0]), theta)
        inner, unit = root.T @ by_theta, z[1:] / length
        along = float(unit @ inner)
        slope = squeezed * (inner - unit * along) + unit * along * (1 - np.tanh(length / rho) ** 2)
        return value, np.concatenate([[by_a if edge else 0.0], slope])

    z0 = np.zeros(1 + int(keep.sum()))
    z0[0] = min(max(start[0], -edge), edge)
    inside = (vectors[:, keep] * np.sqrt(values[keep])).T @ start[1]
    length = float(np.linalg.norm(inside)) + 1e-12
    z0[1:] = inside / length * rho * np.arctanh(min(length / rho, 0.99))
    found = minimise(wrapped, z0, bounds=[(-edge, edge)] + [(None, None)] * (len(z0) - 1))
    return float(found[0]), mapped(found[1:])[0]
