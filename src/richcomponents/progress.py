"""How far a long piece of work is, wherever somebody looks: on a terminal, in a notebook, in a log.

On a terminal and in a notebook one line is written over and over, and is gone at the end. Anything else is taken for a log:
it gets a line now and then, further and further apart, and nothing of what takes a few seconds. All goes to standard error.

Remaining time is that of the work left at the mean speed so far.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TextIO, TypeVar

from richcomponents.text import plain

_T = TypeVar("_T")
_SECONDS = 0.2  # between two looks of a line that is written over
_FIRST, _SLOWER, _LONGEST = 10.0, 1.5, 300.0  # seconds before the first line of a log; how gaps grow; no gap is longer


class Meter:
    """label : what is being done; total : units of work, None where nobody knows."""

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str = "",
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._total, self.done, self._unit = label, total, 0, unit
        self._stream, self._clock = sys.stderr if stream is None else stream, clock
        self._overwrites = self._stream.isatty() or _in_notebook()
        self._began = clock()
        self._gap = _SECONDS if self._overwrites else _FIRST
        self._next, self._written = self._began + self._gap, 0

    def advance(self, more: int = 1) -> None:
        """So much more is done."""
        self.done += more
        now = self._clock()
        if now < self._next:
            return
        if self._overwrites:
            self._over(self.text())
        else:
            self._stream.write(f"{self.text()}\n")
            self._written, self._gap = 1, min(self._gap * _SLOWER, _LONGEST)
        self._stream.flush()
        self._next = now + self._gap

    def close(self) -> None:
        """The line is taken away; a log that was told of the work is told of its end."""
        if self._written and self._overwrites:
            self._over("")
            self._stream.write("\r")
        elif self._written:
            took = _clock_time(self._clock() - self._began)
            self._stream.write(f"{plain(self._label)}: {self._counted(self.done)} after {took}\n")
        self._stream.flush()

    def text(self) -> str:
        """The line, as of now.

        >>> meter = Meter("second order", 1000, unit="rows", clock=iter([0.0, 20.0]).__next__)
        >>> meter.done = 250
        >>> meter.text()
        'second order: 25%, 250 of 1,000 rows, 12 rows/s, 1:00 left'
        """
        parts, spent = [], self._clock() - self._began
        if self._total:
            parts.append(f"{100 * self.done / self._total:.0f}%")
            parts.append(f"{self.done:,} of {self._counted(self._total)}")
        else:
            parts.append(self._counted(self.done))
        if self.done > 0 and spent > 0:
            if self._unit:
                parts.append(f"{self.done / spent:,.0f} {self._unit}/s")
            parts.append(
                f"{_clock_time((self._total - self.done) * spent / self.done)} left"
                if self._total
                else f"{_clock_time(spent)} so far"
            )
        return f"{plain(self._label)}: {', '.join(parts)}"

    def _counted(self, number: int) -> str:
        return f"{number:,} {self._unit}".rstrip()

    def _over(self, line: str) -> None:
        """Over the line that is there; one that breaks could not be written over."""
        line = line[: get_terminal_size().columns - 1]
        self._stream.write("\r" + line.ljust(self._written))
        self._written = len(line)


def _clock_time(seconds: float) -> str:
    minutes, left = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _in_notebook() -> bool:
    """Whether standard error is shown by Jupyter, which writes over a line as a terminal does."""
    return "ipykernel" in sys.modules and type(sys.stderr).__module__.startswith("ipykernel")


@contextmanager
def metered(label: str | None, total: int | None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Yields a function to be told how much more is done; it says nothing without a label."""
    if label is None:
        yield lambda more: None
        return
    meter = Meter(label, total, unit)
    try:
        yield meter.advance
    finally:
        meter.close()


def each(items: Sequence[_T], shown: bool, label: str) -> Iterator[_T]:
    """The items; how far they are is shown if that is asked for."""
    with metered(label if shown else None, len(items)) as advance:
        for item in items:
            yield item
            advance(1)
