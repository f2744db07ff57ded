"""A bar for work that is done block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["with_bar"]


def with_bar(items: Sequence[int], shown: bool, label: str) -> Iterable[int]:
    """The items, with a bar on standard error if it is asked for."""
    if not shown:
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=label, console=Console(stderr=True), transient=True)
