"""What ``psdnorm study --dry-run`` shows: the cells of a study, and how their time adds up."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from psdnorm.cli.console import output, say
from psdnorm.cli.lodo_tables import SIMULATED, counted, duration, warn_of_short_patience
from psdnorm.experiments.execute import label
from psdnorm.lab.study.borrowing import loans
from psdnorm.lab.study.packing import restorable
from psdnorm.lab.study.running import seconds_of
from psdnorm.lab.study.study_nights import planned_amounts

if TYPE_CHECKING:
    from psdnorm.experiments.grid import Runs
    from psdnorm.lab.study import Study
    from psdnorm.training import Cell


def print_estimate(study: "Study", runs: "Runs") -> None:
    """Print the cells of a study by norm, and the time that they take together on one H200.

    Those that are finished in packed results, its own or those it borrows from, count as done: they
    are unpacked before any is run.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells, which need not exist.
    """
    amounts = planned_amounts(study)
    seconds = seconds_of(study, amounts)
    size = study.protocol.batch_size
    packed = _packed(study, runs)
    done = {cell for cell in study.cells if runs.is_done(cell)}.union(*packed.values())
    table = Table(title=f"{study.name}: {study.about}")
    table.add_column("what", no_wrap=True)
    for name in ("cells", "done", "steps an epoch", "one cell", "all cells"):
        table.add_column(name, justify="right")
    for name in dict.fromkeys(map(label, study.cells)):
        group = [cell for cell in study.cells if label(cell) == name]
        steps = sum(amounts.of(cell).in_batches(size).training for cell in group) / size
        own = [seconds[cell] for cell in group]
        table.add_row(
            name,
            str(len(group)),
            str(len(done.intersection(group))),
            "–" if group[0].norm.startswith("ada") else f"{steps / len(group):.0f}",
            f"{sum(own) / len(own):.1f} s",
            duration(sum(own)),
        )
    output.print(table)
    nights = study.nights
    by_cohort = ", ".join(f"{cohort} {number}" for cohort, number in nights.subjects.items())
    n_nights = sum(nights.subjects.values())
    say(output, f"{n_nights} nights of {nights.hours:g} h, recipe {nights.recipe}: {by_cohort}")
    for path, cells in packed.items():
        say(output, f"done, and not unpacked yet: {counted(len(cells), 'cell')} in {path}")
    left = sum(seconds[cell] for cell in study.cells if cell not in done) / 60
    total = sum(seconds.values()) / 60
    say(
        output,
        f"{counted(len(study.cells), 'cell')}, {len(done)} done; the others take about {left:.1f} "
        f"of {total:.1f} minutes of one H200 that they share, at rates measured there and "
        f"{counted(study.expected_epochs, 'epoch')} until early stopping; networks to compile and "
        "nights to simulate come on top",
    )
    say(output, SIMULATED)
    warn_of_short_patience(study.cells, done.__contains__, amounts, study.protocol)


def _packed(study: "Study", runs: "Runs") -> dict[Path, Sequence["Cell"]]:
    """Return what would be unpacked before anything is run, by file."""
    found: dict[Path, Sequence[Cell]] = {}
    own = restorable(study, runs)
    if own is not None and own[1]:
        found[own[0].path] = own[1]
    return found | {loan.archive.path: loan.cells for loan in loans(study, runs)}
