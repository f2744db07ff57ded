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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
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
    packed_size,
    unpack,
)
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.packing import extension_table
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants.kstatistics import linearised_cumulants
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


def _second_order(
    white: Array, system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms
) -> tuple[JointModel, Array]:
    """The model of Cov(W z) alone with these transformations, and its entries as linear functions of all packed Cov(S_Q)."""
    loadings = {q: np.vstack([transforms[view, q] for view in q]) for q in system.order}
    weight = np.sqrt(multiplicity(len(white), 2))
    ranks, entries = {q: A.shape[1] for q, A in loadings.items()}, {2: np.arange(len(weight))}
    model = JointModel(system, columns, ranks, (2,), white, entries, {2: weight}, free_second=True)
    return model, model.linearise(model.join(Parameters(loadings, {})))[1][:, model.linear]


def least_squares_covariances(
    white: Array, total: Array, system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms
) -> dict[Subset, Array]:
    """All Cov(S_Q) from Cov(W z) = total, given A: they follow even where no single cross-covariance isolates them."""
    model, design = _second_order(white, system, columns, transforms)
    x = np.zeros(model.size)
    x[model.linear] = np.linalg.lstsq(design, model.data({2: pack(total)}), rcond=1e-4)[0]
    return {q: unpack(x[model.slices[q, 2]], model.ranks[q], 2) for q in system.order}


def covariances_identified(system: SetSystem, columns: Mapping[str, IntArray], transforms: Transforms) -> bool:
    """Whether second moments determine all Cov(S_Q), given A (one column per view and all subsets: they do not)."""
    design = _second_order(np.eye(sum(map(len, columns.values()))), system, columns, transforms)[1]
    return bool(np.linalg.matrix_rank(design, rtol=1e-8) == design.shape[1])


def assemble(model: JointModel, transforms: Transforms) -> Parameters:
    """Starting loadings from transformations: covariances by least squares on the second moments, made positive.

    Tensors are left at zero (they are linear given the loadings).
    """
    tame = {key: clipped(A) for key, A in transforms.items()}
    white = np.eye(model.p)  # Cov(W z)
    covariances = least_squares_covariances(model.white, white, model.system, model.columns, tame)
    loadings = {}
    for q in model.system.order:
        values, vectors = np.linalg.eigh(covariances[q])
        r = model.ranks[q]
        root = vectors[:, -r:] * np.sqrt(np.clip(values[-r:], _LEAST, 1.0))
        loadings[q] = np.vstack([tame[view, q] for view in q]) @ root
    return Parameters(loadings, {})


class DenseObjective:
    """f and its gradient for a :class:`JointModel` with all entries, without a matrix of derivatives.

    data : {order: dense cumulants (p,) * order in the model's coordinates}. Its parameters are those of the model divided by
    `unit`: tensors count by the root of their weight, so that all parameters have comparable curvature.
    """

    def __init__(self, model: JointModel, data: Mapping[int, Array]) -> None:
        self.model, self.data, self.subsets = model, data, model.system.order
        self.weights = {t: float(model.scale[t][0] ** 2) for t in data}  # of entry 0, ..., 0, which occurs once
        self.norms = {t: float(np.sum(tensor**2)) for t, tensor in data.items()}
        first, second = np.triu_indices(model.p)
        self.pairs = np.zeros((model.p, model.p), dtype=np.int64)
        self.pairs[first, second] = self.pairs[second, first] = np.arange(len(first))
        self.halves = {t: tensor[first, second] for t, tensor in data.items() if t > 2}
        self.unit, self.at = np.ones(model.size), np.zeros(0)
        for (q, t), part in model.slices.items():
            if t > 2:
                self.unit[part] /= np.sqrt(self.weights[t] * multiplicity(model.ranks[q], t))

    def seen(self, B: Mapping[Subset, Array], t: int) -> dict[Subset, Array]:
        """data(., B_Q, ..., B_Q) for all Q, (p, r^(t-1)); the large contraction is one matrix product, of half of the data:
        the first two slots may be exchanged."""
        if t == 2:
            return {q: self.data[2] @ B[q] for q in self.subsets}
        half, p = self.halves[t], self.model.p
        once = (half.reshape(-1, p) @ np.hstack([B[q] for q in self.subsets])).reshape(
            (len(half),) + (p,) * (t - 3) + (-1,)
        )
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

    def __call__(self, y: Array) -> tuple[float, Array]:
        model, at = self.model, self.model.free_parameters(self.unit * y)
        B = {q: model.white_home[q] @ at.loadings[q] for q in self.subsets}
        loadings = np.concatenate([at.loadings[q].ravel() for q in self.subsets])
        if not np.array_equal(loadings, self.at):
            self.at, self.there = loadings, {t: self.seen(B, t) for t in model.orders}
        value, gradient = 0.0, np.zeros_like(y)
        slope = {q: np.zeros_like(B[q]) for q in self.subsets}
        for t in model.orders:
            r = model.ranks
            tensors = {q: unpack(at.tensors[q, t], r[q], t) if t > 2 else np.eye(r[q]) for q in self.subsets}
            seen, total = self.there[t], self.norms[t]
            for q in self.subsets:
                difference = self.explained(B, tensors, q, t) - seen[q]
                K = tensors[q].reshape(len(tensors[q]), -1)
                towards = B[q].T @ difference
                total += float(np.sum((towards - B[q].T @ seen[q]) * K))
                slope[q] += 2 * t * self.weights[t] * difference @ K.T
                if t > 2:
                    dense = 2 * self.weights[t] * towards.reshape((r[q],) * t)
                    gradient[model.slices[q, t]] = pack(dense) * multiplicity(r[q], t)
            value += self.weights[t] * total
        for q in self.subsets:
            gradient[model.slices[q, 1]] = (model.white_home[q].T @ slope[q]).ravel()
        return value, gradient * self.unit

    def with_best_tensors(self, y: Array) -> Array:
        """The same loadings, and tensors by conjugate gradients: what a product adds to the gradient is linear in them."""
        free, y = self.model.linear, y.copy()
        y[free] = 0.0
        constant = self(y)[1][free]

        def product(tensors: Array) -> Array:
            y[free] = tensors
            return self(y)[1][free] - constant

        equations = LinearOperator((len(constant), len(constant)), product, dtype=np.float64)
        y[free] = cg(equations, -constant, rtol=1e-3, maxiter=60)[0]
        return y


def fit_large(evidence: SetEvidence, model: JointModel, start: Parameters) -> Parameters:
    """The minimum of f near the loadings of a start, by L-BFGS."""
    data = {
        t: multilinear(unpack(evidence.cumulants.packed(t), evidence.p, t), *[model.white] * t) for t in model.orders
    }
    objective = DenseObjective(model, data)
    best = objective.with_best_tensors(model.join(start) / objective.unit)
    found = minimise(objective, best, maxiter=150, maxcor=20, ftol=1e-6, maxfun=1500)
    return model.split(objective.unit * found)


def influence_covariance(rows: Array, counts: Array, orders: Sequence[int], chunk: int = 2000) -> Array:
    """n times the covariance of all estimated cumulants (orders one after the other), (entries, entries): that of what each row
    adds to them, to first order.

    rows : (n, p), centred; counts : (n,), how often each counts.
    """
    p, n, pieces = rows.shape[1], counts.sum(), [slice(a, a + chunk) for a in range(0, len(rows), chunk)]

    def products(piece: slice) -> dict[int, Array]:
        every = range(1, max(orders) + 1)
        return {s: reduce(np.multiply, [rows[piece][:, at] for at in packed_indices(p, s).T]) for s in every}

    every = [{s: counts[piece] @ held for s, held in products(piece).items()} for piece in pieces]
    whole = {s: np.sum([held[s] for held in every], axis=0) / n for s in every[0]}
    size = sum(packed_size(p, t) for t in orders)
    square, total = np.zeros((size, size)), np.zeros(size)
    for piece in pieces:
        own = products(piece)
        part = np.hstack([own[t] if t == 2 else linearised_cumulants(own, whole, t, p) for t in orders])
        square += part.T @ (part * counts[piece][:, None])
        total += counts[piece] @ part
    return np.asarray(square / n - np.outer(total / n, total / n))


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
    rng = np.random.default_rng(random_state)

    def start(blocks: IntArray | None = None) -> Parameters:
        """From transformations, those that are known in the coordinates of the others."""
        found = sequential(evidence, system, gauge, ranks, blocks)
        tied = {(view, q): A @ found[gauge[q], q] for (view, q), A in (known or {}).items()}
        return assemble(model, found | tied)

    if _is_large(model):
        if evidence.order > 4 and 24 * float(evidence.p) ** evidence.order > MEMORY_LIMIT:
            raise CapacityError(
                f"cumulants of order {evidence.order} of {evidence.p} columns are too many for a joint fit: use views of fewer "
                "columns, drop sets so that order=4 suffices, or method='paper'"
            )
        return JointFit(fit_large(evidence, model, start()), {}, {})
    data = white_data(evidence, model)

    def near(x: Array) -> Minimum:
        return levenberg_marquardt(model, solve_tensors(model, x, data), data, iterations=30, tol=0.1)

    fits: list[tuple[bool, float, Minimum]] = []
    for trial in range(6):  # all blocks, then halves: there are several minima; until the lowest was found twice
        blocks = rng.permutation(len(evidence.share))[: len(evidence.share) // 2] if trial else None
        found = near(model.join(start(blocks)))
        # noise of order four can outweigh covariances that are far above theirs: a minimum that leaves those is no candidate
        fails = misfit(evidence, system, model.split(found.x).loadings)[1].finding == Verdict.CONTRADICTED
        fits = sorted([*fits, (fails, found.value, found)], key=lambda one: one[:2])
        if len(fits) > 1 and not fits[1][0] and fits[1][1] - fits[0][1] < 1.0:  # one unit of noise: the same minimum
            break
    lowest = fits[0][2]
    rows_tell = evidence.order <= 4
    for size in (
        () if rows_tell else _HOPS
    ):  # with so many sets there are many minima, and halves give no other good starts
        moved = lowest.x + size * rng.normal(size=model.size) * model.sizes(lowest.x)
        lowest = min(lowest, near(moved), key=lambda fit: fit.value)
    best = levenberg_marquardt(model, lowest.x, data, iterations=200)
    if rows_tell and len(data) <= min(_ROWS // 8, evidence.n // 4):  # else their covariance is mostly noise
        rows = sample(lambda n: max(1, n // _ROWS))
        if rows is not None:
            best = polished(model, best, data, evidence, *rows)
    return JointFit(model.split(best.x), *relative_errors(model, best.x, gauge))


def _is_large(model: JointModel) -> bool:
    """Whether its derivatives are too many for a matrix: eight bytes each."""
    return model.size * len(model.scales) > MEMORY_LIMIT // 512


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
        return fit_large(evidence, model, start)
    data = white_data(evidence, model)
    return model.split(levenberg_marquardt(model, model.join(start), data, iterations=100).x)


def polished(
    model: JointModel, fit: Minimum, data: Array, evidence: SetEvidence, rows: Array, counts: Array
) -> Minimum:
    """Transformations from a fit weighted by the full covariance of the cumulants, everything else refitted without.

    Full weights come from the same rows as the cumulants: large cumulants have large weights' inverses, which biases
    tensors and covariances downwards, but not the transformations, which are ratios.
    """
    covariance = influence_covariance(rows @ model.white, counts, model.orders)
    covariance *= 1 - _SHRINK + _SHRINK * np.eye(len(covariance))
    # data and model come weighted by `scales`: undo that, then whiten by the covariance
    root = linalg.cholesky(covariance / evidence.n, lower=True)
    whiten = linalg.solve_triangular(root, np.diag(1 / model.scales), lower=True)
    better = levenberg_marquardt(model, fit.x, data, whiten=whiten)
    sure = model.split(better.x)
    fixed = replace(model, ties=sure.loadings)  # C -> C M: transformations stay
    refitted = levenberg_marquardt(fixed, fixed.join(sure), data)
    return Minimum(model.join(fixed.split(refitted.x)), refitted.value)
