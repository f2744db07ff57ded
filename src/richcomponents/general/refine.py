"""From evidence to the loadings of all components: starts, the joint fit, a polish with the cumulants' full covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, unpack
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.general.descend import fit_large
from richcomponents.general.evidence import SetEvidence
from richcomponents.general.influence import influence_covariance
from richcomponents.general.model import (
    JointModel,
    Minimum,
    Parameters,
    in_coordinates,
    levenberg_marquardt,
    solve_tensors,
    transform_errors,
    white_data,
    white_model,
)
from richcomponents.general.start import assemble, sequential
from richcomponents.paper.general import Transforms, find_linear

__all__ = ["JointFit", "fit_joint", "refit"]

_LARGEST = 8e6  # entries times parameters up to which derivatives are held in a matrix
_HALVES = 4  # starts from half of the blocks: the landscape has several minima
_SAME = 1.0  # minima of f closer than this, in units of noise, are the same
_ROWS = 20_000  # enough for the covariance of a thousand cumulants
_MOST_ENTRIES = 2500  # cumulants whose full covariance is used as weight
_SHRINK = 0.2  # of that covariance, towards its diagonal


@dataclass(frozen=True)
class JointFit:
    """parameters, and {(view, Q): approximate relative standard error of A}; none for large problems."""

    parameters: Parameters
    errors: dict[tuple[str, Subset], float]


def fit_joint(
    evidence: SetEvidence,
    system: SetSystem,
    ranks: Mapping[Subset, int],
    gauge: Mapping[Subset, str],
    *,
    sample: Callable[[int], Array | None] = lambda step: None,
    random_state: int | None = 0,
) -> JointFit:
    """Loadings and tensors of all components, and how sure the transformations are.

    sample : step -> every step-th row (m, p) of the whitened views, None where rows are not at hand: their cumulants' full
    covariance then serves as weight for the transformations.
    """
    model = white_model(evidence, system, ranks)
    if _is_large(model):
        return JointFit(fit_large(evidence, model, assemble(model, sequential(evidence, system, gauge)).loadings), {})
    data = white_data(evidence, model)
    fits: list[Minimum] = []
    for start in _starts(evidence, system, gauge, random_state):
        x = solve_tensors(model, model.join(assemble(model, start)), data)
        fits.append(levenberg_marquardt(model, x, data, iterations=30, tol=0.1))
        lowest = sorted(fit.value for fit in fits)[:2]
        if len(lowest) == 2 and lowest[1] - lowest[0] < _SAME:
            break
    best = levenberg_marquardt(model, min(fits, key=lambda fit: fit.value).x, data, iterations=200)
    if len(data) <= min(_MOST_ENTRIES, evidence.n // 4):  # else their covariance is mostly noise
        rows = sample(max(1, evidence.n // _ROWS))
        if rows is not None:
            best = polished(model, best, data, evidence, rows)
    return JointFit(model.split(best.x), transform_errors(model, best.x, gauge))


def _starts(
    evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], random_state: int | None
) -> Iterator[Transforms]:
    """Starting transformations, the best first; more are tried until the lowest minimum was found twice."""
    yield sequential(evidence, system, gauge)
    if evidence.order > system.L:
        yield find_linear(
            evidence.cumulants, evidence.columns, system, order=evidence.order, gauge=gauge, zero=0.0
        ).transforms
    rng = np.random.default_rng(random_state)
    n_blocks = len(evidence.share)
    for _ in range(_HALVES):
        yield sequential(evidence, system, gauge, rng.permutation(n_blocks)[: n_blocks // 2].tolist())


def _is_large(model: JointModel) -> bool:
    return model.size * sum(map(len, model.entries.values())) > _LARGEST


def refit(evidence: SetEvidence, system: SetSystem, ranks: Mapping[Subset, int], start: Parameters) -> Parameters:
    """The joint fit from one start: for replicates."""
    model = white_model(evidence, system, ranks)
    if _is_large(model):
        dense = {(q, t): unpack(packed, ranks[q], t) for (q, t), packed in start.tensors.items()}
        return fit_large(evidence, model, start.loadings, dense)
    data = white_data(evidence, model)
    return model.split(levenberg_marquardt(model, model.join(start), data, iterations=100).x)


def polished(model: JointModel, fit: Minimum, data: Array, evidence: SetEvidence, rows: Array) -> Minimum:
    """Transformations from a fit weighted by the full covariance of the cumulants, everything else refitted without.

    Full weights come from the same rows as the cumulants: large cumulants have large weights' inverses, which biases
    tensors and covariances downwards, but not the transformations, which are ratios.
    """
    packed = {t: in_coordinates(evidence.cumulants.packed(t), model.white, t) for t in model.orders}
    covariance = influence_covariance(rows @ model.white, model.orders, packed)
    covariance *= 1 - _SHRINK + _SHRINK * np.eye(len(covariance))
    scale = np.concatenate([model.scale[t] for t in model.orders])
    # data and model come weighted by `scale`: undo that, then whiten by the covariance
    root = linalg.cholesky(covariance / evidence.n, lower=True)
    whiten = linalg.solve_triangular(root, np.diag(1 / scale), lower=True)
    better = levenberg_marquardt(_Weighted(model, whiten), fit.x, whiten @ data, iterations=100)
    fixed = _Fixed.of(model, better.x)
    refit = levenberg_marquardt(fixed, fixed.start(better.x), data, iterations=100)
    return Minimum(fixed.map @ refit.x, refit.value)


@dataclass(frozen=True)
class _Weighted:
    """A model seen through a linear map of its rows."""

    model: JointModel
    whiten: Array

    def predict(self, x: Array) -> Array:
        return self.whiten @ self.model.predict(x)

    def linearise(self, x: Array) -> tuple[Array, Array]:
        value, slope = self.model.linearise(x)
        return self.whiten @ value, self.whiten @ slope


@dataclass(frozen=True)
class _Fixed:
    """A model whose loadings may only change by C -> C M: transformations are fixed, parameters x = map @ u."""

    model: JointModel
    map: Array

    @classmethod
    def of(cls, model: JointModel, x: Array) -> _Fixed:
        parts = []
        for (q, t), part in model.slices.items():
            r = model.ranks[q]
            parts.append(np.kron(x[part].reshape(-1, r), np.eye(r)) if t == 1 else np.eye(part.stop - part.start))
        return cls(model, linalg.block_diag(*parts))

    def start(self, x: Array) -> Array:
        """u with map @ u = x: identities for the loadings."""
        parts = []
        for (q, t), part in self.model.slices.items():
            parts.append(np.eye(self.model.ranks[q]).ravel() if t == 1 else x[part])
        return np.concatenate(parts)

    def predict(self, u: Array) -> Array:
        return self.model.predict(self.map @ u)

    def linearise(self, u: Array) -> tuple[Array, Array]:
        value, slope = self.model.linearise(self.map @ u)
        return value, slope @ self.map
