"""Section 5: models of S1 from the rows of U and V, by equations (2), (3) and the learners of Section 4. Nothing is protected.

Equation (3) is one cross-cumulant, by linearity: k_t(S1) = k_t(U) - k_t(U, ..., U, A^-1 V) = k_t(U, ..., U, R), R = U - A^-1 V.
So everything here reads U in all slots but one and R in that one. On true samples R = U, and the same functions show what
their polynomials alone do.

What the paper leaves open: the sizes and the number of gradient steps (decreasing, averaged over the second half), and where
they may lead. The cubic likelihood has no maximum: steps stay where the standard deviation of theta'U is at most 1.85, the end
of the interval on which the cubic is the sigmoid, and where that holds them back it is warned of. Couplings stay below the
largest that the Ising learners allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array, IntArray, symmetrise
from richcomponents.cumulants import cross_cumulant
from richcomponents.errors import SpecificationWarning, warn_user
from richcomponents.learning.ising import MAX_COUPLING, coupling_matrix
from richcomponents.learning.mixture import MixtureCumulants
from richcomponents.paper.contrastive import mixing_matrix, truncated_pinv
from richcomponents.paper.gradient import BOUND, CHEBYSHEV, INTERVAL
from richcomponents.paper.moments import alternating_minimisation, least_squares, principal_components
from richcomponents.paper.steps import SGDResult, robbins_monro, sgd

_N_STEPS = 300  # of the gradients: a thousand lead to the same errors


@dataclass(frozen=True)
class Extraction:
    """S1 as :func:`extract` gives it: U (n, d), centred; R (n, d), centred, U - A^-1 V; mean (d,), of S1.

    Examples
    --------
    >>> s1 = true_samples(np.array([[0.0], [0.0], [1.0], [3.0]]))
    >>> s1.second.item(), s1.cumulant(3).round(6).item()
    (2.0, 4.0)
    """

    U: Array
    R: Array
    mean: Array

    @property
    def second(self) -> Array:
        """E[S1 S1'] about the mean, (d, d): k2(U, R), symmetrised."""
        return symmetrise(self.U.T @ self.R / (len(self.U) - 1))

    def cumulant(self, order: int) -> Array:
        """k_t(S1) of any order t, by equation (3), (d,) * t, symmetrised."""
        return symmetrise(cross_cumulant(*[self.U] * (order - 1), self.R))

    def take(self, rows: IntArray) -> Extraction:
        """Some of the rows, about their own means: a mini-batch."""
        U, R = self.U[rows], self.R[rows]
        return Extraction(U - U.mean(axis=0), R - R.mean(axis=0), self.mean)


def extract(
    U: Array, V: Array, A: Array | None = None, *, rank: int | None = None, mean_s3: Array | float = 0.0
) -> Extraction:
    """S1 by equations (2) and (3) from the views U (n, d_u) and V (n, d_v): what the learners below take.

    A : (d_v, d_u), by equation (2) where it is not known; rank : of the shared part, if it is known to be low (Appendix D).
    mean_s3 : E[S3], from which those of S2 and S1 follow (Section 3.1).

    Examples
    --------
    >>> U, V = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([[0.0], [0.0], [3.0], [3.0]])
    >>> extract(U, V, np.eye(1)).R.ravel().tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """
    if A is None:
        A = mixing_matrix(U, V, rank=rank)
    inverse = truncated_pinv(A, rank)
    mean = U.mean(axis=0) - inverse @ (V.mean(axis=0) - mean_s3)
    u = U - U.mean(axis=0)
    return Extraction(u, u - (V - V.mean(axis=0)) @ inverse.T, mean)


def true_samples(S: Array) -> Extraction:
    """Samples of S1 itself, (n, d), in the place of what is extracted: the paper's gold standard.

    Examples
    --------
    >>> true_samples(np.array([[1.0], [3.0]])).mean.tolist()
    [2.0]
    """
    centred = S - S.mean(axis=0)
    return Extraction(centred, centred, S.mean(axis=0))


def contrastive_pca(s1: Extraction) -> Array:
    """Contrastive PCA (Section 5): the top direction (d,) of E[S1 S1'].

    Examples
    --------
    >>> abs(contrastive_pca(true_samples(np.diag([3.0, 1.0, 1.0])[:, :2]))).round(1).tolist()
    [1.0, 0.2]
    """
    return np.asarray(principal_components(s1.second, 1)[0])


def contrastive_regression(s1: Extraction, y: Array) -> Array:
    """Contrastive regression (Section 4.1): beta (d,) = E[S1 S1']^-1 E[Y S1], E[Y S1] = E[Y U] since Y is independent of S2.

    Examples
    --------
    >>> contrastive_regression(true_samples(np.array([[0.0], [1.0], [2.0]])), np.array([1.0, 3.0, 5.0])).round(
    ...     6
    ... ).tolist()
    [2.0]
    """
    return least_squares(s1.second, s1.U.T @ y / (len(y) - 1))


def contrastive_mixture(s1: Extraction, k: int, *, random_state: int = 0) -> Array:
    """Contrastive mixture: centres (k, d) of equally likely spherical Gaussians, by alternating minimisation on the third-order
    moment: one start, ten where a centre is missing, and a hundred steps of each (fifty times the work gains nothing).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S1 = np.eye(2)[rng.integers(2, size=4000)] + rng.normal(size=(4000, 2)) / 10
    >>> bool(np.abs(np.sort(contrastive_mixture(true_samples(S1), 2), axis=0) - [[0, 0], [1, 1]]).max() < 0.05)
    True
    """
    target, rng = MixtureCumulants(s1.second, s1.cumulant(3), None, s1.second), np.random.default_rng(random_state)
    found = alternating_minimisation(target, s1.mean, k, rng, equal_weights=True, n_init=1, max_iter=100)
    return np.asarray(found.means + s1.mean)


def contrastive_logistic(
    s1: Extraction, y: Array, *, batch_size: int = 100, n_steps: int = _N_STEPS, random_state: int = 0
) -> SGDResult:
    """Contrastive logistic regression (Section 4.2): theta (d,) by stochastic steps along :func:`chebyshev_gradient`.

    y : (n,) of 0 and 1. As there, no intercept, and E[X] = 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S1 = rng.uniform(-1, 1, size=(4000, 1))
    >>> y = (S1[:, 0] > rng.logistic(size=4000)).astype(float)
    >>> bool(abs(contrastive_logistic(true_samples(S1), y).theta[0] - 1) < 0.3)
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
        warn_user(BOUND, SpecificationWarning)
    return path


def chebyshev_gradient(s1: Extraction, y: Array, theta: Array) -> Array:
    """E[Y X] - 0.245 E[X (theta'X)] + 0.014 E[X (theta'X)^3], (d,), as it stands in Section 4.2, X = S1 with E[X] = 0.

    y : (n,) of 0 and 1. The last term is k4(U, w, w, R theta) + 3 k2(U, R theta) k2(w, R theta), w = U theta: a projection,
    which takes linear time.

    Examples
    --------
    >>> X, y = np.array([[-1.0], [1.0], [-1.0], [1.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> chebyshev_gradient(true_samples(X), y, np.zeros(1)).round(4).tolist()
    [0.6667]
    """
    _, linear, _, cubic = CHEBYSHEV
    w, r = s1.U @ theta, s1.R @ theta
    with_y, k2 = s1.U.T @ y / (len(w) - 1), s1.U.T @ r / (len(w) - 1)
    moment = fourth_cumulant(s1.U, w[:, None], w[:, None], r[:, None]) + 3 * k2 * (w @ r / (len(w) - 1))
    return np.asarray(with_y - linear * k2 - cubic * moment)


def contrastive_ising(
    s1: Extraction, edges: IntArray, *, batch_size: int = 100, n_steps: int = _N_STEPS, random_state: int = 0
) -> SGDResult:
    """Contrastive Ising model: couplings (m,) by stochastic steps along :func:`taylor_gradient` (Appendix D).

    Examples
    --------
    >>> S1 = np.tile([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]], (500, 1))
    >>> bool(contrastive_ising(true_samples(S1), np.array([[0, 1]])).theta[0] > 0.2)
    True
    """
    degree = int(np.bincount(edges.ravel()).max())
    return sgd(
        lambda J, rows: -taylor_gradient(s1.take(rows), edges, J),
        np.zeros(len(edges)),
        len(s1.U),
        batch_size=batch_size,
        n_steps=n_steps,
        step_size=robbins_monro(0.0, float(degree)),
        projection=lambda J: np.clip(J, -MAX_COUPLING, MAX_COUPLING),
        random_state=random_state,
    )


def taylor_gradient(s1: Extraction, edges: IntArray, couplings: Array) -> Array:
    """E[2 S_i S_j - S_i^2 S_j h_i - S_i S_j^2 h_j], (m,), h_i = sum_k J_ik S_k: as Appendix D has it.

    E[S_i^2 S_j h_i] = k4(U_i, U_i, U_j, Rh_i) + k2_ii k2(U_j, Rh_i) + 2 k2_ij k2(U_i, Rh_i), Rh = R J.

    Examples
    --------
    >>> S1 = np.array([[1.0, 1.0], [-1.0, -1.0]] * 3)
    >>> taylor_gradient(true_samples(S1), np.array([[0, 1]]), np.zeros(1)).round(6).tolist()
    [2.4]
    """
    n, d = s1.U.shape
    field = s1.R @ coupling_matrix(d, edges, couplings)
    second = s1.second
    total = 2 * second[tuple(edges.T)]
    for i, j in (edges.T, edges.T[::-1]):
        a, b, h = s1.U[:, i], s1.U[:, j], field[:, i]
        with_field = [np.einsum("nm,nm->m", x, h) / (n - 1) for x in (a, b)]
        pairs = second[i, i] * with_field[1] + 2 * second[i, j] * with_field[0]
        total = total - fourth_cumulant(a, a, b, h) - pairs
    return np.asarray(total)


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
