"""Outcomes that depend on S1: coefficients, calibrated, and their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.calibration import Calibrated, error_at_fixed_features
from richcomponents.components.covariance import Factored, added
from richcomponents.contrastive.calibration import (
    Calibration,
    Reading,
    Residualised,
    calibrate,
    error_of_all_columns,
    inverse_factor,
    residualise,
    residualise_all_columns,
)
from richcomponents.contrastive.intervals import (
    coefficient_error,
    replicate,
)
from richcomponents.contrastive.parts import PairParts
from richcomponents.contrastive.two_views import Key
from richcomponents.cumulants.jackknife import jackknife_error
from richcomponents.errors import (
    DataError,
    SampleSizeWarning,
    warn_user,
)
from richcomponents.learning.logistic import LogisticFit, attenuation

__all__ = ["PairOutcomes"]

FEW_PER_COLUMN = 5  # samples per coefficient below which least squares is determined, but poor


@dataclass(frozen=True)
class PairOutcomes(PairParts):
    """What a learner of an outcome asks."""

    def residual(self, key: Key, rows: Array) -> Array:
        """R (n, d_u): what is left of every column of U after regression on the shared part of V."""
        self.require_own(key)
        u, v = self.split(rows)
        return np.asarray(u - (v @ self.pair.to_y.T * self.posterior.correlations) @ self.lift_u.T)

    @property
    def coefficients_wanted(self) -> int:
        """Coefficients of least squares on U and the shared part of V."""
        return int(np.sum(self.cov_u.diagonal() > 0)) + self.rank

    def determined(self, covariates: int) -> bool:
        """Whether there are more independent rows than coefficients, those of the covariates included."""
        rows = self.n if self.units is None else min(self.n, self.units)
        if rows <= self.coefficients_wanted + covariates:
            return False
        if not isinstance(self.cov_u, Factored) or not self.grouped:
            return True
        return bool(
            inverse_factor(self.cov_u.rows).shape[1] >= self.coefficients_wanted - self.rank
        )  # copies say nothing

    def check_determined(self, covariates: int) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        n, wanted = self.canonical.n, self.coefficients_wanted
        if not self.determined(covariates):
            few = self.units is not None and self.units < self.n
            counted = f"{self.units} independent samples" if few else f"{self.n} samples"
            raise DataError(
                f"{counted} do not determine the {wanted + covariates} coefficients of least squares on all columns "
                f"of view {self.views[0]!r} ({self.d_u}), the {self.rank} shared directions and {covariates} "
                'covariates: use a penalty chosen by cross-validation, ComponentRegression(alpha="cv"), or fewer columns'
            )
        if self.reduced and n < FEW_PER_COLUMN * wanted:
            warn_user(
                f"{n:.0f} samples for {wanted} coefficients, fewer than {FEW_PER_COLUMN} each: least squares on all columns "
                'is determined, but its errors are large. A penalty (alpha="cv") may serve better',
                SampleSizeWarning,
            )

    @property
    def degrees(self) -> float:
        """Independent rows less coefficients: what is left to estimate the noise of least squares on all columns."""
        return self.canonical.n - self.coefficients_wanted - 1

    def _inverse_of_residual(self, covariates: int) -> Array | None:
        """G (d_u, k) with G G' = Cov(R)^-1 over all columns of a wide U, R its residual on the shared part of V.

        None where the canonical coordinates are all of U, or where there are too few samples.
        """
        whole = self.cov_u
        return inverse_factor(whole.rows) if isinstance(whole, Factored) and self.determined(covariates) else None

    def _reading(self, inverse: Array | None) -> Reading:
        """How the shared coordinates are read off U."""
        if inverse is None:
            return Reading.canonical(self.canonical, self.rank, self.lift_u)
        return Reading.of_all_columns(inverse, self.lift_u)

    def calibrate(
        self,
        key: Key,
        rows: Array,
        y: Array,
        weight: Array,
        free: float,
        covariates: int,
        log_odds: LogisticFit | None = None,
    ) -> Calibrated:
        """Coefficients of y on S1, all columns of U included.

        rows (n, d_u + d_v), y (n,) : centred; weight (n,) : how often each row counts; free : their number less what covariates
        took; log_odds : logistic regression on :meth:`residual`, to be calibrated instead of least squares.

        Where least squares is not determined (fewer samples than columns of U) it is the regression on the principal components
        that were searched: a guide for penalised fits, no result.
        """
        inverse = self._inverse_of_residual(covariates)
        reading = self._reading(inverse)
        if log_odds is None:
            fit = self._least_squares(rows, y * weight, float((y * weight) @ y) / free, free, inverse)
            solved = calibrate(self.canonical, self.posterior, fit, reading)
        else:
            columns = self.canonical.rank_u if inverse is None else inverse.shape[1]
            noise = 1 / (max(log_odds.information, 1e-12) * max(self.canonical.n - columns - 1, 1))
            fit = Residualised(log_odds.coef, noise)
            rest = fit.coef - reading.weights @ (reading.lift.T @ fit.coef)
            beside = float(np.sqrt(max(float(rest @ (self.cov_u @ rest)), 0.0)))
            solved = calibrate(self.canonical, self.posterior, fit, reading, beside=beside, attenuation=attenuation)
        t = solved.t_effective
        return Calibrated(
            coef=solved.coef,
            residualised=fit.coef,
            trust=solved.trust,
            features=reading.without_shared(self.residual(key, rows), t),
            outcome=y,
            covariance=added(self.cov_u, self.pair.from_x, -self.pair.shared(t)),
            determined=self.determined(covariates),
            reduced=self.reduced,
            wanted=self.coefficients_wanted + covariates,
            free=free,
            by=(solved, fit, reading, inverse),
        )

    def _least_squares(
        self, rows: Array, counted: Array, variance: float, free: float, inverse: Array | None
    ) -> Residualised:
        u, v = self.split(rows)
        with_u, with_v = u.T @ counted / free, v.T @ counted / free
        if inverse is None:
            return residualise(self.canonical, self.rank, with_u, with_v, variance)
        with_y = self.pair.to_y @ with_v
        D = self.posterior.correlations
        return residualise_all_columns(inverse, self.lift_u, D, with_u, with_y, variance, self.degrees)

    def errors(
        self, calibrated: Calibrated, rows: Array, keep: Array, *, grouped: bool, replicates: Array | None = None
    ) -> tuple[Array, float]:
        """Standard errors (d_u,) of calibrated coefficients and their degrees of freedom: one Newton step per left-out block,
        and what the shrinkage may have moved.

        keep : (B, n), the rows without each block; replicates : (B, d_u), of log-odds: those on the residual without each
        block. theta = c Cov(S1)^-1 Cov(R) b: the error of least squares for an outcome whose covariance with R is Cov(R) c b.

        On all columns of a wide view there are too few samples to leave some out: those of the textbook instead, which take
        samples for independent. With groups they are not, and there is no honest error.
        """
        solved, fit, reading, inverse = calibrated.by
        degrees = max(len(keep) - 1, 1)
        if replicates is not None:
            return self._error_of_log_odds(solved, reading, replicates), degrees
        if inverse is not None:
            error = error_of_all_columns(self.canonical, self.posterior, fit, reading, inverse, solved)
            return (np.full_like(error, np.nan) if grouped else error), max(round(self.degrees), 1)
        y = calibrated.outcome
        if not self.evident or self.truncated:  # residualising (or a known A): its own sampling error
            return error_at_fixed_features(rows[:, : self.d_u] - self.predict_s2(rows), y, keep), degrees
        of_blocks = np.empty((len(keep), rows.shape[1]))
        for i, kept in enumerate(keep):
            target = y[kept] - y[kept].mean()
            of_blocks[i] = (rows[kept] - rows[kept].mean(axis=0)).T @ target / (kept.sum() * calibrated.free / len(y))
        here = self.split(rows.T @ y / calibrated.free)
        return coefficient_error(replicate(self.block_evidence()), *here, *self.split(of_blocks)), degrees

    def _error_of_log_odds(self, solved: Calibration, reading: Reading, b: Array) -> Array:
        t = solved.t_effective

        def corrected(b: Array) -> tuple[Array, Array]:
            """Coefficients after stretching (m, d) and the attenuation factors (m,)."""
            hg = (b @ reading.lift) @ reading.half @ solved.stretch.T
            return reading.stretched(b, solved.stretch), attenuation(np.einsum("mi,ij,mj->m", hg, t - t @ t, hg))

        stretched, factors = corrected(b)
        if not self.evident or self.truncated or self.reduced:
            return jackknife_error(stretched * factors[:, None])
        evidence = replicate(self.block_evidence())
        none = np.zeros((self.rank, self.rank))
        low = solved.residualised
        here = float(corrected(low[None])[1][0]) * (evidence.basis.cov_s1(none) @ low)
        there = factors[:, None] * np.einsum("bij,bj->bi", evidence.bases.cov_s1(none), b)
        d_v = len(self.mean) - self.d_u
        return coefficient_error(evidence, here, np.zeros(d_v), there, np.zeros((len(b), d_v)))
