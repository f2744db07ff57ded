"""RCA of any number of views, from data to a :class:`SetSolution`.

    second moments -> white views -> which sets, and their ranks -> moments of the white columns -> loadings of all
    components (joint fit, or the paper's algorithms) -> transformations and covariances in white columns (solve)

Rows of groups, and rows that are counted several times, are not independent. The weights of the joint fit know it: the noise of
the cumulants is measured between blocks, and what belongs together is in one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread
from richcomponents.components.component import CumulantSource
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import Factored, SearchSpace, centred_rows, triangular
from richcomponents.cumulants import Cumulants
from richcomponents.errors import DataError, WeakIdentificationWarning, warn_user
from richcomponents.inference.verdicts import Test, Verdict
from richcomponents.moments import Moments
from richcomponents.moments.data import AffineMap, RowData
from richcomponents.moments.kernel import MAX_ORDER
from richcomponents.pair.solution import MIN_BLOCKS, MIN_ROWS
from richcomponents.paper.general import Linear, linear_of_cumulants, require_dimensions
from richcomponents.sets.discover import choose_ranks, discover_sets, most_directions
from richcomponents.sets.evidence import SetEvidence, WhiteViews, columns_of, pair_ranks
from richcomponents.sets.refine import JointFit, fit_joint, misfit
from richcomponents.sets.solution import SetFit, SetSolution, component_name

_SHARED = 0.01  # level of the test of how many directions a view shares
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
    they share with the others, canonical ones beyond chance: a joint fit of many columns of few rows would be mostly noise, and
    slow. What is not shared is the view's own. Elsewhere such directions serve tests only.

    space, place : the columns that are looked at, and {view: its columns}, those of the user; describe(column) names one of the
    user's in errors; sets, gauge, ranks, A : as the user gave them, the last three for some sets; order : highest of the
    cumulants, above four for the components only, unless sets cannot be told apart without; with discover it is as high as the
    sets that are there take; independent : how many independent rows the samples are worth, all by default.
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
        self.space, self.place, self.method, self.order, self.random_state = space, place, method, order, random_state
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
        known = _known_transformations(A, sets, homes, place, self.white, reduced=bool(self.reduced))
        self.system, self.verdicts, chosen = sets, None, dict[Subset, int]()
        if method == "efficient":
            level = alpha / max(sum(len(q) > 1 for q in sets), 1)
            pairs = pair_ranks(correlation, columns, self.independent, level)
            shared = self.white.shared(correlation, self.independent, level)
            own = columns_of(shared)

            def evidence(highest: int = min(order, USUAL)) -> SetEvidence:
                """Cumulants of the directions that each view shares with the others."""
                into = self.map.matrix @ linalg.block_diag(*(frame.to.T for frame in shared.values()))
                return SetEvidence(own, space.data.moments(highest, AffineMap(self.map.centre, into)), highest)

            with one_blas_thread():
                if discover:
                    self.system, self.verdicts = discover_sets(
                        evidence(), sets, alpha, random_state, given, pairs, evidence
                    )
                    self.order = min(max(order, self.system.L + 1), MAX_ORDER)
                self.system.require_order(self.order)
                widths = {view: (len(frame.to), len(frame.back)) for view, frame in shared.items()}
                chosen = choose_ranks(evidence, self.system, pairs, given, widths, random_state)
        if self.verdicts is not None:
            self.verdicts = {q: replace(one, rank=chosen.get(q, one.rank)) for q, one in self.verdicts.items()}
        self.gauge = {q: homes[q] for q in self.system}
        self.ranks = {q: min(int(given.get(q) or chosen.get(q) or full[q]), full[q]) for q in self.system}
        self.spare = {q: full[q] - self.ranks[q] for q in self.system if q in chosen and q not in given}
        self.known = {key: value for key, value in known.items() if key[1] in self.system}

    def _look(self, second: Moments, describe: Callable[[int], str], least: Mapping[str, int]) -> Array:
        """Decide which white columns are looked at: `white`, of the columns of `space`; `map`, to them; `reduced`, the views of
        which they are not all. Their correlations. least : so many directions of a view at least."""
        space, C = self.space, second.covariance(unbiased=False)
        ends = np.cumsum([0, *(len(frame.to) for frame in space.frames.values())])
        place = {view: slice(int(ends[i]), int(ends[i + 1])) for i, view in enumerate(space.frames)}
        narrow = {view for view, frame in space.frames.items() if len(frame.to) < len(frame.back)}
        self.white = WhiteViews.of(C, place, whiten=self.method == "efficient")
        if self.method == "efficient" and isinstance(space.data, RowData):
            few = self.place if second.n < len(C) ** 2 else narrow
            shared = self.white.shared(self.white.correlation(C), self.independent, _SHARED, {v: least[v] for v in few})
            self.white = self.white.narrowed({view: shared[view] for view in few})
            narrow |= {view for view in few if len(shared[view].to) < len(shared[view].back)}
        self.map, self.reduced = AffineMap(second.mean, self.white.into), tuple(v for v in self.place if v in narrow)
        correlation = self.white.correlation(C)
        if self.method == "efficient":
            self.white.check_independent(
                correlation,
                C.diagonal(),
                describe
                if space.rows is None
                else lambda column: f"a principal component of view {_at(place, column)!r}",
            )
        return correlation

    def solve(self) -> SetSolution:
        """Transformations and covariances of all components."""
        data = self.space.data
        # orders five and six of the joint fit cost precision where sets can be told apart without
        fitted = self.order if self.method == "paper" or self.system.L >= USUAL else min(self.order, USUAL)
        evidence = SetEvidence(self.white.columns, data.moments(fitted, self.map), fitted)
        high = data.moments(self.order, self.map, pooled=True) if self.order > fitted else None
        ranks: Mapping[Subset, int] = self.ranks
        fit = test = None
        if self.method == "paper":
            found = self._by_paper(evidence)
        else:
            fit, ranks, test = self._fit(evidence)
            found = SetFit.by_loadings(evidence, self.system, self.gauge, fit.parameters, self.known)
        white, mean, beyond = self.white, np.array(self.map.centre), dict[str, Factored]()
        if self.reduced and isinstance(data, RowData):
            rows, mean = self.space.rows, mean if self.space.mean is None else self.space.mean
            rows = centred_rows(data, len(mean))[1] if rows is None else rows
            totals = {view: float(np.sum(rows[:, part] ** 2)) / len(rows) for view, part in self.place.items()}
            white = white.composed(self.space.frames, self.place, totals)
            for view in self.reduced:
                back = white.frames[view].back
                beyond[view] = Factored.of(triangular(rows[:, self.place[view]])).plus(back.T, -np.eye(back.shape[1]))
        return SetSolution(
            found,
            self.gauge,
            ranks,
            white,
            CumulantSource(evidence.state, high=high),
            relative_errors=None if fit is None else fit.errors,
            covariance_errors=None if fit is None else fit.covariance_errors,
            verdicts=self.verdicts,
            mean=mean,
            beyond=beyond,
            independent_rows=self.independent,
            units=self.space.units,
            grouped=self.space.grouped,
            known=self.known,
            misfit=test,
        )

    def _fit(self, evidence: SetEvidence) -> tuple[JointFit, Mapping[Subset, int], Test]:
        """The joint fit, and ranks: where covariances between views contradict it, and a component of both views has a rank
        that tests chose, it gets a direction more, smaller sets first."""
        ranks, spare = dict(self.ranks), dict(self.spare)
        rows = partial(self.space.data.counted_sample, self.map)
        while True:
            with one_blas_thread():  # many small products: threads cost more than they give
                fit = fit_joint(
                    evidence,
                    self.system,
                    ranks,
                    self.gauge,
                    sample=rows,
                    random_state=self.random_state,
                    known=self.known,
                )
            views, test = misfit(evidence, self.system, fit.parameters.loadings)
            more = [q for q in sorted(spare, key=len) if set(views) <= set(q) and spare[q] > 0]
            if test.finding != Verdict.CONTRADICTED or not more:
                return fit, ranks, test
            ranks[more[0]], spare[more[0]] = ranks[more[0]] + 1, spare[more[0]] - 1

    def _by_paper(self, evidence: SetEvidence) -> SetFit:
        require_dimensions(self.system, evidence.columns, self.gauge)
        state = evidence.state
        left_out = [Cumulants(state.without([b])) for b in np.flatnonzero(state.block_sizes).tolist()]
        given: dict[str, Any] = {"order": evidence.order, "gauge": self.gauge, "known": self.known}
        linear = linear_of_cumulants(evidence.cumulants, evidence.columns, self.system, without=left_out, **given)
        found = SetFit.by_paper(evidence, self.system, self.gauge, linear)
        self._warn_of_paper(linear, found)
        return found

    def _warn_of_paper(self, linear: Linear, found: SetFit) -> None:
        """Say which components the paper's rule sets to zero, which it should not invert, and whose covariances, which are
        differences, are negative."""
        negative = [q for q, C in found.covariances.items() if np.diag(C).min() < 0]
        for sets, words in (
            (
                linear.absent,
                f"method='paper' sets {{}} to zero: its cumulants of order {self.order} are no larger than noise. A Gaussian "
                "component (or a symmetric one, at odd orders) looks the same",
            ),
            (
                linear.blurred,
                f"some directions of {{}} are no larger than noise in cumulants of order {self.order}, and method='paper' "
                "divides by them: its transformations are unreliable. Use more samples, or method='efficient', which also fits "
                "components of few directions",
            ),
            (
                negative,
                "method='paper' gives negative variances to {}: such a component is small, or the samples are too few for "
                "differences of cumulants. Drop its set, or use method='efficient'",
            ),
        ):
            if sets:
                warn_user(words.replace("{}", ", ".join(map(component_name, sets))), WeakIdentificationWarning)


def _known_transformations(
    A: Mapping[Any, object] | None,
    sets: SetSystem,
    gauge: Mapping[Subset, str],
    place: Mapping[str, slice],
    white: WhiteViews,
    *,
    reduced: bool,
) -> dict[tuple[str, Subset], Array]:
    """{(view, Q): A in white columns} of what the user knows, checked."""
    out = {}
    for view, q, value in named_transformations(A, sets):
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
        shape = tuple(place[v].stop - place[v].start for v in (view, gauge[q]))
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


def _at(place: Mapping[str, slice], column: int) -> str:
    return next(view for view, part in place.items() if column < part.stop)
