"""Slopes of the columns of two views on exposures, and second moments given these, from sums of products by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.moments import Moments

__all__ = ["Products", "Slopes"]


@dataclass(frozen=True)
class Slopes:
    """Slopes on the exposures, and second moments given the exposures and known covariates.

    u (p, q), v (d_v, q) : slopes of the columns; with_v (p, d_v) : Cov(U, V); var_u (p,); cov_v (d_v, d_v); noise (q, q) :
    covariance of the slopes of a column with unit variance, for independent rows; times_u : M (p, m) -> Cov(U) M.
    """

    u: Array
    v: Array
    with_v: Array
    var_u: Array
    cov_v: Array
    noise: Array
    times_u: Callable[[Array], Array]

    @property
    def both(self) -> Array:
        """(p + d_v, q) slopes of all columns, U first."""
        return np.vstack([self.u, self.v])

    @property
    def variances(self) -> Array:
        """(p + d_v,) of all columns."""
        return np.concatenate([self.var_u, np.diag(self.cov_v)])

    def times(self, m: Array) -> Array:
        """Covariance of all columns, U first, times m (p + d_v, k)."""
        on_u, on_v = m[: len(self.u)], m[len(self.u) :]
        return np.vstack([self.times_u(on_u) + self.with_v @ on_v, self.with_v.T @ on_u + self.cov_v @ on_v])

    def controls_in_order(self) -> IntArray:
        """(d_v,) the controls by the sum of their squared correlations with the tests: what is drawn in this order depends on
        neither the order of the columns nor their units."""
        squares = np.sum(self.with_v**2 / np.maximum(self.var_u, 1e-300)[:, None], axis=0)
        return np.argsort(squares / np.maximum(np.diag(self.cov_v), 1e-300), kind="stable")

    def of_control(self, held: IntArray, rest: IntArray) -> Slopes:
        """The controls `held` as columns of U, and the `rest` as V."""
        return Slopes(
            u=self.v[held],
            v=self.v[rest],
            with_v=self.cov_v[np.ix_(held, rest)],
            var_u=np.diag(self.cov_v)[held],
            cov_v=self.cov_v[np.ix_(rest, rest)],
            noise=self.noise,
            times_u=lambda m: self.cov_v[np.ix_(held, held)] @ m,
        )

    def with_controls(self, rest: IntArray) -> Slopes:
        """U, and the `rest` of the controls as V."""
        return replace(self, v=self.v[rest], with_v=self.with_v[:, rest], cov_v=self.cov_v[np.ix_(rest, rest)])


@dataclass(frozen=True)
class Products:
    """Sums of products, block by block, about the means of all rows; nothing of size p x p.

    z (B, m, m) : of z = (1, covariates, exposures, V) with itself; with_u : block -> (m, p), with the columns of U; squares :
    block -> (p,), of U; own : block (None: all), M (p, k) -> (p, k), of U with U, times M; n (B,) : rows of each block; known,
    q : how many covariates and exposures; lost : rows' worth of freedom that these took.
    """

    z: Array
    with_u: Callable[[int], Array]
    squares: Callable[[int], Array]
    own: Callable[[int | None, Array], Array]
    n: Array
    known: int
    q: int
    lost: float

    @classmethod
    def of_rows(
        cls, u: Array, v: Array, known: Array, exposures: Array, weight: Array, blocks: IntArray, lost: float
    ) -> Products:
        """Tables (n, .) in memory; weight (n,) : how often each row counts; blocks (n,) : the block of each row."""
        total = weight.sum()

        def centred(table: Array) -> Array:
            return np.asarray(table - weight @ table / total)

        z = np.hstack([np.ones((len(v), 1)), *map(centred, (known, exposures, v))])
        mean = weight @ u / total
        members = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]

        def with_u(block: int) -> Array:
            rows = members[block]
            return np.asarray((z[rows] * weight[rows, None]).T @ (u[rows] - mean))

        def squares(block: int) -> Array:
            rows = members[block]
            return np.asarray(weight[rows] @ (u[rows] - mean) ** 2)

        def own(block: int | None, m: Array) -> Array:
            rows = slice(None) if block is None else members[block]
            inside = weight[rows, None] * (u[rows] @ m - mean @ m)  # (rows, k)
            return np.asarray(u[rows].T @ inside - np.outer(mean, inside.sum(axis=0)))

        itself = np.stack([(z[rows] * weight[rows, None]).T @ z[rows] for rows in members])
        counts = np.array([weight[rows].sum() for rows in members])
        return cls(itself, with_u, squares, own, counts, known.shape[1], exposures.shape[1], lost)

    @classmethod
    def of_state(cls, state: Moments, d_u: int, d_v: int, known: int, lost: float) -> Products:
        """A state whose columns are U, V, covariates, exposures, in this order."""
        used = np.flatnonzero(state.block_sizes)
        count = state.block_sizes[used].astype(np.float64)
        second = state.block_covariances()[used] * count[:, None, None]
        first = state.central_blocks()[used][:, state.layout.orders[1]]
        width = second.shape[1]
        order = np.concatenate([np.arange(d_u + d_v, width), np.arange(d_u, d_u + d_v)])
        z = np.empty((len(used), 1 + len(order), 1 + len(order)))
        z[:, 0, 0], z[:, 0, 1:], z[:, 1:, 0] = count, first[:, order], first[:, order]
        z[:, 1:, 1:] = second[:, order[:, None], order]
        with_u = np.concatenate([first[:, None, :d_u], second[:, order, :d_u]], axis=1)
        own = second[:, :d_u, :d_u]
        total = own.sum(axis=0)
        squares = np.einsum("bii->bi", own)
        q = width - d_u - d_v - known
        return cls(
            z,
            lambda b: with_u[b],
            lambda b: squares[b],
            lambda b, m: np.asarray((total if b is None else own[b]) @ m),
            count,
            known,
            q,
            lost,
        )

    @cached_property
    def _total(self) -> tuple[Array, Array, Array]:
        blocks = range(len(self.n))
        return self.z.sum(0), reduce(np.add, map(self.with_u, blocks)), reduce(np.add, map(self.squares, blocks))

    def _own_without(self, gone: int | None, m: Array) -> Array:
        """U'U m over all blocks but one; the sum over all blocks is kept for the m that was asked for last."""
        last = self._last
        if last.get("m") is not m:
            last |= {"m": m, "sum": self.own(None, m)}
        return np.asarray(last["sum"] if gone is None else last["sum"] - self.own(gone, m))

    @cached_property
    def _last(self) -> dict[str, Any]:
        return {}

    def left_of_exposures(self) -> Array:
        """(q,) the share of each exposure's variance that covariates and other exposures do not explain."""
        k = 1 + self.known + self.q
        zz = self.z.sum(0)[:k, :k]
        out = np.zeros(self.q)
        for i, place in enumerate(range(1 + self.known, k)):
            others = np.delete(np.arange(k), place)
            scale = np.sqrt(np.maximum(np.diag(zz)[others], 1e-300))
            standard = np.linalg.pinv(zz[np.ix_(others, others)] / np.outer(scale, scale), rcond=1e-12, hermitian=True)
            with_others = zz[place, others] / scale
            out[i] = 1 - with_others @ standard @ with_others / max(zz[place, place], 1e-300)
        return out

    def slopes(self) -> Slopes:
        """Of all rows."""
        return self._solved(*self._total, float(self.n.sum()))

    def without_each_block(self) -> Iterator[Slopes]:
        zz, zu, squares = self._total
        for b, gone in enumerate(self.n):
            left = float(self.n.sum() - gone)
            yield self._solved(zz - self.z[b], zu - self.with_u(b), squares - self.squares(b), left, b)

    def _solved(self, zz: Array, zu: Array, squares: Array, n: float, gone: int | None = None) -> Slopes:
        """Regression on (1, covariates, exposures); residual covariances have the divisor n - lost."""
        k = 1 + self.known + self.q
        free = n - self.lost
        scale = np.sqrt(np.maximum(np.diag(zz)[:k], 1e-300))
        inverse = np.linalg.pinv(zz[:k, :k] / np.outer(scale, scale), rcond=1e-12, hermitian=True) / np.outer(
            scale, scale
        )
        on_v, on_u = inverse @ zz[:k, k:], inverse @ zu[:k]
        places = slice(1 + self.known, k)

        def times_u(m: Array) -> Array:
            return np.asarray(self._own_without(gone, m) - zu[:k].T @ (on_u @ m)) / free

        return Slopes(
            u=on_u[places].T,
            v=on_v[places].T,
            with_v=(zu[k:] - zz[k:, :k] @ on_u).T / free,
            var_u=np.maximum(squares - np.einsum("kp,kp->p", zu[:k], on_u), 0.0) / free,
            cov_v=(zz[k:, k:] - zz[k:, :k] @ on_v) / free,
            noise=inverse[places, places] * (n / free),
            times_u=times_u,
        )
