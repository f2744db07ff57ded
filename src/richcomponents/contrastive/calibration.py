"""Coefficients of an outcome on S1, calibrated from those on both views.

Least squares of the outcome on (x, y_1..y_r) ("residualising") estimates, in the shared coordinates,

    h b = G (h beta) + error,     G = I - T,     Var(error) = noise * I:

it shrinks the truth by G.  The correction multiplies h b by a matrix M close to G^-1.  Plugging in an
estimate of T would overshoot without bound where T is near 1, so M minimises the expected squared error
over the posterior of T and over a random beta of the observed size,

    M(lambda) = sym( E[G] (E[G^2] + lambda I)^-1 ),     lambda = noise / (mean square of h beta).

The change delta = beta(M) - beta(I) is then shrunk by what is known about it (trust, below), for THIS outcome, with
variances from leaving out blocks and from the posterior draws, all in the metric of Cov(U) (so that units do
not matter).  Without evidence the result is residualising, never less.

Log-odds are calibrated alike.  Logistic regression on the residual attenuates besides: h b = G (h theta) / c, so

    theta(M) = c(M) h^-1 M h b,     c = attenuation((M h b)' T (I - T) (M h b)),     T = I - M^-1.

A wide view is searched for shared directions in its principal components only, but its coefficients are those of least
squares on ALL its columns.  With R = U - Cov(U, y) y, L the loadings of S2 in every column and Q = L' Cov(R)^-1 L,

    Cov(S1) = Cov(R) - L Q^(-1/2) T Q^(-1/2) L',     beta = b + Cov(R)^-1 L Q^(-1/2) (M - I) Q^(-1/2) L' b,

so that Q^(-1/2) stands for h; for a view that was searched as a whole it is h.

Trust: whatever is learned from S1 has a safe value, at T = 0 (residualising), and a corrected one, at the estimate of T. Only
the part of the change between them that stands above its own uncertainty is made:

    value = safe + trust * change,     0 <= trust <= gate.

`doubt` estimates E|change - true change|^2. The shrinkage with the least expected error is 1 - doubt / |change|^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import symmetric
from richcomponents.components.component import LEAST_KEPT
from richcomponents.contrastive.posterior import Posterior
from richcomponents.cumulants.estimate import jackknife_variance
from richcomponents.pair.canonical import Canonical

MAX_T = 1 - LEAST_KEPT
"""No direction is stretched more than 1/(1 - MAX_T) times."""

INFORMATION_FLOOR = 10.0
"""n odds(D) at which a direction's T gets half its weight."""


@dataclass(frozen=True)
class Reading:
    """How the r shared coordinates are written into the columns of U and read off them again.

    ``lift`` L (d_u, r); ``weights`` W (d_u, r) with W'L = I; ``half`` (r, r), symmetric, the square root of the variance of
    W'R, R the residual of U on the shared part of V: h on canonical coordinates.
    """

    lift: Array
    weights: Array
    half: Array

    @classmethod
    def canonical(cls, canonical: Canonical, rank: int, lift: Array | None = None) -> Reading:
        """Off the canonical coordinates; lift : into all columns of a view of which only a part was searched."""
        h = np.sqrt(1 - canonical.correlations[:rank] ** 2)
        return cls(canonical.u_from_x[:, :rank] if lift is None else lift, canonical.x_from_u[:rank].T, np.diag(h))

    @classmethod
    def of_all_columns(cls, inverse: Array, lift: Array) -> Reading:
        """Off all columns, best in least squares: W = Cov(R)^-1 L Q^-1; inverse : (d_u, k), G with G G' = Cov(R)^-1."""
        toward = inverse @ (inverse.T @ lift)
        values, vectors = np.linalg.eigh(symmetric(lift.T @ toward))  # Q
        half = (vectors / np.sqrt(np.maximum(values, 1e-300))) @ vectors.T
        return cls(lift, toward @ half @ half, half)

    def stretched(self, coef: Array, stretch: Array) -> Array:
        """Coefficients (..., d_u) with their shared part multiplied by ``stretch`` (r, r) in the metric of ``half``."""
        return np.asarray(coef + self.change(coef @ self.lift, stretch))

    def change(self, shared: Array, stretch: Array) -> Array:
        """What ``stretch`` adds to coefficients (..., d_u) that are ``shared`` (..., r) on the shared coordinates."""
        change = shared @ self.half @ (stretch - np.eye(len(stretch))).T @ np.linalg.inv(self.half)
        return np.asarray(change @ self.weights.T)

    def without_shared(self, rows: Array, t: Array) -> Array:
        """R (n, d_u) -> BLUP(S1) at T = t: least squares on it gives the coefficients stretched by (I - t)^-1."""
        inner = np.linalg.inv(self.half) @ t.T @ self.half
        return np.asarray(rows - (rows @ self.weights @ inner) @ self.lift.T)


@dataclass(frozen=True)
class Residualised:
    """Least squares of an outcome on (U, y_1..y_r).

    ``coef`` (d_u,): coefficients of U.  ``noise``: sampling variance of every entry of h b, and of the coefficients over the
    diagonal of Cov(R)^-1.  ``shared`` (r,): of the coefficients on the shared coordinates, what is there because the outcome
    goes with S2 (gamma, as far as it is believed; see `outcomes`), with ``excess`` (r,) times the noise.  ``on_y`` (r,): of
    log-odds, those of the shared variates of V beside the residual.  ``attenuation``: the factor that these lack for a
    variance that the residual does not tell.
    """

    coef: Array
    noise: float
    shared: Array | float = 0.0
    excess: Array | float = 1.0
    on_y: Array | None = None
    attenuation: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class Calibration:
    """Coefficients on S1: ``coef`` (d_u,) with the correction, ``residualised`` (d_u,) without; ``trust`` in [0, 1].

    ``stretch`` (r, r) is the matrix applied to the shared part of h b, trust included; ``factor``: c, of log-odds.
    """

    coef: Array
    residualised: Array
    trust: float
    stretch: Array
    factor: float = 1.0

    @property
    def t_effective(self) -> Array:
        """The T (r, r) with I - T = stretch^-1, for penalised fits on h (I - T) h^-1 (x - D y)."""
        return np.eye(len(self.stretch)) - np.linalg.inv(self.stretch)


def residualise(canonical: Canonical, beside: int, cov_u: Array, cov_v: Array, variance: float) -> Residualised:
    """Residualised coefficients from Cov(U, outcome) (d_u,), Cov(V, outcome) (d_v,) and Var(outcome).

    beside : canonical variates of V that stand beside U, the first ones. The normal equations are 2 x 2 for each of them:
    b = (Cov(x, .) - D Cov(y, .)) / (1 - D^2).
    """
    d = canonical.correlations[:beside]
    from_x = canonical.x_from_u @ cov_u
    from_y = canonical.y_from_v[:beside] @ cov_v
    b = from_x.copy()
    b[:beside] = (from_x[:beside] - d * from_y) / (1 - d**2)
    b_y = (from_y - d * from_x[:beside]) / (1 - d**2)
    left = max(variance - float(from_x @ b + from_y @ b_y), 1e-12 * variance)
    return Residualised(canonical.x_from_u.T @ b, left / max(canonical.n - len(b) - beside - 1, 1))


def residualise_all_columns(
    inverse: Array, lift: Array, correlations: Array, with_u: Array, with_y: Array, variance: float, free: float
) -> Residualised:
    """The same on all columns of a wide view: Cov(R)^-1 Cov(R, outcome), R = U - L D y.

    inverse : (d_u, k), G with G G' = Cov(R)^-1; with_u (d_u,), with_y (r,) : covariances of U and of y_1..y_r with the
    outcome; free : degrees of freedom that are left.
    """
    with_residual = inverse.T @ (with_u - lift @ (correlations * with_y))
    left = max(variance - float(with_y @ with_y + with_residual @ with_residual), 1e-12 * variance)
    return Residualised(inverse @ with_residual, left / free if free > 0 else np.nan)


def guard_weights(canonical: Canonical, posterior: Posterior) -> Array:
    """Square roots (r,) of the weights that T gets in each shared direction.

    With odds(D) = D^2/(1 - D^2), the weight of direction i is

        max(0, 1 - 2 odds(D_{r+1}) / odds(D_i))  *  i / (i + 10),     i = n odds(D_i) + information beside the cumulants'.

    The first factor (1 at full rank) distrusts directions no stronger than the leftover correlation.  The
    second: rows [T | Delta] hardly depend on T once T >> Delta, so that n Delta^2 measures what the data
    can say about T in that direction; with little of it, T is mostly prior and should stretch nothing.
    """
    rank = posterior.rank
    odds = canonical.correlations**2 / (1 - canonical.correlations**2)
    own = np.maximum(odds[:rank], 1e-300)
    told = own + posterior.informed / canonical.n
    weights = told / (told + INFORMATION_FLOOR / canonical.n)
    if rank < len(odds):
        weights = weights * np.maximum(0.0, 1 - 2 * odds[rank] / own)
    return np.asarray(np.sqrt(weights))


def stretch_matrix(mean_g: Array, mean_g2: Array, ridge: Array, guard: Array) -> Array:
    """M = sym(E[G] (E[G^2] + ridge)^-1) (..., r, r), ridge (r,) on the diagonal; T = I - M^-1 is clipped to [0, MAX_T] and
    guarded."""
    identity = np.eye(len(guard))
    raw = mean_g @ np.linalg.inv(mean_g2 + ridge * identity)
    values, vectors = np.linalg.eigh((raw + raw.swapaxes(-1, -2)) / 2)
    shares = np.clip(1 - 1 / np.maximum(values, 1e-9), 0.0, MAX_T)
    t = (vectors * shares[..., None, :]) @ vectors.swapaxes(-1, -2)
    return np.asarray(np.linalg.inv(identity - guard[:, None] * t * guard))


def calibrate(
    canonical: Canonical,
    posterior: Posterior,
    fit: Residualised,
    reading: Reading,
    *,
    beside: float = 0.0,
) -> Calibration:
    """Correct residualised coefficients for the part of S1 that residualising removes.

    reading : of the shared coordinates. beside : of log-odds, the size of the coefficients outside the shared coordinates, in
    the metric of Cov(U). Where S1 has no variance in any shared direction (T = I, of a known A that explains all of U there)
    no coefficient is told, and nothing is corrected.
    """
    r = posterior.rank
    if posterior.gate == 0 or r == 0 or not posterior.mean_g2.any():
        return Calibration(fit.coef, fit.coef, 0.0, np.eye(r))
    hb, guard, ridge = shared_part(canonical, posterior, fit, reading)
    metric = metric_root(posterior, reading)
    through = reading.half @ np.broadcast_to(fit.shared, hb.shape)

    def factor(stretch: Array) -> Array:
        """c(M), (...)."""
        if fit.attenuation is None:
            return np.ones(stretch.shape[:-2])
        hg, t = stretch @ hb, np.eye(r) - np.linalg.inv(stretch)
        return fit.attenuation(np.einsum("...i,...ij,...j->...", hg, t - t @ t, hg))

    def coefficients(stretch: Array) -> Array:
        """In the metric of Cov(U), for M (..., r, r): those of the shared part, and the size of the others, (..., r + 1)."""
        shared = (stretch @ hb + through) @ metric.T
        beyond = np.full((*shared.shape[:-1], 1), beside)
        return np.asarray(np.concatenate([shared, beyond], axis=-1) * factor(stretch)[..., None])

    stretch = stretch_matrix(posterior.mean_g, posterior.mean_g2, ridge, guard)
    change = coefficients(stretch) - np.append(metric @ (hb + through), beside)
    trust = trust_in_change(posterior, change, lambda g: coefficients(_stretch_at(posterior, g, ridge, guard)))
    stretch = (1 - trust) * np.eye(r) + trust * stretch
    coef = fit.coef + reading.change(reading.lift.T @ fit.coef - fit.shared, stretch)
    lacked = float(factor(stretch))
    return Calibration(coef * lacked, fit.coef, trust, stretch, lacked)


def shared_part(
    canonical: Canonical, posterior: Posterior, fit: Residualised, reading: Reading
) -> tuple[Array, Array, Array]:
    """h (b - gamma) (r,), the guard weights (r,), and lambda (r,)."""
    hb = reading.half @ (reading.lift.T @ fit.coef - fit.shared)
    noise = (fit.noise if np.isfinite(fit.noise) else 0.0) * np.broadcast_to(fit.excess, hb.shape)
    size = max(float(hb @ hb - noise.sum()), 1e-3 * float(noise.sum()), 1e-300) / float(np.trace(posterior.mean_g2))
    return hb, guard_weights(canonical, posterior), noise / size


def metric_root(posterior: Posterior, reading: Reading) -> Array:
    """M (r, r) with |M v|^2 the square, in the metric of Cov(U), of the change W half^-1 v of coefficients."""
    inverse = np.linalg.inv(reading.half)
    squares = np.diag(posterior.correlations**2)
    return np.asarray(np.linalg.cholesky(symmetric(np.eye(posterior.rank) + inverse @ squares @ inverse)).T)


def _stretch_at(posterior: Posterior, g: Array, ridge: Array, guard: Array) -> Array:
    """M (m, r, r) had E[G] been g (m, r, r)."""
    spread = posterior.mean_g2 - posterior.mean_g @ posterior.mean_g
    return stretch_matrix(g, g @ g + spread, ridge, guard)


def error_of_all_columns(
    canonical: Canonical,
    posterior: Posterior,
    fit: Residualised,
    reading: Reading,
    inverse: Array,
    calibration: Calibration,
) -> Array:
    """Standard errors (d_u,) of coefficients on all columns of a wide view.

    Those of the textbook for least squares on (U, y_1..y_r), carried through the stretch; and, as far as the stretch is
    trusted, its variance over left-out blocks and over the posterior of T, and the square of what was not trusted of it.

    Too small still: 95% intervals covered .86 at 500 samples of 100 columns (two exponential factors, 30 draws), since what the
    ridge in M and the guard hold back is not in them.
    """
    stretch, trust = calibration.stretch, calibration.trust
    carried = reading.stretched(inverse.T, stretch).T
    variance = fit.noise * np.sum(carried**2, axis=1)
    if trust > 0:
        hb, guard, ridge = shared_part(canonical, posterior, fit, reading)
        left_out = _stretch_at(posterior, posterior.mean_g - posterior.t_shifts, ridge, guard) @ hb
        drawn = _stretch_at(posterior, np.eye(posterior.rank) - posterior.t_draws, ridge, guard) @ hb
        moved = np.sqrt((len(left_out) - 1) / len(left_out)) * (left_out - left_out.mean(axis=0))
        spread = np.sqrt(posterior.draw_weights)[:, None] * (drawn - posterior.draw_weights @ drawn)
        into = reading.weights @ np.linalg.inv(reading.half)
        variance = variance + trust**2 * np.sum((into @ np.vstack([moved, spread]).T) ** 2, axis=1)
        left = (1 - trust) / trust * (stretch @ hb - hb)  # of the correction, what was not trusted
        variance = variance + (into @ left) ** 2
    return np.asarray(np.sqrt(variance))


BLOCK_WEIGHT = 1.5
POSTERIOR_WEIGHT = 0.1
"""Weights of the block and posterior variances of the change (the posterior draws are already inflated)."""


def trust(gate: float, change: Array, doubt: float) -> float:
    """How much of a change (an array of any shape) to make, in [0, gate]."""
    return float(gate * max(0.0, 1 - doubt / max(float(np.sum(change**2)), 1e-300)))


def block_variance(left_out: Array) -> float:
    """Jackknife variance, summed over entries, of values (B, ...) without each block."""
    return float(np.sum(jackknife_variance(left_out))) if len(left_out) else 0.0


def posterior_variance(posterior: Posterior, drawn: Array) -> float:
    """Variance, summed over entries, of values (m, ...) at the posterior draws of T."""
    centred = drawn - np.tensordot(posterior.draw_weights, drawn, 1)
    return float(np.tensordot(posterior.draw_weights, centred**2, 1).sum())


def trust_in_change(posterior: Posterior, change: Array, variants: Callable[[Array], Array]) -> float:
    """How much of a correction (k,) of coefficients to believe.

    variants(g (m, r, r)) : the corrected coefficients (m, k) had E[I - T] been g.
    """
    blocks = block_variance(variants(posterior.mean_g - posterior.t_shifts))
    drawn = posterior_variance(posterior, variants(np.eye(posterior.rank) - posterior.t_draws))
    return trust(posterior.gate, change, BLOCK_WEIGHT * blocks + POSTERIOR_WEIGHT * drawn)
