"""Confidence intervals for A and Cov(S1): one-step block jackknife plus the shrinkage term.

``se^2 = jackknife variance + shrinkage variance + squared pull + squared reach``.

* Jackknife: replicate ``k`` leaves out block ``k`` in the second moments *and* in the Gram matrix.  Its parameter is one
  Newton step from the fit, ``X_k = X + H^-1 (score_k(X) - mean score)``, with ``H = curvature + Pi`` of the full sample;
  A and Cov(S1) are then evaluated exactly in the replicate's own basis.
* Shrinkage: the prior pulls ``X`` by ``H^-1 Pi (c - X_true)``; under the prior itself that has covariance
  ``H^-1 Pi H^-1`` (Wahba, Nychka: intervals of a smoother that cover on average over the entries).
* Pull: what one step against the prior, ``X + H^-1 score(X)``, changes.  It matters where the truth lies further from the
  prior's centre than the prior expects (T near the identity).
* Reach: the largest change to the estimate at another penalty tau that held-out energy does not exclude. tau is chosen, and at
  N = 1 000 often wrongly; the other terms take it as given. On the paper's principal-direction design, where they covered .85
  of the entries of Cov(S1), intervals become a tenth wider for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import RANK_TOLERANCE
from richcomponents.contrastive.evidence import joint_whitening, pair_mean
from richcomponents.contrastive.own_errors import IndependentErrors
from richcomponents.contrastive.pair import (
    BlockCovariances,
    Pair,
    bend,
    mixture_tau,
    near_pair,
    quadratic,
    score,
)
from richcomponents.contrastive.posterior import (
    TAUS,
    Beside,
    Laplace,
    Logistic,
    Posterior,
    Prior,
    SharedEnergy,
    logit,
    symmetric_matrices,
)
from richcomponents.cumulants.estimate import Estimate, delete_one, jackknife_variance
from richcomponents.moments import Moments
from richcomponents.pair.canonical import Canonical

Target = Literal["mixing", "cov_s1", "var_s1", "cov_s2", "cov_s3"]


def evaluate(basis: Pair, what: Target, t: Array) -> Array:
    """A, Cov(S1) or its diagonal for a given T."""
    return {"mixing": basis.mixing, "cov_s1": basis.cov_s1, "var_s1": basis.var_s1}[what](t)


@dataclass(frozen=True)
class BlockEvidence:
    """What the intervals need from a fit.

    ``gram``: (B, B, 2r, 2r) order-weighted cross-block Grams in the full sample's leading ``(x, y)``, scaled so that the
    objective is ``energy - (X - c)' precision (X - c) / 2``; ``t``: the fitted T (r x r); ``prior``: of the lower
    triangle of X; ``others`` (k, r, r): T at other penalties that are plausible; ``errors``: what independent errors add to
    the objective.
    """

    canonical: Canonical
    moments: BlockCovariances
    gram: Array
    t: Array
    prior: Prior
    others: Array
    errors: IndependentErrors | None = None

    def beside(self, pair: Pair) -> Beside | None:
        """Evidence about T beside the cumulants, of the sample or of its replicates."""
        return None if self.errors is None or self.errors.silent else self.errors.of(pair)


def plain_grams(posterior: Posterior, grams: Array) -> Array:
    """The Gram matrices per order with their last slot in plain (x, y): (2, B, B, 2r, 2r).

    With w = W z the Gram in w is W G W'.
    """
    back = np.linalg.inv(joint_whitening(posterior.correlations))
    return np.asarray(back @ grams @ back.T)


def block_evidence(
    canonical: Canonical,
    posterior: Posterior,
    state: Moments,
    grams: Array,
    errors: IndependentErrors | None = None,
    *,
    truncated: bool,
) -> BlockEvidence:
    """The evidence of a fit; truncated : whether `state` holds the leading canonical coordinates only."""
    if truncated:
        canonical = canonical.truncated(posterior.rank)
    tau = mixture_tau(np.array(TAUS), posterior.tau_weights)
    return BlockEvidence(
        canonical=canonical,
        moments=BlockCovariances.of(state),
        gram=np.tensordot(posterior.order_weights, plain_grams(posterior, grams), 1),
        t=posterior.t,
        prior=Prior.of_free(SharedEnergy(posterior.correlations).trend, tau),
        others=posterior.plausible,
        errors=errors,
    )


@dataclass(frozen=True)
class Replicates:
    """Delete-one-block replicates of T with their bases, and the matrices they came from."""

    basis: Pair  # full sample
    bases: Pair  # stack of B
    x: Array  # (r, r)
    xs: Array  # (B, r, r)
    loose: Array  # (r, r), X after one step against the pull of the prior
    posterior: Laplace  # about X
    others: Array  # (k, r, r), T at other plausible penalties

    def values(self, what: Target) -> Array:
        """Replicates (B, ...) of A, Cov(S1) or its diagonal."""
        return evaluate(self.bases, what, Logistic.at(self.xs).value)

    def squared_pull(self, what: Target) -> Array:
        """Square of the estimated shrinkage bias, entry by entry."""
        moved = evaluate(self.basis, what, Logistic.at(self.loose).value) - evaluate(
            self.basis, what, Logistic.at(self.x).value
        )
        out: Array = moved**2
        return out

    def squared_reach(self, what: Target) -> Array:
        """Largest squared change to another plausible penalty, entry by entry."""
        here = evaluate(self.basis, what, Logistic.at(self.x).value)
        there = [(evaluate(self.basis, what, t) - here) ** 2 for t in self.others]
        return np.max(there, axis=0) if there else np.zeros_like(here)

    def shrinkage_variance(self, what: Target) -> Array:
        """Variance of the shrinkage bias under the prior, entry by entry, by the delta method."""
        out: Array = (self.shrinkage_directions(what) ** 2).sum(0)
        return out

    def shrinkage_directions(self, what: Target) -> Array:
        """Changes (n, ...) of A, Cov(S1) or its diagonal whose squares add up to the variance of the shrinkage bias."""
        b = self.basis
        ds = b.h @ self.t_directions @ b.h
        if what == "var_s1":
            return quadratic(b.from_x, ds)
        if what == "mixing":
            t = Logistic.at(self.x).value
            right = np.linalg.solve(b.shared(t), b.to_x)
            left = np.linalg.solve(b.shared(t), b.cross).T
            d: Array = b.from_y @ left @ ds @ right
        else:
            d = b.from_x @ ds @ b.from_x.T
        return d

    @cached_property
    def t_directions(self) -> Array:
        """Changes (n, r, r) of T whose squares add up to the variance of its shrinkage bias under the prior."""
        return Logistic.at(self.x).derivative(self.free_directions)

    @cached_property
    def free_directions(self) -> Array:
        """The same of X."""
        return symmetric_matrices(self.posterior.pulls())

    def t_changes(self) -> tuple[Array, Array]:
        """Of T: without each block (B, r, r); and changes (k, r, r) whose squares add up to what the prior may have pulled,
        and seems to have pulled."""
        t = Logistic.at(self.x).value
        pulled = Logistic.at(self.loose).value - t
        return Logistic.at(self.xs).value - t, np.concatenate([self.t_directions, pulled[None]])


def replicate(ev: BlockEvidence) -> Replicates:
    """One-step delete-one-block replicates."""
    blocks = len(ev.gram)
    ones = np.ones(blocks)
    basis = near_pair(ev.canonical, len(ev.t), ev.moments.covariance(ones))
    bases = near_pair(ev.canonical, len(ev.t), ev.moments.covariance(delete_one(blocks)))
    x = logit(ev.t)
    link = Logistic.at(x)
    gram, here = pair_mean(ev.gram, ones), ev.beside(basis)
    posterior = Laplace.of(bend(basis, gram, link, here), ev.prior)
    s = score(bases, pair_mean(ev.gram, delete_one(blocks)), link, ev.beside(bases))
    steps = posterior.solve(np.concatenate([s - s.mean(0), score(basis, gram, link, here)[None]]))
    moved = x + symmetric_matrices(steps)
    return Replicates(basis, bases, x, moved[:-1], moved[-1], posterior, ev.others)


def confidence(rep: Replicates, what: Target, point: Array, level: float = 0.95) -> Estimate:
    """Interval for every entry of A or Cov(S1) around the given point estimate."""
    shrinkage = rep.shrinkage_variance(what) + rep.squared_pull(what) + rep.squared_reach(what)
    v = jackknife_variance(rep.values(what)) + shrinkage
    return Estimate(point, np.sqrt(v), len(rep.xs) - 1, level=level)


def functional_error(rep: Replicates, change: Callable[[Array, Array], Array], mean_changes: Array) -> Array:
    """Standard errors (p,) of a smooth function of Cov(S1) and of the mean of U.

    change : changes (n, d, d) of Cov(S1) and (n, d) of the mean -> changes (n, p) of the function, to first order;
    mean_changes : (B, d), of the mean, without each block. Jackknife + shrinkage expected under the prior + shrinkage seen.
    """
    here = rep.basis.cov_s1(Logistic.at(rep.x).value)
    spread = rep.shrinkage_directions("cov_s1")
    pull = rep.basis.cov_s1(Logistic.at(rep.loose).value) - here
    blocks = len(mean_changes)
    covariances = np.concatenate([rep.values("cov_s1") - here, pull[None], spread])
    means = np.concatenate([mean_changes, np.zeros((len(covariances) - blocks, len(here)))])
    moved = change(covariances, means)
    shrinkage = np.sum(moved[blocks:] ** 2, axis=0)
    return np.asarray(np.sqrt(jackknife_variance(moved[:blocks]) + shrinkage))


def inverse_on_range(covariance: Array) -> Array:
    """Inverses of covariances (..., d, d) on their numerical range, as the coefficients see it: units do not count."""
    scale = np.sqrt(np.maximum(np.einsum("...ii->...i", covariance), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    outer = scale[..., :, None] * scale[..., None, :]
    return np.asarray(np.linalg.pinv(covariance / outer, rcond=RANK_TOLERANCE, hermitian=True) / outer)
