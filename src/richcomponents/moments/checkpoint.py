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
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.data.sources.base import Fingerprint
from richcomponents.errors import DataError, StateFileError, warn_user
from richcomponents.moments.accumulator import Accumulator
from richcomponents.moments.files import check_state, read_archive, read_forest, write_archive
from richcomponents.moments.forest import Forest
from richcomponents.moments.layout import Layout

__all__ = ["Checkpoint", "held_interrupts"]

FORMAT, VERSION = "richcomponents.Checkpoint", 3
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

    def load(self, accumulator: Accumulator, *, keep_shift: bool) -> Accumulator:
        """The accumulator with the state on disk, if there is one.

        keep_shift : the shift on disk must be the accumulator's; otherwise it is taken from there.
        """
        self._remove_leftovers()
        if not self.path.exists():
            return accumulator
        header, arrays, sums = self._read()
        known = None if header["source_rows"] < 0 else header["source_rows"]
        if header["task"] != self.task or not self._fingerprint.restored(arrays["prints"], known):
            raise DataError(
                f"the checkpoint {self.path} belongs to another source, other columns or other options "
                f"({header['about']!r}, not {self._about!r}): delete it to start again, or give another path"
            )
        shift = np.array(arrays["shift"], dtype=np.float64)
        if keep_shift and not np.array_equal(accumulator._shift, shift):
            raise DataError(f"the checkpoint {self.path} was made with another shift: delete it to start again")
        accumulator._begin(shift)
        layout = accumulator._need_layout()
        if asdict(layout) != header["layout"]:
            raise DataError(f"the checkpoint {self.path} was made with other options: delete it to start again")
        accumulator._sums = sums
        accumulator._low, accumulator._high = np.array(arrays["low"]), np.array(arrays["high"])
        accumulator._seen = [(int(low), int(high)) for low, high in arrays["seen"]]
        accumulator._next = accumulator._seen[-1][1] if accumulator._seen else 0
        accumulator._counts, accumulator._grouped = np.array(arrays["counts"]), bool(header["grouped"])
        at = 0
        for block, leaf, position, count in arrays["fragments"].tolist():
            part = np.array(arrays["rows"][at : at + count])
            accumulator._fragments.setdefault((block, leaf), {})[position] = part
            at += count
        return accumulator

    def _read(self) -> tuple[dict[str, Any], dict[str, Any], Forest]:
        def expected(header: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
            layout = Layout(**header["layout"])
            width = layout.n_columns
            sizes = {name: int(header["sizes"][name]) for name in ("seen", "nodes", "fragments", "rows", "prints")}
            if min(sizes.values()) < 0 or header["weighted"] not in (0, 1):
                raise ValueError("a negative size")
            return {
                **dict.fromkeys(("shift", "low", "high"), ((width,), "<f8")),
                "seen": ((sizes["seen"], 2), "<i8"),
                "counts": ((layout.n_blocks,), "<i8"),
                "nodes": ((sizes["nodes"], 3), "<i8"),
                "sums": ((sizes["nodes"], layout.size), "<f8"),
                "fragments": ((sizes["fragments"], 4), "<i8"),
                "rows": ((sizes["rows"], width + header["weighted"]), "<f8"),
                "prints": ((sizes["prints"], 2), "<i8"),
            }

        try:
            header, arrays = read_archive(self.path, FORMAT, VERSION, expected, max_bytes=64 * 2**30)
            sums = _checked(header, arrays)
        except StateFileError as error:
            raise StateFileError(f"{error}. The checkpoint cannot be used: delete it to start again") from error
        return header, arrays, sums

    def rows_done(self, statistic: object, start: int) -> int:
        """How many rows of the source the statistic holds already."""
        assert isinstance(statistic, Accumulator)
        return statistic._seen[-1][1] - start if statistic._seen else 0

    def tick(self, statistic: object) -> None:
        """Write when it is time."""
        if time.monotonic() >= self._next:
            self.keep(statistic)

    def keep(self, statistic: object) -> None:
        """Write now; an accumulator that was interrupted half-way is not written: the last file stays."""
        assert isinstance(statistic, Accumulator)
        if statistic._broken or not statistic._seen:
            return
        began = time.monotonic()
        self._write(statistic)
        now = time.monotonic()
        self._next = now + max(self.every, _SHARE * (now - began) if self.every else 0.0)

    def _write(self, accumulator: Accumulator) -> None:
        layout = accumulator._need_layout()
        fragments, rows = [], []
        for (block, leaf), held in sorted(accumulator._fragments.items()):
            for position, part in sorted(held.items()):
                fragments.append((block, leaf, position, len(part)))
                rows.append(part)
        nodes, sums = accumulator._sums.arrays(layout.size)
        width = layout.n_columns + accumulator._weighted
        arrays: dict[str, Array | IntArray] = {
            "shift": accumulator._shift,
            "low": accumulator._low,
            "high": accumulator._high,
            "seen": np.array(accumulator._seen, dtype=np.int64).reshape(-1, 2),
            "counts": accumulator._counts,
            "fragments": np.array(fragments, dtype=np.int64).reshape(-1, 4),
            "rows": np.concatenate(rows) if rows else np.zeros((0, width)),
            "nodes": nodes,
            "sums": sums,
            "prints": self._fingerprint.saved(),
        }
        sizes = {name: len(arrays[name]) for name in ("seen", "nodes", "fragments", "rows", "prints")}
        header: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            "task": self.task,
            "about": self._about,
            "layout": asdict(layout),
            "grouped": accumulator._grouped,
            "weighted": int(accumulator._weighted),
            "sizes": sizes,
            "source_rows": -1 if self._fingerprint.n_rows is None else self._fingerprint.n_rows,
        }
        write_archive(self.path, header, arrays, mode=0o600)  # it holds rows

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


def _checked(header: dict[str, Any], arrays: dict[str, Any]) -> Forest:
    """The sums of a checkpoint; refuses parts that do not fit together."""
    layout = Layout(**header["layout"])
    sums = read_forest(arrays["nodes"], arrays["sums"])
    check_state(layout, arrays["shift"], sums)
    for name, kind in (("task", str), ("about", str), ("grouped", bool), ("source_rows", int)):
        if not isinstance(header.get(name), kind):
            raise StateFileError(f"the header of the checkpoint lacks {name!r}")
    low, high = arrays["low"], arrays["high"]
    fragments, seen, rows = arrays["fragments"], arrays["seen"].reshape(-1), arrays["rows"]
    whole = (
        (fragments >= 0).all()
        and (fragments[:, 0] < layout.n_blocks).all()
        and int(fragments[:, 3].astype(object).sum()) == len(rows)
        and (np.diff(seen) > 0).all()
        and (seen[:1] >= 0).all()
        and (np.diff(arrays["prints"][:, 0], prepend=-1) > 0).all()
        and np.isfinite(rows).all()
        and np.isfinite(arrays["shift"]).all()
        and ((low <= high) | ((low == np.inf) & (high == -np.inf))).all()  # no row that counts so far: an empty range
        and (arrays["counts"] >= 0).all()
    )
    if not whole:
        raise StateFileError("the parts of the checkpoint do not fit together")
    return sums
