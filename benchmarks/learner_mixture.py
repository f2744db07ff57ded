"""Mixture of spherical Gaussians as a component: centres found from cumulants, against the same learner on samples.

    python benchmarks/learner_mixture.py [--draws 20] [--seed 70000] [--sizes 1000 3000 10000] [--free-weights]

d = 10; S1 and S2 are mixtures of 10 Gaussians, centres ~ N(0, I), sigma 0.5, equal weights; S3 is uniform; A has singular
values in [0.5, 1.5]. Mean squared error per coordinate of the centred centres, best matching; medians over draws.

true : clean samples of S1; known A, RCA : the component extracted with A given, or not; paper : the paper's alternating
minimisation on the RCA's component; residualised : samples of U - Cov(U, V) Cov(V)^-1 V; naive : samples of U.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from richcomponents.algebra import Array  # noqa: E402
from richcomponents.learning.mixture import Target, fit_mixture, match_centres  # noqa: E402
from richcomponents.models import ContrastiveRCA  # noqa: E402
from richcomponents.models.mixture import ComponentGaussianMixture  # noqa: E402

K = D = 10
METHODS = ("true", "known A", "RCA", "paper", "residualised", "naive")


def mixture(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Samples (n, d) and centres (k, d)."""
    centres = rng.normal(size=(K, D))
    return centres[rng.integers(K, size=n)] + 0.5 * rng.normal(size=(n, D)), centres


def residuals(U: Array, V: Array) -> Array:
    u, v = U - U.mean(axis=0), V - V.mean(axis=0)
    return np.asarray(u - v @ np.linalg.lstsq(v, u, rcond=None)[0])


def draw(n: int, seed: int, equal: bool) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(D, D)))[0] for _ in range(2))
    A = (left * rng.uniform(0.5, 1.5, D)) @ right
    S1, centres = mixture(rng, n)
    S2, _ = mixture(rng, n)
    U, V = S1 + S2, S2 @ A.T + rng.uniform(-1, 1, (n, D))
    truth = centres - centres.mean(axis=0)

    def error(means: Array) -> float:
        return match_centres(means - means.mean(axis=0), truth)[1]

    row = {
        label: error(fit_mixture(Target.of_samples(samples), K, np.random.default_rng(0), equal_weights=equal).means)
        for label, samples in (("true", S1), ("residualised", residuals(U, V)), ("naive", U))
    }
    X = np.hstack([U, V])
    known = ContrastiveRCA(views=D, A=A)
    row["known A"] = error(ComponentGaussianMixture(K, rca=known, equal_weights=equal).fit(X).means_)
    model = ComponentGaussianMixture(K, rca=ContrastiveRCA(views=D), equal_weights=equal).fit(X)
    row["RCA"] = error(model.means_)
    paper = ComponentGaussianMixture(K, method="alternating", equal_weights=equal, n_init=3)
    row["paper"] = error(paper.fit_component(model.component_).means_)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=70_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--free-weights", action="store_true", help="estimate the weights, although they are equal")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    weights = "free" if options.free_weights else "equal"
    print(f"weights {weights}, {options.draws} draws, seeds from {options.seed}")
    print(f"{'n':>7} " + " ".join(f"{m:>12}" for m in METHODS) + "   RCA/residualised  RCA/naive  seconds", flush=True)
    for n in options.sizes:
        start = time.perf_counter()
        rows = [draw(n, options.seed + i, not options.free_weights) for i in range(options.draws)]
        median = {m: float(np.median([row[m] for row in rows])) for m in METHODS}
        print(
            f"{n:>7} "
            + " ".join(f"{median[m]:12.5f}" for m in METHODS)
            + f"   {median['RCA'] / median['residualised']:16.2f}  {median['RCA'] / median['naive']:9.4f}"
            + f"  {time.perf_counter() - start:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
