"""Evidence: what tells T.

CROSS-CUMULANTS of order three and four, the paper's own.

With r shared directions, z = (x, y) and w = (h^-1 (x - K y), y) the jointly whitened z, the higher orders see the shared part
through k3(x_i, y_j, w_a) and k4(x_i, y_j, w_b, w_a): one slot in each view makes S1 and S3 drop out. All rows of M, their
unfolding with the last slot free, lie in the row space of Cov(S2, w), the one of R = [T | h^-1 K], and tr(P G),
P = R'(R R')^-1 R, is largest at the true T in expectation, where G is the mean of M_a'M_b over pairs of DIFFERENT blocks: the
plain Gram is signal + noise, and with r^3 rows the noise swamps the signal.

Two ways to the same matrices (`form_of` chooses):

* "state": block cumulants of order four of z are formed, packed, and multiplied: O(n r^4), B r^4 numbers. Any number of
  rows, and states without rows.
* "pairs": M_a'M_b = E_a E_b [(x.x') (y.y') (w.w') w w'] over rows of both blocks, less the pairings: O(n^2 r), no tensor.

EQUATIONS between second moments that hold at the true T.

    g(T) = 0 but for noise,      nats -(n / 2) g(T)' N^-1 g(T).

N / n = Cov(g) at FIXED T for Gaussian rows, by the delta method: S moves with the sample, so that N is not the noise at fixed
S. Whitened entries of a sample covariance are independent, with variances 1 / n (2 / n on the diagonal). g must not vanish
at an end of T whatever the data are: with fixed weights that end would always look right.

They count as far as their chi-square test does not reject. Effects, whose tables are real and fail every exact test, divide the
nats by the dispersion chi-square / degrees of freedom at the best T instead, as in quasi-likelihood; a dispersion has no scale,
so that equations which hold nowhere would tell T, too: with weights of their best T that T goes elsewhere, often from one
end to the other, and they count as far as it stays.

* OWN PARTS of different groups of columns do not correlate. Where every column is a group of its own, errors of columns are
  independent of each other (separate assays); tests | instruments as groups is two-stage least squares; two assays as groups of
  controls tell T by second moments, too. g : the CORRELATIONS of Cov(S1) and of Cov(S3) between different groups.
  (Covariances of S1 vanish as T goes to I.)
* S1 IS SPIKED: the same, in every frame of the directions beside its leading ones. For these only.
* A IS KNOWN: Cov(x, V) = S (A from_x)', in white units of V.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import jackknife_variance, power, symmetric
from richcomponents.algebra.packing import packed_rank
from richcomponents.cumulants.kstatistics import block_grams, linearised_block_cumulants
from richcomponents.errors import DataError
from richcomponents.inference.posterior import Modes, Prior, T_of, best, entries, logistic, symmetric_of
from richcomponents.inference.verdicts import RULES, Test, against_noise
from richcomponents.moments.state import Moments
from richcomponents.pair.views import SINGULAR, BlockSums, Canonical, Pair, remaining_p_value


@dataclass(frozen=True, eq=False)
class CrossCumulants:
    """grams (2, B, B, 2r, 2r) : M_a'M_b by order, their last slot in the coordinates (x, y) of the whole sample."""

    grams: Array
    scale: Array = field(default_factory=lambda: np.array([1 / 4, 1 / 8]))
    name: str = "skewness and kurtosis"
    _seen: dict[int, tuple[Pair, Array]] = field(default_factory=dict, repr=False)

    def _gram(self, pair: Pair) -> Array:
        """G (2, ..., 2r, 2r) in w."""
        if id(pair) not in self._seen:
            white, kept = pair.whitening, pair.kept
            pairs = kept[..., :, None] * kept[..., None, :] * (1 - np.eye(kept.shape[-1]))
            mean = np.tensordot(pairs / pairs.sum((-1, -2), keepdims=True), self.grams, ((-2, -1), (1, 2)))
            mean = np.moveaxis(mean, -3, 0)
            self._seen[id(pair)] = pair, white @ (mean + mean.mT) / 2 @ white.mT
        return self._seen[id(pair)][1]

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        G, r = self._gram(pair), T.shape[-1]
        G = G.reshape(2, *(1,) * (T.ndim - G.ndim + 1), *G.shape[1:])
        R = row_space(pair, T)
        dual = np.linalg.solve(R @ R.mT, R)
        inner = dual @ G @ R.mT
        slope = (dual @ G)[..., :r] - inner @ dual[..., :r]
        return pair.n * np.trace(inner, axis1=-2, axis2=-1), pair.n[..., None, None] * (slope + slope.mT)

    def weighed(self, pair: Pair, T: Array) -> CrossCumulants:
        return self

    def above_noise(self, values: Array) -> Array:
        """An energy is a square: the share above its jackknife variance counts."""
        noise = jackknife_variance(values.T) / np.maximum(values.mean(1) ** 2, 1e-300)
        return np.asarray(np.maximum(1 - noise, 0.0))

    def use(self, pair: Pair, left_out: Pair, T: Array) -> tuple[float, Test]:
        """As far as its test does not reject: energy of the cumulants outside the fitted row space, with a sign-flip p-value.

        Block a contributes psi_a = M_a E + mean(M) dE_a: its own cumulants outside the row space and, to first order, its
        influence on that space through T and through the second moments. Under the model the psi_a are independent with mean
        zero, so that flipping their signs does not change the law of sum_{a != b} <psi_a, psi_b>. T is the one that the
        cumulants alone ask for: shrinkage leaves signal outside the fitted row space, which is no misspecification.
        """
        values, vectors = np.linalg.eigh(T)
        values = np.clip(values, 1e-6, 1 - 1e-6)
        centre = entries((vectors * np.log(values / (1 - values))) @ vectors.T)
        top = Modes.of([self], pair, [Prior(pair, 3.0, centre=centre)])
        e0 = _outside(pair, logistic(symmetric_of(top.X[0]))[0])
        each = _outside(left_out, top.without_blocks([self], pair, left_out)[0])
        test = _flip_test(_inner_products(self.grams, e0, each, pair.whitening.T))
        return test.allowed, test

    def strength(self, pair: Pair, T: Array, end: Array) -> float:
        """Energy above that of the end, over its standard error under random signs of the blocks: without any signal their
        cumulants are noise about zero. (A jackknife does not tell the error of a degenerate U-statistic.)"""
        white = pair.whitening
        contrast = white.T @ (projector(pair, T) - projector(pair, end)) @ white
        q = np.tensordot(np.tensordot(self.scale, self.grams, 1), contrast, 2) * (1 - np.eye(self.grams.shape[1]))
        return float(q.sum() / np.sqrt(2 * np.sum(q**2) + 1e-300))


def row_space(pair: Pair, T: Array) -> Array:
    """R (..., r, 2r), in w."""
    return np.concatenate(np.broadcast_arrays(T, pair.slope), axis=-1)


def projector(pair: Pair, T: Array) -> Array:
    """P (..., 2r, 2r), in w."""
    R = row_space(pair, T)
    return np.asarray(R.mT @ np.linalg.pinv(R @ R.mT, hermitian=True) @ R)


def _outside(pair: Pair, T: Array) -> Array:
    """E (..., 2m, 2m) with M E = the part of the cumulants M outside the row space of [S | K], in the sample's (x, y)."""
    lift = pair.whitening.mT
    outside = np.eye(lift.shape[-1]) - projector(pair, T)
    return np.asarray(lift @ outside @ np.linalg.inv(lift))


def _inner_products(grams: Array, e0: Array, each: Array, metric: Array) -> Array:
    """<psi_a, psi_b> per order, (2, B, B), zero on the diagonal.

    Means over blocks leave out a and b (first correction) or all pairs of a block with itself (second): the squared noise of
    m^3 rows would swamp the signal there as it does in the plain Gram matrix.
    """
    blocks = grams.shape[1]
    e0, influence = e0 @ metric, -(blocks - 1) * (each - each.mean(0)) @ metric
    off = 1 - np.eye(blocks)
    others = ((grams * off[:, :, None, None]).sum(2)[:, :, None] - grams) / (blocks - 2)
    overall = np.stack([np.tensordot(off / off.sum(), one, 2) for one in grams])
    first = np.tensordot(grams, e0 @ e0.T, 2)
    cross = np.einsum("mabij,bij->mab", others, e0 @ influence.mT)
    flat = influence.reshape(blocks, -1)
    both = np.stack([(one @ influence).reshape(blocks, -1) @ flat.T for one in overall])
    inner = first + cross + cross.mT + both
    return np.asarray((inner + inner.mT) / 2 * off)


def _flip_test(inner: Array, flips: int = 1999) -> Test:
    """One-sided: the largest of the orders' sums and of their total, each over its root mean square under random signs."""
    says = "Cross-cumulants do not have the structure of U = S1 + S2, V = A S2 + S3 with independent parts."
    fits = "Cross-cumulants do not contradict U = S1 + S2, V = A S2 + S3 with independent parts."
    size = np.sqrt(2 * (inner**2).sum((1, 2)))
    k = inner[size > 0] / size[size > 0, None, None]
    if len(k) == 0:
        return Test("fit", 0.0, (), 1.0, fits)
    if len(k) > 1:
        total = k.sum(0)
        k = np.concatenate([k, (total / np.sqrt(2 * (total**2).sum()))[None]])
    s = np.random.default_rng(0).choice([-1.0, 1.0], (flips, k.shape[1]))
    null = np.max([np.sum(s @ one * s, axis=1) for one in k], axis=0)
    stat = float(k.sum((1, 2)).max())
    p = (1 + int((null >= stat).sum())) / (1 + flips)
    return Test("fit", stat, (), p, says if p < RULES["fit"].below[-1][0] else fits)


# ---- Gram matrices between blocks of samples


def form_of(n: int, r: int, n_blocks: int) -> str:
    """How the evidence of n rows about r shared directions is read: pairs are cheaper for few rows and many directions."""
    return "pairs" if 4 * n_blocks <= n < r**3 / 10 else "state"


def grams(state: Moments, correlations: Array, *, order: int = 4) -> Array:
    """Gram matrices M_a'M_b of all pairs of non-empty blocks: (2 orders, B, B, 2r, 2r), last slot z = (x, y).

    state : moments of the leading coordinates z = (x_1..x_r, y_1..y_r). Each block is scaled by its rows over the mean
    number of rows, so that plain means over (pairs of) blocks give every row the same weight. order=3 leaves the
    second matrix zero. Memory: about 10 (2 B r)^2 doubles (50 MB for r = 20, B = 20).
    """
    sizes = state.block_sizes[state.block_sizes > 0]
    B, r, m = len(sizes), len(correlations), 2 * len(correlations)
    out, h = np.zeros((2, B, B, m, m)), np.sqrt(1 - correlations**2)[:, None, None]
    for t in range(3, order + 1):
        packed = np.ascontiguousarray((linearised_block_cumulants(state, t) * (sizes / sizes.mean())[:, None]).T)
        product = np.zeros((m * B, m * B))
        for i in range(r):
            slots = np.stack(np.meshgrid(i, np.arange(r, m), *[np.arange(m)] * (t - 2), indexing="ij"), axis=-1)
            rows = packed[packed_rank(np.sort(slots, axis=-1), m)[0]]  # (y_j, [z_b,] z_a, block)
            if t == 4:  # w_b in the place of z_b
                rows[:, :r] = (rows[:, :r] - correlations[:, None, None] * rows[:, r:]) / h
            flat = rows.reshape(-1, m * B)
            product += flat.T @ flat
        out[t - 3] = product.reshape(m, B, m, B).transpose(1, 3, 0, 2)
    return out


def implicit_grams(z: Array, correlations: Array, *, n_blocks: int) -> Array:
    """The same from rows z (n, 2r) compared in pairs: O(n^2 r).

    Block cumulants are k-statistics of their own rows here: slightly noisier, equally unbiased.
    """
    (x, y), h = np.hsplit(z - z.mean(axis=0), 2), np.sqrt(1 - correlations**2)
    w = np.hstack([(x - correlations * y) / h, y])
    return block_grams([x, y, w], np.hstack([x, y]), n_blocks=n_blocks, below=True)


INSIDE = 5e-4
"""How far T is kept from its ends, at which Cov(S1) or Cov(S3) is zero and has no correlations."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Equations:
    """weight : N^-1 (k, k); stated : by the user, and used even where nothing can contradict it; dispersed : counted over
    their dispersion, where a real table fails every exact test, instead of as far as their test does not reject."""

    name: str
    stated: bool = False
    dispersed: bool = False
    weight: Array = field(default_factory=lambda: np.zeros((0, 0)))
    scale: Array = field(default_factory=lambda: np.ones(1))

    @property
    @abstractmethod
    def count(self) -> int:
        """Equations."""

    @abstractmethod
    def at(self, pair: Pair, T: Array) -> tuple[Array, Callable[[Array], Array]]:
        """g (..., k), and the map from y (..., k) to the gradient (..., r, r) in T of y'g."""

    def residual(self, pair: Pair, T: Array) -> Array:
        """g (..., k)."""
        return self.at(pair, T)[0]

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        g, pulled = self.at(pair, T)
        y = g @ self.weight
        return -pair.n / 2 * np.sum(y * g, -1)[None], -(pair.n[..., None, None] * pulled(y))[None]

    @abstractmethod
    def weighed(self, pair: Pair, T: Array) -> Self:
        """With N^-1 at T."""

    def above_noise(self, values: Array) -> Array:
        return np.ones(len(values))

    def use(self, pair: Pair, left_out: Pair, T: Array) -> tuple[float, Test]:
        """As far as the test does not reject; or one over the dispersion, as far as T stays where it is with weights that are
        right there. What nothing can contradict is not used, unless it was stated."""
        misfit, spare = -2 * float(self.parts(pair, T)[0][0]), self.count - len(entries(T))
        p = float(stats.chi2.sf(misfit, spare)) if spare > 0 else float("nan")
        test = Test("errors", misfit, (max(spare, 0),), p)
        if spare <= 0 or (self.stated and not self.dispersed):
            return float(self.stated), test
        if not self.dispersed:
            return test.allowed, test
        moved = T_of(best([self.weighed(pair, T)], pair, [Prior(pair, 2.0)])[0]) - T
        return (1 - np.abs(np.linalg.eigvalsh(moved)).max()) * min(1.0, spare / max(misfit, 1e-300)), test

    def strength(self, pair: Pair, T: Array, end: Array) -> float:
        """The likelihood ratio as a normal number (Wilson and Hilferty)."""
        there, at_end = (float(np.tensordot(self.scale, self.parts(pair, one)[0], 1)) for one in (T, end))
        ratio, m = max(2 * (there - at_end), 0.0), len(entries(T))
        return float((np.cbrt(ratio / m) - 1 + 2 / (9 * m)) / np.sqrt(2 / (9 * m)))


@dataclass(frozen=True, eq=False, kw_only=True)
class UncorrelatedOwnParts(Equations):
    """groups_u (d_u,), groups_v (d_v,) : the group of each column; -1 : its correlations are not looked at; most :
    equations that are used, because the noise of more takes longer than all the rest."""

    name: str = "independent errors"
    groups_u: IntArray
    groups_v: IntArray
    most: int = 2500

    @cached_property
    def compared(self) -> list[IntArray]:
        """The columns of U and of V that are looked at."""
        return [np.flatnonzero(groups >= 0) for groups in (self.groups_u, self.groups_v)]

    @cached_property
    def between(self) -> list[tuple[IntArray, IntArray]]:
        """Pairs of these, of different groups."""
        pairs = []
        for groups, columns in zip((self.groups_u, self.groups_v), self.compared, strict=True):
            i, j = np.triu_indices(len(columns), 1)
            differ = groups[columns[i]] != groups[columns[j]]
            pairs.append((i[differ], j[differ]))
        return pairs

    @property
    def count(self) -> int:
        return sum(len(i) for i, _ in self.between)

    def frame(self, W: Array) -> Array:
        """(..., k, d_u): what is compared of U, where Cov(S1) is W."""
        return np.eye(W.shape[-1])[self.compared[0]]

    def _own_u(self, pair: Pair, T: Array) -> tuple[Array, Array, Array]:
        """W and F of what is compared of U, and its loadings on x."""
        (own, F, *_), u = pair.in_columns, self.compared[0]
        own, F = own[..., u[:, None], u], F[..., u, :]
        return own - F @ T @ F.mT, F, pair.canonical.u_from_x[u]

    def _own(self, pair: Pair, T: Array) -> list[tuple[int, Array, Array, Array]]:
        """Of S1 and of S3: sign and F (..., d, r) with dW = sign F dT F', correlations R and standard deviations of W."""
        (*_, cov_v, G), v, (own, F, on_x) = pair.in_columns, self.compared[1], self._own_u(pair, T)
        cov_v, G, on_y, out = cov_v[..., v[:, None], v], G[..., v, :], pair.canonical.v_from_y[v], []
        turned = np.linalg.solve(pair.S(T), G.mT)
        for sign, way, W, load in ((-1, F, own, on_x), (1, turned.mT @ pair.h, cov_v - G @ turned, on_y)):
            # without one block hardly anything may be left of a column
            least = SINGULAR * np.sum(load**2, axis=-1) + 1e-300
            size = np.sqrt(np.maximum(np.diagonal(W, axis1=-2, axis2=-1), least))
            out.append((sign, way, W / size[..., :, None] / size[..., None, :], size))
        return out

    def weighed(self, pair: Pair, T: Array) -> Self:
        """With N^-1 at T; no evidence with very many equations, or with so few that `use` would say no."""
        if not (0 if self.stated else len(entries(T))) < self.count <= self.most:
            return replace(self, scale=np.zeros(1))
        lifts = self.frame(pair.cov_s1(inside(T))) @ pair.canonical.u_from_x, pair.canonical.v_from_y[self.compared[1]]
        own = [(R, size) for _, _, R, size in self._own(pair, inside(T))]
        noise = noise_of(pair, inside(T), lifts, own, self.between)
        ridge = 1e-8 * float(np.trace(noise)) * np.eye(len(noise))  # equations that say the same twice
        return replace(self, weight=symmetric(np.asarray(np.linalg.inv(noise + ridge), dtype=np.float64)))

    def at(self, pair: Pair, T: Array) -> tuple[Array, Callable[[Array], Array]]:
        """d rho_ij = dW_ij / (s_i s_j) - rho_ij (dW_ii / W_ii + dW_jj / W_jj) / 2."""
        T = inside(T)
        own = self._own(pair, T)

        def pulled(y: Array) -> Array:
            slope, first = np.zeros(np.broadcast_shapes(T.shape, pair.K.shape)), 0
            for (sign, way, R, size), (i, j) in zip(own, self.between, strict=True):
                Y = np.zeros(np.broadcast_shapes(R.shape, (*y.shape[:-1], 1, 1)))
                Y[..., i, j] = Y[..., j, i] = y[..., first : first + len(i)] / 2
                Y = (Y - np.sum(Y * R, -1)[..., None] * np.eye(R.shape[-1])) / size[..., :, None] / size[..., None, :]
                slope, first = slope + sign * way.mT @ Y @ way, first + len(i)
            return np.asarray((1 - 2 * INSIDE) * slope)

        g = [R[..., i, j] for (_, _, R, _), (i, j) in zip(own, self.between, strict=True)]
        return np.concatenate(g, axis=-1), pulled


@dataclass(frozen=True, eq=False, kw_only=True)
class Spiked(UncorrelatedOwnParts):
    """Cov(S1) = k leading directions + sigma^2 I, as probabilistic principal components have it, and errors of V are
    independent; basis (d_u, .) : eigenvectors of Cov(S1) near the right T, the k leading ones last.

    Given the leading directions the others have the covariance sigma^2 I, but for the SQUARE of the angle by which the basis is
    off: in no orthonormal frame of them do own parts correlate. Correlations in the basis, and of the sum and the difference
    of two neighbours (equal variances), say all of it. They alone are fewer than the entries of a T of full rank, and could
    not be contradicted; those of V beside them can.
    """

    name: str = "spiked"
    groups_u: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    k: int
    basis: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def between(self) -> list[tuple[IntArray, IntArray]]:
        m = max(self.basis.shape[1] - self.k, 0)
        (i, j), sums = np.triu_indices(m, 1), m + 2 * np.arange(max(m - 1, 0))
        return [(np.append(i, sums), np.append(j, sums + 1)), *super().between[1:]]

    @cached_property
    def _neighbours(self) -> Array:
        """(., m): these directions, and sums and differences of neighbours."""
        one = np.eye(max(self.basis.shape[1] - self.k, 0))
        return np.concatenate([one, np.stack([one[:-1] + one[1:], one[:-1] - one[1:]], 1).reshape(-1, len(one))])

    def weighed(self, pair: Pair, T: Array) -> Self:
        vectors = np.linalg.eigh(pair.cov_s1(inside(T)))[1]
        return super(Spiked, replace(self, basis=vectors[:, len(vectors) - pair.canonical.rank_u :])).weighed(pair, T)

    def _own_u(self, pair: Pair, T: Array) -> tuple[Array, Array, Array]:
        own, F, *_ = pair.in_columns
        own = own - F @ T @ F.mT
        B = self.frame(own)
        return B @ own @ B.mT, B @ F, B @ pair.canonical.u_from_x

    def frame(self, W: Array) -> Array:
        """S1 along the last directions given the leading ones; its covariance B W B' moves with W as if B were fixed."""
        rest, top = np.split(self.basis.T, [-self.k])
        with_top = W @ top.T
        return np.asarray(self._neighbours @ (rest - np.linalg.solve(top @ with_top, (rest @ with_top).mT).mT @ top))


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownMixing(Equations):
    """A (d_v, d_u) in the user's columns: Cov(x, V) = S (A from_x)', in white units of V.

    Weights are those of the Gaussian noise of Cov(x, y), Cov(e_ij, e_kl) = d_ik d_jl + D_il D_kj, in 2 x 2 blocks: sums
    e_ij + e_ji have the variance 2 (1 + D_i D_j), differences 2 (1 - D_i D_j). Blocks tell what else is in it.
    """

    name: str = "known A"
    stated: bool = True
    A: Array

    @property
    def count(self) -> int:
        return self.weight.size

    def at(self, pair: Pair, T: Array) -> tuple[Array, Callable[[Array], Array]]:
        found, k = pair.canonical, pair.canonical.rank_u
        white = power(pair.cov_y, -0.5, 1e-8)
        loadings = pair.from_x.mT @ (found.y_from_v @ self.A @ found.u_from_x).T @ white
        g = pair.to_x @ pair.covariance[..., :k, k:] @ white - pair.S(T) @ loadings

        def pulled(y: Array) -> Array:
            slope = -self._white(y) @ loadings.mT
            return np.asarray(pair.h @ (slope + slope.mT) @ pair.h / 2)

        return self._white(g), pulled

    def _white(self, errors: Array) -> Array:
        """Errors (..., r, k_v) of equal variance."""
        out, m = np.array(errors), min(self.weight.shape)
        square, mirror, product = out[..., :m, :m], out[..., :m, :m].mT, self.weight[:m, :m]
        plus, minus = (square + mirror) / np.sqrt(1 + product), (square - mirror) / np.sqrt(1 - product)
        out[..., :m, :m] = (plus + minus) / 2
        return out

    def parts(self, pair: Pair, T: Array) -> tuple[Array, Array]:
        g, pulled = self.at(pair, T)
        return -pair.n / 2 * np.sum(g**2, (-1, -2))[None], -(pair.n[..., None, None] * pulled(g))[None]

    def weighed(self, pair: Pair, T: Array) -> Self:
        """weight (r, k_v) : D_i D_j, not so near one that the noise of second order counts."""
        D = np.zeros(max(pair.rank, pair.canonical.rank_v))
        D[: pair.rank] = pair.canonical.correlations[: pair.rank]
        return replace(self, weight=np.minimum(np.outer(D[: pair.rank], D[: pair.canonical.rank_v]), 0.9))

    def use(self, pair: Pair, left_out: Pair, T: Array) -> tuple[float, Test]:
        """What a user states is used. The test: what the best T leaves, outside of what another T reaches, is noise, whose size
        and number of directions the blocks tell."""
        unit = symmetric_of(np.eye(len(entries(T))))
        whole, each = self.residual(pair, T), self.residual(left_out, np.broadcast_to(T, left_out.K.shape))
        reach = (self.residual(pair, T + unit) - whole).reshape(len(unit), -1)  # linear in T
        basis = np.linalg.qr(reach.T)[0]
        own = (each - each.mean(axis=0)).reshape(len(each), -1) * (len(each) - 1) / len(each)
        own = own - (own @ basis) @ basis.T
        says = "The known A does not fit the data: no admissible covariance of the shared part gives Cov(U, V) with it."
        remedy = "Check its sign, units and the order of columns, or leave out A=."
        return 1.0, Test("known A", *against_noise(whole.ravel(), own, self.count - len(reach)), says, remedy)


def check_known_mixing(canonical: Canonical, sums: BlockSums, rank: int, A: Array, dependent: bool) -> Test | None:
    """Whether the data can have come from A (d_v, d_u); None where nothing is shared, or hardly any blocks are there.

    DataError where A explains nothing of Cov(U, V), which no chance can do: then its sign, units or columns are not the data's.
    A direction that may be shared by chance contradicts nothing.
    """
    if not rank or len(sums.count) < 3:
        return None
    pair = Pair.whole(canonical, len(sums.count), rank).leading()
    left_out = Pair.left_out(canonical, sums, rank).leading()
    prior = Prior(pair, 6.0)
    evidence = KnownMixing(A=A).weighed(pair, logistic(symmetric_of(prior.centre))[0])
    T = logistic(symmetric_of(best([evidence], pair, [prior])[0]))[0]
    test = evidence.use(pair, left_out, T)[1]
    nothing = KnownMixing(A=0 * A, weight=evidence.weight)
    explains = evidence.parts(pair, T)[0][0] > nothing.parts(pair, T)[0][0]
    if not explains and test.p_value < 1e-6 and not dependent:
        raise DataError(
            "the known A contradicts the data: with no covariance of a shared part does it explain any of Cov(U, V). "
            "Check its sign, the units of the columns, and that its rows follow the columns of V and its columns those of U; "
            "or leave out A="
        )
    return replace(test, p_value=max(test.p_value, remaining_p_value(canonical, rank - 1)))


def inside(T: Array) -> Array:
    """T, a little away from its ends."""
    return np.asarray(T + INSIDE * (np.eye(T.shape[-1]) - 2 * T))


# ---- the noise of correlations of own parts


def noise_of(
    pair: Pair,
    T: Array,
    lifts: tuple[Array, Array],
    own: list[tuple[Array, Array]],
    between: list[tuple[IntArray, IntArray]],
) -> Array:
    """n Cov(g) (k, k) of the correlations g of own parts at fixed T, by the delta method, from first-order perturbation of
    canonical coordinates.

    pair : of a whole sample; lifts : from x and y to columns; own : correlations and standard deviations of the columns' own
    parts; between : pairs of columns. Entries of Cov(x, y) between coordinates that are not shared move own covariances only:
    these are a sample covariance, in closed form. The others, a few times rank times columns, move K, S and the loadings.
    """
    r, k = pair.rank, pair.to_x.shape[-1]
    D = np.asarray(pair.covariance[:k, k:])
    ways = [_seen(way / size[:, None], min(D.shape)) for way, (_, size) in zip(lifts, own, strict=True)]
    D, slopes = D[: ways[0].shape[1], : ways[1].shape[1]], []
    for way, move, (R, _), (i, j) in zip(ways, _own_moves(pair, T, D), own, between, strict=True):
        square = np.einsum("ik,ukl,il->ui", way, move, way, optimize=True)
        moved = way @ move @ way.T
        slopes.append(moved[:, i, j] - R[i, j] * (square[:, i] + square[:, j]) / 2)
    A = np.concatenate(slopes, axis=1)
    u, v = (way[:, r:] for way in ways)
    P = np.block([[u @ u.T, u @ D[r:, r:] @ v.T], [v @ D[r:, r:].T @ u.T, v @ v.T]])
    i, j = (np.concatenate([between[0][k], len(u) + between[1][k]]) for k in (0, 1))
    rho = np.concatenate([R[at] for (R, _), at in zip(own, between, strict=True)])
    return np.asarray(A.T @ A + _wishart(P, i, j, rho))


def _moves(D: Array, r: int) -> tuple[Array, Array, Array]:
    """Changes of Cov(x), Cov(x, y), Cov(y), (units, ., .), for every entry of E with one of the r shared coordinates: sample
    covariances move as R E R', R = [[I, 0], [D', (I - D'D)^1/2]], E symmetric with independent entries."""
    k_u, p = len(D), sum(D.shape)
    shared = np.zeros(p, dtype=bool)
    shared[:r] = shared[k_u : k_u + r] = True
    i, j = np.tril_indices(p)
    i, j = i[shared[i] | shared[j]], j[shared[i] | shared[j]]
    E = np.zeros((len(i), p, p))
    E[np.arange(len(i)), i, j] = E[np.arange(len(i)), j, i] = np.where(i == j, np.sqrt(2), 1)
    a, b, c = E[:, :k_u, :k_u], E[:, :k_u, k_u:], E[:, k_u:, k_u:]
    h = np.sqrt(np.maximum(1 - np.sum(D**2, axis=0), 0.0))
    bh = b * h
    aD = a @ D
    across = D.T @ bh
    return a, aD + bh, D.T @ aD + across + across.mT + h[:, None] * c * h


def _own_moves(pair: Pair, T: Array, D: Array) -> tuple[Array, Array]:
    """Changes of Cov(S1) and Cov(S3) in (x, y), for every such entry of E."""
    r, (ex, exy, ey) = pair.rank, _moves(D, pair.rank)
    every = np.diag(D)
    d, beyond, least = every[:r], every[r:], 1 / float(pair.n)
    K, h, S = np.diag(d), np.sqrt(1 - d**2), pair.K @ pair.K.T + pair.h @ T @ pair.h
    m = exy - ex @ D / 2 - D @ ey / 2
    dK = m[:, :r, :r]
    dh = -(dK * d + (dK * d).mT) / (h[:, None] + h)
    moved = dh @ (T * h)
    dS = dK * d + (dK * d).mT + moved + moved.mT
    dF, dG = ex[:, :, :r] / 2, ey[:, :, :r] / 2
    dF[:, r:] += _turn(m[:, r:, :r], m[:, :r, r:].mT, d, beyond, least)
    dG[:, r:] += _turn(m[:, :r, r:].mT, m[:, r:, :r], d, beyond, least)
    dx, dy = ex.copy(), ey.copy()
    back = np.linalg.solve(S, K)
    dM = dK.mT @ back + back.mT @ dK - back.mT @ dS @ back
    for out, load, core, change in ((dx, dF, S, dS), (dy, dG, K @ back, dM)):
        out[:, :, :r] -= load @ core
        out[:, :r, :] -= core @ load.mT
        out[:, :r, :r] -= change
    return dx, dy


def _turn(mine: Array, others: Array, d: Array, beyond: Array, least: float) -> Array:
    """(units, rest, r): how far leading directions turn to the others; least : a gap between squares of correlations."""
    rest, both = np.zeros(mine.shape[1]), np.zeros_like(mine)
    rest[: len(beyond)], both[:, : len(beyond)] = beyond, others[:, : len(beyond)]
    gap = np.maximum(d**2 - rest[:, None] ** 2, least)
    return np.asarray((d * mine + rest[:, None] * both) / gap)


def _seen(way: Array, m: int) -> Array:
    """Of the coordinates beyond the m that have partners as many directions as the columns (d, k) show: any rotation of these
    coordinates is as good as another, and nothing moves with the rest."""
    return np.hstack([way[:, :m], np.linalg.qr(way[:, m:].T)[1].T])


def _wishart(P: Array, i: IntArray, j: IntArray, rho: Array) -> Array:
    """Covariance of C_ij - rho_ij (C_ii + C_jj) / 2 where entries of C have covariances P_ik P_jl + P_il P_jk."""

    def plain(a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> Array:
        return np.asarray(P[np.ix_(a, c)] * P[np.ix_(b, d)] + P[np.ix_(a, d)] * P[np.ix_(b, c)])

    mixed = plain(i, j, i, i) + plain(i, j, j, j)  # with C_kk + C_ll
    squares = plain(i, i, i, i) + plain(i, i, j, j) + plain(j, j, i, i) + plain(j, j, j, j)
    half = rho / 2
    return np.asarray(plain(i, j, i, j) - mixed * half - (mixed * half).T + np.outer(half, half) * squares)
