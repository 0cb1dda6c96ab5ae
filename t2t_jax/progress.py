"""Progress bars on standard error that vanish when it is not a terminal, and the log lines beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")

STRIDE = 10_000  # items between two updates of a bar

console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """One line of log on standard error."""
    console.print(message, markup=False)


def bar(*columns: ProgressColumn) -> Progress:
    """A progress bar with the given columns between the count and the times."""
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


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {task.fields['unit']}/s", style="progress.data.speed")


@contextlib.contextmanager
def count(description: str, unit: str, done: int = 0, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar with a rate; what is yielded advances it by that many."""
    with bar(_Rate()) as progress:
        task = progress.add_task(description, completed=done, total=total, unit=unit)
        yield lambda more: progress.advance(task, more)


def track(items: Iterable[T], description: str, unit: str) -> Iterator[T]:
    """The items, with a bar that advances as they are taken."""
    with count(description, unit) as advance:
        for number, item in enumerate(items, start=1):
            yield item
            if number % STRIDE == 0:
                advance(STRIDE)
