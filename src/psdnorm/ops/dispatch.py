"""Dispatch each call to the reference in plain torch, or to fused operators.

The fused operators run in :mod:`psdnorm.ops.cpu` on a CPU, in :mod:`psdnorm.ops.triton` on a CUDA
device and, where rows can stay on its chip, in :mod:`psdnorm.ops.hopper`. They are functional and
have fake-tensor kernels, so ``torch.compile(fullgraph=True)`` traces them without a graph break.
Statistics and sums are at least float32, and autocast changes nothing. The fused statistics carry
no gradient: the backward pass of :func:`normalize` is the whole gradient, as if the statistics were
computed from ``x`` inside it.
"""

import os
from contextlib import nullcontext
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import forward_ad

from psdnorm.errors import BackendError, ShapeError
from psdnorm.ops import cpu, hopper, reference, triton
from psdnorm.ops.groups import Groups
from psdnorm.ops.reference import Spec, is_exporting, n_bins, statistics_dtype

BACKENDS = ("auto", "reference", "fused")
LARGEST_FILTER_SIZE = 32
CUDA_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# on a CPU the fused path pays off for rows at least this many times longer than the filter
_LONG_ROW = 32


def choose_backend(
    backend: str,
    x: Tensor,
    spec: Spec,
    sqrt_target: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> str:
    """Return the backend for a call: "auto" is "fused" where that is supported and pays off."""
    for name, parameter in (("target", sqrt_target), ("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.device != x.device:
            raise BackendError(
                f"the signal is on {x.device}, PSDNorm's {name} on {parameter.device}: "
                "move one of them"
            )
    if backend == "reference":
        return backend
    reason = supports(x, spec, sqrt_target, weight, bias)
    if backend == "fused":
        if reason is not None:
            raise BackendError(f'backend="fused" cannot serve this call: {reason}')
        return backend
    pays = x.is_cuda or x.shape[-1] >= _LONG_ROW * spec.filter_size
    return "fused" if reason is None and pays else "reference"


def supports(
    x: Tensor,
    spec: Spec,
    sqrt_target: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> str | None:
    """Return why the fused backend cannot serve this call; None if it can."""
    if spec.filter_size > LARGEST_FILTER_SIZE:
        return f"filter_size {spec.filter_size} is larger than {LARGEST_FILTER_SIZE}"
    if x.device.type not in ("cpu", "cuda"):
        return f"there are no kernels for the device {x.device}"
    if x.is_cuda and x.dtype not in CUDA_DTYPES:
        return f"on CUDA devices {x.dtype} is not one of float32, bfloat16 and float16"
    if x.is_cuda and not triton.HAS_TRITON:
        return "triton is not installed"
    if is_exporting():
        return "an exported program must also run where there is no psdnorm"
    if sqrt_target is not None and sqrt_target.requires_grad:
        return "sqrt_target requires a gradient, which only the reference gives"
    if not torch.compiler.is_compiling() and _is_transformed(x, sqrt_target, weight, bias):
        return "the transforms of torch.func and forward-mode gradients cannot see into the kernels"
    if x.is_cuda and x.shape[-1] > triton.LONGEST_ROW:
        return f"rows of {x.shape[-1]} samples are longer than {triton.LONGEST_ROW}"
    return None


def row_statistics(x: Tensor, spec: Spec, backend: str = "fused") -> tuple[Tensor, Tensor]:
    """Measure each row; use the same backend as for :func:`normalize`, see the module."""
    _check_length(x, spec)
    with _without_autocast(x):
        if backend == "reference":
            return reference.row_statistics(x, spec)
        run = _row_statistics if _is_plain(x) else _row_statistics_op
        return run(x.detach(), *spec)


def domain_statistics(
    x: Tensor, groups: Groups, spec: Spec, backend: str = "fused"
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure domains; see :func:`psdnorm.ops.reference.domain_statistics`."""
    _check_length(x, spec)
    with _without_autocast(x):
        if backend == "reference":
            return reference.domain_statistics(x, groups, spec)
        run = _domain_statistics if _is_plain(x) else _domain_statistics_op
        return run(x.detach(), *groups, *spec)


def normalize(
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    backend: str = "fused",
    groups: Groups | None = None,
) -> Tensor:
    """Carry measured rows onto the target; see :func:`psdnorm.ops.reference.normalize`.

    ``groups`` are those that :func:`domain_statistics` measured.
    """
    with _without_autocast(x):
        if backend == "reference":
            return reference.normalize(x, offset, psd, sqrt_target, spec, weight, bias)
        run = _Normalize.apply if _is_plain(x) else _normalize_op
        return run(x, weight, bias, sqrt_target, offset, psd, *(groups or (None, 0)), *spec)


def normalize_with(
    x: Tensor,
    mean: Tensor | None,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    backend: str = "fused",
) -> Tensor:
    """Carry rows from a known PSD, (C, F), eps included, onto the target.

    They are centred by a known mean, (C,), or each by its own.
    """
    _check_length(x, spec)
    spec = spec._replace(statistics="fixed", center="row" if mean is None else "domain")
    if mean is None and backend == "fused":
        with _without_autocast(x):
            if _is_plain(x):
                return _MeasureAndNormalize.apply(x, weight, bias, sqrt_target, psd, *spec)
            return _measure_and_normalize_op(x, weight, bias, sqrt_target, psd, *spec)[0]
    dtype = statistics_dtype(x.dtype)
    first = x[..., 0].to(dtype)
    if mean is None:
        offset = (x.to(dtype) - first.detach().unsqueeze(-1)).mean(dim=-1)
    else:
        offset = (mean.double() - first.detach().double()).to(dtype)
    of_rows = psd.to(dtype).expand(x.shape[0], -1, -1)
    return normalize(x, offset, of_rows, sqrt_target, spec, weight, bias, backend)


def measure_and_normalize(
    x: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    backend: str = "fused",
) -> Tensor:
    """Carry rows onto a target that does not depend on them, reading x only once if possible."""
    if backend == "reference":
        statistics = row_statistics(x, spec, backend)
        return normalize(x, *statistics, sqrt_target, spec, weight, bias, backend)
    _check_length(x, spec)
    with _without_autocast(x):
        if _is_plain(x):
            return _MeasureAndNormalize.apply(x, weight, bias, sqrt_target, None, *spec)
        return _measure_and_normalize_op(x, weight, bias, sqrt_target, None, *spec)[0]


def _check_length(x: Tensor, spec: Spec) -> None:
    if x.shape[-1] < spec.filter_size:
        raise ShapeError(
            f"the signal has {x.shape[-1]} time samples, fewer than filter_size {spec.filter_size}"
        )


def _without_autocast(x: Tensor):
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def _is_transformed(*tensors: Tensor | None) -> bool:
    """Return whether torch.func or forward-mode differentiation tracks one of the tensors."""
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
    """Return whether :func:`psdnorm.ops.triton.update_barycenter` supports this running state."""
    is_float32 = psd.dtype == sqrt_psd.dtype == torch.float32 and sqrt_psd.is_contiguous()
    has_kernel = triton.HAS_TRITON and psd.is_cuda
    return is_float32 and has_kernel and _is_plain(psd) and _is_plain(sqrt_psd)


def _is_plain(x: Tensor) -> bool:
    # going through torch's dispatcher and torch.library's autograd takes longer than the kernels;
    # only compilers, tracers, tensor subclasses and wrapped tensors need it
    return (
        not torch.compiler.is_compiling()
        and type(x) in (Tensor, torch.nn.Parameter)
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and torch._C._len_torch_dispatch_stack() == 0
    )


def _path(*signals: Tensor, spec: Spec, one_read: bool) -> ModuleType:
    """Return the module that processes rows, or rows and their gradient."""
    if one_read and hopper.serves(signals, spec):
        return hopper
    x = signals[0]
    # Triton's interpreter runs the kernels in tests on machines without a CUDA device
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and x.dtype in CUDA_DTYPES
    return triton if x.is_cuda or interpreted else cpu


# operators take arguments with gradients first, and a Spec as its fields, last, as these are plain
def _row_statistics(x: Tensor, *options) -> tuple[Tensor, Tensor]:
    spec = Spec(*options)
    return _path(x, spec=spec, one_read=False).row_statistics(x, spec)


def _domain_statistics(x, packed, n_synced, *options) -> tuple[Tensor, Tensor, Tensor]:
    spec = Spec(*options)
    path = _path(x, spec=spec, one_read=False)
    return path.domain_statistics(x, Groups(packed, n_synced), spec)


def _normalize(x, weight, bias, sqrt_target, offset, psd, packed, n_synced, *options) -> Tensor:
    spec = Spec(*options)
    path = _path(x, spec=spec, one_read=False)
    return path.normalize(x, offset, psd, sqrt_target, spec, weight, bias)


def _measure_and_normalize(
    x, weight, bias, sqrt_target, known_psd, *options
) -> tuple[Tensor, Tensor, Tensor]:
    spec = Spec(*options)
    path = _path(x, spec=spec, one_read=True)
    if path is hopper:
        return hopper.measure_and_normalize(x, sqrt_target, spec, weight, bias, known_psd)
    offset, psd = path.row_statistics(x, spec)
    if known_psd is not None:
        psd = known_psd.to(psd.dtype).expand(psd.shape)
    return path.normalize(x, offset, psd, sqrt_target, spec, weight, bias), offset, psd


def _measure_and_normalize_copied(x, weight, bias, sqrt_target, known_psd, *options):
    y, offset, psd = _measure_and_normalize(x, weight, bias, sqrt_target, known_psd, *options)
    # an operator must not return a view of an argument
    return y, offset, psd if known_psd is None else psd.clone(memory_format=torch.contiguous_format)


def _normalize_backward(
    grad, x, offset, psd, sqrt_target, weight, packed, n_synced, *options
) -> tuple[Tensor, Tensor]:
    spec = Spec(*options)
    path = _path(x, grad, spec=spec, one_read=True)
    groups = None if packed is None else Groups(packed, n_synced)
    return path.normalize_backward(grad, x, offset, psd, sqrt_target, spec, weight, groups)


class _Normalize(torch.autograd.Function):
    """The operator in eager mode."""

    @staticmethod
    def forward(ctx, *arguments):
        _keep_normalize(ctx, arguments, None)
        return _normalize(*arguments)

    @staticmethod
    def backward(ctx, grad):
        return _gradients(ctx, grad, _normalize_backward)


class _MeasureAndNormalize(torch.autograd.Function):
    """The same, with the statistics measured in the same call."""

    @staticmethod
    def forward(ctx, *arguments):
        output = _measure_and_normalize(*arguments)
        _keep_measure_and_normalize(ctx, arguments, output)
        return output[0]

    @staticmethod
    def backward(ctx, grad):
        return _gradients(ctx, grad, _normalize_backward)


def _keep_normalize(ctx, inputs, output):
    x, weight, bias, sqrt_target, offset, psd, packed, n_synced, *options = inputs
    ctx.save_for_backward(x, offset, psd, sqrt_target, weight, packed)
    ctx.n_synced, ctx.spec = n_synced, Spec(*options)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.n_constants = len(inputs) - 3


def _keep_measure_and_normalize(ctx, inputs, output):
    _keep_normalize(ctx, (*inputs[:4], *output[1:], None, 0, *inputs[5:]), None)
    ctx.n_constants = len(inputs) - 3


def _gradients(ctx, grad, differentiate):
    x, offset, psd, sqrt_target, weight, packed = ctx.saved_tensors
    constants = (None,) * ctx.n_constants
    # create_graph=True: this gradient will be differentiated; nor can a kernel take a gradient
    # batched by vmap
    is_batched = not torch.compiler.is_compiling() and _is_transformed(grad)
    if torch.is_grad_enabled() or is_batched:
        return *_differentiable_gradients(ctx, grad), *constants
    of_groups = packed, ctx.n_synced
    dx, row_sums = differentiate(grad, x, offset, psd, sqrt_target, weight, *of_groups, *ctx.spec)
    dweight = dbias = None
    if ctx.needs_input_grad[1]:
        dweight = row_sums[..., 0].sum(dim=0).to(weight.dtype)
    if ctx.needs_input_grad[2]:
        dbias = row_sums[..., 1].sum(dim=0).to(ctx.bias_dtype)
    return dx, dweight, dbias, *constants


def _differentiable_gradients(ctx, grad):
    """Compute the same gradients by autograd through the reference, so they are differentiable."""
    x, offset, psd, sqrt_target, weight, packed = ctx.saved_tensors
    spec, create_graph = ctx.spec, torch.is_grad_enabled()
    with torch.enable_grad():
        if spec.is_pooled:
            groups = Groups(packed, ctx.n_synced)
            offset, psd, _ = reference.domain_statistics(x, groups, spec)
        elif spec.statistics == "fixed":
            if spec.center == "row":
                offset = reference.row_statistics(x, spec)[0]
        elif spec.is_relative:
            offset, psd = reference.row_statistics(x, spec)
        else:
            offset, measured = reference.row_statistics(x, spec._replace(eps=0.0))
            psd = measured + (psd - measured).detach()
        bias = None
        if ctx.bias_dtype is not None:
            bias = x.new_zeros(x.shape[1], dtype=ctx.bias_dtype, requires_grad=True)
        y = reference.normalize(x, offset, psd, sqrt_target, spec, weight, bias)
        needed = ctx.needs_input_grad[:3]
        leaves = [leaf for leaf, need in zip((x, weight, bias), needed, strict=True) if need]
        found = iter(torch.autograd.grad(y, leaves, grad, create_graph=create_graph))
    return [next(found) if need else None for need in needed]


def _operator(function, tensors: str, returns: str):
    options = ", ".join(f"{kind.__name__} {name}" for name, kind in Spec.__annotations__.items())
    schema = f"({tensors}, {options}) -> {returns}"
    name = f"psdnorm::{function.__name__.strip('_').removesuffix('_copied')}"
    return torch.library.custom_op(name, function, mutates_args=(), schema=schema)


_row_statistics_op = _operator(_row_statistics, "Tensor x", "(Tensor, Tensor)")
_domain_statistics_op = _operator(
    _domain_statistics, "Tensor x, Tensor packed, int n_synced", "(Tensor, Tensor, Tensor)"
)
_normalize_op = _operator(
    _normalize,
    "Tensor x, Tensor? weight, Tensor? bias, Tensor sqrt_target, Tensor offset, Tensor psd, "
    "Tensor? packed, int n_synced",
    "Tensor",
)
_measure_and_normalize_op = _operator(
    _measure_and_normalize_copied,
    "Tensor x, Tensor? weight, Tensor? bias, Tensor sqrt_target, Tensor? known_psd",
    "(Tensor, Tensor, Tensor)",
)
_normalize_backward_op = _operator(
    _normalize_backward,
    "Tensor grad, Tensor x, Tensor offset, Tensor psd, Tensor sqrt_target, Tensor? weight, "
    "Tensor? packed, int n_synced",
    "(Tensor, Tensor)",
)


@_row_statistics_op.register_fake
def _fake_statistics(x, filter_size, *others):
    offset = x.new_empty(x.shape[:2], dtype=statistics_dtype(x.dtype))
    return offset, offset.new_empty((*x.shape[:2], n_bins(filter_size)))


@_domain_statistics_op.register_fake
def _(x, packed, n_synced, *options):
    offset, psd = _fake_statistics(x, *options)
    return offset, psd, torch.empty_like(offset)


@_normalize_op.register_fake
def _(x, *others):
    return x.new_empty(x.shape)


@_measure_and_normalize_op.register_fake
def _(x, weight, bias, sqrt_target, known_psd, *options):
    return x.new_empty(x.shape), *_fake_statistics(x, *options)


@_normalize_backward_op.register_fake
def _(grad, x, *others):
    return x.new_empty(x.shape), x.new_empty((*x.shape[:2], 2), dtype=statistics_dtype(x.dtype))


_normalize_op.register_autograd(
    lambda ctx, grad: _gradients(ctx, grad, _normalize_backward_op), setup_context=_keep_normalize
)
_measure_and_normalize_op.register_autograd(
    lambda ctx, grad, *of_statistics: _gradients(ctx, grad, _normalize_backward_op),
    setup_context=_keep_measure_and_normalize,
)
