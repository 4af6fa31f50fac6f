"""``psdnorm dissect``: which norm for which trouble."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import INTERRUPTED, SOME_FAILED, command, cores, output, words
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, say, track

if TYPE_CHECKING:
    from psdnorm.lab.dissect import Dissection, Models

_REPORT = "report"
_DEFAULTS: dict[str, Any] = {"subjects": 10, "hours": 8.0, "seed": 0, "kinds": ()}


@command
def dissect(
    runs: Annotated[
        Path, typer.Argument(help="The folder of psdnorm lodo, with weights (--keep weights).")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder: new, or one to go on with.")
    ] = Path("dissection"),
    subjects: Annotated[
        int | None,
        typer.Option(min=1, help="Simulated test subjects.  [default: those of OUT, or 10]"),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Length of their nights.  [default: that of OUT, or 8]")
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="gain, response, line, electrode, montage, age, scorer, rate.  [default: those of "
            "OUT, or all]"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the test nights.  [default: that of OUT, or 0]")
    ] = None,
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
    done is not done again, and kinds or networks may be added: give the command again. Networks
    whose weights are gone or damaged count with what they predicted; the exit code is 1 if that is
    not all. cost.json in OUT tells what it cost.
    """
    from psdnorm.lab.study import sigterm_is_ctrl_c
    from psdnorm.runtime import held
    from psdnorm.training import resolve_device

    resolve_device(device)
    if figures:
        from psdnorm.present import matplotlib

        matplotlib()  # said before nights are simulated, if it is missing
    found, models = _planned(runs, out, kinds, subjects, hours, seed)
    for sentence in (*models.lacking, *models.gone):
        say(errors, sentence)
    found.claim()
    try:
        with sigterm_is_ctrl_c(), held(out) as free:
            if not free:
                raise ArgumentError(f"another process works in {out} now, expected one at a time")
            failed = _run(found, jobs or cores(), device, "auto" if fast else False, predictions)
    except KeyboardInterrupt:
        say(errors, "psdnorm: interrupted; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None
    for sentence in failed:  # first, as without any score there is no report
        say(errors, f"failed: {sentence}")
    _report(found, _typed(runs, found), models.gone, figures)
    if failed or models.gone:
        raise typer.Exit(SOME_FAILED)


def _planned(
    runs: Path,
    out: Path,
    kinds: str | None,
    subjects: int | None,
    hours: float | None,
    seed: int | None,
) -> "tuple[Dissection, Models]":
    """Return what is asked for: an option that is not given is what the folder was begun with."""
    from psdnorm.experiments import GRID, ExperimentFolder
    from psdnorm.lab.dissect import (
        Dissection,
        begun_with,
        conditions_of,
        find_models,
        without_damaged,
    )
    from psdnorm.report import instead_of_runs

    begun = {**_DEFAULTS, **begun_with(out)}
    conditions = conditions_of(begun["kinds"] if kinds is None else words("--kinds", kinds))
    if not (runs / GRID).exists():
        raise ArgumentError(instead_of_runs(runs))
    models = find_models(ExperimentFolder(runs), out, conditions)
    found = Dissection(
        ExperimentFolder(runs),
        out,
        tuple(models.cells),
        tuple(conditions),
        subjects=begun["subjects"] if subjects is None else subjects,
        hours=begun["hours"] if hours is None else float(hours),
        seed=begun["seed"] if seed is None else seed,
    )
    found.nights.check()
    damaged = found.damaged()
    if damaged:
        models = without_damaged(models, found.runs, out, conditions, damaged)
        found = replace(found, cells=tuple(models.cells), unable=frozenset(damaged))
    return found, models


def _run(
    found: "Dissection", jobs: int, device: str, fast: bool | str, predictions: bool
) -> list[str]:
    """Simulate and predict what is left; return a sentence for each failure."""
    from psdnorm.lab.dissect import metered

    left = found.left()
    failed: list[str] = []
    if not left:
        found.forget_nights()
        return failed
    n_nights = found.subjects * len({condition for _, condition in left})
    reasons: dict[tuple[str, str], list[str]] = {}
    with metered(found.out, device, jobs) as meter:
        for made in track(found.make_nights(jobs), n_nights, "simulating"):
            if made.reason:
                failed.append(f"{made.recording} is left out: {made.reason}")
        meter.simulated()
        steps = found.predict(device=device, fast=fast, keep=predictions)
        for step in track(steps, len(left), "predicting"):
            meter.count(step)
            if step.reason:
                reasons.setdefault((step.cell.name, step.reason), []).append(step.condition.name)
    for (cell, reason), under in reasons.items():
        failed.append(f"{cell} under {', '.join(under)}: {reason}")
    found.forget_nights()
    return failed


def _report(found: "Dissection", typed: str, gone: list[str], figures: bool) -> None:
    from psdnorm.lab.dissect import limits, read_losses, write_dissection
    from psdnorm.report import PAGE, without_roots

    gone = [without_roots(sentence, found.runs.path) for sentence in gone]
    with errors.status("Writing"):
        losses = read_losses(found)
        headlines = write_dissection(losses, found.out / _REPORT, typed, gone=gone, figures=figures)
    say(output, "The nights are SIMULATED: nobody slept them.")
    for sentence in headlines:
        say(output, sentence)
    for sentence in limits(losses):
        say(errors, sentence)
    say(output, f"Look at {found.out / _REPORT / PAGE}")


def _typed(runs: Path, found: "Dissection") -> str:
    """Return the command as the page shows it."""
    from psdnorm.lab.dissect import KINDS
    from psdnorm.report import shown_path

    parts = ["psdnorm", "dissect", shown_path(runs), "--out", shown_path(found.out)]
    parts += ["--subjects", f"{found.subjects}", "--hours", f"{found.hours:g}"]
    parts += ["--seed", f"{found.seed}"]
    asked = {condition.kind for condition in found.conditions}
    kinds = [name for name in KINDS if name in asked]
    return shlex.join([*parts, *(["--kinds", ",".join(kinds)] if len(kinds) < len(KINDS) else [])])
