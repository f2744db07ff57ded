"""Latent Dirichlet allocation from moments of word counts (Anandkumar, Foster, Hsu, Kakade, Liu 2012; paper, Section 4.1).

A document has topic proportions h ~ Dirichlet(alpha), alpha_0 = sum alpha, and words drawn independently given h, word w with
probability (mu'h)_w, mu (k, d) the topics. Its counts c (d,) are sums of one-hot vectors. Moments of DIFFERENT words of a
document are factorial moments of the counts,

    E[c c'] - diag E[c],     E[c (x) c (x) c] - (the three diagonals of E[c c']) + 2 diag E[c],

up to the numbers of pairs and triples of words, which are their sums over all entries where lengths do not depend on topics: so
they are divided by these, and lengths may differ. With M1, P, Q of one, two and three words,

    M2 = P - alpha_0 / (alpha_0 + 1) M1 M1'                                                       = sum_j w_j mu_j mu_j'
    M3 = (alpha_0 + 2) / 2 [Q - alpha_0 / (alpha_0 + 2) (P (x) M1, three ways)
                            + 2 alpha_0^2 / ((alpha_0 + 1)(alpha_0 + 2)) M1^(x3)]                 = sum_j w_j mu_j^(x3)

with w_j = alpha_j / (alpha_0 (alpha_0 + 1)): independent vectors, the moments of `tensors`. Q is only ever formed in the k
directions of M2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, symmetrise
from richcomponents.components import Component
from richcomponents.errors import DataError
from richcomponents.learning.tensors import latent_classes

_NONE = np.sqrt(
    np.finfo(float).eps
)  # pairs and triples of words in this share of those allowed by lengths are rounding


@dataclass(frozen=True)
class Topics:
    """words : (k, d), mu, rows sum to one; concentrations : (k,), alpha, decreasing."""

    words: Array
    concentrations: Array


def fit_topics(
    component: Component, k: int, concentration: float, rng: np.random.Generator, n_init: int = 10
) -> Topics:
    """k topics of a component that counts words; concentration : alpha_0."""
    d = len(component.mean)
    if not 1 <= k <= d:
        raise DataError(f"{k} topics of {d} words: moments determine at most as many topics as words. Use fewer topics")
    counts, a0 = component.mean, concentration
    if counts.sum() <= 0:
        raise DataError(
            f"the mean of {component.name} adds up to {counts.sum():.3g}: word counts have a positive mean. Give the mean of "
            "the component that is known (mean= of the RCA)"
        )
    raw = component.covariance + np.outer(counts, counts)  # E[c c']
    pairs = raw - np.diag(counts)
    n_pairs, one = float(pairs.sum()), counts / counts.sum()
    if n_pairs <= _NONE * counts.sum() ** 2:
        raise DataError(
            f"{component.name} has no two words in a document (sum of E[cc'] - diag E[c]: {n_pairs:.3g}): topics need three"
        )
    P = pairs / n_pairs
    M2 = P - a0 / (a0 + 1) * np.outer(one, one)

    def triples(W: Array) -> Array:
        """E[c (x) c (x) c] of three different words, in W (d, r)."""
        k3 = component.mapped(W).cumulant(3)
        m, C = counts @ W, W.T @ component.covariance @ W
        twice = np.einsum("wa,wb,wc->abc", W, W, raw @ W)  # diag in two slots of E[c c'], three ways
        once = np.einsum("w,wa,wb,wc->abc", counts, W, W, W) * 2 + np.einsum("a,b,c->abc", m, m, m)
        return np.asarray(k3 + once + 3 * symmetrise(np.multiply.outer(C, m) - twice))

    n_triples = float(triples(np.ones((d, 1)))[0, 0, 0])
    if n_triples <= _NONE * counts.sum() ** 3:
        raise DataError(f"{component.name} has no three words in a document: topics need three")

    def third(W: Array) -> Array:
        m = one @ W
        inner = triples(W) / n_triples - 3 * a0 / (a0 + 2) * symmetrise(np.multiply.outer(W.T @ P @ W, m))
        inner = inner + 2 * a0**2 / ((a0 + 1) * (a0 + 2)) * np.einsum("a,b,c->abc", m, m, m)
        return np.asarray((a0 + 2) / 2 * inner)

    classes = latent_classes(M2, third, k, rng, centred=False, n_init=n_init)[0]
    words = np.maximum(classes.vectors * np.sign(classes.vectors.sum(axis=1, keepdims=True)), 0.0)
    words = words / np.maximum(words.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    weights = classes.weights / classes.weights.sum()
    order = np.argsort(-weights, kind="stable")
    return Topics(words[order], a0 * weights[order])
