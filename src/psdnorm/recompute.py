"""The running state, and the domains of the rows, for forward passes that are recomputed.

Activation checkpointing runs a forward pass a second time inside the backward pass, and a compiled
backward pass recomputes cheap forward values. By then the barycenter has been updated: the target
would differ, and the gradient be silently wrong. The ids of a batch may be gone, too.
"""

from collections import deque
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from psdnorm.errors import BackendError
from psdnorm.ops import Groups, current_groups, is_exporting

# forward passes whose target is remembered until their backward pass
REMEMBERED_PASSES = 256
# samples of a row that tell a batch from others
_FINGERPRINT_SAMPLES = 64
_MOST_KINDS = 16  # of batches, by size and device


def in_backward_pass() -> bool:
    """Return whether this code runs inside the autograd engine."""
    return torch._C._current_graph_task_id() != -1


_memories: WeakValueDictionary[int, "PassMemory"] = WeakValueDictionary()


class PassMemory:
    """The targets of the latest forward passes, for replays in eager mode."""

    def __init__(self) -> None:
        # sums of the batch (C, F) and target (C, F), newest first
        self._passes: deque[tuple[Tensor, Tensor]] = deque(maxlen=REMEMBERED_PASSES)
        self._new = 0  # passes since the last replay
        self._replays: Tensor | None = None  # how often each older pass was replayed
        # memories of domains instead of targets, by what must agree to compare batches
        self._domains: dict[tuple, PassMemory] = {}
        self._n_synced = 0
        # for operators, which take no Python objects; in a tensor, because the compiler would bake
        # a number into its code, and compile again for every layer
        self.key = torch.tensor(id(self), dtype=torch.int64, device="cpu")
        _memories[id(self)] = self

    def __getstate__(self) -> dict:
        # passes belong to the graphs of one process: copies and pickles start empty
        return {}

    def __setstate__(self, state: dict) -> None:
        self.__init__()  # type: ignore[misc]

    def holds_replayed_pass(self) -> bool:
        """Return whether the current forward pass is a replay."""
        # running_state handles compiled graphs
        return not torch.compiler.is_compiling() and len(self._passes) > 0 and in_backward_pass()

    def add(self, total: Tensor, target: Tensor) -> None:
        """Remember the target, (C, F), of a batch with these sums, (C, F)."""
        # tensors of a tracer or of torch.func are invalid after the call
        is_traced = torch.compiler.is_compiling()
        if not is_traced and not torch._C._functorch.is_functorch_wrapped_tensor(total):
            self._passes.appendleft((total, target))
            self._new += 1

    def recall(self, total: Tensor) -> Tensor:
        """Return the target of the pass whose batch has these sums, (C, F)."""
        totals, targets = map(torch.stack, zip(*self._passes, strict=True))  # (passes, C, F)
        replays = total.new_zeros(self._new)
        if self._replays is not None:
            replays = torch.cat([replays, self._replays])
        replays, self._new = replays[: len(totals)], 0
        # nearest rather than equal, as a replay may round differently; among passes with the same
        # batch, the latest not yet replayed, since backward passes run in reverse. All on the
        # device, without synchronizing with the host
        distance = (totals - total).square().sum(dim=(1, 2)) + 1e-6 * total.square().sum() * replays
        nearest = distance.argmin()
        self._replays = replays + (torch.arange(len(totals), device=total.device) == nearest)
        return targets.index_select(0, nearest.unsqueeze(0))[0]

    def domains(self, rows: Tensor, sync: bool) -> Groups:
        """Return the domains of this pass's rows, (N, C, T), or of the pass that is replayed."""
        if not in_backward_pass() and not _may_be_replayed():
            return current_groups(rows.shape[0], rows.device, sync)
        samples = rows.detach()[..., :: max(1, rows.shape[-1] // _FINGERPRINT_SAMPLES)]
        samples = samples.double().nan_to_num(0.0, 0.0, 0.0)
        n_rows, n_channels = rows.shape[:2]
        # the same rows in another order are another batch
        place = torch.linspace(1, 2, n_rows, dtype=samples.dtype, device=rows.device)
        fingerprint = (place @ samples.abs().sum(dim=-1)).unsqueeze(-1)  # (C, 1)
        kind = n_rows, n_channels, rows.device
        if kind not in self._domains:
            if len(self._domains) == _MOST_KINDS:
                del self._domains[next(iter(self._domains))]
            self._domains[kind] = PassMemory()
        memory = self._domains[kind]
        if memory.holds_replayed_pass():
            return Groups(memory.recall(fingerprint), self._n_synced)
        groups = current_groups(n_rows, rows.device, sync)
        memory.add(fingerprint, groups.packed)
        self._n_synced = max(self._n_synced, groups.n_synced)
        return groups


def _may_be_replayed() -> bool:
    """Return whether an activation checkpoint may run this pass again."""
    # a reentrant checkpoint disables gradients, as compiled graphs do; the other one hooks into
    # what is saved for the backward pass
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    is_first = not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    return is_first or hooks is not None


def groups_of_pass(rows: Tensor, memory: PassMemory, sync: bool) -> Groups:
    """Return the domains of the rows, (N, C, T), of a forward pass or its replay."""
    sync = sync and dist.is_available() and dist.is_initialized()
    if is_exporting():
        raise BackendError(
            'PSDNorm with statistics="domain" can be exported only with fixed PSDs: export it '
            "inside `with psdnorm.adapt(model, batches)`, in evaluation mode"
        )
    if torch.compiler.is_compiling():
        if sync:
            raise BackendError(
                'PSDNorm with sync=True and statistics="domain" cannot run inside torch.compile'
            )
        # an operator, because the graph must depend neither on the ids nor on their number
        return Groups(_domains(rows.detach(), memory.key))
    if rows.is_cuda and torch.cuda.is_current_stream_capturing():
        raise BackendError(
            'PSDNorm with statistics="domain" cannot read ids inside a CUDA graph, which would '
            "repeat those of the capture: fix the PSDs with psdnorm.adapt"
        )
    return memory.domains(rows, sync)


_UNSAFE = [tag for tag in (getattr(torch.Tag, "cudagraph_unsafe", None),) if tag is not None]


@torch.library.custom_op("psdnorm::domains", mutates_args=(), tags=_UNSAFE)
def _domains(rows: Tensor, key: Tensor) -> Tensor:
    packed = _memories[int(key)].domains(rows, sync=False).packed
    return packed.clone()


@_domains.register_fake
def _(rows: Tensor, key: Tensor) -> Tensor:
    return torch.empty(3 * rows.shape[0] + 1, dtype=torch.int64, device=rows.device)


def running_state(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor | int]:
    """Return the state before this pass's update, and 1 if that is pending, 0 if already made."""
    # a compiled graph reads the state through an operator, which is recomputed only inside an
    # activation checkpoint, where it detects that it runs in the backward pass
    if torch.compiler.is_compiling() and not is_exporting():
        return _snapshot(sqrt_psd, batches)
    return sqrt_psd, batches, 1


@torch.library.custom_op("psdnorm::snapshot", mutates_args=())
def _snapshot(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    pending = batches.new_zeros(()) if in_backward_pass() else batches.new_ones(())
    return sqrt_psd.clone(), batches.clone(), pending


@_snapshot.register_fake
def _(sqrt_psd: Tensor, batches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(sqrt_psd), torch.empty_like(batches), batches.new_empty(())
