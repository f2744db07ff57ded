"""Where a solver gets its statistics from: one protocol, two providers.

A solver asks for moments of linear maps of the columns, several times: order two of everything first, then order four of the
coordinates that the first pass found. Rows answer by being read again, mapped row by row, in memory that does not depend on
their number; a saved state answers by being transformed.

COVARIATES. Known covariates (age, sex, ...) partialled out of all other columns.

Residuals c - B (w - mean w), with B the regression
of the other columns on the covariates w, are one linear map; the same map serves both ways:

* from the state, second order: Cov(residuals) = R Cov R' with R = [I | -B], for the total and for every block;
* row-wise, for higher orders: rows.mapped(partial.residuals), and a second pass.

DEPENDENCE. How many independent rows a table is worth: repeated measurements (groups), frequency weights, blocks of a state.

Tests of the cross-covariance of two white views x (p), y (q) ask how far sum_i w_i x_i y_i' strays by chance. When units g
(the rows of a group; a weighted row; a block) are independent, but rows of one unit are not, its variance is that of the sums

    M_g = sum_{i in g} w_i (x_i y_i' - D),            D = Cov(x, y),

and not that of its rows. The design effect compares the two, both measured:

    effect = sum_g |M_g|^2 / sum_i w_i |x_i y_i' - D|^2,        effective n = n / effect,

which is exactly m when every row is repeated m times (or weighs m), exactly 1 for independent rows, and whatever the data
say in between, whatever the dependence inside a unit. Two more numbers make a chi-square test an F-test:

* df: the noise of the effect itself (few units), Satterthwaite's 2 effect^2 / Var(effect); infinite in both exact cases.
* spread: the effect is a mean over p q directions, some of which may repeat more than others. If x alone varied between units
  in proportion to the matrix E_x = B_x - I, with B_x = sum_g (sum_{i in g} w_i x_i)(...)' / n, and y to E_y, the effects
  would be 1 + c a_j b_k over the eigenvalues a, b of E_x and E_y; spread = mean of their squares over the square of their
  mean (Rao and Scott 1984, second order): p q / spread degrees of freedom. Products of a unit with itself are left out of
  tr(E_x^2) and of tr(E_x)^2: with few units they alone would make E_x look uneven.

All three are wanted for the leftover coordinates x_{k+1..p}, y_{k+1..q} of every k: arrays over k = 0, 1, ..., min(p, q) - 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from richcomponents.algebra import Array, IntArray, Truth, column_numbers, packed_rank
from richcomponents.algebra.arrays import one_blas_thread, whitening
from richcomponents.data.rows import Rows
from richcomponents.data.table import frequencies, standardised
from richcomponents.errors import DataError, SampleSizeWarning, warn_user
from richcomponents.moments.accumulator import first_means, reduce_rows
from richcomponents.moments.kernel import block_numbers
from richcomponents.moments.state import Moments
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class Partial:
    """The regression of the kept columns on the covariates.

    kept, covariates : column numbers in the table; coefficients : (kept, covariates);
    explained : kept columns that are linear functions of the covariates: their residuals are exactly zero, not rounding
    noise; variances : of the kept columns; mean : of all columns; known : covariance of the covariates, divisor n; n : rows.
    """

    kept: IntArray
    covariates: IntArray
    coefficients: Array
    explained: Truth
    variances: Array
    mean: Array
    known: Array
    n: int

    @classmethod
    def of(cls, cross: Array, known: Array, variances: Array, covariates: IntArray, mean: Array, n: int) -> Self:
        """cross (kept, q), known (q, q) : covariances with and of the covariates; variances (kept,).

        Collinear covariates are harmless: the least-norm regression is used.
        """
        scale, standard = standardised(known)  # a constant covariate explains nothing
        B = cross / scale @ np.linalg.pinv(standard, rcond=1e-12, hermitian=True) / scale
        after = variances - np.einsum("ij,ij->i", B, cross)
        kept = np.setdiff1d(np.arange(len(mean)), covariates)
        return cls(kept, covariates, B, after <= 1e-13 * variances, variances, mean, known, n)

    def residuals(self, rows: Array, factor: float = 1.0) -> Array:
        """Rows of all columns -> rows of the kept columns, with the covariates' share removed, stretched about their mean.

        Every fitted covariate takes the freedom of one row: n rows of residuals have the variance of n - q. Stretched by the
        factor sqrt(n / (n - q)) those of the rows that the regression was fitted to have plain moments like n - q rows that no
        covariate was fitted to.
        """
        mean = self.mean[self.kept]
        known = rows[:, self.covariates] - self.mean[self.covariates]
        left: Array = rows[:, self.kept] - known @ self.coefficients.T
        left[:, self.explained] = mean[self.explained]
        return left if factor == 1.0 else mean + (left - mean) * factor

    @property
    def matrix(self) -> Array:
        """(all, kept): all columns, centred -> the residuals, centred."""
        R = np.zeros((len(self.mean), len(self.kept)))
        R[self.kept, np.arange(len(self.kept))] = 1.0
        R[self.covariates] = -self.coefficients.T
        R[:, self.explained] = 0.0
        return R

    def state(self, moments: Moments, factor: float = 1.0) -> Moments:
        """The residuals' state, from that of all columns; stretched by a factor."""
        return AffineMap(self.mean, self.matrix * factor, self.mean[self.kept]).of_state(moments)

    @property
    def rank(self) -> int:
        """How many covariates there are, collinear ones counted once."""
        return int(np.linalg.matrix_rank(standardised(self.known)[1], tol=1e-9, hermitian=True))


def partial_out(moments: Moments, covariates: Sequence[int]) -> Partial:
    """Regress the other columns of a state on some of them, by their numbers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=(300, 1))
    >>> X = rng.normal(size=(300, 2)) + 3 * age
    >>> state = Moments.of(np.hstack([X, age]), order=2)
    >>> left = partial_out(state, [2]).state(state).covariance()
    >>> bool(np.all(np.abs(np.diag(left) - 1) < 0.3))
    True
    """
    known = column_numbers(list(covariates), moments.layout.n_columns)
    kept = np.setdiff1d(np.arange(moments.layout.n_columns), known)
    C = moments.covariance(unbiased=False)
    return Partial.of(C[np.ix_(kept, known)], C[np.ix_(known, known)], np.diag(C)[kept], known, moments.mean, moments.n)


def partial_out_rows(rows: Array, covariates: IntArray, weight: Array) -> Partial:
    """The same of a wide table in memory (n, p), each row counted so often: O(n p q), nothing of size p x p."""
    n = weight.sum()
    mean = weight @ rows / n
    known = (rows[:, covariates] - mean[covariates]) * weight[:, None]
    cross = (known.T @ rows - np.outer(known.sum(axis=0), mean)) / n
    variances = np.maximum(weight @ rows**2 / n - mean**2, 0.0)
    kept = np.setdiff1d(np.arange(rows.shape[1]), covariates)
    return Partial.of(cross[:, kept].T, cross[:, covariates], variances[kept], covariates, mean, round(float(n)))


@storable
@dataclass(frozen=True)
class Dependence:
    """Design effect, its degrees of freedom and its spread over directions: (min(p, q),) each, entry k without the first k
    canonical coordinates."""

    effect: Array
    df: Array
    spread: Array

    @classmethod
    def of(cls, sums: Array, between: Array, n: float, squares: float, p: int, q: int) -> Self:
        """sums : (7, min(p, q)), see _sums; between : (p + q, p + q), sum over units of the outer squares of their sums of
        (x, y); n : sum of weights, squares : sum over units of their squared weights.

        Few units, or one that outweighs the others, cannot measure their own effect: means and D are theirs, and M_g comes out
        too small. Then n / effect is n^2 / squares, Kish's number of units, and no more. It is never more than n.
        """
        a, b, aa, ab, bb, x_x, y_y = np.maximum(sums, 1e-300)
        units = n**2 / squares
        if units < 15:
            ones = np.ones(sums.shape[1])
            return cls(n / units * ones, max(units - 1, 1.0) * ones, ones)
        effect = np.maximum(a / b, 1.0)
        noise = np.maximum(aa - 2 * effect * ab + effect**2 * bb, 0.0)  # of a - effect b
        noise = np.where(noise > 1e-12 * aa, noise, 0.0)  # what rounding leaves of nothing is nothing
        with np.errstate(divide="ignore"):
            df = 2 * a**2 / noise
        excess, above, spread = between / n - np.eye(p + q), effect - 1, np.ones(len(effect))
        for k in range(len(effect)):
            uneven = _unevenness(excess[k:p, k:p], x_x[k] / n**2)
            uneven *= _unevenness(excess[p + k :, p + k :], y_y[k] / n**2)
            spread[k] = (1 + 2 * above[k] + above[k] ** 2 * uneven) / effect[k] ** 2
        return cls(effect, df, spread)

    def at(self, k: int) -> tuple[float, float, float]:
        """Effect, df and spread after the first k coordinates."""
        return float(self.effect[k]), float(self.df[k]), float(self.spread[k])


def _unevenness(excess: Array, same: float) -> float:
    """d tr(E^2) / tr(E)^2 of a symmetric E (d, d): 1 when all directions are alike, d when one has it all.

    same : the part of either trace that compares units with themselves.
    """
    d, size = len(excess), float(np.trace(excess)) ** 2 - same
    return float(np.clip(d * (np.sum(excess**2) - same) / size, 1.0, d)) if size > 0 else 1.0


def _tails(values: Array) -> Array:
    """Sums over the last entries k.. of the last axis, for every k."""
    return np.asarray(np.cumsum(values[..., ::-1], axis=-1)[..., ::-1])


def _corner_tails(squares: Array) -> Array:
    """Sums of (m, p, q) over rows k.. and columns k.., for every k: (m, min(p, q))."""
    full = min(squares.shape[1:])
    out = np.cumsum(np.cumsum(squares[:, ::-1, ::-1], axis=1), axis=2)[:, ::-1, ::-1]
    return np.asarray(out[:, np.arange(full), np.arange(full)])


def _sums(a: Array, b: Array, totals: Array, p: int) -> Array:
    """Over units, for every k: of a, b, a^2, a b, b^2, |x|^4, |y|^4 with a = |M_g|^2, b = sum_{i in g} w_i |x_i y_i' - D|^2 and
    the units' totals (x, y) (units, p + q)."""
    full = a.shape[1]
    x, y = _tails(totals[:, :p] ** 2)[:, :full], _tails(totals[:, p:] ** 2)[:, :full]
    return np.stack([np.sum(s, axis=0) for s in (a, b, a * a, a * b, b * b, x * x, y * y)])


class UnitSums:
    """A statistic of rows (x, y) in white canonical coordinates, the weight last where rows are weighted.

    Fed by `reduce_rows`: with groups those are the units, without them every row is one.
    """

    def __init__(self, correlations: Array, p: int, q: int, weighted: bool = False) -> None:
        self.d, self.p, self.q, self.weighted = correlations, p, q, weighted
        self.n = self.squares = 0.0  # of weights, and of their squares over units
        self.sums, self.between = np.zeros((7, len(correlations))), np.zeros((p + q, p + q))
        self.unit: IntArray | None = None  # of each row, where there are groups

    def update(self, rows: object, start: int | None = None) -> None:
        """Without groups every row is a unit: |M_i|^2 = w_i^2 |x_i y_i' - D|^2."""
        block, k, p = np.asarray(rows, dtype=np.float64), len(self.d), self.p
        w = block[:, -1] if self.weighted else np.ones(len(block))
        z = np.where(w[:, None] > 0, block[:, : len(self.between)], 0.0)  # what does not count may be anything
        x, y, total = z[:, :p], z[:, p:], z * w[:, None]
        size = _tails(x**2)[:, :k] * _tails(y**2)[:, :k]  # |x_i y_i' - D|^2 over the coordinates k.., for every k
        own = w[:, None] * (size - 2 * _tails(x[:, :k] * y[:, :k] * self.d) + _tails(self.d**2))
        self.n += float(w.sum())
        if self.unit is not None:
            first = start or 0
            self._add_units(self.unit[first : first + len(z)], z, total, w, own)
            return
        self.squares += float(w @ w)
        with one_blas_thread():
            self.between += total.T @ total
        self.sums += _sums(w[:, None] * own, own, total, self.p)

    def grouped(self, groups: object) -> None:
        """All rows come in order; groups : their labels."""
        # beyond so many numbers units are pooled: still independent, a little noisier
        most = max(20, 2**24 // (self.p * self.q + self.p + self.q))
        self.unit = _unit_numbers(len(np.asarray(groups)), most, groups)
        count = int(self.unit.max(initial=-1)) + 1
        self.products = np.zeros((count, self.p, self.q))  # M_g + W_g D
        self.totals, self.sizes = np.zeros((count, self.p + self.q)), np.zeros(count)
        self.inside = np.zeros((count, len(self.d)))

    def _add_units(self, unit: IntArray, z: Array, total: Array, w: Array, own: Array) -> None:
        """Sums of each unit, those with the same number of rows at a time; unit : of every row."""
        order = np.argsort(unit, kind="stable")
        units, first, sizes = np.unique(unit[order], return_index=True, return_counts=True)
        for size in np.unique(sizes):
            g, rows = units[sizes == size], order[first[sizes == size, None] + np.arange(size)]
            with one_blas_thread():
                self.products[g] += total[rows, : self.p].mT @ z[rows, self.p :]
            self.totals[g] += total[rows].sum(axis=1)
            self.sizes[g] += w[rows].sum(axis=1)
            self.inside[g] += own[rows].sum(axis=1)

    def result(self) -> Dependence:
        sums, between, squares = self.sums, self.between, self.squares
        if self.unit is not None:
            full = np.arange(len(self.d))
            centred = self.products.copy()
            centred[:, full, full] -= self.sizes[:, None] * self.d
            sums = sums + _sums(_corner_tails(centred**2), self.inside, self.totals, self.p)
            with one_blas_thread():
                between = between + self.totals.T @ self.totals
            squares += float(self.sizes @ self.sizes)
        return Dependence.of(sums, between, self.n, squares, self.p, self.q)


def dependence_of_blocks(state: Moments, correlations: Array, p: int, q: int) -> Dependence:
    """The same from a state of order four of (x, y), whose blocks are the units: what is left of the groups in it."""
    used = np.flatnonzero(state.block_sizes)
    _refuse_one(used, state.n, "block")
    sizes, full = state.block_sizes[used].astype(np.float64), np.arange(len(correlations))
    vectors = state.central_blocks()[used]
    second = state.block_covariances()[used] * sizes[:, None, None]
    products = second[:, :p, p:].copy()
    x, y = np.meshgrid(np.arange(p), p + np.arange(q), indexing="ij")
    fourth = vectors[:, state.layout.orders[4]][:, packed_rank(np.stack([x, x, y, y], axis=-1), p + q)]
    inside = _corner_tails(fourth) - 2 * _tails(products[:, full, full] * correlations)
    inside = inside + sizes[:, None] * _tails(correlations**2)
    products[:, full, full] -= sizes[:, None] * correlations
    totals = vectors[:, state.layout.orders[1]]
    sums = _sums(_corner_tails(products**2), inside, totals, p)
    return Dependence.of(sums, totals.T @ totals, float(sizes.sum()), float(sizes @ sizes), p, q)


def _unit_numbers(n: int, most: int, groups: object) -> IntArray:
    """The number of each row's group, at most so many."""
    units = block_numbers(n, most, groups)
    _refuse_one(units, n, "group")
    return units


def _refuse_one(units: IntArray, n: int, kind: str) -> None:
    """One group alone is refused: there is nothing that it could be compared with."""
    if n and (units == units[0]).all():
        raise DataError(
            f"all {n} rows belong to one {kind}: tests and standard errors compare groups, and need at least two. Leave out "
            "groups= if the rows are independent"
        )


def dependence_of_rows(rows: Rows, correlations: Array, p: int, q: int, groups: object) -> Dependence:
    """Of rows (x, y) in white coordinates with Cov(x, y) = D."""
    return reduce_rows(rows, UnitSums(correlations, p, q, rows.weighted), groups=groups)


def groups_of_copies(views: Rows, groups: object) -> object:
    """Groups of rows that repeat each other, where none are given: copies are one sample, however often they stand in a table.

    views : in memory. Rows of a few values repeat by chance: copies are told where one column alone tells all others apart.
    """
    if groups is not None or views.weighted or not views.held:  # weights say how often rows count
        return groups
    table = views.array()
    place = number = np.zeros(0, dtype=np.int64)
    for column in table.T:
        first, which = np.unique(column, return_index=True, return_inverse=True)[1:]
        if len(first) > len(place):
            place, number = first, which
        if len(place) == len(table):
            return None
    if len(place) < 2 or not np.array_equal(table[place][number], table):
        return None
    warn_user(
        f"{len(table) - len(place)} of {len(table)} rows are exact copies of others: these are taken as {len(place)} "
        "independent rows, copies as one. Where rows of one sample are not all the same, say which belong together: groups=",
        SampleSizeWarning,
    )
    return np.argsort(np.argsort(place))[number]  # in the order of the rows


@storable
@dataclass(frozen=True)
class RowUnits:
    """What makes rows of a table in memory depend on each other: the number of each row's group, and its frequency weight."""

    groups: IntArray | None = None
    weight: Array | None = None

    @classmethod
    def of(cls, n: int, groups: object = None, sample_weight: object = None) -> Self:
        """For n rows; refuses labels and weights that do not line up with them."""
        weight = None if sample_weight is None else frequencies(sample_weight, n)
        return cls(None if groups is None else _unit_numbers(n, max(n, 1), groups), weight)

    def __len__(self) -> int:
        known = self.weight if self.groups is None else self.groups
        return 0 if known is None else len(known)

    def take(self, rows: IntArray) -> RowUnits:
        """Of some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        return RowUnits(groups, None if self.weight is None else self.weight[rows])

    @property
    def depend(self) -> bool:
        return self.groups is not None or self.weight is not None

    def weights(self, n: int) -> Array:
        """(n,), ones where there are none."""
        return np.ones(n) if self.weight is None else self.weight

    def dependence(self, z: Array, correlations: Array, p: int) -> Dependence:
        """Of rows z (n, p + q) in white coordinates."""
        rows = Rows(z) if self.weight is None else Rows(z).weighted_by(self.weight)
        return dependence_of_rows(rows, correlations, p, z.shape[1] - p, self.groups)


def lost_rows(partial: Partial, table: Rows, groups: object) -> float:
    """How many rows' worth of freedom the covariates took: one each, times the design effect of their products with the
    residuals where rows depend on each other (a covariate that is constant in a group took a whole group's).

    Of many residuals it is measured on a hundred random sums of them.
    """
    if groups is None and not table.weighted:
        return float(partial.rank)
    d = len(partial.kept)
    mixed = np.eye(d) if d <= 100 else np.random.default_rng(0).normal(size=(d, 100))

    def left(rows: Array) -> Array:
        return np.asarray((partial.residuals(rows) - partial.mean[partial.kept]) @ mixed)

    covariance = Moments.of(table.mapped(left), 2, n_blocks=1).covariance()
    white = [whitening(C)[0] for C in (partial.known, covariance)]
    p, q = (len(w) for w in white)
    if not p or not q:
        return float(p)

    def products(rows: Array) -> Array:
        known = (rows[:, partial.covariates] - partial.mean[partial.covariates]) @ white[0].T
        return np.hstack([known, left(rows) @ white[1].T])

    return p * float(dependence_of_rows(table.mapped(products), np.zeros(min(p, q)), p, q, groups).effect[0])


def equivalent_rows(state: Moments) -> tuple[Array, Array, IntArray]:
    """A few weighted rows (m, p) in place of all rows of a state: their weights (m,) and blocks (m,).

    In every block they have its number of rows, its means and its second moments, and so has any linear map of them: least
    squares of one column on others, with or without some blocks, is that of the rows. With mean a, standard deviations s and
    correlations L L' of n_b rows, they are a +- sqrt(p) s l_j, j = 1..p, each counted n_b / 2p times (sigma points; Julier and
    Uhlmann 1997). Moments of rows with gaps may have negative directions in a block: their points count so often less than
    nothing, and the mean makes up for it.
    """
    p, used = state.layout.n_columns, np.flatnonzero(state.block_sizes)
    sizes = state.block_sizes[used].astype(np.float64)
    offset = state.central_blocks()[used][:, state.layout.orders[1]] / sizes[:, None]
    covariances = state.block_covariances()[used] - offset[:, :, None] * offset[:, None, :]
    scales, correlations = standardised(covariances)
    rows, weights = [], []
    for i, (scale, values, vectors) in enumerate(zip(scales, *np.linalg.eigh(correlations), strict=True)):
        sign = np.where(values < -1e-9, -1.0, 1.0)  # above it is rounding
        points = np.sqrt(p * np.maximum(sign * values, 0.0))[:, None] * vectors.T * scale
        middle = np.zeros((int((sign < 0).any()), p))
        rows.append(state.mean + offset[i] + np.vstack([points, -points, middle]))
        counts = np.concatenate([sign / (2 * p), sign / (2 * p), np.full(len(middle), 1 - sign.sum() / p)])
        weights.append(sizes[i] * counts)
    return np.concatenate(rows), np.concatenate(weights), np.repeat(used, list(map(len, rows)))


class AffineMap:
    """Rows z -> (z - centre) @ matrix + offset."""

    def __init__(self, centre: Array, matrix: Array, offset: Array | None = None) -> None:
        self.centre, self.matrix, self.offset = centre, np.ascontiguousarray(matrix), offset

    def key(self) -> tuple[bytes | None, ...]:
        """Equal for equal maps."""
        return tuple(None if part is None else part.tobytes() for part in (self.centre, self.matrix, self.offset))

    def __call__(self, block: Array) -> Array:
        out = (block - self.centre) @ self.matrix
        return np.asarray(out if self.offset is None else out + self.offset)

    def of_state(self, state: Moments) -> Moments:
        """The state of the mapped rows."""
        left = state.transformed(self.matrix)
        moved = (state.mean - self.centre) @ self.matrix
        moved = moved if self.offset is None else moved + self.offset
        return Moments(left.layout, left.shift + moved, left.sums, left.dependent)


class Data(Protocol):
    """The columns of all views side by side, covariates removed.

    n_blocks : statistical blocks; lost : rows' worth of freedom that covariates took.
    """

    @property
    def n_blocks(self) -> int: ...

    @property
    def lost(self) -> float: ...

    def moments(self, order: int, map: AffineMap | None = None, *, pooled: bool = False) -> Moments:
        """The state of the columns, or of a map of them about their mean, by block; pooled : in one block, a fraction of the
        memory."""
        ...

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        """How rows (x, y) depend on each other, map : to white x (p) and y with Cov(x, y) = D; None where they do not."""
        ...

    def mapped(self, map: AffineMap) -> Data:
        """Other columns: maps of these."""
        ...

    def counted_sample(self, map: AffineMap, thinning: Callable[[int], int]) -> tuple[Array, Array] | None:
        """Rows that count, mapped, and how often (m,); None where rows are not at hand. Also rows of groups. thinning : every
        how manieth of so many rows is taken."""
        return None


@dataclass(frozen=True)
class StateData(Data):
    """A state, of order four or higher."""

    state: Moments
    lost: float = 0.0

    @property
    def n_blocks(self) -> int:
        return self.state.layout.n_blocks

    def moments(self, order: int, map: AffineMap | None = None, *, pooled: bool = False) -> Moments:
        if order > self.state.layout.order:
            raise DataError(
                f"cumulants of order {order} are needed, and this state has orders up to {self.state.layout.order}: make it "
                f"with Moments.of(X, order={order})"
            )
        state = self.state.up_to(max(order, 4))  # what is there to order four is never read again
        state = state.pooled() if pooled else state
        return state if map is None else map.of_state(state)

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        if not self.state.dependent:
            return None
        return dependence_of_blocks(map.of_state(self.state), correlations, p, map.matrix.shape[1] - p)

    def mapped(self, map: AffineMap) -> StateData:
        return StateData(map.of_state(self.state), self.lost)


@dataclass(frozen=True)
class RowData:
    """Rows that can be read again, and how to read them.

    groups : labels of all rows, or None; progress : whether to show how far passes are.
    """

    rows: Rows
    n_blocks: int
    groups: object | None = None
    lost: float = 0.0
    progress: bool = False

    def moments(self, order: int, map: AffineMap | None = None, *, pooled: bool = False) -> Moments:
        if map is not None:
            label = "canonical coordinates" if order <= 4 else "high orders"
            return self._pass(self.rows.mapped(map), order, np.zeros(map.matrix.shape[1]), label, pooled)
        if order > 2:
            return self._pass(self.rows, order, self._second.mean, "fourth order")
        return self._second

    @cached_property
    def _second(self) -> Moments:
        """In one pass, about the mean of the first rows; in two where that was far off."""
        second = self._pass(self.rows, 2, first_means(self.rows), "second order")
        far = 30 * np.sqrt(np.maximum(second.variances, 0.0))  # from where on second moments lose digits (2e-13)
        if (np.abs(second.offset) > far).any():
            second = self._pass(self.rows, 2, second.mean, "second order")
        return second.folded()  # nobody adds rows: one sum per block, the same bits in a fraction of the memory

    @property
    def dependent(self) -> bool:
        """Whether rows belong to groups, or are counted several times."""
        return self.groups is not None or self.rows.weighted

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        if not self.dependent:
            return None
        return dependence_of_rows(self.rows.mapped(map), correlations, p, map.matrix.shape[1] - p, self.groups)

    def mapped(self, map: AffineMap) -> RowData:
        """Without progress, which belongs to the columns of the user."""
        return replace(self, rows=self.rows.mapped(map), progress=False)

    def counted_sample(self, map: AffineMap, thinning: Callable[[int], int]) -> tuple[Array, Array] | None:
        rows, seen, taken = self.rows.mapped(map), 0, []
        counting = (int(np.count_nonzero(block[:, -1])) for block in rows.chunks())
        step = thinning(sum(counting) if rows.weighted else self._second.n)  # of rows, not of their copies
        for block in rows.chunks():
            block = block[block[:, -1] > 0] if rows.weighted else block  # what does not count may be anything
            taken.append(block[-seen % step :: step])
            seen += len(block)
        sample = np.concatenate(taken)
        return (sample[:, :-1], sample[:, -1]) if rows.weighted else (sample, np.ones(len(sample)))

    def _pass(self, rows: Rows, order: int, shift: Array | None, label: str, pooled: bool = False) -> Moments:
        """Moments of columns the user never sees: their warnings would name nothing."""
        options: dict[str, Any] = {"n_blocks": 1, "progress": label if self.progress else False}
        if not pooled:
            options |= {"n_blocks": self.n_blocks, "groups": self.groups}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Moments.of(rows, order, shift, **options)
