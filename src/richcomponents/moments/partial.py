"""Known covariates (age, sex, ...) partialled out of all other columns.

Residuals c - B (w - mean w), with B the regression
of the other columns on the covariates w, are one linear map; the same map serves both ways:

* from the state, second order: Cov(residuals) = R Cov R' with R = [I | -B], for the total and for every block;
* row-wise, for higher orders: rows.mapped(partial.residuals), and a second pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from richcomponents.algebra import Array, IntArray, column_numbers
from richcomponents.moments.state import Moments
from richcomponents.storage import storable

__all__ = ["Inflated", "Partial", "partial_out"]


@storable
@dataclass(frozen=True)
class Partial:
    """The regression of the kept columns on the covariates.

    kept, covariates : column numbers in the table; coefficients : (kept, covariates);
    explained : kept columns that are linear functions of the covariates: their residuals are exactly zero, not rounding
    noise; mean : means of all columns; moments : the state it was computed from.
    """

    kept: IntArray
    covariates: IntArray
    coefficients: Array
    explained: npt.NDArray[np.bool_]
    mean: Array
    moments: Moments

    @property
    def mark(self) -> str:
        """What tells this map from others, for checkpoints."""
        parts = (self.kept, self.covariates, self.coefficients, self.explained, self.mean)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    def residuals(self, rows: Array) -> Array:
        """Rows of all columns -> rows of the kept columns, with the covariates' share removed."""
        known = rows[:, self.covariates] - self.mean[self.covariates]
        left: Array = rows[:, self.kept] - known @ self.coefficients.T
        left[:, self.explained] = self.mean[self.kept][self.explained]
        return left

    def covariance(self) -> Array:
        """Covariance of the residuals; the divisor allows for the fitted covariates."""
        n = self.moments.n
        return self._mapped(self.moments.covariance(unbiased=False)) * (n / max(n - 1 - self.rank, 1))

    def block_covariances(self) -> Array:
        """Second moments of the residuals per block about the global mean, (n_blocks, kept, kept)."""
        return np.stack([self._mapped(block) for block in self.moments.block_covariances()])

    @property
    def rank(self) -> int:
        """How many covariates there are, collinear ones counted once."""
        known = self.covariate_covariance()
        scale = np.sqrt(np.diag(known))
        scale[scale == 0] = 1.0
        return int(np.linalg.matrix_rank(known / np.outer(scale, scale), tol=1e-9, hermitian=True))

    def covariate_covariance(self) -> Array:
        """Covariance of the covariates."""
        return self.moments.covariance()[np.ix_(self.covariates, self.covariates)]

    def _mapped(self, second: Array) -> Array:
        """R second R', R = [I | -B]."""
        one, two, B = self.kept, self.covariates, self.coefficients
        cross = second[np.ix_(one, two)] @ B.T
        left: Array = second[np.ix_(one, one)] - cross - cross.T + B @ second[np.ix_(two, two)] @ B.T
        left[self.explained], left[:, self.explained] = 0.0, 0.0
        return left


class Inflated:
    """Residuals of the rows that the regression was fitted to, stretched about their mean by a factor.

    Every fitted covariate takes the freedom of one row: n rows of residuals have the variance of n - q. Stretched by
    sqrt(n / (n - q)) their plain moments are those of n - q rows that no covariate was fitted to.
    """

    def __init__(self, partial: Partial, factor: float) -> None:
        self.partial, self.factor = partial, factor
        self.mark = f"{partial.mark} x {factor!r}"

    def __call__(self, rows: Array) -> Array:
        mean = self.partial.mean[self.partial.kept]
        return np.asarray(mean + (self.partial.residuals(rows) - mean) * self.factor)


def partial_out(moments: Moments, covariates: Sequence[int]) -> Partial:
    """Regress the other columns of a state on some of them.

    covariates : their column numbers. Collinear ones are harmless: the least-norm regression is used.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=(300, 1))
    >>> X = rng.normal(size=(300, 2)) + 3 * age
    >>> partial = partial_out(Moments.of(np.hstack([X, age]), order=2), [2])
    >>> bool(np.all(np.abs(np.diag(partial.covariance()) - 1) < 0.3))
    True
    """
    known = column_numbers(list(covariates), moments.layout.n_columns)
    kept = np.setdiff1d(np.arange(moments.layout.n_columns), known)
    C = moments.covariance(unbiased=False)
    scale = np.sqrt(np.diag(C))[known]
    scale[scale == 0] = 1.0  # a constant covariate explains nothing
    standard = C[np.ix_(known, known)] / np.outer(scale, scale)
    B = C[np.ix_(kept, known)] / scale @ np.linalg.pinv(standard, rcond=1e-12, hermitian=True) / scale
    before = np.diag(C)[kept]
    after = before - np.einsum("ij,ij->i", B, C[np.ix_(kept, known)])
    return Partial(kept, known, B, after <= 1e-13 * before, moments.mean, moments)
