"""Couplings of an Ising model hidden in S1: true / RCA / covariates / naive / taylor.

    python benchmarks/learner_ising.py [--draws 20] [--seed 700000] [--sizes 300 1000 3000]

5 x 5 periodic grid, 50 couplings ~ Unif[-1, 1]; S2: 13 independent spins and 12 that are all equal to one random sign;
S3 ~ Unif[-1, 1]; A with singular values in [0.5, 1.5]; A and the rank of S2 unknown. Medians over draws of the mean squared
error of the couplings (J = 0 scores 1/3). All methods get the same ridge.

true: maximum likelihood on samples of S1. covariates and naive: maximum likelihood from the correlations of the residual of
U on V, and of U. taylor: from the same RCA by the gradient of order four. Then one fit each of a 10 x 10 grid and of a random
graph with 60 nodes.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from richcomponents import ContrastiveRCA  # noqa: E402
from richcomponents.algebra import Array, IntArray  # noqa: E402
from richcomponents.components import Component  # noqa: E402
from richcomponents.learning.ising import grid_edges, moment_model  # noqa: E402
from richcomponents.models.ising import ComponentIsing  # noqa: E402

METHODS = ("true", "RCA", "RCA mle", "covariates", "naive", "taylor")


def draw(edges: IntArray, d: int, n: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Couplings (m,), S1, U and V (n, d)."""
    rng = np.random.default_rng(seed)
    J = rng.uniform(-1, 1, len(edges))
    S1 = moment_model(d, edges).sample(J, n, rng)
    half = d - d // 2
    S2 = rng.choice([-1.0, 1.0], (n, d))
    S2[:, half:] = rng.choice([-1.0, 1.0], (n, 1))
    left, right = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    A = left * rng.uniform(0.5, 1.5, d) @ right
    return J, S1, S1 + S2, S2 @ A.T + rng.uniform(-1, 1, (n, d))


def fits(n: int, seed: int) -> dict[str, float]:
    """Errors of every method on one draw, and the rank that was found."""
    warnings.simplefilter("ignore")
    edges = grid_edges(5, 5)
    J, S1, U, V = draw(edges, 25, n, seed)
    learner = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=25))
    residual = U - V @ np.linalg.lstsq(V - V.mean(0), U - U.mean(0), rcond=None)[0]
    fitted = learner.fit(np.hstack([U, V]))
    found = {"RCA": fitted.coef_}
    extracted = fitted.component_
    plain = ComponentIsing(edges=edges)
    found["true"] = plain.fit_clean(S1).coef_
    found["RCA mle"] = plain.fit_component(extracted).coef_
    found["covariates"] = plain.fit_component(Component.of_samples(residual, order=2)).coef_
    found["naive"] = plain.fit_component(Component.of_samples(U, order=2)).coef_
    found["taylor"] = ComponentIsing(edges=edges, method="taylor").fit_component(extracted).coef_
    out = {name: float(np.mean((value - J) ** 2)) for name, value in found.items()}
    out["rank"] = float(fitted.rca_.rank_)
    return out


def large(label: str, edges: IntArray, d: int, n: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    J, S1, U, V = draw(edges, d, n, seed)
    start = time.perf_counter()
    fitted = ComponentIsing(edges=edges, rca=ContrastiveRCA(views=d)).fit(np.hstack([U, V]))
    seconds = time.perf_counter() - start
    error = np.mean((fitted.coef_ - J) ** 2)
    clean = np.mean((ComponentIsing(edges=edges).fit_clean(S1).coef_ - J) ** 2)
    naive = ComponentIsing(edges=edges).fit_component(Component.of_samples(U, order=2)).coef_
    print(
        f"{label}, {len(edges)} edges, N = {n}: RCA {error:.4f} in {seconds:.0f} s (rank {fitted.rca_.rank_}), "
        f"true {clean:.4f}, naive {np.mean((naive - J) ** 2):.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=700_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[300, 1000, 3000])
    parser.add_argument("--no-large", action="store_true")
    options = parser.parse_args()
    if options.sizes:
        print(f"{'N':>6} " + " ".join(f"{m:>10}" for m in (*METHODS, "rank", "s/fit")))
    for n in options.sizes:
        start = time.perf_counter()
        rows = [fits(n, options.seed + s) for s in range(options.draws)]
        medians = [np.median([row[m] for row in rows]) for m in (*METHODS, "rank")]
        medians.append((time.perf_counter() - start) / options.draws)
        print(f"{n:>6} " + " ".join(f"{m:10.5f}" for m in medians), flush=True)
    if not options.no_large:
        rng = np.random.default_rng(options.seed)
        large("10 x 10 grid", grid_edges(10, 10), 100, 3000, options.seed)
        pairs = np.column_stack(np.triu_indices(60, 1))
        large("random graph of 60 nodes", pairs[rng.permutation(len(pairs))[:100]], 60, 3000, options.seed)


if __name__ == "__main__":
    main()
