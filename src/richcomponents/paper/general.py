"""Section 3.2 and Appendix B.2: any set system. FindLinear (Algorithms 1 and 2) and ComputeCumulant (Algorithm 3).

Right for exact cumulants; on samples the powers of inverses of noisy transformations are what `method="efficient"` avoids.
Read as follows, the text is correct: the minimum is over Q_j, sums over supersets are strict and leave out absent components,
the distinguishing set has at least one element, and it may be padded with ANY view of Q_j to any order r >= L + 1. We pad with
the gauge view, whose transformation is the identity and needs no inverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, symmetrise, unfold
from richcomponents.algebra.arrays import whitening
from richcomponents.components.component import Term, expand, less, require_order
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError
from richcomponents.paper.contrastive import side_by_side, truncated_pinv

Transforms = dict[tuple[str, Subset], Array]  # A(view, subset), shape (columns of the view, columns of the gauge view)
Columns = Mapping[str, IntArray]
Gauge = Mapping[Subset, str]

_SIGNS, _LEVEL = 400, 0.95  # draws of noise, and their quantile that singular values have to exceed
_ZERO = 1e-8  # cumulants of white columns are of order one unless they vanish: far above round-off


@dataclass(frozen=True)
class Linear:
    """What FindLinear returns: transforms; the system of the members that are there, and the views they are written in; the
    absent members (every cumulant of order r vanishes), and, of samples, those of which noise hides some directions:
    sigma_min(M) is too small to be inverted.

    >>> S = np.array([[0.0], [0.0], [1.0]])
    >>> find_linear({"a": S, "b": S}, [("a", "b")], unbiased=False).absent
    ()
    """

    transforms: Transforms
    system: SetSystem
    gauge: Gauge
    absent: tuple[Subset, ...]
    blurred: tuple[Subset, ...] = ()


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

    return np.asarray(np.sum([c * value(slots) for c, slots in expand(terms, order)], axis=0))


def find_linear(
    views: Mapping[str, Array],
    sets: Iterable[object] | None = None,
    *,
    order: int | None = None,
    gauge: Gauge | None = None,
    unbiased: bool = True,
) -> Linear:
    """FindLinear (Algorithms 1 and 2) from samples: all A(i, Q).

    views : {name: (n, d)}; sets : the set system {Q_j}, by default all non-empty subsets; order : r >= L + 1, of cumulants,
    L + 1 by default (odd orders of symmetric data vanish: give order=4); gauge : {Q: the view in which A(i, Q) is the
    identity}, min(Q) by default. "M = 0" means a root mean square below 1e-8 in white columns: a test for exact cumulants. On
    samples no component is taken for absent; RCA(method="paper") compares M with its noise instead.

    Examples
    --------
    >>> S = np.array([[0.0], [0.0], [1.0]])
    >>> linear = find_linear({"a": S, "b": 2 * S, "c": -S}, [("a", "b", "c")], order=3, unbiased=False)
    >>> {view: A.round(6).item() for (view, q), A in linear.transforms.items()}
    {'a': 1.0, 'b': 2.0, 'c': -1.0}
    """
    system = SetSystem.all(tuple(views)) if sets is None else SetSystem.of(sets, tuple(views))
    r = system.L + 1 if order is None else order
    cumulants, places = side_by_side(*views.values(), order=r, unbiased=unbiased)
    columns = dict(zip(views, places, strict=True))
    return linear_of_cumulants(cumulants, columns, system, order=r, gauge=gauge or {q: q[0] for q in system})


def compute_cumulant(
    views: Mapping[str, Array], linear: Linear, subset: Iterable[str], order: int, *, unbiased: bool = True
) -> Array:
    """ComputeCumulant (Algorithm 3) from samples: k_t(S_Q), t >= L, in the coordinates of its gauge view, symmetrised.

    The distinguishing set is padded with the gauge view, whose transformation is the identity (the paper pads with w_L).

    Examples
    --------
    >>> views = {"a": np.array([[0.0], [0.0], [1.0]]), "b": np.array([[0.0], [0.0], [2.0]])}
    >>> linear = find_linear(views, [("a", "b")], order=3, unbiased=False)
    >>> round(compute_cumulant(views, linear, ("a", "b"), 2, unbiased=False).item(), 6)
    0.222222
    """
    asked = set(subset)
    member = next((q for q in linear.system.order if set(q) == asked), None)
    if member is None:
        raise DataError(
            f"no component of {sorted(asked)}: there are {list(map(list, linear.system.order))}"
            + (f", and absent are {list(map(list, linear.absent))}" if linear.absent else "")
        )
    cumulants, places = side_by_side(*views.values(), order=max(order, 2), unbiased=unbiased)
    return cumulant_of_component(cumulants, dict(zip(views, places, strict=True)), linear, member, order)


def linear_of_cumulants(
    cumulants: Cumulants,
    columns: Columns,
    system: SetSystem,
    *,
    order: int,
    gauge: Gauge,
    zero: float = _ZERO,
    without: Sequence[Cumulants] = (),
    known: Mapping[tuple[str, Subset], Array] | None = None,
) -> Linear:
    """The same from cumulants of one order r >= L + 1.

    columns : {view: its columns}; gauge : {subset: the view in which its transformation is the identity};
    zero : cumulants of white columns below this, in root mean square, count as none, and the component as absent (an absolute
    scale: a relative one would pass on round-off).
    without : the cumulants of a sample without each of its blocks, at least two of them. "M = 0 (or sigma_min(M) is too small)"
    then means, for components of several views, no larger than noise makes the singular values of nothing: if all of them are,
    S = 0; by the paper's assumption that M is zero or has full rank one that is larger tells that the component is there.
    known : transformations that are taken as they are.
    """
    system.require_order(order)
    require_dimensions(system, columns, gauge)
    samples: list[tuple[Cumulants, Transforms]] = [(one, {}) for one in (cumulants, *without)]
    present, absent, blurred = system, [], []
    for q in system.order:
        support = present.distinguishing(q)  # shorter, perhaps, since others were found absent
        first = support + (gauge[q],) * (order - 1 - len(support))
        unfolded = [_unfolded(*sample, present, columns, gauge, q, first) for sample in samples]
        own, slots = [M[gauge[q]] for M in unfolded], (*first, gauge[q])
        size = float(np.sqrt(np.mean(_white(cumulants, columns, own[0], slots) ** 2)))
        directions = own[0].shape[1] if size >= zero else 0
        if directions and without and len(q) > 1:  # a view's own component is always there
            directions = _beyond_noise(cumulants, columns, own, slots)
            blurred += [q] if 0 < directions < own[0].shape[1] else []
        if not directions:
            absent.append(q)
            present = present.without(q)
            continue
        for (_, transforms), M in zip(samples, unfolded, strict=True):
            inverse = truncated_pinv(M[gauge[q]])
            for view in q:
                transforms[view, q] = (known or {}).get((view, q), (inverse @ M[view]).T)
            transforms[gauge[q], q] = np.eye(len(columns[gauge[q]]))
    return Linear(samples[0][1], present, gauge, tuple(absent), tuple(blurred))


def _unfolded(
    cumulants: Cumulants,
    transforms: Transforms,
    present: SetSystem,
    columns: Columns,
    gauge: Gauge,
    q: Subset,
    first: Subset,
) -> dict[str, Array]:
    """{i: M_i}, unfold(k(U_first, U_i)) less what the supersets R of Q add to it, k(S_R)(A(w1, R)', ..., A(i, R)')."""
    terms = cumulant_terms(present, transforms, gauge, columns)
    above = [(loading(transforms, columns, gauge[r], r), terms[r]) for r in present.supersets(q)]
    show = {view: np.eye(sum(map(len, columns.values())))[:, at] for view, at in columns.items()}
    own = {i: Term(1.0, tuple(show[view] for view in first), show[i]) for i in q}
    return {i: unfold(evaluate(cumulants, less(term, above), len(first) + 1)) for i, term in own.items()}


def _beyond_noise(cumulants: Cumulants, columns: Columns, unfolded: Sequence[Array], slots: Subset) -> int:
    """How many singular values of M can be told from zero.

    unfolded : M of all blocks, then without each. The jackknife's deviations of B of them, with random signs, are as large as
    the error E of M, and a singular value that is zero comes out at most |E| (Weyl). In white columns of the views, where E is
    alike in all directions.
    """
    M, *left_out = (_white(cumulants, columns, one, slots) for one in unfolded)
    deviations = np.stack(left_out) - np.mean(left_out, axis=0)
    B = len(left_out)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(_SIGNS, B)) * np.sqrt((B - 1) / B)
    noise = np.linalg.norm(np.tensordot(signs, deviations, 1), ord=2, axis=(1, 2))
    return int(np.sum(np.linalg.svd(M, compute_uv=False) > np.quantile(noise, _LEVEL)))


def _white(cumulants: Cumulants, columns: Columns, unfolded: Array, slots: Subset) -> Array:
    """An unfolded cross-cumulant of the views in these slots, in white columns of each."""
    maps = {view: whitening(cumulants.tensor(columns[view], columns[view]))[0].T for view in set(slots)}
    tensor = unfolded.reshape([len(columns[view]) for view in slots])
    return unfold(multilinear(tensor, *(maps[view] for view in slots)))


def cumulant_of_component(cumulants: Cumulants, columns: Columns, linear: Linear, subset: Subset, order: int) -> Array:
    """The same from cumulants."""
    terms = cumulant_terms(linear.system, linear.transforms, linear.gauge, columns)[subset]
    require_order(f"the component of {subset}", terms, order)
    return symmetrise(evaluate(cumulants, terms, order))
