"""A solved general model in the user's units: transformations, covariances, predictors of values, recipes of cumulants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component, CumulantSource, Term, Terms
from richcomponents.components.frame import Frame
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.errors import DataError
from richcomponents.general.evidence import Evidence
from richcomponents.general.refine import Parameters
from richcomponents.general.start import least_squares_covariances
from richcomponents.general.terms import pattern_terms
from richcomponents.paper.contrastive import truncated_pinv
from richcomponents.paper.general import Linear, Transforms, cumulant_terms, evaluate, loading
from richcomponents.storage import storable

__all__ = ["SetSolution", "component_name", "solve_joint", "solve_paper"]


def component_name(subset: Subset) -> str:
    """How a component is called in reports: S{a, b}."""
    return "S{" + ", ".join(subset) + "}"


@storable
@dataclass(frozen=True)
class SetSolution:
    """Everything about the fitted components; white coordinates inside, the user's outside.

    system, gauge : members and the view each is written in; frames : {view: Frame}; columns : {view: white columns};
    transforms : {(view, Q): (white columns of the view, of the gauge view)}; covariances : {Q: white};
    total : (p, p), the covariance of all white columns that predictors divide by; source, terms : for cumulants.
    """

    system: SetSystem
    gauge: Mapping[Subset, str]
    frames: Mapping[str, Frame]
    columns: Mapping[str, IntArray]
    transforms: Transforms
    covariances: Mapping[Subset, Array]
    total: Array
    source: CumulantSource
    terms: Mapping[Subset, Terms]

    # ---- in the user's units

    def transform(self, view: str, subset: Subset) -> Array:
        """A(view, Q), (columns of the view, columns of the gauge view); the identity at the gauge view."""
        home = self.frames[self.gauge[subset]]
        if view == self.gauge[subset]:
            return np.eye(len(home.outer))
        return np.asarray(self.frames[view].outer @ self.transforms[view, subset] @ home.inner)

    def covariance(self, subset: Subset) -> Array:
        outer = self.frames[self.gauge[subset]].outer
        return np.asarray(outer @ self.covariances[subset] @ outer.T)

    def variance_shares(self, totals: Mapping[str, float]) -> dict[tuple[str, Subset], float]:
        """{(view, Q): variance of A S_Q over the variance of the view, summed over its columns}."""
        out = {}
        for (view, q), A in self.transforms.items():
            part = self.frames[view].outer @ A
            share = float(np.trace(part @ self.covariances[q] @ part.T))
            out[view, q] = share / totals[view] if totals[view] > 0 else 0.0
        return out

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.total, hermitian=True, rcond=1e-10), dtype=np.float64)

    def loading(self, subset: Subset) -> Array:
        """(p, white columns of the gauge view): how the component enters all white columns."""
        return loading(self.transforms, self.columns, self.gauge[subset], subset)

    def predict(self, subset: Subset, z: Array) -> tuple[Array, Array]:
        """BLUP of the centred component from centred white rows (n, p): values (n, d), and its error covariance (d, d)."""
        outer = self.frames[self.gauge[subset]].outer
        K = self.covariances[subset]
        weights = self._inverse @ self.loading(subset) @ K  # Cov(z)^-1 Cov(z, S)
        error = K - K @ self.loading(subset).T @ weights
        return np.asarray(z @ weights @ outer.T), np.asarray(outer @ error @ outer.T)

    def white_rows(self, centred: Mapping[str, Array]) -> Array:
        """White columns (n, p) of centred views."""
        return np.hstack([centred[view] @ self.frames[view].inner.T for view in self.columns])

    def means(self, of_views: Mapping[str, Array]) -> dict[Subset, Array]:
        """Shared components have mean zero and a view's own component takes the rest; where a view has none of its own, the
        smallest means (in white units) that add up to the view's. Only such sums are identified."""
        shared = [q for q in self.system.order if len(q) > 1]
        white = {view: self.frames[view].inner @ of_views[view] for view in self.columns}
        homeless = [view for view in self.columns if (view,) not in self.system]
        means = {q: np.zeros(len(self.columns[self.gauge[q]])) for q in self.system.order}
        if homeless and shared:
            rows = np.concatenate([self.columns[view] for view in homeless])
            stack = np.hstack([self.loading(q)[rows] for q in shared])
            solution = np.linalg.lstsq(stack, np.concatenate([white[view] for view in homeless]), rcond=None)[0]
            ends = np.cumsum([0, *(len(means[q]) for q in shared)])
            means.update({q: solution[ends[i] : ends[i + 1]] for i, q in enumerate(shared)})
        out = {q: self.frames[self.gauge[q]].outer @ mean for q, mean in means.items()}
        for view in self.columns:
            if (view,) in self.system:
                rest = of_views[view] - sum(
                    (self.transform(view, q) @ out[q] for q in shared if view in q), np.zeros_like(of_views[view])
                )
                out[view,] = rest
        return out

    def components(
        self, of_views: Mapping[str, Array], names: Mapping[str, tuple[str, ...]]
    ) -> dict[Subset, Component]:
        means = self.means(of_views)
        return {
            q: Component(
                component_name(q), names[self.gauge[q]], means[q], self.covariance(q), self.source, self.terms[q]
            )
            for q in self.system.members
        }


def solve_joint(
    evidence: Evidence,
    system: SetSystem,
    gauge: Mapping[Subset, str],
    frames: Mapping[str, Frame],
    parameters: Parameters,
    source: CumulantSource,
) -> SetSolution:
    """From loadings on factors to transformations from the gauge view: A(i) = C_i C_g^+, Cov(S) = C_g C_g'."""
    transforms: Transforms = {}
    covariances = {}
    total = np.zeros((evidence.p, evidence.p))
    for q in system.order:
        C, start = parameters.loadings[q], 0
        parts = {}
        for view in q:
            parts[view] = C[start : start + len(evidence.columns[view])]
            start += len(parts[view])
        inverse = truncated_pinv(parts[gauge[q]], None)
        for view in q:
            transforms[view, q] = parts[view] @ inverse
        covariances[q] = parts[gauge[q]] @ parts[gauge[q]].T
        if C.shape[1] == len(parts[gauge[q]]):
            transforms[gauge[q], q] = np.eye(C.shape[1])
        home = np.concatenate([evidence.columns[view] for view in q])
        total[np.ix_(home, home)] += C @ C.T
    loadings = {q: loading(transforms, evidence.columns, gauge[q], q) for q in system.order}
    lifts = {q: frames[gauge[q]].outer.T for q in system.order}
    terms = pattern_terms(system, transforms, evidence.columns, loadings, total, gauge, lifts)
    return SetSolution(system, gauge, frames, evidence.columns, transforms, covariances, total, source, terms)


def solve_paper(
    evidence: Evidence,
    system: SetSystem,
    gauge: Mapping[Subset, str],
    frames: Mapping[str, Frame],
    linear: Linear,
    source: CumulantSource,
) -> SetSolution:
    """The paper's transformations; covariances by its recursion or, where no pair of views isolates a component, by least
    squares on all cross-covariances. Not projected: they need not be positive."""
    for gone in linear.absent:
        system = system.without(gone)
    if not len(system):
        raise DataError(
            "every cumulant of the chosen order vanishes: the data look Gaussian, or symmetric with an odd order"
        )
    white = cumulant_terms(system, linear.transforms, gauge, evidence.columns)
    if system.L > 2:
        covariances = least_squares_covariances(
            np.eye(evidence.p), evidence.correlation, system, evidence.columns, linear.transforms
        )
    else:
        covariances = {q: _symmetric(evaluate(evidence.cumulants, white[q], 2)) for q in system.order}
    terms = {q: Terms(((Term(1.0, (), frames[gauge[q]].outer.T, white[q]),),)) for q in system.order}
    return SetSolution(
        system, gauge, frames, evidence.columns, linear.transforms, covariances, evidence.correlation, source, terms
    )


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
