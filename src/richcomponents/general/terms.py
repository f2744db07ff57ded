"""Cumulants of a component as cross-cumulants of the views, given all transformations.

    k_t(W1'z, ..., Wt'z) = k_t(S_Q) + sum over supersets R of k_t(S_R)(L_R'W1, ..., L_R'Wt)

holds when a distinguishing set of views fills some slots, each undone by its own A^+, and EVERY other slot is any linear map of
all columns that leaves S_Q as it is (W'L_Q = I); L_Q are the loadings of Q. The map of least variance,
W = Cov(z)^-1 L_Q (L_Q' Cov(z)^-1 L_Q)^-1, gives far less noise than one view. k_t(S_R) is read the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import Term, Terms, less
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.paper.contrastive import truncated_pinv

__all__ = ["pattern_terms"]

_PATTERNS = 3


def pattern_terms(
    system: SetSystem,
    transforms: Mapping[tuple[str, Subset], Array],
    columns: Mapping[str, IntArray],
    loadings: Mapping[Subset, Array],
    total: Array,
    gauge: Mapping[Subset, str],
    lifts: Mapping[Subset, Array],
) -> dict[Subset, Terms]:
    """Of every member: distinguishing sets in turn with the other slots of least variance, then with the gauge view.

    loadings : {Q: (p, columns of its gauge view)}; total : (p, p), Cov(z); lifts : {Q: (white, user's) columns of the gauge
    view}.
    """
    ends = np.cumsum([0, *(loadings[q].shape[1] for q in system.order)])
    solved = np.linalg.lstsq(total, np.hstack([loadings[q] for q in system.order]), rcond=1e-10)[0]
    white: dict[Subset, tuple[Term, ...]] = {}
    out: dict[Subset, Terms] = {}
    for i, q in enumerate(system.order):
        alone = {view: _alone(transforms[view, q], columns[view], len(total)) for view in q}
        supports = _supports(system, q, alone)
        weighted = solved[:, ends[i] : ends[i + 1]]
        best = weighted @ np.linalg.pinv(loadings[q].T @ weighted, hermitian=True, rcond=1e-10)
        patterns = [(s, best) for s in supports] + [(supports[0], alone[gauge[q]])]
        others = [(loadings[above], white[above]) for above in system.supersets(q)]
        read = [less(Term(1.0, tuple(alone[view] for view in s), fill), others) for s, fill in patterns]
        white[q] = read[0]
        out[q] = Terms(tuple((Term(1.0, (), lifts[q], terms),) for terms in read))
    return out


def _supports(system: SetSystem, q: Subset, alone: Mapping[str, Array]) -> list[Subset]:
    """Smallest distinguishing sets, those with the tamest inverses first."""
    size = len(system.distinguishing(q))
    found = [s for s in combinations(q, size) if system.distinguishes(s, q)]
    return sorted(found, key=lambda s: float(np.prod([np.sum(alone[v] ** 2) for v in s])))[:_PATTERNS]


def _alone(transform: Array, columns: IntArray, p: int) -> Array:
    """The map A(view, Q)^+ U_view, (p, columns of the gauge view)."""
    slot = np.zeros((p, transform.shape[1]))
    slot[columns] = truncated_pinv(transform).T
    return slot
