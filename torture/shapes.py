"""Limits by shape: tables of few rows and very many columns, and the reverse, under a cap on memory.

Every shape ends in a right result or a clear refusal: parts that add up to the views, variances that agree, least
squares that is that of the textbook while it is determined, and a penalty beyond.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import richcomponents as rc
from torture.harness import fault, judged, limit_memory, right

TIMEOUT = 300.0
CAP = 2 * 2**30

SHAPES = [
    (40, 10_000, 10_000),
    (40, 20_000, 20),
    (40, 20, 20_000),
    (300, 5000, 20),
    (300, 20, 5000),
    (10, 1000, 1000),
    (10, 1000, 2),
    (3, 3, 3),
    (2, 2, 2),
    (2, 1, 500),
    (4, 500, 1),
    (60, 59, 59),
    (61, 60, 3),
    (120, 100, 4),
    (500, 100, 10),
    (500, 150, 10),
    (500, 480, 10),
    (500, 600, 600),
    (1000, 200, 170),
    (2000, 400, 20),
    (5000, 1, 1),
    (20_000, 30, 2),
]


def table(rng: np.random.Generator, n: int, d_u: int, d_v: int) -> Any:
    shared = rng.exponential(size=(n, 2)) - 1
    U = rng.normal(size=(n, d_u)) + shared @ rng.normal(size=(2, d_u))
    return np.hstack([U, shared @ rng.normal(size=(2, d_v)) + rng.normal(size=(n, d_v))])


def check(rng: np.random.Generator, n: int, d_u: int, d_v: int) -> str | None:
    """A complaint, or None."""
    X = table(rng, n, d_u, d_v)
    U, V = X[:, :d_u], X[:, d_u:]
    model = rc.ContrastiveRCA(views=d_u, n_blocks=10).fit(X)
    s1, s2, s3 = (model.transform(X, component=name) for name in ("S1", "S2", "S3"))
    if np.abs(s1 + s2 - U).max() > 1e-9 or not np.isfinite(s3).all():
        return "BLUP(S1) + BLUP(S2) is not U"
    own, shared = (model.components_[name].variance for name in ("S1", "S2"))
    if np.any(own < -1e-9) or np.abs(own + shared - U.var(axis=0)).max() > 1e-9 * U.var(axis=0).max():
        return "Var(S1) + Var(S2) is not Var(U)"
    summary, found = model.summary(), model.variance_table()
    if not np.all(found.low <= found.own + 1e-9) or not np.all(found.own <= found.high + 1e-9):
        return "an interval does not hold its estimate"
    wide = max(d_u, d_v) > max(n // 6, 2)
    if wide != ("principal components" in summary):
        return "a reduction was not said"
    y = U[:, 0] + rng.normal(size=n)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d_u, n_blocks=10))
    try:
        fit = learner.fit(X, y)
    except rc.DataError as error:
        if 'alpha="cv"' not in str(error) or n > d_u + model.rank_:
            raise
        fit = learner.set_params(alpha="cv").fit(X, y)
        return None if np.isfinite(fit.coef_).all() and np.isfinite(fit.predict(X)).all() else "ridge is not finite"
    lost = U - U.mean(axis=0) - model.residual(X)
    variates = np.linalg.svd(lost, full_matrices=False)[0][:, : model.rank_]
    expected = np.linalg.lstsq(np.column_stack([np.ones(n), U, variates]), y, rcond=None)[0][1 : d_u + 1]
    if np.abs(fit.residualised_ - expected).max() > 1e-7 * max(np.abs(expected).max(), 1.0):
        return "residualising is not least squares on all columns"
    return None if np.isfinite(V).all() else "the table was written to"


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    rc.ContrastiveRCA(views=2).fit(np.random.default_rng(0).normal(size=(100, 4)))  # compiled before the cap
    limit_memory(CAP)

    def run(case: int) -> dict[str, Any]:
        shape = SHAPES[case % len(SHAPES)]
        label = f"{shape[0]} rows, {shape[1]} + {shape[2]} columns"
        try:
            complaint = check(np.random.default_rng([seed, case]), *shape)
        except Exception as error:
            outcome = judged(error)
            return outcome if outcome["ended"] == "refused" else {**outcome, "error": f"{outcome['error']} [{label}]"}
        return right() if complaint is None else fault(f"{complaint} [{label}]")

    return run
