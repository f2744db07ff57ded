"""The noise of correlations of own parts, by the delta method, in closed form where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.pair.views import EDGE, Pair, turned


@dataclass(frozen=True, eq=False)
class Noise:
    """n Cov(g) of the correlations g of own parts at fixed T, by the delta method, from first-order perturbation of canonical
    coordinates; pair : of a whole sample, whose covariance of (x, y) is [[I, D], [D', I]].

    Sample covariances move as R E R', R = [[I, 0], [D', (I - D'D)^1/2]], E symmetric with independent entries. Entries of E
    between coordinates that are not shared move own covariances only: these are a sample covariance, in closed form. The
    others, a few times rank times columns, move K, S and the loadings as well.
    """

    pair: Pair
    T: Array

    @cached_property
    def _D(self) -> Array:
        k = self.pair.canonical.rank_u
        return np.asarray(self.pair.covariance[:k, k:])

    def _moves(self) -> tuple[Array, Array, Array]:
        """Changes of Cov(x), Cov(x, y), Cov(y), (units, ., .), for every entry of E with a shared coordinate."""
        k_u, k_v, r = self.pair.canonical.rank_u, self.pair.canonical.rank_v, self.pair.rank
        p, D = k_u + k_v, self._D
        shared = np.zeros(p, dtype=bool)
        shared[:r] = shared[k_u : k_u + r] = True
        i, j = np.tril_indices(p)
        i, j = i[shared[i] | shared[j]], j[shared[i] | shared[j]]
        E = np.zeros((len(i), p, p))
        E[np.arange(len(i)), i, j] = E[np.arange(len(i)), j, i] = np.where(i == j, np.sqrt(2), 1)
        a, b, c = E[:, :k_u, :k_u], E[:, :k_u, k_u:], E[:, k_u:, k_u:]
        h = np.sqrt(np.maximum(1 - np.sum(D**2, axis=0), 0.0))
        bh = b * h
        aD = a @ D
        across = D.T @ bh
        return a, aD + bh, D.T @ aD + across + turned(across) + h[:, None] * c * h

    def _own_moves(self) -> tuple[Array, Array]:
        """Changes of Cov(S1) and Cov(S3) in (x, y), for every such entry of E."""
        pair, r, T, D = self.pair, self.pair.rank, self.T, self._D
        ex, exy, ey = self._moves()
        d = np.diag(D)[:r]
        K, h, S = np.diag(d), np.sqrt(np.maximum(1 - d**2, EDGE)), pair.S(T)
        m = exy - ex @ D / 2 - D @ ey / 2
        dK = m[:, :r, :r]
        dh = -(dK * d + turned(dK * d)) / (h[:, None] + h)
        moved = dh @ (T * h)
        dS = dK * d + turned(dK * d) + moved + turned(moved)
        dF, dG = ex[:, :, :r] / 2, ey[:, :, :r] / 2
        dF[:, r:] += self._turn(m[:, r:, :r], turned(m[:, :r, r:]), d)
        dG[:, r:] += self._turn(turned(m[:, :r, r:]), m[:, r:, :r], d)
        dx, dy = ex.copy(), ey.copy()
        back = np.linalg.solve(S, K)
        dM = turned(dK) @ back + turned(back) @ dK - turned(back) @ dS @ back
        for out, load, core, change in ((dx, dF, S, dS), (dy, dG, K @ back, dM)):
            out[:, :, :r] -= load @ core
            out[:, :r, :] -= core @ turned(load)
            out[:, :r, :r] -= change
        return dx, dy

    def _turn(self, mine: Array, others: Array, d: Array) -> Array:
        """(units, rest, r): how far leading directions turn to the others."""
        rest = np.zeros(mine.shape[1])
        beyond = np.diag(self._D)[self.pair.rank :]
        rest[: len(beyond)] = beyond
        both = np.zeros_like(mine)
        both[:, : len(beyond)] = others[:, : len(beyond)]
        gap = np.maximum(d**2 - rest[:, None] ** 2, 1 / float(self.pair.n))
        return np.asarray((d * mine + rest[:, None] * both) / gap)

    def covariance(self, own: list[tuple[Array, Array]], between: list[tuple[IntArray, IntArray]]) -> Array:
        """(k, k). own : correlations and standard deviations of the columns' own parts; between : pairs of columns."""
        pair, r = self.pair, self.pair.rank
        ways = [
            way / size[:, None]
            for way, (_, size) in zip((pair.canonical.u_from_x, pair.canonical.v_from_y), own, strict=True)
        ]
        slopes = []
        for way, move, (R, _), (i, j) in zip(ways, self._own_moves(), own, between, strict=True):
            square = np.einsum("ik,ukl,il->ui", way, move, way, optimize=True)
            moved = way @ move @ way.T
            slopes.append(moved[:, i, j] - R[i, j] * (square[:, i] + square[:, j]) / 2)
        A = np.concatenate(slopes, axis=1)
        u, v = (way[:, r:] for way in ways)
        P = np.block([[u @ u.T, u @ self._D[r:, r:] @ v.T], [v @ self._D[r:, r:].T @ u.T, v @ v.T]])
        d_u = len(u)
        i = np.concatenate([between[0][0], d_u + between[1][0]])
        j = np.concatenate([between[0][1], d_u + between[1][1]])
        rho = np.concatenate([R[at] for (R, _), at in zip(own, between, strict=True)])
        return np.asarray(A.T @ A + _wishart(P, i, j, rho))


def _wishart(P: Array, i: IntArray, j: IntArray, rho: Array) -> Array:
    """Covariance of C_ij - rho_ij (C_ii + C_jj) / 2 where entries of C have covariances P_ik P_jl + P_il P_jk."""

    def plain(a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> Array:
        return np.asarray(P[np.ix_(a, c)] * P[np.ix_(b, d)] + P[np.ix_(a, d)] * P[np.ix_(b, c)])

    mixed = plain(i, j, i, i) + plain(i, j, j, j)  # with C_kk + C_ll
    squares = plain(i, i, i, i) + plain(i, i, j, j) + plain(j, j, i, i) + plain(j, j, j, j)
    half = rho / 2
    return np.asarray(plain(i, j, i, j) - mixed * half - (mixed * half).T + np.outer(half, half) * squares)
