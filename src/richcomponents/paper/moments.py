"""Section 4.1 and its experiments in Section 5: models that need only moments of S1. PCA, least squares, mixtures of Gaussians.

Comes in: moments of a component, as extracted. Nothing is shrunk, and nothing is projected to what is possible.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, multilinear, symmetrise
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.learning.mixture import Mixture, MixtureCumulants

_FOUND = 0.5  # squared residual below which no term is missing: in whitened coordinates each has the squared size 1 / w_j >= 1
_MORE_STARTS = 10  # times n_init, while a term is missing


def principal_components(second: Array, k: int) -> Array:
    """The top eigenvectors of E[S1 S1'] (d, d), as rows (k, d): the directions of most variance.

    >>> principal_components(np.diag([1.0, 3.0]), 1).round(6).tolist()
    [[0.0, 1.0]]
    """
    return np.asarray(np.linalg.eigh(second)[1][:, ::-1][:, :k].T)


def least_squares(second: Array, with_y: Array) -> Array:
    """beta = E[X X']^-1 E[Y X], (d,); the pseudo-inverse where X has fewer directions than coordinates."""
    return np.asarray(np.linalg.pinv(second, hermitian=True) @ with_y)


def alternating_minimisation(
    target: MixtureCumulants,
    mean: Array,
    k: int,
    rng: np.random.Generator,
    *,
    equal_weights: bool = False,
    n_init: int = 10,
    max_iter: int = 1000,
) -> Mixture:
    """Alternating least squares on the third-order moment (paper, Section 5; Hsu and Kakade 2013; Kolda and Bader 2009).

    M2 = E[S S'] - sigma2 I = sum_j w_j c_j c_j' and M3 = E[S^(x3)] - sigma2 (m (x) I, three ways) = sum_j w_j c_j^(x3) with
    the means NOT centred: they must be independent, and m, which is known by a convention only, enters. With W'M2 W = I the
    tensor M3(W, W, W) = sum_j w_j^(-1/2) z_j^(x3) is fitted as sum_j a_j (x) b_j (x) e_j, one factor at a time, and
    c_j = W^-1 z_j w_j^(-1/2). sigma2 is the smallest eigenvalue of the covariance.

    Many starts end with two terms on one z_j and another z_j lost, even for an exact tensor; the residual tells, since a lost
    term leaves 1 / w_j. So: new starts until it has fallen below that, ten times n_init at most, then a warning. All
    three factors start from one random orthogonal matrix, as the z_j are one (random vectors lose a term far more often).
    """
    d = target.d
    sigma2 = float(max(np.linalg.eigvalsh(target.covariance)[0], 0.0))
    B = target.covariance - sigma2 * np.eye(d)
    M3 = target.third + 3 * symmetrise(np.multiply.outer(mean, B)) + np.einsum("a,b,c->abc", mean, mean, mean)
    values, vectors = np.linalg.eigh(B + np.outer(mean, mean))  # M2
    top = np.maximum(values[d - k :], 1e-8 * values[-1])
    W, back = vectors[:, d - k :] / np.sqrt(top), (vectors[:, d - k :] * np.sqrt(top)).T
    flat = multilinear(M3, W, W, W).reshape(k, k * k)
    best: tuple[float, Array, Array] | None = None
    for _ in range(_MORE_STARTS * n_init):
        factors = [np.linalg.qr(rng.normal(size=(k, k)))[0]] * 3
        left = np.inf
        for _ in range(max_iter):
            for i in range(3):
                one, two = _unit_rows(factors[i - 2]), _unit_rows(factors[i - 1])
                products = (one[:, :, None] * two[:, None, :]).reshape(k, k * k)
                gram = (one @ one.T) * (two @ two.T) + 1e-10 * np.eye(k)
                factors[i] = np.asarray(np.linalg.solve(gram, products @ flat.T), dtype=np.float64)
            before, left = left, float(np.sum((factors[2].T @ products - flat) ** 2))
            if before - left <= 1e-12 * float(np.sum(flat**2)):
                break
        if best is None or left < best[0]:
            sign = np.where(np.sum(one * two, axis=1) < 0, -1.0, 1.0)  # a = +-z, b = +-z: e has the product of signs
            best = (left, _unit_rows(factors[2]) * sign[:, None], np.linalg.norm(factors[2], axis=1))
        if left < _FOUND:
            break
    assert best is not None
    residual, z, size = best
    if not residual < _FOUND:
        warn_user(
            f"alternating minimisation leaves {residual:.3g} of the whitened third moment after {_MORE_STARTS * n_init} starts"
            ", and a component accounts for 1 or more: one may be lost, or the moments are too noisy to tell. Use "
            "method='auto', fewer components, or a larger n_init",
            SpecificationWarning,
        )
    weights = np.full(k, 1 / k) if equal_weights else np.clip(1 / np.maximum(size, 1e-300) ** 2, 0.1 / k, 1.0)
    weights = weights / weights.sum()
    means = (z / np.sqrt(weights)[:, None]) @ back
    order = np.argsort(-weights, kind="stable")
    centred = means - weights @ means
    return Mixture(centred[order], weights[order], sigma2, residual)


def _unit_rows(matrix: Array) -> Array:
    return np.asarray(matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-300))
