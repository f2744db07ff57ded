"""Several tables of the same samples side by side: which row of each is the same sample, by their labels.

Users who hold several tables come in through :func:`join_views`, which checks that the samples line up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.cells import is_gap
from richcomponents.data.table import (
    Views,
    as_frame,
    as_matrix,
    check_finite,
    check_labels,
    column_names,
    listed,
    repeated,
    resolve_views,
    sample_index,
)
from richcomponents.errors import DataError, warn_user

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
        bare, other = ("the table", what) if counts_rows(here) else (what, "the table")
        warn_user(f"no sample labels in {bare}: rows are taken to be in the order of {other}", UserWarning)
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


# ---- tables


@dataclass(frozen=True)
class Table:
    """Values (n, p) with their views and, when the input had one, the sample index."""

    values: Array
    views: Views
    index: tuple[object, ...] | None = None
    named: bool = False  # whether the column names are the user's
    alignment: Alignment | None = None  # of rows that were matched by label

    def lined_up(self, values: object, what: str) -> Any:
        """One value per row of the first view as it was given -> one per row of the table; None stays None."""
        if values is None or self.alignment is None:
            return values
        first, rows = next(iter(self.alignment.rows.items()))
        entries, lacks = np.asarray(values), int((rows < 0).sum())
        given = len(rows) - lacks + len(self.alignment.left_out.get(first, ()))
        if len(entries) != given:
            raise DataError(f"{what} must have one entry per row of view {first!r} ({given}), got {len(entries)}")
        if lacks:
            raise DataError(
                f"{what} are given for the rows of view {first!r}, which lacks {lacks} samples: use "
                'align="inner", or join the tables and use fit(X)'
            )
        return entries[rows]


def as_table(X: object, views: object = None) -> Table:
    """A table and its column groups, checked.

    Examples
    --------
    >>> table = as_table(np.zeros((4, 5)), views={"tests": [0, 1, 2], "controls": slice(3, 5)})
    >>> table.values.shape, table.views["controls"].tolist()
    ((4, 5), [3, 4])
    """
    check_labels(X, views)
    values, names = as_matrix(X), column_names(X)
    resolved = resolve_views(views, values.shape[1], names, values)
    check_finite(values, resolved)
    return Table(values, resolved, sample_index(X), names is not None)


def join_views(views: object, *, align: str = "same", id: str | None = None, finite: bool = True) -> Table:
    """One table from several: a list of tables, a dict {name: table}, or a MuData-like object (`.mod`).

    Tables may be arrays, pandas or polars data frames, or AnnData-like objects (`.X`, `.var_names`, `.obs_names`). Where they
    carry sample labels (a pandas index, `obs_names`), rows are matched by these and come in the order of the first table that
    has them; without labels, tables must have the same number of rows and are taken row by row.

    align : "same", labels must be the same ones, in any order; "inner", samples that all tables have, the others are left out,
    counted and named in a warning; "outer", samples that any table has, with nan where a table has none.
    id : the column of sample labels, of data frames (of AnnData: of obs); it is no data.
    finite : refuse missing and infinite values; with align="outer" they are to be expected.

    >>> table = join_views({"rna": np.zeros((4, 2)), "protein": np.ones((4, 3))})
    >>> table.values.shape, table.views["protein"].tolist()
    ((4, 5), [2, 3, 4])
    """
    named = {view: _labelled(view, part, id) for view, part in named_views(views).items()}
    found = _aligned({view: (labels, len(values)) for view, (values, _, labels) in named.items()}, align)
    names = []
    for view, (values, own, _) in named.items():
        names.append([f"{view}_{i}" for i in range(values.shape[1])] if own is None else list(own))
    flat = [name for group in names for name in group]
    if len(set(flat)) < len(flat):  # the same gene measured in two views: tell them apart by the view
        flat = [f"{view}:{name}" for view, group in zip(named, names, strict=True) for name in group]
    ends = np.cumsum([0, *(values.shape[1] for values, _, _ in named.values())])
    columns = {view: np.arange(ends[i], ends[i + 1], dtype=np.int64) for i, view in enumerate(named)}
    named_by_user = any(own is not None for _, own, _ in named.values())
    parts = [values if found is None else found.taken(values, view) for view, (values, _, _) in named.items()]
    index = None if found is None else found.labels
    table = Table(np.hstack(parts), resolve_views(columns, int(ends[-1]), flat), index, named_by_user, found)
    if finite and align != "outer":
        check_finite(table.values, table.views)
    for note in () if found is None else found.notes():
        warn_user(note, UserWarning)
    return table


def named_views(views: object) -> dict[str, Any]:
    """{name: table} of a list, a dict or a MuData-like object; two that are not named are U and V."""
    parts = getattr(views, "mod", views)
    if isinstance(parts, Mapping):
        named = {str(name): part for name, part in parts.items()}
    elif isinstance(parts, Sequence) and not isinstance(parts, str):
        default = ("U", "V") if len(parts) == 2 else tuple(f"view{i}" for i in range(len(parts)))
        named = dict(zip(default, parts, strict=True))
    else:
        raise TypeError(f"give a list, a dict or a MuData-like object of views, got {type(views).__name__}")
    if not named:
        raise DataError("there are no views")
    return named


def _labelled(view: str, part: Any, id: str | None) -> tuple[Array, tuple[str, ...] | None, tuple[object, ...] | None]:
    """Values (n, p) of a view, its column names and its sample labels, where it has any."""
    annotated = hasattr(part, "obs_names")
    labels = sample_index(part)
    if id is not None:
        part, labels = _without_labels(view, part, id)
    try:
        values = as_matrix(getattr(part, "X", part) if annotated else part)
    except DataError as error:
        raise DataError(f"view {view!r}: {error}") from error
    if not values.shape[1]:
        raise DataError(f"view {view!r} has no columns")
    own = getattr(part, "var_names", None) if annotated else column_names(part)
    return values, None if own is None else tuple(map(str, own)), labels


def _without_labels(view: str, part: Any, id: str) -> tuple[Any, tuple[object, ...]]:
    """A table without its column of sample labels, and these."""
    annotations = getattr(part, "obs", None)
    if annotations is not None and id in annotations:
        return part, tuple(annotations[id])
    frame = as_frame(part)
    if annotations is not None or not isinstance(frame, nw.DataFrame) or id not in frame.columns:
        if isinstance(frame, nw.DataFrame) and getattr(getattr(part, "index", None), "name", None) == id:
            return part, tuple(part.index)
        there = "columns" if isinstance(frame, nw.DataFrame) else ""
        there = there if annotations is None else "obs of the AnnData"
        said = f"not among the {there}" if there else "an array has no named columns: pass a data frame"
        raise DataError(f"view {view!r} has no sample labels {id!r}: {said}")
    return frame.drop(id).to_native(), tuple(frame[id].to_list())


def _aligned(tables: Mapping[str, tuple[tuple[object, ...] | None, int]], how: str) -> Alignment | None:
    """How the rows of tables, each with its labels and its length, line up; None where they do row by row, without labels."""
    if how not in WAYS:
        raise ValueError(f"align must be one of {', '.join(map(repr, WAYS))}, got {how!r}")
    known = {view: labels for view, (labels, _) in tables.items() if labels is not None}
    numbered = [view for view, labels in known.items() if labels == tuple(range(len(labels)))]  # says nothing by itself
    if len(numbered) == len(known):
        known = {}
    bare = next((view for view in tables if view not in known), None)
    if how != "same" and bare is not None:
        raise DataError(
            f"align={how!r} matches samples by label, and view {bare!r} has none: give it an index of sample labels (obs_names "
            "of AnnData), or name the column that holds them, id="
        )
    if numbered and known and len(set(known.values())) > 1:
        other = next(view for view in known if view not in numbered)
        raise DataError(
            f"view {numbered[0]!r} numbers its rows 0, 1, 2, ... and view {other!r} labels them otherwise: whether these are "
            "the same samples in a different order nobody can tell. Give both the same labels, or none (to_numpy())"
        )
    lengths = {view: length for view, (_, length) in tables.items()}
    if bare is not None and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{view!r} has {n}" for view, n in lengths.items())
        raise DataError(f"all views must have the same samples: {counts}")
    if not known:
        return None
    found = align_labels(known, how)
    if bare is not None:
        first = next(iter(known))
        warn_user(
            f"view {bare!r} carries no sample labels: its rows are taken to be in the order of {first!r}", UserWarning
        )
        rows = {view: found.rows.get(view, found.rows[first]) for view in tables}
        return Alignment(found.labels, rows, found.left_out)
    return found
