"""Moments: the one object that the rest of the library reads instead of rows; and the Accumulator that makes it of rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from richcomponents.algebra import Array, IntArray, multilinear, pack, packed_indices, packed_rank, unpack
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.packing import translate
from richcomponents.data.rows import open_source
from richcomponents.data.table import chosen_columns
from richcomponents.errors import CapacityError, DataError, StateFileError
from richcomponents.moments.kernel import N_BLOCKS, Forest, Layout, check_state
from richcomponents.storage import Storable, write


class Moments(Storable):
    """Sums of products of columns, about one shift: an immutable value with a neutral element and a plus.

    Made by :meth:`of`, :meth:`empty`, :meth:`load`, or an :class:`Accumulator`. Two states add when they
    describe the same columns; if their shifts differ, the right one is translated to the left one's.

    Attributes
    ----------
    layout : Layout
        Columns, orders, blocks.
    shift : array of shape (n_columns,)
        Power sums are taken about this point. Sums about zero lose all digits of a fourth cumulant when the
        mean is 1e4 standard deviations away; about any point near the mean they lose none.
    n : int
        The number of rows.
    dependent : bool
        Rows of a block may depend on each other (groups, weights): only blocks are independent.
    names : tuple of str, or None
        Of the columns, where the rows had names; states with other names do not add.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> whole = Moments.of(X, order=4)
    >>> parts = Moments.of(X[:40], order=4, shift=whole.shift) + Moments.of(X[40:], 4, whole.shift, start=40)
    >>> parts.n, bool(np.allclose(whole.mean, parts.mean))
    (100, True)
    """

    def __init__(
        self, layout: Layout, shift: Array, sums: Forest, dependent: bool = False, names: tuple[str, ...] | None = None
    ) -> None:
        self.layout, self.dependent, self.names = layout, dependent, names
        self.shift = np.array(shift, dtype=np.float64)
        self.shift.setflags(write=False)
        self.sums = sums

    @classmethod
    def of_parts(
        cls, layout: Layout, shift: Array, sums: Forest, dependent: bool, names: tuple[str, ...] | None = None
    ) -> Moments:
        """A state from its parts, which come from a file and may not belong together."""
        check_state(layout, shift, sums)
        if names is not None and len(names) != layout.n_columns:
            raise StateFileError(f"the state has {len(names)} names for {layout.n_columns} columns")
        return cls(layout, shift, sums, dependent, names)

    # ---- making and merging

    @classmethod
    def empty(
        cls,
        n_columns: int,
        order: int = 4,
        shift: Array | None = None,
        *,
        n_blocks: int | None = None,
        names: Sequence[str] | None = None,
    ) -> Moments:
        """The neutral element of +; without a shift it takes that of whatever it is added to."""
        layout = Layout(n_columns, order, N_BLOCKS if n_blocks is None else n_blocks)
        if shift is None:
            shift = np.full(n_columns, np.nan)
        return cls(layout, np.asarray(shift, dtype=np.float64), Forest(), names=None if names is None else tuple(names))

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if self.layout != other.layout:
            raise ValueError(
                f"cannot add states of different kinds: {self.layout} and {other.layout}; "
                "use the same columns, order and blocks for both"
            )
        names = self.names if other.names is None else other.names
        if self.names not in (None, names):
            odd = next(pair for pair in zip(self.names or (), names or (), strict=True) if pair[0] != pair[1])
            raise ValueError(
                f"cannot add states of different columns: {odd[0]!r} is {odd[1]!r} in the other; select the same columns, in "
                "the same order, for both"
            )
        if other.is_empty:
            return self if not self.is_empty or not np.isnan(self.shift).any() else other
        if self.is_empty and np.isnan(self.shift).any():
            return other
        sums = self.sums.merged(other.shifted_to(self.shift).sums)
        return Moments(self.layout, self.shift, sums, self.dependent or other.dependent, names)

    def shifted_to(self, shift: Array) -> Moments:
        """The same sums about another point (binomial translation)."""
        shift = np.asarray(shift, dtype=np.float64)
        if shift.shape != self.shift.shape:
            raise ValueError(f"the shift must have {self.shift.size} entries, got shape {shift.shape}")
        if self.is_empty:
            return Moments(self.layout, shift, Forest(), names=self.names)
        if np.array_equal(shift, self.shift):
            return self
        moved = {node: self._translated(value, shift - self.shift) for node, value in self.sums}
        return Moments(self.layout, shift, Forest(moved), self.dependent, self.names)

    def _translated(self, vector: Array, delta: Array) -> Array:
        """Vectors of sums about shift + delta; leading axes are kept."""
        lay, delta = self.layout, self._rounded(delta)
        return translate(vector, lay.n_columns, lay.order, delta) if delta.any() else vector

    def _rounded(self, delta: Array) -> Array:
        """Exactly zero where all columns move by rounding only (a few units in the last place of their standard
        deviation, as rows about their computed mean do): nothing to translate."""
        moves = np.abs(delta) > 1e-15 * np.sqrt(np.maximum(self.variances, 0.0))
        return delta if moves.any() else np.zeros_like(delta)

    # ---- reading

    @property
    def is_empty(self) -> bool:
        """Whether no row was added."""
        return len(self.sums) == 0

    @cached_property
    def blocks(self) -> Array:
        """The sums of each statistical block, shape (n_blocks, layout.size)."""
        return _locked(self.sums.fold(self.layout.n_blocks, self.layout.size))

    @cached_property
    def total(self) -> Array:
        """The sums over all rows."""
        return _locked(np.asarray(sum(self.blocks)))

    @cached_property
    def n(self) -> int:
        """The number of rows; frequency weights count."""
        return int(self.block_sizes.sum())

    @cached_property
    def block_sizes(self) -> IntArray:
        """Rows per block."""
        return np.rint(self.blocks[:, 0]).astype(np.int64)

    @cached_property
    def offset(self) -> Array:
        """mean - shift, with digits that their difference would have lost."""
        self._need_rows()
        return _locked(self.total[self.layout.orders[1]] / self.n)

    @cached_property
    def mean(self) -> Array:
        """Column means."""
        return _locked(self.shift + self.offset)

    @cached_property
    def variances(self) -> Array:
        """Variances (over n) of the columns, shape (n_columns,)."""
        sums = self.total
        raw = sums[self.layout.orders[2]][_squares(self.layout.n_columns)] / self.n
        return _locked(raw - (sums[self.layout.orders[1]] / self.n) ** 2)

    @cached_property
    def central_total(self) -> Array:
        """The sums over all rows about their mean."""
        return _locked(self._translated(self.total, self.offset))

    def central_blocks(self) -> Array:
        """The sums of the blocks about the GLOBAL mean, shape (n_blocks, layout.size)."""
        return self._translated(self.blocks, self.offset)

    def central_sums(self, order: int) -> Array:
        """Packed power sums of the columns about their mean: sum_n prod (z - mean)."""
        if not 0 <= order <= self.layout.order:
            raise ValueError(f"this state holds orders up to {self.layout.order}, not {order}")
        return self.central_total[self.layout.orders[order]]

    def moment(self, order: int) -> Array:
        """The dense central moment E[(Z - mean)^order] (plain average), shape (n_columns,) * order."""
        return unpack(self.central_sums(order) / self.n, self.layout.n_columns, order)

    def covariance(self, *, unbiased: bool = True) -> Array:
        """Covariance of all columns, (n_columns, n_columns)."""
        self._need_rows(2)
        return unpack(self.central_sums(2), self.layout.n_columns, 2) / (self.n - 1 if unbiased else self.n)

    def block_covariances(self) -> Array:
        """E[(c - mean)(c - mean)'] per block about the GLOBAL mean, shape (n_blocks, n_columns, n_columns).

        Averaged over blocks with their sizes as weights they give the (plain) covariance exactly.
        """
        sums = self.up_to(2).central_blocks()[:, self.layout.orders[2]]
        return unpack(sums, self.layout.n_columns, 2) / np.maximum(self.block_sizes, 1)[:, None, None]

    def without(self, blocks: Iterable[int]) -> Moments:
        """The state with these statistical blocks left out (delete-a-block jackknife, held-out folds)."""
        gone = set(blocks)
        kept = {node: value for node, value in self.sums if node[0] not in gone}
        return Moments(self.layout, self.shift, Forest(kept), self.dependent, self.names)

    def select(self, columns: object) -> Moments:
        """The state of some of the columns (names, numbers, a mask or a slice), in the given order."""
        lay = self.layout
        cols = chosen_columns(columns, lay.n_columns, self.names)
        if np.array_equal(cols, np.arange(lay.n_columns)):
            return self
        wide = np.concatenate([[0], cols + 1])[packed_indices(len(cols) + 1, lay.order)]
        take = packed_rank(np.sort(wide, axis=1), lay.n_columns + 1)  # where their entries lie in the larger vector
        names = None if self.names is None else tuple(self.names[c] for c in cols)
        return Moments(replace(lay, n_columns=len(cols)), self.shift[cols], self.sums.part(take), self.dependent, names)

    def up_to(self, order: int) -> Moments:
        """The same state without the sums of higher orders."""
        if order >= self.layout.order:
            return self
        layout = replace(self.layout, order=order)
        return Moments(layout, self.shift, self.sums.part(slice(0, layout.size)), self.dependent, self.names)

    def pooled(self) -> Moments:
        """The same sums in one block."""
        sums = Forest() if self.is_empty else Forest({(0, 0, 0): self.total})
        return Moments(replace(self.layout, n_blocks=1), self.shift, sums, self.dependent, self.names)

    def transformed(self, matrix: Array) -> Moments:
        """The state of the columns (z - mean) @ matrix, from this state alone; matrix is (n_columns, m).

        Block by block; where rows can be read again, a pass over mapped rows gives the same.
        """
        lay = self.layout
        need = 8.0 * 8 * float(max(lay.n_columns, matrix.shape[1])) ** lay.order
        if need > MEMORY_LIMIT:
            raise CapacityError(
                f"transforming a state of order {lay.order} of {lay.n_columns} columns needs about {need / 2**30:,.0f} GiB: "
                "select fewer columns, or fit from the rows, which are mapped before they are summed"
            )
        new = replace(lay, n_columns=matrix.shape[1])
        sums = Forest()
        for b, vector in enumerate(self.central_blocks()):
            if vector[0] == 0:
                continue
            out = np.empty(new.size)
            out[0] = vector[0]
            for order in range(1, lay.order + 1):
                dense = unpack(vector[lay.orders[order]], lay.n_columns, order)
                out[new.orders[order]] = pack(multilinear(dense, *[matrix] * order))
            sums.add((b, 0, 0), out)
        return Moments(new, np.zeros(new.n_columns), sums, self.dependent)

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
            and self.sums == other.sums
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lay = self.layout
        return f"Moments(n={self.n}, n_columns={lay.n_columns}, order={lay.order}, n_blocks={lay.n_blocks})"

    # ---- from rows

    @classmethod
    def of(
        cls,
        X: object,
        order: int = 4,
        shift: Array | None = None,
        start: int = 0,
        *,
        n_blocks: int | None = None,
        groups: object | None = None,
        sample_weight: object | None = None,
        threads: int | None = None,
        memory_limit: float | None = None,
        progress: bool | str = False,
    ) -> Moments:
        """Moments of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_columns)
            An array, a data frame, a path or several (see :func:`open_source`), or an iterator or list of blocks of rows.
        order : int
            All joint moments up to this order (2..6).
        shift : array of shape (n_columns,), optional
            The origin; the column means by default. Give one shift to all states that are to be merged.
        start : int
            The absolute number of the first row: states of consecutive pieces get consecutive starts.
            Sums of states agree in bits with one pass where pieces begin at multiples of
            ``n_blocks * 2048`` rows; an :class:`Accumulator` gives equal bits for any pieces.
        n_blocks : int, optional
            Row i belongs to statistical block i mod n_blocks; 20 by default. Where only totals are wanted, one takes the least
            memory.
        groups : array-like of shape (n_rows,), or the name of a column, optional
            Rows of one group (one patient, one plate) stay in one block.
        sample_weight : array-like of shape (n_rows,), or the name of a column of a source, optional
            How often each row is counted: whole numbers, at least 0. The sums are those of the rows repeated, to rounding;
            all copies of row i are in the block of row i, as with groups, and a row of weight 0 keeps its number.
        threads : int, optional
            All cores by default. The result does not depend on it.
        memory_limit : float, optional
            Bytes above which the request is refused before anything is allocated (4 GiB).
        progress : bool or str
            Show how far it is, on standard error; a text says what is done.
        """
        from richcomponents.moments.accumulator import Accumulator, column_means, reduce_rows

        rows = open_source(X)
        rows = rows if sample_weight is None else rows.weighted_by(sample_weight)
        groups = rows.group_labels(groups)
        label = "moments" if progress is True else progress or None
        about = column_means(rows, None if label is None else f"{label}: means") if shift is None else shift
        options: dict[str, Any] = {"n_blocks": n_blocks, "threads": threads, "memory_limit": memory_limit}
        sums = Accumulator(order, about, names=rows.labels, weighted=rows.weighted, **options)
        return reduce_rows(rows, sums, start=start, groups=groups, progress=label)

    @classmethod
    def from_source(cls, source: object, order: int = 4, *, columns: object | None = None, **options: Any) -> Moments:
        """Moments of a table that need not be in memory, in memory that does not depend on the number of rows.

        source : a path or several (.parquet, .csv, .npz, .zarr, ...; see :func:`open_source`), what open_source
        returns, an iterator (or list) of blocks of rows, or a dask array or data frame, which is reduced on the active
        cluster (a distributed.Client) or else by threads here; only sums travel.
        columns : those that are read (names, numbers, a mask or a slice); all by default.
        Other options as in :meth:`of`; the shift is the mean of the first block when the rows can be read only once.
        """
        rows = open_source(source)
        return cls.of(rows if columns is None else rows.select(columns), order, **options)

    # ---- to other places

    def folded(self) -> Moments:
        """The same state with one sum per block: what sites exchange.

        A state keeps the sums of its last, incomplete leaves apart, so that more rows can follow to the same bits; such a leaf
        may hold a single row. Folded, no sum is over less than a block. Everything read from it agrees to rounding.
        """
        whole = {(block, 0, 0): vector for block, vector in enumerate(self.blocks) if self.block_sizes[block]}
        return Moments(self.layout, self.shift, Forest(whole), self.dependent, self.names)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the sums (never rows) to one file, all or nothing: an npz archive of arrays with a JSON header, never pickle.

        A state in which a sum is over fewer than five rows is refused, since such a sum gives the rows away: use
        :meth:`folded`, more rows or fewer blocks, or force=True where the file stays with the data. With weights, rows are
        counted as often as their weights say: a state cannot tell one row of weight five from five rows.
        """
        least = min((round(float(value[0])) for _, value in self.sums), default=5)
        if least < 5 and not force:
            folds = self.block_sizes[self.block_sizes > 0].min(initial=5) == 5
            raise DataError(
                f"one of the sums in this state is over {least} row(s) of {self.n}, and would reveal them: "
                f"{'save state.folded()' if folds else 'use fewer blocks'}, or use force=True if the file stays where the "
                "rows are"
            )
        write(self, path)


def _locked(array: Array) -> Array:
    """A state is a value: what it hands out cannot change it."""
    array.setflags(write=False)
    return array


@lru_cache(maxsize=64)
def _squares(p: int) -> IntArray:
    """Where the squares of p columns are packed."""
    return np.asarray(packed_rank(np.repeat(np.arange(p)[:, None], 2, axis=1), p))
