"""Simulated views for any set system, with everything that is hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from richcomponents.algebra import Array, multilinear
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import cumulant
from richcomponents.errors import DataError

__all__ = ["MultiView", "make_views"]

_POINTS, _CHANCES = np.array([0.0, 1.0, 3.0]), np.array([0.6, 0.3, 0.1])  # a skewed three-point distribution
_STANDARD = (_POINTS - _POINTS @ _CHANCES) / np.sqrt(_POINTS**2 @ _CHANCES - (_POINTS @ _CHANCES) ** 2)

SOURCES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
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
    widths = _widths(views, d)
    names = tuple(widths)
    ends = np.cumsum([0, *widths.values()])
    where = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(names)}
    everything = sorted(SetSystem.all(names).members, key=len)
    chosen = SetSystem.of(everything if sets is None else sets, names).members
    scale_of = {**dict.fromkeys(chosen, 1.0), **_by_member(scales or {}, chosen, "scales")}
    rank_of = {**{q: widths[q[0]] for q in chosen}, **_by_member(ranks or {}, chosen, "ranks")}
    kind_of = _kinds(kinds, chosen)
    X = np.zeros((n_samples, int(ends[-1])))
    components: dict[Subset, Array] = {}
    transforms: dict[tuple[str, Subset], Array] = {}
    covariances, drawn, mixings = {}, {}, {}
    for q in chosen:
        kind, home, rank = kind_of[q], widths[q[0]], rank_of[q]
        if not 1 <= rank <= home:
            raise DataError(f"ranks={{{q!r}: {rank!r}}} must lie between 1 and {home}, the columns of view {q[0]!r}")
        mixing = scale_of[q] * random_matrix(rng, home, rank, (0.7, 1.3))
        S = SOURCES[kind](rng, (n_samples, rank)) @ mixing.T
        for view in q:
            A = np.eye(home) if view == q[0] else random_matrix(rng, widths[view], home, spread)
            transforms[view, q] = A
            X[:, where[view]] += S @ A.T
        components[q], covariances[q], drawn[q], mixings[q] = S, mixing @ mixing.T, kind, mixing
    return MultiView(X, where, chosen, components, transforms, covariances, drawn, mixings)


def _widths(views: int | Sequence[str] | Mapping[str, int], d: int) -> dict[str, int]:
    if isinstance(views, Mapping):
        return {str(name): int(width) for name, width in views.items()}
    names = [chr(ord("a") + i) for i in range(views)] if isinstance(views, int) else list(views)
    return dict.fromkeys(names, d)


def _kinds(kinds: str | Sequence[str] | Mapping[Subset, str], members: tuple[Subset, ...]) -> dict[Subset, str]:
    if isinstance(kinds, Mapping):
        named = _by_member(kinds, members, "kinds")
    else:
        named = dict(zip(members, cycle([kinds] if isinstance(kinds, str) else kinds), strict=False))
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


def random_matrix(rng: np.random.Generator, rows: int, columns: int, spread: tuple[float, float]) -> Array:
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
