"""From evidence to the loadings of all components: starts, the joint fit, a polish with the cumulants' full covariance.

START. Where the joint refinement starts: the sequential pass of the paper, with all patterns and cross-block products.

For a view i of Q and any slots W for which W + {gauge} and W + {i} both distinguish Q,

    M_g = unfold k(U_W, U_g) = X,   M_i = unfold k(U_W, U_i) = X A(i, Q)'      (supersets subtracted),

so the rows of [M_g | M_i] span the row space of [I | A']. (The last slot distinguishes too: order 2 is enough for a
component common to three views.) The Gram matrices of all W and all orders are added, each from products of DIFFERENT
blocks of samples: a product within a block adds the noise of both factors to the signal.

LARGE. The joint refinement of large problems: the same f as in model.py, by gradients, without a matrix of derivatives.

With D_Q = model(., B_Q, ..., B_Q) - data(., B_Q, ..., B_Q) (p x r^(t-1)) the derivatives of |data - model|^2 are
2 B_Q' D_Q for K_Q and 2 t D_Q K_Q' for B_Q. The model's part needs only the small matrices B_R' B_Q; the data's
part is one contraction of the dense cumulant tensor, done for all components at once.

INFLUENCE. The noise of the estimated cumulants, from rows: the covariance of their influence functions.

Near Gaussian data, after joint whitening, estimated cumulants are uncorrelated with known variances, and the joint
refinement needs no more. Away from it (skewed, heavy-tailed parts) they are correlated; with their covariance as
weight the transformations become up to twice as precise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import factorial

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from richcomponents.algebra import (
    Array,
    IntArray,
    multilinear,
    pack,
    packed_indices,
    packed_rank,
    packed_size,
    unpack,
)
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.packing import extension_table
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.errors import CapacityError
from richcomponents.inference.verdicts import Test, Verdict, against_noise
from richcomponents.learning.solvers import minimise
from richcomponents.paper.general import Transforms
from richcomponents.sets.evidence import SetEvidence, home, multiplicity
from richcomponents.sets.model import (
    JointModel,
    Known,
    Minimum,
    Parameters,
    in_coordinates,
    levenberg_marquardt,
    relative_errors,
    solve_tensors,
    ties_of,
    white_data,
    white_model,
)

_LEAST = 0.02  # share of variance that a starting component has at least
_LIMIT = 5.0  # singular values of a starting transformation, between whitened views


def clipped(A: Array) -> Array:
    """Singular values kept in [1/_LIMIT, _LIMIT]: inverses of what noise made singular ruin everything after them."""
    left, values, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray((left * np.clip(values, 1 / _LIMIT, _LIMIT)) @ right)


def sequential(
    evidence: SetEvidence,
    system: SetSystem,
    gauge: Mapping[Subset, str],
    ranks: Mapping[Subset, int],
    blocks: IntArray | None = None,
) -> Transforms:
    """All A(i, Q), larger sets first, from some or all blocks of samples: {(view, Q): (columns of the view, rank)}.

    ranks : of the members that are wanted. A component of full rank is written in the columns of its gauge view (the identity
    there), one of lower rank in an orthonormal basis of its directions in that view.
    """
    columns, p = evidence.columns, evidence.p
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
        g, d = gauge[q], len(columns[gauge[q]])
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


Tensors = dict[tuple[Subset, int], Array]


class DenseObjective:
    """f and its gradient for a :class:`JointModel` with all entries; parameters are loadings and dense tensors.

    data : {order: dense cumulants (p,) * order in the model's coordinates}; weights : {order: n / (t! v_t)}.
    Tensors are scaled by the root of their order's weight, so that all parameters have comparable curvature.
    """

    def __init__(self, model: JointModel, data: Mapping[int, Array], weights: Mapping[int, float]) -> None:
        self.model, self.data, self.weights = model, data, weights
        self.subsets = model.system.order
        self.norms = {t: float(np.sum(tensor**2)) for t, tensor in data.items()}
        first, second = np.triu_indices(model.p)
        self.pairs = np.zeros((model.p, model.p), dtype=np.int64)
        self.pairs[first, second] = self.pairs[second, first] = np.arange(len(first))
        self.halves = {t: tensor[first, second] for t, tensor in data.items() if t > 2}

    @cached_property
    def slices(self) -> dict[tuple[Subset, int], slice]:
        out, start = {}, 0
        for q in self.subsets:
            for t in (1, *(t for t in self.model.orders if t > 2)):
                r = self.model.ranks[q]
                size = self.model.white_home[q].shape[1] * r if t == 1 else r**t
                out[q, t] = slice(start, start + size)
                start += size
        return out

    def join(self, loadings: Mapping[Subset, Array], tensors: Tensors) -> Array:
        x = np.zeros(max(part.stop for part in self.slices.values()))
        for (q, t), part in self.slices.items():
            x[part] = loadings[q].ravel() if t == 1 else tensors[q, t].ravel() * np.sqrt(self.weights[t])
        return x

    def split(self, x: Array) -> tuple[dict[Subset, Array], Tensors]:
        loadings = {q: x[self.slices[q, 1]].reshape(-1, self.model.ranks[q]) for q in self.subsets}
        tensors = {
            (q, t): x[part].reshape((self.model.ranks[q],) * t) / np.sqrt(self.weights[t])
            for (q, t), part in self.slices.items()
            if t > 1
        }
        return loadings, tensors

    def seen(self, B: Mapping[Subset, Array], t: int) -> dict[Subset, Array]:
        """data(., B_Q, ..., B_Q) for all Q, (p, r^(t-1)); the large contraction is one matrix product, of half of the data:
        the first two slots may be exchanged."""
        stacked = np.hstack([B[q] for q in self.subsets])
        p = len(stacked)
        if t == 2:
            return {q: self.data[2] @ B[q] for q in self.subsets}
        half = self.halves[t]
        once = (half.reshape(-1, p) @ stacked).reshape((len(half),) + (p,) * (t - 3) + (-1,))
        out, start = {}, 0
        for q in self.subsets:
            r = B[q].shape[1]
            part = once[..., start : start + r]
            start += r
            for slot in range(t - 3, 0, -1):
                part = np.moveaxis(np.tensordot(part, B[q], axes=(slot, 0)), -1, slot)
            both = part.reshape(len(half), -1)[self.pairs]  # (p, p, r^(t-2)): a symmetric tensor, slots in any order
            out[q] = np.tensordot(both, B[q], axes=(1, 0)).reshape(p, -1)
        return out

    def explained(self, B: Mapping[Subset, Array], tensors: Mapping[Subset, Array], q: Subset, t: int) -> Array:
        """model(., B_Q, ..., B_Q), (p, r^(t-1))."""
        total = np.zeros((len(B[q]), B[q].shape[1] ** (t - 1)))
        for other in self.subsets:
            inner = multilinear(tensors[other], None, *[B[other].T @ B[q]] * (t - 1))
            total += B[other] @ inner.reshape(len(inner), -1)
        return total

    def __call__(self, x: Array) -> tuple[float, Array]:
        loadings, free = self.split(x)
        B = {q: self.model.white_home[q] @ loadings[q] for q in self.subsets}
        value, gradient = 0.0, np.zeros_like(x)
        slope = {q: np.zeros_like(B[q]) for q in self.subsets}
        for t in self.model.orders:
            tensors = {q: free[q, t] if t > 2 else np.eye(B[q].shape[1]) for q in self.subsets}
            seen = self.seen(B, t)
            total = self.norms[t]
            for q in self.subsets:
                difference = self.explained(B, tensors, q, t) - seen[q]
                K = tensors[q].reshape(len(tensors[q]), -1)
                towards = B[q].T @ difference
                total += float(np.sum((towards - B[q].T @ seen[q]) * K))
                slope[q] += 2 * t * self.weights[t] * difference @ K.T
                if t > 2:
                    gradient[self.slices[q, t]] = 2 * np.sqrt(self.weights[t]) * towards.ravel()
            value += self.weights[t] * total
        for q in self.subsets:
            gradient[self.slices[q, 1]] = (self.model.white_home[q].T @ slope[q]).ravel()
        return value, gradient

    def best_tensors(self, loadings: Mapping[Subset, Array]) -> Tensors:
        """Tensors given the loadings: normal equations by conjugate gradients, data contracted once."""
        B = {q: self.model.white_home[q] @ loadings[q] for q in self.subsets}
        orders = [t for t in self.model.orders if t > 2]
        return {(q, t): tensor for t in orders for q, tensor in self._best_of_order(B, t).items()}

    def _best_of_order(self, B: Mapping[Subset, Array], t: int) -> dict[Subset, Array]:
        ends, seen = np.cumsum([B[q].shape[1] ** t for q in self.subsets]), self.seen(B, t)

        def split(x: Array) -> dict[Subset, Array]:
            parts = zip(self.subsets, np.split(x, ends[:-1]), strict=True)
            return {q: part.reshape((B[q].shape[1],) * t) for q, part in parts}

        def normal(x: Array) -> Array:
            tensors = split(x)
            return np.concatenate([(B[q].T @ self.explained(B, tensors, q, t)).ravel() for q in self.subsets])

        right = np.concatenate([(B[q].T @ seen[q]).ravel() for q in self.subsets])
        equations = LinearOperator((ends[-1], ends[-1]), normal, dtype=np.float64)
        return split(cg(equations, right, rtol=1e-3, maxiter=60)[0])


def fit_large(
    evidence: SetEvidence, model: JointModel, loadings: Mapping[Subset, Array], tensors: Tensors | None = None
) -> Parameters:
    """The minimum of f near starting loadings, by L-BFGS."""
    data = {
        t: multilinear(unpack(evidence.cumulants.packed(t), evidence.p, t), *[model.white] * t) for t in model.orders
    }
    weights = {t: evidence.n / (factorial(t) * evidence.inflation[t]) for t in model.orders}
    objective = DenseObjective(model, data, weights)
    loadings = {q: model.free(q, C) for q, C in loadings.items()}
    start = objective.join(loadings, objective.best_tensors(loadings) if tensors is None else tensors)
    found = minimise(objective, start, maxiter=150, maxcor=20, ftol=1e-6, maxfun=1500)
    final, dense = objective.split(found)
    every = {q: model.tied(q, C) for q, C in final.items()}
    return Parameters(every, {key: pack(tensor) for key, tensor in dense.items()})


_PAIRS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))


def influence(rows: Array, order: int, third: Array) -> Array:
    """Influence of each row on the packed cumulants of order 2, 3 or 4, up to a constant: (n, packed).

    rows : (n, p), mean zero and covariance I; third : packed third cumulants of the rows.
    """
    p = rows.shape[1]
    index = packed_indices(p, order)
    columns = [rows[:, index[:, s]] for s in range(order)]
    equal = [[(index[:, a] == index[:, b]).astype(np.float64) for b in range(order)] for a in range(order)]
    if order == 2:
        return np.asarray(columns[0] * columns[1])
    if order == 3:
        x, y, z = columns
        return np.asarray(x * y * z - x * equal[1][2] - y * equal[0][2] - z * equal[0][1])
    out = columns[0] * columns[1] * columns[2] * columns[3]
    for a, b, c, d in _PAIRS:
        out -= columns[a] * columns[b] * equal[c][d] + columns[c] * columns[d] * equal[a][b]
    for s in range(4):
        rest = [m for m in range(4) if m != s]
        out -= columns[s] * third[packed_rank(index[:, rest], p)]
    return np.asarray(out)


def influence_covariance(
    rows: Array, counts: Array, orders: tuple[int, ...], packed: Mapping[int, Array], chunk: int = 2000
) -> Array:
    """n times the covariance of all estimated cumulants (orders one after the other), (entries, entries).

    rows : (n, p), white; counts : (n,), how often each counts; packed : {order: their cumulants}.
    """
    third = packed.get(3, np.zeros(0))
    size = sum(packed_size(rows.shape[1], t) for t in orders)
    square, total = np.zeros((size, size)), np.zeros(size)
    for start in range(0, len(rows), chunk):
        part = np.hstack([influence(rows[start : start + chunk], t, third) for t in orders])
        count = counts[start : start + chunk, None]
        rooted = part * np.sqrt(count)
        square += rooted.T @ rooted
        total += (part * count).sum(axis=0)
    n = counts.sum()
    mean = total / n
    return np.asarray(square / n - np.outer(mean, mean))


_HOPS = (0.15, 0.3, 0.5) * 3  # disturbances of loadings, over their size, where order four does not suffice
_ROWS = 20_000  # enough for the covariance of a thousand cumulants; of an eighth as many it is used as weight
_SHRINK = 0.2  # of that covariance, towards its diagonal


def implied_covariance(evidence: SetEvidence, system: SetSystem, loadings: Mapping[Subset, Array]) -> Array:
    """Cov(z) = sum over Q of C C', (p, p)."""
    total = np.zeros((evidence.p, evidence.p))
    for q in system:
        columns = home(evidence.columns, q)
        total[np.ix_(columns, columns)] += loadings[q] @ loadings[q].T
    return total


def misfit(evidence: SetEvidence, system: SetSystem, loadings: Mapping[Subset, Array]) -> tuple[tuple[str, str], Test]:
    """The views i, j that are furthest from Cov(U_i, U_j) = sum over Q with i and j of C_i C_j', and the test of it.

    What a fit leaves of it is compared with the noise of all its entries, which the blocks tell; as many pairs are tested. The
    fit has taken up a part of that noise, so that the test rejects a true model less often than its level says, however few
    rows, and sees what is far above noise: a set that is missing, a rank that is too small, a transformation that was given and
    is wrong, a poor minimum.
    """
    left = evidence.correlation - implied_covariance(evidence, system, loadings)
    own = evidence.share[:, None] * (evidence.blocks[2] - evidence.share @ evidence.blocks[2])
    pairs, tests = list(combinations(system.views, 2)), {}
    for i, j in pairs:
        entries = left[np.ix_(evidence.columns[i], evidence.columns[j])].ravel()
        statistic, df, p = against_noise(
            entries, own[:, evidence.places(evidence.columns[i], evidence.columns[j]).ravel()], len(entries)
        )
        says = f"covariances of view {i!r} with view {j!r} are not those of these sets and ranks"
        tests[i, j] = Test("fit", statistic, df, min(1.0, len(pairs) * p), says)
    worst = min(tests, key=lambda views: tests[views].p_value)
    return worst, tests[worst]


@dataclass(frozen=True)
class JointFit:
    """parameters, and approximate relative standard errors {(view, Q): of A}, {Q: of Cov(S_Q)}; none for large problems."""

    parameters: Parameters
    errors: dict[tuple[str, Subset], float]
    covariance_errors: dict[Subset, float]


def fit_joint(
    evidence: SetEvidence,
    system: SetSystem,
    ranks: Mapping[Subset, int],
    gauge: Mapping[Subset, str],
    *,
    sample: Callable[[Callable[[int], int]], tuple[Array, Array] | None] = lambda thinning: None,
    random_state: int | None = 0,
    known: Known | None = None,
) -> JointFit:
    """Loadings and tensors of all components, and how sure the transformations are.

    sample : every how manieth of n rows -> rows (m, p) of the whitened views and how often they count (m,), None where rows are
    not at hand: their cumulants' full covariance then serves as weight for the transformations. known : transformations that
    stay as they are.
    """
    model = white_model(evidence, system, ranks, ties_of(evidence.columns, gauge, known or {}))
    if _is_large(model):
        if evidence.order > 4 and 24 * float(evidence.p) ** evidence.order > MEMORY_LIMIT:
            raise CapacityError(
                f"cumulants of order {evidence.order} of {evidence.p} columns are too many for a joint fit: use views of fewer "
                "columns, drop sets so that order=4 suffices, or method='paper'"
            )
        start = _with_known(sequential(evidence, system, gauge, ranks), gauge, known)
        return JointFit(fit_large(evidence, model, assemble(model, start).loadings), {}, {})
    data = white_data(evidence, model)
    fits: list[tuple[bool, float, Minimum]] = []
    for start in _starts(evidence, system, gauge, ranks, random_state):
        x = solve_tensors(model, model.join(assemble(model, _with_known(start, gauge, known))), data)
        found = levenberg_marquardt(model, x, data, iterations=30, tol=0.1)
        # noise of order four can outweigh covariances that are far above theirs: a minimum that leaves those is no candidate
        fails = misfit(evidence, system, model.split(found.x).loadings)[1].finding == Verdict.CONTRADICTED
        fits = sorted([*fits, (fails, found.value, found)], key=lambda one: one[:2])
        if len(fits) > 1 and not fits[1][0] and fits[1][1] - fits[0][1] < 1.0:  # one unit of noise: the same minimum
            break
    lowest_fit = fits[0][2]
    rows_tell = evidence.order <= 4  # the highest order of influence functions
    if not rows_tell:
        lowest_fit = _lower_minimum(model, lowest_fit, data, random_state)
    best = levenberg_marquardt(model, lowest_fit.x, data, iterations=200)
    if rows_tell and len(data) <= min(_ROWS // 8, evidence.n // 4):  # else their covariance is mostly noise
        rows = sample(lambda n: max(1, n // _ROWS))
        if rows is not None:
            best = polished(model, best, data, evidence, *rows)
    return JointFit(model.split(best.x), *relative_errors(model, best.x, gauge))


def _with_known(start: Transforms, gauge: Mapping[Subset, str], known: Known | None) -> Transforms:
    """Starting transformations, those that are known in the coordinates of the others."""
    return {**start, **{(view, q): A @ start[gauge[q], q] for (view, q), A in (known or {}).items()}}


def _lower_minimum(model: JointModel, best: Minimum, data: Array, random_state: int | None) -> Minimum:
    """From the best fit so far, its loadings disturbed, again and again: with so many sets the landscape has many minima, and
    blocks of samples give no other starts that are any good."""
    rng = np.random.default_rng(random_state)
    for size in _HOPS:
        x = best.x.copy()
        for (_, t), part in model.slices.items():
            if t == 1:
                x[part] += size * np.sqrt(np.mean(x[part] ** 2)) * rng.normal(size=part.stop - part.start)
        found = levenberg_marquardt(model, solve_tensors(model, x, data), data, iterations=30, tol=0.1)
        best = min(best, found, key=lambda fit: fit.value)
    return best


def _starts(
    evidence: SetEvidence,
    system: SetSystem,
    gauge: Mapping[Subset, str],
    ranks: Mapping[Subset, int],
    random_state: int | None,
) -> Iterator[Transforms]:
    """Starting transformations, the best first; more are tried until the lowest minimum was found twice."""
    yield sequential(evidence, system, gauge, ranks)
    rng, n_blocks = np.random.default_rng(random_state), len(evidence.share)
    for _ in range(5):  # of half of the blocks: the landscape has several minima
        yield sequential(evidence, system, gauge, ranks, rng.permutation(n_blocks)[: n_blocks // 2])


def _is_large(model: JointModel) -> bool:
    """Whether its derivatives are too many for a matrix: eight bytes each."""
    return model.size * sum(map(len, model.entries.values())) > MEMORY_LIMIT // 512


def refit(
    evidence: SetEvidence,
    system: SetSystem,
    ranks: Mapping[Subset, int],
    start: Parameters,
    ties: Mapping[Subset, Array] | None = None,
) -> Parameters:
    """The joint fit from one start: for replicates."""
    model = white_model(evidence, system, ranks, ties)
    if _is_large(model):
        dense = {(q, t): unpack(packed, ranks[q], t) for (q, t), packed in start.tensors.items()}
        return fit_large(evidence, model, start.loadings, dense)
    data = white_data(evidence, model)
    return model.split(levenberg_marquardt(model, model.join(start), data, iterations=100).x)


def polished(
    model: JointModel, fit: Minimum, data: Array, evidence: SetEvidence, rows: Array, counts: Array
) -> Minimum:
    """Transformations from a fit weighted by the full covariance of the cumulants, everything else refitted without.

    Full weights come from the same rows as the cumulants: large cumulants have large weights' inverses, which biases
    tensors and covariances downwards, but not the transformations, which are ratios.
    """
    packed = {t: in_coordinates(evidence.cumulants.packed(t), model.white, t) for t in model.orders}
    covariance = influence_covariance(rows @ model.white, counts, model.orders, packed)
    covariance *= 1 - _SHRINK + _SHRINK * np.eye(len(covariance))
    scale = np.concatenate([model.scale[t] for t in model.orders])
    # data and model come weighted by `scale`: undo that, then whiten by the covariance
    root = linalg.cholesky(covariance / evidence.n, lower=True)
    whiten = linalg.solve_triangular(root, np.diag(1 / scale), lower=True)
    better = levenberg_marquardt(model, fit.x, data, whiten=whiten)
    sure = model.split(better.x)
    fixed = replace(model, ties=sure.loadings)  # C -> C M: transformations stay
    refitted = levenberg_marquardt(fixed, fixed.join(sure), data)
    return Minimum(model.join(fixed.split(refitted.x)), refitted.value)
