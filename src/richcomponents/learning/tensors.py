"""Symmetric tensors: the one decomposition behind mixtures, hidden Markov models and topics (Anandkumar et al. 2014).

Latent classes j = 1..k with weights w_j and vectors c_j leave the moments

    M2 = sum_j w_j c_j (x) c_j,     M3 = sum_j w_j c_j (x) c_j (x) c_j.

INDEPENDENT c_j: with W'M2 W = I the vectors z_j = sqrt(w_j) W'c_j are orthonormal, and M3(W, W, W) = sum_j w_j^(-1/2) z_j^(x3).

CENTRED c_j, sum_j w_j c_j = 0, span k - 1 directions only, but the lifted vectors (c_j, 1) are independent: with W'M2 W = I in
these directions the vectors z_j = sqrt(w_j) (W'c_j, 1) are orthonormal in R^k, and

    T = sum_j w_j^(-1/2) z_j (x) z_j (x) z_j    has    T_abc = M3(W, W, W)_abc,  T_ab0 = delta_ab,  T_a00 = 0,  T_000 = 1:

known, without the mean, and exact for d + 1 centres in d dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array

FLOOR = 0.001
"""Eigenvalues of M2 below this share of the largest are noise: whitening would blow them up."""


@dataclass(frozen=True)
class LatentClasses:
    """weights : (k,), as they came out; vectors : (k, d), c_j."""

    weights: Array
    vectors: Array


def latent_classes(
    second: Array, third: Callable[[Array], Array], k: int, rng: np.random.Generator, *, centred: bool, n_init: int = 10
) -> list[LatentClasses]:
    """Classes with the moments `second` (d, d) and third(W) = M3(W, W, W), W (d, r); the three best decompositions, best first.

    centred : whether the vectors are centred (r = k - 1), and weights add up to one, none of them below 0.1 / k; else they are
    independent (r = k).
    """
    r = k - 1 if centred else k
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    largest = max(float(values[-1]), np.finfo(float).tiny)
    basis, root = vectors[:, len(values) - r :], np.sqrt(np.maximum(values[len(values) - r :], FLOOR * largest))
    T, back = third(basis / root), (basis * root).T
    decompositions = orthogonal_decomposition(T if not centred else lifted(T), rng, n_init)[:3]
    if not centred:
        sizes = [np.maximum(np.einsum("abc,ja,jb,jc->j", T, Z, Z, Z), 1e-12) for Z in decompositions]
        return [LatentClasses(a**-2, (Z * a[:, None]) @ back) for Z, a in zip(decompositions, sizes, strict=True)]
    out = []
    for Z in decompositions:
        last = np.maximum(np.abs(Z[:, -1]), np.sqrt(0.1 / k))  # of z_j, whose sign is free, sqrt(w_j)
        sign = np.where(Z[:, -1] < 0, -1.0, 1.0)
        vectors = (Z[:, :-1] * (sign / last)[:, None]) @ back
        weights = last**2 / np.sum(last**2)
        out.append(LatentClasses(weights, vectors - weights @ vectors))
    return out


def lifted(third: Array) -> Array:
    """T (k, k, k) from M3(W, W, W) (k - 1, k - 1, k - 1); the last coordinate is the lifted one."""
    r = len(third)
    T = np.zeros((r + 1, r + 1, r + 1))
    T[:r, :r, :r] = third
    i = np.arange(r)
    T[i, i, r] = T[i, r, i] = T[r, i, i] = 1.0
    T[r, r, r] = 1.0
    return T


def orthogonal_decomposition(T: Array, rng: np.random.Generator, n_init: int = 10) -> list[Array]:
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

    rest, first = T.copy(), np.zeros((k, k))
    for j in range(k):
        v = rng.normal(size=(max(n_init, k), k))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        for _ in range(100):
            v = power(v, rest.reshape(k, k * k))
            v /= np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
        value = np.sum(power(v, rest.reshape(k, k * k)) * v, axis=1)
        first[j] = v[value.argmax()]
        rest = rest - value.max() * np.einsum("a,b,c->abc", first[j], first[j], first[j])
    starts = [first, *(np.linalg.qr(rng.normal(size=(k, k)))[0] for _ in range(n_init))]
    Z = np.stack(starts)
    for _ in range(100):
        left, _, right = np.linalg.svd(power(Z.reshape(-1, k), flat).reshape(Z.shape))
        Z = left @ right
    value = np.sum(power(Z.reshape(-1, k), flat).reshape(Z.shape) * Z, axis=(1, 2))
    order = np.argsort(-value, kind="stable")
    new = np.append(True, -np.diff(value[order]) > 1e-6 * np.abs(value[order[:-1]]))
    return list(Z[order[new]])
