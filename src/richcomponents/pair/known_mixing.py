"""Whether the data can have come from an A that is given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from richcomponents.algebra import Array
from richcomponents.errors import DataError
from richcomponents.inference.verdicts import Test, against_noise
from richcomponents.moments import Moments
from richcomponents.pair.canonical import Canonical, canonical_of, resolve_rank

SAYS = "The known A does not fit the data: no admissible covariance of the shared part gives Cov(U, V) with it."
REMEDY = "Check its sign, units and the order of columns, or leave out A=."

STEPS = 400
"""Of alternating directions."""

ABSURD = 1e-6
"""p-value below which an A that explains nothing is refused, and how near the ends of its range T counts as at them."""

LARGEST = 20_000_000
"""Numbers in the test's design, beyond which A is not tested."""


def check_known_mixing(second: Moments, n_u: int, rank: object, mixing: Array) -> Test | None:
    """Whether the data can have come from A (d_v, d_u); second : of the columns (U, V).

    DataError where A explains nothing at all (its sign, its units, or its columns are not those of the data). None where there
    is nothing to test: no shared direction, hardly any blocks, or very many columns.
    """
    found = canonical_of(second, n_u)
    r, used = resolve_rank(rank, found), second.block_sizes > 0
    unknowns = r * (r + 1) // 2 + r * (found.rank_u - r)
    if not r or used.sum() < 3 or unknowns * found.rank_u * max(found.rank_u, found.rank_v) > LARGEST:
        return None
    blocks = second.block_covariances()[used][:, :n_u, n_u:]
    cross = found.x_from_u @ blocks @ found.y_from_v.T
    result, explained = mixing_test(found, r, mixing, cross, second.block_sizes[used].astype(np.float64))
    if explained <= 0 and result.p_value < ABSURD and not second.dependent:
        raise DataError(
            "the known A contradicts the data: with no covariance of a shared part does it explain any of Cov(U, V). "
            "Check its sign, the units of the columns, and that its rows follow the columns of V and its columns those of U; "
            "or leave out A="
        )
    return result


def mixing_test(canonical: Canonical, rank: int, mixing: Array, cross: Array, count: Array) -> tuple[Test, float]:
    """Test of Cov(U, V) = S A' for some admissible covariance S of S2, and the share of Cov(U, V) that the best S explains.

    mixing : A (d_v, d_u); cross : Cov(x, y) of each block, (B, rank_u, rank_v), in the coordinates of `canonical`; count :
    (B,), rows of the blocks.

    S = [[S11, S12], [S21, S21 S11^-1 S12]] has rank r; admissible is D^2 <= S11 <= I on the shared coordinates. (S12 is small,
    not zero: the shared directions of the sample are not quite those of S2.) S minimises the misfit D - S A_c' in units of its
    Gaussian noise. What it leaves, in the directions that no admissible change of S can reach, is noise if A is right; the
    blocks tell how large that noise is and how many directions it has (Satterthwaite's degrees of freedom). Where S is at
    an end of its range it counts as not free. A share below zero: every admissible S is worse than no shared part.
    """
    r, (blocks, p, q) = rank, cross.shape
    D = np.zeros((p, q))
    np.fill_diagonal(D, canonical.correlations)
    inner = (canonical.y_from_v @ mixing @ canonical.u_from_x).T  # A_c' (p, q)
    low = canonical.correlations[:r] ** 2
    h = np.sqrt(1 - low)
    weigh = _gaussian_weights(D)
    rows, cols = np.tril_indices(r)
    basis = np.zeros((len(rows), r, r))
    basis[np.arange(len(rows)), rows, cols] = basis[np.arange(len(rows)), cols, rows] = np.where(
        rows == cols, 1, 0.5**0.5
    )
    outside = np.zeros((r * (p - r), p, p))
    index, i, j = np.arange(len(outside)), *np.divmod(np.arange(len(outside)), max(p - r, 1))
    outside[index, i, r + j] = outside[index, r + j, i] = 1.0

    def image(changes: Array) -> Array:
        """Changes (m, r, r) of T -> what they do to S A_c', weighed (m, p q)."""
        moved = np.zeros((len(changes), p, q))
        moved[:, :r] = (h[:, None] * changes * h) @ inner[:r]
        return weigh(moved).reshape(len(changes), p * q)

    of_outside = weigh(outside @ inner).reshape(len(outside), p * q)
    design = np.vstack([image(basis), of_outside])
    start = D.copy()
    start[:r] -= low[:, None] * inner[:r]
    lower, found = np.zeros((p - r, p - r)), []
    for _ in range(2):  # S22 is of second order: once S12 is known, and where it helps (chance directions make it huge)
        start[r:] = D[r:] - lower @ inner[r:]
        target = weigh(start[None]).ravel()
        t, beyond = _best_admissible(design, target, basis)
        found.append((target - np.concatenate([np.tensordot(basis, t, 2), beyond]) @ design, t))
        S12 = beyond.reshape(r, p - r)
        lower = S12.T @ np.linalg.solve(np.diag(low) + h[:, None] * t * h, S12)
    left, t = min(found, key=lambda one: float(one[0] @ one[0]))
    values, vectors = np.linalg.eigh(t)
    at = np.where(values < ABSURD, 0, np.where(values > 1 - ABSURD, 1, 2))
    free = image((vectors @ basis @ vectors.T)[(at[rows] != at[cols]) | (at[rows] == 2)])
    reach = span(np.vstack([free, of_outside]))
    left = left - reach.T @ (reach @ left)
    own = weigh(cross - np.average(cross, axis=0, weights=count)).reshape(blocks, -1)
    own = (own - (own @ reach.T) @ reach) * (count / count.sum())[:, None]
    explained = 1 - float(left @ left) / float(np.sum(weigh(D[None]) ** 2))
    return Test("known A", *against_noise(left, own, left.size - len(reach)), SAYS, REMEDY), explained


def _gaussian_weights(D: Array) -> Callable[[Array], Array]:
    """(..., p, q) errors of Cov(x, y) -> errors of equal variance: Cov(e_ij, e_kl) = d_ik d_jl + D_il D_kj, in 2 x 2 blocks."""
    r = min(D.shape)
    d = np.diag(D)
    pair = np.multiply.outer(d, d)

    def weigh(errors: Array) -> Array:
        out = np.array(errors, dtype=np.float64)
        square = out[..., :r, :r]
        mirror = np.swapaxes(square, -1, -2)
        # e_ij + e_ji has variance 2 (1 + D_i D_j), e_ij - e_ji has 2 (1 - D_i D_j)
        out[..., :r, :r] = (square + mirror) / (2 * np.sqrt(1 + pair)) + (square - mirror) / (2 * np.sqrt(1 - pair))
        return out

    return weigh


def _best_admissible(design: Array, target: Array, basis: Array) -> tuple[Array, Array]:
    """argmin |target - (t, free) @ design|^2 over 0 <= T = sum_m t_m basis_m <= I: T and the free numbers.

    By alternating directions (ADMM): a ridge regression, a projection, and the difference remembered.
    """
    m = len(basis)
    values, vectors = np.linalg.eigh(design @ design.T)
    top = max(float(values[-1]), 1e-300)
    values, cross = np.maximum(values / top, 0.0), design @ target / top
    rate = float(np.sqrt(np.clip(values[values > 1e-8].min(initial=1.0), 1e-6, 1.0)))
    solve = (vectors / (values + rate)) @ vectors.T
    kept, slack = np.zeros(len(design)), np.zeros(len(design))
    for _ in range(STEPS):
        found = solve @ (cross + rate * (kept - slack))
        before, kept = kept, found + slack
        kept[:m] = np.tensordot(basis, project(np.tensordot(kept[:m], basis, 1)), 2)
        slack = slack + found - kept
        if max(np.abs(kept - before).max(), np.abs(kept - found).max()) < 1e-9 * max(1.0, np.abs(kept).max()):
            break
    return np.tensordot(kept[:m], basis, 1), kept[m:]


def span(design: Array) -> Array:
    """Orthonormal rows that span those of design (m, k)."""
    turn, small = np.linalg.qr(design.T)  # singular values and vectors of m numbers, not of k
    _, sizes, rows = np.linalg.svd(small.T, full_matrices=False)
    return np.asarray(rows[sizes > 1e-9 * max(sizes.max(initial=0.0), 1e-300)] @ turn.T)


def project(t: Array) -> Array:
    """Nearest matrices with eigenvalues in [0, 1]: (..., r, r)."""
    values, vectors = np.linalg.eigh(t)
    return np.asarray((vectors * np.clip(values, 0.0, 1.0)[..., None, :]) @ vectors.swapaxes(-1, -2))
