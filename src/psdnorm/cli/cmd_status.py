"""``psdnorm status``: how far an experiment has come."""

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import command, output
from psdnorm.errors import ArgumentError
from psdnorm.runtime import json_text, plural, say

if TYPE_CHECKING:
    from psdnorm.experiments import Status


@command
def status(
    runs: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS", help="Folder of psdnorm lodo, or WORK/NAME of psdnorm study."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show which runs are done, running, interrupted, waiting or failed, and the time left.

    It only reads files, so it works while runs are active, here or elsewhere, and after a crash.
    """
    from psdnorm.experiments import GRID, ExperimentFolder, status_of

    if not os.path.exists(runs / GRID):
        from psdnorm.report import instead_of_runs

        raise ArgumentError(instead_of_runs(runs))
    found = status_of(ExperimentFolder(runs))
    if as_json:
        typer.echo(json_text(_document(found)), nl=False)
    else:
        _print(found, _how_to_go_on(runs))


def _how_to_go_on(runs: Path) -> str:
    """Return which command resumes a folder of runs."""
    from psdnorm.experiments import COST
    from psdnorm.lab.study import NIGHTS

    if not any((runs / name).exists() for name in (NIGHTS, COST)):
        return "run the same psdnorm lodo command again to resume"
    folder = Path(os.path.abspath(runs))
    work = runs.parent if runs.name == folder.name else folder.parent
    command = shlex.join(["psdnorm", "study", "FILE", "--work", str(work)])
    return f"to resume, run {command} with the YAML file of study {folder.name} as FILE"


def _document(found: "Status") -> dict[str, Any]:
    return {
        **found.counts(),
        "work_s": found.work_s,
        "left_s": found.left_s,
        "cells": [
            {
                "name": each.run.name,
                "state": each.state,
                "epochs": each.epochs,
                "seconds": each.seconds,
                "reason": each.reason or None,
                "host": each.holder and each.holder.host,
                "pid": each.holder and each.holder.pid,
                "cell": each.run.to_json(),
            }
            for each in found.runs
        ],
    }


def _print(found: "Status", going_on: str) -> None:
    from psdnorm.cli._experiment_output import duration

    counts = found.counts()
    by_state = ", ".join(f"{n} {state}" for state, n in counts.items())
    say(output, f"{plural(len(found.runs), 'run')}: {by_state}")
    for each in found.runs:
        if each.holder is not None:
            since = duration(time.time() - each.holder.since)
            where = f"process {each.holder.pid} on {each.holder.host}"
            done = f"{plural(each.epochs, 'epoch')} done, for {since}, {where}"
            say(output, f"  running: {each.run.name}, {done}")
    for each in found.runs:
        if each.state == "interrupted":
            say(output, f"  interrupted: {each.run.name}, {plural(each.epochs, 'epoch')} done")
    for each in found.runs:
        if each.state == "failed":
            say(output, f"  failed: {each.reason}")
    if found.work_s is None:
        idle = "" if counts["running"] else f"; nothing runs: {going_on}"
        say(output, f"no training is finished yet, so the time left is unknown{idle}")
    elif found.left_s is not None:
        workers = plural(counts["running"], "run")
        say(output, f"about {duration(found.left_s)} left at {workers} in parallel")
    elif found.work_s:
        left = f"about {duration(found.work_s)} of work for one worker"
        say(output, f"nothing runs; {left}: {going_on}")
