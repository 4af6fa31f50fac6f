"""``psdnorm inspect``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from psdnorm.cli._shared import SOME_FAILED, command, output
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, PsdnormError, StoreError
from psdnorm.runtime import errors, json_text, plural, say

if TYPE_CHECKING:
    from psdnorm.store import Store

_UNKNOWN = "–"
_MOST_FLAGS = 15
_ORDER = ("lowpass_hz", "scaling", "clip", "trim", "trim_margin_s")  # of processing
_SCALINGS = {
    "none": "no scaling (µV)",
    "epoch": "z-score per 30 s epoch and channel",
    "recording": "median and interquartile range per recording and channel",
}


def print_tables(description: dict[str, Any]) -> None:
    """Print what :func:`psdnorm.store.describe` returns."""
    everything = description["all"]
    _print(f"Store {description['store']}", bold=True)
    if everything["simulated"]:
        n_simulated, n_nights = everything["simulated"], everything["nights"]
        which = "All" if n_simulated == n_nights else f"{n_simulated:,} of the"
        _print(f"SIMULATED: {which} {n_nights:,} nights are simulated, not recorded.", bold=True)
    name = description["recipe"].get("name", "unnamed")
    _print(f"Recipe {name} ({description['recipe_hash'][:12]}):")
    for line in _recipe_lines(description):
        output.print(Padding(Text(line), (0, 0, 0, 2)))
    rows = [*description["cohorts"].items(), ("all", everything)]
    for table in (_people(rows), _stages(rows), _spectra(description), _flags(everything)):
        output.print()
        output.print(table)
    n_more = len(everything["flags"]) - _MOST_FLAGS
    if n_more > 0:
        _print(f"… and {n_more} other flags: --json lists all of them.")
    output.print()


def _people(rows: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    columns = ("subjects", "nights", "hours", "age (min–max)", "women", "simulated", "size")
    table = _table("Who", ("cohort",), columns)
    for name, row in rows:
        cells = (
            f"{row['subjects']:,}",
            f"{row['nights']:,}",
            f"{row['hours']:,.{1 if row['hours'] < 100 else 0}f}",
            _age(row),
            _percent(row["female"]),
            f"{row['simulated']:,}" if row["simulated"] else "no",
            decimal(row["bytes"]),
        )
        _add(table, (name, *cells), last=row is rows[-1][1])
    return table


def _stages(rows: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    columns = (*STAGES, "unscored", "flagged nights")
    table = _table("Stages, share of scored epochs; unscored, share of all", ("cohort",), columns)
    for name, row in rows:
        shares = (_percent(row[stage]) for stage in (*STAGES, "unscored"))
        _add(table, (name, *shares, f"{row['flagged']:,}"), last=row is rows[-1][1])
    return table


def _spectra(description: dict[str, Any]) -> Table:
    cohorts = description["cohorts"]
    bands = next(iter(cohorts.values()))["band_powers_db"]
    unit = description["units"]["band_powers_db"]
    title = f"Mean spectral density in bands, {unit}"
    table = _table(title, ("cohort", "channel"), (*bands, "of nights"))
    for name, row in cohorts.items():
        for place, channel in enumerate(row["channels"]):
            powers = (_number(row["band_powers_db"][band][place]) for band in bands)
            known = (name, channel) if place == 0 else ("", channel)
            _add(table, (*known, *powers, str(row["spectrum"]["nights"])))
    return table


def _flags(everything: dict[str, Any]) -> Table | str:
    flags = everything["flags"]
    if not flags:
        return "No night is flagged."
    table = _table(f"Flags of {everything['flagged']:,} nights", ("flag",), ("nights",))
    for flag, n_nights in list(flags.items())[:_MOST_FLAGS]:
        _add(table, (flag, f"{n_nights:,}"))
    return table


def _recipe_lines(description: dict[str, Any]) -> Iterable[str]:
    """Describe a recipe; unknown fields are printed as they are."""
    recipe, layout = description["recipe"], description["layout"]
    elsewhere = ("name", "sfreq", "n_channels", "dtype")  # above, and in the layout below
    keys = (*_ORDER, *sorted(recipe.keys() - {*_ORDER, *elsewhere}))
    parts = [_step(key, recipe[key]) for key in keys if key in recipe]
    if parts:
        yield "; ".join(parts)
    epoch_s = layout["n_times"] / layout["sfreq"]
    yield (
        f"epochs of {epoch_s:g} s, {layout['n_channels']} channels at {layout['sfreq']:g} Hz, "
        f"{layout['dtype']}"
    )


def _step(key: str, value: Any) -> str:
    match key, value:
        case "lowpass_hz", int() | float():
            return f"low-pass {value:g} Hz"
        case "scaling", "none" | "epoch" | "recording":
            return _SCALINGS[value]
        case "clip", None:
            return "not clipped"
        case "clip", int() | float():
            return f"clipped at ±{value:g}"
        case "trim", str():
            return f"wake trimmed in: {value}"
        case "trim", list():
            return f"wake trimmed in: {', '.join(map(str, value)) or 'none'}"
        case "trim_margin_s", int() | float():
            return f"{value / 60:g} min of wake kept where trimmed"
    return f"{key}: {value}"


def _table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    style: Any = {"title_justify": "left", "title_style": "bold", "padding": (0, 0, 0, 1)}
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, **style)
    for name in names:
        table.add_column(name, overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", overflow="fold")
    return table


def _add(table: Table, cells: Sequence[str], last: bool = False) -> None:
    # as text, so that brackets in a name are not read as markup
    table.add_row(*(Text(cell) for cell in cells), style="bold" if last else None)


def _print(line: str, bold: bool = False) -> None:
    output.print(line, style="bold" if bold else None, markup=False, highlight=False)


def _age(row: dict[str, Any]) -> str:
    if row["age_mean"] is None:
        return _UNKNOWN
    return f"{row['age_mean']:.0f} ({row['age_min']:.0f}–{row['age_max']:.0f})"


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:.0f} %"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"


FIGURE = "inspect.png"


@command
def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of prepared nights.")],
    figure: Annotated[
        Path | None,
        typer.Option(help=f"Figure to write: .png, .svg or .pdf. [default: {FIGURE} in STORE]"),
    ] = None,
    no_figure: Annotated[bool, typer.Option("--no-figure", help="Do not draw a figure.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; draw a figure only with --figure.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte and list damaged files.")
    ] = False,
) -> None:
    """Summarize a store: subjects, stages, spectra, flags and recipe, as tables and a figure."""
    from psdnorm.store import Store, check_ending, describe, draw, mean_psd, summarize

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
    description = describe(opened, summary, spectra)
    if as_json:
        if verify:
            description["verified"] = True
        typer.echo(json_text(description), nl=False)
    else:
        print_tables(description)
        if verify:
            nights = plural(len(opened.index), "night")
            output.print(f"Verified: every byte of {nights} is as it was written.")
    if no_figure or (as_json and figure is None):
        return
    try:
        draw(opened, summary, spectra, figure or opened.path / FIGURE)
    except PsdnormError as error:
        if figure is not None:
            raise
        # without the default figure the command does not fail: what was printed is still right
        say(errors, f"psdnorm: not drawn: {error} (see --figure and --no-figure)")
        return
    say(errors if as_json else output, f"Drawn: {figure or opened.path / FIGURE}")


def _verify(store: "Store") -> None:
    """Read every byte; list what is damaged and exit with code 1 if anything is."""
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
        say(errors, f"psdnorm: {plural(len(problems), 'file is', 'files are')} damaged")
        raise typer.Exit(SOME_FAILED)
