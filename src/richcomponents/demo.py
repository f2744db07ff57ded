"""The embedded example: real measurements, hidden labs, and what each method makes of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from richcomponents.algebra import Array
from richcomponents.datasets import add_hidden_labs, load_biomarkers
from richcomponents.errors import WeakIdentificationWarning
from richcomponents.models import ComponentRegression, ContrastiveRCA
from richcomponents.outputs import write_text
from richcomponents.report import Findings, Provenance, render

__all__ = ["DemoResult", "run_demo"]

TESTS = ["mean texture", "mean smoothness", "mean compactness", "mean symmetry", "mean fractal dimension"]


@dataclass(frozen=True)
class DemoResult:
    """Findings, summary and coefficients {method: (d,)} of the first draw; squared errors {method: (repeats,)} of all."""

    findings: Findings
    summary: str
    coefficients: dict[str, Array]
    errors: dict[str, Array]


def least_squares(X: Array, y: Array) -> Array:
    """Slopes of a linear regression with intercept."""
    design = np.column_stack([np.ones(len(y)), X])
    return np.asarray(np.linalg.lstsq(design, y, rcond=None)[0][1:])


def run_demo(out: Path | None = None, repeats: int = 20, n_labs: int = 3, scale: float = 1.0) -> DemoResult:
    """How five measurements of cell nuclei relate to malignancy, when samples went to labs with unknown biases.

    "truth" is least squares on the measurements before the biases were added; "naive" ignores the labs; "covariates" adds
    the controls to the regression. out : where the report of the first draw goes, if anywhere.
    """
    table, diagnosis = load_biomarkers()
    names = list(table.views.feature_names)
    tests = table.values[:, [names.index(marker) for marker in TESTS]]
    controls = table.values[:, table.views["variation"]]
    columns = [*TESTS, *(names[i] for i in table.views["variation"])]
    y = np.array(diagnosis, dtype=np.float64)
    truth, d = least_squares(tests, y), len(TESTS)
    views = {"tests": range(d), "controls": range(d, len(columns))}
    draws: list[tuple[Array, ContrastiveRCA, dict[str, Array]]] = []
    for repeat in range(repeats):
        U, V = add_hidden_labs(tests, controls, n_labs=n_labs, scale=scale, random_state=repeat)
        X = np.hstack([U, V])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakIdentificationWarning)  # the summary says it
            model = ContrastiveRCA(views=views).fit(X)
        found = {
            "naive": least_squares(U, y),
            "covariates": least_squares(X, y)[:d],
            "RCA": model.calibrate(X, y).coef,
        }
        draws.append((X, model, found))
    X, rca, shown = draws[0]
    learner = ComponentRegression(rca=ContrastiveRCA(views=views))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIdentificationWarning)
        learner.fit(X, y)
    made = Provenance(command="rca demo", seed=0)
    findings = Findings.of(learner, X, y, names=columns, outcome="malignant", truth=truth, provenance=made)
    if out is not None:
        page = render(findings, "Cell nuclei and malignancy: real measurements, three hidden labs")
        write_text(out, page)
    errors = {
        method: np.array([float(np.mean((found[method] - truth) ** 2)) for _, _, found in draws]) for method in shown
    }
    return DemoResult(findings, rca.summary(), {**shown, "truth": truth}, errors)
