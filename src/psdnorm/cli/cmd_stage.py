"""``psdnorm stage``: recordings become hypnograms."""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from psdnorm.cli._shared import INTERRUPTED, SOME_FAILED, command, one_line, output
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, plural, say, track

if TYPE_CHECKING:
    from psdnorm.staging import Agreement, FoundRecordings, Nights, Options, Outcome, StagedNight

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
        typer.Option(help="EEG to use: 'C3-M2,C4-M1'.  [default: all that labels tell of]"),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="V, mV, uV or nV, if the numbers are not in what is said.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write to; made if it is absent.")
    ] = Path("staged"),
    lights_off: Annotated[
        str | None, typer.Option(help="Clock time as 23:15, or seconds from the start.")
    ] = None,
    lights_on: Annotated[str | None, typer.Option(help="As --lights-off.")] = None,
    scoring: Annotated[
        Path | None, typer.Option(help="A human scoring of the recording, to compare with.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time, for many files.")] = 1,
) -> None:
    """Stage nights: hypnogram, statistics, and whether to trust them.

    What was staged before in the same way is not staged again: an interrupted run goes on where it
    stopped.
    """
    from psdnorm.staging import Nights, Options, find_recordings

    found = find_recordings(files)
    folder = None if model is None else str(model.absolute())
    options = Options(folder, channels, unit, lights_off, lights_on, device)
    if len(found.names) == 1 and not found.problems:
        ((name, path),) = found.names.items()
        _stage_one(name, path, out, options, scoring)
        return
    if scoring is not None:
        raise ArgumentError(
            f"scoring is {str(scoring)!r} for {len(found.names)} recordings, expected one recording"
        )
    _stage_many(found, Nights(found.names, out, options), jobs)


def _stage_one(name: str, path: Path, out: Path, options: "Options", scoring: Path | None) -> None:
    """Stage a night, write its files, and print what it amounts to."""
    from dataclasses import asdict

    from psdnorm import staging
    from psdnorm.constants import EPOCH_S
    from psdnorm.io import read_bouts, read_stages
    from psdnorm.staging import check_free, check_place, marks_of

    model = staging.load_model(options.model)
    marks = marks_of(path, options, str(model.description["sha256"]))
    check_free(out, name, path.name, marks["recording"])
    check_place(out)
    if scoring is not None:
        read_bouts(scoring)  # what is wrong with it is told before what takes long
    fields = {key: value for key, value in asdict(options).items() if key != "model"}
    night = staging.stage(path, model, **fields)
    compared = None
    if scoring is not None:
        scored = read_stages(scoring, EPOCH_S * len(night.hypnogram), night.start)
        compared = staging.agreement(scored, night.hypnogram, night.probabilities)
    written = staging.write_night(out, night, name, agreement=compared, marks=marks)
    summarize(night, compared)
    say(output, f"written to {out}: {', '.join(file.name for file in written)}")
    if night.notice:
        say(output, night.notice)


def summarize(night: "StagedNight", compared: "Agreement | None" = None) -> None:
    """Print what a night amounts to: whether to trust it first."""
    from psdnorm.staging import short_rows

    report = night.shift
    say(output, f"{one_line(night.source)}: {report.verdict}")
    for sentence in (*report.reasons, *report.remarks):
        say(output, f"  {one_line(sentence)}")
    say(output, f"lights: {night.statistics.lights}")
    table = Table(show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for row in short_rows(night.statistics):
        table.add_row(*row)
    output.print(table)
    voted = ", ".join(" and ".join(dict.fromkeys(pair)) for pair in night.pairs)
    say(output, f"channels: {voted or 'none could be staged'}")
    for note in night.notes:
        say(output, f"  {one_line(note)}")
    if compared is not None:
        _print_agreement(compared)


def _print_agreement(compared: "Agreement") -> None:
    say(
        output,
        f"agreement with the scoring over {compared.n_compared} epochs: accuracy "
        f"{compared.accuracy:.3f}, kappa {compared.kappa:.3f}, balanced accuracy "
        f"{compared.balanced_accuracy:.3f}",
    )
    if compared.disagreements:
        say(output, f"most confident of {len(compared.disagreements)} disagreements:")
    for each in compared.disagreements[:_MOST_DISAGREEMENTS]:
        say(
            output,
            f"  epoch {each.epoch} at {each.onset_s} s: scored {each.true}, staged "
            f"{each.predicted} ({each.confidence:.2f})",
        )


def _stage_many(found: "FoundRecordings", nights: "Nights", jobs: int) -> None:
    """Stage nights, and print what became of them."""
    outcomes: list[Outcome] = []
    try:
        with closing(nights.run(jobs)) as run:
            for outcome in track(run, len(nights), "stage"):
                outcomes.append(outcome)
    except KeyboardInterrupt:
        _print_outcomes(found, nights, [*outcomes, *nights.untold])
        say(errors, "psdnorm: interrupted; the same command goes on where this one stopped")
        raise typer.Exit(INTERRUPTED) from None
    except BaseException:  # a table that cannot be written: what was done is told first
        if outcomes:
            _print_outcomes(found, nights, outcomes)
        raise
    _print_outcomes(found, nights, outcomes)
    if found.problems or any(outcome.reason for outcome in outcomes):
        raise typer.Exit(SOME_FAILED)


def _print_outcomes(
    found: "FoundRecordings", nights: "Nights", outcomes: "Iterable[Outcome]"
) -> None:
    from psdnorm.staging import SUMMARY_TABLE

    outcomes = list(outcomes)
    table = Table()
    table.add_column("")
    table.add_column("nights", justify="right")
    for status, count in Counter(outcome.status for outcome in outcomes).items():
        table.add_row(status, str(count))
    if len(nights) > len(outcomes):
        table.add_row("not reached", str(len(nights) - len(outcomes)))
    for verdict, count in Counter(
        outcome.summary["shift"]["verdict"] for outcome in outcomes if outcome.summary
    ).items():
        table.add_row(f"verdict: {verdict}", str(count))
    output.print(table)
    failed = sorted(outcome.reason for outcome in outcomes if outcome.reason)
    for title, sentences in (("failed", failed), ("problems", found.problems)):
        if sentences:
            say(output, f"{title} ({len(sentences)}):")
        for sentence in sentences:
            say(output, f"  {one_line(sentence)}")
    if found.n_scorings:
        files = plural(found.n_scorings, "EDF file")
        say(output, f"left out, as they hold annotations alone: {files}")
    say(output, f"written to {nights.out}: {SUMMARY_TABLE}, and six files for each night")
    if nights.notice:
        say(output, nights.notice)
