"""A start for a mixture, from covariance and third cumulant: lifting and the power method; the paper's alternating way.

The k centred means are dependent (they span k - 1 directions), but the lifted vectors (c_j, 1) are not: with W' B W = I the
vectors z_j = sqrt(w_j) (W'c_j, 1) are orthonormal in R^k, and

    T = sum_j w_j^(-1/2) z_j (x) z_j (x) z_j    has    T_abc = k3(W, W, W)_abc,  T_ab0 = delta_ab,  T_a00 = 0,  T_000 = 1:

known from Cov and k3, decomposed by the power method, exact for d centres in d dimensions and without m.
"""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array, multilinear, symmetrise
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.learning.mixture.target import Mixture, Target

__all__ = [
    "alternating_minimisation",
    "lifted_tensor",
    "noise_variance",
    "orthogonal_decomposition",
    "tensor_start",
]

_FOUND = 0.5  # squared residual below which no term is missing: in whitened coordinates each has the squared size 1 / w_j >= 1
_MORE_STARTS = 10  # times n_init, while a term is missing
_FLOOR = 0.003  # eigenvalues of B below this share of the largest of Cov are noise: whitening would blow them up


def noise_variance(covariance: Array, k: int) -> float:
    """sigma2: k centred means span k - 1 directions; in the other d - k + 1 there is noise only, and it is their mean."""
    lowest = np.linalg.eigvalsh(covariance)[: len(covariance) - k + 1]
    return float(max(lowest.mean(), 0.0))


def lifted_tensor(covariance: Array, third: Array, k: int) -> tuple[Array, Array]:
    """T (k, k, k), the last coordinate being the lifted one, and the map (k - 1, d) from W'c back to c."""
    values, vectors = np.linalg.eigh(covariance)
    sigma2, d = noise_variance(covariance, k), len(covariance)
    top = np.maximum(values[d - k + 1 :] - sigma2, _FLOOR * values[-1])
    basis = vectors[:, d - k + 1 :]
    W = basis / np.sqrt(top)
    T = np.zeros((k, k, k))
    T[: k - 1, : k - 1, : k - 1] = multilinear(third, W, W, W)
    i = np.arange(k - 1)
    T[i, i, k - 1] = T[i, k - 1, i] = T[k - 1, i, i] = 1.0
    T[k - 1, k - 1, k - 1] = 1.0
    return T, np.asarray((basis * np.sqrt(top)).T)


def orthogonal_decomposition(
    T: Array, rng: np.random.Generator, n_init: int = 10, iterations: int = 100
) -> list[Array]:
    """Orthogonal Z (k, k), rows z_j, with large sum_j T(z_j, z_j, z_j), best first.

    The power method v <- T(v, v, .) / |.| from n_init random vectors, deflated one vector at a time, then all vectors at
    once: Z <- the orthogonal matrix nearest to (T(z_j, z_j, .))_j. The same iteration from n_init random orthogonal
    matrices. For an orthogonally decomposable T the first is exact.
    """
    k = len(T)
    flat = T.reshape(k, k * k)

    def power(V: Array, flat: Array) -> Array:
        """T(v, v, .) for all rows v of V, (n, k)."""
        return np.asarray((V[:, :, None] * V[:, None, :]).reshape(len(V), k * k) @ flat.T)

    rest, found = T.copy(), np.zeros((k, k))
    for j in range(k):
        v = rng.normal(size=(max(n_init, k), k))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        for _ in range(iterations):
            v = power(v, rest.reshape(k, k * k))
            v /= np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
        value = np.sum(power(v, rest.reshape(k, k * k)) * v, axis=1)
        found[j] = v[value.argmax()]
        rest = rest - value.max() * np.einsum("a,b,c->abc", found[j], found[j], found[j])
    starts = [found, *(np.linalg.qr(rng.normal(size=(k, k)))[0] for _ in range(n_init))]
    Z = np.stack(starts)
    for _ in range(iterations):
        left, _, right = np.linalg.svd(power(Z.reshape(-1, k), flat).reshape(Z.shape))
        Z = left @ right
    value = np.sum(power(Z.reshape(-1, k), flat).reshape(Z.shape) * Z, axis=(1, 2))
    kept: list[Array] = []
    levels: list[float] = []
    for i in np.argsort(-value, kind="stable"):
        if all(abs(value[i] - level) > 1e-6 * abs(level) for level in levels):
            kept.append(Z[i])
            levels.append(float(value[i]))
    return kept


def tensor_start(target: Target, k: int, rng: np.random.Generator, n_init: int = 10) -> list[Mixture]:
    """Mixtures read off the decompositions of the lifted tensor: w_j = z_j0^2, c_j = W^-1 z_j / z_j0."""
    sigma2 = noise_variance(target.covariance, k)
    if k == 1:
        return [Mixture(np.zeros((1, target.d)), np.ones(1), sigma2)]
    T, back = lifted_tensor(target.covariance, target.third, k)
    out = []
    for Z in orthogonal_decomposition(T, rng, n_init):
        Z = Z * np.where(Z[:, -1:] < 0, -1.0, 1.0)
        root = np.maximum(Z[:, -1], np.sqrt(0.1 / k))  # a lighter component than that is left to the refinement
        weights = root**2 / np.sum(root**2)
        means = (Z[:, :-1] / root[:, None]) @ back
        out.append(Mixture(means - weights @ means, weights, sigma2))
    return out


def alternating_minimisation(
    target: Target,
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
            sign = np.where(
                np.sum(one * two, axis=1) < 0, -1.0, 1.0
            )  # a = +-z, b = +-z, and e has the product of signs
            size = np.linalg.norm(factors[2], axis=1)
            best = (left, _unit_rows(factors[2]) * sign[:, None], size)
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
