"""RCA of any number of views behind one call: data in, a :class:`SetSolution` out.

    second moments -> white views -> moments of the white columns -> which sets (settle) -> loadings of all components
    (joint fit, or the paper's algorithms) -> transformations, covariances, predictors and cumulants in the user's units

Rows of groups, and rows that are counted several times, are not independent. The weights of the joint fit know it: the noise of
the cumulants is measured between blocks, and what belongs together is in one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import Component, CumulantSource
from richcomponents.components.covariance import gaussian_score
from richcomponents.components.data import AffineMap, Data
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError, WeakIdentificationWarning, warn_user
from richcomponents.general.discover import SetTest, discover_sets
from richcomponents.general.evidence import SetEvidence, home
from richcomponents.general.model import Parameters, by_view
from richcomponents.general.recipes import PatternRecipes
from richcomponents.general.refine import fit_joint, refit
from richcomponents.general.start import covariances_identified, least_squares_covariances
from richcomponents.general.white import WhiteViews
from richcomponents.moments import Moments
from richcomponents.moments.parallel import one_blas_thread
from richcomponents.paper.find_linear import (
    Linear,
    SetPaperRecipes,
    Transforms,
    cumulant_terms,
    evaluate,
    find_linear,
    require_dimensions,
)
from richcomponents.paper.mixing import truncated_pinv
from richcomponents.storage import storable

__all__ = ["SetProblem", "SetSolution", "by_subset", "component_name", "is_contrastive", "settle", "solve_sets"]

_MIN_ROWS, _MIN_BLOCKS = 40, 10
_BLOCKED = 4  # highest order of the cumulants that are kept by block
_WEAK = 0.2  # relative standard error of a transformation above which a warning is due (Gaussian parts: .2 to .5)


def component_name(subset: Subset) -> str:
    """How a component is called in reports: S{a, b}."""
    return "S{" + ", ".join(subset) + "}"


def is_contrastive(system: SetSystem, method: str, gauge: Mapping[Any, str] | None) -> bool:
    """Whether contrastive RCA solves it: two views with all three subsets."""
    return len(system.views) == 2 and len(system) == 3 and method == "efficient" and not gauge


def by_subset(given: Mapping[Any, Any] | None, name: str, system: SetSystem) -> dict[Subset, Any]:
    """What a user gave for some subsets as `name`=, under the subsets in view order."""
    out = {}
    for key, value in (given or {}).items():
        wanted = (key,) if isinstance(key, str) else tuple(key)
        subset = tuple(view for view in system.views if view in wanted)
        if len(subset) < len(wanted) or subset not in system:
            raise DataError(f"{name}= names {key!r}, which is not one of the sets {', '.join(map(str, system))}")
        out[subset] = value
    return out


def solve_sets(data: Data, place: Mapping[str, slice], describe: Callable[[int], str], **options: Any) -> SetSolution:
    """Settle the set system and solve it; arguments as in :func:`settle`."""
    return settle(data, place, describe, **options).solve()


def settle(
    data: Data,
    place: Mapping[str, slice],
    describe: Callable[[int], str],
    *,
    sets: SetSystem,
    gauge: Mapping[Any, str] | None = None,
    ranks: Mapping[Any, int] | None = None,
    method: str = "efficient",
    order: int = 4,
    discover: bool = False,
    alpha: float = 0.01,
    random_state: int | None = 0,
) -> SetProblem:
    """What is to be solved: the set system asked for or, with discover, what the data support of it.

    data : columns of all views side by side, {view: its columns} in `place`; describe(column) names one in errors;
    gauge, ranks : as the user gave them, for some sets; order : highest of the cumulants, above four for the components only.
    """
    homes, given = by_subset(gauge, "gauge", sets), by_subset(ranks, "rank", sets)
    for q, view in homes.items():
        if view not in q:
            raise DataError(f"gauge={{{q!r}: {view!r}}}: the gauge of a component is one of its own views")
    homes = {q: homes.get(q, q[0]) for q in [*sets, *((view,) for view in sets.views)]}
    second = data.moments(2)
    blocks = int(np.sum(second.block_sizes > 0))
    if second.n < _MIN_ROWS or blocks < _MIN_BLOCKS:
        raise DataError(
            f"{second.n} samples in {blocks} blocks are too few: cumulants of order three and four need at least "
            f"{_MIN_ROWS} samples in {_MIN_BLOCKS} blocks (or groups)"
        )
    # the paper's method works on the columns as they are
    white = WhiteViews.of(second.covariance(unbiased=False), place, describe, whiten=method == "efficient")
    map = AffineMap(second.mean, white.into)
    evidence = SetEvidence(white.columns, data.moments(min(order, _BLOCKED), map), min(order, _BLOCKED))
    system, verdicts = sets, None
    if discover:
        with one_blas_thread():
            system, verdicts = discover_sets(evidence, sets, homes, alpha, random_state)
    homes = {q: homes[q] for q in system}
    full = {q: len(white.columns[homes[q]]) for q in system}
    for q, rank in given.items():
        if q in system and not 1 <= rank <= full[q]:
            raise DataError(
                f"rank={{{q!r}: {rank!r}}} must lie between 1 and {full[q]}, the independent columns of {homes[q]!r}"
            )
    ranks = {q: int(given.get(q, full[q])) for q in system}
    return SetProblem(data, map, white, evidence, system, homes, ranks, method, order, verdicts, random_state)


@dataclass(frozen=True)
class SetProblem:
    """A set system, its gauges and ranks, and the evidence in white coordinates; verdicts : of discovery, None without."""

    data: Data
    map: AffineMap
    white: WhiteViews
    evidence: SetEvidence
    system: SetSystem
    gauge: Mapping[Subset, str]
    ranks: Mapping[Subset, int]
    method: str
    order: int
    verdicts: Mapping[Subset, SetTest] | None
    random_state: int | None

    def solve(self) -> SetSolution:
        """Transformations and covariances of all components; warns where the data say little about them."""
        evidence, system = self.evidence, self.system
        require_dimensions(system, evidence.columns, self.gauge)
        high = self.data.moments(self.order, self.map) if self.order > _BLOCKED else None
        parameters, errors = None, None
        if self.method == "paper":
            state = evidence.state if high is None else high
            system, parts = _by_paper(evidence, state, system, self.gauge, self.order)
            self._warn_of_absent([q for q in self.system.order if q not in system])
        else:
            system.require_order(evidence.order)
            with one_blas_thread():  # many small products: threads cost more than they give
                fit = fit_joint(
                    evidence, system, self.ranks, self.gauge, sample=self._sample, random_state=self.random_state
                )
            parameters, errors = fit.parameters, fit.errors
            _warn_of_weak(errors)
            parts = _by_loadings(evidence, system, self.gauge, parameters)
        self._warn_of_covariances(system, parts[0])
        source = CumulantSource(evidence.state, high=high)
        return SetSolution(
            system,
            self.gauge,
            self.ranks,
            self.order,
            self.white,
            source,
            *parts,
            parameters=parameters,
            relative_errors=errors,
            verdicts=self.verdicts,
            moved=np.zeros(len(self.map.centre)),
        )

    def _sample(self, step: int) -> Array | None:
        """Rows whose influence on the cumulants is a weight: also those of groups, as blocks say how much they depend."""
        return self.data.sample(self.map, step, grouped=True)

    def _warn_of_absent(self, absent: Sequence[Subset]) -> None:
        if absent:
            warn_user(
                f"cumulants of order {self.order} vanish for {', '.join(map(str, absent))}: left out as absent; a "
                "Gaussian component (or a symmetric one, at odd orders) looks the same",
                WeakIdentificationWarning,
            )

    def _warn_of_covariances(self, system: SetSystem, transforms: Transforms) -> None:
        columns = self.white.columns
        full = all(self.ranks[q] == len(columns[self.gauge[q]]) for q in system)
        if full and not covariances_identified(system, columns, transforms):
            warn_user(
                "second moments do not determine the covariances of all components of this set system: those reported are one "
                "of many solutions (their cumulants of higher order are determined). Drop sets, or add columns to the views",
                WeakIdentificationWarning,
            )


def _warn_of_weak(errors: Mapping[tuple[str, Subset], float]) -> None:
    weak = {key: error for key, error in errors.items() if error > _WEAK}
    if weak:
        listed = ", ".join(
            f"A({view}, {q}) (relative error {error:.0%} or more)" for (view, q), error in list(weak.items())[:4]
        )
        warn_user(
            f"the data say little about {listed}{' and others' if len(weak) > 4 else ''}: such a component is nearly "
            "Gaussian, small, or not there. Drop its set (discover=True tests it), or use more samples",
            WeakIdentificationWarning,
        )


Parts = tuple[Transforms, dict[Subset, Array], Array]
"""Transformations, covariances of the components and of all columns, in white coordinates."""


def _by_loadings(
    evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], parameters: Parameters
) -> Parts:
    """From loadings on factors to transformations from the gauge view: A(i) = C_i C_g^+, Cov(S) = C_g C_g'."""
    transforms: Transforms = {}
    covariances = {}
    total = np.zeros((evidence.p, evidence.p))
    for q in system.order:
        C = parameters.loadings[q]
        parts = by_view(C, q, evidence.columns)
        own = parts[gauge[q]]
        inverse = truncated_pinv(own, None)
        for view in q:
            transforms[view, q] = parts[view] @ inverse
        covariances[q] = own @ own.T
        if C.shape[1] == len(own):
            transforms[gauge[q], q] = np.eye(C.shape[1])
        columns = home(evidence.columns, q)
        total[np.ix_(columns, columns)] += C @ C.T
    return transforms, covariances, total


def _by_paper(
    evidence: SetEvidence, state: Moments, system: SetSystem, gauge: Mapping[Subset, str], order: int
) -> tuple[SetSystem, Parts]:
    """The system without absent components, and the paper's transformations; covariances by its recursion or, where no pair of
    views isolates a component, by least squares on all cross-covariances. Not projected: they need not be positive."""
    linear: Linear = find_linear(Cumulants(state), evidence.columns, system, order=order, gauge=gauge)
    for gone in linear.absent:
        system = system.without(gone)
    if not len(system):
        raise DataError(
            "every cumulant of the chosen order vanishes: the data look Gaussian, or symmetric with an odd order"
        )
    transforms, covariances = linear.transforms, {}
    if system.L > 2:
        covariances = least_squares_covariances(
            np.eye(evidence.p), evidence.correlation, system, evidence.columns, transforms
        )
    else:
        for q in system.order:
            K = evaluate(evidence.cumulants, evidence.columns, cumulant_terms(system, transforms, gauge, q, 2))
            covariances[q] = (K + K.T) / 2
    return system, (transforms, covariances, evidence.correlation)


@storable
@dataclass(frozen=True)
class SetSolution:
    """Everything about the fitted components; white coordinates inside, the user's outside.

    system, gauge, ranks : members, the view each is written in, and its dimension; white : the views in white columns;
    source : of cumulants of the white columns; white_transforms : {(view, Q): (white columns of the view, of the gauge view)};
    covariances : {Q: white}; total : (white, white), the covariance of all white columns that predictors divide by;
    parameters : of the joint fit; relative_errors : {(view, Q): approximate standard error of A over its size}, none of large
    problems (both None for the paper's method); verdicts : of discovery, None without;
    moved : (p,), by how much the means of the columns differ from those of the whole sample (replicates).
    """

    system: SetSystem
    gauge: Mapping[Subset, str]
    ranks: Mapping[Subset, int]
    order: int
    white: WhiteViews
    source: CumulantSource
    white_transforms: Transforms
    covariances: Mapping[Subset, Array]
    total: Array
    parameters: Parameters | None
    relative_errors: Mapping[tuple[str, Subset], float] | None
    verdicts: Mapping[Subset, SetTest] | None
    moved: Array

    @property
    def keys(self) -> tuple[Subset, ...]:
        """What the components are called."""
        return self.system.members

    @property
    def state(self) -> Moments:
        """Of the white columns, by block."""
        return self.source.moments

    @property
    def n(self) -> int:
        return self.state.n

    @property
    def blocks(self) -> list[int]:
        """Statistical blocks that hold rows."""
        return self.source.blocks

    # ---- in the user's units

    def transform(self, view: str, key: Subset) -> Array:
        """A(view, Q), (columns of the view, columns of the gauge view); the identity at the gauge view."""
        home = self.white.frames[self.gauge[key]]
        if view == self.gauge[key]:
            return np.eye(len(home.outer))
        return np.asarray(self.white.frames[view].outer @ self.white_transforms[view, key] @ home.inner)

    def transforms(self) -> dict[tuple[str, Subset], Array]:
        """{(view, Q): A}."""
        return {key: self.transform(*key) for key in self.white_transforms}

    def covariance(self, key: Subset) -> Array:
        """Of a component, in the columns of its gauge view."""
        outer = self.white.frames[self.gauge[key]].outer
        return np.asarray(outer @ self.covariances[key] @ outer.T)

    def variance_shares(self) -> dict[tuple[str, Subset], float]:
        """{(view, Q): variance of A S_Q over the variance of the view, summed over its columns}."""
        out = {}
        for (view, q), A in self.white_transforms.items():
            part = self.white.frames[view].outer @ A
            out[view, q] = float(np.trace(part @ self.covariances[q] @ part.T)) / self.white.totals[view]
        return out

    def components(self, means: Array, names: Sequence[str]) -> dict[Subset, Component]:
        """means : (p,), of the columns of all views (those of this replicate: plus `moved`); names : of these columns."""
        own = self._means(means)
        loadings = {q: self._loading(q) for q in self.keys}
        out = {}
        for q in self.keys:
            shown = (self.system, self.white_transforms, self.gauge, q, self.white.columns)
            lift = self.white.frames[self.gauge[q]].outer.T
            recipes = (
                SetPaperRecipes(*shown, lift)
                if self.parameters is None
                else PatternRecipes(*shown, loadings, self.total, lift)
            )
            columns = tuple(names[self.white.place[self.gauge[q]]])
            out[q] = Component(component_name(q), columns, own[q], self.covariance(q), self.source, recipes)
        return out

    def _means(self, means: Array) -> dict[Subset, Array]:
        """Shared components have mean zero and a view's own component takes the rest; where a view has none of its own, the
        smallest means (in white units) that add up to the view's. Only such sums are identified."""
        shared = [q for q in self.system.order if len(q) > 1]
        homeless = [view for view in self.white.columns if (view,) not in self.system]
        white = {q: np.zeros(len(self.white.columns[self.gauge[q]])) for q in shared}
        if homeless and shared:
            rows = home(self.white.columns, homeless)
            stack = np.hstack([self._loading(q)[rows] for q in shared])
            solution = np.linalg.lstsq(stack, (means @ self.white.into)[rows], rcond=None)[0]
            ends = np.cumsum([len(white[q]) for q in shared])
            white = dict(zip(shared, np.split(solution, ends[:-1]), strict=True))
        out = {q: self.white.frames[self.gauge[q]].outer @ mean for q, mean in white.items()}
        for view, part in self.white.place.items():
            if (view,) in self.system:
                out[view,] = means[part] - sum(self.transform(view, q) @ out[q] for q in shared if view in q)
        return out

    def _loading(self, key: Subset) -> Array:
        """(white columns, those of the gauge view): the transformations one below the other, zero where Q does not live."""
        out = np.zeros((len(self.total), len(self.white.columns[self.gauge[key]])))
        for view in key:
            out[self.white.columns[view]] = self.white_transforms[view, key]
        return out

    # ---- rows: (n, p), the columns of all views, centred

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.total, hermitian=True, rcond=1e-10), dtype=np.float64)

    def predict(self, key: Subset, rows: Array) -> tuple[Array, Array]:
        """BLUP of the centred component, (n, d), and its error covariance (d, d): Cov(S, z) Cov(z)^-1 z."""
        outer, K, loading = self.white.frames[self.gauge[key]].outer, self.covariances[key], self._loading(key)
        weights = self._inverse @ loading @ K
        error = K - K @ loading.T @ weights
        return np.asarray(rows @ self.white.into @ weights @ outer.T), np.asarray(outer @ error @ outer.T)

    def outside(self, key: Subset) -> IntArray:
        """Columns, of all views side by side, of the views in which the component does not live."""
        columns = {view: np.arange(part.start, part.stop) for view, part in self.white.place.items()}
        return home(columns, [view for view in columns if view not in key])

    def residual(self, key: Subset, rows: Array) -> Array:
        """What is left of the gauge view's columns after least squares on the views outside of the component, (n, d)."""
        gauge = self.gauge[key]
        others = home(self.white.columns, [view for view in self.white.columns if view not in key])
        C = self.state.covariance(unbiased=False)
        slope = (
            np.linalg.pinv(C[np.ix_(others, others)], hermitian=True, rcond=1e-10)
            @ C[others][:, self.white.columns[gauge]]
        )
        predicted = rows @ self.white.into[:, others] @ slope @ self.white.frames[gauge].outer.T
        return np.asarray(rows[:, self.white.place[gauge]] - predicted)

    def score(self, rows: Array) -> float:
        """Mean Gaussian log-density of the rows under the fitted covariance of all columns, in nats."""
        return gaussian_score(self.white.back.T @ self.total @ self.white.back, rows)

    # ---- replicates

    def without(self, block: int) -> SetSolution:
        """Refitted without one block, from the state alone, in the white coordinates of the whole."""
        state = self.state.without([block])
        evidence = SetEvidence(self.white.columns, state, min(self.order, _BLOCKED))
        system, parameters = self.system, self.parameters
        if parameters is None:
            if self.order > _BLOCKED:
                raise DataError("cumulants of order five and six are not kept by block: no jackknife; use order=4")
            system, parts = _by_paper(evidence, state, system, self.gauge, self.order)
        else:
            with one_blas_thread():
                parameters = refit(evidence, system, self.ranks, parameters)
            parts = _by_loadings(evidence, system, self.gauge, parameters)
        transforms, covariances, total = parts
        return replace(
            self,
            system=system,
            source=CumulantSource(state),
            white_transforms=transforms,
            covariances=covariances,
            total=total,
            parameters=parameters,
            moved=state.mean @ self.white.back,
        )
