"""Statistics over rows: blocks of rows go in, in order, and what the statistic makes of all of them comes out.

Rows of dask collections are reduced where they are; others here, told how far they are, and kept in a checkpoint where one
is wanted.

DASK. Reductions over dask collections: pieces of rows become states where the rows are, and only states travel.

Pieces begin at multiples of the statistic's grain, so that every leaf lies in one piece, and partial results are merged as
siblings of the fixed tree: no chunking, number of workers, order of arrival or lost worker changes a bit. Dask computes lost
pieces again by itself. The cluster is the one that is active (a distributed.Client); without one, threads of this process.

CHECKPOINTS. Checkpoints: an accumulator on disk, from which a pass over rows goes on to the same bits.

A checkpoint holds sums, the rows of leaves that are not complete yet, and what tells the source: hashes of the rows that were
read. A pass that goes on reads them once more, without summing them, and compares: a sample of them would not tell a file
in which one value was changed, and reading costs little beside sums of order four. It is written next to its place and moved
there: whatever happens, and whenever, the file is the last whole one. One pass at a time has it, told by a lock that ends
with the process.
It holds ROWS (up to n_blocks * 2048 of them), unlike a saved state: keep it where the data may be.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol, Self, TypeVar, cast

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import LEAF, MEMORY_LIMIT, in_pieces
from richcomponents.data.rows import Rows
from richcomponents.data.sources.base import ChangedError, DaskSource, Fingerprint, aligned, block_rows
from richcomponents.data.table import as_matrix
from richcomponents.errors import CapacityError, DataError, MissingValueError, StateFileError, warn_user
from richcomponents.moments.accumulator import Forest, LeafSums
from richcomponents.moments.kernel import column_range, column_sum
from richcomponents.progress import metered
from richcomponents.storage import read, storable, write

_PIECE_BYTES = 2**27
_MIN_PIECES = 16  # enough for a few workers to share evenly
_FAN_IN = 8


class Mergeable(Protocol):
    """A statistic whose parts can be computed apart and joined in any order."""

    grain: int

    def fork(self) -> Any:
        """An empty statistic of the same kind, for one thread of another process."""

    def partial(self) -> Any:
        """What it holds, without rows where that is possible."""

    @staticmethod
    def join(parts: list[Any]) -> Any: ...

    def absorb(self, part: Any, start: int, n_rows: int) -> None: ...


def reduce_on_cluster(
    source: DaskSource, columns: Any, transform: Callable[[Array], Array] | None, statistic: Mergeable, start: int
) -> None:
    """Feed all rows, from absolute number `start` (a multiple of LEAF) on, to the statistic."""
    import dask

    n = source.n_rows or 0
    width = source.width if columns is None else len(columns)
    grain = lcm(statistic.grain, LEAF)
    if (need := 8 * width * min(grain, n)) > MEMORY_LIMIT:
        raise CapacityError(
            f"pieces of {min(grain, n)} rows of {width} columns, the least that keep the blocks of rows together, need "
            f"{need / 2**30:,.1f} GiB each: use fewer columns or fewer blocks (n_blocks=)"
        )
    size = _piece_rows(grain, n, width)
    cuts = [0, *range(size - start % size, n, size), n]
    lengths = [high - low for low, high in pairwise(cuts)]
    empty, work, join = statistic.fork(), dask.delayed(_work, pure=False), dask.delayed(statistic.join, pure=False)
    blocks = source.pieces(lengths, columns)
    parts = [work(block, transform, empty, start + low) for block, low in zip(blocks, cuts[:-1], strict=True)]
    while len(parts) > 1:
        parts = [join(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    (result,) = dask.compute(parts[0])
    statistic.absorb(result, start, n)


def _piece_rows(grain: int, n: int, width: int) -> int:
    """A multiple of the grain by a power of two: no more than 128 MB, and pieces enough to share."""
    size = grain
    while 2 * size * width * 8 <= _PIECE_BYTES and 2 * size * _MIN_PIECES <= n:
        size *= 2
    return size


def _work(block: object, transform: Callable[[Array], Array] | None, empty: Any, start: int) -> Any:
    rows = as_matrix(block)
    statistic = empty.fork()
    statistic.update(rows if transform is None else in_pieces(transform, rows), start)
    return statistic.partial()


_MAX_BYTES = 64 * 2**30
_SHARE = 20.0  # a write may take one part in so many of the time


@contextmanager
def held_interrupts() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C waits: what is yielded tells whether there was one. The second one interrupts at once.

    Rows that are half taken in cannot be kept; those of a block that is finished can.
    """
    asked: list[bool] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False  # other threads see no signals, and a handler of the user's own is left alone
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@storable
@dataclass(frozen=True)
class CheckpointContent:
    """What the file holds: which pass, its source's hashes up to here (k, 2), its rows if they were counted, its sums."""

    task: str
    about: str
    source_rows: int | None
    prints: IntArray
    sums: LeafSums

    def __post_init__(self) -> None:
        if self.prints.shape[1:] != (2,) or (np.diff(self.prints[:, 0], prepend=-1) <= 0).any():
            raise StateFileError("the hashes of its rows are not in order")


class Checkpoint:
    """Where a pass is kept.

    Parameters
    ----------
    path : where. The file is removed when the pass is complete.
    task : what tells this pass from any other: source, columns, maps, options.
    every : seconds between writes; more when a write takes long.
    fingerprint : of the rows, as they are read.
    """

    def __init__(
        self, path: str | os.PathLike[str], task: str, every: float = 20.0, fingerprint: Fingerprint | None = None
    ) -> None:
        # a link is written through, and stays
        self.path, self.every, self._fingerprint = Path(path).resolve(), every, fingerprint or Fingerprint()
        self.task = hashlib.sha256(task.encode()).hexdigest()
        self._about = task[:200]
        self._next = time.monotonic() + every

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other pass, of this process or another one, can have the same checkpoint."""
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"there is no folder {self.path.parent} for the checkpoint {self.path.name}: make it first"
            )
        with locked(self.path.with_name(f"{self.path.name}.lock")) as free:
            if not free:
                raise DataError(
                    f"another pass is using the checkpoint {self.path}: wait for it, or give this one a path of its own"
                )
            yield

    def of_another(self, error: Exception) -> DataError:
        """Rows that do not belong to what was read before, here or before an interruption."""
        return DataError(
            f"{error}. Where it is meant to be another one, the checkpoint {self.path} belongs to another source: delete it"
        )

    def load(self, sums: LeafSums) -> bool:
        """Whether there is a file; the sums, which hold no rows yet, then go on from it."""
        self._remove_leftovers()
        if not self.path.exists():
            return False
        try:
            kept = read(self.path, CheckpointContent, _MAX_BYTES, "not a checkpoint")
        except StateFileError as error:
            raise StateFileError(f"{error}. The checkpoint cannot be used: delete it to start again") from error
        if kept.task != self.task or not self._fingerprint.restored(kept.prints, kept.source_rows):
            raise DataError(
                f"the checkpoint {self.path} belongs to another source, other columns or other options "
                f"({kept.about!r}, not {self._about!r}): delete it to start again, or give another path"
            )
        try:
            sums.resume(kept.sums)
        except DataError as error:
            raise DataError(f"the checkpoint {self.path} cannot be used: {error}; delete it to start again") from error
        return True

    def rows_done(self, statistic: object, start: int) -> int:
        """How many rows of the source the statistic holds already."""
        assert isinstance(statistic, LeafSums)
        return max(statistic.reached - start, 0)

    def tick(self, statistic: object) -> None:
        """Write when it is time."""
        if time.monotonic() >= self._next:
            self.keep(statistic)

    def keep(self, statistic: object) -> None:
        """Write now; sums that were interrupted half-way are not written: the last file stays."""
        assert isinstance(statistic, LeafSums)
        if not statistic.is_whole:
            return
        began = time.monotonic()
        seen = self._fingerprint
        kept = CheckpointContent(self.task, self._about, seen.n_rows, seen.saved(), statistic)
        write(kept, self.path, mode=0o600)  # it holds rows
        now = time.monotonic()
        self._next = now + max(self.every, _SHARE * (now - began) if self.every else 0.0)

    def done(self) -> None:
        """The pass is complete: nothing is left to resume."""
        self.path.unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Half-written files of a process that was killed while it wrote."""
        pattern = re.compile(re.escape(f".{self.path.name}.") + r"[a-z0-9_]{8}")
        for other in self.path.parent.iterdir():
            if pattern.fullmatch(other.name):
                other.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether the lock was free; inside, it is held. It goes with the process, however that ends; its file goes at the end."""
    while True:
        file = path.open("ab")
        if not _take(file):
            file.close()
            yield False
            return
        try:
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                break
        except FileNotFoundError:
            pass
        file.close()  # the one before us has removed it: what we hold is a lock that nobody else will see
    try:
        yield True
    finally:
        with file:
            if os.name == "posix":
                path.unlink(missing_ok=True)


def _take(file: IO[bytes]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        warn_user(f"{file.name} cannot be locked ({error}): see that no other pass uses the checkpoint", UserWarning)
    return True


_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class Statistic(Protocol[_T_co]):
    """What can be reduced over rows."""

    def update(self, rows: object, start: int | None = None) -> None: ...

    def result(self) -> _T_co: ...


def reduce_rows(
    rows: Rows,
    statistic: Statistic[_T],
    *,
    start: int = 0,
    groups: object | None = None,
    checkpoint: Checkpoint | None = None,
    progress: str | None = None,
) -> _T:
    """Feed all rows to the statistic and return its result.

    start : absolute number of the first row. groups : labels of all rows; those of a group stay in one block.
    checkpoint : where the statistic, an Accumulator, is kept while rows are read; it may hold rows already.
    progress : what is done, where it is to be shown how far it is (dask shows its own dashboard).
    """
    if isinstance(rows.source, DaskSource):
        if checkpoint is not None:
            raise DataError("dask computes lost work again by itself: leave checkpoint= out")
        if groups is None and start % LEAF == 0 and rows.n_rows and hasattr(statistic, "fork"):
            reduce_on_cluster(rows.source, rows.columns, rows.transform, cast(Mergeable, statistic), start)
            return statistic.result()
    take = statistic.update
    if groups is not None:
        if start:
            raise ValueError("rows with groups are read whole: start must be 0")
        grouped = getattr(statistic, "grouped", None)
        if grouped is None:
            raise DataError(f"{type(statistic).__name__} does not know groups of rows")
        take = grouped(groups)
    done = 0 if checkpoint is None else checkpoint.rows_done(statistic, start)
    hold = held_interrupts() if checkpoint is not None else nullcontext(lambda: False)
    watched = checkpoint is not None or progress is not None
    with metered(progress, rows.n_rows, done, "rows") as advance, hold as interrupted:
        try:
            for block in _steps(rows, done, checkpoint is not None) if watched else rows.chunks(done):
                take(block, start + done)
                done += len(block)
                advance(len(block))
                if interrupted():
                    raise KeyboardInterrupt
                if checkpoint is not None:
                    checkpoint.tick(statistic)
            if interrupted():  # behind the last block
                raise KeyboardInterrupt
        except ChangedError as error:  # the sums may hold rows of both: nothing is kept
            raise error if checkpoint is None else checkpoint.of_another(error) from error
        except BaseException:
            if checkpoint is not None:
                checkpoint.keep(statistic)
            raise
    if groups is not None and done != len(np.asarray(groups)):
        raise DataError(f"groups must have one label per row ({done}), got {len(np.asarray(groups))}")
    return statistic.result()


def _steps(rows: Rows, skip: int, compare: bool) -> Iterator[Array]:
    """As :meth:`Rows.chunks`, no block longer than the time between two looks at the clock.

    But for the first block of rows that are read only once: its mean becomes the shift, and watching changes no bit.
    """
    whole = not rows.rereadable and skip == 0
    for block in rows.chunks(skip, compare):
        size = max(len(block), 1) if whole else block_rows(block.shape[1])
        whole = False
        for at in range(0, len(block), size):
            yield block[at : at + size]


def column_means(rows: Rows, progress: str | None = None) -> Array | None:
    """Column means (exactly the value for a constant column); None when the rows can be read only once."""
    if not rows.rereadable:
        return None
    return reduce_rows(rows, _Means(rows.labels, rows.weighted), progress=progress)


def first_means(rows: Rows, n: int) -> Array:
    """Column means of the first n rows, each that counts once, for rows that can be read again."""
    first, statistic = rows.head(n), _Means(rows.labels)
    if rows.weighted:  # what does not count may be anything
        first = first[first[:, -1] > 0, :-1]
    if not len(first):
        return reduce_rows(rows, _Means(rows.labels, rows.weighted))
    statistic.update(first)
    return statistic.result()


class _Means:
    """Column means to rounding, and the exact value of columns that never change.

    Sums of pieces of 2048 rows are merged as the leaves of a state are, so that no chunking changes a bit.
    """

    grain = LEAF

    def __init__(self, names: Sequence[str | int] | None, weighted: bool = False) -> None:
        self.names, self.weighted, self.n, self._sums = names, weighted, 0.0, Forest()
        self._rest: list[Array] = []
        self._piece: int | None = None

    def update(self, rows: object, start: int | None = None) -> None:
        """Rows in order; the first ones begin a piece."""
        block = as_matrix(rows)
        if not len(block):
            return
        if self._piece is None:
            width = block.shape[1] - self.weighted
            self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
            self._piece = (start or 0) // LEAF
        counted, weight = (block[block[:, -1] > 0, :-1], block[:, -1:]) if self.weighted else (block, None)
        if len(counted):
            low, high = column_range(np.ascontiguousarray(counted))
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.n += len(block) if weight is None else float(weight.sum())
        if weight is not None:  # what does not count may be anything
            block = np.where(weight > 0, block[:, :-1], 0.0) * weight
        for piece in aligned([*self._rest, block], LEAF):
            if len(piece) < LEAF:
                self._rest = [piece.copy()]
                return
            self._sums.add((0, 0, self._piece), column_sum(piece))
            self._piece += 1
        self._rest = []

    def fork(self) -> Self:
        return type(self)(self.names, self.weighted)

    def partial(self) -> tuple[Any, ...]:
        sums = self._sums.copy()
        if self._rest and self._piece is not None:
            sums.add((0, 0, self._piece), column_sum(self._rest[0]))
        return sums, self.low, self.high, self.n

    @staticmethod
    def join(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        sums, low, high, n = parts[0]
        for more in parts[1:]:
            sums, n = sums.merged(more[0]), n + more[3]
            low, high = np.minimum(low, more[1]), np.maximum(high, more[2])
        return sums, low, high, n

    def absorb(self, part: tuple[Any, ...], start: int, n_rows: int) -> None:
        self._sums, self.low, self.high, self.n = part

    def result(self) -> Array:
        if not self.n:
            raise DataError("there are no rows" + (", or all weights are zero" if self.weighted else ""))
        sums, low, high, n = self.partial()
        bad = ~(np.isfinite(low) & np.isfinite(high))
        if bad.any():
            column = int(np.flatnonzero(bad)[0])
            label = repr(self.names[column]) if self.names is not None else column
            raise MissingValueError(
                f"column {label} holds a missing or infinite value: drop those rows or impute them first"
            )
        total = sums.fold(1, slice(0, len(low)), len(low))[0]
        # between the extremes even where the sum overflows or rounds
        mean: Array = np.clip(total / n, low, high)
        return mean
