"""Seeded fits and what is kept of them. A case returns {name: array}; names that begin with "interval" are compared loosely
(finite-difference steps may differ), everything else to six digits: what BLAS kernels of different processors agree on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import richcomponents as rc

Values = dict[str, Any]
CASES: dict[str, Callable[[], Values]] = {}


def case(function: Callable[[], Values]) -> Callable[[], Values]:
    CASES[function.__name__] = function
    return function


def run(name: str) -> dict[str, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {key: np.asarray(value) for key, value in CASES[name]().items()}


def sketch(values: Any) -> np.ndarray:
    """Few numbers that move when any entry of an array does: its norm and products with fixed random directions."""
    flat = np.asarray(values, dtype=float).ravel()
    directions = np.random.default_rng(7).normal(size=(4, flat.size))
    return np.concatenate([[np.linalg.norm(flat)], directions @ flat])


def contrastive(
    data: Any, k: int, X: Any = None, fit: dict[str, Any] | None = None, intervals: bool = True, **options: Any
) -> Values:
    """All that a ContrastiveRCA answers."""
    X = data.X if X is None else X
    model = rc.ContrastiveRCA(views=k, **options).fit(X, **(fit or {}))
    found = model.diagnostics_
    out: Values = {
        "A": model.A_,
        "rank": model.rank_,
        "verdict": found.verdict,
        "correlations": found.canonical_correlations,
        "transform": sketch(model.transform(X)),
        "std": sketch(model.transform(X, return_std=True)[1]),
        "score": model.score(X),
    }
    for name, component in model.components_.items():
        out[f"cov_{name}"], out[f"mean_{name}"] = component.covariance, component.mean
        for order in (3, 4) if component.source is not None else ():
            out[f"k{order}_{name}"] = sketch(component.cumulant(order))
    if data.y is not None:
        fit_y = model.calibrate(X, data.y)
        out |= {"beta": fit_y.coef, "residualised": fit_y.residualised, "trust": fit_y.trust}
        out["outcome_p"] = model.outcome_test(X, data.y).p_value
    for what in ("A", "covariance") if intervals else ():
        limits = model.confidence_interval(what)
        out[f"interval_{what}"] = np.stack([limits.low, limits.high])
    return out


@case
def contrastive_paper_design() -> Values:
    return contrastive(rc.datasets.make_contrastive(3000, 6, random_state=11), 6)


@case
def contrastive_skewed() -> Values:
    return contrastive(rc.datasets.make_contrastive(2000, 5, S2="skewed", random_state=12), 5)


@case
def contrastive_gaussian() -> Values:
    return contrastive(rc.datasets.make_contrastive(1000, 5, S2="gaussian", random_state=13), 5)


@case
def contrastive_labs() -> Values:
    return contrastive(rc.datasets.make_contrastive(900, 8, S2="labs(3)", random_state=14), 8, classes="none")


@case
def contrastive_hidden_classes() -> Values:
    return contrastive(rc.datasets.make_contrastive(900, 8, S2="labs(3)", random_state=14), 8)


@case
def contrastive_heavy() -> Values:
    return contrastive(rc.datasets.make_contrastive(1500, 5, S2="heavy", random_state=15), 5)


@case
def contrastive_more_controls() -> Values:
    return contrastive(rc.datasets.make_contrastive(1500, 4, d_v=7, S2="skewed", random_state=16), 4)


@case
def contrastive_fewer_controls() -> Values:
    return contrastive(rc.datasets.make_contrastive(1500, 7, d_v=4, S2="labs(3)", random_state=17), 7, classes="none")


@case
def contrastive_known_mixing() -> Values:
    data = rc.datasets.make_contrastive(1500, 5, S2="skewed", A="good", random_state=18)
    return contrastive(data, 5, A=data.A)


@case
def contrastive_rank_given() -> Values:
    return contrastive(rc.datasets.make_contrastive(1500, 6, S2="labs(4)", random_state=19), 6, rank=2, classes="none")


@case
def contrastive_rank_full() -> Values:
    return contrastive(
        rc.datasets.make_contrastive(1500, 4, S2="labs(3)", random_state=20), 4, rank="full", classes="none"
    )


@case
def contrastive_third_order() -> Values:
    return contrastive(rc.datasets.make_contrastive(1500, 5, S2="skewed", random_state=21), 5, order=3)


@case
def contrastive_method_of_the_paper() -> Values:
    data = rc.datasets.make_contrastive(3000, 4, S2="skewed", A="good", random_state=22)
    return contrastive(data, 4, method="paper")


@case
def contrastive_mean_known() -> Values:
    data = rc.datasets.make_contrastive(1500, 4, S2="skewed", random_state=23)
    return contrastive(data, 4, mean={"S1": np.full(4, 0.25)})


@case
def contrastive_groups() -> Values:
    data = rc.datasets.make_contrastive(1200, 5, S2="skewed", random_state=24)
    return contrastive(data, 5, fit={"groups": np.arange(1200) // 3})


@case
def contrastive_covariates() -> Values:
    data = rc.datasets.make_contrastive(1200, 5, S2="skewed", random_state=25)
    age = np.random.default_rng(25).normal(size=(1200, 2))
    X = np.hstack([data.X + age @ np.ones((2, 10)), age])
    return contrastive(data, 5, X, covariates=[10, 11])


@case
def contrastive_few_rows() -> Values:
    return contrastive(rc.datasets.make_contrastive(36, 3, S2="labs(2)", random_state=26), 3)


@case
def contrastive_wide() -> Values:
    data = rc.datasets.make_contrastive(180, 40, d_v=8, S2="labs(3)", random_state=27)
    return contrastive(data, 40, intervals=False, classes="none")


@case
def contrastive_collinear() -> Values:
    data = rc.datasets.make_contrastive(1000, 4, S2="skewed", random_state=28)
    X = np.hstack([data.U, data.U[:, :1] * 2, data.V, data.V[:, 1:2] - data.V[:, 2:3]])
    return contrastive(data, 5, X)


@case
def contrastive_from_state() -> Values:
    data = rc.datasets.make_contrastive(2000, 4, S2="skewed", random_state=29)
    model = rc.ContrastiveRCA(views=4).fit_moments(rc.Moments.of(data.X))
    return {"A": model.A_, "cov": model.components_["S1"].covariance}


@case
def contrastive_stream() -> Values:
    data = rc.datasets.make_contrastive(2000, 4, S2="skewed", random_state=30)
    model = rc.ContrastiveRCA(views=4)
    for block in np.array_split(data.X, 3):
        model.partial_fit(block)
    return {"A": model.A_, "cov": model.components_["S1"].covariance}


@case
def contrastive_jackknife() -> Values:
    data = rc.datasets.make_contrastive(1500, 4, S2="skewed", random_state=31)
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    found = model.jackknife(lambda m: m.components_["S3"].covariance)
    return {"interval_error": found.standard_error, "estimate": found.value}


@case
def sixth_order() -> Values:
    data = rc.datasets.make_contrastive(1500, 3, S2="skewed", random_state=32)
    model = rc.ContrastiveRCA(views=3, order=6).fit(data.X)
    return {f"k{t}": sketch(model.components_["S1"].cumulant(t)) for t in (3, 4, 5, 6)}


@case
def projected() -> Values:
    data = rc.datasets.make_contrastive(1500, 4, S2="skewed", random_state=33)
    component = rc.ContrastiveRCA(views=4).fit(data.X).components_["S1"]
    theta = np.array([1.0, -0.5, 0.25, 2.0])
    return {f"m{t}": component.projected_moment(theta, t) for t in (2, 3, 4)} | {
        "error": component.standard_error(3, theta)
    }


@case
def cumulants() -> Values:
    rng = np.random.default_rng(34)
    U, V = rng.exponential(size=(300, 3)) + 100, rng.normal(size=(300, 2))
    out: Values = {f"own{t}": rc.cumulant(U, order=t) for t in (2, 3, 4, 5, 6)}
    return out | {"cross": rc.cross_cumulant(V, U, U, V), "along": rc.projected_cumulant(U, np.ones(3), 4)}


@case
def pca() -> Values:
    data = rc.datasets.make_contrastive(2000, 6, S1="pca", S2="skewed", random_state=36)
    model = rc.ComponentPCA(n_components=2, rca=rc.ContrastiveRCA(views=6)).fit(data.X)
    limits = model.confidence_interval("explained_variance")
    return {
        "directions": model.components_,
        "variance": model.explained_variance_,
        "scores": sketch(model.transform(data.X)),
        "interval": np.stack([limits.low, limits.high]),
    }


def _regression(**options: Any) -> Values:
    data = rc.datasets.make_contrastive(1500, 6, S2="skewed", random_state=37)
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=6), **options).fit(data.X, data.y)
    out: Values = {
        "coef": model.coef_,
        "intercept": model.intercept_,
        "alpha": model.alpha_,
        "residualised": model.residualised_,
        "predict": sketch(model.predict(data.X)),
    }
    if not options:
        out["interval_error"] = model.coefficients_.standard_error
    return out


@case
def regression() -> Values:
    return _regression()


@case
def ridge() -> Values:
    return _regression(alpha=0.1)


@case
def lasso_chosen() -> Values:
    return _regression(alpha="cv", l1_ratio=1.0)


def _logistic(**options: Any) -> Values:
    data = rc.datasets.make_contrastive(2000, 5, S1="logistic", S2="skewed", random_state=38)
    model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=5), **options).fit(data.X, data.y)
    return {"coef": model.coef_, "intercept": model.intercept_, "proba": sketch(model.predict_proba(data.X))}


@case
def logistic() -> Values:
    return _logistic()


@case
def logistic_chebyshev() -> Values:
    return _logistic(approximation="chebyshev")


@case
def logistic_paper() -> Values:
    return _logistic(method="paper")


def _mixture(**options: Any) -> Values:
    rng = np.random.default_rng(39)
    centres = np.array([[2.0, 0, 0], [0, 2.0, 0], [0, 0, 2.0]])
    S1 = centres[rng.integers(3, size=4000)] + 0.4 * rng.normal(size=(4000, 3))
    S2 = 0.6 * (rng.exponential(size=(4000, 3)) - 1)
    X = np.hstack([S1 + S2, S2 @ rng.uniform(-1, 1, (3, 3)) + 0.4 * rng.normal(size=(4000, 3))])
    model = rc.ComponentGaussianMixture(n_components=3, rca=rc.ContrastiveRCA(views=3), **options).fit(X)
    order = np.lexsort(model.means_.T)
    return {
        "means": model.means_[order],
        "weights": model.weights_[order],
        "proba": sketch(model.predict_proba(X)[:, order]),
    }


@case
def mixture() -> Values:
    return _mixture()


def _ising(**options: Any) -> Values:
    data = rc.datasets.make_contrastive(3000, 9, S1="ising", S2="spins", random_state=40)
    model = rc.ComponentIsing(edges=data.edges, rca=rc.ContrastiveRCA(views=9), **options).fit(data.X)
    return {"couplings": model.couplings_}


@case
def ising() -> Values:
    return _ising()


@case
def ising_paper() -> Values:
    return _ising(method="paper")


def _general(sets: Any, k: int, seed: int, **options: Any) -> Values:
    data = rc.datasets.make_views(20_000, k, 3, sets=sets, random_state=seed)
    model = rc.RCA(views=data.views, sets=sets, **options).fit(data.X)
    out: Values = {}
    for (view, q), matrix in model.transforms_.items():
        out[f"A {view} {'+'.join(q)}"] = matrix
    for q, component in model.components_.items():
        out[f"cov {'+'.join(q)}"] = component.covariance
        out[f"k3 {'+'.join(q)}"] = sketch(component.cumulant(3))
        out[f"transform {'+'.join(q)}"] = sketch(model.transform(data.X, component=q))
    return out


@case
def general_two_views() -> Values:
    return _general([("a",), ("b",), ("a", "b")], 2, 41)


@case
def general_chain() -> Values:
    return _general([("a",), ("b",), ("c",), ("a", "b"), ("b", "c")], 3, 42)


@case
def general_common() -> Values:
    return _general([("a",), ("b",), ("c",), ("a", "b", "c")], 3, 43)


@case
def general_paper() -> Values:
    return _general([("a",), ("b",), ("c",), ("a", "b", "c")], 3, 44, method="paper")


@case
def discovery() -> Values:
    data = rc.datasets.make_views(
        20_000, 3, 2, sets=[("a",), ("b",), ("c",), ("a", "b"), ("a", "b", "c")], random_state=45
    )
    model = rc.RCA(views=data.views, discover=True).fit(data.X)
    return {
        "sets": sorted("+".join(q) for q in model.components_),
        "p": [model.evidence_[q].p_value for q in sorted(model.evidence_) if len(q) > 1],
    }


@case
def baselines() -> Values:
    data = rc.datasets.make_contrastive(800, 4, S2="labs(3)", random_state=46)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4))
    out: Values = {
        name: getattr(rc.baselines, name)(learner, data.X, data.y).coef_
        for name in ("naive", "covariates", "cca", "kernel_cca")
    }
    return out | {"true": rc.baselines.true(learner, data.S1, data.y).coef_}
