"""The rows of the panels on simulated data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial

import numpy as np

from richcomponents.datasets import make_contrastive
from richcomponents.experiments.designs import descend, draw, fit
from richcomponents.experiments.rows import Row
from richcomponents.experiments.settings import Job, Settings
from richcomponents.models import ContrastiveRCA

__all__ = ["measure"]


def measure(settings: Settings, job: Job) -> list[Row]:
    """What each method makes of one draw."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak identification is what these experiments are about
        values = _values(settings, job)
    return [Row(job.panel, job.case, x, method, job.repeat, job.seed, value) for (x, method), value in values.items()]


def _values(settings: Settings, job: Job) -> Mapping[tuple[float, str], float]:
    panel = settings.panels[job.panel]
    design = settings.designs[panel.options["design"]]
    x = job.xs[0]
    if "dimensions" in panel.options:
        error = partial(_mixing_error, design, int(x), int(job.case.removeprefix("d=")), job.seed)
        return {(x, method): error(method) for method in job.methods}
    if panel.x == "step":
        problem = draw(design, int(panel.options["n"]), mixing=job.case, seed=job.seed)
        options = {key: panel.options[key] for key in ("batch_size", "polynomial")}
        paths = {method: descend(method, problem, np.array(job.xs), **options) for method in job.methods}
        return {(x, method): path[i] for method, path in paths.items() for i, x in enumerate(job.xs)}
    if panel.x == "n":
        problem = draw(design, int(x), mixing=job.case, seed=job.seed)
    else:
        problem = draw(design, int(panel.options["n"]), mixing=job.case, seed=job.seed, strength=x)
    return {(x, method): problem.error(problem.parameters(fit(method, problem))) for method in job.methods}


def _mixing_error(design: Mapping[str, object], n: int, d: int, seed: int, method: str) -> float:
    """Mean squared error of A ~ Unif[-1, 1]^(d x d)."""
    data = make_contrastive(n, d, S1=str(design["S1"]), S2=str(design["S2"]), A="unif", random_state=seed)
    model = ContrastiveRCA(views=d, method={"rca": "efficient", "paper": "paper"}[method]).fit(data.X)
    return float(np.mean((model.A_ - data.A) ** 2))
