"""psdnorm.domains names the domains of a batch for every layer inside."""

import asyncio
import copy
import pickle
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from psdnorm import PSDNorm, adapt, domains
from psdnorm.errors import ArgumentError
from psdnorm.functional import psd_norm

IDS = [3, 0, 3, 8]
NEEDS_IDS = '^PSDNorm with statistics="domain" needs to know which rows belong together: [^;]*$'


def signals(n=4, seed=0, length=200):
    x = torch.randn(n, 2, length, generator=torch.Generator().manual_seed(seed))
    return (1 + torch.arange(n).view(-1, 1, 1)) * (x + 0.5 * x.roll(1, -1)) + 2


def normalized(x, ids, **options):
    with domains(ids):
        return PSDNorm(2, 5, statistics="domain", **options)(x)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"target": "white"}, {"target_power": "unit"}], ids=str)
def test_by_row_ids_change_no_bit(training, options):
    outside, inside = (PSDNorm(2, 5, affine=True, **options).train(training) for _ in range(2))
    x, again = signals().requires_grad_(), signals().requires_grad_()
    y = outside(x)
    with domains([0, 0]):  # not even their number matters
        z = inside(again)
    z.backward(signals(seed=1))
    y.backward(signals(seed=1))
    assert torch.equal(y, z)
    assert torch.equal(x.grad, again.grad)
    torch.testing.assert_close(outside.state_dict(), inside.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
def test_without_ids_there_is_one_sentence_and_no_update(training):
    model = nn.Sequential(PSDNorm(2, 5, statistics="domain")).train(training)
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        model(signals())
    with domains(IDS):
        model(signals())
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        model(signals())
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        psd_norm(signals(), statistics="domain")
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


def test_after_adapt_ids_are_needed_again():
    model = nn.Sequential(PSDNorm(2, 5, statistics="domain")).eval()
    with adapt(model, [signals()]):
        model(signals(1))
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        model(signals(1))


@pytest.mark.parametrize("n_rows", [3, 5, 6])
def test_a_wrong_number_of_ids_names_both_numbers(n_rows):
    said = f"^psdnorm.domains was given 4 ids, but a layer sees {n_rows} rows: [^;]*$"
    with pytest.raises(ArgumentError, match=said):
        normalized(signals(n_rows), IDS)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("ids", [IDS, ["c", "a", "c", "b"]], ids=["integers", "strings"])
def test_rows_of_one_sample_share_its_id(k, ids):
    x = signals(4 * k)
    assert torch.equal(normalized(x, ids), normalized(x, np.repeat(ids, k)))


def test_a_network_that_folds_time_into_rows_keeps_each_samples_domain():
    class Folding(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = PSDNorm(2, 5, statistics="domain")

        def forward(self, x):  # (N, C, 4 · T) → rows of T samples
            windows = x.unflatten(-1, (4, -1)).movedim(2, 1)
            return self.norm(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])

    model, x = Folding(), signals(length=800)
    with domains(IDS):
        y = model(x)
    rows = torch.cat([x[n, None, :, 200 * i : 200 * i + 200] for n in range(4) for i in range(4)])
    torch.testing.assert_close(y.flatten(0, 1), normalized(rows, np.repeat(IDS, 4)))


def test_an_unbatched_signal_is_a_domain():
    x = signals(1)
    assert torch.equal(normalized(x[0], [7]), normalized(x, ["seven"])[0])


@pytest.mark.parametrize(
    "ids",
    [
        ["c", "a", "c", "b"],
        np.array(["c", "a", "c", "b"]),
        np.array(["c", "a", "c", "b"], dtype=object),
        ("ü", "", "ü", "b"),
        torch.tensor(IDS),
        torch.tensor(IDS, dtype=torch.int8),
        np.array(IDS, dtype=np.uint64),
        [torch.tensor(i) for i in IDS],
        iter(IDS),
        [-(2**63), 2**63 - 1, -(2**63), 0],
        [2**53, 2**53 + 1, 2**53, 0],  # equal as floats
    ],
)
def test_only_equality_of_ids_matters(ids):
    torch.testing.assert_close(normalized(signals(), ids), normalized(signals(), IDS))


def test_the_ids_of_an_inner_context_end_with_it_and_with_an_error():
    layer = PSDNorm(2, 5, statistics="domain", target="white")
    x = signals()
    with domains(IDS):
        outer = layer(x)
        with domains([0, 0, 1, 1]):
            inner = layer(x)
        assert torch.equal(layer(x), outer)
        with pytest.raises(KeyError), domains([5] * 4):
            raise KeyError
        assert torch.equal(layer(x), outer)
    assert torch.equal(inner, normalized(x, list("aabb"), target="white"))
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        layer(x)


def test_ids_that_are_refused_leave_those_around_them():
    with domains(IDS):
        with pytest.raises(ArgumentError, match="one integer or string per sample"), domains(4):
            pass
        assert PSDNorm(2, 5, statistics="domain")(signals()).isfinite().all()


def test_threads_have_ids_of_their_own():
    found = {}

    def process(name, ids):
        with domains(ids):
            entered.wait()  # all are inside
            found[name] = PSDNorm(2, 5, statistics="domain")(signals())
            entered.wait()

    of_threads = {"a": IDS, "b": [0, 0, 1, 1], "c": list("wxyz")}
    entered = threading.Barrier(len(of_threads))
    threads = [threading.Thread(target=process, args=named) for named in of_threads.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ids in of_threads.items():
        torch.testing.assert_close(found[name], normalized(signals(), ids))


def test_tasks_that_take_turns_have_ids_of_their_own():
    async def process(ids):
        with domains(ids):
            await asyncio.sleep(0)  # the other task enters
            return PSDNorm(2, 5, statistics="domain")(signals())

    async def both():
        return await asyncio.gather(process(IDS), process([0, 0, 1, 1]))

    first, second = asyncio.run(both())
    torch.testing.assert_close(first, normalized(signals(), IDS))
    torch.testing.assert_close(second, normalized(signals(), [0, 0, 1, 1]))


def test_every_option_is_shown():
    options = {"statistics": "domain", "center": "domain", "target_power": "unit"}
    shown = repr(PSDNorm(6, 5, eps_mode="relative", **options))
    expected = "statistics=domain, center=domain, target_power=unit, eps_mode=relative"
    assert expected in shown
    assert PSDNorm(6, 5, eps_mode="relative", **options).extra_repr() in shown


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_behaves_as_the_original_and_learns_on_its_own(duplicate):
    options = {"center": "domain", "target_power": "unit", "eps_mode": "relative", "momentum": 0.3}
    layer = PSDNorm(2, 5, statistics="domain", affine=True, **options)
    with domains(IDS):
        layer(signals())
        twin = duplicate(layer)
        assert repr(twin) == repr(layer)
        torch.testing.assert_close(twin(signals(seed=1)), layer(signals(seed=1)), rtol=0, atol=0)
        state = copy.deepcopy(layer.state_dict())
        twin(9 * signals(seed=2))
    torch.testing.assert_close(layer.state_dict(), state, rtol=0, atol=0)
    assert len(pickle.dumps(layer)) == len(
        pickle.dumps(PSDNorm(2, 5, statistics="domain", affine=True, **options))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"target_power": "unit"},
        {"statistics": "domain", "center": "domain"},
        {"eps_mode": "relative"},
    ],
    ids=str,
)
def test_checkpoints_load_whatever_these_options(change):
    plain, other = PSDNorm(2, 5), PSDNorm(2, 5, **change)
    plain(signals())
    with domains(IDS):
        other(2 * signals())
    into_other, into_plain = PSDNorm(2, 5, **change), PSDNorm(2, 5)
    into_other.load_state_dict(plain.state_dict(), strict=True)
    into_plain.load_state_dict(other.state_dict(), strict=True)
    torch.testing.assert_close(into_other.running_sqrt_psd, plain.running_sqrt_psd)
    torch.testing.assert_close(into_plain.running_sqrt_psd, other.running_sqrt_psd)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("statistics", "night", "row, domain"),
        ("statistics", "fixed", "row, domain"),
        ("statistics", None, "row, domain"),
        ("center", "batch", "row, domain"),
        ("target_power", 1, "as-is, unit"),
        ("target_power", "as_is", "as-is, unit"),
        ("eps_mode", True, "absolute, relative"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(option, value, allowed):
    said = f"^{option} must be one of {allowed}, found {value!r}$"
    with pytest.raises(ArgumentError, match=said):
        PSDNorm(2, 5, **{option: value})
    with pytest.raises(ArgumentError, match=said):
        psd_norm(signals(), **{option: value})


def test_rows_cannot_be_centred_by_domain():
    said = '^center="domain" needs statistics="domain", found statistics=\'row\'$'
    with pytest.raises(ArgumentError, match=said):
        PSDNorm(2, 5, center="domain")
    with pytest.raises(ArgumentError, match=said):
        psd_norm(signals(), center="domain")


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
@pytest.mark.parametrize("target", ["white", "barycenter"])
@pytest.mark.parametrize("center", ["row", "domain"])
def test_a_recomputed_pass_uses_its_own_ids(target, center, use_reentrant):
    found = {}
    for way in ("plain", "checkpointed"):
        torch.manual_seed(0)
        norm = PSDNorm(4, 5, momentum=0.4, statistics="domain", center=center, target=target)
        model = nn.Sequential(nn.Conv1d(2, 4, 3), norm, nn.ELU(), nn.Conv1d(4, 1, 3))
        x = [signals(seed=s).requires_grad_() for s in range(3)]
        losses = []
        for batch, ids in zip(x, (IDS, list("aabb"), [1, 2]), strict=True):
            with domains(ids):
                if way == "plain":
                    losses.append(model(batch).sin().sum())
                else:
                    y = checkpoint(model, batch, use_reentrant=use_reentrant)
                    losses.append(y.sin().sum())
        with domains([0] * 8):  # the backward passes know nothing of what is current
            losses[1].backward()
            (losses[0] + losses[2]).backward()
        found[way] = [t.grad for t in (*x, *model.parameters())], dict(norm.state_dict())
    torch.testing.assert_close(found["checkpointed"], found["plain"])


def test_recomputed_passes_tell_the_same_rows_in_another_order_apart():
    grads = {}
    for way in ("plain", "checkpointed"):
        norm = PSDNorm(2, 5, statistics="domain", target="white")
        run = norm if way == "plain" else partial(checkpoint, norm, use_reentrant=False)
        x = signals()
        first, second = x.clone().requires_grad_(), x.flip(0).requires_grad_()
        with domains(IDS):
            y = run(first)
        with domains([0, 0, 1, 1]):
            z = run(second)
        y.sin().sum().backward()  # not in reverse
        z.sin().sum().backward()
        grads[way] = first.grad, second.grad
    torch.testing.assert_close(grads["checkpointed"], grads["plain"])


def test_psd_norm_is_recomputed_with_its_own_ids_too():
    def normalize(x):
        return psd_norm(x, filter_size=5, statistics="domain").sin().sum()

    grads = {}
    for way in ("plain", "checkpointed"):
        run = normalize if way == "plain" else partial(checkpoint, normalize, use_reentrant=False)
        x = [signals(n, seed=n).requires_grad_() for n in (4, 4, 2)]
        losses = []
        for batch, ids in zip(x, (IDS, [0, 0, 1, 1], [0, 0]), strict=True):
            with domains(ids):
                losses.append(run(batch))
        sum(losses).backward()
        grads[way] = [batch.grad for batch in x]
    torch.testing.assert_close(grads["checkpointed"], grads["plain"])
