"""Latent classes of a component, from its moments: spherical Gaussian mixtures, hidden Markov models, topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import power, symmetric
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.errors import DataError
from richcomponents.learning.latent import ChainMoments, fit_chain, fit_topics, residual_of
from richcomponents.learning.mixture import (
    Mixture,
    MixtureCumulants,
    choose_components,
    draws_of,
    fit_mixture,
    match_centres,
    posterior,
    protect,
)
from richcomponents.models.base import AloneLearner
from richcomponents.moments.data import Data
from richcomponents.paper.moments import alternating_minimisation
from richcomponents.plots import heat_map


class _LatentLearner(AloneLearner):
    """Tables and pictures of vectors (k, d) that belong to latent classes."""

    n_init: int
    random_state: int | None

    def _classes(self) -> tuple[Array, tuple[str, ...]]:
        """(k, d) what was learned of each class, and what the classes are called."""
        raise NotImplementedError

    def _in_order(self, order: IntArray) -> list[tuple[str, Array]]:
        """All that was learned, (k,) or (k, d), and what an entry is, with the classes in this order (k,)."""
        raise NotImplementedError

    def _parameters(self, like: Self) -> dict[str, Array]:
        columns, out = self._columns(None), dict[str, Array]()
        for what, values in self._in_order(match_centres(self._classes()[0], like._classes()[0])[0]):
            to = columns if what != "transition" else [f"to {j + 1}" for j in range(len(values))]
            for j, row in enumerate(values, 1):
                of = (
                    {f"{what} {j}": row}
                    if row.ndim == 0
                    else zip((f"{what} {j}: {name}" for name in to), row, strict=True)
                )
                out.update(of)
        return out

    def _columns(self, names: Sequence[str] | None) -> tuple[str, ...]:
        return self._names(names)

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """What was learned of each class, (d, k), with errors where there are any."""
        (vectors, classes), error = self._classes(), self._error
        known = np.full(vectors.size, np.nan) if error is None else error[0][: vectors.size]  # classes come first
        degrees = 1 if error is None else error[1]
        return Estimate(vectors.T, known.reshape(vectors.shape).T, degrees, self._columns(names), classes)

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw what was learned of each class as a heat map (matplotlib). Returns the Axes."""
        vectors, classes = self._classes()
        return heat_map(vectors.T, self._columns(names), list(classes), title=self.title(), label="", ax=ax)


@dataclass(eq=False, repr=False)
class ComponentGaussianMixture(_LatentLearner):
    """A component as a mixture of k <= d spherical Gaussians: S = c_j + sigma N(0, I) with probability w_j.

    Learned from the component's covariance and its cumulants of order three and four; no sample of it is seen.

    Standard errors are those of one Newton step of the matched moments without each block; of a component of two views also for
    every draw of what is shared, and what was held back counts. Means count about the component's mean, which follows from the
    RCA's rule only. Of a component alone, and of three or more views, A is held at its estimate: where the shared part is
    hardly identified, errors are larger than these.

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
        is a convention only, independent means, and is much less accurate.
    equal_weights : bool
        Whether all w_j = 1/k is given.
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
        d, wanted = len(component.mean), self.n_components
        if wanted != "auto" and int(wanted) > d:
            raise DataError(
                f"n_components={wanted}, but {component.name} has {d} dimensions: third-order cumulants determine "
                f"at most as many components as dimensions. Use n_components <= {d}, or add columns to the view"
            )
        rng, equal = np.random.default_rng(self.random_state), self.equal_weights
        k: int | None = None if wanted == "auto" else int(wanted)
        self.criterion_: dict[int, float] | None = None
        if k is None:
            k, self.criterion_ = choose_components(component, rng, equal_weights=equal, n_init=min(self.n_init, 5))
        target, blocks = MixtureCumulants.of(component), [] if component.source is None else component.source.blocks
        moved = self.method == "auto" and k > 1 and len(blocks) > 1
        draws = None
        if moved and self.rca_ is not None:
            draws = self.rca_.fitted_.moment_draws(self.component, of_mean=False)
        if draws is not None:
            target = replace(target, covariance=draws[1].value)
        fit: Callable[[MixtureCumulants], Mixture] = partial(
            fit_mixture, k=k, rng=rng, equal_weights=equal, n_init=self.n_init
        )
        if self.method == "paper":
            mean = component.mean
            mixture = alternating_minimisation(target, mean, k, rng, equal_weights=equal, n_init=self.n_init)
        else:
            mixture = fit(target)
        self._error = None
        if moved:
            end = draws_of(component, mixture, None if draws is None else draws[1], equal_weights=equal)
            error = np.sqrt(end.over_blocks())
            if draws is not None:
                simple = fit(MixtureCumulants.of(residual_of(component)))
                mixture, error = protect(component, simple, mixture, end, draws, equal_weights=equal)
            given = slice(mixture.means.size, -1) if equal else slice(0)  # weights
            self._error = np.delete(error, given), len(end.blocks) - 1
        self.n_components_, self.means_ = k, mixture.means + component.mean
        self.weights_, self.sigma2_, self.objective_ = mixture.weights, mixture.sigma2, mixture.objective
        self._score_covariance = None if data is None else self.rca_.fitted_.prediction_covariance(data, self.component)

    def _in_order(self, order: IntArray) -> list[tuple[str, Array]]:
        weights = [] if self.equal_weights else [("weight", self.weights_[order])]
        return [("mean", self.means_[order]), *weights]

    def _parameters(self, like: Self) -> dict[str, Array]:
        return super()._parameters(like) | {"sigma2": np.asarray(self.sigma2_)}

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
        floor = 1e-3 * float(np.trace(self._score_covariance)) / len(mean)
        within = power(symmetric(within), 1.0, max(floor, np.finfo(float).tiny))
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

    def _classes(self) -> tuple[Array, tuple[str, ...]]:
        return self.means_, tuple(f"{j + 1}: weight {weight:.2f}" for j, weight in enumerate(self.weights_))

    def notes(self) -> tuple[str, ...]:
        """That the level of the means is a convention."""
        return (f"means are centred at the mean of {self.component_.name}, which follows from the RCA's rule only",)


@dataclass(eq=False, repr=False)
class ComponentHMM(_LatentLearner):
    """A hidden Markov model whose observations are hidden in a component: states, their means, and transitions.

    THE LAYOUT of the data: a row is a window of three consecutive observations, side by side: the d columns of x_t, the same d
    columns of x_(t+1), then of x_(t+2), in this order, and the component has these 3 d columns (so the view has them, with
    whatever perturbs them). Windows of one sequence overlap or not; overlapping ones depend on each other, and `groups=` keeps
    a sequence in one block. The chain is taken to be stationary; noise of observations may have any law, and any covariance
    within a time, but must not go from one time to the next.

    Parameters
    ----------
    n_states : int
        k, from 2 to d + 1.
    rca, component, n_init, random_state : as in :class:`ComponentGaussianMixture`

    Attributes
    ----------
    means_ : array (k, d)
        Of the observations in each state; weights_ @ means_ is the component's mean over the three times, which the RCA knows
        by a rule only (by default the shared part has mean zero).
    weights_ : array (k,)
        The stationary law, decreasing; the order of states has no other meaning.
    transition_ : array (k, k)
        P(next state | state), rows sum to one.
    objective_ : float
        What is left of the distance to the moments.
    rca_, component_

    Examples
    --------
    >>> from richcomponents.learning.latent import stationary
    >>> rng = np.random.default_rng(0)
    >>> T = np.array([[0.8, 0.2], [0.3, 0.7]])
    >>> states = [rng.choice(2, p=stationary(T), size=20_000)]
    >>> for _ in range(2):
    ...     states.append((rng.uniform(size=20_000) < T[states[-1], 1]).astype(int))
    >>> means = np.array([[2.0, 0.0], [-1.0, 1.0]])
    >>> x = np.hstack([means[h] + rng.normal(size=(20_000, 2)) for h in states])
    >>> model = ComponentHMM(2).fit_component(Component.of_samples(x))
    >>> bool(np.abs(model.means_ - means).max() < 0.1), model.transition_.round(1).tolist()
    (True, [[0.8, 0.2], [0.3, 0.7]])
    """

    reads = 3
    on_rows = True
    n_states: int = 2
    rca: Any = None
    component: str = "S1"
    n_init: int = 10
    random_state: int | None = 0

    def _check_parameters(self) -> None:
        self._check_counts("n_states", "n_init")

    def _learn(self, component: Component, data: Data | None) -> None:
        rng = np.random.default_rng(self.random_state)
        chain = fit_chain(ChainMoments.of(component), int(self.n_states), rng, int(self.n_init))
        self.means_ = chain.means + component.mean.reshape(3, -1).mean(axis=0)
        self.weights_, self.transition_, self.objective_ = chain.weights, chain.transition, chain.left
        self._error = None

    def _columns(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Of one observation: those of the first."""
        return self._names(names)[: self.means_.shape[1]]

    def _in_order(self, order: IntArray) -> list[tuple[str, Array]]:
        steps = self.transition_[np.ix_(order, order)]
        return [("mean", self.means_[order]), ("weight", self.weights_[order]), ("transition", steps)]

    def _classes(self) -> tuple[Array, tuple[str, ...]]:
        return self.means_, tuple(f"state {j + 1} ({weight:.0%})" for j, weight in enumerate(self.weights_))

    def title(self) -> str:
        """What was learned, in a line."""
        stay = ", ".join(f"{p:.2f}" for p in np.diag(self.transition_))
        states = f"{len(self.weights_)} states for {self.component_.name}"
        return f"Hidden Markov model of {states}; chances to stay in a state {stay}"


@dataclass(eq=False, repr=False)
class ComponentLDA(_LatentLearner):
    """Topics (latent Dirichlet allocation) of word counts that are hidden in a component.

    THE LAYOUT of the data: a row is a document, a column a word, and the component holds how often each word occurs (sums of
    one-hot vectors). Documents need at least three words; their lengths may differ, but must not go with their topics. Counts
    themselves are needed, not shares, logarithms or anything centred: their mean enters, which the RCA knows by a rule only (by
    default the shared part has mean zero; ContrastiveRCA(mean=...) says otherwise).

    Parameters
    ----------
    n_topics : int
        k, at most the number of words.
    concentration : float
        alpha_0, the sum of the Dirichlet's parameters, which moments up to order three do not tell: near zero documents have
        one topic each, at k every mixture of k equal topics is as likely as any other.
    rca, component, n_init, random_state : as in :class:`ComponentGaussianMixture`

    Attributes
    ----------
    topics_ : array (k, d)
        The probability of each word in each topic; rows sum to one.
    concentrations_ : array (k,)
        alpha, decreasing; they add up to `concentration`.
    rca_, component_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> topics = np.array([[0.6, 0.3, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]])
    >>> shares = rng.dirichlet([0.6, 0.4], size=50_000)
    >>> counts = rng.multinomial(20, shares @ topics)
    >>> model = ComponentLDA(2, concentration=1.0).fit_component(Component.of_samples(counts))
    >>> (model.topics_.round(1) + 0).tolist(), model.concentrations_.round(1).tolist()
    ([[0.6, 0.3, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]], [0.6, 0.4])
    """

    reads = 3
    on_rows = True
    n_topics: int = 2
    concentration: float = 1.0
    rca: Any = None
    component: str = "S1"
    n_init: int = 10
    random_state: int | None = 0

    def _check_parameters(self) -> None:
        self._check_counts("n_topics", "n_init")
        if not (isinstance(self.concentration, (int, float, np.number)) and 0 < self.concentration < np.inf):
            raise ValueError(f"concentration must be a positive number, got {self.concentration!r}")

    def _learn(self, component: Component, data: Data | None) -> None:
        rng = np.random.default_rng(self.random_state)
        topics = fit_topics(component, int(self.n_topics), float(self.concentration), rng, int(self.n_init))
        self.topics_, self.concentrations_, self._error = topics.words, topics.concentrations, None

    def _in_order(self, order: IntArray) -> list[tuple[str, Array]]:
        return [("topic", self.topics_[order]), ("concentration", self.concentrations_[order])]

    def _classes(self) -> tuple[Array, tuple[str, ...]]:
        shares = self.concentrations_ / self.concentrations_.sum()
        return self.topics_, tuple(f"topic {j + 1} ({share:.0%})" for j, share in enumerate(shares))

    def title(self) -> str:
        """What was learned, in a line."""
        return f"{len(self.topics_)} topics of {self.component_.name}, concentration {self.concentration:g}"
