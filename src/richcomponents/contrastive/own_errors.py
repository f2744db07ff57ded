"""Independent errors: what second moments say about T if the own parts of a view's columns do not depend on each other.

Nothing but S2 makes two columns of U go together then: Cov(S1) is diagonal, and so is all that the true T leaves of Cov(U).
With L = from_x, M = from_y the loadings of the shared coordinates, S = Cov(S2) = D D' + h T h and D = Cov(x, y),

    g_ab = [Cov(U) - L S L']_ab,  a < b,         g_ij = [Cov(V) - M D' S^-1 D M']_ij,  i < j,

are noise: the first are linear in S, the second in D' S^-1 D. These are d (d - 1) / 2 equations of a view with d columns for
r (r + 1) / 2 unknowns, for any law of S2, Gaussian included. They enter the estimate of T beside the energy of the
cumulants, as the log-likelihood

    -(1 / 2) g' R [w P + v (I - P)] R' g,     R R' = K^-1,     K / n = Cov(g) for Gaussian data at fixed S,

P the projector on what a change of S can do to R' g. Minimising it is generalised least squares, as good as joint
maximum likelihood of the factors (benchmarks/structure.py). w and v are inverse variances by blocks: a log-likelihood has a
curvature equal to the variance of its score. T is S relative to the second moments of the same rows, and so far less noisy
than S: what S2 does by chance is in both. w counts the noise at fixed T.

NOISE. To first order g is the mean of quadratic forms in z = (x, y). With S fixed, R the projector beyond the first r
coordinates, and the loadings of U and V on S2 read off the first r columns and rows of Cov(x, y),

    x x' - R x (S D^-1 y)' - (S D^-1 y) x' R      and      y y' - y (D S^-1 x)' - (D S^-1 x) y',

in the columns of U and of V; forms z'B z have the covariances 2 tr(B Sigma B' Sigma).

TEST. More equations than unknowns can be contradicted. Three things are tested, each against the noise of the blocks (F tests):
whether some S explains Cov(U) off its diagonal, whether some D' S^-1 D explains Cov(V), and whether both are of one S. What
cannot be tested is not used, and where one view fails nothing is: an own factor of the other view in the directions of S2 would
pass its test alone (with hidden labs, a mixed S1 and 300 rows, V alone made coefficients a quarter worse). A user who knows
that a view's errors are independent can say so. A test with few equations overlooks much; the likelihood is flattened by the
largest misfit that it cannot exclude (the upper confidence limit of its statistic).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy import linalg, stats

from richcomponents.algebra import Array, IntArray
from richcomponents.contrastive.pair import BlockCovariances, Pair, near_pair
from richcomponents.contrastive.posterior import INFLATION, KNOWN_PRIOR_SD, PRIOR_CENTRE, Logistic, symmetric_matrices
from richcomponents.cumulants.estimate import delete_one
from richcomponents.pair.canonical import Canonical
from richcomponents.storage import storable
from richcomponents.text import p_value

HOLDS, FAILS = 0.1, 0.01
"""p-values from which on errors are taken as independent, and up to which they are not."""

OVERLOOKED = 0.1
"""Level of the upper confidence limit of the misfit that is allowed for."""

_STEPS = 15  # at most, of Gauss and Newton towards the T at which errors are tested
_CLOSE = 1e-6  # changes of T that end them
_EDGE = 0.01  # eigenvalues of that T are as far from 0 and 1
_INDEPENDENT = 1e-6  # diagonal of a QR decomposition, as a share of its largest, from which rows are surely independent
_FLOOR = 1e-10  # eigenvalues of the noise that count as zero, as a share of the largest


@lru_cache(maxsize=8)
def _above(d: int) -> IntArray:
    """Where the entries above the diagonal stand in a flat (d, d)."""
    i, j = np.triu_indices(d, 1)
    return np.asarray(i * d + j)


@lru_cache(maxsize=8)
def _entry_of(d: int) -> IntArray:
    """(d, d): which entry above the diagonal stands here or in its mirror image; the number of them on the diagonal."""
    k = d * (d - 1) // 2
    out = np.full((d, d), k)
    out.reshape(-1)[_above(d)] = np.arange(k)
    return np.asarray(np.minimum(out, out.T))


def off_diagonal(matrix: Array) -> Array:
    """(..., d, d) -> the entries above the diagonal, (..., d (d - 1) / 2)."""
    d = matrix.shape[-1]
    return np.take(matrix.reshape(*matrix.shape[:-2], d * d), _above(d), axis=-1)


def _spread(entries: Array, d: int) -> Array:
    """Entries (..., d (d - 1) / 2) -> the symmetric (..., d, d) with half of them on each side: the adjoint of the above."""
    halves = np.concatenate([entries / 2, np.zeros((*entries.shape[:-1], 1))], axis=-1)
    return np.take(halves, _entry_of(d), axis=-1)


@dataclass(frozen=True)
class OwnCovariances:
    """g at any T, of a sample or of a stack of replicates, in units of standard deviations of the columns.

    total : off the diagonals of Cov(U) and Cov(V), (..., k); left L (..., d_u, r), right M D' (..., d_v, r).
    """

    total: Array
    left: Array
    right: Array
    square: Array
    h: Array

    @classmethod
    def of(cls, pair: Pair, scale_u: Array, scale_v: Array) -> OwnCovariances:
        cov_u = pair.cov_u() / np.outer(scale_u, scale_u)
        cov_v = pair.cov_v() / np.outer(scale_v, scale_v)
        cross = pair.cross
        return cls(
            np.concatenate([off_diagonal(cov_u), off_diagonal(cov_v)], axis=-1),
            pair.from_x / scale_u[:, None],
            (pair.from_y / scale_v[:, None]) @ np.swapaxes(cross, -1, -2),
            cross @ np.swapaxes(cross, -1, -2),
            pair.h,
        )

    def shared(self, t: Array) -> Array:
        """S."""
        return np.asarray(self.square + self.h @ t @ self.h)

    def at(self, t: Array) -> Array:
        """g (..., k)."""
        S = self.shared(t)
        of_u = self.left @ S @ np.swapaxes(self.left, -1, -2)
        of_v = self.right @ np.linalg.solve(S, np.swapaxes(self.right, -1, -2))
        return np.asarray(self.total - np.concatenate([off_diagonal(of_u), off_diagonal(of_v)], axis=-1))

    def designs(self, t: Array) -> tuple[Array, Array]:
        """Of a sample: what each entry of T adds to what S explains of U and V, off the diagonals, (m, k_u) and (m, k_v)."""
        back = self.right @ np.linalg.inv(self.shared(t))
        return _entries_of(self.left @ self.h), -_entries_of(back @ self.h)

    def pulled_back(self, t: Array, weights: Array) -> Array:
        """The gradient (..., r, r) in T of weights' g."""
        d_u, d_v = self.left.shape[-2], self.right.shape[-2]
        k = d_u * (d_u - 1) // 2
        back = self.right @ np.linalg.inv(self.shared(t))
        of_u = np.swapaxes(self.left, -1, -2) @ _spread(weights[..., :k], d_u) @ self.left
        of_v = np.swapaxes(back, -1, -2) @ _spread(weights[..., k:], d_v) @ back
        return np.asarray(self.h @ (of_v - of_u) @ self.h)


def _entries_of(loadings: Array) -> Array:
    """What each entry of a symmetric X (r, r), lower triangle, adds to F X F' off its diagonal, F (d, r): (m, k)."""
    (i, j), (a, b) = np.triu_indices(len(loadings), 1), np.tril_indices(loadings.shape[1])
    first, second = loadings.T[:, i], loadings.T[:, j]
    out = first[a] * second[b]
    out += np.where(a == b, 0.0, 1.0)[:, None] * first[b] * second[a]
    return np.asarray(out)


@dataclass(frozen=True)
class OwnTerm:
    """-g' precision g / 2 times a share, of a sample or a stack of replicates: what `SharedEnergy` adds to the energy."""

    precision: Array
    own: OwnCovariances
    whole: OwnCovariances | None = None
    share: Array | float = 1.0

    def value_and_slope(self, t: Array) -> tuple[Array, Array]:
        g, share = self.own.at(t), np.asarray(self.share)
        weights = g @ self.precision
        slope = self.own.pulled_back(t, weights)
        return -share / 2 * np.sum(g * weights, axis=-1), -share[..., None, None] * slope

    def bend(self, t: Array) -> Callable[[Array], Array]:
        """With P the design of the entries of T, g changes by -P' dT and the slope by P precision P' dT. With W the weights'
        matrix of V, back = M D' S^-1 and N = back' W back, the slope in S has the part N of V, which changes by
        -(S^-1 dS N + N dS S^-1) too."""
        own, share = self.own, float(self.share)
        inverse = np.linalg.inv(own.shared(t))
        weights = own.at(t) @ self.precision
        d_v, k_v = own.right.shape[-2], own.right.shape[-2] * (own.right.shape[-2] - 1) // 2
        back = own.right @ inverse
        inner = back.T @ _spread(weights[len(weights) - k_v :], d_v) @ back
        first, second = own.h @ inverse, inner @ own.h
        design = np.hstack(own.designs(t))
        rows, cols = np.tril_indices(len(own.h))
        linear = design @ self.precision @ design.T / np.where(rows == cols, 1.0, 2.0)  # entries of slopes stand twice

        def bend(moved: Array) -> Array:
            turned = first @ (own.h @ moved @ own.h) @ second
            change = symmetric_matrices(moved[:, rows, cols] @ linear)
            return np.asarray(share * (change - turned - np.swapaxes(turned, -1, -2)))

        return bend

    def value_on_the_rest(self, t: Array, near: Array) -> Array:
        """g is a mean over rows, to first order. How far the rest deviates from all rows is read off at T = near: noise that
        changes with T would be taken for evidence."""
        assert self.whole is not None
        share = np.asarray(self.share)[..., None]
        rest = self.whole.at(t) + share / (1 - share) * (self.whole.at(near) - self.own.at(near))
        return np.asarray(-np.sum(rest @ self.precision * rest, axis=-1) / 2)


@storable
@dataclass(frozen=True)
class IndependentErrors:
    """What was found of the errors' independence, and the weights of g.

    Draws of the posterior are INFLATION times wider than its curvature, for the sake of the cumulants. These nats are as many
    as they say, and count INFLATION times.

    precision (k, k) : the log-likelihood is -g' precision g / 2; empty where nothing is said. scale_u, scale_v : standard
    deviations of the columns. p_u, p_v, p_both : of the three tests, nan where there is nothing to test. used : weights in
    [0, 1] of both views together, of U alone and of V alone. t : T at which these equations hold best.
    """

    precision: Array
    scale_u: Array
    scale_v: Array
    p_u: float
    p_v: float
    p_both: float
    used: tuple[float, float, float]
    t: Array

    @property
    def silent(self) -> bool:
        return not len(self.precision)

    def words(self) -> str:
        """For the summary."""
        tests = [("U", self.p_u), ("V", self.p_v), ("both agree", self.p_both)]
        shown = ", ".join(f"{name} {p_value(p)}" for name, p in tests if not np.isnan(p)) or "not tested"
        both, u, v = self.used
        if self.silent:
            tested = not all(np.isnan(p) for _, p in tests)
            return f"not independent ({shown})" if tested else "too few columns to test whether they are independent"
        where = [name for name, share in (("both views", both), ("U", u), ("V", v)) if share > 0]
        share = "" if both + u + v > 0.995 else f", used to {both + u + v:.0%}"
        return f"independent in {' or '.join(where)} ({shown}){share}: second moments tell T"

    def of(self, pair: Pair) -> OwnTerm:
        """Of a sample or a stack of replicates, in their own coordinates."""
        return OwnTerm(self.precision, OwnCovariances.of(pair, self.scale_u, self.scale_v))


@dataclass(frozen=True)
class ErrorsByBlock:
    """The same block by block, in the canonical coordinates of all rows: see `posterior.FurtherEvidence`."""

    errors: IndependentErrors
    canonical: Canonical
    rank: int
    moments: BlockCovariances

    @property
    def near(self) -> Array:
        return self.errors.t

    @property
    def trust(self) -> float:
        return sum(self.errors.used)

    def strength(self, t: Array, other: Array) -> float:
        """Wald's chi-square as a normal number (Wilson and Hilferty)."""
        rows, cols = np.tril_indices(self.rank)
        entries, unknowns = (t - other)[rows, cols], len(rows)
        spread = 2 / (9 * unknowns)
        return float((np.cbrt(entries @ self._curvature(t) @ entries / unknowns) - (1 - spread)) / np.sqrt(spread))

    def information(self, t: Array) -> Array:
        """The other entries unknown, as far as a prior lets them be."""
        prior, (rows, cols) = _prior_precision(self.rank), np.tril_indices(self.rank)
        left = np.diag(np.linalg.inv(self._curvature(t) + np.diag(prior)))[rows == cols]
        return np.asarray(1 / left - prior[rows == cols])

    def _curvature(self, t: Array) -> Array:
        """Of the log-likelihood in the entries of T, to first order of g: (m, m)."""
        design = np.hstack(self._whole.designs(t))
        return np.asarray(design @ self.errors.precision @ design.T / INFLATION)

    def of(self, weights: Array, share: Array | float = 1.0) -> OwnTerm:
        return OwnTerm(self.errors.precision, self._at(weights), self._whole, share)

    @cached_property
    def _whole(self) -> OwnCovariances:
        return self._at(np.ones(len(self.moments.count)))

    def _at(self, weights: Array) -> OwnCovariances:
        pair = near_pair(self.canonical, self.rank, self.moments.covariance(weights))
        return self.errors.of(pair).own


def noise_of(canonical: Canonical, rank: int, S: Array, scale_u: Array, scale_v: Array) -> Array:
    """K (k, k) at S = Cov(S2).

    With z = (x, y) each form is a signed sum of products (f_a'z)(f_b'z): with u = own + shared loadings, b those of S D^-1 y,
    u u' - own b' - b own' = u u' - (own + b)(own + b)' / 2 + (own - b)(own - b)' / 2, and v v' - v c' - c v' = (v - c)(v - c)'
    - c c'. Of (f_a'z)(f_b'z) and (g_i'z)(g_j'z) the covariance is H_ai H_bj + H_aj H_bi, H = f Sigma g'.
    """
    r, p, D = rank, canonical.rank_u, canonical.correlations
    left, right = canonical.u_from_x / scale_u[:, None], canonical.v_from_y / scale_v[:, None]
    sigma, both = np.eye(p + canonical.rank_v), np.arange(len(D))
    sigma[both, p + both] = sigma[p + both, both] = D

    def on(first: int, loadings: Array) -> Array:
        """Loadings (d, j) on coordinates z from the first one on: (d, p + q)."""
        out = np.zeros((len(loadings), len(sigma)))
        out[:, first : first + loadings.shape[1]] = loadings
        return out

    u, own, b = on(0, left), on(r, left[:, r:]), on(p, left[:, :r] @ (S / D[:r]))
    v, c = on(p, right), on(0, right[:, :r] @ (D[:r, None] * np.linalg.inv(S)))
    of_u = [(1.0, u)] if r == p else [(1.0, u), (-0.5, own + b), (0.5, own - b)]
    of_v = [(1.0, v - c), (-1.0, c)]
    cross = _covariances(of_u, of_v, sigma)
    return np.block([[_covariances(of_u, of_u, sigma), cross], [cross.T, _covariances(of_v, of_v, sigma)]])


def _covariances(first: list[tuple[float, Array]], second: list[tuple[float, Array]], sigma: Array) -> Array:
    """Between forms sum_c sign_c (f_a'z)(f_b'z), a < b, of Gaussian z: (k, k')."""
    (a, b), (i, j) = (np.triu_indices(len(forms[0][1]), 1) for forms in (first, second))
    out = np.zeros((len(a), len(i)))
    for sign, f in first:
        for other, g in second:
            H = f @ sigma @ g.T
            of_i, of_j = H[:, i], H[:, j]
            out += sign * other * (of_i[a] * of_j[b] + of_j[a] * of_i[b])
    return out


def _inverse_root(noise: Array) -> tuple[Array, int]:
    """A root R (k, k) of the inverse, R R' = noise^-1, on the range of the noise, and the dimension of that."""
    factor, fails = linalg.lapack.dpotrf(noise, lower=1, clean=1)
    scale = np.diag(factor)
    if not fails and len(noise) and scale.min() ** 2 > _FLOOR * scale.max() ** 2:
        return np.asarray(linalg.lapack.dtrtri(factor, lower=1)[0].T), len(noise)
    values, vectors = np.linalg.eigh(noise)
    kept = values > _FLOOR * float(values.max(initial=1e-300))
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T), int(kept.sum())


def against_noise(left: Array, own: Array, most: int) -> tuple[float, tuple[float, float], float]:
    """|left|^2 (k,) over its expectation, its degrees of freedom and the p-value, if left is noise.

    own (B, k) : contributions of the blocks, which add up to that noise; most : directions that it can have. The blocks tell
    how large the noise is and how many directions it has (Satterthwaite's degrees of freedom).
    """
    blocks = len(own)
    gram = own @ own.T * blocks / (blocks - 1)
    size = float(np.trace(gram))
    spread = (float(np.sum(gram**2)) - size**2 / (blocks - 1)) / (1 + 1 / (blocks - 1))
    degrees = float(np.clip(size**2 / max(spread, 1e-300), 1.0, max(most, 1)))
    statistic = float(left @ left) / max(size, 1e-300)
    df = (degrees, degrees * (blocks - 1))
    return statistic, df, float(stats.f.sf(statistic, *df))


def span(design: Array) -> Array:
    """Orthonormal rows that span those of design (m, k)."""
    turn, small = np.linalg.qr(design.T)  # singular values and vectors of m numbers, not of k
    if _full(small):
        return np.asarray(turn.T)
    _, sizes, rows = np.linalg.svd(small.T, full_matrices=False)
    return np.asarray(rows[sizes > 1e-9 * max(sizes.max(initial=0.0), 1e-300)] @ turn.T)


def _full(triangle: Array) -> bool:
    """Whether the triangle of a QR decomposition is far from singular."""
    sizes = np.abs(np.diag(triangle))
    return len(sizes) > 0 and bool(sizes.min() > _INDEPENDENT * sizes.max())


def _spans_all(design: Array) -> bool:
    """Whether the rows of design (m, k) surely span all k columns."""
    return design.shape[0] >= design.shape[1] and _full(np.asarray(np.linalg.qr(design.T, mode="r")))


def _times(rows: Array, root: Array) -> Array:
    """rows (m, k) @ root (k, k), of which nothing is below the diagonal unless the noise had no inverse."""
    if np.tril(root, -1).any():
        return np.asarray(rows @ root)
    return np.asarray(linalg.blas.dtrmm(1.0, root, rows.T, trans_a=1).T)


def _square(rows: Array) -> Array:
    """rows' rows (k, k)."""
    half = linalg.blas.dsyrk(1.0, rows.T)  # its upper triangle
    return np.asarray(half + np.triu(half, 1).T)


def _without(rows: Array, basis: Array) -> Array:
    return np.asarray(rows - (rows @ basis.T) @ basis)


@dataclass(frozen=True)
class _Weighed:
    """Some equations in units of their Gaussian noise (n = 1), and what is left of them beside the unknowns.

    root (k, k); g (k,), own (B, k) : contributions of the blocks to their noise; reach (., k) : directions that S can explain;
    designs (m, k_u), (m, k_v) : what it changes in each view, in their own units; spare : equations more than unknowns.
    """

    root: Array
    g: Array
    own: Array
    reach: Array
    designs: tuple[Array, Array]
    spare: int

    def fits(self) -> tuple[float, tuple[float, float], float]:
        """Whether an S explains these."""
        return against_noise(_without(self.g, self.reach), _without(self.own, self.reach), self.spare)

    def agrees(self) -> float:
        """p-value of whether it is the same S in both views, against another one in each; nan where any two are."""
        left, own = (_without(rows, self.reach) for rows in (self.g, self.own))
        if self.spare + len(self.reach) == len(self.root) and all(map(_spans_all, self.designs)):
            more = self.spare  # two would explain everything
        else:
            free = span(_times(linalg.block_diag(*self.designs), self.root))
            more = len(free) - len(self.reach)
            left, own = left @ free.T, own @ free.T
        return against_noise(left, own, more)[2] if more > 0 else float("nan")

    def precision(self) -> Array:
        """(k, k), of the log-likelihood -g' precision g / 2."""
        within = _precision(self.own @ self.reach.T, len(self.reach))
        beyond = _precision(_without(self.own, self.reach), self.spare)
        inside = self.reach @ self.root.T
        return np.asarray(beyond * _square(self.root.T) + (within - beyond) * _square(inside))

    def flattening(self) -> float:
        """The largest misfit per equation, in units of its noise, that the test cannot exclude: at least one."""
        if self.spare <= 0:
            return 1.0
        statistic, df, _ = self.fits()
        return max(1.0, statistic / float(stats.f.ppf(OVERLOOKED, *df)))


def _precision(own: Array, directions: int) -> float:
    """Inverse variance per direction, of contributions (B, .) of blocks."""
    size = float(np.sum(own**2)) * len(own) / (len(own) - 1)
    return max(directions, 0) / max(size, 1e-300)


class _Study:
    """The equations of all rows and without each block."""

    def __init__(self, canonical: Canonical, rank: int, moments: BlockCovariances) -> None:
        self.canonical, self.rank = canonical, rank
        self.scales = _scale(canonical.u_from_x), _scale(canonical.v_from_y)
        without = near_pair(canonical, rank, moments.covariance(delete_one(len(moments.count))))
        self.here = OwnCovariances.of(Pair.at(canonical, rank), *self.scales)
        self.each = OwnCovariances.of(without, *self.scales)
        self.k_u = len(self.scales[0]) * (len(self.scales[0]) - 1) // 2
        self.start = Logistic.at(PRIOR_CENTRE * np.eye(rank)).value

    def equations(self, views: str) -> slice:
        """Of the views "u", "v" or "uv"."""
        return slice(None if "u" in views else self.k_u, None if "v" in views else self.k_u)

    def testable(self, views: str) -> bool:
        """Whether there are more equations than unknowns."""
        return len(self.here.total[self.equations(views)]) > self.rank * (self.rank + 1) // 2

    def root(self, t: Array, views: str) -> tuple[Array, int]:
        """R at T = t, zero in other equations, (k, k), and the number of equations."""
        kept = self.equations(views)
        out = np.zeros((len(self.here.total),) * 2)
        noise = noise_of(self.canonical, self.rank, self.here.shared(t), *self.scales)
        out[kept, kept], equations = _inverse_root(noise[kept, kept])
        return out, equations

    def weighed(self, t: Array, views: str) -> _Weighed:
        """At T = t."""
        (root, equations), each = self.root(t, views), self.each.at(t)
        own = -(len(each) - 1) / len(each) * (each - each.mean(axis=0))
        designs = self.here.designs(t)
        reach = span(_times(np.hstack(designs), root))
        return _Weighed(root, self.here.at(t) @ root, own @ root, reach, designs, equations - len(reach))

    def best(self, views: str) -> Array:
        """T at which the equations of these views hold best, under a loose prior: steps of Gauss and Newton."""
        rows, cols = np.tril_indices(self.rank)
        t, prior, k = self.start, _prior_precision(self.rank), self.k_u
        for step in range(_STEPS):
            of_u, of_v = self.here.designs(t)
            if step in (0, _STEPS // 3):
                precision = self.weighed(t, views).precision()
                across = precision[k:, :k] @ of_u.T  # what S explains of U is linear in it: of_u does not change
                fixed = of_u @ precision[:k, :k] @ of_u.T + np.diag(prior)
            turned = of_v @ across
            curvature = fixed + turned + turned.T + (of_v @ precision[k:, k:]) @ of_v.T
            weighted = precision @ self.here.at(t)
            slope = of_u @ weighted[:k] + of_v @ weighted[k:] - prior * (t - self.start)[rows, cols]
            move = np.asarray(linalg.solve(curvature, slope, assume_a="pos"), dtype=np.float64)
            values, vectors = np.linalg.eigh(t + symmetric_matrices(move))
            before, t = t, (vectors * np.clip(values, _EDGE, 1 - _EDGE)) @ vectors.T
            if step > _STEPS // 3 and np.max(np.abs(t - before)) < _CLOSE:
                break
        return t


def _prior_precision(rank: int) -> Array:
    """Of the entries of T, lower triangle."""
    rows, cols = np.tril_indices(rank)
    return np.where(rows == cols, 1.0, 2.0) / KNOWN_PRIOR_SD**2


def _scale(lift: Array) -> Array:
    """Standard deviations (d,) of columns; infinite for those that are constant, which say nothing."""
    scale = np.sqrt(np.sum(lift**2, axis=1))
    return np.where(scale > 0, scale, np.inf)


def _trust(p_value: float) -> float:
    """From zero, where independence fails, to one."""
    return float(np.clip(np.log(max(p_value, 1e-300) / FAILS) / np.log(HOLDS / FAILS), 0.0, 1.0))


def independent_errors(
    canonical: Canonical, rank: int, moments: BlockCovariances, errors: Sequence[str] = ("auto", "auto")
) -> IndependentErrors:
    """What second moments tell of T beside the identified set.

    errors : of U and of V: "auto" (used as far as its test allows), "free" (not used) or "independent" (used in any case).
    """
    study, nothing = _Study(canonical, rank, moments), float("nan")
    p_values, alone, together = [nothing, nothing], [0.0, 0.0], [0.0, 0.0]
    for i, (view, wanted) in enumerate(zip("uv", errors, strict=True)):
        if wanted == "free":
            continue
        if study.testable(view):
            p_values[i] = study.weighed(study.start, view).fits()[2]
        forced, tested = wanted == "independent", not np.isnan(p_values[i])
        together[i] = _trust(p_values[i]) if tested and not forced else 1.0
        alone[i] = together[i] if tested or forced else 0.0
    p_both, agree, used, t = nothing, 0.0, [0.0, 0.0, 0.0], study.start
    precisions: list[Array] = []

    def use(number: int, share: float, seen: _Weighed) -> None:
        used[number] = share
        if share > 0:
            precisions.append(share * INFLATION / seen.flattening() * seen.precision())

    if min(together) > 0 and (study.testable("uv") or min(alone) > 0):
        t = study.best("uv")
        seen = study.weighed(t, "uv")
        p_both = seen.agrees()
        forced = all(wanted == "independent" for wanted in errors)
        agree = 1.0 if forced else min(alone) if np.isnan(p_both) else _trust(p_both)
        use(0, together[0] * together[1] * agree, seen)
    for i, view in enumerate("uv"):
        share = 1 - together[1 - i] * agree
        if errors[i] == "independent" and share > 0:
            t = study.best(view)
            use(1 + i, share, study.weighed(t, view))
    precision = np.sum(precisions, axis=0) if precisions else np.zeros((0, 0))
    return IndependentErrors(precision, *study.scales, p_values[0], p_values[1], p_both, (used[0], used[1], used[2]), t)
