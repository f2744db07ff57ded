"""The rows behind a fit: what the columns look like, and where samples lie before and after cleaning.

Directions are those in which the shared part of the first view is largest: with s = U - S1^ (the prediction of what is shared,
column by column in standard deviations of U), the two leading right singular vectors of s. Before: U in these directions;
after: S1^ in the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """views : {name: values (n, d)}, nan where missing; known : {name: (n,)}, what samples may be coloured by; before, after :
    (n, 2), or None where nothing is shared; of : how many rows there are."""

    views: Mapping[str, Array]
    known: Mapping[str, Array]
    before: Array | None
    after: Array | None
    of: int

    @property
    def n(self) -> int:
        return len(next(iter(self.views.values())))

    def drawn(self) -> IntArray:
        """Numbers of the samples in a picture: evenly spaced, those whose place is known."""
        if self.before is None or self.after is None:
            return np.zeros(0, dtype=np.int64)
        at = np.flatnonzero(np.isfinite(self.before).all(axis=1) & np.isfinite(self.after).all(axis=1))
        evenly = np.linspace(0, max(len(at) - 1, 0), min(_SHOWN, len(at))).round().astype(np.int64)
        return np.asarray(at[np.unique(evenly)])

    def columns(self, names: Mapping[str, tuple[str, ...]]) -> Table:
        """One row per column of each view: what is missing, where its values lie, and a remark where one is due."""
        twins = _twins({(view, i): x[:, i] for view, x in self.views.items() for i in range(x.shape[1])})
        rows = Table()
        for view, x in self.views.items():
            for i, name in enumerate(names[view]):
                twin = twins.get((view, i))
                same = "" if twin is None else f"same as {names[twin[0]][twin[1]]}"
                rows.append({"column": name, "view": view, **_described(x[:, i], same)})
        return rows

    def listed(self, names: Mapping[str, tuple[str, ...]]) -> Table:
        """The same for a page: of very many columns those that something is to be said about."""
        rows = self.columns(names)
        return rows if len(rows) <= _SHOWN else Table(row for row in rows if row["remark"] or row["missing"])

    def words(self, names: Mapping[str, tuple[str, ...]]) -> str:
        """How many rows, what is missing, which columns are constant or repeated."""
        rows, shown = self.columns(names), len(self.listed(names))
        lost = [(float(str(row["missing"])), str(row["column"])) for row in rows if row["missing"]]
        share, name = max(lost, default=(0.0, ""))
        missing = "No value is missing." if not lost else f"{name} misses {share:.1%} of its values."
        if len(lost) > 1:
            missing = f"{len(lost)} columns miss values, most of all {name} ({share:.1%})."
        remarks = [f"{row['column']} ({row['view']}): {row['remark']}" for row in rows if row["remark"]]
        look = f"Look at {'; '.join(remarks[:5])}{' ...' if len(remarks) > 5 else ''}."
        counted = f"The first {self.n} of {self.of} rows." if self.n < self.of else f"{self.n} rows."
        told = [counted, missing, look if remarks else "No column is constant or repeated."]
        if shown < len(rows):
            told.append(f"{len(rows) - shown} columns about which nothing is to be said are left out.")
        return " ".join(told)


def _described(x: Array, same: str) -> dict[str, object]:
    known, nan = x[np.isfinite(x)], float("nan")
    missing = float(1 - len(known) / max(len(x), 1))
    known, remark = (known, "") if len(known) else (np.array([nan]), "no values")
    mean, sd = float(known.mean()), float(known.std())
    constant = sd <= _LITTLE**0.5 * max(abs(mean), 1e-300)
    remark = remark or ("constant" if constant else same)
    return {
        "mean": mean,
        "sd": sd,
        "least": float(known.min()),
        "median": float(np.median(known)),
        "largest": float(known.max()),
        "skewness": nan if constant else float(np.mean(((known - mean) / sd) ** 3)),
        "missing": missing,
        "remark": remark,
    }


def _twins(columns: Mapping[tuple[str, int], Array]) -> dict[tuple[str, int], tuple[str, int]]:
    """{a column: an earlier one with the same values}."""
    seen: dict[bytes, tuple[str, int]] = {}
    twins = {}
    for place, x in columns.items():
        first = seen.setdefault(np.ascontiguousarray(x).tobytes(), place)
        if first != place:
            twins[place] = first
    return twins


def look_at(model: Any, rca: Any, X: object, y: object, covariates: tuple[str, ...], outcome: str) -> Samples | None:
    """The first rows behind a fit; None where they cannot be read (again). covariates : their names, exposures included."""
    if X is None:
        return None
    exposed = hasattr(model, "rows_of_rca")
    most = min(MOST_ROWS, max(MOST_VALUES // max(len(rca.views_.feature_names), 1), 50))
    rows = model.rows_of_rca(X, y) if exposed else used_rows(rca, X)
    if rows is None or not rows.rereadable:
        return None
    views, known, own = rca.fitted_.first_rows(rows, most)
    n = len(own)
    last_first = zip(reversed(covariates), known.T[::-1], strict=True)  # exposures stand last, and are of most interest
    colours = {name: _as_classes(values) for name, values in last_first}
    of_rows: Any = () if exposed or y is None else np.asarray(labels_in(X, y) if is_column(y) else y)
    if np.ndim(of_rows) == 1 and len(of_rows) >= n:
        colours = {outcome: _as_classes(of_rows[:n]), **colours}
    before, after = _cleaned(next(iter(views.values())), own)
    return Samples(views, colours, before, after, int(rca.n_samples_))


def _as_classes(values: Array) -> Array:
    """Few different numbers as texts: they are told apart, not measured."""
    if values.dtype.kind not in "biuf" or len(np.unique(values)) > _FEW:
        return values
    return np.array([f"{value:g}" for value in values.astype(np.float64)], dtype=object)


def _cleaned(values: Array, own: Array) -> tuple[Array | None, Array | None]:
    """Where samples lie in the two leading shared directions, (n, 2), with what is shared and without it."""
    known = np.isfinite(values).all(axis=1) & np.isfinite(own).all(axis=1)
    if known.sum() < 3 or values.shape[1] != own.shape[1]:
        return None, None
    centred = values - values[known].mean(axis=0)
    scale = values[known].std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    few = np.flatnonzero(known)[:_SHOWN]
    shared = (centred - own)[few] / scale
    if np.linalg.norm(shared) ** 2 <= _LITTLE * shared.size:
        return None, None
    directions = np.linalg.svd(shared, full_matrices=False)[2][:2]
    if len(directions) < 2:
        return None, None
    return (centred / scale) @ directions.T, (own / scale) @ directions.T
