"""Leading directions of Cov(S1): as good as the best simple method wherever the evidence does not reach further.

A direction may be off by a lot where Cov(S1) itself is off by little, and no candidate is best everywhere. Three are at hand,
all of the form Cov(U) - (something between 0 and Cov(U)):

* residualised, C0 = Cov(U) - Cov(U, V) Cov(V)^-1 Cov(V, U): the least that must be removed (T = 0). It removes what V sees of
  S2, more in one direction than in another: where S2 itself is alike in all directions, that turns the leading ones;
* isotropic, Ci: the shared part that is most alike in all directions among those that second moments allow;
* corrected: Cov(S1) at the estimate of T.

They are left in this order, each for the next one only as far as the change of the directions stands above its own doubt (see
``trust``). The change is measured on F(C) = sum_j w_j v_j v_j' of the k leading eigenvectors v_j of C. With the weights
w_j = lambda_j - lambda_{k+1} of C0, rotations among equal eigenvalues count for nothing; for k = 1, F is the projector on v_1.

ISOTROPIC. Let R = Cov(U) - C0 be what residualising removes, with eigenvalues r_j. A shared part of covariance c I needs
R <= c I <= Cov(U): c is at most the smallest eigenvalue of Cov(U), and taking c I away turns nothing, so that as far as
R <= c I holds the candidate is Cov(U) itself, naive. In directions with r_j > c the shared part stands out by r_j - c at least.
V sees on average only m of the c that is everywhere (m : mean of the r_j below c); with the same loss it stands out by up to
r_j - m:

    Ci = Cov(U) - sum over r_j > c of (r_j - c) (1 + (c - m) / r_j) u_j u_j'.

Both ends, Ci and C0, are compatible with second moments. What decides is a coincidence: the directions in which V happens to
see S2 well are a matter of A, and have nothing to do with the shape of S1. Were the candidate Ci - theta (Ci - C0) the truth,

    < Ci - theta Delta, Delta > = 0,     Delta = Ci - C0,

with traceless parts on the complement of the k leading directions (m = d - k of them): theta is a regression coefficient on
q = m (m + 1) / 2 - 1 numbers, and its residual gives it a standard error. Where S1 has a shape of its own the error is large,
and C0 stays. On 40 draws a cell of the paper's principal-direction design the spread of theta over draws was .5 to 1.5 of
that error; but where S2 has both an isotropic part and a direction of its own the truth is not on the line, and twice the
error is taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.component import Blend
from richcomponents.components.wide import Factored, Spread, added, top_directions
from richcomponents.contrastive.calibration import block_variance, posterior_variance, trust
from richcomponents.contrastive.intervals import BlockEvidence, replicate
from richcomponents.contrastive.pair import BlockCovariances, Pair, near_pair
from richcomponents.contrastive.posterior import Logistic, Posterior
from richcomponents.cumulants.estimate import delete_one
from richcomponents.pair.canonical import Canonical

BLOCK_WEIGHT, POSTERIOR_WEIGHT = 0.5, 0.1
"""Of the block variance and of the posterior variance of a change of directions. Left-out blocks move eigenvectors twice as
much as the estimate is off (median over the paper's designs), and the posterior draws, which are inflated, five times."""

FAR = 3.0
"""A correction that goes further than the simple methods lie apart from each other is doubted up to 1 + FAR times as much:
where naive and residualised agree there is little to correct, and most of what is seen is noise."""

LINE_ERRORS = 2.0
"""Standard errors of theta that count as its doubt."""

MEASURED = 20
"""Leading directions that the rotation is measured on, and how many more eigenvectors carry it."""


def removed(pair: Pair) -> Array:
    """R (..., d, d), what residualising removes from Cov(U)."""
    root = pair.from_x @ pair.cross
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def beyond_isotropic(removed: Array, level: float, d: int) -> Array:
    """Delta = Ci - C0 (..., q, q), what residualising removes beyond the isotropic candidate: positive semidefinite.

    removed : R (..., q, q), of d directions, in the others zero; level : c.
    """
    r, u = np.linalg.eigh(removed)
    r = np.maximum(r, 0.0)
    out = r > level
    seen = np.sum(np.where(out, 0.0, r), axis=-1, keepdims=True) / np.maximum(d - out.sum(-1, keepdims=True), 1)
    beyond = np.where(out, (r - level) * (1 + (level - seen) / np.maximum(r, 1e-300)), 0.0)
    return np.asarray((u * (r - beyond)[..., None, :]) @ np.swapaxes(u, -1, -2))


def traceless(matrix: Array) -> Array:
    """A square matrix without its mean diagonal."""
    return np.asarray(matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix)))


def place_on_line(isotropic: Array, delta: Array, k: int) -> tuple[float, float]:
    """theta and its standard error (see above); (1, inf) where too few directions are left to tell."""
    m = len(isotropic) - k
    free = m * (m + 1) // 2 - 2
    if free < 1 or not delta.any():
        return 1.0, np.inf
    theta, error = 0.5, np.inf
    for _ in range(2):  # the leading directions that are left out depend on theta, a little
        rest = np.linalg.eigh(isotropic - np.clip(theta, 0.0, 1.0) * delta)[1][:, :m]
        shape, along = (traceless(rest.T @ part @ rest) for part in (isotropic, delta))
        size = float(np.sum(along**2))
        if size <= 1e-24 * float(np.sum(shape**2)):
            return 1.0, np.inf
        theta = float(np.sum(shape * along)) / size
        error = float(np.sqrt(np.sum((shape - theta * along) ** 2) / free / size))
    return theta, error


def toward_isotropic(residualised: Array, delta: Array, k: int) -> float:
    """How far to go from C0 to Ci, in [0, 1]."""
    theta, error = place_on_line(residualised + delta, delta, k)
    way = 1 - theta
    if way <= 0:
        return 0.0
    return float(min(1.0, way * max(0.0, 1 - (LINE_ERRORS * error / way) ** 2)))


def _leading(covariance: Array, k: int) -> Array:
    """Eigenvectors (..., d, k) of the k largest eigenvalues of (..., d, d), decreasing."""
    return np.asarray(np.linalg.eigh(covariance)[1][..., ::-1][..., :k])


def blend_for_directions(
    posterior: Posterior,
    canonical: Canonical,
    moments: BlockCovariances,
    evidence: BlockEvidence | None,
    C0: Spread,
    k: int,
) -> Blend:
    """The covariance that the k leading directions of S1 are read from.

    canonical, moments : of the coordinates whose block statistics are known; evidence : about T, None where there is none;
    C0 (d, d), residualised, in the user's units.

    Doubt about a change is its jackknife variance over left-out blocks, second moments included, and its variance over the
    posterior of T. It is computed in the span of the shared directions and of the leading eigenvectors: nothing else turns.
    """
    r, d, k = posterior.rank, len(C0), min(k, MEASURED)
    lift = canonical.u_from_x[:, :r]
    whole = added(C0, lift, np.diag(posterior.correlations**2))
    tops = [top_directions(part, k + MEASURED)[1].T for part in (C0, whole)]
    inside = np.linalg.qr(np.hstack([*tops, lift]))[0]
    near = replace(canonical, u_from_x=inside.T @ canonical.u_from_x)
    blocks = len(moments.count)
    basis, bases = (near_pair(near, r, moments.covariance(kept)) for kept in (np.ones(blocks), delete_one(blocks)))
    safe = inside.T @ (C0 @ inside)
    rest = safe - basis.cov_s1(np.zeros((r, r)))  # of a wide view: what its canonical coordinates leave out
    values = np.linalg.eigvalsh(safe)[::-1]
    weights = values[:k] - (values[k] if k < len(values) else values[-1])

    def frame(covariance: Array) -> Array:
        v = _leading(covariance, k)
        return np.asarray((v * weights) @ np.swapaxes(v, -1, -2))

    start, left = safe, bases.cov_s1(np.zeros((r, r))) + rest
    share, delta = 0.0, np.zeros_like(safe)
    if not isinstance(C0, Factored):  # with few rows a column the smallest eigenvalue of Cov(U) means nothing
        level = max(float(np.linalg.eigvalsh(np.asarray(whole))[0]), 0.0)
        delta = beyond_isotropic(removed(basis), level, d)
        share = toward_isotropic(C0, inside @ delta @ inside.T, k)
    if share > 0:
        end, ends = safe + share * delta, left + share * beyond_isotropic(removed(bases), level, d)
        change, changes = frame(end) - frame(start), frame(ends) - frame(left)
        kept = trust(1.0, change, BLOCK_WEIGHT * block_variance(changes))
        start, left, share = safe + kept * (end - safe), left + kept * (ends - left), kept * share
    corrected = 0.0
    if evidence is not None:
        without = Logistic.at(replicate(evidence).xs).value
        change = frame(basis.cov_s1(posterior.t) + rest) - frame(start)
        changes = frame(bases.cov_s1(without) + rest) - frame(left)
        drawn = frame(basis.cov_s1(posterior.t_draws) + rest)
        length, apart = (float(np.sum(way**2)) for way in (change, frame(inside.T @ (whole @ inside)) - frame(safe)))
        far = 1 + FAR * length / max(length + apart, 1e-300)
        doubt = far * BLOCK_WEIGHT * block_variance(changes) + POSTERIOR_WEIGHT * posterior_variance(posterior, drawn)
        corrected = trust(posterior.gate, change, doubt)
    isotropic = (1 - corrected) * share
    turned = added(C0, lift * posterior.h, -corrected * posterior.t)
    return Blend(added(turned, inside, isotropic * delta) if isotropic else turned, corrected, isotropic)
