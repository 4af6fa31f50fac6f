"""``psdnorm presets``: the paper's experiments, by name."""

from rich.table import Table

from psdnorm.cli._shared import command, output
from psdnorm.runtime import say


@command
def presets() -> None:
    """List the paper's experiments, what they need, and their hours on a GPU."""
    from psdnorm.experiments import EPOCHS, PAPER_COHORTS, paper_presets

    table = Table(show_lines=True)
    for name in ("preset", "in the paper"):
        table.add_column(name, no_wrap=name == "preset")
    for name in ("runs", "trainings", "H200 hours"):
        table.add_column(name, justify="right")
    for preset in paper_presets().values():
        if preset.blocks:
            figures = (len(preset.runs()), preset.trainings, round(preset.gpu_hours))
            table.add_row(preset.name, preset.shows, *map(str, figures))
        else:
            table.add_row(preset.name, f"{preset.shows}: run {preset.command}", "", "", "")
    output.print(table)
    say(
        output,
        f"psdnorm lodo STORE --preset NAME --out RUNS, with the ten cohorts in STORE "
        f"({', '.join(PAPER_COHORTS)}; psdnorm prepare … --recipe paper). --hold-out, --seeds, "
        "--norms, … select part of it; with the same RUNS, shared runs are done once.",
    )
    say(
        output,
        f"Hours: {EPOCHS} epochs until early stopping (assumed), nights of 1,000 epochs (assumed), "
        "the paper's numbers of subjects, 93 % of the bare step's rates (docs/experiments.md); "
        "compiling is not counted.",
    )
