"""``psdnorm study``: nights from a seed, a grid of runs trained on them in pieces."""

import dataclasses
import functools
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import (
    SOME_FAILED,
    Device,
    DryRun,
    command,
    cores,
    new_table,
    output,
    say_list,
)
from psdnorm.constants import SIMULATED_NIGHTS
from psdnorm.errors import ArgumentError
from psdnorm.runtime import (
    TimeLimitReached,
    check_minutes,
    errors,
    plural,
    say,
    sigterm_as_ctrl_c,
    time_limit,
    track,
)

if TYPE_CHECKING:
    from psdnorm.experiments import ExperimentFolder, RunOutcome
    from psdnorm.lab.study import Study


def print_estimate(study: "Study", experiment: "ExperimentFolder") -> None:
    """Print the runs of a study by norm, and their estimated time on one H200.

    Runs in packed results count as done: they are unpacked before any is trained.
    """
    from psdnorm.cli._experiment_output import duration, warn_of_short_patience
    from psdnorm.lab.study import available, planned_amounts, seconds_of

    amounts = planned_amounts(study)
    seconds = seconds_of(study, amounts)
    size = study.protocol.batch_size
    packed = {each.archive.path: each.runs for each in available(study, experiment) if each.runs}
    done = {run for run in study.runs if experiment.is_done(run)}.union(*packed.values())
    columns = ("runs", "done", "steps per epoch", "one run", "all runs")
    table = new_table(["what"], columns, title=f"{study.name}: {study.about}")
    for name in dict.fromkeys(run.label for run in study.runs):
        group = [run for run in study.runs if run.label == name]
        steps = sum(amounts.of(run).in_batches(size).training for run in group) / size
        own = [seconds[run] for run in group]
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
    n_nights = plural(sum(nights.subjects.values()), "night")
    say(output, f"{n_nights} of {nights.hours:g} h, recipe {nights.recipe}: {by_cohort}")
    for path, runs in packed.items():
        say(output, f"done, but not unpacked yet: {plural(len(runs), 'run')} in {path}")
    left = sum(seconds[run] for run in study.runs if run not in done) / 60
    total = sum(seconds.values()) / 60
    say(
        output,
        f"{plural(len(study.runs), 'run')}, {len(done)} done; the rest takes about {left:.1f} "
        f"of {total:.1f} minutes of one H200 that they share, at rates measured there and with "
        f"{plural(study.expected_epochs, 'epoch')} until early stopping; compiling networks and "
        "simulating nights takes extra time",
    )
    say(output, SIMULATED_NIGHTS)
    warn_of_short_patience(study.runs, done.__contains__, amounts, study.protocol)


@command
def study(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML file, as those in experiments/.")
    ],
    work: Annotated[
        Path, typer.Option(help="Folder of nights and runs; studies of the same nights share them.")
    ] = Path("work"),
    minutes: Annotated[
        float | None, typer.Option(help="Time limit in minutes, including simulation.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that share the device.")
    ] = 1,
    device: Device = "auto",
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of packed results; an empty one starts over.  [default: results/ beside "
            "FILE]"
        ),
    ] = None,
    restore: Annotated[bool, typer.Option("--restore", help="Only unpack packed results.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Train the runs of the study in FILE until all are done or the time limit is reached.

    WORK/NAME is a folder of runs, as of psdnorm lodo, for psdnorm report and status; its cost.json
    records the cost. Finished runs are packed into RESULTS/NAME.tar.xz. Finished runs, including
    borrowed ones, are never repeated; interrupted ones are resumed if WORK still exists. Exit code
    1: some runs failed or are left.
    """
    from psdnorm.lab.study import check_folder, check_networks, experiment_of, is_packed, read_study

    if minutes is not None:
        check_minutes(minutes)
    if results is not None and results.exists() and not results.is_dir():
        raise ArgumentError(f"--results {results} is a file, expected a folder")
    described = dataclasses.replace(read_study(file), results=results)
    experiment = experiment_of(described, work)
    check_folder(described, experiment)
    if not restore:
        check_networks(described, experiment)
    if dry_run:
        print_estimate(described, experiment)
        return
    if restore:
        _check_packed(described)
    _unpack(described, experiment)
    if not restore:
        if not all(map(experiment.is_done, described.runs)):
            _run(described, experiment, work, minutes, workers, device)
        elif not is_packed(described):  # the missing runs were borrowed
            _pack(described, experiment)
    _say_what_is_left(described, experiment)


def _check_packed(described: "Study") -> None:
    """Raise if neither the study nor one from which it borrows was packed."""
    from psdnorm.lab.study import packed_path

    if not any(packed_path(described, name).exists() for name in (None, *described.borrow)):
        others = f", nor do results of {', '.join(described.borrow)}" if described.borrow else ""
        raise ArgumentError(
            f"{packed_path(described)} does not exist{others}, expected packed results"
        )


def _unpack(described: "Study", experiment: "ExperimentFolder") -> None:
    """Unpack the study's own results, and what it borrows."""
    from psdnorm.lab.study import borrow, packed_path, restore, unusable

    def say_where_from(n_runs: int, how: str, path: Path) -> None:
        were = plural(n_runs, "finished run was", "finished runs were")
        say(errors, f"{were} {how} from {path}")

    path = packed_path(described)
    unpacked = restore(described, experiment)
    if unpacked:
        say_where_from(unpacked, "unpacked", path)
    for loan in borrow(described, experiment):
        say_where_from(len(loan.runs), "taken", loan.archive.path)
    left = unusable(described, experiment)
    if left:
        say(
            errors,
            f"{plural(len(left), 'finished run')} in {path} cannot be used: a run and its AdaBN "
            f"runs must come from one training, but {path} lacks some that are asked for, or "
            f"{experiment.path} has some of another training",
        )


def _run(
    described: "Study",
    experiment: "ExperimentFolder",
    work: Path,
    minutes: float | None,
    workers: int,
    device: str,
) -> None:
    """Run what is left within the time limit; pack what is finished, however it ends."""
    from psdnorm.experiments import commit_of
    from psdnorm.lab.study import Meter

    size = described.protocol.batch_size
    meter = Meter(experiment, device, workers, size, commit_of(described.path))
    is_valid = True
    try:
        with sigterm_as_ctrl_c(), time_limit(minutes):
            _run_what_is_left(described, experiment, work, meter, workers, device)
    except TimeLimitReached:
        limit = f"time limit of {minutes:g} minutes reached"
        say(errors, f"{limit}; run the same command again to resume")
    except ArgumentError:
        is_valid = False
        raise
    finally:
        if experiment.path.exists() and is_valid:  # else nothing was run
            meter.write()
            _pack(described, experiment)


def _pack(described: "Study", experiment: "ExperimentFolder") -> None:
    from psdnorm.lab.study import pack

    packed = pack(described, experiment)
    if packed is not None:
        say(errors, f"{packed} has {packed.stat().st_size:,} bytes of results")


def _run_what_is_left(
    described: "Study",
    experiment: "ExperimentFolder",
    work: Path,
    meter: Any,
    workers: int,
    device: str,
) -> None:
    from psdnorm.cli._experiment_output import Progress, print_results, warn_of_short_patience
    from psdnorm.experiments import Amounts
    from psdnorm.lab.study import made_store, run_study

    watched = functools.partial(track, what="simulating")
    store = made_store(work, described.nights, cores(), watched)
    meter.simulated()
    amounts = Amounts(store, described.protocol)
    left = [run for run in described.runs if not experiment.is_done(run)]
    warn_of_short_patience(left, experiment.is_done, amounts, described.protocol)
    shown = Progress([amounts.entry(run) for run in left])
    outcomes: list[RunOutcome] = []
    working: Any = run_study(
        described, store, experiment, meter, workers=workers, device=device, on_progress=shown.show
    )
    with shown, closing(working):
        for outcome in working:
            outcomes.append(outcome)
            shown.finish(outcome)
    print_results(store, experiment, described.runs, outcomes)


def _say_what_is_left(described: "Study", experiment: "ExperimentFolder") -> None:
    """List the runs that are not finished, and say what can be read already."""
    left = [run.name for run in described.runs if not experiment.is_done(run)]
    done = len(described.runs) - len(left)
    say(output, f"{described.name}: {done} of {plural(len(described.runs), 'run')} done")
    if done:
        say(output, f"psdnorm report {experiment.path} shows their results. {SIMULATED_NIGHTS}")
    if left:
        say_list("left", left)
        raise typer.Exit(SOME_FAILED)
