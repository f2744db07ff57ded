"""Labels as numbers: which of two classes is the positive one, and the levels of a text as columns of a table.

CLASSES. scikit-learn sorts labels, and its scorers rely on that order: in "case" and "control" the second is "control", and
coefficients for the second class would be those of being healthy. So the order of `classes_`, of the columns of predict_proba
and the sign of decision_function are scikit-learn's, while coefficients are those of the class called positive.

LEVELS. A text (or category) of k levels, as a covariate or an exposure, is k - 1 columns of zeros and ones: each level but one,
the reference, which all others are compared with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.cells import Column, as_labels, declared_order, remedy, written_otherwise
from richcomponents.errors import DataError
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
        for alike in ([str(label) == str(wanted) for label in classes], [_roughly(label, wanted) for label in classes]):
            if sum(alike) == 1:
                return alike.index(True), False
        there = " and ".join(repr(str(label)) for label in classes)
        raise DataError(f"positive={str(wanted)!r} is not a class of y, which holds {there}: name one of these")
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
    parts = re.split(r"0*(\d+)", text.casefold())  # letters, digits, ...; without zeros in front, longer is larger
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


def _roughly(label: Any, wanted: Any) -> bool:
    """1 is "1" and 1.0, True is "true"."""
    number = _number(label)
    return (number is not None and number == _number(wanted)) or str(label).casefold() == str(wanted).casefold()


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|-?\d+ days?\b|-?\d+:\d{2}:\d{2}")


@storable
@dataclass(frozen=True)
class Levels:
    """How a text becomes columns.

    name : of the column that holds it; labels : its levels, the reference first; counts : rows of each; by_order : nothing but
    their order chose the reference.
    """

    name: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    by_order: bool = False

    @classmethod
    def of(
        cls,
        values: Column,
        name: str,
        role: str,
        reference: object = None,
        *,
        gaps: bool = False,
    ) -> Levels:
        """role : what messages call the column; reference : the level that others are compared with; gaps : rows may lack a
        label. Labels are in the order that a category declares, else in the natural one."""
        order = declared_order(values)
        texts, there = cls._texts(values, name, role, gaps)
        found, numbers = np.unique(texts[there], return_counts=True)
        counts = dict(zip(found.tolist(), numbers.tolist(), strict=True))
        labels = [found[i].item() for i in in_order(found.tolist())]
        labels = labels if order is None else [label for label in order if label in counts]
        if len(labels) < 2:
            raise DataError(f"{role} {name!r} is {labels[0]!r} in every row: there is nothing to compare")
        foreign = next((label for label in labels if written_otherwise(label)), None)
        if foreign is not None:
            raise DataError(f"{role} {name!r} holds text ({foreign!r}): {remedy(foreign)}")
        if len(labels) > max(10, len(texts) // 10):  # one that is another in most rows is an identifier
            raise DataError(
                f"{role} {name!r} has {len(labels)} different labels in {len(texts)} rows: {_what_they_are(labels)}"
            )
        base, by_order = (labels[0], True) if order and reference is None else _reference(name, labels, reference)
        labels = [base, *(label for label in labels if label != base)]
        return cls(name, tuple(labels), tuple(counts[label] for label in labels), by_order)

    @staticmethod
    def _texts(values: Column, name: str, role: str, gaps: bool) -> tuple[Any, Any]:
        """The labels (n,), and which rows have one."""
        labels = as_labels(values)
        there = np.array([label is not None and label != "" for label in labels], dtype=bool)
        if not there.all() and not (gaps and there.any()):
            raise DataError(
                f'{role} {name!r} has no label in row {np.flatnonzero(~there)[0]}: drop such rows, or fit with missing="drop"'
            )
        return labels.astype(np.str_), there

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of zeros and ones."""
        return tuple(f"{self.name}={label}" for label in self.labels[1:])

    def coded(self, values: Column, role: str, *, gaps: bool = False) -> Array:
        """(n, k - 1) of zeros and ones; a label that is none of the levels is refused. gaps : rows may lack a label, and are
        nan."""
        texts, there = self._texts(values, self.name, role, gaps)
        strange = np.flatnonzero(there & ~np.isin(texts, self.labels))
        if len(strange):
            raise DataError(
                f"{role} {self.name!r} is {texts[strange[0]].item()!r} in row {strange[0]}, and the fit knew "
                f"{', '.join(map(repr, self.labels))} only: drop such rows, or fit again with rows of that label"
            )
        coded = np.array(texts[:, None] == np.array(self.labels[1:]), dtype=np.float64)
        coded[~there] = np.nan
        return coded

    def __str__(self) -> str:
        """
        >>> print(Levels("sex", ("female", "male"), (20, 30)))
        sex: male (30 rows) against female (20 rows)
        """
        rows = [f"{label} ({n} row{'' if n == 1 else 's'})" for label, n in zip(self.labels, self.counts, strict=True)]
        return f"{self.name}: {', '.join(rows[1:])} against {rows[0]}"


def _what_they_are(labels: Sequence[str]) -> str:
    """What labels seem to be that are others in most rows, and the remedy."""
    if all(_number(label) is not None for label in labels):
        return "they are numbers, kept as text or objects: use pd.to_numeric(column), or .astype(float)"
    if all(_DATE.match(label) for label in labels):
        return "they are dates or times. Turn them into numbers, such as days since a start, or a category, such as the year"
    return "is it an identifier?"


def _reference(name: str, labels: Sequence[str], wanted: object) -> tuple[str, bool]:
    """The level that others are compared with, and whether nothing but the order chose it."""
    if wanted is not None:
        found = [label for label in labels if label.casefold() == str(wanted).casefold()]
        if len(found) != 1:
            raise DataError(f"reference={str(wanted)!r} is not a class of {name!r}, which holds {', '.join(labels)}")
        return found[0], False
    if len(labels) == 2:
        positive, guessed = positive_class(labels)
        return labels[1 - positive], guessed
    leanings = [leaning(label) for label in labels]
    least = min(leanings)
    return labels[leanings.index(least)], leanings.count(least) > 1
