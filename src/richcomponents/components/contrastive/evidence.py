"""Block cumulants of the leading canonical coordinates and the Gram matrices between blocks.

Notation: r shared directions, z = (x, y) with 2r entries, B disjoint blocks of rows.

The higher orders see the shared part through the cross-cumulants

    k3(w_a, x_i, y_j)       and       k4(w_a, w_b, x_i, y_j),      w = (e, y),  e = h^-1 (x - D y),

where w is the jointly whitened (x, y): Cov(w) = I.  One slot in each view makes S1 and S3 drop out,
so that every row (all slots but the last fixed) lies in the row space of Cov(S2, w) = [h T | D].

A plain Gram matrix M'M of these rows is signal plus noise, and the noise wins.  Products of DIFFERENT
blocks, M_a'M_b with a != b, have independent noise and therefore no bias; only they are ever used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array


@dataclass(frozen=True)
class BlockMoments:
    """Sums over the rows of each block, of products of z about the GLOBAL mean.

    ``fourth`` may be a sequence of per-block arrays (it is read one block at a time), each either the
    full tensor (2r, 2r, 2r, 2r) or only its part (x, y, z, z) of shape (r, r, 2r, 2r).
    """

    counts: Array  # (B,)
    first: Array  # (B, 2r)
    second: Array  # (B, 2r, 2r)
    third: Array  # (B, 2r, 2r, 2r)
    fourth: Sequence[Array] | Array  # B times (r, r, 2r, 2r) or (2r, 2r, 2r, 2r)

    @property
    def rank(self) -> int:
        """The number r of shared directions."""
        return int(self.first.shape[1]) // 2


def block_moments(z: Array, blocks: int = 20) -> BlockMoments:
    """Block sums from rows z (n, 2r); row i belongs to block i mod ``blocks``."""
    z = z - z.mean(0)
    r = z.shape[1] // 2
    counts, first, second, third, fourth = [], [], [], [], []
    for b in range(blocks):
        rows = z[b::blocks]
        pairs = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        cross = (rows[:, :r, None] * rows[:, None, r:]).reshape(len(rows), -1)
        counts.append(len(rows))
        first.append(rows.sum(0))
        second.append(rows.T @ rows)
        third.append((pairs.T @ rows).reshape(2 * r, 2 * r, 2 * r))
        fourth.append((cross.T @ pairs).reshape(r, r, 2 * r, 2 * r))
    return BlockMoments(np.array(counts, float), np.array(first), np.array(second), np.array(third), fourth)


def joint_whitening(correlations: Array) -> Array:
    """The map W (2r, 2r) from z = (x, y) to w = (h^-1 (x - D y), y), for correlations D (r,)."""
    r = len(correlations)
    h = np.sqrt(1 - correlations**2)
    out = np.eye(2 * r)
    out[:r, :r] = np.diag(1 / h)
    out[:r, r:] = np.diag(-correlations / h)
    return out


def block_cumulants(moments: BlockMoments, whiten: Array) -> Iterator[tuple[Array, Array]]:
    """Per block: k3(w, x, y) as (2r, r r) and k4(w, w, x, y) as (2r, 2r r r).

    The cumulants are linearised about the global mean and covariance Sigma: with block means m, block
    second moments C and the global third moment M3,

        k3 = E z^3 - sum over 3 of Sigma x m,
        k4 = E z^4 - sum over 3 pairings of [C x Sigma + Sigma x (C - Sigma)] - sum over 4 of m x M3,

    so that their average, weighted by the counts, is exactly the global plug-in cumulant.
    """
    r = moments.rank
    total = float(np.sum(moments.counts))
    sigma = np.sum(moments.second, axis=0) / total
    global3 = np.sum(moments.third, axis=0) / total
    sigma_xy = sigma[:r, r:]
    sigma_wz, sigma_ww = whiten @ sigma, whiten @ sigma @ whiten.T
    sigma_wx, sigma_wy = sigma_wz[:, :r], sigma_wz[:, r:]
    global_wxy = np.tensordot(whiten, global3, 1)[:, :r, r:]
    global_wwz = np.einsum("ac,bd,cdz->abz", whiten, whiten, global3, optimize=True)
    work = np.empty((2 * r, 2 * r, r, r))
    crossed = np.empty_like(work)
    for b, count in enumerate(np.maximum(moments.counts, 1.0)):
        mean = moments.first[b] / count
        cov = moments.second[b] / count
        mean_x, mean_y, mean_w = mean[:r], mean[r:], whiten @ mean
        cov_xy = cov[:r, r:]
        cov_wz, cov_ww = whiten @ cov, whiten @ cov @ whiten.T
        cov_wx, cov_wy = cov_wz[:, :r], cov_wz[:, r:]

        k3 = np.tensordot(whiten, moments.third[b] / count, 1)[:, :r, r:]
        k3 = k3 - mean_w[:, None, None] * sigma_xy
        k3 -= sigma_wx[:, :, None] * mean_y + sigma_wy[:, None, :] * mean_x[:, None]

        raw = moments.fourth[b]
        raw = raw[:r, r:] if raw.shape[0] == 2 * r else raw  # (x, y, z, z)
        half = (raw.reshape(r * r * 2 * r, 2 * r) @ (whiten.T / count)).reshape(r * r, 2 * r, 2 * r)
        k4 = (whiten @ half.transpose(2, 1, 0)).reshape(2 * r, 2 * r, r, r)  # (w, w, x, y)
        # E[w w] E[x y] and m_x, m_y with M3: outer products of (w, w) with (x, y)
        left = np.stack([sigma_ww.ravel(), (cov_ww - sigma_ww).ravel()], axis=1)
        right = np.stack([cov_xy.ravel(), sigma_xy.ravel()])
        k4 -= (left @ right).reshape(k4.shape)
        k4 -= np.multiply(global_wwz[:, :, None, r:], mean_x[:, None], out=work)
        k4 -= np.multiply(global_wwz[:, :, :r, None], mean_y, out=work)
        # the two pairings that cross, and m_w with M3, each in both orders of (w, w)
        np.multiply(cov_wx[:, None, :, None], sigma_wy[None, :, None, :], out=crossed)
        crossed += np.multiply(sigma_wx[:, None, :, None], (cov_wy - sigma_wy)[None, :, None, :], out=work)
        crossed += np.multiply(mean_w[:, None, None, None], global_wxy, out=work)
        k4 -= crossed
        k4 -= crossed.swapaxes(0, 1)
        yield k3.reshape(2 * r, -1), k4.reshape(2 * r, -1)


def grams(moments: BlockMoments, correlations: Array) -> Array:
    """Gram matrices M_a'M_b of all pairs of blocks: (2 orders, B, B, 2r, 2r), last slot w.

    Each block is scaled by its count over the mean count, so that plain means over blocks (and over pairs
    of blocks) give every row the same weight.
    Memory: 4 B r^4 doubles at its peak (about 100 MB for r = 20, B = 20).
    """
    r = moments.rank
    n_blocks = len(moments.counts)
    order3 = np.empty((n_blocks, 2 * r, r**2))
    order4 = np.empty((n_blocks, 2 * r, 2 * r**3))
    for b, (k3, k4) in enumerate(block_cumulants(moments, joint_whitening(correlations))):
        share = moments.counts[b] * n_blocks / np.sum(moments.counts)
        np.multiply(k3, share, out=order3[b])
        np.multiply(k4, share, out=order4[b])
    out = np.empty((2, n_blocks, n_blocks, 2 * r, 2 * r))
    for order, columns in enumerate((order3, order4)):
        flat = columns.reshape(n_blocks * 2 * r, -1)
        out[order] = (flat @ flat.T).reshape(n_blocks, 2 * r, n_blocks, 2 * r).swapaxes(1, 2)
    return out


def pair_mean(gram: Array, left: Array, right: Array) -> Array:
    """Weighted mean over pairs of different blocks of ``gram`` (..., B, B, k, k) -> (..., k, k), symmetric.

    ``left`` and ``right`` (B,) are block weights; the pair (a, b) gets left_a right_b + right_a left_b.
    """
    weights = np.outer(left, right)
    weights = weights + weights.T
    np.fill_diagonal(weights, 0.0)
    mean = np.tensordot(weights / weights.sum(), np.moveaxis(gram, (-4, -3), (0, 1)), 2)
    return np.asarray((mean + mean.swapaxes(-1, -2)) / 2)
