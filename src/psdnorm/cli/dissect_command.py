"""``psdnorm dissect``: which norm for which trouble."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psdnorm.cli.app import INTERRUPTED, SOME_FAILED, command
from psdnorm.cli.console import cores, errors, output, say, track
from psdnorm.cli.parsing import words
from psdnorm.errors import ArgumentError

if TYPE_CHECKING:
    from psdnorm.report.dissected_run import Dissection

_REPORT = "report"


@command
def dissect(
    runs: Annotated[
        Path, typer.Argument(help="The folder of psdnorm lodo, with weights (--keep weights).")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder: new, or one to go on with.")
    ] = Path("dissection"),
    subjects: Annotated[int, typer.Option(min=1, help="Simulated test subjects.")] = 10,
    hours: Annotated[float, typer.Option(help="Length of their nights.")] = 8.0,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="gain, response, line, electrode, montage, age, scorer, rate.  [default: all]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the test nights.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Nights simulated at a time.  [default: all cores]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    fast: Annotated[
        bool, typer.Option(help="bfloat16, compiled, with CUDA graphs, where a GPU can.")
    ] = True,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Keep the predictions of every epoch, too.")
    ] = False,
    figures: Annotated[bool, typer.Option(help="Draw the matrix.")] = True,
) -> None:
    """Show what each norm of RUNS loses to one kind of shift at a time, at three strengths.

    Networks are not trained again: simulated test nights of the same subjects are shifted. What is
    done is not done again, and kinds or networks may be added: give the command again.
    """
    from psdnorm.recordings.simulation.dissection import conditions_of
    from psdnorm.report.dissected_run import Dissection, find_models
    from psdnorm.training.grid import Runs
    from psdnorm.training.locking import held
    from psdnorm.training.process import resolve_device

    conditions = conditions_of(() if kinds is None else words("--kinds", kinds))
    resolve_device(device)
    if figures:
        from psdnorm.report.figures.drawing import matplotlib

        matplotlib()  # said before nights are simulated, if it is missing
    grid = Runs(runs)
    models = find_models(grid, out)
    for sentence in models.lacking:
        say(errors, sentence)
    found = Dissection(
        grid, out, tuple(models.cells), tuple(conditions), subjects, float(hours), seed
    )
    found.nights.check()
    found.claim()
    try:
        with held(out) as free:
            if not free:
                raise ArgumentError(f"another process works in {out} now, expected one at a time")
            failed = _run(found, jobs or cores(), device, "auto" if fast else False, predictions)
    except KeyboardInterrupt:
        say(errors, "psdnorm: interrupted; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None
    _report(found, _typed(runs, out, kinds, subjects, hours, seed), figures)
    for sentence in failed:
        say(errors, f"failed: {sentence}")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _run(
    found: "Dissection", jobs: int, device: str, fast: bool | str, predictions: bool
) -> list[str]:
    """Simulate and predict what is left; return a sentence for each failure."""
    left = found.left()
    failed: list[str] = []
    if not left:
        return failed
    n_nights = found.subjects * len({condition for _, condition in left})
    for made in track(found.make_nights(jobs), n_nights, "simulating"):
        if made.reason:
            failed.append(f"{made.recording} is left out: {made.reason}")
    steps = found.predict(device=device, fast=fast, keep=predictions)
    for step in track(steps, len(left), "predicting"):
        if step.reason:
            failed.append(f"{step.cell.name} under {step.condition.name}: {step.reason}")
    found.forget_nights()
    return failed


def _report(found: "Dissection", typed: str, figures: bool) -> None:
    from psdnorm.report.dissected import read_losses
    from psdnorm.report.dissected_page import write_dissection
    from psdnorm.report.folder import PAGE

    with errors.status("Writing"):
        losses = read_losses(found)
        headlines = write_dissection(losses, found.out / _REPORT, typed, figures=figures)
    say(output, "The nights are SIMULATED: nobody slept them.")
    for sentence in headlines:
        say(output, sentence)
    for sentence in losses.limits():
        say(errors, sentence)
    say(output, f"Look at {found.out / _REPORT / PAGE}")


def _typed(runs: Path, out: Path, kinds: str | None, subjects: int, hours: float, seed: int) -> str:
    """Return the command as the page shows it."""
    from psdnorm.report.naming import shown_path

    parts = ["psdnorm", "dissect", shown_path(runs), "--out", shown_path(out)]
    parts += ["--subjects", f"{subjects}", "--hours", f"{hours:g}", "--seed", f"{seed}"]
    return shlex.join([*parts, *([] if kinds is None else ["--kinds", kinds])])
