"""From rows to a state: the body of Moments.of and Moments.from_source."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.data.rows import Rows
from richcomponents.moments.accumulator import Accumulator
from richcomponents.moments.checkpoint import Checkpoint
from richcomponents.moments.reduce import column_means, reduce_rows
from richcomponents.moments.state import Moments
from richcomponents.outputs import check_outputs

__all__ = ["build_moments"]


def build_moments(
    rows: Rows,
    order: int,
    shift: Array | None,
    start: int = 0,
    *,
    groups: object | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 20.0,
    progress: str | None = None,
    **options: Any,
) -> Moments:
    """The state of all rows; arguments as in :meth:`Moments.of`, progress : the label of the bar."""

    def accumulator(about: Array | None) -> Accumulator:
        return Accumulator(order, about, names=rows.labels, weighted=rows.weighted, **options)

    if checkpoint is None:
        about = column_means(rows, _label(progress, "means")) if shift is None else shift
        return reduce_rows(rows, accumulator(about), start=start, groups=groups, progress=progress)
    check_outputs([checkpoint], rows.files)
    # A pass that is taken up again has its shift in the checkpoint, and its means need not be read once more.
    kind = sorted((name, value) for name, value in options.items() if name not in ("threads", "memory_limit"))
    task = [rows.mark(), f"order {order}", f"start {start}", repr(kind), _digest(groups)]
    saved = Checkpoint(checkpoint, "; ".join(task), checkpoint_every, rows.fingerprint())
    with saved.alone():
        found = saved.load(accumulator(shift), keep_shift=shift is not None)
        if not saved.path.exists() and shift is None:
            found = accumulator(column_means(rows, _label(progress, "means")))
        result = reduce_rows(rows, found, start=start, groups=groups, checkpoint=saved, progress=progress)
        saved.done()
    return result


def _label(progress: str | None, what: str) -> str | None:
    return None if progress is None else f"{progress}: {what}"


def _digest(groups: object | None) -> str:
    return "" if groups is None else hashlib.sha256(repr(np.asarray(groups).tolist()).encode()).hexdigest()
