"""The paper's experiment on real measurements: test and control markers, a disease, and labs that nobody wrote down.

Real columns play S1 (test markers) and S3 (control markers); two labs with their own biases play S2. Logistic regression of
the disease on the unperturbed test markers is the gold standard. Markers come from files of the user, or from scikit-learn's
breast cancer table, so that it works anywhere. That table's raw columns violate the model (the first canonical correlation is
.99 without any lab): the rows of its controls are permuted, which leaves only the labs to be shared.

The paper's Appendix D writes A = Q P^+ with the biases of the labs as columns of P and Q, rank two for two labs. That is not
what equation (2) recovers: cumulants of order two and more are the same for (p1, p2) and (p1 + c, p2 + c), so they know the
difference of the labs only, and give A = (q1 - q2) (p1 - p2)^+, of rank one (k labs: k - 1). It suffices: the cumulants of S1
need no more, and the mean of S2 is not identified anyway. "A known" is that matrix.
"""

from __future__ import annotations

import copy
import csv
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from richcomponents import baselines
from richcomponents.algebra import Array
from richcomponents.datasets import add_hidden_labs, load_biomarkers
from richcomponents.errors import DataError
from richcomponents.experiments.rows import Job, Row, Settings, settings_of
from richcomponents.models import ComponentLogisticRegression, ContrastiveRCA
from richcomponents.paper.experiments import contrastive_logistic, extract

EMBEDDED = "breast cancer (controls permuted)"
ABOUT_A = (
    "Biomarkers: the paper's appendix writes A = QP⁺ with the biases of both labs in P and Q, of rank two. That is not "
    "what its equation (2) recovers: cumulants are the same for labs that are all shifted by one bias, so they know "
    "differences between labs only, and give A = (q1 - q2)(p1 - p2)⁺, of rank one. S1 needs no more; “A known” is that matrix."
)
"""A note for the page."""


@dataclass(frozen=True)
class Markers:
    """values (n, p), standardised columns; y (n,) of 0 and 1; label : names the data in rows and figures.

    split : None, or how many of the first columns are the tests; the rest are controls, permuted in every draw.
    """

    values: Array
    y: Array
    label: str
    split: int | None = None


def embedded_markers() -> Markers:
    """Ten measurements of cell nuclei (tests) and their variation (controls)."""
    table, malignant = load_biomarkers()
    tests, controls = (table.values[:, table.views[name]] for name in ("mean", "variation"))
    return Markers(np.hstack([tests, controls]), np.array(malignant, dtype=np.float64), EMBEDDED, tests.shape[1])


def read_markers(data: Path, pheno: Path, *, outcome: str) -> Markers:
    """Markers from a CSV file (rows = people, columns = markers; .gz allowed) and their outcome from another.

    Rows are matched by a column of both files that names the people: its values differ within each file, and those of `data`
    are all found in `pheno`. Without one, rows are matched by their order, and what both files tell must agree. The outcome
    is the column of this name, or the only column that holds nothing but 0 and 1. Markers are the columns of numbers; columns
    without any number are left out.
    """
    names, table = _columns(data)
    _, phenotypes = _columns(pheno)
    ill, y = _outcome(pheno, phenotypes, outcome)
    shared = {name: (_keys(table[name]), _keys(phenotypes[name])) for name in names if name in phenotypes}
    key = _key(shared, data.name, pheno.name)
    if key is None:
        _check_order(shared, data.name, pheno.name, len(table[names[0]]), len(y))
    else:
        people, listed = shared[key]
        place = {person: i for i, person in enumerate(listed)}
        y = y[[place[person] for person in people]]
    markers = {name: _marker(data.name, name, table[name]) for name in names if name not in (key, ill)}
    numeric = {name: column for name, column in markers.items() if column is not None}
    if not numeric:
        raise DataError(f"{data.name} has no marker: no column{f' besides {key}' if key else ''} holds numbers")
    holes = {name: int(np.sum(~np.isfinite(column))) for name, column in numeric.items()}
    incomplete = [name for name, count in holes.items() if count]
    if incomplete:
        others = f", and so do {len(incomplete) - 1} other markers" if len(incomplete) > 1 else ""
        raise DataError(
            f"{data.name}: marker {incomplete[0]!r} holds {holes[incomplete[0]]} missing or infinite values{others}: drop or "
            "impute them"
        )
    values = np.column_stack(list(numeric.values()))
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    digest = hashlib.sha256(values.tobytes() + y.tobytes()).hexdigest()[:8]
    return Markers(standard, y, f"{data.name.split('.')[0].replace(',', ' ')} {digest}")


def measure(settings: Settings, markers: Markers, job: Job) -> list[Row]:
    """Mean squared errors of the coefficients, one draw of markers and labs; "rank" is the rank found automatically."""
    options = settings.panels[job["panel"]].options
    tests, U, V, A = _perturbed(markers, options, job["x"][0], job["seed"])
    alpha = float(options["alpha"] if markers.split is None else options["embedded_alpha"])
    gold_alpha = 0.0 if markers.split is None else alpha
    gold = ComponentLogisticRegression(alpha=gold_alpha).fit_clean(tests, markers.y).coef_[0]
    X, d = np.hstack([U, V]), U.shape[1]

    def learner(rank: object, A: Array | None = None) -> ComponentLogisticRegression:
        return ComponentLogisticRegression(alpha=alpha, rca=ContrastiveRCA(views=d, rank=rank, A=A))

    rank = int(options["n_labs"]) - 1
    automatic = learner("auto").fit(X, markers.y)
    betas = {
        "naive": baselines.naive(learner("auto"), X, markers.y).coef_[0],
        "cca": baselines.cca(learner("auto"), X, markers.y).coef_[0],
        "covariates": learner("auto").fit_clean(X, markers.y).coef_[0, :d],
        "rca": learner(rank).fit(X, markers.y).coef_[0],
        "rca_auto": automatic.coef_[0],
        "known": learner(rank, A).fit(X, markers.y).coef_[0],
        "paper": contrastive_logistic(extract(U, V, rank=rank), markers.y).theta,
        "paper_known": contrastive_logistic(extract(U, V, A, rank=rank), markers.y).theta,
    }
    values = {method: float(np.mean((beta - gold) ** 2)) for method, beta in betas.items()}
    values["rank"] = float(automatic.rca_.rank_)
    return [{**row, "value": values[row["method"]]} for row in settings_of(job)]


def shared_beyond_labs(ranks: Array, n_labs: int) -> str | None:
    """What to tell the user when the automatic ranks (draws,) exceed what the labs alone can make."""
    share = float(np.mean(ranks > n_labs - 1))
    if share <= 0.1:
        return None
    return (
        f"the automatic rank is {np.mean(ranks):.1f} on average and above {n_labs - 1} in {share:.0%} of the draws: beyond the "
        f"{n_labs} labs the leftover correlation says that test and control markers share something else (cell types, "
        "batches), so S1 and S3 are not independent. Give the rank, or choose controls that share less"
    )


# ---- one draw


def _perturbed(
    markers: Markers, options: Mapping[str, Any], scale: float, seed: int
) -> tuple[Array, Array, Array, Array]:
    """Unperturbed test markers, U and V after the labs, and A (d_v, d_u) of the differences between labs."""
    rng = np.random.default_rng(seed)
    if markers.split is None:
        tests, controls = _chosen(markers, options, rng)
    else:
        tests, controls = markers.values[:, : markers.split], markers.values[:, markers.split :]
    labs: dict[str, Any] = {"n_labs": int(options["n_labs"]), "scale": scale, "permute": markers.split is not None}
    again = copy.deepcopy(rng)
    U, V = add_hidden_labs(tests, controls, **labs, random_state=rng)
    in_u, in_v = add_hidden_labs(np.zeros_like(tests), np.zeros_like(controls), **labs, random_state=again)
    return tests, U, V, lab_differences(in_u, in_v)


def lab_differences(in_u: Array, in_v: Array) -> Array:
    """A (d_v, d_u) with S2' - E[S2'] = A (S2 - E[S2]) for the biases (n, d_u) and (n, d_v) of the labs in the two views."""
    return np.asarray(np.linalg.lstsq(in_u - in_u.mean(axis=0), in_v - in_v.mean(axis=0), rcond=1e-10)[0].T)


def _chosen(markers: Markers, options: Mapping[str, Any], rng: np.random.Generator) -> tuple[Array, Array]:
    """Tests among the markers that go most with the outcome, controls among those that go least."""
    top, below = int(options["tests_among"]), int(options["controls_below"])
    n_tests, n_controls = int(options["n_tests"]), int(options["n_controls"])
    p = markers.values.shape[1]
    if p < below + n_controls:
        raise DataError(
            f"{markers.label} has {p} markers: {n_tests} tests among the {top} nearest to the outcome and {n_controls} "
            f"controls beyond the first {below} need at least {below + n_controls}. Lower controls_below in the settings"
        )
    centred = markers.y - markers.y.mean()
    order = np.argsort(-np.abs(markers.values.T @ centred), kind="stable")
    tests = rng.choice(order[:top], n_tests, replace=False)
    controls = rng.choice(order[below:], n_controls, replace=False)
    return markers.values[:, tests], markers.values[:, controls]


# ---- files


def _columns(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Names and cells of a CSV file, column by column."""
    if not path.exists():
        raise DataError(f"there is no file {path}")
    with _open(path) as file:
        lines = [line for line in csv.reader(file) if line]
    if len(lines) < 2:
        raise DataError(f"{path.name} holds no rows under its header")
    names, body = lines[0], lines[1:]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise DataError(f"{path.name}: column {twice!r} appears twice in the header")
    wrong = next((i for i, line in enumerate(body, 2) if len(line) != len(names)), None)
    if wrong is not None:
        raise DataError(f"{path.name}, line {wrong}: {len(body[wrong - 2])} cells, the header has {len(names)}")
    return names, {name: [line[i] for line in body] for i, name in enumerate(names)}


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


_MISSING = ("", "NA", "NaN", "nan")


def _number(cell: str) -> float | None:
    """The cell as a number, None if it is none; empty cells and NA are missing."""
    try:
        return np.nan if cell.strip() in _MISSING else float(cell)
    except ValueError:
        return None


def _numbers(cells: list[str]) -> Array | None:
    """The column as numbers, None if some cell is none."""
    numbers = [_number(cell) for cell in cells]
    return None if None in numbers else np.array(numbers, dtype=np.float64)


def _marker(file: str, name: str, cells: list[str]) -> Array | None:
    """The column as numbers, None if it holds nothing but text; a column of both is refused."""
    numbers = [_number(cell) for cell in cells]
    text = [i for i, number in enumerate(numbers) if number is None]
    if not text:
        return np.array(numbers, dtype=np.float64)
    if any(number is not None and not np.isnan(number) for number in numbers):
        raise DataError(
            f"{file}, row {text[0] + 1}: {name} = {cells[text[0]]!r} is not a number, like {len(text)} of the column's "
            f"{len(cells)} cells: correct them, leave them empty and impute, or leave the column out"
        )
    return None


# ---- people

Shared = Mapping[str, tuple[list[object], list[object]]]  # column -> its cells in the two files


def _keys(cells: list[str]) -> list[object]:
    """Cells to be compared between files: 7, 07 and 7.0 are the same person."""
    numbers = _numbers(cells)
    plain = [cell.strip() for cell in cells]
    return list(plain) if numbers is None or not np.isfinite(numbers).all() else numbers.tolist()


def _key(shared: Shared, data: str, pheno: str) -> str | None:
    """The column that names the people in both files, None if there is none; errors name who is missing or there twice."""
    distinct = {name: both for name, both in shared.items() if all(len(set(cells)) == len(cells) for cells in both)}
    for name, (people, listed) in distinct.items():
        if set(people) <= set(listed):
            return name
    for name, (people, listed) in distinct.items():
        there = set(listed)
        missing = [person for person in people if person not in there]
        raise DataError(f"{len(missing)} rows of {data} are not in {pheno}, the first: {name} = {_written(missing[0])}")
    for name, both in shared.items():
        for file, cells in zip((data, pheno), both, strict=True):
            if isinstance(cells[0], str) and 2 * len(set(cells)) > len(cells):  # names of people, not of groups
                again = next((person for i, person in enumerate(cells) if person in cells[:i]), None)
                if again is not None:
                    raise DataError(f"{file} holds {name} = {again} twice: one row per person")
    return None


def _check_order(shared: Shared, data: str, pheno: str, n: int, m: int) -> None:
    """Rows matched by their order must be as many, and agree in what both files tell."""
    if m != n:
        raise DataError(f"{data} has {n} rows, {pheno} has {m}, and no column names the people in both")
    for name, (ours, theirs) in shared.items():
        wrong = next((i for i in range(n) if ours[i] != theirs[i]), None)
        if wrong is not None:
            raise DataError(
                f"row {wrong + 1}: {name} = {_written(ours[wrong])} in {data}, {_written(theirs[wrong])} in {pheno}, so the "
                "rows are not the same people in the same order. Give both files a column that names every person once"
            )


def _written(cell: object) -> str:
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _outcome(path: Path, table: Mapping[str, list[str]], name: str) -> tuple[str, Array]:
    """Name and values of the column that says who is ill."""
    binary = {
        column: numbers
        for column, cells in table.items()
        if (numbers := _numbers(cells)) is not None and set(np.unique(numbers)) == {0.0, 1.0}
    }
    if name in binary:
        return name, binary[name]
    if len(binary) != 1:
        raise DataError(
            f"{path.name} must say who is ill, 0 or 1, in a column named {name!r} or in its only column of 0 and 1; it has "
            f"{', '.join(binary) or 'none'}"
        )
    return next(iter(binary.items()))
