"""An id is the same domain in every process, whatever share of its rows a process has."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.checkpoint import checkpoint

from psdnorm import PSDNorm, domains

SPLIT = 3  # of 8 samples the first process gets 3, the other 5
# domains that both processes have, and some that only one has
IDS = [[5, 2, 5, 2, 9, 9, 5, 5], list("bcbaaabb"), [1, 1, 1, 2, 3, 3, 3, 3]]
WAYS = {
    "plain": {},
    "centred": {"center": "domain", "target_power": "unit"},
    "relative": {"center": "domain", "eps_mode": "relative", "backend": "reference"},
    "white": {"target": "white"},
    "checkpointed": {"momentum": None},
}
CASES = [(way, dtype) for way in WAYS for dtype in (torch.float32, torch.float64)]


def batches(dtype):
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(8, 2, 170, generator=generator) * (step + 1) + 1 for step in range(3)]
    whole[1][6, 1, 5] = torch.nan  # a bad row in the second process alone
    return [x.to(dtype) for x in whole]


def run(way, dtype, rows, sync):
    """Outputs and gradients of three training steps, an evaluation, and state."""
    torch.manual_seed(0)
    options = {"momentum": 0.3, "affine": True, "statistics": "domain"} | WAYS[way]
    network = nn.Sequential(nn.Conv1d(2, 3, 3), PSDNorm(3, 5, sync=sync, **options)).to(dtype)
    found = []
    for batch, ids in zip(batches(dtype), IDS, strict=True):
        x = batch[rows].clone().requires_grad_()
        with domains(ids[rows]):
            y = checkpoint(network, x, use_reentrant=False) if way == "checkpointed" else network(x)
        y[y.isfinite()].sin().sum().backward()
        found += [y.detach(), x.grad]
    network.eval()
    with torch.no_grad(), domains(IDS[0][rows]):
        found.append(network(batches(dtype)[0][rows]))
    # the convolution's gradients are NaN where a row is
    network.zero_grad()
    x = batches(dtype)[0][rows].clone().requires_grad_()
    with domains(IDS[0][rows]):
        network(x).sin().sum().backward()
    return found, network.state_dict(), [p.grad for p in network.parameters()], x.grad


def train_rank(rank, folder):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    rows = slice(SPLIT) if rank == 0 else slice(SPLIT, None)
    found = {case: run(*case, rows, sync=True) for case in CASES}
    apart = run("plain", torch.float32, rows, sync=False)
    torch.save((found, apart), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(train_rank, args=(str(folder),), nprocs=2)  # raises if either dies
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def close_to(scale, dtype):
    """A millionth of the largest value, and in float64 no more than rounding."""
    largest = max(t.nan_to_num().abs().max().item() for t in scale)
    return {"rtol": 0, "atol": (1e-6 if dtype == torch.float32 else 1e-12) * largest}


@pytest.mark.parametrize(("way", "dtype"), CASES)
def test_two_processes_compute_what_one_does_with_the_whole_batch(way, dtype, of_ranks):
    outputs, state, gradients, grad = run(way, dtype, slice(None), sync=False)
    summed = []
    for (found, _), rows in zip(of_ranks, (slice(SPLIT), slice(SPLIT, None)), strict=True):
        own_outputs, own_state, own_gradients, own_grad = found[way, dtype]
        for got, whole in zip([*own_outputs, own_grad], [*outputs, grad], strict=True):
            tolerance = close_to([whole], dtype)
            torch.testing.assert_close(got, whole[rows], equal_nan=True, **tolerance)
        for name, value in state.items():
            tolerance = close_to([value], dtype)
            torch.testing.assert_close(own_state[name], value, **tolerance)
        summed.append(own_gradients)
    summed = [a + b for a, b in zip(*summed, strict=True)]
    torch.testing.assert_close(summed, gradients, **close_to(gradients, dtype))
    if "target" not in WAYS[way]:
        assert state["1.rows_skipped"] == 3  # one bad input row spoils the three channels behind it


@pytest.mark.parametrize("rank", [0, 1])
def test_without_sync_a_process_stays_on_its_own(rank, of_ranks):
    rows = slice(SPLIT) if rank == 0 else slice(SPLIT, None)
    expected = run("plain", torch.float32, rows, sync=False)
    torch.testing.assert_close(of_ranks[rank][1], expected, equal_nan=True)


def test_sync_without_processes_changes_nothing():
    rows = slice(None)
    plain, synced = (run("centred", torch.float32, rows, sync) for sync in (False, True))
    torch.testing.assert_close(synced, plain, rtol=0, atol=0, equal_nan=True)
