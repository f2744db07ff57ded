"""Logistic regression on S1: true / RCA with A known / RCA / covariates / naive / CCA.

    python benchmarks/learner_logistic.py [--draws 20] [--seed 700000] [--safety-fits 0]

Medians over draws of the mean squared error of the coefficients, the same small ridge everywhere; d = 10, |beta| = 1,
A with singular values in [0.5, 1.5] ("good") or uniform entries ("unif"). `ratio` is RCA over covariates. Aims:
<= 1.15 at N = 300 and 1 000, <= 0.85 at 3 000, <= 0.5 at 10 000. `covered`: share of the coefficients inside their 95%
intervals. With --safety-fits: random designs with |beta| up to 10 and N from 100, and the largest error over the worse
of naive and covariates (aim: <= 2).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import warnings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from richcomponents import ContrastiveRCA, baselines  # noqa: E402
from richcomponents.datasets import make_contrastive  # noqa: E402
from richcomponents.models.logistic import ComponentLogisticRegression  # noqa: E402

METHODS = ("true", "A known", "RCA", "covariates", "naive", "cca")


def fits(mixing: str, n: int, seed: int) -> dict[str, float]:
    """Errors of every method on one draw, and the coverage of RCA's intervals."""
    warnings.simplefilter("ignore")
    data = make_contrastive(n, S1="logistic", A=mixing, random_state=seed)
    plain = ComponentLogisticRegression(rca=ContrastiveRCA(views=10))
    models = {
        "true": baselines.true(plain, data.S1, data.y),
        "A known": ComponentLogisticRegression(rca=ContrastiveRCA(views=10, A=data.A)).fit(data.X, data.y),
        "RCA": plain.fit(data.X, data.y),
        "covariates": baselines.covariates(plain, data.X, data.y),
        "naive": baselines.naive(plain, data.X, data.y),
        "cca": baselines.cca(plain, data.X, data.y),
    }
    assert data.beta is not None
    out = {name: float(np.mean((model.coef_[0] - data.beta) ** 2)) for name, model in models.items()}
    table = models["RCA"].coefficients_
    out["covered"] = float(np.mean((table.low <= data.beta) & (data.beta <= table.high)))
    return out


def danger(seed: int) -> tuple[float, float, float]:
    """|beta|, and the error of RCA over the worse of naive and covariates and over covariates, on a random design."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    n, size = int(10 ** rng.uniform(2, 3.7)), float(10 ** rng.uniform(-0.5, 1))
    shared = ("paper", "uniform", "skewed", "gaussian", "heavy")[int(rng.integers(5))]
    mixing = ("good", "unif")[int(rng.integers(2))]
    data = make_contrastive(n, S1="logistic", S2=shared, A=mixing, random_state=seed)
    assert data.beta is not None
    noise = 0.0 if rng.uniform() < 0.2 else 1.0  # 0: y is a function of S1, separable on clean samples
    size = size if noise else 10.0
    beta = size * data.beta
    y = (data.S1 @ beta + noise * rng.logistic(size=n) > 0).astype(int)
    if y.min() == y.max():
        return size, 0.0, 0.0
    learner = ComponentLogisticRegression(rca=ContrastiveRCA(views=10))
    found, low, naive = (
        float(np.mean((model.coef_[0] - beta) ** 2))
        for model in (
            learner.fit(data.X, y),
            baselines.covariates(learner, data.X, y),
            baselines.naive(learner, data.X, y),
        )
    )
    return size, found / max(low, naive), found / low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=700_000)
    parser.add_argument("--safety-fits", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with multiprocessing.Pool(options.processes) as pool:
        print(f"{'A':>5} {'N':>6} " + " ".join(f"{m:>10}" for m in METHODS) + "   ratio  covered", flush=True)
        for mixing in ("good", "unif"):
            for n in (300, 1000, 3000, 10_000) if options.draws else ():
                rows = pool.starmap(fits, [(mixing, n, options.seed + s) for s in range(options.draws)])
                median = {m: float(np.median([row[m] for row in rows])) for m in METHODS}
                numbers = " ".join(f"{median[m]:10.5f}" for m in METHODS)
                covered = np.mean([row["covered"] for row in rows])
                ratio = median["RCA"] / median["covariates"]
                print(f"{mixing:>5} {n:>6} {numbers}  {ratio:6.3f}   {covered:.3f}", flush=True)
        if options.safety_fits:
            seeds = range(options.seed + 50_000, options.seed + 50_000 + options.safety_fits)
            found = np.array(pool.map(danger, seeds))
            for low, high in ((0.0, 1.0), (1.0, 3.0), (3.0, 10.0)):
                chosen = found[(found[:, 0] > low) & (found[:, 0] <= high)]
                if len(chosen):
                    print(
                        f"|beta| in ({low:g}, {high:g}]: {len(chosen)} fits; error over the worse of naive and covariates "
                        f"at most {chosen[:, 1].max():.3f}; over covariates median {np.median(chosen[:, 2]):.3f}, at most "
                        f"{chosen[:, 2].max():.3f}"
                    )


if __name__ == "__main__":
    main()
