"""Faster inference and training of models on CUDA devices."""

import warnings
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from psdnorm.errors import ArgumentError, BackendError
from psdnorm.ops import HAS_TRITON


def accelerate(
    model: nn.Module, fast: bool | str = "auto", *, cuda_graphs: bool = True
) -> Callable[[Tensor], Tensor]:
    """Return a function that computes what ``model`` computes, faster where that is safe.

    On a CUDA device with bfloat16, the function compiles the model, runs it under autocast and
    replays it as a CUDA graph. Elsewhere it is the model itself.

    Parameters
    ----------
    model : nn.Module
        Maps one tensor to one tensor. It keeps its weights, its state and its mode: train it,
        switch it to ``eval()`` and save it as usual. Put it on its device first.
    fast : {"auto", True, False}
        True raises :class:`~psdnorm.errors.BackendError` where the model cannot be accelerated.
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
    Compiling takes a minute or two for each combination of mode and gradients. Each is compiled for
    the first shape that it sees, from its second batch on; batches of another shape, such as the
    last of an epoch, run uncompiled. The first compiled batch of each is compared with the model's
    own result; if the compiler got it wrong, a warning is issued and the model runs uncompiled.

    Under autocast, convolutions and matrix products multiply in bfloat16 and accumulate in float32;
    PSDNorm and BatchNorm measure in float32. Compute losses outside, from the float32 result. Give
    the optimizer ``fused=True``.

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
        # rows that torch 2.11 pads by default give wrong sums, and NaN, in U-Sleep
        options: dict[str, Any] = {"triton.cudagraphs": cuda_graphs, "comprehensive_padding": False}
        # its own code object: the compiler counts recompilations per object and stops after eight
        own = FunctionType(_Accelerated._plain.__code__.replace(), globals())
        self._compiled = torch.compile(MethodType(own, self), dynamic=False, options=options)
        self._shapes: dict[tuple[bool, bool], torch.Size] = {}
        self._checked: set[tuple[bool, bool]] = set()

    def __call__(self, x: Tensor) -> Tensor:
        way = self.model.training, torch.is_grad_enabled()
        if self._shapes.get(way) != x.shape:
            y = self._plain(x)
            self._shapes.setdefault(way, x.shape)  # only now: an input that raises does not count
            return y
        if way not in self._checked:
            self._checked.add(way)
            if not is_random(self.model):
                return self._check(x)
        # a copy: the next replay overwrites this output
        return self._compiled(x).clone()

    def _check(self, x: Tensor) -> Tensor:
        """Run the compiled model, and compare its output with the model's own."""
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        with torch.no_grad():
            exact, rounded = self.model(x).float(), self._plain(x)
        self.model.load_state_dict(state)
        y = self._compiled(x).clone()
        usual, found = (float((z - exact).norm() / exact.norm()) for z in (rounded, y.detach()))
        if not found <= 4 * usual + 1e-3:
            warnings.warn(
                f"torch {torch.__version__} compiles {type(self.model).__name__} wrongly: its "
                f"outputs are off by {found:.2g} of their size, where rounding to bfloat16 costs "
                f"{usual:.2g}; it runs uncompiled instead",
                stacklevel=4,
            )
            self._compiled = self._plain
            self.model.load_state_dict(state)
            y = self._plain(x)
        return y

    def _plain(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.model(x).float()


def is_random(model: nn.Module) -> bool:
    """Return whether two passes over the same batch differ, as with dropout in training."""
    drops = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    return model.training and any(m.p > 0 for m in model.modules() if isinstance(m, drops))
