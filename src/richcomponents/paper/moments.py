"""Section 4.1 and its experiments in Section 5: models that need only moments of S1. PCA, least squares, mixtures of Gaussians.

Nothing is shrunk. The mixture needs a positive definite second moment to whiten with: a negative sigma^2 counts as zero, and
eigenvalues of M2 below 1e-8 of the largest count as that.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, multilinear, symmetrise
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.learning.mixture import Mixture, MixtureCumulants
from richcomponents.paper.contrastive import Extraction

_FOUND = 0.5  # squared residual below which no term is missing: in whitened coordinates each has the squared size 1 / w_j >= 1
_MORE_STARTS = 10  # times n_init, while a term is missing


def contrastive_pca(s1: Extraction) -> Array:
    """Contrastive PCA (Section 5): the top direction (d,) of E[S1 S1'].

    Examples
    --------
    >>> from richcomponents import paper
    >>> S1 = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> abs(paper.contrastive_pca(paper.true_samples(S1))).round(1).tolist()
    [1.0, 0.2]
    """
    return np.asarray(np.linalg.eigh(s1.second)[1][:, -1])


def contrastive_regression(s1: Extraction, y: Array) -> Array:
    """Contrastive regression (Section 4.1): beta (d,) = E[S1 S1']^-1 E[Y S1], E[Y S1] = E[Y U] since Y is independent of S2.

    Examples
    --------
    >>> from richcomponents import paper
    >>> S1 = np.array([[0.0], [1.0], [2.0]])
    >>> paper.contrastive_regression(paper.true_samples(S1), np.array([1.0, 3.0, 5.0])).round(6).tolist()
    [2.0]
    """
    return least_squares(s1.second, s1.U.T @ y / (len(y) - 1))


def least_squares(second: Array, with_y: Array) -> Array:
    """beta = E[X X']^-1 E[Y X], (d,); the pseudo-inverse where X has fewer directions than coordinates."""
    return np.asarray(np.linalg.pinv(second, hermitian=True) @ with_y)


def contrastive_mixture(s1: Extraction, k: int, *, random_state: int = 0) -> Array:
    """Contrastive mixture: centres (k, d) of equally likely spherical Gaussians, by alternating minimisation on the third-order
    moment: one start, ten where a centre is missing, and a hundred steps of each (fifty times the work gains nothing).

    Examples
    --------
    >>> from richcomponents import paper
    >>> rng = np.random.default_rng(0)
    >>> S1 = np.eye(2)[rng.integers(2, size=4000)] + rng.normal(size=(4000, 2)) / 10
    >>> centres = paper.contrastive_mixture(paper.true_samples(S1), 2)
    >>> bool(np.abs(np.sort(centres, axis=0) - [[0, 0], [1, 1]]).max() < 0.05)
    True
    """
    target, rng = MixtureCumulants(s1.second, s1.cumulant(3), None, s1.second), np.random.default_rng(random_state)
    found = alternating_minimisation(target, s1.mean, k, rng, equal_weights=True, n_init=1, max_iter=100)
    return np.asarray(found.means + s1.mean)


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
