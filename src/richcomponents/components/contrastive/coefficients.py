"""Coefficients of y = beta'S1 + noise, from least squares on both views.

Least squares of the outcome on (x, y_1..y_r) ("residualising") estimates, in the shared coordinates,

    h b = G (h beta) + error,     G = I - T,     Var(error) = noise * I:

it shrinks the truth by G.  The correction multiplies h b by a matrix M close to G^-1.  Plugging in an
estimate of T would overshoot without bound where T is near 1, so M minimises the expected squared error
over the posterior of T and over a random beta of the observed size,

    M(lambda) = sym( E[G] (E[G^2] + lambda I)^-1 ),     lambda = noise / (mean square of h beta).

The change delta = beta(M) - beta(I) is then shrunk by what is known about it (see ``trust``), for THIS outcome, with
variances from leaving out blocks and from the posterior draws, all in the metric of Cov(U) (so that units do
not matter).  Without evidence the result is residualising, never less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.contrastive.canonical import Canonical
from richcomponents.components.contrastive.identify import Identified
from richcomponents.components.contrastive.trust import trust_in_change

MAX_T = 0.9
"""No direction is stretched more than 1/(1 - MAX_T) times."""

INFORMATION_FLOOR = 10.0
"""n odds(D) at which a direction's T gets half its weight."""


@dataclass(frozen=True)
class Residualised:
    """Least squares of an outcome on (x_1..x_k, y_1..y_r).

    ``b`` (rank_u,): coefficients of x.  ``noise``: sampling variance of every entry of h b.
    """

    b: Array
    noise: float


@dataclass(frozen=True)
class Coefficients:
    """``beta`` (d_u,) with the correction, ``residualised`` (d_u,) without; ``trust`` in [0, 1].

    ``stretch`` (r, r) is the matrix applied to the shared part of h b, trust included.
    """

    beta: Array
    residualised: Array
    trust: float
    stretch: Array

    @property
    def t_effective(self) -> Array:
        """The T (r, r) with I - T = stretch^-1, for penalised fits on h (I - T) h^-1 (x - D y)."""
        return np.eye(len(self.stretch)) - np.linalg.inv(self.stretch)


def residualise(canonical: Canonical, rank: int, cov_u: Array, cov_v: Array, variance: float) -> Residualised:
    """Residualised coefficients from Cov(U, outcome) (d_u,), Cov(V, outcome) (d_v,) and Var(outcome).

    The normal equations are 2 x 2 per shared direction: b = (Cov(x, .) - D Cov(y, .)) / (1 - D^2).
    """
    d = canonical.correlations[:rank]
    from_x = canonical.x_from_u @ cov_u
    from_y = canonical.y_from_v[:rank] @ cov_v
    b = from_x.copy()
    b[:rank] = (from_x[:rank] - d * from_y) / (1 - d**2)
    b_y = (from_y - d * from_x[:rank]) / (1 - d**2)
    left = max(variance - float(from_x @ b + from_y @ b_y), 1e-12 * variance)
    return Residualised(b, left / max(canonical.n - len(b) - rank - 1, 1))


def guard_weights(canonical: Canonical, rank: int) -> Array:
    """Square roots (r,) of the weights that T gets in each shared direction.

    With odds(D) = D^2/(1 - D^2), the weight of direction i is

        max(0, 1 - 2 odds(D_{r+1}) / odds(D_i))  *  odds(D_i) / (odds(D_i) + 10/n).

    The first factor (1 at full rank) distrusts directions no stronger than the leftover correlation.  The
    second: rows [T | Delta] hardly depend on T once T >> Delta, so that n Delta^2 measures what the data
    can say about T in that direction; with little of it, T is mostly prior and should stretch nothing.
    """
    odds = canonical.correlations**2 / (1 - canonical.correlations**2)
    own = np.maximum(odds[:rank], 1e-300)
    weights = own / (own + INFORMATION_FLOOR / canonical.n)
    if rank < len(odds):
        weights = weights * np.maximum(0.0, 1 - 2 * odds[rank] / own)
    return np.asarray(np.sqrt(weights))


def stretch_matrix(mean_g: Array, mean_g2: Array, ridge: float, guard: Array) -> Array:
    """M = sym(E[G] (E[G^2] + ridge I)^-1) (..., r, r); T = I - M^-1 is clipped to [0, MAX_T] and guarded."""
    identity = np.eye(len(guard))
    raw = mean_g @ np.linalg.inv(mean_g2 + ridge * identity)
    values, vectors = np.linalg.eigh((raw + raw.swapaxes(-1, -2)) / 2)
    shares = np.clip(1 - 1 / np.maximum(values, 1e-9), 0.0, MAX_T)
    t = (vectors * shares[..., None, :]) @ vectors.swapaxes(-1, -2)
    return np.asarray(np.linalg.inv(identity - guard[:, None] * t * guard))


def coefficients(identified: Identified, fit: Residualised) -> Coefficients:
    """Correct residualised coefficients for the part of S1 that residualising removes."""
    r, canonical = identified.rank, identified.canonical
    residualised = canonical.x_from_u.T @ fit.b
    if identified.gate == 0 or r == 0:
        return Coefficients(residualised, residualised, 0.0, np.eye(r))
    h = identified.h
    hb = h * fit.b[:r]
    mean_g, mean_g2 = identified.mean_g, identified.mean_g2
    size = max(float(hb @ hb) - r * fit.noise, 1e-3 * r * fit.noise) / float(np.trace(mean_g2))
    ridge = fit.noise / size
    guard = guard_weights(canonical, r)
    stretch = stretch_matrix(mean_g, mean_g2, ridge, guard)
    change = (stretch @ hb - hb) / h  # delta in the metric of Cov(U)

    spread = mean_g2 - mean_g @ mean_g
    identity = np.eye(r)

    def variants(g: Array) -> Array:
        """Shared coefficients (m, r) had E[G] been g (m, r, r)."""
        return np.asarray(stretch_matrix(g, g @ g + spread, ridge, guard) @ hb / h)

    trust = trust_in_change(identified, change, variants)
    stretch = (1 - trust) * identity + trust * stretch
    b = fit.b.copy()
    b[:r] = stretch @ hb / h
    return Coefficients(canonical.x_from_u.T @ b, residualised, trust, stretch)
