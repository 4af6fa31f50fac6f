"""``psdnorm demo``: simulate, prepare, train with each cohort held out, and show it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from psdnorm.cli._shared import SOME_FAILED, Jobs, command, cores, new_table, output
from psdnorm.runtime import errors, say, track


@command
def demo(
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("demo"),
    jobs: Jobs = None,
) -> None:
    """Run the whole system on simulated nights, in minutes.

    Simulates and prepares four small cohorts, then trains a small U-Sleep with three norms, each
    cohort held out in turn. If interrupted, run the same command again.
    """
    from psdnorm.demo import LEAST, NEXT, Demo, failures, verdict
    from psdnorm.evaluation import MEAN_DATASET

    made = Demo(out, jobs or cores())
    say(errors, "The nights of this demo are SIMULATED: nobody slept them.")
    _all(track(made.simulate(), len(made.nights), "simulate"))
    bad = failures(_all(track(made.prepare(), len(made.nights), "prepare ")))
    bad = bad or failures(_train(made))
    for reason in bad:
        say(errors, f"failed: {reason}")
    if bad:
        raise typer.Exit(SOME_FAILED)
    means = made.means()
    made.write_page()
    _print_means(means, made)
    say(output, verdict(means))
    say(output, f"Look at {made.page}. With your own data:\n\n{NEXT}\n")
    low = means.index[~(means[MEAN_DATASET] >= LEAST)].tolist()  # NaN is a failure
    if low:
        say(errors, f"psdnorm: {', '.join(low)} below {LEAST}: the demo failed")
        raise typer.Exit(SOME_FAILED)


def _all(items: Iterator[Any]) -> list[Any]:
    with closing(items):  # type: ignore[type-var]
        return list(items)


def _train(made: Any) -> list[Any]:
    from psdnorm.cli._experiment_output import Progress
    from psdnorm.experiments import Amounts
    from psdnorm.store import Store

    amounts = Amounts(Store.open(made.folder / "store"), made.protocol)
    outcomes = []
    with (
        Progress([amounts.entry(run) for run in made.runs]) as shown,
        closing(made.train(shown.show)) as grid,
    ):
        for outcome in grid:
            shown.finish(outcome)
            outcomes.append(outcome)
    return outcomes


def _print_means(means: Any, made: Any) -> None:
    from psdnorm.cli._experiment_output import results_title
    from psdnorm.demo import percent_rows
    from psdnorm.store import Store

    title = results_title(Store.open(made.folder / "store"))
    table = new_table(["norm"], means.columns, title=title)
    for row in percent_rows(means):
        table.add_row(*row)
    output.print(table)
