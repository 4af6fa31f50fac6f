"""``psdnorm simulate``: nights of the cohorts, as files or in a store."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from psdnorm.cli._shared import Jobs, command, cores, output
from psdnorm.runtime import errors, say, track


@command
def simulate(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output folder; created if it does not exist.")
    ],
    cohorts: Annotated[str, typer.Option(help="Comma-separated names.  [default: all]")] = "",
    subjects: Annotated[int, typer.Option(help="Number of subjects in each cohort.")] = 4,
    nights: Annotated[int, typer.Option(help="Nights per subject, one per visit.")] = 1,
    hours: Annotated[float, typer.Option(help="Length of each night.")] = 8.0,
    shift: Annotated[
        float, typer.Option(help="How much cohorts differ: 0 not at all, 1 as their profiles say.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    jobs: Jobs = None,
    into_store: Annotated[
        bool, typer.Option("--into-store", help="Write a store of prepared nights instead of EDFs.")
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="With --into-store: paper, as-released, robust or a file.")
    ] = "",
) -> None:
    """Simulate nights of the cohorts, in their download layouts (OUT/COHORT) or as a store.

    Everything that is made from these nights says that they are simulated. Existing nights are
    kept.
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
            f"recipe is {recipe!r}, expected none without --into-store: files hold raw recordings, "
            "give psdnorm prepare the recipe"
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
    with contextlib.closing(done):  # if interrupted, it still writes a store's index
        for _ in track(done, len(planned), "simulating"):
            pass
    say(output, f"{out} has simulated {what}")
