"""The rows behind a fit: what the columns look like, and where samples lie before and after cleaning.

Directions are those in which the shared part of the first view is largest: with s = U - S1^ (the prediction of what is shared,
column by column in standard deviations of U), the two leading right singular vectors of s. Before: U in these directions;
after: S1^ in the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.design import is_column, labels_in
from richcomponents.models.estimator import used_rows
from richcomponents.notebook import Table

MOST_ROWS = 5000
"""Rows that are looked at."""
_SHOWN = 300  # samples in a picture; columns in a table, of more those that something is to be said about
MOST_VALUES = 10_000_000
"""Numbers that are looked at, of rows or of a matrix."""
_FEW = 6  # different values that have a colour each
_LITTLE = 1e-9  # of a column's variance


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

    def words(self) -> str:
        """How many rows, what is missing, which columns are constant or repeated."""
        rows, n = self.columns, len(next(iter(self.views.values())))
        lost = [(float(str(row["missing"])), str(row["column"])) for row in rows if row["missing"]]
        share, name = max(lost, default=(0.0, ""))
        missing = "No value is missing." if not lost else f"{name} misses {share:.1%} of its values."
        if len(lost) > 1:
            missing = f"{len(lost)} columns miss values, most of all {name} ({share:.1%})."
        remarks = [f"{row['column']} ({row['view']}): {row['remark']}" for row in rows if row["remark"]]
        look = f"Look at {'; '.join(remarks[:5])}{' ...' if len(remarks) > 5 else ''}."
        said = [f"The first {n} of {self.of} rows." if n < self.of else f"{n} rows.", missing]
        said.append(look if remarks else "No column is constant or repeated.")
        if len(self.listed) < len(rows):
            said.append(f"{len(rows) - len(self.listed)} columns about which nothing is to be said are left out.")
        return " ".join(said)


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
