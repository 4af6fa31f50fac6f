"""``psdnorm demo``: simulate, prepare, train with each cohort held out, and show it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from psdnorm.cli._shared import INTERRUPTED, SOME_FAILED, command, cores, output
from psdnorm.runtime import errors, say, track


@command
def demo(
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("demo"),
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time.  [default: one per core]")
    ] = None,
) -> None:
    """Run the whole system on simulated nights, in minutes.

    Simulates and prepares four small cohorts, then trains a small U-Sleep with three norms, each
    cohort held out in turn. If interrupted, give the same command again.
    """
    from psdnorm.demo import LEAST, NEXT, Demo, failures, verdict
    from psdnorm.evaluation import MEAN_DATASET

    made = Demo(out, jobs or cores())
    say(errors, "The nights of this demo are SIMULATED: nobody slept them.")
    try:
        _all(track(made.simulate(), len(made.nights), "simulate"))
        bad = failures(_all(track(made.prepare(), len(made.nights), "prepare ")))
        bad = bad or failures(_train(made))
    except KeyboardInterrupt:
        say(errors, "psdnorm: interrupted; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None
    for reason in bad:
        say(errors, f"failed: {reason}")
    if bad:
        raise typer.Exit(SOME_FAILED)
    means = made.means()
    made.write_page()
    output.print(_table(means, made))
    say(output, verdict(means))
    say(output, f"Look at {made.page}. With your own data:\n\n{NEXT}\n")
    low = means.index[~(means[MEAN_DATASET] >= LEAST)].tolist()  # NaN is no success
    if low:
        say(errors, f"psdnorm: {', '.join(low)} below {LEAST}: the demo failed")
        raise typer.Exit(SOME_FAILED)


def _all(items: Iterator[Any]) -> list[Any]:
    with closing(items):  # type: ignore[type-var]
        return list(items)


def _train(made: Any) -> list[Any]:
    from psdnorm.cli._grids import Progress
    from psdnorm.experiments import Amounts
    from psdnorm.store import Store

    amounts = Amounts(Store.open(made.folder / "store"), made.protocol)
    outcomes = []
    with (
        Progress([amounts.entry(cell) for cell in made.cells]) as shown,
        closing(made.train(shown.show)) as grid,
    ):
        for outcome in grid:
            shown.finish(outcome)
            outcomes.append(outcome)
    return outcomes


def _table(means: Any, made: Any) -> Table:
    from psdnorm.cli._grids import results_title
    from psdnorm.demo import percent_rows
    from psdnorm.store import Store

    table = Table(title=results_title(Store.open(made.folder / "store")))
    for name in ("norm", *means.columns):
        table.add_column(name, justify="left" if name == "norm" else "right")
    for row in percent_rows(means):
        table.add_row(*row)
    return table
