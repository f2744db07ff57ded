"""The embedded example: real measurements, hidden labs, and what each method makes of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.datasets import add_hidden_labs, load_biomarkers
from richcomponents.errors import WeakIdentificationWarning
from richcomponents.models import ContrastiveRCA

__all__ = ["DemoResult", "run_demo"]

TESTS = ["mean texture", "mean smoothness", "mean compactness", "mean symmetry", "mean fractal dimension"]


@dataclass(frozen=True)
class DemoResult:
    """One row per marker for the first repeat, and squared errors over all repeats.

    markers : names; coefficients : {method: (d,)}; errors : {method: (repeats,)}; summary : of the first fit.
    """

    n: int
    n_controls: int
    markers: list[str]
    coefficients: dict[str, Array]
    errors: dict[str, Array]
    summary: str


def least_squares(X: Array, y: Array) -> Array:
    """Slopes of a linear regression with intercept."""
    design = np.column_stack([np.ones(len(y)), X])
    return np.asarray(np.linalg.lstsq(design, y, rcond=None)[0][1:])


def run_demo(repeats: int = 20, n_labs: int = 3, scale: float = 1.0) -> DemoResult:
    """How five measurements of cell nuclei relate to malignancy, when samples went to labs with unknown biases.

    "truth" is least squares on the measurements before the biases were added; "naive" ignores the labs; "covariates" adds
    the controls to the regression.
    """
    table, diagnosis = load_biomarkers()
    names = list(table.views.feature_names)
    tests = table.values[:, [names.index(marker) for marker in TESTS]]
    controls = table.values[:, table.views["variation"]]
    y = np.array(diagnosis, dtype=np.float64)
    truth, d = least_squares(tests, y), len(TESTS)
    shown: dict[str, Array] = {}
    errors: dict[str, list[float]] = {"naive": [], "covariates": [], "RCA": []}
    summary = ""
    for repeat in range(repeats):
        U, V = add_hidden_labs(tests, controls, n_labs=n_labs, scale=scale, random_state=repeat)
        X = np.hstack([U, V])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakIdentificationWarning)  # the summary says it
            model = ContrastiveRCA(views=d).fit(X)
        found = {
            "naive": least_squares(U, y),
            "covariates": least_squares(X, y)[:d],
            "RCA": model.coefficients(X, y).beta,
        }
        for method, beta in found.items():
            errors[method].append(float(np.mean((beta - truth) ** 2)))
        if repeat == 0:
            shown, summary = {"truth": truth, **found}, model.summary()
    arrays = {method: np.array(values) for method, values in errors.items()}
    return DemoResult(len(y), controls.shape[1], TESTS, shown, arrays, summary)
