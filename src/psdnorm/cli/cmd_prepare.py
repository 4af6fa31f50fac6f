"""``psdnorm prepare``."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psdnorm.cli._shared import SOME_FAILED, Jobs, command, cores, new_table, output, say_list
from psdnorm.constants import STAGES
from psdnorm.runtime import plural, say, track

if TYPE_CHECKING:
    from psdnorm.prepare import Preparation, PreparationOutcome

_COLUMNS = (*STAGES, "unscored")


@command
def prepare(
    cohort: Annotated[
        str,
        typer.Argument(
            metavar="COHORT",
            help="ABC, CCSHS, CFS, HPAP, MROS, SHHS, CHAT, SOF, PHYS, phys-st or MASS; "
            "folder or bids for your own files.",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Root of the download; for your own files a manifest, a pattern or a folder.",
        ),
    ],
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="Folder of prepared nights; created if it does not exist."
        ),
    ],
    recipe: Annotated[
        str, typer.Option(help="paper, as-released, robust, or a .json or .toml file.")
    ] = "robust",
    channels: Annotated[
        str | None, typer.Option(help="Channels to use instead of the cohort's: 'C3-M2; C4-M1'.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the cohort in STORE, for folder and bids.")
    ] = None,
    jobs: Jobs = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Dask scheduler whose workers prepare the nights: tcp://host:8786."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace nights that were prepared from other files or channels."
        ),
    ] = False,
) -> None:
    """Prepare the nights of a cohort: derive, filter, resample, scale, trim and clip.

    Nights that are in STORE already are not prepared again: run an interrupted command again to
    continue.
    """
    from psdnorm.cohorts import parse_channels
    from psdnorm.prepare import Preparation, load_recipe

    wanted = None if channels is None else parse_channels(channels)
    preparation = Preparation(cohort, source, store, load_recipe(recipe), wanted, replace, name)
    outcomes: list[PreparationOutcome] = []
    try:
        with closing(preparation.run(jobs or cores(), dask)) as run:
            for outcome in track(run, len(preparation), "prepare"):
                outcomes.append(outcome)
    except BaseException as error:  # also where an index cannot be written: print what was done
        if outcomes or isinstance(error, KeyboardInterrupt):
            summarize(preparation, outcomes)
        raise
    summarize(preparation, outcomes)
    failed = any(outcome.reason for outcome in outcomes)
    if failed or preparation.left_out or preparation.same:
        raise typer.Exit(SOME_FAILED)


def summarize(preparation: "Preparation", outcomes: "list[PreparationOutcome]") -> None:
    """Print what became of the nights: a table, then what needs attention."""
    say(output, f"{preparation.store.path}, recipe {preparation.recipe.name}")
    table = new_table([""], ["nights", "hours", *_COLUMNS])
    for status in ("prepared", "already there", "failed"):
        chosen = [outcome for outcome in outcomes if outcome.status == status]
        hours = f"{sum(outcome.hours for outcome in chosen):.1f}" if status != "failed" else ""
        table.add_row(status, str(len(chosen)), hours, *_shares(chosen))
    missing = len(preparation) - len(outcomes)
    if missing:
        table.add_row("not reached", str(missing), "", *([""] * len(_COLUMNS)))
    output.print(table)
    channels = Counter(pair for outcome in outcomes for pair in outcome.channels.items())
    for (name, expression), count in channels.items():
        say(output, f"{name} from {expression}: {plural(count, 'night')}")
    flagged = [f"{each.source}: {', '.join(each.flags)}" for each in outcomes if each.flags]
    say_list("failed", sorted(outcome.reason for outcome in outcomes if outcome.reason))
    say_list("flagged", sorted(flagged))
    say_list("problems", [*map(str, preparation.problems), *preparation.same])
    say_list("notes", preparation.notes)


def _shares(outcomes: "list[PreparationOutcome]") -> list[str]:
    """Return each stage's share of the epochs, in percent."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    total = counts.total()
    return [f"{100 * counts[stage] / total:.0f} %" if total else "" for stage in _COLUMNS]
