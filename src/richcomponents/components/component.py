"""A Component: the cumulants of one hidden part, and how they are read off the views.

Nothing here sees a sample of the component. A RECIPE writes its t-th cumulant as a sum of
cross-cumulants of linear maps of the observed columns,

    k_t(S) = sum_j c_j k_t(W_j1' z, ..., W_jt' z),

and there are many right ones (estimates of the same tensor from different slots). Recipes are
averaged with the weights that minimise the variance seen between blocks of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np

from richcomponents.algebra import (
    Array,
    contract,
    cumulants_to_moments,
    multilinear,
    packed_size,
    symmetrise,
    unpack,
)
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.components.covariance import Spread
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.jackknife import jackknife_error
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments import Moments
from richcomponents.storage import Storable, storable

__all__ = ["Component", "CumulantSource", "Recipe", "Term", "no_recipes"]

MAX_COMPARED = 200_000
"""Packed entries up to which recipes are compared over blocks; beyond, the first is used."""


@dataclass(frozen=True)
class Term:
    """coefficient times k(slots[0]' z, slots[1]' z, ...); slots are (p, m)."""

    coefficient: float
    slots: tuple[Array, ...]


Recipe = tuple[Term, ...]


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

    def comparable(self, order: int) -> bool:
        """Whether recipes of this order can be compared over left-out blocks at a bearable price."""
        layout = self.moments.layout
        return order <= layout.order and packed_size(layout.n_columns, order) <= MAX_COMPARED and len(self.blocks) >= 5

    def _packed(self, order: int) -> Array:
        if order > self.max_order:
            raise ValueError(
                f"cumulants of order {order} are not kept here (order <= {self.max_order}): fit with order={order}; "
                "orders above four are kept for the whole sample only, not for jackknife replicates"
            )
        return (self._low if order <= self.moments.layout.order else self._high).packed(order)

    def tensor(self, recipe: Recipe) -> Array:
        """The dense tensor of a recipe, symmetrised, shape (m,) * t."""
        order = len(recipe[0].slots)
        packed = self._packed(order)
        p = self.moments.layout.n_columns
        if 8.0 * 12 * float(p) ** order > MEMORY_LIMIT:
            raise CapacityError(
                f"a dense cumulant of order {order} over {p} columns needs too much memory: use projected_moment, "
                "or fewer columns"
            )
        dense = unpack(packed, p, order)
        return symmetrise(np.sum([t.coefficient * multilinear(dense, *t.slots) for t in recipe], axis=0))

    def projected(self, recipe: Recipe, theta: Array) -> Array:
        """The recipe's tensor with all slots but one contracted with theta, shape (m,); never forms m^t.

        Each slot in turn keeps its vector, since the recipe's tensor counts symmetrised.
        """
        order = len(recipe[0].slots)
        packed = self._packed(order)
        p = self.moments.layout.n_columns
        total: Array = np.zeros(recipe[0].slots[0].shape[1])
        for term in recipe:
            for free in range(order):
                rest, left = packed, order
                for slot in (s for i, s in enumerate(term.slots) if i != free):
                    rest = contract(rest, p, left, slot @ theta)
                    left -= 1
                total = total + term.coefficient / order * (term.slots[free].T @ rest)
        return total

    def without_block(self, block: int) -> CumulantSource:
        return CumulantSource(self.moments.without([block]), unbiased=self.unbiased)

    @property
    def blocks(self) -> list[int]:
        return np.flatnonzero(self.moments.block_sizes).tolist()


storable(
    CumulantSource,
    lambda source: {"moments": source.moments, "high": source.high, "unbiased": source.unbiased},
    lambda parts: CumulantSource(parts["moments"], high=parts["high"], unbiased=parts["unbiased"]),
)


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
    """

    name: str
    feature_names: tuple[str, ...]
    mean: Array
    spread: Spread = field(repr=False)
    source: CumulantSource | None = field(repr=False)
    recipes: Callable[[int], Sequence[Recipe]] = field(repr=False)
    _known: dict[tuple[str, int], Array] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for array in (self.mean, self.spread):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    @property
    def covariance(self) -> Array:
        return self._remember("covariance", 2, lambda _: np.asarray(self.spread))

    @property
    def variance(self) -> Array:
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
        return cls(name, names, mean, covariance, CumulantSource(state), _PlainRecipes(values.shape[1]))

    def cumulant(self, order: int) -> Array:
        """The cumulant tensor, shape (d,) * order, symmetric. Order 1 is the mean, order 2 the covariance."""
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
        weights = self._weights(order)
        source, recipes = self._need_source(), self.recipes(order)
        parts = [w * source.projected(recipe, theta) for w, recipe in zip(weights, recipes, strict=True) if w]
        total: Array = np.sum(parts, axis=0)
        return total

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
        vectors = [self.projected_cumulant(theta, t) for t in range(1, order + 1)]
        powers, moments = [1.0], np.empty((order, len(theta)))  # E[w^n], E[S w^n]
        for n in range(order):
            moments[n] = np.sum([comb(n, k) * powers[n - k] * vectors[k] for k in range(n + 1)], axis=0)
            powers.append(float(theta @ moments[n]))
        return moments

    def measured_on(self, source: CumulantSource, order: int = 4) -> Component:
        """The same maps and weights with the cumulants of other rows, such as a mini-batch of those it was made from.

        order : up to which the weights of the recipes are carried over. The covariance moves with k2 of the first recipe,
        so that over batches it averages to this one's; where no cross-covariance tells the component from others (a joint fit
        found its covariance), it stays.
        """
        weights = {("weights", t): self._weights(t) for t in range(3, order + 1)}
        return Component(self.name, self.feature_names, self.mean, self._moved(source), source, self.recipes, weights)

    def _moved(self, source: CumulantSource) -> Spread:
        """The covariance, with k2 of the first recipe on other rows in place of the same on our own."""
        try:
            recipe = self.recipes(2)[0]
        except DataError:
            return self.spread
        own = self._remember("recipe", 2, lambda _: self._need_source().tensor(recipe))
        return self.covariance + (source.tensor(recipe) - own)

    # ---- how

    def _remember(self, what: str, order: int, compute: Callable[[int], Array]) -> Array:
        if (what, order) not in self._known:
            self._known[what, order] = compute(order)
        return self._known[what, order]

    def _weights(self, order: int) -> Array:
        return self._remember("weights", order, self._compute_weights)

    def _compute_cumulant(self, order: int) -> Array:
        _positive(order)
        if order == 1:
            return self.mean
        if order == 2:
            return self.covariance
        source = self._need_source()
        weights = self._weights(order)
        parts = [w * source.tensor(r) for w, r in zip(weights, self.recipes(order), strict=True) if w]
        total: Array = np.sum(parts, axis=0)
        return total

    def _compute_weights(self, order: int) -> Array:
        """Weights of the recipes: least variance of the sum, variances by leaving out blocks."""
        source, recipes = self._need_source(), self.recipes(order)
        first = np.eye(len(recipes))[0]
        if len(recipes) == 1 or not source.comparable(order):
            return np.asarray(first)
        probes = np.random.default_rng(0).normal(size=(8, len(self.mean)))
        values = np.stack(
            [
                np.stack([np.concatenate([left.projected(r, t) for t in probes]) for r in recipes])
                for left in map(source.without_block, source.blocks)
            ]
        )  # (blocks, recipes, probes x d)
        centred = values - values.mean(axis=0)
        noise = np.einsum("bie,bje->ij", centred, centred)
        if not np.trace(noise) > 0:
            return np.asarray(first)
        noise += 0.05 * np.trace(noise) / len(noise) * np.eye(len(noise))
        weights = np.maximum(np.linalg.solve(noise, np.ones(len(noise))), 0.0)
        total = weights.sum()
        return np.asarray(weights / total if total > 0 else first)

    def standard_error(self, order: int, theta: Array) -> Array:
        """Block-jackknife error of projected_cumulant(theta, order) at fixed maps, shape (d,)."""
        source, recipes = self._need_source(), self.recipes(order)
        weights = self._weights(order)
        replicates = [
            np.sum([w * left.projected(r, theta) for w, r in zip(weights, recipes, strict=True) if w], axis=0)
            for left in map(source.without_block, source.blocks)
        ]
        return jackknife_error(np.stack(replicates))

    def _need_source(self) -> CumulantSource:
        if self.source is None:
            raise CapacityError(
                f"only the mean and covariance of {self.name} were kept: the table is too wide for joint moments "
                "of higher order. Read them off the rows (component_on_rows of the fitted RCA), or reduce the columns first"
            )
        return self.source


@storable
@dataclass(frozen=True)
class _PlainRecipes:
    """The observed columns are the component."""

    d: int

    def __call__(self, order: int) -> list[Recipe]:
        return [(Term(1.0, (np.eye(self.d),) * order),)]


@storable
def no_recipes(order: int) -> list[Recipe]:
    """Of a component of which only the mean and the covariance are known."""
    return []


def _positive(order: int) -> None:
    if order < 1:
        raise ValueError(f"the order must be at least 1, got {order}")
