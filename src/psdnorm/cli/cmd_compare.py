"""``psdnorm compare``: two experiments, two runs or two checkpoints."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from psdnorm.cli._shared import SOME_FAILED, Figures, command, open_nights, output
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, say, track

if TYPE_CHECKING:
    from psdnorm.compare import ArmComparison, Comparison

# these fit into eighty columns; sentences say the rest
_SHOWN = ("cohort", "subjects", "A, %", "B, %", "gain", "95 % interval", "% improved")
_SHORTER = {"subjects": "n", "% improved": "% better"}


@command
def compare(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="An experiment, one of its runs, or a checkpoint.")
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another of the same kind.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for a page: new, empty, or an earlier report."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Prepared nights, to evaluate checkpoints or weights of runs on."),
    ] = None,
    cohort: Annotated[
        list[str] | None,
        typer.Option(
            help="With --store: a cohort to evaluate on; can be repeated.  [default: all that "
            "neither was trained on]"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="With --store: auto, cpu, cuda or cuda:N.")] = "auto",
    figures: Figures = True,
) -> None:
    """Show how much B gains over A, by cohort and subject, and how certain that is.

    Two experiments (folders of psdnorm lodo) are compared norm by norm, two runs (RUNS/cells/NAME)
    subject by subject. Two checkpoints need --store: both are evaluated on those of its cohorts
    that neither was trained on.
    """
    from psdnorm.compare import write_comparison
    from psdnorm.present import matplotlib
    from psdnorm.report import PAGE, check_place

    if out is not None:
        check_place(out)
        if figures:
            matplotlib()  # if it is missing, say so before nights are evaluated
    found = _compared(a, b, store, cohort or [], device)
    with errors.status("Comparing"):
        tables = [_table(arm, found) for arm in found.arms]
    for remark in found.nights:
        say(errors, remark)
    for arm, table in zip(found.arms, tables, strict=True):
        output.print(table)
        for sentence in arm.sentences:
            say(output, sentence)
    for limit in found.limits:
        say(output, limit)
    for remark in found.others:
        say(errors, remark)
    if out is not None:
        with errors.status("Writing"):
            typed = _typed(a, b, out, store, cohort or [], figures)
            write_comparison(found, out, typed, figures=figures)
        say(output, f"Look at {out / PAGE}")
    for sentence in found.failed:
        say(errors, f"failed: {sentence}")
    if found.failed:
        raise typer.Exit(SOME_FAILED)


def _compared(
    a: Path, b: Path, store: Path | None, cohorts: list[str], device: str
) -> "Comparison":
    from psdnorm import compare as room

    if store is not None:
        nights = open_nights(store)
        return room.compare_checkpoints(a, b, nights, cohorts, device=device, watch=track)
    if cohorts:
        raise ArgumentError(
            f"--cohort is {', '.join(cohorts)} without --store: cohorts are chosen where "
            "checkpoints are evaluated"
        )
    if device != "auto":
        raise ArgumentError(
            f"--device is {device} without --store: scores are compared, no network is run"
        )
    with errors.status("Comparing"):
        return room.compare(a, b)


def _typed(
    a: Path, b: Path, out: Path, store: Path | None, cohorts: list[str], figures: bool
) -> str:
    """Return the command as a page shows it."""
    from psdnorm.report import shown_path

    parts = ["psdnorm", "compare", *map(shown_path, (a, b)), "--out", shown_path(out)]
    parts += [] if store is None else ["--store", shown_path(store)]
    parts += [word for cohort in cohorts for word in ("--cohort", cohort)]
    return shlex.join([*parts, *([] if figures else ["--no-figures"])])


def _table(arm: "ArmComparison", found: "Comparison") -> Table:
    from psdnorm.compare import HEAD

    simulated = ", SIMULATED nights" if found.simulated else ""
    title = f"{arm.name}: balanced accuracy{simulated}, {found.recipes}"
    table = Table(title=Text(title), box=box.SIMPLE_HEAD)
    for name in _SHOWN:
        justify: Any = "left" if name == "cohort" else "right"
        table.add_column(_SHORTER.get(name, name), justify=justify, no_wrap=True)
    places = [HEAD.index(name) for name in _SHOWN]
    for row in arm.rows():
        table.add_row(*(Text(row[place]) for place in places))
    return table
