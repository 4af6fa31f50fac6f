"""What commands print with: results on standard output, all else on standard error."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_Item = TypeVar("_Item")

output = Console()
errors = Console(stderr=True)


def progress() -> Progress:
    """Return a bar with count, time spent and time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
    )


def track(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """Yield items, and show how many of ``total`` there were.

    Parameters
    ----------
    items : iterable
        What takes long: each item is shown as done when the next one is asked for.
    total : int
    what : str
        What is being done, before the bar.
    """
    with progress() as bar:
        task = bar.add_task(what, total=total)
        for item in items:
            yield item
            bar.advance(task)
