"""Couplings of an Ising model of a component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.learning.ising import (
    NEWTON_EDGES,
    Elimination,
    SpinMoments,
    as_edges,
    coupling_matrix,
    fit_joint,
    fit_pair_moments,
    joint_change,
    moment_model,
    pair_change,
    whitened_moments,
    with_ghost,
)
from richcomponents.models.base import AloneLearner
from richcomponents.models.rca import ComponentAnalysis
from richcomponents.moments.data import Data
from richcomponents.paper.ising import fit_taylor
from richcomponents.plots import heat_map
from richcomponents.text import in_line

_METHODS = ("auto", "likelihood", "paper")
_ROWS_IF_UNKNOWN = 1000  # a component that keeps no moments does not say how many rows it came from
_UNTRUSTED_WEIGHT = 0.3  # of second moments inside the shared block when the higher orders say nothing about T
_JOINT_WIDTH = 13
_NOISE = 4.0  # standard errors of a variance that may be noise
_LARGEST_MEAN = 1.1  # of a spin, noise included


@dataclass(eq=False, repr=False)
class ComponentIsing(AloneLearner):
    """Couplings of P(s) = exp(sum_ij J_ij s_i s_j + sum_i b_i s_i) / Z, spins s in {-1, 1}^d hidden in a component.

    Parameters
    ----------
    edges : None, sequence of pairs, or array (d, d)
        The graph. None: all pairs. Pairs hold column numbers or column names of the component; a square array is an
        adjacency matrix (symmetric, its non-zero entries are edges). See :func:`richcomponents.grid_edges`.
    method : {"auto", "likelihood", "paper"}
        "likelihood": maximises m'J - log Z(J), m the extracted pair moments; log Z by summing out one node at a time where
        the graph allows or it has up to 20 nodes, else by Gibbs chains.
        "paper": composite likelihood with its gradient expanded as in Ge and Zou; biased for couplings above about 0.3 at any
        sample size, and without fields.
        "auto": the couplings whose E[s s'] fits all second moments in coordinates that whiten the view, where their errors
        are even (S1, S3; up to 1500 edges; else "likelihood"). From rows, moments inside the shared part count as much as the
        RCA trusts them; a component alone does not say, and all count the same. From true spins, "likelihood".
    fields : bool
        Whether there are fields b_i. They are read off the means of the component, which are known by a rule only: by
        default the shared part has mean zero, so that all of the mean of U is S1's. If that is wrong, so are the fields
        (give one known mean, ``rca=ContrastiveRCA(mean={"S2": ...})``). False: b = 0, and all odd moments are taken to be zero,
        whatever the means.
    alpha : float
        Ridge, as the precision of a Gaussian prior of each coupling and field: the penalty per sample is
        alpha |J|^2 / (2 n).
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
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
    fields_ : array (d,)
        Zero unless fields=True.
    method_ : str
        What was done: "joint", "likelihood" or "paper".
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

    edges: Any = None
    method: str = "auto"
    fields: bool = False
    alpha: float = 3.0
    rca: Any = None
    component: str = "S1"
    random_state: int = 0

    def fit_clean(self, S: object) -> Self:
        """Fit to true spins (n, d), every entry -1 or 1: the gold standard."""
        self._check_parameters()
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
        mean = values.mean(0) if self.fields else np.zeros(d)
        covariance = values.T @ values / n - np.outer(mean, mean)
        self.rca_, self.component_ = None, Component("samples", names, mean, covariance)
        edges, ridge = as_edges(self.edges, names), self.alpha / n
        if self.method == "paper":
            return self._keep(edges, fit_taylor(self.component_, edges, ridge), "paper")
        model = self._sums(d, edges)
        seen = np.hstack([values, np.ones((n, 1))]) if self.fields else values
        i, j = model.edges.T
        return self._keep(edges, fit_pair_moments(model, np.mean(seen[:, i] * seen[:, j], axis=0), ridge), "likelihood")

    def _check_parameters(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, got {self.method!r}")
        if not isinstance(self.fields, (bool, np.bool_)):
            raise ValueError(f"fields must be True or False, got {self.fields!r}")
        if self.fields and self.method == "paper":
            raise ValueError(
                "the paper's Ising model has no fields: use method='auto' or 'likelihood', or fields=False"
            )
        number = isinstance(self.alpha, (int, float, np.number)) and not isinstance(self.alpha, bool)
        if not number or not np.isfinite(self.alpha) or self.alpha < 0:
            raise ValueError(f"alpha must be a finite number, zero or more, got {self.alpha!r}")

    def _check_spins(self, component: Component, rca: ComponentAnalysis | None) -> None:
        """Spins have E[s^2] = 1 (Var(s) = 1, if their mean is zero and what is seen of it is not theirs)."""
        variance = np.diag(component.covariance)
        second = np.stack([variance, variance + component.mean**2])
        second = np.where(np.abs(second[0] - 1) < np.abs(second[1] - 1), second[0], second[1])
        noise = _NOISE * np.sqrt(2 / _rows_behind(component, rca)) * np.maximum(second, 1.0)
        columns = np.array(component.feature_names, dtype=object)

        def named(wrong: Array) -> str:
            shown = ", ".join(f"{columns[i]} ({second[i]:.3g})" for i in np.flatnonzero(wrong)[:5])
            return shown + (f" and {int(wrong.sum()) - 5} more" if wrong.sum() > 5 else "")

        remedy = (
            "Put the columns in units of spins (-1 and 1: 2 X - 1 for 0 and 1), and check that V sees what U shares"
        )
        impossible = (second > 2 + noise) | (second < 0.5 - noise)
        if impossible.any():
            raise DataError(
                f"{component.name} does not consist of spins: the mean square of a spin is 1, here it is {named(impossible)}. "
                f"{remedy}"
            )
        doubtful = np.abs(second - 1) > 0.2 + noise
        if doubtful.any():
            warn_user(
                f"{component.name} may not consist of spins: the mean square of a spin is 1, here it is {named(doubtful)}; "
                f"couplings are computed as if it were 1. {remedy}",
                SpecificationWarning,
            )

    def _warn_of_means(self, component: Component) -> None:
        if self.fields and np.abs(component.mean).max() > _LARGEST_MEAN:
            worst = int(np.abs(component.mean).argmax())
            warn_user(
                f"the mean of {component.feature_names[worst]} in {component.name} is {component.mean[worst]:.3g}, and "
                "spins lie within -1 and 1: the rule for the means fails, or the columns are not in units of spins. Give one "
                'known mean, rca=ContrastiveRCA(mean={"S2": ...}), or use fields=False',
                SpecificationWarning,
            )

    def _sums(self, d: int, edges: IntArray) -> Any:
        """Sums over the states of the graph, the ghost that carries the fields included."""
        if self.fields:
            return moment_model(d + 1, with_ghost(d, edges), seed=self.random_state)
        return moment_model(d, edges, seed=self.random_state)

    def _learn(self, component: Component, data: Data | None) -> None:
        edges = as_edges(self.edges, component.feature_names)
        if (
            self.rca_ is not None or not component.terms.is_observed
        ):  # samples may stand in for spins: the simple methods do so
            self._check_spins(component, self.rca_)
        self._warn_of_means(component)
        self._keep(edges, *self._fitted(component, self.rca_, edges))

    def _fitted(
        self, component: Component, rca: ComponentAnalysis | None, edges: IntArray, start: Array | None = None
    ) -> tuple[Array, str]:
        """Parameters (couplings, then fields), and the method.

        start : parameters close by, for refits.
        """
        ridge = self.alpha / _rows_behind(component, rca)
        if self.method == "paper":
            return fit_taylor(component, edges, ridge), "paper"
        known = SpinMoments.of(component, self.fields)
        model = self._sums(len(known.mean), edges)
        i, j = model.edges.T
        moments = known.with_ghost[i, j]
        view = None
        if self.method == "auto" and 0 < len(model.edges) <= NEWTON_EDGES:
            view = _canonical_moments(rca, component, self.component) or whitened_moments(component)
        if view is None:
            return fit_pair_moments(model, moments, ridge), "likelihood"
        if start is None:
            start = fit_pair_moments(model, moments, max(3 * ridge, 0.03))
        if isinstance(model, Elimination):
            model = moment_model(model.n_nodes, model.edges, seed=self.random_state, max_width=_JOINT_WIDTH)
        mean = view[0] @ component.mean if self.fields else None
        rng = np.random.default_rng(self.random_state)
        return fit_joint(model, *view, start, ridge, mean=mean, rng=rng), "joint"

    def _keep(self, edges: IntArray, theta: Array, method: str) -> Self:
        d, m = len(self.component_.mean), len(edges)
        self.coef_, self.edges_, self.method_ = theta[:m], edges, method
        self.fields_ = theta[m:] if self.fields else np.zeros(d)
        self.couplings_ = coupling_matrix(d, edges, self.coef_)
        self.feature_names_ = tuple(map(str, self.component_.feature_names))
        return self

    def title(self) -> str:
        """What was learned, in a line."""
        how = {
            "joint": "fitted to all second moments in canonical coordinates",
            "likelihood": "maximum likelihood from pair moments",
            "paper": "composite likelihood, Taylor gradient of order four",
        }[self.method_]
        return f"Ising model of {self.component_.name}: {len(self.couplings_)} spins, {len(self.edges_)} edges; {how}"

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """Couplings, then fields (if any), with errors where they need no refits (see :meth:`confidence_interval`)."""
        theta = self._parameters()
        error, degrees = self._quick_errors(theta) or (np.full_like(theta, np.nan), 1)
        return Estimate(theta, error, degrees, self._parameter_names(names))

    def confidence_interval(self, level: float = 0.95, *, progress: bool = False) -> Estimate:
        """Couplings, then fields (if any), with standard errors and intervals by blocks.

        For couplings of S1 that come from second moments (method "auto" or "likelihood", the efficient RCA, A unknown): one
        Newton step per left-out block for Cov(S1), one for the couplings, plus what shrinkage may have moved. Else the RCA
        and the couplings are refitted without each block, which takes long for many columns.
        """
        rca, theta, names = self._need_rca(), self._parameters(), self._parameter_names(None)
        quick = self._quick_errors(theta)
        if quick is not None:
            return Estimate(theta, *quick, names, level=level)

        def function(model: ComponentAnalysis) -> Array:
            if model is rca:
                return theta
            return self._fitted(self._component_of(model), model, self.edges_, theta)[0]

        return replace(rca.jackknife(function, progress=progress), names=names, level=level)

    def _parameters(self) -> Array:
        return np.concatenate([self.coef_, self.fields_]) if self.fields else self.coef_

    def _parameter_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        own = tuple(in_line(name) for name in (self.feature_names_ if names is None else names))
        couplings = tuple(f"{own[i]} -- {own[j]}" for i, j in self.edges_.tolist())
        return couplings + (tuple(f"field of {name}" for name in own) if self.fields else ())

    def _quick_errors(self, theta: Array) -> tuple[Array, int] | None:
        """Standard errors of the parameters and their degrees of freedom, where no refits are needed."""
        if self.rca_ is None or self.method_ not in ("joint", "likelihood") or not len(theta):
            return None
        rca = self._need_rca()
        error = rca.functional_error(self.component, self._change(rca, theta), of_mean=bool(self.fields))
        return None if error is None else (error[0], error[1] - 1)

    def _change(self, rca: ComponentAnalysis, theta: Array) -> Callable[[Array, Array], Array]:
        """Changes of (Cov(S1), mean) -> changes of the parameters, to first order."""
        component, ridge = self.component_, self.alpha / _rows_behind(self.component_, rca)
        model = self._sums(len(component.mean), self.edges_)
        rng = np.random.default_rng(self.random_state)
        i, j = model.edges.T

        def joint(covariances: Array, means: Array) -> Array:
            view = _canonical_moments(rca, component, self.component)
            assert view is not None
            W, _, weights = view
            return joint_change(model, W, weights, theta, ridge, covariances, means, fields=self.fields, rng=rng)

        def moments(covariance: Array, mean: Array) -> Array:
            moved = Component(component.name, component.feature_names, mean, covariance)
            return np.asarray(SpinMoments.of(moved, self.fields).with_ghost[i, j])

        def pairs(covariances: Array, means: Array) -> Array:
            C, m, step = component.covariance, component.mean, 1e-3
            ends = [
                (moments(C + step * dC, m + step * dm) - moments(C - step * dC, m - step * dm)) / (2 * step)
                for dC, dm in zip(covariances, means, strict=True)
            ]
            return pair_change(model, theta, ridge, np.stack(ends), rng=rng)

        return joint if self.method_ == "joint" else pairs

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the couplings as a heat map (matplotlib); returns the Axes."""
        own = self._names(names)
        title = f"Couplings of the Ising model of {self.component_.name}"
        return heat_map(self.couplings_, own, own, title=title, label="coupling", ax=ax)

    def _lines(self) -> list[str]:
        lines = [self.title()]
        if len(self.edges_):
            lines.append(f"  couplings: root mean square {np.sqrt(np.mean(self.coef_**2)):.3f}; the strongest:")
        for e in np.argsort(-np.abs(self.coef_))[:10]:
            i, j = self.edges_[e]
            lines.append(
                f"  {self.coef_[e]:+.3f}  {in_line(self.feature_names_[i])} -- {in_line(self.feature_names_[j])}"
            )
        if self.fields:
            lines.append("  fields, from means that are known by the RCA's rule only; the strongest:")
            for i in np.argsort(-np.abs(self.fields_))[:5]:
                lines.append(f"  {self.fields_[i]:+.3f}  {in_line(self.feature_names_[i])}")
        return lines


def _rows_behind(component: Component, rca: ComponentAnalysis | None) -> int:
    if component.source is not None:
        return max(1, component.source.n)
    return _ROWS_IF_UNKNOWN if rca is None else max(1, int(rca.independent_rows_))


def _canonical_moments(
    rca: ComponentAnalysis | None, component: Component, name: object
) -> tuple[Array, Array, Array] | None:
    """W (k, d), the component's covariance in white coordinates of its view (k, k), and the weights of its entries (k, k).

    Cov(S1) = h (I - T) h on the shared coordinates and I elsewhere. Outside the shared block it is known from second
    moments alone; inside, as well as T is. None where the RCA has no such coordinates.
    """
    view = None if rca is None else rca.canonical_weights(name, _UNTRUSTED_WEIGHT)
    if view is None:
        return None
    W, weights = view
    return W, W @ component.covariance @ W.T, weights
