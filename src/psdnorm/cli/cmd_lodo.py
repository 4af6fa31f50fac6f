"""``psdnorm lodo``: leave one dataset out, for every norm, cohort and seed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psdnorm.cli._shared import (
    INTERRUPTED,
    SOME_FAILED,
    BatchSize,
    Device,
    Fast,
    MaxEpochs,
    Patience,
    SequencesPerNight,
    command,
    filter_sizes,
    json_object,
    numbers,
    open_nights,
    output,
    recipe_name,
    sizes,
    words,
)
from psdnorm.errors import ArgumentError
from psdnorm.runtime import errors, say

if TYPE_CHECKING:
    from psdnorm.experiments import Axes, ExperimentFolder
    from psdnorm.store import Store
    from psdnorm.training import Run


@command
def lodo(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store of prepared nights.")],
    norms: Annotated[
        str | None,
        typer.Option(
            help="batch, layer, instance, tma, psd, psd-white, psd-unit, psd-night, "
            "psd-night-unit, adabn3, adabn12, adabnall.  [default: batch,layer,instance,tma,psd]"
        ),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="usleep, cnn-transformer.  [default: usleep]")
    ] = None,
    balanced: Annotated[
        str | None,
        typer.Option(
            help="Maximum numbers of subjects of each training cohort: numbers or all.  "
            "[default: all]"
        ),
    ] = None,
    filter_size: Annotated[
        str | None,
        typer.Option(
            help="Filter sizes of PSDNorm's first layer, or of TMA: numbers, or auto to choose "
            "PSDNorm's on the training set.  [default: 5]"
        ),
    ] = None,
    norm_depth: Annotated[
        str | None, typer.Option(help="Numbers of blocks with the norm.  [default: 3]")
    ] = None,
    hold_out: Annotated[
        str | None, typer.Option(help="Cohorts to test on.  [default: all of the store]")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds, starting at 0.  [default: 3]")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Experiment of the paper (psdnorm presets); options select part of it."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the experiment.")] = Path("runs"),
    keep: Annotated[
        str,
        typer.Option(
            help="scores, predictions or weights; each includes those before it. BatchNorm runs "
            "always keep their weights, for AdaBN."
        ),
    ] = "scores",
    max_epochs: MaxEpochs = 100,
    patience: Patience = 3,
    batch_size: BatchSize = 64,
    sequences_per_night: SequencesPerNight = None,
    model_arguments: Annotated[
        str,
        typer.Option(
            help="Further model arguments as JSON, such as '{\"depth\": 4}', or of each model: "
            '\'{"usleep": {"depth": 4}}\'.'
        ),
    ] = "{}",
    device: Device = "auto",
    fast: Fast = True,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes, which share the processor's cores."),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Number of GPUs, one process each, or all.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Scheduler of a Dask cluster to run on: tcp://host:8786.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the grid and an estimate of its time.")
    ] = False,
) -> None:
    """Train on all cohorts of STORE but one and test on that one, for every norm and seed.

    Run the same command again to resume: finished runs are not repeated. Separate values with
    commas. psdnorm status shows the progress.
    """
    from psdnorm.cli._experiment_output import (
        Progress,
        print_grid,
        print_results,
        warn_of_short_patience,
    )
    from psdnorm.experiments import (
        Amounts,
        ExperimentFolder,
        check_grid,
        cohorts_to_hold_out,
        run_grid,
    )
    from psdnorm.training import Protocol

    nights, experiment = open_nights(store), ExperimentFolder(out)
    protocol = Protocol(
        max_epochs=max_epochs,
        patience=patience,
        batch_size=batch_size,
        sequences_per_night=sequences_per_night,
        model_arguments=json_object("--model-arguments", model_arguments),
    )
    hold_outs = cohorts_to_hold_out(
        nights, () if hold_out is None else words("--hold-out", hold_out)
    )
    axes = _axes(models, norms, filter_size, norm_depth, balanced)
    grid = _grid(preset, axes, hold_outs, range(seeds) if seeds else None)
    place = _place(jobs, gpus, dask, device)
    amounts = Amounts(nights, protocol)
    if dry_run:
        on_device = None if dask else place["device"]
        check_grid(nights, grid, protocol, experiment, device=on_device, keep=keep)
        _warn_of_other_data(preset, nights)
        warn_of_short_patience(grid, experiment.is_done, amounts, protocol)
        workers = len(place["gpus"]) or place["jobs"]
        print_grid(nights, grid, protocol, experiment, place["device"], workers)
        return
    shown, outcomes = Progress([amounts.entry(run) for run in grid]), []
    options = {"fast": "auto" if fast else False, "keep": keep, **place}
    working: Any = run_grid(nights, grid, protocol, experiment, **options, on_progress=shown.show)
    _warn_of_other_data(preset, nights)
    warn_of_short_patience(grid, experiment.is_done, amounts, protocol)
    try:
        with shown, closing(working):
            for outcome in working:
                outcomes.append(outcome)
                shown.finish(outcome)
    except KeyboardInterrupt:
        errors.print("psdnorm: interrupted; run the same command again to resume")
        raise typer.Exit(INTERRUPTED) from None
    print_results(nights, experiment, grid, outcomes)
    _print_chosen(experiment, grid)
    if any(outcome.status in ("failed", "elsewhere") for outcome in outcomes):
        raise typer.Exit(SOME_FAILED)


def _axes(
    models: str | None,
    norms: str | None,
    filter_size: str | None,
    norm_depth: str | None,
    balanced: str | None,
) -> dict[str, tuple]:
    """Return the axes that were given, by the names of a run's fields."""
    asked: dict[str, Any] = {
        "model": (words, "--models", models),
        "norm": (words, "--norms", norms),
        "filter_size": (filter_sizes, "--filter-size", filter_size),
        "norm_depth": (partial(numbers, least=0), "--norm-depth", norm_depth),
        "balanced": (sizes, "--balanced", balanced),
    }
    return {name: read(*given) for name, (read, *given) in asked.items() if given[1] is not None}


def _grid(
    preset: str | None,
    axes: dict[str, tuple],
    hold_outs: tuple[str, ...],
    seeds: Sequence[int] | None,
) -> "list[Run]":
    from psdnorm.experiments import Axes, grid_of, preset_named

    if preset is not None:
        return preset_named(preset).runs(hold_outs, seeds, **axes)
    named: dict[str, Any] = {n if n == "balanced" else f"{n}s": v for n, v in axes.items()}
    block = Axes(**named, hold_outs=hold_outs, seeds=tuple(seeds or range(3)))
    return grid_of([block] if "norm" in axes else _with_fixed_tma(block))


def _with_fixed_tma(block: "Axes") -> "list[Axes]":
    """Give TMA, which was not requested by name, a fixed filter size, and say so."""
    from psdnorm.experiments import Axes
    from psdnorm.training import AUTO, TMA

    fixed = tuple(size for size in block.filter_sizes if size != AUTO)
    if fixed == block.filter_sizes:
        return [block]
    fixed = fixed or Axes.filter_sizes
    sizes_left = ", ".join(map(str, fixed))
    say(errors, f"--filter-size {AUTO} is for PSDNorm alone: {TMA} has filter size {sizes_left}")
    others = tuple(norm for norm in block.norms if norm != TMA)
    return [replace(block, norms=others), replace(block, norms=(TMA,), filter_sizes=fixed)]


def _warn_of_other_data(preset: str | None, nights: "Store") -> None:
    """Say how a store differs from the paper's, if a preset was requested."""
    if preset is None:
        return
    from psdnorm.experiments import PAPER_COHORTS

    there, recipe = set(nights.index["cohort"]), recipe_name(nights)
    missing = ", ".join(cohort for cohort in PAPER_COHORTS if cohort not in there)
    if missing:
        where = f"missing in {nights.path}: {missing}"
        say(errors, f"preset {preset} is for the paper's ten cohorts; {where}")
    if recipe != "paper":
        say(errors, f"preset {preset} is for the recipe paper; {nights.path} has {recipe}")


def _print_chosen(experiment: "ExperimentFolder", grid: "Sequence[Run]") -> None:
    """Print the filter sizes that finished runs chose."""
    from psdnorm.runtime import read_json
    from psdnorm.training import AUTO, DONE, chosen_filter_size

    for run in grid:
        if run.filter_size == AUTO and experiment.is_done(run):
            size = chosen_filter_size(read_json(experiment.folder(run) / DONE))
            say(output, f"{run.name}: filter size {size}")


def _place(jobs: int | None, gpus: str | None, dask: str | None, device: str) -> dict[str, Any]:
    """Return where the grid is executed."""
    given = {"--jobs": jobs, "--gpus": gpus, "--dask": dask}
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise ArgumentError(f"{' and '.join(asked)} were given, expected one of them at most")
    place: dict[str, Any] = {"jobs": jobs or 1, "gpus": (), "dask": dask, "device": device}
    if jobs is not None and jobs > 1 and device == "auto":
        place["device"] = "cpu"  # processes that share a GPU slow each other down
    if gpus is not None:
        from psdnorm.experiments import visible_gpus

        wanted = None if gpus == "all" else numbers("--gpus", gpus)[0]
        place |= {"gpus": tuple(visible_gpus(wanted)), "device": "cuda"}
    return place
