"""The embedded example: real measurements, hidden labs that go with the diagnosis, and what each method makes of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.baselines import ruv2
from richcomponents.cumulants.estimate import Estimate
from richcomponents.datasets import Confounded, load_confounded_labs
from richcomponents.effects.model import ExposureEffects
from richcomponents.errors import SpecificationWarning, WeakIdentificationWarning
from richcomponents.models import ContrastiveRCA
from richcomponents.outputs import write_text, writing
from richcomponents.plots import interval_plot
from richcomponents.report import Findings, Provenance, render
from richcomponents.text import lined_up

__all__ = ["DemoResult", "run_demo"]

LABS, TESTS = 2, 10
EXAMPLE = 2  # the first draw in which the data say how noisy the controls are: half of them do


@dataclass(frozen=True)
class DemoResult:
    """findings, names of the tests and effects {method: (d,)} of the example; in how many draws the verdict is strong, and mean
    squared errors {method: (draws,)} of all draws, the example's first."""

    findings: Findings
    names: tuple[str, ...]
    effects: dict[str, Array]
    strong: int
    errors: dict[str, Array]

    @property
    def medians(self) -> dict[str, float]:
        """Of the errors."""
        return {name: float(np.median(errors)) for name, errors in self.errors.items()}

    @property
    def against_ancova(self) -> tuple[float, int]:
        """The error of RCA over that of ANCOVA, at the median; in how many draws it is smaller."""
        ratios = self.errors["RCA"] / self.errors["ANCOVA"]
        return float(np.median(ratios)), int(np.sum(ratios < 1))

    def lines(self) -> list[str]:
        """The effects of the example by method, as text."""
        rows = [[name, *(f"{values[i]:+.2f}" for values in self.effects.values())] for i, name in enumerate(self.names)]
        errors = [
            "mean squared error",
            *(f"{self.errors[name][0]:.4f}" for name in self.effects if name != "truth"),
            "",
        ]
        return lined_up([["", *self.effects], *rows, errors])


def run_demo(out: Path | None = None, picture: Path | None = None, draws: int = 20) -> DemoResult:
    """Do malignant samples differ in ten measurements, when they went more often to one of two labs, each with its own bias?

    The labs are simulated, so the truth is known. out, picture : where the report and the picture (PNG) of the example go.
    draws : of tests, controls and labs.
    """
    numbers = [EXAMPLE, *(number for number in range(draws) if number != EXAMPLE)]
    drawn = [_draw(number) for number in numbers[:draws]]
    data, model, effects = drawn[0]
    errors = {
        method: np.array([np.mean((found[method] - truth.effects) ** 2) for truth, _, found in drawn])
        for method in effects
    }
    findings = Findings.of(model, truth=data.effects, provenance=Provenance(command="rca demo", seed=EXAMPLE))
    answer, effects = findings.effects[0].effects, {**effects, "truth": data.effects}
    if out is not None:
        write_text(out, render(findings, "Malignancy and cell nuclei: real measurements, two hidden labs"))
    if picture is not None:
        with writing(picture) as file:
            _picture(answer, effects).savefig(file, format="png", dpi=150)
    strong = sum(fitted.verdict_ == "strong" for _, fitted, _ in drawn)
    return DemoResult(findings, answer.names, effects, strong, errors)


def _draw(number: int) -> tuple[Confounded, Any, dict[str, Array]]:
    """One draw of tests, controls and labs: the data, the fitted model, and the effects by method."""
    from pyarrow import table

    data = load_confounded_labs(number, n_labs=LABS, n_tests=TESTS)
    X, y = table(dict(zip(data.names, data.X.T, strict=True))), table({"malignancy": data.y})
    rca = ContrastiveRCA(views={"tests": list(data.names[:TESTS]), "controls": list(data.names[TESTS:])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIdentificationWarning)  # the verdict says it
        warnings.simplefilter("ignore", SpecificationWarning)
        model = ExposureEffects(rca=rca).fit(X, y)
    known = {"naive": model.naive_, "ANCOVA": model.adjusted_, "RUV-2": ruv2(X, data.y, rca).value, "RCA": model.coef_}
    return data, model, known


def _picture(answer: Estimate, effects: dict[str, Array]) -> Any:
    """The effects by method, with the intervals of one of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.8), layout="constrained")
    words: Any = {"title": "Effects of malignancy, with two hidden labs", "ax": figure.add_subplot()}
    what = "effect of malignancy (standard deviations of a measurement)"
    interval_plot(answer.names, effects, answer.low, answer.high, label=what, **words)
    return figure
