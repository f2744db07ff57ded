"""A mixture by matching cumulants of orders two to four, from the starts of the tensor: that alone divides by small
eigenvalues of B and is far noisier."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from richcomponents.algebra import Array, multilinear
from richcomponents.errors import DataError
from richcomponents.learning.mixture.target import Mixture, Target, pairings
from richcomponents.learning.mixture.tensor import tensor_start

__all__ = ["MomentMatching", "fit_mixture", "refine"]

_KEPT = 3  # decompositions of T that are refined; the best objective wins


class MomentMatching:
    """The objective of the refinement and its gradient.

    In coordinates x = W s with W scale W' = I, D_t the difference of the cumulants of order t of the mixture and of the target,

        F = |D_2|^2 / 2 + |D_3|^2 / 6 + |D_4|^2 / 24 - (1/n) sum_j log(k w_j).

    1/t! makes the terms the log-likelihood of nearly Gaussian cumulants up to a factor n; the last term is one
    pseudo-sample per component and keeps weights away from zero (none for exact cumulants, or with equal weights).

    Parameters of length k d + k + 1 (k d + 1 with equal weights): means in x, log-weights up to a constant, log sigma2.
    """

    def __init__(self, target: Target, k: int, *, equal_weights: bool = False, order: int = 4) -> None:
        self.k, self.equal = k, equal_weights
        values, vectors = np.linalg.eigh(target.scale)
        root = np.sqrt(np.maximum(values, 1e-10 * max(float(values[-1]), np.finfo(float).tiny)))
        self.whiten = np.asarray((vectors / root) @ vectors.T)  # W, symmetric
        self.colour = np.asarray((vectors * root) @ vectors.T)  # its inverse
        W = self.whiten
        self.metric = np.asarray(W @ W)  # covariance of the unit noise in x
        self.second = np.asarray(W @ target.covariance @ W)
        self.third = multilinear(target.third, W, W, W)
        use = order >= 4 and target.fourth is not None
        self.fourth = multilinear(target.fourth, W, W, W, W) if use and target.fourth is not None else None
        self.pseudo = 0.0 if equal_weights else 1.0 / target.n
        self.d = target.d

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
        return Mixture((means @ self.colour)[order], weights[order], sigma2, self(parameters)[0])

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


def refine(
    target: Target, start: Mixture, *, equal_weights: bool = False, order: int = 4, max_iter: int = 500
) -> Mixture:
    """Moment matching from a start, by L-BFGS."""
    objective = MomentMatching(target, start.k, equal_weights=equal_weights, order=order)
    options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}
    found = minimize(objective, objective.pack(start), jac=True, method="L-BFGS-B", options=options)
    return objective.mixture(found.x)


def fit_mixture(
    target: Target, k: int, rng: np.random.Generator, *, equal_weights: bool = False, n_init: int = 10
) -> Mixture:
    """The start whose refinement leaves the smallest objective; k <= d.

    Free weights are also tried from the solution with equal weights: at small n a light component of the start may run
    into a local minimum, two components merged.
    """
    if not 1 <= k <= target.d:
        raise DataError(
            f"{k} components in {target.d} dimensions: third-order cumulants determine at most as many components as "
            f"dimensions. Ask for n_components <= {target.d}, or add columns to the view"
        )
    starts = tensor_start(target, k, rng, n_init)[:_KEPT]
    refined = [refine(target, start, equal_weights=equal_weights) for start in starts]
    if not equal_weights and k > 1:
        even = [refine(target, start, equal_weights=True) for start in starts]
        refined.append(refine(target, min(even, key=lambda mixture: mixture.objective)))
    return min(refined, key=lambda mixture: mixture.objective)
