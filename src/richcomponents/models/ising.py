"""Couplings of an Ising model of a component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import whitening
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_matrix, column_names
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.inference.draws import Draws, shrink
from richcomponents.learning.ising import (
    NEWTON_EDGES,
    Target,
    as_edges,
    coupling_matrix,
    moment_model,
    second_moments,
    with_ghost,
)
from richcomponents.learning.latent import residual_of
from richcomponents.models.base import AloneLearner
from richcomponents.moments.data import Data
from richcomponents.paper.ising import fit_taylor
from richcomponents.plots import heat_map
from richcomponents.text import in_line

_METHODS = ("auto", "likelihood", "paper")


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
        the graph allows, else by Gibbs chains.
        "paper": composite likelihood with its gradient expanded as in Ge and Zou, of pair moments (s^2 = 1), less noisy than
        the fourth cumulants of :func:`richcomponents.paper.contrastive_ising`; biased for couplings above about 0.3, at
        any sample size, and without fields.
        "auto": the couplings whose E[s s'] fits all second moments in coordinates that whiten what is left of the view given
        the others, where their errors are even (S1, S3; up to 1500 edges; else "likelihood"). From true spins, "likelihood".

        Of a component of two views the couplings are protected: those of the residual of the view, and as much of the way to
        those of the component as stands above its noise.
    fields : bool
        Whether there are fields b_i. They are read off the means of the component, which follow from a rule only: by
        default the shared part has mean zero, so that all of the mean of U is S1's. If that is wrong, so are the fields
        (state one mean, ``rca=ContrastiveRCA(mean={"S2": ...})``). False: b = 0, and all odd moments are taken to be zero,
        whatever the means.
    alpha : float
        Ridge, as the precision of a Gaussian prior of each coupling and field: the penalty per sample is
        alpha |J|^2 / (2 n).
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
    random_state : int
        Of the Gibbs chains.

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
        mean = values.mean(0) if self.fields else np.zeros(len(names))
        self.rca_ = None
        self.component_ = Component("samples", names, mean, values.T @ values / len(values) - np.outer(mean, mean))
        edges, ridge = as_edges(self.edges, names), self.alpha / len(values)
        if self.method == "paper":
            return self._keep(edges, fit_taylor(self.component_, edges, ridge), "paper")
        return self._keep(edges, self._target(edges, ridge).fit(self._second(self.component_.covariance)), "likelihood")

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

    def _check_spins(self, component: Component, n: float) -> None:
        """Spins have E[s^2] = 1 (Var(s) = 1, if their mean is zero and what is seen of it is not theirs)."""
        mean, variance = component.mean, component.variance
        second = np.where(np.abs(variance - 1) < np.abs(variance + mean**2 - 1), variance, variance + mean**2)
        noise = 4 * np.sqrt(2 / n) * np.maximum(second, 1.0)  # four standard errors of a variance
        impossible = (second > 2 + noise) | (second < 0.5 - noise)
        wrong = np.flatnonzero(impossible if impossible.any() else np.abs(second - 1) > 0.2 + noise)
        if len(wrong):
            named = ", ".join(f"{component.feature_names[i]} ({second[i]:.3g})" for i in wrong[:5])
            says = (
                f"the mean square of a spin is 1, here it is {named}{f' and {len(wrong) - 5} more' * (len(wrong) > 5)}. Put "
                "the columns in units of spins (-1 and 1: 2 X - 1 for 0 and 1), and check that V sees what U shares"
            )
            if impossible.any():
                raise DataError(f"{component.name} does not consist of spins: {says}")
            warn_user(f"{component.name} may not consist of spins, and is scaled to them: {says}", SpecificationWarning)

    def _warn_of_means(self, component: Component) -> None:
        worst = int(np.abs(component.mean).argmax())
        if self.fields and abs(component.mean[worst]) > 1.1:  # noise included
            warn_user(
                f"the mean of {component.feature_names[worst]} in {component.name} is {component.mean[worst]:.3g}, and "
                "spins lie within -1 and 1: the rule for the means fails, or the columns are not in units of spins. State one "
                'mean, rca=ContrastiveRCA(mean={"S2": ...}), or use fields=False',
                SpecificationWarning,
            )

    def _target(self, edges: IntArray, ridge: float, white: Array | None = None) -> Target:
        """What is fitted on this graph, the ghost that carries the fields included."""
        d = len(self.component_.mean)
        if self.fields:
            d, edges = d + 1, with_ghost(d, edges)
            if white is not None:  # W s - W m times the ghost: about the means that were measured, errors are even, too
                centred = np.column_stack([white, -white @ self.component_.mean])
                white = np.vstack([centred, np.eye(d)[-1]])
        return Target(moment_model(d, edges, seed=self.random_state), white, ridge)

    def _second(self, covariance: Array, moved: Array | float = 0.0) -> Array:
        """E[s s'] at these covariances (..., d, d), the ghost included; moved : changes (..., d) of the mean."""
        return second_moments(covariance, self.component_.mean + moved if self.fields else None)

    def _learn(self, component: Component, data: Data | None) -> None:
        rca, n = self.rca_, float("inf")  # without end where moments are exact
        if component.source is not None or rca is not None:
            n = max(1.0, rca.independent_rows_ if component.source is None else component.source.n)
        if rca is not None or not component.terms.is_observed:  # else samples that stand in for spins
            self._check_spins(component, n)
        self._warn_of_means(component)
        edges, ridge = as_edges(self.edges, component.feature_names), self.alpha / n
        if self.method == "paper":
            self._keep(edges, fit_taylor(component, edges, ridge), "paper")
            return
        small = 0 < len(edges) <= NEWTON_EDGES
        draws = None if rca is None else rca.fitted_.moment_draws(self.component, of_mean=bool(self.fields))
        target = self._target(edges, ridge)
        if self.method == "auto" and component.terms.whole is not None and small:
            white = whitening(residual_of(component).covariance if draws is None else draws[0].value)[0]
            if len(white) == len(component.mean):  # else no coordinates have even errors
                target = self._target(edges, ridge, white)
        method = "likelihood" if target.white is None else "joint"
        if draws is None or not small:
            self._keep(edges, target.fit(self._second(component.covariance)), method)
            return
        safe, full, means, gate = draws
        theta = target.fit(self._second(full.value))
        jacobian = target.jacobian(theta)

        def couplings(fitted: Array, covariance: Draws) -> Draws:
            """To first order about the fit to the value of these covariances."""

            def near(covariances: Array, moved: Array | float = 0.0) -> Array:
                there = target.of_moments(self._second(covariances, moved))
                return fitted + target.step(jacobian, there - target.of_moments(self._second(covariance.value)))

            return Draws(fitted, near(covariance.blocks, means), near(covariance.posterior), covariance.weight)

        answer = shrink(couplings(target.fit(self._second(safe.value)), safe), couplings(theta, full), gate)
        self._keep(edges, answer.value, method, (answer.error, len(answer.blocks) - 1))

    def _keep(self, edges: IntArray, theta: Array, method: str, error: tuple[Array, int] | None = None) -> Self:
        d, m = len(self.component_.mean), len(edges)
        self.coef_, self.edges_, self.method_, self._error = theta[:m], edges, method, error
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

    def _parameters(self, like: Self | None = None, names: Sequence[str] | None = None) -> dict[str, Array]:
        own = tuple(map(in_line, self._names(names)))
        couplings = {f"{own[i]} -- {own[j]}": x for (i, j), x in zip(self.edges_.tolist(), self.coef_, strict=True)}
        return couplings | {f"field of {name}": x for name, x in zip(own, self.fields_, strict=True) if self.fields}

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """Couplings, then fields (if any), with errors where they need no refits (see :meth:`confidence_interval`)."""
        theta = self._parameters(names=names)
        error, degrees = self._error or (np.full(len(theta), np.nan), 1)
        return Estimate(np.array(list(theta.values())), error, degrees, tuple(theta))

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the couplings as a heat map (matplotlib); returns the Axes."""
        own = self._names(names)
        title = f"Couplings of the Ising model of {self.component_.name}"
        return heat_map(self.couplings_, own, own, title=title, label="coupling", ax=ax)

    def _lines(self) -> list[str]:
        lines, theta = [self.title()], self._parameters()
        if len(self.edges_):
            lines.append(f"  couplings: root mean square {np.sqrt(np.mean(self.coef_**2)):.3f}")
        if self.fields:
            lines.append("  fields follow from means that are known by the RCA's rule only")
        strongest = sorted(theta, key=lambda name: -abs(theta[name]))[:10]
        return [*lines, *(f"  {theta[name]:+.3f}  {name}" for name in strongest)]
