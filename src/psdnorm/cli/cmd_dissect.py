"""``psdnorm dissect``: which kind of shift costs which norm how much."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import (
    SOME_FAILED,
    Device,
    Fast,
    Figures,
    Jobs,
    command,
    cores,
    output,
    words,
)
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, held, say, sigterm_as_ctrl_c, track

if TYPE_CHECKING:
    from psdnorm.lab.dissect import Dissection, Models

_DEFAULTS: dict[str, Any] = {"subjects": 10, "hours": 8.0, "seed": 0, "kinds": ()}


@command
def dissect(
    runs: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS", help="Folder of psdnorm lodo, with weights (--keep weights)."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output folder: new, or of an earlier dissection.")
    ] = Path("dissection"),
    subjects: Annotated[
        int | None,
        typer.Option(min=1, help="Number of simulated test subjects.  [default: as in OUT, or 10]"),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Length of the test nights.  [default: as in OUT, or 8]")
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="gain, response, line, electrode, montage, age, scorer, rate.  [default: as in "
            "OUT, or all]"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the test nights.  [default: as in OUT, or 0]")
    ] = None,
    jobs: Jobs = None,
    device: Device = "auto",
    fast: Fast = True,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Also keep the predictions of every epoch.")
    ] = False,
    figures: Figures = True,
) -> None:
    """Show what accuracy each norm in RUNS loses to one kind of shift at a time.

    The trained networks predict simulated nights, the same with and without each shift, at three
    strengths. Run the same command again to resume, or to add kinds or networks. A network whose
    weights are missing or damaged counts with its earlier predictions; the exit code is 1 if these
    are incomplete. OUT/cost.json records the cost.
    """
    from psdnorm.training import resolve_device

    resolve_device(device)
    if figures:
        from psdnorm.present import matplotlib

        matplotlib()  # raises before nights are simulated if it is missing
    found, models = _planned(runs, out, kinds, subjects=subjects, hours=hours, seed=seed)
    for sentence in (*models.skipped, *models.gone):
        say(errors, sentence)
    found.claim()
    with sigterm_as_ctrl_c(), held(out) as free:
        if not free:
            raise ArgumentError(f"another process is already working in {out}")
        failed = _run(found, jobs or cores(), device, "auto" if fast else False, predictions)
    for sentence in failed:  # before the report, which fails without any score
        say(errors, f"failed: {sentence}")
    _report(found, _typed(runs, found), models.gone, figures)
    if failed or models.gone:
        raise typer.Exit(SOME_FAILED)


def _planned(
    runs: Path, out: Path, kinds: str | None, **nights: float | None
) -> "tuple[Dissection, Models]":
    """Return what is requested; options that are not given are those of the folder."""
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
    experiment = ExperimentFolder(runs)
    models = find_models(experiment, out, conditions)
    given = {name: value for name, value in nights.items() if value is not None}
    settings: dict[str, Any] = {name: begun[name] for name in nights} | given
    found = Dissection(experiment, out, tuple(models.runs), tuple(conditions), **settings)
    found.nights.check()
    damaged = found.damaged()
    if damaged:
        models = without_damaged(models, found.experiment, out, conditions, damaged)
        found = replace(found, runs=tuple(models.runs), unable=frozenset(damaged))
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
                reasons.setdefault((step.run.name, step.reason), []).append(step.condition.name)
    for (run, reason), under in reasons.items():
        failed.append(f"{run} under {', '.join(under)}: {reason}")
    found.forget_nights()
    return failed


def _report(found: "Dissection", typed: str, gone: list[str], figures: bool) -> None:
    from psdnorm.lab.dissect import limits, read_losses, write_dissection
    from psdnorm.report import PAGE, without_roots

    gone = [without_roots(sentence, found.experiment.path) for sentence in gone]
    folder = found.out / "report"
    with errors.status("Writing"):
        losses = read_losses(found)
        headlines = write_dissection(losses, folder, typed, gone=gone, figures=figures)
    for sentence in ("The nights are SIMULATED: nobody slept them.", *headlines):
        say(output, sentence)
    for sentence in limits(losses):
        say(errors, sentence)
    say(output, f"Look at {folder / PAGE}")


def _typed(runs: Path, found: "Dissection") -> str:
    """Return the command as the page shows it."""
    from psdnorm.lab.dissect import KINDS
    from psdnorm.report import shown_path

    parts = ["psdnorm", "dissect", shown_path(runs), "--out", shown_path(found.out)]
    parts += ["--subjects", f"{found.subjects}", "--hours", f"{found.hours:g}"]
    parts += ["--seed", f"{found.seed}"]
    kinds = [name for name in KINDS if name in {condition.kind for condition in found.conditions}]
    return shlex.join(parts if len(kinds) == len(KINDS) else [*parts, "--kinds", ",".join(kinds)])
