"""A Component: the cumulants of one hidden part, and how they are read off the views.

Nothing here sees a sample of the component. Its t-th cumulant is a sum of terms (terms.py), and there are many right sums:
estimates of the same tensor from different slots. They are averaged with the weights that minimise the variance seen between
blocks of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import comb

import numpy as np

from richcomponents.algebra import Array, cumulants_to_moments
from richcomponents.components.covariance import Spread
from richcomponents.components.terms import CumulantSource, Term, Terms, least_order, require_order
from richcomponents.cumulants.jackknife import jackknife_error
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import CapacityError
from richcomponents.moments import Moments
from richcomponents.storage import Storable

__all__ = ["Component"]


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
    source: CumulantSource | None = field(default=None, repr=False)
    terms: Terms = field(default=Terms(), repr=False)
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
        every = np.eye(values.shape[1])
        return cls(name, names, mean, covariance, CumulantSource(state), Terms(((Term(1.0, (), every),),), every))

    def centred(self) -> Component:
        """The same with mean zero."""
        known = {key: value for key, value in self._known.items() if key != ("cumulant", 1)}
        return replace(self, mean=np.zeros_like(self.mean), _known=known)

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
        return self.projected_on(self._need_source(), theta, order)

    def projected_on(self, source: CumulantSource, theta: Array, order: int) -> Array:
        """The same of order three or more with the cumulants of other rows, at the same maps and weights."""
        parts = [w * source.projected(terms, order, theta) for w, terms in self._weighted(order)]
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

        order : up to which the weights of the alternatives are carried over. The covariance moves with k2 of the first one,
        so that over batches it averages to this one's; where no cross-covariance tells the component from others (a joint fit
        found its covariance), it stays.
        """
        weights = {("weights", t): self._weights(t) for t in range(3, order + 1)}
        return Component(self.name, self.feature_names, self.mean, self._moved(source), source, self.terms, weights)

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
        _positive(order)
        if order == 1:
            return self.mean
        if order == 2:
            return self.covariance
        source = self._need_source()
        parts = [w * source.tensor(terms, order) for w, terms in self._weighted(order)]
        total: Array = np.sum(parts, axis=0)
        return total

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
        probes = np.random.default_rng(0).normal(size=(8, len(self.mean)))
        values = np.stack(
            [
                np.stack([np.concatenate([left.projected(terms, order, t) for t in probes]) for terms in alternatives])
                for left in map(source.without_block, source.blocks)
            ]
        )  # (blocks, alternatives, probes x d)
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


def _positive(order: int) -> None:
    if order < 1:
        raise ValueError(f"the order must be at least 1, got {order}")
