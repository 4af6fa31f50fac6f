"""``psdnorm compare``: two experiments, or two cells, against each other."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from psdnorm.cli.app import command
from psdnorm.cli.console import errors, output, say

if TYPE_CHECKING:
    from psdnorm.report.compared import ArmComparison, Comparison

# eighty columns are enough for these; sentences say the rest
_SHOWN = {
    "cohort": "cohort",
    "subjects": "n",
    "A, %": "A, %",
    "B, %": "B, %",
    "gain": "gain",
    "95 % interval": "95 % interval",
    "% improved": "% better",
}


@command
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A folder of runs, or of one cell.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same kind.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for a page: new, empty, or an earlier report."),
    ] = None,
) -> None:
    """Show how much B gains over A: per arm, cohort and subject, and how sure that is.

    Folders of psdnorm lodo are compared arm by arm, cells (RUNS/cells/NAME) subject by subject.
    """
    from psdnorm.report.compared import compare as compared
    from psdnorm.report.compared_page import sentences, write_comparison
    from psdnorm.report.folder import PAGE, check_place
    from psdnorm.report.naming import shown_path

    if out is not None:
        check_place(out)
    with errors.status("Comparing"):
        found = compared(a, b)
        tables = [_table(arm, found) for arm in found.arms]
    for remark in found.nights:
        say(errors, remark)
    for arm, table in zip(found.arms, tables, strict=True):
        output.print(table)
        for sentence in sentences(arm):
            say(output, sentence)
    for limit in found.limits:
        say(output, limit)
    for remark in found.others:
        say(errors, remark)
    if out is not None:
        typed = ["psdnorm", "compare", *map(shown_path, (a, b)), "--out", shown_path(out)]
        with errors.status("Writing"):
            write_comparison(found, out, shlex.join(typed))
        say(output, f"Look at {out / PAGE}")


def _table(arm: "ArmComparison", found: "Comparison") -> Table:
    from psdnorm.report.compared import HEAD

    simulated = ", SIMULATED nights" if found.simulated else ""
    title = f"{arm.name}: balanced accuracy{simulated}, {found.recipes}"
    table = Table(title=Text(title), box=box.SIMPLE_HEAD)
    for name, shown in _SHOWN.items():
        table.add_column(shown, justify="left" if name == "cohort" else "right", no_wrap=True)
    places = [HEAD.index(name) for name in _SHOWN]
    for row in arm.rows():
        table.add_row(*(Text(row[place]) for place in places))
    return table
