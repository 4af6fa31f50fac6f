"""Console output of an experiment: its grid, its progress and its results."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress import TextColumn
from rich.text import Text

from psdnorm.cli._shared import new_table, output, recipe_name, say_list
from psdnorm.constants import SIMULATED_NIGHTS
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.experiments import (
    EPOCHS,
    H200,
    Amounts,
    ExperimentFolder,
    PlannedRun,
    from_finished,
    from_rates,
    means,
    measured_rates,
    relative_work,
    short_patience,
)
from psdnorm.runtime import errors, plural, progress_bar, read_json, say
from psdnorm.training import DONE, Protocol, Run, resolve_device

if TYPE_CHECKING:
    from psdnorm.experiments import RunOutcome
    from psdnorm.store import Store


class Progress:
    """One bar for all runs, and a line for each run in progress."""

    def __init__(self, entries: Sequence[PlannedRun]) -> None:
        self._work = {entry.run: relative_work(entry) for entry in entries}
        self._left, self._done = sum(self._work.values()), 0.0
        self._began = time.monotonic()
        # not rich's own estimate, which forgets everything but the last seconds
        self._bar = progress_bar(errors, TextColumn("{task.fields[left]}"))
        self._task = self._bar.add_task("runs", total=len(entries), left="")
        self._running: dict[str, str] = {}
        self._live = Live(console=errors, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.is_started:
            self._running.clear()
            self._live.stop()
            if not errors.is_terminal:
                errors.print()  # rich ends the line only on a terminal

    def show(self, name: str, words: str) -> None:
        """Show the progress of a run."""
        self._running[name] = words

    def finish(self, outcome: "RunOutcome") -> None:
        """Count a run, and print its outcome unless it was finished before."""
        self._running.pop(outcome.run.name, None)
        self._left -= self._work[outcome.run]
        if outcome.status == "done":
            self._done += self._work[outcome.run]
            accuracy = f"balanced accuracy {outcome.balanced_accuracy:.3f}"
            say(errors, f"{outcome.run.name}: {accuracy}, {duration(outcome.seconds)}")
        elif outcome.reason:
            say(errors, f"failed: {outcome.reason}")
        spent = time.monotonic() - self._began
        left = f"{duration(spent * max(0.0, self._left) / self._done)} left" if self._done else ""
        self._bar.update(self._task, advance=1, left=left)

    def _render(self) -> Group:
        lines = [
            Text(f"  {name}: {words}", no_wrap=True, overflow="ellipsis")
            for name, words in list(self._running.items())
        ]
        return Group(self._bar, *lines)


def print_grid(
    store: "Store",
    grid: Sequence[Run],
    protocol: Protocol,
    runs: ExperimentFolder,
    device: str,
    workers: int,
) -> None:
    """Print the grid, how much of it is done, and an estimate of the time for the rest."""
    seconds, source = _expected(store, grid, protocol, runs, device)
    title = f"{store.path} (recipe {recipe_name(store)}) → {runs.path}"
    table = new_table(["what"], ["runs", "done", "time left"], title=title)
    for name in dict.fromkeys(run.label for run in grid):
        group = [run for run in grid if run.label == name]
        left = [run for run in group if not runs.is_done(run)]
        needed = duration(sum(seconds[run] for run in left))
        table.add_row(name, str(len(group)), str(len(group) - len(left)), needed)
    output.print(table)
    cohorts = sorted(Counter(run.hold_out for run in grid).items())
    say(output, f"runs by cohort held out: {', '.join(f'{name} {n}' for name, n in cohorts)}")
    seeds = sorted(Counter(run.seed for run in grid).items())
    say(output, f"runs by seed: {', '.join(f'{seed}: {n}' for seed, n in seeds)}")
    left = [run for run in grid if not runs.is_done(run)]
    total = sum(seconds[run] for run in left)
    shared = f", {duration(total / workers)} with {workers} workers" if workers > 1 else ""
    say(
        output,
        f"{plural(len(grid), 'run')}, {len(grid) - len(left)} done; the rest takes about "
        f"{duration(total)} on one worker{shared}, estimated from {source}",
    )
    if store.index["simulated"].any():
        say(output, SIMULATED_NIGHTS)


def warn_of_short_patience(
    grid: Sequence[Run], is_done: Callable[[Run], bool], amounts: Amounts, protocol: Protocol
) -> None:
    """Warn if trainings may be stopped before the networks have learned."""
    left = [base for base in (run.base for run in grid) if not is_done(base)]
    sentence = short_patience(left, amounts, protocol)
    if sentence is not None:
        say(errors, sentence)


def _expected(
    store: "Store", grid: Sequence[Run], protocol: Protocol, runs: ExperimentFolder, device: str
) -> tuple[dict[Run, float], str]:
    """Return the seconds of each run, and where they come from."""
    amounts = Amounts(store, protocol)
    entries = {entry.run: entry for entry in (*runs.entries(), *map(amounts.entry, grid))}
    finished = filter(runs.is_done, entries)
    done = {run: read_json(runs.folder(run) / DONE)["seconds"] for run in finished}
    found = from_finished(entries.values(), done)
    if found is not None:
        return found, plural(len(done), "finished run")
    epochs = plural(min(EPOCHS, protocol.max_epochs), "epoch")
    if resolve_device(device).type == "cuda":
        rates = H200
        source = f"rates that were measured on an H200, and {epochs} until early stopping"
    else:
        models = {run.model: run for run in reversed(grid) if not run.norm.startswith("ada")}
        rates = {m: measured_rates(run, protocol, store.layout) for m, run in models.items()}
        source = f"a step on this processor, and {epochs} until early stopping"
    return from_rates(grid, amounts, rates, protocol), source


def print_results(
    store: "Store", runs: ExperimentFolder, grid: Sequence[Run], outcomes: Sequence["RunOutcome"]
) -> None:
    """Print the means of every norm, and what failed."""
    found = means(runs, grid)
    columns = ("runs", MEAN_DATASET, MEAN_SUBJECT)
    table = new_table(["what"], columns, title=results_title(store))
    for name in dict.fromkeys(run.label for run in grid):
        group = [run for run in grid if run.label == name]
        done = sum(map(runs.is_done, group))
        nothing = (math.nan, math.nan)
        figures = (found.get(name, {}).get(m, nothing) for m in (MEAN_DATASET, MEAN_SUBJECT))
        table.add_row(name, f"{done} of {len(group)}", *(_figure(*f) for f in figures))
    output.print(table)
    if store.index["simulated"].any():
        say(output, SIMULATED_NIGHTS)
    failed = [outcome.reason for outcome in outcomes if outcome.status == "failed"]
    say_list("failed; the same command tries them again", failed)
    elsewhere = [outcome.run.name for outcome in outcomes if outcome.status == "elsewhere"]
    say_list("being run by another process", elsewhere)


def results_title(store: "Store") -> str:
    """Return the title of a table of results, which names the recipe."""
    simulated = ", of simulated nights" if store.index["simulated"].any() else ""
    return f"balanced accuracy, %{simulated}, recipe {recipe_name(store)}"


def duration(seconds: float) -> str:
    """Return a duration as a person would write it.

    >>> duration(8.4), duration(260), duration(5400)
    ('8 s', '4 min', '1.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _figure(mean: float, std: float) -> str:
    if math.isnan(mean):
        return "–"
    return f"{100 * mean:.2f}" + ("" if math.isnan(std) else f" ± {100 * std:.2f}")
