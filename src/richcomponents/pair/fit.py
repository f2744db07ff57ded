"""What is known of two views: their second moments, T, and every answer that is a function of both.

An answer is f(pair, T, doubt): of a sample or of a stack of replicates, at T (..., r, r); doubt = E (T - E T)^2 (r, r) where T
is an estimate, zero where it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import one_blas_thread
from richcomponents.inference.draws import Draws, Shrunk, shrink
from richcomponents.inference.posterior import Evidence, Posterior, infer
from richcomponents.inference.verdicts import gate
from richcomponents.pair.views import Pair
from richcomponents.storage import storable

__all__ = ["Answer", "PairFit"]

Answer = Callable[[Pair, Array, Array], Array]

MOST_CORRECTED = 40
"""Leading shared directions that have a T of their own; the others are residualised."""


@storable
@dataclass(frozen=True, eq=False)
class PairFit:
    """pair : the whole sample; left_out : without each block; posterior : of T (r, r), zero beyond the corrected directions."""

    pair: Pair
    left_out: Pair
    posterior: Posterior

    @classmethod
    def of(
        cls, pair: Pair, left_out: Pair, evidences: Sequence[Evidence], seed: int | None = 0, signs: Array | None = None
    ) -> PairFit:
        """signs (m,) : see `infer`."""
        if pair.rank == 0:
            T = np.zeros((0, 0))
            return cls(pair, left_out, Posterior(Draws.certain(T, np.zeros((len(left_out.n), 0, 0)))))
        with one_blas_thread():
            posterior = infer(pair.leading(), left_out.leading(), evidences, seed, signs)
        return cls(pair, left_out, replace(posterior, T=posterior.T.map(lambda T: padded(T, pair.rank))))

    @property
    def rank(self) -> int:
        return self.pair.rank

    @property
    def gate(self) -> float:
        """0 to 1: whether any evidence tells T from T = 0."""
        return gate(self.strength)

    @property
    def strength(self) -> float:
        """Of the evidence that tells T best from T = 0, in standard errors."""
        return max(self.posterior.strengths.values(), default=0.0)

    def full(self, f: Answer) -> Draws:
        """At the posterior of T."""
        none = np.zeros_like(self.posterior.T.value)
        value = f(self.pair, self.posterior.T.value, self.posterior.doubt)
        known = self.posterior.resampled(np.size(value))
        blocks = f(self.left_out, known.T.blocks, self.posterior.doubt)
        return Draws(value, blocks, f(self.pair, known.T.posterior, none), known.T.weight)

    def safe(self, f: Answer, end: float = 0.0) -> Draws:
        """At T = end I, of the corrected directions."""
        T, none = padded(end * np.eye(self.pair.corrected), self.rank), np.zeros_like(self.posterior.T.value)
        return Draws.certain(f(self.pair, T, none), f(self.left_out, np.broadcast_to(T, self.left_out.K.shape), none))

    def answer(self, f: Answer, *, end: float = 0.0) -> Shrunk:
        """Protected. Only T = 0 has a gate: nobody is content with A at T = I, the regression of V on U."""
        return shrink(self.safe(f, end), self.full(f), self.gate if end == 0 else 1.0, np.asarray)


def padded(T: Array, rank: int) -> Array:
    """(..., m, m) -> (..., r, r), with zeros."""
    out = np.zeros((*T.shape[:-2], rank, rank))
    out[..., : T.shape[-1], : T.shape[-1]] = T
    return out
