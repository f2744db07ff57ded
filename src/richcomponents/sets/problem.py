"""RCA of any number of views, from data to a :class:`SetSolution`; and the paper's method in its place.

    second moments -> white views -> which sets, and their ranks -> moments of the white columns -> loadings of all
    components (joint fit, or the paper's algorithms) -> transformations and covariances in white columns (solve)

Rows of groups, and rows that are counted several times, are not independent. The weights of the joint fit know it: the noise of
the cumulants is measured between blocks, and what belongs together is in one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread, symmetric
from richcomponents.components.component import CumulantSource, Term
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import Factored, SearchSpace, Spread, centred_rows, triangular
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError, WeakIdentificationWarning, warn_user
from richcomponents.inference.verdicts import Verdict
from richcomponents.learning.coefficients import Coefficients
from richcomponents.learning.outcome import Outcome
from richcomponents.moments import Moments
from richcomponents.moments.data import AffineMap, RowData
from richcomponents.moments.kernel import MAX_ORDER
from richcomponents.pair.solution import MIN_BLOCKS, MIN_ROWS
from richcomponents.pair.views import LEVEL
from richcomponents.paper.general import cumulant_terms, evaluate, linear_of_cumulants, require_dimensions
from richcomponents.paper.solution import coefficients_of
from richcomponents.sets.discover import choose_ranks, discover_sets, most_directions
from richcomponents.sets.evidence import Known, SetEvidence, Structure, WhiteViews, columns_of, pair_ranks
from richcomponents.sets.model import fit_joint, least_squares_covariances, misfit
from richcomponents.sets.solution import SetFit, SetSolution, component_name
from richcomponents.storage import storable

USUAL = 4  # order of the cumulants that are fitted, unless sets cannot be told apart without more


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


def named_transformations(A: Mapping[Any, object] | None, sets: SetSystem) -> list[tuple[str, Subset, object]]:
    """(view, Q, what was given) of known transformations A = {(view, subset): array}."""
    out = []
    for key, value in (A or {}).items():
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], str):
            raise DataError(f"A= takes {{(view, subset): array}}, such as ('b', ('a', 'b')), got the key {key!r}")
        view, (q,) = key[0], by_subset({key[1]: None}, "A", sets)
        if view not in q:
            raise DataError(
                f"A= names view {view!r} for {component_name(q)}, which lives in {', '.join(map(repr, q))} only"
            )
        out.append((view, q, value))
    return out


class SetProblem:
    """What is to be solved: the sets asked for or, with discover, those that the data support; their gauges and ranks.

    Views that were reduced, and all where samples are fewer than products of two columns, are compared in the directions that
    they share with the others beyond chance: a joint fit of many columns of few rows would be mostly noise, and slow. What is
    not shared is the view's own. Elsewhere such directions serve tests only.

    space, place : the columns that are looked at, and {view: its columns}, the user's; describe(column) names one of these in
    errors; sets, gauge, ranks, A : as the user gave them, the last three for some sets; order : of cumulants, above four for
    the components only, unless sets cannot be told apart without; independent : how many rows the samples are worth.
    """

    def __init__(
        self,
        space: SearchSpace,
        place: Mapping[str, slice],
        describe: Callable[[int], str],
        *,
        sets: SetSystem,
        gauge: Mapping[Any, str] | None = None,
        ranks: Mapping[Any, int] | None = None,
        method: str = "efficient",
        order: int = USUAL,
        discover: bool = False,
        alpha: float = 0.01,
        random_state: int | None = 0,
        independent: float | None = None,
        A: Mapping[Any, object] | None = None,
    ) -> None:
        self.space, self.place, self.efficient, self.order = space, place, method == "efficient", order
        self.random_state = random_state
        homes, given = by_subset(gauge, "gauge", sets), by_subset(ranks, "rank", sets)
        for q, view in homes.items():
            if view not in q:
                raise DataError(f"gauge={{{q!r}: {view!r}}}: the gauge of a component is one of its own views")
        second = space.data.moments(2)
        blocks = int(np.sum(second.block_sizes > 0))
        if second.n < MIN_ROWS or blocks < MIN_BLOCKS:
            raise DataError(
                f"{second.n} samples in {blocks} blocks are too few: cumulants of order three and four need at least "
                f"{MIN_ROWS} samples in {MIN_BLOCKS} blocks (or groups)"
            )
        self.independent = float(second.n - space.data.lost) if independent is None else independent
        least = {view: max((rank for q, rank in given.items() if view in q), default=1) for view in place}
        correlation = self._look(second, describe, least)
        columns = self.white.columns
        homes = {q: homes.get(q) or _gauge(q, sets, columns) for q in [*sets, *((view,) for view in sets.views)]}
        full = {q: len(columns[view]) for q, view in homes.items()}
        for q, rank in given.items():
            if not 1 <= rank <= full[q]:
                raise DataError(
                    f"rank={{{q!r}: {rank!r}}} must lie between 1 and {full[q]}, the independent columns of {homes[q]!r}"
                )
        known = _known_transformations(named_transformations(A, sets), homes, self.white, self.reduced)
        self.system, self.verdicts, chosen = sets, None, dict[Subset, int]()
        if self.efficient:
            level = alpha / max(sum(len(q) > 1 for q in sets), 1)
            pairs = pair_ranks(correlation, columns, self.independent, level)
            shared = self.white.shared(correlation, self.independent, level)
            into = self.map.matrix @ linalg.block_diag(*(frame.to.T for frame in shared.values()))

            def evidence(highest: int = min(order, USUAL)) -> SetEvidence:
                """Cumulants of the directions that each view shares with the others."""
                return SetEvidence(columns_of(shared), space.data.moments(highest, AffineMap(self.map.centre, into)))

            with one_blas_thread():
                if discover:
                    found = discover_sets(evidence(), sets, alpha, random_state, given, pairs, evidence)
                    self.system, self.verdicts = found
                    self.order = min(max(order, self.system.L + 1), MAX_ORDER)
                self.system.require_order(self.order)
                widths = {view: (len(frame.to), len(frame.back)) for view, frame in shared.items()}
                chosen = choose_ranks(evidence, self.system, pairs, given, widths, random_state)
        if self.verdicts is not None:
            self.verdicts = {q: replace(test, rank=chosen.get(q, test.rank)) for q, test in self.verdicts.items()}
        ranks = {q: min(int(given.get(q) or chosen.get(q) or full[q]), full[q]) for q in self.system}
        self.spare = {q: full[q] - ranks[q] for q in self.system if q in chosen and q not in given}
        known = {key: value for key, value in known.items() if key[1] in self.system}
        self.structure = Structure(self.system, {q: homes[q] for q in self.system}, ranks, known)

    def _look(self, second: Moments, describe: Callable[[int], str], least: Mapping[str, int]) -> Array:
        """Decide which white columns are looked at: `white`, of the columns of `space`; `map`, to them; `reduced`, the views of
        which they are not all. Their correlations. least : so many directions of a view at least."""
        space, C = self.space, second.covariance(unbiased=False)
        own = columns_of(space.frames)
        place = {view: slice(int(columns[0]), int(columns[-1]) + 1) for view, columns in own.items()}
        narrow = {view for view, frame in space.frames.items() if len(frame.to) < len(frame.back)}
        self.white = WhiteViews.of(C, place, whiten=self.efficient)
        if self.efficient and isinstance(space.data, RowData):
            few = self.place if second.n < len(C) ** 2 else narrow
            shared = self.white.shared(self.white.correlation(C), self.independent, LEVEL, {v: least[v] for v in few})
            self.white = self.white.narrowed({view: shared[view] for view in few})
            narrow |= {view for view in few if len(shared[view].to) < len(shared[view].back)}
        self.map, self.reduced = AffineMap(second.mean, self.white.into), tuple(v for v in self.place if v in narrow)
        correlation = self.white.correlation(C)

        def principal(column: int) -> str:
            return f"a principal component of view {next(v for v, part in place.items() if column < part.stop)!r}"

        if self.efficient:
            describe = describe if space.rows is None else principal
            self.white.check_independent(correlation, C.diagonal(), describe)
        return correlation

    def solve(self) -> SetSolution:
        """Transformations and covariances of all components."""
        data, space = self.space.data, self.space
        # orders five and six of the joint fit cost precision where sets can be told apart without
        fitted = self.order if not self.efficient or self.system.L >= USUAL else min(self.order, USUAL)
        evidence = SetEvidence(self.white.columns, data.moments(fitted, self.map))
        high = data.moments(self.order, self.map, pooled=True) if self.order > fitted else None
        white, mean, beyond = self.white, np.array(self.map.centre), dict[str, Factored]()
        if self.reduced and isinstance(data, RowData):
            rows, mean = space.rows, mean if space.mean is None else space.mean
            rows = centred_rows(data, len(mean))[1] if rows is None else rows
            frames = {view: space.frames[view].then(frame) for view, frame in white.frames.items()}
            totals = {view: float(np.sum(rows[:, part] ** 2)) / len(rows) for view, part in self.place.items()}
            white = WhiteViews(self.place, frames, totals)
            for view in self.reduced:
                back = frames[view].back
                beyond[view] = Factored.of(triangular(rows[:, self.place[view]])).plus(back.T, -np.eye(back.shape[1]))
        fit, errors = (self._fit if self.efficient else self._by_paper)(evidence)
        rows_worth = self.independent, space.units, space.grouped
        source, solution = CumulantSource(evidence.state, high=high), SetSolution if self.efficient else PaperSets
        return solution(fit, white, source, self.verdicts, mean, beyond, *rows_worth, *errors)

    def _fit(self, evidence: SetEvidence) -> tuple[SetFit, tuple[Any, ...]]:
        """The joint fit, its errors and its test. Where covariances between views contradict it, and a component of both views
        has a rank that tests chose, it gets a direction more, smaller sets first."""
        structure, spare = self.structure, dict(self.spare)
        rows = partial(self.space.data.counted_sample, self.map)
        while True:
            with one_blas_thread():  # many small products: threads cost more than they give
                parameters, *errors = fit_joint(evidence, structure, rows, self.random_state)
            views, test = misfit(evidence, parameters.loadings)
            more = [q for q in sorted(spare, key=len) if set(views) <= set(q) and spare[q] > 0]
            if test.finding != Verdict.CONTRADICTED or not more:
                return SetFit.by_loadings(evidence, structure, parameters), (*errors, test)
            structure = replace(structure, ranks={**structure.ranks, more[0]: structure.ranks[more[0]] + 1})
            spare[more[0]] -= 1

    def _by_paper(self, evidence: SetEvidence) -> tuple[SetFit, tuple[Any, ...]]:
        """Says which components the paper's rule sets to zero, which it should not invert, and whose covariances, which are
        differences, are negative."""
        require_dimensions(self.system, evidence.columns, self.structure.gauge)
        left_out = [Cumulants(evidence.state.without([b])) for b in np.flatnonzero(evidence.state.block_sizes).tolist()]
        fit, absent, blurred = PaperSets.fit(evidence, self.structure, left_out)
        negative = [q for q, C in fit.covariances.items() if np.diag(C).min() < 0]
        for words, sets in zip(_PAPER_WARNINGS, (absent, blurred, negative), strict=True):
            if sets:
                shown = ", ".join(map(component_name, sets))
                warn_user(words.format(shown, order=self.order), WeakIdentificationWarning)
        return fit, ()


def _known_transformations(
    given: Sequence[tuple[str, Subset, object]], gauge: Mapping[Subset, str], white: WhiteViews, reduced: Sequence[str]
) -> Known:
    """{(view, Q): A in white columns} of what the user knows, checked. reduced : views that are compared in few directions."""
    out = {}
    for view, q, value in given:
        title = f"the known transformation of {component_name(q)} in view {view!r}"
        if view == gauge[q]:
            others = [v for v in q if v != view]
            hint = f", or write it in another view, gauge={{{q!r}: {others[0]!r}}}" if others else ""
            raise DataError(
                f"{title} is the identity: the component is written in the columns of this view. Leave it out{hint}"
            )
        if reduced:
            raise DataError(
                f"{title} cannot be used: views are compared in few directions, because they have too many columns for their "
                "samples. Use fewer columns or more samples"
            )
        shape = len(white.frames[view].back), len(white.frames[gauge[q]].back)
        matrix = np.array(value, dtype=np.float64)
        if matrix.shape != shape:
            raise DataError(
                f"{title} must have shape {shape}, one row per column of the view and one column per column of view "
                f"{gauge[q]!r}, in which the component is written; got {matrix.shape}"
            )
        if not np.isfinite(matrix).all():
            raise DataError(f"{title} holds missing or infinite values")
        if not matrix.any():
            raise DataError(f"{title} is zero: leave {view!r} out of the set instead (sets=)")
        out[view, q] = white.frames[view].to @ matrix @ white.frames[gauge[q]].back
    return out


def _gauge(q: Subset, sets: SetSystem, columns: Mapping[str, IntArray]) -> str:
    """The first view, or the narrowest one that shows all directions that the component can have where the first has fewer
    columns, or more."""
    width = {view: len(columns[view]) for view in q}
    most = most_directions(sets, q, width) if q in sets else width[q[0]]
    return q[0] if width[q[0]] == most else min(q, key=lambda view: (width[view] < most, width[view]))


# ---- the paper's method

_PAPER_WARNINGS = (
    "method='paper' sets {} to zero: its cumulants of order {order} are no larger than noise. A Gaussian component "
    "(or a symmetric one, at odd orders) looks the same",
    "some directions of {} are no larger than noise in cumulants of order {order}, and method='paper' divides by "
    "them: its transformations are unreliable. Use more samples, or method='efficient', which also fits components of few "
    "directions",
    "method='paper' gives negative variances to {}: such a component is small, or the samples are too few for "
    "differences of cumulants. Drop its set, or use method='efficient'",
)


@storable
@dataclass(frozen=True)
class PaperSets(SetSolution):
    """FindLinear and ComputeCumulant in the place of the joint fit: nothing is weighed against a simple prediction."""

    @staticmethod
    def fit(
        evidence: SetEvidence, structure: Structure, without: Sequence[Cumulants] = ()
    ) -> tuple[SetFit, tuple[Subset, ...], tuple[Subset, ...]]:
        """Without absent components, which are named, and those of which noise hides some directions. Covariances, which need
        not be positive, by the paper's recursion or, where no pair of views isolates a component, by least squares on all
        cross-covariances. without : the cumulants without each block."""
        given: dict[str, Any] = {"order": evidence.order, "gauge": structure.gauge, "known": structure.known}
        found = linear_of_cumulants(evidence.cumulants, evidence.columns, structure.system, without=without, **given)
        if not len(found.system):
            raise DataError(
                "every cumulant of the chosen order vanishes: the data look Gaussian, or symmetric with an odd order"
            )
        total = evidence.correlation
        if found.system.L > 2:
            covariances = least_squares_covariances(np.eye(evidence.p), total, evidence.columns, found.transforms)
        else:
            terms = cumulant_terms(found.system, found.transforms, structure.gauge, evidence.columns)
            covariances = {q: symmetric(evaluate(evidence.cumulants, terms[q], 2)) for q in found.system.order}
        there = replace(structure, system=found.system)
        return SetFit(evidence.columns, there, found.transforms, covariances, total), found.absent, found.blurred

    def _refit(self, evidence: SetEvidence) -> SetFit:
        return self.fit(evidence, self.fitted.structure)[0]

    def _white_terms(self) -> dict[Subset, list[tuple[Term, ...]]]:
        terms = cumulant_terms(self.system, self.fitted.transforms, self.gauge, self.white.columns)
        return {q: [each] for q, each in terms.items()}

    def calibrate(self, key: Subset, outcome: Outcome) -> Coefficients:
        """Section 4.1."""
        return coefficients_of(self, key, outcome, self.white.place[self.gauge[key]], shared=len(key) > 1)

    def covariance_for_directions(self, key: Subset, k: int) -> tuple[Spread, float]:
        return self.covariance(key), 1.0
