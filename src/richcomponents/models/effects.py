"""Effects of exposures under hidden confounding, given negative controls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import linalg
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array, IntArray
from richcomponents.components.wide import Factored, search_space
from richcomponents.contrastive.effects import (
    GOES_WITH,
    HiddenControls,
    PairEffects,
    effects_of,
    left_out_tests,
    outside_test,
)
from richcomponents.contrastive.joint_factors import JointFactors
from richcomponents.contrastive.slopes import Products
from richcomponents.contrastive.solution import PairSolution, solve_pair
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.rows import Rows
from richcomponents.errors import (
    DataError,
    MissingValueWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    constants_told_later,
    warn_user,
)
from richcomponents.models.answers import MISFIT, ExposureAnswer
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.design import Design, UsedColumns, including_views
from richcomponents.models.estimator import Estimator
from richcomponents.models.exposures import Exposures, named_exposures, read_exposures
from richcomponents.models.general import RCA
from richcomponents.moments import Moments, block_numbers
from richcomponents.moments.available import Available
from richcomponents.moments.data import AffineMap, Data, RowData, StateData
from richcomponents.notebook import Summary, Table
from richcomponents.plots import control_plot, estimate_plot, sensitivity_plot, volcano_plot
from richcomponents.storage import storable
from richcomponents.text import page

FOLDS = 5
FEWEST_CONTROLS = 4
"""With fewer, none is hidden: too little would be left to estimate its effect from."""

_IN_MEMORY = 20_000  # rows above which controls are hidden in the state, not by reading rows again
_LONGEST = 4000  # characters of a recipe
_HELPED = ("weak", "not identified")  # verdicts that samples or controls may better
_CLEAREST = 20  # effects that a summary shows
_SUSPICIOUS = 0.001
_NOTHING = 1e-9  # of the variance of an exposure
_SUPPORTED = 0.35  # standard error of rho, from hidden controls alone, below which they count as evidence

VERDICTS = {
    "strong": "The data say how noisy the controls are, and nothing contradicts it.",
    "supported": "The data say little about how noisy the controls are, but controls that were hidden come out with no effect, "
    "as they should: they support the correction.",
    "weak": "The data say little about how noisy the controls are: how far the correction goes is in part an assumption.",
    "not identified": "The data do not say how noisy the controls are: each effect may lie anywhere in its identified set.",
    "contradicted": "Controls that were hidden come out with effects when the correction is made: the estimates stay near "
    "those adjusted for the controls.",
    "nothing to adjust": "The controls share nothing with the tests and do not go with the exposure: the effects are the "
    "unadjusted ones.",
    "not separable": "The controls go with the exposure in a way they do not share with the tests: either the exposure changes "
    "the controls, or what is hidden goes with the exposure so closely that nothing is left to compare (each lab saw one "
    "group).",
}

DISAGREEING = (
    "The controls contradict each other: the exposure seems to change some of them, or more is hidden than was found, and the "
    "effects may be off by as much."
)
"""What "weak" means where the data say how noisy the controls are, but the test of the controls rejects."""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Effects(Estimate):
    """Effects of one exposure, column by column: an Estimate with false discovery rates and calibrated errors.

    systematic : (d,), standard deviation of the error that hidden controls show beyond their standard errors; nan where there
    are too few controls to tell.
    """

    systematic: Array | None = None

    @property
    def calibrated(self) -> Estimate:
        """The same with the systematic error of hidden controls (an empirical null) added to the standard errors."""
        more = np.zeros_like(self.value) if self.systematic is None else np.nan_to_num(self.systematic)
        error = np.sqrt(self.standard_error**2 + more**2)
        return Estimate(self.value, error, self.degrees, names=self.names, level=self.level)

    def _cells(self) -> list[list[str]]:
        """What is read first: a table no wider than a terminal."""
        head, *rows = super()._cells()
        at = [head.index(title) for title in ("", "estimate", "adjusted", "naive", head[-1], "p", "q") if title in head]
        return [[row[i] for i in at] for row in [head, *rows]]

    def _table(self) -> dict[str, Array]:
        table, calibrated = super()._table(), self.calibrated
        after = {"q": self.q_value, "calibrated p": calibrated.p_value, "calibrated q": calibrated.q_value}
        places = list(table)
        at = places.index("p") + 1
        return {title: table.get(title, after.get(title)) for title in [*places[:at], *after, *places[at:]]}  # type: ignore[misc]


class ExposureEffects(Estimator):
    """Does an exposure change U when something hidden goes with it, given negative controls V?

    U = alpha e + S1 + S2 and V = A S2 + S3: V are columns that the exposure e does not change but the hidden S2 disturbs. The
    controls as covariates (analysis of covariance) leave a bias, because they are noisy; this knows how noisy they are. It
    moves from the analysis of covariance towards the corrected estimate as far as the data, and the controls themselves when
    they are hidden from it, support that (see contrastive/effects.py).

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

    Attributes
    ----------
    effects_ : Effects, or dict of Effects by exposure when there are several
        Per column of U: estimate, naive and adjusted (controls as covariates), standard error, limits, p, q, identified set.
    coef_, adjusted_, naive_ : array (d_u,), or (exposures, d_u)
    control_effects_ : Estimate or dict
        What controls get when they are hidden and their effects estimated from the others: zero in truth. None if fewer than 4.
    controls_ : list of dict
        Per control and exposure: hidden effect, its error and p value; "p of the others", the test of `outside_` without it,
        which is small unless this is the one that the exposure changes; how far the effects on U move without it.
    outside_ : dict of TestResult
        Per exposure: whether the controls go with it as the shared part does.
    rank_effects_ : {rank: array like coef_}
        At one shared direction fewer and more.
    rho_ : array (exposures,); from 0, the controls as covariates, to 1, the correction in full.
    shares_ : array (exposures, 2)
        What rho_ consists of: shares of the correction that cumulants tell, and of the one that joint factors tell where errors
        of columns do not depend on each other (contrastive/joint_factors.py).
    exposures_, notes_, verdict_, rca_

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
        self, rca: Any = None, exposure: object = None, reference: object = None, component: object = None
    ) -> None:
        self.rca = rca
        self.exposure = exposure
        self.reference = reference
        self.component = component

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
        _, named = named_exposures(y, self.exposure)
        X, y, groups, sample_weight = model.present(X, y, groups, sample_weight, columns=named, role="exposure")
        opened = X if isinstance(X, Moments) else including_views(self._open(X, reset=True), model.views)
        found = read_exposures(opened, y, self.exposure, self.reference)
        reading: dict[str, Any] = {"groups": groups, "progress": progress}
        table, design = self._two_views(found, model)
        found.check_names(design)
        model.set_params(
            views={name: design.views[name].tolist() for name in design.views},
            covariates=[*design.known.tolist(), *found.columns],
        )
        if isinstance(table, Rows):
            self._check_rows(table, len(model.covariates))
            table = table if sample_weight is None else table.weighted_by(sample_weight)
            if table.rereadable:
                used = np.concatenate([design.used, found.columns])
                table, reading["groups"], _ = model.without_gaps(table, used, design, table.group_labels(groups))
                groups, reading["design"] = reading["groups"], found.among(design)
            else:  # one pass is all there is: sums suffice, of the columns that are used
                used = np.concatenate([design.used, found.columns])
                with constants_told_later():
                    table = Moments.of(table.select(used), 4, n_blocks=model.n_blocks, **reading)
                found = replace(found, columns=tuple(range(len(design.used), len(used))))
                model.set_params(views=design.places(), covariates=list(range(len(design.columns), len(used))))
        reading = {} if isinstance(table, Moments) else reading
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", WeakIdentificationWarning
            )  # of coefficients; effects have a verdict of their own
            data = model.fit_data(table, **reading)
        if not isinstance(model.solution_, PairSolution):
            raise DataError('effects need ContrastiveRCA(method="efficient")')
        levels = tuple(f"Covariate {one}." for one in design.levels())
        self.rca_, self.exposures_, self.notes_ = model, found.names, (*found.notes, *levels)
        self._solve(data, self._products(data, table, found, groups))
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state of order four: sums suffice, also those of several sites."""
        return self.fit(moments)

    def _check_rows(self, table: Rows, regressors: int) -> None:
        if table.n_rows is not None and table.n_rows <= regressors + 2:
            raise DataError(
                f"n_samples = {table.n_rows} is too few for {regressors} exposures and covariates: use fewer of them, or "
                "more rows"
            )

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
        if [tests, *controls] == list(names) and len(names) == 2:
            return table, design
        columns = [column for view in controls for column in design.views[view].tolist()]
        chosen = {tests: design.views[tests].tolist(), " and ".join(controls): columns}
        return model.lay_out(found.table, found.columns, chosen)

    def _products(self, data: Data, table: Rows | Moments, found: Exposures, groups: object) -> Products:
        """Second moments of U, V, covariates and exposures, by block."""
        model, lost = self.rca_, data.lost
        u, v = (model.views_[i] for i in (0, 1))
        others = model.covariates_
        columns, known = np.concatenate([u, v, others]), len(others) - len(found.columns)
        if isinstance(table, Moments):
            return Products.of_state(table.select(columns), len(u), len(v), known, lost)
        chosen = table.select(columns)
        if isinstance(data, Available) and data.origin is not None:
            return Products.of_state(data.origin.moments(2), len(u), len(v), known, lost)
        if not any(isinstance(C, Factored) for C in (model.solution_.cov_u, model.solution_.cov_v)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                state = Moments.of(chosen, 2, n_blocks=model.n_blocks, groups=groups)
            return Products.of_state(state, len(u), len(v), known, lost)
        rows = chosen.array()
        weight = rows[:, -1] if chosen.weighted else np.ones(len(rows))
        on_u, on_v, beside, exposures = np.split(rows[:, : len(columns)], np.cumsum([len(u), len(v), known]), axis=1)
        blocks = block_numbers(len(rows), model.n_blocks, groups)
        return Products.of_rows(on_u, on_v, beside, exposures, weight, blocks, lost)

    def _solve(self, data: Data, products: Products) -> None:
        self._check_exposures(products)
        solution, slopes = self.rca_.solution_, products.slopes()
        refit = _Refits(data, solution, self.rca_.rank)
        controls = len(slopes.v)
        self._factors = JointFactors.of(slopes, solution.canonical.n)
        self._hidden: HiddenControls | None = None
        if controls >= FEWEST_CONTROLS and solution.rank and not solution.second_order_only:
            drawn = np.random.default_rng(self.rca_.random_state).permutation(controls) % min(FOLDS, controls)
            order = slopes.controls_in_order()
            folds = [order[drawn == k] for k in np.unique(drawn)]
            self._hidden = HiddenControls.of(slopes, folds, refit, self._factors)
        self._found = PairEffects.of(products, solution, self._factors, self._hidden)
        self.shares_ = self._found.shares.T
        self.rho_ = self.shares_.sum(axis=1)
        self.outside_ = dict(zip(self.exposures_, outside_test(slopes, solution), strict=True))
        self._without = [[test.p_value for test in tests] for tests in left_out_tests(slopes, solution)]
        others = {r: effects_of(slopes, fit, self._found) for r, fit in refit.other_ranks().items()}
        ranks = sorted({**others, solution.rank: self._found.value}.items())
        self.rank_effects_ = {r: self._shaped(effects.T) for r, effects in ranks}
        self.coef_, self.adjusted_, self.naive_ = (
            self._shaped(effects.T) for effects in (self._found.value, self._found.adjusted, self._found.naive)
        )
        self.verdicts_ = {name: self._verdict(i) for i, name in enumerate(self.exposures_)}
        self._tell()

    def _check_exposures(self, products: Products) -> None:
        """Refuse exposures that are functions of the covariates, and columns that are functions of the exposures."""
        model = self.rca_
        explained = model.explained_columns_
        if len(explained):
            column = model.views_.describe(int(explained[0]))
            raise DataError(
                f"{column} is an exact function of the exposures and covariates: is it the exposure itself? Take it out of the "
                "views"
            )
        for name, left in zip(self.exposures_, products.left_of_exposures(), strict=True):
            if left < _NOTHING:
                raise DataError(
                    f"the exposure {name!r} is an exact function of the covariates or of other exposures: nothing is left to "
                    "compare. Is it one of the covariates?"
                )

    # ---- answers

    def _shaped(self, values: Array) -> Array:
        """(q, d) -> (d,) for one exposure."""
        return np.asarray(values[0] if len(self.exposures_) == 1 else values)

    def _by_exposure(self, make: Callable[[int], Any]) -> Any:
        made = {name: make(i) for i, name in enumerate(self.exposures_)}
        return made if len(made) > 1 else next(iter(made.values()))

    @property
    def effects_(self) -> Any:
        """Effects per column of U; of several exposures a dict of them."""
        check_is_fitted(self, "rca_")
        return self._by_exposure(self._effects)

    def effect_table(self) -> Table:
        """All effects in one long table, a row per column of U and exposure, as `rca effects --out` writes it; its `to_frame()`
        is a data frame."""
        return Table(row for answer in self.answers() for row in answer.rows())

    def _effects(self, i: int) -> Effects:
        found = self._found
        unidentified = self.verdicts_[self.exposures_[i]] == "not identified"
        varies = found.error[:, i] > 0  # a constant test has no effect, and none that could be tested

        def where(part: Array, otherwise: float = 0.0) -> Array:
            return np.where(varies, part[:, i], otherwise)

        return Effects(
            where(found.value),
            where(found.error, np.nan),
            found.degrees,
            names=self.rca_.components_["S1"].feature_names,
            others={"naive": where(found.naive), "adjusted": where(found.adjusted)},
            identified=(where(found.ends[0]), where(found.ends[1])),
            identified_error=(where(found.ends_error[0], np.nan), where(found.ends_error[1], np.nan)),
            set_limits=unidentified,
            systematic=self._systematic(i) * found.scale,
        )

    @property
    def control_effects_(self) -> Any:
        """What hidden controls get: zero in truth; None with fewer than four."""
        check_is_fitted(self, "rca_")
        return None if self._hidden is None else self._by_exposure(self._control_effects)

    def _control_effects(self, i: int) -> Estimate:
        assert self._hidden is not None
        value, error = (part[:, i] for part in self._hidden.effects(self._found.shares))
        error = np.where(np.isfinite(error), error, np.nan)
        names = self.rca_.components_["S3"].feature_names
        return Estimate(
            value, error, self._found.degrees, names=names, others={"adjusted": self._hidden.adjusted[:, i]}
        )

    def _systematic(self, i: int) -> float:
        """Standard deviation of what hidden effects show beyond their errors, in standard deviations of a column: the empirical
        null, by the method of moments (DerSimonian and Laird). nan where fewer than four tell."""
        if self._hidden is None:
            return float("nan")
        own = np.sqrt(np.maximum(np.diag(self._cov_v), 1e-300))
        seen = self._control_effects(i)
        known = np.isfinite(seen.standard_error) & (seen.standard_error > 0)  # a constant control has none
        if known.sum() < FEWEST_CONTROLS:
            return float("nan")
        effect, weight = (seen.value / own)[known], (own[known] / seen.standard_error[known]) ** 2
        excess = float(weight @ effect**2) - known.sum()
        return float(np.sqrt(max(excess, 0.0) / weight.sum()))

    @property
    def _cov_v(self) -> Array:
        return np.asarray(self.rca_.solution_.cov_v)

    @property
    def controls_(self) -> Table:
        """Per control and exposure: hidden effect, error, p; p of the test that the controls go with the exposure as the shared
        part does, without it; and how far effects on U move without it."""
        check_is_fitted(self, "rca_")
        if self._hidden is None:
            return Table()
        hidden, found, rows = self._hidden, self._found, Table()
        for i, exposure in enumerate(self.exposures_):
            seen = self._control_effects(i)
            without = hidden.effects_without(found.shares)[:, :, i]
            varies = found.error[:, i] > 0
            moved = (without - found.value[:, i])[:, varies] / found.error[varies, i]
            moved = np.sqrt(np.mean(moved**2, axis=1)) if varies.any() else np.zeros(len(without))
            for j, name in enumerate(seen.names):
                rows.append(
                    {
                        "control": name,
                        "exposure": exposure,
                        "hidden effect": float(seen.value[j]),
                        "standard error": float(seen.standard_error[j]),
                        "p": float(seen.p_value[j]),
                        "p of the others": self._without[j][i] if self._without else float("nan"),
                        "effects move without it": float(moved[hidden.fold[j]]),
                    }
                )
        return rows

    def _verdict(self, i: int) -> str:
        solution, test, known = self.rca_.solution_, self.outside_[self.exposures_[i]], self._found
        if solution.rank == 0:
            suspicious = "not separable" if test.p_value < _SUSPICIOUS else "weak"
            return suspicious if test.p_value < GOES_WITH else "nothing to adjust"
        supported = False
        if self._hidden is not None:
            precision, estimate = self._hidden.support(known.expected[:, i], i)
            asked = precision > _SUPPORTED**-2
            if asked and known.shares[:, i].sum() < 0.5 * known.expected[:, i].sum():
                return "contradicted"
            supported = asked and estimate > 0.5 * precision
        evidence = str(solution.posterior.verdict)
        if (evidence == "strong" or supported) and test.p_value < MISFIT:
            return "weak"
        if evidence == "strong":
            return "strong"
        if supported:
            return "supported"
        return "not identified" if evidence == "model fails" else evidence

    @property
    def verdict_(self) -> str:
        """The least sure of the exposures' verdicts."""
        check_is_fitted(self, "rca_")
        order = list(VERDICTS)
        return max(self.verdicts_.values(), key=order.index)

    def _tell(self) -> None:
        """Warn of what makes the numbers doubtful."""
        for name, verdict in self.verdicts_.items():
            if verdict in ("not identified", "not separable", "contradicted"):
                warn_user(f"effects of {name}: {verdict}. {VERDICTS[verdict]}", WeakIdentificationWarning)
        for answer in self.answers():
            if answer.alarm:
                warn_user(answer.alarm, SpecificationWarning)

    def rows_of_rca(self, X: object, y: object, most: int) -> Rows | None:
        """The first rows of X, at most so many, in the columns that the RCA inside was fitted to, exposures (of X, or y) last;
        None where they can be read once only."""
        check_is_fitted(self, "rca_")
        model, named = self._model(), named_exposures(y, self.exposure)[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingValueWarning)  # the fit counted them
            X, y, *_ = model.present(X, y, columns=named, role="exposure")
        opened = including_views(self._open(X, reset=False), model.views)
        found = read_exposures(opened, y, self.exposure, self.reference)
        table, design = self._two_views(found, model)
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
        check_is_fitted(self, "rca_")
        return tuple(self._answer(i, name) for i, name in enumerate(self.exposures_))

    def _answer(self, i: int, name: str) -> ExposureAnswer:
        verdict, test = self.verdicts_[name], self.outside_[name]
        return ExposureAnswer(
            exposure=name,
            verdict=verdict,
            meaning=DISAGREEING if verdict == "weak" and test.p_value < MISFIT else VERDICTS[verdict],
            effects=self._effects(i),
            hidden=None if self._hidden is None else self._control_effects(i),
            controls=Table(row for row in self.controls_ if row["exposure"] == name),
            outside=test,
            rank=self.rca_.rank_,
            shares=(float(self.shares_[i, 0]), float(self.shares_[i, 1])),
            ranks={r: np.atleast_2d(effects)[i] for r, effects in self.rank_effects_.items()},
            path=self._path(i),
            steps=tuple(self.rca_.next_steps()) if verdict in _HELPED and test.p_value >= MISFIT else (),
        )

    def summary(self) -> Summary:
        """A page of text (a table and few words, in a notebook): the verdict, the effects, the controls, what to do."""
        check_is_fitted(self, "rca_")
        model, answers = self.rca_, self.answers()
        views = model.views_
        lines = [
            f"Effects on {views.names[0]} ({len(views[0])} columns), {len(views[1])} controls, {model.n_samples_} rows",
            *self.notes_,
        ]
        for answer in answers:
            lines += ["", f"{answer.exposure}: {answer.verdict}. {answer.meaning}", *filter(None, [answer.reach()])]
            lines += [answer.finding(), answer.about_controls(), *answer.advice()]
            lines += [*filter(None, [answer.way()])]
            lines += ["", str(_largest(answer.effects))]
        if self._hidden is not None:
            lines += ["", "Hidden controls (their effects are zero in truth):"]
            for answer in answers:
                lines += [f"{answer.exposure}:"] if len(answers) > 1 else []
                lines += [str(_largest(answer.hidden))] if answer.hidden is not None else []
        several = len(answers) > 1
        says = [f"{answer.exposure}: {said}" if several else said for answer in answers for said in answer.says()]
        tables = [answer.compact(_CLEAREST) for answer in answers]
        return Summary(page(lines), verdict=self.verdict_, says=[*says, *self.notes_], tables=tables)

    def plot(self, what: str = "forest", *, exposure: str | None = None, ax: Any = None) -> Any:
        """Draw the effects of one exposure (matplotlib); returns the Axes.

        what : "forest" (effects, limits and identified sets of the largest), "volcano" (effects against p values), "controls"
        (what they get when hidden), "sensitivity" (effects as the assumed noise of the controls goes from none to all).
        """
        check_is_fitted(self, "rca_")
        name = self.exposures_[0] if exposure is None else exposure
        if name not in self.exposures_:
            raise ValueError(f"exposure must be one of {', '.join(map(repr, self.exposures_))}, got {exposure!r}")
        i = self.exposures_.index(name)
        if what == "forest":
            return estimate_plot(self._effects(i), title=f"Effects of {name}", label="effect", ax=ax)
        if what == "volcano":
            return volcano_plot(self._effects(i), title=f"Effects of {name}", ax=ax)
        if what == "controls":
            if self._hidden is None:
                raise ValueError(f"no control was hidden: that needs {FEWEST_CONTROLS} of them, and something shared")
            title = "Your controls, as the method sees them when they are hidden"
            return control_plot(self._control_effects(i), title=title, ax=ax)
        if what == "sensitivity":
            return sensitivity_plot(
                self._effects(i), self._path(i), title=f"If the controls were noisier: {name}", ax=ax
            )
        raise ValueError(f"what must be 'forest', 'volcano', 'controls' or 'sensitivity', got {what!r}")

    def _path(self, i: int) -> tuple[Array, Array, float]:
        """Effects (k, d) at T = t I for t from 0 to 1, those t (k,), and the t nearest to the estimate."""
        found, at = self._found, np.linspace(0, 1, 21)
        moved = found.left @ found.right[:, i]
        weight = moved / found.scale**2
        nearest = float(weight @ (found.adjusted - found.value)[:, i]) / max(float(weight @ moved), 1e-300)
        return found.adjusted[:, i] - at[:, None] * moved, at, float(np.clip(nearest, 0.0, 1.0))


def _largest(found: Estimate, most: int = _CLEAREST) -> Any:
    """The entries that stand out most, where there are many."""
    if len(found.value) <= most:
        return found
    rows = np.sort(np.argsort(np.nan_to_num(found.p_value, nan=1.0), kind="stable")[:most])
    return f"{found.take(rows)}\n... the {most} smallest p of {len(found.value)}: to_frame() has all"


class _Refits:
    """Fits of the same two views with fewer controls, or at other ranks. U enters by the coordinates that were searched."""

    def __init__(self, data: Data, solution: PairSolution, rank: object) -> None:
        self.solution, self.rank, found = solution, rank, solution.canonical
        self.k, self.d_v = found.rank_u, found.y_from_v.shape[1]
        many = solution.n > _IN_MEMORY or isinstance(data, Available)
        if isinstance(data, StateData) or (many and not solution.truncated and found.rank_v == self.d_v):
            state = StateData(solution.state, solution.lost)  # of x and y
            into = linalg.block_diag(np.eye(self.k), found.v_from_y.T)
            self.data: Data = state.mapped(AffineMap(np.zeros(len(into)), into))
        else:
            narrow = data.mapped(AffineMap(solution.mean, linalg.block_diag(found.x_from_u.T, np.eye(self.d_v))))
            self.data = narrow.held() if isinstance(narrow, RowData) and solution.n <= _IN_MEMORY else narrow

    def __call__(self, rest: IntArray, rank: object = None) -> PairSolution:
        """With these controls only."""
        chosen = np.concatenate([np.arange(self.k), self.k + rest])
        into = AffineMap(np.zeros(self.k + self.d_v), np.eye(self.k + self.d_v)[:, chosen])
        parts = slice(0, self.k), slice(self.k, len(chosen))
        wanted = self.rank if rank is None else rank
        if isinstance(wanted, (int, np.integer)):
            wanted = min(int(wanted), self.k, len(rest))
        options = replace(self.solution.options, rank=wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            places = dict(zip(self.solution.views, parts, strict=True))
            space = search_space(self.data.mapped(into), places, lambda rows: None, options.at_least)
            return solve_pair(space, self.solution.keys, options)

    def other_ranks(self) -> dict[int, PairSolution]:
        """One direction fewer, and one more."""
        r, most = self.solution.rank, len(self.solution.canonical.correlations)
        return {k: self(np.arange(self.d_v), k) for k in (r - 1, r + 1) if r and 1 <= k <= most}
