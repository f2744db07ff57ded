"""Moments of rows with gaps: all that is there counts, as if it came from rows without gaps.

With mean m and covariance C, the best linear prediction of a row z from the columns o that are there is

    z_o -> P_o z = m + C[:, o] C[o, o]^-1 (z_o - m_o).

Moments of predicted rows are too small, by what no prediction knows. How much that is, rows that are complete can tell: let
them lack what others lack, and predict them, too. For any moment g, of any order, of N rows, mean_c over complete ones,

    N E[g] ~ N mean_c g(z) + sum over incomplete rows ( g(P_o z) - mean_c g(P_o z) ),        o : what is there of that row.

The bracket has expectation zero when gaps do not depend on values (missing completely at random), whatever P is: P only decides
how much noise is taken away. It is a control variate (augmented inverse-probability weighting with a constant probability;
Robins, Rotnitzky and Zhao 1994); m and C come from the EM algorithm for normal rows, and for a view that some rows lack
altogether the second moments are the maximum-likelihood ones (Anderson 1957).

Single values missing here and there leave few rows complete. Then the rows with the fewest gaps stand in for complete ones
(of those with a value in every view, a tenth at least). What prediction loses for gaps D of theirs and for gaps o on top of
them adds up to first order, b(D + o) ~ b(D) + b(o), and so it cancels: it is simulation and extrapolation to no gaps at all
(Cook and Stefanski 1994). What remains is of second order in the gaps of these rows.

Why not the mean of each product over the rows that have its columns? It is unbiased, too, but what cancels inside a set of rows
does not cancel between two sets. The regression coefficient of two standardised columns of correlation r, one of them there
in n of N rows, has variance (1 - r^2) / n from these n rows and (1 + r^2) / n - 2 r^2 / N from products: more than if rows were
dropped; and covariances of correlated columns soon contradict each other (they are not positive definite).

Where a gap depends on columns that are there (missing at random), moments with one missing column stay right as far as its
regression on those is linear, all others may be further off than those of complete rows: the bracket is no longer zero. A test
of means says so (`_check_at_random`). Where a gap depends on what is missing nothing here is right.

Blocks are kept: each block's moments are those of the formula for its rows, as if they were N_b rows without gaps. How many
such rows they are worth is measured between blocks (the design effect of `moments.data`), and is never less than complete rows
alone. Blocks are drawn from the row's number, so that no rhythm of gaps in the file goes in step with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.stats import chi2

from richcomponents.algebra import Array, IntArray, Truth
from richcomponents.data.rows import Rows
from richcomponents.data.table import standardised
from richcomponents.errors import DataError, SpecificationWarning, warn_user
from richcomponents.moments.data import AffineMap, Data, Dependence, RowData, dependence_of_blocks
from richcomponents.moments.kernel import Forest, block_numbers
from richcomponents.moments.state import Moments
from richcomponents.storage import storable
from richcomponents.text import p_value

_EACH = 4  # patterns of gaps that stand-ins get one after the other; of more patterns, each gets one
_MOST = 100_000  # patterns of gaps
_NONE, _IDLE = -1, -2


# ---- what is missing


@dataclass(frozen=True)
class Gaps:
    """Which values of rows are missing or infinite.

    parts : {name: its columns}, the views and others; patterns (k, p) : the different rows of truth values, True where a value
    is there; code (n,) : the pattern of each row; weight (n,) : how often it counts; mean, variance (p,) : over what is there.
    """

    parts: Mapping[str, IntArray]
    patterns: Truth
    code: IntArray
    weight: Array
    mean: Array
    variance: Array

    @classmethod
    def of(cls, rows: Rows, parts: Mapping[str, IntArray], describe: Callable[[int], str] = str) -> Self:
        """Reads all rows, once; describe : what messages call a column."""
        packed, weights = [], []
        seen, first, sums, squares = np.zeros((4, rows.width))
        for block in rows.chunks():
            values, weight = block[:, : rows.width], block[:, -1] if rows.weighted else np.ones(len(block))
            there = np.isfinite(values)
            packed.append(np.packbits(there, axis=1))
            weights.append(weight)
            new = (seen == 0) & there.any(axis=0)
            first[new] = values[np.argmax(there, axis=0), np.arange(rows.width)][new]
            centred = np.where(there, values - first, 0.0)
            seen, sums, squares = seen + weight @ there, sums + weight @ centred, squares + weight @ centred**2
        if not packed:
            raise DataError("there are no rows")
        different, code = np.unique(np.concatenate(packed), axis=0, return_inverse=True)
        if len(different) > _MOST:
            raise DataError(
                f"the gaps of these rows have more than {_MOST} different patterns: leave out the columns with most gaps, or "
                "fill them first"
            )
        never = np.flatnonzero(seen == 0)
        if len(never):
            raise DataError(f"{describe(int(never[0]))} holds no value at all: leave it out")
        mean, patterns = sums / seen, np.unpackbits(different, axis=1, count=rows.width).astype(bool)
        return cls(parts, patterns, code.ravel(), np.concatenate(weights), first + mean, squares / seen - mean**2)

    @cached_property
    def counts(self) -> Array:
        """(k,): rows of each pattern."""
        return np.bincount(self.code, self.weight, len(self.patterns)).astype(np.float64)

    @property
    def any(self) -> bool:
        """Whether a row that counts has a gap."""
        return bool(self.counts[~self.patterns.all(axis=1)].any())

    @cached_property
    def complete(self) -> Truth:
        """(n,): rows without gaps."""
        return np.asarray(np.all(self.patterns, axis=1))[self.code]

    @cached_property
    def empty(self) -> Truth:
        """(n,): rows without a value."""
        return ~np.asarray(np.any(self.patterns, axis=1))[self.code]

    def lacks(self, part: str) -> Truth:
        """(n,): rows without a value of this part."""
        return ~np.asarray(np.any(self.patterns[:, self.parts[part]], axis=1))[self.code]

    @cached_property
    def stand_ins(self) -> Truth:
        """(n,): complete rows, or where these are few the tenth with the fewest gaps, of those with a value in every part."""
        whole = np.all([self.patterns[:, columns].any(axis=1) for columns in self.parts.values()], axis=0)
        holes = np.where(whole, np.sum(~self.patterns, axis=1), self.patterns.shape[1])
        counts = np.bincount(holes[whole], self.counts[whole], self.patterns.shape[1] + 1)
        most = int(np.argmax(np.cumsum(counts) >= 0.1 * counts.sum()))
        return np.asarray((whole & (holes <= most))[self.code])

    def note(self) -> str:
        """What is missing, in a sentence."""
        counts = self.weight > 0
        lacks = {part: counts & self.lacks(part) for part in self.parts}
        told = [f"{int(rows.sum())} lack all of {part!r}" for part, rows in lacks.items() if rows.any()]
        single = int(np.sum(counts & ~self.complete & ~np.any(list(lacks.values()), axis=0)))
        told += [f"{single} lack single values"] if single else []
        return f"Of {int(counts.sum())} rows {int(np.sum(counts & self.complete))} are complete; {', '.join(told)}."


def patterns_of(there: Truth) -> list[tuple[Truth, IntArray]]:
    """The different rows of truth values (n, p), and the numbers of the rows that are like each."""
    if not len(there):
        return []
    packed = np.packbits(there, axis=1)
    _, first, inverse, counts = np.unique(packed, axis=0, return_index=True, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(inverse.ravel(), kind="stable"), np.cumsum(counts)[:-1])
    return [(there[row], at) for row, at in zip(first.tolist(), members, strict=True)]


# ---- predictions


@storable
@dataclass(frozen=True)
class Fill:
    """The best linear prediction of whole rows (n, p) from what is there of them; mean (p,), covariance (p, p)."""

    mean: Array
    covariance: Array

    def __call__(self, rows: Array) -> Array:
        """Rows without gaps."""
        out = rows.copy()
        for pattern, at in patterns_of(np.isfinite(rows)):
            if not pattern.all():
                some = rows[at]
                centred = some[:, pattern] - self.mean[pattern]
                some[:, ~pattern] = self.mean[~pattern] + centred @ self.weights(pattern)
                out[at] = some
        return out

    @cached_property
    def _standard(self) -> tuple[Array, Array]:
        """Standard deviations and correlations."""
        return standardised(self.covariance)

    @cached_property
    def _known(self) -> dict[bytes, Array]:
        return {}

    def weights(self, there: Truth) -> Array:
        """(seen, missing): of the columns that are there, in the prediction of the others; collinear ones are harmless."""
        key = there.tobytes()
        if key not in self._known:
            if len(self._known) * len(there) >= 2**20:  # so much is kept
                self._known.clear()
            scale = self._standard[0]
            self._known[key] = self._unit_weights(there) / scale[there][:, None] * scale[~there]
        return self._known[key]

    def _unit_weights(self, there: Truth) -> Array:
        """The same of columns with unit variance; where few are missing -K[missing, missing]^-1 K[missing, there], K = C^-1."""
        K = self._precision
        if K is not None and 2 * there.sum() > len(there):
            return np.asarray(-np.linalg.solve(K[np.ix_(~there, ~there)], K[np.ix_(~there, there)]).T)
        unit = self._standard[1]
        inner = np.linalg.pinv(unit[np.ix_(there, there)], rcond=1e-10, hermitian=True)
        return np.asarray(inner @ unit[np.ix_(there, ~there)])

    @cached_property
    def _precision(self) -> Array | None:
        """C^-1 of columns with unit variance, None where they are nearly collinear."""
        values, vectors = np.linalg.eigh(self._standard[1])
        return np.asarray((vectors / values) @ vectors.T) if values[0] > 1e-8 * values[-1] else None

    def error(self, there: Truth) -> Array:
        """(p, p): expected squared error of the prediction of a row of this pattern, zero where it is there."""
        out = np.zeros_like(self.covariance)
        gone = np.ix_(~there, ~there)
        known = self.weights(there).T @ self.covariance[np.ix_(there, ~there)]
        out[gone] = self.covariance[gone] - (known + known.T) / 2
        return out


def expected(rows: Rows, gaps: Gaps) -> Fill:
    """Mean and covariance of rows with gaps, by the EM algorithm for normal rows; rows : not weighted nor mapped.

    Each pass over the rows predicts them from what is there, and adds to their covariance what predictions do not know.
    """
    fill, n = Fill(gaps.mean, np.diag(gaps.variance)), float(gaps.weight @ ~gaps.empty)
    counted = rows.weighted_by(gaps.weight * ~gaps.empty)
    some = [(there, n) for there, n in zip(gaps.patterns, gaps.counts, strict=True) if n and there.any()]
    if gaps.weight @ gaps.complete > 2 * rows.width:  # these know the regression of a missing view on the others
        whole = Moments.of(rows.weighted_by(gaps.weight * gaps.complete), 2, gaps.mean, n_blocks=1)
        fill = Fill(np.array(whole.mean), whole.covariance(unbiased=False))
    for _ in range(20):
        state = Moments.of(counted.mapped(fill), 2, fill.mean, n_blocks=1)
        unknown = sum((count / n * fill.error(pattern) for pattern, count in some if not pattern.all()), np.zeros(1))
        found = Fill(np.array(state.mean), state.covariance(unbiased=False) + unknown)
        moved = np.abs(found.covariance - fill.covariance) / np.outer(found._standard[0], found._standard[0])
        fill = found
        if moved.max() < 1e-3:  # predictions need not be exact
            break
    return fill


class _Masked:
    """Rows followed by the number of a pattern (_NONE: of none), beside which they may have gaps of their own: predicted from
    what is left of them. _IDLE : rows that do not count."""

    def __init__(self, fill: Fill, patterns: Truth) -> None:
        self.fill, self.patterns = fill, patterns

    def __call__(self, rows: Array) -> Array:
        code, out = rows[:, -1].astype(np.int64), np.tile(self.fill.mean, (len(rows), 1))
        counts = code != _IDLE
        there = self.patterns[code[counts]] | (code[counts] == _NONE)[:, None]
        out[counts] = self.fill(np.where(there, rows[counts, :-1], np.nan))
        return out


# ---- moments


@dataclass(frozen=True)
class Available(Data):
    """Rows with gaps, as what a solver asks (see `moments.data.Data`).

    whole : complete rows or their stand-ins; seen : the others, predicted; masked : stand-ins that lack what others lack,
    predicted, and how many of these there are in each block, (B,); complete : rows without gaps; share : all rows over
    these; origin : before covariates were removed.
    """

    whole: RowData
    seen: RowData
    masked: Sequence[tuple[RowData, Array]]
    complete: RowData
    share: float
    lost: float = 0.0
    origin: Available | None = None
    _known: dict[object, Moments] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, rows: Rows, gaps: Gaps, n_blocks: int, groups: object = None, describe: Callable[[int], str] = str
    ) -> Self:
        """rows : weighted or not, not mapped; describe : what messages call a column."""
        n, code, weight = len(gaps.code), gaps.code, gaps.weight * ~gaps.empty
        blocks = block_numbers(n, n_blocks, drawn_blocks(n, n_blocks) if groups is None else groups)
        own, others = gaps.stand_ins, ~gaps.stand_ins & ~gaps.empty
        in_blocks = np.array([np.bincount(blocks[some], weight[some], n_blocks) for some in (own, others)])
        if (in_blocks[0, in_blocks.sum(axis=0) > 0] < 2).any():
            worst = int(np.argmax(gaps.counts @ ~gaps.patterns))
            raise DataError(
                f"too few rows have values of all views, for {n_blocks} blocks of rows"
                f"{'' if groups is None else ' (of whole groups)'}. {gaps.note()} Use fewer blocks (n_blocks=), or leave out "
                f"columns with many gaps, such as {describe(worst)}"
            )
        plain = rows.unweighted()
        fill = expected(plain, gaps)
        masks = _Masked(fill, gaps.patterns)

        def part(codes: IntArray, chosen: Truth) -> RowData:
            marks = np.where(chosen & (weight > 0), codes, _IDLE).astype(np.float64)
            marked = plain.with_columns(marks[:, None], ["pattern"])
            return RowData(marked.weighted_by(weight * chosen).mapped(masks), n_blocks, groups=blocks)

        none, kinds = np.full(n, _NONE), np.unique(code[others & (weight > 0)])
        drawn = [(np.full(n, kind), others & (code == kind)) for kind in kinds]
        if len(kinds) > _EACH:
            drawn = [(np.resize(np.random.default_rng(0).permutation(code[others & (weight > 0)]), n), others)]
        masked = [
            (part(codes, own), np.bincount(blocks[like], weight[like], n_blocks).astype(float)) for codes, like in drawn
        ]
        if groups is None:
            _check_at_random(plain, gaps, kinds.tolist() if len(kinds) <= _EACH else ())
        full = weight * gaps.complete
        share = float(weight.sum() / full.sum()) if full.any() else float("inf")
        complete = RowData(plain.weighted_by(full if full.any() else weight), n_blocks, groups=groups)
        seen = part(none, others if others.any() else own)
        made = cls(part(none, own), seen, masked, complete, share)
        _check_positive(made.moments(2), describe)
        return made

    @property
    def n_blocks(self) -> int:
        return self.whole.n_blocks

    def moments(self, order: int, map: AffineMap | None = None, *, pooled: bool = False) -> Moments:
        if order > 4:
            raise DataError("cumulants of order five and six need rows without gaps: use order=4, or missing='drop'")
        key = (order, None if map is None else map.key())
        if key not in self._known:
            self._known[key] = self._combined(order, map)
        return self._known[key].pooled() if pooled else self._known[key]

    def _combined(self, order: int, map: AffineMap | None) -> Moments:
        whole = self.whole.moments(order, map)

        def blocks(data: RowData, count: Array) -> Array:
            if not count.any():
                return np.zeros_like(whole.blocks)
            return data.moments(order, map).shifted_to(whole.shift).blocks

        counts = np.sum([like for _, like in self.masked], axis=0) if self.masked else np.zeros(self.n_blocks)
        own = np.maximum(whole.blocks[:, :1], 1.0)
        total = whole.blocks * (1 + counts[:, None] / own) + blocks(self.seen, counts)
        for data, like in self.masked:
            total -= blocks(data, like) * like[:, None] / own
        total[:, 0] = np.rint(total[:, 0])
        out = Forest({(int(b), 0, 0): total[b] for b in np.flatnonzero(total[:, 0])})
        return Moments(whole.layout, whole.shift, out, dependent=True)

    def dependence(self, map: AffineMap, correlations: Array, p: int) -> Dependence | None:
        """What gaps cost, measured between blocks; never more than dropping the rows would."""
        measured = dependence_of_blocks(self.moments(4, map), correlations, p, map.matrix.shape[1] - p)
        alone = self.complete.dependence(map, correlations, p)
        if alone is None or not np.isfinite(self.share):
            return measured
        alone = replace(alone, effect=alone.effect * self.share)
        parts = ((alone.effect, measured.effect), (alone.df, measured.df), (alone.spread, measured.spread))
        return Dependence(*(np.where(measured.effect >= alone.effect, *each) for each in parts))

    def mapped(self, map: AffineMap) -> Available:
        masked = [(data.mapped(map), like) for data, like in self.masked]
        whole, seen, complete = (data.mapped(map) for data in (self.whole, self.seen, self.complete))
        return replace(self, whole=whole, seen=seen, masked=masked, complete=complete, _known={})


def _check_at_random(rows: Rows, gaps: Gaps, kinds: Sequence[int]) -> None:
    """Warn where rows of a pattern differ in what is there of them from the rows that stand in for complete ones: a chi-square
    test of the difference of means (Little 1988, pattern by pattern)."""
    for kind in kinds:
        columns, like = np.flatnonzero(gaps.patterns[kind]), (gaps.code == kind).astype(np.float64) * gaps.weight
        some = rows.select(columns)
        compared = gaps.patterns[np.unique(gaps.code[gaps.stand_ins])][:, columns]
        if like.sum() <= 5 * len(columns) or not compared.all():
            continue
        one, other = (Moments.of(some.weighted_by(w), 2, n_blocks=1) for w in (like, gaps.weight * gaps.stand_ins))
        away, noise = one.mean - other.mean, one.covariance() / one.n + other.covariance() / other.n
        inverse = np.linalg.pinv(noise, rcond=1e-10, hermitian=True)
        p = float(chi2.sf(away @ inverse @ away, np.linalg.matrix_rank(noise, hermitian=True)))
        if p < 1e-4:
            lacks = " and ".join(repr(part) for part, at in gaps.parts.items() if not gaps.patterns[kind][at].any())
            warn_user(
                f"rows that lack {lacks or 'single values'} differ from the others in what is there of them ({p_value(p)}): "
                "values are not missing completely at random, and what rests on cumulants, such as A, may be wrong, more so "
                "than with missing='drop'. Compare the two; covariates that explain the difference help both",
                SpecificationWarning,
            )


def drawn_blocks(n: int, n_blocks: int) -> IntArray:
    """(n,) blocks of rows by their number: every n_blocks rows in a row are in different blocks, in an order drawn anew."""
    turns = -(-n // n_blocks)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(n_blocks), (turns, 1)), axis=1)
    return np.asarray(order.ravel()[:n])


def _check_positive(state: Moments, describe: Callable[[int], str]) -> None:
    """What is taken away for gaps may be more than there is, of columns that are nearly functions of each other."""
    values, vectors = np.linalg.eigh(standardised(state.covariance())[1])
    if values[0] < -1e-9 * len(values):
        named = " and ".join(describe(int(c)) for c in np.sort(np.argsort(-np.abs(vectors[:, 0]))[:2]))
        raise DataError(
            f"too many gaps in columns that are nearly functions of each other, such as {named}: leave one of them out, fill "
            "the gaps first, or use missing='drop'"
        )
