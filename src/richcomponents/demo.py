"""The embedded example: real measurements, hidden labs that go with the diagnosis, and what each method makes of them."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.baselines import ruv2
from richcomponents.datasets import Confounded, load_confounded_labs
from richcomponents.effects.model import ExposureEffects
from richcomponents.errors import SpecificationWarning, WeakIdentificationWarning
from richcomponents.models import ContrastiveRCA
from richcomponents.outputs import write_text, writing
from richcomponents.plots import interval_plot
from richcomponents.report import Findings, Provenance, render

__all__ = ["DemoResult", "run_demo"]

LABS, TESTS = 2, 10
EXAMPLE = 2  # the first draw in which the data say how noisy the controls are: half of them do
SURE = ("strong",)


@dataclass(frozen=True)
class DemoResult:
    """findings, names of the tests and effects {method: (d,)} of the example; verdicts and mean squared errors
    {method: (draws,)} of all draws, the example's first."""

    findings: Findings
    names: tuple[str, ...]
    effects: dict[str, Array]
    verdicts: list[str]
    errors: dict[str, Array]

    @property
    def sure(self) -> int:
        """Draws with one of the verdicts SURE."""
        return sum(verdict in SURE for verdict in self.verdicts)

    @property
    def ratios(self) -> Array:
        """(draws,) squared error of RCA over that of the controls as covariates."""
        return np.asarray(self.errors["RCA"] / self.errors["ANCOVA"])


def run_demo(out: Path | None = None, picture: Path | None = None, draws: int = 20) -> DemoResult:
    """Do malignant samples differ in ten measurements, when they went more often to one of two labs, each with its own bias?

    The labs are simulated, so the truth is known. out, picture : where the report and the picture (PNG) of the example go.
    draws : of tests, controls and labs.
    """
    data, model, effects = _draw(EXAMPLE)
    errors = {method: [_error(value, data)] for method, value in effects.items()}
    verdicts = [model.verdict_]
    for number in [number for number in range(max(draws, EXAMPLE + 1)) if number != EXAMPLE][: draws - 1]:
        other, fitted, found = _draw(number)
        verdicts.append(fitted.verdict_)
        for method, value in found.items():
            errors[method].append(_error(value, other))
    made = Provenance(command="rca demo", seed=EXAMPLE)
    findings = Findings.of(model, truth=data.effects, provenance=made)
    effects["truth"] = data.effects
    if out is not None:
        write_text(out, render(findings, "Malignancy and cell nuclei: real measurements, two hidden labs"))
    if picture is not None:
        with writing(picture) as file:
            file.write(_picture(findings, effects))
    names = findings.effects[0].effects.names
    return DemoResult(findings, names, effects, verdicts, {name: np.array(values) for name, values in errors.items()})


def _draw(number: int) -> tuple[Confounded, Any, dict[str, Array]]:
    """One draw of tests, controls and labs: the data, the fitted model, and the effects by method."""
    data = load_confounded_labs(number, n_labs=LABS, n_tests=TESTS)
    names = list(data.names)
    views = {"tests": names[:TESTS], "controls": names[TESTS:]}
    X, y = _frame(data.X, names), _frame(data.y[:, None], ["malignancy"])
    rca = ContrastiveRCA(views=views)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIdentificationWarning)  # the verdict says it
        warnings.simplefilter("ignore", SpecificationWarning)
        model = ExposureEffects(rca=rca).fit(X, y)
    known = {"naive": model.naive_, "ANCOVA": model.adjusted_, "RUV-2": ruv2(X, data.y, rca).value, "RCA": model.coef_}
    return data, model, known


def _frame(values: Array, names: list[str]) -> Any:
    from pyarrow import table

    return table(dict(zip(names, values.T, strict=True)))


def _error(effects: Array, data: Confounded) -> float:
    return float(np.mean((effects - data.effects) ** 2))


def _picture(findings: Findings, effects: dict[str, Array]) -> bytes:
    """The effects by method, as PNG."""
    from matplotlib.figure import Figure

    told, out = findings.effects[0].effects, io.BytesIO()
    shown = replace(told, others={})
    figure = Figure(figsize=(8.4, 4.8), layout="constrained")
    interval_plot(
        shown.names,
        effects,
        shown.low,
        shown.high,
        title="Effects of malignancy, with two hidden labs",
        label="effect of malignancy (standard deviations of a measurement)",
        ax=figure.add_subplot(),
    )
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()
