"""What a state holds and where: a fixed description agreed on before the first row is read.

Two units never to be mixed up:

* a LEAF is the unit of reproducibility: the rows of one GEMM-sized piece, summed in a fixed order;
* a BLOCK is the unit of statistics: row i belongs to block i mod n_blocks, so that
  jackknife, cross-validation and cross-block products see interleaved, comparable samples even
  when the file is sorted.

Row i has block b and a position inside that block; leaf (b, k) holds the rows of block b with
positions k*leaf .. (k+1)*leaf - 1. Both depend on the absolute row number only, never on how the
rows arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from richcomponents.algebra import IntArray, packed_size
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT
from richcomponents.algebra.packing import segments
from richcomponents.errors import CapacityError, DataError
from richcomponents.storage import storable

__all__ = [
    "LEAF",
    "MAX_BLOCKED_ORDER",
    "MAX_ORDER",
    "MOST_ROWS",
    "N_BLOCKS",
    "Layout",
    "block_numbers",
    "default_blocks",
]

MAX_ORDER = 6
MAX_BLOCKED_ORDER = 4  # orders five and six are kept in total only: their block errors are never used
N_BLOCKS = 20
MOST_ROWS = 2.0**53  # counts beyond are not exact


def default_blocks(order: int) -> int:
    """How many blocks a state has unless the user says otherwise."""
    return N_BLOCKS if order <= MAX_BLOCKED_ORDER else 1


def block_numbers(n_rows: int, n_blocks: int, groups: object | None = None) -> IntArray:
    """The statistical block of each of rows 0..n-1: in turn, or, with groups, all rows of a group in one block.

    Groups are dealt out in turn, in order of first appearance. A missing label is refused: rows without one would pass for
    one large group.

    >>> block_numbers(5, 2).tolist(), block_numbers(5, 2, ["a", "a", "b", "c", "a"]).tolist()
    ([0, 1, 0, 1, 0], [0, 0, 1, 0, 0])
    """
    if groups is None:
        return np.arange(n_rows, dtype=np.int64) % n_blocks
    labels = groups if isinstance(groups, np.ndarray) else np.asarray(groups, dtype=object)  # else nan becomes 'nan'
    if labels.shape != (n_rows,):
        raise DataError(f"groups must have one label per row ({n_rows}), got shape {labels.shape}")
    missing = np.isnat(labels) if labels.dtype.kind in "mM" else [_is_missing(label) for label in labels.tolist()]
    if np.any(missing):
        raise DataError(
            f"groups holds {int(np.sum(missing))} missing label(s), the first in row {int(np.argmax(missing))}: drop those "
            "rows, or give each its own label"
        )
    turn: dict[object, int] = {}
    codes = np.array([turn.setdefault(label, len(turn)) for label in labels.tolist()], dtype=np.int64)
    return codes % n_blocks


def _is_missing(label: object) -> bool:
    """None, nan, NaT, or the NA of pandas, which does not even say whether it equals itself."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


@storable
@dataclass(frozen=True)
class Layout:
    """Columns, orders and blocks of a state.

    Parameters
    ----------
    n_columns : int
        p, the columns Z.
    order : int
        Joint moments of Z of every order up to this one (2..6).
    n_blocks : int
        Row i belongs to block i mod n_blocks. Orders five and six are kept in one block: nothing reads their block errors.
    leaf : int
        Rows of one block that are summed in one go.
    """

    n_columns: int
    order: int = 4
    n_blocks: int = 20
    leaf: int = LEAF

    def __post_init__(self) -> None:
        for name, low, high in (
            ("n_columns", 1, None),
            ("order", 2, MAX_ORDER),
            ("n_blocks", 1, None),
            ("leaf", 1, None),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < low or (high is not None and value > high):
                bounds = f"between {low} and {high}" if high is not None else f"at least {low}"
                raise ValueError(f"{name} must be {bounds}, got {value}")
            object.__setattr__(self, name, int(value))
        if self.order > MAX_BLOCKED_ORDER and self.n_blocks > 1:
            raise ValueError(
                f"moments of order {self.order} are kept in one block, got n_blocks={self.n_blocks}: use n_blocks=1"
            )

    @cached_property
    def orders(self) -> list[slice]:
        """Where the packed sums of orders 0..order lie in the vector of sums."""
        return segments(self.n_columns, self.order)

    @cached_property
    def size(self) -> int:
        """Length of the vector of sums: the homogeneous tensor of (1, Z), packed."""
        return packed_size(self.n_columns + 1, self.order)

    # ---- rows -> leaves

    def stripes(self, start: int, n_rows: int) -> Iterator[tuple[int, int, slice]]:
        """Of each block that has any rows in a contiguous chunk that begins at absolute row `start`:

        (block, position of its first row inside the block, selector into the chunk).
        Consecutive rows of a block have consecutive positions, so this describes all of them.
        """
        for block in range(self.n_blocks):
            offset = (block - start) % self.n_blocks
            if offset < n_rows:
                yield block, (start + offset) // self.n_blocks, slice(offset, n_rows, self.n_blocks)

    def check_columns(self, width: int) -> None:
        if width != self.n_columns:
            raise DataError(f"expected rows with {self.n_columns} columns, got {width}")

    def check_memory(self, limit: float = MEMORY_LIMIT) -> None:
        """Refuse before allocating.

        A state and the copy made while it is read hold about three vectors per block.
        """
        need = 8.0 * 3 * self.n_blocks * self.size
        if need <= limit:
            return
        raise CapacityError(
            f"moments of order {self.order} of {self.n_columns} columns in {self.n_blocks} blocks need about "
            f"{need / 2**30:,.1f} GiB, more than the limit of {limit / 2**30:,.1f} GiB. Lower `order`, use fewer "
            "columns (rank reduction: `rank=`, or principal components first), use fewer blocks (`n_blocks=`), "
            "or the implicit Gram form (richcomponents.cumulants.block_grams), which never builds the tensor; "
            "or raise `memory_limit`."
        )
