"""How far a long piece of work is, on standard error (tqdm): a bar that is gone at the end on a terminal and in a notebook; a
log has it every ten seconds, and nothing of what takes a few."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

from richcomponents.text import plain

_T = TypeVar("_T")
_LOG_SECONDS = 10.0  # before the first line of a log, and between two


@contextmanager
def metered(label: str | None, total: int | None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Yields a function to be told how much more is done; it says nothing without a label."""
    if label is None:
        yield lambda more: None
        return
    watched = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    pace = {"leave": False} if watched else {"mininterval": _LOG_SECONDS, "delay": _LOG_SECONDS}
    with tqdm(total=total, desc=plain(label), unit=f" {unit}" if unit else "", file=sys.stderr, **pace) as bar:
        yield bar.update


def each(items: Sequence[_T], shown: bool, label: str) -> Iterator[_T]:
    """The items; how far they are is shown if that is asked for."""
    with metered(label if shown else None, len(items)) as advance:
        for item in items:
            yield item
            advance(1)
