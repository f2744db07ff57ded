"""Where the joint refinement starts: the sequential pass of the paper, with all patterns and cross-block products.

For a view i of Q and any slots W for which W + {gauge} and W + {i} both distinguish Q,

    M_g = unfold k(U_W, U_g) = X,   M_i = unfold k(U_W, U_i) = X A(i, Q)'      (supersets subtracted),

so the rows of [M_g | M_i] span the row space of [I | A']. (The last slot distinguishes too: order 2 is enough for a
component common to three views.) The Gram matrices of all W and all orders are added, each from products of DIFFERENT
blocks of samples: a product within a block adds the noise of both factors to the signal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from math import factorial

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, packed_indices, packed_size, symmetrise, unpack
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.general.evidence import SetEvidence, home, multiplicity
from richcomponents.general.model import JointModel, Parameters
from richcomponents.paper.contrastive import truncated_pinv
from richcomponents.paper.general import Transforms

__all__ = ["assemble", "clipped", "covariances_identified", "least_squares_covariances", "sequential"]

_LIMIT = 5.0  # singular values of a starting transformation, between whitened views
_LEAST = 0.02  # share of variance that a starting component has at least


def clipped(A: Array, limit: float = _LIMIT) -> Array:
    """Singular values kept in [1/limit, limit]: inverses of what noise made singular ruin everything after them."""
    left, values, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray((left * np.clip(values, 1 / limit, limit)) @ right)


def sequential(
    evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], blocks: Sequence[int] | None = None
) -> Transforms:
    """All A(i, Q), larger sets first, from some or all blocks of samples."""
    pass_ = _Pass(
        evidence,
        system,
        gauge,
        np.arange(len(evidence.share), dtype=np.int64) if blocks is None else np.array(blocks, dtype=np.int64),
    )
    for q in system.order:
        pass_.find(q)
    return pass_.transforms


class _Pass:
    """Memory of a sequential pass: what was found so far is subtracted from what comes next."""

    def __init__(self, evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], blocks: IntArray) -> None:
        self.evidence, self.system, self.gauge, self.blocks = evidence, system, gauge, blocks
        share = evidence.share[blocks]
        self.share = share / share.sum()
        self.transforms: Transforms = {}
        self.tensors: dict[tuple[Subset, int], Array] = {}

    def find(self, q: Subset) -> None:
        self.transforms[self.gauge[q], q] = np.eye(len(self.evidence.columns[self.gauge[q]]))
        above = self.system.supersets(q)
        orders = [t for t in self.evidence.orders if all((r, t) in self.tensors for r in above)]
        for view in q:
            if view != self.gauge[q]:
                self.transforms[view, q] = self._transform(q, view, orders)
        for t in orders:
            tensor = self._tensor(q, t)
            if tensor is not None:
                self.tensors[q, t] = tensor

    def _transform(self, q: Subset, view: str, orders: Sequence[int]) -> Array:
        g, columns = self.gauge[q], self.evidence.columns
        d = len(columns[g])
        gram = np.zeros((d + len(columns[view]),) * 2)
        for t in orders:
            for slots in combinations_with_replacement(q, t - 1):
                if all(self.system.distinguishes((*slots, last), q) for last in (g, view)):
                    rows = np.concatenate(
                        [self._remainder(q, (*slots, last)).reshape(len(self.blocks), -1, len(columns[last]))
                         for last in (g, view)], axis=-1,
                    )  # fmt: skip
                    gram += _repeats(slots) / (factorial(t) * self.evidence.inflation[t]) * self._cross(rows)
        vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :d]
        return clipped(vectors[d:] @ truncated_pinv(vectors[:d], None))

    def _cross(self, rows: Array) -> Array:
        """Mean over pairs of different blocks of M_a' M_b, symmetrised; rows (B, rows, columns)."""
        whole = np.tensordot(self.share, rows, 1)
        weighted = (rows * self.share[:, None, None]).reshape(-1, rows.shape[-1])
        return np.asarray((whole.T @ whole - weighted.T @ weighted) / (1 - np.sum(self.share**2)))

    def _remainder(self, q: Subset, slots: Sequence[str]) -> Array:
        """Block values of k(U_w1, ..., U_wt), supersets' components subtracted: (B, columns of w1, ...)."""
        t = len(slots)
        values = self.evidence.blocks[t][:, self.evidence.position(slots)][self.blocks]
        for r in self.system.supersets(q):
            values = values - multilinear(self.tensors[r, t], *(self.transforms[view, r].T for view in slots))
        return np.asarray(values)

    def _tensor(self, q: Subset, t: int) -> Array | None:
        """k_t(S_Q) averaged over patterns, slot by slot inverted; None when no pattern of this length isolates it."""
        total, weights = np.zeros((len(self.evidence.columns[self.gauge[q]]),) * t), 0.0
        inverses = {view: truncated_pinv(self.transforms[view, q], None) for view in q}
        for slots in self.system.patterns(q, t):
            noise = float(np.prod([np.sum(inverses[view] ** 2) for view in slots]))
            mean = np.tensordot(self.share, self._remainder(q, slots), 1)
            weight = _repeats(slots) / noise
            total = total + weight * symmetrise(multilinear(mean, *(inverses[view].T for view in slots)))
            weights += weight
        return np.asarray(total / weights) if weights else None


def _repeats(slots: Sequence[str]) -> float:
    """In how many orders a multiset of slots occurs."""
    return factorial(len(slots)) / float(np.prod([factorial(m) for m in Counter(slots).values()]))


def _second_order_design(
    white: Array, system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms
) -> tuple[Array, list[int]]:
    """Packed entries of Cov(W z), weighted by the root of their multiplicity, as linear functions of all packed Cov(S_Q)."""
    index = packed_indices(len(white), 2)
    weight = np.sqrt(multiplicity(len(white), 2))
    design, sizes = [], []
    for q in system.order:
        rows = (white[:, home(columns, q)] @ np.vstack([transforms[view, q] for view in q]))[index]
        a, b = packed_indices(rows.shape[2], 2).T
        both = rows[:, 0][:, a] * rows[:, 1][:, b] + rows[:, 0][:, b] * rows[:, 1][:, a]
        design.append(both / np.where(a == b, 2.0, 1.0) * weight[:, None])
        sizes.append(rows.shape[2])
    return np.hstack(design), sizes


def least_squares_covariances(
    white: Array, total: Array, system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms
) -> dict[Subset, Array]:
    """All Cov(S_Q) from Cov(W z) = total, given A: they follow even where no single cross-covariance isolates them."""
    design, sizes = _second_order_design(white, system, columns, transforms)
    target = total[tuple(packed_indices(len(white), 2).T)] * np.sqrt(multiplicity(len(white), 2))
    solution = np.linalg.lstsq(design, target, rcond=1e-4)[0]
    ends = np.cumsum([0, *(packed_size(size, 2) for size in sizes)])
    return {q: unpack(solution[ends[i] : ends[i + 1]], sizes[i], 2) for i, q in enumerate(system.order)}


def covariances_identified(system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms) -> bool:
    """Whether second moments determine all Cov(S_Q), given A (one column per view and all subsets: they do not)."""
    p = sum(map(len, columns.values()))
    design, _ = _second_order_design(np.eye(p), system, columns, transforms)
    return bool(np.linalg.matrix_rank(design, rtol=1e-8) == design.shape[1])


def assemble(model: JointModel, transforms: Transforms) -> Parameters:
    """Starting loadings from transformations: covariances by least squares on the second moments, made positive.

    Tensors are left at zero (they are linear given the loadings).
    """
    tame = {key: clipped(A) for key, A in transforms.items()}
    covariances = least_squares_covariances(
        model.white, np.eye(model.p), model.system, model.columns, tame
    )  # Cov(W z) = I
    loadings, tensors = {}, {}
    for q in model.system.order:
        values, vectors = np.linalg.eigh(covariances[q])
        r = model.ranks[q]
        root = vectors[:, -r:] * np.sqrt(np.clip(values[-r:], _LEAST, 1.0))
        loadings[q] = np.vstack([tame[view, q] for view in q]) @ root
        for t in model.orders:
            if t > 2:
                tensors[q, t] = np.zeros(packed_size(r, t))
    return Parameters(loadings, tensors)
