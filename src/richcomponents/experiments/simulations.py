"""The rows of the panels on simulated data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from richcomponents.datasets import make_contrastive
from richcomponents.experiments.designs import descend, draw, fit
from richcomponents.experiments.rows import Job, Row, settings_of
from richcomponents.experiments.settings import Settings
from richcomponents.models import ContrastiveRCA

__all__ = ["measure"]


def measure(settings: Settings, job: Job) -> list[Row]:
    """What each method makes of one draw."""
    values = _values(settings, job)
    return [{**row, "value": values[row["x"], row["method"]]} for row in settings_of(job)]


def _values(settings: Settings, job: Job) -> Mapping[tuple[float, str], float]:
    panel = settings.panels[job["panel"]]
    design = settings.designs[panel.options["design"]]
    xs, methods, case, seed = job["x"], job["method"], job["case"], job["seed"]
    x = xs[0]
    if "dimensions" in panel.options:
        error = partial(_mixing_error, design, int(x), int(case.removeprefix("d=")), seed)
        return {(x, method): error(method) for method in methods}
    if panel.x == "step":
        problem = draw(design, int(panel.options["n"]), mixing=case, seed=seed)
        options = {key: panel.options[key] for key in ("batch_size", "polynomial")}
        paths = {method: descend(method, problem, np.array(xs), **options) for method in methods}
        return {(x, method): path[i] for method, path in paths.items() for i, x in enumerate(xs)}
    if panel.x == "n":
        problem = draw(design, int(x), mixing=case, seed=seed)
    else:
        problem = draw(design, int(panel.options["n"]), mixing=case, seed=seed, strength=x)
    return {(x, method): problem.error(problem.parameters(fit(method, problem))) for method in methods}


def _mixing_error(design: Mapping[str, object], n: int, d: int, seed: int, method: str) -> float:
    """Mean squared error of A ~ Unif[-1, 1]^(d x d)."""
    data = make_contrastive(n, d, S1=str(design["S1"]), S2=str(design["S2"]), A="unif", random_state=seed)
    model = ContrastiveRCA(views=d, method={"rca": "efficient", "paper": "paper"}[method]).fit(data.X)
    return float(np.mean((model.A_ - data.A) ** 2))
