"""Hidden Markov models from the moments of three consecutive observations (Anandkumar, Hsu, Kakade 2012; paper, Section 4.1).

A chain h_1, h_2, h_3 of k states, stationary with law pi and P(h_{t+1} = l | h_t = j) = T_jl, and observations x_t in R^d with
E[x_t | h_t = j] = m + b_j, sum_j pi_j b_j = 0, whose noise is independent from one time to the next. Given h_2 the three are
independent, with the means b_j for x_2, a_j = sum_i P(h_1 = i | h_2 = j) b_i and c_j = sum_l T_jl b_l, so that

    C_12 = Cov(x_1, x_2) = sum_j pi_j a_j b_j',   C_23 = sum_j pi_j b_j c_j',   C_13 = sum_j pi_j a_j c_j',
    K = k3(x_1, x_2, x_3) = sum_j pi_j a_j (x) b_j (x) c_j:

noise within a time enters none of them. C_23 C_13^+ turns every a_j into b_j, and C_21 C_31^+ every c_j, which makes
M2 = sum_j pi_j b_j b_j' and M3 = sum_j pi_j b_j^(x3), the moments of `tensors`: k centred b_j, independent once lifted.
Then c_j = C_32 M2^+ b_j, and T solves sum_l T_jl (b_l, 1) = (c_j, 1). From there all four moments are matched by least squares,
each in units of its noise (:func:`match_chain`): the start divides by small singular values of C_13. States explain no more of
an observation than there is, sum_j pi_j b_j b_j' <= Cov(x_t): without this bound, moments that no chain has are matched by
states of no weight, at no finite place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import softmax

from richcomponents.algebra import Array, multilinear, symmetrise
from richcomponents.algebra.arrays import symmetric, whitening
from richcomponents.components import Component
from richcomponents.errors import DataError
from richcomponents.learning.mixture import residual_of
from richcomponents.learning.tensors import FLOOR, latent_classes

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
        into = white.T @ Q
        maps = np.zeros((columns, 3 * Q.shape[1]))
        for i, at in enumerate((one, two, three)):
            maps[at, i * Q.shape[1] : (i + 1) * Q.shape[1]] = into
        q = Q.shape[1]
        third = component.mapped(maps).cumulant(3)[:q, q : 2 * q, 2 * q :]
        first, second, apart = (Q.T @ P @ Q for P in pairs)
        room = max(1.0, float(np.linalg.eigvalsh(white @ own @ white.T)[-1]))
        return cls(first, second, apart, third, np.asarray((colour @ Q).T), room)


def chain_moments(means: Array, weights: Array, transition: Array) -> tuple[Array, Array, Array, Array]:
    """C_12, C_23, C_13 and K of a stationary chain; means (k, q), not necessarily centred."""
    b = means - weights @ means
    step = weights[:, None] * transition  # P(h_t = j, h_(t+1) = l)
    near = b.T @ step @ b
    joint = step[:, :, None] * transition[None]
    return (
        near,
        near,
        b.T @ step @ transition @ b,
        np.asarray(np.einsum("ijl,ia,jb,lc->abc", joint, b, b, b, optimize=True)),
    )


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
    order = np.argsort(-best.weights, kind="stable")
    return Chain(
        (best.means @ moments.back)[order], best.weights[order], best.transition[np.ix_(order, order)], best.left
    )
