"""``psdnorm prepare``: a cohort on disk becomes a store of prepared nights."""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from psdnorm.cli._shared import INTERRUPTED, SOME_FAILED, command, cores, one_line, output
from psdnorm.runtime import errors, say, track

if TYPE_CHECKING:
    from psdnorm.prepare import Outcome, Preparation


@command
def prepare(
    cohort: Annotated[
        str,
        typer.Argument(
            metavar="COHORT", help="ABC, …, PHYS, MASS, or folder or bids for files of your own."
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Root of the download; for folder a manifest, pattern or folder."
        ),
    ],
    store: Annotated[
        Path,
        typer.Argument(metavar="STORE", help="Where prepared nights go; made if it is absent."),
    ],
    recipe: Annotated[
        str, typer.Option(help="paper, as-released, robust, or a .json or .toml file.")
    ] = "robust",
    channels: Annotated[
        str | None, typer.Option(help="Instead of the cohort's: 'C3-M2; C4-M1'.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the cohort of a folder or bids is called in STORE.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time.  [default: one per core]")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Scheduler of a Dask cluster that does it: tcp://host:8786.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Prepare anew what has other files than it had.")
    ] = False,
) -> None:
    """Prepare the nights of a cohort: derive, filter, resample, scale, trim and clip.

    What is in STORE already is not prepared again: an interrupted run goes on where it stopped.
    """
    from psdnorm.cohorts import parse_channels
    from psdnorm.prepare import Preparation, load_recipe

    wanted = None if channels is None else parse_channels(channels)
    preparation = Preparation(cohort, source, store, load_recipe(recipe), wanted, replace, name)
    outcomes: list[Outcome] = []
    try:
        with closing(preparation.run(jobs or cores(), dask)) as run:
            for outcome in track(run, len(preparation), "prepare"):
                outcomes.append(outcome)
    except KeyboardInterrupt:
        summarize(preparation, outcomes)
        say(errors, "psdnorm: interrupted; the same command goes on where this one stopped")
        raise typer.Exit(INTERRUPTED) from None
    except BaseException:  # a store whose index cannot be written: what was done is told first
        if outcomes:
            summarize(preparation, outcomes)
        raise
    summarize(preparation, outcomes)
    failed = any(outcome.reason for outcome in outcomes)
    if failed or preparation.left_out or preparation.same:
        raise typer.Exit(SOME_FAILED)


def summarize(preparation: "Preparation", outcomes: "Iterable[Outcome]") -> None:
    """Print what became of the nights: a table, then every sentence that somebody should read."""
    outcomes = list(outcomes)
    say(output, f"{preparation.store.path}, recipe {preparation.recipe.name}")
    table = Table()
    table.add_column("")
    for name in ("nights", "hours", *_STAGES):
        table.add_column(name, justify="right")
    for status in ("prepared", "already there", "failed"):
        chosen = [outcome for outcome in outcomes if outcome.status == status]
        hours = f"{sum(outcome.hours for outcome in chosen):.1f}" if status != "failed" else ""
        table.add_row(status, str(len(chosen)), hours, *_shares(chosen))
    missing = len(preparation) - len(outcomes)
    if missing:
        table.add_row("not reached", str(missing), "", *([""] * len(_STAGES)))
    output.print(table)
    for (name, expression), count in _channels(outcomes).items():
        say(output, f"{name} from {expression}: {_nights(count)}")
    for title, sentences in _sentences(preparation, outcomes).items():
        if sentences:
            say(output, f"{title} ({len(sentences)}):")
        for sentence in sentences:
            say(output, f"  {one_line(sentence)}")


_STAGES = ("W", "N1", "N2", "N3", "REM", "unscored")


def _shares(outcomes: "list[Outcome]") -> list[str]:
    """Return each stage's share of the epochs, in percent."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    total = counts.total()
    return [f"{100 * counts[stage] / total:.0f} %" if total else "" for stage in _STAGES]


def _channels(outcomes: "list[Outcome]") -> Counter[tuple[str, str]]:
    return Counter(pair for outcome in outcomes for pair in outcome.channels.items())


def _sentences(preparation: "Preparation", outcomes: "list[Outcome]") -> dict[str, list[str]]:
    return {
        "failed": sorted(outcome.reason for outcome in outcomes if outcome.reason),
        "flagged": sorted(
            f"{outcome.source}: {', '.join(outcome.flags)}" for outcome in outcomes if outcome.flags
        ),
        "problems": [*map(str, preparation.problems), *preparation.same],
        "notes": list(preparation.notes),
    }


def _nights(count: int) -> str:
    return f"{count} night" if count == 1 else f"{count} nights"
