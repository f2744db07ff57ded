"""The paper's algorithms for any set system: FindLinear and ComputeCumulant (Section 3.2, Appendix B.2).

Right for exact cumulants; on samples the powers of inverses of noisy transformations are what
`method="efficient"` avoids. Read as follows, the text is correct: the minimum is over Q_j, sums over supersets are strict
and leave out absent components, the distinguishing set has at least one element, and it may be padded
with ANY view of Q_j to any order r >= L + 1. We pad with the gauge view, whose transformation is the
identity and needs no inverse.

Everything here is a sum of cross-cumulants of linear maps of views, so it is written as such: a :class:`ViewTerm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, symmetrise, unfold
from richcomponents.components.component import Recipe, Term
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError
from richcomponents.paper.mixing import truncated_pinv
from richcomponents.storage import storable

__all__ = [
    "Linear",
    "SetPaperRecipes",
    "Transforms",
    "ViewTerm",
    "cumulant_terms",
    "evaluate",
    "find_linear",
    "paper_cumulant",
    "require_dimensions",
]

Transforms = dict[tuple[str, Subset], Array]  # A(view, subset), shape (columns of the view, columns of the gauge view)
Columns = Mapping[str, IntArray]
Gauge = Mapping[Subset, str]

_ZERO = 1e-8  # standardised cumulants are of order one unless they vanish: far above round-off


@dataclass(frozen=True)
class ViewTerm:
    """coefficient times k(M1' U_w1, ..., Mt' U_wt); slots are pairs (view, M) with M of shape (columns of the view, m)."""

    coefficient: float
    slots: tuple[tuple[str, Array], ...]

    def through(self, maps: tuple[Array, ...], coefficient: float) -> ViewTerm:
        """The same with further maps (m, m') applied, slot by slot."""
        slots = tuple((view, M @ more) for (view, M), more in zip(self.slots, maps, strict=True))
        return ViewTerm(self.coefficient * coefficient, slots)

    def on_table(self, columns: Columns, width: int) -> Term:
        """As a term on the whole row z, slots (width, m)."""
        slots = []
        for view, M in self.slots:
            slot = np.zeros((width, M.shape[1]))
            slot[columns[view]] = M
            slots.append(slot)
        return Term(self.coefficient, tuple(slots))


@dataclass(frozen=True)
class Linear:
    """What FindLinear returns: transforms, and the members found absent (every cumulant of order r vanishes)."""

    transforms: Transforms
    absent: tuple[Subset, ...]


def require_dimensions(system: SetSystem, columns: Columns, gauge: Gauge) -> None:
    """Refuse where the paper's argument has no inverse: S_Q has as many coordinates as its gauge view."""
    for q in system.order:
        home = len(columns[gauge[q]])
        for view in system.distinguishing(q):
            if len(columns[view]) < home:
                smallest = min(q, key=lambda v: len(columns[v]))
                raise DataError(
                    f"the component of {q} is written in the {home} (independent) columns of view {gauge[q]!r}, but view "
                    f"{view!r} has only {len(columns[view])} and cannot show all of it. Write it in the smallest view, "
                    f"gauge={{{q!r}: {smallest!r}}}, or give {view!r} more columns"
                )


def evaluate(cumulants: Cumulants, columns: Columns, terms: list[ViewTerm]) -> Array:
    """The tensor of a sum of terms; slots in their own places, not symmetrised."""
    total: Array = np.sum(
        [
            t.coefficient * multilinear(cumulants.tensor(*(columns[v] for v, _ in t.slots)), *(M for _, M in t.slots))
            for t in terms
        ],
        axis=0,
    )
    return total


def require_slots(subset: Subset, support: Subset, order: int) -> None:
    """Refuse a cumulant of lower order than a distinguishing set has views."""
    if order < len(support):
        raise DataError(
            f"the cumulant of order {order} of the component of {subset} cannot be read off cross-cumulants: it takes "
            f"{len(support)} slots ({', '.join(support)}) to tell it from the others"
        )


def cumulant_terms(
    system: SetSystem, transforms: Transforms, gauge: Gauge, subset: Subset, order: int
) -> list[ViewTerm]:
    """ComputeCumulant: k_t(S_Q) as a sum of cross-cumulants of views, t >= the size of its distinguishing set.

    k_t(A(w1)^+ U_w1, ..., A(wt)^+ U_wt) - sum over supersets R of k_t(S_R)(M1..Mt), M_s = (A(w_s, Q)^+ A(w_s, R))',
    with k_t(S_R) written out the same way.
    """
    support = system.distinguishing(subset)
    require_slots(subset, support, order)
    slots = support + (gauge[subset],) * (order - len(support))
    inverses = {view: truncated_pinv(transforms[view, subset], None) for view in set(slots)}
    terms = [ViewTerm(1.0, tuple((view, inverses[view].T) for view in slots))]
    for above in system.supersets(subset):
        maps = tuple((inverses[view] @ transforms[view, above]).T for view in slots)
        terms += [t.through(maps, -1.0) for t in cumulant_terms(system, transforms, gauge, above, order)]
    return terms


def find_linear(
    cumulants: Cumulants, columns: Columns, system: SetSystem, *, order: int, gauge: Gauge, zero: float = _ZERO
) -> Linear:
    """FindLinear: all A(i, Q) from cumulants of one order r >= L + 1.

    columns : {view: its columns}; gauge : {subset: the view in which its transformation is the identity};
    zero : standardised cumulants below this count as none, and the component as absent (an absolute scale: a relative one
    would pass on round-off).
    """
    system.require_order(order)
    require_dimensions(system, columns, gauge)
    transforms: Transforms = {}
    present, absent = system, []
    for q in system.order:
        support = present.distinguishing(q)  # shorter, perhaps, since others were found absent
        first = support + (gauge[q],) * (order - 1 - len(support))
        unfolded = {i: unfold(_remainder(cumulants, columns, present, transforms, gauge, q, (*first, i))) for i in q}
        if _standardised(cumulants, columns, unfolded[gauge[q]], (*first, gauge[q])) < zero:
            absent.append(q)
            present = present.without(q)
            continue
        inverse = truncated_pinv(unfolded[gauge[q]], None)
        for view in q:
            transforms[view, q] = (inverse @ unfolded[view]).T
        transforms[gauge[q], q] = np.eye(len(columns[gauge[q]]))
    return Linear(transforms, tuple(absent))


def _standardised(cumulants: Cumulants, columns: Columns, unfolded: Array, slots: Subset) -> float:
    """Root mean square of a cross-cumulant of columns of variance one."""
    deviation = np.sqrt(cumulants.moments.variances)
    inverse = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
    rows = np.ones(1)
    for view in slots[:-1]:
        rows = np.outer(rows, inverse[columns[view]]).ravel()
    return float(np.sqrt(np.mean((rows[:, None] * unfolded * inverse[columns[slots[-1]]]) ** 2)))


def _remainder(
    cumulants: Cumulants,
    columns: Columns,
    system: SetSystem,
    transforms: Transforms,
    gauge: Gauge,
    subset: Subset,
    slots: Subset,
) -> Array:
    """k(U_w1, ..., U_wr) with the supersets' components subtracted; shape (columns of w1, ...)."""
    tensor = cumulants.tensor(*(columns[view] for view in slots))
    for above in system.supersets(subset):
        maps = tuple(transforms[view, above].T for view in slots)
        terms = cumulant_terms(system, transforms, gauge, above, len(slots))
        tensor = tensor - evaluate(cumulants, columns, [t.through(maps, 1.0) for t in terms])
    return tensor


@storable
@dataclass(frozen=True)
class SetPaperRecipes:
    """Recipes of one component for :class:`Component`: ComputeCumulant, on whole rows.

    lift : (columns of the gauge view, user's columns of the gauge view), to write the component in the user's units.
    """

    system: SetSystem
    transforms: Transforms
    gauge: Gauge
    subset: Subset
    columns: Columns
    lift: Array

    def __call__(self, order: int) -> list[Recipe]:
        width = sum(map(len, self.columns.values()))
        terms = cumulant_terms(self.system, self.transforms, self.gauge, self.subset, order)
        lifted = [t.through((self.lift,) * order, 1.0) for t in terms]
        return [tuple(t.on_table(self.columns, width) for t in lifted)]


def paper_cumulant(
    cumulants: Cumulants, columns: Columns, system: SetSystem, linear: Linear, gauge: Gauge, subset: Subset, order: int
) -> Array:
    """k_t(S_Q), symmetrised, in the gauge view's coordinates; absent members are left out of the system."""
    for gone in linear.absent:
        system = system.without(gone)
    return symmetrise(evaluate(cumulants, columns, cumulant_terms(system, linear.transforms, gauge, subset, order)))
