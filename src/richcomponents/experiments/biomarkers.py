"""The paper's experiment on real measurements: test and control markers, a disease, and labs that nobody wrote down.

Real columns play S1 (test markers) and S3 (control markers); two labs with their own biases play S2. Logistic regression of
the disease on the unperturbed test markers is the gold standard. Markers come from files of the user, or from scikit-learn's
breast cancer table, so that it works anywhere. That table's raw columns violate the model (the first canonical correlation is
.99 without any lab): the rows of its controls are permuted, which leaves only the labs to be shared.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from richcomponents import baselines
from richcomponents.algebra import Array
from richcomponents.datasets import add_hidden_labs, load_biomarkers
from richcomponents.errors import DataError
from richcomponents.experiments.rows import Row
from richcomponents.experiments.settings import Job, Settings
from richcomponents.models import ComponentLogisticRegression, ContrastiveRCA

__all__ = ["EMBEDDED", "Markers", "embedded_markers", "measure", "read_markers", "shared_beyond_labs"]

EMBEDDED = "breast cancer (controls permuted)"


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

    If both files have a column of the same name that is not numeric, rows are matched by it; else by their order. The outcome
    is the column of this name, or the only column that holds nothing but 0 and 1.
    """
    names, table = _columns(data)
    pheno_names, phenotypes = _columns(pheno)
    y = _outcome(pheno, phenotypes, outcome)
    key = next((name for name in names if name in pheno_names and _numbers(table[name]) is None), None)
    n = len(table[names[0]])
    if key is not None:
        place = {person: i for i, person in enumerate(phenotypes[key])}
        missing = [person for person in table[key] if person not in place]
        if missing:
            raise DataError(
                f"{len(missing)} rows of {data.name} are not in {pheno.name}, the first: {key} = {missing[0]}"
            )
        y = y[[place[person] for person in table[key]]]
    elif len(y) != n:
        raise DataError(f"{data.name} has {n} rows, {pheno.name} has {len(y)}, and no column names the people in both")
    values = np.column_stack([column for name in names if (column := _numbers(table[name])) is not None])
    if not np.isfinite(values).all():
        raise DataError(f"{data.name} holds missing or infinite values: drop or impute those markers")
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    digest = hashlib.sha256(values.tobytes() + y.tobytes()).hexdigest()[:8]
    return Markers(standard, y, f"{data.name.split('.')[0].replace(',', ' ')} {digest}")


def measure(settings: Settings, markers: Markers, job: Job) -> list[Row]:
    """Mean squared errors of the coefficients, one draw of markers and labs; "rank" is the rank found automatically."""
    options = settings.panels[job.panel].options
    tests, U, V = _perturbed(markers, options, job.xs[0], job.seed)
    alpha = float(options["alpha"] if markers.split is None else options["embedded_alpha"])
    gold_alpha = 0.0 if markers.split is None else alpha
    gold = ComponentLogisticRegression(alpha=gold_alpha).fit_clean(tests, markers.y).coef_[0]
    X, d = np.hstack([U, V]), U.shape[1]

    def learner(rank: object) -> ComponentLogisticRegression:
        return ComponentLogisticRegression(alpha=alpha, rca=ContrastiveRCA(views=d, rank=rank))

    n_labs = int(options["n_labs"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself says once what the draws have in common
        automatic = learner("auto").fit(X, markers.y)
        found = {
            "naive": baselines.naive(learner("auto"), X, markers.y).coef_[0],
            "cca": baselines.cca(learner("auto"), X, markers.y).coef_[0],
            "covariates": learner("auto").fit_clean(X, markers.y).coef_[0, :d],
            "rca": learner(n_labs - 1).fit(X, markers.y).coef_[0],
            "rca_auto": automatic.coef_[0],
        }
    values = {method: float(np.mean((beta - gold) ** 2)) for method, beta in found.items()}
    values["rank"] = float(automatic.rca_.rank_)
    return [Row(job.panel, job.case, job.xs[0], m, job.repeat, job.seed, values[m]) for m in job.methods]


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


def _perturbed(markers: Markers, options: Mapping[str, Any], scale: float, seed: int) -> tuple[Array, Array, Array]:
    """Unperturbed test markers, and U and V after the labs."""
    rng = np.random.default_rng(seed)
    if markers.split is None:
        tests, controls = _chosen(markers, options, rng)
    else:
        tests, controls = markers.values[:, : markers.split], markers.values[:, markers.split :]
    labs: dict[str, Any] = {"n_labs": int(options["n_labs"]), "scale": scale, "permute": markers.split is not None}
    return tests, *add_hidden_labs(tests, controls, **labs, random_state=rng)


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
    wrong = next((i for i, line in enumerate(body, 2) if len(line) != len(names)), None)
    if wrong is not None:
        raise DataError(f"{path.name}, line {wrong}: {len(body[wrong - 2])} cells, the header has {len(names)}")
    return names, {name: [line[i] for line in body] for i, name in enumerate(names)}


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _numbers(cells: list[str]) -> Array | None:
    """The column as numbers, None if it is none; empty cells and NA are missing."""
    try:
        return np.array([np.nan if cell in ("", "NA", "NaN", "nan") else float(cell) for cell in cells])
    except ValueError:
        return None


def _outcome(path: Path, table: Mapping[str, list[str]], name: str) -> Array:
    binary = {
        column: numbers
        for column, cells in table.items()
        if (numbers := _numbers(cells)) is not None and set(np.unique(numbers)) == {0.0, 1.0}
    }
    if name in binary:
        return binary[name]
    if len(binary) != 1:
        raise DataError(
            f"{path.name} must say who is ill, 0 or 1, in a column named {name!r} or in its only column of 0 and 1; it has "
            f"{', '.join(binary) or 'none'}"
        )
    return next(iter(binary.values()))
