"""RCA of any number of views behind one call: data in, a :class:`SetSolution` out.

    second moments -> white views -> moments of the white columns -> which sets (settle) -> loadings of all components
    (joint fit, or the paper's algorithms) -> transformations, covariances, predictors and cumulants in the user's units

Rows of groups, and rows that are counted several times, are not independent. The weights of the joint fit know it: the noise of
the cumulants is measured between blocks, and what belongs together is in one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread, power, symmetric
from richcomponents.components.component import (
    Component,
    CumulantSource,
    Term,
    Terms,
)
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import (
    Factored,
    LinearMap,
    SearchSpace,
    Spread,
    added,
    check_entries,
    gaussian_score,
    inverse_factor,
    triangular,
)
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError, SpecificationWarning, WeakIdentificationWarning, warn_user
from richcomponents.general.discover import (
    SetTest,
    choose_ranks,
    discover_sets,
    most_directions,
)
from richcomponents.general.evidence import (
    SetEvidence,
    WhiteViews,
    home,
    pair_ranks,
    shared_frame,
)
from richcomponents.general.model import Known, Parameters, by_view, pattern_terms, ties_of
from richcomponents.general.refine import (
    JointFit,
    contradicted,
    covariances_identified,
    covariances_misfit,
    fit_joint,
    implied_covariance,
    least_squares_covariances,
    refit,
)
from richcomponents.learning.coefficients import (
    LEAST_KEPT,
    SHARES,
    Coefficients,
    between,
    check_determined,
    least_risk,
    on_prediction,
    residual_map,
    simple_map,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.moments import Moments
from richcomponents.moments.data import AffineMap, Data
from richcomponents.moments.kernel import MAX_ORDER
from richcomponents.paper.contrastive import truncated_pinv
from richcomponents.paper.general import (
    Linear,
    Transforms,
    cumulant_terms,
    evaluate,
    find_linear,
    loading,
    require_dimensions,
)
from richcomponents.paper.solution import coefficients_of
from richcomponents.storage import storable
from richcomponents.text import p_value

_MIN_ROWS, _MIN_BLOCKS = 40, 10
_USUAL = 4  # order of the cumulants that are fitted, unless sets cannot be told apart without more
_WEAK = 0.2  # relative standard error of a transformation above which a warning is due (Gaussian parts: .2 to .5)
_FAR = 10.0  # standard errors of a view's mean, by which known means may miss it (transformations have errors, too)


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


def settle(
    space: SearchSpace,
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
    independent: float | None = None,
    A: Mapping[Any, object] | None = None,
) -> SetProblem:
    """What is to be solved: the set system asked for or, with discover, what the data support of it.

    space : columns of all views side by side, or principal components of wide ones; place : {view: its columns}, those of the
    user; describe(column) names one of them in errors;
    gauge, ranks : as the user gave them, for some sets; order : highest of the cumulants, above four for the components only,
    unless sets cannot be told apart without; with discover it is as high as what was found takes;
    independent : how many independent rows the samples are worth, all of them by default;
    A : {(view, subset): known transformation}, as the user gave them.
    """
    homes, given = by_subset(gauge, "gauge", sets), by_subset(ranks, "rank", sets)
    for q, view in homes.items():
        if view not in q:
            raise DataError(f"gauge={{{q!r}: {view!r}}}: the gauge of a component is one of its own views")
    data, second = space.data, space.data.moments(2)
    blocks = int(np.sum(second.block_sizes > 0))
    if second.n < _MIN_ROWS or blocks < _MIN_BLOCKS:
        raise DataError(
            f"{second.n} samples in {blocks} blocks are too few: cumulants of order three and four need at least "
            f"{_MIN_ROWS} samples in {_MIN_BLOCKS} blocks (or groups)"
        )
    # the paper's method works on the columns as they are
    inner = _inner_places(space)
    white = WhiteViews.of(
        second.covariance(unbiased=False),
        inner,
        describe if space.rows is None else lambda column: _of_view(column, inner),
        whiten=method == "efficient",
    )
    homes = {q: homes.get(q) or _gauge(q, sets, white) for q in [*sets, *((view,) for view in sets.views)]}
    for q, rank in given.items():
        most = len(white.columns[homes[q]])
        if not 1 <= rank <= most:
            raise DataError(
                f"rank={{{q!r}: {rank!r}}} must lie between 1 and {most}, the independent columns of {homes[q]!r}"
            )
    known = _known_transformations(A, sets, homes, place, white, reduced=space.rows is not None)
    map = AffineMap(second.mean, white.into)
    system, verdicts = sets, None
    worth = float(second.n - data.lost) if independent is None else independent
    chosen = {}
    if method == "efficient":
        level = alpha / max(sum(len(q) > 1 for q in sets), 1)
        correlation = white.into.T @ second.covariance(unbiased=False) @ white.into
        pairs = pair_ranks(correlation, white.columns, worth, level)
        frames = {view: shared_frame(correlation, own, worth, level) for view, own in white.columns.items()}
        evidence = partial(_shared_evidence, data, map, frames)
        with one_blas_thread():
            if discover:
                usual = evidence(min(order, _USUAL))
                system, verdicts = discover_sets(usual, sets, alpha, random_state, given, pairs, evidence)
                order = min(max(order, system.L + 1), MAX_ORDER)
            system.require_order(order)
            widths = {view: (len(frame.to), len(frame.back)) for view, frame in frames.items()}
            chosen = choose_ranks(
                partial(evidence, min(order, _USUAL)), system, pairs, given, widths, random_state, evidence
            )
        if verdicts is not None:
            verdicts = {q: replace(test, rank=chosen.get(q, test.rank)) for q, test in verdicts.items()}
    homes = {q: homes[q] for q in system}
    full = {q: len(white.columns[homes[q]]) for q in system}
    ranks = {q: min(int(given.get(q) or chosen.get(q) or full[q]), full[q]) for q in system}
    known = {key: value for key, value in known.items() if key[1] in system}
    spare = {q: full[q] - ranks[q] for q in system if q in chosen and q not in given}
    return SetProblem(
        space, place, map, white, system, homes, ranks, method, order, verdicts, random_state, worth, known, spare
    )


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


def _shared_evidence(data: Data, map: AffineMap, frames: Mapping[str, LinearMap], order: int) -> SetEvidence:
    """Cumulants of the directions that each view shares with the others."""
    ends = np.cumsum([0, *(len(frame.to) for frame in frames.values())])
    columns = {view: np.arange(ends[i], ends[i + 1], dtype=np.int64) for i, view in enumerate(frames)}
    into = map.matrix @ linalg.block_diag(*(frame.to.T for frame in frames.values()))
    return SetEvidence(columns, data.moments(order, AffineMap(map.centre, into)), order)


def _gauge(q: Subset, sets: SetSystem, white: WhiteViews) -> str:
    """The first view, or the narrowest one that shows all directions that the component can have where the first has fewer
    columns, or more."""
    width = {view: len(white.columns[view]) for view in q}
    most = most_directions(sets, q, width) if q in sets else width[q[0]]
    return q[0] if width[q[0]] == most else min(q, key=lambda view: (width[view] < most, width[view]))


def _inner_places(space: SearchSpace) -> dict[str, slice]:
    """{view: its columns among those that are looked at}."""
    ends = np.cumsum([0, *(len(frame.to) for frame in space.frames.values())])
    return {view: slice(int(ends[i]), int(ends[i + 1])) for i, view in enumerate(space.frames)}


def _of_view(column: int, place: Mapping[str, slice]) -> str:
    view = next(view for view, part in place.items() if column < part.stop)
    return f"a principal component of view {view!r}"


@dataclass(frozen=True)
class SetProblem:
    """A set system, its gauges and ranks, and where the evidence comes from; verdicts : of discovery, None without;
    independent : how many independent rows the samples are worth."""

    space: SearchSpace
    place: Mapping[str, slice]
    map: AffineMap
    white: WhiteViews
    system: SetSystem
    gauge: Mapping[Subset, str]
    ranks: Mapping[Subset, int]
    method: str
    order: int
    verdicts: Mapping[Subset, SetTest] | None
    random_state: int | None
    independent: float
    known: Known
    spare: Mapping[Subset, int]  # directions that components could have beyond those that tests found

    def solve(self) -> SetSolution:
        """Transformations and covariances of all components; warns where the data say little about them."""
        system, data = self.system, self.space.data
        # orders five and six of the joint fit cost precision where sets can be told apart without
        fitted = self.order if self.method == "paper" or system.L >= _USUAL else min(self.order, _USUAL)
        evidence = SetEvidence(self.white.columns, data.moments(fitted, self.map), fitted)
        high = data.moments(self.order, self.map, pooled=True) if self.order > fitted else None
        parameters, errors, of_covariances = None, None, None
        ranks, misfit = self.ranks, dict[tuple[str, str], float]()
        if self.method == "paper":
            require_dimensions(system, evidence.columns, self.gauge)
            state = evidence.state
            left_out = [Cumulants(state.without([b])) for b in np.flatnonzero(state.block_sizes).tolist()]
            given: dict[str, Any] = {"order": evidence.order, "gauge": self.gauge, "known": self.known}
            linear = find_linear(evidence.cumulants, evidence.columns, system, without=left_out, **given)
            system, parts = _by_paper(evidence, system, self.gauge, linear)
            self._warn_of_noise(linear)
            _warn_of_negative(parts[1])
        else:
            fit, ranks, misfit = self._fit(evidence)
            parameters, errors, of_covariances = fit.parameters, fit.errors, fit.covariance_errors
            _warn_of_weak(errors, tested=self.verdicts is not None)
            if words := misfit_words(misfit, tested=self.verdicts is not None):
                warn_user(words, SpecificationWarning)
            parts = _by_loadings(evidence, system, self.gauge, parameters, self.known)
        self._warn_of_covariances(system, parts[0])
        white, beyond = self._in_users_columns()
        return SetSolution(
            system,
            self.gauge,
            ranks,
            self.order,
            white,
            CumulantSource(evidence.state, high=high),
            *parts,
            parameters=parameters,
            relative_errors=errors,
            verdicts=self.verdicts,
            mean=np.array(self.map.centre) if self.space.mean is None else self.space.mean,
            beyond=beyond,
            independent=self.independent,
            units=self.space.units,
            grouped=self.space.grouped,
            covariance_errors=of_covariances,
            known=self.known,
            misfit=misfit,
        )

    def _fit(self, evidence: SetEvidence) -> tuple[JointFit, Mapping[Subset, int], dict[tuple[str, str], float]]:
        """The joint fit, ranks and what covariances between views say against it: where they contradict it, and a component of
        both views has a rank that tests found, it gets a direction more, smaller sets first."""
        ranks, spare = dict(self.ranks), dict(self.spare)
        while True:
            with one_blas_thread():  # many small products: threads cost more than they give
                fit = fit_joint(
                    evidence,
                    self.system,
                    ranks,
                    self.gauge,
                    sample=partial(self.space.data.counted_sample, self.map),
                    random_state=self.random_state,
                    known=self.known,
                )
            misfit = covariances_misfit(evidence, self.system, fit.parameters.loadings)
            views = contradicted(misfit)
            more = [q for q in sorted(spare, key=len) if views is not None and set(views) <= set(q) and spare[q] > 0]
            if not more:
                return fit, ranks, misfit
            ranks[more[0]], spare[more[0]] = ranks[more[0]] + 1, spare[more[0]] - 1

    def _in_users_columns(self) -> tuple[WhiteViews, dict[str, Factored]]:
        """White coordinates from the user's columns, and what wide views have outside of those that were looked at."""
        rows = self.space.rows
        if rows is None:
            return self.white, {}
        totals = {view: float(np.sum(rows[:, part] ** 2)) / len(rows) for view, part in self.place.items()}
        C, inner = self.space.data.moments(2).covariance(unbiased=False), _inner_places(self.space)
        beyond = {}
        for view, frame in self.space.frames.items():
            if len(frame.to) < len(frame.back):
                whole = Factored.of(triangular(rows[:, self.place[view]]))
                beyond[view] = whole.plus(frame.back.T, -C[inner[view], inner[view]])
        return self.white.composed(self.space.frames, self.place, totals), beyond

    def _warn_of_noise(self, linear: Linear) -> None:
        """Say which components the paper's rule sets to zero, and which it should not invert."""
        if linear.absent:
            named = ", ".join(map(component_name, linear.absent))
            warn_user(
                f"method='paper' sets {named} to zero: its cumulants of order {self.order} are no larger than noise. "
                "A Gaussian component (or a symmetric one, at odd orders) looks the same",
                WeakIdentificationWarning,
            )
        if linear.blurred:
            named = ", ".join(map(component_name, linear.blurred))
            warn_user(
                f"some directions of {named} are no larger than noise in cumulants of order {self.order}, and method='paper' "
                "divides by them: its transformations are unreliable. Use more samples, or method='efficient', which also fits "
                "components of few directions",
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


def misfit_words(misfit: Mapping[tuple[str, str], float], *, tested: bool) -> str:
    """What contradicts the model, and what may be wrong; empty where nothing does. tested : whether discovery chose it."""
    views = contradicted(misfit)
    if views is None:
        return ""
    return (
        f"the model fails: covariances of view {views[0]!r} with view {views[1]!r} are not those of these sets and ranks "
        f"({p_value(misfit[views])}). A set is missing{'' if tested else ' (discover=True looks for it)'}, a rank is too "
        "small, a transformation that was given is wrong, or components are not independent"
    )


def _warn_of_negative(covariances: Mapping[Subset, Array]) -> None:
    """The paper's covariances are differences."""
    wrong = [q for q, C in covariances.items() if np.diag(C).min() < 0]
    if wrong:
        named = ", ".join(map(component_name, wrong))
        warn_user(
            f"method='paper' gives negative variances to {named}: such a component is small, or the samples are too few for "
            "differences of cumulants. Drop its set, or use method='efficient'",
            WeakIdentificationWarning,
        )


def _warn_of_weak(errors: Mapping[tuple[str, Subset], float], *, tested: bool) -> None:
    """tested : whether discovery kept these components."""
    weak = {key: error for key, error in errors.items() if error > _WEAK}
    if weak:
        listed = ", ".join(
            f"A({view}, {q}) (relative error {error:.0%} or more)" for (view, q), error in list(weak.items())[:4]
        )
        warn_user(
            f"the data say little about {listed}{' and others' if len(weak) > 4 else ''}: such a component is nearly "
            f"Gaussian, small, or not there. Drop its set ({'sets=' if tested else 'discover=True tests it'}), or use more "
            "samples",
            WeakIdentificationWarning,
        )


Parts = tuple[Transforms, dict[Subset, Array], Array]
"""Transformations, covariances of the components and of all columns, in white coordinates."""


@dataclass(frozen=True)
class Fitted:
    """What was fitted, to all blocks or to all but one: fields as in SetSolution."""

    system: SetSystem
    transforms: Transforms
    covariances: Mapping[Subset, Array]
    total: Array
    parameters: Parameters | None


_LEAST_LEFT = 0.5  # of a fitted own covariance, in any direction, where the others leave less of the view


def _inverse_of(total: Array) -> Array:
    return np.asarray(np.linalg.pinv(total, hermitian=True, rcond=1e-10), dtype=np.float64)


def _by_loadings(
    evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], parameters: Parameters, known: Known
) -> Parts:
    """From loadings on factors to transformations from the gauge view: A(i) = C_i C_g^+ (those that are known as they are),
    Cov(S) = C_g C_g'.

    A view's own part is what the others leave of it, Cov(view) - sum C_i C_i', so that the parts of a view add up to it; but
    at least half of C_g C_g' in any direction. C_g C_g' is no better where the model fits, and too small where more is shared
    than the ranks say: with 569 samples of three times ten columns the parts added up to 60% of a view.
    """
    transforms: Transforms = {}
    covariances = {}
    for q in system.order:
        C = parameters.loadings[q]
        parts = by_view(C, q, evidence.columns)
        own = parts[gauge[q]]
        inverse = truncated_pinv(own, None)
        for view in q:
            transforms[view, q] = known.get((view, q), parts[view] @ inverse)
        covariances[q] = own @ own.T
        if C.shape[1] == len(own):
            transforms[gauge[q], q] = np.eye(C.shape[1])
    total = implied_covariance(evidence, system, parameters.loadings)
    for q in system.order:
        if len(q) == 1 and parameters.loadings[q].shape[1] == len(covariances[q]):
            inside = np.ix_(evidence.columns[q[0]], evidence.columns[q[0]])
            root = power(covariances[q], 0.5, 0.0)
            back = np.linalg.pinv(root, hermitian=True, rcond=1e-9)
            rest = evidence.correlation[inside] - total[inside] + covariances[q]
            left = root @ power(symmetric(back @ rest @ back), 1.0, _LEAST_LEFT) @ root
            total[inside] += left - covariances[q]
            covariances[q] = left
    return transforms, covariances, total


def _by_paper(
    evidence: SetEvidence, system: SetSystem, gauge: Mapping[Subset, str], linear: Linear
) -> tuple[SetSystem, Parts]:
    """The system without absent components, and the paper's transformations; covariances by its recursion or, where no pair of
    views isolates a component, by least squares on all cross-covariances. Not projected: they need not be positive."""
    for gone in linear.absent:
        system = system.without(gone)
    if not len(system):
        raise DataError(
            "every cumulant of the chosen order vanishes: the data look Gaussian, or symmetric with an odd order"
        )
    transforms = linear.transforms
    if system.L > 2:
        covariances = least_squares_covariances(
            np.eye(evidence.p), evidence.correlation, system, evidence.columns, transforms
        )
    else:
        terms = cumulant_terms(system, transforms, gauge, evidence.columns)
        covariances = {q: symmetric(evaluate(evidence.cumulants, terms[q], 2)) for q in system.order}
    return system, (transforms, covariances, evidence.correlation)


@storable
@dataclass(frozen=True)
class SetSolution:
    """Everything about the fitted components; white coordinates inside, the user's outside.

    system, gauge, ranks : members, the view each is written in, and its dimension; white : the views in white columns;
    source : of cumulants of the white columns; white_transforms : {(view, Q): (white columns of the view, of the gauge view)};
    covariances : {Q: white}; total : (white, white), the covariance of all white columns that predictors divide by;
    parameters : of the joint fit; relative_errors : {(view, Q): approximate standard error of A over its size}, none of large
    problems, and covariance_errors : {Q: that of Cov(S_Q)} (None for the paper's method); verdicts : of discovery, None
    without; mean : (p,), of the user's columns; beyond : {view: what it has outside of the columns that were looked at, its
    own}, of wide views; independent : how many independent rows the samples are worth; units : different rows, where they are
    few, and grouped : whether rows belong to groups; known : {(view, Q): white}, transformations that were given; misfit :
    {(view, view): p value of their covariances under the model}, see :func:`covariances_misfit`.
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
    mean: Array
    beyond: Mapping[str, Factored]
    independent: float
    units: int | None
    grouped: bool
    covariance_errors: Mapping[Subset, float] | None = None
    known: Known = field(default_factory=dict)
    misfit: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[Subset, ...]:
        """What the components are called."""
        return self.system.members

    @property
    def reduced_views(self) -> tuple[str, ...]:
        """Wide views, of which few directions were looked at."""
        return tuple(self.beyond)

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
            return np.eye(len(home.back))
        return np.asarray(self.white.frames[view].back @ self.white_transforms[view, key] @ home.to)

    def transforms(self) -> dict[tuple[str, Subset], Array]:
        """{(view, Q): A}."""
        for view, q in self.white_transforms:
            sizes = (len(self.white.frames[name].back) for name in (view, self.gauge[q]))
            check_entries(f"the transformation of {q} in view {view!r}", (next(sizes), next(sizes)))
        return {key: self.transform(*key) for key in self.white_transforms}

    def covariance(self, key: Subset) -> Spread:
        """Of a component, in the columns of its gauge view."""
        own = self._lifted(key, self.covariances[key])
        (view, *more), outside = key, self.beyond
        if more or view not in outside:
            return own
        assert isinstance(own, Factored)
        return added(outside[view], own.lift.T, own.core)

    def _lifted(self, key: Subset, core: Array) -> Spread:
        """A covariance of white columns of the gauge view in the user's; as factors for a wide view."""
        view = self.gauge[key]
        outer = self.white.frames[view].back
        if view in self.beyond:
            return Factored(np.zeros((0, len(outer))), outer.T, symmetric(core))
        return np.asarray(outer @ core @ outer.T)

    def variance_shares(self) -> dict[tuple[str, Subset], float]:
        """{(view, Q): variance of A S_Q over the variance of the view, summed over its columns}."""
        return {
            (view, q): float(own.sum()) / self.white.totals[view] for (view, q), own in self.own_variances().items()
        }

    @cached_property
    def _terms(self) -> dict[Subset, Terms]:
        """How the cumulants of every component are read off the white columns."""
        lifts = {q: self.white.frames[self.gauge[q]].back.T for q in self.keys}
        if self.parameters is not None:
            loadings = {q: self._loading(q) for q in self.system.order}
            return pattern_terms(
                self.system, self.white_transforms, self.white.columns, loadings, self.total, self.gauge, lifts
            )
        white = cumulant_terms(self.system, self.white_transforms, self.gauge, self.white.columns)
        return {q: Terms(((Term(1.0, (), lifts[q], white[q]),),)) for q in self.keys}

    def component(
        self, key: Subset, names: Sequence[str], title: str, given: Mapping[Subset, object] | None = None
    ) -> Component:
        """names : of the columns of all views; title : of the component; given : known means of some."""
        columns, own = tuple(names[self.white.place[self.gauge[key]]]), self._means(self.mean, given or {})[key]
        return Component(title, columns, own, self.covariance(key), self.source, self._terms[key])

    def _means(self, means: Array, given: Mapping[Subset, object]) -> dict[Subset, Array]:
        """Shared components have mean zero and a view's own component takes the rest, where nothing else is given; where a view
        has none of its own, or a given one, the smallest means (in white units) that add up to the rest of the view's. Only
        such sums are identified."""
        known = {q: self._given_mean(q, value) for q, value in given.items()}
        shared = [q for q in self.system.order if len(q) > 1]
        free = [q for q in shared if q not in known]
        fixed = [view for view in self.white.columns if (view,) not in self.system or (view,) in known]
        white = {q: np.zeros(len(self.white.columns[self.gauge[q]])) for q in shared}
        white |= {q: self.white.frames[self.gauge[q]].to @ value for q, value in known.items() if q in white}
        if fixed and free:
            left = means @ self.white.into - sum(self._loading(q) @ white[q] for q in shared)
            for view in fixed:
                if (view,) in known:
                    left[self.white.columns[view]] -= self.white.frames[view].to @ known[view,]
            rows = home(self.white.columns, fixed)
            stack = np.hstack([self._loading(q)[rows] for q in free])
            solution = np.linalg.lstsq(stack, left[rows], rcond=None)[0]
            ends = np.cumsum([len(white[q]) for q in free])
            white |= dict(zip(free, np.split(solution, ends[:-1]), strict=True))
        out = {q: self.white.frames[self.gauge[q]].back @ mean for q, mean in white.items()}
        for view, part in self.white.place.items():
            if (view,) in self.system:
                out[view,] = means[part] - sum(self.transform(view, q) @ out[q] for q in shared if view in q)
                if (view,) in known:
                    self._check_mean(view, out[view,], known[view,])
        return out

    def _check_mean(self, view: str, left: Array, given: Array) -> None:
        """Refuse a known mean of a view's own component that is far from what known means of others leave for it."""
        away = self.white.frames[view].to @ (left - given)
        if np.sqrt(np.mean(away**2) * self.independent) > _FAR:
            others = ", ".join(component_name(q) for q in self.system if view in q and len(q) > 1)
            raise DataError(
                f"the known means contradict the mean of view {view!r}: beside those of {others} it leaves "
                f"{np.array2string(left, precision=3)} for {component_name((view,))}, and mean= says "
                f"{np.array2string(given, precision=3)}. Leave out one of them"
            )

    def _given_mean(self, key: Subset, stated: object) -> Array:
        value, width = np.array(stated, dtype=np.float64), len(self.white.frames[self.gauge[key]].back)
        if value.shape != (width,) or not np.isfinite(value).all():
            raise DataError(
                f"the known mean of {component_name(key)} must be {width} finite numbers, one per column of view "
                f"{self.gauge[key]!r}, got shape {value.shape}"
            )
        return value

    def own_variances(self) -> dict[tuple[str, Subset], Array]:
        """{(view, Q): variance of each column of the view that the component carries}."""
        out = {}
        for (view, q), A in self.white_transforms.items():
            part = self.white.frames[view].back @ A
            out[view, q] = np.sum(part * (part @ self.covariances[q]), axis=1)
            if q == (view,) and view in self.beyond:
                out[view, q] = out[view, q] + self.beyond[view].diagonal()
        return out

    def _loading(self, key: Subset) -> Array:
        """(white columns, those of the gauge view): how the component enters all white columns."""
        return loading(self.white_transforms, self.white.columns, self.gauge[key], key)

    # ---- rows: (n, p), the columns of all views, centred

    @cached_property
    def _inverse(self) -> Array:
        return _inverse_of(self.total)

    def predict(self, key: Subset, rows: Array) -> tuple[Array, Spread]:
        """BLUP of the centred component, (n, d), and its error covariance (d, d): Cov(S, z) Cov(z)^-1 z. What a wide view has
        outside of the columns that were looked at is its own, and known."""
        frame, K, loads = self.white.frames[self.gauge[key]], self.covariances[key], self._loading(key)
        weights = self._inverse @ loads @ K
        predicted = rows @ self.white.into @ weights @ frame.back.T
        (view, *more), part = key, rows[:, self.white.place[self.gauge[key]]]
        if not more and view in self.beyond:
            predicted = predicted + part - part @ frame.to.T @ frame.back.T
        return np.asarray(predicted), self._lifted(key, K - K @ loads.T @ weights)

    def on_rows(self, key: Subset, rows: Array) -> tuple[Array, Terms]:
        """White columns of centred rows, and how a component's cumulants are read off them."""
        return np.asarray(rows @ self.white.into), self._terms[key]

    def outside(self, key: Subset) -> IntArray:
        """Columns, of all views side by side, of the views in which the component does not live."""
        columns = {view: np.arange(part.start, part.stop) for view, part in self.white.place.items()}
        return home(columns, [view for view in columns if view not in key])

    def on_v(self, outcome: Outcome) -> None:
        """Of many views there is not one other."""

    def facing(self, key: Subset) -> SetSolution:
        """Who answers for outcomes on a component."""
        return self

    def _partners(self, key: Subset) -> IntArray:
        """White columns of the other views where a component lives."""
        return home(self.white.columns, [view for view in key if view != self.gauge[key]])

    def _left(self, key: Subset, covariance: Array) -> Array:
        """The map from white columns, of this covariance, to what is left of the gauge view's given the views outside."""
        columns = self.white.columns
        return residual_map(covariance, columns[self.gauge[key]], home(columns, [v for v in columns if v not in key]))

    def _simply(self, key: Subset, covariance: Array) -> Array:
        """The map to the simple prediction of a component (learning/coefficients)."""
        columns, partners = self.white.columns, self._partners(key)
        outside = home(columns, [view for view in columns if view not in key])
        return simple_map(covariance, columns[self.gauge[key]], partners, outside, self.ranks[key], self.independent)

    def residual(self, key: Subset, rows: Array, beside: int | None = None) -> Array:
        """What is left of the gauge view's columns after least squares on the views outside of the component, (n, d)."""
        gauge, frame = self.gauge[key], self.white.frames[self.gauge[key]]
        left = self._left(key, self.state.covariance(unbiased=False))
        own = rows[:, self.white.place[gauge]]
        return np.asarray(own + (rows @ self.white.into @ left - own @ frame.to.T) @ frame.back.T)

    def stand_in(self, key: Subset, rows: Array, beside: int | None = None) -> Array:
        """The simple prediction of a component (learning/coefficients), (n, d)."""
        if not len(self._partners(key)):
            return self.residual(key, rows)
        simple = self._simply(key, self.state.covariance(unbiased=False))
        return np.asarray(rows @ self.white.into @ simple @ self.white.frames[self.gauge[key]].back.T)

    def score(self, rows: Array, n_blocks: int) -> float:
        """Mean Gaussian log-density of the rows under the fitted covariance of all columns, in nats."""
        return gaussian_score(self.joint(), rows)

    def joint(self) -> Spread:
        """The fitted covariance of all columns, as factors where a view is wide."""
        back = self.white.back
        if not self.beyond:
            return np.asarray(back.T @ self.total @ back)
        whole: Spread = Factored(np.zeros((0, back.shape[1])), back, self.total)
        for view, spread in self.beyond.items():
            place = np.zeros((back.shape[1], len(spread)))
            place[self.white.place[view]] = np.eye(len(spread))
            whole = added(
                added(whole, place @ spread.lift.T, spread.core), place @ spread.rows.T, np.eye(len(spread.rows))
            )
        return whole

    # ---- what learners ask

    @property
    def verdict(self) -> str:
        """ "contradicted" where covariances between views contradict it, "weak" where the data say little about some component,
        "strong" where they tell all of them, "not checked" where errors are not known (large problems, the paper's
        formulas)."""
        said = set(self.component_verdicts.values())
        if "contradicted" in said:
            return "contradicted"
        if said & {"weak", "covariance not told"}:
            return "weak"
        return "not checked" if "not checked" in said else "strong"

    @property
    def component_verdicts(self) -> dict[Subset, str]:
        """{Q: as above, or "covariance not told": its transformations are known, how much there is of it is not}. What is said
        of a component rests on what is subtracted for those of larger sets, and all of it on the sets and ranks."""
        if contradicted(self.misfit) is not None:
            return dict.fromkeys(self.keys, "contradicted")
        if self.parameters is None or not self.relative_errors or self.covariance_errors is None:
            return dict.fromkeys(self.keys, "not checked")
        out = {}
        for q in self.keys:
            below = [q, *self.system.supersets(q)]
            weak = any(
                self.relative_errors[view, r] > _WEAK for r in below for view in r if (view, r) in self.relative_errors
            )
            open_ = any(self.covariance_errors[r] > _WEAK for r in below)
            out[q] = "weak" if weak else "covariance not told" if open_ else "strong"
        return out

    def contradiction(self) -> str:
        """What contradicts the model, in words; empty where nothing does."""
        return misfit_words(self.misfit, tested=self.verdicts is not None)

    def samples_for_strong(self) -> tuple[float, Subset | None]:
        """How many times as many samples would tell every component (errors fall with their square root), and the one that asks
        for most; 1 and None where all are told, or errors are not known."""
        if self.verdict != "weak" or self.covariance_errors is None or self.relative_errors is None:
            return 1.0, None
        errors = {
            q: max(self.covariance_errors[q], *(self.relative_errors.get((view, q), 0.0) for view in q))
            for q in self.keys
        }
        worst = max(errors, key=errors.__getitem__)
        return float((errors[worst] / _WEAK) ** 2), worst

    @property
    def independent_rows(self) -> float:
        return self.independent

    def _all_columns(self, key: Subset) -> bool:
        """Whether an outcome on this component is regressed on every column of a wide view: where the component is its own."""
        return len(key) == 1 and key[0] in self.beyond

    def _wanted(self, key: Subset) -> tuple[int, int]:
        """Coefficients of least squares on the columns of the gauge view that carry the component and on the views where it
        does not live; and how many are of these."""
        view, others = self.gauge[key], sum(len(self.white.columns[v]) for v in self.white.columns if v not in key)
        wide = self._all_columns(key)
        own = int(np.sum(self.covariance(key).diagonal() > 0)) if wide else len(self.white.columns[view])
        return own + others, others

    def _determined(self, key: Subset, covariates: int) -> bool:
        """Whether there are more independent rows than coefficients, and rows of groups are no copies."""
        enough = min(self.n, self.n if self.units is None else self.units) > self._wanted(key)[0] + covariates
        if not enough or not (self._all_columns(key) and self.grouped):
            return enough
        whole = self.beyond[self.gauge[key]].rows
        return bool(inverse_factor(whole).shape[1] >= np.sum(np.any(whole != 0, axis=0)))

    def check_determined(self, key: Subset, covariates: int) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        about, (wanted, shared) = (self.gauge[key], len(self.white.frames[self.gauge[key]].back)), self._wanted(key)
        determined, reduced = self._determined(key, covariates), self._all_columns(key)
        check_determined(self, *about, wanted, shared, covariates, determined=determined, reduced=reduced)

    def calibrate(self, key: Subset, outcome: Outcome) -> Coefficients:
        """Least squares on the prediction of a component, between the simple one and that of the fit (learning/coefficients).
        The paper's has its own formula.

        On a wide view's own component it is least squares on the residual of all its columns: the few directions in which such
        views are compared are those of the largest correlations in the sample, so that what the fit leaves of them to the view
        is too little, and nothing here says by how much.
        """
        if self.parameters is None:
            return coefficients_of(self, key, outcome, self.white.place[self.gauge[key]], shared=len(key) > 1)
        if self._all_columns(key):
            return self._on_all_columns(key, outcome)
        full, K = self._prediction(key, self._fitted)
        found = on_prediction(
            np.asarray(outcome.rows @ self.white.into),
            outcome,
            self.white.frames[self.gauge[key]],
            partial(self._simply, key),
            full,
            self._predictions_without_blocks(key),
            residual=partial(self._left, key) if self.leaves_open(key) else None,
        )
        simple = "instrumental" if len(self._partners(key)) else "residualised"
        return found.coefficients(outcome, self._lifted(key, found.covariance(K)), self._wanted(key)[0], simple)

    def leaves_open(self, key: Subset) -> bool:
        """Whether the data tell no more of a component than its identified set, as far as that is rated."""
        return self.component_verdicts[key] in ("contradicted", "weak", "covariance not told")

    def interval(self, key: Subset, view: str | None = None) -> Estimate | None:
        """Of a component's covariance, or of its A in a view, where the data do not tell it; None where refitting does.

        Second moments say 0 <= Cov(S) <= Cov(R), R what is left of its view given the views where it does not live, and so much
        for every entry: (C_ab -+ sqrt(C_aa C_bb)) / 2 with C = Cov(R). A has no bounds.
        """
        if self.beyond or not self.leaves_open(key):
            return None
        if view is not None:
            free = view != self.gauge[key] and (view, key) not in self.known
            weak = self.component_verdicts[key] in ("contradicted", "weak") and free
            return Estimate.unbounded(self.transform(view, key)) if weak else None
        back = self.white.frames[self.gauge[key]].back

        def ends(state: Moments) -> Array:
            C = state.covariance(unbiased=False)
            left = self._left(key, C)
            most = back @ left.T @ C @ left @ back.T
            size = np.sqrt(np.outer(np.diag(most), np.diag(most)))
            return np.stack([(most - size) / 2, (most + size) / 2])

        (low, high), left_out = ends(self.state), np.stack([ends(self.state.without([b])) for b in self.blocks])
        errors, point = jackknife_error(left_out), np.asarray(self.covariance(key))
        nothing = np.full_like(point, np.nan)
        return Estimate(
            point, nothing, len(left_out) - 1, identified=(low, high), identified_error=(errors[0], errors[1])
        )

    def _prediction(self, key: Subset, fitted: Fitted) -> tuple[Array, Array]:
        """The best linear prediction of a component from the white columns, as a fit has it, Cov(z)^-1 L K, and K."""
        L = loading(fitted.transforms, self.white.columns, self.gauge[key], key)
        inverse = _inverse_of(fitted.total)
        K = fitted.covariances[key] if self.parameters is None else self._kept(key, L, inverse, fitted.covariances[key])
        return np.asarray(inverse @ L @ K), K

    def _predictions_without_blocks(self, key: Subset) -> list[Array] | None:
        """Refitted; None where refits do not tell: of views of which few directions were looked at."""
        if self.beyond:
            return None
        refits = [self._fitted_without(block) for block in self.blocks]
        return [self._prediction(key, one)[0] for one in refits if key in one.system]

    def _kept(self, key: Subset, loads: Array, inverse: Array, K: Array) -> Array:
        """Cov(S) = K in white columns with no direction smaller than LEAST_KEPT of what the columns could show of it, as for
        two views.

        All that z says of S is L' Sigma^-1 z, with L the loadings: S plus noise, of variance P^-1, P = L' Sigma^-1 L. The
        prediction K P (S + noise) keeps the share P^(1/2) K P^(1/2) of it. Singular values of predictions are in the user's
        units, and say nothing by themselves; shares lie between zero and one in any.
        """
        values, vectors = np.linalg.eigh(symmetric(loads.T @ inverse @ loads))
        seen = values > 1e-10 * values[-1]
        root = (vectors[:, seen] * np.sqrt(values[seen])).T
        back = vectors[:, seen] / np.sqrt(values[seen])
        shares, turned = np.linalg.eigh(symmetric(root @ K @ root.T))
        shares, turned = shares[-self.ranks[key] :], turned[:, -self.ranks[key] :]
        if shares[0] >= LEAST_KEPT:
            return K
        return symmetric(back @ (turned * np.maximum(shares, LEAST_KEPT)) @ turned.T @ back.T)

    def _on_all_columns(self, key: Subset, outcome: Outcome) -> Coefficients:
        """Coefficients Cov(R)^-1 Cov(R, y), R the residual of every column of a wide view on the directions of the others."""
        weight, counted, root = outcome.weight, float(outcome.weight.sum()), np.sqrt(outcome.weight)[:, None]
        others = home(self.white.columns, [view for view in self.white.columns if view not in key])
        columns, beside = outcome.rows[:, self.white.place[key[0]]], outcome.rows @ self.white.into[:, others]
        both = np.column_stack([columns, outcome.y])
        both = both - beside @ np.linalg.lstsq(beside * root, both * root, rcond=None)[0]
        features, target = both[:, :-1], both[:, -1]
        rows = features * root
        inverse = inverse_factor(triangular(rows) * np.sqrt(len(rows) / counted))
        coef = np.asarray(inverse @ (inverse.T @ (features.T @ (weight * target) / counted)))
        coef = coef if outcome.log_odds is None else outcome.log_odds.coef
        left, wanted = target - features @ coef, self._wanted(key)[0] + outcome.covariates
        degrees = self.independent - wanted - 1
        noise = float(weight @ left**2) / counted / degrees if degrees > 0 else np.nan
        frame, loads = self.white.frames[key[0]], self._loading(key)
        inside = np.asarray(
            np.linalg.pinv(symmetric(loads.T @ self._inverse @ loads), hermitian=True), dtype=np.float64
        )
        return Coefficients(
            coef=coef,
            residualised=coef,
            trust=0.0,
            features=features,
            outcome=outcome.y,
            covariance=added(self.beyond[key[0]], frame.back, inside),
            free=outcome.free,
            determined=self._determined(key, outcome.covariates),
            reduced=True,
            wanted=wanted,
            by=partial(_of_textbook, np.sqrt(noise * np.sum(inverse**2, axis=1)), max(round(degrees), 1)),
        )

    def covariance_for_directions(self, key: Subset, k: int) -> tuple[Spread, float]:
        """Between the covariance of the simple prediction and the fitted one, by the risk of the projector on the k leading
        directions, in the user's units (learning/coefficients). The paper's, and those of wide views, are taken as they are."""
        if self.parameters is None or self.beyond:
            return self.covariance(key), 1.0
        back = self.white.frames[self.gauge[key]].back

        def path(state: Moments, K: Array) -> Array:
            """Covariances (W, d, d) of the component, from that of its simple prediction to K."""
            C = state.covariance(unbiased=False)
            simple = self._simply(key, C)
            return np.stack([back @ between(simple.T @ C @ simple, K, w) @ back.T for w in SHARES])

        def leading(covariances: Array) -> Array:
            vectors = np.linalg.eigh(covariances)[1][..., -k:]
            return np.asarray(vectors @ vectors.mT)

        own = path(self.state, self.covariances[key])
        left_out = [path(self.state.without([b]), self._fitted_without(b).covariances[key]) for b in self.blocks]
        at = least_risk(leading(own), leading(np.stack(left_out, axis=1)))
        return own[at], float(SHARES[at])

    def moment_draws(self, key: Subset, mean_fixed: bool) -> None:
        """Only refitting tells."""

    # ---- replicates

    @property
    def _fitted(self) -> Fitted:
        return Fitted(self.system, self.white_transforms, self.covariances, self.total, self.parameters)

    @cached_property
    def _refits(self) -> dict[int, Fitted]:
        """Fits without a block, those that were asked for."""
        return {}

    def _fitted_without(self, block: int) -> Fitted:
        """The fit without one block, from the state alone, in the white coordinates of the whole."""
        if block not in self._refits:
            self._refits[block] = self._refit(self.state.without([block]))
        return self._refits[block]

    def _refit(self, state: Moments) -> Fitted:
        evidence = SetEvidence(self.white.columns, state, state.layout.order)
        if self.parameters is None:
            given: dict[str, Any] = {"order": evidence.order, "gauge": self.gauge, "known": self.known}
            linear = find_linear(evidence.cumulants, evidence.columns, self.system, **given)
            system, parts = _by_paper(evidence, self.system, self.gauge, linear)
            return Fitted(system, *parts, None)
        with one_blas_thread():
            ties = ties_of(self.white.columns, self.gauge, self.known)
            parameters = refit(evidence, self.system, self.ranks, self.parameters, ties)
        parts = _by_loadings(evidence, self.system, self.gauge, parameters, self.known)
        return Fitted(self.system, *parts, parameters)

    def without(self, block: int) -> SetSolution:
        """Refitted without one block."""
        state, fitted = self.state.without([block]), self._fitted_without(block)
        return replace(
            self,
            system=fitted.system,
            source=CumulantSource(state),
            white_transforms=fitted.transforms,
            covariances=fitted.covariances,
            total=fitted.total,
            parameters=fitted.parameters,
            mean=self.mean + state.mean @ self.white.back,
        )


def _of_textbook(
    error: Array, degrees: int, found: Coefficients, _: Outcome, *, grouped: bool, replicates: Array | None, **__: Any
) -> Estimate:
    """On all columns of a wide view errors are those of the textbook, which take samples for independent: none with groups."""
    error = error if replicates is None else jackknife_error(replicates)
    return Estimate(found.coef, np.full_like(error, np.nan) if grouped else error, degrees)
