"""Couplings by mini-batches of rows, and the path they take (paper, Section 5: batches of 100 samples)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.learning.ising.composite import Neighbourhoods, composite_likelihood
from richcomponents.learning.ising.fits import MAX_COUPLING
from richcomponents.learning.ising.graph import neighbours
from richcomponents.learning.sgd import SGDResult, robbins_monro, sgd

__all__ = ["sgd_from_predictions", "sgd_from_spins"]

_ROWS_AT_ONCE = 10_000


def sgd_from_spins(
    S: Array,
    edges: IntArray,
    ridge: float,
    *,
    fields: bool = False,
    expanded: bool = False,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """Steps along the exact gradient of the composite likelihood of true spins S (n, d); expanded : the paper's gradient."""
    if expanded:
        near = Neighbourhoods(S.shape[1], edges, fields=fields)
        return sgd_from_predictions(
            S,
            near,
            near.of_rows(S).mean(0),
            ridge,
            expanded=True,
            batch_size=batch_size,
            n_steps=n_steps,
            random_state=random_state,
        )

    def gradient(theta: Array, rows: IntArray) -> Array:
        return composite_likelihood(S[rows], edges, theta)[1] + ridge * theta

    return _run(gradient, len(S), S.shape[1], edges, ridge, fields, batch_size, n_steps, random_state)


def sgd_from_predictions(
    rows: Array,
    near: Neighbourhoods,
    moments: Array,
    ridge: float,
    *,
    expanded: bool = False,
    batch_size: int = 100,
    n_steps: int = 1000,
    random_state: int = 0,
) -> SGDResult:
    """The same for hidden spins: rows (n, d) predict them, moments (F,) are those extracted from all rows.

    The gradient is linear in the moments of products of spins. A batch estimates them by the products of its predictions,
    moved by one constant vector so that the mean over all batches is the extracted moments: unbiased for these, and with
    far less noise than cumulants of 100 rows. expanded : the paper's Taylor gradient, else the exact one.
    """
    n = len(rows)
    parts = range(0, n, _ROWS_AT_ONCE)
    shift = moments - np.sum([near.of_rows(rows[i : i + _ROWS_AT_ONCE]).sum(0) for i in parts], axis=0) / n

    def gradient(theta: Array, chosen: IntArray) -> Array:
        seen = near.of_rows(rows[chosen]).mean(0) + shift
        return near.loss(theta, seen, near.laws(seen, positive=False), expanded=expanded)[1] + ridge * theta

    return _run(gradient, n, near.n_nodes, near.edges, ridge, near.fields, batch_size, n_steps, random_state)


def _run(
    gradient: Callable[[Array, IntArray], Array],
    n_rows: int,
    n_nodes: int,
    edges: IntArray,
    ridge: float,
    fields: bool,
    batch_size: int,
    n_steps: int,
    random_state: int,
) -> SGDResult:
    """Curvature: node i adds at most E[x x'], x its neighbours (and 1), of trace deg_i (+ 1); an edge has two nodes."""
    degree = max((len(n) for n in neighbours(n_nodes, edges)), default=0) + fields
    p = len(edges) + fields * n_nodes
    return sgd(
        gradient,
        np.zeros(p),
        n_rows,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, degree + ridge) if degree else 0.1,
        projection=lambda theta: np.clip(theta, -MAX_COUPLING, MAX_COUPLING),
        random_state=random_state,
    )
