"""Section 3.2 and Appendix B.2: any set system. FindLinear (Algorithms 1 and 2) and ComputeCumulant (Algorithm 3).

Right for exact cumulants; on samples the powers of inverses of noisy transformations are what
`method="efficient"` avoids. Read as follows, the text is correct: the minimum is over Q_j, sums over supersets are strict
and leave out absent components, the distinguishing set has at least one element, and it may be padded
with ANY view of Q_j to any order r >= L + 1. We pad with the gauge view, whose transformation is the
identity and needs no inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, symmetrise, unfold
from richcomponents.components.component import Term, expand, less, require_order
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError
from richcomponents.paper.contrastive import truncated_pinv

Transforms = dict[tuple[str, Subset], Array]  # A(view, subset), shape (columns of the view, columns of the gauge view)
Columns = Mapping[str, IntArray]
Gauge = Mapping[Subset, str]

_ZERO = 1e-8  # standardised cumulants are of order one unless they vanish: far above round-off


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


def dimensions_suffice(system: SetSystem, columns: Columns, gauge: Gauge) -> bool:
    """Whether the paper's argument has all its inverses."""
    return all(len(columns[view]) >= len(columns[gauge[q]]) for q in system for view in system.distinguishing(q))


def loading(transforms: Transforms, columns: Columns, gauge: str, q: Subset) -> Array:
    """(p, columns of the gauge view): the transformations one below the other, zero where Q does not live."""
    out = np.zeros((sum(map(len, columns.values())), len(columns[gauge])))
    for view in q:
        out[columns[view]] = transforms[view, q]
    return out


def cumulant_terms(
    system: SetSystem, transforms: Transforms, gauge: Gauge, columns: Columns
) -> dict[Subset, tuple[Term, ...]]:
    """ComputeCumulant (Algorithm 3) for every order t: k_t(S_Q) of all members whose transformations are there,

        k_t(A(w1)^+ U_w1, ..., A(wt)^+ U_wt) - sum over supersets R of k_t(S_R)(M1..Mt), M_s = (A(w_s, Q)^+ A(w_s, R))',

    w1 .. wL a distinguishing set, then the gauge view.
    """
    members = [q for q in system.order if (gauge[q], q) in transforms]
    p, loadings = sum(map(len, columns.values())), {q: loading(transforms, columns, gauge[q], q) for q in members}
    terms: dict[Subset, tuple[Term, ...]] = {}
    for q in members:
        undone = {}
        for view in {*system.distinguishing(q), gauge[q]}:
            undone[view] = np.zeros((p, loadings[q].shape[1]))
            undone[view][columns[view]] = truncated_pinv(transforms[view, q]).T
        own = Term(1.0, tuple(undone[view] for view in system.distinguishing(q)), undone[gauge[q]])
        terms[q] = less(own, [(loadings[above], terms[above]) for above in system.supersets(q)])
    return terms


def evaluate(cumulants: Cumulants, terms: Sequence[Term], order: int) -> Array:
    """The tensor of a sum of terms; slots in their own places, not symmetrised. Only columns that a map uses are unpacked."""

    def value(slots: tuple[Array, ...]) -> Array:
        rows = [np.flatnonzero(W.any(axis=1)) for W in slots]
        return multilinear(cumulants.tensor(*rows), *(W[used] for W, used in zip(slots, rows, strict=True)))

    total: Array = np.sum([c * value(slots) for c, slots in expand(terms, order)], axis=0)
    return total


def find_linear(
    cumulants: Cumulants, columns: Columns, system: SetSystem, *, order: int, gauge: Gauge, zero: float = _ZERO
) -> Linear:
    """FindLinear (Algorithms 1 and 2): all A(i, Q) from cumulants of one order r >= L + 1.

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
        terms = cumulant_terms(present, transforms, gauge, columns)
        above = {r: terms[r] for r in present.supersets(q)}
        unfolded = {i: unfold(_remainder(cumulants, columns, transforms, above, (*first, i))) for i in q}
        if _standardised(cumulants, columns, unfolded[gauge[q]], (*first, gauge[q])) < zero:
            absent.append(q)
            present = present.without(q)
            continue
        inverse = truncated_pinv(unfolded[gauge[q]])
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
    transforms: Transforms,
    above: Mapping[Subset, tuple[Term, ...]],
    slots: Subset,
) -> Array:
    """k(U_w1, ..., U_wr) with the supersets' components subtracted; shape (columns of w1, ...)."""
    tensor = cumulants.tensor(*(columns[view] for view in slots))
    for q, terms in above.items():
        maps = tuple(transforms[view, q].T for view in slots)
        tensor = tensor - evaluate(cumulants, [Term(1.0, maps, maps[-1], terms)], len(slots))
    return tensor


def compute_cumulant(
    cumulants: Cumulants, columns: Columns, system: SetSystem, linear: Linear, gauge: Gauge, subset: Subset, order: int
) -> Array:
    """k_t(S_Q) by Algorithm 3, symmetrised, in the gauge view's coordinates; absent members are left out of the system."""
    for gone in linear.absent:
        system = system.without(gone)
    terms = cumulant_terms(system, linear.transforms, gauge, columns)[subset]
    require_order(f"the component of {subset}", terms, order)
    return symmetrise(evaluate(cumulants, terms, order))
