"""Which components are there: a sequential sign-flip test, larger sets first.

A cross-cumulant sees exactly the components whose sets contain its support. When set Q is tested, larger sets are decided.
Entries whose support distinguishes Q are, after the decided supersets are subtracted, cumulants of S_Q alone: zero if
it is absent. The supersets are fitted to the entries that no undecided component enters.

(Where no such entry tells a superset's tensor of some order, it is fitted to the tested entries, and only what it cannot
explain is tested.)

The noise comes from the blocks. Block b's pseudo-value of the tested entries is its own cumulants minus what ITS refit of the
supersets predicts (one Gauss-Newton step): p_b = y_b - m - J u_b, independent over blocks and, if S_Q is absent,
of mean zero. Then random signs change nothing about the distribution of |sum_b s_b p_b|^2, whatever the
dependence among entries: the observed sum is compared with sums under random signs. Orders are tested separately (a symmetric
component shows at order four only, a Gaussian one at order two) and Bonferroni's inequality joins orders and sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.errors import CapacityError, DataError
from richcomponents.general.evidence import SetEvidence
from richcomponents.general.model import (
    JointModel,
    Parameters,
    levenberg_marquardt,
    order_scale,
    solve_tensors,
)
from richcomponents.general.refine import sequential
from richcomponents.storage import storable

_FLIPS, _MOST_FLIPS = 20_000, 1_000_000
_LARGEST = 3e7  # entries times parameters of the fit of supersets


@storable
@dataclass(frozen=True)
class SetTest:
    """Evidence for one component.

    kept : whether it is in the discovered system; p_value : of the hypothesis that it is absent, Bonferroni-corrected for
    orders, not for the number of sets (NaN for single views, which are always kept); by_order : {order: its own p value};
    level : what p_value was compared with.
    """

    kept: bool
    p_value: float
    by_order: Mapping[int, float]
    level: float

    def __str__(self) -> str:
        if np.isnan(self.p_value):
            return "kept (own part of a view)"
        tried = ", ".join(f"{p:.2g} at order {t}" for t, p in self.by_order.items())
        return f"{'kept' if self.kept else 'dropped'}: p = {self.p_value:.2g} against {self.level:.2g} ({tried})"


def discover_sets(
    evidence: SetEvidence,
    system: SetSystem,
    gauge: Mapping[Subset, str],
    alpha: float = 0.01,
    random_state: int | None = 0,
) -> tuple[SetSystem, dict[Subset, SetTest]]:
    """The system that the data support, and the evidence for each member of the one it started from.

    Every member of two or more views is tested; the chance that any absent one is kept is at most alpha, given that no present
    one was missed before (what a missed component left behind is explained by others).

    Raises DataError where the blocks are too few for any component to be kept, however strong.
    """
    tested = [q for q in system.order if len(q) > 1]
    level = alpha / max(len(tested), 1)
    signs = _signs(len(evidence.share), len(evidence.orders) / level, random_state)
    if len(evidence.orders) / (1 + len(signs)) > level:
        raise DataError(_too_few(len(evidence.share), len(evidence.orders), len(signs), alpha, len(tested)))
    verdicts: dict[Subset, SetTest] = {}
    present: list[Subset] = []
    current = system
    for q in tested:
        if len(current.distinguishing(q)) > evidence.order:
            raise DataError(
                f"whether {q} has a component of its own shows from order {len(current.distinguishing(q))} on, and "
                f"order {evidence.order} is used: start from fewer sets (sets=)"
            )
        by_order = {
            t: sign_flip(values, signs) for t, values in _pseudo_values(evidence, current, present, q, gauge).items()
        }
        p = min(1.0, len(by_order) * min(by_order.values())) if by_order else 1.0
        kept = p <= level
        verdicts[q] = SetTest(kept, p, by_order, level)
        if kept:
            present.append(q)
        else:
            current = current.without(q)
    singles = tuple((view,) for view in system.views)  # never tested: their transformation is the identity
    for q in singles:
        verdicts[q] = SetTest(True, float("nan"), {}, 1.0)
    members = tuple(q for q in system.members if q in present or len(q) == 1)
    return SetSystem.of(members + tuple(q for q in singles if q not in members), system.views), verdicts


def _signs(blocks: int, resolution: float, random_state: int | None) -> Array:
    """(flips, blocks): all signs but the observed ones where they are few (an exact test), else random ones.

    resolution : one over the p value that must be reachable; random signs are some times as many, so that a chance
    repetition of the observed ones does not hide a component. A vector of signs and its negative give the same sum.
    """
    wanted = min(max(_FLIPS, int(np.ceil(4 * resolution))), _MOST_FLIPS)
    if 2 ** (blocks - 1) - 1 <= wanted:
        numbers = np.arange(1, 2 ** (blocks - 1))
        return np.asarray(1.0 - 2.0 * (numbers[:, None] >> np.arange(blocks) & 1))
    rng = np.random.default_rng(random_state)
    return np.asarray(rng.integers(0, 2, (wanted, blocks)) * 2.0 - 1.0)


def _too_few(blocks: int, orders: int, flips: int, alpha: float, sets: int) -> str:
    """Why nothing could be kept, and what to do about it."""
    remedies = ["a larger alpha", "fewer sets to test (sets=)"]
    if orders * sets / alpha <= _MOST_FLIPS:
        needed = int(np.ceil(1 + np.log2(orders * sets / alpha)))
        remedies.insert(0, f"more blocks (n_blocks=; groups= must give as many groups): at least {needed}")
    return (
        f"the test of discover=True cannot keep any component, however strong: with {blocks} blocks and cumulants of {orders} "
        f"orders its smallest p value is {orders / (1 + flips):.2g}, and alpha = {alpha:g} over {sets} sets asks for "
        f"{alpha / sets:.2g}. Use {', or '.join(remedies)}"
    )


def sign_flip(values: Array, signs: Array) -> float:
    """p value of mean zero for independent symmetric-noise rows (B, entries): |sum_b s_b p_b|^2 over signs (flips, B)."""
    gram = values @ values.T
    observed = float(gram.sum())
    larger = 0
    for start in range(0, len(signs), _FLIPS):
        some = signs[start : start + _FLIPS]
        larger += int(np.sum(np.einsum("fb,fb->f", some @ gram, some) >= observed * (1 - 1e-12)))
    return (1 + larger) / (1 + len(signs))


def _pseudo_values(
    evidence: SetEvidence, current: SetSystem, present: list[Subset], q: Subset, gauge: Mapping[Subset, str]
) -> dict[int, Array]:
    """{order: (B, tested entries)}, weighted."""
    least = len(current.distinguishing(q))
    tested = {
        t: _entries(evidence, t, lambda support: current.distinguishes(support, q)) if t >= least else _NONE
        for t in evidence.orders
    }
    weight = evidence.share * len(evidence.share)
    scale = order_scale(evidence, tested)
    above = [r for r in present if set(q) < set(r)]
    if not above:
        return {
            t: weight[:, None] * evidence.blocks[t][:, chosen] * scale[t] for t, chosen in tested.items() if len(chosen)
        }
    for r in above:
        if len(current.distinguishing(r)) >= evidence.order:
            raise DataError(
                f"the data show a component of {r}, but to subtract it when {q} is tested takes cumulants of order "
                f"{len(current.distinguishing(r)) + 1}, and order {evidence.order} is used: start from fewer sets (sets=), "
                "for example without those of three views"
            )
    undecided = [r for r in current if r not in present]
    fitted = {
        t: _entries(
            evidence,
            t,
            lambda support: (
                any(set(support) <= set(r) for r in present) and not any(set(support) <= set(r) for r in undecided)
            ),
        )
        for t in evidence.orders
    }
    decided = SetSystem(current.views, tuple(present))
    ranks = {r: len(evidence.columns[gauge[r]]) for r in present}
    eye, orders = np.eye(evidence.p), evidence.orders
    fit_model = JointModel(
        decided, evidence.columns, ranks, orders, eye, fitted, order_scale(evidence, fitted), free_second=True
    )
    test_model = JointModel(decided, evidence.columns, ranks, orders, eye, tested, scale, free_second=True)
    if fit_model.size * sum(map(len, fitted.values())) > _LARGEST:
        raise CapacityError(
            f"discover=True refits large problems too often ({evidence.p} columns): reduce each view to its leading principal "
            "components first, or name the sets (sets=)"
        )
    x = _fit_present(evidence, current, decided, gauge, fit_model)
    value, slope = fit_model.linearise(x)
    normal = slope.T @ slope
    # Factors are known up to a linear map, along which nothing changes: a tiny ridge makes the step unique.
    step = linalg.solve(normal + 1e-7 * np.diag(normal).max() * np.eye(len(normal)), slope.T, assume_a="pos")
    moved = (fit_model.data(evidence.blocks) - value) @ step.T  # (B, parameters)
    blocks = test_model.data(evidence.blocks)
    free = {t: [test_model.slices[r, t] for r in above if len(current.distinguishing(r)) > t] for t in orders}
    x, projections = _fit_unknown(test_model, x, weight @ blocks / len(weight), tested, free)
    expected, change = test_model.linearise(x)
    pseudo = weight[:, None] * (blocks - expected - moved @ change.T)
    return {t: pseudo[:, _rows(tested, t)] @ keep for t, keep in projections.items() if keep.shape[1]}


def _rows(entries: Mapping[int, IntArray], order: int) -> slice:
    """Where the entries of an order lie in the joined vector."""
    start = sum(len(chosen) for t, chosen in entries.items() if t < order)
    return slice(start, start + len(entries[order]))


def _fit_unknown(
    model: JointModel, x: Array, data: Array, tested: Mapping[int, IntArray], free: Mapping[int, list[slice]]
) -> tuple[Array, dict[int, Array]]:
    """Supersets' tensors that no other entry tells are fitted to the tested entries themselves, and what they can
    explain is projected out: what remains still tests Q (a covariance A K A' has only so many shapes).

    Returns x with those tensors, and {order: orthonormal directions (entries, kept) that they cannot reach}.
    """
    x = x.copy()
    for parts in free.values():
        for part in parts:
            x[part] = 0.0
    value, slope = model.linearise(x)
    projections = {}
    for t, chosen in tested.items():
        rows, parts = _rows(tested, t), free[t]
        keep = np.eye(len(chosen))
        if parts and len(chosen):
            columns = np.concatenate([np.arange(part.start, part.stop) for part in parts])
            left, values, right = np.linalg.svd(slope[rows][:, columns], full_matrices=True)
            rank = int(np.sum(values > 1e-6 * values[0]))
            inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
            x[columns] = inverse @ (data[rows] - value[rows])
            keep = left[:, rank:]
        projections[t] = keep
    return x, projections


_NONE = np.zeros(0, dtype=np.int64)


def _entries(evidence: SetEvidence, order: int, wanted: Callable[[Subset], bool]) -> IntArray:
    """Packed entries of an order whose support is wanted."""
    chosen = [where for support, where in evidence.supports(order) if wanted(support)]
    return np.sort(np.concatenate(chosen)) if chosen else _NONE


def _fit_present(
    evidence: SetEvidence, current: SetSystem, decided: SetSystem, gauge: Mapping[Subset, str], model: JointModel
) -> Array:
    """Parameters of the decided components, from the entries that see nothing else."""
    transforms = sequential(evidence, current, gauge)
    loadings = {r: 0.5 * np.vstack([transforms[view, r] for view in r]) for r in decided}
    tensors = {
        (r, t): np.zeros(model.slices[r, t].stop - model.slices[r, t].start) for r in decided for t in model.orders
    }
    data = model.data({t: evidence.cumulants.packed(t) for t in evidence.orders})
    x = solve_tensors(model, model.join(Parameters(loadings, tensors)), data)
    return levenberg_marquardt(model, x, data, iterations=100).x
