"""``psdnorm train``: one network, one cohort held out."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psdnorm.cli._shared import (
    BatchSize,
    Device,
    Fast,
    MaxEpochs,
    Patience,
    SequencesPerNight,
    command,
    json_object,
    one_filter_size,
    open_nights,
    output,
    recipe_name,
)
from psdnorm.runtime import errors, plural, say

if TYPE_CHECKING:
    from psdnorm.store import Store
    from psdnorm.training import Protocol, Run, Watcher


@command
def train(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store of prepared nights.")],
    hold_out: Annotated[str, typer.Option(help="Cohort to test on.")],
    norm: Annotated[
        str,
        typer.Option(
            help="batch, layer, instance, psd, psd-white, psd-unit, psd-night, psd-night-unit or "
            "tma."
        ),
    ] = "psd",
    model: Annotated[str, typer.Option(help="usleep or cnn-transformer.")] = "usleep",
    filter_size: Annotated[
        str,
        typer.Option(
            help="Filter size of PSDNorm's first layer, or of TMA: a number, or auto to choose "
            "PSDNorm's on the training set."
        ),
    ] = "5",
    norm_depth: Annotated[int, typer.Option(help="Number of blocks with the norm.")] = 3,
    balanced: Annotated[
        int | None, typer.Option(help="Maximum number of subjects of each training cohort.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the split, the initial weights and the order.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.  [default: runs/NAME]")
    ] = None,
    max_epochs: MaxEpochs = 100,
    patience: Patience = 3,
    batch_size: BatchSize = 64,
    sequences_per_night: SequencesPerNight = None,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Number of GPUs that share every batch.")] = 1,
    fast: Fast = True,
    keep: Annotated[
        str, typer.Option(help="scores, predictions or weights; each includes those before it.")
    ] = "weights",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    model_arguments: Annotated[
        str, typer.Option(help="Further model arguments as JSON, such as '{\"depth\": 4}'.")
    ] = "{}",
) -> None:
    """Train on all cohorts of STORE but one, and test on that one.

    Run the same command again to resume an interrupted training.
    """
    from psdnorm.training import Bars, Protocol, Run, Silent, train_run

    size = one_filter_size("--filter-size", filter_size)
    run = Run(model, norm, size, norm_depth, hold_out, balanced, seed)
    protocol = Protocol(
        max_epochs=max_epochs,
        patience=patience,
        batch_size=batch_size,
        sequences_per_night=sequences_per_night,
        model_arguments=json_object("--model-arguments", model_arguments),
    )
    folder = out or Path("runs") / run.name
    nights = open_nights(store)
    begin = partial(_announce, nights, run, protocol, folder, device, devices)
    try:
        with Bars() as bars:
            result = train_run(
                nights,
                run,
                protocol,
                folder,
                device=device,
                devices=devices,
                fast="auto" if fast else False,
                keep=keep,
                watcher=_Announcing(begin, Silent() if quiet else bars),
            )
    except KeyboardInterrupt:
        say(errors, f"{folder} can be resumed: run the same command again")
        raise
    chosen = result.filter_size_choice
    taken = "" if chosen is None else f", filter size {chosen['filter_size']} (auto)"
    simulated = ", simulated nights" if nights.index["simulated"].any() else ""
    say(
        output,
        f"{run.hold_out}: balanced accuracy {result.balanced_accuracy:.3f}, mean over "
        f"{plural(result.subjects, 'subject')}{simulated}, recipe {recipe_name(nights)}{taken} "
        f"(epoch {result.best_epoch + 1} of {result.epochs}; all files are in {result.folder})",
    )


def _announce(
    nights: "Store", run: "Run", protocol: "Protocol", folder: Path, device: str, devices: int
) -> None:
    """Print the folder of a training, and warnings."""
    from psdnorm.experiments import Amounts, short_patience
    from psdnorm.training import is_by_night, resolve_device, unshared_norms

    say(errors, f"{run.name}: trains in {folder}")
    place = resolve_device(device, devices)
    count = unshared_norms(run, protocol, nights.layout, place) if devices > 1 else 0
    if count:
        say(
            errors,
            f"the network's BatchNorm layers ({count}) are not synchronized between the {devices} "
            "CPU processes: each uses its own part of the batch",
        )
    if devices > 1 and is_by_night(run, protocol):
        say(errors, f"with nights as domains, {devices} devices run the network uncompiled")
    sentence = short_patience([run], Amounts(nights, protocol), protocol)
    if sentence is not None:
        say(errors, sentence)


class _Announcing:
    """A watcher that calls a function when training begins, after all checks."""

    def __init__(self, begin: Callable[[], object], watcher: "Watcher") -> None:
        self._begin, self._watcher = begin, watcher

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        self._begin()
        self._begin = list  # once is enough
        self._watcher.begin_epoch(epoch, first_batch, n_batches)

    def step(self, batch: int, loss: float) -> None:
        self._watcher.step(batch, loss)

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        self._watcher.end_epoch(row)
