"""Samples of several tables line up by their labels: which row of each table is the same sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.columns import is_gap, listed, repeated
from richcomponents.errors import DataError

WAYS = ("same", "inner", "outer")


@dataclass(frozen=True)
class Alignment:
    """labels (n,) : of the common rows, in the order of the first table, then of those that only later ones have;
    rows : {table: (n,), the number of its row, -1 where it has none}; left_out : {table: labels that only some tables have, of
    rows that are not among these}."""

    labels: tuple[Any, ...]
    rows: Mapping[str, IntArray]
    left_out: Mapping[str, tuple[Any, ...]]

    def notes(self) -> tuple[str, ...]:
        """What was left out, and whose rows are filled with gaps, counted and named."""
        kept = len(self.labels)
        told = [
            f"{len(labels)} sample{'' if len(labels) == 1 else 's'} of {name!r} {'is' if len(labels) == 1 else 'are'} not in "
            f"every table and {'was' if len(labels) == 1 else 'were'} left out ({listed(list(map(str, labels)))}); "
            f"{kept} are kept."
            for name, labels in self.left_out.items()
            if labels
        ]
        for name, rows in self.rows.items():
            gone = [str(label) for label, row in zip(self.labels, rows.tolist(), strict=True) if row < 0]
            told += [f"{name!r} lacks {len(gone)} of {kept} samples ({listed(gone)})."] if gone else []
        return tuple(told)

    def taken(self, values: Array, name: str) -> Array:
        """Rows (n, p) of a table in the common order, nan where it has none."""
        rows = self.rows[name]
        if (rows >= 0).all():
            return np.asarray(values[rows])
        out = np.full((len(rows), *values.shape[1:]), np.nan)
        out[rows >= 0] = values[rows[rows >= 0]]
        return out


def align_labels(labels: Mapping[str, Sequence[Any]], how: str) -> Alignment:
    """Tables by name, each with the labels of its rows.

    how : "same", all tables must have the same samples, in any order; "inner", the samples that all of them have; "outer",
    the samples that any of them has.

    >>> found = align_labels({"rna": ["a", "b", "c"], "protein": ["c", "a"]}, "inner")
    >>> found.labels, found.rows["protein"].tolist(), found.left_out["rna"]
    (('a', 'c'), [1, 0], ('b',))
    """
    if how not in WAYS:
        raise ValueError(f"align must be one of {', '.join(map(repr, WAYS))}, got {how!r}")
    for name, own in labels.items():
        bare = next((row for row, label in enumerate(own) if is_gap(label)), None)
        if bare is not None:
            raise DataError(f"data row {bare + 1} of {name!r} has no sample label: give it one")
        twice = repeated(own)
        if twice is not None:
            raise DataError(f"{name!r} has two rows labelled {twice!r}: sample labels must be unique")
    where = {name: {label: row for row, label in enumerate(own)} for name, own in labels.items()}
    first = next(iter(where))
    for name, there in where.items():
        missing = [label for label in where[first] if label not in there]
        extra = [label for label in there if label not in where[first]]
        if how == "same" and (missing or extra):
            raise DataError(
                f"views {first!r} and {name!r} hold different samples ({len(missing)} only in {first!r}, {len(extra)} only in "
                f'{name!r}, e.g. {(missing + extra)[0]!r}): align="inner" takes those they share, align="outer" all of them '
                '(with missing="available"), in fit_views or open_source(tables, align=...), which every fit takes'
            )
    union = dict.fromkeys(label for own in where.values() for label in own)
    kept = [label for label in union if how == "outer" or all(label in own for own in where.values())]
    if not kept:
        firsts = ", ".join(repr(next(iter(own), None)) for own in where.values())
        raise DataError(f"{' and '.join(map(repr, where))} share no sample label (their first labels are {firsts})")
    inside = set(kept)
    return Alignment(
        tuple(kept),
        {name: np.array([own.get(label, -1) for label in kept], dtype=np.int64) for name, own in where.items()},
        {name: tuple(label for label in own if label not in inside) for name, own in where.items()},
    )


def in_order_of(table: object, values: Any, what: str, samples: Sequence[Any] | None = None) -> Any:
    """Values of a labelled series in the order of a labelled table's rows; others as they are.

    Labels count where both have them: a default index (0, 1, ...) is no label beside texts. Beside other numbers it is one: a
    default index is also what the first rows of a longer table have, and whether these are the same samples nobody can tell.
    samples : the labels of rows that are no data frame; such tables may have lost samples when they were put side by side, and
    values of these are left out.
    """
    if not hasattr(values, "reindex") or not hasattr(getattr(values, "index", None), "equals"):
        return values
    given = values.index
    if samples is None:
        here: Any = getattr(table, "index", None) if hasattr(table, "columns") else None
    elif counts_rows(given) and len(given) != len(samples):
        return values  # of the rows of the first table, of which some are left out
    else:
        import pandas

        here = pandas.Index(list(samples))
    if not hasattr(here, "equals") or here.equals(given):
        return values
    if len(here) != len(given) and (samples is None or len(here.difference(given, sort=False))):
        return values  # of another length: refused in words elsewhere
    if here.is_unique and given.is_unique and not len(here.difference(given, sort=False)):
        return values.reindex(here)
    numbered = here.dtype.kind in "iu" and given.dtype.kind in "iu"
    if not numbered and (counts_rows(here) or counts_rows(given)):
        return values
    unknown = given.difference(here, sort=False)
    raise DataError(
        f"the labels of {what} are not those of the table's rows ({len(unknown)} are not in it"
        + (f", such as {unknown.tolist()[0]!r}" if len(unknown) else "; some stand twice")
        + f"): give {what} the table's index, or as an array (.to_numpy()) in the order of the rows"
    )


def counts_rows(index: Any) -> bool:
    """Whether an index only counts rows."""
    return bool(len(index)) and index.dtype.kind in "iu" and bool((index == range(len(index))).all())
