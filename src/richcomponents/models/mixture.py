"""ComponentGaussianMixture: a spherical Gaussian mixture for one component, from its cumulants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate, jackknife_error
from richcomponents.errors import DataError
from richcomponents.learning.mixture import (
    Mixture,
    MixtureCumulants,
    choose_components,
    fit_mixture,
    posterior,
    replicates,
)
from richcomponents.models.base import AloneLearner
from richcomponents.moments.data import Data
from richcomponents.notebook import Summary
from richcomponents.paper.moments import alternating_minimisation
from richcomponents.plots import heat_map
from richcomponents.text import in_line

_SHOWN = 20  # columns up to which summary() computes standard errors


@dataclass(eq=False, repr=False)
class ComponentGaussianMixture(AloneLearner):
    """A component as a mixture of k <= d spherical Gaussians: S = c_j + sigma N(0, I) with probability w_j.

    Learned from the component's covariance and its cumulants of order three and four; no sample of it is seen.

    Parameters
    ----------
    n_components : int or "auto"
        k, at most the number d of columns of the component. "auto": the smallest k whose cross-validated distance to the
        cumulants of held-out blocks of samples is within one standard error of the best (`criterion_`).
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted to X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
    method : {"auto", "paper"}
        "auto": decomposition of the lifted third-order tensor, then matching of the cumulants of orders two to four.
        "paper": alternating minimisation on the third-order moment (Ge and Zou, Section 5). It needs the mean, which
        is known by a convention only, independent means, and is much less accurate.
    equal_weights : bool
        Whether all w_j = 1/k is known.
    n_init : int
        Random starts of the tensor decomposition. "paper" stops at the first whose residual shows that no component is
        lost, and tries up to ten times as many (then a SpecificationWarning).
    random_state : int or None

    Attributes
    ----------
    means_ : array (k, d)
        Centred at the component's mean: weights_ @ means_ = component_.mean. Cumulants tell the means up to one common
        shift; the rule of the RCA (by default the shared part has mean zero) fixes it.
    weights_ : array (k,)
        Decreasing; the order of components has no other meaning.
    sigma2_ : float
        Variance of each component in every direction.
    n_components_ : int
    criterion_ : dict or None
        Candidate k -> cross-validated distance, for n_components="auto".
    objective_ : float
        What is left of the distance to the cumulants (for "paper": of the third-order moment).

    Examples
    --------
    >>> import numpy as np
    >>> from richcomponents import ContrastiveRCA
    >>> rng = np.random.default_rng(0)
    >>> centres = np.array([[3.0, 0.0], [-3.0, 1.0]])
    >>> s1 = centres[rng.integers(2, size=4000)] + 0.5 * rng.normal(size=(4000, 2))
    >>> s2 = 0.6 * (rng.exponential(size=(4000, 2)) - 1)
    >>> X = np.hstack([s1 + s2, s2 + 0.3 * rng.uniform(-1, 1, (4000, 2))])
    >>> model = ComponentGaussianMixture(2, rca=ContrastiveRCA(views=2), equal_weights=True).fit(X)
    >>> np.round(model.means_[np.argsort(model.means_[:, 0])]).astype(int).tolist()
    [[-3, 1], [3, 0]]
    """

    n_components: int | str = "auto"
    rca: Any = None
    component: str = "S1"
    method: str = "auto"
    equal_weights: bool = False
    n_init: int = 10
    random_state: int | None = 0

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments. y : ignored."""
        self._check_parameters()
        data = self._add_block(X)[0]
        self._learn(self.component_, data)
        return self

    def _check_parameters(self) -> None:
        k = self.n_components
        if k != "auto" and (isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1):
            raise ValueError(f"n_components must be 'auto' or a positive integer, got {k!r}")
        if self.method not in ("auto", "paper"):
            raise ValueError(f"method must be 'auto' or 'paper', got {self.method!r}")
        self._check_counts("n_init")

    def _learn(self, component: Component, data: Data | None) -> None:
        d = len(component.mean)
        if self.n_components != "auto" and int(self.n_components) > d:
            raise DataError(
                f"n_components={self.n_components}, but {component.name} has {d} dimensions: third-order cumulants determine "
                f"at most as many components as dimensions. Use n_components <= {d}, or add columns to the view"
            )
        rng = np.random.default_rng(self.random_state)
        self.criterion_: dict[int, float] | None = None
        if self.n_components == "auto":
            k, self.criterion_ = choose_components(
                component, rng, equal_weights=self.equal_weights, n_init=min(self.n_init, 5)
            )
        else:
            k = int(self.n_components)
        target = MixtureCumulants.of(component)
        if self.method == "paper":
            found: Mixture = alternating_minimisation(
                target, component.mean, k, rng, equal_weights=self.equal_weights, n_init=self.n_init
            )
        else:
            found = fit_mixture(target, k, rng, equal_weights=self.equal_weights, n_init=self.n_init)
        self.n_components_ = k
        self.means_ = found.means + component.mean
        self.weights_, self.sigma2_, self.objective_ = found.weights, found.sigma2, found.objective
        self._known_replicates: Array | None = None
        self._score_covariance = None if data is None else self.rca_.prediction_covariance(data, self.component)

    # ---- how sure

    def _replicates(self) -> Array:
        """Means, weights and sigma2 without each block, (B, k d + k + 1), once asked for; B = 0 if there are no blocks."""
        if self._known_replicates is None:
            full = Mixture(self.means_ - self.component_.mean, self.weights_, self.sigma2_)
            usable = self.method == "auto" and self.n_components_ > 1
            found = replicates(self.component_, full, equal_weights=self.equal_weights) if usable else []
            rows = [np.concatenate([m.means.ravel(), m.weights, [m.sigma2]]) for m in found]
            self._known_replicates = np.stack(rows) if rows else np.zeros((0, 0))
        return self._known_replicates

    def confidence_interval(self, level: float = 0.95) -> Estimate:
        """Means, weights (unless known) and sigma2, with block-jackknife standard errors and intervals.

        Each block of the samples behind the component is left out, the moments matched again from the full fit, and the
        components matched to its labels. Means count about the component's mean, which is known by the RCA's rule only. A is
        held at its estimate, and so is the covariance of a component that no cross-covariance tells from others (of three or
        more views of an RCA): where the shared part is known badly, errors are larger than these.
        """
        left_out = self._replicates()
        if not len(left_out):
            raise ValueError(
                f"no standard errors: they need method='auto', two or more components, and blocks of samples behind "
                f"{self.component_.name} (n_blocks of the RCA)"
            )
        k, columns = self.n_components_, self.component_.feature_names
        names = [f"mean {j + 1}: {name}" for j in range(k) for name in columns]
        names += [*(f"weight {j + 1}" for j in range(k)), "sigma2"]
        estimate = np.concatenate([self.means_.ravel(), self.weights_, [self.sigma2_]])
        known = range(self.means_.size, self.means_.size + k) if self.equal_weights else ()
        kept = [i for i in range(len(names)) if i not in known]
        error = jackknife_error(left_out)[kept]
        return Estimate(estimate[kept], error, len(left_out) - 1, tuple(names[i] for i in kept), level=level)

    # ---- samples of the component itself

    def predict_proba_clean(self, S: object) -> Array:
        """P(component j | s) for samples (n, d) of the component itself, not of U; shape (n, k)."""
        return posterior(self._samples(S), self.means_, self.weights_, self.sigma2_ * np.eye(self.means_.shape[1]))

    def predict_clean(self, S: object) -> IntArray:
        """The most likely component, 0..k-1, of samples (n, d) of the component itself."""
        return np.asarray(self.predict_proba_clean(S).argmax(axis=1))

    # ---- rows of the views

    def predict_proba(self, X: object) -> Array:
        """P(component j | row) for rows of the views, from the best linear prediction b of the component; shape (n, k).

        b = P s + noise with P = Cov(b) Cov(S)^-1, so b has the mean P c_j in component j and there the covariance
        Cov(b) - P B P', B the covariance between the c_j: linear discriminant analysis, in second moments.
        """
        model = self._need_rca()
        scores = model.predict_component(X, self.component)
        assert self._score_covariance is not None
        mean = self.component_.mean
        P = self._score_covariance @ np.linalg.pinv(self.component_.covariance, hermitian=True)
        centred = (self.means_ - mean) @ P.T
        within = self._score_covariance - (self.weights_ * centred.T) @ centred
        values, vectors = np.linalg.eigh((within + within.T) / 2)
        floor = 1e-3 * max(float(np.trace(self._score_covariance)) / len(mean), np.finfo(float).tiny)
        within = (vectors * np.maximum(values, floor)) @ vectors.T
        return posterior(scores - mean, centred, self.weights_, within)

    def predict(self, X: object) -> IntArray:
        """The most likely component, 0..k-1, of each row of the views; see :meth:`predict_proba`."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def title(self) -> str:
        """What was learned, in a line."""
        k = self.n_components_
        chosen = "" if self.criterion_ is None else ", chosen by cross-validation over blocks"
        return (
            f"Mixture of {k} spherical Gaussian{'s' if k > 1 else ''} for {self.component_.name} "
            f"({len(self.component_.mean)} dimensions{chosen}), standard deviation {np.sqrt(self.sigma2_):.4g}"
        )

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """The means (d, k), one column per Gaussian, with errors as in :meth:`confidence_interval` (up to 20 columns)."""
        columns = tuple(f"mean {j + 1} (weight {weight:.2f})" for j, weight in enumerate(self.weights_))
        error = self._errors()
        of_means = np.full_like(self.means_, np.nan) if error is None else error[: self.means_.size]
        degrees = max(len(self._replicates()) - 1, 1) if error is not None else 1
        return Estimate(self.means_.T, of_means.reshape(self.means_.shape).T, degrees, self._names(names), columns)

    def _errors(self) -> Array | None:
        """Standard errors of means, weights and sigma2, where they take no time or were asked for."""
        if self._known_replicates is None and self.means_.shape[1] > _SHOWN:
            return None
        left_out = self._replicates()
        return jackknife_error(left_out) if len(left_out) else None

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the means, about the mean of the component, as a heat map (matplotlib); returns the Axes."""
        means, title = (self.means_ - self.component_.mean).T, f"Means of the mixture of {self.component_.name}"
        columns = [f"{i + 1}: weight {weight:.2f}" for i, weight in enumerate(self.weights_)]
        return heat_map(means, self._names(names), columns, title=title, label="mean", ax=ax)

    def summary(self) -> Summary:
        """Weights and means, as text."""
        names = [in_line(name) for name in self.component_.feature_names]
        lines = [
            self.title(),
            f"means are centred at the mean of {self.component_.name}, which is known by the RCA's rule only",
            "",
        ]
        width = max(9, *(len(name) for name in names)) if names else 9
        shown, error = names[:12], self._errors()
        lines.append("weight  " + " ".join(f"{name:>{width}}" for name in shown) + (" ..." if len(names) > 12 else ""))
        for j, (weight, mean) in enumerate(zip(self.weights_, self.means_, strict=True)):
            lines.append(f"{weight:6.3f}  " + " ".join(f"{value:>{width}.3f}" for value in mean[: len(shown)]))
            if error is not None:
                of_means = error[j * len(names) :][: len(shown)]
                cells = " ".join(f"{f'({value:.3f})':>{width}}" for value in of_means)
                lines.append(f"({error[self.means_.size + j]:.3f}) {cells}")
        if error is not None:
            lines.append("standard errors in parentheses, by leaving out blocks of samples, A held at its estimate")
        return self._summary(lines, self.by_column())
