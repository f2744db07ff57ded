"""An outcome beside the views: what coefficients and tests read of it, wherever its rows are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import least_squares, whitening
from richcomponents.inference.verdicts import Test
from richcomponents.learning.glm import LinearPredictor
from richcomponents.moments.data import AffineMap, Data, Dependence, Partial, RowUnits


@dataclass(frozen=True)
class Outcome:
    """What is regressed on a component, and the rows it is regressed from.

    rows (m, p), y (m,) : centred, known covariates removed; weight (m,) : how often each row counts; block (m,) : the
    statistical block of each. Rows that are not in memory are a few others with the same second moments, block by block
    (`equivalent_rows`): whatever reads an outcome must count rows by their weights. free : the rows' number less what
    covariates took; known (m, q) : these, centred; partial : the regression of the views on them, or None, and coef (q,) that
    of y; mean, squares : of y, the sum of its squares about the mean. units, data : of rows that depend on each other, in
    memory or elsewhere. log_odds : the linear predictor of a generalised linear model on the residual (log-odds, the
    log of a mean count, ...), to be calibrated instead of least squares.
    at (m,) : numbers of these rows in the table, where some were left out. on_v : what the outcome has to do with the other
    view, where that was tested (pair.outcomes).
    """

    rows: Array
    y: Array
    weight: Array
    block: IntArray
    free: float
    known: Array
    partial: Partial | None = None
    coef: Array | None = None
    mean: float = 0.0
    squares: float = 0.0
    units: RowUnits = field(default_factory=RowUnits)
    data: Data | None = None
    log_odds: LinearPredictor | None = None
    at: IntArray | None = None
    on_v: Any = None

    def of(self, values: Array) -> Array:
        """Values of all rows of the table -> those of the rows that are here."""
        return values if self.at is None else values[self.at]

    def replaced(self, values: Array) -> Outcome:
        """The same rows with another outcome, values (m,)."""
        mean = float(np.average(values, weights=self.weight))
        centred = values - mean
        coef = None
        left = centred
        if self.covariates:
            coef = least_squares(self.known, centred, self.weight)
            left = centred - self.known @ coef
        squares = float(self.weight @ centred**2)
        return replace(self, y=left, coef=coef, mean=mean, squares=squares, data=None, on_v=None)

    def without(self, block: int) -> Outcome:
        """The rows outside of a block, y about its mean there."""
        keep = self.block != block
        weight, y, known = self.weight[keep], self.y[keep], self.known[keep]
        level = float(np.average(y, weights=weight))
        measured = y - level if self.coef is None else y - level + known @ self.coef
        return replace(
            self,
            rows=self.rows[keep],
            y=y - level,
            weight=weight,
            block=self.block[keep],
            free=self.free * float(weight.sum()) / self.n,
            known=known,
            mean=self.mean + level,
            squares=float(weight @ measured**2),
            units=self.units.take(np.flatnonzero(keep)),
            data=None,
            at=np.flatnonzero(keep) if self.at is None else self.at[keep],
        )

    @property
    def covariates(self) -> int:
        """How many there are."""
        return int(self.known.shape[1])

    @property
    def n(self) -> float:
        """Rows, each as often as it counts."""
        return float(self.weight.sum())

    @cached_property
    def kept(self) -> Any:
        """(B, m): the rows without each block."""
        return np.stack([self.block != b for b in np.unique(self.block)])

    def covariances(self, a: Array, b: Array) -> Array:
        """Of columns a (m, k) and b (m, l) of these rows, (1 + B, k, l): of all rows, then without each block."""
        w, sums = self.weight, []
        for at in ~self.kept:
            sums.append((w[at].sum(), w[at] @ a[at], w[at] @ b[at], (a[at] * w[at][:, None]).T @ b[at]))
        each = [np.stack(one) for one in zip(*sums, strict=True)]
        whole = [one.sum(axis=0) for one in each]
        stacked = [np.concatenate([all_[None], all_ - one]) for all_, one in zip(whole, each, strict=True)]
        count, first, second, product = stacked[0][:, None], *stacked[1:]
        return np.asarray(product / count[..., None] - (first / count)[:, :, None] * (second / count)[:, None])

    @cached_property
    def with_rows(self) -> tuple[Array, Array]:
        """Cov(rows, y) (1 + B, p) and Var(y) (1 + B,), over `free` and the same share of it without each block."""
        y, share = self.y[:, None], self.n / self.free
        return self.covariances(self.rows, y)[..., 0] * share, self.covariances(y, y)[:, 0, 0] * share

    def dependence(self, to_x: Array, to_y: Array, correlations: Array) -> Dependence | None:
        """How the rows depend on each other: of x = y to_x', (1,), and z to_y', white; None where they do not."""
        if self.units.depend:
            z = np.column_stack([self.y[:, None] @ to_x.T, self.rows @ to_y.T])
            return self.units.dependence(z, correlations, 1)
        if self.data is None:
            return None
        p, q = self.rows.shape[1], self.covariates
        into = np.zeros((p + q + 1, p + 1))  # columns of views, covariates and outcome -> rows and y
        into[np.arange(p), np.arange(p)] = into[-1, -1] = 1.0
        if self.partial is not None and self.coef is not None:
            into[p:-1, :p], into[p:-1, p] = -self.partial.coefficients.T, -self.coef
            into[:, :p][:, self.partial.explained] = 0.0
        last = np.hstack([into[:, -1:] @ to_x.T, into[:, :p] @ to_y.T])
        return self.data.dependence(AffineMap(self.data.moments(2).mean, last), correlations, 1)


def outcome_test(outcome: Outcome, outside: IntArray, lost: float = 0.0, to: Array | None = None) -> Test:
    """F-test of the regression of Y on the columns `outside` of a component: all coefficients zero; to : (k, columns), on these
    combinations of them.

    Under the model Y and V are independent, not only uncorrelated, so that the classical test needs no robust covariance when
    rows are independent. Rows of a group are not: then n is the number of independent rows that they are worth, and its
    own noise takes degrees of freedom. lost : rows spent on covariates. Without columns there is nothing to test: p = 1.
    """
    y, w, n, v = outcome.y, outcome.weight, outcome.n, outcome.rows[:, outside]
    if not (len(outside) if to is None else len(to)):
        return Test("outcome", float("nan"), (0, n - 1), 1.0)
    turn = None if to is None else to.T
    if to is None and v.shape[1] > len(v):
        turn = np.linalg.qr(v.T)[0]  # the same variates in as many columns as rows
    v = v if turn is None else v @ turn
    weighted, variance = v * w[:, None], float(w @ y**2) / n
    white = whitening(weighted.T @ v / n)[0]
    with_white, rows, dependence = white @ (weighted.T @ y) / n, n - lost, None
    k, varies = len(white), variance > 0
    if k and varies:
        basis, size, sign = np.linalg.svd(with_white[:, None] / np.sqrt(variance))
        basis[:, 0] *= sign[0, 0]  # the first goes up with y
        to_y = np.zeros((k, outcome.rows.shape[1]))
        to_y[:, outside] = basis.T @ white if turn is None else basis.T @ white @ turn.T
        dependence = outcome.dependence(np.array([[variance**-0.5]]), to_y, np.minimum(size, 1.0))
        rows = rows if dependence is None else rows / float(dependence.effect[0])
    df: tuple[float, float] = (k, rows - k - 1)
    if df[1] <= 0 or not k:
        return Test("outcome", float("nan"), df, 1.0)
    share = min(float(with_white @ with_white) / variance, 1 - 1e-12) if varies else 0.0
    f = share / (1 - share) * df[1] / k
    if dependence is not None:
        _, noise, spread = dependence.at(0)
        df = (k / spread, 1 / (1 / df[1] + 1 / noise))
    return Test("outcome", f, df, float(stats.f.sf(f, *df)))
