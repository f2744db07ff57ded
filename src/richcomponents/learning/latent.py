"""Latent classes: the decomposition behind mixtures, Markov models and topics (Anandkumar et al. 2014), and the two last.

Latent classes j = 1..k with weights w_j and vectors c_j leave the moments

    M2 = sum_j w_j c_j (x) c_j,     M3 = sum_j w_j c_j (x) c_j (x) c_j.

INDEPENDENT c_j: with W'M2 W = I the vectors z_j = sqrt(w_j) W'c_j are orthonormal, and M3(W, W, W) = sum_j w_j^(-1/2) z_j^(x3).

CENTRED c_j, sum_j w_j c_j = 0, span k - 1 directions only, but the lifted vectors (c_j, 1) are independent: with W'M2 W = I in
these directions the vectors z_j = sqrt(w_j) (W'c_j, 1) are orthonormal in R^k, and

    T = sum_j w_j^(-1/2) z_j (x) z_j (x) z_j    has    T_abc = M3(W, W, W)_abc,  T_ab0 = delta_ab,  T_a00 = 0,  T_000 = 1:

known, without the mean, and exact for d + 1 centres in d dimensions.

HIDDEN MARKOV MODELS from the moments of three consecutive observations (Anandkumar, Hsu, Kakade 2012; paper, Section 4.1).
A chain h_1, h_2, h_3 of k states, stationary with law pi and P(h_{t+1} = l | h_t = j) = T_jl, and observations x_t in R^d with
E[x_t | h_t = j] = m + b_j, sum_j pi_j b_j = 0, whose noise is independent from one time to the next. Given h_2 the three are
independent, with the means b_j for x_2, a_j = sum_i P(h_1 = i | h_2 = j) b_i and c_j = sum_l T_jl b_l, so that

    C_12 = Cov(x_1, x_2) = sum_j pi_j a_j b_j',   C_23 = sum_j pi_j b_j c_j',   C_13 = sum_j pi_j a_j c_j',
    K = k3(x_1, x_2, x_3) = sum_j pi_j a_j (x) b_j (x) c_j:

noise within a time enters none of them. C_23 C_13^+ turns every a_j into b_j, and C_21 C_31^+ every c_j, which makes
M2 = sum_j pi_j b_j b_j' and M3 = sum_j pi_j b_j^(x3), the moments above: k centred b_j, independent once lifted.
Then c_j = C_32 M2^+ b_j, and T solves sum_l T_jl (b_l, 1) = (c_j, 1). From there all four moments are matched by least squares,
each in units of its noise (:func:`match_chain`): the start divides by small singular values of C_13. States explain no more of
an observation than there is, sum_j pi_j b_j b_j' <= Cov(x_t): without this bound, moments that no chain has are matched by
states of no weight, at no finite place.

TOPICS, latent Dirichlet allocation, from word counts (Anandkumar, Foster, Hsu, Kakade, Liu 2012; paper, Section 4.1).
A document has topic proportions h ~ Dirichlet(alpha), alpha_0 = sum alpha, and words drawn independently given h, word w with
probability (mu'h)_w, mu (k, d) the topics. Its counts c (d,) are sums of one-hot vectors. Moments of DIFFERENT words of a
document are factorial moments of the counts,

    E[c c'] - diag E[c],     E[c (x) c (x) c] - (the three diagonals of E[c c']) + 2 diag E[c],

up to the numbers of pairs and triples of words, which are their sums over all entries where lengths do not depend on topics: so
they are divided by these, and lengths may differ. With M1, P, Q of one, two and three words,

    M2 = P - alpha_0 / (alpha_0 + 1) M1 M1'                                                       = sum_j w_j mu_j mu_j'
    M3 = (alpha_0 + 2) / 2 [Q - alpha_0 / (alpha_0 + 2) (P (x) M1, three ways)
                            + 2 alpha_0^2 / ((alpha_0 + 1)(alpha_0 + 2)) M1^(x3)]                 = sum_j w_j mu_j^(x3)

with w_j = alpha_j / (alpha_0 (alpha_0 + 1)): independent vectors, the moments above. Q is only ever formed in the k
directions of M2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import softmax

from richcomponents.algebra import Array, multilinear, symmetrise
from richcomponents.algebra.arrays import symmetric, whitening
from richcomponents.components import Component
from richcomponents.components.component import Term, Terms, expand
from richcomponents.errors import DataError

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


def residual_of(component: Component) -> Component:
    """The least noisy variable that the component's cumulants are read from, as a component: the residual of U on V for S1.

    It is the last slot of the first alternative. Its covariance is that of the component plus noise, so it tells which
    directions are estimated well; the component's own covariance would take its noise for signal.
    """
    if component.source is None:
        return component
    _, slots = expand(component.terms.alternatives[0], 3)[0]
    covariance = symmetric(component.source.covariance(slots[-1]))
    if not np.trace(covariance) > 0:
        return component
    terms = Terms(((Term(1.0, (), slots[-1]),),), slots[-1])
    return Component(component.name, component.feature_names, component.mean, covariance, component.source, terms)


# ---- hidden Markov models


_MOST = 10  # directions in which chains are matched
_FIRM = 10.0  # weight of what states explain beyond what there is; moments have weight one


@dataclass(frozen=True)
class Chain:
    """means : (k, d), b_j; weights : (k,), pi, decreasing; transition : (k, k), T_jl, rows sum to one; left : of the fit."""

    means: Array
    weights: Array
    transition: Array
    left: float = float("nan")


@dataclass(frozen=True)
class ChainMoments:
    """Moments of three consecutive observations in white coordinates: first (q, q) Cov(x_1, x_2), second Cov(x_2, x_3), apart
    Cov(x_1, x_3), third (q, q, q); back (q, d) : x = m + y back; room : no eigenvalue of Cov(y) is larger."""

    first: Array
    second: Array
    apart: Array
    third: Array
    back: Array
    room: float

    @classmethod
    def of(cls, component: Component) -> ChainMoments:
        """From a component whose columns are x_1, x_2 and x_3 side by side, in units of its noise."""
        columns = len(component.mean)
        if columns % 3:
            raise DataError(
                f"{component.name} has {columns} columns: a hidden Markov model needs three consecutive observations side by "
                "side, the columns of x_t, then those of x_(t+1), then those of x_(t+2), as many of each"
            )
        d = columns // 3
        one, two, three = (slice(i * d, (i + 1) * d) for i in range(3))
        C, noise = component.covariance, residual_of(component).covariance
        own, within = (np.mean([M[at, at] for at in (one, two, three)], axis=0) for M in (C, noise))
        white, colour = whitening(within)
        pairs = [white @ C[a, b] @ white.T for a, b in ((one, two), (two, three), (one, three))]
        seen = np.sum([P @ P.T + P.T @ P for P in pairs], axis=0)
        Q = np.linalg.eigh(seen)[1][:, ::-1][:, :_MOST]
        q = Q.shape[1]
        third = component.mapped(np.kron(np.eye(3), white.T @ Q)).cumulant(3)[:q, q : 2 * q, 2 * q :]
        first, second, apart = (Q.T @ P @ Q for P in pairs)
        room = max(1.0, float(np.linalg.eigvalsh(white @ own @ white.T)[-1]))
        return cls(first, second, apart, third, np.asarray((colour @ Q).T), room)


def chain_moments(means: Array, weights: Array, transition: Array) -> tuple[Array, Array, Array, Array]:
    """C_12, C_23, C_13 and K of a stationary chain; means (k, q), not necessarily centred."""
    b = means - weights @ means
    step = weights[:, None] * transition  # P(h_t = j, h_(t+1) = l)
    near = b.T @ step @ b
    third = np.einsum("ijl,ia,jb,lc->abc", step[:, :, None] * transition, b, b, b, optimize=True)
    return near, near, b.T @ step @ transition @ b, np.asarray(third)


def stationary(transition: Array) -> Array:
    """pi with pi T = pi, (k,)."""
    k = len(transition)
    system = np.vstack([transition.T - np.eye(k), np.ones(k)])
    pi = np.maximum(np.linalg.lstsq(system, np.append(np.zeros(k), 1.0), rcond=None)[0], 1e-12)
    return np.asarray(pi / pi.sum())


def chain_starts(moments: ChainMoments, k: int, rng: np.random.Generator, n_init: int) -> list[Chain]:
    """Chains read off the decompositions of M2 and M3, in white coordinates."""
    C12, C23, C13 = moments.first, moments.second, moments.apart
    rank = k - 1
    left, values, right = np.linalg.svd(C13)
    values = np.maximum(values[:rank], FLOOR * values[0])
    inverse = (right[:rank].T / values) @ left[:, :rank].T  # C_13^+
    one, three = C23 @ inverse, C12.T @ inverse.T  # a_j -> b_j, c_j -> b_j
    M2 = symmetric((one @ C12 + C23 @ three.T) / 2)

    def third(W: Array) -> Array:
        return symmetrise(multilinear(moments.third, one.T @ W, W, three.T @ W))

    starts = []
    for classes in latent_classes(M2, third, k, rng, centred=True, n_init=n_init):
        b = classes.vectors
        c = b @ np.linalg.pinv((classes.weights * b.T) @ b, hermitian=True, rcond=1e-10) @ C23
        lifted = np.vstack([b.T, np.ones(k)])
        T = np.stack([nnls(lifted, np.append(goal, 1.0))[0] for goal in c])
        T = (T + 1e-6) / (T + 1e-6).sum(axis=1, keepdims=True)
        starts.append(Chain(b, classes.weights, T))
    return starts


def match_chain(moments: ChainMoments, start: Chain) -> Chain:
    """Least squares of the four moments over b and T, pi the stationary law of T; white coordinates, where all of them have
    errors of the same size. Eigenvalues of sum_j pi_j b_j b_j' (q, q) beyond the room that there is count as left."""
    k, q = start.means.shape
    target = np.concatenate([x.ravel() for x in (moments.first, moments.second, moments.apart, moments.third)])

    def unpack(parameters: Array) -> tuple[Array, Array, Array]:
        T = softmax(parameters[k * q :].reshape(k, k), axis=1)
        pi = stationary(T)
        b = parameters[: k * q].reshape(k, q)
        return b - pi @ b, pi, T

    def residual(parameters: Array) -> Array:
        b, pi, T = unpack(parameters)
        beyond = _FIRM * np.maximum(np.linalg.eigvalsh((pi * b.T) @ b) - moments.room, 0)
        return np.append(np.concatenate([x.ravel() for x in chain_moments(b, pi, T)]) - target, beyond)

    packed = np.concatenate([start.means.ravel(), np.log(np.maximum(start.transition, 1e-6)).ravel()])
    end = least_squares(residual, packed, method="trf", xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=200)
    b, pi, T = unpack(end.x)
    return Chain(b, pi, T, float(2 * end.cost))


def fit_chain(moments: ChainMoments, k: int, rng: np.random.Generator, n_init: int = 10) -> Chain:
    """The chain of k states, in the columns of one observation, whose refinement leaves the least."""
    d = moments.back.shape[1]
    if not 2 <= k <= d + 1:
        raise DataError(
            f"{k} states of observations with {d} columns: moments determine from 2 to {d + 1} states. Use fewer states, or "
            "observe more columns"
        )
    starts = chain_starts(moments, k, rng, n_init)
    best = min((match_chain(moments, start) for start in starts), key=lambda chain: chain.left)
    order, means = np.argsort(-best.weights, kind="stable"), best.means @ moments.back
    return Chain(means[order], best.weights[order], best.transition[np.ix_(order, order)], best.left)


# ---- topics


_NONE = np.finfo(float).eps ** 0.5  # pairs and triples of words in this share of those that lengths allow are rounding


@dataclass(frozen=True)
class Topics:
    """words : (k, d), mu, rows sum to one; concentrations : (k,), alpha, decreasing."""

    words: Array
    concentrations: Array


def fit_topics(
    component: Component, k: int, concentration: float, rng: np.random.Generator, n_init: int = 10
) -> Topics:
    """k topics of a component that counts words; concentration : alpha_0."""
    d = len(component.mean)
    if not 1 <= k <= d:
        raise DataError(f"{k} topics of {d} words: moments determine at most as many topics as words. Use fewer topics")
    counts, a0 = component.mean, concentration
    if counts.sum() <= 0:
        raise DataError(
            f"the mean of {component.name} adds up to {counts.sum():.3g}: word counts have a positive mean. Give the mean of "
            "the component that is known (mean= of the RCA)"
        )
    raw = component.covariance + np.outer(counts, counts)  # E[c c']
    pairs = raw - np.diag(counts)
    n_pairs, one = float(pairs.sum()), counts / counts.sum()
    if n_pairs <= _NONE * counts.sum() ** 2:
        raise DataError(
            f"{component.name} has no two words in a document (sum of E[cc'] - diag E[c]: {n_pairs:.3g}): topics need three"
        )
    P = pairs / n_pairs
    M2 = P - a0 / (a0 + 1) * np.outer(one, one)

    def triples(W: Array) -> Array:
        """E[c (x) c (x) c] of three different words, in W (d, r)."""
        k3 = component.mapped(W).cumulant(3)
        m, C = counts @ W, W.T @ component.covariance @ W
        twice = np.einsum("wa,wb,wc->abc", W, W, raw @ W)  # diag in two slots of E[c c'], three ways
        once = np.einsum("w,wa,wb,wc->abc", counts, W, W, W) * 2 + np.einsum("a,b,c->abc", m, m, m)
        return np.asarray(k3 + once + 3 * symmetrise(np.multiply.outer(C, m) - twice))

    n_triples = float(triples(np.ones((d, 1)))[0, 0, 0])
    if n_triples <= _NONE * counts.sum() ** 3:
        raise DataError(f"{component.name} has no three words in a document: topics need three")

    def third(W: Array) -> Array:
        m = one @ W
        inner = triples(W) / n_triples - 3 * a0 / (a0 + 2) * symmetrise(np.multiply.outer(W.T @ P @ W, m))
        inner = inner + 2 * a0**2 / ((a0 + 1) * (a0 + 2)) * np.einsum("a,b,c->abc", m, m, m)
        return np.asarray((a0 + 2) / 2 * inner)

    classes = latent_classes(M2, third, k, rng, centred=False, n_init=n_init)[0]
    words = np.maximum(classes.vectors * np.sign(classes.vectors.sum(axis=1, keepdims=True)), 0.0)
    words = words / np.maximum(words.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    weights = classes.weights / classes.weights.sum()
    order = np.argsort(-weights, kind="stable")
    return Topics(words[order], a0 * weights[order])
