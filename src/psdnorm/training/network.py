"""The network of a run, compiled once per process for consecutive runs of the same shape."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from psdnorm.errors import ArgumentError, PsdnormError
from psdnorm.layer import PSDNorm
from psdnorm.models import CNNTransformer, Pretrained, USleep, accelerate
from psdnorm.store import Layout
from psdnorm.training.aligned_nights import check_filter
from psdnorm.training.filter_size import CANDIDATES
from psdnorm.training.run import (
    AUTO,
    TMA,
    VARIANTS,
    WITH_PSD_NORM,
    Protocol,
    Run,
    filter_size_of,
    is_by_night,
    norm_arguments_of,
    with_size,
)

_CLASSES: dict[str, type[Pretrained]] = {"usleep": USleep, "cnn-transformer": CNNTransformer}


@dataclass(frozen=True)
class Network:
    """A model and its fastest forward function on its device."""

    model: Pretrained
    forward: Callable[[Tensor], Tensor]


# only one at a time: a compiled network keeps the memory of its CUDA graphs
_latest: dict[tuple, Network] = {}


def build_model(run: Run, protocol: Protocol, layout: Layout) -> Pretrained:
    """Build the model of a run on the CPU, with new weights from torch's generator."""
    set_here = {
        "n_chans": layout.n_channels,
        "n_outputs": 5,
        "n_times": layout.n_times,
        "sfreq": layout.sfreq,
        "norm": "batch" if run.norm == TMA else "psd" if run.norm in VARIANTS else run.norm,
    }
    if run.norm != TMA and run.filter_size is not None:
        set_here["filter_size"] = filter_size_of(run)
    if run.norm_depth is not None:
        set_here["norm_depth"] = run.norm_depth
    arguments = protocol.arguments_of(run.model)
    for name in arguments:
        if name in set_here or name in ("filter_size", "norm_depth"):
            raise ArgumentError(f"model_arguments has {name!r}, which run and store decide")
    arguments["norm_arguments"] = norm_arguments_of(run, protocol)
    try:
        with torch.device("cpu"):
            return _CLASSES[run.model](**set_here, **arguments)
    except PsdnormError:
        raise
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"model_arguments do not build a {run.model}: {error}") from error


def check_model(run: Run, protocol: Protocol, layout: Layout) -> None:
    """Raise if a run's network cannot be built, or the norm's depth or filters are too large."""
    model = throwaway_model(run, protocol, layout)
    blocks = model.config["depth"] if run.model == "usleep" else len(model.config["channels"])
    if (run.norm_depth or 0) > blocks:
        raise ArgumentError(
            f"norm_depth is {run.norm_depth}, expected at most the {blocks} blocks of {run.model}"
        )
    if run.norm == TMA:
        check_filter(filter_size_of(run), layout)
    if run.norm not in WITH_PSD_NORM:
        return
    makes = "may make" if run.filter_size == AUTO else "makes"
    for block, (size, length) in enumerate(_sizes_and_lengths(model, protocol.length)):
        if size > length:
            raise ArgumentError(
                f"filter_size is {run.filter_size}, which {makes} PSDNorm's f = {size:,} in block "
                f"{block} of {run.model}, expected at most the {length:,} samples that a sequence "
                f"(length {protocol.length}) has there"
            )


def _sizes_and_lengths(model: Pretrained, n_epochs: int) -> list[tuple[int, int]]:
    """Return filter size and input length of every PSDNorm; the model is unusable afterwards."""
    found: list[tuple[int, int]] = []

    def note(norm: PSDNorm, x: Tensor) -> Tensor:
        found.append((norm.filter_size, x.shape[-1]))
        return x

    for norm in model.modules():
        if isinstance(norm, PSDNorm):
            norm.forward = partial(note, norm)  # type: ignore[method-assign]
    shape = 1, n_epochs, model.config["n_chans"], model.config["n_times"]
    with torch.no_grad():
        model.to("meta").eval()(torch.empty(shape, device="meta"))  # needs no time or memory
    return found


def unshared_norms(run: Run, protocol: Protocol, layout: Layout, device: torch.device) -> int:
    """Count the norms whose statistics are not synchronised across processes on such a device."""
    if device.type == "cuda":
        return 0
    modules = throwaway_model(run, protocol, layout).modules()
    return sum(isinstance(module, nn.BatchNorm1d) for module in modules)


def throwaway_model(run: Run, protocol: Protocol, layout: Layout) -> Pretrained:
    """Build a model for inspection, without changing the random generators."""
    with torch.random.fork_rng([]):
        return build_model(with_size(run, CANDIDATES[-1]), protocol, layout)


def network_for(
    run: Run,
    protocol: Protocol,
    layout: Layout,
    device: torch.device,
    *,
    fast: bool | str = "auto",
    synchronised: bool = False,
) -> Network:
    """Return the network of a run on a device, with new weights from torch's generator.

    The process's latest network, with its compiled code, is reused if it has the same shape. It is
    the same module object, so only one run at a time may use it.
    """
    fresh = build_model(run, protocol, layout)
    shape = json.dumps([run.model, fresh.config], sort_keys=True)
    key = shape, protocol.batch_size, protocol.length, str(device), fast, synchronised
    if key not in _latest:
        _latest.clear()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        model: Any = build_model(run, protocol, layout)
        if synchronised:
            _synchronise(model, device)
        model = model.to(device)
        if synchronised and is_by_night(run, protocol):
            fast = False  # processes exchange their domains, which compiled code cannot
        # CUDA graphs write gradients to fixed memory, which conflicts with DDP's buckets
        forward = accelerate(model, fast, cuda_graphs=not synchronised)
        _latest[key] = Network(model, forward)
    network = _latest[key]
    network.model.load_state_dict(fresh.state_dict())
    network.model.zero_grad(set_to_none=True)
    return network


def _synchronise(model: nn.Module, device: torch.device) -> None:
    for module in model.modules():
        if isinstance(module, PSDNorm):
            module.sync = True
    if device.type == "cuda":  # torch has no such layer for CPUs
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
