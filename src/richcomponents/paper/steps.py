"""Section 5: stochastic gradient steps over mini-batches of rows, with the path they take.

:func:`sgd` knows nothing of components or models: it is given the gradient of a mean over a batch of rows. On true samples that
is the exact gradient, for a hidden component the polynomial gradient whose cumulants are those of the batch. Both leave the
same kind of trajectory, which is what the paper's learning curves compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray


@dataclass(frozen=True)
class SGDResult:
    """Where mini-batch steps led.

    theta : (p,), the mean of the iterates of the second half (Polyak and Juditsky 1992), less noisy than the last one.
    trajectory : (n_steps + 1, p), the start and the iterate after each step.
    confined : the share of the steps of the second half that the projection took back.
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


def ball(radius: float) -> Callable[[Array], Array]:
    """The projection of (p,) onto |theta| <= radius."""
    return lambda theta: theta * min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-300))


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
    region after every step, such as :func:`ball`: with it nothing can diverge.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(3.0, size=(2000, 1))
    >>> path = sgd(lambda theta, rows: theta - x[rows].mean(axis=0), np.zeros(1), 2000, step_size=lambda t: 0.1)
    >>> bool(abs(path.theta[0] - x.mean()) < 0.02), path.trajectory.shape
    (True, (1001, 1))
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
