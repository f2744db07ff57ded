"""Independent errors: what second moments say about T if the own parts of a view's columns do not depend on each other.

Nothing but S2 makes two columns of U go together then: Cov(S1) is diagonal, and so is all that the true T leaves of Cov(U).
With L = from_x, M = from_y the loadings of the shared coordinates, S = Cov(S2) = D D' + h T h and D = Cov(x, y),

    g_ab = [Cov(U) - L S L']_ab,  a < b,         g_ij = [Cov(V) - M D' S^-1 D M']_ij,  i < j,

are noise: the first are linear in S, the second in D' S^-1 D. These are d (d - 1) / 2 equations of a view with d columns for
r (r + 1) / 2 unknowns, for any law of S2, Gaussian included. They enter the estimate of T beside the energy of the
cumulants, as the log-likelihood

    -(1 / 2) g' K^(-1/2) [w P + v (I - P)] K^(-1/2) g,     K / n = Cov(g) for Gaussian data at fixed S,

P the projector on what a change of S can do to K^(-1/2) g. Minimising it is generalised least squares, as good as joint
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

import numpy as np
from scipy import linalg, stats

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import power, symmetric
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.pair import BlockCovariances, Pair, near_pair
from richcomponents.contrastive.posterior import INFLATION, KNOWN_PRIOR_SD, PRIOR_CENTRE, Logistic, symmetric_matrices
from richcomponents.cumulants.estimate import delete_one
from richcomponents.storage import storable

HOLDS, FAILS = 0.1, 0.01
"""p-values from which on errors are taken as independent, and up to which they are not."""

OVERLOOKED = 0.1
"""Level of the upper confidence limit of the misfit that is allowed for."""

_STEPS = 15  # at most, of Gauss and Newton towards the T at which errors are tested
_CLOSE = 1e-6  # changes of T that end them
_EDGE = 0.01  # eigenvalues of that T are as far from 0 and 1
_FLOOR = 1e-10  # eigenvalues of the noise that count as zero, as a share of the largest


def off_diagonal(matrix: Array) -> Array:
    """(..., d, d) -> the entries above the diagonal, (..., d (d - 1) / 2)."""
    i, j = np.triu_indices(matrix.shape[-1], 1)
    return np.asarray(matrix[..., i, j])


def _spread(entries: Array, d: int) -> Array:
    """Entries (..., d (d - 1) / 2) -> the symmetric (..., d, d) with half of them on each side: the adjoint of the above."""
    out = np.zeros((*entries.shape[:-1], d, d))
    i, j = np.triu_indices(d, 1)
    out[..., i, j] = out[..., j, i] = entries / 2
    return out


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
        unknowns = len(self.h) * (len(self.h) + 1) // 2
        return self.changes(t, symmetric_matrices(np.eye(unknowns)))

    def changes(self, t: Array, directions: Array) -> tuple[Array, Array]:
        """The same for changes (m, r, r) of T."""
        moved = self.h @ directions @ self.h
        back = self.right @ np.linalg.inv(self.shared(t))
        return off_diagonal(self.left @ moved @ self.left.T), -off_diagonal(back @ moved @ back.T)

    def pulled_back(self, t: Array, weights: Array) -> Array:
        """The gradient (..., r, r) in T of weights' g."""
        d_u, d_v = self.left.shape[-2], self.right.shape[-2]
        k = d_u * (d_u - 1) // 2
        back = self.right @ np.linalg.inv(self.shared(t))
        of_u = np.swapaxes(self.left, -1, -2) @ _spread(weights[..., :k], d_u) @ self.left
        of_v = np.swapaxes(back, -1, -2) @ _spread(weights[..., k:], d_v) @ back
        return np.asarray(self.h @ (of_v - of_u) @ self.h)


@dataclass(frozen=True)
class OwnTerm:
    """-|root g|^2 / 2 times a share, of a sample or a stack of replicates: what `SharedEnergy` adds to the energy."""

    root: Array
    own: OwnCovariances
    whole: OwnCovariances | None = None
    share: Array | float = 1.0

    def value_and_slope(self, t: Logistic) -> tuple[Array, Array]:
        seen, share = self.own.at(t.value) @ self.root.T, np.asarray(self.share)
        slope = t.derivative(self.own.pulled_back(t.value, seen @ self.root))
        return -share / 2 * np.sum(seen**2, axis=-1), -share[..., None, None] * slope

    def bend(self, t: Logistic) -> Callable[[Array], Array]:
        """With W the weights' matrix of V, back = M D' S^-1 and N = back' W back, the slope in S has the part N of V, and
        dN = -(S^-1 dS N + N dS S^-1) beside what the change of the weights makes of it."""
        own, v, share = self.own, t.vectors, float(self.share)
        inverse = np.linalg.inv(own.shared(t.value))
        weights = own.at(t.value) @ self.root.T @ self.root
        d_v, k_v = own.right.shape[-2], own.right.shape[-2] * (own.right.shape[-2] - 1) // 2
        back = own.right @ inverse
        inner = back.T @ _spread(weights[len(weights) - k_v :], d_v) @ back
        slope = -share * own.pulled_back(t.value, weights)
        of_link = t.bent(v.T @ slope @ v)

        def bend(directions: Array) -> Array:
            moved = t.derivative(directions)
            seen = -np.hstack(own.changes(t.value, moved)) @ self.root.T @ self.root
            turned = inverse @ (own.h @ moved @ own.h) @ inner
            change = own.pulled_back(t.value, seen) - own.h @ (turned + np.swapaxes(turned, -1, -2)) @ own.h
            return np.asarray(share * t.derivative(change) - v @ of_link(v.T @ directions @ v) @ v.T)

        return bend

    def value_on_the_rest(self, t: Array, near: Array) -> Array:
        """g is a mean over rows, to first order. How far the rest deviates from all rows is read off at T = near: noise that
        changes with T would be taken for evidence."""
        assert self.whole is not None
        share = np.asarray(self.share)[..., None]
        rest = self.whole.at(t) + share / (1 - share) * (self.whole.at(near) - self.own.at(near))
        return np.asarray(-np.sum((rest @ self.root.T) ** 2, axis=-1) / 2)


@storable
@dataclass(frozen=True)
class IndependentErrors:
    """What was found of the errors' independence, and the weights of g.

    Draws of the posterior are INFLATION times wider than its curvature, for the sake of the cumulants. These nats are as many
    as they say, and count INFLATION times.

    root (m, k) : the log-likelihood is -|root g|^2 / 2; m = 0 where nothing is said. scale_u, scale_v : standard deviations
    of the columns. p_u, p_v, p_both : of the three tests, nan where there is nothing to test. used : weights in [0, 1] of
    both views together, of U alone and of V alone. t : T at which these equations hold best.
    """

    root: Array
    scale_u: Array
    scale_v: Array
    p_u: float
    p_v: float
    p_both: float
    used: tuple[float, float, float]
    t: Array

    @property
    def silent(self) -> bool:
        return not len(self.root)

    def words(self) -> str:
        """For the summary."""
        tests = [("U", self.p_u), ("V", self.p_v), ("both agree", self.p_both)]
        shown = ", ".join(f"{name} p = {p:.3f}" for name, p in tests if not np.isnan(p)) or "not tested"
        both, u, v = self.used
        if self.silent:
            tested = not all(np.isnan(p) for _, p in tests)
            return f"not independent ({shown})" if tested else "too few columns to test whether they are independent"
        where = [name for name, share in (("both views", both), ("U", u), ("V", v)) if share > 0]
        share = "" if both + u + v > 0.995 else f", used to {both + u + v:.0%}"
        return f"independent in {' or '.join(where)} ({shown}){share}: second moments tell T"

    def of(self, pair: Pair) -> OwnTerm:
        """Of a sample or a stack of replicates, in their own coordinates."""
        return OwnTerm(self.root, OwnCovariances.of(pair, self.scale_u, self.scale_v))


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
        moved, unknowns = (t - other)[rows, cols] @ self._design(t) / np.sqrt(INFLATION), len(rows)
        spread = 2 / (9 * unknowns)
        return float((np.cbrt(moved @ moved / unknowns) - (1 - spread)) / np.sqrt(spread))

    def information(self, t: Array) -> Array:
        """The other entries unknown, as far as a prior lets them be."""
        design, prior = self._design(t) / np.sqrt(INFLATION), _prior_precision(self.rank)
        rows, cols = np.tril_indices(self.rank)
        left = np.diag(np.linalg.inv(design @ design.T + np.diag(prior)))[rows == cols]
        return np.asarray(1 / left - prior[rows == cols])

    def _design(self, t: Array) -> Array:
        """Changes (m, k') of root g with each entry of T."""
        return np.hstack(self._at(np.ones(len(self.moments.count))).designs(t)) @ self.errors.root.T

    def of(self, weights: Array, share: Array | float = 1.0) -> OwnTerm:
        return OwnTerm(self.errors.root, self._at(weights), self._at(np.ones(len(self.moments.count))), share)

    def _at(self, weights: Array) -> OwnCovariances:
        pair = near_pair(self.canonical, self.rank, self.moments.covariance(weights))
        return self.errors.of(pair).own


def noise_of(canonical: Canonical, rank: int, S: Array, scale_u: Array, scale_v: Array) -> Array:
    """K (k, k) at S = Cov(S2)."""
    r, p, D = rank, canonical.rank_u, canonical.correlations
    left, right = canonical.u_from_x / scale_u[:, None], canonical.v_from_y / scale_v[:, None]
    sigma, both = np.eye(p + canonical.rank_v), np.arange(len(D))
    sigma[both, p + both] = sigma[p + both, both] = D
    root = power(sigma, 0.5, 0.0)

    def on(first: int, loadings: Array) -> Array:
        """Loadings (d, j) on coordinates z from the first one on, in whitened coordinates (d, p + q)."""
        return np.asarray(loadings @ root[first : first + loadings.shape[1]])

    u, own_u, by_y = on(0, left), on(r, left[:, r:]), on(p, left[:, :r] @ (S / D[:r]))
    v, by_x = on(p, right), on(0, right[:, :r] @ (D[:r, None] * np.linalg.inv(S)))
    forms = np.concatenate([_product(u, u) - _product(own_u, by_y) - _product(by_y, own_u),
                            _product(v, v) - _product(v, by_x) - _product(by_x, v)])  # fmt: skip
    flat = forms.reshape(len(forms), -1)
    return np.asarray(2 * flat @ flat.T)


def _product(f: Array, g: Array) -> Array:
    """The quadratic forms (f_a'z)(g_b'z), a < b: (k, p, p), symmetric."""
    i, j = np.triu_indices(len(f), 1)
    return symmetric(f[i][:, :, None] * g[j][:, None, :])


def _inverse_root(noise: Array) -> tuple[Array, int]:
    """noise^(-1/2) on its range, and the dimension of that."""
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
    _, sizes, rows = np.linalg.svd(design, full_matrices=False)
    return np.asarray(rows[sizes > 1e-9 * max(sizes.max(initial=0.0), 1e-300)])


def _without(rows: Array, basis: Array) -> Array:
    return np.asarray(rows - (rows @ basis.T) @ basis)


@dataclass(frozen=True)
class _Weighed:
    """Some equations in units of their Gaussian noise (n = 1), and what is left of them beside the unknowns.

    root (k, k); g (k,), own (B, k) : contributions of the blocks to their noise; reach (., k) : directions that S can explain;
    free (., k) : changes that it could make if it were another one in each view; spare : equations more than unknowns.
    """

    root: Array
    g: Array
    own: Array
    reach: Array
    free: Array
    spare: int

    def fits(self) -> tuple[float, tuple[float, float], float]:
        """Whether an S explains these."""
        return against_noise(_without(self.g, self.reach), _without(self.own, self.reach), self.spare)

    def agrees(self) -> float:
        """p-value of whether it is the same S in both views; nan where any two are."""
        free = span(self.free)
        more = len(free) - len(self.reach)
        if more <= 0:
            return float("nan")
        left, own = (_without(rows, self.reach) @ free.T for rows in (self.g, self.own))
        return against_noise(left, own, more)[2]

    def likelihood_root(self) -> Array:
        """(k, k), of the log-likelihood -|root g|^2 / 2."""
        inside = self.reach.T @ self.reach
        within = _precision(self.own @ self.reach.T, len(self.reach))
        beyond = _precision(_without(self.own, self.reach), self.spare)
        weigh = np.sqrt(within) * inside + np.sqrt(beyond) * (np.eye(len(inside)) - inside)
        return np.asarray(weigh @ self.root)

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
        """K^(-1/2) at T = t, zero in other equations, (k, k), and the number of equations."""
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
        tied, free = np.hstack(designs) @ root, linalg.block_diag(*designs) @ root
        reach = span(tied)
        return _Weighed(root, self.here.at(t) @ root, own @ root, reach, free, equations - len(reach))

    def best(self, views: str) -> Array:
        """T at which the equations of these views hold best, under a loose prior: steps of Gauss and Newton."""
        rows, cols = np.tril_indices(self.rank)
        t, prior = self.start, _prior_precision(self.rank)
        for step in range(_STEPS):
            if step in (0, _STEPS // 3):
                root = self.weighed(t, views).likelihood_root()
            design = np.hstack(self.here.designs(t)) @ root
            slope = design @ (root @ self.here.at(t)) - prior * (t - self.start)[rows, cols]
            move = np.asarray(np.linalg.solve(design @ design.T + np.diag(prior), slope), dtype=np.float64)
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
    p_both, agree, roots, used, t = nothing, 0.0, [], [0.0, 0.0, 0.0], study.start

    def use(number: int, share: float, seen: _Weighed) -> None:
        used[number] = share
        if share > 0:
            roots.append(np.sqrt(share * INFLATION / seen.flattening()) * seen.likelihood_root())

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
    root = np.vstack([np.zeros((0, len(study.here.total))), *roots])
    return IndependentErrors(root, *study.scales, p_values[0], p_values[1], p_both, (used[0], used[1], used[2]), t)
