"""Effects of exposures under hidden confounding, given negative controls."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from richcomponents.components.wide import Factored
from richcomponents.data.design import Design, including_views, names_columns, place
from richcomponents.data.rows import Rows
from richcomponents.effects.answer import MEANINGS, ExposureAnswer
from richcomponents.effects.estimate import FEWEST_CONTROLS, Problem, tested
from richcomponents.effects.moments import Coordinates, second_moments, unexplained
from richcomponents.errors import DataError, SpecificationWarning, WeakIdentificationWarning, warn_user
from richcomponents.inference.verdicts import Verdict, verdict
from richcomponents.models import RCA, ContrastiveRCA
from richcomponents.models.estimator import (
    Estimator,
    Sample,
    complete_rows,
    laid_out,
    present,
    say_dropped,
    taken,
)
from richcomponents.models.exposures import Exposures, listed_names, read_exposures
from richcomponents.models.rca import fit_rca
from richcomponents.moments import Moments, block_numbers
from richcomponents.moments.available import Available
from richcomponents.moments.data import Data, RowData, equivalent_rows
from richcomponents.notebook import Summary, Table
from richcomponents.plots import control_plot, estimate_plot, sensitivity_plot, volcano_plot
from richcomponents.text import counted, page

MOST_COMPARED = 120
"""Columns up to which all are compared with each other: equations between own parts are half the square of their number."""


class ExposureEffects(Estimator):
    """Does an exposure change U when something hidden goes with it, given negative controls V?

    U = alpha e + S1 + S2 and V = A S2 + S3: V are columns that the exposure e does not change but the hidden S2 disturbs. They
    are noisy, so that taking them as covariates leaves a bias. The estimate goes from there towards the corrected one as far as
    the data, and the controls themselves when each is held out, support that.

    Parameters
    ----------
    rca : ContrastiveRCA or RCA
        Which columns are U and V, and known covariates. Cloned and fitted to what the exposures leave.
    exposure : name or list of names, optional
        Columns of X that hold exposures (numbers, for a table without names), instead of y: for files, dask tables, states.
    reference : optional
        Of classes: the one that others are compared with. By default the one whose name says so (control, no, healthy, ...).
    component : optional
        What the exposure changes: "S1" (the first view, by default) or "S3" (the second) of a ContrastiveRCA, or a subset of
        the views of an RCA. Tests are the columns that the component is written in (of a subset: those of its first view),
        controls all views where it does not live.
    instruments : name or list of names, optional
        Columns of X, of no view, that go with what is hidden and act on the tests only through it or through the exposure:
        they tell how noisy the controls are whatever the distribution of what is hidden.
    share : "auto" or a number from 0 to 1
        Of the correction: 0 is the controls as covariates, 1 the full correction. By default what the data support.

    Attributes
    ----------
    effects_ : Effects, or dict of Effects by exposure when there are several
        Per column of U: estimate, naive and adjusted (controls as covariates), standard error, limits, p, q, identified set.
    coef_, adjusted_, naive_ : array (d_u,), or (exposures, d_u)
    control_effects_ : Estimate or dict
        What controls get when each is held out and its effect estimated from the others: zero in truth. None if fewer than 4.
    controls_ : Table
        Per control and exposure: held-out effect, its error and p value; "p of the others", the test that the controls agree
        without it, which is small unless this is the one that the exposure changes; how far the effects on U move without it.
    tests_ : list of Test, or dict of lists by exposure
        All that the estimate rests on. The worst finding is the verdict_ (of all exposures; verdicts_ : by exposure).
    rank_effects_ : {rank: array like coef_}, at one shared direction fewer and more.
    rank_ : hidden directions; rho_ : array (exposures,), the share of the correction; exposures_, notes_, rca_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA, datasets
    >>> data = datasets.make_confounded(2000, random_state=1)
    >>> model = ExposureEffects(rca=ContrastiveRCA(views=6)).fit(data.X, data.y)
    >>> error = lambda effects: float(np.mean((effects - data.effects) ** 2))
    >>> error(model.coef_) < error(model.adjusted_) < error(model.naive_)
    True
    """

    def __init__(
        self, rca: Any = None, exposure: object = None, reference: object = None, component: object = None,
        instruments: object = None, share: Any = "auto",
    ) -> None:  # fmt: skip
        self.rca = rca
        self.exposure = exposure
        self.reference = reference
        self.component = component
        self.instruments = instruments
        self.share = share

    # ---- fitting

    def fit(
        self, X: object, y: object = None, groups: object = None, sample_weight: object = None, *, progress: bool = False,
    ) -> Self:  # fmt: skip
        """Fit to one table (or a state) whose columns are U, V, known covariates and, where they are named, exposures.

        y : (n,) or (n, q), exposures in memory: numbers, or classes; or the name (a list of names) of columns of X. X,
        groups, sample_weight, progress : as in :meth:`ContrastiveRCA.fit`; X may also be a state, of several sites for example.
        """
        model = self._model()
        if isinstance(X, Moments):
            self._set_features(X.layout.n_columns, X.names)
        found, table, design, groups, sample_weight = self._read(model, X, y, groups, sample_weight, reset=True)
        extended = found.among(design)
        views = {name: one.tolist() for name, one in design.views.columns.items()}
        model.set_params(views=views, covariates=extended.known.tolist())
        n, q = getattr(table, "n_rows", None), len(extended.known)
        if n is not None and n <= q + 2:
            raise DataError(f"n_samples = {n} is too few for {q} exposures and covariates")
        # effects have a verdict of their own
        reading: dict[str, Any] = {"sample_weight": sample_weight, "design": extended, "progress": progress}
        data, _, sample = fit_rca(model, table, groups=groups, quiet=True, **reading)
        if not model.solution_.infers_T:
            raise DataError('effects need ContrastiveRCA(method="efficient")')
        left: Any = model.fitted_.partial
        for column in design.columns[left.explained & (left.variances > 0)][:1]:
            what = model.views_.describe(int(column))
            raise DataError(f"{what} is an exact function of the exposures and covariates: take it out of the views")
        self.rca_, self.exposures_, self.notes_ = model, found.names, (*found.notes, *design.covariate_notes())
        return self._solve(self._problem(data, sample))

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state of order four: sums suffice, also those of several sites."""
        return self.fit(moments)

    def _model(self) -> ContrastiveRCA:
        """Unfitted; refuses impossible parameters before any sample is read."""
        share = self.share
        if not isinstance(self.rca, (ContrastiveRCA, RCA)):
            raise DataError("rca= says which columns are tests and controls: give rca=ContrastiveRCA(views=...)")
        if getattr(self.rca, "A", None) is not None:
            raise DataError("effects estimate A themselves: leave out A=")
        if getattr(self.rca, "classes", "auto") not in ("auto", "none"):
            raise DataError("effects leave hidden classes in the shared part: leave out classes=")
        if share != "auto" and (isinstance(share, bool) or not isinstance(share, Real) or not 0 <= float(share) <= 1):
            raise ValueError(f"share must be 'auto' or a number from 0 to 1, got {share!r}")
        model = clone(self.rca)
        if isinstance(model, ContrastiveRCA):
            return model.set_params(classes="none")
        shared = ("views", "method", "covariates", "n_blocks", "random_state", "missing")
        return ContrastiveRCA(**{name: getattr(model, name) for name in shared}, classes="none")

    def _read(
        self, model: ContrastiveRCA, X: Any, y: Any, groups: Any = None, weight: Any = None, *, reset: bool
    ) -> tuple[Exposures, Rows | Moments, Design, Any, Any]:
        """Exposures, the table and its design with tests (instruments behind them) and controls as the two views, groups and
        weights: of the rows that have an exposure."""
        named = listed_names(self.exposure)
        if (y is None) == (not named):
            both = "" if y is None else ", not both"
            raise DataError(
                f"give the exposure as y, fit(X, y), or name the column of X that holds it, ExposureEffects(exposure=...){both}"
            )
        X, y, groups, weight = present(model, X, y, groups, weight, columns=named, role="exposure")
        opened = X if isinstance(X, Moments) else including_views(self._open(X, reset=reset), model.views)
        found = read_exposures(opened, y, named, self.reference)
        table, design = laid_out(model, found.table, found.columns)
        instruments = [place(found.table, one, "the instrument") for one in listed_names(self.instruments)]
        views, twice = design.views, {*design.used.tolist(), *found.columns} & {*instruments}
        if twice:
            one = views.feature_names[min(twice)]
            raise DataError(f"column {one!r} is an instrument and also in a view, a covariate or an exposure")
        if isinstance(self.rca, RCA) or len(views.names) == 2:  # else refused by the model, in its own words
            tests, _, controls = self.rca.sides(self.component, views.names)
            if not controls:
                raise DataError(f"component {self.component!r} lives in all views: name one that leaves controls")
            against = np.concatenate([views[one] for one in controls]).tolist()
            chosen = {tests: [*views[tests].tolist(), *instruments], " and ".join(controls): against}
            if instruments or list(chosen) != list(views.names):
                table, design = laid_out(model, found.table, found.columns, chosen)
        if model.missing == "drop" and isinstance(table, Rows) and table.rereadable:
            keep = complete_rows(table.select(np.concatenate([design.used, found.columns])))
            if not keep.all():  # classes are those of the rows that are left
                say_dropped(int(keep.sum()), len(keep))
                groups, weight = taken(groups, keep), taken(weight, keep)
                y = y if y is None or names_columns(found.table, y) else taken(y, keep)
                return self._read(model, self._open(X, reset=False).kept(keep), y, groups, weight, reset=False)
        return found, table, design, groups, weight

    def _problem(self, data: Data, sample: Sample) -> Problem:
        """All that the estimate is a function of: second moments by block, and what the solution knows of the views."""
        model, solution, found = self.rca_, self.rca_.solution_, self.rca_.solution_.canonical
        u, v, paired = model.views_[0], model.views_[1], len(found.correlations)
        tests, controls = model.fitted_.view_names.values()
        tests, q = tests[: len(u) - len(listed_names(self.instruments))], len(self.exposures_)
        wide_u, wide_v = (isinstance(cov, Factored) for cov in (solution.cov_u, solution.cov_v))
        on_u = Coordinates(found.x_from_u[:paired], found.u_from_x[:, :paired])
        on_v = Coordinates(found.y_from_v, found.v_from_y)
        if not (wide_u or wide_v) and (copies := model.fitted_.design.copies(data.moments(2))):
            raise DataError(
                f"{copies}: what the exposure changes in a test it changes in such a control, too: take it out of a view"
            )
        if not wide_v:
            on_v = Coordinates.of_columns(np.asarray(solution.cov_v))
        if not wide_u and len(u) + len(v) <= MOST_COMPARED:
            on_u = Coordinates.of_columns(np.asarray(solution.cov_u))
        elif len(tests) < len(u):
            raise DataError(f"instruments need at most {MOST_COMPARED} tests and controls: use fewer columns")
        table = chosen = sample.table
        if isinstance(data, Available) and data.origin is not None and not isinstance(table, Moments):
            chosen = data.origin.moments(2)
        elif isinstance(table, Rows) and not (table.held or wide_u or wide_v):
            chosen = RowData(table, model.n_blocks, sample.groups).moments(2)
        if isinstance(chosen, Moments):
            rows, weight, blocks = equivalent_rows(chosen)
        else:
            rows = chosen.array()
            rows, weight = (rows[:, :-1], rows[:, -1]) if chosen.weighted else (rows, np.ones(len(rows)))
            blocks = block_numbers(len(rows), model.n_blocks, sample.groups)
            counts = weight > 0  # what does not count may be anything, and fills no block
            rows, weight, blocks = rows[counts], weight[counts], blocks[counts]
        left = unexplained(rows[:, len(u) + len(v) :], weight)[-q:]
        if left.min() < 1e-9:  # but for rounding
            one = self.exposures_[np.argmin(left)]
            raise DataError(f"the exposure {one!r} is an exact function of the covariates or of other exposures")
        given = second_moments(rows, (on_u, on_v), len(model.fitted_.design.known) - q, weight, blocks, data.lost)
        share = None if self.share == "auto" else float(self.share)
        return Problem(*given, (on_u, on_v), solution, self.exposures_, tests, controls, share)

    def _solve(self, problem: Problem) -> Self:
        """The estimate, at one shared direction fewer and more as well, the tests, and what is to be said of each exposure."""
        model, most = self.rca_, len(self.rca_.solution_.canonical.correlations)
        fit = problem.fit(None if model.rank == "auto" else model.solution_.rank)
        rank = self.rank_ = fit.rank
        others = [r for r in (rank - 1, rank + 1) if rank and 1 <= r <= most]
        found = {rank: problem.estimate(fit)} | {r: problem.estimate(problem.fit(r)) for r in others}
        answers = []
        for i, answer in enumerate(tested(problem, fit, found[rank])):
            of, word, alarm = f"effects of {answer.exposure}", answer.verdict, answer.alarm
            short = fit.identified.finding != Verdict.STRONG and word in (Verdict.WEAK, Verdict.NOT_IDENTIFIED)
            steps = tuple(model.next_steps()) if short else ()  # of evidence on T
            answers.append(replace(answer, steps=steps, ranks={r: found[r][i].effects.value for r in sorted(found)}))
            if word in (Verdict.NOT_IDENTIFIED, Verdict.NOTHING_SHARED):
                warn_user(f"{of}: {word}. {MEANINGS[word]}", WeakIdentificationWarning)
            if alarm:
                warn_user(f"{of}: {alarm}".removesuffix("."), SpecificationWarning)
        self._answers, self.rho_ = tuple(answers), np.array([one.share for one in answers])
        self.effects_ = self._by_exposure([one.effects for one in answers])
        self.control_effects_ = self._by_exposure([one.hidden for one in answers]) if answers[0].hidden else None
        self.tests_ = self._by_exposure([list(one.tests) for one in answers])
        self.coef_ = self._by_exposure([one.effects.value for one in answers])
        self.adjusted_ = self._by_exposure([one.effects.others["adjusted"] for one in answers])
        self.naive_ = self._by_exposure([one.effects.others["naive"] for one in answers])
        self.rank_effects_ = {r: self._by_exposure([one.ranks[r] for one in answers]) for r in sorted(found)}
        return self

    def _by_exposure(self, parts: list[Any]) -> Any:
        """The part of the only answer; of several: (exposures, d_u) of arrays, else a dict by exposure."""
        if len(parts) == 1:
            return parts[0]
        return np.stack(parts) if isinstance(parts[0], np.ndarray) else dict(zip(self.exposures_, parts, strict=True))

    # ---- answers

    def answers(self) -> tuple[ExposureAnswer, ...]:
        """What is to be said about each exposure: what a report shows."""
        return self._answers

    def effect_table(self) -> Table:
        """All effects in one long table, a row per column of U and exposure, as `rca effects --out` writes it."""
        return Table(row for answer in self._answers for row in answer.rows())

    @property
    def controls_(self) -> Table:
        """A row per control and exposure: how it fares when it is held out, and left out."""
        return Table(row for answer in self._answers for row in answer.controls)

    @property
    def verdicts_(self) -> dict[str, Verdict]:
        """By exposure: the worst finding of its tests."""
        return {answer.exposure: answer.verdict for answer in self._answers}

    @property
    def verdict_(self) -> Verdict:
        """The worst of the exposures' verdicts."""
        return verdict(test for answer in self._answers for test in answer.tests)

    def rows_of_rca(self, X: object, y: object) -> Rows | None:
        """The rows of X in the columns that the RCA inside was fitted to, exposures (of X, or y) last; None of a state."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit counted missing values
            found, table, design, *_ = self._read(self._model(), X, y, reset=False)
        return table.select(np.concatenate([design.used, found.columns])) if isinstance(table, Rows) else None

    def recipe(self) -> str:
        """What to type for the same fit; empty where that would be pages of column names."""
        whole: Any = self.__repr__
        model, given = whole(N_CHAR_MAX=4000).replace("rca=", "rca=rc."), "X, y" if self.exposure is None else "X"
        code = f'import richcomponents as rc\n\nmodel = rc.{model}.fit({given})\nrc.write_report("report.html", model, {given})'
        return "" if "..." in model else code

    def summary(self) -> Summary:
        """A page of text (a table and few words, in a notebook): the verdict, the effects, the controls, what to do."""
        views, answers = self.rca_.views_, self._answers
        tests, controls = counted(answers[0].effects.names, "column"), len(views[1])
        about = f"Effects on {views.names[0]} ({tests}), {controls} controls, {self.rca_.n_samples_} rows"
        lines = [about, *self.notes_]
        tables = [one.effects.take(one.order()) for one in answers]
        for one, table in zip(answers, tables, strict=True):
            first, *rest = one.says()
            lines += ["", f"{one.exposure}: {one.verdict}. {first}", *rest, "", repr(table)]
            if one.hidden:
                lines += ["", "Held-out controls (their effects are zero in truth):", repr(one.hidden)]
        says = [f"{one.exposure}: {said}" if answers[1:] else said for one in answers for said in one.says()]
        return Summary(page(lines), verdict=str(self.verdict_), says=[*says, *self.notes_], tables=tables)

    def plot(self, what: str = "forest", *, exposure: str | None = None, ax: Any = None) -> Any:
        """Draw the effects of one exposure (matplotlib); returns the Axes.

        what : "forest" (effects, limits and identified sets of the largest), "volcano" (effects against p values), "controls"
        (what they get when held out), "sensitivity" (all effects that the noise of the controls allows, from none to all).
        """
        name = self.exposures_[0] if exposure is None else exposure
        if name not in self.exposures_:
            raise ValueError(f"exposure must be one of {', '.join(map(repr, self.exposures_))}, got {exposure!r}")
        one: Any = self._answers[self.exposures_.index(name)]
        match what:
            case "forest":
                return estimate_plot(one.effects, title=f"Effects of {name}", label="effect", ax=ax)
            case "volcano":
                return volcano_plot(one.effects, title=f"Effects of {name}", ax=ax)
            case "controls" if one.hidden is None:
                raise ValueError(f"no control was held out: that needs {FEWEST_CONTROLS} of them")
            case "controls":
                return control_plot(one.hidden, title="Your controls, each held out and treated as a test", ax=ax)
            case "sensitivity":
                return sensitivity_plot(one.effects, one.path, title=f"If the controls were noisier: {name}", ax=ax)
        raise ValueError(f"what must be 'forest', 'volcano', 'controls' or 'sensitivity', got {what!r}")
