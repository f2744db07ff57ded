"""Tables of every awkward kind: each ends in a result that is checked against other arithmetic, or in a clear error.

Moments are compared with sums in extended precision; fits with what must hold whatever the data are (BLUPs of S1 and S2 add
up to U, covariances add up and are not negative, nothing is NaN or infinite).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import richcomponents as rc
from torture.harness import fault, is_clear, judged, limit_memory, refused, right

TIMEOUT = 60.0
CAP = 3 * 2**30


# ---- awkward tables


def table(rng: np.random.Generator) -> tuple[Any, int, list[str]]:
    """(X, columns of the first view, what was done to it)."""
    n = int(
        rng.choice(
            [0, 1, 2, 3, 5, 10, 39, 41, 100, 400, 1000, 5000], p=[0.02, *[0.04] * 5, 0.1, 0.1, 0.2, 0.2, 0.1, 0.08]
        )
    )
    d_u, d_v = (int(rng.choice([1, 1, 2, 3, 5])) for _ in range(2))
    latent = _law(rng, (n, d_u))
    U = _law(rng, (n, d_u)) + latent
    V = latent @ rng.normal(size=(d_u, d_v)) + _law(rng, (n, d_v))
    X = np.hstack([U, V])
    done = []
    for name, change in rng.permutation(list(CHANGES.items()))[: int(rng.integers(0, 4))]:
        X = change(rng, X) if len(X) else X
        done.append(str(name))
    return X, d_u, done


def _law(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    kind = int(rng.integers(7))
    if kind == 0:
        return rng.normal(size=shape)
    if kind == 1:
        return rng.exponential(size=shape) - 1
    if kind == 2:
        return rng.choice([-1.0, 1.0], size=shape)
    if kind == 3:
        return rng.standard_t(2.5, size=shape)
    if kind == 4:
        return (rng.random(shape) < 0.02).astype(float)
    if kind == 5:
        return rng.standard_cauchy(size=shape)
    return rng.poisson(3.0, size=shape).astype(float)


def _some(rng: np.random.Generator, X: Any, value: float) -> Any:
    X = X.copy()
    for _ in range(int(rng.integers(1, 4))):
        X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
    return X


def _column(rng: np.random.Generator, X: Any, values: Any) -> Any:
    X = X.copy()
    X[:, rng.integers(X.shape[1])] = values
    return X


CHANGES: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    "NaN": lambda rng, X: _some(rng, X, np.nan),
    "infinite": lambda rng, X: _some(rng, X, rng.choice([np.inf, -np.inf])),
    "huge entry": lambda rng, X: _some(rng, X, 10.0 ** rng.integers(20, 309)),
    "constant": lambda rng, X: _column(rng, X, rng.choice([0.0, 1.0, 0.1, 1e300, -1e-300, 1 / 3])),
    "all constant": lambda rng, X: np.full_like(X, 0.1),
    "nearly constant": lambda rng, X: _column(rng, X, 1.0 + np.spacing(1.0) * rng.integers(0, 2, len(X))),
    "duplicate column": lambda rng, X: _column(rng, X, X[:, rng.integers(X.shape[1])]),
    "nearly duplicate": lambda rng, X: _column(
        rng, X, X[:, rng.integers(X.shape[1])] * (1 + 1e-9 * rng.normal(size=len(X)))
    ),
    "collinear": lambda rng, X: _column(rng, X, X @ rng.integers(-2, 3, X.shape[1])),
    "duplicate rows": lambda rng, X: X[rng.integers(0, max(1, len(X) // 10), len(X))],
    "one row many times": lambda rng, X: np.repeat(X[:1], len(X), axis=0),
    "sorted": lambda rng, X: X[np.argsort(X[:, 0])],
    "scales": lambda rng, X: X * 10.0 ** rng.uniform(-300, 300, X.shape[1]),
    "one scale": lambda rng, X: X * 10.0 ** rng.uniform(-300, 300),
    "mild scales": lambda rng, X: X * 10.0 ** rng.uniform(-8, 8, X.shape[1]),
    "offset": lambda rng, X: X + 10.0 ** rng.uniform(0, 14, X.shape[1]),
    "subnormal": lambda rng, X: X * 1e-310,
    "zeros": lambda rng, X: X * 0.0,
    "minus zero": lambda rng, X: X * -0.0,
    "equal views": lambda rng, X: np.hstack([X[:, : (X.shape[1] + 1) // 2]] * 2),
    "single": lambda rng, X: X.astype(np.float32).astype(float),
    "fortran": lambda rng, X: np.asfortranarray(X),
    "strided": lambda rng, X: np.repeat(X, 2, axis=0)[::2],
}


# ---- what is checked


def exact_moments(X: Any) -> tuple[Any, Any, Any]:
    """Means, covariance (over n) and fourth central moments of each column, in extended precision."""
    with np.errstate(all="ignore"):
        wide = X.astype(np.longdouble)
        mean = wide.mean(axis=0)
        centred = wide - mean
        return mean, centred.T @ centred / len(X), (centred**4).mean(axis=0)


def check_moments(X: Any, rng: np.random.Generator) -> str | None:
    """A complaint, or None."""
    order = int(rng.choice([2, 3, 4, 4, 4, 6]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state = rc.Moments.of(X, order, n_blocks=int(rng.choice([1, 3, 20])))
    if any(issubclass(w.category, rc.PrecisionWarning) for w in said):
        return None  # told that digits are lost
    X = np.asarray(X, dtype=float)
    mean, covariance, fourth = exact_moments(X)
    spread = np.sqrt(np.diag(covariance))
    if not np.isfinite(state.mean).all() or state.n != len(X):
        return "the mean is not finite"
    if np.any(np.abs(state.mean - mean) > 1e-12 * np.abs(X).max(axis=0)):
        return f"mean {state.mean} should be {mean.astype(float)}"
    if len(X) < 2:
        return None
    # what rounding of the rows themselves, relative to their spread, may cost
    coarse = 4 * np.finfo(float).eps * np.abs(X).max(axis=0)
    scale = np.outer(spread + coarse, spread + coarse)
    wrong = np.abs(state.covariance(unbiased=False) - covariance) > 1e-9 * scale + 8 * np.outer(coarse, spread + coarse)
    if wrong.any() or not np.isfinite(state.covariance()).all():
        return "the covariance is wrong"
    if order >= 4 and X.shape[1] <= 6:
        found = state.moment(4)[tuple([np.arange(X.shape[1])] * 4)]
        size = fourth + (spread + coarse) ** 4
        if (
            np.any(np.abs(found - fourth) > 1e-8 * size + 16 * coarse * (spread + coarse) ** 3)
            or not np.isfinite(found).all()
        ):
            return "the fourth moments are wrong"
    return None


def check_fit(X: Any, d_u: int, rng: np.random.Generator) -> str | None:
    """A complaint, or None."""
    method = str(rng.choice(["efficient"] * 6 + ["paper"]))
    model = rc.ContrastiveRCA(views=d_u, method=method, n_blocks=10).fit(X)
    X = np.asarray(X, dtype=float)
    _, wanted, _ = exact_moments(X)
    spread = np.sqrt(np.diag(wanted)).astype(float) + 1e-12 * np.abs(X).max(axis=0)
    if model.method == "efficient":
        named = {name: part.covariance for name, part in model.components_.items()}
        for name, covariance in named.items():
            if not np.isfinite(covariance).all():
                return f"Cov({name}) is not finite"
            root = spread[d_u:] if name == "S3" else spread[:d_u]
            with np.errstate(all="ignore"):
                unit = covariance / np.outer(root, root)
            unit = np.where(np.isfinite(unit), unit, 0.0)
            if np.linalg.eigvalsh((unit + unit.T) / 2)[0] < -1e-4:
                return f"Cov({name}) is not positive"
        total, size = named["S1"] + named["S2"], np.outer(spread, spread)[:d_u, :d_u]
        # classes that were removed took freedom: what is inside them has the divisor n - taken
        taken = 0 if (classes := model.diagnostics_.classes) is None else len(classes) - 1
        if np.any(np.abs(total - wanted[:d_u, :d_u]) > (1e-6 + taken / max(len(X) - taken, 1)) * size):
            return "Cov(S1) + Cov(S2) is not Cov(U)"
    if not np.isfinite(model.A_).all():
        return "A is not finite"
    s1, s2 = model.transform(X), model.transform(X, "S2")
    if not (np.isfinite(s1).all() and np.isfinite(s2).all()):
        return "a prediction is not finite"
    size = np.abs(X[:, :d_u]).max(axis=0) + np.abs(s2).max(axis=0)
    if np.any(np.abs(s1 + s2 - X[:, :d_u]) > 1e-9 * size):
        return "BLUP(S1) + BLUP(S2) is not U"
    _ = model.summary(), model.components_["S1"].cumulant(3)
    return None


def check_learner(X: Any, d_u: int, rng: np.random.Generator) -> str | None:
    """A complaint, or None."""
    rca = rc.ContrastiveRCA(views=d_u, n_blocks=10)
    kind = int(rng.integers(5))
    y = np.asarray(X, dtype=float)[:, 0] + rng.normal(size=len(X))
    if kind == 0:
        model: Any = rc.ComponentRegression(rca=rca, alpha=float(rng.choice([0.0, 0.1]))).fit(X, y)
        outputs = [model.coef_, model.predict(X)]
    elif kind == 1:
        model = rc.ComponentPCA(rca=rca).fit(X)
        outputs = [model.components_, model.transform(X)]
    elif kind == 2:
        label = rng.integers(0, 2, len(X))
        model = rc.ComponentLogisticRegression(rca=rca).fit(X, label)
        outputs = [model.coef_, model.predict_proba(X)]
    elif kind == 3:
        model = rc.ComponentGaussianMixture(1, rca=rca, n_init=1).fit(X)
        outputs = [model.means_, model.weights_]
    else:
        model = rc.ComponentIsing(rca=rca).fit(X)
        outputs = [model.coef_]
    name = type(model).__name__
    return None if all(np.isfinite(out).all() for out in outputs) else f"{name}: a result is not finite"


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    rc.ContrastiveRCA(views=2).fit(np.random.default_rng(0).normal(size=(100, 4)))  # compiled before the cap
    limit_memory(CAP)

    def run(case: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, case])
        X, d_u, done = table(rng)
        what = int(rng.integers(4))
        check = (check_moments, check_fit, check_fit, check_learner)[what]
        label = f"{check.__name__}, n = {len(X)}, {d_u} of {X.shape[1]} columns, {', '.join(done) or 'plain'}"
        warnings.simplefilter("ignore")
        try:
            complaint = check_moments(X, rng) if what == 0 else check(X, d_u, rng)  # type: ignore[call-arg, arg-type]
        except Exception as error:
            if is_clear(error):
                return refused(error)
            return {**judged(error), "error": f"{judged(error)['error']} [{label}]"}
        return right() if complaint is None else fault(f"{complaint} [{label}]")

    return run
