"""Two views at rank r: second moments of one sample, or of a stack of replicates, and what they are at a given T.

Let x, y be white shared coordinates of the views, K = Cov(x, y) (r x r), h = (I - K K')^(1/2). The model U = S1 + S2,
V = A S2 + S3 leaves ONE symmetric matrix open,

    S = Cov(S2) = K K' + h T h  in x,     0 <= T <= I:

Cov(S1) = Cov(U) - S on the shared coordinates, A = K'S^-1, Cov(S3) = Cov(V) - K'S^-1 K. T = 0 is residualising U on V; T = I is
regressing V on U. All functions take leading axes ("..."): none for a sample, (B,) for the samples without one block each.

A replicate takes the white basis that is nearest to the one of the whole sample: a smooth function of its second moments, also
where canonical correlations are tied, and nothing has to be matched. Coordinates z = (x_1.., y_1..) of the whole sample are
those of `Canonical`, so that no number here has a unit.

An answer is f(pair, T, doubt): of a sample or of a stack of replicates, at T (..., r, r); doubt = E (T - E T)^2 (r, r) where T
is an estimate, zero where it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread, power, symmetric
from richcomponents.inference.draws import Draws, Metric, Shrunk, share_of
from richcomponents.inference.posterior import Evidence, Posterior, infer
from richcomponents.inference.verdicts import GATE, Test, gate
from richcomponents.moments import Moments
from richcomponents.pair.canonical import MAX_CORRELATION, Canonical
from richcomponents.storage import storable

SINGULAR = 1e-8
"""Variances in white coordinates are kept above this where they are inverted."""

MOST_CORRECTED = 40
"""Leading shared directions that have a T of their own; the others are residualised."""


@storable
@dataclass(frozen=True, eq=False)
class BlockSums:
    """Rows (B,), means (B, k) and mean products (B, k, k) of the coordinates z in each block, about the mean of all rows."""

    count: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, state: Moments) -> BlockSums:
        """From the state of z; empty blocks are left out."""
        state = state.up_to(2)  # higher orders, by block, are many
        used = np.flatnonzero(state.block_sizes)
        count = state.block_sizes[used].astype(np.float64)
        first = state.central_blocks()[used][:, state.layout.orders[1]] / count[:, None]
        return cls(count, first, state.block_covariances()[used])

    def select(self, columns: IntArray) -> BlockSums:
        """Of these coordinates, in this order."""
        return BlockSums(self.count, self.first[:, columns], self.second[:, columns[:, None], columns])

    def covariance(self, kept: Array) -> Array:
        """Covariance (..., k, k) of the pooled blocks, block b counted kept[..., b] times."""
        weight = kept * self.count
        weight = weight / weight.sum(-1, keepdims=True)
        mean = weight @ self.first
        pooled = np.tensordot(weight, self.second, 1)
        return np.asarray(pooled - mean[..., :, None] * mean[..., None, :])


@storable
@dataclass(frozen=True, eq=False)
class Pair:
    """canonical : coordinates of the whole sample, in the user's columns; covariance (..., k, k) : of z = (x, y), all of them;
    n (...) : independent rows; kept (..., B) : which blocks; to_x (..., r, k_u), to_y (..., r, k_v) : to the shared
    coordinates, from those of the whole sample.

    corrected : so many leading coordinates have a T; the others have T = 0.
    """

    canonical: Canonical
    covariance: Array
    n: Array
    kept: Array
    to_x: Array
    to_y: Array
    corrected: int

    @classmethod
    def of(
        cls, canonical: Canonical, covariance: Array, n: Array, kept: Array, rank: int, corrected: int = MOST_CORRECTED
    ) -> Pair:
        """The basis nearest to the first `rank` coordinates of `canonical`."""
        first, k_u = min(rank, corrected), canonical.rank_u
        cu, cv, cross = covariance[..., :k_u, :k_u], covariance[..., k_u:, k_u:], covariance[..., :k_u, k_u:]
        white_u, white_v = power(cu, -0.5, SINGULAR), power(cv, -0.5, SINGULAR)
        left, d, right = np.linalg.svd(white_u @ cross @ white_v)
        if (excess := np.maximum(d - MAX_CORRELATION, 0.0)).any():  # replicates have the bound of the whole sample
            m, covariance = d.shape[-1], covariance.copy()
            cross = cross - (cu @ white_u @ left[..., :m] * excess[..., None, :]) @ (right[..., :m, :] @ white_v @ cv)
            covariance[..., :k_u, k_u:], covariance[..., k_u:, :k_u] = cross, cross.mT
        groups = (slice(0, first), slice(first, rank))
        to_x = np.concatenate([nearest(left[..., :, g], g) for g in groups], axis=-1)
        to_y = np.concatenate([nearest(right.mT[..., :, g], g) for g in groups], axis=-1)
        return cls(canonical, covariance, np.asarray(n), kept, to_x.mT @ white_u, to_y.mT @ white_v, first)

    @classmethod
    def whole(cls, canonical: Canonical, blocks: int, rank: int, corrected: int = MOST_CORRECTED) -> Pair:
        """The sample itself: Cov(x, y) = D exactly."""
        k, k_u = canonical.rank_u + canonical.rank_v, canonical.rank_u
        covariance, at = np.eye(k), np.arange(len(canonical.correlations))
        covariance[at, k_u + at] = covariance[k_u + at, at] = canonical.correlations
        eye_u, eye_v, n = np.eye(k_u)[:rank], np.eye(k - k_u)[:rank], np.asarray(canonical.n)
        return cls(canonical, covariance, n, np.ones(blocks), eye_u, eye_v, min(rank, corrected))

    @classmethod
    def left_out(cls, canonical: Canonical, sums: BlockSums, rank: int) -> Pair:
        """The stack (B,) of the samples without one block each; of one block nothing can be left out."""
        kept = np.asarray(1.0 - np.eye(len(sums.count))) if len(sums.count) > 1 else np.ones((1, 1))
        n = canonical.n * (kept @ sums.count) / sums.count.sum()
        return cls.of(canonical, sums.covariance(kept), n, kept, rank)

    @cached_property
    def rank(self) -> int:
        return int(self.to_x.shape[-2])

    def leading(self) -> Pair:
        """The coordinates that have a T."""
        if self.corrected == self.rank:
            return self
        return replace(self, to_x=self.to_x[..., : self.corrected, :], to_y=self.to_y[..., : self.corrected, :])

    # ---- second moments, in coordinates of the whole sample

    @property
    def cov_x(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.covariance[..., :k, :k])

    @property
    def cov_y(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.covariance[..., k:, k:])

    @cached_property
    def from_x(self) -> Array:
        """(..., k_u, r): the loadings of the shared coordinates."""
        return np.asarray(self.cov_x @ self.to_x.mT)

    @cached_property
    def from_y(self) -> Array:
        return np.asarray(self.cov_y @ self.to_y.mT)

    @cached_property
    def K(self) -> Array:
        k = self.to_x.shape[-1]
        return np.asarray(self.to_x @ self.covariance[..., :k, k:] @ self.to_y.mT)

    @cached_property
    def h(self) -> Array:
        return power(np.eye(self.rank) - self.K @ self.K.mT, 0.5, SINGULAR)

    @cached_property
    def slope(self) -> Array:
        """h^-1 K."""
        return np.asarray(np.linalg.solve(self.h, self.K))

    @cached_property
    def whitening(self) -> Array:
        """(x, y) of the whole sample -> w = (h^-1 (x - K y), y), jointly white, (..., 2r, 2r)."""
        r = self.rank
        out = np.zeros((*self.K.shape[:-2], 2 * r, 2 * r))
        to_x, to_y = self.to_x[..., :r], self.to_y[..., :r]
        out[..., :r, :r], out[..., r:, r:] = np.linalg.solve(self.h, to_x), to_y
        out[..., :r, r:] = -self.slope @ to_y
        return out

    @cached_property
    def lift(self) -> Array:
        """(..., d_u, r): the same in the user's columns."""
        return np.asarray(self.canonical.u_from_x @ self.from_x)

    @cached_property
    def into(self) -> Array:
        """W h^-1 (..., d_u, r): from h times the shared coordinates to coefficients on the user's columns."""
        return np.asarray(self.canonical.x_from_u.T @ np.linalg.solve(self.h, self.to_x).mT)

    @cached_property
    def in_columns(self) -> tuple[Array, Array, Array, Array]:
        """In the user's columns: Cov(S1) at T = 0, F with Cov(S1) = that - F T F', Cov(V), and G with Cov(S3) = Cov(V) -
        G S^-1 G'."""
        loadings = self.canonical.v_from_y @ self.from_y @ self.K.mT
        cov_v = self.canonical.v_from_y @ self.cov_y @ self.canonical.v_from_y.T
        return self.cov_s1(np.zeros_like(self.K)), self.lift @ self.h, cov_v, loadings

    # ---- at a given T

    def S(self, T: Array) -> Array:
        """Cov(S2) in x."""
        return np.asarray(self.K @ self.K.mT + self.h @ T @ self.h)

    def own_x(self, T: Array) -> Array:
        """Cov(S1) in the coordinates of the whole sample, (..., k_u, k_u)."""
        return symmetric(self.cov_x - self.from_x @ self.S(T) @ self.from_x.mT)

    # ---- the same in the user's columns

    def cov_s1(self, T: Array) -> Array:
        back = self.canonical.u_from_x
        return np.asarray(back @ self.own_x(T) @ back.T)

    def var_s1(self, T: Array) -> Array:
        """(..., d_u): its diagonal, without the rest: l'T l of each row of `lift` is linear in T."""
        back, lift = self.canonical.u_from_x, self.lift @ self.h
        top = np.sum((back @ self.own_x(np.zeros_like(self.K))) * back, axis=-1)
        squares = (lift[..., :, None] * lift[..., None, :]).reshape(*lift.shape[:-1], -1)
        return np.asarray(top - (squares @ T.reshape(*T.shape[:-2], -1, 1))[..., 0])

    def cov_s2(self, T: Array) -> Array:
        return symmetric(self.lift @ self.S(T) @ self.lift.mT)

    def mixing(self, T: Array) -> Array:
        """A on the range of S2, zero on its complement in the metric of Cov(U)^-1."""
        into = self.canonical.v_from_y @ self.from_y @ self.K.mT
        return np.asarray(into @ np.linalg.solve(self.S(T), self.to_x @ self.canonical.x_from_u))

    # ---- with an outcome

    def regressed(self, with_u: Array, with_v: Array, beside: int) -> tuple[Array, Array]:
        """Of covariances with an outcome (..., d_u) and (..., d_v): least squares (..., d_u) on U, with `beside` variates of V,
        and Cov(y, outcome) (..., r)."""
        found, r = self.canonical, self.rank
        x, y = with_u @ found.x_from_u.T, with_v @ found.y_from_v.T
        with_y = self.to_y @ y[..., None]
        own, covariance = x[..., None] - self.from_x @ self.K @ with_y, self.own_x(np.zeros_like(self.K))
        if beside > r:
            more = found.rank_u + np.arange(r, beside)
            between = self.covariance[..., : found.rank_u, more]
            rest = np.linalg.solve(self.covariance[..., more[:, None], more], between.mT)
            own = own - rest.mT @ y[..., r:beside, None]
            covariance = covariance - between @ rest
        return (power(covariance, -1.0, SINGULAR) @ own)[..., 0] @ found.x_from_u, with_y[..., 0]


def nearest(frame: Array, places: slice) -> Array:
    """Orthonormal columns (..., k, m), rotated so that they are nearest to the unit vectors of `places`."""
    if frame.shape[-1] == 0:
        return frame
    a, _, b = np.linalg.svd(frame[..., places, :])
    return np.asarray(frame @ (a @ b).mT)


# ---- what is known of T, and every answer

Answer = Callable[[Any, Array, Array], Array]


@storable
@dataclass(frozen=True, eq=False)
class PairFit:
    """pair : the whole sample; left_out : without each block; posterior : of T (r, r), zero beyond the corrected directions."""

    pair: Pair
    left_out: Pair
    posterior: Posterior

    @classmethod
    def of(
        cls, pair: Pair, left_out: Pair, evidences: Sequence[Evidence], seed: int | None = 0, signs: Array | None = None
    ) -> PairFit:
        """signs (m,) : see `infer`."""
        if pair.rank == 0:
            T = np.zeros((0, 0))
            return cls(pair, left_out, Posterior(Draws.certain(T, np.zeros((len(left_out.n), 0, 0)))))
        with one_blas_thread():
            posterior = infer(pair.leading(), left_out.leading(), evidences, seed, signs)
        if pair.corrected < pair.rank:
            posterior = replace(posterior, T=posterior.T.map(lambda T: padded(T, pair.rank)))
        return cls(pair, left_out, posterior)

    @property
    def rank(self) -> int:
        return self.pair.rank

    @cached_property
    def gate(self) -> float:
        """0 to 1: whether any evidence tells T from T = 0."""
        return gate(self.strength)

    @cached_property
    def strength(self) -> float:
        """Of the evidence that tells T best from T = 0, in standard errors."""
        return max(self.posterior.strengths.values(), default=0.0)

    @property
    def identified(self) -> Test:
        """Whether any evidence tells T from T = 0, in standard errors."""
        says = f"How much U and V share differs by {self.strength:.1f} standard errors from the least that is possible."
        if self.strength < GATE[0]:
            says = "Skewness, kurtosis and errors of columns say little about how much U and V share."
        p = float(stats.norm.sf(self.strength))
        return Test("identified", self.strength, (), p, says, "More samples or more controls help.")

    def answer(
        self,
        f: Answer,
        *,
        end: float = 0.0,
        share: float | None = None,
        gate: float | None = None,
        metric: Metric = np.asarray,
        at: tuple[Any, Any] | None = None,
    ) -> Shrunk:
        """From T = end I, of the corrected directions, to the posterior of T: protected, or at a share that is given.

        gate : by default that of T = 0: nobody is content with A at T = I, the regression of V on U. at : what f takes, of all
        rows and without each block, by default the pairs.
        """
        here, left_out = (self.pair, self.left_out) if at is None else at
        T, doubt = self.posterior.T, self.posterior.doubt
        start, none = padded(end * np.eye(self.pair.corrected), self.rank), np.zeros_like(doubt)
        safe = Draws.certain(f(here, start, none), f(left_out, np.broadcast_to(start, T.blocks.shape), none))
        value = f(here, T.value, doubt)
        drawn = self.posterior.resampled(np.size(value)).T
        full = Draws(value, f(left_out, T.blocks, doubt), f(here, drawn.posterior, none), drawn.weight)
        if share is None:
            gate = gate if gate is not None else self.gate if end == 0 else 1.0
            share = share_of(safe, full, gate, metric)
        return Shrunk.at(safe, full, share)


def padded(T: Array, rank: int) -> Array:
    """(..., m, m) -> (..., r, r), with zeros."""
    out = np.zeros((*T.shape[:-2], rank, rank))
    out[..., : T.shape[-1], : T.shape[-1]] = T
    return out
