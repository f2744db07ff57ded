"""Principal directions of a component."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.linalg import subspace_angles
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.wide import top_directions
from richcomponents.cumulants.estimate import Estimate
from richcomponents.models.base import AloneLearner
from richcomponents.models.estimator import under_labels, used_rows
from richcomponents.moments.data import Data
from richcomponents.plots import loading_plot


def subspace_distance(one: Array, two: Array) -> float:
    """Sine of the largest angle between the row spaces of two (k, d) matrices: safe against signs and rotations.

    >>> subspace_distance(np.array([[1.0, 0.0]]), np.array([[-2.0, 0.0]]))
    0.0
    """
    one, two = np.atleast_2d(one), np.atleast_2d(two)
    if one.shape != two.shape:
        raise ValueError(f"the subspaces have different sizes: {one.shape} and {two.shape}")
    return float(np.sin(subspace_angles(one.T, two.T)[0]))


@dataclass(eq=False, repr=False)
class ComponentPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AloneLearner):  # type: ignore[misc]
    """Eigenvectors of the extracted covariance of a component, which nobody has seen a sample of.

    The directions of S1 (of a ContrastiveRCA) start at those of residualising, and leave them for those of the corrected
    covariance only as far as the change stands above its own uncertainty: a covariance that is better on average can have a
    worse leading direction. That S1 is alike in all other directions corrects it too, as far as a test does not reject it.

    Parameters
    ----------
    n_components : int or None
        How many directions; None for all.
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted on X; its errors="auto" is taken as "free" for the view of the component.
    component : "S1", "S2" or "S3", or a subset of views of an RCA

    Attributes
    ----------
    components_ : array (k, d)
        Unit vectors; the entry of largest size is positive.
    explained_variance_ : array (k,)
        Of the component along each direction, by its extracted covariance; decreasing.
    explained_variance_ratio_ : array (k,)
        Of the component's total variance.
    trust_ : float
        Share of the component's own covariance in what the directions were read from: 0 (simple methods alone) to 1 (as always
        for other components and in fit_component).
    shares_ : dict
        Both shares: "residualised" and "corrected", which is trust_.
    mean_ : array (d,)
    rca_, component_

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, S1="pca", S2="skewed", random_state=0)
    >>> pca = ComponentPCA(rca=ContrastiveRCA(views=10)).fit(data.X)
    >>> subspace_distance(pca.components_, data.direction[None]) < 0.2
    True
    """

    n_components: int | None = 1
    rca: Any = None
    component: str = "S1"

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments. y is ignored."""
        self._add_block(X)
        self._learn(self.component_)
        return self

    def unfitted_rca(self) -> Any:
        """A clone of the RCA that was given; with errors="auto" columns of the component's own view are not tested for
        uncorrelated own parts: principal directions would be the columns themselves. Where the test fails to see the one
        strong direction that somebody asks for (2 of 1 200 draws), that direction is given to the shared part."""
        model = super().unfitted_rca()
        errors = {"S1": ("free", "auto"), "S3": ("auto", "free")}.get(str(self.component), "free")
        return model.set_params(errors=errors) if getattr(model, "errors", None) == "auto" else model

    def _learn(self, component: Component, data: Data | None = None) -> None:
        d = len(component.mean)
        k = d if self.n_components is None else self.n_components
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= d:
            raise ValueError(f"n_components must be None or an integer from 1 to {d}, got {self.n_components!r}")
        k, covariance, share = int(k), component.spread, 1.0
        if self.rca_ is not None:
            solution, key = self.rca_.fitted_.solved_for(self.component)
            covariance, share = solution.covariance_for_directions(key, k)
        self.trust_, self.shares_ = share, {"residualised": 1 - share, "corrected": share}
        vectors = top_directions(covariance, k)[1]
        values = np.sum(vectors.T * (component.spread @ vectors.T), axis=0)
        order = np.argsort(-values, kind="stable")
        vectors, values = vectors[order], values[order]
        largest = vectors[np.arange(k), np.argmax(np.abs(vectors), axis=1)]
        self.components_ = vectors * np.where(largest < 0, -1.0, 1.0)[:, None]
        self.explained_variance_ = values
        total = float(component.spread.trace())
        self.explained_variance_ratio_ = values / total if total > 0 else np.zeros_like(values)
        self.mean_ = np.array(component.mean)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: object) -> Any:
        """Scores of the best linear prediction of the component, (n, k).

        Predictions are shrunk: the variance of these scores is smaller than explained_variance_.
        """
        model = self._need_rca()
        scores = (model.predict_component(X, self.component) - self.mean_) @ self.components_.T
        return under_labels(self, scores, None if isinstance(X, Iterator) else used_rows(model, X).samples)

    def confidence_interval(  # type: ignore[override]
        self, what: str = "components", level: float = 0.95, *, progress: bool = False
    ) -> Estimate:
        """Block-jackknife intervals for "components" or "explained_variance", A refitted each time.

        Each replicate's directions are rotated to be nearest to the estimate (signs, order and close eigenvalues). They are
        those of Cov(S1) without the shrinkage towards residualising, whose bias no block shows; the limits reach from
        `components_` over theirs.
        """
        if what not in ("components", "explained_variance"):
            raise ValueError(f"what must be 'components' or 'explained_variance', got {what!r}")
        of_directions = what == "components"

        def function(model: Any) -> Array:
            C = model.components_[model.fitted_.key(self.component)].spread
            if not of_directions:
                return np.asarray(np.sum(self.components_.T * (C @ self.components_.T), axis=0))
            vectors = top_directions(C, len(self.components_))[1]
            left, _, right = np.linalg.svd(self.components_ @ vectors.T)
            return np.asarray(left @ right @ vectors)

        one = self._need_rca().jackknife(function, progress=progress)
        point, columns = (self.components_, self._names(None)) if of_directions else (self.explained_variance_, ())
        return replace(one, value=point, centre=one.value, level=level, names=self._directions(), columns=columns)

    def _directions(self) -> tuple[str, ...]:
        return tuple(f"direction {i + 1}" for i in range(len(self.components_)))

    def title(self) -> str:
        """What was learned, in a line."""
        shares = ", ".join(f"{share:.0%}" for share in self.explained_variance_ratio_[:10])
        return f"Principal directions of {self.component_.name} (share of its variance: {shares})"

    def notes(self) -> tuple[str, ...]:
        """What the directions were read from, if not from the component's own covariance."""
        shares = ", ".join(f"{share:.0%} {name}" for name, share in self.shares_.items() if share >= 0.005)
        says = (
            f"read from covariances of {self.component_.name}: {shares} (as far as each stands above its uncertainty)"
        )
        return (says,) if self.trust_ < 1 else ()

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """The loadings (d, k), one column per direction; their errors need refits, see :meth:`confidence_interval`."""
        value = self.components_.T
        return Estimate(value, np.full_like(value, np.nan), 1, self._names(names), self._directions())

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the loadings of the directions (matplotlib); returns the Axes."""
        return loading_plot(self._names(names), self.components_, self._directions(), title=self.title(), ax=ax)
