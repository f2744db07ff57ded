"""Couplings of an Ising model of a component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.errors import DataError
from richcomponents.learning.ising import (
    NEWTON_EDGES,
    Elimination,
    Gibbs,
    composite_from_component,
    fit_composite,
    fit_joint,
    fit_likelihood,
    fit_taylor,
    moment_model,
    unit_diagonal,
)
from richcomponents.models.base import CoefficientTable, ComponentLearner
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.storage import storable
from richcomponents.views import as_matrix, column_names

__all__ = ["ComponentIsing"]

_METHODS = ("auto", "likelihood", "composite", "taylor")
_ROWS_IF_UNKNOWN = 1000  # a component that keeps no moments does not say how many rows it came from
_UNTRUSTED_WEIGHT = 0.3  # of second moments inside the shared block when the higher orders say nothing about T
_JOINT_WIDTH = 13


class ComponentIsing(ComponentLearner):
    """Couplings of P(s) = exp(sum_ij J_ij s_i s_j) / Z, spins s in {-1, 1}^d hidden in a component.

    There are no fields: the means of a component are only known by a rule, so all odd moments are taken to be zero.

    Parameters
    ----------
    edges : None, sequence of pairs, or array (d, d)
        The graph. None: all pairs. Pairs hold column numbers or column names of the component; a square array is an
        adjacency matrix (symmetric, its non-zero entries are edges). See :func:`richcomponents.learning.ising.grid_edges`.
    method : {"auto", "likelihood", "composite", "taylor"}
        "likelihood": maximises m'J - log Z(J), m the extracted pair moments; log Z by summing out one node at a time where
        the graph allows, by enumeration up to 20 nodes, else by Gibbs chains.
        "composite": exact composite (pseudo-) likelihood; from extracted moments if no node has more than four neighbours.
        "taylor": composite likelihood with its gradient expanded to moments of order four, as in Ge and Zou; biased for
        couplings above about 0.3, whatever the sample size.
        "auto": from rows, the couplings whose E[s s'] fits all second moments in the canonical coordinates of the views,
        where their errors are even (S1, up to 1500 edges; else "likelihood"); from a component, "likelihood"; from true
        spins, "likelihood" if it is exact, else "composite".
    alpha : float
        Ridge, as the precision of a Gaussian prior of each coupling: the penalty per sample is alpha |J|^2 / (2 n).
    rca : ContrastiveRCA, optional
        Cloned and fitted on X.
    component : {"S1", "S2", "S3"}
    random_state : int
        Of the Monte Carlo parts.

    Attributes
    ----------
    couplings_ : array (d, d)
        Symmetric; zero where there is no edge.
    edges_ : array (m, 2)
        Column numbers, smaller first.
    coef_ : array (m,)
        The couplings in the order of edges_.
    method_ : str
        What was done: "joint", "likelihood", "composite" or "taylor".
    feature_names_ : tuple of str
        Of the spins.
    rca_, component_

    Examples
    --------
    >>> from richcomponents.learning.ising import Elimination, grid_edges
    >>> edges = grid_edges(3, 3)
    >>> J = np.linspace(-0.5, 0.5, len(edges))
    >>> S = Elimination(9, edges).sample(J, 20_000, np.random.default_rng(0))
    >>> model = ComponentIsing(edges=edges).fit_clean(S)
    >>> bool(np.abs(model.coef_ - J).max() < 0.05)
    True
    """

    def __init__(
        self,
        edges: Any = None,
        method: str = "auto",
        alpha: float = 3.0,
        rca: Any = None,
        component: str = "S1",
        random_state: int = 0,
    ) -> None:
        self.edges = edges
        self.method = method
        self.alpha = alpha
        self.rca = rca
        self.component = component
        self.random_state = random_state

    def fit(self, X: object, y: object = None, groups: object = None) -> Self:
        """Fit the RCA to X, then the couplings of its component. y is ignored."""
        self._check_options()
        component = self._fit_rca(X, groups)
        return self._learn(component, self.rca_)

    def fit_component(self, component: Component) -> Self:
        """Fit to an extracted component."""
        self._check_options()
        return self._learn(self._take_component(component), None)

    def fit_clean(self, S: object) -> Self:
        """Fit to true spins (n, d), every entry -1 or 1: the gold standard."""
        self._check_options()
        values = as_matrix(S)
        wrong = ~np.isin(values, (-1.0, 1.0))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise DataError(
                f"fit_clean takes spins, -1 or 1: {int(wrong.sum())} entries are neither, the first is {values[row, column]:g} "
                f"in row {row}, column {column}. For 0/1 data use 2 * S - 1; for views with a shared part use fit(X)"
            )
        names = column_names(S) or tuple(f"x{i}" for i in range(values.shape[1]))
        n, d = values.shape
        second = values.T @ values / n
        component = Component("samples", names, np.zeros(d), second, None, _no_recipes)
        if self.method == "taylor":
            component = Component.of_samples(S)
        self.rca_, self.component_ = None, component
        edges = _graph(self.edges, names)
        model = moment_model(d, edges, seed=self.random_state) if self.method in ("auto", "likelihood") else None
        if self.method == "taylor":
            return self._keep(fit_taylor(component, edges, self.alpha / n), edges, "taylor")
        if model is None or (self.method == "auto" and not model.exact):
            return self._keep(fit_composite(values, edges, self.alpha / n), edges, "composite")
        found = fit_likelihood(model, second[edges[:, 0], edges[:, 1]], self.alpha / n)
        return self._keep(found, edges, "likelihood")

    def _check_options(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, got {self.method!r}")
        number = isinstance(self.alpha, (int, float, np.number)) and not isinstance(self.alpha, bool)
        if not number or not np.isfinite(self.alpha) or self.alpha < 0:
            raise ValueError(f"alpha must be a finite number, zero or more, got {self.alpha!r}")

    def _learn(self, component: Component, rca: ContrastiveRCA | None) -> Self:
        edges = _graph(self.edges, component.feature_names)
        return self._keep(*self._couplings(component, rca, edges))

    def _couplings(
        self, component: Component, rca: ContrastiveRCA | None, edges: IntArray
    ) -> tuple[Array, IntArray, str]:
        ridge = self.alpha / _rows_behind(component, rca)
        if self.method == "composite":
            return composite_from_component(component, edges, ridge), edges, "composite"
        if self.method == "taylor":
            return fit_taylor(component, edges, ridge), edges, "taylor"
        model = moment_model(len(component.mean), edges, seed=self.random_state)
        moments = unit_diagonal(component.covariance)[edges[:, 0], edges[:, 1]]
        view = None
        if self.method == "auto" and rca is not None and component.name == "S1" and 0 < len(edges) <= NEWTON_EDGES:
            view = _canonical_moments(rca, component)
        if view is None:
            return fit_likelihood(model, moments, ridge), edges, "likelihood"
        start = fit_likelihood(model, moments, max(3 * ridge, 0.03))
        if isinstance(model, Elimination) and model.width > _JOINT_WIDTH:
            model = Gibbs(model.n_nodes, edges, seed=self.random_state)
        found = fit_joint(model, *view, start, ridge, rng=np.random.default_rng(self.random_state))
        return found, edges, "joint"

    def _keep(self, couplings: Array, edges: IntArray, method: str) -> Self:
        d = len(self.component_.mean)
        matrix = np.zeros((d, d))
        matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = couplings
        self.couplings_, self.coef_, self.edges_, self.method_ = matrix, couplings, edges, method
        self.feature_names_ = tuple(map(str, self.component_.feature_names))
        return self

    def edge_table(self) -> list[dict[str, object]]:
        """One dict per edge, ready for a data frame: the two column names and the coupling."""
        check_is_fitted(self)
        return [
            {"node": self.feature_names_[i], "neighbour": self.feature_names_[j], "coupling": float(value)}
            for (i, j), value in zip(self.edges_.tolist(), self.coef_, strict=True)
        ]

    def confidence_interval(self, level: float = 0.95, *, progress: bool = False) -> CoefficientTable:
        """Couplings with block-jackknife standard errors and intervals, the RCA refitted without each block."""
        check_is_fitted(self)
        rca = self._need_rca()

        def function(model: ContrastiveRCA) -> Array:
            return self._couplings(model.components_[self.component], model, self.edges_)[0]

        result = rca.jackknife(function, progress=progress)
        names = tuple(f"{self.feature_names_[i]} -- {self.feature_names_[j]}" for i, j in self.edges_.tolist())
        return CoefficientTable(names, self.coef_, result.standard_error, len(result.replicates) - 1, level)

    def summary(self) -> str:
        """The graph, the strongest couplings, and how sure the RCA was."""
        check_is_fitted(self)
        how = {
            "joint": "fitted to all second moments in canonical coordinates",
            "likelihood": "maximum likelihood from pair moments",
            "composite": "composite likelihood",
            "taylor": "composite likelihood, Taylor gradient of order four",
        }[self.method_]
        d, m = len(self.couplings_), len(self.edges_)
        lines = [f"Ising model of {self.component_.name}: {d} spins, {m} edges; {how}"]
        top = np.argsort(-np.abs(self.coef_))[:10]
        if m:
            lines.append(f"  couplings: root mean square {np.sqrt(np.mean(self.coef_**2)):.3f}; the strongest:")
        for e in top:
            i, j = self.edges_[e]
            lines.append(f"  {self.coef_[e]:+.3f}  {self.feature_names_[i]} -- {self.feature_names_[j]}")
        return "\n".join(lines + ([] if self.rca_ is None else [self.rca_.summary()]))


@storable
def _no_recipes(order: int) -> list[Any]:
    return []


def _rows_behind(component: Component, rca: ContrastiveRCA | None) -> int:
    if component.source is not None:
        return max(1, int(component.source.moments.n))
    if rca is not None and rca._canonical is not None:
        return max(1, int(rca._canonical.n))
    return _ROWS_IF_UNKNOWN


def _canonical_moments(rca: ContrastiveRCA, component: Component) -> tuple[Array, Array, Array] | None:
    """x_from_u (k, d), Cov(S1) in canonical coordinates (k, k), and the weights of its entries (k, k).

    Cov(S1) = h (I - T) h on the shared coordinates and I elsewhere. Outside the shared block it is known from second
    moments alone; inside, as well as T is. None where the RCA has no canonical coordinates (method="paper").
    """
    if rca._canonical is None or rca._shared is None:
        return None
    r, x_from_u = rca._shared.rank, rca._canonical.x_from_u
    trust = 1.0 if rca.A is not None else rca._shared.identified.gate
    weights = np.ones((len(x_from_u), len(x_from_u)))
    weights[:r, :r] = _UNTRUSTED_WEIGHT + (1 - _UNTRUSTED_WEIGHT) * trust
    return x_from_u, x_from_u @ component.covariance @ x_from_u.T, weights


def _graph(edges: Any, names: Sequence[str]) -> IntArray:
    """The `edges=` argument as an array (m, 2) of different pairs of column numbers, smaller first."""
    d = len(names)
    if edges is None:
        return np.column_stack(np.triu_indices(d, 1)).astype(np.int64)
    square = getattr(edges, "shape", None)
    if square is not None and len(square) == 2 and (square[1] != 2 or tuple(square) == (d, d)):
        return _from_adjacency(np.asarray(edges.toarray() if hasattr(edges, "toarray") else edges), d)
    if isinstance(edges, (str, bytes)) or not hasattr(edges, "__iter__"):
        raise ValueError(
            f"edges must be None, pairs of nodes, or an adjacency matrix of shape ({d}, {d}), got {edges!r}"
        )
    pairs = list(edges)
    if len(pairs) == d > 2 and all(hasattr(p, "__len__") and not isinstance(p, str) and len(p) == d for p in pairs):
        return _from_adjacency(np.asarray(pairs), d)
    numbers = {str(name): i for i, name in enumerate(names)}
    found: dict[tuple[int, int], None] = {}
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"an edge is a pair of nodes, got {pair!r}")
        i, j = (_node(end, numbers, d, pair) for end in pair)
        if i == j:
            raise ValueError(f"edges holds a self-loop, {tuple(pair)!r}: s_i s_i = 1 says nothing, remove it")
        found[min(i, j), max(i, j)] = None
    return np.array(list(found), dtype=np.int64).reshape(-1, 2)


def _node(end: Any, numbers: dict[str, int], d: int, pair: Any) -> int:
    if isinstance(end, str):
        if end not in numbers:
            raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end!r}; the columns are {', '.join(numbers)}")
        return numbers[end]
    if isinstance(end, (bool, np.bool_)) or not isinstance(end, (int, np.integer)):
        raise ValueError(f"edge {tuple(pair)!r}: a node is a column number or a column name, got {end!r}")
    if not 0 <= end < d:
        raise ValueError(f"edge {tuple(pair)!r} has an unknown node {end}; the component has columns 0 to {d - 1}")
    return int(end)


def _from_adjacency(matrix: Array, d: int) -> IntArray:
    if matrix.shape != (d, d):
        raise ValueError(f"the adjacency matrix has shape {matrix.shape}; the component has {d} columns, so ({d}, {d})")
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise ValueError("the adjacency matrix holds missing or infinite values: use 0 for no edge")
    present = matrix != 0
    loops = np.flatnonzero(np.diag(present))
    if len(loops):
        raise ValueError(f"the adjacency matrix has self-loops at nodes {loops.tolist()[:5]}: set its diagonal to zero")
    if not np.array_equal(present, present.T):
        i, j = np.argwhere(present != present.T)[0]
        raise ValueError(f"the adjacency matrix is not symmetric (entries {i}, {j}): use matrix | matrix.T")
    return np.argwhere(np.triu(present)).astype(np.int64)
