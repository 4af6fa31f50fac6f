"""``psdnorm report``: one page on a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer

from psdnorm.cli._shared import SOME_FAILED, Figures, command, open_nights, output
from psdnorm.runtime import errors, plural, say


@command
def report(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of psdnorm lodo.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for the report: new, empty, or an earlier report."
        ),
    ] = Path("report"),
    store: Annotated[
        Path | None, typer.Option(help="Store of the prepared nights, for spectra and ages.")
    ] = None,
    figures: Figures = True,
) -> None:
    """Report the results in RUNS on one page: verdict, tables, figures, cohorts, subjects.

    OUT/index.html opens from disk, without a network. Tables (Markdown, LaTeX, CSV) and figures
    (PNG, SVG) are beside it. RUNS need not be finished: the report says what is missing.
    """
    from psdnorm.report import PAGE, build_report

    nights = None if store is None else open_nights(store)
    with errors.status("Reading scores") as shown:
        verdict, results = build_report(
            runs, out, store=nights, figures=figures, progress=shown.update
        )
    if results.simulated:
        say(output, "The nights are SIMULATED: nobody slept them.")
    for sentence in (verdict.headline, *verdict.sentences):
        say(output, sentence)
    say(output, "What this cannot say:")
    for sentence in verdict.limits:
        say(output, f"- {sentence}")
    unfinished = len(results.missing) - len(results.damaged)
    if unfinished:
        say(errors, f"{plural(unfinished, 'unfinished run')}: see the report")
    say(output, f"Look at {out / PAGE}")
    for sentence in results.damaged:
        say(errors, f"failed: {sentence}")
    if results.damaged:
        raise typer.Exit(SOME_FAILED)
