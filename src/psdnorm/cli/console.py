"""What commands print with: results on standard output, all else on standard error."""

import os
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
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
# between two words on how it goes, in a log: a bar that moves needs a terminal
LINE_EVERY_S = 60.0


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is: nothing in it is markup, and no line is cut."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def one_line(sentence: str) -> str:
    """Return a sentence as one line: what a file's name may hold of line ends is shown escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in sentence
    )


def cores() -> int:
    """Return the number of cores that this process may use, where the system tells."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


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
    """Yield items, and show how many of ``total`` there were: a bar, or in a log a line a minute.

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
        began = said = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            bar.advance(task)
            now = time.monotonic()
            if not errors.is_terminal and done < total and now - said >= LINE_EVERY_S:
                left_s = (now - began) / done * (total - done)
                say(errors, f"{what}: {done} of {total}, about {_clock(left_s)} left")
                said = now


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
