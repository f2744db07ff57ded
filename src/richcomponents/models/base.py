"""What all learners of a component share.

CLASSES. Two classes: which of them the log-odds are of.

scikit-learn sorts labels, and its scorers rely on that order: in "case" and "control" the second is "control", and
coefficients for the second class would be those of being healthy. So the order of `classes_`, of the columns of predict_proba
and the sign of decision_function are scikit-learn's, while coefficients are those of the class called positive.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.contrastive.diagnostics import TestResult
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.models.estimator import Estimator, as_fitted, refuse_second_table
from richcomponents.models.rca import ComponentAnalysis
from richcomponents.moments.data import Data
from richcomponents.plots import estimate_plot
from richcomponents.storage import storable

_YES = """
yes y true positive pos + case cases patient patients disease diseased ill sick affected abnormal cancer tumor tumors tumour
tumours malignant metastatic infected mutant mutated treated treatment exposed present responder responders event dead died
deceased relapsed recurrent progressed smoker smokers
"""
_NO = """
no n not non none never without false negative neg - control controls ctrl ctl healthy well unaffected normal benign uninfected
wildtype wt untreated placebo unexposed absent nonresponder nonresponders alive survived survivor nonsmoker nonsmokers unmutated
reference baseline
"""
_LEANING = dict.fromkeys(_NO.split(), -1) | dict.fromkeys(_YES.split(), 1)
_WORDS = re.compile(r"[^\W\d_]+|[+-]$")


@storable
@dataclass(frozen=True)
class Contrast:
    """Two classes as a reader meets them.

    labels : the positive one, then the other; counts : their rows, if there were any; by_order : nothing but the order of the
    labels made the first one positive.
    """

    labels: tuple[str, ...]
    counts: tuple[int, ...] | None = None
    by_order: bool = False

    @property
    def positive(self) -> str:
        return self.labels[0]

    def rows(self) -> dict[str, int | None]:
        """Rows of each class, the positive one first."""
        return dict(zip(self.labels, self.counts or (None, None), strict=True))

    def __str__(self) -> str:
        """
        >>> print(Contrast(("case", "control"), (20, 30)))
        case (20 rows) against control (30 rows)
        """
        known = {label: "" if n is None else f" ({n} row{'' if n == 1 else 's'})" for label, n in self.rows().items()}
        return " against ".join(label + count for label, count in known.items())

    def notes(self) -> tuple[str, ...]:
        """What is to be said of a choice by order."""
        sentence = (
            f"{self.labels[0]} is taken as the positive class because it comes after {self.labels[1]} in order; "
            "positive= (--positive on the command line) chooses."
        )
        return (sentence,) if self.by_order else ()


def positive_class(classes: Sequence[Any], wanted: Any = None) -> tuple[int, bool]:
    """Number (0 or 1) of the positive class, and whether nothing but the order chose it.

    The one wanted, else the one whose words say so (case, yes, disease, treated, ... against control, no, healthy, untreated,
    ...), else the second in natural order.

    >>> positive_class(["case", "control"]), positive_class(["no relapse", "relapse"]), positive_class([0, 1])
    ((0, False), (1, False), (1, False))
    >>> positive_class(["10", "9"]), positive_class(["left", "right"]), positive_class(["left", "right"], "left")
    ((0, True), (1, True), (0, False))
    """
    if wanted is not None:
        for same in (_exactly, _roughly):
            found = [i for i, label in enumerate(classes) if same(label, wanted)]
            if len(found) == 1:
                return found[0], False
        raise DataError(
            f"positive={str(wanted)!r} is not a class of y, which holds {_listed(classes)}: name one of these"
        )
    first, second = map(leaning, classes)
    if first != second:
        return int(second > first), False
    order = in_order(classes)
    return order[1], [_number(classes[i]) for i in order] not in ([0, 1], [-1, 1])


def in_order(classes: Sequence[Any]) -> list[int]:
    """Positions of labels in natural order: numbers as numbers, also inside texts.

    >>> in_order(["10", "9"]), in_order(["grade 10", "grade 9"]), in_order(["b", "A"])
    ([1, 0], [1, 0], [1, 0])
    """
    numbers = [number for label in classes if (number := _number(label)) is not None]
    keys: list[Any] = numbers if len(numbers) == len(classes) else [_natural(str(label)) for label in classes]
    return sorted(range(len(classes)), key=lambda i: keys[i])


def _natural(text: str) -> list[tuple[int, str]]:
    """Runs of digits compare by their value, everything else as letters, whatever their case."""
    parts = re.split(
        r"0*(\d+)", text.casefold()
    )  # letters, digits, letters, ...; without zeros in front, longer is larger
    return [(len(part) if i % 2 else 0, part) for i, part in enumerate(parts)]


def _number(label: Any) -> float | None:
    try:
        value = float(label)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def leaning(label: Any) -> int:
    """Words for "yes" less words for "no"."""
    return sum(_LEANING.get(word, 0) for word in _WORDS.findall(str(label).casefold()))


def _exactly(label: Any, wanted: Any) -> bool:
    return str(label) == str(wanted)


def _roughly(label: Any, wanted: Any) -> bool:
    """1 is "1" and 1.0, True is "true"."""
    number = _number(label)
    return (number is not None and number == _number(wanted)) or str(label).casefold() == str(wanted).casefold()


def _listed(classes: Sequence[Any]) -> str:
    return " and ".join(repr(str(label)) for label in classes)


_SUSPICIOUS = 0.001


class ComponentLearner(Estimator):
    """An estimator of a model of one component; subclasses take `rca=` and `component=`.

    After fit: `rca_` (a fitted clone; None after fit_component) and `component_` (what was learned from).
    """

    rca: Any
    component: str
    takes_outcome = False
    """Whether fit needs a y."""

    def title(self) -> str:
        """What was learned, in a line."""
        raise NotImplementedError

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """What was learned, with its errors where they need no refits (`confidence_interval` has the others).

        names : of the component's columns, where X had none.
        """
        raise NotImplementedError

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw what was learned; returns the matplotlib Axes."""
        raise NotImplementedError

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        return self.component_.feature_names if names is None else tuple(map(str, names))

    def _fit_rca(self, X: object, groups: object = None, y: object = None) -> Component:
        """Fit a clone of the RCA to X and return the component to learn; y : of learners that ignore it."""
        return self._fit_rca_data(X, groups, y)[0]

    def _fit_rca_data(self, X: object, groups: object = None, y: object = None) -> tuple[Component, Data]:
        """The same, with what the solver saw of X."""
        model = self.unfitted_rca()
        refuse_second_table(y)
        data: Data = model.fit_data(X, groups=groups)
        self.rca_ = model
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        self.component_: Component = self._component_of(model)
        return self.component_, data

    def unfitted_rca(self) -> Any:
        """A clone of the RCA that was given."""
        if self.rca is None:
            raise DataError("rca= says which columns are which view: give rca=ContrastiveRCA(views=...), or an RCA")
        return clone(self.rca)

    def _component_of(self, model: Any) -> Component:
        """The component to learn, of a fitted RCA; a subset of views may be a list."""
        wanted = tuple(self.component) if isinstance(self.component, list) else self.component
        if wanted not in model.components_:
            raise ValueError(
                f"component must be one of {', '.join(map(repr, model.components_))}, got {self.component!r}"
            )
        found: Component = model.components_[wanted]
        return found

    def _take_component(self, component: Component) -> Component:
        """Learn from a component that was extracted before; there are no rows."""
        if not isinstance(component, Component):
            raise TypeError(
                f"fit_component takes a Component, such as model.components_['S1'], got {type(component).__name__}"
            )
        self.rca_, self.component_ = None, component
        return component

    def _samples(self, S: object) -> Array:
        """Samples of the component itself (n, d), checked."""
        samples, d = as_matrix(S), len(self.component_.mean)
        if samples.shape[1] != d:
            raise DataError(f"samples of {self.component_.name} have {d} columns, got {samples.shape[1]}")
        if not np.isfinite(samples).all():
            raise DataError(f"samples of {self.component_.name} hold missing or infinite values: drop those rows")
        return samples

    def _need_rca(self) -> ComponentAnalysis:
        if self.rca_ is None:
            raise ValueError("this needs the rows' views: use fit(X), not fit_component(component)")
        model: ComponentAnalysis = as_fitted(self.rca_)
        return model


class OutcomeLearner(ComponentLearner):
    """An estimator of the coefficients of an outcome on a component.

    After fit: coef_ (d,) or (1, d), residualised_ (d,) or None (what V as covariates would give) and coefficients_, an
    Estimate or None.
    """

    takes_outcome = True
    coef_: Array
    residualised_: Array | None
    coefficients_: Estimate | None

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """The coefficients, beside those of residualising; without errors where there are none (`coefficients_` is None).

        names : of the component's columns, where X had none.
        """
        check_is_fitted(self)
        found = self.coefficients_
        if found is None:
            coef = np.ravel(self.coef_)
            found = Estimate(coef, np.full_like(coef, np.nan), 1, positive=self._positive())
        others = {} if self.residualised_ is None or self.rca_ is None else {"residualised": self.residualised_}
        return replace(found, names=self._names(names), others=others)

    @property
    def contrast(self) -> Contrast | None:
        """The two classes, of a classifier."""
        return None

    def notes(self) -> tuple[str, ...]:
        """What a reader of the coefficients must be told, as sentences."""
        return () if self.contrast is None else self.contrast.notes()

    def _positive(self) -> str:
        return "" if self.contrast is None else self.contrast.positive

    def unit(self, outcome: str = "y") -> str:
        """What a coefficient is; outcome : the name of y."""
        raise NotImplementedError

    def unfitted(self) -> Self:
        """A clone with the choices that the fit made (the penalty, the positive class), for the same fit of other samples."""
        raise NotImplementedError

    def outcome_test(self, X: object, y: object) -> TestResult:
        """F-test of y on the views outside of the component: y depends on the component only, so it must not go with them."""
        check_is_fitted(self)
        return self._need_rca().outcome_test(X, self._coded(y), self.component)

    def _coded(self, y: object) -> Any:
        """y as numbers."""
        return y

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the coefficients, their confidence intervals and those of residualising (matplotlib).

        names : of the component's columns, where X had none. ax : where to draw, a new figure by default. Returns the Axes.
        """
        title, label = f"Coefficients on {self.component_.name}", self.unit(self._positive() or "y")
        return estimate_plot(self.estimate(names), title=title, label=label, ax=ax)

    def _warn_of_others(self, X: object, target: Array, remedy: str = "choose another component") -> None:
        """y depends on one component only, so it must not go with the views where that does not live."""
        model = self._need_rca()
        test = model.outcome_test(X, target, self.component)
        if test.p_value < _SUSPICIOUS:
            others = model.others(self.component)
            warn_user(
                f"y is correlated with {others} (F-test, p = {test.p_value:.1e}), where {self.component_.name} does not live: "
                f"it seems to depend on more than {self.component_.name}, and the coefficients may be wrong. Check "
                f"that {others} holds controls only, or {remedy}",
                SpecificationWarning,
            )
