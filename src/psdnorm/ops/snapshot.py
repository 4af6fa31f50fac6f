"""The running state as a pass found it, even where torch.compile recomputes that pass.

A compiled backward pass may recompute cheap forward values from the inputs of the graph. The
running barycenter is such an input and has been overwritten by then, so the recomputed target would
be one update too far, and the gradient silently wrong. An operator is never recomputed, except
inside an activation checkpoint, where it finds out that it runs in the backward pass.
"""

import torch
from torch import Tensor


def running_state(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
    """Return the state before this pass's update, and whether the update is still to be made.

    Parameters
    ----------
    sqrt_psd : Tensor, (C, F)
    batches : Tensor, (C,)

    Returns
    -------
    sqrt_psd : Tensor, (C, F)
    batches : Tensor, (C,)
    pending : Tensor, (), or float
        1, or 0 in a compiled recomputation, where ``sqrt_psd`` is the updated one already.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _snapshot(sqrt_psd, batches)
    return sqrt_psd, batches, 1.0


def in_backward_pass() -> bool:
    """Tell whether this code runs inside the autograd engine."""
    return torch._C._current_graph_task_id() != -1


@torch.library.custom_op("psdnorm::snapshot", mutates_args=())
def _snapshot(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    pending = sqrt_psd.new_zeros(()) if in_backward_pass() else sqrt_psd.new_ones(())
    return sqrt_psd.clone(), batches.clone(), pending


@_snapshot.register_fake
def _(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(sqrt_psd), torch.empty_like(batches), sqrt_psd.new_empty(())
