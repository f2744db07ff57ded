"""Moments: the one object that the rest of the library reads instead of rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from richcomponents.algebra import (
    Array,
    IntArray,
    column_numbers,
    multilinear,
    pack,
    packed_indices,
    packed_rank,
    unpack,
)
from richcomponents.algebra.packing import segments, translate
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments.forest import Forest
from richcomponents.moments.layout import MEMORY_LIMIT, Layout

__all__ = ["Moments"]

_MIN_SHARED = 5  # rows in every sum of a saved state


class Moments:
    """Sums of products of columns, about one shift: an immutable value with a neutral element and a plus.

    Made by :meth:`of`, :meth:`empty`, :meth:`load`, or an :class:`Accumulator`. Two states add when they
    describe the same columns; if their shifts differ, the right one is translated to the left one's.

    Attributes
    ----------
    layout : Layout
        Columns, orders, blocks.
    shift : array of shape (n_columns + n_targets,)
        Power sums are taken about this point. Sums about zero lose all digits of a fourth cumulant when the
        mean is 1e4 standard deviations away; about any point near the mean they lose none.
    n : int
        The number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> whole = Moments.of(X, order=4)
    >>> parts = Moments.of(X[:40], order=4, shift=whole.shift) + Moments.of(X[40:], 4, whole.shift, start=40)
    >>> parts.n, bool(np.allclose(whole.mean, parts.mean))
    (100, True)
    """

    def __init__(self, layout: Layout, shift: Array, blocked: Forest, pooled: Forest) -> None:
        self.layout = layout
        self.shift = np.array(shift, dtype=np.float64)
        self.shift.setflags(write=False)
        self._blocked, self._pooled = blocked, pooled

    # ---- making and merging

    @classmethod
    def empty(
        cls,
        n_columns: int,
        order: int = 4,
        shift: Array | None = None,
        *,
        n_targets: int = 0,
        target_order: int = 2,
        n_blocks: int = 20,
        block_length: int = 1,
    ) -> Moments:
        """The neutral element of +; without a shift it takes that of whatever it is added to."""
        layout = Layout(n_columns, order, n_targets, target_order, n_blocks, block_length)
        if shift is None:
            shift = np.full(n_columns + n_targets, np.nan)
        return cls(layout, np.asarray(shift, dtype=np.float64), Forest(), Forest())

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if self.layout != other.layout:
            raise ValueError(
                f"cannot add states of different kinds: {self.layout} and {other.layout}; "
                "use the same columns, order, targets and blocks for both"
            )
        if other.is_empty:
            return self if not self.is_empty or not np.isnan(self.shift).any() else other
        if self.is_empty and np.isnan(self.shift).any():
            return other
        other = other.about(self.shift)
        return Moments(
            self.layout, self.shift, self._blocked.merged(other._blocked), self._pooled.merged(other._pooled)
        )

    def about(self, shift: Array) -> Moments:
        """The same sums about another point (binomial translation)."""
        shift = np.asarray(shift, dtype=np.float64)
        if shift.shape != self.shift.shape:
            raise ValueError(f"the shift must have {self.shift.size} entries, got shape {shift.shape}")
        if np.array_equal(shift, self.shift) or self.is_empty:
            return self if not self.is_empty else Moments(self.layout, shift, Forest(), Forest())
        blocked, pooled = Forest(), Forest()
        for node, value in self._blocked:
            blocked.add(node, self._translated(value, shift - self.shift))
        if self.layout.pooled_size:
            # Orders five and six of a translated sum need the lower orders of the same rows, which are kept
            # by block and not by pooled leaf: the totals are translated, and the pooled tree is one node.
            pooled.add((0, 0, 0), self._translated_pooled(shift - self.shift))
        return Moments(self.layout, shift, blocked, pooled)

    def _translated(self, vector: Array, delta: Array) -> Array:
        """Blocked vectors about shift + delta; leading axes are kept."""
        lay, delta = self.layout, self._rounded(delta)
        if not delta.any():
            return vector
        move, target_move = delta[: lay.n_columns], delta[lay.n_columns :]
        out = vector.copy()
        joint = vector[..., lay.joint]
        out[..., lay.joint] = translate(joint, lay.n_columns, lay.blocked_order, move)
        if not lay.n_targets:
            return out
        k = lay.target_order - 1
        low = segments(lay.n_columns, k)[-1].stop
        for j, part in enumerate(lay.with_target):
            about_target = vector[..., part] - target_move[j] * joint[..., :low]
            out[..., part] = translate(about_target, lay.n_columns, k, move)
        sums = [vector[..., part.start] for part in lay.with_target]
        for at, (i, j) in enumerate(packed_indices(lay.n_targets, 2), start=lay.target_pairs.start):
            a, b = target_move[i], target_move[j]
            out[..., at] += joint[..., 0] * a * b - a * sums[j] - b * sums[i]
        return out

    def _rounded(self, delta: Array) -> Array:
        """Exactly zero views where all of them move by rounding only (a few units in the last place of their standard
        deviation, as rows about their computed mean do): nothing to translate."""
        p = self.layout.n_columns
        if (np.abs(delta[:p]) > 1e-15 * np.sqrt(np.maximum(self.variances, 0.0))).any():
            return delta
        return np.concatenate([np.zeros(p), delta[p:]])

    def _translated_pooled(self, delta: Array) -> Array:
        """The total of orders five and six about shift + delta."""
        lay = self.layout
        everything = np.concatenate([self.total[lay.joint], self.pooled])
        return translate(everything, lay.n_columns, lay.order, self._rounded(delta)[: lay.n_columns])[lay.joint.stop :]

    # ---- reading

    @property
    def is_empty(self) -> bool:
        return len(self._blocked) == 0

    @cached_property
    def blocks(self) -> Array:
        """The sums of each statistical block, shape (n_blocks, size of the blocked vector)."""
        size = self.layout.blocked_size
        out = self._blocked.fold(self.layout.n_blocks, slice(0, size), size)
        return _locked(out)

    @cached_property
    def total(self) -> Array:
        """The sums over all rows (orders up to four, and targets)."""
        return _locked(_sum_in_order(self.blocks))

    @cached_property
    def pooled(self) -> Array:
        """The sums of orders five and six over all rows."""
        size = self.layout.pooled_size
        return _locked(self._pooled.fold(1, slice(0, size), size)[0])

    @cached_property
    def _low(self) -> Array:
        """[orders 0, 1, 2 of the views | sums of the targets] per block, without touching higher orders."""
        lay = self.layout
        where = np.concatenate([np.arange(lay.orders[2].stop), [part.start for part in lay.with_target]])
        return self._blocked.fold(lay.n_blocks, where.astype(np.int64), len(where))

    @cached_property
    def n(self) -> int:
        return int(self.block_sizes.sum())

    @cached_property
    def block_sizes(self) -> IntArray:
        """Rows per block."""
        return np.rint(self._low[:, 0]).astype(np.int64)

    @cached_property
    def offset(self) -> Array:
        """mean - shift, with digits that their difference would have lost."""
        self._need_rows()
        sums, lay = _sum_in_order(self._low), self.layout
        return _locked(np.concatenate([sums[lay.orders[1]], sums[lay.orders[2].stop :]]) / self.n)

    @cached_property
    def mean(self) -> Array:
        """Column means, targets last."""
        return _locked(self.shift + self.offset)

    @cached_property
    def variances(self) -> Array:
        """Variances (over n) of the view columns, shape (n_columns,)."""
        p, sums = self.layout.n_columns, _sum_in_order(self._low)
        diagonal = packed_rank(np.repeat(np.arange(p)[:, None], 2, axis=1), p)
        raw = sums[self.layout.orders[2]][diagonal] / self.n
        return _locked(raw - (sums[self.layout.orders[1]] / self.n) ** 2)

    @cached_property
    def central_total(self) -> Array:
        """The blocked vector of all rows about their mean."""
        return _locked(self._translated(self.total, self.offset))

    @cached_property
    def central_pooled(self) -> Array:
        """Orders five and six of all rows about their mean."""
        return _locked(self._translated_pooled(self.offset) if self.layout.pooled_size else np.zeros(0))

    def central_blocks(self) -> Array:
        """The vectors of the blocks about the GLOBAL mean, shape (n_blocks, blocked_size)."""
        return self._translated(self.blocks, self.offset)

    def central_sums(self, order: int) -> Array:
        """Packed power sums of the view columns about their mean: sum_n prod (z - mean)."""
        if not 0 <= order <= self.layout.order:
            raise ValueError(f"this state holds orders up to {self.layout.order}, not {order}")
        source = self.central_total if order <= self.layout.blocked_order else self.central_pooled
        return source[self.layout.orders[order]]

    def moment(self, order: int) -> Array:
        """The dense central moment E[(Z - mean)^order] (plain average), shape (n_columns,) * order."""
        return unpack(self.central_sums(order) / self.n, self.layout.n_columns, order)

    def with_targets(self, order: int) -> Array:
        """Dense central moments E[z..z y], y in the last slot: shape (p,)*(order-1) + (n_targets,)."""
        lay = self.layout
        if not 1 <= order <= lay.target_order:
            raise ValueError(f"this state holds targets up to order {lay.target_order}, not {order}")
        where = segments(lay.n_columns, lay.target_order - 1)[order - 1]
        columns = [unpack(self.central_total[part][where], lay.n_columns, order - 1) for part in lay.with_target]
        stacked = np.stack(columns, axis=-1) if columns else np.zeros((lay.n_columns,) * (order - 1) + (0,))
        return stacked / self.n

    def covariance(self, *, unbiased: bool = True) -> Array:
        """Covariance of all columns, targets last: shape (n_columns + n_targets,) * 2."""
        self._need_rows(2)
        return self._second(self.central_total) / (self.n - 1 if unbiased else self.n)

    def block_covariances(self) -> Array:
        """E[(c - mean)(c - mean)'] per block about the GLOBAL mean, shape (n_blocks, p+q, p+q).

        Averaged over blocks with their sizes as weights they give the (plain) covariance exactly.
        """
        sizes = np.maximum(self.block_sizes, 1)
        return np.stack([self._second(b) / n for b, n in zip(self.central_blocks(), sizes, strict=True)])

    def _second(self, vector: Array) -> Array:
        """Second-order sums of all columns in a blocked vector, targets last."""
        lay = self.layout
        p, q = lay.n_columns, lay.n_targets
        out = np.empty((p + q, p + q))
        out[:p, :p] = unpack(vector[lay.orders[2]], p, 2)
        first_order = slice(1, 1 + p)
        for j, part in enumerate(lay.with_target):
            out[:p, p + j] = out[p + j, :p] = vector[part][first_order]
        if q:
            out[p:, p:] = unpack(vector[lay.target_pairs], q, 2)
        return out

    def without(self, blocks: Iterable[int]) -> Moments:
        """The state with these statistical blocks left out (delete-a-block jackknife, held-out folds)."""
        gone = set(blocks)
        if self.layout.pooled_size:
            raise ValueError("orders five and six are not kept by block; use order <= 4 for the jackknife")
        kept = Forest()
        for node, value in self._blocked:
            if node[0] not in gone:
                kept.add(node, value)
        return Moments(self.layout, self.shift, kept, Forest())

    def select(self, columns: object) -> Moments:
        """The state of some of the view columns (numbers, a mask or a slice), in the given order; targets stay."""
        lay = self.layout
        cols = column_numbers(columns, lay.n_columns)
        if np.array_equal(cols, np.arange(lay.n_columns)):
            return self
        small = Layout(len(cols), lay.order, lay.n_targets, lay.target_order, lay.n_blocks, lay.block_length, lay.leaf)

        def positions(order: int) -> IntArray:
            """Where the packed homogeneous entries of the chosen columns lie in the larger vector."""
            wide = np.concatenate([[0], cols + 1])[packed_indices(len(cols) + 1, order)]
            return packed_rank(np.sort(wide, axis=1), lay.n_columns + 1)

        everything = positions(lay.order)
        cut = small.joint.stop
        with_target = positions(lay.target_order - 1) if lay.n_targets else np.zeros(0, dtype=np.int64)
        take = np.concatenate(
            [everything[:cut]]
            + [part.start + with_target for part in lay.with_target]
            + [np.arange(lay.target_pairs.start, lay.target_pairs.stop)]
        )
        blocked, pooled = Forest(), Forest()
        for node, value in self._blocked:
            blocked.add(node, value[take])
        for node, value in self._pooled:
            pooled.add(node, value[everything[cut:] - lay.joint.stop])
        shift = np.concatenate([self.shift[: lay.n_columns][cols], self.shift[lay.n_columns :]])
        return Moments(small, shift, blocked, pooled)

    def transformed(self, matrix: Array) -> Moments:
        """The state of the columns (z - mean) @ matrix, from this state alone; matrix is (n_columns, m).

        Orders up to four, block by block; where rows can be read again, a pass over mapped rows gives the same.
        """
        lay = self.layout
        if lay.order > lay.blocked_order or lay.n_targets:
            raise ValueError("only states of order <= 4 without targets can be transformed")
        need = 8.0 * 8 * float(max(lay.n_columns, matrix.shape[1])) ** lay.order
        if need > MEMORY_LIMIT:
            raise CapacityError(
                f"transforming a state of order {lay.order} of {lay.n_columns} columns needs about {need / 2**30:,.0f} GiB: "
                "select fewer columns, or fit from the rows, which are mapped before they are summed"
            )
        new = Layout(matrix.shape[1], lay.order, 0, 2, lay.n_blocks, lay.block_length, lay.leaf)
        blocked = Forest()
        for b, vector in enumerate(self.central_blocks()):
            if vector[0] == 0:
                continue
            out = np.empty(new.blocked_size)
            out[0] = vector[0]
            for order in range(1, lay.order + 1):
                dense = unpack(vector[lay.orders[order]], lay.n_columns, order)
                out[new.orders[order]] = pack(multilinear(dense, *[matrix] * order))
            blocked.add((b, 0, 0), out)
        return Moments(new, np.zeros(new.n_columns), blocked, Forest())

    def _need_rows(self, at_least: int = 1) -> None:
        if self.n < at_least:
            raise DataError(f"this needs at least {at_least} rows, the state holds {self.n}")

    # ---- values

    def __eq__(self, other: object) -> bool:
        """Equal bits: the same layout, shift and canonical forest."""
        if not isinstance(other, Moments):
            return NotImplemented
        return (
            self.layout == other.layout
            and np.array_equal(self.shift, other.shift, equal_nan=True)
            and self._blocked == other._blocked
            and self._pooled == other._pooled
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lay = self.layout
        targets = f", n_targets={lay.n_targets}" if lay.n_targets else ""
        return f"Moments(n={self.n}, n_columns={lay.n_columns}, order={lay.order}{targets}, n_blocks={lay.n_blocks})"

    # ---- doors that live in their own files, so that this one stays a value

    @classmethod
    def of(
        cls,
        X: object,
        order: int = 4,
        shift: Array | None = None,
        start: int = 0,
        *,
        targets: object | None = None,
        target_order: int = 2,
        n_blocks: int = 20,
        block_length: int = 1,
        groups: object | None = None,
        sample_weight: object | None = None,
        threads: int | None = None,
        memory_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 20.0,
        progress: bool = False,
    ) -> Moments:
        """Moments of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_columns)
            An array, a data frame, a path or several (see :func:`open_source`), or an iterator or list of blocks of rows.
        order : int
            All joint moments up to this order (2..6).
        shift : array of shape (n_columns + n_targets,), optional
            The origin; the column means by default. Give one shift to all states that are to be merged.
        start : int
            The absolute number of the first row: states of consecutive pieces get consecutive starts.
            Sums of states agree in bits with one pass where pieces begin at multiples of
            ``n_blocks * lcm(2048, block_length)`` rows; an :class:`Accumulator` gives equal bits for any pieces.
        targets : array-like of shape (n_rows,) or (n_rows, n_targets), optional
            Outcome or covariate columns, kept at low order with the views.
        target_order : int
            2: E[z y]; 3: also E[z z y]; 4: also E[z z z y].
        n_blocks, block_length : int
            Row i belongs to statistical block (i // block_length) mod n_blocks. A longer block_length keeps
            serially dependent rows together.
        groups : array-like of shape (n_rows,), optional
            Rows of one group (one patient, one plate) stay in one block.
        sample_weight : array-like of shape (n_rows,), or the name of a column of a source, optional
            How often each row is counted: whole numbers, at least 0. The sums are those of the rows repeated, to rounding;
            all copies of row i are in the block of row i, as with groups, and a row of weight 0 keeps its number.
        threads : int, optional
            All cores by default. The result does not depend on it.
        memory_limit : float, optional
            Bytes above which the request is refused before anything is allocated (4 GiB).
        checkpoint : path, optional
            Where the pass is kept, every `checkpoint_every` seconds and when it is interrupted; the same call then goes on
            from there, to the same bits. The file holds some of the rows; it is removed when the pass is complete. Other data
            are refused: tables in memory and lists of blocks are told by all their values, files by size and time of change, an
            iterator by its first row only.
        progress : bool
            Show a bar.
        """
        from richcomponents.moments.building import build_moments
        from richcomponents.moments.rows import Rows  # rows build states: imported where it is needed

        rows = Rows.of(X, targets=targets)
        return build_moments(
            rows if sample_weight is None else rows.weighted_by(sample_weight),
            order,
            shift,
            start,
            target_order=target_order,
            n_blocks=n_blocks,
            block_length=block_length,
            groups=groups,
            threads=threads,
            memory_limit=memory_limit,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            progress="moments" if progress else None,
        )

    @classmethod
    def from_source(
        cls,
        source: object,
        order: int = 4,
        *,
        columns: object | None = None,
        targets: object | None = None,
        shift: Array | None = None,
        start: int = 0,
        **options: Any,
    ) -> Moments:
        """Moments of a table that need not be in memory, in memory that does not depend on the number of rows.

        source : a path or several (.npy, .parquet, .zarr, .h5ad, .csv, .tsv; see :func:`open_source`), what open_source
        returns, an iterator (or list) of blocks of rows, or a dask array or data frame, which is reduced on the active
        cluster (a distributed.Client) or else by threads here; only sums travel.
        columns : those that are read (names, numbers, a mask or a slice); all by default.
        targets : those of them that are outcomes, not view columns; they are put last.
        shift : in the order (view columns, targets); the means by default, or the mean of the first block when the rows can
        be read only once. Other options as in :meth:`of`.
        """
        from richcomponents.moments.rows import Rows

        rows = Rows.of(source)
        rows = rows if columns is None else rows.select(columns)
        return cls.of(rows if targets is None else rows.with_targets(targets), order, shift, start, **options)

    def folded(self) -> Moments:
        """The same state with one sum per block: what sites exchange.

        A state keeps the sums of its last, incomplete leaves apart, so that more rows can follow to the same bits; such a leaf
        may hold a single row. Folded, no sum is over less than a block. Everything read from it agrees to rounding.
        """
        blocked, pooled = Forest(), Forest()
        for block, vector in enumerate(self.blocks):
            if self.block_sizes[block]:
                blocked.add((block, 0, 0), vector)
        if self.layout.pooled_size and not self.is_empty:
            pooled.add((0, 0, 0), self.pooled)
        return Moments(self.layout, self.shift, blocked, pooled)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the sums (never rows) to one file, all or nothing; see :meth:`load`.

        A state in which a sum is over fewer than five rows is refused, since such a sum gives the rows away: use
        :meth:`folded`, more rows or fewer blocks, or force=True where the file stays with the data. With weights, rows are
        counted as often as their weights say: a state cannot tell one row of weight five from five rows.
        """
        from richcomponents.moments.files import save_moments

        counts = [round(float(value[0])) for _, value in self._blocked]
        if counts and min(counts) < _MIN_SHARED and not force:
            fix = (
                "save state.folded()"
                if self.block_sizes[self.block_sizes > 0].min() >= _MIN_SHARED
                else "use fewer blocks"
            )
            raise DataError(
                f"one of the sums in this state is over {min(counts)} row(s) of {self.n}, and would reveal them: {fix}, or "
                "use force=True if the file stays where the rows are"
            )
        save_moments(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int = 4 * 2**30) -> Moments:
        """Read a saved state; nothing in the file is executed, and nothing larger than `max_bytes` is read."""
        from richcomponents.moments.files import load_moments

        return load_moments(path, max_bytes=max_bytes)


def _sum_in_order(blocks: Array) -> Array:
    """Sum over blocks in one fixed order, so that the bits are fixed too."""
    out = np.zeros(blocks.shape[1])
    for block in blocks:
        out += block
    return out


def _locked(array: Array) -> Array:
    """A state is a value: what it hands out cannot change it."""
    array.setflags(write=False)
    return array
