"""Coefficients of an outcome o on S1: an answer like every other.

Least squares of o on U and the shared part of V ("residualising": T = 0, the safe value) has, with m = h (b - gamma) on the
shared coordinates,

    h (b - gamma) = (I - T) h (beta - gamma) + noise,     so     beta = b + W h^-1 (M - I) m,     M = (I - T)^-1,

W h^-1 the way from shared coordinates to coefficients of U; gamma is what o has to do with S2 (`outcomes`). Where T is
uncertain the least expected squared error has

    M = G (E G^2 + lambda)^-1,     G = I - E T,     lambda = noise / mean square of h beta,

the size pooled over ALL coordinates of U: that of r shared ones alone would call a large noise a large signal. No coefficient
is stretched by more than 1 / LEAST. Draws of T go through the f without doubt, and with the smallest lambda that the outcome's
variance allows. Log-odds are attenuated besides, by c(m'(M - I) m). M lies between I and I / LEAST, so that the identified set
is b + (1 / LEAST - 1) times the range of l'T m.

A wide view is searched for shared directions in its principal components only, but its coefficients are those of least squares
on ALL its columns; with L the loadings of S2 in every column and Q = L'Cov(R)^-1 L, Q^-1/2 stands for h there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import symmetric
from richcomponents.components.component import LEAST_KEPT
from richcomponents.inference.draws import Draws, Shrunk, shrink
from richcomponents.inference.limits import range_of_products
from richcomponents.inference.posterior import Posterior
from richcomponents.pair.views import Pair, turned

__all__ = ["OnResidual", "Stretch", "coefficients"]

RIDGE = 4.0
"""Over n: added to squared canonical correlations before they are inverted."""


@dataclass(frozen=True, eq=False)
class OnResidual:
    """Coefficients b (..., d_u) on the residual of U on the shared part of V, of a sample or a stack of replicates; lift
    (..., d_u, r) : loadings of the shared coordinates; into (..., d_u, r) : W h^-1; half (..., r, r) : h; gamma (..., r)."""

    b: Array
    lift: Array
    into: Array
    half: Array
    gamma: Array

    @classmethod
    def at(cls, pair: Pair, b: Array, gamma: Array) -> OnResidual:
        """b in the user's columns."""
        found = pair.canonical
        into = found.x_from_u.T @ turned(np.linalg.solve(pair.h, pair.to_x))
        return cls(b, found.u_from_x @ pair.from_x, into, pair.h, gamma)

    @property
    def m(self) -> Array:
        """(..., r)."""
        own = turned(self.lift) @ self.b[..., None] - self.gamma[..., None]
        return np.asarray((self.half @ own)[..., 0])

    def without_shared(self, rows: Array, T: Array) -> Array:
        """R (n, d_u) -> the prediction of S1 at T: least squares on it gives coefficients stretched by (I - T)^-1."""
        weights = self.into @ self.half
        inner = np.linalg.inv(self.half) @ T.T @ self.half
        return np.asarray(rows - (rows @ weights @ inner) @ self.lift.T)


@dataclass(frozen=True, eq=False)
class Stretch:
    """noise : variance of an entry of m; size, most : mean square of h beta, as estimated, and as large as it can be;
    attenuation : of log-odds, m'(M - I) m -> the factor that coefficients lack."""

    noise: float
    size: float
    most: float
    attenuation: Callable[[Array], Array] | None = None

    @classmethod
    def of(
        cls,
        explained: float,
        noise: float,
        columns: int,
        variance: float,
        posterior: Posterior,
        attenuation: Callable[[Array], Array] | None,
    ) -> Stretch:
        """explained : b'Cov(R) b; columns : of U; variance : of the outcome."""
        T, r = posterior.T, posterior.T.value.shape[-1]
        G = np.eye(r) - T.posterior
        first, second = (float(np.trace(np.tensordot(T.weight, g, 1))) for g in (G, G @ G))
        noise = noise if np.isfinite(noise) else 0.0
        size = max(explained - columns * noise, 1e-3 * columns * noise, 1e-300) / max(columns - r + second, 1e-300)
        return cls(noise, size, max(variance / max(first, LEAST_KEPT), size), attenuation)

    def matrix(self, T: Array, doubt: Array) -> Array:
        """M (..., r, r)."""
        identity = np.eye(T.shape[-1])
        G, ridge = identity - T, self.noise / (self.size if doubt.any() else self.most)
        raw = G @ np.linalg.inv(G @ G + doubt + (ridge + 1e-12) * identity)
        values, vectors = np.linalg.eigh(symmetric(raw))
        return np.asarray((vectors * np.clip(values, 1.0, 1 / LEAST_KEPT)[..., None, :]) @ turned(vectors))

    def __call__(self, fit: OnResidual, T: Array, doubt: Array) -> Array:
        """beta (..., d_u)."""
        m = fit.m[..., None]
        more = self.matrix(T, doubt) @ m - m
        beta = fit.b + (fit.into @ more)[..., 0]
        return np.asarray(beta * self.factor(np.sum(m * more, (-1, -2)))[..., None])

    def factor(self, unseen: Array) -> Array:
        return np.ones_like(unseen) if self.attenuation is None else self.attenuation(np.maximum(unseen, 0.0))

    def ends(self, fit: OnResidual) -> tuple[Array, Array]:
        """The identified set (d_u,): over I <= M <= I / LEAST, and over the attenuation that goes with it."""
        most = 1 / LEAST_KEPT - 1
        low, high = (fit.b + most * end[..., 0] for end in range_of_products(fit.into, fit.m[..., None, :]))
        if self.attenuation is None:
            return low, high
        largest = float(self.factor(np.asarray(most * float(np.sum(fit.m**2)))))
        corners = np.stack([low, high, largest * low, largest * high])
        return corners.min(axis=0), corners.max(axis=0)


def coefficients(
    here: OnResidual, left_out: OnResidual, posterior: Posterior, stretch: Stretch, gate: float, white: Array
) -> Shrunk:
    """left_out : without each block; white (d_u, k) : coefficients times it have errors that count alike."""
    T, doubt = posterior.T, posterior.doubt
    full = Draws(
        stretch(here, T.value, doubt),
        stretch(left_out, T.blocks, doubt),
        stretch(here, T.posterior, np.zeros_like(doubt)),
        T.weight,
    )
    return shrink(Draws.certain(here.b, left_out.b), full, gate, lambda c: c @ white)
