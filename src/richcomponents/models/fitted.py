"""A fit as a value: which columns it reads, how they are cleaned, the solution, and what these answer of rows and outcomes.

    rows -> the columns used (Design) -> gaps filled -> covariates and hidden classes removed -> centred rows -> the solution

Learners ask it; :class:`ContrastiveRCA` and :class:`RCA` hand rows to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray, Truth
from richcomponents.algebra.arrays import least_squares
from richcomponents.components.component import Component, RowSource
from richcomponents.components.wide import added
from richcomponents.data.design import Design
from richcomponents.data.rows import Rows
from richcomponents.data.table import check_finite, check_outcome
from richcomponents.errors import DataError
from richcomponents.inference.draws import Draws
from richcomponents.inference.verdicts import Test
from richcomponents.learning.coefficients import Coefficients
from richcomponents.learning.outcome import Outcome, outcome_test
from richcomponents.models.estimator import complete_rows, data_of, read_once
from richcomponents.moments import Moments, block_numbers
from richcomponents.moments.available import Fill, drawn_blocks, patterns_of
from richcomponents.moments.data import AffineMap, Data, Partial, RowUnits, equivalent_rows
from richcomponents.pair.classes import ClassPart, HiddenClasses
from richcomponents.sets.solution import component_name
from richcomponents.storage import storable


class Parts(Mapping[Any, Component]):
    """Components by name, each made when it is asked for first: S3 has a fit of its own."""

    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted

    def __getitem__(self, key: Any) -> Component:
        fitted = self._fitted
        if key not in fitted.made:
            if key not in fitted.solution.keys:
                raise KeyError(key)
            fitted.made[key] = fitted.component(key)
        return fitted.made[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fitted.solution.keys)

    def __len__(self) -> int:
        return len(self._fitted.solution.keys)


WIDE = 2000
"""Columns above which nothing is kept for all pairs of them."""
_OTHER_ROWS = (
    "the fit knew groups or weights of its rows, but not those of this table: pass groups= or sample_weight= "
    "(sample_weight=np.ones(len(X)) if its rows are independent)"
)


@storable
@dataclass(frozen=True)
class Fitted:
    """What a fit knows.

    design : of the columns; n_blocks, missing : as in the fit; mean : of some components, given; partial : the regression of
    the views on covariates and hidden classes; classes, class_part : these classes, and what they are of both views;
    class_note : why there are none; gap_note : what was missing, and what was done about it; lost : rows' worth of freedom
    that covariates took; units : groups and weights of the rows, None where they are not at hand; weighted : whether rows are
    counted several times; solution : in the columns of all views side by side; made : components that were asked for.
    """

    design: Design
    n_blocks: int
    missing: str
    mean: Mapping[Any, Any] | None = None
    partial: Partial | None = None
    classes: HiddenClasses | None = None
    class_part: ClassPart | None = None
    class_note: str = ""
    gap_note: str = ""
    lost: float = 0.0
    units: RowUnits | None = None
    weighted: bool = False
    solution: Any = None
    made: dict[Any, Component] = field(default_factory=dict)

    # ---- components

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(str(self.design.views.feature_names[c]) for c in self.design.columns)

    @property
    def view_names(self) -> dict[str, tuple[str, ...]]:
        return {view: self.names[place] for view, place in self.design.places().items()}

    def key(self, component: Any) -> Any:
        """The name of a component: views may stand in any order, and one alone; None is the first view's own."""
        keys = self.solution.keys
        if component is None:
            own = (self.design.views.names[0],)
            return own if own in keys else keys[0]
        wanted = sorted(map(str, component)) if isinstance(component, (list, tuple, set)) else [str(component)]
        for key in keys:
            if sorted([key] if isinstance(key, str) else key) == wanted:
                return key
        raise ValueError(f"component must be one of {', '.join(map(repr, keys))}, got {component!r}")

    @cached_property
    def components(self) -> Parts:
        return Parts(self)

    def component(self, key: Any) -> Component:
        title = key if isinstance(key, str) else component_name(key)
        made: Component = self.solution.component(key, self.names, title, self.mean)
        part = self.class_part
        if part is None or key != self.solution.keys[1]:
            return made
        return replace(made, spread=added(made.spread, part.of_u, part.spread), source=None, _known={})

    def columns_of(self, component: object) -> tuple[str, ...]:
        return self.components[self.key(component)].feature_names

    def without(self, block: int) -> Fitted:
        """Refitted without one block of rows."""
        part = None if self.class_part is None else self.class_part.without(block)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replace(self, class_part=part, solution=self.solution.without(block), made={})

    def notes(self) -> tuple[str, ...]:
        """What covariates that are texts were compared with, and what was missing, in sentences."""
        return (*self.design.covariate_notes(), *([self.gap_note] if self.gap_note else []))

    # ---- rows, in the columns used: all views side by side, then covariates

    def filled(self, values: Array) -> Array:
        """Gaps predicted from what is there of their rows, unless missing="error"."""
        return values if self.missing == "error" or np.isfinite(values).all() else self.fill(values)

    @cached_property
    def fill(self) -> Fill:
        """Of the columns used, from the fit: Cov(views) = Cov(residuals) + B Cov(covariates) B'."""
        joint, mean = np.asarray(self.solution.joint()), self.solution.mean
        if self.partial is not None:
            B, known = self.partial.coefficients, self.partial.known
            joint = np.block([[joint + B @ known @ B.T, B @ known], [known @ B.T, known]])
            mean = np.concatenate([mean, self.partial.mean[self.partial.covariates]])
        used = len(self.design.used)  # not the probabilities of hidden classes
        return Fill(mean[:used], joint[:used, :used])

    def centred(self, values: Array) -> Array:
        """Rows of the views, covariates and classes removed, about the means of the fit."""
        if not len(values):
            raise DataError("there are no rows")
        values, design = self.filled(values), self.design
        check_finite(values, design.side_by_side())
        bad = ~np.isfinite(values[:, len(design.columns) :]).all(axis=0)
        if bad.any():
            name = design.views.feature_names[design.known[int(np.argmax(bad))]]
            raise DataError(
                f"the covariate {name!r} holds missing or infinite values: drop those rows or impute them first"
            )
        return self._residuals(values if self.classes is None else self.classes(values))

    def _residuals(self, values: Array) -> Array:
        """Of values (n, columns of all views, covariates and probabilities of hidden classes)."""
        left = values if self.partial is None else self.partial.residuals(values)
        return np.asarray(left - self.solution.mean)

    def beside_views(self, values: Array) -> tuple[Array, Array]:
        """Covariates (n, q), and probabilities (n, K - 1) of hidden classes, of rows, about their means in the fit."""
        assert self.classes is not None
        assert self.partial is not None
        columns, q = len(self.design.columns), len(self.design.known)
        every = self.classes(self.filled(values))[:, columns:] - self.partial.mean[self.partial.covariates]
        return every[:, :q], every[:, q:]

    def predict(self, values: Array, component: object = None, return_std: bool = False) -> Any:
        """The best linear prediction of a component (n, d), and its standard error."""
        key, rows = self.key(component), self.filled(values)
        predicted, error = self.solution.predict(key, self.centred(rows))
        predicted = predicted + self.components[key].mean
        if self.class_part is not None and key == self.solution.keys[1]:
            predicted = predicted + self.class_part.in_u(*self.beside_views(rows))
        if not return_std:
            return predicted
        variance = np.tile(np.maximum(error.diagonal(), 0.0), (len(values), 1))
        if self.missing != "error":
            maps = self.prediction_map(key)
            maps = maps if self.partial is None else (self.partial.matrix @ maps)[: len(self.design.used)]
            variance += _variance_of_gaps(self.fill, values, maps)
        return predicted, np.sqrt(variance)

    def prediction_map(self, component: object = None) -> Array:
        """(p, d): centred rows -> the prediction of a component, centred."""
        return np.asarray(self.solution.predict(self.key(component), np.eye(len(self.design.columns)))[0])

    def prediction_covariance(self, data: Data, component: object = None) -> Array:
        """Covariance (d, d) of the predictions of a component for the rows it was fitted to; data : what the solver saw, also
        where the rows are not at hand."""
        maps = self.prediction_map(component)
        if len(maps) > WIDE:
            return np.asarray(data.moments(2, AffineMap(self.solution.mean, maps)).covariance())
        return np.asarray(maps.T @ data.moments(2).covariance() @ maps)

    # ---- an outcome beside the views

    def outcome(
        self,
        table: Rows | Moments,
        groups: object = None,
        sample_weight: object = None,
        *,
        every_row: bool = False,
        summed: bool = False,
    ) -> Outcome:
        """All that coefficients and tests read of an outcome. Rows that are not in memory, and states, are read by their second
        moments, block by block: any size, one pass.

        table : the columns used and, last, the outcome, zero where there is none; groups, sample_weight : by default those of
        the fit; every_row : not second moments in their place; summed : these also where independent rows are in memory, which
        takes a fraction of the time of reading them block by block.
        """
        if isinstance(table, Moments):
            return self._of_sums(table)
        groups, keep = table.group_labels(groups), np.ones(table.n_rows or 0, dtype=bool)
        few = table.rereadable and table.n_rows is not None and table.n_rows <= 2 * self.n_blocks * table.width
        if self.classes is not None:
            table = table.mapped(partial(_with_classes, self.classes, len(self.design.used)))
        elif self.missing == "available" and table.rereadable:
            keep = complete_rows(table)
            if not keep.all() and not every_row and self.solution.infers_T:  # least squares asks for no more than sums
                units = self._units(len(keep), groups, sample_weight)
                counted = table if units.weight is None else table.weighted_by(units.weight)
                return self._of_sums(counted, groups if units.groups is None else units.groups)
        depend, given = self.units is None or self.units.depend, groups is not None or sample_weight is not None
        if keep.all() and not few and not every_row and (not table.held or (summed and not depend and not given)):
            if depend and not given:
                raise DataError(_OTHER_ROWS)
            return self._of_sums(table if sample_weight is None else table.weighted_by(sample_weight), groups)
        units = self._units(len(keep), groups, sample_weight)
        weight, (blocks, at) = units.weights(len(keep)), self._blocks(keep, groups)
        if at is None:
            return replace(self._prepared(table.array(), weight, blocks), units=units)
        made = self._prepared(table.kept(keep).array(), weight[at], blocks)
        return replace(made, units=units.take(at), at=at)

    def _of_sums(self, table: Rows | Moments, groups: object = None) -> Outcome:
        """From second moments of the columns used and the outcome, by block."""
        if isinstance(table, Rows) and not table.rereadable:
            table = read_once(table, self.missing, 4, n_blocks=self.n_blocks, groups=groups)[0]
        data = data_of(table, self.design, self.missing, self.n_blocks, groups)[0]
        return replace(self._prepared(*equivalent_rows(data.moments(2))), data=data)

    def _blocks(self, keep: Truth, groups: object) -> tuple[IntArray, IntArray | None]:
        """The blocks, of the fit, of the rows that are kept, and the numbers of these where some are not."""
        n = len(keep)
        if keep.all():
            return block_numbers(n, self.n_blocks, groups), None
        blocks = block_numbers(n, self.n_blocks, drawn_blocks(n, self.n_blocks) if groups is None else groups)
        if len(np.unique(blocks[keep])) < len(np.unique(blocks)):
            raise DataError(
                f"{int(np.sum(keep))} of {n} rows are complete, too few for an outcome in {self.n_blocks} blocks of rows: use "
                "fewer blocks (n_blocks=), or leave out columns with many gaps"
            )
        return np.asarray(blocks[keep]), np.flatnonzero(keep)

    def _units(self, n: int, groups: object, sample_weight: object) -> RowUnits:
        """Groups and weights of n rows: those given, else those of the fit for as many rows; others are not guessed."""
        if sample_weight is None and (groups is None or self.weighted):
            if self.units is None or (self.units.depend and len(self.units) != n):
                raise DataError(_OTHER_ROWS)
            if groups is None:
                return self.units
            sample_weight = self.units.weight
        return RowUnits.of(n, groups, sample_weight)

    def _prepared(self, table: Array, weight: Array, blocks: IntArray) -> Outcome:
        """table (n, columns of all views, covariates and the outcome), each row counted so often."""
        design, own, classes = self.design, len(self.design.columns), self.classes
        last = len(design.used) + (0 if classes is None else len(classes) - 1)
        known, rows = table[:, own:last], table[:, :last]
        rows = self.centred(rows) if classes is None else self._residuals(rows)
        if table.shape[1] == last:  # a component alone
            return Outcome(rows, np.zeros(len(rows)), weight, blocks, float(weight.sum()), rows[:, :0])
        target = check_outcome(table[:, last], len(table))
        centre = np.average(table[:, own : last + 1], axis=0, weights=weight)
        column: Any = target - centre[-1]
        coef, beside = np.zeros(known.shape[1]), known - centre[:-1]
        if self.partial is not None:
            coef = least_squares(beside, column, weight)
            left = column - beside @ coef
            if weight @ left**2 <= 1e-13 * (weight @ column**2):
                names = ", ".join(design.views.feature_names[c] for c in design.known[:5])
                raise DataError(
                    f"y is an exact function of the covariates ({names}): they leave nothing to explain. Is y one of them?"
                )
            column = left
        free = max(float(weight.sum()) - self.lost, 1.0)
        return Outcome(rows, column, weight, blocks, free, beside, self.partial, coef, float(centre[-1]))

    # ---- what learners ask; of : an outcome, or rows in the columns used

    def solved_for(self, component: object) -> tuple[Any, Any]:
        """The solution that answers for a component, and its name there."""
        key = self.key(component)
        return self.solution.solved_for(key), key

    def residual(self, of: Outcome | Array, component: object = None) -> Array:
        """See :meth:`ContrastiveRCA.residual`; of an outcome, on what stands beside the first view."""
        solution, key = self.solved_for(component)
        return np.asarray(solution.residual(key, self._rows(of), _beside(of)))

    def stand_in(self, of: Outcome | Array, component: object = None) -> Array:
        """The simple prediction of a component (n, d), centred, that learners are measured by: the residual, or, of a component
        that lives in several views, what the others predict of it. Least squares of an outcome on it is "residualised" (the
        other views as covariates) or "instrumental" (as instruments)."""
        solution, key = self.solved_for(component)
        return np.asarray(solution.stand_in(key, self._rows(of), _beside(of)))

    def _rows(self, of: Outcome | Array) -> Array:
        return of.rows if isinstance(of, Outcome) else self.centred(of)

    def beside(
        self, outcome: Outcome, component: object = None, *, stated: bool = False
    ) -> tuple[Outcome, Array | None]:
        """An outcome, with what it has to do with the other view of two; and, where it goes with that, the variates (m, k) of
        the other view that stand beside its residual. A component that lives in both views has no other. stated : the user
        says that the outcome depends on both parts."""
        solution, key = self.solved_for(component)
        if not len(solution.outside(key)):
            return replace(outcome, on_v=None), None
        outcome = replace(outcome, on_v=solution.on_v(outcome))
        if stated and outcome.on_v is not None:
            outcome = replace(outcome, on_v=replace(outcome.on_v, share=1.0, belief=1.0, stated=True))
        if outcome.on_v is None or not outcome.on_v.goes_with:
            return outcome, None
        return outcome, solution.variates(outcome.rows, outcome.on_v.beside)

    def calibrate(self, outcome: Outcome, component: object = None, *, penalised: bool = False) -> Coefficients:
        """Coefficients of an outcome on a component: see :meth:`ContrastiveRCA.calibrate`. Of one with log-odds on
        :meth:`stand_in` these are calibrated, instead of least squares.

        penalised : the caller will use a penalty; else, with no more samples than coefficients, this refuses.
        """
        solution, key = self.solved_for(component)
        if not penalised and outcome.log_odds is None:
            solution.check_determined(key, len(self.design.known))
        return solution.calibrate(key, outcome)  # type: ignore[no-any-return]

    def outcome_test(self, outcome: Outcome, component: object = None) -> Test:
        return outcome_test(outcome, self.solution.outside(self.key(component)), self.lost)

    def through_shared(self, values: Array, coef: Array, component: object = None) -> Array:
        """coef'S2 (n,), centred, of the part that two views share besides hidden classes; coef (d,) : in the columns of the
        component's view."""
        _, shared, own_v = self.solution.keys
        predicted = self.solution.predict(shared, self.centred(values))[0]
        return np.asarray((self.solution.through_A(predicted) if self.key(component) == own_v else predicted) @ coef)

    def component_on_rows(self, of: Outcome | Array, component: object = None, groups: object = None) -> Component:
        """The component with its higher cumulants read off these rows: see :meth:`ContrastiveRCA.component_on_rows`."""
        key = self.key(component)
        z, terms = self.solution.on_rows(key, self._rows(of))
        blocks = of.block if isinstance(of, Outcome) else block_numbers(len(z), self.n_blocks, groups)
        return replace(self.components[key], source=RowSource(z, blocks), terms=terms, _known={})

    def component_for_gradients(self, outcome: Outcome, component: object, order: int) -> Component:
        """The component with projected cumulants up to this order from where they are cheapest: the state that the fit kept,
        or the rows of an outcome, where the state is larger than these, does not reach so far, or was not kept."""
        kept, on_rows = self.components[self.key(component)], self.component_on_rows(outcome, component)
        assert on_rows.source is not None
        source = kept.source
        if source is None or source.max_order < order or source.cost(order) > on_rows.source.cost(order):
            return on_rows
        return kept

    def others(self, component: object = None) -> str:
        """The views where a component does not live, in words."""
        key, places = self.key(component), self.design.places()
        columns = set(self.solution.outside(key).tolist())
        words = "UV" if isinstance(key, str) else places
        return " and ".join(word for word, part in zip(words, places.values(), strict=True) if part.start in columns)

    def moment_draws(self, component: object, *, of_mean: bool) -> tuple[Draws, Draws, Array, float] | None:
        """Draws of a component's covariance (d, d), of the safe one and of the full one; changes of its mean without each
        block, (B, d); and the gate: all that a protected answer takes. None where only the jackknife tells.

        of_mean : whether the answer depends on the mean, which moves with A where that of another view's own part was given.
        """
        (solution, key), given = self.solved_for(component), set(self.mean or ())
        if of_mean and given - {key, *self.solution.keys[1:2]}:
            return None
        return solution.moment_draws(key, key in given)  # type: ignore[no-any-return]

    def first_rows(self, rows: Rows, most: int) -> tuple[dict[str, Array], Array, Array]:
        """The first of rows of the columns used, at most so many: those of each view (n, d) with nan where a value is missing,
        covariates (n, q), and the prediction of the default component (n, d), about its mean, nan where there is none."""
        values = np.array(rows.head(most), dtype=np.float64)
        values[~np.isfinite(values)] = np.nan
        filled, mean = self.filled(values), self.components[self.key(None)].mean
        whole = np.isfinite(filled).all(axis=1)
        own = np.full((len(values), len(mean)), np.nan)
        if whole.any():
            own[whole] = self.predict(filled[whole]) - mean
        views = {view: values[:, place] for view, place in self.design.places().items()}
        return views, values[:, len(self.design.columns) :], own

    def on_used_columns(self) -> Fitted:
        """The same of tables that hold the columns used, side by side, and no others."""
        own, width = len(self.design.columns), len(self.design.used)
        return replace(self, design=Design(self.design.side_by_side(), np.arange(own, width), (), (), width, False))

    def without_blocks(self) -> Iterator[tuple[int, Fitted]]:
        """Each block of samples, with the fit without it: refitted, or moved by one Newton step where that is known. None of
        views of which few directions were looked at."""
        for block in [] if self.solution.reduced_views else self.solution.blocks:
            yield block, self.without(block)


def _beside(of: Outcome | Array) -> int | None:
    """Variates of the other view that an outcome goes with."""
    return of.on_v.beside if isinstance(of, Outcome) and of.on_v is not None else None


def _with_classes(classes: HiddenClasses, width: int, rows: Array) -> Array:
    """The probabilities of hidden classes behind the columns that they are functions of; what follows these stays last."""
    return np.column_stack([classes(rows[:, :width]), rows[:, width:]])


def _variance_of_gaps(fill: Fill, rows: Array, maps: Array) -> Array:
    """(n, d): variance that gaps of rows (n, p) add to the predictions rows @ maps, (p, d)."""
    out = np.zeros((len(rows), maps.shape[1]))
    for pattern, at in patterns_of(np.isfinite(rows)):
        if not pattern.all():
            out[at] = np.maximum(np.einsum("pd,pq,qd->d", maps, fill.error(pattern), maps), 0.0)
    return out
