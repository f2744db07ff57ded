"""Data with known truth, and an embedded table of real measurements.

The designs are those of the paper's experiments (Section 5) and variations that break weaker methods.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.columns import resolve_views
from richcomponents.data.table import Table
from richcomponents.learning.ising import Elimination, grid_edges
from richcomponents.simulated_views import MultiView, make_views

__all__ = ["Contrastive", "MultiView", "add_hidden_labs", "load_biomarkers", "make_contrastive", "make_views"]


@dataclass(frozen=True)
class Contrastive:
    """U = S1 + S2, V = A S2 + S3, and everything that is hidden.

    X : (n, d_u + d_v), the views side by side; U, V, S1, S2, S3 : samples; A : (d_v, d_u);
    y : outcome (n,) or None; beta : its coefficients on S1, or None; direction : the top direction of S1, or None;
    cov_S1 : population covariance of S1.
    Of S1="mixture": centres (10, d) and weights (10,); of S1="ising": edges (m, 2) and couplings (m,). None otherwise.
    """

    S1: Array
    S2: Array
    S3: Array
    A: Array
    cov_S1: Array
    y: Array | None = None
    beta: Array | None = None
    direction: Array | None = None
    centres: Array | None = None
    weights: Array | None = None
    edges: IntArray | None = None
    couplings: Array | None = None

    @property
    def U(self) -> Array:
        return self.S1 + self.S2

    @property
    def V(self) -> Array:
        return self.S2 @ self.A.T + self.S3

    @property
    def X(self) -> Array:
        return np.hstack([self.U, self.V])


def make_contrastive(
    n_samples: int = 1000,
    d: int = 10,
    *,
    d_v: int | None = None,
    S1: str = "regression",
    S2: str = "paper",
    S3: str = "uniform",
    A: str | Array = "unif",
    strength: float | None = None,
    scale_S2: float = 1.0,
    scale_S3: float = 1.0,
    weights: Array | Sequence[float] | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> Contrastive:
    """Two views with a shared part, and the truth.

    Parameters
    ----------
    n_samples, d, d_v : int
        Rows, columns of U, columns of V (d by default).
    S1 : {"regression", "pca", "logistic", "mixture", "ising"}
        "regression": Unif[-1, 1]^d and y = beta's1 + N(0, 1), |beta| = 1. "logistic": the same with a binary y.
        "pca": N(0, 1) along a random unit vector plus 0.1 N(0, I). "mixture": 10 spherical Gaussians, sigma 0.5.
        "ising": spins on a square grid with periodic boundary, couplings Unif[-1, 1]; d = 4, 9, 16, 25 or 36.
    S2 : {"paper", "uniform", "skewed", "gaussian", "mixture", "heavy", "spins", "labs(k)"}
        "paper": Unif[-1, 1]^d plus N(0, 1) along a random unit vector; "skewed": 0.6 (Exp(1) - 1);
        "gaussian": N(0, I/3), for which A is not identified; "heavy": Student's t with 5 degrees of freedom,
        variance 1/3; "spins": independent signs in half of the columns, one common sign in the others;
        "labs(k)": k random biases, one per sample, of centred rank k - 1.
    S3 : {"uniform", "gaussian", "mixture"}
    A : {"unif", "good"} or array (d_v, d)
        "unif": entries Unif[-1, 1]; "good": singular values in [0.5, 1.5].
    strength : float, optional
        sd(S2) / sd(S1): rescales S2.
    scale_S2, scale_S3 : float
        Further factors (a tiny shared part; a nearly noiseless V).
    weights : (10,), optional
        Of the Gaussians of S1="mixture"; equal by default.
    random_state : int, Generator or None

    Examples
    --------
    >>> data = make_contrastive(500, d=4, S2="labs(3)", random_state=1)
    >>> data.X.shape, int(np.linalg.matrix_rank(np.cov(data.S2.T), tol=1e-8))
    ((500, 8), 2)
    """
    rng = np.random.default_rng(random_state)
    d_v = d if d_v is None else d_v
    mixing = _mixing(A, d_v, d, rng)
    unit = _unit(rng, d)
    if weights is not None and S1 != "mixture":
        raise ValueError(f"weights are those of S1='mixture', and S1={S1!r}: leave them out")
    own = _own_part(S1, n_samples, d, unit, rng, weights)
    s2 = _shared_part(S2, n_samples, d, rng)
    s3 = _noise_part(S3, n_samples, d_v, rng) * scale_S3
    if strength is not None:
        s2 = s2 * (strength * np.sqrt(np.trace(own["cov_S1"])) / np.sqrt(np.trace(np.atleast_2d(np.cov(s2.T)))))
    return Contrastive(S2=s2 * scale_S2, S3=s3, A=mixing, **own)


def _unit(rng: np.random.Generator, d: int) -> Array:
    vector = rng.normal(size=d)
    unit: Array = vector / np.linalg.norm(vector)
    return unit


def _uniform(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.uniform(-1, 1, (n, d))


def _mixture(
    rng: np.random.Generator, n: int, d: int, weights: Array | Sequence[float] | None = None
) -> tuple[Array, Array, Array]:
    """Samples (n, d), centres (10, d), weights (10,)."""
    centres = rng.normal(size=(10, d))
    if weights is None:
        label, chances = rng.integers(10, size=n), np.full(10, 0.1)
    else:
        chances = np.asarray(weights, dtype=np.float64)
        if chances.shape != (10,) or not np.all(chances > 0):
            raise ValueError(f"weights must be ten positive numbers, got {weights!r}")
        chances = chances / chances.sum()
        label = rng.choice(10, size=n, p=chances)
    return centres[label] + 0.5 * rng.normal(size=(n, d)), centres, chances


def _mixing(A: str | Array, d_v: int, d_u: int, rng: np.random.Generator) -> Array:
    if not isinstance(A, str):
        given = np.asarray(A, dtype=np.float64)
        if given.shape != (d_v, d_u):
            raise ValueError(f"A must have shape ({d_v}, {d_u}), got {given.shape}")
        return given
    if A == "unif":
        return rng.uniform(-1, 1, (d_v, d_u))
    if A == "good":
        k = min(d_u, d_v)
        left, _ = np.linalg.qr(rng.normal(size=(d_v, k)))
        right, _ = np.linalg.qr(rng.normal(size=(d_u, k)))
        return np.asarray((left * rng.uniform(0.5, 1.5, k)) @ right.T)
    raise ValueError(f"A must be 'unif', 'good' or a matrix, got {A!r}")


def _own_part(
    kind: str,
    n: int,
    d: int,
    unit: Array,
    rng: np.random.Generator,
    weights: Array | Sequence[float] | None,
) -> dict[str, Any]:
    """The fields of :class:`Contrastive` that belong to S1."""
    if kind == "pca":
        s = rng.normal(size=(n, 1)) * unit + 0.1 * rng.normal(size=(n, d))
        return {"S1": s, "direction": unit, "cov_S1": np.outer(unit, unit) + 0.01 * np.eye(d)}
    if kind == "mixture":
        s, centres, chances = _mixture(rng, n, d, weights)
        spread = centres - chances @ centres
        covariance = (chances * spread.T) @ spread + 0.25 * np.eye(d)
        return {"S1": s, "centres": centres, "weights": chances, "cov_S1": covariance}
    if kind == "ising":
        side = math.isqrt(d)
        if side**2 != d or not 2 <= side <= 6:
            raise ValueError(f"S1='ising' lives on a square grid: d must be 4, 9, 16, 25 or 36, got {d}")
        edges = grid_edges(side, side)
        couplings, sums = rng.uniform(-1, 1, len(edges)), Elimination(d, edges)
        return {
            "S1": sums.sample(couplings, n, rng),
            "edges": edges,
            "couplings": couplings,
            "cov_S1": sums.correlations(couplings),
        }
    s = _uniform(rng, n, d)
    known = {"S1": s, "beta": unit, "cov_S1": np.eye(d) / 3}
    if kind == "regression":
        return {**known, "y": s @ unit + rng.normal(size=n)}
    if kind == "logistic":
        chance = 1 / (1 + np.exp(-s @ unit))
        return {**known, "y": (rng.random(n) < chance).astype(np.float64)}
    raise ValueError(f"S1 must be 'regression', 'pca', 'logistic', 'mixture' or 'ising', got {kind!r}")


def _shared_part(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    labs = re.fullmatch(r"labs\((\d+)\)", kind)
    if labs:
        k = int(labs.group(1))
        biases = rng.normal(size=(k, d))
        return np.asarray((biases - biases.mean(axis=0))[rng.integers(k, size=n)])
    if kind == "paper":
        return _uniform(rng, n, d) + rng.normal(size=(n, 1)) * _unit(rng, d)
    if kind == "uniform":
        return _uniform(rng, n, d)
    if kind == "skewed":
        return np.asarray(0.6 * (rng.exponential(size=(n, d)) - 1))
    if kind == "gaussian":
        return np.asarray(rng.normal(size=(n, d)) / np.sqrt(3))
    if kind == "heavy":
        return np.asarray(rng.standard_t(5, size=(n, d)) / np.sqrt(5))
    if kind == "mixture":
        return _mixture(rng, n, d)[0]
    if kind == "spins":
        s = rng.choice([-1.0, 1.0], (n, d))
        s[:, d - d // 2 :] = rng.choice([-1.0, 1.0], (n, 1))
        return s
    raise ValueError(
        f"S2 must be 'paper', 'uniform', 'skewed', 'gaussian', 'heavy', 'mixture', 'spins' or 'labs(k)', got {kind!r}"
    )


def _noise_part(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    if kind == "uniform":
        return _uniform(rng, n, d)
    if kind == "gaussian":
        return np.asarray(rng.normal(size=(n, d)) / np.sqrt(3))
    if kind == "mixture":
        return _mixture(rng, n, d)[0]
    raise ValueError(f"S3 must be 'uniform', 'gaussian' or 'mixture', got {kind!r}")


def load_biomarkers() -> tuple[Table, list[int]]:
    """Ten size and shape measurements of cell nuclei in 569 tissue samples, and their variation.

    From scikit-learn's copy of the Wisconsin breast cancer data. Views: "mean" (ten measurements,
    averaged over the nuclei of a sample) and "variation" (their standard errors). Columns are
    standardised.

    Returns
    -------
    table : Table
    malignant : list of int, 1 for malignant samples
    """
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    values = np.asarray(cancer.data[:, :20])
    values = (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)
    names = [str(name) for name in cancer.feature_names[:20]]
    views = resolve_views({"mean": names[:10], "variation": names[10:]}, 20, names)
    return Table(values, views, named=True), [int(1 - label) for label in cancer.target]


def add_hidden_labs(
    tests: Array,
    controls: Array,
    *,
    n_labs: int = 2,
    scale: float = 1.0,
    permute: bool = True,
    random_state: int | np.random.Generator | None = 0,
) -> tuple[Array, Array]:
    """Measurements (n, d) as if samples had gone to several labs, each with its own bias, and nobody wrote down which.

    tests, controls : standardised columns. permute : the rows of the controls are permuted first: controls must share
    nothing with the tests but the labs, and real columns of one sample usually do. Returns the perturbed (tests, controls).
    """
    rng = np.random.default_rng(random_state)
    n = len(tests)
    lab = rng.integers(n_labs, size=n)
    shuffled = controls[rng.permutation(n)] if permute else controls
    bias_tests = scale * rng.normal(size=(n_labs, tests.shape[1]))
    bias_controls = scale * rng.normal(size=(n_labs, controls.shape[1]))
    return tests + bias_tests[lab], shuffled + bias_controls[lab]
