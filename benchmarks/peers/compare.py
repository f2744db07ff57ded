"""Other people's methods on the same draws: effects, coefficients, directions and cleaned tables.

    python -m venv peers
    peers/bin/pip install --no-deps -r benchmarks/peers/requirements.txt && peers/bin/pip install --no-deps .
    peers/bin/python benchmarks/peers/compare.py run [SECTION ...] [--draws 24] [--seed 9700000] [--out DIR]
    peers/bin/python benchmarks/peers/compare.py show [--out DIR]

An environment of its own: none of these is needed by the library. MOFA2 is mofapy2 and cPCA is contrastive, by their authors;
AJIVE is mvlearn's, CCA scikit-learn's. RUV-2, RUV-4 and SVA have no Python package: the former are those of
`richcomponents.baselines`, SVA (iteratively reweighted) is written out below. Where a number has to be chosen peers get the
true one (ranks), or the one that is best in hindsight, draw by draw (alpha of cPCA, k of RUV-2); RCA is told nothing.

A peer's shared part is a few columns W (n, k): leading factors of V (RUV-2), canonical variates of V (CCA), the factors that
explain most of V (MOFA2), joint scores (AJIVE), surrogate variables (SVA).

effects : mean squared error of an exposure's effects on U; W are covariates.
own : mean squared error of the coefficients of y on S1 (y on U with W as covariates), and of the predicted S1 (U without its
    regression on W; MOFA2: without its own fit of these factors).
directions : squared sine of the angle to the top direction of S1 (of U without W; MOFA2: that, or the loadings of the factor
    that explains most of U alone, whichever is better in hindsight; cPCA: its first, where V measures the columns of U).
Medians over draws; effects, coefficients and predictions over those of V as covariates (residualised U).
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.append(str(Path(__file__).parent.parent))  # last: a peer has the name of one of our scripts

from richcomponents import ComponentPCA, ComponentRegression, ContrastiveRCA, ExposureEffects, baselines
from richcomponents.algebra import Array, IntArray
from richcomponents.datasets import Contrastive, load_confounded_labs, make_confounded, make_contrastive
from rows import Job, Row
from sections import RESULTS, Measured, Options, drawn, main, medians

EFFECTS: dict[str, Job] = {
    "three labs, 1 000 rows, 6 + 6 columns": {"kind": "labs", "n": 1000, "d_u": 6, "d_v": 6, "rank": 2},
    "one Gaussian factor, the same": {"kind": "gaussian", "n": 1000, "d_u": 6, "d_v": 6, "rank": 1},
    "one skewed factor, 300 rows, 200 + 20": {"kind": "skewed", "n": 300, "d_u": 200, "d_v": 20, "rank": 1},
    "the same, nine effects in ten are zero": {
        "kind": "skewed",
        "n": 300,
        "d_u": 200,
        "d_v": 20,
        "rank": 1,
        "null_fraction": 0.9,
    },
    "breast cancer, three labs, 569 rows, 10 + 5": {"kind": "table", "n": 569, "d_u": 10, "d_v": 5, "rank": 2},
}
OWN: dict[str, Job] = {
    "three labs": {"S2": "labs(3)", "rank": 2},
    "three labs, own parts correlated": {"S2": "labs(3)", "rank": 2, "mixed": True},
    "one Gaussian factor": {"S2": "factor", "rank": 1},
    "skewed, ten directions": {"S2": "skewed", "rank": 10},
    "skewed, ten directions, own parts correlated": {"S2": "skewed", "rank": 10, "mixed": True},
    "Gaussian, ten directions": {"S2": "gaussian", "rank": 10},
}
DIRECTIONS: dict[str, Job] = {
    "three labs": {"S2": "labs(3)", "rank": 2},
    "one Gaussian factor": {"S2": "factor", "rank": 1},
    "skewed, ten directions": {"S2": "skewed", "rank": 10},
    "skewed, ten directions, A = I": {"S2": "skewed", "rank": 10, "A": "identity"},
    "Gaussian, ten directions, A = I": {"S2": "gaussian", "rank": 10, "A": "identity"},
    "one Gaussian factor, A = I": {"S2": "factor", "rank": 1, "A": "identity"},
}
DESIGNS = {"effects": EFFECTS, "own": OWN, "directions": DIRECTIONS}
N, D = 1000, 10  # of own and directions

# ---- peers


def cca_scores(U: Array, V: Array, rank: int) -> Array:
    """The first canonical variates (n, rank) of V."""
    from sklearn.cross_decomposition import CCA

    return np.asarray(CCA(n_components=rank, max_iter=5000).fit(U, V).transform(U, V)[1])


@dataclass(frozen=True)
class Mofa:
    """Factors Z (n, k), loadings of U (d_u, k), and per cent of the views' variances that each explains, (2, k)."""

    Z: Array
    loadings: Array
    explained: Array

    @classmethod
    def of(cls, U: Array, V: Array, factors: int) -> Mofa:
        from mofapy2.run.entry_point import entry_point

        with contextlib.redirect_stdout(io.StringIO()):
            run: Any = entry_point()
            run.set_data_options(scale_views=False)
            run.set_data_matrix([[U - U.mean(axis=0)], [V - V.mean(axis=0)]])
            run.set_model_options(factors=factors)
            run.set_train_options(iter=1000, convergence_mode="medium", seed=1, quiet=True, verbose=False)
            run.build()
            run.run()
            explained = np.asarray(run.model.calculate_variance_explained()[0])
        nodes = run.model.nodes
        return cls(np.asarray(nodes["Z"].getExpectation()), np.asarray(nodes["W"].getExpectation()[0]), explained)

    def shared(self, rank: int) -> IntArray:
        """Numbers of the factors that explain most of V."""
        return np.argsort(-self.explained[1])[:rank].astype(np.int64)

    def own_direction(self) -> Array:
        """(d_u,) loadings of the factor that explains most of U, less what it explains of V."""
        return np.asarray(self.loadings[:, int(np.argmax(self.explained[0] - self.explained[1]))])


def ajive_scores(U: Array, V: Array, rank: int) -> Array:
    """Joint scores (n, rank); the signal of a view is one dimension more."""
    from mvlearn.decomposition import AJIVE

    ranks = [min(rank + 1, view.shape[1] - 1) for view in (U, V)]
    found = AJIVE(init_signal_ranks=ranks, joint_rank=min(rank, *ranks), random_state=0).fit([U, V])
    return np.asarray(found.joint_scores_)


def leading(values: Array, k: int) -> Array:
    """The first k left singular vectors (n, k) of centred columns (n, p)."""
    return np.linalg.svd(values - values.mean(axis=0), full_matrices=False)[0][:, :k]


def without(values: Array, W: Array) -> Array:
    """Columns (n, d), centred, without their regression on W (n, k)."""
    one = np.column_stack([np.ones(len(W)), W])
    return np.asarray(values - one @ np.linalg.lstsq(one, values, rcond=None)[0])


def sva(columns: Array, y: Array, rank: int) -> Array:
    """Surrogate variables (n, rank) of all columns (Leek and Storey 2008): leading factors of columns, each weighted by the
    chance that something hidden changes it and the exposure does not; five rounds. None of them where every weight vanishes."""
    none = np.empty((len(y), 0))
    found = leading(without(columns, y[:, None]), rank)
    for _ in range(5):
        exposed = 1 - null_chance(p_values(columns, found, np.column_stack([y, found])))
        hidden = 1 - null_chance(p_values(columns, none, found))
        weighted = columns * (hidden * (1 - exposed))
        if not weighted.any():
            return none
        found = leading(weighted, rank)
    return found


def p_values(columns: Array, fewer: Array, more: Array) -> Array:
    """(p,) of the F tests of covariates `more` (n, k) against `fewer`, which are among them."""
    few, many = (np.sum(without(columns, W) ** 2, axis=0) for W in (fewer, more))
    added, left = more.shape[1] - fewer.shape[1], len(columns) - more.shape[1] - 1
    return np.asarray(stats.f.sf((few - many) / added / (many / left), added, left))


def null_chance(p: Array) -> Array:
    """Local false discovery rates: pi0 N(x) / density(x) of probits x, never falling in p (Efron; Storey's pi0)."""
    x = stats.norm.ppf(np.clip(p, 1e-8, 1 - 1e-8))
    low, high = np.percentile(x, [25, 75])
    width = 1.5 * 0.9 * min(x.std(ddof=1), (high - low) / 1.34 or np.inf) * len(x) ** -0.2  # Silverman's, widened
    density = stats.norm.pdf((x[:, None] - x) / max(width, 1e-3)).mean(axis=1) / max(width, 1e-3)
    chance = np.minimum(min(1.0, float(np.mean(p >= 0.8)) / 0.2) * stats.norm.pdf(x) / density, 1.0)
    order = np.argsort(p)
    return np.asarray(np.maximum.accumulate(chance[order])[np.argsort(order)])


def cpca_directions(U: Array, V: Array) -> list[Array]:
    """First directions (d,), one for every alpha that the package would try, and 0.05 to 1."""
    from contrastive import CPCA  # type: ignore[attr-defined]  # not the script of that name beside this folder

    model = CPCA(n_components=2, standardize=False)
    model.fit(U, V)
    return [
        np.linalg.lstsq(model.fg, model.cpca_alpha(model.fg, alpha), rcond=None)[0][:, 0]
        for alpha in (*np.geomspace(0.05, 1, 20), *np.logspace(-1, 3, 40))
    ]


def shared_parts(U: Array, V: Array, rank: int, mofa: Mofa) -> dict[str, Array]:
    """What each peer takes the shared part to be."""
    return {
        "CCA": cca_scores(U, V, rank),
        "MOFA2": mofa.Z[:, mofa.shared(rank)],
        "AJIVE": ajive_scores(U, V, rank),
    }


# ---- effects


def effects_given(U: Array, y: Array, W: Array) -> Array:
    """Effects of y on U (d,) by least squares with covariates W (n, k)."""
    design = np.column_stack([np.ones(len(y)), y, W])
    return np.asarray(np.linalg.lstsq(design, U, rcond=None)[0][1])


def measure_effects(job: Job) -> Row:
    d, rank, seed = job["d_u"], job["rank"], job["seed"]
    if job["kind"] == "table":
        data = load_confounded_labs(seed)
    else:
        options: dict[str, Any] = {"n_labs": 3} if job["kind"] == "labs" else {"rank": rank}
        options |= {"confounder": job["kind"], "null_fraction": job.get("null_fraction", 0.0), "random_state": seed}
        data = make_confounded(job["n"], d, job["d_v"], **options)
    U, V, y, rca = data.U, data.V, data.y, ContrastiveRCA(views=d)
    parts = shared_parts(U, V, rank, Mofa.of(U, V, rank + 2))
    estimates = {
        "naive": baselines.unadjusted(data.X, y, rca).value,
        "covariates": baselines.ancova(data.X, y, rca).value,
        "RUV-4": baselines.ruv4(data.X, y, rca, k=rank).value,
        "SVA": effects_given(U, y, sva(data.X, y, rank)),
        **{name: effects_given(U, y, W) for name, W in parts.items()},
        "RCA": ExposureEffects(rca=rca).fit(data.X, y).coef_,
        "truth seen": data.oracle,
    }
    row = {name: squared(value, data.effects) for name, value in estimates.items()}
    ks = range(1, job["d_v"] + 1)
    return row | {"RUV-2": min(squared(baselines.ruv2(data.X, y, rca, k=k).value, data.effects) for k in ks)}


# ---- S1: coefficients, predictions, directions


def draw(job: Job, S1: str) -> Contrastive:
    """Two views of ten columns; one factor: N(0, 1) times loadings 0.7 N(0, 1); mixed: columns of S1 and S3 are mixed."""
    factor, rng = job["S2"] == "factor", np.random.default_rng(job["seed"] + 7)
    A = np.eye(D) if job.get("A") == "identity" else "unif"
    data = make_contrastive(N, D, S1=S1, S2="gaussian" if factor else job["S2"], A=A, random_state=job["seed"])
    if factor:
        data = replace(data, S2=np.outer(rng.normal(size=N), 0.7 * rng.normal(size=D)))
    if job.get("mixed"):
        assert data.y is not None
        assert data.beta is not None
        own, other = (part @ rng.normal(size=(D, D)) / np.sqrt(D) for part in (data.S1, data.S3))
        data = replace(data, S1=own, S3=other, y=data.y + (own - data.S1) @ data.beta)
    return data


def coefficients_given(U: Array, y: Array, W: Array) -> Array:
    """Coefficients of U (d,) in least squares of y on U and W (n, k)."""
    return np.asarray(np.linalg.lstsq(np.column_stack([U, W, np.ones(len(y))]), y, rcond=None)[0][: U.shape[1]])


def measure_own(job: Job) -> Row:
    data, rank = draw(job, "regression"), job["rank"]
    U, V, y, beta, rca = data.U, data.V, data.y, data.beta, ContrastiveRCA(views=D)
    assert y is not None
    assert beta is not None
    mofa, none = Mofa.of(U, V, min(rank + 2, D)), np.empty((N, 0))
    parts = {"naive": none, "covariates": V, **shared_parts(U, V, rank, mofa)}
    coefficients = {name: coefficients_given(U, y, W) for name, W in parts.items()}
    predicted = {name: without(U, W) for name, W in parts.items()}
    shared = mofa.shared(rank)
    predicted["MOFA2"] = U - mofa.Z[:, shared] @ mofa.loadings[:, shared].T
    fitted = ComponentRegression(rca=rca).fit(data.X, y)
    coefficients |= {"RCA": fitted.coef_, "truth seen": coefficients_given(data.S1, y, none)}
    predicted["RCA"] = np.asarray(fitted.rca_.transform(data.X))
    row = {f"beta {name}": squared(value, beta) for name, value in coefficients.items()}
    row |= {f"S1 {name}": squared(centred(value), centred(data.S1)) for name, value in predicted.items()}
    factors = [leading(V, k) for k in range(1, D + 1)]
    row["beta RUV-2"] = min(squared(coefficients_given(U, y, W), beta) for W in factors)
    row["S1 RUV-2"] = min(squared(without(U, W), centred(data.S1)) for W in factors)
    return row


def measure_directions(job: Job) -> Row:
    data, rank = draw(job, "pca"), job["rank"]
    U, V, truth = data.U, data.V, data.direction
    assert truth is not None
    mofa = Mofa.of(U, V, min(rank + 2, D))
    parts = {"naive": np.empty((N, 0)), "covariates": V, **shared_parts(U, V, rank, mofa)}
    tops = {name: [top(without(U, W))] for name, W in parts.items()}
    tops["MOFA2"] += [mofa.own_direction()]
    tops["RUV-2"] = [top(without(U, leading(V, k))) for k in range(1, D + 1)]
    tops["cPCA"] = cpca_directions(U, V) if job.get("A") == "identity" else [np.full(D, np.nan)]
    tops["RCA"] = [ComponentPCA(n_components=1, rca=ContrastiveRCA(views=D)).fit(data.X).components_[0]]
    tops["truth seen"] = [top(data.S1)]
    return {name: min(1 - float((v @ truth) ** 2 / (v @ v)) for v in many) for name, many in tops.items()}


def squared(value: Array, truth: Array) -> float:
    return float(np.mean((value - truth) ** 2))


def centred(values: Array) -> Array:
    return np.asarray(values - values.mean(axis=0))


def top(values: Array) -> Array:
    """The first principal direction (d,)."""
    return np.asarray(np.linalg.svd(centred(values), full_matrices=False)[2][0])


# ---- tables

PEERS = ["naive", "covariates", "RUV-2", "RUV-4", "SVA", "CCA", "cPCA", "MOFA2", "AJIVE", "RCA", "truth seen"]
TABLES: list[tuple[str, str, str, bool]] = [  # title, section, prefix of the columns, over V as covariates
    ("effects", "effects", "", True),
    ("coefficients on S1", "own", "beta ", True),
    ("predicted S1", "own", "S1 ", True),
    ("top direction of S1", "directions", "", False),
]
MEASURE: dict[str, Callable[[Job], Row]] = {
    "effects": measure_effects,
    "own": measure_own,
    "directions": measure_directions,
}


def jobs(section: str, options: Options) -> Iterable[Job]:
    cases = [{"section": section, "design": name, **design} for name, design in DESIGNS[section].items()]
    return drawn(cases, options.draws, options.seed)


def measure(job: Job) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MEASURE[job["section"]](job)


def show(measured: Measured, options: Options) -> None:
    for title, section, prefix, relative in TABLES:
        rows = measured(section)
        names = [name for name in PEERS if any(row.get(prefix + name) is not None for row in rows)]
        print(f"\n| {title} | " + " | ".join(["draws", *names]) + " |\n|" + "---|" * (len(names) + 2))
        for design in DESIGNS[section]:
            here = [row for row in rows if row["design"] == design]
            if here:
                print("| " + " | ".join([design, str(len(here)), *cells(here, names, prefix, relative)]) + " |")


def cells(rows: list[Row], names: list[str], prefix: str, relative: bool) -> list[str]:
    """Medians, over that of V as covariates; empty where a method does not answer in every draw."""
    whole = [name for name in names if all(np.isfinite(row[prefix + name]) for row in rows)]
    over = medians(rows, [prefix + name for name in whole])
    unit = over[prefix + "covariates"] if relative else 1.0
    return [f"{over[prefix + name] / unit:.2g}" if name in whole else "" for name in names]


if __name__ == "__main__":
    main(__doc__, list(DESIGNS), jobs, measure, show, draws=24, seed=9700000, out=RESULTS / "peers")
