"""``psdnorm train``: one network, one cohort held out."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psdnorm.cli._shared import (
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
    from psdnorm.training import Protocol, Result, Run, Watcher


@command
def train(
    store: Annotated[Path, typer.Argument(help="A store of prepared nights.")],
    hold_out: Annotated[str, typer.Option(help="The cohort to test on.")],
    norm: Annotated[str, typer.Option(help="batch, layer, instance, psd, psd-white or tma.")] = (
        "psd"
    ),
    model: Annotated[str, typer.Option(help="usleep or cnn-transformer.")] = "usleep",
    filter_size: Annotated[
        str,
        typer.Option(
            help="Of PSDNorm's first layer, or of TMA: a number; auto has PSDNorm's chosen from "
            "the nights that train."
        ),
    ] = "5",
    norm_depth: Annotated[int, typer.Option(help="Blocks that get the norm.")] = 3,
    balanced: Annotated[
        int | None, typer.Option(help="At most so many subjects of each other cohort.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of split, first weights and order.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/NAME if it is not given.")
    ] = None,
    max_epochs: Annotated[int, typer.Option(help="Stop after so many epochs at the latest.")] = 100,
    patience: Annotated[
        int, typer.Option(help="Stop after so many epochs without a lower validation loss.")
    ] = 3,
    batch_size: Annotated[int, typer.Option(help="Sequences of a batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    devices: Annotated[int, typer.Option(help="GPUs that share every batch.")] = 1,
    fast: Annotated[
        bool, typer.Option(help="bfloat16, compiled, with CUDA graphs, where a GPU can.")
    ] = True,
    keep: Annotated[
        str, typer.Option(help="scores, predictions or weights: each keeps those before it too.")
    ] = "weights",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    model_arguments: Annotated[
        str, typer.Option(help="Further arguments of the model as JSON, say '{\"depth\": 4}'.")
    ] = "{}",
) -> None:
    """Train on all cohorts of STORE but one, and test on that one.

    Interrupted, it goes on where it stopped when the same command is given again.
    """
    from psdnorm.training import Bars, Protocol, Run, Silent, train_run

    size = one_filter_size("--filter-size", filter_size)
    cell = Run(model, norm, size, norm_depth, hold_out, balanced, seed)
    protocol = Protocol(
        max_epochs=max_epochs,
        patience=patience,
        batch_size=batch_size,
        model_arguments=json_object("--model-arguments", model_arguments),
    )
    folder = out or Path("runs") / cell.name
    nights = open_nights(store)
    first = partial(_first_words, nights, cell, protocol, folder, device, devices)
    try:
        result = train_run(
            nights,
            cell,
            protocol,
            folder,
            device=device,
            devices=devices,
            fast="auto" if fast else False,
            keep=keep,
            watcher=_Announcing(first, Silent() if quiet else Bars()),
        )
    except KeyboardInterrupt:
        say(errors, f"{folder} can be resumed: give the same command again")
        raise
    say(output, _told(nights, result))


def _first_words(
    nights: "Store", cell: "Run", protocol: "Protocol", folder: Path, device: str, devices: int
) -> list[str]:
    """Say where a training is, and what is to be known of it before."""
    return [
        f"{cell.name}: trains in {folder}",
        *_unshared(nights, cell, protocol, device, devices),
        *_short_patience(nights, cell, protocol),
    ]


def _unshared(
    nights: "Store", cell: "Run", protocol: "Protocol", device: str, devices: int
) -> list[str]:
    """Say which norms several processes do not share, if there are any."""
    from psdnorm.training import resolve_device, unshared_norms

    if devices < 2:
        return []
    place = resolve_device(device, devices)
    count = unshared_norms(cell, protocol, nights.layout, place)
    sentence = (
        f"the network's BatchNorm layers ({count}) are not shared between the {devices} processes "
        "of a processor: each measures its own part of a batch"
    )
    return [sentence] if count else []


def _short_patience(nights: "Store", cell: "Run", protocol: "Protocol") -> list[str]:
    """Say that the training may be stopped before it has learned, if it may."""
    from psdnorm.experiments import Amounts, short_patience

    sentence = short_patience([cell], Amounts(nights, protocol), protocol)
    return [] if sentence is None else [sentence]


def _told(nights: "Store", result: "Result") -> str:
    """Put into one sentence what came of a training."""
    chosen = result.filter_size_choice
    taken = "" if chosen is None else f", filter size {chosen['filter_size']} (auto)"
    simulated = ", simulated nights" if nights.index["simulated"].any() else ""
    return (
        f"{result.run.hold_out}: balanced accuracy {result.balanced_accuracy:.3f}, mean over "
        f"{plural(result.subjects, 'subject')}{simulated}, recipe {recipe_name(nights)}{taken} "
        f"(epoch {result.best_epoch + 1} of {result.epochs}; all of it is in {result.folder})"
    )


class _Announcing:
    """Says something when a training begins, after all that could be refused; then passes on.

    It may travel to another process first.
    """

    def __init__(self, sentences: Callable[[], list[str]], watcher: "Watcher") -> None:
        self._sentences, self._watcher = sentences, watcher

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        for sentence in self._sentences():
            say(errors, sentence)
        self._sentences = list  # once is enough
        self._watcher.begin_epoch(epoch, first_batch, n_batches)

    def step(self, batch: int, loss: float) -> None:
        self._watcher.step(batch, loss)

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        self._watcher.end_epoch(row)
