"""Hidden classes: labs that a fit finds by itself. What is gained where there are any, and lost where there are none?

    python benchmarks/classes.py run [SECTION ...] [--draws 20] [--seed 940000] [--sizes 300 1000] [--out DIR]
    python benchmarks/classes.py show [--out DIR]

Sections, d = 10 + 10:

labs : `make_contrastive` with 2, 3 and 4 labs, at full strength and at half of it: coefficients (S1 uniform) and top
    direction (S1 along a line). Must hold: at most 1.3 times the error with the TRUE labs partialled out.
smooth : one or two shared factors without classes: Gaussian, Student's t (5), uniform, exponential, an exponential of which V
    sees the hyperbolic tangent; own parts uniform, or clustered in both views. Must hold: at most 1.03 times the best
    simple method in the median, 3 in the worst draw. Where no classes are found the fit is that of classes="none".
outcome : y differs between three labs by as much as S1 moves it.

`auto`, `none` : squared errors with classes="auto" and "none"; `labs` : with the true labs as covariates; `samples` : of S1
itself; `naive` : U alone; `covariates` : U and V (residualised, for directions). Ratios are of medians to the best of the last
two; `covered` : 95% intervals of coefficients.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import richcomponents as rc
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

SECTIONS = ("labs", "smooth", "outcome")
D = 10
FACTORS = ("gaussian", "t", "uniform", "exponential", "saturates")


# ---- problems


def with_labs(job: Job) -> tuple[rc.datasets.Contrastive, np.ndarray]:
    """Data, and the labs as columns (n, k - 1)."""
    design = "pca" if job.get("target") == "direction" else "regression"
    data = rc.datasets.make_contrastive(
        job["n"], D, S1=design, S2=f"labs({job['k']})", scale_S2=job.get("scale", 1.0), random_state=job["seed"]
    )
    lab = np.unique(data.S2.round(9), axis=0, return_inverse=True)[1].ravel()
    return data, np.eye(job["k"])[lab][:, 1:]


def smooth(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """U, V, S1, y and the coefficients."""
    rng, n, r = np.random.default_rng(job["seed"]), job["n"], job["rank"]
    laws: dict[str, Any] = {"gaussian": rng.normal, "uniform": rng.random, "t": partial(rng.standard_t, 5)}
    factors = laws.get(job["factor"], rng.exponential)(size=(n, r))
    factors = (factors - factors.mean(0)) / factors.std(0)
    own, noise = rng.uniform(-1, 1, (2, n, D))
    if job["own"] == "clusters":
        own, noise = (0.5 * one + rng.normal(size=(3, D))[rng.integers(3, size=n)] for one in (own, noise))
    beta = rng.normal(size=D)
    beta /= np.linalg.norm(beta)
    seen = factors @ rng.normal(size=(r, D)) / np.sqrt(r)
    seen = 2 * np.tanh(seen) if job["factor"] == "saturates" else seen
    return (
        own + factors @ rng.normal(size=(r, D)) / np.sqrt(r),
        seen + noise,
        own,
        own @ beta + rng.normal(size=n),
        beta,
    )


# ---- measurements


def least_squares(features: np.ndarray, y: np.ndarray) -> np.ndarray:
    centred = features - features.mean(0)
    return np.asarray(np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0][:D])


def top(rows: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """Leading direction of rows, or of what columns beside them leave."""
    rows = rows - rows.mean(0)
    if beside is not None:
        beside = beside - beside.mean(0)
        rows = rows - beside @ np.linalg.lstsq(beside, rows, rcond=None)[0]
    return np.asarray(np.linalg.svd(rows, full_matrices=False)[2][0])


def found(model: rc.ContrastiveRCA) -> Row:
    classes = model.classes_
    if classes is None:
        return {"classes": 0, "certainty": 0.0, "valley": 0.0}
    return {"classes": len(classes), "certainty": classes.certainty, "valley": classes.valley}


def measure(job: Job) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure_direction(job) if job.get("target") == "direction" else measure_coefficients(job)


def measure_direction(job: Job) -> Row:
    data, labs = with_labs(job)

    def error(v: np.ndarray) -> float:
        return float(1 - (v @ data.direction) ** 2)

    models = {way: rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D, classes=way)).fit(data.X) for way in ("auto", "none")}
    return {
        **{way: error(model.components_[0]) for way, model in models.items()},
        "labs": error(top(data.U, labs)),
        "samples": error(top(data.S1)),
        "naive": error(top(data.U)),
        "covariates": error(top(data.U, data.V)),
        "covered": float("nan"),
        **found(models["auto"].rca_),
    }


def measure_coefficients(job: Job) -> Row:
    if job["section"] == "smooth":
        U, V, S1, y, beta = smooth(job)
        labs = np.zeros((len(y), 0))
    else:
        data, labs = with_labs(job)
        assert data.y is not None
        assert data.beta is not None
        U, V, S1, y, beta = data.U, data.V, data.S1, data.y, data.beta
        if job["section"] == "outcome":
            y = y + labs @ np.random.default_rng(job["seed"]).normal(size=labs.shape[1])
    X = np.hstack([U, V])

    def error(b: np.ndarray) -> float:
        return float(np.sum((b - beta) ** 2))

    def fitted(way: str) -> rc.ComponentRegression:
        return rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes=way)).fit(X, y)

    model = fitted("auto")
    told, limits = found(model.rca_), model.coefficients_
    assert limits is not None
    other = model if not told["classes"] else fitted("none")
    samples = np.hstack([S1, labs]) if job["section"] == "outcome" else S1
    return {
        "auto": error(model.coef_),
        "none": error(other.coef_),
        "labs": error(least_squares(np.hstack([U, labs]), y)),
        "samples": error(least_squares(samples, y)),
        "naive": error(least_squares(U, y)),
        "covariates": error(least_squares(X, y)),
        "covered": float(np.mean((limits.low <= beta) & (beta <= limits.high))),
        **told,
    }


def cases(section: str, sizes: tuple[int, ...]) -> list[Job]:
    if section == "smooth":
        return [
            {"factor": factor, "rank": rank, "own": own, "n": n}
            for factor in FACTORS
            for rank in (1, 2)
            for own in ("uniform", "clusters")
            for n in sizes
        ]
    if section == "outcome":
        return [{"k": 3, "n": n} for n in sizes]
    return [
        {"target": target, "k": k, "scale": scale, "n": n}
        for target in ("coefficients", "direction")
        for k in (2, 3, 4)
        for scale in (1.0, 0.5)
        for n in sizes
    ]


def jobs(section: str, options: Options) -> list[Job]:
    return drawn(cases(section, tuple(options.sizes)), options.draws, options.seed)


# ---- tables of results


def show(rows: Measured, options: Options) -> None:
    for section in SECTIONS:
        for case, held in by_case(rows(section), cases(section, tuple(options.sizes))):
            if held:
                named = " ".join(str(value) for value in case.values())
                print(f"{section:8} {named:28} {told(held)}")


def told(held: list[Row]) -> str:
    values = {
        name: np.array([row[name] for row in held])
        for name in ("auto", "none", "labs", "samples", "naive", "covariates", "classes")
    }
    best = min(("naive", "covariates"), key=lambda name: float(np.median(values[name])))
    ratios = {name: np.median(values[name]) / np.median(values[best]) for name in ("auto", "none", "labs", "samples")}
    used = values["classes"] > 0
    counted = {int(k): int(np.sum(values["classes"] == k)) for k in np.unique(values["classes"])}
    covered = np.mean([row["covered"] for row in held])
    worst = np.max((values["auto"] / values["none"])[used], initial=0.0)
    return (
        " ".join(f"{name} {ratio:.3g}" for name, ratio in ratios.items())
        + f"; over labs {np.median(values['auto']) / np.median(values['labs']):.2f}; worst over {best} "
        + f"{np.max(values['auto'] / values[best]):.2f} (with labs {np.max(values['labs'] / values[best]):.2f}), over none "
        + f"{worst:.2f}; covered {covered:.3f}; classes {counted}"
    )


if __name__ == "__main__":
    main(
        __doc__, SECTIONS, jobs, measure, show, draws=20, seed=940_000, out=RESULTS / "classes", sizes=(300, 1000),
    )  # fmt: skip
