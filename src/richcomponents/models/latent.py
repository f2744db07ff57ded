"""Hidden Markov models and topics of a component, from its moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.learning.hmm import ChainMoments, fit_chain
from richcomponents.learning.lda import fit_topics
from richcomponents.learning.mixture import noise_scale
from richcomponents.models.base import AloneLearner
from richcomponents.moments.data import Data
from richcomponents.plots import heat_map
from richcomponents.text import in_line

_SHOWN = 12  # columns of a summary


class _LatentLearner(AloneLearner):
    """Tables and pictures of vectors (k, d) that belong to latent classes."""

    n_init: int
    random_state: int | None
    reads = 3
    on_rows = True

    def _vectors(self) -> tuple[Array, tuple[str, ...]]:
        """(k, d) what was learned of each class, and what the classes are called."""
        raise NotImplementedError

    def _columns(self, names: Sequence[str] | None) -> tuple[str, ...]:
        return self._names(names)

    def estimate(self, names: Sequence[str] | None = None) -> Estimate:
        """What was learned of each class, (d, k), without errors."""
        vectors, classes = self._vectors()
        return Estimate(vectors.T, np.full_like(vectors.T, np.nan), 1, self._columns(names), classes)

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw what was learned of each class as a heat map (matplotlib). Returns the Axes."""
        vectors, classes = self._vectors()
        return heat_map(vectors.T, self._columns(names), list(classes), title=self.title(), label="", ax=ax)

    def _lines(self) -> list[str]:
        vectors, classes = self._vectors()
        columns = [in_line(name) for name in self._columns(None)]
        lines = [self.title(), ""]
        for name, values in zip(classes, vectors, strict=True):
            order = np.argsort(-np.abs(values), kind="stable")[:_SHOWN]
            lines.append(f"{name}: " + ", ".join(f"{columns[i]} {values[i]:.3g}" for i in order))
        return lines if self.rca_ is None else [*lines, ""]


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
    rca : ContrastiveRCA or RCA, optional
        Cloned and fitted to X.
    component : "S1", "S2" or "S3", or a subset of views of an RCA
    n_init : int
        Random starts of the tensor decomposition.
    random_state : int or None

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
    >>> from richcomponents.learning.hmm import stationary
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

    n_states: int = 2
    rca: Any = None
    component: str = "S1"
    n_init: int = 10
    random_state: int | None = 0

    def _check_parameters(self) -> None:
        self._check_counts("n_states", "n_init")

    def _learn(self, component: Component, data: Data | None) -> None:
        moments = ChainMoments.of(component, noise_scale(component))
        found = fit_chain(moments, int(self.n_states), np.random.default_rng(self.random_state), int(self.n_init))
        self.means_ = found.means + component.mean.reshape(3, -1).mean(axis=0)
        self.weights_, self.transition_, self.objective_ = found.weights, found.transition, found.left

    def _columns(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Of one observation: those of the first."""
        return self._names(names)[: self.means_.shape[1]]

    def _vectors(self) -> tuple[Array, tuple[str, ...]]:
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
    rca, component, n_init, random_state : as in :class:`ComponentHMM`

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
        found = fit_topics(component, int(self.n_topics), float(self.concentration), rng, int(self.n_init))
        self.topics_, self.concentrations_ = found.words, found.concentrations

    def _vectors(self) -> tuple[Array, tuple[str, ...]]:
        shares = self.concentrations_ / self.concentrations_.sum()
        return self.topics_, tuple(f"topic {j + 1} ({share:.0%})" for j, share in enumerate(shares))

    def title(self) -> str:
        """What was learned, in a line."""
        return f"{len(self.topics_)} topics of {self.component_.name}, concentration {self.concentration:g}"
