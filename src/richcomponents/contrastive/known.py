"""T when the mixing matrix A is known."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.identify import Identified, lower_end

PRIOR_SD = 0.5
"""Prior standard deviation of the entries of T around 0, the lower end."""

DRAWS = 80


def project(t: Array) -> Array:
    """Nearest matrices with eigenvalues in [0, 1]: (..., r, r)."""
    values, vectors = np.linalg.eigh(t)
    return np.asarray((vectors * np.clip(values, 0.0, 1.0)[..., None, :]) @ vectors.swapaxes(-1, -2))


def identify_known(canonical: Canonical, rank: int, mixing: Array, random_state: int | None = 0) -> Identified:
    """T from S A_c' = D, with ``mixing`` A (d_v, d_u) known and A_c the same map in canonical coordinates.

    In terms of T the equation is linear: h T h A_c' = D - D^2 A_c'.  Its entries carry sampling noise of
    variance 1/n (covariances of whitened variables).  Where A is nearly singular that noise would be
    amplified without bound, so T has a normal prior around the lower end 0: ridge regression on the
    r (r + 1)/2 entries of T, whose posterior also says how sure we are; draws are projected on 0 <= T <= I.
    """
    r, n = rank, canonical.n
    if r == 0:
        return lower_end(canonical, 0, 1, "nothing shared")
    d = canonical.correlations[:r]
    h = np.sqrt(1 - d**2)
    inner = canonical.y_from_v @ mixing @ canonical.u_from_x[:, :r]  # A_c, (rank_v, r)
    target = np.zeros((r, len(inner)))
    target[:, :r] = np.diag(d)
    target = target - (d**2)[:, None] * inner.T
    rows, cols = np.tril_indices(r)
    basis = np.zeros((len(rows), r, r))
    index = np.arange(len(rows))
    basis[index, rows, cols] = 1.0
    basis[index, cols, rows] = 1.0
    design = ((h[:, None] * basis * h) @ inner.T).reshape(len(rows), -1)  # (m, r rank_v)
    prior = np.where(rows == cols, 1.0, 2.0) / PRIOR_SD**2
    precision = n * design @ design.T + np.diag(prior)
    values, vectors = np.linalg.eigh(precision)
    point = vectors @ ((vectors.T @ (n * design @ target.reshape(-1))) / values)
    noise = np.random.default_rng(random_state).normal(size=(DRAWS, len(rows)))
    draws = point + (noise / np.sqrt(values)) @ vectors.T
    t_draws = project(np.tensordot(np.vstack([point, draws]), basis, 1))
    return Identified(
        canonical, r, t_draws[0], t_draws, np.full(len(t_draws), 1 / len(t_draws)), np.zeros((1, r, r)),
        0.0, np.zeros(0), np.zeros(2), np.zeros(2), float("nan"), float("nan"), 1.0,
        "known mixing",
    )  # fmt: skip
