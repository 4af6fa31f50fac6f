"""Gradient accumulation, activation checkpointing, torch.func: one pass, one update."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from psdnorm import PSDNorm
from psdnorm.errors import BackendError
from psdnorm.functional import psd_norm


def signals(seed, n=3):
    x = torch.randn(n, 2, 100, generator=torch.Generator().manual_seed(seed))
    return (seed + 1) * (x + 0.5 * x.roll(1, -1))


def network(momentum=0.4):
    torch.manual_seed(0)
    norm = PSDNorm(4, 5, momentum=momentum)
    return nn.Sequential(nn.Conv1d(2, 4, 3), norm, nn.ELU(), nn.Conv1d(4, 1, 3))


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("use_reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_checkpointing_updates_once_and_gives_the_plain_gradients(use_reentrant):
    plain, checkpointed = network(), network()
    for step in range(3):
        plain(signals(step)).square().sum().backward()
        x = signals(step).requires_grad_()  # the reentrant variant needs an input with a gradient
        checkpoint(checkpointed, x, use_reentrant=use_reentrant).square().sum().backward()
    torch.testing.assert_close(gradients(checkpointed), gradients(plain))
    torch.testing.assert_close(checkpointed[1].state_dict(), plain[1].state_dict())
    assert checkpointed[1].num_batches_tracked.tolist() == [3] * 4


def test_each_replayed_pass_uses_its_own_target():
    plain, checkpointed = network(), network()
    losses = []
    for model, run in (
        (plain, plain),
        (checkpointed, lambda x: checkpoint(checkpointed, x, use_reentrant=False)),
    ):
        losses.append(sum(run(signals(step)).square().sum() for step in range(4)))
        losses[-1].backward()
        assert model[1].num_batches_tracked.tolist() == [4] * 4
    torch.testing.assert_close(gradients(checkpointed), gradients(plain))


def test_a_batch_that_comes_again_is_replayed_with_its_latest_target():
    plain, checkpointed = network(), network()
    for model in (plain, checkpointed):
        model(signals(0))
        model(signals(1))
    plain(signals(0)).square().sum().backward()
    checkpoint(checkpointed, signals(0), use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(gradients(checkpointed), gradients(plain))


def test_the_same_batch_passed_twice_is_replayed_with_both_targets():
    plain, checkpointed = network(), network()
    for model in (plain, checkpointed):
        model(5 * signals(3))
    (plain(signals(0)) + 2 * plain(signals(0))).square().sum().backward()
    replayed = [checkpoint(checkpointed, signals(0), use_reentrant=False) for _ in range(2)]
    (replayed[0] + 2 * replayed[1]).square().sum().backward()
    torch.testing.assert_close(gradients(checkpointed), gradients(plain))


def test_many_passes_may_wait_for_their_backward_pass():
    plain, checkpointed = network(momentum=0.1), network(momentum=0.1)
    for model, run in (
        (plain, plain),
        (checkpointed, lambda x: checkpoint(checkpointed, x, use_reentrant=False)),
    ):
        sum(run(signals(step, n=1)).square().sum() for step in range(120)).backward()
        assert model[1].num_batches_tracked.tolist() == [120] * 4
    torch.testing.assert_close(gradients(checkpointed), gradients(plain), rtol=1e-4, atol=1e-3)


def test_passes_from_before_a_change_of_precision_are_forgotten():
    layer = PSDNorm(2, 5, momentum=0.5)
    layer(signals(0))
    layer.double()
    x = signals(1).double().requires_grad_()
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    assert layer.num_batches_tracked.tolist() == [2, 2]


def test_the_forward_passes_may_run_ahead_of_the_backward_passes():
    layer = PSDNorm(2, 5, momentum=0.5)
    inputs = [signals(step).requires_grad_() for step in range(3)]
    targets, outputs = [], []
    for x in inputs:
        outputs.append(layer(x))
        targets.append(layer.running_sqrt_psd.clone())
    for x, y, target in zip(inputs, outputs, targets, strict=True):
        upstream = signals(8)
        expected = torch.autograd.grad(psd_norm(x, target, 5), x, upstream)
        torch.testing.assert_close(torch.autograd.grad(y, x, upstream), expected)


def test_an_evaluation_graph_survives_later_training():
    layer = PSDNorm(2, 5).eval()
    x = signals(0).requires_grad_()
    y = layer(x)
    layer.train()(signals(1))
    expected = torch.autograd.grad(psd_norm(x, None, 5), x, signals(2))
    torch.testing.assert_close(torch.autograd.grad(y, x, signals(2)), expected)


def test_accumulated_gradients_are_the_sum_of_the_passes():
    model = network(momentum=0.0)  # the target stays that of the first pass
    model(signals(0))
    model[1].num_batches_tracked.fill_(1)
    alone = []
    for step in (1, 2):
        model.zero_grad()
        model(signals(step)).square().sum().backward()
        alone.append(gradients(model))
    model.zero_grad()
    for step in (1, 2):
        model(signals(step)).square().sum().backward()
    summed = [a + b for a, b in zip(*alone, strict=True)]
    torch.testing.assert_close(gradients(model), summed)


def test_second_derivatives_exist_in_the_reference():
    x = torch.randn(1, 1, 12, generator=torch.Generator().manual_seed(0)).double()
    assert torch.autograd.gradgradcheck(
        lambda x: psd_norm(x, None, 4, backend="reference"), x.requires_grad_()
    )


def test_vmap_in_evaluation_maps_over_batches():
    layer = PSDNorm(2, 5)
    layer(signals(0))
    layer.eval()
    stacked = torch.stack([signals(s) for s in range(4)])
    expected = torch.stack([layer(x) for x in stacked])
    torch.testing.assert_close(torch.func.vmap(layer)(stacked), expected)


def test_vmap_in_training_is_refused_in_words():
    stacked = torch.stack([signals(s) for s in range(4)])
    with pytest.raises(BackendError, match=r"vmap.*eval"):
        torch.func.vmap(PSDNorm(2, 5))(stacked)


def test_an_ensemble_with_stacked_buffers_trains_under_vmap():
    members = [PSDNorm(2, 5) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(members)
    stacked = torch.stack([signals(s) for s in range(3)])

    def forward(params, buffers, x):
        return torch.func.functional_call(members[0], (params, buffers), (x,))

    mapped = torch.func.vmap(forward)(params, buffers, stacked)
    for member, x, y, root in zip(
        members, stacked, mapped, buffers["running_sqrt_psd"], strict=True
    ):
        member.reset_running_stats()
        torch.testing.assert_close(member(x), y)
        torch.testing.assert_close(member.running_sqrt_psd, root)


@pytest.mark.parametrize("backend", ["reference", "fused"])
def test_a_gradient_in_evaluation_knows_the_barycenter_of_its_own_pass(backend):
    layer = PSDNorm(2, 5, backend=backend)
    layer(torch.randn(3, 2, 200))
    x, other = torch.randn(3, 2, 200), 5 * torch.randn(3, 2, 200)
    upstream, gradients = torch.randn(3, 2, 200), []
    for moves in (False, True):
        leaf = x.clone().requires_grad_()
        y = layer.eval()(leaf)
        if moves:
            layer.train()(other)
        y.backward(upstream)
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)
