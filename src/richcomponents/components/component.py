"""Terms: cumulants of a hidden part as cross-cumulants of linear maps of the observed columns, and two ways to evaluate them.

    k_t(S) = sum_j c_j k_t(W_j1' z, W_j2' z, ..., W_jt' z)

holds for many choices of maps. Each is a few maps that must stand in certain slots, the HEAD, and one map that may fill all
others, so that one list of terms serves every order t. A state of moments (:class:`CumulantSource`) pays once for all tensors
and then forgets the rows; rows (:class:`RowSource`) are paid for per question: O(N p) each, and nothing of size p^2 or more,
which is the cheaper way for wide tables and for mini-batches.

A Component: the cumulants of one hidden part, and how they are read off the views.

Nothing here sees a sample of the component. Its t-th cumulant is a sum of terms, and there are many right sums:
estimates of the same tensor from different slots. They are averaged with the weights that minimise the variance seen between
blocks of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import comb

import numpy as np

from richcomponents.algebra import (
    Array,
    IntArray,
    contract,
    cumulants_to_moments,
    kstatistic_coefficient,
    multilinear,
    packed_size,
    partitions_without_singletons,
    plugin_coefficient,
    symmetrise,
    unpack,
)
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.components.wide import Spread
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import jackknife_error
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments import Moments
from richcomponents.moments.kernel import MAX_ORDER
from richcomponents.notebook import Table, Tabular
from richcomponents.storage import Storable, storable

_MAX_COMPARED = 200_000  # packed entries up to which alternatives are compared over blocks; beyond, the first is used


def check_order(order: int) -> None:
    """Refuse orders that no state and no rows have cumulants of."""
    if order > MAX_ORDER:
        raise ValueError(
            f"cumulants of order {order} were asked for, the highest order there is is {MAX_ORDER}: a polynomial of degree k "
            f"needs order k + 1, so use degree <= {MAX_ORDER - 1}"
        )


@storable
@dataclass(frozen=True)
class Term:
    """coefficient * k_t(head[0]' x, head[1]' x, ..., fill' x, fill' x, ...), t >= len(head).

    x is the row z of observed columns, maps (p, m); or, with `of`, the hidden part whose cumulants those terms give, maps
    (its coordinates, m): what ComputeCumulant subtracts for the components of larger sets.
    """

    coefficient: float
    head: tuple[Array, ...]
    fill: Array
    of: tuple[Term, ...] = ()

    def slots(self, order: int) -> tuple[Array, ...]:
        """The maps of all `order` slots."""
        return self.head + (self.fill,) * (order - len(self.head))

    def mapped(self, W: Array) -> Term:
        """The same of W'S, W (m, k)."""
        return replace(self, head=tuple(one @ W for one in self.head), fill=self.fill @ W)


@storable
@dataclass(frozen=True)
class Terms:
    """All we know of how the cumulants of a part are read off z.

    alternatives : sums of terms, each equal to k_t in the population; estimates average them.
    whole : (p, d), the map to the view that the part and something independent of it add up to, if it is read off one view.
    """

    alternatives: tuple[tuple[Term, ...], ...] = ()
    whole: Array | None = None

    @property
    def is_observed(self) -> bool:
        """Whether the columns themselves are the part: nothing had to be told apart."""
        return len(self.alternatives) == 1 and [(t.head, t.of) for t in self.alternatives[0]] == [((), ())]


def least_order(terms: Sequence[Term]) -> int:
    """The order from which a sum of terms holds: no slot of a head may be missing."""
    return max((max(len(t.head), least_order(t.of)) for t in terms), default=0)


def less(own: Term, others: Iterable[tuple[Array, tuple[Term, ...]]]) -> tuple[Term, ...]:
    """A cross-cumulant of z without what other parts add to it: own - sum_R k_t(S_R)(L_R'W1, ..., L_R'Wt).

    others : for each part S_R its loadings L_R (p, d_R), z = ... + L_R S_R, and its own terms.
    """
    minus = -own.coefficient
    return own, *(Term(minus, tuple(L.T @ W for W in own.head), L.T @ own.fill, above) for L, above in others)


def require_order(name: str, terms: Sequence[Term], order: int) -> None:
    """Refuse, in words, an order at which a sum of terms does not hold."""
    if order < least_order(terms):
        raise DataError(
            f"the cumulant of order {order} of {name} cannot be read off cross-cumulants: it takes {least_order(terms)} slots "
            "to tell it from the others"
        )


def expand(terms: Sequence[Term], order: int) -> list[tuple[float, tuple[Array, ...]]]:
    """The sum written out on z: coefficients and the maps (p, m) of all slots."""
    out: list[tuple[float, tuple[Array, ...]]] = []
    for term in terms:
        slots = term.slots(order)
        inner = expand(term.of, order) if term.of else [(1.0, ())]
        for coefficient, maps in inner:
            through = tuple(W @ M for W, M in zip(maps, slots, strict=True)) if maps else slots
            out.append((term.coefficient * coefficient, through))
    return out


# ---- two views U = S1 + S2, V = A S2 + S3


def own_terms(view: Array, shared: Array, regression: Array) -> Terms:
    """Of S1 (or S3 with the views exchanged).

    With E = U - A^+ V (S2 removed from U) the identities are, for ANY matrices B3 ... Bt,

        k_t(S1) = k_t(E, U, U - B3 V, ..., U - Bt V):

    the first slot has no S2, the second no S3, and the others may be chosen for their small variance. B = 0 is the paper's
    equation (3) in cross form, B = the regression of U on V the control variate, which lowers the error of the tensor by a
    quarter to a half.

    view : z -> U; shared : z -> A^+ V; regression : z -> E[U | V], linear. All (p, d): column j holds the weights of the
    observed coordinates z in coordinate j.
    """
    head = (view - shared, view)
    return Terms(tuple((Term(1.0, head, fill),) for fill in (view - regression, view, head[0])), whole=view)


def shared_terms(one: Array, two: Array, best: Array) -> Terms:
    """Of S2: every cross-cumulant with at least one U and one A^+ V is k_t(S2) (paper, equation (4)).

    one : z -> U, two : z -> A^+ V, best : z -> the combination of both with the least noise.
    """
    return Terms(tuple((Term(1.0, (one, two), fill),) for fill in (best, one, two)))


class CumulantSource:
    """Answers contractions of the cumulants of the observed columns z, from a state (or, RowSource, from the rows).

    moments : kept by block, orders up to four; high : the same columns to a higher order, in total only.
    """

    def __init__(self, moments: Moments, *, high: Moments | None = None, unbiased: bool = True) -> None:
        self._moments, self.unbiased = moments, unbiased
        self._low = Cumulants(moments, unbiased=unbiased)
        self._high = self._low if high is None else Cumulants(high, unbiased=unbiased)

    @property
    def moments(self) -> Moments:
        return self._moments

    @property
    def n(self) -> int:
        """How many rows are behind the cumulants."""
        return self.moments.n

    @property
    def high(self) -> Moments | None:
        """The state of higher order, when there is one."""
        return None if self._high is self._low else self._high.moments

    @property
    def max_order(self) -> int:
        return self._high.moments.layout.order

    def covariance(self, W: Array) -> Array:
        """Cov(W'z), (m, m), as it is; W (p, m)."""
        p = self.n_columns
        return np.asarray(W.T @ self.moments.covariance(unbiased=False)[:p, :p] @ W)

    @property
    def n_columns(self) -> int:
        return self.moments.layout.n_columns

    @property
    def block_order(self) -> int:
        """The highest order that is known without each block."""
        return self.moments.layout.order

    def comparable(self, order: int) -> bool:
        """Whether alternatives of this order can be compared over left-out blocks at a bearable price."""
        few = packed_size(self.n_columns, order) <= _MAX_COMPARED
        return few and order <= self.block_order and len(self.blocks) >= 5

    def cost(self, order: int) -> float:
        """Multiplications that one projected cumulant takes, about."""
        return float(order * self.n_columns * packed_size(self.n_columns, order - 1))

    def require(self, order: int) -> None:
        """Refuse an order that is not kept, with the remedy."""
        check_order(order)
        if order > self.max_order:
            raise ValueError(
                f"cumulants of order {order} are not kept here (order <= {self.max_order}): fit with order={order}; "
                "orders above four are kept for the whole sample only, not for jackknife replicates"
            )

    def _packed(self, order: int) -> Array:
        self.require(order)
        return (self._low if order <= self.moments.layout.order else self._high).packed(order)

    def tensor(self, terms: Sequence[Term], order: int) -> Array:
        """The dense tensor of a sum of terms, symmetrised, shape (m,) * order."""
        packed, p = self._packed(order), self.n_columns
        if 8.0 * 12 * float(p) ** order > MEMORY_LIMIT:
            raise CapacityError(
                f"a dense cumulant of order {order} over {p} columns needs too much memory: use projected_moment, "
                "or fewer columns"
            )
        dense = unpack(packed, p, order)
        return symmetrise(np.sum([c * multilinear(dense, *slots) for c, slots in expand(terms, order)], axis=0))

    def projected(self, terms: Sequence[Term], order: int, theta: Array) -> Array:
        """The same tensor with all slots but one contracted with theta, shape (m,); never forms m^t.

        Each slot in turn keeps its vector, since the tensor counts symmetrised.
        """
        packed, p = self._packed(order), self.n_columns
        total: Array = np.zeros(len(theta))
        for coefficient, slots in expand(terms, order):
            along, seen = {id(slot): slot @ theta for slot in slots}, {}  # a matrix often fills several slots
            for free in range(order):
                others = tuple(id(slot) for i, slot in enumerate(slots) if i != free)
                if others not in seen:
                    rest = packed
                    for left, other in zip(range(order, 1, -1), others, strict=True):
                        rest = contract(rest, p, left, along[other])
                    seen[others] = slots[free].T @ rest
                total = total + coefficient / order * seen[others]
        return total

    def without_block(self, block: int) -> CumulantSource:
        return CumulantSource(self.moments.without([block]), unbiased=self.unbiased)

    @property
    def blocks(self) -> list[int]:
        return np.flatnonzero(self.moments.block_sizes).tolist()


storable(CumulantSource)


class RowSource(CumulantSource):
    """Answers contractions of the cumulants of the columns z from the rows themselves.

    rows : (n, p), centred here; block_of : (n,) statistical block of each row, in turn over 20 by default.
    """

    def __init__(self, rows: Array, block_of: IntArray | None = None, *, unbiased: bool = True) -> None:
        if len(rows) == 0:
            raise DataError("there are no rows")
        self._z = rows - rows.mean(axis=0)
        self._block_of = np.arange(len(rows)) % 20 if block_of is None else np.asarray(block_of)
        self.unbiased = unbiased

    @cached_property
    def moments(self) -> Moments:
        """The state of order four, by block, for whoever needs tensors; refused where it would not fit."""
        return Moments.of(self._z, 4, n_blocks=len(self.blocks), groups=self._block_of)

    @property
    def n(self) -> int:
        return len(self._z)

    @property
    def n_columns(self) -> int:
        return int(self._z.shape[1])

    @property
    def max_order(self) -> int:
        return MAX_ORDER

    block_order = max_order

    def cost(self, order: int) -> float:
        """Three different slots, each projected and each left open once; beyond order four, products for every partition."""
        return float(6 * self._z.size + self.n * len(partitions_without_singletons(order)) * (order > 4))

    def state(self, order: int) -> CumulantSource:
        """A state in place of the rows, by block up to order four."""
        high = Moments.of(self._z, order, n_blocks=1) if order > 4 else None
        return CumulantSource(self.moments, high=high, unbiased=self.unbiased)

    def state_cost(self, order: int) -> float:
        """What a question would cost of it; without end where it would be large."""
        fits = packed_size(self.n_columns, max(order, 4)) <= _MAX_COMPARED
        return super().cost(order) if fits else np.inf

    def map_to(self, columns: Array) -> Array:
        """(p, d): the map of the rows to these columns (n, d), which must be linear in them."""
        centred = columns - columns.mean(axis=0)
        found, *_ = np.linalg.lstsq(self._z, centred, rcond=None)
        gap = float(np.abs(self._z @ found - centred).max(initial=0.0))
        if gap > 1e-6 * max(float(np.abs(centred).max(initial=0.0)), 1e-300):
            raise ValueError("the columns beside an outcome are not linear in the rows of this component")
        return np.asarray(found)

    def beside(self, y: Array) -> RowSource:
        """The same rows with one column more, (n,)."""
        return RowSource(np.column_stack([self._z, y]), self._block_of, unbiased=self.unbiased)

    def covariance(self, W: Array) -> Array:
        along = self._z @ W
        return np.asarray(along.T @ along / self.n)

    @property
    def blocks(self) -> list[int]:
        return [int(b) for b in np.unique(self._block_of)]

    def without_block(self, block: int) -> RowSource:
        keep = self._block_of != block
        return RowSource(self._z[keep], self._block_of[keep], unbiased=self.unbiased)

    def take(self, rows: IntArray) -> RowSource:
        """The same columns on some of the rows: a mini-batch."""
        return RowSource(self._z[rows], self._block_of[rows], unbiased=self.unbiased)

    def tensor(self, terms: Sequence[Term], order: int) -> Array:
        """The dense tensor of a sum of terms, through a state of the columns, or of what the slots make of them, where that is
        less."""
        every = expand(terms, order)
        maps = {id(slot): slot for _, slots in every for slot in slots}
        ends = np.cumsum([0, *(slot.shape[1] for slot in maps.values())])
        if order > 2 and ends[-1] >= self._z.shape[1]:
            return self.state(order).tensor(terms, order)
        at = {key: np.arange(a, b) for key, a, b in zip(maps, ends[:-1], ends[1:], strict=True)}
        state = Moments.of(self._z @ np.hstack(list(maps.values())), order, n_blocks=1)
        found = Cumulants(state, unbiased=self.unbiased)
        return symmetrise(np.sum([c * found.tensor(*(at[id(s)] for s in slots)) for c, slots in every], axis=0))

    def projected(self, terms: Sequence[Term], order: int, theta: Array) -> Array:
        """The same tensor with all slots but one contracted with theta, shape (m,): matrix-vector products only."""
        self.require(order)
        if self.unbiased and self.n < order:
            raise DataError(f"an unbiased cumulant of order {order} needs at least {order} rows, got {self.n}")
        total: Array = np.zeros(len(theta))
        for coefficient, slots in expand(terms, order):
            # a matrix often fills several slots: one projection for each distinct matrix, one vector for each distinct rest
            distinct = {id(slot): slot for slot in slots}
            along = {key: self._z @ (slot @ theta) for key, slot in distinct.items()}
            for key, slot in distinct.items():
                rest = [id(s) for s in slots]
                times = rest.count(key)
                rest.remove(key)
                vector = self._cumulant([along[other] for other in rest])
                total = total + coefficient * times / order * (slot.T @ vector)
        return total

    def _cumulant(self, others: Sequence[Array]) -> Array:
        """k(z, w_1, ..., w_{t-1}), (p,), for samples w_j (n,) of centred variables."""
        order = len(others) + 1
        scalars: dict[tuple[int, ...], float] = {}
        weights: dict[tuple[int, ...], float] = {}  # sums of z times these products, with these coefficients
        for partition in partitions_without_singletons(order):
            factor = self._coefficient(tuple(sorted(map(len, partition))))
            for block in partition:
                if 0 in block:
                    with_z = tuple(i - 1 for i in block if i)  # slot 0 is z
                else:
                    key = tuple(i - 1 for i in block)
                    if key not in scalars:
                        scalars[key] = float(np.sum(reduce(np.multiply, [others[i] for i in key])))
                    factor *= scalars[key]
            weights[with_z] = weights.get(with_z, 0.0) + factor
        # sum_k weight_k sum_i z_i product_k,i = z' (sum_k weight_k product_k): one pass over the rows
        combined = np.zeros(self.n)
        for key, weight in weights.items():
            combined += weight * reduce(np.multiply, [others[i] for i in key])
        return np.asarray(combined @ self._z)

    def _coefficient(self, sizes: tuple[int, ...]) -> float:
        return (kstatistic_coefficient if self.unbiased else plugin_coefficient)(sizes, self.n)


@dataclass(frozen=True)
class Component(Storable):
    """The extracted cumulants of one hidden component.

    Attributes
    ----------
    name : str
    feature_names : tuple of str
        The component's coordinates, named after the view it is expressed in.
    mean : array (d,)
        By the stated rule: only differences of means are identified.
    covariance : array (d, d)
        Positive semi-definite. Formed from factors when it is asked for, if the component has very many coordinates.
    variance : array (d,)
        Its diagonal, which is always cheap.

    Examples
    --------
    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=0)
    >>> own = rc.ContrastiveRCA(views=3).fit(data.X).components_["S1"]
    >>> own.covariance.shape, own.cumulant(3).shape, own.feature_names
    ((3, 3), (3, 3, 3), ('x0', 'x1', 'x2'))
    """

    name: str
    feature_names: tuple[str, ...]
    mean: Array
    spread: Spread = field(repr=False)
    source: CumulantSource | None = field(default=None, repr=False)
    terms: Terms = field(default=Terms(), repr=False)
    _known: dict[tuple[str, int], Array] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for array in (self.mean, self.spread):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    @property
    def covariance(self) -> Array:
        """(d, d); formed from factors where there are very many coordinates."""
        return self._remember("covariance", 2, lambda _: np.asarray(self.spread))

    @property
    def variance(self) -> Array:
        """(d,), its diagonal."""
        return np.array(self.spread.diagonal())

    @classmethod
    def of_samples(cls, S: object, name: str = "samples", order: int = 4) -> Component:
        """The component whose samples these are (n, d): for baselines and for clean data.

        >>> Component.of_samples(np.random.default_rng(0).normal(size=(100, 2))).covariance.shape
        (2, 2)
        """
        values = as_matrix(S)
        state = Moments.of(values, order)
        names = column_names(S) or tuple(f"x{i}" for i in range(values.shape[1]))
        mean, covariance = np.array(state.mean), np.cov(values.T, bias=True).reshape(values.shape[1], -1)
        every = np.eye(values.shape[1])
        return cls(name, names, mean, covariance, CumulantSource(state), Terms(((Term(1.0, (), every),),), every))

    def mapped(self, W: Array) -> Component:
        """W'S, W (d, k): its cumulants take k^t numbers, whatever d."""
        terms = tuple(tuple(term.mapped(W) for term in terms) for terms in self.terms.alternatives)
        names = tuple(map(str, range(W.shape[1])))
        spread = np.asarray(W.T @ (self.spread @ W))
        return Component(self.name, names, self.mean @ W, spread, self.source, Terms(terms))

    def centred(self) -> Component:
        """The same with mean zero."""
        return replace(self, mean=np.zeros_like(self.mean))

    def cumulant(self, order: int) -> Array:
        """The cumulant tensor, shape (d,) * order, symmetric. Order 1 is the mean, order 2 the covariance."""
        _positive(order)
        if order <= 2:
            return self.mean if order == 1 else self.covariance
        return self._remember("cumulant", order, self._compute_cumulant)

    def moment(self, order: int) -> Array:
        """The raw moment E[S x ... x S], shape (d,) * order, order >= 1."""
        _positive(order)
        return cumulants_to_moments([self.cumulant(t) for t in range(1, order + 1)])[-1]

    def projected_cumulant(self, theta: Array, order: int) -> Array:
        """k(S, theta'S, ..., theta'S), shape (d,); no tensor of size d^order is formed."""
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != self.mean.shape:
            raise ValueError(f"theta must have {len(self.mean)} entries, got shape {theta.shape}")
        if order == 1:
            return self.mean
        if order == 2:
            return np.asarray(self.spread @ theta)
        return self.projected_on(self._need_source(), theta, order)

    def projected_on(self, source: CumulantSource, theta: Array, order: int) -> Array:
        """The same of order three or more with the cumulants of other rows, at the same maps and weights."""
        parts = [w * source.projected(terms, order, theta) for w, terms in self._weighted(order)]
        return np.asarray(np.sum(parts, axis=0))

    def projected_moment(self, theta: Array, order: int) -> Array:
        """E[S (theta'S)^(order-1)], shape (d,), from projected cumulants alone."""
        _positive(order)
        return np.asarray(self.projected_moments(theta, order)[-1])

    def projected_moments(self, theta: Array, order: int) -> Array:
        """E[S (theta'S)^n] for n = 0..order-1, shape (order, d): each projected cumulant is taken once.

        With w = theta'S: E[S w^n] = sum_k C(n, k) k(S, w, ..., w) E[w^(n-k)], k slots w, and the same
        for E[w^n], one slot taken out.
        """
        theta = np.asarray(theta, dtype=np.float64)
        if order > 2:
            self._need_source().require(order)
        vectors = [self.projected_cumulant(theta, t) for t in range(1, order + 1)]
        powers, moments = [1.0], np.empty((order, len(theta)))  # E[w^n], E[S w^n]
        for n in range(order):
            moments[n] = np.sum([comb(n, k) * powers[n - k] * vectors[k] for k in range(n + 1)], axis=0)
            powers.append(float(theta @ moments[n]))
        return moments

    def measured_on(self, source: CumulantSource, order: int = 4) -> Component:
        """The same maps and weights with the cumulants of other rows, such as a mini-batch of those it was made from.

        order : up to which the weights of the alternatives are carried over. The covariance moves with k2 of the first one,
        so that over batches it averages to this one's; where no cross-covariance tells the component from others (a joint fit
        found its covariance), it stays.
        """
        weights = {("weights", t): self._weights(t) for t in range(3, order + 1)}
        return Component(self.name, self.feature_names, self.mean, self._moved(source), source, self.terms, weights)

    def weighted_like(self, other: Component, order: int) -> Component:
        """The same, its alternatives weighed as those of another up to this order: a replicate without a block."""
        return replace(self, _known={("weights", t): other._weights(t) for t in range(3, order + 1)})

    def with_outcome(self, stand_in: Array, y: Array, level: float = 0.0, *, order: int = 4) -> Component:
        """The component (S, y), d + 1 coordinates, of an outcome y that depends on S and on nothing else in the rows.

        stand_in (n, d) : columns with S in them and beside it only what y does not depend on, linear in the rows that this
        component reads (component_on_rows), such as the residual R; y (n,) : the outcome of these rows, centred; level :
        its mean.
        order : up to which weights of alternatives are carried over.

        Whatever beside S is in R drops out of every cumulant with y in some slot, and R from those without:

            k_t(S, y) = k_t((S, 0)) + k_t((R, y)) - k_t((R, 0)).
        """
        source = self._need_source()
        if not isinstance(source, RowSource):
            raise TypeError("an outcome stands beside rows: use component_on_rows(X) of the fitted RCA")
        d = len(self.mean)
        beside = np.pad(source.map_to(stand_in), ((0, 1), (0, 1)))
        alone = beside.copy()
        beside[-1, d] = 1.0
        more = (Term(1.0, (), beside), Term(-1.0, (), alone))
        wider = [(*(_padded(term) for term in terms), *more) for terms in self.terms.alternatives]
        cross = stand_in.T @ y / (len(y) - 1)
        square = float(y @ y) / (len(y) - 1)
        covariance = np.block([[self.covariance, cross[:, None]], [cross[None], np.array([[square]])]])
        known = {("weights", t): self._weights(t) for t in range(3, order + 1)}
        names, mean = (*self.feature_names, "y"), np.append(self.mean, level)
        return Component(self.name, names, mean, covariance, source.beside(y), Terms(tuple(wider)), known)

    def condensed(self, order: int) -> Component:
        """The same, of rows, with a state of this order in their place, where questions are then cheaper."""
        source = self._need_source()
        cheaper = isinstance(source, RowSource) and source.state_cost(order) <= source.cost(order)
        return replace(self, source=source.state(order)) if cheaper else self  # type: ignore[attr-defined]

    def _moved(self, source: CumulantSource) -> Spread:
        """The covariance, with k2 of the first alternative on other rows in place of the same on our own."""
        terms = self.terms.alternatives[0]
        if least_order(terms) > 2:
            return self.spread
        own = self._remember("first", 2, lambda _: self._need_source().tensor(terms, 2))
        return self.covariance + (source.tensor(terms, 2) - own)

    # ---- how

    def _remember(self, what: str, order: int, compute: Callable[[int], Array]) -> Array:
        if (what, order) not in self._known:
            self._known[what, order] = compute(order)
        return self._known[what, order]

    def _weights(self, order: int) -> Array:
        return self._remember("weights", order, self._compute_weights)

    def _compute_cumulant(self, order: int) -> Array:
        source = self._need_source()
        return np.asarray(np.sum([w * source.tensor(terms, order) for w, terms in self._weighted(order)], axis=0))

    def _weighted(self, order: int) -> list[tuple[float, tuple[Term, ...]]]:
        """The alternatives that count, with their weights."""
        return [(w, terms) for w, terms in zip(self._weights(order), self._at(order), strict=True) if w]

    def _at(self, order: int) -> tuple[tuple[Term, ...], ...]:
        """The alternatives, if they hold at this order."""
        for terms in self.terms.alternatives:
            require_order(self.name, terms, order)
        return self.terms.alternatives

    def _compute_weights(self, order: int) -> Array:
        """Weights of the alternatives: least variance of the sum, variances by leaving out blocks."""
        source, alternatives = self._need_source(), self._at(order)
        first = np.eye(len(alternatives))[0]
        if len(alternatives) == 1 or not source.comparable(order):
            return np.asarray(first)
        scale = np.sqrt(np.maximum(self.variance, 0.0))  # noise counts in units of the coordinates
        unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        probes, values = np.random.default_rng(0).normal(size=(8, len(scale))) * unit, []
        for left in map(source.without_block, source.blocks):
            along = [[left.projected(terms, order, t) * unit for t in probes] for terms in alternatives]
            values.append(np.reshape(along, (len(alternatives), -1)))
        centred = np.stack(values) - np.mean(values, axis=0)  # (blocks, alternatives, probes x d)
        noise = np.einsum("bie,bje->ij", centred, centred)
        if not np.trace(noise) > 0:
            return np.asarray(first)
        noise += 0.05 * np.trace(noise) / len(noise) * np.eye(len(noise))
        weights = np.maximum(np.linalg.solve(noise, np.ones(len(noise))), 0.0)
        total = weights.sum()
        return np.asarray(weights / total if total > 0 else first)

    def standard_error(self, order: int, theta: Array) -> Array:
        """Block-jackknife error of projected_cumulant(theta, order) at fixed maps, shape (d,)."""
        source = self._need_source()
        replicates = [self.projected_on(source.without_block(block), theta, order) for block in source.blocks]
        return jackknife_error(np.stack(replicates))

    def _need_source(self) -> CumulantSource:
        if self.source is None:
            raise CapacityError(
                f"only the mean and covariance of {self.name} were kept: the table is too wide for joint moments "
                "of higher order. Read them off the rows (component_on_rows of the fitted RCA), or reduce the columns first"
            )
        return self.source


def _padded(term: Term, columns: int = 1) -> Term:
    """On rows with one column more, which it does not use, for a part with so many coordinates more, which it does not have."""
    rows = 0 if term.of else 1  # of the hidden part that `of` is about there are as many as before

    def wider(matrix: Array) -> Array:
        return np.pad(matrix, ((0, rows), (0, columns)))

    of = tuple(_padded(inner, 0) for inner in term.of)
    return Term(term.coefficient, tuple(map(wider, term.head)), wider(term.fill), of)


def _positive(order: int) -> None:
    if order < 1:
        raise ValueError(f"the order must be at least 1, got {order}")


@dataclass(frozen=True, repr=False)
class VarianceTable(Tabular):
    """Var(U) = Var(S1) + Var(S2), column by column; every array is (d_u,).

    total : Var(U), what ignoring V takes for Var(S1); own, shared : Var(S1) and Var(S2) as estimated;
    residualised : variance of the residual of U on the shared part of V, never below Var(S1);
    low, high : confidence limits of Var(S1) (of the identified set, when the higher orders say nothing);
    identified_low, identified_high : what second moments alone allow, for any distribution (nan for the paper's method).
    """

    names: tuple[str, ...]
    total: Array
    own: Array
    shared: Array
    low: Array
    high: Array
    identified_low: Array
    identified_high: Array

    @property
    def residualised(self) -> Array:
        """Removing what V predicts removes the least of S2 that is possible: the upper end of the identified set."""
        return self.identified_high

    @property
    def shared_share(self) -> Array:
        """Var(S2) / Var(U) (d_u,), between 0 and 1; 0 for a constant column."""
        share = np.divide(self.shared, self.total, out=np.zeros_like(self.total), where=self.total > 0)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def rows(self) -> Table:
        """One dict per column of U, ready for a data frame."""
        columns = {
            "variance": self.total,
            "own (S1)": self.own,
            "low": self.low,
            "high": self.high,
            "shared (S2)": self.shared,
            "shared share": self.shared_share,
            "identified low": self.identified_low,
            "identified high": self.identified_high,
        }
        return Table({"name": n, **{k: float(v[i]) for k, v in columns.items()}} for i, n in enumerate(self.names))
