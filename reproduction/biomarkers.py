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
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproduction.settings import Array, Settings
from reproduction.simulations import Samples
from richcomponents import ComponentLogisticRegression, ContrastiveRCA, DataError, baselines
from richcomponents.datasets import add_hidden_labs, load_biomarkers
from richcomponents.paper import contrastive_logistic, extract, true_samples
from rows import Job, Row, settings_of

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
    """Markers from a CSV file (rows are people, columns markers; .gz allowed) and their outcome, 0 or 1, from another.

    The first column of both files names the people, each once; those of `data` must all be in `pheno`. Columns without any
    number are no markers, nor is the outcome.
    """
    table, people = _people(data), _people(pheno)
    if outcome not in people or set(people[outcome]) != {0, 1}:
        raise DataError(
            f"{pheno.name} must say who is ill, 0 or 1, in a column named {outcome!r}; it has {', '.join(people)}"
        )
    absent = [person for person in table.index if person not in people.index]
    if absent:
        raise DataError(
            f"{len(absent)} rows of {data.name} are not in {pheno.name}, the first: {table.index.name} = {absent[0]}"
        )
    markers = {name: _marker(data.name, table[name]) for name in table if name != outcome}
    numeric = [column for column in markers.values() if column is not None]
    if not numeric:
        raise DataError(f"{data.name} has no marker: no column besides {table.index.name} holds numbers")
    values = np.column_stack(numeric)
    y = people[outcome].loc[table.index].to_numpy(dtype=np.float64)
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    digest = hashlib.sha256(values.tobytes() + y.tobytes()).hexdigest()[:8]
    return Markers(standard, y, f"{data.name.split('.')[0]} {digest}")


def _people(path: Path) -> pd.DataFrame:
    """The table, its rows named by its first column."""
    if not path.exists():
        raise DataError(f"there is no file {path}")
    table = pd.read_csv(path, index_col=0, float_precision="round_trip")
    again = table.index[table.index.duplicated()]
    if len(again):
        raise DataError(f"{path.name} holds {table.index.name} = {again[0]} twice: one row per person")
    return table


def _marker(file: str, column: pd.Series) -> Array | None:
    """The column as numbers, None if it holds nothing but text; gaps, and a column of both, are refused."""
    numbers = pd.to_numeric(column, errors="coerce")
    if column.notna().any() and numbers.isna().all():
        return None
    text = column[numbers.isna() & column.notna()]
    if len(text):
        raise DataError(
            f"{file}, {column.index.name} = {text.index[0]}: {column.name} = {text.iloc[0]!r} is not a number, like "
            f"{len(text)} of the column's {len(column)} cells: correct or impute them, or leave the column out"
        )
    values = np.asarray(numbers, dtype=np.float64)
    holes = int(np.sum(~np.isfinite(values)))
    if holes:
        raise DataError(f"{file}: marker {column.name!r} holds {holes} missing or infinite values: drop or impute them")
    return values


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
    without_v = baselines.cca(Samples(rca=ContrastiveRCA(views=d)), X, markers.y).samples_
    betas = {
        "naive": baselines.naive(learner("auto"), X, markers.y).coef_[0],
        "cca": baselines.cca(learner("auto"), X, markers.y).coef_[0],
        "covariates": learner("auto").fit_clean(X, markers.y).coef_[0, :d],
        "rca": learner(rank).fit(X, markers.y).coef_[0],
        "rca_auto": automatic.coef_[0],
        "known": learner(rank, A).fit(X, markers.y).coef_[0],
        "paper": contrastive_logistic(extract(U, V, rank=rank), markers.y).theta,
        "paper_true": contrastive_logistic(true_samples(tests), markers.y).theta,
        "paper_known": contrastive_logistic(extract(U, V, A, rank=rank), markers.y).theta,
        "paper_naive": contrastive_logistic(true_samples(U), markers.y).theta,
        "paper_cca": contrastive_logistic(true_samples(without_v), markers.y).theta,
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
