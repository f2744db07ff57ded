"""The joint refinement of large problems: the same f as in refine.py, by gradients, without a matrix of derivatives.

With D_Q = model(., B_Q, ..., B_Q) - data(., B_Q, ..., B_Q) (p x r^(t-1)) the derivatives of |data - model|^2 are
2 B_Q' D_Q for K_Q and 2 t D_Q K_Q' for B_Q. The model's part needs only the small matrices B_R' B_Q; the data's
part is one contraction of the dense cumulant tensor, done for all components at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import factorial

import numpy as np

from richcomponents.algebra import Array, multilinear, pack, unpack
from richcomponents.components.sets import Subset
from richcomponents.general.evidence import SetEvidence
from richcomponents.general.model import JointModel, Parameters
from richcomponents.learning.solvers import minimise

__all__ = ["DenseObjective", "fit_large"]

_ITERATIONS = 150
_GAIN = 1e-6  # relative decrease of f at which to stop; f is about one per entry
_INNER = 60  # conjugate-gradient steps for the tensors given the loadings

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
        """data(., B_Q, ..., B_Q) for all Q, (p, r^(t-1)); the large contraction is one matrix product."""
        stacked = np.hstack([B[q] for q in self.subsets])
        p = len(stacked)
        once = (self.data[t].reshape(-1, p) @ stacked).reshape((p,) * (t - 1) + (-1,))
        out, start = {}, 0
        for q in self.subsets:
            r = B[q].shape[1]
            part = once[..., start : start + r]
            start += r
            for slot in range(t - 2, 0, -1):
                part = np.moveaxis(np.tensordot(part, B[q], axes=(slot, 0)), -1, slot)
            out[q] = part.reshape(p, -1)
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
        out: Tensors = {}
        for t in self.model.orders:
            if t == 2:
                continue
            seen = self.seen(B, t)
            shapes = {q: (B[q].shape[1],) * t for q in self.subsets}
            right = {q: (B[q].T @ seen[q]).reshape(shapes[q]) for q in self.subsets}
            tensors = {q: np.zeros(shapes[q]) for q in self.subsets}
            rest, direction = dict(right), dict(right)
            size = begin = _inner(rest, rest)
            for _ in range(_INNER):
                if size <= 1e-6 * begin:
                    break
                image = {q: (B[q].T @ self.explained(B, direction, q, t)).reshape(shapes[q]) for q in self.subsets}
                step = size / _inner(direction, image)
                tensors = {q: tensors[q] + step * direction[q] for q in self.subsets}
                rest = {q: rest[q] - step * image[q] for q in self.subsets}
                size, before = _inner(rest, rest), size
                direction = {q: rest[q] + size / before * direction[q] for q in self.subsets}
            out.update({(q, t): tensors[q] for q in self.subsets})
        return out


def _inner(one: Mapping[Subset, Array], two: Mapping[Subset, Array]) -> float:
    return float(sum(np.sum(one[q] * two[q]) for q in one))


def fit_large(
    evidence: SetEvidence, model: JointModel, loadings: Mapping[Subset, Array], tensors: Tensors | None = None
) -> Parameters:
    """The minimum of f near starting loadings, by L-BFGS."""
    data = {
        t: multilinear(unpack(evidence.cumulants.packed(t), evidence.p, t), *[model.white] * t) for t in model.orders
    }
    weights = {t: evidence.n / (factorial(t) * evidence.inflation[t]) for t in model.orders}
    objective = DenseObjective(model, data, weights)
    start = objective.join(loadings, objective.best_tensors(loadings) if tensors is None else tensors)
    found = minimise(objective, start, maxiter=_ITERATIONS, maxcor=20, ftol=_GAIN, maxfun=10 * _ITERATIONS)
    final, dense = objective.split(found)
    return Parameters(final, {key: pack(tensor) for key, tensor in dense.items()})
