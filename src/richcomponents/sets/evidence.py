"""What the data say, in coordinates where every view is white, and where a fit of them starts.

WHITE COORDINATES. Every view is mapped to columns of covariance I before anything is compared.

START. The sequential pass of the paper, with all patterns and cross-block products. For a view i of Q and any slots W for which
W + {gauge} and W + {i} both distinguish Q,

    M_g = unfold k(U_W, U_g) = X,   M_i = unfold k(U_W, U_i) = X A(i, Q)'      (supersets subtracted),

so the rows of [M_g | M_i] span the row space of [I | A']. (The last slot distinguishes too: order 2 is enough for a
component common to three views.) The Gram matrices of all W and all orders are added, each from products of DIFFERENT
blocks of samples: a product within a block adds the noise of both factors to the signal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations, permutations
from math import factorial

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray, multilinear, pack, packed_indices
from richcomponents.algebra.arrays import whitening
from richcomponents.algebra.packing import extension_table
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import LinearMap
from richcomponents.cumulants import Cumulants, linearised_block_cumulants
from richcomponents.errors import DataError
from richcomponents.moments import Moments
from richcomponents.pair.views import Canonical, canonical, choose_rank
from richcomponents.paper.general import Transforms
from richcomponents.storage import storable

SINGULAR = 1e-8  # eigenvalues of the correlations of white columns below this are linear dependence, which nothing can separate

_LIMIT = 5.0  # singular values of a starting transformation, between whitened views


def columns_of(frames: Mapping[str, LinearMap]) -> dict[str, IntArray]:
    """{view: its columns}, of views side by side, as their maps make them."""
    ends = np.cumsum([0, *(len(frame.to) for frame in frames.values())])
    return {view: np.arange(ends[i], ends[i + 1], dtype=np.int64) for i, view in enumerate(frames)}


@storable
@dataclass(frozen=True)
class WhiteViews:
    """Views side by side. place : {view: its columns in the table}; frames : {view: maps to and from white columns}; totals :
    {view: variance, summed over its columns}."""

    place: Mapping[str, slice]
    frames: Mapping[str, LinearMap]
    totals: Mapping[str, float]

    @classmethod
    def of(cls, covariance: Array, place: Mapping[str, slice], *, whiten: bool = True) -> WhiteViews:
        """From the covariance of the table's columns; whiten=False : columns stay as they are (the paper's method)."""
        own = {view: covariance[part, part] for view, part in place.items()}
        totals = {view: float(np.trace(C)) for view, C in own.items()}
        for view, total in totals.items():
            if not total > 0:
                raise DataError(f"no column of view {view!r} varies: leave it out")
        frames = {view: LinearMap(*whitening(C)) if whiten else LinearMap.identity(len(C)) for view, C in own.items()}
        return cls(place, frames, totals)

    def narrowed(self, shared: Mapping[str, LinearMap]) -> WhiteViews:
        """Fewer white columns of some views."""
        frames = {view: frame.then(shared[view]) if view in shared else frame for view, frame in self.frames.items()}
        return replace(self, frames=frames)

    @cached_property
    def columns(self) -> dict[str, IntArray]:
        """{view: its white columns}."""
        return columns_of(self.frames)

    @cached_property
    def into(self) -> Array:
        """(columns of the table, white columns)."""
        return np.asarray(linalg.block_diag(*(frame.to.T for frame in self.frames.values())))

    @cached_property
    def back(self) -> Array:
        """(white columns, columns of the table)."""
        return np.asarray(linalg.block_diag(*(frame.back.T for frame in self.frames.values())))

    def correlation(self, covariance: Array) -> Array:
        """Of the white columns, from the covariance of the table's."""
        return np.asarray(self.into.T @ covariance @ self.into)

    def shared(
        self, correlation: Array, n: float, alpha: float, least: Mapping[str, int] | None = None
    ) -> dict[str, LinearMap]:
        """{view: maps to the directions that it shares with all others beyond chance}; to all where it seems to share none.

        Canonical directions are Cov(U)^-1 times the loadings of shared components (unless their covariances cancel): what is
        orthogonal to these has none of them. n : independent rows; alpha : level; least : only of these views, so many.
        """
        out = {}
        for view in self.frames if least is None else least:
            own = self.columns[view]
            pair = _canonical(correlation, own, np.setdiff1d(np.arange(len(correlation)), own), n)
            k = max(choose_rank(pair, alpha), 0 if least is None else least[view])
            out[view] = LinearMap(pair.x_from_u[:k], pair.u_from_x[:, :k]) if k else LinearMap.identity(len(own))
        return out

    def check_independent(self, correlation: Array, variances: Array, describe: Callable[[int], str]) -> None:
        """variances : of the table's columns; describe(column) names one of them in errors."""
        values, vectors = np.linalg.eigh(correlation)
        if values[0] < SINGULAR:
            weight = np.abs(self.into @ vectors[:, 0]) * np.sqrt(np.maximum(variances, 0.0))
            raise DataError(
                f"the views are linearly dependent on each other ({describe(int(np.argmax(weight)))} is part of it), so their "
                "components cannot be told apart: drop columns that occur in several views, or use more samples than columns"
            )


def _canonical(C: Array, a: IntArray, b: IntArray, n: float) -> Canonical:
    """Of some columns with others."""
    return canonical(C[np.ix_(a, a)], C[np.ix_(a, b)], C[np.ix_(b, b)], n)


def pair_ranks(
    covariance: Array, columns: Mapping[str, IntArray], n: float, alpha: float
) -> dict[frozenset[str], float]:
    """{views i, j: rank of Cov(U_i, U_j)}, the sum of the ranks of all components that both share; infinite where no column is
    left over, so that the sum may be larger."""
    out = {}
    for (i, a), (j, b) in combinations(columns.items(), 2):
        rank = choose_rank(_canonical(covariance, a, b, n), alpha)
        out[frozenset((i, j))] = float("inf") if rank == min(len(a), len(b)) else float(rank)
    return out


@lru_cache(maxsize=16)
def multiplicity(p: int, order: int) -> Array:
    """How often each packed entry occurs in the dense tensor.

    >>> multiplicity(2, 3).tolist()
    [1.0, 3.0, 3.0, 1.0]
    """
    indices = packed_indices(p, order)
    # a run of equal indices of length m divides the t! orders of the slots by m!: one factor per step of the run
    steps = [np.sum(indices[:, : slot + 1] == indices[:, slot, None], axis=1) for slot in range(order)]
    return np.asarray(factorial(order) / np.prod(steps, axis=0))


def home(columns: Mapping[str, IntArray], views: Sequence[str]) -> IntArray:
    """The columns of some views, one after the other: those in which a component of them lives."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(columns[view] for view in views)])


@dataclass(frozen=True)
class SetEvidence:
    """Cumulants of the columns z of a state. columns : {view: its columns in z}; state : by block, views white."""

    columns: Mapping[str, IntArray]
    state: Moments

    @property
    def order(self) -> int:
        return self.state.layout.order

    @property
    def n(self) -> int:
        return self.state.n

    @property
    def p(self) -> int:
        return self.state.layout.n_columns

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(range(2, self.order + 1))

    @cached_property
    def cumulants(self) -> Cumulants:
        return Cumulants(self.state)

    @cached_property
    def correlation(self) -> Array:
        """Cov(z), (p, p): identity blocks on the diagonal."""
        return self.state.covariance(unbiased=False)

    @cached_property
    def share(self) -> Array:
        """Rows per non-empty block over all rows, (B,)."""
        return np.asarray(self.state.block_sizes[self.state.block_sizes > 0] / self.n)

    @cached_property
    def blocks(self) -> dict[int, Array]:
        """{order: (B, packed)}: each block's cumulants, linearised about the whole sample. Weighted by `share` they average to
        the (plug-in) cumulants of the whole; minus those they are the block's influence."""
        used = self.state.block_sizes > 0
        second = self.state.central_blocks()[used][:, self.state.layout.orders[2]] / self.state.block_sizes[used, None]
        return {2: second} | {t: linearised_block_cumulants(self.state, t) for t in self.orders[1:]}

    @cached_property
    def inflation(self) -> dict[int, float]:
        """{order: variance of the estimated cumulants over what it would be for Gaussian data}, averaged over entries.

        For Gaussian data n Var k(i1..it) = sum over permutations of prod_s Cov(z)[i_s, i_perm(s)].
        """
        out, b = dict[int, float](), len(self.share)
        for t in self.orders:
            centred, index = self.blocks[t] - self.share @ self.blocks[t], packed_indices(self.p, t).T
            seen = self.n * (self.share**2 @ centred**2).sum() * b / max(b - 1, 1)
            orders = map(list, permutations(range(t)))
            expected = sum(np.prod(self.correlation[index, index[perm]], axis=0).sum() for perm in orders)
            out[t] = max(float(seen / expected), 0.1)
        return out

    @cached_property
    def bit(self) -> dict[str, int]:
        """Each view as :meth:`SetSystem.bits`."""
        return {view: 1 << i for i, view in enumerate(self.columns)}

    @cached_property
    def support(self) -> dict[int, IntArray]:
        """{order: (packed,)}, the views that occur in each entry, as :meth:`SetSystem.bits`; from order 1 on."""
        owner = np.concatenate([np.full(len(own), self.bit[view]) for view, own in self.columns.items()])
        return {t: np.bitwise_or.reduce(owner[packed_indices(self.p, t)], axis=1) for t in range(1, self.order + 1)}

    def places(self, *slots: IntArray) -> IntArray:
        """Where the dense cross-cumulant of these columns, slot by slot, lies in the packed vectors."""
        at = slots[0]
        for t, columns in enumerate(slots[1:], 1):
            at = extension_table(self.p, t)[at][..., columns]
        return at


# ---- where fits start


Known = Mapping[tuple[str, Subset], Array]
"""{(view, Q): A}, known transformations from the gauge view's white columns."""


@storable
@dataclass(frozen=True)
class Structure:
    """What is fitted: the components of a system, each written in the columns of a `gauge` view, of which `ranks`, and
    transformations that are `known`."""

    system: SetSystem
    gauge: Mapping[Subset, str]
    ranks: Mapping[Subset, int]
    known: Known = field(default_factory=dict)


def sequential(evidence: SetEvidence, wanted: Structure, blocks: IntArray | None = None) -> Transforms:
    """All A(i, Q) of the members that have a rank, larger sets first, from some or all blocks, {(view, Q): (columns of view,
    rank)}. A component of full rank is written in the columns of its gauge view (the identity there), one of lower rank in an
    orthonormal basis of its directions in that view. What is known is left to the fit."""
    columns, p, system, ranks = evidence.columns, evidence.p, wanted.system, wanted.ranks
    chosen = np.arange(len(evidence.share)) if blocks is None else blocks
    share = evidence.share[chosen] / evidence.share[chosen].sum()
    left = {t: evidence.blocks[t][chosen] for t in evidence.orders}  # what larger sets do not explain, by block
    explained: set[tuple[Subset, int]] = set()
    transforms: Transforms = {}

    def leading(q: Subset, orders: Sequence[int], *last: str) -> Array:
        """Orthonormal basis (columns of the views `last`, rank) of the row space of all [M_g | M_i]: of the mean over pairs of
        different blocks of M_a' M_b."""
        at = home(columns, last)
        gram = np.zeros((len(at), len(at)))
        for t in orders:
            shown = [system.distinguished(q, evidence.support[t - 1] | evidence.bit[view]) for view in last]
            rows = np.flatnonzero(np.all(shown, axis=0))
            weight = np.sqrt(multiplicity(p, t - 1)[rows] / (factorial(t) * evidence.inflation[t]))
            values = left[t][:, extension_table(p, t - 1)[rows][:, at]] * (share[:, None] * weight)[:, :, None]
            whole, every = values.sum(axis=0), values.reshape(-1, len(at))
            gram += whole.T @ whole - every.T @ every
        return np.asarray(np.linalg.eigh(gram)[1][:, ::-1][:, : ranks[q]])

    for q in (q for q in system.order if q in ranks):
        g = wanted.gauge[q]
        d = len(columns[g])
        above = [s for s in ranks if set(q) < set(s)]
        orders = [t for t in evidence.orders if all((s, t) in explained for s in above)]
        transforms[g, q] = np.eye(d) if ranks[q] == d else leading(q, orders, g)
        for view in q:
            if view != g:
                both = leading(q, orders, g, view)  # spans [basis; A]
                transforms[view, q] = clipped(both[d:] @ np.linalg.pinv(transforms[g, q].T @ both[:d]))
        for t in orders if any(set(s) < set(q) for s in ranks) else ():
            places = evidence.places(*[home(columns, q)] * t)
            own = _own_cumulant(evidence, system, q, transforms, (share @ left[t])[places])
            if own is not None:
                explained.add((q, t))
                left[t] = left[t].copy()
                left[t][:, places[tuple(packed_indices(len(own), t).T)]] -= pack(own)
    return transforms


def _own_cumulant(
    evidence: SetEvidence, system: SetSystem, q: Subset, transforms: Transforms, cross: Array
) -> Array | None:
    """What a component adds to the cumulants of its views' columns, (columns, ...): k_t(S_Q) is the mean over all slots that
    distinguish it, slot by slot inverted, weighted by their noise; cross : the cumulants of the columns. None where no slots
    distinguish it."""
    maps = [transforms[view, q] for view in q]
    r, t = maps[0].shape[1], cross.ndim
    inverse = linalg.block_diag(*(np.linalg.pinv(A).T for A in maps)).reshape(len(cross), len(q), r)
    wide = np.array([len(A) >= r for A in maps])  # else nothing undoes A
    weight = wide / np.sum(inverse**2, axis=(0, 2))
    supports, weights, slots = np.zeros(1, dtype=np.int64), np.ones(1), cross
    for _ in range(t):
        supports = np.bitwise_or.outer(supports, [evidence.bit[view] for view in q]).ravel()
        weights = np.multiply.outer(weights, weight).ravel()
        slots = np.tensordot(slots, inverse, axes=(0, 0))
    weights = weights * system.distinguished(q, supports)
    if not weights.any():
        return None
    by_slots = np.moveaxis(slots, range(0, 2 * t, 2), range(t)).reshape(len(weights), *(r,) * t)
    return multilinear(np.tensordot(weights / weights.sum(), by_slots, 1), *[np.vstack(maps).T] * t)


def clipped(A: Array) -> Array:
    """Singular values kept in [1/_LIMIT, _LIMIT]: inverses of what noise made singular ruin everything after them."""
    left, values, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray((left * np.clip(values, 1 / _LIMIT, _LIMIT)) @ right)
