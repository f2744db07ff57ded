"""What a fit found, gathered once: the HTML page, the JSON and the printed tables read the same numbers."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import richcomponents.baselines as baselines
from richcomponents.algebra import Array
from richcomponents.components.component import VarianceTable
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.classes import Contrast
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.inference.verdicts import Test, Verdict
from richcomponents.models.estimator import Estimator
from richcomponents.notebook import Table, Tabular
from richcomponents.pair.diagnostics import ADVICE, Diagnostics
from richcomponents.pair.outcomes import CONTRADICTED
from richcomponents.report.samples import MOST_VALUES, Samples, look_at
from richcomponents.text import as_sentence, counted, in_line, listed

_MOST_LIMITS = 2500  # entries of A whose limits are asked for
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
        import scipy
        import sklearn

        from richcomponents import __version__

        return {
            "richcomponents": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        }


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
    """How a component enters a view: the matrix (rows, columns), None where nobody could read it; known : where the sign of an
    entry is told (None: that was not asked)."""

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
    mixing: tuple[Mixing, ...]
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
        """The findings of a fitted ContrastiveRCA, RCA or learner.

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
        own = () if names is None else tuple(map(str, names))
        own = (*own, *rca.views_.feature_names[len(own) :])  # levels of covariates that are texts stand behind
        views = {view: tuple(own[i] for i in rca.views_[view]) for view in rca.views_}
        common: dict[str, Any] = {"n": rca.n_samples_, "views": views}
        if hasattr(model, "answers"):
            made = provenance or Provenance(model.recipe(), seed=rca.random_state)
            common |= {"notes": (*notes, *model.notes_), "provenance": made}
            return cls._of_effects(model, rca, own, truth, X, y, common)
        if y is not None and not getattr(model, "takes_outcome", False):
            raise ValueError(
                f"a report of {type(model).__name__} says nothing about an outcome: leave y out, or report on a model of it, "
                f"such as ComponentRegression(rca={type(rca).__name__}(...)).fit(X, y)"
            )
        verdict, covariates = (
            getattr(model, "verdict_", rca.verdict_),
            tuple(own[i] for i in rca.fitted_.design.known),
        )
        found = cls(
            **common,
            covariates=covariates,
            summary=str(rca.summary()),
            verdict=verdict,
            answer=rca.headline(verdict),
            steps=tuple(rca.next_steps()),
            samples=look_at(model, rca, X, y, covariates, outcome),
            notes=tuple(notes),
            provenance=provenance or Provenance(seed=rca.random_state),
            **(_pair(rca, views, progress) if hasattr(rca, "diagnostics_") else _any_views(rca, views)),
        )
        if rca is model:
            return found
        at = {name: own[i] for i, name in enumerate(rca.views_.feature_names)}
        columns = tuple(at[name] for name in model.component_.feature_names)
        if not model.takes_outcome:
            title, rows = model.title(), model.by_column(columns)
            return replace(found, learned=Learned(title, rows, lambda ax: model.plot(names=columns, ax=ax)))
        if X is None or y is None:
            raise ValueError("the findings of a regression need the rows it was fitted to: give X and y")
        told, of_model = _outcome(model, views, X, y, columns, outcome, truth)
        check, without = told.check(), f"Without {told.name}:\n" if verdict != rca.verdict_ else ""
        summary = f"{without}{found.summary}\n  {in_line(check['check']):24} {check['value']}"
        steps = () if told.fails else found.steps  # an alarm says what to do, and more samples would not help
        return replace(found, outcome=told, summary=summary, steps=steps).noting([*notes, *of_model])

    def noting(self, notes: Sequence[str]) -> Findings:
        """With these notes, but those that the alarms or the advice say."""
        said = [
            *map(str, ADVICE.values()),
            *([CONTRADICTED] if self.outcome is not None and self.outcome.fails else []),
        ]
        kept = (note for note in notes if not any(sentence in note for sentence in said))
        return replace(self, notes=tuple(dict.fromkeys(kept)))

    @classmethod
    def _of_effects(
        cls, model: Any, rca: Any, own: Sequence[str], truth: Array | None, X: object, y: object, common: dict[str, Any]
    ) -> Findings:
        truths: Any = [None] * len(model.exposures_) if truth is None else np.atleast_2d(truth)
        pairs = zip(model.answers(), truths, strict=True)
        answers = tuple(answer.named(*common["views"].values(), truth=effects) for answer, effects in pairs)
        known = rca.fitted_.design.known[: -len(answers)]  # the exposures stand last
        return cls(
            **common,
            covariates=tuple(own[i] for i in known),
            summary=str(model.summary()),
            verdict=str(model.verdict_),
            mixing=(),
            diagnostics=rca.diagnostics_,
            effects=answers,
            samples=look_at(model, rca, X, y, (*(own[i] for i in known), *model.exposures_), ""),
            steps=tuple(dict.fromkeys(step for answer in answers for step in answer.steps)),
        )

    @property
    def shared_share(self) -> float | None:
        """Of two views: mean over the columns of U of Var(S2) / Var(U), free of units."""
        return None if self.variance is None else float(np.mean(self.variance.shared_share))

    def alarms(self) -> list[str]:
        """What contradicts the model, as sentences."""
        if self.effects:  # the tests of the two views are among those of the exposures
            return [self._of(answer, answer.alarm) for answer in self.effects if answer.alarm]
        of_outcome = [self.outcome.says] if self.outcome is not None and self.outcome.fails else []
        return of_outcome + ([] if self.diagnostics is None else self.diagnostics.alarms())

    def checks(self) -> Table:
        """All tests and what they found, a row each."""
        if self.effects:
            return Table(
                {
                    "check": f"{one.name.capitalize()} ({answer.exposure})",
                    # a correction has no p value, and says how large it is
                    "value": "" if one.name == "correction" else one.p_text,
                    "finding": one.finding,
                    "meaning": as_sentence(one.says),
                }
                for answer in self.effects
                for one in answer.tests
            )
        of_outcome = [] if self.outcome is None else [self.outcome.check()]
        return Table([*([] if self.diagnostics is None else self.diagnostics.checks()), *of_outcome])

    def tables(self) -> list[tuple[str, Tabular | Table]]:
        """What was estimated: title and table, the clearest effects first."""
        if self.outcome is not None:
            contrast = "" if self.outcome.contrast is None else f"; {self.outcome.contrast}"
            return [(f"Coefficients ({self.outcome.unit}), by method{contrast}", self.outcome.rows())]
        if self.learned is not None:
            return [(self.learned.title, self.learned.rows)]
        return [
            (f"Effects of {one.exposure}, the clearest first", one.effects.take(one.order())) for one in self.effects
        ]

    def _of(self, answer: ExposureAnswer, sentence: str) -> str:
        """Of several exposures each is named."""
        return sentence if len(self.effects) == 1 else f"{answer.exposure}: {sentence}"

    def headline(self) -> str:
        """The verdict in a few sentences, failed tests included."""
        return " ".join((self.lead(), *self.detail()))

    def lead(self) -> str:
        """The part of the headline that nobody may miss."""
        alarms = self.alarms()
        return " ".join([self.said(), *(["Warning:"] if alarms else []), *alarms])

    def detail(self) -> list[str]:
        """The rest of the headline: what was found for each exposure."""
        return [answer.finding() for answer in self.effects]

    def said(self) -> str:
        """The verdict in words, without the tests that fail."""
        if not self.effects:
            return self.answer
        meanings = {answer.meaning for answer in self.effects}
        if len(meanings) == 1:
            return meanings.pop()
        return " ".join(f"{answer.exposure} ({answer.verdict}): {answer.meaning}" for answer in self.effects)

    def question(self) -> str:
        """What was asked, in one sentence."""
        tests = {next(iter(self.views)): one.effects.names for one in self.effects}  # instruments stand behind them
        columns = {view: counted(names, "column") for view, names in {**self.views, **tests}.items()}
        u, v, *_ = (
            f"the {count} of {view if view == letter else f'{view} ({letter})'}"
            for letter, (view, count) in zip("UV", columns.items(), strict=False)
        )
        if self.effects:
            exposures = [answer.exposure for answer in self.effects]
            does, it = ("Does", "it") if len(exposures) == 1 else ("Do", "them")
            asked = (
                f"{does} {listed(exposures)} change {u}, when something that nobody measured may go with {it} and disturb "
                f"them? Negative controls: {v}. "
            )
        elif self.diagnostics is None:
            parts = [f"{view} ({count})" for view, count in columns.items()]
            asked = f"Which hidden parts do {listed(parts)} have in common, and what is their own? "
        else:
            asked = f"What is specific to {u}, once what they share with {v} is removed? "
        asked += f"{self.n} samples"
        if self.covariates:
            asked += f"; removed first: {', '.join(self.covariates)}"
        if self.outcome is not None:
            against = "" if self.outcome.contrast is None else f", {self.outcome.contrast}"
            asked += f"; outcome: {self.outcome.name}{against}"
        return asked + "."

    def advice(self) -> list[str]:
        """Sentences for the reader, notes included, each once."""
        return list(dict.fromkeys([*self._advice(), *self.notes]))

    def _advice(self) -> list[str]:
        if self.effects:
            advice = [one for answer in self.effects for one in answer.advice()]
            return list(dict.fromkeys([*self._about_controls(), *advice]))
        said = [] if self.diagnostics is None else self.diagnostics.advice()
        if self.outcome is not None and self.diagnostics is not None and self.verdict != self.diagnostics.verdict:
            said = [f"Without {self.outcome.name}: {one}" for one in said]  # it is the outcome that contradicts
        return [*said, *self.steps]

    def _about_controls(self) -> list[str]:
        """How the controls fared: exposures of which the same is to be said share a sentence; an alarm has said it already."""
        same: dict[str, list[ExposureAnswer]] = {}
        for answer in self.effects:
            if not answer.alarm:
                same.setdefault(answer.about_controls(), []).append(answer)
        if len(self.effects) == 1:
            return [answer.about_controls() for answers in same.values() for answer in answers]
        return [f"{listed([answer.exposure for answer in answers])}: {text}" for text, answers in same.items()]

    def as_dict(self) -> dict[str, object]:
        """Plain numbers, lists and strings; what is not finite becomes None."""
        d, told = self.diagnostics, self.outcome
        contrast = None if told is None else told.contrast
        found: dict[str, object] = {
            "headline": self.headline(),
            "verdict": self.verdict,
            "alarms": self.alarms(),
            "advice": self._advice(),
            "next_steps": list(self.steps),
            "notes": list(self.notes),
            "n": self.n,
            "views": self.views,
            "covariates": list(self.covariates),
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
        return {name: _plain(value) for name, value in found.items()}


def _of_exposure(answer: ExposureAnswer) -> dict[str, object]:
    return {
        "exposure": answer.exposure,
        "verdict": str(answer.verdict),
        "meaning": answer.meaning,
        "found": answer.effects.take(np.flatnonzero(answer.found)).names,
        "rank": answer.rank,
        "rho": answer.share,
        "tests": [{"name": t.name, "p": t.p_value, "finding": str(t.finding), "says": t.says} for t in answer.tests],
        "effects": answer.effects.rows(),
        "controls": answer.controls,
        "rank_effects": dict(answer.ranks),
    }


def _plain(value: object) -> object:
    """JSON's own types; nan and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)


# ---- from a fitted model


def _pair(rca: Any, views: dict[str, tuple[str, ...]], progress: bool) -> dict[str, Any]:
    """What two views give: U = S1 + S2, V = A S2 + S3."""
    (_, names_u), (v, names_v) = views.items()
    A = rca.A_ if len(names_u) * len(names_v) <= MOST_VALUES else None
    return {
        "diagnostics": rca.diagnostics_,
        "variance": replace(rca.variance_table(progress=progress), names=names_u),
        "mixing": (Mixing("S2", v, names_v, names_u, A, _told(rca, A)),),
    }


def _told(rca: Any, A: Array | None) -> Array | None:
    """Entries of A whose limits leave zero out; None where limits would take refits."""
    if A is None or A.size > _MOST_LIMITS or rca.verdict_ in ("not checked", "nothing shared"):
        return None
    limits = rca.confidence_interval("A")
    return np.asarray((limits.low > 0) | (limits.high < 0))


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
    model: Any,
    views: dict[str, tuple[str, ...]],
    X: object,
    y: object,
    columns: tuple[str, ...],
    name: str,
    truth: Array | None,
) -> tuple[Outcome, tuple[str, ...]]:
    """The coefficients, and the model's notes, which call the outcome by its name."""
    found, others, component = model.estimate(columns), {}, model.component_.name
    if found.others:
        others = {"naive": np.ravel(baselines.naive(model.unfitted(), X, y).coef_), **found.others}
    others |= {} if truth is None else {"truth": truth}
    event = name if model.contrast is None else f"{name} = {model.contrast.positive}"
    outside = [] if isinstance(model.component, str) else [view for view in views if view not in model.component]
    others_are, test, on_v = listed(outside) if outside else "V", model.outcome_test(X, y), model.on_v_
    says, finding = f"{name} does not go with {others_are}, as the model asks.", test.finding
    if on_v is not None:  # it knows of more than this test
        model, on_v = copy(model), replace(on_v, name=name)
        model.on_v_, finding = on_v, Verdict.CONTRADICTED if on_v.fails else Verdict.STRONG
        says = on_v.notes()[0] if on_v.goes_with and not on_v.stated else says
        says = f"{on_v.fails}. {on_v.remedy}." if on_v.fails else says
    elif finding != Verdict.STRONG:
        says = (
            f"{name} goes with {others_are} ({test.p_text}): it seems to depend on more than {component}, and the coefficients "
            "may be wrong."
        )
    estimate = replace(found, others=others)
    of = (name, model.unit(event), component, others_are, estimate, test, says, finding, model.contrast)
    return Outcome(*of), model.notes()
