"""AdaBN: a BatchNorm cell evaluated anew, with statistics of each held-out subject's own.

The network is the one that the BatchNorm cell of the same model, cohort, size and seed trained; no
training of its own is needed. For each held-out subject the first n batch norms, in execution
order, get the means and variances of the windows of all its nights, those that are predicted
afterwards: neighbouring windows overlap, so that epochs in two of them count twice. Stages are not
looked at. Then the model is as it was before.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from psdnorm.adaptation import adapt_batchnorm
from psdnorm.batches import Loader
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import subject_metrics
from psdnorm.models import from_pretrained
from psdnorm.runtime import read_json, remove_leftovers, write_json
from psdnorm.store import Store
from psdnorm.training import run_folder as records
from psdnorm.training.finite import finite_predictions
from psdnorm.training.network import Network, network_for
from psdnorm.training.predict import NightPrediction, predict_nights
from psdnorm.training.process import quiet_libraries, reproducible, resolve_device
from psdnorm.training.run import Protocol, Run
from psdnorm.training.train import split_of

if TYPE_CHECKING:
    import pandas as pd


def run_adapted(
    store: Store,
    cell: Run,
    protocol: Protocol,
    folder: Path,
    base_folder: Path,
    *,
    device: str | torch.device = "auto",
    fast: bool | str = "auto",
    keep: str = "scores",
) -> None:
    """Evaluate an AdaBN cell, and leave the same files as a cell that was trained.

    Parameters
    ----------
    store : Store
    cell : Run
    protocol : Protocol
        That of the BatchNorm cell.
    folder : Path
        Of this cell.
    base_folder : Path
        Of the BatchNorm cell, finished, with its weights.
    device, fast, keep
        As in :func:`psdnorm.training.train_run`. The weights stay where they are.
    """
    began = time.monotonic()
    trained = _trained(base_folder, cell)
    split = split_of(store, cell, protocol)
    described = records.configuration(store, cell, protocol, split)
    records.claim_folder(folder, {**described, "weights_of": cell.base.name})
    remove_leftovers(folder)
    place = resolve_device(device)
    with quiet_libraries(), reproducible(place):
        network = network_for(cell.base, protocol, store.layout, place, fast=fast)
        weights = from_pretrained(base_folder / records.WEIGHTS).state_dict()
        network.model.load_state_dict(weights)
        network.model.eval()
        predictions = adapted_predictions(
            network, store, split.test, protocol, cell.layers, device=place
        )
        timed = records.Timed(finite_predictions(store, split.test, predictions))
        scores = records.write_outcome(folder, split.test, timed, keep=keep != "scores")
    accuracy = float(subject_metrics(scores)["balanced_accuracy"].mean())
    done = {
        **trained,
        "balanced_accuracy": accuracy if accuracy == accuracy else None,
        "subjects": len(scores),
        "seconds": time.monotonic() - began,
        **timed.spent_on(split.test, protocol),
        "keep": keep,
    }
    write_json(folder / records.DONE, done)


def adapted_predictions(
    network: Network,
    store: Store,
    index: "pd.DataFrame",
    protocol: Protocol,
    layers: int | str,
    *,
    device: torch.device | str = "cpu",
) -> Iterator[NightPrediction]:
    """Predict nights subject by subject, each with batch norms that were adapted to it.

    Parameters
    ----------
    network : Network
        In evaluation mode, on ``device``.
    store : Store
    index : DataFrame
        The nights: rows of ``store.index``.
    protocol : Protocol
    layers : int or "all"
        The first so many batch norms in execution order.
    device : torch.device or str

    Yields
    ------
    NightPrediction
        Whose ``night`` is a row of ``index``; all nights of a subject, then of the next.
    """
    windows = {
        "batch_size": protocol.batch_size,
        "length": protocol.length,
        "stride": protocol.stride,
    }
    groups = index.groupby(["cohort", "subject"], sort=False).indices
    for rows in map(np.sort, groups.values()):
        nights = index.iloc[rows]
        loader = Loader(
            store,
            nights,
            seed=None,
            last="keep",  # what fills a batch would count twice
            only_scored=False,
            device=device,
            residence="map",
            **windows,
        )
        inputs = (x for x, _ in loader.epoch(0))
        with adapt_batchnorm(network.model, inputs, layers):
            predictions = predict_nights(network.forward, store, nights, device=device, **windows)
            for prediction in predictions:
                yield prediction._replace(night=int(rows[prediction.night]))


def _trained(base_folder: Path, cell: Run) -> dict[str, object]:
    """Return what the BatchNorm cell says of its training; refuse one without weights."""
    if not (base_folder / records.DONE).exists():
        raise ArgumentError(
            f"{cell.name} adapts the network of {cell.base.name}, which is not trained yet"
        )
    done = read_json(base_folder / records.DONE)
    if done["keep"] != "weights":
        raise ArgumentError(
            f"{cell.name} needs the weights of {cell.base.name}, which was finished with "
            f"keep={done['keep']!r}: delete {base_folder} to train it again"
        )
    return done
