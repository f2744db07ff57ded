"""Checkpoints: an accumulator on disk, from which a pass over rows goes on to the same bits.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import numpy as np

from richcomponents.algebra import IntArray
from richcomponents.data.sources.base import Fingerprint
from richcomponents.errors import DataError, StateFileError, warn_user
from richcomponents.moments.accumulator import LeafSums
from richcomponents.storage import read, storable, write

__all__ = ["Checkpoint", "held_interrupts"]

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
