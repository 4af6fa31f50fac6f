"""Processes with uneven batches share one barycenter."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from psdnorm import PSDNorm

SPLIT = 3  # of 8 samples the first process gets 3, the other 5


def batches():
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(8, 2, 90, generator=generator) * (step + 1) for step in range(3)]
    whole[1][6, 1, 5] = torch.nan  # a bad row on the second process alone
    return whole


def model(sync):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 3, 3), PSDNorm(3, 5, momentum=0.3, sync=sync))


def train_rank(rank, folder):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    network = DistributedDataParallel(model(sync=True))
    outputs = []
    for batch in batches():
        x = batch[:SPLIT] if rank == 0 else batch[SPLIT:]
        y = network(x)
        y.nan_to_num().square().sum().backward()
        outputs.append(y.detach())
    local = PSDNorm(2, 5)
    local(batches()[0][rank : rank + 1])
    gradients = [p.grad for p in network.parameters()]
    result = network.module.state_dict(), outputs, gradients, local.running_sqrt_psd
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_processes_get_the_barycenter_of_one_with_the_whole_batch(tmp_path):
    mp.spawn(train_rank, args=(str(tmp_path),), nprocs=2)  # raises if either dies
    alone = model(sync=False)
    expected = []
    for batch in batches():
        expected.append(alone(batch))
        expected[-1].nan_to_num().square().sum().backward()
    for rank, part in ((0, slice(SPLIT)), (1, slice(SPLIT, None))):
        state, outputs, gradients, local = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(state, dict(alone.state_dict()))
        torch.testing.assert_close(outputs, [y[part].detach() for y in expected], equal_nan=True)
        # DistributedDataParallel averages where one process sums
        whole = [p.grad / 2 for p in alone.parameters()]
        torch.testing.assert_close(gradients, whole, rtol=1e-4, atol=1e-4, equal_nan=True)
        apart = PSDNorm(2, 5)
        apart(batches()[0][rank : rank + 1])
        torch.testing.assert_close(local, apart.running_sqrt_psd)  # sync=False stays on its own
    assert state["1.rows_skipped"] == 3  # one bad input row spoils the three channels behind it


def test_sync_without_processes_is_a_plain_layer():
    plain, synced = PSDNorm(2, 5), PSDNorm(2, 5, sync=True)
    x = batches()[0]
    torch.testing.assert_close(synced(x), plain(x), rtol=0, atol=0)
