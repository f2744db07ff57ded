"""Effects of exposures under hidden confounding, given negative controls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components.wide import Factored
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.rows import Rows
from richcomponents.effects.answer import MEANINGS, ExposureAnswer
from richcomponents.effects.checks import agreement, agreement_without_each, checks
from richcomponents.effects.estimate import FEWEST_CONTROLS, Problem
from richcomponents.effects.moments import Coordinates, Sums
from richcomponents.errors import (
    DataError,
    MissingValueWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    constants_told_later,
    warn_user,
)
from richcomponents.inference.posterior import Posterior
from richcomponents.inference.verdicts import Test, Verdict, verdict
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.design import Design, UsedColumns, including_views
from richcomponents.models.estimator import Estimator
from richcomponents.models.exposures import Exposures, named_exposures, place, read_exposures
from richcomponents.models.general import RCA
from richcomponents.moments import Moments, block_numbers
from richcomponents.moments.available import Available
from richcomponents.moments.data import Data
from richcomponents.notebook import Summary, Table
from richcomponents.pair.cumulants import CrossCumulants
from richcomponents.pair.solution import PairSolution
from richcomponents.plots import control_plot, estimate_plot, sensitivity_plot, volcano_plot
from richcomponents.storage import storable
from richcomponents.text import page

MOST_COMPARED = 120
"""Columns up to which all are compared with each other: equations between own parts are half the square of their number."""

_LONGEST, _CLEAREST = 4000, 20  # characters of a recipe; effects that a summary shows
_NOTHING = 1e-9  # of the variance of an exposure


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Effects(Estimate):
    """Effects of one exposure, column by column: an Estimate with false discovery rates."""

    def _cells(self) -> list[list[str]]:
        """What is read first: a table no wider than a terminal."""
        head, *rows = super()._cells()
        at = [head.index(title) for title in ("", "estimate", "adjusted", "naive", head[-1], "p", "q") if title in head]
        return [[row[i] for i in at] for row in [head, *rows]]

    def _table(self) -> dict[str, Array]:
        table = super()._table()
        at = list(table).index("p") + 1
        return {**dict(list(table.items())[:at]), "q": self.q_value, **dict(list(table.items())[at:])}


class ExposureEffects(Estimator):
    """Does an exposure change U when something hidden goes with it, given negative controls V?

    U = alpha e + S1 + S2 and V = A S2 + S3: V are columns that the exposure e does not change but the hidden S2 disturbs. The
    controls as covariates (analysis of covariance) leave a bias, because they are noisy; this knows how noisy they are. It
    moves from the analysis of covariance towards the corrected estimate as far as the data, and the controls themselves when
    each is held out, support that (see effects/estimate.py).

    Parameters
    ----------
    rca : ContrastiveRCA or RCA
        Which columns are U and V, and known covariates. Cloned and fitted to what the exposures leave. Of more than two views
        (an RCA) two are made: tests U and controls V, see `component`.
    exposure : name or list of names, optional
        Columns of X that hold exposures (numbers, for a table without names), instead of y: for files, dask tables, states.
    reference : optional
        Of classes: the one that others are compared with. By default the one whose name says so (control, no, healthy, ...).
    component : optional
        What the exposure changes: "S1" (the first view, by default) or "S3" (the second) of a ContrastiveRCA, or a subset of
        the views of an RCA. Tests are the columns that the component is written in (of a subset: those of its first view),
        controls all views where it does not live; a component that lives in all views leaves no controls.
    instruments : name or list of names, optional
        Columns of X, of no view, that go with what is hidden and act on the tests only through it or through the exposure
        (exposure controls of proximal inference, a second assay, a genotype). They tell how noisy the controls are whatever
        the distribution of what is hidden.
    share : "auto" or a number from 0 to 1
        Of the correction: 0 is the controls as covariates, 1 the full correction. By default what the data support.

    Attributes
    ----------
    effects_ : Effects, or dict of Effects by exposure when there are several
        Per column of U: estimate, naive and adjusted (controls as covariates), standard error, limits, p, q, identified set.
    coef_, adjusted_, naive_ : array (d_u,), or (exposures, d_u)
    control_effects_ : Estimate or dict
        What controls get when each is held out and its effect estimated from the others: zero in truth. None if fewer than 4.
    controls_ : list of dict
        Per control and exposure: held-out effect, its error and p value; "p of the others", the test that the controls agree
        without it, which is small unless this is the one that the exposure changes; how far the effects on U move without it.
    tests_ : list of Test, or dict of lists by exposure
        All that the estimate rests on; the worst finding is the verdict.
    verdict_, verdicts_ : strong, weak, not checked, not identified, contradicted or nothing shared; by exposure.
    rank_effects_ : {rank: array like coef_}
        At one shared direction fewer and more.
    rank_ : hidden directions.
    rho_ : array (exposures,), the share of the correction.
    exposures_, notes_, rca_

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
        self,
        rca: Any = None,
        exposure: object = None,
        reference: object = None,
        component: object = None,
        instruments: object = None,
        share: Any = "auto",
    ) -> None:
        self.rca = rca
        self.exposure = exposure
        self.reference = reference
        self.component = component
        self.instruments = instruments
        self.share = share

    # ---- fitting

    def fit(
        self,
        X: object,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        progress: bool = False,
    ) -> Self:
        """Fit to one table (or a state) whose columns are U, V, known covariates and, where they are named, exposures.

        y : (n,) or (n, q), exposures in memory: numbers, or classes; or the name (a list of names) of columns of X. X,
        groups, sample_weight, progress : as in :meth:`ContrastiveRCA.fit`; X may also be a state of
        :class:`Moments`, of several sites for example.
        """
        model = self._model()
        if isinstance(X, Moments):
            self._set_features(X.layout.n_columns, X.names)
        found, table, design, groups, sample_weight = self._read(model, X, y, groups, sample_weight, reset=True)
        reading: dict[str, Any] = {"groups": groups, "progress": progress}
        found.check_names(design)
        model.set_params(
            views={name: design.views[name].tolist() for name in design.views},
            covariates=[*design.known.tolist(), *found.columns],
        )
        if isinstance(table, Rows):
            regressors, used = len(model.covariates), np.concatenate([design.used, found.columns])
            if table.n_rows is not None and table.n_rows <= regressors + 2:
                raise DataError(
                    f"n_samples = {table.n_rows} is too few for {regressors} exposures and covariates: use fewer of them, or "
                    "more rows"
                )
            table = table if sample_weight is None else table.weighted_by(sample_weight)
            if table.rereadable:
                table, reading["groups"], _ = model.without_gaps(table, used, design, table.group_labels(groups))
                groups, reading["design"] = reading["groups"], found.among(design)
            else:  # one pass is all there is: sums suffice, of the columns that are used
                with constants_told_later():
                    table = Moments.of(table.select(used), 4, n_blocks=model.n_blocks, **reading)
                found = replace(found, columns=tuple(range(len(design.used), len(used))))
                model.set_params(views=design.places(), covariates=list(range(len(design.columns), len(used))))
        reading = {} if isinstance(table, Moments) else reading
        data = model.fit_data(table, quiet=True, **reading)  # effects have a verdict of their own
        if not isinstance(model.solution_, PairSolution):
            raise DataError('effects need ContrastiveRCA(method="efficient")')
        levels = tuple(f"Covariate {one}." for one in design.levels())
        self.rca_, self.exposures_, self.notes_ = model, found.names, (*found.notes, *levels)
        self._solve(self._problem(data, table, found, groups))
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state of order four: sums suffice, also those of several sites."""
        return self.fit(moments)

    def _read(
        self, model: ContrastiveRCA, X: Any, y: Any, groups: Any = None, weight: Any = None, *, reset: bool
    ) -> tuple[Exposures, Rows | Moments, Design, Any, Any]:
        """Exposures, the table and its design, groups and weights: of the rows that have an exposure."""
        _, named = named_exposures(y, self.exposure)
        X, y, groups, weight = model.present(X, y, groups, weight, columns=named, role="exposure")
        opened = X if isinstance(X, Moments) else including_views(self._open(X, reset=reset), model.views)
        found = read_exposures(opened, y, self.exposure, self.reference)
        return found, *self._two_views(found, model), groups, weight

    def _model(self) -> ContrastiveRCA:
        if not isinstance(self.rca, (ContrastiveRCA, RCA)):
            raise DataError("rca= says which columns are tests and controls: give rca=ContrastiveRCA(views=...)")
        if getattr(self.rca, "A", None) is not None:
            raise DataError("effects estimate A themselves: leave out A=")
        if getattr(self.rca, "classes", "auto") not in ("auto", "none"):
            raise DataError("effects leave hidden classes in the shared part: leave out classes=")
        model = clone(self.rca)
        if isinstance(model, ContrastiveRCA):
            return model.set_params(classes="none")
        shared = ("views", "method", "covariates", "n_blocks", "random_state", "missing")
        return ContrastiveRCA(**{name: getattr(model, name) for name in shared}, classes="none")

    def _two_views(self, found: Exposures, model: ContrastiveRCA) -> tuple[Rows | Moments, Design]:
        """The table and its design with tests and controls as the two views: of more, those that `component` makes."""
        table, design = model.lay_out(found.table, found.columns)
        names = design.views.names
        if isinstance(self.rca, ContrastiveRCA) and len(names) != 2:
            return table, design  # refused by the model, in its own words
        tests, _, controls = self.rca.sides(self.component, names)
        if not controls:
            raise DataError(
                f"component {self.component!r} lives in all views, so that none is left as controls: name a component that "
                "some view does not have"
            )
        behind = self._instruments(found, design)
        if [tests, *controls] == list(names) and len(names) == 2 and not behind:
            return table, design
        columns = [column for view in controls for column in design.views[view].tolist()]
        chosen = {tests: [*design.views[tests].tolist(), *behind], " and ".join(controls): columns}
        return model.lay_out(found.table, found.columns, chosen)

    def _instruments(self, found: Exposures, design: Design) -> list[int]:
        """Their columns."""
        table, wanted = found.table, self._instrument_names()
        width = table.layout.n_columns if isinstance(table, Moments) else table.width
        behind = [place(column, width, table.names, "instrument") for column in wanted]
        taken: dict[str, Any] = {
            "a view": design.columns,
            "the covariates": design.known,
            "the exposures": found.columns,
        }
        for column, number in zip(wanted, behind, strict=True):
            for role, columns in taken.items():
                if number in columns:
                    raise DataError(f"column {column!r} is an instrument and also in {role}: name it once")
        return behind

    def _instrument_names(self) -> list[Any]:
        named: Any = self.instruments
        return [] if named is None else [named] if isinstance(named, (str, int, np.integer)) else list(named)

    def _problem(self, data: Data, table: Rows | Moments, found: Exposures, groups: object) -> Problem:
        """All that the estimate is a function of: second moments by block, and what the solution knows of the views."""
        model, lost, solution = self.rca_, data.lost, self.rca_.solution_
        u, v, others, views = model.views_[0], model.views_[1], model.covariates_, solution.canonical
        paired, many_u, many_v = (
            len(views.correlations),
            *(isinstance(C, Factored) for C in (solution.cov_u, solution.cov_v)),
        )
        coordinates = on_u, on_v = (
            Coordinates(views.x_from_u[:paired], views.u_from_x[:, :paired])
            if many_u or len(u) + len(v) > MOST_COMPARED
            else Coordinates.of_columns(np.asarray(solution.cov_u)),
            Coordinates(views.y_from_v, views.v_from_y)
            if many_v
            else Coordinates.of_columns(np.asarray(solution.cov_v)),
        )
        columns, known = np.concatenate([u, v, others]), len(others) - len(found.columns)
        chosen: Any = table.select(columns)
        if isinstance(data, Available) and data.origin is not None and not isinstance(table, Moments):
            chosen = data.origin.moments(2)
        elif not isinstance(chosen, Moments) and not many_u and not many_v:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                chosen = Moments.of(chosen, 2, n_blocks=model.n_blocks, groups=groups)
        if isinstance(chosen, Moments):
            sums = Sums.of_state(chosen, coordinates, known, lost)
        else:
            rows = chosen.array()
            weight = rows[:, -1] if chosen.weighted else np.ones(len(rows))
            blocks = block_numbers(len(rows), model.n_blocks, groups)
            sums = Sums.of_rows(rows[:, : len(columns)], coordinates, known, weight, blocks, lost)
        self._check_exposures(sums)
        r, (given, blocks_left) = solution.pair.corrected, sums.given()
        return Problem(
            given=given,
            blocks=blocks_left,
            views=coordinates,
            n=views.n,
            counts=sums.n,
            grams=solution.grams_xy,
            from_z=(on_u.to @ views.u_from_x[:, :r], on_v.to @ views.v_from_y[:, :r]),
            tests=len(u) - len(self._instrument_names()),
            found=solution.rank,
            rows=solution.n - solution.lost,
            share=self._share(),
        )

    def _share(self) -> float | None:
        share = self.share
        if share == "auto":
            return None
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)) or not 0 <= share <= 1:
            raise ValueError(f"share must be 'auto' or a number from 0 to 1, got {share!r}")
        return float(share)

    def _solve(self, problem: Problem) -> None:
        solution, wanted = self.rca_.solution_, self.rca_.rank
        fit = problem.fit(None if wanted == "auto" else solution.rank)
        self._found = found = problem.estimate(fit)
        self._tests_of_u, self.rank_, self.rho_ = problem.tests, found.rank, found.share
        others = {found.rank: found.value}
        for r in (found.rank - 1, found.rank + 1):
            if found.rank and 1 <= r <= len(solution.canonical.correlations):
                others[r] = problem.estimate(problem.fit(r)).value
        self.rank_effects_ = {r: self._shaped(effects) for r, effects in sorted(others.items())}
        self.coef_, self.adjusted_, self.naive_ = map(self._shaped, (found.value, found.adjusted, found.naive))
        agree = agreement(problem, solution.canonical, found.rank)
        self._without = agreement_without_each(problem, solution.canonical, found.rank)
        names, structure = self.rca_.names_of(1), _structure(fit.known.posterior)
        self._tests = {
            name: checks(problem, found, fit.known, solution.canonical, agree[i], i, names, structure)
            for i, name in enumerate(self.exposures_)
        }
        self._tell()

    def _check_exposures(self, sums: Sums) -> None:
        """Refuse exposures that are functions of the covariates, and columns that are functions of the exposures."""
        if len(explained := self.rca_.explained_columns_):
            column = self.rca_.views_.describe(int(explained[0]))
            raise DataError(
                f"{column} is an exact function of the exposures and covariates: is it the exposure itself? Take it out of the "
                "views"
            )
        for name, left in zip(self.exposures_, sums.left_of_exposures(), strict=True):
            if left < _NOTHING:
                raise DataError(
                    f"the exposure {name!r} is an exact function of the covariates or of other exposures: nothing is left to "
                    "compare. Is it one of the covariates?"
                )

    # ---- answers

    def _shaped(self, values: Array) -> Array:
        """(p, q) -> of the tests (d,) for one exposure, (q, d) for several."""
        mine = values[: self._tests_of_u].T
        return np.asarray(mine[0] if len(self.exposures_) == 1 else mine)

    def _by_exposure(self, make: Callable[[int], Any]) -> Any:
        made = {name: make(i) for i, name in enumerate(self.exposures_)}
        return made if len(made) > 1 else next(iter(made.values()))

    @property
    def effects_(self) -> Any:
        """Effects per column of U; of several exposures a dict of them."""
        return self._by_exposure(self._effects)

    def effect_table(self) -> Table:
        """All effects in one long table, a row per column of U and exposure, as `rca effects --out` writes it; its `to_frame()`
        is a data frame."""
        return Table(row for answer in self.answers() for row in answer.rows())

    def _effects(self, i: int) -> Effects:
        found, d = self._found, self._tests_of_u
        varies = found.error[:d, i] > 0  # a constant test has no effect, and none that could be tested

        def where(part: Array, otherwise: float = 0.0) -> Array:
            return np.where(varies, part[:d, i], otherwise)

        return Effects(
            where(found.value),
            where(found.error, np.nan),
            where(found.degrees, 1.0),
            names=self.rca_.components_["S1"].feature_names[:d],
            others={"naive": where(found.naive), "adjusted": where(found.adjusted)},
            identified=(where(found.low), where(found.high)),
            set_limits=False,
        )

    @property
    def control_effects_(self) -> Any:
        """What held-out controls get: zero in truth; None with fewer than four."""
        return self._by_exposure(self._control_effects) if self._held_out else None

    @property
    def _held_out(self) -> bool:
        return bool(np.isfinite(self._found.controls).any())

    def _control_effects(self, i: int) -> Estimate:
        found, names = self._found, self.rca_.names_of(1)
        value, error, others = found.controls[:, i], found.controls_error[:, i], found.controls_adjusted[:, i]
        degrees = np.full(len(value), found.blocks - 1.0)
        return Estimate(value, error, degrees, names=names, others={"adjusted": others})

    @property
    def controls_(self) -> Table:
        """Per control and exposure: held-out effect, error, p; p of the test that the controls agree, without it; and how far
        effects on U move without it."""
        rows = Table()
        for i, exposure in enumerate(self.exposures_ if self._held_out else ()):
            seen = self._control_effects(i)
            parts = {
                "held-out effect": seen.value,
                "standard error": seen.standard_error,
                "p": seen.p_value,
                "p of the others": self._without[:, i],
                "effects move without it": self._found.moved[:, i],
            }
            for j, name in enumerate(seen.names):
                numbers = {title: float(part[j]) for title, part in parts.items()}
                rows.append({"control": name, "exposure": exposure, **numbers})
        return rows

    @property
    def tests_(self) -> Any:
        """All tests, by exposure if there are several."""
        return self._by_exposure(lambda i: list(self._tests[self.exposures_[i]]))

    @property
    def verdicts_(self) -> dict[str, Verdict]:
        """By exposure: the worst finding of its tests."""
        return {name: verdict(tests) for name, tests in self._tests.items()}

    @property
    def verdict_(self) -> Verdict:
        """The worst of the exposures' verdicts."""
        return verdict(test for tests in self._tests.values() for test in tests)

    def _tell(self) -> None:
        """Warn of what makes the numbers doubtful."""
        for answer in self.answers():
            of, word = f"effects of {answer.exposure}", answer.verdict
            if word in (Verdict.NOT_IDENTIFIED, Verdict.NOTHING_SHARED):
                warn_user(f"{of}: {word}. {MEANINGS[word]}", WeakIdentificationWarning)
            if answer.alarm:
                warn_user(f"{of}: {answer.alarm}".removesuffix("."), SpecificationWarning)

    def rows_of_rca(self, X: object, y: object, most: int) -> Rows | None:
        """The first rows of X, at most so many, in the columns that the RCA inside was fitted to, exposures (of X, or y) last;
        None where they can be read once only."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingValueWarning)  # the fit counted them
            found, table, design, *_ = self._read(self._model(), X, y, reset=False)
        if not isinstance(table, Rows) or not table.rereadable:
            return None
        return Rows(UsedColumns(table.select(np.concatenate([design.used, found.columns])).head(most)))

    def recipe(self) -> str:
        """What to type for the same fit; empty where that would be pages of column names."""
        whole: Any = self.__repr__
        model = whole(N_CHAR_MAX=_LONGEST).replace("rca=", "rca=rc.")
        given = "X, y" if self.exposure is None else "X"
        told = f'import richcomponents as rc\n\nmodel = rc.{model}.fit({given})\nrc.write_report("report.html", model, {given})'
        return "" if "..." in model else told

    def answers(self) -> tuple[ExposureAnswer, ...]:
        """What is to be said about each exposure: what a report shows."""
        return tuple(self._answer(i, name) for i, name in enumerate(self.exposures_))

    def _answer(self, i: int, name: str) -> ExposureAnswer:
        word = self.verdicts_[name]
        return ExposureAnswer(
            exposure=name,
            verdict=word,
            tests=self._tests[name],
            effects=self._effects(i),
            hidden=self._control_effects(i) if self._held_out else None,
            controls=Table(row for row in self.controls_ if row["exposure"] == name),
            rank=self.rank_,
            share=float(self.rho_[i]),
            ranks={r: np.atleast_2d(effects)[i] for r, effects in self.rank_effects_.items()},
            path=self._path(i),
            steps=tuple(self.rca_.next_steps()) if word in (Verdict.WEAK, Verdict.NOT_IDENTIFIED) else (),
        )

    def summary(self) -> Summary:
        """A page of text (a table and few words, in a notebook): the verdict, the effects, the controls, what to do."""
        views, n, answers = self.rca_.views_, self.rca_.n_samples_, self.answers()
        head = f"Effects on {views.names[0]} ({self._tests_of_u} columns), {len(views[1])} controls, {n} rows"
        lines = [head, *self.notes_]
        for answer in answers:
            first, *rest = answer.says()
            lines += ["", f"{answer.exposure}: {answer.verdict}. {first}", *rest, "", str(_largest(answer.effects))]
        lines += ["", "Held-out controls (their effects are zero in truth):"] if self._held_out else []
        for i in range(len(answers)) if self._held_out else ():
            lines += [f"{self.exposures_[i]}:"] if len(answers) > 1 else []
            lines += [str(_largest(self._control_effects(i)))]
        says = [f"{one.exposure}: {said}" if len(answers) > 1 else said for one in answers for said in one.says()]
        tables = [answer.compact(_CLEAREST) for answer in answers]
        return Summary(page(lines), verdict=str(self.verdict_), says=[*says, *self.notes_], tables=tables)

    def plot(self, what: str = "forest", *, exposure: str | None = None, ax: Any = None) -> Any:
        """Draw the effects of one exposure (matplotlib); returns the Axes.

        what : "forest" (effects, limits and identified sets of the largest), "volcano" (effects against p values), "controls"
        (what they get when held out), "sensitivity" (all effects that the noise of the controls allows, from none to all).
        """
        name = self.exposures_[0] if exposure is None else exposure
        if name not in self.exposures_:
            raise ValueError(f"exposure must be one of {', '.join(map(repr, self.exposures_))}, got {exposure!r}")
        i, title = self.exposures_.index(name), f"Effects of {name}"
        if what == "forest":
            return estimate_plot(self._effects(i), title=title, label="effect", ax=ax)
        if what == "volcano":
            return volcano_plot(self._effects(i), title=title, ax=ax)
        if what == "controls":
            if not self._held_out:
                raise ValueError(f"no control was held out: that needs {FEWEST_CONTROLS} of them, and something shared")
            title = "Your controls, each held out and treated as a test"
            return control_plot(self._control_effects(i), title=title, ax=ax)
        if what == "sensitivity":
            title = f"If the controls were noisier: {name}"
            return sensitivity_plot(self._effects(i), self._path(i), title=title, ax=ax)
        raise ValueError(f"what must be 'forest', 'volcano', 'controls' or 'sensitivity', got {what!r}")

    def _path(self, i: int) -> tuple[Array, Array, Array, float]:
        """Shares t (k,) from 0 to 1; lower and upper ends (k, d) of the effects over all 0 <= T <= t I; and the t below which
        the estimate lies: at t = 0 the adjusted effects, at t = 1 the identified sets."""
        found, at, d = self._found, np.linspace(0, 1, 21), self._tests_of_u
        start = (found.adjusted if found.rank else found.naive)[:d, i]
        low, high = (start + at[:, None] * (end[:d, i] - start) for end in (found.low, found.high))
        return at, low, high, float(found.noise[i])


def _largest(found: Estimate, most: int = _CLEAREST) -> Any:
    """The entries that stand out most, where there are many."""
    if len(found.value) <= most:
        return found
    rows = np.sort(np.argsort(np.nan_to_num(found.p_value, nan=1.0), kind="stable")[:most])
    return f"{found.take(rows)}\n... the {most} smallest p of {len(found.value)}: to_frame() has all"


def _structure(posterior: Posterior) -> Test | None:
    """The test that cross-cumulants have the structure of the model; None where they say nothing."""
    test = posterior.tests.get(CrossCumulants.name)
    if test is None:
        return None
    says = f"the model of two views fits ({test.p_text})"
    if test.finding != Verdict.STRONG:
        says = f"the model of two views does not fit ({test.p_text}): something else is shared, or parts depend on each other"
    return replace(test, says=says)
