"""Output for users: one progress bar (in a log, a line per minute), sentences, plurals, lists."""

import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from datetime import timedelta
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_Item = TypeVar("_Item")

errors = Console(stderr=True)
LINE_EVERY_S = 60.0


def say(console: Console, sentence: str) -> None:
    """Print a sentence verbatim, without markup or line breaks."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def progress_bar(console: Console = errors, last: ProgressColumn | None = None) -> Progress:
    """Return the progress bar of all commands; its ``last`` column defaults to the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        last or TimeRemainingColumn(),
        console=console,
    )


def track(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """Yield items and show how many are done: as a bar or, in a log, as a line per minute."""
    with progress_bar(errors) as bar:
        task = bar.add_task(what, total=total)
        began = said = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            bar.advance(task)
            now = time.monotonic()
            if not errors.is_terminal and done < total and now - said >= LINE_EVERY_S:
                left = timedelta(seconds=round((now - began) / done * (total - done)))
                say(errors, f"{what}: {done} of {total}, about {left} left")
                said = now


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun.

    >>> plural(1, "night"), plural(12000, "night"), plural(2, "study", "studies")
    ('1 night', '12,000 nights', '2 studies')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def verb(subjects: Sized, one: str, several: str) -> str:
    """Return ``one`` if there is one subject, else ``several``."""
    return one if len(subjects) == 1 else several


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
