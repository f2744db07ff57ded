"""Cumulants of a component as cross-cumulants of the views, given all transformations.

    k_t(W1'z, ..., Wt'z) = k_t(S_Q) + sum over supersets R of k_t(S_R)(L_R'W1, ..., L_R'Wt)

holds when a distinguishing set of views fills some slots, each undone by its own A^+, and EVERY other slot is any linear map of
all columns that leaves S_Q as it is (W'L_Q = I); L_Q are the loadings of Q. The map of least variance,
W = Cov(z)^-1 L_Q (L_Q' Cov(z)^-1 L_Q)^-1, gives far less noise than one view. k_t(S_R) is written out the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import Recipe, Term
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.paper.find_linear import Transforms, require_slots
from richcomponents.paper.mixing import truncated_pinv
from richcomponents.storage import storable

__all__ = ["PatternRecipes"]

_PATTERNS = 3


@storable
@dataclass(frozen=True)
class PatternRecipes:
    """Recipes for one component: distinguishing sets in turn, other slots with the least variance, or the gauge view.

    loadings : {Q: (p, columns of its gauge view)}; total : (p, p), Cov(z); lift : (white, user's) columns of the gauge view.
    Called with an order that is too low for the distinguishing sets it raises DataError.
    """

    system: SetSystem
    transforms: Transforms
    gauge: Mapping[Subset, str]
    subset: Subset
    columns: Mapping[str, IntArray]
    loadings: Mapping[Subset, Array]
    total: Array
    lift: Array

    def __call__(self, order: int) -> list[Recipe]:
        supports = self._supports(self.subset)
        recipes = [self._terms(self.subset, support, self._best(self.subset), order) for support in supports]
        recipes.append(self._terms(self.subset, supports[0], self._alone(self.gauge[self.subset], self.subset), order))
        return [
            tuple(Term(t.coefficient, tuple(slot @ self.lift for slot in t.slots)) for t in recipe)
            for recipe in recipes
        ]

    def _supports(self, q: Subset) -> list[Subset]:
        """Smallest distinguishing sets, those with the tamest inverses first."""
        size = len(self.system.distinguishing(q))
        found = [s for s in combinations(q, size) if self.system.distinguishes(s, q)]
        return sorted(found, key=lambda s: float(np.prod([np.sum(self._alone(v, q) ** 2) for v in s])))[:_PATTERNS]

    def _alone(self, view: str, q: Subset) -> Array:
        """The slot A(view, Q)^+ U_view, (p, columns of the gauge view)."""
        slot = np.zeros((len(self.total), len(self.columns[self.gauge[q]])))
        slot[self.columns[view]] = truncated_pinv(self.transforms[view, q], None).T
        return slot

    def _best(self, q: Subset) -> Array:
        """The slot of least variance that leaves S_Q as it is."""
        solved = np.linalg.lstsq(self.total, self.loadings[q], rcond=1e-10)[0]
        return np.asarray(solved @ np.linalg.pinv(self.loadings[q].T @ solved, hermitian=True, rcond=1e-10))

    def _terms(self, q: Subset, support: Subset, other: Array, order: int) -> Recipe:
        require_slots(q, support, order)
        slots = tuple(self._alone(view, q) for view in support) + (other,) * (order - len(support))
        terms = [Term(1.0, slots)]
        for above in self.system.supersets(q):
            maps = [self.loadings[above].T @ slot for slot in slots]
            for term in self._terms(above, self._supports(above)[0], self._best(above), order):
                terms.append(Term(-term.coefficient, tuple(s @ m for s, m in zip(term.slots, maps, strict=True))))
        return tuple(terms)
