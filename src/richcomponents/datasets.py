"""Data with known truth, and an embedded table of real measurements.

The designs are those of the paper's experiments (Section 5) and variations that break weaker methods; views for any set system;
and exposures whose effects are hidden by what goes with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import cumulant
from richcomponents.data.align import Table
from richcomponents.data.table import resolve_views
from richcomponents.errors import DataError
from richcomponents.learning.ising import Elimination, grid_edges

__all__ = [
    "Confounded",
    "Contrastive",
    "MultiView",
    "add_hidden_labs",
    "load_biomarkers",
    "load_confounded_labs",
    "make_confounded",
    "make_contrastive",
    "make_views",
]


_POINTS, _CHANCES = np.array([0.0, 1.0, 3.0]), np.array([0.6, 0.3, 0.1])  # a skewed three-point distribution
_STANDARD = (_POINTS - _POINTS @ _CHANCES) / np.sqrt(_POINTS**2 @ _CHANCES - (_POINTS @ _CHANCES) ** 2)

_SOURCES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "exponential": lambda rng, size: rng.exponential(size=size) - 1,
    "uniform": lambda rng, size: rng.uniform(-1, 1, size) * np.sqrt(3),
    "discrete": lambda rng, size: _STANDARD[rng.choice(len(_POINTS), size=size, p=_CHANCES)],
    "gaussian": lambda rng, size: rng.normal(size=size),
    "heavy": lambda rng, size: rng.standard_t(5, size=size) / np.sqrt(5 / 3),
    "signs": lambda rng, size: rng.choice([-1.0, 1.0], size),
    "labs": lambda rng, size: _simplex(size[1])[rng.integers(size[1] + 1, size=size[0])],
}
"""Columns of mean zero and covariance I, independent but for labs."""

_CUMULANTS = {  # of order two to four
    "exponential": (1.0, 2.0, 6.0),
    "uniform": (1.0, 0.0, -1.2),
    "discrete": (1.0, float(_STANDARD**3 @ _CHANCES), float(_STANDARD**4 @ _CHANCES) - 3),
    "gaussian": (1.0, 0.0, 0.0),
}


@dataclass(frozen=True)
class _TwoViews:
    S1: Array
    S2: Array
    S3: Array
    A: Array

    @property
    def _direct(self) -> tuple[Any, Any]:
        """What else is in U and in V."""
        return 0.0, 0.0

    @property
    def U(self) -> Array:
        """(n, d_u), the first view."""
        return np.asarray(self._direct[0] + self.S1 + self.S2)

    @property
    def V(self) -> Array:
        """(n, d_v), the second view."""
        return np.asarray(self._direct[1] + self.S2 @ self.A.T + self.S3)

    @property
    def X(self) -> Array:
        """(n, d_u + d_v), the views side by side."""
        return np.hstack([self.U, self.V])


@dataclass(frozen=True)
class Contrastive(_TwoViews):
    """U = S1 + S2, V = A S2 + S3, and everything that is hidden.

    X : (n, d_u + d_v), the views side by side; U, V, S1, S2, S3 : samples; A : (d_v, d_u);
    y : outcome (n,) or None; beta : its coefficients on S1, or None; direction : the top direction of S1, or None;
    cov_S1 : population covariance of S1.
    Of S1="mixture": centres (10, d) and weights (10,); of S1="ising": edges (m, 2) and couplings (m,). None otherwise.

    Examples
    --------
    >>> data = make_contrastive(100, d=3, random_state=0)
    >>> data.U.shape, data.A.shape, data.beta.shape, bool(np.allclose(data.U, data.S1 + data.S2))
    ((100, 3), (3, 3), (3,), True)
    """

    cov_S1: Array
    y: Array | None = None
    beta: Array | None = None
    direction: Array | None = None
    centres: Array | None = None
    weights: Array | None = None
    edges: IntArray | None = None
    couplings: Array | None = None


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
    s2 = _drawn(S2, n_samples, d, rng)
    if S3 not in ("uniform", "gaussian", "mixture"):
        raise ValueError(f"S3 must be 'uniform', 'gaussian' or 'mixture', got {S3!r}")
    s3 = _drawn(S3, n_samples, d_v, rng) * scale_S3
    if strength is not None:
        s2 = s2 * (strength * np.sqrt(np.trace(own["cov_S1"])) / np.sqrt(np.trace(np.atleast_2d(np.cov(s2.T)))))
    return Contrastive(S2=s2 * scale_S2, S3=s3, A=mixing, **own)


def _unit(rng: np.random.Generator, d: int) -> Array:
    vector = rng.normal(size=d)
    return np.asarray(vector / np.linalg.norm(vector))


def _labs(rng: np.random.Generator, n: int, d: int, k: int) -> tuple[Array, IntArray]:
    """Random biases (k, d) of mean zero, and the lab of each sample (n,)."""
    biases = rng.normal(size=(k, d))
    return biases - biases.mean(axis=0), rng.integers(k, size=n)


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
        return _random_matrix(rng, d_v, d_u, (0.5, 1.5))
    raise ValueError(f"A must be 'unif', 'good' or a matrix, got {A!r}")


def _own_part(
    kind: str, n: int, d: int, unit: Array, rng: np.random.Generator, weights: Array | Sequence[float] | None
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
        s, covariance = sums.sample(couplings, n, rng), sums.correlations(couplings)
        return {"S1": s, "edges": edges, "couplings": couplings, "cov_S1": covariance}
    s = rng.uniform(-1, 1, (n, d))
    known = {"S1": s, "beta": unit, "cov_S1": np.eye(d) / 3}
    if kind == "regression":
        return {**known, "y": s @ unit + rng.normal(size=n)}
    if kind == "logistic":
        chance = 1 / (1 + np.exp(-s @ unit))
        return {**known, "y": (rng.random(n) < chance).astype(np.float64)}
    raise ValueError(f"S1 must be 'regression', 'pca', 'logistic', 'mixture' or 'ising', got {kind!r}")


def _drawn(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    """Samples (n, d) of S2, or of S3, which may be of three of these kinds."""
    labs = re.fullmatch(r"labs\((\d+)\)", kind)
    if labs:
        biases, lab = _labs(rng, n, d, int(labs.group(1)))
        return np.asarray(biases[lab])
    if kind == "paper":
        return rng.uniform(-1, 1, (n, d)) + rng.normal(size=(n, 1)) * _unit(rng, d)
    if kind in ("uniform", "gaussian", "heavy"):
        return np.asarray(_SOURCES[kind](rng, (n, d)) / np.sqrt(3))
    if kind == "skewed":
        return np.asarray(0.6 * _SOURCES["exponential"](rng, (n, d)))
    if kind == "mixture":
        return _mixture(rng, n, d)[0]
    if kind == "spins":
        s = rng.choice([-1.0, 1.0], (n, d))
        s[:, d - d // 2 :] = rng.choice([-1.0, 1.0], (n, 1))
        return s
    raise ValueError(
        f"S2 must be 'paper', 'uniform', 'skewed', 'gaussian', 'heavy', 'mixture', 'spins' or 'labs(k)', got {kind!r}"
    )


@dataclass(frozen=True)
class MultiView:
    """U_i = sum over subsets Q that contain i of A(i, Q) S_Q.

    X : (n, all columns), the views side by side; views : {name: slice of columns}, ready for `views=`;
    sets : subsets in the given order; components : {Q: samples (n, d)}; transforms : {(view, Q): A}, the identity at the first
    view of Q; covariances : {Q: population covariance}; kinds : {Q: distribution of its sources};
    mixing : {Q: (d, rank)}, S_Q = mixing @ sources of covariance one.

    Examples
    --------
    >>> data = make_views(100, 3, 2, sets=[("a",), ("a", "b"), ("b",), ("c",)])
    >>> data.X.shape, data.transforms["b", ("a", "b")].shape
    ((100, 6), (2, 2))
    """

    X: Array
    views: dict[str, slice]
    sets: tuple[Subset, ...]
    components: dict[Subset, Array]
    transforms: dict[tuple[str, Subset], Array]
    covariances: dict[Subset, Array]
    kinds: dict[Subset, str]
    mixing: dict[Subset, Array]

    def view(self, name: str) -> Array:
        """The columns of one view."""
        return self.X[:, self.views[name]]

    def cumulant(self, subset: Subset, order: int) -> Array:
        """The population cumulant of a component, order 2 to 4: shape (d,) * order."""
        mixing, kind = self.mixing[subset], self.kinds[subset]
        rank = mixing.shape[1]
        if not 2 <= order <= 4:
            raise ValueError(f"population cumulants are given for orders 2 to 4, got {order}")
        if kind == "labs":
            sources = cumulant(_simplex(rank), order, unbiased=False)
        else:
            sources = np.zeros((rank,) * order)
            sources[(np.arange(rank),) * order] = _CUMULANTS[kind][order - 2]
        return multilinear(sources, *[mixing.T] * order)


def make_views(
    n_samples: int = 1000,
    views: int | Sequence[str] | Mapping[str, int] = 3,
    d: int = 3,
    *,
    sets: Iterable[Sequence[str]] | None = None,
    kinds: str | Sequence[str] | Mapping[Subset, str] = ("exponential", "uniform", "discrete"),
    scales: Mapping[Subset, float] | None = None,
    ranks: Mapping[Subset, int] | None = None,
    spread: tuple[float, float] = (0.6, 1.4),
    random_state: int | np.random.Generator | None = 0,
) -> MultiView:
    """Views that share components in any pattern, and the truth.

    Parameters
    ----------
    n_samples : int
    views : int, names, or {name: number of columns}
        How many views ("a", "b", ...), their names, or names and widths.
    d : int
        Columns of each view, unless `views` says.
    sets : subsets of views, optional
        One component per subset, as in :class:`richcomponents.RCA`; all non-empty subsets by default, single views first.
    kinds : str, list or {subset: str}
        Distribution of the independent sources of each component: "exponential" (skewed), "uniform" (symmetric), "discrete"
        (three points, skewed) or "gaussian"; a list is dealt out in turn. Or "labs": as many equally likely biases as the
        rank plus one, each sample has one of them.
    scales : {subset: float}, optional
        Standard deviations relative to the others; 0 for a component that is not there.
    ranks : {subset: int}, optional
        Dimensions of components that have fewer than the columns of their first view.
    spread : (low, high)
        Singular values of the transformations.
    random_state : int, Generator or None

    Examples
    --------
    >>> data = make_views(500, {"rna": 3, "protein": 2}, sets=[("rna",), ("protein",), ("protein", "rna")])
    >>> data.X.shape, data.transforms["protein", ("rna", "protein")].shape
    ((500, 5), (2, 3))
    """
    rng = np.random.default_rng(random_state)
    if isinstance(views, Mapping):
        widths = {str(name): int(width) for name, width in views.items()}
    else:
        named = [chr(ord("a") + i) for i in range(views)] if isinstance(views, int) else views
        widths = dict.fromkeys(named, d)
    names = tuple(widths)
    ends = list(accumulate(widths.values(), initial=0))
    where = dict(zip(names, map(slice, ends, ends[1:]), strict=True))
    everything = sorted(SetSystem.all(names).members, key=len)
    chosen = SetSystem.of(everything if sets is None else sets, names).members
    scale_of = {**dict.fromkeys(chosen, 1.0), **_by_member(scales or {}, chosen, "scales")}
    rank_of = {**{q: widths[q[0]] for q in chosen}, **_by_member(ranks or {}, chosen, "ranks")}
    kind_of = _kinds(kinds, chosen)
    X = np.zeros((n_samples, ends[-1]))
    components: dict[Subset, Array] = {}
    transforms: dict[tuple[str, Subset], Array] = {}
    mixings: dict[Subset, Array] = {}
    for q in chosen:
        home, rank = widths[q[0]], rank_of[q]
        if not 1 <= rank <= home:
            raise DataError(f"ranks={{{q!r}: {rank!r}}} must lie between 1 and {home}, the columns of view {q[0]!r}")
        mixing = scale_of[q] * _random_matrix(rng, home, rank, (0.7, 1.3))
        S = _SOURCES[kind_of[q]](rng, (n_samples, rank)) @ mixing.T
        for view in q:
            A = np.eye(home) if view == q[0] else _random_matrix(rng, widths[view], home, spread)
            transforms[view, q] = A
            X[:, where[view]] += S @ A.T
        components[q], mixings[q] = S, mixing
    covariances = {q: mixing @ mixing.T for q, mixing in mixings.items()}
    return MultiView(X, where, chosen, components, transforms, covariances, kind_of, mixings)


def _kinds(kinds: str | Sequence[str] | Mapping[Subset, str], members: tuple[Subset, ...]) -> dict[Subset, str]:
    dealt = kinds if isinstance(kinds, Mapping) else zip(members, cycle([kinds] if isinstance(kinds, str) else kinds))
    named = _by_member(dict(dealt), members, "kinds")
    for q in members:
        if q not in named:
            raise DataError(f"kinds= does not say the distribution of the component of {q}")
        if named[q] != "labs" and named[q] not in _CUMULANTS:
            raise ValueError(f"kinds are {', '.join(map(repr, (*_CUMULANTS, 'labs')))}, got {named[q]!r}")
    return named


def _by_member(given: Mapping[Subset, Any], members: tuple[Subset, ...], name: str) -> dict[Subset, Any]:
    """The same values by subsets in view order; a string stands for a single view."""
    own = {frozenset(q): q for q in members}
    out = {}
    for key, value in given.items():
        subset = own.get(frozenset([key] if isinstance(key, str) else key))
        if subset is None or subset in out:
            why = "which is not one of the sets" if subset is None else "twice; every set once, of"
            raise DataError(f"{name}= names {key!r}, {why} {', '.join(map(str, members))}")
        out[subset] = value
    return out


def _random_matrix(rng: np.random.Generator, rows: int, columns: int, spread: tuple[float, float]) -> Array:
    """A random matrix of full rank with singular values in `spread`."""
    k = min(rows, columns)
    left, _ = np.linalg.qr(rng.normal(size=(rows, k)))
    right, _ = np.linalg.qr(rng.normal(size=(columns, k)))
    return np.asarray((left * rng.uniform(*spread, k)) @ right.T)


def _simplex(d: int) -> Array:
    """The corners of a regular simplex, (d + 1, d), of mean zero and covariance I.

    >>> (_simplex(3).T @ _simplex(3) / 4).round(12).tolist() == np.eye(3).tolist()
    True
    """
    return np.asarray(np.linalg.qr(np.eye(d + 1)[:, 1:] - 1 / (d + 1))[0] * np.sqrt(d + 1))


@dataclass(frozen=True)
class Confounded(_TwoViews):
    """U = y effects + S1 + S2, V = y control_effects + A S2 + S3, and everything that is hidden: S2 goes with y.

    y : exposure (n,); effects : its true effects on U (d_u,); control_effects : on V (d_v,), zero for valid controls;
    oracle : (d_u,) the effects that least squares finds when the confounder is seen, the best that the sample allows;
    S1, S2 : samples (n, d_u); S3 : (n, d_v); A : (d_v, d_u); lab : hidden lab of each sample (n,), or None;
    names : of the columns of X = (U, V); views : {name: slice of columns}, ready for `views=`.

    Examples
    --------
    >>> data = make_confounded(100, d_u=4, d_v=5, random_state=0)
    >>> data.X.shape, data.effects.shape, data.views
    ((100, 9), (4,), {'tests': slice(0, 4, None), 'controls': slice(4, 9, None)})
    """

    y: Array
    effects: Array
    control_effects: Array
    oracle: Array
    names: tuple[str, ...]
    lab: IntArray | None = None

    @property
    def _direct(self) -> tuple[Array, Array]:
        return np.outer(self.y, self.effects), np.outer(self.y, self.control_effects)

    @property
    def views(self) -> dict[str, slice]:
        """Columns of tests and controls, ready for `views=`."""
        d = len(self.effects)
        return {"tests": slice(0, d), "controls": slice(d, len(self.names))}


def make_confounded(
    n: int = 1000,
    d_u: int = 6,
    d_v: int = 6,
    *,
    confounder: str = "labs",
    n_labs: int = 3,
    rank: int | None = None,
    strength: float = 1.0,
    confounding: float = 1.0,
    noise_v: float | None = None,
    effects: float | Array | Sequence[float] = 0.2,
    null_fraction: float = 0.0,
    binary_exposure: bool = False,
    invalid: Mapping[int, float] | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> Confounded:
    """An exposure y, columns that it changes, columns that it does not, and a hidden confounder that disturbs all of them.

    S1 ~ N(0, I), A ~ Unif[-1, 1], S3 ~ noise_v N(0, I), y = confounding * latent + N(0, 1).

    Parameters
    ----------
    n, d_u, d_v : int
        Rows, columns of U (tests), columns of V (controls).
    confounder : {"labs", "skewed", "gaussian", "heavy", "binary"}
        "labs": n_labs random biases, one per sample, of centred rank n_labs - 1; latent = 1 in the second lab, 0 elsewhere.
        Else `rank` independent factors of variance one times N(0, 1) loadings, of which the first is latent: "skewed",
        Exp(1) - 1; "gaussian", for which A is not identified; "heavy", Student's t with 5 degrees of freedom; "binary", signs.
    rank : int, optional
        Number of factors, 1 by default; that of labs is given by n_labs.
    strength, confounding : float
        Factors of S2, and of the part of y that goes with it (0: nothing does).
    noise_v : float, optional
        Standard deviation of S3, one for all columns; drawn from Unif[0.5, 1.5] by default.
    effects : float or (d_u,)
        Standard deviation of normal effects, or the effects.
    null_fraction : float
        Share of the columns of U that y does not change, drawn at random.
    binary_exposure : bool
        y is 1 where it lies above its expectation, else 0.
    invalid : {control: effect}, optional
        Effects of y on controls, by their number 0..d_v - 1: controls that are none.
    random_state : int, Generator or None

    Examples
    --------
    >>> data = make_confounded(500, d_u=4, invalid={0: 0.5}, random_state=1)
    >>> data.X.shape, data.control_effects.tolist()
    ((500, 10), [0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    """
    rng = np.random.default_rng(random_state)
    if not 0 <= null_fraction <= 1:
        raise ValueError(f"null_fraction must lie between 0 and 1, got {null_fraction!r}")
    factors, loadings, latent, lab = _confounder(confounder, n, d_u, n_labs, rank, rng)
    s2 = strength * (factors @ loadings)
    A, s1, s3 = rng.uniform(-1, 1, (d_v, d_u)), rng.normal(size=(n, d_u)), rng.normal(size=(n, d_v))
    s3 *= rng.uniform(0.5, 1.5) if noise_v is None else noise_v
    y = confounding * latent + rng.normal(size=n)
    if binary_exposure:
        y = (y > (0.0 if lab is None else confounding / n_labs)).astype(np.float64)
    truth = np.array(effects, dtype=np.float64) if np.ndim(effects) else np.asarray(effects * rng.normal(size=d_u))
    if truth.shape != (d_u,):
        raise ValueError(
            f"effects must be one number, or one for each of the {d_u} columns of U, got shape {truth.shape}"
        )
    truth[rng.permutation(d_u)[: round(null_fraction * d_u)]] = 0.0
    oracle = _exposure_effects(np.outer(y, truth) + s1 + s2, y, factors if d_u > factors.shape[1] else s2)
    on_controls = np.zeros(d_v)
    for control, effect in (invalid or {}).items():
        if not 0 <= control < d_v:
            raise ValueError(f"invalid= names control {control!r}: they are numbered 0..{d_v - 1}")
        on_controls[control] = effect
    names = tuple([f"u{i}" for i in range(d_u)] + [f"v{i}" for i in range(d_v)])
    return Confounded(s1, s2, s3, A, y, truth, on_controls, oracle, names, lab)


_FACTORS = {"skewed": "exponential", "gaussian": "gaussian", "heavy": "heavy", "binary": "signs"}


def _confounder(
    kind: str, n: int, d: int, n_labs: int, rank: int | None, rng: np.random.Generator
) -> tuple[Array, Array, Array, IntArray | None]:
    """Factors (n, r) and loadings (r, d) of S2; what goes with the exposure (n,); the lab of each sample (n,)."""
    if kind == "labs":
        if rank is not None:
            raise ValueError(f"the rank of labs is n_labs - 1: leave rank={rank!r} out, and choose n_labs")
        if n_labs < 2:
            raise ValueError(f"n_labs must be at least 2, got {n_labs!r}")
        biases, lab = _labs(rng, n, d, n_labs)
        return np.eye(n_labs)[lab], biases, (lab == 1).astype(np.float64), lab
    if kind not in _FACTORS:
        raise ValueError(f"confounder must be 'labs', {', '.join(map(repr, _FACTORS))}, got {kind!r}")
    factors = _SOURCES[_FACTORS[kind]](rng, (n, 1 if rank is None else rank))
    return factors, rng.normal(size=(factors.shape[1], d)), factors[:, 0], None


def _exposure_effects(U: Array, y: Array, *seen: Array) -> Array:
    """Coefficients of y (d,) in least squares of U (n, d) on 1, y and what is seen of the confounder."""
    design = np.column_stack([np.ones(len(y)), y, *seen])
    return np.asarray(np.linalg.lstsq(design, U, rcond=None)[0][1])


def load_biomarkers() -> tuple[Table, list[int]]:
    """Ten size and shape measurements of cell nuclei in 569 tissue samples, and their variation.

    From scikit-learn's copy of the Wisconsin breast cancer data. Views: "mean" (ten measurements,
    averaged over the nuclei of a sample) and "variation" (their standard errors). Columns are
    standardised.

    Returns
    -------
    table : Table
    malignant : list of int, 1 for malignant samples

    Examples
    --------
    >>> table, malignant = load_biomarkers()
    >>> table.values.shape, list(table.views), sum(malignant)
    ((569, 20), ['mean', 'variation'], 212)
    """
    values, names, malignant = _breast_cancer()
    values, names = values[:, :20], names[:20]
    values = (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)
    views = resolve_views({"mean": names[:10], "variation": names[10:]}, 20, names)
    return Table(values, views, named=True), [int(label) for label in malignant]


def load_confounded_labs(
    random_state: int | np.random.Generator | None = 0,
    *,
    n_labs: int = 3,
    n_controls: int = 5,
    n_tests: int = 10,
    confounding: float = 2.0,
) -> Confounded:
    """Real measurements with a hidden confounder: do malignant samples differ, when they went more often to some labs?

    Thirty measurements of cell nuclei in 569 tissue samples (scikit-learn's copy of the Wisconsin breast cancer data), logs,
    standardised; y is 1 for malignant samples. Tests and controls are drawn among the columns; samples of the controls are
    permuted, so that y does not change them. Every lab adds its N(0, 1) biases to both; the odds of malignancy grow by
    e^confounding from the first lab to the last.

    `effects` are those of least squares in the undisturbed table, S1 its residuals; `oracle` are those when the lab is known.

    Examples
    --------
    >>> data = load_confounded_labs(1)
    >>> data.X.shape, data.names[0], np.bincount(data.lab, data.y).astype(int).tolist()
    ((569, 15), 'worst texture', [28, 67, 117])
    """
    values, names, malignant = _breast_cancer()
    values = np.log(values + 1e-3)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    n, p = values.shape
    if not (2 <= n_labs <= n_tests and 1 <= n_controls <= p - n_tests):
        raise ValueError(
            f"the table has {p} columns for tests and controls, and n_labs lies between 2 and n_tests; got "
            f"n_tests={n_tests}, n_controls={n_controls}, n_labs={n_labs}"
        )
    rng = np.random.default_rng(random_state)
    drawn = rng.permutation(p)[: n_tests + n_controls]
    tests, controls = values[:, drawn[:n_tests]], values[rng.permutation(n)][:, drawn[n_tests:]]
    y = malignant.astype(np.float64)
    chances = np.exp(np.outer(y - 0.5, np.linspace(-confounding / 2, confounding / 2, n_labs)))
    chances /= chances.sum(axis=1, keepdims=True)
    lab = (rng.random(n)[:, None] > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    bias_tests, bias_controls = (rng.normal(size=(n_labs, d)) for d in (n_tests, n_controls))
    effects = _exposure_effects(tests, y)
    return Confounded(
        y=y,
        effects=effects,
        control_effects=np.zeros(n_controls),
        oracle=_exposure_effects(tests + bias_tests[lab], y, np.eye(n_labs)[lab]),
        S1=tests - np.outer(y, effects),
        S2=bias_tests[lab],
        S3=controls,
        A=np.asarray(np.linalg.lstsq(bias_tests, bias_controls, rcond=None)[0].T),
        names=tuple(names[c] for c in drawn),
        lab=lab,
    )


def _breast_cancer() -> tuple[Array, list[str], IntArray]:
    """Values (569, 30), names of the columns, and 1 for malignant samples."""
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    return np.asarray(cancer.data), [str(name) for name in cancer.feature_names], np.asarray(1 - cancer.target)


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

    Examples
    --------
    >>> table, malignant = load_biomarkers()
    >>> tests, controls = (table.values[:, table.views[name]] for name in ("mean", "variation"))
    >>> tests, controls = add_hidden_labs(tests, controls, n_labs=3)
    >>> tests.shape, controls.shape
    ((569, 10), (569, 10))
    """
    rng = np.random.default_rng(random_state)
    n = len(tests)
    lab = rng.integers(n_labs, size=n)
    shuffled = controls[rng.permutation(n)] if permute else controls
    disturbed, also = (X + scale * rng.normal(size=(n_labs, X.shape[1]))[lab] for X in (tests, shuffled))
    return disturbed, also
