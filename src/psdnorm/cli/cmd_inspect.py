"""``psdnorm inspect``: what is in a store, printed and drawn."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psdnorm.cli.app import SOME_FAILED, command
from psdnorm.cli.console import errors, output, say
from psdnorm.errors import ArgumentError, PsdnormError, StoreError

if TYPE_CHECKING:
    import pandas as pd

    from psdnorm.store import Store
    from psdnorm.store.summary import CohortPSD

FIGURE = "inspect.png"


@command
def inspect(
    store: Annotated[Path, typer.Argument(help="Folder of prepared nights.")],
    figure: Annotated[
        Path | None,
        typer.Option(help=f"Where to draw: .png, .svg or .pdf. [default: {FIGURE} in STORE]"),
    ] = None,
    no_figure: Annotated[bool, typer.Option("--no-figure", help="Do not draw.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; draw only with --figure.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte and list what is damaged.")
    ] = False,
) -> None:
    """Print and draw what is in a store: people, stages, spectra, flags, recipe."""
    from psdnorm.store import Store, mean_psd, summarize
    from psdnorm.store.summary_figures import check_ending

    if figure is not None:
        if no_figure:
            raise ArgumentError("--figure and --no-figure were both given, expected one of them")
        check_ending(figure)
    opened = Store.open(store)
    if verify:
        _verify(opened)
    summary = summarize(opened)
    with errors.status("Estimating spectra"):
        spectra = mean_psd(opened)
    _show(opened, summary, spectra, as_json, verify)
    if figure is not None or not (no_figure or as_json):
        _draw(opened, summary, spectra, figure, as_json)


def _verify(store: "Store") -> None:
    """Read every byte; list what is wrong and leave with exit code 1 if anything is."""
    with errors.status("Reading every byte"):
        problems = store.verify()
    try:
        _ = store.index
    except StoreError as error:  # a night that is missing, or of another recipe
        if str(error) not in problems:
            problems.append(str(error))
    for problem in problems:
        say(output, problem)
    if problems:
        n = len(problems)
        errors.print(f"psdnorm: {n} file{'s are' if n > 1 else ' is'} damaged", highlight=False)
        raise typer.Exit(SOME_FAILED)


def _show(
    store: "Store",
    summary: "pd.DataFrame",
    spectra: "dict[str, CohortPSD]",
    as_json: bool,
    verified: bool,
) -> None:
    from psdnorm.cli.inspect_tables import print_tables
    from psdnorm.store.summary import describe

    description = describe(store, summary, spectra)
    if as_json:
        verdict = {"verified": True} if verified else {}
        typer.echo(json.dumps({**description, **verdict}, ensure_ascii=False, allow_nan=False))
        return
    print_tables(description)
    if verified:
        output.print(f"Verified: every byte of {len(store.index)} nights is as it was written.")


def _draw(
    store: "Store",
    summary: "pd.DataFrame",
    spectra: "dict[str, CohortPSD]",
    figure: Path | None,
    as_json: bool,
) -> None:
    from psdnorm.store.summary_figures import draw

    path = figure or store.path / FIGURE
    try:
        draw(store, summary, spectra, path)
    except PsdnormError as error:
        if figure is not None:
            raise
        # nobody asked for this one: what was printed is still right
        said = f"psdnorm: not drawn: {error} (see --figure and --no-figure)"
        say(errors, said)
        return
    say(errors if as_json else output, f"Drawn: {path}")
