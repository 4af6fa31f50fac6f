"""``psdnorm stage``: recordings become hypnograms."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import SOME_FAILED, Device, command, new_table, one_line, output, say_list
from psdnorm.errors import ArgumentError
from psdnorm.runtime import listed, plural, say, track

if TYPE_CHECKING:
    from psdnorm.staging import FoundRecordings, StagingJob, StagingOutcome

_MOST_DISAGREEMENTS = 5


@command
def stage(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="EDF, BDF, BrainVision, FIF, folders with them, or patterns."
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(help="Folder of a model.  [default: the one that comes with psdnorm]"),
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(help="EEG channels: 'C3-M2,C4-M1'.  [default: all with known labels]"),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="V, mV, uV or nV, if the file is wrong about its unit.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output folder; created if it does not exist.")
    ] = Path("staged"),
    lights_off: Annotated[
        str | None, typer.Option(help="Clock time as 23:15, or seconds from the start.")
    ] = None,
    lights_on: Annotated[str | None, typer.Option(help="As --lights-off.")] = None,
    scoring: Annotated[
        Path | None, typer.Option(help="Human scoring to compare one recording with.")
    ] = None,
    device: Device = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes for many files.")] = 1,
) -> None:
    """Stage nights: hypnogram, statistics, and whether to trust them.

    A night that was staged before in the same way is not staged again, so an interrupted run can
    be resumed with the same command.
    """
    from psdnorm.staging import Options, StagingJob, find_recordings

    found = find_recordings(files)
    folder = None if model is None else str(model.absolute())
    compared_with = None if scoring is None else str(scoring)
    options = Options(folder, channels, unit, lights_off, lights_on, device, compared_with)
    alone = len(found.names) == 1 and not found.problems
    nights = StagingJob(found.names, out, options, alone=alone)
    if alone:
        _stage_one(nights)
    else:
        _stage_many(found, nights, jobs)


def _stage_one(nights: "StagingJob") -> None:
    from psdnorm.staging import THERE, read_summary

    (outcome,) = nights.run()
    summary = read_summary(nights.out, outcome.name)
    if summary is None:  # removed by another process
        raise ArgumentError(f"{outcome.name}.json is not in {nights.out} any more")
    _print_night(summary)
    files = ", ".join(f"{outcome.name}{ending}" for ending in (".json", *summary["files"]))
    there = outcome.status == THERE
    done = f"already staged, {nights.out} has" if there else f"written to {nights.out}:"
    say(output, f"{done} {files}")
    if nights.notice:
        say(output, nights.notice)


def _print_night(summary: dict[str, Any]) -> None:
    """Print the summary of a night, the verdict first."""
    from psdnorm.staging import short_rows

    shift, statistics = summary["shift"], summary["statistics"]
    say(output, f"{one_line(summary['source'])}: {shift['verdict']}")
    for sentence in (*shift["reasons"], *shift["remarks"]):
        say(output, f"  {one_line(sentence)}")
    say(output, f"lights: {statistics['lights']}")
    table = new_table([""], [""], show_header=False)
    for row in short_rows(statistics):
        table.add_row(*row)
    output.print(table)
    voted = ", ".join(listed(list(dict.fromkeys(pair))) for pair in summary["channels"])
    say(output, f"channels: {voted or 'none could be staged'}")
    for note in summary["notes"]:
        say(output, f"  {one_line(note)}")
    if "agreement" in summary:
        _print_agreement(summary["agreement"])


def _print_agreement(found: dict[str, Any]) -> None:
    metrics = [
        f"{name.replace('_', ' ')} {'–' if found[name] is None else format(found[name], '.3f')}"
        for name in ("accuracy", "kappa", "balanced_accuracy")
    ]
    over = plural(found["n_compared"], "epoch")
    say(output, f"agreement with the scoring over {over}: {', '.join(metrics)}")
    if found["disagreements"]:
        say(output, f"most confident of {plural(len(found['disagreements']), 'disagreement')}:")
    for each in found["disagreements"][:_MOST_DISAGREEMENTS]:
        say(
            output,
            f"  epoch {each['epoch']} at {each['onset_s']} s: scored {each['true']}, staged "
            f"{each['predicted']} ({each['confidence']:.2f})",
        )


def _stage_many(found: "FoundRecordings", nights: "StagingJob", jobs: int) -> None:
    outcomes: list[StagingOutcome] = []
    try:
        with closing(nights.run(jobs)) as run:
            for outcome in track(run, len(nights), "stage"):
                outcomes.append(outcome)
    except KeyboardInterrupt:
        _print_outcomes(found, nights, [*outcomes, *nights.not_yielded])
        raise
    except BaseException:  # such as a table that cannot be written
        if outcomes:
            _print_outcomes(found, nights, outcomes)
        raise
    _print_outcomes(found, nights, outcomes)
    if found.problems or any(outcome.reason for outcome in outcomes):
        raise typer.Exit(SOME_FAILED)


def _print_outcomes(
    found: "FoundRecordings", nights: "StagingJob", outcomes: "Sequence[StagingOutcome]"
) -> None:
    from psdnorm.staging import SUMMARY_TABLE

    table = new_table([""], ["nights"])
    for status, count in Counter(outcome.status for outcome in outcomes).items():
        table.add_row(status, str(count))
    if len(nights) > len(outcomes):
        table.add_row("not reached", str(len(nights) - len(outcomes)))
    verdicts = [each.summary["shift"]["verdict"] for each in outcomes if each.summary]
    for verdict, count in Counter(verdicts).items():
        table.add_row(f"verdict: {verdict}", str(count))
    output.print(table)
    say_list("failed", sorted(outcome.reason for outcome in outcomes if outcome.reason))
    say_list("problems", found.problems)
    if found.n_scorings:
        say(output, f"left out as scorings: {plural(found.n_scorings, 'EDF file')}")
    say(output, f"written to {nights.out}: {SUMMARY_TABLE}, and six files for each night")
    if nights.notice:
        say(output, nights.notice)
