"""Rows with gaps: errors and coverage of missing="drop" and missing="available" against the same rows without gaps.

    python benchmarks/missing.py [--repeats 24] [--rows 2000] [--only view+single]

Two designs with known truth: `make_contrastive` (S2 skewed, five columns per view; A, Cov(S1), coefficients of an outcome) and
`make_confounded` (effects of an exposure). Values are deleted completely at random (the second view of some rows, either view
of some rows, single values), at random (the second view, more often where the first is large) and not at random (more often
where the second is large). Printed, for each: relative errors (root mean square over repeats), and how often 95% intervals
cover, averaged over entries.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.algebra import Array

METHODS = ("no gaps", "drop", "available")
QUANTITIES = ("A", "Cov(S1)", "coefficients", "effects")


def scenarios() -> dict[str, Callable[[Array, int, np.random.Generator], Any]]:
    """{name: table (n, p), columns of the first view, generator -> True where a value is deleted}."""

    def view(share: float) -> Callable[..., Any]:
        def deleted(X: Array, k: int, rng: np.random.Generator) -> Any:
            return _whole(X, k, rng.random(len(X)) < share)

        return deleted

    def either(share: float) -> Callable[..., Any]:
        def deleted(X: Array, k: int, rng: np.random.Generator) -> Any:
            who, out = rng.random(len(X)), np.zeros(X.shape, dtype=bool)
            out[who < share / 2, k:], out[who > 1 - share / 2, :k] = True, True
            return out

        return deleted

    def single(share: float) -> Callable[..., Any]:
        return lambda X, k, rng: rng.random(X.shape) < share

    def depending(on: Callable[[Array, int], Array]) -> Callable[..., Any]:
        def deleted(X: Array, k: int, rng: np.random.Generator) -> Any:
            column = on(X, k)
            odds = np.exp(1.5 * (column - column.mean()) / column.std())
            return _whole(X, k, rng.random(len(X)) < odds / (1 + odds))

        return deleted

    return {
        **{f"view {share:.0%}": view(share) for share in (0.1, 0.3, 0.5, 0.8)},
        "either view 50%": either(0.5),
        **{f"single {share:.0%}": single(share) for share in (0.05, 0.1, 0.2, 0.3, 0.5)},
        "view, by U": depending(lambda X, k: X[:, :k].sum(axis=1)),
        "view, by V": depending(lambda X, k: X[:, k:].sum(axis=1)),
    }


def _whole(X: Array, k: int, rows: Any) -> Any:
    out = np.zeros(X.shape, dtype=bool)
    out[rows, k:] = True
    return out


def measured(estimate: Any, truth: Array) -> tuple[float, float]:
    """Relative error, and the share of 95% intervals that cover."""
    truth = np.asarray(truth)
    covers = np.mean((estimate.low <= truth) & (truth <= estimate.high))
    return float(np.linalg.norm(estimate.value - truth) / np.linalg.norm(truth)), float(covers)


def found(method: str, delete: Callable[..., Any], n: int, seed: int) -> Iterator[tuple[str, float, float]]:
    """Quantity, error and coverage of one draw; nan where there is no answer."""
    kind = "error" if method == "no gaps" else method
    designs: tuple[tuple[str, Any, int], ...] = (
        ("contrastive", rc.datasets.make_contrastive(n, d=5, S2="skewed", random_state=seed), 5),
        ("confounded", rc.datasets.make_confounded(n, random_state=seed), 6),
    )
    for name, data, k in designs:
        X = np.array(data.X)
        gaps = delete(X, k, np.random.default_rng(1000 + seed))
        if method != "no gaps":
            X[gaps] = np.nan
        rca, y = rc.ContrastiveRCA(views=k, missing=kind), data.y
        wanted = QUANTITIES[:3] if name == "contrastive" else QUANTITIES[3:]
        try:
            if name == "contrastive":
                learner = rc.ComponentRegression(rca=rca).fit(X, y)
                model = learner.rca_
                yield "A", *measured(model.confidence_interval("A"), data.A)
                yield "Cov(S1)", *measured(model.confidence_interval("covariance"), data.cov_S1)
                yield "coefficients", *measured(learner.coefficients_, data.beta)
            else:
                yield "effects", *measured(rc.ExposureEffects(rca=rca).fit(X, y).effects_, data.effects)
        except rc.DataError as error:
            print(f"    {method}, {name}, seed {seed}: {error}")
            yield from ((quantity, np.nan, np.nan) for quantity in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--only", default="", help="scenarios whose names begin like one of these, with + between them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| gaps | method | " + " | ".join(f"{q}: error | covers" for q in QUANTITIES) + " |", flush=True)
    chosen = {name: delete for name, delete in scenarios().items() if name.startswith(tuple(options.only.split("+")))}
    for number, (scenario, delete) in enumerate(chosen.items()):
        for method in METHODS[number > 0 :]:  # without gaps all are alike
            seen: dict[str, list[tuple[float, float]]] = {quantity: [] for quantity in QUANTITIES}
            for seed in range(options.repeats):
                for quantity, error, covers in found(method, delete, options.rows, seed):
                    seen[quantity].append((error, covers))
            cells = []
            for quantity in QUANTITIES:
                errors, covers = np.array(seen[quantity]).T
                fine = np.isfinite(errors)
                error = np.sqrt(np.mean(errors[fine] ** 2)) if fine.any() else np.nan
                failed = "" if fine.all() else f" ({int((~fine).sum())} refused)"
                cells.append(f"{error:.3f}{failed} | {np.mean(covers[fine]) if fine.any() else np.nan:.2f}")
            print(f"| {scenario if method != METHODS[0] else 'none'} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
