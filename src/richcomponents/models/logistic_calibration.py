"""What regression calibration reads off a fitted ContrastiveRCA: the residual, Cov(S1) at the trusted T, standard errors."""

from __future__ import annotations

import numpy as np
from scipy.special import logit

from richcomponents.algebra import Array
from richcomponents.components.covariance import Factored, Spread
from richcomponents.contrastive.coefficients import Coefficients
from richcomponents.contrastive.intervals import coefficient_error, replicate
from richcomponents.cumulants.jackknife import jackknife_error
from richcomponents.learning.logistic import ATTENUATION, LogisticFit, attenuation
from richcomponents.models.contrastive import ContrastiveRCA

__all__ = ["covariance_at", "positive", "rows_agree", "standard_errors"]


def positive(covariance: Array) -> Array:
    """The nearest positive semi-definite matrix, eigenvalues at least 2% of the largest."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.02 * max(float(values[-1]), 1e-300))) @ vectors.T)


def covariance_at(model: ContrastiveRCA, fit: Coefficients) -> Spread:
    """Cov(S1) with the T that the outcome's own trust allows: Cov(U) - lift (D^2 + h T h) lift'."""
    found, r, whole = model._canonical, model.rank_, model._solution.cov_u
    assert found is not None
    d = found.correlations[:r]
    h = np.sqrt(1 - d**2)
    lift, shared = found.u_from_x[:, :r], np.diag(d**2) + h[:, None] * fit.t_effective * h
    return whole.plus(lift.T, -shared) if isinstance(whole, Factored) else whole - lift @ shared @ lift.T


def standard_errors(model: ContrastiveRCA, plain: Array, low: LogisticFit, fit: Coefficients | None, b: Array) -> Array:
    """Standard errors (d,): one Newton step per left-out block of the logistic regression and of T, and what the
    shrinkage may have moved, as for least squares.

    plain : R (n, d); low : logistic regression on R; fit : its correction; b : (blocks, d), the coefficients on R without
    each block. theta = c Cov(S1)^-1 Cov(R) b: the error of least squares for an outcome whose covariance with R is
    Cov(R) c b.
    """
    if fit is None or model._canonical is None:
        inverse = np.linalg.pinv(positive(model.components_["S1"].covariance), hermitian=True)
        return jackknife_error(b @ (plain.T @ plain / model._free_rows(len(plain))) @ inverse)
    shared, found, r = model._shared, model._canonical, model.rank_
    t, reading = fit.t_effective, model._reading(model._inverse_of_residual())

    def corrected(b: Array) -> tuple[Array, Array]:
        """Coefficients after stretching (m, d) and the attenuation factors (m,)."""
        hg = (b @ reading.lift) @ reading.half @ fit.stretch.T
        return reading.stretched(b, fit.stretch), attenuation(np.einsum("mi,ij,mj->m", hg, t - t @ t, hg))

    stretched, factors = corrected(b)
    evident = r > 0 and shared is not None and shared.identified.gate > 0 and not shared.leading
    evident = evident and not model._solution.reduced
    if evident and model.A is None:
        evidence = replicate(model._interval_evidence()[0])
        zero = np.zeros((r, r))
        here = float(corrected(low.coef[None])[1][0]) * (evidence.basis.cov_s1(zero) @ low.coef)
        there = factors[:, None] * np.einsum("bij,bj->bi", evidence.bases.cov_s1(zero), b)
        d_v = found.y_from_v.shape[1]
        return coefficient_error(evidence, here, np.zeros(d_v), there, np.zeros((len(b), d_v)))
    return jackknife_error(stretched * factors[:, None])


def rows_agree(features: Array, y: Array, fit: LogisticFit, unsaid: float, a: float, theta: Array) -> bool:
    """Whether (a, theta), averaged over what the features (n, d) do not say of theta'S1 (its variance `unsaid`), explains the
    rows as well as the logistic regression on them did: no more than one unit of log-likelihood below it.

    The refinement knows theta'S1 by its variance and fourth cumulant only. For laws that these do not describe (skewed ones)
    it can be far off, and the rows tell.
    """
    fitted = logit(np.clip(fit.probability, 1e-15, 1 - 1e-15))
    beside = fitted - fit.intercept - features @ fit.coef  # of known covariates
    averaged = beside + (a + features @ theta) / np.sqrt(1 + ATTENUATION * max(unsaid, 0.0))
    losses = [np.sum(np.logaddexp(0.0, eta) - y * eta) for eta in (fitted, averaged)]
    return bool(losses[1] - losses[0] <= 1.0)
