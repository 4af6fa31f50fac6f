"""PSDNorm as torch operators with a backward pass of their own, for processors and CUDA devices.

Same names and signatures as :mod:`psdnorm.ops.reference`. The work is done by
:mod:`psdnorm.ops.cpu` on a processor and by :mod:`psdnorm.ops.triton` on a CUDA device.
The operators are functional and know their shapes without running (fake tensors), so
``torch.compile(fullgraph=True)`` sees them without a graph break. Statistics and sums are float32
at least, and an autocast region changes nothing. The statistics carry no gradient: the backward
pass of :func:`normalize` is the whole gradient, as if the statistics were computed from ``x``
inside it.
"""

import os
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from psdnorm.ops import cpu as blocked
from psdnorm.ops import reference
from psdnorm.ops.hopper import rows as resident
from psdnorm.ops.reference import is_exporting, n_bins, statistics_dtype
from psdnorm.ops.triton import launch as cuda

LARGEST_FILTER_SIZE = 32
CUDA_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports(
    x: Tensor,
    filter_size: int,
    sqrt_target: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> str | None:
    """Say why the fused backend cannot serve this call; None if it can."""
    if filter_size > LARGEST_FILTER_SIZE:
        return f"filter_size {filter_size} is larger than {LARGEST_FILTER_SIZE}"
    if x.device.type not in ("cpu", "cuda"):
        return f"there are no kernels for the device {x.device}"
    if x.is_cuda and x.dtype not in CUDA_DTYPES:
        return f"on CUDA devices {x.dtype} is not one of float32, bfloat16 and float16"
    if x.is_cuda and not cuda.HAS_TRITON:
        return "triton is not installed"
    if is_exporting():
        return "an exported program must also run where there is no psdnorm"
    if sqrt_target is not None and sqrt_target.requires_grad:
        return "sqrt_target requires a gradient, which only the reference gives"
    if not torch.compiler.is_compiling() and _is_transformed(x, sqrt_target, weight, bias):
        return "the transforms of torch.func and forward-mode gradients cannot see into the kernels"
    if x.is_cuda and x.shape[-1] > cuda.LONGEST_ROW:
        return f"rows of {x.shape[-1]} samples are longer than {cuda.LONGEST_ROW}"
    return None


def row_statistics(
    x: Tensor,
    filter_size: int,
    eps: float = 1e-5,
    window: str = "boxcar",
    detrend: str = "row",
) -> tuple[Tensor, Tensor]:
    """Measure each row, without gradient; see :func:`psdnorm.ops.reference.row_statistics`."""
    if _is_plain(x):
        return _row_statistics(x.detach(), filter_size, eps, window, detrend)
    return _row_statistics_op(x.detach(), filter_size, eps, window, detrend)


def normalize(
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    filter_size: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    window: str = "boxcar",
    padding_mode: str = "circular",
    detrend: str = "row",
) -> Tensor:
    """Carry rows onto the target; see :func:`psdnorm.ops.reference.normalize`."""
    options = (weight, bias, window, padding_mode, detrend)
    arguments = (x, offset, psd, sqrt_target, filter_size, *options)
    return _Normalize.apply(*arguments) if _is_plain(x) else _normalize_op(*arguments)


def measure_and_normalize(
    x: Tensor,
    sqrt_target: Tensor,
    filter_size: int,
    eps: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    window: str = "boxcar",
    padding_mode: str = "circular",
    detrend: str = "row",
) -> Tensor:
    """Carry rows onto a target that does not depend on them, with one read where that can be."""
    options = (weight, bias, window, padding_mode, detrend)
    arguments = (x, sqrt_target, filter_size, eps, *options)
    if _is_plain(x):
        return _MeasureAndNormalize.apply(*arguments)
    return _measure_and_normalize_op(*arguments)[0]


def _is_transformed(*tensors: Tensor | None) -> bool:
    """Tell whether torch.func or forward-mode differentiation follows one of the tensors."""
    given = [t for t in tensors if t is not None]
    wrappers = torch._C._functorch
    if any(
        wrappers.is_functorch_wrapped_tensor(t) or wrappers.is_legacy_batchedtensor(t)
        for t in given
    ):
        return True
    in_dual_level = forward_ad._current_level >= 0
    return in_dual_level and any(forward_ad.unpack_dual(t).tangent is not None for t in given)


def can_update_barycenter(psd: Tensor, sqrt_psd: Tensor) -> bool:
    """Tell whether ``triton.launch.update_barycenter`` serves this running state."""
    is_float32 = psd.dtype == sqrt_psd.dtype == torch.float32 and sqrt_psd.is_contiguous()
    return is_float32 and cuda.HAS_TRITON and psd.is_cuda and _is_plain(psd) and _is_plain(sqrt_psd)


def _is_plain(x: Tensor) -> bool:
    # the way through torch's dispatcher and torch.library's autograd takes longer than the kernels;
    # only compilers, tracers and tensors that are not what they seem need it
    return (
        not torch.compiler.is_compiling()
        and type(x) in (Tensor, torch.nn.Parameter)
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and torch._C._len_torch_dispatch_stack() == 0
    )


def _for(x: Tensor) -> ModuleType:
    """Return the module that does the work where ``x`` is."""
    # the interpreter is how the kernels are tested on a machine without a CUDA device
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and x.dtype in CUDA_DTYPES
    return cuda if x.is_cuda or interpreted else blocked


def _row_statistics(x: Tensor, *options) -> tuple[Tensor, Tensor]:
    return _for(x).row_statistics(x, *options)


def _normalize(x: Tensor, *arguments) -> Tensor:
    return _for(x).normalize(x, *arguments)


def _measure_and_normalize(
    x, sqrt_target, filter_size, eps, weight, bias, window, padding_mode, detrend
) -> tuple[Tensor, Tensor, Tensor]:
    if resident.serves((x,), filter_size, window, padding_mode, detrend):
        return resident.measure_and_normalize(x, sqrt_target, filter_size, eps, weight, bias)
    offset, psd = _row_statistics(x, filter_size, eps, window, detrend)
    options = weight, bias, window, padding_mode, detrend
    return _normalize(x, offset, psd, sqrt_target, filter_size, *options), offset, psd


def _normalize_backward(grad: Tensor, *arguments) -> tuple[Tensor, Tensor]:
    return _for(grad).normalize_backward(grad, *arguments)


class _Normalize(torch.autograd.Function):
    """The operators' fast lane in eager mode."""

    @staticmethod
    def forward(ctx, *arguments):
        _keep_normalize(ctx, arguments, None)
        return _normalize(*arguments)

    @staticmethod
    def backward(ctx, grad):
        return _gradients(ctx, grad, _normalize_backward)


class _MeasureAndNormalize(torch.autograd.Function):
    """The same where the statistics are measured on the way."""

    @staticmethod
    def forward(ctx, *arguments):
        output = _measure_and_normalize(*arguments)
        _keep_measure_and_normalize(ctx, arguments, output)
        return output[0]

    @staticmethod
    def backward(ctx, grad):
        return _gradients(ctx, grad, _normalize_backward)


def _keep_normalize(ctx, inputs, output):
    x, offset, psd, sqrt_target, filter_size, weight, bias, *options = inputs
    ctx.save_for_backward(x, offset, psd, sqrt_target, weight)
    ctx.options = filter_size, *options
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.places = _Places(weight=5, bias=6, n_inputs=len(inputs))


def _keep_measure_and_normalize(ctx, inputs, output):
    x, sqrt_target, filter_size, _, *options = inputs
    _, offset, psd = output
    _keep_normalize(ctx, (x, offset, psd, sqrt_target, filter_size, *options), None)
    ctx.places = _Places(weight=4, bias=5, n_inputs=len(inputs))


class _Places(NamedTuple):
    """Where an operator takes what has a gradient, besides the signal in the first place."""

    weight: int
    bias: int
    n_inputs: int

    def fill(self, dx, dweight, dbias) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [None] * self.n_inputs
        gradients[0], gradients[self.weight], gradients[self.bias] = dx, dweight, dbias
        return tuple(gradients)


def _gradients(ctx, grad, differentiate):
    x, offset, psd, sqrt_target, weight = ctx.saved_tensors
    filter_size, *options = ctx.options
    # create_graph=True: somebody will differentiate this gradient; a gradient that is batched by
    # vmap is likewise more than a kernel can take
    is_batched = not torch.compiler.is_compiling() and _is_transformed(grad)
    if torch.is_grad_enabled() or is_batched:
        return _differentiable_gradients(ctx, grad)
    dx, row_sums = differentiate(grad, x, offset, psd, sqrt_target, filter_size, weight, *options)
    dweight = dbias = None
    if ctx.needs_input_grad[ctx.places.weight]:
        dweight = row_sums[..., 0].sum(dim=0).to(weight.dtype)
    if ctx.needs_input_grad[ctx.places.bias]:
        dbias = row_sums[..., 1].sum(dim=0).to(ctx.bias_dtype)
    return ctx.places.fill(dx, dweight, dbias)


def _differentiable_gradients(ctx, grad):
    """Compute the same gradients by autograd through the reference, ready for another pass."""
    x, _, psd, sqrt_target, weight = ctx.saved_tensors
    filter_size, window, padding_mode, detrend = ctx.options
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        offset, measured = reference.row_statistics(x, filter_size, 0.0, window, detrend)
        eps = (psd - measured).detach()
        bias = None
        if ctx.bias_dtype is not None:
            bias = x.new_zeros(x.shape[1], dtype=ctx.bias_dtype, requires_grad=True)
        options = filter_size, weight, bias, window, padding_mode, detrend
        y = reference.normalize(x, offset, measured + eps, sqrt_target, *options)
        leaves = {0: x, ctx.places.weight: weight, ctx.places.bias: bias}
        wanted = {place: leaf for place, leaf in leaves.items() if ctx.needs_input_grad[place]}
        found = torch.autograd.grad(y, [*wanted.values()], grad, create_graph=create_graph)
    gradients = dict(zip(wanted, found, strict=True))
    return ctx.places.fill(*(gradients.get(place) for place in leaves))


_row_statistics_op = torch.library.custom_op(
    "psdnorm::row_statistics",
    _row_statistics,
    mutates_args=(),
    schema="(Tensor x, int filter_size, float eps, str window, str detrend='row') "
    "-> (Tensor, Tensor)",
)
_normalize_op = torch.library.custom_op(
    "psdnorm::normalize",
    _normalize,
    mutates_args=(),
    schema="(Tensor x, Tensor offset, Tensor psd, Tensor sqrt_target, int filter_size, "
    "Tensor? weight, Tensor? bias, str window, str padding_mode, str detrend='row') -> Tensor",
)
_measure_and_normalize_op = torch.library.custom_op(
    "psdnorm::measure_and_normalize",
    _measure_and_normalize,
    mutates_args=(),
    schema="(Tensor x, Tensor sqrt_target, int filter_size, float eps, Tensor? weight, "
    "Tensor? bias, str window, str padding_mode, str detrend) -> (Tensor, Tensor, Tensor)",
)
_normalize_backward_op = torch.library.custom_op(
    "psdnorm::normalize_backward",
    _normalize_backward,
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor offset, Tensor psd, Tensor sqrt_target, "
    "int filter_size, Tensor? weight, str window, str padding_mode, str detrend='row') "
    "-> (Tensor, Tensor)",
)


@_row_statistics_op.register_fake
def _(x, filter_size, *others):
    offset = x.new_empty(x.shape[:2], dtype=statistics_dtype(x.dtype))
    return offset, offset.new_empty((*x.shape[:2], n_bins(filter_size)))


@_normalize_op.register_fake
def _(x, *others):
    return x.new_empty(x.shape)


@_measure_and_normalize_op.register_fake
def _(x, sqrt_target, filter_size, *others):
    offset = x.new_empty(x.shape[:2], dtype=statistics_dtype(x.dtype))
    return x.new_empty(x.shape), offset, offset.new_empty((*x.shape[:2], n_bins(filter_size)))


@_normalize_backward_op.register_fake
def _(grad, x, *others):
    return x.new_empty(x.shape), x.new_empty((*x.shape[:2], 2), dtype=statistics_dtype(x.dtype))


_normalize_op.register_autograd(
    lambda ctx, grad: _gradients(ctx, grad, _normalize_backward_op),
    setup_context=_keep_normalize,
)
_measure_and_normalize_op.register_autograd(
    lambda ctx, grad, *of_statistics: _gradients(ctx, grad, _normalize_backward_op),
    setup_context=_keep_measure_and_normalize,
)
