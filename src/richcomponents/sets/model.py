"""The joint model: all transformations and cumulants of all components at once, and how it is fitted.

The model of the cumulants of z = (all views), whitened jointly by W = Cov(z)^(-1/2), is

    k_t(W z) = sum_Q K_{Q,t}(B_Q', ..., B_Q'),     B_Q = W C_Q,

where C_Q (columns of the views in Q, r_Q) are the loadings of component Q on factors of variance one: K_{Q,2} = I, so
covariances C C' are positive by construction, and K_{Q,3}, K_{Q,4} are free. Factors are known up to a
rotation, of which nothing that is reported depends. We minimise

    f = sum_t n / (t! v_t) |k_t(W z) - model|^2:

after joint whitening the Frobenius norm is the efficient weighting near Gaussian data; v_t is the variance of
order t over that of Gaussian data. Levenberg-Marquardt, since the problem is a small non-linear least squares.

Cumulants of a component as cross-cumulants of the views, given all transformations.

    k_t(W1'z, ..., Wt'z) = k_t(S_Q) + sum over supersets R of k_t(S_R)(L_R'W1, ..., L_R'Wt)

holds when a distinguishing set of views fills some slots, each undone by its own A^+, and EVERY other slot is any linear map of
all columns that leaves S_Q as it is (W'L_Q = I); L_Q are the loadings of Q. The map of least variance,
W = Cov(z)^-1 L_Q (L_Q' Cov(z)^-1 L_Q)^-1, gives far less noise than one view. k_t(S_R) is read the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from math import factorial

import numpy as np
from scipy import linalg

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
from richcomponents.algebra.arrays import power
from richcomponents.components.component import Term, Terms, less
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.sets.evidence import SINGULAR, SetEvidence, home, multiplicity
from richcomponents.storage import storable

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
    slot[columns] = np.linalg.pinv(transform).T
    return slot


@storable
@dataclass(frozen=True)
class Parameters:
    """loadings : {Q: (columns of its views, r)}; tensors : {(Q, order >= 3): packed (C(r+order-1, order),)}."""

    loadings: Mapping[Subset, Array]
    tensors: Mapping[tuple[Subset, int], Array]


@dataclass(frozen=True)
class Minimum:
    """Parameters as a vector, and the value of f there."""

    x: Array
    value: float


@dataclass(frozen=True)
class JointModel:
    """Residuals of chosen entries and their derivatives.

    system, columns : which components, in which columns of z; ranks : {Q: r}; orders : of the cumulants that are fitted;
    white : (p, p), the coordinates they are fitted in (W above; the identity where entries have to keep their views);
    entries : {order: packed entries used}; scale : {order: square root of the weight of each of them};
    free_second : K_{Q,2} is a parameter like the others instead of I, for entries that do not tell the covariance;
    ties : {Q: (columns of its views, free ones)}, of components with known transformations: C_Q = ties[Q] @ (parameters).
    """

    system: SetSystem
    columns: Mapping[str, IntArray]
    ranks: Mapping[Subset, int]
    orders: tuple[int, ...]
    white: Array
    entries: Mapping[int, IntArray]
    scale: Mapping[int, Array]
    free_second: bool = False
    ties: Mapping[Subset, Array] = field(default_factory=dict)

    @property
    def p(self) -> int:
        return len(self.white)

    @cached_property
    def white_home(self) -> dict[Subset, Array]:
        """{Q: (p, columns of its views)}: B_Q = white_home[Q] @ C_Q; of tied loadings from the free ones."""
        return {
            q: np.ascontiguousarray(self.tied(q, self.white[:, home(self.columns, q)].T, transposed=True).T)
            for q in self.system.order
        }

    def tied(self, q: Subset, rows: Array, *, transposed: bool = False) -> Array:
        """All loadings (columns of the views of Q, ...) from the free ones; transposed : the other way, by the transpose."""
        if q not in self.ties:
            return rows
        tie = self.ties[q].T if transposed else self.ties[q]
        return np.asarray(np.tensordot(tie, rows, 1))

    def free(self, q: Subset, loadings: Array) -> Array:
        """The free loadings of which tied ones are nearest to these."""
        return np.asarray(np.linalg.lstsq(self.ties[q], loadings, rcond=None)[0]) if q in self.ties else loadings

    # ---- the vector of parameters

    @cached_property
    def slices(self) -> dict[tuple[Subset, int], slice]:
        """Where C_Q (under order 1) and K_{Q,t} lie."""
        out, start = {}, 0
        for q in self.system.order:
            out[q, 1] = slice(start, start + self.white_home[q].shape[1] * self.ranks[q])
            start = out[q, 1].stop
            for t in self.orders:
                if t > 2 or self.free_second:
                    out[q, t] = slice(start, start + packed_size(self.ranks[q], t))
                    start = out[q, t].stop
        return out

    @property
    def size(self) -> int:
        return max((int(part.stop) for part in self.slices.values()), default=0)

    @cached_property
    def linear(self) -> IntArray:
        """Which parameters are tensors: the model is linear in them."""
        tensors = [np.arange(part.start, part.stop) for (_, t), part in self.slices.items() if t > 1]
        return np.concatenate([np.zeros(0, dtype=np.int64), *tensors])

    def sizes(self, x: Array) -> Array:
        """Root mean squares of each component's loadings, at these; zero at tensors."""
        out = np.zeros(self.size)
        for (_, t), part in self.slices.items():
            out[part] = np.sqrt(np.mean(x[part] ** 2)) * (t == 1)
        return out

    def join(self, parameters: Parameters) -> Array:
        x = np.zeros(self.size)  # tensors that are not given are zero
        for (q, t), part in self.slices.items():
            x[part] = self.free(q, parameters.loadings[q]).ravel() if t == 1 else parameters.tensors.get((q, t), 0.0)
        return x

    def split(self, x: Array) -> Parameters:
        own = self.free_parameters(x)
        return Parameters({q: self.tied(q, C) for q, C in own.loadings.items()}, own.tensors)

    def free_parameters(self, x: Array) -> Parameters:
        """With the free loadings only."""
        loadings = {q: x[self.slices[q, 1]].reshape(-1, self.ranks[q]) for q in self.system.order}
        return Parameters(loadings, {key: x[part] for key, part in self.slices.items() if key[1] > 1})

    # ---- values and derivatives

    @cached_property
    def scales(self) -> Array:
        """Square roots of the weights of all entries, (rows,)."""
        return np.concatenate([self.scale[t] for t in self.orders])

    def data(self, packed: Mapping[int, Array]) -> Array:
        """The chosen entries of packed cumulants (..., packed), weighted: (..., rows)."""
        return np.concatenate([packed[t][..., self.entries[t]] for t in self.orders], axis=-1) * self.scales

    def predict(self, x: Array) -> Array:
        """The weighted model, (rows,)."""
        return self._evaluate(x, None)

    def linearise(self, x: Array) -> tuple[Array, Array]:
        """The weighted model (rows,) and its derivative (rows, parameters)."""
        slope = np.zeros((len(self.scales), self.size))
        return self._evaluate(x, slope), slope

    def _evaluate(self, x: Array, slope: Array | None) -> Array:
        """The values; derivatives are added to the zeros of `slope`."""
        parameters, values, start = self.free_parameters(x), [], 0
        for t in self.orders:
            index = packed_indices(self.p, t)[self.entries[t]]
            value = np.zeros(len(index))
            part = None if slope is None else slope[start : start + len(index)]
            for q in self.system.order if len(index) else ():
                self._add(q, t, index, parameters, value, part)
            if part is not None:
                part *= self.scale[t][:, None]
            values.append(value * self.scale[t])
            start += len(index)
        return np.concatenate(values)

    def _add(self, q: Subset, t: int, index: IntArray, at: Parameters, value: Array, slope: Array | None) -> None:
        """Add K(B', ..., B') of one component to the entries, and its derivatives."""
        white, r = self.white_home[q], self.ranks[q]
        rows = (white @ at.loadings[q])[index]  # (entries, t, r)
        tensor = np.eye(r) if (q, t) not in self.slices else (_merge(r, t) @ at.tensors[q, t]).reshape(r, -1)
        after = _products([rows[:, s] for s in range(1, t)])  # (entries, r^(t-1)), slots 1..
        value += np.einsum("ec,ec->e", rows[:, 0], after @ tensor.T)
        if slope is None:
            return
        if (q, t) in self.slices:
            full = (rows[:, 0][:, :, None] * after[:, None, :]).reshape(len(index), -1)
            slope[:, self.slices[q, t]] += full @ _merge(r, t)
        total = np.zeros((len(index), white.shape[1], r))
        for s in range(t):
            others = after if s == 0 else _products([rows[:, m] for m in range(t) if m != s])
            total += white[index[:, s]][:, :, None] * (others @ tensor.T)[:, None, :]
        slope[:, self.slices[q, 1]] += total.reshape(len(index), -1)


def _products(rows: list[Array]) -> Array:
    """Row-wise outer products, flattened: (entries, r^m)."""
    out = rows[0]
    for row in rows[1:]:
        out = (out[:, :, None] * row[:, None, :]).reshape(len(row), -1)
    return out


@lru_cache(maxsize=32)
def _merge(r: int, t: int) -> Array:
    """(r^t, packed), zeros and ones: dense = merge @ packed."""
    grid = np.stack(np.meshgrid(*[np.arange(r)] * t, indexing="ij"), axis=-1).reshape(-1, t)
    out = np.zeros((len(grid), packed_size(r, t)))
    out[np.arange(len(grid)), packed_rank(np.sort(grid, axis=1), r)] = 1.0
    return out


def solve_tensors(model: JointModel, x: Array, data: Array) -> Array:
    """x with the tensors that fit best, given its loadings: a linear problem."""
    x, free = x.copy(), model.linear
    x[free] = 0.0
    value, slope = model.linearise(x)
    design = slope[:, free]
    normal = design.T @ design
    ridge = 1e-6 * np.diag(normal).max() * np.eye(len(free))
    x[free] = linalg.solve(normal + ridge, design.T @ (data - value), assume_a="pos")
    return x


Known = Mapping[tuple[str, Subset], Array]
"""{(view, Q): A}, known transformations from the gauge view's white columns."""


def white_model(
    evidence: SetEvidence,
    system: SetSystem,
    ranks: Mapping[Subset, int],
    ties: Mapping[Subset, Array] | None = None,
) -> JointModel:
    """The joint model in jointly white coordinates, with all entries."""
    white = power(evidence.correlation, -0.5, SINGULAR)
    entries = {t: np.arange(packed_size(evidence.p, t)) for t in evidence.orders}
    scale = order_scale(evidence, entries)
    return JointModel(system, evidence.columns, ranks, evidence.orders, white, entries, scale, ties=ties or {})


def ties_of(columns: Mapping[str, IntArray], gauge: Mapping[Subset, str], known: Known) -> dict[Subset, Array]:
    """C_i = A(i, Q) C_g where A is known: loadings of all views of Q from those of the others."""
    out = {}
    for q in {q for _, q in known}:
        free = [view for view in q if (view, q) not in known]
        start = dict(zip(free, np.cumsum([0, *(len(columns[view]) for view in free)])[:-1], strict=True))
        width, rows = sum(len(columns[view]) for view in free), []
        for view in q:
            A, source = (np.eye(len(columns[view])), view) if view in free else (known[view, q], gauge[q])
            row = np.zeros((len(columns[view]), width))
            row[:, start[source] : start[source] + A.shape[1]] = A
            rows.append(row)
        out[q] = np.vstack(rows)
    return out


def white_data(evidence: SetEvidence, model: JointModel) -> Array:
    """The weighted data (rows,) for :func:`white_model`."""
    return model.data({t: in_coordinates(evidence.cumulants.packed(t), model.white, t) for t in model.orders})


def relative_errors(
    model: JointModel, x: Array, gauge: Mapping[Subset, str]
) -> tuple[dict[tuple[str, Subset], float], dict[Subset, float]]:
    """Approximate relative standard errors of A(i, Q) = C_i C_g^+ and of Cov(S_Q) = C_g K C_g', in white coordinates.

    The curvature of f is the inverse covariance of the parameters (up to what the weights ignore), K_{Q,2} = K among them:
    where the fit with K = I is at the edge of what a covariance can be, C has no first-order way off it, and everything would
    seem to be known. A change of factors is a flat direction that neither feels, any other flat direction makes them unknown,
    and the error large. What is flat is judged with every parameter in units of its own curvature: loadings of a direction that
    the gauge view hardly has are huge, and beside theirs every other curvature would be nothing.
    """
    model, at = _with_free_second(model, model.split(x), gauge)
    _, slope = model.linearise(model.join(at))
    unit = np.maximum(np.linalg.norm(slope, axis=0), 1e-300)
    values, vectors = np.linalg.eigh((slope / unit).T @ (slope / unit))
    spread = vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])) / unit[:, None]  # covariance = spread spread'
    out, covariances = {}, {}
    for q in model.system.order:
        C = by_view(at.loadings[q], q, model.columns)
        free = spread[model.slices[q, 1]].reshape(-1, model.ranks[q], spread.shape[1])
        dC = by_view(model.tied(q, free), q, model.columns)
        own, K = C[gauge[q]], unpack(at.tensors[q, 2], model.ranks[q], 2)
        dK = (_merge(model.ranks[q], 2) @ spread[model.slices[q, 2]]).reshape(*K.shape, -1)
        change = np.einsum("irs,rt,jt->ijs", dC[gauge[q]], K, own)
        change = change + np.swapaxes(change, 0, 1) + np.einsum("ir,rts,jt->ijs", own, dK, own)
        covariances[q] = float(np.linalg.norm(change) / np.linalg.norm(own @ K @ own.T))
        inverse = np.linalg.pinv(own)
        for view in q:
            if view != gauge[q]:
                A = C[view] @ inverse
                change = np.tensordot(
                    dC[view] - np.tensordot(A, dC[gauge[q]], 1), inverse, (1, 0)
                )  # dA of A = C_i C_g^+
                out[view, q] = float(np.linalg.norm(change) / np.linalg.norm(A))
    return out, covariances


def _with_free_second(model: JointModel, at: Parameters, gauge: Mapping[Subset, str]) -> tuple[JointModel, Parameters]:
    """The same fit with orthonormal loadings in the gauge view, C_g = O R: loadings C R^-1, K_2 = R R', K_t(R', ..., R')."""
    loadings, tensors = {}, {}
    for q in model.system.order:
        own = by_view(at.loadings[q], q, model.columns)[gauge[q]]
        _, sizes, right = np.linalg.svd(own, full_matrices=False)
        R = sizes[:, None] * right
        # directions that the gauge view hardly has are not blown up
        loadings[q] = at.loadings[q] @ (right.T / np.maximum(sizes, 1e-6 * sizes[0]))
        tensors[q, 2] = pack(R @ R.T)
        for t in model.orders:
            if t > 2:
                tensors[q, t] = in_coordinates(at.tensors[q, t], R.T, t)
    return replace(model, free_second=True), Parameters(loadings, tensors)


def by_view(rows: Array, subset: Subset, columns: Mapping[str, IntArray]) -> dict[str, Array]:
    """Rows (columns of the views of a component, ...), view by view."""
    ends = np.cumsum([len(columns[view]) for view in subset])
    return dict(zip(subset, np.split(rows, ends[:-1]), strict=True))


def order_scale(evidence: SetEvidence, entries: Mapping[int, IntArray]) -> dict[int, Array]:
    """Square roots of n multiplicity / (t! v_t) of the chosen entries."""
    out = {}
    for t, chosen in entries.items():
        weight = evidence.n * multiplicity(evidence.p, t)[chosen] / (factorial(t) * evidence.inflation[t])
        out[t] = np.sqrt(weight)
    return out


def in_coordinates(packed: Array, matrix: Array, order: int) -> Array:
    """Packed cumulants of matrix' z from those of z."""
    return pack(multilinear(unpack(packed, len(matrix), order), *[matrix] * order))


def levenberg_marquardt(
    model: JointModel,
    x: Array,
    data: Array,
    *,
    whiten: Array | None = None,
    iterations: int = 100,
    tol: float = 1e-4,
) -> Minimum:
    """min |whiten (model(x) - data)|^2 from x; damping relative to the curvature of each parameter.

    The minimum is measured in units of sampling noise (one per degree of freedom): a step that gains less than `tol` is the
    last, since what it would change is far below the standard errors. Not scipy's: its normal equations take a tenth of the
    time of a decomposition of the slopes, and trust regions stop in worse minima where loadings are ill-determined.
    """

    def left(rows: Array) -> Array:
        return rows if whiten is None else np.asarray(whiten @ rows)

    best, damping = np.inf, 1e-2
    for _ in range(iterations):
        value, slope = model.linearise(x)
        slope, residual = left(slope), left(value - data)
        normal, gradient, best = slope.T @ slope, slope.T @ residual, float(residual @ residual)
        curvature = np.diag(normal) + 1e-9 * np.diag(normal).max()
        for _ in range(12):
            try:
                factor = linalg.cho_factor(normal + np.diag(damping * curvature), check_finite=False)
            except linalg.LinAlgError:
                damping *= 10
                continue
            trial = x - linalg.cho_solve(factor, gradient, check_finite=False)
            moved = left(model.predict(trial) - data)
            attained = float(moved @ moved)
            if attained < best:
                break
            damping *= 5
        else:
            break
        gain, x, best, damping = best - attained, trial, attained, max(damping / 5, 1e-10)
        if gain < tol:
            break
    return Minimum(x, best)
