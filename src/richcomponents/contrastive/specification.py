"""Specification tests: is the model U = S1 + S2, V = A S2 + S3 with independent parts compatible with the data?

* ``outcome_test``: with an outcome that depends on S1 only, Y is independent of V.
* ``leftover_test``: after ``r`` shared directions nothing may be correlated (low rank).
* ``overidentification_test``: without an outcome; cross-cumulants must lie in the row space of ``[S | D]``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import Logistic, logit
from richcomponents.contrastive.canonical import Canonical, canonical
from richcomponents.contrastive.energy import free_precision, projector
from richcomponents.contrastive.evidence import pair_mean
from richcomponents.contrastive.intervals import BlockEvidence, replicate
from richcomponents.contrastive.pair import Pair, energy_and_score, near_pair, units
from richcomponents.contrastive.rank import leftover_statistic, remaining_p_value
from richcomponents.learning.solvers import minimise
from richcomponents.moments.dependence import RowUnits
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class TestResult:
    """A test statistic, its degrees of freedom (when it has any) and the p-value."""

    statistic: float
    df: tuple[float, ...]
    p_value: float


def outcome_test(v: Array, y: Array, rows: RowUnits, lost: float = 0.0) -> TestResult:
    """F-test of the regression of Y (n,) on V (n, d_V), both centred: all coefficients zero.

    Under the model Y and V are independent, not only uncorrelated, so that the classical test needs no robust covariance when
    rows are independent. Rows of a group are not: then n is the number of independent rows that they are worth, and its
    own noise takes degrees of freedom. lost : rows spent on covariates.
    """
    w = rows.weights(len(y))
    n, weighted = float(w.sum()), v * w[:, None]
    with_v, variance = weighted.T @ y / n, float(w @ y**2) / n
    found = canonical(np.array([[variance]]), with_v[None], weighted.T @ v / n, n - lost)
    k = found.rank_v
    if rows.depend and k and found.rank_u:
        z = np.column_stack([y[:, None] @ found.x_from_u.T, v @ found.y_from_v.T])
        found = found.with_dependence(rows.dependence(z, found.correlations, 1))
    df: tuple[float, float] = (k, found.n - k - 1)
    if df[1] <= 0 or not k:
        return TestResult(float("nan"), df, 1.0)
    share = min(float(np.sum((found.y_from_v @ with_v) ** 2)) / variance, 1 - 1e-12) if found.rank_u else 0.0
    f = share / (1 - share) * df[1] / k
    if found.dependence is not None:
        _, noise, spread = found.dependence.at(0)
        df = (k / spread, 1 / (1 / df[1] + 1 / noise))
    return TestResult(f, df, float(stats.f.sf(f, *df)))


def leftover_test(found: Canonical, rank: int) -> TestResult:
    """Bartlett-Lawley test that the canonical correlations after the first ``rank`` are zero."""
    df = (found.rank_u - rank) * (found.rank_v - rank)
    if df == 0:
        return TestResult(0.0, (0,), 1.0)
    return TestResult(leftover_statistic(found, rank)[0], (df,), remaining_p_value(found, rank))


def relaxed(ev: BlockEvidence, tau: float = 3.0) -> BlockEvidence:
    """The same evidence with T at the maximum of the energy under a loose pull (sd ``tau``) towards the fit.

    Shrinkage leaves signal outside the fitted row space, which a test must not take for misspecification.  The prior
    precision is kept: it bounds the influence of a block on T where the data say little.
    """
    r = len(ev.t)
    ones = np.ones(len(ev.gram))
    basis = near_pair(ev.canonical, len(ev.t), ev.moments.covariance(ones))
    gram = pair_mean(ev.gram, ones)
    precision = free_precision(np.zeros((r, 0)), tau)
    i, j = np.tril_indices(r)
    x0 = logit(ev.t)[i, j]
    e = units(r)

    def loss(x: Array) -> tuple[float, Array]:
        link = Logistic.at(np.tensordot(x, e, 1))
        pull = precision @ (x - x0)
        value, slope = energy_and_score(basis, gram, link)
        return 0.5 * float((x - x0) @ pull) - float(value), pull - slope

    x = minimise(loss, x0, maxiter=200)
    return replace(ev, t=Logistic.at(np.tensordot(x, e, 1)).value)


def residual_maker(basis: Pair, t: Array) -> Array:
    """Operator E (..., 2r, 2r) with ``M E`` = the part of the cumulants ``M`` outside the row space of ``[S | cross]``.

    ``M`` in the full sample's leading ``(x, y)``; "outside" is orthogonal in the metric of the basis' own covariance.
    """
    inside = projector(t, basis.delta)
    outside = np.eye(inside.shape[-1]) - inside  # orthogonal projector in whitened coordinates
    lift = np.swapaxes(basis.whiten @ basis.from_full, -1, -2)  # w' = z' lift
    return np.asarray(lift @ outside @ np.linalg.inv(lift))


def overidentification_test(ev: BlockEvidence, grams: Array, tau: float = 3.0, flips: int = 1999) -> TestResult:
    """Energy of the cumulants outside the fitted row space, with a sign-flip p-value.

    ``grams``: (orders, B, B, 2r, 2r), one Gram array per order, in the full sample's leading ``(x, y)``.
    Block ``a`` contributes ``psi_a = M_a E + mean(M) dE_a``: its own cumulants outside the row space and, to first order,
    its influence on that space through T and through the second moments.  Under the model the ``psi_a`` are independent with
    mean zero, so flipping their signs does not change the law of ``sum_{a != b} <psi_a, psi_b>``.
    """
    return flip_test(residual_inner_products(relaxed(ev, tau), grams), flips)


def residual_inner_products(ev: BlockEvidence, grams: Array) -> Array:
    """<psi_a, psi_b> per order, (orders, B, B), zero on the diagonal.

    Means over blocks leave out ``a`` and ``b`` (first correction) or all pairs of a block with itself (second): the squared
    noise of d^3 rows would swamp the signal there as it does in the plain Gram matrix.
    """
    blocks = grams.shape[1]
    rep = replicate(ev)
    metric = rep.basis.whiten.T
    e0 = residual_maker(rep.basis, ev.t) @ metric
    each = residual_maker(rep.bases, Logistic.at(rep.xs).value)
    influence = -(blocks - 1) * (each - each.mean(0)) @ metric
    off = 1 - np.eye(blocks)
    others = ((grams * off[:, :, None, None]).sum(2)[:, :, None] - grams) / (blocks - 2)
    overall = np.einsum("ab,mabij->mij", off / off.sum(), grams)
    first = np.einsum("ip,mabij,jp->mab", e0, grams, e0, optimize=True)
    cross = np.einsum("ip,mabij,bjp->mab", e0, others, influence, optimize=True)
    both = np.einsum("aip,mij,bjp->mab", influence, overall, influence, optimize=True)
    inner = first + cross + np.swapaxes(cross, 1, 2) + both
    out: Array = (inner + np.swapaxes(inner, 1, 2)) / 2 * off
    return out


def flip_test(inner: Array, flips: int = 1999, seed: int = 0) -> TestResult:
    """One-sided sign-flip test that the blocks' contributions have mean zero; ``inner`` (orders, B, B), zero diagonals.

    The statistic is the largest of the orders' sums and of their total, each over its root mean square under flips: whichever
    order carries the violation may show it.  The sums of squares do not change under flips, so the scaling is exact.
    """
    size = np.sqrt(2 * (inner**2).sum((1, 2)))
    k = inner[size > 0] / size[size > 0, None, None]
    if len(k) == 0:
        return TestResult(0.0, (), 1.0)
    if len(k) > 1:
        total = k.sum(0)
        k = np.concatenate([k, (total / np.sqrt(2 * (total**2).sum()))[None]])
    s = np.random.default_rng(seed).choice([-1.0, 1.0], (flips, k.shape[1]))
    null = np.einsum("fa,mab,fb->fm", s, k, s, optimize=True).max(1)
    stat = float(k.sum((1, 2)).max())
    return TestResult(stat, (), (1 + int((null >= stat).sum())) / (1 + flips))
