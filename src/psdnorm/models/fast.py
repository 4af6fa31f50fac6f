"""The fast way to run a model on a CUDA device."""

from collections.abc import Callable
from types import FunctionType, MethodType

import torch
from torch import Tensor, nn

from psdnorm.errors import ArgumentError, BackendError
from psdnorm.ops.cuda import HAS_TRITON


def accelerate(
    model: nn.Module, fast: bool | str = "auto", *, cuda_graphs: bool = True
) -> Callable[[Tensor], Tensor]:
    """Return a function that computes what ``model`` computes, faster where that is safe.

    On a CUDA device that knows bfloat16, the function compiles the model, runs it in bfloat16
    (parameters, statistics, norms and the result stay float32, see Notes) and replays it as a CUDA
    graph. Elsewhere it is the model.

    Parameters
    ----------
    model : nn.Module
        Maps one tensor to one tensor. It keeps its weights, its state and its mode: train it,
        switch it to ``eval()`` and save it as ever. Put it on its device first.
    fast : {"auto", True, False}
        True raises :class:`~psdnorm.errors.BackendError` where the fast way is not open.
    cuda_graphs : bool
        False for loops that keep gradients from one backward pass to the next (gradient
        accumulation, ``zero_grad(set_to_none=False)``): a graph writes the gradients of each pass
        to the same memory.

    Returns
    -------
    callable
        The result has the shape of ``model(x)``, in float32.

    Notes
    -----
    Compiling takes a minute or two, once for training and once for evaluation, and once more for
    each other combination of mode and gradients. It is done for the first shape that each of them
    sees, from its second batch on; batches of another shape, such as the last of an epoch, run
    uncompiled. Give the optimizer ``fused=True``.

    Under autocast, convolutions and matrix products multiply bfloat16 and add up float32; PSDNorm
    and BatchNorm measure in float32. Compute losses outside, from the float32 result.

    Examples
    --------
    >>> import torch
    >>> from psdnorm.models import USleep, accelerate
    >>> model = USleep(n_times=300, sfreq=10, depth=3, norm="psd")
    >>> forward = accelerate(model)
    >>> forward(torch.randn(2, 7, 2, 300)).shape
    torch.Size([2, 5, 7])
    """
    if not (fast == "auto" or isinstance(fast, bool)):
        raise ArgumentError(f'fast must be "auto", True or False, found {fast!r}')
    obstacle = _obstacle(model)
    if fast is True and obstacle:
        raise BackendError(f"fast=True, but {obstacle}")
    return model if fast is False or obstacle else _Accelerated(model, cuda_graphs)


def _obstacle(model: nn.Module) -> str | None:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type != "cuda":
        return f"the model is on {device}, expected a CUDA device"
    if not HAS_TRITON:
        return "triton is not installed"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} does not compute in bfloat16"
    return None


class _Accelerated:
    def __init__(self, model: nn.Module, cuda_graphs: bool) -> None:
        self.model = model
        mode = "reduce-overhead" if cuda_graphs else "default"
        # code of its own: the compiler counts recompilations by it, and gives up after eight
        own = FunctionType(_Accelerated._plain.__code__.replace(), globals())
        self._compiled = torch.compile(MethodType(own, self), dynamic=False, mode=mode)
        self._shapes: dict[tuple[bool, bool], torch.Size] = {}

    def __call__(self, x: Tensor) -> Tensor:
        way = self.model.training, torch.is_grad_enabled()
        if self._shapes.get(way) != x.shape:
            y = self._plain(x)
            self._shapes.setdefault(way, x.shape)  # only now: what is refused decides nothing
            return y
        # a copy: the next replay writes where this one did
        return self._compiled(x).clone()

    def _plain(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.model(x).float()
