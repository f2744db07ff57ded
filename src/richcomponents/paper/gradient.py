"""Section 4.2: stochastic steps along the gradient of a log-likelihood that is a polynomial in S1; logistic regression.

On true samples the gradient over a mini-batch of rows may be exact; of a hidden component it is a polynomial, whose cumulants
are those of the batch. The meta-algorithm for any likelihood is :mod:`richcomponents.learning.likelihood`.

What the paper leaves open: the sizes and the number of steps (decreasing, averaged over the second half), and where they may
lead. The cubic likelihood has no maximum: steps stay where the standard deviation of theta'U is at most 1.85, the end of the
interval on which the cubic is the sigmoid, and where that holds them back it is warned of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.learning.chebyshev import INTERVAL
from richcomponents.paper.contrastive import Extraction

CHEBYSHEV = (0.5, 0.245, 0.0, -0.014)
"""The paper's approximation of the sigmoid by Chebyshev polynomials of degree three: 0.5 + 0.245 z - 0.014 z^3."""

N_STEPS = 300
"""Of the stochastic gradients: a thousand lead to the same errors."""


def gradient_error_bound(epsilon: float, mu: float) -> float:
    """Lemma 4.1: |theta - theta*|^2 <= 8 epsilon^2 / mu^2, where steps of 1 / (2 H) along a gradient that is wrong by at most
    epsilon end, of a mu-strongly convex and H-smooth function. `fit_likelihood` measures epsilon, mu and H, and reports it.

    >>> round(gradient_error_bound(0.1, 0.5), 6)
    0.32
    """
    return 8 * epsilon**2 / mu**2 if mu > 0 else np.inf


def contrastive_logistic(
    s1: Extraction, y: Array, *, batch_size: int = 100, n_steps: int = N_STEPS, random_state: int = 0
) -> SGDResult:
    """Contrastive logistic regression (Section 4.2): steps along :func:`chebyshev_gradient`; `.theta` is (d,).

    y : (n,) of 0 and 1. As there, no intercept, and E[X] = 0. Steps stay where theta'U has a standard deviation of at most
    1.85; where this bound binds, a warning says so.

    Examples
    --------
    >>> from richcomponents import paper
    >>> rng = np.random.default_rng(0)
    >>> S1 = rng.uniform(-1, 1, size=(4000, 1))
    >>> y = (S1[:, 0] > rng.logistic(size=4000)).astype(float)
    >>> bool(abs(paper.contrastive_logistic(paper.true_samples(S1), y).theta[0] - 1) < 0.3)
    True
    """
    (n, d), covariance = s1.U.shape, s1.U.T @ s1.U / len(y)
    path = sgd(
        lambda theta, rows: -chebyshev_gradient(s1.take(rows), y[rows], theta),
        np.zeros(d),
        n,
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, float(np.linalg.norm(covariance, 2)) / 4, excess=d / min(batch_size, n)),
        projection=lambda theta: theta * min(1.0, INTERVAL / max(float(theta @ covariance @ theta) ** 0.5, 1e-300)),
        random_state=random_state,
    )
    if path.confined > 0.5:
        warn_user(
            "the likelihood of the paper's cubic has no maximum within its range: the coefficients are those of the bound on "
            "the standard deviation of coef'U, and too small. ComponentLogisticRegression(method='auto') has no such bound",
            SpecificationWarning,
        )
    return path


def chebyshev_gradient(s1: Extraction, y: Array, theta: Array) -> Array:
    """E[Y X] - 0.245 E[X (theta'X)] + 0.014 E[X (theta'X)^3], (d,), as it stands in Section 4.2, X = S1 with E[X] = 0.
    E[Y X] = E[Y U], since Y is independent of S2.

    y : (n,) of 0 and 1. The last term is k4(U, w, w, R theta) + 3 k2(U, R theta) k2(w, R theta), w = U theta: a projection,
    which takes linear time.

    Examples
    --------
    >>> from richcomponents import paper
    >>> X, y = np.array([[-1.0], [1.0], [-1.0], [1.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> paper.chebyshev_gradient(paper.true_samples(X), y, np.zeros(1)).round(4).tolist()
    [0.6667]
    """
    _, linear, _, cubic = CHEBYSHEV
    w, r = s1.U @ theta, s1.R @ theta
    with_y, k2 = s1.U.T @ y / (len(w) - 1), s1.U.T @ r / (len(w) - 1)
    moment = fourth_cumulant(s1.U, w[:, None], w[:, None], r[:, None]) + 3 * k2 * (w @ r / (len(w) - 1))
    return np.asarray(with_y - linear * k2 - cubic * moment)


def fourth_cumulant(a: Array, b: Array, c: Array, d: Array) -> Array:
    """k4(a, b, c, d), unbiased, of centred columns (n, m) or (n, 1) that go together: (m,).

    n^2 [(n + 1) E[abcd] - (n - 1) (E[ab] E[cd] + E[ac] E[bd] + E[ad] E[bc])] / ((n - 1) (n - 2) (n - 3)).
    """
    n = len(a)

    def E(x: Array, y: Array) -> Array:
        return np.asarray((x * y).mean(axis=0))

    pairings = E(a, b) * E(c, d) + E(a, c) * E(b, d) + E(a, d) * E(b, c)
    scale = n**2 / ((n - 1) * (n - 2) * (n - 3))
    return np.asarray(scale * ((n + 1) * E(a * b, c * d) - (n - 1) * pairings))


@dataclass(frozen=True)
class SGDResult:
    """Where mini-batch steps led.

    theta : (p,), the mean of the iterates of the second half (Polyak and Juditsky 1992), less noisy than the last one.
    trajectory : (n_steps + 1, p), the start and the iterate after each step.
    confined : the share of the steps of the second half that the projection took back.

    >>> sgd(lambda theta, rows: theta - 3, np.zeros(1), 10, n_steps=9, step_size=lambda t: 1.0).theta.tolist()
    [3.0]
    """

    theta: Array
    trajectory: Array
    confined: float


def robbins_monro(mu: float, H: float, excess: float = 0.0) -> Callable[[int], float]:
    """Step sizes eta_t = eta / (1 + mu eta t), t = 0, 1, ...: the lemma's 1 / (2 H) at first, 1 / (mu t) in the end.

    mu, H : smallest and largest curvature of the objective (mu <= 0, a flat one, counts as H / 100).
    excess : by how much the largest curvature seen on a batch exceeds H, relative to it (about p / batch_size for p
    standardised directions); the paper asks for steps that are small enough for the variance, eta = 1 / (2 H (1 + excess)).
    """
    if not (H > 0 and np.isfinite(H)):
        raise ValueError(f"the largest curvature H must be a positive number, got {H!r}")
    eta, least = 1 / (2 * H * (1 + excess)), mu if mu > 0 else H / 100
    return lambda t: eta / (1 + least * eta * t)


def sgd(
    gradient: Callable[[Array, IntArray], Array],
    theta0: Array,
    n_rows: int,
    *,
    batch_size: int = 100,
    n_steps: int = 1000,
    step_size: Callable[[int], float],
    projection: Callable[[Array], Array] = lambda theta: theta,
    random_state: int = 0,
) -> SGDResult:
    """theta <- projection(theta - eta_t gradient(theta, rows)) over mini-batches of rows.

    gradient(theta (p,), rows (b,)) : the gradient (p,) of what is to be MINIMISED, measured on the rows with these numbers
    (sorted, no duplicates). Rows are shuffled once per pass and cut into batches of equal size, at most n_rows; what is left
    over waits for the next pass. step_size : the step number t = 0, 1, ... -> eta_t. projection : maps theta back into a convex
    region after every step: with it nothing can diverge.
    """
    for name, value in (("n_rows", n_rows), ("batch_size", batch_size), ("n_steps", n_steps)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    rng, batch = np.random.default_rng(random_state), min(batch_size, n_rows)
    path, moved = [np.array(theta0, dtype=np.float64)], np.zeros(n_steps, dtype=bool)
    order, at = rng.permutation(n_rows), 0
    for t in range(n_steps):
        if at + batch > n_rows:
            order, at = rng.permutation(n_rows), 0
        stepped = path[-1] - step_size(t) * np.asarray(gradient(path[-1], np.sort(order[at : at + batch])))
        at += batch
        if not np.isfinite(stepped).all():
            raise FloatingPointError(
                f"the gradient of step {t + 1} is not finite: give a projection that keeps theta where the gradient is "
                "defined, or smaller steps"
            )
        path.append(projection(stepped))
        moved[t] = bool(np.any(path[-1] != stepped))
    half = n_steps // 2
    return SGDResult(np.mean(path[half + 1 :], axis=0), np.stack(path), float(moved[half:].mean()))
