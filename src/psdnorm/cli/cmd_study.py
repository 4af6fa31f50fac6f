"""``psdnorm study``."""

import dataclasses
import functools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from psdnorm.cli._shared import INTERRUPTED, SOME_FAILED, command, cores, output
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, plural, say, track

if TYPE_CHECKING:
    from psdnorm.experiments import ExperimentFolder, Outcome
    from psdnorm.lab.study import Study
    from psdnorm.training import Run


def print_estimate(study: "Study", runs: "ExperimentFolder") -> None:
    """Print the cells of a study by norm, and the time that they take together on one H200.

    Those that are finished in packed results, its own or those it borrows from, count as done: they
    are unpacked before any is run.

    Parameters
    ----------
    study : Study
    runs : ExperimentFolder
        The folder of its cells, which need not exist.
    """
    from psdnorm.cli.lodo_tables import SIMULATED, duration, warn_of_short_patience
    from psdnorm.lab.study import planned_amounts, seconds_of

    amounts = planned_amounts(study)
    seconds = seconds_of(study, amounts)
    size = study.protocol.batch_size
    packed = _packed(study, runs)
    done = {cell for cell in study.cells if runs.is_done(cell)}.union(*packed.values())
    table = Table(title=f"{study.name}: {study.about}")
    table.add_column("what", no_wrap=True)
    for name in ("cells", "done", "steps an epoch", "one cell", "all cells"):
        table.add_column(name, justify="right")
    for name in dict.fromkeys(cell.label for cell in study.cells):
        group = [cell for cell in study.cells if cell.label == name]
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
        say(output, f"done, and not unpacked yet: {plural(len(cells), 'cell')} in {path}")
    left = sum(seconds[cell] for cell in study.cells if cell not in done) / 60
    total = sum(seconds.values()) / 60
    say(
        output,
        f"{plural(len(study.cells), 'cell')}, {len(done)} done; the others take about {left:.1f} "
        f"of {total:.1f} minutes of one H200 that they share, at rates measured there and "
        f"{plural(study.expected_epochs, 'epoch')} until early stopping; networks to compile and "
        "nights to simulate come on top",
    )
    say(output, SIMULATED)
    warn_of_short_patience(study.cells, done.__contains__, amounts, study.protocol)


def _packed(study: "Study", runs: "ExperimentFolder") -> dict[Path, Sequence["Run"]]:
    """Return what would be unpacked before anything is run, by file."""
    from psdnorm.lab.study import loans, restorable

    found: dict[Path, Sequence[Run]] = {}
    own = restorable(study, runs)
    if own is not None and own[1]:
        found[own[0].path] = own[1]
    return found | {loan.archive.path: loan.cells for loan in loans(study, runs)}


@command
def study(
    file: Annotated[Path, typer.Argument(help="A study's YAML file, as in experiments/.")],
    work: Annotated[
        Path, typer.Option(help="Folder for nights and cells; studies of the same nights share it.")
    ] = Path("work"),
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many, nights that are made included.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that run cells on the device together.")
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of packed results; an empty one begins anew.  [default: results/ beside "
            "FILE]"
        ),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Only unpack what was packed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and an estimate of their time.")
    ] = False,
) -> None:
    """Run the study of FILE until its cells are done or the minutes are up.

    WORK/NAME is a folder of runs as psdnorm lodo leaves it, for psdnorm report; cost.json there
    tells what it cost. Finished cells are packed into RESULTS/NAME.tar.xz and never run again, nor
    are those of the studies that FILE borrows from; interrupted ones go on where WORK is still
    there. Exit code 1: some failed or are left.
    """
    from psdnorm.lab.study import check_folder, check_minutes, is_packed, read_study, runs_of

    if minutes is not None:
        check_minutes(minutes)
    _check_results(results)
    described = dataclasses.replace(read_study(file), results=results)
    runs = runs_of(described, work)
    check_folder(described, runs)
    if not restore:
        from psdnorm.lab.study import check_networks

        check_networks(described, runs)
    if dry_run:
        print_estimate(described, runs)
        return
    if restore:
        _check_packed(described)
    _unpack(described, runs)
    if not restore:
        if not all(map(runs.is_done, described.cells)):
            _run(described, runs, work, minutes, workers, device)
        elif not is_packed(described):  # others lent all that it lacked
            _pack(described, runs)
    _say_what_is_left(described, runs)


def _check_results(folder: Path | None) -> None:
    """Refuse a file where results are to be packed, before there is anything to lose."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ArgumentError(f"--results {folder} is a file, expected a folder")


def _check_packed(described: "Study") -> None:
    """Refuse to restore a study where neither it nor one that it borrows from was packed."""
    from psdnorm.lab.study import packed_path

    if not any(packed_path(described, name).exists() for name in (None, *described.borrow)):
        others = f", nor do results of {', '.join(described.borrow)}" if described.borrow else ""
        raise ArgumentError(
            f"{packed_path(described)} does not exist{others}, expected packed results"
        )


def _unpack(described: "Study", runs: "ExperimentFolder") -> None:
    """Unpack what the study has finished, and what others have of it."""
    from psdnorm.lab.study import borrow, left_behind, packed_path, restore

    def say_where_from(number: int, how: str, path: Path) -> None:
        cells = "cell was" if number == 1 else "cells were"
        say(errors, f"{number} finished {cells} {how} from {path}")

    unpacked = restore(described, runs)
    if unpacked:
        say_where_from(unpacked, "unpacked", packed_path(described))
    for loan in borrow(described, runs):
        say_where_from(len(loan.cells), "taken", loan.archive.path)
    behind = left_behind(described, runs)
    if behind:
        path = packed_path(described)
        say(
            errors,
            f"{plural(len(behind), 'finished cell')} in {path} cannot be used: AdaBN cells come "
            f"from one place with their network's, and {path} lacks some that are asked for, or "
            f"{runs.path} has some of another training",
        )


def _run(
    described: "Study",
    runs: "ExperimentFolder",
    work: Path,
    minutes: float | None,
    workers: int,
    device: str,
) -> None:
    """Run what is left for so many minutes, and pack what is finished, however it ends."""
    from psdnorm.experiments import commit_of
    from psdnorm.lab.study import Meter, MinutesAreUp, for_minutes, sigterm_is_ctrl_c

    size = described.protocol.batch_size
    meter = Meter(runs, device, workers, size, commit_of(described.path))
    refused = False
    try:
        with sigterm_is_ctrl_c(), for_minutes(minutes):
            _run_cells(described, runs, work, meter, workers, device)
    except MinutesAreUp:
        say(errors, f"{minutes:g} minutes are up; give the same command again to go on")
    except KeyboardInterrupt:
        errors.print("psdnorm: interrupted; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None
    except ArgumentError:
        refused = True
        raise
    finally:
        if runs.path.exists() and not refused:  # which runs nothing, and cost nothing
            meter.write()
            _pack(described, runs)


def _pack(described: "Study", runs: "ExperimentFolder") -> None:
    from psdnorm.lab.study import pack

    packed = pack(described, runs)
    if packed is not None:
        say(errors, f"{packed} has {packed.stat().st_size:,} bytes of results")


def _run_cells(
    described: "Study", runs: "ExperimentFolder", work: Path, meter: Any, workers: int, device: str
) -> None:
    from psdnorm.cli.lodo_tables import Progress, print_results, warn_of_short_patience
    from psdnorm.experiments import Amounts
    from psdnorm.lab.study import made_store, run_study

    watched = functools.partial(track, what="simulating")
    store = made_store(work, described.nights, cores(), watched)
    meter.simulated()
    amounts = Amounts(store, described.protocol)
    left = [cell for cell in described.cells if not runs.is_done(cell)]
    warn_of_short_patience(left, runs.is_done, amounts, described.protocol)
    shown = Progress([amounts.entry(cell) for cell in left])
    outcomes: list[Outcome] = []
    cells: Any = run_study(
        described, store, runs, meter, workers=workers, device=device, told=shown.tell
    )
    with shown, closing(cells):
        for outcome in cells:
            outcomes.append(outcome)
            shown.finish(outcome)
    print_results(store, runs, described.cells, outcomes)


def _say_what_is_left(described: "Study", runs: "ExperimentFolder") -> None:
    """Name the cells that are not finished, and what can be read already."""
    from psdnorm.cli.lodo_tables import SIMULATED

    left = [cell.name for cell in described.cells if not runs.is_done(cell)]
    done = len(described.cells) - len(left)
    say(output, f"{described.name}: {done} of {len(described.cells)} cells are done")
    if done:
        say(output, f"psdnorm report {runs.path} shows what they came to. {SIMULATED}")
    if left:
        say(output, f"left ({len(left)}):")
        for name in left:
            say(output, f"  {name}")
        raise typer.Exit(SOME_FAILED)
