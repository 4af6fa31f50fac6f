"""The fast way to run a model on a CUDA device."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from psdnorm.errors import ArgumentError, BackendError


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
        switch it to ``eval()`` and save it as ever.
    fast : {"auto", True, False}
        True raises :class:`~psdnorm.errors.BackendError` where the fast way is not open.
    cuda_graphs : bool
        False for loops that keep gradients from one backward pass to the next (gradient
        accumulation): a graph writes the gradients of each pass to the same memory.

    Returns
    -------
    callable
        The result has the shape of ``model(x)``, in float32.

    Notes
    -----
    Compiling takes a minute or two, once for training and once for evaluation, and is done for the
    first shape that each of them sees; batches of another shape, such as the last of an epoch, run
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
    if fast not in ("auto", True, False):
        raise ArgumentError(f'fast must be "auto", True or False, found {fast!r}')
    obstacle = _obstacle(model)
    if fast is True and obstacle:
        raise BackendError(f"fast=True, but {obstacle}")
    return model if fast is False or obstacle else _Accelerated(model, cuda_graphs)


def _obstacle(model: nn.Module) -> str | None:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type != "cuda":
        return f"the model is on {device}, expected a CUDA device"
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return f"{torch.cuda.get_device_name(device)} does not compute in bfloat16"
    return None


class _Accelerated:
    def __init__(self, model: nn.Module, cuda_graphs: bool) -> None:
        self.model = model
        mode = "reduce-overhead" if cuda_graphs else "default"
        self._compiled = torch.compile(self._plain, dynamic=False, mode=mode)
        self._shapes: dict[tuple[bool, bool], torch.Size] = {}

    def __call__(self, x: Tensor) -> Tensor:
        way = self.model.training, torch.is_grad_enabled()
        if self._shapes.setdefault(way, x.shape) != x.shape:
            return self._plain(x)
        # a copy: the next replay writes where this one did
        return self._compiled(x).clone()

    def _plain(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.model(x).float()
