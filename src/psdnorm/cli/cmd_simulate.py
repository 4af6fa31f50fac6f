"""``psdnorm simulate``: nights of the cohorts, as files or straight into a store."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from psdnorm.cli._shared import command, cores, output
from psdnorm.runtime import errors, say, track


@command
def simulate(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write to; made if it is absent.")
    ],
    cohorts: Annotated[
        str, typer.Option(help="Names with commas between them; all of them by default.")
    ] = "",
    subjects: Annotated[int, typer.Option(help="Of each cohort.")] = 4,
    nights: Annotated[int, typer.Option(help="Of each subject, one a visit.")] = 1,
    hours: Annotated[float, typer.Option(help="Length of a night.")] = 8.0,
    shift: Annotated[
        float, typer.Option(help="How far cohorts are from each other: 0 not at all, 1 usual.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time.  [default: one per core]")
    ] = None,
    into_store: Annotated[
        bool,
        typer.Option("--into-store", help="Make OUT a store of prepared nights, without EDFs."),
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="With --into-store: paper, as-released, robust or a file.")
    ] = "",
) -> None:
    """Simulate nights of the cohorts: OUT/COHORT as it is downloaded, or a prepared store.

    Nobody slept these nights, and whatever is made of them says so. What is there already is not
    made again.
    """
    from psdnorm.errors import ArgumentError
    from psdnorm.lab.simulate import (
        PROFILES,
        Settings,
        add_nights,
        bytes_missing,
        bytes_missing_in,
        fewer_visits,
        plan_nights,
        write_nights,
    )
    from psdnorm.prepare import load_recipe

    if recipe and not into_store:
        raise ArgumentError(
            f"recipe is {recipe!r}, expected none without --into-store: files hold what was "
            "recorded, psdnorm prepare takes the recipe"
        )
    names = [name.strip() for name in cohorts.split(",") if name.strip()]
    planned = plan_nights(names or list(PROFILES), subjects, nights, Settings(seed, hours, shift))
    if into_store:
        chosen = load_recipe(recipe or "robust")
        n_bytes = bytes_missing_in(out, planned, chosen)
        done = add_nights(out, planned, chosen, jobs or cores())
    else:
        n_bytes = bytes_missing(out, planned)
        done = write_nights(out, planned, jobs or cores())
    of = ", ".join(dict.fromkeys(night.cohort for night in planned))
    what = f"nights of {of}: {len(planned)}"
    for sentence in (*fewer_visits(planned, nights), f"{what}, {n_bytes:,} bytes to write"):
        say(errors, sentence)
    with contextlib.closing(done):  # interrupted, it still writes a store's index
        for _ in track(done, len(planned), "simulating"):
            pass
    say(output, f"{out} has simulated {what}")
