"""Mixture of spherical Gaussians as a component: centres found from cumulants, against the same learner on samples.

    python benchmarks/learner_mixture.py run [SECTION ...] [--draws 20] [--seed 70000] [--sizes 1000 ...] [--out DIR]
    python benchmarks/learner_mixture.py show [--out DIR]

d = 10; S1 and S2 are mixtures of 10 Gaussians, centres ~ N(0, I), sigma 0.5; S3 is uniform; A has singular values in
[0.5, 1.5]. Mean squared error per coordinate of the centred centres, best matching; medians over draws.

equal : equal weights, known to be so. free : equal weights, estimated. unequal : weights ~ Dirichlet(10, ..., 10), estimated.

true : clean samples of S1; known A, RCA : the component extracted with A given, or not; paper : the paper's alternating
minimisation on the RCA's component; residualised : samples of U - Cov(U, V) Cov(V)^-1 V; naive : samples of U; weights : root
mean square error of the RCA's weights (and of the clean samples'); cover : how many of its 95% intervals hold the truth.
"""

from __future__ import annotations

import numpy as np

from richcomponents import Component, ComponentGaussianMixture, ContrastiveRCA
from richcomponents.algebra import Array
from richcomponents.datasets import make_contrastive
from richcomponents.learning.mixture import Mixture, MixtureCumulants, fit_mixture, match_centres
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main, medians

K = D = 10
SECTIONS = ("equal", "free", "unequal")
METHODS = ("true", "known A", "RCA", "paper", "residualised", "naive")


def residuals(U: Array, V: Array) -> Array:
    u, v = U - U.mean(axis=0), V - V.mean(axis=0)
    return np.asarray(u - v @ np.linalg.lstsq(v, u, rcond=None)[0])


def measure(job: Job) -> Row:
    section, n, rng = job["section"], job["n"], np.random.default_rng(job["seed"])
    weights = rng.dirichlet(np.full(K, 10.0)) if section == "unequal" else None
    data = make_contrastive(n, D, S1="mixture", S2="mixture", A="good", weights=weights, random_state=rng)
    assert data.centres is not None
    assert data.weights is not None
    equal, truth, chances = section == "equal", data.centres - data.weights @ data.centres, data.weights

    def error(means: Array, weights: Array) -> float:
        return match_centres(means - weights @ means, truth)[1]

    row: Row = {}
    clean: Mixture | None = None
    for label, samples in (("naive", data.U), ("residualised", residuals(data.U, data.V)), ("true", data.S1)):
        clean = fit_mixture(
            MixtureCumulants.of(Component.of_samples(samples)), K, np.random.default_rng(0), equal_weights=equal
        )
        row[label] = error(clean.means, clean.weights)
    assert clean is not None  # the last: on true samples
    known = ComponentGaussianMixture(K, rca=ContrastiveRCA(views=D, A=data.A), equal_weights=equal).fit(data.X)
    row["known A"] = error(known.means_, known.weights_)
    model = ComponentGaussianMixture(K, rca=ContrastiveRCA(views=D), equal_weights=equal).fit(data.X)
    row["RCA"] = error(model.means_, model.weights_)
    paper = ComponentGaussianMixture(K, method="paper", equal_weights=equal, n_init=3)
    paper.fit_component(model.component_)
    row["paper"] = error(paper.means_, paper.weights_)
    centred = model.means_ - model.component_.mean
    mine = match_centres(truth, centred)[0]  # the true component of each of the model's
    table = model.confidence_interval()
    shift = np.concatenate([np.tile(model.component_.mean, K), np.zeros(len(table.names) - K * D)])
    expected = np.concatenate([truth[mine].ravel(), chances[mine] if not equal else [], [0.25]])
    held = (table.low - shift <= expected) & (table.high - shift >= expected)
    row["cover means"], row["cover sigma2"] = float(held[: K * D].mean()), float(held[-1])
    row["sigma2"] = float(model.sigma2_)
    if not equal:
        row["cover weights"] = float(held[K * D : -1].mean())
        row["weights"] = float(np.sqrt(np.mean((model.weights_ - chances[mine]) ** 2)))
        best = match_centres(truth, clean.means)[0]
        row["weights true"] = float(np.sqrt(np.mean((clean.weights - chances[best]) ** 2)))
    return row


def jobs(section: str, options: Options) -> list[Job]:
    return drawn([{"n": n} for n in options.sizes], options.draws, options.seed)


def show(rows: Measured, options: Options) -> None:
    for section in SECTIONS:
        sizes = sorted({row["n"] for row in rows(section)})
        if sizes:
            print(f"\nweights {section}; medians (cover: means)")
            print(f"{'n':>7} {'draws':>5} " + " ".join(f"{m:>12}" for m in METHODS) + "  /residualised  /naive")
        for case, held in by_case(rows(section), [{"n": n} for n in sizes]):
            median = medians(held, METHODS)
            cells = " ".join(f"{median[m]:12.5f}" for m in METHODS)
            ratios = f"{median['RCA'] / median['residualised']:13.2f} {median['RCA'] / median['naive']:8.4f}"
            print(f"{case['n']:>7} {len(held):>5} {cells}  {ratios}")
            rest = [key for key in held[0] if key not in (*METHODS, "section", "n", "seed")]
            middles = medians(held, rest) | {
                key: float(np.mean([row[key] for row in held])) for key in rest if key.startswith("cover")
            }
            print(" " * 14 + ", ".join(f"{key} {middle:.4f}" for key, middle in middles.items()))


if __name__ == "__main__":
    sizes = (1000, 3000, 10_000, 30_000, 100_000)
    main(__doc__, SECTIONS, jobs, measure, show, draws=20, seed=70_000, out=RESULTS, file="mixture_{}.csv", sizes=sizes)
