"""Regression calibration of logistic coefficients: how far they may be corrected for what residualising removes."""

from __future__ import annotations

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.coefficients import (
    Coefficients,
    Reading,
    Residualised,
    metric_root,
    shared_part,
    stretch_matrix,
)
from richcomponents.contrastive.identify import Identified
from richcomponents.contrastive.trust import trust_in_change
from richcomponents.learning.logistic import attenuation

__all__ = ["correct"]


def correct(identified: Identified, coef: Array, noise: float, reading: Reading, beside: float) -> Coefficients:
    """How far logistic coefficients on R may be corrected for the part of S1 that residualising removes.

    coef : (d_u,), coefficients on R; noise : sampling variance of every entry of h b; reading : of the shared coordinates;
    beside : size of the coefficients outside them, in the metric of Cov(U). In the shared coordinates
    h b = G (h theta) / c, with G = I - T and c the attenuation factor, so

        theta(M) = c(M) h^-1 M h b,    M ~ G^-1,    c = attenuation((M h b)' T (I - T) (M h b)),    T = I - M^-1.

    M is the matrix of least squares (least expected squared error over the posterior of T), and the change
    delta = theta(M) - b is trusted by gate * max(0, 1 - doubt / |delta|^2), doubt being its variance over left-out
    blocks and over the posterior, attenuation included. The result with trust 0 is b itself.
    """
    r = identified.rank
    if identified.gate == 0 or r == 0:
        return Coefficients(coef, coef, 0.0, np.eye(r))
    identity = np.eye(r)
    mean_g, mean_g2 = identified.mean_g, identified.mean_g2
    hb, guard, ridge = shared_part(identified, Residualised(coef, noise), reading)
    metric = metric_root(identified, reading)

    def factor(hg: Array, stretch: Array) -> Array:
        t = identity - np.linalg.inv(stretch)
        return attenuation(np.einsum("...i,...ij,...j->...", hg, t - t @ t, hg))

    def theta(stretch: Array) -> Array:
        """Corrected coefficients for M (..., r, r), shared and size of the others, in the metric of Cov(U): (..., r + 1)."""
        hg = stretch @ hb
        full = np.concatenate([hg @ metric.T, np.full((*hg.shape[:-1], 1), beside)], axis=-1)
        return np.asarray(full * factor(hg, stretch)[..., None])

    stretch = stretch_matrix(mean_g, mean_g2, ridge, guard)
    change = theta(stretch) - np.append(metric @ hb, beside)
    spread = mean_g2 - mean_g @ mean_g

    def variants(g: Array) -> Array:
        return theta(stretch_matrix(g, g @ g + spread, ridge, guard))

    trust = trust_in_change(identified, change, variants)
    stretch = (1 - trust) * identity + trust * stretch
    return Coefficients(reading.stretched(coef, stretch) * float(factor(stretch @ hb, stretch)), coef, trust, stretch)
