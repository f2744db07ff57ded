"""Spherical mixtures and their cumulants.

S = c_j + sqrt(sigma2) N(0, I) with probability w_j, j = 1..k, has the mean m = sum_j w_j c_j and, with c_j - m for c_j,

    Cov = B + sigma2 I,    B = sum_j w_j c_j c_j',
    k3  = sum_j w_j c_j (x) c_j (x) c_j,
    k4  = sum_j w_j c_j^(x4) - (the three pairings of B (x) B).

The noise enters the covariance only. Cumulants do not know m; everything here is about the centred means, and the mean
is added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.terms import expand
from richcomponents.errors import CapacityError, DataError

__all__ = ["Mixture", "Target", "log_posterior", "match_centres", "mixture_cumulants", "pairings", "positive_part"]


@dataclass(frozen=True)
class Mixture:
    """means : (k, d), centred, that is weights @ means = 0; weights : (k,), decreasing; sigma2; objective : what is left of
    the moment-matching objective."""

    means: Array
    weights: Array
    sigma2: float
    objective: float = float("nan")

    @property
    def k(self) -> int:
        return len(self.weights)


@dataclass(frozen=True)
class Target:
    """The cumulants to match.

    covariance : (d, d), positive semi-definite; third : (d, d, d); fourth : (d, d, d, d) or None (not used);
    scale : (d, d), the covariance in whose units residuals count: that of the samples the cumulants were read from;
    n : number of those samples, inf for exact cumulants.
    """

    covariance: Array
    third: Array
    fourth: Array | None
    scale: Array
    n: float = float("inf")

    @classmethod
    def of(cls, component: Component) -> Target:
        """From a component; the fourth order is left out where it does not fit in memory or was not kept."""
        fourth: Array | None
        try:
            fourth = component.cumulant(4)
        except (CapacityError, DataError):
            fourth = None
        except ValueError:
            source = component.source
            if source is not None and source.max_order >= 4:
                raise
            fourth = None
        return cls(
            positive_part(component.covariance),
            component.cumulant(3),
            fourth,
            _scale(component),
            float("inf") if component.source is None else float(component.source.n),
        )

    @classmethod
    def of_samples(cls, samples: Array) -> Target:
        """From samples (n, d) of the mixture itself: the same learner on clean, raw or residualised data."""
        from richcomponents.cumulants import Cumulants
        from richcomponents.moments import Moments

        n, d = samples.shape
        found = Cumulants(Moments.of(samples, 4, n_blocks=1))
        columns = np.arange(d)
        covariance = found.tensor(columns, columns)
        return cls(covariance, found.tensor(*[columns] * 3), found.tensor(*[columns] * 4), covariance, float(n))

    @property
    def d(self) -> int:
        return len(self.covariance)


def positive_part(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _scale(component: Component) -> Array:
    """Covariance of the least noisy variable that the component's cumulants are read from: the residual of U on V for S1.

    It is the last slot of the first alternative. Its covariance is that of the component plus noise, so it tells which
    directions are estimated well; the component's own covariance would take its noise for signal.
    """
    own = positive_part(component.covariance)
    if component.source is None:
        return own
    _, slots = expand(component.terms.alternatives[0], 3)[0]
    slot = slots[-1]
    p = component.source.moments.layout.n_columns
    seen = component.source.moments.covariance(unbiased=False)[:p, :p]
    covariance = slot.T @ seen @ slot
    return np.asarray((covariance + covariance.T) / 2) if np.trace(covariance) > 0 else own


def mixture_cumulants(means: Array, weights: Array, sigma2: float) -> tuple[Array, Array, Array, Array]:
    """The exact cumulants of orders one to four of a spherical mixture; means : (k, d), not necessarily centred.

    >>> _, cov, third, _ = mixture_cumulants(np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]), 0.25)
    >>> cov.tolist(), third.tolist()
    ([[1.25]], [[[0.0]]])
    """
    d = means.shape[1]
    m = weights @ means
    c = means - m
    between = (weights * c.T) @ c
    return (
        np.asarray(m),
        between + sigma2 * np.eye(d),
        np.asarray(np.einsum("j,ja,jb,jc->abc", weights, c, c, c)),
        np.asarray(np.einsum("j,ja,jb,jc,je->abce", weights, c, c, c, c, optimize=True)) - pairings(between),
    )


def pairings(B: Array) -> Array:
    """B_ab B_cd + B_ac B_bd + B_ad B_bc, shape (d, d, d, d)."""
    outer = np.multiply.outer(B, B)
    return np.asarray(outer + outer.transpose(0, 2, 1, 3) + outer.transpose(0, 3, 2, 1))


def log_posterior(points: Array, means: Array, weights: Array, within: Array) -> tuple[Array, Array]:
    """log P(j | x) (n, k) and log density (n,) for points (n, d), components N(means_j, within), within : (d, d)."""
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    root = np.sqrt(np.maximum(values, 1e-9 * max(float(values[-1]), np.finfo(float).tiny)))
    white = vectors / root
    x, c = points @ white, means @ white
    squared = np.sum(x**2, axis=1)[:, None] - 2 * x @ c.T + np.sum(c**2, axis=1)
    joint = np.log(weights) - squared / 2 - np.log(root).sum() - len(root) * np.log(2 * np.pi) / 2
    density = logsumexp(joint, axis=1)
    return np.asarray(joint - density[:, None]), np.asarray(density)


def match_centres(found: Array, truth: Array) -> tuple[Array, float]:
    """The order of `found` (k, d) that comes nearest to `truth` (k, d), and the mean squared error in it.

    >>> order, error = match_centres(np.array([[2.0], [0.0]]), np.array([[0.0], [2.0]]))
    >>> order.tolist(), error
    ([1, 0], 0.0)
    """
    cost = np.mean((truth[:, None] - found[None]) ** 2, axis=2)
    rows, columns = linear_sum_assignment(cost)
    return np.asarray(columns), float(cost[rows, columns].mean())
