"""What a component says about spins: their moments, with s^2 = 1 put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from richcomponents.algebra import Array, set_partitions
from richcomponents.components import Component
from richcomponents.learning.ising.sums import all_states

__all__ = ["SpinMoments", "unit_diagonal", "whitened_moments"]

_MAX_MEAN = 0.99
_MAX_DENSE = 40  # columns up to which the tensor of fourth cumulants is formed


def unit_diagonal(covariance: Array) -> Array:
    """The covariance (d, d) scaled to unit diagonal: spins have variance 1. Columns without variance become 0."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out: Array = covariance * np.outer(inverse, inverse)
    np.fill_diagonal(out, 1.0)
    return np.clip(out, -1.0, 1.0)


@dataclass(frozen=True)
class SpinMoments:
    """Moments of the spins of a component.

    mean : (d,), zero without fields. scale : (d,), what the component's columns are multiplied by so that Var(s) = 1 - mean^2;
    second : E[s s'], (d, d), unit diagonal.
    """

    component: Component
    mean: Array
    scale: Array
    second: Array

    @classmethod
    def of(cls, component: Component, fields: bool) -> SpinMoments:
        """fields : take the component's mean, which is known by the RCA's rule only; else all odd moments are zero."""
        d = len(component.mean)
        mean = np.clip(component.mean, -_MAX_MEAN, _MAX_MEAN) if fields else np.zeros(d)
        sd = np.sqrt(1 - mean**2)
        second = unit_diagonal(component.covariance) * np.outer(sd, sd) + np.outer(mean, mean)
        scale = sd / np.sqrt(np.maximum(np.diag(component.covariance), 1e-300))
        return cls(component, mean, scale, np.clip(second, -1.0, 1.0))

    @property
    def with_ghost(self) -> Array:
        """E[s s'] (d + 1, d + 1), the last spin being the ghost: its pair moments are the means."""
        return np.block([[self.second, self.mean[:, None]], [self.mean[None], np.ones((1, 1))]])

    def products(self, nodes: Sequence[tuple[int, ...]]) -> Array:
        """E[prod_(i in q) s_i] for each tuple q of one to four different nodes.

        A moment is the sum over partitions of q of products of cumulants. Without fields odd ones are zero.
        """
        centred = not self.mean.any()
        need: dict[tuple[int, ...], float] = {}
        for q in nodes:
            if not (centred and len(q) % 2):
                need.update((tuple(q[i] for i in b), 0.0) for p in set_partitions(len(q)) for b in p if len(b) > 2)
        for order in (3, 4):
            wanted = [q for q in need if len(q) == order and not (centred and order == 3)]
            need.update(zip(wanted, self._cumulants(wanted, order), strict=True))

        def cumulant(q: tuple[int, ...]) -> float:
            if len(q) == 1:
                return float(self.mean[q[0]])
            if len(q) == 2:
                return float(self.second[q] - self.mean[q[0]] * self.mean[q[1]])
            return need.get(q, 0.0)

        found = [
            sum(float(np.prod([cumulant(tuple(q[i] for i in b)) for b in p])) for p in set_partitions(len(q)))
            if not (centred and len(q) % 2)
            else 0.0
            for q in nodes
        ]
        return np.clip(np.array(found, dtype=np.float64), -1.0, 1.0)

    def _cumulants(self, nodes: Sequence[tuple[int, ...]], order: int) -> list[float]:
        """k(s_a, s_b, ...) for each tuple of `order` nodes.

        Small components: from the tensor. Large ones by polarisation, from projections alone:
        t! 2^(t-1) k(a, b, ..) = sum over signs of their product times k_t(theta, .., theta), theta = e_a +- e_b +- ...
        """
        d = len(self.mean)
        if not nodes:
            return []
        if d <= _MAX_DENSE:
            tensor = self.component.cumulant(order)
            return [float(tensor[q] * np.prod(self.scale[list(q)])) for q in nodes]
        signs = np.hstack([np.ones((2 ** (order - 1), 1)), all_states(order - 1)])
        out = []
        for q in nodes:
            total = 0.0
            for sign in signs:
                theta = np.zeros(d)
                theta[list(q)] = sign
                total += float(sign.prod()) * float(theta @ self.component.projected_cumulant(theta, order))
            out.append(total / (factorial(order) * 2 ** (order - 1)) * float(np.prod(self.scale[list(q)])))
        return out


def whitened_moments(component: Component) -> tuple[Array, Array, Array] | None:
    """W (k, d) with W Cov(view) W' = I, the component's covariance there (k, k), and equal weights (k, k) for its entries.

    The view is the one that the component is a part of: U for S1, V for S3, the samples themselves. Errors of second moments
    have the size of Cov(view) there, so that in these coordinates they are even. None for a component that is read off several
    views (`Terms.whole`), or if the view does not see all of its columns.
    """
    slot = component.terms.whole
    if component.source is None or slot is None:
        return None
    p = component.source.moments.layout.n_columns
    values, vectors = np.linalg.eigh(slot.T @ component.source.moments.covariance(unbiased=False)[:p, :p] @ slot)
    if not values[0] > 1e-10 * values[-1]:
        return None
    W = (vectors / np.sqrt(values)).T
    return W, W @ component.covariance @ W.T, np.ones(W.shape)
