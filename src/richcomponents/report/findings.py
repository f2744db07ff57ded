"""What a fit found, gathered once: the HTML page, the JSON and the printed tables read the same numbers and the same words.

Samples lie in the directions in which the shared part of the first view is largest: with s = U - S1^ (the prediction of what is
shared, column by column in standard deviations of U), the two leading right singular vectors of s. Before cleaning: U in these
directions; after: S1^ in the same.
"""

from __future__ import annotations

import math
import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import richcomponents.baselines as baselines
from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import VarianceTable
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.classes import Contrast
from richcomponents.data.design import is_column, labels_in
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.inference.verdicts import Test, Verdict
from richcomponents.learning.outcome import CONTRADICTED
from richcomponents.models.estimator import Estimator, used_rows
from richcomponents.notebook import Table
from richcomponents.pair.diagnostics import ADVICE, Diagnostics
from richcomponents.text import as_sentence, in_line, listed

_MOST_LIMITS = 2500  # entries of A whose limits are asked for
MOST_ROWS = 5000
"""Rows that are looked at."""
_SHOWN = 300  # samples in a picture; columns in a table, of more those that something is to be said about
MOST_VALUES = 10_000_000
"""Numbers that are looked at, of rows or of a matrix."""
_FEW = 6  # different values that have a colour each
_LITTLE = 1e-9  # of a column's variance
_OF_ESTIMATE = ("standard error", "low", "high", "p", "odds ratio", "odds low", "odds high")


@dataclass(frozen=True)
class Provenance:
    """How to come to the same page again.

    command : as typed; files : {path: SHA-256}; seed : random_state; date : when it was made, as text.
    """

    command: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    date: str = ""

    @staticmethod
    def versions() -> dict[str, str]:
        """Versions of what computed the numbers."""
        from richcomponents import __version__

        own = {"richcomponents": __version__, "python": platform.python_version()}
        return own | {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}


@dataclass(frozen=True)
class Outcome:
    """Coefficients of an outcome on a component.

    estimate : with what other methods make of them: naive (U as it is), residualised (V as covariates), and the truth where
    it is known. unit : what a coefficient is. test : of the outcome on the views `outside` of the component; says, finding :
    what came of it, in a sentence and in a word. contrast : the two classes of a logistic regression, whose table also holds
    odds ratios.
    """

    name: str
    unit: str
    component: str
    outside: str
    estimate: Estimate
    test: Test
    says: str
    finding: Verdict
    contrast: Contrast | None = None

    @property
    def fails(self) -> bool:
        """Whether something speaks against the model."""
        return self.finding != Verdict.STRONG

    @property
    def event(self) -> str:
        """What the coefficients speak for: the outcome, or its positive class."""
        return self.name if self.contrast is None else f"{self.name} = {self.contrast.positive}"

    def check(self) -> dict[str, object]:
        """As a row of the table of checks."""
        name = f"{self.name} and {self.outside}"
        return {"check": name, "value": self.test.p_text, "finding": self.finding, "meaning": self.says}

    def rows(self) -> Table:
        """One dict per column, ready for a data frame: all methods side by side, then how sure RCA is."""
        methods = [name for name in self.estimate.others if name != "truth"]
        titles = {name: name for name in ("name", *methods)} | {"estimate": "RCA", "truth": "truth"}
        titles |= {name: name for name in _OF_ESTIMATE}
        return Table({title: row[key] for key, title in titles.items() if key in row} for row in self.estimate.rows())


@dataclass(frozen=True)
class Learned:
    """What a learner without an outcome found: a table, and a picture of it (drawn on an Axes)."""

    title: str
    rows: Table
    draw: Callable[[Any], Any]


@dataclass(frozen=True)
class Mixing:
    """How a component enters a view: the matrix (rows, columns), None where nobody could read it; known : where the data
    say the sign of an entry (None: that was not asked)."""

    component: str
    view: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Array | None
    known: Array | None = None


@dataclass(frozen=True)
class Sets:
    """Components of any number of views.

    rows : per component, the share of each view's variance that it carries, the largest relative error of its
    transformations, and what discovery said. columns : per column, what each carries of it. explanation : what
    tells the components apart. draw : on a figure.
    """

    rows: Table
    columns: Table
    explanation: str
    draw: Callable[[Any], Any]


@dataclass(frozen=True)
class Samples:
    """views : {name: values (n, d)}, nan where missing; names : of their columns; known : {name: (n,)}, what samples may be
    coloured by; before, after : (n, 2), or None where nothing is shared; of : how many rows there are."""

    views: Mapping[str, Array]
    names: Mapping[str, tuple[str, ...]]
    known: Mapping[str, Array]
    before: Array | None
    after: Array | None
    of: int

    @cached_property
    def drawn(self) -> IntArray:
        """Numbers of the samples in a picture: evenly spaced, those whose place is known."""
        if self.before is None or self.after is None:
            return np.zeros(0, dtype=np.int64)
        at = np.flatnonzero(np.isfinite(self.before).all(axis=1) & np.isfinite(self.after).all(axis=1))
        evenly = np.linspace(0, max(len(at) - 1, 0), min(_SHOWN, len(at))).round().astype(np.int64)
        return np.asarray(at[np.unique(evenly)])

    @cached_property
    def columns(self) -> Table:
        """One row per column of each view: what is missing, where its values lie, and a remark where one is due."""
        rows, seen = Table(), dict[bytes, str]()
        for view, x in self.views.items():
            table = _described(x)
            constant = np.asarray(table["sd"] <= _LITTLE**0.5 * np.maximum(np.abs(table["mean"]), 1e-300))
            table["skewness"][constant] = np.nan
            for i, name in enumerate(self.names[view]):
                first = seen.setdefault(np.ascontiguousarray(x[:, i]).tobytes(), name)
                same = "constant" if constant[i] else "" if first == name else f"same as {first}"
                numbers = {title: float(values[i]) for title, values in table.items()}
                rows.append(
                    {
                        "column": name,
                        "view": view,
                        **numbers,
                        "remark": same if np.isfinite(numbers["mean"]) else "no values",
                    }
                )
        return rows

    @cached_property
    def listed(self) -> Table:
        """The same for a page: of very many columns those that something is to be said about."""
        few = len(self.columns) <= _SHOWN
        return Table(row for row in self.columns if few or row["remark"] or row["missing"])

    @property
    def coloured(self) -> list[tuple[str, Array | None]]:
        """By what samples in the picture are coloured, at most two: name and values; nothing where none are drawn."""
        colours = [(name, values[self.drawn]) for name, values in [*self.known.items()][:2]]
        return [*colours] or [("", None)] if len(self.drawn) else []

    def with_values(self, view: str) -> tuple[list[str], Array]:
        """Columns of a view that hold any, (n, k): names and values."""
        some = np.flatnonzero(np.isfinite(self.views[view]).any(axis=0))
        return [self.names[view][i] for i in some], self.views[view][:, some]


def _described(x: Array) -> dict[str, Array]:
    """Of columns (n, d); nan where there are no values."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without values
        mean, sd = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        return {
            "mean": mean,
            "sd": sd,
            "least": np.nanmin(x, axis=0),
            "median": np.nanmedian(x, axis=0),
            "largest": np.nanmax(x, axis=0),
            "skewness": np.nanmean(((x - mean) / sd) ** 3, axis=0),
            "missing": np.mean(np.isnan(x), axis=0),
        }


@dataclass(frozen=True)
class Findings:
    """All that is said about one fit.

    views : {name: column names}. diagnostics, variance : of two views, U first; sets : of any number of views. outcome : None
    without a target. learned : None without another learner. effects : of exposures, one each. notes : warnings raised
    on the way, as sentences. summary : the model's own page of text; verdict : its own word for how well the parts are told
    apart; answer : its own headline; steps : what would help, in numbers. samples : the rows behind it, where they were given.
    """

    n: int
    views: dict[str, tuple[str, ...]]
    covariates: tuple[str, ...]
    summary: str
    verdict: str
    mixing: tuple[Mixing, ...] = ()
    answer: str = ""
    diagnostics: Diagnostics | None = None
    variance: VarianceTable | None = None
    sets: Sets | None = None
    outcome: Outcome | None = None
    learned: Learned | None = None
    effects: tuple[ExposureAnswer, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    samples: Samples | None = None
    steps: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: Any,
        X: object = None,
        y: object = None,
        *,
        names: Sequence[str] | None = None,
        outcome: str = "y",
        truth: Array | None = None,
        notes: Sequence[str] = (),
        provenance: Provenance | None = None,
        progress: bool = False,
    ) -> Findings:
        """The findings of a fitted ContrastiveRCA, RCA, learner or ExposureEffects.

        X, y : the rows it was fitted to, for the naive coefficients of a regression. names : column names of X, where X has
        none. outcome : name of y. truth : known coefficients (d_u,), in simulations. progress : show how far it is.
        """
        if not isinstance(model, Estimator):
            raise TypeError(
                f"a report is made of a fitted RCA or a learner of its components, got {type(model).__name__}"
            )
        check_is_fitted(model)
        rca: Any = getattr(model, "rca_", model)
        if rca is None:
            raise ValueError("a report needs the views: fit the learner with fit(X), not fit_component(component)")
        effects, takes_outcome = hasattr(model, "answers"), getattr(model, "takes_outcome", False)
        if takes_outcome and (X is None or y is None):
            raise ValueError("the findings of a regression need the rows it was fitted to: give X and y")
        if y is not None and not (effects or takes_outcome):
            raise ValueError(
                f"a report of {type(model).__name__} says nothing about an outcome: leave y out, or report on a model of it, "
                f"such as ComponentRegression(rca={type(rca).__name__}(...)).fit(X, y)"
            )
        fitted, places = rca.fitted_, rca.views_
        own = () if names is None else tuple(map(str, names))
        own = (*own, *places.feature_names[len(own) :])  # levels of covariates that are texts stand behind
        views = {view: tuple(own[i] for i in places[view]) for view in places}
        exposures = model.exposures_ if effects else ()  # the last of the covariates
        known = (*(own[i] for i in fitted.design.known),)
        known = (*known[: len(known) - len(exposures)], *exposures)
        found = cls(
            n=rca.n_samples_,
            views=views,
            covariates=known[: len(known) - len(exposures)],
            summary=str((model if effects else rca).summary()),
            verdict=str(getattr(model, "verdict_", rca.verdict_)),
            provenance=provenance or Provenance(model.recipe() if effects else "", seed=rca.random_state),
            samples=look_at(model, rca, X, y, known, outcome, views),
            notes=tuple(notes),
        )
        if effects:
            truths: Any = [None] * len(exposures) if truth is None else np.atleast_2d(truth)
            pairs = zip(model.answers(), truths, strict=True)
            answers = tuple(answer.named(*views.values(), truth=effects) for answer, effects in pairs)
            steps = tuple(dict.fromkeys(step for answer in answers for step in answer.steps))
            of_both = (*notes, *model.notes_)
            return replace(found, notes=of_both, diagnostics=rca.diagnostics_, effects=answers, steps=steps)
        parts = _pair(rca, views, progress) if hasattr(rca, "diagnostics_") else _any_views(rca, views)
        found = replace(found, answer=rca.headline(found.verdict), steps=tuple(rca.next_steps()), **parts)
        if rca is model:
            return found
        at = dict(zip(places.feature_names, own, strict=True))
        columns = tuple(at[name] for name in model.component_.feature_names)
        if not takes_outcome:
            title, rows = model.title(), model.by_column(columns)
            return replace(found, learned=Learned(title, rows, lambda ax: model.plot(names=columns, ax=ax)))
        of_outcome, of_model = _outcome(model, X, y, columns, outcome, truth)
        check, without = of_outcome.check(), f"Without {outcome}:\n" if found.verdict != rca.verdict_ else ""
        summary = f"{without}{found.summary}\n  {in_line(check['check']):24} {check['value']}"
        steps = () if of_outcome.fails else found.steps  # an alarm says what to do, and more samples would not help
        return replace(found, outcome=of_outcome, summary=summary, steps=steps).noting([*notes, *of_model])

    def noting(self, notes: Sequence[str]) -> Findings:
        """With these notes, but those that the alarms or the advice say."""
        fails = self.outcome is not None and self.outcome.fails
        said = [*map(str, ADVICE.values()), *([CONTRADICTED] if fails else [])]
        kept = (note for note in notes if not any(sentence in note for sentence in said))
        return replace(self, notes=tuple(dict.fromkeys(kept)))

    @property
    def shared_share(self) -> float | None:
        """Of two views: mean over the columns of U of Var(S2) / Var(U), free of units."""
        return None if self.variance is None else float(np.mean(self.variance.shared_share))

    # ---- words

    def _each(self, said: Callable[[ExposureAnswer], Iterable[str]]) -> list[str]:
        """Sentences about exposures: what is said of all of them once, what is said of some with their names."""
        of: dict[str, list[str]] = {}
        for answer in self.effects:
            for sentence in filter(None, said(answer)):
                of.setdefault(sentence, []).append(answer.exposure)
        return [one if len(names) == len(self.effects) else f"{listed(names)}: {one}" for one, names in of.items()]

    def said(self) -> str:
        """The verdict in words, without the tests that fail."""
        words = self._each(lambda one: [one.meaning])
        if len(words) > 1:
            words = [f"{one.exposure} ({one.verdict}): {one.meaning}" for one in self.effects]
        return " ".join(words) if self.effects else self.answer

    def alarms(self) -> list[str]:
        """What contradicts the model, as sentences."""
        if self.effects:  # the tests of the two views are among those of the exposures
            return self._each(lambda one: [one.alarm])
        of_outcome = [self.outcome.says] if self.outcome is not None and self.outcome.fails else []
        return of_outcome + ([] if self.diagnostics is None else self.diagnostics.alarms())

    def lead(self) -> str:
        """The part of the headline that nobody may miss."""
        alarms = self.alarms()
        return " ".join([self.said(), *(["Warning:"] if alarms else []), *alarms])

    def detail(self) -> list[str]:
        """The rest of the headline: what was found for each exposure."""
        return [answer.finding() for answer in self.effects]

    def headline(self) -> str:
        """The verdict in a few sentences, failed tests included."""
        return " ".join((self.lead(), *self.detail()))

    def advice(self) -> list[str]:
        """What else a reader should know and do, each sentence once; then what would help, in numbers."""
        if self.effects:
            return list(dict.fromkeys([*self._each(lambda one: one.more()), *self.steps]))
        said = [] if self.diagnostics is None else self.diagnostics.advice()
        if self.outcome is not None and self.diagnostics is not None and self.verdict != self.diagnostics.verdict:
            said = [f"Without {self.outcome.name}: {one}" for one in said]  # it is the outcome that contradicts
        return list(dict.fromkeys([*said, *self.steps]))

    # ---- tables

    def checks(self) -> Table:
        """All tests and what they found, a row each."""
        if not self.effects:
            of_outcome = [] if self.outcome is None else [self.outcome.check()]
            return Table([*([] if self.diagnostics is None else self.diagnostics.checks()), *of_outcome])
        tests = [
            (f"{one.name.capitalize()} ({answer.exposure})", one) for answer in self.effects for one in answer.tests
        ]
        # a correction has no p value, and says how large it is
        values = ("" if one.name == "correction" else one.p_text for _, one in tests)
        return Table(
            {"check": name, "value": value, "finding": one.shown, "meaning": as_sentence(one.says)}
            for value, (name, one) in zip(values, tests, strict=True)
        )

    def tables(self) -> list[tuple[str, Any]]:
        """What was estimated: title and table, the clearest effects first."""
        if self.outcome is not None:
            contrast = "" if self.outcome.contrast is None else f"; {self.outcome.contrast}"
            return [(f"Coefficients ({self.outcome.unit}), by method{contrast}", self.outcome.rows())]
        if self.learned is not None:
            return [(self.learned.title, self.learned.rows)]
        return [
            (f"Effects of {one.exposure}, the clearest first", one.effects.take(one.order())) for one in self.effects
        ]

    def as_dict(self) -> dict[str, object]:
        """Plain numbers, lists and strings; what is not finite becomes None."""
        d, told = self.diagnostics, self.outcome
        contrast = None if told is None else told.contrast
        found: dict[str, object] = {
            "headline": self.headline(),
            "verdict": self.verdict,
            "alarms": self.alarms(),
            "advice": self.advice(),
            "next_steps": self.steps,
            "notes": self.notes,
            "n": self.n,
            "views": self.views,
            "covariates": self.covariates,
            "coefficients": None if told is None else told.rows(),
            "outcome": None if told is None else told.name,
            "component": None if told is None else told.component,
            "positive": None if contrast is None else contrast.positive,
            "classes": None if contrast is None else contrast.rows(),
            "outcome_on_V_p": None if told is None else told.test.p_value,
            "model": None if self.learned is None else {"title": self.learned.title, "rows": self.learned.rows},
            "provenance": {**vars(self.provenance), "versions": Provenance.versions()},
        }
        if d is not None and self.variance is not None:
            found |= {
                "rank": d.rank,
                "canonical_correlations": d.canonical_correlations,
                "shared_share": self.shared_share,
                "strength": d.strength,
                "gate": d.gate,
                "condition_A": d.condition_A,
                "leftover_p": d.leftover.p_value,
                "overidentification_p": None if d.overidentification is None else d.overidentification.p_value,
                "variance": self.variance.rows(),
                "A": self.mixing[0].matrix,
            }
        if self.effects:
            found["exposures"] = [_of_exposure(answer) for answer in self.effects]
        if self.sets is not None:
            found["components"] = self.sets.rows
            found["mixing"] = [{"component": m.component, "view": m.view, "A": m.matrix} for m in self.mixing]
        plain: Any = _plain(found)
        return dict(plain)


def _of_exposure(answer: ExposureAnswer) -> dict[str, object]:
    return {
        "exposure": answer.exposure,
        "verdict": answer.verdict,
        "meaning": answer.meaning,
        "found": answer.effects.take(np.flatnonzero(answer.found)).names,
        "rank": answer.rank,
        "rho": answer.share,
        "tests": [{"name": t.name, "p": t.p_value, "finding": t.shown, "says": t.says} for t in answer.tests],
        "effects": answer.effects.rows(),
        "controls": answer.controls,
        "rank_effects": answer.ranks,
    }


def _plain(value: object) -> object:
    """JSON's own types; nan and infinities become None."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case bool() | int() | None:
            return value
    return str(value)


# ---- from a fitted model


def _pair(rca: Any, views: dict[str, tuple[str, ...]], progress: bool) -> dict[str, Any]:
    """What two views give: U = S1 + S2, V = A S2 + S3; entries of A with whether their limits leave zero out, if these take no
    refits."""
    (_, names_u), (v, names_v) = views.items()
    A, known = rca.A_ if len(names_u) * len(names_v) <= MOST_VALUES else None, None
    if A is not None and A.size <= _MOST_LIMITS and rca.verdict_ not in ("not checked", "nothing shared"):
        limits = rca.confidence_interval("A")
        known = (limits.low > 0) | (limits.high < 0)
    variance = replace(rca.variance_table(progress=progress), names=names_u)
    return {
        "diagnostics": rca.diagnostics_,
        "variance": variance,
        "mixing": (Mixing("S2", v, names_v, names_u, A, known),),
    }


def _any_views(rca: Any, views: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """What components of any subsets of views give."""
    of = rca.views_.feature_names
    at = {of[c]: views[view][k] for view in views for k, c in enumerate(rca.views_[view])}
    mixing = []
    for (view, q), matrix in rca.transforms_.items():
        columns = tuple(at[name] for name in rca.components_[q].feature_names)
        if len(q) > 1 and columns != views[view]:  # else the identity: the component is written in these columns
            known = np.full(matrix.shape, rca.component_verdicts_[q] not in ("weak", "not identified", "contradicted"))
            mixing.append(Mixing(rca.components_[q].name, view, views[view], columns, matrix, known))
    columns_ = replace(rca.variance_table(), names=views).rows()
    sets = Sets(rca.component_table(), columns_, rca.system_.explain(), rca.plot)
    return {"sets": sets, "mixing": tuple(mixing)}


def _outcome(
    model: Any, X: object, y: object, columns: tuple[str, ...], name: str, truth: Array | None
) -> tuple[Outcome, tuple[str, ...]]:
    """The coefficients, and the model's notes, which call the outcome by its name."""
    found, others = model.estimate(columns), {}
    if found.others:
        others = {"naive": np.ravel(baselines.naive(model.unfitted(), X, y).coef_), **found.others}
    others |= {} if truth is None else {"truth": truth}
    event = name if model.contrast is None else f"{name} = {model.contrast.positive}"
    outside, test = model.rca_.fitted_.others(model.component), model.outcome_test(X, y)
    says, finding = model.goes_with_others(test, name), test.finding
    if model.on_v_ is not None:  # it knows of more than this test
        model = copy(model)
        on_v = model.on_v_ = replace(model.on_v_, name=name)
        fails = f"{on_v.doubt.removeprefix(CONTRADICTED).removeprefix(': ')}." if on_v.doubt else ""
        finding = Verdict.CONTRADICTED if fails else Verdict.STRONG
        allowed = on_v.notes()[0] if on_v.goes_with and not on_v.stated else ""
        if says and not allowed:
            why = (
                "as it may through the shared part"
                if on_v.stated
                else "but nothing is shared, and nothing is corrected"
            )
            allowed = f"{name} goes with {outside} ({test.p_text}), {why}."
        says = fails or allowed
    says = says or f"{name} does not go with {outside}, as the model asks."
    estimate = replace(found, others=others)
    of = (name, model.unit(event), model.component_.name, outside, estimate, test, says, finding, model.contrast)
    return Outcome(*of), model.notes()


# ---- from its rows


def look_at(
    model: Any,
    rca: Any,
    X: object,
    y: object,
    known: tuple[str, ...],
    outcome: str,
    names: Mapping[str, tuple[str, ...]],
) -> Samples | None:
    """The first rows behind a fit; None where they cannot be read (again). known : names of the covariates, exposures included;
    names : of the columns of the views."""
    if X is None:
        return None
    exposed = hasattr(model, "rows_of_rca")
    most = min(MOST_ROWS, max(MOST_VALUES // max(len(rca.views_.feature_names), 1), 50))
    rows = model.rows_of_rca(X, y) if exposed else used_rows(rca, X)
    if rows is None or not rows.rereadable:
        return None
    views, covariates, own = rca.fitted_.first_rows(rows, most)
    last_first = zip(reversed(known), covariates.T[::-1], strict=True)  # exposures stand last, and are of most interest
    colours = {name: _as_classes(values) for name, values in last_first}
    of_rows: Any = () if exposed or y is None else np.asarray(labels_in(X, y) if is_column(y) else y)
    if np.ndim(of_rows) == 1 and len(of_rows) >= len(own):
        colours = {outcome: _as_classes(of_rows[: len(own)]), **colours}
    return Samples(views, names, colours, *_cleaned(next(iter(views.values())), own), int(rca.n_samples_))


def _as_classes(values: Array) -> Array:
    """Few different numbers as texts: they are classes, not measurements."""
    if values.dtype.kind not in "biuf" or len(np.unique(values)) > _FEW:
        return values
    return np.array([f"{value:g}" for value in values.astype(np.float64)], dtype=object)


def _cleaned(values: Array, own: Array) -> tuple[Array | None, Array | None]:
    """Where samples lie in the two leading shared directions, (n, 2), with what is shared and without it."""
    known = np.isfinite(values).all(axis=1) & np.isfinite(own).all(axis=1)
    if known.sum() < 3 or values.shape[1] != own.shape[1] or values.shape[1] < 2:
        return None, None
    centred, scale = values - values[known].mean(axis=0), values[known].std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    shared = (centred - own)[np.flatnonzero(known)[:_SHOWN]] / scale
    if np.linalg.norm(shared) ** 2 <= _LITTLE * shared.size:
        return None, None
    directions = np.linalg.svd(shared, full_matrices=False)[2][:2].T
    return (centred / scale) @ directions, (own / scale) @ directions
