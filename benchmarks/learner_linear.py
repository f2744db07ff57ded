"""Principal directions and regression on S1: true / RCA with A known / RCA / naive / CCA / covariates.

    python benchmarks/learner_linear.py [--draws 20] [--seed 600000]

Medians over draws; d = 10, A with singular values in [0.5, 1.5]. Squared error of the top direction; mean squared error
of the coefficients. Then the coverage of the 95% intervals of the coefficients at N = 10 000.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import warnings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import richcomponents as rc  # noqa: E402
from richcomponents import baselines  # noqa: E402
from richcomponents.datasets import make_contrastive  # noqa: E402

METHODS = ("true", "A known", "RCA", "naive", "cca", "covariates")


def fits(kind: str, n: int, seed: int) -> dict[str, float]:
    """Errors of every method on one draw."""
    warnings.simplefilter("ignore")
    data = make_contrastive(n, S1=kind, A="good", random_state=seed)
    learner = rc.ComponentPCA if kind == "pca" else rc.ComponentRegression
    plain = learner(rca=rc.ContrastiveRCA(views=10))
    known = learner(rca=rc.ContrastiveRCA(views=10, A=data.A))
    y = () if data.y is None else (data.y,)
    models = {
        "true": baselines.true(plain, data.S1, *y),
        "A known": known.fit(data.X, *y),
        "RCA": plain.fit(data.X, *y),
        "naive": baselines.naive(plain, data.X, *y),
        "cca": baselines.cca(plain, data.X, *y),
        "covariates": baselines.covariates(plain, data.X, *y),
    }
    out = {}
    for name, model in models.items():
        if kind == "pca":
            top = model.components_[0]
            out[name] = float(min(np.sum((top - data.direction) ** 2), np.sum((top + data.direction) ** 2)))
        else:
            out[name] = float(np.mean((model.coef_ - data.beta) ** 2))
    return out


def covered(seed: int) -> float:
    warnings.simplefilter("ignore")
    data = make_contrastive(10_000, random_state=seed)
    table = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10)).fit(data.X, data.y).coefficients_
    assert table is not None
    assert data.beta is not None
    return float(np.mean((table.low <= data.beta) & (data.beta <= table.high)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--coverage-draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=600_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with multiprocessing.Pool(options.processes) as pool:
        print(f"{'model':>10} {'N':>6} " + " ".join(f"{m:>10}" for m in METHODS))
        for kind in ("pca", "regression"):
            for n in (1000, 3000, 10_000):
                rows = pool.starmap(fits, [(kind, n, options.seed + s) for s in range(options.draws)])
                medians = (np.median([row[m] for row in rows]) for m in METHODS)
                print(f"{kind:>10} {n:>6} " + " ".join(f"{m:10.5f}" for m in medians), flush=True)
        shares = pool.map(covered, [options.seed + 50_000 + s for s in range(options.coverage_draws)])
        print(f"95% intervals of the coefficients, N = 10 000: {np.mean(shares):.3f} covered ({len(shares)} draws)")


if __name__ == "__main__":
    main()
