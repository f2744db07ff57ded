"""What a fit of any number of views answers: white coordinates inside, the user's outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import block_diag

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import one_blas_thread, power, symmetric
from richcomponents.components.component import Component, CumulantSource, Term, Terms, less
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import (
    Factored,
    LinearMap,
    Spread,
    added,
    check_entries,
    gaussian_score,
    inverse_factor,
    triangular,
)
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError, SpecificationWarning, WeakIdentificationWarning, warn_user
from richcomponents.inference.draws import Draws, range_of_products, share_of
from richcomponents.inference.verdicts import GATE, Test, Verdict, verdict
from richcomponents.learning.coefficients import (
    LEAST_KEPT,
    Coefficients,
    check_determined,
    is_determined,
    on_prediction,
    residual_map,
    simple_map,
)
from richcomponents.learning.outcome import Outcome
from richcomponents.moments import Moments
from richcomponents.pair.diagnostics import rounded
from richcomponents.paper.general import Transforms, loading
from richcomponents.sets.discover import SetTest
from richcomponents.sets.evidence import SetEvidence, Structure, WhiteViews, home
from richcomponents.sets.model import Parameters, by_view, covariances_identified, implied_covariance, refit
from richcomponents.storage import storable

_LEAST_LEFT = 0.5  # of a fitted own covariance, in any direction, where the others leave less of the view
_FAR = 10.0  # standard errors of a view's mean, by which known means may miss it (transformations have errors, too)


def component_name(subset: Subset) -> str:
    """How a component is called in reports: S{a, b}."""
    return "S{" + ", ".join(subset) + "}"


@storable
@dataclass(frozen=True)
class SetFit:
    """What was fitted, to all blocks or to all but one, in white coordinates.

    columns : {view: its columns}; transforms : {(view, Q): (columns of the view, of the gauge view)}; covariances : {Q: of the
    component}; total : of all columns, which predictors divide by; parameters : of the joint fit, none of the paper's method.
    """

    columns: Mapping[str, IntArray]
    structure: Structure
    transforms: Transforms
    covariances: Mapping[Subset, Array]
    total: Array
    parameters: Parameters | None = None

    @classmethod
    def by_loadings(cls, evidence: SetEvidence, structure: Structure, parameters: Parameters) -> SetFit:
        """A(i) = C_i C_g^+ (those that were given as they are) and Cov(S) = C_g C_g' from loadings on factors.

        A view's own part is what others leave of it, Cov(view) - sum C_i C_i', but at least half of C_g C_g' in any direction:
        that is no better where the model fits, and too small where more is shared than the ranks say (with 569 samples of
        three times ten columns the parts added up to 60% of a view).
        """
        transforms: Transforms = {}
        covariances, total = {}, implied_covariance(evidence, parameters.loadings)
        for q in structure.system.order:
            parts = by_view(parameters.loadings[q], q, evidence.columns)
            own = parts[structure.gauge[q]]
            inverse = np.linalg.pinv(own)
            for view in q:
                transforms[view, q] = structure.known.get((view, q), parts[view] @ inverse)
            covariances[q], full = own @ own.T, own.shape[1] == len(own)
            if full:
                transforms[structure.gauge[q], q] = np.eye(len(own))
            if len(q) == 1 and full:
                inside = np.ix_(evidence.columns[q[0]], evidence.columns[q[0]])
                root = power(covariances[q], 0.5, 0.0)
                back = np.linalg.pinv(root, hermitian=True, rcond=1e-9)
                rest = evidence.correlation[inside] - total[inside] + covariances[q]
                left = root @ power(symmetric(back @ rest @ back), 1.0, _LEAST_LEFT) @ root
                total[inside] += left - covariances[q]
                covariances[q] = left
        return cls(evidence.columns, structure, transforms, covariances, total, parameters)

    @cached_property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.total, hermitian=True, rcond=1e-10), dtype=np.float64)

    def loading(self, key: Subset) -> Array:
        """(columns, those of the gauge view): how the component enters all of them."""
        return loading(self.transforms, self.columns, self.structure.gauge[key], key)

    def terms(self) -> dict[Subset, list[tuple[Term, ...]]]:
        """Cumulants of a component as cross-cumulants of the views, given all transformations:

            k_t(W1'z, ..., Wt'z) = k_t(S_Q) + sum over supersets R of k_t(S_R)(L_R'W1, ..., L_R'Wt)

        holds when a distinguishing set of views fills some slots, each undone by its own A^+, and EVERY other slot is a linear
        map of all columns that leaves S_Q as it is (W'L_Q = I, L_Q its loadings). That of least variance, W = Cov(z)^-1 L_Q
        (L_Q' Cov(z)^-1 L_Q)^-1, has far less noise than one view. Of every member: distinguishing sets in turn with it, then
        with the gauge view.
        """
        system, out = self.structure.system, dict[Subset, list[tuple[Term, ...]]]()
        loadings = {q: self.loading(q) for q in system.order}
        for q, L in loadings.items():
            alone = {view: np.zeros_like(L) for view in q}  # A(view, Q)^+ U_view
            for view in q:
                alone[view][self.columns[view]] = np.linalg.pinv(self.transforms[view, q]).T
            size = {view: float(np.sum(undone**2)) for view, undone in alone.items()}
            supports = [s for s in combinations(q, len(system.distinguishing(q))) if system.distinguishes(s, q)]
            supports.sort(key=lambda support: np.prod([size[view] for view in support]))  # tame inverses first
            weighted = self.inverse @ L
            best = weighted @ np.linalg.pinv(L.T @ weighted, hermitian=True, rcond=1e-10)
            patterns = [(support, best) for support in supports]
            patterns.append((supports[0], alone[self.structure.gauge[q]]))
            above = [(loadings[r], out[r][0]) for r in system.supersets(q)]
            out[q] = [less(Term(1.0, tuple(alone[view] for view in s), fill), above) for s, fill in patterns]
        return out


def _sure(what: str, error: float) -> Test:
    """Whether a quantity of this relative standard error differs significantly from zero."""
    strength = 1 / max(error, 1e-12)
    says = f"the data say little about {what} (relative error {error:.0%} or more)"
    return Test("identified", strength, (), float(stats.norm.sf(strength)), says, "Use more samples, or drop its set.")


@storable
@dataclass(frozen=True)
class SetSolution:
    """Everything about the fitted components.

    source : of cumulants of the white columns; verdicts : of discovery, if any; mean : (p,), of the user's columns; beyond :
    {wide view: what it has outside of the columns that were looked at, its own}; independent_rows : how many the samples are
    worth; units : different rows, where they are few; grouped : whether rows belong to groups; relative_errors : {(view, Q):
    standard error of A over its size}, none of large problems; covariance_errors : {Q: that of Cov(S_Q)}; misfit : of
    covariances between views, none of the paper's method.
    """

    fitted: SetFit
    white: WhiteViews
    source: CumulantSource
    verdicts: Mapping[Subset, SetTest] | None
    mean: Array
    beyond: Mapping[str, Factored]
    independent_rows: float
    units: int | None
    grouped: bool
    relative_errors: Mapping[tuple[str, Subset], float] | None = None
    covariance_errors: Mapping[Subset, float] | None = None
    misfit: Test | None = None

    infers_T = False

    @property
    def system(self) -> SetSystem:
        return self.fitted.structure.system

    @property
    def gauge(self) -> Mapping[Subset, str]:
        """The view that each component is written in."""
        return self.fitted.structure.gauge

    @property
    def ranks(self) -> Mapping[Subset, int]:
        """How many directions each component has."""
        return self.fitted.structure.ranks

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

    def frame(self, key: Subset) -> LinearMap:
        """The maps to and from white columns of a component's gauge view."""
        return self.white.frames[self.gauge[key]]

    # ---- in the user's units

    def transform(self, view: str, key: Subset) -> Array:
        """A(view, Q), (columns of the view, columns of the gauge view); the identity at the gauge view."""
        seen, gauge = self.white.frames[view], self.frame(key)
        check_entries(f"the transformation of {key} in view {view!r}", (len(seen.back), len(gauge.back)))
        if view == self.gauge[key]:
            return np.eye(len(gauge.back))
        return np.asarray(seen.back @ self.fitted.transforms[view, key] @ gauge.to)

    def transforms(self) -> dict[tuple[str, Subset], Array]:
        """{(view, Q): A}."""
        return {key: self.transform(*key) for key in self.fitted.transforms}

    def covariance(self, key: Subset) -> Spread:
        """Of a component, in the columns of its gauge view; a wide view's own one with what lies beyond."""
        core = self.fitted.covariances[key]
        if self._all_columns(key):
            return added(self.beyond[key[0]], self.frame(key).back, core)
        return self._lifted(key, core)

    def _lifted(self, key: Subset, core: Array) -> Spread:
        """A covariance of white columns of the gauge view in the user's; as factors for a wide view."""
        outer = self.frame(key).back
        if self.gauge[key] in self.beyond:
            return Factored(np.zeros((0, len(outer))), outer.T, symmetric(core))
        return np.asarray(outer @ core @ outer.T)

    def variance_shares(self) -> dict[tuple[str, Subset], float]:
        """{(view, Q): variance of A S_Q over the variance of the view, summed over its columns}."""
        own = self.own_variances()
        return {(view, q): float(part.sum()) / self.white.totals[view] for (view, q), part in own.items()}

    def own_variances(self) -> dict[tuple[str, Subset], Array]:
        """{(view, Q): variance of each column of the view that the component carries}."""
        out = {}
        for (view, q), A in self.fitted.transforms.items():
            part = self.white.frames[view].back @ A
            out[view, q] = np.sum(part * (part @ self.fitted.covariances[q]), axis=1)
            if self._all_columns(q):
                out[view, q] = out[view, q] + self.beyond[view].diagonal()
        return out

    @cached_property
    def terms(self) -> dict[Subset, Terms]:
        """How the cumulants of every component, in the user's columns, are read off the white columns."""
        each = self._white_terms().items()
        return {q: Terms(tuple((Term(1.0, (), self.frame(q).back.T, one),) for one in sums)) for q, sums in each}

    def _white_terms(self) -> Mapping[Subset, Sequence[tuple[Term, ...]]]:
        return self.fitted.terms()

    def component(
        self, key: Subset, names: Sequence[str], title: str, given: Mapping[Subset, object] | None = None
    ) -> Component:
        """names : of the columns of all views; title : of the component; given : known means of some."""
        columns, own = tuple(names[self.white.place[self.gauge[key]]]), self.means(given or {})[key]
        return Component(title, columns, own, self.covariance(key), self.source, self.terms[key])

    def means(self, given: Mapping[Subset, object]) -> dict[Subset, Array]:
        """Shared components have mean zero and a view's own component takes the rest, where nothing else is given; where a view
        has none of its own, or a given one, the smallest means (in white units) that add up to the rest of the view's. Only
        such sums are identified."""
        known, columns = {q: np.array(one, dtype=np.float64) for q, one in given.items()}, self.white.columns
        for q, value in known.items():
            width = len(self.frame(q).back)
            if value.shape != (width,) or not np.isfinite(value).all():
                raise DataError(
                    f"the known mean of {component_name(q)} must be {width} finite numbers, one per column of view "
                    f"{self.gauge[q]!r}, got shape {value.shape}"
                )
        shared = [q for q in self.system.order if len(q) > 1]
        free = [q for q in shared if q not in known]
        fixed = [view for view in columns if (view,) not in self.system or (view,) in known]
        white = {q: self.frame(q).to @ known.get(q, np.zeros(self.frame(q).to.shape[1])) for q in shared}
        if fixed and free:
            left = self.mean @ self.white.into - sum(self.fitted.loading(q) @ white[q] for q in shared)
            own = [self.white.frames[v].to @ known[v,] if (v,) in known else np.zeros(len(columns[v])) for v in fixed]
            rows, stack = home(columns, fixed), np.hstack([self.fitted.loading(q) for q in free])
            parts = np.linalg.lstsq(stack[rows], left[rows] - np.concatenate(own), rcond=None)[0]
            ends = np.cumsum([len(white[q]) for q in free])
            white |= dict(zip(free, np.split(parts, ends[:-1]), strict=True))
        out = {q: self.frame(q).back @ mean for q, mean in white.items()}
        for view, part in self.white.place.items():
            if (view,) in self.system:
                out[view,] = self.mean[part] - sum(self.transform(view, q) @ out[q] for q in shared if view in q)
                away = self.white.frames[view].to @ (out[view,] - known.get((view,), out[view,]))
                if np.sqrt(np.mean(away**2) * self.independent_rows) > _FAR:
                    others = ", ".join(component_name(q) for q in shared if view in q)
                    raise DataError(
                        f"the known means contradict the mean of view {view!r}: after those of {others} it leaves "
                        f"{np.array2string(out[view,], precision=3)} for {component_name((view,))}, and mean= says "
                        f"{np.array2string(known[view,], precision=3)}. Leave out one of them"
                    )
        return out

    # ---- rows: (n, p), the columns of all views, centred

    def predict(self, key: Subset, rows: Array) -> tuple[Array, Spread]:
        """BLUP of the centred component, (n, d), and its error covariance (d, d): Cov(S, z) Cov(z)^-1 z. What a wide view has
        outside of the columns that were looked at is its own, and seen."""
        frame, K, loads = self.frame(key), self.fitted.covariances[key], self.fitted.loading(key)
        weights = self.fitted.inverse @ loads @ K
        predicted = rows @ self.white.into @ weights @ frame.back.T
        if self._all_columns(key):
            part = rows[:, self.white.place[self.gauge[key]]]
            predicted = predicted + part - part @ frame.to.T @ frame.back.T
        return np.asarray(predicted), self._lifted(key, K - K @ loads.T @ weights)

    def on_rows(self, key: Subset, rows: Array) -> tuple[Array, Terms]:
        """White columns of centred rows, and how a component's cumulants are read off them."""
        return np.asarray(rows @ self.white.into), self.terms[key]

    def outside(self, key: Subset) -> IntArray:
        """Columns, of all views side by side, of the views in which the component does not live."""
        every = np.arange(len(self.mean))
        return np.delete(every, np.concatenate([every[self.white.place[view]] for view in key]))

    def residual(self, key: Subset, rows: Array, beside: int | None = None) -> Array:
        """What is left of the gauge view's columns after least squares on the views outside of the component, (n, d)."""
        gauge, frame = self.gauge[key], self.frame(key)
        left = self._left(key, self.state.covariance(unbiased=False))
        own = rows[:, self.white.place[gauge]]
        return np.asarray(own + (rows @ self.white.into @ left - own @ frame.to.T) @ frame.back.T)

    def stand_in(self, key: Subset, rows: Array, beside: int | None = None) -> Array:
        """The simple prediction of a component (learning/coefficients), (n, d)."""
        if len(key) == 1:
            return self.residual(key, rows)
        simple = self._simply(key, self.state.covariance(unbiased=False))
        return np.asarray(rows @ self.white.into @ simple @ self.frame(key).back.T)

    def score(self, rows: Array, n_blocks: int) -> float:
        """Mean Gaussian log-density of the rows under the fitted covariance of all columns, in nats."""
        return gaussian_score(self.joint(), rows)

    def joint(self) -> Spread:
        """The fitted covariance of all columns, as factors where a view is wide."""
        back, total = self.white.back, self.fitted.total
        if not self.beyond:
            return np.asarray(back.T @ total @ back)
        whole: Spread = Factored(np.zeros((0, back.shape[1])), back, total)
        for view, spread in self.beyond.items():
            part, core = self.white.place[view], block_diag(spread.core, np.eye(len(spread.rows)))
            lift = np.pad(np.vstack([spread.lift, spread.rows]), ((0, 0), (part.start, len(back.T) - part.stop)))
            whole = added(whole, lift.T, core)
        return whole

    # ---- how sure

    def _of_transformations(self, key: Subset) -> list[Test]:
        """Whether A of a component and of those of larger sets, which are subtracted, is told."""
        below, errors = [key, *self.system.supersets(key)], self.relative_errors or {}
        return [_sure(f"A({v}, {q})", errors[v, q]) for q in below for v in q if (v, q) in errors]

    def tests(self, key: Subset) -> list[Test]:
        """What answers on a component rest on; none where errors are not known (large problems, the paper's formulas) and
        nothing contradicts the fit."""
        fit = [] if self.misfit is None else [self.misfit]
        if not self.relative_errors or not self.covariance_errors:
            return [test for test in fit if test.finding == Verdict.CONTRADICTED]
        sizes = self.covariance_errors
        below = [_sure(f"Cov({component_name(q)})", sizes[q]) for q in (key, *self.system.supersets(key))]
        return [*fit, *self._of_transformations(key), *below]

    @property
    def component_verdicts(self) -> dict[Subset, str]:
        """{Q: the worst finding of its tests}."""
        return {q: verdict(self.tests(q)).value for q in self.keys}

    @property
    def verdict(self) -> str:
        """The worst of all."""
        return verdict(test for q in self.keys for test in self.tests(q)).value

    def leaves_open(self, key: Subset) -> bool:
        """Whether the data tell no more of a component than its identified set, as far as that is rated."""
        return verdict(self.tests(key)) not in (Verdict.STRONG, Verdict.NOT_CHECKED)

    def warn(self) -> None:
        """Say what is not sure."""
        if words := self.misfit_words():
            warn_user(words, SpecificationWarning)
        every = [test for q in self.keys for test in self._of_transformations(q)]
        if weak := list(dict.fromkeys(test.says for test in every if test.finding != Verdict.STRONG)):
            more = [says.removeprefix("the data say little about ") for says in weak[1:4]]
            warn_user(
                f"{', '.join([weak[0], *more])}{' and others' if len(weak) > 4 else ''}: such a component is nearly Gaussian, "
                f"small, or not there. Drop its set ({'discover=True tests it' if self.verdicts is None else 'sets='}), or use "
                "more samples",
                WeakIdentificationWarning,
            )
        columns = self.white.columns
        full = all(self.ranks[q] == len(columns[self.gauge[q]]) for q in self.system)
        if full and not covariances_identified(columns, self.fitted.transforms):
            warn_user(
                "second moments do not determine the covariances of all components of this set system: those reported are one "
                "of many solutions (their cumulants of higher order are determined). Drop sets, or add columns to the views",
                WeakIdentificationWarning,
            )

    def misfit_words(self) -> str:
        """What contradicts the model, and what may be wrong; empty where nothing does."""
        if self.misfit is None or self.misfit.finding != Verdict.CONTRADICTED:
            return ""
        looked = " (discover=True looks for it)" if self.verdicts is None else ""
        return (
            f"the model fails: {self.misfit.says} ({self.misfit.p_text}). A set is missing{looked}, a rank is too small, a "
            "transformation that was given is wrong, or components are not independent"
        )

    def diagnose(self) -> None:
        """There is no page of two views."""

    def next_steps(self) -> list[str]:
        """What would help, in numbers of samples: errors of transformations and covariances fall with their square root."""
        if words := self.misfit_words():
            return [f"{words[0].upper()}{words[1:]}."]
        strengths = {q: [t.statistic for t in self.tests(q) if t.name == "identified"] for q in self.keys}
        rated = [(min(each), len(q), q) for q, each in strengths.items() if each]
        least, _, worst = min(rated, default=(GATE[1], 0, ()))
        if least >= GATE[1]:
            return []
        times, name = (GATE[1] / least) ** 2, component_name(worst)
        if times > 100:
            decide = ", or let discover=True decide." if self.verdicts is None else "."
            return [f"{name} is hardly told, by any number of samples that can be had: leave it out (sets=){decide}"]
        return [
            f"To tell every component, collect about n = {rounded(self.n * times)} samples like these; {name} asks for most."
        ]

    def limits(self, key: Subset, view: str | None = None) -> Estimate | None:
        """Of a component's covariance, or of its A in a view, where the data do not tell it; None where refitting does.

        Second moments say 0 <= Cov(S) <= Cov(R), R what is left of its view given the views where it does not live, and so much
        for every entry. A has no bounds.
        """
        if self.beyond or not self.leaves_open(key):
            return None
        if view is not None:
            free = view != self.gauge[key] and (view, key) not in self.fitted.structure.known
            fails = verdict(self.tests(key)) == Verdict.CONTRADICTED
            open_ = free and (fails or verdict(self._of_transformations(key)) != Verdict.STRONG)
            return Estimate.unbounded(self.transform(view, key)) if open_ else None
        back = self.frame(key).back

        def ends(state: Moments) -> Array:
            C = state.covariance(unbiased=False)
            left = self._left(key, C)
            root = back @ power(symmetric(left.T @ C @ left), 0.5, 0.0)
            return np.stack(range_of_products(root, root))

        (low, high), left_out = ends(self.state), np.stack([ends(self.state.without([b])) for b in self.blocks])
        (below, above), point = jackknife_error(left_out), np.asarray(self.covariance(key))
        nothing, degrees = np.full_like(point, np.nan), len(left_out) - 1
        return Estimate(point, nothing, degrees, identified=(low, high), identified_error=(below, above))

    # ---- what learners ask

    def on_v(self, outcome: Outcome) -> None:
        """Of many views there is not one other."""

    def solved_for(self, key: Subset) -> SetSolution:
        """Who answers for outcomes on a component."""
        return self

    def _outside(self, key: Subset) -> IntArray:
        """White columns of the views where a component does not live."""
        return home(self.white.columns, [view for view in self.white.columns if view not in key])

    def _left(self, key: Subset, covariance: Array) -> Array:
        """The map from white columns, of this covariance, to what is left of the gauge view's given the views outside."""
        return residual_map(covariance, self.white.columns[self.gauge[key]], self._outside(key))

    def _simply(self, key: Subset, covariance: Array) -> Array:
        """The map to the simple prediction of a component (learning/coefficients)."""
        columns, own, rank = self.white.columns, self.gauge[key], self.ranks[key]
        partners = home(columns, [view for view in key if view != own])
        return simple_map(covariance, columns[own], partners, self._outside(key), rank, self.independent_rows)

    def _all_columns(self, key: Subset) -> bool:
        """Whether it is a wide view's own component: an outcome on it is regressed on every column."""
        return len(key) == 1 and key[0] in self.beyond

    def _wanted(self, key: Subset) -> tuple[int, int]:
        """Coefficients of least squares on the columns of the gauge view that carry the component and on the views where it
        does not live; and how many are of these."""
        wide, others = self._all_columns(key), len(self._outside(key))
        own = int(np.sum(self.covariance(key).diagonal() > 0)) if wide else len(self.white.columns[self.gauge[key]])
        return own + others, others

    def check_determined(self, key: Subset, covariates: int) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        wide = self.beyond[key[0]] if self._all_columns(key) else None
        check_determined(self, wide, self.gauge[key], len(self.frame(key).back), *self._wanted(key), covariates)

    def calibrate(self, key: Subset, outcome: Outcome) -> Coefficients:
        """Least squares on the prediction of a component, between the simple one and that of the fit (learning/coefficients);
        of a wide view's own component on the residual of all its columns: of the few directions that are compared, those of the
        largest correlations in the sample, the fit leaves too little to the view."""
        if self._all_columns(key):
            return self._on_all_columns(key, outcome)
        full, K = self._prediction(key, self.fitted)
        # refits do not tell of views of which few directions were looked at
        refits = [] if self.beyond else [self._fitted_without(block) for block in self.blocks]
        return on_prediction(
            np.asarray(outcome.rows @ self.white.into),
            outcome,
            self.frame(key),
            partial(self._simply, key),
            full,
            [self._prediction(key, one)[0] for one in refits] or None,
            covariance=K,
            lifted=partial(self._lifted, key),
            wanted=self._wanted(key)[0],
            name="instrumental" if len(key) > 1 else "residualised",
            residual=partial(self._left, key) if self.leaves_open(key) else None,
        )

    def _prediction(self, key: Subset, fit: SetFit) -> tuple[Array, Array]:
        """The best linear prediction of a component from the white columns, as a fit has it, Cov(z)^-1 L K, and K = Cov(S) =
        F F' with no direction smaller than LEAST_KEPT of what the columns could show of it, as for two views.

        All that z says of S is L' Sigma^-1 z, with L the loadings: S plus noise, of variance P^-1, P = L' Sigma^-1 L. The
        prediction K P (S + noise) keeps the shares F' P F of it, which lie between zero and one in any units.
        """
        L, K = fit.loading(key), fit.covariances[key]
        values, vectors = (part[..., -self.ranks[key] :] for part in np.linalg.eigh(symmetric(K)))
        F = vectors * np.sqrt(np.maximum(values, 0.0))
        shares, turned = np.linalg.eigh(symmetric(F.T @ L.T @ fit.inverse @ L @ F))
        if shares[0] < LEAST_KEPT:
            F = F @ turned
            K = symmetric(F * (np.maximum(shares, LEAST_KEPT) / np.maximum(shares, 1e-300)) @ F.T)
        return np.asarray(fit.inverse @ L @ K), K

    def _on_all_columns(self, key: Subset, outcome: Outcome) -> Coefficients:
        """Coefficients Cov(R)^-1 Cov(R, y), R the residual of every column of a wide view on the directions of the others."""
        weight, beyond, odds = outcome.weight, self.beyond[key[0]], outcome.log_odds
        counted, root = float(weight.sum()), np.sqrt(weight)[:, None]
        adjusted = outcome.rows @ self.white.into[:, self._outside(key)]
        both = np.column_stack([outcome.rows[:, self.white.place[key[0]]], outcome.y])
        both = both - adjusted @ np.linalg.lstsq(adjusted * root, both * root, rcond=None)[0]
        features, target = both[:, :-1], both[:, -1]
        inverse = inverse_factor(triangular(features * root) * np.sqrt(len(both) / counted))
        coef = inverse @ (inverse.T @ (features.T @ (weight * target) / counted)) if odds is None else odds.coef
        left, wanted = target - features @ coef, self._wanted(key)[0] + outcome.covariates
        degrees = self.independent_rows - wanted - 1
        noise = float(weight @ left**2) / counted / degrees if degrees > 0 else np.nan
        error = np.sqrt(noise * np.sum(inverse**2, axis=1)) if odds is None else jackknife_error(odds.blocks)
        loads = self.fitted.loading(key)
        inside = np.linalg.pinv(symmetric(loads.T @ self.fitted.inverse @ loads), hermitian=True)

        def of_textbook(solved: Coefficients, _: Outcome, *, grouped: bool, **__: Any) -> Estimate:
            """These take samples for independent: none with groups."""
            return Estimate(solved.coef, error * (np.nan if grouped else 1.0), max(round(degrees), 1))

        return Coefficients(
            coef=coef,
            residualised=coef,
            trust=0.0,
            features=features,
            outcome=outcome.y,
            covariance=added(beyond, self.frame(key).back, np.asarray(inside, dtype=np.float64)),
            free=outcome.free,
            determined=is_determined(self, beyond, wanted),
            reduced=True,
            wanted=wanted,
            by=of_textbook,
        )

    def covariance_for_directions(self, key: Subset, k: int) -> tuple[Spread, float]:
        """What the k leading directions are read from: from the covariance of the simple prediction to the fitted one, at the
        share that the projector on them deserves. Those of wide views are taken as they are."""
        if self.beyond:
            return self.covariance(key), 1.0
        back, fits = self.frame(key).back, [self.fitted, *map(self._fitted_without, self.blocks)]

        def simple(state: Moments) -> Array:
            C = state.covariance(unbiased=False)
            M = back @ self._simply(key, C).T
            return np.asarray(M @ C @ M.T)

        def projector(covariance: Array) -> Array:
            vectors = np.linalg.eigh(covariance)[1][..., -k:]
            return np.asarray(vectors @ vectors.mT)

        first, *fitted = [back @ one.covariances[key] @ back.T for one in fits]
        safe = Draws.certain(simple(self.state), np.stack([simple(self.state.without([b])) for b in self.blocks]))
        share = share_of(safe.map(projector), Draws.certain(first, np.stack(fitted)).map(projector), 1.0)
        return safe.value + share * (first - safe.value), share

    def moment_draws(self, key: Subset, mean_fixed: bool) -> None:
        """Only refitting tells."""

    # ---- replicates

    @cached_property
    def _refits(self) -> dict[int, SetFit]:
        """Fits without a block, those that were asked for."""
        return {}

    def _fitted_without(self, block: int) -> SetFit:
        """The fit without one block, from the state alone, in the white coordinates of the whole."""
        if block not in self._refits:
            with one_blas_thread():
                self._refits[block] = self._refit(SetEvidence(self.white.columns, self.state.without([block])))
        return self._refits[block]

    def _refit(self, evidence: SetEvidence) -> SetFit:
        structure, start = self.fitted.structure, self.fitted.parameters
        assert start is not None
        return SetFit.by_loadings(evidence, structure, refit(evidence, structure, start))

    def without(self, block: int) -> SetSolution:
        """Refitted without one block."""
        state = self.state.without([block])
        mean, fitted = self.mean + state.mean @ self.white.back, self._fitted_without(block)
        return replace(self, fitted=fitted, source=CumulantSource(state), mean=mean)
