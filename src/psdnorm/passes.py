"""Choose batch norms of a model, and run it without leaving a trace in it."""

import difflib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from psdnorm.errors import ArgumentError, ConversionError
from psdnorm.functional import check_size

DEFAULT_LAYERS = 3
_REASONS_SHOWN = 5

Names = dict[_BatchNorm, str]
Calls = dict[_BatchNorm, list[tuple[int, ...]]]
Buffers = list[tuple[nn.Module, dict[str, Tensor]]]
Norm = TypeVar("Norm", bound=nn.Module)


def check_model(model) -> None:
    """Refuse what is not a module."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be an nn.Module, found a {type(model).__name__}")


def check_layers(layers, expected: str = 'a whole number from 1 on or "all"') -> int | str:
    """Return a count as a plain int, or "all"; refuse anything else."""
    if isinstance(layers, str) and layers == "all":
        return layers
    try:
        return check_size("layers", layers)
    except ArgumentError:
        raise ArgumentError(f"layers must be {expected}, found {layers!r}") from None


def check_names(argument: str, names) -> list[str]:
    """Return layer names as a list; refuse what holds none, or anything else."""
    listed = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else []
    if not listed or not all(isinstance(name, str) for name in listed):
        raise ArgumentError(f"{argument} must be a sequence of layer names, found {names!r}")
    return listed


def find_batch_norms(model: nn.Module) -> Names:
    """Return every batch norm with its first name, in registration order."""
    for name, module in model.named_modules():
        where = f"{name!r}" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ConversionError(f"{where} is a ScriptModule, expected its Python original")
        if any(nn.parameter.is_lazy(p) for p in module.parameters(recurse=False)):
            raise ConversionError(f"{where} is uninitialized, expected one batch to pass it first")
    found = {m: name for name, m in model.named_modules() if isinstance(m, _BatchNorm)}
    if not found:
        raise ConversionError(f"{type(model).__name__} has no BatchNorm layer")
    return found


def record_calls(
    model: nn.Module, args: tuple, norms: Iterable[Norm]
) -> dict[Norm, list[tuple[int, ...]]]:
    """Return the input shapes of each norm that one pass calls, in execution order."""
    calls: dict[Norm, list[tuple[int, ...]]] = {}

    def hook(norm, args, kwargs):
        calls.setdefault(norm, []).append(tuple(input_of(args, kwargs).shape))

    former = copy_buffers(model.modules())
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    try:
        with evaluating(model), hooked(norms, hook), torch.random.fork_rng(devices):
            model(*args)
    finally:
        restore(former)
    return calls


def input_of(args: tuple, kwargs: dict) -> Tensor:
    """Return what a batch norm, or its successor, is called on, by position or by name."""
    return args[0] if args else kwargs["input"]


def choose_first(
    found: Names, calls: Calls, layers: int | str, why_not: Callable[[_BatchNorm, int], str]
) -> list[_BatchNorm]:
    """Return the first ``layers`` norms, in execution order, that nothing speaks against."""
    chosen: list[_BatchNorm] = []
    reasons = []
    for norm in dict.fromkeys([*calls, *found]):
        if len(chosen) == layers:
            return chosen
        reason = why_not(norm, len(chosen)) if norm in calls else "is never called"
        if reason:
            reasons.append(f"{found[norm]!r} {reason}")
        else:
            chosen.append(norm)
    if len(chosen) == layers or (chosen and layers == "all"):
        return chosen
    if len(reasons) > _REASONS_SHOWN:
        reasons[_REASONS_SHOWN:] = [f"and {len(reasons) - _REASONS_SHOWN} more"]
    raise ConversionError(
        f"expected {layers} eligible BatchNorm layers, found {len(chosen)} of {len(found)}"
        + "".join(f"; {reason}" for reason in reasons)
    )


def resolve(
    model: nn.Module,
    found: Names,
    names: Sequence[str],
    why_not: Callable[[_BatchNorm, int], str],
) -> list[_BatchNorm]:
    """Return the batch norms of these names."""
    modules = dict(model.named_modules(remove_duplicate=False))
    chosen: list[_BatchNorm] = []
    for name in names:
        module = modules.get(name)
        if module is None:
            available = [name for name, module in modules.items() if module in found]
            nearest = difflib.get_close_matches(name, available, cutoff=0)
            raise ConversionError(f"no layer {name!r} in the model, nearest: {', '.join(nearest)}")
        if not isinstance(module, _BatchNorm):
            kind = type(module).__name__
            raise ConversionError(f"{name!r} is a {kind}, expected a BatchNorm layer")
        if module in chosen:
            raise ConversionError(f"{name!r} is a layer that was named before")
        if reason := why_not(module, len(chosen)):
            raise ConversionError(f"{name!r} {reason}")
        chosen.append(module)
    return chosen


@contextmanager
def evaluating(model: nn.Module, training: Collection[nn.Module] = ()) -> Iterator[None]:
    """Run without gradients, every module in evaluation mode but those in ``training``."""
    flags = {module: module.training for module in model.modules()}
    try:
        # flags rather than train() and eval(), which models override
        for module in flags:
            module.training = module in training
        with torch.no_grad(), _eager_mode():
            yield
    finally:
        for module, flag in flags.items():
            module.training = flag


def _eager_mode():
    # a graph that was compiled before runs no hook that came later; asking for eager mode imports
    # the compiler, so ask only where it is in use
    in_use = "torch._dynamo" in sys.modules
    return torch.compiler.set_stance("force_eager") if in_use else nullcontext()


@contextmanager
def hooked(norms: Iterable[nn.Module], hook: Callable) -> Iterator[None]:
    """Call ``hook(norm, args, kwargs)`` before every call of the norms."""
    handles = [norm.register_forward_pre_hook(hook, with_kwargs=True) for norm in norms]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def copy_buffers(modules: Iterable[nn.Module]) -> Buffers:
    """Copy the buffers that each module holds itself, for :func:`restore`."""
    return [
        (module, {k: b.detach().clone() for k, b in module._buffers.items() if b is not None})
        for module in modules
    ]


@torch.no_grad()
def restore(former: Buffers) -> None:
    """Give modules back the buffers that :func:`copy_buffers` copied."""
    for module, copies in former:
        for key, copy in copies.items():
            buffer = module._buffers.get(key)
            if buffer is None or buffer.shape != copy.shape:
                module._buffers[key] = copy
            else:
                buffer.copy_(copy)  # in place: it may have moved to another device by now
