"""Progress bars on standard error that vanish when it is not a terminal, and the log lines beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")

console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """One line of log on standard error."""
    console.print(message, markup=False)


def bar(*columns: TextColumn) -> Progress:
    """A progress bar with the given text columns between the count and the times."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar that advances as they are taken."""
    with bar() as progress:
        yield from progress.track(items, total=total, description=description)
