"""A bar for long passes over rows: how far, how fast, how long still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from richcomponents.text import plain

__all__ = ["row_bar", "with_bar"]


@contextmanager
def row_bar(label: str | None, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields a function to be told how many rows more were read; on standard error, and nothing without a label."""
    if label is None:
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} rows/s")

    said = TextColumn("{task.description}", markup=False)
    columns = (said, BarColumn(), MofNCompleteColumn(), Speed(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plain(label), total=total, completed=done)
        yield lambda rows: bar.advance(task, rows)


def with_bar(items: Sequence[int], shown: bool, label: str) -> Iterable[int]:
    """The items, with a bar on standard error if it is asked for."""
    if not shown:
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=label, console=Console(stderr=True), transient=True)
