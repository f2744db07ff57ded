"""The joint model: all transformations and cumulants of all components at once, and how it is fitted.

The model of the cumulants of z = (all views), whitened jointly by W = Cov(z)^(-1/2), is

    k_t(W z) = sum_Q K_{Q,t}(B_Q', ..., B_Q'),     B_Q = W C_Q,

where C_Q (columns of the views in Q, r_Q) are the loadings of component Q on factors of variance one: K_{Q,2} = I, so
covariances C C' are positive by construction, and K_{Q,3}, K_{Q,4} are free. Factors are known up to a
rotation, of which nothing that is reported depends. We minimise

    f = sum_t n / (t! v_t) |k_t(W z) - model|^2:

after joint whitening the Frobenius norm is the efficient weighting near Gaussian data; v_t is the variance of
order t over that of Gaussian data. Levenberg-Marquardt, since the problem is a small non-linear least squares.

LARGE problems: the same f by gradients. With D_Q = model(., B_Q, ..., B_Q) - data(., B_Q, ..., B_Q) (p x r^(t-1)) the
derivatives of |data - model|^2 are 2 B_Q' D_Q for K_Q and 2 t D_Q K_Q' for B_Q. The model's part needs only the small matrices
B_R' B_Q; the data's part is one contraction of the dense cumulant tensor, done for all components at once.

INFLUENCE. Near Gaussian data estimated cumulants are uncorrelated with known variances. Away from it (skewed, heavy-tailed
parts) they are correlated: with their covariance as weight, that of the influence functions of rows, a last fit makes the
transformations up to twice as precise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from itertools import combinations
from math import factorial

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from richcomponents.algebra import Array, IntArray, multilinear, pack, packed_indices, packed_size, unpack
from richcomponents.algebra.arrays import MEMORY_LIMIT, power
from richcomponents.algebra.packing import extension_table
from richcomponents.components.sets import Subset
from richcomponents.cumulants.kstatistics import linearised_cumulants
from richcomponents.errors import CapacityError
from richcomponents.inference.verdicts import Test, Verdict, against_noise
from richcomponents.learning.solvers import minimise
from richcomponents.paper.general import Transforms
from richcomponents.sets.evidence import SINGULAR, SetEvidence, Structure, clipped, home, multiplicity, sequential
from richcomponents.storage import storable

_LEAST = 0.02  # share of variance that a starting component has at least
_HOPS = (0.15, 0.3, 0.5) * 3  # disturbances of loadings, over their size, where order four does not suffice
_ROWS = 20_000  # enough for the covariance of a thousand cumulants; of an eighth as many it is used as weight
_SHRINK = 0.2  # of that covariance, towards its diagonal


@storable
@dataclass(frozen=True)
class Parameters:
    """loadings : {Q: (columns of its views, r)}; tensors : {(Q, order >= 3): packed (C(r+order-1, order),)}."""

    loadings: Mapping[Subset, Array]
    tensors: Mapping[tuple[Subset, int], Array]


@dataclass(frozen=True)
class JointModel:
    """Residuals of chosen entries and their derivatives.

    columns : {view: its columns of z}; ranks : {Q: r}; white : (p, p), W above (the identity where entries have to keep their
    views); entries : {order: packed entries used}; scale : {order: square root of the weight of each}; free_second : K_{Q,2} is
    a parameter like the others, not I, for entries that do not tell the covariance; ties : {Q: (columns of its views, free
    ones)} with C_Q = ties[Q] @ (parameters), where transformations are known.
    """

    columns: Mapping[str, IntArray]
    ranks: Mapping[Subset, int]
    white: Array
    entries: Mapping[int, IntArray]
    scale: Mapping[int, Array]
    free_second: bool = False
    ties: Mapping[Subset, Array] = field(default_factory=dict)

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(self.entries)

    @cached_property
    def white_home(self) -> dict[Subset, Array]:
        """{Q: (p, columns of its views)}: B_Q = white_home[Q] @ C_Q; of tied loadings from the free ones."""
        every = {q: np.ascontiguousarray(self.white[:, home(self.columns, q)]) for q in self.ranks}
        return {q: W @ self.ties[q] if q in self.ties else W for q, W in every.items()}

    def tied(self, q: Subset, rows: Array) -> Array:
        """All loadings (columns of the views of Q, ...) from the free ones."""
        return np.asarray(np.tensordot(self.ties[q], rows, 1)) if q in self.ties else rows

    def free(self, q: Subset, loadings: Array) -> Array:
        """The free loadings of which tied ones are nearest to these."""
        return np.asarray(np.linalg.lstsq(self.ties[q], loadings, rcond=None)[0]) if q in self.ties else loadings

    # ---- the vector of parameters

    @cached_property
    def slices(self) -> dict[tuple[Subset, int], slice]:
        """Where C_Q (under order 1) and K_{Q,t} lie."""
        tensors, start, out = [t for t in self.orders if t > 2 or self.free_second], 0, {}
        for q, r in self.ranks.items():
            for t in (1, *tensors):
                size = packed_size(r, t) if t > 1 else self.white_home[q].shape[1] * r
                out[q, t], start = slice(start, start + size), start + size
        return out

    @property
    def size(self) -> int:
        return max((int(part.stop) for part in self.slices.values()), default=0)

    @property
    def is_large(self) -> bool:
        """Whether its derivatives are too many for a matrix."""
        return self.size * len(self.scales) > MEMORY_LIMIT // 512

    @cached_property
    def linear(self) -> IntArray:
        """Which parameters are tensors: the model is linear in them."""
        tensors = [np.arange(part.start, part.stop) for (_, t), part in self.slices.items() if t > 1]
        return np.concatenate([np.zeros(0, dtype=np.int64), *tensors])

    def join(self, parameters: Parameters) -> Array:
        x = np.zeros(self.size)  # tensors that are not given are zero
        for (q, t), part in self.slices.items():
            x[part] = self.free(q, parameters.loadings[q]).ravel() if t == 1 else parameters.tensors.get((q, t), 0.0)
        return x

    def split(self, x: Array, *, tied: bool = True) -> Parameters:
        """tied=False : with the free loadings only."""
        free = {q: x[self.slices[q, 1]].reshape(-1, r) for q, r in self.ranks.items()}
        loadings = {q: self.tied(q, C) for q, C in free.items()} if tied else free
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
        parameters, values, start = self.split(x, tied=False), np.zeros(len(self.scales)), 0
        for t, chosen in self.entries.items():
            here, start = slice(start, start + len(chosen)), start + len(chosen)
            index = packed_indices(len(self.white), t)[chosen]
            for q in self.ranks if len(index) else ():
                self._add(q, t, index, parameters, values[here], None if slope is None else slope[here])
        if slope is not None:
            slope *= self.scales[:, None]
        return values * self.scales

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


@dataclass(frozen=True)
class Minimum:
    """A model, its parameters as a vector, and the value of f there."""

    model: JointModel
    x: Array
    value: float

    @property
    def free(self) -> int:
        """Parameters less those that a change of factors leaves open."""
        return self.model.size - sum(r**2 for r in self.model.ranks.values())


def _products(rows: list[Array]) -> Array:
    """Row-wise outer products, flattened: (entries, r^m)."""
    out = rows[0]
    for row in rows[1:]:
        out = (out[:, :, None] * row[:, None, :]).reshape(len(row), -1)
    return out


@lru_cache(maxsize=32)
def _merge(r: int, t: int) -> Array:
    """(r^t, packed), zeros and ones: dense = merge @ packed."""
    return np.stack([unpack(entry, r, t).ravel() for entry in np.eye(packed_size(r, t))], axis=1)


def solve_tensors(model: JointModel, x: Array, data: Array) -> Array:
    """x with the tensors that fit best, given its loadings: a linear problem."""
    x, free = x.copy(), model.linear
    x[free] = 0.0
    value, slope = model.linearise(x)
    design = slope[:, free]
    normal = design.T @ design
    normal += 1e-6 * np.diag(normal).max() * np.eye(len(free))
    x[free] = linalg.solve(normal, design.T @ (data - value), assume_a="pos")
    return x


def by_view(rows: Array, subset: Subset, columns: Mapping[str, IntArray]) -> dict[str, Array]:
    """Rows (columns of the views of a component, ...), view by view."""
    ends = np.cumsum([len(columns[view]) for view in subset])
    return dict(zip(subset, np.split(rows, ends[:-1]), strict=True))


def order_scale(evidence: SetEvidence, entries: Mapping[int, IntArray]) -> dict[int, Array]:
    """Square roots of n multiplicity / (t! v_t) of the chosen entries."""
    weight = {t: evidence.n / (factorial(t) * evidence.inflation[t]) for t in entries}
    return {t: np.sqrt(weight[t] * multiplicity(evidence.p, t)[chosen]) for t, chosen in entries.items()}


def white_model(evidence: SetEvidence, wanted: Structure) -> JointModel:
    """The joint model in jointly white coordinates, with all entries."""
    entries = {t: np.arange(packed_size(evidence.p, t)) for t in evidence.orders}
    ranks = {q: wanted.ranks[q] for q in wanted.system.order}
    white, ties = power(evidence.correlation, -0.5, SINGULAR), ties_of(evidence.columns, wanted)
    return JointModel(evidence.columns, ranks, white, entries, order_scale(evidence, entries), ties=ties)


def ties_of(columns: Mapping[str, IntArray], wanted: Structure) -> dict[Subset, Array]:
    """C_i = A(i, Q) C_g where A is known: loadings of all views of Q from those of the others."""
    out, known = {}, wanted.known
    for q in {q for _, q in known}:
        free = [view for view in q if (view, q) not in known]
        own = by_view(np.eye(sum(len(columns[view]) for view in free)), tuple(free), columns)
        out[q] = np.vstack([own[view] if view in own else known[view, q] @ own[wanted.gauge[q]] for view in q])
    return out


def _white_cumulants(evidence: SetEvidence, model: JointModel) -> dict[int, Array]:
    """{order: (p,) * order}, in the coordinates of a model."""
    dense = {t: unpack(evidence.cumulants.packed(t), evidence.p, t) for t in model.orders}
    return {t: multilinear(cumulant, *[model.white] * t) for t, cumulant in dense.items()}


def white_data(evidence: SetEvidence, model: JointModel) -> Array:
    """The weighted data (rows,) for :func:`white_model`."""
    return model.data({t: pack(dense) for t, dense in _white_cumulants(evidence, model).items()})


def levenberg_marquardt(
    model: JointModel, x: Array, data: Array, *, whiten: Array | None = None, iterations: int = 100, tol: float = 1e-4
) -> Minimum:
    """min |whiten (model(x) - data)|^2 from x; damping relative to the curvature of each parameter.

    A step that gains less than `tol` units of sampling noise (one per degree of freedom) is the last. Not scipy's: normal
    equations take a tenth of the time of a decomposition of the slopes, and trust regions stop in worse minima.
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
    return Minimum(model, x, best)


def relative_errors(
    model: JointModel, x: Array, gauge: Mapping[Subset, str]
) -> tuple[dict[tuple[str, Subset], float], dict[Subset, float]]:
    """Approximate relative standard errors of A(i, Q) = C_i C_g^+ and of Cov(S_Q) = C_g K C_g', in white coordinates.

    The curvature of f is the inverse covariance of the parameters (up to what the weights ignore), K_{Q,2} = K among them:
    where the fit with K = I is at the edge of what a covariance can be, C has no first-order way off it. A change of factors is
    a flat direction that neither feels; any other makes the error large. What is flat is judged in units of each parameter's
    own curvature, since loadings of a direction that the gauge view hardly has are huge.
    """
    at, model = model.split(x), replace(model, free_second=True)
    seconds = {(q, 2): pack(np.eye(r)) for q, r in model.ranks.items()}
    _, slope = model.linearise(model.join(Parameters(at.loadings, {**at.tensors, **seconds})))
    unit = np.maximum(np.linalg.norm(slope, axis=0), 1e-300)
    values, vectors = np.linalg.eigh((slope / unit).T @ (slope / unit))
    spread = vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])) / unit[:, None]  # covariance = spread spread'
    out, covariances = {}, {}
    for q, r in model.ranks.items():
        C, g = by_view(at.loadings[q], q, model.columns), gauge[q]
        free = spread[model.slices[q, 1]].reshape(-1, r, spread.shape[1])
        dC = by_view(model.tied(q, free), q, model.columns)
        dK = (_merge(r, 2) @ spread[model.slices[q, 2]]).reshape(r, r, -1)
        change = np.einsum("irs,jr->ijs", dC[g], C[g])
        change = change + np.swapaxes(change, 0, 1) + np.einsum("ir,rts,jt->ijs", C[g], dK, C[g], optimize=True)
        covariances[q] = float(np.linalg.norm(change) / np.linalg.norm(C[g] @ C[g].T))
        inverse = np.linalg.pinv(C[g])
        for view in q:
            if view != g:
                A = C[view] @ inverse
                change = np.tensordot(dC[view] - np.tensordot(A, dC[g], 1), inverse, (1, 0))  # dA of A = C_i C_g^+
                out[view, q] = float(np.linalg.norm(change) / np.linalg.norm(A))
    return out, covariances


# ---- from transformations to parameters


def _second_order(white: Array, columns: Mapping[str, IntArray], transforms: Transforms) -> tuple[JointModel, Array]:
    """The model of Cov(W z) alone with these transformations, and its entries as linear functions of all packed Cov(S_Q)."""
    loadings = {q: np.vstack([transforms[view, q] for view in q]) for q in dict.fromkeys(q for _, q in transforms)}
    weight, ranks = np.sqrt(multiplicity(len(white), 2)), {q: C.shape[1] for q, C in loadings.items()}
    model = JointModel(columns, ranks, white, {2: np.arange(len(weight))}, {2: weight}, free_second=True)
    return model, model.linearise(model.join(Parameters(loadings, {})))[1][:, model.linear]


def least_squares_covariances(
    white: Array, total: Array, columns: Mapping[str, IntArray], transforms: Transforms
) -> dict[Subset, Array]:
    """All Cov(S_Q) from Cov(W z) = total, given A: they follow even where no single cross-covariance isolates them."""
    model, design = _second_order(white, columns, transforms)
    x = np.zeros(model.size)
    x[model.linear] = np.linalg.lstsq(design, model.data({2: pack(total)}), rcond=1e-4)[0]
    return {q: unpack(x[model.slices[q, 2]], r, 2) for q, r in model.ranks.items()}


def covariances_identified(columns: Mapping[str, IntArray], transforms: Transforms) -> bool:
    """Whether second moments determine all Cov(S_Q), given A (one column per view and all subsets: they do not)."""
    design = _second_order(np.eye(sum(map(len, columns.values()))), columns, transforms)[1]
    return bool(np.linalg.matrix_rank(design, rtol=1e-8) == design.shape[1])


def assemble(model: JointModel, transforms: Transforms) -> Parameters:
    """Starting loadings from transformations of its components: covariances by least squares on the second moments, made
    positive. Tensors are left at zero (they are linear given the loadings)."""
    covariances = least_squares_covariances(model.white, np.eye(len(model.white)), model.columns, transforms)
    loadings = {}
    for q, r in model.ranks.items():
        values, vectors = np.linalg.eigh(covariances[q])
        root = vectors[:, -r:] * np.sqrt(np.clip(values[-r:], _LEAST, 1.0))
        loadings[q] = np.vstack([transforms[view, q] for view in q]) @ root
    return Parameters(loadings, {})


# ---- large problems


class DenseObjective:
    """f and its gradient for a :class:`JointModel` with all entries. data : {order: dense cumulants in its coordinates}. The
    parameters are those of the model over `unit`: tensors count by the root of their weight, for comparable curvature."""

    def __init__(self, model: JointModel, data: Mapping[int, Array]) -> None:
        self.model, self.data, self.subsets = model, data, tuple(model.ranks)
        self.weights = {t: float(model.scale[t][0] ** 2) for t in data}  # of entry 0, ..., 0, which occurs once
        self.norms = {t: float(np.sum(tensor**2)) for t, tensor in data.items()}
        self.halves = {t: tensor[np.triu_indices(len(tensor))] for t, tensor in data.items() if t > 2}
        self.unit, self.at = np.ones(model.size), np.zeros(0)
        for (q, t), part in model.slices.items():
            if t > 2:
                self.unit[part] /= np.sqrt(self.weights[t] * multiplicity(model.ranks[q], t))

    def seen(self, B: Mapping[Subset, Array], t: int) -> dict[Subset, Array]:
        """data(., B_Q, ..., B_Q) for all Q, (p, r^(t-1)); the large contraction is one matrix product, of half of the data: the
        first two slots may be exchanged."""
        if t == 2:
            return {q: self.data[2] @ B[q] for q in self.subsets}
        half, p = self.halves[t], len(self.data[t])
        once = half.reshape(-1, p) @ np.hstack([B[q] for q in self.subsets])
        ends, out = np.cumsum([B[q].shape[1] for q in self.subsets])[:-1], {}
        for q, part in zip(self.subsets, np.split(once, ends, axis=1), strict=True):
            part = part.reshape(len(half), *[p] * (t - 3), -1)
            for slot in range(t - 3, 0, -1):
                part = np.moveaxis(np.tensordot(part, B[q], axes=(slot, 0)), -1, slot)
            both = part.reshape(len(half), -1)[extension_table(p, 1)]  # (p, p, r^(t-2)): slots in any order
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
        model, at = self.model, self.model.split(self.unit * y, tied=False)
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
    objective = DenseObjective(model, _white_cumulants(evidence, model))
    best = objective.with_best_tensors(model.join(start) / objective.unit)
    found = minimise(objective, best, maxiter=150, maxcor=20, ftol=1e-6, maxfun=1500)
    return model.split(objective.unit * found)


# ---- the joint fit


def influence_covariance(rows: Array, counts: Array, orders: Sequence[int], chunk: int = 2000) -> Array:
    """n times the covariance of all estimated cumulants (orders one after the other), (entries, entries): that of what each row
    adds to them, to first order. rows : (n, p), centred; counts : (n,), how often each counts."""
    p, n = rows.shape[1], counts.sum()
    pieces = [(rows[a : a + chunk], counts[a : a + chunk]) for a in range(0, len(rows), chunk)]

    def products(some: Array) -> dict[int, Array]:
        every = range(1, max(orders) + 1)
        return {s: reduce(np.multiply, [some[:, at] for at in packed_indices(p, s).T]) for s in every}

    sums = [{s: weight @ each for s, each in products(some).items()} for some, weight in pieces]
    whole = {s: np.sum([held[s] for held in sums], axis=0) / n for s in sums[0]}
    square, total = np.zeros(()), np.zeros(())
    for some, weight in pieces:
        own = products(some)
        part = np.hstack([own[t] if t == 2 else linearised_cumulants(own, whole, t, p) for t in orders])
        square, total = square + part.T @ (part * weight[:, None]), total + weight @ part
    return np.asarray(square / n - np.outer(total / n, total / n))


def implied_covariance(evidence: SetEvidence, loadings: Mapping[Subset, Array]) -> Array:
    """Cov(z) = sum over Q of C C', (p, p)."""
    total = np.zeros((evidence.p, evidence.p))
    for q, C in loadings.items():
        columns = home(evidence.columns, q)
        total[np.ix_(columns, columns)] += C @ C.T
    return total


def misfit(evidence: SetEvidence, loadings: Mapping[Subset, Array]) -> tuple[tuple[str, str], Test]:
    """The views i, j that are furthest from Cov(U_i, U_j) = sum over Q with i and j of C_i C_j', and the test of it.

    What a fit leaves is compared with the noise of all entries between blocks. The fit has taken up a part of that noise, so
    that a true model is rejected less often than the level says, and what is far above noise is seen: a missing set, a rank too
    small, a wrong transformation that was given, a poor minimum.
    """
    left = evidence.correlation - implied_covariance(evidence, loadings)
    own = evidence.share[:, None] * (evidence.blocks[2] - evidence.share @ evidence.blocks[2])
    columns, tests = evidence.columns, {}
    for i, j in combinations(columns, 2):
        at = evidence.places(columns[i], columns[j]).ravel()
        statistic, df, p = against_noise(left[np.ix_(columns[i], columns[j])].ravel(), own[:, at], len(at))
        says = f"covariances of view {i!r} with view {j!r} are not those of these sets and ranks"
        tests[i, j] = Test("fit", statistic, df, min(1.0, len(columns) * (len(columns) - 1) / 2 * p), says)
    worst = min(tests, key=lambda views: tests[views].p_value)
    return worst, tests[worst]


Rows = Callable[[Callable[[int], int]], tuple[Array, Array] | None]
"""Every how manieth of n rows -> rows (m, p) of the white columns and how often they count (m,); None where there are none."""


def fit_joint(
    evidence: SetEvidence, wanted: Structure, sample: Rows = lambda thinning: None, random_state: int | None = 0
) -> tuple[Parameters, dict[tuple[str, Subset], float], dict[Subset, float]]:
    """Loadings and tensors of all components, and approximate relative standard errors {(view, Q): of A}, {Q: of Cov(S_Q)};
    none for large problems. sample : where there are rows, the full covariance of the cumulants is the weight of A."""
    model = white_model(evidence, wanted)
    rng = np.random.default_rng(random_state)

    def start(blocks: IntArray | None = None) -> Parameters:
        """From transformations, those that are known in the coordinates of the others."""
        made = sequential(evidence, wanted, blocks)
        known = {(v, q): clipped(A @ made[wanted.gauge[q], q]) for (v, q), A in wanted.known.items()}
        return assemble(model, made | known)

    if model.is_large:
        if evidence.order > 4 and 24 * float(evidence.p) ** evidence.order > MEMORY_LIMIT:
            raise CapacityError(
                f"cumulants of order {evidence.order} of {evidence.p} columns are too many for a joint fit: use views of fewer "
                "columns, drop sets so that order=4 suffices, or method='paper'"
            )
        return fit_large(evidence, model, start()), {}, {}
    data = white_data(evidence, model)

    def near(x: Array) -> Minimum:
        return levenberg_marquardt(model, solve_tensors(model, x, data), data, iterations=30, tol=0.1)

    fits: list[tuple[bool, float, Minimum]] = []
    for trial in range(6):  # all blocks, then halves: there are several minima; until the lowest was reached twice
        blocks = rng.permutation(len(evidence.share))[: len(evidence.share) // 2] if trial else None
        at = near(model.join(start(blocks)))
        # noise of order four can outweigh covariances that are far above theirs: a minimum that leaves those is no candidate
        fails = misfit(evidence, model.split(at.x).loadings)[1].finding == Verdict.CONTRADICTED
        fits = sorted([*fits, (fails, at.value, at)], key=lambda one: one[:2])
        if len(fits) > 1 and not fits[1][0] and fits[1][1] - fits[0][1] < 1.0:  # one unit of noise: the same minimum
            break
    lowest, fourth = fits[0][2], evidence.order <= 4
    for size in (
        () if fourth else _HOPS
    ):  # with so many sets there are many minima, and halves give no other good starts
        moved, normal = lowest.x.copy(), rng.normal(size=model.size)
        for part in (model.slices[q, 1] for q in model.ranks):
            moved[part] += size * normal[part] * np.sqrt(np.mean(moved[part] ** 2))
        lowest = min(lowest, near(moved), key=lambda fit: fit.value)
    best = levenberg_marquardt(model, lowest.x, data, iterations=200)
    enough = fourth and len(data) <= min(_ROWS // 8, evidence.n // 4)  # else their covariance is mostly noise
    rows = sample(lambda n: max(1, n // _ROWS)) if enough else None
    reached = model.split(best.x) if rows is None else polished(best, data, evidence, *rows)
    return reached, *relative_errors(model, model.join(reached), wanted.gauge)


def refit(evidence: SetEvidence, wanted: Structure, start: Parameters) -> Parameters:
    """The joint fit from one start: for replicates."""
    model = white_model(evidence, wanted)
    if model.is_large:
        return fit_large(evidence, model, start)
    data = white_data(evidence, model)
    return model.split(levenberg_marquardt(model, model.join(start), data, iterations=100).x)


def polished(fit: Minimum, data: Array, evidence: SetEvidence, rows: Array, counts: Array) -> Parameters:
    """Transformations from a fit weighted by the full covariance of the cumulants, everything else refitted without: weights
    from the same rows as large cumulants are small, which biases tensors and covariances, but not ratios, downwards."""
    model = fit.model
    covariance = influence_covariance(rows @ model.white, counts, model.orders)
    covariance *= 1 - _SHRINK + _SHRINK * np.eye(len(covariance))
    # data and model come weighted by `scales`: undo that, then whiten by the covariance
    root = linalg.cholesky(covariance / evidence.n, lower=True)
    whiten = linalg.solve_triangular(root, np.diag(1 / model.scales), lower=True)
    better = levenberg_marquardt(model, fit.x, data, whiten=whiten)
    sure = model.split(better.x)
    fixed = replace(model, ties=sure.loadings)  # C -> C M: transformations stay
    refitted = levenberg_marquardt(fixed, fixed.join(sure), data)
    return fixed.split(refitted.x)
